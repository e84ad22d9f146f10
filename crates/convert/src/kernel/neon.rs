//! NEON: 16 words at a time to `f32`, 8 to `f64`. It has no streaming stores of its own: processors of this kind see a row
//! of whole lines being written, and then do not read them first.

use std::arch::aarch64::*;
use std::arch::is_aarch64_feature_detected;

use crate::kernel::walk::{self, CAST, MULTIPLY, PIVOT, PRODUCT, SCALE, SCALE_SINGLE, SCALE_TWICE, Step};
use crate::plan::Plan;

pub(super) fn is_available() -> bool {
    is_aarch64_feature_detected!("neon")
}

walk::steps!(to_f32: Neon "neon", Singles, f32, Single);
walk::steps!(to_f64: Neon "neon", Doubles, f64, Double);

/// To `f32`.
#[derive(Clone, Copy)]
struct Single<const A: u8, const SIGNED: bool> {
    shift: int16x8_t,
    factor: float32x4_t,
    rest: float32x4_t,
    left: float32x4_t,
    pivot: int32x4_t,
    double_factor: float64x2_t,
    double_offset: float64x2_t,
}

/// 8 words, shifted where the arithmetic wants it.
///
/// # Safety
/// `words` is good for 8 words.
#[inline(always)]
unsafe fn load<const A: u8>(words: *const u16, shift: int16x8_t) -> uint16x8_t {
    // SAFETY: the caller's promise.
    unsafe {
        let words = vld1q_u16(words);
        if A == MULTIPLY || A == PRODUCT { vshlq_u16(words, shift) } else { words }
    }
}

/// 8 words as integers.
///
/// # Safety
/// The processor has NEON.
#[inline(always)]
unsafe fn integers<const SIGNED: bool>(words: uint16x8_t) -> [int32x4_t; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        if SIGNED {
            let words = vreinterpretq_s16_u16(words);
            [vmovl_s16(vget_low_s16(words)), vmovl_high_s16(words)]
        } else {
            [vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(words))), vreinterpretq_s32_u32(vmovl_high_u16(words))]
        }
    }
}

/// 4 integers as `f64`.
///
/// # Safety
/// The processor has NEON.
#[inline(always)]
unsafe fn doubles(integers: int32x4_t) -> [float64x2_t; 2] {
    // SAFETY: the caller's promise.
    unsafe { [vcvtq_f64_s64(vmovl_s32(vget_low_s32(integers))), vcvtq_f64_s64(vmovl_high_s32(integers))] }
}

impl<const A: u8, const SIGNED: bool> Single<A, SIGNED> {
    /// # Safety
    /// The processor has NEON.
    #[inline(always)]
    unsafe fn new(plan: &Plan) -> Self {
        let (factor, rest) = plan.singles();
        // SAFETY: the caller's promise.
        unsafe {
            Single {
                shift: vdupq_n_s16(plan.shift as i16),
                factor: vdupq_n_f32(factor),
                rest: vdupq_n_f32(rest),
                left: vdupq_n_f32(plan.left),
                pivot: vdupq_n_s32(plan.pivot),
                double_factor: vdupq_n_f64(plan.factor),
                double_offset: vdupq_n_f64(plan.offset),
            }
        }
    }

    /// 4 numbers, and lanes that are not 0 where a rounding is in doubt.
    ///
    /// # Safety
    /// The processor has NEON.
    #[inline(always)]
    unsafe fn numbers(self, integers: int32x4_t) -> (float32x4_t, uint64x2_t) {
        // SAFETY: the caller's promise.
        unsafe {
            if A == SCALE || A == SCALE_TWICE {
                let [low, high] = doubles(integers).map(|x| vfmaq_f64(self.double_offset, x, self.double_factor));
                let [low_doubt, high_doubt] = [low, high].map(|double| {
                    let rest = vandq_s64(vreinterpretq_s64_f64(double), vdupq_n_s64(walk::REST));
                    vceqq_s64(rest, vdupq_n_s64(walk::MIDDLE))
                });
                return (vcvt_high_f32_f64(vcvt_f32_f64(low), high), vorrq_u64(low_doubt, high_doubt));
            }
            let x = vcvtq_f32_s32(integers);
            let number = match A {
                CAST => x,
                MULTIPLY => vmulq_f32(x, self.factor),
                // factor + rest is the factor to 48 bits: see Arithmetic::Product.
                PRODUCT => vfmaq_f32(vmulq_f32(x, self.rest), x, self.factor),
                PIVOT => vfmaq_f32(vfmaq_f32(self.left, x, self.rest), x, self.factor),
                SCALE_SINGLE => vfmaq_f32(self.rest, x, self.factor),
                _ => unreachable!(),
            };
            (number, vdupq_n_u64(0))
        }
    }
}

impl<const A: u8, const SIGNED: bool> Step for Single<A, SIGNED> {
    type Number = f32;
    const WORDS: usize = 16;

    #[inline(always)]
    unsafe fn step<const STORE: u8>(self, words: *const u16, output: *mut f32) -> bool {
        // SAFETY: the caller's promise: 16 words and numbers.
        unsafe {
            let [first, second] = integers::<SIGNED>(load::<A>(words, self.shift));
            let [third, fourth] = integers::<SIGNED>(load::<A>(words.add(8), self.shift));
            let numbers = [first, second, third, fourth].map(|integers| self.numbers(integers));
            if A == SCALE {
                let doubt = vorrq_u64(vorrq_u64(numbers[0].1, numbers[1].1), vorrq_u64(numbers[2].1, numbers[3].1));
                if vmaxvq_u32(vreinterpretq_u32_u64(doubt)) != 0 {
                    return false;
                }
            }
            for (index, (number, _)) in numbers.into_iter().enumerate() {
                vst1q_f32(output.add(4 * index), number);
            }
        }
        true
    }
}

/// To `f64`.
#[derive(Clone, Copy)]
struct Double<const A: u8, const SIGNED: bool> {
    shift: int16x8_t,
    factor: float64x2_t,
    offset: float64x2_t,
}

impl<const A: u8, const SIGNED: bool> Double<A, SIGNED> {
    /// # Safety
    /// The processor has NEON.
    #[inline(always)]
    unsafe fn new(plan: &Plan) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            Double {
                shift: vdupq_n_s16(plan.shift as i16),
                factor: vdupq_n_f64(plan.factor),
                offset: vdupq_n_f64(plan.offset),
            }
        }
    }
}

impl<const A: u8, const SIGNED: bool> Step for Double<A, SIGNED> {
    type Number = f64;
    const WORDS: usize = 8;

    #[inline(always)]
    unsafe fn step<const STORE: u8>(self, words: *const u16, output: *mut f64) -> bool {
        // SAFETY: the caller's promise: 8 words and numbers.
        unsafe {
            let [low, high] = integers::<SIGNED>(load::<A>(words, self.shift)).map(|integers| doubles(integers));
            for (index, x) in low.into_iter().chain(high).enumerate() {
                let number = match A {
                    CAST => x,
                    MULTIPLY => vmulq_f64(x, self.factor),
                    PRODUCT | PIVOT | SCALE_SINGLE | SCALE_TWICE | SCALE => vfmaq_f64(self.offset, x, self.factor),
                    _ => unreachable!(),
                };
                vst1q_f64(output.add(2 * index), number);
            }
        }
        true
    }
}

/// Takes every `stride`th word for a start of the output, and returns its length. For strides 2 to 4.
///
/// # Safety
/// The processor has NEON.
#[target_feature(enable = "neon")]
pub(super) unsafe fn every(words: &[u16], stride: usize, output: &mut [u16]) -> usize {
    const WORDS: usize = 8;
    if !(2..=4).contains(&stride) {
        return 0;
    }
    let steps = (words.len() / stride).min(output.len()) / WORDS;
    // SAFETY: step `s` reads words up to (s + 1) * 8 * stride and writes results up to (s + 1) * 8.
    unsafe {
        for step in 0..steps {
            let from = words.as_ptr().add(step * WORDS * stride);
            let taken = match stride {
                2 => vld2q_u16(from).0,
                3 => vld3q_u16(from).0,
                _ => vld4q_u16(from).0,
            };
            vst1q_u16(output.as_mut_ptr().add(step * WORDS), taken);
        }
    }
    steps * WORDS
}
