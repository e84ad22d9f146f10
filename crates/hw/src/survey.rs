//! Which backends could measure a function, judged from the trees alone: nothing is opened and nothing changed.

use pciescope_core::Function;
use serde::Serialize;

use crate::bind::{Driver, group_mates};
use crate::{Root, pci};

/// What speaks for or against a backend on one function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Availability {
    /// The backend's name: `kmod`, `vfio`, `resource`, `sysfs`.
    pub backend: &'static str,
    /// Whether it could measure, with the right privilege and after the binding that `why` names.
    pub usable: bool,
    /// What it can do or what it needs, or why it cannot.
    pub why: String,
}

/// Every backend with its chances, the best first.
pub fn backends(root: &Root, function: &Function) -> Vec<Availability> {
    let judge = |backend, judgement: Result<String, String>| match judgement {
        Ok(why) => Availability { backend, usable: true, why },
        Err(why) => Availability { backend, usable: false, why },
    };
    vec![
        judge("kmod", kmod(root, function)),
        judge("vfio", vfio(root, function)),
        judge("resource", resource(root, function)),
        judge("sysfs", sysfs(root, function)),
    ]
}

const BRIDGE: &str = "bridges are measured as hops of a path only";

fn kmod(root: &Root, function: &Function) -> Result<String, String> {
    if function.class >> 16 == 0x06 {
        return Err(BRIDGE.to_owned());
    }
    with_driver(root, function, Driver::Pcilat)
}

fn vfio(root: &Root, function: &Function) -> Result<String, String> {
    if function.class >> 16 == 0x06 {
        return Err(BRIDGE.to_owned());
    }
    let (Some(bdf), Some(group)) = (function.bdf, function.iommu_group) else {
        return Err("the function is in no IOMMU group".to_owned());
    };
    let mates = group_mates(root, bdf, group);
    if !mates.is_empty() {
        return Err(format!("IOMMU group {group} also holds {}", mates.join(", ")));
    }
    with_driver(root, function, Driver::VfioPci)
}

fn with_driver(root: &Root, function: &Function, driver: Driver) -> Result<String, String> {
    match &function.driver {
        Some(bound) if bound == driver.name() => Ok("bound".to_owned()),
        _ if driver.is_loaded(root) => Ok(format!("after it is bound to {driver}")),
        _ => Err(format!("the driver {driver} is not loaded")),
    }
}

fn resource(root: &Root, function: &Function) -> Result<String, String> {
    if function.class >> 16 == 0x06 {
        return Err(BRIDGE.to_owned());
    }
    if !function.bars.iter().any(|bar| bar.is_memory) {
        return Err("the function has no memory BAR".to_owned());
    }
    let lockdown = root.text("/sys/kernel/security/lockdown").unwrap_or_default();
    if lockdown.contains("[integrity]") || lockdown.contains("[confidentiality]") {
        return Err("kernel lockdown forbids to map BARs".to_owned());
    }
    match &function.driver {
        Some(driver) => Err(format!("the driver {driver} holds the BARs, and most kernels forbid to map them then")),
        None => Ok("reads and writes from user space".to_owned()),
    }
}

fn sysfs(root: &Root, function: &Function) -> Result<String, String> {
    match function.bdf {
        Some(bdf) if root.exists(pci::folder(bdf).join("config")) => {
            Ok("configuration reads along the path, coarse".to_owned())
        }
        _ => Err("there is no file `config`".to_owned()),
    }
}
