//! Records of a machine like the counters' seed, a server with them, and requests to it byte by byte.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use pciescope_core::plan::{Plan, StatPlan};
use pciescope_core::record::SCHEMA;
use pciescope_core::{
    Below, Device, DeviceErrors, Function, Instance, Interval, Link, Metric, Record, Warning, WatchedLink,
};
use pciescope_serve::config::Config;
use pciescope_serve::{Options, Server, Setup, State};

pub const SECOND: u64 = 1_000_000_000;

fn record(instance: Instance, metrics: &[(&str, f64, &str)], number: u64) -> Record {
    Record {
        schema: SCHEMA,
        run: "00000000000000c1".to_owned(),
        time: "2026-11-21T09:00:00Z".to_owned(),
        verb: "stat".to_owned(),
        test: "counters".to_owned(),
        instance: Some(instance),
        interval: Some(Interval { start_ns: number * SECOND, end_ns: (number + 1) * SECOND }),
        metrics: metrics.iter().map(|(name, value, unit)| ((*name).to_owned(), Metric::of(*value, unit))).collect(),
        ..Record::default()
    }
}

/// The PMU of a root port.
pub fn port_pmu(port: u16) -> String {
    format!("dwc_rootport_{:x}", port << 3)
}

/// A port that received `rx` bytes in a second.
pub fn port(device: u16, rx: f64, number: u64) -> Record {
    let link = Link {
        speed_gts: 32.0,
        width: 4,
        max_speed_gts: 32.0,
        max_width: 4,
        mps_bytes: Some(256),
        mrrs_bytes: None,
        is_nominal: false,
    };
    let function = Function {
        bdf: Some(format!("0000:00:{device:02x}.0").parse().unwrap()),
        vendor: 0x1ded,
        device: 0x8000,
        class: 0x06_0400,
        name: "Alibaba root port".to_owned(),
        driver: Some("pcieport".to_owned()),
        link: Some(link),
        ..Function::default()
    };
    let below = Below {
        bdf: format!("0000:{device:02x}:00.0").parse().unwrap(),
        name: "A \"disk\" \\ <script>alert(1)</script>\u{1b}[2J".to_owned(),
        driver: Some("nvme".to_owned()),
        devices: vec!["nvme0n1".to_owned()],
    };
    let instance = Instance {
        scope: "port".to_owned(),
        pmu: Some(port_pmu(device)),
        node: Some(0),
        below: vec![below],
        ..Instance::default()
    };
    let metrics = [
        ("rx_bytes", rx, "bytes"),
        ("tx_bytes", rx / 4.0, "bytes"),
        ("rx_bytes_per_s", rx, "bytes/s"),
        ("tx_bytes_per_s", rx / 4.0, "bytes/s"),
        ("link_bytes_per_s", 14.5e9, "bytes/s"),
        ("rx_link_share", rx / 145e6, "%"),
        ("tx_link_share", rx / 580e6, "%"),
        ("bad_tlp", 0.0, "1"),
        ("lcrc_error", 3.0, "1"),
        ("bad_dllp", 0.0, "1"),
        ("replay_num_rollover", 0.0, "1"),
        ("replay_timeout", 0.0, "1"),
        ("layer2_errors", 3.0, "1"),
        ("fc_timeout", 0.0, "1"),
        ("poisoned_tlp", 0.0, "1"),
        ("ecrc_error", 0.0, "1"),
        ("unsupported_request", 0.0, "1"),
        ("completer_abort", 0.0, "1"),
        ("completion_timeout", 0.0, "1"),
        ("layer3_errors", 0.0, "1"),
        ("rx_nak_dllp", 1.0, "1"),
        ("tx_nak_dllp", 0.0, "1"),
        ("naks", 1.0, "1"),
        ("retry_tlp", 2.0, "1"),
        ("retries", 2.0, "1"),
        ("l0_to_recovery", 1.0, "1"),
        ("l1_to_recovery", 0.0, "1"),
        ("recoveries", 1.0, "1"),
        ("speed_change", 0.0, "1"),
        ("speed_changes", 0.0, "1"),
        ("l0_share", 70.0, "%"),
        ("l1_share", 30.0, "%"),
    ];
    Record { device: Some(function), ..record(instance, &metrics, number) }
}

/// A sub-channel that read `read` bytes in a second.
pub fn channel(number: u32, read: f64, interval: u64) -> Record {
    let (die, channel, half) = (number / 8, number % 8 / 2, number % 2);
    let page = 0x21000 + 0x2000 * channel + 0x80 * half + 0x4000_0000 * die;
    let instance = Instance {
        scope: "channel".to_owned(),
        pmu: Some(format!("ali_drw_{page:x}")),
        node: Some(die),
        ..Instance::default()
    };
    let metrics = [
        ("read_bytes", read, "bytes"),
        ("write_bytes", read / 2.0, "bytes"),
        ("cycles", 550e6, "cycles"),
        ("read_bytes_per_s", read, "bytes/s"),
        ("write_bytes_per_s", read / 2.0, "bytes/s"),
        ("total_bytes_per_s", read * 1.5, "bytes/s"),
        ("peak_bytes_per_s", 17.6e9, "bytes/s"),
        ("peak_share", read * 1.5 / 176e6, "%"),
        ("cycles_per_s", 550e6, "cycles/s"),
    ];
    record(instance, &metrics, interval)
}

/// An interval of 18 ports and 16 sub-channels, with a sum that is not to be counted again.
pub fn interval(number: u64) -> Vec<Record> {
    let ports = (1..=18).map(|device| port(device, 3e9 + number as f64, number));
    let channels = (0..16).map(|channel_number| channel(channel_number, 64e6, number));
    let total = Instance { scope: "total".to_owned(), parts: Some(16), ..Instance::default() };
    let total = record(total, &[("read_bytes", 16.0 * 64e6, "bytes")], number);
    ports.chain(channels).chain([total]).collect()
}

/// The first record of a run.
pub fn beginning() -> Record {
    Record {
        schema: SCHEMA,
        run: "00000000000000c1".to_owned(),
        test: "environment".to_owned(),
        plan: Some(Plan::Stat(StatPlan { interval_ns: Some(SECOND), ..StatPlan::default() })),
        warnings: vec![Warning { code: "not-counted".to_owned(), text: "x".to_owned(), hint: "y".to_owned() }],
        ..Record::default()
    }
}

/// A function without a counter, with errors.
pub fn device() -> Device {
    let link = Link {
        speed_gts: 8.0,
        width: 2,
        max_speed_gts: 16.0,
        max_width: 4,
        mps_bytes: None,
        mrrs_bytes: None,
        is_nominal: false,
    };
    Device {
        bdf: "0000:02:00.0".parse().unwrap(),
        inode: None,
        name: "A \"disk\"".to_owned(),
        class: "Non-Volatile memory controller".to_owned(),
        driver: Some("nvme".to_owned()),
        devices: vec!["nvme0n1".to_owned()],
        node: Some(0),
        path: vec!["0000:00:02.0".parse().unwrap()],
        link,
        is_downtrained: Some(true),
        errors: Some(DeviceErrors { correctable: [("BadTLP".to_owned(), 7)].into(), ..DeviceErrors::default() }),
        watched: Some(WatchedLink {
            causes: [("reliability", 3), ("software", 2)].into(),
            lost_bytes: 5e9,
            changed_s: Some(1_700_000_000),
            last: "16 GT/s x4 -> 8 GT/s x4 (reliability)".to_owned(),
            worst: "reliability".to_owned(),
        }),
    }
}

/// A state with `intervals` readings.
pub fn state(intervals: u64) -> Arc<State> {
    let setup = Setup { host: "lab".to_owned(), label: None, interval: None };
    let state = State::new(setup);
    state.put_all(&[beginning()]);
    (0..intervals).for_each(|number| state.put_all(&interval(number)));
    state.set_devices(vec![device()]);
    Arc::new(state)
}

/// What the server says for its log, as a failing test shows it.
pub fn note(text: &str) {
    eprintln!("the server: {text}");
}

/// A server on a free port of the loopback.
pub fn serve(state: Arc<State>, config: Config) -> Server {
    Server::start(Options { listen: "127.0.0.1:0".parse().unwrap(), config, note }, state).unwrap()
}

/// What a server answered.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn parse(bytes: &[u8]) -> Answer {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }
}

/// Sends bytes and reads to the end of the connection.
pub fn talk(address: SocketAddr, request: &str) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    Answer::parse(&bytes)
}

/// A request with more headers, each ended by a line break.
pub fn request(address: SocketAddr, method: &str, path: &str, headers: &str) -> Answer {
    let host =
        if headers.to_ascii_lowercase().contains("host:") { String::new() } else { format!("Host: {address}\r\n") };
    talk(address, &format!("{method} {path} HTTP/1.1\r\n{host}{headers}Connection: close\r\n\r\n"))
}

pub fn get(address: SocketAddr, path: &str) -> Answer {
    request(address, "GET", path, "")
}
