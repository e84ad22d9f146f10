use std::sync::atomic::{AtomicU64, Ordering};

use pciescope_core::{CpuList, IrqSource, Order};

use super::*;

/// Stops after the progress passed `stop_at`.
#[derive(Default)]
struct Watcher {
    last: AtomicU64,
    stop_at: u64,
}

impl Watch for Watcher {
    fn progress(&self, done: u64, _total: u64) {
        self.last.store(done, Ordering::Relaxed);
    }
    fn is_stopped(&self) -> bool {
        self.stop_at > 0 && self.last.load(Ordering::Relaxed) >= self.stop_at
    }
}

fn fake(options: &str) -> Fake {
    Fake::open(&options.parse().unwrap()).unwrap()
}

/// A slice of 2000 samples from each of these CPUs.
fn on(cpus: &str) -> Slice {
    Slice { cpus: cpus.parse().unwrap(), count: 2000, duration_ns: 0 }
}

fn mmio_plan(fake: &Fake) -> MmioPlan {
    MmioPlan::reads(fake.bdf(), 0, 0, 4)
}

fn irq_plan(fake: &Fake) -> IrqPlan {
    IrqPlan { bdf: fake.bdf(), timeout_ns: 10_000_000, ..IrqPlan::default() }
}

fn sum(sampled: &Sampled, name: &str) -> f64 {
    sampled.outcomes.iter().map(|o| o.metrics[name].value).sum()
}

#[test]
fn far_cpus_are_slower_and_every_sample_is_kept() {
    let mut fake = fake("seed=3");
    let plan = mmio_plan(&fake);
    let sampled = fake.mmio(&plan, &on("0-7"), &Watcher::default()).unwrap();
    assert!(sampled.failure.is_none());
    let median = |i: usize| sampled.outcomes[i].histograms[LATENCY].median_ns().unwrap();
    assert!(median(4) > median(0) + 80.0, "{} {}", median(4), median(0));
    assert!(sampled.outcomes.iter().all(|o| o.histograms[LATENCY].count() == 2000));
    assert_eq!(fake.read(0, 0x10, 8).unwrap(), 16_001);
}

#[test]
fn the_same_options_give_the_same_values_and_another_seed_others() {
    let one = |options: &str| {
        let mut fake = fake(options);
        let plan = MmioPlan { raw: true, ..mmio_plan(&fake) };
        fake.mmio(&plan, &on("0-7"), &Watcher::default()).unwrap().samples
    };
    assert_eq!(one("seed=3"), one("seed=3"));
    assert_ne!(one("seed=3"), one("seed=4"));
}

#[test]
fn each_fault_ends_a_run_by_its_name_and_keeps_what_was_taken() {
    for (options, code, kept) in [
        ("ones-after=100", "all-ones", 101),
        ("remove-after=50", "removed", 50),
        ("unbind-after=51", "unbound", 51),
        ("offline=3", "cpu-offline", 0),
    ] {
        let mut fake = fake(options);
        let plan = mmio_plan(&fake);
        let sampled = fake.mmio(&plan, &on("0-7"), &Watcher::default()).unwrap();
        assert_eq!(sampled.failure.unwrap().code, code);
        let total: u64 = sampled.outcomes.iter().map(|o| o.histograms[LATENCY].count()).sum();
        assert_eq!(total, kept, "{options}");
    }
}

#[test]
fn a_register_that_may_be_all_ones_does_not_end_a_run() {
    let mut fake = fake("ones-after=100");
    let plan = MmioPlan { ones_ok: true, ..mmio_plan(&fake) };
    assert!(fake.mmio(&plan, &on("0-7"), &Watcher::default()).unwrap().failure.is_none());
}

#[test]
fn a_stop_ends_a_run_and_time_limits_one_without_a_count() {
    let mut fake = fake("");
    let plan = mmio_plan(&fake);
    let many = Slice { count: 10_000_000, ..on("0-7") };
    let sampled = fake.mmio(&plan, &many, &Watcher { stop_at: 5000, ..Watcher::default() }).unwrap();
    assert_eq!(sampled.failure.unwrap().code, "interrupted");
    for (cpus, duration_ns) in [("0", 1_000_000), ("0-7", 2_000_000)] {
        let timed = Slice { count: 0, duration_ns, ..on(cpus) };
        let sampled = fake.mmio(&plan, &timed, &Watcher::default()).unwrap();
        assert!(sampled.failure.is_none());
        let counts: Vec<u64> = sampled.outcomes.iter().map(|o| o.histograms[LATENCY].count()).collect();
        assert!(counts.iter().all(|c| (1500..2300).contains(c)), "{cpus}: {counts:?}");
    }
}

#[test]
fn lost_and_doubled_interrupts_are_counted() {
    let mut fake = fake("lose=4,double=5,wrong-cpu=7");
    let plan = irq_plan(&fake);
    let sampled = fake.irq(&plan, &Slice { count: 200, ..on("4") }, &Watcher::default()).unwrap();
    assert_eq!(sampled.outcomes.len(), 8);
    let n = 1600u64;
    let (lost, wrong) = (n / 4, n / 7 - n / 28);
    assert_eq!(sum(&sampled, "triggers"), n as f64);
    assert_eq!(sum(&sampled, "lost"), lost as f64);
    assert_eq!(sum(&sampled, "extra"), (n / 5 - n / 20) as f64);
    assert_eq!(sum(&sampled, "wrong_cpu"), wrong as f64);
    assert_eq!(sum(&sampled, "handled"), (n - lost - wrong) as f64);
    let kept: u64 = sampled.outcomes.iter().map(|o| o.histograms[TRIGGER_TO_HANDLER].count()).sum();
    assert_eq!(kept, n - lost - wrong);
}

#[test]
fn a_device_that_never_interrupts_ends_in_a_timeout() {
    let mut fake = fake("lose=1");
    let plan = irq_plan(&fake);
    assert_eq!(
        fake.irq(&plan, &Slice { count: 100, ..on("0") }, &Watcher::default()).unwrap().failure.unwrap().code,
        "timeout"
    );
}

#[test]
fn a_delayed_message_moves_only_the_trigger_to_the_handler() {
    let run = |options: &str, source| {
        let mut fake = fake(options);
        let plan = IrqPlan { source, ..irq_plan(&fake) };
        let sampled = fake.irq(&plan, &Slice { count: 100, ..on("0") }, &Watcher::default()).unwrap();
        [TRIGGER_TO_HANDLER, ENTRY_TO_ACK].map(|name| sampled.outcomes[0].histograms[name].median_ns().unwrap())
    };
    let (plain, delayed) = (run("", IrqSource::Hardware), run("irq-delay=20us", IrqSource::Hardware));
    assert!((delayed[0] - plain[0] - 20_000.0).abs() < 500.0, "{plain:?} {delayed:?}");
    assert_eq!(plain[1], delayed[1]);
    assert!(run("irq-delay=20us", IrqSource::Retrigger)[0] < plain[0]);
}

#[test]
fn the_path_gets_longer_hop_by_hop() {
    let mut fake = fake("");
    let plan = PathPlan {
        bdf: fake.bdf(),
        offset: 0x100,
        count: 100,
        gap_ns: 0,
        order: Order::Sequential,
        cpus: CpuList::default(),
        why: None,
    };
    let sampled = fake.path(&plan, &Slice { count: 100, ..on("1") }, &Watcher::default()).unwrap();
    let medians: Vec<f64> = sampled.outcomes.iter().map(|o| o.histograms[LATENCY].median_ns().unwrap()).collect();
    assert!(medians.is_sorted() && medians.len() == 4, "{medians:?}");
    assert_eq!(sampled.outcomes[3].hop, Some(fake.bdf()));
}

#[test]
fn registers_follow_the_specification() {
    let mut fake = fake("");
    assert_eq!(fake.read(0, 0, 4).unwrap(), 0x5c0e_1a7e);
    fake.write(0, 0x8, 4, 0x1122_3344).unwrap();
    fake.write(0, 0xb, 1, 0xaa).unwrap();
    assert_eq!(fake.read(0, 0x8, 8).unwrap(), 0xaa22_3344);
    assert_eq!(fake.read(0, 0x20, 4).unwrap(), 0x0001_0001);
    assert_eq!(fake.read(0, 0x20, 4).unwrap(), 0x0002_0000);
    assert_eq!(fake.read(0, 0x24, 4).unwrap(), 0xffff_ffff);
    assert_eq!(fake.read(0, 0x1234, 2).unwrap(), 0x2726);
    fake.write(2, 0xffff8, 8, u64::MAX - 1).unwrap();
    assert_eq!(fake.read(2, 0xffffe, 2).unwrap(), 0xffff);
    assert!(fake.read(0, 0xffff, 4).is_err());
    assert!(fake.read(0, 2, 4).is_err());
    assert!(fake.read(1, 0, 4).is_err());
    assert!(fake.read(0, u64::MAX - 1, 2).is_err());
    assert!(fake.read(0, 0, 3).is_err());
}

#[test]
fn the_machine_places_every_cpu() {
    let machine = Machine::new("cpus=12,nodes=3".parse().unwrap());
    let cpus = machine.cpus();
    assert_eq!(cpus.iter().map(|c| c.node.unwrap()).collect::<Vec<_>>(), [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
    assert_eq!(cpus[7].l3, Some(4));
    assert_eq!((cpus[7].core, cpus[7].thread), (Some(6), Some(1)));
    assert_eq!(machine.function().bdf, Some(machine.bdf()));
    assert_eq!(machine.function().path, [machine.hop(0), machine.hop(1), machine.hop(2)]);
}

#[test]
fn faults_and_values_go_on_over_the_calls_of_a_run() {
    let mut fake = fake("remove-after=3000");
    let plan = MmioPlan { raw: true, ..mmio_plan(&fake) };
    let mut call = || fake.mmio(&plan, &Slice { count: 1000, ..on("0") }, &Watcher::default()).unwrap();
    let (first, second, third, fourth) = (call(), call(), call(), call());
    assert_ne!(first.samples, second.samples);
    assert_eq!((first.failure, second.failure), (None, None));
    assert_eq!(third.failure.unwrap().code, "removed");
    assert_eq!(third.samples.len(), 1000);
    assert_eq!((fourth.failure.unwrap().code.as_str(), fourth.samples.len()), ("removed", 0));
}

#[test]
fn at_a_fixed_rate_each_time_is_a_trigger_or_missed() {
    let mut fake = fake("seed=3");
    for interval_ns in [500, 1_000, 1_000_000] {
        let plan = IrqPlan { interval_ns, ..irq_plan(&fake) };
        let sampled = fake.irq(&plan, &Slice { count: 100, ..on("0") }, &Watcher::default()).unwrap();
        assert!(sampled.failure.is_none());
        for outcome in &sampled.outcomes {
            let [triggers, missed] = ["triggers", "missed"].map(|name| outcome.metrics[name].value);
            assert_eq!(triggers + missed, 100.0, "{interval_ns} ns");
            assert_eq!(missed > 0.0, interval_ns < 1_200, "{interval_ns} ns");
        }
    }
}

#[test]
fn vectors_share_the_time_of_a_slice_of_one_cpu() {
    let mut fake = fake("");
    let timed = Slice { count: 0, duration_ns: 8_000_000, ..on("0") };
    for (interval_ns, counts) in [(0, 300.0..900.0), (10_000, 99.0..102.0)] {
        let sampled = fake.irq(&IrqPlan { interval_ns, ..irq_plan(&fake) }, &timed, &Watcher::default()).unwrap();
        assert!(sampled.failure.is_none());
        let triggers: Vec<f64> = sampled.outcomes.iter().map(|outcome| outcome.metrics["triggers"].value).collect();
        assert_eq!(triggers.len(), 8);
        assert!(triggers.iter().all(|count| counts.contains(count)), "{interval_ns} ns: {triggers:?}");
    }
    let refusal = fake.irq(&irq_plan(&fake), &on("0,1"), &Watcher::default()).unwrap_err();
    assert!(matches!(refusal, Error::Plan { field: "CPUs", .. }), "{refusal:?}");
}
