//! The steps that all three measurements share: open the device, measure, restore it, and report.

use std::process::ExitCode;

use pciescope_bench::Run;
use pciescope_bench::on::{Bounds, Commands, Rule};
use pciescope_bench::why::Alarms;
use pciescope_core::plan::Plan;
use pciescope_core::{CpuList, Order, WhyPlan};
use pciescope_hw::Root;
use pciescope_hw::bind::Driver;
use pciescope_hw::probe::Probe;
use pciescope_hw::probe::open::{Backend, Kind, Need};

use super::progress::Progress;
use crate::cmd::conclusion::conclude;
use crate::cmd::device::{AccessArgs, CpuChoice, Device, of_cpuset, settle};
use crate::cmd::output::Output;
use crate::cmd::{Ctx, say};
use crate::values::{FunctionName, Time, some_time};

/// The options of all measurements that say on what and from where.
#[derive(Debug, clap::Args)]
pub struct DeviceArgs {
    /// The function: its address as in `lspci -D`, or a name such as nvme0n1 or eth0 (may be left out with --backend fake)
    #[arg(value_name = "BDF", value_parser = crate::values::bdf)]
    pub bdf: Option<FunctionName>,

    /// CPUs to measure from: a list as 0-3,8, node:N, local (the device's node) or all
    #[arg(long, value_name = "CPUS", default_value = "all")]
    pub cpus: CpuChoice,

    #[command(flatten)]
    pub access: AccessArgs,
}

impl DeviceArgs {
    /// The CPUs to measure from. All are those on which this process may run, unless the kernel's own threads measure.
    ///
    /// # Errors
    /// CPUs that are not online, nodes that do not exist or are not known.
    pub fn cpus(&self, ctx: &Ctx, device: &Device, need: Need) -> anyhow::Result<CpuList> {
        let cpus = device.cpus(&self.cpus)?;
        if self.cpus != CpuChoice::All || self.is_kernels(&ctx.root, device.function.driver.as_deref(), need) {
            return Ok(cpus);
        }
        Ok(of_cpuset(ctx, &cpus))
    }

    /// Whether the kernel's own threads measure: those of pcilat, which has the function or will get it.
    fn is_kernels(&self, root: &Root, driver: Option<&str>, need: Need) -> bool {
        match self.access.backend {
            Backend::Real(kind) => kind == Kind::Kmod,
            Backend::Fake(_) => true,
            Backend::Auto => {
                let bound = need.driver(root).filter(|_| self.access.bind).map(Driver::name);
                bound.or(driver) == Some(Driver::Pcilat.name())
            }
        }
    }
}

/// Which samples are explained.
#[derive(Debug, clap::Args)]
pub struct WhyArgs {
    /// Say why the slowest samples were slow: N of each CPU and target [default of N: 100]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "100",
        value_parser = clap::value_parser!(u32).range(1..=MOST_EXPLAINED))]
    why: Option<u32>,

    /// Explain all samples that take longer than this too, such as 50us
    #[arg(long, value_name = "TIME", requires = "why", value_parser = some_time)]
    above: Option<Time>,

    /// End the run after a sample that takes longer, and say why it did; exit code 1
    #[arg(long, value_name = "TIME", requires = "why", value_parser = some_time)]
    stop_above: Option<Time>,

    /// Run a command at a sample above a time, such as 'above:1ms=logger slow' (repeat for more)
    #[arg(long, value_name = "EVENT=COMMAND", requires = "why", value_parser = alarm)]
    on: Vec<(Rule, u64)>,
}

/// `--on` as typed, with the limit in nanoseconds.
fn alarm(text: &str) -> Result<(Rule, u64), String> {
    let parts = text.split_once('=').and_then(|(event, command)| Some((event, event.strip_prefix("above:")?, command)));
    match parts {
        Some((event, limit, command)) if !command.is_empty() => {
            Ok((Rule { event: event.to_owned(), command: command.to_owned() }, some_time(limit)?.0))
        }
        _ => Err("write a time and a command, such as 'above:1ms=logger a slow sample'".to_owned()),
    }
}

/// The largest number of samples that are explained.
const MOST_EXPLAINED: i64 = 10_000;

impl WhyArgs {
    /// As a plan has it.
    pub fn plan(&self) -> Option<WhyPlan> {
        let limit = |time: Option<Time>| time.map(|time| time.0);
        let (above_ns, stop_above_ns) = (limit(self.above), limit(self.stop_above));
        Some(WhyPlan { slowest: self.why?, above_ns, stop_above_ns })
    }

    /// What runs at slow samples.
    pub fn alarms(&self) -> Option<Alarms> {
        let limits = self.on.iter().map(|(rule, limit)| (rule.event.clone(), *limit)).collect();
        let rules: Vec<Rule> = self.on.iter().map(|(rule, _)| rule.clone()).collect();
        let start = || Commands::start(rules, Bounds::USUAL, |warning| say(&format!("pciescope: {}\n", warning.text)));
        (!self.on.is_empty()).then(|| Alarms { limits, commands: start() })
    }
}

/// `--order` as typed; the number of rounds is 5 unless said otherwise.
pub fn order(text: &str) -> Result<Order, String> {
    match text.split_once(':').unwrap_or((text, "")) {
        ("sequential", "") => Ok(Order::Sequential),
        ("concurrent", "") => Ok(Order::Concurrent),
        ("interleaved", "") => Ok(Order::Interleaved { rounds: 5 }),
        ("interleaved", rounds) => match rounds.parse() {
            Ok(rounds @ 1..=10_000) => Ok(Order::Interleaved { rounds }),
            _ => Err(format!("{rounds:?} is not a number of rounds from 1 to 10000")),
        },
        _ => Err("take sequential, interleaved, interleaved:ROUNDS or concurrent".to_owned()),
    }
}

/// What a measurement needs in addition to its plan.
pub struct Job<'t> {
    /// The `verb` of the records.
    pub verb: &'static str,
    /// What the backend must be able to do.
    pub need: Need,
    /// The plan as the records hold it.
    pub plan: Plan,
    /// What runs at slow samples.
    pub alarms: Option<Alarms>,
    /// Where the records and raw samples go.
    pub output: Output,
    /// The measurement itself.
    pub experiment: Experiment<'t>,
}

/// A measurement with a probe that is ready.
pub type Experiment<'t> = &'t dyn Fn(&mut dyn Probe, &mut Run<'_>) -> Result<(), pciescope_bench::Error>;

impl Job<'_> {
    /// Binds if asked to, measures, and puts everything back.
    ///
    /// # Errors
    /// What kept the measurement from beginning; what ended it stands in its records and in the exit code.
    pub fn carry_out(mut self, ctx: &Ctx, mut device: Device, args: &AccessArgs) -> anyhow::Result<ExitCode> {
        ctx.stop.catch_signals()?;
        let mut reached = device.reach(ctx, args, self.need)?;
        let progress = Progress::new(ctx, self.verb);
        let setup = device.setup(self.verb, self.output.label.clone(), self.plan);
        let mut run = Run::start(setup, &ctx.root, &progress, &mut self.output)?;
        run.alarms = self.alarms;
        let measured = (self.experiment)(reached.probe.as_mut(), &mut run);
        progress.clear();
        let restored = reached.give_back();
        let finished = measured.and_then(|()| run.finish()).map_err(Into::into);
        let summary = settle(device.bdf, finished, restored, &mut |note| ctx.note(note))?;
        Ok(conclude(ctx, &summary, self.output.is_table()))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        device: DeviceArgs,
    }

    #[test]
    fn threads_of_the_kernel_measure_only_with_pcilat() {
        let machine = |drivers: &[&str]| {
            let folder = tempfile::tempdir().unwrap();
            for driver in drivers {
                std::fs::create_dir_all(folder.path().join("sys/bus/pci/drivers").join(driver)).unwrap();
            }
            folder
        };
        for (words, drivers, own, is_kernels) in [
            ("", &["pcilat"][..], Some("pcilat"), true),
            ("", &["pcilat", "vfio-pci"], Some("nvme"), false),
            ("--bind", &["pcilat", "vfio-pci"], Some("nvme"), true),
            // Only vfio-pci is there to be bound: threads of this process measure.
            ("--bind", &["vfio-pci"], Some("nvme"), false),
            ("--bind --backend vfio", &["pcilat", "vfio-pci"], None, false),
            ("--backend kmod", &["pcilat"], Some("pcilat"), true),
        ] {
            let typed = Typed::parse_from(["x", "00:01.0"].into_iter().chain(words.split_whitespace()));
            let folder = machine(drivers);
            let is = typed.device.is_kernels(&Root::at(folder.path()), own, Need::Mmio);
            assert_eq!(is, is_kernels, "{words} with {drivers:?}, of {own:?}");
        }
    }
}
