//! What a device does by itself, as the server has it done: on time, with the guest's memory, and out of the way of who
//! asks it something. Without QEMU; the client is that of the crate `vfio_user`.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pciescope_lab::Served;
use pciescope_lab::device::command::CommandError;
use pciescope_lab::device::config::{ConfigSpace, Identity};
use pciescope_lab::device::{Bus, Delivery, DeviceModel, Layout, Message, Wait};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use serde_json::Value;
use tempfile::TempDir;
use vfio_bindings::bindings::vfio::{VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD};
use vfio_user::Client;

const CONFIG: u32 = 7;
const MSI: u32 = 1;
const PATIENCE: Duration = Duration::from_secs(5);
/// Where the guest's memory lies for the device.
const MEMORY: u64 = 0x10_0000;

/// When it was called, and for when that was announced, in nanoseconds of its clock.
type Calls = Arc<Mutex<Vec<(u64, u64)>>>;

/// A timer: a write of n to offset 0 has it work n nanoseconds later, a read of offset 8 at once. Work is to add 1 to the
/// first byte of memory and to send message 0. After a write of offset 16 it works without end.
struct Timer {
    config: ConfigSpace,
    next: Option<u64>,
    is_endless: bool,
    is_merging: bool,
    calls: Calls,
    looks: Arc<AtomicU64>,
}

impl DeviceModel for Timer {
    fn layout(&self) -> Layout {
        Layout { bars: [0x1000, 0, 0, 0, 0, 0], msi: 1, ..Layout::default() }
    }
    fn config_read(&mut self, offset: u64, to: &mut [u8]) -> Wait {
        self.config.read(offset, to);
        0
    }
    fn config_write(&mut self, offset: u64, from: &[u8]) -> Wait {
        let _ = self.config.write(offset, from);
        0
    }
    fn bar_read(&mut self, now_ns: u64, _bar: u8, offset: u64, to: &mut [u8]) -> Wait {
        to.fill(0);
        if offset == 8 {
            self.next = Some(now_ns);
        }
        0
    }
    fn bar_write(&mut self, now_ns: u64, _bar: u8, offset: u64, from: &[u8], _bus: &mut dyn Bus) -> Wait {
        match offset {
            0 => self.next = Some(now_ns + u64::from_le_bytes(from.try_into().unwrap())),
            8 => self.next = None,
            16 => (self.is_endless, self.next) = (true, Some(0)),
            _ => {}
        }
        0
    }
    fn may_deliver(&mut self, _message: &Message) -> Delivery {
        Delivery::Now
    }
    fn delivered(&mut self, _message: &Message, _sent: bool) {}
    fn is_gone(&self) -> bool {
        false
    }
    fn intx(&self) -> bool {
        false
    }
    fn reset(&mut self) {
        self.next = None;
    }
    fn next_work(&self) -> Option<u64> {
        self.looks.fetch_add(1, SeqCst);
        self.next
    }
    fn merges_messages(&self) -> bool {
        self.is_merging
    }
    fn work(&mut self, now_ns: u64, bus: &mut dyn Bus) {
        if self.is_endless {
            self.calls.lock().unwrap().push((0, now_ns));
            // As a transfer without end would hold the device.
            let end = Instant::now() + Duration::from_millis(1);
            while Instant::now() < end {
                std::hint::spin_loop();
            }
            return;
        }
        let Some(due) = self.next.take_if(|due| *due <= now_ns) else { return };
        let mut byte = [0];
        if bus.read_memory(MEMORY, &mut byte).is_ok() {
            bus.write_memory(MEMORY, &[byte[0] + 1]).unwrap();
        }
        bus.send(Message { vector: 0, delay_ns: 0, is_copy: false });
        self.calls.lock().unwrap().push((due, now_ns));
    }
    fn command(&mut self, line: &str) -> Result<Value, CommandError> {
        if line == "now" {
            self.next = Some(0);
        }
        Ok(Value::Null)
    }
}

struct Lab {
    served: Served,
    calls: Calls,
    looks: Arc<AtomicU64>,
    _folder: TempDir,
}

impl Lab {
    fn new() -> Lab {
        Lab::with(false)
    }

    fn with(is_merging: bool) -> Lab {
        let identity =
            Identity { vendor: 1, device: 2, subsystem_vendor: 0, subsystem: 0, class: 0xff_0000, revision: 0 };
        let (calls, looks) = (Calls::default(), Arc::new(AtomicU64::new(0)));
        let config = ConfigSpace::new(&identity, false).with_bar64(0, 0x1000, false).with_msi(1);
        let timer =
            Timer { config, next: None, is_endless: false, is_merging, calls: calls.clone(), looks: looks.clone() };
        let folder = tempfile::tempdir().unwrap();
        Lab { served: Served::spawn(timer, folder.path(), "timer").unwrap(), calls, looks, _folder: folder }
    }

    fn guest(&self) -> Guest {
        let mut client = Client::new(&self.served.device_socket).unwrap();
        client.region_write(CONFIG, 4, &[6, 0]).unwrap();
        let fd = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
        client.set_irqs(MSI, flags, 0, 1, &[fd.as_raw_fd()]).unwrap();
        let mut memory = tempfile::tempfile().unwrap();
        memory.write_all(&[0; 0x1000]).unwrap();
        client.dma_map(0, MEMORY, 0x1000, memory.as_raw_fd()).unwrap();
        Guest { client, fd, memory }
    }

    fn calls(&self) -> Vec<(u64, u64)> {
        self.calls.lock().unwrap().clone()
    }
}

struct Guest {
    client: Client,
    fd: OwnedFd,
    memory: File,
}

impl Guest {
    fn set(&mut self, offset: u64, value: u64) {
        self.client.region_write(0, offset, &value.to_le_bytes()).unwrap();
    }

    /// Messages that came within `time`: returns at the first.
    fn taken(&self, time: Duration) -> u64 {
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&time)).unwrap();
        let mut count = [0; 8];
        rustix::io::read(&self.fd, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
    }

    fn first_byte(&mut self) -> u8 {
        let mut byte = [0];
        self.memory.seek(SeekFrom::Start(0)).unwrap();
        self.memory.read_exact(&mut byte).unwrap();
        byte[0]
    }
}

#[test]
fn work_is_done_when_it_is_due_with_memory_and_messages() {
    let lab = Lab::new();
    let mut guest = lab.guest();
    for delay_us in [0, 50, 3_000, 30_000] {
        guest.set(0, delay_us * 1_000);
        assert_eq!(guest.taken(PATIENCE), 1, "{delay_us} us");
    }
    assert_eq!(guest.first_byte(), 4, "memory was written before the message came");
    let calls = lab.calls();
    assert_eq!(calls.len(), 4);
    let mut late: Vec<_> = calls.iter().map(|(due, now)| now.checked_sub(*due).expect("never early")).collect();
    late.sort();
    assert!(late[0] < 5_000_000, "none was on time: {late:?} ns late");
}

#[test]
fn a_nearer_time_replaces_a_farther_one_and_none_takes_it_back() {
    let lab = Lab::new();
    let mut guest = lab.guest();
    guest.set(0, 60_000_000_000);
    guest.set(0, 1_000_000);
    assert_eq!(guest.taken(PATIENCE), 1);
    guest.set(0, 20_000_000);
    guest.set(8, 0);
    assert_eq!(guest.taken(Duration::from_millis(60)), 0);
    assert_eq!(lab.calls().len(), 1);
}

#[test]
fn reads_commands_and_resets_count_too() {
    let lab = Lab::new();
    let mut guest = lab.guest();
    guest.client.region_read(0, 8, &mut [0; 8]).unwrap();
    assert_eq!(guest.taken(PATIENCE), 1);
    lab.served.ask("now").unwrap();
    assert_eq!(guest.taken(PATIENCE), 1);
    guest.set(0, 20_000_000);
    guest.client.reset().unwrap();
    assert_eq!(guest.taken(Duration::from_millis(60)), 0);
}

#[test]
fn a_device_without_work_is_left_alone() {
    let lab = Lab::new();
    let mut guest = lab.guest();
    guest.client.region_read(0, 0, &mut [0; 4]).unwrap();
    let looks = lab.looks.load(SeqCst);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(lab.looks.load(SeqCst), looks, "nobody looks while nothing happens");
    assert!(lab.calls().is_empty());
}

#[test]
fn endless_work_lets_accesses_and_commands_through() {
    let lab = Lab::new();
    let mut guest = lab.guest();
    guest.set(16, 0);
    std::thread::sleep(Duration::from_millis(5));
    let start = Instant::now();
    for _ in 0..20 {
        guest.client.region_read(0, 0, &mut [0; 4]).unwrap();
        lab.served.ask("go on").unwrap();
        guest.set(24, 0);
    }
    let turns = lab.calls().len();
    assert!(turns >= 3, "it worked {turns} times meanwhile");
    // 60 turns of a millisecond if each had to wait for one; a machine that is busy is allowed much more.
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

#[test]
fn memory_that_was_taken_back_is_not_written() {
    let lab = Lab::new();
    let mut guest = lab.guest();
    guest.set(0, 0);
    assert_eq!(guest.taken(PATIENCE), 1);
    guest.client.dma_unmap(MEMORY, 0x1000).unwrap();
    guest.set(0, 0);
    assert_eq!(guest.taken(PATIENCE), 1);
    assert_eq!(guest.first_byte(), 1);
    drop(guest);
    // The next client's memory is its own.
    let mut next = lab.guest();
    next.set(0, 0);
    assert_eq!(next.taken(PATIENCE), 1);
    assert_eq!(next.first_byte(), 1);
}

#[test]
fn messages_that_merge_do_not_wait_for_the_one_before() {
    for is_merging in [true, false] {
        let lab = Lab::with(is_merging);
        let mut guest = lab.guest();
        let start = Instant::now();
        for call in 1..=3 {
            guest.set(0, 0);
            while lab.calls().len() < call {
                assert!(start.elapsed() < PATIENCE, "no work is done");
            }
        }
        // Answered after the last work and its message.
        guest.client.region_read(0, 0, &mut [0; 4]).unwrap();
        let came = guest.taken(Duration::ZERO);
        if is_merging {
            assert_eq!(came, 3, "all were sent at once");
        } else if start.elapsed() < Duration::from_millis(15) {
            // After 20 ms they still go out; this machine may have been busy for so long.
            assert_eq!(came, 1, "the others wait");
        }
    }
}
