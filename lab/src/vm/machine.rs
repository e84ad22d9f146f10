//! The virtual machine's devices, and the QEMU arguments that make them.

use std::path::{Path, PathBuf};

use super::LabError;

/// A PCIe function of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Device {
    /// Intel 82574L network card (8086:10d3).
    E1000e,
    /// Intel 82576 network card (8086:10c9).
    Igb,
    /// QEMU's educational device (1234:11e8).
    Edu,
    /// NVMe drive with a namespace of 16 MiB of zeros (1b36:0010).
    Nvme,
    /// Shared memory of 1 MiB in BAR2 (1af4:1110).
    Ivshmem,
    /// A device that is served over vfio-user on this socket.
    VfioUser(PathBuf),
    /// Any other QEMU device: its driver and properties, without bus and id.
    Other(String),
}

/// Where a function is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Place {
    /// Behind a root port of its own; it can be hot-unplugged.
    #[default]
    RootPort,
    /// Behind a downstream port of the machine's one switch.
    Switch,
    /// On the root bus, beside the root ports.
    RootBus,
}

/// A function with the name by which `device_del` and [`super::Vm::address_of`] know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Its name.
    pub name: String,
    /// What it is.
    pub device: Device,
    /// Where it is.
    pub place: Place,
}

/// The machine of the suite and the demo, without the endpoints that are served over vfio-user: two network cards, an
/// NVMe drive and an edu behind root ports, a second edu behind the switch, shared memory on the root bus.
pub fn standard_machine() -> Vec<Slot> {
    [
        ("e1000e0", Device::E1000e, Place::RootPort),
        ("igb0", Device::Igb, Place::RootPort),
        ("nvme0", Device::Nvme, Place::RootPort),
        ("edu0", Device::Edu, Place::RootPort),
        ("edu1", Device::Edu, Place::Switch),
        ("ivshmem0", Device::Ivshmem, Place::RootBus),
    ]
    .map(|(name, device, place)| Slot { name: name.into(), device, place })
    .into()
}

/// QEMU's arguments for the devices. `folder` takes the files that back them.
pub(super) fn args(slots: &[Slot], folder: &Path) -> Result<Vec<String>, LabError> {
    let mut args = Args::default();
    for (index, slot) in slots.iter().enumerate() {
        if slots[..index].iter().any(|other| other.name == slot.name) {
            return Err(LabError::Refused(format!("two devices of the machine are named {}", slot.name)));
        }
        let bus = match slot.place {
            Place::RootBus => "pcie.0".to_owned(),
            Place::RootPort => args.root_port(&slot.name),
            Place::Switch => args.downstream_port(&slot.name),
        };
        args.endpoint(slot, &bus, folder);
    }
    Ok(args.list)
}

#[derive(Default)]
struct Args {
    list: Vec<String>,
    ports: u32,
    has_switch: bool,
}

impl Args {
    fn device(&mut self, text: String) {
        self.list.extend(["-device".into(), text]);
    }

    /// Root ports take the slots from 4 up, so that a machine's addresses do not depend on what else QEMU adds.
    fn root_port(&mut self, name: &str) -> String {
        self.ports += 1;
        let (chassis, slot) = (self.ports, self.ports + 3);
        self.device(format!("pcie-root-port,id=port-{name},bus=pcie.0,chassis={chassis},addr={slot:#x}"));
        format!("port-{name}")
    }

    fn downstream_port(&mut self, name: &str) -> String {
        if !self.has_switch {
            let bus = self.root_port("switch");
            self.device(format!("x3130-upstream,id=switch,bus={bus}"));
            self.has_switch = true;
        }
        self.ports += 1;
        let chassis = self.ports;
        self.device(format!("xio3130-downstream,id=port-{name},bus=switch,chassis={chassis},slot={chassis}"));
        format!("port-{name}")
    }

    fn endpoint(&mut self, slot: &Slot, bus: &str, folder: &Path) {
        let name = &slot.name;
        let (driver, before) = match &slot.device {
            Device::E1000e => network_card("e1000e", name),
            Device::Igb => network_card("igb", name),
            Device::Edu => ("edu".to_owned(), None),
            Device::Nvme => {
                let file = folder.join(format!("{name}.raw"));
                (
                    format!("nvme,serial={name},drive=drive-{name}"),
                    Some(("-drive", format!("id=drive-{name},if=none,format=raw,file={}", file.display()))),
                )
            }
            Device::Ivshmem => (
                format!("ivshmem-plain,memdev=memory-{name}"),
                Some(("-object", format!("memory-backend-ram,id=memory-{name},size=1M,share=on"))),
            ),
            Device::VfioUser(socket) => {
                // This driver takes its socket only in the JSON form.
                let json = serde_json::json!({
                    "driver": "vfio-user-pci", "id": name, "bus": bus,
                    "socket": { "type": "unix", "path": socket },
                });
                return self.device(json.to_string());
            }
            Device::Other(text) => (text.clone(), None),
        };
        if let Some((option, value)) = before {
            self.list.extend([option.into(), value]);
        }
        self.device(format!("{driver},id={name},bus={bus}"));
    }
}

/// A network card with a link to a network of its own, and without the boot ROM that would only slow the firmware.
fn network_card(driver: &str, name: &str) -> (String, Option<(&'static str, String)>) {
    (format!("{driver},romfile=,netdev=net-{name}"), Some(("-netdev", format!("user,id=net-{name},restrict=on"))))
}

/// Files that back the devices: (name, bytes).
pub(super) fn files(slots: &[Slot]) -> Vec<(String, u64)> {
    slots
        .iter()
        .filter(|slot| slot.device == Device::Nvme)
        .map(|slot| (format!("{}.raw", slot.name), 16 << 20))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(name: &str, device: Device, place: Place) -> Slot {
        Slot { name: name.into(), device, place }
    }

    #[test]
    fn devices_behind_the_switch_share_one_upstream_port() {
        let slots = [slot("a", Device::Edu, Place::Switch), slot("b", Device::Edu, Place::Switch)];
        let args = args(&slots, Path::new("/")).unwrap();
        assert_eq!(args.iter().filter(|arg| arg.starts_with("x3130-upstream")).count(), 1);
        assert!(args.contains(&"edu,id=b,bus=port-b".to_owned()));
    }

    #[test]
    fn refuses_two_devices_of_one_name() {
        let slots = [slot("a", Device::Edu, Place::RootBus), slot("a", Device::Igb, Place::RootBus)];
        assert_eq!(args(&slots, Path::new("/")).unwrap_err().to_string(), "two devices of the machine are named a");
    }
}
