//! Every line of docs/spec/latency-endpoint.md, checked on the model alone.

use serde_json::json;

use super::*;
use crate::device::delay::SplitMix64;
use crate::device::test::TestBus;

/// An endpoint as a guest's driver leaves it: memory and bus mastering on.
fn endpoint() -> LatencyEndpoint {
    let mut endpoint = LatencyEndpoint::default();
    endpoint.config_write(4, &[0x06, 0x00]);
    endpoint
}

fn read<const N: usize>(endpoint: &mut LatencyEndpoint, bar: u8, offset: u64) -> (u64, Wait) {
    let mut bytes = [0; 8];
    let wait = endpoint.bar_read(0, bar, offset, &mut bytes[..N]);
    (u64::from_le_bytes(bytes), wait)
}

fn read4(endpoint: &mut LatencyEndpoint, offset: u64) -> u32 {
    read::<4>(endpoint, 0, offset).0 as u32
}

fn read8(endpoint: &mut LatencyEndpoint, offset: u64) -> u64 {
    read::<8>(endpoint, 0, offset).0
}

fn write(endpoint: &mut LatencyEndpoint, bar: u8, offset: u64, bytes: &[u8]) -> Vec<Message> {
    let mut outbox = TestBus::default();
    endpoint.bar_write(0, bar, offset, bytes, &mut outbox);
    outbox.messages
}

fn write4(endpoint: &mut LatencyEndpoint, offset: u64, value: u32) -> Vec<Message> {
    write(endpoint, 0, offset, &value.to_le_bytes())
}

fn ask(endpoint: &mut LatencyEndpoint, line: &str) -> Value {
    endpoint.command(line).unwrap_or_else(|err| panic!("{line}: {err}"))
}

fn ledger(endpoint: &mut LatencyEndpoint) -> Value {
    ask(endpoint, "ledger")
}

#[test]
fn an_endpoint_without_a_pin_shows_none_and_raises_none() {
    let mut ep = LatencyEndpoint::without_pin(&Link::default());
    let mut pin = [0xff];
    ep.config_read(0x3d, &mut pin);
    assert_eq!((pin, ep.layout().intx), ([0], false));
    (ep.registers.irq_cause, ep.registers.irq_enable) = (1, 1);
    assert!(!ep.intx());
    ep.has_pin = true;
    assert!(ep.intx());
}

#[test]
fn the_layout_is_the_specified_one() {
    let layout = endpoint().layout();
    assert_eq!(layout.bars, [0x1_0000, 0, 0x10_0000, 0, 0x1000, 0]);
    assert_eq!((layout.intx, layout.msi, layout.msix), (true, 8, 16));
    let mut id = [0; 4];
    endpoint().config_read(0, &mut id);
    assert_eq!(id, [0x34, 0x12, 0x0e, 0x5c]);
}

#[test]
fn without_msix_there_is_neither_its_capability_nor_its_bar() {
    let mut ep = LatencyEndpoint::without_msix(&Link::default());
    ep.config_write(4, &[6, 0]);
    assert_eq!((ep.layout().bars[4], ep.layout().msi, ep.layout().msix), (0, 8, 0));
    let mut config = [0; 256];
    ep.config_read(0, &mut config);
    let mut capabilities = Vec::new();
    let mut at = usize::from(config[0x34]);
    while at != 0 {
        capabilities.push(config[at]);
        at = usize::from(config[at + 1]);
    }
    assert_eq!(capabilities, [0x01, 0x05, 0x10]);
    assert_eq!(read::<4>(&mut ep, 4, 0).0, 0xffff_ffff);
    assert_eq!(read4(&mut ep, 0), 0x5c0e_1a7e);
}

#[test]
fn id_and_version_are_constant_and_have_no_side_effects() {
    let mut ep = endpoint();
    assert_eq!(read4(&mut ep, 0), 0x5c0e_1a7e);
    assert_eq!(read4(&mut ep, 4), 1);
    assert_eq!(read8(&mut ep, 0), 0x1_5c0e_1a7e);
    assert_eq!(read::<1>(&mut ep, 0, 3).0, 0x5c);
    assert_eq!(read::<2>(&mut ep, 0, 2).0, 0x5c0e);
    write4(&mut ep, 0, 0);
    assert_eq!(read4(&mut ep, 0), 0x5c0e_1a7e);
}

#[test]
fn scratch_keeps_what_is_written_in_every_width() {
    let mut ep = endpoint();
    assert_eq!(read8(&mut ep, 8), 0);
    write(&mut ep, 0, 8, &0x1122_3344_5566_7788u64.to_le_bytes());
    write(&mut ep, 0, 9, &[0xaa]);
    write(&mut ep, 0, 10, &[0xbb, 0xcc]);
    write4(&mut ep, 12, 0xdddd_eeee);
    assert_eq!(read8(&mut ep, 8), 0xdddd_eeee_ccbb_aa88);
    assert_eq!(read::<1>(&mut ep, 0, 9).0, 0xaa);
    ep.reset();
    ep.config_write(4, &[2]);
    assert_eq!(read8(&mut ep, 8), 0);
}

#[test]
fn reads_and_writes_are_counted_this_one_included() {
    let mut ep = endpoint();
    assert_eq!(read8(&mut ep, 0x10), 1);
    read::<4>(&mut ep, 2, 0);
    write(&mut ep, 2, 0, &[1]);
    write4(&mut ep, 0x0ff0, 1);
    read::<4>(&mut ep, 4, 0);
    write(&mut ep, 4, 0, &[0; 4]);
    assert_eq!(read8(&mut ep, 0x10), 3, "BAR 4 is not counted");
    assert_eq!(read8(&mut ep, 0x18), 2, "an ignored write is counted, one of BAR 4 is not");
}

#[test]
fn events_counts_its_reads_and_clears_its_bit() {
    let mut ep = endpoint();
    assert_eq!(read4(&mut ep, 0x20), 0x0001_0000);
    write(&mut ep, 0, 0x0f, &[1]);
    assert_eq!(read4(&mut ep, 0x20), 0x0002_0001);
    assert_eq!(read4(&mut ep, 0x20), 0x0003_0000);
    write4(&mut ep, 8, 0);
    assert_eq!(read::<1>(&mut ep, 0, 0x20).0, 1, "a read of one byte is a read");
    assert_eq!(read4(&mut ep, 0x20), 0x0005_0000);
    for _ in 0..0x1_0000 - 6 {
        read4(&mut ep, 0x20);
    }
    assert_eq!(read4(&mut ep, 0x20), 0, "modulo 2^16");
}

#[test]
fn never_takes_the_completion_timeout() {
    let mut ep = endpoint();
    ask(&mut ep, "read-delay fixed 20us");
    assert_eq!(read::<4>(&mut ep, 0, 0x24), (0xffff_ffff, 50_000_000));
    ask(&mut ep, "completion-timeout 3ms");
    assert_eq!(read::<1>(&mut ep, 0, 0x27), (0xff, 3_000_000));
    assert_eq!(read::<8>(&mut ep, 0, 0x20), (u64::MAX, 3_000_000));
    assert_eq!(read4(&mut ep, 0x20), 0x0001_0000, "the read that was not answered did not reach EVENTS");
    assert_eq!(read::<4>(&mut ep, 0, 0x28).1, 20_000);
    let read_delay = &ledger(&mut ep)["read_delay_ns"];
    assert_eq!(read_delay["count"], 2, "a time-out is no delay");
}

#[test]
fn the_clock_is_the_time_that_the_access_came() {
    let mut ep = endpoint();
    let mut bytes = [0; 8];
    ep.bar_read(0x1_0000_0002, 0, 0x28, &mut bytes);
    assert_eq!(u64::from_le_bytes(bytes), 0x1_0000_0002);
}

#[test]
fn pattern_is_a_function_of_the_offset() {
    let mut ep = endpoint();
    for offset in [0x1000u64, 0x1001, 0x12ff, 0x1fff] {
        assert_eq!(read::<1>(&mut ep, 0, offset).0, (offset ^ offset >> 8) & 0xff, "{offset:#x}");
    }
    assert_eq!(read8(&mut ep, 0x1238).to_le_bytes(), [0x2a, 0x2b, 0x28, 0x29, 0x2e, 0x2f, 0x2c, 0x2d]);
    write4(&mut ep, 0x1000, 0);
    assert_eq!(read4(&mut ep, 0x1000), 0x1312_1110);
}

#[test]
fn other_offsets_read_0() {
    let mut ep = endpoint();
    for offset in [0x38, 0x40, 0x7c, 0x80, 0xbc, 0xc0, 0x200, 0xffc, 0x2000, 0xfffc] {
        assert_eq!(read4(&mut ep, offset), 0, "{offset:#x}");
    }
}

#[test]
fn bar_2_is_memory() {
    let mut ep = endpoint();
    write(&mut ep, 2, 0xf_fff8, &0x0102_0304_0506_0708u64.to_le_bytes());
    assert_eq!(read::<8>(&mut ep, 2, 0xf_fff8).0, 0x0102_0304_0506_0708);
    assert_eq!(read::<1>(&mut ep, 2, 0xf_ffff).0, 1);
    ep.reset();
    ep.config_write(4, &[2]);
    assert_eq!(read::<8>(&mut ep, 2, 0xf_fff8).0, 0);
}

#[test]
fn a_trigger_of_an_enabled_vector_sends_one_message() {
    let mut ep = endpoint();
    write4(&mut ep, 0x30, 1 << 3 | 1 << 15);
    let expected = |vector| vec![Message { vector, delay_ns: 0, is_copy: false }];
    assert_eq!(write4(&mut ep, 0x80 + 4 * 3, 0), expected(3));
    assert_eq!(write(&mut ep, 0, 0x80 + 4 * 15 + 1, &[0]), expected(15));
    assert_eq!(write4(&mut ep, 0x80 + 4 * 4, 1), []);
    assert_eq!(read4(&mut ep, 0x34), 1 << 3 | 1 << 4 | 1 << 15);
    assert_eq!(read4(&mut ep, 0x3c), 4);
    assert_eq!([3, 4, 15, 0].map(|v| read8(&mut ep, 0x100 + 8 * v)), [1, 1, 1, 0]);
    assert_eq!(read8(&mut ep, 0x180 + 8 * 3), 0, "not sent before it went out");
    ep.delivered(&expected(3)[0], true);
    assert_eq!(read8(&mut ep, 0x180 + 8 * 3), 1);
    let irq = ledger(&mut ep)["irq"].clone();
    let vector = |vector, sent, masked, pending| {
        json!({"vector": vector, "triggers": 1, "sent": sent, "lost": 0, "doubled": 0, "masked": masked,
               "undelivered": 0, "pending": pending})
    };
    assert_eq!(irq, json!([vector(3, 1, 0, 0), vector(4, 0, 1, 0), vector(15, 0, 0, 1)]));
}

#[test]
fn a_raised_vector_sends_again() {
    let mut ep = endpoint();
    write4(&mut ep, 0x30, 1);
    assert_eq!(write4(&mut ep, 0x80, 0).len(), 1);
    assert_eq!(write4(&mut ep, 0x80, 0).len(), 1);
    assert_eq!(read8(&mut ep, 0x100), 2);
}

#[test]
fn a_wide_write_raises_every_vector_it_covers() {
    let mut ep = endpoint();
    write4(&mut ep, 0x30, 0xffff_ffff);
    assert_eq!(read4(&mut ep, 0x30), 0xffff, "there are 16 vectors");
    let vectors: Vec<_> = write(&mut ep, 0, 0x88, &[0; 8]).iter().map(|message| message.vector).collect();
    assert_eq!(vectors, [2, 3]);
}

#[test]
fn acknowledging_clears_the_bits_that_are_1() {
    let mut ep = endpoint();
    (0..4).for_each(|v| drop(write4(&mut ep, 0x80 + 4 * v, 0)));
    write4(&mut ep, 0x38, 0b0101);
    assert_eq!(read4(&mut ep, 0x34), 0b1010);
    write(&mut ep, 0, 0x39, &[0xff]);
    assert_eq!(read4(&mut ep, 0x34), 0b1010, "the low byte was not written");
    write4(&mut ep, 0x34, 0xff);
    assert_eq!(read4(&mut ep, 0x34), 0b1010, "IRQ_CAUSE is read-only");
}

#[test]
fn the_pin_is_high_while_an_enabled_vector_is_raised() {
    let mut ep = endpoint();
    let status = |ep: &mut LatencyEndpoint| {
        let mut status = [0; 2];
        ep.config_read(6, &mut status);
        status[0] & 8 != 0
    };
    write4(&mut ep, 0x80, 0);
    assert!(!ep.intx() && !status(&mut ep));
    write4(&mut ep, 0x30, 1);
    assert!(ep.intx() && status(&mut ep));
    write4(&mut ep, 0x38, 1);
    assert!(!ep.intx() && !status(&mut ep));
}

#[test]
fn messages_need_bus_mastering() {
    let mut ep = endpoint();
    let message = Message { vector: 0, delay_ns: 0, is_copy: false };
    assert_eq!(ep.may_deliver(&message), Delivery::Now);
    // MSI-X on (its capability lies at 0x60), then bus mastering off.
    ep.config_write(0x62, &[0x00, 0x80]);
    assert_eq!(ep.may_deliver(&message), Delivery::Now);
    ep.config_write(4, &[0x02]);
    assert_eq!(ep.may_deliver(&message), Delivery::Never);
}

#[test]
fn a_second_message_waits_for_the_acknowledgement_of_the_first() {
    let mut ep = endpoint();
    let copy = |vector| Message { vector, delay_ns: 0, is_copy: true };
    write4(&mut ep, 0x80 + 4 * 2, 0);
    assert_eq!([1, 2].map(|vector| ep.may_deliver(&copy(vector))), [Delivery::Now, Delivery::Later]);
    assert_eq!(ep.may_deliver(&Message { is_copy: false, ..copy(2) }), Delivery::Now);
    write4(&mut ep, 0x38, 1 << 2);
    assert_eq!(ep.may_deliver(&copy(2)), Delivery::Now);
    ask(&mut ep, "remove");
    assert_eq!(ep.may_deliver(&copy(2)), Delivery::Never);
}

#[test]
fn what_no_register_can_have_is_refused() {
    let mut ep = endpoint();
    let cases: [(u8, u64, usize); 9] = [
        (0, 0x1_0000, 4),
        (0, 0xfffe, 4),
        (0, 2, 4),
        (0, 4, 8),
        (0, 0, 3),
        (0, 0, 16),
        (0, u64::MAX, 1),
        (1, 0, 4),
        (9, 0, 4),
    ];
    for (bar, offset, width) in cases {
        let mut bytes = vec![0; width];
        assert_eq!(ep.bar_read(0, bar, offset, &mut bytes), 0);
        assert!(bytes.iter().all(|byte| *byte == 0xff), "BAR {bar} {offset:#x} {width}");
        assert_eq!(write(&mut ep, bar, offset, &bytes), []);
    }
    let shown = ledger(&mut ep);
    assert_eq!((&shown["refused"], &shown["reads_total"], &shown["writes_total"]), (&json!(18), &json!(0), &json!(0)));
}

#[test]
fn nothing_is_decoded_while_memory_is_disabled() {
    let mut ep = LatencyEndpoint::default();
    assert_eq!(read4(&mut ep, 0), 0xffff_ffff);
    ep.config_write(4, &[2]);
    assert_eq!(read4(&mut ep, 0), 0x5c0e_1a7e);
}

#[test]
fn bar_4_holds_the_table_masked_after_reset() {
    let mut ep = endpoint();
    assert_eq!([0, 15].map(|v| read::<4>(&mut ep, 4, 16 * v + 12).0), [1, 1]);
    write(&mut ep, 4, 0x10, &[1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(read::<8>(&mut ep, 4, 0x10).0, 0x0807_0605_0403_0201);
    write(&mut ep, 4, 0x800, &[0xff; 4]);
    assert_eq!(read::<4>(&mut ep, 4, 0x800).0, 0, "pending bits are read-only");
}

#[test]
fn delays_are_applied_and_counted_by_direction() {
    let mut ep = endpoint();
    ask(&mut ep, "read-delay list 10,20us");
    ask(&mut ep, "write-delay fixed 5us");
    ask(&mut ep, "config-delay fixed 7us");
    let waits: Vec<_> = (0..3).map(|_| read::<4>(&mut ep, 2, 0).1).collect();
    assert_eq!(waits, [10, 20_000, 10]);
    assert_eq!(ep.bar_write(0, 2, 0, &[0], &mut TestBus::default()), 5_000);
    assert_eq!(ep.config_read(0, &mut [0; 4]), 7_000);
    assert_eq!(read::<4>(&mut ep, 4, 0).1, 0, "BAR 4 is not delayed");
    let shown = ledger(&mut ep);
    assert_eq!(shown["read_delay_ns"], json!({"count": 3, "sum": 20_020, "chosen": [[10, 2], [20_000, 1]]}));
    assert_eq!(shown["write_delay_ns"], json!({"count": 1, "sum": 5_000, "chosen": [[5_000, 1]]}));
    ask(&mut ep, "read-delay none");
    assert_eq!(read::<4>(&mut ep, 2, 0).1, 0);
}

#[test]
fn lost_and_doubled_messages_are_counted() {
    let mut ep = endpoint();
    write4(&mut ep, 0x30, 1);
    ask(&mut ep, "irq-delay fixed 30us");
    ask(&mut ep, "irq-lose every 3");
    ask(&mut ep, "irq-double every 2 gap 1ms");
    let mut sent = Vec::new();
    for _ in 0..6 {
        let messages = write4(&mut ep, 0x80, 0);
        messages.iter().for_each(|message| ep.delivered(message, true));
        sent.extend(messages);
    }
    let (firsts, copies): (Vec<Message>, Vec<Message>) = sent.into_iter().partition(|message| !message.is_copy);
    assert_eq!((firsts.len(), copies.len()), (4, 2));
    assert!(firsts.iter().all(|message| message.delay_ns == 30_000));
    assert!(copies.iter().all(|message| message.delay_ns == 1_030_000));
    let irq = json!({"vector": 0, "triggers": 6, "sent": 6, "lost": 2, "doubled": 2, "masked": 0,
                     "undelivered": 0, "pending": 0});
    assert_eq!(ledger(&mut ep)["irq"], json!([irq]));
    assert_eq!(ledger(&mut ep)["irq_delay_ns"]["chosen"], json!([[30_000, 4]]));
    assert_eq!(read8(&mut ep, 0x180), 6);
}

#[test]
fn all_ones_comes_after_n_reads_and_goes_when_told() {
    let mut ep = endpoint();
    write4(&mut ep, 0x30, 1);
    ask(&mut ep, "all-ones after 2");
    read::<4>(&mut ep, 4, 0);
    assert_eq!([0, 4, 0, 4].map(|o| read4(&mut ep, o)), [0x5c0e_1a7e, 1, 0xffff_ffff, 0xffff_ffff]);
    assert_eq!(write4(&mut ep, 0x80, 0), []);
    assert_eq!(read::<4>(&mut ep, 4, 0).0, 0xffff_ffff);
    assert!(ep.is_gone());
    let mut id = [0; 4];
    ep.config_read(0, &mut id);
    assert_eq!(id, [0x34, 0x12, 0x0e, 0x5c], "configuration space still answers");
    ask(&mut ep, "all-ones off");
    assert_eq!(read8(&mut ep, 0x100), 0, "the trigger was dropped");
    let shown = ledger(&mut ep);
    assert_eq!(
        (&shown["all_ones_reads"], &shown["dropped_writes"], &shown["removed"]),
        (&json!(3), &json!(1), &json!(false))
    );
}

#[test]
fn a_removed_device_answers_nothing_until_reset_by_command() {
    let mut ep = endpoint();
    ask(&mut ep, "remove");
    let mut id = [0; 4];
    ep.config_read(0, &mut id);
    assert_eq!(id, [0xff; 4]);
    assert_eq!(read4(&mut ep, 0), 0xffff_ffff);
    ep.config_write(4, &[0]);
    ep.reset();
    ask(&mut ep, "all-ones off");
    assert_eq!(read4(&mut ep, 0), 0xffff_ffff);
    assert_eq!(ledger(&mut ep)["removed"], true);
    ask(&mut ep, "reset");
    ep.config_write(4, &[2]);
    assert_eq!(read4(&mut ep, 0), 0x5c0e_1a7e);
}

#[test]
fn the_command_reset_keeps_the_configuration_and_forgets_the_rest() {
    let mut ep = endpoint();
    write4(&mut ep, 8, 5);
    write4(&mut ep, 0x80, 5);
    write(&mut ep, 2, 0, &[5]);
    ask(&mut ep, "read-delay fixed 1us");
    ask(&mut ep, "reset");
    assert_eq!(ledger(&mut ep), Ledger::new(VECTORS).to_json(false));
    assert_eq!(read::<4>(&mut ep, 0, 8), (0, 0), "memory is still enabled, there is no delay");
    assert_eq!([read8(&mut ep, 0x10), read8(&mut ep, 0x18), read8(&mut ep, 0x100)], [2, 0, 0]);
    assert_eq!(read::<1>(&mut ep, 2, 0).0, 0);
}

#[test]
fn a_function_reset_keeps_settings_and_ledger() {
    let mut ep = endpoint();
    ask(&mut ep, "read-delay fixed 1us");
    read4(&mut ep, 0);
    write4(&mut ep, 0x80, 0);
    // Device control of the PCI Express capability at 0x70: initiate function-level reset.
    ep.config_write(0x78, &[0x10, 0xa8]);
    assert_eq!(read4(&mut ep, 0), 0xffff_ffff, "memory is disabled");
    ep.config_write(4, &[2]);
    assert_eq!(read::<8>(&mut ep, 0, 0x10), (1, 1_000));
    let shown = ledger(&mut ep);
    assert_eq!(
        (&shown["resets"], &shown["reads_total"], &shown["irq"][0]["triggers"]),
        (&json!(1), &json!(2), &json!(1))
    );
}

#[test]
fn a_refused_command_changes_nothing() {
    let mut ep = endpoint();
    ask(&mut ep, "read-delay fixed 1us");
    for line in ["", "read-delay fixed", "remove now", "reset it", "all-ones after", "ledger 1", "\u{0}", "Reset"] {
        assert!(ep.command(line).is_err(), "{line}");
    }
    assert_eq!(read::<4>(&mut ep, 0, 0), (0x5c0e_1a7e, 1_000));
}

#[test]
fn random_accesses_never_panic_and_are_all_accounted_for() {
    let mut ep = endpoint();
    let mut random = SplitMix64::new(20_261_121);
    let (mut reads, mut writes) = (0, 0);
    for _ in 0..100_000 {
        let bar = random.below(8) as u8;
        let width = [1, 2, 4, 8, 0, 3, 16][random.below(7) as usize];
        let offset = match random.below(3) {
            0 => random.next_u64(),
            1 => random.below(0x11_0000),
            _ => random.below(0x240),
        };
        if random.below(2) == 0 {
            ep.bar_read(random.next_u64(), bar, offset, &mut vec![0; width]);
            reads += 1;
        } else {
            let bytes: Vec<_> = (0..width).map(|_| random.next_u64() as u8).collect();
            write(&mut ep, bar, offset, &bytes);
            writes += 1;
        }
        if random.below(50) == 0 {
            let mut bytes = vec![random.next_u64() as u8; random.below(9) as usize];
            // Not the command register: the accesses are to reach their registers.
            let offset = 0x40 + random.below(0x1000);
            ep.config_read(offset, &mut bytes);
            ep.config_write(offset, &bytes);
            ep.config_write(4, &[6]);
        }
    }
    let shown = ledger(&mut ep);
    let number = |name: &str| shown[name].as_u64().unwrap();
    assert_eq!(number("reads_total") + number("writes_total") + number("refused"), reads + writes);
    assert!(number("reads_total") > 1_000 && number("refused") > 5_000, "{}", number("reads_total"));
}

#[test]
fn the_link_is_shown_as_told_until_it_is_told_otherwise() {
    let link = Link { generation: 2, width: 2, ..Link::default() };
    let mut endpoint = LatencyEndpoint::new(&link);
    let find = |endpoint: &mut LatencyEndpoint| {
        let mut byte = [0x34];
        let mut next = |at: u8| {
            endpoint.config_read(at.into(), &mut byte);
            byte[0]
        };
        let mut at = next(0x34);
        while next(at) != 0x10 {
            at = next(at + 1);
        }
        u64::from(at)
    };
    let at = find(&mut endpoint);
    let shown = |endpoint: &mut LatencyEndpoint| {
        let (mut able, mut now) = ([0; 4], [0; 2]);
        endpoint.config_read(at + 0x0c, &mut able);
        endpoint.config_read(at + 0x12, &mut now);
        let (able, now) = (u32::from_le_bytes(able), u16::from_le_bytes(now));
        assert_eq!((able & 0xf, able >> 4 & 0x3f, now >> 12), (3, 4, 1), "what it can do and its clock stay");
        (now & 0xf, now >> 4 & 0x3f)
    };
    assert_eq!(shown(&mut endpoint), (2, 2));
    ask(&mut endpoint, "link 1 4");
    assert_eq!(shown(&mut endpoint), (1, 4));
    endpoint.reset();
    assert_eq!(shown(&mut endpoint), (1, 4));
    for (line, why) in
        [("link 4 4", "`4` is not a generation that"), ("link 3 8", "`8` is not a number of lanes that the")]
    {
        let refused = endpoint.command(line).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
    assert_eq!(shown(&mut endpoint), (1, 4));
    ask(&mut endpoint, "link as-made");
    assert_eq!(shown(&mut endpoint), (2, 2));
    ask(&mut endpoint, "link 3 4");
    ask(&mut endpoint, "reset");
    assert_eq!(shown(&mut endpoint), (2, 2));
}

#[test]
fn a_read_waits_for_the_exit_from_the_state_that_link_control_enables() {
    let mut ep = endpoint();
    // Link Capabilities and Link Control of the PCI Express capability at 0x70.
    let support = |ep: &mut LatencyEndpoint| {
        let mut able = [0; 4];
        ep.config_read(0x7c, &mut able);
        assert_eq!(u32::from_le_bytes(able) & !0xc00, 0x0040_0043, "what else the link can do stays");
        u32::from_le_bytes(able) >> 10 & 3
    };
    ep.config_write(0x80, &[3]);
    assert_eq!((support(&mut ep), read::<4>(&mut ep, 0, 0).1), (0, 0), "as made the link has no ASPM");
    ask(&mut ep, "aspm-exit l1 40us");
    assert_eq!(support(&mut ep), 2);
    ask(&mut ep, "aspm-exit l0s 3us");
    ask(&mut ep, "read-delay fixed 1us");
    assert_eq!(support(&mut ep), 3);
    for (control, wait) in [(0, 1_000), (1, 4_000), (2, 41_000), (3, 41_000)] {
        ep.config_write(0x80, &[control]);
        let mut shown = [0; 2];
        ep.config_read(0x80, &mut shown);
        assert_eq!(shown, [control, 0], "Link Control keeps it");
        assert_eq!([read::<4>(&mut ep, 0, 0).1, read::<8>(&mut ep, 2, 8).1], [wait; 2], "ASPM Control {control}");
    }
    assert_eq!(read::<4>(&mut ep, 0, 0x24).1, 50_000_000, "no completion waits for no link");
    assert_eq!(ep.bar_write(0, 2, 0, &[0], &mut TestBus::default()), 0);
    let exits = json!({"count": 6, "sum": 166_000, "chosen": [[3_000, 2], [40_000, 4]]});
    assert_eq!(ledger(&mut ep)["aspm_exit_ns"], exits);
    ep.reset();
    ep.config_write(4, &[2]);
    assert_eq!((support(&mut ep), read::<4>(&mut ep, 0, 0).1), (3, 1_000), "a function reset switches ASPM off");
    ep.config_write(0x80, &[3]);
    ask(&mut ep, "aspm-exit l1 0");
    assert_eq!((support(&mut ep), read::<4>(&mut ep, 0, 0).1), (3, 4_000), "the longer one");
    ask(&mut ep, "aspm-exit none");
    assert_eq!((support(&mut ep), read::<4>(&mut ep, 0, 0).1), (0, 1_000));
    ask(&mut ep, "aspm-exit l1 1us");
    ask(&mut ep, "reset");
    assert_eq!((support(&mut ep), read::<4>(&mut ep, 0, 0).1), (0, 0));
}
