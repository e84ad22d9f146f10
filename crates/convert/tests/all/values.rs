//! All 65,536 words, by every instruction set that is here, against the reference; and one by one where it is tricky.

use pciescope_convert::{Conversion, Isa, Operation, Sample, Store, reference};

fn words() -> Vec<u16> {
    (0..=u16::MAX).collect()
}

/// Every instruction set gives the reference's bits for all words.
fn check(sample: Sample, operation: Operation) {
    let words = words();
    let single: Vec<u32> = words.iter().map(|word| reference::to_f32(*word, sample, operation).to_bits()).collect();
    let double: Vec<u64> = words.iter().map(|word| reference::to_f64(*word, sample, operation).to_bits()).collect();
    // Once chosen for the best instruction set and once for each: the choice of the arithmetic may differ.
    for isa in Isa::available() {
        for store in [Store::Cached, Store::Streaming] {
            let conversion = Conversion::new(sample, operation).unwrap().with_isa(isa).unwrap().with_store(store);
            let what = |word: usize| format!("{isa} {store:?} {sample:?} {operation:?} word {word:#06x}");
            let mut output = vec![f32::NAN; words.len()];
            assert_eq!(conversion.to_f32(&words, &mut output), Ok(words.len()));
            for (word, (have, want)) in output.iter().zip(&single).enumerate() {
                assert_eq!(have.to_bits(), *want, "{} to f32: {have:e}", what(word));
            }
            let mut output = vec![f64::NAN; words.len()];
            assert_eq!(conversion.to_f64(&words, &mut output), Ok(words.len()));
            for (word, (have, want)) in output.iter().zip(&double).enumerate() {
                assert_eq!(have.to_bits(), *want, "{} to f64: {have:e}", what(word));
            }
        }
    }
}

#[test]
fn casts_equal_the_reference_for_all_words() {
    check(Sample::U16, Operation::Cast);
    check(Sample::I16, Operation::Cast);
}

#[test]
fn every_fixed_point_format_equals_the_reference_for_all_words() {
    for bits in 1..=16 {
        for n in 0..=bits {
            let m = bits - n;
            check(Sample::U16, Operation::Unsigned { m, n });
            check(Sample::U16, Operation::Signed { m, n });
            check(Sample::U16, Operation::Degrees { m, n });
        }
    }
    // These bring their own meaning of the word.
    check(Sample::I16, Operation::Unsigned { m: 1, n: 15 });
    check(Sample::I16, Operation::Signed { m: 3, n: 13 });
    check(Sample::I16, Operation::Degrees { m: 3, n: 13 });
}

#[test]
fn scalings_equal_the_reference_for_all_words() {
    let smallest = f64::from_bits(1);
    let tie = 1.0 + 2f64.powi(-24);
    for (factor, offset) in [
        (1.0, 0.0),
        (-1.0, 0.0),
        (0.0, 0.0),
        (-0.0, -0.0),
        (1.0, -0.0),
        (-1.0, -0.0),
        (0.5, -3.25),
        (0.1, 0.0),
        (-0.1, 0.0),
        (1.0 / 3.0, 0.0),
        (1e-3, 0.7),
        (10.0 / 65536.0, -5.0),
        (std::f64::consts::PI, -1e5),
        // Ties of two f32, and what lies next to them by less than an f64 can tell.
        (tie, 0.0),
        (tie, 2f64.powi(-70)),
        (tie, -(2f64.powi(-70))),
        (-tie, 2f64.powi(-70)),
        // Subnormal, tiny, huge, beyond.
        (1e-42, 1e-44),
        (f64::from(f32::MIN_POSITIVE) / 7.0, 0.0),
        (smallest, 0.0),
        (smallest, -65535.0 * smallest),
        (2f64.powi(-149), 2f64.powi(-150)),
        (1e-300, 1.0),
        (3.0 * 2f64.powi(-151), smallest),
        (1e34, 1e30),
        (f64::from(f32::MAX) / 65535.0, 0.0),
        (f64::MAX, -f64::MAX),
        (f64::MAX, 0.0),
        // Cancelling.
        (0.1, -3276.7),
        (1.0 / 3.0, -10000.0 / 3.0),
    ] {
        check(Sample::U16, Operation::Scale { factor, offset });
        check(Sample::I16, Operation::Scale { factor, offset });
    }
}

#[test]
fn scalings_with_seeded_factors_equal_the_reference_for_all_words() {
    // A linear congruential generator (Knuth's MMIX constants): the same factors on every machine.
    let mut state = 20_261_121u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 11
    };
    for round in 0..120 {
        // 1 to 53 bits, so that some products are exact, some sums too, and ties come up.
        let mut number = |scale: i32| {
            let bits = random() % 53 + 1;
            let mantissa = random() >> (53 - bits) | 1;
            let sign = if random() % 2 == 0 { 1.0 } else { -1.0 };
            sign * mantissa as f64 * 2f64.powi(scale - bits as i32 - (random() % 12) as i32)
        };
        let factor = number(0);
        let offset = if round % 3 == 0 { 0.0 } else { number(14) };
        check(if round % 2 == 0 { Sample::I16 } else { Sample::U16 }, Operation::Scale { factor, offset });
    }
}

#[test]
fn a_scaling_is_rounded_once() {
    // 1 + 2^-24 lies in the middle of two f32. With something small on top of it the upper one is nearest, but an f64
    // has no room for that: rounded twice, the even one would come out.
    let (factor, offset) = (1.0 + 2f64.powi(-24), 2f64.powi(-70));
    assert_eq!(1f64.mul_add(factor, offset) as f32, 1.0);
    for isa in Isa::available() {
        let conversion =
            Conversion::new(Sample::U16, Operation::Scale { factor, offset }).unwrap().with_isa(isa).unwrap();
        let mut output = [0f32; 64];
        conversion.to_f32(&[1; 64], &mut output).unwrap();
        assert_eq!(output, [1.0 + f32::EPSILON; 64], "{isa}");
    }
}

#[test]
fn fixed_point_means_what_its_definition_says() {
    let one = |operation, word| {
        let mut output = [0f64; 1];
        Conversion::new(Sample::U16, operation).unwrap().to_f64(&[word], &mut output).unwrap();
        output[0]
    };
    // The seed's two formats and their ranges.
    assert_eq!(one(Operation::Unsigned { m: 1, n: 15 }, 0xffff), 2.0 - 2f64.powi(-15));
    assert_eq!(one(Operation::Unsigned { m: 1, n: 15 }, 0x8000), 1.0);
    assert_eq!(one(Operation::Signed { m: 3, n: 13 }, 0x7fff), 4.0 - 2f64.powi(-13));
    assert_eq!(one(Operation::Signed { m: 3, n: 13 }, 0x8000), -4.0);
    assert_eq!(one(Operation::Degrees { m: 3, n: 13 }, 0x2000), 180.0 / std::f64::consts::PI);
    // 12 bits, whatever stands above them.
    for above in [0x0000, 0xf000, 0xa000] {
        assert_eq!(one(Operation::Signed { m: 4, n: 8 }, above | 0x800), -8.0);
        assert_eq!(one(Operation::Unsigned { m: 4, n: 8 }, above | 0x800), 8.0);
    }
    assert_eq!(one(Operation::Signed { m: 1, n: 0 }, 1), -1.0);
}
