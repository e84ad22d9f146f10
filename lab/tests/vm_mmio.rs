//! Register and path latency on virtual hardware: injected delays are recovered, and the device's own count of accesses
//! equals the samples.

mod support;

use pciescope_lab::vm::{Device, Kernel, Place};
use support::{Rig, merged, seen, total};

/// Samples per CPU.
const COUNT: u64 = 1500;
/// CPUs of the guest.
const CPUS: u64 = 4;

/// What a backend needs of the machine: its name, and what the program is told.
fn backends(rig: &Rig) -> [(&'static str, String); 3] {
    let bdf = &rig.bdf;
    [
        ("kmod", format!("latency mmio {bdf} --backend kmod --bind")),
        ("vfio", format!("latency mmio {bdf} --backend vfio --bind")),
        ("resource", format!("latency mmio {bdf} --backend resource")),
    ]
}

#[test]
fn injected_delays_are_recovered_by_every_backend_and_the_device_counts_the_samples() {
    let rig = Rig::boot_with(Kernel::V6_12, |builder| builder.intel_iommu(true).module("pcilat").module("vfio-pci"));
    for (backend, command) in backends(&rig) {
        let undelayed = measure(&rig, backend, &command, "none");
        for fixed_us in [20.0, 50.0] {
            let injected = fixed_us * 1e3;
            let all = measure(&rig, backend, &command, &format!("fixed {fixed_us}us"));
            near(backend, "median", all.median_ns().unwrap(), injected, undelayed.median_ns().unwrap());
            assert!(all.min_ns().unwrap() >= injected, "{backend}: a sample of {:?} ns beats its delay", all.min_ns());
        }
        // 30 % of the reads take 60 us, the rest 20 us.
        let all = measure(&rig, backend, &command, "two-peak 20us 60us 300 7");
        let ledger = rig.ledger();
        let slow = chosen(&ledger, 60_000);
        let slow_share = slow as f64 / (slow + chosen(&ledger, 20_000)) as f64;
        let base = undelayed.median_ns().unwrap();
        // The middle of each peak, at the share that the device says it has dealt out.
        near(backend, "lower peak", all.percentile_ns(50.0 * (1.0 - slow_share)).unwrap(), 20e3, base);
        near(backend, "upper peak", all.percentile_ns(100.0 - 50.0 * slow_share).unwrap(), 60e3, base);
        let between = (all.count() - all.count_up_to_ns(60e3)) as f64 / all.count() as f64;
        assert!(
            (between - slow_share).abs() < 0.03,
            "{backend}: {between:.3} of the samples are slow, {slow_share:.3} of the delays"
        );
        assert_eq!(rig.driver(), "none", "{backend}: the device was not given back");
    }
    rig.finish();
}

/// Measures the ID register with a delay, and holds the samples against the device's count.
fn measure(rig: &Rig, backend: &str, command: &str, delay: &str) -> pciescope_core::Histogram {
    rig.tell("reset");
    rig.tell(&format!("read-delay {delay}"));
    let measured = rig.pciescope(&format!("{command} --count {COUNT}"));
    let records = measured.expect(0, "mmio-read");
    let ledger = rig.ledger();
    rig.tell("read-delay none");
    let all = merged(&records, "latency");
    assert_eq!(all.count(), COUNT * CPUS, "{backend}, {delay}");
    assert_eq!(total(&records, "samples_lost"), 0, "{backend}, {delay}");
    // The two looks at the register before the run stand in every record.
    let looks = records[0].metrics["check_reads"].value as u64;
    assert_eq!(seen(&ledger, "reads", 0, 0, 4), COUNT * CPUS + looks, "{backend}, {delay}: the device's count differs");
    for record in records {
        let method = record.method.as_ref().expect("a record says how it was made");
        assert_eq!(method.backend, backend);
        assert!(method.emulated, "a device of the lab is labelled");
        assert!(
            record.histograms["calibration"].count() >= 1000,
            "{backend}: the empty pair is calibrated on every CPU"
        );
    }
    all
}

/// Within 5 % of what was injected, plus what the access takes without.
fn near(backend: &str, what: &str, got_ns: f64, injected_ns: f64, undelayed_ns: f64) {
    let (low, high) = (injected_ns * 0.95, injected_ns * 1.05 + undelayed_ns);
    assert!((low..=high).contains(&got_ns), "{backend}: {what} {got_ns} ns is not within {low} to {high} ns");
}

/// How often the device dealt out a delay.
fn chosen(ledger: &serde_json::Value, delay_ns: u64) -> u64 {
    let pairs = ledger["read_delay_ns"]["chosen"].as_array().expect("two delays are listed");
    pairs.iter().find(|pair| pair[0] == delay_ns).map_or(0, |pair| pair[1].as_u64().unwrap_or(0))
}

#[test]
fn every_kernel_counts_reads_writes_and_read_backs_of_every_width() {
    for kernel in Kernel::ALL {
        let rig = Rig::boot(kernel);
        rig.must(&format!("pciescope bind {} --driver pcilat", rig.bdf));
        for width in [1, 2, 4, 8] {
            rig.tell("reset");
            let read = rig.pciescope(&format!(
                "latency mmio {} --bar 0 --offset 0x1008 --width {width} --accept-side-effects --count 300",
                rig.bdf
            ));
            let looks = read.expect(0, "mmio-read")[0].metrics["check_reads"].value as u64;
            let ledger = rig.ledger();
            // QEMU may split an access of 8 bytes into two of 4 (docs/spec/latency-endpoint.md).
            let accesses = seen(&ledger, "reads", 0, 0x1008, 0);
            assert_eq!(accesses, 300 * CPUS + looks, "{kernel}, width {width}: {ledger}");
        }
        rig.tell("reset");
        let written = rig
            .pciescope(&format!("latency mmio {} --test write --offset 8 --width 4 --value 0x5a --count 400", rig.bdf));
        assert_eq!(merged(&written.expect(0, "mmio-write"), "latency").count(), 400 * CPUS);
        assert_eq!(seen(&rig.ledger(), "writes", 0, 8, 4), 400 * CPUS, "{kernel}");
        rig.tell("reset");
        let both = rig.pciescope(&format!(
            "latency mmio {} --test write-read --offset 8 --width 4 --value 0x5a --count 400",
            rig.bdf
        ));
        let looks = both.expect(0, "mmio-write-read")[0].metrics["check_reads"].value as u64;
        assert_eq!(seen(&rig.ledger(), "writes", 0, 8, 4), 400 * CPUS, "{kernel}");
        assert_eq!(seen(&rig.ledger(), "reads", 0, 8, 4), 400 * CPUS + looks, "{kernel}");
        // A batch of accesses between two stamps: the samples stay, the accesses multiply.
        rig.tell("reset");
        let batched = rig.pciescope(&format!("latency mmio {} --batch 5 --count 100", rig.bdf));
        let looks = batched.expect(0, "mmio-read")[0].metrics["check_reads"].value as u64;
        assert_eq!(seen(&rig.ledger(), "reads", 0, 0, 4), 5 * 100 * CPUS + looks, "{kernel}");
        rig.must(&format!("pciescope unbind {}", rig.bdf));
        assert_eq!(rig.driver(), "none");
        rig.finish();
    }
}

#[test]
fn a_million_samples_on_four_cpus_without_loss() {
    let rig = Rig::boot(Kernel::V6_12);
    rig.tell("reset");
    let measured =
        rig.pciescope(&format!("latency mmio {} --bind --order concurrent --count 250k --raw /tmp/raw.csv", rig.bdf));
    let records = measured.expect(0, "mmio-read");
    assert_eq!(merged(&records, "latency").count(), 1_000_000);
    assert_eq!(total(&records, "samples_lost"), 0);
    let looks = records[0].metrics["check_reads"].value as u64;
    assert_eq!(seen(&rig.ledger(), "reads", 0, 0, 4), 1_000_000 + looks);
    // The raw samples: a header and one line each.
    assert_eq!(rig.must("wc -l </tmp/raw.csv").trim(), "1000001");
    rig.finish();
}

#[test]
fn the_path_is_read_hop_by_hop_down_to_the_device_behind_a_switch() {
    let rig = Rig::boot_at(Kernel::V6_12, Place::Switch, |builder| {
        builder.module("pcilat").device("edu0", Device::Edu, Place::RootPort)
    });
    let bridges = rig.must(&format!("readlink -f /sys/bus/pci/devices/{} | tr / '\\n' | grep '^0000:'", rig.bdf));
    let bridges: Vec<&str> = bridges.lines().collect();
    assert_eq!(bridges.len(), 4, "root port, upstream port, downstream port, endpoint");
    for (backend, options) in [("kmod", "--backend kmod --bind"), ("sysfs", "--backend sysfs")] {
        rig.tell("reset");
        let before = rig.ledger()["config_reads"].as_u64().unwrap();
        let measured = rig.pciescope(&format!("latency path {} {options} --count 500", rig.bdf));
        let records = measured.expect(0, "config-read");
        let reads = rig.ledger()["config_reads"].as_u64().unwrap() - before;
        for (hop, bridge) in bridges.iter().enumerate() {
            let of_hop: Vec<_> = records
                .iter()
                .copied()
                .filter(|record| record.target.as_ref().and_then(|t| t.hop) == Some(hop as u16))
                .collect();
            let all = merged(&of_hop, "latency");
            assert_eq!(all.count(), 500 * CPUS, "{backend}, hop {hop}");
            let seen = of_hop[0].target.as_ref().and_then(|t| t.hop_bdf).map(|bdf| bdf.to_string());
            assert_eq!(seen.as_deref(), Some(*bridge), "{backend}, hop {hop}");
        }
        // The kernel itself reads configuration space when a driver comes and goes.
        assert!(reads >= 500 * CPUS, "{backend}: the device saw {reads} configuration reads");
    }
    rig.finish();
}
