//! What a loss is: every count of things that went missing, came out wrong, or make the figures beside them doubtful.
//!
//! Every output filters [`LOSSES`]: tables, pages and conclusions print the counts by their kind, `compare` takes all
//! as "more is worse", and exit codes and the limit `loss` follow what is lost or wrong. To add a loss is to add an entry
//! here and to docs/record.md.

use crate::Record;

/// What a count says of the figures beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossKind {
    /// Something did not arrive, or was not kept.
    Lost,
    /// Something arrived that has to be different.
    Wrong,
    /// Everything arrived, but not as the plan asked for: figures may mislead.
    Doubtful,
}

/// Of what a count is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// Interrupts of a latency run.
    Interrupts,
    /// Samples of a latency.
    Samples,
    /// Transfers of a readout, and the interrupts that end them.
    Transfers,
    /// Bytes of a readout, numbers of a conversion.
    Data,
    /// Lines of a log.
    Lines,
}

/// One count.
#[derive(Debug, PartialEq, Eq)]
pub struct Loss {
    /// The metric of a record.
    pub name: &'static str,
    /// What tables print behind the count.
    pub words: &'static str,
    /// The loss as a sentence, behind the count.
    pub meaning: &'static str,
    /// What it says of the figures.
    pub kind: LossKind,
    /// Of what it is a count.
    pub of: Of,
}

impl Loss {
    /// Whether the count has to be 0: exit codes and the limit `loss` follow it.
    pub fn is_failure(&self) -> bool {
        self.kind != Doubtful
    }
}

const fn loss(name: &'static str, words: &'static str, kind: LossKind, of: Of, meaning: &'static str) -> Loss {
    Loss { name, words, meaning, kind, of }
}

use LossKind::{Doubtful, Lost, Wrong};
use Of::{Data, Interrupts, Lines, Samples, Transfers};

/// All counts of losses, in the order in which outputs print them.
pub const LOSSES: [Loss; 14] = [
    loss("lost", "lost", Lost, Interrupts, "interrupts did not arrive within the time-out"),
    loss("extra", "extra", Wrong, Interrupts, "interrupts arrived that nobody triggered"),
    loss("wrong_cpu", "wrong cpu", Wrong, Interrupts, "interrupts were handled on another CPU than asked for"),
    loss("samples_lost", "samples lost", Lost, Samples, "samples were taken but not recorded"),
    loss(
        "raw_samples_lost",
        "raw samples lost",
        Lost,
        Samples,
        "raw samples were overwritten before they were read (the histograms are complete)",
    ),
    loss("lost_interrupts", "lost interrupts", Lost, Transfers, "interrupts at the end of a transfer did not arrive"),
    loss("timeouts", "timeouts", Lost, Transfers, "transfers did not end within the time-out"),
    loss("short_dmas", "short DMAs", Lost, Transfers, "transfers ended before all of their bytes had come"),
    loss("wrong", "wrong", Wrong, Data, "bytes or numbers are not what they have to be"),
    loss("malformed_lines", "malformed lines", Lost, Lines, "lines of the log were not understood"),
    // docs/method.md, "At a fixed rate": no interrupt was raised at these times, so none of them can be lost.
    loss("missed", "missed", Doubtful, Interrupts, "times of a trigger had passed before the CPU was ready"),
    loss("merged", "merged", Doubtful, Interrupts, "times of a trigger came before the last one was answered"),
    loss("late", "late", Doubtful, Interrupts, "interrupts were raised over half an interval late"),
    // docs/sis8300.md: the device waits while the ring is full.
    loss("stalls", "stalls of the ring", Doubtful, Transfers, "times the ring was full and the device waited"),
];

/// The loss that a metric counts, if it counts one.
pub fn find(metric: &str) -> Option<&'static Loss> {
    LOSSES.iter().find(|loss| loss.name == metric)
}

/// The losses of a record that fail its run, with their counts. A count that is no number is none.
pub fn failures(record: &Record) -> impl Iterator<Item = (&'static Loss, f64)> + '_ {
    let count = |loss: &'static Loss| Some((loss, record.metrics.get(loss.name)?.value));
    LOSSES.iter().filter(|loss| loss.is_failure()).filter_map(count).filter(|(_, count)| *count > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Metric;

    #[test]
    fn each_loss_stands_once_and_doubts_fail_nothing() {
        for loss in &LOSSES {
            assert_eq!(find(loss.name), Some(loss), "{} stands twice", loss.name);
            let of = |value: f64| Record {
                metrics: [(loss.name.to_owned(), Metric::of(value, "1"))].into(),
                ..Record::default()
            };
            let failed = |value: f64| failures(&of(value)).map(|(loss, count)| (loss.name, count)).next();
            assert_eq!(failed(7.0), (loss.kind != Doubtful).then_some((loss.name, 7.0)));
            assert_eq!((failed(0.0), failed(f64::NAN)), (None, None));
        }
        assert_eq!(find("triggers"), None);
        assert_eq!(find("late").map(|late| late.kind), Some(Doubtful));
    }

    /// docs/record.md describes every count.
    #[test]
    fn the_page_of_records_names_each_loss() {
        let page = include_str!("../../../docs/record.md");
        for loss in &LOSSES {
            assert!(page.contains(&format!("`{}`", loss.name)), "docs/record.md lacks {}", loss.name);
        }
    }
}
