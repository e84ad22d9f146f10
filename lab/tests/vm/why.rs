//! `latency --why`: causes of slow samples are planted, and the names given are compared with them. docs/why.md.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pciescope_core::Why;
use pciescope_core::why::{Cause, SlowSample};
use pciescope_lab::vm::{Attachment, GuestDevice, Kernel};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;

use crate::say;
use crate::support::{PATIENCE, Rig, is_arm64, lab_failed};

/// What the module plants, and reads what came of it.
const PLANT: &str = "/sys/module/pciescope_plant/parameters/plant";
/// How long what is planted takes, in microseconds.
const SHORTEST: u64 = 10_000;
const LONGEST: u64 = 20_000;
/// A slow sample is longer than this, and so is one of what is planted.
const ABOVE_NS: u64 = 6_000_000;
/// Between the end of one and the begin of the next.
const PAUSE: Duration = Duration::from_millis(150);
/// What the host takes from the guest's CPU during a plant, of its length, before that is set aside.
const HOST_SHARE: f64 = 0.1;
const FILE: &str = "/host/why.jsonl";

type PlantKind = (&'static str, Cause);

/// One way to measure, and what can be planted there.
struct Way {
    name: &'static str,
    verb: &'static str,
    args: &'static str,
    /// What is measured: a name of the machine's.
    device: &'static str,
    /// Of each sample.
    accesses: u32,
    /// Whether the measured CPU takes no interrupt.
    is_deaf: bool,
    kinds: &'static [PlantKind],
}

/// The endpoint answers in another process, and QEMU lets nothing else happen while a CPU waits for it: interrupts come when
/// nothing is measured. So they are planted while QEMU's own device is read, many times for a sample.
const WAYS: [Way; 5] = [
    Way {
        name: "user space",
        verb: "mmio",
        args: "--backend resource --bar 0 --offset 0 --accept-side-effects",
        device: OWN_DEVICE,
        accesses: 1000,
        is_deaf: false,
        // An item of a workqueue does not get the CPU from a real-time thread, which the measuring one is.
        kinds: &[
            ("interrupt", Cause::Interrupt),
            ("ipi", Cause::Ipi),
            ("softirq", Cause::Softirq),
            ("thread", Cause::Thread),
            ("nmi", Cause::Nmi),
            ("hypervisor", Cause::Hypervisor),
        ],
    },
    Way {
        name: "the endpoint from user space",
        verb: "mmio",
        args: "--backend resource",
        device: ENDPOINT,
        accesses: 1,
        is_deaf: false,
        kinds: &[("hypervisor", Cause::Hypervisor), ("read", Cause::Device)],
    },
    Way {
        name: "the module",
        verb: "mmio",
        args: "--backend kmod --bind --bar 0 --offset 0 --accept-side-effects",
        device: OWN_DEVICE,
        accesses: 1000,
        is_deaf: true,
        kinds: &[("nmi", Cause::Nmi), ("hypervisor", Cause::Hypervisor)],
    },
    Way {
        name: "the endpoint from the module",
        verb: "mmio",
        args: "--backend kmod --bind",
        device: ENDPOINT,
        accesses: 1,
        is_deaf: true,
        kinds: &[("hypervisor", Cause::Hypervisor), ("read", Cause::Device)],
    },
    Way {
        name: "interrupts of the endpoint",
        verb: "irq",
        args: "--backend kmod --bind --raised-by hardware",
        device: ENDPOINT,
        accesses: 1,
        is_deaf: false,
        kinds: &[
            ("irqs-off", Cause::IrqsOff),
            ("interrupt", Cause::Interrupt),
            ("nmi", Cause::Nmi),
            ("hypervisor", Cause::Hypervisor),
            ("message", Cause::Device),
        ],
    },
];

/// QEMU's device of which its first register is read, and the lab's.
const OWN_DEVICE: &str = "edu1";
const ENDPOINT: &str = "lab0";
/// Where the measurement runs.
const CPU: usize = 1;

/// When something was planted: on the guest's CLOCK_MONOTONIC, or between two times of the host's.
#[derive(Debug, Clone, Copy)]
enum When {
    Guest(u64, u64),
    Host(u64, u64),
}

#[derive(Debug)]
struct OnePlant {
    kind: PlantKind,
    when: When,
    /// How long the CPU was taken.
    ns: u64,
}

/// Knuth's MMIX generator.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// What the host did at a time: all that QEMU's threads and the device's have waited for a CPU.
#[derive(Debug, Clone, Copy)]
struct Look {
    at: u64,
    waited: u64,
}

/// The kernel's accounts of the threads that a measurement on a CPU needs: all of QEMU's but the other CPUs', and the device's.
/// The measured CPU has one of the host's for itself, with the device only where one waits for the other.
fn accounts(bench: &WhyBench, way: &Way) -> Vec<File> {
    let mut cpus = bench.rig.schedstats().unwrap_or_else(|err| lab_failed(err));
    let own = cpus.remove(CPU);
    let thread = |task: &Path| task.file_name()?.to_str()?.parse().ok().and_then(Pid::from_raw);
    let pin = |task: &Path, host_cpu: usize| {
        let mut set = CpuSet::new();
        set.set(host_cpu);
        // One that has ended stays nowhere.
        let _ = sched_setaffinity(thread(task), &set);
    };
    let tasks = |folder: &Path| -> Vec<PathBuf> {
        let listed = std::fs::read_dir(folder).unwrap_or_else(|err| lab_failed(err));
        listed.filter_map(|task| Some(task.ok()?.path())).collect()
    };
    let name = |task: &PathBuf| std::fs::read_to_string(task.join("comm")).unwrap_or_default();
    let device = |task: &PathBuf| ["lab0-device", "lab0-timer"].contains(&name(task).trim());
    let of_device: Vec<PathBuf> = tasks(Path::new("/proc/self/task")).into_iter().filter(device).collect();
    let own = own.parent().expect("it is in a folder");
    let of_qemu = tasks(own.parent().expect("it is in a folder of a folder"));
    // Only threads that end with the guest: what this program starts later has all CPUs.
    of_qemu.iter().for_each(|task| pin(task, 0));
    of_device.iter().for_each(|task| pin(task, usize::from(way.verb == "mmio")));
    pin(own, 1);
    // What only looks whether time stands still lets all others go first, and the device goes before the CPU that waits for it,
    // perhaps for a lock of whoever asked it. Without privilege more is set aside.
    let looking: Vec<&Path> = cpus.iter().filter_map(|account| account.parent()).collect();
    let first = of_qemu.iter().filter(|task| !looking.contains(&task.as_path())).map(|task| ("10", task));
    for (priority, task) in first.chain(of_device.iter().map(|task| ("20", task))) {
        let number = task.file_name().expect("it is a number");
        let _ = Command::new("chrt").args(["--fifo", "--pid", priority]).arg(number).output();
    }
    let all = of_qemu.into_iter().chain(of_device).map(|task| task.join("schedstat"));
    all.filter(|path| !cpus.contains(path)).filter_map(|path| File::open(path).ok()).collect()
}

/// Looks until it is over.
fn look(begun: Instant, files: &[File], is_over: &AtomicBool) -> Vec<Look> {
    let (mut all, mut buffer) = (Vec::new(), [0; 100]);
    let mut waited = |file: &File| -> u64 {
        // A thread that has ended waits no more.
        let length = file.read_at(&mut buffer, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(&buffer[..length]);
        text.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
    };
    while !is_over.load(Ordering::Relaxed) {
        let waited = files.iter().map(&mut waited).sum();
        all.push(Look { at: begun.elapsed().as_nanos() as u64, waited });
        std::thread::sleep(Duration::from_millis(2));
    }
    all
}

/// The guest's clock on the host's: at two times, what is to be added, and to how many nanoseconds that is known.
struct GuestClock {
    pairs: [(u64, i64); 2],
    error_ns: u64,
}

impl GuestClock {
    fn guest(&self, host: u64) -> u64 {
        let [(begin, first), (end, last)] = self.pairs;
        let share = (host as f64 - begin as f64) / (end - begin).max(1) as f64;
        (host as i64 + first + ((last - first) as f64 * share) as i64) as u64
    }

    fn host(&self, guest: u64) -> u64 {
        let about = guest as i64 - self.pairs[0].1;
        (2 * about - (self.guest(about as u64) as i64 - self.pairs[0].1)) as u64
    }
}

struct WhyBench {
    rig: Rig,
    begun: Instant,
}

impl WhyBench {
    fn boot(kernel: Kernel) -> WhyBench {
        let rig = Rig::boot_with(kernel, |builder| {
            builder
                // One is measured, one looks whether time stands still, and one does what is told to be done.
                .cpus(3)
                // Else the second CPU takes no NMI from outside.
                // The one that looks has no ticks: QEMU holds up timers while a device is slow.
                .cmdline("apic_extnmi=all nohz_full=2")
                .device("edu0", GuestDevice::Edu, Attachment::RootPort)
                .device(OWN_DEVICE, GuestDevice::Edu, Attachment::RootPort)
                .module("pcilat")
                .module("pciescope_plant")
        });
        // An NMI of long duration is told of on the console. The thread is above the measuring one.
        rig.must(
            "set -e; if [ $(uname -m) = x86_64 ]; then modprobe msr; fi; dmesg -n 1
             chrt -f -p 90 $(grep -l pciescope_plant /proc/[0-9]*/comm | cut -d/ -f3)
             irq=$(awk '/plant-edu/ { sub(\":\", \"\", $1); print $1 }' /proc/interrupts)
             echo 2 >/proc/irq/$irq/smp_affinity",
        );
        WhyBench { rig, begun: Instant::now() }
    }

    fn elapsed(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    /// What the module says, behind a command that plants: number, begin, end.
    fn stamps(&self, command: &str) -> Vec<u64> {
        let said = self.rig.must(&format!("{command} {PLANT}"));
        said.split_whitespace().map(|word| word.parse().unwrap()).collect()
    }

    fn nmi(&self, us: u64) -> (u64, u64) {
        self.rig.must(&format!("echo nmi {} {us} >{PLANT}", CPU));
        let from = self.elapsed();
        self.rig.qmp("inject-nmi", Value::Null).unwrap_or_else(|err| lab_failed(err));
        (from, self.elapsed())
    }

    /// What is to be added to the host's clock and to how many nanoseconds it is known, by the quickest of some NMIs, or of
    /// commands that interrupt the CPU.
    fn offset(&self) -> (u64, (u64, i64)) {
        let command = || {
            let from = self.elapsed();
            self.rig.must(&format!("echo ipi {CPU} 0 >{PLANT}"));
            (from, self.elapsed())
        };
        let sync = |_| {
            let (from, to) = if is_arm64() { command() } else { self.nmi(0) };
            let begin = self.stamps("cat")[1];
            (to - from, (from, begin as i64 - from as i64))
        };
        (0..5).map(sync).min().unwrap()
    }

    fn plant(&self, kind: PlantKind, us: u64) -> OnePlant {
        let (time, mut ns) = (Duration::from_micros(us), us * 1000);
        let from = self.elapsed();
        let when = match kind.0 {
            "hypervisor" => {
                let took = self.rig.stop_for(time).unwrap_or_else(|err| lab_failed(err));
                ns = took.as_nanos() as u64;
                When::Host(from, self.elapsed())
            }
            "read" | "message" => {
                let delay = if kind.0 == "read" { "read-delay" } else { "irq-delay" };
                self.rig.tell(&format!("{delay} once {us}us"));
                let told = self.elapsed();
                std::thread::sleep(2 * time);
                if kind.0 == "message" {
                    self.usual_messages();
                }
                When::Host(from, told + ns)
            }
            "nmi" => {
                let (from, to) = self.nmi(us);
                std::thread::sleep(2 * time);
                When::Host(from, to + ns)
            }
            name => {
                let stamps = self.stamps(&format!("echo {name} {} {us} >{PLANT}; cat", CPU));
                ns = stamps[2] - stamps[1];
                When::Guest(stamps[1], stamps[2])
            }
        };
        OnePlant { kind, when, ns }
    }

    /// So long that most of the time an interrupt is on its way, which what is planted can meet.
    fn usual_messages(&self) {
        self.rig.tell("irq-delay fixed 3ms");
    }

    /// Measures while something is done, and gives what was slow: at most so many, and all that took longer.
    fn measure(&self, way: &Way, (most, above_ns): (u32, u64), meanwhile: impl FnOnce()) -> Vec<Why> {
        let Way { verb, args, accesses, .. } = way;
        let many = if *accesses > 1 { format!("--accesses {accesses}") } else { String::new() };
        let bdf = if way.device == ENDPOINT { self.rig.bdf.clone() } else { self.rig.address(way.device) };
        if *verb == "irq" {
            self.usual_messages();
        }
        let run = format!(
            "latency {verb} {bdf} {args} {many} --cpus {CPU} --duration 1h --why={most} --above {}ns",
            above_ns / u64::from(*accesses)
        );
        let running = self.rig.start(&run, FILE);
        std::thread::sleep(Duration::from_secs(2));
        assert!(running.status().is_none(), "the run has ended: {:?}", running.wait());
        meanwhile();
        running.signal("INT").unwrap_or_else(|err| lab_failed(err));
        let measured = self.rig.end(&running, FILE, PATIENCE);
        self.rig.tell("reset");
        assert_eq!(measured.output.status, 130, "{}", measured.output.stderr);
        measured.records.into_iter().filter_map(|one| one.why).map(|why| *why).collect()
    }
}

/// This thread, and what it starts meanwhile, leaves the measured CPU alone.
struct Aside(CpuSet);

impl Aside {
    fn begin() -> Aside {
        let before = sched_getaffinity(None).unwrap_or_else(|err| lab_failed(err));
        let mut first = CpuSet::new();
        first.set(0);
        sched_setaffinity(None, &first).unwrap_or_else(|err| lab_failed(err));
        Aside(before)
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        sched_setaffinity(None, &self.0).unwrap_or_else(|err| lab_failed(err));
    }
}

/// What was measured, and what the host did meanwhile.
struct Watched {
    slow: Vec<SlowSample>,
    looks: Vec<Look>,
    clock: GuestClock,
}

impl Watched {
    /// Measures while something is done, and looks at the host.
    fn while_doing(bench: &WhyBench, way: &Way, limit: (u32, u64), meanwhile: impl FnOnce()) -> Watched {
        let (mut looks, mut clock) = (Vec::new(), None);
        let (files, begun) = (accounts(bench, way), bench.begun);
        let _aside = Aside::begin();
        let all = bench.measure(way, limit, || {
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let looking = scope.spawn(|| look(begun, &files, &is_over));
                // A failure too ends the thread, for which the scope waits.
                let look_end = LookEnd(&is_over);
                let (error, begin) = bench.offset();
                meanwhile();
                let (later_error, end) = bench.offset();
                clock = Some(GuestClock { pairs: [begin, end], error_ns: error.max(later_error) });
                std::thread::sleep(PAUSE);
                drop(look_end);
                looks = looking.join().expect("it panics for the lab only");
            });
        });
        let slow = all.into_iter().flat_map(|why| why.slowest).collect();
        Watched { slow, looks, clock: clock.expect("it was measured") }
    }

    /// How long the host's threads waited from one time of the host's clock to another, in nanoseconds.
    fn host_took(&self, from: u64, to: u64) -> u64 {
        let before = self.looks.partition_point(|look| look.at <= from).saturating_sub(1);
        let behind = self.looks.partition_point(|look| look.at < to).min(self.looks.len() - 1);
        self.looks[behind].waited - self.looks[before].waited
    }
}

/// Ends what looks, however the plants end.
struct LookEnd<'o>(&'o AtomicBool);

impl Drop for LookEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What became of the plants of a kind.
#[derive(Debug, Default)]
struct PlantRow {
    planted: u64,
    /// The host took too much.
    set_aside: u64,
    /// No sample was slow: between two samples, what is planted delays none. Nothing is named then, rightly or wrongly.
    missing: u64,
    named: BTreeMap<&'static str, u64>,
    /// The names of those set aside, which are not judged.
    named_aside: BTreeMap<&'static str, u64>,
}

impl PlantRow {
    fn of(&self, cause: Cause) -> u64 {
        self.named.get(cause.name()).copied().unwrap_or(0)
    }
}

type PlantTable = BTreeMap<(&'static str, &'static str), PlantRow>;

fn plant_all(bench: &WhyBench, way: &Way, times: usize, seed: u64, table: &mut PlantTable) {
    let mut random = Random(seed);
    // Nothing outside gives an arm64 guest an NMI.
    let kinds = way.kinds.iter().filter(|kind| kind.0 != "nmi" || !is_arm64());
    let mut all: Vec<PlantKind> = kinds.flat_map(|kind| std::iter::repeat_n(*kind, times)).collect();
    for place in (1..all.len()).rev() {
        all.swap(place, random.below(place as u64 + 1) as usize);
    }
    let mut planted = Vec::new();
    let watched = Watched::while_doing(bench, way, (1000, ABOVE_NS), || {
        for kind in all {
            std::thread::sleep(PAUSE);
            planted.push(bench.plant(kind, SHORTEST + random.below(LONGEST - SHORTEST)));
        }
    });
    let Watched { slow, clock, .. } = &watched;
    let mut used = vec![false; slow.len()];
    for one in &planted {
        let row = table.entry((way.name, one.kind.0)).or_default();
        row.planted += 1;
        let ((from, to), (host_from, host_to)) = match one.when {
            When::Guest(from, to) => ((from, to), (clock.host(from), clock.host(to))),
            When::Host(from, to) => {
                ((clock.guest(from) - clock.error_ns, clock.guest(to) + clock.error_ns), (from, to))
            }
        };
        let host = watched.host_took(host_from, host_to);
        let length = |sample: &SlowSample| (sample.value_ns * f64::from(way.accesses)) as u64;
        // One that it delayed takes as long at least; others that it meets are slow for themselves.
        let overlaps = |sample: &SlowSample| {
            sample.at_ns < to && from < sample.at_ns + length(sample) && 10 * length(sample) >= 9 * one.ns
        };
        let meant = slow.iter().enumerate().filter(|(_, sample)| overlaps(sample));
        meant.clone().for_each(|(place, _)| used[place] = true);
        let longest = meant.max_by(|a, b| a.1.value_ns.total_cmp(&b.1.value_ns)).map(|(_, sample)| sample);
        if host as f64 > HOST_SHARE * one.ns as f64 {
            row.set_aside += 1;
            let name = longest.map_or("none", |sample| sample.cause().name());
            *row.named_aside.entry(name).or_default() += 1;
            continue;
        }
        match longest {
            None => row.missing += 1,
            Some(sample) => *row.named.entry(sample.cause().name()).or_default() += 1,
        }
        if longest.is_none_or(|sample| sample.cause() != one.kind.1) && std::env::var_os("SHOW").is_some() {
            say!("{one:?} in {from} to {to}, the host took {host} ns: {longest:?}");
        }
    }
    let others: Vec<&SlowSample> =
        slow.iter().zip(&used).filter(|(_, used)| !**used).map(|(sample, _)| sample).collect();
    let error_us = clock.error_ns / 1000;
    say!("{}: {} slow samples, {} of nothing planted; clock to {error_us} us", way.name, slow.len(), others.len());
    if std::env::var_os("SHOW").is_some() {
        others
            .iter()
            .filter(|one| one.value_ns * f64::from(way.accesses) > ABOVE_NS as f64)
            .take(12)
            .for_each(|sample| say!("not planted: {sample:?}"));
    }
}

/// How many of some have a property that a share of all has: more do once in a thousand times (the binomial distribution).
fn most_by_chance(all: u64, share: f64) -> u64 {
    let (mut most, mut exactly) = (0, (1.0 - share).powf(all as f64));
    let mut at_most = exactly;
    while at_most < 0.999 {
        exactly *= (all - most) as f64 / (most + 1) as f64 * share / (1.0 - share);
        most += 1;
        at_most += exactly;
    }
    most
}

/// Limits on what the host did not disturb and the program measured.
fn judge(table: &PlantTable) {
    for ((way, kind), row) in table {
        say!("{way}, {kind}: {row:?}");
    }
    let (mut planted, mut judged, mut right, mut wrong, mut unknown) = (0, 0, 0, 0, 0);
    for ((way, kind), row) in table {
        let way_of = WAYS.iter().find(|one| one.name == *way).expect("it is of the table");
        let cause = way_of.kinds.iter().find(|one| one.0 == *kind).expect("it is of the table").1;
        let named: u64 = row.named.values().sum();
        let open = row.of(Cause::Unknown) + row.of(Cause::EvidenceLost);
        judged += named;
        right += row.of(cause);
        wrong += named - row.of(cause) - open;
        // The module lets no interrupt in for a batch, and the kernel and QEMU hold up the CPU that looks until it does: then
        // nobody can tell, and it must say so.
        unknown += if way_of.is_deaf { open } else { 0 };
        planted += row.planted;
        let is_few = 10 * named < row.planted && row.planted >= 100;
        assert!(!is_few, "the lab failed: {way}, {kind}: too few count: {row:?}");
    }
    say!("{right} of {judged} have the right name, {wrong} a wrong one, {unknown} none as interrupts were off");
    assert!(8 * judged >= planted, "the lab failed: {judged} of {planted} count");
    // The shares that are promised, with what chance may add to so few.
    let judged = judged - unknown;
    assert!(
        judged - right <= most_by_chance(judged, 0.02) && wrong <= most_by_chance(judged, 0.01),
        "{right} of {judged} are right, {wrong} wrong"
    );
}

/// Nothing is planted: of the slowest samples at most one in a hundred has a name that only a plant can have. Whether QEMU stopped
/// all CPUs by itself, or answered late, nobody outside can tell: these names are shown and not judged.
fn nothing_is_named(bench: &WhyBench, way: &Way) {
    let mut times = (0, 0);
    let watched = Watched::while_doing(bench, way, (100, u64::MAX / 2), || {
        let from = bench.elapsed();
        std::thread::sleep(QUIET);
        times = (from, bench.elapsed());
    });
    let Watched { slow, clock, .. } = &watched;
    // The clocks are compared by NMIs before and behind.
    let times = clock.guest(times.0)..clock.guest(times.1);
    let slow: Vec<&SlowSample> = slow.iter().filter(|sample| times.contains(&sample.at_ns)).collect();
    let is_planted = |sample: &&&SlowSample| {
        matches!(sample.cause(), Cause::Nmi | Cause::IrqsOff) || sample.words().contains("plant")
    };
    let planted: Vec<_> = slow.iter().filter(is_planted).collect();
    let mut causes = BTreeMap::<&str, u64>::new();
    slow.iter().for_each(|sample| *causes.entry(sample.cause().name()).or_default() += 1);
    say!("{}, nothing planted: {causes:?}", way.name);
    assert!(!slow.is_empty() && planted.len() * 100 <= slow.len(), "{planted:#?}");
}

/// For how long nothing is planted, and what measures a storm.
const QUIET: Duration = Duration::from_secs(10);
const STORM: Duration = Duration::from_secs(40);

/// Interrupts from another CPU, one after the other: of their events at most one in twenty is lost, and what looking costs is
/// told.
fn a_storm_leaves_its_evidence(bench: &WhyBench, way: &Way) {
    let mut rate = 0.0;
    let all = bench.measure(way, (100, u64::MAX / 2), || {
        let count = format!("awk '/^ *CAL:/ {{ print ${} }}' /proc/interrupts", CPU + 2);
        let interrupts = || bench.rig.must(&count).trim().parse::<u64>().unwrap();
        let (begun, before) = (bench.elapsed(), interrupts());
        while bench.elapsed() - begun < STORM.as_nanos() as u64 {
            bench.rig.must(&format!("echo storm {CPU} 10000 >{PLANT}"));
        }
        rate = (interrupts() - before) as f64 / ((bench.elapsed() - begun) as f64 / 1e9);
    });
    let (events, lost) = all.iter().fold((0, 0), |sum, why| (sum.0 + why.events, sum.1 + why.events_lost));
    let cost = &all[0].cost;
    say!("a storm of {rate:.0} interrupts a second, two events each: {lost} of {} lost; cost {cost:?}", events + lost);
    assert!(lost * 20 <= events + lost, "{lost} of {} events are lost", events + lost);
    assert!(!cost.is_empty(), "the run was too short to tell what looking costs");
}

/// So many of each kind, in the ways whose name has a word.
/// `PCIESCOPE_PLANTS` and `WAY` are others; `SHOW` shows what is not right.
fn every_plant_gets_its_name(kernel: Kernel, seed: u64, (times, only): (usize, &str)) {
    let bench = WhyBench::boot(kernel);
    let mut table = PlantTable::new();
    let only = std::env::var("WAY").unwrap_or(only.to_owned());
    let times = std::env::var("PCIESCOPE_PLANTS").map_or(times, |times| times.parse().unwrap());
    // While an arm64 CPU waits for a served device, QEMU lets no other read its counter: time stands still there, and whose
    // fault that is the guest cannot tell.
    let can_tell = |way: &&Way| !is_arm64() || way.verb == "irq" || way.device == OWN_DEVICE;
    for way in WAYS.iter().filter(|way| way.name.contains(&only)).filter(can_tell) {
        plant_all(&bench, way, times, seed, &mut table);
    }
    judge(&table);
    bench.rig.check_log();
}

const ALL: (usize, &str) = (200, "");

pub fn every_plant_gets_its_name_on_6_1() {
    every_plant_gets_its_name(Kernel::V6_1, 1, ALL);
}

pub fn every_plant_gets_its_name_on_6_12() {
    every_plant_gets_its_name(Kernel::V6_12, 2, ALL);
}

pub fn every_plant_gets_its_name_on_the_newest_kernel() {
    every_plant_gets_its_name(Kernel::Newest, 3, ALL);
}

/// A part of it, in a minute.
pub fn plants_get_their_names_in_user_space() {
    every_plant_gets_its_name(Kernel::V6_12, 4, (4, "user space"));
}

pub fn nothing_planted_is_not_named_and_a_storm_leaves_its_evidence() {
    let bench = WhyBench::boot(Kernel::V6_12);
    WAYS.iter().for_each(|way| nothing_is_named(&bench, way));
    a_storm_leaves_its_evidence(&bench, &WAYS[0]);
    bench.rig.check_log();
}
