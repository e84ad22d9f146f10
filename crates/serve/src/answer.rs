//! The answers to requests. Requests only read: a client cannot change anything, and no request accesses a device.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::channel::{Channel, Sender};
use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use crate::access::Verdict;
use crate::config::Config;
use crate::metrics::{self, Format};
use crate::page::{ASSETS, POLICY};
use crate::reload::Current;
use crate::state::{Event, State};

/// Clients of the event stream at the same time.
const STREAMS: usize = 32;
/// bcrypts at the same time: guessing must not take all of the machine.
const BCRYPTS: usize = 2;
/// Without events a stream sends a sign of life this often.
const ALIVE: Duration = Duration::from_secs(15);

const JSON: &str = "application/json";
const PLAIN: &str = "text/plain; charset=utf-8";

type Body = Either<Full<Bytes>, Channel<Bytes>>;

/// What all connections share.
pub(crate) struct Site {
    state: Arc<State>,
    current: Current,
    /// Whether only programs of this machine can connect. A browser that shows a foreign page is one of them.
    is_loopback: bool,
    stop: watch::Receiver<bool>,
    streams: Arc<Semaphore>,
    bcrypts: Bcrypts,
    scrapes: AtomicU64,
    refused: AtomicU64,
}

impl Site {
    pub(crate) fn new(state: Arc<State>, current: Current, is_loopback: bool, stop: watch::Receiver<bool>) -> Self {
        Site {
            state,
            current,
            is_loopback,
            stop,
            streams: Arc::new(Semaphore::new(STREAMS)),
            bcrypts: Bcrypts::default(),
            scrapes: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// The configuration as it is now.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.current.config()
    }

    /// Counts a connection that was refused because there were too many.
    pub(crate) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// The answer to a request, with the headers that all answers have.
    /// `made_under` is the configuration under which the connection was made, `from` the address that made it.
    pub(crate) async fn answer(
        self: Arc<Self>,
        made_under: &Config,
        from: IpAddr,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let mut response = self.judge(made_under, from, &request).await;
        // HEAD gets no endless body; the length of a whole answer is still sent.
        if request.method() == Method::HEAD && matches!(response.body(), Either::Right(_)) {
            *response.body_mut() = full("");
        }
        with_policy(response)
    }

    async fn judge(self: &Arc<Self>, made_under: &Config, from: IpAddr, request: &Request<Incoming>) -> Response<Body> {
        let config = self.config();
        if config.client_authorities.is_some() && config.client_authorities != made_under.client_authorities {
            let mut response = text(StatusCode::MISDIRECTED_REQUEST, "client certificates changed: connect again\n");
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            return response;
        }
        if !self.is_called_by_name(&config, request) {
            // DNS rebinding: a page of another site, whose name now leads to this address, sends its own name.
            return text(StatusCode::MISDIRECTED_REQUEST, "unknown host name: see `hosts` in docs/serve.md\n");
        }
        if !self.may_read(&config, from, request.headers()).await {
            let mut response = text(StatusCode::UNAUTHORIZED, "authentication required\n");
            let asked =
                HeaderValue::from_static("Basic realm=\"pciescope\", charset=\"UTF-8\", Bearer realm=\"pciescope\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, asked);
            return response;
        }
        let path = request.uri().path();
        let asset = ASSETS.iter().find(|asset| asset.path == path);
        let is_known = asset.is_some() || matches!(path, "/metrics" | "/api/state" | "/api/events" | "/api/records");
        if !is_known {
            return text(StatusCode::NOT_FOUND, "not found: try /, /metrics, /api/state, /api/events, /api/records\n");
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are allowed\n");
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        if let Some(asset) = asset {
            // The browser asks for it anew each time, so that a newer program shows its newer page.
            return whole(StatusCode::OK, asset.content_type, "no-cache", asset.body);
        }
        match path {
            "/metrics" => self.metrics(request),
            "/api/state" => json(self.state.json()),
            "/api/events" => self.events(config, request.method()),
            _ => self.records(request),
        }
    }

    /// Whether the request names this server by an address or by a known name. On addresses other than loopback every name
    /// is accepted unless `hosts` are configured: a page of another site has no password for them.
    fn is_called_by_name(&self, config: &Config, request: &Request<Incoming>) -> bool {
        if !self.is_loopback && config.hosts.is_empty() {
            return true;
        }
        let mut hosts = request.headers().get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next().and_then(|host| host.to_str().ok()), hosts.next()) else { return false };
        let name = without_port(host).to_ascii_lowercase();
        // A page of another site sends a name, never an address.
        let is_address = || match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
            Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
            None => name.parse::<Ipv4Addr>().is_ok(),
        };
        name == "localhost" || is_address() || config.hosts.contains(&name)
    }

    async fn may_read(&self, config: &Arc<Config>, from: IpAddr, headers: &HeaderMap) -> bool {
        let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        match config.access.judge(shown) {
            Verdict::Yes => true,
            Verdict::No => false,
            Verdict::Ask(credentials) => {
                let Some(permit) = self.bcrypts.turn(from).await else { return false };
                let config = Arc::clone(config);
                let work = move || {
                    // Held until bcrypt ends: it continues after the client hangs up.
                    let _permit = permit;
                    config.access.verify(&credentials)
                };
                tokio::task::spawn_blocking(work).await.unwrap_or(false)
            }
        }
    }

    fn metrics(&self, request: &Request<Incoming>) -> Response<Body> {
        let start = Instant::now();
        let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
        let format = Format::asked(accept.unwrap_or_default());
        let own = metrics::Own {
            scrapes: self.scrapes.fetch_add(1, Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            streams: STREAMS - self.streams.available_permits(),
            has_stale_config: self.current.is_stale(),
        };
        whole(StatusCode::OK, format.content_type(), "no-store", metrics::write(&self.state, format, start, own))
    }

    /// The records of the last interval.
    fn records(&self, request: &Request<Incoming>) -> Response<Body> {
        let records = self.state.records();
        match request.uri().query() {
            None | Some("" | "format=json") => json(serde_json::to_vec(&records)),
            Some("format=jsonl") => {
                let mut lines = Vec::new();
                for record in &records {
                    // Every record can be written as JSON.
                    if serde_json::to_writer(&mut lines, record).is_ok() {
                        lines.push(b'\n');
                    }
                }
                whole(StatusCode::OK, "application/jsonl; charset=utf-8", "no-store", lines)
            }
            Some(_) => text(StatusCode::BAD_REQUEST, "use ?format=json or ?format=jsonl\n"),
        }
    }

    /// Server-sent events, until the client leaves, the server ends, or the configuration changes. A browser connects
    /// again and is then judged by the new configuration.
    fn events(self: &Arc<Self>, config: Arc<Config>, method: &Method) -> Response<Body> {
        let Ok(permit) = Arc::clone(&self.streams).try_acquire_owned() else {
            let mut response = text(StatusCode::SERVICE_UNAVAILABLE, "too many event streams are open\n");
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("30"));
            return response;
        };
        let (sender, body) = Channel::new(4);
        if method == Method::GET {
            let (site, stop) = (Arc::clone(self), self.stop.clone());
            tokio::spawn(async move {
                let may_go_on = || Arc::ptr_eq(&config, &site.config());
                stream(sender, &site.state, may_go_on, stop).await;
                drop(permit);
            });
        }
        let mut response = Response::new(Either::Right(body));
        set(&mut response, header::CONTENT_TYPE, EVENT_STREAM);
        set(&mut response, header::CACHE_CONTROL, "no-store");
        response
    }
}

/// The media type of server-sent events.
pub(crate) const EVENT_STREAM: &str = "text/event-stream";

/// Turns at bcrypt: so many at the same time, and one of each address. Who guesses from one address waits for its own guesses,
/// and others wait for one of them at most.
struct Bcrypts {
    all: Arc<Semaphore>,
    of_addresses: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
}

impl Default for Bcrypts {
    fn default() -> Self {
        Bcrypts { all: Arc::new(Semaphore::new(BCRYPTS)), of_addresses: Mutex::default() }
    }
}

impl Bcrypts {
    /// Waits for a turn, which ends when what this gives is dropped.
    async fn turn(&self, address: IpAddr) -> Option<[OwnedSemaphorePermit; 2]> {
        let own = {
            let mut of_addresses = self.of_addresses.lock().unwrap_or_else(PoisonError::into_inner);
            // Those that nobody waits for, or holds, are forgotten.
            of_addresses.retain(|_, one| Arc::strong_count(one) > 1);
            Arc::clone(of_addresses.entry(address).or_insert_with(|| Arc::new(Semaphore::new(1))))
        };
        let own = own.acquire_owned().await.ok()?;
        Some([own, Arc::clone(&self.all).acquire_owned().await.ok()?])
    }
}

/// Sends events. `retry` makes a browser connect again soon after a restart of the server.
async fn stream(
    mut sender: Sender<Bytes>,
    state: &State,
    may_go_on: impl Fn() -> bool,
    mut stop: watch::Receiver<bool>,
) {
    let mut events = state.subscribe();
    let mut next = Bytes::from_static(b"retry: 2000\n\n");
    loop {
        let sent = tokio::select! {
            sent = sender.send_data(next) => sent,
            _ = stop.changed() => return,
        };
        if sent.is_err() {
            return;
        }
        let event = tokio::select! {
            event = timeout(ALIVE, events.recv()) => event,
            _ = stop.changed() => return,
        };
        if !may_go_on() {
            return;
        }
        next = match event {
            Err(_) => Bytes::from_static(b": alive\n\n"),
            // The JSON has no line break.
            Ok(Ok(Event::Reading(reading))) => Bytes::from(format!("event: reading\ndata: {reading}\n\n")),
            // The client reads what it missed from the state.
            Ok(Ok(Event::Changed) | Err(RecvError::Lagged(_))) => Bytes::from_static(b"event: changed\ndata: {}\n\n"),
            Ok(Err(RecvError::Closed)) => return,
        };
    }
}

fn without_port(host: &str) -> &str {
    let is_port = |port: &str| port.bytes().all(|c| c.is_ascii_digit());
    match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) && (!name.contains(':') || name.ends_with(']')) => name,
        _ => host,
    }
}

fn full(body: impl Into<Bytes>) -> Body {
    Either::Left(Full::new(body.into()))
}

fn set(response: &mut Response<Body>, name: HeaderName, value: &'static str) {
    response.headers_mut().insert(name, HeaderValue::from_static(value));
}

fn whole(
    status: StatusCode,
    content_type: &'static str,
    cache: &'static str,
    body: impl Into<Bytes>,
) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = status;
    set(&mut response, header::CONTENT_TYPE, content_type);
    set(&mut response, header::CACHE_CONTROL, cache);
    response
}

fn text(status: StatusCode, text: &'static str) -> Response<Body> {
    whole(status, PLAIN, "no-store", text)
}

fn json(written: serde_json::Result<impl Into<Bytes>>) -> Response<Body> {
    match written {
        Ok(body) => whole(StatusCode::OK, JSON, "no-store", body),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "cannot write this as JSON\n"),
    }
}

/// What a browser may do with any answer: show it, in no one's frame, and ask for nothing from elsewhere.
fn with_policy(mut response: Response<Body>) -> Response<Body> {
    set(&mut response, header::CONTENT_SECURITY_POLICY, POLICY);
    set(&mut response, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(&mut response, header::X_FRAME_OPTIONS, "DENY");
    set(&mut response, header::REFERRER_POLICY, "no-referrer");
    set(&mut response, HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    set(&mut response, HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_of_one_address_wait_for_each_other_and_leave_the_others_alone() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let bcrypts = Bcrypts::default();
            let turn = async |last: u8| {
                let address = Ipv4Addr::new(192, 0, 2, last).into();
                timeout(Duration::from_millis(50), bcrypts.turn(address)).await.ok().flatten()
            };
            let first = turn(1).await;
            assert!(first.is_some() && turn(1).await.is_none(), "one of each address");
            let second = turn(2).await;
            assert!(second.is_some() && turn(3).await.is_none(), "two at the same time");
            drop(first);
            assert!(turn(1).await.is_some() && turn(3).await.is_some());
            drop(second);
            assert!(turn(4).await.is_some());
            assert_eq!(bcrypts.of_addresses.lock().unwrap().len(), 1, "who guessed before is forgotten");
        });
    }

    #[test]
    fn a_host_loses_its_port_and_nothing_else() {
        for (host, name) in [
            ("localhost:9713", "localhost"),
            ("localhost", "localhost"),
            ("[::1]:9713", "[::1]"),
            ("[::1]", "[::1]"),
            ("127.0.0.1:1", "127.0.0.1"),
            ("localhost:evil", "localhost:evil"),
            ("::1", "::1"),
            ("a:b:1", "a:b:1"),
        ] {
            assert_eq!(without_port(host), name);
        }
    }
}
