//! What runs the suites: three guests at a time, a line for each boot and each test with its time, and what took longest.
//!
//! A test takes one of three seats. One that compares rates or durations takes two.
//!
//! Tests say what they do with [`say!`](crate::say), which puts the time and the test's name before it. A place that
//! compares durations runs in [`quiet`]: no other test begins anything in its guest meanwhile. A test that does not end
//! within [`HANG`] is the lab's failure: the run ends, and the guests' serial logs are kept.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic;
use std::process::ExitCode;
use std::sync::{Condvar, Mutex, RwLock, RwLockReadGuard};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};

/// How long one test may take; twice as long without KVM, and `PCIESCOPE_LAB_PATIENCE` times as long.
const HANG: Duration = Duration::from_secs(300);
/// How many seats tests share, and so how many guests run at the same time at most: a guest waits more than it works.
const SEATS: usize = 3;
/// How many tests the closing lines name.
const SLOWEST: usize = 10;
/// Exit status of a run whose filter names no test.
const NO_TEST: u8 = 2;
/// Exit status of a run that the lab itself broke off.
const LAB_FAILED: i32 = 69;

/// A test: its name, what it does, and how many seats it takes, of [`SEATS`]. It fails by a panic.
pub type Test = (&'static str, fn(), usize);

/// Lists tests by their paths; `seats N` after a path where a test takes more than one.
#[macro_export]
macro_rules! tests {
    ($($suite:ident :: $test:ident $(seats $seats:literal)?),* $(,)?) => {
        &[$((
            concat!(stringify!($suite), "::", stringify!($test)),
            $suite::$test as fn(),
            [$($seats,)? 1][0],
        )),*]
    };
}

/// Prints a line of the test that runs on this thread, as `eprintln!` would.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::support::harness::say(&format!($($text)*)) };
}

/// What is known of a test so far.
#[derive(Default, Clone)]
struct Took {
    test: Duration,
    boots: u32,
    booting: Duration,
    /// Waiting for the other guest to be quiet, or for a place that times something to end.
    waiting: Duration,
}

static START: Mutex<Option<Instant>> = Mutex::new(None);
static TOOK: Mutex<BTreeMap<String, Took>> = Mutex::new(BTreeMap::new());
static RUNNING: Mutex<BTreeMap<String, Instant>> = Mutex::new(BTreeMap::new());
static SEATING: Mutex<Seating> = Mutex::new(Seating { free: SEATS, waiting: BTreeMap::new(), wide: 0 });
/// Woken when a seat was taken or became free.
static CHANGED: Condvar = Condvar::new();
/// Held for reading while a guest does something, for writing while something is timed.
static WORK: RwLock<()> = RwLock::new(());

struct Seating {
    free: usize,
    /// Tests that wait, by their place in the list of tests, with the seats they need.
    waiting: BTreeMap<usize, usize>,
    /// How many tests run that took more than one seat.
    wide: usize,
}

impl Seating {
    /// Who comes next: the first of the list that waits. While a wide test runs, another wide one has to wait for its end, and
    /// a narrow one may sit down beside it. At other times nobody overtakes a wide test: it would wait until the end.
    fn next(&self) -> Option<usize> {
        let fits = |(_, seats): &(&usize, &usize)| **seats <= self.free;
        let first = self.waiting.iter().next().filter(fits);
        first.or_else(|| self.waiting.iter().find(fits).filter(|_| self.wide > 0)).map(|(place, _)| *place)
    }
}

/// Seats that a test has taken; they are free again when it ends.
struct Seats(usize);

impl Seats {
    /// Waits for `count` seats for the test at `place` of the list.
    fn take(place: usize, count: usize) -> Seats {
        let count = count.min(SEATS);
        let mut seating = lock(&SEATING);
        seating.waiting.insert(place, count);
        while seating.next() != Some(place) {
            seating = CHANGED.wait(seating).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        seating.waiting.remove(&place);
        seating.free -= count;
        seating.wide += usize::from(count > 1);
        CHANGED.notify_all();
        Seats(count)
    }
}

impl Drop for Seats {
    fn drop(&mut self) {
        let mut seating = lock(&SEATING);
        seating.free += self.0;
        seating.wide -= usize::from(self.0 > 1);
        CHANGED.notify_all();
    }
}

thread_local! {
    static NAME: RefCell<String> = const { RefCell::new(String::new()) };
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs the tests that the command line asks for. The first of the list begin first: the long ones, so that none is left
/// to run alone at the end.
pub fn run(tests: &[Test]) -> ExitCode {
    let mut arguments = Arguments::from_args();
    // A thread for each: those without a seat wait.
    arguments.test_threads.get_or_insert(tests.len());
    *lock(&START) = Some(Instant::now());
    panic::set_hook(Box::new(|info| say(&format!("panicked: {info}"))));
    let trial = |(place, (name, test, seats)): (usize, &Test)| {
        let (name, test, seats) = (*name, *test, *seats);
        Trial::test(name, move || {
            let _seats = Seats::take(place, seats);
            one(name, test);
            Ok::<(), Failed>(())
        })
    };
    let trials = tests.iter().enumerate().map(trial).collect();
    thread::spawn(watch);
    let conclusion = libtest_mimic::run(&arguments, trials);
    summarize();
    if !arguments.list && conclusion.num_passed + conclusion.num_failed + conclusion.num_ignored == 0 {
        let filter = arguments.filter.as_deref().unwrap_or("all");
        eprintln!("no test here is named by `{filter}`, or all that are were skipped");
        eprintln!("hint: --list names the tests");
        return ExitCode::from(NO_TEST);
    }
    conclusion.exit_code()
}

fn one(name: &str, test: fn()) {
    NAME.with(|own| name.clone_into(&mut own.borrow_mut()));
    let begin = Instant::now();
    lock(&RUNNING).insert(name.to_owned(), begin);
    let ended = panic::catch_unwind(test);
    lock(&RUNNING).remove(name);
    let took = {
        let mut all = lock(&TOOK);
        let took = all.entry(name.to_owned()).or_default();
        took.test = begin.elapsed();
        took.clone()
    };
    let how = if ended.is_ok() { "passed" } else { "FAILED" };
    say(&format!("{how} in {:.1} s, {} boots", took.test.as_secs_f64(), took.boots));
    if let Err(cause) = ended {
        panic::resume_unwind(cause);
    }
}

/// Ends the run when a test hangs.
fn watch() {
    let patience = std::env::var("PCIESCOPE_LAB_PATIENCE").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let most = HANG * 2 * patience;
    loop {
        thread::sleep(Duration::from_secs(1));
        let hung = lock(&RUNNING).iter().find(|(_, begin)| begin.elapsed() > most).map(|(name, _)| name.clone());
        if let Some(name) = hung {
            eprintln!("the lab failed: {name} did not end within {} s", most.as_secs());
            eprintln!("hint: the guests' logs are in {}/pciescope-lab-*", std::env::temp_dir().display());
            summarize();
            std::process::exit(LAB_FAILED);
        }
    }
}

/// Prints a line with the time and the test's name before it.
pub fn say(text: &str) {
    let seconds = lock(&START).map_or(0.0, |start| start.elapsed().as_secs_f64());
    NAME.with(|name| eprintln!("{seconds:7.1} s  {}: {text}", name.borrow()));
}

/// Counts a boot of the test that runs on this thread.
pub fn booted(time: Duration) {
    let name = NAME.with(|name| name.borrow().clone());
    let mut all = lock(&TOOK);
    let took = all.entry(name).or_default();
    took.boots += 1;
    took.booting += time;
}

/// To be held while this thread's guest does something; `None` where this thread has [`quiet`].
pub fn work() -> Option<RwLockReadGuard<'static, ()>> {
    if IS_QUIET.get() {
        return None;
    }
    let begin = Instant::now();
    let guard = WORK.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    waited(begin);
    Some(guard)
}

/// Does something while no other test's guest is told to do anything: what is timed in here is not disturbed by them.
pub fn quiet<T>(timed: impl FnOnce() -> T) -> T {
    if IS_QUIET.get() {
        return timed();
    }
    /// Ends the quiet on a panic too.
    struct Quiet;
    impl Drop for Quiet {
        fn drop(&mut self) {
            IS_QUIET.set(false);
        }
    }
    let begin = Instant::now();
    let _alone = WORK.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    waited(begin);
    IS_QUIET.set(true);
    let _quiet = Quiet;
    timed()
}

fn waited(begin: Instant) {
    let name = NAME.with(|name| name.borrow().clone());
    lock(&TOOK).entry(name).or_default().waiting += begin.elapsed();
}

/// The slowest tests, the time of each suite, and how many guests were booted.
fn summarize() {
    let took = lock(&TOOK);
    if took.is_empty() {
        return;
    }
    let mut tests: Vec<(&String, &Took)> = took.iter().filter(|(name, _)| !name.is_empty()).collect();
    tests.sort_by_key(|(_, took)| std::cmp::Reverse(took.test));
    let mut suites: BTreeMap<&str, Duration> = BTreeMap::new();
    for (name, took) in &tests {
        *suites.entry(name.split("::").next().unwrap_or(name)).or_default() += took.test;
    }
    let suites: Vec<String> = suites.iter().map(|(suite, took)| format!("{suite} {:.0}", took.as_secs_f64())).collect();
    eprintln!("\nseconds of each suite: {}", suites.join(", "));
    eprintln!("the slowest tests:");
    for (name, took) in tests.iter().take(SLOWEST) {
        eprintln!(
            "{:7.1} s  {name} ({} boots in {:.1} s, waited {:.1} s for other guests)",
            took.test.as_secs_f64(),
            took.boots,
            took.booting.as_secs_f64(),
            took.waiting.as_secs_f64()
        );
    }
    let boots: u32 = tests.iter().map(|(_, took)| took.boots).sum();
    let booting: f64 = tests.iter().map(|(_, took)| took.booting.as_secs_f64()).sum();
    eprintln!("{boots} boots took {booting:.0} s together");
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
