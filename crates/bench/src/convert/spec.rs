//! The kernels by name.

use pciescope_convert::{Operation, Sample, Store};
use pciescope_hw::memory::ratio::LINE;

pciescope_core::named! {
    /// What a conversion writes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Output {
        /// Single precision.
        F32 => "f32",
        /// Double precision.
        F64 => "f64",
    }
    /// `f32` or `f64`.
    fn name
}

impl Output {
    /// Bytes of a number.
    pub fn size(self) -> usize {
        match self {
            Output::F32 => 4,
            Output::F64 => 8,
        }
    }
}

/// A kernel to be measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spec {
    /// What a word means.
    pub sample: Sample,
    /// What is done with it.
    pub operation: Operation,
    /// What is written.
    pub output: Output,
    /// Every nth sample is converted, with this n; at least 1.
    pub decimation: usize,
}

/// A factor that no type holds exactly, so that the kernel has to round.
const SCALE: Operation = Operation::Scale { factor: 0.1, offset: -5.0 };

/// Every kernel: all operations to both outputs, and casting and scaling with decimation, which the seed's tool has.
pub fn all(decimation: usize) -> Vec<Spec> {
    let whole = [
        (Sample::U16, Operation::Cast),
        (Sample::I16, Operation::Cast),
        (Sample::U16, SCALE),
        (Sample::I16, SCALE),
        (Sample::U16, Operation::Unsigned { m: 1, n: 15 }),
        (Sample::I16, Operation::Signed { m: 1, n: 15 }),
        (Sample::I16, Operation::Degrees { m: 3, n: 13 }),
    ];
    let outputs = [Output::F32, Output::F64];
    let with = |(sample, operation), decimation| {
        outputs.into_iter().map(move |output| Spec { sample, operation, output, decimation })
    };
    let decimated = whole.into_iter().take(4).flat_map(|kernel| with(kernel, decimation));
    whole.into_iter().flat_map(|kernel| with(kernel, 1)).chain(decimated).collect()
}

impl Spec {
    /// `u16-cast-f32`, `i16-scale-f64-d10`.
    pub fn name(&self) -> String {
        let operation = match self.operation {
            Operation::Cast => "cast",
            Operation::Scale { .. } => "scale",
            Operation::Unsigned { .. } => "unsigned",
            Operation::Signed { .. } => "signed",
            Operation::Degrees { .. } => "degrees",
        };
        let name = format!("{}-{operation}-{}", self.sample_name(), self.output.name());
        if self.decimation > 1 { format!("{name}-d{}", self.decimation) } else { name }
    }

    /// `u16` or `i16`.
    pub fn sample_name(&self) -> &'static str {
        match self.sample {
            Sample::U16 => "u16",
            Sample::I16 => "i16",
        }
    }

    /// The operation with its parameters.
    pub fn operation_text(&self) -> String {
        match self.operation {
            Operation::Cast => "cast".to_owned(),
            Operation::Scale { factor, offset } => format!("scale F={factor} O={offset}"),
            Operation::Unsigned { m, n } => format!("Q{m}.{n} unsigned"),
            Operation::Signed { m, n } => format!("Q{m}.{n} signed"),
            Operation::Degrees { m, n } => format!("Q{m}.{n} degrees"),
        }
    }

    /// Whether every line of the input holds a sample that is taken.
    pub fn is_dense(&self) -> bool {
        2 * self.decimation <= LINE
    }

    /// Bytes of input that a pass must read for each number of output.
    pub fn bytes_read_per_value(&self) -> usize {
        (2 * self.decimation).min(LINE)
    }
}

/// The name of a way to store on the command line.
pub fn store_name(store: Store) -> &'static str {
    match store {
        Store::Auto => "auto",
        Store::Cached => "cached",
        Store::Streaming => "streaming",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kernel_has_a_name_of_its_own() {
        let names: Vec<String> = all(10).iter().map(Spec::name).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
        for name in ["u16-cast-f32", "i16-degrees-f64", "i16-scale-f32-d10"] {
            assert!(names.iter().any(|known| known == name), "{name} is not in {names:?}");
        }
    }

    #[test]
    fn a_wide_decimation_reads_a_line_for_each_value() {
        let read = |decimation| {
            let spec = Spec { sample: Sample::U16, operation: Operation::Cast, output: Output::F32, decimation };
            (spec.is_dense(), spec.bytes_read_per_value())
        };
        assert_eq!([read(1), read(10), read(32), read(33)], [(true, 2), (true, 20), (true, 64), (false, 64)]);
    }
}
