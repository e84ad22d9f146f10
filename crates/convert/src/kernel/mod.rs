//! The kernels: they convert consecutive words to consecutive numbers, for each instruction set.
//!
//! The code that all instruction sets share is here and in `walk`; `avx2`, `avx512` and `neon` convert a few words at a
//! time.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(all(target_arch = "x86_64", has_avx512))]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod walk;

use crate::isa::Isa;
use crate::plan::Plan;

/// Bytes that any first-level cache has room for beside others.
#[cfg(all(target_arch = "x86_64", has_avx512))]
const FIRST_LEVEL: usize = 16 << 10;

/// A type of output.
pub(crate) trait Real: Copy + Send + Sync + 'static {
    /// Converts as many words as there are, into as many numbers. The lengths are equal, the instruction set is here.
    /// Where it is streaming, [`fence`] has to follow, before anyone else is told of the numbers.
    fn convert(isa: Isa, plan: &Plan, is_streaming: bool, words: &[u16], output: &mut [Self]);
}

/// Whether this processor, its operating system and this build have an instruction set.
pub(crate) fn is_available(isa: Isa) -> bool {
    match isa {
        Isa::Scalar => true,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::is_available(),
        #[cfg(all(target_arch = "x86_64", has_avx512))]
        Isa::Avx512 => avx512::is_available(),
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => neon::is_available(),
        #[allow(unreachable_patterns, reason = "where an architecture has them all")]
        _ => false,
    }
}

/// `Real` for a type: the kernel of an instruction set, of the arithmetic, sign and way of storing.
macro_rules! real {
    ($real:ty, $kernel:ident) => {
        impl Real for $real {
            fn convert(isa: Isa, plan: &Plan, is_streaming: bool, words: &[u16], output: &mut [Self]) {
                assert_eq!(words.len(), output.len());
                debug_assert!(isa.is_available());
                match isa {
                    // SAFETY: a Conversion takes an instruction set only where it is here.
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 => unsafe { avx2::$kernel(plan, is_streaming, words, output) },
                    // SAFETY: as above.
                    #[cfg(all(target_arch = "x86_64", has_avx512))]
                    Isa::Avx512 if is_streaming || plan.is_long::<$real>() || size_of_val(output) <= FIRST_LEVEL => unsafe {
                        avx512::$kernel(plan, is_streaming, words, output)
                    },
                    // SAFETY: as above. Measured: into the second level, vectors of half the width are a tenth quicker.
                    #[cfg(all(target_arch = "x86_64", has_avx512))]
                    Isa::Avx512 => unsafe { avx2::$kernel(plan, is_streaming, words, output) },
                    // SAFETY: as above.
                    #[cfg(target_arch = "aarch64")]
                    Isa::Neon => unsafe { neon::$kernel(plan, is_streaming, words, output) },
                    _ => {
                        #[cfg(test)]
                        taken::note(Isa::Scalar);
                        scalar::$kernel(plan, words, output);
                    }
                }
            }
        }
    };
}

real!(f32, to_f32);
real!(f64, to_f64);

/// Takes every `stride`th word, the first one first, for a start of the output, and returns its length: 0 where the
/// instruction set, which must be here, has no way that is quicker than one word at a time.
pub(crate) fn every(isa: Isa, words: &[u16], stride: usize, output: &mut [u16]) -> usize {
    match isa {
        // SAFETY: a Conversion takes an instruction set only where it is here.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { avx2::every(words, stride, output) },
        // SAFETY: as above.
        #[cfg(all(target_arch = "x86_64", has_avx512))]
        Isa::Avx512 => unsafe { avx512::every(words, stride, output) },
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => unsafe { neon::every(words, stride, output) },
        _ => 0,
    }
}

/// Ends a row of streaming stores: others see them before any later store. It waits until they are out, so call it at
/// the end of a call, not of each block.
pub(crate) fn fence() {
    // SAFETY: every x86-64 has SSE.
    #[cfg(target_arch = "x86_64")]
    #[allow(unused_unsafe, reason = "safe since Rust 1.93")]
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Asks for the cache lines of every `stride`th word, which will be needed soon.
pub(crate) fn prefetch(words: &[u16], stride: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        const LINE: usize = 64 / size_of::<u16>();
        for word in words.iter().step_by(stride.max(LINE)) {
            // SAFETY: every x86-64 has SSE, and a prefetch changes nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(word).cast()) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (words, stride);
}

#[cfg(test)]
pub(crate) mod taken {
    //! Which kernel ran last in this thread: only a test asks.

    use std::cell::Cell;

    use crate::isa::Isa;

    thread_local! {
        static LAST: Cell<Option<Isa>> = const { Cell::new(None) };
    }

    pub(crate) fn note(isa: Isa) {
        LAST.set(Some(isa));
    }

    pub(crate) fn last() -> Option<Isa> {
        LAST.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{Operation, Sample};

    #[test]
    fn the_kernel_that_was_asked_for_is_the_one_that_runs() {
        let plan = Plan::new(Sample::I16, Operation::Cast);
        let words = [1u16; 4096];
        for isa in Isa::available() {
            for is_streaming in [false, true] {
                f32::convert(isa, &plan, is_streaming, &words, &mut [0.0; 4096]);
                assert_eq!(taken::last(), Some(isa));
                // More than the first level holds.
                f64::convert(isa, &plan, is_streaming, &words, &mut [0.0; 4096]);
                let is_narrower = isa == Isa::Avx512 && !is_streaming;
                assert_eq!(taken::last(), Some(if is_narrower { Isa::Avx2 } else { isa }));
            }
            // Where an instruction set has a quicker way to pick words, it leaves less than a step to the slow one.
            for stride in [2, 4] {
                let mut output = [0; 1000];
                let done = every(isa, &words, stride, &mut output);
                assert_eq!(done > 968, isa != Isa::Scalar, "{isa}: {done} of 1000, every {stride}");
                assert!(done <= 1000 && output[..done].iter().all(|word| *word == 1));
            }
        }
        for (isa, done) in [(Isa::Avx512, 409), (Isa::Avx2, 400)] {
            assert!(!is_available(isa) || every(isa, &words, 10, &mut [0; 409]) == done, "{isa}");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn what_the_processor_has_is_available() {
        assert_eq!(is_available(Isa::Avx2), is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"));
        let has_avx512 = is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vl");
        assert_eq!(is_available(Isa::Avx512), has_avx512 && cfg!(has_avx512));
        assert!(!is_available(Isa::Neon));
    }
}
