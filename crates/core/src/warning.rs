//! The table of warnings: everything that makes a figure doubtful, with a code for scripts, what it means, and what to do.
//! docs/record.md has the same table; a test compares the two.

use crate::record::Warning;

/// A kind of warning.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// A short stable name, for scripts and for silencing.
    pub code: &'static str,
    /// When a record has it.
    pub meaning: &'static str,
    /// What to do about it; empty where that depends on what was found.
    pub hint: &'static str,
}

impl Kind {
    /// The warning with what was found, and the hint of the table.
    pub fn warn(&self, text: impl Into<String>) -> Warning {
        self.hinted(text, self.hint)
    }

    /// The warning with what was found, and what to do about just that.
    pub fn hinted(&self, text: impl Into<String>, hint: impl Into<String>) -> Warning {
        Warning { code: self.code.to_owned(), text: text.into(), hint: hint.into() }
    }
}

macro_rules! warnings {
    ($($name:ident: $code:literal, $meaning:literal $(, $hint:literal)?;)*) => {
        $(#[doc = $meaning] pub static $name: Kind = Kind { code: $code, meaning: $meaning, hint: concat!($($hint)?) };)*

        /// Every kind, in the order of the documentation.
        pub static ALL: &[&Kind] = &[$(&$name),*];
    };
}

warnings! {
    EMULATED_DEVICE: "emulated-device", "the function looks emulated: its figures are the cost of an exit to the emulator";
    GUEST: "guest", "the machine is a guest: the hypervisor can take a CPU away in the middle of a sample";
    LINK_DOWNTRAINED: "link-downtrained", "a link of the path is slower or narrower than both of its ends support";
    LINK_LIMITED: "link-limited", "the port above makes the function's link slower or narrower than the function supports";
    ASPM: "aspm", "a link of the path may enter a power-saving state between accesses";
    NODE_UNKNOWN: "node-unknown", "the firmware does not say to which of several NUMA nodes the function belongs";
    DEEP_IDLE: "deep-idle", "idle states that take 10 us or more to leave are enabled";
    GOVERNOR: "governor", "a frequency governor other than `performance` is in use";
    CLOCKSOURCE: "clocksource", "the kernel's clock is not the CPU's counter; it may have found this counter unstable";
    IRQBALANCE: "irqbalance", "irqbalance is running and may move interrupts";
    CHANGES_MISSED: "changes-missed", "`watch`: a change of a link that came back between two samples may have left no trace",
        "a shorter -I misses less; the bits that tell are cleared by a reboot, or by setpci -s PORT CAP_EXP+12.w=c000:c000";
    COMMAND_FAILED: "command-failed", "`watch --on`: a command failed, took too long or did not start; the text says which and why";
    COMMANDS_LEFT_OUT: "commands-left-out",
        "`watch --on`: events that ran no command of their own, as the last one was just before";
    NOT_CHECKED: "not-checked", "`doctor`: a check could not look; the text begins with its name and says why";
    CLOCK_RATE: "clock-rate", "the clock used, and so every duration, differs by over 1000 ppm from CLOCK_MONOTONIC_RAW";
    COARSE_CLOCK: "coarse-clock", "the clock's step is more than half a percent of the median";
    DRIFT: "drift", "the medians of one CPU's rounds differ by more than a tenth",
        "measure longer or on a quieter machine before CPUs are compared";
    STEAL: "steal", "the hypervisor took time from the CPU during the run",
        "trust the median rather than the tail, or measure on a host that is not shared";
    TOO_LONG: "too-long",
        "samples were too long for any bucket; figures leave them out, the text and `samples_lost` count them",
        "find what stops the machine for so long: firmware, a hypervisor, a device that does not answer";
    INCONSISTENT_COUNTS: "inconsistent-counts",
        "the module's count of samples differs from the sum of its buckets: a fault of the module",
        "please report it with the module's version";
    UNSTABLE_REGISTER: "unstable-register",
        "the two reads of the register before the run differ: reading it may have side effects",
        "take a register that only identifies the device";
    UNEXPECTED_VALUE: "unexpected-value", "the register does not hold what the table of safe registers expects",
        "name the register with --bar and --offset if the device is another one";
    NO_EXTENDED_SPACE: "no-extended-space",
        "the function has no offset 0x100; another offset was read: do not compare it with other hops",
        "on x86 offsets below 0x100 go by the ports 0xcf8/0xcfc, which is slower: do not compare it with other hops";
    SERIALIZED: "serialized", "arm64: only one CPU at a time can read configuration space; concurrent figures include the wait",
        "leave out --order concurrent";
    NO_HARDWARE_TRIGGER: "no-hardware-trigger",
        "the device cannot raise its interrupts on command here; the figures do not include PCIe",
        "take a device that can raise its own interrupts, see docs/method.md";
    CONTROL_DIFFERS: "control-differs",
        "arm64: raising an interrupt by software takes long itself, so the difference is left out",
        "compare runs of the device's own interrupts; --backend vfio has a control arm without that queue";
    NO_CONTROL_ARM: "no-control-arm",
        "the backend cannot raise these interrupts by software, so the share of PCIe is not known",
        "the kernel module has a control arm: --backend kmod --bind";
    MALFORMED_LINES: "malformed-lines", "import: lines of the log were skipped; the text names the first five",
        "see whether the log was cut, mixed with other output, or is of another --format";
    NO_ELAPSED: "no-elapsed", "import of perf-stat: bw_mem's rate is not compared, because the text has no elapsed time";
    NOT_COMPARED: "not-compared", "import of perf-stat: a workload or a counter was left out of the comparison; the text says why",
        "see docs/record.md for what can be compared";
    INCONSISTENT_ROW: "inconsistent-row",
        "import of sis8300-threads: duration or speed does not follow from start, end and repeats",
        "see whether the parameters above the row are those of its run";
    ABOVE_CEILING: "above-ceiling", "a rate is above what its link can carry: the figure is invalid",
        "check whether the data came from a cache, and whether the device uses the link that is shown";
    PAGE_CACHE: "page-cache", "a file or disk was read through the page cache: the rate may be that of memory";
    WRONG_DATA: "wrong-data", "bytes that were read are not what was expected",
        "the figures are from wrong data; to find the cause, try another access (-B) or fewer devices at once";
    NO_HOT_SPOTS: "no-hot-spots", "the functions that used the CPU time cannot be found; the text says why";
    NOT_COUNTED: "not-counted",
        "an event was not opened or never ran; a device is not accounted for; a part of a sum has no figure";
    NO_SAMPLES: "no-samples", "the time was over before the first sample: give more time, fewer CPUs or fewer rounds",
        "give more time with --duration, fewer CPUs, or fewer rounds (--order interleaved:1)";
    ABSENT: "absent", "a port, device, PMU or metric that you named is not present now; the others are counted";
    COUNTED_TWICE: "counted-twice",
        "`serve` and `top`: two drivers have PMUs for one port; those of the second driver are left out",
        "unload one of the two drivers, or name the PMUs to count";
    MULTIPLEXED: "multiplexed", "the count is scaled from a part of the time; `stat` warns only if it may be wrong by over 2 %";
    COUNTER_RESET: "counter-reset", "a count went backwards, or exceeds what the hardware can count: the figure is left out";
    NOISY: "noisy", "`convert`: the quartiles of a row's passes, or of its ceiling's, are more than 10 % apart",
        "stop other programs on this machine; compare shares of the ceiling rather than rates";
    OTHER_TRAFFIC: "other-traffic", "`verify`: before the workload began, other traffic was over 0.5 % of the workload's",
        "stop other programs that use the device or memory; verify does not subtract their traffic";
    NO_BOUND: "no-bound", "`verify`: the count is scaled, and there were too few readings to say how wrong it can be",
        "run longer, with --duration";
    SATURATED: "saturated", "a hardware counter reached its highest value: the figure is a lower limit (`at_least`)",
        "read the driver's file `saturated`; a smaller poll_ms of rasdes_pmu folds counts sooner";
}

#[cfg(test)]
mod tests {
    use super::ALL;

    #[test]
    fn the_documentation_has_this_table() {
        let page = include_str!("../../../docs/record.md");
        let table = page.split("| `warnings[].code` | meaning |\n|---|---|\n").nth(1).unwrap();
        let rows: Vec<String> = ALL.iter().map(|kind| format!("| `{}` | {} |", kind.code, kind.meaning)).collect();
        assert_eq!(table.lines().take_while(|line| !line.is_empty()).collect::<Vec<_>>(), rows);
    }
}
