//! Compares two sides of records: whether they differ, by how much, and how sure that is.
//!
//! A pure function: records in, a [`Judgement`] out, no random numbers. docs/compare-method.md has the reasons.

mod alarms;
pub(crate) mod cells;
mod counts;
mod dist;
mod doubts;
pub(crate) mod interval;
mod json;
mod judge;
mod key;
mod limit;
pub(crate) mod medians;
mod render;
mod rulings;
mod statistics;
mod values;

use std::borrow::Cow;
use std::collections::BTreeMap;

use pciescope_core::Record;
use pciescope_core::loss::{self, Loss};
use serde::Serialize;

use self::cells::Side;
use crate::text;

pub use self::doubts::Doubt;
pub use self::json::lines;
pub(crate) use self::judge::judge;
pub use self::key::CellKey;
pub use self::limit::{BadLimit, Limit, STATISTICS};
pub use self::render::{Names, brief, render};
pub(crate) use self::render::{headline, value};
pub use self::rulings::{OneSided, Ruling};

/// The share of comparisons that may raise an alarm though nothing changed, if the margin were 0.
pub const ALPHA: f64 = 0.05;

/// How to judge.
#[derive(Debug, Clone)]
pub struct Criteria {
    /// A change of up to this share of A's figure does not count: 0.02 by default.
    pub margin: f64,
    /// The relative standard deviation between runs that is assumed where there are too few to see it: 0.005 by default.
    pub spread: f64,
    /// Compare what was measured in ways that make it incomparable.
    pub is_forced: bool,
    /// Limits, each of which may fail the comparison.
    pub limits: Vec<Limit>,
    /// Compare limits with the figures alone, without their intervals.
    pub is_strict: bool,
}

impl Default for Criteria {
    fn default() -> Self {
        Criteria { margin: 0.02, spread: 0.005, is_forced: false, limits: Vec::new(), is_strict: false }
    }
}

pciescope_core::named! {
    /// The result for a figure or a cell.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Verdict {
        /// The whole interval lies within the margin.
        Same => "same",
        /// The interval is too wide, or lies across the margin.
        Unclear => "unclear",
        /// B is proven to be better by more than the margin: faster.
        Faster => "faster",
        /// B is proven to be less, where less is neither better nor worse; of losses: fewer.
        Less => "less",
        /// B is proven to be more, where more is neither better nor worse; of losses: more, which is worse.
        More => "more",
        /// The distributions differ without a direction.
        Differs => "differs",
        /// B is proven to be worse by more than the margin: slower.
        Slower => "slower",
        /// Measured in ways that make the figures incomparable.
        Incomparable => "incomparable",
    }
    /// The word for it, in output for people and programs.
    fn word
}

impl Verdict {
    /// Whether it says that something changed.
    pub fn is_alarm(self) -> bool {
        !matches!(self, Verdict::Same | Verdict::Unclear | Verdict::Incomparable)
    }
}

/// What would make an unclear figure clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Need {
    /// This number of samples on each side, in the same number of runs.
    Samples(u64),
    /// This number of runs on each side.
    Runs(u64),
    /// The change is about as large as the margin: no amount of data decides it.
    Margin,
}

/// One statistic of a cell, of both sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shift {
    /// `p50`, `mean` and so on; of a metric `value`.
    pub name: Cow<'static, str>,
    /// A's figure.
    pub a: f64,
    /// B's figure.
    pub b: f64,
    /// B over A, less 1; `None` where A is 0.
    pub change: Option<f64>,
    /// Lower end of the change's interval of 95 %; `None` where it is not known.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// The margin that applies: the clock's step may be wider than what was asked for.
    pub margin: f64,
    /// What is said of it.
    pub verdict: Verdict,
    /// How probable such figures are by chance if the change is within the margin; 1 where that is not excluded at 5 %.
    pub p: f64,
    /// Of an unclear one, what would help.
    pub need: Option<Need>,
    /// Whether it is the geometric mean of the same figure of a group's cells, and not that of all their samples together.
    pub is_of_cells: bool,
}

/// How the distributions of a cell lie to each other.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Share of the samples of B that lie above (positive) or below A's by more than the margin and the spread of runs, once
    /// the medians were laid over each other.
    pub displaced: f64,
    /// How probable that is by chance; 1 where it may well be.
    pub p: f64,
    /// Probability that a sample of B is larger than one of A, ties counted half.
    pub superiority: f64,
    /// Whether it is an alarm.
    pub is_alarm: bool,
}

impl Shape {
    /// Cliff's delta: -1 where every sample of B is smaller, 1 where every one is larger.
    pub fn cliffs_delta(&self) -> f64 {
        2.0 * self.superiority - 1.0
    }
}

/// One cell of both sides.
#[derive(Debug, Clone)]
pub struct Cell {
    /// What it is of; the CPU is `None` where several were taken together.
    pub key: CellKey,
    /// How many cells were taken together; 1 for a cell by itself.
    pub merged: usize,
    /// Whether it speaks for a group: several taken together, or the only one.
    pub is_overall: bool,
    /// Runs of A and B.
    pub runs: [usize; 2],
    /// Samples (or values) of A and B.
    pub counts: [u64; 2],
    /// The unit of the figures: `ns`, `bytes/s` and so on.
    pub unit: String,
    /// Its statistics, the typical before the tail.
    pub shifts: Vec<Shift>,
    /// How the distributions lie to each other, of histograms.
    pub shape: Option<Shape>,
    /// What is said of it.
    pub verdict: Verdict,
    /// Whether the verdict is a bad one: slower, or more losses.
    pub is_worse: bool,
}

/// All that is said of two sides.
#[derive(Debug, Clone)]
pub struct Judgement {
    /// How it was judged.
    pub criteria: Criteria,
    /// What the figures are, where those of a side are no measurement of hardware.
    pub unreal: Option<&'static str>,
    /// What else differs between the sides.
    pub doubts: Vec<Doubt>,
    /// Cells that both sides have; those that speak for a group before those of single CPUs.
    pub cells: Vec<Cell>,
    /// Cells that only A has.
    pub only_a: Vec<CellKey>,
    /// Cells that only B has.
    pub only_b: Vec<CellKey>,
    /// Figures that were no numbers and were left out.
    pub not_numbers: u64,
    /// Histograms of which nothing says how much neighbouring samples resemble each other: ten are taken for one.
    pub unordered: u64,
    /// What became of the limits.
    pub rulings: Vec<Ruling>,
    /// Runs of A and B.
    pub runs: [usize; 2],
    /// Records of A and B.
    pub records: [usize; 2],
}

impl Judgement {
    /// Cells that speak for a group.
    pub fn overall(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(|cell| cell.is_overall)
    }
    /// Whether any limit was exceeded.
    pub fn is_failed(&self) -> bool {
        self.rulings.iter().any(Ruling::is_failed)
    }
    /// Whether something could be compared at all.
    pub fn is_comparable(&self) -> bool {
        self.cells.iter().any(|cell| cell.verdict != Verdict::Incomparable)
    }
}

/// Compares the records of B with those of A.
pub fn compare(a: &[Record], b: &[Record], criteria: &Criteria) -> Judgement {
    judge(&a.iter().collect::<Vec<_>>(), &b.iter().collect::<Vec<_>>(), criteria)
}

/// The names that a limit can have with these records: statistics, metrics, and the histograms that may stand before a
/// statistic.
pub fn names(a: &[Record], b: &[Record]) -> Vec<String> {
    let figures = [a, b].map(|side| Side::of(&side.iter().collect::<Vec<_>>(), false).figures);
    let figures = &figures[0] | &figures[1];
    let mut names = Vec::new();
    if figures.iter().any(|(is_histogram, _)| *is_histogram) {
        names.extend(STATISTICS.map(str::to_owned));
    }
    if figures.iter().any(|(_, name)| loss::find(name).is_some_and(Loss::is_failure)) {
        names.push("loss".to_owned());
    }
    names.extend(figures.into_iter().map(|(is_histogram, name)| {
        let name = text::clean(name);
        if is_histogram { format!("{name}.p99") } else { name }
    }));
    names
}

/// How many of these cells have each verdict.
fn tally<'c>(cells: impl IntoIterator<Item = &'c Cell>) -> BTreeMap<Verdict, usize> {
    let mut counts = BTreeMap::new();
    for cell in cells {
        *counts.entry(cell.verdict).or_default() += 1;
    }
    counts
}
