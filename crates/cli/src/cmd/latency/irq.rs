//! `pciescope latency irq`: how long an interrupt needs to its handler and to its acknowledge.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use clap::ValueEnum;
use pciescope_core::cpulist::numbers;
use pciescope_core::plan::Plan;
use pciescope_core::{CpuList, IrqPlan, IrqSource, Order};
use pciescope_hw::probe::open::Need;

use super::task::{DeviceArgs, Job, WhyArgs, order};
use crate::cmd::device::{CpuChoice, Device};
use crate::cmd::output::{Output, OutputArgs};
use crate::cmd::{Ctx, Refusal};
use crate::values::{Time, positive, some_time, time};

/// Interrupts per CPU and vector where neither a count nor a time is given.
const COUNT: u64 = 1000;
/// The most vectors that MSI-X has.
const MOST_VECTORS: u32 = 2048;

/// The arguments of `pciescope latency irq`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope latency irq 0000:3b:00.0 --bind
  pciescope latency irq 0000:3b:00.0 --vectors 0-3 --cpus local -o irq.jsonl
  pciescope latency irq 0000:3b:00.0 --period 1ms --trigger-cpu 0
  pciescope latency irq 0000:3b:00.0 --duration 1min --order interleaved:20
  pciescope latency irq --backend fake:lose=100; echo $?

By default each CPU and vector is measured twice: with interrupts that the
device sends, and with interrupts that the interrupt controller repeats. The
difference is the share of PCIe and the device.")]
pub struct Args {
    #[command(flatten)]
    device: DeviceArgs,

    /// Interrupt vectors of the device, from 0, as a list [default: all]
    #[arg(long, value_name = "LIST")]
    vectors: Option<Vectors>,

    /// The source that raises the interrupts
    #[arg(long, value_enum, value_name = "WHAT", default_value = "both")]
    raised_by: RaisedBy,

    /// Interrupts per CPU and vector, such as 10k [default: 1k, or as many as --duration allows]
    #[arg(long, value_name = "N", value_parser = positive)]
    count: Option<u64>,

    /// End the run after this time, such as 10s; CPUs, vectors and both sources share it equally
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    duration: Option<Time>,

    /// Order of the CPUs: sequential or interleaved[:ROUNDS]
    #[arg(long, value_name = "ORDER", value_parser = one_at_a_time, default_value = "sequential")]
    order: Order,

    /// Trigger at a fixed rate, with this time between triggers; missed, merged and late triggers are counted
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0")]
    period: Time,

    /// An interrupt that comes later than this counts as lost
    #[arg(long, value_name = "TIME", value_parser = some_time, default_value = "100ms")]
    timeout: Time,

    /// The CPU that triggers [default: the CPU that handles the interrupt]
    #[arg(long, value_name = "CPU")]
    trigger_cpu: Option<u32>,

    /// Write every sample to FILE as comma-separated values
    #[arg(long, value_name = "FILE")]
    raw: Option<PathBuf>,

    #[command(flatten)]
    why: WhyArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// `--vectors` as typed: at least one.
#[derive(Debug, Clone)]
struct Vectors(BTreeSet<u32>);

impl FromStr for Vectors {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match numbers(text, "vector", MOST_VECTORS - 1)? {
            none if none.is_empty() => Err("write the vectors' numbers, for example 0-3,8".to_owned()),
            some => Ok(Vectors(some)),
        }
    }
}

/// `--order` as typed: one CPU at a time handles a device's interrupts.
fn one_at_a_time(text: &str) -> Result<Order, String> {
    match order(text)? {
        Order::Concurrent => Err("one CPU at a time handles interrupts: take sequential or interleaved".to_owned()),
        other => Ok(other),
    }
}

/// `--raised-by` as typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RaisedBy {
    /// The device, and then a control arm in software on the same vectors and CPUs
    Both,
    /// The device sends them; a register write triggers it
    Hardware,
    /// The interrupt controller repeats them
    Retrigger,
    /// The kernel injects them
    Inject,
    /// VFIO signals its own eventfd
    Loopback,
}

/// Measures.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let device = Device::find(ctx, args.device.bdf.as_ref(), &args.device.access)?;
    let (source, with_control) = match args.raised_by {
        RaisedBy::Both => (IrqSource::Hardware, true),
        RaisedBy::Hardware => (IrqSource::Hardware, false),
        RaisedBy::Retrigger => (IrqSource::Retrigger, false),
        RaisedBy::Inject => (IrqSource::Inject, false),
        RaisedBy::Loopback => (IrqSource::Loopback, false),
    };
    if let Some(cpu) = args.trigger_cpu {
        device.cpus(&CpuChoice::List(CpuList::from_iter([cpu])))?;
    }
    let duration_ns = args.duration.map_or(0, |time| time.0);
    let plan = IrqPlan {
        bdf: device.bdf,
        source,
        vectors: vectors(&device, args.vectors.as_ref())?,
        cpus: args.device.cpus(ctx, &device, Need::Irq(source))?,
        order: args.order,
        trigger_cpu: args.trigger_cpu,
        count: args.count.unwrap_or(if duration_ns > 0 { 0 } else { COUNT }),
        duration_ns,
        interval_ns: args.period.0,
        timeout_ns: args.timeout.0,
        raw: args.raw.is_some(),
        why: args.why.plan(),
    };
    let task = Job {
        verb: "latency irq",
        need: Need::Irq(source),
        plan: Plan::Irq(plan.clone()),
        alarms: args.why.alarms(),
        output: Output::with_raw(&args.output, args.raw.as_deref())?,
        experiment: &|probe, run| pciescope_bench::irq::measure(&plan, with_control, probe, run),
    };
    task.carry_out(ctx, device, &args.device.access)
}

/// The vectors asked for, checked against what the function has.
fn vectors(device: &Device, wanted: Option<&Vectors>) -> Result<Vec<u16>, Refusal> {
    let Some(Vectors(wanted)) = wanted else { return Ok(Vec::new()) };
    let has = device.function.msix_vectors.max(device.function.msi_vectors);
    // 0 where configuration space could not be read: the backend knows better then.
    let limit = if has == 0 { MOST_VECTORS } else { u32::from(has) };
    if let Some(beyond) = wanted.iter().find(|&&vector| vector >= limit) {
        return Err(Refusal::new(
            format!("{}: has no interrupt vector {beyond}", device.bdf),
            format!("its vectors are 0-{}", limit - 1),
        ));
    }
    Ok(wanted.iter().map(|&vector| vector as u16).collect())
}
