//! Screens against golden files: tests/screens/*.txt. `UPDATE_GOLDEN=1 cargo test -p pciescope-tui --test all screens::` after a
//! wanted change; then look at the diff.

use std::path::Path;

use pciescope_core::{Bar, Failure, Function, Link, Record};
use pciescope_tui::ratatui::Terminal;
use pciescope_tui::ratatui::backend::TestBackend;
use pciescope_tui::ratatui::buffer::Buffer;
use pciescope_tui::ratatui::crossterm::event::{
    KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use pciescope_tui::ratatui::style::{Color, Modifier};
use pciescope_tui::{Action, Origin, State, Theme, draw};

use crate::sample;

const BLOCKS: Theme = Theme { has_unicode: true, has_colour: true };
const PLAIN: Theme = Theme { has_unicode: false, has_colour: false };

fn check(name: &str, got: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/screens").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, got).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), got, "{name}");
}

fn buffer(state: &State, columns: u16, lines: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
    terminal.draw(|frame| draw(frame, state)).unwrap();
    terminal.backend().buffer().clone()
}

/// The screen with a border, so that its size shows; the second half of a wide letter is left out.
fn screen(state: &State, columns: u16, lines: u16) -> String {
    let buffer = buffer(state, columns, lines);
    let rule = format!("+{}+\n", "-".repeat(usize::from(columns)));
    let mut text = rule.clone();
    for y in 0..lines {
        let mut x = 0;
        text.push('|');
        while x < columns {
            let symbol = buffer[(x, y)].symbol();
            text += symbol;
            x += pciescope_tui::text::width(symbol).max(1);
        }
        text += "|\n";
    }
    text + &rule
}

fn replayed(theme: Theme, seconds: u64) -> State {
    let origin = Origin::Replay { name: "run.jsonl".to_owned(), speed: 1.0, has_ended: false };
    let mut state = State::new(theme, origin);
    for one in sample::run(seconds).chunk_by(|one, other| one.interval == other.interval) {
        state.take(one);
    }
    state
}

fn press(state: &mut State, keys: &str) -> Action {
    let mut action = Action::Nothing;
    for c in keys.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\u{1b}' => KeyCode::Esc,
            '\u{2193}' => KeyCode::Down,
            c => KeyCode::Char(c),
        };
        action = state.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
    action
}

#[test]
fn the_overview_at_every_size() {
    let state = replayed(BLOCKS, 70);
    for (columns, lines) in [(80, 24), (120, 40), (200, 60), (40, 10), (60, 15)] {
        check(&format!("overview-{columns}x{lines}"), &screen(&state, columns, lines));
    }
    check("overview-ascii-80x24", &screen(&replayed(PLAIN, 70), 80, 24));
    check("too-small-20x4", &screen(&state, 20, 4));
}

#[test]
fn the_other_views() {
    let mut state = replayed(BLOCKS, 70);
    press(&mut state, "2");
    check("links-120x40", &screen(&state, 120, 40));
    check("links-80x24", &screen(&state, 80, 24));
    press(&mut state, "\t");
    check("dram-80x24", &screen(&state, 80, 24));
    press(&mut state, "5");
    check("warnings-80x24", &screen(&state, 80, 24));
    press(&mut state, "?");
    check("help-80x24", &screen(&state, 80, 24));
    check("help-120x40", &screen(&state, 120, 40));
}

#[test]
fn one_port_fills_the_screen() {
    let mut state = replayed(BLOCKS, 70);
    press(&mut state, "t\u{2193}\u{2193}\u{2193}\n");
    check("zoom-80x24", &screen(&state, 80, 24));
    check("zoom-120x40", &screen(&state, 120, 40));
    check("zoom-40x10", &screen(&state, 40, 10));
    press(&mut state, "\n");
    assert!(state.zoom.is_none(), "the same key leads back");
}

#[test]
fn what_is_filtered_and_sorted() {
    let mut state = replayed(BLOCKS, 70);
    press(&mut state, "/NVME node0");
    check("filter-typing-80x24", &screen(&state, 80, 24));
    press(&mut state, "\nss");
    check("filter-sorted-80x24", &screen(&state, 80, 24));
    press(&mut state, "\u{1b}/no such");
    check("filter-nothing-80x24", &screen(&state, 80, 24));
}

#[test]
fn a_paused_screen_stands_still_while_records_come() {
    let mut state = replayed(BLOCKS, 10);
    assert_eq!(press(&mut state, "p"), Action::Pause(true));
    let before = screen(&state, 80, 24);
    state.take(&sample::second(10));
    assert_eq!(screen(&state, 80, 24), before);
    check("paused-80x24", &before);
    press(&mut state, ",,");
    assert!(screen(&state, 80, 24).contains("00:00:08"), "two back");
    press(&mut state, "...");
    assert!(screen(&state, 80, 24).contains("00:00:11"), "what came meanwhile is there");
    assert_eq!(press(&mut state, "."), Action::Step, "a replay has more");
    state.take(&sample::second(11));
    assert!(screen(&state, 80, 24).contains("00:00:12"), "a step shows what it brought");
    assert_eq!(press(&mut state, "p"), Action::Pause(false));
}

#[test]
fn a_port_that_is_removed_and_comes_back() {
    let mut state = replayed(BLOCKS, 3);
    let without = |second: u64| -> Vec<Record> {
        let mut all = sample::second(second);
        all[2] = sample::removed(2, second);
        all
    };
    state.take(&without(3));
    state.take(
        &sample::second(4).into_iter().enumerate().filter(|(n, _)| *n != 2).map(|(_, one)| one).collect::<Vec<_>>(),
    );
    check("removed-80x24", &screen(&state, 80, 24));
    state.take(&sample::second(5));
    assert!(!screen(&state, 80, 24).contains("removed"), "it counts again");
}

#[test]
fn hostile_names_and_figures_stay_in_their_cells() {
    for (name, theme) in [("hostile", BLOCKS), ("hostile-ascii", PLAIN)] {
        let mut state = State::new(theme, Origin::Live { interval_ns: 250_000_000 });
        state.take(&sample::hostile());
        check(&format!("{name}-80x24"), &screen(&state, 80, 24));
        check(&format!("{name}-120x40"), &screen(&state, 120, 40));
        press(&mut state, "\n");
        check(&format!("{name}-zoom-80x24"), &screen(&state, 80, 24));
        for cell in buffer(&state, 120, 40).content() {
            let is_ours = |c: char| !c.is_control() && (theme.has_unicode || c.is_ascii());
            assert!(cell.symbol().chars().all(is_ours), "{:?}", cell.symbol());
        }
    }
}

/// A machine without counters: a switch, a disk that lost lanes, something on the root bus.
fn uncounted() -> State {
    let link =
        |speed_gts, width, max_width| Link { speed_gts, width, max_speed_gts: 16.0, max_width, ..Link::default() };
    let function = |bdf: &str, path: &[&str], name: &str, driver: Option<&str>, link: Option<Link>| Function {
        bdf: Some(sample::bdf(bdf)),
        vendor: 0x8086,
        name: name.to_owned(),
        driver: driver.map(str::to_owned),
        node: Some(0),
        path: path.iter().map(|one| sample::bdf(one)).collect(),
        link,
        bars: vec![Bar::default()],
        ..Function::default()
    };
    let mut state = State::new(BLOCKS, Origin::Live { interval_ns: 1_000_000_000 });
    let up = "0000:01:00.0";
    state.model.set_functions(vec![
        function("0000:00:00.0", &[], "Host bridge", None, None),
        function("0000:00:01.0", &[], "Root port", Some("pcieport"), Some(link(16.0, 8, 16))),
        function(up, &["0000:00:01.0"], "Switch, upstream", Some("pcieport"), Some(link(16.0, 8, 8))),
        function("0000:02:00.0", &["0000:00:01.0", up], "Switch, downstream", Some("pcieport"), Some(link(8.0, 2, 4))),
        function("0000:03:00.0", &["0000:00:01.0", up, "0000:02:00.0"], "A disk", Some("nvme"), Some(link(8.0, 2, 4))),
        function("0000:02:01.0", &["0000:00:01.0", up], "Switch, downstream", Some("pcieport"), Some(link(2.5, 0, 4))),
        function("0000:00:1f.0", &[], "ISA bridge", None, None),
    ]);
    state.model.no_counters = Some(Failure {
        code: "refused".to_owned(),
        text: "there is no counter of PCIe ports or DRAM channels on this machine".to_owned(),
        hint: Some("`pciescope stat --list` shows what can be counted".to_owned()),
    });
    state
}

#[test]
fn a_machine_without_counters_shows_its_tree() {
    let mut state = uncounted();
    state.take(&[sample::latency(800), sample::latency(820)]);
    check("no-counters-80x24", &screen(&state, 80, 24));
    check("no-counters-120x40", &screen(&state, 120, 40));
    check("no-counters-40x10", &screen(&state, 40, 10));
    press(&mut state, "/nvme\n\u{2193}\u{2193}\u{2193}\u{2193}\n");
    check("no-counters-zoom-80x24", &screen(&state, 80, 24));
}

#[test]
fn what_the_recorder_kept_of_a_link_stands_in_its_zoom() {
    let mut state = uncounted();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let link = pciescope_core::WatchedLink {
        causes: [("reliability", 3), ("software", 1)].into(),
        changed_s: Some(now - 7500),
        last: "16 GT/s x8 -> 8 GT/s x8 (reliability)".to_owned(),
        ..Default::default()
    };
    state.model.watched.insert(sample::bdf("0000:02:00.0"), link);
    press(&mut state, "/nvme\n\u{2193}\u{2193}\u{2193}\u{2193}\n");
    let shown = screen(&state, 120, 24);
    let words = "Changed 2 h 5 min ago: 16 GT/s x8 -> 8 GT/s x8 (reliability); in 7 days reliability 3, software 1";
    assert!(shown.contains(words), "{shown}");
    // Without a recorder nothing is said.
    state.model.watched.clear();
    assert!(!screen(&state, 120, 24).contains("Changed"));
}

#[test]
fn a_nominal_link_has_no_speed_and_a_function_on_a_root_bus_is_no_port() {
    let mut state = uncounted();
    let link =
        Some(Link { is_nominal: true, speed_gts: 2.5, width: 1, max_speed_gts: 2.5, max_width: 1, ..Link::default() });
    state.model.set_functions(vec![Function { bdf: Some(sample::bdf("0000:00:1e.0")), link, ..Function::default() }]);
    press(&mut state, "\n");
    let text = screen(&state, 120, 40);
    assert!(text.contains("link nominal,") && !text.contains("GT/s"), "{text}");
    let mut state = State::new(BLOCKS, Origin::Live { interval_ns: 1_000_000_000 });
    let (port, mut integrated) = (sample::port(1, 5), sample::port(2, 5));
    integrated.instance.as_mut().unwrap().scope = "function".to_owned();
    integrated.device.as_mut().unwrap().path.clear();
    state.take(&[port, integrated]);
    let text = screen(&state, 120, 40);
    assert!(text.contains("1 ports, 1 root bus devices"), "{text}");
}

#[test]
fn a_probe_that_cannot_measure_says_why() {
    let mut state = replayed(BLOCKS, 5);
    let mut refused = sample::latency(800);
    refused.histograms.clear();
    refused.error = Some(Failure {
        code: "refused".to_owned(),
        text: "0000:01:00.0: the driver nvme holds the BARs, and most kernels forbid to map them then".to_owned(),
        hint: Some("pciescope bind 0000:01:00.0".to_owned()),
    });
    state.take(&[refused]);
    check("probe-refused-120x40", &screen(&state, 120, 40));
}

#[test]
fn figures_that_are_scaled_or_lower_limits_say_so() {
    let mut state = State::new(BLOCKS, Origin::Live { interval_ns: 1_000_000_000 });
    let mut one = sample::port(1, 5);
    one.metrics.get_mut("rx_bytes_per_s").unwrap().running = Some(0.5);
    one.metrics.get_mut("layer2_errors").unwrap().at_least = true;
    state.take(&[one]);
    let text = screen(&state, 80, 24);
    assert!(text.contains(" ~") && text.contains(" >0"), "{text}");
}

#[test]
fn the_busiest_port_stands_first_and_idle_ones_last_and_dim() {
    let state = replayed(BLOCKS, 70);
    let (columns, lines) = (120, 60);
    let buffer = buffer(&state, columns, lines);
    let text = screen(&state, columns, lines);
    let traffic = |line: &str| {
        let cell =
            line.split_whitespace().find(|word| word.ends_with(['G', 'M', 'k']) && word.starts_with(char::is_numeric));
        cell.map(str::to_owned)
    };
    let ports: Vec<(usize, &str)> = text.lines().enumerate().filter(|(_, line)| line.contains(" pcieport")).collect();
    // A busy one of die 1, in the mean over all intervals: not the first by address.
    assert!(ports[0].1.contains("\u{25b6}0001:20:04.0"), "{text}");
    assert!(traffic(ports[0].1).is_some_and(|figure| figure.ends_with('G')), "{text}");
    let idle = ports.iter().position(|(_, line)| line.contains("0000:20:04.0")).unwrap();
    assert!(ports[idle..].iter().all(|(_, line)| line.matches("  0 ").count() >= 2), "idle ones come last\n{text}");
    // The border of the text is a line of its own.
    let is_dim = |line: usize| buffer[(3, line as u16 - 1)].modifier.contains(Modifier::DIM);
    assert!(is_dim(ports[idle].0) && !is_dim(ports[0].0));
}

#[test]
fn history_is_no_dark_blue_and_the_chosen_row_no_block() {
    let mut state = replayed(BLOCKS, 10);
    press(&mut state, "\u{2193}");
    for cell in buffer(&state, 120, 40).content() {
        assert!(cell.fg != Color::Blue && cell.bg == Color::Reset, "{cell:?}");
        assert!(!cell.modifier.contains(Modifier::REVERSED), "{cell:?}");
    }
    assert_eq!(screen(&state, 120, 40).matches('\u{25b6}').count(), 1);
    let plain = replayed(PLAIN, 10);
    assert_eq!(screen(&plain, 80, 24).lines().filter(|line| line.starts_with("|>")).count(), 1);
}

#[test]
fn figures_of_an_emulator_say_so_on_every_screen() {
    let mut state = State::new(BLOCKS, Origin::Live { interval_ns: 1_000_000_000 });
    let mut one = sample::port(1, 5);
    one.method = Some(pciescope_core::Method { emulated: true, ..Default::default() });
    state.take(&[one]);
    for keys in ["", "2", "3", "4", "5", "1\n"] {
        press(&mut state, keys);
        assert!(screen(&state, 80, 24).contains("EMULATED"), "{keys:?}");
    }
    assert!(!screen(&replayed(BLOCKS, 3), 80, 24).contains("EMULATED"));
}

#[test]
fn the_mouse_chooses_zooms_and_scrolls() {
    let mut state = replayed(BLOCKS, 10);
    let size = (80, 24);
    let mouse = |state: &mut State, kind: MouseEventKind, row: u16| {
        state.mouse(MouseEvent { kind, column: 5, row, modifiers: KeyModifiers::NONE }, size)
    };
    let click = MouseEventKind::Down(MouseButton::Left);
    let before = screen(&state, 80, 24);
    // The line of a port in the text has the border above it.
    let line = before.lines().position(|line| line.contains("0000:10:02.0")).unwrap() as u16 - 1;
    assert_eq!(mouse(&mut state, click, line), Action::Draw);
    let chosen = screen(&state, 80, 24);
    let marked = chosen.lines().find(|line| line.contains('\u{25b6}')).unwrap();
    assert!(marked.contains("0000:10:02.0"), "{chosen}");
    mouse(&mut state, MouseEventKind::ScrollDown, 3);
    let moved = screen(&state, 80, 24);
    assert!(!moved.lines().find(|line| line.contains('\u{25b6}')).unwrap().contains("0000:10:02.0"), "{moved}");
    mouse(&mut state, MouseEventKind::ScrollUp, 3);
    let line = chosen.lines().position(|line| line.contains('\u{25b6}')).unwrap() as u16 - 1;
    mouse(&mut state, click, line);
    assert!(state.zoom.is_some(), "a second click zooms");
    mouse(&mut state, MouseEventKind::Down(MouseButton::Right), 3);
    assert!(state.zoom.is_none(), "the right button leads back");
    for outside in [0, 1, 2, 22, 23, 500] {
        assert_eq!(mouse(&mut state, click, outside), Action::Nothing, "line {outside} is no row of the tree");
    }
}

#[test]
fn without_colours_there_are_none() {
    let coloured = |theme: Theme| {
        let cells = buffer(&replayed(theme, 5), 120, 40);
        cells.content().iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(coloured(BLOCKS));
    assert!(!coloured(Theme { has_colour: false, ..BLOCKS }));
}

#[test]
fn a_page_of_text_has_every_port_and_no_more_lines_than_needed() {
    let mut state = replayed(BLOCKS, 5);
    press(&mut state, "t");
    let text = pciescope_tui::page(&state, 100, 500);
    for place in 0..18 {
        let port = sample::port(place, 0).device.unwrap().bdf.unwrap().to_string();
        assert!(text.contains(&port), "{port} is missing in\n{text}");
    }
    assert!(text.contains("ali_drw_21080") && text.lines().count() < 50, "{text}");
}

/// A second at 10 MB/s and nine at 1 MB/s are less than ten at 2 MB/s, however many readings they are.
#[test]
fn the_busiest_port_is_that_of_the_most_bytes_in_the_time() {
    let mut state = State::new(PLAIN, Origin::Replay { name: "run.jsonl".to_owned(), speed: 1.0, has_ended: false });
    for (number, (start, seconds, rate)) in
        [(0, 1, 10e6), (1, 9, 1e6), (10, 1, 10e6), (11, 9, 1e6)].into_iter().enumerate()
    {
        let of = |place, rate: f64| {
            let mut record = sample::port(place, number as u64);
            for (name, value) in [("rx_bytes_per_s", rate), ("tx_bytes_per_s", 0.0)] {
                record.metrics.insert(name.to_owned(), pciescope_core::Metric::of(value, "bytes/s"));
            }
            let second = 1_000_000_000;
            let interval = pciescope_core::Interval { start_ns: start * second, end_ns: (start + seconds) * second };
            record.interval = Some(interval);
            record
        };
        state.take(&[of(0, rate), of(1, 2e6)]);
    }
    let text = screen(&state, 120, 24);
    let at = |place| {
        let bdf = sample::port(place, 0).device.unwrap().bdf.unwrap().to_string();
        text.find(&bdf).unwrap_or_else(|| panic!("{bdf}\n{text}"))
    };
    assert!(at(1) < at(0), "{text}");
}

/// Sockets name their PMUs alike.
#[test]
fn counters_of_pmus_with_one_name_say_which_node() {
    let mut state = State::new(PLAIN, Origin::Replay { name: "run.jsonl".to_owned(), speed: 1.0, has_ended: false });
    let of = |node| {
        let mut record = sample::channel(0, 0);
        let pmu = Some("uncore_upi_0".to_owned());
        record.instance =
            Some(pciescope_core::Instance { scope: "pmu".to_owned(), pmu, node: Some(node), ..Default::default() });
        record.metrics = [("flits".to_owned(), pciescope_core::Metric::of(f64::from(node) + 5.0, "1"))].into();
        record
    };
    state.take(&[of(0), of(1)]);
    press(&mut state, "4");
    let page = screen(&state, 120, 24);
    assert!(page.contains("uncore_upi_0 node 0") && page.contains("uncore_upi_0 node 1"), "{page}");
}
