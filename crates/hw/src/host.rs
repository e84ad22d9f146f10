//! Which machine it is among others: its name and identity, the firmware of its devices, the names of its slots.

use std::collections::BTreeMap;

use pciescope_core::{Bdf, Firmware, Host, Slot};
use ring::hmac;

use crate::environment::dmi;
use crate::{Root, pci};

/// What the machine-id is hashed with: another program's hash of the same machine is another one.
const APPLICATION: u128 = 0x5c0e_91d4_3b7f_4a06_9e2d_70c8_16fa_b354;

/// The machine's name and identity; `None` where it has no name.
pub fn host(root: &Root) -> Option<Host> {
    Some(Host {
        name: root.text("/proc/sys/kernel/hostname")?,
        id: root.text("/etc/machine-id").and_then(|text| identity(&text)),
        serial: root.shows_serial.then(|| dmi(root, "product_serial")).flatten(),
    })
}

/// As sd_id128_get_machine_app_specific(3) makes it, without dashes. A machine-id must not leave its machine.
fn identity(machine_id: &str) -> Option<String> {
    let is_hex = machine_id.len() == 32 && machine_id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let machine = u128::from_str_radix(machine_id, 16).ok().filter(|_| is_hex)?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, &machine.to_be_bytes());
    let tag = hmac::sign(&key, &APPLICATION.to_be_bytes());
    let mut id = *tag.as_ref().first_chunk::<16>()?;
    // A UUID of version 4, DCE variant.
    id[6] = id[6] & 0x0f | 0x40;
    id[8] = id[8] & 0x3f | 0x80;
    Some(format!("{:032x}", u128::from_be_bytes(id)))
}

/// Where drivers show the version of a function's firmware: a folder of the function's that holds devices, and the file.
const VERSIONS: [(&str, &str); 3] = [("nvme", "firmware_rev"), ("infiniband", "fw_ver"), ("", "vbios_version")];

/// The firmware of all functions whose drivers show it.
pub fn firmware(root: &Root) -> Vec<Firmware> {
    let version = |bdf| {
        VERSIONS.iter().find_map(|(folder, file)| {
            let at = pci::folder(bdf).join(folder);
            let devices = if folder.is_empty() { vec![String::new()] } else { root.names(&at) };
            devices.iter().find_map(|device| root.text(at.join(device).join(file)))
        })
    };
    pci::addresses(root)
        .into_iter()
        .filter_map(|bdf| Some(Firmware { bdf, version: version(bdf)?.trim().to_owned() }))
        .collect()
}

/// The slots that hold a function, by address.
pub fn slots(root: &Root) -> Vec<Slot> {
    let folder = "/sys/bus/pci/slots";
    let named = root.names(folder).into_iter().filter_map(|name| {
        let bdf = format!("{}.0", root.text(format!("{folder}/{name}/address"))?).parse().ok()?;
        Some(Slot { bdf, name: Some(name), designation: None })
    });
    let mut all: BTreeMap<Bdf, Slot> = named.map(|slot| (slot.bdf, slot)).collect();
    let table = std::fs::read(root.path("/sys/firmware/dmi/tables/DMI")).unwrap_or_default();
    for (bdf, text) in designations(&table) {
        all.entry(bdf).or_insert(Slot { bdf, name: None, designation: None }).designation = Some(text);
    }
    all.into_values().filter(|slot| root.exists(pci::folder(slot.bdf))).collect()
}

/// The slots that SMBIOS describes (DSP0134, "System Slots (Type 9)"), as far as the table can be understood.
fn designations(table: &[u8]) -> Vec<(Bdf, String)> {
    let (mut all, mut rest) = (Vec::new(), table);
    while let Some(&[kind, length]) = rest.first_chunk() {
        let Some((fields, after)) = rest.split_at_checked(length.into()).filter(|_| length >= 4) else { break };
        // Each string ends with a NUL, and the last one with two.
        let Some(end) = after.windows(2).position(|two| two == [0, 0]) else { break };
        if let (9, Some(&[low, high, bus, place])) = (kind, fields.get(13..17)) {
            let (device, function) = (place >> 3, place & 7);
            let bdf = Bdf { domain: u16::from_le_bytes([low, high]).into(), bus, device, function };
            let string =
                usize::from(fields[4]).checked_sub(1).and_then(|n| after[..end].split(|byte| *byte == 0).nth(n));
            let text = String::from_utf8_lossy(string.unwrap_or_default()).trim().to_owned();
            all.extend((!text.is_empty()).then_some((bdf, text)));
        }
        rest = &after[end + 2..];
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::Tree;

    /// What `systemd-id128 machine-id --app-specific=5c0e91d4-3b7f-4a06-9e2d-70c816fab354` of systemd 252 says on a machine with
    /// this machine-id.
    #[test]
    fn the_identity_is_the_one_that_systemd_makes() {
        let expected = "dfa21770dcf045af8b3090fa74cd29e3";
        assert_eq!(identity("0123456789abcdef0123456789abcdef").as_deref(), Some(expected));
        for bad in
            ["", "uninitialized", "0123", "0123456789abcdef0123456789abcdefff", "+123456789abcdef0123456789abcdef"]
        {
            assert_eq!(identity(bad), None, "{bad}");
        }
    }

    /// A structure of SMBIOS: its kind, what follows the head, its strings.
    fn structure(kind: u8, fields: &[u8], strings: &[&str]) -> Vec<u8> {
        let mut all = vec![kind, fields.len() as u8 + 4, 1, 0];
        all.extend(fields);
        strings.iter().for_each(|text| all.extend(text.bytes().chain([0])));
        all.extend(if strings.is_empty() { [0, 0].as_slice() } else { &[0] });
        all
    }

    #[test]
    fn a_slot_has_the_name_that_smbios_prints_beside_it() {
        // Name, type, width, usage, length, ID (2), characteristics (2), segment (2), bus, device and function.
        let slot = |name, bus, place| [name, 0xa5, 0x0d, 4, 3, 1, 0, 4, 1, 0, 0, bus, place];
        let mut table = structure(0, &[1, 2, 0, 0], &["Maker", "1.0"]);
        table.extend(structure(9, &slot(2, 0x3b, 0), &["not this", "PCIe Slot 4"]));
        table.extend(structure(9, &slot(1, 0x00, 0x1d << 3 | 2), &["J6B2 "]));
        table.extend(structure(9, &slot(0, 0x5e, 0), &[]));
        // Of SMBIOS 2.5, without an address.
        table.extend(structure(9, &slot(1, 0x60, 0)[..9], &["old"]));
        table.extend(structure(127, &[], &[]));
        let named = |bdf: &str, name: &str| (bdf.parse().unwrap(), name.to_owned());
        let expected = [named("0000:3b:00.0", "PCIe Slot 4"), named("0000:00:1d.2", "J6B2")];
        assert_eq!(designations(&table), expected);
        // Cut anywhere it ends, and says no slot that is not there.
        for end in 0..table.len() {
            assert!(expected.starts_with(&designations(&table[..end])), "{end}");
        }
        assert_eq!(designations(&[9, 0, 0, 0, 0]), []);
    }

    #[test]
    fn what_a_machine_says_of_itself_is_read_and_its_serial_only_when_asked() {
        let device = "sys/bus/pci/devices/0000:3b:00.0";
        let tree = Tree::of(&[
            ("proc/sys/kernel/hostname", "node7\n"),
            ("etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
            ("sys/class/dmi/id/product_serial", "S123\n"),
            ("sys/bus/pci/slots/4/address", "0000:3b:00\n"),
            ("sys/bus/pci/slots/5/address", "0000:5e:00\n"),
            (&format!("{device}/nvme/nvme0/firmware_rev"), "GDC5602Q \n"),
        ]);
        let mut root = Root::clone(&tree);
        let bdf: Bdf = "0000:3b:00.0".parse().unwrap();
        let found = host(&root).unwrap();
        assert_eq!((found.name.as_str(), found.serial.as_deref()), ("node7", None));
        assert!(found.id.is_some_and(|id| id != "0123456789abcdef0123456789abcdef"));
        root.shows_serial = true;
        assert_eq!(host(&root).unwrap().serial.as_deref(), Some("S123"));
        assert_eq!(firmware(&root), [Firmware { bdf, version: "GDC5602Q".to_owned() }]);
        // The other slot is empty.
        assert_eq!(slots(&root), [Slot { bdf, name: Some("4".to_owned()), designation: None }]);
    }
}
