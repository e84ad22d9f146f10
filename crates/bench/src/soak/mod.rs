//! A soak: a link is watched, and the errors of its bits are bounded. docs/soak.md.

mod beside;
mod bound;

use pciescope_core::record::Metric;
use pciescope_core::soak::{Detector, LinkEnd, Soak, SoakEnd, TEST};
use pciescope_core::text::span;
use pciescope_core::{Function, Plan, Record, Sink, SoakPlan};
use pciescope_hw::watch::{Exposure, Links, Sample};

pub use self::beside::Beside;
use crate::counters::Host;
use crate::error::Error;
use crate::watch::{Judge, WatchTask, below, run_judged};

/// What is in the names of the ends' figures: the port, and the function below it.
const ENDS: [&str; 2] = ["port", "device"];
/// Errors of an end by AER, in the order of [`pciescope_hw::watch::BIT_ERRORS`].
const OF_AER: [&str; 3] = ["receiver_errors", "bad_tlps", "bad_dllps"];
/// Its figures of the whole link.
const OF_LINK: [&str; 10] = [
    "lane_bits",
    "tlp_payload_bits",
    "clear_lane_bits",
    "intervals",
    "intervals_with_errors",
    "bit_errors",
    "uncounted_ns",
    "bit_error_ratio_below",
    "bit_error_ratio_low",
    "bit_error_ratio_high",
];

/// Its figures, as the record names them.
pub fn figures() -> Vec<String> {
    let of_end = |end| OF_AER.iter().chain(&beside::ERRORS).map(move |name| format!("{end}_{name}"));
    OF_LINK.map(str::to_owned).into_iter().chain(ENDS.into_iter().flat_map(of_end)).collect()
}

/// What a soak is to do.
pub struct SoakTask<'t> {
    /// The machine and the watch.
    pub watch: WatchTask,
    /// The bit error ratio to go below.
    pub below: Option<f64>,
    /// The command that makes the load.
    pub command: Vec<String>,
    /// The port, or the function whose port is not seen; then the function below.
    pub ends: Vec<LinkEnd>,
    /// Whether the counters were shown to count, and how.
    pub proof: (Detector, Option<String>),
    /// What counts beside AER.
    pub beside: Option<Beside>,
    /// What is told of each sample: the record that would end the soak now, and the time in nanoseconds that it still needs for
    /// the bound, if nothing happens.
    pub told: &'t mut dyn FnMut(&Record, Option<f64>),
}

/// Soaks until the bound is reached or out of reach, the time is over, or the host ends it. Gives the record of the end.
///
/// # Errors
/// As for [`crate::watch::run`].
pub fn run(
    links: &mut dyn Links,
    task: SoakTask<'_>,
    host: &mut dyn Host,
    sink: &mut dyn Sink,
) -> Result<Record, Error> {
    let SoakTask { watch, below, command, ends, proof, beside, told } = task;
    let plan = Plan::Soak(SoakPlan { watch: watch.plan.clone(), below, command });
    let is_seen = [0, 1].map(|end| ends.get(end).is_some_and(|end: &LinkEnd| end.blind_by.is_none()));
    let soak = Soak {
        detector: proof.0,
        proof: proof.1,
        ended: SoakEnd::Over,
        uncounted: Vec::new(),
        events: Vec::new(),
        below,
        ends,
    };
    let mut judge = SoakJudge {
        exposure: Exposure::new(soak.ends[0].bdf, is_seen),
        soak,
        duration_ns: watch.plan.duration_ns.map(|ns| ns as f64),
        now_ns: (None, 0),
        beside,
        told,
    };
    run_judged(links, watch, ("soak", plan), host, sink, Some(&mut judge))?;
    Ok(judge.now())
}

struct SoakJudge<'t> {
    exposure: Exposure,
    soak: Soak,
    duration_ns: Option<f64>,
    /// When the first and the last sample were taken.
    now_ns: (Option<u64>, u64),
    beside: Option<Beside>,
    told: &'t mut dyn FnMut(&Record, Option<f64>),
}

impl Judge for SoakJudge<'_> {
    fn look(&mut self, sample: &Sample) -> bool {
        let before = std::mem::take(&mut self.soak.events);
        if let Some(beside) = &mut self.beside {
            beside.read();
            self.soak.events = beside.events();
        }
        self.exposure.next(sample, self.soak.events != before);
        let start = *self.now_ns.0.get_or_insert(sample.at.boot_ns);
        self.now_ns.1 = sample.at.boot_ns - start;
        if self.soak.detector == Detector::Blind {
            self.soak.ended = SoakEnd::Blind;
            return false;
        }
        let mut needed_ns = None;
        if let Some(below) = self.soak.below {
            let bits = bound::upper(self.exposure.intervals[1], bound::ALPHA) / below - self.exposure.clear_bits;
            let rate = self.exposure.bits_per_s;
            if bits < 0.0 {
                self.soak.ended = SoakEnd::Reached;
            } else if rate > 0.0 {
                needed_ns = Some(bits / rate * 1e9);
                let left_ns = self.duration_ns.map(|all| all - self.now_ns.1 as f64);
                if left_ns.is_some_and(|left| needed_ns > Some(left)) {
                    self.soak.ended = SoakEnd::OutOfReach;
                }
            }
        }
        let now = self.now();
        (self.told)(&now, needed_ns);
        self.soak.ended == SoakEnd::Over
    }

    fn record(&mut self) -> Record {
        self.now()
    }
}

impl SoakJudge<'_> {
    /// What can be said now.
    fn now(&self) -> Record {
        let Exposure { bits, clear_bits, intervals: [intervals, hits], errors, uncounted_ns, ends, .. } =
            &self.exposure;
        let mut metrics = self.beside.as_ref().map(Beside::metrics).unwrap_or_default();
        let mut put = |name: String, metric: Metric| drop(metrics.insert(name, metric));
        put("lane_bits".to_owned(), Metric::of(*bits, "bits"));
        put("clear_lane_bits".to_owned(), Metric::of(*clear_bits, "bits"));
        put("intervals".to_owned(), Metric::count(*intervals));
        put("intervals_with_errors".to_owned(), Metric::count(*hits));
        put("bit_errors".to_owned(), Metric::count(self.exposure.all_errors()));
        put("uncounted_ns".to_owned(), Metric::ns(uncounted_ns.values().sum::<u64>() as f64));
        for (end, errors) in ENDS.iter().zip(errors).take(self.soak.ends.len()) {
            for (name, count) in OF_AER.iter().zip(errors) {
                put(format!("{end}_{name}"), Metric::count(*count));
            }
        }
        if *clear_bits > 0.0 && self.soak.detector != Detector::Blind {
            let ratio = |of: f64, bits: f64| Metric::of(of / bits, "1");
            put("bit_error_ratio_below".to_owned(), ratio(bound::upper(*hits, bound::ALPHA), *clear_bits));
            // The two-sided interval spends half on each side.
            put("bit_error_ratio_low".to_owned(), ratio(bound::lower(*hits, bound::ALPHA / 2.0), *bits));
            put("bit_error_ratio_high".to_owned(), ratio(bound::upper(*hits, bound::ALPHA / 2.0), *clear_bits));
        }
        let uncounted = uncounted_ns.iter().map(|(why, ns)| format!("{why}, for {}", span(*ns)));
        let function = ends[0].as_ref().map(|fixed| fixed.function.clone());
        Record {
            test: TEST.to_owned(),
            device: Some(function.unwrap_or(Function { bdf: Some(self.soak.ends[0].bdf), ..Function::default() })),
            instance: ends[1].as_deref().map(below),
            interval: Some(pciescope_core::Interval { start_ns: 0, end_ns: self.now_ns.1 }),
            soak: Some(Box::new(Soak { uncounted: uncounted.collect(), ..self.soak.clone() })),
            metrics,
            ..Record::default()
        }
    }
}
