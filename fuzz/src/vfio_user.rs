//! Messages of a vfio-user client to the lab's server, over its socket.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use pciescope_lab::device::config::Link;
use pciescope_lab::device::endpoint::LatencyEndpoint;
use pciescope_lab::server::Served;

static SERVED: LazyLock<(Served, PathBuf)> = LazyLock::new(|| {
    let folder = crate::FOLDER.path();
    let served = Served::spawn(LatencyEndpoint::new(&Link::default()), folder, "lab").expect("a server");
    (served, folder.join("lab.sock"))
});

pub fn run(data: &[u8]) {
    let mut client = UnixStream::connect(&SERVED.1).expect("the server takes connections");
    client.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    // The server may have closed it already.
    let _ = client.write_all(data);
    let _ = client.shutdown(Shutdown::Write);
    let mut answer = [0; 4096];
    loop {
        match client.read(&mut answer) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("the server keeps a dead client"),
            Err(_) => break,
        }
    }
}
