//! What becomes of each limit: the figures that exceed it, and how sure that is.

use super::cells::Cells;
use super::key::CellKey;
use super::limit::Limit;
use super::statistics::Figures;
use super::{ALPHA, Cell, Criteria, Verdict};

/// What became of one limit.
#[derive(Debug, Clone)]
pub struct Ruling {
    /// The limit.
    pub limit: Limit,
    /// How many figures it applies to.
    pub checked: usize,
    /// Figures that could not be compared with it: too few samples, or no change from 0.
    pub undecided: usize,
    /// Figures that exceed it with confidence: cell and statistic by place.
    pub exceeded: Vec<(usize, usize)>,
    /// Figures that exceed it, but whose interval does not.
    pub unproven: Vec<(usize, usize)>,
    /// Figures of cells that only B has and that exceed it.
    pub only_in_b: Vec<OneSided>,
    /// Cells that it names and that B should have measured but did not: a regression there cannot be seen.
    pub missing: Vec<CellKey>,
    /// Figures that exceed it as they stand until it is known how many are checked: the cell (whether it is of a group), the
    /// statistic by place, and how probable it is by chance.
    open: Vec<(bool, CellKey, usize, f64)>,
}

/// A figure that only B has and that exceeds a limit on B itself.
#[derive(Debug, Clone)]
pub struct OneSided {
    /// The cell.
    pub key: CellKey,
    /// The statistic; of a metric `value`.
    pub name: String,
    /// The unit of the figure.
    pub unit: String,
    /// The figure.
    pub value: f64,
    /// How probable it is by chance while the true one keeps the limit.
    pub p: f64,
    /// Whether it lies beyond the limit with confidence.
    pub is_proven: bool,
}

impl Ruling {
    pub(super) fn of(limit: &Limit) -> Self {
        Ruling {
            limit: limit.clone(),
            checked: 0,
            undecided: 0,
            exceeded: Vec::new(),
            unproven: Vec::new(),
            only_in_b: Vec::new(),
            missing: Vec::new(),
            open: Vec::new(),
        }
    }

    /// Whether a figure exceeds it, with confidence.
    pub fn is_failed(&self) -> bool {
        !self.exceeded.is_empty() || self.only_in_b.iter().any(|figure| figure.is_proven)
    }

    /// Whether it could not be compared with the figures that it names.
    pub fn is_undecided(&self) -> bool {
        self.checked == 0 || !self.missing.is_empty()
    }

    /// Checks the statistics of a cell. `is_summed`: the cell is a part of a group, which answers for the sum of
    /// the losses.
    pub(super) fn check(&mut self, figures: &Figures, is_summed: bool) {
        let (exceeded, cell) = (self.exceeding(figures, is_summed).into_iter(), &figures.cell);
        self.open.extend(exceeded.map(|(statistic, p)| (cell.is_overall, cell.key.clone(), statistic, p)));
    }

    /// The statistics of a cell that exceed the limit as they stand, by place, and how probable each is by chance.
    fn exceeding(&mut self, figures: &Figures, is_summed: bool) -> Vec<(usize, f64)> {
        let (limit, cell) = (&self.limit, &figures.cell);
        let key = &cell.key;
        let mut exceeded = Vec::new();
        if cell.verdict == Verdict::Incomparable {
            self.undecided += usize::from(limit.is_about(key));
            return exceeded;
        }
        self.undecided += figures.too_few.iter().filter(|name| limit.is_of(key, name)).count();
        let unit = if key.is_histogram { "ns" } else { &cell.unit };
        if !limit.fits(unit) || (is_summed && limit.is_absolute() && key.is_loss()) {
            return exceeded;
        }
        for (place, (shift, estimate)) in cell.shifts.iter().zip(&figures.estimates).enumerate() {
            if !limit.is_of(key, &shift.name) {
                continue;
            }
            let Some(is_exceeded) = limit.is_exceeded(shift.a, shift.b) else {
                self.undecided += 1;
                continue;
            };
            self.checked += 1;
            if is_exceeded {
                exceeded.push((place, estimate.as_ref().map_or(0.0, |estimate| limit.probability(estimate))));
            }
        }
        exceeded
    }

    /// Notes cells that the limit speaks of among those that B did not measure. Other CPUs or vectors of what B did measure
    /// are a matter of taste, unless B says that something went wrong there. Losses that are no numbers were not measured.
    pub(super) fn find_missing<'k>(&mut self, keys: impl IntoIterator<Item = &'k CellKey>) {
        for key in keys {
            if self.limit.is_about(key) && !self.missing.contains(key) {
                self.missing.push(key.clone());
            }
        }
    }

    /// Checks the cells that only B has against a limit on B itself.
    pub(super) fn check_only_in_b(&mut self, only_b: &[CellKey], right: &Cells, criteria: &Criteria) {
        if !self.limit.is_absolute() {
            return;
        }
        for key in only_b {
            let figures = Figures::of(key, [&right[key]; 2], Default::default(), criteria);
            for (place, p) in self.exceeding(&figures, false) {
                let shift = &figures.cell.shifts[place];
                self.only_in_b.push(OneSided {
                    key: key.clone(),
                    name: shift.name.to_string(),
                    unit: figures.cell.unit.clone(),
                    value: shift.b,
                    p,
                    is_proven: false,
                });
            }
        }
    }

    /// Tells what is proven from what is not, once all `cells` are in order and it is known how many figures the limit was
    /// checked against.
    pub(super) fn decide(&mut self, cells: &[Cell], is_strict: bool) {
        let checked = self.checked as f64;
        let is_proven = |p: f64| is_strict || p <= ALPHA / checked;
        self.only_in_b.iter_mut().for_each(|figure| figure.is_proven = is_proven(figure.p));
        self.only_in_b.sort_by(|one, other| one.key.cmp(&other.key));
        for (is_overall, key, statistic, p) in std::mem::take(&mut self.open) {
            let list = if is_proven(p) { &mut self.exceeded } else { &mut self.unproven };
            let place = cells.partition_point(|cell| (!cell.is_overall, &cell.key) < (!is_overall, &key));
            list.push((place, statistic));
        }
        self.exceeded.sort_unstable();
        self.unproven.sort_unstable();
    }
}
