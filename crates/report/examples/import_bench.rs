//! Makes an interrupt log and times its import; used by bench/import.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use pciescope_core::Identity;
use pciescope_report::import;

#[path = "../tests/sample/mod.rs"]
mod sample;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [path] => time(path),
        [path, lines] => match lines.parse().map_err(io::Error::other).and_then(|lines| generate(path, lines)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("import_bench: {path}: {error}");
                ExitCode::FAILURE
            }
        },
        _ => {
            eprintln!("import_bench: LOG times its import, LOG LINES makes it");
            ExitCode::from(2)
        }
    }
}

/// The log of 4 CPUs and 4 interrupts, the same for the same number of lines.
fn generate(path: &str, lines: u64) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut random = sample::Random(11);
    let mut at_ns = 2_064_298_554_000u64;
    for _ in 0..lines {
        at_ns += 20_000 + random.below(1000);
        let (cpu, irq) = (random.below(4), random.below(4));
        let to_handler = random.latency_ps(2_300 + cpu * 200 + irq * 30) / 1000;
        let to_ack = random.latency_ps(900) / 1000;
        writeln!(out, "{at_ns} {to_handler} {to_ack} {cpu} {}", 69 + irq)?;
    }
    out.flush()
}

fn time(path: &str) -> ExitCode {
    let identity = Identity::new("import", None);
    let start = Instant::now();
    match import::read(Path::new(path), None, &identity) {
        Ok(log) => {
            let p99: f64 =
                log.records.iter().flat_map(|r| r.histograms.values()).filter_map(|h| h.percentile_ns(99.0)).sum();
            println!(
                "{:.3} s for {} samples, {} records, sum of p99 {p99:.0} ns",
                start.elapsed().as_secs_f64(),
                log.samples,
                log.records.len()
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("import_bench: {error}");
            ExitCode::FAILURE
        }
    }
}
