//! Whether a kernel gives the reference's result: for every possible word, and for every number that it was measured
//! with.

use pciescope_convert::{Conversion, reference};
use pciescope_hw::memory::Buffer;

use super::spec::{Output, Spec};

/// The allowed distance between a kernel and the reference, in ULP: the crate promises the reference's bits.
pub const BOUND: u64 = 0;

/// Words that 16 bits can form.
const WORDS: usize = 1 << 16;

/// How a kernel compares with the reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// ULP, the largest of all.
    pub largest_error: u64,
    /// Numbers farther away than [`BOUND`].
    pub wrong: u64,
    /// Numbers compared.
    pub checked: u64,
    /// What the reference gives for each word, in [`steps`].
    right: Vec<i64>,
}

/// A number as its place among all numbers of its type: neighbours are one apart, and the two zeros are one.
fn steps(value: f64, output: Output) -> i64 {
    match output {
        Output::F32 => {
            let bits = (value as f32).to_bits() as i32;
            i64::from(if bits < 0 { i32::MIN.wrapping_sub(bits) } else { bits })
        }
        Output::F64 => {
            let bits = value.to_bits() as i64;
            if bits < 0 { i64::MIN.wrapping_sub(bits) } else { bits }
        }
    }
}

/// What the reference gives for a word; an `f32` is exact as `f64`.
fn right(spec: &Spec, word: u16) -> f64 {
    match spec.output {
        Output::F32 => f64::from(reference::to_f32(word, spec.sample, spec.operation)),
        Output::F64 => reference::to_f64(word, spec.sample, spec.operation),
    }
}

/// Converts every possible word, each at a place that the kernel takes, and compares.
pub fn every_word(spec: &Spec, conversion: &Conversion) -> Checked {
    let right = (0..=u16::MAX).map(|word| steps(right(spec, word), spec.output)).collect();
    let mut checked = Checked { largest_error: 0, wrong: 0, checked: 0, right };
    let mut input = vec![0u16; WORDS * spec.decimation];
    for (word, group) in (0..=u16::MAX).zip(input.chunks_mut(spec.decimation)) {
        group.fill(!word);
        group[0] = word;
    }
    let refused = "the output has room for every word";
    match spec.output {
        Output::F32 => {
            let mut output = vec![0f32; WORDS];
            conversion.to_f32(&input, &mut output).expect(refused);
            (0..=u16::MAX).zip(&output).for_each(|(word, value)| checked.compare(word, f64::from(*value), spec.output));
        }
        Output::F64 => {
            let mut output = vec![0f64; WORDS];
            conversion.to_f64(&input, &mut output).expect(refused);
            (0..=u16::MAX).zip(&output).for_each(|(word, value)| checked.compare(word, *value, spec.output));
        }
    }
    checked
}

impl Checked {
    fn compare(&mut self, word: u16, value: f64, output: Output) {
        let error = steps(value, output).abs_diff(self.right[usize::from(word)]);
        self.largest_error = self.largest_error.max(error);
        self.wrong += u64::from(error > BOUND);
        self.checked += 1;
    }

    /// Compares the output of a measured pass as well.
    pub fn output(&mut self, spec: &Spec, input: &[u16], output: &mut Buffer) {
        let taken = input.chunks_exact(spec.decimation).map(|group| group[0]);
        match spec.output {
            Output::F32 => {
                taken.zip(output.singles_mut()).for_each(|(word, value)| {
                    self.compare(word, f64::from(*value), spec.output);
                });
            }
            Output::F64 => {
                taken.zip(output.doubles_mut()).for_each(|(word, value)| self.compare(word, *value, spec.output));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pciescope_convert::{Decimation, Operation, Sample};

    use super::*;

    const DEGREES: Spec = Spec {
        sample: Sample::I16,
        operation: Operation::Degrees { m: 3, n: 13 },
        output: Output::F32,
        decimation: 10,
    };

    fn conversion(spec: &Spec, operation: Operation) -> Conversion {
        let decimation = Decimation { offset: 0, factor: spec.decimation };
        Conversion::new(spec.sample, operation).unwrap().with_decimation(decimation).unwrap()
    }

    #[test]
    fn neighbours_are_one_step_apart_across_zero() {
        for (output, next) in [(Output::F32, f64::from(f32::from_bits(1))), (Output::F64, f64::from_bits(1))] {
            assert_eq!(steps(0.0, output), steps(-0.0, output));
            assert_eq!(steps(next, output) - steps(-next, output), 2);
        }
        assert_eq!(steps(1.0, Output::F32) - steps(f64::from(f32::from_bits(0x3f7f_ffff)), Output::F32), 1);
        assert_eq!(steps(-1.0, Output::F64) - steps(-f64::from_bits(0x3fef_ffff_ffff_ffff), Output::F64), -1);
    }

    #[test]
    fn a_right_kernel_is_right_and_a_wrong_one_is_found() {
        for output in [Output::F32, Output::F64] {
            let spec = Spec { output, ..DEGREES };
            let checked = every_word(&spec, &conversion(&spec, spec.operation));
            assert_eq!((checked.largest_error, checked.wrong, checked.checked), (0, 0, 65_536));
            // Another format: every word but 0 comes out as half of what it should.
            let wrong = every_word(&spec, &conversion(&spec, Operation::Degrees { m: 2, n: 14 }));
            assert_eq!(wrong.wrong, 65_535);
            assert!(wrong.largest_error >= 1 << 23, "{}", wrong.largest_error);
        }
    }

    #[test]
    fn the_measured_output_is_compared_number_by_number() {
        let conversion = conversion(&DEGREES, DEGREES.operation);
        let input: Vec<u16> = (0..1005).map(|place| place * 65).collect();
        let mut output = Buffer::on_node(400, None).unwrap();
        conversion.to_f32(&input, output.singles_mut()).unwrap();
        let mut checked = every_word(&DEGREES, &conversion);
        checked.output(&DEGREES, &input, &mut output);
        assert_eq!((checked.wrong, checked.checked), (0, 65_636));
        let value = &mut output.singles_mut()[99];
        *value = f32::from_bits(value.to_bits() + 1);
        checked.output(&DEGREES, &input, &mut output);
        assert_eq!((checked.wrong, checked.largest_error), (1, 1));
    }
}
