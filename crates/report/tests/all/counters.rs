//! Records of hardware counters against their tables and lines of CSV, as golden files: tests/records/counters.*.
//! `UPDATE_GOLDEN=1 cargo test -p pciescope-report --test all counters::` after a wanted change; then read the diff.

use std::path::Path;

use pciescope_core::record::SCHEMA;
use pciescope_core::{Below, Failure, Function, Instance, Interval, Link, Metric, Record, Warning};
use pciescope_report::{csv, html, png, svg, table};

fn check(name: &str, got: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/records").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, got).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), got, "{name}");
}

fn record(instance: Instance, metrics: &[(&str, f64, &str)], second: u64) -> Record {
    let ns = 1_000_000_000;
    Record {
        schema: SCHEMA,
        run: "00000000000000c1".to_owned(),
        time: "2026-11-21T09:00:00Z".to_owned(),
        verb: "stat".to_owned(),
        test: "counters".to_owned(),
        instance: Some(instance),
        interval: Some(Interval { start_ns: second * ns, end_ns: (second + 1) * ns }),
        metrics: metrics.iter().map(|(name, value, unit)| ((*name).to_owned(), Metric::of(*value, unit))).collect(),
        ..Record::default()
    }
}

fn port(bdf: &str, pmu: &str, width: u8, metrics: &[(&str, f64, &str)], second: u64) -> Record {
    let link = Link {
        speed_gts: 32.0,
        width,
        max_speed_gts: 32.0,
        max_width: 4,
        mps_bytes: Some(256),
        mrrs_bytes: None,
        is_nominal: false,
    };
    let function = Function {
        bdf: Some(bdf.parse().unwrap()),
        vendor: 0x1ded,
        device: 0x8000,
        class: 0x06_0400,
        name: "Alibaba root port".to_owned(),
        link: Some(link),
        ..Function::default()
    };
    let instance =
        Instance { scope: "port".to_owned(), pmu: Some(pmu.to_owned()), node: Some(0), ..Instance::default() };
    Record { device: Some(function), ..record(instance, metrics, second) }
}

fn records() -> Vec<Record> {
    let mut all = Vec::new();
    for second in 0..2 {
        let rate = 3e9 + second as f64 * 1e9;
        let mut disk = port(
            "0000:00:02.0",
            "dwc_rootport_10",
            4,
            &[
                ("rx_bytes", rate, "bytes"),
                ("rx_bytes_per_s", rate, "bytes/s"),
                ("rx_link_share", rate / 145e6, "%"),
                ("tx_bytes_per_s", 1e6, "bytes/s"),
                ("tx_link_share", 0.01, "%"),
                ("layer1_errors", 0.0, "1"),
                ("layer2_errors", 300.0, "1"),
                ("lcrc_error", 300.0, "1"),
                ("bad_tlp", 0.0, "1"),
                ("naks", 2.0, "1"),
                ("recoveries", 1.0, "1"),
                ("l0_share", 70.25, "%"),
                ("l1_share", 29.75, "%"),
            ],
            second,
        );
        disk.metrics.get_mut("rx_bytes_per_s").unwrap().running = Some(0.49);
        for name in ["lcrc_error", "layer2_errors"] {
            disk.metrics.get_mut(name).unwrap().at_least = true;
        }
        let below = Below {
            bdf: "0000:02:00.0".parse().unwrap(),
            name: "A disk\u{1b}".to_owned(),
            driver: Some("nvme".to_owned()),
            devices: Vec::new(),
        };
        disk.instance.as_mut().unwrap().below = vec![below];
        all.push(disk);
        let mut gone = port("0000:30:00.0", "dwc_rootport_3000", 0, &[], second);
        let text = "dwc_rootport_3000: the PMU or its hardware is gone".to_owned();
        gone.error = Some(Failure { code: "removed".to_owned(), text, hint: None });
        if second == 0 {
            all.push(gone);
        }
        let channel = |scope: &str, pmu: Option<&str>, parts: Option<u32>, times: f64| {
            let pmu = pmu.map(str::to_owned);
            let node = (scope != "total").then_some(0);
            let instance = Instance { scope: scope.to_owned(), pmu, node, parts, ..Instance::default() };
            let metrics = [
                ("read_bytes", 64e6 * times, "bytes"),
                ("read_bytes_per_s", 64e6 * times, "bytes/s"),
                ("write_bytes_per_s", 32e6 * times, "bytes/s"),
                ("total_bytes_per_s", 96e6 * times, "bytes/s"),
                ("peak_share", 0.6, "%"),
            ];
            record(instance, &metrics, second)
        };
        // Shares of which only one is time in a state, and that of no link: what no other table has stands by its name.
        let mut busy = channel("channel", Some("ali_drw_21000"), None, 1.0);
        for (name, share) in [("page_conflict_share", 12.5), ("self_refresh_rank0_share", 3.0)] {
            busy.metrics.insert(name.to_owned(), Metric::of(share, "%"));
        }
        all.push(busy);
        all.push(channel("channel", Some("ali_drw_21080"), None, 1.0));
        all.push(channel("total", None, Some(2), 2.0));
        let named = Instance { scope: "pmu".to_owned(), pmu: Some("ali_drw_21000".to_owned()), ..Instance::default() };
        all.push(record(named, &[("hif_rd", 1000.0, "1")], second));
    }
    all
}

#[test]
fn the_tables_of_a_run_join_its_intervals() {
    check("counters.txt", &table::render(&records(), &table::Options::default()));
}

#[test]
fn the_table_of_one_interval() {
    let first: Vec<Record> = records().into_iter().filter(|record| record.interval.unwrap().start_ns == 0).collect();
    check("counters-interval.txt", &table::interval(&first));
}

#[test]
fn the_fields_of_counters() {
    check("counters.csv", &csv::render(&records()));
}

#[test]
fn a_recording_has_charts_over_time_in_page_svg_and_png() {
    let picture = svg::render(&records());
    check("counters.svg", &picture);
    for words in ["PCIe, from the devices (Rx)", "PCIe, to the devices (Tx)", ">DRAM</text>", "Errors and retries"] {
        assert!(picture.contains(words), "{words}");
    }
    assert!(!picture.contains("no record has"));
    // 3 GB/s in the first second and 4 in the next: the line rises, and stands where the axis says so.
    let line = picture.split("<polyline points=\"").nth(1).unwrap().split('"').next().unwrap();
    let heights: Vec<f64> = line.split(' ').map(|point| point.split(',').nth(1).unwrap().parse().unwrap()).collect();
    assert!(heights.len() == 2 && heights[0] > heights[1], "{line}");
    // Estimated figures are marked in the legend, and the note says why.
    assert!(picture.contains("~0000:00:02.0"), "{picture}");
    assert!(png::render(&records()).unwrap().len() > 10_000);
    let page = html::render(&records());
    for words in ["class=\"tiles\"", "Busiest port", "estimated, the counters took turns", "1 root port"] {
        assert!(page.contains(words), "{words}");
    }
}

#[test]
fn of_counters_the_tables_are_open_and_nothing_is_said_of_a_device() {
    let page = html::render(&records());
    assert!(page.contains("<details class=\"tables\" open>"));
    assert!(!page.contains("(no device named)"));
}

/// Intervals of one port, each with these figures.
fn intervals(figures: impl Fn(u64) -> Vec<(&'static str, f64, &'static str)>, count: u64) -> Vec<Record> {
    (0..count).map(|second| port("0000:00:02.0", "dwc_rootport_10", 4, &figures(second), second)).collect()
}

/// The table's line that ends with a figure's name, its words.
fn line_of(records: &[Record], name: &str) -> Vec<String> {
    let text = table::render(records, &table::Options::default());
    let line = text.lines().find(|line| line.ends_with(name)).unwrap_or_else(|| panic!("{name}\n{text}"));
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn means_are_no_amounts() {
    let figures =
        [("rx_bytes_per_tlp", 256.0, "bytes"), ("dma_read_cycles", 700.0, "cycles"), ("l0_cycles", 1e9, "cycles")];
    let records = intervals(|_| figures.to_vec(), 10);
    for (name, value, per_s) in [
        ("rx_bytes_per_tlp", "256", "-"),
        ("dma_read_cycles", "700", "-"),
        ("l0_cycles", "10000000000", "1000000000.0"),
    ] {
        let words = line_of(&records, name);
        assert_eq!((words[0].as_str(), words[2].as_str()), (value, per_s), "{words:?}");
    }
}

/// 10 s with a share, 8 s in which nothing moved, and so no share, and 1 s with another one.
#[test]
fn a_mean_is_over_the_time_in_which_it_was_known() {
    let figures = |second| match second {
        0..10 => vec![("x_share", 55.0, "%")],
        10..18 => vec![],
        _ => vec![("x_share", 0.0, "%")],
    };
    let records = intervals(figures, 19);
    assert_eq!(line_of(&records, "x_share")[0], "50");
    // The same where each is a record by itself.
    let mut apart = records;
    for (number, record) in apart.iter_mut().enumerate() {
        record.label = Some(number.to_string());
    }
    assert_eq!(line_of(&apart, "x_share")[0], "50");
}

#[test]
fn a_driver_that_is_bound_meanwhile_is_no_second_port() {
    let mut records = intervals(|_| vec![("rx_bytes_per_s", 1e9, "bytes/s"), ("rx_link_share", 12.0, "%")], 4);
    for (number, record) in records.iter_mut().enumerate() {
        let driver = if number < 2 { None } else { Some("nvme".to_owned()) };
        let bdf = "0000:02:00.0".parse().unwrap();
        record.instance.as_mut().unwrap().below =
            vec![Below { bdf, name: "A disk".to_owned(), driver, devices: Vec::new() }];
    }
    let text = table::render(&records, &table::Options::default());
    assert_eq!(text.matches("0000:00:02.0").count(), 1, "{text}");
    assert!(text.contains("in 4 intervals") && text.contains("0000:02:00.0 nvme"), "{text}");
    let brief = pciescope_report::print::terminal::render(&records);
    assert!(brief.contains("Rx 1.00 GB/s, Tx 0.0 MB/s at 1 of 1 port"), "{brief}");
}

/// A channel of a node; sockets name their PMUs alike.
fn channel(node: u32, pmu: &str, metrics: &[(&str, f64, &str)], second: u64) -> Record {
    let instance =
        Instance { scope: "channel".to_owned(), pmu: Some(pmu.to_owned()), node: Some(node), ..Instance::default() };
    record(instance, metrics, second)
}

#[test]
fn rows_of_pmus_with_one_name_say_which_node() {
    let of = |node, rate| channel(node, "uncore_imc_0", &[("read_bytes_per_s", rate, "bytes/s")], 0);
    let records = [of(0, 10e9), of(1, 1e9)];
    let brief = pciescope_report::print::terminal::render(&records);
    let interval = pciescope_report::print::terminal::Intervals::default().next(&records);
    let table = table::render(&records, &table::Options::default());
    for text in [&brief, &interval, &table] {
        assert!(text.contains("uncore_imc_0 node 0 ") && text.contains("uncore_imc_0 node 1 "), "{text}");
    }
    // What is there once has no longer name.
    let alone = pciescope_report::print::terminal::render(&[
        of(0, 10e9),
        channel(1, "uncore_imc_1", &[("read_bytes_per_s", 1e9, "bytes/s")], 0),
    ]);
    assert!(alone.contains("uncore_imc_0 ") && !alone.contains(" node "), "{alone}");
    let page = html::render(&records);
    assert!(page.contains("uncore_imc_0 node 0") && page.contains("uncore_imc_0 node 1"));
}

#[test]
fn runs_of_a_command_keep_the_nodes_apart() {
    let of = |run: u64, node, rate| Record {
        run: format!("{run:016x}"),
        ..channel(node, "uncore_imc_0", &[("read_bytes_per_s", rate, "bytes/s")], 0)
    };
    let records = [of(1, 0, 10e9), of(1, 1, 1e9), of(2, 0, 10e9), of(2, 1, 1e9)];
    let text = pciescope_report::print::terminal::repeats(&records);
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.contains("uncore_imc_0"))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows.len(), 2, "{text}");
    for (row, (mean, node)) in rows.iter().zip([("10000.00", "0"), ("1000.00", "1")]) {
        assert_eq!(row[..2], [mean, "0.00"], "{text}");
        assert!(row.ends_with(&["uncore_imc_0", "node", node, "read"]), "{text}");
    }
}

#[test]
fn lines_of_csv_say_the_node_of_a_pmu() {
    let of = |node| channel(node, "uncore_imc_0", &[("read_bytes_per_s", 1e9, "bytes/s")], 0);
    let text = csv::render(&[of(0), of(1)]);
    let place = csv::columns().position(|column| column.name == "pmu_node").unwrap();
    let nodes: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split(',').nth(place)).collect();
    assert_eq!(nodes, ["0", "1"], "{text}");
}

/// Two nodes with two channels each; one channel of node 0 was not counted, so there is no sum of its node and no total.
fn lacking() -> Vec<Record> {
    let rates = |rate: f64| [("read_bytes_per_s", rate, "bytes/s"), ("write_bytes_per_s", rate / 2.0, "bytes/s")];
    let sum = |scope: &str, node, parts, metrics: &[(&str, f64, &str)]| {
        record(Instance { scope: scope.to_owned(), node, parts, ..Instance::default() }, metrics, 0)
    };
    let cycles = [("cycles_per_s", 1.6e9, "1/s")];
    vec![
        channel(0, "ali_drw_21000", &rates(12e9), 0),
        channel(0, "ali_drw_21080", &cycles, 0),
        channel(1, "ali_drw_40021000", &rates(5.1e9), 0),
        channel(1, "ali_drw_40021080", &rates(4e9), 0),
        sum("die", Some(1), Some(2), &rates(9.1e9)),
    ]
}

#[test]
fn a_sum_that_lacks_a_part_is_not_said_to_be_the_total() {
    let brief = pciescope_report::print::terminal::render(&lacking());
    assert!(!brief.contains("DRAM: read 9.10"), "{brief}");
    assert!(brief.contains("DRAM: the total is not known"), "{brief}");
    let mut whole = lacking();
    let total = Instance { scope: "total".to_owned(), parts: Some(4), ..Instance::default() };
    whole.push(record(total, &[("read_bytes_per_s", 33e9, "bytes/s"), ("write_bytes_per_s", 5e9, "bytes/s")], 0));
    let brief = pciescope_report::print::terminal::render(&whole);
    assert!(brief.contains("DRAM: read 33.00 GB/s, written 5.00 GB/s"), "{brief}");
    // A lone row is all there is.
    let brief = pciescope_report::print::terminal::render(&lacking()[..1]);
    assert!(brief.contains("DRAM: read 12.00 GB/s"), "{brief}");
}

/// The heights of the points of a line by its name.
fn heights(picture: &str, name: &str) -> Vec<f64> {
    let path = picture.split("<polyline points=\"").find(|path| path.contains(&format!("<title>{name}</title>")));
    let points = path.and_then(|path| path.split('"').next()).unwrap_or_else(|| panic!("{name}"));
    points.split(' ').map(|point| point.split(',').nth(1).unwrap().parse().unwrap()).collect()
}

#[test]
fn a_node_that_lacks_a_channel_has_no_sum() {
    let one = svg::render(&lacking());
    assert!(!one.contains("node 0 read: ") && one.contains("node 1 read: 9100.00 MB/s"), "bars");
    let page = html::render(&lacking());
    let figure = page.split("<h3>DRAM by node</h3>").nth(1).and_then(|rest| rest.split("</figure>").next()).unwrap();
    assert!(figure.contains("node 0: no sum, 1 channel has no figure.") && !figure.contains("12000.00"), "{figure}");
    assert!(figure.contains("9100.00"), "{figure}");
    // The channel that is not there at all has a record without figures.
    let mut silent = lacking();
    silent[1].metrics.clear();
    assert!(html::render(&silent).contains("node 0: no sum, 1 channel has no figure."));
    let mut later = lacking();
    for record in &mut later {
        record.interval = Some(Interval { start_ns: 1_000_000_000, end_ns: 2_000_000_000 });
    }
    let over_time = svg::render(&[lacking(), later].concat());
    assert!(!over_time.contains("<title>node 0 read</title>") && over_time.contains("<title>node 1 read</title>"));
}

/// Intervals of which a chart has means have the same bins in all channels, whatever was doubtful in one of them.
#[test]
fn lines_of_long_runs_that_are_sums_have_no_teeth() {
    let of = |place: u64, second| {
        let rate = (place + 1) as f64 * 1e9;
        let pmu = ["ali_drw_21000", "ali_drw_21080"][place as usize];
        let metrics = [("read_bytes_per_s", rate, "bytes/s"), ("write_bytes_per_s", rate / 2.0, "bytes/s")];
        channel(0, pmu, &metrics, second)
    };
    let mut records: Vec<Record> = (0..5000).flat_map(|second| [of(0, second), of(1, second)]).collect();
    for (place, count) in [(1, 1), (6000, 2)] {
        for record in &mut records[place..place + count] {
            let text = "the counters took turns".to_owned();
            record.warnings = vec![Warning { code: "multiplexed".to_owned(), text, hint: String::new() }];
        }
    }
    let picture = svg::render(&records);
    let read = heights(&picture, "node 0 read");
    assert!(read.len() > 1000 && read.iter().all(|height| (height - read[0]).abs() < 0.2), "{:?}", &read[..20]);
    let written = heights(&picture, "node 0 write");
    assert!(read[0] < written[0] - 20.0, "3 GB/s above 1.5 GB/s");
}
