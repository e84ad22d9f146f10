//! CPU time: of a thread, of the process, and of the machine.
//!
//! A thread's and a process's **sum** comes from their CPU clocks, which the scheduler keeps to the nanosecond at every
//! switch. How much of it was **user and system** is an estimate on most kernels: with CONFIG_TICK_CPU_ACCOUNTING the
//! tick (CONFIG_HZ, 1 to 10 ms) looks whether the CPU runs user or kernel code, and getrusage divides the exact sum in
//! the ratio of these counts. The division is wrong for work that is synchronous with the tick, or that lasts less than
//! some hundred ticks. With CONFIG_VIRT_CPU_ACCOUNTING_GEN at work (`nohz_full=`) each entry into the kernel is timed,
//! and the division is right to the microsecond of getrusage.
//!
//! The sum of getrusage(RUSAGE_THREAD) alone is coarse too: it is the value that the scheduler last updated, at a tick
//! or a switch (measured at 250 Hz: steps of 4 ms). A read of the thread's clock makes the scheduler update it, so the
//! clock is read first.

use std::collections::BTreeMap;
use std::io;

use rustix::time::{ClockId, clock_gettime};

use crate::{Error, Root};

/// The kernel shows the times of /proc/stat in ticks of USER_HZ, which is 100 on every architecture we run on, in nanoseconds.
pub const STAT_TICK_NS: u64 = 10_000_000;

/// CPU time of a thread or a process since it began, or between two moments, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// All of it, exact to the nanosecond.
    pub total_ns: u64,
    /// Of it in user space, as getrusage divides it: see the head of this module for what that is worth.
    pub user_ns: u64,
    /// Of it in the kernel, likewise.
    pub system_ns: u64,
}

impl Usage {
    /// Of this thread.
    pub fn thread() -> Self {
        Usage::read(ClockId::ThreadCPUTime, libc::RUSAGE_THREAD)
    }

    /// Of all threads of this process, those that ended too; not of its child processes.
    pub fn process() -> Self {
        Usage::read(ClockId::ProcessCPUTime, libc::RUSAGE_SELF)
    }

    /// Of the child processes that were waited for, and of theirs: to the microsecond, as getrusage has it.
    pub fn children() -> Self {
        let Usage { user_ns, system_ns, .. } = Usage::of(0, libc::RUSAGE_CHILDREN);
        Usage { total_ns: user_ns + system_ns, user_ns, system_ns }
    }

    /// The clock first: it brings the scheduler's book up to date for getrusage.
    fn read(clock: ClockId, of: libc::c_int) -> Self {
        let now = clock_gettime(clock);
        Usage::of((now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64), of)
    }

    fn of(total_ns: u64, of: libc::c_int) -> Self {
        // SAFETY: an all-zero rusage is valid, and the kernel writes no more than one.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            let ret = libc::getrusage(of, &mut usage);
            debug_assert_eq!(ret, 0, "{}", io::Error::last_os_error());
            usage
        };
        Usage { total_ns, user_ns: nanos(usage.ru_utime), system_ns: nanos(usage.ru_stime) }
    }

    /// The time used from `earlier` to this. In the kernel none of the three runs backwards.
    pub fn since(&self, earlier: &Usage) -> Usage {
        Usage {
            total_ns: self.total_ns.saturating_sub(earlier.total_ns),
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
        }
    }

    /// The sum over threads.
    pub fn plus(&self, other: &Usage) -> Usage {
        Usage {
            total_ns: self.total_ns + other.total_ns,
            user_ns: self.user_ns + other.user_ns,
            system_ns: self.system_ns + other.system_ns,
        }
    }
}

fn nanos(time: libc::timeval) -> u64 {
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add((time.tv_usec as u64).saturating_mul(1000))
}

/// A line of /proc/stat: where the time of a CPU, or of all CPUs together, went, in nanoseconds, in steps of [`STAT_TICK_NS`].
///
/// The difference of two readings is wrong by up to a step in each figure, for any number of CPUs: over a second of two
/// CPUs that is 0.5 % of the time. The tick finds what a CPU does, as above. Interrupts that the tick cannot see
/// (CONFIG_IRQ_TIME_ACCOUNTING off) are included in the time of what they interrupted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// User space, guests among it.
    pub user_ns: u64,
    /// User space of lowered priority, guests of such among it.
    pub nice_ns: u64,
    /// The kernel, without interrupts.
    pub system_ns: u64,
    /// Nothing to do.
    pub idle_ns: u64,
    /// Nothing to do while a thread that last ran here waited for a disk. The kernel's own documents call it unreliable; it may shrink.
    pub iowait_ns: u64,
    /// Hard interrupts.
    pub irq_ns: u64,
    /// Soft interrupts.
    pub softirq_ns: u64,
    /// Taken by the hypervisor.
    pub steal_ns: u64,
}

impl CpuTime {
    const PATH: &'static str = "/proc/stat";

    /// Reads the first line, that of all CPUs together.
    ///
    /// # Errors
    /// [`Error::Read`]; [`Error::Parse`] where the line is not there or has fewer than four figures.
    pub fn load(root: &Root) -> Result<Self, Error> {
        let text = root.read(Self::PATH)?;
        let line = text.lines().find(|line| line.starts_with("cpu ")).unwrap_or_default();
        line.strip_prefix("cpu ").and_then(Self::parse).ok_or_else(|| Error::Parse {
            path: root.path(Self::PATH),
            text: line.to_owned(),
            what: "a line `cpu user nice system idle ...`",
        })
    }

    /// The line of each CPU that is online, by its number; empty where the file cannot be read.
    pub fn per_cpu(root: &Root) -> BTreeMap<u32, Self> {
        let text = root.read(Self::PATH).unwrap_or_default();
        let line = |line: &str| {
            let (cpu, figures) = line.strip_prefix("cpu")?.split_once(' ')?;
            Some((cpu.parse().ok()?, Self::parse(figures)?))
        };
        text.lines().filter_map(line).collect()
    }

    /// `user nice system idle iowait irq softirq steal guest guest_nice`, in ticks; kernels before 2.6 end after idle.
    fn parse(figures: &str) -> Option<Self> {
        let fields = figures.split_ascii_whitespace();
        let ns: Vec<u64> =
            fields.map(|field| field.parse::<u64>().ok()?.checked_mul(STAT_TICK_NS)).collect::<Option<_>>()?;
        let &[user_ns, nice_ns, system_ns, idle_ns, ..] = ns.as_slice() else { return None };
        let later = |place: usize| ns.get(place).copied().unwrap_or(0);
        let (iowait_ns, irq_ns, softirq_ns, steal_ns) = (later(4), later(5), later(6), later(7));
        Some(CpuTime { user_ns, nice_ns, system_ns, idle_ns, iowait_ns, irq_ns, softirq_ns, steal_ns })
    }

    /// What was spent from `earlier` to this. A figure that ran backwards (iowait may, and idle when a CPU goes offline) is 0.
    pub fn since(&self, earlier: &CpuTime) -> CpuTime {
        CpuTime {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            nice_ns: self.nice_ns.saturating_sub(earlier.nice_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
            idle_ns: self.idle_ns.saturating_sub(earlier.idle_ns),
            iowait_ns: self.iowait_ns.saturating_sub(earlier.iowait_ns),
            irq_ns: self.irq_ns.saturating_sub(earlier.irq_ns),
            softirq_ns: self.softirq_ns.saturating_sub(earlier.softirq_ns),
            steal_ns: self.steal_ns.saturating_sub(earlier.steal_ns),
        }
    }

    /// The share in percent that the seed's tool computes: user, nice and system over these and idle. It leaves out iowait,
    /// interrupts and stolen time on both sides, so it reads too high where a disk is waited for, and too low where
    /// interrupts are what is done. `None` where no time passed.
    pub fn busy_percent(&self) -> Option<f64> {
        let busy = self.user_ns + self.nice_ns + self.system_ns;
        share(busy, busy + self.idle_ns)
    }

    /// The share in percent of all time that the hypervisor took. `None` where no time passed.
    pub fn stolen_percent(&self) -> Option<f64> {
        share(self.steal_ns, self.total_ns())
    }

    /// All figures together: elapsed time times CPUs.
    pub fn total_ns(&self) -> u64 {
        let ours = [self.user_ns, self.nice_ns, self.system_ns, self.irq_ns, self.softirq_ns];
        let all = ours.into_iter().chain([self.idle_ns, self.iowait_ns, self.steal_ns]);
        all.fold(0, u64::saturating_add)
    }
}

fn share(part: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| 100.0 * part as f64 / of as f64)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::test::Tree;

    fn spin(time: Duration) -> u64 {
        let (begun, mut turns) = (Instant::now(), 0u64);
        while begun.elapsed() < time {
            turns = std::hint::black_box(turns + 1);
        }
        turns
    }

    fn root_with(stat: &str) -> Tree {
        Tree::of(&[("proc/stat", stat)])
    }

    #[test]
    fn a_threads_sum_has_no_steps_of_the_tick() {
        // Each short spin must show in the sum at once; getrusage alone would show nothing until the next tick.
        let mut blind = 0;
        for _ in 0..50 {
            let before = Usage::thread();
            spin(Duration::from_micros(100));
            let used = Usage::thread().since(&before);
            blind += u32::from(used.total_ns == 0);
        }
        assert_eq!(blind, 0);
    }

    #[test]
    fn the_parts_add_up_to_the_sum_of_the_clock() {
        std::thread::spawn(|| {
            spin(Duration::from_millis(60));
            let used = Usage::thread();
            let parts = used.user_ns + used.system_ns;
            // The parts are read a moment later and in microseconds.
            assert!(parts + 2_000 >= used.total_ns, "{used:?}");
            assert!(parts <= used.total_ns + 20_000_000, "{used:?}");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn another_threads_time_is_the_processs_and_not_this_ones() {
        let (thread, process) = (Usage::thread(), Usage::process());
        let spent = std::thread::spawn(|| {
            spin(Duration::from_millis(80));
            Usage::thread().total_ns
        })
        .join()
        .unwrap();
        let (thread, process) = (Usage::thread().since(&thread), Usage::process().since(&process));
        assert!(process.total_ns >= spent, "{process:?} {spent}");
        assert!(thread.total_ns < spent / 2, "{thread:?} {spent}");
    }

    #[test]
    fn sums_and_shares_are_of_nanoseconds() {
        let used = Usage { total_ns: 30, user_ns: 20, system_ns: 10 };
        assert_eq!(used.plus(&used), Usage { total_ns: 60, user_ns: 40, system_ns: 20 });
        assert_eq!(used.since(&used), Usage::default());
    }

    #[test]
    fn the_machines_shares_are_the_seed_tools_and_the_whole_truth_apart() {
        let root = root_with("cpu  100 10 40 200 50 7 3 20 5 1\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 1\n");
        let before = CpuTime::load(&root).unwrap();
        assert_eq!((before.user_ns, before.iowait_ns, before.steal_ns), (1_000_000_000, 500_000_000, 200_000_000));
        let root = root_with("cpu  130 10 60 250 150 17 43 40 5 1\n");
        let spent = CpuTime::load(&root).unwrap().since(&before);
        // 50 of user and system, 50 idle; 100 of iowait, 50 of interrupts, 20 stolen.
        assert_eq!(spent.busy_percent(), Some(50.0));
        assert_eq!(spent.total_ns(), 270 * STAT_TICK_NS);
        assert!((spent.stolen_percent().unwrap() - 100.0 * 20.0 / 270.0).abs() < 1e-9);
        assert_eq!(before.since(&before).busy_percent(), None);
    }

    #[test]
    fn each_cpu_has_its_line_and_a_line_that_is_cut_short_counts_as_absent() {
        let text = "cpu  9 9 9 9 9 9 9 99 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu12 1 2 3 4 5 6 7 0 0 0\ncpu13 1 2 3\nintr 1 2 3\n";
        let root = root_with(text);
        let stolen: Vec<_> = CpuTime::per_cpu(&root).into_iter().map(|(cpu, time)| (cpu, time.steal_ns)).collect();
        assert_eq!(stolen, [(0, 80_000_000), (12, 0)]);
        assert!(CpuTime::per_cpu(&Root::at("/nowhere")).is_empty());
    }

    #[test]
    fn a_figure_that_ran_backwards_is_nothing() {
        let before = CpuTime { iowait_ns: 50, idle_ns: 10, ..CpuTime::default() };
        let after = CpuTime { iowait_ns: 40, idle_ns: 30, ..CpuTime::default() };
        assert_eq!(after.since(&before), CpuTime { idle_ns: 20, ..CpuTime::default() });
    }

    #[test]
    fn an_old_kernels_short_line_will_do_and_a_shorter_one_is_refused() {
        let root = root_with("cpu 1 2 3 4\n");
        assert_eq!(CpuTime::load(&root).unwrap().idle_ns, 4 * STAT_TICK_NS);
        for bad in ["cpu 1 2 3\n", "cpu0 1 2 3 4 5\n", "", "cpu 1 x 3 4\n", "cpu 1 2 3 99999999999999999999\n"] {
            let root = root_with(bad);
            let error = CpuTime::load(&root).unwrap_err();
            assert!(matches!(error, Error::Parse { .. }), "{bad:?}: {error}");
        }
        assert!(matches!(CpuTime::load(&Root::at("/nowhere")).unwrap_err(), Error::Read { .. }));
    }

    #[test]
    fn this_machines_line_is_read() {
        let root = Root::default();
        let before = CpuTime::load(&root).unwrap();
        spin(Duration::from_millis(200));
        let spent = CpuTime::load(&root).unwrap().since(&before);
        assert!(spent.total_ns() > 0 && spent.busy_percent().unwrap() > 0.0, "{spent:?}");
    }
}
