//! The engines: what moves, how long it takes, who shares the link.

use super::*;

/// Bytes per second of payload of a link, by its formula: GT/s, encoding, SKP, header.
fn rate(giga_transfers: f64, encoding: f64, lanes: f64, payload: f64, header: f64) -> f64 {
    giga_transfers * 1e9 * encoding * lanes / 8.0 * (1.0 - 4.0 / 1538.0) * payload / (payload + header)
}

#[track_caller]
fn near(value: f64, expected: f64, part: f64) {
    assert!((value - expected).abs() <= expected * part, "{value} is not {expected}");
}

#[test]
fn a_read_takes_bytes_by_rate() {
    let gen3 = 128.0 / 130.0;
    for (model, control, high, expected) in [
        (Model::L2, 0x2810u16, 0, rate(2.5, 0.8, 4.0, 128.0, 20.0)),
        (Model::L2, 0x2830, 0, rate(2.5, 0.8, 4.0, 256.0, 20.0)),
        (Model::Ku, 0x2830, 0, rate(8.0, gen3, 4.0, 256.0, 20.0)),
        (Model::Ku, 0x2830, 1, rate(8.0, gen3, 4.0, 256.0, 24.0)),
    ] {
        let mut driver = Driver::new(model);
        driver.board.config_write(0x68, &control.to_le_bytes());
        for len in [64, 4096, 4 << 20, 6_000_000 & !63] {
            let time = driver.dma(high << 32, 64, len);
            near(time as f64, (f64::from(len) / expected * 1e9).ceil(), 1e-9);
        }
    }
}

#[test]
fn data_are_there_before_the_end_is_told_and_move_as_time_passes() {
    let mut driver = Driver::new(Model::L2);
    driver.write(0x220, 1);
    let len = 2 << 20;
    driver.start_dma(0x800, 0, len as u32);
    let start = driver.now;
    assert_eq!((driver.read(0x204), driver.read(0x221)), (1, 0));
    let whole = f64::from(len as u32) / rate(2.5, 0.8, 4.0, 128.0, 20.0) * 1e9;
    driver.run_until(start + (whole / 2.0) as u64);
    let expected = samples_of(1, 1, 0, 0, 0, len as u64 / 2);
    let moved = driver.ledger()["dma_read"]["bytes"].as_u64().unwrap() as usize;
    assert!(moved <= len / 2 && moved > len / 4, "{moved}");
    assert_eq!((0x800 + moved) % 4096, 0, "steps end on pages");
    assert_eq!(*driver.memory(0x800, moved), expected[..moved]);
    assert!(driver.memory(0x800 + moved, len - moved).iter().all(|byte| *byte == 0));
    driver.run();
    assert_eq!((driver.read(0x204), driver.read(0x221), driver.machine.messages.len()), (0, 1, 1));
    assert_eq!(*driver.memory(0x800, len), expected);
    assert_eq!(driver.read(0x202), len as u32, "the source has moved on");
    let mut one_go = Traffic::new().port("0000:00:04.0".parse().unwrap()).totals();
    let reference = Traffic::new().port("0000:00:05.0".parse().unwrap());
    reference.dma_write(0x800, len as u64);
    one_go.rx_mwr += reference.totals().rx_mwr;
    assert_eq!(driver.port().rx_mwr, one_go.rx_mwr, "cut into the same TLPs as in one go");
    let ledger = driver.ledger();
    assert_eq!((&ledger["dma_read"]["bytes"], &ledger["dma_write_bytes"]), (&json!(len), &json!(len)));
    near(ledger["dma_read"]["busy_ns"].as_f64().unwrap(), whole, 1e-6);
    assert_eq!(ledger["violations"], json!([]));
}

#[test]
fn samples_can_be_swapped() {
    let mut driver = Driver::new(Model::L);
    driver.write(0x205, 1);
    driver.dma(0, 0, 64);
    let mut expected = samples_of(1, 1, 0, 0, 0, 32);
    expected.chunks_exact_mut(2).for_each(|pair| pair.reverse());
    assert_eq!(*driver.memory(0, 64), expected);
}

#[test]
fn writes_reach_the_memory_with_the_test_bit_only() {
    let mut driver = Driver::new(Model::L);
    let pattern: Vec<u8> = (0..256u32).map(|i| (i % 127) as u8).collect();
    driver.machine.memory[0x1000..0x1100].copy_from_slice(&pattern);
    for test_bit in [0, 1] {
        driver.writes(&[(0x230, test_bit), (0x220, 2)]);
        driver.writes(&[(0x210, 0x1000), (0x211, 0), (0x212, 0x4000), (0x213, 256), (0x214, 1)]);
        assert_eq!(driver.read(0x214), 1);
        driver.run();
        assert_eq!((driver.read(0x214), driver.read(0x221) & 2), (0, 2));
        driver.write(0x222, 2);
        driver.dma(0x2000, 0x4000, 256);
        let expected = if test_bit == 0 { samples_of(1, 1, 0, 0, 0x2000, 128) } else { pattern.clone() };
        assert_eq!(*driver.memory(0x2000, 256), expected);
    }
    assert_eq!(driver.port().tx_cpld, 4, "256 bytes twice, in pieces of 128");
    assert_eq!(driver.ledger()["dma_read_bytes"], 512);
}

#[test]
fn the_end_of_an_acquisition_can_start_the_read() {
    let mut driver = Driver::new(Model::L2);
    driver.set_up(1, 64, 0);
    driver.write(0x220, 0x4001);
    driver.writes(&[(0x200, 0), (0x201, 0), (0x202, 0), (0x203, 2048), (0x216, 1)]);
    driver.write(0x10, 1);
    let end = driver.now + 1024 * 12 + 2_000;
    driver.run();
    assert_eq!(driver.read(0x221), 0x4001);
    assert_eq!(*driver.memory(0, 2048), samples_of(1, 1, 1, 0, 0, 1024));
    let moved = &driver.ledger()["dmas"][0];
    assert_eq!((moved["begun_ns"].as_u64(), moved["end"].as_str()), (Some(end), Some("done")));
}

#[test]
fn without_bus_mastering_nothing_moves() {
    let mut driver = Driver::new(Model::L2);
    driver.board.config_write(4, &[2, 0]);
    driver.start_dma(0, 0, 1 << 20);
    driver.run_until(driver.now + 1_000_000_000);
    assert_eq!((driver.read(0x204), driver.board.next_work()), (1, None));
    driver.board.config_write(4, &[6, 0]);
    let start = driver.now;
    driver.run();
    let whole = f64::from(1 << 20) / rate(2.5, 0.8, 4.0, 128.0, 20.0) * 1e9;
    near((driver.now - start) as f64, whole, 1e-5);
    assert_eq!(*driver.memory(0, 64), samples_of(1, 1, 0, 0, 0, 32));
}

#[test]
fn odd_addresses_and_lengths_are_noted() {
    let mut driver = Driver::new(Model::L);
    driver.dma(0, 0x50, 0x70);
    assert_eq!(*driver.memory(0, 64), samples_of(1, 1, 0, 0, 32, 32), "the last 6 bits count as 0");
    assert_eq!(driver.read(0x202), 0x80);
    driver.tell("set align any");
    driver.dma(0, 0x50, 0x70);
    assert_eq!(*driver.memory(0, 0x70), samples_of(1, 1, 0, 0, 40, 56));
    driver.dma(0, 0, 0);
    assert_eq!(driver.ledger()["violations_total"], 3);
    driver.start_dma(0, 0, 4096);
    driver.writes(&[(0x202, 64), (0x204, 1)]);
    driver.run();
    let ledger = driver.ledger();
    assert_eq!(
        (&ledger["violations"][3], &ledger["violations"][4]),
        (&json!("0x202 <- 0x40 while a DMA runs"), &json!("DMA read started while one runs"))
    );
    assert_eq!(ledger["dma_read"]["ignored"], 1);
}

#[test]
fn what_lies_past_the_end_is_a_setting() {
    for (setting, moved) in [("zeros", 256), ("wrap", 256), ("stop", 128)] {
        let mut driver = Driver::new(Model::L);
        driver.tell(&format!("set past-end {setting}"));
        driver.machine.memory.fill(0x55);
        driver.dma(0, 0x7fff_ff80, 256);
        assert_eq!(*driver.memory(0, 128), samples_of(1, 1, 0, 0, 0x3fff_ffc0, 64));
        let beyond = match setting {
            "zeros" => vec![0; 128],
            "wrap" => samples_of(1, 1, 0, 0, 0, 64),
            _ => vec![0x55; 128],
        };
        assert_eq!(*driver.memory(128, 128), beyond, "{setting}");
        assert_eq!(driver.ledger()["dmas"][0]["moved"], moved);
    }
}

#[test]
fn bytes_for_where_no_memory_is_are_lost() {
    let mut driver = Driver::new(Model::L);
    driver.write(0x220, 1);
    driver.dma(MEMORY as u64 - 4096, 0, 8192);
    assert_eq!((driver.read(0x221), driver.machine.messages.len()), (1, 1), "posted writes: the board does not see it");
    assert_eq!(driver.ledger()["unmapped_bytes"], 8192);
}

/// Boards behind one link, called in the order of their times. Gives when each transfer ended, for transfers that all begin at
/// 1 us.
fn together(boards: &[(Model, u32)], upstream: &Upstream) -> Vec<f64> {
    let mut drivers: Vec<Driver> =
        boards.iter().map(|(model, _)| Driver::with(*model, |board| board.with_upstream(upstream))).collect();
    for (driver, (_, len)) in drivers.iter_mut().zip(boards) {
        driver.start_dma(0, 0, *len);
    }
    while let Some((at, next)) =
        drivers.iter().enumerate().filter_map(|(index, driver)| Some((driver.board.next_work()?, index))).min()
    {
        let driver = &mut drivers[next];
        driver.now = driver.now.max(at);
        driver.board.work(driver.now, &mut driver.machine);
    }
    drivers.iter().map(|driver| (driver.now - 1_000) as f64).collect()
}

#[test]
fn boards_share_their_joint_link() {
    // x2 of Gen1 carries half of what two boards of x4 could.
    let joint = rate(2.5, 0.8, 2.0, 128.0, 20.0);
    let alone = together(&[(Model::L, 4 << 20)], &Upstream::new(1, 2));
    near(alone[0], f64::from(4 << 20) / joint * 1e9, 1e-6);
    let both = together(&[(Model::L, 4 << 20), (Model::L2, 4 << 20)], &Upstream::new(1, 2));
    for time in both {
        near(time, 2.0 * alone[0], 0.02);
    }
    // The second is half as long: it ends at the time that the first alone would take, and the first has the link for itself then.
    let uneven = together(&[(Model::L, 4 << 20), (Model::L, 2 << 20)], &Upstream::new(1, 2));
    near(uneven[1], alone[0], 0.03);
    near(uneven[0], 1.5 * alone[0], 0.03);
    // A wide joint link holds nobody back.
    let wide = together(&[(Model::L, 4 << 20), (Model::Ku, 4 << 20)], &Upstream::new(3, 16));
    near(wide[0], f64::from(4 << 20) / rate(2.5, 0.8, 4.0, 128.0, 20.0) * 1e9, 1e-6);
    near(wide[1], f64::from(4 << 20) / rate(8.0, 128.0 / 130.0, 4.0, 128.0, 20.0) * 1e9, 1e-6);
}
