//! `pciescope serve` beside six thousand connections of strangers from one address: clients with the right password get
//! every answer.

use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::common::{PROGRAM, folder};

/// What strangers open, one after the other. Each connection lasts until the server ends it.
const CONNECTIONS: usize = 6_000;
/// The time in which they do so, where the machine keeps up.
const FLOOD: Duration = Duration::from_secs(6);
/// The last byte of the strangers' address, which good clients have too.
const STRANGERS: u8 = 1;
/// The password `love`, by bcrypt of the cost that docs/serve.md names.
const HASH: &str = "$2b$10$N9qo8uLOickgx2ZMRZoMyeYvMrgpkW028Wu9PwIfkzvKbLmmfJPrO";
/// The connections that the server has of one address at most.
const SLOTS: usize = 40;
/// The server's descriptors at most.
const DESCRIPTORS: usize = 64;
/// The pause between two scrapes of a good client, and how many it makes at least.
const EVERY: Duration = Duration::from_millis(250);
const SCRAPES: usize = 20;
/// Prometheus waits this long for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The server, ended with the test.
struct Exporter {
    child: Child,
    address: SocketAddr,
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process holds of a machine.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    rss_kib: u64,
    descriptors: usize,
    threads: usize,
}

impl Held {
    fn most(self, other: Held) -> Held {
        Held {
            rss_kib: self.rss_kib.max(other.rss_kib),
            descriptors: self.descriptors.max(other.descriptors),
            threads: self.threads.max(other.threads),
        }
    }
}

impl Exporter {
    fn start(config: &str) -> Exporter {
        let mut child = Command::new(PROGRAM)
            .args(["serve", "--backend", "fake", "-I", "500ms", "--listen", "127.0.0.1:0", "--config", config])
            // It is killed, and leaves its synthetic machine behind.
            .env("TMPDIR", std::path::Path::new(config).parent().unwrap())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let said = log.next().unwrap();
        let address = said.split("https://").nth(1).and_then(|rest| rest.split('/').next()?.parse().ok());
        let address = address.unwrap_or_else(|| panic!("no address: {said}"));
        // What it says later is for whoever reads a failure.
        thread::spawn(move || log.for_each(|line| eprintln!("the server: {line}")));
        Exporter { child, address }
    }

    fn held(&self) -> Held {
        let of = |name: &str| format!("/proc/{}/{name}", self.child.id());
        let status = std::fs::read_to_string(of("status")).unwrap();
        let value = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        Held {
            rss_kib: value("VmRSS:"),
            descriptors: std::fs::read_dir(of("fd")).unwrap().count(),
            threads: value("Threads:") as usize,
        }
    }
}

/// Who connects: to where, and what it trusts.
#[derive(Clone)]
struct Clients {
    address: SocketAddr,
    tls: TlsConnector,
}

impl Clients {
    async fn connect(&self, from: Ipv4Addr) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((from, 0)))?;
        socket.connect(self.address).await
    }

    async fn secured(&self, from: Ipv4Addr) -> io::Result<TlsStream<TcpStream>> {
        self.tls.connect("localhost".try_into().unwrap(), self.connect(from).await?).await
    }
}

/// A header with a user's password.
fn basic(user: &str, password: &str) -> String {
    format!("Authorization: Basic {}\r\n", STANDARD.encode(format!("{user}:{password}")))
}

/// Asks for the metrics on a connection that lasts: status and body.
async fn scrape(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), header: &str) -> io::Result<(u16, String)> {
    let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\n{header}\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let broken = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let mut bytes = Vec::new();
    let (head, begin) = loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(broken());
        }
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break (String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase(), end + 4);
        }
    };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let end = begin + length.unwrap_or(0);
    while bytes.len() < end {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(broken());
        }
    }
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(broken)?;
    Ok((status, String::from_utf8_lossy(&bytes[begin..end]).into_owned()))
}

/// A stranger's connection, until the server ends it: silent, slow in two ways, or with wrong passwords.
async fn stranger(clients: Clients, number: usize, ended: Arc<AtomicUsize>) {
    let from = Ipv4Addr::new(127, 0, 0, STRANGERS);
    // What a stranger gets is ignored.
    let _: io::Result<()> = async {
        match number % 4 {
            0 => drop(clients.connect(from).await?.read(&mut [0; 1]).await?),
            1 => slowly(&mut clients.connect(from).await?, b"\x16\x03\x01\x02\x00\x01").await?,
            2 => slowly(&mut clients.secured(from).await?, b"GET /metrics HTTP/1.1\r\nX: ").await?,
            _ => {
                let mut stream = clients.secured(from).await?;
                for guess in 0.. {
                    let (status, _) = scrape(&mut stream, &basic("prometheus", &format!("{number} {guess}"))).await?;
                    assert_eq!(status, 401);
                }
            }
        }
        Ok(())
    }
    .await;
    ended.fetch_add(1, Ordering::Relaxed);
}

/// Sends the beginning of what a server expects, and then a byte now and then.
async fn slowly(stream: &mut (impl AsyncWrite + Unpin), begin: &[u8]) -> io::Result<()> {
    for byte in begin.iter().chain(std::iter::repeat(&b'x')) {
        stream.write_all(&[*byte]).await?;
        stream.flush().await?;
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// A client with the right password.
#[derive(Clone, Copy)]
struct Good {
    from: Ipv4Addr,
    user: &'static str,
    /// Whether its connection lasts from one scrape to the next.
    lasts: bool,
    /// Whether it asks again at once where it gets no answer.
    insists: bool,
}

/// How long it waited for its answers, and why it got none.
#[derive(Debug, Default)]
struct Answers {
    waited: Vec<Duration>,
    failures: Vec<String>,
}

impl Good {
    /// Asks until it is told to stop, and [`SCRAPES`] times at least.
    fn start(self, clients: Clients, stop: &Arc<AtomicBool>) -> JoinHandle<Answers> {
        let stop = Arc::clone(stop);
        thread::spawn(move || {
            runtime().block_on(async {
                let (mut answers, mut stream) = (Answers::default(), None);
                while !stop.load(Ordering::Relaxed) || answers.waited.len() < SCRAPES {
                    let begin = Instant::now();
                    while let Err(error) = self.ask(&clients, &mut stream).await {
                        answers.failures.push(error.to_string());
                        if !self.insists || begin.elapsed() > PATIENCE {
                            break;
                        }
                    }
                    answers.waited.push(begin.elapsed());
                    sleep(EVERY.saturating_sub(begin.elapsed())).await;
                }
                answers
            })
        })
    }

    /// One scrape, on the last one's connection if that lasts.
    async fn ask(self, clients: &Clients, last: &mut Option<TlsStream<TcpStream>>) -> io::Result<()> {
        let asked = timeout(PATIENCE, async {
            let mut stream = match last.take() {
                Some(stream) => stream,
                None => clients.secured(self.from).await?,
            };
            let (status, body) = scrape(&mut stream, &basic(self.user, "love")).await?;
            let has_counts = body.contains("\npciescope_port_receive_bytes_total");
            *last = Some(stream).filter(|_| self.lasts);
            if status == 200 && has_counts { Ok(()) } else { Err(io::Error::other(format!("status {status}: {body}"))) }
        });
        asked.await?
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A certificate and a configuration with users, and what trusts it.
fn configured() -> (String, TlsConnector) {
    let at = folder("serve-flood");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(at.join(name), text).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(at.join(name), private).unwrap();
    };
    write("cert.pem", &made.cert.pem());
    write("key.pem", &made.key_pair.serialize_pem());
    write(
        "web.yml",
        &format!(
            "tls_server_config: {{cert_file: cert.pem, key_file: key.pem}}\nbasic_auth_users:\n  prometheus: {HASH}\n  late: {HASH}\n"
        ),
    );
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let client = builder.with_root_certificates(roots).with_no_client_auth();
    (at.join("web.yml").display().to_string(), TlsConnector::from(Arc::new(client)))
}

#[test]
fn six_thousand_connections_of_an_address_keep_no_good_client_out() {
    let (config, tls) = configured();
    let exporter = Exporter::start(&config);
    let clients = Clients { address: exporter.address, tls };
    let good = |last: u8, user, lasts, insists| Good { from: Ipv4Addr::new(127, 0, 0, last), user, lasts, insists };
    let lasting = good(STRANGERS, "prometheus", true, false);
    let until = Instant::now() + PATIENCE;
    while let Err(error) = runtime().block_on(lasting.ask(&clients, &mut None)) {
        assert!(Instant::now() < until, "before the strangers come: {error}");
        thread::sleep(Duration::from_millis(100));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let mut asking = vec![("on a connection that lasts", lasting, lasting.start(clients.clone(), &stop))];
    let mut begin_asking = |who, good: Good| asking.push((who, good, good.start(clients.clone(), &stop)));
    begin_asking("on a new connection each time, from another address", good(200, "prometheus", false, false));
    begin_asking("on a new connection each time", good(STRANGERS, "prometheus", false, true));
    thread::sleep(4 * EVERY);
    let before = exporter.held();
    let mut most = before;

    let ended = Arc::new(AtomicUsize::new(0));
    let begin = Instant::now();
    runtime().block_on(async {
        for number in 0..CONNECTIONS {
            tokio::spawn(stranger(clients.clone(), number, Arc::clone(&ended)));
            if number % 10 == 0 {
                most = most.most(exporter.held());
                let due = FLOOD * number as u32 / CONNECTIONS as u32;
                sleep(due.saturating_sub(begin.elapsed())).await;
            }
            if number == CONNECTIONS / 3 {
                begin_asking("for the first time meanwhile", good(201, "late", false, false));
            }
        }
        // The last ones hold their slots until something else comes, or until they took too long.
        while ended.load(Ordering::Relaxed) < CONNECTIONS - SLOTS && begin.elapsed() < 3 * FLOOD {
            sleep(Duration::from_millis(20)).await;
        }
    });
    let took = begin.elapsed();
    stop.store(true, Ordering::Relaxed);
    let asked: Vec<_> = asking.into_iter().map(|(who, good, thread)| (who, good, thread.join().unwrap())).collect();
    let after = exporter.held();
    eprintln!(
        "{CONNECTIONS} connections in {took:?}; the server before: {before:?}, at most {most:?}, after {after:?}"
    );
    for (who, good, Answers { waited, failures }) in &asked {
        let slowest = waited.iter().max().unwrap();
        eprintln!("{who}: {} answers, the slowest after {slowest:?}; {} tries failed", waited.len(), failures.len());
        assert!(good.insists || failures.is_empty(), "{who}: {failures:?}");
        assert!(*slowest < PATIENCE, "{who}: {waited:?}");
    }
    // Connections that last though nobody wants them would have descriptors.
    assert!(most.descriptors <= DESCRIPTORS && after.descriptors <= DESCRIPTORS, "{most:?}");
    assert!(most.threads <= before.threads + 4 && most.rss_kib <= before.rss_kib + (16 << 10), "{most:?}");
}
