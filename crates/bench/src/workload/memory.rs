//! Memory traffic from pinned threads, like lmbench's bw_mem with `rd`, `fwr` and `cp`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pciescope_hw::memory::{self, Buffer, Pinned};

use super::{Error, IsStopped, Moved};

pciescope_core::named! {
    /// What the threads do.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Pattern {
        /// Every word is read.
        Read => "rd",
        /// Every word is stored around the cache: no line is read for ownership.
        Fill => "fwr",
        /// Every word of one buffer is stored around the cache into another.
        Copy => "cp",
    }
    /// As it is called in tables: bw_mem's word for it.
    fn name
}

/// One thread's share: a CPU and its buffers.
#[derive(Debug)]
struct Worker {
    cpu: u32,
    from: Buffer,
    /// Where a copy goes.
    to: Option<Buffer>,
}

/// Threads that are ready to move data. Their memory is touched, so that nothing but the pattern moves.
#[derive(Debug)]
pub struct Generator {
    pattern: Pattern,
    workers: Vec<Worker>,
}

impl Generator {
    /// A thread for each of `cpus`, each with buffers of `bytes` bytes on NUMA node `node`.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn new(pattern: Pattern, cpus: &[u32], node: Option<u32>, bytes: usize) -> Result<Self, Error> {
        let buffer = || Buffer::on_node(bytes, node).map_err(|source| Error::Memory { bytes, node, source });
        let worker = |cpu: &u32| {
            let to = if pattern == Pattern::Copy { Some(buffer()?) } else { None };
            Ok(Worker { cpu: *cpu, from: buffer()?, to })
        };
        Ok(Generator { pattern, workers: cpus.iter().map(worker).collect::<Result<_, Error>>()? })
    }

    /// What the threads do.
    pub fn pattern(&self) -> Pattern {
        self.pattern
    }

    /// Moves data for `duration`, or until the run must end. A pass that has begun is completed, so that all moved
    /// bytes are counted.
    ///
    /// # Errors
    /// [`Error::Cpu`] where a thread cannot be pinned, [`Error::Thread`] where one cannot be created.
    pub fn run(&mut self, duration: Duration, is_stopped: IsStopped) -> Result<Moved, Error> {
        let pattern = self.pattern;
        let (start, moved) = (Barrier::new(self.workers.len()), AtomicU64::new(0));
        let are_all_there = Mutex::new(false);
        let (start, moved, are_all_there) = (&start, &moved, &are_all_there);
        let ns = std::thread::scope(|scope| {
            let work = |worker: &mut Worker| {
                let pinned = Pinned::to(worker.cpu).map_err(|source| Error::Cpu { cpu: worker.cpu, source });
                if !*are_all_there.lock().unwrap_or_else(PoisonError::into_inner) {
                    return Ok(Duration::ZERO);
                }
                start.wait();
                let begin = Instant::now();
                while pinned.is_ok() && begin.elapsed() < duration && !is_stopped() {
                    moved.fetch_add(worker.pass(pattern), Relaxed);
                }
                pinned.map(|_| begin.elapsed())
            };
            // Those that there are wait for this, and do not begin if one cannot be created.
            let mut gate = are_all_there.lock().unwrap_or_else(PoisonError::into_inner);
            let threads: Result<Vec<_>, Error> = self
                .workers
                .iter_mut()
                .map(|worker| {
                    let cpu = worker.cpu;
                    let thread = std::thread::Builder::new().spawn_scoped(scope, move || work(worker));
                    thread.map_err(|source| Error::Thread { cpu, source })
                })
                .collect();
            *gate = threads.is_ok();
            drop(gate);
            let mut longest = Duration::ZERO;
            for thread in threads? {
                let took = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                longest = longest.max(took);
            }
            Ok::<_, Error>(longest.as_nanos() as u64)
        })?;
        let bytes = moved.load(Relaxed);
        Ok(Moved {
            read_bytes: if pattern == Pattern::Fill { 0 } else { bytes },
            written_bytes: if pattern == Pattern::Read { 0 } else { bytes },
            ns,
        })
    }
}

impl Worker {
    /// One pass; gives the bytes that went each way the pattern goes.
    fn pass(&mut self, pattern: Pattern) -> u64 {
        match (pattern, &mut self.to) {
            (Pattern::Copy, Some(to)) => memory::copy(&self.from, to),
            (Pattern::Fill, _) => memory::fill(&mut self.from, 0x5a5a_5a5a_5a5a_5a5a),
            _ => {
                memory::read(&self.from);
            }
        }
        self.from.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(pattern: Pattern) -> Moved {
        let mut generator = Generator::new(pattern, &[0], None, 1 << 20).unwrap();
        let moved = generator.run(Duration::from_millis(20), &|| false).unwrap();
        assert!(moved.ns >= 20_000_000, "{} ns", moved.ns);
        moved
    }

    #[test]
    fn each_pattern_says_which_way_it_moved_whole_passes() {
        let read = run(Pattern::Read);
        assert!(read.read_bytes > 0 && read.read_bytes % (1 << 20) == 0 && read.written_bytes == 0, "{read:?}");
        let fill = run(Pattern::Fill);
        assert!(fill.written_bytes > 0 && fill.read_bytes == 0, "{fill:?}");
        let copy = run(Pattern::Copy);
        assert!(copy.read_bytes > 0 && copy.read_bytes == copy.written_bytes, "{copy:?}");
    }

    #[test]
    fn a_stop_ends_it_early_and_a_bad_cpu_is_named() {
        let mut generator = Generator::new(Pattern::Read, &[0], None, 1 << 12).unwrap();
        let begin = Instant::now();
        let moved = generator.run(Duration::from_secs(60), &|| true).unwrap();
        assert_eq!(moved.read_bytes, 0);
        assert!(begin.elapsed() < Duration::from_secs(30));
        let mut generator = Generator::new(Pattern::Read, &[0, 9999], None, 1 << 12).unwrap();
        let refused = generator.run(Duration::from_millis(1), &|| false);
        assert!(matches!(refused, Err(Error::Cpu { cpu: 9999, .. })), "{refused:?}");
    }
}
