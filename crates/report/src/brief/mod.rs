//! The result of a measurement for a terminal of 80 columns: the answer in at most five lines, then one table. All
//! other tables are in [`crate::table`].
//!
//! Text has colours as ANSI sequences. Crates such as [`anstream`](https://docs.rs/anstream) remove them if the output
//! is not a terminal.

mod convert;
mod counters;
mod doctor;
mod latency;
mod readout;
mod verify;

pub use self::counters::{Intervals, repeats};
pub use self::doctor::text as doctor;

use pciescope_core::Record;
use std::collections::HashMap;

use crate::model::{self, Kind, Section};
use crate::style::{Tone, paint};
use crate::table;
use crate::table::layout::{Columns, wrap};
use crate::text::{clean, test_title, thousands};

/// The columns of a terminal that every line fits into.
pub(crate) const WIDTH: usize = 80;
/// So many warnings stand in full.
const WARNINGS: usize = 3;
/// So many errors do.
const ERRORS: usize = 5;

/// The answers of all measurements, each with its table, then warnings and errors. Ends with a newline, or is empty.
pub fn render(records: &[Record]) -> String {
    let texts: Vec<String> = answers(records).iter().map(Answer::text).collect();
    texts.join("\n") + &notices(records)
}

/// The answers of all measurements.
pub(crate) fn answers(records: &[Record]) -> Vec<Answer> {
    let sections = model::sections(records);
    // Only sections of one run belong together, and there may be very many runs.
    let mut of_runs: HashMap<&str, Vec<&Section>> = HashMap::new();
    for section in &sections {
        of_runs.entry(&section.first().run).or_default().push(section);
    }
    let of_run = |section: &Section| of_runs[&*section.first().run].as_slice();
    sections
        .iter()
        .filter(|section| !is_control(section, of_run(section)))
        .map(|section| answer(section, of_run(section)))
        .collect()
}

/// A text without the colours of [`crate::style`].
pub(crate) fn without_colours(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

/// The answer of one measurement.
#[derive(Default)]
pub(crate) struct Answer {
    /// At most five lines, the first of them the heading (two where the label of the run is long).
    lines: Vec<String>,
    /// How many of them are the heading.
    heading_lines: usize,
    table: Option<Columns>,
    /// A line below the table.
    below: Option<String>,
}

impl Answer {
    fn new(heading: &str) -> Self {
        let lines = wrap(heading, WIDTH, "", "  ");
        let heading_lines = lines.len();
        Answer {
            lines: lines.iter().map(|line| paint(Tone::Strong, line)).collect(),
            heading_lines,
            ..Answer::default()
        }
    }

    /// Adds a line.
    fn line(&mut self, text: impl AsRef<str>) {
        self.lines.push(format!("  {}", text.as_ref()));
    }

    /// The heading, and the other lines, without colours and indentation.
    pub(crate) fn words(&self) -> (String, Vec<String>) {
        let all = self.lines.iter().map(|line| without_colours(line).trim().to_owned());
        let mut heading: Vec<String> = all.collect();
        let rest = heading.split_off(self.heading_lines.min(heading.len()));
        (heading.join(" "), rest)
    }

    /// The table.
    pub(crate) fn table(&self) -> Option<&Columns> {
        self.table.as_ref()
    }

    /// The line below the table.
    pub(crate) fn below(&self) -> Option<&str> {
        self.below.as_deref()
    }

    fn text(&self) -> String {
        let mut text: String = self.lines.iter().map(|line| format!("{line}\n")).collect();
        if let Some(table) = &self.table {
            text.push('\n');
            let mut lines = table.lines().into_iter();
            text.extend(lines.next().map(|head| paint(Tone::Dim, &head) + "\n"));
            text.extend(lines.map(|line| line + "\n"));
        }
        text.extend(self.below.iter().map(|line| paint(Tone::Dim, line) + "\n"));
        text
    }
}

/// Whether a section is the control arm of another one, whose answer names it: where the difference means something.
fn is_control(section: &Section, sections: &[&Section]) -> bool {
    let is_arm = matches!(section.test(), "irq-retrigger" | "irq-inject" | "irq-loopback");
    let is_hardware = |other: &&&Section| other.test() == "irq-hardware" && other.first().run == section.first().run;
    is_arm && sections.iter().find(is_hardware).is_some_and(|hardware| hardware.has_control())
}

fn answer(section: &Section, sections: &[&Section]) -> Answer {
    match model::kind(section.test()) {
        Kind::Mmio => latency::mmio(section),
        Kind::Path => latency::path(section),
        Kind::Irq => latency::irq(section, sections),
        Kind::Counters => counters::answer(section),
        Kind::Verify => verify::answer(section),
        Kind::Readout => readout::answer(section),
        Kind::Other if section.test() == pciescope_core::convert::TEST => convert::answer(section),
        Kind::Other if section.test() == doctor::TEST => doctor::answer(section),
        Kind::Other => other(section),
    }
}

/// Records of a test that has no answer of its own: figures by name.
fn other(section: &Section) -> Answer {
    let mut answer = Answer::new(&headed(section, &test_title(section.test())));
    let samples: u64 = section.records.iter().flat_map(|record| record.histograms.values()).map(|h| h.count()).sum();
    if samples > 0 {
        answer.line(format!("{} samples", thousands(samples)));
    }
    label_unreal(&mut answer, section);
    answer.table = table::plain_figures(section);
    answer
}

/// A heading with the run's label behind it.
pub(crate) fn headed(section: &Section, heading: &str) -> String {
    match &section.first().label {
        Some(label) => format!("{heading} [{}]", clean(label)),
        None => heading.to_owned(),
    }
}

/// Adds what tells figures of the lab and of the fake backend from those of hardware.
pub(crate) fn label_unreal(answer: &mut Answer, section: &Section) {
    let emulated = match model::kind(section.test()) {
        Kind::Readout => table::EMULATED_READOUT,
        _ => table::EMULATED,
    };
    if section.is_synthetic() {
        answer.line(paint(Tone::Doubt, table::SYNTHETIC));
    } else if section.is_emulated() {
        answer.line(paint(Tone::Doubt, emulated));
    }
}

/// The warnings and errors of records, each once, in lines of 80 columns; of many warnings the first. Empty, or ends with a
/// newline.
pub fn notices(records: &[Record]) -> String {
    let all = model::notices(records);
    let mut text = String::new();
    let mut put = |tone: Tone, word: &str, notice: &model::Notice| {
        let times = if notice.count > 1 { format!(" ({} records)", notice.count) } else { String::new() };
        let words = format!("{} [{}]{times}", clean(&notice.text), clean(&notice.code));
        let mut lines = wrap(&words, WIDTH, &format!("{word}: "), "  ").into_iter();
        let first = lines.next().unwrap_or_default();
        text += &format!("{}{}\n", paint(tone, word), &first[word.len()..]);
        text.extend(lines.map(|line| line + "\n"));
        if let Some(hint) = &notice.hint {
            text.extend(wrap(&clean(hint), WIDTH, "  hint: ", "    ").into_iter().map(|line| line + "\n"));
        }
    };
    let (errors, warnings): (Vec<&model::Notice>, Vec<_>) = all.iter().partition(|notice| notice.is_error);
    warnings.iter().take(WARNINGS).for_each(|notice| put(Tone::Doubt, "warning", notice));
    errors.iter().take(ERRORS).for_each(|notice| put(Tone::Bad, "error", notice));
    let more = warnings.len().saturating_sub(WARNINGS) + errors.len().saturating_sub(ERRORS);
    if more > 0 {
        text += &format!("and {more} more: --all shows them\n");
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}
