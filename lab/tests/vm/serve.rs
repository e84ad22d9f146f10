//! `pciescope serve` under Debian's own Prometheus: the guest counts what a device's ledger has, the server in it is scraped
//! every second over TLS with a token, and what Prometheus then says is the ledger's count, to the byte.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::say;
use crate::support::counters::{Counters, Truth};
use crate::support::program;
use pciescope_lab::vm::{Arch, Attachment, GuestDevice, Kernel, Root};
use serde_json::Value;

/// A root port of the seed's machine; the network card below it carries the scrapes.
const PORT: &str = "0000:00:02.0";
/// One that goes and comes back, and its PMU.
const VICTIM: &str = "0000:80:03.0";
const VICTIM_PMU: &str = "dwc_rootport_8018";
/// One that is named too and goes meanwhile, and its PMU.
const ABSENT: &str = "0000:30:01.0";
const ABSENT_PMU: &str = "dwc_rootport_3008";
const TOKEN: &str = "a token of this test alone";

/// Prometheus on the host; ended with the test.
struct Prometheus {
    child: Child,
    port: u16,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    /// Starts the program of the lab's root folder.
    fn start(folder: &Path, config: &str) -> Prometheus {
        let file = folder.join("prometheus.yml");
        fs::write(&file, config).unwrap();
        let port = free_port();
        let root = Arch::chosen().and_then(Root::find).unwrap_or_else(|err| panic!("the lab failed: {err}"));
        let log = fs::File::create(folder.join("prometheus.log")).unwrap();
        let prometheus = root.command("usr/bin/prometheus");
        // It ends with this test, also where the test is killed.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(prometheus.get_program())
            .args(prometheus.get_args())
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|err| panic!("the lab failed: prometheus: {err}"));
        Prometheus { child, port }
    }

    /// A path of its API; `None` while it does not answer.
    fn get(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
        // By 1.0 the answer is one piece and ends with the connection.
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()
    }

    /// What an expression comes to now: labels and value of each series.
    fn query(&self, expression: &str) -> Vec<(Value, f64)> {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let Some(answer) = self.get(&format!("/api/v1/query?query={encoded}")) else { return Vec::new() };
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        let result = answer["data"]["result"].as_array().cloned().unwrap_or_default();
        let value = |series: &Value| series["value"][1].as_str().unwrap().parse().unwrap();
        result.iter().map(|series| (series["metric"].clone(), value(series))).collect()
    }

    /// The value of the only series.
    fn value(&self, expression: &str) -> Option<f64> {
        match &self.query(expression)[..] {
            [(_, value)] => Some(*value),
            [] => None,
            more => panic!("{expression}: {more:?}"),
        }
    }
}

/// A port that is free now.
fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// The bytes that a port received, by the ledger.
fn received(truth: &Truth, port: &str) -> f64 {
    16.0 * truth.0["ports"][port]["tba"]["reports"]["0x21"]["counted"].as_u64().unwrap_or(0) as f64
}

/// A port that is taken away keeps its sum, and goes on from there when it is back: after a while, and at once, so that no look
/// falls between.
fn a_port_comes_back(rig: &Counters, prometheus: &Prometheus) {
    let sum = format!("pciescope_port_receive_bytes_total{{port=\"{VICTIM}\"}}");
    let up = format!("pciescope_pmu_up{{pmu=\"{VICTIM_PMU}\"}}");
    let is_counted = || rig.truth().0["ports"][VICTIM]["tba"]["running"] == true;
    let value = |what: &str| rig.wait_for(what, || prometheus.value(&sum));
    let wait_for_up = |wanted: f64| {
        rig.wait_for(&format!("{up} is {wanted}"), || prometheus.value(&up).filter(|up| *up == wanted));
    };
    let counts = |what: &str| {
        let (start, before) = (rig.truth(), value(what));
        rig.tell(&format!("port {VICTIM} traffic rx 16000016"));
        let gained = received(&rig.truth(), VICTIM) - received(&start, VICTIM);
        assert_eq!(gained, 16_000_016.0, "{what}: the board counted it");
        rig.wait_for(what, || prometheus.value(&sum).filter(|now| now - before >= gained));
        assert_eq!(value(what) - before, gained, "{what}");
    };
    rig.wait_for("the port counts", || is_counted().then_some(()));
    wait_for_up(1.0);
    counts("the port's sum before it goes");
    let kept = value("the sum that is kept");
    rig.must(&format!("echo 1 >/sys/bus/pci/devices/{VICTIM}/remove"));
    wait_for_up(0.0);
    assert_eq!(value("the sum of a port that is gone"), kept);
    rig.must("echo 1 >/sys/bus/pci/rescan");
    wait_for_up(1.0);
    assert_eq!(value("the sum of a port that is back"), kept);
    rig.wait_for("the port that is back counts", || is_counted().then_some(()));
    counts("the port's sum after it is back");
    // Gone and back at once: the board's counter may run on meanwhile, so that only what arrives tells that it was opened anew.
    // Another port that was named is not there, which is no reason to stop counting those that are.
    let kept = value("the sum before a moment's absence");
    rig.must(&format!(
        "echo 1 >/sys/bus/pci/devices/{ABSENT}/remove
         echo 1 >/sys/bus/pci/devices/{VICTIM}/remove; echo 1 >/sys/class/pci_bus/0000:80/rescan"
    ));
    rig.wait_for("the port that was away for a moment counts", || {
        rig.tell(&format!("port {VICTIM} traffic rx 1600"));
        std::thread::sleep(Duration::from_secs(1));
        prometheus.value(&sum).filter(|now| *now > kept)
    });
    // What was told last has been read, every half second, and then scraped.
    let told = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    rig.wait_for("a scrape of all that was told", || {
        prometheus.value(&format!("timestamp({sum})")).filter(|scraped| scraped - told > 4.0)
    });
    let warnings = || prometheus.value("pciescope_reading_warnings{code=\"absent\"}");
    let absent_up = || prometheus.value(&format!("pciescope_pmu_up{{pmu=\"{ABSENT_PMU}\"}}"));
    // When that is noticed, all counters are opened again, and the board stops for a moment.
    rig.wait_for("a port that is not there is said", || warnings().filter(|n| *n == 1.0));
    counts("the port's sum after a moment");
    rig.wait_for("its PMU is down", || absent_up().filter(|up| *up == 0.0));
    rig.must("echo 1 >/sys/class/pci_bus/0000:30/rescan");
    rig.wait_for("the port that was absent counts", || absent_up().filter(|up| *up == 1.0));
    rig.wait_for("nothing is absent any more", || warnings().is_none().then_some(()));
}

pub fn prometheus_says_what_the_ledger_says() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let made = rcgen::generate_simple_self_signed(["lab.example".to_owned()]).unwrap();
    fs::write(at("cert.pem"), made.cert.pem()).unwrap();
    fs::write(at("key.pem"), made.key_pair.serialize_pem()).unwrap();
    fs::write(at("token"), TOKEN).unwrap();
    let web = "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\nbearer_tokens: [{file: token}]\n";
    fs::write(at("web.yml"), web).unwrap();
    let secrets = ["web.yml", "cert.pem", "key.pem", "token"];
    for name in secrets {
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    let forwarded = free_port();
    let rig = Counters::boot(Kernel::V6_12, "rasdes_pmu", |builder| {
        let card = GuestDevice::Other("e1000e,romfile=,netdev=web".to_owned());
        let network = format!("user,id=web,restrict=on,hostfwd=tcp:127.0.0.1:{forwarded}-:9713");
        let builder = builder.module("drw_pmu").module("e1000e").program(program());
        let builder = builder.qemu_args(["-netdev".to_owned(), network]).device(
            "card",
            card,
            Attachment::Port(PORT.parse().unwrap()),
        );
        secrets.iter().fold(builder, |builder, name| builder.file(at(name), format!("/etc/pciescope/{name}")))
    });
    rig.must("ip addr add 10.0.2.15/24 dev eth0 && ip link set eth0 up");
    let serve = format!(
        "exec pciescope serve --listen 0.0.0.0:9713 --config /etc/pciescope/web.yml -I 500 --source hardware --metric rx_bytes {PORT} {VICTIM} {ABSENT}"
    );
    let running = rig.vm.start(&serve);
    let is_running = || rig.truth().0["ports"][PORT]["tba"]["running"] == true;
    rig.wait_for("pciescope serve counts", || is_running().then_some(()));

    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/prometheus/pciescope.rules.yml");
    let config = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\nrule_files: [{}]\nscrape_configs:\n\
         - job_name: pciescope\n  scheme: https\n  tls_config: {{ca_file: {}, server_name: lab.example}}\n\
         \x20 authorization: {{credentials: {TOKEN}}}\n  static_configs: [{{targets: ['127.0.0.1:{forwarded}']}}]\n",
        rules.canonicalize().unwrap().display(),
        at("cert.pem").display()
    );
    let prometheus = Prometheus::start(folder.path(), &config);
    let log = || fs::read_to_string(at("prometheus.log")).unwrap_or_default();
    let sum = format!("pciescope_port_receive_bytes_total{{port=\"{PORT}\"}}");
    say!("         Prometheus so far: {}", log());
    rig.wait_for("Prometheus scrapes", || {
        prometheus.value("up{job=\"pciescope\"}").filter(|up| *up == 1.0)?;
        prometheus.value("pciescope_reading_success").filter(|success| *success == 1.0)?;
        prometheus.value(&sum)
    });

    let start = rig.truth();
    // A scrape that came late leaves a gap: the next one closes it.
    let value = |what: &str| rig.wait_for(what, || prometheus.value(&sum));
    let before = value("a sum before the traffic");
    for _ in 0..20 {
        rig.tell(&format!("port {PORT} traffic rx 123456784"));
        std::thread::sleep(Duration::from_millis(300));
    }
    let gained = received(&rig.truth(), PORT) - received(&start, PORT);
    assert!(gained >= 20.0 * 123_456_784.0, "the ledger has {gained}");
    rig.wait_for("Prometheus has all of it", || prometheus.value(&sum).filter(|now| now - before >= gained));
    // To the byte, and it stays so.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(value("a sum after it") - before, gained);
    // Prometheus' own way to say it extrapolates to the ends of its window.
    let increase = prometheus.value(&format!("increase({sum}[5m])")).unwrap();
    say!("         ledger {gained}, increase() {increase}");
    assert!((increase / gained - 1.0).abs() < 0.2, "increase() says {increase}, the ledger {gained}");

    // Labels, types, and rules that are evaluated.
    let card = rig.vm.address("card");
    value("the series with its labels");
    let (labels, _) = &prometheus.query(&format!("last_over_time({sum}[5m])"))[0];
    assert_eq!(
        (labels["device"].as_str(), labels["driver"].as_str()),
        (Some(card.as_str()), Some("e1000e")),
        "{labels}"
    );
    let about = prometheus.get("/api/v1/metadata?metric=pciescope_port_receive_bytes_total").unwrap();
    let alone = prometheus.get("/api/v1/metadata?metric=pciescope_port_receive_bytes").unwrap();
    let about = [about, alone].into_iter().find_map(|all| Some(all["data"].as_object()?.values().next()?[0].clone()));
    let about = about.expect("Prometheus keeps what the family is");
    assert_eq!((about["type"].as_str(), about["unit"].as_str()), (Some("counter"), Some("bytes")), "{about}");
    assert_eq!(about["help"], "Payload of TLPs from device to host.");
    let groups = prometheus.get("/api/v1/rules").unwrap();
    for rule in groups["data"]["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap())
    {
        assert_ne!(rule["health"], "err", "{rule}");
    }

    a_port_comes_back(&rig, &prometheus);

    // The end is clean, and seen.
    assert_eq!(running.signal("TERM").map_err(|err| err.to_string()), Ok(()));
    let output = running.wait().unwrap();
    assert_eq!(output.status, 143, "{}", output.stderr);
    rig.wait_for("Prometheus sees that it went", || prometheus.value("up{job=\"pciescope\"}").filter(|up| *up == 0.0));
    drop(prometheus);
    rig.finish(&["rasdes_pmu", "drw_pmu"]);
}
