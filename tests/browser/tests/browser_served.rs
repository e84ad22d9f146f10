//! The live page as the program serves it: `pciescope serve --replay` of records, killed and started again.
#![allow(clippy::unwrap_used)] // a test file is not a #[test] function to clippy

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use pciescope_browser_tests::{Browser, SIZES, program};
use pciescope_core::record::SCHEMA;
use pciescope_core::{Below, Function, Instance, Interval, Link, Metric, Record, Sink};
use pciescope_report::jsonl::Writer;

/// `pciescope serve`, killed when dropped.
struct Serve(Child);

impl Serve {
    fn start(records: &Path, port: u16) -> Self {
        let listen = format!("127.0.0.1:{port}");
        let arguments = ["serve", "--replay", records.to_str().unwrap(), "-I", "200", "--listen", &listen];
        let mut child = Command::new(program()).args(arguments).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        // It says its address once it listens.
        let said = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("http://")));
        assert!(said.is_some(), "serve ended before it listened: {:?}", child.wait());
        std::thread::spawn(move || lines.for_each(drop));
        Self(child)
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two ports and two channels for so many seconds; in second `n` port `p` receives (p + 1) x (100 + n) MB/s.
fn records(seconds: u64) -> Vec<Record> {
    let mut all = Vec::new();
    for second in 0..seconds {
        let metric = |(name, value, unit): (&str, f64, &str)| (name.to_owned(), Metric::of(value, unit));
        let record = |instance, metrics: Vec<(String, Metric)>| Record {
            schema: SCHEMA,
            run: "00000000000000d1".to_owned(),
            time: "2026-11-21T09:00:00Z".to_owned(),
            verb: "stat".to_owned(),
            test: "counters".to_owned(),
            instance: Some(instance),
            interval: Some(Interval { start_ns: second * 1_000_000_000, end_ns: (second + 1) * 1_000_000_000 }),
            metrics: metrics.into_iter().collect(),
            ..Record::default()
        };
        for port in 0..2_u32 {
            let rx = f64::from(port + 1) * (100.0 + second as f64) * 1e6;
            let metrics = [
                ("rx_bytes_per_s", rx, "bytes/s"),
                ("rx_link_share", rx / 145e6, "%"),
                ("tx_bytes_per_s", 1e6, "bytes/s"),
                ("link_bytes_per_s", 14.5e9, "bytes/s"),
                ("layer2_errors", if second == 5 { 7.0 } else { 0.0 }, "1"),
                ("l0_share", 75.0, "%"),
                ("l1_share", 25.0, "%"),
            ];
            let link = Link {
                speed_gts: 32.0,
                width: 4,
                max_speed_gts: 32.0,
                max_width: 4,
                mps_bytes: None,
                mrrs_bytes: None,
                is_nominal: false,
            };
            let below = Below {
                bdf: format!("0000:0{}:00.0", port + 1).parse().unwrap(),
                name: "<b>disk</b>".to_owned(),
                driver: None,
                devices: Vec::new(),
            };
            let instance = Instance {
                scope: "port".to_owned(),
                pmu: Some(format!("dwc_rootport_{:x}", port << 4)),
                node: Some(0),
                below: vec![below],
                ..Instance::default()
            };
            let bdf = Some(format!("0000:00:0{port}.0").parse().unwrap());
            let device = Function { bdf, name: "root port".to_owned(), link: Some(link), ..Function::default() };
            all.push(Record { device: Some(device), ..record(instance, metrics.map(metric).into()) });
        }
        for channel in 0..2 {
            let instance = Instance {
                scope: "channel".to_owned(),
                pmu: Some(format!("ali_drw_210{channel}0")),
                node: Some(0),
                ..Instance::default()
            };
            let metrics = [("read_bytes_per_s", 2e9, "bytes/s"), ("write_bytes_per_s", 1e9, "bytes/s")];
            all.push(record(instance, metrics.map(metric).into()));
        }
    }
    all
}

#[test]
#[ignore = "needs Chromium: make browser-test"]
fn a_replay_is_followed_lost_and_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let write = |seconds| {
        let mut writer = Writer::new(std::fs::File::create(&path).unwrap());
        for record in records(seconds) {
            writer.put(&record).unwrap();
        }
        writer.into_inner().flush().unwrap();
    };
    // A port that is free now; the second server is to have it too.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let state = |wanted: &str| format!("document.getElementById('state').textContent === '{wanted}'");

    write(20);
    let serve = Serve::start(&path, port);
    let browser = Browser::start();
    browser.size(SIZES[0]);
    browser.open(&format!("http://127.0.0.1:{port}/"));
    browser.wait("document.querySelectorAll('#table tbody tr').length === 2");
    println!("live page as served: first contentful paint after {:.0} ms", browser.first_paint_ms());
    browser.wait(&state("replay ended"));
    let rows = "[...document.querySelectorAll('#table tbody tr')].map(r => [...r.cells].slice(1).map(c => c.textContent).join('|')).join('\\n')";
    assert_eq!(
        browser.text(rows),
        "0000:00:01.0|7|32 GT/s x4|238.00|1.6|1.00|0.0|L0 75.0 %|-|0000:02:00.0 <b>disk</b>\n\
         0000:00:00.0|7|32 GT/s x4|119.00|0.8|1.00|0.0|L0 75.0 %|-|0000:01:00.0 <b>disk</b>"
    );
    assert!(browser.text("document.querySelector('#dies figcaption').textContent").contains("read 4000.00 MB/s"));
    browser.screenshot("served-1280");
    assert_eq!(browser.console(), [""; 0]);

    drop(serve);
    browser.wait(&state("feed lost"));
    write(600);
    let _serve = Serve::start(&path, port);
    browser.wait(&state("replay"));
    let rx = "document.querySelector('#table tbody tr td:nth-child(5)').textContent";
    let before = browser.text(rx);
    browser.wait(&format!("{rx} !== '{before}'"));
}
