//! Made-up records of counters: a server with two dies, 18 root ports and 16 DRAM channels. They are measurements of nothing;
//! the same second always has the same figures.
#![allow(dead_code, missing_docs, clippy::unwrap_used, reason = "each test and example takes what it needs")]

use pciescope_core::record::SCHEMA;
use pciescope_core::{
    Bdf, Below, Environment, Failure, Function, Histogram, Instance, Interval, Link, Method, Metric, Record, Target,
    Warning, outcome,
};

const SECOND: u64 = 1_000_000_000;
/// One device a port: name, driver, lanes, the share of the link it takes at most.
const DEVICES: [(&str, Option<&str>, u8, f64); 6] = [
    ("Samsung NVMe SSD Controller PM174X", Some("nvme"), 4, 0.95),
    ("Mellanox MT2910 Family [ConnectX-7]", Some("mlx5_core"), 16, 0.7),
    ("NVIDIA GH100 [H100 PCIe]", Some("nvidia"), 16, 0.3),
    ("Intel Ethernet Controller X710", Some("i40e"), 8, 0.05),
    ("Xilinx Device 9038", None, 8, 0.0),
    ("ASPEED Graphics Family", Some("ast"), 1, 0.001),
];

pub fn bdf(text: &str) -> Bdf {
    text.parse().unwrap()
}

fn record(second: u64, instance: Instance) -> Record {
    Record {
        schema: SCHEMA,
        run: "00000000000000d1".to_owned(),
        time: format!("2026-11-21T09:{:02}:{:02}Z", second / 60 % 60, second % 60),
        verb: "stat".to_owned(),
        test: "counters".to_owned(),
        instance: Some(instance),
        interval: Some(Interval { start_ns: second * SECOND, end_ns: (second + 1) * SECOND }),
        method: Some(Method { backend: "perf".to_owned(), ..Method::default() }),
        ..Record::default()
    }
}

/// A wave between 0 and 1 that each place runs through at another time.
fn wave(second: u64, place: u64) -> f64 {
    let step = (second * 3 + place * 7) % 40;
    if step < 20 { step as f64 / 20.0 } else { (40 - step) as f64 / 20.0 }
}

/// The first record of a run.
pub fn environment() -> Record {
    Record {
        instance: None,
        interval: None,
        method: None,
        test: "environment".to_owned(),
        environment: Some(Environment {
            tool: "0.1.0".to_owned(),
            kernel: "6.12.107+deb13-arm64".to_owned(),
            machine: "aarch64".to_owned(),
            product: Some("Example Systems R2".to_owned()),
            ..Environment::default()
        }),
        ..record(0, Instance::default())
    }
}

/// A root port in a second.
pub fn port(place: u64, second: u64) -> Record {
    let (name, driver, lanes, most) = DEVICES[place as usize % DEVICES.len()];
    let (die, bus) = (place / 9, place * 8 + 1);
    let at = bdf(&format!("{:04x}:{:02x}:{:02x}.0", die, place % 9 * 8, place % 9));
    // One that trained to half of its lanes.
    let now = if place == 7 { lanes / 2 } else { lanes };
    let link = Link {
        speed_gts: 32.0,
        width: now,
        max_speed_gts: 32.0,
        max_width: lanes.max(4),
        mps_bytes: Some(256),
        mrrs_bytes: Some(512),
        is_nominal: false,
    };
    let ceiling = 32e9 / 8.0 * 128.0 / 130.0 * f64::from(now) * 256.0 / 276.0;
    let (rx, tx) = (ceiling * most * wave(second, place), ceiling * most * 0.4 * wave(second + 9, place));
    let below = Below {
        bdf: bdf(&format!("{die:04x}:{bus:02x}:00.0")),
        name: name.to_owned(),
        driver: driver.map(str::to_owned),
        devices: Vec::new(),
    };
    let mut one = record(
        second,
        Instance {
            scope: "port".to_owned(),
            pmu: Some(format!("dwc_rootport_{:x}", place * 0x100 + 0x10)),
            node: Some(die as u32),
            below: vec![below],
            ..Instance::default()
        },
    );
    one.device = Some(Function {
        bdf: Some(at),
        vendor: 0x1ded,
        device: 0x8000,
        class: 0x06_0400,
        name: "Alibaba root port".to_owned(),
        driver: Some("pcieport".to_owned()),
        node: Some(die as u32),
        link: Some(link),
        ..Function::default()
    });
    let errors = if place == 3 && second % 4 == 1 { 2.0 } else { 0.0 };
    let l0 = 100.0 - 60.0 * (1.0 - wave(second, place)) * f64::from(u8::from(most < 0.1));
    for (name, value, unit) in [
        ("rx_bytes", rx, "bytes"),
        ("tx_bytes", tx, "bytes"),
        ("rx_bytes_per_s", rx, "bytes/s"),
        ("tx_bytes_per_s", tx, "bytes/s"),
        ("rx_link_share", rx / ceiling * 100.0, "%"),
        ("tx_link_share", tx / ceiling * 100.0, "%"),
        ("link_bytes_per_s", ceiling, "bytes/s"),
        ("l0_share", l0, "%"),
        ("l1_share", 100.0 - l0, "%"),
        ("layer1_errors", 0.0, "1"),
        ("layer2_errors", errors, "1"),
        ("layer3_errors", 0.0, "1"),
        ("lcrc_error", errors, "1"),
        ("naks", errors * 2.0, "1"),
        ("retries", errors * 2.0, "1"),
        ("recoveries", 0.0, "1"),
    ] {
        one.metrics.insert(name.to_owned(), Metric::of(value, unit));
    }
    one
}

/// A DRAM channel in a second.
pub fn channel(place: u64, second: u64) -> Record {
    let die = place / 8;
    let mut one = record(
        second,
        Instance {
            scope: "channel".to_owned(),
            pmu: Some(format!("ali_drw_{:x}", die * 0x40_000_000 + 0x21000 + place % 8 * 0x80)),
            node: Some(die as u32),
            ..Instance::default()
        },
    );
    memory(&mut one, 1.0, 6e9 * wave(second, place), 3e9 * wave(second + 5, place));
    one
}

fn memory(record: &mut Record, parts: f64, read: f64, write: f64) {
    let peak = 17.6e9 * parts;
    for (name, value, unit) in [
        ("read_bytes_per_s", read, "bytes/s"),
        ("write_bytes_per_s", write, "bytes/s"),
        ("total_bytes_per_s", read + write, "bytes/s"),
        ("peak_share", (read + write) / peak * 100.0, "%"),
    ] {
        record.metrics.insert(name.to_owned(), Metric::of(value, unit));
    }
}

/// The sums of the dies and of all channels.
pub fn sums(channels: &[Record], second: u64) -> Vec<Record> {
    let value = |one: &Record, name: &str| one.metrics[name].value;
    let sum = |scope: &str, node: Option<u32>| {
        let of: Vec<&Record> =
            channels.iter().filter(|one| node.is_none() || one.instance.as_ref().unwrap().node == node).collect();
        let parts = u32::try_from(of.len()).unwrap();
        let mut one =
            record(second, Instance { scope: scope.to_owned(), node, parts: Some(parts), ..Instance::default() });
        let add = |name: &str| of.iter().map(|one| value(one, name)).sum::<f64>();
        memory(&mut one, f64::from(parts), add("read_bytes_per_s"), add("write_bytes_per_s"));
        one
    };
    vec![sum("die", Some(0)), sum("die", Some(1)), sum("total", None)]
}

/// Everything of a second: 18 ports, 16 channels, their sums.
pub fn second(second: u64) -> Vec<Record> {
    let mut all: Vec<Record> = (0..18).map(|place| port(place, second)).collect();
    let channels: Vec<Record> = (0..16).map(|place| channel(place, second)).collect();
    let sums = sums(&channels, second);
    all.extend(channels);
    all.extend(sums);
    all
}

/// A run of so many seconds with its first record.
pub fn run(seconds: u64) -> Vec<Record> {
    std::iter::once(environment()).chain((0..seconds).flat_map(second)).collect()
}

/// A batch of register reads.
pub fn latency(base_ns: u64) -> Record {
    let mut histogram = Histogram::default();
    for sample in 0..1000 {
        histogram.record_ps((base_ns + sample / 10) * 1000, 1).unwrap();
    }
    let mut one = record(0, Instance::default());
    one.instance = None;
    one.interval = None;
    one.test = "mmio-read".to_owned();
    one.device = Some(Function { bdf: Some(bdf("0000:01:00.0")), ..Function::default() });
    one.target =
        Some(Target { bar: Some(0), offset: Some(8), name: Some("VS, read only".to_owned()), ..Target::default() });
    one.method = Some(Method { backend: "resource".to_owned(), ..Method::default() });
    one.histograms.insert(outcome::LATENCY.to_owned(), histogram);
    one
}

/// A port whose PMU went away.
pub fn removed(place: u64, second: u64) -> Record {
    let mut one = port(place, second);
    one.metrics.clear();
    one.error = Some(Failure {
        code: "removed".to_owned(),
        text: "dwc_rootport_210: the PMU or its hardware is gone".to_owned(),
        hint: None,
    });
    one
}

/// Names and figures that try to break the screen.
pub fn hostile() -> Vec<Record> {
    let evil = "\u{1b}[2J\u{1b}]0;x\u{7}\r\n\u{202e}a\u{301}\u{200b}\u{6f22}\u{5b57}%s{7*7}";
    let mut all = Vec::new();
    for (place, value) in
        [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, f64::MAX, f64::MIN_POSITIVE].into_iter().enumerate()
    {
        let mut one = port(place as u64, 0);
        for metric in one.metrics.values_mut() {
            metric.value = value;
        }
        one.metrics.insert(evil.to_owned(), Metric::of(value, evil));
        one.metrics.insert(format!("{evil}_share"), Metric::of(value, evil));
        let device = one.device.as_mut().unwrap();
        device.name = evil.repeat(50);
        device.driver = Some(evil.to_owned());
        device.link =
            Some(Link { speed_gts: value, width: 255, max_speed_gts: f64::MAX, max_width: 255, ..Link::default() });
        let instance = one.instance.as_mut().unwrap();
        instance.pmu = Some(format!("{evil}{place}"));
        for below in &mut instance.below {
            below.name = evil.to_owned();
            below.driver = Some(evil.repeat(100));
        }
        one.warnings.push(Warning { code: evil.to_owned(), text: evil.repeat(20), hint: evil.to_owned() });
        all.push(one);
    }
    let mut odd = channel(0, 0);
    odd.instance.as_mut().unwrap().scope = evil.to_owned();
    all.push(odd);
    let mut other = channel(1, 0);
    other.instance.as_mut().unwrap().pmu = Some(evil.to_owned());
    other.metrics.values_mut().for_each(|metric| metric.value = f64::NAN);
    all.push(other);
    all
}
