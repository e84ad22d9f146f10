//! The one registry of checks: what spoils performance or a measurement in a device or a machine.
//!
//! [`examine`] serves `doctor`; [`crate::check`] makes the warnings of measurements from those checks of the same
//! registry that have a warning's code. A check is a function that looks at a [`Case`] (one PCI function) or at the
//! [`Machine`], and ends with a [`Verdict`]: what it found, or why it did not look. It reads and changes nothing.

mod accounting;
mod acs;
mod aspm;
mod case;
mod clock;
mod cpu;
mod errors;
mod history;
mod identity;
mod interrupts;
mod iommu;
mod kernel;
mod link;
mod noise;
mod payload;
mod place;
mod power;
mod readings;
mod requests;
mod windows;

use pciescope_core::{Bdf, Checked, Ended, Finding, warning};

pub use accounting::Counted;
pub use case::{Case, Found, Machine, Unseen, Verdict};
pub use history::RECORDED;
pub use readings::Readings;

/// What a check examines, and the function that does it.
#[derive(Debug, Clone, Copy)]
pub enum Scope {
    /// One PCI function.
    Function(fn(&Case) -> Verdict),
    /// The machine.
    Machine(fn(&Machine) -> Verdict),
}

/// Whether a check's findings are warnings of a measurement too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Warns {
    /// They are not.
    No,
    /// They are, of the measured function (or of the machine), of this kind.
    Own(&'static warning::Kind),
    /// They are, of the measured function and of each bridge above it, of this kind.
    Path(&'static warning::Kind),
}

/// One check.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// Stable name: for scripts, and for silencing.
    pub name: &'static str,
    /// What it looks at and when it speaks, in a line.
    pub looks_at: &'static str,
    /// Whether measurements warn of it.
    pub warns: Warns,
    /// What it examines, and by which function.
    pub scope: Scope,
}

const fn function(name: &'static str, judge: fn(&Case) -> Verdict, looks_at: &'static str) -> Check {
    Check { name, looks_at, warns: Warns::No, scope: Scope::Function(judge) }
}

const fn machine(name: &'static str, judge: fn(&Machine) -> Verdict, looks_at: &'static str) -> Check {
    Check { name, looks_at, warns: Warns::No, scope: Scope::Machine(judge) }
}

impl Check {
    const fn warns_as(self, kind: &'static warning::Kind) -> Check {
        Check { warns: Warns::Own(kind), ..self }
    }
    const fn warns_of_path_as(self, kind: &'static warning::Kind) -> Check {
        Check { warns: Warns::Path(kind), ..self }
    }
    /// Whether it looks at the machine, not at a function.
    pub fn is_of_machine(&self) -> bool {
        matches!(self.scope, Scope::Machine(_))
    }
}

/// All checks: those of functions, then those of the machine, in the order in which warnings are shown.
pub const CHECKS: &[Check] = &[
    function("not-answering", identity::not_answering, "configuration space that reads all-ones"),
    function("emulated-device", identity::emulated, "IDs that emulators use, and functions of a guest")
        .warns_as(&warning::EMULATED_DEVICE),
    function("link-speed", link::speed, "the link's speed against what both of its ends can do")
        .warns_of_path_as(&warning::LINK_DOWNTRAINED),
    function("link-width", link::width, "the link's lanes against what both of its ends can do")
        .warns_of_path_as(&warning::LINK_DOWNTRAINED),
    function("link-limited", link::limited, "a function that can do more than the slot it sits in")
        .warns_of_path_as(&warning::LINK_LIMITED),
    function(
        "path-limited",
        link::path_limited,
        "a link further up the path that carries less than the function's own",
    )
    .warns_as(&warning::LINK_LIMITED),
    function("link-target", link::target, "Link Control 2: a port that is told to stay below its speed"),
    function("link-retrained", link::retrained, "Link Status: a link that retrained while --watch waited"),
    function(
        "link-unsteady",
        history::unsteady,
        "records of the recorder (watch): a link that lost bandwidth or flapped",
    ),
    function("aspm", aspm::enabled, "Link Control, link/l0s_aspm, link/l1_aspm: a link that may sleep")
        .warns_of_path_as(&warning::ASPM),
    function("node-unknown", place::unknown, "numa_node on a machine with several nodes")
        .warns_as(&warning::NODE_UNKNOWN),
    function("node-without-cpus", place::without_cpus, "numa_node against the CPUs that are online"),
    function("irq-remote", place::irq_remote, "the CPUs that a function's interrupts go to, against its node"),
    function("mps-mismatch", payload::mismatch, "Device Control: payload sizes of a function and the port above it"),
    function("mps-low", payload::low, "payload size in force against what the whole path can do"),
    function("mrrs-small", payload::read_request, "read request size below 512 bytes"),
    function("relaxed-ordering", requests::relaxed_ordering, "Device Control: relaxed ordering off"),
    function("extended-tags", requests::extended_tags, "Device Control: extended tags off where the function has them"),
    function("ten-bit-tags", requests::ten_bit_tags, "Device Control 2: 10-bit tags off where the whole path has them"),
    function("atomics-blocked", requests::atomics, "Device Control 2: AtomicOps on where the path does not take them"),
    function("completion-timeout", requests::completion_timeout, "Device Control 2: timeout disabled or very short"),
    function("aer-correctable", errors::correctable, "aer_dev_correctable: errors that a link repaired by itself"),
    function("aer-nonfatal", errors::nonfatal, "aer_dev_nonfatal: transactions that were lost"),
    function("aer-fatal", errors::fatal, "aer_dev_fatal: errors that brought a link down"),
    function("replay-growth", errors::replay_growth, "replays and bad packets counted while --watch waits"),
    function("error-latched", errors::latched, "Device Status: fatal and non-fatal errors that nobody has cleared"),
    function(
        "aer-unreported",
        errors::unreported,
        "ports that can report errors, in a kernel that does not count them",
    ),
    function("bar-unassigned", windows::unassigned, "resource: a BAR that has no address"),
    function("bar-outside-window", windows::outside, "BARs against the windows of the bridge above"),
    function(
        "bar-resizable",
        windows::resizable,
        "Resizable BAR of a display or accelerator that is not at its largest",
    ),
    function("memory-off", windows::memory_off, "Command: memory decoding off although a driver is bound"),
    function("bus-master-off", windows::bus_master_off, "Command: bus mastering off where DMA or MSI need it"),
    function("power-state", power::state, "power_state other than D0"),
    function("runtime-pm", power::runtime, "power/control: the kernel may put the device to sleep"),
    function("interrupt-pin", interrupts::pin, "a driver that uses INTx although the function has MSI or MSI-X"),
    function("vectors-few", interrupts::few, "interrupt vectors in use against receive queues"),
    function("irq-shared", interrupts::shared, "/proc/interrupts: several devices on one interrupt"),
    function(
        "accounting-above",
        accounting::above,
        "a port's hardware counter below what the kernel moved there (--watch)",
    ),
    function("traffic-unseen", accounting::unseen, "traffic of a port that the kernel does not see (--watch)"),
    function("acs-redirect", acs::redirect, "ACS Control of a switch's ports: peer-to-peer sent through the root"),
    machine("guest", identity::guest, "DMI, CPU flags, device tree: marks of a hypervisor").warns_as(&warning::GUEST),
    machine("deep-idle", cpu::deep_idle, "cpuidle states that take 10 us or more to leave, and cpu_dma_latency")
        .warns_as(&warning::DEEP_IDLE),
    machine("governor", cpu::governor, "frequency governor other than performance").warns_as(&warning::GOVERNOR),
    machine("clocksource", clock::source, "current_clocksource other than the CPU's counter")
        .warns_as(&warning::CLOCKSOURCE),
    machine("irqbalance", interrupts::balance, "a process irqbalance").warns_as(&warning::IRQBALANCE),
    machine("tsc-unstable", clock::unstable, "CPU flags and kernel options: a time stamp counter that varies or stops"),
    machine("boost", cpu::boost, "intel_pstate/no_turbo, cpufreq/boost: clocks above the nominal one"),
    machine("smt", cpu::smt, "smt/active: two threads share a core"),
    machine("isolation", cpu::isolation, "isolated and nohz_full CPUs: none is kept free"),
    machine("thermal-throttle", cpu::throttle, "thermal_throttle counts of the CPUs"),
    machine("smi", noise::smi, "MSR 0x34 (Intel): system management interrupts"),
    machine("steal", noise::steal, "/proc/stat: time that a hypervisor took"),
    machine("nmi-watchdog", noise::nmi_watchdog, "a periodic NMI that takes a counter of each CPU"),
    machine("numa-balancing", noise::numa_balancing, "pages that the kernel moves between nodes"),
    machine("mitigations", kernel::mitigations, "mitigations of CPU faults that make system calls dearer"),
    machine("aspm-policy", aspm::policy, "the kernel's ASPM policy: powersave or powersupersave"),
    machine("iommu-translates", iommu::translates, "IOMMU groups whose DMA is translated"),
    machine(
        "pci-options",
        kernel::pci_options,
        "kernel options that switch off MSI, AER or native PCIe services, or are none",
    ),
    machine("lockdown", kernel::lockdown, "kernel lockdown: registers and modules that are out of reach"),
    machine("module-unsigned", kernel::module_unsigned, "Secure Boot, and pcilat without a signature"),
    machine("perf-paranoid", kernel::perf_paranoid, "perf_event_paranoid: who may read hardware counters"),
    machine("slow-causes", noise::slow_causes, "tracepoints and CPUs that `latency --why` needs to name causes"),
];

/// The check of a name.
pub fn find(name: &str) -> Option<&'static Check> {
    CHECKS.iter().find(|check| check.name == name)
}

/// How one check ended at one subject.
#[derive(Debug, Clone)]
pub struct Examined {
    /// The check.
    pub check: &'static Check,
    /// The function; `None` where it is the machine.
    pub bdf: Option<Bdf>,
    /// What it found, or why it did not look.
    pub verdict: Verdict,
}

impl Examined {
    /// Whether the check looked.
    pub fn has_looked(&self) -> bool {
        self.verdict.is_ok()
    }

    /// What it found.
    pub fn findings(&self) -> impl Iterator<Item = Finding> {
        let found = self.verdict.iter().flatten().cloned();
        found.map(|found| found.by(self.check.name, self.bdf))
    }

    /// How it ended, for a record.
    pub fn ended(&self) -> Checked {
        let (ended, why) = match &self.verdict {
            Ok(found) if found.is_empty() => (Ended::Fine, None),
            Ok(_) => (Ended::Found, None),
            Err(Unseen::NotChecked { why, .. }) => (Ended::NotChecked, Some(why.clone())),
            Err(Unseen::NotApplicable { why }) => (Ended::NotApplicable, Some(why.clone())),
        };
        Checked { check: self.check.name.to_owned(), ended, why }
    }
}

/// Looks at these functions, and at the machine, by these checks. Each check ends once for each subject that it is for.
///
/// A function that `machine` does not have is skipped.
pub fn examine(machine: &Machine, functions: &[Bdf], checks: &[&'static Check]) -> Vec<Examined> {
    let mut all = Vec::new();
    let is_synthetic = machine.environment.is_synthetic();
    let told = |unseen| match unseen {
        Unseen::NotChecked { why, remedy }
            if is_synthetic && (remedy == case::AS_ROOT || remedy == case::WITH_PROC) =>
        {
            Unseen::NotChecked { why, remedy: "the synthetic machine does not have it".to_owned() }
        }
        unseen => unseen,
    };
    for check in checks {
        match check.scope {
            Scope::Function(judge) => {
                for case in functions.iter().filter_map(|bdf| Case::of(machine, *bdf)) {
                    all.push(Examined { check, bdf: Some(case.bdf), verdict: judge(&case).map_err(told) });
                }
            }
            Scope::Machine(judge) => all.push(Examined { check, bdf: None, verdict: judge(machine).map_err(told) }),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use pciescope_core::{Environment, Function};

    use super::*;
    use crate::test::Tree;

    /// How each check ends on a machine of these files, with one endpoint of which nothing is known but its address.
    fn ends(files: &[(&str, &str)]) -> Vec<(&'static str, Verdict)> {
        let (root, environment) = (Tree::of(files), Environment::default());
        let function = Function { bdf: "01:00.0".parse().ok(), ..Function::default() };
        let machine = Machine::new(&root, &environment, vec![function]);
        let bdfs: Vec<Bdf> = machine.functions().map(|(bdf, _)| bdf).collect();
        let checks: Vec<&'static Check> = CHECKS.iter().collect();
        examine(&machine, &bdfs, &checks).into_iter().map(|one| (one.check.name, one.verdict)).collect()
    }

    #[test]
    fn where_nothing_can_be_read_no_check_says_that_all_is_well() {
        let ends = ends(&[]);
        assert_eq!(ends.len(), CHECKS.len(), "each check ends once for its one subject");
        // The kernel's word that a device is not known to be emulated was had without a file.
        let fine: Vec<&str> = ends
            .iter()
            .filter(|(name, end)| end.is_ok() && *name != "emulated-device")
            .map(|(name, _)| *name)
            .collect();
        assert_eq!(fine, [""; 0]);
    }

    #[test]
    fn tracepoints_that_may_not_be_read_are_not_checked() {
        let end = |files: &[(&str, &str)]| ends(files).into_iter().find(|(name, _)| *name == "slow-causes").unwrap().1;
        assert!(matches!(end(&[]), Err(Unseen::NotApplicable { .. })));
        let closed = end(&[("sys/kernel/tracing/x", "")]);
        assert!(matches!(&closed, Err(Unseen::NotChecked { remedy, .. }) if remedy == case::AS_ROOT), "{closed:?}");
        // Lockdown: the folders are there, and no file can be opened.
        let level = ("sys/kernel/security/lockdown", "none integrity [confidentiality]");
        let found = end(&[("sys/kernel/tracing/events/sched/sched_switch/x", ""), level]).unwrap();
        assert!(found[0].text.contains("8 of its 8") && found[0].evidence[1].value == level.1, "{found:?}");
    }

    #[test]
    fn what_may_not_be_read_is_not_checked_and_what_is_not_there_does_not_apply() {
        let end = |files: &[(&str, &str)]| {
            let ends = ends(files);
            ends.into_iter().find(|(name, _)| *name == "perf-paranoid").unwrap().1
        };
        let path = "proc/sys/kernel/perf_event_paranoid";
        assert!(matches!(end(&[]), Err(Unseen::NotApplicable { why }) if why.contains(path)));
        assert!(end(&[(path, "0\n")]).is_ok_and(|found| found.is_empty()));
        assert!(end(&[(path, "2\n")]).is_ok_and(|found| found.len() == 1));
        // A folder in the file's place: there, and not to be read, by root neither.
        let unreadable = end(&[(format!("{path}/x").as_str(), "")]);
        assert!(
            matches!(&unreadable, Err(Unseen::NotChecked { why, remedy }) if why.contains(path) && !remedy.is_empty()),
            "{unreadable:?}"
        );
    }
}
