use proptest::prelude::*;

use super::*;

fn bdf() -> Bdf {
    "0000:00:02.0".parse().unwrap()
}

/// A ledger with so many sub-channels on each die, and the accounts.
fn machine(per_die: &[usize]) -> (Traffic, PortTraffic, Vec<SubChannelTraffic>) {
    let traffic = Traffic::new();
    let mut subs = Vec::new();
    for (die, count) in per_die.iter().enumerate() {
        subs.extend((0..*count).map(|index| traffic.sub_channel(die as u8, &format!("{die}-{index}"))));
    }
    let port = traffic.port(bdf());
    (traffic, port, subs)
}

/// Requests of a transfer, cut byte by byte: first byte and the one after the last.
fn requests(address: u64, len: u64, most: u64) -> Vec<(u64, u64)> {
    let mut cut = Vec::new();
    let mut start = address;
    for byte in address..address + len {
        if byte > start && (byte - start == most || byte % 4096 == 0) {
            cut.push((start, byte));
            start = byte;
        }
    }
    cut.extend((len > 0).then_some((start, address + len)));
    cut
}

/// Completions of one request, cut byte by byte.
fn answers(start: u64, end: u64, mps: u64) -> u64 {
    1 + (start + 1..end).filter(|byte| byte % mps == 0).count() as u64
}

#[test]
fn a_write_is_cut_at_mps_and_at_4_kib() {
    let (_, port, _) = machine(&[]);
    port.set_link(256, 512);
    port.dma_write(0x1000, 4096);
    assert_eq!((port.totals().rx_mwr, port.totals().rx_payload), (16, 4096));
    port.dma_write(0x1ff0, 32);
    assert_eq!(port.totals().rx_mwr, 18, "across a page: two");
    port.dma_write(0x10f0, 256);
    assert_eq!(port.totals().rx_mwr, 19, "MPS counts from the start, not from a boundary");
    assert_eq!(port.totals().tx_tlps(), 0);
}

#[test]
fn a_read_is_asked_by_mrrs_and_answered_on_boundaries_of_mps() {
    let (_, port, _) = machine(&[]);
    port.set_link(256, 512);
    port.dma_read(0x1000, 4096);
    let totals = port.totals();
    assert_eq!((totals.rx_mrd, totals.tx_cpld, totals.tx_payload, totals.rx_payload), (8, 16, 4096, 0));
    port.dma_read(0x10f0, 256);
    assert_eq!((port.totals().rx_mrd, port.totals().tx_cpld), (9, 18), "16 bytes up to the boundary, then 240");
}

#[test]
fn the_cpu_s_accesses_are_one_tlp_each() {
    let (_, port, _) = machine(&[]);
    port.cpu_read(8);
    port.cpu_write(4);
    port.config_read();
    port.config_write();
    let expected = PortTotals {
        rx_payload: 8,
        tx_payload: 4,
        rx_cpld: 2,
        rx_cpl: 1,
        tx_mrd: 1,
        tx_mwr: 1,
        tx_cfgrd: 1,
        tx_cfgwr: 1,
        ..PortTotals::default()
    };
    assert_eq!(port.totals(), expected);
    assert_eq!((port.totals().rx_tlps(), port.totals().tx_tlps()), (3, 4));
}

#[test]
fn no_length_moves_nothing_and_no_address_overflows() {
    let (_, port, subs) = machine(&[1]);
    port.dma_write(0x1234, 0);
    port.dma_read(0x1234, 0);
    assert_eq!(port.totals(), PortTotals::default());
    assert_eq!(subs[0].totals(), DramTotals::default());
    port.dma_write(u64::MAX - 63, 64);
    assert_eq!((port.totals().rx_mwr, subs[0].totals().hif_wr), (1, 1));
}

#[test]
fn a_link_takes_only_sizes_that_exist() {
    let (_, port, _) = machine(&[]);
    assert_eq!(port.link(), (128, 512));
    port.set_link(0, 1 << 20);
    assert_eq!(port.link(), (128, 4096));
}

#[test]
fn lines_go_round_the_sub_channels_of_their_die() {
    let (traffic, port, subs) = machine(&[8, 8]);
    traffic.set_split(Some(0x1_0000));
    port.dma_write(0x40, 0x200);
    let of = |index: usize| subs[index].totals();
    assert!((0..8).all(|index| of(index) == DramTotals { hif_wr: 1, ..DramTotals::default() }));
    port.dma_read(0xffc0, 0x80);
    assert_eq!((of(7).hif_rd, of(8).hif_rd), (1, 1), "the last line of die 0, the first of die 1");
    traffic.set_split(None);
    port.dma_read(0x1_0000, 0x40);
    assert_eq!((of(0).hif_rd, of(8).hif_rd), (1, 1), "without a split, all is die 0's");
}

#[test]
fn a_line_written_in_part_is_read_first() {
    let (_, port, subs) = machine(&[1]);
    for (address, len, whole, parts) in
        [(0x100, 64, 1, 0), (0x101, 64, 0, 2), (0x110, 4, 0, 1), (0x13c, 4, 0, 1), (0x13c, 200, 3, 2)]
    {
        let before = subs[0].totals();
        port.dma_write(address, len);
        let after = subs[0].totals();
        assert_eq!(
            (after.hif_wr - before.hif_wr, after.hif_rmw - before.hif_rmw),
            (whole, parts),
            "{len} bytes at {address:#x}"
        );
    }
}

#[test]
fn the_json_has_every_account() {
    let (traffic, port, _) = machine(&[1]);
    port.dma_write(0, 100);
    assert_eq!(
        traffic.to_json(),
        serde_json::json!({
            "ports": {"0000:00:02.0": {"rx_payload": 100, "tx_payload": 0, "tlps": {
                "rx_mwr": 1, "rx_mrd": 0, "rx_cpld": 0, "rx_cpl": 0,
                "tx_mwr": 0, "tx_mrd": 0, "tx_cpld": 0, "tx_cfgrd": 0, "tx_cfgwr": 0}}},
            "dram": {"0-0": {"hif_rd": 0, "hif_wr": 1, "hif_rmw": 1, "hif_rd_or_wr": 2}}
        })
    );
}

#[test]
fn handles_of_one_port_share_its_account() {
    let (traffic, port, _) = machine(&[1]);
    let other = traffic.port(bdf());
    other.dma_write(0, 64);
    assert_eq!(port.totals().rx_payload, 64);
    traffic.sub_channel(1, "0-0");
    other.dma_write(0, 64);
    assert_eq!(traffic.sub_channel(0, "0-0").totals().hif_wr, 2, "a name stands for one sub-channel");
}

proptest! {
    #[test]
    fn cutting_agrees_with_cutting_byte_by_byte(
        address in 0u64..40_000, len in 0u64..20_000, mps_log in 7u32..13, mrrs_log in 7u32..13,
    ) {
        let (_, port, _) = machine(&[]);
        port.set_link(1 << mps_log, 1 << mrrs_log);
        port.dma_write(address, len);
        prop_assert_eq!(port.totals().rx_mwr, requests(address, len, 1 << mps_log).len() as u64);
        port.dma_read(address, len);
        let asked = requests(address, len, 1 << mrrs_log);
        prop_assert_eq!(port.totals().rx_mrd, asked.len() as u64);
        let answered: u64 = asked.iter().map(|(start, end)| answers(*start, *end, 1 << mps_log)).sum();
        prop_assert_eq!(port.totals().tx_cpld, answered);
        prop_assert_eq!((port.totals().rx_payload, port.totals().tx_payload), (len, len));
    }

    #[test]
    fn the_interleave_agrees_with_going_line_by_line(
        address in 0u64..8_000, len in 0u64..8_000, split in 0u64..10_000, first in 1usize..9, second in 1usize..9,
    ) {
        let (traffic, port, subs) = machine(&[first, second]);
        let split = split / 64 * 64;
        traffic.set_split(Some(split));
        port.dma_write(address, len);
        port.dma_read(address, len);
        let mut expected = vec![DramTotals::default(); first + second];
        let lines = if len == 0 { 0..0 } else { address / 64..(address + len).div_ceil(64) };
        for line in lines {
            let index = if line * 64 < split { line as usize % first } else { first + line as usize % second };
            let is_whole = line * 64 >= address && (line + 1) * 64 <= address + len;
            expected[index].hif_rd += 1;
            *(if is_whole { &mut expected[index].hif_wr } else { &mut expected[index].hif_rmw }) += 1;
        }
        let seen: Vec<DramTotals> = subs.iter().map(SubChannelTraffic::totals).collect();
        prop_assert_eq!(seen, expected);
    }
}
