//! What the kernel lets us sample.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use super::super::ring::SAMPLE_TYPE;
use super::super::{Error, sys};
use super::{Kind, RING, Sampling, Whom};
use crate::Root;

/// What the kernel agreed to.
#[derive(Debug, Clone)]
pub(super) struct Agreed {
    pub sampled: sys::Sampled,
    pub kind: Kind,
    pub notes: Vec<String>,
}

/// Finds out what the kernel lets us sample, by trying it on this thread.
pub(super) fn agree(root: &Root, whom: Whom<'_>, sampling: &Sampling) -> Result<Agreed, Error> {
    let mut notes = Vec::new();
    let most = root.number("/proc/sys/kernel/perf_event_max_sample_rate").unwrap_or(u64::MAX).max(1);
    let hz = u64::from(sampling.hz.max(1)).min(most);
    if hz != u64::from(sampling.hz) {
        notes.push(format!("sampled at {hz} Hz instead of {}: kernel.perf_event_max_sample_rate", sampling.hz));
    }
    let kinds: &[Kind] = match sampling.kind {
        Some(Kind::Cycles) => &[Kind::Cycles],
        Some(Kind::Clock) => &[Kind::Clock],
        None if has_unlike_cpus(root) => {
            notes.push("sampled by the kernel's clock: this machine's CPUs have unlike counters of cycles".to_owned());
            &[Kind::Clock]
        }
        None => &[Kind::Cycles, Kind::Clock],
    };
    let is_inherited = whom == Whom::Process;
    let wake_at = RING as u32 / 2;
    let mut refused = (kinds[0], io::Error::from_raw_os_error(libc::ENOENT));
    for kind in kinds {
        let event = kind.event();
        let all = sys::Sampled {
            event,
            hz,
            sample_type: SAMPLE_TYPE,
            is_user_only: false,
            is_inherited,
            is_new: true,
            wake_at,
        };
        match tried(all, *kind) {
            Ok(sampled) => {
                notes.extend(sampled.is_user_only.then(|| no_kernel(root)));
                return Ok(Agreed { sampled, kind: *kind, notes });
            }
            Err(error) => refused = (*kind, error),
        }
        if *kind == Kind::Cycles && kinds.len() > 1 {
            notes.push(format!(
                "sampled by the kernel's clock, as cycles cannot be ({}): code that has interrupts off is counted where \
                 they come on again",
                in_words(&refused.1)
            ));
        }
    }
    Err(refusal(root, refused.0, refused.1))
}

/// What of `all` the kernel lets us have: without what is new to it, and without its own part where that is denied.
fn tried(all: sys::Sampled, kind: Kind) -> io::Result<sys::Sampled> {
    let mut now = all;
    loop {
        let error = match sys::sample(&now, 0, None).and_then(|event| has_counted(&event, kind)) {
            Ok(()) => return Ok(now),
            Err(error) => error,
        };
        match error.raw_os_error() {
            Some(libc::EINVAL) if now.is_new => now.is_new = false,
            Some(libc::EACCES | libc::EPERM) if !now.is_user_only => now.is_user_only = true,
            _ => return Err(error),
        }
    }
}

fn in_words(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => "the machine shows no counter of them".to_owned(),
        _ => error.to_string(),
    }
}

pub(super) fn no_kernel(root: &Root) -> String {
    format!(
        "only user space is sampled, and percentages are of that: perf_event_paranoid is {} and the program has no CAP_PERFMON",
        root.text("/proc/sys/kernel/perf_event_paranoid").as_deref().unwrap_or("not known")
    )
}

/// Whether there are several kinds of CPUs, each with a PMU of its own. The general event opens on one of them only.
pub(super) fn has_unlike_cpus(root: &Root) -> bool {
    const PMUS: &str = "/sys/bus/event_source/devices";
    // A core's PMU says which CPUs it is on, others where they are read.
    root.names(PMUS).iter().filter(|name| root.exists(format!("{PMUS}/{name}/cpus"))).count() > 1
}

/// A virtual machine may open the counter of cycles and never count.
fn has_counted(event: &File, kind: Kind) -> io::Result<()> {
    if kind == Kind::Clock {
        return Ok(());
    }
    sys::enable(event)?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2) {
        std::hint::spin_loop();
    }
    sys::disable(event)?;
    match sys::counts(event)? {
        (0, ..) => Err(io::Error::other("the counter stands still")),
        _ => Ok(()),
    }
}

pub(super) fn name(kind: Kind) -> String {
    format!("sampling by {}", kind.name())
}

pub(super) fn refusal(root: &Root, kind: Kind, source: io::Error) -> Error {
    let event = name(kind);
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            Error::Permission { event, paranoid: root.text("/proc/sys/kernel/perf_event_paranoid"), source }
        }
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENOSYS) => Error::Absent(event, source),
        Some(libc::EMFILE | libc::ENFILE) => Error::Files(event, source),
        Some(libc::EBUSY) => Error::Busy(event, source),
        Some(libc::ESRCH) => Error::Call { event, what: "find a thread to sample", source },
        _ => Error::Call { event, what: "open the event", source },
    }
}
