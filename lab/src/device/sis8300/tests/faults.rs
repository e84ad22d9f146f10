//! What the control socket makes go wrong.

use super::*;

/// Enables the interrupts, and reads 1 MiB.
fn read_a_mebibyte(driver: &mut Driver) {
    driver.write(0x220, 0xc003);
    driver.start_dma(0, 0, 1 << 20);
    driver.run();
}

#[test]
fn a_lost_message_leaves_the_status_and_a_lost_event_nothing() {
    for (event, status) in [("", 1), (" event", 0)] {
        let mut driver = Driver::new(Model::L);
        driver.tell(&format!("lose dma 1{event}"));
        read_a_mebibyte(&mut driver);
        assert_eq!((driver.read(0x204), driver.machine.messages.len()), (0, 0));
        assert!(!driver.board.intx());
        assert_eq!(driver.read(0x221), status);
        driver.write(0x222, 1);
        read_a_mebibyte(&mut driver);
        assert_eq!((driver.read(0x221), driver.machine.messages.len()), (1, 1), "the next one comes");
        assert_eq!(driver.ledger()["interrupts"]["dma"], json!({"raised": 2, "lost": 1, "disabled": 0}));
    }
    let mut driver = Driver::new(Model::L);
    driver.tell("lose daq 1");
    driver.set_up(1, 1, 0);
    driver.writes(&[(0x220, 0x4000), (0x10, 1)]);
    driver.run();
    assert_eq!((driver.read(0x221), driver.machine.messages.len()), (0x4000, 0));
}

#[test]
fn a_message_comes_when_the_pin_goes_up_or_is_looked_at() {
    let mut driver = Driver::new(Model::L);
    read_a_mebibyte(&mut driver);
    assert!(driver.board.intx());
    driver.tell("interrupt user");
    driver.run();
    assert_eq!((driver.read(0x221), driver.machine.messages.len()), (0x8001, 1), "the pin was up already");
    driver.write(0x222, 1);
    driver.run();
    assert_eq!(driver.machine.messages.len(), 1);
    driver.write(0x223, 0);
    assert_eq!(driver.machine.messages.len(), 2, "the refresh looks at it");
    driver.writes(&[(0x222, 0x8000), (0x223, 0)]);
    assert_eq!((driver.machine.messages.len(), driver.board.intx()), (2, false));
    driver.tells(&["set message each", "interrupt user"]);
    read_a_mebibyte(&mut driver);
    assert_eq!(driver.machine.messages.len(), 4);
}

#[test]
fn what_is_latched_while_disabled_is_a_setting() {
    for (rule, status) in [("always", 1), ("enabled", 0)] {
        let mut driver = Driver::new(Model::L);
        driver.tell(&format!("set latch {rule}"));
        driver.dma(0, 0, 64);
        assert_eq!((driver.read(0x221), driver.machine.messages.len()), (status, 0));
        driver.write(0x220, 1);
        assert_eq!(driver.machine.messages.len(), status as usize, "enabling lets a latched one out");
        assert_eq!(driver.ledger()["interrupts"]["dma"]["disabled"], 1);
    }
}

#[test]
fn a_transfer_stops_short_with_and_without_a_word() {
    for (word, messages) in [("", 1), (" silent", 0)] {
        let mut driver = Driver::new(Model::L);
        driver.tell(&format!("short dma 1 after 65536{word}"));
        read_a_mebibyte(&mut driver);
        assert_eq!((driver.read(0x204), driver.machine.messages.len()), (0, messages));
        assert_eq!(driver.read(0x202), 65536, "the source tells how far it came");
        assert_eq!(*driver.memory(0, 65536), samples_of(1, 1, 0, 0, 0, 32768));
        assert!(driver.memory(65536, 65536).iter().all(|byte| *byte == 0));
        assert_eq!(driver.ledger()["dma_read"]["short"], 1);
        driver.write(0x222, 1);
        read_a_mebibyte(&mut driver);
        assert_eq!(driver.ledger()["dma_read"]["bytes"], 65536 + (1 << 20));
    }
}

#[test]
fn a_transfer_hangs_until_it_is_stopped() {
    let mut driver = Driver::new(Model::L);
    driver.tell("hang dma");
    read_a_mebibyte(&mut driver);
    driver.run_until(driver.now + 10_000_000_000);
    assert_eq!((driver.read(0x204), driver.board.next_work()), (1, None));
    assert_eq!(driver.ledger()["dma_read"]["bytes"], 512 << 10);
    driver.write(0x204, 0);
    assert_eq!((driver.read(0x204), driver.read(0x221), driver.read(0x202)), (0, 0, 512 << 10));
    read_a_mebibyte(&mut driver);
    assert_eq!((driver.read(0x204), driver.read(0x221)), (0, 1));
    driver.tells(&["hang dma", "set stop off"]);
    read_a_mebibyte(&mut driver);
    driver.write(0x204, 0);
    assert_eq!(driver.read(0x204), 1);
    driver.write(0xff, 1);
    assert_eq!(driver.read(0x204), 0, "the master reset ends it");
}

#[test]
fn an_acquisition_hangs_until_it_is_stopped() {
    let mut driver = Driver::new(Model::L);
    driver.tell("hang daq 1");
    driver.set_up(1, 16, 0);
    driver.write(0x10, 1);
    driver.run_until(driver.now + 10_000_000_000);
    assert_eq!(driver.read(0x10) & 0x33, 0x31);
    driver.write(0x10, 4);
    driver.run();
    assert_eq!(driver.read(0x10) & 0x33, 0);
    driver.write(0x10, 1);
    driver.run();
    assert_eq!(driver.read(0x221), 0x4000);
    let ledger = driver.ledger();
    assert_eq!((&ledger["acquisitions"]["hung"], &ledger["acquisitions"]["ended"]), (&json!(1), &json!(1)));
}

#[test]
fn all_ones_freeze_the_board_and_it_goes_on_after() {
    let mut driver = Driver::new(Model::L);
    driver.write(0x220, 1);
    driver.start_dma(0, 0, 1 << 20);
    driver.run_until(driver.now + 200_000);
    driver.tell("all-ones on");
    assert_eq!((driver.read(0x00), driver.read(0x204)), (u32::MAX, u32::MAX));
    driver.write(0x204, 0);
    let moved = driver.ledger()["dma_read"]["bytes"].clone();
    driver.run_until(driver.now + 1_000_000_000);
    assert_eq!((driver.ledger()["dma_read"]["bytes"].clone(), driver.machine.messages.len()), (moved, 0));
    driver.tell("all-ones off");
    let back = driver.now;
    driver.run();
    assert!(driver.now > back + 500_000, "the rest takes its time");
    assert_eq!((driver.read(0x204), driver.machine.messages.len()), (0, 1));
    assert_eq!(*driver.memory(0, 1 << 20), samples_of(1, 1, 0, 0, 0, 512 << 10));
}

#[test]
fn a_number_of_reads_can_be_all_ones() {
    let mut driver = Driver::new(Model::L);
    driver.start_dma(0, 0, 1 << 20);
    let id = driver.read(0x00);
    driver.tell("all-ones next 2");
    driver.write(0x220, 1);
    assert_eq!([0x00, 0x204, 0x00].map(|register| driver.read(register)), [u32::MAX, u32::MAX, id]);
    driver.run();
    let ledger = driver.ledger();
    assert_eq!((&ledger["all_ones_reads"], &ledger["dropped_writes"]), (&json!(2), &json!(0)));
    assert_eq!((&ledger["dma_read"]["bytes"], driver.machine.messages.len()), (&json!(1 << 20), 1));
}

#[test]
fn a_board_that_is_pulled_moves_nothing_more() {
    let mut driver = Driver::new(Model::L);
    driver.start_dma(0, 0, 1 << 20);
    driver.run_until(driver.now + 700_000);
    driver.tell("remove");
    let moved = driver.ledger()["dma_read"]["bytes"].as_u64().unwrap() as usize;
    assert!(moved > 0 && moved < 1 << 20, "{moved}");
    driver.run_until(driver.now + 1_000_000_000);
    assert_eq!(*driver.memory(0, moved), samples_of(1, 1, 0, 0, 0, moved as u64 / 2));
    assert!(driver.memory(moved, (1 << 20) - moved).iter().all(|byte| *byte == 0));
    let mut id = [0; 4];
    driver.board.config_read(0, &mut id);
    assert_eq!((id, driver.read(0), driver.board.next_work()), ([0xff; 4], u32::MAX, None));
    driver.tell("reset");
    driver.board.config_write(4, &[6, 0]);
    assert_eq!((driver.read(0), driver.read(0x204)), (0x8301_1002, 0));
}

#[test]
fn a_spurious_interrupt_has_no_reason() {
    let mut driver = Driver::new(Model::L);
    driver.tell("spurious");
    assert!(driver.board.intx());
    driver.run();
    assert_eq!((driver.machine.messages.len(), driver.read(0x221)), (1, 0));
    assert!(!driver.board.intx(), "until the status is read");
    assert_eq!(driver.ledger()["interrupts"]["spurious"], 1);
}

#[test]
fn a_reset_leaves_the_registers_to_the_driver() {
    let mut driver = Driver::new(Model::L);
    driver.tells(&["module-id 0xdeadbeef", "hang dma 5", "set flush 1ms"]);
    read_a_mebibyte(&mut driver);
    assert_eq!(driver.read(0), 0xdead_beef);
    driver.write(0x204, 0);
    driver.tell("reset");
    assert_eq!((driver.read(0), driver.read(0x220)), (0x8301_1002, 0xc003));
    assert_eq!(driver.ledger()["dma_read"]["started"], 0);
    read_a_mebibyte(&mut driver);
    assert_eq!(driver.read(0x221), 1);
}
