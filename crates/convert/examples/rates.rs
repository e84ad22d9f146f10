//! How fast each kernel is: GB/s of bytes read and written together, beside a loop that moves the same bytes with
//! streaming stores and does nothing else. Passes of both take turns; the best pass of each is shown, and the median of
//! the ratios. A quick look for who changes a kernel; `pciescope convert` measures with more care.
//!
//! ```text
//! cargo run --release -p pciescope-convert --example rates [SAMPLES...]
//! ```
#![allow(clippy::unwrap_used, reason = "an example")]

use std::hint::black_box;
use std::time::Instant;

use pciescope_convert::{Conversion, Decimation, Isa, Operation, Sample, Store};

/// Turns of kernel and ceiling.
const TURNS: usize = 41;

/// Reads all of `from` and writes all of `to`, evenly, line by line.
#[cfg(target_arch = "x86_64")]
fn move_lines(from: &[[u64; 8]], to: &mut [[u64; 8]]) {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_load_si256, _mm256_stream_si256};
    #[target_feature(enable = "avx2")]
    unsafe fn run(from: &[[u64; 8]], to: &mut [[u64; 8]]) {
        // SAFETY: the callers' arrays start at lines; the indexes stay below the lengths.
        unsafe {
            let (lines, written) = (from.len(), to.len());
            let (from, to) = (from.as_ptr().cast::<__m256i>(), to.as_mut_ptr().cast::<__m256i>());
            let (mut debt, mut done) = (0, 0);
            for line in 0..lines {
                let (a, b) = (_mm256_load_si256(from.add(2 * line)), _mm256_load_si256(from.add(2 * line + 1)));
                black_box((a, b));
                debt += written;
                while debt >= lines {
                    _mm256_stream_si256(to.add(2 * done), a);
                    _mm256_stream_si256(to.add(2 * done + 1), b);
                    (debt, done) = (debt - lines, done + 1);
                }
            }
            _mm_sfence();
        }
    }
    assert!(is_x86_feature_detected!("avx2"));
    // SAFETY: checked above.
    unsafe { run(from, to) }
}

#[cfg(not(target_arch = "x86_64"))]
fn move_lines(from: &[[u64; 8]], to: &mut [[u64; 8]]) {
    for (index, line) in to.iter_mut().enumerate() {
        *line = from[index % from.len()];
    }
}

/// Numbers of 8 bytes from the start of a line on.
fn lines(numbers: &mut [u64]) -> &mut [[u64; 8]] {
    // SAFETY: any bits are valid in both.
    let (_, aligned, _) = unsafe { numbers.align_to_mut::<Line>() };
    // SAFETY: a Line is these eight numbers.
    unsafe { std::slice::from_raw_parts_mut(aligned.as_mut_ptr().cast(), aligned.len()) }
}

#[repr(align(64))]
struct Line(#[allow(dead_code, reason = "for its size")] [u64; 8]);

/// Seconds of one call, from enough calls that the clock does not matter.
fn time(samples: usize, mut pass: impl FnMut()) -> f64 {
    let calls = (2_000_000 / samples).max(1);
    let start = Instant::now();
    for _ in 0..calls {
        pass();
    }
    start.elapsed().as_secs_f64() / calls as f64
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let sizes: Vec<usize> = arguments.iter().filter_map(|text| text.parse().ok()).collect();
    let only: Vec<&String> = arguments.iter().filter(|text| text.parse::<usize>().is_err()).collect();
    for samples in if sizes.is_empty() { vec![16 << 10, 30_000_000] } else { sizes } {
        let input: Vec<u16> = (0..samples).map(|i| (i * 40503) as u16).collect();
        let mut output = vec![1u64; samples + 16];
        // Not constant: there is memory that takes zeros quicker.
        let mut source: Vec<u64> =
            (0..samples as u64 / 4 + 16).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        let operations = [
            ("cast", Operation::Cast, 1),
            ("scale 0.5 1", Operation::Scale { factor: 0.5, offset: 1.0 }, 1),
            ("scale 0.1", Operation::Scale { factor: 0.1, offset: 0.0 }, 1),
            ("scale 0.1 0.7", Operation::Scale { factor: 0.1, offset: 0.7 }, 1),
            ("signed 3.13", Operation::Signed { m: 3, n: 13 }, 1),
            ("degrees 3.13", Operation::Degrees { m: 3, n: 13 }, 1),
            ("cast /2", Operation::Cast, 2),
            ("cast /3", Operation::Cast, 3),
            ("cast /4", Operation::Cast, 4),
            ("cast /10", Operation::Cast, 10),
            ("cast /50", Operation::Cast, 50),
        ];
        for isa in Isa::available() {
            for store in [Store::Cached, Store::Streaming] {
                for (name, operation, factor) in operations {
                    for size in [4, 8] {
                        let what = format!("{isa} {store:?} f{} {name}", size * 8);
                        if !only.iter().all(|part| what.contains(*part)) {
                            continue;
                        }
                        let conversion = Conversion::new(Sample::I16, operation).unwrap().with_isa(isa).unwrap();
                        let conversion =
                            conversion.with_store(store).with_decimation(Decimation { offset: 0, factor }).unwrap();
                        let wanted = samples / factor;
                        // Beyond 32 samples whole lines are skipped.
                        let read = if factor <= 32 { samples * 2 } else { wanted * 64 }.min(samples * 2);
                        let mut turns: Vec<(f64, f64)> = (0..TURNS)
                            .map(|_| {
                                let kernel = time(samples, || {
                                    let numbers = black_box(&mut output);
                                    let done = if size == 4 {
                                        // SAFETY: any bits are valid in all of these types.
                                        let (_, numbers, _) = unsafe { numbers.align_to_mut::<f32>() };
                                        conversion.to_f32(black_box(&input), numbers)
                                    } else {
                                        // SAFETY: as above.
                                        let (_, numbers, _) = unsafe { numbers.align_to_mut::<f64>() };
                                        conversion.to_f64(black_box(&input), numbers)
                                    };
                                    assert_eq!(done, Ok(wanted));
                                });
                                let ceiling = time(samples, || {
                                    let (from, to) = (lines(&mut source), lines(&mut output));
                                    move_lines(&from[..read / 64], &mut to[..wanted * size / 64]);
                                });
                                (kernel, ceiling)
                            })
                            .collect();
                        let bytes = (read + wanted * size) as f64 / 1e9;
                        let kernel = turns.iter().map(|turn| turn.0).fold(f64::MAX, f64::min);
                        let ceiling = turns.iter().map(|turn| turn.1).fold(f64::MAX, f64::min);
                        turns.sort_by(|a, b| f64::total_cmp(&(a.0 / a.1), &(b.0 / b.1)));
                        let (middle_kernel, middle_ceiling) = turns[TURNS / 2];
                        println!(
                            "{samples:9} {what:36} {:6.1} GB/s, ceiling {:6.1} GB/s, {:.2}; median ratio {:.2}",
                            bytes / kernel,
                            bytes / ceiling,
                            ceiling / kernel,
                            middle_ceiling / middle_kernel,
                        );
                    }
                }
            }
        }
    }
}
