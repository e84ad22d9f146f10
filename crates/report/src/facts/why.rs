//! Why the slowest samples were slow: which causes, and the setting that takes the first of them away.

use pciescope_core::once;
use pciescope_core::why::Cause;

use super::Place;
use super::conclusions::Conclusions;
use super::rules::EXPLAINED;
use crate::model::Section;
use crate::style::{Tone, paint, without_colours};
use crate::text::{clean, counted, duration, thousands};
use crate::why::{ByCause, CostOf, DeviceShare, costs, device_share, groups};

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

/// The answer in a line, what to mend first, and what weakens it; none where nothing was to be explained.
pub(super) fn lines(section: &Section) -> Vec<String> {
    let groups = groups(section);
    let all: usize = groups.iter().map(|group| group.values_ns.len()).sum();
    let mut lines = Vec::new();
    if all > 0 {
        let word = |group: &ByCause| {
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
        let rest = if rest > 0 { format!(", {rest} of other causes") } else { String::new() };
        lines.push(format!("why: of the {} slowest: {}{rest}", thousands(all as u64), named.join("; ")));
        lines.extend(groups.first().and_then(mend_first));
    }
    lines.extend(device_share(section).map(|share| of_device(&share)));
    lines.extend(cost(section));
    let whys = || section.records.iter().filter_map(|record| record.why.as_ref());
    let lost: u64 = whys().map(|why| why.events_lost).sum();
    if lost > 0 {
        lines.push(paint(Tone::Doubt, &format!("evidence lost: {} found no room", counted(lost as usize, "event"))));
    }
    if whys().next().is_some() && whys().all(|why| why.events == 0) {
        lines.push(paint(Tone::Doubt, "no evidence: the kernel told of no event"));
    }
    let missing = once(whys().flat_map(|why| why.missing.iter()));
    lines.extend(missing.into_iter().map(|missing| paint(Tone::Doubt, &format!("not looked at: {}", clean(missing)))));
    lines
}

/// What to mend first, and what makes the causes doubtful.
pub(super) fn conclude(out: &mut Conclusions, number: usize, section: &Section, subject: &str) {
    let (groups, place) = (groups(section), Place::Section(number));
    let all: usize = groups.iter().map(|group| group.values_ns.len()).sum();
    if let Some((group, words)) = groups.first().and_then(|group| Some((group, mend_first(group)?))) {
        let (count, cause) = (group.values_ns.len(), group.cause.name());
        out.advise(4, place, format!("{subject}: of the {all} slowest samples, {count} are by {cause}; {words}."));
    }
    let whys = || section.records.iter().filter_map(|record| record.why.as_ref());
    let (told, missed): (u64, u64) = whys().fold((0, 0), |sum, why| (sum.0 + why.events, sum.1 + why.events_lost));
    if missed as f64 * 100.0 > (told + missed) as f64 * EXPLAINED.limit {
        let lost = counted(missed as usize, "event");
        out.doubt(4, place, format!("{subject}: {lost} of {} found no room: causes are missing.", told + missed));
    }
    if let Some(text) = costs(section).iter().any(CostOf::disturbs).then(|| cost(section)).flatten() {
        out.doubt(4, place, format!("{subject}: {}.", without_colours(&text)));
    }
}

/// What of the device's part is its own.
fn of_device(share: &DeviceShare) -> String {
    let DeviceShare { slow, own: (own, low, high), control: (as_slow, reads) } = share;
    format!(
        "device or path: {own:.0} ({low:.0} to {high:.0}) of {slow} beyond the port above, slow in {} of {} reads",
        thousands(*as_slow),
        thousands(*reads)
    )
}

/// What looking cost: `cost of --why: median +0.1 % (-0.3 to +0.5)`, with and without it in turns.
fn cost(section: &Section) -> Option<String> {
    let costs = costs(section);
    let word = |cost: &CostOf| {
        let (low, high) = cost.bounds;
        let name = if cost.percent == 50.0 { "median".to_owned() } else { format!("p{}", cost.percent) };
        format!("{name} {:+.1} % ({:+.1} to {:+.1})", 100.0 * cost.change, 100.0 * low, 100.0 * high)
    };
    let all: Vec<String> = costs.iter().map(word).collect();
    let text = format!("cost of --why: {}", all.join("; "));
    let text = match costs.iter().any(CostOf::disturbs) {
        true => paint(Tone::Doubt, &format!("it disturbs: {text}")),
        false => text,
    };
    (!all.is_empty()).then_some(text)
}

/// The first cause that something can be done about: `mend first: timer: boot with nohz_full=3; then worst 12 us`.
fn mend_first(group: &ByCause) -> Option<String> {
    let remedy = remedy(group.cause, &group.cpus.to_string())?;
    let figures = group.without.iter().zip(["p99.99", "worst"]);
    let then: Vec<String> = figures.filter_map(|(ns, name)| Some(format!("{name} {}", duration((*ns)?)))).collect();
    let then = if then.is_empty() { String::new() } else { format!("; estimated without it: {}", then.join(", ")) };
    Some(format!("mend first: {}: {remedy}{then}", group.cause.name()))
}
