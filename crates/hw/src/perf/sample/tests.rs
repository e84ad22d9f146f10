//! Sampling of known loops, and what is made of samples that are made up.

use std::io::Read;
use std::sync::mpsc;
use std::time::Duration;

use super::agree::{has_unlike_cpus, no_kernel};
use super::*;
use crate::test::Tree;
use crate::usage::{CpuTime, Usage};

/// Computes for `time` of its thread's CPU time, and gives what it used. Operators only, so that it calls nothing without optimization either.
#[inline(never)]
fn the_busy_one(time: Duration) -> Usage {
    let mut word = 88_172_645_463_325_252u64;
    loop {
        let mut n = 0;
        while n < 100_000 {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            n += 1;
        }
        let used = Usage::thread();
        if u128::from(used.total_ns) >= time.as_nanos() && std::hint::black_box(word) != 0 {
            return used;
        }
    }
}

/// A sampler, or the reason why there is none here, said aloud.
fn sampler(whom: Whom<'_>, sampling: &Sampling) -> Option<Sampler> {
    match Sampler::open(&Root::default(), whom, sampling) {
        Ok(sampler) => Some(sampler),
        Err(error @ (Error::Permission { .. } | Error::Absent { .. })) => {
            eprintln!("NOT TESTED: {error} ({:?})", std::error::Error::source(&error).map(ToString::to_string));
            None
        }
        Err(error) => panic!("{error:?}"),
    }
}

/// Has a thread wait until it is sampled, and gives what it used.
fn sampled_work(mut sampler: impl FnMut(i32) -> Option<Sampler>, work: fn() -> Usage) -> Option<(Sampler, Usage)> {
    let (tell, told) = mpsc::channel();
    let (go, gone) = mpsc::channel();
    let busy = std::thread::spawn(move || {
        tell.send(sys::thread_number()).unwrap();
        gone.recv().ok().map(|()| work())
    });
    let sampler = sampler(told.recv().unwrap())?;
    sampler.start().unwrap();
    go.send(()).unwrap();
    let used = busy.join().unwrap().unwrap();
    sampler.stop().unwrap();
    Some((sampler, used))
}

#[test]
fn a_busy_loop_of_a_thread_is_at_the_top() {
    let open = |thread| sampler(Whom::Threads(&[thread]), &Sampling::default());
    let before = CpuTime::load(&Root::default()).unwrap();
    let Some((mut sampler, used)) = sampled_work(open, || the_busy_one(Duration::from_millis(500))) else { return };
    let stolen_ns = CpuTime::load(&Root::default()).unwrap().since(&before).steal_ns;
    let mut symbols = Symbols::of(&Root::default());
    let profile = sampler.take(&mut symbols);
    let top = &profile.spots[0];
    assert!(!top.is_kernel && top.object.starts_with("pciescope_hw") && top.percent > 80.0, "{profile:?}");
    let expected = used.total_ns * 997 / 1_000_000_000;
    assert!((expected / 2..=expected * 5 / 4).contains(&profile.samples), "{expected} {used:?} {profile:?}");
    assert_eq!((profile.lost, profile.kind), (0, sampler.kind().name()));
    let difference = profile.cpu_ns.abs_diff(used.total_ns);
    // The scheduler's account leaves out what a hypervisor took meanwhile; the sampler's clock does not.
    assert!(difference < used.total_ns / 20 + 2_000_000 + stolen_ns, "{stolen_ns} {used:?} {profile:?}");
    // Nothing is counted twice, and it can go on.
    assert_eq!(sampler.take(&mut symbols).samples, 0);
}

/// As [`the_busy_one`], mostly in the kernel.
#[inline(never)]
fn the_one_that_reads(time: Duration) -> Usage {
    let (mut zero, mut bytes) = (File::open("/dev/zero").unwrap(), vec![0; 1 << 20]);
    loop {
        zero.read_exact(&mut bytes).unwrap();
        let used = Usage::thread();
        if u128::from(used.total_ns) >= time.as_nanos() {
            return used;
        }
    }
}

#[test]
fn the_kernels_part_is_the_kernels_or_it_is_said_that_it_was_left_out() {
    let open = |thread| sampler(Whom::Threads(&[thread]), &Sampling { top: 1000, ..Sampling::default() });
    let Some((mut sampler, _)) = sampled_work(open, || the_one_that_reads(Duration::from_millis(300))) else { return };
    let profile = sampler.take(&mut Symbols::of(&Root::default()));
    let kernel: f64 = profile.spots.iter().filter(|spot| spot.is_kernel).map(|spot| spot.percent).sum();
    let is_left_out = profile.notes.iter().any(|note| note.contains("only user space"));
    assert!(if is_left_out { kernel == 0.0 } else { kernel > 60.0 }, "{kernel} {profile:?}");
    assert!(profile.spots.iter().filter(|spot| spot.is_kernel).all(|spot| spot.object.starts_with('[')));
    let all: f64 = profile.spots.iter().map(|spot| spot.percent).sum();
    assert!((all - 100.0).abs() < 1e-6, "{all}");
}

/// CPU time of a thread of this process.
fn cpu_time(thread: i32) -> Duration {
    let text = Root::default().read(format!("/proc/self/task/{thread}/schedstat")).unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// A program of its own, so that no other test's threads are in its samples.
#[test]
fn all_threads_of_a_process_are_sampled_but_not_the_one_that_empties_the_rings() {
    const ASKED: &str = "PCIESCOPE_TEST_WHOLE_PROCESS";
    const NAME: &str = "all_threads_of_a_process_are_sampled_but_not_the_one_that_empties_the_rings";
    if std::env::var_os(ASKED).is_none() {
        let program = std::env::current_exe().unwrap();
        let output = std::process::Command::new(program)
            .args([NAME, "--nocapture", "--test-threads=1"])
            .env(ASKED, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        text.lines().filter(|line| line.contains("NOT TESTED")).for_each(|line| eprintln!("{line}"));
        return;
    }
    let (tell, told) = mpsc::channel::<()>();
    let old = std::thread::spawn(move || {
        told.recv().unwrap_err();
        the_busy_one(Duration::from_millis(250))
    });
    let Some(mut sampler) = sampler(Whom::Process, &Sampling::default()) else { return };
    let root = Root::default();
    let events = sampler.owners.len() + sampler.others.len();
    assert_eq!(events, (own_threads(&root, 0).len() - 1) * online(&root).len(), "all threads but the reader's");
    sampler.start().unwrap();
    drop(tell);
    // Two that are born while it samples, one of them by the other; a child process is not ours.
    let young = std::thread::spawn(|| {
        let younger = std::thread::spawn(|| the_one_that_reads(Duration::from_millis(250)));
        let child =
            std::process::Command::new("sh").args(["-c", "n=0; while [ $n -lt 20000 ]; do n=$((n+1)); done"]).status();
        assert!(child.unwrap().success());
        younger.join().unwrap()
    });
    let used = old.join().unwrap().plus(&young.join().unwrap());
    sampler.stop().unwrap();
    let reader = cpu_time(sampler._reader.number);
    let profile = sampler.take(&mut Symbols::of(&Root::default()));
    let expected = used.total_ns as f64 * 997.0 / 1e9;
    let is_left_out = profile.notes.iter().any(|note| note.contains("only user space"));
    let ratio = profile.samples as f64 / expected;
    let difference = profile.cpu_ns.abs_diff(used.total_ns);
    assert!(difference < used.total_ns / 10 + 20_000_000, "{used:?} {profile:?}");
    assert!(is_left_out || (0.5..1.25).contains(&ratio), "{ratio} {profile:?}");
    assert!(profile.spots.iter().any(|spot| spot.object.starts_with("pciescope_hw")), "{profile:?}");
    assert!(profile.spots.iter().all(|spot| spot.object != "[other process]"), "{profile:?}");
    assert!(reader < Duration::from_millis(5), "{reader:?}");
}

/// What sampling costs the sampled thread, as the worse half of pairs of turns next to each other would have it: other work on this machine is in both.
#[test]
fn sampling_takes_a_few_percent_at_most() {
    // Both turns run the same code: two inlined copies may be as different as one in registers and one in memory.
    #[inline(never)]
    fn work() -> f64 {
        let begun = Usage::thread();
        let mut word = 1u64;
        for n in 0..6_000_000u64 {
            word = std::hint::black_box(word ^ n);
        }
        Usage::thread().since(&begun).total_ns as f64
    }
    let thread = [sys::thread_number()];
    let Some(sampler) = sampler(Whom::Threads(&thread), &Sampling::default()) else { return };
    let mut ratios: Vec<f64> = (0..15)
        .map(|_| {
            let bare = work();
            sampler.start().unwrap();
            let sampled = work();
            sampler.stop().unwrap();
            sampled / bare
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    assert!(median < 1.10, "{ratios:?}");
}

/// While the rings are held, nobody empties them: one is full after 5461 samples, and what comes then is lost, and said to be.
#[test]
fn what_finds_no_room_is_counted() {
    let thread = [sys::thread_number()];
    let Some(mut sampler) = sampler(Whom::Threads(&thread), &Sampling { hz: 20_000, ..Sampling::default() }) else {
        return;
    };
    let shared = Arc::clone(&sampler.shared);
    let held = locked(&shared);
    sampler.start().unwrap();
    let used = the_busy_one(Duration::from_millis(700));
    sampler.stop().unwrap();
    drop(held);
    let profile = sampler.take(&mut Symbols::of(&Root::default()));
    assert!((5000..=5461).contains(&profile.samples), "{used:?} {profile:?}");
    if sampler.agreed.sampled.is_new {
        let all = used.total_ns as f64 * f64::from(profile.hz) / 1e9;
        let ratio = (profile.samples + profile.lost) as f64 / all;
        assert!(profile.lost > 100 && (0.5..1.25).contains(&ratio), "{ratio} {profile:?}");
        assert!(profile.notes.iter().any(|note| note.contains("samples were lost")), "{:?}", profile.notes);
    }
    // The losses are told once.
    assert_eq!(sampler.take(&mut Symbols::of(&Root::default())).lost, 0);
}

#[test]
fn threads_that_are_not_there_are_refused_in_words() {
    let refused = Sampler::open(&Root::default(), Whom::Threads(&[i32::MAX]), &Sampling::default()).unwrap_err();
    let text = refused.to_string();
    assert!(text.starts_with("sampling by "), "{text}");
    assert!(matches!(refused, Error::Call { .. } | Error::Permission { .. } | Error::Absent { .. }), "{refused:?}");
    assert!(Sampler::open(&Root::default(), Whom::Threads(&[]), &Sampling::default()).is_err());
}

#[test]
fn a_thread_that_ends_while_it_is_sampled_keeps_its_samples() {
    let open = |thread| sampler(Whom::Threads(&[thread]), &Sampling::default());
    let Some((mut sampler, _)) = sampled_work(open, || the_busy_one(Duration::from_millis(100))) else { return };
    // The thread is gone, and the reader has been told so; it must not spin.
    std::thread::sleep(Duration::from_millis(300));
    assert!(cpu_time(sampler._reader.number) < Duration::from_millis(20));
    assert!(sampler.take(&mut Symbols::of(&Root::default())).samples > 20);
}

#[test]
fn a_rate_above_the_kernels_limit_is_lowered_and_said() {
    let most = Root::default().number("/proc/sys/kernel/perf_event_max_sample_rate").unwrap_or(u64::from(u32::MAX));
    let thread = [sys::thread_number()];
    let Some(mut sampler) = sampler(Whom::Threads(&thread), &Sampling { hz: u32::MAX, ..Sampling::default() }) else {
        return;
    };
    let profile = sampler.take(&mut Symbols::of(&Root::default()));
    assert_eq!(u64::from(profile.hz), most);
    assert!(profile.notes[0].contains("perf_event_max_sample_rate"), "{:?}", profile.notes);
}

#[test]
fn a_timer_that_is_late_is_told() {
    let of = |samples, lost, is_user_only| {
        let mut profile = Profile { samples, lost, cpu_ns: 2_000_000_000, hz: 1000, ..Profile::default() };
        profile.note_losses(&Tally { throttled: 3, unread: 5, ..Tally::default() }, is_user_only);
        profile.notes
    };
    let notes = of(900, 100, false);
    assert!(notes[0].starts_with("50 % of the samples came that 2.0 s"), "{notes:?}");
    assert!(notes[1].starts_with("100 samples were lost") && notes[2].starts_with("3 times"), "{notes:?}");
    assert_eq!(notes.len(), 4, "{notes:?}");
    assert_eq!(of(1700, 0, false).len(), 2);
    assert_eq!(of(900, 0, true).len(), 2);
}

#[test]
fn spots_are_the_places_with_the_most_samples() {
    let samples = HashMap::from([
        ((Mode::User, 0x10), 5),
        ((Mode::User, 0x11), 2),
        ((Mode::Kernel, 0x20), 6),
        ((Mode::User, 0x30), 1),
        ((Mode::User, 0x40), 1),
        ((Mode::Kernel, 0x50), 5),
    ]);
    let place = |mode, address: u64| Place {
        object: "thing".to_owned(),
        symbol: format!("f{:x}", address >> 4),
        is_kernel: mode == Mode::Kernel,
    };
    let found = spots(&samples, 4, place);
    let found: Vec<(&str, f64, bool)> =
        found.iter().map(|spot| (spot.symbol.as_str(), spot.percent, spot.is_kernel)).collect();
    assert_eq!(found, [("f1", 35.0, false), ("f2", 30.0, true), ("f5", 25.0, true), ("f3", 5.0, false)]);
    assert!(spots(&HashMap::new(), 4, place).is_empty());
}

#[test]
fn refusals_have_their_own_words() {
    let root = Tree::of(&[("proc/sys/kernel/perf_event_paranoid", "4\n")]);
    let of = |code| refusal(&root, Kind::Clock, io::Error::from_raw_os_error(code));
    let refused = of(libc::EACCES);
    assert_eq!(
        refused.to_string(),
        "sampling by cpu-clock: the kernel does not let this user count (perf_event_paranoid is 4)"
    );
    assert!(refused.hint().unwrap().contains("CAP_PERFMON"));
    assert!(matches!(of(libc::ENOENT), Error::Absent { .. }));
    assert!(matches!(of(libc::EMFILE), Error::Files { .. }));
    assert!(matches!(of(libc::EBUSY), Error::Busy { .. }));
    assert!(of(libc::ESRCH).to_string().contains("find a thread"));
    assert!(no_kernel(&root).contains("perf_event_paranoid is 4"));
}

#[test]
fn a_machine_with_unlike_cpus_is_sampled_by_the_clock() {
    let root = Tree::new();
    let put = |pmu: &str| root.put(format!("sys/bus/event_source/devices/{pmu}/cpus"), "0-3\n");
    assert!(!has_unlike_cpus(&root));
    put("cpu_core");
    root.folder("sys/bus/event_source/devices/uncore_imc_0");
    assert!(!has_unlike_cpus(&root));
    put("cpu_atom");
    assert!(has_unlike_cpus(&root));
    let agreed = agree(&root, Whom::Threads(&[]), &Sampling::default());
    if let Ok(agreed) = agreed {
        assert!(agreed.kind == Kind::Clock && agreed.notes[0].contains("unlike"), "{agreed:?}");
    }
}
