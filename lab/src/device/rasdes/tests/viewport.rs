//! Event counters behind the viewport: checklist of facts 2 to 4, 7, 8 and 10.

use super::*;

#[test]
fn what_a_write_picks_is_what_it_clears_and_enables() {
    let mut block = Block::new();
    block.pick(0x201, 0, ON);
    block.ctl("event 0x201 5");
    // Picks another one, clears and enables: 0x201 must stay as it is.
    block.pick(0x202, 0, ON | CLEAR_ONE);
    assert_eq!(block.value(0x201, 0), 5);
    assert!(block.is_on(0x202, 0) && block.is_on(0x201, 0));
    block.pick(0x201, 0, CLEAR_ONE);
    assert_eq!(block.value(0x201, 0), 0);
    assert!(block.is_on(0x201, 0), "clearing does not switch off");
}

#[test]
fn commands_read_as_0_and_status_follows_the_pick() {
    let mut block = Block::new();
    block.pick(0x201, 3, ON | CLEAR_ONE);
    assert_eq!(block.read(CONTROL), 0x0201_0380);
    block.pick(0x200, 3, 0);
    assert_eq!(block.read(CONTROL), 0x0200_0300);
    // What a driver that reads, changes and writes back relies on.
    block.pick(0x201, 3, 0);
    let before = block.read(CONTROL);
    block.write(CONTROL, before | OFF);
    assert_eq!(block.read(CONTROL), 0x0201_0300);
}

#[test]
fn reserved_bits_stay_0() {
    let mut block = Block::new();
    block.write(CONTROL, 0xffff_f063 & !0x3);
    assert_eq!(block.read(CONTROL), 0x0fff_0000);
}

#[test]
fn codes_that_mean_no_change_change_nothing() {
    let mut block = Block::new();
    block.pick(0x201, 0, ON);
    block.ctl("event 0x201 5");
    for command in [0, 2, 2 << 2, 4 << 2, 6 << 2, 6 << 2 | 2] {
        block.pick(0x201, 0, command);
        assert_eq!((block.read(DATA), block.read(CONTROL) & 0x80), (5, 0x80), "command {command:#x}");
    }
    block.pick(0x201, 0, OFF);
    for command in [0, 2, 4, 6] {
        block.pick(0x201, 0, command << 2);
        assert_eq!(block.read(CONTROL) & 0x80, 0, "command {command:#x}");
    }
}

#[test]
fn codes_for_all_reach_every_event_and_lane() {
    let mut block = Block::new();
    block.pick(0x100, 0, ALL_ON);
    for event in PortEvent::all() {
        let lanes = if event.is_per_lane() { 16 } else { 1 };
        for lane in 0..lanes {
            assert!(block.is_on(event.select().into(), lane), "{event} lane {lane}");
            block.ctl(&format!("set {event} 7{}", if lanes > 1 { format!(" lane {lane}") } else { String::new() }));
        }
    }
    block.pick(0x201, 0, CLEAR_ALL);
    assert!(PortEvent::all().all(|event| block.value(event.select().into(), 15) == 0));
    assert!(block.is_on(0x009, 15));
    block.pick(0x201, 0, ALL_OFF);
    assert!(PortEvent::all().all(|event| !block.is_on(event.select().into(), 15)));
}

#[test]
fn a_counter_that_is_off_keeps_its_value() {
    let mut block = Block::new();
    block.pick(0x300, 0, ON);
    block.ctl("event 0x300 3");
    block.pick(0x300, 0, OFF);
    block.ctl("event 0x300 4");
    assert_eq!(block.value(0x300, 0), 3);
    block.pick(0x300, 0, ON);
    block.ctl("event 0x300 1");
    assert_eq!(block.value(0x300, 0), 4);
    assert_eq!(block.ledger()["events"]["0x300"], json!({"happened": 8, "counted": 4, "lost": 0}));
}

#[test]
fn lanes_count_apart_in_groups_0_and_4_and_mean_nothing_elsewhere() {
    let mut block = Block::new();
    block.pick(0x002, 3, ON);
    block.pick(0x401, 15, ON);
    block.ctl("event 0x002 2 lane 3");
    block.ctl("event 0x002 5 lane 4");
    block.ctl("event 0x401 9 lane 15");
    let of = |block: &mut Block, event, lane| (block.value(event, lane), block.is_on(event, lane));
    assert_eq!((of(&mut block, 0x002, 3), of(&mut block, 0x002, 4)), ((2, true), (0, false)));
    assert_eq!((of(&mut block, 0x401, 15), of(&mut block, 0x401, 0)), ((9, true), (0, false)));
    assert_eq!(block.ledger()["events"]["0x002.4"], json!({"happened": 5, "counted": 0, "lost": 0}));
    block.pick(0x70b, 9, ON);
    block.ctl("event 0x70b 6");
    assert_eq!((of(&mut block, 0x70b, 0), of(&mut block, 0x70b, 15)), ((6, true), (6, true)));
}

#[test]
fn narrow_counters_saturate_or_wrap_and_wide_ones_wrap() {
    for (event, max) in [("0x000", 15u32), ("0x105", 255), ("0x207", 255), ("0x305", 255), ("0x400", 15)] {
        let code = u32::from_str_radix(&event[2..], 16).unwrap();
        let name = if max == 15 { format!("{event}.0") } else { event.to_owned() };
        let mut block = Block::new();
        block.pick(code, 0, ON);
        block.ctl(&format!("event {event} {}", max + 3));
        assert_eq!(block.value(code, 0), max, "{event}");
        assert_eq!(block.ledger()["events"][&name], json!({"happened": max + 3, "counted": max + 3, "lost": 3}));
        block.ctl("limit wrap");
        block.ctl(&format!("event {event} 3"));
        assert_eq!(block.value(code, 0), 2, "{event}");
        assert_eq!(block.ledger()["events"][&name]["lost"], 3);
    }
    for event in ["0x500", "0x600", "0x719"] {
        let code = u32::from_str_radix(&event[2..], 16).unwrap();
        let mut block = Block::new();
        block.pick(code, 0, ON);
        block.ctl(&format!("set {event} 0xffffffff"));
        block.ctl(&format!("event {event} 3"));
        assert_eq!(block.value(code, 0), 2, "{event}");
        assert_eq!(block.ledger()["events"][event], json!({"happened": 3, "counted": 3, "lost": 0}));
    }
}

#[test]
fn no_number_is_too_large() {
    let mut block = Block::new();
    block.pick(0, 0, ALL_ON);
    block.start(0x21);
    for line in ["event 0x201", "event 0x70b", "traffic rx", "traffic tx", "rate rx", "rate tx"] {
        (0..3).for_each(|_| block.ctl(&format!("{line} {}", u64::MAX)));
    }
    block.write(0x34, 8 << 8);
    block.write(0x30, 1);
    for _ in 0..3 {
        block.now += 1 << 61;
        block.tba();
    }
    assert_eq!(block.value(0x201, 0), 255);
    assert_eq!(block.ledger()["events"]["0x201"], json!({"happened": u64::MAX, "counted": u64::MAX, "lost": u64::MAX}));
    block.now = u64::MAX;
    block.stop();
    block.write(TBA, 0x2100_0601);
    assert_eq!(block.read(TBA) & 1, 0, "at the end of time");
}

#[test]
fn an_absent_event_cannot_be_enabled_and_reads_0() {
    let mut block = Block::new();
    block.pick(0x201, 0, ON);
    block.ctl("event 0x201 5");
    block.ctl("absent 0x201,0x003");
    block.ctl("absent 0x202");
    for event in [0x201, 0x202, 0x003, 0x104, 0x20f, 0x7ff, 0x900] {
        block.pick(event, 1, ON);
        assert_eq!(block.read(CONTROL) & 0x80, 0, "{event:#x}");
        block.pick(event, 1, ALL_ON);
        assert_eq!((block.read(CONTROL) & 0x80, block.read(DATA)), (0, 0), "{event:#x}");
    }
    block.ctl("event 0x201 1");
    assert_eq!(block.ledger()["events"]["0x201"], json!({"happened": 6, "counted": 5, "lost": 0}));
    block.ctl("firmware 0x201");
    assert!(!block.is_on(0x201, 0));
    block.ctl("absent none");
    block.pick(0x201, 0, ON);
    assert!(block.is_on(0x201, 0));
}

#[test]
fn accesses_of_one_and_two_bytes_are_part_of_the_register() {
    let mut block = Block::new();
    let mut byte = |offset: u64, value: &[u8]| block.bank.write(0, BLOCK + offset, value);
    byte(CONTROL + 2, &[0x01, 0x02]);
    byte(CONTROL + 1, &[0x03]);
    byte(CONTROL, &[ON as u8]);
    block.ctl("event 0x201 0xab");
    assert_eq!(block.read(CONTROL), 0x0201_0380);
    let mut bytes = [0; 2];
    block.bank.read(0, BLOCK + CONTROL + 2, &mut bytes);
    assert_eq!(bytes, [0x01, 0x02]);
    block.bank.read(0, BLOCK + DATA, &mut bytes[..1]);
    assert_eq!(bytes[0], 0xab);
    // A new pick without byte 0 gives no command.
    block.bank.write(0, BLOCK + CONTROL + 2, &[0x02, 0x02]);
    assert_eq!(block.read(CONTROL), 0x0202_0300);
    // The data are read-only.
    block.write(DATA, 1);
    assert_eq!(block.value(0x201, 0), 0xab);
    let mut both = [0; 8];
    block.bank.read(0, BLOCK + CONTROL, &mut both);
    assert_eq!(both, [0x80, 0x00, 0x01, 0x02, 0xab, 0, 0, 0]);
}

#[test]
fn the_second_agent_moves_every_nth_reading() {
    let mut block = Block::new();
    block.pick(0x201, 0, ON);
    block.ctl("event 0x201 5");
    block.ctl("agent every 3");
    for round in 0..4 {
        block.pick(0x201, 0, 0);
        assert_eq!((block.read(DATA), block.read(CONTROL) >> 16), (5, 0x201));
        assert_eq!((block.read(DATA), block.read(CONTROL) >> 16), (5, 0x201));
        let (moved, select) = (block.read(DATA), block.read(CONTROL) >> 16);
        assert_ne!(select, 0x201, "round {round}");
        assert_eq!(moved, 0);
        assert!(PortEvent::new(select as u16).is_some());
    }
    assert_eq!(block.ledger()["viewport_moves"], 4);
    block.ctl("agent off");
    block.pick(0x201, 0, 0);
    assert!((0..6).all(|_| block.read(DATA) == 5));
}

#[test]
fn a_function_that_is_gone_reads_all_ones_and_takes_no_writes() {
    let mut block = Block::new();
    block.pick(0x201, 0, ON);
    block.ctl("gone");
    block.ctl("event 0x201 2");
    assert_eq!((block.read(DATA), block.read(TBA_HIGH), block.page(0x200)), (u32::MAX, u32::MAX, u32::MAX));
    block.pick(0x202, 0, ON | CLEAR_ALL);
    block.ctl("back");
    assert_eq!((block.read(CONTROL) >> 16, block.read(DATA)), (0x201, 2));
}

#[test]
fn firmware_may_have_enabled_counters() {
    let mut block = Block::new();
    block.ctl("firmware 0x201,0x001");
    assert!(block.is_on(0x201, 0) && block.is_on(0x001, 7));
    assert!(!block.is_on(0x202, 0));
}

#[test]
fn a_reset_of_the_board_brings_back_the_start() {
    let mut block = Block::new();
    block.port.dma_write(0, 4096);
    let start = Block::new().ledger();
    for line in
        ["firmware 0x201", "event 0x201 3", "traffic rx 100", "rate tx 1000000", "gone", "vsec rev 9", "agent every 1"]
    {
        block.ctl(line);
    }
    block.start(0x21);
    block.now = 1_000_000_000;
    block.bank.reset();
    assert_eq!(block.ledger(), start);
    assert_eq!((block.page(0x304), block.read(TBA)), (0x1004_0002, 0x100));
    assert!(!block.is_on(0x201, 0));
    block.now = 2_000_000_000;
    assert_eq!(block.ledger(), start, "the rate is gone");
    block.port.dma_write(0, 4096);
    assert_eq!(block.ledger()["rx_payload"], 4096);
}

#[test]
fn injected_errors_reach_the_counters_that_see_them() {
    let cases: [(u64, u32, u64, &[u32]); 8] = [
        (0x34, 0x0, 0, &[0x205, 0x207]),
        (0x34, 0x1, 0, &[0x606]),
        (0x34, 0x8, 0, &[0x200, 0x201, 0x206]),
        (0x34, 0xb, 0, &[0x302]),
        (0x38, 0, 1, &[0x205, 0x207]),
        (0x3c, 2, 2, &[0x206]),
        (0x40, 5, 3, &[0x107, 0x500]),
        (0x48, 1, 5, &[0x605]),
    ];
    for (register, kind, group, events) in cases {
        let mut block = Block::new();
        block.pick(0, 0, ALL_ON);
        block.write(register, kind << 8 | 9);
        assert_eq!(block.read(register), kind << 8 | 9);
        block.write(0x30, 1 << group);
        assert_eq!((block.read(0x30), block.read(register)), (0, kind << 8), "the count has run out");
        for event in PortEvent::all() {
            let expected = if events.contains(&event.select().into()) { 9 } else { 0 };
            assert_eq!(block.value(event.select().into(), 0), expected, "group {group} type {kind}: {event}");
        }
    }
}

#[test]
fn errors_without_a_count_go_into_every_packet_until_they_are_disabled() {
    let mut block = Block::new();
    block.pick(0, 0, ALL_ON);
    // Of EINJ2's, only a Nak has a count.
    let cases = [
        (0x34, 8 << 8, 0, 0x201, 10),
        (0x34, 0, 0, 0x205, 3),
        (0x3c, 9, 2, 0x606, 10),
        (0x3c, 1 << 8 | 9, 2, 0x606, 0),
    ];
    for (register, value, group, event, errors) in cases {
        block.pick(event, 0, CLEAR_ALL);
        block.write(register, value);
        block.write(0x30, 1 << group);
        block.ctl("traffic rx 1280");
        block.ctl("traffic tx 384");
        assert_eq!((block.read(0x30), block.read(register)), (1 << group, value));
        assert_eq!(block.value(event, 0), errors, "{event:#x}");
        block.write(0x30, 0);
        block.ctl("traffic rx 1280");
        assert_eq!(block.value(event, 0), errors, "{event:#x}");
    }
}

#[test]
fn silicon_debug_shows_lanes_and_refuses_to_act() {
    let mut block = Block::new();
    for (lane, expected) in [(0, 0x0006_0000), (3, 0x0006_0003), (4, 0x0018_0004), (15, 0x0018_000f)] {
        block.write(0xb0, 0xffff_fff0 | lane);
        assert_eq!(block.read(0xb0), expected, "lane {lane}");
    }
    block.write(0xa0, 1);
    block.write(0xa0, 2);
    block.write(0xd4, 1);
    assert_eq!(block.ledger()["violations"].as_array().unwrap().len(), 2);
    assert_eq!((block.read(0xa0), block.read(0xd4)), (0, 0));
}

proptest! {
    /// Against a model that keeps every occurrence: any counters, any order, nothing lost and nothing invented.
    #[test]
    fn counters_agree_with_adding_up(steps in prop::collection::vec((0usize..82, 0u32..16, 0u32..5, 1u64..40), 0..60)) {
        let events: Vec<PortEvent> = PortEvent::all().collect();
        prop_assert_eq!(events.len(), 82);
        let mut block = Block::new();
        block.ctl("limit wrap");
        let mut truth = std::collections::BTreeMap::<(PortEvent, u32), (bool, u64)>::new();
        for (index, lane, what, n) in steps {
            let event = events[index];
            let lane = if event.is_per_lane() { lane } else { 0 };
            let select = event.select().into();
            let (is_on, counted) = truth.entry((event, lane)).or_default();
            match what {
                0 => (block.pick(select, lane, ON), *is_on = true).1,
                1 => (block.pick(select, lane, OFF), *is_on = false).1,
                2 => (block.pick(select, lane, CLEAR_ONE), *counted = 0).1,
                _ => {
                    block.bank.counters.happen(event, lane as u8, n);
                    *counted += if *is_on { n } else { 0 };
                }
            }
        }
        for ((event, lane), (is_on, counted)) in truth {
            prop_assert_eq!(block.value(event.select().into(), lane), (counted % (u64::from(event.max()) + 1)) as u32);
            prop_assert_eq!(block.is_on(event.select().into(), lane), is_on);
        }
    }
}
