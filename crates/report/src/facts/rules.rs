//! The rules by which figures are called good or doubtful: one table, each rule with its limit as a number.

use crate::model::{self, Kind, Section};

/// A rule.
pub(crate) struct Rule {
    /// The sections that it is for; `None` for all.
    kind: Option<Kind>,
    /// In the unit of the words.
    pub limit: f64,
    /// What it says; `{}` stands for the limit.
    words: &'static str,
}

impl Rule {
    const fn of(kind: Kind, limit: f64, words: &'static str) -> Rule {
        Rule { kind: Some(kind), limit, words }
    }
    const fn any(limit: f64, words: &'static str) -> Rule {
        Rule { kind: None, limit, words }
    }
}

pub(crate) static FAR_FROM_BEST: Rule = Rule::of(
    Kind::Mmio,
    1.5,
    "Median register read: below {} times the best published figure for as many hops is good; below the wire's floor is invalid.",
);
pub(crate) static LONG_TAIL: Rule = Rule::any(10.0, "Slowest sample: below {} times the median is good.");
pub(crate) static FEW_SAMPLES: Rule = Rule::any(1000.0, "Fewer than {} samples say nothing of the slowest 1 %.");
pub(crate) static UNEVEN_NODES: Rule = Rule::any(
    10.0,
    "NUMA nodes: {} % between their medians, of 1,000 samples each and by more than the clock's step, is a reason to choose CPUs.",
);
pub(crate) static BUSY: Rule = Rule::of(
    Kind::Counters,
    90.0,
    "Ports and DRAM channels: up to {} % of the ceiling is good; above 100 % is invalid.",
);
pub(crate) static FAST: Rule = Rule::of(
    Kind::Readout,
    80.0,
    "Readout: good where compared bytes are right and the rate is {} % of the link's ceiling or more.",
);
pub(crate) static SLOW: Rule = Rule::of(
    Kind::Readout,
    50.0,
    "Readout: below {} % of the link's ceiling something else limits, which is doubtful.",
);
pub(crate) static UNSTEADY: Rule =
    Rule::of(Kind::Readout, 5.0, "Readout: repeats that vary by over {} % (standard deviation) are doubtful.");

pub(crate) static EXPLAINED: Rule = Rule::any(
    5.0,
    "Slow samples: what took most of the slowest is what to mend first; over {} % of the evidence lost, or looking that moves the median by 1 % or the tail beyond its interval, is doubtful.",
);
static LOSSES: Rule = Rule::any(
    0.0,
    "Losses (interrupts, samples, transfers): none is good, any is doubtful, and so are triggers that were late or not raised, and stalls.",
);
static KNOWN_TRAFFIC: Rule = Rule::of(
    Kind::Verify,
    0.0,
    "A counter beside known traffic: good within its tolerance, or within the bound of a figure that was scaled.",
);
static COUNTED_WHOLE: Rule = Rule::of(
    Kind::Counters,
    0.0,
    "Counters: good where none was scaled to the whole time and none reached its end; any link error or retry is doubtful.",
);
static LINKS: Rule = Rule::any(0.0, "Links: good where speed and width are the most that the device can.");
static NOTICES: Rule = Rule::any(
    0.0,
    "Warnings, errors and doctor's problems and warnings are doubtful, and what they advise is what to do; checks that could not look, or were silenced, are not good. Emulated and made-up figures say nothing about hardware.",
);

/// All rules, in the order of the page's list.
static RULES: [&Rule; 14] = [
    &LOSSES,
    &FAR_FROM_BEST,
    &LONG_TAIL,
    &EXPLAINED,
    &FEW_SAMPLES,
    &UNEVEN_NODES,
    &KNOWN_TRAFFIC,
    &COUNTED_WHOLE,
    &BUSY,
    &FAST,
    &SLOW,
    &UNSTEADY,
    &LINKS,
    &NOTICES,
];

/// The rules that may apply to these sections, in words.
pub fn rules(sections: &[Section]) -> Vec<String> {
    let is_there = |kind: Kind| sections.iter().any(|section| model::kind(section.test()) == kind);
    let wanted = RULES.iter().filter(|rule| rule.kind.is_none_or(&is_there));
    wanted.map(|rule| rule.words.replace("{}", &rule.limit.to_string())).collect()
}
