//! What only a kernel that looks for faults can try: each memory allocation and user copy of the modules fails in turn.
//! `make sanitize` runs these beside the other suites (docs/sanitizers.md).
//!
//! The truth is the kernel's: KASAN, lockdep and the others report into its log, kmemleak what was lost.

use std::time::Duration;

use crate::rasdes;
use crate::say;
use crate::support::Rig;
use crate::support::counters::Counters;
use crate::support::digitizers::Digitizers;
use crate::support::guest::Guest;
use pciescope_lab::device::LatencyEndpoint;
use pciescope_lab::vm::{Attachment, Kernel};

/// How long all the failures of one call may take: a thousand tries of a second.
const BOUND: Duration = Duration::from_secs(1000);
const SLOT: u16 = 6;

/// Lets every allocation of what `what` names fail, and expects `least` calls to have been tried.
fn fails_well(vm: &Guest, what: &str, least: usize) {
    let output = vm.run_within(&format!("/lib/pciescope/fail_nth {what}"), BOUND);
    for line in output.stdout.lines() {
        say!("{what}: {line}");
    }
    assert!(output.is_success(), "fail_nth {what}: {}", output.stderr);
    let tried = output.stdout.lines().filter(|line| line.starts_with("ok ") && !line.contains(" # 0 failures")).count();
    assert!(tried >= least, "fail_nth {what}: failures hit {tried} of at least {least} calls");
}

/// Lets every allocation of a loaded module's next loading fail. Binding is tried apart: here each of hundreds of tries would
/// bind all devices of the driver.
fn loading_fails_well(vm: &Guest, module: &str, bus: &str) {
    vm.must(&format!("rmmod {module} && echo 0 >/sys/bus/{bus}/drivers_autoprobe"));
    fails_well(vm, &format!("module /lib/pciescope/{module}.ko"), 1);
    vm.must(&format!("echo 1 >/sys/bus/{bus}/drivers_autoprobe && modprobe {module}"));
}

pub fn pcilat_survives_every_failed_allocation() {
    // Vectors need ACPI: instead, nobody looks up the interrupt of a pin that is not there.
    let endpoint = LatencyEndpoint::without_pin(&Default::default());
    let rig = Rig::boot_model(endpoint, Kernel::V6_12, Attachment::RootPort, |builder| builder.module("pcilat"));
    rig.must(&format!("pciescope bind {} --driver pcilat", rig.bdf));
    fails_well(&rig.vm, &format!("pcilat {}", rig.bdf), 12);
    fails_well(&rig.vm, &format!("driver pcilat {}", rig.bdf), 1);
    rig.pciescope(&format!("latency mmio {} --count 100", rig.bdf)).expect(0, "mmio-read");
    loading_fails_well(&rig.vm, "pcilat", "pci");
    rig.finish();
}

pub fn sis8300_survives_every_failed_allocation() {
    // The look-up of an interrupt by ACPI's interpreter uses memory after it is freed, where an allocation of its own fails.
    let rig = Digitizers::boot(Kernel::V6_12, 1, |builder| builder.cmdline("acpi=noirq"));
    fails_well(&rig, &format!("sis8300 {}", rig.board(SLOT).node()), 8);
    fails_well(&rig, &format!("driver sis8300 {}", rig.address(SLOT)), 1);
    loading_fails_well(&rig, "sis8300", "pci");
    rig.finish();
}

pub fn pmus_survive_every_failed_allocation() {
    let rig = Counters::boot(Kernel::V6_12, "rasdes_pmu", |builder| builder.module("drw_pmu"));
    for event in ["0x21", "0x1070c 0x10700"] {
        fails_well(&rig, &format!("event dwc_rootport_1000 {event}"), 1);
    }
    fails_well(&rig, "event ali_drw_21000 0x02 0x0f", 1);
    fails_well(&rig, "write /sys/devices/system/cpu/cpu1/online 0 1", 1);
    let device = rig.must("cd /sys/bus/platform/drivers/drw_pmu && ls -d *.auto | head -1");
    fails_well(&rig, &format!("driver drw_pmu {device}"), 1);
    loading_fails_well(&rig, "drw_pmu", "platform");
    rig.finish(&["rasdes_pmu", "drw_pmu", "pciescope_lab"]);
}

/// On a machine with few root ports: each takes part in each try. A port has a hundred files for its events, and the kernel
/// makes them all in one function, each with allocations of its own. That function fails as a whole.
pub fn loading_rasdes_pmu_survives_every_failed_allocation() {
    let rig = rasdes::boot(Kernel::V6_12, |builder| builder);
    fails_well(&rig.vm, "-x internal_create_group module /lib/pciescope/rasdes_pmu.ko", 1);
    rig.must("modprobe rasdes_pmu; rmmod rasdes_pmu");
    rig.finish();
}
