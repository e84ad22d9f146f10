//! What a figure is of, and which direction of it is the better one.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::ops::Deref;
use std::rc::Rc;

use pciescope_core::{Record, change, comparison, convert, loss, readout, soak, tune, why};

use crate::model::{self, Kind, TargetKey};
use crate::text::{clean, target_key};

/// A name in a key. Equal ones are one allocation, because the keys of a machine of many CPUs differ in numbers alone and
/// are compared again and again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(Rc<str>);

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        thread_local!(static KNOWN: RefCell<HashSet<Rc<str>>> = RefCell::default());
        KNOWN.with_borrow_mut(|known| {
            if let Some(name) = known.get(text) {
                return Name(Rc::clone(name));
            }
            let name: Rc<str> = text.into();
            known.insert(Rc::clone(&name));
            Name(name)
        })
    }
}

impl Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        if Rc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What is compared with what: cells of A and B with the same key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CellKey {
    /// The function's address, or its name where it has none; empty where the records name none.
    pub device: Name,
    /// The record's test.
    pub test: Name,
    /// Name of the histogram or metric.
    pub figure: Name,
    /// Whether `figure` is a histogram.
    pub is_histogram: bool,
    /// BAR, offset, width, hop, vector; the interrupt's number where there is no vector.
    pub target: TargetKey,
    /// Anything else that tells targets apart: a PMU, a stream, a kernel.
    pub rest: Name,
    /// The CPU; `None` if the figure belongs to no CPU, or to all CPUs together.
    pub cpu: Option<u32>,
}

impl CellKey {
    /// What the figures of a record are of; the figure is empty. With `by_kind` a function has the name of its kind, not
    /// its address.
    pub(super) fn of(record: &Record, by_kind: bool) -> Self {
        let device = match &record.device {
            None => record.stream.as_ref().map(|stream| stream.path.clone()).unwrap_or_default(),
            Some(function) => match function.bdf.filter(|_| !by_kind) {
                Some(bdf) => bdf.to_string(),
                None => format!("{:04x}:{:04x}", function.vendor, function.device),
            },
        };
        let mut target = model::target_id(record);
        target.4 = target.4.filter(|_| target.5.is_none());
        // A readout's and a conversion's CPU is where the thread happened to run.
        let has_cpu = !is_bench(&record.test) && model::kind(&record.test) != Kind::Counters;
        CellKey {
            device: device.as_str().into(),
            test: record.test.as_str().into(),
            figure: "".into(),
            is_histogram: false,
            target,
            rest: rest(record).as_str().into(),
            cpu: model::cpu_of(record).filter(|_| has_cpu),
        }
    }

    /// The key of a figure of the same records.
    pub fn with(&self, figure: &str, is_histogram: bool) -> Self {
        CellKey { figure: figure.into(), is_histogram, ..self.clone() }
    }

    /// The key of all CPUs, and all vectors, together.
    pub fn merged(&self) -> Self {
        let (bar, offset, width, hop, ..) = self.target;
        CellKey { target: (bar, offset, width, hop, None, None), cpu: None, ..self.clone() }
    }

    /// The target in few characters: `b0+0x10/4`, `h1`, `v3`, `dwc_rootport_10`; `-` where there is none.
    pub fn target_name(&self) -> String {
        let mut text = target_key(&model::target_from(&self.target), true);
        if !self.rest.is_empty() {
            let _ = write!(text, "{}{}", if text.is_empty() { "" } else { " " }, clean(&self.rest));
        }
        if text.is_empty() { "-".to_owned() } else { text }
    }

    /// Device, test, target and figure, as a table has them.
    pub fn columns(&self) -> [String; 4] {
        let device = if self.device.is_empty() { "-".to_owned() } else { clean(&self.device) };
        [device, clean(&self.test), self.target_name(), clean(&self.figure)]
    }

    /// The same in one line.
    pub fn title(&self) -> String {
        self.columns().into_iter().filter(|part| !part.is_empty() && part != "-").collect::<Vec<_>>().join(" ")
    }

    /// Whether the figure counts losses: more is worse, and 0 is no reason to show a row.
    pub fn is_loss(&self) -> bool {
        !self.is_histogram && is_loss(&self.figure)
    }

    /// Whether the figure is [`RATIO`].
    pub fn is_ratio(&self) -> bool {
        &*self.test == comparison::TEST && &*self.figure == RATIO
    }

    /// Which direction of the figure is the better one.
    pub fn better(&self) -> Better {
        let name = &*self.figure;
        if self.is_histogram {
            Better::Lower
        } else if is_loss(name) {
            Better::Fewer
        } else if self.is_ratio() {
            Better::Nearer
        } else if is_bench(&self.test) && RATES.contains(&name) {
            Better::Higher
        } else if is_bench(&self.test) && COSTS.contains(&name) {
            Better::Lower
        } else {
            Better::Neither
        }
    }
}

/// What tells targets apart beside the fields of a target: PMU, stream or kernel with their parameters.
fn rest(record: &Record) -> String {
    let mut parts: Vec<String> = Vec::new();
    if let Some(instance) = &record.instance {
        parts.extend(instance.pmu.clone().or_else(|| Some(instance.scope.clone())));
        // A function has its address. Sockets, and several instances on a node, name their PMUs alike.
        if record.device.as_ref().is_none_or(|function| function.bdf.is_none()) {
            let cpu = model::cpu_of(record).filter(|_| instance.pmu.is_some());
            parts.extend(instance.node.map(|node| format!("node {node}")));
            parts.extend(cpu.map(|cpu| format!("CPU {cpu}")));
        }
    }
    if let Some(stream) = &record.stream {
        let words = [Some(stream.function_name()), Some(stream.access.clone()), stream.wait.clone()];
        parts.extend(words.into_iter().flatten().filter(|word| !word.is_empty()));
        parts.extend((stream.samples > 0).then(|| format!("{} samples", stream.samples)));
        parts.extend(stream.conversion.clone());
        parts.extend((stream.devices > 1).then(|| format!("{} devices", stream.devices)));
        parts.extend(stream.sweep.as_ref().map(|sweep| format!("sweep {sweep}")));
    }
    if let Some(kernel) = &record.kernel {
        parts.extend([kernel.name.clone(), kernel.operation.clone(), kernel.isa.clone(), kernel.store.clone()]);
        parts.extend(record.metrics.get("samples").map(|samples| format!("{} samples", samples.value)));
        parts.extend((kernel.threads > 1).then(|| format!("{} threads", kernel.threads)));
    }
    if parts.is_empty() && matches!(model::kind(&record.test), Kind::Other | Kind::Verify) {
        parts.extend(record.target.as_ref().and_then(|target| target.name.clone()));
    }
    parts.join(" ")
}

/// Which direction of a figure is the better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Durations and costs.
    Lower,
    /// Rates.
    Higher,
    /// Counts of losses.
    Fewer,
    /// A counter's share of what it should have counted: the nearer to 1.
    Nearer,
    /// Traffic: neither.
    Neither,
}

/// Figures of readouts and conversions that are compared: larger is better.
const RATES: [&str; 5] = ["speed", "active_speed", "rate", "samples_per_s", "of_ceiling"];
/// The same: smaller is better.
#[rustfmt::skip]
const COSTS: [&str; 13] = [
    "duration", "setup", "dma", "wakeup", "copy", "convert", "acquire", "stall", "cpu_user", "cpu_system", "cpu_per_gb",
    "cpu", "cpu_top",
];

/// The figure of a counter beside a workload of known traffic: what it counted over what the workload moved.
pub const RATIO: &str = "ratio";

/// Whether a metric of this name counts losses, or slow samples of a cause.
pub fn is_loss(name: &str) -> bool {
    loss::find(name).is_some() || why::is_above(name)
}

fn is_bench(test: &str) -> bool {
    test == readout::TEST || test == readout::SUMMARY || test == convert::TEST
}

/// What is compared of a link that was watched.
const WATCHED: [&str; 3] = ["changes_per_day", "link_errors_per_day", "mean_lost_bytes_per_s"];

/// Whether a metric of a record is compared.
pub(super) fn is_compared(record: &Record, name: &str) -> bool {
    let is_wanted = match model::kind(&record.test) {
        Kind::Mmio | Kind::Path | Kind::Irq => is_loss(name),
        // Bytes and counts differ from run to run.
        Kind::Verify => false,
        // Of what a link came to, what does not grow with the time.
        _ if record.test == change::TEST => record.change.is_none() && WATCHED.contains(&name),
        // Bits and bounds grow with the time.
        _ if record.test == soak::TEST || record.test == tune::TEST => false,
        _ if is_bench(&record.test) => is_loss(name) || RATES.contains(&name) || COSTS.contains(&name),
        // A sum over a time says the same as its rate.
        _ => name != "interval_end_ns" && record.total(&format!("{name}_per_s")).is_none(),
    };
    is_wanted && !record.histograms.contains_key(name)
}
