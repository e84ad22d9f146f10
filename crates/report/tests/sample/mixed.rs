//! Made-up records of every verb in one file: two labelled runs on two machines, counters, a readout, comparisons with
//! known traffic, conversions, findings.

use pciescope_core::comparison::Comparison;
use pciescope_core::record::SCHEMA;
use pciescope_core::{Below, Evidence, Finding, Function, Instance, Interval, Link, Metric, Record, Severity};

use super::readout;
use super::{Random, Shape};

fn blank(run: &str, verb: &str, test: &str) -> Record {
    Record {
        schema: SCHEMA,
        run: run.to_owned(),
        time: "2026-11-21T17:00:00Z".to_owned(),
        verb: verb.to_owned(),
        test: test.to_owned(),
        ..Record::default()
    }
}

fn port(bdf: &str, speed_gts: f64, width: u8) -> Function {
    Function {
        bdf: Some(bdf.parse().unwrap()),
        vendor: 0x8086,
        device: 0x347a,
        class: 0x06_0400,
        name: "Example root port".to_owned(),
        driver: Some("pcieport".to_owned()),
        node: Some(0),
        link: Some(Link { speed_gts, width, max_speed_gts: 16.0, max_width: 8, ..Link::default() }),
        ..Function::default()
    }
}

/// Two root ports and two DRAM channels for one second; `running` scales the second port's.
pub fn counters(running: Option<f64>) -> Vec<Record> {
    let mut records = Vec::new();
    let interval = Some(Interval { start_ns: 0, end_ns: 1_000_000_000 });
    for (bdf, width, rx, share, below, running) in [
        ("0000:00:1c.0", 4, 211e6, 84.4, "0000:1a:00.0", None),
        ("0000:00:1d.0", 8, 7100e6, 45.1, "0000:3b:00.0", running),
    ] {
        let mut record = blank("00000000000000e1", "stat", "counters");
        record.device = Some(port(bdf, 16.0, width));
        record.instance = Some(Instance {
            scope: "port".to_owned(),
            pmu: Some(format!("dwc_rootport_{}", &bdf[5..7])),
            below: vec![Below {
                bdf: below.parse().unwrap(),
                name: "Example device".to_owned(),
                driver: None,
                devices: Vec::new(),
            }],
            ..Instance::default()
        });
        record.interval = interval;
        for (name, value, unit) in [
            ("rx_bytes", rx, "bytes"),
            ("rx_bytes_per_s", rx, "bytes/s"),
            ("rx_link_share", share, "%"),
            ("tx_bytes_per_s", rx / 50.0, "bytes/s"),
            ("tx_link_share", share / 50.0, "%"),
            ("layer1_errors", 0.0, "1"),
            ("retries", 0.0, "1"),
        ] {
            record.metrics.insert(name.to_owned(), Metric { running, ..Metric::of(value, unit) });
        }
        records.push(record);
    }
    for (channel, rate) in [(0, 9.8e9), (1, 9.9e9)] {
        let mut record = blank("00000000000000e1", "stat", "counters");
        record.instance = Some(Instance {
            scope: "channel".to_owned(),
            pmu: Some(format!("ali_drw_{channel}")),
            node: Some(0),
            ..Instance::default()
        });
        record.interval = interval;
        for (name, value, unit) in [("read_bytes_per_s", rate, "bytes/s"), ("peak_share", rate / 25.6e7, "%")] {
            record.metrics.insert(name.to_owned(), Metric::of(value, unit));
        }
        records.push(record);
    }
    records
}

/// A counter beside a workload: `error` in percent, 0.25 % allowed.
pub fn verify(error: f64) -> Record {
    let comparison = Comparison {
        workload: "fio read".to_owned(),
        counter: "pcie_bdf_200/Rx_PCIe_TLP_Data_Payload/".to_owned(),
        workload_bytes: 8e9,
        count: 5e8 * (1.0 + error / 100.0),
        bytes_per_count: 16.0,
        parts: 1.0,
        running: 1.0,
        tolerance_percent: Some(0.25),
        ..Comparison::default()
    };
    Record {
        target: comparison.to_record().target,
        metrics: comparison.to_record().metrics,
        ..blank("00000000000000e2", "verify readout", "verify")
    }
}

pub fn finding(severity: Severity) -> Finding {
    Finding {
        check: "link-width".to_owned(),
        severity,
        bdf: Some("0000:00:1c.0".parse().unwrap()),
        text: "0000:00:1c.0 runs at x4 though both ends can do x8".to_owned(),
        evidence: vec![Evidence {
            source: "/sys/bus/pci/devices/0000:00:1c.0/current_link_width".to_owned(),
            value: "4".to_owned(),
        }],
        consequence: "half of the link's bandwidth is missing".to_owned(),
        remedy: "reseat the card, then look at the riser".to_owned(),
        silenced: false,
    }
}

pub fn doctor(findings: Vec<Finding>) -> Vec<Record> {
    let mut device = blank("00000000000000e3", "doctor", "doctor");
    device.device = Some(port("0000:00:1c.0", 16.0, 4));
    device.findings = findings;
    let mut machine = blank("00000000000000e3", "doctor", "doctor");
    machine.metrics.insert("checks".to_owned(), Metric::count(32));
    vec![device, machine]
}

/// A run with a label: registers and interrupts of a real device, from so many CPUs, so much slower.
pub fn labelled(label: &str, run: &str, cpus: u32, slower: u64) -> Vec<Record> {
    let shape = Shape { cpus, vectors: 4, samples: 4000, emulated: false };
    let mut records = super::mmio(&mut Random(5), &shape, run);
    records.extend(super::irq(&mut Random(6 + slower), &shape, run, "irq-hardware", 2300 + 23 * slower));
    for record in &mut records {
        record.label = Some(label.to_owned());
        record.warnings.clear();
        if let (Some(e), true) = (&mut record.environment, slower > 0) {
            e.product = Some("Example Systems R3".to_owned());
        }
    }
    records
}

/// All of it.
pub fn whole() -> Vec<Record> {
    let mut records = labelled("before", "00000000000000f1", 8, 0);
    records.extend(labelled("after", "00000000000000f2", 6, 12));
    records.extend(counters(Some(0.5)));
    records.extend(readout::run());
    records.extend([verify(0.011), verify(3.2)]);
    records.extend(doctor(vec![finding(Severity::Problem)]));
    records
}
