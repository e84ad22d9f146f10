//! Experiments of `tune` on machines whose law is known, from the plan to the record; and the interval that decides them.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use pciescope_bench::tune::score::{ReadoutDevice, SPEED, Samples, Scorer, Timed, Workload, number};
use pciescope_bench::tune::{BlockFigures, Candidate, Random, Sequence, Subject, TuneTask, Wanted, run};
use pciescope_core::outcome::LATENCY;
use pciescope_core::tune::{Effect, Goal, Verdict};
use pciescope_core::{Bdf, Environment, Function, Histogram, MmioPlan, Outcome, TunePlan};
use pciescope_hw::Root;
use pciescope_hw::probe::{Probe, Sampled, Slice, Watch};

/// The weight of the prior, as docs/tune.md has it.
const PRIOR: f64 = 0.1;

/// A machine in numbers: the effect of each candidate, noise, drift, modes.
struct Simulated {
    /// By knob, in logarithms.
    effects: Vec<f64>,
    set: Vec<usize>,
    random: Random,
    noise: f64,
    /// Per block.
    drift: f64,
    /// The distance of two modes, and how likely a block changes between them.
    modes: (f64, f64),
    is_other_mode: bool,
    /// The first block after a change is slower by so much.
    cold: f64,
    /// A setting works only from its second use on.
    is_late: bool,
    uses: usize,
    is_fresh: bool,
    blocks: u64,
    /// New errors of each block, by knob.
    errors_of: Option<usize>,
    errors: u64,
    fails_with: Option<usize>,
    /// Data differ with a knob, and from a block on whatever is set.
    differs_with: Option<(usize, u64)>,
}

impl Simulated {
    fn new(effects: &[f64], seed: u64) -> Simulated {
        Simulated {
            effects: effects.iter().map(|percent| (percent / 100.0f64).ln_1p()).collect(),
            set: Vec::new(),
            random: Random::new(seed),
            noise: 0.01,
            drift: 0.0,
            modes: (0.0, 0.0),
            is_other_mode: false,
            cold: 0.0,
            is_late: false,
            uses: 0,
            is_fresh: false,
            blocks: 0,
            errors_of: None,
            errors: 0,
            fails_with: None,
            differs_with: None,
        }
    }

    /// Tries each knob alone, for two minutes of blocks of 100 ms for each.
    fn run(mut self, seed: u64) -> (Vec<Effect>, Option<Effect>) {
        let knobs = self.effects.len();
        let candidates = (0..knobs)
            .map(|knob| Candidate { wanted: vec![(knob, "x".to_owned())], settings: Vec::new(), group: knob })
            .collect();
        let plan = TunePlan {
            figure: "rate".to_owned(),
            goal: Goal::Max,
            least_percent: 1.0,
            duration_ns: knobs as u64 * 120_000_000_000,
            seed,
            ..TunePlan::default()
        };
        let task = TuneTask {
            plan,
            environment: Environment::default(),
            function: Function::default(),
            label: None,
            backend: "fake".to_owned(),
            knobs: Vec::new(),
            candidates,
        };
        let mut records = Vec::new();
        let (record, _) = run(&mut self, task, &mut records).expect("a sink that takes all");
        assert!(records.len() == 2 && record.error.is_none(), "{:?}", record.error);
        let tune = record.tune.expect("what it found");
        (tune.effects, tune.best)
    }
}

impl Subject for Simulated {
    fn set(&mut self, wanted: &[Wanted]) -> Result<Option<String>, pciescope_hw::Error> {
        let wanted: Vec<usize> = wanted.iter().map(|(knob, _)| *knob).collect();
        self.is_fresh = wanted != self.set;
        self.uses += usize::from(self.is_fresh && !wanted.is_empty());
        self.set = wanted;
        Ok(None)
    }
    fn block(&mut self) -> Result<BlockFigures, String> {
        self.blocks += 1;
        if self.fails_with.is_some_and(|knob| self.set.contains(&knob)) {
            return Err("it hangs".to_owned());
        }
        self.errors += u64::from(self.errors_of.is_some_and(|knob| self.set.contains(&knob)));
        self.is_other_mode ^= self.random.uniform() < self.modes.1;
        let is_acting = !self.is_late || self.uses > 1;
        let effect: f64 = self.set.iter().map(|knob| self.effects[*knob]).sum();
        let log = if is_acting { effect } else { 0.0 }
            + self.noise * self.random.normal()
            + self.drift * self.blocks as f64
            + if self.is_other_mode { self.modes.0 } else { 0.0 }
            - if self.is_fresh { self.cold } else { 0.0 };
        self.is_fresh = false;
        let differing = match self.differs_with {
            Some((knob, others_after)) if self.set.contains(&knob) || self.blocks > others_after => 3,
            _ => 0,
        };
        Ok(BlockFigures { score: log.exp(), prices: vec![("p99", (2.0 * log).exp())], differing })
    }
    fn errors(&mut self) -> BTreeMap<String, u64> {
        let port = ("0000:00:01.0 Rollover".to_owned(), 7);
        BTreeMap::from([port, ("0000:01:00.0 BadTLP".to_owned(), self.errors)])
    }
    fn now_ns(&self) -> u64 {
        self.blocks * 100_000_000
    }
    fn is_stopped(&self) -> bool {
        false
    }
    fn end(&mut self) -> Result<Vec<String>, pciescope_hw::Error> {
        Ok(Vec::new())
    }
}

/// What is wrong: a verdict against the planted effect, or an interval that does not hold it.
fn is_wrong(effect: &Effect, planted: f64) -> bool {
    match effect.verdict {
        Verdict::Helps => planted <= 0.0,
        Verdict::Hurts => planted >= 0.0,
        Verdict::NoDifference => planted.abs() > 1.0,
        Verdict::Undecided => false,
        Verdict::Harmful | Verdict::Refused => true,
    }
}

/// Experiments with these effects in percent: in how many each was found, and in how many something was wrong.
fn many(runs: u64, effects: &[f64], change: impl Fn(&mut Simulated)) -> (Vec<u64>, u64, u64) {
    let (mut found, mut wrong, mut confirmed) = (vec![0; effects.len()], 0, 0);
    for seed in 0..runs {
        let mut machine = Simulated::new(effects, seed * 2 + 1);
        change(&mut machine);
        let (all, best) = machine.run(seed);
        let is_found = |effect: &Effect, planted: f64| match effect.verdict {
            Verdict::Helps => planted > 0.0,
            Verdict::Hurts => planted < 0.0,
            Verdict::NoDifference => planted == 0.0,
            _ => false,
        };
        for ((found, effect), planted) in found.iter_mut().zip(&all).zip(effects) {
            *found += u64::from(is_found(effect, *planted));
        }
        wrong += u64::from(all.iter().zip(effects).any(|(effect, planted)| is_wrong(effect, *planted)));
        let sum = effects.iter().filter(|one| **one > 0.0).sum::<f64>();
        wrong += u64::from(best.as_ref().is_some_and(|best| is_wrong(best, sum)));
        confirmed += u64::from(best.is_some_and(|best| best.verdict == Verdict::Helps));
    }
    println!("{effects:?}: of {runs} found {found:?}, confirmed {confirmed}, wrong {wrong}");
    (found, wrong, confirmed)
}

/// Of 1,000 experiments 1 % are 10; more than 19 come in 0.3 % of cases at a true 1 %.
const RUNS: u64 = 1000;
const MOST_WRONG: u64 = 19;

#[test]
fn three_percent_are_found_beside_what_hurts_and_what_does_nothing() {
    let (found, wrong, confirmed) = many(RUNS, &[3.0, -5.0, 0.0], |machine| machine.drift = 1e-4);
    assert!(
        found.iter().all(|found| *found >= RUNS * 95 / 100) && confirmed >= RUNS * 95 / 100,
        "{found:?} {confirmed}"
    );
    assert!(wrong <= MOST_WRONG, "{wrong} of {RUNS}");
}

#[test]
fn where_nothing_helps_nothing_is_called_helpful() {
    for (name, change) in [
        ("noise", (|_| {}) as fn(&mut Simulated)),
        ("drift", |machine| machine.drift = 2e-3),
        ("two modes", |machine| machine.modes = (0.08, 0.1)),
        ("cold starts", |machine| machine.cold = 0.05),
        ("no noise at all", |machine| machine.noise = 0.0),
    ] {
        let (_, wrong, _) = many(RUNS / 4, &[0.0, 0.0, 0.0, 0.0], change);
        assert!(wrong <= MOST_WRONG / 2, "{name}: {wrong}");
    }
}

#[test]
fn hard_machines_have_right_answers_or_none() {
    for (name, change) in [
        ("drift", (|machine| machine.drift = 2e-3) as fn(&mut Simulated)),
        ("two modes", |machine| machine.modes = (0.08, 0.1)),
        ("cold starts", |machine| machine.cold = 0.05),
        ("works from the second use on", |machine| machine.is_late = true),
    ] {
        let (_, wrong, _) = many(RUNS / 4, &[3.0, 0.0], change);
        assert!(wrong <= MOST_WRONG / 2, "{name}: {wrong}");
    }
}

#[test]
fn small_effects_are_no_difference_or_undecided_and_never_the_other_way() {
    let (_, wrong, _) = many(RUNS / 4, &[0.5, -0.5], |_| {});
    assert!(wrong <= MOST_WRONG / 2, "{wrong}");
    // A mean of little is no proof of little while the noise is large.
    let (_, wrong, _) = many(RUNS / 4, &[1.5, -1.5], |machine| machine.noise = 0.03);
    assert!(wrong <= MOST_WRONG / 2, "{wrong}");
}

#[test]
fn a_setting_with_errors_or_without_figures_is_harmful_whatever_it_gains() {
    let mut machine = Simulated::new(&[20.0, 20.0, 3.0], 5);
    (machine.errors_of, machine.fails_with) = (Some(0), Some(1));
    let (all, best) = machine.run(5);
    let verdicts: Vec<Verdict> = all.iter().map(|effect| effect.verdict).collect();
    assert_eq!(verdicts, [Verdict::Harmful, Verdict::Harmful, Verdict::Helps]);
    assert_eq!((all[0].why.as_deref(), all[0].comparisons), (Some("new errors: 0000:01:00.0 BadTLP 1"), 0), "{all:?}");
    assert!(all[1].why.as_ref().unwrap().contains("it hangs") && all[1].blocks_failed == 2, "{all:?}");
    assert_eq!(best.unwrap().verdict, Verdict::Helps);
}

#[test]
fn a_setting_with_other_data_is_harmful_unless_somebody_wrote_them() {
    for (others_after, verdicts) in
        [(u64::MAX, [Verdict::Harmful, Verdict::Helps]), (0, [Verdict::Helps, Verdict::Helps])]
    {
        let mut machine = Simulated::new(&[20.0, 3.0], 6);
        machine.differs_with = Some((0, others_after));
        let (all, best) = machine.run(6);
        assert_eq!(all.iter().map(|effect| effect.verdict).collect::<Vec<_>>(), verdicts, "{all:?}");
        let why = all[0].why.as_deref();
        assert_eq!(why, (others_after > 0).then_some("new errors: bytes that differ 3"), "{all:?}");
        assert_eq!(best.unwrap().verdict, Verdict::Helps);
    }
    // Where somebody wrote while the setting was in force, a block without it tells.
    let mut machine = Simulated::new(&[0.0], 6);
    machine.differs_with = Some((1, 1));
    assert_eq!(machine.run(6).0[0].verdict, Verdict::NoDifference);
}

struct Unwatched;

impl Watch for Unwatched {
    fn progress(&self, _: u64, _: u64) {}
    fn is_stopped(&self) -> bool {
        false
    }
}

#[test]
fn a_readout_that_finds_wrong_data_has_its_figures_and_says_how_many() {
    let mut node = tempfile::NamedTempFile::new().unwrap();
    node.write_all(&[1; 8192]).unwrap();
    let score = |script: &str| {
        let command = ["sh", "-c", script].map(Into::into).to_vec();
        let device = ReadoutDevice::new(&Root::default(), node.path().to_owned()).unwrap();
        node.as_file().write_all_at(&[2; 5], 4090).unwrap();
        let (name, most_ns) = (SPEED.to_owned(), 10_000_000_000);
        let mut workload = Workload { command, name, readout: Some(device), most_ns, begun: Instant::now() };
        let figures = workload.score(None, &Unwatched);
        node.as_file().write_all_at(&[1; 5], 4090).unwrap();
        figures
    };
    let json = |wrong: u32| {
        let value = |name: &str, value: u32| format!("\"{name}\": {{\"value\": {value}}}");
        let all = [value("speed", 9), value("cpu_per_gb", 4), value("wrong", wrong)].join(", ");
        format!("echo '{{\"metrics\": {{{all}}}}}'")
    };
    let found = score(&format!("{}; exit 1", json(7))).unwrap();
    assert_eq!((found.score, found.prices.as_slice(), found.differing), (9.0, [("cpu", 4.0)].as_slice(), 7));
    // What the readout itself took for right is not what was there.
    assert_eq!(score(&json(0)).unwrap().differing, 5);
    assert!(score("echo no; exit 1").unwrap_err().contains("printed no number"));
}

#[test]
fn the_same_seed_gives_the_same_answer() {
    let run = |seed| Simulated::new(&[3.0, 0.0], 11).run(seed);
    assert_eq!(run(4), run(4));
    assert_ne!(run(4), run(5));
}

fn of(differences: impl IntoIterator<Item = f64>) -> Sequence {
    let mut sequence = Sequence::default();
    differences.into_iter().for_each(|one| sequence.push(one));
    sequence
}

/// The ratio of likelihoods whose bound the interval is, as docs/tune.md has it.
fn evidence(differences: &[f64], mean: f64) -> f64 {
    let n = differences.len() as f64;
    let sum: f64 = differences.iter().map(|one| one - mean).sum();
    let squares: f64 = differences.iter().map(|one| (one - mean).powi(2)).sum();
    let rest = squares - sum * sum / (n + PRIOR);
    (PRIOR / (n + PRIOR)).sqrt() * (squares / rest).powf(n / 2.0)
}

#[test]
fn the_ends_are_where_the_evidence_reaches_its_bound() {
    let mut random = Random::new(3);
    let differences: Vec<f64> = (0..25).map(|_| 0.4 + random.normal()).collect();
    for alpha in [0.05, 0.001] {
        let (low, high) = of(differences.iter().copied()).interval(alpha).unwrap();
        for end in [low, high] {
            assert!((evidence(&differences, end) * alpha - 1.0).abs() < 1e-9, "{end}");
        }
    }
}

#[test]
fn too_few_and_a_run_of_equal_ones_say_nothing() {
    // 2 / 0.01 is between 2 to the power of 7 and of 8.
    assert_eq!(of([0.5; 7]).interval(0.01), None);
    assert_eq!(of([0.5; 8]).interval(0.01), Some((0.5, 0.5)));
}

#[test]
fn the_mean_leaves_it_in_at_most_so_many_sequences_at_any_moment() {
    const RUNS: usize = 4_000;
    for heavy in [false, true] {
        let mut random = Random::new(7);
        let mut left = 0;
        for _ in 0..RUNS {
            let mut sequence = Sequence::default();
            left += usize::from((0..150).any(|_| {
                let mut one = random.normal();
                if heavy && random.uniform() < 0.05 {
                    one *= 20.0;
                }
                sequence.push(one);
                sequence.interval(0.05).is_some_and(|(low, high)| low > 0.0 || high < 0.0)
            }));
        }
        // 5 % of 4,000 are 200, and three standard deviations are 41.
        assert!(left <= 241, "{left}");
    }
}

#[test]
fn the_number_of_a_workload_is_the_only_one_or_the_one_at_its_place() {
    let json = "fio: a note\n{\"jobs\": [{\"read\": {\"iops\": 12.5, \"name\": \"x\"}}]}\n";
    for (text, name, found) in [
        ("rate 17.5 MB/s\n", "rate", Some(17.5)),
        ("17\n", "x", Some(17.0)),
        ("", "x", None),
        ("done\n", "x", None),
        ("1 2\n", "x", None),
        (json, "jobs.0.read.iops", Some(12.5)),
        (&json[12..], "jobs.0.read.iops", Some(12.5)),
        (json, "jobs.1.read.iops", None),
        ("{\"a\": 1}\n{\"a\": 2, \"b\": {\"c\": 3}}\n{\"a\": 4}\n", "a", Some(4.0)),
        ("{\"a\": 1}\n{\"a\": 2, \"b\": {\"c\": 3}}\n{\"a\": 4}\n", "b.c", Some(3.0)),
        ("{\"a\": 1}\n{\"a\"", "a", None),
        (json, "jobs.0.read.name", None),
        ("{\"a\": ", "a", None),
    ] {
        assert_eq!(number(text, name).ok(), found, "{text:?} {name}");
    }
}

/// A machine that stands still for some blocks.
struct StandsStill(u32);

impl Probe for StandsStill {
    fn backend(&self) -> &'static str {
        "test"
    }
    fn bdf(&self) -> Bdf {
        Bdf::default()
    }
    fn mmio(&mut self, _: &MmioPlan, _: &Slice, _: &dyn Watch) -> Result<Sampled, pciescope_hw::Error> {
        let is_still = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        let samples = Histogram::of_ns(if is_still { vec![] } else { vec![700] }).expect("it is a latency");
        let outcome = Outcome { histograms: [(LATENCY.to_owned(), samples)].into(), ..Outcome::default() };
        Ok(Sampled { outcomes: vec![outcome], ..Sampled::default() })
    }
}

#[test]
fn a_block_without_a_sample_is_measured_again() {
    let score = |still: u32| {
        let cpus = "0".parse().unwrap();
        let what = Timed::Reads(MmioPlan { cpus, ..MmioPlan::reads(Bdf::default(), 0, 0, 4) });
        let mut scorer = Samples { probe: &mut StandsStill(still), what, block_ns: 1, begun: Instant::now() };
        scorer.score(None, &Unwatched).map(|figures| figures.score.round())
    };
    assert_eq!((score(0), score(9)), (Ok(700.0), Ok(700.0)));
    assert_eq!(score(10), Err("no sample".to_owned()));
}
