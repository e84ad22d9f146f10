//! Acquisitions: what is stored where, when it ends, what triggers it.

use super::*;

const FRONT: usize = 0;

#[test]
fn an_acquisition_takes_its_time_and_stores_what_the_page_says() {
    for (model, samples) in [(Model::L2, 48), (Model::Ku, 64)] {
        let mut driver = Driver::with(model, |board| board.with_seed(7).with_serial(5));
        driver.set_up(0b10_0000_0101, samples / 16, 0);
        driver.write(0x220, 0x4000);
        let start = driver.now;
        driver.write(0x10, 1);
        assert_eq!(driver.read(0x10) & 0x33, 0x31, "{model:?}");
        // 250 MHz / 3.
        let end = start + (u64::from(samples) * 3 * 1_000_000_000).div_ceil(250_000_000);
        driver.run_until(end - 1);
        assert_eq!(driver.read(0x10) & 0x33, 0x31);
        driver.run_until(end);
        assert_eq!((driver.read(0x10) & 0x33, driver.read(0x221)), (0x30, 0), "the FIFO is still being written");
        driver.run_until(end + 2_000);
        assert_eq!((driver.read(0x10) & 0x33, driver.read(0x221), driver.machine.messages.len()), (0, 0x4000, 1));
        let blocks = samples / 16;
        assert_eq!([0x120, 0x122, 0x129].map(|word| driver.read(word)), [blocks, 2 * blocks, 3 * blocks]);
        let bytes = samples * 2;
        driver.dma(0, 0, (3 * bytes) & !63);
        for (index, channel) in [0, 2, 9].into_iter().enumerate() {
            let expected = samples_of(7, 5, 1, channel, 0, u64::from(samples));
            let at = index * bytes as usize;
            let seen = driver.memory(at, (bytes as usize).min(((3 * bytes as usize) & !63) - at));
            assert_eq!(*seen, expected[..seen.len()], "{model:?}, channel {channel}");
        }
    }
}

#[test]
fn memory_that_nothing_reached_is_acquisition_0() {
    let mut driver = Driver::with(Model::L, |board| board.with_seed(3));
    driver.dma(0x1000, 0x7fff_ff80, 128);
    assert_eq!(*driver.memory(0x1000, 128), samples_of(3, 1, 0, 0, 0x3fff_ffc0, 64));
    driver.dma(0x1000, 0x640, 0x40);
    assert_eq!(*driver.memory(0x1000, 0x40), samples_of(3, 1, 0, 0, 0x320, 32));
}

#[test]
fn the_start_is_latched_and_the_second_one_counts_on() {
    let mut driver = Driver::new(Model::L);
    driver.set_up(1, 2, 1 << 11);
    driver.writes(&[(0x12, 1 << 8), (0x120, 0x100), (0x10, 2), (0x120, 0x200)]);
    for number in 1..=2u32 {
        driver.tell("trigger shot");
        driver.run();
        assert_eq!(driver.read(0x120), if number == 1 { 0x102 } else { 0x202 }, "not from where the last one ended");
        driver.write(0x10, 2);
    }
    driver.dma(FRONT as u64, 0x100 * 32, 64);
    assert_eq!(*driver.memory(FRONT, 64), samples_of(1, 1, 1, 0, 0, 32));
    driver.dma(FRONT as u64, 0x200 * 32, 64);
    assert_eq!(*driver.memory(FRONT, 64), samples_of(1, 1, 2, 0, 0, 32));
    assert_eq!(driver.read(0x4fe), 2);
}

#[test]
fn the_ku_stores_even_blocks_only() {
    let mut driver = Driver::new(Model::Ku);
    driver.set_up(1, 4, 0);
    driver.writes(&[(0x12a, 2), (0x120, 5), (0x10, 1)]);
    driver.run();
    assert_eq!(driver.read(0x120), 8, "from block 4, 4 blocks");
    assert_eq!(driver.ledger()["acquisitions"]["last"][0]["samples"], 64);
    assert_eq!(driver.ledger()["violations"], json!(["0x120 <- 0x5: the KU stores from even blocks on"]));
}

#[test]
fn steady_triggers_are_taken_by_an_armed_board_and_missed_by_others() {
    let mut driver = Driver::with(Model::L2, |board| board.with_trigger(14_000));
    driver.set_up(0x3ff, 2, 1 << 11);
    driver.write(0x12, 1 << 8);
    let period = |number: u64| number * 1_000_000_000 / 14;
    driver.run_until(period(2));
    assert_eq!(driver.ledger()["triggers"], json!({"seen": 2, "taken": 0, "missed": 2, "millihertz": 14_000}));
    driver.write(0x10, 2);
    assert_eq!(driver.read(0x10) & 0x33, 2);
    driver.run_until(period(3) - 1);
    assert_eq!(driver.read(0x10) & 0x33, 2);
    driver.run_until(period(3));
    assert_eq!(driver.read(0x10) & 0x33, 0x31);
    assert_eq!(driver.read(0x12) & 0xff, 1, "the line is high");
    driver.run_until(period(5));
    assert_eq!(driver.ledger()["triggers"], json!({"seen": 5, "taken": 1, "missed": 4, "millihertz": 14_000}));
    let last = driver.ledger()["acquisitions"]["last"][0].clone();
    assert_eq!((last["begun_ns"].as_u64(), last["trigger"].as_str()), (Some(period(3)), Some("mlvds")));
    driver.write(0x12, 0);
    driver.run_until(period(7));
    assert_eq!(driver.ledger()["triggers"]["missed"], 4, "nobody listens");
}

#[test]
fn lines_and_edges_are_chosen() {
    // What is written to 0x11, 0x12, 0x13 and 0x100; what starts, and how long after the pulse's rise.
    for (control, mlvds, front, setup, cause, delay) in [
        (0x800, 0x0100, 0, 0, Some("mlvds"), 0),
        (0x800, 0x0101, 0, 0, Some("mlvds"), 10_000),
        (0x800, 0x0200, 0, 0, None, 0),
        (0x400, 0x0100, 0, 0, None, 0),
        (0x800, 0, 0x0100, 0, Some("front"), 0),
        (0x800, 0, 0x1100, 0, Some("front"), 10_000),
        (0x800, 0x0101, 0x0100, 0, Some("front"), 0),
        (0x400, 0, 0, 1 << 26, Some("signal"), 0),
        (0x400, 0, 0, 0, None, 0),
    ] {
        let mut driver = Driver::new(Model::L);
        driver.set_up(1, 1, control);
        driver.writes(&[(0x12, mlvds), (0x13, front), (0x100, setup), (0x10, 2)]);
        driver.tell("trigger shot");
        let start = driver.now + 1;
        driver.run_until(start + 50_000);
        let last = &driver.ledger()["acquisitions"]["last"][0];
        assert_eq!(last["trigger"].as_str(), cause, "{control:#x} {mlvds:#x} {front:#x}");
        assert_eq!(last["begun_ns"].as_u64(), cause.map(|_| start + delay), "{control:#x} {mlvds:#x} {front:#x}");
    }
}

#[test]
fn a_stop_keeps_what_was_sampled_and_tells_nobody() {
    let mut driver = Driver::new(Model::L);
    driver.set_up(0b11, 1000, 0);
    driver.writes(&[(0x220, 0x4000), (0x10, 1)]);
    let start = driver.now;
    // 160 samples at 250/3 MHz.
    driver.run_until(start + 160 * 12);
    driver.write(0x10, 4);
    assert_eq!(driver.read(0x10) & 0x33, 0x30);
    driver.run();
    assert_eq!((driver.read(0x10) & 0x33, driver.read(0x221), driver.machine.messages.len()), (0, 0, 0));
    assert_eq!([0x120, 0x121].map(|word| driver.read(word)), [10, 1010]);
    driver.dma(0, 0, 384);
    assert_eq!(*driver.memory(0, 320), samples_of(1, 1, 1, 0, 0, 160));
    assert_eq!(*driver.memory(320, 64), samples_of(1, 1, 0, 0, 160, 32), "the rest is as before");
    let ledger = driver.ledger();
    assert_eq!((&ledger["acquisitions"]["aborted"], &ledger["acquisitions"]["ended"]), (&json!(1), &json!(0)));
}

#[test]
fn the_clock_comes_through_multiplexer_and_divider() {
    let mut driver = Driver::new(Model::L);
    let time = |driver: &mut Driver| {
        driver.write(0x10, 1);
        let start = driver.now;
        driver.run();
        let last = driver.ledger()["acquisitions"]["last"].as_array().unwrap().last().unwrap().clone();
        last["end_ns"].as_u64().map(|end| end - start)
    };
    driver.set_up(1, 100, 0);
    assert_eq!(time(&mut driver), Some(1600 * 12));
    driver.shift(0x41, 1 << 30 | 0x56 << 8 | 0x10);
    assert_eq!(time(&mut driver), Some(1600 * 12), "not before the update");
    driver.shift(0x41, 1 << 30 | 0x56 << 8 | 0x33);
    driver.shift(0x41, 1 << 30 | 0x5a << 8 | 1);
    assert_eq!(time(&mut driver), Some(1600 * 8 * 4));
    driver.tells(&["clock sma 100000000", "clock tclka 50000000"]);
    driver.write(0x40, 0x300);
    assert_eq!(time(&mut driver), Some(1600 * 8 * 10));
    driver.write(0x40, 0x2);
    assert_eq!(time(&mut driver), Some(1600 * 8 * 20));
    driver.write(0x40, 0x1);
    assert_eq!(time(&mut driver), None, "no clock, no end");
    driver.write(0x10, 4);
    driver.run();
    assert_eq!(driver.read(0x10) & 0x33, 0);
}

#[test]
fn before_the_flush_the_last_samples_are_not_there() {
    let mut driver = Driver::new(Model::L);
    driver.tells(&["set daq-done before-flush", "set flush 50us"]);
    driver.set_up(1, 64, 0);
    driver.writes(&[(0x220, 0x4000), (0x10, 1)]);
    let end = driver.now + 1024 * 12;
    driver.run_until(end);
    assert_eq!((driver.read(0x10) & 0x33, driver.read(0x221)), (0x30, 0x4000));
    driver.start_dma(0, 0, 2048);
    driver.run_until(end + 10_000);
    assert_eq!(*driver.memory(0, 1024), samples_of(1, 1, 1, 0, 0, 512));
    assert_eq!(*driver.memory(1024, 1024), samples_of(1, 1, 0, 0, 512, 512), "what the FIFO holds");
    driver.run();
    driver.dma(0, 0, 2048);
    assert_eq!(*driver.memory(0, 2048), samples_of(1, 1, 1, 0, 0, 1024));
    assert_eq!(driver.machine.messages.len(), 1);
}
