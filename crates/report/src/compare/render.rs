//! A judgement as text for a terminal: doubts, verdicts in plain words, then the table.

use super::cells::{self, Better, Key};
use super::dist::CORRELATION;
use super::{ALPHA, Alone, Cell, Judgement, Need, Ruling, Shift, Verdict};
use crate::style::{Tone, paint};
use crate::table::layout::{Align, Columns, Left, Right, Rows, wrap};
use crate::text::{clean, counted, duration, figure, thousands};

/// How many cells of single CPUs are shown where not all are wanted.
const SHOWN_CELLS: usize = 10;
/// How many groups get a sentence, and how many cells that only one side has are named.
const SHOWN_WORDS: usize = 12;

/// What the sides are called.
#[derive(Debug, Clone)]
pub struct Names {
    /// The files or the label of A.
    pub a: String,
    /// The files or the label of B.
    pub b: String,
}

/// The whole text. With `all` every cell and statistic is in the table. Ends with a newline.
pub fn render(judgement: &Judgement, names: &Names, all: bool) -> String {
    let mut lines = Vec::new();
    for (side, name, runs, records) in
        [("A", &names.a, judgement.runs.0, judgement.records.0), ("B", &names.b, judgement.runs.1, judgement.records.1)]
    {
        lines.push(format!("{side}: {} ({}, {})", clean(name), counted(runs, "run"), counted(records, "record")));
    }
    lines.extend(judgement.unreal.map(str::to_owned));
    if !judgement.doubts.is_empty() {
        lines.push(String::new());
        lines.push("Beside the figures these differ:".to_owned());
        lines.extend(judgement.doubts.iter().map(|doubt| format!("  {}", doubt.text)));
    }
    lines.push(String::new());
    verdicts(&mut lines, judgement);
    rulings(&mut lines, judgement);
    table(&mut lines, judgement, all);
    legend(&mut lines, judgement);
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// The answer: how many groups got slower or faster, the worst of them, and what became of each limit; then a table of the
/// groups and what else differs. Every line but those of limits fits 80 columns. Ends with a newline.
pub fn brief(judgement: &Judgement, names: &Names) -> String {
    let groups = by_weight(judgement.overall());
    let title = format!(
        "A: {} ({}); B: {} ({})",
        clean(&names.a),
        counted(judgement.runs.0, "run"),
        clean(&names.b),
        counted(judgement.runs.1, "run")
    );
    let mut lines: Vec<String> = wrap(&title, BRIEF, "", "  ").iter().map(|line| paint(Tone::Strong, line)).collect();
    lines.extend(judgement.unreal.map(|line| paint(Tone::Doubt, &format!("  {line}"))));
    lines.push(format!("  {} of figures: {}", counted(groups.len(), "group"), tally(groups.iter().copied())));
    if let Some(worst) = groups.first() {
        let word = worst.verdict.word().to_uppercase();
        let tone = match (worst.is_worse, worst.verdict.is_alarm()) {
            (true, _) => Tone::Bad,
            (false, true) => Tone::Doubt,
            (false, false) => Tone::Good,
        };
        let short: Vec<String> = match worst.verdict {
            Verdict::Incomparable => vec!["measured in ways that cannot be compared (--anyway)".to_owned()],
            _ => worst
                .shifts
                .iter()
                .filter(|shift| matters(worst, shift))
                .take(2)
                .map(|shift| change_of(worst, shift))
                .collect(),
        };
        let text = format!("{}: {}", worst.key.title(), short.join(", "));
        let mut wrapped = wrap(&text, BRIEF, &format!("  {word}: "), "    ").into_iter();
        if let Some(first) = wrapped.next() {
            lines.push(first.replacen(&word, &paint(tone, &word), 1));
        }
        lines.extend(wrapped);
    }
    for ruling in &judgement.rulings {
        let (word, tone) = match (ruling.is_failed(), ruling.is_undecided()) {
            (true, _) => ("EXCEEDED", Tone::Bad),
            (false, true) => ("UNDECIDED", Tone::Doubt),
            (false, false) => ("held", Tone::Good),
        };
        let by = ruling.exceeded.len() + ruling.alone.iter().filter(|alone| alone.is_proven).count();
        let by = if by > 0 { format!("{by} of ") } else { String::new() };
        let checked = counted(ruling.checked, "figure");
        lines.push(format!("  {}: --fail-if '{}': {by}{checked}", paint(tone, word), clean(&ruling.limit.text)));
        if !ruling.missing.is_empty() {
            lines.extend(wrap(&unmatched(&ruling.missing), BRIEF, "    not measured in B: ", "    "));
        }
    }
    for (side, keys) in [("A", &judgement.only_a), ("B", &judgement.only_b)] {
        if !keys.is_empty() {
            lines.extend(wrap(&unmatched(keys), BRIEF, &format!("  Only in {side}, not compared: "), "    "));
        }
    }
    brief_table(&mut lines, &groups);
    if let Some(text) = unordered(judgement).filter(|_| groups.iter().any(|cell| cell.verdict.is_alarm())) {
        lines.push(String::new());
        lines.extend(wrap(&format!("{text} If more are alike, a change may be chance."), BRIEF, "", "  "));
    }
    if !judgement.doubts.is_empty() {
        lines.push(String::new());
        for doubt in judgement.doubts.iter().take(SHOWN_DOUBTS) {
            lines.extend(wrap(&doubt.text, BRIEF, "differs too: ", "  "));
        }
        let more = judgement.doubts.len().saturating_sub(SHOWN_DOUBTS);
        if more > 0 {
            lines.push(format!("and {more} more: --all shows them"));
        }
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// The columns of a brief text.
const BRIEF: usize = 80;
/// So many rows has its table.
const SHOWN_ROWS: usize = 20;
/// So many of the other differences are named.
const SHOWN_DOUBTS: usize = 3;

/// The statistics of a cell that a reader wants first: the main one, p99, and what raised an alarm.
fn matters(cell: &Cell, shift: &Shift) -> bool {
    let is_first = cell.shifts.first().is_some_and(|first| first.name == shift.name);
    is_first || shift.name == "p99" || (shift.verdict.is_alarm() && shift.name != "mean")
}

/// `median +3.0 % (1.00 us to 1.03 us)`.
fn change_of(cell: &Cell, shift: &Shift) -> String {
    let values = format!("{} to {}", value(&cell.unit, shift.a), value(&cell.unit, shift.b));
    match shift.change {
        Some(change) => format!("{} {} ({values})", name(shift), percent(change)),
        None => format!("{} {values}", name(shift)),
    }
}

fn brief_table(lines: &mut Vec<String>, groups: &[&Cell]) {
    let rows = groups
        .iter()
        .flat_map(|cell| cell.shifts.iter().filter(|shift| matters(cell, shift)).map(move |shift| (*cell, shift)));
    let rows: Vec<(&Cell, &Shift)> = rows.collect();
    if rows.is_empty() {
        return;
    }
    let heads = [("Device", Left), ("Test", Left), ("Target", Left), ("Figure", Left)];
    let keys: Vec<[String; 4]> = rows
        .iter()
        .map(|(cell, _)| {
            [dash(&clean(&cell.key.device)), clean(&cell.key.test), cell.key.target(), clean(&cell.key.figure)]
        })
        .collect();
    // What all rows have in common stands in the answer.
    let differs: Vec<bool> = (0..4).map(|place| keys.iter().any(|key| key[place] != keys[0][place])).collect();
    let mut columns: Vec<(&str, usize, Align)> = heads
        .iter()
        .zip(&differs)
        .filter(|(_, differs)| **differs)
        .map(|((head, align), _)| (*head, 0, *align))
        .collect();
    columns.extend([("", 4, Left), ("A", 8, Right), ("B", 8, Right), ("Change", 8, Right), ("Verdict", 7, Left)]);
    let mut table = Columns::new(&columns);
    for ((cell, shift), key) in rows.iter().zip(&keys).take(SHOWN_ROWS) {
        let mut row: Vec<String> =
            key.iter().zip(&differs).filter(|(_, differs)| **differs).map(|(part, _)| part.clone()).collect();
        row.extend([
            statistic(shift),
            value(&cell.unit, shift.a),
            value(&cell.unit, shift.b),
            shift.change.map_or_else(|| "-".to_owned(), percent),
            shift.verdict.word().to_owned(),
        ]);
        table.row(row);
    }
    lines.push(String::new());
    let mut rows_of = table.lines().into_iter();
    lines.extend(rows_of.next().map(|head| paint(Tone::Dim, &head)));
    lines.extend(rows_of);
    let more = rows.len().saturating_sub(SHOWN_ROWS);
    let more = if more > 0 { format!("{} more rows, and e", thousands(more as u64)) } else { "E".to_owned() };
    lines.push(paint(Tone::Dim, &format!("{more}ach CPU and target with 95 % intervals: --all")));
}

/// Cells that are worth a line: losses that both sides are free of are not.
fn is_shown(cell: &Cell) -> bool {
    cells::better(&cell.key) != Better::Fewer || cell.shifts.iter().any(|shift| shift.a != 0.0 || shift.b != 0.0)
}

/// The worst first: slower before differing before faster, and the larger change before the smaller.
fn by_weight<'j>(cells: impl Iterator<Item = &'j Cell>) -> Vec<&'j Cell> {
    let mut cells: Vec<&Cell> = cells.filter(|cell| is_shown(cell)).collect();
    let size = |cell: &Cell| cell.shifts.iter().filter_map(|s| s.change).map(f64::abs).fold(0.0, f64::max);
    cells.sort_by(|x, y| {
        let rank = |cell: &Cell| (cell.is_worse, cell.verdict.is_alarm(), cell.verdict);
        rank(y).cmp(&rank(x)).then(size(y).total_cmp(&size(x))).then_with(|| x.key.cmp(&y.key))
    });
    cells
}

fn verdicts(lines: &mut Vec<String>, judgement: &Judgement) {
    let groups = by_weight(judgement.overall());
    let (spoken, quiet): (Vec<&Cell>, Vec<&Cell>) =
        groups.iter().partition(|cell| cell.verdict.is_alarm() || groups.len() <= SHOWN_WORDS);
    for cell in spoken.iter().take(SHOWN_WORDS) {
        lines.push(sentence(cell));
    }
    let rest = spoken.len().saturating_sub(SHOWN_WORDS);
    if rest > 0 {
        lines.push(format!("and {} more (--all shows them)", counted(rest, "verdict")));
    }
    if !quiet.is_empty() {
        lines.push(format!(
            "No change was found in {}: {}.",
            counted(quiet.len(), "group"),
            tally(quiet.iter().copied())
        ));
    }
    let single: Vec<&Cell> = judgement.cells.iter().filter(|cell| !cell.is_overall && is_shown(cell)).collect();
    if !single.is_empty() {
        lines.push(format!("By CPU and target, {}: {}.", counted(single.len(), "cell"), tally(single.into_iter())));
    }
    for (side, keys) in [("A", &judgement.only_a), ("B", &judgement.only_b)] {
        if !keys.is_empty() {
            lines.push(format!("Only in {side}, not compared: {}.", unmatched(keys)));
        }
    }
    if judgement.not_numbers > 0 {
        lines.push(format!("{} were no numbers and were left out.", counted(judgement.not_numbers as usize, "figure")));
    }
}

fn tally<'c>(cells: impl Iterator<Item = &'c Cell>) -> String {
    let mut counts = std::collections::BTreeMap::new();
    for cell in cells {
        *counts.entry(cell.verdict).or_insert(0u64) += 1;
    }
    let words = counts.into_iter().rev().map(|(verdict, n)| format!("{} {}", thousands(n), verdict.word()));
    words.collect::<Vec<_>>().join(", ")
}

/// Cells of one side by what they are of, with their CPUs.
fn unmatched(keys: &[Key]) -> String {
    let mut groups: std::collections::BTreeMap<String, Vec<u32>> = std::collections::BTreeMap::new();
    for key in keys {
        groups.entry(key.title()).or_default().extend(key.cpu);
    }
    let total = groups.len();
    let mut words: Vec<String> = groups
        .into_iter()
        .take(SHOWN_WORDS)
        .map(|(title, mut cpus)| {
            cpus.sort_unstable();
            cpus.dedup();
            let list = cpus.into_iter().collect::<pciescope_core::CpuList>().to_string();
            if list.is_empty() { title } else { format!("{title} on CPUs {list}") }
        })
        .collect();
    if total > SHOWN_WORDS {
        words.push(format!("and {} more", thousands((total - SHOWN_WORDS) as u64)));
    }
    words.join("; ")
}

/// One verdict in plain words.
fn sentence(cell: &Cell) -> String {
    let place = if cell.merged > 1 {
        format!("{} ({} cells together)", cell.key.title(), thousands(cell.merged as u64))
    } else {
        cell.key.cpu.map_or_else(|| cell.key.title(), |cpu| format!("{} on CPU {cpu}", cell.key.title()))
    };
    format!("{}: {place}: {}", cell.verdict.word().to_uppercase(), reason(cell))
}

fn reason(cell: &Cell) -> String {
    let alarms: Vec<&Shift> = cell.shifts.iter().filter(|shift| shift.verdict.is_alarm()).collect();
    if cell.verdict == Verdict::Incomparable {
        return "measured in ways that cannot be compared (emulated, made up, or another number of accesses per sample); \
                --anyway compares them."
            .to_owned();
    }
    if !alarms.is_empty() {
        let words: Vec<String> = alarms.iter().map(|shift| format!("{} {}", name(shift), by(cell, shift))).collect();
        let pair = cell.shape.map_or_else(String::new, |shape| {
            let (who, share) =
                if shape.superiority >= 0.5 { ("B", shape.superiority) } else { ("A", 1.0 - shape.superiority) };
            format!("; {who}'s sample is the longer one in {:.0} of 100 pairs", share * 100.0)
        });
        return format!("{}{pair}.", words.join(", "));
    }
    let Some(first) = cell.shifts.first() else { return "too few samples for any statistic.".to_owned() };
    match (cell.verdict, cell.shape) {
        (Verdict::Differs, Some(shape)) => format!(
            "the form changed: {:.1} % of the samples lie {} than the margin explains, {} {}.",
            shape.displaced.abs() * 100.0,
            if shape.displaced > 0.0 { "higher" } else { "lower" },
            name(first),
            by(cell, first)
        ),
        _ => {
            let need = first.need.map_or_else(String::new, |need| format!("; {}", help(need)));
            format!("{} {}{need}.", name(first), by(cell, first))
        }
    }
}

fn name(shift: &Shift) -> &str {
    match &*shift.name {
        "value" => "the figure",
        "p50" => "median",
        other => other,
    }
}

fn by(cell: &Cell, shift: &Shift) -> String {
    let values = format!("{} to {}", value(&cell.unit, shift.a), value(&cell.unit, shift.b));
    match shift.change {
        Some(change) => format!("{} {} ({values})", percent(change), interval(shift)).replace("  ", " "),
        None => values,
    }
}

/// What would make an unclear verdict clear.
fn help(need: Need) -> String {
    match need {
        Need::Samples(n) => format!("about {} samples on each side would decide", thousands(n)),
        Need::Runs(n) => format!("about {} runs on each side would decide", thousands(n)),
        Need::Margin => "the change is about as large as the margin".to_owned(),
    }
}

fn value(unit: &str, value: f64) -> String {
    match unit {
        "ns" => duration(value),
        "bytes/s" => format!("{:.1} MB/s", value / 1e6),
        "1" | "" => figure(value),
        unit => format!("{} {}", figure(value), clean(unit)),
    }
}

fn percent(change: f64) -> String {
    let percent = change * 100.0;
    if percent.abs() >= 1000.0 { format!("{percent:+.0} %") } else { format!("{percent:+.1} %") }
}

fn interval(shift: &Shift) -> String {
    let end = |end: Option<f64>| end.map_or_else(|| "?".to_owned(), |end| format!("{:+.1}", end * 100.0));
    match (shift.low, shift.high) {
        (None, None) => String::new(),
        (low, high) => format!("[{}, {}]", end(low), end(high)),
    }
}

fn rulings(lines: &mut Vec<String>, judgement: &Judgement) {
    if judgement.rulings.is_empty() {
        return;
    }
    lines.push(String::new());
    for ruling in &judgement.rulings {
        lines.push(ruling_line(ruling));
        for (list, word) in [(&ruling.exceeded, "exceeded"), (&ruling.unproven, "not proven")] {
            for &(cell, shift) in list.iter().take(SHOWN_CELLS) {
                let cell = &judgement.cells[cell];
                let cpu = match (cell.merged, cell.key.cpu) {
                    (1, Some(cpu)) => format!(" on CPU {cpu}"),
                    (1, None) => String::new(),
                    _ => " together".to_owned(),
                };
                let shift = &cell.shifts[shift];
                lines.push(format!("  {word}: {}{cpu}: {} {}", cell.key.title(), name(shift), by(cell, shift)));
            }
            let rest = list.len().saturating_sub(SHOWN_CELLS);
            if rest > 0 {
                lines.push(format!("  {word}: and {} more", thousands(rest as u64)));
            }
        }
        alone(lines, ruling);
        if !ruling.missing.is_empty() {
            lines.push(format!("  not measured in B: {}", unmatched(&ruling.missing)));
        }
    }
}

/// Figures that only B has, those that are proven before the others.
fn alone(lines: &mut Vec<String>, ruling: &Ruling) {
    let mut all: Vec<&Alone> = ruling.alone.iter().collect();
    all.sort_by_key(|alone| !alone.is_proven);
    for alone in all.iter().take(SHOWN_CELLS) {
        let word = if alone.is_proven { "exceeded" } else { "not proven" };
        let cpu = alone.key.cpu.map(|cpu| format!(" on CPU {cpu}")).unwrap_or_default();
        let name = if alone.name == "value" { String::new() } else { format!("{} ", alone.name) };
        let figure = value(&alone.unit, alone.value);
        lines.push(format!("  {word}: {}{cpu}: {name}{figure}, only in B", alone.key.title()));
    }
    let rest = all.len().saturating_sub(SHOWN_CELLS);
    if rest > 0 {
        lines.push(format!("  only in B: and {} more", thousands(rest as u64)));
    }
}

fn ruling_line(ruling: &Ruling) -> String {
    let word = match (ruling.is_failed(), ruling.is_undecided()) {
        (true, _) => "EXCEEDED",
        (false, true) => "UNDECIDED",
        (false, false) => "held",
    };
    let mut parts = vec![format!("compared with {}", counted(ruling.checked, "figure"))];
    if ruling.undecided > 0 {
        parts.push(format!(
            "{} could not be decided (too few samples, nothing in A, or incomparable)",
            ruling.undecided
        ));
    }
    format!("{word}: --fail-if '{}': {}", clean(&ruling.limit.text), parts.join(", "))
}

fn table(lines: &mut Vec<String>, judgement: &Judgement, all: bool) {
    let groups = by_weight(judgement.overall());
    let single = by_weight(judgement.cells.iter().filter(|cell| !cell.is_overall));
    let shown_groups = if all { groups.len() } else { groups.len().min(4 * SHOWN_CELLS) };
    let alarms = single.iter().filter(|cell| cell.verdict != Verdict::Same).count();
    let shown_single = if all { single.len() } else { alarms.min(SHOWN_CELLS) };
    let shown: Vec<&Cell> = groups[..shown_groups]
        .iter()
        .chain(&single[..shown_single])
        .copied()
        .filter(|c| !c.shifts.is_empty())
        .collect();
    if shown.is_empty() {
        return;
    }
    lines.push(String::new());
    let is_wanted = |place: usize, shift: &Shift| {
        all || place == 0 || shift.name == "p99" || (shift.verdict.is_alarm() && shift.name != "mean")
    };
    let rows = shown.into_iter().flat_map(|cell| {
        let shifts = cell.shifts.iter().enumerate().filter(move |(place, shift)| is_wanted(*place, shift));
        shifts.map(move |(place, shift)| (cell, shift, cell.shape.filter(|_| place == 0)))
    });
    let columns = Rows::of(rows).columns(&[
        ("Device", 0, Left, &|(cell, ..)| dash(&clean(&cell.key.device))),
        ("Test", 0, Left, &|(cell, ..)| clean(&cell.key.test)),
        ("Target", 0, Left, &|(cell, ..)| cell.key.target()),
        ("Figure", 0, Left, &|(cell, ..)| clean(&cell.key.figure)),
        ("CPU", 0, Right, &|(cell, ..)| match (cell.merged, cell.key.cpu) {
            (1, Some(cpu)) => cpu.to_string(),
            (1, None) => "-".to_owned(),
            _ => "all".to_owned(),
        }),
        ("", 0, Left, &|(_, shift, _)| statistic(shift)),
        ("A", 0, Right, &|(cell, shift, _)| value(&cell.unit, shift.a)),
        ("B", 0, Right, &|(cell, shift, _)| value(&cell.unit, shift.b)),
        ("Change", 0, Right, &|(_, shift, _)| shift.change.map_or_else(|| "-".to_owned(), percent)),
        ("95 % interval", 0, Right, &|(_, shift, _)| dash(&interval(shift))),
        ("P(B>A)", 0, Right, &|(.., shape)| {
            shape.map_or_else(|| "-".to_owned(), |shape| format!("{:.2}", shape.superiority))
        }),
        ("Verdict", 0, Left, &|(_, shift, shape)| {
            let is_hidden = shape.is_some_and(|shape| shape.is_alarm) && !shift.verdict.is_alarm();
            format!("{}{}", shift.verdict.word(), if is_hidden { " (form differs)" } else { "" })
        }),
    ]);
    lines.extend(columns.without_empty().lines());
    let left = groups.len() - shown_groups + single.len() - shown_single;
    if left > 0 {
        lines.push(format!("{} not shown; --all shows every one", counted(left, "cell")));
    }
}

/// What is assumed where the order of samples is not known.
fn unordered(judgement: &Judgement) -> Option<String> {
    let of = counted(judgement.unordered as usize, "histogram");
    let text =
        format!("The correlation of neighbouring samples is not known for {of}: {CORRELATION} samples count as one.");
    (judgement.unordered > 0).then_some(text)
}

/// The statistic's name; a metric has none.
fn statistic(shift: &Shift) -> String {
    if shift.name == "value" { "-".to_owned() } else { shift.name.to_string() }
}

fn dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

fn legend(lines: &mut Vec<String>, judgement: &Judgement) {
    let options = &judgement.options;
    lines.push(String::new());
    lines.push(format!(
        "A change within {:.1} % does not count (--margin). At most {:.0} in 100 comparisons raise any alarm by chance.",
        options.margin * 100.0,
        ALPHA * 100.0
    ));
    let widened = judgement.cells.iter().flat_map(|cell| cell.shifts.iter());
    let widest = widened.map(|shift| shift.margin).fold(options.margin, f64::max);
    if widest > options.margin {
        lines.push(format!(
            "The clock's step is wider than that for some: their margin is up to {:.1} %.",
            widest * 100.0
        ));
    }
    if judgement.cells.iter().flat_map(|cell| cell.shifts.iter()).any(|shift| shift.is_of_cells) {
        lines.push(
            "The median of several cells together is the geometric mean of the cells' medians, with equal weights."
                .to_owned(),
        );
    }
    lines.extend(unordered(judgement));
    if judgement.runs == (1, 1) {
        lines.push(format!(
            "One run on each side: the spread between runs is not known; {:.1} % is assumed (--run-spread).",
            options.spread * 100.0
        ));
    }
}
