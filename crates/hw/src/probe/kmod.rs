//! The kernel module pcilat: interrupts off around each access, stamps in the handler, the tail in its own buckets.

mod errno;
mod results;
pub mod uapi;

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use pciescope_core::outcome::{CALIBRATION, ENTRY_TO_ACK, LATENCY, Sample, SampleKind, TRIGGER_TO_HANDLER};
use pciescope_core::record::Method;
use pciescope_core::{Bdf, CpuList, Function, IrqPlan, IrqSource, MmioPlan, MmioTest, Outcome, PathPlan};

use self::results::{KernelHistogram, KernelRun, Ring, bucket_of, counts, to_histogram, to_outcome};
use self::uapi::*;
use super::clock::{self, Scale};
use super::register::Access;
use super::sys::{self, Interruptible};
use super::{Probe, Sampled, Slice, Watch, failure};
use crate::{Error, Root};

/// How often the run's progress is read, and the user's wish to end it.
const POLL: Duration = Duration::from_millis(25);
/// Interrupts after each move of affinity that are not counted: x86 moves an edge interrupt only when it next comes.
const WARM_UP: u32 = 2;

/// One function bound to the module.
#[derive(Debug)]
pub struct Kmod {
    bdf: Bdf,
    node: PathBuf,
    file: File,
    info: Info,
    emulated: bool,
}

/// The module's node of a function.
pub fn node(root: &Root, bdf: Bdf) -> PathBuf {
    root.path(format!("/dev/pcilat/{bdf}"))
}

impl Kmod {
    /// Opens the module's node of a function.
    ///
    /// # Errors
    /// [`Error::Call`] if the node cannot be opened; [`Error::Unsupported`] if the module speaks another version
    /// of the interface or the node belongs to another function.
    pub fn open(root: &Root, function: &Function, bdf: Bdf) -> Result<Self, Error> {
        let node = node(root, bdf);
        let file = OpenOptions::new().read(true).write(true).open(&node).map_err(|source| {
            let bind = format!("add --bind, or for many runs `pciescope bind {bdf} --driver pcilat`");
            let hint = match source.raw_os_error() {
                Some(libc::ENOENT) => Some(bind.as_str()),
                Some(libc::EACCES | libc::EPERM) => Some("the node needs root with CAP_SYS_RAWIO"),
                _ => None,
            };
            Error::call(bdf, "kmod", format!("open {}", node.display()), source, hint)
        })?;
        let mut info = Info { size: size_of::<Info>() as u32, ..Info::default() };
        // SAFETY: PCILAT_IOC_INFO takes a pcilat_info, which Info mirrors (a test compares them).
        let asked = unsafe { sys::ioctl(&file, PCILAT_IOC_INFO, &mut info) };
        let what = || format!("ask {} for the device", node.display());
        asked.map_err(|source| Error::call(bdf, "kmod", what(), source, None))?;
        let kmod = Kmod { bdf, node, file, info, emulated: function.emulated.is_some() };
        if info.abi != PCILAT_ABI {
            let why = format!("the module speaks version {} of the interface, this program {PCILAT_ABI}", info.abi);
            return Err(kmod.cannot("be used", why));
        }
        if (info.domain, info.bus, info.devfn) != (bdf.domain, bdf.bus, bdf.devfn()) || info.clock_hz == 0 {
            return Err(kmod.cannot("be used", format!("{} belongs to another device", kmod.node.display())));
        }
        Ok(kmod)
    }

    /// What the module says of the device.
    pub fn info(&self) -> &Info {
        &self.info
    }

    fn cannot(&self, what: &'static str, why: String) -> Error {
        Error::Unsupported { bdf: self.bdf, backend: "kmod", what, why }
    }

    fn call(&self, what: impl Into<String>, source: io::Error) -> Error {
        let hint = match source.raw_os_error() {
            Some(libc::EPERM) => Some(
                "it needs CAP_SYS_RAWIO and a kernel that is not locked down; --backend vfio works with Secure Boot",
            ),
            Some(libc::EBUSY) => Some("another run on this device is going on"),
            Some(libc::EOPNOTSUPP) => Some("the device or this kernel lacks the source, the width or the vectors"),
            Some(libc::EINVAL | libc::E2BIG | libc::ENOTTY) => {
                Some("the module and the program may be of different versions")
            }
            _ => None,
        };
        Error::call(self.bdf, "kmod", what, source, hint)
    }

    fn status(&self) -> io::Result<Status> {
        let mut status = Status { size: size_of::<Status>() as u32, ..Status::default() };
        // SAFETY: PCILAT_IOC_STATUS takes a pcilat_status, which Status mirrors.
        unsafe { sys::ioctl(&self.file, PCILAT_IOC_STATUS, &mut status) }?;
        Ok(status)
    }

    fn slot(&self, slot: u32) -> io::Result<Slot> {
        let mut figures = Slot { size: size_of::<Slot>() as u32, slot, ..Slot::default() };
        // SAFETY: PCILAT_IOC_SLOT takes a pcilat_slot, which Slot mirrors.
        unsafe { sys::ioctl(&self.file, PCILAT_IOC_SLOT, &mut figures) }?;
        Ok(figures)
    }

    fn buckets(&self, slot: u32, what: u32, first: u32, into: &mut [u64]) -> io::Result<()> {
        let mut request = Hist {
            size: size_of::<Hist>() as u32,
            slot,
            what,
            first,
            count: into.len() as u32,
            reserved0: 0,
            buckets: into.as_mut_ptr() as u64,
        };
        // SAFETY: PCILAT_IOC_HIST takes a pcilat_hist, which Hist mirrors; `buckets` is room for `count` numbers and
        // lives past the call.
        unsafe { sys::ioctl(&self.file, PCILAT_IOC_HIST, &mut request) }?;
        Ok(())
    }

    /// Measures a request on these CPUs, all at once if there are several. `complete` adds to an outcome what its kind of
    /// run has beside histograms.
    fn measure(
        &self,
        cpus: &CpuList,
        vectors: &[u32],
        request: &Run,
        watch: &dyn Watch,
        complete: &dyn Fn(&Slot, &mut Outcome),
    ) -> Result<Sampled, Error> {
        let measured_hz = clock::measured_hz();
        let finished = self.run(cpus, vectors, *request, watch)?;
        let (samples, interrupted, samples_lost) = self.samples(&finished);
        let names = match request.kind {
            PCILAT_KIND_IRQ => [TRIGGER_TO_HANDLER, ENTRY_TO_ACK, CALIBRATION],
            _ => [LATENCY, "", CALIBRATION],
        };
        let warning = clock::doubt(self.info.clock_hz, measured_hz);
        let failing_cpu = u32::try_from(finished.status.error_cpu).ok();
        let failure = finished.failure;
        let mut outcomes = Vec::new();
        for (slot, fetched) in finished.slots {
            let mut outcome = to_outcome(&slot, fetched, names);
            complete(&slot, &mut outcome);
            outcome.warnings.extend(warning.clone());
            if outcome.error.is_none() && failing_cpu == Some(slot.cpu) {
                outcome.error = failure.clone().filter(|failure| failure.code != "interrupted");
            }
            outcomes.push(outcome);
        }
        let begun = Some(finished.status.start).filter(|start| *start > 0);
        Ok(Sampled {
            method: self.method(request, measured_hz),
            outcomes,
            samples,
            interrupted,
            samples_lost,
            begun,
            failure,
            ..Sampled::default()
        })
    }

    /// Runs a request to its end, or until the user stops it, and fetches what came out.
    fn run(&self, cpus: &CpuList, vectors: &[u32], mut request: Run, watch: &dyn Watch) -> Result<KernelRun, Error> {
        let cpus: Vec<u32> = cpus.iter().collect();
        request.size = size_of::<Run>() as u32;
        request.order = if cpus.len() > 1 { PCILAT_ORDER_CONCURRENT } else { PCILAT_ORDER_SEQUENTIAL };
        (request.cpus, request.ncpus) = (cpus.as_ptr() as u64, cpus.len() as u32);
        if !vectors.is_empty() {
            (request.vectors, request.nvectors) = (vectors.as_ptr() as u64, vectors.len() as u32);
        }
        let before = self.status().map_err(|error| self.call("ask for the state of the last run", error))?;
        let mut ring = Ring::new(request.flags & PCILAT_RUN_RAW != 0);
        let mut stopped = false;
        let ended = std::thread::scope(|scope| {
            let (say, hear) = mpsc::channel();
            let (file, mut request) = (&self.file, request);
            let worker = scope.spawn(move || {
                let target = Interruptible::this_thread()?;
                // The receiver lives until this thread is joined.
                let _ = say.send(target);
                // SAFETY: PCILAT_IOC_RUN takes a pcilat_run, which Run mirrors; the two arrays that it names
                // outlive the scope.
                unsafe { sys::ioctl(file, PCILAT_IOC_RUN, &mut request) }
            });
            let mut target = None;
            loop {
                match hear.recv_timeout(POLL) {
                    Ok(thread) => target = Some(thread),
                    Err(RecvTimeoutError::Timeout) => {}
                    // The worker has dropped its end: the run is over.
                    Err(RecvTimeoutError::Disconnected) => break,
                }
                if let Ok(status) = self.status() {
                    if status.state == PCILAT_STATE_RUNNING {
                        watch.progress(status.done, status.total);
                        ring.drain(&self.file);
                    }
                }
                stopped |= watch.is_stopped();
                if let (true, Some(thread)) = (stopped, target) {
                    // SAFETY: the worker is joined only below.
                    unsafe { thread.interrupt() };
                }
            }
            worker.join().expect("the worker only makes a system call")
        });
        let after = self.status().ok();
        let began = after.is_some_and(|after| after != before || ended.is_ok());
        let failure = match ended {
            Ok(_) => None,
            Err(error) => Some(self.failure(&request, error, after.as_ref().filter(|_| began))?),
        };
        let Some(status) = after.filter(|_| began) else {
            return Ok(KernelRun { failure, ..KernelRun::default() });
        };
        watch.progress(status.done, status.total);
        ring.drain(&self.file);
        let mut slots = Vec::new();
        for number in 0..status.slots {
            let slot = self.slot(number).map_err(|error| self.call(format!("fetch slot {number}"), error))?;
            slots.push((slot, self.histograms(number, &slot)?));
        }
        Ok(KernelRun { slots, records: ring.records, lost: status.raw_lost, failure, status })
    }

    fn histograms(&self, number: u32, slot: &Slot) -> Result<Vec<KernelHistogram>, Error> {
        let mut fetched = Vec::new();
        for what in 0..PCILAT_WHATS {
            let summary = &slot.summary[what as usize];
            let accesses = if what == PCILAT_WHAT_LATENCY { slot.accesses.max(1) } else { 1 };
            let scale = Scale { hz: self.info.clock_hz, accesses };
            let mut buckets = Vec::new();
            let mut first = 0;
            if summary.count > summary.overflow {
                first = bucket_of(summary.min);
                let last = bucket_of(summary.max).max(first);
                buckets = vec![0; (last - first + 1) as usize];
                self.buckets(number, what, first, &mut buckets)
                    .map_err(|error| self.call(format!("fetch the histogram of slot {number}"), error))?;
            }
            fetched.push(to_histogram(summary, first, &buckets, scale));
        }
        Ok(fetched)
    }

    fn method(&self, request: &Run, measured_hz: u64) -> Method {
        let is_irq = request.kind == PCILAT_KIND_IRQ;
        let hz = self.info.clock_hz;
        Method {
            backend: "kmod".to_owned(),
            clock: match self.info.clock {
                PCILAT_CLOCK_TSC => "tsc",
                PCILAT_CLOCK_CNTVCT => "cntvct",
                _ => "unknown",
            }
            .to_owned(),
            clock_hz: hz,
            // The module reads the same counter as user space.
            quantum_ns: clock::quantum_ns(hz, clock::step_ticks()),
            batch: request.batch.max(1),
            gap_ns: if is_irq { request.interval_ns } else { request.gap_ns.into() },
            irqs_off: !is_irq,
            emulated: self.emulated,
            notes: [
                clock::note(hz, measured_hz),
                "Percentiles come from buckets 1/256 wide (middle of the bucket: 0.2 % at most); smallest, largest, \
                 mean and count are exact."
                    .to_owned(),
            ]
            .into_iter()
            .chain(clock::step_note(hz, clock::step_ticks()))
            .collect(),
            ..Method::default()
        }
    }

    /// Raw records become samples; a record whose duration did not fit its field is counted as lost.
    fn samples(&self, finished: &KernelRun) -> (Vec<Sample>, HashMap<(u32, u64), u64>, u64) {
        let accesses = finished.slots.first().map_or(1, |(slot, _)| slot.accesses.max(1));
        let (one, many) = (Scale { hz: self.info.clock_hz, accesses: 1 }, Scale { hz: self.info.clock_hz, accesses });
        let mut lost = finished.lost;
        let mut samples: Vec<Sample> = Vec::with_capacity(finished.records.len());
        let mut interrupted = HashMap::new();
        for record in &finished.records {
            let kind = match u32::from(record.kind_index >> 14) {
                PCILAT_RECORD_LATENCY => SampleKind::Latency,
                PCILAT_RECORD_TRIGGER => SampleKind::TriggerToHandler,
                PCILAT_RECORD_ACK => SampleKind::EntryToAck,
                PCILAT_RECORD_CODE => {
                    let is_its =
                        |of: &&Sample| of.kind == SampleKind::TriggerToHandler && of.cpu == u32::from(record.cpu);
                    let of = samples.last().filter(is_its);
                    interrupted.extend(of.map(|of| ((of.cpu, of.at_ns), record.at)));
                    continue;
                }
                _ => {
                    lost += 1;
                    continue;
                }
            };
            if record.value == u32::MAX {
                lost += 1;
                continue;
            }
            let scale = if kind == SampleKind::Latency { many } else { one };
            samples.push(Sample {
                at_ns: one.at_ns(record.at),
                value_ps: scale.ps(record.value.into()),
                cpu: record.cpu.into(),
                index: record.kind_index & 0x3fff,
                kind,
            });
        }
        samples.sort_by_key(|sample| sample.at_ns);
        (samples, interrupted, lost)
    }
}

/// The only offset that the module reads, of every hop: the first one that x86 reads by ECAM.
const CONFIG_OFFSET: u16 = 0x100;

/// The flag of a run of which every sample is kept.
fn raw(is_kept: bool) -> u32 {
    if is_kept { PCILAT_RUN_RAW } else { 0 }
}

impl Probe for Kmod {
    fn backend(&self) -> &'static str {
        "kmod"
    }

    fn bdf(&self) -> Bdf {
        self.bdf
    }

    fn mmio(&mut self, plan: &MmioPlan, slice: &Slice, watch: &dyn Watch) -> Result<Sampled, Error> {
        let request = Run {
            kind: match plan.test {
                MmioTest::Read => PCILAT_KIND_READ,
                MmioTest::Write => PCILAT_KIND_WRITE,
                MmioTest::WriteRead => PCILAT_KIND_WRITE_READ,
            },
            flags: raw(plan.raw || plan.why.is_some()) | if plan.ones_ok { PCILAT_RUN_ONES_OK } else { 0 },
            count: slice.count,
            duration_ns: slice.duration_ns,
            gap_ns: plan.gap_ns,
            batch: plan.batch.max(1),
            bar: plan.bar.into(),
            width: plan.width.into(),
            offset: plan.offset,
            value: if plan.test == MmioTest::Read { 0 } else { plan.value },
            ..Run::default()
        };
        self.measure(&slice.cpus, &[], &request, watch, &|_, _| {})
    }

    fn path(&mut self, plan: &PathPlan, slice: &Slice, watch: &dyn Watch) -> Result<Sampled, Error> {
        if plan.offset != CONFIG_OFFSET {
            let why = format!("the module reads offset {CONFIG_OFFSET:#x} of every hop; --backend sysfs reads any");
            return Err(self.cannot("read another configuration offset", why));
        }
        let request = Run {
            kind: PCILAT_KIND_CONFIG,
            flags: raw(plan.why.is_some()),
            count: slice.count,
            gap_ns: plan.gap_ns,
            batch: 1,
            width: 4,
            ..Run::default()
        };
        self.measure(&slice.cpus, &[], &request, watch, &|slot, outcome| {
            let (device, function) = (slot.devfn >> 3, slot.devfn & 7);
            outcome.hop = Some(Bdf { domain: slot.domain, bus: slot.bus, device, function });
            if slot.config_offset != u64::from(plan.offset) {
                outcome.warnings.push(failure::no_extended_space(plan.offset, slot.config_offset));
            }
        })
    }

    fn irq(&mut self, plan: &IrqPlan, slice: &Slice, watch: &dyn Watch) -> Result<Sampled, Error> {
        let (source, why) = match plan.source {
            IrqSource::Hardware => (PCILAT_SOURCE_HARDWARE, "no hardware trigger of this device is known"),
            IrqSource::Retrigger => (PCILAT_SOURCE_RETRIGGER, "this kernel does not offer it"),
            IrqSource::Inject => (PCILAT_SOURCE_INJECT, "this kernel was built without CONFIG_GENERIC_IRQ_INJECTION"),
            IrqSource::Loopback => return Err(self.lacks("time VFIO's own eventfd trigger")),
        };
        if self.info.vectors == 0 {
            return Err(self.cannot("time interrupts", "the device has no interrupt".to_owned()));
        }
        if self.info.sources & 1 << source == 0 {
            let (vendor, device) = (self.info.vendor, self.info.device);
            return Err(self.cannot(plan.source.name(), format!("{why} ({vendor:04x}:{device:04x})")));
        }
        let vectors: Vec<u32> = match plan.vectors.as_slice() {
            [] => (0..self.info.vectors).collect(),
            some => some.iter().map(|&vector| vector.into()).collect(),
        };
        if let Some(&beyond) = vectors.iter().find(|&&vector| vector >= self.info.vectors) {
            let why = format!("the module was granted vectors 0 to {}", self.info.vectors - 1);
            return Err(Error::Plan { bdf: self.bdf, field: "vector", value: beyond.to_string(), why });
        }
        let request = Run {
            kind: PCILAT_KIND_IRQ,
            flags: raw(plan.raw || plan.why.is_some()),
            count: slice.count,
            duration_ns: slice.duration_ns,
            source,
            trigger_cpu: plan.trigger_cpu.map_or(-1, |cpu| cpu as i32),
            warmup: WARM_UP,
            interval_ns: plan.interval_ns,
            timeout_ns: plan.timeout_ns,
            ..Run::default()
        };
        slice.only_cpu(self.bdf)?;
        let mut sampled = self.measure(&slice.cpus, &vectors, &request, watch, &|slot, outcome| {
            outcome.irq = Some(slot.irq);
            outcome.metrics.extend(counts(slot).metrics());
            outcome.error = self.slot_failure(slot, plan.timeout_ns);
        })?;
        sampled.method.notes.push(match self.info.irq_type {
            PCILAT_IRQ_MSIX => "The interrupts are MSI-X messages.".to_owned(),
            PCILAT_IRQ_MSI => "The interrupts are MSI messages.".to_owned(),
            _ => "The interrupt is INTx: a level, shared by other devices.".to_owned(),
        });
        Ok(sampled)
    }

    fn read(&mut self, bar: u8, offset: u64, width: u8) -> Result<u64, Error> {
        self.register(bar, offset, width, None)
    }

    fn write(&mut self, bar: u8, offset: u64, width: u8, value: u64) -> Result<(), Error> {
        self.register(bar, offset, width, Some(value)).map(|_| ())
    }
}

impl Kmod {
    fn access(&self, bar: u8, offset: u64, width: u8, is_write: bool) -> Access {
        Access { backend: "kmod", bdf: self.bdf, bar, offset, width, is_write }
    }

    fn register(&mut self, bar: u8, offset: u64, width: u8, value: Option<u64>) -> Result<u64, Error> {
        let mut access = Reg {
            size: size_of::<Reg>() as u32,
            write: value.is_some().into(),
            bar: bar.into(),
            width: width.into(),
            offset,
            value: value.unwrap_or(0),
        };
        // SAFETY: PCILAT_IOC_REG takes a pcilat_reg, which Reg mirrors.
        match unsafe { sys::ioctl(&self.file, PCILAT_IOC_REG, &mut access) } {
            Ok(_) => Ok(access.value),
            Err(error) if error.raw_os_error() == Some(libc::ERANGE) => {
                let len = self.info.bars.get(usize::from(bar)).map_or(0, |bar| bar.size);
                Err(Error::OutsideBar { bdf: self.bdf, bar, offset, len })
            }
            Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => Err(Error::Lost(failure::reset(self.bdf))),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Err(Error::Lost(failure::removed(self.bdf))),
            Err(error) => {
                let access = self.access(bar, offset, width, value.is_some());
                if error.raw_os_error() == Some(libc::EACCES) {
                    return Err(access.msix_refusal());
                }
                Err(self.call(access.what(), error))
            }
        }
    }
}

#[cfg(test)]
mod tests;
