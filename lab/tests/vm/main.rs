//! The suites on virtual hardware, in one program: `make vm-test` runs all of them, `make vm-test ONLY=drw` those whose names
//! have `drw` in them. What they share is in support/; support/harness.rs runs them.
#![allow(clippy::unwrap_used, reason = "a test may panic; its helpers are tests too")]

mod accounting;
mod arm64;
mod convert;
mod counter_stress;
mod counters;
mod digitizer_crate;
mod disk;
mod dist;
mod doctor;
mod drw;
mod faults;
mod irq;
mod latency;
mod mmio;
mod power;
mod rasdes;
mod readout;
mod readout_ports;
mod sanitize;
mod serve;
mod shim;
mod sis8300;
mod sis8300_faults;
mod sis8300_stress;
mod smoke;
mod soak;
mod stat;
mod storm;
mod support;
mod surface;
mod tune;
mod tune_laws;
mod verify;
mod watch;
mod why;

use std::process::ExitCode;

use pciescope_lab::vm::{Arch, Kernel, Root};
use support::harness;

fn main() -> ExitCode {
    if support::is_arm64() {
        return on_arm64();
    }
    // Long ones that prove a table of docs/validation.md, alone on the machine.
    if std::env::var_os("PROVE").is_some() {
        return harness::run(PROOFS);
    }
    let has_5_10 = Root::find(Arch::Amd64).and_then(|root| root.release(Kernel::V5_10)).is_ok();
    let has_kasan = support::sanitize::has_kasan();
    // Those of 5.10 first: long ones at the end would leave a CPU idle.
    harness::run(&[if has_5_10 { ON_5_10 } else { &[] }, AMD64, TESTS, if has_kasan { FAILURES } else { &[] }].concat())
}

/// All of them, and those that need such a guest.
fn on_arm64() -> ExitCode {
    let has_16k = Root::find(Arch::Arm64).and_then(|root| root.release(Kernel::V6_12Pages16k)).is_ok();
    harness::run(&[ARM64, if has_16k { ARM64_16K } else { &[] }, TESTS].concat())
}

/// The core suites on Debian 11's kernel, where lab/setup-kernel has added it to the root folder.
const ON_5_10: &[harness::Test] = tests![
    counters::on_5_10,
    latency::on_5_10,
    sis8300::on_5_10_it_reads_the_same,
    rasdes::on_5_10_counts_are_the_boards
];

/// What needs an x86-64 guest.
const AMD64: &[harness::Test] = tests![
    tune_laws::an_iommu_and_a_vectors_cpu_cost_what_the_disk_adds seats 2,
    tune_laws::payload_and_read_requests_of_a_digitizer_have_their_law,
];

/// What needs an arm64 guest.
const ARM64: &[harness::Test] = tests![
    arm64::every_module_and_an_experiment_of_each_seed,
    arm64::the_programs_own_lab_boots_it,
    arm64::vfio_measures_behind_an_smmu,
    convert::every_shape_gives_the_references_numbers_on_arm64,
    dist::the_archive_runs_on_arm64,
];

/// The same on a kernel with larger pages, where lab/setup-kernel has added it to the root folder.
const ARM64_16K: &[harness::Test] = tests![arm64::with_pages_of_16_kib];

/// What needs a kernel that lets allocations fail.
const FAILURES: &[harness::Test] = tests![
    sanitize::pmus_survive_every_failed_allocation,
    sanitize::loading_rasdes_pmu_survives_every_failed_allocation,
    sanitize::sis8300_survives_every_failed_allocation,
    sanitize::pcilat_survives_every_failed_allocation,
];

/// What `make prove-links`, `make prove-why` and `make prove-tune` run.
const PROOFS: &[harness::Test] = tests![
    tune::noise_is_recorded seats 3,
    tune::twenty_settings_that_help_and_twenty_that_do_nothing,
    tune::twenty_kills_of_the_program_leave_nothing,
    tune::qemu_is_killed_twenty_times_and_what_the_next_guest_says_is_true,
    watch::every_planted_change_of_forty_links_is_found_on_6_1,
    watch::every_planted_change_of_forty_links_is_found_on_6_12,
    watch::every_planted_change_of_forty_links_is_found_on_the_newest_kernel,
    watch::twenty_minutes_of_nothing_wake_nothing_and_cost_little,
    why::nothing_planted_is_not_named_and_a_storm_leaves_its_evidence seats 3,
    why::every_plant_gets_its_name_on_6_1 seats 3,
    why::every_plant_gets_its_name_on_6_12 seats 3,
    why::every_plant_gets_its_name_on_the_newest_kernel seats 3,
];

/// Every test. The long ones stand first. What takes more than one seat compares rates or durations.
const TESTS: &[harness::Test] = tests![
    counters::on_6_12,
    readout::what_is_read_is_what_the_boards_hold,
    counters::on_the_newest_kernel,
    rasdes::on_6_12_every_count_is_the_boards,
    latency::on_6_12,
    counters::on_the_oldest_kernel,
    stat::what_stat_says_is_what_the_board_counted seats 2,
    mmio::a_machine_of_several_devices_is_measured_without_loss_hop_by_hop_and_side_by_side seats 2,
    latency::every_backend_behind_an_iommu seats 2,
    verify::the_seeds_experiments_with_ports_and_dram seats 2,
    verify::verify_pcie_agrees_with_the_ledger_on_the_newest_kernel seats 2,
    faults::a_disk_unbinding_unplugging_and_offline_cpus_on_6_12,
    faults::a_disk_unbinding_unplugging_and_offline_cpus_on_the_oldest_kernel,
    faults::a_disk_unbinding_unplugging_and_offline_cpus_on_the_newest_kernel,
    serve::prometheus_says_what_the_ledger_says,
    sis8300_faults::each_fault_gets_its_error_and_the_next_one_works seats 2,
    power::sleep_resets_and_errors_on_6_12,
    sis8300_stress::a_ring_at_full_rate_and_everything_at_random_lose_nothing,
    sis8300::every_sample_is_the_boards_in_every_mode seats 2,
    latency::on_the_newest_kernel,
    latency::on_the_oldest_kernel,
    readout_ports::the_rates_are_those_of_the_links seats 2,
    readout_ports::the_ports_have_every_byte,
    power::sleep_on_the_oldest_kernel,
    watch::planted_changes_are_found_with_their_causes_on_6_12,
    watch::plugged_cards_are_told_of_by_the_newest_kernel,
    watch::bandwidth_notifications_are_told_by_the_newest_kernel,
    soak::errors_that_the_device_made_are_counted_and_bounded,
    tune::settings_with_a_law_get_their_answer_and_all_is_put_back,
    tune::knobs_of_drivers_are_set_and_come_back,
    tune_laws::leaving_a_state_of_aspm_costs_what_the_device_waited,
    power::sleep_on_the_newest_kernel,
    storm::a_storm_of_calls_leaves_all_modules_as_they_were,
    accounting::what_the_kernel_counted_is_what_the_devices_moved,
    rasdes::on_the_oldest_kernel_the_seeds_names_count,
    rasdes::on_the_newest_kernel_counts_are_the_boards,
    doctor::doctor_finds_what_the_lab_spoiled_says_what_it_could_not_look_at_and_changes_nothing,
    sis8300::boards_that_share_a_pin_are_told_apart_on_the_oldest_kernel,
    sis8300::the_newest_kernel_reads_the_same,
    sis8300_faults::on_the_newest_kernel_a_board_given_up_leaves_the_line_to_others,
    shim::a_board_that_makes_no_sense_is_refused_and_one_that_is_gone_does_no_harm,
    surface::under_lockdown_vfio_measures_and_each_refused_backend_says_why,
    smoke::a_command_gives_output_errors_and_status,
    smoke::set_up_that_fails_says_what_failed,
    // At the end nothing else has the host's CPUs.
    why::plants_get_their_names_in_user_space seats 3,
];
