//! Which PMUs and events are counted: by the catalogue, or as the user names them.

use pciescope_catalogue::{Group, Kind, Metric, What};
use pciescope_core::Cpu;
use pciescope_core::record::Warning;
use pciescope_core::warning;
use pciescope_hw::Root;
use pciescope_hw::perf::{self, By, Pmu};

use super::error::Error;
use super::events::{Named, Place};
use super::machine::{Machine, Origin};
use super::panel::{Counted, Panel};
use super::session::Instrument;

/// What the user asked for.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Ports, devices below them, or PMUs by name or pattern; empty for all.
    pub places: Vec<Place>,
    /// Events as perf writes them, patterns in the PMU's name allowed; empty for what the catalogue says.
    pub events: Vec<Named>,
    /// Metrics, groups of metrics or quantities of the catalogue; empty for the usual ones. [`VECTORS`] stands for each interrupt
    /// vector of functions.
    pub metrics: Vec<String>,
    /// Whose counts.
    pub origin: Origin,
}

/// The word for a separate figure of each interrupt vector: there are as many figures as vectors.
pub const VECTORS: &str = "vectors";

/// What is to be opened, with the panel of each instrument in the same place.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// What to open.
    pub instruments: Vec<Instrument>,
    /// What it means.
    pub panels: Vec<Panel>,
    /// What the user named and the machine does not have now; empty unless [`choose_present`] made the choice.
    pub absent: Vec<Warning>,
}

/// Decides what to count.
///
/// # Errors
/// [`Error`], before anything is opened.
pub fn choose(root: &Root, wanted: &Wanted) -> Result<Choice, Error> {
    Machine::load(root, wanted.origin).choose(wanted)
}

/// Chooses what to count among the places and metrics that are present now. It leaves out absent ones, and names them
/// in [`Choice::absent`].
///
/// # Errors [`Error`], before anything is opened: the first reason, if nothing that the user named is present.
pub fn choose_present(root: &Root, wanted: &Wanted) -> Result<Choice, Error> {
    let machine = Machine::load(root, wanted.origin);
    let (left, mut lacking) = machine.narrow(wanted);
    // An empty list would stand for everything.
    let is_nothing_left = (left.places.is_empty() && !wanted.places.is_empty())
        || (left.metrics.is_empty() && !wanted.metrics.is_empty());
    if is_nothing_left && !lacking.is_empty() {
        return Err(lacking.swap_remove(0));
    }
    Ok(Choice { absent: lacking.iter().map(absence).collect(), ..machine.choose(&left)? })
}

/// What the user named and the machine does not have now, as in [`Choice::absent`]. Opens nothing, and reads no configuration
/// space.
pub fn absent(root: &Root, wanted: &Wanted) -> Vec<Warning> {
    let (_, lacking) = Machine::load(root, wanted.origin).narrow(wanted);
    lacking.iter().map(absence).collect()
}

fn absence(error: &Error) -> Warning {
    let text = pciescope_core::text::chain(error);
    let hint = "the others are counted; this one is added when it appears".to_owned();
    warning::ABSENT.hinted(text, hint)
}

impl Machine {
    /// Decides what to count by the catalogue, or by name where events were named.
    fn choose(&self, wanted: &Wanted) -> Result<Choice, Error> {
        self.check(&wanted.places)?;
        let mut choice =
            if wanted.events.is_empty() { self.choose_by_catalogue(wanted)? } else { self.choose_by_name(wanted)? };
        choice.name_cpus(&self.cpus);
        Ok(choice)
    }

    fn choose_by_catalogue(&self, wanted: &Wanted) -> Result<Choice, Error> {
        let known = self.known(&wanted.places);
        if known.is_empty() {
            return Err(Error::None { unknown: self.pmus.len() });
        }
        if let Some(error) = wanted.metrics.iter().find_map(|name| no_metric(&known, name)) {
            return Err(error);
        }
        let is_chosen = |kind: &Kind, metric: &Metric| match &wanted.metrics[..] {
            [] => is_usual(kind, metric),
            names => names.iter().any(|name| is_named(metric, name)),
        };
        let mut choice = Choice::default();
        for (pmu, kind) in known {
            for cpu in self.counted_on(pmu) {
                let mut instrument = Instrument { pmu: pmu.clone(), cpu, counters: Vec::new() };
                let mut panel = Panel::new(self, pmu, cpu, Some(kind));
                panel.add_metrics(self, &mut instrument, &is_chosen, &wanted.metrics);
                if wanted.metrics.iter().any(|name| name == VECTORS) {
                    panel.add_vectors(&mut instrument);
                }
                if !instrument.counters.is_empty() || !panel.constants.is_empty() {
                    choice.instruments.push(instrument);
                    choice.panels.push(panel);
                }
            }
        }
        Ok(choice)
    }

    fn choose_by_name(&self, wanted: &Wanted) -> Result<Choice, Error> {
        let mut choice = Choice::default();
        for named in &wanted.events {
            let pmus = match &named.pmus {
                Some(pattern) => self.named(pattern)?,
                None => self.with_event(&named.terms)?,
            };
            for pmu in pmus.into_iter().filter(|pmu| self.is_at(pmu, &wanted.places)) {
                let event = pmu.event(&named.terms)?;
                if let Some(why) = pmu.harm(event.config) {
                    return Err(perf::Error::Harmful(event.to_string(), why).into());
                }
                for cpu in self.counted_on(pmu) {
                    let place = choice.instruments.iter().position(|one| one.pmu.name == pmu.name && one.cpu == cpu);
                    let place = place.unwrap_or_else(|| {
                        choice.instruments.push(Instrument { pmu: pmu.clone(), cpu, counters: Vec::new() });
                        choice.panels.push(Panel::new(self, pmu, cpu, None));
                        choice.instruments.len() - 1
                    });
                    let quantities = &mut choice.panels[place].quantities;
                    if quantities.iter().any(|quantity| quantity.name == event.terms) {
                        continue;
                    }
                    let part = choice.instruments[place].place_of(event.clone(), None);
                    quantities.push(Counted {
                        name: event.terms.clone(),
                        unit: event.unit.clone().filter(|_| event.scale.is_some()).unwrap_or_else(|| "1".to_owned()),
                        parts: vec![(part, event.scale.unwrap_or(1.0))],
                        is_state: event.is_snapshot,
                        is_least: pmu.by == By::Kernel,
                    });
                }
            }
        }
        if choice.instruments.is_empty() {
            return Err(Error::None { unknown: self.pmus.len() });
        }
        Ok(choice)
    }

    /// The CPUs on which a PMU is counted: each of its mask is an instance by itself (a package), and without a mask the first
    /// that is online, of the cores that it is the PMU of.
    fn counted_on(&self, pmu: &Pmu) -> Vec<u32> {
        match pmu.cpus.is_empty() {
            true => {
                let is_own = |cpu: &&Cpu| pmu.cores.is_empty() || pmu.cores.contains(cpu.cpu);
                vec![self.cpus.iter().find(is_own).map(|cpu| cpu.cpu).or(pmu.cores.iter().next()).unwrap_or(0)]
            }
            false => pmu.cpus.iter().collect(),
        }
    }

    /// Leaves out places and metrics that are not there, and says why.
    fn narrow(&self, wanted: &Wanted) -> (Wanted, Vec<Error>) {
        let mut left = wanted.clone();
        let mut lacking = Vec::new();
        let mut keep = |refusal: Option<Error>| {
            let is_kept = refusal.is_none();
            lacking.extend(refusal);
            is_kept
        };
        left.places.retain(|place| keep(self.check(std::slice::from_ref(place)).err()));
        // Where no place is left, its metrics are not reported as well.
        if left.places.is_empty() == wanted.places.is_empty() {
            let known = self.known(&left.places);
            left.metrics.retain(|name| keep(no_metric(&known, name)));
        }
        (left, lacking)
    }
}

impl Choice {
    /// The PMUs at these places alone.
    pub fn only(&self, places: &[usize]) -> Self {
        Choice {
            instruments: places.iter().map(|place| self.instruments[*place].clone()).collect(),
            panels: places.iter().map(|place| self.panels[*place].clone()).collect(),
            absent: self.absent.clone(),
        }
    }

    /// Names the CPU of those instances of a PMU that have a node in common: all of them under `numa=off`, and two sockets in
    /// one node. Also of a PMU without a mask of CPUs: each CPU has its own counters, and those of one are read.
    fn name_cpus(&mut self, cpus: &[Cpu]) {
        let keys: Vec<_> =
            self.instruments.iter().zip(&self.panels).map(|(one, panel)| (one.pmu.name.clone(), panel.node)).collect();
        for ((panel, instrument), key) in self.panels.iter_mut().zip(&self.instruments).zip(&keys) {
            let is_per_cpu = instrument.pmu.by == By::Hardware && instrument.pmu.cpus.is_empty();
            if is_per_cpu || keys.iter().filter(|other| *other == key).count() > 1 {
                let known = cpus.iter().find(|cpu| cpu.cpu == instrument.cpu);
                panel.cpu = Some(known.cloned().unwrap_or(Cpu { cpu: instrument.cpu, ..Cpu::default() }));
            }
        }
    }
}

/// Refuses a metric that none of these PMUs has.
fn no_metric(known: &[(&Pmu, &'static Kind)], name: &str) -> Option<Error> {
    let has_vectors = |kind: &Kind| name == VECTORS && kind.what == What::PciFunction;
    let has = |kind: &Kind| {
        has_vectors(kind) || kind.events.contains_key(name) || kind.metrics.iter().any(|metric| is_named(metric, name))
    };
    if known.iter().any(|(_, kind)| has(kind)) {
        return None;
    }
    // Groups and metrics; events are too many to name.
    let metrics = known.iter().flat_map(|(_, kind)| &kind.metrics);
    let mut all: Vec<String> =
        metrics.flat_map(|metric| [metric.group.text().to_owned(), metric.name.clone()]).collect();
    all.sort();
    all.dedup();
    Some(Error::NoMetric { name: name.to_owned(), known: all })
}

/// Whether the user named this metric, or its group.
fn is_named(metric: &Metric, name: &str) -> bool {
    metric.name == name || metric.group.text() == name
}

/// Whether a metric is shown unless others are named: bandwidth and errors, without those that would cost every port a turn
/// (CCIX) or a counter for each lane.
fn is_usual(kind: &Kind, metric: &Metric) -> bool {
    let is_per_lane = |name: &String| kind.events.get(name).is_some_and(|event| event.each.is_some());
    (matches!(metric.group, Group::Bandwidth | Group::Errors) || metric.name == "interrupts_per_s")
        && !metric.name.contains("ccix")
        && !metric.events().iter().any(is_per_lane)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is chosen on a tree of tests/sysfs/pmu.
    fn chosen(tree: &str, wanted: &Wanted) -> Result<Choice, Error> {
        choose(&Root::at(pciescope_support::tree::pmu(tree).path()), wanted)
    }

    /// The events of the first instrument.
    fn events_of(choice: &Choice) -> Vec<String> {
        choice.instruments[0].counters.iter().map(|counter| counter.event.terms.clone()).collect()
    }

    #[test]
    fn a_root_port_has_both_directions_and_its_errors() {
        let choice = chosen("rasdes_pmu", &Wanted::default()).unwrap();
        let events = events_of(&choice);
        for event in ["rx_pcie_tlp_data_payload", "tx_pcie_tlp_data_payload", "lcrc_error", "completion_timeout"] {
            assert!(events.iter().any(|one| one == event), "{event} is missing in {events:?}");
        }
        // None per lane, no state of the link, no CCIX.
        assert!(!events.iter().any(|one| one.contains("lane") || one == "L0" || one.contains("ccix")), "{events:?}");
        assert_eq!(choice.panels[0].scope, "port");
        assert!(choice.panels[0].missing.is_empty(), "{:?}", choice.panels[0].missing);
    }

    #[test]
    fn the_in_tree_driver_is_asked_for_nothing_that_harms_it() {
        for tree in ["dwc_rootport-6.12", "dwc_rootport-7.3"] {
            let choice = chosen(tree, &Wanted::default()).unwrap();
            assert_eq!(events_of(&choice).len(), 2, "{tree}: payload alone: {:?}", events_of(&choice));
            assert!(choice.panels[0].missing.iter().any(|(name, _)| name == "lcrc_error"), "{tree}");
        }
        let named =
            Named { pmus: Some("dwc_rootport_13018".to_owned()), terms: "type=0x1,eventid=0x201,lane=0".to_owned() };
        let wanted = Wanted { events: vec![named], ..Wanted::default() };
        let error = chosen("dwc_rootport-7.3", &wanted).unwrap_err();
        assert!(error.to_string().contains("corrupt"), "{error}");
    }

    #[test]
    fn raw_units_of_the_seed_become_bytes() {
        let choice = chosen("rasdes_pmu-seed", &Wanted::default()).unwrap();
        let rx = choice.panels[0].quantities.iter().find(|quantity| quantity.name == "rx_bytes").unwrap();
        assert_eq!(rx.parts[0].1, 16.0);
        let upstream = chosen("rasdes_pmu", &Wanted::default()).unwrap();
        let rx = upstream.panels[0].quantities.iter().find(|quantity| quantity.name == "rx_bytes").unwrap();
        assert_eq!(rx.parts[0].1, 1.0);
    }

    #[test]
    fn instances_of_a_pmu_without_a_node_are_told_apart_by_their_cpu() {
        // The tree says nothing of CPUs, as `numa=off` says nothing of nodes.
        let choice = chosen("uncore_imc-spr", &Wanted::default()).unwrap();
        let cpus: Vec<_> = choice.panels.iter().map(|panel| panel.cpu.as_ref().map(|cpu| cpu.cpu)).collect();
        assert_eq!(cpus, [Some(0), Some(28)]);
        let mut machine = Machine::load(&Root::at("/no/such/root"), Origin::All);
        machine.cpus = [(0, 0), (28, 1)].map(|(cpu, node)| Cpu { cpu, node: Some(node), ..Cpu::default() }).into();
        let mut by_node = choice;
        for (panel, instrument) in by_node.panels.iter_mut().zip(&by_node.instruments) {
            (panel.cpu, panel.node) = (None, machine.node(&instrument.pmu, instrument.cpu, panel.kind, None));
        }
        let nodes: Vec<_> = by_node.panels.iter().map(|panel| panel.node).collect();
        assert_eq!(nodes, [Some(0), Some(1)]);
        by_node.name_cpus(&machine.cpus);
        assert!(by_node.panels.iter().all(|panel| panel.cpu.is_none()));
        assert!(chosen("ali_drw-7.3", &Wanted::default()).unwrap().panels.iter().all(|panel| panel.cpu.is_none()));
    }

    #[test]
    fn a_pmu_without_a_mask_of_cpus_names_the_one_cpu_that_it_is_counted_on() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path().join("sys/bus/event_source/devices/msr");
        std::fs::create_dir_all(at.join("events")).unwrap();
        std::fs::create_dir_all(at.join("format")).unwrap();
        for (name, text) in [("type", "10\n"), ("events/tsc", "event=0x00\n"), ("format/event", "config:0-63\n")] {
            std::fs::write(at.join(name), text).unwrap();
        }
        let named = Named { pmus: Some("msr".to_owned()), terms: "tsc".to_owned() };
        let wanted = Wanted { events: vec![named], ..Wanted::default() };
        // CPU 0 can be offline.
        for (online, first) in [(&[0, 1][..], 0), (&[2, 3], 2)] {
            let mut machine = Machine::load(&Root::at(root.path()), Origin::All);
            machine.cpus = online.iter().map(|cpu| Cpu { cpu: *cpu, ..Cpu::default() }).collect();
            let choice = machine.choose(&wanted).unwrap();
            assert_eq!(choice.instruments.iter().map(|one| one.cpu).collect::<Vec<_>>(), [first]);
            assert_eq!(choice.panels[0].cpu.as_ref().map(|cpu| cpu.cpu), Some(first));
        }
    }

    #[test]
    fn a_pmu_of_some_cores_is_counted_on_the_first_of_them() {
        let root = tempfile::tempdir().unwrap();
        for (name, cpus) in [("cpu_core", "0-3"), ("cpu_atom", "4-7")] {
            let at = root.path().join("sys/bus/event_source/devices").join(name);
            std::fs::create_dir_all(at.join("events")).unwrap();
            for (file, text) in [("type", "10\n"), ("cpus", cpus), ("events/cycles", "config=0x3c\n")] {
                std::fs::write(at.join(file), text).unwrap();
            }
        }
        let mut machine = Machine::load(&Root::at(root.path()), Origin::All);
        machine.cpus = [0, 5, 6].map(|cpu| Cpu { cpu, ..Cpu::default() }).into();
        let named = |pmus: Option<&str>| Named { pmus: pmus.map(str::to_owned), terms: "cycles".to_owned() };
        let choose = |named| machine.choose(&Wanted { events: vec![named], ..Wanted::default() });
        for (pmu, first) in [("cpu_core", 0), ("cpu_atom", 5)] {
            let choice = choose(named(Some(pmu))).unwrap();
            assert_eq!(choice.instruments.iter().map(|one| one.cpu).collect::<Vec<_>>(), [first]);
        }
        // As with the PMU `cpu`: a bare name is of PCIe or DRAM.
        let error = choose(named(None)).unwrap_err();
        assert!(matches!(&error, Error::NoEvent { of_cores: Some(pmu), .. } if pmu.starts_with("cpu_")), "{error}");
    }

    #[test]
    fn dram_is_read_in_one_group_of_events_per_sub_channel() {
        let choice = chosen("ali_drw-7.3", &Wanted::default()).unwrap();
        let mut events = events_of(&choice);
        events.sort();
        assert_eq!(events, ["cycle", "hif_rd", "hif_rmw", "hif_wr"]);
        assert_eq!(choice.panels[0].scope, "channel");
        let writes = choice.panels[0].quantities.iter().find(|quantity| quantity.name == "write_bytes").unwrap();
        assert_eq!(writes.parts.iter().map(|part| part.1).collect::<Vec<_>>(), [64.0, 64.0]);
    }

    #[test]
    fn what_is_not_there_is_refused_with_what_there_is() {
        let wanted = |metric: &str| Wanted { metrics: vec![metric.to_owned()], ..Wanted::default() };
        let error = chosen("ali_drw-7.3", &wanted("rx_bytes_per_s")).unwrap_err();
        assert!(error.hint().unwrap().contains("read_bytes_per_s"), "{error}");
        let places = |name: &str| Wanted { places: vec![Place::Pmus(name.to_owned())], ..Wanted::default() };
        assert!(matches!(chosen("ali_drw-7.3", &places("ali_drv_*")), Err(Error::NoPmu { .. })));
        assert!(chosen("ali_drw-7.3", &places("ali_drw_*")).is_ok());
        let empty = tempfile::tempdir().unwrap();
        let error = choose(&Root::at(empty.path()), &Wanted::default()).unwrap_err();
        assert!(matches!(error, Error::None { unknown: 0 }) && error.hint().unwrap().contains("rasdes_pmu"), "{error}");
    }

    #[test]
    fn names_that_are_not_there_are_left_out_and_reported() {
        let present = |places: &[&str], metrics: &[&str]| {
            let wanted = Wanted {
                places: places.iter().map(|name| Place::Pmus((*name).to_owned())).collect(),
                metrics: metrics.iter().map(|name| (*name).to_owned()).collect(),
                ..Wanted::default()
            };
            choose_present(&Root::at(pciescope_support::tree::pmu("ali_drw-7.3").path()), &wanted)
        };
        let all = present(&["ali_drw_*"], &[]).unwrap();
        assert!(all.absent.is_empty() && !all.instruments.is_empty());
        let some = present(&["gone_1", "ali_drw_*", "gone_2"], &["rx_bytes_per_s", "read_bytes_per_s"]).unwrap();
        assert_eq!(some.instruments.len(), all.instruments.len());
        let told: Vec<&str> = some.absent.iter().map(|warning| warning.text.as_str()).collect();
        for (told, name) in told.iter().zip(["gone_1", "gone_2", "rx_bytes_per_s"]) {
            assert!(told.contains(name), "{told}");
        }
        assert_eq!(told.len(), 3, "{told:?}");
        // Nothing that was named is there: that is not everything.
        assert!(
            matches!(present(&["gone_1", "gone_2"], &[]), Err(Error::NoPmu { pattern, .. }) if pattern == "gone_1")
        );
        assert!(matches!(present(&[], &["rx_bytes_per_s"]), Err(Error::NoMetric { .. })));
    }
}
