//! Requests to the exporter, over a connection.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use pciescope_serve::config::Config;
use pciescope_serve::server::{Options, Server};
use pciescope_serve::state::{Setup, State};

static SERVER: LazyLock<Server> = LazyLock::new(|| {
    let listen = "127.0.0.1:0".parse().expect("an address");
    let options = Options { listen, config: Config::default(), note: |_| () };
    Server::start(options, Arc::new(State::new(Setup::default()))).expect("a server")
});

pub fn run(data: &[u8]) {
    let Ok(mut client) = TcpStream::connect(SERVER.address()) else { return };
    client.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let _ = client.write_all(data);
    let _ = client.shutdown(Shutdown::Write);
    let mut answer = [0; 4096];
    loop {
        match client.read(&mut answer) {
            Ok(0) | Err(_) => break,
            // An event stream has no end.
            Ok(n) if answer[..n].windows(12).any(|part| part == b"event-stream") => break,
            Ok(_) => {}
        }
    }
}
