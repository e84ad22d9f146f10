//! Accounts of a made machine: files as the kernel shows them, changed between readings.

use std::fs;
use std::ops::Deref;

use super::*;
use crate::test;

const PORT: &str = "0000:00:02.0";
const DISK: &str = "0000:02:00.0";
const CARD: &str = "0000:03:00.0";

struct Tree(test::Tree);

impl Deref for Tree {
    type Target = test::Tree;
    fn deref(&self) -> &test::Tree {
        &self.0
    }
}

impl Tree {
    /// A port with a disk and a card with a virtual function below it.
    fn new() -> Tree {
        let tree = Tree(test::Tree::new());
        for bdf in [PORT, DISK, CARD, "0000:03:00.1"] {
            let way = if bdf == PORT { bdf.to_owned() } else { format!("{PORT}/{bdf}") };
            tree.link(format!("sys/bus/pci/devices/{bdf}"), format!("../../../devices/pci0000:00/{way}"));
            tree.folder(format!("sys/devices/pci0000:00/{way}"));
        }
        tree
    }

    /// A disk at a place below `sys/devices`, with sectors read and written.
    fn disk(&self, place: &str, sectors: (u64, u64)) {
        let name = place.rsplit('/').next().unwrap();
        if !self.exists(format!("sys/class/block/{name}")) {
            self.link(format!("sys/class/block/{name}"), format!("../../devices/{place}"));
        }
        self.put(format!("sys/devices/{place}/stat"), stat(sectors));
    }

    /// An interface of a kind at a place below `sys/devices`, with bytes received and sent.
    fn interface(&self, place: &str, of: u32, bytes: (u64, u64)) {
        let name = place.rsplit('/').next().unwrap();
        if !self.exists(format!("sys/class/net/{name}")) {
            self.link(format!("sys/class/net/{name}"), format!("../../devices/{place}"));
        }
        self.put(format!("sys/devices/{place}/type"), of.to_string());
        self.put(format!("sys/devices/{place}/statistics/rx_bytes"), bytes.0.to_string());
        self.put(format!("sys/devices/{place}/statistics/tx_bytes"), bytes.1.to_string());
    }
}

fn stat((read, written): (u64, u64)) -> String {
    format!("    12  0 {read}  7   34  1 {written}  9   0  8  16  0 0 0 0 0 0")
}

fn bdf(text: &str) -> Bdf {
    text.parse().unwrap()
}

/// Rx and Tx of a function.
fn bytes(accounts: &Accounts, of: &str) -> (Option<u64>, Option<u64>) {
    (accounts.value(bdf(of), Count::Rx), accounts.value(bdf(of), Count::Tx))
}

fn disk_of(function: &str, name: &str) -> String {
    format!("pci0000:00/{PORT}/{function}/nvme/nvme0/{name}")
}

#[test]
fn bytes_belong_to_the_function_and_to_all_above_it() {
    let tree = Tree::new();
    let (disk, card) = (disk_of(DISK, "nvme0n1"), format!("pci0000:00/{PORT}/{CARD}/net/eth0"));
    tree.disk(&disk, (1000, 500));
    tree.interface(&card, 1, (70, 30));
    let mut accounts = Accounts::open(&tree);
    assert_eq!(bytes(&accounts, PORT), (Some(0), Some(0)), "what was counted before is not ours");
    tree.disk(&disk, (1008, 501));
    tree.interface(&card, 1, (1_070, 35));
    accounts.read();
    assert_eq!(bytes(&accounts, DISK), (Some(4096), Some(512)));
    assert_eq!(bytes(&accounts, CARD), (Some(1000), Some(5)));
    assert_eq!(bytes(&accounts, PORT), (Some(5096), Some(517)));
    assert_eq!(accounts.value(bdf(PORT), Count::DiskRx), Some(4096));
    assert_eq!(accounts.value(bdf(PORT), Count::NetTx), Some(5));
    assert_eq!(bytes(&accounts, "0000:03:00.1"), (None, None), "a function without a source has no figure, not 0");
    accounts.read();
    assert_eq!(bytes(&accounts, PORT), (Some(5096), Some(517)), "nothing more was counted");
    assert_eq!(accounts.take_doubts(), []);
}

#[test]
fn what_is_stacked_on_a_disk_or_interface_is_not_counted_again() {
    let tree = Tree::new();
    let disk = disk_of(DISK, "nvme0n1");
    let all = |sectors: u64, count: u64| {
        tree.disk(&disk, (sectors, 0));
        // A partition, and what lies on no bus.
        tree.disk(&format!("{disk}/nvme0n1p1"), (sectors, 0));
        tree.put(format!("sys/devices/{disk}/nvme0n1p1/partition"), "1");
        for name in ["dm-0", "md0", "loop0", "zram0"] {
            tree.disk(&format!("virtual/block/{name}"), (sectors, 0));
        }
        // The namespace of a multipath disk; its path below is what counts.
        tree.disk("virtual/nvme-subsystem/nvme-subsys1/nvme1n1", (sectors, 0));
        tree.disk(&format!("pci0000:00/{PORT}/{CARD}/nvme/nvme1/nvme1c1n1"), (sectors, 0));
        tree.interface(&format!("pci0000:00/{PORT}/0000:03:00.1/net/eth1"), 1, (count, count));
        for name in ["bond0", "br0", "eth1.10", "veth0", "tun0"] {
            tree.interface(&format!("virtual/net/{name}"), 1, (count, count));
        }
    };
    all(0, 0);
    let mut accounts = Accounts::open(&tree);
    all(8, 100);
    accounts.read();
    assert_eq!(bytes(&accounts, DISK), (Some(4096), Some(0)));
    assert_eq!(bytes(&accounts, CARD), (Some(4096), Some(0)));
    assert_eq!(bytes(&accounts, "0000:03:00.1"), (Some(100), Some(100)));
    assert_eq!(bytes(&accounts, PORT), (Some(8292), Some(100)));
}

#[test]
fn what_comes_and_goes_is_counted_from_its_first_reading_on() {
    let tree = Tree::new();
    let disk = disk_of(DISK, "nvme0n1");
    let mut accounts = Accounts::open(&tree);
    assert_eq!(bytes(&accounts, PORT), (None, None));
    tree.disk(&disk, (1_000_000, 0));
    accounts.read();
    assert_eq!(bytes(&accounts, PORT), (Some(0), Some(0)), "it may have counted long before: another namespace");
    tree.disk(&disk, (1_000_001, 0));
    accounts.read();
    assert_eq!(bytes(&accounts, PORT), (Some(512), Some(0)));
    // Another disk under the same name: its file is another one.
    fs::rename(tree.path(format!("sys/devices/{disk}")), tree.path("gone")).unwrap();
    tree.disk(&disk, (9_000_000, 0));
    accounts.read();
    assert_eq!(bytes(&accounts, PORT), (Some(512), Some(0)));
    // Gone for good: one reading without it still shows the sum, then there is no figure.
    fs::remove_dir_all(tree.path(format!("sys/devices/{disk}"))).unwrap();
    accounts.read();
    assert_eq!(bytes(&accounts, PORT), (Some(512), Some(0)));
    accounts.read();
    assert_eq!(bytes(&accounts, PORT), (None, None));
    assert_eq!(accounts.take_doubts(), []);
}

#[test]
fn a_renamed_interface_counts_on() {
    let tree = Tree::new();
    let at = format!("pci0000:00/{PORT}/{CARD}/net");
    tree.interface(&format!("{at}/eth0"), 1, (10, 10));
    let mut accounts = Accounts::open(&tree);
    fs::rename(tree.path(format!("sys/devices/{at}/eth0")), tree.path(format!("sys/devices/{at}/enp3s0"))).unwrap();
    fs::remove_file(tree.path("sys/class/net/eth0")).unwrap();
    tree.interface(&format!("{at}/enp3s0"), 1, (15, 10));
    accounts.read();
    assert_eq!(bytes(&accounts, CARD), (Some(5), Some(0)));
}

#[test]
fn hostile_values_are_doubted_and_never_counted() {
    let tree = Tree::new();
    let disk = disk_of(DISK, "nvme0n1");
    tree.disk(&disk, (100, 100));
    let mut accounts = Accounts::open(&tree);
    let shown = |text: &str| tree.put(format!("sys/devices/{disk}/stat"), text);
    for hostile in [
        stat((u64::MAX, 100)),
        stat((1 << 63, 100)),
        "18446744073709551616 1 99999999999999999999 1 1 1 100 1".to_owned(),
        "1 1 -1 1 1 1 100".to_owned(),
        "1 1 +7 1 1 1 100".to_owned(),
        "a b c d e f 100".to_owned(),
        "\u{1b}[2J 1 \u{1b}[2J 1 1 1 100".to_owned(),
    ] {
        shown(&hostile);
        accounts.read();
        accounts.read();
        let doubts = accounts.take_doubts();
        assert_eq!(doubts.len(), 1, "{hostile:?}: said once: {doubts:?}");
        assert_eq!((doubts[0].kind.code, doubts[0].bdf), ("not-counted", bdf(DISK)), "{hostile:?}");
        assert!(doubts[0].text.contains("nvme0n1") && !doubts[0].text.contains('\u{1b}'), "{doubts:?}");
        shown(&stat((100, 100)));
        accounts.read();
        assert_eq!(accounts.value(bdf(DISK), Count::Rx), Some(0), "{hostile:?}");
        assert_eq!(accounts.take_doubts(), [], "{hostile:?}: it can be read again");
    }
    for empty in ["", "1 2"] {
        shown(empty);
        accounts.read();
        assert_eq!(accounts.take_doubts().len(), 2, "neither direction is there in {empty:?}");
        shown(&stat((100, 100)));
        accounts.read();
    }
    // Backwards, and farther than anything counts: left out, and counted on from there.
    for (sectors, text) in [(40, "from 100 to 40"), (1 << 62, "from 40 to 4611686018427387904")] {
        shown(&stat((sectors, 100)));
        accounts.read();
        let doubts = accounts.take_doubts();
        assert_eq!((doubts.len(), doubts[0].kind.code), (1, "counter-reset"), "{doubts:?}");
        assert!(doubts[0].text.contains(text), "{doubts:?}");
    }
    shown(&stat(((1 << 62) + 2, 100)));
    accounts.read();
    assert_eq!(bytes(&accounts, PORT), (Some(1024), Some(0)));
}

#[test]
fn interfaces_and_disks_that_others_count_are_left_out() {
    let tree = Tree::new();
    let card = format!("pci0000:00/{PORT}/{CARD}");
    // A port of a switch in the card, a monitor of a radio, and FCoE below an interface.
    tree.interface(&format!("{card}/net/uplink"), 1, (5, 5));
    tree.put(format!("sys/devices/{card}/net/uplink/phys_switch_id"), "0a0b");
    tree.interface(&format!("{card}/net/mon0"), 803, (5, 5));
    tree.disk(&format!("{card}/net/eth0/ctlr_0/host3/target3:0:0/3:0:0:0/block/sdb"), (5, 5));
    tree.disk(&disk_of(DISK, "nvme0n1"), (5, 5));
    tree.put(format!("sys/devices/{}/queue/iostats", disk_of(DISK, "nvme0n1")), "0");
    let sources = sources(&tree);
    let left_out =
        |of: &str| -> Vec<&str> { sources[&bdf(of)].left_out.iter().map(|(name, _)| name.as_str()).collect() };
    assert_eq!(left_out(CARD), ["mon0", "uplink", "sdb"]);
    assert_eq!(left_out(DISK), ["nvme0n1"]);
    assert!(sources.values().all(|sources| sources.devices.is_empty()), "{sources:?}");
}

#[test]
fn an_rdma_port_counts_words_and_what_goes_over_it_does_not_count_again() {
    let tree = Tree::new();
    let card = format!("pci0000:00/{PORT}/{CARD}");
    tree.link("sys/class/infiniband/mlx5_0", format!("../../devices/{card}/infiniband/mlx5_0"));
    let port = |words: u64, layer: &str| {
        let at = format!("sys/devices/{card}/infiniband/mlx5_0/ports/1");
        tree.put(format!("{at}/link_layer"), layer);
        tree.put(format!("{at}/counters/port_rcv_data"), words.to_string());
        tree.put(format!("{at}/counters/port_xmit_data"), "0");
    };
    port(100, "InfiniBand");
    // IP over InfiniBand, and SRP.
    tree.interface(&format!("{card}/net/ib0"), 32, (0, 0));
    tree.disk(&format!("{card}/host5/target5:0:0/5:0:0:0/block/sdc"), (0, 0));
    let mut accounts = Accounts::open(&tree);
    port(110, "InfiniBand");
    tree.interface(&format!("{card}/net/ib0"), 32, (40, 0));
    tree.disk(&format!("{card}/host5/target5:0:0/5:0:0:0/block/sdc"), (1, 0));
    accounts.read();
    assert_eq!(bytes(&accounts, CARD), (Some(40), Some(0)));
    // At the end of its 32 bits it stays: no figure, and it is said.
    port(0xffff_ffff, "InfiniBand");
    accounts.read();
    let doubts = accounts.take_doubts();
    assert!(doubts.len() == 1 && doubts[0].text.contains("32 bits"), "{doubts:?}");
    // On Ethernet the interface counts; the port too only where its driver keeps the two apart.
    port(0, "Ethernet");
    let devices = || sources(&tree)[&bdf(CARD)].devices.clone();
    assert_eq!(devices(), ["ib0", "sdc"]);
    tree.link(format!("sys/devices/{card}/driver"), "../../../../bus/pci/drivers/mlx5_core");
    assert_eq!(devices(), ["mlx5_0/1"]);
}

#[test]
fn interrupts_count_by_vector_and_wrap_at_32_bits() {
    let tree = Tree::new();
    let intr =
        |ours: u64, other: u64| tree.put("proc/stat", format!("cpu  1 2 3\nintr 999 0 {ours} {other} 0\nctxt 5"));
    tree.put(format!("sys/devices/pci0000:00/{PORT}/{DISK}/msi_irqs/1"), "msix");
    tree.put(format!("sys/devices/pci0000:00/{PORT}/{DISK}/msi_irqs/2"), "msix");
    // A number beyond the line has no count.
    tree.put(format!("sys/devices/pci0000:00/{PORT}/{DISK}/msi_irqs/77"), "msix");
    intr(4_294_967_290, 7);
    let mut accounts = Accounts::open(&tree);
    intr(4, 9);
    accounts.read();
    let value = |accounts: &Accounts, of: &str, count| accounts.value(bdf(of), count);
    assert_eq!(value(&accounts, DISK, Count::Vector(1)), Some(10));
    assert_eq!(value(&accounts, DISK, Count::Vector(2)), Some(2));
    assert_eq!(value(&accounts, DISK, Count::Vector(77)), None);
    assert_eq!(value(&accounts, PORT, Count::Interrupts), Some(12));
    assert_eq!(accounts.take_doubts(), []);
    // A number that went to another device and came back begins anew; so does a count that fell by more than half.
    intr(3, 9);
    accounts.read();
    assert_eq!(value(&accounts, DISK, Count::Interrupts), Some(12));
    assert_eq!(accounts.take_doubts().len(), 1);
}

#[test]
fn error_reports_are_added_up_without_their_total() {
    let tree = Tree::new();
    let at = format!("sys/devices/pci0000:00/{PORT}/{DISK}");
    tree.put(format!("{at}/aer_dev_correctable"), "RxErr 1\nBadTLP 2\nTOTAL_ERR_COR 3");
    tree.put(format!("{at}/aer_dev_fatal"), "SDES 18446744073709551615\nDLP 1");
    let mut accounts = Accounts::open(&tree);
    tree.put(format!("{at}/aer_dev_correctable"), "RxErr 1\nBadTLP 6\nnonsense\nTOTAL_ERR_COR 7");
    accounts.read();
    assert_eq!(accounts.value(bdf(PORT), Count::Correctable), Some(4));
    assert_eq!(accounts.value(bdf(DISK), Count::Nonfatal), None);
    assert_eq!(accounts.value(bdf(DISK), Count::Fatal), None, "all-ones is no count");
}

#[test]
fn messages_that_no_function_counts_are_the_root_ports() {
    let tree = Tree::new();
    let port = format!("sys/devices/pci0000:00/{PORT}");
    let put = |got: u64, counted: u64| {
        tree.put(format!("{port}/aer_rootport_total_err_cor"), got.to_string());
        tree.put(format!("{port}/{DISK}/aer_dev_correctable"), format!("RxErr {counted}"));
    };
    put(100, 10);
    let mut accounts = Accounts::open(&tree);
    // What the disk counted is not counted twice; it may count several of one message, and be late or early.
    for (got, counted, wanted) in
        [(104, 14, 4), (107, 14, 7), (109, 14, 9), (110, 20, 15), (117, 20, 17), (120, 20, 20)]
    {
        put(got, counted);
        accounts.read();
        assert_eq!(accounts.value(bdf(PORT), Count::Correctable), Some(wanted), "{got} {counted}");
    }
}

#[test]
fn a_machine_without_pci_has_no_accounts() {
    let root = test::Tree::new();
    assert!(sources(&root).is_empty() && pmus(&root).is_empty() && present(&root).is_empty());
    let mut accounts = Accounts::open(&root);
    accounts.read();
    assert_eq!(accounts.value(bdf(DISK), Count::Rx), None);
}
