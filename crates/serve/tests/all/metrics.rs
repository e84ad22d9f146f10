//! `/metrics`: what the formats ask for, what sums promise, and what the dashboards and rules of packaging/ ask for.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use crate::support::{self, channel, interval, port, port_pmu, state};
use pciescope_core::Cpu;
use pciescope_core::plan::{Plan, StatPlan};
use pciescope_core::record::Failure;
use pciescope_serve::State;
use pciescope_serve::metrics::{self, Format, Own};
use pciescope_support::tools::of_the_lab;

fn text(state: &State, format: Format) -> String {
    metrics::write(state, format, Instant::now(), Own::default())
}

/// Samples by name and labels.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        let before = all.insert(name.to_owned(), value.parse().unwrap());
        assert!(before.is_none(), "{name} stands there twice");
    }
    all
}

/// The value of the only sample that begins so.
fn value(state: &State, begins: &str) -> f64 {
    let all = samples(&text(state, Format::Text));
    let found: Vec<_> = all.iter().filter(|(name, _)| name.starts_with(begins)).collect();
    assert_eq!(found.len(), 1, "{begins}: {found:?}");
    *found[0].1
}

const RX: &str = "pciescope_port_receive_bytes_total{port=\"0000:00:02.0\"";

#[test]
fn each_family_stands_once_with_its_words_and_unit() {
    let state = state(3);
    for format in [Format::OpenMetrics, Format::Text] {
        let text = text(&state, format);
        assert_eq!(text.ends_with("# EOF\n"), format == Format::OpenMetrics);
        assert_eq!(text.matches("# EOF").count(), usize::from(format == Format::OpenMetrics));
        let (mut family, mut seen) = (("", ""), BTreeSet::new());
        for line in text.lines().filter(|line| *line != "# EOF") {
            assert!(!line.is_empty() && line.chars().all(|c| !c.is_control()), "{line:?}");
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            match words[..] {
                ["#", "HELP", name, help] => {
                    assert!(seen.insert(name), "{name} twice");
                    assert!(!help.is_empty());
                    family = (name, "");
                }
                ["#", "TYPE", name, of] => {
                    assert_eq!(name, family.0);
                    family = (name, of);
                }
                ["#", "UNIT", name, unit] => {
                    assert!(name == family.0 && name.ends_with(&format!("_{unit}")), "{line}");
                    assert_eq!(format, Format::OpenMetrics, "{line}");
                }
                _ => {
                    let name = line.split(['{', ' ']).next().unwrap();
                    let suffix = match (family.1, format) {
                        ("counter", Format::OpenMetrics) => "_total",
                        ("info", Format::OpenMetrics) => "_info",
                        _ => "",
                    };
                    assert_eq!(name, format!("{}{suffix}", family.0), "{line}");
                    assert_eq!(name.ends_with("_total"), family.1 == "counter", "{line}");
                }
            }
        }
        assert!(samples(&text.replace("# EOF\n", "")).len() > 18 * 25);
    }
}

#[test]
fn sums_grow_by_what_was_counted_and_never_shrink() {
    let state = state(3);
    assert_eq!(value(&state, RX), 3.0 * 3e9 + 3.0);
    let states = "pciescope_port_link_state_seconds_total{port=\"0000:00:02.0\",device=\"0000:02:00.0\",driver=\"nvme\",numa_node=\"0\",state=";
    assert!((value(&state, &format!("{states}\"l0\"")) - 2.1).abs() < 1e-9);
    assert!((value(&state, &format!("{states}\"l1\"")) - 0.9).abs() < 1e-9);
    assert_eq!(value(&state, "pciescope_dram_read_bytes_total{pmu=\"ali_drw_21000\""), 3.0 * 64e6);
    assert!(text(&state, Format::Text).contains("numa_node=\"1\",channel=\"0\",die=\"1\",sub_channel=\"0\""));
    // The sum of channels is for people: Prometheus would count all twice.
    assert!(!text(&state, Format::Text).contains("total\""));
    // What is not a number, negative, or too large does not get in.
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0] {
        state.put_all(&[port(2, bad, 3)]);
    }
    assert_eq!(value(&state, RX), 3.0 * 3e9 + 3.0);
    assert!(value(&state, "pciescope_figures_refused_total") >= 4.0);
    state.put_all(&[port(2, f64::MAX, 3), port(2, f64::MAX, 3)]);
    assert!(value(&state, RX).is_finite());
}

#[test]
fn a_pmu_that_goes_keeps_its_sum_and_goes_on_when_it_comes_back() {
    let state = state(1);
    let up = format!("pciescope_pmu_up{{pmu=\"{}\"", port_pmu(2));
    let (share, running) = ("pciescope_port_receive_link_ratio{port=\"0000:00:02.0\"", "pciescope_pmu_running_ratio");
    assert_eq!((value(&state, RX), value(&state, &up)), (3e9, 1.0));
    let mut gone = port(2, 0.0, 1);
    gone.metrics.clear();
    gone.error = Some(Failure { code: "removed".to_owned(), text: "gone".to_owned(), hint: None });
    state.put_all(&[gone, port(3, 1.0, 1)]);
    // Later it is in no record at all.
    state.put_all(&[port(3, 1.0, 2)]);
    assert_eq!((value(&state, RX), value(&state, &up)), (3e9, 0.0));
    let all = samples(&text(&state, Format::Text));
    assert!(!all.keys().any(|name| name.starts_with(share)), "a gauge of what is gone");
    assert_eq!(all.keys().filter(|name| name.starts_with(running)).count(), 1);
    state.put_all(&[port(2, 5.0, 3)]);
    assert_eq!((value(&state, RX), value(&state, &up)), (3e9 + 5.0, 1.0));
}

#[test]
fn instances_of_a_pmu_without_a_node_are_series_of_their_own() {
    let state = state(0);
    // As `stat` writes it under `numa=off`: two sockets, no node.
    let of = |cpu: u32, read: f64| {
        let mut record = channel(0, read, 0);
        record.instance.as_mut().unwrap().node = None;
        record.cpu = Some(Cpu { cpu, ..Cpu::default() });
        record
    };
    state.put_all(&[of(0, 64e6), of(28, 128e6)]);
    state.put_all(&[of(0, 64e6), of(28, 128e6)]);
    for (cpu, read) in [(0, 64e6), (28, 128e6)] {
        let labels = format!("{{pmu=\"ali_drw_21000\",numa_node=\"\",cpu=\"{cpu}\"");
        assert_eq!(value(&state, &format!("pciescope_dram_read_bytes_total{labels}")), 2.0 * read);
        let share = value(&state, &format!("pciescope_dram_peak_ratio{labels}"));
        assert!((share - read * 1.5 / 17.6e9).abs() < 1e-9, "{cpu}: {share}");
        assert_eq!(value(&state, &format!("pciescope_pmu_up{labels}")), 1.0);
    }
    let feed = state.feed();
    let known: Vec<_> = feed.channels.iter().map(|one| (one.id.as_str(), one.cpu)).collect();
    assert_eq!(known, [("ali_drw_21000 CPU 0", Some(0)), ("ali_drw_21000 CPU 28", Some(28))]);
    assert_eq!(feed.readings[1].channels.len(), 2);
}

#[test]
fn a_reading_that_was_left_out_is_counted_and_its_time_is_not_lost() {
    let state = state(1);
    let mut late = port(2, 4e9, 1);
    late.metrics.remove("rx_bytes_per_s");
    let interval = late.interval.as_mut().unwrap();
    interval.end_ns = interval.start_ns + 4 * support::SECOND;
    state.put_all(&[late]);
    assert_eq!(value(&state, "pciescope_readings_missed_total"), 3.0);
    assert_eq!(value(&state, RX), 7e9);
    assert_eq!(state.feed().readings[1].ports["0000:00:02.0"].rx, Some(1e9));
    let l0 = "pciescope_port_link_state_seconds_total{port=\"0000:00:02.0\",device=\"0000:02:00.0\",driver=\"nvme\",numa_node=\"0\",state=\"l0\"";
    assert!((value(&state, l0) - 0.7 * 5.0).abs() < 1e-9);
}

/// Records of a file come as seldom as its run counted: that is no failure.
#[test]
fn the_interval_is_that_of_the_replayed_run() {
    let state = state(0);
    let mut beginning = support::beginning();
    beginning.plan = Some(Plan::Stat(StatPlan { interval_ns: Some(10 * support::SECOND), ..StatPlan::default() }));
    state.put_all(&[beginning]);
    for number in 0..2 {
        let mut one = port(2, 4e9, number);
        let interval = one.interval.as_mut().unwrap();
        (interval.start_ns, interval.end_ns) = (10 * number * support::SECOND, 10 * (number + 1) * support::SECOND);
        state.put_all(&[one]);
    }
    assert_eq!(value(&state, "pciescope_reading_interval_seconds"), 10.0);
    assert_eq!(value(&state, "pciescope_reading_success"), 1.0);
    assert_eq!(state.feed().interval_s, 10.0);
}

#[test]
fn what_was_scaled_or_cut_off_is_said() {
    let state = state(1);
    let mut scaled = port(2, 1e9, 1);
    scaled.metrics.get_mut("rx_bytes").unwrap().running = Some(0.25);
    scaled.metrics.get_mut("lcrc_error").unwrap().at_least = true;
    state.put_all(&[scaled, channel(0, 1.0, 1)]);
    let pmu = port_pmu(2);
    assert_eq!(value(&state, &format!("pciescope_pmu_running_ratio{{pmu=\"{pmu}\"")), 0.25);
    // A sum with an estimate in it stays one; others have no such label.
    state.put_all(&[port(2, 1e9, 1), channel(0, 1.0, 1)]);
    assert_eq!(value(&state, &format!("pciescope_pmu_running_ratio{{pmu=\"{pmu}\"")), 1.0);
    let marked = |text: &str, mark: &str| {
        let of = |name: &str| text.lines().filter(|line| line.starts_with(name) && line.contains(mark)).count();
        (of("pciescope_port_receive_bytes_total"), of("pciescope_dram_read_bytes_total"))
    };
    assert_eq!(marked(&text(&state, Format::Text), ",estimated=\"true\"}"), (1, 0));
    assert_eq!(marked(&text(&state, Format::Text), "emulated"), (0, 0));
    assert_eq!(value(&state, &format!("pciescope_pmu_saturated_intervals_total{{pmu=\"{pmu}\"")), 1.0);
    assert_eq!(value(&state, "pciescope_reading_warnings{code=\"not-counted\"}"), 1.0);
    assert_eq!(value(&state, "pciescope_reading_success"), 1.0);
    state.set_status("none", Some("why".to_owned()), None);
    assert_eq!(value(&state, "pciescope_reading_success"), 0.0);
}

#[test]
fn figures_of_an_emulator_and_of_the_fake_backend_have_a_label_everywhere() {
    let state = state(0);
    let method = pciescope_core::Method { emulated: true, ..Default::default() };
    let (mut one, mut other) = (port(2, 1e9, 0), channel(0, 1.0, 0));
    assert!(!state.feed().is_synthetic);
    one.method = Some(pciescope_core::Method { backend: "fake".to_owned(), ..method.clone() });
    other.method = Some(method);
    state.put_all(&[one, other, port(3, 1e9, 0)]);
    let text = text(&state, Format::Text);
    let lines = |name: &str, has: bool| {
        text.lines().filter(|line| line.starts_with(name) && line.contains("emulated=\"true\"") == has).count()
    };
    for name in ["pciescope_port_receive_bytes_total", "pciescope_port_receive_link_ratio"] {
        assert_eq!((lines(name, true), lines(name, false)), (1, 1), "{name}\n{text}");
    }
    assert_eq!(lines("pciescope_dram_read_bytes_total", true), 1);
    let made_up: Vec<&str> = text.lines().filter(|line| line.contains("synthetic=\"true\"")).collect();
    assert!(made_up.len() > 2 && made_up.iter().all(|line| line.contains("port=\"0000:")), "{made_up:?}");
    assert!(state.feed().is_synthetic);
    let feed = state.feed();
    assert_eq!(feed.ports.iter().map(|port| port.is_emulated).collect::<Vec<_>>(), [true, false]);
    assert!(feed.channels[0].is_emulated);
    assert!(feed.ports.iter().all(|port| port.counts_errors), "errors that are 0 are counted");
}

#[test]
fn events_that_a_user_named_have_a_family_of_their_own() {
    let state = state(1);
    let mut named = channel(0, 0.0, 1);
    named.instance.as_mut().unwrap().scope = "pmu".to_owned();
    named.metrics = [("a\"b\n".to_owned(), pciescope_core::Metric::count(7))].into();
    state.put_all(&[named]);
    assert_eq!(
        value(&state, "pciescope_pmu_events_total{pmu=\"ali_drw_21000\",numa_node=\"0\",event=\"a\\\"b\u{fffd}\""),
        7.0
    );
}

#[test]
fn links_and_errors_need_no_counter() {
    let state = state(0);
    for (name, expected) in [
        ("pciescope_device_current_link_transfers_per_second{device=\"0000:02:00.0\"}", 8e9),
        ("pciescope_device_max_link_width{device=\"0000:02:00.0\"}", 4.0),
        ("pciescope_device_link_downtrained{device=\"0000:02:00.0\"}", 1.0),
        ("pciescope_device_aer_errors_total{device=\"0000:02:00.0\",severity=\"correctable\"}", 7.0),
        ("pciescope_device_aer_errors_total{device=\"0000:02:00.0\",severity=\"fatal\"}", 0.0),
        (
            "pciescope_device_aer_error_kinds_total{device=\"0000:02:00.0\",severity=\"correctable\",error=\"BadTLP\"}",
            7.0,
        ),
        ("pciescope_device_link_week_changes{device=\"0000:02:00.0\",cause=\"reliability\"}", 3.0),
        ("pciescope_device_link_week_changes{device=\"0000:02:00.0\",cause=\"software\"}", 2.0),
        ("pciescope_device_link_week_changes{device=\"0000:02:00.0\",cause=\"dpc\"}", 0.0),
        ("pciescope_device_link_week_lost_bytes{device=\"0000:02:00.0\"}", 5e9),
        ("pciescope_device_link_last_change_timestamp_seconds{device=\"0000:02:00.0\"}", 1.7e9),
        ("pciescope_reading_success", 0.0),
    ] {
        assert_eq!(value(&state, name), expected, "{name}");
    }
}

/// Words of an expression that are names of ours, each with its labels.
fn names(expression: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut rest = expression;
    while let Some(at) = rest.find("pciescope") {
        rest = &rest[at..];
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':')).unwrap_or(rest.len());
        let (name, behind) = rest.split_at(end);
        let labels =
            behind.strip_prefix('{').and_then(|inside| inside.split_once('}')).map_or("", |(inside, _)| inside);
        let labels = labels.split(',').filter_map(|label| Some(label.split(['=', '!']).next()?.trim().to_owned()));
        all.entry(name.to_owned()).or_default().extend(labels.filter(|label| !label.is_empty()));
        rest = behind;
    }
    all
}

/// The labels that an expression adds up or joins by.
fn grouped(expression: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for word in ["by", "on", "group_left", "without", "ignoring"] {
        let mut rest = expression;
        while let Some(at) = rest.find(&format!("{word} (")).or_else(|| rest.find(&format!("{word}("))) {
            rest = &rest[at..];
            let inside = rest.split_once('(').unwrap().1.split_once(')').unwrap().0;
            all.extend(inside.split(',').map(|label| label.trim().to_owned()).filter(|label| !label.is_empty()));
            rest = &rest[word.len()..];
        }
    }
    all
}

fn strings<'v>(value: &'v serde_json::Value, wanted: &str, into: &mut Vec<&'v str>) {
    match value {
        serde_json::Value::Object(map) => map.iter().for_each(|(key, value)| match value.as_str() {
            Some(text) if key == wanted => into.push(text),
            _ => strings(value, wanted, into),
        }),
        serde_json::Value::Array(all) => all.iter().for_each(|value| strings(value, wanted, into)),
        _ => {}
    }
}

#[test]
fn dashboard_and_rules_ask_for_what_there_is() {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let read = |file: &str| std::fs::read_to_string(packaging.join(file)).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&read("grafana/pciescope.json")).unwrap();
    let rules: serde_json::Value = serde_yaml_ng::from_str(&read("prometheus/pciescope.rules.yml")).unwrap();
    let (mut expressions, mut recorded, mut queries) = (Vec::new(), Vec::new(), Vec::new());
    strings(&dashboard, "expr", &mut expressions);
    strings(&rules, "expr", &mut expressions);
    strings(&rules, "record", &mut recorded);
    strings(&dashboard["templating"], "query", &mut queries);
    expressions.extend(queries.iter().filter(|query| query.contains("pciescope_")));
    assert!(expressions.len() > 15, "{expressions:?}");
    // What is exported, with its labels.
    let exported = samples(&text(&state(2), Format::Text));
    let mut known: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for sample in exported.keys() {
        let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
        let labels = labels.split("\",").filter_map(|label| label.split_once("=\"")).map(|(label, _)| label);
        known.entry(name).or_default().extend(labels);
    }
    // Prometheus adds these.
    let added = ["instance", "job", "le"];
    let mut asked = 0;
    for expression in expressions {
        let used = names(expression);
        assert!(!used.is_empty(), "{expression}");
        let mut labels: BTreeSet<&str> = added.into();
        for (name, wanted) in &used {
            if recorded.contains(&name.as_str()) {
                // A recorded series has the labels that its rule keeps: those of its own names are enough here.
                labels.extend(["port", "device", "driver", "numa_node", "state", "pmu", "severity"]);
                continue;
            }
            let there = known.get(name.as_str()).unwrap_or_else(|| panic!("{name} is not exported: {expression}"));
            for label in wanted {
                assert!(
                    there.contains(label.as_str()) || added.contains(&label.as_str()),
                    "{name} has no {label}: {expression}"
                );
            }
            labels.extend(there);
            asked += 1;
        }
        for label in grouped(expression) {
            assert!(labels.contains(label.as_str()), "no label {label}: {expression}");
        }
    }
    assert!(asked > 15, "{asked}");
}

#[test]
fn promtool_takes_metrics_and_rules() {
    let Some(mut tool) = of_the_lab("promtool") else { return };
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/prometheus/pciescope.rules.yml");
    let output = tool.args(["check", "rules"]).arg(rules).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let state = state(2);
    state.put_all(&interval(2));
    let mut tool = of_the_lab("promtool").unwrap();
    let tool = tool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = tool.spawn().unwrap();
    let text = text(&state, Format::Text);
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.trim().is_empty(), "{said}");
}

/// The kernel's account of a port and of a disk below it, with a function on the root bus.
fn accounts(number: u64) -> Vec<pciescope_core::Record> {
    let account = |bdf: &str, scope: &str, path: &[&str]| {
        let mut record = port(2, 5e8, number);
        let own = record.device.as_mut().unwrap();
        own.bdf = bdf.parse().ok();
        own.path = path.iter().map(|above| above.parse().unwrap()).collect();
        let instance = record.instance.as_mut().unwrap();
        instance.source = Some(pciescope_core::record::ACCOUNTING.to_owned());
        instance.scope = scope.to_owned();
        instance.pmu = Some(format!("kernel_{bdf}"));
        let known = ["rx_bytes", "tx_bytes", "rx_bytes_per_s", "tx_bytes_per_s", "rx_link_share", "link_bytes_per_s"];
        record.metrics.retain(|name, _| known.contains(&name.as_str()));
        record.metrics.values_mut().for_each(|metric| metric.at_least = true);
        for (name, value) in [("interrupts", 7.0), ("correctable_errors", 1.0), ("aer_errors", 1.0), ("irq_45", 7.0)] {
            record.metrics.insert(name.to_owned(), pciescope_core::Metric::of(value, "1"));
        }
        record
    };
    vec![
        account("0000:00:02.0", "port", &[]),
        account("0000:02:00.0", "function", &["0000:00:02.0"]),
        account("0000:00:17.0", "function", &[]),
    ]
}

#[test]
fn the_kernels_accounts_stand_beside_hardware_and_say_what_they_are() {
    let state = state(0);
    for number in 0..2 {
        state.put_all(&[vec![port(2, 1e9, number)], accounts(number)].concat());
    }
    let text = text(&state, Format::OpenMetrics);
    let of = |name: &str, labels: &[&str]| -> f64 {
        let fits =
            |line: &&str| line.starts_with(&format!("{name}{{")) && labels.iter().all(|label| line.contains(label));
        let found: Vec<&str> = text.lines().filter(fits).collect();
        assert_eq!(found.len(), 1, "{name} {labels:?}: {found:?}");
        found[0].rsplit_once(' ').unwrap().1.parse().unwrap()
    };
    let source = "source=\"kernel accounting\"";
    assert_eq!(of("pciescope_port_kernel_receive_bytes_total", &["port=\"0000:00:02.0\"", source]), 1e9);
    // The same bytes are in no family twice, so that a family can be added up.
    assert_eq!(of("pciescope_port_receive_bytes_total", &[]), 2e9);
    assert_eq!(of("pciescope_port_info", &["port=\"0000:00:02.0\""]), 1.0);
    let disk = ["device=\"0000:02:00.0\"", "port=\"0000:00:02.0\"", source];
    assert_eq!(of("pciescope_device_receive_bytes_total", &disk), 1e9);
    assert_eq!(of("pciescope_device_interrupts_total", &["device=\"0000:00:17.0\"", "port=\"\"", source]), 14.0);
    assert_eq!(of("pciescope_pmu_events_total", &["kernel_0000:02:00.0", "event=\"irq_45\""]), 14.0);
    // Neither is a lower bound a counter at its end, nor an account a PMU that is up.
    assert!(text.lines().all(|line| !line.starts_with("pciescope_pmu_up") || !line.contains("kernel_")), "{text}");
    assert!(!text.contains("pciescope_device_correctable_errors"), "the inventory has them");
    let feed = state.feed();
    let ids: Vec<&str> = feed.ports.iter().map(|port| port.id.as_str()).collect();
    assert_eq!(ids, ["0000:00:02.0", "0000:00:02.0 kernel", "0000:00:17.0 kernel"]);
    assert_eq!(feed.functions.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["0000:02:00.0 kernel"]);
    let reading = feed.readings.last().unwrap();
    assert_eq!((reading.ports["0000:00:02.0 kernel"].rx, reading.ports["0000:00:02.0"].rx), (Some(5e8), Some(1e9)));
    assert!(!reading.ports["0000:00:02.0 kernel"].at_least && reading.functions.len() == 1);
}
