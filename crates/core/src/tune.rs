//! What `tune` found: the knobs of a device and its machine, and what each setting did to a figure. docs/tune.md has the method.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::Bdf;

/// The test of the record of `tune`.
pub const TEST: &str = "tune";

crate::named! {
    /// Which way a figure is better.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Goal {
        /// The larger the better, such as a rate.
        Max => "max",
        /// The smaller the better, such as a latency.
        #[default]
        Min => "min",
    }
    /// As it is typed.
    fn name
}

crate::named! {
    /// What is known of a setting in the end.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Verdict {
        /// The figure is better with it.
        Helps => "helps",
        /// The figure is worse with it.
        Hurts => "hurts",
        /// The difference is smaller than the least that matters.
        NoDifference => "no difference",
        /// The time was over before the answer was certain.
        Undecided => "undecided",
        /// With it came errors that the present setting does not have, or the workload failed: it was put back at once.
        Harmful => "harmful",
        /// The kernel or the device did not take it.
        Refused => "refused",
    }
    /// Its words in sentences.
    fn name
}

/// A knob of a device or of the machine around it.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Knob {
    /// Its name, such as `mrrs`.
    pub name: String,
    /// What it is set to; absent where that cannot be read. Sizes are in bytes, latencies in microseconds.
    pub value: Option<String>,
    /// The values that it can have, in words.
    pub range: String,
    /// Who set it, where the kernel or a file says so; else `as found`.
    pub set_by: String,
    /// What a change may do.
    pub risk: String,
    /// How it is put back.
    pub put_back: String,
    /// What else it changes than this device; absent where nothing. Only `--shared` changes it.
    pub shared: Option<String>,
    /// Why it is not changed; absent where it may be.
    pub refused: Option<String>,
}

/// A value of a knob, against the one that was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Setting {
    /// The knob's name.
    pub knob: String,
    /// The value that was tried.
    pub value: String,
    /// The value that was found, and is put back.
    pub present: String,
    /// How to make it permanent, which `tune` never does.
    pub permanent: String,
}

/// A change of a figure against the present state, with its interval: `(with - without) / without`. Positive is larger.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// The change in percent.
    pub percent: f64,
    /// The lower end of its interval, in percent.
    pub low_percent: f64,
    /// The upper end of its interval, in percent.
    pub high_percent: f64,
}

/// What one setting did, or several together.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Effect {
    /// What was set.
    pub settings: Vec<Setting>,
    /// What is known of it in the end.
    pub verdict: Verdict,
    /// The change of the figure; absent where too little was measured for an interval.
    pub change: Option<Difference>,
    /// Comparisons that the interval is of: each is four blocks in the order ABBA or BAAB.
    pub comparisons: u64,
    /// Blocks that gave no figure.
    pub blocks_failed: u64,
    /// New errors while it was set: of the path (AER), those that drivers count, and bytes that differ.
    pub errors: u64,
    /// Why it is harmful or was refused, or what is doubtful.
    pub why: Option<String>,
    /// What other figures did meanwhile, such as `p99`; their intervals are not corrected for the number of settings.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub prices: BTreeMap<String, Difference>,
}

/// The knobs and the effects of what was tried.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tune {
    /// The knobs of the device and the machine, as they were found.
    pub knobs: Vec<Knob>,
    /// The effect of each setting, in the order in which they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub effects: Vec<Effect>,
    /// The helping settings together, measured anew against the present state; absent where none helps.
    pub best: Option<Effect>,
    /// What could not be put back, or was changed by others meanwhile, each as a sentence.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
}

/// What is to be tried of one knob.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Try {
    /// The knob's name.
    pub knob: String,
    /// The values, each set against the present one.
    pub values: Vec<String>,
}

/// An experiment of `tune`.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TunePlan {
    /// The function.
    pub function: Bdf,
    /// What is tried; empty where the knobs are only listed.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub tries: Vec<Try>,
    /// The figure that decides: `mmio`, `irq`, `readout`, `cpu`, or the name of the workload's.
    pub figure: String,
    /// Which way it is better.
    pub goal: Goal,
    /// The smallest difference that matters, in percent.
    pub least_percent: f64,
    /// The longest time of all, in nanoseconds.
    pub duration_ns: u64,
    /// Seed of the order of the blocks.
    pub seed: u64,
    /// Whether settings may be tried that also change other devices or the whole machine.
    pub shared: bool,
    /// The workload, word by word.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub command: Vec<String>,
}
