//! `pciescope import`: foreign logs to records.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pciescope_core::{Identity, Sink};
use pciescope_report::import::{self, Format, Imported};

use super::output::{Output, OutputArgs};
use super::{Ctx, Stop};

/// The arguments of `pciescope import`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope import /dev/pcilatdriver/0000:1a:00.0/interrupt
  pciescope import interrupt.log -o run.jsonl
  perf stat -I 1000 -x, -e cycles sleep 9 2>&1 | pciescope import - --csv
  perf stat -e dwc_rootport_10/rx_pcie_tlp_data_payload/ fio a.fio 2> perf.txt
  pciescope import perf.txt --workload bw_mem.txt
  pciescope import threads.txt -o old.jsonl
  pciescope report old.jsonl new.jsonl -o both.html

Formats (docs/record.md):
  interrupt        five whole numbers a line:
                   handler_entry_ns trigger_to_handler_ns entry_to_ack_ns cpu
                   irq
  iomem            four whole numbers a line: timestamp_ns latency_ns cpu bar
  perf-stat        what perf iostat prints, and perf stat, also with -I, -x,
                   for each socket, core, node or thread, and as JSON. If the
                   log also has a report of fio (text, JSON, terse) or a line of
                   bw_mem, counters are compared with the bytes that it moved
  sis8300-threads  parameters and rows that the tool sis8300drv_threads prints")]
pub struct Args {
    /// The log; `-` is the standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The format of the log; if not given, import detects it
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Kind>,

    /// What a workload printed while perf stat counted: fio's report, or bw_mem's command and its line. Not needed if
    /// the log itself has it
    #[arg(long, value_name = "FILE")]
    workload: Option<PathBuf>,

    /// Write the records to FILE
    #[command(flatten)]
    output: OutputArgs,
}

/// The formats by the names they have on the command line.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Kind {
    /// The interrupt log of pcilat
    Interrupt,
    /// The register read log of pcilat
    Iomem,
    /// The output of perf stat
    PerfStat,
    /// The output of sis8300drv_threads
    #[value(name = "sis8300-threads")]
    Threads,
}

/// Runs the verb. Lines that were not taken make the exit code 1: a check failed.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let format = args.format.map(|kind| match kind {
        Kind::Interrupt => Format::Interrupt,
        Kind::Iomem => Format::Iomem,
        Kind::PerfStat => Format::PerfStat,
        Kind::Threads => Format::Threads,
    });
    let inputs: Vec<&Path> = std::iter::once(&args.file).chain(&args.workload).map(PathBuf::as_path).collect();
    if args.output.file.output.is_some() {
        // Until its end there may be a part of the file.
        ctx.stop.catch_signals()?;
    }
    let mut output = Output::open(&args.output, &inputs)?;
    let identity = Identity::new("import", output.label.clone());
    let (file, workload) = (args.file, args.workload);
    let read = move || import::read_beside(&file, format, &identity, workload.as_deref());
    let Some(log) = unless_stopped(&ctx.stop, read) else {
        return Ok(ctx.stop.exit_code().map_or(ExitCode::SUCCESS, ExitCode::from));
    };
    let log = log?;
    output.put_all(&log.records)?;
    output.finish()?;
    tell(ctx, &log);
    if args.format.is_none() && log.words == 0 && matches!(log.format, Format::Interrupt | Format::Iomem) {
        let numbers = if matches!(log.format, Format::Interrupt) { "five" } else { "four" };
        ctx.note(&format!("read as {}, because its lines are {numbers} whole numbers", log.format.name()));
        ctx.hint("--format says what a log without a line of words is");
    }
    let code = ctx.stop.exit_code().unwrap_or(u8::from(log.malformed > 0));
    Ok(ExitCode::from(code))
}

/// So often a read is looked at for a signal.
const TICK: Duration = Duration::from_millis(20);

/// What `read` answers; `None` if a signal came before. A read that waits for a pipe then waits on, until the program ends.
fn unless_stopped<T: Send + 'static>(stop: &Stop, read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (ended, end) = mpsc::channel();
    let reader = thread::spawn(move || ended.send(read()));
    loop {
        match end.recv_timeout(TICK) {
            Ok(answer) => return Some(answer),
            Err(RecvTimeoutError::Timeout) if stop.is_set() => return None,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => match reader.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(_) => unreachable!("a reader that has ended has answered"),
            },
        }
    }
}

fn tell(ctx: &Ctx, log: &Imported) {
    let malformed = if log.malformed > 0 { format!(", {} not taken", log.malformed) } else { String::new() };
    if ctx.verbose > 0 || log.malformed > 0 {
        let (format, samples, words) = (log.format.name(), log.samples, log.words);
        ctx.note(&format!("{format}: {samples} of {} lines taken, {words} with words skipped{malformed}", log.lines));
    }
}
