//! The surfaces of the module and the program: Secure Boot, hostile callers, the seed's text nodes, registers, list.

use crate::support::{PATIENCE, RECORDS, Rig, merged, seen, vector};
use pciescope_core::why::Cause;
use pciescope_lab::vm::Kernel;

pub fn under_lockdown_vfio_measures_and_each_refused_backend_says_why() {
    let rig =
        Rig::boot_with(Kernel::V6_12, |builder| builder.iommu(true).module("vfio-pci").cmdline("lockdown=integrity"));
    assert!(rig.must("cat /sys/kernel/security/lockdown").contains("[integrity]"));
    // An unsigned module is refused by the kernel; the hint leads to vfio.
    let refused = rig.vm.run("insmod /lib/pciescope/pcilat.ko");
    assert_ne!(refused.status, 0);
    let kmod = rig.pciescope(&format!("latency mmio {} --backend kmod --bind --count 10", rig.bdf));
    assert_eq!(kmod.output.status, 2);
    assert!(kmod.output.stderr.contains("lockdown") && kmod.output.stderr.contains("vfio"), "{}", kmod.output.stderr);
    let resource = rig.pciescope(&format!("latency mmio {} --backend resource --count 10", rig.bdf));
    assert_eq!(resource.output.status, 2);
    let why = &resource.output.stderr;
    assert!(why.contains("locked down") && why.contains("vfio"), "{why}");

    rig.tell("reset");
    rig.tell("read-delay fixed 30us");
    let measured = rig.pciescope(&format!("latency mmio {} --bind --backend vfio --count 500", rig.bdf));
    let all = merged(&measured.expect(0, "mmio-read"), "latency");
    assert!(all.min_ns().unwrap() >= 30e3);
    rig.tell("read-delay none");
    let irq = rig.pciescope(&format!(
        "latency irq {} --bind --backend vfio --vectors 0-1 --cpus 0-1 --count 50 --raised-by hardware",
        rig.bdf
    ));
    assert_eq!(merged(&irq.expect(0, "irq-hardware"), "trigger_to_handler").count(), 2 * 2 * 50);
    // Configuration reads of user space are still allowed.
    rig.pciescope(&format!("latency path {} --count 20", rig.bdf)).expect(0, "config-read");
    causes_that_cannot_be_looked_at_are_not_named(&rig);
    rig.finish();
}

/// As root and as a user who may not trace, then as root under the stricter lockdown.
fn causes_that_cannot_be_looked_at_are_not_named(rig: &Rig) {
    let bdf = &rig.bdf;
    rig.must(&format!(
        "pciescope bind {bdf} --driver vfio-pci && chmod 666 /dev/vfio/*; sysctl -w kernel.perf_event_paranoid=3"
    ));
    let causes_and_missing = |who: &str| {
        let run =
            format!("{who} pciescope latency mmio {bdf} --backend vfio --cpus 1 --count 2000 --why -j >{RECORDS}");
        let measured = rig.sh(&run);
        let records = measured.expect(0, "mmio-read");
        let why = records[0].why.clone().expect("--why gives causes");
        assert!(why.slowest.len() > 10, "{why:?}");
        (why.slowest.iter().map(|sample| sample.cause()).collect::<Vec<_>>(), why.missing.join("; "))
    };
    let is_named = |causes: &[Cause]| causes.iter().any(|cause| *cause != Cause::Unknown);
    let (causes, missing) = causes_and_missing("");
    assert!(is_named(&causes) && !missing.contains("tracepoints"), "{causes:?}, not looked at: {missing}");
    let (causes, missing) = causes_and_missing("setpriv --reuid 65534 --regid 65534 --clear-groups");
    assert!(!is_named(&causes) && missing.contains("tracepoints: tracefs cannot be read"), "{causes:?}, {missing}");
    // The stricter lockdown leaves root its tracepoints.
    rig.must("echo confidentiality >/sys/kernel/security/lockdown");
    let (causes, missing) = causes_and_missing("");
    assert!(is_named(&causes) && !missing.contains("tracepoints"), "{causes:?}, not looked at: {missing}");
}

pub fn the_modules_surfaces_take_what_is_right_and_refuse_the_rest(rig: &Rig, kernel: Kernel) {
    match kernel {
        // Debian 11 is near the kernel that the seed was written for.
        Kernel::V5_10 => the_seeds_text_nodes_work_as_its_users_know_them(rig),
        Kernel::V6_1 => {
            what_carries_a_mounted_file_system_is_refused(rig);
            what_is_in_use_is_taken_by_two_words_only(rig);
        }
        Kernel::V6_12 | Kernel::V6_12Pages16k => {
            the_seeds_text_nodes_work_as_its_users_know_them(rig);
            a_bridge_and_an_unknown_device_are_refused(rig);
            a_batch_of_slow_reads_leaves_the_cpu_to_others(rig);
        }
        Kernel::Newest => {
            list_shows_the_standard_machine_and_says_what_can_be_measured(rig);
            a_device_that_lost_its_bars_is_not_measured(rig);
        }
    }
    rig.must(&format!("pciescope bind {} --driver pcilat", rig.bdf));
    let output = rig.run_within(&format!("/lib/pciescope/pcilat_abuse {}", rig.bdf), PATIENCE);
    let passed = output.stdout.lines().filter(|line| line.starts_with("ok ")).count();
    assert!(output.is_success(), "{kernel}: {}\n{}", output.stdout, output.stderr);
    assert!(passed >= 61, "{kernel}: only {passed} checks ran:\n{}", output.stdout);
    // The module measures as before.
    rig.pciescope(&format!("latency mmio {} --count 100", rig.bdf)).expect(0, "mmio-read");
    rig.must(&format!("pciescope unbind {}", rig.bdf));
}

fn the_seeds_text_nodes_work_as_its_users_know_them(rig: &Rig) {
    rig.must(&format!("pciescope bind {} --driver pcilat", rig.bdf));
    let class = format!("/sys/class/pcilat/{}", rig.bdf);
    let nodes = format!("/dev/pcilatdriver/{}", rig.bdf);
    let status = rig.must(&format!("cat {class}/pcilat_iomem"));
    for part in [
        "IOMem Read Latency Data",
        "Available BARs: 0 2",
        "capacity=100000",
        "run [bar] [iterations] [ndelay_ns] | clear",
        "No samples collected",
    ] {
        assert!(status.contains(part), "{part:?} is missing:\n{status}");
    }
    rig.tell("reset");
    rig.must(&format!("echo 'run 0 1000 800' >{class}/pcilat_iomem"));
    assert_eq!(seen(&rig.ledger(), "reads", 0, 0, 4), 4000, "1000 reads on each of 4 CPUs");
    assert!(rig.must(&format!("cat {class}/pcilat_iomem")).contains("count=4000"));
    rig.must(&format!("cat {nodes}/iomem >/tmp/iomem.txt"));
    assert_eq!(rig.must("grep -c '^[0-9]' /tmp/iomem.txt").trim(), "4000");
    // What the nodes give, `import` takes.
    let imported = rig.sh(&format!("pciescope import /tmp/iomem.txt --format iomem -o {RECORDS} >/dev/null"));
    assert_eq!(imported.output.status, 0, "{}", imported.output.stderr);
    let samples: u64 = imported.records.iter().filter_map(|r| r.histograms.get("latency")).map(|h| h.count()).sum();
    assert_eq!(samples, 4000);
    rig.must(&format!("echo clear >{class}/pcilat_iomem"));
    assert!(rig.must(&format!("cat {class}/pcilat_iomem")).contains("count=0"));

    rig.must(&format!("echo 1 >{class}/pcilat_interrupt; echo 'swloop 100 0xf' >{class}/pcilat_interrupt"));
    let status = rig.must(&format!("cat {class}/pcilat_interrupt"));
    assert!(status.contains("Interrupt Latency Data (1600 samples)") && status.contains("Enabled: 1"), "{status}");
    rig.must(&format!("cat {nodes}/interrupt >/tmp/irq.txt"));
    let imported = rig.sh(&format!("pciescope import /tmp/irq.txt --format interrupt -o {RECORDS} >/dev/null"));
    let samples: u64 =
        imported.records.iter().filter_map(|r| r.histograms.get("trigger_to_handler")).map(|h| h.count()).sum();
    assert_eq!((imported.output.status, samples), (0, 1600), "{}", imported.output.stderr);
    rig.tell("reset");
    rig.must(&format!("echo clear >{class}/pcilat_interrupt; echo 'iterations 50' >{class}/pcilat_interrupt; echo trigger >{class}/pcilat_interrupt"));
    assert!(rig.must(&format!("cat {class}/pcilat_interrupt")).contains("Batch iterations: 50"));

    // One interrupt on each vector, where its smp_affinity_list sends it.
    let moved = "for i in $(sed -n 's/.*IRQs: //p' pcilat_interrupt); do echo 2 >/proc/irq/$i/smp_affinity_list; done";
    rig.must(&format!("cd {class}; {moved}; echo clear >pcilat_interrupt; echo trigger >pcilat_interrupt"));
    let cpus = rig.must(&format!("grep '^[0-9]' {nodes}/interrupt | cut -d' ' -f4 | sort | uniq -c"));
    assert!(cpus.ends_with(" 2") && cpus.lines().count() == 1, "{cpus}");
    what_software_raises_goes_to_the_cpu_and_vector_that_were_asked_for(rig, &class, &nodes);
    assert!(rig.must("dmesg").contains(&format!("pcilat {}: ready: usable BARs: 0 2 4;", rig.bdf)));

    rig.must(&format!(
        "echo 0x4 >{class}/pcilat_devreg; echo '0x8 0x1234' >{class}/pcilat_devreg; echo 0x8 >{class}/pcilat_devreg"
    ));
    let log = rig.must(&format!("cat {nodes}/devreg"));
    assert!(log.contains("read 0x4 = 0x00000001 rc=0") && log.contains("read 0x8 = 0x00001234 rc=0"), "{log}");
    for bad in ["run 9", "run 0 0", "run x", "walk", ""] {
        assert!(!rig.vm.run(&format!("echo '{bad}' >{class}/pcilat_iomem")).is_success(), "{bad:?} was taken");
    }
    let raised = || -> u32 { rig.must(&format!("grep -c '^[0-9]' {nodes}/interrupt || true")).parse().unwrap() };
    // Where the kernel grants fewer vectors than the device has, as many are raised.
    rig.must(&format!("pciescope unbind {}; rmmod pcilat; modprobe pcilat max_vectors=3", rig.bdf));
    rig.must(&format!("pciescope bind {} --driver pcilat && echo trigger >{class}/pcilat_interrupt", rig.bdf));
    assert_eq!(raised(), 3);
    // One that is lost keeps none of the others from being raised.
    rig.tell("reset");
    rig.tell("irq-lose every 1");
    let lost = rig.vm.run(&format!("echo trigger >{class}/pcilat_interrupt"));
    rig.tell("irq-lose none");
    let ledger = rig.ledger();
    assert!(!lost.is_success() && (0..3).all(|number| vector(&ledger, number, "lost") > 0), "{lost:?}: {ledger}");
    rig.must(&format!("pciescope unbind {}; rmmod pcilat; modprobe pcilat", rig.bdf));
}

fn what_software_raises_goes_to_the_cpu_and_vector_that_were_asked_for(rig: &Rig, class: &str, nodes: &str) {
    let irqs = rig.must(&format!("sed -n 's/.*IRQs: //p' {class}/pcilat_interrupt"));
    let irqs: Vec<&str> = irqs.split_whitespace().collect();
    // The CPUs and Linux interrupts of the samples, in their order.
    let raised = |command: &str| -> Vec<(u32, String)> {
        rig.must(&format!("cd {class}; echo clear >pcilat_interrupt; echo '{command}' >pcilat_interrupt"));
        let samples = rig.must(&format!("grep '^[0-9]' {nodes}/interrupt | cut -d' ' -f4,5"));
        samples
            .lines()
            .map(|line| line.split_once(' ').unwrap_or_else(|| panic!("{command}: {samples}")))
            .map(|(cpu, irq)| (cpu.parse().unwrap(), irq.to_owned()))
            .collect()
    };
    // By vector, and by the interrupt's number.
    for (cpu, what, vector) in [(3, "1", 1), (1, irqs[2], 2)] {
        let command = format!("swtrigger {cpu} {what}");
        assert_eq!(raised(&command), [(cpu, irqs[vector].to_owned())], "{command}");
    }
    // The kernel's log says which interrupt a vector has.
    let log = rig.must("dmesg");
    for (vector, irq) in irqs.iter().enumerate() {
        assert!(log.contains(&format!("pcilat {}: vector {vector}: IRQ {irq}\n", rig.bdf)), "vector {vector}:\n{log}");
    }
    // A mask of 0 is the first vector.
    let first = raised("swloop 10 0");
    assert!(first.len() == 4 * 10 && first.iter().all(|(_, irq)| irq == irqs[0]), "{first:?}");
    // Repeated: x86 makes no second move of an interrupt before a tick has cleaned up the first.
    let verbs = [("swmatrix", true), ("swloop", false)];
    for (verb, takes_turns) in verbs.into_iter().cycle().take(8) {
        let samples = raised(&format!("{verb} 10 0x3"));
        assert_eq!(samples.len(), 4 * 2 * 10, "{verb}");
        for cpu in 0..4 {
            for irq in &irqs[..2] {
                let count = samples.iter().filter(|(on, of)| (*on, of.as_str()) == (cpu, *irq)).count();
                assert_eq!(count, 10, "{verb}: CPU {cpu}, interrupt {irq}");
            }
        }
        // One visits the CPUs in turn, the other takes one after the other.
        let visits = 1 + samples.windows(2).filter(|pair| pair[0].0 != pair[1].0).count();
        assert_eq!(visits > 4, takes_turns, "{verb}: {visits} visits of 4 CPUs");
    }
}

/// By every backend, with checks.
pub fn registers_are_read_and_written(rig: &Rig) {
    for options in ["--backend kmod --bind", "--backend vfio --bind", "--backend resource"] {
        rig.tell("reset");
        let reg = |args: &str| rig.vm.run(&format!("pciescope reg {args} {options}"));
        let bdf = &rig.bdf;
        let id = reg(&format!("read {bdf} 0:0"));
        assert!(id.stdout.contains("0x5c0e1a7e"), "{options}: {id:?}");
        assert!(reg(&format!("write {bdf} 0:8 0xdeadbeef")).is_success(), "{options}");
        assert_eq!(seen(&rig.ledger(), "writes", 0, 8, 4), 1, "{options}");
        for (bad, why) in [
            (format!("read {bdf} 0:0x10000"), "outside"),
            (format!("read {bdf} 0:0x2"), "multiple"),
            (format!("read {bdf} 1:0"), "BAR1"),
            (format!("write {bdf} 0:8 0x100000000"), "0x100000000"),
        ] {
            let refused = reg(&bad);
            assert_eq!(refused.status, 2, "{options}: {bad}: {refused:?}");
            assert!(refused.stderr.contains(why), "{options}: {bad}: {}", refused.stderr);
        }
    }
}

fn list_shows_the_standard_machine_and_says_what_can_be_measured(rig: &Rig) {
    let list = rig.must("pciescope list");
    for name in ["lab0", "e1000e0", "igb0", "nvme0", "edu0", "edu1", "ivshmem0"] {
        let bdf = rig.vm.address(name);
        assert!(list.contains(&bdf), "{name} at {bdf} is missing:\n{list}");
    }
    let nvme = rig.vm.address("nvme0");
    // The NVMe drive has a register that is known to be harmless, by its class.
    let measured = rig.pciescope(&format!("latency mmio {nvme} --bind --count 100"));
    assert_eq!(merged(&measured.expect(0, "mmio-read"), "latency").count(), 400);
}

/// The guest's files come by 9p (lab/src/vm/builder.rs); to take its transport would hang the guest.
fn what_carries_a_mounted_file_system_is_refused(rig: &Rig) {
    for bdf in ["0000:00:1d.0", "0000:00:1e.0"] {
        for verb in [format!("bind {bdf}"), format!("latency mmio {bdf} --bind --count 10")] {
            let refused = rig.vm.run(&format!("pciescope {verb}"));
            assert_eq!(refused.status, 2, "{verb}: {}", refused.stderr);
            assert!(
                refused.stderr.contains("it is the carrier of the 9p file system at /"),
                "{verb}: {}",
                refused.stderr
            );
            assert!(!refused.stderr.contains("--force"), "{verb}: {}", refused.stderr);
        }
    }
    rig.must("ls /host /lab >/dev/null");
}

/// By a reset that nobody announced. Reads then go to nobody, who answers at once.
fn a_device_that_lost_its_bars_is_not_measured(rig: &Rig) {
    let bdf = &rig.bdf;
    rig.must(&format!("pciescope bind {bdf} --driver pcilat"));
    let port = rig.must(&format!("basename $(dirname $(readlink -f /sys/bus/pci/devices/{bdf}))"));
    let port = port.trim();
    rig.must(&format!(
        "setpci -s {port} BRIDGE_CONTROL=40:40; sleep 0.2; setpci -s {port} BRIDGE_CONTROL=0:40; sleep 0.5"
    ));
    rig.must(&format!("setpci -s {bdf} COMMAND=6"));
    rig.tell("reset");
    let refused = |backend: &str, why: &str| {
        let run = rig.vm.run(&format!("pciescope latency mmio {bdf} --backend {backend} --count 100"));
        assert!(run.status == 2 && run.stderr.contains(why), "{backend}: {}: {}", run.status, run.stderr);
    };
    refused("kmod", "was reset");
    rig.must(&format!("pciescope unbind {bdf}"));
    refused("kmod --bind", "Input/output error");
    assert!(rig.must("dmesg").contains("BAR0 has lost its address"));
    refused("resource", "BAR0 has lost its address");
    assert_eq!(seen(&rig.ledger(), "reads", 0, 0, 4), 0);
    rig.must(&format!("echo 1 >/sys/bus/pci/devices/{bdf}/remove; echo 1 >/sys/bus/pci/rescan"));
    rig.pciescope(&format!("latency mmio {bdf} --bind --count 100")).expect(0, "mmio-read");
}

/// 65,536 reads of a millisecond each are one sample.
fn a_batch_of_slow_reads_leaves_the_cpu_to_others(rig: &Rig) {
    rig.tell("reset");
    rig.tell("read-delay fixed 1ms");
    rig.must(&format!("pciescope bind {} --driver pcilat", rig.bdf));
    let run = format!("pciescope latency mmio {} --backend kmod --count 1 --accesses 65536 --cpus 1", rig.bdf);
    rig.must(&format!("{{ {run} & echo $! >/tmp/pid; }} >/dev/null 2>&1; sleep 3"));
    rig.must("timeout 10 taskset 2 true");
    rig.must("kill $(cat /tmp/pid); while kill -0 $(cat /tmp/pid) 2>/dev/null; do sleep 0.1; done");
    rig.tell("read-delay none");
    rig.must(&format!("pciescope unbind {}", rig.bdf));
}

/// A disk and a network card, with the kernel's own drivers.
fn what_is_in_use_is_taken_by_two_words_only(rig: &Rig) {
    rig.must("modprobe nvme && modprobe e1000e && sleep 1");
    let (disk, card) = (rig.vm.address("nvme0"), rig.vm.address("e1000e0"));
    // Debian's perl of another release, with its own libraries: it opens for itself alone, as ZFS and LIO do (O_EXCL).
    let libraries = "/lab/usr/lib/x86_64-linux-gnu";
    let perl = format!("{libraries}/ld-linux-x86-64.so.2 --library-path {libraries} /lab/usr/bin/perl");
    let interface = format!("$(ls /sys/bus/pci/devices/{card}/net)");
    for (bdf, begin, end, why) in [
        (
            &disk,
            "sleep 100 </dev/nvme0n1 & echo $! >/tmp/pid".to_owned(),
            "kill $(cat /tmp/pid)".to_owned(),
            "is open in process",
        ),
        (
            &disk,
            format!("{perl} -e 'sysopen(F, \"/dev/nvme0n1\", 0200) or die; sleep 100' & echo $! >/tmp/pid; sleep 1"),
            "kill $(cat /tmp/pid)".to_owned(),
            "nvme0n1 is held",
        ),
        (
            &disk,
            "mkswap /dev/nvme0n1 && swapon /dev/nvme0n1".to_owned(),
            "swapoff /dev/nvme0n1".to_owned(),
            "used for swap",
        ),
        (
            &card,
            format!("ip link set {interface} up && ip addr add 192.0.2.1/32 dev {interface}"),
            format!("ip addr flush dev {interface}"),
            "is up with an IPv4 address",
        ),
    ] {
        rig.must(&format!("{{ {begin}; }} >/dev/null 2>&1"));
        for verb in [format!("bind {bdf}"), format!("latency mmio {bdf} --bind --count 10")] {
            let refused = rig.vm.run(&format!("pciescope {verb}"));
            assert!(refused.status == 2 && refused.stderr.contains(why), "{verb}: {why}: {}", refused.stderr);
            assert!(!refused.stderr.contains("--force"), "{verb}: {}", refused.stderr);
        }
        assert_eq!(rig.vm.run(&format!("pciescope bind {bdf} --force")).status, 2, "{why}");
        rig.must(&end);
        rig.must(&format!("pciescope bind {bdf} && pciescope unbind {bdf} && sleep 1"));
    }
    rig.must(&format!("ip link set {interface} up && ip addr add 192.0.2.1/32 dev {interface}"));
    rig.must(&format!("pciescope bind {card} --force --take-in-use && pciescope unbind {card}"));
    rig.must("rmmod nvme e1000e");
}

fn a_bridge_and_an_unknown_device_are_refused(rig: &Rig) {
    let port = rig.must(&format!("basename $(dirname $(readlink -f /sys/bus/pci/devices/{}))", rig.bdf));
    let bridge = rig
        .pciescope(&format!("latency mmio {} --bind --count 10 --bar 0 --offset 0 --accept-side-effects", port.trim()));
    assert_eq!(bridge.output.status, 2);
    assert!(bridge.output.stderr.contains("bridge"), "{}", bridge.output.stderr);
    let unknown = rig.pciescope(&format!("latency mmio {} --bind --count 10", rig.vm.address("unknown0")));
    assert_eq!(unknown.output.status, 2);
    assert!(unknown.output.stderr.contains("--accept-side-effects"), "{}", unknown.output.stderr);
}
