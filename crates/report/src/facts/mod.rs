//! What records say, for every printer: the facts of each kind of section, one file per kind. Terminal, Markdown and page
//! print them and compose nothing.

mod conclusions;
mod convert;
mod counters;
pub(crate) mod doctor;
pub(crate) mod latency;
mod readout;
mod repeats;
mod rules;
mod soak;
mod tune;
pub(crate) mod verify;
pub(crate) mod watch;
mod why;

use std::collections::{BTreeMap, HashMap};

pub use self::conclusions::{Conclusions, Place, Statement, conclude, text};
pub use self::counters::Intervals;
pub(crate) use self::repeats::repeats;
pub use self::rules::rules;
pub use self::soak::sentence as soak_sentence;
pub use self::watch::line as change_line;
use crate::layout::{Columns, Left, Right, Rows};
use crate::model::{self, EMULATED, EMULATED_READOUT, Kind, SYNTHETIC, Section};
use crate::style::{Tone, paint};
use crate::text::{clean, figure, test_title, thousands};

/// The columns of a terminal that every line fits into.
pub(crate) const WIDTH: usize = 80;

/// Figures that say whether the measured ones are plausible: metric, words, remark.
pub(crate) const REFERENCES: [(&str, &str, &str); 4] = [
    ("floor_wire_ns", "wire's floor", "serialisation and flight alone; silicon adds to it"),
    ("best_published_ns", "best published", "for as many hops; docs/method.md"),
    ("mmio_read_median_ns", "register read", "median from the same CPU in the same run"),
    ("parent_config_rtt_ns", "parent bridge", "configuration read of the bridge above"),
];

/// A figure of the page's first screen.
pub(crate) struct Fact {
    pub name: &'static str,
    pub value: String,
    pub note: String,
    pub tone: Tone,
}

impl Fact {
    fn plain(name: &'static str, value: impl Into<String>, note: impl Into<String>) -> Fact {
        Fact { name, value: value.into(), note: note.into(), tone: Tone::Plain }
    }
    /// A count of which 0 is good and everything else bad, and whether all of it is known; `None` where nothing was counted.
    pub(crate) fn losses(name: &'static str, count: Option<(f64, bool)>, note: &str) -> Fact {
        let whole = |count: f64| thousands(count.max(0.0) as u64);
        let (value, note, tone) = match count {
            None => ("-".to_owned(), "not counted", Tone::Plain),
            Some((count, true)) => (whole(count), note, if count > 0.0 { Tone::Bad } else { Tone::Good }),
            Some((count, false)) if count > 0.0 => (format!(">={}", whole(count)), note, Tone::Bad),
            Some(_) => ("-".to_owned(), "not known: a count is no number", Tone::Doubt),
        };
        Fact { name, value, note: note.to_owned(), tone }
    }
}

/// What one section says.
#[derive(Default)]
pub(crate) struct Facts {
    /// What was measured, on what, and how much of it.
    pub title: String,
    /// At most four lines, with their colours.
    pub lines: Vec<String>,
    /// The figures of the first screen; none where the page has none of this kind.
    pub tiles: Vec<Fact>,
    pub table: Option<Columns>,
    /// A second table, which answers a question of its own.
    pub more: Option<Columns>,
    /// A line below the table.
    pub below: Option<String>,
}

impl Facts {
    /// With the run's label behind the title.
    fn of(section: &Section, title: &str) -> Facts {
        let label = section.first().label.as_ref().map(|label| format!(" [{}]", clean(label)));
        Facts { title: title.to_owned() + &label.unwrap_or_default(), ..Facts::default() }
    }
    /// Adds what tells figures of the lab and of the fake backend from those of hardware.
    fn mark(&mut self, is_synthetic: bool, is_emulated: bool, emulated: &str) {
        if is_synthetic {
            self.lines.push(paint(Tone::Doubt, SYNTHETIC));
        } else if is_emulated {
            self.lines.push(paint(Tone::Doubt, emulated));
        }
    }
    fn mark_section(&mut self, section: &Section) {
        let is_readout = model::kind(section.test()) == Kind::Readout;
        let emulated = if is_readout { EMULATED_READOUT } else { EMULATED };
        self.mark(section.is_synthetic(), section.is_emulated(), emulated);
    }
}

/// The facts of each section, with its place among `sections`. The control arm of an interrupt is in those of its section.
pub(crate) fn of_sections(sections: &[Section]) -> Vec<(usize, Facts)> {
    // Only sections of one run belong together, and there may be very many runs.
    let mut of_runs: HashMap<&str, Vec<&Section>> = HashMap::new();
    for section in sections {
        of_runs.entry(&section.first().run).or_default().push(section);
    }
    let of_run = |section: &Section| of_runs[&*section.first().run].as_slice();
    let numbered = sections.iter().enumerate();
    numbered
        .filter(|(_, section)| !latency::is_control(section, of_run(section)))
        .map(|(number, section)| (number, of(section, of_run(section))))
        .collect()
}

/// The facts of a section; `others` are the sections of its run.
pub(crate) fn of(section: &Section, others: &[&Section]) -> Facts {
    match model::kind(section.test()) {
        Kind::Mmio | Kind::Path | Kind::Irq => latency::facts(section, others),
        Kind::Counters => counters::facts(section),
        Kind::Verify => verify::facts(section),
        Kind::Readout => readout::facts(section),
        Kind::Other if section.test() == pciescope_core::convert::TEST => convert::facts(section),
        Kind::Other if section.test() == doctor::TEST => doctor::facts(section),
        Kind::Other if section.test() == watch::TEST => watch::facts(section),
        Kind::Other if section.test() == soak::TEST => soak::facts(section),
        Kind::Other if section.test() == tune::TEST => tune::facts(section),
        Kind::Other => other(section),
    }
}

/// Records of a test that has no facts of its own: figures by name.
fn other(section: &Section) -> Facts {
    let mut facts = Facts::of(section, &test_title(section.test()));
    let samples: u64 = section.records.iter().flat_map(|record| record.histograms.values()).map(|h| h.count()).sum();
    if samples > 0 {
        facts.lines.push(format!("{} samples", thousands(samples)));
    }
    facts.mark_section(section);
    facts.table = figures_by_name(section);
    facts
}

/// The end of an interval of an imported `perf stat -I`.
const INTERVAL_END: &str = "interval_end_ns";

/// A value and its unit.
type Amount<'a> = (f64, &'a str);

/// The figures by name; `None` where there is none.
pub(crate) fn figures_by_name(section: &Section) -> Option<Columns> {
    let mut figures: BTreeMap<(String, Option<u32>, Option<String>), Vec<Amount>> = BTreeMap::new();
    for record in &section.records {
        // The ends of intervals are no figures to be averaged.
        for (name, metric) in record.metrics.iter().filter(|(name, _)| *name != INTERVAL_END) {
            let place = record.target.as_ref().and_then(|target| target.name.as_deref()).map(clean);
            let key = (clean(name), record.cpu.as_ref().map(|c| c.cpu), place);
            figures.entry(key).or_default().push((metric.value, &metric.unit));
        }
    }
    if figures.is_empty() {
        return None;
    }
    // Several records of one figure are its intervals: the sum of counts, the mean of anything else.
    let is_count = |values: &[Amount]| matches!(values[0].1, "1" | "bytes");
    let value = |values: &[Amount]| {
        let sum: f64 = values.iter().map(|v| v.0).sum();
        if is_count(values) { sum } else { sum / values.len() as f64 }
    };
    let columns = Rows::of(&figures).columns(&[
        ("CPU", 4, Right, &|((_, cpu, _), _)| cpu.map_or("-".to_owned(), |cpu| cpu.to_string())),
        ("Place", 5, Left, &|((.., place), _)| place.clone().unwrap_or_else(|| "-".to_owned())),
        ("Value", 14, Right, &|(_, values)| figure(value(values))),
        ("Unit", 8, Left, &|(_, values)| {
            let mean = if values.len() > 1 && !is_count(values) { " mean" } else { "" };
            clean(values[0].1) + mean
        }),
        ("Records", 7, Right, &|(_, values)| values.len().to_string()),
        ("Name", 4, Left, &|((name, ..), _)| name.clone()),
    ]);
    Some(columns.without_empty())
}
