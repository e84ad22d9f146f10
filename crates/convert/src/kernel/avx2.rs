//! AVX2 and FMA: 16 words at a time to `f32` and to `f64`.

use std::arch::x86_64::*;

use crate::kernel::walk::{
    self, ALIGNED, CAST, MULTIPLY, PIVOT, PRODUCT, SCALE, SCALE_SINGLE, SCALE_TWICE, STREAMING, Step,
};
use crate::plan::Plan;

pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
}

walk::steps!(to_f32: Avx2 "avx2,fma", Singles, f32, Single);
walk::steps!(to_f64: Avx2 "avx2,fma", Doubles, f64, Double);

/// To `f32`.
#[derive(Clone, Copy)]
struct Single<const A: u8, const SIGNED: bool> {
    shift: __m128i,
    factor: __m256,
    rest: __m256,
    left: __m256,
    pivot: __m256i,
    double_factor: __m256d,
    double_offset: __m256d,
}

impl<const A: u8, const SIGNED: bool> Single<A, SIGNED> {
    #[inline(always)]
    unsafe fn new(plan: &Plan) -> Self {
        let (factor, rest) = plan.singles();
        // SAFETY: the caller's promise.
        unsafe {
            Single {
                shift: _mm_cvtsi32_si128(plan.shift as i32),
                factor: _mm256_set1_ps(factor),
                rest: _mm256_set1_ps(rest),
                left: _mm256_set1_ps(plan.left),
                pivot: _mm256_set1_epi32(plan.pivot),
                double_factor: _mm256_set1_pd(plan.factor),
                double_offset: _mm256_set1_pd(plan.offset),
            }
        }
    }

    /// 8 words as integers.
    #[inline(always)]
    unsafe fn integers(self, words: *const u16) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe {
            let words = _mm_loadu_si128(words.cast());
            let words = if A == MULTIPLY || A == PRODUCT { _mm_sll_epi16(words, self.shift) } else { words };
            if SIGNED { _mm256_cvtepi16_epi32(words) } else { _mm256_cvtepu16_epi32(words) }
        }
    }

    /// 8 numbers, and lanes that are not 0 where a rounding is in doubt.
    #[inline(always)]
    unsafe fn numbers(self, words: *const u16) -> (__m256, __m256i) {
        // SAFETY: the caller's promise.
        unsafe {
            let integers = self.integers(words);
            if A == SCALE || A == SCALE_TWICE {
                let (low, low_doubt) = self.halves(_mm256_castsi256_si128(integers));
                let (high, high_doubt) = self.halves(_mm256_extracti128_si256::<1>(integers));
                return (_mm256_set_m128(high, low), _mm256_or_si256(low_doubt, high_doubt));
            }
            let integers = if A == PIVOT { _mm256_sub_epi32(integers, self.pivot) } else { integers };
            let x = _mm256_cvtepi32_ps(integers);
            let number = match A {
                CAST => x,
                MULTIPLY => _mm256_mul_ps(x, self.factor),
                // factor + rest is the factor to 48 bits: see Arithmetic::Product.
                PRODUCT => _mm256_fmadd_ps(x, self.factor, _mm256_mul_ps(x, self.rest)),
                PIVOT => _mm256_fmadd_ps(x, self.factor, _mm256_fmadd_ps(x, self.rest, self.left)),
                SCALE_SINGLE => _mm256_fmadd_ps(x, self.factor, self.rest),
                _ => unreachable!(),
            };
            (number, _mm256_setzero_si256())
        }
    }

    /// 4 numbers by way of `f64`, and which of them are in doubt.
    #[inline(always)]
    unsafe fn halves(self, integers: __m128i) -> (__m128, __m256i) {
        // SAFETY: the caller's promise.
        unsafe {
            let double = _mm256_fmadd_pd(_mm256_cvtepi32_pd(integers), self.double_factor, self.double_offset);
            let rest = _mm256_and_si256(_mm256_castpd_si256(double), _mm256_set1_epi64x(walk::REST));
            (_mm256_cvtpd_ps(double), _mm256_cmpeq_epi64(rest, _mm256_set1_epi64x(walk::MIDDLE)))
        }
    }
}

impl<const A: u8, const SIGNED: bool> Step for Single<A, SIGNED> {
    type Number = f32;
    const WORDS: usize = 16;

    #[inline(always)]
    unsafe fn step<const STORE: u8>(self, words: *const u16, output: *mut f32) -> bool {
        // SAFETY: the caller's promise: 16 words and numbers, where STORE wants them.
        unsafe {
            let (first, first_doubt) = self.numbers(words);
            let (second, second_doubt) = self.numbers(words.add(8));
            if A == SCALE {
                let doubt = _mm256_or_si256(first_doubt, second_doubt);
                if _mm256_testz_si256(doubt, doubt) == 0 {
                    return false;
                }
            }
            store_ps::<STORE>(output, first);
            store_ps::<STORE>(output.add(8), second);
        }
        true
    }
}

/// # Safety
/// `to` is good for 8 numbers and lies as `STORE` wants it.
#[inline(always)]
unsafe fn store_ps<const STORE: u8>(to: *mut f32, numbers: __m256) {
    // SAFETY: the caller's promise.
    unsafe {
        match STORE {
            STREAMING => _mm256_stream_ps(to, numbers),
            ALIGNED => _mm256_store_ps(to, numbers),
            _ => _mm256_storeu_ps(to, numbers),
        }
    }
}

/// To `f64`.
#[derive(Clone, Copy)]
struct Double<const A: u8, const SIGNED: bool> {
    shift: __m128i,
    factor: __m256d,
    offset: __m256d,
}

impl<const A: u8, const SIGNED: bool> Double<A, SIGNED> {
    #[inline(always)]
    unsafe fn new(plan: &Plan) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            Double {
                shift: _mm_cvtsi32_si128(plan.shift as i32),
                factor: _mm256_set1_pd(plan.factor),
                offset: _mm256_set1_pd(plan.offset),
            }
        }
    }

    /// 8 numbers, in two vectors.
    #[inline(always)]
    unsafe fn numbers(self, words: *const u16) -> [__m256d; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let words = _mm_loadu_si128(words.cast());
            let words = if A == MULTIPLY || A == PRODUCT { _mm_sll_epi16(words, self.shift) } else { words };
            let integers = if SIGNED { _mm256_cvtepi16_epi32(words) } else { _mm256_cvtepu16_epi32(words) };
            let low = _mm256_cvtepi32_pd(_mm256_castsi256_si128(integers));
            let high = _mm256_cvtepi32_pd(_mm256_extracti128_si256::<1>(integers));
            [low, high].map(|x| match A {
                CAST => x,
                MULTIPLY => _mm256_mul_pd(x, self.factor),
                PRODUCT | PIVOT | SCALE_SINGLE | SCALE_TWICE | SCALE => _mm256_fmadd_pd(x, self.factor, self.offset),
                _ => unreachable!(),
            })
        }
    }
}

impl<const A: u8, const SIGNED: bool> Step for Double<A, SIGNED> {
    type Number = f64;
    const WORDS: usize = 16;

    #[inline(always)]
    unsafe fn step<const STORE: u8>(self, words: *const u16, output: *mut f64) -> bool {
        // SAFETY: the caller's promise: 16 words and numbers, where STORE wants them.
        unsafe {
            let ([first, second], [third, fourth]) = (self.numbers(words), self.numbers(words.add(8)));
            store_pd::<STORE>(output, first);
            store_pd::<STORE>(output.add(4), second);
            store_pd::<STORE>(output.add(8), third);
            store_pd::<STORE>(output.add(12), fourth);
        }
        true
    }
}

/// # Safety
/// `to` is good for 4 numbers and lies as `STORE` wants it.
#[inline(always)]
unsafe fn store_pd<const STORE: u8>(to: *mut f64, numbers: __m256d) {
    // SAFETY: the caller's promise.
    unsafe {
        match STORE {
            STREAMING => _mm256_stream_pd(to, numbers),
            ALIGNED => _mm256_store_pd(to, numbers),
            _ => _mm256_storeu_pd(to, numbers),
        }
    }
}

/// Takes every `stride`th word for a start of the output, and returns its length.
///
/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn every(words: &[u16], stride: usize, output: &mut [u16]) -> usize {
    const WORDS: usize = 16;
    let steps = (words.len() / stride).min(output.len()) / WORDS;
    // SAFETY: step `s` reads words up to (s + 1) * 16 * stride and writes results up to (s + 1) * 16.
    unsafe {
        // The words with even index of two vectors, in order.
        let even = |low: __m256i, high: __m256i| {
            let mask = _mm256_set1_epi32(0xffff);
            let packed = _mm256_packus_epi32(_mm256_and_si256(low, mask), _mm256_and_si256(high, mask));
            _mm256_permute4x64_epi64::<0b11_01_10_00>(packed)
        };
        let load = |vector: usize| _mm256_loadu_si256(words.as_ptr().cast::<__m256i>().add(vector));
        let to = output.as_mut_ptr().cast::<__m256i>();
        match stride {
            2 => (0..steps).for_each(|s| _mm256_storeu_si256(to.add(s), even(load(2 * s), load(2 * s + 1)))),
            4 => (0..steps).for_each(|s| {
                let (low, high) = (even(load(4 * s), load(4 * s + 1)), even(load(4 * s + 2), load(4 * s + 3)));
                _mm256_storeu_si256(to.add(s), even(low, high));
            }),
            _ => (0..steps).for_each(|s| {
                let word = |n: usize| *words.as_ptr().add((s * WORDS + n) * stride) as i16;
                let eight = |n: usize| {
                    let [a, b, c, d, e, f, g, h] = std::array::from_fn(|k| word(n + k));
                    _mm_setr_epi16(a, b, c, d, e, f, g, h)
                };
                _mm256_storeu_si256(to.add(s), _mm256_set_m128i(eight(8), eight(0)));
            }),
        }
    }
    steps * WORDS
}
