//! Records as text for a terminal: pure functions of the records, at most 100 columns wide where figures allow.
//!
//! Everything that the parse scripts of the original pcilat driver print is here (per CPU, per BAR, per CPU and
//! BAR; comparison with bars, fastest and slowest, per CPU, per interrupt, per CPU and interrupt), and what they
//! lack: the far tail, groups of CPUs, calibration, reference lines, losses and warnings.

mod compare;
mod header;
mod irq;
mod layout;
mod mmio;
mod notices;
mod path;
mod plain;
mod summary;

use pciescope_core::Record;

use crate::model::{self, Kind, Section};

/// How many rows a table may have before only the fastest and slowest are shown.
const MOST_ROWS: usize = 32;
/// How wide a line of words may be; a table may be wider where its figures are.
const WIDTH: usize = 100;
/// How many of the fastest, and of the slowest, are shown of a table that is too long.
const SHOWN_ENDS: usize = 10;

/// What of the tables to show.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Every row of every table; otherwise a table of more than 32 rows shows its ten fastest and ten slowest.
    pub all: bool,
}

/// The tables of all records: one section per run, device and test, then comparisons between sections, then
/// warnings and errors. Ends with a newline.
pub fn render(records: &[Record], options: &Options) -> String {
    let mut out = Page::new(*options);
    header::machines(&mut out, records);
    let sections = model::sections(records);
    for (place, section) in sections.iter().enumerate() {
        let is_irq = |s: &Section| model::kind(s.test()) == Kind::Irq;
        let is_first_irq = is_irq(section) && !sections[..place].iter().any(is_irq);
        one_section(&mut out, section, is_first_irq);
    }
    compare::hardware_and_software(&mut out, &sections);
    notices::write(&mut out, records);
    out.text
}

fn one_section(out: &mut Page, section: &Section, with_legend: bool) {
    header::section(out, section);
    match model::kind(section.test()) {
        Kind::Mmio => mmio::write(out, section),
        Kind::Irq => irq::write(out, section, with_legend),
        Kind::Path => path::write(out, section),
        Kind::Other => plain::write(out, section),
    }
    header::losses(out, section);
}

/// The text so far.
struct Page {
    text: String,
    options: Options,
}

impl Page {
    fn new(options: Options) -> Self {
        Page { text: String::new(), options }
    }
    /// One line; spaces at its end are dropped.
    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }
    /// A heading underlined as the original scripts do, with an empty line above unless it is the first.
    fn heading(&mut self, title: &str) {
        if !self.text.is_empty() {
            self.line("");
        }
        self.line(title);
        self.line(&"-".repeat(title.chars().count()));
    }
}
