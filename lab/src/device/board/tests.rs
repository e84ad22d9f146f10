use proptest::prelude::*;

use super::super::test::TestBus;
use super::*;

/// A board whose memory the guest has enabled, and what it sent.
struct Machine {
    board: CounterBoard,
    traffic: Traffic,
    sent: TestBus,
    now: u64,
}

impl Machine {
    fn seed() -> Self {
        let traffic = Traffic::new();
        Machine::of(CounterBoard::seed_machine(traffic.clone()), traffic)
    }

    fn of(mut board: CounterBoard, traffic: Traffic) -> Self {
        board.config_write(0x04, &[0x06, 0x00]);
        Machine { board, traffic, sent: TestBus::default(), now: 0 }
    }

    fn read(&mut self, bar: u8, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        self.board.bar_read(self.now, bar, offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn write(&mut self, bar: u8, offset: u64, value: u32) {
        self.board.bar_write(self.now, bar, offset, &value.to_le_bytes(), &mut self.sent);
    }

    fn work(&mut self) {
        self.board.work(self.now, &mut self.sent);
    }

    /// What was sent since the last look.
    fn sent(&mut self) -> Vec<u16> {
        std::mem::take(&mut self.sent).vectors()
    }

    fn ctl(&mut self, line: &str) -> Value {
        self.board.set_clock(self.now);
        self.board.command(line).unwrap()
    }

    fn refused(&mut self, line: &str) -> String {
        self.board.command(line).unwrap_err().to_string()
    }
}

/// No message.
const NONE: [u16; 0] = [];
const CNT_CTRL: u64 = 0xc00;
const EVENT_SEL0: u64 = 0xc68;
const OV_ENABLE: u64 = 0xcb8;
const OV_CLEAR: u64 = 0xcc4;

/// Sub-channel `index` counts hif_rd in counter 0, which ends with the next event, and may interrupt.
fn arm(machine: &mut Machine, index: u64) {
    let window = index * 0x1000;
    machine.write(2, window + EVENT_SEL0, 0x82);
    machine.write(2, window + OV_ENABLE, 1 << 8);
    machine.write(2, window + CNT_CTRL, 1);
    let name = machine.board.sub_channels[index as usize].bank.name().to_owned();
    machine.ctl(&format!("dram {name} set 0 0xffffffff"));
}

#[test]
fn the_directory_describes_the_seed_s_machine() {
    let mut machine = Machine::seed();
    let head: Vec<u32> = (0..5).map(|n| machine.read(0, 4 * n)).collect();
    assert_eq!(head, [0x5c0f_c0de, 1, 18, 16, 8]);
    let function = |machine: &mut Machine, n: u64| [0, 4, 8, 12].map(|field| machine.read(0, 0x100 + 16 * n + field));
    assert_eq!(function(&mut machine, 0), [0x0000_0020, 0x8000_1ded, 0x200, 0], "00:04.0 stands for 00:00.0");
    assert_eq!(function(&mut machine, 1)[0], 0x0000_0008);
    assert_eq!(function(&mut machine, 15)[0], 0x0000_8018);
    assert_eq!(function(&mut machine, 16)[0], 0x0000_9800);
    assert_eq!(function(&mut machine, 17)[0], 0x0000_b000);
    assert_eq!(function(&mut machine, 18), [0; 4]);
    let sub =
        |machine: &mut Machine, n: u64| [0, 4, 8, 12, 16, 20].map(|field| machine.read(0, 0x800 + 32 * n + field));
    assert_eq!(sub(&mut machine, 0), [0x2100_0000, 0, 0, 0, 0, 0]);
    assert_eq!(sub(&mut machine, 1), [0x2108_0000, 0, 0x1000, 0, 0, 0], "the same line");
    assert_eq!(sub(&mut machine, 2), [0x2300_0000, 0, 0x2000, 1, 0, 0]);
    assert_eq!(sub(&mut machine, 15), [0x2708_0000, 0x400, 0xf000, 7, 1, 0]);
    assert_eq!(sub(&mut machine, 16), [0; 6]);
    let names: Vec<&str> = machine.board.sub_channels.iter().map(|sub| sub.bank.name()).collect();
    assert_eq!(
        names,
        [
            "21000", "21080", "23000", "23080", "25000", "25080", "27000", "27080", "40021000", "40021080", "40023000",
            "40023080", "40025000", "40025080", "40027000", "40027080"
        ]
    );
    let ports: Vec<String> = machine.board.functions().map(|(bdf, _, _)| bdf.to_string()).collect();
    assert_eq!(ports[..4], ["0000:00:04.0", "0000:00:01.0", "0000:00:02.0", "0000:00:03.0"]);
    assert!(machine.board.functions().all(|(_, vendor, device)| (vendor, device) == (0x1ded, 0x8000)));
}

#[test]
fn the_directory_takes_every_width_and_no_writes() {
    let mut machine = Machine::seed();
    let mut byte = [0];
    machine.board.bar_read(0, 0, 0x101, &mut byte);
    assert_eq!(byte, [0]);
    machine.board.bar_read(0, 0, 0x105, &mut byte);
    assert_eq!(byte, [0x1d]);
    let mut wide = [0; 8];
    machine.board.bar_read(0, 0, 0, &mut wide);
    assert_eq!(wide, [0xde, 0xc0, 0x0f, 0x5c, 1, 0, 0, 0]);
    (0..0x1000).step_by(4).for_each(|offset| machine.write(0, offset, 0xffff_ffff));
    assert_eq!((machine.read(0, 0), machine.read(0, 0x104)), (0x5c0f_c0de, 0x8000_1ded));
}

#[test]
fn a_board_can_describe_another_machine() {
    let traffic = Traffic::new();
    let bdf: Bdf = "12ab:01:1f.7".parse().unwrap();
    let shape = Shape { first: 0x180, vsec: 0x400, generation: 1, width: 1 };
    let board = CounterBoard::new(traffic.clone()).function(bdf, (0x17cb, 0x0302), shape).sub_channel(0x1000, 3, 5);
    let mut machine = Machine::of(board, traffic);
    let head: Vec<u32> = (2..5).map(|n| machine.read(0, 4 * n)).collect();
    assert_eq!(head, [1, 1, 6]);
    assert_eq!(
        (machine.read(0, 0x100), machine.read(0, 0x104), machine.read(0, 0x108)),
        (0x12ab_01ff, 0x0302_17cb, 0x180)
    );
    assert_eq!((machine.read(0, 0x80c), machine.read(0, 0x810)), (5, 3));
    assert_eq!(machine.read(0, 0x1404), 0x1004_0002);
    machine.traffic.port(bdf).dma_write(0, 128);
    assert_eq!(machine.ctl("ledger")["ports"]["12ab:01:1f.7"]["rx_payload"], 128);
}

#[test]
#[should_panic(expected = "is there already")]
fn a_function_can_be_there_once() {
    let bdf: Bdf = "00:01.0".parse().unwrap();
    let board = CounterBoard::new(Traffic::new()).function(bdf, (1, 2), Shape::default());
    board.function(bdf, (1, 2), Shape::default());
}

#[test]
fn each_function_has_its_page_and_its_account() {
    let mut machine = Machine::seed();
    for n in 0..18u64 {
        let page = 0x1000 * (n + 1);
        assert_eq!(machine.read(0, page + 0x304), 0x1004_0002, "function {n}");
        machine.write(0, page + 0x308, 0x070b << 16 | 3 << 2);
    }
    machine.traffic.port("98:00.0".parse().unwrap()).dma_write(0, 1280);
    machine.ctl("port 00:02.0 traffic rx 256");
    let counts: Vec<u32> = (0..18).map(|n| machine.read(0, 0x1000 * (n + 1) + 0x30c)).collect();
    assert_eq!((counts[2], counts[16], counts.iter().sum::<u32>()), (2, 10, 12));
    assert_eq!(machine.read(0, 0x13 * 0x1000 + 0x304), 0, "no function, no registers");
    machine.ctl("port all event 0x70b 1");
    assert_eq!((machine.read(0, 0x1000 + 0x30c), machine.read(0, 0x1_2000 + 0x30c)), (1, 1));
}

#[test]
fn memory_that_is_not_enabled_and_other_bars_answer_all_ones() {
    let mut machine = Machine::seed();
    assert_eq!(machine.read(1, 0), u32::MAX);
    assert_eq!((machine.read(0, 0x4_0000), machine.read(0, u64::MAX)), (u32::MAX, u32::MAX));
    machine.board.config_write(0x04, &[0, 0]);
    assert_eq!(machine.read(0, 0), u32::MAX);
    machine.write(0, 0x1308, 0x0201_000c);
    machine.board.config_write(0x04, &[6, 0]);
    assert_eq!(machine.read(0, 0x1308), 0);
}

#[test]
fn it_says_who_it_is() {
    let mut machine = Machine::seed();
    let mut bytes = [0; 64];
    machine.board.config_read(0, &mut bytes);
    assert_eq!(bytes[..4], [0x34, 0x12, 0x0f, 0x5c]);
    assert_eq!(bytes[9..12], [0, 0, 0xff]);
    assert_eq!(
        machine.board.layout(),
        Layout { bars: [0x4_0000, 0, 0x4_0000, 0, 0, 0], intx: false, msi: 16, msix: 0 }
    );
    let mut extended = [0; 4];
    machine.board.config_read(0x100, &mut extended);
    assert_eq!(extended, [0; 4]);
}

#[test]
fn a_line_sends_when_it_goes_high_and_when_an_answer_leaves_it_high() {
    let mut machine = Machine::seed();
    // Two sub-channels of line 0.
    arm(&mut machine, 0);
    arm(&mut machine, 1);
    machine.ctl("dram 21000 add hif_rd 1");
    assert_eq!(machine.sent(), NONE.to_vec(), "a command has no way out");
    assert_eq!(machine.board.next_work(), Some(0), "but announces work");
    machine.work();
    assert_eq!(machine.sent(), [0]);
    machine.ctl("dram 21080 add hif_rd 1");
    machine.work();
    assert_eq!(machine.sent(), NONE.to_vec(), "it is high already");
    machine.write(2, OV_CLEAR, 1 << 8);
    assert_eq!(machine.sent(), [0], "the other one still holds it");
    machine.write(2, 0x1000 + EVENT_SEL0, 0x82);
    assert_eq!(machine.sent(), NONE.to_vec(), "no register of the interrupt");
    machine.write(2, 0x1000 + OV_CLEAR, 1 << 8);
    machine.work();
    assert_eq!(machine.sent(), NONE);
    machine.ctl("dram 21080 set 0 0xffffffff");
    machine.ctl("dram 21080 add hif_rd 1");
    machine.work();
    assert_eq!(machine.sent(), [0], "and again");
}

#[test]
fn each_line_is_the_vector_of_its_number() {
    let mut machine = Machine::seed();
    arm(&mut machine, 15);
    machine.ctl("dram 40027080 add hif_rd 1");
    machine.work();
    assert_eq!(machine.sent(), [7]);
}

#[test]
fn steady_events_interrupt_on_time() {
    let mut machine = Machine::seed();
    arm(&mut machine, 0);
    machine.ctl("dram 21000 set 0 0xfffffc18");
    machine.ctl("dram 21000 rate hif_rd 1000000");
    let due = machine.board.next_work().unwrap();
    assert!(due <= 1_000_000, "{due}");
    machine.now = 999_999;
    machine.work();
    assert_eq!(machine.sent(), NONE);
    machine.now = 1_000_000;
    machine.work();
    assert_eq!(machine.sent(), [0]);
}

#[test]
fn an_overflow_that_a_read_finds_is_sent_without_delay() {
    let mut machine = Machine::seed();
    arm(&mut machine, 0);
    machine.traffic.port("00:02.0".parse().unwrap()).dma_read(0, 64);
    machine.now = 17;
    machine.read(2, 0xc78);
    assert_eq!(machine.board.next_work(), Some(17));
    machine.work();
    assert_eq!((machine.sent(), machine.board.next_work().is_none_or(|due| due > 17)), (vec![0], true));
}

#[test]
fn the_foreign_source_holds_its_line_until_it_is_cleared() {
    let mut machine = Machine::seed();
    arm(&mut machine, 2);
    machine.ctl("foreign 1");
    machine.work();
    assert_eq!((machine.sent(), machine.read(0, 0x44), machine.read(0, 0x40)), (vec![1], 1, 0));
    machine.ctl("dram 23000 add hif_rd 1");
    machine.work();
    assert_eq!(machine.sent(), NONE);
    machine.write(0, 0x44, 0);
    assert_eq!((machine.read(0, 0x44), machine.sent()), (1, NONE.to_vec()), "writing 0 does nothing");
    machine.write(0, 0x44, 1);
    assert_eq!((machine.read(0, 0x44), machine.sent()), (0, vec![1]), "the sub-channel still holds it");
    machine.write(2, 0x2000 + OV_CLEAR, 1 << 8);
    assert_eq!(machine.sent(), NONE);
    machine.board.delivered(&Message { vector: 1, delay_ns: 0, is_copy: false }, true);
    machine.board.delivered(&Message { vector: 1, delay_ns: 0, is_copy: false }, false);
    let line = machine.ctl("ledger")["lines"][1].clone();
    assert_eq!(line, json!({"messages": 1, "undelivered": 1, "foreign": 1}));
}

#[test]
fn a_function_reset_keeps_the_blocks_and_quiets_the_lines() {
    let mut machine = Machine::seed();
    machine.write(0, 0x1308, 0x0201_000c);
    machine.ctl("port 00:04.0 event 0x201 5");
    machine.write(0, 0x1310, 0x2100_0001);
    arm(&mut machine, 0);
    machine.ctl("dram 21000 add hif_rd 1");
    machine.ctl("foreign 3");
    machine.board.reset();
    machine.board.config_write(0x04, &[6, 0]);
    assert_eq!(
        (machine.read(0, 0x1308), machine.read(0, 0x130c), machine.read(0, 0x1310)),
        (0x0201_0080, 5, 0x2100_0001)
    );
    machine.work();
    assert_eq!((machine.sent(), machine.read(0, 0x4c), machine.read(2, 0xcc8)), (NONE.to_vec(), 0, 0));
    assert_eq!(machine.ctl("ledger")["ports"]["0000:00:04.0"]["events"]["0x201"]["counted"], 5);
}

#[test]
fn messages_need_a_bus_master() {
    let mut machine = Machine::seed();
    let message = Message { vector: 0, delay_ns: 0, is_copy: false };
    assert_eq!(machine.board.may_deliver(&message), Delivery::Now);
    machine.board.config_write(0x04, &[0x02, 0x04]);
    assert_eq!(machine.board.may_deliver(&message), Delivery::Never);
}

#[test]
fn fixed_measurements_are_work() {
    let mut machine = Machine::seed();
    assert_eq!(machine.board.next_work(), None);
    machine.now = 100;
    machine.write(0, 0x2310, 0x2100_0101);
    assert_eq!(machine.board.next_work(), Some(1_000_100));
    machine.now = 1_000_100;
    machine.work();
    assert_eq!((machine.board.next_work(), machine.read(0, 0x2310)), (None, 0x2100_0100));
}

#[test]
fn a_rate_begins_and_ends_when_the_command_comes() {
    let mut machine = Machine::seed();
    machine.now = 5_000_000_000;
    machine.ctl("port 00:02.0 rate rx 1280");
    machine.now = 6_000_000_000;
    machine.ctl("port 00:02.0 rate rx 0");
    machine.now = 9_000_000_000;
    assert_eq!(machine.ctl("ledger")["ports"]["0000:00:02.0"]["rx_payload"], 1280);
}

#[test]
fn a_reset_is_the_start() {
    let mut machine = Machine::seed();
    machine.now = 1000;
    let start = machine.ctl("ledger");
    machine.traffic.port("00:02.0".parse().unwrap()).dma_write(0, 4096);
    arm(&mut machine, 0);
    for line in
        ["foreign 2", "dram all add hif_wr 3", "dram split 0x1000", "port all event 0x70b 1", "dram data-rate 1"]
    {
        machine.ctl(line);
    }
    machine.write(0, 0x1308, 0x0201_000c);
    machine.work();
    assert_eq!(machine.sent(), [2]);
    machine.ctl("reset");
    assert_eq!(machine.ctl("ledger"), start);
    assert_eq!((machine.read(0, 0x1308), machine.board.next_work()), (0, None));
    machine.traffic.port("00:02.0".parse().unwrap()).dma_write(0x1000, 64);
    assert_eq!(
        machine.ctl("ledger")["dram"]["21000"]["events"]["hif_wr"]["happened"],
        1,
        "all of memory is die 0 again"
    );
}

#[test]
fn the_split_is_where_die_1_begins() {
    let mut machine = Machine::seed();
    machine.ctl("dram split 0x100000000");
    let port = machine.traffic.port("00:02.0".parse().unwrap());
    port.dma_write(0xffff_fe00, 0x400);
    let dram = machine.ctl("ledger")["dram"].clone();
    assert!(dram.as_object().unwrap().values().all(|sub| sub["events"]["hif_wr"]["happened"] == 1), "{dram}");
    machine.ctl("dram split none");
    port.dma_write(0x1_0000_0000, 64);
    assert_eq!(machine.ctl("ledger")["dram"]["21000"]["events"]["hif_wr"]["happened"], 2);
}

#[test]
fn the_data_rate_is_the_cycle_counter_s() {
    let mut machine = Machine::seed();
    machine.ctl("dram data-rate 4400");
    machine.write(2, CNT_CTRL, 1);
    machine.now = 1_000_000_000;
    assert_eq!(machine.read(2, 0xc14), 550_000_000);
}

#[test]
fn what_it_does_not_know_it_refuses() {
    let mut machine = Machine::seed();
    let cases = [
        ("", "unknown command ``; known are ledger, reset, port, dram, foreign"),
        ("remove", "unknown command `remove`; known are ledger, reset, port, dram, foreign"),
        ("ledger all", "ledger: `all` is one word too many"),
        ("reset now", "reset: `now` is one word too many"),
        ("port", "port: a root port's address, or all is missing"),
        ("port 00:05.0 gone", "port: no root port is called `00:05.0`; there are 0000:00:04.0, 0000:00:01.0, "),
        ("port x gone", "port: no root port is called `x`"),
        ("port all", "port: traffic, rate, "),
        ("port all goner", "port: `goner` is not traffic"),
        ("dram", "dram: a sub-channel, all, data-rate or split is missing"),
        ("dram 21001 add hif_rd 1", "dram: no sub-channel is called `21001`; there are 21000, 21080, "),
        ("dram 21000 add no_event 1", "dram: `no_event` is not an event"),
        ("dram data-rate", "dram data-rate: a data rate is missing"),
        ("dram data-rate 0", "dram: `0` is not a data rate"),
        ("dram data-rate 1 2", "dram: `2` is one word too many"),
        ("dram split", "dram split: an address is missing"),
        ("dram split 0x1001", "dram: `0x1001` is not an address at a line"),
        ("dram split -64", "dram: `-64` is not an address"),
        ("foreign", "foreign: a line is missing"),
        ("foreign 8", "foreign: no line is called `8`; there are 0, 1, "),
        ("foreign 1 2", "foreign: `2` is one word too many"),
    ];
    let before = machine.ctl("ledger");
    for (line, expected) in cases {
        let refused = machine.refused(line);
        assert!(refused.starts_with(expected), "{line:?}: {refused}");
    }
    assert_eq!(machine.ctl("ledger"), before);
}

proptest! {
    /// Whatever the guest does: no panic, no message of a line that is not there, no register of the directory changed.
    #[test]
    fn any_access_is_answered(
        steps in prop::collection::vec(
            (0u8..7, prop_oneof![0u64..0x2_0000, 0u64..0x5_0000, any::<u64>()], 0usize..17, any::<u32>()), 0..40,
        ),
    ) {
        let mut machine = Machine::seed();
        for (bar, offset, len, value) in steps {
            machine.now += u64::from(value);
            let bytes: Vec<u8> = value.to_le_bytes().into_iter().cycle().take(len).collect();
            machine.board.bar_write(machine.now, bar, offset, &bytes, &mut machine.sent);
            machine.board.bar_read(machine.now, bar, offset, &mut bytes.clone());
            if machine.board.next_work().is_some_and(|due| due <= machine.now) {
                machine.work();
                prop_assert!(machine.board.next_work().is_none_or(|due| due > machine.now), "work without end");
            }
        }
        prop_assert!(machine.sent().iter().all(|vector| *vector < 8));
        let head: Vec<u32> = (0..5).map(|n| machine.read(0, 4 * n)).collect();
        prop_assert_eq!(head, [0x5c0f_c0de, 1, 18, 16, 8]);
    }
}
