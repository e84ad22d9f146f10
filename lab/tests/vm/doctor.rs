//! `doctor` in a guest. What is wrong there the lab has made so, from outside or by writing a register: the endpoint's link,
//! errors that QEMU injects, the machine's nodes, control registers, settings of the kernel. Each check has to speak where
//! the lab did something, to be silent beside it and when it is undone, and to change nothing by looking.

use crate::support::{Endpoint, RECORDS, Rig, is_arm64};
use pciescope_core::{Ended, Finding, Record};
use pciescope_lab::device::LatencyEndpoint;
use pciescope_lab::vm::{Attachment, Kernel, RootPort};
use serde_json::{Value, json};

/// The machine: the endpoint of the rig below a port that can do more than it, one like it below a port that can do
/// less, and two below ports that are their equals. Only the root bus has no NUMA node.
struct Ward {
    rig: Rig,
    /// The sick endpoint, and the port above it, which also reports errors.
    sick: String,
    sick_port: String,
    /// The endpoint in too small a slot.
    cramped: String,
    /// The endpoint to which nothing is done, and the port above it.
    well: String,
    well_port: String,
    /// The endpoint and the port of which registers are written.
    set: String,
    set_port: String,
    // Dropped after the guest.
    others: Vec<Endpoint>,
}

fn port(address: &str, generation: u8, width: u8, node: Option<u32>) -> RootPort {
    RootPort { address: address.parse().unwrap(), generation, width, node }
}

fn behind(address: &str) -> Attachment {
    Attachment::Port(address.parse().unwrap())
}

impl Ward {
    fn boot() -> Ward {
        let serve = |name| Endpoint::serve(LatencyEndpoint::default(), name);
        let others = vec![serve("cramped"), serve("well"), serve("set")];
        let ports = [
            port("00:02.0", 4, 8, None),
            port("00:03.0", 1, 1, None),
            port("10:00.0", 3, 4, Some(1)),
            port("10:01.0", 3, 4, Some(1)),
        ];
        let rig = Rig::boot_model(LatencyEndpoint::default(), Kernel::V6_12, behind("00:02.0"), |builder| {
            builder
                .cpus(2)
                .numa_nodes(2)
                .root_ports(ports)
                .interrupt_remapping(true)
                .served("cramped", &others[0].served, behind("00:03.0"))
                .served("well", &others[1].served, behind("10:00.0"))
                .served("set", &others[2].served, behind("10:01.0"))
        });
        let at = |name: &str| rig.vm.address(name);
        let above = |name: &str| {
            let above = format!("basename $(dirname $(readlink -f /sys/bus/pci/devices/{}))", at(name));
            rig.must(&above).trim().to_owned()
        };
        let (sick, cramped, well, set) = (rig.bdf.clone(), at("cramped"), at("well"), at("set"));
        let (sick_port, well_port, set_port) = (above("lab0"), above("well"), above("set"));
        Ward { rig, sick, sick_port, cramped, well, well_port, set, set_port, others }
    }

    /// Runs `doctor ARGS` as root.
    fn doctor(&self, args: &str) -> Answer {
        self.answer(&format!("pciescope doctor -j {args}"))
    }

    /// Runs `doctor ARGS` as a user without privilege.
    fn doctor_of_user(&self, args: &str) -> Answer {
        self.answer(&format!("setpriv --reuid 65534 --regid 65534 --clear-groups pciescope doctor -j {args}"))
    }

    fn answer(&self, command: &str) -> Answer {
        let done = self.rig.sh(&format!("{command} >{RECORDS}"));
        Answer { status: done.output.status, stderr: done.output.stderr, records: done.records }
    }

    /// Has QEMU inject an error that the port above the sick endpoint reports by AER. Its e1000e takes one too, but tells
    /// nobody of it.
    fn inject(&self, error: &str) {
        let name = port("00:02.0", 4, 8, None).name();
        let command = format!("pcie_aer_inject_error {name} {error}");
        let said = self.rig.vm.qmp("human-monitor-command", json!({ "command-line": command }));
        let said = said.unwrap_or_else(|err| panic!("the lab failed: {err}"));
        assert!(said.as_str().is_some_and(|said| said.starts_with("OK")), "the lab failed: {command}: {said}");
    }

    /// Writes a register of a function, and sees that it took the bits: a model that does not is the lab's failure.
    fn setpci(&self, bdf: &str, register: &str, value: u32, mask: u32) {
        let now =
            self.rig.must(&format!("setpci -s {bdf} {register}={value:x}:{mask:x} && setpci -s {bdf} {register}"));
        let now = u32::from_str_radix(now.trim(), 16).unwrap();
        assert_eq!(now & mask, value, "the lab failed: {register} of {bdf} is {now:#x}");
    }

    fn write(&self, file: &str, value: &str) {
        self.rig.must(&format!("echo {value} >{file}"));
    }
}

struct Answer {
    status: i32,
    stderr: String,
    records: Vec<Record>,
}

impl Answer {
    /// The record of a function; of the machine where `bdf` is empty.
    fn of(&self, bdf: &str) -> &Record {
        let is_it = |record: &&Record| {
            let own = record.device.as_ref().and_then(|device| device.bdf).map(|bdf| bdf.to_string());
            own.unwrap_or_default() == bdf
        };
        self.records.iter().find(is_it).unwrap_or_else(|| panic!("no record of {bdf:?}: {}", self.stderr))
    }

    /// How a check ended.
    fn ended(&self, check: &str, bdf: &str) -> Ended {
        let checks = &self.of(bdf).checks;
        checks.iter().find(|one| one.check == check).unwrap_or_else(|| panic!("{check} did not run at {bdf:?}")).ended
    }

    /// What a check found, which it has to.
    fn found(&self, check: &str, bdf: &str) -> &Finding {
        let findings = &self.of(bdf).findings;
        findings.iter().find(|one| one.check == check).unwrap_or_else(|| {
            let ended = self.of(bdf).checks.iter().find(|one| one.check == check);
            panic!("{check} found nothing at {bdf:?}, but {ended:?}")
        })
    }
}

/// A condition that the lab makes and takes away.
struct Condition<'a> {
    check: &'static str,
    /// The function where it speaks; empty for the machine.
    at: &'a str,
    /// A function of the same kind where it is silent all the time.
    beside: Option<&'a str>,
    /// What the finding has to say: the very figures that were set.
    says: Vec<&'static str>,
}

fn conditions(ward: &Ward) -> Vec<Condition<'_>> {
    let of = |check, at, beside, says: &[&'static str]| Condition { check, at, beside, says: says.to_vec() };
    let (sick, well, set) = (ward.sick.as_str(), Some(ward.well.as_str()), ward.set.as_str());
    let mut conditions = vec![
        of("link-speed", sick, well, &["runs at 2.5 of 8 GT/s"]),
        of("link-width", sick, well, &["runs on 2 of 4 lanes"]),
        of("mps-mismatch", set, well, &["256 bytes", "one of 128"]),
        of("mrrs-small", set, well, &["at most 128 bytes"]),
        of("relaxed-ordering", set, well, &["may not use relaxed ordering"]),
        of("extended-tags", set, well, &["5-bit tags"]),
        of("completion-timeout", set, well, &["never gives up"]),
        of("aspm", set, well, &["ASPM L0s at"]),
        of("memory-off", set, well, &["does not answer to its memory BARs"]),
        of("bus-master-off", &ward.set_port, Some(&ward.well_port), &["passes no DMA up"]),
        of("perf-paranoid", "", None, &["perf_event_paranoid is 2"]),
        of("numa-balancing", "", None, &["between 2 nodes"]),
    ];
    if clock_sources().is_some() {
        conditions.push(of("clocksource", "", None, &["clock source is acpi_pm, not tsc"]));
    }
    conditions
}

/// The clock source that a machine should have, and a slow one. An arm64 guest has its counter alone.
fn clock_sources() -> Option<[&'static str; 2]> {
    (!is_arm64()).then_some(["tsc", "acpi_pm"])
}

/// Where the kernel takes the name of a clock source.
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Device Control: payload size, relaxed ordering, extended tags, read request size.
const DEVICE_CONTROL: &str = "CAP_EXP+8.w";
const DEVICE_CONTROL_MASK: u32 = 0x71f0;

/// The state that a machine should have, independent of kernel and firmware.
fn heal(ward: &Ward) {
    ward.rig.tell("link as-made");
    for bdf in [&ward.well, &ward.set] {
        // Payloads of 128 bytes, relaxed ordering, extended tags, requests of 512 bytes.
        ward.setpci(bdf, DEVICE_CONTROL, 0x2110, DEVICE_CONTROL_MASK);
        ward.setpci(bdf, "CAP_EXP+28.w", 0x0000, 0x001f);
        ward.setpci(bdf, "CAP_EXP+10.w", 0x0000, 0x0003);
        ward.setpci(bdf, "COMMAND", 0x0006, 0x0006);
    }
    for bdf in [&ward.well_port, &ward.set_port] {
        ward.setpci(bdf, "COMMAND", 0x0006, 0x0006);
        ward.setpci(bdf, "CAP_EXP+10.w", 0x0000, 0x0003);
    }
    ward.write("/proc/sys/kernel/perf_event_paranoid", "0");
    ward.write("/proc/sys/kernel/numa_balancing", "0");
    clock_sources().iter().for_each(|[good, _]| ward.write(CLOCK_SOURCE, good));
}

/// All that [`conditions`] lists, at once.
fn spoil(ward: &Ward) {
    ward.rig.tell("link 1 2");
    // Payloads of 256 bytes below a port that takes 128, requests of 128 bytes, no relaxed ordering, 5-bit tags.
    ward.setpci(&ward.set, DEVICE_CONTROL, 0x0020, DEVICE_CONTROL_MASK);
    ward.setpci(&ward.set, "CAP_EXP+28.w", 0x0010, 0x001f);
    // L0s: QEMU's ports take no ASPM, and one end alone does not enter L1.
    ward.setpci(&ward.set, "CAP_EXP+10.w", 0x0001, 0x0003);
    // Memory off, bus master on, and the port above passes nothing up.
    ward.setpci(&ward.set, "COMMAND", 0x0004, 0x0006);
    ward.setpci(&ward.set_port, "COMMAND", 0x0002, 0x0006);
    ward.write("/proc/sys/kernel/perf_event_paranoid", "2");
    ward.write("/proc/sys/kernel/numa_balancing", "1");
    clock_sources().iter().for_each(|[_, slow]| ward.write(CLOCK_SOURCE, slow));
}

pub fn doctor_finds_what_the_lab_spoiled_says_what_it_could_not_look_at_and_changes_nothing() {
    let ward = Ward::boot();
    heal(&ward);
    let before = ward.doctor("");
    assert_eq!(before.status, 1, "a guest is a warning by itself: {}", before.stderr);
    for condition in conditions(&ward) {
        assert_eq!(before.ended(condition.check, condition.at), Ended::Fine, "{} before", condition.check);
    }
    what_the_machine_is_stands_there(&ward, &before);
    errors_are_counted_where_they_were_reported(&ward);

    spoil(&ward);
    let spoiled = ward.doctor("");
    for condition in conditions(&ward) {
        let finding = spoiled.found(condition.check, condition.at);
        for part in &condition.says {
            assert!(finding.text.contains(part), "{}: {part:?} is not in {:?}", condition.check, finding.text);
        }
        if let Some(beside) = condition.beside {
            assert_eq!(spoiled.ended(condition.check, beside), Ended::Fine, "{} at {beside}", condition.check);
        }
    }
    it_changes_nothing(&ward);
    a_user_is_told_what_could_not_be_looked_at(&ward);

    heal(&ward);
    let healed = ward.doctor("");
    for condition in conditions(&ward) {
        assert_eq!(healed.ended(condition.check, condition.at), Ended::Fine, "{} after", condition.check);
    }
    what_is_not_there_is_not_called_well(&ward);
    ward.rig.finish();
    drop(ward.others);
}

/// What cannot be taken away: the machine as QEMU was told to make it.
fn what_the_machine_is_stands_there(ward: &Ward, answer: &Answer) {
    let node = answer.found("node-unknown", &ward.sick);
    assert!(node.text.contains("2 NUMA nodes"), "{}", node.text);
    assert_eq!(answer.ended("node-unknown", &ward.well), Ended::Fine, "its bus is on node 1");
    let cramped = answer.found("link-limited", &ward.cramped);
    assert!(cramped.text.contains("can do 8 GT/s x4") && cramped.text.contains("2.5 GT/s x1"), "{}", cramped.text);
    assert_eq!(answer.ended("link-limited", &ward.sick), Ended::Fine, "its port can do more than it");
    assert!(answer.found("emulated-device", &ward.sick).text.contains("1234"), "its vendor ID");
    assert_eq!(answer.ended("emulated-device", &ward.well_port), Ended::NotApplicable, "a bridge");
    assert_eq!(answer.ended("guest", ""), Ended::Found);
    assert_eq!(answer.ended("not-answering", &ward.sick), Ended::Fine);
}

/// So many bad packets are reported by one port, and none by the other.
fn errors_are_counted_where_they_were_reported(ward: &Ward) {
    const ERRORS: u64 = 3;
    for number in 1..=ERRORS {
        ward.inject("BAD_TLP");
        let counted = format!("grep -q 'BadTLP {number}$' /sys/bus/pci/devices/{}/aer_dev_correctable", ward.sick_port);
        ward.rig.wait_until("the kernel's count of a bad packet", &counted);
    }
    let answer = ward.doctor("--only aer-correctable,aer-nonfatal,aer-fatal");
    let finding = answer.found("aer-correctable", &ward.sick_port);
    assert!(finding.text.contains(&format!("{ERRORS} correctable errors")), "{}", finding.text);
    assert_eq!(finding.evidence[0].value, format!("BadTLP {ERRORS}"));
    assert_eq!(answer.ended("aer-correctable", &ward.well_port), Ended::Fine);
    for check in ["aer-nonfatal", "aer-fatal"] {
        assert_eq!(answer.ended(check, &ward.sick_port), Ended::Fine, "{check}");
    }
    assert_eq!(answer.status, 1);
    // The endpoint has no AER: there is no count that could be called clean.
    assert_eq!(answer.ended("aer-correctable", &ward.sick), Ended::NotApplicable);
    let alone = ward.doctor(&format!("{} --only aer-correctable", ward.well_port));
    assert_eq!(alone.status, 0, "{}", alone.stderr);
}

/// All configuration spaces, and what sysfs and /proc have of the machine's settings, a line each.
const STATE: &str = "
for d in /sys/bus/pci/devices/*; do
    od -v -A x -t x1 -w64 $d/config | sed \"s|^|$d/config |\"
    grep -H '' $d/aer_dev_* $d/current_link_* $d/driver_override $d/enable $d/power/control $d/power_state \
        $d/power/runtime_status $d/msi_bus $d/numa_node $d/d3cold_allowed $d/link/* $d/msi_irqs/* 2>/dev/null
    echo $d $(readlink $d/driver)
done
grep -H '' /proc/irq/*/smp_affinity_list /sys/kernel/iommu_groups/*/type /sys/bus/pci/slots/*/power 2>/dev/null
grep -H '' /proc/sys/kernel/perf_event_paranoid /proc/sys/kernel/nmi_watchdog /proc/sys/kernel/numa_balancing \
    /sys/devices/system/clocksource/clocksource0/current_clocksource /sys/devices/system/cpu/online \
    /sys/module/pcie_aspm/parameters/policy /sys/devices/system/cpu/cpu*/cpuidle/state*/disable 2>/dev/null
cut -d ' ' -f 1 /proc/modules; ls /run /tmp /etc; mount; true";

/// A look leaves everything as it was: what the guest shows, and what the endpoints saw.
fn it_changes_nothing(ward: &Ward) {
    const SEEN: [&str; 6] = ["config_writes", "reads_total", "writes_total", "refused", "resets", "dma_write_bytes"];
    let books = |endpoint: &Endpoint| -> (Vec<Value>, u64) {
        let ledger = endpoint.ledger();
        (SEEN.map(|name| ledger[name].clone()).to_vec(), ledger["config_reads"].as_u64().unwrap())
    };
    let endpoints = || std::iter::once(&ward.rig.endpoint).chain(&ward.others);
    ward.rig.must("touch /tmp/trace /tmp/found");
    let state = ward.rig.must(STATE);
    let books_before: Vec<_> = endpoints().map(books).collect();
    ward.rig.must(
        "strace -f -e trace=open,openat,creat,unlink,unlinkat,rename,mkdir,ioctl,mmap,pwrite64 -o /tmp/trace \
         pciescope doctor --watch 1s >/tmp/found || [ $? = 1 ]",
    );
    let books_after: Vec<_> = endpoints().map(books).collect();
    for (before, after) in books_before.iter().zip(&books_after) {
        assert_eq!(before.0, after.0, "{SEEN:?}: nothing was written, and no BAR touched");
        assert!(after.1 > before.1, "it looked: {} reads of configuration space", after.1 - before.1);
    }
    let now = ward.rig.must(STATE);
    let changed: Vec<_> = state.lines().zip(now.lines()).filter(|(before, after)| before != after).take(5).collect();
    assert!(changed.is_empty(), "{changed:#?}");
    assert_eq!(state.lines().count(), now.lines().count());
    let configs = state.lines().filter(|line| line.contains("/config 000")).count();
    assert!(configs >= 8 * 4096 / 64, "the state holds whole configuration spaces: {configs} lines");

    let trace = ward.rig.must("cat /tmp/trace");
    assert!(trace.contains("/config\", O_RDONLY"), "the trace shows how files are opened");
    let is_change = |line: &&str| {
        let writes = ["O_WRONLY", "O_RDWR", "O_CREAT", "creat(", "unlink", "rename(", "mkdir(", "pwrite64("];
        writes.iter().any(|word| line.contains(word)) || line.contains("/resource") && !line.contains("/resource\"")
    };
    let changes: Vec<&str> = trace.lines().filter(is_change).collect();
    assert!(changes.is_empty(), "{changes:#?}");
}

/// Without privilege the capabilities cannot be read: checks that need them say so. What sysfs shows is still found.
fn a_user_is_told_what_could_not_be_looked_at(ward: &Ward) {
    let answer = ward.doctor_of_user("");
    assert_eq!(answer.status, 1, "{}", answer.stderr);
    for check in ["mps-mismatch", "mrrs-small", "relaxed-ordering", "extended-tags", "completion-timeout"] {
        assert_eq!(answer.ended(check, &ward.set), Ended::NotChecked, "{check}");
        assert_eq!(answer.ended(check, &ward.well), Ended::NotChecked, "{check}");
        let said = answer.of(&ward.set).warnings.iter().find(|warning| warning.text.starts_with(check));
        let said = said.unwrap_or_else(|| panic!("no warning that {check} was not checked"));
        assert!(said.text.contains("only the first 64 bytes") && said.hint.contains("as root"), "{said:?}");
    }
    for (check, at) in [
        ("link-speed", ward.sick.as_str()),
        ("link-width", &ward.sick),
        ("memory-off", &ward.set),
        ("aer-correctable", &ward.sick_port),
        ("perf-paranoid", ""),
    ] {
        answer.found(check, at);
    }
    if clock_sources().is_some() {
        answer.found("clocksource", "");
    }
    let alone = ward.doctor_of_user("--only mps-mismatch");
    assert_eq!(alone.status, 2, "{}", alone.stderr);
    assert!(alone.stderr.contains("not checked: mps-mismatch: only the first 64 bytes"), "{}", alone.stderr);
    // Not even where it finds something else: both are said.
    let both = ward.doctor_of_user("--only mps-mismatch,link-speed");
    assert_eq!(both.status, 1, "{}", both.stderr);
    assert!(both.stderr.contains("not checked: mps-mismatch"), "{}", both.stderr);
}

/// A guest has no frequency governors, and a port no link above it.
fn what_is_not_there_is_not_called_well(ward: &Ward) {
    ward.rig.must("[ ! -e /sys/devices/system/cpu/cpufreq/policy0 ]");
    let answer = ward.doctor("--only governor");
    assert_eq!((answer.status, answer.ended("governor", "")), (2, Ended::NotApplicable), "{}", answer.stderr);
    assert!(answer.stderr.contains("not checked: governor: no CPU has"), "{}", answer.stderr);
    let answer = ward.doctor(&format!("{} --only link-width", ward.well_port));
    assert_eq!(answer.status, 2, "{}", answer.stderr);
    assert!(answer.stderr.contains("not checked: link-width: it does not apply"), "{}", answer.stderr);
    let answer = ward.doctor(&format!("{} --only link-width,mps-mismatch,mrrs-small", ward.well));
    assert_eq!((answer.status, answer.stderr.as_str()), (0, ""));
}
