//! The instruction sets that kernels are written for, and which of them is here.

use std::env::{self, VarError};
use std::fmt;
use std::str::FromStr;

use crate::Error;

/// The environment variable that names the instruction set to use.
const VARIABLE: &str = "PCIESCOPE_ISA";

/// An instruction set that this crate has kernels for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isa {
    /// One sample at a time, on every processor.
    Scalar,
    /// x86: AVX2 and FMA, 8 samples at a time.
    Avx2,
    /// x86: AVX-512 F, BW, DQ and VL, 16 samples at a time (32 where they are only moved).
    Avx512,
    /// Arm: NEON, 8 samples at a time.
    Neon,
}

impl Isa {
    /// All of them, the best last.
    pub const ALL: [Isa; 4] = [Isa::Scalar, Isa::Avx2, Isa::Avx512, Isa::Neon];

    /// `scalar`, `avx2`, `avx512` or `neon`.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Neon => "neon",
        }
    }

    /// Whether this processor, its operating system and this build have it.
    pub fn is_available(self) -> bool {
        crate::kernel::is_available(self)
    }

    /// The instruction sets that are here, the best last.
    pub fn available() -> Vec<Isa> {
        Isa::ALL.into_iter().filter(|isa| isa.is_available()).collect()
    }

    /// The best one here, or the one that the environment variable `PCIESCOPE_ISA` names.
    ///
    /// # Errors
    /// [`Error::Isa`] and [`Error::Unavailable`] where the variable names none, or one that is not here.
    pub fn best() -> Result<Isa, Error> {
        match env::var(VARIABLE) {
            Ok(text) if !text.is_empty() => text.parse::<Isa>()?.check(),
            Err(VarError::NotUnicode(text)) => Err(Error::Isa { text: text.to_string_lossy().into_owned() }),
            _ => Ok(Isa::ALL.into_iter().rev().find(|isa| isa.is_available()).unwrap_or(Isa::Scalar)),
        }
    }

    /// Itself, where it is here.
    pub(crate) fn check(self) -> Result<Isa, Error> {
        match self.is_available() {
            true => Ok(self),
            false => Err(Error::Unavailable { isa: self }),
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Isa {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Isa::ALL
            .into_iter()
            .find(|isa| isa.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| Error::Isa { text: text.to_owned() })
    }
}
