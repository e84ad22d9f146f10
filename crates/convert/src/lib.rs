//! Conversion of a digitizer's 16-bit samples to `f32` and `f64`.
//!
//! A [`Conversion`] is made once: from the type of a sample ([`Sample`]), the operation on it ([`Operation`]) and, if
//! needed, the choice of samples ([`Decimation`]). It then converts the words in the caller's buffer to
//! numbers in another buffer of the caller, and allocates nothing.
//!
//! ```
//! use pciescope_convert::{Conversion, Operation, Sample};
//! let radians = Conversion::new(Sample::U16, Operation::Signed { m: 3, n: 13 })?;
//! let mut output = [0f32; 3];
//! assert_eq!(radians.to_f32(&[0x2000, 0x8000, 0xffff], &mut output)?, 3);
//! assert_eq!(output, [1.0, -4.0, -1.0 / 8192.0]);
//! # Ok::<(), pciescope_convert::Error>(())
//! ```
//!
//! # What is right
//!
//! Every result is the exact value rounded once, to nearest with ties to even, to the type of the output: the error is
//! at most 0.5 ULP, and 0 for `Cast`, `Unsigned` and `Signed`. [`reference`] computes it in integers and is the
//! definition; every kernel gives the same bits for all 65,536 words. There is no faster and weaker mode.
//!
//! # How it gets there
//!
//! The instruction set ([`Isa`]) is chosen at run time, by the environment variable `PCIESCOPE_ISA` or by the caller.
//! Output that is larger than the cache is written past it ([`Store`]).
#![deny(unsafe_op_in_unsafe_fn)]

mod conversion;
mod isa;
mod kernel;
mod operation;
mod parallel;
mod pick;
mod plan;
mod progress;
pub mod reference;
mod store;

pub use conversion::Conversion;
pub use isa::Isa;
pub use operation::{Decimation, Operation, Sample};
pub use progress::Progress;
pub use store::Store;

/// A refusal by this crate. Nothing was written to the output, except with [`Error::Thread`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A Qm.n format that a 16-bit word cannot hold, or that has no bits.
    #[error("Q{m}.{n} has {} bits; a 16-bit sample holds 1 to 16", u16::from(*m) + u16::from(*n))]
    Format {
        /// Integer bits, with the sign where there is one.
        m: u8,
        /// Fraction bits.
        n: u8,
    },
    /// A factor or offset of a scaling is infinite or not a number.
    #[error("{what} {value} of the scaling is not a finite number")]
    NotFinite {
        /// `factor` or `offset`.
        what: &'static str,
        /// The value.
        value: f64,
    },
    /// Decimation by zero.
    #[error("decimation factor 0: it is at least 1, which takes every sample")]
    Factor,
    /// The output has no room for all results.
    #[error("the output holds {have} values, the conversion gives {need}")]
    Output {
        /// Values that the conversion gives.
        need: usize,
        /// Values that the output can take.
        have: usize,
    },
    /// A thread of a parallel conversion could not be created. The output is written in part.
    #[error("cannot start thread {thread} of {of} threads: {why}")]
    Thread {
        /// Which one; the caller's is the last.
        thread: usize,
        /// How many there are, with the caller's.
        of: usize,
        /// What the system said.
        why: String,
    },
    /// The processor (or this build) does not have the instruction set.
    #[error("{isa} is not available here (available: {})", names(&Isa::available()))]
    Unavailable {
        /// What was asked for.
        isa: Isa,
    },
    /// Text that names no instruction set.
    #[error("{text:?} names no instruction set (known: {})", names(&Isa::ALL))]
    Isa {
        /// What was given.
        text: String,
    },
}

/// Names, separated by commas.
fn names(isas: &[Isa]) -> String {
    isas.iter().map(|isa| isa.name()).collect::<Vec<_>>().join(", ")
}
