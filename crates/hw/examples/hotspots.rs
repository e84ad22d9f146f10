//! Where the CPU time of a small load goes, and what sampling costs it.
//!
//! `cargo run --release -p pciescope-hw --example hotspots [SECONDS [HZ]]`: two threads, one that computes and one that
//! reads /dev/zero, are run without and with sampling in turns; the table is of all turns that were sampled.

use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};

use pciescope_hw::Root;
use pciescope_hw::perf::{Sampler, Sampling, Symbols, Whom};
use pciescope_hw::usage::{CpuTime, Usage};

/// Turns of each kind.
const TURNS: u32 = 10;

#[inline(never)]
fn compute(steps: u64) -> u64 {
    let mut word = 88_172_645_463_325_252u64;
    for _ in 0..steps {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
    }
    std::hint::black_box(word)
}

#[inline(never)]
fn read(zero: &mut File, bytes: &mut [u8]) -> std::io::Result<()> {
    zero.read_exact(bytes)
}

/// CPU time per unit of work of both threads together, in nanoseconds.
fn turn(time: Duration) -> std::io::Result<f64> {
    let end = Instant::now() + time;
    let computing = std::thread::spawn(move || {
        let mut units = 0u64;
        while Instant::now() < end {
            compute(100_000);
            units += 1;
        }
        (units, Usage::thread())
    });
    let reading = std::thread::spawn(move || -> std::io::Result<(u64, Usage)> {
        let (mut zero, mut bytes, mut units) = (File::open("/dev/zero")?, vec![0; 256 << 10], 0u64);
        while Instant::now() < end {
            for _ in 0..4 {
                read(&mut zero, &mut bytes)?;
            }
            units += 1;
        }
        Ok((units, Usage::thread()))
    });
    let (computed, computing) = computing.join().expect("it does not panic");
    let (read, reading) = reading.join().expect("it does not panic")?;
    let each = |usage: Usage, units: u64| usage.total_ns as f64 / units.max(1) as f64;
    Ok(each(computing, computed) + each(reading, read))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds: f64 = arguments.next().map_or(Ok(4.0), |text| text.parse())?;
    let hz: u32 = arguments.next().map_or(Ok(Sampling::default().hz), |text| text.parse())?;
    let time = Duration::from_secs_f64(seconds / f64::from(2 * TURNS));

    let root = Root::default();
    let mut symbols = Symbols::of(&root);
    let mut sampler = Sampler::open(&root, Whom::Process, &Sampling { hz, ..Sampling::default() })?;
    let (machine, process, begun) = (CpuTime::load(&root)?, Usage::process(), Instant::now());
    let (mut bare, mut sampled) = (0.0, 0.0);
    for _ in 0..TURNS {
        bare += turn(time)?;
        sampler.start()?;
        sampled += turn(time)?;
        sampler.stop()?;
    }
    let elapsed = begun.elapsed();
    let (machine, process) = (CpuTime::load(&root)?.since(&machine), Usage::process().since(&process));
    let named = Instant::now();
    let profile = sampler.take(&mut symbols);

    println!("{} samples by {} at {} Hz, {} lost", profile.samples, profile.kind, profile.hz, profile.lost);
    for spot in &profile.spots {
        println!("{:7.2} %  {:<24}  {}", spot.percent, spot.object, spot.symbol);
    }
    let expected = profile.cpu_ns as f64 * f64::from(profile.hz) / 1e9;
    println!("samples taken over those expected of the threads' CPU time: {:.3}", profile.samples as f64 / expected);
    println!("CPU time of a unit of work with sampling over without: {:.4}", sampled / bare);
    println!("naming took {:.1} ms", named.elapsed().as_secs_f64() * 1e3);
    println!(
        "process: {:.1} % of a CPU (user {:.3} s, system {:.3} s)",
        process.total_ns as f64 / elapsed.as_nanos() as f64 * 100.0,
        process.user_ns as f64 / 1e9,
        process.system_ns as f64 / 1e9
    );
    println!(
        "machine: {:.1} % busy as the seed's tool computes it, {:.1} % stolen",
        machine.busy_percent().unwrap_or(0.0),
        machine.stolen_percent().unwrap_or(0.0)
    );
    for note in &profile.notes {
        println!("note: {note}");
    }
    Ok(())
}
