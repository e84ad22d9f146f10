//! The table of figures as comma-separated values: one line per histogram, metric and hot spot.
//!
//! The header is that of [`columns`](crate::columns), without lists and the file. An empty field means "does not apply", "unknown"
//! or "too few samples for this percentile".

use std::borrow::Cow;
use std::io::{self, Write};

use pciescope_core::{Record, Sink};

use crate::columns::{Column, Get, Row, Table};
use crate::text::clean;

/// The columns, in order.
pub fn columns() -> impl Iterator<Item = &'static Column> {
    Table::Figures.columns().filter(|column| !matches!(column.get, Get::List(_)) && column.name != "file")
}

/// A sink that writes the header before the first record and flushes after each.
pub struct Writer<W: Write> {
    out: W,
    text: Vec<u8>,
    /// Records so far.
    number: u64,
    separator: u8,
    has_header: bool,
    is_file: bool,
    is_terminal: bool,
}

/// A file is written in pieces of so many bytes.
const PIECE: usize = 256 << 10;

impl<W: Write> Writer<W> {
    /// A sink onto `out`.
    pub fn new(out: W) -> Self {
        Writer::with_separator(out, b',')
    }
    /// A sink onto `out` with another separator than a comma.
    pub fn with_separator(out: W, separator: u8) -> Self {
        Writer { out, text: Vec::new(), number: 0, separator, has_header: false, is_file: false, is_terminal: false }
    }
    /// The same for a file that nobody reads before it is complete: it is written in large pieces.
    pub fn of_file(out: W) -> Self {
        Writer { is_file: true, ..Writer::new(out) }
    }
    /// The same for a terminal: names cannot move its cursor or recolour it.
    pub fn for_terminal(self, is_terminal: bool) -> Self {
        Writer { is_terminal, ..self }
    }
    fn head(&mut self) {
        if !self.has_header {
            self.has_header = true;
            put(&mut self.text, columns().map(|column| column.name), self.separator);
            end(&mut self.text);
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        if self.is_terminal {
            let text = String::from_utf8_lossy(&self.text);
            let is_form = |c: &str| c == "\n" || c.as_bytes() == [self.separator];
            let shown = |c: char| {
                let c = c.to_string();
                if is_form(&c) { c } else { clean(&c) }
            };
            self.out.write_all(text.chars().map(shown).collect::<String>().as_bytes())?;
        } else {
            self.out.write_all(&self.text)?;
        }
        self.text.clear();
        self.out.flush()
    }
}

impl<W: Write> Sink for Writer<W> {
    fn put(&mut self, record: &Record) -> io::Result<()> {
        self.head();
        lines(&Table::Figures.rows(self.number, record, ""), &mut self.text, self.separator);
        self.number += 1;
        if self.is_file && self.text.len() < PIECE { Ok(()) } else { self.flush() }
    }
    fn finish(&mut self) -> io::Result<()> {
        self.head();
        self.flush()
    }
}

/// Appends fields, each with the separator behind it.
fn put<'f>(text: &mut Vec<u8>, fields: impl IntoIterator<Item = &'f str>, separator: u8) {
    for field in fields {
        if field.bytes().any(|byte| byte == separator || matches!(byte, b'"' | b'\n' | b'\r')) {
            text.push(b'"');
            text.extend(field.replace('"', "\"\"").into_bytes());
            text.push(b'"');
        } else {
            text.extend(field.as_bytes());
        }
        text.push(separator);
    }
}

/// Ends a line: no separator stands behind its last field.
fn end(text: &mut Vec<u8>) {
    text.pop();
    text.push(b'\n');
}

/// All records as one text.
pub fn render(records: &[Record]) -> String {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    for record in records {
        writer.put(record).expect("writing to memory cannot fail");
    }
    writer.finish().expect("writing to memory cannot fail");
    drop(writer);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Appends the lines of a record. What they share is made once.
fn lines(rows: &[Row<'_>], text: &mut Vec<u8>, separator: u8) {
    let Some(first) = rows.first() else { return };
    // What stands before each of a line's own fields, and behind the last.
    let (mut shared, mut own): (_, Vec<&Column>) = (vec![Vec::new()], Vec::new());
    for column in columns() {
        match shared.last_mut() {
            Some(part) if !column.is_own => put(part, [&*harmless(field(column, first))], separator),
            _ => {
                own.push(column);
                shared.push(Vec::new());
            }
        }
    }
    for row in rows {
        for (place, part) in shared.iter().enumerate() {
            text.extend(part);
            own.get(place).into_iter().for_each(|column| put(text, [&*harmless(field(column, row))], separator));
        }
        end(text);
    }
}

/// A value as text.
fn field<'r>(column: &Column, row: &'r Row<'r>) -> Cow<'r, str> {
    let text = match &column.get {
        Get::Text(of) | Get::Time(of) => return Cow::Borrowed(of(row).unwrap_or_default()),
        Get::Words(of) => of(row),
        Get::Bool(of) => of(row).map(|is| is.to_string()),
        Get::Whole(_, of) => of(row).map(|number| number.to_string()),
        Get::Hex(16, of) => of(row).map(|number| format!("{number:04x}")),
        Get::Hex(_, of) => of(row).map(|number| format!("{number:#x}")),
        Get::Number(of) => of(row).filter(|number| number.is_finite()).map(crate::text::figure),
        Get::Decimal(of) => of(row).map(|number| number.to_string()),
        Get::List(_) => None,
    };
    Cow::Owned(text.unwrap_or_default())
}

/// A field that no spreadsheet runs: before one that starts like a formula an apostrophe keeps it text.
fn harmless(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.starts_with(['=', '@', '\t', '\r']) || (text.starts_with(['+', '-']) && text.parse::<f64>().is_err()) {
        return Cow::Owned(format!("'{text}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_no_control_characters() {
        let label = "a\u{1b}[31mb\u{9b}2Jc,\"d\u{202e}".to_owned();
        let record = Record {
            label: Some(label.clone()),
            metrics: [("m".to_owned(), pciescope_core::Metric::count(1))].into(),
            ..Record::default()
        };
        let shown = |is_terminal: bool, separator: u8| {
            let mut bytes = Vec::new();
            let mut writer = Writer::with_separator(&mut bytes, separator).for_terminal(is_terminal);
            writer.put(&record).unwrap();
            drop(writer);
            String::from_utf8(bytes).unwrap()
        };
        assert!(shown(false, b',').contains(&label.replace('"', "\"\"")));
        for separator in [b',', b'\t'] {
            let text = shown(true, separator);
            assert!(text.contains("a\u{fffd}[31mb\u{fffd}2Jc,\"\"d\u{fffd}"), "{text:?}");
            assert!(text.chars().all(|c| !c.is_control() || c == '\n' || c == char::from(separator)), "{text:?}");
            assert_eq!(text.lines().count(), 2);
        }
    }
}
