//! Writes long files of made-up records for bench/records: `long_records KIND BYTES SEED > run.jsonl`. KIND is `intervals`
//! (counters read again and again), `histograms` (interrupts of many CPUs and vectors, one run, large histograms) or `irq`
//! (what `latency irq` writes on a machine of 256 CPUs with a device of 96 vectors, in several runs).

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use pciescope_core::record::SCHEMA;
use pciescope_core::{
    Bar, Cpu, Function, Histogram, Instance, Interval, Link, Method, Metric, Record, Target, outcome,
};

#[path = "../tests/sample/mod.rs"]
mod sample;

use sample::Random;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers = |at: usize| args.get(at).and_then(|text| text.parse::<u64>().ok());
    let (Some(kind), Some(bytes), Some(seed)) = (args.first(), numbers(1), numbers(2)) else { return usage() };
    // What makes a record, and how many a run has.
    let kind: (fn(&mut Random, u64) -> Record, u64) = match kind.as_str() {
        "intervals" => (interval, u64::MAX),
        "histograms" => (histograms, u64::MAX),
        "irq" => (irq, IRQ.0 * IRQ.1),
        _ => return usage(),
    };
    match write(&mut BufWriter::with_capacity(1 << 20, io::stdout().lock()), bytes, seed, kind) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("long_records: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("long_records: say intervals, histograms or irq, how many bytes, and a seed");
    ExitCode::from(2)
}

/// Writes records until there are so many bytes, or until another run would have more.
fn write(
    out: &mut impl Write,
    bytes: u64,
    seed: u64,
    (record, of_run): (fn(&mut Random, u64) -> Record, u64),
) -> io::Result<()> {
    let (mut random, mut written) = (Random(seed), 0);
    for number in 0.. {
        let runs = number / of_run;
        if runs > 0 && number % of_run == 0 && written / runs * (runs + 1) > bytes {
            break;
        }
        let one = Record {
            schema: SCHEMA,
            run: format!("{seed:08x}{runs:08x}"),
            // Some 20 records a second.
            time: format!("2026-01-01T{:02}:{:02}:{:02}Z", number / 72_000 % 24, number / 1200 % 60, number / 20 % 60),
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

/// CPUs and vectors of a run of [`irq`].
const IRQ: (u64, u64) = (256, 96);

/// One of 96 vectors of one of 256 CPUs; run after run.
fn irq(random: &mut Random, number: u64) -> Record {
    let (cpus, vectors) = IRQ;
    let (cpu, vector) = ((number / vectors % cpus) as u32, (number % vectors) as u16);
    // 1000 samples in about as many buckets as a calm machine fills.
    let mut of = |base_ps: u64| {
        let mut histogram = Histogram::default();
        for _ in 0..1000 {
            let noise_ps: u64 = (0..4).map(|_| random.below(base_ps / 128)).sum();
            let tail_ps = if random.below(500) == 0 { random.below(base_ps * 4) } else { 0 };
            let _ = histogram.record_ps((base_ps + noise_ps + tail_ps) / 385 * 385, 1);
        }
        histogram
    };
    let speed = 1000 + u64::from(cpu);
    let histograms = [
        (outcome::CALIBRATION.to_owned(), of(15_000)),
        (outcome::ENTRY_TO_ACK.to_owned(), of(490 * speed)),
        (outcome::TRIGGER_TO_HANDLER.to_owned(), of(1100 * speed)),
    ];
    let counts = [
        ("design_batches", 10),
        ("extra", 0),
        ("handled", 1000),
        ("late", 0),
        ("lost", 0),
        ("merged", 0),
        ("missed", 0),
        ("samples_lost", 0),
        ("triggers", 1000),
        ("warmup_handled", 10),
        ("warmup_triggers", 10),
        ("wrong_cpu", 0),
    ];
    let mut metrics: std::collections::BTreeMap<_, _> =
        counts.map(|(name, count)| (name.to_owned(), Metric::count(count))).into();
    metrics.insert("design_effect".to_owned(), Metric::of(random.below(3000) as f64 / 1024.0, "1"));
    for name in ["control_median_ns", "hardware_minus_control_ns", "mmio_read_median_ns"] {
        metrics.insert(name.to_owned(), Metric::ns(random.below(1 << 20) as f64 / 1024.0));
    }
    let link = Link {
        speed_gts: 8.0,
        width: 4,
        max_speed_gts: 8.0,
        max_width: 4,
        mps_bytes: Some(256),
        mrrs_bytes: Some(512),
        is_nominal: false,
    };
    let bar = |number: u8| Bar { number, size_bytes: 1 << 20, is_memory: true, is_64bit: true, is_prefetchable: true };
    let path = ["0000:00:01.0", "0000:01:00.0", "0000:02:00.0"].map(|bdf| bdf.parse().ok());
    Record {
        verb: "latency irq".to_owned(),
        test: "irq-hardware".to_owned(),
        device: function(3).map(|function| Function {
            driver: Some("pcilat".to_owned()),
            node: Some(0),
            bars: vec![bar(0), bar(2)],
            link: Some(link),
            path: path.into_iter().flatten().collect(),
            msix_vectors: IRQ.1 as u16,
            iommu_group: Some(3),
            ..function
        }),
        target: Some(Target { vector: Some(vector), irq: Some(100 + u32::from(vector)), ..Target::default() }),
        cpu: Some(Cpu {
            cpu,
            node: Some(cpu / 128),
            package: Some(cpu / 128),
            l3: Some(cpu / 8 * 8),
            core: Some(cpu % 128),
            thread: Some(cpu / 128),
        }),
        method: Some(Method {
            backend: "kmod".to_owned(),
            clock: "tsc".to_owned(),
            clock_hz: 2_600_000_000,
            quantum_ns: 0.385,
            batch: 1,
            order: "sequential".to_owned(),
            irqs_off: true,
            notes: vec!["every interrupt is timed by itself between two ordered stamps".to_owned()],
            ..Method::default()
        }),
        histograms: histograms.into(),
        metrics,
        ..Record::default()
    }
}
