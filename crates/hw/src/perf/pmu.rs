//! PMUs as sysfs describes them. Reads only.

use std::collections::{BTreeMap, BTreeSet};

use pciescope_core::{Bdf, CpuList};

use super::{Config, Error, Field};
use crate::{Root, pci};

const DEVICES: &str = "/sys/bus/event_source/devices";

/// Who counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum By {
    /// Hardware, read through perf.
    #[default]
    Hardware,
    /// The kernel, in files: a function's account ([`crate::account`]).
    Kernel,
}

/// A performance monitoring unit: one instance, never several under one name. Or what is read like one.
#[derive(Debug, Clone, PartialEq)]
pub struct Pmu {
    /// Its name in sysfs: `dwc_rootport_10`, `ali_drw_21000`.
    pub name: String,
    /// Who counts.
    pub by: By,
    /// The number by which the kernel knows it (`type`), from when it is registered until it goes; then it may be another's. 0 of
    /// a function's account, which has none.
    pub number: u32,
    /// The CPUs on which its events are opened (`cpumask`); empty where it does not say, as with PMUs that count per CPU
    /// and process.
    pub cpus: CpuList,
    /// The cores that it is the PMU of, where it is not that of all: `cpus` beside no `cpumask`, as arm64's cores and the
    /// two kinds of cores of hybrid x86-64 have it.
    pub cores: CpuList,
    /// What kind of hardware it is, in its own word (`identifier`).
    pub identifier: Option<String>,
    /// The parameters of `format/`; those that are not understood are left out.
    pub formats: BTreeMap<String, Field>,
    /// The events of `events/`.
    pub events: BTreeMap<String, Named>,
    /// The PCI function that it counts for (`bdf`), where it says so.
    pub bdf: Option<Bdf>,
    /// The NUMA node it belongs to (`die`), where it says so.
    pub die: Option<u32>,
}

/// An event as `events/` has it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Named {
    /// What it stands for: `eventid=0x21,type=0x0`; `lane=?` is the user must give it.
    pub terms: String,
    /// What one count is in `unit`.
    pub scale: Option<f64>,
    /// The unit of a scaled count.
    pub unit: Option<String>,
    /// Whether the value is a state and not a sum.
    pub is_snapshot: bool,
}

/// The PMUs whose devices are present, each with the inode of its folder. A PMU that went away and came back has a new
/// inode.
pub fn present(root: &Root) -> BTreeSet<(String, u64)> {
    let names = root.names(DEVICES).into_iter().filter(|name| !is_gone(root, name));
    names.filter_map(|name| root.inode(format!("{DEVICES}/{name}")).map(|inode| (name, inode))).collect()
}

/// Whether a PMU's device was removed: our drivers keep a PMU while events of it are open, with an empty `cpumask`.
fn is_gone(root: &Root, name: &str) -> bool {
    root.read(format!("{DEVICES}/{name}/cpumask")).is_ok_and(|mask| mask.trim().is_empty())
}

/// All PMUs, by name. One that is removed while it is read, and one without a number, is left out.
pub fn pmus(root: &Root) -> Vec<Pmu> {
    root.names(DEVICES).iter().filter_map(|name| named(root, name).ok()).collect()
}

/// One PMU.
///
/// # Errors
/// [`Error::NoPmu`].
pub fn named(root: &Root, name: &str) -> Result<Pmu, Error> {
    let no_pmu = || Error::NoPmu(name.to_owned());
    // A name is one part of a path, never a way out of the folder.
    if name.is_empty() || name.contains('/') || name.starts_with('.') || is_gone(root, name) {
        return Err(no_pmu());
    }
    let at = format!("{DEVICES}/{name}");
    let number = root.number(format!("{at}/type")).and_then(|number| u32::try_from(number).ok()).ok_or_else(no_pmu)?;
    let cpus = |file: &str| root.text(format!("{at}/{file}")).and_then(|text| text.parse::<CpuList>().ok());
    let mask = cpus("cpumask");
    let mut formats = BTreeMap::new();
    for parameter in root.names(format!("{at}/format")) {
        if let Some(field) = root.text(format!("{at}/format/{parameter}")).and_then(|text| Field::parse(&text)) {
            formats.insert(parameter, field);
        }
    }
    Ok(Pmu {
        name: name.to_owned(),
        by: By::Hardware,
        number,
        cores: if mask.is_none() { cpus("cpus").unwrap_or_default() } else { CpuList::default() },
        cpus: mask.unwrap_or_default(),
        identifier: root.text(format!("{at}/identifier")),
        formats,
        events: events(root, &at),
        bdf: root.text(format!("{at}/bdf")).and_then(|text| text.parse().ok()),
        // -1 where the firmware does not say.
        die: root.number(format!("{at}/die")).and_then(|node| u32::try_from(node).ok()),
    })
}

/// `events/NAME` with `NAME.scale`, `NAME.unit` and `NAME.snapshot` beside it.
fn events(root: &Root, at: &str) -> BTreeMap<String, Named> {
    let mut all: BTreeMap<String, Named> = BTreeMap::new();
    let files = root.names(format!("{at}/events"));
    let is_extra = |file: &str| [".scale", ".unit", ".snapshot", ".per-pkg"].iter().any(|end| file.ends_with(end));
    for name in files.iter().filter(|file| !is_extra(file)) {
        // Only what is there is opened: a machine may have thousands of events without any of these.
        let text = |extra: &str| {
            let file = format!("{name}{extra}");
            files.binary_search(&file).is_ok().then(|| root.text(format!("{at}/events/{file}"))).flatten()
        };
        let Some(terms) = text("") else { continue };
        let scale = text(".scale").and_then(|text| text.parse().ok()).filter(|scale: &f64| scale.is_finite());
        let is_snapshot = text(".snapshot").is_some_and(|text| text != "0");
        all.insert(name.clone(), Named { terms, scale, unit: text(".unit"), is_snapshot });
    }
    all
}

impl Pmu {
    /// Whether a PMU of this name and number is there, and its device.
    pub fn is_present(&self, root: &Root) -> bool {
        if let (By::Kernel, Some(bdf)) = (self.by, self.bdf) {
            return root.exists(pci::folder(bdf));
        }
        root.number(format!("{DEVICES}/{}/type", self.name)) == Some(u64::from(self.number))
            && !is_gone(root, &self.name)
    }

    /// The inode of its folder, of a function's account that of the function: another one is another PMU.
    pub fn inode(&self, root: &Root) -> Option<u64> {
        if let (By::Kernel, Some(bdf)) = (self.by, self.bdf) {
            return root.inode(pci::folder(bdf));
        }
        root.inode(format!("{DEVICES}/{}", self.name))
    }

    /// The counters that reached their upper end since the PMU exists, so that their counts are "at least" what is
    /// read: event id, lane, and how often. Empty where the PMU has no such file.
    pub fn saturated(&self, root: &Root) -> Vec<(u64, u32, u64)> {
        let text = root.text(format!("{DEVICES}/{}/saturated", self.name)).unwrap_or_default();
        text.lines().filter_map(parse_saturated).collect()
    }

    /// The PCI function that it counts for: as it says itself, else as its name has it (docs/pmu.md).
    pub fn function(&self) -> Option<Bdf> {
        let digits = |prefix: &str| u64::from_str_radix(self.name.strip_prefix(prefix)?, 16).ok();
        let upstream = || {
            let number = digits("dwc_rootport_").or_else(|| digits("dwc_endpoint_"))?;
            let (domain, bus) = (u32::try_from(number >> 16).ok()?, (number >> 8) as u8);
            Some(Bdf { domain, bus, device: (number as u8) >> 3, function: number as u8 & 7 })
        };
        let seed = || {
            let number = digits("pcie_bdf_")?;
            let (domain, bus) = (u32::try_from(number >> 24).ok()?, (number >> 16) as u8);
            Some(Bdf { domain, bus, device: (number >> 8) as u8, function: number as u8 })
        };
        self.bdf.or_else(upstream).or_else(seed)
    }

    /// Why an event must not be opened, where its driver is known to do harm with it. The in-tree driver of root ports
    /// indexes its table of counters by group - 6 without a look at the group (Linux 6.12 to 7.3, docs/spec/rasdes.md):
    /// other groups make it write outside.
    pub fn harm(&self, config: Config) -> Option<&'static str> {
        let is_ours = self.identifier.as_deref().is_some_and(|text| text.starts_with("dwc_rasdes"));
        let is_in_tree = self.name.starts_with("dwc_rootport_") && !is_ours;
        let (kind, group) = (config.0[0] >> 16 & 0xf, config.0[0] >> 8 & 0xff);
        (is_in_tree && kind == 1 && !(6..=7).contains(&group))
            .then_some("the in-tree driver dwc_pcie_pmu has the groups 6 and 7 only, and others corrupt its memory")
    }

    /// Whether an event takes turns with its like on the same hardware: the time-based reports of a RAS D.E.S. PMU, of
    /// which one runs at a time. What does not, such as its event counters, need not wait for those.
    pub fn takes_turns(&self, config: Config) -> bool {
        let time_based = if self.name.starts_with("pcie_bdf_") { 1 } else { 0 };
        let is_rasdes = ["type", "eventid", "lane"].iter().all(|field| self.formats.contains_key(*field));
        is_rasdes && config.0[0] >> 16 & 0xf == time_based
    }

    /// Whether `config` asks a RAS D.E.S. PMU for event counter `event` on `lane`, as docs/pmu.md packs them. An event
    /// that is common to all lanes has lane 0.
    pub fn is_event_counter(&self, config: Config, event: u64, lane: u32) -> bool {
        let counters = if self.name.starts_with("pcie_bdf_") { 2 } else { 1 };
        let word = config.0[0];
        word >> 16 & 0xf == counters && word & 0xffff == event && word >> 20 & 0xff == u64::from(lane)
    }
}

/// A line of `saturated`: `0x201 0 3`.
fn parse_saturated(line: &str) -> Option<(u64, u32, u64)> {
    let mut words = line.split_whitespace();
    let event = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    Some((event, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::Tree;

    /// A tree with one PMU that has all that the module knows of.
    fn tree() -> Tree {
        let tree = Tree::new();
        for (file, text) in [
            ("type", "33\n"),
            ("cpumask", "0,64\n"),
            ("identifier", "dwc_rasdes_r4\n"),
            ("bdf", "0000:00:02.0\n"),
            ("saturated", "0x201 0 3\n0x1 7 1\nnonsense\n"),
            ("format/type", "config:16-19\n"),
            ("format/eventid", "config:0-15\n"),
            ("format/lane", "config:20-27\n"),
            ("format/strange", "config9:1\n"),
            ("events/rx_pcie_tlp_data_payload", "eventid=0x21,type=0x0\n"),
            ("events/rx_pcie_tlp_data_payload.unit", "B\n"),
            ("events/rx_pcie_tlp_data_payload.scale", "1\n"),
            ("events/decode_error", "eventid=0x2,type=0x1,lane=?\n"),
        ] {
            tree.put(format!("{DEVICES}/dwc_rootport_10/{file}"), text);
        }
        tree
    }

    #[test]
    fn reads_what_sysfs_says_of_a_pmu() {
        let root = tree();
        let all = pmus(&root);
        assert_eq!(all.len(), 1);
        let pmu = &all[0];
        assert_eq!((pmu.name.as_str(), pmu.number, pmu.cpus.to_string().as_str()), ("dwc_rootport_10", 33, "0,64"));
        assert_eq!(pmu.identifier.as_deref(), Some("dwc_rasdes_r4"));
        assert_eq!(pmu.bdf.map(|bdf| bdf.to_string()).as_deref(), Some("0000:00:02.0"));
        assert_eq!(pmu.formats.keys().collect::<Vec<_>>(), ["eventid", "lane", "type"]);
        assert_eq!(pmu.events.keys().collect::<Vec<_>>(), ["decode_error", "rx_pcie_tlp_data_payload"]);
        assert_eq!(pmu.saturated(&root), [(0x201, 0, 3), (1, 7, 1)]);
        assert!(pmu.is_present(&root));
        assert!(!Pmu { number: 34, ..pmu.clone() }.is_present(&root));
    }

    #[test]
    fn a_pmu_with_cpus_and_no_mask_is_one_of_cores() {
        let root = tree();
        let put = |name: &str, file: &str, text: &str| root.put(format!("{DEVICES}/{name}/{file}"), text);
        // That of cores, and one beside them that also names its cores (arm_dsu has `associated_cpus`).
        for (name, files) in [("cpu_atom", &["cpus"][..]), ("odd", &["cpus", "cpumask"])] {
            put(name, "type", "10\n");
            files.iter().for_each(|file| put(name, file, "4-7\n"));
        }
        let lists = |name: &str| named(&root, name).map(|pmu| (pmu.cpus.to_string(), pmu.cores.to_string())).unwrap();
        assert_eq!(lists("cpu_atom"), (String::new(), "4-7".to_owned()));
        assert_eq!(lists("odd"), ("4-7".to_owned(), String::new()));
        assert_eq!(lists("dwc_rootport_10"), ("0,64".to_owned(), String::new()));
    }

    #[test]
    fn a_pmu_that_came_back_is_another() {
        let root = tree();
        let pmu = named(&root, "dwc_rootport_10").unwrap();
        let first = pmu.inode(&root);
        let known = present(&root);
        assert_eq!(known, [("dwc_rootport_10".to_owned(), first.unwrap())].into());
        // Other file systems than sysfs give a number out again once its folder is gone.
        let place = root.path(format!("{DEVICES}/dwc_rootport_10"));
        std::fs::rename(&place, root.path("old")).unwrap();
        assert_eq!(pmu.inode(&root), None);
        std::fs::create_dir(&place).unwrap();
        assert!(pmu.inode(&root).is_some_and(|inode| Some(inode) != first));
        assert!(present(&root).is_disjoint(&known));
    }

    #[test]
    fn a_pmu_whose_device_was_removed_is_not_there() {
        let root = tree();
        let pmu = named(&root, "dwc_rootport_10").unwrap();
        let mask = root.path(format!("{DEVICES}/dwc_rootport_10/cpumask"));
        std::fs::write(&mask, "\n").unwrap();
        assert!(!pmu.is_present(&root) && present(&root).is_empty());
        assert!(pmus(&root).is_empty() && named(&root, "dwc_rootport_10").is_err());
        // One of the CPUs has no mask.
        std::fs::remove_file(&mask).unwrap();
        assert!(pmu.is_present(&root) && named(&root, "dwc_rootport_10").is_ok());
    }

    #[test]
    fn events_are_put_into_the_bits_that_format_names() {
        let root = tree();
        let pmu = named(&root, "dwc_rootport_10").unwrap();
        let config = |terms: &str| pmu.event(terms).map(|event| event.config);
        let payload = pmu.event("rx_pcie_tlp_data_payload").unwrap();
        assert_eq!((payload.config, payload.scale), (Config([0x21, 0, 0, 0]), Some(1.0)));
        assert_eq!(payload.unit.as_deref(), Some("B"));
        assert_eq!(payload.to_string(), "dwc_rootport_10/rx_pcie_tlp_data_payload/");
        assert_eq!(config("decode_error,lane=3").unwrap().0[0], 0x31_0002);
        assert_eq!(config("lane=3,decode_error,lane=4").unwrap().0[0], 0x41_0002);
        assert_eq!(config("eventid=0x700,type=1").unwrap().0[0], 0x1_0700);
        assert_eq!(config("config=0x10700,config1=5").unwrap().0, [0x1_0700, 5, 0, 0]);
        assert_eq!(config("eventid=1,type").unwrap().0[0], 0x1_0001);
        let lane = config("decode_error,lane=3").unwrap();
        assert!(
            pmu.is_event_counter(lane, 2, 3) && !pmu.is_event_counter(lane, 2, 4) && !pmu.is_event_counter(lane, 1, 3)
        );
        assert!(!pmu.takes_turns(lane));
        assert!(pmu.takes_turns(config("rx_pcie_tlp_data_payload").unwrap()));
        // Only the driver that has all groups is asked for them.
        assert!(pmu.harm(lane).is_none());
        let in_tree = Pmu { identifier: None, bdf: None, ..pmu.clone() };
        assert!(in_tree.harm(lane).is_some());
        assert!(in_tree.harm(config("eventid=0x700,type=1").unwrap()).is_none());
        assert!(in_tree.harm(payload.config).is_none());
        assert_eq!(in_tree.function(), pmu.bdf);
        let named = |name: &str| Pmu { name: name.to_owned(), ..in_tree.clone() }.function().map(|bdf| bdf.to_string());
        assert_eq!(named("dwc_rootport_13018").as_deref(), Some("0001:30:03.0"));
        assert_eq!(named("pcie_bdf_1b00301").as_deref(), Some("0001:b0:03.1"));
        assert_eq!(named("ali_drw_21000"), None);
        // Time-based reports are no counters.
        assert!(!pmu.is_event_counter(config("rx_pcie_tlp_data_payload").unwrap(), 0x21, 0));
    }

    #[test]
    fn a_refused_event_says_which_part_is_wrong() {
        let root = tree();
        let pmu = named(&root, "dwc_rootport_10").unwrap();
        for (terms, part) in [
            ("decode_error", "lane"),
            ("decode_error,lane=256", "8 bits"),
            ("decode_error,lane=x", "not a number"),
            ("no_such", "no_such"),
            ("", "\"\""),
            ("eventid=1,colour=2", "colour"),
            ("eventid=+1", "not a number"),
        ] {
            let text = pmu.event(terms).unwrap_err().to_string();
            assert!(text.contains(part), "{terms}: {text}");
        }
        for name in ["", "..", "a/b", "dwc_rootport_11"] {
            assert!(named(&root, name).is_err(), "{name:?}");
        }
    }
}
