//! Why the slowest samples of a run were slow: after each slice, its slowest samples meet the evidence of that time.

use std::collections::BTreeMap;
use std::sync::Arc;

use pciescope_core::outcome::{LATENCY, Sample, SampleKind, TRIGGER_TO_HANDLER};
use pciescope_core::record::{Failure, Metric, Warning};
use pciescope_core::text::word;
use pciescope_core::why::{Cause, Control, Cost, Part, SlowSample};
use pciescope_core::{CpuList, Histogram, Outcome, Why, WhyPlan, once};
use pciescope_hw::Root;
use pciescope_hw::probe::Sampled;
use pciescope_hw::probe::clock::to_ticks;
use pciescope_hw::why::{Evidence, Scope, Seen, SlowTime};

use crate::on::{Commands, Variables};

/// A sample that took this much longer than a typical one counts as a gap, of which SMIs are some, in nanoseconds.
const GAP_NS: f64 = 10_000.0;
/// A sample that took less than this share of a typical one longer is none that has to be explained.
const LEAST: f64 = 0.1;
/// So many of a slice's slowest samples are looked at: SMIs among them have to be counted.
const LOOKED_AT: usize = 1000;
/// Samples above a limit are kept up to this number, for each CPU and target.
const MOST_KEPT: usize = 10_000;

/// One slice of so many is measured without looking, which tells what looking costs.
const UNSEEN: u64 = 8;
/// Percentiles that are compared with and without.
const COMPARED: [f64; 3] = [50.0, 99.0, 99.9];
/// So many slices that were looked at are compared.
const MOST_COMPARED: usize = 1000;

/// Commands that run when a sample takes longer than a limit.
#[derive(Debug)]
pub struct Alarms {
    /// The events' names, each with its limit in nanoseconds.
    pub limits: Vec<(String, u64)>,
    /// The commands of these events.
    pub commands: Commands,
}

impl Alarms {
    /// The slowest sample of a slice is this one.
    fn look(&self, cpu: u32, slowest: &SlowSample) {
        let is_above = |(_, limit): &&(String, u64)| slowest.value_ns > *limit as f64;
        let names: Vec<&str> = self.limits.iter().filter(is_above).map(|(name, _)| name.as_str()).collect();
        if names.is_empty() {
            return;
        }
        let part = slowest.parts.first();
        let name = part.and_then(|part| part.name.as_deref()).unwrap_or_default();
        let variables = Variables::from([
            ("PCIESCOPE_CPU", cpu.to_string()),
            ("PCIESCOPE_NS", format!("{:.0}", slowest.value_ns)),
            ("PCIESCOPE_AT_NS", slowest.at_ns.to_string()),
            ("PCIESCOPE_CAUSE", slowest.cause().name().to_owned()),
            ("PCIESCOPE_NAME", word(name)),
        ]);
        self.commands.happened(&names, variables);
    }

    /// Ends the commands. What went wrong with them.
    pub(crate) fn finish(mut self) -> Vec<Warning> {
        self.commands.finish();
        once(self.commands.warnings())
    }
}

/// Which arm, CPU and target.
type Key = (usize, u32, u16);

/// The evidence of a run, and what came of it so far.
pub(crate) struct Explainer<'p> {
    plan: &'p WhyPlan,
    /// `None` where the machine is a synthetic one.
    evidence: Option<Evidence>,
    alarms: Option<&'p Alarms>,
    /// Why the run must end.
    ending: Option<Failure>,
    found: BTreeMap<Key, Why>,
    /// Slices that began, by arm and CPU.
    begun: BTreeMap<(usize, Option<u32>), u64>,
    /// Whether this slice is looked at.
    looks: bool,
}

impl<'p> Explainer<'p> {
    pub fn new(plan: &'p WhyPlan, root: Option<&Root>, cpus: &CpuList, alarms: Option<&'p Alarms>) -> Self {
        let evidence = root.map(|root| Evidence::open(root, cpus));
        Explainer { plan, evidence, alarms, ending: None, found: BTreeMap::new(), begun: BTreeMap::new(), looks: true }
    }

    /// Why the run must end, once: a sample took longer than the plan allows.
    pub fn ending(&mut self) -> Option<Failure> {
        self.ending.take()
    }

    /// A slice of an arm on these CPUs begins.
    pub fn begin(&mut self, arm: usize, cpus: &CpuList) {
        let begun = self.begun.entry((arm, cpus.iter().next())).or_default();
        *begun += 1;
        self.looks = *begun % UNSEEN != 0;
        if let Some(evidence) = &mut self.evidence {
            evidence.begin(cpus, self.looks);
        }
    }

    /// It has ended, with these samples where it was measured.
    pub fn end(&mut self, arm: usize, sampled: Option<&Sampled>) {
        let seen = self.evidence.as_mut().and_then(Evidence::end).map(Arc::new);
        let Some(sampled) = sampled else { return };
        let Some(seen) = sampled.seen.clone().or(seen) else { return };
        for outcome in &sampled.outcomes {
            self.explain(arm, outcome, sampled, &seen);
        }
    }

    fn explain(&mut self, arm: usize, outcome: &Outcome, sampled: &Sampled, seen: &Seen) {
        let method = &sampled.method;
        let (kind, name) = match outcome.histograms.contains_key(LATENCY) {
            true => (SampleKind::Latency, LATENCY),
            false => (SampleKind::TriggerToHandler, TRIGGER_TO_HANDLER),
        };
        let histogram = outcome.histograms.get(name);
        let typical_ns = histogram.and_then(|histogram| histogram.middle_ns()).unwrap_or(0.0);
        let missing = || self.evidence.as_ref().map_or_else(Vec::new, |evidence| evidence.missing().to_vec());
        let why = self.found.entry((arm, outcome.cpu, outcome.index)).or_insert_with(|| Why {
            typical_ns,
            missing: missing(),
            ..Why::default()
        });
        histogram.iter().for_each(|histogram| compare(&mut why.cost, histogram, self.looks));
        let (events, lost) = seen.events(outcome.cpu);
        why.events += events;
        why.events_lost += lost;
        why.clock_error_ns = why.clock_error_ns.max(seen.clock_error_ns());
        let own = |kind| {
            let is_own =
                move |sample: &&Sample| (sample.cpu, sample.index, sample.kind) == (outcome.cpu, outcome.index, kind);
            sampled.samples.iter().filter(is_own).collect::<Vec<_>>()
        };
        let most = LOOKED_AT.max(self.plan.slowest as usize);
        // A handler ends what the kernel's module times; what a thread ends, all that delays a thread delays.
        let is_handler = kind == SampleKind::TriggerToHandler && method.backend == "kmod";
        let scope = if is_handler { Scope::Handler } else { Scope::Thread };
        let Some(begun) = sampled.begun else {
            why.missing = vec!["the clock of the samples: this version of the module does not tell it".to_owned()];
            return;
        };
        let batch = f64::from(method.batch.max(1));
        let mut found: Vec<SlowSample> = Vec::new();
        for sample in slowest_of(own(kind), most) {
            let value_ns = sample.value_ps as f64 / 1e3;
            let begin = begun + to_ticks(sample.at_ns, method.clock_hz);
            let length = to_ticks((value_ns * batch) as u64, method.clock_hz);
            let excess_ns = (value_ns - typical_ns).max(0.0) * batch;
            if excess_ns < typical_ns * batch * LEAST {
                break;
            }
            let address = sampled.interrupted.get(&(sample.cpu, sample.at_ns)).copied();
            let interrupted = self.evidence.as_mut().zip(address).map(|(evidence, address)| evidence.function(address));
            let window = SlowTime { cpu: sample.cpu, ticks: (begin, begin + length), excess_ns, scope, interrupted };
            let parts = if self.looks { seen.explain(&window) } else { vec![unseen(excess_ns)] };
            found.push(SlowSample { at_ns: seen.at(begin), value_ns, parts });
        }
        if self.looks {
            name_smis(&mut found, typical_ns, seen.smis(outcome.cpu));
        }
        if let Some(slowest) = found.first() {
            self.alarms.iter().for_each(|alarms| alarms.look(outcome.cpu, slowest));
            if self.plan.stop_above_ns.is_some_and(|limit| slowest.value_ns > limit as f64) {
                self.ending = Some(too_slow(outcome.cpu, slowest));
            }
        }
        if !self.looks {
            return;
        }
        let controls = own(SampleKind::Control);
        if !controls.is_empty() {
            let control = why.control.get_or_insert_default();
            control.samples += histogram.map_or(0, Histogram::count);
            add_controls(control, controls, |sample, excess_ns| {
                let begin = begun + to_ticks(sample.at_ns, method.clock_hz);
                let ticks = (begin, begin + to_ticks(sample.value_ps / 1000, method.clock_hz));
                seen.explain(&SlowTime { cpu: sample.cpu, ticks, excess_ns, scope, interrupted: None })
            });
        }
        why.slowest.extend(found);
        why.slowest.sort_by(|a, b| b.value_ns.total_cmp(&a.value_ns));
        let above = self.plan.above_ns.map_or(f64::INFINITY, |ns| ns as f64);
        let above = why.slowest.partition_point(|sample| sample.value_ns > above).min(MOST_KEPT);
        why.slowest.truncate(above.max(self.plan.slowest as usize));
    }

    /// Gives an arm's CPU and target what was found of it, and counts what took longer than the plan's limit.
    pub fn finish(&mut self, arm: usize, outcome: &mut Outcome) {
        let Some(mut why) = self.found.remove(&(arm, outcome.cpu, outcome.index)) else { return };
        why.cost.retain(|cost| !cost.without_ns.is_empty());
        let above = self.plan.above_ns.map_or(f64::INFINITY, |ns| ns as f64);
        for sample in why.slowest.iter().take_while(|sample| sample.value_ns > above) {
            outcome.metrics.entry(sample.cause().above()).or_insert(Metric::count(0)).value += 1.0;
        }
        outcome.why = Some(why);
    }
}

/// The slowest samples, slowest first.
fn slowest_of(mut samples: Vec<&Sample>, most: usize) -> Vec<&Sample> {
    let slowest_first = |sample: &&Sample| std::cmp::Reverse(sample.value_ps);
    if samples.len() > most {
        samples.select_nth_unstable_by_key(most, slowest_first);
        samples.truncate(most);
    }
    samples.sort_by_key(slowest_first);
    samples
}

/// Adds a slice's reads for comparison: of those that took longer than a typical one, what nothing explains.
fn add_controls(control: &mut Control, mut all: Vec<&Sample>, explain: impl Fn(&Sample, f64) -> Vec<Part>) {
    let middle = all.len() / 2;
    let typical_ns = all.select_nth_unstable_by_key(middle, |sample| sample.value_ps).1.value_ps as f64 / 1e3;
    control.reads += all.len() as u64;
    for sample in slowest_of(all, LOOKED_AT) {
        let excess_ns = sample.value_ps as f64 / 1e3 - typical_ns;
        if excess_ns < typical_ns * LEAST {
            break;
        }
        if explain(sample, excess_ns).first().is_none_or(|part| part.cause == Cause::Device) {
            control.excess_ns.push(excess_ns.round());
        }
    }
    control.excess_ns.sort_by(|a, b| b.total_cmp(a));
    control.excess_ns.truncate(LOOKED_AT);
}

/// Of a sample that nobody looked at.
fn unseen(ns: f64) -> Part {
    Part { cause: Cause::Unknown, name: None, ns }
}

/// Adds the percentiles of a slice.
fn compare(cost: &mut Vec<Cost>, slice: &Histogram, looks: bool) {
    if cost.is_empty() {
        cost.extend(COMPARED.map(|percent| Cost { percent, ..Cost::default() }));
    }
    for of in cost {
        if of.with_ns.len() < MOST_COMPARED {
            let figures = if looks { &mut of.with_ns } else { &mut of.without_ns };
            figures.extend(slice.percentile_ns(of.percent));
        }
    }
}

/// That a sample took longer than the plan allows.
fn too_slow(cpu: u32, sample: &SlowSample) -> Failure {
    Failure::too_slow(format!("a sample of CPU {cpu} took {:.1} us: {}", sample.value_ns / 1e3, sample.words()))
}

/// Names the SMIs among a slice's slowest samples: those that nothing else explains, where they are as many as the CPU counted.
/// Where they are not, and there were some, each of them may be one.
fn name_smis(found: &mut [SlowSample], typical_ns: f64, smis: Option<u64>) {
    let Some(smis @ 1..) = smis else { return };
    let is_open = |sample: &SlowSample| {
        let cause = sample.cause();
        matches!(cause, Cause::Device | Cause::Standstill | Cause::Hypervisor | Cause::Unknown)
            && sample.value_ns - typical_ns > GAP_NS
    };
    let open = found.iter().filter(|sample| is_open(sample)).count() as u64;
    let cause = if open == smis { Cause::Smi } else { Cause::Unknown };
    for sample in found.iter_mut().filter(|sample| is_open(sample)) {
        sample.parts[0].cause = cause;
    }
}

#[cfg(test)]
mod tests {
    use pciescope_core::record::Method;

    use super::*;

    fn slow(value_ns: f64, cause: Cause) -> SlowSample {
        SlowSample { at_ns: 0, value_ns, parts: vec![Part { cause, name: None, ns: value_ns }] }
    }

    #[test]
    fn gaps_are_smis_where_they_are_as_many() {
        use Cause::{Device, Smi, Standstill, Timer, Unknown};
        let slowest = || vec![slow(9e5, Device), slow(8e5, Timer), slow(7e5, Standstill), slow(9e3, Device)];
        let causes = |smis| {
            let mut all = slowest();
            name_smis(&mut all, 1e3, smis);
            all.iter().map(SlowSample::cause).collect::<Vec<_>>()
        };
        assert_eq!(causes(Some(2)), [Smi, Timer, Smi, Device]);
        assert_eq!(causes(Some(1)), [Unknown, Timer, Unknown, Device]);
        assert_eq!(causes(Some(0)), [Device, Timer, Standstill, Device]);
        assert_eq!(causes(None), [Device, Timer, Standstill, Device]);
    }

    #[test]
    fn one_slice_of_eight_is_not_looked_at_and_tells_what_looking_costs() {
        let plan = WhyPlan { slowest: 1000, above_ns: Some(2000), stop_above_ns: None };
        let cpus = CpuList::from_iter([3]);
        // A machine without tracepoints.
        let mut explainer = Explainer::new(&plan, Some(&Root::at("/nowhere")), &cpus, None);
        for slice in 1..=24 {
            explainer.begin(0, &cpus);
            let mut histogram = Histogram::default();
            let value_ps = |sample: u64| if sample == 0 { 9_000_000 + slice } else { 1_000_000 };
            let sample = |at| Sample { at_ns: at, value_ps: value_ps(at), cpu: 3, index: 0, kind: SampleKind::Latency };
            let samples: Vec<Sample> = (0..20).map(sample).collect();
            samples.iter().for_each(|sample| histogram.record_ps(sample.value_ps, 1).unwrap());
            let outcome =
                Outcome { cpu: 3, histograms: [(LATENCY.to_owned(), histogram)].into(), ..Outcome::default() };
            let method = Method { clock_hz: 1_000_000_000, ..Default::default() };
            let sampled = Sampled { outcomes: vec![outcome], samples, method, begun: Some(0), ..Default::default() };
            explainer.end(0, Some(&sampled));
        }
        let mut outcome = Outcome { cpu: 3, ..Outcome::default() };
        explainer.finish(0, &mut outcome);
        let why = outcome.why.unwrap();
        assert_eq!(outcome.metrics["above_unknown"].value, 21.0);
        let slices: Vec<u64> = why.slowest.iter().map(|one| (one.value_ns * 1e3) as u64 - 9_000_000).collect();
        assert_eq!(slices, (1..=24).rev().filter(|slice| slice % 8 != 0).collect::<Vec<u64>>());
        let median = &why.cost[0];
        assert_eq!((why.cost.len(), median.with_ns.len(), median.without_ns.len()), (1, 21, 3));
    }

    #[test]
    fn reads_for_comparison_count_where_nothing_explains_them() {
        let sample = |number: u64| Sample {
            at_ns: number,
            value_ps: 1_000_000 + if number % 100 == 0 { number * 1000 } else { 0 },
            cpu: 0,
            index: 0,
            kind: SampleKind::Control,
        };
        let samples: Vec<Sample> = (1..=1000).map(sample).collect();
        let mut control = Control::default();
        let explain = |sample: &Sample, ns| {
            let cause = if sample.at_ns == 900 { Cause::Timer } else { Cause::Device };
            vec![Part { cause, name: None, ns }]
        };
        add_controls(&mut control, samples.iter().collect(), explain);
        add_controls(&mut control, samples[..500].iter().collect(), explain);
        // A tenth of a typical one is not slow.
        let excess_ns =
            [1000.0, 800.0, 700.0, 600.0, 500.0, 500.0, 400.0, 400.0, 300.0, 300.0, 200.0, 200.0, 100.0, 100.0];
        assert_eq!((control.reads, control.excess_ns), (1500, excess_ns.to_vec()));
    }
}
