//! What `doctor` finds: a state of the machine or of a device that spoils performance or a measurement.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::Bdf;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Worth knowing when figures are read; nothing need be done.
    #[default]
    Note,
    /// Makes figures doubtful or worse than they need be.
    Warning,
    /// Something is broken, or far below what the hardware can do.
    Problem,
}

/// One finding of one check about one thing.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The check's stable name, such as `link-width`: for scripts and for silencing.
    pub check: String,
    /// How much it matters.
    pub severity: Severity,
    /// The function it is about; `None` where it is the machine.
    pub bdf: Option<Bdf>,
    /// What was found, in one sentence.
    pub text: String,
    /// What was read where, so that a reader can look for himself.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub evidence: Vec<Evidence>,
    /// What it does to performance or to a measurement.
    pub consequence: String,
    /// What to do about it, with the command where there is one.
    pub remedy: String,
    /// Whether the user asked not to be told (`--silence`); it stays in the records.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub silenced: bool,
}

/// How a check ended at one subject.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// It looked, and found nothing.
    Fine,
    /// It found something, which is among the findings, silenced or not.
    Found,
    /// It could not look; a warning of the code `not-checked` says what to do.
    #[default]
    NotChecked,
    /// There is nothing of the kind that it looks at.
    NotApplicable,
}

/// One check of one subject, and how it ended.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checked {
    /// The check's name.
    pub check: String,
    /// How it ended.
    pub ended: Ended,
    /// Why it did not look; absent where it did.
    pub why: Option<String>,
}

/// A value and where it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// The file or register: `/sys/bus/pci/devices/0000:3b:00.0/current_link_width`, `DevCtl of 0000:3b:00.0`.
    pub source: String,
    /// What stood there.
    pub value: String,
}
