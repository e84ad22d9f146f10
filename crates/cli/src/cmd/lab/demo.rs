//! `pciescope lab demo`: does every measurement on virtual hardware, and shows the settings of the hardware beside the
//! results.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use pciescope_core::outcome::INJECTED;
use pciescope_core::{Histogram, Metric, Record, Sink};
use pciescope_lab::Served;
use pciescope_lab::device::LatencyEndpoint;
use pciescope_lab::device::config::Link;
use pciescope_lab::vm::{Arch, Attachment, Kernel, Vm, standard_machine};
use pciescope_report::{html, jsonl};
use serde_json::Value;

use crate::cmd::Ctx;
use crate::cmd::files::{self, Opened};

/// The arguments of `pciescope lab demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope lab demo
  pciescope lab demo --kernel newest --dir /tmp/demo

The files of an earlier demo in the folder are replaced.")]
pub struct Args {
    /// Architecture of the guest: amd64 or arm64 [default: $PCIESCOPE_LAB_ARCH, else amd64]
    #[arg(long, value_name = "ARCH")]
    arch: Option<Arch>,

    /// Guest kernel: 6.1, 6.12, newest; or 5.10 or 6.12-16k, which lab/setup-kernel adds
    #[arg(long, value_name = "KERNEL", default_value_t = Kernel::default())]
    kernel: Kernel,

    /// Folder for report.html and records.jsonl
    #[arg(long, value_name = "DIR", default_value = "demo")]
    dir: PathBuf,
}

/// One measurement of the demo.
struct Measurement {
    /// What the terminal and the page call it.
    label: &'static str,
    /// What the endpoint is told before.
    device: &'static [&'static str],
    /// The program's arguments; `{endpoint}`, `{behind}` and `{nvme}` become addresses.
    args: &'static str,
    /// The test whose records are judged.
    test: &'static str,
    /// The histogram that is shown.
    histogram: &'static str,
    /// What the endpoint added to every sample at least, in nanoseconds.
    injected_ns: f64,
}

/// Reads of registers without a delay, as far as a step does not say otherwise.
const READS: Measurement =
    Measurement { label: "", device: &[], args: "", test: "mmio-read", histogram: "latency", injected_ns: 0.0 };

const STEPS: [Measurement; 8] = [
    Measurement {
        label: "path to the endpoint behind the switch",
        args: "latency path {behind} --bind --count 1000",
        test: "config-read",
        ..READS
    },
    Measurement { label: "register reads, no delay", args: "latency mmio {endpoint} --bind --count 5000", ..READS },
    Measurement {
        label: "register reads, 20 us injected",
        device: &["read-delay fixed 20us"],
        args: "latency mmio {endpoint} --bind --count 5000",
        injected_ns: 20e3,
        ..READS
    },
    Measurement {
        label: "register reads, two peaks: 20 us, and 60 us for 5 %",
        device: &["read-delay two-peak 20us 60us 50 7"],
        args: "latency mmio {endpoint} --bind --count 5000",
        injected_ns: 20e3,
        ..READS
    },
    Measurement {
        label: "register writes (what issuing costs the CPU)",
        args: "latency mmio {endpoint} --bind --test write --count 2000",
        test: "mmio-write",
        ..READS
    },
    Measurement { label: "registers of QEMU's NVMe drive", args: "latency mmio {nvme} --bind --count 2000", ..READS },
    Measurement {
        label: "interrupts, no delay, with the control arm",
        args: "latency irq {endpoint} --bind --vectors 0-7 --count 200 --timeout 2s",
        test: "irq-hardware",
        histogram: "trigger_to_handler",
        ..READS
    },
    Measurement {
        label: "interrupts, 200 us injected",
        device: &["irq-delay fixed 200us"],
        args: "latency irq {endpoint} --bind --vectors 0-3 --count 200 --raised-by hardware --timeout 2s",
        test: "irq-hardware",
        histogram: "trigger_to_handler",
        injected_ns: 200e3,
    },
];

/// The longest a step may take with KVM; twice that without.
const STEP: Duration = Duration::from_secs(60);

/// Boots, measures, and leaves the records and the page.
pub fn run(args: &Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let start = Instant::now();
    // Progress for a person; the closing table is the only thing on the standard output.
    let say = |text: &str| ctx.note(&format!("[{:5.1} s] {text}", start.elapsed().as_secs_f64()));
    let dir = files::make_folder(&args.dir).with_context(|| format!("cannot create {}", args.dir.display()))?;
    let records_path = dir.join("records.jsonl");
    let report_path = dir.join("report.html");
    let Opened { file, mut place } = files::create(&records_path, true)?;
    let mut file = jsonl::Writer::new(file);

    let folder = tempfile::tempdir().context("cannot create a folder for the devices' sockets")?;
    let link = Link::default();
    let serve = |device, name| Served::spawn(device, folder.path(), name);
    let endpoint = serve(LatencyEndpoint::new(&link), "ep0")?;
    // QEMU itself would answer for the first extended capability: without one, the last hop is the device's own answer.
    let behind = serve(LatencyEndpoint::without_serial_number(&link), "ep1")?;
    say(&format!("booting Debian's kernel {} with two virtual endpoints, one of them behind a switch", args.kernel));
    // A signal ends the guest; then its folders are removed on the way out.
    ctx.stop.catch_signals()?;
    let vm = Vm::builder()
        .stop(&ctx.stop.number())
        .arch(args.arch.map_or_else(Arch::chosen, Ok)?)
        .kernel(args.kernel)
        .devices(standard_machine())
        .served("ep0", &endpoint, Attachment::RootPort)
        .served("ep1", &behind, Attachment::Switch)
        .program(std::env::current_exe().context("cannot find the program's own file")?)
        .module("pcilat")
        .boot()?;
    say(&format!("Linux {} is up after {:.1} s", vm.release(), vm.boot_time().as_secs_f64()));

    let mut records = Vec::new();
    let mut rows = Vec::new();
    for step in &STEPS {
        if ctx.stop.is_set() {
            bail!("ended by the user");
        }
        say(step.label);
        endpoint.ask("reset")?;
        for command in step.device {
            endpoint.ask(command)?;
        }
        let (taken, trouble) = measure(&vm, step)?;
        if let Some(trouble) = &trouble {
            say(trouble);
        }
        let ledger = endpoint.ask("ledger")?;
        rows.push(Judged::judge(step, &taken, &ledger, trouble.is_none()));
        for record in &taken {
            file.put(record).with_context(|| format!("cannot write {}", records_path.display()))?;
        }
        records.extend(taken);
    }
    let faults = vm.check_kernel_log().err();
    vm.poweroff()?;
    place.keep().with_context(|| format!("cannot replace {}", records_path.display()))?;
    say("drawing the page");
    files::write(&report_path, html::render(&records).as_bytes())?;

    let mut out = io::stdout().lock();
    writeln!(out, "{}", table(&rows))?;
    writeln!(out, "{} records in {}", records.len(), records_path.display())?;
    writeln!(out, "page: {}", report_path.display())?;
    let is_right = rows.iter().all(|row| row.is_right) && faults.is_none();
    if let Some(faults) = faults {
        ctx.note(&faults);
    }
    if !is_right {
        ctx.note("a figure does not fit what the virtual hardware did, or the guest's kernel complained");
    }
    Ok(if is_right { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Runs the program in the guest and fetches its records, with the step's name on them, and what it complained of.
fn measure(vm: &Vm, step: &Measurement) -> anyhow::Result<(Vec<Record>, Option<String>)> {
    let mut args = step.args.to_owned();
    for (word, name) in [("{endpoint}", "ep0"), ("{behind}", "ep1"), ("{nvme}", "nvme0")] {
        if args.contains(word) {
            args = args.replace(word, &vm.address_of(name)?);
        }
    }
    let command = format!("rm -f /tmp/records.jsonl; pciescope {args} -o /tmp/records.jsonl >/tmp/table.txt");
    let output = vm.run_within(&command, STEP)?;
    let trouble = (!output.is_success())
        .then(|| format!("in the guest, `pciescope {args}` ended with {}: {}", output.status, output.stderr.trim()));
    // What was measured before it failed stands.
    let text = vm.pull_file("/tmp/records.jsonl").unwrap_or_default();
    let mut records = match jsonl::parse_records(text.as_slice(), "records of the guest".as_ref()) {
        Ok(contents) => contents.records,
        Err(_) if trouble.is_some() => Vec::new(),
        Err(err) => return Err(err.into()),
    };
    for record in &mut records {
        record.label = Some(step.label.to_owned());
        if record.histograms.contains_key(step.histogram) && record.test == step.test {
            record.metrics.insert(INJECTED.to_owned(), Metric::ns(step.injected_ns));
        }
    }
    Ok((records, trouble))
}

/// A line of the closing table: what the hardware did beside what was measured.
struct Judged {
    label: &'static str,
    injected_ns: f64,
    figures: Histogram,
    /// Accesses or interrupts that the device counted; `None` where it cannot tell them from others.
    seen: Option<u64>,
    is_right: bool,
}

impl Judged {
    fn judge(step: &Measurement, records: &[Record], ledger: &Value, is_complete: bool) -> Judged {
        let records: Vec<&Record> = records.iter().filter(|record| record.test == step.test).collect();
        let mut figures = Histogram::default();
        for record in &records {
            if let Some(histogram) = record.histograms.get(step.histogram) {
                figures.merge(histogram);
            }
        }
        let metric = |name: &str| -> Vec<u64> {
            records.iter().filter_map(|record| record.metrics.get(name)).map(|metric| metric.value as u64).collect()
        };
        let of_endpoint = step.args.contains("{endpoint}");
        let (seen, beside) = match step.test {
            "mmio-read" if of_endpoint => {
                (Some(accesses(ledger, "reads")), metric("check_reads").first().copied().unwrap_or(0))
            }
            "mmio-write" if of_endpoint => (Some(accesses(ledger, "writes")), 0),
            "irq-hardware" => (Some(interrupts(ledger)), metric("warmup_triggers").iter().sum()),
            _ => (None, 0),
        };
        let counts_agree = seen.is_none_or(|seen| seen == figures.count() + beside);
        let is_slow_enough = figures.min_ns().is_some_and(|min| min >= step.injected_ns);
        let is_right = is_complete && counts_agree && is_slow_enough;
        Judged { label: step.label, injected_ns: step.injected_ns, figures, seen, is_right }
    }
}

/// Accesses of BAR0 that the device counted, but for its interrupt registers.
fn accesses(ledger: &Value, kind: &str) -> u64 {
    let entries = ledger[kind].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_target = |entry: &&Value| entry["bar"] == 0 && entry["offset"].as_u64().is_some_and(|offset| offset < 0x30);
    entries.iter().filter(of_target).filter_map(|entry| entry["count"].as_u64()).sum()
}

fn interrupts(ledger: &Value) -> u64 {
    let entries = ledger["irq"].as_array().map(Vec::as_slice).unwrap_or_default();
    entries.iter().filter_map(|entry| entry["sent"].as_u64()).sum()
}

fn table(rows: &[Judged]) -> String {
    let us = |ns: Option<f64>| ns.map_or("-".to_owned(), |ns| format!("{:.2}", ns / 1e3));
    let mut text = format!(
        "\nEMULATED: the figures are exits to the emulator, not PCIe; what counts is that they follow the device.\n\n\
         {:<52} {:>9} {:>9} {:>9} {:>9} {:>9}  {}\n",
        "us", "injected", "min", "p50", "p99", "samples", "device's count"
    );
    for row in rows {
        let figures = &row.figures;
        let seen = match (row.seen, row.is_right) {
            (Some(seen), true) => format!("{seen}, as it must be"),
            (Some(seen), false) => format!("{seen}: WRONG"),
            (None, true) => "-".to_owned(),
            (None, false) => "WRONG".to_owned(),
        };
        text += &format!(
            "{:<52} {:>9.2} {:>9} {:>9} {:>9} {:>9}  {seen}\n",
            row.label,
            row.injected_ns / 1e3,
            us(figures.min_ns()),
            us(figures.percentile_ns(50.0)),
            us(figures.percentile_ns(99.0)),
            figures.count(),
        );
    }
    text
}
