//! Machines from facts: `tests/machines/NAME.facts`, several machines a file. docs/doctor.md, "Trees", has the format.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;

use crate::tests;
use crate::tree::Tree;

/// A machine, and what must be said of it.
pub struct Machine {
    /// Its name.
    pub name: String,
    /// Its files.
    pub tree: Tree,
    /// What must be said and what must not: a word, and the rest of the line.
    pub claims: Vec<(String, String)>,
}

/// The machines of `tests/machines/NAME.facts`.
pub fn machines(name: &str) -> Vec<Machine> {
    let path = tests().join(format!("machines/{name}.facts"));
    let text = fs::read_to_string(&path).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
    text.split("\n== ").skip(1).map(machine).collect()
}

type Facts = BTreeMap<String, String>;

/// Words that claim something; the others describe the machine.
const CLAIMS: [&str; 6] = ["finds:", "quiet:", "list:", "unlisted:", "shows:", "hides:"];

fn machine(text: &str) -> Machine {
    let (name, text) = text.split_once('\n').unwrap();
    let (mut about, mut devices, mut changes, mut claims) = (Facts::new(), Vec::new(), String::new(), Vec::new());
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "machine" => about.extend(pairs(rest)),
            "dev" => {
                let (bdf, facts) = rest.split_once(' ').unwrap();
                devices.push((bdf.to_owned(), pairs(facts)));
            }
            word if CLAIMS.contains(&word) => claims.push((word.trim_end_matches(':').to_owned(), rest.to_owned())),
            _ => changes += &format!("{line}\n"),
        }
    }
    let mut tree = Tree::default();
    tree.change(&host(&about));
    let mut irq = 40;
    for (bdf, facts) in &devices {
        device(&mut tree, bdf, facts, &devices, &about, &mut irq);
    }
    tree.change(&changes);
    Machine { name: name.trim().to_owned(), tree, claims }
}

/// `key=value` and `key="two words"`.
fn pairs(text: &str) -> Facts {
    let mut facts = Facts::new();
    let mut rest = text.trim();
    while let Some((key, after)) = rest.split_once('=') {
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap(),
            None => after.split_once(' ').unwrap_or((after, "")),
        };
        facts.insert(key.trim().to_owned(), value.to_owned());
        rest = next.trim();
    }
    facts
}

fn get<'a>(facts: &'a Facts, key: &str, default: &'a str) -> &'a str {
    facts.get(key).map_or(default, String::as_str)
}

fn host(about: &Facts) -> String {
    let number = |key: &str, default: u32| about.get(key).map_or(default, |text| text.parse().unwrap());
    let (cpus, nodes, arch) = (number("cpus", 8), number("nodes", 1), get(about, "arch", "x86_64"));
    let text = RefCell::new(Vec::new());
    let put = |path: &str, value: &str| text.borrow_mut().push(format!("{path} = {value}\n"));
    put("/proc/sys/kernel/osrelease", get(about, "kernel", "6.8.0"));
    put("/proc/sys/kernel/arch", arch);
    put("/proc/cmdline", get(about, "cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda2 ro"));
    let (vendor, model) = (get(about, "cpuvendor", "GenuineIntel"), get(about, "cpu", "CPU"));
    let part = get(about, "part", "0xd0c");
    let guest = if about.contains_key("hypervisor") { " hypervisor" } else { "" };
    let info: Vec<String> = (0..cpus)
        .map(|cpu| match arch {
            "x86_64" => format!(
                "processor\\t: {cpu}\\nvendor_id\\t: {vendor}\\nmodel name\\t: {model}\\nflags\\t\\t: fpu tsc rdtscp constant_tsc nonstop_tsc{guest}"
            ),
            _ => format!("processor\\t: {cpu}\\nCPU implementer\\t: 0x41\\nCPU part\\t: {part}"),
        })
        .collect();
    put("/proc/cpuinfo", &info.join("\\n\\n"));
    put("/proc/stat", "cpu  4000 0 3000 80000 100 0 100 0 0 0\\ncpu0 1000 0 1000 20000 25 0 25 0 0 0");
    put("/proc/interrupts", "           CPU0");
    put("/proc/1/comm", "systemd");
    for file in ["perf_event_paranoid", "nmi_watchdog", "numa_balancing"] {
        put(&format!("/proc/sys/kernel/{file}"), "0");
    }
    if let Some(vendor) = about.get("vendor") {
        put("/sys/class/dmi/id/sys_vendor", vendor);
        put("/sys/class/dmi/id/product_name", get(about, "product", ""));
    }
    if let Some(model) = about.get("model") {
        put("/proc/device-tree/model", model);
    }
    let clock = if arch == "x86_64" { "tsc" } else { "arch_sys_counter" };
    for file in ["current", "available"] {
        put(&format!("/sys/devices/system/clocksource/clocksource0/{file}_clocksource"), clock);
    }
    put("/sys/kernel/security/lockdown", "[none] integrity confidentiality");
    put("/sys/devices/system/cpu/online", &format!("0-{}", cpus - 1));
    put("/sys/devices/system/cpu/smt/active", "0");
    for cpu in 0..cpus {
        let (at, node) = (format!("/sys/devices/system/cpu/cpu{cpu}"), cpu * nodes / cpus);
        put(&format!("{at}/topology/physical_package_id"), &node.to_string());
        put(&format!("{at}/topology/core_cpus_list"), &cpu.to_string());
        text.borrow_mut().push(format!("{at}/node{node} -> /sys/devices/system/node/node{node}\n"));
    }
    for node in 0..nodes {
        let own: Vec<u32> = (0..cpus).filter(|cpu| cpu * nodes / cpus == node).collect();
        put(&format!("/sys/devices/system/node/node{node}/cpulist"), &format!("{}-{}", own[0], own[own.len() - 1]));
    }
    text.into_inner().concat()
}

/// The folder of a function below /sys/devices.
fn place(bdf: &str, devices: &[(String, Facts)]) -> String {
    let facts = &devices.iter().find(|(other, _)| other == bdf).unwrap_or_else(|| panic!("no dev {bdf}")).1;
    if let Some(under) = facts.get("under") {
        return format!("{}/{bdf}", place(under, devices));
    }
    let host = format!("pci{}", bdf.rsplit_once(':').unwrap().0);
    let host = get(facts, "hostbus", &host);
    match facts.get("vmd") {
        Some(vmd) => format!("{}/{host}/{bdf}", place(vmd, devices)),
        None => format!("{host}/{bdf}"),
    }
}

const SPEEDS: [&str; 6] = ["2.5", "5", "8", "16", "32", "64"];
const CORRECTABLE: [&str; 8] =
    ["RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "NonFatalErr", "CorrIntErr", "HeaderOF"];
const UNCORRECTABLE: [&str; 10] =
    ["Undefined", "DLP", "SDES", "TLP", "FCP", "CmpltTO", "CmpltAbrt", "UnxCmplt", "UnsupReq", "ACSViol"];

/// The code of a speed; 0 for one that is not known.
fn code(speed: &str) -> u8 {
    SPEEDS.iter().position(|known| *known == speed).map_or(0, |place| place as u8 + 1)
}

/// `16x4`: the code of the speed, and the lanes.
fn link(text: &str) -> (u8, u8) {
    let (speed, lanes) = text.split_once('x').unwrap();
    (code(speed), lanes.parse().unwrap())
}

fn speed_text(code: u8) -> String {
    let speed = (code as usize).checked_sub(1).and_then(|place| SPEEDS.get(place));
    speed.map_or_else(|| "Unknown".to_owned(), |speed| format!("{:.1} GT/s PCIe", speed.parse::<f64>().unwrap()))
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text, 16).unwrap_or_else(|_| panic!("no hexadecimal number: {text}"))
}

/// 64K, 16M, 32G, 128.
fn bytes(text: &str) -> u64 {
    let shift = [('K', 10), ('M', 20), ('G', 30)].into_iter().find(|(unit, _)| text.ends_with(*unit));
    shift.map_or_else(
        || text.parse().unwrap(),
        |(unit, shift)| text.trim_end_matches(unit).parse::<u64>().unwrap() << shift,
    )
}

/// Configuration space in the making.
struct Space(Vec<u8>);

impl Space {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }
    fn word(&mut self, at: usize, value: u16) {
        self.put(at, &value.to_le_bytes());
    }
    fn long(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_le_bytes());
    }
}

fn device(tree: &mut Tree, bdf: &str, facts: &Facts, devices: &[(String, Facts)], about: &Facts, irq: &mut u32) {
    let fact = |key: &str, default: &'static str| get(facts, key, default).to_owned();
    let has = |key: &str, default: &'static str, word: &str| get(facts, key, default).split(',').any(|one| one == word);
    let own = place(bdf, devices);
    let text = RefCell::new(vec![format!("device {bdf} {own}\n")]);
    let put = |file: &str, value: &str| text.borrow_mut().push(format!("@{bdf}/{file} = {value}\n"));
    let (kind, class) = (fact("kind", ""), hex(&facts["class"]) as u32);
    let is_gone = kind == "ff";
    let ids: Vec<u16> = facts["ids"].split(':').map(|id| hex(id) as u16).collect();
    put("vendor", &format!("{:#06x}", ids[0]));
    put("device", &format!("{:#06x}", ids[1]));
    put("class", &format!("{class:#08x}"));
    put("subsystem_vendor", "0x0000");
    put("subsystem_device", "0x0000");
    let nodes: u32 = get(about, "nodes", "1").parse().unwrap();
    put("numa_node", get(facts, "node", if nodes < 2 { "-1" } else { "0" }));
    put("power_state", get(facts, "power", "D0"));
    let (control, status) = get(facts, "rpm", "on").split_once('/').unwrap_or((get(facts, "rpm", "on"), "active"));
    put("power/control", control);
    put("power/runtime_status", status);
    let mut lines = vec!["0x0000000000000000 0x0000000000000000 0x0000000000000000".to_owned(); 13];
    let (mut bars, mut slot) = (Vec::new(), 0);
    for bar in get(facts, "bars", "").split(',').filter(|bar| !bar.is_empty()) {
        if bar == "-" {
            slot += 1;
            continue;
        }
        let (address, rest) = bar.split_once('+').unwrap();
        let (size, form) = rest.split_once(':').unwrap();
        let (is_64, is_prefetchable, size) = (form.starts_with("64"), form.contains('p'), bytes(size));
        let start = if address == "?" { 0 } else { hex(address) };
        let mut flags = 0x40200 | if is_prefetchable { 0x2008 } else { 0 } | if is_64 { 0x10_0004 } else { 0 };
        flags |= if address == "?" { 0x2000_0000 } else { 0 };
        lines[slot] = format!("{start:#018x} {:#018x} {flags:#018x}", start + size - 1);
        let bus = start.saturating_sub(hex(get(facts, "busoff", "0")));
        let low = if is_prefetchable { 8 } else { 0 } | if is_64 { 4 } else { 0 };
        bars.push((slot, bus, low, is_64));
        slot += if is_64 { 2 } else { 1 };
    }
    put("resource", &lines.join("\\n"));
    let is_express = !matches!(kind.as_str(), "pci" | "ff");
    let is_integrated = matches!(kind.as_str(), "rciep" | "rcec");
    let (cap, sta) = match facts.get("cap").filter(|_| is_express) {
        Some(cap) if facts.contains_key("vf") => (link(cap), (0, 0)),
        Some(cap) => (link(cap), link(get(facts, "sta", cap))),
        None => ((0, 0), (0, 0)),
    };
    if is_express {
        // Before Linux 6.13 the kernel shows the highest of Link Capabilities 2.
        let most = facts.get("caps2").map_or(cap.0, |speed| code(speed));
        put("current_link_speed", &speed_text(sta.0));
        put("current_link_width", &sta.1.to_string());
        put("max_link_speed", &speed_text(most));
        put("max_link_width", &(if cap.1 == 0 { 255 } else { cap.1 }).to_string());
    }
    if is_gone && facts.contains_key("cap") {
        for (file, value) in [("speed", "Unknown"), ("width", "63")] {
            put(&format!("current_link_{file}"), value);
            put(&format!("max_link_{file}"), value);
        }
    }
    if is_express && fact("aer", "1") != "0" {
        let accounts = [
            ("correctable", "cor", &CORRECTABLE[..], "COR"),
            ("nonfatal", "nonfatal", &UNCORRECTABLE[..], "NONFATAL"),
            ("fatal", "fatal", &UNCORRECTABLE[..], "FATAL"),
        ];
        for (name, key, names, total) in accounts {
            let counts: BTreeMap<&str, u64> = get(facts, key, "")
                .split(',')
                .filter_map(|one| one.split_once(':').map(|(name, count)| (name, count.parse().unwrap())))
                .collect();
            assert!(counts.keys().all(|name| names.contains(name)), "{bdf}: {counts:?}");
            let rows: Vec<String> =
                names.iter().map(|name| format!("{name} {}", counts.get(name).unwrap_or(&0))).collect();
            let sum: u64 = counts.values().sum();
            put(&format!("aer_dev_{name}"), &format!("{}\\nTOTAL_ERR_{total} {sum}", rows.join("\\n")));
        }
    }
    *irq += 1;
    put("irq", &irq.to_string());
    for vector in 0..get(facts, "vecs", "0").parse::<u32>().unwrap() {
        put(&format!("msi_irqs/{}", *irq + vector), if facts.contains_key("msix") { "msix" } else { "msi" });
        // One of each CPU in turn; they are managed.
        let cpus: u32 = get(about, "cpus", "8").parse().unwrap();
        text.borrow_mut().push(format!("/proc/irq/{}/effective_affinity_list = {}\n", *irq + vector, vector % cpus));
    }
    *irq += get(facts, "vecs", "0").parse::<u32>().unwrap();
    if let Some(driver) = facts.get("driver") {
        text.borrow_mut().push(format!("@{bdf}/driver -> /sys/bus/pci/drivers/{driver}\n"));
    }
    if let Some(physical) = facts.get("vf") {
        text.borrow_mut().push(format!("@{bdf}/physfn -> /sys/devices/{}\n", place(physical, devices)));
    }
    tree.change(&text.into_inner().concat());

    let mut space = Space(vec![if is_gone { 0xff } else { 0 }; 4096]);
    if !is_gone {
        let command = [("io", 1), ("mem", 2), ("bus", 4), ("intx-", 0x400)];
        let command = command.iter().filter(|(word, _)| has("cmd", "mem,bus,intx-", word)).map(|(_, bit)| bit);
        let shown = if facts.contains_key("vf") { [0xffff; 2] } else { [ids[0], ids[1]] };
        space.word(0, shown[0]);
        space.word(2, shown[1]);
        space.word(4, command.sum::<u16>());
        space.word(6, 0x10);
        space.long(8, class << 8 | 1);
        let is_bridge = class >> 8 == 0x0604;
        space.0[0xe] = u8::from(is_bridge);
        for (slot, bus, low, is_64) in bars {
            space.long(0x10 + 4 * slot, bus as u32 | low);
            if is_64 {
                space.long(0x14 + 4 * slot, (bus >> 32) as u32);
            }
        }
        if is_bridge {
            let bus = |bdf: &str| hex(bdf.split(':').nth(1).unwrap()) as u8;
            let is_below =
                |other: &&(String, Facts)| other.0 != bdf && place(&other.0, devices).contains(&format!("{own}/"));
            let below: Vec<u8> = devices.iter().filter(is_below).map(|(other, _)| bus(other)).collect();
            let next = bus(bdf).wrapping_add(1);
            let numbers = [bus(bdf), *below.iter().min().unwrap_or(&next), *below.iter().max().unwrap_or(&next)];
            space.put(0x18, &numbers);
            let window =
                |key: &str| facts.get(key).map(|text| text.split_once('-').map(|(a, b)| (hex(a), hex(b))).unwrap());
            let (base, limit) = window("win").unwrap_or((0xfff0_0000, 0));
            space.word(0x20, (base >> 16) as u16 & 0xfff0);
            space.word(0x22, (limit >> 16) as u16 & 0xfff0);
            let (base, limit) = window("pwin").unwrap_or((0xfff0_0000, 0));
            space.word(0x24, (base >> 16) as u16 & 0xfff0 | 1);
            space.word(0x26, (limit >> 16) as u16 & 0xfff0 | 1);
            space.long(0x28, (base >> 32) as u32);
            space.long(0x2c, (limit >> 32) as u32);
        } else {
            space.0[0x3d] = u8::from(!facts.contains_key("vf"));
        }
        let mut chain = vec![0x40];
        space.put(0x40, &[1, 0, 3, 0xc8, if fact("power", "D0") == "D3hot" { 11 } else { 8 }, 0]);
        let vectors = |key: &str| {
            facts.get(key).map(|text| (text.split(':').next().unwrap().parse::<u16>().unwrap(), text.ends_with(":on")))
        };
        if let Some((count, is_on)) = vectors("msi") {
            space.put(0x50, &[5, 0]);
            space.word(0x52, 0x80 | u16::from(is_on) | (count.ilog2() as u16) << 1);
            chain.push(0x50);
        }
        if let Some((count, is_on)) = vectors("msix") {
            space.put(0xa0, &[0x11, 0]);
            space.word(0xa2, (count - 1) | if is_on { 0x8000 } else { 0 });
            chain.push(0xa0);
        }
        if is_express {
            let at = 0x60;
            chain.push(at);
            let version: u16 = get(facts, "v", "2").parse().unwrap();
            let kinds = ["ep", "leg", "", "", "root", "up", "down", "pcibr", "rpcibr", "rciep", "rcec"];
            let number = kinds.iter().position(|one| *one == kind).unwrap() as u16;
            let has_slot = matches!(kind.as_str(), "root" | "down") && fact("slot", "1") == "1";
            space.put(at, &[0x10, 0]);
            space.word(at + 2, version | number << 4 | if has_slot { 0x100 } else { 0 });
            let size = |text: &str| (text.parse::<u32>().unwrap() / 128).ilog2();
            let (now, most) = get(facts, "mps", "256/256").split_once('/').unwrap();
            let tags = |word| has("etag", "cap,on", word);
            space.long(at + 4, size(most) | if tags("cap") { 0x20 } else { 0 } | 0x8000);
            let ordering = if fact("rlx", "1") == "1" { 0x10 } else { 0 };
            let tagging = if tags("on") { 0x100 } else { 0 };
            let control = 0x80f | ordering | size(now) << 5 | tagging | size(get(facts, "mrrs", "512")) << 12;
            space.word(at + 8, control as u16);
            let seen = ["corr", "nonfatal", "fatal", "ur", "aux", "pend"];
            let seen = seen.iter().enumerate().filter(|(_, word)| has("devsta", "", word)).map(|(bit, _)| 1 << bit);
            space.word(at + 0xa, seen.sum());
            if !is_integrated {
                let states = |text: &str| match text {
                    "l0s" => 1,
                    "l1" => 2,
                    "l0sl1" => 3,
                    _ => 0,
                };
                let aspm = fact("aspm", "");
                let able = states(get(facts, "aspmcap", &aspm));
                let flag = |word: &str, bit: u32| if has("lnk", "slotclk", word) { 1 << bit } else { 0 };
                let reports = flag("dllrep", 20) | flag("bwnot", 21);
                space.long(at + 0xc, u32::from(cap.0) | u32::from(cap.1) << 4 | able << 10 | reports);
                space.word(at + 0x10, states(&aspm) as u16 | 0x40);
                let status = u32::from(sta.0) | u32::from(sta.1) << 4;
                let flags = flag("slotclk", 12) | flag("dlact", 13) | flag("bwmgmt", 14) | flag("abwmgmt", 15);
                space.word(at + 0x12, (status | flags) as u16);
                if version >= 2 {
                    space.word(at + 0x30, facts.get("tls").map_or(cap.0, |speed| code(speed)).into());
                    let able = facts.get("caps2").map_or(0, |speed| ((1 << code(speed)) - 1) << 1);
                    space.long(at + 0x2c, able);
                }
            }
            space.long(at + 0x24, hex(get(facts, "devcap2", "1f")) as u32);
            space.word(at + 0x28, hex(get(facts, "devctl2", "0")) as u16);
        }
        for (place, at) in chain.iter().enumerate() {
            space.0[at + 1] = chain.get(place + 1).map_or(0, |next| *next as u8);
        }
        space.0[0x34] = chain[0] as u8;
        if is_express && fact("aer", "1") != "0" {
            space.long(0x100, 0x0002_0001 | if facts.contains_key("acs") { 0x150 << 20 } else { 0 });
            if let Some(control) = facts.get("acs") {
                space.long(0x150, 0x0001_000d);
                space.word(0x154, 0x5f);
                space.word(0x156, hex(control) as u16);
            }
        }
    }
    let length = get(facts, "len", if is_express || is_gone { "4096" } else { "256" });
    space.0.truncate(length.parse().unwrap());
    tree.files.insert(format!("/sys/devices/{own}/config"), space.0);
}
