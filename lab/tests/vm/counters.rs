//! One guest for each kernel with the seed's machine, which the shim, the DRAM counters and the stress of both PMU drivers share.
//! What is tried in it stands in the suites.

use pciescope_lab::vm::Kernel;

use crate::support::counters::Counters;
use crate::{counter_stress, drw, say, shim};

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

fn on(kernel: Kernel) {
    let (vm, board) = shim::the_boards_registers_stand_where_hardware_has_them_and_leave_no_trace(kernel);
    say!("the shim leaves no trace");
    let mut rig = Counters::of(vm, board);
    rig.load("drw_pmu");
    drw::perf_counts_what_the_sub_channels_counted(&rig);
    say!("perf counts what the sub-channels counted");
    if kernel == Kernel::V6_12 {
        drw::neither_load_nor_the_hardwares_ways_lose_a_count(&rig);
        say!("neither load nor the hardware's ways lose a count");
    }
    if matches!(kernel, Kernel::V5_10 | Kernel::V6_12) {
        rig.load("drw_pmu naming=seed limit=hold poll_ms=50");
        drw::the_seeds_own_command_lines_work(&rig);
        say!("the seed's own command lines work");
    }
    if shim::has_in_tree_drivers(kernel) {
        rig.load("alibaba_uncore_drw_pmu");
        drw::the_in_tree_driver_counts_the_same(&rig);
        say!("the in-tree driver counts the same");
    }
    rig.load("drw_pmu && modprobe rasdes_pmu");
    counter_stress::who_counts_all_the_while_misses_nothing(&rig);
    say!("who counts all the while misses nothing");
    rig.finish(&["drw_pmu", "rasdes_pmu", "pciescope_lab"]);
}
