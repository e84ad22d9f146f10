//! One record of each loss: terminal, page, conclusions, exit code and `compare` agree on what it is.

use pciescope_core::loss::{self, LOSSES, Loss, LossKind, Of};
use pciescope_core::{Metric, Record};
use pciescope_report::compare::{Criteria, compare};
use pciescope_report::print::terminal;
use pciescope_report::{facts, html, model, table};

use crate::sample::{self, Random, Shape, readout};

const COUNT: f64 = 7.0;
const RED: &str = "\x1b[1m\x1b[31m";
const YELLOW: &str = "\x1b[33m";

/// A run that could have this loss, with `count` of it.
fn run_of(loss: &Loss, count: f64) -> Vec<Record> {
    let mut records = match loss.of {
        Of::Transfers | Of::Data => readout::run(),
        Of::Interrupts | Of::Samples | Of::Lines => {
            let shape = Shape { cpus: 2, vectors: 1, samples: 1000, emulated: false };
            sample::irq(&mut Random(2), &shape, "2", "irq-hardware", 2000)
        }
    };
    for record in &mut records {
        record.warnings.clear();
        LOSSES.iter().for_each(|loss| drop(record.metrics.remove(loss.name)));
    }
    let measured = |record: &&mut Record| !record.metrics.is_empty() && record.test != "readout-summary";
    let record = records.iter_mut().find(measured).unwrap();
    // Programs write these where nothing was lost, too.
    let counted = if loss.of == Of::Transfers { "lost_interrupts" } else { "lost" };
    record.metrics.insert(counted.to_owned(), Metric::of(0.0, "1"));
    record.metrics.insert(loss.name.to_owned(), Metric::of(count, "1"));
    records
}

/// What five outputs say: that something is lost or wrong, and that something is doubtful.
fn outputs(loss: &Loss, count: f64) -> [(&'static str, bool); 5] {
    let records = run_of(loss, count);
    let terminal = terminal::render(&records);
    let words = format!("{count} {}", loss.words);
    let is_red = match loss.of {
        Of::Data => terminal.contains(&format!("{RED}WRONG DATA: {count} bytes")),
        _ => terminal.contains(&format!("{RED}{words}")),
    };
    let page = html::render(&records);
    let name = if loss.of == Of::Data { "Wrong bytes" } else { "Lost" };
    let is_bad_tile = page.contains(&format!("<div class=\"tile bad\"><span>{name}</span> <b>{count}</b>"));
    let conclusions = facts::conclude(&records, &model::sections(&records));
    let [good, doubtful, _] = conclusions.lists().map(|list| list.2.iter().map(|s| s.text.clone()).collect::<String>());
    let is_called_whole = match loss.of {
        Of::Data => good.contains("are right"),
        Of::Transfers => good.contains("no interrupt, transfer or acquisition was lost"),
        _ => good.contains("none of "),
    };
    let limits = vec!["loss > 0".parse().unwrap()];
    let judgement = compare(&run_of(loss, 0.0), &records, &Criteria { limits, ..Criteria::default() });
    // A doubt is no failure, and no output keeps it to itself.
    if count > 0.0 && loss.kind == LossKind::Doubtful {
        assert!(terminal.contains(&format!("{YELLOW}{words}")), "{terminal}");
        assert!(doubtful.contains(&words), "{doubtful}");
        assert!(table::render(&records, &table::Options::default()).contains(&format!("Doubts: {words}")));
        let worse = |cell: &&pciescope_report::compare::Cell| *cell.key.figure == *loss.name;
        assert_eq!(judgement.cells.iter().filter(worse).count(), 1, "{}", loss.name);
    }
    [
        ("terminal", is_red),
        ("page", is_bad_tile),
        ("conclusions", !is_called_whole),
        ("exit code", records.iter().any(|record| loss::failures(record).next().is_some())),
        ("compare", judgement.is_failed()),
    ]
}

#[test]
fn five_outputs_agree_on_every_loss() {
    for loss in &LOSSES {
        let is_failure = loss.kind != LossKind::Doubtful;
        for (output, failed) in outputs(loss, COUNT) {
            assert_eq!(failed, is_failure, "{output} of {COUNT} {}", loss.name);
        }
        // Whether data are right is known only of those that were compared.
        for (output, failed) in outputs(loss, 0.0).into_iter().filter(|_| loss.of != Of::Data) {
            assert!(!failed, "{output} of 0 {}", loss.name);
        }
    }
}
