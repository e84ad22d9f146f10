//! Interrupt latency on virtual hardware: counts equal the device's, and an injected delay shows where it belongs.

use std::time::{Duration, Instant};

use crate::say;
use crate::support::{PATIENCE, Rig, merged, moved, settle, stayed, total, vector};
use pciescope_core::{Histogram, Record};
use pciescope_lab::vm::Kernel;

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

pub fn interrupts_of_every_source_are_counted_where_they_belong(rig: &Rig, kernel: Kernel) {
    every_interrupt_is_counted_where_it_belongs(rig, kernel);
    injected_interrupts_leave_the_device_alone(rig, kernel);
    for name in ["edu0", "e1000e0", "igb0"] {
        a_device_of_qemu_raises_its_interrupts(rig, kernel, name);
    }
    if kernel == Kernel::V6_12 {
        a_reset_ends_a_run_and_the_next_works(rig);
        rig.must(&format!("pciescope bind {} --driver pcilat", rig.bdf));
        lost_and_doubled_interrupts_are_told_apart(rig);
        a_stop_invents_no_interrupt(rig);
        a_fixed_rate_hides_no_waiting_and_counts_what_it_could_not_raise(rig);
        settle("kmod", || an_injected_delay_moves_the_trigger_and_not_the_acknowledge(rig, "--backend kmod"));
        rig.must(&format!("pciescope unbind {}", rig.bdf));
        without_messages_the_wire_is_the_last_resort(rig);
        an_interrupt_of_the_neighbour_is_no_answer(rig);
    }
}

pub fn vfio_sees_an_injected_delay_and_signals_itself_as_control(rig: &Rig) {
    rig.must(&format!("pciescope bind {} --driver vfio-pci", rig.bdf));
    settle("vfio", || an_injected_delay_moves_the_trigger_and_not_the_acknowledge(rig, "--backend vfio"));

    rig.tell("reset");
    let looped = rig.pciescope(&format!(
        "latency irq {} --backend vfio --vectors 0-1 --count {COUNT} --raised-by loopback --timeout 2s",
        rig.bdf
    ));
    let records = looped.expect(0, "irq-loopback");
    assert_eq!(records.len() as u64, 2 * CPUS);
    assert_eq!(total(&records, "handled"), 2 * COUNT * CPUS);
    assert_eq!(merged(&records, "trigger_to_handler").count(), 2 * COUNT * CPUS);
    assert_eq!(total(&records, "lost") + total(&records, "extra") + total(&records, "samples_lost"), 0);
    let ledger = rig.ledger();
    assert_eq!(ledger["irq"], serde_json::json!([]), "the device raised an interrupt of its own");
    // The module's sources are not VFIO's.
    for (source, what) in [("retrigger", "the interrupt controller repeats"), ("inject", "the kernel injects")] {
        let run = format!("latency irq {} --backend vfio --count 10 --raised-by {source}", rig.bdf);
        let refused = rig.pciescope(&run);
        assert_eq!(refused.output.status, 2, "{source}");
        assert!(refused.output.stderr.contains(what), "{}", refused.output.stderr);
    }
    rig.must(&format!("pciescope unbind {}", rig.bdf));
}

fn every_interrupt_is_counted_where_it_belongs(rig: &Rig, kernel: Kernel) {
    // All vectors on one kernel; the others show that theirs are no different.
    let vectors: u16 = if kernel == Kernel::V6_12 { 8 } else { 4 };
    rig.tell("reset");
    let measured = rig.pciescope(&format!(
        "latency irq {} --bind --vectors 0-{} --count {COUNT} --raised-by both --timeout 2s",
        rig.bdf,
        vectors - 1
    ));
    let records = measured.expect(0, "irq-hardware");
    let ledger = rig.ledger();
    assert_eq!(records.len() as u64, u64::from(vectors) * CPUS, "one record per CPU and vector");
    for number in 0..vectors {
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
    assert_eq!(total(&control, "handled"), u64::from(vectors) * COUNT * CPUS, "{kernel}");
}

fn injected_interrupts_leave_the_device_alone(rig: &Rig, kernel: Kernel) {
    let has_injection = rig
        .vm
        .run("r=$(uname -r); grep -qs '^CONFIG_GENERIC_IRQ_INJECTION=y' /lab/boot/config-$r /lab/usr/lib/modules/$r/config")
        .is_success();
    rig.tell("reset");
    let run = format!("latency irq {} --bind --vectors 0-1 --cpus 1-2 --count {COUNT} --raised-by inject", rig.bdf);
    let measured = rig.pciescope(&run);
    if has_injection {
        let records = measured.expect(0, "irq-inject");
        assert_eq!(records.len(), 4, "{kernel}");
        assert_eq!(total(&records, "handled"), 4 * COUNT, "{kernel}");
        assert_eq!(merged(&records, "trigger_to_handler").count(), 4 * COUNT, "{kernel}");
        assert_eq!(total(&records, "lost") + total(&records, "wrong_cpu"), 0, "{kernel}");
    } else {
        say!("{kernel}: built without CONFIG_GENERIC_IRQ_INJECTION, so its refusal is looked at");
        assert_eq!(measured.output.status, 2, "{kernel}");
        assert!(measured.output.stderr.contains("CONFIG_GENERIC_IRQ_INJECTION"), "{}", measured.output.stderr);
    }
    assert_eq!(rig.ledger()["irq"], serde_json::json!([]), "{kernel}: the device was triggered");
}

/// A function whose messages are switched off: what is left is the level of its pin, if its trigger can tell whose it was.
fn without_messages_the_wire_is_the_last_resort(rig: &Rig) {
    let edu = rig.vm.address("edu0");
    let measure = |bdf: &str| {
        rig.must(&format!("echo 0 >/sys/bus/pci/devices/{bdf}/msi_bus"));
        let run = format!("latency irq {bdf} --bind --count {COUNT} --raised-by hardware --timeout 2s");
        let measured = rig.pciescope(&run);
        rig.must(&format!("echo 1 >/sys/bus/pci/devices/{bdf}/msi_bus"));
        measured
    };
    let by_wire = measure(&edu);
    let records = by_wire.expect(0, "irq-hardware");
    assert_eq!(records.len() as u64, CPUS, "INTx is one vector");
    for record in &records {
        assert_eq!(record.histograms["trigger_to_handler"].count(), COUNT);
        let notes = &record.method.as_ref().unwrap().notes;
        assert!(notes.iter().any(|note| note.contains("INTx")), "{notes:?}");
    }
    assert_eq!(total(&records, "handled"), COUNT * CPUS);
    assert_eq!(total(&records, "lost") + total(&records, "extra") + total(&records, "wrong_cpu"), 0);

    let refused = measure(&rig.bdf);
    assert_eq!(refused.output.status, 2);
    assert!(refused.output.stderr.contains("the device has no interrupt"), "{}", refused.output.stderr);

    // Nobody would answer its pin.
    let bdf = &rig.bdf;
    rig.must(&format!("echo 0 >/sys/bus/pci/devices/{bdf}/msi_bus && pciescope bind {bdf} --driver pcilat"));
    let bound = rig.must(&format!("lspci -vv -s {bdf} | grep Control:"));
    rig.must(&format!("pciescope unbind {bdf}"));
    let free = rig.must(&format!("echo 1 >/sys/bus/pci/devices/{bdf}/msi_bus; lspci -vv -s {bdf} | grep Control:"));
    assert!(bound.contains("DisINTx+") && free.contains("DisINTx-"), "bound: {bound}\nfree: {free}");
}

/// Two functions share a line, and one of them has an open trigger and another cause that is set. An interrupt of the other
/// one is not the answer.
fn an_interrupt_of_the_neighbour_is_no_answer(rig: &Rig) {
    let functions = ["nic0", "edu2"].map(|name| rig.vm.address(name));
    for bdf in &functions {
        rig.must(&format!("echo 0 >/sys/bus/pci/devices/{bdf}/msi_bus && pciescope bind {bdf} --driver pcilat"));
    }
    settle("a neighbour's interrupts", || interrupts_beside_an_open_trigger(rig, &functions[0], &functions[1]));
    for bdf in &functions {
        rig.must(&format!("pciescope unbind {bdf}; echo 1 >/sys/bus/pci/devices/{bdf}/msi_bus"));
    }
}

fn interrupts_beside_an_open_trigger(rig: &Rig, nic: &str, neighbour: &str) -> Result<(), String> {
    const FILE: &str = "/tmp/neighbour.jsonl";
    const TIMES: u64 = 4;
    /// The longest that there is: for so long a trigger stays open.
    const TIMEOUT: Duration = Duration::from_secs(10);
    /// No answer that is one takes as long.
    const LATE: Duration = Duration::from_millis(500);
    /// e1000: reading clears the causes; setting; masking.
    const ICR: u32 = 0xc0;
    const ICS: u32 = 0xc8;
    const IMC: u32 = 0xd8;
    /// A cause that the run does not ask for.
    const LINK: u32 = 1 << 2;
    /// edu: raises its interrupt.
    const RAISE: u32 = 0x60;
    let folder = "/sys/class/pcilat";
    let [irq, shared] = [nic, neighbour].map(|bdf| rig.must(&format!("cat /sys/bus/pci/devices/{bdf}/irq")));
    assert_eq!(irq, shared, "{nic} and {neighbour} do not share a line");
    let run = format!("latency irq {nic} --cpus 1 --count 20M --raised-by hardware --timeout {}s", TIMEOUT.as_secs());
    let running = rig.start(&run, FILE);
    let count = format!("awk '$1 == \"{irq}:\" {{ print $2 + $3 + $4 + $5 }}' /proc/interrupts");
    let interrupts = || -> u64 {
        assert!(running.status().is_none(), "the run has ended: {:?}", running.wait());
        rig.must(&count).parse().unwrap()
    };
    let before = interrupts();
    rig.vm.wait_for("interrupts", || (interrupts() > before + 100).then_some(()));
    // From now on no trigger gets through: the last one stays open.
    let begin = Instant::now();
    rig.must(&format!("echo '{IMC:#x} 0xffffffff' >{folder}/{nic}/pcilat_devreg"));
    // A guest that looks for faults comes to fewer in the time.
    let mut times = 0;
    while times < TIMES && begin.elapsed() < TIMEOUT / 2 {
        times += 1;
        // In one command: each takes a second there.
        rig.must(&format!(
            "set -e; cd {folder}
            echo {ICR:#x} >{nic}/pcilat_devreg; echo '{ICS:#x} {LINK:#x}' >{nic}/pcilat_devreg; sleep {}
            before=$({count}); echo '{RAISE:#x} 1' >{neighbour}/pcilat_devreg
            until [ $({count}) -gt $before ]; do sleep 0.02; done",
            (LATE + LATE / 4).as_secs_f64()
        ));
    }
    let took = begin.elapsed();
    running.signal("INT").unwrap_or_else(|err| panic!("the lab failed: {err}"));
    let ended = rig.end(&running, FILE, PATIENCE);
    let trigger = merged(&ended.of("irq-hardware"), "trigger_to_handler");
    assert!(trigger.count() >= 50, "{} interrupts were answered", trigger.count());
    let late = trigger.count() - trigger.count_up_to_ns(LATE.as_nanos() as f64);
    say!("{} answers, {late} of them took more than {LATE:?}", trigger.count());
    if took > TIMEOUT - LATE || times < 2 {
        return Err(format!("the trigger was not open for several interrupts: {times} in {took:?}"));
    }
    assert!(late <= 1, "{late} of {times} interrupts of the neighbour were taken for answers");
    Ok(())
}

fn lost_and_doubled_interrupts_are_told_apart(rig: &Rig) {
    rig.tell("reset");
    rig.tell("irq-lose every 10");
    let lossy = rig.pciescope(&format!(
        "latency irq {} --vectors 2 --cpus 0-1 --count {COUNT} --raised-by hardware --timeout 500ms",
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

    settle("doubled interrupts", || doubled_interrupts_are_extra(rig));
}

/// At a rate that leaves the second message its time. A guest that gets no CPU between the two takes them for one, as any
/// interrupt controller does: that shows as too few and is tried again.
fn doubled_interrupts_are_extra(rig: &Rig) -> Result<(), String> {
    rig.tell("reset");
    rig.tell("irq-double every 4");
    let doubled = rig.pciescope(&format!(
        "latency irq {} --vectors 3 --cpus 2 --count {COUNT} --raised-by hardware --period 10ms",
        rig.bdf
    ));
    let records = doubled.expect(1, "irq-hardware");
    let ledger = rig.ledger();
    let twice = vector(&ledger, 3, "doubled");
    assert!(twice > 10, "{ledger}");
    assert_eq!(total(&records, "handled"), total(&records, "triggers"));
    let extra = total(&records, "extra");
    assert!(extra <= twice, "extra {extra}: {ledger}");
    // A doubled warm-up interrupt belongs to no sample.
    let least = twice.saturating_sub(total(&records, "warmup_triggers"));
    if extra < least { Err(format!("{extra} extra, at least {least} expected: {ledger}")) } else { Ok(()) }
}

/// Within a run, and between runs with and without a delay; an error is a duration that other work may have spoilt.
fn an_injected_delay_moves_the_trigger_and_not_the_acknowledge(rig: &Rig, backend: &str) -> Result<(), String> {
    let measure = |delay_us: u32| -> [Histogram; 2] {
        rig.tell("reset");
        rig.tell(&format!("irq-delay fixed {delay_us}us"));
        let run =
            format!("latency irq {} {backend} --vectors 1 --count 200 --raised-by hardware --timeout 2s", rig.bdf);
        let measured = rig.pciescope(&run);
        let records = measured.expect(0, "irq-hardware");
        assert_eq!(total(&records, "handled"), 200 * CPUS);
        let trigger = merged(&records, "trigger_to_handler");
        assert!(trigger.min_ns().unwrap() >= f64::from(delay_us) * 1e3, "{backend}: an interrupt beats its delay");
        [trigger, merged(&records, "entry_to_ack")]
    };
    // Both with a delay: after 300 us the device's process sleeps, and waking it is in every acknowledge alike.
    let [trigger, ack] = measure(300);
    let [delayed_trigger, delayed_ack] = measure(1300);
    moved("the trigger", &trigger, &delayed_trigger, 1e6)?;
    stayed("the acknowledge", &ack, &delayed_ack, 1e6)
}

fn a_fixed_rate_hides_no_waiting_and_counts_what_it_could_not_raise(rig: &Rig) {
    let measure = |interval: &str| {
        let run = format!("latency irq {} --vectors 0 --cpus 1 --count 200 --raised-by hardware --timeout 1s", rig.bdf);
        let measured = rig.pciescope(&format!("{run} --period {interval}"));
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
    // A trigger is open for 3 ms: two of three times find it so, and no figure is mixed up with the next trigger's. A machine that
    // is slow leaves more of them open.
    rig.tell("irq-delay fixed 3ms");
    settle("times that find a trigger open", || {
        let (not_raised, delayed) = measure("1ms");
        assert!(not_raised >= 120, "{not_raised} of 200 times were not raised");
        assert!(delayed.min_ns().unwrap() >= 3e6);
        if not_raised < 180 { Ok(()) } else { Err(format!("{not_raised} of 200 times were not raised")) }
    });
    // No emulator raises an interrupt every microsecond.
    rig.tell("reset");
    let (not_raised, _) = measure("1us");
    assert!(not_raised > 0);
}

fn a_device_of_qemu_raises_its_interrupts(rig: &Rig, kernel: Kernel, name: &str) {
    let bdf = rig.vm.address(name);
    let measured = rig.pciescope(&format!("latency irq {bdf} --bind --cpus 0-1 --count 50 --raised-by hardware"));
    let records = measured.of("irq-hardware");
    assert!(!records.is_empty(), "{kernel}, {name}: no record");
    let [triggers, handled, lost, wrong_cpu] =
        ["triggers", "handled", "lost", "wrong_cpu"].map(|figure| total(&records, figure));
    assert_eq!(triggers, 50 * records.len() as u64, "{kernel}, {name}");
    assert_eq!(handled + lost + wrong_cpu, triggers, "{kernel}, {name}");
    // QEMU's e1000e throttles although the driver turns it off. It repeats or drops interrupts that it held back; a
    // repeated one can come while the vector moves to another CPU.
    if name == "e1000e0" {
        assert!(handled * 10 >= triggers * 9, "{kernel}, {name}: {handled} of {triggers}");
    } else {
        assert_eq!((lost, wrong_cpu, measured.output.status), (0, 0, 0), "{kernel}, {name}");
    }
}

/// The interrupt of the trigger that was under way at the stop comes after it, and is none that nobody triggered.
fn a_stop_invents_no_interrupt(rig: &Rig) {
    rig.tell("reset");
    // Most stops fall before the answer, and most answers into the time after a run in which doubled ones are looked for.
    rig.tell("irq-delay fixed 4500us");
    for stop in ["1.20", "1.31", "1.42", "1.53"] {
        let run = format!(
            "timeout -s TERM {stop} pciescope latency irq {} --backend kmod --vectors 0 --cpus 1 --count 10k \
             --timeout 500ms --raised-by hardware",
            rig.bdf
        );
        let ended = rig.vm.run(&run);
        assert!(ended.stderr.contains("was ended after"), "{}", ended.stderr);
        assert!(!format!("{}{}", ended.stdout, ended.stderr).contains("nobody triggered"), "{}", ended.stderr);
    }
}

/// A reset takes the registers by which igb raises and tells its interrupts; without them none comes.
fn a_reset_ends_a_run_and_the_next_works(rig: &Rig) {
    const FILE: &str = "/tmp/reset.jsonl";
    let bdf = rig.vm.address("igb0");
    rig.must(&format!("pciescope bind {bdf} --driver pcilat"));
    let run = |count: &str| format!("latency irq {bdf} --cpus 0-1 --count {count} --raised-by hardware --timeout 1s");
    let running = rig.start(&run("20M"), FILE);
    rig.vm.wait_until("the run has begun", "ls -l /proc/$(pidof pciescope)/fd | grep -q /dev/pcilat/ && sleep 1");
    rig.must(&format!("echo 1 >/sys/bus/pci/devices/{bdf}/reset"));
    let ended = rig.end(&running, FILE, PATIENCE);
    assert_eq!((ended.output.status, ended.failure()), (2, Some("reset")), "{}", ended.output.stderr);
    assert!(total(&ended.of("irq-hardware"), "handled") >= 1, "what was measured stands");
    let next = rig.pciescope(&run("50"));
    let records = next.expect(0, "irq-hardware");
    assert_eq!(total(&records, "handled"), 50 * records.len() as u64);
    rig.must(&format!("pciescope unbind {bdf}"));
}
