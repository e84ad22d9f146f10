//! Writes made-up records: `cargo run -p pciescope-report --example sample_records -- demo > records.jsonl`; with `html` behind it the page.

use std::io::Write;
use std::process::ExitCode;

use pciescope_core::Sink;
use pciescope_report::jsonl::Writer;

#[path = "../tests/sample/mod.rs"]
mod sample;

use sample::{Shape, mixed, readout};

fn main() -> ExitCode {
    let records = match std::env::args().nth(1).as_deref() {
        Some("demo") => sample::whole(&Shape { cpus: 4, vectors: 4, samples: 1000, emulated: true }),
        Some("server") => sample::whole(&Shape { cpus: 64, vectors: 8, samples: 20_000, emulated: false }),
        Some("wide") => {
            let shape = Shape { cpus: 1000, vectors: 64, samples: 100, emulated: false };
            let mut records = sample::mmio(&mut sample::Random(3), &shape, "00000000000000b1");
            records.extend(sample::irq(&mut sample::Random(4), &shape, "00000000000000b2", "irq-hardware", 2300));
            records
        }
        Some("hostile") => sample::hostile(),
        Some("readout") => readout::run(),
        Some("sweep") => readout::sweep(),
        Some("mixed") => mixed::whole(),
        _ => {
            eprintln!("sample_records: say which: demo, server, wide, hostile, readout, sweep or mixed");
            return ExitCode::from(2);
        }
    };
    if std::env::args().nth(2).as_deref() == Some("html") {
        let page = pciescope_report::html::render(&records);
        let written = std::io::stdout().lock().write_all(page.as_bytes());
        return if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let mut writer = Writer::new(std::io::BufWriter::new(std::io::stdout().lock()));
    for record in &records {
        if writer.put(record).is_err() {
            return ExitCode::FAILURE;
        }
    }
    if writer.into_inner().flush().is_err() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
