//! The files of the live page with a feed whose every reading the test writes: for what a real machine does rarely, such
//! as a feed that falls silent, and for figures whose right look is known.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use pciescope_serve::feed::{Feed, Reading};
use pciescope_serve::page;

#[derive(Default)]
struct Shared {
    feed: Feed,
    /// The server's clock, as its header `Date` has it.
    date: Option<&'static str>,
    followers: Vec<TcpStream>,
}

/// A server of the live page. It ends when dropped.
pub struct Stage {
    shared: Arc<Mutex<Shared>>,
    port: u16,
    over: Arc<AtomicBool>,
    accepting: Option<std::thread::JoinHandle<()>>,
}

impl Stage {
    /// Opens on a port of 127.0.0.1: any for 0.
    #[must_use]
    pub fn open(feed: Feed, port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Mutex::new(Shared { feed, ..Shared::default() }));
        let over = Arc::new(AtomicBool::new(false));
        let (theirs, ended) = (Arc::clone(&shared), Arc::clone(&over));
        let accepting = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&theirs);
                // A browser that goes away in the middle is no failure.
                std::thread::spawn(move || drop(answer(stream, &shared)));
            }
        });
        Self { shared, port, over, accepting: Some(accepting) }
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of the page.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// A reading: into the history, and to those who follow.
    pub fn say(&self, reading: Reading) {
        let data = serde_json::to_string(&reading).unwrap();
        let mut shared = self.shared.lock().unwrap();
        shared.feed.readings.push(reading);
        shared.followers.retain_mut(|stream| write!(stream, "event: reading\ndata: {data}\n\n").is_ok());
    }

    /// Changes what `/api/state` says, without a word to those who follow.
    pub fn change(&self, change: impl FnOnce(&mut Feed)) {
        change(&mut self.shared.lock().unwrap().feed);
    }

    /// Tells those who follow that `/api/state` has changed.
    pub fn say_changed(&self) {
        let followers = &mut self.shared.lock().unwrap().followers;
        followers.retain_mut(|stream| write!(stream, "event: changed\ndata: {{}}\n\n").is_ok());
    }

    /// What time the server says it is: a text as in the header `Date`. Without it the answers have no such header.
    pub fn set_clock(&self, date: &'static str) {
        self.shared.lock().unwrap().date = Some(date);
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        for stream in &self.shared.lock().unwrap().followers {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Wakes the thread that accepts, so that the port is free afterwards.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(thread) = self.accepting.take() {
            let _ = thread.join();
        }
    }
}

/// Answers one request; every connection has one only.
fn answer(mut stream: TcpStream, shared: &Mutex<Shared>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().unwrap_or(Ok(String::new()))?;
    let path = first.split(' ').nth(1).unwrap_or("").to_owned();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let date = shared.lock().unwrap().date.map(|date| format!("Date: {date}\r\n")).unwrap_or_default();
    let mut send = |status: &str, content: &str, body: &str| {
        let policy = page::POLICY;
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: {content}\r\nContent-Length: {}\r\nContent-Security-Policy: {policy}\r\n\
             {date}Connection: close\r\n\r\n{body}",
            body.len()
        )
    };
    if let Some(asset) = page::ASSETS.iter().find(|asset| asset.path == path) {
        return send("200 OK", asset.content_type, asset.body);
    }
    match path.as_str() {
        "/api/state" => {
            let state = serde_json::to_string(&shared.lock().unwrap().feed).unwrap();
            send("200 OK", "application/json", &state)
        }
        "/api/events" => {
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n\r\n")?;
            shared.lock().unwrap().followers.push(stream);
            Ok(())
        }
        _ => send("404 Not Found", "text/plain", "not here"),
    }
}
