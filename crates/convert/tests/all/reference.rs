//! The reference against rational numbers: its result is the nearest one, and the even one of two that are as near.

use num_rational::BigRational;
use pciescope_convert::{Operation, Sample, reference};
use proptest::prelude::*;

fn exact(value: f64) -> BigRational {
    BigRational::from_float(value).unwrap()
}

fn integer(value: i32) -> BigRational {
    BigRational::from_integer(value.into())
}

/// `have` is `exact` rounded to `f64`.
fn is_nearest_f64(have: f64, exact_value: &BigRational) -> bool {
    if have.is_nan() {
        return false;
    }
    let (magnitude, sign) = (have.abs(), integer(if have.is_sign_negative() { -1 } else { 1 }));
    let value = exact_value * sign;
    // The middles to both sides; beyond the largest, that to what would come next.
    let middle = |low: f64| {
        let next = f64::from_bits(low.to_bits() + 1);
        let gap = if next.is_infinite() {
            exact(low) - exact(f64::from_bits(low.to_bits() - 1))
        } else {
            exact(next) - exact(low)
        };
        exact(low) + gap / integer(2)
    };
    let is_even = magnitude.to_bits() & 1 == 0;
    let is_above = magnitude == 0.0 || {
        let low = middle(f64::from_bits(magnitude.to_bits() - 1));
        value > low || (value == low && is_even)
    };
    let is_below = magnitude.is_infinite() || {
        let high = middle(magnitude);
        value < high || (value == high && is_even)
    };
    // A zero has the sign of what was rounded away.
    let has_sign = magnitude != 0.0 || value >= integer(0);
    is_above && is_below && has_sign
}

/// `have` is `exact` rounded to `f32`.
fn is_nearest_f32(have: f32, exact_value: &BigRational) -> bool {
    if have.is_nan() {
        return false;
    }
    let (magnitude, sign) = (have.abs(), integer(if have.is_sign_negative() { -1 } else { 1 }));
    let value = exact_value * sign;
    let wide = |value: f32| if value.is_infinite() { 2f64.powi(128) } else { f64::from(value) };
    // Exact: an f64 holds the middle of two f32.
    let middle = |low: f32| exact((wide(low) + wide(f32::from_bits(low.to_bits() + 1))) / 2.0);
    let is_even = magnitude.to_bits() & 1 == 0;
    let is_above = magnitude == 0.0 || {
        let low = middle(f32::from_bits(magnitude.to_bits() - 1));
        value > low || (value == low && is_even)
    };
    let is_below = magnitude.is_infinite() || {
        let high = middle(magnitude);
        value < high || (value == high && is_even)
    };
    let has_sign = magnitude != 0.0 || value >= integer(0);
    is_above && is_below && has_sign
}

fn check(word: u16, sample: Sample, factor: f64, offset: f64) -> Result<(), TestCaseError> {
    let operation = Operation::Scale { factor, offset };
    let x = sample.integer(word);
    let value = integer(x) * exact(factor) + exact(offset);
    let (single, double) = (reference::to_f32(word, sample, operation), reference::to_f64(word, sample, operation));
    if value == integer(0) {
        // Its sign is IEEE's.
        let fused = f64::from(x).mul_add(factor, offset);
        prop_assert_eq!(double.to_bits(), fused.to_bits());
        prop_assert_eq!(single.to_bits(), (fused as f32).to_bits());
        return Ok(());
    }
    prop_assert!(is_nearest_f64(double, &value), "{} * {:e} + {:e} is not {:e}", x, factor, offset, double);
    prop_assert!(is_nearest_f32(single, &value), "{} * {:e} + {:e} is not {:e}", x, factor, offset, single);
    // The processor's own word on it.
    prop_assert_eq!(double.to_bits(), f64::from(x).mul_add(factor, offset).to_bits());
    Ok(())
}

/// Finite numbers of every size and of few or many bits.
fn number() -> impl Strategy<Value = f64> {
    let short = (-1000i32..1000, 0u64..1 << 30, 0u32..30)
        .prop_map(|(exponent, mantissa, bits)| (mantissa >> bits) as f64 * 2f64.powi(exponent.clamp(-1000, 900)));
    let usual = (any::<u64>(), -160i32..140, any::<bool>()).prop_map(|(mantissa, exponent, is_negative)| {
        let value = ((mantissa >> 11) as f64) * 2f64.powi(exponent - 53);
        if is_negative { -value } else { value }
    });
    let any = any::<u64>().prop_map(f64::from_bits).prop_filter("finite", |value| value.is_finite());
    prop_oneof![short, usual, any]
}

fn sample() -> impl Strategy<Value = Sample> {
    prop_oneof![Just(Sample::U16), Just(Sample::I16)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8000))]

    #[test]
    fn a_scaling_is_the_nearest_number(word: u16, sample in sample(), factor in number(), offset in number()) {
        check(word, sample, factor, offset)?;
    }

    #[test]
    fn a_scaling_that_cancels_is_the_nearest_number(
        word: u16, sample in sample(), factor in number(), other: u16, wrong in -3i64..=3,
    ) {
        let offset = -(f64::from(sample.integer(other)) * factor);
        prop_assume!(offset.is_finite());
        let offset = f64::from_bits(offset.to_bits().wrapping_add_signed(wrong));
        prop_assume!(offset.is_finite());
        check(word, sample, factor, offset)?;
        check(other, sample, factor, offset)?;
    }

    #[test]
    fn a_scaling_next_to_a_tie_is_the_nearest_number(word: u16, mantissa in 0u64..1 << 24, exponent in -20i32..20, distance in -120i32..-40, is_below: bool) {
        // Half an ULP of an f32, and something small to one side of it.
        let factor = (mantissa | 1 << 24 | 1) as f64 * 2f64.powi(exponent);
        let offset = 2f64.powi(distance) * if is_below { -1.0 } else { 1.0 };
        check(word, Sample::U16, factor, offset)?;
        check(1, Sample::I16, factor, offset)?;
    }
}

#[test]
fn degrees_are_the_nearest_number() {
    assert_eq!(reference::DEGREES, 180.0 / std::f64::consts::PI);
    for word in 0..=u16::MAX {
        let operation = Operation::Degrees { m: 3, n: 13 };
        let value = integer(Sample::I16.integer(word)) * exact(reference::DEGREES) / integer(1 << 13);
        let (single, double) =
            (reference::to_f32(word, Sample::U16, operation), reference::to_f64(word, Sample::U16, operation));
        assert!(is_nearest_f32(single, &value), "{word:#06x}");
        assert!(is_nearest_f64(double, &value), "{word:#06x}");
    }
}
