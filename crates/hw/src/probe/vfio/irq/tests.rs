use std::sync::Arc;

use pciescope_core::Order;

use super::super::super::sys::Mapping;
use super::super::Device;
use super::*;
use crate::probe::register::Window;
use crate::test::{Silent, Tree};

/// The trigger of the lab's latency endpoint, vector 0.
const TRIGGER: u64 = 0x80;
/// Revision and class of a device that is there.
const CLASS: u32 = 0x0200_0000;
const LINE: &str = "vfio-msix[0](0000:01:00.0)";

/// /proc/interrupts with the counts of the vector on the first CPU and on another; the affinity of its interrupt.
fn root_with_line(counts: [u64; 2]) -> Tree {
    let root = Tree::of(&[("proc/irq/24/smp_affinity_list", "0-1\n")]);
    write_counts(&root, counts);
    root
}

/// The first CPU that this process may use.
fn cpu() -> u32 {
    let first = || (0..64).find(|&cpu| Pinned::to(cpu).is_ok()).unwrap();
    std::thread::spawn(first).join().unwrap()
}

/// In one step, as the kernel shows it.
fn write_counts(root: &Root, [here, there]: [u64; 2]) {
    let (cpu, other) = (cpu(), cpu() + 1);
    let text =
        format!("      CPU{cpu}       CPU{other}\n  24:  {here}  {there}   PCI-MSIX-0000:01:00.0  0-edge  {LINE}\n");
    std::fs::write(root.path("proc/next"), text).unwrap();
    std::fs::rename(root.path("proc/next"), root.path("proc/interrupts")).unwrap();
}

/// A device of plain memory, its class register as given.
fn vfio(root: &Root, class: u32) -> Vfio {
    let device = Device::of_config(0x5c0e_1234, class);
    Vfio {
        bdf: "0000:01:00.0".parse().unwrap(),
        root: root.clone(),
        windows: Vec::new(),
        device,
        said: crate::config::Config::default(),
        request: None,
        ids: (0x1234, 0x5c0e),
        emulated: true,
        above: None,
    }
}

fn plan(count: u64, interval: Duration) -> IrqPlan {
    IrqPlan {
        bdf: "0000:01:00.0".parse().unwrap(),
        source: IrqSource::Hardware,
        vectors: vec![0],
        cpus: [cpu()].into_iter().collect(),
        order: Order::Sequential,
        trigger_cpu: None,
        count,
        duration_ns: 0,
        interval_ns: interval.as_nanos() as u64,
        timeout_ns: 5_000_000_000,
        raw: false,
        why: None,
    }
}

/// Runs on the first CPU while `handler` is called for each trigger, with the number of those before, and answers it.
fn with_device<T>(
    vfio: &Vfio,
    plan: &IrqPlan,
    handler: &(dyn Fn(u64) + Sync),
    test: impl FnOnce(&mut RunState<'_>) -> T,
) -> T {
    let page = tempfile::tempfile().unwrap();
    page.set_len(4096).unwrap();
    let window = Arc::new(Window::new(Mapping::new(&page, 0, 4096, true).unwrap(), 0));
    let armed = Armed {
        device: &vfio.device,
        windows: Some([Arc::clone(&window), Arc::clone(&window)]),
        trigger: vfio.trigger(),
        source: plan.source,
        kind: Kind::Msix,
        index: 0,
        events: vec![EventFd::new().unwrap()],
    };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (over, event) = (&over, armed.events[0].raw());
        scope.spawn(move || {
            let mut answered = 0;
            while !over.load(Ordering::Acquire) {
                if window.read(TRIGGER, 4) == 0 {
                    std::thread::yield_now();
                    continue;
                }
                window.write(TRIGGER, 4, 0);
                handler(answered);
                answered += 1;
                // SAFETY: an event counter that the armed keeps until after this scope.
                unsafe { libc::eventfd_write(event, 1) };
            }
        });
        let mut run = RunState {
            root: &vfio.root,
            vfio,
            armed: &armed,
            plan,
            count: plan.count,
            share: None,
            until: None,
            cpu: cpu(),
            watch: &Silent,
            scale: Scale { hz: clock::method("test").clock_hz, accesses: 1 },
            begun: clock::start(),
            done: 0,
            total: plan.count,
            samples: Vec::new(),
            moved: None,
            failure: None,
        };
        let result = test(&mut run);
        over.store(true, Ordering::Release);
        result
    })
}

fn count(outcome: &Outcome, name: &str) -> u64 {
    outcome.metrics[name].value as u64
}

#[test]
fn a_device_that_died_ends_the_run_as_removed_at_its_first_silence() {
    let root = root_with_line([0, 0]);
    let vfio = vfio(&root, u32::MAX);
    let plan = IrqPlan { timeout_ns: 10_000_000, ..plan(30, Duration::ZERO) };
    // Nothing is stored to the trigger, so nobody answers.
    let never = |run: &mut RunState<'_>| {
        let mut counts = Counts::default();
        run.samples(0, &mut counts, &|| Ok(Fired::Here(clock::start())));
        (counts, run.failure.take())
    };
    let (counts, failure) = with_device(&vfio, &plan, &|_| {}, never);
    assert_eq!(failure.unwrap().code, "removed");
    assert!(counts.warmup_triggers + counts.triggers <= 1, "{counts:?}");
}

#[test]
fn a_run_that_the_user_ends_while_it_waits_says_so() {
    struct Stopped;
    impl Watch for Stopped {
        fn progress(&self, _: u64, _: u64) {}
        fn is_stopped(&self) -> bool {
            true
        }
    }
    let root = root_with_line([0, 0]);
    let vfio = vfio(&root, CLASS);
    // In the warm-up, and in what counts.
    for source in [IrqSource::Hardware, IrqSource::Loopback] {
        let plan = IrqPlan { source, ..plan(5, Duration::ZERO) };
        let failure = with_device(&vfio, &plan, &|_| {}, |run| {
            run.watch = &Stopped;
            // Nothing is stored to the trigger, so nobody answers.
            run.samples(0, &mut Counts::default(), &|| Ok(Fired::Here(clock::start())));
            run.failure.take()
        });
        assert_eq!(failure.map(|failure| failure.code), Some("interrupted".to_owned()), "{source:?}");
    }
}

#[test]
fn without_a_line_in_proc_interrupts_nothing_is_measured() {
    let root = Tree::new();
    let vfio = vfio(&root, CLASS);
    let outcomes = with_device(&vfio, &plan(5, Duration::ZERO), &|_| {}, |run| run.all(&[0]));
    let error = outcomes[0].error.as_ref().expect("the interrupt cannot be moved");
    assert_eq!(error.code, "refused");
    assert!(error.text.contains("/proc/interrupts") && error.text.contains(LINE), "{}", error.text);
    assert!(error.hint.as_ref().unwrap().contains("container"));
    assert!(outcomes[0].histograms.is_empty(), "{outcomes:?}");
}

#[test]
fn interrupts_on_a_wrong_cpu_are_counted_after_the_warm_up_only() {
    // Who handles the two of the warm-up and the three that count (0 is the right CPU), and how many are wrong.
    for (cpus, wrong) in [([0, 0, 1, 1, 0], 2), ([1, 1, 0, 0, 0], 0), ([1, 0, 1, 1, 1], 3)] {
        let root = root_with_line([0, 0]);
        let vfio = vfio(&root, CLASS);
        let handler = |number: u64| {
            let handled = &cpus[..=number as usize];
            let on = |cpu| handled.iter().filter(|one| **one == cpu).count() as u64;
            write_counts(&root, [on(0), on(1)]);
        };
        let outcomes = with_device(&vfio, &plan(3, Duration::ZERO), &handler, |run| run.all(&[0]));
        assert_eq!(outcomes[0].error, None);
        assert_eq!((count(&outcomes[0], "handled"), count(&outcomes[0], "warmup_handled")), (3, 2));
        assert_eq!(count(&outcomes[0], "wrong_cpu"), wrong, "{cpus:?}");
    }
}

#[test]
fn a_slow_warm_up_misses_no_time_of_the_plan() {
    let root = root_with_line([0, 0]);
    let vfio = vfio(&root, CLASS);
    let slow = |number| std::thread::sleep(Duration::from_millis(if number < 2 { 400 } else { 0 }));
    let outcomes = with_device(&vfio, &plan(8, Duration::from_millis(50)), &slow, |run| run.all(&[0]));
    assert_eq!(outcomes[0].error, None);
    assert_eq!(count(&outcomes[0], "triggers") + count(&outcomes[0], "missed"), 8);
    // 7 if the period began before the warm-up.
    assert!(count(&outcomes[0], "missed") < 6, "{outcomes:?}");
}

#[test]
fn a_trigger_is_late_by_its_own_stamp() {
    let root = root_with_line([0, 0]);
    let vfio = vfio(&root, CLASS);
    let counts = with_device(&vfio, &plan(4, Duration::from_millis(100)), &|_| {}, |run| {
        let mut counts = Counts::default();
        let armed = run.armed;
        // Between the clock and the trigger the thread is held up for more than half an interval, and for less than a whole.
        run.samples(0, &mut counts, &|| {
            std::thread::sleep(Duration::from_millis(60));
            armed.fire(0).map(Fired::Here)
        });
        counts
    });
    assert_eq!((counts.triggers + counts.missed, counts.late), (4, counts.triggers), "{counts:?}");
}

#[test]
fn a_period_is_right_for_a_clock_of_any_rate() {
    let root = root_with_line([0, 0]);
    let vfio = vfio(&root, CLASS);
    let ticks = |hz, interval| {
        with_device(&vfio, &plan(1, interval), &|_| {}, |run| {
            run.scale.hz = hz;
            run.period()
        })
    };
    assert_eq!(ticks(19_200_000, Duration::from_millis(1)), Some(19_200));
    assert_eq!(ticks(1_000_000, Duration::from_nanos(10)), Some(1), "0 would mean no fixed rate");
    assert_eq!(ticks(19_200_000, Duration::ZERO), None);
}

#[test]
fn a_time_ends_a_vector_at_once_and_at_a_fixed_rate() {
    let root = root_with_line([0, 0]);
    let vfio = vfio(&root, CLASS);
    for (interval, triggers) in [(Duration::ZERO, 1..u64::MAX), (Duration::from_secs(60), 0..1)] {
        let plan = plan(u64::MAX, interval);
        let outcomes = with_device(&vfio, &plan, &|_| {}, |run| {
            run.share = Some(run.scale.hz / 4);
            run.all(&[0])
        });
        assert_eq!(outcomes[0].error, None);
        assert!(triggers.contains(&count(&outcomes[0], "triggers")), "{interval:?}: {outcomes:?}");
    }
}
