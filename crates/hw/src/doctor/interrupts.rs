//! Checks: the kind of interrupts, and programs that move them.

use pciescope_core::Severity;

use super::case::{
    AS_ROOT, Case, Found, Machine, Unseen, Verdict, WITH_PROC, fine, found, not_applicable, not_checked, seen,
};

// Capabilities (7.7.1, 7.7.2) and the Command register (7.5.1.1.3).
const CAP_MSI: u8 = 0x05;
const CAP_MSIX: u8 = 0x11;
const MSI_ENABLE: u16 = 1;
const MSIX_ENABLE: u16 = 1 << 15;
const COMMAND: usize = 0x04;
const INTX_DISABLE: u16 = 1 << 10;
const INTERRUPT_PIN: usize = 0x3c;

/// Whether MSI or MSI-X is on.
pub fn is_message_signalled(case: &Case) -> bool {
    let control = |id| case.config.capability(id).and_then(|at| case.config.word(at + 2)).unwrap_or(0);
    control(CAP_MSI) & MSI_ENABLE != 0 || control(CAP_MSIX) & MSIX_ENABLE != 0
}

/// The line of an interrupt in /proc/interrupts, with single blanks; it is there for those that are in use.
fn interrupt_line(case: &Case, irq: &str) -> Result<Option<String>, Unseen> {
    let Some(text) = case.machine.root.text("/proc/interrupts") else {
        return not_checked("/proc/interrupts cannot be read", WITH_PROC);
    };
    let label = format!("{irq}:");
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(&*label));
    Ok(line.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")))
}

pub fn pin(case: &Case) -> Verdict {
    case.not_a_bridge()?;
    let driver = case.driver()?;
    if driver == "vfio-pci" {
        return not_applicable("vfio-pci holds it for others");
    }
    case.readable()?;
    let has_messages = case.function.msi_vectors > 0 || case.function.msix_vectors > 0;
    let command = case.config.word(COMMAND).unwrap_or(0);
    let has_pin = case.config.word(INTERRUPT_PIN).is_some_and(|word| word >> 8 != 0);
    if !has_messages || !has_pin {
        return not_applicable("it has no choice between INTx and messages");
    }
    if is_message_signalled(case) || command & INTX_DISABLE != 0 {
        return fine();
    }
    // A driver that has not asked for an interrupt, as while its device is not open, has no handler.
    let irq = case.text("irq").unwrap_or_default();
    let Some(line) = interrupt_line(case, &irq)? else { return fine() };
    found(Found {
        severity: Severity::Warning,
        text: format!("{} interrupts by INTx, although it has MSI or MSI-X ({driver})", case.bdf),
        evidence: vec![case.register("Command", COMMAND, command), seen("/proc/interrupts", &line)],
        consequence: "one interrupt for all queues, shared with others, and a register read in each handler",
        remedy: "look at the driver's parameters (modinfo) and at pci=nomsi on the kernel's command line",
    })
}

/// Receive queues of the network interfaces of a function.
fn queues(case: &Case) -> usize {
    let root = case.machine.root;
    let of = |interface: String| {
        let folder = case.path("net").join(interface).join("queues");
        root.names(folder).iter().filter(|name| name.starts_with("rx-")).count()
    };
    root.names(case.path("net")).into_iter().map(of).sum()
}

pub fn few(case: &Case) -> Verdict {
    let queues = queues(case);
    let vectors = case.machine.root.names(case.path("msi_irqs")).len();
    if queues == 0 || vectors == 0 {
        return not_applicable("it has no receive queues with message-signalled interrupts");
    }
    if vectors >= queues {
        return fine();
    }
    found(Found {
        severity: Severity::Warning,
        text: format!("{} has {queues} receive queues and {vectors} interrupt vectors", case.bdf),
        evidence: vec![
            seen(&case.path("msi_irqs").to_string_lossy(), &format!("{vectors} vectors")),
            seen(&case.path("net").to_string_lossy(), &format!("{queues} receive queues")),
        ],
        consequence: "queues share a vector, and so a CPU: one waits for the other",
        remedy: "ethtool -l and -L: as many queues as vectors; look in the kernel log why the driver got few",
    })
}

pub fn shared(case: &Case) -> Verdict {
    case.not_a_bridge()?;
    case.driver()?;
    let root = case.machine.root;
    // Functions with vectors of their own keep a number in `irq` that they do not use.
    let pin = |case: &Case| {
        let is_pin = root.names(case.path("msi_irqs")).is_empty() && case.function.driver.is_some();
        root.number(case.path("irq")).filter(|irq| is_pin && *irq > 0)
    };
    let Some(irq) = pin(case) else { return not_applicable("it uses no interrupt line") };
    let Some(line) = interrupt_line(case, &irq.to_string())? else { return fine() };
    // The handlers stand at the end, separated by a comma and a blank.
    if !line.contains(", ") {
        return fine();
    }
    let handlers: Vec<&str> = line.split(", ").map(|part| part.rsplit(' ').next().unwrap_or(part)).collect();
    found(Found {
        severity: Severity::Warning,
        text: format!("{} shares interrupt {irq} with others: {}", case.bdf, handlers.join(", ")),
        evidence: vec![case.seen("irq"), seen("/proc/interrupts", &line)],
        consequence: "each interrupt runs all their handlers, which read a register of their devices",
        remedy: "unload a driver that is not needed, or move the card to a slot with another interrupt",
    })
}

pub fn balance(machine: &Machine) -> Verdict {
    let is_pid = |name: &String| name.bytes().all(|b| b.is_ascii_digit());
    let is_it = |pid: &String| machine.root.text(format!("/proc/{pid}/comm")).as_deref() == Some("irqbalance");
    // With the option hidepid of /proc, other users' processes are not seen.
    if machine.root.text("/proc/1/comm").is_none() {
        return not_checked("the processes of other users cannot be seen", AS_ROOT);
    }
    let Some(pid) = machine.root.names("/proc").into_iter().filter(is_pid).find(is_it) else { return fine() };
    found(Found {
        severity: Severity::Warning,
        text: format!("irqbalance is running (process {pid}) and may move interrupts during a run"),
        evidence: vec![machine.seen(&format!("/proc/{pid}/comm"))],
        consequence: "a series of interrupts is spread over CPUs, near and far ones",
        remedy: "systemctl stop irqbalance for the time of the measurement",
    })
}
