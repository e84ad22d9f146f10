//! AVX-512: 32 words at a time to `f32`, 16 to `f64`.
#![allow(clippy::incompatible_msrv, reason = "the build script leaves this file out where the compiler is older")]

use std::arch::x86_64::*;

use crate::kernel::walk::{self, ALIGNED, CAST, MULTIPLY, PRODUCT, SCALE, SCALE_SINGLE, SCALE_TWICE, STREAMING, Step};
use crate::plan::Plan;

pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && super::avx2::is_available()
}

walk::steps!(to_f32: Avx512 "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl", Singles, f32, Single);
walk::steps!(to_f64: Avx512 "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl", Doubles, f64, Double);

/// To `f32`.
#[derive(Clone, Copy)]
struct Single<const A: u8, const SIGNED: bool> {
    shift: __m128i,
    factor: __m512,
    rest: __m512,
    double_factor: __m512d,
    double_offset: __m512d,
}

impl<const A: u8, const SIGNED: bool> Single<A, SIGNED> {
    #[inline(always)]
    unsafe fn new(plan: &Plan) -> Self {
        let (factor, rest) = plan.singles();
        // SAFETY: the caller's promise.
        unsafe {
            Single {
                shift: _mm_cvtsi32_si128(plan.shift as i32),
                factor: _mm512_set1_ps(factor),
                rest: _mm512_set1_ps(rest),
                double_factor: _mm512_set1_pd(plan.factor),
                double_offset: _mm512_set1_pd(plan.offset),
            }
        }
    }

    /// 16 words as integers.
    #[inline(always)]
    unsafe fn integers(self, words: *const u16) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe {
            let words = _mm256_loadu_si256(words.cast());
            let words = if A == MULTIPLY || A == PRODUCT { _mm256_sll_epi16(words, self.shift) } else { words };
            if SIGNED { _mm512_cvtepi16_epi32(words) } else { _mm512_cvtepu16_epi32(words) }
        }
    }

    /// 16 numbers, and a mask that is not 0 where a rounding is in doubt.
    #[inline(always)]
    unsafe fn numbers(self, words: *const u16) -> (__m512, __mmask8) {
        // SAFETY: the caller's promise.
        unsafe {
            let integers = self.integers(words);
            if A == SCALE || A == SCALE_TWICE {
                let (low, low_doubt) = self.halves(_mm512_castsi512_si256(integers));
                let (high, high_doubt) = self.halves(_mm512_extracti64x4_epi64::<1>(integers));
                let both = _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high);
                return (both, low_doubt | high_doubt);
            }
            let x = _mm512_cvtepi32_ps(integers);
            let number = match A {
                CAST => x,
                MULTIPLY => _mm512_mul_ps(x, self.factor),
                // factor + rest is the factor to 48 bits: see Arithmetic::Product.
                PRODUCT => _mm512_fmadd_ps(x, self.factor, _mm512_mul_ps(x, self.rest)),
                SCALE_SINGLE => _mm512_fmadd_ps(x, self.factor, self.rest),
                _ => unreachable!(),
            };
            (number, 0)
        }
    }

    /// 8 numbers by way of `f64`, and which of them are in doubt.
    #[inline(always)]
    unsafe fn halves(self, integers: __m256i) -> (__m256, __mmask8) {
        // SAFETY: the caller's promise.
        unsafe {
            let double = _mm512_fmadd_pd(_mm512_cvtepi32_pd(integers), self.double_factor, self.double_offset);
            let rest = _mm512_and_si512(_mm512_castpd_si512(double), _mm512_set1_epi64(walk::REST));
            let doubt = _mm512_cmpeq_epi64_mask(rest, _mm512_set1_epi64(walk::MIDDLE));
            (_mm512_cvtpd_ps(double), doubt)
        }
    }
}

impl<const A: u8, const SIGNED: bool> Step for Single<A, SIGNED> {
    type Number = f32;
    const WORDS: usize = 32;

    #[inline(always)]
    unsafe fn step<const STORE: u8>(self, words: *const u16, output: *mut f32) -> bool {
        // SAFETY: the caller's promise: 32 words and numbers, where STORE wants them.
        unsafe {
            let (first, first_doubt) = self.numbers(words);
            let (second, second_doubt) = self.numbers(words.add(16));
            if A == SCALE && first_doubt | second_doubt != 0 {
                return false;
            }
            store_ps::<STORE>(output, first);
            store_ps::<STORE>(output.add(16), second);
        }
        true
    }
}

/// # Safety
/// `to` is good for 16 numbers and lies as `STORE` wants it.
#[inline(always)]
unsafe fn store_ps<const STORE: u8>(to: *mut f32, numbers: __m512) {
    // SAFETY: the caller's promise.
    unsafe {
        match STORE {
            STREAMING => _mm512_stream_ps(to, numbers),
            ALIGNED => _mm512_store_ps(to, numbers),
            _ => _mm512_storeu_ps(to, numbers),
        }
    }
}

/// To `f64`.
#[derive(Clone, Copy)]
struct Double<const A: u8, const SIGNED: bool> {
    shift: __m128i,
    factor: __m512d,
    offset: __m512d,
}

impl<const A: u8, const SIGNED: bool> Double<A, SIGNED> {
    #[inline(always)]
    unsafe fn new(plan: &Plan) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            Double {
                shift: _mm_cvtsi32_si128(plan.shift as i32),
                factor: _mm512_set1_pd(plan.factor),
                offset: _mm512_set1_pd(plan.offset),
            }
        }
    }

    /// 8 numbers.
    #[inline(always)]
    unsafe fn numbers(self, words: *const u16) -> __m512d {
        // SAFETY: the caller's promise.
        unsafe {
            let words = _mm_loadu_si128(words.cast());
            let words = if A == MULTIPLY || A == PRODUCT { _mm_sll_epi16(words, self.shift) } else { words };
            let integers = if SIGNED { _mm256_cvtepi16_epi32(words) } else { _mm256_cvtepu16_epi32(words) };
            let x = _mm512_cvtepi32_pd(integers);
            match A {
                CAST => x,
                MULTIPLY => _mm512_mul_pd(x, self.factor),
                PRODUCT | SCALE_SINGLE | SCALE_TWICE | SCALE => _mm512_fmadd_pd(x, self.factor, self.offset),
                _ => unreachable!(),
            }
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
            let (first, second) = (self.numbers(words), self.numbers(words.add(8)));
            store_pd::<STORE>(output, first);
            store_pd::<STORE>(output.add(8), second);
        }
        true
    }
}

/// # Safety
/// `to` is good for 8 numbers and lies as `STORE` wants it.
#[inline(always)]
unsafe fn store_pd<const STORE: u8>(to: *mut f64, numbers: __m512d) {
    // SAFETY: the caller's promise.
    unsafe {
        match STORE {
            STREAMING => _mm512_stream_pd(to, numbers),
            ALIGNED => _mm512_store_pd(to, numbers),
            _ => _mm512_storeu_pd(to, numbers),
        }
    }
}

/// Takes every `stride`th word for a start of the output, and returns its length. For strides from 2 to 32.
///
/// # Safety
/// The processor has the features.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn every(words: &[u16], stride: usize, output: &mut [u16]) -> usize {
    const WORDS: usize = 32;
    // Packing pairs is quicker for those two.
    if stride == 2 || stride == 4 {
        // SAFETY: the caller's promise.
        return unsafe { super::avx2::every(words, stride, output) };
    }
    if !(2..=WORDS).contains(&stride) {
        return 0;
    }
    // 32 results come out of `stride` vectors. The words that a vector gives are brought to their places by one
    // permutation, the same for all vectors; which places those are, is another mask for each.
    let places: [u16; WORDS] = std::array::from_fn(|lane| (lane * stride % WORDS) as u16);
    let mut masks = [0u32; WORDS];
    for lane in 0..WORDS {
        masks[lane * stride / WORDS] |= 1 << lane;
    }
    let steps = (words.len() / stride).min(output.len()) / WORDS;
    // SAFETY: step `s` reads words up to (s + 1) * 32 * stride and writes results up to (s + 1) * 32.
    unsafe {
        let places = _mm512_loadu_si512(places.as_ptr().cast());
        let mut from = words.as_ptr();
        for step in 0..steps {
            let mut taken = _mm512_setzero_si512();
            for mask in &masks[..stride] {
                taken = _mm512_mask_permutexvar_epi16(taken, *mask, places, _mm512_loadu_si512(from.cast()));
                from = from.add(WORDS);
            }
            _mm512_storeu_si512(output.as_mut_ptr().add(step * WORDS).cast(), taken);
        }
    }
    steps * WORDS
}
