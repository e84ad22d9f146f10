//! AVX-512: 32 words at a time to `f32`, 16 to `f64`.
#![allow(clippy::incompatible_msrv, reason = "the build script leaves this file out where the compiler is older")]

use std::arch::x86_64::*;

use crate::kernel::walk::{
    self, ALIGNED, CAST, MULTIPLY, PIVOT, PRODUCT, SCALE, SCALE_SINGLE, SCALE_TWICE, STREAMING, Step,
};
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
    left: __m512,
    pivot: __m512i,
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
                left: _mm512_set1_ps(plan.left),
                pivot: _mm512_set1_epi32(plan.pivot),
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
            let integers = if A == PIVOT { _mm512_sub_epi32(integers, self.pivot) } else { integers };
            let x = _mm512_cvtepi32_ps(integers);
            let number = match A {
                CAST => x,
                MULTIPLY => _mm512_mul_ps(x, self.factor),
                // factor + rest is the factor to 48 bits: see Arithmetic::Product.
                PRODUCT => _mm512_fmadd_ps(x, self.factor, _mm512_mul_ps(x, self.rest)),
                PIVOT => _mm512_fmadd_ps(x, self.factor, _mm512_fmadd_ps(x, self.rest, self.left)),
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
                PRODUCT | PIVOT | SCALE_SINGLE | SCALE_TWICE | SCALE => _mm512_fmadd_pd(x, self.factor, self.offset),
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

/// Words of a vector.
const WORDS: usize = 32;
/// Steps that are made at once.
const TOGETHER: usize = 4;

/// By stride: 32 results come out of as many vectors. The words that a vector gives are brought to their places by one
/// permutation, the same for all vectors; which places those are, is another mask for each.
static PICKS: [([u16; WORDS], [u32; WORDS]); WORDS + 1] = {
    let mut picks = [([0; WORDS], [0; WORDS]); WORDS + 1];
    let mut at = 0;
    while at < (WORDS + 1) * WORDS {
        let (stride, lane) = (at / WORDS, at % WORDS);
        picks[stride].0[lane] = (lane * stride % WORDS) as u16;
        if stride > 0 {
            picks[stride].1[lane * stride / WORDS] |= 1 << lane;
        }
        at += 1;
    }
    picks
};

/// Takes every `stride`th word for a start of the output, and returns its length. For strides from 2 to 32.
///
/// # Safety
/// The processor has the features.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn every(words: &[u16], stride: usize, output: &mut [u16]) -> usize {
    // Packing pairs is quicker for those two.
    if stride == 2 || stride == 4 {
        // SAFETY: the caller's promise.
        return unsafe { super::avx2::every(words, stride, output) };
    }
    if !(2..=WORDS).contains(&stride) {
        return 0;
    }
    let len = (words.len() / stride).min(output.len());
    if len < WORDS {
        return 0;
    }
    let (places, masks) = (&PICKS[stride].0, &PICKS[stride].1[..stride]);
    let mut done = 0;
    // SAFETY: N steps from number `n` on read `N * 32 * stride` words from `n * stride` on, and write numbers `n` to
    // `n + N * 32`; that is at most `len`.
    unsafe {
        let places = _mm512_loadu_si512(places.as_ptr().cast());
        let mut to = |n: usize| (words.as_ptr().add(n * stride), output.as_mut_ptr().add(n));
        // To load a mask costs as much as the permutation that it is for: some steps share it.
        while done + TOGETHER * WORDS <= len {
            pick::<TOGETHER>(places, masks, to(done));
            done += TOGETHER * WORDS;
        }
        while done < len {
            // The last one may write some results again.
            done = (done + WORDS).min(len);
            pick::<1>(places, masks, to(done - WORDS));
        }
    }
    len
}

/// `N` steps of [`every`], of as many words as there are masks for each of 32 results.
///
/// # Safety
/// As for [`every`]; words and output are good for these steps.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn pick<const N: usize>(places: __m512i, masks: &[u32], (words, output): (*const u16, *mut u16)) {
    // SAFETY: the caller's promise.
    unsafe {
        let from = words.cast::<__m512i>();
        let mut taken = [_mm512_setzero_si512(); N];
        for (at, mask) in masks.iter().enumerate() {
            for (step, taken) in taken.iter_mut().enumerate() {
                let words = _mm512_loadu_si512(from.add(step * masks.len() + at));
                *taken = _mm512_mask_permutexvar_epi16(*taken, *mask, places, words);
            }
        }
        for (step, taken) in taken.into_iter().enumerate() {
            _mm512_storeu_si512(output.add(step * WORDS).cast(), taken);
        }
    }
}
