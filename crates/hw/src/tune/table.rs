//! The table of knobs: each row finds a knob on a machine. docs/tune.md has the same table for users.

use std::path::PathBuf;

use pciescope_core::text::chain;
use pciescope_core::tune::Knob;
use pciescope_core::{Bdf, Cpu, CpuList, Function};

use super::ethtool::{ADAPTIVE_RX, COMBINED, EthtoolBlock, MOST_COMBINED, RX_USECS, Words};
use super::place::{AND, EFFECTIVE, NO_LIMIT, SettingPlace, choices};
use super::{Coding, Domain, FoundKnob};
use crate::bind::in_use::{in_use, in_words};
use crate::config::Config;
use crate::express::Express;
use crate::probe::resource::is_locked_down;
use crate::{Root, nodes, pci, placement, topology};

/// The machine while its knobs are looked for.
struct Bench<'m> {
    root: &'m Root,
    bdf: Bdf,
    function: &'m Function,
    config: Config,
    cpus: Vec<Cpu>,
    online: CpuList,
}

type Finder = fn(&Bench<'_>, &str) -> Option<FoundKnob>;

const WRITTEN: &str = "written back";
const POWER: &str = "more power, or a slow exit";
const LOCKED: &str = "kernel lockdown forbids to write registers";
const WAIT: &str = "other users of the disk wait longer";

/// In the order in which settings are put in force together: what begins anew with a setting comes behind it.
///
/// Name, risk, how it is put back, how the parameter of the kernel begins that sets it or `-`, what finds it.
const ROWS: [(&str, &str, &str, &str, Finder); 24] = [
    ("iommu", "identity: the device reaches all memory; the driver goes off and on", WRITTEN, "iommu", iommu),
    ("mps", "all below the root port; the driver goes off and on", WRITTEN, "pci=pcie_bus_", mps),
    ("ext-tags", "a path without 8-bit tags mixes answers up", WRITTEN, "-", ext_tags),
    ("mrrs", "other devices may wait longer behind large reads", WRITTEN, "pci=pcie_bus_", mrrs),
    ("relaxed-ordering", "none: less reordering", WRITTEN, "-", |bench, _| taken_away(bench, 0x0010)),
    ("no-snoop", "none: more snooping", WRITTEN, "-", |bench, _| taken_away(bench, 0x0800)),
    ("aspm-l0s", POWER, WRITTEN, "pcie_aspm", aspm),
    ("aspm-l1", POWER, WRITTEN, "pcie_aspm", aspm),
    ("aspm-l1.1", POWER, WRITTEN, "pcie_aspm", aspm),
    ("aspm-l1.2", POWER, WRITTEN, "pcie_aspm", aspm),
    ("pcipm-l1.1", POWER, WRITTEN, "pcie_aspm", aspm),
    ("pcipm-l1.2", POWER, WRITTEN, "pcie_aspm", aspm),
    ("aspm-policy", "as of aspm-l1; a device whose ASPM is broken hangs", WRITTEN, "pcie_aspm", aspm_policy),
    ("hasd", "none: the port leaves the link's speed as it is", WRITTEN, "-", hasd),
    ("queues", "the interface starts anew, and loses packets", WRITTEN, "-", queues),
    ("irq-cpu", "irqbalance may move it back: then the experiment ends", WRITTEN, "irqaffinity=", irq_cpu),
    ("rx-usecs", "packets wait longer, or interrupts take more CPU time", WRITTEN, "-", rx_usecs),
    ("cpu", "none: of the workload alone", "by its end", "isolcpus=", cpu),
    ("numa", "none: of the workload alone", "by its end", "-", numa),
    ("idle-latency", "more power and heat", "by its end", "-", idle_latency),
    ("governor", "more power and heat", WRITTEN, "cpufreq.default_governor=", governor),
    ("huge-pages", "other programs take more memory, or wait for it", WRITTEN, "transparent_hugepage=", huge_pages),
    ("scheduler", WAIT, WRITTEN, "elevator=", scheduler),
    ("nr_requests", WAIT, WRITTEN, "-", nr_requests),
];

/// The names of all knobs.
pub fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.0)
}

/// The knobs of a function and of the machine around it. Registers are read, nothing is written.
pub fn knobs(root: &Root, bdf: Bdf, function: &Function) -> Vec<FoundKnob> {
    let cpus = topology::cpus(root).unwrap_or_default();
    let online = topology::online(root).unwrap_or_default();
    let bench = Bench { root, bdf, function, config: Config::load(root, bdf), cpus, online };
    let parameters = root.text("/proc/cmdline").unwrap_or_default();
    let found = |(name, risk, put_back, parameter, find): &(&str, &str, &str, &str, Finder)| {
        let mut found = find(&bench, name)?;
        // Words behind `--` are not the kernel's.
        let mut words = parameters.split_whitespace().take_while(|word| *word != "--");
        let by = words.find(|word| *parameter != "-" && word.starts_with(parameter));
        let values: Result<Vec<String>, crate::Error> =
            found.places.iter().map(|place| Ok(found.value(&place.read(root)?))).collect();
        let blocked = found.places.iter().find(|place| !place.is_writable(root)).map(|place| place.path(root));
        let knob = &mut found.knob;
        (knob.name, knob.risk, knob.put_back) = ((*name).into(), (*risk).into(), (*put_back).into());
        knob.set_by = by.map_or_else(|| "as found".to_owned(), |word| format!("kernel parameter {word}"));
        if let (None, Some(path)) = (&knob.refused, blocked) {
            knob.refused = Some(format!("{} cannot be written: run it as root", path.display()));
        }
        match values {
            Ok(mut values) => {
                values.dedup();
                knob.value = knob.value.take().or((!values.is_empty()).then(|| values.join(" and ")));
            }
            Err(error) => drop(knob.refused.get_or_insert_with(|| chain(&error))),
        }
        found.tries.retain(|value| found.knob.value.as_ref() != Some(value));
        Some(found)
    };
    ROWS.iter().filter_map(found).collect()
}

impl FoundKnob {
    /// At some places, with the values that it takes.
    fn at(places: Vec<SettingPlace>, domain: Domain) -> FoundKnob {
        let (range, tries) = match &domain {
            Domain::OneOf(all) => (all.join(", "), all.clone()),
            Domain::Cpus(all) => (format!("CPUs of {all}"), Vec::new()),
            Domain::Within(low, high) => (format!("{low} to {high}"), Vec::new()),
        };
        FoundKnob { knob: Knob { range, ..Knob::default() }, places, domain, tries, ..FoundKnob::default() }
    }

    fn range(mut self, range: impl Into<String>) -> FoundKnob {
        self.knob.range = range.into();
        self
    }

    /// Not changed, unless another reason is known already.
    fn refused(mut self, why: Option<impl Into<String>>) -> FoundKnob {
        self.knob.refused = self.knob.refused.or(why.map(Into::into));
        self
    }

    fn shared(mut self, with: Option<String>) -> FoundKnob {
        self.knob.shared = with;
        self
    }
}

fn one_of<T: ToString>(all: impl IntoIterator<Item = T>) -> Domain {
    Domain::OneOf(all.into_iter().map(|one| one.to_string()).collect())
}

/// Sizes of payloads and read requests, in bytes.
fn sizes_to(most: u16) -> Domain {
    one_of((0..6).map(|code| 128 << code).filter(|bytes| *bytes <= most))
}

fn on_or_off() -> Domain {
    one_of(["on", "off"])
}

/// Bits of Device Control (7.5.3.4), and what the register holds.
fn device_control(bench: &Bench<'_>, mask: u16, coding: Coding, domain: Domain) -> (FoundKnob, u16) {
    let express = Express::of(&bench.config);
    let refused = match &express {
        _ if bench.root.exists(pci::folder(bench.bdf).join("physfn")) => {
            Some("it is that of the physical function".into())
        }
        _ if is_locked_down(bench.root) => Some(LOCKED.into()),
        _ if pci::is_bridge(bench.function.class) => Some("it is a bridge: all behind it would change".into()),
        None => Some(bench.config.limit().unwrap_or_else(|| "it has no PCI Express capability".to_owned())),
        Some(_) => bench.config.silence().map(|why| format!("it does not answer: {why}")),
    };
    let place = |express: &Express<'_>| SettingPlace::Register { bdf: bench.bdf, at: express.at as u16 + 8, mask };
    let permanent = format!("setpci -s {} CAP_EXP+8.w=RAW:{mask:04x}", bench.bdf);
    let found = FoundKnob::at(express.iter().map(place).collect(), domain).refused(refused);
    (FoundKnob { coding, permanent, ..found }, express.map_or(0, |express| express.device_control()))
}

fn mrrs(bench: &Bench<'_>, _: &str) -> Option<FoundKnob> {
    let own = bench.config.mps_bytes().unwrap_or(128);
    // Above its own limit, what comes back may be larger packets than it takes (the kernel's pcie_bus_perf counts on this).
    let above = bench.function.path.iter().filter_map(|bdf| Config::load(bench.root, *bdf).mps_bytes()).max();
    // Linux raises it on no device below these: no_inc_mrrs (drivers/pci/quirks.c, Loongson).
    let root_port = bench.function.path.first().and_then(|bdf| pci::id(bench.root, *bdf, "vendor").ok());
    let (most, why) = match () {
        () if root_port == Some(0x0014) => (bench.config.mrrs_bytes().unwrap_or(128), " (quirk of the root port)"),
        () if above > Some(own) => (own, " (as its payload)"),
        () => (4096, ""),
    };
    Some(device_control(bench, 0x7000, Coding::Size(0x1000), sizes_to(most)).0.range(format!("128 to {most}{why}")))
}

/// Max payload size of all functions below the root port, and of it: what one sends, all on the way have to take.
fn mps(bench: &Bench<'_>, _: &str) -> Option<FoundKnob> {
    const MPS: u16 = 0x00e0;
    let top = bench.function.path.first().unwrap_or(&bench.bdf);
    let is_below = |one: &Function| one.path.first().or(one.bdf.as_ref()) == Some(top);
    let all: Vec<Function> = pci::functions(bench.root).all.into_iter().filter(is_below).collect();
    let (mut most, mut places, mut hidden) = (4096, Vec::new(), None);
    // A virtual function has the size of its physical one.
    let is_virtual = |bdf: &Bdf| bench.root.exists(pci::folder(*bdf).join("physfn"));
    for bdf in all.iter().filter_map(|one| one.bdf).filter(|bdf| !is_virtual(bdf)) {
        let config = Config::load(bench.root, bdf);
        let Some(express) = Express::of(&config) else {
            hidden = Some(format!("{bdf} has no PCI Express capability, or does not show it"));
            continue;
        };
        most = most.min(express.payload_passed().unwrap_or(128));
        places.push(SettingPlace::Register { bdf, at: express.at as u16 + 8, mask: MPS });
    }
    let place = SettingPlace::All(places);
    let why = match place.read(bench.root) {
        _ if bench.function.path.is_empty() => Some("it has no link"),
        _ if most == 128 => Some("its path takes no more than 128"),
        Ok(held) if held.contains(AND) => Some("its path holds several sizes"),
        _ => None,
    };
    let (found, _) = device_control(bench, MPS, Coding::Size(0x20), sizes_to(most));
    let ends: Vec<Function> = all.into_iter().filter(|one| !pci::is_bridge(one.class)).collect();
    let found = found.refused(hidden).refused(why).shared(others(bench, &ends, "below its root port"));
    let permanent =
        "kernel parameter pci=pcie_bus_safe (the most that all take) or pcie_bus_peer2peer (128)".to_owned();
    Some(without_driver(bench, &ends, 0, FoundKnob { places: vec![place], permanent, ..found }))
}

/// What is only taken away: `on` where it was found.
fn taken_away(bench: &Bench<'_>, mask: u16) -> Option<FoundKnob> {
    let (found, control) = device_control(bench, mask, Coding::Bits(mask), on_or_off());
    Some(found.refused((control & mask == 0).then_some("it is off: it is only taken away, and given back")))
}

fn ext_tags(bench: &Bench<'_>, _: &str) -> Option<FoundKnob> {
    const EXTENDED_TAGS: u16 = 0x0100;
    let (found, control) = device_control(bench, EXTENDED_TAGS, Coding::Bits(EXTENDED_TAGS), on_or_off());
    // Who answers has to take 8-bit tags too, which no register of the function tells.
    let is_off = control & EXTENDED_TAGS == 0;
    let found = found.refused(is_off.then_some("it is off, and the path may not take 8-bit tags"));
    Some(without_driver(bench, std::slice::from_ref(bench.function), EXTENDED_TAGS, found))
}

/// Set while no driver has these functions; `own` are its bits of Device Control, if any.
fn without_driver(bench: &Bench<'_>, functions: &[Function], own: u16, found: FoundKnob) -> FoundKnob {
    let uses = functions.iter().map(|one| in_use(bench.root, one)).find(|uses| !uses.is_empty());
    let drivers = functions.iter().filter(|one| one.driver.is_some()).filter_map(|one| one.bdf);
    // A driver that comes again sets these anew: of Device Control read requests, extended tags, no snoop, relaxed ordering.
    let anew = functions.iter().flat_map(|function| {
        let bdf = function.bdf.unwrap_or(bench.bdf);
        let config = Config::load(bench.root, bdf);
        let bench = Bench { root: bench.root, bdf, function, config, cpus: Vec::new(), online: CpuList::default() };
        let control = device_control(&bench, 0x7910 & !own, Coding::Text, Domain::default()).0.places;
        let power = SettingPlace::File(pci::folder(bdf).join("power/control"));
        let queues = ["scheduler", "nr_requests"].map(|name| queue(&bench, name, |_| Domain::default()));
        let queues = queues.into_iter().flatten().flat_map(|(found, _)| found.places);
        queues.chain(affinities(&bench)).chain(control).chain([power]).collect::<Vec<_>>()
    });
    let along = drivers.map(SettingPlace::Driver).chain(anew).collect();
    let all: Vec<Bdf> = functions.iter().filter_map(|one| one.bdf).collect();
    let wrapped = |place| SettingPlace::WithoutDriver { functions: all.clone(), place: Box::new(place) };
    let places = found.places.iter().cloned().map(wrapped).collect();
    let found = found.refused(uses.map(|uses| format!("it needs the driver off: {}", in_words(&uses))));
    FoundKnob { places, along, is_by_name: true, ..found }
}

/// The addresses of other functions among some, which are in such a place.
fn others(bench: &Bench<'_>, all: &[Function], place: &str) -> Option<String> {
    let others = all.iter().filter_map(|one| one.bdf).filter(|bdf| *bdf != bench.bdf);
    let others: Vec<String> = others.map(|bdf| bdf.to_string()).collect();
    (!others.is_empty()).then(|| format!("{} {place}", others.join(", ")))
}

/// The other functions on the same link.
fn siblings(bench: &Bench<'_>) -> Option<String> {
    let is_sibling = |bdf: &Bdf| (bdf.domain, bdf.bus) == (bench.bdf.domain, bench.bdf.bus) && *bdf != bench.bdf;
    let all: Vec<String> =
        pci::addresses(bench.root).iter().filter(|bdf| is_sibling(bdf)).map(Bdf::to_string).collect();
    (!all.is_empty()).then(|| format!("{} on the same link", all.join(", ")))
}

/// Hardware Autonomous Speed Disable of the port above (7.5.3.19, Link Control 2).
fn hasd(bench: &Bench<'_>, _: &str) -> Option<FoundKnob> {
    const HASD: u16 = 0x0020;
    let port = *bench.function.path.last()?;
    let config = Config::load(bench.root, port);
    let express = Express::of(&config).filter(|express| express.link_control_2().is_some())?;
    let place = SettingPlace::Register { bdf: port, at: express.at as u16 + 0x30, mask: HASD };
    let permanent = format!("setpci -s {port} CAP_EXP+30.w=RAW:{HASD:04x}");
    let locked = is_locked_down(bench.root).then_some(LOCKED);
    let found = FoundKnob::at(vec![place], on_or_off()).shared(siblings(bench)).refused(locked);
    Some(FoundKnob { coding: Coding::Bits(HASD), permanent, ..found })
}

/// The kernel's file of a power state of the link: `l1_1_aspm` of `aspm-l1.1`.
fn aspm(bench: &Bench<'_>, name: &str) -> Option<FoundKnob> {
    let folder = pci::folder(bench.bdf).join("link");
    let (kind, state) = name.split_once('-')?;
    let file = format!("{}_{kind}", state.replace('.', "_"));
    // The kernel takes substates away with L1, and L1 back with a substate.
    let (own, along): (Vec<String>, Vec<String>) = bench.root.names(&folder).into_iter().partition(|one| *one == file);
    let places = |files: Vec<String>| files.iter().map(|file| SettingPlace::File(folder.join(file))).collect();
    let found = FoundKnob::at(places(own), on_or_off()).shared(siblings(bench));
    let rule = format!("SUBSYSTEM==\"pci\", KERNEL==\"{}\", ATTR{{link/{file}}}=\"RAW\"", bench.bdf);
    let permanent = format!("udev rule: ACTION==\"add\", {rule}");
    let is_there = !found.places.is_empty();
    is_there.then(|| FoundKnob { along: places(along), coding: Coding::Digit, permanent, ..found })
}

/// A file with choices which the whole machine follows, with what it holds.
fn policy(bench: &Bench<'_>, file: &str, permanent: &str) -> Option<FoundKnob> {
    let all = one_of(choices(&bench.root.text(file)?));
    let found = FoundKnob::at(vec![SettingPlace::File(file.into())], all).shared(machine());
    Some(FoundKnob { permanent: permanent.to_owned(), ..found })
}

fn aspm_policy(bench: &Bench<'_>, _: &str) -> Option<FoundKnob> {
    let found = policy(bench, "/sys/module/pcie_aspm/parameters/policy", "kernel parameter pcie_aspm.policy=VALUE")?;
    // The others switch ASPM on where the firmware left it off, perhaps for a reason.
    Some(FoundKnob { tries: vec!["performance".to_owned()], ..found })
}

fn huge_pages(bench: &Bench<'_>, _: &str) -> Option<FoundKnob> {
    let file = "/sys/kernel/mm/transparent_hugepage/enabled";
    policy(bench, file, "kernel parameter transparent_hugepage=VALUE")
}

/// One CPU of each node, that of the function first.
fn one_of_each_node(bench: &Bench<'_>, among: &CpuList) -> Vec<String> {
    let mut nodes = topology::nodes(&bench.cpus);
    nodes.sort_by_key(|(node, _)| (Some(*node) != bench.function.node, *node));
    nodes
        .iter()
        .filter_map(|(_, cpus)| cpus.iter().find(|cpu| among.contains(*cpu)))
        .map(|cpu| cpu.to_string())
        .collect()
}

/// The affinity of its vectors.
fn affinities(bench: &Bench<'_>) -> Vec<SettingPlace> {
    let irqs = bench.root.names(pci::folder(bench.bdf).join("msi_irqs")).into_iter();
    let files = irqs.map(|irq| PathBuf::from(format!("/proc/irq/{irq}/smp_affinity_list")));
    files.filter(|file| bench.root.exists(file)).map(SettingPlace::File).collect()
}

fn irq_cpu(bench: &Bench<'_>, _: &str) -> Option<FoundKnob> {
    let vector = |place| {
        let SettingPlace::File(file) = &place else { return place };
        let cpu = bench.root.text(file.with_file_name(EFFECTIVE)).unwrap_or_default();
        match place.read(bench.root) {
            Ok(list) if list != cpu && !cpu.is_empty() => SettingPlace::Vector { file: file.clone(), list, cpu },
            _ => place,
        }
    };
    let places: Vec<SettingPlace> = affinities(bench).into_iter().map(vector).collect();
    let (tries, along) =
        (one_of_each_node(bench, &bench.online), places.iter().filter_map(SettingPlace::list).collect());
    let permanent = "a service that writes VALUE to /proc/irq/N/smp_affinity_list, without irqbalance".to_owned();
    let is_there = !places.is_empty();
    let found = FoundKnob::at(places, Domain::Cpus(bench.online.clone()));
    is_there.then_some(FoundKnob { tries, permanent, along, ..found })
}

/// What the drivers of the function's network interfaces have, by interface.
fn ethtool(bench: &Bench<'_>, block: EthtoolBlock) -> Vec<(String, Words)> {
    let names = nodes::names(bench.root, bench.bdf).into_iter();
    names.filter_map(|name| block.get(bench.root, &name).ok().map(|words| (name, words))).collect()
}

fn at_word(all: &[(String, Words)], block: EthtoolBlock, word: usize, domain: Domain) -> FoundKnob {
    let place = |(interface, _): &(String, Words)| SettingPlace::Ethtool { interface: interface.clone(), block, word };
    FoundKnob::at(all.iter().map(place).collect(), domain)
}

/// Why the function may not be disturbed; `None` where it is proven to be free.
fn used(bench: &Bench<'_>) -> Option<String> {
    let reasons = in_use(bench.root, bench.function);
    (!reasons.is_empty()).then(|| in_words(&reasons))
}

fn rx_usecs(bench: &Bench<'_>, _: &str) -> Option<FoundKnob> {
    let all = ethtool(bench, EthtoolBlock::Coalesce);
    let permanent = format!("a service that runs ethtool -C {} rx-usecs VALUE", all.first()?.0);
    let is_adaptive = all.iter().any(|(_, words)| words[ADAPTIVE_RX] != 0);
    let found = at_word(&all, EthtoolBlock::Coalesce, RX_USECS, Domain::Within(0, 1 << 16));
    let found =
        found.range("0 us to what the driver takes").shared(used(bench).map(|why| format!("what is in use: {why}")));
    let found = found.refused(is_adaptive.then_some("the driver adapts it to the traffic (ethtool -c: adaptive-rx)"));
    Some(FoundKnob { tries: vec!["0".to_owned(), "50".to_owned()], permanent, ..found })
}

fn queues(bench: &Bench<'_>, _: &str) -> Option<FoundKnob> {
    let mut all = ethtool(bench, EthtoolBlock::Channels);
    all.retain(|(_, words)| words[MOST_COMBINED] > 0);
    let Some((first, words)) = all.first() else { return queues_of_a_disk(bench) };
    let most = words[MOST_COMBINED];
    let found = at_word(&all, EthtoolBlock::Channels, COMBINED, Domain::Within(1, most.into()));
    let found = found.refused(used(bench).map(|why| format!("it starts the interface anew: {why}")));
    let permanent = format!("a service that runs ethtool -L {first} combined VALUE");
    // Vectors that go and come again have lost their affinity.
    Some(FoundKnob {
        tries: vec!["1".to_owned(), most.to_string()],
        along: affinities(bench),
        permanent,
        is_by_name: true,
        ..found
    })
}

fn queues_of_a_disk(bench: &Bench<'_>) -> Option<FoundKnob> {
    let disks = nodes::names(bench.root, bench.bdf).into_iter();
    let count =
        disks.map(|disk| bench.root.names(format!("/sys/class/block/{disk}/mq")).len()).find(|count| *count > 0)?;
    let driver = bench.function.driver.as_deref().unwrap_or("its driver");
    let why =
        format!("parameters of the module set it for all disks of {driver} when it is loaded: modinfo -p {driver}");
    let mut found =
        FoundKnob::at(Vec::new(), one_of([""; 0])).range(format!("up to {}", bench.online.len())).refused(Some(why));
    found.knob.value = Some(count.to_string());
    Some(found)
}

fn cpu(bench: &Bench<'_>, _: &str) -> Option<FoundKnob> {
    let online = || bench.online.clone();
    let allowed =
        if bench.root.is_live() { placement::allowed(&bench.online).unwrap_or_else(|_| online()) } else { online() };
    let tries = one_of_each_node(bench, &allowed);
    let value = Some(allowed.to_string());
    let mut found = FoundKnob::at(vec![SettingPlace::Workload], Domain::Cpus(allowed));
    found.knob.value = value;
    Some(FoundKnob { tries, permanent: "start the workload by `taskset -c VALUE`".to_owned(), ..found })
}

fn numa(bench: &Bench<'_>, _: &str) -> Option<FoundKnob> {
    let nodes = topology::nodes(&bench.cpus);
    let one = (nodes.len() < 2).then_some("the machine has one node");
    let mut found = FoundKnob::at(vec![SettingPlace::Workload], one_of(nodes.iter().map(|node| node.0))).refused(one);
    found.knob.value = Some("any".to_owned());
    Some(FoundKnob { permanent: "start it by `numactl --cpunodebind=VALUE --membind=VALUE`".to_owned(), ..found })
}

/// What a file of all CPUs changes.
fn machine() -> Option<String> {
    Some("the whole machine".to_owned())
}

fn idle_latency(bench: &Bench<'_>, _: &str) -> Option<FoundKnob> {
    const QOS: &str = "/dev/cpu_dma_latency";
    let found = FoundKnob::at(vec![SettingPlace::Held(QOS.into())], Domain::Within(0, 2_000_000_000)).shared(machine());
    let found = found.range(format!("0 us to {NO_LIMIT}"));
    let permanent = format!("a service that holds {QOS} open with VALUE (tuned: force_latency=VALUE)");
    bench.root.exists(QOS).then_some(FoundKnob { tries: vec!["0".to_owned()], permanent, ..found })
}

fn governor(bench: &Bench<'_>, _: &str) -> Option<FoundKnob> {
    let file = |cpu: u32, name: &str| PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/{name}"));
    let places = |name: &str| -> Vec<SettingPlace> {
        let files = bench.online.iter().map(|cpu| file(cpu, name));
        files.filter(|file| bench.root.exists(file)).map(SettingPlace::File).collect()
    };
    let all = bench.root.text(file(bench.online.iter().next()?, "scaling_available_governors"))?;
    // Without somebody who sets the frequency `userspace` says nothing.
    let all = one_of(choices(&all).into_iter().filter(|one| one != "userspace"));
    let permanent = "kernel parameter cpufreq.default_governor=VALUE".to_owned();
    let found = FoundKnob::at(places("scaling_governor"), all).shared(machine());
    // Some drivers change it along with the governor.
    Some(FoundKnob { along: places("energy_performance_preference"), permanent, ..found })
}

fn iommu(bench: &Bench<'_>, _: &str) -> Option<FoundKnob> {
    let group = bench.function.iommu_group?;
    let folder = PathBuf::from(format!("/sys/kernel/iommu_groups/{group}"));
    let place = Some(SettingPlace::File(folder.join("type"))).filter(|place| place.read(bench.root).is_ok())?;
    let members = bench.root.names(folder.join("devices")).into_iter();
    let members = members.filter_map(|name| pci::function(bench.root, name.parse().ok()?).ok());
    // With bridges the kernel shares a group.
    let members: Vec<Function> = members.filter(|function| !pci::is_bridge(function.class)).collect();
    let removable = |bdf: &Bdf| bench.root.text(pci::folder(*bdf).join("removable"));
    let mut path = bench.function.path.iter().chain([&bench.bdf]);
    let is_untrusted = path.any(|bdf| removable(bdf).as_deref() == Some("removable"));
    let found = FoundKnob::at(vec![place], one_of(["DMA", "DMA-FQ", "identity"]))
        .shared(others(bench, &members, &format!("in IOMMU group {group}")))
        .refused(is_untrusted.then_some("it is at an untrusted port, whose devices the IOMMU has to hold"));
    let permanent = "kernel parameter iommu.passthrough=1 (identity), iommu.strict=0 (DMA-FQ) or 1 (DMA)".to_owned();
    Some(without_driver(bench, &members, 0, FoundKnob { permanent, ..found }))
}

/// A file of the queues of the function's disks, with what it holds on the first of them.
fn queue(bench: &Bench<'_>, file: &str, domain: fn(&str) -> Domain) -> Option<(FoundKnob, Vec<PathBuf>)> {
    let disks = nodes::names(bench.root, bench.bdf).into_iter();
    let queues = disks.map(|disk| PathBuf::from("/sys/class/block").join(disk).join("queue"));
    let queues: Vec<PathBuf> = queues.filter(|queue| bench.root.exists(queue.join(file))).collect();
    let text = bench.root.text(queues.first()?.join(file))?;
    let disk = queues.first()?.parent()?.file_name()?.to_str()?.to_owned();
    let rule = format!("SUBSYSTEM==\"block\", KERNEL==\"{disk}\", ATTR{{queue/{file}}}=\"VALUE\"");
    let permanent = format!("udev rule: ACTION==\"add|change\", {rule}");
    let places = queues.iter().map(|queue| SettingPlace::File(queue.join(file))).collect();
    Some((FoundKnob { permanent, ..FoundKnob::at(places, domain(&text)) }, queues))
}

fn scheduler(bench: &Bench<'_>, name: &str) -> Option<FoundKnob> {
    let (found, queues) = queue(bench, name, |text| one_of(choices(text)))?;
    let beside = |queue: &PathBuf| -> Vec<PathBuf> {
        let own = bench.root.names(queue.join("iosched")).into_iter().map(|name| queue.join("iosched").join(name));
        ["nr_requests", "wbt_lat_usec"].iter().map(|file| queue.join(file)).chain(own).collect()
    };
    let along = queues.iter().flat_map(beside).filter(|file| bench.root.exists(file));
    Some(FoundKnob { along: along.map(SettingPlace::File).collect(), ..found })
}

fn nr_requests(bench: &Bench<'_>, name: &str) -> Option<FoundKnob> {
    // The least that Linux takes (BLKDEV_MIN_RQ); the driver has the most.
    let (found, _) = queue(bench, name, |_| Domain::Within(4, 1 << 16))?;
    let now: u64 = found.places.first()?.read(bench.root).ok()?.parse().ok()?;
    let tries = [now / 2, now * 2].into_iter().filter(|number| *number >= 4).map(|number| number.to_string()).collect();
    Some(FoundKnob { tries, ..found }.range("4 to what the driver takes"))
}
