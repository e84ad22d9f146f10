//! Whatever records, keys and sizes come: no panic, and no cell that holds what a terminal would obey.

use std::collections::BTreeMap;

use pciescope_core::record::ACCOUNTING;
use pciescope_core::{Below, Failure, Function, Instance, Interval, Link, Metric, Record};
use pciescope_tui::ratatui::Terminal;
use pciescope_tui::ratatui::backend::TestBackend;
use pciescope_tui::ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use pciescope_tui::{Origin, State, Theme, draw, page};
use proptest::prelude::*;

const NAMES: [&str; 12] = [
    "rx_bytes_per_s",
    "tx_bytes_per_s",
    "rx_link_share",
    "link_bytes_per_s",
    "l0_share",
    "layer1_errors",
    "layer2_errors",
    "naks",
    "read_bytes_per_s",
    "write_bytes_per_s",
    "peak_share",
    "anything",
];

fn figure() -> impl Strategy<Value = Metric> {
    let value = prop_oneof![any::<f64>(), Just(0.0), 0.0..1e11, Just(f64::NAN)];
    (value, any::<bool>(), any::<bool>()).prop_map(|(value, is_scaled, at_least)| Metric {
        running: is_scaled.then_some(0.5),
        at_least,
        ..Metric::of(value, "x")
    })
}

fn address() -> impl Strategy<Value = pciescope_core::Bdf> {
    (0..3u32, 0..4u8, 0..3u8, 0..2u8).prop_map(|(domain, bus, device, function)| pciescope_core::Bdf {
        domain,
        bus,
        device,
        function,
    })
}

fn function() -> impl Strategy<Value = Function> {
    // Paths that lead in circles, to themselves or to nothing are in it.
    (address(), any::<String>(), prop::option::of(any::<f64>()), any::<u8>(), prop::collection::vec(address(), 0..4))
        .prop_map(|(bdf, name, speed, width, path)| Function {
            bdf: Some(bdf),
            driver: Some(name.clone()),
            name,
            path,
            link: speed.map(|speed_gts| Link {
                speed_gts,
                width,
                max_speed_gts: 32.0,
                max_width: 16,
                ..Link::default()
            }),
            ..Function::default()
        })
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    let scope = prop::sample::select(vec!["port", "function", "channel", "die", "total", "pmu", ""]);
    let metrics = prop::collection::btree_map(prop::sample::select(NAMES.to_vec()), figure(), 0..8);
    let one = (
        scope,
        prop::option::of("\\PC{0,12}"),
        prop::option::of(0..3u32),
        prop::option::of(function()),
        metrics,
        0..4u64,
        any::<(bool, bool)>(),
    )
        .prop_map(|(scope, pmu, node, device, metrics, end, (has_failed, is_account))| {
            let below = device.iter().map(|one| Below {
                bdf: one.bdf.unwrap(),
                name: one.name.clone(),
                driver: None,
                devices: Vec::new(),
            });
            Record {
                schema: 1,
                run: "r".to_owned(),
                test: "counters".to_owned(),
                instance: Some(Instance {
                    scope: scope.to_owned(),
                    source: is_account.then(|| ACCOUNTING.to_owned()),
                    pmu,
                    node,
                    parts: None,
                    below: below.collect(),
                }),
                device,
                interval: Some(Interval { start_ns: end.saturating_sub(1), end_ns: u64::MAX / 4 * end }),
                metrics: metrics.into_iter().map(|(name, one)| (name.to_owned(), one)).collect::<BTreeMap<_, _>>(),
                error: has_failed.then(|| Failure { code: "x".to_owned(), text: "\u{7}".to_owned(), hint: None }),
                ..Record::default()
            }
        });
    prop::collection::vec(one, 0..40)
}

fn keys() -> impl Strategy<Value = Vec<KeyCode>> {
    let named = vec![
        KeyCode::Enter,
        KeyCode::Esc,
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::Left,
        KeyCode::Right,
        KeyCode::PageDown,
        KeyCode::End,
        KeyCode::Home,
        KeyCode::Tab,
        KeyCode::BackTab,
        KeyCode::Backspace,
    ];
    let letters = prop::sample::select("?/srtap,.<>+-12345x".chars().collect::<Vec<_>>()).prop_map(KeyCode::Char);
    prop::collection::vec(
        prop_oneof![prop::sample::select(named), letters, any::<char>().prop_map(KeyCode::Char)],
        0..25,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics_and_nothing_escapes(
        records in records(),
        inventory in prop::option::of(prop::collection::vec(function(), 0..12)),
        keys in keys(),
        size in (1..130u16, 1..40u16),
        has_unicode in any::<bool>(),
    ) {
        let origin = Origin::Replay { name: "f".to_owned(), speed: 1.0, has_ended: false };
        let mut state = State::new(Theme { has_unicode, has_colour: true }, origin);
        if let Some(functions) = inventory {
            state.model.set_functions(functions);
        }
        let (first, rest) = records.split_at(records.len() / 2);
        state.take(first);
        for key in keys {
            state.key(KeyEvent::new(key, KeyModifiers::NONE));
        }
        state.take(rest);
        let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
        terminal.draw(|frame| draw(frame, &state)).unwrap();
        for cell in terminal.backend().buffer().content() {
            let is_ours = |c: char| !c.is_control() && (has_unicode || c.is_ascii());
            prop_assert!(cell.symbol().chars().all(is_ours), "{:?}", cell.symbol());
        }
        let text = page(&state, size.0, 500);
        prop_assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
    }
}
