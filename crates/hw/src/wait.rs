//! Waiting for a time, the end of a child process or a signal, whichever comes first.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_current_process_group, kill_process, kill_process_group, pidfd_open,
    set_parent_process_death_signal,
};
use rustix::time::{ClockId, clock_gettime};

/// The time of CLOCK_MONOTONIC in nanoseconds.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sends a signal to a child that has not been waited for, so that its number cannot be another's.
///
/// # Errors
/// ESRCH, EINVAL for a number that is not a signal, EPERM for a child that changed its user.
pub fn signal(child: &Child, number: i32) -> io::Result<()> {
    let signal = Signal::from_named_raw(number).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    Ok(kill_process(Pid::from_child(child), signal)?)
}

/// A program in a process group of its own, so that a terminal's Ctrl-C does not reach it. If it still runs when this is
/// dropped, it is killed with all that it started in its group. It gets SIGTERM if the thread that started it ends first,
/// as at a SIGKILL.
#[derive(Debug)]
pub struct OwnGroup {
    child: Child,
    has_ended: bool,
}

impl OwnGroup {
    /// Starts it.
    ///
    /// # Errors
    /// As [`Command::spawn`].
    pub fn start(command: &mut Command) -> io::Result<OwnGroup> {
        // SAFETY: the closure makes one system call and allocates nothing, as the child of a fork may.
        unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?)) };
        Ok(OwnGroup { child: command.process_group(0).spawn()?, has_ended: false })
    }

    /// How it ended, if it did.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn status(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        self.has_ended |= status.is_some();
        Ok(status)
    }

    /// Interrupts the program alone, as Ctrl-C would.
    pub fn interrupt(&self) {
        if !self.has_ended {
            let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        }
    }
}

impl Drop for OwnGroup {
    fn drop(&mut self) {
        // Until it was waited for, its number cannot be another's.
        if !self.has_ended {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Stops the process group of this process, as Ctrl-Z does if the terminal makes the signal. Returns when the group is
/// continued. Returns immediately if nobody could continue it (the kernel ignores such a stop).
///
/// # Errors
/// As kill(2).
pub fn suspend() -> io::Result<()> {
    kill_current_process_group(Signal::TSTP)?;
    // Another thread may take the signal: the stop then comes a moment later.
    std::thread::sleep(std::time::Duration::from_millis(50));
    Ok(())
}

/// Why a wait was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// The time came.
    Time,
    /// The child process ended; it is still to be waited for.
    Child,
    /// A signal came, or the descriptor that tells of signals became readable.
    Signal,
    /// The user moved the file of results away, and wants a new one.
    Moved,
    /// The kernel told of something that is under watch.
    Event,
}

/// Waits on absolute times, so that a late wake-up does not push the next one back.
#[derive(Debug, Default)]
pub struct Waiter {
    watched: Vec<(OwnedFd, Woken)>,
}

impl Waiter {
    /// Also wakes up when `signals` becomes readable: without it a signal that comes just before a wait is noticed only
    /// after it.
    pub fn watch_signals(&mut self, signals: OwnedFd) {
        self.watched.push((signals, Woken::Signal));
    }

    /// Also wakes up when `events` becomes readable.
    pub fn watch_events(&mut self, events: OwnedFd) {
        self.watched.push((events, Woken::Event));
    }

    /// Also wakes up when `child` ends.
    ///
    /// # Errors
    /// ENOSYS before Linux 5.3; EMFILE.
    pub fn watch_child(&mut self, child: &Child) -> io::Result<()> {
        self.watched.push((pidfd_open(Pid::from_child(child), PidfdFlags::empty())?, Woken::Child));
        Ok(())
    }

    /// Waits until `deadline_ns` of CLOCK_MONOTONIC; without one until something else happens.
    ///
    /// # Errors
    /// As poll(2), but for EINTR, which is [`Woken::Signal`].
    pub fn until(&self, deadline_ns: Option<u64>) -> io::Result<Woken> {
        let rest = deadline_ns.map(|deadline| {
            let rest = deadline.saturating_sub(now_ns());
            Timespec { tv_sec: (rest / 1_000_000_000) as i64, tv_nsec: (rest % 1_000_000_000) as _ }
        });
        // Two at most: the standard library's Vec of so few costs less than the call itself.
        let mut fds: Vec<_> = self.watched.iter().map(|(fd, _)| PollFd::new(fd, PollFlags::IN)).collect();
        match poll(&mut fds, rest.as_ref()) {
            Ok(0) => Ok(Woken::Time),
            Ok(_) => {
                let first = fds.iter().position(|fd| !fd.revents().is_empty());
                Ok(first.map_or(Woken::Time, |place| self.watched[place].1))
            }
            Err(Errno::INTR) => Ok(Woken::Signal),
            Err(err) => Err(err.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_wait_ends_at_its_time_and_not_before() {
        let deadline = now_ns() + 3_000_000;
        assert_eq!(Waiter::default().until(Some(deadline)).unwrap(), Woken::Time);
        assert!(now_ns() >= deadline);
        // One that has passed does not wait.
        assert_eq!(Waiter::default().until(Some(0)).unwrap(), Woken::Time);
    }

    #[test]
    fn the_end_of_a_child_ends_a_wait_without_a_time() {
        let mut child = Command::new("true").spawn().unwrap();
        let mut waiter = Waiter::default();
        waiter.watch_child(&child).unwrap();
        assert_eq!(waiter.until(None).unwrap(), Woken::Child);
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn a_program_ends_with_the_thread_that_started_it() {
        let starter = std::thread::spawn(|| OwnGroup::start(Command::new("sleep").arg("1000")).unwrap());
        let mut group = starter.join().unwrap();
        let begin = std::time::Instant::now();
        while group.status().unwrap().is_none() {
            assert!(begin.elapsed().as_secs() < 10, "it goes on");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    #[test]
    fn a_group_is_killed_with_all_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pids");
        let line = format!("sleep 1000 & echo $$ $! >{}; wait", file.display());
        let mut group = OwnGroup::start(Command::new("sh").args(["-c", &line])).unwrap();
        let pids = || std::fs::read_to_string(&file).unwrap_or_default();
        while !pids().ends_with('\n') {
            assert!(group.status().unwrap().is_none());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let all: Vec<i32> = pids().split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        let group_of = |pid| rustix::process::getpgid(Pid::from_raw(pid)).ok();
        assert_eq!(group_of(all[1]), Pid::from_raw(all[0]));
        assert_ne!(group_of(all[1]), Some(rustix::process::getpgrp()));
        drop(group);
        // What nobody waits for is init's, which may take a moment.
        let begin = std::time::Instant::now();
        let runs = |pid: i32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            !stat.is_empty() && !stat.contains(") Z ")
        };
        while all.iter().any(|pid| runs(*pid)) {
            assert!(begin.elapsed().as_secs() < 10, "{all:?}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    #[test]
    fn a_signal_that_came_before_is_not_slept_through() {
        let (mut here, there) = UnixStream::pair().unwrap();
        let mut waiter = Waiter::default();
        waiter.watch_signals(there.into());
        here.write_all(b"x").unwrap();
        assert_eq!(waiter.until(Some(now_ns() + 60_000_000_000)).unwrap(), Woken::Signal);
    }
}
