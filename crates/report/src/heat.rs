//! Heat maps: CPU by BAR, hop or interrupt, each cell one figure of one histogram.

use std::collections::{BTreeMap, BTreeSet};

use pciescope_core::{Cpu, Histogram, Record, outcome};

use crate::model::{self, Kind, Section, TargetKey, cpu_of, target_from, target_id};
use crate::text::{self, target_key};

pciescope_core::named! {
    /// Which figure of a histogram a cell shows.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Statistic {
        /// The median; it needs 10 samples.
        Median => "median",
        /// The mean.
        Mean => "mean",
    }
    /// In a word.
    fn name
}

impl Statistic {
    /// The figure, in nanoseconds.
    pub fn of(self, h: &Histogram) -> Option<f64> {
        match self {
            Statistic::Median => h.percentile_ns(50.0),
            Statistic::Mean => h.mean_ns(),
        }
    }
}

/// A grid of figures: CPUs across, targets down.
#[derive(Debug)]
pub struct HeatMap {
    /// What, on which device, and what the user calls the run.
    pub title: String,
    /// Which figure, how many samples, whether emulated or synthetic.
    pub subtitle: String,
    /// The columns.
    pub places: Places,
    /// Names of the targets, from the top.
    pub targets: Vec<String>,
    /// Nanoseconds by target and CPU; `None` where not measured.
    pub values: Vec<Vec<Option<f64>>>,
    /// The ends of the colour scale, which all maps of one kind of test share; `None` where there is no value.
    pub scale: Option<(f64, f64)>,
}

/// The CPUs of a heat map, and how they hang together.
#[derive(Debug)]
pub struct Places {
    /// CPU numbers as a machine is built: by package, node, L3 cache, core and thread; by number where that is not known.
    pub cpus: Vec<u32>,
    /// What the CPUs can be grouped by, from the cells outwards.
    pub strips: Vec<Strip>,
    /// Columns of the threads of one core, where several are shown: from, and the first behind.
    pub cores: Vec<(usize, usize)>,
}

/// Groups of neighbouring columns: the nodes of a heat map, or its packages.
pub type Strip = Vec<CpuGroup>;

/// A group of neighbouring columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuGroup {
    /// The first column.
    pub from: usize,
    /// The first column behind.
    pub to: usize,
    /// Its name, from long to short.
    pub words: Vec<String>,
}

/// The smallest ratio between the two ends of a colour scale, so that noise does not look like a pattern.
pub const LEAST_SPAN: f64 = 2.0;

impl HeatMap {
    /// The smallest and the largest value; `None` where there is no value.
    fn ends(&self) -> Option<(f64, f64)> {
        let values = self.values.iter().flatten().flatten();
        values.fold(None, |ends, &v| Some(ends.map_or((v, v), |(a, b): (f64, f64)| (a.min(v), b.max(v)))))
    }
}

/// Gives the maps of one kind of test one scale: from the smallest value of all to the largest, but [`LEAST_SPAN`] at
/// least.
fn share_scales(maps: &mut [(Kind, HeatMap)]) {
    let ends: Vec<(Kind, (f64, f64))> = maps.iter().filter_map(|(kind, map)| Some((*kind, map.ends()?))).collect();
    for (kind, map) in maps {
        let own = ends.iter().filter(|(other, _)| other == kind).map(|(_, ends)| *ends);
        map.scale =
            own.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).map(|(low, high)| (low, high.max(low * LEAST_SPAN)));
    }
}

/// Where a value lies between the smallest (0) and the largest (1) of a range, on a logarithmic scale.
pub fn share(value: f64, (low, high): (f64, f64)) -> f64 {
    let (low, high, value) = (low.max(1e-3).ln(), high.max(1e-3).ln(), value.max(1e-3).ln());
    if high - low < 1e-9 { 0.0 } else { ((value - low) / (high - low)).clamp(0.0, 1.0) }
}

/// The histograms of a section that have a heat map: name and words.
pub fn names(section: &Section) -> &'static [(&'static str, &'static str)] {
    match model::kind(section.test()) {
        Kind::Mmio | Kind::Path => &[(outcome::LATENCY, "Latency")],
        Kind::Irq => &[
            (outcome::TRIGGER_TO_HANDLER, "Trigger to handler"),
            (outcome::ENTRY_TO_ACK, "Handler entry to acknowledge"),
        ],
        Kind::Verify | Kind::Counters | Kind::Readout | Kind::Other => &[],
    }
}

/// Histograms by target and CPU.
pub type Cells = BTreeMap<(TargetKey, u32), Histogram>;

/// The histograms named `name` of a section by target and CPU, with the targets' names in the order of the keys.
pub fn cells(section: &Section, name: &str) -> (Cells, Vec<(TargetKey, String)>) {
    let cells = section.merged_by(name, |r: &Record| Some((target_id(r), cpu_of(r)?)));
    let offsets = section.has_many_offsets();
    let targets: BTreeSet<TargetKey> = cells.keys().map(|k| k.0).collect();
    let named = |key: TargetKey| {
        let name = target_key(&target_from(&key), offsets);
        (key, if name.is_empty() { "all".to_owned() } else { name })
    };
    (cells, targets.into_iter().map(named).collect())
}

/// All heat maps of these records, in the order of the sections.
pub fn heat_maps(records: &[Record]) -> Vec<HeatMap> {
    let mut maps = Vec::new();
    for section in &model::sections(records) {
        for (name, words) in names(section) {
            maps.extend(heat_map(section, name, words).map(|map| (model::kind(section.test()), map)));
        }
    }
    share_scales(&mut maps);
    maps.into_iter().map(|(_, map)| map).collect()
}

fn heat_map(section: &Section, name: &str, words: &str) -> Option<HeatMap> {
    let (cells, targets) = cells(section, name);
    let shown: BTreeSet<u32> = cells.keys().map(|k| k.1).collect();
    if cells.is_empty() {
        return None;
    }
    let places = places(section, &shown);
    // One figure for all cells: a mean beside medians would look like a difference.
    let statistic =
        if cells.values().all(|h| h.percentile_ns(50.0).is_some()) { Statistic::Median } else { Statistic::Mean };
    let values = targets
        .iter()
        .map(|(key, _)| places.cpus.iter().map(|cpu| cells.get(&(*key, *cpu)).and_then(|h| statistic.of(h))).collect())
        .collect();
    let count = cells.values().fold(0, |sum: u64, h| sum.saturating_add(h.count()));
    let emulated = if section.is_emulated() { " - EMULATED, not PCIe" } else { "" };
    let synthetic = if section.is_synthetic() { " - SYNTHETIC, made up by the fake backend" } else { "" };
    let label = section.first().label.as_ref().map(|label| format!(" ({label})")).unwrap_or_default();
    Some(HeatMap {
        title: format!("{}: {}{label}", section.test(), text::device_name(section.first())),
        subtitle: format!("{words}, {} of {} samples{emulated}{synthetic}", statistic.name(), text::thousands(count)),
        places,
        targets: targets.into_iter().map(|t| t.1).collect(),
        values,
        scale: None,
    })
}

/// The places of the CPUs `shown`.
pub(crate) fn places(section: &Section, shown: &BTreeSet<u32>) -> Places {
    let known: BTreeMap<u32, &Cpu> = section.cpus().into_iter().map(|cpu| (cpu.cpu, cpu)).collect();
    let place = |cpu: &u32| known.get(cpu).map_or_else(|| Cpu { cpu: *cpu, ..Cpu::default() }, |cpu| (*cpu).clone());
    let mut cpus: Vec<Cpu> = shown.iter().map(place).collect();
    cpus.sort_by_key(|cpu| (cpu.package, cpu.node, cpu.l3, cpu.core, cpu.thread, cpu.cpu));
    let mut cores = groups(&cpus, |cpu| cpu.core.map(|core| (cpu.package, cpu.node, core)));
    cores.retain(|(from, to)| to - from > 1 && cpus[*from].core.is_some());
    Places { strips: strips(&cpus), cores, cpus: cpus.iter().map(|cpu| cpu.cpu).collect() }
}

/// Ranges of neighbours with the same `of`: the first, and the first behind.
fn groups<K: PartialEq>(cpus: &[Cpu], of: impl Fn(&Cpu) -> K) -> Vec<(usize, usize)> {
    let mut groups: Vec<(usize, usize)> = Vec::new();
    for (column, cpu) in cpus.iter().enumerate() {
        match groups.last_mut() {
            Some(last) if of(&cpus[last.0]) == of(cpu) => last.1 = column + 1,
            _ => groups.push((column, column + 1)),
        }
    }
    groups
}

/// The strips below a map, from the cells outwards. A group that holds all CPUs has no strip; if each package is one
/// node, both share one.
fn strips(cpus: &[Cpu]) -> Vec<Strip> {
    let count = |of: fn(&Cpu) -> (Option<u32>, Option<u32>)| cpus.iter().map(of).collect::<BTreeSet<_>>().len();
    let (nodes, packages) = (count(|cpu| (cpu.node, None)), count(|cpu| (cpu.package, None)));
    let is_one = nodes > 1 && nodes == packages && nodes == count(|cpu| (cpu.node, cpu.package));
    let number = |number: Option<u32>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
    let of_package = |cpu: &Cpu| {
        let package = number(cpu.package);
        let both = is_one.then(|| format!("package {package}, node {}", number(cpu.node)));
        both.into_iter().chain([format!("package {package}"), format!("pkg {package}"), package]).collect::<Vec<_>>()
    };
    let of_node = |cpu: &Cpu| vec![format!("node {}", number(cpu.node)), number(cpu.node)];
    let strip = |place: fn(&Cpu) -> Option<u32>, words: &dyn Fn(&Cpu) -> Vec<String>| -> Strip {
        let named = |(from, to): (usize, usize)| CpuGroup { from, to, words: words(&cpus[from]) };
        groups(cpus, place).into_iter().map(named).collect()
    };
    let mut strips = Vec::new();
    if nodes > 1 && !is_one {
        strips.push(strip(|cpu| cpu.node, &of_node));
    }
    if packages > 1 {
        strips.push(strip(|cpu| cpu.package, &of_package));
    }
    strips
}

/// Viridis in nine steps: even to the eye, readable in grey and with any colour vision. Slow is bright.
pub const PALETTE: [[u8; 3]; 9] = [
    [68, 1, 84],
    [71, 44, 122],
    [59, 81, 139],
    [44, 113, 142],
    [33, 144, 141],
    [39, 173, 129],
    [92, 200, 99],
    [170, 220, 50],
    [253, 231, 37],
];

/// The colour of a share between 0 and 1.
pub fn colour(share: f64) -> [u8; 3] {
    let place = share.clamp(0.0, 1.0) * (PALETTE.len() - 1) as f64;
    let (step, rest) =
        ((place as usize).min(PALETTE.len() - 2), place - (place as usize).min(PALETTE.len() - 2) as f64);
    let mix = |i: usize| {
        let (a, b) = (f64::from(PALETTE[step][i]), f64::from(PALETTE[step + 1][i]));
        (a + (b - a) * rest).round() as u8
    };
    [mix(0), mix(1), mix(2)]
}

/// Black or white, whichever is readable on `background`.
pub fn ink(background: [u8; 3]) -> [u8; 3] {
    let [r, g, b] = background.map(f64::from);
    if 0.299 * r + 0.587 * g + 0.114 * b > 140.0 { [0, 0, 0] } else { [255, 255, 255] }
}
