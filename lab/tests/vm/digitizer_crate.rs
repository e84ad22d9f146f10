//! The crate of digitizers as a guest sees it, without the driver: slots, links, registers, hot-plug.
use crate::support::digitizers::Digitizers;
use pciescope_lab::device::sis8300::Model;
use pciescope_lab::vm::digitizers::Crate;

const SLOTS: [u16; 6] = [3, 4, 6, 7, 8, 9];

/// A script with `$d` being each board's folder in sysfs, one after the other.
fn of_each(rig: &Digitizers, script: &str) -> Vec<String> {
    let folders: Vec<String> =
        SLOTS.iter().map(|slot| format!("/sys/bus/pci/devices/{}", rig.address(*slot))).collect();
    rig.must(&format!("for d in {}; do {script}; done", folders.join(" "))).lines().map(str::to_owned).collect()
}

/// Needs the boards of `digitizers`, and no driver.
pub fn six_boards_sit_at_the_seeds_slots(rig: &Digitizers, digitizers: &Crate) {
    let ids = of_each(rig, "echo $(cat $d/vendor $d/device $d/class)");
    for ((slot, model), ids) in digitizers.boards.iter().zip(&ids) {
        let (device, class) = if *model == Model::Ku { ("0x0024", "0x070000") } else { ("0x0019", "0xff0000") };
        assert_eq!(*ids, format!("0x1796 {device} {class}"), "slot {slot}");
    }
    let links = of_each(rig, "echo $(cat $d/current_link_width $d/current_link_speed)");
    assert_eq!((links[0].as_str(), links[1].as_str()), ("1 8.0 GT/s PCIe", "1 2.5 GT/s PCIe"));
    // The slot capability of the port above.
    let capabilities = of_each(rig, "setpci -s $(basename $(dirname $(realpath $d))) CAP_EXP+14.l");
    for (slot, capability) in SLOTS.iter().zip(&capabilities) {
        assert_eq!(u32::from_str_radix(capability, 16).unwrap() >> 19, u32::from(*slot));
    }

    // The serial number, through BAR 0.
    for slot in SLOTS {
        let address = rig.address(slot);
        rig.must(&format!("setpci -s {address} COMMAND=0x2"));
        let serial = rig.must(&format!("pciescope reg read {address} 0:0x4"));
        assert!(serial.ends_with(&format!("{slot:#010x}")), "slot {slot}: {serial}");
        assert_eq!(rig.board(slot).count("/reads_total"), 1);
    }
}

/// Without a driver, and for good.
pub fn a_board_can_be_unplugged_and_another_stays(rig: &Digitizers) {
    let count = || rig.must("lspci -d 1796: | wc -l").parse::<u32>().unwrap();
    let (before, boards) = (rig.address(8), count());
    rig.unplug("sis8300-7").unwrap_or_else(|err| panic!("the lab failed: {err}"));
    assert_eq!(rig.address(8), before);
    assert_eq!(count(), boards - 1);
}
