//! The experiment of `tune`: settings against the present state, in blocks whose order is drawn. docs/tune.md has the method.

pub mod score;
mod sequence;

use std::collections::{BTreeMap, BTreeSet};

use pciescope_core::record::{Failure, Interval, Method, Metric};
use pciescope_core::tune::{Difference, Effect, Goal, Knob, Setting, TEST, Tune, Verdict};
use pciescope_core::{Environment, Function, Identity, Plan, Record, Sink, TunePlan};
use pciescope_hw::probe::fake::mix;

pub use self::sequence::Sequence;
use crate::error::{Error, refusal};
use crate::journal::{Journal, Summary};

/// The share of experiments that may say of any of their settings what is not so.
pub const ALPHA: f64 = 0.01;

/// What a block came to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BlockFigures {
    /// The figure that decides; above 0.
    pub score: f64,
    /// Others, by name; above 0.
    pub prices: Vec<(&'static str, f64)>,
    /// Bytes that were read otherwise than they have to be.
    pub differing: u64,
}

/// A knob by its number, and its value.
pub type Wanted = (usize, String);

/// What is experimented on.
pub trait Subject {
    /// Puts these settings in force, and all other knobs as they were found. Gives why one was refused; then all are as they
    /// were found.
    ///
    /// # Errors
    /// What ends the experiment: a knob that others changed, or that cannot be put back.
    fn set(&mut self, wanted: &[Wanted]) -> Result<Option<String>, pciescope_hw::Error>;
    /// Measures once.
    ///
    /// # Errors
    /// Why there is no figure.
    fn block(&mut self) -> Result<BlockFigures, String>;
    /// Errors so far, by place and name.
    fn errors(&mut self) -> BTreeMap<String, u64>;
    /// The time since the beginning, in nanoseconds.
    fn now_ns(&self) -> u64;
    /// Whether the user wants the end.
    fn is_stopped(&self) -> bool;
    /// Puts everything back, and names what was not.
    ///
    /// # Errors
    /// What the kernel answered.
    fn end(&mut self) -> Result<Vec<String>, pciescope_hw::Error>;
}

/// What is tried against the present state: some settings together, and how to put them in force.
#[derive(Debug, Clone, Default)]
pub struct Candidate {
    /// Knobs by their numbers.
    pub wanted: Vec<Wanted>,
    /// The same in words.
    pub settings: Vec<Setting>,
    /// Knobs with the same number here exclude each other, as CPU and node of the workload do.
    pub group: usize,
}

/// What an experiment is to do.
#[derive(Debug)]
pub struct TuneTask {
    /// As the records have it.
    pub plan: TunePlan,
    /// The machine.
    pub environment: Environment,
    /// The function.
    pub function: Function,
    /// What the user calls the run.
    pub label: Option<String>,
    /// How the figure is measured: the name of a backend, or `workload`.
    pub backend: String,
    /// The knobs as they were found.
    pub knobs: Vec<Knob>,
    /// What is tried.
    pub candidates: Vec<Candidate>,
}

/// Writes the knobs alone.
///
/// # Errors
/// [`Error::Sink`].
pub fn list(task: TuneTask, sink: &mut dyn Sink) -> Result<(), Error> {
    let (mut journal, record) = begin(&task, sink)?;
    journal.put(Record { tune: Some(Box::new(Tune { knobs: task.knobs, ..Tune::default() })), ..record })?;
    journal.finish().map(drop)
}

/// The first record is written; the second is begun.
fn begin<'s>(task: &TuneTask, sink: &'s mut dyn Sink) -> Result<(Journal<'s>, Record), Error> {
    let mut journal = Journal::new(Identity::new("tune", task.label.clone()), sink);
    journal.put(Record::first(task.environment.clone(), Plan::Tune(task.plan.clone()), Vec::new()))?;
    let (backend, emulated) = (task.backend.clone(), task.function.emulated.is_some());
    let method = Some(Method { backend, emulated, ..Method::default() });
    let device = Some(task.function.clone());
    Ok((journal, Record { test: TEST.to_owned(), device, method, ..Record::default() }))
}

/// Runs the experiment, puts everything back, and writes the record. Gives what it wrote.
///
/// # Errors
/// [`Error::Sink`]; [`Error::Probe`] with why not everything was put back. What ended it early is in the record.
pub fn run(subject: &mut dyn Subject, task: TuneTask, sink: &mut dyn Sink) -> Result<(Record, Summary), Error> {
    let (mut journal, record) = begin(&task, sink)?;
    let mut experiment = TuneExperiment::new(subject, &task.plan, task.candidates);
    let ended = experiment.all();
    let (mut tune, blocks) = (Tune { knobs: task.knobs, ..Tune::default() }, experiment.blocks);
    let end_ns = experiment.subject.now_ns();
    (tune.effects, tune.best) = experiment.effects();
    let restored = subject.end();
    let error = match (ended, &restored) {
        (Err(failure), _) => Some(failure),
        (_, Err(error)) => Some(refusal(error)),
        _ => None,
    };
    tune.notes = restored.as_ref().map(Clone::clone).unwrap_or_default();
    let failed = tune.effects.iter().chain(&tune.best).map(|effect| effect.blocks_failed).sum();
    let metrics = [
        ("blocks", blocks),
        ("blocks_failed", failed),
        ("settings_that_help", count(&tune, Verdict::Helps)),
        ("settings_that_hurt", count(&tune, Verdict::Hurts)),
        ("settings_undecided", count(&tune, Verdict::Undecided)),
    ];
    let record = Record {
        interval: Some(Interval { start_ns: 0, end_ns }),
        tune: Some(Box::new(tune)),
        metrics: metrics.map(|(name, number)| (name.to_owned(), Metric::count(number))).into(),
        error,
        ..record
    };
    journal.put(record.clone())?;
    let summary = journal.finish()?;
    restored.map(|_| (record, summary)).map_err(Error::Probe)
}

fn count(tune: &Tune, verdict: Verdict) -> u64 {
    tune.effects.iter().filter(|effect| effect.verdict == verdict).count() as u64
}

/// Numbers that are drawn, the same of the same seed: splitmix64.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Random {
        Random(mix(seed))
    }
    /// From 0 to below 1.
    pub fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(1);
        (mix(self.0) >> 11) as f64 / (1u64 << 53) as f64
    }
    /// Of the normal distribution with mean 0 and standard deviation 1, by Box and Muller.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// Blocks of the present state that may fail one after the other.
const MOST_FAILED: u64 = 3;
/// Blocks that may fail with a setting, while none does without it.
const MOST_FAILED_WITH: u64 = 2;
/// The errors that a figure itself tells.
const DIFFERING: &str = "bytes that differ";

/// A candidate while it is tried.
#[derive(Default)]
struct Arm {
    candidate: Candidate,
    sequence: Sequence,
    prices: BTreeMap<&'static str, Sequence>,
    failed: u64,
    errors: u64,
    verdict: Option<Verdict>,
    why: Option<String>,
}

struct TuneExperiment<'e> {
    subject: &'e mut dyn Subject,
    plan: &'e TunePlan,
    /// The least difference of logarithms that matters.
    least: f64,
    /// The share of errors for each candidate.
    alpha: f64,
    random: Random,
    arms: Vec<Arm>,
    best: Option<Arm>,
    blocks: u64,
    /// Kinds of errors, and blocks without a figure, in the present state.
    own_errors: BTreeSet<String>,
    own_failed: u64,
    failed_in_a_row: u64,
    /// The time that the last comparison took.
    last_ns: u64,
}

impl<'e> TuneExperiment<'e> {
    fn new(subject: &'e mut dyn Subject, plan: &'e TunePlan, candidates: Vec<Candidate>) -> Self {
        // By Bonferroni; the best combination is one more.
        let alpha = ALPHA / (candidates.len() + 1) as f64;
        TuneExperiment {
            subject,
            plan,
            least: (plan.least_percent / 100.0).ln_1p(),
            alpha,
            random: Random::new(plan.seed),
            arms: candidates.into_iter().map(|candidate| Arm { candidate, ..Arm::default() }).collect(),
            best: None,
            blocks: 0,
            own_errors: BTreeSet::new(),
            own_failed: 0,
            failed_in_a_row: 0,
            last_ns: 0,
        }
    }

    /// Tries all, then the best together.
    fn all(&mut self) -> Result<(), Failure> {
        // What is left for the best together: its share, and not more than a quarter.
        let share = (1.0 / (self.arms.len() + 1) as f64).min(0.25);
        let first_ns = (self.plan.duration_ns as f64 * (1.0 - share)) as u64;
        let ended = self.rounds(first_ns);
        for arm in 0..self.arms.len() {
            let verdict = self.arms[arm].verdict.or_else(|| self.judged(&self.arms[arm], true));
            self.arms[arm].verdict = Some(verdict.unwrap_or(Verdict::Undecided));
        }
        ended?;
        let Some(mut best) = self.best_together() else { return Ok(()) };
        let mut ended = Ok(());
        while ended.is_ok() && best.verdict.is_none() && self.has_time(self.plan.duration_ns) {
            ended = self.compare(&mut best);
        }
        best.verdict = Some(best.verdict.or_else(|| self.judged(&best, true)).unwrap_or(Verdict::Undecided));
        self.best = Some(best);
        ended
    }

    /// Each candidate once a round, in an order that is drawn, until all are decided.
    fn rounds(&mut self, until_ns: u64) -> Result<(), Failure> {
        loop {
            let mut open: Vec<usize> = (0..self.arms.len()).filter(|arm| self.arms[*arm].verdict.is_none()).collect();
            if open.is_empty() {
                return Ok(());
            }
            while !open.is_empty() {
                if !self.has_time(until_ns) {
                    return self.stopped();
                }
                let place = (self.random.uniform() * open.len() as f64) as usize;
                let number = open.swap_remove(place);
                let mut arm = std::mem::take(&mut self.arms[number]);
                let ended = self.compare(&mut arm);
                self.arms[number] = arm;
                ended?;
            }
        }
    }

    fn has_time(&self, until_ns: u64) -> bool {
        !self.subject.is_stopped() && self.subject.now_ns() + self.last_ns <= until_ns
    }

    fn stopped(&self) -> Result<(), Failure> {
        match self.subject.is_stopped() {
            true => Err(Failure::interrupted("the experiment was ended by the user")),
            false => Ok(()),
        }
    }

    /// One comparison: a block that does not count, then four that do, in the order ABBA or BAAB as a coin says. So a drift
    /// that is a straight line cancels, and without an effect the sign of the difference is the coin's.
    fn compare(&mut self, arm: &mut Arm) -> Result<(), Failure> {
        let begun = self.subject.now_ns();
        let first = self.random.uniform() < 0.5;
        let mut sums: BTreeMap<&'static str, f64> = BTreeMap::new();
        let mut log = 0.0;
        for (place, with) in [first, first, !first, !first, first].into_iter().enumerate() {
            let Some(figures) = self.block(arm, with)? else { return self.stopped() };
            if place > 0 {
                let sign = if with { 0.5 } else { -0.5 };
                log += sign * figures.score.ln();
                for (name, value) in figures.prices {
                    *sums.entry(name).or_default() += sign * value.ln();
                }
            }
        }
        self.last_ns = self.subject.now_ns() - begun;
        arm.sequence.push(log);
        for (name, log) in sums.into_iter().filter(|(_, log)| log.is_finite()) {
            arm.prices.entry(name).or_default().push(log);
        }
        arm.verdict = self.judged(arm, false);
        Ok(())
    }

    /// Measures once, as it is set now, with the errors that came meanwhile.
    fn measure(&mut self) -> (Result<BlockFigures, String>, BTreeMap<String, u64>) {
        let before = self.subject.errors();
        let figures = self.subject.block().and_then(|figures| match figures.score > 0.0 && figures.score.is_finite() {
            true => Ok(figures),
            false => Err(format!("its figure {} is not above 0", figures.score)),
        });
        self.blocks += 1;
        let mut errors = self.subject.errors();
        errors.extend(figures.iter().map(|figures| (DIFFERING.to_owned(), figures.differing)));
        errors.iter_mut().for_each(|(name, count)| *count = count.saturating_sub(*before.get(name).unwrap_or(&0)));
        errors.retain(|_, count| *count > 0);
        (figures, errors)
    }

    /// One block; `None` where it gave no figure, or the candidate is done for.
    fn block(&mut self, arm: &mut Arm, with: bool) -> Result<Option<BlockFigures>, Failure> {
        let fatal = |error: pciescope_hw::Error| refusal(&error);
        let wanted: &[Wanted] = if with { &arm.candidate.wanted } else { &[] };
        if let Some(why) = self.subject.set(wanted).map_err(fatal)? {
            (arm.verdict, arm.why) = (Some(Verdict::Refused), Some(why));
            return Ok(None);
        }
        let (figures, mut errors) = self.measure();
        if self.subject.is_stopped() {
            return Ok(None);
        }
        if !with {
            self.own_errors.extend(errors.into_keys());
            self.failed_in_a_row = if figures.is_ok() { 0 } else { self.failed_in_a_row + 1 };
            self.own_failed += u64::from(figures.is_err());
            return match figures {
                Err(why) if self.failed_in_a_row >= MOST_FAILED => {
                    let text = format!("{MOST_FAILED} blocks in a row gave no figure with everything as it was: {why}");
                    Err(Failure::refused(text, Some("run the workload alone: it prints one number".to_owned())))
                }
                other => Ok(other.ok()),
            };
        }
        arm.failed += u64::from(figures.is_err());
        if !errors.is_empty() || figures.is_err() {
            self.subject.set(&[]).map_err(fatal)?;
        }
        if errors.contains_key(DIFFERING) && !self.own_errors.contains(DIFFERING) {
            // What is read otherwise without the setting too was written by somebody meanwhile.
            let (_, own) = self.measure();
            self.own_errors.extend(own.into_keys());
        }
        arm.errors += errors.values().sum::<u64>();
        errors.retain(|name, _| !self.own_errors.contains(name));
        let harm = match &figures {
            _ if !errors.is_empty() => {
                let all: Vec<String> = errors.iter().map(|(name, count)| format!("{name} {count}")).collect();
                Some(format!("new errors: {}", all.join(", ")))
            }
            Err(why) if arm.failed >= MOST_FAILED_WITH && self.own_failed == 0 => Some(format!("no figure: {why}")),
            _ => None,
        };
        if harm.is_some() {
            (arm.verdict, arm.why) = (Some(Verdict::Harmful), harm);
            return Ok(None);
        }
        Ok(figures.ok())
    }

    /// What is certain; at the `end` of the time also what is not as exact as it might be.
    fn judged(&self, arm: &Arm, end: bool) -> Option<Verdict> {
        if arm.verdict.is_some() {
            return arm.verdict;
        }
        let (low, high) = arm.sequence.interval(self.alpha)?;
        let is_exact = (high - low) / 2.0 <= self.least.max(arm.sequence.mean.abs() / 3.0);
        let is_better = (self.plan.goal == Goal::Max) == (arm.sequence.mean > 0.0);
        match () {
            () if low >= -self.least && high <= self.least => Some(Verdict::NoDifference),
            () if (low > 0.0 || high < 0.0) && (end || is_exact) => {
                Some(if is_better { Verdict::Helps } else { Verdict::Hurts })
            }
            () => None,
        }
    }

    /// Of each group the candidate that helps most.
    fn best_together(&self) -> Option<Arm> {
        let gain = |arm: &Arm| arm.sequence.mean * if self.plan.goal == Goal::Max { 1.0 } else { -1.0 };
        let mut helping: Vec<&Arm> = self.arms.iter().filter(|arm| arm.verdict == Some(Verdict::Helps)).collect();
        helping.sort_by(|one, other| gain(other).total_cmp(&gain(one)));
        let mut best = Candidate::default();
        let mut groups = Vec::new();
        for arm in helping {
            if !groups.contains(&arm.candidate.group) {
                groups.push(arm.candidate.group);
                best.wanted.extend(arm.candidate.wanted.iter().cloned());
                best.settings.extend(arm.candidate.settings.iter().cloned());
            }
        }
        // In the order of the table: a scheduler sets the queue's length anew, so that comes after it.
        best.wanted.sort();
        (!best.wanted.is_empty()).then(|| Arm { candidate: best, ..Arm::default() })
    }

    fn effects(&self) -> (Vec<Effect>, Option<Effect>) {
        let effect = |arm: &Arm| Effect {
            settings: arm.candidate.settings.clone(),
            verdict: arm.verdict.unwrap_or(Verdict::Undecided),
            change: difference(&arm.sequence, self.alpha),
            comparisons: arm.sequence.count,
            blocks_failed: arm.failed,
            errors: arm.errors,
            why: arm.why.clone().or_else(|| {
                let doubt = || format!("{} blocks gave no figure in the present state", self.own_failed);
                (self.own_failed > 0).then(doubt)
            }),
            prices: (arm.prices.iter())
                .filter_map(|(name, sequence)| Some(((*name).to_owned(), difference(sequence, ALPHA)?)))
                .collect(),
        };
        (self.arms.iter().map(effect).collect(), self.best.as_ref().map(effect))
    }
}

/// A mean of logarithms and its interval as a change in percent.
fn difference(sequence: &Sequence, alpha: f64) -> Option<Difference> {
    let (low, high) = sequence.interval(alpha)?;
    let percent = |log: f64| log.exp_m1() * 100.0;
    Some(Difference { percent: percent(sequence.mean), low_percent: percent(low), high_percent: percent(high) })
}
