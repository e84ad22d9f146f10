//! Kernel accounting against the device's side, through `pciescope stat`: of a disk with a ledger, of QEMU's NVMe drive and of a
//! network card whose other end this test is. Block I/O without cache is equal to the byte; nothing is ever more.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pciescope_core::{Metric, Record};
use pciescope_lab::Served;
use pciescope_lab::device::NvmeDisk;
use pciescope_lab::device::config::Link;
use pciescope_lab::device::nvme::Fill;
use pciescope_lab::device::traffic::Traffic;
use pciescope_lab::vm::{Attachment, GuestDevice, Kernel, Output, Vm};
use serde_json::{Value, json};

use crate::say;
use crate::support::guest::Guest;
use crate::support::{PATIENCE, program, records};

const MIB: u64 = 1 << 20;
const LEDGER_PORT: &str = "0000:00:02.0";

/// The other end of the guest's network card: it counts every frame that comes and sends what it is told to.
struct Peer {
    socket: UnixDatagram,
    received: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Peer {
    /// QEMU sends each frame as a datagram to `here`, and takes those that come to `qemu`.
    fn new(here: &Path, qemu: &Path) -> Peer {
        let socket = UnixDatagram::bind(here).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let (received, ends) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (reader, counted, stops) = (socket.try_clone().unwrap(), Arc::clone(&received), Arc::clone(&ends));
        let thread = thread::spawn(move || {
            let mut frame = [0; 65536];
            while !stops.load(Ordering::Relaxed) {
                if let Ok(bytes) = reader.recv(&mut frame) {
                    counted.fetch_add(bytes as u64, Ordering::Relaxed);
                }
            }
        });
        // QEMU binds its end when it starts.
        let peer = Peer { socket, received, ends, thread: Some(thread) };
        assert!(!qemu.exists(), "{} is QEMU's to make", qemu.display());
        peer
    }

    /// Bytes of the frames that came.
    fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Sends broadcast frames of a protocol that nobody answers, and gives their bytes.
    fn send(&self, qemu: &Path, frames: u64, bytes: usize) -> u64 {
        let mut frame = vec![0x5a; bytes];
        frame[..6].fill(0xff);
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
        // Local experimental EtherType 1 (IEEE 802).
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        for _ in 0..frames {
            self.socket.send_to(&frame, qemu).unwrap();
            // The card has few descriptors, and the guest is slow.
            thread::sleep(Duration::from_millis(2));
        }
        frames * bytes as u64
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What one `pciescope stat` said.
struct Counted(Vec<Record>);

impl Counted {
    /// What was written, of a run that ended well.
    fn of_output(vm: &Guest, output: &Output) -> Counted {
        assert_eq!(output.status, 0, "{}\n{}", output.stdout, output.stderr);
        let counted = Counted(records::parse(&vm.read("/tmp/stat.jsonl")));
        for record in counted.0.iter().filter(|record| record.instance.is_some()) {
            assert_eq!(record.instance.as_ref().unwrap().source.as_deref(), Some("kernel accounting"), "{record:?}");
            assert!(record.error.is_none(), "{record:?}");
        }
        counted
    }

    fn of(&self, bdf: &str) -> &Record {
        let is_it = |record: &&Record| {
            record.instance.as_ref().is_some_and(|instance| instance.pmu.as_deref() == Some(&format!("kernel_{bdf}")))
        };
        self.0.iter().find(is_it).unwrap_or_else(|| panic!("no account of {bdf} in {:?}", self.0))
    }

    fn metric(&self, bdf: &str, name: &str) -> &Metric {
        self.of(bdf).metrics.get(name).unwrap_or_else(|| panic!("{bdf} has no {name}: {:?}", self.of(bdf)))
    }

    /// Rx and Tx of a function.
    fn bytes(&self, bdf: &str) -> (u64, u64) {
        let bytes = |name: &str| {
            let metric = self.metric(bdf, name);
            assert!(metric.at_least, "{bdf}: {name} is not said to be a lower bound");
            metric.value as u64
        };
        (bytes("rx_bytes"), bytes("tx_bytes"))
    }
}

/// The command that counts while a script runs in the guest.
fn command(options: &str, script: &str) -> String {
    format!(
        "cat >/tmp/load.sh <<'END'\n{script}\nEND\n\
         pciescope stat {options} -j -o /tmp/stat.jsonl --overwrite -- sh -e /tmp/load.sh"
    )
}

/// Counts while a script runs in the guest.
fn stat(vm: &Guest, options: &str, script: &str) -> Counted {
    Counted::of_output(vm, &vm.run_within(&command(options, script), PATIENCE))
}

fn fio(node: &str, options: &str) -> String {
    format!("fio --name=t --filename={node} --ioengine=libaio --direct=1 {options} >/dev/null")
}

/// A field of the disk's ledger.
fn ledger(disk: &Served, field: &str) -> u64 {
    let ledger = disk.ask("ledger").unwrap();
    ledger.pointer(&format!("/{field}")).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {field} in {ledger}"))
}

/// Payload that the ledger's disk read and wrote.
fn moved(disk: &Served) -> (u64, u64) {
    (ledger(disk, "data_read_bytes"), ledger(disk, "data_written_bytes"))
}

/// What QEMU's drive read and wrote, as QEMU counts it.
fn drive(vm: &Guest) -> (u64, u64) {
    let all = vm.qmp("query-blockstats", json!({})).unwrap();
    let own = all.as_array().unwrap().iter().find(|one| one["device"] == "drive-nvme0");
    let stats = &own.unwrap_or_else(|| panic!("no drive-nvme0 in {all}"))["stats"];
    (stats["rd_bytes"].as_u64().unwrap(), stats["wr_bytes"].as_u64().unwrap())
}

fn since(now: (u64, u64), before: (u64, u64)) -> (u64, u64) {
    (now.0 - before.0, now.1 - before.1)
}

/// Where a function's namespace is: `/dev/nvme0n1`.
fn node(vm: &Guest, bdf: &str) -> String {
    let path = vm.must(&format!("until ls -d /sys/bus/pci/devices/{bdf}/nvme/nvme*/nvme*n1; do sleep 0.1; done"));
    format!("/dev/{}", path.rsplit('/').next().unwrap())
}

pub fn what_the_kernel_counted_is_what_the_devices_moved() {
    let folder = tempfile::tempdir().unwrap();
    let traffic = Traffic::new();
    let disk = NvmeDisk::new(&Link::default(), traffic.port(LEDGER_PORT.parse().unwrap()));
    let disk = disk.with_capacity(1 << 30).with_fill(Fill::Pattern(7)).with_serial(0);
    let disk = Served::spawn(disk, folder.path(), "disk0").unwrap();
    let (here, qemu) = (folder.path().join("here"), folder.path().join("qemu"));
    let peer = Peer::new(&here, &qemu);
    let net = format!(
        "dgram,id=peer,local.type=unix,local.path={},remote.type=unix,remote.path={}",
        qemu.display(),
        here.display()
    );
    let card = GuestDevice::Other("igb,romfile=,netdev=peer,mac=02:00:00:00:00:01".to_owned());
    let builder = Vm::builder().kernel(Kernel::V6_12).module("nvme").module("igb").program(program());
    let builder =
        builder.served("disk0", &disk, Attachment::RootPort).device("nvme0", GuestDevice::Nvme, Attachment::RootPort);
    let vm = Guest::boot(builder.device("igb0", card, Attachment::RootPort).qemu_args(["-netdev", &net]));
    let [own, other, card] = ["disk0", "nvme0", "igb0"].map(|name| vm.address(name));
    let (own_node, other_node) = (node(&vm, &own), node(&vm, &other));
    let list = vm.must("pciescope stat --list");
    for (bdf, device) in [(&own, &own_node), (&other, &other_node)] {
        let device = device.trim_start_matches("/dev/");
        assert!(list.lines().any(|line| line.starts_with(bdf.as_str()) && line.contains(device)), "{list}");
    }

    blocks_are_equal_to_the_byte(&vm, &disk, (&own, &own_node), (&other, &other_node));
    zeros_are_the_exception_that_the_manual_names(&vm, &disk, (&own, &own_node));
    frames_are_never_more(&vm, &peer, &qemu, &card);
    removal_ends_the_account_of_a_function_alone(&vm, &own, &other);
    vm.finish(&[]);
}

/// Direct I/O of many sizes on two disks at once.
fn blocks_are_equal_to_the_byte(vm: &Guest, disk: &Served, own: (&str, &str), other: (&str, &str)) {
    let load = [
        fio(own.1, "--rw=randrw --bsrange=512-256k --size=64m --iodepth=16 --blockalign=512"),
        fio(other.1, "--rw=randrw --bs=4k --size=8m --iodepth=4"),
        fio(own.1, "--rw=read --bs=1m --size=48m --iodepth=8"),
    ]
    .join("\n");
    let before = (moved(disk), drive(vm));
    let counted = stat(vm, "", &load);
    let truth = (since(moved(disk), before.0), since(drive(vm), before.1));
    say!("ledger {:?}, QEMU {:?}, accounts {:?} {:?}", truth.0, truth.1, counted.bytes(own.0), counted.bytes(other.0));
    assert!(truth.0.0 > 48 * MIB && truth.0.1 > MIB && truth.1.0 > MIB && truth.1.1 > MIB, "{truth:?}");
    assert_eq!(counted.bytes(own.0), truth.0, "the disk with the ledger");
    assert_eq!(counted.bytes(other.0), truth.1, "QEMU's drive");
    // A root port has the sum of what is below it.
    for (bdf, truth) in [(own.0, truth.0), (other.0, truth.1)] {
        let record = counted.of(bdf);
        let port = record.device.as_ref().unwrap().path[0].to_string();
        assert_eq!(counted.bytes(&port), truth, "the port {port}");
        assert_eq!(counted.of(&port).instance.as_ref().unwrap().scope, "port");
        let share = counted.metric(&port, "rx_link_share").value;
        let ceiling = counted.metric(&port, "link_bytes_per_s").value;
        let rate = counted.metric(&port, "rx_bytes_per_s").value;
        assert!((share - 100.0 * rate / ceiling).abs() < 1e-9 && share > 0.0, "{share} % of {ceiling} for {rate}");
        assert!(counted.metric(bdf, "interrupts").value > 0.0, "{bdf} raised no interrupt");
    }
    // By intervals: the sum of all is the same.
    let before = moved(disk);
    let counted = stat(vm, "-I 50 --source kernel", &fio(own.1, "--rw=randwrite --bs=64k --size=32m --iodepth=8"));
    let sum: f64 = counted
        .0
        .iter()
        .filter(|record| {
            record.instance.as_ref().is_some_and(|one| one.pmu.as_deref() == Some(&format!("kernel_{}", own.0)))
        })
        .map(|record| record.metrics["tx_bytes"].value)
        .sum();
    assert_eq!((0, sum as u64), since(moved(disk), before), "the sum of the intervals");
}

/// The kernel counts zeros that a disk writes by itself as written (docs/accounting.md).
fn zeros_are_the_exception_that_the_manual_names(vm: &Guest, disk: &Served, own: (&str, &str)) {
    let before = moved(disk);
    let zeros = format!("fallocate --zero-range --offset {MIB} --length {MIB} {}", own.1);
    let counted = stat(vm, "", &zeros);
    assert_eq!(since(moved(disk), before).1, 0, "the disk was sent no data");
    assert_eq!(counted.bytes(own.0).1, MIB, "the kernel counts what was zeroed");
}

/// Frames that the guest sends and gets, headers included, by the side of the wire.
fn frames_are_never_more(vm: &Guest, peer: &Peer, qemu: &Path, card: &str) {
    let interface = vm.must(&format!("ls /sys/bus/pci/devices/{card}/net"));
    vm.must(&format!(
        "echo 1 >/proc/sys/net/ipv6/conf/{interface}/disable_ipv6 2>/dev/null || true; ip link set {interface} up; \
         ip addr add 10.9.0.1/24 dev {interface}; arp -i {interface} -s 10.9.0.2 02:00:00:00:00:09; \
         until [ \"$(cat /sys/class/net/{interface}/carrier)\" = 1 ]; do sleep 0.1; done"
    ));
    let (frames, bytes) = (400, 1000);
    let before = peer.received();
    // What is sent before stat counts is not in its figure: the guest says when it does.
    let load = "touch /tmp/counts; ping -c 100 -i 0.01 -s 1000 10.9.0.2 >/dev/null || true; \
                until [ -e /tmp/enough ]; do sleep 0.1; done; sleep 0.5";
    vm.must("rm -f /tmp/counts /tmp/enough");
    let running = vm.start(&command("--source kernel", load));
    vm.wait_until("stat counts", "test -e /tmp/counts");
    let went = peer.send(qemu, frames, bytes);
    vm.must("touch /tmp/enough");
    let counted = Counted::of_output(vm, &running.wait_within(PATIENCE).unwrap());
    let (rx, tx) = counted.bytes(card);
    let came = peer.received() - before;
    say!("the wire had {went} to the guest and {came} from it; accounts {rx} and {tx}");
    assert!(rx <= went, "more is counted than was sent to it: {rx} of {went}");
    assert!(tx <= came, "more is counted than came from it: {tx} of {came}");
    // igb counts frames without their Ethernet header. A frame may be lost between the two ends; not one in ten.
    let least = (frames * (bytes as u64 - 14)) * 9 / 10;
    assert!(rx >= least, "{rx} of {went}");
    assert!(tx >= 100 * 1028 * 9 / 10, "{tx} of {came}");
}

/// A disk that is pulled out while `stat` counts ends its own record with an error; the others count on.
fn removal_ends_the_account_of_a_function_alone(vm: &Guest, own: &str, other: &str) {
    let running = vm.start(
        "exec pciescope stat --source kernel -I 100 --duration 8s -j -o /tmp/gone.jsonl --overwrite >/dev/null 2>&1",
    );
    vm.wait_until("stat counts", "test -s /tmp/gone.jsonl && [ $(wc -l </tmp/gone.jsonl) -gt 10 ]");
    vm.unplug("nvme0").unwrap();
    let output = running.wait_within(PATIENCE).unwrap();
    assert_eq!(output.status, 2, "a function went away: {}", output.stderr);
    let all = records::parse(&vm.read("/tmp/gone.jsonl"));
    let of = |bdf: &str| -> Vec<&Record> {
        let name = format!("kernel_{bdf}");
        all.iter()
            .filter(|record| record.instance.as_ref().is_some_and(|one| one.pmu.as_deref() == Some(&name)))
            .collect()
    };
    let (gone, stays) = (of(other), of(own));
    assert_eq!(gone.last().unwrap().error.as_ref().map(|error| error.code.as_str()), Some("removed"), "{gone:?}");
    assert!(stays.iter().all(|record| record.error.is_none()));
    assert!(stays.last().unwrap().interval.unwrap().end_ns > gone.last().unwrap().interval.unwrap().end_ns);
}
