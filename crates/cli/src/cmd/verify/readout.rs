//! `pciescope verify readout`: the payload counter of a root port against what was read through it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use pciescope_bench::verify::{self, Side};
use pciescope_core::{Access, Bdf};
use pciescope_hw::daq::{self, Options};
use pciescope_hw::memory::Buffer;
use pciescope_hw::{pci, perf};

use super::counters::{bytes_of, open, port_of};
use super::pcie::pmu_of_port;
use super::{Journal, percent};
use crate::args::{bdf, positive};
use crate::cmd::output::{Output, OutputArgs};
use crate::cmd::readout::options::{Way, access};
use crate::cmd::{Ctx, Refusal};

/// The arguments of `pciescope verify readout`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope verify readout /dev/sis8300-6
  pciescope verify readout /dev/sis8300-6 -B ring -S 30M --seconds 60 --port 0000:00:1c.0
  pciescope verify readout /dev/nvme0n1 -B direct -o verify.jsonl

This reads the first samples of the device again and again and compares the bytes that arrived with
the bytes that the root port counted. A digitizer moves multiples of 64 bytes, so -S is rounded up to
32 samples.")]
pub struct Args {
    /// The device node
    #[arg(value_name = "DEV")]
    device: PathBuf,

    /// Samples of 2 bytes of each read
    #[arg(short = 'S', long, value_name = "N", value_parser = positive, default_value = "1048576")]
    samples: u64,

    /// How to read: read, ring, direct or io_uring, as `pciescope readout -B`
    #[arg(short = 'B', long, value_name = "HOW", value_parser = access, default_value = "read")]
    access: Way,

    /// How long, in seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), default_value_t = 20)]
    seconds: u32,

    /// The error that is allowed, in percent
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "1")]
    tolerance: f64,

    /// The root port, if it is not the one above the device
    #[arg(long, value_name = "BDF", value_parser = bdf)]
    port: Option<Bdf>,

    /// The PMU, if it is not the one of the root port
    #[arg(long, value_name = "PMU", conflicts_with = "port")]
    pmu: Option<String>,

    #[command(flatten)]
    output: OutputArgs,
}

/// The engines of digitizers move multiples of so many bytes.
const DMA_BYTES: u64 = 64;

/// Runs the experiment.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let device = args.device.display();
    let access = match args.access {
        Way::Named(access) => access,
        Way::ZeroCopy => Access::Ring,
    };
    let daq = daq::open(&ctx.root, &args.device, &Options { access, ..Options::default() })?;
    let about = daq.about().clone();
    if about.function.is_none() {
        let text = format!("{device}: its bytes may come from the page cache, which no port sees");
        return Err(Refusal::new(text, "read past it with -B direct or -B io_uring").into());
    }
    let pmu = match (&args.pmu, args.port.or(about.way.first().and_then(|port| port.bdf))) {
        (Some(name), _) => perf::named(&ctx.root, name)?,
        (None, Some(port)) => pmu_of_port(ctx, &device.to_string(), port)?,
        (None, None) => {
            let text = format!("{device}: the root port above it is not known");
            return Err(Refusal::new(text, "name it with --port, or a PMU with --pmu").into());
        }
    };
    let counted = bytes_of(&pmu, "rx_bytes_per_s").ok_or_else(|| {
        Refusal::new(format!("{}: it does not count what comes from devices", pmu.name), "name another with --pmu")
    })?;
    let bytes = (args.samples * 2).next_multiple_of(DMA_BYTES.max(about.align));
    if about.bytes.is_some_and(|holds| holds < bytes) {
        return Err(Refusal::new(format!("{device}: it holds less than {bytes} bytes"), "take a smaller -S").into());
    }
    let no_memory =
        |err| Refusal::new(format!("cannot allocate a buffer of {bytes} bytes: {err}"), "take a smaller -S");
    let mut buffer = Buffer::on_node(usize::try_from(bytes)?, None).map_err(no_memory)?;
    let function = port_of(&pmu).and_then(|port| pci::function(&ctx.root, port).ok());
    let is_emulated = function.as_ref().is_some_and(|function| function.emulated.is_some());
    let mut journal = Journal::new(ctx, Output::open(&args.output)?, "verify readout");
    ctx.stop.catch_signals()?;
    let is_stopped = || ctx.stop.is_set();
    let options = Journal::options(args.tolerance, &is_stopped);
    if ctx.terminal {
        ctx.note(&format!("{}: reading {device} for {} s", pmu.name, args.seconds));
    }
    let name = counted.events.iter().map(ToString::to_string).collect::<Vec<_>>().join("+");
    let mut counters = vec![open(&ctx.root, name, Side::Read, &[(&pmu, counted)])?];
    let duration = Duration::from_secs(u64::from(args.seconds));
    let verified = verify::readout(daq, &mut buffer, bytes as usize, duration, &mut counters, &options)?;
    journal.put(&verified, function.as_ref(), is_emulated)?;
    journal.finish()
}
