//! `sis8300drv_threads`: if the program is called by this name (a link), it takes the options of ESS's tool and prints
//! the same.
//!
//! `pciescope readout` does all of the work; docs/readout.md lists the differences from ESS's tool.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use super::output::{Form, Output};
use super::{Ctx, readout};

/// The name.
const NAME: &str = "sis8300drv_threads";

/// Whether the program was called by that name.
pub fn is_meant(called: Option<&OsString>) -> bool {
    called.and_then(|path| Path::new(path).file_name()) == Some(OsStr::new(NAME))
}

/// Read digitizers, one thread each.
#[derive(Debug, Parser)]
#[command(name = NAME, disable_version_flag = true, override_usage = "sis8300drv_threads device(s) [args..]", after_help = "\
FUNCTIONS
 0                    Readout only
 1                    Readout, decimation, scaling
 2                    Readout, decimation
 3                    Readout, scaling
 4                    Readout, no decimation, no scaling
 5                    Readout, 2'complement unsigned to double
 6                    Readout, 2'complement signed to double
 7                    Readout, 2'complement unsigned to float
 8                    Readout, 2'complement signed to float
 99                   All of the above
 100                  Write pattern to memory

This is the program pciescope under another name. `pciescope readout` measures
the same and more.")]
struct Args {
    /// One or many /dev/sis8300-x
    #[arg(value_name = "device", required = true)]
    devices: Vec<OsString>,

    /// Number of samples to read
    #[arg(short = 'S', value_name = "unsigned int", value_parser = unsigned, default_value = "0x100000")]
    samples: u64,

    /// Number of reads to perform
    #[arg(short = 'N', value_name = "unsigned int", value_parser = unsigned, default_value = "1")]
    reads: u64,

    /// Decimation offset
    #[arg(short = 'o', value_name = "unsigned int", value_parser = unsigned, default_value = "0")]
    decimation_offset: u64,

    /// Decimation factor
    #[arg(short = 'f', value_name = "unsigned int", value_parser = unsigned, default_value = "1")]
    decimation_factor: u64,

    /// Scale offset
    #[arg(short = 'O', value_name = "double", default_value = "0", allow_negative_numbers = true)]
    scale_offset: f64,

    /// Scale factor
    #[arg(short = 'F', value_name = "double", default_value = "1", allow_negative_numbers = true)]
    scale_factor: f64,

    /// Access mode read() or mmap()
    #[arg(short = 'B', value_name = "unsigned int", value_parser = clap::value_parser!(u8).range(0..=1), default_value = "0")]
    access: u8,

    /// Which function to perform
    #[arg(short = 'A', value_name = "unsigned int", value_parser = unsigned, default_value = "0")]
    function: u64,

    /// Number of triggered acquisitions, 0: read what is there
    #[arg(short = 'l', value_name = "unsigned int", value_parser = unsigned, default_value = "0")]
    acquisitions: u64,

    /// Wait for the interrupt at the end of an acquisition
    #[arg(short = 'i', requires = "acquisitions")]
    interrupt: bool,
}

/// A number as C's strtoul takes it: decimal, or hexadecimal after 0x.
fn unsigned(text: &str) -> Result<u64, String> {
    crate::values::number(text)
}

/// The words of `pciescope readout` that do the same.
fn words(args: Args) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![NAME.into()];
    for (option, value) in [
        ("--samples", args.samples.to_string()),
        ("--repeat", args.reads.to_string()),
        ("--decimation-offset", args.decimation_offset.to_string()),
        ("--decimation-factor", args.decimation_factor.to_string()),
        ("--access", args.access.to_string()),
        ("--function", args.function.to_string()),
        ("--acquisitions", args.acquisitions.to_string()),
        // It compared nothing.
        ("--check", "none".to_owned()),
    ] {
        words.extend([option.into(), value.into()]);
    }
    words.push(format!("--scale-offset={}", args.scale_offset).into());
    words.push(format!("--scale-factor={}", args.scale_factor).into());
    words.extend((args.acquisitions > 0).then(|| "--each".into()));
    words.extend(args.interrupt.then(|| "--interrupt".into()));
    words.extend((args.function == 100).then(|| "--overwrite-memory".into()));
    words.push("--".into());
    words.extend(args.devices);
    words
}

/// Parses, reads and prints.
///
/// # Errors
/// [`clap::Error`] for what was typed wrong, and what a readout fails with.
pub fn run(typed: Vec<OsString>, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let args = Args::try_parse_from(typed)?;
    let line = Line::try_parse_from(words(args))?;
    let output = Output::new(Form::Threads, Form::Threads.out(), None, None);
    readout::run_with(line.args, output, ctx)
}

/// The options of `pciescope readout`, by themselves.
#[derive(Debug, Parser)]
#[command(name = NAME)]
struct Line {
    #[command(flatten)]
    args: readout::Args,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_counts_and_not_the_folder() {
        for (called, meant) in
            [("sis8300drv_threads", true), ("./bin/sis8300drv_threads", true), ("/sis8300drv_threads/pciescope", false)]
        {
            assert_eq!(is_meant(Some(&called.into())), meant, "{called}");
        }
    }

    #[test]
    fn every_option_of_the_tool_is_one_of_readout() {
        let typed = "x /dev/null -S 0x100 -N 2 -o 3 -f 4 -O -1.5 -F 2 -B 1 -A 99 -l 5 -i";
        let args = Args::try_parse_from(typed.split(' ')).unwrap();
        let line = Line::try_parse_from(words(args)).unwrap().args;
        assert_eq!(
            (line.samples, line.repeat, line.decimation_offset, line.decimation_factor),
            (Some(256), Some(2), 3, 4)
        );
        assert_eq!((line.scale_offset, line.scale_factor, line.acquisitions), (-1.5, 2.0, 5));
        assert!(line.interrupt && line.output.each && line.devices.len() == 1);
        assert!(Args::try_parse_from(["x", "/dev/null", "-B", "2"]).is_err());
    }
}
