//! What can go wrong with a counter, each with what the user can do.

use std::io;

/// A refusal by the kernel, or an event that cannot be; the event as perf writes it stands first, the kernel's word last.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such PMU.
    #[error("{0}: no such PMU")]
    NoPmu(String),
    /// A PMU has no event or parameter of this name.
    #[error("{pmu}/{terms}/: the PMU has no event or parameter {name:?}")]
    NoEvent {
        /// The PMU.
        pmu: String,
        /// What stands between the slashes.
        terms: String,
        /// Which part is not known.
        name: String,
    },
    /// A parameter's value cannot be.
    #[error("{pmu}/{terms}/: {why}")]
    Term {
        /// The PMU.
        pmu: String,
        /// What stands between the slashes.
        terms: String,
        /// Which part is wrong, and why.
        why: String,
    },
    /// An event needs a parameter that was not given.
    #[error("{pmu}/{terms}/: the event needs {parameter}=NUMBER")]
    Parameter {
        /// The PMU.
        pmu: String,
        /// What stands between the slashes.
        terms: String,
        /// The parameter.
        parameter: String,
    },
    /// The kernel does not let this user count.
    #[error("{event}: the kernel does not let this user count (perf_event_paranoid is {})", paranoid.as_deref().unwrap_or("not known"))]
    Permission {
        /// The event, as perf writes it.
        event: String,
        /// The value of /proc/sys/kernel/perf_event_paranoid.
        paranoid: Option<String>,
        /// Why, in the kernel's word.
        #[source]
        source: io::Error,
    },
    /// The driver is known to do harm when it is asked for this event.
    #[error("{0}: not opened: {1}")]
    Harmful(String, &'static str),
    /// The hardware or the driver does not have the event.
    #[error("{0}: the hardware does not have this event")]
    Absent(String, #[source] io::Error),
    /// The device went away.
    #[error("{0}: the PMU or its hardware is gone")]
    Gone(String),
    /// The PMU names a CPU that is offline.
    #[error("{0}: CPU {1}, on which it is counted, is offline")]
    CpuOffline(String, u32),
    /// All counters are taken.
    #[error("{0}: no counter is free")]
    NoSpace(String, #[source] io::Error),
    /// Somebody else holds the hardware.
    #[error("{0}: the hardware is in use by something else")]
    Busy(String, #[source] io::Error),
    /// The driver refuses the event or its parameters.
    #[error("{0}: the driver refuses this event on CPU {1}")]
    Invalid(String, u32, #[source] io::Error),
    /// Too many files are open.
    #[error("{0}: too many files are open")]
    Files(String, #[source] io::Error),
    /// Another refusal.
    #[error("{event}: could not {what}")]
    Call {
        /// The event, as perf writes it.
        event: String,
        /// What was about to be done.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// A code for records, stable (docs/record.md).
    pub fn code(&self) -> &'static str {
        match self {
            Error::Gone { .. } => "removed",
            Error::CpuOffline { .. } => "cpu-offline",
            Error::Absent { .. } | Error::NoEvent { .. } | Error::Harmful { .. } => "no-event",
            _ => "refused",
        }
    }

    /// What the user can do about it, where there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::NoPmu { .. } => Some("`pciescope stat --list` shows the PMUs that can be read here".to_owned()),
            Error::NoEvent { pmu, .. } | Error::Term { pmu, .. } | Error::Parameter { pmu, .. } => Some(format!(
                "/sys/bus/event_source/devices/{pmu} has its events and parameters in events/ and format/"
            )),
            Error::Permission { .. } => Some(
                "run it as root, give the program CAP_PERFMON (`setcap cap_perfmon=ep`), or have root set \
                 `sysctl kernel.perf_event_paranoid=0`"
                    .to_owned(),
            ),
            Error::Harmful { .. } => Some("the module rasdes_pmu has these events".to_owned()),
            Error::Gone { .. } => Some("check whether the device is still there: `pciescope list`".to_owned()),
            Error::CpuOffline(_, cpu) => {
                Some(format!("`echo 1 > /sys/devices/system/cpu/cpu{cpu}/online` brings it back"))
            }
            Error::NoSpace { .. } => {
                Some("count fewer events at once, or stop other programs that count here".to_owned())
            }
            Error::Busy { .. } => Some("stop other programs that use these counters, or wait for their end".to_owned()),
            Error::Files { .. } => Some("`ulimit -n` raises how many files may be open".to_owned()),
            Error::Absent { .. } | Error::Invalid { .. } | Error::Call { .. } => None,
        }
    }
}
