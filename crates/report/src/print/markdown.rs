//! Markdown, for issues, pull requests and wikis: the answer of each measurement, its table, and the warnings. It has
//! the same text as on a terminal, without colours.
//!
//! Tables are those of [GitHub Flavored Markdown](https://github.github.com/gfm/#tables-extension-), section 4.10.

use pciescope_core::Record;
use std::fmt::Write as _;

use super::terminal;
use crate::layout::{Align, Columns};
use crate::style::without_colours;
use crate::{facts, model};

/// The records as Markdown: a heading, the answer's lines as a list and a table for each measurement, then warnings and
/// errors as they stand below a terminal's tables. Ends with a newline, or is empty.
pub fn render(records: &[Record]) -> String {
    let mut text = String::new();
    for (_, facts) in facts::of_sections(&model::sections(records)) {
        if !text.is_empty() {
            text.push('\n');
        }
        let _ = writeln!(text, "### {}\n", escaped(&facts.title));
        for line in &facts.lines {
            let _ = writeln!(text, "- {}", escaped(&without_colours(line)));
        }
        for table in facts.more.iter().chain(&facts.table) {
            text.push('\n');
            push_table(&mut text, table);
        }
        if let Some(below) = &facts.below {
            let _ = writeln!(text, "\n{}", escaped(below));
        }
    }
    let notices = terminal::notices(records);
    if !notices.is_empty() {
        let _ = writeln!(text, "\n```text\n{}\n```", without_colours(&notices).trim());
    }
    text
}

fn push_table(text: &mut String, table: &Columns) {
    let line = |cells: &mut dyn Iterator<Item = String>| format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "));
    *text += &line(&mut table.heads().map(|(head, _)| escaped(head)));
    *text += &line(&mut table.heads().map(|(_, align)| match align {
        Align::Right => "---:".to_owned(),
        Align::Left => ":---".to_owned(),
    }));
    for row in table.rows() {
        *text += &line(&mut row.iter().map(|cell| escaped(cell.trim())));
    }
}

/// A text in which no character begins Markdown or HTML: names come from devices and users.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '|' | '~' => out.extend(['\\', c]),
            '&' => out.push_str("&amp;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_its_alignment_and_no_cell_ends_it() {
        let mut table = Columns::new(&[("Name", 4, Align::Left), ("MB/s", 4, Align::Right)]);
        table.row(vec!["a|b <c>".to_owned(), ">=1.5".to_owned()]);
        let mut text = String::new();
        push_table(&mut text, &table);
        assert_eq!(text, "| Name | MB/s |\n| :--- | ---: |\n| a\\|b \\<c> | >=1.5 |\n");
    }

    #[test]
    fn nothing_that_a_device_calls_itself_is_markup() {
        assert_eq!(escaped("*x* [y](z) & `q`\u{1b}[1m"), "\\*x\\* \\[y\\](z) &amp; \\`q\\` \\[1m");
    }
}
