//! The system call behind safe functions.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings::{
    PERF_FLAG_FD_CLOEXEC, PERF_FORMAT_GROUP, PERF_FORMAT_TOTAL_TIME_ENABLED, PERF_FORMAT_TOTAL_TIME_RUNNING,
    PERF_IOC_FLAG_GROUP, perf_event_attr,
};

use super::Config;

/// Where an event stands in its group.
#[derive(Debug, Clone, Copy)]
pub enum Place<'g> {
    /// It leads, and is off; pinned, it never waits for its turn.
    Leader { pinned: bool },
    /// It runs whenever this leader runs.
    Sibling(&'g File),
}

/// Opens a system-wide event on `cpu`.
pub fn open(number: u32, config: Config, cpu: u32, place: Place<'_>) -> io::Result<File> {
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
        Place::Leader { pinned } => {
            attr.set_disabled(1);
            attr.set_pinned(u64::from(pinned));
            -1
        }
        Place::Sibling(leader) => leader.as_raw_fd(),
    };
    // SAFETY: the structure is complete and says its size; the event samples nothing and writes to no memory of ours.
    let fd = unsafe { perf::perf_event_open(&raw mut attr, -1, cpu, group, PERF_FLAG_FD_CLOEXEC.into()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { File::from_raw_fd(fd) })
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

fn checked(ret: libc::c_int) -> io::Result<()> {
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
