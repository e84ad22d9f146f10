//! Turns the cells of two sides into verdicts: the statistics of each group and each cell, the limits that apply to them,
//! and last the alarms, for which the number of all tests must be known.

use std::collections::{BTreeMap, BTreeSet};

use pciescope_core::Record;

use super::cells::{Cells, FigureName, Side, SideCell};
use super::key::CellKey;
use super::rulings::Ruling;
use super::statistics::Figures;
use super::{Cell, Criteria, Judgement, Verdict, alarms, doubts};
use crate::model;

/// The cells of a group that both sides have.
pub type Pairs<'p, 'r> = BTreeMap<&'p CellKey, [&'p SideCell<'r>; 2]>;

/// Compares two sides.
pub fn judge(a: &[&Record], b: &[&Record], criteria: &Criteria) -> Judgement {
    let sides = |by_kind| [a, b].map(|records| Side::of(records, by_kind));
    let mut both = sides(false);
    if is_moved(&both) {
        both = sides(true);
    }
    let [left, right] = both;
    let mut rulings: Vec<Ruling> = criteria.limits.iter().map(Ruling::of).collect();
    let (mut cells, mut only_a, mut only_b, mut missing) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    // The samples of a figure are freed before the next figure.
    for figure in &left.figures | &right.figures {
        let [of_a, of_b] = both_cells(&left, &right, figure);
        let common: Pairs = of_a.iter().filter_map(|(key, a)| Some((key, [a, of_b.get(key)?]))).collect();
        let groups = groups(&common);
        let mut comparable = BTreeSet::new();
        for (key, members) in &groups {
            let mut figures = match members.first_key_value() {
                Some((key, sides)) if members.len() == 1 => Figures::of(key, *sides, Default::default(), criteria),
                _ => {
                    let parts = [0, 1].map(|side| members.values().map(|sides| sides[side]).collect::<Vec<_>>());
                    let [a, b] = parts.each_ref().map(|cells| SideCell::together(cells.iter().copied()));
                    Figures::of(key, [&a, &b], parts, criteria)
                }
            };
            figures.cell.is_overall = true;
            rulings.iter_mut().for_each(|ruling| ruling.check(&figures, false));
            if figures.cell.verdict != Verdict::Incomparable {
                comparable.insert(key);
            }
            cells.push(figures.cell);
        }
        for (key, sides) in &common {
            let group = key.merged();
            let members = &groups[&group];
            let is_member = members.contains_key(key);
            // The only one of a group was judged with the groups.
            if members.len() == 1 && is_member {
                continue;
            }
            let figures = Figures::of(key, *sides, Default::default(), criteria);
            // Limits are checked on the sum of losses of the group instead, where it has one.
            let is_summed = is_member && comparable.contains(&group);
            rulings.iter_mut().for_each(|ruling| ruling.check(&figures, is_summed));
            cells.push(figures.cell);
        }
        let only = |here: &Cells, there: &Cells| -> Vec<CellKey> {
            here.keys().filter(|key| !there.contains_key(key)).cloned().collect()
        };
        let (in_a, in_b) = (only(&of_a, &of_b), only(&of_b, &of_a));
        rulings.iter_mut().for_each(|ruling| ruling.check_only_in_b(&in_b, &of_b, criteria));
        let is_missing = |key: &&CellKey| !groups.contains_key(&key.merged()) || right.has_error(key);
        missing.extend(in_a.iter().filter(is_missing).cloned());
        only_a.extend(in_a);
        only_b.extend(in_b);
    }
    cells.sort_by(|x: &Cell, y| (!x.is_overall, &x.key).cmp(&(!y.is_overall, &y.key)));
    [&mut only_a, &mut only_b, &mut missing].into_iter().for_each(|keys| keys.sort());
    for ruling in &mut rulings {
        ruling.find_missing(missing.iter().chain(&right.unknown_losses));
        ruling.decide(&cells, criteria.is_strict);
    }
    alarms::raise_alarms(&mut cells);
    Judgement {
        criteria: criteria.clone(),
        unreal: unreal(a, b),
        doubts: doubts::doubts(a, b),
        only_a,
        only_b,
        not_numbers: left.not_numbers + right.not_numbers,
        unordered: left.unordered + right.unordered,
        cells,
        rulings,
        runs: [left.runs.len(), right.runs.len()],
        records: [a, b].map(|records| records.iter().map(|one| one.count()).sum()),
    }
}

/// The cells of a figure, of both sides. Where one side counted losses and the other measured the same without counting any,
/// that one has a 0.
fn both_cells<'r>(left: &Side<'r>, right: &Side<'r>, figure: FigureName<'r>) -> [Cells<'r>; 2] {
    let mut cells = [left, right].map(|side| side.cells(figure));
    let keys: BTreeSet<CellKey> = cells.iter().flat_map(BTreeMap::keys).filter(|key| key.is_loss()).cloned().collect();
    for (side, cells) in [left, right].into_iter().zip(&mut cells) {
        side.fill_losses(cells, &keys);
    }
    cells
}

/// The line that says so where a side is of a synthetic machine or of emulated devices.
fn unreal(a: &[&Record], b: &[&Record]) -> Option<&'static str> {
    let any = |is: fn(&Record) -> bool| a.iter().chain(b).any(|record| is(record));
    if any(model::is_synthetic) {
        return Some(model::SYNTHETIC);
    }
    any(model::is_emulated).then_some(model::EMULATED)
}

/// Whether both sides measured one device of the same kind at different addresses: another slot, or another host.
fn is_moved(sides: &[Side; 2]) -> bool {
    let [a, b] = sides.each_ref().map(|side| side.devices.first_key_value().filter(|_| side.devices.len() == 1));
    a.zip(b).is_some_and(|((here, kind), (there, other))| here != there && kind == other && *kind != (0, 0))
}

/// The common cells by what they belong to. With several runs, a group has only the cells that all runs have: a CPU
/// that only some runs measured must not look like a change.
fn groups<'p, 'r>(common: &Pairs<'p, 'r>) -> BTreeMap<CellKey, Pairs<'p, 'r>> {
    let mut groups: BTreeMap<CellKey, Pairs> = BTreeMap::new();
    for (key, sides) in common {
        groups.entry(key.merged()).or_default().insert(key, *sides);
    }
    for members in groups.values_mut().filter(|members| members.len() > 1) {
        let runs = |sides: &[&SideCell; 2]| sides.map(|side| side.runs.len());
        let most = members.values().map(runs).fold([0, 0], |[a, b], [x, y]| [a.max(x), b.max(y)]);
        if members.values().any(|sides| runs(sides) == most) {
            members.retain(|_, sides| runs(sides) == most);
        }
    }
    groups
}
