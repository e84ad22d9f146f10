//! The latency of one device at a low rate: a small batch of register reads once an interval.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use pciescope_bench::counters::Host;
use pciescope_bench::{Run, mmio};
use pciescope_core::plan::Plan;
use pciescope_core::{MmioPlan, MmioTest, Record, Sink, WhyPlan};
use pciescope_hw::Root;
use pciescope_hw::probe::Probe;
use pciescope_hw::probe::open::{Backend, Need, open};
use pciescope_hw::wait::now_ns;

use super::Input;
use super::live::failure;
use super::worker::{Quit, Sending, Worker};
use crate::cmd::Ctx;
use crate::cmd::device::{AccessArgs, CpuChoice, Device};
use crate::cmd::latency::target::{TargetArgs, choose};

/// Reads of a batch: as many as a 99th percentile needs.
const READS: u64 = 1000;
/// A batch ends after this time however few reads it has: one over a slow path must not become a load.
const LONGEST_NS: u64 = 50_000_000;

/// Measures a device again and again in a thread. What keeps it from measuring is sent as a record with an error, and shown.
///
/// # Errors
/// No such device; no thread.
pub fn start(
    ctx: &Ctx,
    named: Option<&crate::values::FunctionName>,
    backend: Backend,
    (every, why): (Duration, Option<WhyPlan>),
    events: SyncSender<Input>,
) -> anyhow::Result<Worker> {
    let access = AccessArgs { backend, bind: false };
    let device = Device::find(ctx, named, &access)?;
    let root = ctx.root.clone();
    let work = move |mut quit: Quit| {
        let mut sink = Sending { events, skipped: Arc::default() };
        // The safe register is chosen as `latency mmio` chooses it, and never another.
        let ready = prepare(&device, why)
            .and_then(|plan| Ok((plan, open(&root, &device.function, &access.backend, Need::Mmio)?.probe)));
        match ready {
            Ok((plan, probe)) => repeat(&root, &device, &plan, probe, every, &mut quit, &mut sink),
            Err(err) => refuse(&mut sink, &device, &err),
        }
    };
    Ok(Worker::start("probe", work)?)
}

fn prepare(device: &Device, why: Option<WhyPlan>) -> anyhow::Result<MmioPlan> {
    let near = device.cpus(&CpuChoice::Local).or_else(|_| device.cpus(&CpuChoice::All))?;
    Ok(MmioPlan {
        count: READS,
        duration_ns: LONGEST_NS,
        why,
        cpus: near.iter().take(1).collect(),
        ..choose(&device.function, &TargetArgs::default())?
    })
}

/// Measures a batch again and again, at absolute times.
fn repeat(
    root: &Root,
    device: &Device,
    plan: &MmioPlan,
    mut probe: Box<dyn Probe>,
    every: Duration,
    quit: &mut Quit,
    sink: &mut Sending,
) {
    let mut next = now_ns();
    while !quit.is_set() {
        let setup = device.setup("latency mmio", None, Plan::Mmio(plan.clone()));
        let measured = Run::start(setup, root, quit, sink).and_then(|mut run| {
            mmio::measure(plan, probe.as_mut(), &mut run)?;
            run.finish()
        });
        if let Err(err) = measured {
            refuse(sink, device, &err.into());
        }
        next = (next + every.as_nanos() as u64).max(now_ns());
        if quit.until(Some(next)).is_err() {
            return;
        }
    }
}

fn refuse(sink: &mut Sending, device: &Device, err: &anyhow::Error) {
    let record = Record {
        test: MmioTest::Read.name().to_owned(),
        device: Some(device.function.clone()),
        error: Some(failure(err)),
        ..Record::default()
    };
    let _ = sink.put(&record);
}
