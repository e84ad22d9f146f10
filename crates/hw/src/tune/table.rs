//! The table of knobs: each row finds a knob on a machine. docs/tune.md has the same table for users.

use std::path::PathBuf;

use pciescope_core::tune::Knob;
use pciescope_core::{Bdf, Cpu, CpuList, Function};

use super::place::{SettingPlace, choices};
use super::{Coding, Domain, FoundKnob};
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

/// What a row found: [`FoundKnob`] without what the row says itself.
#[derive(Default)]
struct Sought {
    places: Vec<SettingPlace>,
    along: Vec<SettingPlace>,
    coding: Option<Coding>,
    domain: Option<Domain>,
    range: Option<String>,
    tries: Vec<String>,
    shared: Option<String>,
    refused: Option<String>,
    permanent: String,
}

struct Knobs {
    name: &'static str,
    risk: &'static str,
    put_back: &'static str,
    /// What begins the parameter of the kernel that sets it.
    parameter: &'static str,
    find: fn(&Bench<'_>, &'static str) -> Option<Sought>,
}

const WRITTEN: &str = "written back";

const fn row(
    name: &'static str,
    risk: &'static str,
    put_back: &'static str,
    parameter: &'static str,
    find: fn(&Bench<'_>, &'static str) -> Option<Sought>,
) -> Knobs {
    Knobs { name, risk, put_back, parameter, find }
}

const ROWS: [Knobs; 19] = [
    row("mrrs", "other devices may wait longer behind large reads", WRITTEN, "pci=pcie_bus_", mrrs),
    row("mps", "packets that the path does not take are lost", "-", "pci=pcie_bus_", mps),
    row("relaxed-ordering", "none: less reordering", WRITTEN, "", relaxed_ordering),
    row("no-snoop", "none: more snooping", WRITTEN, "", no_snoop),
    row("ext-tags", "a path without 8-bit tags mixes answers up", WRITTEN, "", ext_tags),
    row("aspm-l0s", "more power, or a slow exit", WRITTEN, "pcie_aspm", aspm),
    row("aspm-l1", "more power, or a slow exit", WRITTEN, "pcie_aspm", aspm),
    row("aspm-l1.1", "more power, or a slow exit", WRITTEN, "pcie_aspm", aspm),
    row("aspm-l1.2", "more power, or a slow exit", WRITTEN, "pcie_aspm", aspm),
    row("pcipm-l1.1", "more power, or a slow exit", WRITTEN, "pcie_aspm", aspm),
    row("pcipm-l1.2", "more power, or a slow exit", WRITTEN, "pcie_aspm", aspm),
    row("irq-cpu", "irqbalance may move it back: then the experiment ends", WRITTEN, "irqaffinity=", irq_cpu),
    row("cpu", "none: of the workload alone", "by its end", "isolcpus=", cpu),
    row("numa", "none: of the workload alone", "by its end", "", numa),
    row("idle-latency", "more power and heat", "by its end", "", idle_latency),
    row("governor", "more power and heat", WRITTEN, "cpufreq.default_governor=", governor),
    row("iommu", "a device without its driver", "-", "iommu", iommu),
    row("scheduler", "other users of the disk wait longer", WRITTEN, "elevator=", scheduler),
    row("nr_requests", "other users of the disk wait longer", WRITTEN, "", nr_requests),
];

/// The names of all knobs.
pub const NAMES: [&str; ROWS.len()] = {
    let mut names = [""; ROWS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = ROWS[at].name;
        at += 1;
    }
    names
};

/// The knobs of a function and of the machine around it. Registers are read, nothing is written.
pub fn knobs(root: &Root, bdf: Bdf, function: &Function) -> Vec<FoundKnob> {
    let cpus = topology::cpus(root).unwrap_or_default();
    let online = topology::online(root).unwrap_or_default();
    let bench = Bench { root, bdf, function, config: Config::load(root, bdf), cpus, online };
    let parameters = root.text("/proc/cmdline").unwrap_or_default();
    ROWS.iter().filter_map(|row| found(&bench, row, &parameters)).collect()
}

fn found(bench: &Bench<'_>, row: &Knobs, parameters: &str) -> Option<FoundKnob> {
    let sought = (row.find)(bench, row.name)?;
    let by = parameters.split_whitespace().find(|word| !row.parameter.is_empty() && word.starts_with(row.parameter));
    let domain = sought.domain.unwrap_or(Domain::OneOf(Vec::new()));
    let range = sought.range.unwrap_or_else(|| match &domain {
        Domain::OneOf(all) => all.join(", "),
        Domain::Cpus(all) => format!("CPUs of {all}"),
        Domain::Within(low, high) => format!("{low} to {high}"),
    });
    let blocked = sought.places.iter().find(|place| !place.is_writable(bench.root));
    let blocked =
        blocked.map(|place| format!("{} cannot be written: run it as root", place.path(bench.root).display()));
    let mut knob = FoundKnob {
        knob: Knob {
            name: row.name.to_owned(),
            value: None,
            range,
            set_by: by.map_or_else(|| "as found".to_owned(), |word| format!("kernel parameter {word}")),
            risk: row.risk.to_owned(),
            put_back: row.put_back.to_owned(),
            shared: sought.shared,
            refused: sought.refused.or(blocked),
        },
        tries: sought.tries,
        places: sought.places,
        along: sought.along,
        coding: sought.coding.unwrap_or(Coding::Text),
        domain,
        permanent: sought.permanent,
    };
    let mut values: Vec<String> = Vec::new();
    for place in &knob.places {
        match place.read(bench.root) {
            Ok(raw) => values.push(knob.value(&raw)),
            Err(error) => {
                knob.knob.refused.get_or_insert(pciescope_core::text::chain(&error));
            }
        }
    }
    values.dedup();
    knob.knob.value = match &knob.domain {
        Domain::Cpus(all) if row.name == "cpu" => Some(all.to_string()),
        _ if row.name == "numa" => Some("any".to_owned()),
        _ => (!values.is_empty()).then(|| values.join(" and ")),
    };
    knob.tries.retain(|value| knob.knob.value.as_ref() != Some(value));
    Some(knob)
}

fn strings(all: &[&str]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

/// Bits of Device Control (7.5.3.4), where configuration space may be written.
fn device_control(bench: &Bench<'_>, mask: u16, coding: Coding) -> Option<(Sought, u16)> {
    let express = Express::of(&bench.config);
    let refused = match &express {
        _ if bench.root.exists(pci::folder(bench.bdf).join("physfn")) => {
            Some("it is that of the physical function".to_owned())
        }
        _ if is_locked_down(bench.root) => Some("kernel lockdown forbids to write registers".to_owned()),
        _ if pci::is_bridge(bench.function.class) => Some("it is a bridge: all behind it would change".to_owned()),
        None => Some(bench.config.limit().unwrap_or_else(|| "it has no PCI Express capability".to_owned())),
        Some(_) => bench.config.silence().map(|why| format!("it does not answer: {why}")),
    };
    let at = express.as_ref().map_or(0, |express| express.at as u16 + 8);
    let control = express.map_or(0, |express| express.device_control());
    let places = if at > 0 { vec![SettingPlace::Register { bdf: bench.bdf, at, mask }] } else { Vec::new() };
    let permanent = format!("setpci -s {} CAP_EXP+8.w=RAW:{mask:04x}", bench.bdf);
    Some((Sought { places, coding: Some(coding), refused, permanent, ..Sought::default() }, control))
}

const MRRS: u16 = 0x7000;

fn mrrs(bench: &Bench<'_>, _: &str) -> Option<Sought> {
    let (mut sought, _) = device_control(bench, MRRS, Coding::Size(0x1000))?;
    let own = bench.config.mps_bytes().unwrap_or(128);
    // Above its own limit, what comes back may be larger packets than it takes (the kernel's pcie_bus_perf counts on this).
    let above = bench.function.path.iter().filter_map(|bdf| Config::load(bench.root, *bdf).mps_bytes());
    let is_bound = above.max().is_some_and(|most| most > own);
    // Linux raises it on no device below these: no_inc_mrrs (drivers/pci/quirks.c, Loongson).
    let is_capped = bench
        .function
        .path
        .first()
        .is_some_and(|bdf| pci::id(bench.root, *bdf, "vendor").is_ok_and(|vendor| vendor == 0x0014));
    let most = match (is_bound, is_capped) {
        (_, true) => bench.config.mrrs_bytes().unwrap_or(128),
        (true, _) => own,
        _ => 4096,
    };
    let sizes = (0..6).map(|code| 128u16 << code).filter(|bytes| *bytes <= most);
    sought.tries = sizes.map(|bytes| bytes.to_string()).collect();
    let why = match (is_capped, is_bound) {
        (true, _) => " (quirk of the root port)",
        (_, true) => " (as its payload)",
        _ => "",
    };
    sought.range = Some(format!("128 to {most}{why}"));
    sought.domain = Some(Domain::OneOf(sought.tries.clone()));
    Some(sought)
}

fn mps(bench: &Bench<'_>, _: &str) -> Option<Sought> {
    let (mut sought, _) = device_control(bench, 0x00e0, Coding::Size(0x20))?;
    let most = Express::of(&bench.config).and_then(|express| express.payload_most()).unwrap_or(128);
    sought.range = Some(format!("128 to {most}"));
    sought.refused = Some("the whole path has to agree, drivers off".to_owned());
    Some(sought)
}

/// What is only taken away: `on` where it was found.
fn taken_away(bench: &Bench<'_>, mask: u16) -> Option<Sought> {
    let (mut sought, control) = device_control(bench, mask, Coding::Bits(mask))?;
    if control & mask == 0 {
        sought.refused.get_or_insert("it is off: it is only taken away, and given back".into());
    }
    (sought.domain, sought.tries) = (Some(Domain::OneOf(strings(&["on", "off"]))), strings(&["off"]));
    Some(sought)
}

fn relaxed_ordering(bench: &Bench<'_>, _: &str) -> Option<Sought> {
    taken_away(bench, 0x0010)
}

fn no_snoop(bench: &Bench<'_>, _: &str) -> Option<Sought> {
    taken_away(bench, 0x0800)
}

fn ext_tags(bench: &Bench<'_>, _: &str) -> Option<Sought> {
    const EXTENDED_TAGS: u16 = 0x0100;
    let (mut sought, control) = device_control(bench, EXTENDED_TAGS, Coding::Bits(EXTENDED_TAGS))?;
    if let Some(driver) = &bench.function.driver {
        sought.refused.get_or_insert(format!("it needs the driver ({driver}) off"));
    } else if control & EXTENDED_TAGS == 0 {
        // Who answers has to take 8-bit tags too, which no register of the function tells.
        sought.refused.get_or_insert("it is off, and the path may not take 8-bit tags".to_owned());
    }
    sought.domain = Some(Domain::OneOf(strings(&["on", "off"])));
    Some(sought)
}

/// The kernel's files of a link's power states.
const ASPM: [(&str, &str); 6] = [
    ("aspm-l0s", "l0s_aspm"),
    ("aspm-l1", "l1_aspm"),
    ("aspm-l1.1", "l1_1_aspm"),
    ("aspm-l1.2", "l1_2_aspm"),
    ("pcipm-l1.1", "l1_1_pcipm"),
    ("pcipm-l1.2", "l1_2_pcipm"),
];

fn aspm(bench: &Bench<'_>, name: &str) -> Option<Sought> {
    let folder = pci::folder(bench.bdf).join("link");
    let (_, file) = ASPM.iter().find(|(knob, _)| *knob == name)?;
    let exists = |file: &str| bench.root.exists(folder.join(file));
    if !exists(file) {
        return None;
    }
    let place = |file: &str| SettingPlace::File(folder.join(file));
    let is_sibling = |bdf: &Bdf| (bdf.domain, bdf.bus) == (bench.bdf.domain, bench.bdf.bus) && *bdf != bench.bdf;
    let siblings: Vec<String> =
        pci::addresses(bench.root).into_iter().filter(is_sibling).map(|bdf| bdf.to_string()).collect();
    Some(Sought {
        places: vec![place(file)],
        // The kernel takes substates away with L1, and L1 back with a substate.
        along: ASPM.iter().filter(|(_, other)| other != file && exists(other)).map(|(_, other)| place(other)).collect(),
        coding: Some(Coding::Digit),
        domain: Some(Domain::OneOf(strings(&["on", "off"]))),
        tries: strings(&["on", "off"]),
        shared: (!siblings.is_empty()).then(|| format!("{} on the same link", siblings.join(", "))),
        permanent: format!(
            "udev rule: ACTION==\"add\", SUBSYSTEM==\"pci\", KERNEL==\"{}\", ATTR{{link/{file}}}=\"RAW\"",
            bench.bdf
        ),
        ..Sought::default()
    })
}

/// One CPU of each node, that of the function first.
fn one_of_each_node(bench: &Bench<'_>) -> Vec<u32> {
    let mut nodes = topology::nodes(&bench.cpus);
    nodes.sort_by_key(|(node, _)| (Some(*node) != bench.function.node, *node));
    nodes.iter().filter_map(|(_, cpus)| cpus.iter().next()).collect()
}

fn irq_cpu(bench: &Bench<'_>, _: &str) -> Option<Sought> {
    let irqs = bench.root.names(pci::folder(bench.bdf).join("msi_irqs"));
    let files = irqs.iter().map(|irq| PathBuf::from(format!("/proc/irq/{irq}/smp_affinity_list")));
    let places: Vec<_> = files.filter(|file| bench.root.exists(file)).map(SettingPlace::File).collect();
    (!places.is_empty()).then(|| Sought {
        places,
        domain: Some(Domain::Cpus(bench.online.clone())),
        tries: one_of_each_node(bench).iter().map(u32::to_string).collect(),
        permanent: "a service that writes VALUE to /proc/irq/N/smp_affinity_list, and IRQBALANCE_BANNED_CPULIST"
            .to_owned(),
        ..Sought::default()
    })
}

fn cpu(bench: &Bench<'_>, _: &str) -> Option<Sought> {
    let allowed = match bench.root.is_live() {
        true => placement::allowed(&bench.online).unwrap_or_else(|_| bench.online.clone()),
        false => bench.online.clone(),
    };
    Some(Sought {
        places: vec![SettingPlace::Workload],
        tries: one_of_each_node(bench).iter().filter(|cpu| allowed.contains(**cpu)).map(u32::to_string).collect(),
        domain: Some(Domain::Cpus(allowed)),
        permanent: "start the workload by `taskset -c VALUE`".to_owned(),
        ..Sought::default()
    })
}

fn numa(bench: &Bench<'_>, _: &str) -> Option<Sought> {
    let nodes: Vec<String> = topology::nodes(&bench.cpus).iter().map(|(node, _)| node.to_string()).collect();
    Some(Sought {
        places: vec![SettingPlace::Workload],
        refused: (nodes.len() < 2).then(|| "the machine has one node".to_owned()),
        range: Some(format!("nodes {}", nodes.join(", "))),
        tries: nodes.clone(),
        domain: Some(Domain::OneOf(nodes)),
        permanent: "start the workload by `numactl --cpunodebind=VALUE --membind=VALUE`".to_owned(),
        ..Sought::default()
    })
}

/// What a file of all CPUs changes.
const MACHINE: &str = "the whole machine";

fn idle_latency(bench: &Bench<'_>, _: &str) -> Option<Sought> {
    const QOS: &str = "/dev/cpu_dma_latency";
    bench.root.exists(QOS).then(|| Sought {
        places: vec![SettingPlace::Held(QOS.into())],
        domain: Some(Domain::Within(0, 2_000_000_000)),
        range: Some("0 to 2000000000 us".to_owned()),
        tries: strings(&["0"]),
        shared: Some(MACHINE.to_owned()),
        permanent: format!("a service that holds {QOS} open with VALUE (tuned: force_latency=VALUE)"),
        ..Sought::default()
    })
}

fn governor(bench: &Bench<'_>, _: &str) -> Option<Sought> {
    let folder = |cpu: u32| PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq"));
    let files = |name: &str| -> Vec<SettingPlace> {
        let all = bench.online.iter().map(|cpu| folder(cpu).join(name));
        all.filter(|file| bench.root.exists(file)).map(SettingPlace::File).collect()
    };
    let places = files("scaling_governor");
    let first = bench.online.iter().next()?;
    let mut all = choices(&bench.root.text(folder(first).join("scaling_available_governors"))?);
    // Without somebody who sets the frequency it says nothing.
    all.retain(|one| one != "userspace");
    (!places.is_empty()).then(|| Sought {
        places,
        // Some drivers change it along with the governor.
        along: files("energy_performance_preference"),
        domain: Some(Domain::OneOf(all.clone())),
        tries: all,
        shared: Some(MACHINE.to_owned()),
        permanent: "kernel parameter cpufreq.default_governor=VALUE, or `cpupower frequency-set -g VALUE`".to_owned(),
        ..Sought::default()
    })
}

fn iommu(bench: &Bench<'_>, _: &str) -> Option<Sought> {
    let file = format!("/sys/kernel/iommu_groups/{}/type", bench.function.iommu_group?);
    bench.root.exists(&file).then(|| Sought {
        places: vec![SettingPlace::File(file.into())],
        range: Some("DMA, DMA-FQ, identity".to_owned()),
        refused: Some("it needs the drivers of the whole group off".to_owned()),
        ..Sought::default()
    })
}

/// A file of the queues of the function's disks, with those that change along with it.
fn queue(bench: &Bench<'_>, file: &str, along: &[&str]) -> Option<Sought> {
    let disks = nodes::names(bench.root, bench.bdf).into_iter();
    let queues = disks.map(|disk| PathBuf::from("/sys/class/block").join(disk).join("queue"));
    let queues: Vec<PathBuf> = queues.filter(|queue| bench.root.exists(queue.join(file))).collect();
    let place = |queue: &PathBuf, file: &str| SettingPlace::File(queue.join(file));
    let beside = |queue: &PathBuf| -> Vec<SettingPlace> {
        let own = bench.root.names(queue.join("iosched")).into_iter().map(|name| format!("iosched/{name}"));
        let files = along.iter().map(|file| (*file).to_owned()).chain(own.filter(|_| !along.is_empty()));
        files.filter(|file| bench.root.exists(queue.join(file))).map(|file| place(queue, &file)).collect()
    };
    let disk = queues.first()?.parent()?.file_name()?.to_str()?.to_owned();
    Some(Sought {
        places: queues.iter().map(|queue| place(queue, file)).collect(),
        along: queues.iter().flat_map(beside).collect(),
        permanent: format!(
            "udev rule: ACTION==\"add|change\", SUBSYSTEM==\"block\", KERNEL==\"{disk}\", ATTR{{queue/{file}}}=\"VALUE\""
        ),
        ..Sought::default()
    })
}

fn scheduler(bench: &Bench<'_>, name: &str) -> Option<Sought> {
    let sought = queue(bench, name, &["nr_requests", "wbt_lat_usec"])?;
    let all = choices(&bench.root.text(sought.places.first()?.path(&Root::default()))?);
    Some(Sought { domain: Some(Domain::OneOf(all.clone())), tries: all, ..sought })
}

fn nr_requests(bench: &Bench<'_>, name: &str) -> Option<Sought> {
    let sought = queue(bench, name, &[])?;
    // The least that Linux takes (BLKDEV_MIN_RQ); the driver has the most.
    let now: u64 = sought.places.first()?.read(bench.root).ok()?.parse().ok()?;
    let tries = [now / 2, now * 2].into_iter().filter(|number| *number >= 4);
    let tries = tries.map(|number| number.to_string()).collect();
    Some(Sought {
        domain: Some(Domain::Within(4, 1 << 16)),
        range: Some("4 to what the driver takes".into()),
        tries,
        ..sought
    })
}
