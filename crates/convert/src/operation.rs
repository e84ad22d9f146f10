//! What is asked for: the sample's type, the arithmetic and which samples are taken.

use crate::Error;

/// What a 16-bit word means as an integer. `Unsigned`, `Signed` and `Degrees` bring their own meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sample {
    /// 0 to 65,535.
    U16,
    /// -32,768 to 32,767, two's complement.
    I16,
}

impl Sample {
    /// The word as an integer.
    pub fn integer(self, word: u16) -> i32 {
        match self {
            Sample::U16 => i32::from(word),
            Sample::I16 => i32::from(word as i16),
        }
    }
}

/// What is done with each sample `x`.
///
/// A fixed-point format Qm.n has `m` integer bits (with the sign, where there is one) and `n` fraction bits, `m + n` from
/// 1 to 16, in the low bits of the word. Bits above are ignored, so that it does not matter how a converter of fewer than
/// 16 bits fills them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Operation {
    /// `x`. Exact.
    Cast,
    /// `x * factor + offset`, rounded once. Both are finite.
    Scale {
        /// In units of the result per step of the converter.
        factor: f64,
        /// In units of the result.
        offset: f64,
    },
    /// The low `m + n` bits as an unsigned number, over 2^n: 0 to 2^m - 2^-n. Exact.
    Unsigned {
        /// Integer bits.
        m: u8,
        /// Fraction bits.
        n: u8,
    },
    /// The low `m + n` bits as a two's complement number, over 2^n: -2^(m-1) to 2^(m-1) - 2^-n. Exact.
    Signed {
        /// Integer bits and the sign.
        m: u8,
        /// Fraction bits.
        n: u8,
    },
    /// As `Signed`, in radians, times 180/pi: degrees. The factor is 180/pi as the nearest `f64`
    /// ([`DEGREES`](crate::reference::DEGREES)); the product is rounded once.
    Degrees {
        /// Integer bits and the sign.
        m: u8,
        /// Fraction bits.
        n: u8,
    },
}

impl Operation {
    /// Refuses operations without a meaning.
    pub(crate) fn check(self) -> Result<(), Error> {
        match self {
            Operation::Cast => Ok(()),
            Operation::Scale { factor, offset } => {
                let finite = |what, value: f64| match value.is_finite() {
                    true => Ok(()),
                    false => Err(Error::NotFinite { what, value }),
                };
                finite("factor", factor)?;
                finite("offset", offset)
            }
            Operation::Unsigned { m, n } | Operation::Signed { m, n } | Operation::Degrees { m, n } => {
                match u16::from(m) + u16::from(n) {
                    1..=16 => Ok(()),
                    _ => Err(Error::Format { m, n }),
                }
            }
        }
    }
}

/// Which samples are taken: the first of each whole group of `factor`, after `offset` samples. No filter, no mean.
///
/// Of `len` samples, `(len - offset) / factor` are taken (rounded down; none where `offset` is larger than `len`), as
/// sis8300drv_threads does it: a last group that is not whole gives nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decimation {
    /// Samples that are left out at the start.
    pub offset: usize,
    /// Distance of two samples that are taken, at least 1.
    pub factor: usize,
}

impl Decimation {
    /// Whole groups in `len` samples.
    pub(crate) fn groups(self, len: usize) -> usize {
        len.saturating_sub(self.offset) / self.factor
    }
}

impl Default for Decimation {
    fn default() -> Self {
        Decimation { offset: 0, factor: 1 }
    }
}
