//! How a kernel walks over its words: a first step wherever the output starts, then steps at whole cache lines, then a
//! last one that ends where the output ends. The first and the last may write some numbers that a neighbour writes too:
//! they are the same numbers.

use crate::kernel::scalar;
use crate::plan::{Arithmetic, Plan};

/// A cache line, in bytes; also the alignment that streaming stores need here.
const LINE: usize = 64;

/// Stores anywhere.
pub(super) const ANYWHERE: u8 = 0;
/// Stores at the start of a cache line.
pub(super) const ALIGNED: u8 = 1;
/// As `ALIGNED`, past the cache.
pub(super) const STREAMING: u8 = 2;

/// [`Arithmetic`] as a parameter of a type.
pub(super) const CAST: u8 = Arithmetic::Cast as u8;
/// [`Arithmetic`] as a parameter of a type.
pub(super) const MULTIPLY: u8 = Arithmetic::Multiply as u8;
/// [`Arithmetic`] as a parameter of a type.
pub(super) const PRODUCT: u8 = Arithmetic::Product as u8;
/// [`Arithmetic`] as a parameter of a type.
pub(super) const PIVOT: u8 = Arithmetic::Pivot as u8;
/// [`Arithmetic`] as a parameter of a type.
pub(super) const SCALE_SINGLE: u8 = Arithmetic::ScaleSingle as u8;
/// [`Arithmetic`] as a parameter of a type.
pub(super) const SCALE_TWICE: u8 = Arithmetic::ScaleTwice as u8;
/// [`Arithmetic`] as a parameter of a type.
pub(super) const SCALE: u8 = Arithmetic::Scale as u8;

/// The low bits of an `f64` that an `f32` has no room for, and their value in the middle of two `f32`: see
/// `is_doubtful` of the scalar kernel.
pub(super) const REST: i64 = (1 << 29) - 1;
/// See [`REST`].
pub(super) const MIDDLE: i64 = 1 << 28;

/// A type of output, and its kernel for any processor.
pub(super) trait Number: Copy {
    fn scalar(plan: &Plan, words: &[u16], output: &mut [Self]);
}

impl Number for f32 {
    fn scalar(plan: &Plan, words: &[u16], output: &mut [f32]) {
        scalar::to_f32(plan, words, output);
    }
}

impl Number for f64 {
    fn scalar(plan: &Plan, words: &[u16], output: &mut [f64]) {
        scalar::to_f64(plan, words, output);
    }
}

/// Some words at a time. The constants of the arithmetic lie in the type, in vectors.
pub(super) trait Step: Copy {
    /// What comes out.
    type Number: Number;

    /// Words of a step: their numbers fill whole cache lines.
    const WORDS: usize;

    /// Reads `WORDS` words and writes as many numbers, in the way that `STORE` says. `false` where a rounding is in doubt;
    /// nothing is written then.
    ///
    /// # Safety
    /// The instruction set is here, `words` and `output` are good for `WORDS` words and numbers, and `output` lies as
    /// `STORE` wants it.
    unsafe fn step<const STORE: u8>(self, words: *const u16, output: *mut Self::Number) -> bool;
}

/// Converts `words` into `output`.
///
/// # Safety
/// The instruction set of the step is here, and `words` is as long as `output`.
#[inline(always)]
pub(super) unsafe fn walk<S: Step, const STORE: u8>(step: S, plan: &Plan, words: &[u16], output: &mut [S::Number]) {
    let len = output.len();
    if len < S::WORDS {
        return S::Number::scalar(plan, words, output);
    }
    let (from, to) = (words.as_ptr(), output.as_mut_ptr());
    let size = size_of::<S::Number>();
    // Numbers before the first whole cache line: less than a line's, so less than a step's.
    let head = (to as usize).wrapping_neg() % LINE / size;
    let mut done = head;
    // SAFETY: every step starts at 0 or later and ends at len or before; those that are not ANYWHERE start at a line,
    // because each number lies at a multiple of its size, which divides a line.
    unsafe {
        if head > 0 {
            one::<S, ANYWHERE>(step, plan, from, to);
        }
        while done + S::WORDS <= len {
            one::<S, STORE>(step, plan, from.add(done), to.add(done));
            done += S::WORDS;
        }
        if done < len {
            let last = len - S::WORDS;
            one::<S, ANYWHERE>(step, plan, from.add(last), to.add(last));
        }
    }
}

/// One step, and its words one at a time where a rounding is in doubt.
///
/// # Safety
/// As for [`Step::step`].
#[inline(always)]
unsafe fn one<S: Step, const STORE: u8>(step: S, plan: &Plan, words: *const u16, output: *mut S::Number) {
    // SAFETY: the caller's promise.
    if unsafe { !step.step::<STORE>(words, output) } {
        // SAFETY: as above.
        unsafe { doubt(plan, words, output, S::WORDS) };
    }
}

/// Converts one word at a time.
///
/// # Safety
/// `words` and `output` are good for `len` words and numbers.
#[cold]
unsafe fn doubt<N: Number>(plan: &Plan, words: *const u16, output: *mut N, len: usize) {
    // SAFETY: the caller's promise; the output was given to us as a slice, and is reached in no other way meanwhile.
    let (words, output) =
        unsafe { (std::slice::from_raw_parts(words, len), std::slice::from_raw_parts_mut(output, len)) };
    N::scalar(plan, words, output);
}

/// The steps of an instruction set to one type of output.
pub(super) trait Steps {
    /// What comes out.
    type Number: Number;

    /// The step for an arithmetic and for words with or without sign.
    type Step<const A: u8, const SIGNED: bool>: Step<Number = Self::Number>;

    /// The step with its constants.
    ///
    /// # Safety
    /// The instruction set is here.
    unsafe fn step<const A: u8, const SIGNED: bool>(plan: &Plan) -> Self::Step<A, SIGNED>;
}

/// The kernel `to` of an instruction set with these features, and its steps: a name for them all, what comes out, and the type
/// of one.
macro_rules! steps {
    ($to:ident: $isa:ident $features:literal, $all:ident, $number:ty, $one:ident) => {
        /// Converts `words` into `output`.
        ///
        /// # Safety
        /// The processor has the features, and `words` is as long as `output`.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $to(plan: &Plan, is_streaming: bool, words: &[u16], output: &mut [$number]) {
            #[cfg(test)]
            $crate::kernel::taken::note($crate::isa::Isa::$isa);
            // SAFETY: the caller's promise.
            unsafe { walk::convert::<$all>(plan, is_streaming, words, output) }
        }

        struct $all;

        impl $crate::kernel::walk::Steps for $all {
            type Number = $number;
            type Step<const A: u8, const SIGNED: bool> = $one<A, SIGNED>;

            #[inline(always)]
            unsafe fn step<const A: u8, const SIGNED: bool>(plan: &Plan) -> $one<A, SIGNED> {
                // SAFETY: the caller's promise.
                unsafe { $one::new(plan) }
            }
        }
    };
}
pub(super) use steps;

/// Converts `words` into `output`. To be called by a function with the target features of the instruction set, and
/// inlined into it with all that it calls.
///
/// # Safety
/// The instruction set is here, and `words` is as long as `output`.
#[inline(always)]
pub(super) unsafe fn convert<S: Steps>(plan: &Plan, is_streaming: bool, words: &[u16], output: &mut [S::Number]) {
    // SAFETY: the caller's promise.
    unsafe {
        match plan.arithmetic {
            Arithmetic::Cast => signs::<S, CAST>(plan, is_streaming, words, output),
            Arithmetic::Multiply => signs::<S, MULTIPLY>(plan, is_streaming, words, output),
            Arithmetic::Product => signs::<S, PRODUCT>(plan, is_streaming, words, output),
            Arithmetic::Pivot => signs::<S, PIVOT>(plan, is_streaming, words, output),
            Arithmetic::ScaleSingle => signs::<S, SCALE_SINGLE>(plan, is_streaming, words, output),
            Arithmetic::ScaleTwice => signs::<S, SCALE_TWICE>(plan, is_streaming, words, output),
            Arithmetic::Scale => signs::<S, SCALE>(plan, is_streaming, words, output),
            Arithmetic::ScaleTiny => S::Number::scalar(plan, words, output),
        }
    }
}

#[inline(always)]
unsafe fn signs<S: Steps, const A: u8>(plan: &Plan, is_streaming: bool, words: &[u16], output: &mut [S::Number]) {
    // SAFETY: the caller's promise.
    unsafe {
        if plan.is_signed {
            stores::<S, A, true>(plan, is_streaming, words, output);
        } else {
            stores::<S, A, false>(plan, is_streaming, words, output);
        }
    }
}

#[inline(always)]
unsafe fn stores<S: Steps, const A: u8, const SIGNED: bool>(
    plan: &Plan,
    is_streaming: bool,
    words: &[u16],
    output: &mut [S::Number],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let step = S::step::<A, SIGNED>(plan);
        if is_streaming {
            walk::<_, STREAMING>(step, plan, words, output);
        } else {
            walk::<_, ALIGNED>(step, plan, words, output);
        }
    }
}
