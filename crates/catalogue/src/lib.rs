//! What hardware counters mean, as data: the files of `catalogue/`, one per kind of PMU, with the events under names that
//! are the same for all kinds, their units, and formulas whose units are checked. catalogue/README.md describes the files.
//!
//! The crate does no input or output. Its user passes in what it found in sysfs. The crate answers which events to open
//! and what they mean.
//!
//! ```
//! use pciescope_catalogue::{Catalogue, Input};
//!
//! let events = ["rx_pcie_tlp_data_payload", "tx_pcie_tlp_data_payload"];
//! let formats = ["type", "eventid", "lane"];
//! let kind = Catalogue::builtin().find("dwc_rootport_10", None, &events).expect("a kind the catalogue has");
//! let metric = kind.metric("rx_bytes_per_s").expect("every root port has it");
//! let terms = kind.events["rx_bytes"].terms(&events, &formats);
//! assert_eq!(terms, Some(vec!["rx_pcie_tlp_data_payload".to_owned()]));
//! let value = metric.value(&|name| match name {
//!     "rx_bytes" => Input::Value(4e9),
//!     "seconds" => Input::Value(2.0),
//!     _ => Input::Unknown,
//! });
//! assert_eq!(value, Some(2e9));
//! ```
#![forbid(unsafe_code)]

mod builtin;
mod extends;
mod file;
mod formula;
mod kind;
mod pattern;
mod unit;

use std::collections::BTreeSet;
use std::sync::LazyLock;

pub use builtin::FILES;
pub use file::Problem;
pub use formula::{Formula, INPUTS, Input};
pub use kind::{Event, Group, Kind, Metric, Require, SysfsUnit, What};
pub use unit::{Dimension, Unit};

/// The kinds of PMUs that are known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Catalogue {
    kinds: Vec<Kind>,
}

static BUILTIN: LazyLock<Catalogue> =
    LazyLock::new(|| Catalogue::parse(&FILES).expect("tests/all/checker.rs reads all files of the catalogue"));

impl Catalogue {
    /// The catalogue that the program was built with.
    pub fn builtin() -> &'static Self {
        &BUILTIN
    }

    /// Reads files, each with its name (`ali_drw.toml`) and text.
    ///
    /// # Errors
    /// All that is wrong with any of them.
    pub fn parse(files: &[(&str, &str)]) -> Result<Self, Vec<Problem>> {
        let (mut kinds, mut problems) = (Vec::new(), Vec::new());
        fn id(name: &str) -> &str {
            name.strip_suffix(".toml").unwrap_or(name)
        }
        let base = |wanted: &str| files.iter().find(|(name, _)| id(name) == wanted).map(|(_, text)| *text);
        for (name, text) in files {
            match file::parse(id(name), text, base) {
                Ok(kind) => kinds.push(kind),
                Err(mut more) => problems.append(&mut more),
            }
        }
        if problems.is_empty() { Ok(Catalogue { kinds }) } else { Err(problems) }
    }

    /// All kinds.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// The kind of this id.
    pub fn kind(&self, id: &str) -> Option<&Kind> {
        self.kinds.iter().find(|kind| kind.id == id)
    }

    /// What kind a PMU is, by its name, its `identifier` and the names in its `events/`. `None` for one that is not known.
    pub fn find(&self, pmu: &str, identifier: Option<&str>, events: &[impl AsRef<str>]) -> Option<&Kind> {
        self.kinds.iter().find(|kind| kind.is(pmu, identifier, events))
    }
}

/// Whether a figure of this name (`l0_share`) is a share of time in a state, of a link or of DRAM: a metric in percent of the
/// group `states` in any file of the built-in catalogue. Shares of other things are many.
pub fn is_state(name: &str) -> bool {
    static NAMES: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
        let metrics = Catalogue::builtin().kinds().iter().flat_map(|kind| &kind.metrics);
        let states = metrics.filter(|metric| metric.group == Group::States && metric.unit.text == "%");
        states.map(|metric| metric.name.as_str()).collect()
    });
    NAMES.contains(name)
}

/// Whether a figure of this name (`rx_bytes_per_tlp`) is a mean, although its unit is that of a sum: a metric whose formula
/// divides, in any file of the built-in catalogue. Such figures of several intervals must not be added up.
pub fn is_mean(name: &str) -> bool {
    static NAMES: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
        let metrics = Catalogue::builtin().kinds().iter().flat_map(|kind| &kind.metrics);
        metrics.filter(|metric| metric.formula.divides()).map(|metric| metric.name.as_str()).collect()
    });
    NAMES.contains(name)
}

#[cfg(test)]
mod tests {
    use super::{is_mean, is_state};

    #[test]
    fn means_are_what_a_formula_divides() {
        for name in ["rx_bytes_per_tlp", "bytes_per_turnaround", "dma_read_cycles", "dma_read_s", "l0_share"] {
            assert!(is_mean(name), "{name}");
        }
        for name in ["rx_bytes", "layer2_errors", "l0_cycles", "total_bytes"] {
            assert!(!is_mean(name), "{name}");
        }
    }

    #[test]
    fn states_are_those_of_the_catalogue_and_no_other_shares() {
        for name in ["l0_share", "l1_2_share", "recovery_share", "tx_rx_l0s_share", "self_refresh_rank0_share"] {
            assert!(is_state(name), "{name}");
        }
        for name in [
            "rx_link_share",
            "peak_share",
            "page_conflict_share",
            "partial_write_share",
            "data_bus_share",
            "cache_miss_share",
            "l0_s",
            "l0",
            "market_share",
        ] {
            assert!(!is_state(name), "{name}");
        }
    }
}
