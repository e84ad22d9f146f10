//! Workloads of known traffic. Counters are compared with them.
//!
//! Each workload reports how many bytes it moved in each direction. The number comes from the workload itself and not
//! from a counter.

pub mod fio;
pub mod memory;
pub mod readout;

use std::io;

/// Whether a workload shall end early.
pub type IsStopped<'a> = &'a (dyn Fn() -> bool + Sync);

/// What a workload moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes from the device or from memory to the CPU's side.
    pub read_bytes: u64,
    /// Bytes to the device or to memory.
    pub written_bytes: u64,
    /// How long it took, in nanoseconds.
    pub ns: u64,
}

/// A workload could not be run, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program is not installed.
    #[error("cannot start {program}")]
    Start {
        /// Its name.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A program failed.
    #[error("{program} ended with {status}: {last}")]
    Ended {
        /// Its name.
        program: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// The last line of what it said.
        last: String,
    },
    /// A program printed something else than expected.
    #[error("{program} printed no report that can be understood: {why}")]
    Report {
        /// Its name.
        program: String,
        /// What is missing.
        why: String,
    },
    /// A workload would destroy data.
    #[error("{target}: not written to: {why}")]
    Destructive {
        /// The disk.
        target: String,
        /// What it holds.
        why: String,
    },
    /// The device that is read failed.
    #[error(transparent)]
    Device(#[from] pciescope_hw::Error),
    /// Memory on a node cannot be allocated.
    #[error("cannot allocate {bytes} bytes{}", node.map(|node| format!(" on NUMA node {node}")).unwrap_or_default())]
    Memory {
        /// Bytes.
        bytes: usize,
        /// The node, where one was asked for.
        node: Option<u32>,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A thread cannot run on a CPU.
    #[error("cannot run on CPU {cpu}")]
    Cpu {
        /// The CPU.
        cpu: u32,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A thread cannot be created.
    #[error("cannot start a thread for CPU {cpu}")]
    Thread {
        /// Its CPU.
        cpu: u32,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// What the user can do about it, where there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Device(err) => err.hint(),
            Error::Start { program, source } if source.kind() == io::ErrorKind::NotFound => {
                Some(format!("install it (`apt-get install {program}`), or name it with its path"))
            }
            Error::Destructive { .. } => {
                Some("take a disk without data, or a file; --destroy-data writes anyway".to_owned())
            }
            Error::Memory { .. } => Some("ask for less with --size, or for a node that has memory".to_owned()),
            Error::Cpu { .. } => Some("see /sys/devices/system/cpu/online, and the cpuset of this shell".to_owned()),
            Error::Thread { .. } => Some(pciescope_hw::placement::THREAD_LIMITS.to_owned()),
            _ => None,
        }
    }
}
