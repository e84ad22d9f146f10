//! A judgement as text for a terminal: the answer alone, or doubts, verdicts in plain words and all figures.

use std::collections::BTreeMap;

use pciescope_core::CpuList;

use super::dist::CORRELATION;
use super::key::Better;
use super::statistics::TESTED;
use super::{ALPHA, Cell, CellKey, Judgement, Need, Ruling, Shape, Shift, Verdict, tally};
use crate::layout::{Column, Left, Right, Rows, wrap};
use crate::style::{Tone, paint};
use crate::text::{clean, counted, duration, figure, rate, thousands};

/// How many cells of single CPUs are shown where not all are wanted.
const SHOWN_CELLS: usize = 10;
/// How many groups get a sentence, and how many cells that only one side has are named.
const SHOWN_WORDS: usize = 12;
/// The columns of a brief text.
const BRIEF: usize = 80;
/// So many rows has its table.
const SHOWN_ROWS: usize = 20;
/// So many of the other differences are named.
const SHOWN_DOUBTS: usize = 3;

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
    let mut lines: Vec<String> = Vec::new();
    for (at, (side, name)) in [("A", &names.a), ("B", &names.b)].into_iter().enumerate() {
        let (runs, records) = (counted(judgement.runs[at], "run"), counted(judgement.records[at], "record"));
        lines.push(format!("{side}: {} ({runs}, {records})", clean(name)));
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
    joined(&lines)
}

/// The answer: how many groups got slower or faster, the worst of them, and what became of each limit; then a table of the
/// groups and what else differs. Every line but those of limits fits 80 columns. Ends with a newline.
pub fn brief(judgement: &Judgement, names: &Names) -> String {
    let groups = by_weight(judgement.overall());
    let [a, b] = judgement.runs.map(|runs| counted(runs, "run"));
    let title = format!("A: {} ({a}); B: {} ({b})", clean(&names.a), clean(&names.b));
    let mut lines: Vec<String> = wrap(&title, BRIEF, "", "  ").iter().map(|line| paint(Tone::Strong, line)).collect();
    lines.extend(judgement.unreal.map(|line| paint(Tone::Doubt, &format!("  {line}"))));
    lines.push(format!("  {} of figures: {}", counted(groups.len(), "group"), words_of(tally(groups.iter().copied()))));
    lines.extend(groups.first().into_iter().flat_map(|worst| worst_line(worst)));
    for ruling in &judgement.rulings {
        let (word, tone) = outcome(ruling);
        let by = ruling.exceeded.len() + ruling.only_in_b.iter().filter(|figure| figure.is_proven).count();
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
    let rows: Vec<StatisticRow> =
        rows(groups.iter().copied(), false).map(|row| StatisticRow { shape: None, ..row }).collect();
    if !rows.is_empty() {
        let mut shown = columns(&rows, SHOWN_ROWS, true).into_iter();
        lines.push(String::new());
        lines.extend(shown.next().map(|head| paint(Tone::Dim, &head)));
        lines.extend(shown);
        let more = rows.len().saturating_sub(SHOWN_ROWS);
        let more = if more > 0 { format!("{} more rows, and e", thousands(more as u64)) } else { "E".to_owned() };
        lines.push(paint(Tone::Dim, &format!("{more}ach CPU and target with 95 % intervals: --all")));
    }
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
    joined(&lines)
}

fn joined(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// The verdict in one line, without colours; `None` where nothing could be compared.
pub(crate) fn headline(judgement: &Judgement) -> Option<String> {
    let worst = by_weight(judgement.overall()).into_iter().next()?;
    Some(format!("{}: {}", worst.verdict.word().to_uppercase(), in_short(worst)))
}

/// The worst group with its two main changes, and why it differs or what would decide.
fn worst_line(worst: &Cell) -> Vec<String> {
    let word = worst.verdict.word().to_uppercase();
    let tone = match (worst.is_worse, worst.verdict.is_alarm()) {
        (true, _) => Tone::Bad,
        (false, true) => Tone::Doubt,
        (false, false) => Tone::Good,
    };
    let need = worst.shifts.first().and_then(|shift| shift.need).filter(|_| worst.verdict == Verdict::Unclear);
    let need = need.map_or_else(String::new, |need| format!("; {}", help(need)));
    let mut lines = wrap(&(in_short(worst) + &need), BRIEF, &format!("  {word}: "), "    ");
    lines[0] = lines[0].replacen(&word, &paint(tone, &word), 1);
    lines
}

/// A cell with its first two figures.
fn in_short(worst: &Cell) -> String {
    let short = match worst.verdict {
        Verdict::Incomparable => "measured in ways that cannot be compared (--anyway)".to_owned(),
        _ => {
            let rows = rows([worst], false).take(2);
            rows.map(|row| format!("{} {}", name(row.shift), change(worst, row.shift, false)))
                .collect::<Vec<_>>()
                .join(", ")
        }
    };
    let is_hidden = worst.verdict == Verdict::Differs && worst.shifts.iter().all(|shift| !shift.verdict.is_alarm());
    let form = worst.shape.filter(|_| is_hidden).map(|shape| format!("{}; ", form(&shape)));
    format!("{}: {}{short}", worst.key.title(), form.unwrap_or_default())
}

/// A row of a table: a statistic of a cell, and in the first row of a cell its shape.
#[derive(Clone, Copy)]
struct StatisticRow<'j> {
    cell: &'j Cell,
    shift: &'j Shift,
    shape: Option<Shape>,
}

/// The rows of cells: all, or those that a reader wants first, which are the main one, p99, and what raised an alarm.
fn rows<'j>(cells: impl IntoIterator<Item = &'j Cell>, all: bool) -> impl Iterator<Item = StatisticRow<'j>> {
    cells.into_iter().flat_map(move |cell| {
        let is_wanted = move |place: usize, shift: &Shift| {
            all || place == 0 || shift.name == "p99" || (shift.verdict.is_alarm() && shift.name != "mean")
        };
        let shifts = cell.shifts.iter().enumerate().filter(move |(place, shift)| is_wanted(*place, shift));
        shifts.map(move |(place, shift)| StatisticRow { cell, shift, shape: cell.shape.filter(|_| place == 0) })
    })
}

/// The table of the first `shown` rows. A brief one has of the target only the columns that differ between rows (what all
/// have in common stands in the answer), and no intervals.
fn columns<'j>(rows: &[StatisticRow<'j>], shown: usize, is_brief: bool) -> Vec<String> {
    let key: [Column<StatisticRow<'j>>; 4] = [
        ("Device", 0, Left, &|row| row.cell.key.columns()[0].clone()),
        ("Test", 0, Left, &|row| row.cell.key.columns()[1].clone()),
        ("Target", 0, Left, &|row| row.cell.key.columns()[2].clone()),
        ("Figure", 0, Left, &|row| row.cell.key.columns()[3].clone()),
    ];
    let width = |brief: usize| if is_brief { brief } else { 0 };
    let figures: [Column<StatisticRow<'j>>; 8] = [
        ("CPU", 0, Right, &|row| match (row.cell.merged, row.cell.key.cpu) {
            (1, Some(cpu)) => cpu.to_string(),
            (1, None) => "-".to_owned(),
            _ => "all".to_owned(),
        }),
        ("", width(4), Left, &|row| {
            if row.shift.name == "value" { "-".to_owned() } else { row.shift.name.to_string() }
        }),
        ("A", width(8), Right, &|row| value(&row.cell.unit, row.shift.a)),
        ("B", width(8), Right, &|row| value(&row.cell.unit, row.shift.b)),
        ("Change", width(8), Right, &|row| row.shift.change.map_or_else(|| "-".to_owned(), percent)),
        ("95 % interval", 0, Right, &|row| interval(row.shift).unwrap_or_else(|| "-".to_owned())),
        ("P(B>A)", 0, Right, &|row| {
            row.shape.map_or_else(|| "-".to_owned(), |shape| format!("{:.2}", shape.superiority))
        }),
        ("Verdict", width(7), Left, &|row| {
            let is_hidden = row.shape.is_some_and(|shape| shape.is_alarm) && !row.shift.verdict.is_alarm();
            let why = if is_hidden { " (form differs)" } else { why_unclear(row) };
            format!("{}{why}", row.shift.verdict.word())
        }),
    ];
    let differs = |column: &Column<StatisticRow<'j>>| rows.iter().any(|row| column.3(row) != column.3(&rows[0]));
    let is_shown =
        |column: &Column<StatisticRow<'j>>| !is_brief || !["CPU", "95 % interval", "P(B>A)"].contains(&column.0);
    let key = key.into_iter().filter(|column| !is_brief || differs(column));
    let wanted: Vec<Column<StatisticRow<'j>>> = key.chain(figures.into_iter().filter(is_shown)).collect();
    let table = Rows::of(rows.iter().take(shown).copied()).columns(&wanted);
    if is_brief { table.lines() } else { table.without_empty().lines() }
}

/// Why a change that its interval tells from the margin is no alarm.
fn why_unclear(row: &StatisticRow) -> &'static str {
    let StatisticRow { cell, shift, .. } = row;
    let is_beyond =
        shift.low.is_some_and(|low| low > shift.margin) || shift.high.is_some_and(|high| high < -shift.margin);
    match shift.verdict == Verdict::Unclear && is_beyond {
        true if cell.key.is_histogram && !TESTED.iter().any(|(name, _)| shift.name == *name) => " (not tested)",
        true => " (may be chance: many are compared)",
        false => "",
    }
}

/// Cells that are worth a line: losses that both sides are free of are not.
fn is_shown(cell: &Cell) -> bool {
    cell.key.better() != Better::Fewer || cell.shifts.iter().any(|shift| shift.a != 0.0 || shift.b != 0.0)
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
            words_of(tally(quiet.iter().copied()))
        ));
    }
    let single: Vec<&Cell> = judgement.cells.iter().filter(|cell| !cell.is_overall && is_shown(cell)).collect();
    if !single.is_empty() {
        lines.push(format!("By CPU and target, {}: {}.", counted(single.len(), "cell"), words_of(tally(single))));
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

/// How many have each verdict, in words.
fn words_of(counts: BTreeMap<Verdict, usize>) -> String {
    let words = counts.into_iter().rev().map(|(verdict, n)| format!("{} {}", thousands(n as u64), verdict.word()));
    words.collect::<Vec<_>>().join(", ")
}

/// Cells of one side by what they are of, with their CPUs.
fn unmatched(keys: &[CellKey]) -> String {
    let mut groups: BTreeMap<String, Vec<u32>> = BTreeMap::new();
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
            let list = cpus.into_iter().collect::<CpuList>().to_string();
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
        format!("{}{}", cell.key.title(), on_cpu(&cell.key))
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
        let words: Vec<String> =
            alarms.iter().map(|shift| format!("{} {}", name(shift), change(cell, shift, true))).collect();
        let pair = cell.shape.map_or_else(String::new, |shape| {
            let (who, share) =
                if shape.superiority >= 0.5 { ("B", shape.superiority) } else { ("A", 1.0 - shape.superiority) };
            format!("; {who}'s sample is the longer one in {:.0} of 100 pairs", share * 100.0)
        });
        return format!("{}{pair}.", words.join(", "));
    }
    let Some(first) = cell.shifts.first() else { return "too few samples for any statistic.".to_owned() };
    match (cell.verdict, cell.shape) {
        (Verdict::Differs, Some(shape)) => format!("{}, {} {}.", form(&shape), name(first), change(cell, first, true)),
        _ => {
            let need = first.need.map_or_else(String::new, |need| format!("; {}", help(need)));
            format!("{} {}{need}.", name(first), change(cell, first, true))
        }
    }
}

/// How the form of a distribution changed.
fn form(shape: &Shape) -> String {
    let (share, to) = (shape.displaced.abs() * 100.0, if shape.displaced > 0.0 { "higher" } else { "lower" });
    format!("the form changed: {share:.1} % of the samples lie {to} than the margin explains")
}

fn name(shift: &Shift) -> &str {
    match &*shift.name {
        "value" => "the figure",
        "p50" => "median",
        other => other,
    }
}

/// `+3.0 % [+2.1, +3.9] (1.00 us to 1.03 us)`, or without the interval.
fn change(cell: &Cell, shift: &Shift, has_interval: bool) -> String {
    let values = format!("{} to {}", value(&cell.unit, shift.a), value(&cell.unit, shift.b));
    let interval = interval(shift).filter(|_| has_interval).map_or_else(String::new, |interval| format!("{interval} "));
    match shift.change {
        Some(change) => format!("{} {interval}({values})", percent(change)),
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

/// A figure with its unit.
pub(crate) fn value(unit: &str, value: f64) -> String {
    match unit {
        "ns" => duration(value),
        "bytes/s" => rate(value),
        "1" | "" => figure(value),
        unit => format!("{} {}", figure(value), clean(unit)),
    }
}

fn percent(change: f64) -> String {
    let percent = change * 100.0;
    if percent.abs() >= 1000.0 { format!("{percent:+.0} %") } else { format!("{percent:+.1} %") }
}

fn interval(shift: &Shift) -> Option<String> {
    let end = |end: Option<f64>| end.map_or_else(|| "?".to_owned(), |end| format!("{:+.1}", end * 100.0));
    let is_known = shift.low.is_some() || shift.high.is_some();
    is_known.then(|| format!("[{}, {}]", end(shift.low), end(shift.high)))
}

/// `held`, `EXCEEDED` or `UNDECIDED`.
fn outcome(ruling: &Ruling) -> (&'static str, Tone) {
    match (ruling.is_failed(), ruling.is_undecided()) {
        (true, _) => ("EXCEEDED", Tone::Bad),
        (false, true) => ("UNDECIDED", Tone::Doubt),
        (false, false) => ("held", Tone::Good),
    }
}

fn rulings(lines: &mut Vec<String>, judgement: &Judgement) {
    if !judgement.rulings.is_empty() {
        lines.push(String::new());
    }
    for ruling in &judgement.rulings {
        let mut title = format!("{}: --fail-if '{}'", outcome(ruling).0, clean(&ruling.limit.text));
        title += &format!(": compared with {}", counted(ruling.checked, "figure"));
        if ruling.undecided > 0 {
            let why = "could not be decided (too few samples, nothing in A, or incomparable)";
            title += &format!(", {} {why}", ruling.undecided);
        }
        lines.push(title);
        let mut put = |what: &str, figures: Vec<String>| {
            lines.extend(figures.iter().take(SHOWN_CELLS).map(|figure| format!("  {figure}")));
            let rest = figures.len().saturating_sub(SHOWN_CELLS);
            lines.extend((rest > 0).then(|| format!("  {what}: and {} more", thousands(rest as u64))));
        };
        for (list, word) in [(&ruling.exceeded, "exceeded"), (&ruling.unproven, "not proven")] {
            let line = |&(cell, shift): &(usize, usize)| {
                let cell = &judgement.cells[cell];
                let place = if cell.merged > 1 { " together".to_owned() } else { on_cpu(&cell.key) };
                let shift = &cell.shifts[shift];
                format!("{word}: {}{place}: {} {}", cell.key.title(), name(shift), change(cell, shift, true))
            };
            put(word, list.iter().map(line).collect());
        }
        // Figures that only B has, those that are proven before the others.
        let (proven, open): (Vec<_>, Vec<_>) = ruling.only_in_b.iter().partition(|figure| figure.is_proven);
        let of_b = proven.into_iter().chain(open).map(|of_b| {
            let word = if of_b.is_proven { "exceeded" } else { "not proven" };
            let name = if of_b.name == "value" { String::new() } else { format!("{} ", of_b.name) };
            let figure = value(&of_b.unit, of_b.value);
            format!("{word}: {}{}: {name}{figure}, only in B", of_b.key.title(), on_cpu(&of_b.key))
        });
        put("only in B", of_b.collect());
        if !ruling.missing.is_empty() {
            lines.push(format!("  not measured in B: {}", unmatched(&ruling.missing)));
        }
    }
}

fn on_cpu(key: &CellKey) -> String {
    key.cpu.map_or_else(String::new, |cpu| format!(" on CPU {cpu}"))
}

fn table(lines: &mut Vec<String>, judgement: &Judgement, all: bool) {
    let groups = by_weight(judgement.overall());
    let single = by_weight(judgement.cells.iter().filter(|cell| !cell.is_overall));
    let alarms = single.iter().filter(|cell| cell.verdict != Verdict::Same).count();
    let shown_groups = if all { groups.len() } else { groups.len().min(4 * SHOWN_CELLS) };
    let shown_single = if all { single.len() } else { alarms.min(SHOWN_CELLS) };
    let shown = groups[..shown_groups].iter().chain(&single[..shown_single]);
    let rows: Vec<StatisticRow> = rows(shown.copied(), all).collect();
    if rows.is_empty() {
        return;
    }
    lines.push(String::new());
    lines.extend(columns(&rows, rows.len(), false));
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

fn legend(lines: &mut Vec<String>, judgement: &Judgement) {
    let criteria = &judgement.criteria;
    lines.push(String::new());
    lines.push(format!(
        "A change within {:.1} % does not count (--margin). At most {:.0} in 100 comparisons raise any alarm by chance.",
        criteria.margin * 100.0,
        ALPHA * 100.0
    ));
    let shifts = || judgement.cells.iter().flat_map(|cell| &cell.shifts);
    let widest = shifts().map(|shift| shift.margin).fold(criteria.margin, f64::max);
    if widest > criteria.margin {
        lines.push(format!(
            "The clock's step is wider than that for some: their margin is up to {:.1} %.",
            widest * 100.0
        ));
    }
    if shifts().any(|shift| shift.is_of_cells) {
        lines.push(
            "The median of several cells together is the geometric mean of the cells' medians, with equal weights."
                .to_owned(),
        );
    }
    lines.extend(unordered(judgement));
    if judgement.runs == [1, 1] {
        lines.push(format!(
            "One run on each side: the spread between runs is not known; {:.1} % is assumed (--run-spread).",
            criteria.spread * 100.0
        ));
    }
}
