//! Verdicts: which of all tests together are alarms, so that a comparison raises any by chance in [`ALPHA`] of cases.

use super::key::Better;
use super::statistics::TESTED;
use super::{ALPHA, Cell, Shift, Verdict};

/// The part of the error that each family of tests may use up: medians and values of groups, tails and forms of groups,
/// single cells. So a thousand single CPUs do not make the test of a group less sensitive, nor tails that of medians.
const SHARES: [f64; 3] = [0.5, 0.25, 0.25];

/// A test of a family: which cell, which statistic (`None` of the shape), how probable by chance.
type Tested = (usize, Option<usize>, f64);

/// The tests of the cells by family ([`SHARES`]): how many there are, and those that may be an alarm.
fn families(cells: &[Cell]) -> [(usize, Vec<Tested>); 3] {
    let mut families = [const { (0, Vec::new()) }; 3];
    for (place, cell) in cells.iter().enumerate() {
        let is_tested = |shift: &Shift| !cell.key.is_histogram || TESTED.iter().any(|(name, _)| shift.name == *name);
        let of_shifts = cell.shifts.iter().enumerate().filter(|(_, shift)| is_tested(shift));
        let of_shifts = of_shifts.map(|(at, shift)| (Some(at), shift.p));
        for (shift, p) in of_shifts.chain(cell.shape.map(|shape| (None, shape.p))) {
            let (count, possible) = &mut families[match (cell.is_overall, shift) {
                (true, Some(0)) => 0,
                (true, _) => 1,
                (false, _) => 2,
            }];
            *count += 1;
            possible.extend((p < 1.0).then_some((place, shift, p)));
        }
    }
    families
}

/// Verdicts of all cells, once the sizes of the families are known.
pub fn raise_alarms(cells: &mut [Cell]) {
    let families = families(cells);
    let used: f64 = SHARES.iter().zip(&families).filter(|(_, (count, _))| *count > 0).map(|(share, _)| share).sum();
    for ((size, tests), share) in families.into_iter().zip(SHARES) {
        let found: Vec<f64> = tests.iter().map(|test| test.2).collect();
        let alarms = holm(&found, size, ALPHA * share / used);
        for ((place, shift, _), _) in tests.into_iter().zip(alarms).filter(|(_, is_alarm)| *is_alarm) {
            let cell = &mut cells[place];
            match shift {
                Some(at) => {
                    let better = cell.key.better();
                    let shift = &mut cell.shifts[at];
                    shift.verdict = direction(better, shift.b > shift.a);
                    shift.need = None;
                }
                None => cell.shape.iter_mut().for_each(|shape| shape.is_alarm = true),
            }
        }
    }
    for cell in cells {
        if cell.verdict != Verdict::Incomparable {
            cell.verdict = verdict(cell);
        }
        let is_farther = |shift: &Shift| (shift.b - 1.0).abs() > (shift.a - 1.0).abs();
        cell.is_worse = match cell.key.better() {
            Better::Fewer => cell.verdict == Verdict::More,
            Better::Nearer => cell.verdict.is_alarm() && cell.shifts.first().is_some_and(is_farther),
            _ => cell.verdict == Verdict::Slower,
        };
    }
}

/// The verdict of a cell by its statistics.
fn verdict(cell: &Cell) -> Verdict {
    let mut alarms = cell.shifts.iter().map(|shift| shift.verdict).filter(|verdict| verdict.is_alarm());
    match (alarms.next(), cell.shape) {
        (Some(first), _) if alarms.all(|other| other == first) => first,
        (Some(_), _) => Verdict::Differs,
        (None, Some(shape)) if shape.is_alarm => Verdict::Differs,
        _ => cell.shifts.first().map_or(Verdict::Unclear, |shift| shift.verdict),
    }
}

fn direction(better: Better, is_more: bool) -> Verdict {
    match (better, is_more) {
        (Better::Lower, true) | (Better::Higher, false) => Verdict::Slower,
        (Better::Lower, false) | (Better::Higher, true) => Verdict::Faster,
        (_, true) => Verdict::More,
        (_, false) => Verdict::Less,
    }
}

/// Holm's step-down: which of these probabilities, all of one family, are alarms at `alpha` for the whole family.
/// `tests` is the family's size: tests that are obviously no alarms have probability 1 and need not be listed.
fn holm(found: &[f64], tests: usize, alpha: f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..found.len()).collect();
    order.sort_by(|&x, &y| found[x].total_cmp(&found[y]));
    let mut alarms = vec![false; found.len()];
    for (step, &place) in order.iter().enumerate() {
        if found[place] > alpha / (tests - step).max(1) as f64 {
            break;
        }
        alarms[place] = true;
    }
    alarms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holm_stops_at_the_first_that_could_be_chance() {
        // The textbook's: 0.01 and 0.03 beside 0.04 and 0.005, at 5 %: only the two smallest.
        assert_eq!(holm(&[0.01, 0.04, 0.03, 0.005], 4, 0.05), [true, false, false, true]);
        assert_eq!(holm(&[0.01], 10, 0.05), [false]);
        assert!(holm(&[], 3, 0.05).is_empty());
    }
}
