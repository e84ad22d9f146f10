//! Passes on the records of a run: each gets the run's identity, goes to the sink, and is counted in the summary.

use std::time::SystemTime;

use pciescope_core::outcome::Sample;
use pciescope_core::record::{Failure, Record, Warning};
use pciescope_core::{Identity, Sink, loss};

use crate::error::Error;

/// What came of a run.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Name of the run: the `run` field of its records.
    pub run: String,
    /// Records written, the environment included.
    pub records: u64,
    /// What could not be measured, or not to its end.
    pub failures: Vec<Failure>,
    /// What was measured and is not as it has to be: lost, doubled or misdirected interrupts, lost samples.
    pub failed_checks: Vec<String>,
    /// The warnings of the run, each once, up to [`WARNINGS_KEPT`]; the records have all.
    pub warnings: Vec<Warning>,
}

/// The most warnings that are kept for the end of a run.
pub const WARNINGS_KEPT: usize = 100;

/// Writes the records of one run.
pub struct Journal<'s> {
    identity: Identity,
    sink: &'s mut dyn Sink,
    /// What came of the run so far.
    pub summary: Summary,
}

impl<'s> Journal<'s> {
    /// A run without records.
    pub fn new(identity: Identity, sink: &'s mut dyn Sink) -> Self {
        let summary = Summary { run: identity.run.clone(), ..Summary::default() };
        Journal { identity, sink, summary }
    }

    /// Whether the records are of this machine now, not of a synthetic one.
    pub(crate) fn is_live(&self) -> bool {
        self.identity.time.is_none()
    }

    /// Writes a record.
    ///
    /// # Errors
    /// As for [`Journal::put_all`].
    pub fn put(&mut self, mut record: Record) -> Result<(), Error> {
        self.put_all(std::slice::from_mut(&mut record))
    }

    /// Writes records that are completed at the same time.
    ///
    /// # Errors
    /// [`Error::Sink`] if the sink does not take them.
    pub fn put_all(&mut self, records: &mut [Record]) -> Result<(), Error> {
        let now = SystemTime::now();
        for record in &mut *records {
            self.identity.mark(record, now);
            self.summary.note(record);
        }
        self.sink.put_all(records).map_err(|source| Error::Sink { source })
    }

    /// Lets the sink open its file anew.
    ///
    /// # Errors
    /// [`Error::Sink`] if it cannot.
    pub(crate) fn renew(&mut self) -> Result<(), Error> {
        self.sink.renew().map_err(|source| Error::Sink { source })
    }

    /// Hands raw samples on.
    ///
    /// # Errors
    /// [`Error::Raw`] if the sink does not take them.
    pub(crate) fn put_samples(&mut self, samples: &[Sample]) -> Result<(), Error> {
        self.sink.put_samples(samples).map_err(|source| Error::Raw { source })
    }

    /// Writes that the user ended the run.
    ///
    /// # Errors
    /// As for [`Journal::put_all`].
    pub(crate) fn interrupted(&mut self, test: &str) -> Result<(), Error> {
        let failure = Failure::interrupted("the run was ended by the user");
        self.put(Record { test: test.to_owned(), error: Some(failure), ..Record::default() })
    }

    /// Ends the run.
    ///
    /// # Errors
    /// [`Error::Sink`] if the sink cannot finish.
    pub fn finish(self) -> Result<Summary, Error> {
        self.sink.finish().map_err(|source| Error::Sink { source })?;
        Ok(self.summary)
    }
}

impl Summary {
    fn note(&mut self, record: &Record) {
        self.records += 1;
        for warning in &record.warnings {
            if self.warnings.len() < WARNINGS_KEPT && !self.warnings.contains(warning) {
                self.warnings.push(warning.clone());
            }
        }
        if let Some(failure) = &record.error {
            note_failure(&mut self.failures, failure);
        }
        // Who compares data names the first that is wrong.
        let lost = loss::failures(record).filter(|(loss, _)| loss.of != loss::Of::Data);
        self.failed_checks.extend(lost.map(|(loss, count)| format!("{}{count} {}", place(record), loss.meaning)));
    }
}

/// Where a record was measured, with a colon behind it.
fn place(record: &Record) -> String {
    let vector = record.target.as_ref().and_then(|target| target.vector);
    let stream = record.stream.as_ref().map(|stream| format!("{}: {}: ", stream.path, stream.function));
    match (&record.cpu, vector, stream) {
        (.., Some(stream)) => stream,
        (Some(cpu), Some(vector), _) => format!("{}: CPU {}, vector {vector}: ", record.test, cpu.cpu),
        (Some(cpu), None, _) => format!("{}: CPU {}: ", record.test, cpu.cpu),
        _ => String::new(),
    }
}

/// Adds a failure; one that only says more than the last of its kind takes its place.
fn note_failure(known: &mut Vec<Failure>, failure: &Failure) {
    match known.iter_mut().find(|old| old.code == failure.code && failure.text.starts_with(&old.text)) {
        Some(old) => old.clone_from(failure),
        None => known.push(failure.clone()),
    }
}

#[cfg(test)]
mod tests {
    use pciescope_core::{Cpu, Metric};

    use super::*;

    #[test]
    fn what_is_lost_or_wrong_fails_the_run_and_a_doubt_does_not() {
        for loss in loss::LOSSES.iter().filter(|loss| loss.of != loss::Of::Data) {
            let mut summary = Summary::default();
            let mut record =
                Record { test: "irq".to_owned(), cpu: Some(Cpu { cpu: 3, ..Cpu::default() }), ..Record::default() };
            record.metrics.insert(loss.name.to_owned(), Metric::count(0));
            summary.note(&record);
            assert!(summary.failed_checks.is_empty(), "{}", loss.name);
            record.metrics.insert(loss.name.to_owned(), Metric::count(7));
            summary.note(&record);
            let checks: Vec<String> =
                loss.is_failure().then(|| format!("irq: CPU 3: 7 {}", loss.meaning)).into_iter().collect();
            assert_eq!(summary.failed_checks, checks);
        }
    }

    #[test]
    fn a_failure_that_says_more_replaces_the_shorter_one() {
        let failure = |text: &str| Failure::removed(text);
        let mut known = Vec::new();
        for text in ["gone", "gone", "gone (not measured: CPU 1)", "other"] {
            note_failure(&mut known, &failure(text));
        }
        let texts: Vec<&str> = known.iter().map(|failure| failure.text.as_str()).collect();
        assert_eq!(texts, ["gone (not measured: CPU 1)", "other"]);
    }
}
