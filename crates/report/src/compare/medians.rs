//! The headline of latencies: one median of many CPUs, in which every CPU weighs the same.
//!
//! The samples of fast and slow CPUs together have no typical figure: their median lies in the gap between both, and
//! chance decides at which end. Each CPU (and vector) has a median of its own; the headline is their geometric mean.

use std::rc::Rc;

use super::cells::{self, SideCell};
use super::interval::SideFigure;
use crate::model::{Headline, Section};

impl Headline {
    /// The headline of the histogram `name` of a section of one target; `None` if it has no sample. `compare` finds the same
    /// median for one run.
    pub(crate) fn of(section: &Section, name: &str) -> Option<Self> {
        let cells = cells::of_histogram(&section.records, name);
        let of_cells = of_cells(&cells.values().collect::<Vec<_>>());
        let of_cpus = section.by_cpu(name);
        let mut by_cpu: Vec<(u32, f64)> =
            of_cpus.iter().filter_map(|(cpu, histogram)| Some(((*cpu)?, histogram.median_ns()?))).collect();
        by_cpu.sort_by(|one, other| one.1.total_cmp(&other.1));
        let of_all = || section.merged(name).median_ns();
        Some(Headline { median_ns: of_cells.or_else(of_all)?, is_mean: of_cells.is_some(), by_cpu })
    }
}

/// The median of a group's cells in nanoseconds, of several runs their geometric mean; `None` as [`of_runs`].
pub(crate) fn of_cells(cells: &[&SideCell]) -> Option<f64> {
    let logs: Vec<f64> = of_runs(cells)?.iter().map(|run| run.value().ln()).collect();
    Some((logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

/// Of each run of a side the geometric mean of the medians of a group's cells. `None` of fewer than two cells, and where a
/// run lacks a cell or a cell has too few samples for an interval.
pub(crate) fn of_runs(cells: &[&SideCell]) -> Option<Vec<SideFigure>> {
    let names = |at: usize| cells[at].runs.iter().map(|run| run.name);
    if cells.len() < 2 || (1..cells.len()).any(|at| !names(at).eq(names(0))) {
        return None;
    }
    let median = |dist| SideFigure::Quantile { dist: Rc::new(dist), share: 0.5 };
    let run = |at: usize| cells.iter().filter_map(move |cell| cells::dist(&cell.runs[at].samples)).map(median);
    (0..cells[0].runs.len()).map(|at| SideFigure::of_cells(run(at))).collect()
}

#[cfg(test)]
mod tests {
    use pciescope_core::{Cpu, Histogram, Record};

    use crate::model::sections;

    use super::*;

    fn record(cpu: u32, ns: u64, samples: u64) -> Record {
        let histogram = Histogram::of_ns((0..samples).map(|n| ns + n % 3)).unwrap();
        Record {
            test: "mmio-read".to_owned(),
            run: "1".to_owned(),
            cpu: Some(Cpu { cpu, ..Cpu::default() }),
            histograms: [("latency".to_owned(), histogram)].into(),
            ..Record::default()
        }
    }

    #[test]
    fn every_cpu_weighs_the_same() {
        let records = [record(0, 400, 100), record(1, 1600, 4000), record(2, 400, 100), record(3, 1600, 100)];
        let section = &sections(&records)[0];
        let headline = Headline::of(section, "latency").unwrap();
        assert!(headline.is_mean && (headline.median_ns / 800.0 - 1.0).abs() < 0.01, "{headline:?}");
        assert_eq!(headline.by_cpu.iter().map(|cpu| cpu.0).collect::<Vec<_>>(), [0, 2, 1, 3]);
        let judgement = super::super::compare(&records, &records, &Default::default());
        assert!((judgement.cells[0].shifts[0].a / headline.median_ns - 1.0).abs() < 1e-12);
        assert_eq!(Headline::of(section, "other"), None);
    }

    #[test]
    fn a_cpu_of_few_samples_leaves_the_median_of_all() {
        let records = [record(0, 400, 10), record(1, 1600, 4000)];
        let headline = Headline::of(&sections(&records)[0], "latency").unwrap();
        assert!(!headline.is_mean && (headline.median_ns / 1600.0 - 1.0).abs() < 0.01, "{headline:?}");
        assert_eq!(headline.by_cpu.len(), 2);
    }
}
