//! The virtual machine's devices, and the QEMU arguments that make them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pciescope_core::Bdf;

use super::LabError;

/// A PCIe function of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GuestDevice {
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
pub enum Attachment {
    /// Behind a root port of its own; it can be hot-unplugged.
    #[default]
    RootPort,
    /// Behind a downstream port of the machine's one switch.
    Switch,
    /// Behind a downstream port of the switch that is this physical slot.
    SwitchSlot(u16),
    /// On the root bus, beside the root ports.
    RootBus,
    /// Behind the root port at this address, one of [`super::Builder::root_ports`].
    Port(Bdf),
}

/// A root port at an address of its own, on the root bus or, for any other bus, on an expander bridge (pxb-pcie).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootPort {
    /// Where it stands: domain 0, function 0.
    pub address: Bdf,
    /// PCIe generation that its link can do, 1 (2.5 GT/s) to 6 (64 GT/s).
    pub generation: u8,
    /// Lanes: 1, 2, 4, 8, 16 or 32.
    pub width: u8,
    /// NUMA node of its bus, where the machine has several; the root bus has none, and the first port of a bus decides.
    pub node: Option<u32>,
}

impl RootPort {
    /// The name by which QEMU knows it.
    pub fn name(&self) -> String {
        port_name(self.address)
    }
}

/// A name of QEMU's may not hold colons.
fn port_name(address: Bdf) -> String {
    format!("port-{:02x}-{:02x}.{:x}", address.bus, address.device, address.function)
}

/// A function with the name by which `device_del` and [`super::Vm::address_of`] know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Its name.
    pub name: String,
    /// What it is.
    pub device: GuestDevice,
    /// Where it is.
    pub place: Attachment,
}

/// The machine of the suite and the demo, without the endpoints that are served over vfio-user: two network cards, an
/// NVMe drive and an edu behind root ports, a second edu behind the switch, shared memory on the root bus.
pub fn standard_machine() -> Vec<Slot> {
    [
        ("e1000e0", GuestDevice::E1000e, Attachment::RootPort),
        ("igb0", GuestDevice::Igb, Attachment::RootPort),
        ("nvme0", GuestDevice::Nvme, Attachment::RootPort),
        ("edu0", GuestDevice::Edu, Attachment::RootPort),
        ("edu1", GuestDevice::Edu, Attachment::Switch),
        ("ivshmem0", GuestDevice::Ivshmem, Attachment::RootBus),
    ]
    .map(|(name, device, place)| Slot { name: name.into(), device, place })
    .into()
}

/// The root ports of the counters' seed, a machine with 9 root ports on each of 2 dies: 16 of x4 on the buses 00, 10, 30 and
/// 80, one of x16 on 98 and on b0, all Gen5. QEMU's host bridge sits at 00:00.0, so the first port of bus 00 stands at
/// 00:04.0. Which bus belongs to which die is not known; 00, 10 and 98 are on node 0 here.
pub fn seed_machine() -> Vec<RootPort> {
    let port = |bus, device, width, node| RootPort {
        address: Bdf { domain: 0, bus, device, function: 0 },
        generation: 5,
        width,
        node: Some(node),
    };
    let x4 = [(0x00, 0), (0x10, 0), (0x30, 1), (0x80, 1)];
    let four = |(bus, node)| {
        let first = if bus == 0 { 1 } else { 0 };
        (first..first + 4).map(move |device| port(bus, device, 4, node))
    };
    x4.into_iter().flat_map(four).chain([port(0x98, 0, 16, 0), port(0xb0, 0, 16, 1)]).collect()
}

/// QEMU's arguments for the devices. `folder` takes the files that back them.
pub(super) fn args(ports: &[RootPort], nodes: u32, slots: &[Slot], folder: &Path) -> Result<Vec<String>, LabError> {
    let mut args = Args::default();
    // First: their addresses are given.
    args.named_ports(ports, nodes)?;
    for (index, slot) in slots.iter().enumerate() {
        if slots[..index].iter().any(|other| other.name == slot.name) {
            return Err(LabError::Refused(format!("two devices of the machine are named {}", slot.name)));
        }
        let bus = match slot.place {
            Attachment::RootBus => format!("pcie.0,addr={:#x}", args.take_slot(1)?),
            Attachment::RootPort => args.root_port(&slot.name)?,
            Attachment::Switch => args.downstream_port(&slot.name, None)?,
            Attachment::SwitchSlot(number) => args.downstream_port(&slot.name, Some(number))?,
            Attachment::Port(address) => args.behind(&slot.name, address)?,
        };
        args.endpoint(slot, &bus, folder);
    }
    Ok(args.list)
}

/// Slots of the root bus from here up belong to the expander bridges and the lab's own plumbing.
const LAST_SLOT: u8 = 0x17;

#[derive(Default)]
struct Args {
    list: Vec<String>,
    /// Root ports and downstream ports so far: each has a chassis of its own.
    ports: u32,
    has_switch: bool,
    /// Physical slots of the switch that are taken.
    slots: BTreeSet<u32>,
    /// Slots of the root bus that are taken.
    taken: BTreeSet<u8>,
    /// Root ports at given addresses that have nothing behind them.
    vacant: BTreeSet<Bdf>,
}

impl Args {
    fn device(&mut self, text: String) {
        self.list.extend(["-device".into(), text]);
    }

    /// The first free slot of the root bus from `first` on.
    fn take_slot(&mut self, first: u8) -> Result<u8, LabError> {
        let slot = (first..=LAST_SLOT).find(|slot| !self.taken.contains(slot));
        let slot = slot.ok_or_else(|| LabError::Refused("the machine's root bus is full".into()))?;
        self.taken.insert(slot);
        Ok(slot)
    }

    fn named_ports(&mut self, ports: &[RootPort], nodes: u32) -> Result<(), LabError> {
        let mut buses = BTreeSet::from([0]);
        for port in ports {
            let address = port.address;
            let refused = |why: &str| Err(LabError::Refused(format!("root port {address}: {why}")));
            if address.domain != 0 || address.function != 0 {
                return refused("the machine has domain 0 and ports of one function");
            }
            if address.bus == 0 && !(1..=LAST_SLOT).contains(&address.device) {
                return refused("this slot of the root bus is the machine's own");
            }
            if !self.vacant.insert(address) {
                return refused("named twice");
            }
            // The property's own way to write the generations' speeds, in GT/s.
            let speeds = ["2_5", "5", "8", "16", "32", "64"];
            let Some(speed) = usize::from(port.generation).checked_sub(1).and_then(|index| speeds.get(index)) else {
                return refused("generations are 1 to 6");
            };
            let bus = if address.bus == 0 {
                self.taken.insert(address.device);
                "pcie.0".to_owned()
            } else {
                let bus = format!("bus-{:02x}", address.bus);
                if buses.insert(address.bus) {
                    let slot = usize::from(LAST_SLOT) + buses.len() - 1;
                    let node = match port.node {
                        Some(node) if nodes > 1 => format!(",numa_node={node}"),
                        _ => String::new(),
                    };
                    self.device(format!("pxb-pcie,id={bus},bus=pcie.0,addr={slot:#x},bus_nr={}{node}", address.bus));
                }
                bus
            };
            self.ports += 1;
            // No ports: 18 windows of 4 KiB would be more than there is.
            self.device(format!(
                "pcie-root-port,id={},bus={bus},chassis={},addr={:#x},x-speed={speed},x-width={},io-reserve=0",
                port.name(),
                self.ports,
                address.device,
                port.width
            ));
        }
        // The slots of the plumbing begin at 0x1d.
        if usize::from(LAST_SLOT) + buses.len() > 0x1d {
            return Err(LabError::Refused("root ports on more than 5 buses beside the root bus".into()));
        }
        Ok(())
    }

    fn behind(&mut self, name: &str, address: Bdf) -> Result<String, LabError> {
        if self.vacant.remove(&address) {
            return Ok(port_name(address));
        }
        Err(LabError::Refused(format!("{name}: no free root port was named at {address}")))
    }

    /// Root ports take the slots from 4 up, so that a machine's addresses do not depend on what else QEMU adds.
    fn root_port(&mut self, name: &str) -> Result<String, LabError> {
        self.ports += 1;
        let (chassis, slot) = (self.ports, self.take_slot(4)?);
        self.device(format!("pcie-root-port,id=port-{name},bus=pcie.0,chassis={chassis},addr={slot:#x}"));
        Ok(format!("port-{name}"))
    }

    fn downstream_port(&mut self, name: &str, slot: Option<u16>) -> Result<String, LabError> {
        if !self.has_switch {
            let bus = self.root_port("switch")?;
            self.device(format!("x3130-upstream,id=switch,bus={bus}"));
            self.has_switch = true;
        }
        self.ports += 1;
        let chassis = self.ports;
        let slot = slot.map_or(chassis, u32::from);
        // The slot capability has 13 bits for it.
        if slot >= 1 << 13 {
            return Err(LabError::Refused(format!("{name}: physical slots have numbers below 8192, not {slot}")));
        }
        if !self.slots.insert(slot) {
            return Err(LabError::Refused(format!("{name}: slot {slot} of the switch is taken")));
        }
        self.device(format!("xio3130-downstream,id=port-{name},bus=switch,chassis={chassis},slot={slot}"));
        Ok(format!("port-{name}"))
    }

    fn endpoint(&mut self, slot: &Slot, bus: &str, folder: &Path) {
        let name = &slot.name;
        let (driver, before) = match &slot.device {
            GuestDevice::E1000e => network_card("e1000e", name),
            GuestDevice::Igb => network_card("igb", name),
            GuestDevice::Edu => ("edu".to_owned(), None),
            GuestDevice::Nvme => {
                let file = folder.join(format!("{name}.raw"));
                (
                    format!("nvme,serial={name},drive=drive-{name}"),
                    Some(("-drive", format!("id=drive-{name},if=none,format=raw,file={}", file.display()))),
                )
            }
            GuestDevice::Ivshmem => (
                format!("ivshmem-plain,memdev=memory-{name}"),
                Some(("-object", format!("memory-backend-ram,id=memory-{name},size=1M,share=on"))),
            ),
            GuestDevice::VfioUser(socket) => {
                // This driver takes its socket only in the JSON form.
                let (bus, slot) = bus.split_once(",addr=").unwrap_or((bus, ""));
                let mut json = serde_json::json!({
                    "driver": "vfio-user-pci", "id": name, "bus": bus,
                    "socket": { "type": "unix", "path": socket },
                });
                if !slot.is_empty() {
                    json["addr"] = slot.into();
                }
                return self.device(json.to_string());
            }
            GuestDevice::Other(text) => (text.clone(), None),
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
        .filter(|slot| slot.device == GuestDevice::Nvme)
        .map(|slot| (format!("{}.raw", slot.name), 16 << 20))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(name: &str, device: GuestDevice, place: Attachment) -> Slot {
        Slot { name: name.into(), device, place }
    }

    #[test]
    fn devices_behind_the_switch_share_one_upstream_port() {
        let slots = [slot("a", GuestDevice::Edu, Attachment::Switch), slot("b", GuestDevice::Edu, Attachment::Switch)];
        let args = args(&[], 1, &slots, Path::new("/")).unwrap();
        assert_eq!(args.iter().filter(|arg| arg.starts_with("x3130-upstream")).count(), 1);
        assert!(args.contains(&"edu,id=b,bus=port-b".to_owned()));
    }

    #[test]
    fn slots_of_the_switch_have_the_numbers_they_were_given() {
        let board = |name, number| slot(name, GuestDevice::Edu, Attachment::SwitchSlot(number));
        let given = args(&[], 1, &[board("a", 3), board("b", 9)], Path::new("/")).unwrap();
        assert!(given.contains(&"xio3130-downstream,id=port-b,bus=switch,chassis=3,slot=9".to_owned()), "{given:#?}");
        let twice = args(&[], 1, &[board("a", 3), board("b", 3)], Path::new("/")).unwrap_err();
        assert_eq!(twice.to_string(), "b: slot 3 of the switch is taken");
        assert!(args(&[], 1, &[board("a", 8192)], Path::new("/")).is_err());
    }

    #[test]
    fn refuses_two_devices_of_one_name() {
        let slots =
            [slot("a", GuestDevice::Edu, Attachment::RootBus), slot("a", GuestDevice::Igb, Attachment::RootBus)];
        let refused = args(&[], 1, &slots, Path::new("/")).unwrap_err();
        assert_eq!(refused.to_string(), "two devices of the machine are named a");
    }

    fn address(text: &str) -> Bdf {
        text.parse().unwrap()
    }

    #[test]
    fn the_seed_has_its_ports_where_they_were() {
        let ports = seed_machine();
        let lanes: u32 = ports.iter().map(|port| u32::from(port.width)).sum();
        assert_eq!((ports.len(), lanes), (18, 96));
        for node in [0, 1] {
            assert_eq!(ports.iter().filter(|port| port.node == Some(node)).count(), 9);
        }
        let args = args(&ports, 2, &[], Path::new("/")).unwrap();
        for wanted in [
            "pcie-root-port,id=port-00-02.0,bus=pcie.0,chassis=2,addr=0x2,x-speed=32,x-width=4,io-reserve=0",
            "pxb-pcie,id=bus-98,bus=pcie.0,addr=0x1b,bus_nr=152,numa_node=0",
            "pcie-root-port,id=port-b0-00.0,bus=bus-b0,chassis=18,addr=0x0,x-speed=32,x-width=16,io-reserve=0",
        ] {
            assert!(args.iter().any(|arg| arg == wanted), "{wanted}: {args:#?}");
        }
        assert_eq!(args.iter().filter(|arg| arg.starts_with("pxb-pcie")).count(), 5);
    }

    #[test]
    fn other_devices_keep_clear_of_named_ports() {
        let slots = [
            slot("disk", GuestDevice::Edu, Attachment::Port(address("10:03.0"))),
            slot("beside", GuestDevice::Edu, Attachment::RootBus),
            slot("behind", GuestDevice::Edu, Attachment::RootPort),
        ];
        let args = args(&seed_machine(), 1, &slots, Path::new("/")).unwrap();
        for wanted in [
            "edu,id=disk,bus=port-10-03.0",
            "edu,id=beside,bus=pcie.0,addr=0x5",
            "pcie-root-port,id=port-behind,bus=pcie.0,chassis=19,addr=0x6",
        ] {
            assert!(args.iter().any(|arg| arg == wanted), "{wanted}: {args:#?}");
        }
    }

    #[test]
    fn refuses_ports_that_cannot_be() {
        let port = |text| RootPort { address: address(text), generation: 3, width: 1, node: None };
        let refused =
            |ports: &[RootPort], slots: &[Slot]| args(ports, 1, slots, Path::new("/")).unwrap_err().to_string();
        assert!(refused(&[port("00:00.0")], &[]).starts_with("root port 0000:00:00.0: this slot"));
        assert!(refused(&[port("0001:10:00.0")], &[]).contains("domain 0"));
        assert!(refused(&[port("10:00.1")], &[]).contains("one function"));
        assert_eq!(refused(&[port("10:00.0"); 2], &[]), "root port 0000:10:00.0: named twice");
        assert!(refused(&[RootPort { generation: 7, ..port("10:00.0") }], &[]).contains("generations"));
        let six: Vec<_> =
            (1..=6).map(|bus| RootPort { address: Bdf { bus, ..address("00:00.0") }, ..port("00:00.0") }).collect();
        assert!(refused(&six, &[]).contains("5 buses"));
        let twice = ["a", "b"].map(|name| slot(name, GuestDevice::Edu, Attachment::Port(address("10:00.0"))));
        assert_eq!(refused(&[port("10:00.0")], &twice), "b: no free root port was named at 0000:10:00.0");
    }
}
