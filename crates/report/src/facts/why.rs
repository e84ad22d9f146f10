//! Why the slowest samples were slow: which causes, what the tail would be without each, and the setting that takes it away.

use std::collections::BTreeMap;

use pciescope_core::CpuList;
use pciescope_core::why::{Cause, SlowSample};

use super::latency::main_samples;
use crate::layout::{Columns, Left, Right, Rows};
use crate::model::{Section, cpu_of};
use crate::style::{Tone, paint};
use crate::text::{clean, counted, duration, thousands, us};

/// Causes of the first line.
const MOST_NAMED: usize = 6;

/// What takes a cause off the measured CPUs, where something does.
fn remedy(cause: Cause, cpus: &str) -> Option<String> {
    Some(match cause {
        Cause::Interrupt => format!("move it: write others than CPU {cpus} to /proc/irq/N/smp_affinity_list"),
        Cause::Timer => format!("boot with nohz_full={cpus} and run nothing else there"),
        Cause::Ipi => format!("boot with isolcpus={cpus} and keep tools that ask every CPU away"),
        Cause::Softirq => format!("move the interrupts that raise it, and for RCU boot with rcu_nocbs={cpus}"),
        Cause::Workqueue => format!("take CPU {cpus} out of /sys/devices/virtual/workqueue/cpumask"),
        Cause::Thread | Cause::Migration => format!("boot with isolcpus={cpus}, or make an isolated cpuset partition"),
        Cause::IrqsOff => "the named function switches interrupts off: tell its authors".to_owned(),
        Cause::IdleExit => "hold /dev/cpu_dma_latency open with 0".to_owned(),
        Cause::Frequency => "fix it: `cpupower frequency-set -g performance`, and look at the cooling".to_owned(),
        Cause::Smi => "look in the firmware's setup (power, USB legacy, memory patrol), or ask the maker".to_owned(),
        Cause::Nmi => "boot with nmi_watchdog=0 and run no profiler".to_owned(),
        Cause::Hypervisor => "give the guest CPUs that nobody else runs on".to_owned(),
        Cause::PageFault => "lock the program's memory (mlockall) and touch it before".to_owned(),
        Cause::TlbFlush => "let no thread of the same process free memory meanwhile".to_owned(),
        Cause::IommuFault | Cause::LinkError | Cause::LinkChange => "see `pciescope doctor` and `watch`".to_owned(),
        Cause::Device => "see `latency path` for the hop, and `doctor` for power saving and errors".to_owned(),
        Cause::MachineCheck => "see `ras-mc-ctl --errors`".to_owned(),
        Cause::EvidenceLost | Cause::Standstill | Cause::Unknown => return None,
    })
}

/// The samples of one cause.
struct Group {
    cause: Cause,
    /// The name that most of them have, and how many other names there are.
    name: Option<(String, usize)>,
    /// Largest first, in nanoseconds.
    values_ns: Vec<f64>,
    cpus: CpuList,
    /// p99.99 and worst of the other samples; `None` where that is not among the explained ones.
    without: [Option<f64>; 2],
}

/// The explained samples of a section, slowest first, each with its CPU; those below the last are not known of every CPU.
pub(crate) fn explained<'s>(section: &'s Section) -> (Vec<(Option<u32>, &'s SlowSample)>, f64) {
    let own = section.records.iter().filter_map(|record| Some((cpu_of(record), record.why.as_ref()?)));
    let floor = |why: &pciescope_core::Why| why.slowest.last().map_or(0.0, |last| last.value_ns);
    let known_from = own.clone().map(|(_, why)| floor(why)).fold(0.0, f64::max);
    let mut all: Vec<_> = own.flat_map(|(cpu, why)| why.slowest.iter().map(move |sample| (cpu, sample))).collect();
    all.sort_by(|a, b| b.1.value_ns.total_cmp(&a.1.value_ns));
    (all, known_from)
}

/// By cause, the most frequent first; those that nothing names last.
fn groups(section: &Section) -> Vec<Group> {
    let (all, known_from) = explained(section);
    let count = main_samples(section).count();
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
        Group {
            cause,
            name: most.map(|name| (name, names.len() - 1)),
            values_ns: own.iter().map(|(_, sample)| sample.value_ns).collect(),
            cpus: own.iter().filter_map(|(cpu, _)| *cpu).collect(),
            without: [known(place), known(0)],
        }
    };
    let mut groups: Vec<Group> = by_cause.into_iter().map(group).collect();
    let is_named = |group: &Group| remedy(group.cause, "").is_some();
    groups.sort_by_key(|group| (!is_named(group), std::cmp::Reverse(group.values_ns.len())));
    groups
}

/// The answer in a line, what to mend first, and what weakens it; none where nothing was to be explained.
pub(super) fn lines(section: &Section) -> Vec<String> {
    let groups = groups(section);
    let all: usize = groups.iter().map(|group| group.values_ns.len()).sum();
    let mut lines = Vec::new();
    if all > 0 {
        let word = |group: &Group| {
            let name = group.name.as_ref().filter(|(_, others)| *others == 0).map(|(name, _)| format!(" {name}"));
            let largest = group.values_ns.first().copied().unwrap_or(0.0);
            format!(
                "{} {}{} (up to {})",
                group.values_ns.len(),
                group.cause.name(),
                name.unwrap_or_default(),
                duration(largest)
            )
        };
        let named: Vec<String> = groups.iter().take(MOST_NAMED).map(word).collect();
        let rest: usize = groups.iter().skip(MOST_NAMED).map(|group| group.values_ns.len()).sum();
        let rest = (rest > 0).then(|| format!(", {rest} of other causes")).unwrap_or_default();
        lines.push(format!("why: of the {} slowest: {}{rest}", thousands(all as u64), named.join("; ")));
        lines.extend(groups.first().and_then(mend_first));
    }
    let whys = || section.records.iter().filter_map(|record| record.why.as_ref());
    let lost: u64 = whys().map(|why| why.events_lost).sum();
    if lost > 0 {
        lines.push(paint(Tone::Doubt, &format!("evidence lost: {} found no room", counted(lost as usize, "event"))));
    }
    if whys().next().is_some() && whys().all(|why| why.events == 0) {
        lines.push(paint(Tone::Doubt, "no evidence: the kernel told of no event"));
    }
    let missing = pciescope_core::once(whys().flat_map(|why| why.missing.iter()));
    lines.extend(missing.into_iter().map(|missing| paint(Tone::Doubt, &format!("not looked at: {}", clean(missing)))));
    lines
}

/// The first cause that something can be done about: `mend first: timer: boot with nohz_full=3; then worst 12 us`.
fn mend_first(group: &Group) -> Option<String> {
    let remedy = remedy(group.cause, &group.cpus.to_string())?;
    let figures = group.without.iter().zip(["p99.99", "worst"]);
    let then: Vec<String> = figures.filter_map(|(ns, name)| Some(format!("{name} {}", duration((*ns)?)))).collect();
    let then = if then.is_empty() { String::new() } else { format!("; estimated without it: {}", then.join(", ")) };
    Some(format!("mend first: {}: {remedy}{then}", group.cause.name()))
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
