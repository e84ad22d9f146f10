//! The disk as a driver sees it, without Linux: queues in a memory that the test holds, time that the test makes.

use serde_json::json;

use super::store::pattern;
use super::*;
use crate::device::delay::SplitMix64;
use crate::device::test::TestBus;
use crate::device::traffic::Traffic;

/// Bytes of the machine's memory.
const MEMORY: usize = 16 << 20;
/// Where the admin queues and the first I/O queues lie, 64 KiB apart: 0, 0x10000, ...
const QUEUES: u64 = 0x1_0000;
/// Where the test's data lie.
const DATA: u64 = 0x20_0000;
/// Where the test's PRP lists lie.
const LISTS: u64 = 0x10_0000;
const ENTRIES: u16 = 64;

/// A queue pair as the driver keeps it.
#[derive(Clone, Copy)]
struct Pair {
    tail: u16,
    head: u16,
    phase: bool,
}

/// What the driver found in a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Done {
    result: u32,
    head: u16,
    queue: u16,
    id: u16,
    /// Without the phase and "do not retry".
    code: u16,
}

struct Driver {
    disk: NvmeDisk,
    machine: TestBus,
    traffic: Traffic,
    pairs: [Pair; 4],
    now: u64,
}

impl Driver {
    fn port(traffic: &Traffic) -> PortTraffic {
        traffic.port("0000:00:02.0".parse().unwrap())
    }

    /// A disk with memory, bus mastering and MSI enabled, and its controller not yet.
    fn cold() -> Driver {
        let traffic = Traffic::new();
        let disk = NvmeDisk::new(&Link::default(), Driver::port(&traffic)).with_fill(Fill::Pattern(7));
        let pairs = [Pair { tail: 0, head: 0, phase: true }; 4];
        let mut driver = Driver { disk, machine: TestBus::new(MEMORY), traffic, pairs, now: 1_000 };
        driver.power_on();
        driver
    }

    fn power_on(&mut self) {
        self.disk.config_write(4, &[6, 0]);
        let msi = self.capability(5);
        self.disk.config_write(msi + 2, &[1, 0]);
    }

    /// With the controller enabled.
    fn enabled() -> Driver {
        let mut driver = Driver::cold();
        driver.enable();
        driver
    }

    fn enable(&mut self) {
        self.writes(&[(AQA, u32::from(ENTRIES - 1) * 0x1_0001), (ASQ, 0), (ACQ, QUEUES as u32), (CC, 0x0046_0001)]);
        assert_eq!(self.read(CSTS), CSTS_READY);
        self.pairs = [Pair { tail: 0, head: 0, phase: true }; 4];
    }

    /// With `count` I/O queue pairs too, on vectors 1 and up.
    fn ready(count: u16) -> Driver {
        let mut driver = Driver::enabled();
        for id in 1..=count {
            driver.make_pair(id);
        }
        driver.machine.messages.clear();
        driver
    }

    fn make_pair(&mut self, id: u16) {
        let base = u64::from(id) * 2 * QUEUES;
        let size = u32::from(ENTRIES - 1) << 16 | u32::from(id);
        assert_eq!(self.admin(0x05, 0, base + QUEUES, [size, u32::from(id) << 16 | 3, 0]).code, 0);
        assert_eq!(self.admin(0x01, 0, base, [size, u32::from(id) << 16 | 1, 0]).code, 0);
    }

    fn capability(&mut self, id: u8) -> u64 {
        let mut byte = |at| {
            let mut byte = [0];
            self.disk.config_read(at, &mut byte);
            byte[0]
        };
        let mut at = byte(0x34);
        while byte(at.into()) != id {
            at = byte(u64::from(at) + 1);
            assert_ne!(at, 0, "no capability {id:#x}");
        }
        at.into()
    }

    fn read(&mut self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        self.disk.bar_read(self.now, 0, offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn write(&mut self, offset: u64, value: u32) {
        self.disk.bar_write(self.now, 0, offset, &value.to_le_bytes(), &mut self.machine);
    }

    fn writes(&mut self, all: &[(u64, u32)]) {
        all.iter().for_each(|(offset, value)| self.write(*offset, *value));
    }

    fn put_flush(&mut self) -> u16 {
        self.put(1, 0x00, 1, [0, 0], [0; 3])
    }

    /// Puts a command into a queue, and lets the disk work on it.
    fn issue(&mut self, queue: u16, opcode: u8, namespace: u32, prps: [u64; 2], dwords: [u32; 3]) -> u16 {
        let id = self.put(queue, opcode, namespace, prps, dwords);
        self.ring(queue);
        self.settle();
        id
    }

    /// Puts a command into a queue, without telling of it.
    fn put(&mut self, queue: u16, opcode: u8, namespace: u32, prps: [u64; 2], dwords: [u32; 3]) -> u16 {
        let pair = &mut self.pairs[usize::from(queue)];
        let (id, at) = (pair.tail, u64::from(queue) * 2 * QUEUES + u64::from(pair.tail) * 64);
        pair.tail = (pair.tail + 1) % ENTRIES;
        let mut entry = [0; 64];
        entry[0] = opcode;
        entry[2..4].copy_from_slice(&id.to_le_bytes());
        entry[4..8].copy_from_slice(&namespace.to_le_bytes());
        entry[24..32].copy_from_slice(&prps[0].to_le_bytes());
        entry[32..40].copy_from_slice(&prps[1].to_le_bytes());
        for (n, dword) in dwords.into_iter().enumerate() {
            entry[40 + 4 * n..44 + 4 * n].copy_from_slice(&dword.to_le_bytes());
        }
        self.machine.write_memory(at, &entry).unwrap();
        id
    }

    fn ring(&mut self, queue: u16) {
        let tail = self.pairs[usize::from(queue)].tail;
        self.write(DOORBELLS + 8 * u64::from(queue), tail.into());
    }

    /// Lets the disk work for as long as it has something to do at this time; messages go out.
    fn settle(&mut self) {
        while self.disk.next_work().is_some_and(|due| due <= self.now) {
            let before = self.machine.messages.len();
            self.disk.work(self.now, &mut self.machine);
            for message in &self.machine.messages[before..] {
                assert_eq!(self.disk.may_deliver(message), Delivery::Now);
                self.disk.delivered(message, true);
            }
        }
    }

    /// Takes what is in a completion queue, one entry at most.
    fn take(&mut self, queue: u16) -> Option<Done> {
        let pair = &mut self.pairs[usize::from(queue)];
        let at = (u64::from(queue) * 2 * QUEUES + QUEUES + u64::from(pair.head) * 16) as usize;
        let entry: [u8; 16] = self.machine.memory[at..at + 16].try_into().unwrap();
        let word = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
        if (word(14) & 1 == 1) != pair.phase {
            return None;
        }
        pair.head = (pair.head + 1) % ENTRIES;
        pair.phase ^= pair.head == 0;
        let head = pair.head;
        self.write(DOORBELLS + 8 * u64::from(queue) + 4, head.into());
        let result = u32::from_le_bytes([0, 1, 2, 3].map(|i| entry[i]));
        Some(Done { result, head: word(8), queue: word(10), id: word(12), code: word(14) >> 1 & 0x7ff })
    }

    /// One command from start to end.
    fn run(&mut self, queue: u16, opcode: u8, namespace: u32, prps: [u64; 2], dwords: [u32; 3]) -> Done {
        let id = self.issue(queue, opcode, namespace, prps, dwords);
        let done = self.take(queue).expect("a command is completed");
        assert_eq!((done.id, done.queue), (id, queue));
        done
    }

    fn admin(&mut self, opcode: u8, namespace: u32, prp: u64, dwords: [u32; 3]) -> Done {
        self.run(0, opcode, namespace, [prp, 0], dwords)
    }

    /// A read (02h) or write (01h) by the first I/O queue.
    fn transfer(&mut self, opcode: u8, block: u64, blocks: u32, prps: [u64; 2]) -> u16 {
        self.run(1, opcode, 1, prps, [block as u32, (block >> 32) as u32, blocks - 1]).code
    }

    fn ledger(&mut self) -> Value {
        self.disk.command("ledger").unwrap()
    }

    fn bytes(&self, address: u64, len: usize) -> &[u8] {
        &self.machine.memory[address as usize..address as usize + len]
    }

    /// Writes a PRP list.
    fn list(&mut self, address: u64, entries: impl IntoIterator<Item = u64>) {
        let bytes: Vec<u8> = entries.into_iter().flat_map(u64::to_le_bytes).collect();
        self.machine.write_memory(address, &bytes).unwrap();
    }
}

/// What nobody wrote, from a block on.
fn expected(block: u64, blocks: u64) -> Vec<u8> {
    (block * 512..(block + blocks) * 512).step_by(8).flat_map(|at| pattern(7, at).to_le_bytes()).collect()
}

#[test]
fn the_registers_are_those_of_the_specification() {
    let mut driver = Driver::cold();
    let mut cap = [0; 8];
    driver.disk.bar_read(0, 0, CAP, &mut cap);
    assert_eq!(u64::from_le_bytes(cap), 0x0000_0020_1401_03ff);
    assert_eq!(driver.read(VS), 0x0001_0400);
    assert_eq!((driver.read(CC), driver.read(CSTS), driver.read(AQA)), (0, 0, 0));
    driver.writes(&[(ASQ, 0x1234_5fff), (ASQ_HIGH, 7)]);
    assert_eq!((driver.read(ASQ), driver.read(ASQ_HIGH)), (0x1234_5000, 7), "the admin queue lies on a page");
    driver.write(AQA, u32::MAX);
    assert_eq!(driver.read(AQA), 0x0fff_0fff);
    assert_eq!(driver.read(DOORBELLS), 0);
    let mut narrow = [0; 2];
    driver.disk.bar_read(0, 0, VS + 2, &mut narrow);
    assert_eq!(narrow, [1, 0]);
    assert_eq!((driver.capability(1), driver.capability(5), driver.capability(16)), (0x40, 0x48, 0x60));
    assert_eq!(driver.disk.layout().msi, 16);
}

#[test]
fn an_access_that_no_register_has_is_answered_by_nobody() {
    let mut driver = Driver::cold();
    for (bar, offset, len) in [(1, 0, 4), (0, 2, 4), (0, 0x4000, 4), (0, 0x3ffc, 8), (0, 0, 3), (0, u64::MAX - 3, 4)] {
        let mut bytes = vec![0; len];
        driver.disk.bar_read(0, bar, offset, &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == 0xff), "BAR {bar} offset {offset:#x}");
        driver.disk.bar_write(0, bar, offset, &bytes, &mut driver.machine);
    }
    driver.disk.config_write(4, &[4, 0]);
    assert_eq!(driver.read(VS), u32::MAX);
    assert_eq!(driver.ledger()["refused"], 13);
}

#[test]
fn a_controller_that_cannot_be_enabled_says_so() {
    for (aqa, cc) in [(0, 1), (0x001f_0000, 1), (0x001f_001f, 0x81), (0x001f_001f, 0x11), (0x001f_001f, 0x0801)] {
        let mut driver = Driver::cold();
        driver.writes(&[(AQA, aqa), (CC, cc)]);
        assert_eq!(driver.read(CSTS), CSTS_FATAL, "AQA {aqa:#x} CC {cc:#x}");
        assert_eq!(driver.disk.next_work(), None);
        driver.write(CC, 0);
        assert_eq!(driver.read(CSTS), 0);
    }
}

#[test]
fn a_queue_outside_of_memory_is_fatal_until_the_controller_is_reset() {
    let mut driver = Driver::enabled();
    driver.writes(&[(CC, 0), (ASQ_HIGH, 1), (CC, 1), (DOORBELLS, 1)]);
    driver.settle();
    assert_eq!(driver.read(CSTS), CSTS_READY | CSTS_FATAL);
    assert!(driver.ledger()["violations"][0].as_str().unwrap().contains("submission queue 0"));
    driver.writes(&[(CC, 0), (ASQ_HIGH, 0)]);
    driver.enable();
    assert_eq!(driver.admin(0x06, 0, DATA, [1, 0, 0]).code, 0);
}

#[test]
fn identify_tells_what_linux_asks_for() {
    let mut driver = Driver::enabled();
    assert_eq!(driver.admin(0x06, 0, DATA, [1, 0, 0]).code, 0);
    let page = driver.bytes(DATA, 4096).to_vec();
    assert_eq!(page[..4], [0x34, 0x12, 0x34, 0x12]);
    assert_eq!(&page[4..24], b"PCIESCOPE00000001   ");
    assert_eq!((page[77], page[111], page[512], page[513], page[516]), (9, 1, 0x66, 0x44, 1));
    assert!(page[768..].starts_with(b"nqn.2014.org.nvmexpress:uuid:"));
    assert_eq!(driver.admin(0x06, 1, DATA, [0, 0, 0]).code, 0);
    let page = driver.bytes(DATA, 4096);
    assert_eq!(page[..8], (CAPACITY / 512).to_le_bytes());
    assert_eq!(page[128..132], [0, 0, 9, 0]);
    assert_eq!(driver.admin(0x06, 0, DATA, [2, 0, 0]).code, 0);
    assert_eq!(driver.bytes(DATA, 8), [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(driver.admin(0x06, 1, DATA, [2, 0, 0]).code, 0);
    assert_eq!(driver.bytes(DATA, 4), [0; 4], "there is no namespace above 1");
    assert_eq!(driver.admin(0x06, 1, DATA, [3, 0, 0]).code, 0);
    assert_eq!(driver.bytes(DATA, 2), [1, 8]);
    assert_eq!(driver.admin(0x06, 2, DATA, [0, 0, 0]).code, 0x00b);
    assert_eq!(driver.admin(0x06, 0, DATA, [6, 0, 0]).code, 0x002);
    assert_eq!(driver.ledger()["admin_bytes"], 5 * 4096);
}

#[test]
fn what_is_not_served_is_refused_with_its_own_status() {
    let mut driver = Driver::ready(1);
    let big = u32::from(QUEUE_ENTRIES) << 16;
    // Opcode, namespace, PRP 1, Command Dwords 10 to 12, status.
    let cases = [
        (0x0d, 0, 0, [0, 0, 0], 0x001, "namespace management"),
        (0x02, 0, DATA, [0x7f_0004, 0, 0], 0x109, "a log that there is not"),
        (0x02, 5, DATA, [0x7f_0002, 0, 0], 0x00b, "the log of another namespace"),
        (0x02, 0, DATA, [0xffff_0002, 0, 0], 0x002, "more than 4 KiB of a log"),
        (0x05, 0, DATA, [0x3f_0001, 3, 0], 0x101, "a completion queue that exists"),
        (0x05, 0, DATA, [0x3f_0010, 3, 0], 0x101, "completion queue 16"),
        (0x05, 0, DATA, [0x3f_0000, 3, 0], 0x101, "the admin queue"),
        (0x05, 0, DATA, [big | 2, 3, 0], 0x102, "too many entries"),
        (0x05, 0, DATA, [2, 3, 0], 0x102, "one entry"),
        (0x05, 0, DATA, [0x3f_0002, 2, 0], 0x002, "not contiguous"),
        (0x05, 0, DATA + 8, [0x3f_0002, 3, 0], 0x013, "not on a page"),
        (0x05, 0, DATA, [0x3f_0002, 16 << 16 | 3, 0], 0x108, "vector 16"),
        (0x01, 0, DATA, [0x3f_0001, 1 << 16 | 1, 0], 0x101, "a submission queue that exists"),
        (0x01, 0, DATA, [0x3f_0002, 2 << 16 | 1, 0], 0x100, "no such completion queue"),
        (0x01, 0, DATA, [0x3f_0002, 1, 0], 0x100, "the admin completion queue"),
        (0x04, 0, 0, [1, 0, 0], 0x10c, "a completion queue that is used"),
        (0x04, 0, 0, [0, 0, 0], 0x101, "the admin completion queue"),
        (0x04, 0, 0, [0xffff, 0, 0], 0x101, "no such completion queue"),
        (0x00, 0, 0, [0, 0, 0], 0x101, "the admin submission queue"),
        (0x00, 0, 0, [0xffff, 0, 0], 0x101, "no such submission queue"),
        (0x09, 0, 0, [0x8000_0006, 1, 0], 0x10d, "a feature to be saved"),
        (0x09, 0, 0, [0x0c, 0, 0], 0x002, "a feature that there is not"),
        (0x09, 0, 0, [0x07, 0x0007_0007, 0], 0x00c, "the number of queues, too late"),
        (0x09, 0, 0, [0x02, 3, 0], 0x002, "a power state that there is not"),
        (0x0a, 0, 0, [0x09, 99, 0], 0x002, "a vector that there is not"),
    ];
    for (opcode, namespace, prp, dwords, code, what) in cases {
        assert_eq!(driver.admin(opcode, namespace, prp, dwords).code, code, "{what}");
    }
    let end = CAPACITY / 512;
    let cases = [
        (0x05, 1, [DATA, 0], [0, 0, 0], 0x001, "compare"),
        (0x02, 2, [DATA, 0], [0, 0, 0], 0x00b, "another namespace"),
        (0x02, 1, [DATA, 0], [end as u32, (end >> 32) as u32, 0], 0x080, "the block after the last"),
        (0x01, 1, [DATA, 0], [end as u32 - 1, (end >> 32) as u32, 1], 0x080, "over the end"),
        (0x08, 1, [DATA, 0], [u32::MAX, u32::MAX, 0xffff], 0x080, "over the end of numbers"),
        (0x02, 1, [DATA, 0], [0, 0, 4096], 0x002, "more than 2 MiB"),
        (0x02, 1, [DATA + 2, 0], [0, 0, 0], 0x013, "PRP 1 within a dword"),
        (0x02, 1, [DATA, DATA + 8], [0, 0, 15], 0x013, "PRP 2 within a page"),
        (0x02, 1, [DATA, LISTS + 4], [0, 0, 63], 0x013, "a list within an entry"),
        (0x02, 1, [1 << 40, 0], [0, 0, 0], 0x004, "no memory"),
        (0x01, 1, [1 << 40, 0], [0, 0, 0], 0x004, "no memory"),
        (0x02, 1, [DATA, 1 << 40], [0, 0, 63], 0x004, "no memory for the list"),
    ];
    for (opcode, namespace, prps, dwords, code, what) in cases {
        assert_eq!(driver.run(1, opcode, namespace, prps, dwords).code, code, "{what}");
    }
    assert_eq!(driver.transfer(0x02, end - 1, 1, [DATA, 0]), 0, "it still goes on");
    assert_eq!(driver.ledger()["errors_total"], 25 + 12);
}

#[test]
fn data_go_where_the_prps_say() {
    let mut driver = Driver::ready(1);
    // Within one page; over two; with lists of one page, of two, and one that begins at the end of a page.
    assert_eq!(driver.transfer(0x02, 3, 7, [DATA + 512, 0]), 0);
    assert_eq!(driver.bytes(DATA + 512, 7 * 512), expected(3, 7));
    assert_eq!(driver.transfer(0x02, 100, 9, [DATA + 0xc04, DATA + 0x9000]), 0);
    assert_eq!(driver.bytes(DATA + 0xc04, 0x3fc), &expected(100, 9)[..0x3fc]);
    assert_eq!(driver.bytes(DATA + 0x9000, 9 * 512 - 0x3fc), &expected(100, 9)[0x3fc..]);
    assert_eq!(driver.ledger()["prp_bytes"], 0);

    // Backwards, so that no page follows its neighbour.
    let pages: Vec<u64> = (0..255).map(|n| DATA + 0x20_0000 - n * 0x1000).collect();
    driver.list(LISTS, pages.iter().copied());
    assert_eq!(driver.transfer(0x02, 5, 2048, [DATA, LISTS]), 0);
    let whole = expected(5, 2048);
    assert_eq!(driver.bytes(DATA, 4096), &whole[..4096]);
    for (page, part) in pages.iter().zip(whole[4096..].chunks(4096)) {
        assert_eq!(driver.bytes(*page, 4096), part);
    }
    assert_eq!(driver.ledger()["prp_bytes"], 255 * 8);

    driver.list(LISTS + 0x1ff0, [DATA + 0x1000, LISTS + 0x3000]);
    driver.list(LISTS + 0x3000, [DATA + 0x8000, DATA + 0x4000]);
    assert_eq!(driver.transfer(0x02, 9, 32, [DATA, LISTS + 0x1ff0]), 0);
    let whole = expected(9, 32);
    for (at, part) in [0, 0x1000, 0x8000, 0x4000].into_iter().zip(whole.chunks(4096)) {
        assert_eq!(driver.bytes(DATA + at, 4096), part);
    }
    assert_eq!(driver.ledger()["prp_bytes"], 255 * 8 + 4 * 8);

    // A list that ends with its page: its last entry is a page of data.
    driver.list(LISTS + 0x1ff0, [DATA + 0x3000, DATA + 0x6000]);
    assert_eq!(driver.transfer(0x02, 1, 24, [DATA, LISTS + 0x1ff0]), 0);
    let whole = expected(1, 24);
    for (at, part) in [0, 0x3000, 0x6000].into_iter().zip(whole.chunks(4096)) {
        assert_eq!(driver.bytes(DATA + at, 4096), part);
    }
}

#[test]
fn what_is_written_is_read_and_counted_to_the_byte() {
    let mut driver = Driver::ready(1);
    let mut random = SplitMix64::new(1);
    let bytes: Vec<u8> = (0..8192).map(|_| random.next_u64() as u8).collect();
    driver.machine.write_memory(DATA, &bytes).unwrap();
    let (before, ledger) = (Driver::port(&driver.traffic).totals(), driver.ledger());
    assert_eq!(driver.transfer(0x01, 1_000_003, 16, [DATA, DATA + 0x1000]), 0);
    assert_eq!(driver.transfer(0x02, 1_000_003, 16, [DATA + 0x4000, DATA + 0x5000]), 0);
    assert_eq!(driver.bytes(DATA + 0x4000, 8192), bytes);
    assert_eq!(driver.run(1, 0x00, NAMESPACE_ALL, [0, 0], [0, 0, 0]).code, 0);
    assert_eq!(driver.run(1, 0x08, 1, [0, 0], [1_000_003, 0, 7]).code, 0);
    let port = Driver::port(&driver.traffic).totals().since(&before);
    assert_eq!((port.rx_payload, port.tx_payload), (8192 + 4 * 16, 8192 + 4 * 64 + 8 * 4));
    assert_eq!((port.rx_mwr, port.tx_cpld, port.tx_mwr, port.tx_mrd), (8192 / 128 + 4, 8192 / 128 + 4, 8, 0));
    assert_eq!(driver.transfer(0x02, 1_000_003, 16, [DATA + 0x4000, DATA + 0x5000]), 0);
    assert!(driver.bytes(DATA + 0x4000, 4096).iter().all(|byte| *byte == 0));
    assert_eq!(driver.bytes(DATA + 0x5000, 4096), &bytes[4096..]);
    let now = driver.ledger();
    let since = |field: &str| now[field].as_u64().unwrap() - ledger[field].as_u64().unwrap();
    let fields = ["data_read_bytes", "data_written_bytes", "sqe_bytes", "cqe_bytes", "doorbells", "completions"];
    assert_eq!(fields.map(since), [16_384, 8192, 5 * 64, 5 * 16, 10, 5]);
    assert_eq!((since("dma_write_bytes"), since("dma_read_bytes")), (16_384 + 80, 8192 + 320));
    assert_eq!(now["commands"], json!({"admin": 2, "read": 2, "write": 1, "flush": 1, "write_zeroes": 1, "other": 0}));
}

#[test]
fn the_links_sizes_are_those_of_device_control() {
    let mut driver = Driver::ready(1);
    let control = driver.capability(16) + 8;
    driver.disk.config_write(control, &[0x30, 0x58]);
    assert_eq!(Driver::port(&driver.traffic).link(), (256, 4096));
    driver.disk.config_write(control, &[0x30, 0xd8]);
    assert_eq!(Driver::port(&driver.traffic).link(), (128, 512), "as after reset");
    assert_eq!(driver.read(VS), u32::MAX, "a function-level reset took memory away");
}

#[test]
fn a_rate_takes_its_time_and_no_more() {
    let mut driver = Driver::ready(1);
    driver.disk.command("rate 512kB").unwrap();
    // Each takes 1 ms; the third comes late, and the pipe stood still for 1 ms by then.
    for block in 0..2 {
        driver.put(1, 0x02, 1, [DATA, 0], [block, 0, 0]);
    }
    driver.ring(1);
    driver.settle();
    let start = 1_000;
    assert_eq!(driver.disk.next_work(), Some(start + 1_000_000));
    driver.now = start + 999_999;
    driver.settle();
    assert_eq!(driver.take(1), None);
    // The first is looked at late: the second is still on time.
    driver.now = start + 1_500_000;
    driver.settle();
    assert_eq!(driver.take(1).map(|done| (done.id, done.code)), Some((0, 0)));
    assert_eq!((driver.take(1), driver.disk.next_work()), (None, Some(start + 2_000_000)));
    driver.now = start + 2_000_000;
    driver.settle();
    assert_eq!(driver.take(1).map(|done| done.id), Some(1));
    driver.now = start + 3_000_000;
    driver.issue(1, 0x02, 1, [DATA, 0], [2, 0, 0]);
    assert_eq!(driver.disk.next_work(), Some(start + 4_000_000));
    driver.disk.command("rate none").unwrap();
    driver.settle();
    assert_eq!(driver.take(1).map(|done| done.id), Some(2), "what waits is concerned too");
}

#[test]
fn queues_are_served_in_turn() {
    let mut driver = Driver::ready(2);
    driver.disk.command("rate 512MB").unwrap();
    for block in 0..10 {
        driver.put(1, 0x02, 1, [DATA, 0], [block, 0, 0]);
        driver.put(2, 0x02, 1, [DATA, 0], [block, 0, 0]);
    }
    driver.ring(1);
    driver.ring(2);
    let mut done = [0, 0];
    for turn in 1..=20 {
        driver.settle();
        driver.now = driver.disk.next_work().unwrap_or(driver.now);
        driver.settle();
        done[0] += u32::from(driver.take(1).is_some());
        done[1] += u32::from(driver.take(2).is_some());
        assert_eq!(done, [u32::div_ceil(turn, 2), turn / 2]);
    }
    assert_eq!(driver.machine.vectors().iter().filter(|vector| **vector == 2).count(), 10);
}

#[test]
fn rings_wrap_and_a_full_completion_queue_waits() {
    let mut driver = Driver::ready(1);
    for round in 0..5 * u32::from(ENTRIES) {
        assert_eq!(driver.transfer(0x02, round.into(), 1, [DATA, 0]), 0, "round {round}");
    }
    // More than the completion queue holds, in two pieces; nothing is taken out meanwhile.
    for _ in 0..ENTRIES - 1 {
        driver.put_flush();
    }
    driver.ring(1);
    driver.settle();
    for _ in 0..5 {
        driver.put_flush();
    }
    driver.ring(1);
    driver.settle();
    assert_eq!(driver.disk.next_work(), None, "it waits for the guest");
    let mut done = 0;
    while driver.take(1).is_some() {
        done += 1;
        driver.settle();
    }
    assert_eq!(done, ENTRIES + 4);
}

#[test]
fn one_message_is_under_way_at_a_time_and_masks_hold_it_back() {
    let mut driver = Driver::ready(1);
    driver.put_flush();
    driver.ring(1);
    driver.disk.work(driver.now, &mut driver.machine);
    driver.put_flush();
    driver.ring(1);
    driver.disk.work(driver.now, &mut driver.machine);
    assert_eq!(driver.machine.vectors(), [1], "the first has not gone out");
    driver.disk.delivered(&Message { vector: 1, delay_ns: 0, is_copy: false }, true);
    assert!(driver.take(1).is_some() && driver.take(1).is_some());

    driver.write(INTMS, 1 << 1);
    assert_eq!(driver.run(1, 0x00, 1, [0, 0], [0; 3]).code, 0);
    assert_eq!(driver.machine.vectors(), [1]);
    driver.write(INTMC, 1 << 1);
    driver.settle();
    assert_eq!(driver.machine.vectors(), [1], "everything was taken");
    driver.write(INTMS, 1 << 1);
    driver.issue(1, 0x00, 1, [0, 0], [0; 3]);
    driver.write(INTMC, 1 << 1);
    driver.settle();
    assert_eq!(driver.machine.vectors(), [1, 1]);
    assert_eq!(driver.read(INTMS), 0);
}

#[test]
fn deleted_queues_and_aborts_answer_what_was_under_way() {
    let mut driver = Driver::ready(1);
    driver.disk.command("rate 1").unwrap();
    for _ in 0..3 {
        driver.put(1, 0x02, 1, [DATA, 0], [0; 3]);
    }
    driver.ring(1);
    driver.settle();
    assert_eq!(driver.admin(0x08, 0, 0, [1 << 16 | 1, 0, 0]).result, 0, "the second is aborted");
    assert_eq!(driver.take(1).map(|done| (done.id, done.code)), Some((1, 0x007)));
    assert_eq!(driver.admin(0x08, 0, 0, [9 << 16 | 1, 0, 0]).result, 1, "there is none of this number");
    assert_eq!(driver.admin(0x08, 0, 0, [77, 0, 0]).result, 1, "there is no such queue");
    assert_eq!(driver.admin(0x00, 0, 0, [1, 0, 0]).code, 0);
    for id in [0, 2] {
        assert_eq!(driver.take(1).map(|done| (done.id, done.code)), Some((id, 0x008)));
    }
    assert_eq!(driver.admin(0x04, 0, 0, [1, 0, 0]).code, 0);
    driver.make_pair(1);
    driver.pairs[1] = Pair { tail: 0, head: 0, phase: true };
    driver.machine.memory[3 * QUEUES as usize..][..4096].fill(0);
    driver.disk.command("rate none").unwrap();
    assert_eq!(driver.transfer(0x02, 0, 1, [DATA, 0]), 0);
}

#[test]
fn doorbells_that_cannot_be_are_reported_as_events() {
    let mut driver = Driver::ready(1);
    for _ in 0..4 {
        driver.put(0, 0x0c, 0, [0, 0], [0; 3]);
    }
    driver.ring(0);
    driver.settle();
    assert_eq!(driver.take(0), None, "events are waited for");
    assert_eq!(driver.admin(0x0c, 0, 0, [0; 3]).code, 0x105, "a fifth request");
    driver.write(DOORBELLS + 8, ENTRIES.into());
    driver.settle();
    assert_eq!(driver.take(0).map(|done| (done.result, done.code)), Some((0x0001_0100, 0)));
    driver.writes(&[(DOORBELLS + 8 * 9 + 4, 0), (DOORBELLS + 0x1000, 0)]);
    driver.settle();
    assert_eq!(driver.take(0).map(|done| done.result), Some(0x0001_0000));
    assert_eq!(driver.take(0), None, "one event for both");
    assert_eq!(driver.ledger()["violations"].as_array().unwrap().len(), 3);
    assert_eq!(driver.transfer(0x02, 0, 1, [DATA, 0]), 0);
}

#[test]
fn features_are_kept_until_the_controller_is_reset() {
    let mut driver = Driver::enabled();
    assert_eq!(driver.admin(0x09, 0, 0, [0x07, 0x0003_0003, 0]).result, 0x000e_000e);
    for (word, value) in [(0x06, 0), (0x01, 0x0707_0702), (0x0b, 0x100), (0x04, 350), (0x08, 5)] {
        assert_eq!(driver.admin(0x09, 0, 0, [word, value, 0]).code, 0);
        assert_eq!(driver.admin(0x0a, 0, 0, [word, value & 0x30_0000, 0]).result, value, "feature {word:#x}");
        assert_eq!(driver.admin(0x0a, 0, 0, [word | 3 << 8, 0, 0]).result, 4);
    }
    assert_eq!(driver.admin(0x0a, 0, 0, [0x06 | 1 << 8, 0, 0]).result, 1, "as after reset");
    assert_eq!(driver.admin(0x0a, 0, 0, [0x09, 5, 0]).result, 5);
    driver.write(CC, 0);
    driver.machine.memory[QUEUES as usize..][..4096].fill(0);
    driver.enable();
    assert_eq!(driver.admin(0x0a, 0, 0, [0x06, 0, 0]).result, 1);
}

#[test]
fn media_errors_strike_every_nth_and_move_nothing() {
    let mut driver = Driver::ready(1);
    driver.disk.command("fail every 2").unwrap();
    let codes: Vec<u16> = (0..4).map(|_| driver.transfer(0x02, 0, 1, [DATA, 0])).collect();
    assert_eq!(codes, [0, 0x281, 0, 0x281]);
    assert_eq!(driver.transfer(0x01, 0, 1, [DATA, 0]), 0);
    assert_eq!(driver.transfer(0x01, 0, 1, [DATA, 0]), 0x280);
    let ledger = driver.ledger();
    assert_eq!(ledger["errors"], json!({"0x280": 1, "0x281": 2}));
    assert_eq!((&ledger["data_read_bytes"], &ledger["data_written_bytes"]), (&json!(1024), &json!(512)));
    driver.disk.command("fail none").unwrap();
    assert_eq!(driver.transfer(0x02, 0, 1, [DATA, 0]), 0);
}

#[test]
fn a_removed_disk_is_silent_and_comes_back_with_its_medium() {
    let mut driver = Driver::ready(1);
    driver.machine.write_memory(DATA, &[0xab; 512]).unwrap();
    assert_eq!(driver.transfer(0x01, 77, 1, [DATA, 0]), 0);
    driver.disk.command("rate 1kB").unwrap();
    driver.issue(1, 0x02, 1, [DATA, 0], [77, 0, 0]);
    driver.disk.command("remove").unwrap();
    let before = Driver::port(&driver.traffic).totals();
    assert!(driver.disk.is_gone());
    assert_eq!((driver.read(CSTS), driver.disk.next_work()), (u32::MAX, None));
    let mut id = [0; 4];
    driver.disk.config_read(0, &mut id);
    assert_eq!(id, [0xff; 4]);
    driver.write(DOORBELLS + 8, 3);
    driver.disk.config_write(4, &[6, 0]);
    driver.disk.work(u64::MAX, &mut driver.machine);
    assert_eq!(driver.disk.may_deliver(&Message { vector: 1, delay_ns: 0, is_copy: false }), Delivery::Never);
    assert_eq!(Driver::port(&driver.traffic).totals(), before, "nothing moves");
    let ledger = driver.ledger();
    assert_eq!(
        (&ledger["removed"], &ledger["all_ones_reads"], &ledger["dropped_writes"]),
        (&json!(true), &json!(2), &json!(2))
    );

    driver.disk.command("reset").unwrap();
    assert_eq!(driver.read(CSTS), u32::MAX, "memory is disabled, as after power-on");
    driver.power_on();
    driver.machine.memory[..8 * QUEUES as usize].fill(0);
    driver.enable();
    driver.make_pair(1);
    assert_eq!(driver.transfer(0x02, 77, 1, [DATA + 0x1000, 0]), 0);
    assert_eq!(driver.bytes(DATA + 0x1000, 512), [0xab; 512]);
    assert_eq!(driver.ledger()["rate"], Value::Null);
}

#[test]
fn without_bus_mastering_nothing_moves() {
    let mut driver = Driver::ready(1);
    driver.disk.config_write(4, &[2, 0]);
    driver.put_flush();
    driver.ring(1);
    assert_eq!(driver.disk.next_work(), None);
    driver.disk.work(u64::MAX, &mut driver.machine);
    assert_eq!(driver.take(1), None);
    driver.disk.config_write(4, &[6, 0]);
    driver.settle();
    assert!(driver.take(1).is_some());
}

#[test]
fn a_shutdown_is_complete_at_once() {
    let mut driver = Driver::ready(1);
    driver.write(CC, 0x0046_4001);
    assert_eq!(driver.read(CSTS), CSTS_READY | CSTS_SHUTDOWN_COMPLETE);
    driver.write(CC, 0x0046_0000);
    assert_eq!(driver.read(CSTS), 0);
}

/// Nothing that a guest can write makes the model panic, or work without end.
#[test]
fn random_accesses_and_random_commands_are_survived() {
    let mut random = SplitMix64::new(99);
    for round in 0..200 {
        let mut driver = Driver::ready(2);
        driver.machine.memory.truncate(8 << 20);
        driver.machine.memory[LISTS as usize..DATA as usize].iter_mut().for_each(|b| *b = random.next_u64() as u8);
        for _ in 0..50 {
            let queue = random.below(3) as u16;
            let opcode = random.below(14) as u8;
            let prps = [0; 2].map(|_| (random.below(2) * LISTS + random.below(0x80_0000)) & !random.below(0x1000));
            let dwords = [0; 3].map(|_| (random.next_u64() as u32) >> random.below(32));
            driver.put(queue, opcode, random.below(3) as u32, prps, dwords);
            driver.ring(queue);
            if random.below(4) == 0 {
                let offset = random.below(0x1100) & !3;
                let offset = if offset == CC { DOORBELLS } else { offset };
                driver.write(offset, (random.next_u64() as u32) >> random.below(32));
            }
            for _ in 0..100 {
                driver.disk.work(driver.now, &mut driver.machine);
            }
            driver.now += random.below(1_000_000);
        }
        let ledger = driver.ledger();
        let sum = |fields: &[&str]| fields.iter().map(|field| ledger[field].as_u64().unwrap()).sum::<u64>();
        let port = Driver::port(&driver.traffic).totals();
        assert_eq!(port.rx_payload, sum(&["dma_write_bytes", "mmio_read_bytes"]), "round {round}");
        assert_eq!(port.tx_payload, sum(&["dma_read_bytes", "mmio_write_bytes"]), "round {round}");
    }
}
