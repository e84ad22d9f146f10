//! Conclusions from records: what is good, what is doubtful, what to do.
//!
//! Every sentence follows from figures in the records by a rule. The limit of the rule is in the sentence and in
//! `rules.rs`. If no rule applies, there is no sentence, and the list says so.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use pciescope_core::{Bdf, Function, Record, change, once};

use super::{Fact, convert, counters, doctor, latency, readout, soak, tune, verify, watch};
use crate::layout::wrap;
use crate::model::{self, Kind, Section};
use crate::style::Tone;
use crate::text::{clean, counted};

/// How many sentences a list has before it says how many more there are.
const MOST: usize = 12;
/// Upper limit of the functions named in a sentence.
const FEW: usize = 3;
/// The longest text of a record that is quoted, in characters.
const LONGEST: usize = 300;
/// Warnings that a rule says in figures.
const SAID: [&str; 5] = ["emulated-device", "wrong-data", "above-ceiling", "multiplexed", "saturated"];

/// What of the page a sentence is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A section, by its place among [`model::sections`].
    Section(usize),
    /// The list of warnings and errors.
    Notices,
}

/// A sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// In words: figure, unit, device.
    pub text: String,
    /// Where the figures stand.
    pub place: Place,
    rank: u8,
}

/// What can be concluded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conclusions {
    /// What is as it should be.
    pub good: Vec<Statement>,
    /// What makes figures, or what they are of, doubtful.
    pub doubtful: Vec<Statement>,
    /// What to do about it.
    pub to_do: Vec<Statement>,
    /// The texts of that.
    advised: HashSet<String>,
}

impl Conclusions {
    /// The lists with their titles and what stands in place of sentences where there are none.
    pub fn lists(&self) -> [(&'static str, &'static str, &[Statement]); 3] {
        [
            ("What is good", "No rule has the figures that it needs.", &self.good),
            ("What is doubtful", "Nothing that the rules look for.", &self.doubtful),
            ("What to do", "Nothing.", &self.to_do),
        ]
    }

    /// In a word or two.
    pub(crate) fn tile(&self, sections: &[Section]) -> Fact {
        let doubts = self.doubtful.len();
        let note = match doubts {
            0 => "nothing doubtful".to_owned(),
            1 => "1 doubt, below".to_owned(),
            more => format!("{more} doubts, below"),
        };
        let (value, tone) = if sections.iter().any(Section::is_synthetic) {
            ("SYNTHETIC", Tone::Doubt)
        } else if sections.iter().any(Section::is_emulated) && !sections.iter().any(Section::is_real) {
            ("EMULATED", Tone::Doubt)
        } else if doubts > 0 {
            ("doubtful", Tone::Doubt)
        } else if self.good.is_empty() {
            ("none", Tone::Plain)
        } else {
            ("good", Tone::Good)
        };
        Fact { name: "Verdict", value: value.to_owned(), note, tone }
    }

    pub(super) fn good(&mut self, number: usize, text: String) {
        self.good.push(Statement { text, place: Place::Section(number), rank: 5 });
    }
    pub(super) fn doubt(&mut self, rank: u8, place: Place, text: String) {
        self.doubtful.push(Statement { text, place, rank });
    }
    pub(super) fn advise(&mut self, rank: u8, place: Place, text: String) {
        if self.advised.insert(text.clone()) {
            self.to_do.push(Statement { text, place, rank });
        }
    }
    fn finish(&mut self) {
        for list in [&mut self.good, &mut self.doubtful, &mut self.to_do] {
            list.sort_by_key(|statement| statement.rank);
            *list = merged(std::mem::take(list));
            let left = list.len().saturating_sub(MOST);
            if left > 0 {
                list.truncate(MOST);
                list.push(Statement { text: format!("And {left} more."), place: Place::Notices, rank: 9 });
            }
        }
    }
}

/// Sentences that differ in the function's address alone are one, which names the others.
fn merged(list: Vec<Statement>) -> Vec<Statement> {
    let mut kept: Vec<(Statement, Vec<Bdf>)> = Vec::new();
    let mut places = HashMap::new();
    for statement in list {
        let (pattern, functions) = without_functions(&statement.text);
        let place = *places.entry((pattern, statement.rank)).or_insert(kept.len());
        match kept.get_mut(place) {
            Some((_, others)) if !functions.is_empty() => others.push(functions[0]),
            _ => kept.push((statement, Vec::new())),
        }
    }
    let with_others = |(mut statement, others): (Statement, Vec<Bdf>)| {
        if !others.is_empty() {
            statement.text += &format!(" The same of {}.", listed(&others));
        }
        statement
    };
    kept.into_iter().map(with_others).collect()
}

/// The first of these, and how many more there are.
fn listed(functions: &[Bdf]) -> String {
    let shown: Vec<String> = functions.iter().take(FEW).map(Bdf::to_string).collect();
    match functions.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// A text with the addresses of functions left out, and these.
fn without_functions(text: &str) -> (String, Vec<Bdf>) {
    let (mut pattern, mut functions) = (String::new(), Vec::new());
    let is_part = |c: char| c.is_ascii_hexdigit() || matches!(c, ':' | '.');
    for word in text.split_inclusive(|c: char| !is_part(c)) {
        let end = word.trim_end_matches(|c: char| !is_part(c) || matches!(c, ':' | '.'));
        match end.parse::<Bdf>() {
            Ok(bdf) if end.len() >= 12 => {
                functions.push(bdf);
                pattern.push_str(&word[end.len()..]);
            }
            _ => pattern.push_str(word),
        }
    }
    (pattern, functions)
}

/// The conclusions from records and their sections.
pub fn conclude(records: &[Record], sections: &[Section]) -> Conclusions {
    let mut out = Conclusions::default();
    latency::lost(&mut out, sections);
    emulated(&mut out, sections);
    for (number, section) in sections.iter().enumerate() {
        made_up(&mut out, number, section);
        match model::kind(section.test()) {
            Kind::Mmio | Kind::Irq | Kind::Path => latency::conclude(&mut out, number, section),
            Kind::Verify => verify::conclude(&mut out, number, section),
            Kind::Counters => counters::conclude(&mut out, number, section),
            Kind::Readout => readout::conclude(&mut out, number, section),
            Kind::Other if section.test() == doctor::TEST => doctor::conclude(&mut out, number, section),
            Kind::Other if section.test() == watch::TEST => watch::conclude(&mut out, number, section),
            Kind::Other if section.test() == soak::TEST => soak::conclude(&mut out, number, section),
            Kind::Other if section.test() == tune::TEST => tune::conclude(&mut out, number, section),
            Kind::Other if section.test() == pciescope_core::convert::TEST => {
                convert::conclude(&mut out, number, section);
            }
            Kind::Other => {}
        }
        not_numbers(&mut out, number, section);
    }
    links(&mut out, records, sections);
    notices(&mut out, records);
    out.finish();
    out
}

/// The conclusions as text of at most `width` columns where words allow. Ends with an empty line.
pub fn text(records: &[Record], width: usize) -> String {
    let conclusions = conclude(records, &model::sections(records));
    let mut text = String::new();
    for (title, nothing, statements) in conclusions.lists() {
        text += &format!("{title}\n");
        let words: Vec<&str> = statements.iter().map(|statement| statement.text.as_str()).collect();
        for sentence in if words.is_empty() { vec![nothing] } else { words } {
            text.extend(wrap(sentence, width, "  - ", "    ").into_iter().map(|line| line + "\n"));
        }
        text.push('\n');
    }
    text
}

/// The device of a section in few characters, with the run's label where it has one.
pub(super) fn who(section: &Section) -> String {
    let first = section.first();
    let name = first.device.as_ref().map(name_of).or_else(|| Some(quoted(&first.stream.as_ref()?.path)));
    labelled(&name.unwrap_or_else(|| quoted(section.test())), first)
}

pub(super) fn labelled(name: &str, record: &Record) -> String {
    let label = record.label.as_deref().map(|label| format!(" ({})", quoted(label))).unwrap_or_default();
    format!("{name}{label}")
}

pub(super) fn name_of(function: &Function) -> String {
    function.bdf.map_or_else(|| quoted(&function.name), |bdf| bdf.to_string())
}

/// A record's text, harmless and of bounded length.
pub(super) fn quoted(text: &str) -> String {
    let text = clean(text);
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// The record with the largest of a metric.
pub(super) fn largest<'r>(records: &[&'r Record], name: &str) -> Option<(f64, &'r Record)> {
    // Of equal ones the last in the file.
    let known = records.iter().filter_map(|record| Some((record.total(name)?.most()?, *record)));
    known.max_by(|a, b| a.0.total_cmp(&b.0))
}

/// A count of things with the verb that they take.
pub(super) fn are(count: usize, one: &str, verb: &str) -> String {
    let verb = match (verb, count) {
        ("is", 1) | (_, 0) => verb.to_owned(),
        ("is", _) => "are".to_owned(),
        (verb, 1) => format!("{verb}s"),
        _ => verb.to_owned(),
    };
    format!("{} {verb}", counted(count, one))
}

fn made_up(out: &mut Conclusions, number: usize, section: &Section) {
    if section.is_synthetic() {
        let subject = match section.test() == change::TEST {
            true => section.test().to_owned(),
            false => once([who(section), section.test().to_owned()]).join(": "),
        };
        let text = format!("{subject} is made up by the fake backend; nothing was measured.");
        out.doubt(0, Place::Section(number), quoted(&text));
    }
}

/// One sentence for all devices that are emulated: the reason where they share it.
fn emulated(out: &mut Conclusions, sections: &[Section]) {
    let real = sections.iter().enumerate().filter(|(_, section)| !section.is_synthetic());
    let records = real.flat_map(|(number, section)| section.records.iter().map(move |record| (number, record)));
    let emulated = records.filter(|(_, record)| model::is_emulated(record));
    let all: Vec<(usize, &Function)> =
        emulated.filter_map(|(number, record)| Some((number, record.device.as_ref()?))).collect();
    let Some((first, _)) = all.first().copied() else { return };
    let names = once(all.iter().map(|(_, function)| name_of(function)));
    let reasons: BTreeSet<&str> = all.iter().filter_map(|(_, function)| function.emulated.as_deref()).collect();
    let why = match reasons.iter().next() {
        Some(why) if reasons.len() == 1 => format!(" ({})", quoted(why)),
        _ => String::new(),
    };
    let shown = names.iter().take(FEW).cloned().collect::<Vec<_>>().join(", ");
    let who = match names.len() {
        1 => format!("{shown} is emulated{why}: its"),
        count if count <= FEW => format!("{shown} are emulated{why}: their"),
        count => format!("{count} devices are emulated{why}, as {shown}: their"),
    };
    let text = format!("{who} figures are exits to the emulator, not PCIe, and are not judged by speed.");
    out.doubt(1, Place::Section(first), text);
}

fn not_numbers(out: &mut Conclusions, number: usize, section: &Section) {
    let count: usize =
        section.records.iter().flat_map(|record| record.totals()).map(|(.., total)| total.not_finite).sum();
    if count > 0 {
        out.doubt(2, Place::Section(number), format!("{}: {} not a number.", who(section), are(count, "figure", "is")));
    }
}

/// Links of the functions measured; what a warning says of them in more detail is left to it.
fn links(out: &mut Conclusions, records: &[Record], sections: &[Section]) {
    let bdf_of = |record: &Record| record.device.as_ref().and_then(|function| function.bdf);
    let is_warned = |record: &&Record| record.warnings.iter().any(|warning| warning.code.starts_with("link-"));
    // Another device, or another host's of the same address, has its own link. A warning without a device is about its run.
    let warned: BTreeSet<_> = records.iter().filter(is_warned).map(|record| (&*record.run, bdf_of(record))).collect();
    let mut seen = BTreeSet::new();
    let (mut full, mut first) = (Vec::new(), 0);
    for (number, section) in sections.iter().enumerate().filter(|(_, section)| section.is_real()) {
        for (run, function) in section.records.iter().filter_map(|record| Some((&*record.run, record.device.as_ref()?)))
        {
            let (Some(bdf), Some(link), None) = (function.bdf, function.link, &function.emulated) else { continue };
            let is_warned = warned.contains(&(run, Some(bdf))) || warned.contains(&(run, None));
            if link.max_width == 0
                || link.is_nominal
                || is_warned
                || !seen.insert((bdf, link.width, link.speed_gts.to_bits()))
            {
                continue;
            }
            let can = format!("{} GT/s x{}", link.max_speed_gts, link.max_width);
            let text = match link.width {
                0 => format!("{bdf}: the state of the link is not known; the device can {can}."),
                _ if link.width >= link.max_width && link.speed_gts >= link.max_speed_gts => {
                    if full.is_empty() {
                        first = number;
                    }
                    full.push(format!("{bdf} {} GT/s x{}", link.speed_gts, link.width));
                    continue;
                }
                width => format!("{bdf}: the link runs at {} GT/s x{width}; the device can {can}.", link.speed_gts),
            };
            out.doubt(3, Place::Section(number), text);
            out.advise(
                4,
                Place::Section(number),
                format!(
                    "{bdf}: look at slot, riser and the port above: `pciescope doctor` says which end limits the link."
                ),
            );
        }
    }
    if !full.is_empty() {
        let more = if full.len() > 3 { format!(" and {} more", full.len() - 3) } else { String::new() };
        let listed = full.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
        out.good(first, format!("Links at the most that the device can: {listed}{more}."));
    }
}

fn notices(out: &mut Conclusions, records: &[Record]) {
    let mut by_code: BTreeMap<(bool, String), (String, usize, usize)> = BTreeMap::new();
    for notice in model::notices(records) {
        let rank = if notice.is_error { 1 } else { 5 };
        if let Some(hint) = &notice.hint {
            out.advise(rank, Place::Notices, quoted(hint));
        }
        if !notice.is_error && SAID.contains(&notice.code.as_str()) {
            continue;
        }
        let entry = by_code.entry((!notice.is_error, notice.code.clone())).or_insert((quoted(&notice.text), 0, 0));
        entry.1 += 1;
        entry.2 += notice.count;
    }
    for ((is_warning, code), (text, kinds, count)) in by_code {
        let word = if is_warning { "Warning" } else { "Not measured, or not to the end" };
        let more = match (kinds, count) {
            (1, 1) => String::new(),
            (1, count) => format!(" ({count} records)"),
            (kinds, count) => format!(" (and {} of its kind; {count} records)", kinds - 1),
        };
        out.doubt(if is_warning { 5 } else { 1 }, Place::Notices, format!("{word}, {}: {text}{more}", quoted(&code)));
    }
}
