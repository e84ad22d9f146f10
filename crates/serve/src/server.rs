//! The listening side: connections, their limits and their end. What is answered stands in `answer.rs`.
//!
//! One thread with one reactor answers all; only bcrypt goes to threads of its own. Limits are of this side: a client that
//! sends its request slowly, reads its answer slowly, or comes too often loses its connection.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::answer::Site;
use crate::config::Config;
use crate::reload::Current;
use crate::state::State;

/// Connections at the same time; those that come then are closed at once.
const CONNECTIONS: usize = 64;
/// Connections of one address at the same time, so that no one client has them all. Of IPv6 a network of 64 bits counts as one
/// address: whoever has one address there has all of them.
const OF_A_PEER: usize = 16;
/// The part of an IPv6 address that is its network's.
const NETWORK: u128 = !0 << 64;
/// The same of this machine, through which others may come (`ssh -L`).
const OF_LOOPBACK: usize = 48;
/// Threads for bcrypt, of which `answer.rs` lets two run.
const BLOCKING: usize = 4;
/// For so long a client may take to send a request's head, or to agree on TLS.
const HEAD: Duration = Duration::from_secs(10);
/// For so long a client may leave an answer unread.
const UNREAD: Duration = Duration::from_secs(30);
/// The longest head of a request that is read, in bytes.
const HEAD_BYTES: usize = 16 * 1024;
/// For so long the end waits for answers that are under way.
const END: Duration = Duration::from_secs(2);

/// Where and how to listen.
#[derive(Debug)]
pub struct Options {
    /// The address; port 0 takes a free one.
    pub listen: SocketAddr,
    /// What the configuration file says. It is followed: what its files say later holds from then on.
    pub config: Config,
    /// Takes a line for the log: that the configuration changed, or why it could not be read again.
    pub note: fn(&str),
}

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is not the loopback's, and nothing would protect it.
    #[error("{listen} is not a loopback address, and {lacking}")]
    Open {
        /// The address.
        listen: SocketAddr,
        /// What there is not.
        lacking: &'static str,
    },
    /// The address cannot be had.
    #[error("cannot listen on {listen}")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No thread, or no reactor.
    #[error("cannot start the server")]
    Start {
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Error::Open { .. } => Some(
                "give --config FILE with tls_server_config and basic_auth_users or bearer_tokens, or listen on 127.0.0.1 and \
                 reach it through ssh -L; docs/serve.md, \"Other addresses\"",
            ),
            Error::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                Some("another program listens there: give another port with --listen ADDR:PORT")
            }
            Error::Listen { .. } => Some("give an address of this machine; ports below 1024 need CAP_NET_BIND_SERVICE"),
            Error::Start { .. } => None,
        }
    }
}

/// A server that answers until it is stopped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    has_tls: bool,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Begins to listen, and answers from a thread of its own.
    ///
    /// # Errors
    /// [`Error::Open`] for an address that is not the loopback's without TLS and authentication; [`Error::Listen`].
    pub fn start(options: Options, state: Arc<State>) -> Result<Server, Error> {
        let Options { listen, config, note } = options;
        let is_loopback = listen.ip().to_canonical().is_loopback();
        let lacking = match (config.tls.is_some(), config.is_locked()) {
            (true, true) => None,
            (false, false) => Some("neither TLS nor authentication is configured"),
            (false, true) => Some("TLS is not configured: passwords would be readable on the way"),
            (true, false) => Some("no authentication is configured"),
        };
        if let Some(lacking) = lacking.filter(|_| !is_loopback) {
            return Err(Error::Open { listen, lacking });
        }
        let bound = std::net::TcpListener::bind(listen).and_then(|socket| {
            socket.set_nonblocking(true)?;
            let address = socket.local_addr()?;
            Ok((socket, address))
        });
        let (socket, address) = bound.map_err(|source| Error::Listen { listen, source })?;
        let start = |source| Error::Start { source };
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_io().enable_time().max_blocking_threads(BLOCKING).build().map_err(start)?;
        let (stop, stopped) = watch::channel(false);
        let has_tls = config.tls.is_some();
        let site = Arc::new(Site::new(state, Current::new(config, note), is_loopback, stopped.clone()));
        let work = move || {
            runtime.block_on(async move {
                // From a socket that is non-blocking already, inside the reactor: this cannot fail but for lack of memory.
                if let Ok(listener) = TcpListener::from_std(socket) {
                    accept(listener, site, stopped).await;
                }
            });
            // Do not wait for bcrypt.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("serve".to_owned()).spawn(work).map_err(start)?;
        Ok(Server { address, has_tls, stop, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The page's address.
    pub fn url(&self) -> String {
        format!("{}://{}/", if self.has_tls { "https" } else { "http" }, self.address)
    }

    /// Ends: takes no more connections, closes event streams, and waits shortly for answers under way.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // The thread may have ended.
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Takes connections until it is told to stop.
async fn accept(listener: TcpListener, site: Arc<Site>, mut stop: watch::Receiver<bool>) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    let peers = Peers::default();
    loop {
        let accepted = tokio::select! {
            _ = stop.changed() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(_) => {
                // Out of descriptors, most likely: others have to end first.
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let place = peers.place(peer.ip());
        let (Some(place), Ok(permit)) = (place, Arc::clone(&permits).try_acquire_owned()) else {
            site.count_refused();
            continue;
        };
        let (site, stop) = (Arc::clone(&site), stop.clone());
        // Of each connection anew: a certificate may have been renewed.
        let config = site.config();
        tokio::spawn(async move {
            // A small answer must not wait for another.
            let _ = stream.set_nodelay(true);
            connection(stream, config, site, stop).await;
            drop((place, permit));
        });
    }
    drop(listener);
    let _ = timeout(END, permits.acquire_many(CONNECTIONS as u32)).await;
}

/// Connections by the address at their other end.
#[derive(Debug, Clone, Default)]
struct Peers(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// A connection that counts until this is dropped.
struct Place {
    peers: Peers,
    peer: IpAddr,
}

impl Peers {
    /// A place for one more connection of an address; `None` where it has as many as it may.
    fn place(&self, peer: IpAddr) -> Option<Place> {
        let peer = peer.to_canonical();
        // All of 127.0.0.0/8 is this machine.
        let (peer, most) = match peer {
            peer if peer.is_loopback() => (IpAddr::V4(Ipv4Addr::LOCALHOST), OF_LOOPBACK),
            IpAddr::V6(peer) => (IpAddr::V6(Ipv6Addr::from_bits(peer.to_bits() & NETWORK)), OF_A_PEER),
            IpAddr::V4(_) => (peer, OF_A_PEER),
        };
        let mut counts = self.counts();
        let count = counts.entry(peer).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Place { peers: self.clone(), peer })
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.peers.counts();
        if let Some(count) = counts.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.peer);
            }
        }
    }
}

async fn connection(stream: TcpStream, config: Arc<Config>, site: Arc<Site>, stop: watch::Receiver<bool>) {
    let stream = Impatient::new(stream, UNREAD);
    match config.tls.clone().map(TlsAcceptor::from) {
        None => talk(stream, config, site, stop).await,
        Some(acceptor) => {
            if let Ok(Ok(stream)) = timeout(HEAD, acceptor.accept(stream)).await {
                talk(stream, config, site, stop).await;
            }
        }
    }
}

/// HTTP on a connection, until either side ends it.
async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    config: Arc<Config>,
    site: Arc<Site>,
    mut stop: watch::Receiver<bool>,
) {
    let service = service_fn(move |request| {
        let (site, config) = (Arc::clone(&site), Arc::clone(&config));
        async move { Ok::<_, Infallible>(site.answer(&config, request).await) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(HEAD_BYTES).half_close(false);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // How a connection ended matters only to its client.
    let _ = tokio::select! {
        ended = connection.as_mut() => ended,
        _ = stop.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
}

/// A stream that fails when its other end leaves what was written unread for too long.
struct Impatient {
    stream: TcpStream,
    unread: Duration,
    /// Runs while a write waits.
    until: Option<Pin<Box<Sleep>>>,
}

impl Impatient {
    fn new(stream: TcpStream, unread: Duration) -> Self {
        Impatient { stream, unread, until: None }
    }

    /// Ends a wait that was too long.
    fn judge<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.until = None;
            return written;
        }
        let until = self.until.get_or_insert_with(|| Box::pin(sleep(self.unread)));
        match until.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Impatient {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::time::Instant;

    use super::*;
    use crate::state::Setup;

    #[test]
    fn an_address_has_so_many_connections_and_leaves_the_others_alone() {
        let peers = Peers::default();
        let of = |text: &str| peers.place(text.parse().unwrap());
        let mut all: Vec<_> = (0..OF_A_PEER).map(|_| of("192.0.2.1").unwrap()).collect();
        assert!(of("192.0.2.1").is_none() && of("::ffff:192.0.2.1").is_none());
        assert!(of("192.0.2.2").is_some() && of("2001:db8::1").is_some());
        all.pop();
        assert!(of("192.0.2.1").is_some());
        // Whoever has an address of IPv6 has 2^64 of them.
        let of_a_network: Vec<_> =
            (0..OF_A_PEER).map(|number| of(&format!("2001:db8:0:1::{number:x}")).unwrap()).collect();
        assert!(of("2001:db8:0:1::1").is_none() && of("2001:db8:0:1:ffff:ffff:ffff:ffff").is_none());
        assert!(of("2001:db8:0:2::1").is_some() && of("2001:db8:0:0:ffff::").is_some());
        drop(of_a_network);
        let local: Vec<_> = (0..OF_LOOPBACK).map(|number| of(&format!("127.0.0.{}", number + 1)).unwrap()).collect();
        assert!(of("127.0.0.1").is_none() && of("::1").is_none());
        drop((all, local));
        assert!(peers.counts().is_empty(), "addresses that left are forgotten");
    }

    /// Serves one connection of a client that asks for far more than the sockets hold, reads now and then for a while if it is
    /// to, and then no more. How long the server then kept the connection; `None` where it did not wait for the reading.
    fn keeps(unread: Duration, reads_for: Duration) -> Option<Duration> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let served = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().unwrap();
            runtime.block_on(async move {
                let stream = Impatient::new(TcpStream::from_std(stream).unwrap(), unread);
                let (_stop, stopped) = watch::channel(false);
                let current = Current::new(Config::default(), |_| ());
                let site = Site::new(Arc::new(State::new(Setup::default())), current, true, stopped.clone());
                talk(stream, site.config(), Arc::new(site), stopped).await;
            });
        });
        let requests = "GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1500);
        client.write_all(requests.as_bytes()).unwrap();
        let begin = Instant::now();
        // The kernel wakes a writer when a third of what it holds for it has gone, a megabyte or so.
        let mut some = vec![0; 256 << 10];
        while begin.elapsed() < reads_for {
            std::thread::sleep(unread / 20);
            if client.read(&mut some).map_or(true, |bytes| bytes == 0) || served.is_finished() {
                return None;
            }
        }
        let last = Instant::now();
        served.join().unwrap();
        Some(last.elapsed())
    }

    #[test]
    fn an_answer_that_is_left_unread_ends_its_connection() {
        let unread = Duration::from_millis(500);
        let kept = keeps(unread, Duration::ZERO).unwrap();
        assert!(kept >= unread, "cut off after {kept:?}");
    }

    #[test]
    fn an_answer_that_is_read_slowly_is_waited_for_until_it_is_left() {
        // A machine that stands still for longer than the client may wait looks like such a client.
        let unread = Duration::from_secs(1);
        assert!((0..5).any(|_| keeps(unread, 3 * unread).is_some()), "reading slowly is no reason");
    }
}
