//! Interrupt latency on virtual hardware: counts equal the device's, and an injected delay shows where it belongs.

mod support;

use pciescope_core::Record;
use pciescope_lab::vm::{Device, Kernel};
use support::{Rig, address, beside, merged, total, vector};

/// Interrupts per CPU and vector.
const COUNT: u64 = 100;
/// CPUs of the guest.
const CPUS: u64 = 4;

fn of_vector<'r>(records: &[&'r Record], number: u16) -> Vec<&'r Record> {
    records
        .iter()
        .copied()
        .filter(|record| record.target.as_ref().and_then(|target| target.vector) == Some(number))
        .collect()
}

#[test]
fn every_interrupt_is_counted_where_it_belongs_on_every_kernel() {
    for kernel in Kernel::ALL {
        let rig = Rig::boot(kernel);
        rig.tell("reset");
        let measured = rig.pciescope(&format!(
            "latency irq {} --bind --vectors 0-7 --count {COUNT} --source both --timeout 2s",
            rig.bdf
        ));
        let records = measured.expect(0, "irq-hardware");
        let ledger = rig.ledger();
        assert_eq!(records.len() as u64, 8 * CPUS, "one record per CPU and vector");
        for number in 0..8u16 {
            let records = of_vector(&records, number);
            let cpus: Vec<_> = records.iter().map(|record| record.cpu.as_ref().map(|cpu| cpu.cpu)).collect();
            assert_eq!(cpus, [Some(0), Some(1), Some(2), Some(3)], "{kernel}, vector {number}");
            for record in &records {
                assert_eq!(record.histograms["trigger_to_handler"].count(), COUNT, "{kernel}, vector {number}");
                assert_eq!(record.histograms["entry_to_ack"].count(), COUNT);
            }
            assert_eq!(total(&records, "handled"), COUNT * CPUS);
            for none in ["lost", "extra", "wrong_cpu", "samples_lost"] {
                assert_eq!(total(&records, none), 0, "{kernel}, vector {number}: {none}");
            }
            // Warm-up interrupts (2 per move) are in the device's count, and said to be.
            let warmup = total(&records, "warmup_triggers");
            let triggers = vector(&ledger, number.into(), "triggers");
            assert_eq!(triggers, COUNT * CPUS + warmup, "{kernel}, vector {number}: {ledger}");
            assert_eq!(vector(&ledger, number.into(), "sent"), triggers);
        }
        // The control arm leaves the device alone.
        let control = measured.expect(0, "irq-retrigger");
        assert_eq!(total(&control, "handled"), 8 * COUNT * CPUS, "{kernel}");
        rig.finish();
    }
}

#[test]
fn lost_and_doubled_interrupts_are_told_apart() {
    let rig = Rig::boot(Kernel::V6_12);
    rig.must(&format!("pciescope bind {} --driver pcilat", rig.bdf));
    rig.tell("reset");
    rig.tell("irq-lose every 10");
    let lossy = rig.pciescope(&format!(
        "latency irq {} --vectors 2 --cpus 0-1 --count {COUNT} --source hardware --timeout 20ms",
        rig.bdf
    ));
    let records = lossy.expect(1, "irq-hardware");
    let ledger = rig.ledger();
    let lost = vector(&ledger, 2, "lost");
    assert!(lost >= 18, "the device was told to lose every tenth of 200: {ledger}");
    // A lost warm-up interrupt is counted apart from the samples.
    let warmup_lost = total(&records, "warmup_triggers") - total(&records, "warmup_handled");
    assert_eq!(total(&records, "lost") + warmup_lost, lost, "{ledger}");
    assert_eq!(total(&records, "handled") + total(&records, "lost"), total(&records, "triggers"));
    assert_eq!(merged(&records, "trigger_to_handler").count(), total(&records, "handled"));

    rig.tell("reset");
    rig.tell("irq-double every 4");
    // At a rate that leaves the second message its time: back to back it would be taken for the next trigger's answer,
    // or merge with it, as in any interrupt controller.
    let doubled = rig.pciescope(&format!(
        "latency irq {} --vectors 3 --cpus 2 --count {COUNT} --source hardware --interval 10ms",
        rig.bdf
    ));
    let records = doubled.expect(1, "irq-hardware");
    let ledger = rig.ledger();
    let twice = vector(&ledger, 3, "doubled");
    assert!(twice > 10, "{ledger}");
    // A doubled warm-up interrupt belongs to no sample.
    let extra = total(&records, "extra");
    assert!(extra <= twice && extra + total(&records, "warmup_triggers") >= twice, "extra {extra}: {ledger}");
    assert_eq!(total(&records, "handled"), total(&records, "triggers"));
    rig.must(&format!("pciescope unbind {}", rig.bdf));
    rig.finish();
}

#[test]
fn an_injected_delay_moves_the_trigger_and_not_the_acknowledge() {
    let rig = Rig::boot(Kernel::V6_12);
    rig.must(&format!("pciescope bind {} --driver pcilat", rig.bdf));
    let measure = |delay_us: u32| {
        rig.tell("reset");
        rig.tell(&format!("irq-delay fixed {delay_us}us"));
        let run = format!("latency irq {} --vectors 1 --count 300 --source hardware --timeout 2s", rig.bdf);
        let measured = rig.pciescope(&run);
        let records = measured.expect(0, "irq-hardware");
        let trigger = merged(&records, "trigger_to_handler");
        assert!(trigger.min_ns().unwrap() >= f64::from(delay_us) * 1e3, "an interrupt beats its delay");
        [trigger, merged(&records, "entry_to_ack")]
            .map(|histogram| histogram.median_ns().expect("1200 samples have a median"))
    };
    // Both with a delay: after 300 us the device's process sleeps, and waking it is in every acknowledge alike.
    let [trigger, ack] = measure(300);
    let [delayed_trigger, delayed_ack] = measure(1300);
    let moved = delayed_trigger - trigger;
    assert!(
        (950e3..1050e3 + trigger).contains(&moved),
        "1 ms was added, the trigger moved by {moved} ns from {trigger} ns"
    );
    assert!((delayed_ack - ack).abs() < 15e3, "the acknowledge moved from {ack} to {delayed_ack} ns");
    rig.must(&format!("pciescope unbind {}", rig.bdf));
    rig.finish();
}

#[test]
fn a_fixed_rate_hides_no_waiting_and_counts_what_it_could_not_raise() {
    let rig = Rig::boot(Kernel::V6_12);
    rig.must(&format!("pciescope bind {} --driver pcilat", rig.bdf));
    let measure = |interval: &str| {
        let run = format!("latency irq {} --vectors 0 --cpus 1 --count 200 --source hardware --timeout 1s", rig.bdf);
        let measured = rig.pciescope(&format!("{run} --interval {interval}"));
        assert!([0, 1].contains(&measured.output.status), "{}", measured.output.stderr);
        let records = measured.of("irq-hardware");
        let ended = ["handled", "lost", "wrong_cpu"].map(|name| total(&records, name)).iter().sum::<u64>();
        assert_eq!(ended, total(&records, "triggers"));
        let [missed, merged_times] = ["missed", "merged"].map(|name| total(&records, name));
        assert_eq!(total(&records, "triggers") + missed + merged_times, 200, "every time of the plan is accounted for");
        (missed + merged_times, merged(&records, "trigger_to_handler"))
    };
    rig.tell("reset");
    measure("2ms");
    // A trigger is open for 3 ms: two of three times find it so, and no figure is mixed up with the next trigger's.
    rig.tell("irq-delay fixed 3ms");
    let (not_raised, delayed) = measure("1ms");
    assert!((120..180).contains(&not_raised), "{not_raised} of 200 times were not raised");
    assert!(delayed.min_ns().unwrap() >= 3e6);
    // No emulator raises an interrupt every microsecond.
    rig.tell("reset");
    let (not_raised, _) = measure("1us");
    assert!(not_raised > 0);
    rig.must(&format!("pciescope unbind {}", rig.bdf));
    rig.finish();
}

#[test]
fn qemus_own_devices_raise_their_interrupts() {
    let devices = [("edu0", Device::Edu), ("e1000e0", Device::E1000e), ("igb0", Device::Igb)];
    for kernel in Kernel::ALL {
        let rig = Rig::boot_with(kernel, |builder| beside(builder.module("pcilat"), &devices));
        for (name, _) in &devices {
            let bdf = address(&rig.vm, name);
            let measured = rig.pciescope(&format!("latency irq {bdf} --bind --cpus 0-1 --count 50 --source hardware"));
            // QEMU's e1000e throttles whatever the driver asks for, and repeats what it held back: `extra`, exit code 1.
            let records = measured.of("irq-hardware");
            assert!(measured.output.status == 0 || *name == "e1000e0", "{kernel}, {name}: {}", measured.output.stderr);
            assert!(!records.is_empty(), "{kernel}, {name}: {}", measured.output.stderr);
            assert_eq!(total(&records, "handled"), 50 * records.len() as u64, "{kernel}, {name}");
            assert_eq!(total(&records, "wrong_cpu") + total(&records, "lost"), 0, "{kernel}, {name}");
            // Two devices at once: the endpoint measures while the other is bound.
            let both = rig.pciescope(&format!("latency mmio {} --bind --count 100", rig.bdf));
            both.expect(0, "mmio-read");
        }
        rig.finish();
    }
}
