//! Made-up records with a fixed seed: the fixtures of the tests, and something to look at without hardware.
//!
//! The figures are shaped like those of a healthy server (a base, a per-CPU shift, a rare slow tail); they are
//! not measurements of anything.
#![allow(dead_code, missing_docs, clippy::unwrap_used, reason = "each test and example takes what it needs")]

pub mod mixed;
pub mod readout;

use std::collections::BTreeMap;

use pciescope_core::record::SCHEMA;
use pciescope_core::{
    Bar, Bdf, Cpu, Environment, Failure, Function, Histogram, Link, Method, Metric, Record, Target, Warning, outcome,
};

/// SplitMix64: enough randomness for fixtures, the same on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n
    }
    /// A latency in picoseconds: around `base_ns`, with a long tail that one sample in a thousand is in.
    pub fn latency_ps(&mut self, base_ns: u64) -> u64 {
        let noise: u64 = (0..4).map(|_| self.below(base_ns * 20 + 1)).sum();
        let tail = match self.below(20_000) {
            0 => base_ns * 1000 * (10 + self.below(60)),
            1..=20 => base_ns * 1000 * (1 + self.below(5)),
            _ => 0,
        };
        // A 2.6 GHz counter: multiples of 385 ps.
        (base_ns * 1000 + noise + tail) / 385 * 385
    }
}

/// What to make.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub cpus: u32,
    pub vectors: u16,
    pub samples: u64,
    pub emulated: bool,
}

pub fn cpu(n: u32, of: u32) -> Cpu {
    let cores = of.div_ceil(2).max(1);
    let core = n % cores;
    let half = if cores > 1 && core >= cores / 2 { 1 } else { 0 };
    Cpu {
        cpu: n,
        node: Some(half),
        package: Some(half),
        l3: Some(core / 8 * 8),
        core: Some(core),
        thread: Some(n / cores),
    }
}

fn bdf(text: &str) -> Bdf {
    text.parse().unwrap()
}

fn device(emulated: bool) -> Function {
    Function {
        bdf: Some(bdf("0000:1a:00.0")),
        vendor: 0x8086,
        device: 0x10d3,
        class: 0x02_0000,
        name: "Intel Corporation 82574L Gigabit Network Connection".to_owned(),
        driver: Some("pcilat".to_owned()),
        node: Some(0),
        bars: vec![Bar { number: 0, size_bytes: 131_072, is_memory: true, ..Bar::default() }],
        link: Some(Link {
            speed_gts: 2.5,
            width: 1,
            max_speed_gts: 2.5,
            max_width: 1,
            mps_bytes: Some(256),
            mrrs_bytes: Some(512),
            is_nominal: false,
        }),
        path: vec![bdf("0000:00:1c.0"), bdf("0000:19:00.0")],
        msix_vectors: 5,
        msi_vectors: 1,
        emulated: emulated.then(|| "subsystem 1af4:1100 is QEMU's".to_owned()),
        ..Function::default()
    }
}

fn method(emulated: bool) -> Method {
    Method {
        backend: "kmod".to_owned(),
        clock: "tsc".to_owned(),
        clock_hz: 2_600_000_000,
        quantum_ns: 1e9 / 2.6e9,
        batch: 1,
        gap_ns: 200,
        order: "interleaved".to_owned(),
        irqs_off: true,
        emulated,
        notes: vec!["every read is timed by itself between two ordered stamps".to_owned()],
    }
}

fn histogram(random: &mut Random, base_ns: u64, samples: u64) -> Histogram {
    let mut h = Histogram::default();
    for _ in 0..samples {
        h.record_ps(random.latency_ps(base_ns), 1).unwrap();
    }
    h
}

fn blank(run: &str, verb: &str, test: &str, shape: &Shape) -> Record {
    Record {
        schema: SCHEMA,
        run: run.to_owned(),
        time: "2026-11-21T09:00:00Z".to_owned(),
        verb: verb.to_owned(),
        test: test.to_owned(),
        device: Some(device(shape.emulated)),
        method: Some(method(shape.emulated)),
        ..Record::default()
    }
}

fn environment(run: &str, shape: &Shape) -> Record {
    Record {
        device: None,
        method: None,
        environment: Some(Environment {
            tool: "0.1.0".to_owned(),
            kernel: "6.12.107+deb13-amd64".to_owned(),
            machine: "x86_64".to_owned(),
            product: Some("Example Systems R2".to_owned()),
            cpu_model: Some("Example CPU 8000 @ 2.60GHz".to_owned()),
            cpus: (0..shape.cpus).map(|n| cpu(n, shape.cpus)).collect(),
            clocksource: Some("tsc".to_owned()),
            governors: vec!["performance".to_owned()],
            idle_states: vec!["POLL".to_owned(), "C1".to_owned()],
            aspm_policy: Some("default".to_owned()),
            lockdown: Some("none".to_owned()),
            iommu_groups: 12,
            ..Environment::default()
        }),
        ..blank(run, "latency mmio", "environment", shape)
    }
}

fn references(record: &mut Record) {
    for (name, ns) in [("floor_wire_ns", 180.0), ("best_published_ns", 560.0), ("parent_config_rtt_ns", 702.5)] {
        record.metrics.insert(name.to_owned(), Metric::ns(ns));
    }
}

/// Two BARs from every CPU.
pub fn mmio(random: &mut Random, shape: &Shape, run: &str) -> Vec<Record> {
    let mut records = vec![environment(run, shape)];
    for n in 0..shape.cpus {
        for bar in [0u8, 3] {
            let place = cpu(n, shape.cpus);
            let base = 812 + u64::from(place.node.unwrap_or(0)) * 140 + u64::from(n % 7) * 9 + u64::from(bar) * 40;
            let mut record = blank(run, "latency mmio", "mmio-read", shape);
            record.target = Some(Target {
                bar: Some(bar),
                offset: Some(8),
                width: Some(4),
                name: Some("STATUS, read only".to_owned()),
                ..Target::default()
            });
            record.cpu = Some(place);
            record.histograms = BTreeMap::from([
                (outcome::LATENCY.to_owned(), histogram(random, base, shape.samples)),
                (outcome::CALIBRATION.to_owned(), histogram(random, 15, 200)),
            ]);
            record.metrics.insert("samples_lost".to_owned(), Metric::count(0));
            references(&mut record);
            if n == 3 {
                record.warnings.push(Warning {
                    code: "deep-idle".to_owned(),
                    text: "CPU 3 may enter C6 (133 us to leave)".to_owned(),
                    hint: "boot with intel_idle.max_cstate=1 or hold /dev/cpu_dma_latency at 0".to_owned(),
                });
            }
            records.push(record);
        }
    }
    records
}

/// Every vector on every CPU, by `test`.
pub fn irq(random: &mut Random, shape: &Shape, run: &str, test: &str, base_ns: u64) -> Vec<Record> {
    let mut records = Vec::new();
    for n in 0..shape.cpus {
        for vector in 0..shape.vectors {
            let place = cpu(n, shape.cpus);
            let base = base_ns + u64::from(place.node.unwrap_or(0)) * 300 + u64::from(vector % 5) * 30;
            let mut record = blank(run, "latency irq", test, shape);
            record.target =
                Some(Target { vector: Some(vector), irq: Some(69 + u32::from(vector)), ..Target::default() });
            record.cpu = Some(place);
            record.histograms = BTreeMap::from([
                (outcome::TRIGGER_TO_HANDLER.to_owned(), histogram(random, base, shape.samples)),
                (outcome::ENTRY_TO_ACK.to_owned(), histogram(random, 900, shape.samples)),
            ]);
            let lost = u64::from(n == 1 && vector == 2) * 3;
            for (name, count) in [
                ("triggers", shape.samples + lost),
                ("handled", shape.samples),
                ("lost", lost),
                ("extra", 0),
                ("wrong_cpu", 0),
            ] {
                record.metrics.insert(name.to_owned(), Metric::count(count));
            }
            records.push(record);
        }
    }
    records
}

/// Configuration reads of three hops from every CPU.
pub fn path(random: &mut Random, shape: &Shape, run: &str) -> Vec<Record> {
    let mut records = Vec::new();
    for n in 0..shape.cpus {
        for (hop, (address, base)) in
            [("0000:00:1c.0", 180), ("0000:19:00.0", 520), ("0000:1a:00.0", 830)].iter().enumerate()
        {
            let mut record = blank(run, "latency path", "config-read", shape);
            record.target = Some(Target {
                offset: Some(0x100),
                width: Some(4),
                hop: Some(hop as u16),
                hop_bdf: Some(bdf(address)),
                ..Target::default()
            });
            record.cpu = Some(cpu(n, shape.cpus));
            record.histograms.insert(outcome::LATENCY.to_owned(), histogram(random, *base, shape.samples));
            records.push(record);
        }
    }
    records
}

/// A run as the demonstration makes one: registers, path, interrupts by hardware and by software, one failure.
pub fn whole(shape: &Shape) -> Vec<Record> {
    let mut random = Random(7);
    let mut records = mmio(&mut random, shape, "00000000000000a1");
    records.extend(path(&mut random, shape, "00000000000000a2"));
    records.extend(irq(&mut random, shape, "00000000000000a3", "irq-hardware", 2300));
    records.extend(irq(&mut random, shape, "00000000000000a4", "irq-retrigger", 950));
    let mut failed = blank("00000000000000a5", "latency mmio", "mmio-read", shape);
    failed.cpu = Some(cpu(0, shape.cpus));
    failed.error = Some(Failure {
        code: "all-ones".to_owned(),
        text: "0000:1a:00.0: BAR3 offset 0x40 read all-ones after 12 samples on CPU 0; the device is still there"
            .to_owned(),
        hint: Some("the register may be one that never answers: choose another --offset".to_owned()),
    });
    records.push(failed);
    records
}

/// Strings that try to break out of every output.
pub fn hostile() -> Vec<Record> {
    let shape = Shape { cpus: 2, vectors: 1, samples: 20, emulated: false };
    let mut records = mmio(&mut Random(1), &shape, "</script><script>alert(1)</script>");
    let evil = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>\u{1b}[31m\u{202e}\n]]>-->{{7*7}}=cmd()";
    for record in &mut records {
        evil.clone_into(&mut record.verb);
        if let Some(device) = &mut record.device {
            evil.clone_into(&mut device.name);
            device.driver = Some(evil.to_owned());
        }
        if let Some(target) = &mut record.target {
            target.name = Some(evil.to_owned());
        }
        if let Some(method) = &mut record.method {
            evil.clone_into(&mut method.clock);
            method.notes.push(evil.to_owned());
        }
        if let Some(environment) = &mut record.environment {
            environment.product = Some(evil.to_owned());
            evil.clone_into(&mut environment.kernel);
        }
        record.label = Some(evil.to_owned());
        record.metrics.insert(evil.to_owned(), Metric::of(f64::MAX, evil));
        record.warnings.push(Warning { code: evil.to_owned(), text: evil.to_owned(), hint: evil.to_owned() });
    }
    let mut odd = records[1].clone();
    evil.clone_into(&mut odd.test);
    odd.error = Some(Failure { code: evil.to_owned(), text: evil.to_owned(), hint: Some(evil.to_owned()) });
    records.push(odd);
    records
}
