//! What goes wrong with hardware, machine and user in the middle of a run: the record says which it was, what was
//! measured before stands, and the machine is left as it was found.

use std::time::{Duration, Instant};

use crate::disk::{self, Disks};
use crate::say;
use crate::support::{Measured, PATIENCE, RECORDS, Rig, merged, seen, settle, total, vector};
use pciescope_lab::vm::{Kernel, Running};

/// The endpoint's register that write tests write to (docs/spec/latency-endpoint.md).
const SCRATCH: u64 = 8;

/// Starts a run that would take minutes, does something to it once the device sees it, and waits for its end.
fn disturb(rig: &Rig, command: &str, disturbance: impl FnOnce(&Rig, &Running<'_>)) -> Measured {
    rig.tell("reset");
    let running = rig.start(command, RECORDS);
    let end = Instant::now() + rig.patience(PATIENCE);
    let has_begun = || {
        let ledger = rig.ledger();
        match command.split(' ').nth(1) {
            Some("irq") => vector(&ledger, 0, "triggers") >= 20,
            // QEMU answers the reads of a path run (docs/spec/latency-endpoint.md): the node is open, and a second passes.
            Some("path") => {
                rig.vm.run("ls -l /proc/$(pidof pciescope)/fd | grep -q /dev/pcilat/ && sleep 1").is_success()
            }
            _ if command.contains("--test write") => seen(&ledger, "writes", 0, SCRATCH, 4) >= 500,
            _ => seen(&ledger, "reads", 0, 0, 4) >= 500,
        }
    };
    while !has_begun() {
        assert!(running.status().is_none() && Instant::now() < end, "the run did not begin: {:?}", running.wait());
    }
    disturbance(rig, &running);
    rig.end(&running, RECORDS, PATIENCE)
}

fn long_run(rig: &Rig, more: &str) -> String {
    format!("latency mmio {} --count 20M {more}", rig.bdf)
}

fn long_irq_run(rig: &Rig, more: &str) -> String {
    format!("latency irq {} --vectors 0 --count 20M --raised-by hardware --timeout 2s {more}", rig.bdf)
}

pub fn a_disk_unbinding_unplugging_and_offline_cpus_on_the_oldest_kernel() {
    disk_and_faults_on(Kernel::V6_1);
}

pub fn a_disk_unbinding_unplugging_and_offline_cpus_on_6_12() {
    disk_and_faults_on(Kernel::V6_12);
}

pub fn a_disk_unbinding_unplugging_and_offline_cpus_on_the_newest_kernel() {
    disk_and_faults_on(Kernel::Newest);
}

/// One guest for what is pulled: an endpoint and two disks.
fn disk_and_faults_on(kernel: Kernel) {
    let disks = Disks::serve();
    // QEMU 11.1 aborts when a vfio-user device with MSI-X is unplugged.
    let rig =
        Rig::boot_unpluggable(kernel, |builder| disks.add_to(builder).interrupt_remapping(disk::has_remapping(kernel)));
    disk::the_kernels_driver_works_with_them(&rig.vm, &disks, kernel);
    unbinding_unplugging_and_offline_cpus_end_a_run(&rig, kernel);
    rig.finish();
}

fn unbinding_unplugging_and_offline_cpus_end_a_run(rig: &Rig, kernel: Kernel) {
    rig.must(&format!("pciescope bind {} --driver pcilat", rig.bdf));
    let offline = disturb(rig, &long_run(rig, "--cpus 2-3"), |rig, _| {
        rig.must("echo 0 >/sys/devices/system/cpu/cpu3/online");
    });
    assert_eq!(
        (offline.output.status, offline.failure()),
        (2, Some("cpu-offline")),
        "{kernel}: {}",
        offline.output.stderr
    );
    rig.must("echo 1 >/sys/devices/system/cpu/cpu3/online");

    let unbound = disturb(rig, &long_run(rig, ""), |rig, _| {
        rig.must(&format!("echo {0} >/sys/bus/pci/devices/{0}/driver/unbind", rig.bdf));
    });
    assert_eq!((unbound.output.status, unbound.failure()), (2, Some("unbound")), "{kernel}: {}", unbound.output.stderr);
    assert_eq!(rig.driver(), "none");
    rig.must(&format!("echo {} >/sys/bus/pci/drivers/pcilat/bind", rig.bdf));

    let unbound = disturb(rig, &long_irq_run(rig, ""), |rig, _| {
        rig.must(&format!("echo {0} >/sys/bus/pci/devices/{0}/driver/unbind", rig.bdf));
    });
    assert_eq!((unbound.output.status, unbound.failure()), (2, Some("unbound")), "{kernel}");
    assert!(total(&unbound.of("irq-hardware"), "handled") >= 10, "{kernel}: what was measured stands");
    rig.must(&format!("echo {} >/sys/bus/pci/drivers/pcilat/bind", rig.bdf));
    match kernel {
        // The newer kernels leave other tasks a share of a CPU that a real-time task holds.
        Kernel::V5_10 | Kernel::V6_1 => kill_9_ends_a_run_whose_cpu_a_real_time_task_holds(rig),
        Kernel::V6_12 | Kernel::V6_12Pages16k => an_interrupt_and_a_path_run_end_too(rig),
        Kernel::Newest => {}
    }

    unplugged_in(rig, &long_run(rig, ""), "mmio-read");
    if kernel == Kernel::V6_12 {
        unplugged_in_the_other_runs_and_plugged_in_again(rig);
    }
}

/// The attention button: the guest takes the device away from the driver and then from the bus. What was measured stands.
fn unplugged_in(rig: &Rig, run: &str, test: &str) {
    let unplugged = disturb(rig, run, |rig, _| {
        rig.vm.unplug("lab0").unwrap_or_else(|err| panic!("the lab failed: {err}"));
    });
    let failure = unplugged.failure().unwrap_or("none");
    assert_eq!(unplugged.output.status, 2, "{test}: {}", unplugged.output.stderr);
    assert!(["unbound", "removed"].contains(&failure), "{test}: {failure}");
    let records = unplugged.of(test);
    // The calibration is no measurement of the device.
    let histograms = records.iter().flat_map(|record| &record.histograms).filter(|(name, _)| *name != "calibration");
    let samples = histograms.map(|(_, histogram)| histogram.count()).sum::<u64>();
    assert!(samples > 10, "{test}: {samples} samples stand");
    rig.must(&format!("[ ! -e /sys/bus/pci/devices/{} ]", rig.bdf));
}

fn unplugged_in_the_other_runs_and_plugged_in_again(rig: &Rig) {
    let plug = || {
        rig.vm.plug("lab0", &rig.endpoint.served.device_socket);
        let bind = format!("pciescope bind {} --driver pcilat", rig.bdf);
        rig.vm.wait_for("the endpoint to come back", || rig.vm.run(&bind).is_success().then_some(()));
    };
    plug();
    unplugged_in(rig, &long_irq_run(rig, ""), "irq-hardware");
    plug();
    unplugged_in(rig, &long_run(rig, "--test write"), "mmio-write");
    plug();
    rig.tell("reset");
    let reads = rig.pciescope(&format!("latency mmio {} --count 100", rig.bdf));
    assert_eq!(merged(&reads.expect(0, "mmio-read"), "latency").count(), 400);
    let interrupts = rig.pciescope(&format!("latency irq {} --vectors 0 --count 20 --raised-by hardware", rig.bdf));
    let interrupts = interrupts.expect(0, "irq-hardware");
    assert_eq!(total(&interrupts, "handled"), 80);
    assert_eq!(vector(&rig.ledger(), 0, "sent"), 80 + total(&interrupts, "warmup_triggers"));
}

fn kill_9_ends_a_run_whose_cpu_a_real_time_task_holds(rig: &Rig) {
    rig.tell("reset");
    // The task ends after 40 s, and with it the wait of a run that could not end before. RCU reports a CPU that is held for
    // 21 s, which it is where this machine is busy.
    let script = format!(
        "echo 100 >/sys/module/rcupdate/parameters/rcu_cpu_stall_timeout || exit 4
         echo -1 >/proc/sys/kernel/sched_rt_runtime_us
         pciescope {} -o /tmp/r --overwrite >/dev/null 2>&1 &
         run=$!
         while [ ! -e /tmp/has-begun ]; do sleep 0.1; done
         stress-ng --cpu 1 --taskset 3 --sched fifo --sched-prio 99 --timeout 40 >/dev/null 2>&1 &
         task=$!
         while [ ! -e /tmp/is-held ]; do sleep 0.1; done
         kill -0 $run || exit 3
         read from rest </proc/uptime
         kill -KILL $run
         wait $run
         read to rest </proc/uptime
         pkill -KILL -f stress-ng
         wait $task
         echo 950000 >/proc/sys/kernel/sched_rt_runtime_us
         echo 21 >/sys/module/rcupdate/parameters/rcu_cpu_stall_timeout
         echo $from $to",
        long_run(rig, "--cpus 3")
    );
    rig.must("rm -f /tmp/has-begun /tmp/is-held");
    let running = rig.vm.start(&script);
    let reads = || seen(&rig.ledger(), "reads", 0, 0, 4);
    rig.vm.wait_for("the run to begin", || (reads() >= 500).then_some(()));
    rig.must("touch /tmp/has-begun");
    // The task has the CPU once the device sees no read for a second.
    rig.vm.wait_for("the real-time task to hold the CPU", || {
        let before = reads();
        std::thread::sleep(Duration::from_secs(1));
        (reads() == before).then_some(())
    });
    rig.must("touch /tmp/is-held");
    let output = running.wait_within(PATIENCE).unwrap_or_else(|err| panic!("the script did not end: {err}"));
    assert!(output.is_success(), "the run was there no more: {} {}", output.status, output.stderr);
    let times: Vec<f64> = output.stdout.split_whitespace().map(|time| time.parse().unwrap()).collect();
    assert!(times[1] - times[0] < 8.0, "the run ended {} s after the signal", times[1] - times[0]);
}

fn an_interrupt_and_a_path_run_end_too(rig: &Rig) {
    let offline = disturb(rig, &long_irq_run(rig, "--cpus 2"), |rig, _| {
        rig.must("echo 0 >/sys/devices/system/cpu/cpu2/online");
    });
    assert_eq!((offline.output.status, offline.failure()), (2, Some("cpu-offline")), "{}", offline.output.stderr);
    rig.must("echo 1 >/sys/devices/system/cpu/cpu2/online");
    // The CPU that only triggers.
    let offline = disturb(rig, &long_irq_run(rig, "--cpus 1 --trigger-cpu 3"), |rig, _| {
        rig.must("echo 0 >/sys/devices/system/cpu/cpu3/online");
    });
    assert_eq!((offline.output.status, offline.failure()), (2, Some("cpu-offline")), "{}", offline.output.stderr);
    rig.must("echo 1 >/sys/devices/system/cpu/cpu3/online");

    let path = format!("latency path {} --backend kmod --count 20M", rig.bdf);
    let unbound = disturb(rig, &path, |rig, _| {
        rig.must(&format!("echo {0} >/sys/bus/pci/devices/{0}/driver/unbind", rig.bdf));
    });
    assert_eq!((unbound.output.status, unbound.failure()), (2, Some("unbound")), "{}", unbound.output.stderr);
    assert!(merged(&unbound.of("config-read"), "latency").count() > 0, "what was measured stands");
    rig.must(&format!("echo {} >/sys/bus/pci/drivers/pcilat/bind", rig.bdf));
}

fn all_ones_and_removal_stop_a_run_with_their_own_records(rig: &Rig) {
    rig.tell("reset");
    rig.tell("all-ones after 1000");
    let ones = rig.pciescope(&format!("latency mmio {} --bind --count 5k", rig.bdf));
    // Configuration space still answers: the device is there, the register is not.
    assert_eq!((ones.output.status, ones.failure()), (2, Some("all-ones")), "{}", ones.output.stderr);
    // The device gave 1000 good answers; two of them were the look before the run.
    let samples = merged(&ones.of("mmio-read"), "latency").count();
    assert!((900..1000).contains(&samples), "{samples} samples stand");
    rig.tell("all-ones off");
    rig.pciescope(&format!("latency mmio {} --bind --count 100", rig.bdf)).expect(0, "mmio-read");

    // The same device, gone in the middle: configuration space is silent too.
    let removed = disturb(rig, &long_run(rig, "--bind"), |rig, _| drop(rig.tell("remove")));
    assert_eq!((removed.output.status, removed.failure()), (2, Some("removed")), "{}", removed.output.stderr);
    assert!(merged(&removed.of("mmio-read"), "latency").count() >= 400);
    rig.tell("reset");
}

/// The promise is 100 ms (docs/uapi.md); the emulator and a loaded machine are allowed a second. Nothing here would end
/// by itself before four.
fn a_signal_ends_every_kind_of_run_at_once(rig: &Rig) {
    rig.must(&format!("pciescope bind {} --driver pcilat", rig.bdf));
    let bdf = &rig.bdf;
    for (kind, args) in [
        ("mmio", format!("latency mmio {bdf} --count 20M")),
        ("mmio, long gap", format!("latency mmio {bdf} --count 1k --gap 4s")),
        ("path", format!("latency path {bdf} --count 20M")),
        ("path, long gap", format!("latency path {bdf} --count 1k --gap 4s")),
        ("irq", format!("latency irq {bdf} --vectors 0 --count 20M --raised-by hardware")),
        ("irq, long interval", format!("latency irq {bdf} --vectors 0 --count 1k --raised-by hardware --period 8s")),
        ("irq, none comes", format!("latency irq {bdf} --vectors 0 --count 1k --raised-by hardware --timeout 10s")),
    ] {
        settle(kind, || a_signal_ends(rig, kind, &args));
    }
    rig.must(&format!("pciescope unbind {bdf}"));
    rig.tell("reset");
}

/// One run of a kind, ended by a signal in the middle of a call.
fn a_signal_ends(rig: &Rig, kind: &str, args: &str) -> Result<(), String> {
    rig.tell("reset");
    if kind == "irq, none comes" {
        rig.tell("irq-lose every 1");
    }
    // The calls of the program with their times; the one that takes long is the run.
    let script = format!(
        "rm -f /tmp/trace
         strace -f -ttt -e trace=ioctl -e signal=TERM -o /tmp/trace pciescope {args} -o /tmp/r --overwrite >/tmp/table &
         for n in $(seq 600); do
             sleep 0.1
             [ $(grep -c 'ioctl(' /tmp/trace 2>/dev/null || echo 0) -gt 60 ] && break
         done
         pid=$(pidof pciescope) || exit 1
         read from rest </proc/uptime
         kill -TERM $pid
         for n in $(seq 2000); do [ -e /proc/$pid ] || break; sleep 0.01; done
         read to rest </proc/uptime
         wait; echo $from $to; cat /tmp/trace"
    );
    let output = rig.must(&script);
    let (times, trace) = output.split_once('\n').unwrap();
    let times: Vec<f64> = times.split(' ').map(|time| time.parse().unwrap()).collect();
    let time = |line: &str| -> f64 { line.split_whitespace().nth(1).unwrap().parse().unwrap() };
    let signal = trace.lines().find(|line| line.contains("--- SIGTERM")).map(time);
    let signal = signal.unwrap_or_else(|| panic!("{kind}: no signal in the trace:\n{trace}"));
    let is_interrupted = |line: &&str| line.contains("EINTR") || line.contains("ERESTART");
    let ended = trace.lines().filter(is_interrupted).map(time).next_back();
    let ended = ended.unwrap_or_else(|| panic!("{kind}: no call was interrupted:\n{trace}"));
    let (call_s, program_s) = (ended - signal, times[1] - times[0]);
    say!("{kind}: the call ended {call_s:.3} s after the signal, the program {program_s:.2} s");
    assert!(call_s >= 0.0, "{kind}: the call ended {call_s} s after the signal");
    if call_s < 1.0 && program_s < 2.0 {
        return Ok(());
    }
    Err(format!("the call ended {call_s} s after the signal, the program, traced, {program_s} s"))
}

pub fn signals_kill_9_all_ones_and_removal_leave_the_machine_as_found(rig: &Rig) {
    // A driver of the kernel's own holds the function before the run.
    rig.must("modprobe pci-stub");
    let hold = format!(
        "cd /sys/bus/pci; echo pci-stub >devices/{0}/driver_override; echo {0} >drivers_probe; echo >devices/{0}/driver_override",
        rig.bdf
    );
    rig.must(&hold);
    assert_eq!(rig.driver(), "pci-stub");
    all_ones_and_removal_stop_a_run_with_their_own_records(rig);
    a_signal_ends_every_kind_of_run_at_once(rig);
    let as_found = rig.must(&machine_state(rig));

    for signal in ["INT", "TERM", "HUP"] {
        let stopped = disturb(rig, &long_run(rig, "--bind"), |_, running| running.signal(signal).unwrap());
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
        assert_eq!(rig.must(&machine_state(rig)), as_found, "after SIG{signal}");
    }

    let killed = disturb(rig, &long_run(rig, "--bind"), |_, running| running.signal("KILL").unwrap());
    assert_eq!(killed.output.status, 137);
    rig.wait_until("the end of the run", "! pidof pciescope");
    assert_eq!(rig.driver(), "pcilat", "kill -9 cannot put anything back");
    rig.must("pciescope unbind --restore");
    assert_eq!(rig.must(&machine_state(rig)), as_found, "after kill -9 and unbind --restore");
    // A second repair finds nothing to do.
    rig.must("pciescope unbind --restore");
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

pub fn vfio_gives_everything_back_too(rig: &Rig) {
    let as_found = rig.must(&format!(
        "cat /sys/bus/pci/devices/{}/driver_override; ls /run/pciescope/bind 2>/dev/null | wc -l",
        rig.bdf
    ));
    for signal in ["INT", "KILL"] {
        let run = long_run(rig, "--bind --backend vfio");
        let stopped = disturb(rig, &run, |_, running| running.signal(signal).unwrap());
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
}
