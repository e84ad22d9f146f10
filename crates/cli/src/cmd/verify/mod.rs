//! `pciescope verify`: are the counters right? A workload of known traffic beside them, with an error figure.

mod counters;
mod dram;
mod pcie;
mod readout;

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use pciescope_bench::verify::{Options, Verified};
use pciescope_core::{Function, Identity, Method, Metric, Record, Sink, Warning};

use super::Ctx;
use super::output::Output;

/// The arguments of `pciescope verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope verify pcie --target /dev/nvme0n1
  pciescope verify pcie --target /dev/nvme1n1 --write --seconds 60
  pciescope verify dram --node 0
  pciescope verify readout /dev/sis8300-6
  pciescope verify dram --with 'bw_mem 4096M rd 2>&1'

Exit code 1 when an error exceeds what is allowed: the tolerance, or for a counter that took turns its stated bound.")]
pub struct Args {
    /// What to verify.
    #[command(subcommand)]
    what: What,
}

/// What to verify.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// The payload counters of a disk's root port, by fio
    Pcie(pcie::Args),
    /// The counters of DRAM channels, by memory traffic of known size
    Dram(dram::Args),
    /// The payload counter of a root port, by reading a device below it
    Readout(readout::Args),
}

/// Runs the chosen verification.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Pcie(args) => pcie::run(args, ctx),
        What::Dram(args) => dram::run(args, ctx),
        What::Readout(args) => readout::run(args, ctx),
    }
}

/// Between two readings of counters: two turns of perf's rotation on ports (docs/pmu.md), more on others.
const TICK: Duration = Duration::from_millis(100);
/// How long the counters are watched before each workload.
const IDLE: Duration = Duration::from_millis(500);
/// Traffic before the workload that is this share of it makes the figure doubtful, in percent.
const LOUD_PERCENT: f64 = 0.5;

/// A percentage as typed: `1`, `0.5` or `0.5%`.
fn percent(text: &str) -> Result<f64, String> {
    let value = text.strip_suffix('%').unwrap_or(text).parse::<f64>();
    value
        .ok()
        .filter(|value| value.is_finite() && *value >= 0.0)
        .ok_or_else(|| "write a percentage such as 1 or 0.5".to_owned())
}

/// Where the rows of all experiments go, and what becomes of them.
struct Journal<'j> {
    ctx: &'j Ctx,
    output: Output,
    identity: Identity,
    is_wrong: bool,
    rows: u32,
}

impl<'j> Journal<'j> {
    fn new(ctx: &'j Ctx, output: Output, verb: &str) -> Self {
        let identity = Identity::new(verb, output.label.clone());
        Journal { ctx, output, identity, is_wrong: false, rows: 0 }
    }

    /// How the experiments are to go about it.
    fn options<'o>(tolerance_percent: f64, is_stopped: &'o (dyn Fn() -> bool + Sync)) -> Options<'o> {
        Options { tick: TICK, idle: IDLE, tolerance_percent, is_stopped }
    }

    /// Writes the rows of an experiment.
    fn put(&mut self, verified: &Verified, device: Option<&Function>, emulated: bool) -> anyhow::Result<()> {
        for (row, idle) in verified.rows.iter().zip(&verified.idle_bytes_per_s) {
            let mut record = Record {
                device: device.cloned(),
                method: Some(Method { backend: "perf".to_owned(), emulated, ..Method::default() }),
                ..row.to_record()
            };
            record.metrics.insert("idle_bytes_per_s".to_owned(), Metric::of(*idle, "bytes/s"));
            let share = idle * row.counter_s / row.workload_bytes * 100.0;
            if share > LOUD_PERCENT {
                record.warnings.push(Warning {
                    code: "other-traffic".to_owned(),
                    text: format!("{}: {share:.2} % of the workload's traffic were there before it began", row.counter),
                    hint: "end what else uses the device or memory; nothing is subtracted".to_owned(),
                });
            }
            if row.is_scaled() && row.bound_percent.is_none() {
                record.warnings.push(Warning {
                    code: "no-bound".to_owned(),
                    text: format!("{}: too few readings to say how wrong a scaled count can be", row.counter),
                    hint: "run longer, with --seconds".to_owned(),
                });
            }
            self.is_wrong |= row.is_right() == Some(false);
            self.rows += 1;
            self.identity.mark(&mut record, SystemTime::now());
            self.output.put(&record)?;
        }
        Ok(())
    }

    /// The end: the table, and the exit code.
    fn finish(mut self) -> anyhow::Result<ExitCode> {
        self.output.finish()?;
        Ok(match self.ctx.stop.exit_code() {
            Some(code) => ExitCode::from(code),
            None if self.rows == 0 => ExitCode::from(2),
            None if self.is_wrong => ExitCode::from(1),
            None => ExitCode::SUCCESS,
        })
    }
}
