//! Heat maps: CPU by BAR, hop or interrupt, each cell one figure of one histogram.

use std::collections::{BTreeMap, BTreeSet};

use pciescope_core::{Histogram, Record, outcome};

use crate::model::{self, Kind, Section, TargetKey, cpu_of, target_from, target_id};
use crate::text::{self, target_key};

/// Which figure of a histogram a cell shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statistic {
    /// The median; it needs 10 samples.
    Median,
    /// The mean.
    Mean,
}

impl Statistic {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Statistic::Median => "median",
            Statistic::Mean => "mean",
        }
    }
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
    /// CPU numbers, ascending.
    pub cpus: Vec<u32>,
    /// Names of the targets, from the top.
    pub targets: Vec<String>,
    /// Nanoseconds by target and CPU; `None` where not measured.
    pub values: Vec<Vec<Option<f64>>>,
}

impl HeatMap {
    /// The ends of the colour scale: smallest and largest value, but at least 5 % apart, so that noise within
    /// them does not look like a difference. `None` where there is no value.
    pub fn range(&self) -> Option<(f64, f64)> {
        let values = self.values.iter().flatten().flatten();
        let range =
            values.fold(None, |range, &v| Some(range.map_or((v, v), |(a, b): (f64, f64)| (a.min(v), b.max(v)))));
        range.map(|(low, high)| (low, high.max(low * 1.05)))
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
        Kind::Verify | Kind::Counters | Kind::Other => &[],
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
            maps.extend(heat_map(section, name, words));
        }
    }
    maps
}

fn heat_map(section: &Section, name: &str, words: &str) -> Option<HeatMap> {
    let (cells, targets) = cells(section, name);
    let cpus: BTreeSet<u32> = cells.keys().map(|k| k.1).collect();
    if cells.is_empty() {
        return None;
    }
    // One figure for all cells: a mean beside medians would look like a difference.
    let statistic =
        if cells.values().all(|h| h.percentile_ns(50.0).is_some()) { Statistic::Median } else { Statistic::Mean };
    let values = targets
        .iter()
        .map(|(key, _)| cpus.iter().map(|cpu| cells.get(&(*key, *cpu)).and_then(|h| statistic.of(h))).collect())
        .collect();
    let count = cells.values().fold(0, |sum: u64, h| sum.saturating_add(h.count()));
    let emulated = if section.is_emulated() { " - EMULATED, not PCIe" } else { "" };
    let synthetic = if section.is_synthetic() { " - SYNTHETIC, made up by the fake backend" } else { "" };
    let label = section.first().label.as_ref().map(|label| format!(" ({label})")).unwrap_or_default();
    Some(HeatMap {
        title: format!("{}: {}{label}", section.test(), text::device_name(section.first())),
        subtitle: format!("{words}, {} of {} samples{emulated}{synthetic}", statistic.name(), text::thousands(count)),
        cpus: cpus.into_iter().collect(),
        targets: targets.into_iter().map(|t| t.1).collect(),
        values,
    })
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
