//! Interrupts as user space sees them: from the trigger to the wake-up of a thread that waits for the event counter.

mod armed;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pciescope_core::outcome::{CALIBRATION, ENTRY_TO_ACK, Sample, SampleKind, TRIGGER_TO_HANDLER};
use pciescope_core::record::{Failure, Method, Metric};
use pciescope_core::{Histogram, IrqPlan, IrqSource, Outcome};

use super::Vfio;
use crate::probe::clock::{self, Scale, to_ticks};
use crate::probe::interrupts::{self, Affinity, Counts, Line};
use crate::probe::sys::{self, EventFd, Locked, Pinned, RealTime};
use crate::probe::trigger::Kind;
use crate::probe::userspace::{calibration, not_pinned};
use crate::probe::{Probe as _, Sampled, Slice, Watch, failure};
use crate::{Error, Root};
use armed::{Armed, Fired};

/// Interrupts after each move of affinity that are not counted.
const WARM_UP: u32 = 2;
/// How long another CPU waits before it triggers, so that the waiting thread is asleep.
const SETTLE_NS: u64 = 30_000;
/// At a fixed rate: how long before a trigger its thread wakes up.
const AWAKE: Duration = Duration::from_micros(200);
/// How often the probe asks whether the user wants the run to end.
const POLL: Duration = Duration::from_millis(20);

/// Checks a plan against the device and its trigger, and enables the vectors that are wanted, after clearing what is left
/// of earlier interrupts.
fn arm<'v>(vfio: &'v mut Vfio, plan: &IrqPlan) -> Result<(&'v Vfio, Armed<'v>, Vec<u16>), Error> {
    let bdf = vfio.bdf;
    let cannot = |why: String| Error::Unsupported { bdf, backend: "vfio", what: plan.source.name(), why };
    clock::check().map_err(cannot)?;
    if matches!(plan.source, IrqSource::Retrigger | IrqSource::Inject) {
        return Err(cannot("only the kernel module can; --raised-by loopback is VFIO's control arm".to_owned()));
    }
    let (kind, index, granted) = vfio.interrupts().ok_or_else(|| cannot("the device has no interrupt".to_owned()))?;
    let mut limit = u16::try_from(granted).unwrap_or(u16::MAX);
    let mut windows = None;
    if plan.source == IrqSource::Hardware {
        let Some(trigger) = vfio.trigger() else {
            let (vendor, device) = vfio.ids;
            return Err(cannot(format!("no hardware trigger of {vendor:04x}:{device:04x} is known")));
        };
        limit = limit.min(trigger.vectors(kind));
        let last = trigger.registers_end() - 4;
        windows = Some([vfio.window(0, 0, 4, true)?, vfio.window(0, last, 4, true)?]);
    }
    let vectors: Vec<u16> = if plan.vectors.is_empty() { (0..limit).collect() } else { plan.vectors.clone() };
    if let Some(beyond) = vectors.iter().find(|&&vector| vector >= limit) {
        let why = format!("the device and its trigger have vectors 0 to {}", limit.saturating_sub(1));
        return Err(Error::Plan { bdf, field: "vector", value: beyond.to_string(), why });
    }
    let vfio = &*vfio;
    let enabled = vectors.iter().max().map_or(1, |&vector| usize::from(vector) + 1);
    let events: Result<Vec<EventFd>, _> = (0..enabled).map(|_| EventFd::new()).collect();
    let events = events.map_err(|error| vfio.call("make event counters", error))?;
    let armed =
        Armed { device: &vfio.device, windows, trigger: vfio.trigger(), source: plan.source, kind, index, events };
    // Clear left-over causes first: one would count as an interrupt.
    armed.silence();
    let counters: Vec<&EventFd> = armed.events.iter().collect();
    let enabled = vfio.device.enable_interrupts(index, &counters);
    enabled.map_err(|error| vfio.call("enable the device's interrupts", error))?;
    Ok((vfio, armed, vectors))
}

/// Times the interrupts of a plan on one CPU.
pub fn measure(vfio: &mut Vfio, plan: &IrqPlan, slice: &Slice, watch: &dyn Watch) -> Result<Sampled, Error> {
    let cpu = slice.only_cpu(vfio.bdf)?;
    let (vfio, armed, vectors) = arm(vfio, plan)?;
    let mut method = Method { gap_ns: plan.interval_ns, emulated: vfio.emulated, ..clock::method("vfio") };
    let total = slice.count.saturating_mul(vectors.len() as u64);
    let hz = method.clock_hz;
    let share_ns = slice.duration_ns / vectors.len().max(1) as u64;
    let mut run = RunState {
        root: &vfio.root,
        vfio,
        armed: &armed,
        plan,
        count: if slice.count == 0 { u64::MAX } else { slice.count },
        share: (slice.duration_ns > 0).then(|| to_ticks(share_ns, hz).max(1)),
        until: None,
        cpu,
        watch,
        scale: Scale { hz, accesses: 1 },
        begun: clock::start(),
        done: 0,
        total,
        samples: Vec::new(),
        moved: None,
        failure: None,
    };
    watch.progress(0, total);
    let locked = Locked::now();
    // A thread of its own: its affinity and priority end with it.
    let (mut outcomes, real_time) = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let real_time = RealTime::now();
            (run.all(&vectors), real_time.is_ok())
        });
        thread.join().expect("the measuring thread does not panic")
    });
    watch.progress(run.done, total);
    let RunState { samples, failure, begun, .. } = run;
    let clock_doubt = clock::doubt(method.clock_hz, clock::measured_hz());
    outcomes.iter_mut().for_each(|outcome| outcome.warnings.extend(clock_doubt.clone()));
    method.notes.extend([
        "trigger_to_handler ends when a thread of user space has read the event counter: it holds the kernel's \
         handler, the wake-up and the return from two system calls."
            .to_owned(),
        "entry_to_ack begins at the same moment and holds the acknowledge and the read that waits for it.".to_owned(),
    ]);
    if plan.source == IrqSource::Loopback {
        method.notes.push(
            "The trigger is VFIO's own and raises the event counter directly: no interrupt and no PCIe.".to_owned(),
        );
    }
    if !real_time {
        method.notes.push("SCHED_FIFO was not permitted: other threads may have run first.".to_owned());
    }
    method.notes.extend(locked.err().map(sys::not_locked));
    Ok(Sampled { method, outcomes, samples, begun: Some(begun), failure, ..Sampled::default() })
}

struct RunState<'a> {
    root: &'a Root,
    vfio: &'a Vfio,
    armed: &'a Armed<'a>,
    plan: &'a IrqPlan,
    /// Interrupts per vector.
    count: u64,
    /// Ticks per vector.
    share: Option<u64>,
    /// When the present vector's time is over.
    until: Option<u64>,
    cpu: u32,
    watch: &'a dyn Watch,
    scale: Scale,
    begun: u64,
    done: u64,
    total: u64,
    samples: Vec<Sample>,
    /// The vector's line of /proc/interrupts after the warm-up, which may land on the CPU of before.
    moved: Option<Line>,
    failure: Option<Failure>,
}

/// The result of a wait.
enum Waited {
    /// The counter's value and the stamp behind reading it.
    Came(u64, u64),
    Late,
    Ended,
}

impl RunState<'_> {
    fn all(&mut self, vectors: &[u16]) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for &vector in vectors {
            if self.failure.is_some() {
                break;
            }
            let mut outcome = Outcome { cpu: self.cpu, index: vector, ..Outcome::default() };
            self.one(vector, &mut outcome);
            if outcome.error.is_none() {
                // The user or the device ended the run: this vector's figures are incomplete.
                outcome.error = self.failure.clone();
            }
            outcomes.push(outcome);
        }
        outcomes
    }

    /// One vector.
    fn one(&mut self, vector: u16, outcome: &mut Outcome) {
        let (bdf, cpu) = (self.vfio.bdf(), self.cpu);
        let _pinned = match Pinned::to(cpu) {
            Ok(pinned) => pinned,
            Err(error) => {
                self.failure = Some(not_pinned(bdf, cpu, &error));
                return;
            }
        };
        let line = self.line(vector);
        if line.is_none() && self.plan.source == IrqSource::Hardware {
            self.failure = Some(self.no_line(vector));
            return;
        }
        outcome.irq = line.as_ref().map(|line| line.irq);
        let affinity = match self.move_here(line.as_ref()) {
            Ok(affinity) => affinity,
            Err(error) => {
                let why = format!("vector {vector} cannot be moved to CPU {cpu}: {error}");
                outcome.error =
                    Some(failure::refused(bdf, &why, "interrupts that the kernel manages stay where they are"));
                return;
            }
        };
        if let (Some(trigger), IrqSource::Hardware) = (self.armed.trigger, self.plan.source) {
            trigger.enable(vector, self.armed.kind).into_iter().for_each(|write| self.armed.store(write));
        }
        outcome.histograms.insert(CALIBRATION.to_owned(), calibration(self.scale.hz));
        let other = self.plan.trigger_cpu.filter(|&other| other != cpu);
        let mut counts = Counts::default();
        let [to_handler, to_ack] = match other {
            None => {
                let armed = self.armed;
                self.samples(vector, &mut counts, &|| armed.fire(vector).map(Fired::Here))
            }
            Some(other) => self.triggered_from(other, vector, &mut counts),
        };
        match (self.moved.take(), self.line(vector)) {
            (Some(moved), Some(after)) => (_, counts.wrong_cpu) = interrupts::split(&moved, &after, cpu),
            (_, None) if self.plan.source == IrqSource::Hardware && self.failure.is_none() => {
                self.failure = self.vfio.gone().or_else(|| Some(self.no_line(vector)));
            }
            // Without a sample after the warm-up there is nothing to split: the time was over before.
            _ => {}
        }
        drop(affinity);
        if self.failure.is_none() && counts.triggers > 0 && counts.handled == 0 {
            let why = failure::timeout(bdf, self.plan.timeout_ns);
            outcome.error = Some(why.clone());
            self.failure = Some(why);
        }
        outcome.histograms.insert(TRIGGER_TO_HANDLER.to_owned(), to_handler);
        outcome.histograms.insert(ENTRY_TO_ACK.to_owned(), to_ack);
        outcome.metrics = counts.metrics().collect();
        outcome.metrics.insert("samples_lost".to_owned(), Metric::count(0));
    }

    /// The name that vfio-pci gives a vector.
    fn line_name(&self, vector: u16) -> String {
        let bdf = self.vfio.bdf();
        match self.armed.kind {
            Kind::Msix => format!("vfio-msix[{vector}]({bdf})"),
            Kind::Msi => format!("vfio-msi[{vector}]({bdf})"),
            Kind::Intx => format!("vfio-intx({bdf})"),
        }
    }

    /// The vector's line of /proc/interrupts.
    fn line(&self, vector: u16) -> Option<Line> {
        interrupts::parse_line(&self.root.read("/proc/interrupts").ok()?, &self.line_name(vector))
    }

    /// Hardware's interrupts whose CPU nobody can see.
    fn no_line(&self, vector: u16) -> Failure {
        let why = format!(
            "/proc/interrupts has no line {}: vector {vector} cannot be moved to CPU {}, and nothing shows where it arrives",
            self.line_name(vector),
            self.cpu
        );
        failure::refused(self.vfio.bdf(), &why, "a container may hide the file: run it on the host")
    }

    fn move_here(&self, line: Option<&Line>) -> Result<Option<Affinity>, Error> {
        let (Some(line), IrqSource::Hardware) = (line, self.plan.source) else { return Ok(None) };
        let affinity = Affinity::of(self.root, line.irq)?;
        affinity.set(self.cpu)?;
        Ok(Some(affinity))
    }

    /// The samples with a thread on another CPU that triggers.
    fn triggered_from(&mut self, other: u32, vector: u16, counts: &mut Counts) -> [Histogram; 2] {
        let asked = AtomicU64::new(0);
        let answered = AtomicU64::new(0);
        let stamp = AtomicU64::new(0);
        let over = AtomicBool::new(false);
        let bad = AtomicBool::new(false);
        let settle = SETTLE_NS * self.scale.hz / 1_000_000_000;
        let armed = self.armed;
        std::thread::scope(|scope| {
            let (asked, answered, stamp, over, bad) = (&asked, &answered, &stamp, &over, &bad);
            scope.spawn(move || {
                let pinned = Pinned::to(other);
                bad.store(pinned.is_err(), Ordering::Release);
                let mut seen = 0;
                while !over.load(Ordering::Acquire) {
                    let number = asked.load(Ordering::Acquire);
                    if number == seen {
                        // Not a spin: this thread is a real-time one too, and the kernel stops those that never pause.
                        std::thread::sleep(Duration::from_micros(20));
                        continue;
                    }
                    seen = number;
                    let from = clock::start();
                    while clock::start().wrapping_sub(from) < settle {
                        std::hint::spin_loop();
                    }
                    // Answers in any case: the other thread waits for it.
                    match pinned.as_ref().map(|_| armed.fire(vector)) {
                        Ok(Ok(start)) => stamp.store(start, Ordering::Release),
                        _ => bad.store(true, Ordering::Release),
                    }
                    answered.store(number, Ordering::Release);
                }
            });
            let histograms = self.samples(vector, counts, &|| {
                if bad.load(Ordering::Acquire) {
                    return Err(io::Error::from_raw_os_error(libc::EINVAL));
                }
                let number = asked.fetch_add(1, Ordering::AcqRel) + 1;
                Ok(Fired::There { answered, stamp, number })
            });
            over.store(true, Ordering::Release);
            histograms
        })
    }

    /// Ticks from one trigger to the next; `None` without a fixed rate.
    fn period(&self) -> Option<u64> {
        (self.plan.interval_ns > 0).then(|| to_ticks(self.plan.interval_ns, self.scale.hz).max(1))
    }

    /// Warm-up, then the slice's count or time.
    fn samples<'s>(
        &mut self,
        vector: u16,
        counts: &mut Counts,
        fire: &dyn Fn() -> io::Result<Fired<'s>>,
    ) -> [Histogram; 2] {
        let mut histograms = [Histogram::default(), Histogram::default()];
        let bdf = self.vfio.bdf();
        // An interrupt that is left over from the vector's last turn.
        let _ = self.armed.events[usize::from(vector)].take();
        let period = self.period();
        // The time of the last trigger; the warm-up's end is the first.
        let mut due = None;
        self.until = self.share.map(|share| clock::start().saturating_add(share));
        let warm_up = if self.plan.source == IrqSource::Hardware { WARM_UP } else { 0 };
        // At a fixed rate the missed times are part of the count.
        while counts.triggers + counts.missed < self.count && !self.is_over(clock::start()) {
            let is_warm_up = counts.warmup_triggers < u64::from(warm_up);
            if !is_warm_up {
                let last = *due.get_or_insert_with(|| {
                    self.moved = self.line(vector);
                    clock::start()
                });
                let next = period.map_or(Some(last), |period| self.wait_until(last, period, counts));
                if next.is_none() {
                    break;
                }
                due = next;
            }
            let event = &self.armed.events[usize::from(vector)];
            counts.extra += event.take().unwrap_or(0);
            let fired = match fire() {
                Ok(fired) => fired,
                Err(error) => {
                    let why = format!("vector {vector} could not be triggered: {error}");
                    self.failure = Some(failure::refused(bdf, &why, "is the CPU of --trigger-cpu online?"));
                    break;
                }
            };
            if is_warm_up {
                counts.warmup_triggers += 1
            } else {
                counts.triggers += 1
            }
            let waited = loop {
                match self.wait(event) {
                    // It came before its trigger, so it is a second message of the interrupt before.
                    Waited::Came(times, entry) if entry < fired.stamp() => counts.extra += times,
                    other => break other,
                }
            };
            let is_silent = matches!(waited, Waited::Late);
            match waited {
                Waited::Came(times, entry) => {
                    // The time of the acknowledge does not include the wait for the other CPU's stamp.
                    let begin = if matches!(fired, Fired::There { .. }) { clock::start() } else { entry };
                    self.armed.acknowledge(vector);
                    let (acknowledged, _) = clock::end();
                    counts.extra += times - 1;
                    if is_warm_up {
                        counts.warmup_handled += 1;
                        continue;
                    }
                    counts.handled += 1;
                    let start = fired.stamp();
                    self.file(&mut histograms, [(start, entry), (begin, acknowledged)], vector);
                }
                Waited::Late if is_warm_up => {}
                Waited::Late => counts.lost += 1,
                Waited::Ended => {
                    self.ended(true);
                    break;
                }
            }
            if !is_warm_up {
                let time = due.zip(period);
                let is_late = time.is_some_and(|(due, period)| fired.stamp().saturating_sub(due) > period / 2);
                counts.late += u64::from(is_late);
                self.done += 1;
            }
            // An interrupt that did not come may be the first sign that the device is gone.
            if self.ended(is_silent) {
                break;
            }
        }
        histograms
    }

    /// Whether the vector's time is over at this tick.
    fn is_over(&self, tick: u64) -> bool {
        self.until.is_some_and(|until| tick >= until)
    }

    /// Waits until the absolute time of the next trigger, and returns it; counts those that have passed. `None` if the
    /// vector's time is over before it.
    fn wait_until(&self, due: u64, interval: u64, counts: &mut Counts) -> Option<u64> {
        let mut next = due + interval;
        let now = clock::start();
        if now > next {
            // One time of the count is left for the trigger that is waited for.
            let left = self.count - counts.triggers - counts.missed;
            let passed = ((now - next) / interval).min(left.saturating_sub(1));
            counts.missed += passed;
            next += passed * interval;
        }
        if self.is_over(next) {
            return None;
        }
        // Sleep for most of the time, as above. Spin for the rest, so that the trigger is on time.
        let left = Duration::from_nanos(self.scale.at_ns(next.saturating_sub(clock::start())));
        if left > AWAKE * 2 {
            std::thread::sleep(left - AWAKE);
        }
        while clock::start() < next {
            std::hint::spin_loop();
        }
        Some(next)
    }

    fn wait(&self, event: &EventFd) -> Waited {
        let until = Instant::now() + Duration::from_nanos(self.plan.timeout_ns);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let came = event.wait(left.min(POLL)).and_then(|_| event.take());
            let entry = clock::start();
            match came {
                Ok(0) if left.is_zero() => return Waited::Late,
                Ok(0) if self.watch.is_stopped() => return Waited::Ended,
                Ok(0) => {}
                Ok(times) => return Waited::Came(times, entry),
                // Reading our own counter does not fail. If it does, the interrupt counts as not seen.
                Err(_) => return Waited::Late,
            }
        }
    }

    fn file(&mut self, to: &mut [Histogram; 2], spans: [(u64, u64); 2], vector: u16) {
        let at_ns = self.scale.at_ns(spans[0].0.saturating_sub(self.begun));
        let kinds = [SampleKind::TriggerToHandler, SampleKind::EntryToAck];
        for (number, histogram) in to.iter_mut().enumerate() {
            let (start, end) = spans[number];
            let ps = self.scale.ps(end.saturating_sub(start));
            // A histogram holds far longer times than the time-out.
            let _ = histogram.record_ps_at(ps, at_ns);
            if self.plan.raw || self.plan.why.is_some() {
                self.samples.push(Sample { at_ns, value_ps: ps, cpu: self.cpu, index: vector, kind: kinds[number] });
            }
        }
    }

    /// Whether the run is over before its end; remembers why. Asks the device now and then, and where it `is_doubtful`.
    fn ended(&mut self, is_doubtful: bool) -> bool {
        let bdf = self.vfio.bdf();
        if self.done % 64 == 0 {
            self.watch.progress(self.done, self.total);
        }
        if self.done % 64 == 0 || is_doubtful {
            self.failure = self.vfio.gone();
        }
        if self.armed.is_gone() {
            self.failure = Some(failure::removed(bdf));
        } else if self.failure.is_none() && self.watch.is_stopped() {
            self.failure = Some(failure::interrupted(bdf, self.done));
        }
        self.failure.is_some()
    }
}

#[cfg(test)]
mod tests;
