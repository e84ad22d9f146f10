//! The slowest samples of a section by what took their time.

use std::collections::BTreeMap;

use pciescope_core::outcome::{LATENCY, TRIGGER_TO_HANDLER};
use pciescope_core::why::{Cause, SlowSample};
use pciescope_core::{CpuList, Histogram, Record, Why};

use crate::compare::interval::{Estimate, SideFigure};
use crate::layout::{Columns, Left, Right, Rows};
use crate::model::{Section, cpu_of};
use crate::text::{clean, thousands, us};

/// The samples of one cause.
pub(crate) struct ByCause {
    pub cause: Cause,
    /// The name that most of them have, and how many other names there are.
    pub name: Option<(String, usize)>,
    /// Largest first, in nanoseconds.
    pub values_ns: Vec<f64>,
    pub cpus: CpuList,
    /// p99.99 and worst of the other samples; `None` where that is not among the explained ones.
    pub without: [Option<f64>; 2],
}

/// The explained samples of a section, slowest first, each with its CPU; those below the last are not known of every CPU.
pub(crate) fn explained<'s>(section: &'s Section) -> (Vec<(Option<u32>, &'s SlowSample)>, f64) {
    let own = section.records.iter().filter_map(|record| Some((cpu_of(record), record.why.as_deref()?)));
    let floor = |why: &Why| why.slowest.last().map_or(0.0, |last| last.value_ns);
    let known_from = own.clone().map(|(_, why)| floor(why)).fold(0.0, f64::max);
    let mut all: Vec<_> = own.flat_map(|(cpu, why)| why.slowest.iter().map(move |sample| (cpu, sample))).collect();
    all.sort_by(|a, b| b.1.value_ns.total_cmp(&a.1.value_ns));
    (all, known_from)
}

fn samples(record: &Record) -> Option<&Histogram> {
    record.histograms.get(LATENCY).or_else(|| record.histograms.get(TRIGGER_TO_HANDLER))
}

/// Whether it names nothing that somebody could mend.
fn is_open(cause: Cause) -> bool {
    matches!(cause, Cause::EvidenceLost | Cause::Standstill | Cause::Unknown)
}

/// By cause, the most frequent first; those that nothing names last.
pub(crate) fn groups(section: &Section) -> Vec<ByCause> {
    let (all, known_from) = explained(section);
    let explained_of = section.records.iter().filter(|record| record.why.is_some());
    let count: u64 = explained_of.filter_map(|record| samples(record)).map(Histogram::count).sum();
    let mut by_cause: BTreeMap<Cause, Vec<(Option<u32>, &SlowSample)>> = BTreeMap::new();
    for one in &all {
        by_cause.entry(one.1.cause()).or_default().push(*one);
    }
    let group = |(cause, own): (Cause, Vec<(Option<u32>, &SlowSample)>)| {
        let mut names = BTreeMap::<&str, usize>::new();
        for name in own.iter().filter_map(|(_, sample)| sample.parts.first()?.name.as_deref()) {
            *names.entry(name).or_default() += 1;
        }
        let others: Vec<f64> =
            all.iter().filter(|(_, one)| one.cause() != cause).map(|(_, one)| one.value_ns).collect();
        let left = count.saturating_sub(own.len() as u64);
        // The place of p99.99 from the top.
        let place = left - (left as f64 * 0.9999).ceil().min(left as f64) as u64;
        let known = |place: u64| others.get(place as usize).copied().filter(|ns| *ns >= known_from);
        let most = names.iter().max_by_key(|(_, times)| **times).map(|(name, _)| clean(name));
        ByCause {
            cause,
            name: most.map(|name| (name, names.len() - 1)),
            values_ns: own.iter().map(|(_, sample)| sample.value_ns).collect(),
            cpus: own.iter().filter_map(|(cpu, _)| *cpu).collect(),
            without: [known(place), known(0)],
        }
    };
    let mut groups: Vec<ByCause> = by_cause.into_iter().map(group).collect();
    groups.sort_by_key(|group| (is_open(group.cause), std::cmp::Reverse(group.values_ns.len())));
    groups
}

/// By how much looking moves a percentile: the change as a share, and its interval of 95 %.
pub(crate) struct CostOf {
    pub percent: f64,
    pub change: f64,
    pub bounds: (f64, f64),
}

impl CostOf {
    /// Whether it moves the median by a hundredth, or another percentile at all.
    pub fn disturbs(&self) -> bool {
        let (low, high) = self.bounds;
        let is_moved = low > 0.0 || high < 0.0;
        is_moved && (self.percent > 50.0 || self.change.abs() >= 0.01)
    }
}

/// So many slices of each kind are needed.
const FEWEST_SLICES: usize = 3;

/// What looking cost a section's measurements: each slice beside the mean of its own CPU and target.
pub(crate) fn costs(section: &Section) -> Vec<CostOf> {
    let mut sides: BTreeMap<u64, [Vec<SideFigure>; 2]> = BTreeMap::new();
    for cost in section.records.iter().filter_map(|record| record.why.as_ref()).flat_map(|why| &why.cost) {
        let logs = || cost.without_ns.iter().chain(&cost.with_ns).map(|ns| ns.ln());
        let mean = logs().sum::<f64>() / logs().count().max(1) as f64;
        let figure = |ns: &f64| SideFigure::Mean { value: ns / mean.exp(), error: 0.0, freedom: f64::INFINITY };
        let [without, with] = sides.entry((cost.percent * 1e3) as u64).or_default();
        without.extend(cost.without_ns.iter().map(figure));
        with.extend(cost.with_ns.iter().map(figure));
    }
    // Several percentiles are judged at once.
    let alpha = 0.05 / sides.len().max(1) as f64;
    let judged = |(percent, [without, with]): (u64, [Vec<SideFigure>; 2])| {
        let is_enough = without.len().min(with.len()) >= FEWEST_SLICES;
        let estimate = Estimate::of_runs(&without, &with, 0.0).filter(|_| is_enough)?;
        let (low, high) = estimate.bounds(alpha);
        Some(CostOf {
            percent: percent as f64 / 1e3,
            change: estimate.change().exp_m1(),
            bounds: (low.exp_m1(), high.exp_m1()),
        })
    };
    sides.into_iter().filter_map(judged).collect()
}

/// Slow samples without a cause on the CPU, beside reads of the port above that were as slow.
pub(crate) struct DeviceShare {
    /// Slow samples.
    pub slow: u64,
    /// Of them, what is beyond the rate of the reads above: the figure, and its interval of 95 %.
    pub own: (f64, f64, f64),
    /// Reads above that were as slow, and all of them.
    pub control: (u64, u64),
}

/// How many of the samples that are called by the device or its path are more than reads of the port above show; none
/// without such samples or reads.
pub(crate) fn device_share(section: &Section) -> Option<DeviceShare> {
    let (mut slow, mut samples, mut control) = (0, 0, (0, 0));
    for why in section.records.iter().filter_map(|record| record.why.as_ref()) {
        let Some(reads) = &why.control else { continue };
        let of_device = why.slowest.iter().filter(|sample| sample.cause() == Cause::Device);
        let Some(last) = of_device.clone().next_back() else { continue };
        let excess_ns = last.value_ns - why.typical_ns;
        slow += of_device.count() as u64;
        samples += reads.samples;
        control.0 += reads.excess_ns.partition_point(|ns| *ns >= excess_ns) as u64;
        control.1 += reads.reads;
    }
    let own = |as_slow: f64| (slow as f64 - as_slow * samples as f64 / control.1 as f64).max(0.0);
    let (low, high) = poisson(control.0);
    (slow > 0 && control.1 > 0).then(|| DeviceShare {
        slow,
        own: (own(control.0 as f64), own(high), own(low)),
        control,
    })
}

/// The interval of 95 % of a Poisson mean by a count of it: Byar's (Breslow and Day, Statistical Methods in Cancer Research II,
/// 2.3).
fn poisson(count: u64) -> (f64, f64) {
    let bound = |count: f64, z: f64| count * (1.0 - 1.0 / (9.0 * count) + z / (3.0 * count.sqrt())).powi(3);
    let low = if count > 0 { bound(count as f64, -1.96) } else { 0.0 };
    (low, bound(count as f64 + 1.0, 1.96))
}

/// A row for each cause. What the tail would be without it stands where there `is_room`.
pub(crate) fn table(section: &Section, is_room: bool) -> Option<Columns> {
    let groups = groups(section);
    let dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let columns = Rows::of(&groups).columns(&[
        ("Cause", 12, Left, &|group| group.cause.name().to_owned()),
        ("Whose", 16, Left, &|group| match &group.name {
            Some((name, 0)) => name.clone(),
            Some((name, others)) => format!("{name} and {others} more"),
            None => "-".to_owned(),
        }),
        ("Samples", 7, Right, &|group| thousands(group.values_ns.len() as u64)),
        ("Typical(us)", 11, Right, &|group| us(group.values_ns.get(group.values_ns.len() / 2).copied())),
        ("Worst(us)", 9, Right, &|group| us(group.values_ns.first().copied())),
        ("CPUs", 4, Right, &|group| dash(group.cpus.to_string())),
        ("P99.99 without(us)", 10, Right, &|group| us(group.without[0].filter(|_| is_room))),
        ("Worst without(us)", 10, Right, &|group| us(group.without[1].filter(|_| is_room))),
    ]);
    (!groups.is_empty()).then(|| columns.without_empty())
}

#[cfg(test)]
mod tests {
    use pciescope_core::why::{Control, Cost, Part};

    use super::*;
    use crate::model::sections;

    /// A hundred slices of two CPUs, one of eight without looking, of which one CPU is twice as slow; looking takes `share` more.
    fn records(share: f64) -> Vec<Record> {
        let of_cpu = |cpu: u32| {
            let noise = |slice: u32| 1.0 + f64::from(slice * 7 % 5) / 1000.0;
            let value = |slice: u32, share: f64| 1e3 * f64::from(cpu + 1) * noise(slice) * (1.0 + share);
            let all = |looks: bool| (1..=100).filter(move |slice| (slice % 8 != 0) == looks);
            let cost = Cost {
                percent: 50.0,
                with_ns: all(true).map(|slice| value(slice, share)).collect(),
                without_ns: all(false).map(|slice| value(slice, 0.0)).collect(),
            };
            let why = Why { cost: vec![cost], ..Why::default() };
            let histograms = [(LATENCY.to_owned(), Histogram::default())].into();
            Record { test: "mmio-read".to_owned(), histograms, why: Some(Box::new(why)), ..Record::default() }
        };
        (0..2).map(of_cpu).collect()
    }

    #[test]
    fn what_looking_costs_has_its_interval_and_a_hundredth_of_the_median_disturbs() {
        for (share, disturbs) in [(0.0, false), (0.005, false), (0.03, true)] {
            let records = records(share);
            let costs = costs(&sections(&records)[0]);
            let (low, high) = costs[0].bounds;
            assert!(low <= share && share <= high && high - low < 0.006, "{share}: {low} to {high}");
            assert_eq!(costs[0].disturbs(), disturbs, "{share}: {}", costs[0].change);
        }
        // Two slices without looking are too few.
        let mut few = records(0.03);
        few.iter_mut().for_each(|one| one.why.as_mut().unwrap().cost[0].without_ns.truncate(1));
        assert!(costs(&sections(&few)[0]).is_empty());
    }

    #[test]
    fn slow_samples_are_the_devices_as_far_as_reads_of_the_port_above_are_not() {
        let parts = |cause| vec![Part { cause, name: None, ns: 1e4 }];
        let sample = |ns: u32, cause| SlowSample { at_ns: 0, value_ns: f64::from(ns), parts: parts(cause) };
        let slowest: Vec<SlowSample> = (0..20).rev().map(|n| sample(50_000 + n, Cause::Device)).collect();
        let slowest = [vec![sample(90_000, Cause::Timer)], slowest, vec![sample(40_000, Cause::Timer)]].concat();
        let share = |slow: usize| {
            // Those that are less slow do not count.
            let excess_ns = [vec![6e4; slow], vec![3e4; 50]].concat();
            let control = Some(Control { reads: 100_000, samples: 1_000_000, excess_ns });
            let mut records = records(0.0);
            records.truncate(1);
            let why = Why { slowest: slowest.clone(), typical_ns: 1e3, control, ..Why::default() };
            records[0].why = Some(Box::new(why));
            let share = device_share(&sections(&records)[0]).unwrap();
            assert_eq!((share.slow, share.control), (20, (slow as u64, 100_000)));
            (share.own.0, share.own.1.round(), share.own.2.round())
        };
        // No read in 100,000: up to 3.7 of them, 37 of a million samples, would go unseen.
        assert_eq!([0, 1, 2].map(share), [(20.0, 0.0, 20.0), (10.0, 0.0, 20.0), (0.0, 0.0, 18.0)]);
    }
}
