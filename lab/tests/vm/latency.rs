//! Guests with the latency endpoint that several suites share: one for each kernel with the standard machine, and one with an
//! IOMMU. What is tried in them stands in the suites.

use pciescope_lab::vm::{Attachment, GuestDevice, Kernel, standard_machine};

use crate::support::{Rig, is_arm64};
use crate::{faults, irq, mmio, say, smoke, surface};

pub fn on_5_10() {
    on(Kernel::V5_10);
}

pub fn on_the_oldest_kernel() {
    on(Kernel::V6_1);
}

pub fn on_6_12() {
    on(Kernel::V6_12);
}

pub fn on_the_newest_kernel() {
    on(Kernel::Newest);
}

/// What depends on the kernel: the module, its interface, and interrupts.
fn on(kernel: Kernel) {
    let rig = Rig::boot_with(kernel, |builder| {
        builder
            .devices(standard_machine())
            .module("pcilat")
            // In these places the two share an interrupt line.
            .device("nic0", GuestDevice::Other("e1000".into()), Attachment::RootBus)
            .device("edu2", GuestDevice::Edu, Attachment::RootPort)
            .device("unknown0", GuestDevice::Other("pci-testdev".into()), Attachment::RootPort)
    });
    smoke::the_standard_machine_is_there(&rig);
    say!("the machine is there");
    mmio::reads_writes_and_read_backs_of_every_width_are_counted(&rig, kernel);
    say!("accesses are counted");
    irq::interrupts_of_every_source_are_counted_where_they_belong(&rig, kernel);
    say!("interrupts are counted");
    surface::the_modules_surfaces_take_what_is_right_and_refuse_the_rest(&rig, kernel);
    if kernel == Kernel::V6_12 {
        say!("the module's surfaces hold");
        faults::signals_kill_9_all_ones_and_removal_leave_the_machine_as_found(&rig);
    }
    rig.finish();
}

/// Every backend on one machine: what they tell of a device does not depend on the kernel.
pub fn every_backend_behind_an_iommu() {
    let rig = Rig::boot_at(Kernel::V6_12, Attachment::Switch, |builder| {
        builder.iommu(true).module("pcilat").module("vfio-pci").device("edu0", GuestDevice::Edu, Attachment::RootPort)
    });
    let kind = if is_arm64() { "virtio-iommu" } else { "Intel VT-d" };
    let list = rig.must("pciescope list");
    assert!(list.contains(&format!("IOMMU    {kind}")), "{list}");
    smoke::vfio_takes_emulated_and_served_devices(&rig);
    surface::registers_are_read_and_written(&rig);
    say!("registers are read and written");
    mmio::injected_delays_are_recovered(&rig);
    say!("delays are recovered");
    irq::vfio_sees_an_injected_delay_and_signals_itself_as_control(&rig);
    say!("interrupts' delays are seen");
    faults::vfio_gives_everything_back_too(&rig);
    rig.finish();
}
