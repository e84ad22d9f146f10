//! The listening side: connections, their limits and their end. `answer.rs` makes the answers.
//!
//! One thread with one reactor answers all requests; only bcrypt runs in other threads. The limits are here: a client
//! loses its connection if it sends its request slowly, reads its answer slowly, or connects too often.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::answer::{EVENT_STREAM, Site};
use crate::config::Config;
use crate::reload::Current;
use crate::slots::{Slot, Slots};
use crate::state::State;

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
    /// The server cannot listen on the address.
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
    let mut slots = Slots::default();
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
        // Of each connection anew: a certificate may have been renewed.
        let config = site.config();
        let Some(slot) = slots.take(peer.ip()) else {
            site.count_refused();
            continue;
        };
        slot.hold(stream);
        let (site, stop) = (Arc::clone(&site), stop.clone());
        tokio::spawn(async move {
            // A small answer must not wait for another.
            let _ = slot.with(|stream| stream.as_ref().map(|stream| stream.set_nodelay(true)));
            tokio::select! {
                () = connection(config, site, &slot, stop) => {}
                () = slot.leave() => {}
            }
        });
    }
    drop(listener);
    let all_ended = async {
        while !slots.is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let _ = timeout(END, all_ended).await;
}

async fn connection(config: Arc<Config>, site: Arc<Site>, slot: &Arc<Slot>, stop: watch::Receiver<bool>) {
    let stream = Impatient::new(Arc::clone(slot), UNREAD);
    match config.tls.clone().map(TlsAcceptor::from) {
        None => talk(stream, config, site, slot, stop).await,
        Some(acceptor) => {
            if let Ok(Ok(stream)) = timeout(HEAD, acceptor.accept(stream)).await {
                talk(stream, config, site, slot, stop).await;
            }
        }
    }
}

/// HTTP on a connection, until either side ends it.
async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    config: Arc<Config>,
    site: Arc<Site>,
    slot: &Slot,
    mut stop: watch::Receiver<bool>,
) {
    let service = service_fn(move |request| {
        let (site, config) = (Arc::clone(&site), Arc::clone(&config));
        async move {
            slot.asks();
            let response = site.answer(&config, slot.address, request).await;
            if ![StatusCode::UNAUTHORIZED, StatusCode::MISDIRECTED_REQUEST].contains(&response.status()) {
                slot.is_allowed(response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == EVENT_STREAM));
            }
            Ok::<_, Infallible>(response)
        }
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
    slot: Arc<Slot>,
    unread: Duration,
    /// Runs while a write waits.
    until: Option<Pin<Box<Sleep>>>,
}

impl Impatient {
    fn new(slot: Arc<Slot>, unread: Duration) -> Self {
        Impatient { slot, unread, until: None }
    }

    /// Asks the stream, if the connection still has it.
    fn poll<T>(&self, ask: impl FnOnce(Pin<&mut TcpStream>) -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let gone = || Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        self.slot.with(|stream| stream.as_mut().map_or_else(gone, |stream| ask(Pin::new(stream))))
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
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll(|stream| stream.poll_read(context, into))
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.poll(|stream| stream.poll_write(context, bytes));
        self.judge(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.poll(|stream| stream.poll_flush(context));
        self.judge(context, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|stream| stream.poll_shutdown(context))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::time::Instant;

    use super::*;
    use crate::state::Setup;

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
                let (_stop, stopped) = watch::channel(false);
                let current = Current::new(Config::default(), |_| ());
                let site = Site::new(Arc::new(State::new(Setup::default())), current, true, stopped.clone());
                let slot = Slots::default().take(std::net::Ipv4Addr::LOCALHOST.into()).unwrap();
                slot.hold(TcpStream::from_std(stream).unwrap());
                let stream = Impatient::new(Arc::clone(&slot), unread);
                talk(stream, site.config(), Arc::new(site), &slot, stopped).await;
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
