//! The latency of one device at a low rate: a small batch of register reads once an interval.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pciescope_bench::{Run, mmio};
use pciescope_core::plan::Plan;
use pciescope_core::{CpuList, MmioPlan, MmioTest, Order, Record, Sink};
use pciescope_hw::Root;
use pciescope_hw::probe::open::{Backend, Need, open};
use pciescope_hw::probe::{Probe, Watch};

use super::Event;
use super::live::failure;
use crate::cmd::Ctx;
use crate::cmd::device::{AccessArgs, CpuChoice, Device};
use crate::cmd::latency::target::{Chosen, Wanted, choose};

/// Reads of a batch: as many as a 99th percentile needs.
const READS: u64 = 1000;
/// A batch ends after this time however few reads it has: one over a slow path must not become a load.
const LONGEST_NS: u64 = 50_000_000;

/// A probe that goes on in a thread until this is dropped.
pub struct Probing {
    thread: Option<JoinHandle<()>>,
    quit: Arc<AtomicBool>,
}

impl Probing {
    /// Looks at the device and starts. What keeps it from measuring is sent as a record with an error, and shown.
    ///
    /// # Errors
    /// No such device; no thread.
    pub fn start(
        ctx: &Ctx,
        bdf: Option<pciescope_core::Bdf>,
        backend: Backend,
        every: Duration,
        events: SyncSender<Event>,
    ) -> anyhow::Result<Probing> {
        let access = AccessArgs { backend, bind: false };
        let device = Device::find(ctx, bdf, &access)?;
        let quit = Arc::new(AtomicBool::new(false));
        let (root, ours) = (ctx.root.clone(), Quit(Arc::clone(&quit)));
        let work = move || {
            let mut sink = Sending { events };
            // The safe register is chosen as `latency mmio` chooses it, and never another.
            let ready = prepare(&device)
                .and_then(|plan| Ok((plan, open(&root, &device.function, &access.backend, Need::Mmio)?.probe)));
            match ready {
                Ok(((chosen, plan), probe)) => repeat(&root, &device, (chosen, plan), probe, every, &ours, &mut sink),
                Err(err) => sink.refuse(&device, &err),
            }
        };
        let thread = thread::Builder::new().name("probe".to_owned()).spawn(work)?;
        Ok(Probing { thread: Some(thread), quit })
    }

    /// Whether the thread came to an end by a panic.
    pub fn has_panicked(&mut self) -> bool {
        let is_over = self.thread.as_ref().is_some_and(JoinHandle::is_finished);
        is_over && self.thread.take().is_some_and(|thread| thread.join().is_err())
    }
}

impl Drop for Probing {
    fn drop(&mut self) {
        self.quit.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn prepare(device: &Device) -> anyhow::Result<(Chosen, MmioPlan)> {
    let chosen = choose(
        &device.function,
        &Wanted {
            test: MmioTest::Read,
            bar: None,
            offset: None,
            width: None,
            value: None,
            accepts_side_effects: false,
        },
    )?;
    let near = device.cpus(&CpuChoice::Local).or_else(|_| device.cpus(&CpuChoice::All))?;
    let cpus: CpuList = near.iter().take(1).collect();
    let plan = MmioPlan {
        bdf: device.bdf,
        test: MmioTest::Read,
        bar: chosen.bar,
        offset: chosen.offset,
        width: chosen.width,
        value: 0,
        count: READS,
        duration_ns: LONGEST_NS,
        gap_ns: 0,
        batch: 1,
        order: Order::Sequential,
        cpus,
        ones_ok: false,
        raw: false,
    };
    Ok((chosen, plan))
}

/// Measures a batch again and again, at absolute times.
fn repeat(
    root: &Root,
    device: &Device,
    (chosen, plan): (Chosen, MmioPlan),
    mut probe: Box<dyn Probe>,
    every: Duration,
    quit: &Quit,
    sink: &mut Sending,
) {
    let mut next = Instant::now();
    while !quit.is_stopped() {
        let setup = device.setup("latency mmio", None, Plan::Mmio(plan.clone()));
        let measured = Run::start(setup, root, quit, sink, None).and_then(|mut run| {
            mmio::measure(&plan, chosen.register.as_ref(), probe.as_mut(), &mut run)?;
            run.finish()
        });
        if let Err(err) = measured {
            sink.refuse(device, &err.into());
        }
        next = (next + every).max(Instant::now());
        while !quit.is_stopped() && Instant::now() < next {
            thread::park_timeout(next.saturating_duration_since(Instant::now()));
        }
    }
}

/// The wish to end.
struct Quit(Arc<AtomicBool>);

impl Watch for Quit {
    fn progress(&self, _done: u64, _total: u64) {}

    fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Sends records on; a batch for which there is no room is left out.
struct Sending {
    events: SyncSender<Event>,
}

impl Sending {
    fn refuse(&mut self, device: &Device, err: &anyhow::Error) {
        let record = Record {
            test: MmioTest::Read.name().to_owned(),
            device: Some(device.function.clone()),
            error: Some(failure(err)),
            ..Record::default()
        };
        let _ = self.put(&record);
    }
}

impl Sink for Sending {
    fn put(&mut self, record: &Record) -> io::Result<()> {
        let _ = self.events.try_send(Event::Records(vec![record.clone()]));
        Ok(())
    }
}
