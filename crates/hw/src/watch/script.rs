//! Samples that follow a script, in a time that passes faster than the real one: `watch --backend fake`, and tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use pciescope_core::Bdf;

use super::{End, Fixed, Links, LiveLinks, Moment, Sample, bits};
use crate::Root;
use crate::link::SPEEDS;
use crate::probe::fake::Options;

/// What happens to a function.
#[derive(Debug, Clone, Copy)]
pub enum ScriptEvent {
    /// Its link runs at this speed in GT/s on these lanes; 0 lanes is no link.
    Link(f64, u8),
    /// Bits of its dword of link registers are set.
    Bits(u32),
    /// Target Link Speed becomes this one, in GT/s.
    Target(f64),
    /// It reports so many receiver errors more, which are correctable.
    Errors(u64),
    /// Its slot shows a card, or none.
    Card(bool),
    /// It is taken away.
    Gone,
    /// It is back, as it was at the start.
    Back,
}

/// A machine whose links do what a script says.
#[derive(Debug)]
pub struct Script {
    start: BTreeMap<Bdf, End>,
    now: BTreeMap<Bdf, End>,
    /// When it happens, in nanoseconds since the start; ascending.
    events: Vec<(u64, Bdf, ScriptEvent)>,
    next: usize,
    /// After this time the script begins again, in nanoseconds.
    again_ns: u64,
    round: u64,
    /// How many scripted seconds a real one has.
    faster: u64,
}

const HOUR_NS: u64 = 3_600_000_000_000;

impl Script {
    /// The synthetic machine: a disk's link falls back with errors and is set back, a GPU slows its link down while it is
    /// idle, a card is changed. Of its functions those named with the ports above, or all if none is. The script takes an hour; a day passes in a minute. With a host's name nothing happens.
    pub fn synthetic(root: &Root, options: &Options, named: &[Bdf]) -> Script {
        let mut functions = LiveLinks::new(root, named).sample(0).functions;
        let with_card: Vec<Bdf> =
            functions.values().filter_map(|end| end.fixed.function.path.last().copied()).collect();
        for (bdf, end) in &mut functions {
            (end.errors, end.bit_errors) = (Some([0; 3]), Some([0; 3]));
            let Some((speed, width)) = end.shown.take() else {
                // Its link is the port's; ASPM is off.
                end.link = Some(0);
                continue;
            };
            end.link = Some(link_status(speed, width));
            if end.fixed.leads_down {
                end.slot = Some(if with_card.contains(bdf) { bits::CARD } else { 0 });
                end.link_2 = Some(code(end.fixed.most.map_or(speed, |most| most.0)) as u16);
            }
        }
        let events = if options.host.is_some() { Vec::new() } else { hour() };
        Script::new(functions, events, HOUR_NS, 1440)
    }

    /// A script that begins now: events by time in nanoseconds since the start, repeated after `again_ns`. A real second has
    /// `faster` scripted ones.
    pub fn new(start: BTreeMap<Bdf, End>, events: Vec<(u64, Bdf, ScriptEvent)>, again_ns: u64, faster: u64) -> Script {
        Script { now: start.clone(), start, events, next: 0, again_ns, round: 0, faster: faster.max(1) }
    }

    fn play(&mut self, bdf: Bdf, event: ScriptEvent) {
        if let (ScriptEvent::Back, Some(start)) = (event, self.start.get(&bdf)) {
            let again = Fixed { inode: start.fixed.inode + self.round + 1, ..Fixed::clone(&start.fixed) };
            self.now.insert(bdf, End { fixed: Arc::new(again), ..start.clone() });
        }
        let Some(end) = self.now.get_mut(&bdf) else { return };
        let link = end.link.unwrap_or_default();
        match event {
            ScriptEvent::Link(speed, width) => end.link = Some(link & !0x03ff_0000 | link_status(speed, width)),
            ScriptEvent::Bits(bits) => end.link = Some(link | bits),
            ScriptEvent::Target(speed) => end.link_2 = Some(code(speed) as u16),
            ScriptEvent::Errors(more) => {
                end.errors.get_or_insert_default()[0] += more;
                end.bit_errors.get_or_insert_default()[0] += more;
            }
            ScriptEvent::Card(is_there) => {
                let slot = end.slot.unwrap_or_default();
                end.slot = Some(if is_there { slot | bits::CARD } else { slot & !bits::CARD });
            }
            ScriptEvent::Gone => drop(self.now.remove(&bdf)),
            ScriptEvent::Back => {}
        }
    }
}

impl Links for Script {
    fn sample(&mut self, at_ns: u64) -> Sample {
        while let Some((due, bdf, event)) = self.events.get(self.next).copied() {
            if due + self.round * self.again_ns > at_ns {
                break;
            }
            self.play(bdf, event);
            self.next += 1;
            if self.next == self.events.len() {
                (self.next, self.round) = (0, self.round + 1);
            }
        }
        // Not 0, as on a machine that runs.
        let at_ns = at_ns + 1_000_000_000;
        Sample {
            at: Moment { monotonic_ns: at_ns, boot_ns: at_ns },
            functions: self.now.clone(),
            held: Some(Vec::new()),
            ..Sample::default()
        }
    }

    fn clear_lbms(&mut self) -> Vec<Bdf> {
        let all = self.now.values_mut().filter_map(|end| Some((end.fixed.bdf(), end.link.as_mut()?)));
        let shown = all.filter(|(_, link)| **link & bits::MANAGED != 0);
        shown
            .map(|(bdf, link)| {
                *link &= !bits::MANAGED;
                bdf
            })
            .collect()
    }

    fn real_ns(&self, ns: u64) -> u64 {
        ns / self.faster
    }
}

/// The code of a speed in GT/s, from 1; 0 for another one.
fn code(speed: f64) -> u32 {
    SPEEDS.iter().position(|known| *known == speed).map_or(0, |place| place as u32 + 1)
}

/// Link Status in the dword of link registers.
fn link_status(speed: f64, width: u8) -> u32 {
    let code = if width == 0 { 0 } else { code(speed) };
    (code | u32::from(width) << 4) << 16
}

/// What happens in an hour.
fn hour() -> Vec<(u64, Bdf, ScriptEvent)> {
    use ScriptEvent::{Back, Bits, Card, Errors, Gone, Link, Target};
    let disk = Bdf { domain: 0, bus: 0x00, device: 2, function: 0 };
    let (slot, card) = (Bdf { bus: 0x80, device: 1, ..disk }, Bdf { bus: 0x81, device: 0, ..disk });
    let gpu = Bdf { bus: 0x80, device: 2, ..disk };
    let seconds = [
        (600, gpu, Link(2.5, 16)),
        (900, gpu, Link(32.0, 16)),
        (1190, disk, Errors(12)),
        (1200, disk, Errors(3)),
        (1200, disk, Bits(bits::MANAGED)),
        (1200, disk, Link(8.0, 4)),
        (2000, card, Gone),
        (2000, Bdf { function: 1, ..card }, Gone),
        (2000, slot, Card(false)),
        (2000, slot, Link(0.0, 0)),
        (2120, slot, Card(true)),
        (2120, slot, Link(32.0, 16)),
        (2120, card, Back),
        (2120, Bdf { function: 1, ..card }, Back),
        (3000, disk, Target(16.0)),
        (3000, disk, Link(16.0, 4)),
        (3060, disk, Target(32.0)),
        (3060, disk, Link(32.0, 4)),
    ];
    seconds.into_iter().map(|(at, bdf, event)| (at * 1_000_000_000, bdf, event)).collect()
}
