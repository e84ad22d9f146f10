//! Writes long files of made-up records for bench/records: `long_records KIND BYTES SEED > run.jsonl`. KIND is `intervals`
//! (counters read again and again) or `histograms` (interrupts of many CPUs and vectors, one run).

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use pciescope_core::record::SCHEMA;
use pciescope_core::{Cpu, Function, Histogram, Instance, Interval, Method, Metric, Record, Target, outcome};

#[path = "../tests/sample/mod.rs"]
mod sample;

use sample::Random;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers = |at: usize| args.get(at).and_then(|text| text.parse::<u64>().ok());
    let (Some(kind), Some(bytes), Some(seed)) = (args.first(), numbers(1), numbers(2)) else { return usage() };
    let record: fn(&mut Random, u64) -> Record = match kind.as_str() {
        "intervals" => interval,
        "histograms" => histograms,
        _ => return usage(),
    };
    match write(&mut BufWriter::with_capacity(1 << 20, io::stdout().lock()), bytes, seed, record) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("long_records: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("long_records: say intervals or histograms, how many bytes, and a seed");
    ExitCode::from(2)
}

/// Writes records until there are so many bytes.
fn write(out: &mut impl Write, bytes: u64, seed: u64, record: fn(&mut Random, u64) -> Record) -> io::Result<()> {
    let (mut random, mut written) = (Random(seed), 0);
    for number in 0.. {
        let one = Record {
            schema: SCHEMA,
            run: format!("{seed:016x}"),
            time: "2026-01-01T00:00:00Z".to_owned(),
            ..record(&mut random, number)
        };
        let mut line = serde_json::to_vec(&one)?;
        line.push(b'\n');
        out.write_all(&line)?;
        written += line.len() as u64;
        if written >= bytes {
            break;
        }
    }
    out.flush()
}

fn function(bus: u8) -> Option<Function> {
    let bdf = format!("0000:{bus:02x}:00.0").parse().ok();
    Some(Function { bdf, vendor: 0x1234, device: 0x11, name: "made-up device".to_owned(), ..Function::default() })
}

/// One of 18 root ports, a second each.
fn interval(random: &mut Random, number: u64) -> Record {
    let (second, port) = (number / 18, (number % 18) as u8);
    let mut value = |name: &str, most: u64, unit: &str| (name.to_owned(), Metric::of(random.below(most) as f64, unit));
    Record {
        verb: "stat".to_owned(),
        test: "counters".to_owned(),
        device: function(port),
        instance: Some(Instance {
            scope: "port".to_owned(),
            pmu: Some(format!("dwc_rootport_{port:x}")),
            ..Instance::default()
        }),
        interval: Some(Interval { start_ns: second * 1_000_000_000, end_ns: (second + 1) * 1_000_000_000 }),
        metrics: [
            value("rx_bytes", 3_000_000_000, "bytes"),
            value("rx_bytes_per_s", 3_000_000_000, "bytes/s"),
            value("rx_link_share", 90, "%"),
            value("tx_bytes", 3_000_000_000, "bytes"),
            value("tx_bytes_per_s", 3_000_000_000, "bytes/s"),
            value("tx_link_share", 90, "%"),
            value("layer1_errors", 1, "1"),
            value("naks", 1, "1"),
            value("retries", 1, "1"),
        ]
        .into(),
        ..Record::default()
    }
}

/// One of 1000 CPUs, vector after vector.
fn histograms(random: &mut Random, number: u64) -> Record {
    let (cpu, vector) = ((number % 1000) as u32, (number / 1000) as u16);
    let mut of = |samples: u64, base_ns: u64| {
        let mut histogram = Histogram::default();
        for _ in 0..samples {
            // Over an octave, so that there are about as many buckets as a loaded machine fills. A duration of some seconds is
            // never refused.
            let base_ns = base_ns + random.below(base_ns);
            let _ = histogram.record_ps(random.latency_ps(base_ns), 1);
        }
        histogram
    };
    let method = Method { backend: "kmod".to_owned(), batch: 1, quantum_ns: 0.4, ..Method::default() };
    Record {
        verb: "latency irq".to_owned(),
        test: "irq-hardware".to_owned(),
        device: function(3),
        target: Some(Target { vector: Some(vector), irq: Some(100 + u32::from(vector)), ..Target::default() }),
        cpu: Some(Cpu { cpu, node: Some(cpu / 500), ..Cpu::default() }),
        method: Some(method),
        histograms: [
            (outcome::TRIGGER_TO_HANDLER.to_owned(), of(3000, 2300)),
            (outcome::ENTRY_TO_ACK.to_owned(), of(1000, 400)),
        ]
        .into(),
        metrics: ["triggers", "handled", "lost"]
            .map(|name| (name.to_owned(), Metric::count(if name == "lost" { 0 } else { 3000 })))
            .into(),
        ..Record::default()
    }
}
