//! The thread that empties the rings.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::super::sys;
use super::{Drained, RING, locked};

/// The thread that empties the rings; it ends with this.
#[derive(Debug)]
pub(super) struct Reader {
    pub number: i32,
    end: Arc<OwnedFd>,
    work: Option<mpsc::Sender<Work>>,
    thread: Option<JoinHandle<()>>,
}

type Work = (Arc<Vec<File>>, Arc<Mutex<Drained>>);

impl Reader {
    pub fn spawn() -> io::Result<Self> {
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (tell, told) = mpsc::channel();
        let (work, receive) = mpsc::channel::<Work>();
        let its_end = Arc::clone(&end);
        let thread = std::thread::Builder::new().name("pciescope-perf".to_owned()).spawn(move || {
            let _ = tell.send(sys::thread_number());
            // Nothing is sent where nothing could be opened.
            if let Ok((owners, shared)) = receive.recv() {
                read_until(&its_end, &owners, &shared);
            }
        })?;
        let number = told.recv().map_err(|_| io::Error::other("the reader's thread did not start"))?;
        Ok(Reader { number, end, work: Some(work), thread: Some(thread) })
    }

    pub fn begin(&mut self, owners: Arc<Vec<File>>, shared: Arc<Mutex<Drained>>) {
        if let Some(work) = self.work.take() {
            let _ = work.send((owners, shared));
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.work = None;
        let _ = rustix::io::write(&*self.end, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Empties the rings whenever one is half full.
fn read_until(end: &OwnedFd, owners: &[File], shared: &Mutex<Drained>) {
    let mut is_over = vec![false; owners.len()];
    // A ring that had to be small wakes nobody before it is full.
    let is_small = locked(shared).rings.iter().any(|ring| ring.size() < RING);
    loop {
        let mut fds = vec![PollFd::new(end, PollFlags::IN)];
        let awaited = owners.iter().zip(&is_over).filter(|(_, is_over)| !**is_over);
        fds.extend(awaited.map(|(owner, _)| PollFd::from_borrowed_fd(owner.as_fd(), PollFlags::IN)));
        // The event of a thread that has ended wakes nobody, but others may still write to its ring.
        let is_blind = is_small || is_over.iter().any(|is_over| *is_over);
        let often = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
        match poll(&mut fds, is_blind.then_some(&often)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
        if fds[0].revents().contains(PollFlags::IN) {
            return;
        }
        let ended: Vec<bool> = fds[1..]
            .iter()
            .map(|fd| fd.revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL))
            .collect();
        let mut ended = ended.into_iter();
        for is_over in is_over.iter_mut().filter(|is_over| !**is_over) {
            *is_over = ended.next().unwrap_or(false);
        }
        locked(shared).drain();
    }
}
