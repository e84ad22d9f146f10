//! The result of a measurement for a terminal of 80 columns: the answer in at most five lines, then one table. All
//! other tables are in [`crate::table`].
//!
//! Text has colours as ANSI sequences. Crates such as [`anstream`](https://docs.rs/anstream) remove them if the output
//! is not a terminal.

use pciescope_core::Record;

pub use crate::facts::doctor::{short as doctor_short, text as doctor};
use crate::facts::{self, Facts, WIDTH};
pub use crate::facts::{Intervals, change_line, soak_sentence};
use crate::layout::wrap;
use crate::model;
use crate::style::{Tone, paint, without_colours};
use crate::text::{clean, counted};

/// Upper limit of warnings that stand in full.
const WARNINGS: usize = 3;
/// Codes of warnings that the machine or the function is no real one, in a word each.
const INVENTED: [(&str, &str); 2] = [("guest", "guest"), ("emulated-device", "emulated")];
/// Upper limit of errors that do.
const ERRORS: usize = 5;

/// The facts of all sections, each with its table, then warnings and errors. Ends with a newline, or is empty.
pub fn render(records: &[Record]) -> String {
    of_sections(records) + &notices(records)
}

/// [`render`] without the errors: of a run that has just ended the program says them itself.
pub fn answer(records: &[Record]) -> String {
    of_sections(records) + &warnings(records)
}

/// Mean and spread of the runs of one command. Ends with a newline.
pub fn repeats(records: &[Record]) -> String {
    text(&facts::repeats(records))
}

fn of_sections(records: &[Record]) -> String {
    let all = facts::of_sections(&model::sections(records));
    let texts: Vec<String> = all.iter().map(|(_, facts)| text(facts)).collect();
    texts.join("\n")
}

/// The facts of the first section in at most so many lines of 80 columns; of its table as many rows as fit.
pub fn brief(records: &[Record], most: usize) -> Vec<String> {
    let all = facts::of_sections(&model::sections(records));
    let Some((_, facts)) = all.first() else { return Vec::new() };
    let mut lines: Vec<String> = std::iter::once(facts.title.clone()).chain(facts.lines.iter().cloned()).collect();
    let table = facts.table.as_ref().map(|table| table.lines()).unwrap_or_default();
    let room = most.saturating_sub(lines.len());
    let more = if table.len() > room { (table.len() + 1).saturating_sub(room) } else { 0 };
    let shown = table.len() - more.min(table.len());
    // A heading alone says nothing.
    if shown > 1 {
        lines.extend(table.into_iter().take(shown));
        lines.extend((more > 0).then(|| format!("and {}", counted(more, "more row"))));
    }
    lines
}

fn text(facts: &Facts) -> String {
    let titles = wrap(&facts.title, WIDTH, "", "  ").into_iter().map(|line| paint(Tone::Strong, &line));
    let mut text: String = titles.chain(facts.lines.iter().flat_map(|line| broken(line))).map(|l| l + "\n").collect();
    for table in facts.more.iter().chain(&facts.table) {
        text.push('\n');
        let mut lines = table.lines().into_iter();
        text.extend(lines.next().map(|head| paint(Tone::Dim, &head) + "\n"));
        text.extend(lines.map(|line| line + "\n"));
    }
    text.extend(facts.below.iter().map(|line| paint(Tone::Dim, line) + "\n"));
    text
}

/// A line with its colours, indented, and broken between its parts where it is too long.
fn broken(line: &str) -> Vec<String> {
    let wide = |text: &str| without_colours(text).chars().count();
    let mut lines: Vec<String> = Vec::new();
    for part in line.split("; ") {
        match lines.last_mut().filter(|last| wide(last) + 2 + wide(part) <= WIDTH) {
            Some(last) => *last += &format!("; {part}"),
            None => lines.push(format!("  {part}")),
        }
    }
    lines
}

/// The warnings and errors of records, each once, in lines of 80 columns; of many warnings the first. Empty, or ends with a
/// newline.
pub fn notices(records: &[Record]) -> String {
    listed(model::notices(records))
}

/// The warnings alone, as [`notices`] has them.
pub fn warnings(records: &[Record]) -> String {
    listed(model::notices(records).into_iter().filter(|notice| !notice.is_error).collect())
}

fn listed(all: Vec<model::Notice>) -> String {
    let (errors, warnings): (Vec<&model::Notice>, Vec<_>) = all.iter().partition(|notice| notice.is_error);
    // That the machine is no real one is said once, whatever was measured.
    let (invented, warnings): (Vec<&model::Notice>, Vec<_>) =
        warnings.into_iter().partition(|notice| INVENTED.iter().any(|(code, _)| *code == notice.code));
    let mut text = String::new();
    let words: Vec<&str> = INVENTED
        .iter()
        .filter(|(code, _)| invented.iter().any(|notice| notice.code == *code))
        .map(|(_, word)| *word)
        .collect();
    if !words.is_empty() {
        text += &format!("{}: {}: `pciescope doctor` says more\n", paint(Tone::Doubt, "warning"), words.join(", "));
    }
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
    warnings.iter().take(WARNINGS).for_each(|notice| put(Tone::Doubt, "warning", notice));
    errors.iter().take(ERRORS).for_each(|notice| put(Tone::Bad, "error", notice));
    let more = warnings.len().saturating_sub(WARNINGS) + errors.len().saturating_sub(ERRORS);
    if more > 0 {
        text += &format!("and {more} more: --all shows them\n");
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}
