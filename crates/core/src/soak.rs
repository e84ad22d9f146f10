//! What a soak of a link came to: how the errors were looked for, and why it ended. Its figures are metrics.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::Bdf;

/// The test of the record of `soak`.
pub const TEST: &str = "soak";

crate::named! {
    /// Whether the counters of errors were shown to count.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Detector {
        /// Hardware made errors on the link, and each was seen.
        Proven => "proven",
        /// Software told the kernel of errors, and each was seen: from the kernel on the path counts.
        PathProven => "path proven",
        /// Nothing was injected.
        #[default]
        NotProven => "not proven",
        /// An injected error was not seen: no bound is true.
        Blind => "blind",
    }
    /// Its words in sentences.
    fn name
}

crate::named! {
    /// Why a soak ended.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum SoakEnd {
        /// The bound that was asked for is reached.
        Reached => "the bound is reached",
        /// After the errors seen it can no longer be reached in the time given.
        OutOfReach => "the bound is out of reach",
        /// The time was over, the load ended, or the user ended it.
        Over => "not reached",
        /// An injected error was not seen.
        Blind => "the detector is blind",
    }
    /// Its words in sentences.
    fn name
}

/// An end of the link, and whether it counts.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinkEnd {
    /// Its address.
    pub bdf: Bdf,
    /// Why its errors are not seen; absent where they are.
    pub blind_by: Option<String>,
}

/// Errors or replays that a counter of an end counted beside AER.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CountedEvent {
    /// The end that has the counter.
    pub bdf: Bdf,
    /// The event, by the catalogue's name, such as `retry_tlp`.
    pub event: String,
    /// The lane, where each lane has a counter.
    pub lane: Option<u8>,
    /// How often it happened.
    pub count: u64,
    /// Whether it may have happened more often: the counter reached its highest value.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub at_least: bool,
}

/// How errors were looked for, and why it ended.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Soak {
    /// Whether the counters were shown to count.
    pub detector: Detector,
    /// How that was tried, in words; absent where nothing was injected.
    pub proof: Option<String>,
    /// The ends of the link: the port, and the function below it.
    pub ends: Vec<LinkEnd>,
    /// The bit error ratio that was asked for.
    pub below: Option<f64>,
    /// Why it ended.
    pub ended: SoakEnd,
    /// Why part of the time counts for nothing, in words.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub uncounted: Vec<String>,
    /// What counters of the ends counted beside AER, where they counted anything.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub events: Vec<CountedEvent>,
}
