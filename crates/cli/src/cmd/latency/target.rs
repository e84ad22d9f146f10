//! Chooses the register to measure, and refuses one that is not known to be harmless.

use clap::ValueEnum;
use pciescope_core::{BarOffset, Bdf, Function, MmioPlan, MmioTest};
use pciescope_hw::registers::{candidate, hidden, safe_read, safe_target};

use crate::cmd::Refusal;
use crate::values::number;

/// What the user said about the target.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct TargetArgs {
    /// The test: what to time
    #[arg(long, value_enum, default_value = "read")]
    pub test: Test,

    /// BAR number, 0 to 5
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=5))]
    pub bar: Option<u8>,

    /// Byte offset in the BAR
    #[arg(long, value_name = "OFFSET", value_parser = number)]
    pub offset: Option<u64>,

    /// Bytes per access
    #[arg(long, value_name = "BYTES", value_parser = width)]
    pub width: Option<u8>,

    /// The value that the write tests write
    #[arg(long, value_name = "VALUE", value_parser = number)]
    pub value: Option<u64>,

    /// Access a register that is not known to be harmless
    #[arg(long)]
    pub accept_side_effects: bool,
}

/// `--test` as typed.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum Test {
    /// The round trip of a read
    #[default]
    Read,
    /// How long a posted write occupies the CPU
    Write,
    /// A write, and then a read of the same register
    WriteRead,
}

/// Parses an access width.
pub fn width(text: &str) -> Result<u8, String> {
    match text {
        "1" => Ok(1),
        "2" => Ok(2),
        "4" => Ok(4),
        "8" => Ok(8),
        _ => Err("an access has 1, 2, 4 or 8 bytes".to_owned()),
    }
}

/// The lab's endpoint, every register of which is known (docs/spec/latency-endpoint.md).
const ENDPOINT: (u16, u16) = (0x1234, 0x5c0e);
/// Its register that keeps what is written and does nothing else.
const SCRATCH: u64 = 0x8;
/// Its EVENTS and NEVER: the registers whose reads do something.
const HARMFUL: std::ops::Range<u64> = 0x20..0x28;
/// What the write tests write to SCRATCH: alternating bits, so that a stuck line would show.
const PATTERN: u64 = 0x5a5a_5a5a_5a5a_5a5a;

/// Decides on the target: the plan of its test, as [`MmioPlan::reads`] leaves it in all other respects.
///
/// # Errors
/// A [`Refusal`] where harm is possible and not accepted, or an access that the function does not have.
pub fn choose(function: &Function, args: &TargetArgs) -> anyhow::Result<MmioPlan> {
    let bdf = function.bdf.unwrap_or(Bdf { domain: 0, bus: 0, device: 0, function: 0 });
    let plan = match (args.test, args.offset) {
        (Test::Read, None) => default_read(bdf, function, args)?,
        (Test::Read, Some(offset)) => named_read(bdf, function, args, offset)?,
        (Test::Write, offset) => write(bdf, function, args, MmioTest::Write, offset)?,
        (Test::WriteRead, offset) => write(bdf, function, args, MmioTest::WriteRead, offset)?,
    };
    check(bdf, function, plan.bar, plan.offset, plan.width)?;
    Ok(plan)
}

fn default_read(bdf: Bdf, function: &Function, args: &TargetArgs) -> Result<MmioPlan, Refusal> {
    let register = safe_target(function).ok_or_else(|| {
        let hint = match (candidate(function), hidden(function)) {
            (_, Some(why)) => format!("its safe register cannot be found: {why}; try as root"),
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
    if let Some(bar) = args.bar.filter(|&bar| bar != register.bar) {
        return Err(Refusal::new(
            format!("{bdf}: no register of BAR{bar} is known to be safe to read"),
            format!("name one with --offset, or leave --bar out to read {} of BAR{}", register.name, register.bar),
        ));
    }
    let width = args.width.unwrap_or(register.width);
    known_read(function, args, MmioPlan::reads(bdf, register.bar, register.offset, width))
}

fn named_read(bdf: Bdf, function: &Function, args: &TargetArgs, offset: u64) -> Result<MmioPlan, Refusal> {
    let bar = bar_of(bdf, function, args)?;
    let there = safe_read(function, bar, offset, 1);
    let width = args.width.or(there.map(|safe| safe.width)).unwrap_or(4);
    known_read(function, args, MmioPlan::reads(bdf, bar, offset, width))
}

/// Sees to it that a read is known to be harmless or accepted: one wider than the safe register takes in its neighbour.
fn known_read(function: &Function, args: &TargetArgs, plan: MmioPlan) -> Result<MmioPlan, Refusal> {
    let MmioPlan { bdf, bar, offset, width, .. } = plan;
    let is_known = safe_read(function, bar, offset, width).is_some()
        || is_endpoint(function) && !(bar == 0 && overlaps(offset, width, &HARMFUL));
    if !is_known && !args.accept_side_effects {
        return Err(Refusal::new(
            format!("{bdf}: what reading {width} bytes at {} does is not known", BarOffset { bar, offset }),
            "reads can clear interrupt causes, empty FIFOs or hang the machine; if you know this one, add --accept-side-effects",
        ));
    }
    Ok(plan)
}

fn write(
    bdf: Bdf,
    function: &Function,
    args: &TargetArgs,
    test: MmioTest,
    offset: Option<u64>,
) -> Result<MmioPlan, Refusal> {
    let width = args.width.unwrap_or(4);
    let ones = u64::MAX >> (64 - 8 * u32::from(width));
    let is_scratch = is_endpoint(function)
        && args.bar.unwrap_or(0) == 0
        && offset.is_none_or(|offset| offset >= SCRATCH && offset + u64::from(width) <= SCRATCH + 8);
    let (bar, offset, value) = match (offset, args.value) {
        (offset, value) if is_scratch => (0, offset.unwrap_or(SCRATCH), value.unwrap_or(PATTERN & ones)),
        (Some(offset), Some(value)) if args.accept_side_effects => (bar_of(bdf, function, args)?, offset, value),
        _ => {
            return Err(Refusal::new(
                format!("{bdf}: a write test changes a register, so there is no default for it"),
                "name it with --bar and --offset, say what to write with --value, and add --accept-side-effects",
            ));
        }
    };
    if value > ones {
        return Err(Refusal::new(
            format!("{bdf}: the value {value:#x} does not fit into {width} bytes"),
            "give a smaller --value or a larger --width",
        ));
    }
    Ok(MmioPlan { test, value, ..MmioPlan::reads(bdf, bar, offset, width) })
}

fn is_endpoint(function: &Function) -> bool {
    (function.vendor, function.device) == ENDPOINT
}

fn overlaps(offset: u64, width: u8, range: &std::ops::Range<u64>) -> bool {
    offset < range.end && offset.saturating_add(u64::from(width)) > range.start
}

/// The BAR that was named, or that of the safe register, or the first that is memory.
fn bar_of(bdf: Bdf, function: &Function, args: &TargetArgs) -> Result<u8, Refusal> {
    let first = || function.bars.iter().find(|bar| bar.is_memory).map(|bar| bar.number);
    args.bar
        .or_else(|| safe_target(function).map(|register| register.bar))
        .or_else(first)
        .ok_or_else(|| Refusal::new(format!("{bdf}: has no memory BAR"), "`pciescope latency path` needs none"))
}

/// Checks range and alignment of an access against the function's BARs.
///
/// # Errors
/// A [`Refusal`], or [`pciescope_hw::Error::OutsideBar`].
pub fn check(bdf: Bdf, function: &Function, bar: u8, offset: u64, width: u8) -> anyhow::Result<()> {
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
