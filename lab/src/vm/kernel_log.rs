//! The messages that the kernel's log must not have after any test.

/// Text that marks a fault of the kernel or of a driver.
const FAULTS: [&str; 34] = [
    "WARNING:",
    "BUG:",
    "BUG at",
    "Oops",
    "Call Trace",
    // As arm64 writes it.
    "Call trace",
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
    "suspected memory leaks",
    "DMA-API: ",
    "ODEBUG: ",
    "memory corruption",
    "Invalid wait context",
    "nested lock was not taken",
    "blocked for more than",
    "rcu: INFO: ",
    "page allocation failure",
    "Flags mismatch irq",
    "soft lockup",
    // kmemleak switches itself off where it has no memory: then it finds nothing.
    "Kernel memory leak detector disabled",
];

/// What a kernel that looks for faults says of itself at boot.
const OF_ITSELF: [&str; 2] = ["DMA-API: preallocated ", "DMA-API: debugging enabled "];

/// What begins a report of a data race, and what stands above and below each report.
const RACE: &str = "BUG: KCSAN: ";
const RULE: &str = "==================================================================";

/// How a call trace names the modules of this project.
const OURS: [&str; 6] = ["[pcilat]", "[sis8300]", "[rasdes_pmu]", "[drw_pmu]", "[pciescope_lab]", "[pciescope_awake]"];

/// So many lines before a fault are shown with it, and so many after it: registers, modules and the call trace.
const BEFORE: usize = 3;
const AFTER: usize = 40;

/// What is shown of faults at most, in lines.
const SHOWN: usize = 200;

/// The faults in `log` with the lines around them, which say how each came about; `None` where there are none.
pub(super) fn faults_with_context(log: &str) -> Option<String> {
    let lines = without_reports_of_others(log);
    let mut shown: Vec<&str> = Vec::new();
    let mut next = 0;
    for (at, line) in lines.iter().enumerate() {
        if kernel_faults(line).is_empty() {
            continue;
        }
        let from = next.max(at.saturating_sub(BEFORE));
        next = lines.len().min(at + AFTER);
        shown.extend(&lines[from..next]);
    }
    shown.truncate(SHOWN);
    (!shown.is_empty()).then(|| shown.join("\n"))
}

/// The lines of `log` that report a fault.
pub fn kernel_faults(log: &str) -> Vec<&str> {
    without_reports_of_others(log).into_iter().filter(|line| has(line, &FAULTS) && !has(line, &OF_ITSELF)).collect()
}

fn has(line: &str, words: &[&str]) -> bool {
    words.iter().any(|word| line.contains(word))
}

/// The lines of `log` without the reports of faults that are the kernel's own. A report without its end stays.
pub fn without_reports_of_others(log: &str) -> Vec<&str> {
    let lines: Vec<&str> = log.lines().collect();
    let mut kept = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        match report_of_others(&lines[at..]) {
            Some(length) => at += length,
            None => {
                kept.push(lines[at]);
                at += 1;
            }
        }
    }
    kept
}

/// The length of the kernel's own report that begins with the first of `lines`, in lines.
///
/// The kernel has data races in which no module of ours takes part, and KCSAN looks at all of it. Where a disk was unplugged,
/// its NVMe driver returns from a timeout with a frozen queue, which lockdep takes for a lock (6.12), or leaves vectors to an
/// ITS that is taken down (7.3). And its aer_inject, through which a port's accesses go once an error was injected there,
/// takes a lock that may sleep on PREEMPT_RT, also where the caller may not sleep (7.3).
fn report_of_others(lines: &[&str]) -> Option<usize> {
    let to = |end: &str| lines.iter().position(|line| line.contains(end)).map(|last| last + 1);
    if lines[0].contains(RACE) {
        return to(RULE).filter(|length| !is_race_of_ours(&lines[..*length]));
    }
    let is_timeout = lines.get(1).is_some_and(|line| line.contains("workfn=blk_mq_timeout_work"));
    if lines[0].contains("BUG: workqueue leaked") && is_timeout {
        return to("</TASK>");
    }
    // Another CPU's messages may stand between.
    let is_aer_inject = lines.iter().take(30).any(|line| line.contains(" at: aer_inj_"));
    if lines[0].contains("[ BUG: Invalid wait context ]") && is_aer_inject {
        return to("</TASK>");
    }
    let is_teardown =
        lines.get(2).is_some_and(|line| line.contains("WARNING: ") && line.contains(" at its_msi_teardown+"));
    let is_nvme = lines[0].contains("] nvme ") && lines[0].contains("Disabling device after reset failure");
    if is_nvme && is_teardown { to("---[ end trace ") } else { None }
}

/// Whether a module of ours is in one of a report's two traces. The frames below an interrupt's entry are those of the code
/// that it interrupted, which takes no part.
fn is_race_of_ours(report: &[&str]) -> bool {
    let mut is_interrupted = false;
    report.iter().any(|line| {
        // "read to 0xffff88802f01ef58 of 8 bytes by interrupt on cpu 2:"
        is_interrupted &= !line.contains(" bytes by ");
        is_interrupted |= has(line, &["asm_sysvec_", "asm_common_interrupt"]);
        !is_interrupted && has(line, &OURS)
    })
}

/// Whether the kernel died of a breakpoint that is not there: the byte before the one at which it stopped is no `int3`.
///
/// The kernel sets one while it changes its own code, and removes it. A translated CPU ran the code of that moment later.
pub(super) fn died_of_stale_code(log: &str) -> bool {
    // Before 6.12 without "Oops: ".
    let mut lines = log.lines().skip_while(|line| !has(line, &["] Oops: int3: ", "] int3: "]));
    let code = lines.find_map(|line| line.split_once("] Code: ")).map(|(_, bytes)| bytes);
    let before = code.and_then(|bytes| bytes.split_once(" <")).and_then(|(before, _)| before.rsplit(' ').next());
    before.is_some_and(|byte| byte != "cc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_shown_with_its_surroundings_once() {
        let log: Vec<String> = (0..200)
            .map(|n| if [50, 60, 198].contains(&n) { format!("{n} WARNING: f") } else { n.to_string() })
            .collect();
        let shown = faults_with_context(&log.join("\n")).expect("there are faults");
        let shown: Vec<&str> = shown.lines().collect();
        let expected: Vec<&str> = log[47..100].iter().chain(&log[195..]).map(String::as_str).collect();
        assert_eq!(shown, expected);
        assert_eq!(faults_with_context("all is well\n"), None);
    }

    #[test]
    fn a_data_race_counts_where_a_module_of_ours_takes_part() {
        let report = |frame: &str| {
            format!(
                "[ 1.0] {RULE}\n[ 1.0] BUG: KCSAN: data-race in tick / tock\n[ 1.0]  tick+0x1/0x2\n[ 1.0] and\n\
                 [ 1.0]  {frame}\n[ 1.0] Reported by Kernel Concurrency Sanitizer on:\n[ 1.0] {RULE}\n"
            )
        };
        let others = report("tock+0x1/0x2 [nvme]");
        let ours = report("tock+0x1/0x2 [drw_pmu]");
        assert!(kernel_faults(&others).is_empty());
        let interrupted =
            "hrtimer_interrupt+0x1/0x2\n[ 1.0]  asm_sysvec_apic_timer_interrupt+0x1/0x2\n[ 1.0]  f+0x1/0x2 [pcilat]";
        assert!(kernel_faults(&report(interrupted)).is_empty(), "pcilat was only interrupted");
        let next =
            format!("{interrupted}\n[ 1.0] read to 0x1 of 8 bytes by task 1 on cpu 2:\n[ 1.0]  f+0x1/0x2 [pcilat]");
        assert_eq!(kernel_faults(&report(&next)).len(), 1, "the other trace is of ours");
        assert_eq!(kernel_faults(&format!("{others}{ours}{others}")).len(), 1, "the race of ours");
        // What follows is not left out, nor is a report whose end is missing.
        assert_eq!(kernel_faults(&format!("{others}[ 2.0] WARNING: CPU: 0 PID: 1")).len(), 1);
        let cut = others.rsplit_once(RULE).expect("it ends with a rule").0;
        assert_eq!(kernel_faults(cut).len(), 1);
    }

    #[test]
    fn a_lock_that_the_kernels_nvme_driver_leaves_held_does_not_count() {
        let report = |work: &str| {
            format!(
                "[ 1.0] BUG: workqueue leaked atomic, lock or RCU: kworker/0:1H[76]\n\
                 [ 1.0]      preempt=0x00000000 lock=0->2 RCU=0->0 workfn={work}\n\
                 [ 1.1] Call Trace:\n[ 1.1]  <TASK>\n[ 1.1]  process_one_work+0x1/0x2\n[ 1.1]  </TASK>\n"
            )
        };
        let nvme = report("blk_mq_timeout_work");
        assert!(kernel_faults(&nvme).is_empty());
        assert_eq!(kernel_faults(&report("rasdes_poll")).len(), 2);
        assert_eq!(kernel_faults(&format!("{nvme}[ 2.0] WARNING: CPU: 0 PID: 1")).len(), 1);
    }

    #[test]
    fn the_lock_of_the_kernels_aer_inject_does_not_count() {
        let report = |lock: &str| {
            format!(
                "[ 1.0] [ BUG: Invalid wait context ]\n[ 1.0] 7.3.4-kasan #1 Tainted: G           OE      \n\
                 [ 1.0] -----------------------------\n[ 1.0] kworker/u21:1/111 is trying to lock:\n\
                 [ 1.0] ffffffffa0292278 (lock){{-...}}-{{3:3}}, at: {lock}\n[ 1.0] Call Trace:\n[ 1.0]  <TASK>\n\
                 [ 1.1]  {lock}\n[ 1.1]  rasdes_counter_read+0x49f/0x7d0 [rasdes_pmu]\n[ 1.1]  </TASK>\n"
            )
        };
        let injected = report("aer_inj_write_config+0x72/0x4b0 [aer_inject]");
        assert!(kernel_faults(&injected).is_empty());
        assert_eq!(kernel_faults(&report("rasdes_poll+0x1/0x2 [rasdes_pmu]")).len(), 2);
        assert_eq!(kernel_faults(&format!("{injected}[ 2.0] WARNING: CPU: 0 PID: 1")).len(), 1);
    }

    #[test]
    fn vectors_that_the_kernels_nvme_driver_leaves_do_not_count() {
        let report = |before: &str| {
            format!(
                "[ 1.0] {before}\n[ 1.1] ------------[ cut here ]------------\n\
                 [ 1.1] WARNING: drivers/irqchip/irq-gic-v3-its.c:3637 at its_msi_teardown+0x128/0x158, CPU#1: irq/52-pciehp/71\n\
                 [ 1.1] Call trace:\n[ 1.1]  its_msi_teardown+0x128/0x158 (P)\n[ 1.2] ---[ end trace 0000000000000000 ]---\n"
            )
        };
        let nvme = report("nvme nvme1: Disabling device after reset failure: -19");
        assert!(kernel_faults(&nvme).is_empty());
        assert_eq!(kernel_faults(&report("pcilat 0000:01:00.0: removed")).len(), 2, "the warning and its trace");
        assert_eq!(kernel_faults(&format!("{nvme}[ 2.0] WARNING: CPU: 0 PID: 1")).len(), 1);
    }

    #[test]
    fn a_breakpoint_that_is_not_there_is_told_from_one_that_is() {
        let log = |oops: &str, code: &str| {
            format!(
                "[    2.83] {oops}: 0000 [#1] PREEMPT SMP NOPTI\n[    2.83] RIP: 0010:hrtimer_start_range_ns+0x1c6/0x430\n\
                 [    2.83] Code: 50 5e 02 00 10 0f 84 fe 01 00 00 {code} 44 00 00\n[    2.83] RSP: 0018:ffffc900002a0d98\n"
            )
        };
        assert!(died_of_stale_code(&log("Oops: int3", "0f <1f>")));
        assert!(died_of_stale_code(&log("int3", "0f <1f>")), "5.10 and 6.1");
        assert!(!died_of_stale_code(&log("Oops: int3", "cc <1f>")), "a breakpoint");
        assert!(!died_of_stale_code(&log("Oops: invalid opcode", "0f <1f>")));
        assert!(!died_of_stale_code(""));
    }

    #[test]
    fn finds_faults_and_nothing_else() {
        let log = "[    0.1] Linux version 6.12\n\
                   [    1.1] DMA-API: preallocated 65536 debug entries\n\
                   [    1.2] WARNING: CPU: 0 PID: 1 at kernel/irq/chip.c:1 f+0x1/0x2\n\
                   [    1.3] e1000e 0000:01:00.0: a warning: the link is down\n\
                   [    2.0] irq 16: nobody cared (try booting with the \"irqpoll\" option)\n\
                   [    3.0] BUG: unable to handle page fault\n\
                   [    4.0] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\n\
                   [    5.0] genirq: Flags mismatch irq 16. 00000080 (a) vs. 00000000 (b)\n\
                   [    6.0] kmemleak: Kernel memory leak detector disabled";
        let faults = kernel_faults(log);
        assert_eq!(faults.len(), 6, "{faults:?}");
        assert!(faults[1].contains("nobody cared"));
    }
}
