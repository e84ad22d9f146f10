//! The server as a vfio-user client sees it, without QEMU. The client is that of the crate `vfio_user`: an opinion on
//! the protocol that is not ours. What it cannot say, raw bytes on the socket say.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use pciescope_lab::control::ask;
use pciescope_lab::device::LatencyEndpoint;
use pciescope_lab::device::delay::SplitMix64;
use pciescope_lab::{Error, Served};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use serde_json::{Value, json};
use tempfile::TempDir;
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_ACTION_UNMASK, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE,
};
use vfio_user::Client;

const CONFIG: u32 = 7;
const INTX: u32 = 0;
const MSI: u32 = 1;
const MSIX: u32 = 2;
/// Long enough for anything that is to come on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long is waited for what is not to come.
const QUIET: Duration = Duration::from_millis(50);

struct Lab {
    served: Served,
    _folder: TempDir,
}

impl Lab {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let served = Served::spawn(LatencyEndpoint::default(), folder.path(), "ep").unwrap();
        Lab { served, _folder: folder }
    }

    /// A client that has enabled memory, bus mastering and MSI-X.
    fn guest(&self) -> Guest {
        let mut guest = Guest(Client::new(&self.served.device_socket).unwrap());
        guest.write(CONFIG, 4, &[6, 0]);
        guest.write(CONFIG, 0x62, &[0, 0x80]);
        guest
    }

    fn ask(&self, command: &str) -> Value {
        ask(&self.served.control_socket, command).unwrap()
    }

    fn vector(&self, vector: usize) -> Value {
        let ledger = self.ask("ledger");
        let irq = ledger["irq"].as_array().unwrap().iter().find(|irq| irq["vector"] == vector);
        irq.unwrap_or_else(|| panic!("vector {vector} was never raised")).clone()
    }

    /// Waits until no message of the vector is under way.
    fn settled(&self, vector: usize) -> Value {
        let patience = Instant::now() + PATIENCE;
        loop {
            let irq = self.vector(vector);
            if irq["pending"] == 0 || Instant::now() > patience {
                return irq;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn raw(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.served.device_socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }
}

/// A lab with its guest.
fn lab_and_guest() -> (Lab, Guest) {
    let lab = Lab::new();
    let guest = lab.guest();
    (lab, guest)
}

struct Guest(Client);

impl Guest {
    fn read<const N: usize>(&mut self, region: u32, offset: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.region_read(region, offset, &mut bytes).unwrap();
        bytes
    }

    fn read4(&mut self, offset: u64) -> u32 {
        u32::from_le_bytes(self.read(0, offset))
    }

    fn read8(&mut self, offset: u64) -> u64 {
        u64::from_le_bytes(self.read(0, offset))
    }

    fn write(&mut self, region: u32, offset: u64, bytes: &[u8]) {
        self.0.region_write(region, offset, bytes).unwrap();
    }

    fn write4(&mut self, offset: u64, value: u32) {
        self.write(0, offset, &value.to_le_bytes());
    }

    fn trigger(&mut self, vector: u64) {
        self.write4(0x80 + 4 * vector, 1);
    }

    /// Enables the first vectors of MSI-X and listens to them.
    fn listen_to_first(&mut self, count: u32) -> Vec<OwnedFd> {
        self.write4(0x30, ((1u64 << count) - 1) as u32);
        self.listen(MSIX, 0, count)
    }

    /// Listens to vectors of a kind.
    fn listen(&mut self, index: u32, start: u32, count: u32) -> Vec<OwnedFd> {
        let fds: Vec<_> = (0..count).map(|_| eventfd(0, EventfdFlags::NONBLOCK).unwrap()).collect();
        for (at, chunk) in fds.chunks(8).enumerate() {
            let raw: Vec<_> = chunk.iter().map(AsRawFd::as_raw_fd).collect();
            let flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
            self.0.set_irqs(index, flags, start + 8 * at as u32, raw.len() as u32, &raw).unwrap();
        }
        fds
    }
}

/// Interrupts that came on an eventfd within `time`: returns at the first.
fn taken(fd: &OwnedFd, time: Duration) -> u64 {
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&time)).unwrap();
    let mut count = [0; 8];
    rustix::io::read(fd, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
}

#[test]
fn offers_the_regions_and_vectors_of_the_specification() {
    let (_lab, mut guest) = lab_and_guest();
    let sizes: Vec<_> = (0..9).map(|index| guest.0.region(index).unwrap().size).collect();
    assert_eq!(sizes, [0x1_0000, 0, 0x10_0000, 0, 0x1000, 0, 0, 0x1000, 0]);
    let vectors: Vec<_> = (0..5).map(|index| guest.0.get_irq_info(index).unwrap().count).collect();
    assert_eq!(vectors, [1, 8, 16, 0, 0]);
    assert_eq!(guest.read::<4>(CONFIG, 0), [0x34, 0x12, 0x0e, 0x5c]);
    assert_eq!(guest.read::<4>(CONFIG, 0x100), [3, 0, 1, 0]);
    assert_eq!(guest.read4(0), 0x5c0e_1a7e);
    assert_eq!(guest.read8(0), 0x1_5c0e_1a7e);
}

#[test]
fn an_access_is_one_count_whatever_its_width() {
    let (lab, mut guest) = lab_and_guest();
    guest.read::<8>(0, 0);
    guest.read::<4>(0, 0);
    guest.read::<1>(0, 0);
    assert_eq!(guest.read8(0x10), 4);
    guest.write(0, 8, &[1; 8]);
    assert_eq!(guest.read8(0x18), 1);
    let reads = lab.ask("ledger")["reads"].clone();
    let place = |offset, width| json!({"bar": 0, "offset": offset, "width": width, "count": 1});
    assert_eq!(reads, json!([place(0, 1), place(0, 4), place(0, 8), place(16, 8), place(24, 8)]));
}

#[test]
fn a_read_takes_no_less_than_its_delay() {
    let (lab, mut guest) = lab_and_guest();
    let mut times = |reads: usize| {
        let mut time = || {
            let start = Instant::now();
            guest.read4(0);
            start.elapsed()
        };
        let mut times: Vec<_> = (0..reads).map(|_| time()).collect();
        times.sort();
        times
    };
    let plain = times(101);
    for delay_us in [300, 3_000] {
        lab.ask(&format!("read-delay fixed {delay_us}us"));
        let delayed = times(51);
        let delay = Duration::from_micros(delay_us);
        assert!(delayed[0] >= delay, "{:?} for a delay of {delay:?}", delayed[0]);
        // The median may carry a busy machine's share, but not a second delay.
        assert!(delayed[25] < delay + delay + plain[50] * 4, "{:?}, undelayed {:?}", delayed[25], plain[50]);
    }
    assert_eq!(
        lab.ask("ledger")["read_delay_ns"],
        json!({"count": 102, "sum": 168_300_000, "chosen": [[300_000, 51], [3_000_000, 51]]})
    );
}

#[test]
fn never_takes_the_completion_timeout() {
    let (_lab, mut guest) = lab_and_guest();
    let start = Instant::now();
    assert_eq!(guest.read4(0x24), 0xffff_ffff);
    assert!(start.elapsed() >= Duration::from_millis(50));
}

#[test]
fn every_msix_vector_fires_its_own_eventfd() {
    let (_lab, mut guest) = lab_and_guest();
    let fds = guest.listen_to_first(16);
    for vector in 0..16 {
        guest.trigger(vector as u64);
        let counts: Vec<_> = fds.iter().map(|fd| taken(fd, Duration::ZERO)).collect();
        let expected: Vec<_> = (0..16).map(|other| u64::from(other == vector)).collect();
        assert_eq!(counts, expected, "the message is out before the write is answered");
        assert_eq!(guest.read8(0x180 + 8 * vector as u64), 1);
    }
}

#[test]
fn vectors_that_nobody_listens_to_are_undelivered() {
    let (lab, mut guest) = lab_and_guest();
    let _fds = guest.listen(MSIX, 0, 1);
    guest.write4(0x30, 0xffff);
    guest.trigger(5);
    assert_eq!(guest.read8(0x180 + 8 * 5), 0);
    let irq = lab.vector(5);
    assert_eq!((&irq["sent"], &irq["undelivered"]), (&json!(0), &json!(1)));
}

#[test]
fn msi_vectors_beyond_those_granted_share() {
    let (_lab, mut guest) = lab_and_guest();
    guest.write(CONFIG, 0x62, &[0, 0]);
    guest.write(CONFIG, 0x4a, &[0x21, 0]);
    let fds = guest.listen(MSI, 0, 4);
    guest.write4(0x30, 0xffff);
    guest.trigger(6);
    assert_eq!(fds.iter().map(|fd| taken(fd, Duration::ZERO)).collect::<Vec<_>>(), [0, 0, 1, 0]);
}

#[test]
fn intx_follows_its_level() {
    let (_lab, mut guest) = lab_and_guest();
    guest.write(CONFIG, 0x62, &[0, 0]);
    let pin = &guest.listen(INTX, 0, 1)[0];
    guest.write4(0x30, 0xffff);
    guest.trigger(1);
    assert_eq!(taken(pin, PATIENCE), 1);
    guest.trigger(2);
    assert_eq!(taken(pin, QUIET), 0, "masked until the client unmasks");
    let unmask = |guest: &mut Guest| {
        let flags = VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_UNMASK;
        guest.0.set_irqs(INTX, flags, 0, 1, &[]).unwrap();
    };
    guest.write4(0x38, 1 << 1);
    unmask(&mut guest);
    assert_eq!(taken(pin, PATIENCE), 1, "vector 2 still holds it high");
    guest.write4(0x38, 1 << 2);
    unmask(&mut guest);
    assert_eq!(taken(pin, QUIET), 0);
}

#[test]
fn a_delayed_message_comes_no_earlier() {
    let (lab, mut guest) = lab_and_guest();
    let fd = &guest.listen_to_first(1)[0];
    for delay_us in [50, 500, 20_000] {
        lab.ask(&format!("irq-delay fixed {delay_us}us"));
        let start = Instant::now();
        guest.trigger(0);
        assert_eq!(taken(fd, PATIENCE), 1);
        assert!(start.elapsed() >= Duration::from_micros(delay_us), "{:?} for {delay_us} us", start.elapsed());
    }
    assert_eq!(lab.settled(0)["sent"], 3);
}

#[test]
fn delayed_messages_come_in_the_order_of_their_times() {
    let (lab, mut guest) = lab_and_guest();
    let fds = guest.listen_to_first(2);
    lab.ask("irq-delay list 100ms,10ms");
    guest.trigger(0);
    guest.trigger(1);
    assert_eq!(taken(&fds[1], PATIENCE), 1);
    assert_eq!(taken(&fds[0], Duration::ZERO), 0);
    assert_eq!(taken(&fds[0], PATIENCE), 1);
}

#[test]
fn lost_messages_do_not_come_and_doubled_ones_come_twice() {
    let (lab, mut guest) = lab_and_guest();
    let fd = &guest.listen_to_first(1)[0];
    lab.ask("irq-lose every 2");
    let came: Vec<_> = (0..4)
        .map(|_| {
            guest.trigger(0);
            taken(fd, QUIET)
        })
        .collect();
    assert_eq!(came, [1, 0, 1, 0]);
    lab.ask("irq-lose none");
    lab.ask("irq-double every 1 gap 1ms");
    let start = Instant::now();
    guest.trigger(0);
    assert_eq!(taken(fd, PATIENCE), 1);
    guest.write4(0x38, 1);
    assert_eq!(taken(fd, PATIENCE), 1);
    assert!(start.elapsed() >= Duration::from_millis(1));
    let irq = lab.settled(0);
    let counts = ["triggers", "sent", "lost", "doubled"].map(|name| irq[name].as_u64().unwrap());
    assert_eq!(counts, [5, 4, 2, 1]);
}

#[test]
fn messages_wait_for_the_one_before_to_be_taken() {
    let (_lab, mut guest) = lab_and_guest();
    let fd = &guest.listen_to_first(1)[0];
    let start = Instant::now();
    guest.trigger(0);
    guest.trigger(0);
    std::thread::sleep(Duration::from_millis(2));
    let sent = guest.read8(0x180);
    // After 20 ms it still goes out; this machine may have been busy for so long.
    if start.elapsed() < Duration::from_millis(15) {
        assert_eq!(sent, 1);
    }
    assert_eq!((taken(fd, PATIENCE), taken(fd, PATIENCE)), (1, 1));
}

#[test]
fn all_ones_comes_after_n_reads() {
    let (lab, mut guest) = lab_and_guest();
    lab.ask("all-ones after 3");
    let values: Vec<_> = (0..5).map(|_| guest.read4(0)).collect();
    assert_eq!(values, [0x5c0e_1a7e, 0x5c0e_1a7e, 0x5c0e_1a7e, 0xffff_ffff, 0xffff_ffff]);
    assert_eq!(guest.read::<2>(CONFIG, 0), [0x34, 0x12]);
    lab.ask("all-ones off");
    assert_eq!(guest.read4(0), 0x5c0e_1a7e);
    assert_eq!(lab.ask("ledger")["all_ones_reads"], 2);
}

#[test]
fn a_removed_device_is_silent() {
    let (lab, mut guest) = lab_and_guest();
    let fd = &guest.listen_to_first(1)[0];
    lab.ask("irq-delay fixed 20ms");
    guest.trigger(0);
    lab.ask("remove");
    assert_eq!(guest.read::<4>(CONFIG, 0), [0xff; 4]);
    assert_eq!(guest.read8(0), u64::MAX);
    guest.trigger(0);
    assert_eq!(taken(fd, QUIET), 0);
    let irq = lab.vector(0);
    assert_eq!((&irq["triggers"], &irq["undelivered"], &irq["pending"]), (&json!(1), &json!(1), &json!(0)));
    assert_eq!(lab.ask("ledger")["removed"], true);
    lab.ask("reset");
    assert_eq!(guest.read4(0), 0x5c0e_1a7e);
}

#[test]
fn a_reset_clears_registers_and_disables_memory() {
    let (lab, mut guest) = lab_and_guest();
    guest.write4(8, 5);
    guest.0.reset().unwrap();
    assert_eq!(guest.read4(8), 0xffff_ffff);
    guest.write(CONFIG, 4, &[6, 0]);
    assert_eq!(guest.read4(8), 0);
    assert_eq!(lab.ask("ledger")["resets"], 1);
}

#[test]
fn accesses_that_no_register_can_have_read_all_ones() {
    let (_lab, mut guest) = lab_and_guest();
    assert_eq!(guest.read::<3>(0, 0), [0xff; 3]);
    for (region, offset) in [(0, 2), (0, 0x1_0000), (0, u64::MAX), (1, 0), (6, 0)] {
        assert_eq!(guest.read::<4>(region, offset), [0xff; 4], "{region} {offset:#x}");
    }
    assert_eq!(guest.read::<16384>(2, 0), [0xff; 16384]);
    assert!(guest.read::<0>(0, 0).is_empty());
    assert_eq!(guest.read::<8>(CONFIG, 0xffc), [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    for (region, offset) in [(0, 0x1_0000), (0, u64::MAX), (5, 0), (6, 0), (8, 0), (CONFIG, u64::MAX)] {
        guest.write(region, offset, &[0; 8]);
    }
    assert_eq!(guest.read4(0), 0x5c0e_1a7e);
}

#[test]
fn thousands_of_random_accesses_leave_it_alive() {
    let (lab, mut guest) = lab_and_guest();
    lab.ask("completion-timeout 0");
    let mut random = SplitMix64::new(42);
    for _ in 0..20_000 {
        let region = random.below(9) as u32;
        let offset = if random.below(8) == 0 { random.next_u64() } else { random.below(0x2_0000) };
        let width = random.below(17) as usize;
        if random.below(2) == 0 {
            guest.0.region_read(region, offset, &mut vec![0; width]).unwrap();
        } else {
            let bytes: Vec<_> = (0..width).map(|_| random.next_u64() as u8).collect();
            guest.write(region, offset, &bytes);
        }
    }
    guest.write(CONFIG, 4, &[6, 0]);
    assert_eq!(guest.read4(0), 0x5c0e_1a7e);
}

#[test]
fn the_next_client_finds_the_device_without_the_first_ones_eventfds() {
    let lab = Lab::new();
    let mut first = lab.guest();
    let fd = &first.listen(MSIX, 0, 1)[0];
    first.write4(8, 77);
    drop(first);
    let mut second = lab.guest();
    assert_eq!(second.read4(8), 77);
    second.write4(0x30, 1);
    second.trigger(0);
    assert_eq!(taken(fd, QUIET), 0);
    assert_eq!(lab.vector(0)["undelivered"], 1);
}

/// A message of the protocol, by hand.
fn message(command: u16, flags: u32, body: &[u8]) -> Vec<u8> {
    let size = (16 + body.len()) as u32;
    let header = [&[9, 0][..], &command.to_le_bytes(), &size.to_le_bytes(), &flags.to_le_bytes(), &[0; 4]];
    [&header.concat()[..], body].concat()
}

/// The body of an access to a region.
fn access(region: u32, offset: u64, count: u32, bytes: &[u8]) -> Vec<u8> {
    [&offset.to_le_bytes()[..], &region.to_le_bytes(), &count.to_le_bytes(), bytes].concat()
}

/// The errno of the refusal that answers `request`, 0 if it is none.
fn errno(stream: &mut UnixStream, request: &[u8]) -> u32 {
    stream.write_all(request).unwrap();
    let mut header = [0; 16];
    stream.read_exact(&mut header).unwrap();
    let field = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| header[at + i]));
    let mut body = vec![0; field(4) as usize - 16];
    stream.read_exact(&mut body).unwrap();
    assert_eq!(field(8) & 0x20 != 0, field(12) != 0);
    field(12)
}

#[test]
fn posted_writes_are_taken_in_order_and_not_answered() {
    let lab = Lab::new();
    drop(lab.guest());
    let mut stream = lab.raw();
    let mut burst = Vec::new();
    for value in 1..=100u8 {
        burst.extend(message(10, 0x10, &access(0, 8, 4, &[value, 0, 0, 0])));
    }
    burst.extend(message(9, 0, &access(0, 8, 4, &[])));
    stream.write_all(&burst).unwrap();
    let mut reply = [0; 36];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!((reply[2], &reply[32..]), (9, &[100, 0, 0, 0][..]));
}

#[test]
fn a_message_in_pieces_is_understood() {
    let lab = Lab::new();
    drop(lab.guest());
    let mut stream = lab.raw();
    for byte in message(9, 0, &access(0, 0, 4, &[])) {
        stream.write_all(&[byte]).unwrap();
    }
    let mut reply = [0; 36];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[32..], [0x7e, 0x1a, 0x0e, 0x5c]);
}

#[test]
fn requests_that_make_no_sense_are_refused_and_the_connection_goes_on() {
    const EINVAL: u32 = 22;
    const EOPNOTSUPP: u32 = 95;
    let lab = Lab::new();
    let mut stream = lab.raw();
    let irqs = |flags: u32, index: u32, start: u32, count: u32| {
        [20, flags, index, start, count].iter().flat_map(|field| field.to_le_bytes()).collect::<Vec<_>>()
    };
    let cases = [
        ("a command that is none", message(99, 0, &[]), EOPNOTSUPP),
        ("DMA by message", message(11, 0, &[0; 16]), EOPNOTSUPP),
        ("another major version", message(1, 0, &[1, 0, 0, 0, 0]), EINVAL),
        ("a region that is none", message(9, 0, &access(9, 0, 4, &[])), EINVAL),
        ("a read of 4 GiB", message(9, 0, &access(0, 0, u32::MAX, &[])), EINVAL),
        ("a write of fewer bytes than said", message(10, 0, &access(0, 8, 8, &[1, 2])), EINVAL),
        ("no body", message(5, 0, &[]), 0),
        ("a region's description beyond the last", message(5, 0, &[9; 32]), EINVAL),
        ("an interrupt's description beyond the last", message(7, 0, &[9; 16]), EINVAL),
        ("vectors beyond the last", message(8, 0, &irqs(0x24, MSIX, 16, 1)), EINVAL),
        ("vectors that overflow", message(8, 0, &irqs(0x24, MSIX, u32::MAX, u32::MAX)), EINVAL),
        ("a kind of interrupt that is none", message(8, 0, &irqs(0x24, 99, 0, 1)), EINVAL),
        ("vectors by boolean", message(8, 0, &irqs(0x22, MSIX, 0, 1)), EOPNOTSUPP),
        ("a mapping without a file", message(2, 0, &[0xff; 32]), 0),
        ("an unmapping of everything", message(3, 0, &[0xff; 24]), 0),
    ];
    for (name, request, expected) in cases {
        assert_eq!(errno(&mut stream, &request), expected, "{name}");
    }
}

#[test]
fn a_client_that_breaks_the_protocol_is_dropped_and_the_next_one_served() {
    let lab = Lab::new();
    let oversized = [9, 0, 9, 0, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0, 0, 0, 0, 0];
    let undersized = [9, 0, 9, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let a_reply = [9, 0, 9, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    for bytes in [oversized, undersized, a_reply] {
        let mut stream = lab.raw();
        stream.write_all(&bytes).unwrap();
        assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0, "{bytes:?}");
    }
    let mut half = lab.raw();
    half.write_all(&message(9, 0, &[])[..10]).unwrap();
    drop(half);
    assert_eq!(lab.guest().read4(0), 0x5c0e_1a7e);
}

#[test]
fn the_end_of_the_service_disconnects_a_client_and_takes_the_sockets_away() {
    let lab = Lab::new();
    let mut stream = lab.raw();
    assert_eq!(errno(&mut stream, &message(5, 0, &[])), 0);
    let (device, control) = (lab.served.device_socket.clone(), lab.served.control_socket.clone());
    let start = Instant::now();
    drop(lab);
    assert!(start.elapsed() < PATIENCE);
    assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0);
    assert!(!device.exists() && !control.exists());
}

#[test]
fn a_path_too_long_for_a_socket_is_refused_with_its_length() {
    let folder = tempfile::tempdir().unwrap();
    let err = Served::spawn(LatencyEndpoint::default(), folder.path(), &"x".repeat(108)).unwrap_err();
    assert!(matches!(err, Error::SocketPathLength { .. }), "{err}");
    assert!(err.to_string().contains("at most 107 bytes"), "{err}");
}

#[test]
fn the_control_socket_says_what_was_wrong() {
    let lab = Lab::new();
    let refusal = |command: &str| match ask(&lab.served.control_socket, command) {
        Err(Error::Refused { reason, .. }) => reason,
        other => panic!("{command}: {other:?}"),
    };
    assert!(refusal("read-delay fixed soon").contains("`soon` is not a time"));
    assert!(refusal("halt").starts_with("unknown command `halt`"));
    assert!(refusal("").starts_with("empty command"));
    assert!(refusal(&"x".repeat(5000)).contains("at most 4096 bytes"));
    let gone = ask(&lab.served.control_socket.with_extension("gone"), "ledger");
    assert!(matches!(gone, Err(Error::Socket { action: "reach", .. })));
    assert!(matches!(lab.served.ask("halt"), Err(Error::Refused { .. })));
}

#[test]
fn the_control_socket_answers_line_by_line() {
    let lab = Lab::new();
    let mut stream = UnixStream::connect(&lab.served.control_socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"reset\n\xff\xfe\nread-delay none").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    let answers: Vec<Value> = answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let refused = json!({"ok": false, "error": "a command is UTF-8 text"});
    assert_eq!(answers, [json!({"ok": true}), refused, json!({"ok": true})]);
}
