//! `pciescope verify readout`: the payload counter of a root port against what was read through it.

use std::path::PathBuf;
use std::process::ExitCode;

use pciescope_bench::counters::Place;
use pciescope_bench::verify::{self, Experiment, Side};
use pciescope_bench::workload::readout;
use pciescope_core::Access;
use pciescope_hw::daq::{self, Options};
use pciescope_hw::memory::Buffer;
use pciescope_hw::nodes;

use super::{Journal, payload, seconds};
use crate::cmd::output::OutputArgs;
use crate::cmd::readout::options::{AccessChoice, access};
use crate::cmd::{Ctx, Refusal};
use crate::values::{FunctionName, Percent, Time, bdf, percent, positive};

/// The arguments of `pciescope verify readout`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope verify readout /dev/sis8300-6
  pciescope verify readout /dev/sis8300-6 -B ring -S 30M --duration 1min
  pciescope verify readout /dev/nvme0n1 -B direct -o verify.jsonl

This reads the first samples of the device again and again and compares the
bytes that arrived with the bytes that the root port counted. A digitizer moves
multiples of 64 bytes, so -S is rounded up to 32 samples.")]
pub struct Args {
    /// The device: its node, or its name or address
    #[arg(value_name = "DEV")]
    device: PathBuf,

    /// Samples of 2 bytes of each read
    #[arg(short = 'S', long, value_name = "N", value_parser = positive, default_value = "1048576")]
    samples: u64,

    /// How to read: read, ring, direct or io_uring, as `pciescope readout -B`
    #[arg(short = 'B', long, value_name = "HOW", value_parser = access, default_value = "read")]
    access: AccessChoice,

    /// How long to read
    #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "20s")]
    duration: Time,

    /// The allowed error
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "1%")]
    tolerance: Percent,

    /// The root port, if it is not the one above the device
    #[arg(long, value_name = "BDF", value_parser = bdf)]
    port: Option<FunctionName>,

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
    let path = nodes::node_of(&ctx.root, &args.device)?;
    let device = path.display();
    let access = match args.access {
        AccessChoice::Named(access) => access,
        AccessChoice::ZeroCopy => Access::Ring,
    };
    let mut daq = daq::open(&ctx.root, &path, &Options { access, ..Options::default() })?;
    let about = daq.about().clone();
    if about.function.is_none() {
        let text = format!("{device}: its bytes may come from the page cache, and the port does not see those");
        return Err(Refusal::new(text, "read past the page cache with -B direct or -B io_uring").into());
    }
    let port = args.port.as_ref().map(|port| ctx.function(port)).transpose()?;
    let place = match (&args.pmu, port.or(about.way.first().and_then(|port| port.bdf))) {
        (Some(pmu), _) => Place::Pmus(pmu.clone()),
        (None, Some(port)) => Place::Function(port),
        (None, None) => {
            let text = format!("{device}: the root port above it is not known");
            return Err(Refusal::new(text, "name it with --port, or a PMU with --pmu").into());
        }
    };
    let (choice, counters) = payload(ctx, place, &[Side::Read])?;
    let bytes = (args.samples * 2).next_multiple_of(DMA_BYTES.max(about.align));
    if about.bytes.is_some_and(|holds| holds < bytes) {
        return Err(Refusal::new(format!("{device}: it holds less than {bytes} bytes"), "take a smaller -S").into());
    }
    let no_memory =
        |err| Refusal::new(format!("cannot allocate a buffer of {bytes} bytes: {err}"), "take a smaller -S");
    let mut buffer = Buffer::on_node(usize::try_from(bytes)?, None).map_err(no_memory)?;
    let mut journal = Journal::open(ctx, &args.output, &[&path], "verify readout")?;
    let is_stopped = || ctx.stop.is_set();
    let options = verify::Options { tolerance_percent: args.tolerance.0, is_stopped: &is_stopped };
    let duration = args.duration.duration();
    if ctx.terminal {
        ctx.note(&format!("{}: reading {device} for {:.1} s", choice.instruments[0].pmu.name, duration.as_secs_f64()));
    }
    let experiment = Experiment::open(&ctx.root, &choice, &counters, options)?;
    let into = &mut buffer.bytes_mut()[..bytes as usize];
    let verified = experiment.run("readout", || readout::run(&mut *daq, into, duration, &is_stopped))?;
    journal.put(verified, choice.panels[0].function.as_ref(), ("readout", &counters))?;
    journal.finish()
}
