//! Differences between the sides other than the figures: machines, kernels, links, clocks, methods of measurement.

use std::collections::{BTreeMap, BTreeSet};

use pciescope_core::{Environment, Function, Histogram, Method, Record, outcome};
use serde::Serialize;

use crate::model;
use crate::text::{clean, duration};

/// A difference that a reader must know of before the figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Doubt {
    /// A short stable name.
    pub code: &'static str,
    /// What differs, with both sides.
    pub text: String,
}

/// A property of a record that can differ: a stable name, the property in words, and its value.
type Facts = Vec<(&'static str, &'static str, String)>;
/// The values of a side by place in the list, stable name, the property in words, and its test.
type Values<'r> = BTreeMap<(usize, &'static str, &'static str, &'r str), BTreeSet<String>>;

/// All doubts of a comparison of `a` with `b`, most important first.
pub fn doubts(a: &[&Record], b: &[&Record]) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let (of_a, of_b) = (values(a), values(b));
    let mut add = |doubt: Doubt| {
        if !doubts.contains(&doubt) {
            doubts.push(doubt);
        }
    };
    for (key, left) in &of_a {
        let (_, code, what, _) = *key;
        // A property that only one side states cannot be compared.
        let Some(right) = of_b.get(key) else { continue };
        if left != right {
            add(Doubt { code, text: format!("{what}: A {}; B {}", listed(left), listed(right)) });
        } else if code == "method" && left.len() > 1 {
            add(Doubt { code: "mixed", text: format!("{what}: both sides mix {}", listed(left)) });
        }
    }
    doubts.extend(same_runs(a, b));
    doubts.extend(calibration(a, b));
    doubts.extend(warnings(a, b));
    doubts
}

fn values<'r>(records: &[&'r Record]) -> Values<'r> {
    let mut all: Values = BTreeMap::new();
    for record in records {
        let mut put = |place: usize, test, facts: Facts| {
            for (at, (code, what, value)) in facts.into_iter().enumerate() {
                let values = all.entry((place + at, code, what, test)).or_default();
                // Four different values are enough to show; a thousand say no more.
                if values.len() < 4 {
                    values.insert(value);
                }
            }
        };
        if let Some(environment) = &record.environment {
            put(10, "", of_environment(environment));
        }
        if &*record.test == "environment" {
            continue;
        }
        put(0, "", vec![("emulated", "emulated", model::is_emulated(record).to_string())]);
        if let Some(method) = &record.method {
            put(100, &record.test, of_method(method));
        }
        if let Some(function) = &record.device {
            put(200, "", of_function(function));
        }
    }
    all
}

fn of_environment(e: &Environment) -> Facts {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    vec![
        ("machine", "machine", text(&e.product)),
        ("machine", "CPU", text(&e.cpu_model)),
        ("machine", "architecture", e.machine.clone()),
        ("machine", "CPUs online", e.cpus.len().to_string()),
        ("guest", "guest", e.hypervisor.clone().unwrap_or_else(|| "no".to_owned())),
        ("kernel", "kernel", e.kernel.clone()),
        ("kernel", "kernel command line", text(&e.cmdline)),
        ("state", "clock source", text(&e.clocksource)),
        ("state", "governor", e.governors.join("/")),
        ("state", "idle states", e.idle_states.join(" ")),
        ("state", "ASPM policy", text(&e.aspm_policy)),
        ("state", "IOMMU", if e.iommu_groups > 0 { "on" } else { "off" }.to_owned()),
        ("tool", "pciescope", e.tool.clone()),
    ]
}

fn of_method(m: &Method) -> Facts {
    vec![
        ("method", "backend", m.backend.clone()),
        ("method", "accesses per sample", m.batch.to_string()),
        ("method", "clock", m.clock.clone()),
        ("method", "clock's step", format!("{:.2} ns", m.quantum_ns)),
        ("method", "pause between samples", duration(m.gap_ns as f64)),
        ("method", "order of the CPUs", m.order.clone()),
        ("method", "interrupts while timing", if m.irqs_off { "off" } else { "on" }.to_owned()),
    ]
}

fn of_function(f: &Function) -> Facts {
    let mut facts = vec![
        ("device", "device", format!("{:04x}:{:04x}", f.vendor, f.device)),
        ("device", "address", f.bdf.map_or_else(|| "unknown".to_owned(), |bdf| bdf.to_string())),
        ("device", "driver", f.driver.clone().unwrap_or_else(|| "none".to_owned())),
        ("device", "NUMA node", f.node.map_or_else(|| "unknown".to_owned(), |node| node.to_string())),
    ];
    if let Some(link) = &f.link {
        let size = |bytes: Option<u16>| bytes.map_or_else(|| "unknown".to_owned(), |bytes| bytes.to_string());
        facts.extend(f.link_words().map(|words| ("link", "link", words)));
        facts.push(("link", "MPS", size(link.mps_bytes)));
        facts.push(("link", "MRRS", size(link.mrrs_bytes)));
    }
    facts
}

fn listed(values: &BTreeSet<String>) -> String {
    const LONGEST: usize = 60;
    let short = |value: &String| {
        let text = clean(value);
        if text.chars().count() > LONGEST { text.chars().take(LONGEST).chain("...".chars()).collect() } else { text }
    };
    let words: Vec<String> =
        values.iter().map(short).map(|v| if v.is_empty() { "none".to_owned() } else { v }).collect();
    words.join(", ")
}

fn same_runs(a: &[&Record], b: &[&Record]) -> Option<Doubt> {
    let runs = |records: &[&Record]| records.iter().map(|r| r.run.to_string()).collect::<BTreeSet<_>>();
    let both: BTreeSet<String> = runs(a).intersection(&runs(b)).cloned().collect();
    let text = format!("the same run is on both sides ({}): a run does not differ from itself", listed(&both));
    (!both.is_empty()).then_some(Doubt { code: "same-run", text })
}

/// The cost of the empty stamp pair. If it moved, the clock or the CPU's frequency moved, and so did every figure.
fn calibration(a: &[&Record], b: &[&Record]) -> Option<Doubt> {
    let median = |records: &[&Record]| {
        let mut all = Histogram::default();
        for histogram in records.iter().filter_map(|record| record.histograms.get(outcome::CALIBRATION)) {
            all.merge(histogram);
        }
        all.percentile_ns(50.0).filter(|ns| *ns > 0.0)
    };
    let step = a.iter().chain(b).filter_map(|r| r.method.as_ref()).map(|m| m.quantum_ns).fold(0.0, f64::max);
    let (left, right) = (median(a)?, median(b)?);
    let is_apart = (right / left - 1.0).abs() > 0.05 && (right - left).abs() > step;
    is_apart.then(|| Doubt {
        code: "calibration",
        text: format!(
            "the empty stamp pair took {} in A and {} in B: the CPU's frequency or the clock differs",
            duration(left),
            duration(right)
        ),
    })
}

/// Warnings and errors that only one side has.
fn warnings(a: &[&Record], b: &[&Record]) -> Vec<Doubt> {
    let codes = |records: &[&Record]| -> BTreeSet<String> {
        let warnings = records.iter().flat_map(|r| r.warnings.iter().map(|w| w.code.clone()));
        warnings.chain(records.iter().filter_map(|r| r.error.as_ref()).map(|e| format!("error {}", e.code))).collect()
    };
    let (left, right) = (codes(a), codes(b));
    let only = |name: &str, here: &BTreeSet<String>, there: &BTreeSet<String>| {
        let only: BTreeSet<String> = here.difference(there).cloned().collect();
        let text = format!("warnings that only {name} has: {}", listed(&only));
        (!only.is_empty()).then_some(Doubt { code: "warnings", text })
    };
    only("A", &left, &right).into_iter().chain(only("B", &right, &left)).collect()
}
