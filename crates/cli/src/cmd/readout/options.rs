//! What was typed.

use std::path::PathBuf;

use pciescope_bench::readout::{Check, work};
use pciescope_core::{Access, Work};
use pciescope_hw::daq::Trigger;

use crate::cmd::device::CpuChoice;
use crate::cmd::output::OutputArgs;
use crate::values::{Size, Time, count, positive, size, time};

/// The arguments of `pciescope readout`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope readout /dev/sis8300-6 -S 30M -r 30
  pciescope readout /dev/sis8300-{4,6,7,8,9} -S 3M -r 30 -A 99 -o run.jsonl
  pciescope readout /dev/sis8300-6 -S 300000 -l 100 -i -A 5 --hot-spots
  pciescope readout /dev/sis8300-* --sweep -o campaign.jsonl
  pciescope readout /dev/nvme0n1 -B io_uring -S 32M --block 256k -r 10
  pciescope readout data.raw -S 1M -r 100 -A sca --scale-factor 0.5 --fuse
  pciescope readout --backend fake:model=ku -S 3M -r 5       without hardware

Functions (-A), by number or name. Each except 0 and 100 first reads and then
converts the data, each -r times:
  0  readout     read only
  1  decsca      every f-th sample from o on, times F plus O, to f32
  2  dec         every f-th sample from o on, to f32
  3  sca         times F plus O, to f32
  4  cast        to f32 (func_no_decsca)
  5  umn2double  unsigned Q1.15 to f64
  6  smn2double  signed Q3.13 to f64, in degrees
  7  umn2float   unsigned Q1.15 to f32
  8  smn2float   signed Q3.13 to f32
  99 all         1, 2, 3, 4, 6, 5, 8, 7, one after the other
  100 writepatt  write byte i mod 127 to the card's memory, -r times

Rates are in MB/s of 10^6 bytes of raw input, for conversions too. All threads
are ready before any of them starts; times count from their common start. With
--all the rows have the columns of sis8300drv_threads. If a link to this program
has that name, it takes that tool's options and prints the same.
docs/readout.md says more.")]
#[command(group(clap::ArgGroup::new("source").args(["devices", "backend"]).required(true)))]
#[command(group(clap::ArgGroup::new("acquiring").args(["acquisitions", "sweep"]).multiple(true)))]
pub struct Args {
    /// Device nodes and files, one thread each
    #[arg(value_name = "DEV")]
    pub devices: Vec<PathBuf>,

    /// Read a synthetic board instead of a device: fake[:OPTION,...]
    #[arg(long, value_name = "BACKEND", value_parser = backend)]
    pub backend: Option<PathBuf>,

    /// Samples of 2 bytes to read, rounded up to a multiple of 16 [default: 1048576; without -r of a disk or file its first 256 MiB in blocks of 1 MiB, again and again for a second]
    #[arg(short = 'S', long, value_name = "N", value_parser = positive)]
    pub samples: Option<u64>,

    /// Number of reads (and conversions), one after the other [default: 1, for the campaign 30]
    #[arg(short = 'r', long, short_alias = 'N', value_name = "N", value_parser = positive)]
    pub repeat: Option<u64>,

    /// Decimation: the number of samples to leave out at the beginning
    #[arg(long, value_name = "N", value_parser = count, default_value = "0")]
    pub decimation_offset: u64,

    /// Decimation: use one of N samples
    #[arg(long, short_alias = 'f', value_name = "N", value_parser = positive, default_value = "1")]
    pub decimation_factor: u64,

    /// Scaling: the value to add to each sample
    #[arg(long, short_alias = 'O', value_name = "X", value_parser = finite, default_value = "0", allow_negative_numbers = true)]
    pub scale_offset: f64,

    /// Scaling: the factor to multiply each sample with
    #[arg(long, short_alias = 'F', value_name = "X", value_parser = finite, default_value = "1", allow_negative_numbers = true)]
    pub scale_factor: f64,

    /// How to read: 0 read; 1 ring (a digitizer's DMA buffers) or mmap; 2 direct; 3 io_uring; or the name [default: read; of a disk or file direct, past the page cache]
    #[arg(short = 'B', long, value_name = "HOW", value_parser = access)]
    pub access: Option<AccessChoice>,

    /// What to do, by number or name: see below
    #[arg(short = 'A', long, value_name = "FUNC,...", value_parser = function, value_delimiter = ',', default_value = "0")]
    pub function: Vec<Work>,

    /// Number of triggered acquisitions: arm, wait for the end, read and convert; 0 only reads the memory's contents
    #[arg(short = 'l', long, value_name = "N", value_parser = count, default_value = "0")]
    pub acquisitions: u64,

    /// Wait for the interrupt at the end of an acquisition instead of reading the status register
    #[arg(short = 'i', long, requires = "acquisitions")]
    pub interrupt: bool,

    /// Bytes of a piece: the data is processed in pieces and not kept
    #[arg(long, alias = "bs", value_name = "SIZE", value_parser = block)]
    pub block: Option<Size>,

    /// Buffers of a ring or requests of io_uring in flight
    #[arg(long, alias = "iodepth", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub depth: Option<u32>,

    /// Convert each piece when it arrives, while it is in the cache and the next one is being read
    #[arg(long)]
    pub fuse: bool,

    /// The seed's whole campaign in one run: boards, sizes, functions, CPU time of polling and interrupts
    #[arg(long, conflicts_with_all = ["function", "acquisitions", "interrupt", "fuse", "samples", "decimation_offset", "decimation_factor"])]
    pub sweep: bool,

    /// Sizes of the campaign's table of sizes, in samples; the other tables use the largest
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = positive, requires = "sweep")]
    pub sweep_sizes: Vec<u64>,

    /// Triggered acquisitions for the campaign's table of CPU time; 0 skips this table
    #[arg(long, value_name = "N", value_parser = count, requires = "sweep")]
    pub sweep_cycles: Option<u64>,

    /// CPUs for the threads, one for each device in turn: a list as 0-3,8, node:N, local (the device's node) or all
    #[arg(long, value_name = "CPUS")]
    pub cpus: Option<CpuChoice>,

    /// NUMA node of buffers and threads: a number, or `device` for the node of each device
    #[arg(long, value_name = "NODE", value_parser = node)]
    pub node: Option<NodeChoice>,

    #[command(flatten)]
    pub board: BoardArgs,

    #[command(flatten)]
    pub judge: JudgeArgs,

    #[command(flatten)]
    pub output: OutArgs,
}

impl Args {
    /// `-S`, or what it is by default.
    pub fn samples(&self) -> u64 {
        self.samples.unwrap_or(1 << 20)
    }
}

/// How boards acquire.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Acquisitions (-l)")]
pub struct BoardArgs {
    /// Channels, from 0; each gets its share of -S
    #[arg(long, value_name = "LIST", value_parser = channels, default_value = "0-9", requires = "acquiring")]
    pub channels: u16,

    /// Divider of the internal clock of 250 MHz, or `keep`
    #[arg(long, value_name = "N", value_parser = divider, default_value = "3", requires = "acquiring")]
    pub divider: Divider,

    /// The trigger that starts an acquisition: now, or backplane:LINE
    #[arg(long, value_name = "WHAT", value_parser = trigger, default_value = "backplane:0", requires = "acquiring")]
    pub trigger: Trigger,

    /// The longest wait for the end of an acquisition
    #[arg(long, value_name = "TIME", value_parser = timeout, default_value = "1s", requires = "acquiring")]
    pub timeout: Time,

    /// Let function 100 overwrite the memory of the cards
    #[arg(long)]
    pub overwrite_memory: bool,
}

/// What is compared and what fails the run.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Checks")]
pub struct JudgeArgs {
    /// Compare the last read of each cycle, outside of the timed window: none, same (with a further read), pattern (of
    /// function 100), lab[:SEED] (of the lab's boards) [default: same, if the data stays the same]
    #[arg(long, value_name = "WITH")]
    pub check: Option<Check>,

    /// Compare every read
    #[arg(long)]
    pub check_all: bool,

    /// Exit with code 1 if a device is read slower than this, in MB/s
    #[arg(long, value_name = "MB/s", value_parser = rate)]
    pub min_rate: Option<f64>,

    /// Show the N kernel functions and files of user space that used most of the CPU time
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "5", value_parser = positive)]
    pub hot_spots: Option<u64>,
}

/// Where the results go.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub struct OutArgs {
    /// Print a row for each acquisition instead of one row for all
    #[arg(long, requires = "acquiring")]
    pub each: bool,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// `-B` as typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessChoice {
    /// As named.
    Named(Access),
    /// `1`: without a copy, by the way that the device has for it.
    ZeroCopy,
}

/// Parses `-B`.
pub fn access(text: &str) -> Result<AccessChoice, String> {
    Ok(match text {
        "0" | "read" => AccessChoice::Named(Access::Read),
        "1" => AccessChoice::ZeroCopy,
        "mmap" => AccessChoice::Named(Access::Mmap),
        "ring" => AccessChoice::Named(Access::Ring),
        "2" | "direct" => AccessChoice::Named(Access::Direct),
        "3" | "io_uring" => AccessChoice::Named(Access::IoUring),
        _ => return Err("take read (0), ring or mmap (1), direct (2) or io_uring (3)".to_owned()),
    })
}

fn function(text: &str) -> Result<Work, String> {
    let named = |work: &Work| {
        let name = work.row_name();
        text == name || Some(text) == name.strip_prefix("func_")
    };
    let by_name = || match text {
        "cast" => Some(Work::Cast),
        _ => Work::ALL.into_iter().find(named),
    };
    let found = text.parse().ok().and_then(work).or_else(by_name);
    found.ok_or_else(|| "there is no such function: take 0 to 8, 99, 100 or a name of the list below".to_owned())
}

fn finite(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|value: &f64| value.is_finite()).ok_or_else(|| "write a number such as 0.25".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    finite(text).ok().filter(|rate| *rate > 0.0).ok_or_else(|| "write a rate in MB/s such as 600".to_owned())
}

/// The largest piece, in bytes, and what a piece is a multiple of.
const LARGEST_BLOCK: u64 = 1 << 30;
const BLOCK_STEP: u64 = 64;

fn block(text: &str) -> Result<Size, String> {
    match size(text)? {
        Size(bytes) if bytes == 0 || bytes % BLOCK_STEP != 0 || bytes > LARGEST_BLOCK => {
            Err("write a multiple of 64 bytes up to 1G, such as 4096, 256k or 1M".to_owned())
        }
        size => Ok(size),
    }
}

/// Parses `fake[:OPTION,...]` into what the readout opens.
fn backend(text: &str) -> Result<PathBuf, String> {
    match text.split_once(':').unwrap_or((text, "")) {
        ("fake", options) => Ok(fake_board(options)),
        _ => Err("a readout has the backend fake[:OPTION,...]; devices are named by their nodes".to_owned()),
    }
}

/// The path by which a synthetic board is opened.
fn fake_board(options: &str) -> PathBuf {
    let question = if options.is_empty() { "" } else { "?" };
    PathBuf::from(format!("fake:digitizer{question}{options}"))
}

/// `--node` as typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeChoice {
    /// That of each device.
    OfDevice,
    /// This.
    Number(u32),
}

fn node(text: &str) -> Result<NodeChoice, String> {
    match text {
        "device" => Ok(NodeChoice::OfDevice),
        _ => text.parse().map(NodeChoice::Number).map_err(|_| "write the number of a node, or device".to_owned()),
    }
}

fn channels(text: &str) -> Result<u16, String> {
    let numbers = pciescope_core::cpulist::numbers(text, "channel", 9)?;
    if numbers.is_empty() {
        return Err("it names no channel".to_owned());
    }
    Ok(numbers.into_iter().fold(0, |mask, channel| mask | 1 << channel))
}

/// `--divider` as typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Divider(pub Option<u32>);

fn divider(text: &str) -> Result<Divider, String> {
    match text {
        "keep" => Ok(Divider(None)),
        _ => match text.parse() {
            Ok(divider @ 2..=32) => Ok(Divider(Some(divider))),
            _ => Err("write a divider from 2 to 32, or keep".to_owned()),
        },
    }
}

fn trigger(text: &str) -> Result<Trigger, String> {
    match text.split_once(':').unwrap_or((text, "")) {
        ("now", "") => Ok(Trigger::Now),
        ("backplane", line) => match line.parse() {
            Ok(line @ 0..=7) => Ok(Trigger::Backplane(line)),
            _ => Err("the backplane has lines 0 to 7: backplane:0".to_owned()),
        },
        _ => Err("take now or backplane:LINE".to_owned()),
    }
}

fn timeout(text: &str) -> Result<Time, String> {
    match time(text)? {
        Time(ns) if !(1_000_000..=3_600_000_000_000).contains(&ns) => Err("take 1ms to 1h".to_owned()),
        time => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_numbers_and_names() {
        for (text, work) in [
            ("0", Work::Readout),
            ("99", Work::All),
            ("100", Work::WritePattern),
            ("cast", Work::Cast),
            ("no_decsca", Work::Cast),
            ("func_sca", Work::Scale),
            ("smn2float", Work::SignedF32),
        ] {
            assert_eq!(function(text), Ok(work), "{text}");
        }
        for bad in ["", "9", "-1", "func_", "sqrt"] {
            assert!(function(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn values_are_refused_where_they_make_no_sense() {
        assert_eq!((block("256k"), block("4096")), (Ok(Size(256 << 10)), Ok(Size(4096))));
        for bad in ["", "0", "63", "k", "2G"] {
            assert!(block(bad).is_err(), "{bad:?}");
        }
        assert_eq!((channels("0-9"), channels("3")), (Ok(0x3ff), Ok(8)));
        assert!(channels("10").is_err() && channels("").is_err());
        assert_eq!((trigger("now"), trigger("backplane:7")), (Ok(Trigger::Now), Ok(Trigger::Backplane(7))));
        assert!(trigger("backplane:8").is_err() && trigger("front").is_err() && trigger("now:1").is_err());
        assert_eq!((timeout("1s"), divider("keep")), (Ok(Time(1_000_000_000)), Ok(Divider(None))));
        assert!(timeout("10us").is_err() && divider("1").is_err() && divider("33").is_err());
        assert!(finite("nan").is_err() && finite("inf").is_err() && rate("0").is_err());
    }
}
