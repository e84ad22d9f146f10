//! One sample at a time, in plain Rust: for processors without any of the others, for ends, and as their peer.

use crate::plan::{Arithmetic, Plan};

/// Converts `words` into `output`, of equal length.
pub(crate) fn to_f32(plan: &Plan, words: &[u16], output: &mut [f32]) {
    let single = plan.factor as f32;
    match plan.arithmetic {
        // 16 bits fit into the 24 of an f32.
        Arithmetic::Cast => each(plan, words, output, |x| x as f32),
        Arithmetic::Multiply => each(plan, words, output, |x| x as f32 * single),
        _ if is_product_enough(plan) => each(plan, words, output, |x| once(plan, x, product(plan, x))),
        _ => each(plan, words, output, |x| once(plan, x, fused(plan, x))),
    }
}

/// Converts `words` into `output`, of equal length.
pub(crate) fn to_f64(plan: &Plan, words: &[u16], output: &mut [f64]) {
    match plan.arithmetic {
        Arithmetic::Cast => each(plan, words, output, f64::from),
        _ if is_product_enough(plan) => each(plan, words, output, |x| product(plan, x)),
        _ => each(plan, words, output, |x| fused(plan, x)),
    }
}

/// Whether a product and a sum round once between them: the product of 16 and 24 bits is exact, and so is a sum with
/// zero. Without an instruction for it, the fused one is a slow call.
fn is_product_enough(plan: &Plan) -> bool {
    plan.arithmetic == Arithmetic::ScaleSingle || plan.offset == 0.0
}

/// `x * factor + offset` where [`is_product_enough`]. The sum with zero gives a zero its sign.
fn product(plan: &Plan, x: i32) -> f64 {
    f64::from(x) * plan.factor + plan.offset
}

/// `x * factor + offset`, rounded once.
fn fused(plan: &Plan, x: i32) -> f64 {
    f64::from(x).mul_add(plan.factor, plan.offset)
}

fn each<T>(plan: &Plan, words: &[u16], output: &mut [T], convert: impl Fn(i32) -> T) {
    let pairs = words.iter().zip(output);
    if plan.is_signed {
        pairs.for_each(|(word, number)| *number = convert(i32::from((word << plan.shift) as i16)));
    } else {
        pairs.for_each(|(word, number)| *number = convert(i32::from(word << plan.shift)));
    }
}

/// `x * factor + offset` rounded once to `f32`, computed from the value rounded to `f64`.
///
/// Rounding that again gives another result only where the first rounding landed in the middle of two `f32`. There, and
/// where the middles lie elsewhere (below the smallest normal `f32`), the reference decides.
fn once(plan: &Plan, x: i32, double: f64) -> f32 {
    if is_doubtful(double) { crate::reference::scaled_to_f32(x, plan.factor, plan.offset) } else { double as f32 }
}

/// Whether rounding this `f64`, itself rounded, to `f32` can give another result than rounding once.
fn is_doubtful(double: f64) -> bool {
    let is_middle = double.to_bits() & ((1 << 29) - 1) == 1 << 28;
    let is_small = double != 0.0 && double.abs() < f64::from(f32::MIN_POSITIVE);
    is_middle || is_small
}
