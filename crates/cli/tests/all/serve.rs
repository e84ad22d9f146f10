//! `pciescope serve` as a user starts it: a file of records served, read by Debian's own Prometheus, and ended by a signal.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pciescope_support::tree::Tree;

use crate::common::{PROGRAM, folder, run};
use pciescope_core::record::SCHEMA;
use pciescope_core::{Function, Instance, Interval, Metric, Record};
use pciescope_support::tools::of_the_lab;

/// A port that received a megabyte more in each interval.
fn records(count: u64) -> String {
    let one = |number: u64| {
        let bytes = 1e6 * (number + 1) as f64;
        let metrics = [("rx_bytes", bytes, "bytes"), ("rx_bytes_per_s", bytes, "bytes/s"), ("lcrc_error", 2.0, "1")];
        let record = Record {
            schema: SCHEMA,
            run: "00000000000000c1".to_owned(),
            time: "2026-11-21T09:00:00Z".to_owned(),
            verb: "stat".to_owned(),
            test: "counters".to_owned(),
            device: Some(Function { bdf: Some("0000:00:02.0".parse().unwrap()), ..Function::default() }),
            instance: Some(Instance {
                scope: "port".to_owned(),
                pmu: Some("dwc_rootport_10".to_owned()),
                ..Instance::default()
            }),
            interval: Some(Interval { start_ns: number * 1_000_000_000, end_ns: (number + 1) * 1_000_000_000 }),
            metrics: metrics.iter().map(|(name, value, unit)| ((*name).to_owned(), Metric::of(*value, unit))).collect(),
            ..Record::default()
        };
        serde_json::to_string(&record).unwrap() + "\n"
    };
    (0..count).map(one).collect()
}

/// A program that is ended with the test.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the server on a free port with a file, and gives that.
fn serve(file: &Path, more: &[&str]) -> (Ending, u16) {
    begin(&[&["serve", "--replay", file.to_str().unwrap()], more].concat())
}

fn begin(args: &[&str]) -> (Ending, u16) {
    let mut child = Command::new(PROGRAM)
        .args(args)
        .args(["--listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    let port =
        said.split("127.0.0.1:").nth(1).and_then(|rest| rest.split('/').next()).and_then(|port| port.parse().ok());
    (Ending(child), port.unwrap_or_else(|| panic!("no address: {said}")))
}

/// The body of an answer.
fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text.split_once("\r\n\r\n")?.1.to_owned())
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < until, "{what}: not within 60 s");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn prometheus_has_the_sum_of_the_file() {
    let at = folder("serve-prometheus");
    let Some(mut prometheus) = of_the_lab("prometheus") else { return };
    std::fs::write(at.join("run.jsonl"), records(8)).unwrap();
    let (_server, port) = serve(&at.join("run.jsonl"), &["-I", "500"]);
    let own = free_port();
    let config = format!(
        "global: {{scrape_interval: 2s, scrape_timeout: 2s}}\nscrape_configs:\n- job_name: p\n  static_configs: [{{targets: ['127.0.0.1:{port}']}}]\n"
    );
    std::fs::write(at.join("prometheus.yml"), config).unwrap();
    let log = std::fs::File::create(at.join("log")).unwrap();
    prometheus.arg(format!("--config.file={}", at.join("prometheus.yml").display()));
    prometheus.arg(format!("--storage.tsdb.path={}", at.join("data").display()));
    prometheus
        .arg(format!("--web.listen-address=127.0.0.1:{own}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    let _prometheus = Ending(prometheus.spawn().unwrap());
    let value = |name: &str| {
        let answer: serde_json::Value =
            serde_json::from_str(&get(own, &format!("/api/v1/query?query={name}"))?).ok()?;
        answer["data"]["result"][0]["value"][1].as_str()?.parse::<f64>().ok()
    };
    // 1 + 2 + ... + 8 megabytes.
    wait_for("the sum", || value("pciescope_port_receive_bytes_total").filter(|sum| *sum == 36e6));
    // A scrape that came late leaves a gap: the next one closes it.
    for (name, expected) in [("pciescope_port_lcrc_error_total", 16.0), ("up", 1.0), ("pciescope_readings_total", 8.0)]
    {
        wait_for(name, || value(name).filter(|found| *found == expected));
    }
}

#[test]
fn a_file_is_served_and_a_signal_ends_it() {
    let at = folder("serve-replay");
    std::fs::write(at.join("run.jsonl"), records(2)).unwrap();
    let (mut server, port) = serve(&at.join("run.jsonl"), &["-I", "100ms", "--label", "a run"]);
    let ended = |feed: String| feed.contains("\"state\":\"ended\"").then_some(feed);
    let feed = wait_for("the end of the file", || get(port, "/api/state").and_then(ended));
    assert!(feed.contains("\"label\":\"a run\""), "{feed}");
    let sum =
        "pciescope_port_receive_bytes_total{port=\"0000:00:02.0\",device=\"\",driver=\"\",numa_node=\"\"} 3000000\n";
    assert!(get(port, "/metrics").unwrap().contains(sum));
    assert!(get(port, "/").unwrap().contains("<html"));
    // With a page that watches.
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.write_all(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut first = [0; 16];
    stream.read_exact(&mut first).unwrap();
    assert!(first.starts_with(b"HTTP/1.1 200 OK"), "{first:?}");
    let killed = Command::new("kill").args(["-TERM", &server.0.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let status = wait_for("the end", || server.0.try_wait().unwrap());
    assert_eq!(status.code(), Some(143));
    // The stream ends; how, is the network's affair.
    let _ = stream.read_to_end(&mut Vec::new());
}

/// A port that is free now.
fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// Its words go to the standard error, and are no condition of serving.
#[test]
fn a_log_that_cannot_be_written_stops_nothing() {
    let at = folder("serve-log");
    std::fs::write(at.join("run.jsonl"), records(2)).unwrap();
    let full = || Stdio::from(std::fs::File::options().write(true).open("/dev/full").unwrap());
    let closed = || {
        let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(reader);
        Stdio::from(std::os::fd::OwnedFd::from(writer))
    };
    for (name, log) in [("full", full()), ("closed", closed())] {
        let port = free_port();
        let mut server = Command::new(PROGRAM);
        server.args(["serve", "--listen", &port.to_string(), "-I", "100ms", "--replay"]).arg(at.join("run.jsonl"));
        let mut server = Ending(server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap());
        wait_for(name, || get(port, "/metrics").filter(|text| text.contains("pciescope_readings_total 2\n")));
        assert!(Command::new("kill").args(["-TERM", &server.0.id().to_string()]).status().unwrap().success());
        assert_eq!(wait_for("the end", || server.0.try_wait().unwrap()).code(), Some(143), "{name}");
    }
}

#[test]
fn what_becomes_of_the_configuration_is_said_in_the_log() {
    let at = folder("serve-reload");
    std::fs::write(at.join("run.jsonl"), records(2)).unwrap();
    let web = at.join("web.yml");
    std::fs::write(&web, "hosts: [one.example]\n").unwrap();
    let (mut server, port) = serve(&at.join("run.jsonl"), &["--config", web.to_str().unwrap()]);
    let log = server.0.stderr.take().unwrap();
    let (say, said) = std::sync::mpsc::channel();
    std::thread::spawn(move || BufReader::new(log).lines().map_while(Result::ok).try_for_each(|line| say.send(line)));
    // Each is said once, however often it is asked.
    for (text, wanted) in [
        ("hosts: [two.example]\n", "changed, and were read again"),
        ("host: []\n", "line 1: unknown field `host`"),
        ("hosts: [two.example]\n", "again as they were"),
        ("hosts: [three.example]\n", "changed, and were read again"),
    ] {
        std::fs::write(&web, text).unwrap();
        let line = wait_for(wanted, || get(port, "/metrics").and_then(|_| said.try_recv().ok()));
        assert!(line.starts_with("pciescope: ") && line.contains(wanted), "{line}");
    }
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(1100));
        get(port, "/metrics").unwrap();
    }
    assert_eq!(said.try_recv().ok(), None);
}

#[test]
fn what_cannot_be_served_is_refused_with_a_hint() {
    let at = folder("serve-refusals");
    std::fs::write(at.join("web.yml"), "tls_server_conf: {}\n").unwrap();
    std::fs::write(at.join("run.jsonl"), records(1).replace("\"counters\"", "\"mmio-read\"")).unwrap();
    let (config, file) = (at.join("web.yml").display().to_string(), at.join("run.jsonl").display().to_string());
    for (line, wanted) in [
        ("serve --listen 0.0.0.0:0".to_owned(), "not a loopback address"),
        ("serve --listen :0".to_owned(), "not a loopback address"),
        (format!("serve --listen 127.0.0.1:0 --config {config}"), "line 1: unknown field `tls_server_conf`"),
        (format!("serve --listen 127.0.0.1:0 --replay {file}"), "no record of it counts"),
        ("serve --listen nowhere".to_owned(), "write an IP address and a port"),
        ("serve -I 1ms".to_owned(), "the shortest time here is 100 ms"),
        ("serve --listen 127.0.0.1:0 no_such_pmu".to_owned(), "no_such_pmu"),
    ] {
        let ended = run(&line).expect_code(2);
        assert!(ended.stderr.contains(wanted) && ended.stderr.contains("hint: "), "{line}: {}", ended.stderr);
    }
    let missing = run("serve --listen 127.0.0.1:0 --replay /no/such/file").expect_code(2);
    assert!(missing.stderr.contains("/no/such/file"), "{}", missing.stderr);
}

#[test]
fn what_the_recorder_has_kept_is_served() {
    let tree = Tree::case("link-unsteady.fires").unpack();
    let (_server, port) = begin(&["--root", tree.path().to_str().unwrap(), "serve"]);
    let metrics = wait_for("devices", || get(port, "/metrics").filter(|text| text.contains("link_week_changes")));
    // Of the port and of the device below it.
    let of = |name: &str| {
        let lines = metrics.lines().filter(|line| line.starts_with(&format!("pciescope_device_link_{name}{{")));
        lines.map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap()).collect::<Vec<f64>>()
    };
    // Half of its speed for a minute, one lane for ten seconds; at 00:02:20 of 2026 it was as before.
    let lost = 60.0 * 7_876_923_077.0 + 10.0 * 13_784_615_384.6;
    // Twice it fell, and twice software brought it back; the other eight causes have none.
    let mut changes = of("week_changes");
    assert_eq!(changes.len(), 2 * 10);
    changes.retain(|count| *count > 0.0);
    assert_eq!(changes, [2.0; 4]);
    for cause in ["software", "reliability"] {
        let label = format!("cause=\"{cause}\"}} 2");
        assert_eq!(metrics.lines().filter(|line| line.ends_with(&label)).count(), 2, "{metrics}");
    }
    assert!(of("week_lost_bytes").iter().all(|bytes| (bytes / lost - 1.0).abs() < 1e-9), "{metrics}");
    assert_eq!(of("last_change_timestamp_seconds"), [1_767_225_740.0; 2]);
}
