//! The seed's campaign (its tables 7.1 to 7.4) as groups of one run.

use std::collections::BTreeMap;

use pciescope_core::{ReadoutPlan, WaitMode, Work, once};

use super::plan::{Group, Source};

/// What of the campaign can be set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// Samples of the table of boards.
    pub speed_samples: u64,
    /// Samples of the table of sizes.
    pub sizes: Vec<u64>,
    /// Samples of the conversions.
    pub function_samples: u64,
    /// Samples of the table of CPU time.
    pub cpu_samples: Vec<u64>,
    /// Repeats of each.
    pub repeats: u64,
    /// Triggered acquisitions of the table of CPU time; 0 leaves it out.
    pub cycles: u64,
}

impl Default for Sweep {
    /// The seed's figures.
    fn default() -> Self {
        Sweep {
            speed_samples: 30_000_000,
            sizes: vec![300_000, 840_000, 3_000_000],
            function_samples: 3_000_000,
            cpu_samples: vec![300_000, 3_000_000],
            repeats: 30,
            cycles: 100,
        }
    }
}

/// The conversions in the order of the seed's sections, with their decimation factor.
const FUNCTIONS: [(Work, u64); 9] = [
    (Work::Cast, 1),
    (Work::DecimateScale, 1),
    (Work::Decimate, 1),
    (Work::Decimate, 10),
    (Work::Scale, 1),
    (Work::UnsignedF64, 1),
    (Work::SignedF64, 1),
    (Work::UnsignedF32, 1),
    (Work::SignedF32, 1),
];

/// The groups of the campaign. `plan` has what all have in common. Groups of more samples than the smallest device
/// holds are left out; the table of CPU time is for devices that acquire.
pub fn groups(sweep: &Sweep, plan: &ReadoutPlan, devices: &[Source]) -> Vec<Group> {
    let crowd = crowd(devices);
    let mut all = Vec::new();
    let mut add = |kind: &'static str, places: &[usize], change: &dyn Fn(&mut ReadoutPlan)| {
        let mut plan = plan.clone();
        plan.devices = places.iter().map(|place| devices[*place].path.display().to_string()).collect();
        plan.cycles = 0;
        plan.wait = WaitMode::Poll;
        plan.repeats = sweep.repeats;
        plan.functions = vec![Work::Readout.number()];
        (plan.decimation_factor, plan.decimation_offset) = (1, 0);
        change(&mut plan);
        let fits = |place: &usize| devices[*place].about.bytes.is_none_or(|bytes| plan.samples * 2 <= bytes);
        if places.iter().all(fits) {
            all.push(Group { sweep: Some(kind), devices: places.to_vec(), plan });
        }
    };
    for places in crews(devices) {
        add("boards", &places, &|plan| plan.samples = sweep.speed_samples);
    }
    for samples in &sweep.sizes {
        add("size", &crowd, &|plan| plan.samples = *samples);
    }
    for (work, factor) in FUNCTIONS {
        add("function", &crowd, &|plan| {
            plan.samples = sweep.function_samples;
            plan.functions = vec![work.number()];
            plan.decimation_factor = factor;
        });
    }
    if sweep.cycles > 0 && devices.iter().all(|device| device.is_digitizer) {
        let mut crews = vec![crowd[..1].to_vec(), crowd.clone()];
        crews.dedup();
        for work in [Work::Readout, Work::UnsignedF64] {
            for samples in &sweep.cpu_samples {
                for places in &crews {
                    for wait in [WaitMode::Poll, WaitMode::Interrupt] {
                        add("cpu", places, &|plan| {
                            plan.samples = *samples;
                            plan.functions = vec![work.number()];
                            (plan.repeats, plan.cycles, plan.wait) = (1, sweep.cycles, wait);
                        });
                    }
                }
            }
        }
    }
    all
}

/// The kind of board: the first word of its model.
fn kind(source: &Source) -> String {
    source.about.model.as_deref().and_then(|model| model.split_whitespace().next()).unwrap_or_default().to_owned()
}

/// Places by kind: L and L2 are one, as in the seed.
fn by_kind(devices: &[Source]) -> BTreeMap<String, Vec<usize>> {
    let mut kinds: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (place, source) in devices.iter().enumerate() {
        let kind = kind(source);
        let kind = if kind == "SIS8300-L2" { "SIS8300-L".to_owned() } else { kind };
        kinds.entry(kind).or_default().push(place);
    }
    kinds
}

/// The devices that most tables are of: the largest number of one kind.
fn crowd(devices: &[Source]) -> Vec<usize> {
    let kinds = by_kind(devices);
    // The first of those that are equally many.
    kinds.into_values().rev().max_by_key(Vec::len).unwrap_or_default()
}

/// One of each kind alone, all of the most frequent kind, all: as in the seed's first table, each once.
fn crews(devices: &[Source]) -> Vec<Vec<usize>> {
    let crowd = crowd(devices);
    let mut crews: Vec<Vec<usize>> = vec![crowd.iter().copied().take(1).collect()];
    crews.extend(by_kind(devices).into_values().map(|places| places[..1].to_vec()));
    crews.push(crowd);
    crews.push((0..devices.len()).collect());
    once(crews)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pciescope_hw::daq::About;

    fn source(model: &str, is_digitizer: bool) -> Source {
        let about = About { model: Some(model.to_owned()), bytes: Some(1 << 31), ..About::default() };
        Source { path: format!("/dev/{model}").into(), about, is_digitizer, cpus: None, node: None }
    }

    #[test]
    fn the_seeds_crate_gives_the_seeds_groups() {
        let models = ["SIS8300-KU x", "SIS8300-L x", "SIS8300-L2 x", "SIS8300-L x", "SIS8300-L2 x", "SIS8300-L x"];
        let devices: Vec<Source> = models.iter().map(|model| source(model, true)).collect();
        let groups = groups(&Sweep::default(), &ReadoutPlan::default(), &devices);
        let of = |kind| groups.iter().filter(move |group| group.sweep == Some(kind));
        let boards: Vec<Vec<usize>> = of("boards").map(|group| group.devices.clone()).collect();
        assert_eq!(boards, [vec![1], vec![0], vec![1, 2, 3, 4, 5], vec![0, 1, 2, 3, 4, 5]]);
        assert!(of("boards").all(|group| group.plan.samples == 30_000_000 && group.plan.repeats == 30));
        let sizes: Vec<u64> = of("size").map(|group| group.plan.samples).collect();
        assert_eq!(sizes, [300_000, 840_000, 3_000_000]);
        assert!(of("size").all(|group| group.devices.len() == 5 && group.plan.devices.len() == 5));
        let factors: Vec<(u8, u64)> =
            of("function").map(|group| (group.plan.functions[0], group.plan.decimation_factor)).collect();
        assert_eq!(factors, [(4, 1), (1, 1), (2, 1), (2, 10), (3, 1), (5, 1), (6, 1), (7, 1), (8, 1)]);
        // Two works, two sizes, one and five boards, two ways of waiting.
        assert_eq!(of("cpu").count(), 16);
        assert!(of("cpu").all(|group| group.plan.cycles == 100 && group.plan.repeats == 1));
    }

    #[test]
    fn what_does_not_fit_or_does_not_acquire_is_left_out() {
        let mut one = source("file", false);
        one.about.bytes = Some(6_000_000);
        let groups = groups(&Sweep::default(), &ReadoutPlan::default(), &[one]);
        let kinds: Vec<&str> = groups.iter().filter_map(|group| group.sweep).collect();
        assert_eq!(kinds.iter().filter(|kind| **kind == "size").count(), 3);
        assert!(!kinds.contains(&"boards") && !kinds.contains(&"cpu"), "{kinds:?}");
        assert!(groups.iter().all(|group| group.devices == [0]));
    }
}
