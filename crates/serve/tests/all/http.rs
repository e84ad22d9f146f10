//! The server as clients and attackers see it: what it answers, to whom, and what it refuses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{self, Answer, get, interval, note, request, serve, state};
use pciescope_serve::config::{self, Config};
use pciescope_serve::server::Error;
use pciescope_serve::{Options, Server};

#[test]
fn nothing_but_reading_is_possible() {
    let server = serve(state(2), Config::default());
    let known = ["/", "/page.css", "/metrics", "/api/state", "/api/records"];
    for path in known {
        assert_eq!(get(server.address(), path).status, 200, "{path}");
        let head = request(server.address(), "HEAD", path, "");
        assert_eq!((head.status, head.body.as_str()), (200, ""), "{path}");
        assert!(!head.head.contains("content-length: 0"), "{path}: {}", head.head);
    }
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "X"] {
        for path in known.into_iter().chain(["/api/events"]) {
            let answer = request(server.address(), method, path, "Content-Length: 0\r\n");
            assert_eq!(answer.status, 405, "{method} {path}");
            assert!(answer.head.contains("allow: get, head"), "{method} {path}");
        }
    }
    for path in ["/api", "/api/", "/api/bind", "/metrics/", "//", "/../etc/passwd", "/%2e%2e/x", "/page.css/..", "/sys"]
    {
        for method in ["GET", "POST"] {
            assert_eq!(request(server.address(), method, path, "").status, 404, "{method} {path}");
        }
    }
    assert_eq!(get(server.address(), "/api/records?format=xml").status, 400);
}

#[test]
fn records_and_state_are_those_of_the_last_interval() {
    let state = state(400);
    let server = serve(Arc::clone(&state), Config::default());
    let records: Vec<pciescope_core::Record> =
        serde_json::from_str(&get(server.address(), "/api/records").body).unwrap();
    assert_eq!(records.len(), interval(0).len());
    assert_eq!(records[0].metrics["rx_bytes"].value, 3e9 + 399.0);
    let lines = get(server.address(), "/api/records?format=jsonl").body;
    assert_eq!(lines.lines().count(), records.len());
    lines.lines().for_each(|line| drop(serde_json::from_str::<pciescope_core::Record>(line).unwrap()));
    let feed: serde_json::Value = serde_json::from_str(&get(server.address(), "/api/state").body).unwrap();
    let count = |name: &str| feed[name].as_array().unwrap().len();
    assert_eq!((count("ports"), count("channels"), count("readings"), count("devices")), (18, 16, 300, 1));
    assert_eq!(feed["status"]["state"], "counting");
    assert_eq!(feed["ports"][1]["id"], "0000:00:02.0");
    assert_eq!(feed["channels"][9]["place"]["die"], 1);
    let last = &feed["readings"][299];
    assert_eq!(last["ports"]["0000:00:02.0"]["rx"], 3e9 + 399.0);
    let l0 = last["ports"]["0000:00:02.0"]["states"]["l0"].as_f64().unwrap();
    assert!((l0 - 0.7).abs() < 1e-9, "{l0}");
    assert_eq!(last["ports"]["0000:00:02.0"]["errors"]["lcrc_error"], 3.0);
    assert!(last["ports"]["0000:00:02.0"]["errors"]["bad_tlp"].is_null(), "zeros are left out");
}

#[test]
fn every_answer_tells_browsers_what_they_may_not_do() {
    let server = serve(state(1), Config::default());
    for path in ["/", "/metrics", "/nothing"] {
        let head = get(server.address(), path).head;
        for wanted in ["content-security-policy: default-src 'none'", "nosniff", "no-referrer", "x-frame-options: deny"]
        {
            assert!(head.contains(wanted), "{path}: {wanted}: {head}");
        }
        assert!(!head.contains("access-control-allow"), "{path}: {head}");
    }
}

#[test]
fn a_page_that_took_this_address_by_its_name_gets_nothing() {
    let server = serve(state(1), Config { hosts: vec!["lab.example".to_owned()], ..Config::default() });
    let port = server.address().port();
    let of = |host: &str| request(server.address(), "GET", "/metrics", &format!("Host: {host}\r\n")).status;
    for host in ["localhost", "LOCALHOST", "127.0.0.1", "[::1]", "127.0.0.2", "192.0.2.1", "lab.example", "Lab.Example"]
    {
        assert_eq!((of(host), of(&format!("{host}:{port}"))), (200, 200), "{host}");
    }
    for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "lab.example.evil", "::1"] {
        assert_eq!(of(host), 421, "{host:?}");
    }
    let twice = "Host: localhost\r\nHost: evil.example\r\n";
    assert_ne!(request(server.address(), "GET", "/metrics", twice).status, 200);
    assert_ne!(support::talk(server.address(), "GET /metrics HTTP/1.0\r\n\r\n").status, 200, "no name at all");
}

#[test]
fn an_open_door_to_the_network_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (tls, _) = certified(folder.path(), "");
    let users = "basic_auth_users: {ada: $2b$04$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy}\n";
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        for text in [String::new(), users.to_owned(), tls.clone()] {
            let options =
                Options { listen: listen.parse().unwrap(), config: load(folder.path(), &text).unwrap(), note };
            let refused = Server::start(options, state(0)).unwrap_err();
            assert!(matches!(refused, Error::Open { .. }) && refused.hint().is_some(), "{listen} {text}: {refused}");
        }
    }
    let both = load(folder.path(), &format!("{tls}{users}")).unwrap();
    Server::start(Options { listen: "0.0.0.0:0".parse().unwrap(), config: both, note }, state(0)).unwrap();
    // Written as IPv6 it is still the loopback address.
    let mapped = Options { listen: "[::ffff:127.0.0.1]:0".parse().unwrap(), config: Config::default(), note };
    assert!(!matches!(Server::start(mapped, state(0)), Err(Error::Open { .. })));
}

/// Writes a configuration file and reads it.
fn load(folder: &Path, text: &str) -> Result<Config, config::Error> {
    let file = folder.join("web.yml");
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    Config::load(&file)
}

/// A certificate of its own for `localhost`: the lines of the configuration, and a client that trusts it.
fn certified(folder: &Path, more: &str) -> (String, Arc<rustls::ClientConfig>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), made.key_pair.serialize_pem()).unwrap();
    std::fs::set_permissions(folder.join("key.pem"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let client = builder.with_root_certificates(roots).with_no_client_auth();
    (format!("tls_server_config: {{cert_file: cert.pem, key_file: key.pem{more}}}\n"), Arc::new(client))
}

/// A request over TLS.
fn get_tls(server: &Server, client: &Arc<rustls::ClientConfig>, headers: &str) -> Answer {
    let name = "localhost".try_into().unwrap();
    let connection = rustls::ClientConnection::new(Arc::clone(client), name).unwrap();
    let socket = TcpStream::connect(server.address()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut stream = rustls::StreamOwned::new(connection, socket);
    let sent = write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\n\r\n");
    let mut bytes = Vec::new();
    let _ = sent.and_then(|()| stream.read_to_end(&mut bytes));
    Answer::parse(&bytes)
}

#[test]
fn tls_and_the_right_word_open_and_nothing_else_does() {
    let folder = tempfile::tempdir().unwrap();
    let (tls, client) = certified(folder.path(), ", min_version: TLS13");
    let hash = bcrypt::hash("love:lace", 4).unwrap();
    let token = "0123456789abcdef0123";
    std::fs::write(folder.path().join("token"), format!("{token}\n")).unwrap();
    let text = format!("{tls}basic_auth_users:\n  ada: {hash}\nbearer_tokens:\n- file: token\n");
    let config = load(folder.path(), &text).unwrap();
    // The token's file was made readable for all.
    assert_eq!(config.warnings.len(), 1, "{:?}", config.warnings);
    let server = serve(state(1), config);
    // ada:love:lace, ada:lace, eve:love:lace
    let header = |what: &str| format!("Authorization: {what}\r\n");
    for right in ["Basic YWRhOmxvdmU6bGFjZQ==".to_owned(), format!("Bearer {token}")] {
        for _ in 0..2 {
            let answer = get_tls(&server, &client, &header(&right));
            assert_eq!(answer.status, 200, "{right}");
            assert!(answer.body.contains("pciescope_port_receive_bytes_total"));
        }
    }
    for wrong in ["Basic YWRhOmxhY2U=", "Basic ZXZlOmxvdmU6bGFjZQ==", "Bearer 0123456789abcdef0124", "Bearer ", "Basic"]
    {
        let answer = get_tls(&server, &client, &header(wrong));
        assert_eq!(answer.status, 401, "{wrong}");
        assert!(answer.head.contains("www-authenticate: basic") && !answer.body.contains("pciescope_"), "{answer:?}");
    }
    assert_eq!(get_tls(&server, &client, "").status, 401);
    // Words in clear to a door of TLS.
    assert_ne!(get(server.address(), "/metrics").status, 200);
}

/// Asks until it is answered as wanted: files are looked at again once a second.
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < until, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Whether the files are in force, by the metric.
fn is_fresh(answer: &Answer) -> Option<bool> {
    let line = answer.body.lines().find_map(|line| line.strip_prefix("pciescope_web_config_last_reload_successful "));
    line.map(|value| value == "1")
}

#[test]
fn renewed_certificates_and_users_are_taken_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (tls, client) = certified(folder.path(), "");
    let users = |word: &str| format!("{tls}basic_auth_users: {{ada: '{}'}}\n", bcrypt::hash(word, 4).unwrap());
    let server = serve(state(1), load(folder.path(), &users("love")).unwrap());
    // ada:love, ada:lace
    let [love, lace] = ["YWRhOmxvdmU=", "YWRhOmxhY2U="].map(|word| format!("Authorization: Basic {word}\r\n"));
    assert_eq!(get_tls(&server, &client, &love).status, 200);
    // Key and certificate one after the other, as a program that renews them writes them: meanwhile they do not fit together.
    let elsewhere = tempfile::tempdir().unwrap();
    let (_, renewed) = certified(elsewhere.path(), "");
    let put = |name: &str| {
        std::fs::copy(elsewhere.path().join(name), folder.path().join(name)).unwrap();
    };
    put("key.pem");
    wait_for("the metric says that the files are not in force", || {
        is_fresh(&get_tls(&server, &client, &love)) == Some(false)
    });
    assert_eq!(get_tls(&server, &renewed, &love).status, 0, "who trusts the new certificate alone");
    put("cert.pem");
    wait_for("the new certificate", || is_fresh(&get_tls(&server, &renewed, &love)) == Some(true));
    assert_eq!(get_tls(&server, &client, &love).status, 0, "who knows the old one alone");
    // Another password.
    load(folder.path(), &users("lace")).unwrap();
    wait_for("the new password", || get_tls(&server, &renewed, &lace).status == 200);
    assert_eq!(get_tls(&server, &renewed, &love).status, 401, "the old password");
    // Nothing that opens the door: not a file that is empty for a moment, not one without users, not one without TLS.
    let whole = std::fs::read(folder.path().join("web.yml")).unwrap();
    for text in [String::new(), tls.clone(), users("lace").replace(&tls, "")] {
        load(folder.path(), &text).unwrap();
        wait_for("the metric says so", || is_fresh(&get_tls(&server, &renewed, &lace)) == Some(false));
        assert_eq!(get_tls(&server, &renewed, "").status, 401, "{text:?}");
        assert_ne!(get(server.address(), "/metrics").status, 200, "{text:?}");
        std::fs::write(folder.path().join("web.yml"), &whole).unwrap();
        wait_for("all is well again", || is_fresh(&get_tls(&server, &renewed, &lace)) == Some(true));
    }
    // What is no file any more is not waited for.
    std::fs::remove_file(folder.path().join("cert.pem")).unwrap();
    assert!(Command::new("mkfifo").arg(folder.path().join("cert.pem")).status().unwrap().success());
    wait_for("a pipe is no certificate", || is_fresh(&get_tls(&server, &renewed, &lace)) == Some(false));
    std::fs::remove_file(folder.path().join("cert.pem")).unwrap();
    put("cert.pem");
    wait_for("the certificate is back", || is_fresh(&get_tls(&server, &renewed, &lace)) == Some(true));
}

/// A connection that lasts.
struct Lasting(rustls::StreamOwned<rustls::ClientConnection, TcpStream>);

impl Lasting {
    fn open(server: &Server, client: &Arc<rustls::ClientConfig>) -> Lasting {
        let connection = rustls::ClientConnection::new(Arc::clone(client), "localhost".try_into().unwrap()).unwrap();
        let socket = TcpStream::connect(server.address()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Lasting(rustls::StreamOwned::new(connection, socket))
    }

    /// The status of an answer; `None` where the connection has ended.
    fn ask(&mut self) -> Option<u16> {
        self.0.write_all(b"GET /api/records HTTP/1.1\r\nHost: localhost\r\n\r\n").ok()?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut one = [0];
            self.0.read_exact(&mut one).ok()?;
            head.push(one[0]);
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        self.0.read_exact(&mut body).ok()?;
        Some(head.split(' ').nth(1).unwrap().parse().unwrap())
    }
}

#[test]
fn who_came_before_certificates_were_asked_for_has_to_come_again() {
    let folder = tempfile::tempdir().unwrap();
    let (tls, client) = certified(folder.path(), "");
    let users = format!("basic_auth_users: {{ada: '{}'}}\n", bcrypt::hash("love", 4).unwrap());
    let asking = |authorities: &str| {
        tls.replace('}', &format!(", client_auth_type: RequireAndVerifyClientCert, client_ca_file: {authorities}}}"))
    };
    let server = serve(state(1), load(folder.path(), &format!("{tls}{users}")).unwrap());
    let mut stranger = Lasting::open(&server, &client);
    assert_eq!(stranger.ask(), Some(401));
    assert_eq!(stranger.ask(), Some(401), "the connection lasts");
    // From now on a certificate is the key, and there is no other.
    load(folder.path(), &asking("cert.pem")).unwrap();
    let mut last = Some(401);
    wait_for("the stranger's connection is ended", || {
        last = stranger.ask().or(last);
        last != Some(401)
    });
    assert_eq!(last, Some(421), "it was made before");
    assert_eq!(stranger.ask(), None, "it is closed");
    assert_eq!(get_tls(&server, &client, "").status, 0, "a stranger's new connection");
    // The question is not taken away by a file, though there are users again.
    load(folder.path(), &format!("{tls}{users}")).unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(get_tls(&server, &client, "Authorization: Basic YWRhOmxvdmU=\r\n").status, 0);
}

#[test]
fn event_streams_end_when_who_may_read_changes() {
    let folder = tempfile::tempdir().unwrap();
    let state = state(1);
    let server = serve(Arc::clone(&state), load(folder.path(), "hosts: [one.example]\n").unwrap());
    let mut lines = events(&server);
    assert!(lines.any(|line| line == "retry: 2000"));
    load(folder.path(), "hosts: [two.example]\n").unwrap();
    let begin = Instant::now();
    let limit = Duration::from_secs(60);
    let goes_on = Arc::new(AtomicBool::new(true));
    let feeder = std::thread::spawn({
        let goes_on = Arc::clone(&goes_on);
        move || {
            while goes_on.load(Ordering::Relaxed) {
                state.put_all(&interval(1));
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    });
    let last = lines.take_while(|_| begin.elapsed() < limit).last();
    goes_on.store(false, Ordering::Relaxed);
    feeder.join().unwrap();
    assert!(begin.elapsed() < limit, "it goes on: {last:?}");
    assert!(events(&server).any(|line| line == "retry: 2000"), "who comes back is judged anew");
}

#[test]
fn a_mistake_in_the_file_is_named_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let (tls, _) = certified(folder.path(), "");
    assert!(load(folder.path(), "").unwrap().access.is_open());
    assert!(load(folder.path(), &tls).unwrap().warnings.is_empty());
    let hash = "$2b$04$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy";
    for (text, wanted) in [
        ("basic_auth_user:\n  ada: x\n".to_owned(), "line 1: unknown field"),
        ("hosts: []\n\nbearer_token: []\n".to_owned(), "line 3: unknown field"),
        ("hosts: ['lab.example:9713']\n".to_owned(), "no name: leave out scheme and port"),
        ("bearer_tokens: [{shake: x}]\n".to_owned(), "line 1: "),
        ("hosts: []\ntls_server_config:\n  cert_file: a\n  key_file: b\n  cipher: c\n".to_owned(), "line 5: "),
        ("hosts: [\n".to_owned(), "line"),
        // The parser takes ten to twenty seconds to find out that these are wrong.
        (format!("hosts: {}", "[".repeat(40_000)), "line 1: lists or mappings lie more than 64 deep"),
        (format!("hosts:\n  {}", "{a: ".repeat(40_000)), "line 2: lists or mappings lie more than 64 deep"),
        (format!("hosts:\n{}x", "- ".repeat(40_000)), "line 2: lists or mappings lie more than 64 deep"),
        ("basic_auth_users: {ada: love}\n".to_owned(), "not one of bcrypt"),
        (format!("basic_auth_users: {{ada: '{}'}}\n", hash.replace("$04$", "$30$")), "costs more"),
        (format!("basic_auth_users: {{'a:b': '{hash}'}}\n"), "no colon"),
        ("bearer_tokens: [{sha256: abc}]\n".to_owned(), "64 hexadecimal"),
        ("bearer_tokens: [{}]\n".to_owned(), "either sha256 or file"),
        ("bearer_tokens: [{file: none}]\n".to_owned(), "cannot read"),
        ("tls_server_config: {cert_file: none.pem, key_file: key.pem}\n".to_owned(), "cannot read"),
        ("tls_server_config: {cert_file: key.pem, key_file: key.pem}\n".to_owned(), "no certificate"),
        ("tls_server_config: {cert_file: cert.pem, key_file: cert.pem}\n".to_owned(), "no private key"),
        (tls.replace('}', ", client_auth_type: RequireAndVerifyClientCert}"), "belong together"),
        (tls.replace('}', ", client_auth_type: RequestClientCert}"), "RequestClientCert"),
    ] {
        let error = load(folder.path(), &text).unwrap_err();
        assert!(error.to_string().contains(wanted) && error.hint().is_some(), "{text}: {error}");
    }
    std::fs::set_permissions(folder.path().join("key.pem"), std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(load(folder.path(), &tls).unwrap().warnings[0].contains("key.pem can be read by every user"));
}

#[test]
fn a_mistake_is_told_without_the_secret_in_it() {
    let folder = tempfile::tempdir().unwrap();
    for (text, wanted) in [
        ("bearer_tokens:\n- Gand4lf\n", "invalid type: string \"...\", expected struct Token"),
        ("bearer_tokens:\n- 'Gand4lf\" and `Gand4lf\\'\n", "string \"...\""),
        ("bearer_tokens: Gand4lf\n", "string \"...\""),
        ("bearer_tokens:\n- 74656667\n", "integer `...`, expected struct Token"),
        ("bearer_tokens:\n- 74656667.5\n", "floating point `...`, expected struct Token"),
        ("basic_auth_users: Gand4lf\n", "string \"...\""),
        ("bearer_tokens:\n- {Gand4lf}\n", "unknown field `...`, expected `sha256` or `file`"),
        ("bearer_tokens:\n- Gand4lf: x\n", "unknown field `...`, expected `sha256` or `file`"),
        ("tls_server_config: Gand4lf\n", "string \"...\""),
        ("Gand4lf", "string \"...\""),
    ] {
        let error = load(folder.path(), text).unwrap_err().to_string();
        let has_secret = error.contains("Gand4lf") || error.contains("74656667");
        assert!(!has_secret && error.contains(wanted), "{text}: {error}");
    }
}

/// Opens the event stream and gives its lines.
fn events(server: &Server) -> impl Iterator<Item = String> + use<> {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    write!(stream, "GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    BufReader::new(stream).lines().map_while(Result::ok)
}

#[test]
fn readings_are_told_as_they_come_and_streams_end_with_the_server() {
    let state = state(1);
    let server = serve(Arc::clone(&state), Config::default());
    let mut lines = events(&server);
    assert!(lines.next().unwrap().contains("200"));
    assert!(lines.any(|line| line == "retry: 2000"));
    state.put_all(&interval(1));
    assert!(lines.any(|line| line == "event: reading"));
    let data = lines.next().unwrap();
    let reading: serde_json::Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(reading["ports"]["0000:00:02.0"]["rx"], 3e9 + 1.0);
    assert_eq!(reading["seconds"], 1.0);
    state.set_status("none", Some("gone".to_owned()), None);
    assert!(lines.any(|line| line == "event: changed"));
    let ends = Instant::now();
    server.stop();
    assert_eq!(lines.filter(|line| line.starts_with("event")).count(), 0);
    assert!(ends.elapsed() < Duration::from_secs(10), "{:?}", ends.elapsed());
}

#[test]
fn so_many_streams_and_connections_and_no_more() {
    let state = state(1);
    let server = serve(Arc::clone(&state), Config::default());
    let mut open: Vec<_> = (0..32).map(|_| events(&server)).collect();
    open.iter_mut().for_each(|lines| assert!(lines.next().unwrap().contains("200")));
    assert_eq!(get(server.address(), "/api/events").status, 503);
    // Scrapes go on beside.
    assert!(get(server.address(), "/metrics").body.contains("\npciescope_event_streams 32\n"));
    // 40 of one address; the rest is others'. Those that only hold a connection make room.
    let silent: Vec<_> = (0..200).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    for _ in 0..5 {
        assert_eq!(get(server.address(), "/metrics").status, 200);
    }
    let idle: Vec<_> = (0..8)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            stream.write_all(b"GET /page.css HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            assert!(stream.read(&mut [0; 16]).unwrap() > 0);
            stream
        })
        .collect();
    // All slots of the address belong to connections that made a request. That keeps nobody out, and live pages stay.
    for number in 2..22 {
        assert_eq!(get(server.address(), "/metrics").status, 200);
        state.put_all(&interval(number));
    }
    assert!(get(server.address(), "/metrics").body.contains("\npciescope_event_streams 32\n"));
    drop((idle, open, silent));
    let until = Instant::now() + Duration::from_secs(10);
    for number in 22.. {
        // A stream sees that its client has left when it has something to send.
        state.put_all(&interval(number));
        if get(server.address(), "/metrics").body.contains("\npciescope_event_streams 0\n") {
            break;
        }
        assert!(Instant::now() < until, "streams that ended are still counted");
    }
}

#[test]
fn long_heads_and_slow_ones_are_cut_off() {
    let server = serve(state(1), Config::default());
    let long = format!("X: {}\r\n", "x".repeat(100_000));
    assert_ne!(request(server.address(), "GET", "/metrics", &long).status, 200);
    assert_ne!(get(server.address(), &format!("/{}", "x".repeat(100_000))).status, 404);
    assert_ne!(support::talk(server.address(), "\x16\x03\x01 nonsense\r\n\r\n").status, 200);
    // One byte now and then keeps no connection.
    let mut slow = TcpStream::connect(server.address()).unwrap();
    slow.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nX: ").unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        assert!(Instant::now() < until, "a head that takes 30 s is waited for");
        let mut byte = [0];
        match slow.write_all(b"x").and_then(|()| slow.read(&mut byte)) {
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
}
