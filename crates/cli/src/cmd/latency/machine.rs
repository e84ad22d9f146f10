//! What all three measurements do before and after: find the function, its machine and a backend, and report.

use std::process::ExitCode;

use pciescope_bench::{Identity, Setup, Summary};
use pciescope_core::outcome::Sample;
use pciescope_core::plan::Plan;
use pciescope_core::{Bdf, CpuList, Environment, Function, Order, Warning};
use pciescope_hw::probe::fake::Machine as FakeMachine;
use pciescope_hw::probe::open::{Backend, Need, Opened, open};
use pciescope_hw::{check, environment, pci, topology};

use super::output::{Output, RawFile};
use crate::cmd::{Ctx, Refusal};

/// The options of all measurements that say on what and from where.
#[derive(Debug, clap::Args)]
pub struct DeviceArgs {
    /// The function, as `lspci -D` prints it (may be left out with --backend fake)
    #[arg(value_name = "BDF", value_parser = crate::args::bdf)]
    pub bdf: Option<Bdf>,

    /// CPUs to measure from: a list as 0-3,8, node:N, local (the device's node) or all
    #[arg(long, value_name = "CPUS", default_value = "all")]
    pub cpus: CpuChoice,

    /// How to reach the device: auto, kmod, vfio, resource, sysfs or fake[:OPTION,...]
    #[arg(long, value_name = "BACKEND", default_value = "auto", value_parser = backend)]
    pub backend: Backend,
}

/// Parses a backend, with the hint in the refusal.
pub fn backend(text: &str) -> Result<Backend, String> {
    text.parse().map_err(|err: pciescope_hw::Error| match err.hint() {
        Some(hint) => format!("{err}: {hint}"),
        None => err.to_string(),
    })
}

/// `--cpus` as typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CpuChoice {
    /// Every CPU that is online.
    All,
    /// The CPUs of the device's node.
    Local,
    /// The CPUs of a NUMA node.
    Node(u32),
    /// These.
    List(CpuList),
}

impl std::str::FromStr for CpuChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => return Ok(CpuChoice::All),
            "local" => return Ok(CpuChoice::Local),
            _ => {}
        }
        if let Some(node) = text.strip_prefix("node:") {
            return node.parse().map(CpuChoice::Node).map_err(|_| format!("{node:?} is not the number of a node"));
        }
        let list: CpuList = text.parse().map_err(|err: pciescope_core::Error| err.to_string())?;
        if list.is_empty() {
            return Err("it names no CPU".to_owned());
        }
        Ok(CpuChoice::List(list))
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

/// The function and the machine it is in, real or synthetic.
pub struct Machine {
    /// The function to measure.
    pub function: Function,
    /// Its address.
    pub bdf: Bdf,
    environment: Environment,
    warnings: Vec<Warning>,
    identity: Option<Identity>,
}

impl Machine {
    /// Looks at the function and its machine.
    ///
    /// # Errors
    /// No address, or no such function.
    pub fn find(ctx: &Ctx, args: &DeviceArgs) -> anyhow::Result<Machine> {
        if let Backend::Fake(options) = &args.backend {
            let fake = FakeMachine::new(options.clone());
            if let Some(bdf) = args.bdf.filter(|&bdf| bdf != fake.bdf()) {
                return Err(Refusal::new(
                    format!("{bdf}: the fake backend has no such function"),
                    format!("its device is {}; the address may be left out", fake.bdf()),
                )
                .into());
            }
            return Ok(Machine {
                function: fake.function(),
                bdf: fake.bdf(),
                environment: fake.environment(),
                warnings: Vec::new(),
                identity: Some(Identity { run: fake.run(), time: fake.time() }),
            });
        }
        let bdf = args.bdf.ok_or_else(|| {
            Refusal::new(
                "no device was named",
                "give its address, which `pciescope list` shows, for example 0000:3b:00.0",
            )
        })?;
        let function = pci::function(&ctx.root, bdf)?;
        let environment = environment::read(&ctx.root);
        let warnings = check::warnings(&ctx.root, &environment, Some(&function));
        Ok(Machine { function, bdf, environment, warnings, identity: None })
    }

    /// The CPUs that `choice` means.
    ///
    /// # Errors
    /// CPUs that are not online, nodes that do not exist or are not known.
    pub fn cpus(&self, choice: &CpuChoice) -> anyhow::Result<CpuList> {
        let online: CpuList = self.environment.cpus.iter().map(|cpu| cpu.cpu).collect();
        let nodes = topology::nodes(&self.environment.cpus);
        let of_node = |node: u32| nodes.iter().find(|(number, _)| *number == node).map(|(_, cpus)| cpus.clone());
        match choice {
            CpuChoice::All => Ok(online),
            CpuChoice::List(list) => {
                let offline = list.minus(&online);
                if !offline.is_empty() {
                    let text = format!("CPU {offline} is not online");
                    return Err(Refusal::new(text, format!("the online CPUs are {online}")).into());
                }
                Ok(list.clone())
            }
            CpuChoice::Node(node) => of_node(*node).ok_or_else(|| {
                let numbers: Vec<String> = nodes.iter().map(|(number, _)| number.to_string()).collect();
                let hint = match numbers.is_empty() {
                    true => "this machine does not describe its nodes; give the CPUs as a list".to_owned(),
                    false => format!("the nodes with online CPUs are {}", numbers.join(", ")),
                };
                Refusal::new(format!("node {node} has no online CPU"), hint).into()
            }),
            CpuChoice::Local => self.function.node.and_then(of_node).ok_or_else(|| {
                let text = format!("{}: the machine does not say which CPUs are near it", self.bdf);
                Refusal::new(text, "give the CPUs as a list, or --cpus node:N").into()
            }),
        }
    }

    /// Opens a backend and says which if the program chose.
    ///
    /// # Errors
    /// Why none can measure.
    pub fn open(&self, ctx: &Ctx, args: &DeviceArgs, need: Need) -> anyhow::Result<Opened> {
        let opened = open(&ctx.root, &self.function, &args.backend, need)?;
        if args.backend == Backend::Auto || ctx.verbose > 0 {
            ctx.note(&format!("{}: measuring by {}: {}", self.bdf, opened.probe.backend(), opened.why));
        }
        if ctx.verbose > 0 {
            for (backend, why) in &opened.refused {
                ctx.note(&format!("{}: not by {backend}: {why}", self.bdf));
            }
        }
        Ok(opened)
    }

    /// What the run is about.
    pub fn setup(&self, verb: &'static str, plan: Plan) -> Setup {
        Setup {
            verb,
            function: self.function.clone(),
            environment: self.environment.clone(),
            warnings: self.warnings.clone(),
            plan,
            identity: self.identity.clone(),
        }
    }
}

/// How many failed checks are named before the rest is only counted.
const CHECKS_SHOWN: usize = 5;

/// Says on the standard error what went wrong, and makes the exit code of it.
pub fn conclude(ctx: &Ctx, summary: &Summary, is_table: bool) -> ExitCode {
    for failure in &summary.failures {
        ctx.note(&failure.text);
        if let Some(hint) = &failure.hint {
            eprintln!("hint: {hint}");
        }
    }
    for check in summary.failed_checks.iter().take(CHECKS_SHOWN) {
        ctx.note(check);
    }
    if summary.failed_checks.len() > CHECKS_SHOWN {
        ctx.note(&format!("and {} more failed checks, see the records", summary.failed_checks.len() - CHECKS_SHOWN));
    }
    // The tables end with the warnings; who asked for records finds them there.
    if !is_table && ctx.verbose > 0 {
        for warning in &summary.warnings {
            ctx.note(&format!("warning: {}", warning.text));
            eprintln!("hint: {}", warning.hint);
        }
    }
    let is_interrupted = summary.failures.iter().any(|failure| failure.code == "interrupted");
    match ctx.stop.exit_code() {
        Some(code) if is_interrupted => ExitCode::from(code),
        _ if !summary.failures.is_empty() => ExitCode::from(2),
        _ if !summary.failed_checks.is_empty() => ExitCode::from(1),
        _ => ExitCode::SUCCESS,
    }
}

/// Runs an experiment between the start and the end of its records.
pub fn carry_out(
    ctx: &Ctx,
    setup: Setup,
    output: &mut Output,
    raw: Option<&mut RawFile>,
    experiment: &mut dyn FnMut(&mut pciescope_bench::Run<'_>) -> Result<(), pciescope_bench::Error>,
) -> anyhow::Result<ExitCode> {
    ctx.stop.catch_signals()?;
    let progress = super::progress::Progress::new(ctx, setup.verb);
    let raw = raw.map(|raw| Box::new(|samples: &[Sample]| raw.put(samples)) as Box<pciescope_bench::RawSink<'_>>);
    let mut run = pciescope_bench::Run::start(setup, &ctx.root, &progress, output, raw)?;
    let measured = experiment(&mut run);
    progress.clear();
    measured?;
    let summary = run.finish()?;
    let is_table = output.is_table();
    Ok(conclude(ctx, &summary, is_table))
}
