//! Writes made-up records of 18 ports and 16 channels for `pciescope top --replay`:
//! `cargo run -p pciescope-tui --example top_records -- 60 > run.jsonl`.

use std::io::Write;
use std::process::ExitCode;

#[path = "../tests/sample/mod.rs"]
mod sample;

fn main() -> ExitCode {
    let Some(seconds) = std::env::args().nth(1).and_then(|text| text.parse().ok()) else {
        eprintln!("top_records: say for how many seconds");
        return ExitCode::from(2);
    };
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for record in sample::run(seconds) {
        let Ok(line) = serde_json::to_string(&record) else { return ExitCode::FAILURE };
        if writeln!(out, "{line}").is_err() {
            return ExitCode::FAILURE;
        }
    }
    if out.flush().is_err() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
