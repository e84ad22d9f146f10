//! Why nothing can be counted, and what the user can do about it.

use pciescope_core::Bdf;
use pciescope_hw::perf;

use pciescope_core::text::chain;

/// Why nothing can be counted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An event is wrong, or cannot be opened.
    #[error(transparent)]
    Counter(#[from] perf::Error),
    /// The machine's functions cannot be read.
    #[error(transparent)]
    Machine(#[from] pciescope_hw::Error),
    /// No PMU of a name.
    #[error("{pattern}: no PMU of this machine has such a name")]
    NoPmu {
        /// The name or pattern.
        pattern: String,
        /// Names that begin alike.
        alike: Vec<String>,
    },
    /// No PMU has an event of a name that was given without a PMU.
    #[error("{name}: {}", match of_cores { Some(pmu) => format!("an event of the CPUs' cores ({pmu}), not of PCIe or DRAM"), None => "no PMU of this machine has an event of this name".to_owned() })]
    NoEvent {
        /// The name.
        name: String,
        /// The PMU of cores that has it.
        of_cores: Option<String>,
    },
    /// The machine has no PMU that the catalogue knows.
    #[error("there is no counter of PCIe ports or DRAM channels on this machine{}", unknown_words(*.unknown))]
    None {
        /// How many PMUs there are that the catalogue does not know.
        unknown: usize,
    },
    /// A function without counters.
    #[error("{bdf}: no counter counts for this function or its root port")]
    NotCounted {
        /// The function.
        bdf: Bdf,
    },
    /// A tree recorded on another machine.
    #[error("counters are not read: /sys is a recorded tree here")]
    Recorded,
    /// A counter was not opened, no longer answers, or its count is in doubt.
    #[error("{why}")]
    NoFigure {
        /// Which counter, and the reason with its cause.
        why: String,
        /// What the user can do about it.
        hint: Option<String>,
    },
    /// No kind of PMU has such a metric.
    #[error("{name}: none of the chosen PMUs has such a metric, group of metrics or quantity")]
    NoMetric {
        /// The name.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
}

fn unknown_words(unknown: usize) -> String {
    if unknown == 0 { String::new() } else { format!(" ({unknown} other PMUs; name their events with -e)") }
}

impl Error {
    /// A counter without a figure, by perf's reason.
    pub(crate) fn no_figure(error: &perf::Error) -> Self {
        Error::NoFigure { why: chain(error), hint: error.hint() }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Counter(error) => error.hint(),
            Error::Machine(error) => error.hint(),
            Error::NoFigure { hint, .. } => hint.clone(),
            Error::Recorded => Some("leave out --root".to_owned()),
            Error::NoPmu { alike, .. } if !alike.is_empty() => {
                Some(format!("name one of {}, or all of them with a `*`", alike.join(", ")))
            }
            Error::NoPmu { .. } => Some("`pciescope stat --list` shows the PMUs that can be read here".to_owned()),
            Error::NoEvent { name, of_cores: Some(_) } => Some(format!("`perf stat -e {name}` counts it")),
            Error::NoEvent { .. } => Some(
                "write PMU/EVENT/; `pciescope stat --list` shows the PMUs, /sys/bus/event_source/devices/PMU/events their events"
                    .to_owned(),
            ),
            Error::None { .. } => Some(
                "root ports of Synopsys DesignWare cores need the module rasdes_pmu (`modprobe rasdes_pmu`) or dwc_pcie_pmu, DRAM \
                 of a Yitian 710 drw_pmu, other machines their kernel's uncore drivers; virtual machines have none"
                    .to_owned(),
            ),
            Error::NotCounted { .. } => Some(
                "`pciescope stat --list` shows the functions that have counters; root ports of Synopsys DesignWare cores need \
                 the module rasdes_pmu or dwc_pcie_pmu"
                    .to_owned(),
            ),
            Error::NoMetric { known, .. } => Some(format!("there are {}", known.join(", "))),
        }
    }
}
