//! Where records go.

use std::path::Path;

use crate::Record;
use crate::outcome::Sample;

/// Takes the records of a run one by one, in the order they are completed.
///
/// # Guarantees
/// A sink that writes to a file has written a record entirely when `put` returns, so that a run that is
/// killed keeps what it had.
pub trait Sink {
    /// Takes one record.
    ///
    /// # Errors
    /// When it could not be written; the run goes on or ends as the caller decides.
    fn put(&mut self, record: &Record) -> std::io::Result<()>;

    /// Says from which file the next records are.
    fn begin_file(&mut self, _path: &Path) {}

    /// Takes several records that are completed at the same time.
    ///
    /// # Errors
    /// As for [`Sink::put`].
    fn put_all(&mut self, records: &[Record]) -> std::io::Result<()> {
        records.iter().try_for_each(|record| self.put(record))
    }

    /// Takes raw samples, slice by slice, in the order of time. A sink that is not for them leaves them out.
    ///
    /// # Errors
    /// As for [`Sink::put`].
    fn put_samples(&mut self, _samples: &[Sample]) -> std::io::Result<()> {
        Ok(())
    }

    /// The user moved the file away: what comes goes to a new one of its name.
    ///
    /// # Errors
    /// As for [`Sink::put`].
    fn renew(&mut self) -> std::io::Result<()> {
        Ok(())
    }

    /// Called once after the last record.
    ///
    /// # Errors
    /// As for [`Sink::put`].
    fn finish(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Why the disk did not take records, of which nothing was written: they can be put again.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Unwritten(std::io::Error);

impl Unwritten {
    /// The error with the same kind and words.
    pub fn of(why: std::io::Error) -> std::io::Error {
        std::io::Error::new(why.kind(), Unwritten(why))
    }
}

/// Keeps all records.
impl Sink for Vec<Record> {
    fn put(&mut self, record: &Record) -> std::io::Result<()> {
        self.push(record.clone());
        Ok(())
    }
}
