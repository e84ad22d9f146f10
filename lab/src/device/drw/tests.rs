use pciescope_core::Bdf;
use proptest::prelude::*;

use super::*;
use crate::device::traffic::{PortTraffic, Traffic};

const SECOND: u64 = 1_000_000_000;
/// The seed's counts; the suites in the guest replay them too.
const SEED: &str = include_str!("../../../tests/vm/support/drw_seed.txt");

/// A bank whose DMA traffic is what the test says.
struct Bench {
    bank: DrwBank,
    port: PortTraffic,
    now_ns: u64,
}

impl Bench {
    fn new() -> Bench {
        let traffic = Traffic::new();
        let mut bench = Bench {
            bank: DrwBank::new(traffic.sub_channel(0, "21000")),
            port: traffic.port("0000:00:02.0".parse::<Bdf>().unwrap()),
            now_ns: 0,
        };
        bench.dma(7, 8, 9);
        bench.bank = DrwBank::new(traffic.sub_channel(0, "21000"));
        bench
    }

    /// A device reads and writes so many lines, and one byte of so many more.
    fn dma(&mut self, rd: u64, wr: u64, rmw: u64) {
        self.port.dma_read(0, LINE * rd);
        self.port.dma_write(0, LINE * wr);
        (0..rmw).for_each(|_| self.port.dma_write(1, 1));
    }

    /// Counting `events` in the counters from 0 up, interrupts enabled.
    fn counting(events: &[u8]) -> Bench {
        let mut bench = Bench::new();
        bench.set(OV_INTR_ENABLE_CTL, 0x00ff_ff00);
        for (number, event) in events.iter().enumerate() {
            bench.select(number, 0x80 | event);
        }
        bench.set(CNT_CTRL, CNT_CTRL_START);
        bench
    }

    fn get(&mut self, offset: u64) -> u32 {
        let mut bytes = [0xee; 4];
        self.bank.read(self.now_ns, offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn set(&mut self, offset: u64, value: u32) {
        self.bank.write(self.now_ns, offset, &value.to_le_bytes());
    }

    fn select(&mut self, number: usize, byte: u8) {
        let (register, shift) = (EVENT_SEL + (number as u64 & !3), 8 * (number & 3));
        let others = self.get(register) & !(0xff << shift);
        self.set(register, others | u32::from(byte) << shift);
    }

    fn counter(&mut self, number: usize) -> u32 {
        self.get(COMMON_COUNTER + 4 * number as u64)
    }

    fn preload(&mut self, number: usize, value: u32) {
        self.set(TEST_CTRL, TEST_COMMON + number as u32);
        self.set(CNT_PRELOAD, value);
        self.set(TEST_CTRL, 0);
    }

    fn cycle(&mut self) -> u64 {
        u64::from(self.get(CYCLE_CNT_HIGH)) << 32 | u64::from(self.get(CYCLE_CNT_LOW))
    }

    fn sets(&mut self, all: &[(u64, u32)]) {
        all.iter().for_each(|(offset, value)| self.set(*offset, *value));
    }

    fn tells(&mut self, commands: &[&str]) {
        commands.iter().for_each(|command| self.tell(command));
    }

    fn tell(&mut self, command: &str) {
        let words: Vec<&str> = command.split(' ').collect();
        assert_eq!(self.bank.command(self.now_ns, &words), Ok(()), "{command}");
    }

    fn refusal(&mut self, command: &str) -> String {
        let words: Vec<&str> = command.split_whitespace().collect();
        self.bank.command(self.now_ns, &words).unwrap_err().to_string()
    }

    fn pass(&mut self, ns: u64) {
        self.now_ns += ns;
        self.bank.advance(self.now_ns);
    }
}

#[test]
fn the_seeds_experiments_are_counted_to_the_event() {
    let lines = SEED.lines().filter(|line| !line.starts_with('#'));
    let mut read = Vec::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let [experiment, _, wr, rd, rmw, _] = words[..] else { panic!("{line}") };
        let mut bench = Bench::counting(&[HIF_WR, HIF_RD, HIF_RMW, HIF_RD_OR_WR]);
        for (event, rate) in [("hif_wr", wr), ("hif_rd", rd), ("hif_rmw", rmw)] {
            bench.tell(&format!("rate {event} {rate}"));
        }
        bench.pass(SECOND);
        let counted: Vec<u32> = (0..4).map(|number| bench.counter(number)).collect();
        let expected: Vec<u32> = [wr, rd, rmw].iter().map(|n| n.parse().unwrap()).collect();
        assert_eq!(counted[..3], expected[..], "{line}");
        assert_eq!(counted[3], expected.iter().sum::<u32>(), "{line}");
        assert_eq!(bench.cycle(), 500_000_000, "DDR5-4000");
        read.push((experiment, expected));
    }
    assert_eq!(read.len(), 32);
    // What the seed makes of a sub-channel of each: MB/s of the die.
    let bandwidth = |lines: u32| f64::from(lines) * 8.0 * LINE as f64 / 1e6;
    let die = |experiment, row: usize| read.iter().filter(|(e, _)| *e == experiment).nth(row).unwrap().1.clone();
    assert!((bandwidth(die("c0m0-rd", 2)[1]) - 20561.675).abs() < 1e-3);
    assert!((bandwidth(die("c1m1-rd", 4)[1]) - 20516.303).abs() < 1e-2);
    let written = |row: Vec<u32>| bandwidth(row[0] + row[2]);
    assert!((written(die("c0m0-fwr", 7)) - 21969.226).abs() < 1e-2);
    assert!((written(die("c1m1-fwr", 7)) - 21966.889).abs() < 1e-2);
}

#[test]
fn the_cycle_counter_runs_at_an_eighth_of_the_data_rate() {
    for (megatransfers, cycles) in [(4000, 500_000_000), (4400, 550_000_000), (3201, 400_125_000), (0, 0)] {
        let mut bench = Bench::counting(&[]);
        bench.bank.set_data_rate(0, megatransfers);
        bench.pass(SECOND);
        assert_eq!(bench.cycle(), cycles);
        assert_eq!(bench.bank.ledger()["cycles"], cycles);
    }
}

#[test]
fn a_counter_counts_while_the_pmu_runs_and_it_is_enabled() {
    let mut bench = Bench::new();
    bench.tell("add hif_rd 1");
    bench.select(3, 0x80 | HIF_RD);
    bench.tell("add hif_rd 10");
    assert_eq!((bench.counter(3), bench.get(CNT_STATE)), (0, 0), "not started");
    bench.set(CNT_CTRL, CNT_CTRL_START);
    assert_eq!(bench.get(CNT_STATE), 1);
    bench.tell("add hif_rd 100");
    bench.select(3, HIF_RD);
    bench.tell("add hif_rd 1000");
    bench.select(3, 0x80 | HIF_WR);
    bench.tell("add hif_rd 10000");
    bench.select(3, 0x80 | HIF_RD);
    bench.set(CNT_CTRL, CNT_CTRL_STOP);
    bench.tell("add hif_rd 100000");
    bench.pass(SECOND);
    assert_eq!((bench.counter(3), bench.cycle()), (100, 0));
    assert_eq!(
        bench.bank.ledger(),
        json!({"events": {"hif_rd": {"happened": 111_111, "counted": {"3": 100}},
                          "hif_rd_or_wr": {"happened": 111_111, "counted": {}}},
               "cycles": 0, "overflows": 0, "resets": 0, "starts": 1, "stops": 1,
               "running": false, "enabled": {"3": "hif_rd"}, "values": {"3": 100}, "late": 0, "asserted": false})
    );
}

#[test]
fn start_stop_and_reset_are_for_the_whole_sub_channel() {
    let mut bench = Bench::counting(&[HIF_RD, HIF_WR]);
    bench.tells(&["add hif_rd 5", "add hif_wr 6"]);
    bench.pass(1000);
    assert_eq!((bench.counter(0), bench.counter(1), bench.cycle()), (5, 6, 500));
    bench.set(CNT_CTRL, CNT_CTRL_RST);
    assert_eq!((bench.counter(0), bench.counter(1), bench.cycle()), (0, 0, 0));
    bench.tell("add hif_rd 7");
    assert_eq!(bench.counter(0), 7, "a reset does not stop");
    bench.set(CNT_CTRL, CNT_CTRL_START | CNT_CTRL_STOP);
    bench.tell("add hif_rd 8");
    assert_eq!(bench.counter(0), 7, "of start and stop at once, stop wins");
    let ledger = bench.bank.ledger();
    assert_eq!((&ledger["resets"], &ledger["starts"], &ledger["stops"]), (&json!(1), &json!(2), &json!(1)));
    assert_eq!(ledger["events"]["hif_rd"]["counted"]["0"], 12, "a reset does not touch the ledger");
}

#[test]
fn the_selector_has_six_bits_and_an_enable() {
    let mut bench = Bench::counting(&[]);
    for (register, value) in [(0, 0xc201_7f82), (4, 0x40bf_ff00), (8, 0), (12, u32::MAX)] {
        bench.set(EVENT_SEL + register, value);
        assert_eq!(bench.get(EVENT_SEL + register), value & 0xbfbf_bfbf);
    }
    // Counters 0 and 3 now have hif_rd, the latter as 0x42; 1 and 2 are not enabled.
    bench.tell("add hif_rd 3");
    let counters: Vec<u32> = (0..5).map(|number| bench.counter(number)).collect();
    assert_eq!(counters, [3, 0, 0, 3, 0]);
}

#[test]
fn every_counter_has_its_selector_its_register_its_preload_and_its_status_bit() {
    for number in 0..COUNTERS {
        let mut bench = Bench::counting(&[]);
        bench.select(number, 0x80 | 0x0c);
        bench.preload(number, u32::MAX - 9);
        assert_eq!(bench.counter(number), u32::MAX - 9);
        bench.tell("add op_is_activate 9");
        assert_eq!((bench.counter(number), bench.get(OV_INTR_STATUS)), (u32::MAX, 0), "not yet");
        bench.tell("add op_is_activate 1");
        assert_eq!((bench.counter(number), bench.get(OV_INTR_STATUS)), (0, 1 << (8 + number)));
        bench.tell("add op_is_activate 4");
        let others: u32 = (0..COUNTERS).filter(|other| *other != number).map(|other| bench.counter(other)).sum();
        assert_eq!((bench.counter(number), others), (4, 0));
        let ledger = bench.bank.ledger();
        assert_eq!(ledger["overflows"], 1);
        assert_eq!(ledger["events"]["op_is_activate"]["counted"], json!({number.to_string(): 14}));
    }
}

#[test]
fn a_preload_outside_test_mode_or_of_no_common_counter_is_ignored() {
    let mut bench = Bench::new();
    bench.set(CNT_PRELOAD, 5);
    for test in [1, 18, 35, u32::MAX] {
        bench.sets(&[(TEST_CTRL, test), (CNT_PRELOAD, 5)]);
    }
    assert!((0..COUNTERS).all(|number| bench.counter(number) == 0));
    bench.preload(15, 5);
    bench.sets(&[(CNT_PRELOAD, 6), (COMMON_COUNTER + 60, 7)]);
    assert_eq!(bench.counter(15), 5, "the counter itself is read-only");
}

#[test]
fn an_overflow_interrupts_until_it_is_cleared() {
    let mut bench = Bench::counting(&[HIF_RD, HIF_WR]);
    bench.preload(0, u32::MAX);
    bench.preload(1, u32::MAX);
    bench.tell("add hif_rd 1");
    assert!(bench.bank.is_asserted());
    let ledger = bench.bank.ledger();
    assert_eq!((&ledger["asserted"], &ledger["running"]), (&json!(true), &json!(true)));
    bench.tell("add hif_wr 1");
    bench.set(OV_INTR_CLR, 1 << 8);
    assert_eq!((bench.get(OV_INTR_STATUS), bench.bank.is_asserted()), (1 << 9, true));
    bench.set(CNT_CTRL, CNT_CTRL_STOP | CNT_CTRL_RST);
    assert!(bench.bank.is_asserted(), "neither stop nor reset clears it");
    bench.set(OV_INTR_DISABLE_CTL, 1 << 9);
    assert_eq!((bench.get(OV_INTR_ENABLE_STATUS), bench.bank.is_asserted()), (0x00ff_fd00, false));
    bench.set(OV_INTR_ENABLE_CTL, 1 << 9);
    assert_eq!((bench.get(OV_INTR_ENABLE_STATUS), bench.bank.is_asserted()), (0x00ff_ff00, true));
    bench.set(OV_INTR_CLR, 0x00ff_ffff);
    assert!(!bench.bank.is_asserted());
}

#[test]
fn an_overflow_without_enable_sets_the_status_alone() {
    let mut bench = Bench::counting(&[HIF_RD]);
    bench.set(OV_INTR_DISABLE_CTL, u32::MAX);
    bench.preload(0, u32::MAX);
    bench.tell("add hif_rd 1");
    assert_eq!((bench.get(OV_INTR_STATUS), bench.bank.is_asserted()), (1 << 8, false));
    bench.set(OV_INTR_ENABLE_CTL, u32::MAX);
    assert_eq!(bench.get(OV_INTR_ENABLE_STATUS), 0x00ff_ffff, "24 bits");
}

#[test]
fn every_wrap_is_in_the_ledger() {
    let mut bench = Bench::counting(&[HIF_RD]);
    bench.tell(&format!("add hif_rd {}", (3_u64 << 32) + 5));
    assert_eq!(bench.counter(0), 5);
    let ledger = bench.bank.ledger();
    assert_eq!(
        (&ledger["overflows"], &ledger["events"]["hif_rd"]["counted"]["0"]),
        (&json!(3), &json!((3_u64 << 32) + 5))
    );
}

#[test]
fn a_counter_can_hold_at_its_end() {
    let mut bench = Bench::counting(&[HIF_RD]);
    bench.tell("limit hold");
    bench.preload(0, u32::MAX - 1);
    bench.tell("add hif_rd 1");
    assert_eq!((bench.counter(0), bench.bank.is_asserted()), (u32::MAX, false));
    bench.tell("add hif_rd 1000");
    assert_eq!((bench.counter(0), bench.bank.is_asserted()), (u32::MAX, true));
    bench.set(OV_INTR_CLR, 1 << 8);
    bench.tell("add hif_rd 1");
    assert!(bench.bank.is_asserted(), "it is still at its end");
    assert_eq!(bench.bank.ledger()["overflows"], 1);
    bench.preload(0, u32::MAX);
    bench.tell("add hif_rd 1");
    assert_eq!(bench.bank.ledger()["overflows"], 2);
    bench.preload(0, 0);
    bench.set(OV_INTR_CLR, 1 << 8);
    bench.tells(&["limit wrap", "add hif_rd 4"]);
    assert_eq!((bench.counter(0), bench.bank.is_asserted()), (4, false));
    assert_eq!(bench.bank.ledger()["events"]["hif_rd"]["counted"]["0"], 1007);
}

#[test]
fn the_cycle_counter_has_56_bits() {
    let mut bench = Bench::counting(&[]);
    bench.tell(&format!("set cycle {CYCLE_MASK}"));
    assert_eq!((bench.get(CYCLE_CNT_HIGH), bench.get(CYCLE_CNT_LOW)), (0x00ff_ffff, u32::MAX));
    bench.pass(10);
    assert_eq!((bench.cycle(), bench.bank.ledger()["cycles"].clone()), (4, json!(5)));
}

#[test]
fn the_cycle_counter_tears_by_itself_at_a_carry() {
    let mut bench = Bench::counting(&[]);
    bench.tell("set cycle 0x1ffffffff");
    let high = bench.get(CYCLE_CNT_HIGH);
    bench.pass(2);
    let low = bench.get(CYCLE_CNT_LOW);
    assert_eq!((high, low, bench.cycle()), (1, 0, 2 << 32));
}

#[test]
fn a_torn_carry_can_be_forced_and_is_counted() {
    let mut bench = Bench::counting(&[]);
    bench.pass(2000);
    bench.tell("torn on");
    // High, low, and high again until it is the same: the first pair of every reading is torn.
    let mut torn = 0;
    for _ in 0..10 {
        let mut high = bench.get(CYCLE_CNT_HIGH);
        let low = loop {
            let low = bench.get(CYCLE_CNT_LOW);
            let again = bench.get(CYCLE_CNT_HIGH);
            if high == again {
                break low;
            }
            (high, torn) = (again, torn + 1);
            assert!(torn < 100, "it never comes to an end");
        };
        assert_eq!(u64::from(high) << 32 | u64::from(low), bench.bank.ledger()["cycles"].as_u64().unwrap());
    }
    assert_eq!(torn, 10);
    bench.set(CNT_CTRL, CNT_CTRL_STOP);
    let before = bench.bank.ledger()["cycles"].clone();
    for _ in 0..10 {
        bench.cycle();
    }
    assert_eq!(bench.bank.ledger()["cycles"], before, "a counter that stands has no carry");
    bench.set(CNT_CTRL, CNT_CTRL_START);
    bench.tell("torn off");
    let one = bench.cycle();
    assert_eq!(bench.cycle(), one);
}

#[test]
fn a_status_bit_can_come_later_than_its_wrap() {
    let mut bench = Bench::counting(&[HIF_RD, HIF_WR]);
    bench.tells(&["lag 2", "add hif_rd 0x100000003"]);
    assert_eq!((bench.counter(0), bench.bank.is_asserted()), (3, false));
    assert_eq!(bench.bank.ledger()["late"], 1);
    let reads: Vec<u32> = (0..2).map(|_| bench.get(OV_INTR_STATUS)).collect();
    assert_eq!(reads, [0, 0]);
    assert!(bench.bank.is_asserted(), "it interrupts as soon as the bit is there");
    assert_eq!((bench.get(OV_INTR_STATUS), bench.bank.ledger()["late"].clone()), (1 << 8, json!(0)));
    // A clear before the bit is there does not reach it.
    bench.set(OV_INTR_CLR, 1 << 8);
    bench.tell("add hif_wr 0x100000000");
    bench.get(OV_INTR_STATUS);
    bench.set(OV_INTR_CLR, u32::MAX);
    bench.get(OV_INTR_STATUS);
    assert_eq!(bench.get(OV_INTR_STATUS), 1 << 9);
    // Without the setting, what has waited is there at once, and a reset forgets it.
    bench.set(OV_INTR_CLR, u32::MAX);
    bench.tells(&["add hif_wr 0x100000000", "lag 0"]);
    assert_eq!(bench.get(OV_INTR_STATUS), 1 << 9);
    bench.set(OV_INTR_CLR, u32::MAX);
    bench.tells(&["lag 1", "add hif_wr 0x100000000", "power-cycle"]);
    assert_eq!((bench.get(OV_INTR_STATUS), bench.get(OV_INTR_STATUS)), (0, 0));
    assert_eq!(bench.bank.ledger()["overflows"], 4);
}

#[test]
fn dma_is_counted_as_it_happens() {
    let mut bench = Bench::counting(&[HIF_RD, HIF_WR, HIF_RMW, HIF_RD_OR_WR]);
    bench.dma(100, 20, 3);
    let counters: Vec<u32> = (0..4).map(|number| bench.counter(number)).collect();
    assert_eq!(counters, [100, 20, 3, 123], "what came before the bank was made is not its");
    bench.set(CNT_CTRL, CNT_CTRL_STOP);
    bench.dma(1000, 0, 0);
    bench.set(CNT_CTRL, CNT_CTRL_START);
    bench.dma(1, 0, 0);
    assert_eq!(bench.counter(0), 101);
    assert_eq!(bench.bank.ledger()["events"]["hif_rd"], json!({"happened": 1101, "counted": {"0": 101}}));
}

#[test]
fn it_says_when_the_next_overflow_comes() {
    let mut bench = Bench::counting(&[0x0c, 0x0f]);
    assert_eq!(bench.bank.next_work(0), None, "nothing happens");
    bench.pass(123);
    bench.tell("rate op_is_activate 3000000");
    bench.preload(0, u32::MAX - 5);
    assert_eq!(bench.bank.next_work(bench.now_ns), Some(123 + 2_000));
    bench.tell("rate op_is_rd 1000000000");
    bench.preload(1, u32::MAX - 999);
    assert_eq!(bench.bank.next_work(bench.now_ns), Some(123 + 1_000));
    bench.now_ns = 123 + 1_000;
    bench.bank.advance(bench.now_ns);
    assert_eq!(bench.get(OV_INTR_STATUS), 1 << 9);
    assert_eq!(bench.bank.next_work(bench.now_ns), Some(123 + 2_000), "a status that is set needs no waiting");
    bench.set(OV_INTR_DISABLE_CTL, 1 << 8);
    assert_eq!(bench.bank.next_work(bench.now_ns), None, "no interrupt can come");
    bench.set(OV_INTR_ENABLE_CTL, 1 << 8);
    bench.select(0, 0x0c);
    assert_eq!(bench.bank.next_work(bench.now_ns), None, "disabled");
    bench.select(0, 0x8c);
    bench.set(CNT_CTRL, CNT_CTRL_STOP);
    assert_eq!(bench.bank.next_work(bench.now_ns), None, "stopped");
}

#[test]
fn a_counter_that_dma_could_move_to_its_end_is_looked_at() {
    let mut bench = Bench::counting(&[HIF_WR]);
    let far = bench.bank.next_work(0).unwrap();
    assert_eq!(far, (1 << 32) / 4, "no DMA is faster");
    bench.preload(0, u32::MAX - 10);
    assert_eq!(bench.bank.next_work(500), Some(500 + POLL_NS));
    bench.dma(0, 11, 0);
    bench.pass(POLL_NS);
    assert!(bench.bank.is_asserted());
}

#[test]
fn all_accesses_come_at_the_time_of_their_parts() {
    let mut bench = Bench::counting(&[HIF_RD_OR_WR]);
    for (event, rate) in [("hif_rd", 700_000), ("hif_wr", 900_001), ("hif_rmw", 1), ("hif_rd_or_wr", 2_000)] {
        bench.tell(&format!("rate {event} {rate}"));
    }
    bench.preload(0, u32::MAX - 99);
    let due = bench.bank.next_work(0).unwrap();
    bench.pass(due - 1);
    assert!(!bench.bank.is_asserted());
    bench.pass(1);
    assert!(bench.bank.is_asserted());
}

#[test]
fn a_rate_of_0_ends_it_and_a_new_one_replaces_it() {
    let mut bench = Bench::counting(&[0x0c]);
    bench.tell("rate 0x0c 1000");
    bench.pass(SECOND / 2);
    bench.tell("rate op_is_activate 10");
    bench.pass(SECOND);
    bench.tell("rate op_is_activate 0");
    bench.pass(SECOND);
    assert_eq!(bench.counter(0), 510);
}

#[test]
fn partial_writes_are_ignored_and_partial_reads_are_not() {
    let mut bench = Bench::counting(&[]);
    bench.set(EVENT_SEL, 0x8483_8281);
    bench.bank.write(0, EVENT_SEL, &[0]);
    bench.bank.write(0, EVENT_SEL + 2, &[0, 0]);
    let mut bytes = [0; 2];
    bench.bank.read(0, EVENT_SEL + 1, &mut bytes);
    assert_eq!(bytes, [0x82, 0x83]);
    bench.bank.write(0, EVENT_SEL, &[1, 2, 3, 4, 5, 6, 7, 8]);
    let mut bytes = [0; 8];
    bench.bank.read(0, EVENT_SEL, &mut bytes);
    assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn the_registers_that_answer_an_interrupt_are_known() {
    let answers = [OV_INTR_ENABLE_CTL, OV_INTR_DISABLE_CTL, OV_INTR_CLR];
    for register in (0..WINDOW).step_by(4) {
        assert_eq!(DrwBank::is_answer(register, 4), answers.contains(&register), "{register:#x}");
    }
}

#[test]
fn a_function_reset_keeps_settings_and_ledger_and_a_reset_keeps_nothing() {
    let mut bench = Bench::counting(&[0x0c]);
    bench.tells(&["rate op_is_activate 1000", "limit hold"]);
    bench.pass(SECOND);
    bench.dma(5, 0, 0);
    bench.now_ns += SECOND;
    bench.bank.function_reset(bench.now_ns);
    let registers: Vec<u32> = (0..WINDOW).step_by(4).map(|offset| bench.get(offset)).collect();
    assert!(registers.iter().all(|value| *value == 0));
    bench.pass(SECOND);
    let ledger = bench.bank.ledger();
    assert_eq!(ledger["events"]["op_is_activate"], json!({"happened": 3000, "counted": {"0": 2000}}));
    assert_eq!(ledger["events"]["hif_rd"]["happened"], 5);
    bench.dma(6, 0, 0);
    bench.bank.reset();
    bench.pass(SECOND);
    let nothing = json!({"events": {}, "cycles": 0, "overflows": 0, "resets": 0, "starts": 0, "stops": 0,
                         "running": false, "enabled": {}, "values": {}, "late": 0, "asserted": false});
    assert_eq!(bench.bank.ledger(), nothing);
}

#[test]
fn a_refusal_changes_nothing_and_says_why() {
    let mut bench = Bench::new();
    let forms = "add, rate, set, limit, lag or torn";
    let cases = [
        ("", format!("dram: {forms} is missing")),
        ("sub", format!("dram: `sub` is not {forms}")),
        ("add hif_rd", "dram: an event and a number is missing".to_owned()),
        ("add hif 1", "dram: `hif` is not an event's name, or a code from 0 to 0x3f".to_owned()),
        ("add hif_rd -1", "dram: `-1` is not a whole number below 2^64".to_owned()),
        ("rate hif_rd 1 2", "dram: `2` is one word too many".to_owned()),
        ("rate hif_rd fast", "dram: `fast` is not a whole number below 2^64".to_owned()),
        ("set 16 0", "dram: `16` is not a counter from 0 to 15, or `cycle`".to_owned()),
        ("set 0 0x100000000", "dram: `0x100000000` is not a number below 2^32".to_owned()),
        ("set cycle 0x100000000000000", "dram: `0x100000000000000` is not a number below 2^56".to_owned()),
        ("limit clip", "dram: `clip` is not wrap or hold".to_owned()),
        ("lag", "dram: a number of reads is missing".to_owned()),
        ("lag off", "dram: `off` is not a whole number below 2^64".to_owned()),
        ("torn", "dram: on or off is missing".to_owned()),
    ];
    for (command, text) in cases {
        assert_eq!(bench.refusal(command), text);
    }
    bench.pass(SECOND);
    assert_eq!(bench.bank.ledger()["events"], json!({}));
    bench.tell("set 15 0xfffffff0");
    assert_eq!(bench.counter(15), 0xffff_fff0);
}

/// One thing that can happen to a bank.
#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Add(u8, u64),
    Rate(u8, u64),
    Dma(u64, u64, u64),
    Select(usize, u8),
    Control(u32),
    Preload(usize, u32),
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    let number = prop_oneof![0..1000_u64, 0..10_000_000_000_u64];
    prop_oneof![
        (0..3_000_000_000_u64).prop_map(Step::Pass),
        (0..6_u8, number.clone()).prop_map(|(event, n)| Step::Add(event, n)),
        (0..6_u8, number).prop_map(|(event, n)| Step::Rate(event, n)),
        (0..1000_u64, 0..1000_u64, 0..10_u64).prop_map(|(rd, wr, rmw)| Step::Dma(rd, wr, rmw)),
        (0..COUNTERS, (0..6_u8).prop_map(|event| event | 0x80)).prop_map(|(n, byte)| Step::Select(n, byte)),
        (0..COUNTERS, any::<u8>()).prop_map(|(n, byte)| Step::Select(n, byte)),
        (0..8_u32).prop_map(Step::Control),
        (0..COUNTERS, any::<u32>()).prop_map(|(n, value)| Step::Preload(n, value)),
        Just(Step::Clear),
    ]
}

proptest! {
    /// Whatever software does: who looks at every counter before and after every step gets what the ledger has,
    /// modulo 2^32, and at least as many overflows as the counters went down.
    #[test]
    fn the_ledger_is_what_a_perfect_driver_sees(steps in prop::collection::vec(step(), 0..60)) {
        let mut bench = Bench::counting(&[0, 1, 2, 3, 2]);
        let mut seen = [0_u64; COUNTERS];
        for step in steps {
            let before: Vec<u32> = (0..COUNTERS).map(|number| bench.counter(number)).collect();
            let wraps = bench.bank.ledger()["overflows"].as_u64().unwrap();
            match step {
                Step::Pass(ns) => bench.pass(ns),
                Step::Add(event, n) => bench.tell(&format!("add {event} {n}")),
                Step::Rate(event, n) => bench.tell(&format!("rate {event} {n}")),
                Step::Dma(rd, wr, rmw) => bench.dma(rd, wr, rmw),
                Step::Select(number, byte) => bench.select(number, byte),
                Step::Control(value) => bench.set(CNT_CTRL, value),
                Step::Preload(number, value) => bench.preload(number, value),
                Step::Clear => bench.set(OV_INTR_CLR, u32::MAX),
            }
            let moved = matches!(step, Step::Pass(_) | Step::Add(..) | Step::Dma(..));
            let after: Vec<u32> = (0..COUNTERS).map(|number| bench.counter(number)).collect();
            if moved {
                (0..COUNTERS).for_each(|n| seen[n] += u64::from(after[n].wrapping_sub(before[n])));
                let wraps = bench.bank.ledger()["overflows"].as_u64().unwrap() - wraps;
                let carried: u64 = (0..COUNTERS).filter(|n| after[*n] < before[*n]).count() as u64;
                prop_assert!(wraps >= carried);
            }
        }
        let counted = |number: usize| -> u64 {
            bench.bank.ledger.counted.iter().filter(|((_, of), _)| *of == number).map(|(_, n)| n).sum()
        };
        for (number, seen) in seen.iter().enumerate() {
            prop_assert_eq!(counted(number) % (1 << 32), seen % (1 << 32), "counter {}", number);
        }
    }

    /// The time that it names is the first at which the interrupt is there.
    #[test]
    fn the_time_of_an_overflow_is_exact(
        rates in prop::collection::vec(1..5_000_000_000_u64, 4), from in any::<u32>(), before in 0..SECOND, counter in 0..COUNTERS,
    ) {
        let mut bench = Bench::counting(&[]);
        bench.select(counter, 0x80);
        for (event, rate) in rates.iter().enumerate() {
            bench.tell(&format!("rate {event} {rate}"));
        }
        bench.pass(before);
        bench.set(OV_INTR_CLR, u32::MAX);
        bench.preload(counter, from);
        let left = u64::from(u32::MAX - from) + 1;
        let due = bench.now_ns + bench.bank.until(0, left).unwrap();
        prop_assert!(bench.bank.next_work(bench.now_ns).unwrap() <= due);
        bench.pass((due - bench.now_ns).saturating_sub(1));
        prop_assert!(!bench.bank.is_asserted() || due <= bench.now_ns);
        bench.now_ns = bench.now_ns.max(due);
        bench.bank.advance(due);
        prop_assert!(bench.bank.is_asserted());
    }

    /// No access and no time makes it panic.
    #[test]
    fn hostile_accesses_are_answered(
        accesses in prop::collection::vec((any::<u64>(), 0..WINDOW + 16, 0..9_usize, any::<u64>(), any::<bool>()), 0..60),
    ) {
        let mut bench = Bench::new();
        bench.tells(&[&format!("rate hif_rd {}", u64::MAX), "torn on"]);
        for (now, offset, len, value, is_write) in accesses {
            let mut bytes = value.to_le_bytes();
            if is_write { bench.bank.write(now, offset, &bytes[..len]) } else { bench.bank.read(now, offset, &mut bytes[..len]) }
            bench.tell(&format!("add hif_wr {value}"));
            bench.bank.next_work(now);
        }
        bench.bank.read(u64::MAX, u64::MAX - 2, &mut [0; 8]);
    }
}
