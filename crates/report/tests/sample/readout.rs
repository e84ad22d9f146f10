//! Made-up records of readouts: a run of six boards as the verb makes it, and a sweep.

use pciescope_core::record::SCHEMA;
use pciescope_core::{
    Access, Histogram, HotSpot, Interval, Metric, Plan, ReadoutPlan, Record, Stream, StreamKind, SweepPart, WaitMode,
    readout,
};

/// A board: its slot and its rate when alone, in bytes per second.
pub const BOARDS: [(u32, f64); 6] =
    [(3, 1249.2e6), (4, 621.7e6), (6, 620.1e6), (7, 619.4e6), (8, 618.0e6), (9, 615.9e6)];

/// What a group of rows is of.
#[derive(Clone)]
pub struct Group<'a> {
    pub number: u32,
    pub sweep: Option<SweepPart>,
    pub boards: &'a [(u32, f64)],
    pub samples: u64,
    pub function: &'a str,
    pub wait: Option<WaitMode>,
    pub conversion: Option<&'a str>,
}

fn record(test: &str, group: &Group) -> Record {
    Record {
        schema: SCHEMA,
        run: "00000000000000d1".to_owned(),
        time: "2026-11-21T16:00:00Z".to_owned(),
        verb: "readout".to_owned(),
        test: test.to_owned(),
        stream: Some(Stream {
            kind: Some(StreamKind::Sis8300),
            access: Some(Access::Read),
            wait: group.wait,
            function: group.function.to_owned(),
            samples: group.samples,
            devices: group.boards.len() as u32,
            sweep: group.sweep,
            group: group.number,
            ..Stream::default()
        }),
        ..Record::default()
    }
}

fn row(group: &Group, board: (u32, f64), function: &str, start_ns: u64) -> (Record, u64) {
    const REPEATS: u64 = 30;
    let bytes = group.samples as f64 * 2.0;
    // Boards share the way upstream; small transfers pay for their setup.
    let share = 1.0 / (1.0 + 0.04 * (group.boards.len() as f64 - 1.0));
    let is_reading = function == readout_name();
    let rate = if is_reading { board.1 * share } else { 400e6 * (6 + function.len() % 7) as f64 };
    let transfer = bytes / rate * 1e9;
    let setup = if is_reading { 60e3 } else { 0.0 };
    let duration = (setup + transfer * 1.12).round();
    let end_ns = start_ns + (duration as u64) * REPEATS;
    let mut record = record(readout::TEST, group);
    let stream = record.stream.get_or_insert_default();
    stream.path = format!("/dev/sis8300-{}", board.0);
    stream.model = Some(if board.0 == 3 { "SIS8300-KU" } else { "SIS8300-L2" }.to_owned());
    function.clone_into(&mut stream.function);
    stream.conversion = group.conversion.filter(|_| !is_reading).map(str::to_owned);
    record.interval = Some(Interval { start_ns, end_ns });
    let steps = (0..REPEATS).map(|n| duration as u64 * (990 + (n * 7) % 23) / 1000);
    record.histograms.insert("duration".to_owned(), Histogram::of_ns(steps).unwrap());
    let mut add = |name: &str, value: f64, unit: &str| {
        record.metrics.insert(name.to_owned(), Metric::of(value, unit));
    };
    add("size", bytes, "bytes");
    add("repeats", REPEATS as f64, "1");
    add("cycles", 1.0, "1");
    add("duration", duration, "ns");
    add("speed", bytes / duration * 1e9, "bytes/s");
    add("cv", 0.67, "%");
    add("verified", if is_reading { bytes } else { 0.0 }, "bytes");
    add("wrong", 0.0, "bytes");
    if is_reading {
        add("setup", setup / 2.0, "ns");
        add("dma", transfer, "ns");
        add("wakeup", setup / 2.0, "ns");
        add("copy", transfer * 0.1, "ns");
        add("ceiling", if board.0 == 3 { 1725e6 } else { 863e6 }, "bytes/s");
        add("of_ceiling", bytes / duration * 1e11 / if board.0 == 3 { 1725e6 } else { 863e6 }, "%");
        add("active_speed", bytes / duration * 0.995e9, "bytes/s");
        for name in ["lost_interrupts", "timeouts", "short_dmas"] {
            add(name, 0.0, "1");
        }
    } else {
        add("convert", duration, "ns");
    }
    let busy = if group.wait == Some(WaitMode::Poll) { 0.9 } else { 0.12 };
    let (user, system) = if is_reading { (0.1, 0.9) } else { (0.98, 0.02) };
    add("cpu_user", duration * REPEATS as f64 * busy * user, "ns");
    add("cpu_system", duration * REPEATS as f64 * busy * system, "ns");
    add("cpu_per_gb", duration * busy / bytes, "s/GB");
    if let Some(wait) = group.wait {
        add("acquire", 71.4e6, "ns");
        add("polls", if wait == WaitMode::Poll { 1100.0 } else { 0.0 }, "1");
    }
    (record, end_ns)
}

fn readout_name() -> &'static str {
    "func_readout"
}

/// The rows of a group and its summary.
pub fn group(group: &Group) -> Vec<Record> {
    let mut records = Vec::new();
    for (place, board) in group.boards.iter().enumerate() {
        let (reading, end) = row(group, *board, readout_name(), 300_000 + 100_000 * place as u64);
        records.push(reading);
        if group.function != readout_name() {
            records.push(row(group, *board, group.function, end).0);
        }
    }
    let mut summary = record(readout::SUMMARY, group);
    let sum = |name: &str| -> f64 {
        records
            .iter()
            .filter(|r| r.stream.as_ref().unwrap().function == readout_name())
            .map(|r| r.metrics[name].value)
            .sum()
    };
    let is_polling = group.wait == Some(WaitMode::Poll);
    for (name, value, unit) in [
        ("speed", sum("speed"), "bytes/s"),
        ("active_speed", sum("active_speed"), "bytes/s"),
        ("active", 2.9e9, "ns"),
        ("cpu", if is_polling { 11.7 } else { 2.4 }, "%"),
        ("cpu_top", if is_polling { 46.8 } else { 9.5 }, "%"),
    ] {
        summary.metrics.insert(name.to_owned(), Metric::of(value, unit));
    }
    let spots = [
        (45.91, "[kernel]", "copy_user_generic", true),
        (12.48, "[sis8300]", "sis8300_ioctl", true),
        (8.12, "pciescope", "pciescope_convert::avx2::scale", false),
        (3.5, "[kernel]", "0xffffffff81000123", true),
        (2.25, "libc.so.6", "__memcpy_avx_unaligned_erms", false),
        (1.0, "[kernel]", "schedule", true),
    ];
    if group.wait.is_some() {
        summary.hot_spots = spots
            .map(|(percent, object, symbol, is_kernel)| HotSpot {
                percent,
                object: object.to_owned(),
                symbol: symbol.to_owned(),
                is_kernel,
            })
            .to_vec();
    }
    records.push(summary);
    records
}

fn environment(functions: Vec<u8>, samples: u64) -> Record {
    let blank = Group { number: 0, sweep: None, boards: &[], samples, function: "", wait: None, conversion: None };
    let plan = ReadoutPlan {
        devices: BOARDS.iter().map(|board| format!("/dev/sis8300-{}", board.0)).collect(),
        samples,
        repeats: 30,
        decimation_factor: 1,
        scale_factor: 1.0,
        access: Access::Read,
        functions,
        wait: WaitMode::Poll,
        ..ReadoutPlan::default()
    };
    Record { plan: Some(Plan::Readout(plan)), stream: None, ..record("environment", &blank) }
}

/// One group: six boards that read and scale, by interrupt.
pub fn run() -> Vec<Record> {
    let mut records = vec![environment(vec![3], 3_000_000)];
    let of = Group {
        number: 0,
        sweep: None,
        boards: &BOARDS,
        samples: 3_000_000,
        function: "func_sca",
        wait: Some(WaitMode::Interrupt),
        conversion: Some("F=1 O=0 f32 avx2"),
    };
    records.extend(group(&of));
    records
}

/// The measurements of the seed in one run.
pub fn sweep() -> Vec<Record> {
    let mut records = vec![environment(vec![0], 30_000_000)];
    let mut number = 0;
    let mut add = |of: Group| {
        records.extend(group(&Group { number, ..of }));
        number += 1;
    };
    let all = Group {
        number: 0,
        sweep: None,
        boards: &BOARDS,
        samples: 0,
        function: "func_readout",
        wait: None,
        conversion: None,
    };
    for boards in [&BOARDS[1..2], &BOARDS[..1], &BOARDS[1..], &BOARDS[..]] {
        add(Group { sweep: Some(SweepPart::Boards), boards, samples: 30_000_000, ..all });
    }
    for samples in [300_000, 840_000, 3_000_000] {
        for boards in [&BOARDS[1..2], &BOARDS[1..]] {
            add(Group { sweep: Some(SweepPart::Size), boards, samples, ..all });
        }
    }
    for (function, conversion) in [
        ("func_no_decsca", "cast f32 avx2"),
        ("func_decsca", "f=1 o=0 F=1 O=0 f32 avx2"),
        ("func_dec", "f=1 o=0 f32 avx2"),
        ("func_dec", "f=10 o=0 f32 avx2"),
        ("func_sca", "F=1 O=0 f32 avx2"),
        ("func_umn2double", "Q1.15 f64 avx2"),
        ("func_smn2double", "Q3.13 degrees f64 avx2"),
    ] {
        let (sweep, conversion) = (Some(SweepPart::Function), Some(conversion));
        add(Group { sweep, boards: &BOARDS[1..], samples: 3_000_000, function, conversion, ..all });
    }
    for (samples, boards) in [(300_000, &BOARDS[5..]), (3_000_000, &BOARDS[1..])] {
        for wait in [Some(WaitMode::Poll), Some(WaitMode::Interrupt)] {
            add(Group { sweep: Some(SweepPart::Cpu), boards, samples, wait, ..all });
        }
    }
    records
}
