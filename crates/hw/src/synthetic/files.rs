//! The files of the synthetic machine: what does not change, and the counts of the kernel.

use std::fmt::Write as _;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use pciescope_core::Environment;

use crate::probe::fake::Options;

use super::traffic::{FLOWS, INTERRUPTS, REPAIRED};

/// A PCI function: where it lies, what it is, its link and how many interrupt vectors it uses.
struct SyntheticFunction {
    /// From the host bridge down: `pci0000:00/0000:00:02.0`.
    place: &'static str,
    ids: [&'static str; 3],
    driver: &'static str,
    node: u8,
    /// Transfer rate and lanes now, and at most.
    link: Option<[(&'static str, u8); 2]>,
    vectors: u32,
}

const fn function(
    place: &'static str,
    ids: [&'static str; 3],
    driver: &'static str,
    node: u8,
    link: Option<[(&'static str, u8); 2]>,
    vectors: u32,
) -> SyntheticFunction {
    SyntheticFunction { place, ids, driver, node, link, vectors }
}

const X4: Option<[(&str, u8); 2]> = Some([("32.0", 4), ("32.0", 4)]);
const X16: Option<[(&str, u8); 2]> = Some([("32.0", 16), ("32.0", 16)]);
/// Trained to half of what both ends can do.
const SLOW: Option<[(&str, u8); 2]> = Some([("16.0", 4), ("32.0", 4)]);
const PORT: [&str; 3] = ["0x1ded", "0x8000", "0x060400"];

/// Two nodes, each with root ports.
const FUNCTIONS: [SyntheticFunction; 11] = [
    function("pci0000:00/0000:00:02.0", PORT, "pcieport", 0, X4, 1),
    function("pci0000:00/0000:00:02.0/0000:02:00.0", ["0x144d", "0xa824", "0x010802"], "nvme", 0, X4, 4),
    function("pci0000:00/0000:00:03.0", PORT, "pcieport", 0, SLOW, 1),
    function("pci0000:00/0000:00:03.0/0000:03:00.0", ["0x144d", "0xa824", "0x010802"], "nvme", 0, SLOW, 4),
    function("pci0000:00/0000:00:04.0", PORT, "pcieport", 0, Some([("2.5", 0), ("32.0", 4)]), 1),
    function("pci0000:00/0000:00:17.0", ["0x8086", "0xa182", "0x010601"], "ahci", 0, None, 1),
    function("pci0000:80/0000:80:01.0", PORT, "pcieport", 1, X16, 1),
    function("pci0000:80/0000:80:01.0/0000:81:00.0", ["0x15b3", "0x1021", "0x020000"], "mlx5_core", 1, X16, 4),
    function("pci0000:80/0000:80:01.0/0000:81:00.1", ["0x15b3", "0x101e", "0x020000"], "mlx5_core", 1, None, 2),
    function("pci0000:80/0000:80:02.0", PORT, "pcieport", 1, X16, 1),
    function("pci0000:80/0000:80:02.0/0000:82:00.0", ["0x10de", "0x2330", "0x030200"], "nvidia", 1, X16, 2),
];
/// The function whose link repairs errors.
const SICK: &str = "0000:03:00.0";

/// Devices that the kernel counts: class, place of the function, what is between.
const DEVICES: [(&str, usize, &str); 5] = [
    ("block/nvme0n1", 1, "nvme/nvme0"),
    ("block/nvme1n1", 3, "nvme/nvme1"),
    ("net/eth0", 7, "net"),
    ("net/eth1", 8, "net"),
    ("block/sda", 5, "ata1/host0/target0:0:0/0:0:0:0/block"),
];

/// PMUs of root ports, and of channels with their die.
const PORTS: [&str; 4] = ["dwc_rootport_10", "dwc_rootport_18", "dwc_rootport_8008", "dwc_rootport_8010"];
const CHANNELS: [(&str, u8); 4] =
    [("ali_drw_21000", 0), ("ali_drw_21080", 0), ("ali_drw_40021000", 1), ("ali_drw_40021080", 1)];
const CPUS: u32 = 8;

fn put(at: &Path, file: &str, text: &str) -> io::Result<()> {
    let path = at.join(file);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, format!("{text}\n"))
}

fn link(at: &Path, file: &str, target: &str) -> io::Result<()> {
    let path = at.join(file);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    symlink(target, path)
}

/// Where a device's files are.
fn folder(device: &(&str, usize, &str)) -> PathBuf {
    let name = device.0.rsplit('/').next().unwrap_or_default();
    Path::new("sys/devices").join(FUNCTIONS[device.1].place).join(device.2).join(name)
}

/// Writes what does not change.
pub fn make(at: &Path, options: &Options) -> io::Result<()> {
    put(at, "proc/sys/kernel/osrelease", "0.0.0-fake")?;
    put(at, "proc/sys/kernel/hostname", options.host.as_deref().unwrap_or("synthetic"))?;
    put(at, "proc/cmdline", "quiet")?;
    put(at, "sys/class/dmi/id/product_name", Environment::SYNTHETIC)?;
    cpus(at)?;
    let mut irq = 24;
    for function in &FUNCTIONS {
        let bdf = function.place.rsplit('/').next().unwrap_or_default();
        let own = format!("sys/devices/{}", function.place);
        for (file, text) in ["vendor", "device", "class"].iter().zip(function.ids) {
            put(at, &format!("{own}/{file}"), text)?;
        }
        put(at, &format!("{own}/resource"), "0x0 0x0 0x0")?;
        put(at, &format!("{own}/numa_node"), &function.node.to_string())?;
        if let Some([mut now, most]) = function.link {
            if options.host.is_some() && !options.downtrained && function.link == SLOW {
                now = most;
            }
            for (word, (speed, lanes)) in [("current", now), ("max", most)] {
                put(at, &format!("{own}/{word}_link_speed"), &format!("{speed} GT/s PCIe"))?;
                put(at, &format!("{own}/{word}_link_width"), &lanes.to_string())?;
            }
        }
        link(at, &format!("{own}/driver"), &format!("../../../../bus/pci/drivers/{}", function.driver))?;
        for _ in 0..function.vectors {
            put(at, &format!("{own}/msi_irqs/{irq}"), "msix")?;
            irq += 1;
        }
        link(at, &format!("sys/bus/pci/devices/{bdf}"), &format!("../../../devices/{}", function.place))?;
    }
    for device in &DEVICES {
        let target = format!("../../../{}", folder(device).display());
        link(at, &format!("sys/class/{}", device.0), &target)?;
        let own = folder(device).display().to_string();
        match device.0.split_once('/') {
            Some(("block", name)) => {
                put(at, &format!("{own}/uevent"), &format!("DEVNAME={name}"))?;
                link(at, &format!("{own}/subsystem"), "../../../../../../../../class/block")?;
            }
            _ => put(at, &format!("{own}/type"), "1")?,
        }
    }
    let events = |text: &'static str| text.lines().filter_map(|line| line.split_once(' '));
    for (number, name) in PORTS.iter().enumerate() {
        let own = format!("sys/bus/event_source/devices/{name}");
        put(at, &format!("{own}/type"), &(40 + number).to_string())?;
        put(at, &format!("{own}/cpumask"), if name.contains("_80") { "4" } else { "0" })?;
        put(at, &format!("{own}/identifier"), "dwc_rasdes_r4")?;
        for (field, bits) in [("type", "config:16-19"), ("eventid", "config:0-15"), ("lane", "config:20-27")] {
            put(at, &format!("{own}/format/{field}"), bits)?;
        }
        for (event, terms) in events(include_str!("rasdes.events")) {
            put(at, &format!("{own}/events/{event}"), terms)?;
            if event.ends_with("_payload") {
                put(at, &format!("{own}/events/{event}.unit"), "B")?;
                put(at, &format!("{own}/events/{event}.scale"), "1")?;
            }
        }
    }
    for (number, (name, die)) in CHANNELS.iter().enumerate() {
        let own = format!("sys/bus/event_source/devices/{name}");
        put(at, &format!("{own}/type"), &(60 + number).to_string())?;
        put(at, &format!("{own}/cpumask"), if *die == 0 { "0" } else { "4" })?;
        put(at, &format!("{own}/identifier"), "ali_drw_pmu")?;
        put(at, &format!("{own}/die"), &die.to_string())?;
        put(at, &format!("{own}/format/event"), "config:0-7")?;
        for (event, terms) in events(include_str!("drw.events")) {
            put(at, &format!("{own}/events/{event}"), terms)?;
        }
    }
    Ok(())
}

/// Two packages of four CPUs.
fn cpus(at: &Path) -> io::Result<()> {
    put(at, "sys/devices/system/cpu/online", &format!("0-{}", CPUS - 1))?;
    for cpu in 0..CPUS {
        let (own, package) = (format!("sys/devices/system/cpu/cpu{cpu}"), cpu / (CPUS / 2));
        put(at, &format!("{own}/topology/physical_package_id"), &package.to_string())?;
        put(at, &format!("{own}/topology/core_cpus_list"), &cpu.to_string())?;
        put(at, &format!("{own}/node{package}/cpu{cpu}"), "")?;
    }
    for node in 0..2 {
        let (first, last) = (node * CPUS / 2, (node + 1) * CPUS / 2 - 1);
        put(at, &format!("sys/devices/system/node/node{node}/cpulist"), &format!("{first}-{last}"))?;
    }
    put(at, "sys/devices/system/node/online", "0-1")
}

/// Writes the kernel's counts after a time.
pub fn advance(at: &Path, seconds: f64, is_sick: bool) -> io::Result<()> {
    for device in &DEVICES {
        let (class, name) = device.0.split_once('/').unwrap_or_default();
        let Some(flow) = FLOWS.iter().find(|flow| flow.name == name) else { continue };
        let (rx, tx) = (flow.rx.sum(seconds) as u64, flow.tx.sum(seconds) as u64);
        let own = at.join(folder(device));
        if class == "block" {
            let ios = rx / 131_072;
            put(&own, "stat", &format!("{ios} 0 {} 0 {} 0 {} 0 0 0 0", rx / 512, tx / 131_072, tx / 512))?;
        } else {
            put(&own, "statistics/rx_bytes", &rx.to_string())?;
            put(&own, "statistics/tx_bytes", &tx.to_string())?;
        }
    }
    let repaired = REPAIRED.sum(seconds) as u64;
    for function in &FUNCTIONS {
        let is_sick = is_sick && function.place.ends_with(SICK);
        let own = at.join("sys/devices").join(function.place);
        let count = if is_sick { repaired } else { 0 };
        put(&own, "aer_dev_correctable", &format!("RxErr 0\nBadTLP {count}\nTOTAL_ERR_COR {count}"))?;
        put(&own, "aer_dev_nonfatal", "TOTAL_ERR_NONFATAL 0")?;
        put(&own, "aer_dev_fatal", "TOTAL_ERR_FATAL 0")?;
    }
    let mut intr = String::from("intr 0");
    let mut line = |count: u64| {
        let _ = write!(intr, " {count}");
    };
    (0..24).for_each(|_| line(0));
    for function in &FUNCTIONS {
        for vector in 0..function.vectors {
            // Ports interrupt for errors alone, devices on each queue a little less than on the one before.
            let is_port = function.driver == "pcieport";
            line(if is_port { 0 } else { (INTERRUPTS.sum(seconds) / f64::from(vector + 2)) as u64 });
        }
    }
    put(at, "proc/stat", &format!("cpu  0 0 0 0 0 0 0 0 0 0\n{intr}"))
}
