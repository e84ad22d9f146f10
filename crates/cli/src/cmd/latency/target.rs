//! Which register is measured, and whether that is known to do no harm.

use pciescope_core::{Bdf, Function, MmioTest};
use pciescope_hw::registers::{SafeRegister, candidate, hidden, safe_target};

use crate::cmd::Refusal;

/// What the user said about the target.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// What is done with it.
    pub test: MmioTest,
    /// BAR number.
    pub bar: Option<u8>,
    /// Byte offset in the BAR.
    pub offset: Option<u64>,
    /// Bytes at once.
    pub width: Option<u8>,
    /// What the write tests write.
    pub value: Option<u64>,
    /// The user knows what accesses do.
    pub accepts_side_effects: bool,
}

/// A register to measure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Chosen {
    /// BAR number.
    pub bar: u8,
    /// Byte offset in the BAR.
    pub offset: u64,
    /// Bytes at once.
    pub width: u8,
    /// What the write tests write.
    pub value: u64,
    /// The table's entry, if it is the target.
    pub register: Option<SafeRegister>,
}

/// The lab's endpoint, every register of which is known (docs/spec/latency-endpoint.md).
const ENDPOINT: (u16, u16) = (0x1234, 0x5c0e);
/// Its register that keeps what is written and does nothing else.
const SCRATCH: u64 = 0x8;
/// Its EVENTS and NEVER: the registers whose reads do something.
const HARMFUL: std::ops::Range<u64> = 0x20..0x28;
/// What the write tests write to SCRATCH: alternating bits, so that a stuck line would show.
const PATTERN: u64 = 0x5a5a_5a5a_5a5a_5a5a;

/// Decides on the target.
///
/// # Errors
/// A [`Refusal`] where harm is possible and not accepted, or an access that the function does not have.
pub fn choose(function: &Function, wanted: &Wanted) -> anyhow::Result<Chosen> {
    let bdf = function.bdf.unwrap_or(Bdf { domain: 0, bus: 0, device: 0, function: 0 });
    let chosen = match (wanted.test, wanted.offset) {
        (MmioTest::Read, None) => default_read(bdf, function, wanted)?,
        (MmioTest::Read, Some(offset)) => named_read(bdf, function, wanted, offset)?,
        (_, offset) => write(bdf, function, wanted, offset)?,
    };
    check(bdf, function, &chosen)?;
    Ok(chosen)
}

fn default_read(bdf: Bdf, function: &Function, wanted: &Wanted) -> Result<Chosen, Refusal> {
    let register = safe_target(function).ok_or_else(|| {
        let hint = match (candidate(function), hidden(function)) {
            (_, Some(why)) => format!("where its safe register is cannot be told: {why}; try as root"),
            (Some(register), _) => format!(
                "{} is said to be harmless, but that was not checked: --bar {} --offset {:#x} --accept-side-effects",
                register.name, register.bar, register.offset
            ),
            _ => "name one with --bar and --offset, and add --accept-side-effects if you know what reading it does"
                .to_owned(),
        };
        Refusal::new(
            format!(
                "{bdf}: {} ({:04x}:{:04x}, class {:06x}) has no register that is known to be safe to read",
                function.name, function.vendor, function.device, function.class
            ),
            hint,
        )
    })?;
    if let Some(bar) = wanted.bar.filter(|&bar| bar != register.bar) {
        return Err(Refusal::new(
            format!("{bdf}: no register of BAR{bar} is known to be safe to read"),
            format!("name one with --offset, or leave --bar out to read {} of BAR{}", register.name, register.bar),
        ));
    }
    let width = wanted.width.unwrap_or(register.width);
    known_read(
        bdf,
        function,
        wanted,
        Chosen { bar: register.bar, offset: register.offset, width, value: 0, register: None },
    )
}

fn named_read(bdf: Bdf, function: &Function, wanted: &Wanted, offset: u64) -> Result<Chosen, Refusal> {
    let safe = safe_target(function);
    let bar = bar_of(bdf, function, wanted)?;
    let there = safe.filter(|safe| safe.bar == bar && safe.offset == offset);
    let width = wanted.width.or(there.map(|safe| safe.width)).unwrap_or(4);
    known_read(bdf, function, wanted, Chosen { bar, offset, width, value: 0, register: None })
}

/// Sees to it that a read is known to be harmless or accepted: one wider than the safe register takes in its neighbour.
fn known_read(bdf: Bdf, function: &Function, wanted: &Wanted, read: Chosen) -> Result<Chosen, Refusal> {
    let Chosen { bar, offset, width, .. } = read;
    let register = safe_target(function).filter(|safe| (safe.bar, safe.offset) == (bar, offset) && width <= safe.width);
    let is_known = register.is_some() || is_endpoint(function) && !(bar == 0 && overlaps(offset, width, &HARMFUL));
    if !is_known && !wanted.accepts_side_effects {
        return Err(Refusal::new(
            format!("{bdf}: what reading {width} bytes at BAR{bar}+{offset:#x} does is not known"),
            "reads can clear interrupt causes, empty FIFOs or hang the machine; if you know this one, add --accept-side-effects",
        ));
    }
    Ok(Chosen { register, ..read })
}

fn write(bdf: Bdf, function: &Function, wanted: &Wanted, offset: Option<u64>) -> Result<Chosen, Refusal> {
    let width = wanted.width.unwrap_or(4);
    let ones = u64::MAX >> (64 - 8 * u32::from(width));
    let is_scratch = is_endpoint(function)
        && wanted.bar.unwrap_or(0) == 0
        && offset.is_none_or(|offset| offset >= SCRATCH && offset + u64::from(width) <= SCRATCH + 8);
    if is_scratch {
        let value = wanted.value.unwrap_or(PATTERN & ones);
        return fits(
            bdf,
            value,
            ones,
            Chosen { bar: 0, offset: offset.unwrap_or(SCRATCH), width, value, register: None },
        );
    }
    let (Some(offset), Some(value), true) = (offset, wanted.value, wanted.accepts_side_effects) else {
        return Err(Refusal::new(
            format!("{bdf}: a write test changes a register, so there is no default for it"),
            "name it with --bar and --offset, say what to write with --value, and add --accept-side-effects",
        ));
    };
    let bar = bar_of(bdf, function, wanted)?;
    fits(bdf, value, ones, Chosen { bar, offset, width, value, register: None })
}

fn fits(bdf: Bdf, value: u64, ones: u64, chosen: Chosen) -> Result<Chosen, Refusal> {
    if value > ones {
        return Err(Refusal::new(
            format!("{bdf}: the value {value:#x} does not fit into {} bytes", chosen.width),
            "give a smaller --value or a larger --width",
        ));
    }
    Ok(chosen)
}

fn is_endpoint(function: &Function) -> bool {
    (function.vendor, function.device) == ENDPOINT
}

fn overlaps(offset: u64, width: u8, range: &std::ops::Range<u64>) -> bool {
    offset < range.end && offset.saturating_add(u64::from(width)) > range.start
}

/// The BAR that was named, or that of the safe register, or the first that is memory.
fn bar_of(bdf: Bdf, function: &Function, wanted: &Wanted) -> Result<u8, Refusal> {
    let first = || function.bars.iter().find(|bar| bar.is_memory).map(|bar| bar.number);
    wanted
        .bar
        .or_else(|| safe_target(function).map(|register| register.bar))
        .or_else(first)
        .ok_or_else(|| Refusal::new(format!("{bdf}: has no memory BAR"), "`pciescope latency path` needs none"))
}

/// Checks range and alignment against the function's BARs.
pub fn check(bdf: Bdf, function: &Function, chosen: &Chosen) -> anyhow::Result<()> {
    let Chosen { bar, offset, width, .. } = *chosen;
    let numbers: Vec<String> =
        function.bars.iter().filter(|bar| bar.is_memory).map(|bar| bar.number.to_string()).collect();
    let Some(window) = function.bars.iter().find(|window| window.number == bar && window.is_memory) else {
        let hint = match numbers.is_empty() {
            true => "the function has no memory BAR; `pciescope latency path` needs none".to_owned(),
            false => format!("its memory BARs are {}", numbers.join(", ")),
        };
        return Err(Refusal::new(format!("{bdf}: has no memory BAR{bar}"), hint).into());
    };
    let len = window.size_bytes;
    if offset.checked_add(u64::from(width)).is_none_or(|end| end > len) {
        return Err(pciescope_hw::Error::OutsideBar { bdf, bar, offset, len }.into());
    }
    if offset % u64::from(width) != 0 {
        return Err(Refusal::new(
            format!("{bdf}: offset {offset:#x} is not a multiple of the width of {width} bytes"),
            "PCIe devices need not answer unaligned accesses, and arm64 faults on them",
        )
        .into());
    }
    Ok(())
}
