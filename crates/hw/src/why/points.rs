//! The tracepoints that tell what a CPU did, and what each hit of them means.

use pciescope_core::why::Cause;

use crate::Root;
use crate::perf::Format;

/// What a hit says of its CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mark {
    /// It begins to do this.
    Begin(Nest, Cause, String),
    /// It is done with it.
    End(Nest),
    /// It did this for so many nanoseconds until now.
    Spent(Cause, String, u64),
    /// It left one thread for another.
    Switch {
        /// The number of the one.
        from: u32,
        /// The number of the other.
        to: u32,
        /// Its name and priority.
        name: String,
    },
    /// The current thread begins an item of a workqueue, the function at this address; without one it is done with it.
    Work(Option<u64>),
    /// A thread moves to another CPU.
    Moved(u32, String),
    /// Something that has no length.
    Instant(Cause, String),
}

/// What can interrupt what, so that an end finds its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nest {
    Handler,
    Vector,
    Softirq,
    Idle,
}

/// A tracepoint that may be there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tracepoint {
    /// Its group and name.
    pub name: &'static str,
    /// The fields that are read of it.
    pub fields: &'static [&'static str],
    /// Whether it tells of the whole machine, on whichever CPU.
    pub is_wide: bool,
    /// What a hit means; `None` where it is cut, or means nothing here.
    pub mark: fn(&Format, &[u8]) -> Option<Mark>,
}

/// Softirqs by their number (the kernel's include/linux/interrupt.h).
const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

const fn here(
    name: &'static str,
    fields: &'static [&'static str],
    mark: fn(&Format, &[u8]) -> Option<Mark>,
) -> Tracepoint {
    Tracepoint { name, fields, is_wide: false, mark }
}

const fn wide(
    name: &'static str,
    fields: &'static [&'static str],
    mark: fn(&Format, &[u8]) -> Option<Mark>,
) -> Tracepoint {
    Tracepoint { name, fields, is_wide: true, mark }
}

/// The beginning and end of an interrupt of the CPU's own machinery (x86).
macro_rules! vector {
    ($name:literal, $cause:ident) => {
        [
            here(concat!("irq_vectors/", $name, "_entry"), &[], |_, _| {
                Some(Mark::Begin(Nest::Vector, Cause::$cause, $name.to_owned()))
            }),
            here(concat!("irq_vectors/", $name, "_exit"), &[], |_, _| Some(Mark::End(Nest::Vector))),
        ]
    };
}

/// How many every kernel has that we run on.
pub(crate) const MAIN_POINTS: usize = 8;
/// Those.
const ALWAYS: [Tracepoint; MAIN_POINTS] = [
    here("irq/irq_handler_entry", &["irq", "name"], |format, raw| {
        let (number, name) = (format.number(raw, 0)?, format.text(raw, 1)?);
        // The timer of an Arm is an interrupt as any other.
        let cause = if name == "arch_timer" { Cause::Timer } else { Cause::Interrupt };
        Some(Mark::Begin(Nest::Handler, cause, format!("{name} (IRQ {number})")))
    }),
    here("irq/irq_handler_exit", &[], |_, _| Some(Mark::End(Nest::Handler))),
    here("irq/softirq_entry", &["vec"], |format, raw| {
        let number = format.number(raw, 0)?;
        let name = SOFTIRQS.get(number as usize).map_or_else(|| number.to_string(), |name| (*name).to_owned());
        Some(Mark::Begin(Nest::Softirq, Cause::Softirq, name))
    }),
    here("irq/softirq_exit", &[], |_, _| Some(Mark::End(Nest::Softirq))),
    here("sched/sched_switch", &["prev_pid", "next_pid", "next_comm"], |format, raw| {
        let name = format.text(raw, 2)?.to_owned();
        Some(Mark::Switch { from: format.number(raw, 0)? as u32, to: format.number(raw, 1)? as u32, name })
    }),
    here("workqueue/workqueue_execute_start", &["function"], |format, raw| {
        Some(Mark::Work(Some(format.number(raw, 0)?)))
    }),
    here("workqueue/workqueue_execute_end", &[], |_, _| Some(Mark::Work(None))),
    here("sched/sched_migrate_task", &["pid", "dest_cpu"], |format, raw| {
        Some(Mark::Moved(format.number(raw, 0)? as u32, format!("to CPU {}", format.number(raw, 1)?)))
    }),
];

/// Those that some kernels or architectures lack.
const SOMETIMES: [Tracepoint; 12] = [
    here("nmi/nmi_handler", &["delta_ns"], |format, raw| {
        Some(Mark::Spent(Cause::Nmi, String::new(), format.number(raw, 0)?))
    }),
    here("ipi/ipi_entry", &[], |_, _| Some(Mark::Begin(Nest::Vector, Cause::Ipi, String::new()))),
    here("ipi/ipi_exit", &[], |_, _| Some(Mark::End(Nest::Vector))),
    here("power/cpu_idle", &["state"], |format, raw| {
        let state = format.number(raw, 0)? as u32;
        let begins = || Mark::Begin(Nest::Idle, Cause::IdleExit, format!("C-state {state}"));
        Some(if state == u32::MAX { Mark::End(Nest::Idle) } else { begins() })
    }),
    here("power/cpu_frequency", &["state"], |format, raw| {
        Some(Mark::Instant(Cause::Frequency, format!("{} MHz", format.number(raw, 0)? / 1000)))
    }),
    here("exceptions/page_fault_user", &[], |_, _| Some(Mark::Instant(Cause::PageFault, String::new()))),
    here("exceptions/page_fault_kernel", &[], |_, _| Some(Mark::Instant(Cause::PageFault, "in the kernel".to_owned()))),
    here("tlb/tlb_flush", &["pages"], |format, raw| {
        let pages = format.number(raw, 0)?;
        Some(Mark::Instant(
            Cause::TlbFlush,
            if pages == u64::MAX { "all pages".to_owned() } else { format!("{pages} pages") },
        ))
    }),
    wide("mce/mce_record", &[], |_, _| Some(Mark::Instant(Cause::MachineCheck, String::new()))),
    wide("iommu/io_page_fault", &["device"], |format, raw| {
        Some(Mark::Instant(Cause::IommuFault, format.text(raw, 0)?.to_owned()))
    }),
    wide("ras/aer_event", &["dev_name"], |format, raw| {
        Some(Mark::Instant(Cause::LinkError, format.text(raw, 0)?.to_owned()))
    }),
    wide("pci/pcie_link_event", &["port_name"], |format, raw| {
        Some(Mark::Instant(Cause::LinkChange, format.text(raw, 0)?.to_owned()))
    }),
];

/// The names of those that every kernel should have and this one has not, or does not show.
pub(crate) fn lacking(root: &Root) -> Vec<&'static str> {
    let is_lacking = |point: &Tracepoint| Format::find(root, point.name, point.fields).is_none();
    ALWAYS.into_iter().filter(is_lacking).map(|point| point.name).collect()
}

/// All of them. irq_work is none: the kernel refuses its end to perf, whose own work it is.
pub(super) fn points() -> impl Iterator<Item = Tracepoint> {
    let vectors = [
        vector!("local_timer", Timer),
        vector!("reschedule", Ipi),
        vector!("call_function", Ipi),
        vector!("call_function_single", Ipi),
        vector!("x86_platform_ipi", Ipi),
        vector!("spurious_apic", Ipi),
        vector!("error_apic", Ipi),
        vector!("thermal_apic", Frequency),
        vector!("threshold_apic", MachineCheck),
        vector!("deferred_error_apic", MachineCheck),
    ];
    ALWAYS.into_iter().chain(SOMETIMES).chain(vectors.into_iter().flatten())
}
