//! The shim puts the counter board's registers where hardware has them, and takes them away again without a trace: drivers
//! that know nothing of the lab bind to them, on every guest kernel.

use std::collections::BTreeSet;

use crate::support::guest::Guest;
use crate::support::sanitize;
use crate::support::{Endpoint, PATIENCE};
use pciescope_core::Bdf;
use pciescope_lab::device::command::CommandError;
use pciescope_lab::device::traffic::Traffic;
use pciescope_lab::device::{Bus, CounterBoard, Delivery, DeviceModel as Model, Layout, Message, Wait};
use pciescope_lab::vm::{Attachment, GuestDevice, Kernel, Vm, seed_machine};
use serde_json::Value;

const CONFIG_BYTES: usize = 4096;
const EXTENDED: usize = 0x100;
/// Vendor-specific extended capability; the RAS D.E.S. block's is ID 2, revision 4.
const CAP_VSEC: u32 = 0x000b;
const RASDES: u32 = 0x4_0002;
/// EVENT_COUNTER_CONTROL in the block, and the upper half that holds the selected event.
const CONTROL: usize = 0x8;
/// A port of the seed that has a device behind it.
const PORT: &str = "0000:10:03.0";

fn boot(kernel: Kernel, boards: &[&Endpoint]) -> Guest {
    let behind = PORT.parse().unwrap();
    let mut builder =
        Vm::builder().kernel(kernel).seed_machine().device("edu0", GuestDevice::Edu, Attachment::Port(behind));
    for board in boards {
        builder = builder.served(board.name, &board.served, Attachment::RootBus);
    }
    Guest::boot(builder)
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).collect()
}

fn ports() -> Vec<String> {
    let mut ports: Vec<String> = seed_machine().iter().map(|port| port.address.to_string()).collect();
    ports.sort();
    ports
}

/// Configuration space of a function.
#[derive(Clone, PartialEq, Eq)]
struct Config(Vec<u8>);

impl Config {
    fn dword(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().unwrap())
    }

    /// The extended capabilities, as (place, header).
    fn extended(&self) -> Vec<(usize, u32)> {
        let mut chain: Vec<(usize, u32)> = Vec::new();
        let mut at = EXTENDED;
        while at >= EXTENDED {
            assert!(chain.len() < 100, "the list of extended capabilities has no end");
            let header = self.dword(at);
            chain.push((at, header));
            at = (header >> 20) as usize & !3;
        }
        chain
    }

    /// Where the RAS D.E.S. block lies.
    fn rasdes(&self) -> Option<usize> {
        let is_block =
            |(at, header): &(usize, u32)| header & 0xffff == CAP_VSEC && self.dword(at + 4) & 0xf_ffff == RASDES;
        self.extended().iter().find(|capability| is_block(capability)).map(|(at, _)| *at)
    }
}

/// Configuration space of all root ports, read through sysfs.
fn configs(vm: &Guest) -> Vec<Config> {
    let files: Vec<String> = ports().iter().map(|port| format!("/sys/bus/pci/devices/{port}/config")).collect();
    vm.must(&format!("cat {} >/tmp/configs", files.join(" ")));
    let bytes = vm.pull_file("/tmp/configs").unwrap();
    assert_eq!(bytes.len(), CONFIG_BYTES * files.len(), "a port without extended configuration space");
    bytes.chunks(CONFIG_BYTES).map(|chunk| Config(chunk.to_vec())).collect()
}

/// What the machine shows of its functions, memory and interrupts.
fn sight(vm: &Guest) -> String {
    let folders = "/sys/bus/platform/devices /sys/bus/event_source/devices";
    vm.must(&format!("lspci -Dnn; cat /proc/iomem; ls {folders}; wc -l </proc/interrupts"))
}

/// Boots the seed's machine with one board and no module, and tries the shim in it.
pub fn the_boards_registers_stand_where_hardware_has_them_and_leave_no_trace(kernel: Kernel) -> (Guest, Endpoint) {
    let board = Endpoint::serve(CounterBoard::seed_machine(Traffic::new()), "board");
    let vm = boot(kernel, &[&board]);
    let address = vm.address("board");
    let (before, seen) = (configs(&vm), sight(&vm));
    assert!(before.iter().all(|config| config.rasdes().is_none()), "QEMU's ports have the block already");

    vm.must("modprobe pciescope_lab");
    root_ports_have_the_block(&vm, &before);
    accesses_keep_their_width(&vm);
    platform_devices_have_their_resources(&vm);
    the_foreign_source_is_handled(&vm, &board);
    in_tree_drivers_bind(&vm, kernel);
    vm.must("rmmod pciescope_lab");
    all_is_as_before(&vm, &before, &seen);

    vm.must("modprobe pciescope_lab");
    // On the other kernels the suites of both PMUs take ports away and bring them back.
    if kernel == Kernel::V6_12 {
        a_port_that_is_scanned_again_has_its_overlay(&vm, &address);
    }
    the_board_may_go_and_come_back(&vm, &address, &seen);
    vm.must("rmmod pciescope_lab");
    assert_eq!(ids(&vm), "0x1b36:0x000c");
    if kernel == Kernel::V6_12 {
        loading_does_not_disturb_readers(&vm);
    }
    vm.check_log();
    (vm, board)
}

/// The IDs in sysfs that the root ports have; several where they differ.
fn ids(vm: &Guest) -> String {
    let paths: Vec<String> = ports().iter().map(|port| format!("/sys/bus/pci/devices/{port}")).collect();
    vm.must(&format!("for d in {}; do echo $(cat $d/vendor):$(cat $d/device); done | sort -u", paths.join(" ")))
}

fn root_ports_have_the_block(vm: &Guest, before: &[Config]) {
    assert_eq!(lines(&vm.must("lspci -Dn -d 1ded:8000 | cut -d' ' -f1")), ports());
    assert_eq!(ids(vm), "0x1ded:0x8000");
    let events = vm.must(&format!("cat /sys/bus/pci/devices/{PORT}/uevent"));
    assert!(events.contains("PCI_ID=1DED:8000"), "{events}");
    let shown = vm.must("lspci -vv -d 1ded:8000");
    assert_eq!(shown.matches("Vendor Specific Information: ID=0002 Rev=4 Len=100").count(), 18, "{shown}");
    for ((port, before), now) in ports().iter().zip(before).zip(configs(vm)) {
        assert!(now.rasdes().is_some(), "{port}");
        // QEMU's own capabilities are all there, in their order, and only the last one's link differs.
        let (own, chain) = (before.extended(), now.extended());
        let (link, _) = *own.last().unwrap();
        assert!(chain.len() > own.len(), "{port}");
        let first = chain[own.len()].0;
        assert_eq!(
            chain[..own.len()].iter().map(|(at, _)| *at).collect::<Vec<_>>(),
            own.iter().map(|(at, _)| *at).collect::<Vec<_>>()
        );
        let changed: BTreeSet<usize> = (0..first).step_by(4).filter(|at| now.dword(*at) != before.dword(*at)).collect();
        assert_eq!(changed, BTreeSet::from([0, link]), "{port}");
        assert_eq!(now.dword(link) & 0xf_ffff, before.dword(link) & 0xf_ffff, "{port}");
    }
}

fn accesses_keep_their_width(vm: &Guest) {
    let at = configs(vm)[0].rasdes().unwrap();
    // Reads of every width see the same bytes, of the overlay, of the link and of the IDs.
    let link = vm.must(&format!("setpci -s {PORT} 148.l 14a.w 14b.b"));
    let [dword, word, byte] = lines(&link)[..] else { panic!("{link}") };
    assert_eq!((word, byte), (&dword[..4], &dword[..2]));
    let read = vm.must(&format!("setpci -s {PORT} 0.l 0.w 2.w 1.b 3.b {at:x}.l {at:x}.w {:x}.b", at + 1));
    let expected = ["80001ded", "1ded", "8000", "1d", "80"];
    assert_eq!(lines(&read)[..5], expected);
    let header: Vec<&str> = lines(&read)[5..].to_vec();
    assert_eq!((header[1], header[2]), (&header[0][4..], &header[0][4..6]));
    // A write of one width reaches its bytes alone, and this port alone: it selects event 0x502, and lane 3.
    vm.must(&format!("setpci -s {PORT} {:x}.w=0502 {:x}.b=03", at + CONTROL + 2, at + CONTROL + 1));
    let control = |port: &str| vm.must(&format!("setpci -s {port} {:x}.l", at + CONTROL));
    assert_eq!(control(PORT), "05020300");
    assert_eq!(control("0000:10:02.0"), "00000000");
    vm.must(&format!("setpci -s {PORT} {:x}.l=0", at + CONTROL));
}

fn platform_devices_have_their_resources(vm: &Guest) {
    let devices = "/sys/bus/platform/devices/ali_drw_pmu.*";
    assert_eq!(vm.must(&format!("ls -d {devices} | wc -l")), "16");
    let nodes = vm.must(&format!("cat {devices}/numa_node | sort | uniq -c"));
    assert_eq!(nodes.split_whitespace().collect::<Vec<_>>(), ["8", "0", "8", "1"], "8 on each die");
    let windows = vm.must("grep -c ' : ali_drw_pmu' /proc/iomem");
    assert_eq!(windows, "16");
    // Each of the 8 lines has a vector of its own.
    assert_eq!(vm.must("grep -c pciescope_lab /proc/interrupts"), "8");
}

fn the_foreign_source_is_handled(vm: &Guest, board: &Endpoint) {
    let handled = "/sys/module/pciescope_lab/parameters/foreign_handled";
    let fired = "grep pciescope_lab /proc/interrupts | awk '{ n = 0; for (i = 2; i <= 5; i++) n += $i; print n }'";
    assert_eq!(vm.must(&format!("cat {handled}")), "0");
    for (count, line) in [(1, 0), (2, 7), (3, 7)] {
        board.tell(&format!("foreign {line}"));
        vm.must(&format!("for i in $(seq 100); do [ $(cat {handled}) = {count} ] && exit; sleep 0.1; done; exit 1"));
    }
    assert_eq!(lines(&vm.must(fired)), ["1", "0", "0", "0", "0", "0", "0", "2"]);
    let ledger = board.ledger();
    let messages: Vec<_> =
        ledger["lines"].as_array().unwrap().iter().map(|line| line["messages"].as_u64().unwrap()).collect();
    assert_eq!(messages, [1, 0, 0, 0, 0, 0, 0, 2]);
}

/// The drivers of the kernel's own sources, built without a change.
fn in_tree_drivers_bind(vm: &Guest, kernel: Kernel) {
    if !has_in_tree_drivers(kernel) {
        return;
    }
    vm.must("modprobe dwc_pcie_pmu && modprobe alibaba_uncore_drw_pmu");
    let pmus = vm.must("ls /sys/bus/event_source/devices");
    let with = |prefix: &str| -> BTreeSet<String> {
        lines(&pmus).into_iter().filter(|pmu| pmu.starts_with(prefix)).map(str::to_owned).collect()
    };
    let name = |port: &String| {
        let bdf: Bdf = port.parse().unwrap();
        format!("dwc_rootport_{:x}", u32::from(bdf.bus) << 8 | u32::from(bdf.devfn()))
    };
    assert_eq!(with("dwc_rootport_"), ports().iter().map(name).collect());
    assert_eq!(with("ali_drw_").len(), 16, "{pmus}");
    let bound = vm.must("ls -d /sys/bus/platform/drivers/ali_drw_pmu/ali_drw_pmu.* | wc -l");
    assert_eq!(bound, "16");
    vm.must("rmmod alibaba_uncore_drw_pmu && rmmod dwc_pcie_pmu");
}

/// Whether the kernel's own drivers of both PMUs can be loaded. 6.1 has none for root ports, and its sources are not
/// kept. A kernel that looks for faults reports both: `ali_drw_pmu_probe` calls `smp_processor_id()` where it can be
/// preempted, `dwc_pcie_pmu_event_init` walks siblings without the lock that the list asks for.
pub fn has_in_tree_drivers(kernel: Kernel) -> bool {
    !matches!(kernel, Kernel::V5_10 | Kernel::V6_1 | Kernel::V6_12Pages16k) && !sanitize::has_kasan()
}

fn all_is_as_before(vm: &Guest, before: &[Config], seen: &str) {
    for ((port, before), now) in ports().iter().zip(before).zip(configs(vm)) {
        let changed: Vec<_> = (0..CONFIG_BYTES).filter(|at| before.0[*at] != now.0[*at]).collect();
        assert!(changed.is_empty(), "{port}: bytes {changed:x?} differ");
    }
    assert_eq!(sight(vm), seen);
}

fn a_port_that_is_scanned_again_has_its_overlay(vm: &Guest, board: &str) {
    // Meanwhile a driver that follows its ports' comings and goings.
    let edu = vm.address("edu0");
    vm.must(&format!("echo 1 >/sys/bus/pci/devices/{PORT}/remove"));
    assert_eq!(vm.must("lspci -Dn -d 1ded:8000 | wc -l"), "17");
    vm.must(&format!("[ ! -e /sys/bus/pci/devices/{edu} ]"));
    vm.must("echo 1 >/sys/bus/pci/rescan");
    assert_eq!(ids(vm), "0x1ded:0x8000");
    assert!(configs(vm).iter().all(|config| config.rasdes().is_some()));
    vm.must(&format!("[ -e /sys/bus/pci/devices/{edu} ]"));
    // A port that is not there when the shim comes.
    vm.must(&format!("echo 1 >/sys/bus/pci/devices/{PORT}/remove; rmmod pciescope_lab; modprobe pciescope_lab"));
    assert_eq!(vm.must("lspci -Dn -d 1ded:8000 | wc -l"), "17");
    vm.must("echo 1 >/sys/bus/pci/rescan");
    assert_eq!(ids(vm), "0x1ded:0x8000");
    assert!(configs(vm).iter().all(|config| config.rasdes().is_some()));
    // One that is not there when the shim goes.
    vm.must(&format!("echo 1 >/sys/bus/pci/devices/{PORT}/remove; rmmod pciescope_lab; echo 1 >/sys/bus/pci/rescan"));
    assert_eq!(ids(vm), "0x1b36:0x000c");
    assert!(configs(vm).iter().all(|config| config.rasdes().is_none()));
    vm.must(&format!("modprobe pciescope_lab && [ -e /sys/bus/pci/devices/{board}/driver ]"));
}

fn the_board_may_go_and_come_back(vm: &Guest, board: &str, seen: &str) {
    vm.must(&format!("echo 1 >/sys/bus/pci/devices/{board}/remove"));
    assert_eq!(ids(vm), "0x1b36:0x000c");
    assert!(configs(vm).iter().all(|config| config.rasdes().is_none()));
    assert!(!vm.must("ls /sys/bus/platform/devices").contains("ali_drw"));
    vm.must("echo 1 >/sys/bus/pci/rescan");
    assert_eq!(ids(vm), "0x1ded:0x8000");
    assert!(!seen.contains("ali_drw"));
    platform_devices_have_their_resources(vm);
}

/// Configuration space is read all the time while the shim comes and goes.
fn loading_does_not_disturb_readers(vm: &Guest) {
    let reader = "while [ ! -e /tmp/enough ]; do cat /sys/bus/pci/devices/0000:[1389]0:*/config >/dev/null || touch /tmp/failed; done";
    let rounds = "for i in 1 2 3; do modprobe pciescope_lab && rmmod pciescope_lab || exit; done";
    let script = format!(
        "for i in 1 2; do ({reader}) & done; {rounds}; s=$?; touch /tmp/enough; wait; [ ! -e /tmp/failed ] && exit $s"
    );
    let output = vm.run_within(&script, PATIENCE);
    assert!(output.is_success(), "{output:?}");
    assert_eq!(ids(vm), "0x1b36:0x000c");
}

/// Dwords of BAR 0 that are not what the model would say, by their offsets.
type Lies = &'static [(u64, u32)];

/// A board that says something else than the model would, and keeps what was read of its configuration pages.
struct Lying {
    board: CounterBoard,
    lies: Lies,
    is_gone: bool,
    /// Offset in the page, and bytes.
    reads: Vec<(u64, usize)>,
}

impl Lying {
    fn serve(name: &'static str, lies: Lies) -> Endpoint {
        Endpoint::serve(
            Lying { board: CounterBoard::seed_machine(Traffic::new()), lies, is_gone: false, reads: Vec::new() },
            name,
        )
    }
}

impl Model for Lying {
    fn layout(&self) -> Layout {
        self.board.layout()
    }

    fn config_read(&mut self, offset: u64, to: &mut [u8]) -> Wait {
        self.board.config_read(offset, to)
    }

    fn config_write(&mut self, offset: u64, from: &[u8]) -> Wait {
        self.board.config_write(offset, from)
    }

    fn bar_read(&mut self, now_ns: u64, bar: u8, offset: u64, to: &mut [u8]) -> Wait {
        self.board.bar_read(now_ns, bar, offset, to);
        if let Some((_, lie)) = self.lies.iter().find(|(at, _)| bar == 0 && *at == offset && to.len() == 4) {
            to.copy_from_slice(&lie.to_le_bytes());
        }
        if bar == 0 && offset >= 0x1000 {
            self.reads.push((offset % 0x1000, to.len()));
        }
        if self.is_gone {
            to.fill(0xff);
        }
        0
    }

    fn bar_write(&mut self, now_ns: u64, bar: u8, offset: u64, from: &[u8], bus: &mut dyn Bus) -> Wait {
        self.board.bar_write(now_ns, bar, offset, from, bus)
    }

    fn may_deliver(&mut self, message: &Message) -> Delivery {
        self.board.may_deliver(message)
    }

    fn delivered(&mut self, message: &Message, sent: bool) {
        self.board.delivered(message, sent);
    }

    fn is_gone(&self) -> bool {
        false
    }

    fn intx(&self) -> bool {
        false
    }

    fn reset(&mut self) {
        self.board.reset();
    }

    fn next_work(&self) -> Option<u64> {
        self.board.next_work()
    }

    fn work(&mut self, now_ns: u64, bus: &mut dyn Bus) {
        self.board.work(now_ns, bus);
    }

    fn command(&mut self, line: &str) -> Result<Value, CommandError> {
        if line == "gone" {
            self.is_gone = true;
            return Ok(Value::Null);
        }
        if line == "reads" {
            return Ok(serde_json::json!(std::mem::take(&mut self.reads)));
        }
        self.board.command(line)
    }
}

/// Boards that the shim must not believe, and what it says of each.
const LIARS: [(&str, Lies, &str); 11] = [
    ("all-ones", &[(0x0, !0), (0x4, !0), (0x8, !0), (0xc, !0), (0x10, !0)], "not a counter board"),
    ("version", &[(0x4, 2)], "version 2: not a counter board of version 1"),
    ("functions", &[(0x8, 49)], "49 functions"),
    ("sub-channels", &[(0xc, 33)], "33 sub-channels"),
    ("lines", &[(0x10, 17)], "17 lines"),
    ("header", &[(0x108, 0x40)], "function 0: overlay at 0x40"),
    ("odd", &[(0x108, 0x201)], "function 0: overlay at 0x201"),
    ("twins", &[(0x110, 0x20), (0x100, 0x20)], "functions 0 and 1 have one address"),
    ("line", &[(0x80c, 8)], "sub-channel 0: line 8 of 8"),
    ("window", &[(0x808, 0x4_0000)], "sub-channel 0: window at 0x40000"),
    ("unaligned", &[(0x828, 0x800)], "sub-channel 1: window at 0x800"),
];

pub fn a_board_that_makes_no_sense_is_refused_and_one_that_is_gone_does_no_harm() {
    let liars: Vec<Endpoint> = LIARS.iter().map(|(name, lies, _)| Lying::serve(name, lies)).collect();
    // Absent functions, an overlay that begins where extended space does, and dies that the machine has not got.
    let odd =
        Lying::serve("odd-but-sound", &[(0x100, 0x5500), (0x108, 0x100), (0x118, 0x100), (0x810, 900), (0x830, !0)]);
    let second = Lying::serve("second", &[]);
    let boards: Vec<&Endpoint> = liars.iter().chain([&odd, &second]).collect();
    let vm = boot(Kernel::V6_12, &boards);
    let before = configs(&vm);

    vm.must("modprobe pciescope_lab");
    let log = vm.must("dmesg");
    let refusals = LIARS.iter().map(|(name, _, said)| (*name, *said)).chain([("second", "another board has overlays")]);
    for (name, said) in refusals {
        let address = vm.address(name);
        let is_said = log.lines().any(|line| line.contains(&format!("{address}: ")) && line.contains(said));
        assert!(is_said, "{name}: nothing like \"{said}\" was said of {address}:\n{log}");
    }
    let bound = vm.must("cd /sys/bus/pci/drivers/pciescope_lab && ls -d 0000:*");
    assert_eq!(bound, vm.address("odd-but-sound"));
    let nodes = vm.must("cat /sys/bus/platform/devices/ali_drw_pmu.*/numa_node | sort | uniq -c");
    // sysfs shows no node where there is none.
    assert_eq!(nodes.split_whitespace().collect::<Vec<_>>(), ["6", "0", "8", "1"]);
    assert_eq!(vm.must("lspci -Dn -d 1ded:8000 | wc -l"), "17", "a function that is not there did not come to life");

    odd.tell("reads");
    vm.must("setpci -s 00:03.0 301.b 302.w 304.l");
    assert_eq!(odd.tell("reads"), serde_json::json!([[0x301, 1], [0x302, 2], [0x304, 4]]), "widths are kept");

    // The board is gone, its driver does not know yet: a line that fires finds all-ones and nobody to handle it.
    odd.tell("gone");
    odd.tell("foreign 0");
    vm.must("sleep 0.2");
    assert_eq!(vm.must("cat /sys/module/pciescope_lab/parameters/foreign_handled"), "0");
    let gone = configs(&vm);
    assert!(gone.iter().filter(|config| config.dword(0x200) == !0).count() == 17);
    vm.must("lspci -vvv >/dev/null; rmmod pciescope_lab");
    for ((port, before), now) in ports().iter().zip(&before).zip(configs(&vm)) {
        assert!(*before == now, "{port} is not what it was");
    }
    vm.finish(&[]);
}
