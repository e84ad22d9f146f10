//! The time-based engine, steady payload and the traffic ledger: checklist of facts 5, 6 and 9.

use super::*;

const MS: u64 = 1_000_000;

#[test]
fn a_manual_measurement_counts_units_of_16_bytes_and_carries_the_rest() {
    let mut block = Block::new();
    assert_eq!(block.read(TBA), 0x100, "after reset: 1 ms");
    block.start(0x21);
    assert_eq!(block.read(TBA), 0x2100_0001);
    block.ctl("traffic rx 15");
    assert_eq!(block.tba(), 0);
    block.ctl("traffic rx 1");
    assert_eq!(block.tba(), 1);
    block.port.dma_write(0x1000, 4096 + 8);
    block.port.dma_read(0x1000, 1 << 20);
    assert_eq!(block.tba(), 257);
    block.port.dma_write(0x1000, 8);
    assert_eq!(block.tba(), 258);
    block.now += 10_000 * MS;
    assert_eq!((block.tba(), block.read(TBA) & 1), (258, 1), "it runs until it is stopped");
    block.stop();
    block.ctl("traffic rx 1600");
    assert_eq!((block.tba(), block.read(TBA)), (258, 0x2100_0000));
    assert_eq!(block.ledger()["tba"]["reports"], json!({"0x21": {"counted": 258}}));
}

#[test]
fn the_directions_are_the_port_s() {
    let mut block = Block::new();
    block.start(0x20);
    block.port.dma_read(0, 160);
    block.port.cpu_write(16);
    block.port.dma_write(0, 1 << 20);
    assert_eq!(block.tba(), 11);
    block.stop();
    block.start(0x21);
    block.port.dma_write(0, 160);
    block.port.cpu_read(16);
    block.port.dma_read(0, 1 << 20);
    assert_eq!(block.tba(), 11);
}

#[test]
fn a_start_clears_and_a_start_of_what_runs_does_not() {
    let mut block = Block::new();
    block.start(0x21);
    block.ctl("traffic rx 168");
    block.start(0x21);
    assert_eq!(block.tba(), 10);
    block.ctl("traffic rx 8");
    assert_eq!(block.tba(), 11, "nor does it lose the rest");
    block.stop();
    block.start(0x21);
    assert_eq!(block.tba(), 0);
    let ledger = block.ledger();
    assert_eq!((&ledger["tba"]["starts"], &ledger["tba"]["restarts"]), (&json!(2), &json!(1)));
    assert_eq!(ledger["violations"], json!([]));
}

#[test]
fn a_fixed_measurement_ends_by_itself() {
    for (select, ns) in
        [(1u32, MS), (2, 10 * MS), (3, 100 * MS), (4, 1_000 * MS), (5, 2_000 * MS), (6, 4_000 * MS), (0xff, 4_000)]
    {
        let mut block = Block::new();
        block.now = 77;
        block.write(TBA, 0x0300_0001 | select << 8);
        assert_eq!(block.bank.next_work(), Some(77 + ns));
        block.now += ns - 1;
        assert_eq!(block.read(TBA) & 1, 1, "duration {select}");
        block.now += 1;
        assert_eq!((block.read(TBA), u128::from(block.tba())), (0x0300_0000 | select << 8, u128::from(ns)), "1 GHz");
        assert_eq!(block.bank.next_work(), None);
        block.now += 5 * ns;
        assert_eq!(block.tba(), ns, "nothing after the end");
    }
}

#[test]
fn a_late_look_at_a_fixed_measurement_finds_what_its_time_held() {
    let mut block = Block::new();
    block.ctl("rate rx 1280000000");
    block.write(TBA, 0x2100_0101);
    block.now = 50 * MS;
    assert_eq!((block.tba(), block.read(TBA) & 1), (1_280_000_000 / 1_000 / 16, 0));
}

#[test]
fn data_after_a_stop_hold_or_go_to_0() {
    let mut block = Block::new();
    block.start(0x21);
    block.ctl("traffic rx 160");
    block.stop();
    assert_eq!(block.tba(), 10);
    block.ctl("stop zero");
    block.start(0x21);
    block.ctl("traffic rx 160");
    assert_eq!(block.tba(), 10);
    block.stop();
    assert_eq!(block.tba(), 0);
    block.write(TBA, 0x2100_0101);
    block.ctl("traffic rx 160");
    block.now += MS;
    assert_eq!(block.tba(), 10, "a measurement that ended by itself can be read");
}

#[test]
fn one_cycle_follows_the_link() {
    let mut block = Block::new();
    for (generation, ps) in [(1, 8_000), (2, 4_000), (3, 2_000), (4, 1_000), (5, 1_000), (6, 1_000)] {
        block.ctl(&format!("link {generation} 4"));
        block.start(0x00);
        assert_eq!(block.tba(), ps);
        block.now += MS;
        assert_eq!(block.tba(), ps, "a constant");
        block.stop();
    }
    block.start(0x00);
    block.ctl("link 1 4");
    assert_eq!(block.tba(), 8_000, "also in the middle");
    block.stop();
    block.ctl("absent-report 0x00");
    block.start(0x00);
    assert_eq!(block.tba(), 0);
    block.ctl("link 2 4");
    assert_eq!(block.tba(), 0);
}

#[test]
fn time_in_states_is_counted_in_the_state_s_clock() {
    // 1 s; a core cycle of Gen5 is 1 ns, an auxiliary one 40 ns.
    let cases = [
        (0x01, 5, 1),
        (0x02, 6, 1),
        (0x03, 60, 1),
        (0x04, 7, 1),
        (0x05, 8, 40),
        (0x06, 4, 40),
        (0x07, 2, 1),
        (0x08, 5, 40),
        (0x09, 3, 1),
    ];
    let mut block = Block::new();
    block.ctl("states TX_L0S=5,RX_L0S=6,L1=7,L1_1=8,L1_2=4,CFG_RCVRY=2,L1_AUX=5,TX_RX_L0S=3");
    for (report, percent, cycle) in cases {
        block.start(report);
        block.now += 1_000 * MS;
        assert_eq!(block.tba(), percent * 10_000_000 / cycle, "report {report:#x}");
        block.stop();
    }
    block.ctl("variant old");
    for (report, expected) in [(0x08, 30_000_000), (0x09, 1_250_000)] {
        block.start(report);
        block.now += 1_000 * MS;
        assert_eq!(block.tba(), expected, "report {report:#x} of the old variant");
        block.stop();
    }
    block.ctl("link 1 4");
    block.start(0x03);
    block.now += 1_000 * MS;
    assert_eq!(block.tba(), 75_000_000, "8 ns a cycle");
}

#[test]
fn reports_of_what_the_link_never_does_stay_0() {
    let mut block = Block::new();
    for report in [0x10, 0x18, 0x22, 0x23, 0x0a, 0x7f] {
        block.start(report);
        block.ctl("traffic rx 160");
        block.ctl("traffic tx 160");
        block.now += MS;
        assert_eq!(block.tba(), 0, "report {report:#x}");
        block.stop();
    }
    block.ctl("absent-report 0x21,0x03");
    for report in [0x21, 0x03] {
        block.start(report);
        block.ctl("traffic rx 160");
        block.now += MS;
        assert_eq!(block.tba(), 0, "report {report:#x}");
        block.stop();
    }
    block.ctl("absent-report none");
    block.start(0x21);
    block.ctl("traffic rx 160");
    assert_eq!(block.tba(), 10);
}

#[test]
fn a_new_report_or_duration_during_a_measurement_is_a_violation_and_waits() {
    let mut block = Block::new();
    block.start(0x21);
    block.start(0x20);
    block.ctl("traffic rx 160");
    block.ctl("traffic tx 320");
    assert_eq!((block.tba(), block.read(TBA)), (10, 0x2000_0001), "the old report goes on");
    block.write(TBA, 0x2000_0401);
    block.stop();
    block.start(0x20);
    block.ctl("traffic tx 320");
    assert_eq!(block.tba(), 20);
    block.stop();
    block.write(TBA, 0x2000_0701);
    assert_eq!(
        block.ledger()["violations"],
        json!([
            "REPORT_SELECT 0x21 became 0x20 during a measurement",
            "DURATION_SELECT 0 became 4 during a measurement",
            "DURATION_SELECT 7 is reserved",
        ])
    );
}

#[test]
fn the_control_register_takes_single_bytes() {
    let mut block = Block::new();
    block.bank.write(0, BLOCK + TBA + 1, &[0]);
    block.bank.write(0, BLOCK + TBA + 3, &[0x21]);
    assert_eq!(block.read(TBA), 0x2100_0000);
    block.bank.write(0, BLOCK + TBA, &[1]);
    block.ctl("traffic rx 16");
    assert_eq!((block.read(TBA), block.tba()), (0x2100_0001, 1));
    block.write(TBA, 0xffff_fffe);
    assert_eq!(block.read(TBA), 0xff00_ff00, "reserved bits stay 0");
}

#[test]
fn halves_are_two_registers_and_the_data_have_64_bits() {
    let mut block = Block::new();
    block.start(0x21);
    block.ctl("tba-set 0xffffffff");
    assert_eq!((block.read(TBA_HIGH), block.read(TBA_LOW)), (0, u32::MAX));
    block.ctl("traffic rx 32");
    assert_eq!((block.read(TBA_HIGH), block.read(TBA_LOW), block.tba()), (1, 1, 0x1_0000_0001));
    block.ctl("tba-set 0xffffffffffffffff");
    block.ctl("traffic rx 16");
    assert_eq!(block.tba(), 0);
}

#[test]
fn torn_halves_do_not_fit_in_either_order() {
    let mut block = Block::new();
    block.start(0x21);
    block.ctl("torn on");
    block.ctl("tba-set 0xfffffff0");
    block.ctl("traffic rx 512");
    let (high, low) = (block.read(TBA_HIGH), block.read(TBA_LOW));
    assert_eq!((high, low), (0, 0x10), "the carry fell in between: 2^32 too few");
    assert_eq!(block.tba(), 0x1_0000_0010);
    block.ctl("tba-set 0xfffffff0");
    block.ctl("traffic rx 512");
    let (low, high) = (block.read(TBA_LOW), block.read(TBA_HIGH));
    assert_eq!((high, low), (1, 0xffff_fff0), "2^32 too many");
    // The loop that retries meets it too, and comes out right.
    block.ctl("tba-set 0xfffffff0");
    block.ctl("traffic rx 512");
    assert_eq!(block.tba(), 0x1_0000_0010);
    // What was counted before a stop is there after it.
    block.ctl("traffic rx 160");
    block.stop();
    assert_eq!(block.tba(), 0x1_0000_001a);
    assert_eq!(block.ledger()["tba"]["reports"]["0x21"]["counted"], 3 * 32 + 10);
    block.start(0x21);
    block.ctl("traffic rx 160");
    block.ctl("torn off");
    assert_eq!(block.read(TBA_LOW), 10);
}

#[test]
fn the_data_may_be_narrower() {
    let mut block = Block::new();
    block.ctl("width 40");
    block.start(0x21);
    block.ctl("tba-set 0xffffffffff");
    assert_eq!(block.tba(), 0xff_ffff_ffff);
    block.ctl("traffic rx 48");
    assert_eq!(block.tba(), 2);
    block.ctl("width 32");
    block.ctl("tba-set 0xffffffff");
    block.ctl("traffic rx 48");
    assert_eq!((block.read(TBA_HIGH), block.read(TBA_LOW)), (0, 2));
    assert_eq!(block.ledger()["tba"]["reports"]["0x21"]["counted"], 6);
}

#[test]
fn tlps_of_the_ledger_are_the_events_of_groups_6_and_7() {
    let mut block = Block::new();
    block.pick(0, 0, ALL_ON);
    block.port.set_link(256, 512);
    block.port.dma_write(0x1000, 4096);
    block.port.dma_read(0x1000, 2048);
    (0..3).for_each(|_| block.port.cpu_read(4));
    (0..5).for_each(|_| block.port.cpu_write(4));
    (0..7).for_each(|_| block.port.config_read());
    (0..9).for_each(|_| block.port.config_write());
    // 16 MWr, 4 MRd, 3 + 7 CplD, 9 Cpl in; 8 CplD, 3 MRd, 5 MWr, 7 CfgRd, 9 CfgWr out.
    let expected = [
        (0x600, 39),
        (0x601, 39),
        (0x602, 32),
        (0x603, 32),
        (0x700, 5),
        (0x701, 3),
        (0x702, 9),
        (0x703, 7),
        (0x707, 8),
        (0x70b, 16),
        (0x70c, 4),
        (0x711, 9),
        (0x712, 10),
    ];
    for event in PortEvent::all().filter(|event| event.select() >= 0x500) {
        let select = event.select().into();
        let count = expected.iter().find(|(code, _)| *code == select).map_or(0, |(_, count)| *count);
        assert_eq!(block.value(select, 0), count, "{event}");
    }
    assert_eq!(block.ledger()["tlps"]["rx_mwr"], 16);
    assert_eq!(block.ledger()["rx_payload"], 4096 + 12);
}

#[test]
fn traffic_at_once_is_whole_tlps_and_touches_no_dram() {
    let traffic = Traffic::new();
    let sub = traffic.sub_channel(0, "21000");
    let mut block = Block::new();
    block.port = traffic.port("0000:00:02.0".parse().unwrap());
    block.bank = RasdesBank::new(block.port.clone(), Shape::default());
    block.ctl("traffic rx 1281");
    block.ctl("traffic tx 128");
    let ledger = block.ledger();
    assert_eq!((&ledger["rx_payload"], &ledger["tlps"]["rx_mwr"]), (&json!(1281), &json!(11)));
    assert_eq!((&ledger["tx_payload"], &ledger["tlps"]["tx_cpld"]), (&json!(128), &json!(1)));
    assert_eq!(sub.totals().hif_rd_or_wr(), 0);
    assert_eq!(ledger["events"]["0x70b"]["happened"], 11);
}

#[test]
fn what_moved_before_counters_were_on_is_not_counted() {
    let mut block = Block::new();
    block.port.dma_write(0, 4096);
    block.pick(0x70b, 0, ON);
    block.start(0x21);
    assert_eq!((block.value(0x70b, 0), block.tba()), (0, 0));
    block.port.dma_write(0, 256);
    block.pick(0x70b, 0, OFF);
    block.stop();
    block.port.dma_write(0, 256);
    assert_eq!((block.value(0x70b, 0), block.tba()), (2, 16));
    assert_eq!(block.ledger()["events"]["0x70b"], json!({"happened": 36, "counted": 2, "lost": 0}));
}

#[test]
fn the_end_of_a_rate_sends_what_has_come_together() {
    let mut block = Block::new();
    block.ctl("rate rx 1000");
    block.now = 1_200 * MS;
    assert_eq!(block.ledger()["rx_payload"], 9 * 128);
    block.ctl("rate rx 0");
    let ledger = block.ledger();
    assert_eq!((&ledger["rx_payload"], &ledger["tlps"]["rx_mwr"]), (&json!(1200), &json!(10)));
    block.now = 5_000 * MS;
    assert_eq!(block.ledger(), ledger);
}

proptest! {
    /// However time is cut into accesses, a steady rate moves what it says, and the counters count that.
    #[test]
    fn steady_payload_loses_and_invents_nothing(
        rate in 0u64..20_000_000_000, steps in prop::collection::vec(0u64..400_000_000, 0..30),
    ) {
        let mut block = Block::new();
        block.pick(0x70b, 0, ON);
        block.start(0x21);
        block.ctl(&format!("rate rx {rate}"));
        for step in &steps {
            block.now += step;
            block.read(DATA);
        }
        let bytes = u128::from(rate) * u128::from(block.now) / NANOS;
        let tlps = bytes / 128;
        let counted = u128::from(block.value(0x70b, 0));
        prop_assert_eq!(counted, tlps % (1 << 32));
        prop_assert_eq!(u128::from(block.tba()), tlps * 128 / 16);
        block.ctl("rate rx 0");
        let ledger = block.ledger();
        prop_assert_eq!(u128::from(ledger["rx_payload"].as_u64().unwrap()), bytes);
        prop_assert_eq!(u128::from(ledger["tlps"]["rx_mwr"].as_u64().unwrap()), bytes.div_ceil(128));
    }

    #[test]
    fn time_in_a_state_does_not_depend_on_when_it_is_looked_at(
        percent in 0u64..101, generation in 1u64..7, steps in prop::collection::vec(0u64..3_000_000, 0..30),
    ) {
        let mut block = Block::new();
        block.ctl(&format!("link {generation} 4"));
        block.ctl(&format!("states L1={percent}"));
        block.start(0x04);
        for step in &steps {
            block.now += step;
            block.read(TBA_LOW);
        }
        let cycle = time_based::core_cycle_ps(generation as u8);
        prop_assert_eq!(block.tba(), block.now * 1_000 * percent / (cycle * 100));
    }
}
