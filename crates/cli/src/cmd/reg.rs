//! `pciescope reg`: device registers, one access at a time, checked and logged.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use pciescope_core::{BarOffset, Bdf};
use pciescope_hw::probe::Probe;
use pciescope_hw::probe::open::Need;

use super::device::{AccessArgs, Device, settle};
use super::latency::target::{check, width};
use super::{Ctx, Refusal};
use crate::values::{FunctionName, bdf, number};

/// The arguments of `pciescope reg`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope reg read 0000:3b:00.0 0:0x8
  pciescope reg write 0000:3b:00.0 0:0x8 0x1234 --width 2
  pciescope reg log 0000:3b:00.0

Reading a register can have side effects too. The kernel module logs every
access with its time.")]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    what: RegVerb,
}

/// What to do with registers.
#[derive(Debug, clap::Subcommand)]
enum RegVerb {
    /// Read a register and print its value
    Read(ReadArgs),
    /// Write a register
    Write(WriteArgs),
    /// Print the accesses that the kernel module has logged
    Log(LogArgs),
}

/// Where a register is and how wide.
#[derive(Debug, clap::Args)]
struct Register {
    /// The function
    #[arg(value_name = "BDF", value_parser = bdf)]
    bdf: FunctionName,

    /// The register: BAR number and byte offset, such as 0:0xd0
    #[arg(value_name = "BAR:OFFSET", value_parser = location)]
    location: (u8, u64),

    /// Bytes of the access
    #[arg(long, value_name = "BYTES", value_parser = width, default_value = "4")]
    width: u8,

    #[command(flatten)]
    access: AccessArgs,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  pciescope reg read 0000:3b:00.0 0:0x8\n  pciescope reg read 0000:3b:00.0 2:0 --width 8"
)]
struct ReadArgs {
    #[command(flatten)]
    place: Register,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  pciescope reg write 0000:3b:00.0 0:0x8 0x1234 --width 2")]
struct WriteArgs {
    #[command(flatten)]
    place: Register,

    /// The value to write
    #[arg(value_name = "VALUE", value_parser = number)]
    value: u64,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  pciescope reg log 0000:3b:00.0")]
struct LogArgs {
    /// The function
    #[arg(value_name = "BDF", value_parser = bdf)]
    bdf: FunctionName,
}

/// Runs the verb.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    match args.what {
        RegVerb::Read(args) => read(&args.place, ctx),
        RegVerb::Write(args) => write(&args, ctx),
        RegVerb::Log(args) => log(ctx.function(&args.bdf)?, ctx),
    }
}

fn read(place: &Register, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let (bar, offset) = place.location;
    let value = accessed(place, ctx, |probe| probe.read(bar, offset, place.width))?;
    writeln!(io::stdout(), "{value:#0digits$x}", digits = 2 + 2 * usize::from(place.width))?;
    if value == ones(place.width) {
        ctx.note(&format!("{} is all-ones: its value, or a device that does not answer", BarOffset { bar, offset }));
    }
    Ok(ExitCode::SUCCESS)
}

fn write(args: &WriteArgs, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let (place, value) = (&args.place, args.value);
    let (bar, offset) = place.location;
    if value > ones(place.width) {
        return Err(Refusal::new(
            format!("the value {value:#x} does not fit into {} bytes", place.width),
            "give a smaller value or a larger --width",
        )
        .into());
    }
    accessed(place, ctx, |probe| probe.write(bar, offset, place.width, value))?;
    Ok(ExitCode::SUCCESS)
}

/// Checks the place, opens a backend (binding if asked to), makes one access and puts everything back.
fn accessed<T>(
    place: &Register,
    ctx: &Ctx,
    access: impl FnOnce(&mut dyn Probe) -> Result<T, pciescope_hw::Error>,
) -> anyhow::Result<T> {
    let (bar, offset) = place.location;
    let mut device = Device::find(ctx, Some(&place.bdf), &place.access)?;
    check(device.bdf, &device.function, bar, offset, place.width)?;
    ctx.stop.catch_signals()?;
    let mut reached = device.reach(ctx, &place.access, Need::Registers)?;
    let done = access(reached.probe.as_mut()).map_err(Into::into);
    settle(device.bdf, done, reached.give_back(), &mut |note| ctx.note(note))
}

fn ones(width: u8) -> u64 {
    u64::MAX >> (64 - 8 * u32::from(width))
}

/// Parses `BAR:OFFSET`.
fn location(text: &str) -> Result<(u8, u64), String> {
    let (bar, offset) = text.split_once(':').ok_or("write BAR:OFFSET, for example 0:0xd0")?;
    let bar = match bar.as_bytes() {
        [digit @ b'0'..=b'5'] => digit - b'0',
        _ => return Err(format!("{bar:?} is not a BAR number from 0 to 5")),
    };
    Ok((bar, number(offset)?))
}

/// Copies the module's log of register accesses.
fn log(bdf: Bdf, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    // The module names its nodes with the domain; the driver it descends from did without.
    let full = bdf.to_string();
    let short = full.strip_prefix("0000:").unwrap_or(&full);
    let nodes =
        [full.as_str(), short].map(|name| ctx.root.path(Path::new("/dev/pcilatdriver").join(name).join("devreg")));
    let Some(node) = nodes.iter().find(|node| node.exists()) else {
        return Err(Refusal::new(
            format!("{bdf}: has no log of register accesses, because it is not bound to pcilat"),
            format!("the kernel module keeps the log while it has the function: `pciescope bind {bdf}`"),
        )
        .into());
    };
    let mut file = File::open(node).with_context(|| format!("{bdf}: cannot open {}", node.display()))?;
    let mut out = io::stdout().lock();
    io::copy(&mut file, &mut out).with_context(|| format!("{bdf}: cannot copy {}", node.display()))?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_bar_and_an_offset() {
        assert_eq!(location("0:0xd0"), Ok((0, 0xd0)));
        assert_eq!(location("5:16"), Ok((5, 16)));
        for bad in ["", "0", "0xd0", "6:0", "-1:0", "00:0", "+0:0", "0:", "0:-4", "0:0:0", ":0"] {
            assert!(location(bad).is_err(), "{bad:?} was taken");
        }
    }
}
