//! A synthetic device: values that repeat, faults on request, no hardware and no waiting.
//!
//! The registers are those of docs/spec/latency-endpoint.md as far as they need no clock.

mod device;
mod machine;
mod options;
mod why;

use std::time::{Duration, Instant};

use pciescope_core::outcome::{CALIBRATION, ENTRY_TO_ACK, LATENCY, Sample, SampleKind, TRIGGER_TO_HANDLER};
use pciescope_core::record::{Failure, Method, Metric};
use pciescope_core::{Bdf, Histogram, IrqPlan, IrqSource, MmioPlan, MmioTest, Outcome, PathPlan};

use self::device::FakeDevice;
pub use self::machine::Machine;
pub use self::options::{KEYS, Options};
use super::interrupts::Counts;
use super::{Probe, Sampled, Slice, Watch, failure};
use crate::Error;

/// A read of the port above for comparison comes after so many samples, and takes this long, in picoseconds.
const CONTROL_EVERY: u64 = 10;
const PORT_PS: u64 = 430_000;

/// The probe of a [`Machine`]'s device.
#[derive(Debug)]
pub struct Fake {
    machine: Machine,
    device: FakeDevice,
    /// Samples since it was opened. A run may consist of many calls; values and faults continue from one to the next.
    sampled: u64,
}

impl Fake {
    /// Opens the device of a synthetic machine.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the option `refuse`.
    pub fn open(options: &Options) -> Result<Self, Error> {
        let machine = Machine::new(options.clone());
        let fake = Fake { device: FakeDevice::new(options.ones_after), machine, sampled: 0 };
        if options.refuse {
            return Err(fake.cannot("be opened", "it was asked to refuse".to_owned()));
        }
        Ok(fake)
    }

    fn cannot(&self, what: &'static str, why: String) -> Error {
        Error::Unsupported { bdf: self.bdf(), backend: self.backend(), what, why }
    }

    fn options(&self) -> &Options {
        &self.machine.options
    }

    fn method(&self, gap_ns: u64, batch: u32) -> Method {
        let quantum_ps = self.options().quantum_ps;
        Method {
            backend: "fake".to_owned(),
            clock: "fake".to_owned(),
            clock_hz: 1_000_000_000_000 / quantum_ps,
            quantum_ns: quantum_ps as f64 / 1e3,
            batch,
            gap_ns,
            irqs_off: true,
            emulated: self.options().emulated,
            notes: vec!["Synthetic values: they say nothing about any hardware.".to_owned()],
            ..Method::default()
        }
    }

    fn outcomes(&self, cpus: &[u32], targets: &[u16], names: &[&str]) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for &cpu in cpus {
            for &index in targets {
                let mut outcome = Outcome { cpu, index, ..Outcome::default() };
                for &name in names.iter().chain(&[CALIBRATION]) {
                    outcome.histograms.insert(name.to_owned(), Histogram::default());
                }
                for n in 0..1000 {
                    let ps = self.noise(cpu, 99, n).quantised(15_000, self.options().quantum_ps, 1);
                    record(&mut outcome, CALIBRATION, ps);
                }
                outcome.metrics.insert("samples_lost".to_owned(), Metric::count(0));
                outcomes.push(outcome);
            }
        }
        outcomes
    }

    /// A CPU's distance from the device, in picoseconds.
    fn place_ps(&self, cpu: u32) -> u64 {
        let o = self.options();
        let far = u64::from(self.machine.node_of(cpu)) * 95_000;
        let core = u64::from(cpu % 5) * 1_500;
        // Machines of one kind differ a little.
        let own = o.salt() % 8_000;
        // 50 bytes, there and back over one link at 2.5 instead of 8 GT/s with four lanes.
        let link = if o.downtrained { 37_000 } else { 0 };
        far + core + own + link + if o.outlier == Some(cpu) { 2_000_000 } else { 0 }
    }

    fn noise(&self, cpu: u32, what: u64, n: u64) -> Noise {
        Noise(mix(self.options().seed ^ self.options().salt() ^ mix(u64::from(cpu) << 32 ^ what << 48 ^ mix(n))))
    }

    /// The CPUs up to the first that this machine does not have, and the failure of that one.
    fn check_cpus(&self, cpus: impl Iterator<Item = u32>) -> (Vec<u32>, Option<Failure>) {
        let mut online = Vec::new();
        for cpu in cpus {
            if cpu >= self.options().cpus || self.options().offline == Some(cpu) {
                return (online, Some(failure::cpu_offline(self.bdf(), Some(cpu))));
            }
            online.push(cpu);
        }
        (online, None)
    }
}

/// A value that looks random and depends only on the seed and the sample's place.
struct Noise(u64);

impl Noise {
    /// A duration around `base_ps`: one-sided jitter, one sample in 1000 with a tail, in whole steps of the clock.
    fn quantised(&self, base_ps: u64, quantum_ps: u64, batch: u32) -> u64 {
        let batch = u64::from(batch.max(1));
        let jitter = base_ps / 64 * (self.0 & 0xff) / 256 + base_ps / 64 * (self.0 >> 8 & 0xff) / 256;
        let tail = if (self.0 >> 16) % 1000 == 0 { base_ps * (1 + (self.0 >> 32 & 0xff)) / 64 } else { 0 };
        let whole = base_ps * batch + jitter + tail;
        (whole + quantum_ps / 2) / quantum_ps * quantum_ps / batch
    }
}

/// The finaliser of splitmix64: numbers that look drawn from numbers that are counted.
pub fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

fn record(outcome: &mut Outcome, name: &str, ps: u64) {
    let histogram = outcome.histograms.get_mut(name).expect("made with the outcome");
    histogram.record_ps(ps, 1).expect("synthetic durations stay below an hour by the options' limits");
}

/// The counts of a run so far.
struct RunState<'a> {
    options: &'a Options,
    bdf: Bdf,
    watch: &'a dyn Watch,
    total: u64,
    done: u64,
    /// Samples of the calls before this one.
    before: u64,
    /// Time on the synthetic clock, in nanoseconds since the start.
    now_ns: u64,
    started: Instant,
}

impl<'a> RunState<'a> {
    fn new(fake: &'a Fake, watch: &'a dyn Watch, total: u64) -> Self {
        watch.progress(0, total);
        RunState {
            options: fake.options(),
            bdf: fake.bdf(),
            watch,
            total,
            done: 0,
            before: fake.sampled,
            now_ns: 0,
            started: Instant::now(),
        }
    }

    /// Advances the clock by a sample of `ps`. Returns why the run cannot go on.
    fn sampled(&mut self, ps: u64, gap_ns: u64) -> Option<Failure> {
        self.done += 1;
        self.now_ns += ps / 1000 + gap_ns;
        let slow = self.options.slow_ns;
        if slow > 0 {
            std::thread::sleep(Duration::from_nanos(slow.min(50_000_000)));
            self.now_ns = self.now_ns.max(self.started.elapsed().as_nanos() as u64);
        }
        if let Some(gone) = self.gone() {
            return Some(gone);
        }
        if self.number() == self.options.hang_after {
            loop {
                std::thread::park();
            }
        }
        if self.number() == self.options.die_after {
            // As the kernel ends a program for want of memory: nothing is written or put back any more.
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
        if slow > 0 || self.done % 1024 == 0 {
            self.watch.progress(self.done, self.total);
            if self.watch.is_stopped() {
                return Some(failure::interrupted(self.bdf, self.done));
            }
        }
        None
    }

    /// Why the device takes no further sample.
    fn gone(&self) -> Option<Failure> {
        let at = |limit: u64| limit > 0 && self.number() >= limit;
        if at(self.options.remove_after) {
            return Some(failure::removed(self.bdf));
        }
        at(self.options.unbind_after).then(|| failure::unbound(self.bdf))
    }

    /// The sample that is next, over all calls.
    fn number(&self) -> u64 {
        self.before + self.done
    }

    fn finish(self, sampled: Sampled) -> (Sampled, u64) {
        self.watch.progress(self.done, self.total);
        let number = self.number();
        (Sampled { samples_lost: self.options.raw_lost.min(sampled.samples.len() as u64), ..sampled }, number)
    }
}

impl Probe for Fake {
    fn backend(&self) -> &'static str {
        "fake"
    }

    fn bdf(&self) -> Bdf {
        self.machine.bdf()
    }

    fn mmio(&mut self, plan: &MmioPlan, slice: &Slice, watch: &dyn Watch) -> Result<Sampled, Error> {
        self.device.check(self.machine.bdf(), plan.bar, plan.offset, plan.width)?;
        let (cpus, ended) = self.check_cpus(slice.cpus.iter());
        let mut outcomes = self.outcomes(&cpus, &[0], &[LATENCY]);
        let mut samples = Vec::new();
        let mut device = self.device.clone();
        let mut run = RunState::new(self, watch, slice.count.saturating_mul(cpus.len() as u64));
        let mut ended = ended.or_else(|| run.gone());
        let (base_ps, what) = match plan.test {
            MmioTest::Read => (480_000, 0),
            MmioTest::Write => (9_000, 1),
            MmioTest::WriteRead => (575_000, 2),
        };
        let load_ps = base_ps / 8 * (cpus.len() as u64).saturating_sub(1).min(8);
        for outcome in &mut outcomes {
            let cpu = outcome.cpu;
            let place_ps = if plan.test == MmioTest::Write { 0 } else { self.place_ps(cpu) };
            let until_ns = match slice.duration_ns {
                0 => u64::MAX,
                duration => run.now_ns.saturating_add(duration),
            };
            let mut left = slice.count;
            while ended.is_none() && (left > 0 || slice.count == 0) && run.now_ns < until_ns {
                left = left.saturating_sub(1);
                let ps = self.noise(cpu, what, run.number()).quantised(
                    base_ps + place_ps + load_ps + self.options().delay_ns * 1000,
                    self.options().quantum_ps,
                    plan.batch,
                );
                let mut ones = false;
                for _ in 0..plan.batch.max(1) {
                    if plan.test != MmioTest::Read {
                        device.write(plan.bar, plan.offset, plan.width, plan.value);
                    }
                    if plan.test != MmioTest::Write {
                        ones |= device.read(plan.bar, plan.offset, plan.width) == device::ones(plan.width);
                    }
                }
                record(outcome, LATENCY, ps);
                if plan.raw || plan.why.is_some() {
                    samples.push(Sample { at_ns: run.now_ns, value_ps: ps, cpu, index: 0, kind: SampleKind::Latency });
                }
                if plan.why.is_some() && run.number() % CONTROL_EVERY == 0 {
                    let (value_ps, kind) = (PORT_PS, SampleKind::Control);
                    samples.push(Sample { at_ns: run.now_ns, value_ps, cpu, index: 0, kind });
                }
                ended = run.sampled(ps, plan.gap_ns.into());
                if ones && !plan.ones_ok {
                    let place = format!("BAR{}:{:#x}", plan.bar, plan.offset);
                    ended = Some(failure::all_ones(self.bdf(), &place, Some(cpu)));
                    outcome.error.clone_from(&ended);
                }
            }
        }
        let method = self.method(plan.gap_ns.into(), plan.batch);
        let seen = plan.why.as_ref().and_then(|_| why::seen(&samples, method.clock_hz));
        let begun = seen.as_ref().map(|_| 0);
        let sampled = Sampled { method, outcomes, samples, begun, seen, failure: ended, ..Sampled::default() };
        let (sampled, number) = run.finish(sampled);
        (self.device, self.sampled) = (device, number);
        Ok(sampled)
    }

    fn path(&mut self, plan: &PathPlan, slice: &Slice, watch: &dyn Watch) -> Result<Sampled, Error> {
        let (cpus, ended) = self.check_cpus(slice.cpus.iter());
        let hops: Vec<u16> = (0..self.options().hops).collect();
        let mut outcomes = self.outcomes(&cpus, &hops, &[LATENCY]);
        let mut run = RunState::new(self, watch, slice.count.saturating_mul(outcomes.len() as u64));
        let mut ended = ended.or_else(|| run.gone());
        for of_cpu in outcomes.chunks_mut(hops.len()) {
            for _ in 0..slice.count {
                for outcome in &mut *of_cpu {
                    if ended.is_some() {
                        break;
                    }
                    let (cpu, hop) = (outcome.cpu, u64::from(outcome.index));
                    let base_ps = 160_000 + 120_000 * hop + self.place_ps(cpu);
                    let noise = self.noise(cpu, 8 + hop, run.number());
                    let ps = noise.quantised(base_ps, self.options().quantum_ps, 1);
                    record(outcome, LATENCY, ps);
                    ended = run.sampled(ps, plan.gap_ns.into());
                }
            }
        }
        for outcome in &mut outcomes {
            outcome.hop = Some(self.machine.hop(outcome.index));
        }
        let method = self.method(plan.gap_ns.into(), 1);
        let (sampled, number) = run.finish(Sampled { method, outcomes, failure: ended, ..Sampled::default() });
        self.sampled = number;
        Ok(sampled)
    }

    fn irq(&mut self, plan: &IrqPlan, slice: &Slice, watch: &dyn Watch) -> Result<Sampled, Error> {
        let cpu = slice.only_cpu(self.bdf())?;
        let o = self.options().clone();
        if o.vectors == 0 {
            return Err(self.cannot("time interrupts", "the device has no interrupt vector".to_owned()));
        }
        let vectors: Vec<u16> = if plan.vectors.is_empty() { (0..o.vectors).collect() } else { plan.vectors.clone() };
        if let Some(beyond) = vectors.iter().find(|&&v| v >= o.vectors) {
            let why = format!("the device has vectors 0 to {}", o.vectors - 1);
            return Err(Error::Plan { bdf: self.bdf(), field: "vector", value: beyond.to_string(), why });
        }
        let (cpus, ended) = self.check_cpus(std::iter::once(cpu).chain(plan.trigger_cpu));
        let mut outcomes = self.outcomes(&cpus[..cpus.len().min(1)], &vectors, &[TRIGGER_TO_HANDLER, ENTRY_TO_ACK]);
        let mut samples = Vec::new();
        let mut run = RunState::new(self, watch, slice.count.saturating_mul(outcomes.len() as u64));
        let mut ended = ended.or_else(|| run.gone());
        for outcome in &mut outcomes {
            let mut counts = Counts::default();
            let count = if slice.count == 0 { u64::MAX } else { slice.count };
            let until_ns = match slice.duration_ns {
                0 => u64::MAX,
                duration => run.now_ns.saturating_add((duration / vectors.len() as u64).max(1)),
            };
            while counts.triggers + counts.missed < count && ended.is_none() && run.now_ns < until_ns {
                let (trigger_ps, ack_ps) = self.irq_ps(plan.source, outcome.cpu, outcome.index, run.number());
                let before = counts.triggers + counts.missed;
                let is_handled = raise(&mut counts, run.number() + 1, &o, (plan, count), trigger_ps);
                if is_handled {
                    for (name, kind, ps) in [
                        (TRIGGER_TO_HANDLER, SampleKind::TriggerToHandler, trigger_ps),
                        (ENTRY_TO_ACK, SampleKind::EntryToAck, ack_ps),
                    ] {
                        record(outcome, name, ps);
                        if plan.raw || plan.why.is_some() {
                            let (cpu, index) = (outcome.cpu, outcome.index);
                            samples.push(Sample { at_ns: run.now_ns, value_ps: ps, cpu, index, kind });
                        }
                    }
                }
                let period_ns = plan.interval_ns.saturating_mul(counts.triggers + counts.missed - before);
                let pause_ns = period_ns.saturating_sub((trigger_ps + ack_ps) / 1000);
                let wait_ns = if is_handled { 0 } else { plan.timeout_ns };
                ended = run.sampled(trigger_ps + ack_ps, wait_ns.max(pause_ns));
            }
            if ended.is_none() && counts.triggers > 0 && counts.handled == 0 {
                ended = Some(failure::timeout(self.bdf(), plan.timeout_ns));
                outcome.error = ended.clone();
            }
            outcome.irq = Some(32 + u32::from(outcome.index));
            outcome.metrics.extend(counts.metrics());
        }
        let method = self.method(plan.interval_ns, 1);
        let seen = plan.why.as_ref().and_then(|_| why::seen(&samples, method.clock_hz));
        let begun = seen.as_ref().map(|_| 0);
        let sampled = Sampled { method, outcomes, samples, begun, seen, failure: ended, ..Sampled::default() };
        let (sampled, number) = run.finish(sampled);
        self.sampled = number;
        Ok(sampled)
    }

    fn read(&mut self, bar: u8, offset: u64, width: u8) -> Result<u64, Error> {
        self.device.check(self.bdf(), bar, offset, width)?;
        Ok(self.device.read(bar, offset, width))
    }

    fn write(&mut self, bar: u8, offset: u64, width: u8, value: u64) -> Result<(), Error> {
        self.device.check(self.bdf(), bar, offset, width)?;
        self.device.write(bar, offset, width, value);
        Ok(())
    }
}

impl Fake {
    /// Trigger to handler and entry to acknowledge of one interrupt, in picoseconds.
    fn irq_ps(&self, source: IrqSource, cpu: u32, vector: u16, n: u64) -> (u64, u64) {
        let o = self.options();
        let base_ps = match source {
            IrqSource::Hardware => 1_100_000 + self.place_ps(cpu) + o.irq_delay_ns * 1000,
            IrqSource::Retrigger => 420_000,
            IrqSource::Inject => 510_000,
            IrqSource::Loopback => 3_800_000,
        };
        let draw = |what| self.noise(cpu, what + 64 * u64::from(vector), n);
        (
            draw(16).quantised(base_ps + u64::from(vector) * 3_000, o.quantum_ps, 1),
            draw(17).quantised(490_000 + self.place_ps(cpu), o.quantum_ps, 1),
        )
    }
}

/// One trigger, the `n`th of the run; returns true if it yields a sample.
fn raise(counts: &mut Counts, n: u64, o: &Options, (plan, count): (&IrqPlan, u64), ps: u64) -> bool {
    let every = |k: u64| k > 0 && n % k == 0;
    counts.triggers += 1;
    if plan.interval_ns > 0 {
        counts.late += u64::from(ps / 1000 > plan.interval_ns / 2);
        counts.missed += (ps / 1000 / plan.interval_ns).min(count - counts.triggers - counts.missed);
    }
    if every(o.lose) || ps / 1000 > plan.timeout_ns {
        counts.lost += 1;
        return false;
    }
    counts.extra += u64::from(every(o.double));
    if every(o.wrong_cpu) {
        counts.wrong_cpu += 1;
        return false;
    }
    counts.handled += 1;
    true
}

#[cfg(test)]
mod tests;
