//! What the counters of PMUs mean: which events carry which quantity, in what unit, and what can be worked out from them.
//!
//! The knowledge is in the files of `catalogue/`, which are compiled in; catalogue/README.md describes their form. This crate
//! reads no machine: a caller says what it sees ([`Seen`]) and gets the [`Kind`] of PMU that it is.
#![forbid(unsafe_code)]

mod files;
mod formula;
mod kind;
mod unit;

use std::sync::OnceLock;

pub use formula::Formula;
pub use kind::{Kind, Metric, Quantity, Seen, What};
pub use unit::Unit;

/// A catalogue that cannot be.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// A file is not TOML, or has other fields than catalogue/README.md says.
    #[error("{file}: {why}")]
    File {
        /// Its name.
        file: String,
        /// What is wrong with it.
        why: String,
    },
    /// A quantity or metric is wrong.
    #[error("{file}: {name}: {why}")]
    Entry {
        /// The file's name.
        file: String,
        /// The quantity's or metric's name.
        name: String,
        /// What is wrong with it.
        why: String,
    },
}

/// All kinds of PMUs that are known.
#[derive(Debug)]
pub struct Catalogue {
    kinds: Vec<Kind>,
}

impl Catalogue {
    /// The one that is compiled in.
    pub fn builtin() -> &'static Catalogue {
        static BUILTIN: OnceLock<Catalogue> = OnceLock::new();
        BUILTIN.get_or_init(|| Catalogue::parse(files::KINDS, files::METRICS).expect("the tests parse the same files"))
    }

    /// Reads the files of kinds and those of metrics that all kinds of one [`What`] share, each as (name, text).
    ///
    /// # Errors
    /// [`Error`] for the first file or entry that is wrong: unknown fields, formulas that do not parse or whose units do not
    /// add up, names used twice, quantities that do not exist.
    pub fn parse(kinds: &[(&str, &str)], metrics: &[(&str, &str)]) -> Result<Catalogue, Error> {
        let shared = kind::shared(metrics)?;
        let kinds = kinds.iter().map(|(file, text)| Kind::parse(file, text, &shared)).collect::<Result<Vec<_>, _>>()?;
        for (place, kind) in kinds.iter().enumerate() {
            if kinds[..place].iter().any(|other| other.id == kind.id) {
                let why = format!("another file has the id {:?} too", kind.id);
                return Err(Error::File { file: kind.id.clone(), why });
            }
        }
        Ok(Catalogue { kinds })
    }

    /// All kinds, in the order of their files.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// The kind of a PMU; `None` where none is known. Where several fit, the first in the order of the files.
    pub fn find(&self, seen: &Seen<'_>) -> Option<&Kind> {
        self.kinds.iter().find(|kind| kind.fits(seen))
    }
}
