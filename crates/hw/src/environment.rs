//! The properties of the machine that a reader of its figures must know. [`crate::check`] says which of them harm a
//! measurement.

use std::collections::BTreeSet;

use pciescope_core::{Bdf, Environment, Function};

use crate::{Root, host, pci, topology};

/// Everything about the machine that moves a latency, as far as it can be found out.
///
/// `steal_ns` is left empty: the records of a run carry it per CPU.
pub fn read(root: &Root) -> Environment {
    Environment {
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: root.text("/proc/sys/kernel/osrelease").unwrap_or_default(),
        machine: machine(root),
        product: product(root),
        host: host::host(root),
        bios_version: dmi(root, "bios_version"),
        bios_date: dmi(root, "bios_date"),
        firmware: host::firmware(root),
        slots: host::slots(root),
        cpu_model: cpu_model(root),
        cpus: topology::cpus(root).unwrap_or_default(),
        boot_id: root.text("/proc/sys/kernel/random/boot_id"),
        cmdline: root.text("/proc/cmdline"),
        clocksource: root.text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        governors: governors(root),
        idle_states: idle_states(root).into_iter().map(|state| state.name).collect(),
        aspm_policy: root.text("/sys/module/pcie_aspm/parameters/policy").and_then(|text| chosen(&text)),
        lockdown: root.text("/sys/kernel/security/lockdown").and_then(|text| chosen(&text)),
        iommu_groups: root.names("/sys/kernel/iommu_groups").len() as u32,
        hypervisor: hypervisor(root),
        steal_ns: None,
    }
}

/// An idle state that is enabled on CPU 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleState {
    /// Name as the driver gives it: `POLL`, `C1E`, `WFI`.
    pub name: String,
    /// Time to leave it, in microseconds.
    pub exit_us: u64,
}

/// The idle states that are enabled on CPU 0, shallow to deep.
pub fn idle_states(root: &Root) -> Vec<IdleState> {
    let folder = "/sys/devices/system/cpu/cpu0/cpuidle";
    let mut numbers: Vec<u32> =
        root.names(folder).iter().filter_map(|name| name.strip_prefix("state")?.parse().ok()).collect();
    numbers.sort_unstable();
    let state = |number: u32| {
        let at = format!("{folder}/state{number}");
        let is_enabled = root.number(format!("{at}/disable")).unwrap_or(0) == 0;
        let name = root.text(format!("{at}/name"))?;
        is_enabled.then(|| IdleState { name, exit_us: root.number(format!("{at}/latency")).unwrap_or(0) })
    };
    numbers.into_iter().filter_map(state).collect()
}

/// The frequency governors in use, each once.
fn governors(root: &Root) -> Vec<String> {
    let folder = "/sys/devices/system/cpu/cpufreq";
    let policies = root.names(folder).into_iter().filter(|name| name.starts_with("policy"));
    let mut all: Vec<String> =
        policies.filter_map(|policy| root.text(format!("{folder}/{policy}/scaling_governor"))).collect();
    all.sort();
    all.dedup();
    all
}

/// The word in brackets of `default [performance] powersave`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

pub(crate) fn machine(root: &Root) -> String {
    // The file is there from Linux 6.1 on.
    if let Some(arch) = root.text("/proc/sys/kernel/arch") {
        return arch;
    }
    let cpuinfo = root.text("/proc/cpuinfo").unwrap_or_default();
    match () {
        () if root.is_live() => std::env::consts::ARCH.to_owned(),
        () if cpuinfo.contains("CPU implementer") => "aarch64".to_owned(),
        () if cpuinfo.contains("vendor_id") => "x86_64".to_owned(),
        () => String::new(),
    }
}

/// What the machine's firmware says of it.
pub(crate) fn dmi(root: &Root, field: &str) -> Option<String> {
    root.text(format!("/sys/class/dmi/id/{field}")).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// A string of the device tree, without the NUL at its end.
fn device_tree(root: &Root, property: &str) -> Option<String> {
    let text = root.text(format!("/proc/device-tree/{property}"))?;
    text.split('\0').next().map(str::to_owned).filter(|text| !text.is_empty())
}

fn product(root: &Root) -> Option<String> {
    match (dmi(root, "sys_vendor"), dmi(root, "product_name")) {
        (Some(vendor), Some(product)) => Some(format!("{vendor} {product}")),
        (Some(one), None) | (None, Some(one)) => Some(one),
        (None, None) => device_tree(root, "model"),
    }
}

fn cpu_model(root: &Root) -> Option<String> {
    let cpuinfo = root.text("/proc/cpuinfo")?;
    let field = |name: &str| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
    };
    field("model name").or_else(|| Some(arm_model(&field("CPU implementer")?, &field("CPU part")?)))
}

/// Arm CPUs have numbers only: implementer, part, name. Source: arch/arm64/include/asm/cputype.h; QEMU's docs/system/arm.
const ARM_MODELS: &[(&str, &str, &str)] = &[
    ("0x00", "0x051", "QEMU's Arm CPU `max`"),
    ("0x41", "0xd03", "Arm Cortex-A53"),
    ("0x41", "0xd05", "Arm Cortex-A55"),
    ("0x41", "0xd07", "Arm Cortex-A57"),
    ("0x41", "0xd08", "Arm Cortex-A72"),
    ("0x41", "0xd09", "Arm Cortex-A73"),
    ("0x41", "0xd0b", "Arm Cortex-A76"),
    ("0x41", "0xd0c", "Arm Neoverse N1"),
    ("0x41", "0xd40", "Arm Neoverse V1"),
    ("0x41", "0xd49", "Arm Neoverse N2"),
    ("0x41", "0xd4f", "Arm Neoverse V2"),
    ("0x41", "0xd83", "Arm Neoverse V3AE"),
    ("0x41", "0xd84", "Arm Neoverse V3"),
    ("0x41", "0xd8e", "Arm Neoverse N3"),
    ("0x43", "0x0a1", "Cavium ThunderX"),
    ("0x43", "0x0af", "Cavium ThunderX2"),
    ("0x46", "0x001", "Fujitsu A64FX"),
    ("0x48", "0xd01", "HiSilicon TSV110"),
    ("0x48", "0xd02", "HiSilicon HIP09"),
    ("0x50", "0x000", "APM X-Gene"),
    ("0x51", "0xc00", "Qualcomm Falkor"),
    ("0x6d", "0xd49", "Microsoft Azure Cobalt 100"),
    ("0xc0", "0xac3", "Ampere-1"),
    ("0xc0", "0xac4", "Ampere-1a"),
];

fn arm_model(implementer: &str, part: &str) -> String {
    let known = ARM_MODELS.iter().find(|model| (model.0, model.1) == (implementer, part));
    known.map_or_else(|| format!("Arm CPU, implementer {implementer} part {part}"), |model| model.2.to_owned())
}

/// The kinds of IOMMU that the kernel drives, each once.
pub fn iommus(root: &Root) -> Vec<&'static str> {
    let kind = |name: &String| match name {
        name if name.starts_with("dmar") => Some("Intel VT-d"),
        name if name.starts_with("ivhd") => Some("AMD-Vi"),
        name if name.starts_with("smmu3.") => Some("Arm SMMUv3"),
        name if name.starts_with("smmu.") => Some("Arm SMMU"),
        // Linux calls it after its bus: the address of its PCI function, or the name of a platform device.
        name if name.parse::<Bdf>().is_ok() || name.contains("virtio") => Some("virtio-iommu"),
        _ => None,
    };
    let kinds: BTreeSet<&str> = root.names("/sys/class/iommu").iter().filter_map(kind).collect();
    kinds.into_iter().collect()
}

/// Arm's interrupt controllers by the kernel's names, `GICv3` and `ITS` (which takes message interrupts); empty elsewhere.
pub fn interrupt_controllers(root: &Root) -> Vec<String> {
    let text = root.text("/proc/interrupts").unwrap_or_default();
    let names = text.split_whitespace().filter(|word| word.starts_with("GIC") || word.starts_with("ITS-"));
    let names: BTreeSet<String> = names.map(|name| name.split('-').next().unwrap_or(name).to_owned()).collect();
    names.into_iter().collect()
}

/// DMI vendors and products of machines that are guests; the product is matched as a part.
const GUESTS: &[(&str, &str)] = &[
    ("QEMU", ""),
    ("KVM", ""),
    ("Red Hat", "KVM"),
    ("VMware", ""),
    ("innotek GmbH", ""),
    ("Xen", ""),
    ("Microsoft Corporation", "Virtual Machine"),
    ("OpenStack", ""),
    ("Parallels", ""),
    ("Alibaba Cloud", "ECS"),
    ("Google", "Google Compute Engine"),
    ("Apple Inc.", "Apple Virtualization"),
    ("Amazon EC2", ""),
];

/// A word in the names of those products of cloud vendors that are whole machines, such as `m7g.metal`.
const BARE_METAL: &str = "metal";

/// Why the machine is taken for a guest; `None` where it looks like bare metal.
pub fn hypervisor(root: &Root) -> Option<String> {
    if let Some(kind) = root.text("/sys/hypervisor/type") {
        return Some(format!("/sys/hypervisor/type says {kind}"));
    }
    let (vendor, product) =
        (dmi(root, "sys_vendor").unwrap_or_default(), dmi(root, "product_name").unwrap_or_default());
    let is_known = GUESTS.iter().any(|(maker, model)| vendor.starts_with(maker) && product.contains(model));
    if is_known && !product.contains(BARE_METAL) {
        return Some(format!("the machine calls itself {vendor} {product}").trim_end().to_owned());
    }
    let cpuinfo = root.text("/proc/cpuinfo").unwrap_or_default();
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    if flags.split_whitespace().any(|flag| flag == "hypervisor") {
        return Some("the CPU has the flag `hypervisor`".to_owned());
    }
    if let Some(model) = device_tree(root, "model").filter(|model| model == "linux,dummy-virt") {
        return Some(format!("the device tree's model is {model}"));
    }
    if let Some(kind) = device_tree(root, "hypervisor/compatible") {
        return Some(format!("the device tree names the hypervisor {kind}"));
    }
    let host_bridge = pci::addresses(root).into_iter().find(|bdf| {
        let at = pci::folder(*bdf);
        root.number(at.join("vendor")) == Some(QEMU.into()) && root.number(at.join("device")) == Some(0x0008)
    });
    host_bridge.map(|bdf| format!("{bdf} is QEMU's host bridge"))
}

const QEMU: u16 = 0x1b36;

/// Why a function is taken for an emulated one; `guest` is what [`hypervisor`] says of its machine.
///
/// In a guest a function that nothing gives away may be passed through or emulated: it cannot be told, and the
/// text says so.
pub fn emulated(guest: Option<&str>, function: &Function) -> Option<String> {
    let by_vendor = match function.vendor {
        QEMU => Some("a device of QEMU"),
        0x1234 => Some("a device of QEMU, Bochs or the lab"),
        0x15ad => Some("a device of VMware"),
        0x80ee => Some("a device of VirtualBox"),
        0x5853 => Some("a device of Xen"),
        // On bare metal a real card may speak virtio.
        0x1af4 if guest.is_some() => Some("virtio"),
        _ => None,
    };
    if let Some(what) = by_vendor {
        return Some(format!("vendor ID {:04x}: {what}", function.vendor));
    }
    let subsystem = (function.subsystem_vendor, function.subsystem_device);
    // QEMU gives its e1000e the maker's own subsystem vendor, with an ID that no card has.
    if guest.is_some() && (function.vendor, function.device) == (0x8086, 0x10d3) && subsystem == (0x8086, 0) {
        return Some("subsystem ID 8086:0000: emulated by QEMU".to_owned());
    }
    let by_subsystem = match subsystem {
        (0x1af4, 0x1100) => Some("QEMU"),
        (0x15ad, _) => Some("VMware"),
        (0x80ee, _) => Some("VirtualBox"),
        (0x1ab8, _) => Some("Parallels"),
        _ => None,
    };
    if let Some(who) = by_subsystem {
        return Some(format!(
            "subsystem ID {:04x}:{:04x}: emulated by {who}",
            function.subsystem_vendor, function.subsystem_device
        ));
    }
    guest.map(|why| format!("{why}; passed through or emulated cannot be told"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::Tree;

    #[test]
    fn knows_a_guest_by_several_marks_and_bare_metal_by_none() {
        let vendor = "/sys/class/dmi/id/sys_vendor";
        let product = "/sys/class/dmi/id/product_name";
        for files in [
            vec![("/sys/hypervisor/type", "xen\n")],
            vec![(vendor, "QEMU\n"), (product, "Standard PC (Q35 + ICH9, 2009)\n")],
            vec![(vendor, "VMware, Inc.\n"), (product, "VMware20,1\n")],
            vec![(vendor, "Microsoft Corporation\n"), (product, "Virtual Machine\n")],
            vec![(vendor, "Amazon EC2\n"), (product, "m7g.large\n")],
            vec![(vendor, "Google\n"), (product, "Google Compute Engine\n")],
            vec![(vendor, "Apple Inc.\n"), (product, "Apple Virtualization Generic Platform\n")],
            vec![("/proc/cpuinfo", "flags\t\t: fpu tsc hypervisor lm\n")],
            vec![("/proc/device-tree/model", "linux,dummy-virt\0")],
            vec![("/proc/device-tree/hypervisor/compatible", "xen,xen-4.17\0xen,xen\0")],
            vec![
                ("/sys/bus/pci/devices/0000:00:00.0/vendor", "0x1b36\n"),
                ("/sys/bus/pci/devices/0000:00:00.0/device", "0x0008\n"),
            ],
        ] {
            assert!(hypervisor(&Tree::of(&files)).is_some(), "{files:?}");
        }
        for files in [
            vec![(vendor, "Microsoft Corporation\n"), (product, "Surface Laptop\n")],
            vec![(vendor, "Amazon EC2\n"), (product, "c7i.metal-24xl\n")],
            vec![(vendor, "Amazon EC2\n"), (product, "m7g.metal\n")],
            vec![(vendor, "Google\n"), (product, "Grunt\n")],
            vec![(vendor, "Apple Inc.\n"), (product, "Macmini9,1\n")],
            vec![("/proc/cpuinfo", "flags\t\t: fpu tsc lm\nbugs\t: hypervisor\n")],
            vec![],
        ] {
            assert_eq!(hypervisor(&Tree::of(&files)), None, "{files:?}");
        }
    }

    #[test]
    fn names_iommus_and_arms_interrupt_controllers() {
        let interrupts = "           CPU0\n 11:  7 GICv3  27 Level     arch_timer\n 48:  2 ITS-PCI-MSIX-0000:00:1d.0   0 Edge virtio0\nIPI0: 3 Rescheduling\n";
        let root = Tree::of(&[("/proc/interrupts", interrupts), ("/sys/class/iommu/smmu3.0x9050000/type", "")]);
        root.folder("sys/class/iommu/smmu3.0xa000000");
        assert_eq!(interrupt_controllers(&root), ["GICv3", "ITS"]);
        assert_eq!(iommus(&root), ["Arm SMMUv3"]);
        let root = Tree::of(&[("/proc/interrupts", " 0: 7 IO-APIC 2-edge timer\n")]);
        assert!(interrupt_controllers(&root).is_empty() && iommus(&root).is_empty());
        for (name, kind) in
            [("0000:00:1c.0", "virtio-iommu"), ("a003e00.virtio_mmio", "virtio-iommu"), ("dmar0", "Intel VT-d")]
        {
            let root = Tree::of(&[(&format!("/sys/class/iommu/{name}/type"), "")]);
            assert_eq!(iommus(&root), [kind], "{name}");
        }
    }

    #[test]
    fn tells_emulated_real_and_doubtful_functions_apart() {
        let function = |vendor, subsystem_vendor, subsystem_device| Function {
            vendor,
            subsystem_vendor,
            subsystem_device,
            ..Function::default()
        };
        let (bare, guest) = (None, Some("the CPU has the flag `hypervisor`"));
        assert!(emulated(bare, &function(0x1b36, 0, 0)).unwrap().contains("QEMU"));
        assert!(emulated(bare, &function(0x8086, 0x1af4, 0x1100)).unwrap().contains("QEMU"));
        assert!(emulated(guest, &function(0x8086, 0x15ad, 0x07d0)).unwrap().contains("VMware"));
        assert!(emulated(guest, &function(0x8086, 0x8086, 0x0001)).unwrap().contains("cannot be told"));
        assert_eq!(emulated(bare, &function(0x8086, 0x8086, 0x0001)), None);
        // A real card that speaks virtio, and a virtio device of a guest.
        assert_eq!(emulated(bare, &function(0x1af4, 0x1af4, 0x0041)), None);
        assert!(emulated(guest, &function(0x1af4, 0x1af4, 0x0041)).unwrap().contains("virtio"));
    }

    #[test]
    fn takes_the_word_in_brackets() {
        assert_eq!(chosen("none [integrity] confidentiality").as_deref(), Some("integrity"));
        assert_eq!(chosen("none"), None);
        assert_eq!(chosen("[none"), None);
    }
}
