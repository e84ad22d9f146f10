//! A port makes seven errors of each kind, one kind at a time, and every output says seven.

use std::time::Instant;

use pciescope_core::traffic::link_errors;
use pciescope_core::{Function, Instance, Interval, Metric, Record};
use pciescope_report::print::terminal;
use pciescope_report::{facts, html, model, table};
use pciescope_serve::metrics::{self, Format, Own};
use pciescope_tui::ratatui::Terminal;
use pciescope_tui::ratatui::backend::TestBackend;
use pciescope_tui::ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use pciescope_tui::{Origin, Theme};

const PORT: &str = "0000:00:01.0";

/// The sums of a record, with the counters that they are of, as catalogue/ has them.
const SUMS: [(&str, &[&str]); 4] = [
    ("layer1_errors", &["receiver_error", "framing_error", "framing_error_in_l0", "deskew_error"]),
    ("layer2_errors", &["bad_tlp", "lcrc_error", "bad_dllp", "replay_num_rollover", "replay_timeout"]),
    ("naks", &["rx_nak_dllp", "tx_nak_dllp"]),
    ("retries", &["retry_tlp"]),
];

/// Errors that several counters see: a bad TLP, framing and deskew.
const SEEN_BY_SEVERAL: [&[&str]; 3] = [
    &["bad_tlp", "lcrc_error", "tx_nak_dllp"],
    &["framing_error", "framing_error_in_l0"],
    &["deskew_error", "deskew_uncompleted_error"],
];

/// An interval in which a port counted these, and 0 of all others.
fn interval(number: u64, counts: &[(&str, f64)]) -> Record {
    let count = |name: &str| counts.iter().find(|one| one.0 == name).map_or(0.0, |one| one.1);
    let all = link_errors().flatten().copied().chain(["retry_tlp"]).map(|name| (name, count(name)));
    let sums = SUMS.iter().map(|(sum, of)| (*sum, of.iter().map(|name| count(name)).sum()));
    let mut record = Record {
        schema: pciescope_core::record::SCHEMA,
        run: "00000000000000c1".to_owned(),
        time: "2026-11-21T09:00:00Z".to_owned(),
        test: "counters".to_owned(),
        device: Some(Function { bdf: PORT.parse().ok(), class: 0x06_0400, ..Function::default() }),
        instance: Some(Instance {
            scope: "port".to_owned(),
            pmu: Some("dwc_rootport_8".to_owned()),
            ..Instance::default()
        }),
        interval: Some(Interval { start_ns: number * 1_000_000_000, end_ns: (number + 1) * 1_000_000_000 }),
        metrics: all.chain(sums).map(|(name, value)| (name.to_owned(), Metric::of(value, "1"))).collect(),
        ..Record::default()
    };
    for name in ["rx_bytes_per_s", "tx_bytes_per_s"] {
        record.metrics.insert(name.to_owned(), Metric::of(1e6, "bytes/s"));
    }
    // The AER of the kernel's account is a record of its own.
    record.metrics.remove("aer_errors");
    record
}

/// The screen of `top` about a port.
fn zoomed(records: &[Record]) -> String {
    let theme = Theme { has_unicode: false, has_colour: false };
    let mut state = pciescope_tui::State::new(theme, Origin::Live { interval_ns: 1_000_000_000 });
    records.iter().for_each(|record| state.take(std::slice::from_ref(record)));
    state.key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE));
    let mut terminal = Terminal::new(TestBackend::new(100, 40)).unwrap();
    terminal.draw(|frame| pciescope_tui::draw(frame, &state)).unwrap();
    terminal.backend().to_string()
}

#[track_caller]
fn says(output: &str, text: &str, words: &str) {
    assert!(text.contains(words), "{output} lacks {words:?}:\n{text}");
}

#[test]
fn seven_errors_of_a_kind_are_seven_in_every_output() {
    let by_one = link_errors().filter(|seen_by| seen_by.len() == 1 && seen_by != &["aer_errors"]);
    for seen_by in by_one.chain(SEEN_BY_SEVERAL) {
        // A NAK that arrives has TLPs sent again, and more than one.
        let repairs = if seen_by.contains(&"rx_nak_dllp") { 9.0 } else { 0.0 };
        let counts = |each: f64, repairs: f64| -> Vec<(&str, f64)> {
            seen_by.iter().map(|name| (*name, each)).chain([("retry_tlp", repairs)]).collect()
        };
        let records = [interval(0, &counts(4.0, repairs)), interval(1, &counts(3.0, 0.0))];
        let what = format!("{seen_by:?}");
        says(&what, &terminal::render(&records), &format!("7 link errors, most at {PORT}"));
        let tables = table::render(&records, &table::Options::default());
        let (head, row) = tables.split_once("Errors").unwrap();
        let end = head.len() - head.rfind('\n').map_or(0, |at| at + 1) + "Errors".len();
        let row = row.lines().find(|line| line.starts_with(PORT)).unwrap();
        assert!(row[..end].ends_with(" 7"), "{what}: {row}");
        says(&what, &html::render(&records), "<span>Link errors</span> <b>7</b>");
        let conclusions = facts::conclude(&records, &model::sections(&records));
        let doubts: String = conclusions.doubtful.iter().map(|statement| statement.text.as_str()).collect();
        says(&what, &doubts, &format!("{PORT}: 7 link errors were counted."));
        says(&what, &zoomed(&records), "Errors  7 since the beginning");
        let setup = pciescope_serve::Setup { host: "lab".to_owned(), label: None, interval: None };
        let server = pciescope_serve::State::new(setup);
        records.iter().for_each(|record| server.put_all(std::slice::from_ref(record)));
        let scrape = metrics::write(&server, Format::Text, Instant::now(), Own::default());
        let sample = scrape.lines().find(|line| line.starts_with("pciescope_port_errors_total{"));
        assert!(sample.is_some_and(|line| line.ends_with(" 7")), "{what}: {sample:?}");
        // The live page adds these up.
        let readings = server.feed().readings;
        let counted = readings.iter().filter_map(|reading| reading.ports.get(PORT)?.error_count);
        assert_eq!(counted.sum::<f64>(), 7.0, "{what}: {readings:?}");
    }
}
