//! From what is asked for to the arithmetic that a kernel does.

use crate::isa::Isa;
use crate::kernel::Real;
use crate::operation::{Operation, Sample};
use crate::reference::DEGREES;

/// What a kernel does with each word: shift it left, read it as an integer, and compute.
///
/// The shift drops the bits above a short fixed-point format and brings its sign to the top; the factor takes it back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Bits to the left, 0 to 15.
    pub shift: u32,
    /// Whether the shifted word is two's complement.
    pub is_signed: bool,
    /// The rest.
    pub arithmetic: Arithmetic,
    /// The factor: a power of two for `Multiply`.
    pub factor: f64,
    /// The offset: 0 but for `Scale`.
    pub offset: f64,
    /// For `Pivot` in `f32`: what is taken from each integer first.
    pub pivot: i32,
    /// For `Pivot` in `f32`: what is left of the offset then, `pivot * factor + offset`.
    pub left: f32,
}

/// The kinds of arithmetic. Each kernel says how it gets the exact result rounded once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    /// The integer itself.
    Cast,
    /// Times a power of two: exact in both types.
    Multiply,
    /// Times a factor that takes more than the bits of an `f32`. In `f32` it is two factors, and right for all 65,536 words:
    /// the tests have tried them.
    Product,
    /// Times such a factor, plus an offset. In `f32` it is two factors, of the distance from the integer that comes out nearest
    /// to 0, plus the little that is left of the offset there. Right for all 65,536 words: [`Plan::settle`] has tried them.
    Pivot,
    /// Times a factor, plus an offset, both exact in `f32`.
    ScaleSingle,
    /// Times a factor, plus an offset; rounding to `f64` and then to `f32` is right for all 65,536 words.
    ScaleTwice,
    /// Times a factor, plus an offset; no result lies between 0 and the smallest normal `f32`.
    Scale,
    /// Times a factor, plus an offset; a result may lie there.
    ScaleTiny,
}

impl Plan {
    /// The plan for an operation that was checked.
    pub fn new(sample: Sample, operation: Operation) -> Self {
        let plain = Plan {
            shift: 0,
            is_signed: sample == Sample::I16,
            arithmetic: Arithmetic::Cast,
            factor: 1.0,
            offset: 0.0,
            pivot: 0,
            left: 0.0,
        };
        let fixed = |m: u8, n: u8, is_signed, arithmetic, factor: f64| {
            let shift = 16 - u32::from(m) - u32::from(n);
            Plan { shift, is_signed, arithmetic, factor: factor * power(u32::from(n) + shift), ..plain }
        };
        match operation {
            Operation::Cast => plain,
            Operation::Scale { factor, offset } => {
                // -0.0 as an offset is not the same as none: it keeps the sign of a zero.
                let is_single = f64::from(factor as f32) == factor && f64::from(offset as f32) == offset;
                let arithmetic = match (is_single, may_be_tiny(factor, offset)) {
                    (true, _) => Arithmetic::ScaleSingle,
                    (false, false) => Arithmetic::Scale,
                    (false, true) => Arithmetic::ScaleTiny,
                };
                Plan { arithmetic, factor, offset, ..plain }
            }
            Operation::Unsigned { m, n } => fixed(m, n, false, Arithmetic::Multiply, 1.0),
            Operation::Signed { m, n } => fixed(m, n, true, Arithmetic::Multiply, 1.0),
            Operation::Degrees { m, n } => fixed(m, n, true, Arithmetic::Product, DEGREES),
        }
    }

    /// Looks for a quicker arithmetic that is still right, by trying all 65,536 words with the kernel: some ten
    /// microseconds. The quicker ones round twice; whether that ever shows depends on factor and offset.
    pub fn settle(self, isa: Isa) -> Self {
        if self.arithmetic != Arithmetic::Scale || isa == Isa::Scalar {
            return self;
        }
        // Where the offset is a multiple of the factor, as with most that people write, next to nothing is left of it.
        let pivot = 0.0 - (self.offset / self.factor).round();
        let left = pivot.mul_add(self.factor, self.offset) as f32;
        for neighbour in [0, 1, -1] {
            let left = f32::from_bits(left.to_bits().wrapping_add_signed(neighbour));
            let quicker = Plan { arithmetic: Arithmetic::Pivot, pivot: pivot as i32, left, ..self };
            if self.agrees(&quicker, isa) {
                return quicker;
            }
        }
        let twice = Plan { arithmetic: Arithmetic::ScaleTwice, ..self };
        if self.agrees(&twice, isa) { twice } else { self }
    }

    /// Whether another plan gives the same `f32` for all words.
    fn agrees(&self, other: &Plan, isa: Isa) -> bool {
        const BLOCK: u16 = 1024;
        let (mut words, mut ours, mut theirs) = ([0; BLOCK as usize], [0f32; BLOCK as usize], [0f32; BLOCK as usize]);
        (0..=u16::MAX / BLOCK).all(|block| {
            for (index, word) in (0..).zip(&mut words) {
                *word = block * BLOCK + index;
            }
            f32::convert(isa, self, false, &words, &mut ours);
            f32::convert(isa, other, false, &words, &mut theirs);
            // No branch in between, so that the compiler can compare many at a time.
            ours.iter().zip(&theirs).fold(0, |all, (our, their)| all | our.to_bits() ^ their.to_bits()) == 0
        })
    }

    /// Whether a number of this type takes so much arithmetic that storing it does not matter.
    pub fn is_long<T>(&self) -> bool {
        size_of::<T>() == 4 && matches!(self.arithmetic, Arithmetic::Scale | Arithmetic::ScaleTwice)
    }

    /// Factor and offset as `f32`; for `Product` and `Pivot` the factor in two parts.
    pub fn singles(&self) -> (f32, f32) {
        let factor = self.factor as f32;
        match self.arithmetic {
            Arithmetic::Product | Arithmetic::Pivot => (factor, (self.factor - f64::from(factor)) as f32),
            _ => (factor, self.offset as f32),
        }
    }
}

/// Whether some `x * factor + offset` may lie between 0 and the smallest normal `f32`.
fn may_be_tiny(factor: f64, offset: f64) -> bool {
    // Without an offset the smallest is the factor; with one, whatever is left is a multiple of the last place of both.
    let last_place = |value: f64| value == 0.0 || value.abs() >= f64::from(f32::MIN_POSITIVE) * 2f64.powi(52);
    let is_factor_normal = factor.abs() >= f64::from(f32::MIN_POSITIVE);
    !(offset == 0.0 && is_factor_normal || last_place(factor) && last_place(offset))
}

/// 2^-n.
fn power(n: u32) -> f64 {
    1.0 / f64::from(1u32 << n)
}

#[cfg(test)]
mod tests {
    use std::f64::consts::PI;

    use super::*;

    #[test]
    fn a_scaling_gets_the_quickest_arithmetic_that_is_right() {
        let plan = |factor, offset| {
            let plan = Plan::new(Sample::U16, Operation::Scale { factor, offset });
            Isa::available().into_iter().map(move |isa| (isa, plan.settle(isa).arithmetic))
        };
        let tie = 1.0 + 2f64.powi(-24);
        for (factor, offset, want) in [
            (0.5, 1.0, Arithmetic::ScaleSingle),
            (0.1, 0.0, Arithmetic::Pivot),
            (0.1, -5.0, Arithmetic::Pivot),
            (0.1, PI, Arithmetic::Pivot),
            (0.2727465113860169, -1940.2818009992081, Arithmetic::ScaleTwice),
            // Some word comes out wrong when rounded twice.
            (tie, 2f64.powi(-70), Arithmetic::Scale),
            (1e-300, 1.0, Arithmetic::ScaleTiny),
        ] {
            for (isa, have) in plan(factor, offset) {
                // One at a time, nothing is gained by it.
                let is_settled = matches!(want, Arithmetic::Pivot | Arithmetic::ScaleTwice);
                let want = if isa == Isa::Scalar && is_settled { Arithmetic::Scale } else { want };
                assert_eq!(have, want, "{isa}: {factor:e} and {offset:e}");
            }
        }
    }

    #[test]
    fn tiny_results_are_foreseen() {
        assert!(!may_be_tiny(0.1, 0.7));
        assert!(!may_be_tiny(1e-30, 0.0));
        assert!(may_be_tiny(1e-30, 1e-30));
        assert!(may_be_tiny(1e-39, 0.0));
        assert!(may_be_tiny(1.0, 1e-30));
    }
}
