//! `compare` on made-up runs: how often it raises a false alarm, how often it finds a shift, and what it says.
//!
//! `cargo test -p pciescope-report --test all compare:: -- --nocapture rates` prints the table of docs/compare-method.md.

use std::path::Path;

use pciescope_core::record::SCHEMA;
use pciescope_core::{Cpu, Histogram, Identity, Instance, Interval, Method, Metric, Record, Target};
use pciescope_report::compare::{Cell, Criteria, Judgement, Names, Verdict, brief, compare, lines, names, render};
use pciescope_report::import::{self, Format};

/// Pairs of sides in each row of the table of rates.
const PAIRS: u64 = 200;

/// SplitMix64, as everywhere in these tests.
struct Random(u64);

impl Random {
    /// Between 0 and 1, neither included.
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((z ^ (z >> 31)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }
    fn normal(&mut self) -> f64 {
        (-2.0 * self.share().ln()).sqrt() * (std::f64::consts::TAU * self.share()).cos()
    }
}

/// What latencies look like.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// Log-normal, with one sample in 200 in a tail of half again to four times as long.
    Tail,
    /// Two modes 15 % apart: a third of the samples in the upper one.
    Bimodal,
    /// Steps of a clock that are 2 % of the median.
    Quantised,
    /// Neighbours resemble each other: first-order autocorrelation 0.8.
    Correlated,
    /// CPUs of two NUMA nodes, as many of each: every other one is 17 % slower.
    Halves,
}

const FORMS: [Form; 5] = [Form::Tail, Form::Bimodal, Form::Quantised, Form::Correlated, Form::Halves];

impl Form {
    /// The least CPUs that it takes to see it.
    fn cpus(self) -> u32 {
        if matches!(self, Form::Halves) { 4 } else { 1 }
    }
}

/// A made-up run, whose level all of its CPUs share: its samples are multiplied by `factor`, those that are 5 % above it also by `tail`.
struct Made {
    form: Form,
    samples: usize,
    /// Standard deviation of the runs' levels.
    jitter: f64,
    factor: f64,
    tail: f64,
}

impl Made {
    fn of(form: Form) -> Self {
        Made { form, samples: 2000, jitter: 0.003, factor: 1.0, tail: 1.0 }
    }

    /// The level of a run, in nanoseconds.
    fn level(&self, random: &mut Random) -> f64 {
        800.0 * (self.jitter * random.normal()).exp() * self.factor
    }

    fn histogram(&self, random: &mut Random, level: f64) -> Histogram {
        let mut last = random.normal();
        let mut histogram = Histogram::default();
        for _ in 0..self.samples {
            let fresh = random.normal();
            let shape = match self.form {
                Form::Tail if random.share() < 0.005 => 1.5 + 2.5 * random.share(),
                Form::Bimodal if random.share() < 1.0 / 3.0 => 1.15 * (0.01 * fresh).exp(),
                Form::Correlated => {
                    last = 0.8 * last + 0.6 * fresh;
                    (0.03 * last).exp()
                }
                _ => (0.02 * fresh).exp(),
            };
            let shape = if shape > 1.05 { shape * self.tail } else { shape };
            let step = if matches!(self.form, Form::Quantised) { 16_000.0 } else { 385.0 };
            let ps = (level * shape * 1000.0 / step).round() * step;
            histogram.record_ps(ps as u64, 1).unwrap();
        }
        histogram
    }

    fn record(&self, random: &mut Random, level: f64, run: u64, cpu: u32) -> Record {
        let step = if matches!(self.form, Form::Quantised) { 16.0 } else { 0.385 };
        let is_far = matches!(self.form, Form::Halves) && cpu % 2 == 1;
        latency(self.histogram(random, if is_far { 1.17 * level } else { level }), run, cpu, step)
    }

    /// A side of so many runs on so many CPUs.
    fn side(&self, seed: u64, runs: u64, cpus: u32) -> Vec<Record> {
        let mut random = Random(seed);
        let mut records = Vec::new();
        for run in 0..runs {
            let level = self.level(&mut random);
            records.extend((0..cpus).map(|cpu| self.record(&mut random, level, seed * 100 + run, cpu)));
        }
        records
    }
}

fn latency(histogram: Histogram, run: u64, cpu: u32, quantum_ns: f64) -> Record {
    Record {
        schema: SCHEMA,
        run: format!("{run:016x}"),
        verb: "latency mmio".to_owned(),
        test: "mmio-read".to_owned(),
        target: Some(Target { bar: Some(0), offset: Some(8), width: Some(4), ..Target::default() }),
        cpu: Some(Cpu { cpu, ..Cpu::default() }),
        method: Some(Method { backend: "kmod".to_owned(), batch: 1, quantum_ns, ..Method::default() }),
        histograms: [("latency".to_owned(), histogram)].into(),
        ..Record::default()
    }
}

fn plain(a: &[Record], b: &[Record]) -> Judgement {
    compare(a, b, &Criteria::default())
}

fn has_alarm(judgement: &Judgement) -> bool {
    judgement.cells.iter().any(|cell| cell.verdict.is_alarm())
}

fn shows(judgement: &Judgement, name: &str, verdict: Verdict) -> bool {
    let is_it = |cell: &Cell| cell.shifts.iter().any(|shift| shift.name == name && shift.verdict == verdict);
    judgement.overall().any(is_it)
}

/// How many of the pairs `is_found` is true for; A has even seeds and B odd ones.
fn rate(made: (&Made, &Made), runs: u64, cpus: u32, options: &Criteria, is_found: impl Fn(&Judgement) -> bool) -> u64 {
    let pair = |n: u64| compare(&made.0.side(2 * n, runs, cpus), &made.1.side(2 * n + 1, runs, cpus), options);
    (0..PAIRS).filter(|&n| is_found(&pair(n))).count() as u64
}

/// The most alarms in 200 pairs of a test that raises one in 20 by chance which come once in a thousand times:
/// P(Binomial(200, 0.05) > 20) = 0.0009. A comparison is promised to be such a test even with a margin of 0.
const MOST_FALSE: u64 = 20;

#[test]
fn rates_of_false_alarms_stay_below_what_is_promised() {
    let print = |what: &str, form: Form, alarms: u64| println!("| {what} | {form:?} | {alarms} of {PAIRS} |");
    let bare = Criteria { margin: 0.0, ..Criteria::default() };
    for form in FORMS {
        let made = Made::of(form);
        let alarms = rate((&made, &made), 1, form.cpus().max(2), &Criteria::default(), has_alarm);
        print("A/A, a run a side", form, alarms);
        assert!(alarms <= 1, "{form:?}: {alarms} alarms; the margin leaves room for hardly any");
        let alarms = rate((&made, &made), 1, form.cpus(), &bare, has_alarm);
        print("A/A, a run a side, margin 0", form, alarms);
        assert!(alarms <= MOST_FALSE, "{form:?}: {alarms}");
        // Runs that lie three times as far apart as is assumed: the runs themselves have to say so.
        let wild = Made { jitter: 0.015, samples: 500, ..Made::of(form) };
        let alarms = rate((&wild, &wild), 4, form.cpus(), &Criteria::default(), has_alarm);
        print("A/A, 4 runs a side that differ by 1.5 %", form, alarms);
        assert!(alarms <= MOST_FALSE, "{form:?}: {alarms}");
        // Ten calm runs must not speak for three wild ones.
        let calm = Made { jitter: 0.002, samples: 500, ..Made::of(form) };
        let wild = Made { jitter: 0.03, samples: 500, ..Made::of(form) };
        for (what, options) in [("", &Criteria::default()), (", margin 0", &bare)] {
            let pair = |n: u64| {
                let cpus = form.cpus();
                compare(&calm.side(2 * n, 10, cpus), &wild.side(2 * n + 1, 3, cpus), options)
            };
            let alarms = (0..PAIRS).filter(|&n| has_alarm(&pair(n))).count() as u64;
            print(&format!("A/A, 10 runs that differ by 0.2 % and 3 by 3 %{what}"), form, alarms);
            assert!(alarms <= MOST_FALSE, "{form:?}{what}: {alarms}");
        }
    }
}

#[test]
fn rates_of_detection() {
    let print = |what: &str, form: Form, found: u64| println!("| {what} | {form:?} | {found} of {PAIRS} |");
    for form in FORMS {
        let made = Made::of(form);
        let slower = Made { factor: 1.05, ..Made::of(form) };
        let faster = Made { factor: 0.95, ..Made::of(form) };
        let little = Made { factor: 1.01, ..Made::of(form) };
        let found = rate((&made, &slower), 1, form.cpus(), &Criteria::default(), |j| shows(j, "p50", Verdict::Slower));
        print("median 5 % slower", form, found);
        assert!(found >= 190, "{form:?}: {found}");
        let found = rate((&made, &faster), 1, form.cpus(), &Criteria::default(), |j| shows(j, "p50", Verdict::Faster));
        print("median 5 % faster", form, found);
        assert!(found >= 190, "{form:?}: {found}");
        let alarms = rate((&made, &little), 1, form.cpus(), &Criteria::default(), has_alarm);
        print("1 % slower, within the margin: alarms", form, alarms);
        assert!(alarms <= 2, "{form:?}: {alarms}");
    }
}

/// How the samples of a run follow each other in its 5 rounds, in shapes that a comparison got wrong.
#[derive(Debug, Clone, Copy)]
enum Course {
    /// 500 and 900 ns, this share of the samples in the lower mode.
    Modes(f64),
    /// The same without width: ties that no clock's step explains.
    Tied,
    /// First-order autocorrelation 0.99, standard deviation 2 %.
    Regressive,
    /// Modes 15 % apart; it stays in one for 100 samples on average.
    Dwelling,
    /// A random walk whose end is 3 % off, by its standard deviation.
    Drifting,
}

const COURSES: [Course; 6] =
    [Course::Modes(0.5), Course::Modes(0.52), Course::Tied, Course::Regressive, Course::Dwelling, Course::Drifting];

impl Course {
    /// A run of 20,000 samples on so many CPUs together, each sample `factor` times as long.
    fn side(self, seed: u64, cpus: u32, factor: f64) -> Vec<Record> {
        let mut random = Random(seed);
        let samples = 20_000 / cpus as usize;
        (0..cpus).map(|cpu| self.record(&mut random, samples, (seed, cpu), factor)).collect()
    }

    fn record(self, random: &mut Random, samples: usize, (run, cpu): (u64, u32), factor: f64) -> Record {
        let mut last = if matches!(self, Course::Drifting) { 0.0 } else { random.normal() };
        let mut is_low = random.share() < 0.5;
        let mut rounds = vec![Histogram::default(); 5];
        for n in 0..samples {
            let fresh = random.normal();
            let ns = match self {
                Course::Modes(low) => (if random.share() < low { 500.0 } else { 900.0 }) * (0.01 * fresh).exp(),
                Course::Tied => {
                    if random.share() < 0.5 {
                        500.0
                    } else {
                        900.0
                    }
                }
                Course::Regressive => {
                    last = 0.99 * last + (1.0f64 - 0.99 * 0.99).sqrt() * fresh;
                    800.0 * (0.02 * last).exp()
                }
                Course::Dwelling => {
                    is_low ^= random.share() < 0.01;
                    (if is_low { 800.0 } else { 920.0 }) * (0.01 * fresh).exp()
                }
                Course::Drifting => {
                    last += fresh * 0.03 / (samples as f64).sqrt();
                    800.0 * (last + 0.005 * random.normal()).exp()
                }
            };
            rounds[n * 5 / samples].record_ps((ns * factor * 1000.0) as u64, 1).unwrap();
        }
        let mut all = Histogram::default();
        rounds.iter().for_each(|round| all.merge(round));
        let mut record = latency(all, run, cpu, 0.0);
        let effect = pciescope_core::histogram::design_effect(&rounds).unwrap();
        record.metrics.insert("design_effect".to_owned(), Metric::of(effect, "1"));
        record.metrics.insert("design_batches".to_owned(), Metric::count(5));
        record
    }
}

#[test]
fn rates_of_courses_that_neighbours_share() {
    for course in COURSES {
        for cpus in [1, 8] {
            let alarms = |factor: f64, is_found: &dyn Fn(&Judgement) -> bool| {
                let pair = |n: u64| plain(&course.side(2 * n, cpus, 1.0), &course.side(2 * n + 1, cpus, factor));
                (0..PAIRS).filter(|&n| is_found(&pair(n))).count() as u64
            };
            let equal = alarms(1.0, &has_alarm);
            let slower = alarms(1.05, &has_alarm);
            println!("| {course:?}, {cpus} CPUs | equal: {equal} of {PAIRS} | 5 % slower: {slower} of {PAIRS} |");
            assert!(equal <= PAIRS / 20, "{course:?}, {cpus} CPUs: {equal}");
            let is_allowed = !matches!(course, Course::Dwelling | Course::Drifting);
            assert!(!is_allowed || slower >= PAIRS * 19 / 20, "{course:?}, {cpus} CPUs: {slower}");
        }
    }
}

/// A log of register reads of 20,000 lines: it stays in one of two modes for 100 samples in the mean, or walks.
fn log(walks: bool, seed: u64) -> Vec<Record> {
    let mut random = Random(seed.wrapping_mul(0x5851_f42d_4c95_7f2d));
    let (mut is_low, mut at) = (random.share() < 0.5, 700.0f64);
    let lines = (0..20_000u64).map(|n| {
        is_low ^= random.share() < 0.01;
        at = (at + random.normal()).clamp(500.0, 900.0);
        let value = if walks { at } else { if is_low { 500.0 } else { 900.0 } };
        format!("{} {} 0 0\n", n * 1000, value as u64)
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), lines.collect::<String>()).unwrap();
    let identity = Identity::new("import", None);
    let read = import::read(file.path(), None, &identity).unwrap();
    assert_eq!((read.format, read.samples), (Format::Iomem, 20_000));
    read.records
}

#[test]
fn imported_logs_of_one_course_differ_by_chance_only() {
    // A walk of the length of its log shows one value only: nothing tells its level from that of another one. Without the
    // batches nearly all of them differ.
    for walks in [false, true] {
        let alarms = (0..PAIRS).filter(|n| has_alarm(&plain(&log(walks, 2 * n), &log(walks, 2 * n + 1)))).count();
        println!("| imported, walks: {walks} | {alarms} of {PAIRS} |");
        assert!(alarms as u64 <= PAIRS / 20, "walks: {walks}: {alarms} of {PAIRS}");
    }
    let [mut a, b] = [log(false, 1), log(false, 2)];
    a[0].metrics.clear();
    let slower = log(false, 3).into_iter().map(|record| {
        let values = (0..20_000).map(|n| 1500 + n % 7);
        Record { histograms: [("latency".to_owned(), Histogram::of_ns(values).unwrap())].into(), ..record }
    });
    let slower: Vec<Record> = slower.collect();
    let names = Names { a: "A".to_owned(), b: "B".to_owned() };
    // A change is shown with the doubt about it; without a change there is none to doubt.
    let text = |a: &[Record], b: &[Record]| brief(&plain(a, b), &names).replace("\n  ", " ");
    let line = "The correlation of neighbouring samples is not known for 1 histogram: 10 samples count as one.";
    assert!(text(&a, &slower).contains(line), "{}", text(&a, &slower));
    assert!(!text(&b, &slower).contains("The correlation"), "{}", text(&b, &slower));
    assert!(!text(&a, &a).contains("The correlation"), "{}", text(&a, &a));
}

/// A few samples more in one of two modes put the median at either end of the gap.
#[test]
fn a_median_between_two_modes_is_no_change_of_form() {
    let of = |run, low: u64, high: u64| {
        let values = (0..low).map(|_| 500).chain((0..high).map(|_| 900));
        [latency(Histogram::of_ns(values).unwrap(), run, 0, 0.0)]
    };
    let judgement = plain(&of(1, 1001, 999), &of(2, 999, 1001));
    assert!(!has_alarm(&judgement), "{:?}", judgement.cells[0]);
    assert_eq!(judgement.unordered, 2);
    assert!(has_alarm(&plain(&of(1, 1200, 800), &of(2, 800, 1200))), "a fifth of the samples moved");
}

/// Two NUMA nodes of as many CPUs: the median of all samples together lies in the gap between both.
#[test]
fn a_group_of_two_halves_is_as_clear_as_its_cells() {
    let made = |factor| Made { jitter: 0.0, factor, ..Made::of(Form::Halves) };
    let (a, b, c) = (made(1.0).side(2, 1, 8), made(1.0).side(3, 1, 8), made(1.05).side(5, 1, 8));
    let group = |judgement: &Judgement| judgement.overall().next().unwrap().clone();
    let same = group(&plain(&a, &b));
    assert_eq!((same.verdict, same.merged, same.shape.unwrap().is_alarm), (Verdict::Same, 8, false));
    let slower = group(&plain(&a, &c));
    assert_eq!(slower.verdict, Verdict::Slower);
    let shift = &slower.shifts[0];
    assert!(shift.is_of_cells && !slower.shifts[1].is_of_cells);
    assert!((shift.change.unwrap() - 0.05).abs() < 0.005, "{shift:?}");
    // The mean of both halves: 800 ns and 17 % more.
    assert!((shift.a / (800.0 * 1.17f64.sqrt()) - 1.0).abs() < 0.005, "{shift:?}");
    assert!(slower.shape.is_some_and(|shape| shape.displaced.abs() < 0.02), "all of it moved: {:?}", slower.shape);
    // One half slower by a tenth, the other faster: the typical figure stays, the form does not.
    let mut apart = made(1.1).side(7, 1, 8);
    apart.iter_mut().zip(made(0.9).side(9, 1, 8)).skip(1).step_by(2).for_each(|(r, o)| r.histograms = o.histograms);
    let apart = group(&plain(&a, &apart));
    assert!(apart.shape.unwrap().is_alarm && !apart.shifts[0].verdict.is_alarm(), "{apart:?}");
}

/// One sample more in one half or the other puts the median of all at either end of the gap: that is no change of form.
#[test]
fn the_gap_between_two_halves_is_no_change_of_form() {
    let of = |run, counts: [u64; 2]| {
        let cell = |cpu: u32, ns: u64| {
            let values = (0..counts[cpu as usize]).map(move |n| ns + n % 7);
            latency(Histogram::of_ns(values).unwrap(), run, cpu, 0.385)
        };
        [cell(0, 800), cell(1, 940)]
    };
    let judgement = plain(&of(1, [1001, 1000]), &of(2, [1000, 1001]));
    assert!(!has_alarm(&judgement), "{:?}", judgement.cells[0]);
    assert_eq!(judgement.cells[0].verdict, Verdict::Same);
}

/// Where a run measured some CPUs longer, the group's median is still that of its cells.
#[test]
fn another_mix_of_cpus_does_not_move_the_groups_median() {
    let side = |seed, long: u32| {
        let made = |samples| Made { samples, jitter: 0.0, ..Made::of(Form::Halves) };
        let (long_side, short) = (made(8000).side(seed, 1, 2), made(500).side(seed, 1, 2));
        if long == 0 { [long_side[0].clone(), short[1].clone()] } else { [short[0].clone(), long_side[1].clone()] }
    };
    let judgement = plain(&side(2, 0), &side(3, 1));
    let median = &judgement.overall().next().unwrap().shifts[0];
    assert!(median.change.unwrap().abs() < 0.01 && !median.verdict.is_alarm(), "{median:?}");
}

/// Cells too short for an interval of their own speak together.
#[test]
fn many_short_cells_are_taken_together() {
    let made = |factor| Made { samples: 20, factor, ..Made::of(Form::Tail) };
    let judgement = plain(&made(1.0).side(2, 1, 200), &made(1.05).side(3, 1, 200));
    let group = judgement.overall().next().unwrap();
    assert_eq!((group.shifts[0].is_of_cells, group.verdict), (false, Verdict::Slower));
}

#[test]
fn a_tail_that_is_5_percent_longer_is_found_given_samples() {
    let made = |tail| Made { samples: 60_000, tail, ..Made::of(Form::Correlated) };
    let pairs = 20;
    let found = (0..pairs).filter(|&n| {
        let judgement = plain(&made(1.0).side(2 * n, 1, 1), &made(1.05).side(2 * n + 1, 1, 1));
        shows(&judgement, "p99", Verdict::Slower) && !shows(&judgement, "p50", Verdict::Slower)
    });
    let found = found.count();
    println!("| p99 5 % longer, 60,000 samples | Correlated | {found} of {pairs} |");
    assert!(found >= 17, "{found} of {pairs}");
}

#[test]
fn several_runs_show_a_shift_that_one_run_leaves_unclear() {
    let made = |factor| Made { factor, jitter: 0.004, samples: 500, ..Made::of(Form::Tail) };
    let (mut one, mut many) = (0, 0);
    for n in 0..20 {
        one += u32::from(has_alarm(&plain(&made(1.0).side(2 * n, 1, 1), &made(1.035).side(2 * n + 1, 1, 1))));
        many += u32::from(has_alarm(&plain(&made(1.0).side(2 * n, 10, 1), &made(1.035).side(2 * n + 1, 10, 1))));
    }
    assert!(one <= 6 && many >= 18, "{one} and {many} of 20");
}

#[test]
fn a_form_that_changes_without_the_quantiles_is_found() {
    // Half of the samples move up by a tenth and half down: the median of the two stays between them.
    let of = |run: u64, apart: u64| {
        let ns = (0..20_000u64).map(|n| if n % 2 == 0 { 1000 - apart } else { 1000 + apart } + n % 7);
        latency(Histogram::of_ns(ns).unwrap(), run, 0, 0.385)
    };
    let judgement = plain(&[of(1, 50)], &[of(2, 100)]);
    assert!(has_alarm(&judgement));
    assert!(!has_alarm(&plain(&[of(1, 50)], &[of(2, 50)])));
}

/// Where many cells are looked at, a shift that the median's interval does not prove must not come back as a change of form.
#[test]
fn a_shift_is_no_change_of_form() {
    let (a, b) =
        (Made::of(Form::Correlated).side(2, 1, 1), Made { factor: 1.04, ..Made::of(Form::Correlated) }.side(3, 1, 1));
    let wide = Criteria { spread: 0.02, ..Criteria::default() };
    let judgement = compare(&a, &b, &wide);
    assert_eq!(judgement.cells[0].verdict, Verdict::Unclear);
    assert!(judgement.cells[0].shape.unwrap().displaced < 0.05);
}

#[test]
fn cells_of_different_cpus_are_matched_and_the_others_named() {
    let made = Made::of(Form::Tail);
    let (a, b) = (made.side(2, 1, 4), made.side(3, 1, 4));
    let judgement = plain(&a[..3], &b[1..]);
    let cpus = |keys: &[pciescope_report::compare::CellKey]| keys.iter().filter_map(|key| key.cpu).collect::<Vec<_>>();
    assert_eq!((cpus(&judgement.only_a), cpus(&judgement.only_b)), (vec![0], vec![3]));
    let merged: Vec<usize> = judgement.overall().map(|cell| cell.merged).collect();
    assert_eq!(merged, [2], "CPUs 1 and 2 together");
    assert_eq!(judgement.overall().next().unwrap().counts, [4000, 4000]);
}

#[test]
fn runs_are_merged_by_their_histograms() {
    let made = Made::of(Form::Tail);
    let judgement = plain(&made.side(2, 3, 1), &made.side(3, 2, 1));
    let cell = &judgement.cells[0];
    assert_eq!((cell.runs, cell.counts), ([3, 2], [6000, 4000]));
}

#[test]
fn what_cannot_be_compared_is_not() {
    let made = Made::of(Form::Tail);
    let (a, mut b) = (made.side(2, 1, 1), Made { factor: 2.0, ..Made::of(Form::Tail) }.side(3, 1, 1));
    b[0].method.as_mut().unwrap().batch = 8;
    let judgement = plain(&a, &b);
    assert_eq!(judgement.cells[0].verdict, Verdict::Incomparable);
    assert!(!judgement.is_comparable() && judgement.cells[0].shifts.is_empty());
    assert!(judgement.doubts.iter().any(|doubt| doubt.text.contains("accesses per sample: A 1; B 8")));
    let forced = compare(&a, &b, &Criteria { is_forced: true, ..Criteria::default() });
    assert_eq!(forced.cells[0].verdict, Verdict::Slower);
    b[0].method.as_mut().unwrap().batch = 1;
    b[0].method.as_mut().unwrap().emulated = true;
    assert_eq!(plain(&a, &b).cells[0].verdict, Verdict::Incomparable);
}

#[test]
fn the_clocks_step_widens_the_margin() {
    let of = |run, ns: u64| latency(Histogram::of_ns((0..1000).map(|_| ns)).unwrap(), run, 0, 10.0);
    let judgement = plain(&[of(1, 100)], &[of(2, 110)]);
    assert_eq!(judgement.cells[0].shifts[0].margin, 0.1);
    assert!(!has_alarm(&judgement), "one step of the clock is no change");
    assert!(has_alarm(&plain(&[of(1, 100)], &[of(2, 130)])));
}

fn counted(run: u64, second: u64, values: &[(&str, f64, &str)]) -> Record {
    let ns = 1_000_000_000;
    Record {
        schema: SCHEMA,
        run: format!("{run:016x}"),
        verb: "stat".to_owned(),
        test: "counters".to_owned(),
        instance: Some(Instance { scope: "port".into(), pmu: Some("dwc_rootport_10".into()), ..Instance::default() }),
        interval: Some(Interval { start_ns: second * ns, end_ns: (second + 1) * ns }),
        metrics: values.iter().map(|(n, v, u)| ((*n).to_owned(), Metric::of(*v, u))).collect(),
        ..Record::default()
    }
}

#[test]
fn intervals_of_counters_are_the_samples() {
    let side = |run: u64, rate: f64| -> Vec<Record> {
        let mut random = Random(run);
        (0..60).map(|s| counted(run, s, &[("rx_bytes", rate * (1.0 + 0.02 * random.normal()), "bytes")])).collect()
    };
    let judgement = plain(&side(1, 3e9), &side(2, 3.3e9));
    let cell = &judgement.cells[0];
    assert_eq!((cell.unit.as_str(), cell.counts, cell.verdict), ("bytes/s", [60, 60], Verdict::More));
    assert!((cell.shifts[0].change.unwrap() - 0.1).abs() < 0.02);
    assert!(!cell.is_worse, "traffic is neither good nor bad");
    assert!(!has_alarm(&plain(&side(1, 3e9), &side(2, 3e9))));
}

/// One record a side, as `stat` without `-I` writes it, of 10 s.
fn once(run: u64, name: &str, value: f64, unit: &str) -> [Record; 1] {
    let interval = Some(Interval { start_ns: 0, end_ns: 10_000_000_000 });
    [Record { interval, ..counted(run, 0, &[(name, value, unit)]) }]
}

fn verdict_of_one(name: &str, a: f64, b: f64, unit: &str) -> Verdict {
    plain(&once(1, name, a, unit), &once(2, name, b, unit)).cells[0].verdict
}

#[test]
fn what_appears_or_falls_to_0_is_found() {
    for (name, a, b, unit, verdict) in [
        ("layer2_errors", 0.0, 100_000.0, "1", Verdict::More),
        ("layer2_errors", 100_000.0, 0.0, "1", Verdict::Less),
        ("rx_bytes_per_s", 5e9, 0.0, "bytes/s", Verdict::Less),
        ("rx_bytes_per_s", 0.0, 5e9, "bytes/s", Verdict::More),
        ("rx_link_share", 0.0, 70.0, "%", Verdict::More),
        ("l0_cycles", 1e9, 0.0, "cycles", Verdict::Less),
        // What an idle link carries now and then, and errors of which there are always a few.
        ("layer2_errors", 0.0, 5.0, "1", Verdict::Unclear),
        ("rx_bytes_per_s", 0.0, 64.0, "bytes/s", Verdict::Unclear),
        ("rx_link_share", 0.0, 1e-6, "%", Verdict::Unclear),
        ("layer2_errors", 0.0, 0.0, "1", Verdict::Same),
        ("layer2_errors", 7.0, 7.0, "1", Verdict::Same),
    ] {
        assert_eq!(verdict_of_one(name, a, b, unit), verdict, "{name} {a} {b}");
    }
    let speed = |run, speed| [Record { test: "readout".to_owned(), ..once(run, "speed", speed, "bytes/s")[0].clone() }];
    assert_eq!(plain(&speed(1, 6e8), &speed(2, 0.0)).cells[0].verdict, Verdict::Slower);
    // Intervals without any difference among them.
    let series = |run, value: f64| -> Vec<Record> {
        (0..5).map(|s| counted(run, s, &[("layer2_errors", value, "1"), ("l0_share", value / 10.0, "%")])).collect()
    };
    let verdicts: Vec<Verdict> = plain(&series(1, 0.0), &series(2, 800.0)).cells.iter().map(|c| c.verdict).collect();
    assert_eq!(verdicts, [Verdict::More, Verdict::More]);
    // Two runs a side that lie far apart prove nothing, and two that agree do.
    let runs = |first: u64, values: [f64; 2], unit| {
        [once(first, "x", values[0], unit), once(first + 1, "x", values[1], unit)].concat()
    };
    for unit in ["1", "%"] {
        let verdict = |a, b| plain(&runs(1, a, unit), &runs(3, b, unit)).cells[0].verdict;
        assert_eq!(verdict([0.0, 0.0], [1000.0, 1000.0]), Verdict::More, "{unit}");
        assert_eq!(verdict([0.0, 3000.0], [0.0, 0.0]), Verdict::Unclear, "{unit}");
    }
    // Whoever says that runs may differ by half, or that such a change does not matter, is believed.
    let judged =
        |options: Criteria| compare(&once(1, "x", 90.0, "1"), &once(2, "x", 900.0, "1"), &options).cells[0].verdict;
    assert_eq!(judged(Criteria::default()), Verdict::More);
    assert_eq!(judged(Criteria { spread: 1.0, ..Criteria::default() }), Verdict::Unclear);
    assert_eq!(judged(Criteria { margin: 12.0, ..Criteria::default() }), Verdict::Unclear);
}

/// How many events a process of this mean rate had: of bursts of up to 10 each.
fn events(random: &mut Random, mean: f64) -> f64 {
    let (bound, mut product, mut bursts) = ((-mean).exp(), random.share(), 0.0);
    while product > bound {
        product *= random.share();
        bursts += (random.share() * 10.0).ceil();
    }
    bursts
}

#[test]
fn rates_of_false_alarms_of_small_counts() {
    assert_eq!(verdict_of_one("layer1_errors", 3.0, 5.0, "1"), Verdict::Unclear);
    for mean in [0.3, 1.0, 3.0, 10.0, 30.0, 100.0] {
        let alarms = |factor: f64, intervals: u64| {
            let side = |seed: u64, mean: f64| -> Vec<Record> {
                let mut random = Random(seed);
                let mean = mean / intervals as f64;
                (0..intervals).map(|s| counted(seed, s, &[("x", events(&mut random, mean), "1")])).collect()
            };
            let pair = |n: u64| plain(&side(2 * n, mean), &side(2 * n + 1, mean * factor));
            (0..PAIRS).filter(|&n| has_alarm(&pair(n))).count() as u64
        };
        for intervals in [1, 2, 10] {
            let (equal, more) = (alarms(1.0, intervals), alarms(30.0, intervals));
            println!("| {mean} bursts, {intervals} intervals | equal: {equal} | 30 times as many: {more} |");
            assert!(equal <= PAIRS / 20, "{mean}, {intervals} intervals: {equal}");
            assert!(mean < 3.0 || more >= PAIRS * 19 / 20, "{mean}, {intervals} intervals: {more}");
        }
    }
}

#[test]
fn sums_of_runs_of_other_lengths_are_compared_as_rates() {
    let of = |run, test: &str, seconds: u64, name: &str, value: f64, unit: &str| {
        let interval = Some(Interval { start_ns: 0, end_ns: seconds * 1_000_000_000 });
        let instance = Some(Instance::default()).filter(|_| test == "counters");
        [Record { test: test.to_owned(), interval, instance, ..counted(run, 0, &[(name, value, unit)]) }]
    };
    for (test, name, unit, rate) in [
        ("counters", "l0_cycles", "cycles", "cycles/s"),
        ("perf-stat", "cycles", "1", "1/s"),
        ("perf-stat", "task-clock", "ns", "ns/s"),
        ("perf-stat", "power/energy-pkg/", "Joules", "Joules/s"),
    ] {
        let side = |run, seconds: u64| of(run, test, seconds, name, 1e9 * seconds as f64, unit);
        let cell = plain(&side(1, 10), &side(2, 20)).cells.remove(0);
        assert_eq!((cell.unit.as_str(), cell.shifts[0].a, cell.shifts[0].change), (rate, 1e9, Some(0.0)), "{name}");
    }
    // An old file does not say how long perf counted: its sum is no rate.
    let mut old = of(1, "perf-stat", 10, "cycles", 1e9, "1");
    old[0].interval = None;
    assert_eq!(plain(&old, &of(2, "perf-stat", 10, "cycles", 1e9, "1")).cells[0].verdict, Verdict::Incomparable);
    // Means stay what they are.
    for (name, unit) in [("rx_bytes_per_tlp", "bytes"), ("dma_read_cycles", "cycles"), ("dma_read_s", "ns")] {
        let side = |run, seconds| of(run, "counters", seconds, name, 256.0, unit);
        let cell = plain(&side(1, 10), &side(2, 20)).cells.remove(0);
        assert_eq!((cell.unit.as_str(), cell.shifts[0].b), (unit, 256.0), "{name}");
    }
}

/// Intervals of these seconds, each with a figure.
fn of_lengths(run: u64, intervals: &[(f64, f64)], name: &str, unit: &str) -> Vec<Record> {
    let mut start_ns = 0;
    let of = |(seconds, value): &(f64, f64)| {
        let end_ns = start_ns + (seconds * 1e9) as u64;
        let interval = Some(Interval { start_ns, end_ns });
        start_ns = end_ns;
        Record { interval, ..counted(run, 0, &[(name, *value, unit)]) }
    };
    intervals.iter().map(of).collect()
}

/// A run mostly ends with a short interval.
#[test]
fn an_interval_counts_by_its_length_as_in_report() {
    let steady = [(10.0, 1e9); 3];
    let stopped = [&steady[..], &[(0.1, 0.0)]].concat();
    let of = |run, intervals: &[(f64, f64)]| of_lengths(run, intervals, "rx_bytes_per_s", "bytes/s");
    let (a, b) = (of(1, &stopped), of(2, &steady));
    let cell = plain(&a, &b).cells.remove(0);
    assert!((cell.shifts[0].a - 1e9 * 30.0 / 30.1).abs() < 1.0, "{}", cell.shifts[0].a);
    assert_eq!((cell.shifts[0].b, cell.counts), (1e9, [4, 3]));
    assert!(
        pciescope_report::print::terminal::render(&a).contains("Rx 996.7 MB/s"),
        "{}",
        pciescope_report::print::terminal::render(&a)
    );
    let options =
        Criteria { limits: vec!["rx_bytes_per_s > +10%".parse().unwrap()], is_strict: true, ..Criteria::default() };
    assert!(compare(&a, &b, &options).rulings[0].exceeded.is_empty());
    // Where no logarithm is possible the same holds.
    let shares = |run, intervals: &[(f64, f64)]| of_lengths(run, intervals, "rx_link_share", "%");
    let idle = shares(3, &[(10.0, 0.0), (10.0, 0.0), (10.0, 0.0), (0.1, 0.0)]);
    let cell = plain(&idle, &shares(4, &[(10.0, 2.0), (10.0, 2.0), (10.0, 2.0), (0.1, 80.0)])).cells.remove(0);
    assert!((cell.shifts[0].b - 68.0 / 30.1).abs() < 1e-9, "{}", cell.shifts[0].b);
}

#[test]
fn a_rate_of_events_does_not_depend_on_the_interval_that_has_them() {
    let of = |run, counts: [f64; 4]| {
        let lengths = [10.0, 10.0, 10.0, 0.1];
        let intervals: Vec<(f64, f64)> = lengths.into_iter().zip(counts).collect();
        of_lengths(run, &intervals, "layer2_errors", "1")
    };
    let none = of(1, [0.0; 4]);
    for count in [1.0, 500.0] {
        let [early, late] = [[count, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, count]].map(|counts| {
            let cell = plain(&none, &of(2, counts)).cells.remove(0);
            assert!((cell.shifts[0].b - count / 30.1).abs() < 1e-9 * count, "{counts:?}: {}", cell.shifts[0].b);
            cell.verdict
        });
        assert_eq!(early, late, "{count}");
    }
}

/// Sockets name their PMUs alike: node and CPU tell them apart.
#[test]
fn sockets_with_pmus_of_one_name_are_compared_each_by_itself() {
    let side = |run, rates: [f64; 2], has_cpu: bool| -> Vec<Record> {
        let mut random = Random(run);
        let all = (0..20).flat_map(|second| [(second, 0), (second, 1)]);
        all.map(|(second, node)| {
            let rate = rates[node as usize] * (1.0 + 0.01 * random.normal());
            let mut record = counted(run, second, &[("read_bytes", rate, "bytes")]);
            record.instance = Some(Instance {
                scope: "channel".into(),
                pmu: Some("uncore_imc_0".into()),
                node: (!has_cpu).then_some(node),
                ..Instance::default()
            });
            record.cpu = has_cpu.then(|| Cpu { cpu: 28 * node, ..Cpu::default() });
            record
        })
        .collect()
    };
    for (has_cpu, names) in [(false, ["node 0", "node 1"]), (true, ["CPU 0", "CPU 28"])] {
        let judgement = plain(&side(1, [10e9, 1e9], has_cpu), &side(2, [1e9, 10e9], has_cpu));
        let found: Vec<(String, Verdict)> =
            judgement.overall().map(|cell| (cell.key.target_name(), cell.verdict)).collect();
        let wanted = names.map(|name| format!("uncore_imc_0 {name}"));
        let wanted: Vec<(String, Verdict)> = wanted.into_iter().zip([Verdict::Less, Verdict::More]).collect();
        assert_eq!(found, wanted);
    }
}

#[test]
fn the_speed_of_a_readout_has_its_good_direction() {
    let row = |run: u64, speed: f64| {
        let metrics = [("speed", speed, "bytes/s"), ("cv", 1.0, "%"), ("repeats", 100.0, "1")];
        Record { test: "readout".to_owned(), interval: None, instance: None, ..counted(run, 0, &metrics) }
    };
    let judgement = plain(&[row(1, 600e6)], &[row(2, 500e6)]);
    assert_eq!((judgement.cells.len(), judgement.cells[0].verdict), (1, Verdict::Slower));
    assert!(judgement.cells[0].is_worse);
    assert_eq!(plain(&[row(1, 600e6)], &[row(2, 700e6)]).cells[0].verdict, Verdict::Faster);
}

/// A counter beside a workload: what it counted is `ratio` of what was moved, another amount in each run.
fn verified(run: u64, ratio: f64, tolerance: Option<f64>) -> [Record; 1] {
    let bytes = 1e9 * (1 + run) as f64;
    let comparison = pciescope_core::Comparison {
        workload: "reading".to_owned(),
        counter: "dwc_rootport_10/rx/".to_owned(),
        workload_bytes: bytes,
        count: bytes / 16.0 * ratio,
        bytes_per_count: 16.0,
        parts: 1.0,
        running: 1.0,
        tolerance_percent: tolerance,
        ..Default::default()
    };
    [Record { schema: SCHEMA, run: format!("{run:016x}"), verb: "verify pcie".to_owned(), ..comparison.to_record() }]
}

#[test]
fn a_verified_counter_is_compared_by_its_ratio() {
    let one = |a: f64, b: f64| plain(&verified(1, a, Some(0.25)), &verified(2, b, Some(0.25))).cells.remove(0);
    let same = one(1.0, 1.002);
    assert_eq!((&*same.key.figure, same.verdict, same.is_worse), ("ratio", Verdict::Same, false));
    assert_eq!(same.key.title(), "verify reading: dwc_rootport_10/rx/ ratio");
    // The tolerance of both runs makes the interval: 0.25 % twice.
    let shift = &same.shifts[0];
    assert!((shift.high.unwrap() - shift.change.unwrap() - 0.0045).abs() < 0.0005, "{shift:?}");
    let less = one(1.0, 0.9);
    assert_eq!((less.verdict, less.is_worse), (Verdict::Less, true), "farther from 1");
    let more = one(0.9, 1.0);
    assert_eq!((more.verdict, more.is_worse), (Verdict::More, false), "nearer to 1");
    let dead = one(1.0, 0.0);
    assert_eq!((dead.verdict, dead.is_worse), (Verdict::Less, true), "a counter that counts nothing");
    assert_eq!(one(0.0, 0.0).verdict, Verdict::Same);
    let limit = |ratio| limited(&verified(1, 1.0, Some(0.25)), &verified(2, ratio, Some(0.25)), "ratio < 0.99");
    assert_eq!((limit(0.985), limit(0.9885), limit(0.995)), ((1, 0, 0), (0, 1, 0), (0, 0, 0)));
    // Without a tolerance it is a figure that stands alone.
    let open = plain(&verified(1, 1.0, None), &verified(2, 1.002, None)).cells.remove(0);
    assert!(open.shifts[0].high.unwrap() > 0.02, "{open:?}");
    let mut nothing = verified(2, 1.0, None);
    nothing[0].metrics.insert("workload_bytes".to_owned(), Metric::of(0.0, "bytes"));
    assert_eq!(plain(&verified(1, 1.0, None), &nothing).not_numbers, 1);
}

fn limited(a: &[Record], b: &[Record], limit: &str) -> (usize, usize, usize) {
    let judgement = compare(a, b, &Criteria { limits: vec![limit.parse().unwrap()], ..Criteria::default() });
    let ruling = &judgement.rulings[0];
    (ruling.exceeded.len(), ruling.unproven.len(), ruling.undecided)
}

#[test]
fn a_limit_is_exceeded_only_beyond_the_interval() {
    let (a, b) = (Made::of(Form::Tail).side(2, 1, 1), Made { factor: 1.05, ..Made::of(Form::Tail) }.side(3, 1, 1));
    assert_eq!(limited(&a, &b, "median > +2%"), (1, 0, 0));
    assert_eq!(limited(&a, &b, "median > +4.5%"), (0, 1, 0), "not proven");
    let p99 = limited(&a, &b, "p99 > +1%");
    assert!(p99 != (0, 0, 0) && limited(&a, &b, "p99.0 > +1%") == p99, "one figure by two spellings: {p99:?}");
    assert_eq!(limited(&a, &b, "median > +10%"), (0, 0, 0));
    assert_eq!(limited(&b, &a, "median < -2%"), (1, 0, 0));
    assert_eq!(limited(&a, &b, "median > 800ns"), (1, 0, 0));
    assert_eq!(limited(&a, &b, "median > 900ns"), (0, 0, 0));
    assert_eq!(limited(&a, &b, "latency.median > +10ns"), (1, 0, 0));
    assert_eq!(limited(&a, &b, "other.median > +10ns"), (0, 0, 0));
    assert_eq!(limited(&a, &b, "p99.9 > +10%"), (0, 0, 1), "2000 samples do not say");
}

#[test]
fn losses_are_held_as_they_stand() {
    let lost = |run, n: f64| {
        let mut record = Made::of(Form::Tail).side(run, 1, 1).remove(0);
        record.metrics.insert("samples_lost".to_owned(), Metric::of(n, "1"));
        [record]
    };
    assert_eq!(limited(&lost(2, 0.0), &lost(3, 1.0), "loss > 0"), (1, 0, 0));
    assert_eq!(limited(&lost(2, 0.0), &lost(3, 0.0), "loss > 0"), (0, 0, 0));
    assert!(!has_alarm(&plain(&lost(2, 0.0), &lost(3, 1.0))), "one loss is no trend");
    assert!(has_alarm(&plain(&lost(2, 0.0), &lost(3, 500.0))));
}

#[test]
fn a_loss_that_is_no_number_decides_nothing() {
    let side = |run, lost: f64| {
        let mut records = Made::of(Form::Tail).side(run, 1, 2);
        for record in &mut records {
            record.metrics.insert("samples_lost".to_owned(), Metric::of(0.0, "1"));
        }
        records[1].metrics.insert("samples_lost".to_owned(), Metric::of(lost, "1"));
        records
    };
    let options = Criteria { limits: vec!["loss > 0".parse().unwrap()], ..Criteria::default() };
    for (lost, is_undecided) in [(0.0, false), (f64::NAN, true), (f64::INFINITY, true), (-1.0, true)] {
        let judgement = compare(&side(2, 0.0), &side(3, lost), &options);
        assert_eq!(judgement.rulings[0].is_undecided(), is_undecided, "{lost}");
        assert!(!judgement.is_failed(), "{lost}");
        assert_eq!(judgement.not_numbers, u64::from(is_undecided), "{lost}");
    }
    let judgement = compare(&side(2, f64::NAN), &side(3, 0.0), &options);
    assert!(!judgement.rulings[0].is_undecided(), "the limit is on B");
}

/// Programs write such a count only where there is one.
#[test]
fn a_loss_that_only_one_side_counted_is_held_against_a_limit() {
    let side = |run, lost: f64| {
        let mut records = Made::of(Form::Tail).side(run, 1, 2);
        if lost > 0.0 {
            records[1].metrics.insert("raw_samples_lost".to_owned(), Metric::of(lost, "1"));
        }
        records
    };
    assert_eq!(limited(&side(2, 0.0), &side(3, 5000.0), "loss > 0"), (1, 0, 0));
    assert_eq!(limited(&side(2, 0.0), &side(3, 5000.0), "raw_samples_lost > 6000"), (0, 0, 0));
    assert_eq!(limited(&side(2, 5000.0), &side(3, 0.0), "loss > 0"), (0, 0, 0), "B lost nothing");
    let judgement = plain(&side(2, 0.0), &side(3, 5000.0));
    let cell = judgement.cells.iter().find(|cell| &*cell.key.figure == "raw_samples_lost").unwrap();
    assert!(cell.is_worse && judgement.only_b.is_empty());
}

#[test]
fn a_figure_that_only_b_has_is_held_against_limits_on_itself() {
    let made = Made::of(Form::Tail);
    let (a, mut b) = (made.side(2, 1, 1), made.side(3, 1, 2));
    b[1].metrics.insert("raw_samples_lost".to_owned(), Metric::of(7.0, "1"));
    b[1].histograms.insert("latency".to_owned(), made.histogram(&mut Random(9), 2400.0));
    let ruled = |limit: &str| {
        let judgement = compare(&a, &b, &Criteria { limits: vec![limit.parse().unwrap()], ..Criteria::default() });
        let text = render(&judgement, &Names { a: "a".to_owned(), b: "b".to_owned() }, false);
        assert_eq!(judgement.is_failed(), text.contains("EXCEEDED: --fail-if"), "{text}");
        assert_eq!(judgement.is_failed(), text.contains("exceeded: mmio-read"), "{text}");
        (judgement.is_failed(), judgement.rulings[0].only_in_b.len(), judgement.rulings[0].checked)
    };
    assert_eq!(ruled("loss > 0"), (true, 1, 1));
    assert_eq!(ruled("median > 1500ns"), (true, 1, 2));
    assert_eq!(ruled("median > 3000ns"), (false, 0, 2));
    assert_eq!(ruled("median > +50%"), (false, 0, 1), "a change is from A");
    // Beyond the limit as it stands, but not with its interval: some 2400 ns.
    assert_eq!(ruled("median > 2390ns"), (false, 1, 2));
    let strict = Criteria { limits: vec!["median > 2390ns".parse().unwrap()], is_strict: true, ..Criteria::default() };
    assert!(compare(&a, &b, &strict).is_failed());
}

#[test]
fn what_b_did_not_measure_leaves_a_limit_undecided() {
    let made = Made::of(Form::Tail);
    let dead = |run: u64| {
        let mut records = made.side(run, 1, 2);
        records[1].histograms.clear();
        records[1].error =
            Some(pciescope_core::Failure { code: "gone".to_owned(), text: "all-ones".to_owned(), hint: None });
        records
    };
    let missing = |a: &[Record], b: &[Record]| {
        let options = Criteria { limits: vec!["median > +10%".parse().unwrap()], ..Criteria::default() };
        let judgement = compare(a, b, &options);
        assert_eq!(judgement.rulings[0].is_undecided(), !judgement.rulings[0].missing.is_empty());
        judgement.rulings[0].missing.len()
    };
    let a = made.side(2, 1, 2);
    assert_eq!(missing(&a, &dead(3)), 1, "CPU 1 failed");
    assert_eq!(missing(&a, &made.side(3, 1, 1)), 0, "another set of CPUs");
    let mut two = a.clone();
    two[1].target.as_mut().unwrap().offset = Some(64);
    assert_eq!(missing(&two, &made.side(3, 1, 1)), 1, "a register that B did not read at all");
}

#[test]
fn what_is_incomparable_leaves_a_limit_undecided() {
    let made = Made::of(Form::Tail);
    let (a, mut b) = (made.side(2, 1, 1), made.side(3, 1, 1));
    let other = |records: &[Record]| {
        let mut record = records[0].clone();
        record.test = "mmio-write".to_owned();
        record
    };
    let both = [a[0].clone(), other(&a)];
    b.push(other(&b));
    b[0].method.as_mut().unwrap().batch = 8;
    assert_eq!(limited(&both, &b, "median > +10%"), (0, 0, 1));
}

/// A CPU that one of two runs measured is in no group, so the group's sum does not speak for it.
#[test]
fn a_loss_outside_its_group_is_held_by_itself() {
    let lost = |run: u64, cpus: u32, n: f64| {
        let mut records = Made::of(Form::Tail).side(run, 1, cpus);
        records.iter_mut().for_each(|r| drop(r.metrics.insert("samples_lost".to_owned(), Metric::of(0.0, "1"))));
        records.last_mut().unwrap().metrics.insert("samples_lost".to_owned(), Metric::of(n, "1"));
        records
    };
    let a = [lost(2, 3, 0.0), lost(4, 2, 0.0)].concat();
    let b = [lost(3, 3, 9.0), lost(5, 2, 0.0)].concat();
    assert_eq!(limited(&a, &b, "loss > 0"), (1, 0, 0));
}

#[test]
fn odd_records_are_no_trouble() {
    let made = Made::of(Form::Tail);
    let one = |ns: u64| [latency(Histogram::of_ns([ns]).unwrap(), 9, 0, 0.385)];
    let empty = [latency(Histogram::default(), 8, 0, 0.385)];
    assert!(plain(&empty, &made.side(2, 1, 1)).cells.is_empty());
    assert!(plain(&[], &[]).cells.is_empty());
    let lone = plain(&one(5), &one(50));
    assert!(!has_alarm(&lone), "one sample proves nothing: {:?}", lone.cells);
    let zero = plain(&one(0), &one(0));
    assert!(!has_alarm(&zero));
    for values in
        [[f64::NAN, f64::INFINITY], [f64::MAX, f64::MAX], [0.0, -1.0], [0.0, 0.0], [f64::MIN_POSITIVE, f64::MAX]]
    {
        let evil = "\u{1b}[31m</script>\"\u{202e}\n".to_owned() + &"x".repeat(10_000);
        let side =
            |run| [counted(run, 0, &[(&evil, values[0], "bytes")]), counted(run, 1, &[(&evil, values[1], &evil)])];
        let judgement = plain(&side(1), &side(2));
        assert!(!has_alarm(&judgement), "{values:?}");
        let text = render(&judgement, &Names { a: evil.clone(), b: evil.clone() }, true);
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()) && !text.contains('\u{202e}'));
        for line in lines(&judgement).lines() {
            serde_json::from_str::<serde_json::Value>(line).unwrap();
        }
    }
    assert_eq!(plain(&[counted(1, 0, &[("x", f64::NAN, "1")])], &[counted(2, 0, &[])]).not_numbers, 1);
}

#[test]
fn the_same_run_on_both_sides_is_said() {
    let a = Made::of(Form::Tail).side(2, 1, 1);
    let judgement = plain(&a, &a);
    assert!(judgement.doubts.iter().any(|doubt| doubt.code == "same-run"));
    assert_eq!(judgement.cells[0].shifts[0].change, Some(0.0));
}

#[test]
fn the_same_records_give_the_same_text() {
    let (a, b) = (Made::of(Form::Bimodal).side(2, 2, 3), Made::of(Form::Bimodal).side(3, 2, 3));
    assert_eq!(lines(&plain(&a, &b)), lines(&plain(&a, &b)));
}

#[test]
fn names_are_those_that_a_limit_can_have() {
    let a = Made::of(Form::Tail).side(2, 1, 1);
    let known = names(&a, &[counted(1, 0, &[("rx_bytes", 1.0, "bytes")])]);
    let is_known = |text: &str| text.parse::<pciescope_report::compare::Limit>().unwrap().is_known(&known);
    assert!(["p99 > +1%", "latency.p99 > +1%", "rx_bytes > +1%", "p97.5 > +1%"].into_iter().all(is_known), "{known:?}");
    assert!(!["latncy.p99 > +1%", "loss > 0", "speed < -5%"].into_iter().any(is_known));
}

#[test]
fn the_table_is_the_golden_one() {
    let a = Made::of(Form::Tail).side(2, 1, 4);
    let mut b = Made { factor: 1.05, ..Made::of(Form::Tail) }.side(3, 1, 4);
    b.remove(0);
    let options = Criteria { limits: vec!["p99 > +3%".parse().unwrap()], ..Criteria::default() };
    let names = Names { a: "before.jsonl".to_owned(), b: "after.jsonl".to_owned() };
    let got = render(&compare(&a, &b, &options), &names, false);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/records/compare.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &got).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), got);
}
