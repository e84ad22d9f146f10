//! Sorts records into tables, and merges their histograms by CPU, target or group.
//!
//! Merging adds histograms, so the tail is complete and no averages are averaged.

use std::cell::{OnceCell, RefCell};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use pciescope_core::loss::{LOSSES, Loss, Of};
use pciescope_core::recording::Total;
use pciescope_core::text::clean;
use pciescope_core::traffic::{CountedBy, HardwarePorts};
use pciescope_core::{
    Cpu, Environment, Failure, Function, Histogram, Method, Plan, Record, Target, Warning, change, once, readout, soak,
};

/// The records of one run that measured the same thing on the same device by the same method.
#[derive(Debug, Clone)]
pub struct Section<'a> {
    /// The records in the order of the file; never empty.
    pub records: Vec<&'a Record>,
    /// Records of the same counting that have no figure at all.
    pub silent: Vec<&'a Record>,
    /// What the run was to do, where its first record says.
    pub plan: Option<&'a Plan>,
    /// What takes all records, once somebody has asked for it.
    pub(crate) asked: Asked,
}

/// Histograms by CPU, and together those of records without one.
pub(crate) type ByCpu = BTreeMap<Option<u32>, Histogram>;

/// What was computed for a section. A copy of the section begins without it, because its records may become others.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub headline: OnceCell<Option<Headline>>,
    losses: OnceCell<Vec<LossCount>>,
    totals: OnceCell<BTreeMap<String, Total>>,
    by_cpu: RefCell<BTreeMap<String, Rc<ByCpu>>>,
}

impl Clone for Asked {
    fn clone(&self) -> Self {
        Asked::default()
    }
}

/// A count of a section.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LossCount {
    pub loss: &'static Loss,
    /// The sum of the records that know theirs.
    pub sum: f64,
    /// Whether all do: a loss that is no number, or below 0, is not known.
    pub is_known: bool,
}

/// The typical figure of a histogram over the CPUs that measured the same.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Headline {
    /// The median in nanoseconds.
    pub(crate) median_ns: f64,
    /// Whether it is the geometric mean of the medians of several CPUs and vectors. Otherwise it is the median of all
    /// samples: there is one CPU only, or one of them has too few samples for an interval.
    pub(crate) is_mean: bool,
    /// The median of each CPU in nanoseconds, the lowest first. Records without a CPU are in none.
    pub(crate) by_cpu: Vec<(u32, f64)>,
}

/// How tests are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `mmio-read`, `mmio-write`, `mmio-write-read`.
    Mmio,
    /// `config-read`.
    Path,
    /// `irq-*`.
    Irq,
    /// `verify`: a counter beside a workload of known traffic.
    Verify,
    /// `counters`: hardware counters by port, channel or PMU.
    Counters,
    /// `readout` and `readout-summary`: bytes fetched from devices, and converted.
    Readout,
    /// Records with figures but no such test, as those of `perf stat`.
    Other,
}

/// The kind of a test by its name.
pub fn kind(test: &str) -> Kind {
    if test.starts_with("mmio-") {
        Kind::Mmio
    } else if test == "config-read" {
        Kind::Path
    } else if test.starts_with("irq-") {
        Kind::Irq
    } else if test == "counters" {
        Kind::Counters
    } else if test == readout::TEST || test == readout::SUMMARY {
        Kind::Readout
    } else if test == pciescope_core::comparison::TEST {
        Kind::Verify
    } else {
        Kind::Other
    }
}

/// Puts records into sections, in the order in which each section's first record appears. Records without
/// histogram and metric (the environment's, and those that only say why nothing was measured) are in none.
pub fn sections(records: &[Record]) -> Vec<Section<'_>> {
    let mut order: Vec<Section> = Vec::new();
    let mut places = BTreeMap::new();
    // Several runs have several plans; only one of a run's records has it.
    let plans: BTreeMap<&str, &Plan> = records
        .iter()
        .rev()
        .filter(|r| &*r.test == "environment")
        .filter_map(|r| Some((&*r.run, r.plan.as_ref()?)))
        .collect();
    let is_empty = |r: &Record| {
        r.histograms.is_empty()
            && r.metrics.is_empty()
            && r.hot_spots.is_empty()
            && &*r.test != "doctor"
            && r.change.is_none()
            && r.tune.is_none()
    };
    for record in records.iter().filter(|r| !is_empty(r)) {
        let place = *places.entry(section_key(record)).or_insert_with(|| {
            order.push(Section {
                records: Vec::new(),
                silent: Vec::new(),
                plan: plans.get(&*record.run).copied(),
                asked: Asked::default(),
            });
            order.len() - 1
        });
        order[place].records.push(record);
    }
    for record in records.iter().filter(|r| is_empty(r) && r.instance.is_some()) {
        if let Some(place) = places.get(&section_key(record)) {
            order[*place].silent.push(record);
        }
    }
    // What a soak came to is the answer; the changes of its links stand behind it.
    order.sort_by_key(|section| section.test() == change::TEST && section.first().verb == soak::TEST);
    order
}

fn section_key(record: &Record) -> impl Ord {
    let kind = kind(&record.test);
    // Counters of all devices stand in one table, and rows of a readout with what belongs to all of them.
    let bdf = record.device.as_ref().and_then(|d| d.bdf).filter(|_| {
        kind != Kind::Counters && kind != Kind::Readout && !["doctor", change::TEST].contains(&&*record.test)
    });
    let method = record.method.as_ref().filter(|_| kind != Kind::Readout);
    let method = method.map(|m| (m.backend.clone(), m.order.clone(), m.batch, m.gap_ns, m.irqs_off));
    let test = if kind == Kind::Readout { readout::TEST.into() } else { record.test.clone() };
    (record.run.clone(), record.verb.clone(), bdf, test, method)
}

impl<'a> Section<'a> {
    /// The first record: it speaks for test, device and method of all.
    pub fn first(&self) -> &'a Record {
        self.records[0]
    }
    /// What was tested.
    pub fn test(&self) -> &'a str {
        &self.first().test
    }
    /// How the figures came about, where said.
    pub fn method(&self) -> Option<&'a Method> {
        self.first().method.as_ref()
    }
    /// Whether any record's device is emulated.
    pub fn is_emulated(&self) -> bool {
        self.records.iter().any(|r| is_emulated(r))
    }
    /// Whether the figures come from the fake backend, which makes them up.
    pub fn is_synthetic(&self) -> bool {
        self.records.iter().any(|r| is_synthetic(r))
    }
    /// Whether the figures are of hardware.
    pub fn is_real(&self) -> bool {
        !self.is_emulated() && !self.is_synthetic()
    }
    /// Whether the records name more than one place within a BAR, so that the key needs the offset.
    pub fn has_many_offsets(&self) -> bool {
        let places: BTreeSet<_> =
            self.records.iter().filter_map(|r| r.target.as_ref()).map(|t| (t.bar, t.offset, t.width)).collect();
        let bars: BTreeSet<_> = places.iter().map(|p| p.0).collect();
        places.len() > bars.len()
    }
    /// The histograms named `name` merged by `key`, ascending; records without the histogram or key are left out.
    pub fn merged_by<K: Ord>(&self, name: &str, key: impl Fn(&Record) -> Option<K>) -> BTreeMap<K, Histogram> {
        let mut merged: BTreeMap<K, Histogram> = BTreeMap::new();
        for record in &self.records {
            let (Some(histogram), Some(key)) = (record.histograms.get(name), key(record)) else { continue };
            match merged.entry(key) {
                Entry::Vacant(place) => drop(place.insert(histogram.clone())),
                Entry::Occupied(mut known) => known.get_mut().merge(histogram),
            }
        }
        merged
    }
    /// The histograms named `name` by CPU. There are many records of a CPU, and many ask for them.
    pub(crate) fn by_cpu(&self, name: &str) -> Rc<ByCpu> {
        if let Some(known) = self.asked.by_cpu.borrow().get(name) {
            return Rc::clone(known);
        }
        let all = Rc::new(self.merged_by(name, |record| Some(cpu_of(record))));
        self.asked.by_cpu.borrow_mut().insert(name.to_owned(), Rc::clone(&all));
        all
    }
    /// The same without those of no CPU.
    pub(crate) fn per_cpu(&self, name: &str) -> BTreeMap<u32, Histogram> {
        self.by_cpu(name).iter().filter_map(|(cpu, histogram)| Some(((*cpu)?, histogram.clone()))).collect()
    }
    /// The same by groups of CPUs.
    pub(crate) fn by_place(&self, name: &str, place: impl Fn(&Cpu) -> Option<u32>) -> BTreeMap<u32, Histogram> {
        let by_cpu = self.by_cpu(name);
        let mut merged: BTreeMap<u32, Histogram> = BTreeMap::new();
        for cpu in self.cpus() {
            if let (Some(place), Some(histogram)) = (place(cpu), by_cpu.get(&Some(cpu.cpu))) {
                merged.entry(place).or_default().merge(histogram);
            }
        }
        merged
    }
    /// All histograms named `name` merged into one; empty where there is none.
    pub fn merged(&self, name: &str) -> Histogram {
        let mut all = Histogram::default();
        self.by_cpu(name).values().for_each(|one| all.merge(one));
        all
    }
    /// The metric `name` over all records, where any has it.
    fn total(&self, name: &str) -> Option<Total> {
        let of_all = || {
            let mut totals: BTreeMap<String, Total> = BTreeMap::new();
            for (name, _, total) in self.records.iter().flat_map(|record| record.totals()) {
                match totals.get_mut(name) {
                    Some(all) => all.add(&total),
                    None => drop(totals.insert(name.to_owned(), total)),
                }
            }
            totals
        };
        self.asked.totals.get_or_init(of_all).get(name).copied()
    }
    /// The sum of the metric `name`, where any record has it.
    pub fn sum(&self, name: &str) -> Option<f64> {
        self.total(name).map(|total| total.sum())
    }
    /// The sum of the losses `name`, where any record has them, and whether all of them are known: a loss that is no
    /// number, or below 0, is not.
    pub(crate) fn losses(&self, name: &str) -> Option<(f64, bool)> {
        self.total(name)?;
        let is_known = |total: &Total| total.not_finite == 0 && total.range.0 >= 0.0;
        let all = self.records.iter().filter_map(|record| record.total(name));
        all.map(|total| (total.finite.max(0.0), is_known(&total))).reduce(|a, b| (a.0 + b.0, a.1 && b.1))
    }
    /// The losses that any record counts. Wrong data are not among them: outputs set these against the data that were
    /// compared.
    pub(crate) fn loss_counts(&self) -> &[LossCount] {
        let counted = |loss: &'static Loss| {
            let (sum, is_known) = self.losses(loss.name)?;
            Some(LossCount { loss, sum, is_known })
        };
        let all = || LOSSES.iter().filter(|loss| loss.of != Of::Data).filter_map(counted).collect();
        self.asked.losses.get_or_init(all)
    }
    /// Smallest and largest of the metric `name`, where any record has it.
    pub fn range(&self, name: &str) -> Option<(f64, f64)> {
        self.total(name).map(|total| total.range)
    }
    /// Whether interrupts that software raises tell the share of PCIe: by the record's own word they do not on every machine.
    pub fn has_control(&self) -> bool {
        self.records.iter().all(|record| record.warnings.iter().all(|warning| warning.code != "control-differs"))
    }
    /// The measured CPUs with their places, each once, ascending.
    pub fn cpus(&self) -> Vec<&'a Cpu> {
        let mut cpus: BTreeMap<u32, &Cpu> = BTreeMap::new();
        for record in &self.records {
            if let Some(cpu) = &record.cpu {
                cpus.entry(cpu.cpu).or_insert(cpu);
            }
        }
        cpus.into_values().collect()
    }
}

/// A metric of a record, where it is a number.
pub(crate) fn metric(record: &Record, name: &str) -> Option<f64> {
    record.metrics.get(name).map(|metric| metric.value).filter(|value| value.is_finite())
}

/// The CPU number of a record.
pub fn cpu_of(record: &Record) -> Option<u32> {
    record.cpu.as_ref().map(|c| c.cpu)
}

/// The target of a record, an empty one where it names none.
pub fn target_of(record: &Record) -> Target {
    record.target.as_ref().cloned().unwrap_or_default()
}

/// What orders and tells apart the targets of one section.
pub type TargetKey = (Option<u8>, Option<u64>, Option<u8>, Option<u16>, Option<u32>, Option<u16>);

/// The key of a record's target.
pub fn target_id(record: &Record) -> TargetKey {
    record
        .target
        .as_ref()
        .map_or((None, None, None, None, None, None), |t| (t.bar, t.offset, t.width, t.hop, t.irq, t.vector))
}

/// The target that a key stands for.
pub fn target_from(key: &TargetKey) -> Target {
    Target { bar: key.0, offset: key.1, width: key.2, hop: key.3, irq: key.4, vector: key.5, ..Target::default() }
}

/// The label that tells a figure of the lab from one of real hardware.
pub(crate) const EMULATED: &str = "EMULATED: figures are exits to the emulator, not PCIe";

/// The label of what the fake backend makes up.
pub const SYNTHETIC: &str = "SYNTHETIC: made up by the fake backend, nothing was measured";

/// The label that tells a rate of the lab from one of real hardware.
pub(crate) const EMULATED_READOUT: &str = "EMULATED: rates and times are those of an emulated device, not of hardware";

/// Whether a record's figure is that of an emulator.
pub fn is_emulated(record: &Record) -> bool {
    is_emulation(record.method.as_ref(), record.device.as_ref())
}

/// Whether a figure of this method and device is that of an emulator.
pub(crate) fn is_emulation(method: Option<&Method>, device: Option<&Function>) -> bool {
    method.is_some_and(|method| method.emulated) || device.is_some_and(|device| device.emulated.is_some())
}

/// The environments of the runs, each once.
pub fn environments(records: &[Record]) -> Vec<&Environment> {
    once(records.iter().filter_map(|r| r.environment.as_ref()))
}

/// A machine, with what its runs say of it.
#[derive(Debug)]
pub struct Host<'a> {
    /// Product, or CPU model where the product is not known.
    pub name: String,
    /// Its runs and what each found it to be, in the order of the file.
    pub runs: Vec<(&'a str, &'a Environment)>,
}

/// The machines that the records come from. Runs are of the same one where identity or name, product, CPU model and CPUs
/// are the same; older records have neither identity nor name.
pub fn hosts(records: &[Record]) -> Vec<Host<'_>> {
    let mut hosts: Vec<Host> = Vec::new();
    for record in records {
        let Some(e) = &record.environment else { continue };
        let who = |e: &Environment| e.host.as_ref().map(|host| host.id.clone().unwrap_or_else(|| host.name.clone()));
        let same = |host: &&mut Host| {
            host.runs.first().is_some_and(|(_, known)| {
                who(known) == who(e)
                    && known.product == e.product
                    && known.cpu_model == e.cpu_model
                    && known.cpus.len() == e.cpus.len()
            })
        };
        let kind = e.product.as_deref().or(e.cpu_model.as_deref()).unwrap_or("machine without a name");
        let name = e.host.as_ref().map_or_else(|| kind.to_owned(), |host| format!("{}: {kind}", host.name));
        match hosts.iter_mut().find(same) {
            Some(host) => host.runs.push((&record.run, e)),
            None => hosts.push(Host { name, runs: vec![(&record.run, e)] }),
        }
    }
    hosts
}

/// The place of a run's machine among `hosts`; of a run that describes none, the only one there is.
pub fn host_of(hosts: &[Host], run: &str) -> Option<usize> {
    let found = hosts.iter().position(|host| host.runs.iter().any(|known| known.0 == run));
    found.or_else(|| (hosts.len() == 1).then_some(0))
}

/// Ways in which CPUs can share something that matters to latency.
pub const GROUPINGS: [Grouping; 4] = [
    Grouping { title: "NUMA node", prefix: "node", place: |c| c.node },
    Grouping { title: "package", prefix: "package", place: |c| c.package },
    Grouping { title: "L3 cache", prefix: "l3@cpu", place: |c| c.l3 },
    Grouping { title: "SMT thread", prefix: "thread", place: |c| c.thread },
];

/// A way in which CPUs are grouped.
pub struct Grouping {
    /// In words, for a heading.
    pub title: &'static str,
    /// Before the group's number in a key.
    pub prefix: &'static str,
    /// The group of a CPU, where known.
    pub place: fn(&Cpu) -> Option<u32>,
}

impl Grouping {
    /// How many groups these CPUs fall into.
    pub fn count(&self, cpus: &[&Cpu]) -> usize {
        cpus.iter().filter_map(|c| (self.place)(c)).collect::<BTreeSet<_>>().len()
    }
    /// The groups without their names: two groupings with the same parts say the same.
    pub fn parts(&self, cpus: &[&Cpu]) -> BTreeSet<Vec<u32>> {
        let mut parts: BTreeMap<Option<u32>, Vec<u32>> = BTreeMap::new();
        for cpu in cpus {
            parts.entry((self.place)(cpu)).or_default().push(cpu.cpu);
        }
        parts.into_values().collect()
    }
}

/// The warnings and errors of the records, each once, with how many records have it and the text of the first.
#[derive(Debug)]
pub struct Notice {
    /// The short stable name.
    pub code: String,
    /// What was found.
    pub text: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// How many records say so.
    pub count: usize,
    /// Whether it is why something was not measured.
    pub is_error: bool,
}

/// All warnings and errors, errors last, equal ones counted.
pub fn notices(records: &[Record]) -> Vec<Notice> {
    let mut notices: Vec<Notice> = Vec::new();
    let mut places: BTreeMap<(bool, String, String), usize> = BTreeMap::new();
    let mut add = |is_error: bool, code: &str, text: &str, hint: Option<&str>| {
        let place = *places.entry((is_error, code.to_owned(), text.to_owned())).or_insert_with(|| {
            notices.push(Notice {
                code: code.to_owned(),
                text: text.to_owned(),
                hint: hint.filter(|h| !h.is_empty()).map(str::to_owned),
                count: 0,
                is_error,
            });
            notices.len() - 1
        });
        notices[place].count += 1;
    };
    for record in records {
        // What `doctor` could not check stands in its own table.
        for Warning { code, text, hint } in record.warnings.iter().filter(|_| &*record.test != "doctor") {
            add(false, code, text, Some(hint));
        }
        if let Some(Failure { code, text, hint }) = record.error.as_ref() {
            add(true, code, text, hint.as_deref());
        }
    }
    notices.sort_by_key(|n| n.is_error);
    notices
}

/// Who counted the figures of a record.
pub(crate) fn counted_by(record: &Record) -> CountedBy<'_> {
    CountedBy::of(record.instance.as_ref(), record.device.as_ref())
}

/// What counted: a port by its address, others by their PMU.
pub(crate) fn source_name(record: &Record) -> String {
    let instance = record.instance.as_ref();
    let bdf = record.device.as_ref().and_then(|device| device.bdf).map(|bdf| bdf.to_string());
    let pmu = bdf.or_else(|| instance?.pmu.as_deref().map(clean));
    pmu.or_else(|| Some(clean(&instance?.scope))).unwrap_or_else(|| "counter".to_owned())
}

/// The ports of which hardware counted the traffic.
pub(crate) fn hardware_ports<'r>(records: impl Iterator<Item = &'r Record>) -> HardwarePorts {
    HardwarePorts::among(records.map(counted_by))
}

/// Whether the figures of a record come from the fake backend, which makes them up.
pub fn is_synthetic(record: &Record) -> bool {
    record.is_synthetic()
}
