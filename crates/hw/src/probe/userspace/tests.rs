use std::time::Instant;

use super::*;

/// Plain memory as a device: counts its accesses, answers all-ones from one on.
struct Memory {
    accesses: AtomicU64,
    ones_from: u64,
    /// CPUs it was accessed from, a bit each.
    seen: AtomicU64,
}

fn memory(ones_from: u64) -> Memory {
    Memory { accesses: AtomicU64::new(0), ones_from, seen: AtomicU64::new(0) }
}

impl Target for Memory {
    fn access(&self) -> (u64, bool) {
        let number = self.accesses.fetch_add(1, Ordering::Relaxed);
        self.seen.fetch_or(1 << (sys::current_cpu() % 64), Ordering::Relaxed);
        (number, self.ones_from > 0 && number >= self.ones_from)
    }
}

/// A known delay, in nanoseconds of the kernel's clock.
struct Delay(u64);

impl Target for Delay {
    fn access(&self) -> (u64, bool) {
        let begun = clock::monotonic_raw_ns();
        while clock::monotonic_raw_ns() < begun + self.0 {}
        (0, false)
    }
}

struct Watcher {
    stop_at: Option<Instant>,
}

impl Watch for Watcher {
    fn progress(&self, _done: u64, _total: u64) {}
    fn is_stopped(&self) -> bool {
        self.stop_at.is_some_and(|at| Instant::now() >= at)
    }
}

const WATCH: Watcher = Watcher { stop_at: None };

/// The CPUs this process may use.
fn cpus() -> Vec<u32> {
    std::thread::spawn(|| (0..64).filter(|&cpu| Pinned::to(cpu).is_ok()).collect()).join().unwrap()
}

fn job(cpus: &[u32]) -> Job<'_> {
    Job {
        bdf: "0000:01:00.0".parse().unwrap(),
        cpus,
        order: Order::Sequential,
        count: 3000,
        duration_ns: 0,
        gap_ns: 0,
        batch: 1,
        ones_ok: false,
        raw: false,
        place: "BAR0:0x0",
        gone: &|| None,
    }
}

fn counts(measured: &Measured) -> Vec<u64> {
    measured.outcomes.iter().map(|o| o.histograms[LATENCY].count()).collect()
}

#[test]
fn every_sample_of_every_order_is_kept_and_made_by_its_cpu() {
    let cpus = cpus();
    for order in [Order::Sequential, Order::Interleaved { rounds: 7 }, Order::Concurrent] {
        let target = memory(0);
        let job = Job { order, batch: 3, raw: true, ..job(&cpus) };
        let mut measured = measure("test", std::slice::from_ref(&target), &job, &WATCH).unwrap();
        assert_eq!(measured.failure, None);
        assert_eq!(counts(&measured), vec![3000; cpus.len()], "{order:?}");
        assert_eq!(target.accesses.load(Ordering::Relaxed), 9000 * cpus.len() as u64);
        let seen = cpus.iter().fold(0, |seen, cpu| seen | 1 << cpu);
        assert_eq!(target.seen.load(Ordering::Relaxed), seen);
        assert_eq!(measured.samples.len(), 3000 * cpus.len());
        assert!(measured.samples.is_sorted_by_key(|s| s.at_ns));
        for outcome in &measured.outcomes {
            let calibration = &outcome.histograms[CALIBRATION];
            assert_eq!(calibration.count(), 10_000);
            assert!(calibration.min_ns().unwrap() > 0.0);
            let latency = &outcome.histograms[LATENCY];
            assert!(latency.max_at_ns.is_some() && latency.min_at_ns.is_some());
        }
        let method = measured.method("test", &job, false);
        assert_eq!((method.batch, method.order.as_str()), (3, name(order).as_str()));
    }
}

#[test]
fn a_known_delay_is_measured() {
    let cpus = cpus();
    let job = Job { count: 200, ..job(&cpus[..1]) };
    let measured = measure("test", &[Delay(50_000)], &job, &WATCH).unwrap();
    let histogram = &measured.outcomes[0].histograms[LATENCY];
    let min = histogram.min_ns().unwrap();
    assert!((49_900.0..60_000.0).contains(&min), "{min} ns");
    assert!(histogram.median_ns().unwrap() >= min);
}

#[test]
fn targets_take_turns_sample_by_sample() {
    let cpus = cpus();
    let targets = [memory(0), memory(0), memory(0)];
    let job = Job { count: 1000, raw: true, ..job(&cpus[..1]) };
    let measured = measure("test", &targets, &job, &WATCH).unwrap();
    assert_eq!(counts(&measured), [1000, 1000, 1000]);
    assert!(measured.samples.iter().zip((0u16..3).cycle()).all(|(s, index)| s.index == index));
    assert_eq!(measured.outcomes[2].index, 2);
}

#[test]
fn the_first_all_ones_ends_the_run_and_is_no_sample() {
    let cpus = cpus();
    let target = memory(1500);
    let measured = measure("test", &[target], &job(&cpus[..1]), &WATCH).unwrap();
    assert_eq!(measured.failure.unwrap().code, "all-ones");
    let outcome = &measured.outcomes[0];
    assert_eq!(outcome.error.as_ref().unwrap().code, "all-ones");
    assert_eq!(outcome.histograms[LATENCY].count(), 1500);

    let may = Job { ones_ok: true, ..job(&cpus[..1]) };
    let measured = measure("test", &[memory(1500)], &may, &WATCH).unwrap();
    assert_eq!((measured.failure, measured.outcomes[0].histograms[LATENCY].count()), (None, 3000));
}

#[test]
fn all_ones_of_a_device_that_is_gone_is_a_removal() {
    let cpus = cpus();
    let target = memory(10);
    let gone = || Some(failure::removed("0000:01:00.0".parse().unwrap()));
    let job = Job { gone: &gone, ..job(&cpus[..1]) };
    assert_eq!(measure("test", &[target], &job, &WATCH).unwrap().failure.unwrap().code, "removed");
}

#[test]
fn a_stop_ends_even_a_long_gap_within_a_tenth_of_a_second() {
    let cpus = cpus();
    let job = Job { count: 1_000_000, gap_ns: 4_000_000_000, order: Order::Concurrent, ..job(&cpus) };
    // The best of a few: other processes may hold this thread up after the measuring threads have ended.
    let tries = (0..4).map(|_| {
        let stop = Instant::now() + Duration::from_millis(200);
        let measured = measure("test", &[memory(0)], &job, &Watcher { stop_at: Some(stop) }).unwrap();
        let late = stop.elapsed();
        assert_eq!(measured.failure.as_ref().unwrap().code, "interrupted");
        assert!(counts(&measured).iter().all(|&count| count == 1), "{:?}", counts(&measured));
        late
    });
    let best = tries.min().unwrap();
    assert!(best < Duration::from_millis(100), "{best:?}");
}

#[test]
fn time_alone_limits_a_run_and_is_shared_by_the_cpus() {
    let cpus = cpus();
    let begun = Instant::now();
    let job = Job { count: 0, duration_ns: 60_000_000, gap_ns: 1000, ..job(&cpus) };
    let measured = measure("test", &[memory(0)], &job, &WATCH).unwrap();
    assert!(begun.elapsed() < Duration::from_millis(1500), "{:?}", begun.elapsed());
    assert_eq!(measured.failure, None);
    assert!(counts(&measured).iter().all(|&count| count > 100), "{:?}", counts(&measured));
}

#[test]
fn a_cpu_that_is_not_there_ends_the_run_by_name() {
    let cpus = [cpus()[0], 8000];
    let measured = measure("test", &[memory(0)], &job(&cpus), &WATCH).unwrap();
    assert_eq!(measured.failure.unwrap().code, "cpu-offline");
    assert_eq!(measured.outcomes[1].error.as_ref().unwrap().code, "cpu-offline");
    assert_eq!(measured.outcomes[0].histograms[LATENCY].count(), 3000);
}
