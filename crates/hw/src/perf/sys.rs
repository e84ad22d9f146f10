//! The system call behind safe functions.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings::{
    PERF_FLAG_FD_CLOEXEC, PERF_FORMAT_GROUP, PERF_FORMAT_LOST, PERF_FORMAT_TOTAL_TIME_ENABLED,
    PERF_FORMAT_TOTAL_TIME_RUNNING, PERF_IOC_FLAG_GROUP, PERF_SAMPLE_RAW, PERF_SAMPLE_TIME, PERF_TYPE_TRACEPOINT,
    perf_event_attr,
};

use super::Config;

/// Where an event stands in its group.
#[derive(Debug, Clone, Copy)]
pub enum Role<'g> {
    /// It leads, and is off; pinned, it never waits for its turn.
    Leader { pinned: bool },
    /// It runs whenever this leader runs.
    Sibling(&'g File),
}

/// Opens a system-wide event on `cpu`.
pub fn open(number: u32, config: Config, cpu: u32, place: Role<'_>) -> io::Result<File> {
    let cpu = i32::try_from(cpu).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let mut attr = perf_event_attr::default();
    attr.type_ = number;
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.read_format = u64::from(PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING);
    attr.config = config.0[0];
    attr.config3 = config.0[3];
    attr.__bindgen_anon_3.config1 = config.0[1];
    attr.__bindgen_anon_4.config2 = config.0[2];
    let group = match place {
        Role::Leader { pinned } => {
            attr.set_disabled(1);
            attr.set_pinned(u64::from(pinned));
            -1
        }
        Role::Sibling(leader) => leader.as_raw_fd(),
    };
    opened(&mut attr, -1, cpu, group)
}

fn opened(attr: &mut perf_event_attr, thread: libc::pid_t, cpu: i32, group: i32) -> io::Result<File> {
    // SAFETY: the structure is complete and says its size; the event writes to no memory of ours, but to a ring where one is mapped.
    let fd = unsafe { perf::perf_event_open(attr, thread, cpu, group, PERF_FLAG_FD_CLOEXEC.into()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// What is sampled how often.
#[derive(Debug, Clone, Copy)]
pub struct Sampled {
    /// The PMU's number and the event's.
    pub event: (u32, u64),
    /// Samples per second of the thread's time.
    pub hz: u64,
    /// What a sample holds.
    pub sample_type: u64,
    /// Whether the kernel's part is left out.
    pub is_user_only: bool,
    /// Whether threads that the thread starts are sampled with it.
    pub is_inherited: bool,
    /// Whether what newer kernels offer is asked for: no child processes (5.13), a count of lost samples (6.0).
    pub is_new: bool,
    /// How full the ring is when a waiting reader is woken, in bytes.
    pub wake_at: u32,
}

/// Opens a sampling event of one thread on one CPU, or on any. It is off.
pub fn sample(what: &Sampled, thread: libc::pid_t, cpu: Option<u32>) -> io::Result<File> {
    let cpu = cpu.map_or(Ok(-1), i32::try_from).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let mut attr = perf_event_attr::default();
    (attr.type_, attr.config) = what.event;
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.sample_type = what.sample_type;
    attr.sample_freq = what.hz;
    attr.set_freq(1);
    attr.set_disabled(1);
    attr.set_exclude_hv(1);
    attr.set_exclude_kernel(u64::from(what.is_user_only));
    attr.set_inherit(u64::from(what.is_inherited));
    attr.set_inherit_thread(u64::from(what.is_inherited && what.is_new));
    let lost = if what.is_new { PERF_FORMAT_LOST } else { 0 };
    attr.read_format = u64::from(PERF_FORMAT_TOTAL_TIME_RUNNING | lost);
    attr.set_watermark(1);
    attr.wakeup_watermark = what.wake_at;
    opened(&mut attr, thread, cpu, -1)
}

/// Opens a tracepoint of the whole machine on a CPU, by the number that tracefs has of it. Each hit is a sample with its time on
/// CLOCK_MONOTONIC and the bytes that the tracepoint's format describes, and wakes who waits where `wakes` says so.
pub fn trace(id: u64, cpu: u32, wakes: bool) -> io::Result<File> {
    let cpu = i32::try_from(cpu).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let mut attr = perf_event_attr::default();
    (attr.type_, attr.config) = (PERF_TYPE_TRACEPOINT, id);
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.sample_type = u64::from(PERF_SAMPLE_TIME | PERF_SAMPLE_RAW);
    attr.sample_period = 1;
    attr.wakeup_events = u32::from(wakes);
    attr.set_use_clockid(1);
    attr.clockid = libc::CLOCK_MONOTONIC;
    opened(&mut attr, -1, cpu, -1)
}

/// What a sampling event has counted so far: the event itself, the nanoseconds for which it ran, and the samples that were lost where
/// the kernel counts these.
pub fn counts(mut event: &File) -> io::Result<(u64, u64, Option<u64>)> {
    let mut bytes = [0; 24];
    let read = event.read(&mut bytes)?;
    let word = |place: usize| {
        let word = bytes[..read].get(8 * place..8 * place + 8)?;
        Some(u64::from_ne_bytes(word.try_into().expect("a slice of 8 bytes")))
    };
    match (word(0), word(1)) {
        (Some(count), Some(running_ns)) => Ok((count, running_ns, word(2))),
        // An event that found no place on the hardware reads as the end of a file.
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Has an event write to the ring of another on the same CPU.
pub fn write_to_ring_of(event: &File, owner: &File) -> io::Result<()> {
    // SAFETY: takes a descriptor's number, no pointer.
    checked(unsafe { perf::ioctls::SET_OUTPUT(event.as_raw_fd(), owner.as_raw_fd()) })
}

/// Lets the leader's whole group count.
pub fn enable(leader: &File) -> io::Result<()> {
    // SAFETY: takes a number, no pointer.
    checked(unsafe { perf::ioctls::ENABLE(leader.as_raw_fd(), PERF_IOC_FLAG_GROUP) })
}

/// Stops the leader's whole group; its counts stay.
pub fn disable(leader: &File) -> io::Result<()> {
    // SAFETY: takes a number, no pointer.
    checked(unsafe { perf::ioctls::DISABLE(leader.as_raw_fd(), PERF_IOC_FLAG_GROUP) })
}

/// The kernel's number of this thread.
pub fn thread_number() -> libc::pid_t {
    // SAFETY: has no arguments and cannot fail.
    unsafe { libc::gettid() }
}

fn checked(ret: libc::c_int) -> io::Result<()> {
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
