//! A change of a PCI Express link, of a function or of its slot, as `watch` records it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The test of the records of `watch`.
pub const TEST: &str = "watch";

crate::named! {
    /// What changed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Subject {
        /// Speed, width, or whether there is a link: `16 GT/s x4`, `no link`.
        Link => "link",
        /// Whether the kernel knows the function: `present`, `absent`.
        Presence => "presence",
        /// The power state, and whether the kernel lets the function sleep: `D0`, `asleep in D3cold`.
        Power => "power",
        /// The ASPM states that this end has switched on: `off`, `L0s`, `L1`, `L0s L1`.
        Aspm => "aspm",
        /// The slot: `card`, `empty, power off`, `card, attention on`.
        Slot => "slot",
        /// Downstream port containment: `not triggered`, `triggered`.
        Containment => "dpc",
        /// Errors that the function reported (AER): `none`, `3 correctable, 1 fatal`.
        Errors => "errors",
        /// The bound driver, or `none`.
        Driver => "driver",
        /// The machine slept (suspend), and nothing was seen meanwhile.
        Gap => "gap",
    }
    /// Its name in records.
    fn name
}

crate::named! {
    /// Why it changed, as far as registers and the kernel tell.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Cause {
        /// The function was found or taken away without a change in its slot: a scan, or the file `remove`.
        Enumeration => "enumeration",
        /// Software set it: Target Link Speed, Link Disable, ASPM Control or a slot's controls were written, or a link
        /// was told to retrain.
        Software => "software",
        /// Hardware chose it, not for reliability (Link Autonomous Bandwidth Status, PCIe 6.0, 7.5.3.8).
        Autonomous => "autonomous",
        /// Hardware changed it to mend an unreliable link (Link Bandwidth Management Status, 7.5.3.8).
        Reliability => "reliability",
        /// A card was plugged in or out, or its slot switched.
        HotPlug => "hot-plug",
        /// Downstream port containment took the link down (7.9.14).
        Containment => "dpc",
        /// The kernel holds a link that did not train at 2.5 GT/s, and said so in its log.
        KernelHold => "kernel-hold",
        /// By design: an idle GPU lowers its speed, a sleeping function drops its link, the kernel lets it sleep.
        PowerSaving => "power-saving",
        /// A driver was bound or unbound.
        Driver => "driver",
        /// Nothing tells.
        Unknown => "unknown",
    }
    /// Its name in records and tables.
    fn name
}

impl Cause {
    /// Those of changes that nobody asked for.
    pub const UNASKED: [Cause; 5] =
        [Cause::Autonomous, Cause::Reliability, Cause::Containment, Cause::KernelHold, Cause::Unknown];
}

crate::named! {
    /// What told of the change.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Source {
        /// A tracepoint of the kernel, which also has the time.
        Tracepoint => "tracepoint",
        /// Registers of configuration space, sampled.
        Registers => "registers",
        /// Files of sysfs, sampled.
        Sysfs => "sysfs",
        /// The clocks of the kernel.
        Clock => "clock",
    }
    /// Its name in records.
    fn name
}

/// What changed, from what to what, and why.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// What changed.
    pub of: Subject,
    /// The state before; absent in the record of a state at the start.
    pub from: Option<String>,
    /// The state now. With the same `from` it changed and came back between two samples.
    pub to: String,
    /// Why; absent for errors, for a gap, and for a state at the start.
    pub cause: Option<Cause>,
    /// What told.
    pub source: Source,
    /// What was seen that speaks for the cause, each in words.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub evidence: Vec<String>,
    /// Whether the state before may have changed and come back without a trace.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub may_have_missed: bool,
    /// How many changes it stands for; above 1 they were folded: they could not be written, or came too fast.
    #[serde(skip_serializing_if = "is_one", default = "one")]
    pub times: u64,
}

fn is_one(times: &u64) -> bool {
    *times == 1
}

fn one() -> u64 {
    1
}

/// The evidence of changes with several causes that were folded.
const SEVERAL: &str = "several changes in one record";

impl Change {
    /// A change of which its cause is not known yet.
    pub fn new(of: Subject, from: Option<String>, to: String, source: Source) -> Change {
        Change { of, from, to, cause: None, source, evidence: Vec::new(), may_have_missed: false, times: 1 }
    }

    /// Whether it is the record of a state at the start.
    pub fn is_start(&self) -> bool {
        self.from.is_none()
    }

    /// Whether the state is the same before and after, so that it changed in between.
    pub fn is_between(&self) -> bool {
        self.from.as_ref() == Some(&self.to)
    }

    /// Adds a later change of the same thing that could not be written before.
    pub fn fold(&mut self, later: Change) {
        self.times += later.times;
        self.may_have_missed |= later.may_have_missed;
        // Once: a disk may be full for hours.
        if self.cause != later.cause && self.evidence != [SEVERAL] {
            self.cause = Some(Cause::Unknown);
            self.evidence = vec![SEVERAL.to_owned()];
        }
        self.to = later.to;
    }
}
