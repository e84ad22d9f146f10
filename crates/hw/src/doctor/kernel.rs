//! Checks: the kernel's command line, and what the kernel permits.

use std::io::ErrorKind;

use pciescope_core::Severity;

use super::case::{AS_ROOT, Found, Machine, Verdict, WITH_PROC, fine, found, not_applicable, not_checked, seen};

pub fn mitigations(machine: &Machine) -> Verdict {
    let folder = "/sys/devices/system/cpu/vulnerabilities";
    let text_of = |name: &String| Some((name.clone(), machine.root.text(format!("{folder}/{name}"))?));
    let all: Vec<(String, String)> = machine.root.names(folder).iter().filter_map(text_of).collect();
    let on: Vec<&(String, String)> = all.iter().filter(|(_, text)| text.starts_with("Mitigation")).collect();
    if all.is_empty() {
        return not_applicable(format!("there is no {folder}"));
    }
    let Some((name, text)) = on.first() else { return fine() };
    found(Found {
        severity: Severity::Note,
        text: format!("{} mitigations of CPU faults are on", on.len()),
        evidence: vec![seen(&format!("{folder}/{name}"), text)],
        consequence: "system calls and interrupts cost more than on a machine without; reads of registers hardly",
        remedy: "compare only runs with the same setting; mitigations=off is for machines that nobody else uses",
    })
}

const TAKE_OUT: &str = "take it out of the boot loader's configuration, unless a device needs it";
const UNKNOWN: &str =
    "the kernel has no such option and passes over it (Unknown option): DMA is translated as without it";
const PASS_THROUGH: &str = "write iommu=pt instead, or on every architecture iommu.passthrough=1";

/// Kernel options that take something away from PCIe, or that are none (amd_iommu= and intel_iommu= have words of their
/// own in the kernel's kernel-parameters.txt); what they do, and what to do.
const OPTIONS: &[(&str, &str, &str, &str)] = &[
    ("pci=", "nomsi", "no message-signalled interrupts: all devices share a few lines", TAKE_OUT),
    ("pci=", "noaer", "errors of links are not counted", TAKE_OUT),
    ("pci=", "noacs", "no access control", TAKE_OUT),
    ("pci=", "conf1", "no extended configuration space", TAKE_OUT),
    ("pci=", "nommconf", "no extended configuration space", TAKE_OUT),
    ("pci=", "pcie_bus_peer2peer", "payloads of 128 bytes everywhere", TAKE_OUT),
    ("pcie_ports=", "compat", "no AER, hotplug and link services", TAKE_OUT),
    ("pcie_aspm=", "force", "links sleep although the firmware says that they cannot", TAKE_OUT),
    ("amd_iommu=", "pt", UNKNOWN, PASS_THROUGH),
    ("intel_iommu=", "pt", UNKNOWN, PASS_THROUGH),
    ("amd_iommu=", "on", UNKNOWN, "take it out: without it the IOMMU of an AMD machine is on too"),
];

pub fn pci_options(machine: &Machine) -> Verdict {
    let Some(cmdline) = machine.environment.cmdline.as_deref() else {
        return not_checked("/proc/cmdline cannot be read", WITH_PROC);
    };
    let mut all = Vec::new();
    for (key, value, effect, cure) in OPTIONS {
        let is_set =
            |word: &str| word.strip_prefix(key).is_some_and(|values| values.split(',').any(|one| one == *value));
        let Some(word) = cmdline.split_whitespace().take_while(|word| *word != "--").find(|word| is_set(word)) else {
            continue;
        };
        all.push(Found {
            // An option that says what is so anyway harms nobody.
            severity: if *value == "on" { Severity::Note } else { Severity::Warning },
            text: format!("the kernel was started with {key}{value}"),
            evidence: vec![seen("/proc/cmdline", word)],
            consequence: (*effect).to_owned(),
            remedy: (*cure).to_owned(),
        });
    }
    Ok(all)
}

pub(super) const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

pub fn lockdown(machine: &Machine) -> Verdict {
    machine.file(LOCKDOWN)?;
    let Some(level) = machine.environment.lockdown.as_deref().filter(|level| *level != "none") else { return fine() };
    found(Found {
        severity: Severity::Note,
        text: format!("the kernel is locked down ({level})"),
        evidence: vec![machine.seen(LOCKDOWN)],
        consequence: "registers cannot be mapped by `resource`, setpci cannot write, and modules must be signed",
        remedy: "measure with a signed pcilat or through vfio; lockdown ends with Secure Boot off and without lockdown= at boot",
    })
}

/// UEFI's own variables (UEFI specification, 3.3, globally defined variables).
const SECURE_BOOT: &str = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
/// What scripts/sign-file.c writes at the very end of a module.
const SIGNATURE_MARK: &[u8] = b"~Module signature appended~\n";

pub fn module_unsigned(machine: &Machine) -> Verdict {
    // Four bytes of attributes, then one of value.
    match std::fs::read(machine.root.path(SECURE_BOOT)) {
        Ok(bytes) if bytes.get(4) == Some(&1) => {}
        Ok(_) => return fine(),
        Err(why) if why.kind() == ErrorKind::NotFound => {
            return not_applicable("the firmware has no Secure Boot, or did not start the machine by UEFI");
        }
        Err(why) => return not_checked(format!("{SECURE_BOOT}: {why}"), AS_ROOT),
    }
    let base = format!("/lib/modules/{}", machine.environment.kernel);
    for folder in ["updates/dkms", "updates", "extra"] {
        let path = format!("{base}/{folder}/pcilat.ko");
        let packed = ["xz", "zst", "gz"].map(|ending| format!("{path}.{ending}"));
        if let Some(packed) = packed.iter().find(|packed| machine.root.exists(packed)) {
            return not_checked(
                format!("{packed} is compressed"),
                "modinfo -F signer pcilat names who signed it, nothing where nobody did",
            );
        }
        let Ok(bytes) = std::fs::read(machine.root.path(&path)) else { continue };
        if bytes.ends_with(SIGNATURE_MARK) {
            return fine();
        }
        return found(Found {
            severity: Severity::Warning,
            text: "Secure Boot is on and the module pcilat is not signed",
            evidence: vec![seen(SECURE_BOOT, "1"), seen(&path, "no signature at its end")],
            consequence: "the kernel refuses the module, and with it the exact way to measure",
            remedy: "install openssl; dkms remove pciescope-pcilat/VERSION --all, then dkms install pciescope-pcilat/VERSION, \
                     which signs it (dkms status shows VERSION); mokutil --import /var/lib/dkms/mok.pub (Ubuntu: \
                     /var/lib/shim-signed/mok/MOK.der), reboot, enrol the key",
        });
    }
    not_applicable("the module pcilat is not installed for this kernel")
}

pub fn perf_paranoid(machine: &Machine) -> Verdict {
    let path = "/proc/sys/kernel/perf_event_paranoid";
    let Some(level) = machine.file(path)?.parse::<i64>().ok().filter(|level| *level > 0) else { return fine() };
    found(Found {
        severity: Severity::Note,
        text: format!(
            "only root and CAP_PERFMON may read counters of ports and memory (perf_event_paranoid is {level})"
        ),
        evidence: vec![machine.seen(path)],
        consequence: "other users see in `pciescope stat` and `top` only what the kernel itself counted, and `latency --why` has no tracepoints",
        remedy: "sysctl kernel.perf_event_paranoid=0, or give the program CAP_PERFMON (setcap cap_perfmon+ep)",
    })
}
