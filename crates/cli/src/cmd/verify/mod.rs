//! `pciescope verify`: checks whether the counters are right. It runs a workload of known traffic and shows the error.

mod dram;
mod pcie;
mod readout;

use pciescope_core::warning;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use pciescope_bench::counters::{self, Choice, Origin, Place, Wanted};
use pciescope_bench::verify::{Counter, Side, Verified};
use pciescope_core::{Function, Identity, Method, Metric, Record, Sink};
use pciescope_hw::environment;

use super::output::{Output, OutputArgs};
use super::{Ctx, Refusal};
use crate::values::{Time, time};

/// The arguments of `pciescope verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope verify pcie /dev/nvme0n1
  pciescope verify pcie /dev/nvme1n1 --write --duration 1min
  pciescope verify dram --node 0
  pciescope verify readout /dev/sis8300-6
  pciescope verify dram --with 'bw_mem 4096M rd 2>&1'

The exit code is 1 if an error exceeds the tolerance. For a multiplexed counter
the error must also exceed the stated bound.")]
pub struct Args {
    /// What to verify.
    #[command(subcommand)]
    what: VerifyVerb,
}

/// What to verify.
#[derive(Debug, clap::Subcommand)]
enum VerifyVerb {
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
        VerifyVerb::Pcie(args) => pcie::run(args, ctx),
        VerifyVerb::Dram(args) => dram::run(args, ctx),
        VerifyVerb::Readout(args) => readout::run(args, ctx),
    }
}

/// Traffic before the workload that is this share of it makes the figure doubtful, in percent.
const LOUD_PERCENT: f64 = 0.5;

/// Parses how long an experiment takes: at least a second.
fn seconds(text: &str) -> Result<Time, String> {
    match time(text)? {
        Time(ns) if ns < 1_000_000_000 => Err("the shortest time here is 1 s".to_owned()),
        time => Ok(time),
    }
}

/// The payload counters of a root port for these sides: the first PMU at a place that has all of them.
fn payload(ctx: &Ctx, place: Place, sides: &[Side]) -> anyhow::Result<(Choice, Vec<Counter>)> {
    let metric = |side: &Side| match side {
        Side::Read => "rx_bytes_per_s",
        Side::Write => "tx_bytes_per_s",
    };
    let metrics = sides.iter().map(|side| metric(side).to_owned()).collect();
    let choice = counters::choose(
        &ctx.root,
        &Wanted { places: vec![place], metrics, origin: Origin::Hardware, ..Wanted::default() },
    )?;
    for number in 0..choice.panels.len() {
        let choice = choice.only(&[number]);
        let counters = sides.iter().map(|side| Counter::of_panel(&choice, 0, *side, metric(side))).collect();
        if let Some(counters) = counters {
            return Ok((choice, counters));
        }
    }
    let missing = choice.panels.iter().zip(&choice.instruments).find_map(|(panel, instrument)| {
        let (name, why) = panel.missing.first()?;
        Some(format!("{}: {name}: {why}", instrument.pmu.name))
    });
    let text = missing.unwrap_or_else(|| "no PMU counts the payload of this port".to_owned());
    Err(Refusal::new(text, "`pciescope stat --list` shows the counters; name another PMU with --pmu").into())
}

/// Where the rows of all experiments go, and what becomes of them.
struct Journal<'j> {
    ctx: &'j Ctx,
    output: Output,
    identity: Identity,
    is_wrong: bool,
    rows: u32,
    /// The workloads without a row, each with the reason.
    left_out: Vec<String>,
}

impl<'j> Journal<'j> {
    /// Opens the outputs and catches signals. `inputs` are what the verb reads.
    fn open(ctx: &'j Ctx, output: &OutputArgs, inputs: &[&Path], verb: &str) -> anyhow::Result<Self> {
        let output = Output::open(output, inputs)?;
        let identity = Identity::new(verb, output.label.clone());
        let journal = Journal { ctx, output, identity, is_wrong: false, rows: 0, left_out: Vec::new() };
        ctx.stop.catch_signals()?;
        Ok(journal)
    }

    /// Writes the rows of an experiment; `port` is the root port that was looked at, and `load` the workload with the
    /// counters beside it.
    fn put(
        &mut self,
        verified: Vec<Verified>,
        port: Option<&Function>,
        load: (&str, &[Counter]),
    ) -> anyhow::Result<()> {
        if verified.is_empty() {
            self.left_out.push(not_compared(load.0, load.1));
        }
        let is_guest = || environment::hypervisor(&self.ctx.root).is_some();
        let emulated = port.map_or_else(is_guest, |port| port.emulated.is_some());
        for Verified { row, idle_bytes_per_s, warnings } in verified {
            let mut record = Record {
                device: port.cloned(),
                method: Some(Method { backend: "perf".to_owned(), emulated, ..Method::default() }),
                warnings,
                ..row.to_record()
            };
            if let Some(idle) = idle_bytes_per_s {
                record.metrics.insert("idle_bytes_per_s".to_owned(), Metric::of(idle, "bytes/s"));
            }
            let share = idle_bytes_per_s.unwrap_or(0.0) * row.counter_s / row.workload_bytes * 100.0;
            if share > LOUD_PERCENT {
                record.warnings.push(warning::OTHER_TRAFFIC.warn(format!(
                    "{}: before the workload began, there was traffic of {share:.2} % of the workload's",
                    row.counter
                )));
            }
            if row.is_scaled() && row.bound_percent.is_none() {
                record.warnings.push(
                    warning::NO_BOUND
                        .warn(format!("{}: too few readings to say how wrong a scaled count can be", row.counter)),
                );
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
        let stopped = self.ctx.stop.exit_code();
        if stopped.is_none() {
            self.left_out.iter().for_each(|text| self.ctx.note(text));
            if self.rows == 0 {
                self.ctx.hint(
                    "`pciescope stat --list` shows the counters of this machine; choose a workload that they count",
                );
            }
        }
        Ok(match stopped {
            Some(code) => ExitCode::from(code),
            None if self.rows == 0 => ExitCode::from(2),
            None if self.is_wrong => ExitCode::from(1),
            None => ExitCode::SUCCESS,
        })
    }
}

/// Why a workload has no row: which side is counted, and which is not.
fn not_compared(load: &str, counters: &[Counter]) -> String {
    let is_counted = |side| counters.iter().any(|counter| counter.side == side);
    let sides = match (is_counted(Side::Read), is_counted(Side::Write)) {
        (true, true) => "it moved no bytes",
        (true, false) => "it read no bytes, and nothing counts writes",
        (false, true) => "it wrote no bytes, and nothing counts reads",
        (false, false) => "nothing counts reads or writes",
    };
    format!("{load}: not compared: {sides}")
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    #[test]
    fn a_workload_without_a_row_names_the_side_that_nothing_counts() {
        let counter = |side| Counter { name: String::new(), side, metric: "x", bytes_per_count: 1.0, panels: vec![0] };
        let (read, write) = (counter(Side::Read), counter(Side::Write));
        for (counters, why) in [
            (slice::from_ref(&read), "fwr: not compared: it read no bytes, and nothing counts writes"),
            (slice::from_ref(&write), "fwr: not compared: it wrote no bytes, and nothing counts reads"),
            (&[read.clone(), write.clone()], "fwr: not compared: it moved no bytes"),
            (&[], "fwr: not compared: nothing counts reads or writes"),
        ] {
            assert_eq!(not_compared("fwr", counters), why);
        }
    }
}
