//! `tune` on devices whose speed follows a law that the lab's models know: what is found is what was planted. docs/tune.md.

use std::ops::RangeInclusive;

use pciescope_core::tune::Verdict;
use pciescope_lab::device::traffic::Traffic;
use pciescope_lab::device::{CounterBoard, LatencyEndpoint};
use pciescope_lab::vm::{Attachment, Kernel};

use crate::say;
use crate::support::{Endpoint, RECORDS, Rig, settle};

/// A port of the board, whose link gets L1 by the overlay.
const PORT: &str = "0000:30:01.0";
/// What the device lets each read wait, and more where the link leaves the slow state.
const READ_NS: u64 = 2_000_000;
const EXIT_NS: u64 = 2_000_000;
/// The most that QEMU and the guest add to a read, in the median.
const BESIDE_NS: u64 = 100_000;

/// Each read waits until its link has left L1, or L0s; the other state takes no time. The truth is the device's own: by
/// its ledger reads waited READ_NS, and EXIT_NS more with the state on. What comes beside both is within BESIDE_NS.
pub fn leaving_a_state_of_aspm_costs_what_the_device_waited() {
    let board = Endpoint::serve(CounterBoard::seed_machine(Traffic::new()), "board");
    let rig = Rig::boot_model(
        LatencyEndpoint::default(),
        Kernel::V6_12,
        Attachment::Port(PORT.parse().unwrap()),
        |builder| {
            let builder = builder.cpus(2).seed_machine().served("board", &board.served, Attachment::RootBus);
            builder.module("pciescope_lab").module("pcilat")
        },
    );
    board.tell(&format!("port {PORT} express 0x0c 0xc00 0xc00"));
    rig.tell("aspm-exit l1 0");
    rig.tell("aspm-exit l0s 0");
    rig.tell(&format!("read-delay fixed {READ_NS}"));
    // Linux looks at what an end of a link can do when it finds the function, and leaves ASPM off as the firmware does.
    let own = format!("/sys/bus/pci/devices/{}", rig.bdf);
    rig.must(&format!(
        "echo 1 >/sys/bus/pci/devices/{PORT}/remove; echo 1 >/sys/bus/pci/rescan
        echo powersave >/sys/module/pcie_aspm/parameters/policy"
    ));
    let state = || rig.must(&format!("grep -H . {own}/link/*_aspm | sed s,.*/,,; setpci -s {} CAP_EXP+10.w", rig.bdf));
    let found = state();
    assert_eq!(found, "l0s_aspm:1\nl1_aspm:1\n0003", "both ends have both states, and the function has them on");
    let percent = |beside_ns| -100.0 * EXIT_NS as f64 / (READ_NS + EXIT_NS + beside_ns) as f64;
    let truth = percent(0)..=percent(BESIDE_NS);
    for (slow, quick) in [("l1", "l0s"), ("l0s", "l1")] {
        rig.tell(&format!("aspm-exit {slow} {EXIT_NS}"));
        rig.tell(&format!("aspm-exit {quick} 0"));
        settle(slow, || one_helps(&rig, slow, quick, &truth));
        assert_eq!(state(), found);
    }
    rig.check_log();
}

/// What is measured on a busy host may stay undecided; anything else that is wrong ends the test.
fn one_helps(rig: &Rig, slow: &str, quick: &str, truth: &RangeInclusive<f64>) -> Result<(), String> {
    let ledger = || {
        let ledger = rig.ledger();
        let exits = ledger["aspm_exit_ns"]["chosen"].as_array().unwrap().clone();
        let of =
            |time_ns: u64| exits.iter().find(|exit| exit[0] == time_ns).map_or(0, |exit| exit[1].as_u64().unwrap());
        assert!(exits.iter().all(|exit| exit[0] == 0 || exit[0] == EXIT_NS), "{exits:?}");
        [of(0), of(EXIT_NS), ledger["read_delay_ns"]["count"].as_u64().unwrap()]
    };
    let before = ledger();
    let measured = rig.sh(&format!(
        "pciescope tune {} --bind --try aspm-{slow}=off --try aspm-{quick}=off --duration 8s -o {RECORDS} --overwrite",
        rig.bdf
    ));
    let tune = measured.expect(0, "tune")[0].tune.clone().unwrap();
    let after = ledger();
    let [without, with, reads] = [0, 1, 2].map(|at| after[at] - before[at]);
    say!("{slow}: {with} of {reads} reads waited for it, {truth:?} %: {:?}", tune.effects);
    assert!(without > 0 && with > 0 && with + without == reads, "{without} and {with} of {reads}");
    let [helps, nothing] = tune.effects.as_slice() else { panic!("{:?}", tune.effects) };
    if helps.verdict == Verdict::Undecided {
        return Err(format!("{helps:?}"));
    }
    assert_eq!(helps.verdict, Verdict::Helps, "{helps:?}");
    let change = helps.change.unwrap();
    assert!(change.low_percent <= *truth.end() && change.high_percent >= *truth.start(), "{change:?}: {truth:?}");
    assert!(matches!(nothing.verdict, Verdict::NoDifference | Verdict::Undecided), "{nothing:?}");
    assert!(nothing.comparisons > 0 && tune.notes.is_empty(), "{tune:?}");
    let best = tune.best.unwrap();
    assert_eq!(best.settings, helps.settings, "{best:?}");
    Ok(())
}
