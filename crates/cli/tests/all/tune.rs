//! `pciescope tune` as a user has it: the knobs, the answer, and the machine as it was, on trees of files.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pciescope_core::Record;
use pciescope_core::tune::{Effect, Tune, Verdict};

use crate::common::{Ended, PROGRAM, folder, names, pciescope, run};

const BDF: &str = "0000:02:00.0";
/// Device Control: relaxed ordering, payload of 256 bytes, no snoop, read requests of 512 bytes.
const FOUND: u16 = 0x2830;
const AT: usize = 0x48;

/// A machine of files with one disk.
struct Tree {
    root: PathBuf,
}

impl Tree {
    fn new(name: &str) -> Tree {
        let tree = Tree { root: folder(name) };
        let own = format!("sys/bus/pci/devices/{BDF}");
        let mut config = vec![0u8; 512];
        for (at, word) in [(0, 0x144du16), (2, 0xa824), (6, 0x10), (0x34, 0x40), (0x40, 0x10), (0x42, 2), (0x44, 2)] {
            config[at..at + 2].copy_from_slice(&word.to_le_bytes());
        }
        config[AT..AT + 2].copy_from_slice(&FOUND.to_le_bytes());
        // A serial number.
        config[0x100..0x10c].copy_from_slice(&[3, 0, 1, 0, 7, 0, 0, 0, 9, 0, 0, 0]);
        for (file, text) in [("vendor", "0x144d"), ("device", "0xa824"), ("class", "0x010802"), ("numa_node", "-1")] {
            tree.put(&format!("{own}/{file}"), text);
        }
        tree.put(&format!("{own}/resource"), "0x0 0x0 0x0");
        fs::write(tree.root.join(format!("{own}/config")), config).unwrap();
        tree.put(&format!("{own}/aer_dev_correctable"), "RxErr 0");
        tree.put(&format!("{own}/link/l1_aspm"), "1");
        tree.put(&format!("{own}/link/l1_1_aspm"), "1");
        tree.put(&format!("{own}/msi_irqs/40"), "msix");
        tree.put("proc/irq/40/smp_affinity_list", "0-1");
        tree.put("proc/sys/kernel/random/boot_id", "first");
        tree.put("proc/cmdline", "quiet pcie_aspm.policy=default -- -x");
        tree.put("sys/devices/system/cpu/online", "0-1");
        for cpu in 0..2 {
            let frequency = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq");
            tree.put(&format!("{frequency}/scaling_governor"), "powersave");
            tree.put(&format!("{frequency}/scaling_available_governors"), "performance powersave userspace");
        }
        tree
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A file of the kernel, of each process, stands for the affinity of the first vector.
    fn replace_affinity(&self, by: &str) {
        let affinity = self.root.join("proc/irq/40/smp_affinity_list");
        fs::remove_file(&affinity).unwrap();
        symlink(by, &affinity).unwrap();
    }

    fn config(&self) -> PathBuf {
        self.root.join(format!("sys/bus/pci/devices/{BDF}/config"))
    }

    fn control(&self) -> u16 {
        let bytes = fs::read(self.config()).unwrap();
        u16::from_le_bytes([bytes[AT], bytes[AT + 1]])
    }

    fn set_control(&self, value: u16) {
        let mut bytes = fs::read(self.config()).unwrap();
        bytes[AT..AT + 2].copy_from_slice(&value.to_le_bytes());
        fs::write(self.config(), bytes).unwrap();
    }

    /// A workload that sees read requests in `$m`, such as 2 for 512 bytes and 5 for 4096, and `$bits` below.
    fn script(&self, text: &str) -> String {
        let path = self.root.join("workload.sh");
        let head = format!(
            "#!/bin/sh\nconfig={}\nset -- $(od -An -tu1 -j{AT} -N2 $config)\nbits=$1 m=$(($2 / 16))\n",
            self.config().display()
        );
        fs::write(&path, head + text).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path.display().to_string()
    }

    fn run(&self, line: &str) -> Ended {
        let root = self.root.display().to_string();
        // A machine that is busy takes longer for each block, and decides all the same.
        let line = line.replace(" --score ", " --duration 20min --score ");
        let words = ["--root", &root].into_iter().chain(line.split_whitespace()).collect::<Vec<_>>();
        pciescope(&words)
    }

    /// Everything that the kernel shows, but what the restore folder holds.
    fn all(&self) -> Vec<(PathBuf, Vec<u8>)> {
        fn walk(at: &Path, all: &mut Vec<(PathBuf, Vec<u8>)>) {
            for name in names(at) {
                let path = at.join(name);
                if path.is_symlink() {
                    let to = fs::read_link(&path).unwrap();
                    all.push((path, to.into_os_string().into_encoded_bytes()))
                } else if path.is_dir() {
                    walk(&path, all)
                } else {
                    all.push((path.clone(), fs::read(&path).unwrap().trim_ascii_end().to_vec()))
                }
            }
        }
        let mut all = Vec::new();
        ["sys", "proc"].iter().for_each(|part| walk(&self.root.join(part), &mut all));
        all
    }

    fn log(&self) -> PathBuf {
        self.root.join("var/lib/pciescope/restore/tune.jsonl")
    }

    /// A disk of the function, with its node.
    fn disk(&self) -> PathBuf {
        let disk = format!("sys/bus/pci/devices/{BDF}/block/nvme0n1");
        self.put(&format!("{disk}/uevent"), "DEVNAME=nvme0n1");
        fs::create_dir_all(self.root.join("sys/class/block")).unwrap();
        symlink("../../../../../../class/block", self.root.join(&disk).join("subsystem")).unwrap();
        symlink(format!("../../../{disk}"), self.root.join("sys/class/block/nvme0n1")).unwrap();
        self.put("dev/nvme0n1", &"x".repeat(1 << 20));
        self.root.join("dev/nvme0n1")
    }

    /// A network interface of the function, which drivers of ethtool answer for.
    fn interface(&self) {
        let own = format!("sys/bus/pci/devices/{BDF}");
        self.put(&format!("{own}/class"), "0x020000");
        self.put(&format!("{own}/net/eth0/ethtool-coalesce"), "14 3");
        self.put(&format!("{own}/net/eth0/ethtool-channels"), "60 0 0 1 8 0 0 1 4");
        self.put(&format!("{own}/net/eth0/statistics/rx_errors"), "0");
        fs::create_dir_all(self.root.join("sys/class/net")).unwrap();
        symlink(format!("../../../{own}/net/eth0"), self.root.join("sys/class/net/eth0")).unwrap();
    }

    /// Puts the function below a root port that takes payloads of 256 bytes, half of what the function takes.
    fn port(&self) {
        let (own, devices) = (format!("sys/bus/pci/devices/{BDF}"), "sys/devices/pci0000:00/0000:00:02.0");
        fs::create_dir_all(self.root.join(devices)).unwrap();
        fs::rename(self.root.join(&own), self.root.join(devices).join(BDF)).unwrap();
        symlink(format!("../../../../{devices}/{BDF}"), self.root.join(&own)).unwrap();
        symlink(format!("../../../../{devices}"), self.root.join("sys/bus/pci/devices/0000:00:02.0")).unwrap();
        let mut config = fs::read(self.config()).unwrap();
        (config[0x42], config[0x44]) = (0x42, 1);
        fs::write(self.root.join(devices).join("config"), config).unwrap();
        for (file, text) in
            [("vendor", "0x144d"), ("device", "0x0002"), ("class", "0x060400"), ("resource", "0x0 0x0 0x0")]
        {
            self.put(&format!("{devices}/{file}"), text);
        }
    }

    /// An experiment that is killed while read requests have 4096 bytes.
    fn killed(&self) {
        let script = self.script("[ $m = 5 ] && kill -9 $PPID; echo 100");
        let ended = self.run(&format!("tune {BDF} --try mrrs=4096 --score x:max -- {script}"));
        assert_eq!((ended.code, self.control() >> 12), (-1, 5), "{}", ended.stderr);
        assert!(self.log().exists());
    }
}

fn tune(records: &[Record]) -> &Tune {
    records.last().unwrap().tune.as_ref().unwrap()
}

fn verdicts(tune: &Tune) -> Vec<(String, Verdict)> {
    let named = |effect: &Effect| format!("{}={}", effect.settings[0].knob, effect.settings[0].value);
    tune.effects.iter().map(|effect| (named(effect), effect.verdict)).collect()
}

#[test]
fn the_answer_stands_first_and_what_keeps_it_behind() {
    let ended =
        run("tune nvme0n1 --backend fake --try mrrs=128,4096 --try aspm-l1 --try relaxed-ordering").expect_code(0);
    let lines: Vec<&str> = ended.stdout.lines().map(str::trim).collect();
    assert!(lines[0].starts_with("0000:02:00.0 (nvme0n1): settings by mmio, for "), "{}", ended.stdout);
    assert!(lines[1].starts_with("mrrs 4096: mmio -3") || lines[1].starts_with("mrrs 4096: mmio -2"), "{}", lines[1]);
    for part in [
        "mrrs 128: hurts: mmio +4",
        "relaxed-ordering off: hurts: mmio +5",
        "aspm-l1 off: no difference above 1 %",
        "together (mrrs 4096): -",
        ", confirmed",
        "to keep mrrs 4096: setpci -s 0000:02:00.0 CAP_EXP+8.w=5000:7000",
        "made up by the fake backend",
    ] {
        assert!(ended.stdout.contains(part), "{part}: {}", ended.stdout);
    }
    assert!(ended.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ended.stdout);
}

#[test]
fn of_twelve_experiments_each_says_what_was_planted() {
    for seed in 1..=12 {
        let line =
            format!("tune nvme0n1 --backend fake --try mrrs=4096 --try no-snoop --try irq-cpu=4 --seed {seed} -j");
        let ended = run(&line).expect_code(0);
        let records = ended.records();
        let expected = [
            ("mrrs=4096".to_owned(), Verdict::Helps),
            ("no-snoop=off".to_owned(), Verdict::NoDifference),
            ("irq-cpu=4".to_owned(), Verdict::NoDifference),
        ];
        let tune = tune(&records);
        assert_eq!(verdicts(tune), expected, "{seed}");
        let best = tune.best.as_ref().unwrap();
        let change = best.change.unwrap();
        // 1 / 1.03
        assert!(change.low_percent < -2.91 && change.high_percent > -2.91, "{seed}: {change:?}");
        assert_eq!((best.verdict, best.settings.len()), (Verdict::Helps, 1), "{seed}");
    }
}

#[test]
fn all_is_what_is_safe_and_the_rest_is_named() {
    let ended = run("tune nvme0n1 --backend fake --try all --dry-run").expect_code(0);
    for part in [
        "left out: mps: it disturbs the device: name it",
        "left out: ext-tags: it is off, and the path may not take 8-bit tags",
        "left out: governor: it also changes the whole machine: --shared allows that",
        "would set mrrs from 512 to 4096",
        "nothing was changed",
    ] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
    assert!(!ended.stderr.contains("would set governor"), "{}", ended.stderr);
    let shared = run("tune nvme0n1 --backend fake --try all --dry-run --shared").expect_code(0);
    assert!(shared.stderr.contains("would set governor from powersave to performance"), "{}", shared.stderr);
}

#[test]
fn the_list_says_what_can_be_set_and_why_not() {
    let tree = Tree::new("tune-list");
    fs::create_dir_all(tree.root.join("dev")).unwrap();
    fs::write(tree.root.join("dev/cpu_dma_latency"), 2_000_000_000i32.to_le_bytes()).unwrap();
    let before = tree.all();
    let ended = tree.run(&format!("tune {BDF}")).expect_code(0);
    let row = |name: &str| -> String {
        let rows = ended.stdout.lines().filter(|line| line.split_whitespace().next() == Some(name));
        rows.map(|row| row.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect()
    };
    for (knob, rows) in [
        ("mrrs", "mrrs 512 128 to 4096 written back as found\nmrrs other devices may wait longer behind large reads\n"),
        ("no-snoop", "no-snoop on on, off written back as found\nno-snoop none: more snooping\n"),
        ("ext-tags", "ext-tags off on, off written back as found\next-tags not changed: it is off, and the path may"),
        ("aspm-l1", "aspm-l1 on on, off written back kernel parameter pcie_aspm.policy=default\n"),
        ("irq-cpu", "irq-cpu 0-1 CPUs of 0-1 written back as found\n"),
        (
            "governor",
            "governor powersave performance, powersave written back as found\ngovernor more power and heat; also of",
        ),
        ("idle-latency", "idle-latency no limit 0 us to no limit by its end as found\n"),
    ] {
        assert!(row(knob).starts_with(rows), "{knob}: {}", row(knob));
    }
    assert_eq!((row("scheduler"), row("aspm-l0s"), row("iommu")), Default::default());
    assert_eq!(tree.all(), before);
}

#[test]
fn a_setting_that_helps_is_found_and_everything_is_put_back() {
    let tree = Tree::new("tune-helps");
    let script = tree.script("case $m in 5) echo rate 110;; 0) echo rate 90;; *) echo rate 100;; esac");
    let before = tree.all();
    let ended = tree.run(&format!("tune {BDF} --try mrrs=128,4096 --score rate:max -j -- {script}")).expect_code(0);
    let records = ended.records();
    let found = tune(&records);
    assert_eq!(verdicts(found), [("mrrs=128".into(), Verdict::Hurts), ("mrrs=4096".into(), Verdict::Helps)]);
    let gain = found.best.as_ref().unwrap().change.unwrap().percent;
    assert!((gain - 10.0).abs() < 1e-9, "{gain}");
    assert_eq!(tree.all(), before);
    let folder = tree.log().parent().unwrap().to_owned();
    assert_eq!((names(&folder).len(), fs::metadata(&folder).unwrap().permissions().mode() & 0o777), (0, 0o700));
}

#[test]
fn the_price_has_the_cpu_time_of_the_workload() {
    let tree = Tree::new("tune-cpu");
    // The same rate, by four times the loops.
    let script = tree.script("n=3000; [ $m = 5 ] && n=12000; while [ $n -gt 0 ]; do n=$((n - 1)); done; echo 100");
    let records =
        tree.run(&format!("tune {BDF} --try mrrs=4096 --score x:max -j -- {script}")).expect_code(0).records();
    let effect = &tune(&records).effects[0];
    let cpu = effect.prices["cpu"];
    assert_eq!(effect.verdict, Verdict::NoDifference, "{effect:?}");
    assert!(cpu.low_percent > 10.0 && cpu.percent < 300.0, "{cpu:?}");
}

#[test]
fn a_readout_is_a_figure_and_its_cpu_time_too() {
    for (figure, change) in [("readout", 3.0), ("irq", -2.9), ("cpu", -2.9)] {
        let line = format!("tune nvme0n1 --backend fake --figure {figure} --try mrrs=4096 --try aspm-l1 -j");
        let records = run(&line).expect_code(0).records();
        let found = tune(&records);
        assert_eq!(found.effects[0].verdict, Verdict::Helps, "{figure}: {found:?}");
        let difference = found.effects[0].change.unwrap();
        assert!((difference.low_percent..difference.high_percent).contains(&change), "{figure}: {difference:?}");
    }
    let tree = Tree::new("tune-readout");
    tree.disk();
    for figure in ["readout", "cpu"] {
        let line = format!("tune {BDF} --figure {figure} --try mrrs=4096 --duration 9s -j");
        let ended = tree.run(&line).expect_code(0);
        let records = ended.records();
        let effect = &tune(&records).effects[0];
        assert_eq!((effect.comparisons, effect.blocks_failed), (1, 0), "{effect:?} {}", ended.stderr);
        assert!(records.last().unwrap().metrics["blocks"].value >= 5.0, "{effect:?}");
    }
    let refused = run("tune nvme0n1 --backend fake --figure irq --try irq-cpu=4").expect_code(2);
    assert!(refused.stderr.contains("interrupts are timed on the CPU that measures: try cpu"), "{}", refused.stderr);
    let none = tree.run("tune 0000:00:1f.0 --figure readout --try mrrs").expect_code(2);
    assert!(none.stderr.contains("hint: "), "{}", none.stderr);
}

#[test]
fn a_register_is_written_by_its_own_bits_alone() {
    let tree = Tree::new("tune-bits");
    // Other bits change meanwhile, as a driver may change them.
    let script =
        tree.script("[ $m = 5 ] && printf '\\271' | dd of=$config bs=1 seek=72 conv=notrunc 2>/dev/null\necho 100");
    tree.run(&format!("tune {BDF} --try mrrs=4096 --score rate:max -q -- {script}")).expect_code(0);
    assert_eq!(tree.control(), FOUND & 0xff00 | 0o271);
}

#[test]
fn the_ports_own_change_of_speed_is_switched_off_and_comes_back() {
    let tree = Tree::new("tune-hasd");
    let own = tree.root.join(format!("sys/bus/pci/devices/{BDF}"));
    assert!(!tree.run(&format!("tune {BDF}")).expect_code(0).stdout.contains("hasd"));
    let port = tree.root.join("sys/devices/pci0000:00/0000:00:01.0");
    fs::create_dir_all(&port).unwrap();
    fs::rename(&own, port.join(BDF)).unwrap();
    let place = "../../../devices/pci0000:00/0000:00:01.0";
    symlink(format!("{place}/{BDF}"), &own).unwrap();
    symlink(place, own.parent().unwrap().join("0000:00:01.0")).unwrap();
    let mut config = fs::read(own.join("config")).unwrap();
    // A root port, of which Link Control 2 holds other bits too.
    (config[0x42], config[0x70], config[0x71]) = (0x42, 0x43, 0x12);
    fs::write(port.join("config"), &config).unwrap();
    for (file, text) in [("vendor", "0x8086"), ("device", "0x1901"), ("class", "0x060400"), ("resource", "0x0 0x0 0x0")]
    {
        fs::write(port.join(file), text).unwrap();
    }
    let before = tree.all();
    let look = format!("[ \"$(od -An -tx1 -j112 -N2 {}/config)\" = ' 63 12' ] && echo 110 || echo 100", port.display());
    let line = format!("tune {BDF} --try hasd=on --score x:max -j -- {}", tree.script(&look));
    let records = tree.run(&line).expect_code(0).records();
    assert_eq!(verdicts(tune(&records)), [("hasd=on".into(), Verdict::Helps)]);
    assert_eq!(tree.all(), before);
    assert_eq!(tune(&records).effects[0].settings[0].permanent, "setpci -s 0000:00:01.0 CAP_EXP+30.w=0020:0020");
    // It is the link's, and so everybody's who is on it.
    let sibling = own.parent().unwrap().join("0000:02:00.1");
    symlink(format!("{place}/{BDF}"), sibling).unwrap();
    let refused = tree.run(&line).expect_code(2);
    assert!(
        refused.stderr.contains("hasd: it also changes 0000:02:00.1 on the same link: --shared"),
        "{}",
        refused.stderr
    );
}

#[test]
fn what_the_kernel_takes_along_comes_back_with_it() {
    let tree = Tree::new("tune-along");
    let link = tree.root.join(format!("sys/bus/pci/devices/{BDF}/link"));
    // Without L1 there is no substate of it; with it only who puts it back has one.
    let kernel = "read l1 <$link/l1_aspm; read sub <$link/l1_1_aspm; [ $l1 = 0 ] && echo 0 >$link/l1_1_aspm\n";
    let script = format!("link={}\n{kernel}[ $l1 = 1 ] && [ $sub = 0 ] && exit 1\necho 100", link.display());
    let script = tree.script(&script);
    let before = tree.all();
    let line = format!("tune {BDF} --try aspm-l1 --score x:max -j -- {script}");
    let records = tree.run(&line).expect_code(0).records();
    assert_eq!(verdicts(tune(&records)), [("aspm-l1=off".into(), Verdict::NoDifference)]);
    assert_eq!(tree.all(), before);
    let killing = script.replace("workload.sh", "kill.sh");
    fs::write(tree.root.join("kill.sh"), fs::read_to_string(&script).unwrap() + "\n[ $l1 = 0 ] && kill -9 $PPID\n")
        .unwrap();
    fs::set_permissions(&killing, PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(tree.run(&format!("tune {BDF} --try aspm-l1 --score x:max -- {killing}")).code, -1);
    assert_eq!(fs::read_to_string(link.join("l1_1_aspm")).unwrap().trim(), "0");
    tree.run("unbind --restore").expect_code(0);
    assert_eq!(tree.all(), before);
}

#[test]
fn what_a_kill_left_is_put_back_and_said_once() {
    let tree = Tree::new("tune-killed");
    let before = tree.all();
    for (line, is_here) in [("unbind --restore", "no function is bound"), ("tune 0000:02:00.0", "what can be set")] {
        tree.killed();
        let ended = tree.run(line).expect_code(0);
        assert!(ended.stderr.contains("0000:02:00.0: an earlier experiment (process "), "{}", ended.stderr);
        assert!(ended.stderr.contains("put back from 0x5000 to 0x2000"), "{}", ended.stderr);
        assert!(ended.stdout.contains(is_here), "{}", ended.stdout);
        assert_eq!((tree.all(), tree.log().exists()), (before.clone(), false));
        assert!(!tree.run(line).expect_code(0).stderr.contains("earlier experiment"));
    }
}

#[test]
fn every_verb_says_what_a_kill_left() {
    let tree = Tree::new("tune-left");
    let said = |line: &str| -> Vec<String> {
        let about = |line: &&str| line.contains("`tune` was killed");
        tree.run(line).stderr.lines().filter(about).map(str::to_owned).collect()
    };
    assert!(said("list").is_empty());
    tree.killed();
    for line in [
        "list",
        "-q list",
        "",
        "unbind",
        "doctor",
        "compare a.jsonl b.jsonl",
        "stat -I 1ms -- true",
        "tune --state-dir /tmp/x",
    ] {
        let said = said(&line.replace("tune", &format!("tune {BDF}")));
        assert_eq!(said.len(), 1, "{line}: {said:?}");
        assert!(said[0].starts_with(&format!("pciescope: {BDF}: ")), "{said:?}");
        assert!(said[0].ends_with("may still be set: mrrs; `pciescope unbind --restore` puts it back"), "{said:?}");
        assert!(!said[0].contains("last boot"), "{said:?}");
    }
    for line in ["--help", "tune --help", "completions bash", "man tune", "--version"] {
        assert!(said(line).is_empty(), "{line}");
    }
    assert_eq!(tree.control() >> 12, 5, "a look put it back");
    tree.put("proc/sys/kernel/random/boot_id", "second");
    assert!(said("list")[0].contains(", before the last boot)"), "{:?}", said("list"));
    // What others can write there is no word of ours.
    let folder = tree.log().parent().unwrap().to_owned();
    fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
    assert!(said("list").is_empty());
    fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
    assert_eq!(said("list").len(), 1);
    tree.run("unbind --restore").expect_code(0);
    assert!(said("list").is_empty());
}

#[test]
fn an_experiment_that_runs_was_not_killed() {
    let tree = Tree::new("tune-runs");
    let said = tree.root.join("said");
    let list = format!("{PROGRAM} --root {} list 2>>{} >&2", tree.root.display(), said.display());
    let script = tree.script(&format!("[ $m = 5 ] && {list}; echo 100"));
    tree.run(&format!("tune {BDF} --try mrrs=4096 --score x:max -- {script}")).expect_code(0);
    let said = fs::read_to_string(said).unwrap();
    assert!(said.contains("0000:02:00.0") && !said.contains("was killed"), "{said}");
}

#[test]
fn what_is_not_as_tune_left_it_is_named_and_not_touched() {
    type Meanwhile = fn(&Tree);
    let cases: [(Meanwhile, u16, &str); 6] = [
        (
            |tree| tree.set_control(0x1830),
            0x1830,
            "somebody else set it to 0x1000 meanwhile; not touched, it was 0x2000",
        ),
        (|tree| tree.put(&format!("sys/bus/pci/devices/{BDF}/device"), "0xa825"), 0x5830, "another device (144d:a825"),
        (
            |tree| {
                let mut bytes = fs::read(tree.config()).unwrap();
                bytes[0x104] = 8;
                fs::write(tree.config(), bytes).unwrap();
            },
            0x5830,
            "another device (144d:a824, serial number 0000000900000008) is in its place",
        ),
        (
            |tree| tree.put("proc/sys/kernel/random/boot_id", "second"),
            0x5830,
            "the reboot did not put it back: it holds",
        ),
        (
            |tree| {
                tree.put("proc/sys/kernel/random/boot_id", "second");
                tree.set_control(FOUND);
            },
            FOUND,
            "the reboot put it back to 0x2000",
        ),
        (|tree| tree.set_control(0xffff), 0xffff, "it reads all-ones: asleep or gone; it was 0x2000"),
    ];
    for (number, (meanwhile, left, said)) in cases.into_iter().enumerate() {
        let tree = Tree::new(&format!("tune-meanwhile-{number}"));
        tree.killed();
        meanwhile(&tree);
        let ended = tree.run("unbind --restore").expect_code(0);
        assert!(ended.stderr.contains(said), "{said}: {}", ended.stderr);
        assert_eq!((tree.control(), tree.log().exists()), (left, false), "{said}");
    }
}

#[test]
fn a_torn_line_is_of_a_change_that_was_not_made() {
    let tree = Tree::new("tune-torn");
    tree.killed();
    let text = fs::read_to_string(tree.log()).unwrap();
    fs::write(tree.log(), text.clone() + "{\"knob\":\"aspm-l1\",\"pla").unwrap();
    assert!(tree.run("unbind --restore").expect_code(0).stderr.contains("put back from 0x5000 to 0x2000"));
    // Before the first line was whole nothing had been changed.
    fs::write(tree.log(), &text[..20]).unwrap();
    assert_eq!(tree.run("unbind --restore").expect_code(0).stderr, "");
    assert_eq!((tree.control(), tree.log().exists()), (FOUND, false));
}

#[test]
fn kills_at_random_moments_leave_nothing() {
    let tree = Tree::new("tune-kills");
    let script = tree.script("echo $((100 + m))");
    let before = tree.all();
    let mut caught = 0;
    let kills = if std::env::var_os("PROVE").is_some() { 500 } else { 40 };
    for round in 0..kills {
        let mut child = Command::new(PROGRAM)
            .args(["--root", tree.root.to_str().unwrap(), "-q", "tune", BDF, "--score", "x:max"])
            .args(["--try", "mrrs=128,4096", "--try", "aspm-l1", "--try", "irq-cpu=1", "--", &script])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_micros(10_000 + round * 7_919 % 150_000));
        child.kill().unwrap();
        child.wait().unwrap();
        caught += usize::from(tree.all() != before);
        tree.run("unbind --restore").expect_code(0);
        assert_eq!(tree.all(), before, "{round}");
    }
    println!(
        "| kills of `tune` on a tree of files | `make prove-tune` | {kills}, of them {caught} with a setting in force: every file as before |"
    );
    assert!(caught > 5, "{caught}");
}

#[test]
fn a_signal_ends_the_experiment_and_everything_is_put_back() {
    let tree = Tree::new("tune-signal");
    let script = tree.script("[ $m = 5 ] && kill -TERM $PPID; echo 100");
    let before = tree.all();
    let ended = tree.run(&format!("tune {BDF} --try mrrs=4096 --score x:max -j -- {script}")).expect_code(143);
    assert_eq!((tree.all(), tree.log().exists()), (before, false));
    let records = ended.records();
    assert_eq!(verdicts(tune(&records)), [("mrrs=4096".into(), Verdict::Undecided)]);
    assert!(records.last().unwrap().error.as_ref().unwrap().is_interrupted() && tune(&records).notes.is_empty());
}

#[test]
fn a_knob_that_others_change_meanwhile_ends_the_experiment_and_stays() {
    let tree = Tree::new("tune-others");
    let affinity = tree.root.join("proc/irq/40/smp_affinity_list");
    let script = tree.script(&format!("grep -qx 1 {0} && echo 0 >{0}; echo 100", affinity.display()));
    let ended = tree.run(&format!("tune {BDF} --try irq-cpu=1 --score x:max -- {script}")).expect_code(2);
    assert!(ended.stderr.contains("somebody else has changed irq-cpu from 1 to 0 meanwhile"), "{}", ended.stderr);
    assert!(ended.stderr.contains("hint: stop what sets it, such as irqbalance"), "{}", ended.stderr);
    assert_eq!(fs::read_to_string(affinity).unwrap().trim(), "0");
    assert!(ended.stdout.contains("somebody else set it to 0 meanwhile"), "{}", ended.stdout);
}

#[test]
fn what_does_harm_is_put_back_at_once() {
    let tree = Tree::new("tune-harm");
    let errors = tree.root.join(format!("sys/bus/pci/devices/{BDF}/aer_dev_correctable"));
    for (text, why) in [
        (
            format!("[ $m = 5 ] && echo RxErr 1 >{}; echo $((100 + m))", errors.display()),
            "new errors: 0000:02:00.0 RxErr 1",
        ),
        ("[ $m = 5 ] && exit 3; echo 100".to_owned(), "no figure: "),
        ("echo 100; [ $m = 5 ] && echo 200; true".to_owned(), "it printed 2 numbers, not one"),
        ("[ $m = 5 ] || echo 100".to_owned(), "it printed no number"),
    ] {
        tree.put(&format!("sys/bus/pci/devices/{BDF}/aer_dev_correctable"), "RxErr 0");
        let script = tree.script(&text);
        let ended = tree.run(&format!("tune {BDF} --try mrrs=4096 --score x:max -j -- {script}")).expect_code(1);
        let records = ended.records();
        let effect = &tune(&records).effects[0];
        assert_eq!((effect.verdict, effect.comparisons), (Verdict::Harmful, 0), "{effect:?}");
        assert!(effect.why.as_ref().unwrap().contains(why), "{effect:?}");
        assert_eq!(tree.control(), FOUND);
    }
}

#[test]
fn new_errors_of_the_driver_are_harm_and_old_ones_are_not() {
    let tree = Tree::new("tune-driver-errors");
    tree.interface();
    let counter = tree.root.join("sys/class/net/eth0/statistics/rx_errors");
    let add = format!("read n <{0}; echo $((n + 1)) >{0}", counter.display());
    let line = |text: &str| format!("tune {BDF} --try mrrs=4096 --score x:max -j -- {}", tree.script(text));
    let records = tree.run(&line(&format!("[ $m = 5 ] && {{ {add}; }}; echo 100"))).expect_code(1).records();
    let effect = &tune(&records).effects[0];
    assert_eq!((effect.verdict, effect.errors), (Verdict::Harmful, 1), "{effect:?}");
    assert_eq!(effect.why.as_deref(), Some("new errors: eth0 rx_errors 1"));
    let records = tree.run(&line(&format!("{add}; echo 100"))).expect_code(0).records();
    assert_eq!(tune(&records).effects[0].verdict, Verdict::NoDifference);
}

#[test]
fn a_setting_with_which_other_data_are_read_is_harmful() {
    let tree = Tree::new("tune-data");
    let disk = tree.disk();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        // The device: it reads one byte otherwise while its read requests are large.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let byte = if tree.control() >> 12 == 5 { b"y" } else { b"x" };
                OpenOptions::new().write(true).open(&disk).unwrap().write_all_at(byte, 4097).unwrap();
                thread::sleep(Duration::from_millis(2));
            }
        });
        let ended = tree.run(&format!("tune {BDF} --figure readout --try mrrs=4096 --duration 30s -j"));
        stop.store(true, Ordering::Relaxed);
        let records = ended.expect_code(1).records();
        let effect = &tune(&records).effects[0];
        assert_eq!(effect.verdict, Verdict::Harmful, "{effect:?}");
        assert_eq!(effect.why.as_deref(), Some("new errors: bytes that differ 1"));
    });
}

#[test]
fn what_the_whole_machine_follows_is_tried_when_that_is_allowed_and_comes_back() {
    for (knob, file, choices, value) in [
        ("aspm-policy", "sys/module/pcie_aspm/parameters/policy", "[default] performance powersave", "performance"),
        ("huge-pages", "sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never", "always"),
    ] {
        let tree = Tree::new(&format!("tune-{knob}"));
        tree.put(file, choices);
        let found = choices.split(['[', ']']).nth(1).unwrap();
        let now = || fs::read_to_string(tree.root.join(file)).unwrap().trim().to_owned();
        let at = tree.root.join(file).display().to_string();
        let run = |options: &str, text: &str| {
            tree.run(&format!("tune {BDF} --try {knob}={value} {options} --score x:max -j -- {}", tree.script(text)))
        };
        let refused = run("", "echo 100").expect_code(2);
        assert!(refused.stderr.contains("it also changes the whole machine: --shared"), "{}", refused.stderr);
        assert_eq!(now(), choices);
        let records =
            run("--shared", &format!("grep -qx {value} {at} && echo 110 || echo 100")).expect_code(0).records();
        assert_eq!(verdicts(tune(&records)), [(format!("{knob}={value}"), Verdict::Helps)]);
        assert!(tune(&records).effects[0].settings[0].permanent.ends_with(&format!("={value}")));
        assert_eq!(now(), found);
        tree.put(file, choices);
        // It is the machine's, whatever device is there after a kill.
        run("--shared", &format!("grep -qx {value} {at} && kill -9 $PPID; echo 100")).expect_code(-1);
        assert_eq!(now(), value);
        tree.put(&format!("sys/bus/pci/devices/{BDF}/device"), "0xa825");
        tree.run("unbind --restore").expect_code(0);
        assert_eq!(now(), found);
    }
}

#[test]
fn interrupts_of_an_interface_are_held_back_and_its_queues_counted_anew() {
    let tree = Tree::new("tune-ethtool");
    tree.interface();
    let files = ["coalesce", "channels"].map(|name| tree.root.join(format!("sys/class/net/eth0/ethtool-{name}")));
    let words =
        |file: &PathBuf| fs::read_to_string(file).unwrap().split(' ').map(|w| w.parse().unwrap()).collect::<Vec<u32>>();
    let affinity = tree.root.join("proc/irq/40/smp_affinity_list");
    tree.put("proc/irq/40/smp_affinity_list", "1");
    // Vectors that come again go to all CPUs.
    let kernel =
        format!("read -r _ _ _ _ _ _ _ _ q _ <{}; [ $q = 2 ] && echo 0-1 >{}", files[1].display(), affinity.display());
    let look =
        format!("read -r _ u _ <{}; case $u$q in 504) echo 110;; 32) echo 90;; *) echo 100;; esac", files[0].display());
    let script = tree.script(&format!("{kernel}\n{look}"));
    let line = format!("tune {BDF} --try rx-usecs=50 --try queues=2 --score x:max -j -- {script}");
    let ended = tree.run(&line).expect_code(0);
    let records = ended.records();
    let found = tune(&records);
    assert_eq!(verdicts(found), [("rx-usecs=50".into(), Verdict::Helps), ("queues=2".into(), Verdict::Hurts)]);
    assert_eq!(found.effects[0].settings[0].permanent, "a service that runs ethtool -C eth0 rx-usecs 50");
    assert!(found.notes.is_empty(), "{found:?}");
    assert_eq!(
        (words(&files[0])[..2].to_vec(), words(&files[1])[..9].to_vec()),
        (vec![14, 3], vec![60, 0, 0, 1, 8, 0, 0, 1, 4])
    );
    assert_eq!(fs::read_to_string(&affinity).unwrap().trim(), "1");
    let refused = |options: &str, why: &str| {
        let ended = tree.run(&format!("tune {BDF} {options} --score x:max -- {script}")).expect_code(2);
        assert!(ended.stderr.contains(why), "{why}: {}", ended.stderr);
    };
    refused("--try queues=9", "queues: 9 is none of its values: 1 to 8");
    // The connection in use.
    fs::create_dir_all(tree.root.join("sys/bus/pci/drivers/igb")).unwrap();
    symlink("../../drivers/igb", tree.root.join(format!("sys/bus/pci/devices/{BDF}/driver"))).unwrap();
    tree.put("sys/class/net/eth0/flags", "0x1003");
    tree.put("proc/net/route", "Iface Destination\neth0 00000000\n");
    refused(
        "--try queues=2 --shared",
        "queues: it starts the interface anew: network interface eth0 carries the default route",
    );
    refused(
        "--try rx-usecs=50",
        "it also changes what is in use: network interface eth0 carries the default route: --shared",
    );
    tree.put("sys/class/net/eth0/ethtool-coalesce", "14 3 0 0 0 0 0 0 0 0 1");
    refused("--try rx-usecs=50 --shared", "rx-usecs: the driver adapts it to the traffic");
}

#[test]
fn the_queues_of_a_disk_are_shown_with_their_reason() {
    let tree = Tree::new("tune-disk-queues");
    tree.disk();
    ["0", "1"]
        .iter()
        .for_each(|queue| tree.put(&format!("sys/bus/pci/devices/{BDF}/block/nvme0n1/mq/{queue}/cpu_list"), "0"));
    let ended = tree.run(&format!("tune {BDF} -j")).expect_code(0);
    let records = ended.records();
    let knob = tune(&records).knobs.iter().find(|knob| knob.name == "queues").unwrap();
    assert_eq!(knob.value.as_deref(), Some("2"));
    assert!(knob.refused.as_ref().unwrap().starts_with("parameters of the module set it for all disks"), "{knob:?}");
}

#[test]
fn the_type_of_an_iommu_group_changes_and_the_driver_comes_back() {
    let tree = Tree::new("tune-iommu");
    tree.disk();
    let group = "sys/kernel/iommu_groups/7";
    tree.put(&format!("{group}/type"), "DMA");
    let own = tree.root.join(format!("sys/bus/pci/devices/{BDF}"));
    let driver = own.join("driver");
    let bind = || symlink("../../drivers/nvme", &driver).unwrap();
    fs::create_dir_all(tree.root.join("sys/bus/pci/drivers/nvme")).unwrap();
    bind();
    symlink("../../../../kernel/iommu_groups/7", own.join("iommu_group")).unwrap();
    fs::create_dir_all(tree.root.join(group).join("devices").join(BDF)).unwrap();
    let before = tree.all();
    let file = tree.root.join(group).join("type").display().to_string();
    let look = format!("[ -e {} ] || exit 1\nread type <{file}", driver.display());
    let line = |options: &str, text: &str| {
        format!("tune {BDF} {options} --score x:max -j -- {}", tree.script(&format!("{look}\n{text}")))
    };
    let tried = "--try iommu=identity,DMA-FQ";
    let rate = "case $type in identity) echo 110;; DMA-FQ) echo 103;; *) echo 100;; esac";
    let records = tree.run(&line(tried, rate)).expect_code(0).records();
    let found = tune(&records);
    assert_eq!(verdicts(found), [("iommu=identity".into(), Verdict::Helps), ("iommu=DMA-FQ".into(), Verdict::Helps)]);
    assert_eq!((tree.all(), found.notes.len()), (before.clone(), 0));
    // What the driver would set anew is put in force behind it.
    let rate = "[ $m = 5 ] && m=110 || m=100; [ $type = identity ] && m=$((m + 10)); echo $m";
    let records = tree.run(&line("--try mrrs=4096 --try iommu=identity", rate)).expect_code(0).records();
    let together = tune(&records).best.as_ref().unwrap();
    let percent = together.change.unwrap().percent;
    assert!((percent - 20.0).abs() < 1e-9, "{together:?}");
    assert_eq!(tree.all(), before);
    // A kill while it is another type, with and without the driver.
    for is_off in [false, true] {
        tree.run(&line(tried, "[ $type = identity ] && kill -9 $PPID; echo 100")).expect_code(-1);
        assert_eq!(fs::read_to_string(&file).unwrap().trim(), "identity");
        if is_off {
            fs::remove_file(&driver).unwrap();
        }
        let said = tree.run("unbind --restore").expect_code(0).stderr;
        assert!(said.contains("put back from identity to DMA"), "{said}");
        assert_eq!(said.contains("put back from none to nvme"), is_off, "{said}");
        assert_eq!(tree.all(), before);
        assert_eq!(fs::read_link(&driver).unwrap(), Path::new("../../drivers/nvme"));
    }
    let refused = |options: &str, why: &str| {
        let ended = tree.run(&line(options, rate)).expect_code(2);
        assert!(ended.stderr.contains(why), "{why}: {}", ended.stderr);
    };
    let all = tree.run(&line("--try all --dry-run", rate)).expect_code(0);
    assert!(all.stderr.contains("left out: iommu: it disturbs the device: name it"), "{}", all.stderr);
    let read = tree.run(&format!("tune {BDF} {tried}")).expect_code(2);
    assert!(read.stderr.contains("iommu: it disturbs the device: measure by a command"), "{}", read.stderr);
    // In use, in the hands of another function's driver too, and at a port for guests' devices.
    tree.put("proc/self/mountinfo", "1 1 8:0 / /data rw - ext4 /dev/nvme0n1 rw\n");
    refused(tried, "iommu: it needs the driver off: nvme0n1 is mounted at /data");
    tree.put("proc/self/mountinfo", "");
    let other = "sys/bus/pci/devices/0000:02:00.1";
    for (name, text) in [("vendor", "0x144d"), ("device", "0xa824"), ("class", "0x010802"), ("resource", "0x0 0x0 0x0")]
    {
        tree.put(&format!("{other}/{name}"), text);
    }
    fs::create_dir_all(tree.root.join(group).join("devices/0000:02:00.1")).unwrap();
    refused(tried, "iommu: it also changes 0000:02:00.1 in IOMMU group 7: --shared allows that");
    tree.run(&line("--try iommu=identity --shared", rate)).expect_code(0);
    symlink("../../drivers/nvme", tree.root.join(other).join("driver")).unwrap();
    tree.put(&format!("{other}/sriov_numvfs"), "2");
    refused("--try iommu --shared", "iommu: it needs the driver off: its virtual functions (SR-IOV) are on");
    tree.put(&format!("sys/bus/pci/devices/{BDF}/removable"), "removable");
    refused("--try iommu=identity --shared", "iommu: it is at an untrusted port");
}

#[test]
fn the_payload_size_changes_on_the_whole_path_while_drivers_are_off() {
    let tree = Tree::new("tune-payload");
    tree.port();
    tree.set_control(FOUND & !0xe0);
    fs::create_dir_all(tree.root.join("sys/bus/pci/drivers/nvme")).unwrap();
    let driver = tree.root.join(format!("sys/bus/pci/devices/{BDF}/driver"));
    symlink("../../drivers/nvme", &driver).unwrap();
    let port = tree.root.join("sys/bus/pci/devices/0000:00:02.0/config");
    let set_port = |bits: u8| OpenOptions::new().write(true).open(&port).unwrap().write_all_at(&[bits], 0x48).unwrap();
    let mixed = tree.run(&format!("tune {BDF} -j")).expect_code(0).records();
    let knob = tune(&mixed).knobs.iter().find(|knob| knob.name == "mps").unwrap();
    assert_eq!(knob.value.as_deref(), Some("256 and 128"));
    assert_eq!(knob.refused.as_deref(), Some("its path holds several sizes"));
    set_port(0x10);
    let bound = || fs::symlink_metadata(&driver).unwrap().modified().unwrap();
    let (before, first) = (tree.all(), bound());
    let ports = format!("[ $(($bits / 32)) = $(($(od -An -tu1 -j72 -N1 {}) / 32)) ] || exit 1\n", port.display());
    let line = |options: &str, text: &str| {
        format!("tune {BDF} --try mps={options} --score x:max -j -- {}", tree.script(&(ports.clone() + text)))
    };
    let rate = "[ $(($bits / 32)) = 1 ] && rate=110 || rate=100; [ $m = 5 ] && rate=$((rate + 10)); echo $rate";
    let records = tree.run(&line("256 --try mrrs=4096", rate)).expect_code(0).records();
    let best = tune(&records).best.as_ref().unwrap();
    assert_eq!(verdicts(tune(&records)), [("mps=256".into(), Verdict::Helps), ("mrrs=4096".into(), Verdict::Helps)]);
    assert!((best.change.unwrap().percent - 20.0).abs() < 1e-9, "{best:?}");
    assert_eq!(tree.all(), before);
    assert!(bound() > first, "the driver was never off");
    let refused = |options: &str, why: &str| {
        let ended = tree.run(&line(options, rate)).expect_code(2);
        assert!(ended.stderr.contains(why), "{why}: {}", ended.stderr);
    };
    refused("512", "mps: 512 is none of its values: 128, 256");
    // Kills: with both ends set, between the two, and where somebody else has set one since.
    for (meanwhile, said) in [(None, "from 0x0020 to 0x0000"), (Some(0x10), "from 0x0000 and 0x0020 to 0x0000")] {
        tree.run(&line("256", "[ $(($bits / 32)) = 1 ] && kill -9 $PPID; echo 100")).expect_code(-1);
        assert_eq!(tree.control() & 0xe0, 0x20);
        meanwhile.into_iter().for_each(set_port);
        let restored = tree.run("unbind --restore").expect_code(0).stderr;
        assert!(restored.contains(said), "{restored}");
        assert_eq!(tree.all(), before);
    }
    tree.run(&line("256", "[ $(($bits / 32)) = 1 ] && kill -9 $PPID; echo 100")).expect_code(-1);
    set_port(0x50);
    let restored = tree.run("unbind --restore").expect_code(0).stderr;
    assert!(restored.contains("somebody else set it to 0x0040 and 0x0020"), "{restored}");
    set_port(0x10);
    tree.set_control(FOUND & !0xe0);
    // Another function below the same port.
    let other = "sys/devices/pci0000:00/0000:00:02.0/0000:02:00.1";
    for (file, text) in [("vendor", "0x144d"), ("device", "0xa824"), ("class", "0x010802"), ("resource", "0x0 0x0 0x0")]
    {
        tree.put(&format!("{other}/{file}"), text);
    }
    symlink(format!("../../../../{other}"), tree.root.join("sys/bus/pci/devices/0000:02:00.1")).unwrap();
    refused("256 --shared", "mps: 0000:02:00.1 has no PCI Express capability, or does not show it");
    fs::copy(tree.config(), tree.root.join(other).join("config")).unwrap();
    refused("256", "mps: it also changes 0000:02:00.1 below its root port: --shared allows that");
    symlink("../../drivers/nvme", tree.root.join(other).join("driver")).unwrap();
    // Its driver begins anew too.
    tree.put(&format!("{other}/power/control"), "on");
    let before = tree.all();
    let power = tree.root.join(other).join("power/control").display().to_string();
    tree.run(&line("256 --shared", &format!("echo auto >{power}; {rate}"))).expect_code(0);
    assert_eq!(tree.all(), before);
    tree.put(&format!("{other}/sriov_numvfs"), "2");
    refused("256 --shared", "mps: it needs the driver off: its virtual functions (SR-IOV) are on");
}

#[test]
fn a_vector_goes_back_to_the_cpu_that_it_was_on() {
    let tree = Tree::new("tune-vector");
    let (list, effective) = (tree.root.join("proc/irq/40/smp_affinity_list"), "proc/irq/40/effective_affinity_list");
    tree.put(effective, "0");
    let before = tree.all();
    // As x86 does: a list that has the CPU leaves the vector where it is.
    let cpu = format!(
        "read list <{}; read cpu <{effective}; case $list in *-*) ;; *) cpu=$list; echo $cpu >{effective};; esac",
        list.display(),
        effective = tree.root.join(effective).display()
    );
    let line = |text: &str| {
        format!("tune {BDF} --try irq-cpu=1 --score x:max -j -- {}", tree.script(&format!("{cpu}; {text}")))
    };
    let rate = "[ $cpu = 1 ] && echo 110 || echo 100";
    let records = tree.run(&line(rate)).expect_code(0).records();
    assert_eq!(verdicts(tune(&records)), [("irq-cpu=1".into(), Verdict::Helps)]);
    assert!((tune(&records).effects[0].change.unwrap().percent - 10.0).abs() < 1e-9, "{:?}", tune(&records));
    tree.put(effective, "0");
    assert_eq!(tree.all(), before);
    for (is_tried, said) in [(true, "put back from 1 to 0-1"), (false, "put back from 0 to 0-1")] {
        let when = if is_tried { "[ $cpu = 1 ]" } else { "[ $list = 0 ]" };
        tree.run(&line(&format!("{when} && kill -9 $PPID; echo 100"))).expect_code(-1);
        assert_eq!(fs::read_to_string(&list).unwrap().trim(), if is_tried { "1" } else { "0" });
        let restored = tree.run("unbind --restore").expect_code(0).stderr;
        assert!(restored.contains(said), "{restored}");
        tree.put(effective, "0");
        assert_eq!(tree.all(), before);
    }
    // Somebody else moves it.
    let ended = tree.run(&line(&format!("[ $cpu = 1 ] && echo 0,1 >{}; echo 100", list.display()))).expect_code(2);
    assert!(ended.stderr.contains("irq-cpu"), "{}", ended.stderr);
    assert_eq!(fs::read_to_string(&list).unwrap().trim(), "0,1");
}

#[test]
fn extended_tags_are_taken_away_while_the_driver_is_off() {
    let tree = Tree::new("tune-tags");
    tree.set_control(FOUND | 0x100);
    fs::create_dir_all(tree.root.join("sys/bus/pci/drivers/nvme")).unwrap();
    let driver = tree.root.join(format!("sys/bus/pci/devices/{BDF}/driver"));
    symlink("../../drivers/nvme", &driver).unwrap();
    let bound = || fs::symlink_metadata(&driver).unwrap().modified().unwrap();
    let (before, first) = (tree.all(), bound());
    let script = tree.script("[ $(($2 & 1)) = 0 ] && echo 110 || echo 100");
    let records = tree.run(&format!("tune {BDF} --try ext-tags --score x:max -j -- {script}")).expect_code(0).records();
    assert_eq!(verdicts(tune(&records)), [("ext-tags=off".into(), Verdict::Helps)]);
    assert_eq!(tree.all(), before);
    assert!(bound() > first, "the driver was never off");
    let script = tree.script("[ $(($2 & 1)) = 0 ] && kill -9 $PPID; echo 100");
    tree.run(&format!("tune {BDF} --try ext-tags --score x:max -j -- {script}")).expect_code(-1);
    assert_eq!(tree.control(), FOUND);
    tree.run("unbind --restore").expect_code(0);
    assert_eq!(tree.all(), before);
}

#[test]
fn a_value_that_the_driver_rounds_is_refused_and_put_back() {
    let tree = Tree::new("tune-rounded");
    // It writes 3 otherwise.
    tree.replace_affinity("/proc/self/coredump_filter");
    tree.put("sys/devices/system/cpu/online", "0-3");
    let script = tree.script("[ $m = 5 ] && echo 110 || echo 100");
    let tried = "--try irq-cpu=3 --try mrrs=4096 --score x:max -j";
    let line = format!("{PROGRAM} --root {} tune {BDF} {tried} -- {script}", tree.root.display());
    let shell = format!("echo 1 >/proc/self/coredump_filter; exec {line}");
    let ended = Ended::of(Command::new("sh").args(["-c", &shell]).output().unwrap()).expect_code(0);
    let records = ended.records();
    let found = tune(&records);
    assert_eq!(verdicts(found), [("irq-cpu=3".into(), Verdict::Refused), ("mrrs=4096".into(), Verdict::Helps)]);
    assert!(found.effects[0].why.as_ref().unwrap().contains("it holds 00000003 afterwards"), "{found:?}");
    assert!(found.notes.is_empty(), "{found:?}");
}

#[test]
fn a_knob_that_cannot_be_read_keeps_no_other_from_being_tried() {
    let tree = Tree::new("tune-unread");
    tree.set_control(0xffff);
    let affinity = tree.root.join("proc/irq/40/smp_affinity_list");
    let script = tree.script(&format!("grep -qx 1 {} && echo 110 || echo 100", affinity.display()));
    let records =
        tree.run(&format!("tune {BDF} --try irq-cpu=1 --score x:max -j -- {script}")).expect_code(0).records();
    assert_eq!(verdicts(tune(&records)), [("irq-cpu=1".into(), Verdict::Helps)]);
    let refused = tree.run(&format!("tune {BDF} --try mrrs=4096 --score x:max -- {script}")).expect_code(2);
    assert!(
        refused.stderr.contains("mrrs: it does not answer") || refused.stderr.contains("all-ones"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_workload_that_never_gives_a_figure_ends_the_experiment() {
    let tree = Tree::new("tune-fails");
    let script = tree.script("echo no figure; exit 0");
    let ended = tree.run(&format!("tune {BDF} --try mrrs=4096 --score x:max -- {script}")).expect_code(2);
    assert!(ended.stderr.contains("3 blocks in a row gave no figure with everything as it was"), "{}", ended.stderr);
    assert_eq!(tree.control(), FOUND);
}

#[test]
fn a_knob_that_the_kernel_does_not_take_is_refused_and_the_others_go_on() {
    let tree = Tree::new("tune-refused");
    // It takes numbers, and no lists.
    tree.replace_affinity("/proc/self/oom_score_adj");
    let script = tree.script("[ $m = 5 ] && echo 110 || echo 100");
    let line = format!("tune {BDF} --try irq-cpu=0-1 --try mrrs=4096 --score x:max -j -- {script}");
    let ended = tree.run(&line).expect_code(0);
    let records = ended.records();
    let found = tune(&records);
    assert_eq!(verdicts(found), [("irq-cpu=0-1".into(), Verdict::Refused), ("mrrs=4096".into(), Verdict::Helps)]);
    assert!(found.effects[0].why.as_ref().unwrap().contains("Invalid argument"), "{found:?}");
}

#[test]
fn one_experiment_runs_at_a_time_and_only_in_a_folder_of_its_own() {
    let tree = Tree::new("tune-folders");
    let script = tree.script("echo 100");
    let line = format!("tune {BDF} --try mrrs=4096 --score x:max -- {script}");
    let folder = tree.log().parent().unwrap().to_owned();
    let elsewhere = tree.root.join("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    fs::set_permissions(&elsewhere, PermissionsExt::from_mode(0o700)).unwrap();
    fs::create_dir_all(folder.parent().unwrap()).unwrap();
    symlink(&elsewhere, &folder).unwrap();
    let ended = tree.run(&line).expect_code(2);
    assert!(ended.stderr.contains("no link is followed here"), "{}", ended.stderr);
    fs::remove_file(&folder).unwrap();
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
    let ended = tree.run(&line).expect_code(2);
    assert!(ended.stderr.contains("make it root's own with mode 700"), "{}", ended.stderr);
    fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
    let target = tree.root.join("target");
    symlink(&target, tree.log()).unwrap();
    tree.run(&line).expect_code(2);
    assert!(!target.exists(), "a link was followed");
    fs::remove_file(tree.log()).unwrap();
    // The experiment starts another one.
    let inner = format!("{PROGRAM} --root {} tune {BDF} --try mrrs=4096 --score x:max -- true", tree.root.display());
    let script = tree.script(&format!("{inner} 2>&1 | grep -o 'another pciescope tune (process [0-9]*)' >&2; exit 1"));
    let ended = tree.run(&format!("tune {BDF} --try mrrs=4096 --score x:max -- {script}")).expect_code(2);
    assert!(ended.stderr.contains("another pciescope tune (process"), "{}", ended.stderr);
    assert_eq!(tree.control(), FOUND);
    // Another place.
    let elsewhere = elsewhere.display();
    let script = tree.script(&format!("ls {elsewhere} | grep -q tune.jsonl && echo 100"));
    tree.run(&format!("tune {BDF} --try mrrs=4096 --state-dir {elsewhere} --score x:max -- {script}")).expect_code(0);
}

#[test]
fn what_cannot_be_tried_is_refused_with_its_reason() {
    let tree = Tree::new("tune-refusals");
    let script = tree.script("echo 100");
    let before = tree.all();
    let tried = |options: &str| format!("tune {BDF} {options} --score x:max -- {script}");
    for (line, why) in [
        (tried("--try mps=512"), "mps: it has no link"),
        (tried("--try ext-tags=on"), "ext-tags: it is off, and the path may not take 8-bit tags"),
        (tried("--try governor=performance"), "governor: it also changes the whole machine: --shared allows that"),
        (tried("--try scheduler=none"), "scheduler: this device or machine does not have it"),
        (tried("--try mrrs=8192"), "mrrs: 8192 is none of its values: 128 to 4096"),
        (tried("--try mrrs=512"), "mrrs: it is 512 already"),
        (tried("--try irq-cpu=7"), "irq-cpu: 7 is none of its values: CPUs of 0-1"),
        (tried("--try aspm-l1=maybe"), "aspm-l1: maybe is none of its values: on, off"),
        (tried("--try numa"), "numa: the machine has one node"),
        (tried("--try turbo"), "\"turbo\" is no knob; the knobs are all, iommu, mps, ext-tags, mrrs"),
        (tried("--try mrrs="), "write a knob and its values"),
        (tried("--try mrrs=4096 --least 0"), "it is above 0 and below 100"),
        (tried("--try mrrs=4096").replace("x:max", "x:best"), "write a name and which way is better"),
        (format!("tune {BDF} --try mrrs=4096 --score x:max"), "<CMD>"),
        (format!("tune {BDF} --try mrrs=4096 -- {script}"), "--score"),
        (format!("tune {BDF} --dry-run"), "--try"),
        ("tune 0000:7f:1f.7".to_owned(), "no such PCI function"),
        (format!("tune {BDF} --backend fake --try mrrs=4096 --score x:max -- true"), "takes no workload"),
    ] {
        let ended = tree.run(&line).expect_code(2);
        assert!(ended.stderr.contains(why) && ended.stderr.contains("hint: "), "{line}: {}", ended.stderr);
    }
    assert_eq!(tree.all(), before);
}

#[test]
fn registers_that_may_not_be_written_say_why() {
    for (change, why) in [
        ((|tree| tree.put("sys/kernel/security/lockdown", "none [integrity]")) as fn(&Tree), "kernel lockdown forbids"),
        (|tree| tree.put(&format!("sys/bus/pci/devices/{BDF}/physfn/x"), ""), "it is that of the physical function"),
        (|tree| tree.put(&format!("sys/bus/pci/devices/{BDF}/class"), "0x060400"), "it is a bridge"),
        (|tree| fs::write(tree.config(), [0xff; 256]).unwrap(), "all-ones"),
        (|tree| fs::write(tree.config(), [0; 64]).unwrap(), "only the first 64 bytes"),
        (|tree| tree.set_control(FOUND & !0x10), "it is off: it is only taken away, and given back"),
        (
            |tree| {
                fs::create_dir_all(tree.root.join("sys/bus/pci/drivers/nvme")).unwrap();
                let link = tree.root.join(format!("sys/bus/pci/devices/{BDF}/driver"));
                symlink("../../drivers/nvme", link).unwrap();
                tree.put(&format!("sys/bus/pci/devices/{BDF}/sriov_numvfs"), "1");
                tree.set_control(FOUND | 0x100);
            },
            "it needs the driver off: its virtual functions (SR-IOV) are on",
        ),
    ] {
        let tree = Tree::new("tune-registers");
        change(&tree);
        let ended = tree.run(&format!("tune {BDF} --json")).expect_code(0);
        let records = ended.records();
        let refused: Vec<&String> = tune(&records).knobs.iter().filter_map(|knob| knob.refused.as_ref()).collect();
        assert!(refused.iter().any(|text| text.contains(why)), "{why}: {refused:?}");
    }
}

#[test]
fn the_record_becomes_a_page() {
    let at = folder("tune-page");
    let file = at.join("tune.jsonl");
    let line = format!("tune nvme0n1 --backend fake --try mrrs=4096 --try aspm-l1 -q -o {}", file.display());
    run(&line).expect_code(0);
    let page = at.join("tune.html");
    run(&format!("report {} -o {}", file.display(), page.display())).expect_code(0);
    let page = fs::read_to_string(page).unwrap();
    for word in ["Best together", "mrrs 4096", "no difference", "setpci"] {
        assert!(page.contains(word), "{word} is not in the page");
    }
}
