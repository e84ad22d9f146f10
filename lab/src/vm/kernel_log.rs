//! What the kernel's log must never show, whatever a test does.

/// Text that marks a fault of the kernel or of a driver.
const FAULTS: [&str; 21] = [
    "WARNING:",
    "BUG:",
    "BUG at",
    "Oops",
    "Call Trace",
    "UBSAN",
    "KASAN",
    "KCSAN",
    "refcount_t",
    "unregister_netdevice",
    "Kernel panic",
    "general protection fault",
    "possible recursive locking",
    "possible circular locking",
    "possible irq lock inversion",
    "inconsistent lock state",
    "suspicious RCU usage",
    "held lock",
    "nobody cared",
    "scheduling while atomic",
    "sysfs: cannot create duplicate",
];

/// The lines of `log` that report a fault.
pub fn kernel_faults(log: &str) -> Vec<&str> {
    log.lines().filter(|line| FAULTS.iter().any(|fault| line.contains(fault))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_faults_and_nothing_else() {
        let log = "[    0.1] Linux version 6.12\n\
                   [    1.2] WARNING: CPU: 0 PID: 1 at kernel/irq/chip.c:1 f+0x1/0x2\n\
                   [    1.3] e1000e 0000:01:00.0: a warning: the link is down\n\
                   [    2.0] irq 16: nobody cared (try booting with the \"irqpoll\" option)\n\
                   [    3.0] BUG: unable to handle page fault";
        let faults = kernel_faults(log);
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert!(faults[1].contains("nobody cared"));
    }
}
