use super::uapi::{SIS8300_CLOCK_INTERNAL, SIS8300_CLOCK_KEEP, SIS8300_TRIGGER_MLVDS, SIS8300_TRIGGER_NOW};
use super::*;
use crate::daq::{Setup, Trigger};
use crate::test::Tree;

#[test]
fn a_board_is_told_from_its_registers() {
    assert_eq!(model(0x8303_1001, 3), "SIS8300-KU firmware 10.01 serial 3");
    assert_eq!(model(0x8302_1809, 0xdead_0041), "SIS8300-L2 firmware 18.09 serial 65");
    assert_eq!(model(0x8301_1002, 0), "SIS8300-L firmware 10.02 serial 0");
    assert_eq!(model(0x8300_1400, 7), "SIS8300 firmware 14.00 serial 7");
    assert_eq!(model(0x1234_0000, 7), "board 1234 firmware 0.00 serial 7");
}

#[test]
fn a_node_is_a_board_by_its_driver_not_by_its_name() {
    // The device number of /dev/null with another driver each.
    let null = Path::new("/dev/null");
    for (link, target, expected) in [
        ("subsystem", "../../../../class/sis8300", true),
        ("device/driver", "../../../bus/pci/drivers/sis8300", true),
        ("subsystem", "../../../../class/mem", false),
        ("device/driver", "../../../bus/pci/drivers/xdma", false),
    ] {
        let root = Tree::of(&[("sis8300-3", "x")]);
        root.link(format!("sys/dev/char/1:3/{link}"), target);
        assert_eq!(is_board(&root, null), expected, "{target}");
        // A plain file of a board's name is none.
        assert!(!is_board(&root, &root.path("sis8300-3")));
    }
    assert!(!is_board(&Root::default(), Path::new("/dev/sis8300-none")));
}

#[test]
fn an_acquisition_is_asked_for_in_the_drivers_words() {
    let setup =
        Setup { channels: 0x3ff, samples: 300, pretrigger: 5, divider: Some(3), trigger: Trigger::Backplane(2) };
    let to = acquire::to_uapi(&setup);
    assert_eq!((to.channels, to.samples, to.pretrigger), (0x3ff, 300, 5));
    assert_eq!((to.clock, to.divider), (SIS8300_CLOCK_INTERNAL, 3));
    assert_eq!((to.trigger, to.trigger_lines, to.trigger_falling), (SIS8300_TRIGGER_MLVDS, 4, 0));
    assert_eq!(to.size as usize, size_of::<uapi::Setup>());
    let kept = acquire::to_uapi(&Setup { divider: None, trigger: Trigger::Now, ..setup });
    assert_eq!(
        (kept.clock, kept.divider, kept.trigger, kept.trigger_lines),
        (SIS8300_CLOCK_KEEP, 0, SIS8300_TRIGGER_NOW, 0)
    );
    // A line that is none stays one that the driver refuses.
    let wrong = acquire::to_uapi(&Setup { trigger: Trigger::Backplane(200), ..setup });
    assert!(wrong.trigger_lines > 0xff);
}

#[test]
fn costs_are_the_drivers_figures() {
    let stats = Stats { setup_ns: 1, map_ns: 2, dma_ns: 4, wakeup_ns: 8, copy_ns: 16, stalls: 32, ..Stats::default() };
    let costs = costs_of(&stats);
    assert_eq!((costs.setup_ns, costs.dma_ns, costs.wakeup_ns, costs.copy_ns, costs.stalls), (3, 4, 8, 16, 32));
}
