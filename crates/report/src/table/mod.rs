//! Records as text for a terminal: pure functions of the records, at most 100 columns wide where figures allow.
//!
//! Everything that the parse scripts of the original pcilat driver print is here (per CPU, per BAR, per CPU and
//! BAR; CPUs compared with bars, per interrupt, per CPU and interrupt), and what they lack: the far tail, groups of CPUs, calibration, reference lines, losses and warnings.

mod compare;
mod convert;
mod counters;
mod doctor;
mod header;
mod latency;
mod notices;
mod plain;
mod readout;
mod summary;
mod verify;

use crate::facts::doctor::TEST;
use crate::facts::watch;
use crate::layout::Columns;
pub use crate::layout::wrap;
use crate::links::{changes, link_columns, links};
pub use crate::model::SYNTHETIC;
use crate::model::{self, EMULATED, Kind, Section};
use pciescope_core::Record;

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
    let sections = model::sections(records);
    let mut page = Page::new(*options);
    header::machines(&mut page, records);
    for blocks in section_blocks(&sections, options) {
        page.blocks.extend(blocks);
    }
    compare::hardware_and_software(&mut page, &sections);
    notices::write(&mut page, records);
    text_of(&page.blocks)
}

/// The tables of one interval's records of counters, without heading, for output as it comes. Ends with a newline.
pub fn interval(records: &[Record]) -> String {
    text_of(&written(|page| counters::tables(page, &records.iter().collect::<Vec<_>>())))
}

/// What `doctor` found, as text of at most `width` columns where words allow. Ends with a newline.
pub fn doctor(records: &[Record], width: usize) -> String {
    doctor::text(records, width)
}

/// What sis8300drv_threads prints of a readout: its parameters, its columns, and with acquisitions the CPU utilization.
pub fn threads(records: &[Record]) -> String {
    let sections = model::sections(records);
    let readouts = sections.iter().filter(|section| model::kind(section.test()) == Kind::Readout);
    text_of(&written(|page| readouts.for_each(|section| readout::as_the_tool(page, section))))
}

/// The warnings and errors of records, each once. Empty, or ends with a newline.
pub fn notices(records: &[Record]) -> String {
    text_of(&written(|page| notices::write(page, records)))
}

/// The blocks of each section, for another output that wants the same content.
pub(crate) fn section_blocks(sections: &[Section], options: &Options) -> Vec<Vec<Block>> {
    let is_irq = |s: &Section| model::kind(s.test()) == Kind::Irq;
    let first_irq = sections.iter().position(is_irq);
    let one = |(place, section)| {
        let mut page = Page::new(*options);
        one_section(&mut page, section, first_irq == Some(place));
        page.blocks
    };
    sections.iter().enumerate().map(one).collect()
}

/// The comparisons between sections.
pub(crate) fn comparison_blocks(sections: &[Section]) -> Vec<Block> {
    written(|page| compare::hardware_and_software(page, sections))
}

fn written(write: impl FnOnce(&mut Page)) -> Vec<Block> {
    let mut page = Page::new(Options::default());
    write(&mut page);
    page.blocks
}

fn one_section(out: &mut Page, section: &Section, with_legend: bool) {
    let kind = model::kind(section.test());
    match kind {
        // Counters of many devices have no single one to name.
        Kind::Counters => header::title(out, section, EMULATED),
        Kind::Readout => readout::heading(out, section),
        Kind::Other if section.test() == TEST => doctor::heading(out, section),
        Kind::Other if section.test() == watch::TEST => header::title(out, section, EMULATED),
        _ => header::section(out, section),
    }
    match kind {
        Kind::Counters => counters::tables(out, &section.records),
        Kind::Mmio | Kind::Path | Kind::Irq => latency::write(out, section, with_legend),
        Kind::Verify => verify::write(out, section),
        Kind::Readout => readout::write(out, section),
        Kind::Other if section.test() == TEST => doctor::write(out, section),
        Kind::Other if section.test() == watch::TEST => {
            out.table(link_columns(&links(section)));
            out.heading("Changes");
            out.table(watch::columns(&changes(section).collect::<Vec<_>>()));
        }
        Kind::Other if section.test() == pciescope_core::convert::TEST => convert::write(out, section),
        Kind::Other => plain::write(out, section),
    }
    if kind != Kind::Readout {
        header::losses(out, section);
    }
}

/// A piece of the output.
pub(crate) enum Block {
    /// The heading of a section.
    Section(String),
    /// The heading of a table.
    Heading(String),
    /// A line of words; an empty one sets apart.
    Line(String),
    /// A line that keeps its blanks.
    Fixed(String),
    /// Figures.
    Table(Columns),
}

/// The output so far.
struct Page {
    blocks: Vec<Block>,
    options: Options,
}

impl Page {
    fn new(options: Options) -> Self {
        Page { blocks: Vec::new(), options }
    }
    /// From how many rows on a table has its ends only, and how many rows these have.
    fn most(&self) -> (usize, usize) {
        (if self.options.all { usize::MAX } else { MOST_ROWS }, SHOWN_ENDS)
    }
    fn line(&mut self, line: &str) {
        self.blocks.push(Block::Line(line.to_owned()));
    }
    fn fixed(&mut self, line: &str) {
        self.blocks.push(Block::Fixed(line.to_owned()));
    }
    fn heading(&mut self, title: &str) {
        self.blocks.push(Block::Heading(title.to_owned()));
    }
    fn table(&mut self, columns: Columns) {
        self.blocks.push(Block::Table(columns));
    }
}

/// Headings are underlined as the original scripts do; spaces at the end of a line are dropped.
fn text_of(blocks: &[Block]) -> String {
    let mut text = String::new();
    let mut line = |line: &str| {
        // No empty line at the very top.
        if !(text.is_empty() && line.is_empty()) {
            text.push_str(line.trim_end());
            text.push('\n');
        }
    };
    for block in blocks {
        match block {
            Block::Section(title) => ["", &format!("== {title} ==")].map(&mut line).into_iter().collect(),
            Block::Heading(title) => {
                ["", title, &"-".repeat(title.chars().count())].map(&mut line).into_iter().collect()
            }
            Block::Line(words) | Block::Fixed(words) => line(words),
            Block::Table(columns) => columns.lines().iter().for_each(|row| line(row)),
        }
    }
    text
}
