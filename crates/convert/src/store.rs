//! How results are written: through the cache, or past it.

use std::fs;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::{Conversion, Isa, Operation, Sample};

/// How results are written.
///
/// A store through the cache first reads the line that it writes to, and evicts another line from the cache. If the
/// output is larger than the cache, none of it will stay there anyway. Then stores that bypass the cache (non-temporal
/// stores) save the reads: two thirds more speed for 16-bit samples to `f32`. If the output is small, bypassing is
/// slower, because the next reader has to read it from memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Store {
    /// Past the cache when one call's output is larger than [`Store::threshold`], else through it.
    #[default]
    Auto,
    /// Always through the cache.
    Cached,
    /// Always past the cache, where the instruction set can: AVX2 and AVX-512. Others store as `Cached` does.
    Streaming,
}

/// Output up to this size, in bytes, goes through the cache on every processor: it fits into the second level.
const SMALL: usize = 1 << 20;
/// Sizes of output, in bytes, that are tried both ways.
const TRIED: [usize; 3] = [SMALL, 4 << 20, 16 << 20];
/// Assumed where the system does not tell its cache: 8 MiB.
const FALLBACK: usize = 8 << 20;

/// How long it took to convert to an output of one size, the shortest of some passes each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Trial {
    bytes: usize,
    cached: Duration,
    streaming: Duration,
}

impl Trial {
    /// Whether bypassing the cache is clearly faster, beyond what a busy machine makes of two equal times.
    fn is_faster_past_the_cache(&self) -> bool {
        self.streaming.as_secs_f64() < 0.9 * self.cached.as_secs_f64()
    }
}

impl Store {
    /// The size of output, in bytes, beyond which [`Store::Auto`] writes past the cache. It is measured once, at the first
    /// output of over 1 MiB, in some 20 ms and with 24 MiB of memory: what sysfs says of a cache does not tell whose it is.
    /// A guest may see the hundreds of MiB that a whole server shares, and be no faster in them than in memory.
    ///
    /// Where none of the sizes up to 16 MiB is written faster past the cache, the size of the last-level cache counts.
    pub fn threshold() -> usize {
        static SIZE: OnceLock<usize> = OnceLock::new();
        *SIZE.get_or_init(|| {
            let last_level = last_level("/sys/devices/system/cpu/cpu0/cache").unwrap_or(FALLBACK);
            threshold_of(&trials(), last_level)
        })
    }

    /// Whether a call that writes `bytes` writes past the cache, where the instruction set can.
    pub fn is_streaming(self, bytes: usize) -> bool {
        match self {
            Store::Auto => bytes > SMALL && bytes > Store::threshold(),
            Store::Cached => false,
            Store::Streaming => true,
        }
    }
}

/// Half of the smallest size from which on bypassing is faster: between it and the size below, which is a quarter.
fn threshold_of(trials: &[Trial], last_level: usize) -> usize {
    let faster = trials.iter().rev().take_while(|trial| trial.is_faster_past_the_cache()).last();
    match faster {
        Some(trial) => (trial.bytes / 2).max(SMALL),
        None => trials.iter().map(|trial| trial.bytes).fold(last_level, usize::max),
    }
}

/// Converts both ways. None where the instruction set has no stores past the cache.
fn trials() -> Vec<Trial> {
    let conversion = Conversion::new(Sample::U16, Operation::Cast);
    let Some(cast) = conversion.ok().filter(|cast| matches!(cast.isa(), Isa::Avx2 | Isa::Avx512)) else {
        return Vec::new();
    };
    let most = TRIED[TRIED.len() - 1] / size_of::<f32>();
    let (input, mut output) = (vec![1u16; most], vec![1f32; most]);
    let mut trial = |bytes: usize| {
        let len = bytes / size_of::<f32>();
        let mut time = |store| {
            let cast = cast.with_store(store);
            let mut pass = || {
                let begin = Instant::now();
                let converted = cast.to_f32(&input[..len], &mut output[..len]);
                debug_assert_eq!(converted, Ok(len));
                begin.elapsed()
            };
            // The first pass finds in the cache what the other way left there.
            pass();
            pass()
        };
        let mut best = Trial { bytes, cached: Duration::MAX, streaming: Duration::MAX };
        for _ in 0..2 {
            best.cached = best.cached.min(time(Store::Cached));
            best.streaming = best.streaming.min(time(Store::Streaming));
        }
        best
    };
    TRIED.map(&mut trial).to_vec()
}

/// Size in bytes of the largest cache in a folder of `indexN/size`.
fn last_level(folder: &str) -> Option<usize> {
    (0..8).filter_map(|index| parse(&fs::read_to_string(format!("{folder}/index{index}/size")).ok()?)).max()
}

/// `32768K` as bytes.
fn parse(text: &str) -> Option<usize> {
    let text = text.trim_end();
    let (digits, unit) = match text.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, 1 << 10),
        None => match text.strip_suffix(['M', 'm']) {
            Some(digits) => (digits, 1 << 20),
            None => (text, 1),
        },
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_sizes_that_sysfs_writes() {
        assert_eq!(parse("32768K\n"), Some(32 << 20));
        assert_eq!(parse("2M"), Some(2 << 20));
        assert_eq!(parse("512\n"), Some(512));
        assert_eq!(parse("none"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn the_times_decide_and_the_cache_only_where_they_do_not() {
        const MIB: usize = 1 << 20;
        // Times past the cache, in percent of those through it, at 1, 4 and 16 MiB; the last-level cache; the threshold.
        for (percent, last_level, threshold) in [
            // A guest of a server with 480 MiB of cache.
            (&[180, 95, 50][..], 480, 8),
            (&[120, 60, 50], 480, 2),
            (&[60, 55, 50], 480, 1),
            // A desktop with 6 and one with 32 MiB.
            (&[180, 150, 62], 6, 8),
            (&[180, 170, 160], 32, 32),
            // A pass that something else delayed decides nothing.
            (&[180, 50, 160], 32, 32),
            (&[180, 170, 95], 4, 16),
            // No such stores.
            (&[], 8, 8),
        ] {
            let ms = Duration::from_millis;
            let trial = |(bytes, percent): (usize, &u64)| Trial { bytes, cached: ms(100), streaming: ms(*percent) };
            let trials: Vec<Trial> = TRIED.into_iter().zip(percent).map(trial).collect();
            assert_eq!(threshold_of(&trials, last_level * MIB), threshold * MIB, "{percent:?}");
        }
    }

    #[test]
    fn small_output_needs_no_measurement() {
        assert!(!Store::Auto.is_streaming(SMALL) && Store::threshold() >= SMALL);
        let trials = trials();
        assert_eq!(trials.is_empty(), !matches!(Isa::best(), Ok(Isa::Avx2 | Isa::Avx512)));
        assert!(trials.iter().all(|trial| trial.cached > Duration::ZERO && trial.streaming < Duration::MAX));
    }
}
