//! What goes wrong with hardware, machine and user in the middle of a run: the record says which it was, what was
//! measured before stands, and the machine is left as it was found.

mod support;

use std::time::Duration;

use pciescope_lab::vm::{Device, Kernel, Place};
use support::{Measured, Rig, merged, seen};

/// Starts a run that would take minutes, does something to it, and waits for its end.
fn disturb(rig: &Rig, command: &str, disturbance: impl FnOnce(&Rig, &pciescope_lab::vm::Running<'_>)) -> Measured {
    rig.must("rm -f /tmp/records.jsonl");
    rig.tell("reset");
    let running =
        rig.vm.start(&format!("exec pciescope {command} -o /tmp/records.jsonl --overwrite >/tmp/table.txt")).unwrap();
    // The run is on its way when the device is read again and again.
    let end = std::time::Instant::now() + Duration::from_secs(30);
    while seen(&rig.ledger(), "reads", 0, 0, 4) < 500 {
        assert!(
            running.status().is_none() && std::time::Instant::now() < end,
            "the run did not begin: {:?}",
            running.wait()
        );
    }
    disturbance(rig, &running);
    let output =
        running.wait_within(Duration::from_secs(20)).unwrap_or_else(|err| panic!("the run did not end: {err}"));
    Measured { records: rig.records(), output }
}

fn long_run(rig: &Rig, more: &str) -> String {
    format!("latency mmio {} --count 20M {more}", rig.bdf)
}

#[test]
fn all_ones_and_removal_stop_a_run_with_their_own_records() {
    let rig = Rig::boot(Kernel::V6_12);
    rig.tell("reset");
    rig.tell("all-ones after 1000");
    let ones = rig.pciescope(&format!("latency mmio {} --bind --count 5k", rig.bdf));
    assert_eq!(ones.output.status, 2, "{}", ones.output.stderr);
    assert!(["all-ones", "removed"].contains(&ones.failure().unwrap()), "{:?}", ones.failure());
    // The device gave 1000 good answers; two of them were the look before the run.
    let samples = merged(&ones.of("mmio-read"), "latency").count();
    assert!((900..1000).contains(&samples), "{samples} samples stand");
    rig.tell("all-ones off");
    rig.pciescope(&format!("latency mmio {} --bind --count 100", rig.bdf)).expect(0, "mmio-read");

    // The same device, gone in the middle: configuration space is silent too.
    let removed = disturb(&rig, &long_run(&rig, "--bind"), |rig, _| drop(rig.tell("remove")));
    assert_eq!((removed.output.status, removed.failure()), (2, Some("removed")), "{}", removed.output.stderr);
    assert!(merged(&removed.of("mmio-read"), "latency").count() >= 400);
    rig.tell("reset");
    rig.finish();
}

#[test]
fn unbinding_unplugging_and_offline_cpus_end_a_run_on_every_kernel() {
    for kernel in Kernel::ALL {
        // QEMU 11.1 aborts when a vfio-user device with MSI-X is unplugged.
        let rig = Rig::boot_unpluggable(kernel);
        rig.must(&format!("pciescope bind {} --driver pcilat", rig.bdf));
        let offline = disturb(&rig, &long_run(&rig, "--cpus 2-3"), |rig, _| {
            rig.must("echo 0 >/sys/devices/system/cpu/cpu3/online");
        });
        assert_eq!(
            (offline.output.status, offline.failure()),
            (2, Some("cpu-offline")),
            "{kernel}: {}",
            offline.output.stderr
        );
        rig.must("echo 1 >/sys/devices/system/cpu/cpu3/online");

        let unbound = disturb(&rig, &long_run(&rig, ""), |rig, _| {
            rig.must(&format!("echo {0} >/sys/bus/pci/devices/{0}/driver/unbind", rig.bdf));
        });
        assert_eq!(
            (unbound.output.status, unbound.failure()),
            (2, Some("unbound")),
            "{kernel}: {}",
            unbound.output.stderr
        );
        assert_eq!(rig.driver(), "none");
        rig.must(&format!("echo {} >/sys/bus/pci/drivers/pcilat/bind", rig.bdf));

        // The attention button: the guest takes the device away from the driver and then from the bus.
        let unplugged = disturb(&rig, &long_run(&rig, ""), |rig, _| {
            rig.vm.unplug("lab0").unwrap_or_else(|err| panic!("the lab failed: {err}"));
        });
        let failure = unplugged.failure().unwrap_or("none");
        assert_eq!(unplugged.output.status, 2, "{kernel}: {}", unplugged.output.stderr);
        assert!(["unbound", "removed"].contains(&failure), "{kernel}: {failure}");
        rig.must(&format!("[ ! -e /sys/bus/pci/devices/{} ]", rig.bdf));
        rig.finish();
    }
}

#[test]
fn ctrl_c_and_kill_9_leave_the_machine_as_found() {
    let rig =
        Rig::boot_with(Kernel::V6_12, |builder| builder.module("pcilat").device("edu0", Device::Edu, Place::RootPort));
    // A driver of the kernel's own holds the function before the run.
    rig.must("modprobe pci-stub");
    let hold = format!(
        "cd /sys/bus/pci; echo pci-stub >devices/{0}/driver_override; echo {0} >drivers_probe; echo >devices/{0}/driver_override",
        rig.bdf
    );
    rig.must(&hold);
    assert_eq!(rig.driver(), "pci-stub");
    let as_found = rig.must(&machine_state(&rig));

    for signal in ["INT", "TERM", "HUP"] {
        let stopped = disturb(&rig, &long_run(&rig, "--bind"), |_, running| running.signal(signal).unwrap());
        let status = match signal {
            "INT" => 130,
            "TERM" => 143,
            _ => 129,
        };
        assert_eq!(
            (stopped.output.status, stopped.failure()),
            (status, Some("interrupted")),
            "{}",
            stopped.output.stderr
        );
        assert!(merged(&stopped.of("mmio-read"), "latency").count() >= 400, "what was measured stands");
        assert_eq!(rig.must(&machine_state(&rig)), as_found, "after SIG{signal}");
    }

    let killed = disturb(&rig, &long_run(&rig, "--bind"), |_, running| running.signal("KILL").unwrap());
    assert_eq!(killed.output.status, 137);
    rig.wait_until("the end of the run", "! pidof pciescope");
    assert_eq!(rig.driver(), "pcilat", "kill -9 cannot put anything back");
    rig.must("pciescope unbind --restore");
    assert_eq!(rig.must(&machine_state(&rig)), as_found, "after kill -9 and unbind --restore");
    // A second repair finds nothing to do.
    rig.must("pciescope unbind --restore");
    rig.finish();
}

/// Everything a run may touch, as text.
fn machine_state(rig: &Rig) -> String {
    format!(
        "d=/sys/bus/pci/devices/{0}; basename $(readlink $d/driver); cat $d/driver_override; cat $d/enable; \
         cat $d/power/control; setpci -s {0} COMMAND; cat /proc/irq/default_smp_affinity; \
         cat /sys/devices/system/cpu/online; ls /run/pciescope/bind 2>/dev/null | wc -l",
        rig.bdf
    )
}

#[test]
fn vfio_gives_everything_back_too() {
    let rig = Rig::boot_with(Kernel::V6_12, |builder| builder.intel_iommu(true).module("vfio-pci"));
    let as_found = rig.must(&format!(
        "cat /sys/bus/pci/devices/{}/driver_override; ls /run/pciescope/bind 2>/dev/null | wc -l",
        rig.bdf
    ));
    for signal in ["INT", "KILL"] {
        let run = long_run(&rig, "--bind --backend vfio");
        let stopped = disturb(&rig, &run, |_, running| running.signal(signal).unwrap());
        assert_eq!(stopped.output.status, if signal == "INT" { 130 } else { 137 }, "{}", stopped.output.stderr);
        if signal == "KILL" {
            rig.wait_until("the end of the run", "! pidof pciescope");
            rig.must("pciescope unbind --restore");
        }
        assert_eq!(rig.driver(), "none");
        let now = rig.must(&format!(
            "cat /sys/bus/pci/devices/{}/driver_override; ls /run/pciescope/bind 2>/dev/null | wc -l",
            rig.bdf
        ));
        assert_eq!(now, as_found, "after SIG{signal}");
    }
    rig.finish();
}
