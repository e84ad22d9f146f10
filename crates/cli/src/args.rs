//! The command line: the verbs, and the parsers of values that several verbs take.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{CommandFactory, Parser, Subcommand};

use crate::cmd;

/// Measure the path between CPUs, memory and PCIe devices, and prove the numbers.
#[derive(Debug, Parser)]
#[command(name = "pciescope", version, after_help = EXIT_CODES, subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    /// Look for /sys, /proc, /dev and /run below DIR (a recorded tree)
    #[arg(long, value_name = "DIR", default_value = "/", hide = true, global = true)]
    pub root: PathBuf,

    /// Say more about what is done and why (standard error)
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub verbose: u8,

    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// Stands at the end of `pciescope --help` and in the README.
pub const EXIT_CODES: &str = "\
Exit codes:
  0        fine
  1        measured, but a check or threshold failed (lost interrupts or samples, wrong data, ...)
  2        could not measure, or not to the end; or the command line is wrong
  128+N    ended by signal N; records are written and the machine is restored (Ctrl-C: 130)
  141      the reader of the standard output went away";

/// One verb per question.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show the devices, their links and drivers, and what can be measured on each
    List(cmd::list::Args),
    /// Measure how long accesses and interrupts take, from every CPU
    Latency(cmd::latency::Args),
    /// Count PCIe and DRAM traffic, link states and errors by hardware counters
    Stat(cmd::stat::Args),
    /// Read data out of digitizers, disks and files, and convert it
    Readout(cmd::readout::Args),
    /// Measure how fast samples are converted, and check it to the last bit
    Convert(cmd::convert::Args),
    /// Read, write and log device registers
    Reg(cmd::reg::Args),
    /// Hand a device to the driver that measures
    Bind(cmd::bind::Args),
    /// Give a device back to the driver it had
    Unbind(cmd::unbind::Args),
    /// Compare the counters with workloads whose traffic is known
    Verify(cmd::verify::Args),
    /// Watch ports, channels and a device live, full screen
    Top(cmd::top::Args),
    /// Serve metrics to Prometheus and a live page to browsers
    Serve(cmd::serve::Args),
    /// Find what spoils performance or a measurement, and what to do about it
    Doctor(cmd::doctor::Args),
    /// Say whether two runs differ, by how much, and fail where they may not
    Compare(cmd::compare::Args),
    /// Turn records into tables, pages and pictures
    Report(cmd::report::Args),
    /// Turn foreign logs into records
    Import(cmd::import::Args),
    /// Print the completions of a shell
    Completions(cmd::completions::Args),
    /// Write the manual pages
    #[command(hide = true)]
    Man(cmd::man::Args),
    /// The virtual hardware: run programs against devices whose answers are known
    Lab(cmd::lab::Args),
}

/// Parses a count: `1000`, `10k`, `2M`, `1G` (powers of 1000), also with `_` between digits.
pub fn count(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1_000),
        Some(b'M') => (&text[..text.len() - 1], 1_000_000),
        Some(b'G') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let plain = digits.replace('_', "");
    if plain.is_empty() || !plain.bytes().all(|b| b.is_ascii_digit()) {
        return Err("write a count such as 1000, 10k or 2M".to_owned());
    }
    let too_large = || format!("the largest count is {}", u64::MAX);
    plain.parse::<u64>().map_err(|_| too_large())?.checked_mul(factor).ok_or_else(too_large)
}

/// Parses a count that must not be 0.
pub fn positive(text: &str) -> Result<u64, String> {
    match count(text)? {
        0 => Err("it must be at least 1".to_owned()),
        n => Ok(n),
    }
}

/// Parses a time into nanoseconds: `200ns`, `50us`, `1ms`, `10s`; `0` needs no unit.
pub fn time_ns(text: &str) -> Result<u64, String> {
    if text == "0" {
        return Ok(0);
    }
    let time =
        humantime::parse_duration(text).map_err(|_| "write a time with its unit: ns, us, ms, s or min".to_owned())?;
    u64::try_from(time.as_nanos()).map_err(|_| format!("the longest time is {} ns", u64::MAX))
}

/// Parses a register offset or value: decimal, or hexadecimal after `0x`.
pub fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) if hex.bytes().all(|b| b.is_ascii_hexdigit()) => u64::from_str_radix(hex, 16),
        None if text.bytes().all(|b| b.is_ascii_digit()) => text.parse(),
        _ => return Err("write a decimal number, or a hexadecimal one after 0x".to_owned()),
    };
    parsed.map_err(|_| "write a decimal number of at most 64 bits, or a hexadecimal one after 0x".to_owned())
}

/// Parses a PCI address, with the hint in the refusal.
pub fn bdf(text: &str) -> Result<pciescope_core::Bdf, String> {
    text.parse().map_err(|err: pciescope_core::Error| match err.hint() {
        Some(hint) => format!("{err}: {hint}"),
        None => err.to_string(),
    })
}

/// Takes clap's refusal apart: what is wrong, in one line, and what the user can do. Clap writes blocks with blank
/// lines between: what is wrong, tips, the usage, and where the help is.
pub fn refusal(rendered: &str, typed: &[OsString]) -> (String, String) {
    let line = |block: &str| block.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let mut blocks = rendered.trim().split("\n\n");
    let first = line(blocks.next().unwrap_or_default());
    let tips = blocks.flat_map(str::lines).filter_map(|text| text.trim().strip_prefix("tip: "));
    // No value of ours looks like an option: a misspelt option is what was typed.
    let tips = tips.filter(|tip| !tip.starts_with("to pass")).collect::<Vec<_>>().join("; ");
    let hint = if tips.is_empty() { format!("`{} --help`", named(typed)) } else { tips };
    (first.strip_prefix("error: ").unwrap_or(&first).to_owned(), hint)
}

/// The verb that was typed, such as `pciescope latency mmio`, as far as it is one.
fn named(typed: &[OsString]) -> String {
    let cli = Cli::command();
    let (mut command, mut name) = (&cli, cli.get_name().to_owned());
    for word in typed {
        if let Some(verb) = command.find_subcommand(word) {
            name = format!("{name} {}", verb.get_name());
            command = verb;
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn counts_take_suffixes_and_refuse_what_does_not_fit() {
        assert_eq!(count("1_000"), Ok(1000));
        assert_eq!(count("10k"), Ok(10_000));
        assert_eq!(count("2M"), Ok(2_000_000));
        assert_eq!(count("18446744073709551615"), Ok(u64::MAX));
        for bad in ["", "k", "-1", "+1", "1.5", "1m", "1e6", "18446744073709551616", "18446744073710M", "_"] {
            assert!(count(bad).is_err(), "{bad:?} was taken");
        }
        assert!(positive("0").is_err());
    }

    #[test]
    fn times_need_a_unit() {
        assert_eq!(time_ns("200ns"), Ok(200));
        assert_eq!(time_ns("50us"), Ok(50_000));
        assert_eq!(time_ns("1ms"), Ok(1_000_000));
        assert_eq!(time_ns("10s"), Ok(10_000_000_000));
        assert_eq!(time_ns("0"), Ok(0));
        for bad in ["", "10", "-1s", "1 parsec", "99999999999999s"] {
            assert!(time_ns(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        assert_eq!(number("0x10"), Ok(16));
        assert_eq!(number("16"), Ok(16));
        assert_eq!(number("0xffffffffffffffff"), Ok(u64::MAX));
        for bad in ["", "0x", "10h", "-1", "+1", "0x+1", "0x10000000000000000"] {
            assert!(number(bad).is_err(), "{bad:?} was taken");
        }
    }
}
