//! Evidence of what a CPU did while a sample was taken: tracepoints of the kernel, a heartbeat on another CPU, the count of SMIs.
//! docs/why.md has the rules.

mod heartbeat;
mod points;
mod timeline;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use pciescope_core::why::{Cause, Part};
use pciescope_core::{Cpu, CpuList};

use crate::perf::{Format, Piece, Symbols, Tracepoints, pieces};
use crate::probe::clock::{self, Pair};
use crate::{Root, environment, topology};

use heartbeat::{Beaten, Heartbeat};
pub(crate) use points::{MAIN_POINTS, Mark, Nest, lacking};
use points::{Tracepoint, points};
pub use timeline::Scope;
use timeline::{Builder, Timeline};

/// Each measured CPU's ring has this many bytes: at 50,000 events a second some tenths of a second.
const RING: usize = 4 << 20;
/// The same of the other CPUs, of which only rare events are looked at.
const WIDE_RING: usize = 64 << 10;
/// The module that times interrupts.
const MODULE: &str = "[pcilat]";
/// Where the kernel switches interrupts on behind a handler (6.1, 6.12): what the handler took is told by itself.
const BEHIND_HANDLERS: [&str; 2] = ["__do_softirq", "handle_softirqs"];
/// The count of SMIs since the CPU's reset (Intel SDM volume 4, MSR_SMI_COUNT).
const SMI_COUNT: u64 = 0x34;

/// Sources of evidence, open.
#[derive(Debug)]
pub struct Evidence {
    points: Vec<(Tracepoint, Format)>,
    here: Option<Tracepoints>,
    wide: Option<Tracepoints>,
    symbols: Symbols,
    online: Vec<Cpu>,
    smi_files: BTreeMap<u32, File>,
    /// What leaving each idle state takes, by CPU.
    idle_exits: BTreeMap<u32, BTreeMap<String, u64>>,
    is_guest: bool,
    missing: Vec<String>,
    running: Option<Begun>,
}

/// A slice that is being measured.
#[derive(Debug)]
struct Begun {
    /// `None` where nothing is looked at.
    heartbeat: Option<Heartbeat>,
    begun: Pair,
    smis: BTreeMap<u32, u64>,
}

/// A sample that is to be explained.
#[derive(Debug, Clone)]
pub struct SlowTime {
    /// The CPU that it was taken on.
    pub cpu: u32,
    /// Its first and last stamp, on the counter of [`clock`].
    pub ticks: (u64, u64),
    /// How much longer it took than a typical one, in nanoseconds.
    pub excess_ns: f64,
    /// Where it ended.
    pub scope: Scope,
    /// The kernel's function that its interrupt met, and the function's module.
    pub interrupted: Option<(String, String)>,
}

impl SlowTime {
    fn length(&self) -> u64 {
        self.ticks.1 - self.ticks.0
    }
}

/// A CPU for the heartbeat: one beside the measured ones, if possible on a core of its own, which they do not have to share. The
/// last one, as interrupts and timers of the kernel's own are on the first ones.
fn beside(online: &[Cpu], measured: &CpuList) -> Option<u32> {
    let core = |cpu: &Cpu| (cpu.package, cpu.core);
    let busy: Vec<_> = online.iter().filter(|cpu| measured.contains(cpu.cpu)).map(core).collect();
    let mut free = online.iter().rev().filter(|cpu| !measured.contains(cpu.cpu));
    let last = free.clone().next();
    free.find(|cpu| !busy.contains(&core(cpu))).or(last).map(|cpu| cpu.cpu)
}

/// Of times by their begin those that meet a sample: how much of each is in it, and the time, in ticks.
fn within<'t>(times: &'t [(u64, u64)], window: &SlowTime) -> impl Iterator<Item = (u64, (u64, u64))> + use<'t> {
    let (from, to) = window.ticks;
    let first = times.partition_point(|(_, end)| *end <= from);
    let inside = times[first..].iter().take_while(move |(begin, _)| *begin < to);
    inside.map(move |one| (one.1.min(to) - one.0.max(from), *one))
}

/// What was seen during a slice.
#[derive(Debug)]
pub struct Seen {
    timelines: BTreeMap<u32, Timeline>,
    /// Gaps of the heartbeat, on the counter of [`clock`].
    standstills: Vec<(u64, u64)>,
    /// Times in which the heartbeat did something else, on the same counter.
    busy: Vec<(u64, u64)>,
    /// SMIs by CPU.
    smis: BTreeMap<u32, u64>,
    is_guest: bool,
    /// Whether a CPU beside the measured ones was there for the heartbeat.
    has_heartbeat: bool,
    begun: Pair,
    ended: Pair,
}

impl Evidence {
    /// Opens what this machine and user have, for samples from these CPUs.
    pub fn open(root: &Root, cpus: &CpuList) -> Evidence {
        let mut missing = Vec::new();
        let all = topology::cpus(root).unwrap_or_default();
        let online = topology::online(root).unwrap_or_else(|_| cpus.clone());
        let found = points().map(|point| (Format::find(root, point.name, point.fields), point));
        let mut points: Vec<(Tracepoint, Format)> =
            found.filter_map(|(format, point)| Some((point, format?))).collect();
        let mut opened = |is_wide: bool, cpus: &CpuList, ring: usize| {
            loop {
                let of = points.iter().filter(|(point, _)| point.is_wide == is_wide);
                let ids: Vec<u64> = of.map(|(_, format)| format.id).collect();
                if ids.is_empty() {
                    return None;
                }
                match Tracepoints::open(&ids, cpus, ring, None) {
                    Ok(opened) => return Some(opened),
                    // The others serve without it.
                    Err((id, error)) => {
                        let place = points.iter().position(|(_, format)| format.id == id).expect("it is one of them");
                        missing.push(format!("{}: {error}", points.remove(place).0.name));
                    }
                }
            }
        };
        let (here, wide) = (opened(false, cpus, RING), opened(true, &online, WIDE_RING));
        if points.is_empty() && missing.is_empty() {
            missing.push("tracepoints: tracefs cannot be read".to_owned());
        }
        let (mut smi_files, is_guest) = (BTreeMap::new(), environment::hypervisor(root).is_some());
        if cfg!(target_arch = "x86_64") {
            for cpu in cpus.iter() {
                match File::open(root.path(format!("/dev/cpu/{cpu}/msr")))
                    .and_then(|file| smi_count(&file).map(|_| file))
                {
                    Ok(file) => _ = smi_files.insert(cpu, file),
                    Err(error) => {
                        missing.push(format!("the count of SMIs: /dev/cpu/{cpu}/msr: {error}"));
                        break;
                    }
                }
            }
        }
        let idle_exits = cpus.iter().map(|cpu| (cpu, idle_exits(root, cpu))).collect();
        let symbols = Symbols::of(root);
        Evidence { points, here, wide, symbols, online: all, smi_files, idle_exits, is_guest, missing, running: None }
    }

    /// What cannot be looked at here, each with the reason.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Begins to look at the CPUs of a slice; or does not look, for what looking costs.
    pub fn begin(&mut self, cpus: &CpuList, looks: bool) {
        let mut old = BTreeMap::new();
        // What came before this slice is no evidence.
        for rings in [&mut self.here, &mut self.wide].into_iter().flatten() {
            rings.drain(&mut old);
        }
        self.enable(looks);
        let heartbeat = looks.then(|| Heartbeat::start(beside(&self.online, cpus), self.here.take()));
        self.running = Some(Begun { heartbeat, begun: clock::pair(), smis: self.smis() });
    }

    /// The kernel's function at an address, and its module or `[kernel]`.
    pub fn function(&mut self, address: u64) -> (String, String) {
        self.symbols.function(address)
    }

    /// What was seen since then. `None` where it was not begun.
    pub fn end(&mut self) -> Option<Seen> {
        let Begun { heartbeat, begun, smis } = self.running.take()?;
        let ended = clock::pair();
        let beaten = heartbeat.map_or_else(Beaten::default, |heartbeat| {
            let mut beaten = heartbeat.stop();
            self.here = beaten.rings.take();
            beaten
        });
        // What comes until the next slice only costs, and what finds no room then would be counted as lost in that one.
        self.enable(false);
        let mut wide = BTreeMap::new();
        if let Some(rings) = &mut self.wide {
            rings.drain(&mut wide);
        }
        let bytes: Vec<u8> = wide.into_values().flatten().collect();
        let wide = self.timeline(&bytes, ended.ns);
        let mut timelines = BTreeMap::new();
        for (cpu, bytes) in beaten.bytes {
            let mut timeline = self.timeline(&bytes, ended.ns);
            timeline.add_wide(&wide);
            timeline.idle_exits = self.idle_exits.get(&cpu).cloned().unwrap_or_default();
            timelines.insert(cpu, timeline);
        }
        let after = self.smis();
        let smis =
            smis.into_iter().filter_map(|(cpu, count)| Some((cpu, after.get(&cpu)?.wrapping_sub(count)))).collect();
        let Beaten { gaps: standstills, busy, is_alone: has_heartbeat, .. } = beaten;
        let is_guest = self.is_guest;
        Some(Seen { timelines, standstills, busy, smis, is_guest, has_heartbeat, begun, ended })
    }

    fn enable(&self, is_on: bool) {
        let _ = self.here.as_ref().map(|rings| rings.enable(is_on));
    }

    fn smis(&self) -> BTreeMap<u32, u64> {
        self.smi_files.iter().filter_map(|(cpu, file)| Some((*cpu, smi_count(file).ok()?))).collect()
    }

    fn timeline(&mut self, bytes: &[u8], end_ns: u64) -> Timeline {
        let (points, symbols) = (&self.points, &mut self.symbols);
        let mut symbol = |address| symbols.function(address).0;
        let mut builder = Builder::default();
        for piece in pieces(bytes) {
            let mark = match piece {
                Piece::Lost(lost) => {
                    builder.lose(lost);
                    continue;
                }
                Piece::Hit(at_ns, raw) => mark(points, raw).map(|mark| (at_ns, mark)),
            };
            match mark {
                Some((at_ns, mark)) => builder.add(at_ns, mark, &mut symbol),
                None => builder.lose(1),
            }
        }
        builder.finish(end_ns, &mut symbol)
    }
}

/// What a hit means. The number of its tracepoint stands first (common_type).
fn mark(points: &[(Tracepoint, Format)], raw: &[u8]) -> Option<Mark> {
    let id = u64::from(u16::from_le_bytes(raw.get(..2)?.try_into().ok()?));
    let (point, format) = points.iter().find(|(_, format)| format.id == id)?;
    (point.mark)(format, raw)
}

/// What leaving each idle state of a CPU takes by its driver, in nanoseconds (the kernel's admin-guide/pm/cpuidle.rst).
fn idle_exits(root: &Root, cpu: u32) -> BTreeMap<String, u64> {
    let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle");
    let latency = |state: String| {
        let us = root.number(format!("{folder}/{state}/latency"))?;
        Some((format!("C-state {}", state.strip_prefix("state")?), us * 1000))
    };
    root.names(&folder).into_iter().filter_map(latency).collect()
}

fn smi_count(file: &File) -> io::Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, SMI_COUNT)?;
    Ok(u64::from_le_bytes(bytes))
}

impl Seen {
    /// That of a synthetic machine whose counter of `hz` and clock begin at 0.
    pub(crate) fn made(marks: BTreeMap<u32, Vec<(u64, Mark)>>, end_ns: u64, hz: u64) -> Seen {
        let smis = marks.keys().map(|cpu| (*cpu, 0)).collect();
        let timeline = |(cpu, marks): (u32, Vec<(u64, Mark)>)| {
            let mut builder = Builder::default();
            marks.into_iter().for_each(|(at_ns, mark)| builder.add(at_ns, mark, &mut |_| String::new()));
            (cpu, builder.finish(end_ns, &mut |_| String::new()))
        };
        Seen {
            timelines: marks.into_iter().map(timeline).collect(),
            standstills: Vec::new(),
            busy: Vec::new(),
            smis,
            is_guest: false,
            has_heartbeat: true,
            begun: Pair { ticks: 0, ns: 0, error: 0 },
            ended: Pair { ticks: clock::to_ticks(end_ns, hz), ns: end_ns, error: 0 },
        }
    }

    /// What took the time of a sample, the largest part first. The device is named where nothing at all happened on the CPU,
    /// and no source of evidence is missing.
    pub fn explain(&self, window: &SlowTime) -> Vec<Part> {
        let (from, to) = (self.at(window.ticks.0), self.at(window.ticks.1));
        let Some(timeline) = self.timelines.get(&window.cpu) else {
            return vec![rest(Cause::Unknown, None, window.excess_ns)];
        };
        let told = timeline.told(from, to, window.scope);
        let named: f64 = told.parts.iter().map(|part| part.ns).sum();
        let left = window.excess_ns - named;
        if named >= left {
            let mut parts = told.parts;
            // What runs on one CPU stops no other; a thread of the kernel may stop them all (stop_machine).
            let is_most = |part: &Part| part.cause != Cause::Thread && 2.0 * part.ns >= window.excess_ns;
            if is_most(&parts[0]) && self.stood_still(window) {
                parts[0] = rest(self.who_stopped(window.cpu), None, parts[0].ns);
            }
            return parts;
        }
        // Where an idle CPU or the waiting module was interrupted, nothing held the interrupt up.
        let is_held_up = |(function, module): &&(String, String)| {
            module != MODULE && !told.is_idle && !BEHIND_HANDLERS.contains(&function.as_str())
        };
        let code = window.interrupted.as_ref().filter(is_held_up).map(|(function, _)| function.clone());
        let (cause, name) = match told.instant {
            _ if told.is_lost => (Cause::EvidenceLost, None),
            _ if self.stood_still(window) => (self.who_stopped(window.cpu), None),
            Some((cause, name)) if left <= most_ns(cause) => (cause, Some(name).filter(|name| !name.is_empty())),
            _ if code.is_some() => (Cause::IrqsOff, code),
            _ if self.is_silence_evidence(window) => (Cause::Device, None),
            _ => (Cause::Unknown, None),
        };
        let mut parts = vec![rest(cause, name, left)];
        parts.extend(told.parts);
        parts
    }

    /// Whether a standstill of all CPUs, or of this one by its firmware, would have been seen.
    fn is_silence_evidence(&self, window: &SlowTime) -> bool {
        let has_no_smi = !self.is_guest && self.smis.contains_key(&window.cpu);
        let all = || within(&self.standstills, window).chain(within(&self.busy, window));
        let has_beaten = || all().map(|(both, _)| both).sum::<u64>() < window.length() / 2;
        self.has_heartbeat && (has_no_smi || window.excess_ns >= 2.0 * heartbeat::GAP_NS as f64 && has_beaten())
    }

    /// Whether the heartbeat on another CPU stopped when the sample did; a hypervisor stops them one after the other. It may go
    /// on later: by an interrupt that has waited.
    fn stood_still(&self, window: &SlowTime) -> bool {
        let (beat, length) = (self.ticks(heartbeat::GAP_NS), window.length());
        within(&self.standstills, window).any(|(both, (begin, end))| {
            begin + beat.max(length / 20) >= window.ticks.0 && 2 * both >= length && end - begin <= 2 * (length + beat)
        })
    }

    fn who_stopped(&self, cpu: u32) -> Cause {
        // Only x86 has SMIs.
        let has_no_smi = cfg!(target_arch = "aarch64") || self.smis.get(&cpu) == Some(&0);
        if self.is_guest && has_no_smi { Cause::Hypervisor } else { Cause::Standstill }
    }

    /// SMIs of a CPU during the slice; `None` where they are not counted.
    pub fn smis(&self, cpu: u32) -> Option<u64> {
        self.smis.get(&cpu).copied()
    }

    /// Events of a CPU that were seen, and those that are lost.
    pub fn events(&self, cpu: u32) -> (u64, u64) {
        self.timelines.get(&cpu).map_or((0, 0), |timeline| (timeline.events, timeline.events_lost))
    }

    /// By how much stamps of samples and events may differ, in nanoseconds.
    pub fn clock_error_ns(&self) -> f64 {
        let error = self.begun.error.max(self.ended.error);
        let (span, span_ns) = (self.ended.ticks - self.begun.ticks, self.ended.ns - self.begun.ns);
        error as f64 * span_ns as f64 / span.max(1) as f64
    }

    /// CLOCK_MONOTONIC at a reading of the counter, in nanoseconds, by the two pairs around the slice.
    pub fn at(&self, ticks: u64) -> u64 {
        let behind = i128::from(ticks) - i128::from(self.begun.ticks);
        let (span, span_ns) = (self.ended.ticks - self.begun.ticks, self.ended.ns - self.begun.ns);
        (i128::from(self.begun.ns) + behind * i128::from(span_ns) / i128::from(span.max(1))) as u64
    }

    fn ticks(&self, ns: u64) -> u64 {
        let (span, span_ns) = (self.ended.ticks - self.begun.ticks, self.ended.ns - self.begun.ns);
        (u128::from(ns) * u128::from(span) / u128::from(span_ns.max(1))) as u64
    }
}

/// What something without a length of its own can take at most, in nanoseconds: it does not explain more than that.
fn most_ns(cause: Cause) -> f64 {
    match cause {
        Cause::TlbFlush => 50e3,
        Cause::PageFault | Cause::Frequency | Cause::Migration => 1e6,
        _ => f64::INFINITY,
    }
}

fn rest(cause: Cause, name: Option<String>, ns: f64) -> Part {
    Part { cause, name, ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A millisecond on CPU 1 from 10 ms on, by a counter of 1 GHz: 50 us of it a timer, and what else is said.
    fn seen(marks: &[(u64, Mark)]) -> Seen {
        let timer = Mark::Begin(Nest::Vector, Cause::Timer, "local_timer".to_owned());
        let mut all = vec![(10_100_000, timer), (10_150_000, Mark::End(Nest::Vector))];
        all.extend(marks.iter().cloned());
        all.sort_by_key(|(at, _)| *at);
        Seen::made([(1, all)].into(), 1_000_000_000, 1_000_000_000)
    }

    fn slow() -> SlowTime {
        let ticks = (10_000_000, 11_000_000);
        SlowTime { cpu: 1, ticks, excess_ns: 1e6, scope: Scope::Thread, interrupted: None }
    }

    #[track_caller]
    fn first(seen: &Seen, time: &SlowTime, cause: Cause, name: Option<&str>) {
        let parts = seen.explain(time);
        assert_eq!((parts[0].cause, parts[0].name.as_deref()), (cause, name), "{parts:?}");
    }

    #[test]
    fn the_largest_part_is_the_cause_where_parts_are_half_of_the_time() {
        let irq = Mark::Begin(Nest::Handler, Cause::Interrupt, "nic0 (IRQ 30)".to_owned());
        let seen = seen(&[(10_200_000, irq), (10_700_000, Mark::End(Nest::Handler))]);
        first(&seen, &slow(), Cause::Interrupt, Some("nic0 (IRQ 30)"));
        assert_eq!(seen.explain(&slow())[1].cause, Cause::Timer);
    }

    #[test]
    fn what_no_part_explains_needs_other_evidence_and_silence_is_the_device() {
        first(&seen(&[]), &slow(), Cause::Device, None);
        let nmi = seen(&[(10_500_000, Mark::Spent(Cause::Nmi, String::new(), 1000))]);
        first(&nmi, &slow(), Cause::Nmi, None);
        // A flush of the TLB does not take a millisecond.
        first(&seen(&[(10_500_000, Mark::Instant(Cause::TlbFlush, String::new()))]), &slow(), Cause::Device, None);
        let alone = Seen { has_heartbeat: false, ..seen(&[]) };
        first(&alone, &slow(), Cause::Unknown, None);
        first(&alone, &SlowTime { cpu: 2, ..slow() }, Cause::Unknown, None);
        // A shorter standstill would not have been seen.
        let short = SlowTime { ticks: (10_000_000, 10_035_000), excess_ns: 3.5e4, ..slow() };
        first(&seen(&[]), &short, Cause::Device, None);
        first(&Seen { is_guest: true, ..seen(&[]) }, &short, Cause::Unknown, None);
        first(&Seen { smis: BTreeMap::new(), ..seen(&[]) }, &short, Cause::Unknown, None);
    }

    #[test]
    fn a_standstill_is_named_by_who_can_stop_all_cpus() {
        let of = |gap, smis: &[(u32, u64)], is_guest| Seen {
            standstills: vec![gap],
            smis: smis.iter().copied().collect(),
            is_guest,
            ..seen(&[])
        };
        let gap = (9_990_000, 11_010_000);
        first(&of(gap, &[(1, 0)], true), &slow(), Cause::Hypervisor, None);
        first(&of(gap, &[(1, 0)], false), &slow(), Cause::Standstill, None);
        first(&of(gap, &[], true), &slow(), Cause::Standstill, None);
        // The beat goes on a little later.
        first(&of((10_010_000, 11_900_000), &[(1, 0)], true), &slow(), Cause::Hypervisor, None);
        // It stopped before, or for much longer: somebody else had that CPU, and nobody could tell.
        first(&of((9_900_000, 11_000_000), &[(1, 0)], true), &slow(), Cause::Unknown, None);
        first(&of((9_990_000, 13_000_000), &[(1, 0)], true), &slow(), Cause::Unknown, None);
        // In the middle of an interrupt too.
        let timer = [
            (9_999_000, Mark::Begin(Nest::Handler, Cause::Timer, String::new())),
            (11_000_000, Mark::End(Nest::Handler)),
        ];
        let within = Seen { standstills: vec![gap], is_guest: true, ..seen(&timer) };
        first(&within, &slow(), Cause::Hypervisor, None);
        first(&seen(&timer), &slow(), Cause::Timer, None);
        // A hypervisor stops one CPU after the other.
        first(&of((9_960_000, 11_000_000), &[(1, 0)], true), &slow(), Cause::Hypervisor, None);
        // While the rings were emptied, nobody can tell.
        first(&Seen { busy: vec![(10_300_000, 11_200_000)], ..seen(&[]) }, &slow(), Cause::Device, None);
        let blind = Seen { busy: vec![(10_300_000, 11_200_000)], is_guest: true, ..seen(&[]) };
        first(&blind, &slow(), Cause::Unknown, None);
        // Hardly at all: that is another thing.
        first(&of((10_900_000, 10_950_000), &[(1, 0)], true), &slow(), Cause::Device, None);
    }

    #[test]
    fn an_interrupt_that_was_held_up_names_the_code_that_did() {
        let code = |module: &str| Some(("busy_loop".to_owned(), module.to_owned()));
        let late = |interrupted| SlowTime { scope: Scope::Handler, interrupted, ..slow() };
        first(&seen(&[]), &late(code("[other]")), Cause::IrqsOff, Some("busy_loop"));
        // The module itself waits with interrupts on, and an idle CPU too.
        first(&seen(&[]), &late(code("[pcilat]")), Cause::Device, None);
        // A handler before it took no longer than it did.
        let behind = late(Some(("handle_softirqs".to_owned(), "[kernel]".to_owned())));
        first(&seen(&[]), &behind, Cause::Device, None);
        let idle = seen(&[(9_000_000, Mark::Switch { from: 7, to: 0, name: "swapper/1".to_owned() })]);
        first(&idle, &late(code("[kernel]")), Cause::Device, None);
    }

    #[test]
    fn the_counter_becomes_the_kernels_clock_by_the_pairs_around_a_slice() {
        let pair = |ticks, ns| Pair { ticks, ns, error: 0 };
        let seen = Seen { begun: pair(1000, 5_000_000), ended: pair(3_001_000, 6_000_000), ..seen(&[]) };
        assert_eq!([1000, 1_501_000, 700].map(|ticks| seen.at(ticks)), [5_000_000, 5_500_000, 4_999_900]);
    }
}
