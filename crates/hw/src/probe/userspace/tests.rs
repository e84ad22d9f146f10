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

/// 3000 samples from each of these CPUs.
fn slice(cpus: &[u32]) -> Slice {
    Slice { cpus: cpus.iter().copied().collect::<CpuList>(), count: 3000, duration_ns: 0 }
}

fn job(slice: &Slice) -> Job<'_> {
    Job {
        backend: "test",
        bdf: "0000:01:00.0".parse().unwrap(),
        emulated: false,
        slice,
        gap_ns: 0,
        batch: 1,
        ones_ok: false,
        raw: false,
        control: None,
        place: "BAR0:0x0",
        gone: &|| None,
    }
}

fn counts(sampled: &Sampled) -> Vec<u64> {
    sampled.outcomes.iter().map(|o| o.histograms[LATENCY].count()).collect()
}

#[test]
fn every_sample_is_kept_and_made_by_its_cpu_alone_or_beside_others() {
    let cpus = cpus();
    for cpus in [&cpus[..1], &cpus] {
        let target = memory(0);
        let slice = slice(cpus);
        let job = Job { batch: 3, raw: true, ..job(&slice) };
        let sampled = measure(std::slice::from_ref(&target), &job, &WATCH).unwrap();
        assert_eq!(sampled.failure, None);
        assert_eq!(counts(&sampled), vec![3000; cpus.len()]);
        assert_eq!(target.accesses.load(Ordering::Relaxed), 9000 * cpus.len() as u64);
        let seen = cpus.iter().fold(0, |seen, cpu| seen | 1 << cpu);
        assert_eq!(target.seen.load(Ordering::Relaxed), seen);
        assert_eq!(sampled.samples.len(), 3000 * cpus.len());
        assert!(sampled.samples.is_sorted_by_key(|s| s.at_ns));
        assert!(sampled.outcomes.iter().map(|outcome| outcome.cpu).eq(cpus.iter().copied()));
        for outcome in &sampled.outcomes {
            let calibration = &outcome.histograms[CALIBRATION];
            assert_eq!(calibration.count(), 10_000);
            assert!(calibration.min_ns().unwrap() > 0.0);
            let latency = &outcome.histograms[LATENCY];
            assert!(latency.max_at_ns.is_some() && latency.min_at_ns.is_some());
        }
        assert_eq!((sampled.method.backend.as_str(), sampled.method.batch), ("test", 3));
    }
}

#[test]
fn a_known_delay_is_measured() {
    let slice = Slice { count: 200, ..slice(&cpus()[..1]) };
    let sampled = measure(&[Delay(50_000)], &job(&slice), &WATCH).unwrap();
    let histogram = &sampled.outcomes[0].histograms[LATENCY];
    let min = histogram.min_ns().unwrap();
    assert!((49_900.0..60_000.0).contains(&min), "{min} ns");
    assert!(histogram.median_ns().unwrap() >= min);
}

#[test]
fn targets_take_turns_sample_by_sample() {
    let targets = [memory(0), memory(0), memory(0)];
    let slice = Slice { count: 1000, ..slice(&cpus()[..1]) };
    let sampled = measure(&targets, &Job { raw: true, ..job(&slice) }, &WATCH).unwrap();
    assert_eq!(counts(&sampled), [1000, 1000, 1000]);
    assert!(sampled.samples.iter().zip((0u16..3).cycle()).all(|(s, index)| s.index == index));
    assert_eq!(sampled.outcomes[2].index, 2);
}

#[test]
fn the_first_all_ones_ends_the_run_and_is_no_sample() {
    let slice = slice(&cpus()[..1]);
    let target = memory(1500);
    let sampled = measure(&[target], &job(&slice), &WATCH).unwrap();
    assert_eq!(sampled.failure.unwrap().code, "all-ones");
    let outcome = &sampled.outcomes[0];
    assert_eq!(outcome.error.as_ref().unwrap().code, "all-ones");
    assert_eq!(outcome.histograms[LATENCY].count(), 1500);

    let may = Job { ones_ok: true, ..job(&slice) };
    let sampled = measure(&[memory(1500)], &may, &WATCH).unwrap();
    assert_eq!((sampled.failure, sampled.outcomes[0].histograms[LATENCY].count()), (None, 3000));
}

#[test]
fn all_ones_of_a_device_that_is_gone_is_a_removal() {
    let gone = || Some(failure::removed("0000:01:00.0".parse().unwrap()));
    let slice = slice(&cpus()[..1]);
    let job = Job { gone: &gone, ..job(&slice) };
    assert_eq!(measure(&[memory(10)], &job, &WATCH).unwrap().failure.unwrap().code, "removed");
}

#[test]
fn a_stop_ends_even_a_long_gap_within_a_tenth_of_a_second() {
    let slice = Slice { count: 1_000_000, ..slice(&cpus()) };
    let job = Job { gap_ns: 4_000_000_000, ..job(&slice) };
    // The best of a few: other processes may hold this thread up after the measuring threads have ended, or those before
    // their first sample.
    let tries = (0..8).filter_map(|_| {
        let stop = Instant::now() + Duration::from_millis(200);
        let sampled = measure(&[memory(0)], &job, &Watcher { stop_at: Some(stop) }).unwrap();
        let late = stop.elapsed();
        assert_eq!(sampled.failure.as_ref().unwrap().code, "interrupted");
        assert!(counts(&sampled).iter().all(|&count| count <= 1), "{:?}", counts(&sampled));
        counts(&sampled).iter().all(|&count| count == 1).then_some(late)
    });
    let best = tries.take(4).min().expect("the threads come to their first sample within 200 ms");
    assert!(best < Duration::from_millis(100), "{best:?}");
}

#[test]
fn time_alone_limits_a_slice() {
    let begun = Instant::now();
    let slice = Slice { count: 0, duration_ns: 60_000_000, ..slice(&cpus()) };
    let sampled = measure(&[memory(0)], &Job { gap_ns: 1000, ..job(&slice) }, &WATCH).unwrap();
    assert!(begun.elapsed() < Duration::from_millis(1500), "{:?}", begun.elapsed());
    assert_eq!(sampled.failure, None);
    assert!(counts(&sampled).iter().all(|&count| count > 100), "{:?}", counts(&sampled));
}

#[test]
fn a_cpu_that_is_not_there_ends_the_run_by_name() {
    let sampled = measure(&[memory(0)], &job(&slice(&[cpus()[0], 8000])), &WATCH).unwrap();
    assert_eq!(sampled.failure.unwrap().code, "cpu-offline");
    assert_eq!(sampled.outcomes[1].error.as_ref().unwrap().code, "cpu-offline");
    assert_eq!(sampled.outcomes[0].error, None);
}

/// Whether it holds in one of some tries: other processes may hold the threads up.
fn in_some_try(holds: impl Fn() -> bool) -> bool {
    (0..20).any(|_| holds())
}

#[test]
fn the_time_of_a_slice_begins_after_its_calibration() {
    // Much less than the 10,000 empty pairs of the calibration take.
    let slice = Slice { count: 0, duration_ns: 20_000, ..slice(&cpus()[..1]) };
    let samples = || counts(&measure(&[memory(0)], &job(&slice), &WATCH).unwrap())[0];
    assert!(in_some_try(|| samples() > 0));
}

#[test]
fn a_short_slice_ends_when_its_threads_do() {
    let slice = Slice { count: 1, ..slice(&cpus()[..1]) };
    // The calling thread asks for the device every 10 ms; it need not wait for the first time.
    assert!(in_some_try(|| {
        let asked = AtomicU64::new(0);
        let gone = || {
            asked.fetch_add(1, Ordering::Relaxed);
            None
        };
        measure(&[memory(0)], &Job { gone: &gone, ..job(&slice) }, &WATCH).unwrap();
        asked.load(Ordering::Relaxed) == 0
    }));
}

#[test]
fn a_cpu_outside_of_the_cpuset_is_not_called_offline() {
    let bdf = "0000:01:00.0".parse().unwrap();
    let refused = io::Error::from_raw_os_error(libc::EINVAL);
    let online = sys::current_cpu();
    let why = not_pinned(bdf, online, &refused);
    assert_eq!(why.code, "refused");
    assert!(why.text.contains(&format!("may not run on CPU {online}")) && why.text.contains("cpuset"), "{}", why.text);
    assert!(why.hint.unwrap().contains("--cpus"));
    assert_eq!(not_pinned(bdf, 8000, &refused).code, "cpu-offline");
}

#[test]
fn reads_for_comparison_stand_beside_the_samples() {
    let cpu = cpus()[0];
    let slice = slice(&[cpu]);
    let control = Delay(20_000);
    let sampled = measure(&[memory(0)], &Job { raw: true, control: Some(&control), ..job(&slice) }, &WATCH).unwrap();
    assert_eq!(counts(&sampled), [3000]);
    let of = |kind| sampled.samples.iter().filter(move |sample| sample.kind == kind);
    // One in ten of each block.
    let controls = of(SampleKind::Control).count();
    assert!((200..=300).contains(&controls), "{controls}");
    assert!(of(SampleKind::Control).all(|sample| sample.value_ps >= 19_900_000 && sample.cpu == cpu));
    assert_eq!(of(SampleKind::Latency).count(), 3000);
    assert!(sampled.samples.is_sorted_by_key(|sample| sample.at_ns));
}
