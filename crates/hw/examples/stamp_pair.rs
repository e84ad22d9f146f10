//! What two stamps cost on this machine, against the two instructions that cannot be done without, and against the
//! system's clock. Prints one line; `bench/all` runs it.

use pciescope_hw::probe::clock;

/// Pairs per block, and blocks; the ways alternate block by block, so that a slow moment meets all of them.
const PAIRS: usize = 1000;
const BLOCKS: usize = 200;

fn main() {
    let mut ours = Vec::with_capacity(PAIRS * BLOCKS);
    let mut bare = Vec::with_capacity(PAIRS * BLOCKS);
    let mut system = Vec::with_capacity(PAIRS * BLOCKS);
    for _ in 0..BLOCKS {
        for _ in 0..PAIRS {
            let begin = clock::start();
            let (end, _) = clock::end();
            ours.push(end - begin);
        }
        for _ in 0..PAIRS {
            bare.push(bare_pair());
        }
        for _ in 0..PAIRS {
            let begin = clock::monotonic_raw_ns();
            system.push(clock::monotonic_raw_ns() - begin);
        }
    }
    let hz = clock::measured_hz() as f64;
    let ns = |ticks: u64| ticks as f64 * 1e9 / hz;
    let [ours, bare, system] = [ours, bare, system].map(median);
    println!(
        "stamps: limit {:.1} ns (the bare counter reads, medians of {}), ours {:.1} ns ({:.2} of the limit), clock_gettime pair {} ns",
        ns(bare),
        PAIRS * BLOCKS,
        ns(ours),
        ours as f64 / bare as f64,
        system
    );
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

/// The pair as Intel's manual has it for timing a load: lfence and rdtsc before, rdtscp after.
#[cfg(target_arch = "x86_64")]
fn bare_pair() -> u64 {
    use core::arch::x86_64::{__rdtscp, _mm_lfence, _rdtsc};
    let mut aux = 0;
    // SAFETY: both instructions exist on every x86-64 processor that Linux lets user space time with (clock::check).
    unsafe {
        _mm_lfence();
        let begin = _rdtsc();
        _mm_lfence();
        let end = __rdtscp(&mut aux);
        _mm_lfence();
        end - begin
    }
}

/// The pair of ordered counter reads.
#[cfg(target_arch = "aarch64")]
fn bare_pair() -> u64 {
    let (begin, end): (u64, u64);
    // SAFETY: Linux lets user space read the virtual counter on every arm64 machine.
    unsafe {
        core::arch::asm!("isb", "mrs {0}, cntvct_el0", "isb", "mrs {1}, cntvct_el0", out(reg) begin, out(reg) end);
    }
    end - begin
}
