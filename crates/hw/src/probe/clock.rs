//! The clock of the user-space probes: a counter that is read in a few nanoseconds, ordered around an access.

use pciescope_core::warning;
use std::arch::asm;
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use pciescope_core::record::{Method, Warning};

/// The counter's name as a record has it.
#[cfg(target_arch = "x86_64")]
pub const NAME: &str = "tsc";
/// The counter's name as a record has it.
#[cfg(target_arch = "aarch64")]
pub const NAME: &str = "cntvct";

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the probes know the counters of x86_64 and aarch64 only");

/// The stamp before an access: everything before it is complete, and nothing after it has begun.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn start() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads a counter into two registers; it touches no memory. It is not marked `nomem`, so that the
    // compiler moves no access across it either.
    unsafe { asm!("lfence", "rdtsc", "lfence", out("eax") low, out("edx") high, options(nostack, preserves_flags)) };
    u64::from(high) << 32 | u64::from(low)
}

/// The stamp after an access: all loads before it are complete. With it the CPU that Linux wrote into TSC_AUX.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn end() -> (u64, Option<u32>) {
    let (low, high, aux): (u32, u32, u32);
    // SAFETY: as in `start`.
    unsafe {
        asm!("rdtscp", "lfence", out("eax") low, out("edx") high, out("ecx") aux, options(nostack, preserves_flags))
    };
    // Linux keeps the CPU in bits 11:0 and the node above.
    (u64::from(high) << 32 | u64::from(low), Some(aux & 0xfff))
}

/// The stamp before an access: everything before it is complete, and nothing after it has begun.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn start() -> u64 {
    let ticks: u64;
    // SAFETY: reads a counter that Linux opens to user space; it is not marked `nomem`, so that the compiler moves
    // no access across it. The barrier before it holds it behind earlier loads, the one after it before later ones.
    unsafe { asm!("dsb ld", "isb", "mrs {}, cntvct_el0", "isb", out(reg) ticks, options(nostack, preserves_flags)) };
    ticks
}

/// The stamp after an access: all loads before it are complete. The second value is what x86 has.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn end() -> (u64, Option<u32>) {
    (start(), None)
}

/// Why the stamps cannot be taken on this CPU.
#[cfg(target_arch = "x86_64")]
pub fn check() -> Result<(), String> {
    // Unsafe up to Rust 1.93, and there for a reason that user space on Linux does not have.
    #[allow(unused_unsafe)]
    // SAFETY: every x86_64 CPU has the instruction.
    let cpuid = |leaf: u32| unsafe { core::arch::x86_64::__cpuid(leaf) };
    let has = |leaf: u32, bit: u32| cpuid(leaf & 0x8000_0000).eax >= leaf && cpuid(leaf).edx >> bit & 1 == 1;
    if has(0x8000_0001, 27) { Ok(()) } else { Err("this CPU has no RDTSCP".to_owned()) }
}

/// Why the stamps cannot be taken on this CPU.
#[cfg(target_arch = "aarch64")]
pub fn check() -> Result<(), String> {
    Ok(())
}

/// CLOCK_MONOTONIC_RAW in nanoseconds: neither a change of the date nor NTP adjusts it.
pub fn monotonic_raw_ns() -> u64 {
    now_ns(libc::CLOCK_MONOTONIC_RAW)
}

fn now_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is on our stack and the call writes nothing else.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Two clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// The counter.
    pub ticks: u64,
    /// The other clock, in nanoseconds.
    pub ns: u64,
    /// The reading of the other lies within so many ticks around the counter's.
    pub error: u64,
}

/// The counter and CLOCK_MONOTONIC, by which the kernel stamps its events.
pub fn pair() -> Pair {
    both(libc::CLOCK_MONOTONIC)
}

/// Both clocks at one moment. It takes the closest of several tries, in case the thread is descheduled between them.
fn both(clock: libc::clockid_t) -> Pair {
    let pairs = (0..16).map(|_| {
        let before = start();
        let ns = now_ns(clock);
        let error = start().wrapping_sub(before) / 2;
        Pair { ticks: before.wrapping_add(error), ns, error }
    });
    pairs.min_by_key(|pair| pair.error).expect("there were tries")
}

/// Ticks per second, counted against CLOCK_MONOTONIC_RAW for at least `span`.
pub fn measure_hz(span: Duration) -> u64 {
    let before = both(libc::CLOCK_MONOTONIC_RAW);
    let begun = Instant::now();
    while begun.elapsed() < span {
        std::thread::sleep(span.saturating_sub(begun.elapsed()));
    }
    let after = both(libc::CLOCK_MONOTONIC_RAW);
    let (ticks, ns) = (after.ticks.wrapping_sub(before.ticks), after.ns.saturating_sub(before.ns).max(1));
    ((u128::from(ticks) * 1_000_000_000 + u128::from(ns) / 2) / u128::from(ns)) as u64
}

/// Ticks per second by CLOCK_MONOTONIC_RAW, counted once for the whole program: a run is made of many calls.
pub fn measured_hz() -> u64 {
    static HZ: OnceLock<u64> = OnceLock::new();
    *HZ.get_or_init(|| measure_hz(Duration::from_millis(150)))
}

/// What the hardware says of the counter's rate, where it does. Firmware writes this register: it may hold 0.
#[cfg(target_arch = "aarch64")]
pub fn stated_hz() -> Option<u64> {
    let hz: u64;
    // SAFETY: reads a register that Linux opens to user space.
    unsafe { asm!("mrs {}, cntfrq_el0", out(reg) hz, options(nomem, nostack, preserves_flags)) };
    Some(hz)
}

/// What the hardware says of the counter's rate, where it does.
#[cfg(target_arch = "x86_64")]
pub fn stated_hz() -> Option<u64> {
    None
}

/// Readings by which [`step_ticks`] finds the step.
const READINGS: usize = 4000;

/// By how many ticks the counter advances at a time, as [`step_of`] finds it, once for the whole program. The counter of an
/// Arm may advance by several ticks at once, at a lower rate (Arm Architecture Reference Manual), and so may a TSC (seen
/// on an AMD EPYC: 26).
pub fn step_ticks() -> u64 {
    static STEP: OnceLock<u64> = OnceLock::new();
    *STEP.get_or_init(|| step_of(&readings()))
}

/// Stamps one after the other, with pauses of different lengths: a loop that always takes the same time would look like
/// a step.
fn readings() -> Vec<u64> {
    let mut stamps = Vec::with_capacity(READINGS);
    for reading in 0..READINGS {
        (0..reading % 61).for_each(|turn| _ = black_box(turn));
        stamps.push(start());
    }
    stamps
}

/// The step of a counter by stamps that were taken one after the other. If some are equal, the counter is slower than its
/// readings, and the smallest other difference is a step. If none are, each difference is a multiple of the step.
fn step_of(stamps: &[u64]) -> u64 {
    let differences = || stamps.windows(2).filter_map(|pair| pair[1].checked_sub(pair[0]));
    let step = if differences().any(|difference| difference == 0) {
        differences().filter(|&difference| difference > 0).min()
    } else {
        differences().reduce(num_integer::gcd)
    };
    step.unwrap_or(1)
}

/// Nanoseconds as ticks of a counter of `hz` per second, rounded down.
pub fn to_ticks(ns: u64, hz: u64) -> u64 {
    u64::try_from(u128::from(ns) * u128::from(hz) / 1_000_000_000).unwrap_or(u64::MAX)
}

/// The smallest difference of two stamps that is not 0, in nanoseconds, of a counter of `hz` ticks per second that
/// advances by `step` of them at a time.
pub fn quantum_ns(hz: u64, step: u64) -> f64 {
    step as f64 * 1e9 / hz.max(1) as f64
}

/// The note of a record on a counter that advances by several ticks at a time.
pub fn step_note(hz: u64, step: u64) -> Option<String> {
    let ns = quantum_ns(hz, step);
    (step > 1).then(|| format!("The clock was seen to advance by {step} ticks ({ns:.1} ns) at a time."))
}

/// What a record says of the clock of a probe in user space, for accesses that are timed one by one with interrupts on.
pub fn method(backend: &str) -> Method {
    method_at(backend, stated_hz(), measured_hz(), step_ticks())
}

/// The same at given rates and a given step. Without a stated rate the measured one is used.
fn method_at(backend: &str, stated_hz: Option<u64>, measured_hz: u64, step: u64) -> Method {
    let hz = stated_hz.filter(|&hz| hz > 0).unwrap_or(measured_hz);
    let mut notes = vec![note(hz, measured_hz)];
    if stated_hz == Some(0) {
        notes.push("The counter's frequency register (CNTFRQ_EL0) holds 0: the measured rate was used.".to_owned());
    }
    notes.extend(step_note(hz, step));
    Method {
        backend: backend.to_owned(),
        clock: NAME.to_owned(),
        clock_hz: hz,
        quantum_ns: quantum_ns(hz, step),
        batch: 1,
        notes,
        ..Method::default()
    }
}

/// The note of a record on how far the clock may be off.
pub fn note(hz: u64, measured_hz: u64) -> String {
    let ppm = ppm(hz, measured_hz);
    format!("The clock counts {measured_hz} Hz by CLOCK_MONOTONIC_RAW, {ppm:+.0} ppm from what was used.")
}

/// The warning of every outcome that was measured at the rate `hz`, if that is wrong.
pub fn doubt(hz: u64, measured_hz: u64) -> Option<Warning> {
    let ppm = ppm(hz, measured_hz);
    (ppm.abs() > 1000.0).then(|| {
        warning::CLOCK_RATE.hinted(
            format!("the clock's rate lies {ppm:+.0} ppm from CLOCK_MONOTONIC_RAW: every duration is off by that"),
            RATE_HINT.to_owned(),
        )
    })
}

#[cfg(target_arch = "x86_64")]
const RATE_HINT: &str = "look at the kernel's clocksource and its messages about the TSC";
#[cfg(target_arch = "aarch64")]
const RATE_HINT: &str =
    "the firmware sets the register CNTFRQ_EL0: compare it with the kernel's messages about arch_timer";

/// The distance of `hz` from `measured`, in ppm of `measured`.
pub fn ppm(hz: u64, measured: u64) -> f64 {
    (hz as f64 - measured as f64) / measured.max(1) as f64 * 1e6
}

/// Exact conversion of counter ticks to time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Ticks per second.
    pub hz: u64,
    /// How many accesses a value covers; 1 or more.
    pub accesses: u64,
}

impl Scale {
    /// Picoseconds of one access, rounded to the nearest.
    pub fn ps(self, ticks: u64) -> u64 {
        u64::try_from(self.ps_wide(u128::from(ticks))).unwrap_or(u64::MAX)
    }

    /// The same for sums over many samples.
    pub fn ps_wide(self, ticks: u128) -> u128 {
        let per = u128::from(self.hz.max(1)) * u128::from(self.accesses.max(1));
        match ticks.checked_mul(1_000_000_000_000) {
            Some(product) => (product + per / 2) / per,
            // Over 10^26 ticks: the remainder is far below what f64 keeps of the quotient.
            None => ticks / per * 1_000_000_000_000,
        }
    }

    /// Ticks to nanoseconds, not divided by the number of accesses.
    pub fn at_ns(self, ticks: u64) -> u64 {
        (u128::from(ticks) * 1_000_000_000 / u128::from(self.hz.max(1))) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_agrees_with_the_kernels_clock_twice() {
        let (one, two) = (measure_hz(Duration::from_millis(100)), measure_hz(Duration::from_millis(100)));
        assert!(one > 1_000_000, "{one} Hz");
        assert!(ppm(one, two).abs() < 2000.0, "{one} {two}");
    }

    #[test]
    fn stamps_go_forward_and_name_the_cpu() {
        let cpu = crate::probe::sys::Pinned::here();
        let a = start();
        let (b, aux) = end();
        assert!(b > a);
        if let (Some(aux), Ok(pinned)) = (aux, cpu) {
            assert_eq!(aux, pinned.cpu() & 0xfff);
        }
    }

    #[test]
    fn ticks_become_picoseconds_without_overflow_or_drift() {
        let scale = Scale { hz: 2_600_000_000, accesses: 1 };
        assert_eq!(scale.ps(1), 385);
        assert_eq!(scale.ps(2_600_000_000 * 3600), pciescope_core::histogram::MAX_PS);
        assert_eq!(Scale { hz: 24_000_000, accesses: 100 }.ps(2400), 1_000_000);
        assert_eq!(scale.ps_wide(2_600_000_000u128 << 64), 1_000_000_000_000u128 << 64);
        assert_eq!(scale.at_ns(2_600), 1_000);
    }

    #[test]
    fn the_step_of_a_counter_is_found_in_its_stamps() {
        let stamps = |stamp: &dyn Fn(u64) -> u64| (0..4000).map(stamp).collect::<Vec<u64>>();
        // Read faster than it advances, by 32 and by 41 or 42.
        assert_eq!(step_of(&stamps(&|n| n * 7 / 32 * 32)), 32);
        assert_eq!(step_of(&stamps(&|n| n * 7 * 24 / 1000 * 1000 / 24)), 41);
        // Read more slowly than it advances, by 32, by 10 and by 1.
        assert_eq!(step_of(&stamps(&|n| (n * 170 + n * n % 61) / 32 * 32)), 32);
        assert_eq!(step_of(&stamps(&|n| (n * 83 + n * n % 61) / 10 * 10)), 10);
        assert_eq!(step_of(&stamps(&|n| n * 152 + n * n % 61)), 1);
        // A slow counter that advances by 1.
        assert_eq!(step_of(&stamps(&|n| n / 3)), 1);
        // A stamp behind the one before says nothing; neither do stamps that are too few or all the same.
        assert_eq!(step_of(&[64, 96, 95, 159]), 32);
        assert_eq!((step_of(&[]), step_of(&[7]), step_of(&[7, 7, 7])), (1, 1, 1));
    }

    #[test]
    fn a_counter_that_advances_by_several_ticks_has_a_larger_quantum_and_says_so() {
        let method = method_at("test", Some(1_000_000_000), 1_000_000_000, 32);
        assert_eq!((method.clock_hz, method.quantum_ns), (1_000_000_000, 32.0));
        assert!(method.notes[1].contains("by 32 ticks (32.0 ns) at a time"), "{:?}", method.notes);
        let method = method_at("test", Some(1_000_000_000), 1_000_000_000, 1);
        assert_eq!((method.quantum_ns, method.notes.len()), (1.0, 1));
    }

    #[test]
    fn this_machines_step_is_small() {
        let step = step_ticks();
        assert!((1..1000).contains(&step), "{step}");
        // Where none are equal, every difference of other readings is a multiple of it, or it says too much.
        let stamps = readings();
        let differences: Vec<u64> = stamps.windows(2).filter_map(|pair| pair[1].checked_sub(pair[0])).collect();
        assert!(differences.contains(&0) || differences.iter().all(|difference| difference % step == 0), "{step}");
    }

    #[test]
    fn a_rate_that_the_firmware_left_at_0_is_not_used() {
        let method = method_at("test", Some(0), 25_000_000, 1);
        assert_eq!((method.clock_hz, method.quantum_ns), (25_000_000, 40.0));
        assert!(method.notes[1].contains("CNTFRQ_EL0"), "{:?}", method.notes);
        for (stated, used) in [(Some(24_000_000), 24_000_000), (None, 25_000_000)] {
            let method = method_at("test", stated, 25_000_000, 1);
            assert_eq!((method.clock_hz, method.notes.len()), (used, 1), "{stated:?}");
        }
    }

    #[test]
    fn a_rate_that_is_over_1000_ppm_off_is_a_warning() {
        let warning = doubt(24_000_000, 25_000_000).unwrap();
        assert!(warning.code == "clock-rate" && warning.text.contains("-40000 ppm"), "{warning:?}");
        assert!(doubt(25_000_000, 24_000_000).is_some());
        assert_eq!(doubt(25_025_000, 25_000_000), None);
        assert_eq!(doubt(25_000_000, 25_000_000), None);
    }
}
