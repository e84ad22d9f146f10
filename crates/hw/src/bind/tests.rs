//! Handing over and back against a kernel that is played on a tree of files: a write to `bind`, `unbind`,
//! `driver_override` or `drivers_probe` changes the tree as the kernel would.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Mutex;

use super::*;
use crate::test::Tree;

const BDF: &str = "0000:01:00.0";

/// A kernel that is played; remembers what was written.
struct Kernel {
    root: Root,
    log: Mutex<Vec<String>>,
    /// A write whose path ends so fails with this error.
    fails: Mutex<Option<(&'static str, io::ErrorKind)>>,
    /// A write whose path ends so removes the device first, as a hot-unplug.
    removes: Mutex<Option<&'static str>>,
}

impl Hand for Kernel {
    fn write(&self, absolute: &Path, value: &str) -> Result<(), Error> {
        let path = absolute.to_str().unwrap().to_owned();
        self.log.lock().unwrap().push(format!("{path}={}", value.trim_end()));
        if self.removes.lock().unwrap().is_some_and(|end| path.ends_with(end)) {
            fs::remove_dir_all(self.root.path(pci::folder(BDF.parse().unwrap()))).unwrap();
        }
        let fail = |kind: io::ErrorKind| {
            Err(Error::Write { path: absolute.to_owned(), value: value.to_owned(), source: kind.into() })
        };
        if let Some((end, kind)) = *self.fails.lock().unwrap() {
            if path.ends_with(end) {
                return fail(kind);
            }
        }
        let device = self.root.path(pci::folder(BDF.parse().unwrap()));
        if !device.exists() {
            return fail(io::ErrorKind::NotFound);
        }
        let link = device.join("driver");
        if path.ends_with("driver_override") {
            let text = if value.trim_end().is_empty() { "(null)" } else { value.trim_end() };
            fs::write(device.join("driver_override"), format!("{text}\n")).unwrap();
        } else if path.ends_with(POWER) {
            fs::write(device.join(POWER), format!("{value}\n")).unwrap();
        } else if path.ends_with("/unbind") {
            let was_vfio = pci::driver(&self.root, BDF.parse().unwrap()).as_deref() == Some("vfio-pci");
            fs::remove_file(link).unwrap();
            if was_vfio {
                self.set_power("on");
            }
        } else if let Some(driver) = path.strip_suffix("/bind") {
            let driver = Path::new(driver).file_name().unwrap();
            if link.exists() {
                return fail(io::ErrorKind::ResourceBusy);
            }
            // Only nvme has the disk in its table of ids.
            let overridden = driver_override(&self.root, BDF.parse().unwrap());
            if driver != "nvme" && overridden.as_deref() != driver.to_str() {
                return fail(io::ErrorKind::NotFound);
            }
            let has_group = self.root.exists("/sys/kernel/iommu_groups/7");
            if driver == "vfio-pci" && self.root.exists("/sys/class/iommu") && !has_group {
                return fail(io::ErrorKind::InvalidInput);
            }
            symlink(self.root.path(DRIVERS).join(driver), link).unwrap();
            if driver == "vfio-pci" {
                self.set_power("auto");
            }
        }
        Ok(())
    }
}

impl Kernel {
    /// What a driver does to `power/control`, of a kernel that has it.
    fn set_power(&self, text: &str) {
        let file = self.root.path(pci::folder(BDF.parse().unwrap())).join(POWER);
        if file.exists() {
            fs::write(file, format!("{text}\n")).unwrap();
        }
    }
}

struct Machine {
    root: Tree,
    kernel: Arc<Kernel>,
    bdf: Bdf,
}

/// A machine with one NVMe disk on `driver`, and the drivers nvme, pcilat and vfio-pci.
fn machine(driver: Option<&str>, driver_override: &str) -> Machine {
    let root = Tree::new();
    let device = pci::folder(BDF.parse().unwrap());
    for (file, text) in [
        ("vendor", "0x144d"),
        ("device", "0xa80a"),
        ("class", "0x010802"),
        ("resource", "0x0 0x0 0x0"),
        ("driver_override", driver_override),
    ] {
        root.put(device.join(file), format!("{text}\n"));
    }
    for name in ["nvme", "pcilat", "vfio-pci"] {
        root.folder(Path::new(DRIVERS).join(name));
    }
    let kernel =
        Kernel { root: Root::clone(&root), log: Mutex::default(), fails: Mutex::default(), removes: Mutex::default() };
    let machine = Machine { root, kernel: Arc::new(kernel), bdf: BDF.parse().unwrap() };
    machine.binds(driver);
    machine
}

impl Machine {
    fn take(&self) -> Result<Bound, Error> {
        self.take_for(Driver::Pcilat, false)
    }
    fn take_for(&self, driver: Driver, is_forced: bool) -> Result<Bound, Error> {
        take_by(&self.root, Arc::<Kernel>::clone(&self.kernel), self.bdf, driver, is_forced)
    }
    /// Another hand than ours gives it to a driver, or to none.
    fn binds(&self, driver: Option<&str>) {
        let link = self.folder().join("driver");
        let _ = fs::remove_file(&link);
        if let Some(driver) = driver {
            symlink(self.root.path(DRIVERS).join(driver), link).unwrap();
        }
    }
    fn restore(&self) -> Result<Restored, Error> {
        restore_by(&self.root, self.kernel.as_ref(), self.bdf)
    }
    /// Driver, `driver_override`, and whether there is a state file.
    fn now(&self) -> (Option<String>, Option<String>, bool) {
        (
            pci::driver(&self.root, self.bdf),
            driver_override(&self.root, self.bdf),
            !states(&self.root).unwrap().is_empty(),
        )
    }
    fn folder(&self) -> PathBuf {
        self.root.path(pci::folder(self.bdf))
    }
}

fn owned(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn gives_driver_and_override_back_when_dropped() {
    for (driver, text) in [(Some("nvme"), "(null)"), (None, "(null)"), (Some("vfio-pci"), "vfio-pci"), (None, "nvme")] {
        let machine = machine(driver, text);
        let before = machine.now();
        let bound = machine.take().unwrap();
        assert_eq!(machine.now(), (owned("pcilat"), owned("pcilat"), true));
        drop(bound);
        assert_eq!(machine.now(), before, "{driver:?} {text}");
    }
}

/// vfio-pci lets a function be suspended when it is bound (`pm_runtime_allow`), and forbids it when it goes.
#[test]
fn gives_runtime_power_management_back_that_vfio_pci_changes() {
    let taken = |former: &str| {
        let machine = machine(Some("nvme"), "(null)");
        let file = machine.folder().join(POWER);
        fs::create_dir(file.parent().unwrap()).unwrap();
        fs::write(&file, format!("{former}\n")).unwrap();
        machine.root.folder("/sys/kernel/iommu_groups/7/devices");
        symlink("../../../kernel/iommu_groups/7", machine.folder().join("iommu_group")).unwrap();
        let bound = machine.take_for(Driver::VfioPci, false).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "auto\n");
        (machine, bound, file)
    };
    for former in ["auto", "on"] {
        let (machine, bound, file) = taken(former);
        assert_eq!(bound.release().unwrap().notes, Vec::<String>::new());
        assert_eq!(machine.now().0, owned("nvme"));
        assert_eq!(fs::read_to_string(file).unwrap().trim(), former);
        // After a kill -9.
        let (machine, bound, file) = taken(former);
        bound.keep();
        machine.restore().unwrap();
        assert_eq!(fs::read_to_string(file).unwrap().trim(), former);
    }
    // A try that failed is made again.
    let (machine, bound, file) = taken("auto");
    *machine.kernel.fails.lock().unwrap() = Some((POWER, io::ErrorKind::PermissionDenied));
    assert!(bound.release().is_err());
    *machine.kernel.fails.lock().unwrap() = None;
    machine.restore().unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "auto\n");
    // The driver that somebody else has bound keeps what it has set.
    let (machine, bound, file) = taken("auto");
    bound.keep();
    fs::write(&file, "on\n").unwrap();
    machine.binds(Some("pcilat"));
    machine.restore().unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "on\n");
}

/// As on a kernel without runtime power management.
#[test]
fn a_state_without_power_management_is_restored_too() {
    let machine = machine(Some("nvme"), "(null)");
    machine.take().unwrap().keep();
    let path = machine.root.path(FOLDER).join(format!("{BDF}.json"));
    let text = fs::read_to_string(&path).unwrap();
    let earlier = text.replace(",\"former_power\":null", "");
    assert_ne!(earlier, text);
    fs::write(&path, earlier).unwrap();
    assert_eq!(machine.restore().unwrap().driver, owned("nvme"));
}

/// A configuration space with a Device Serial Number.
fn with_serial(number: u8) -> Vec<u8> {
    let mut config = vec![0; 512];
    (config[0x06], config[0x34], config[0x40]) = (0x10, 0x40, 0x10);
    config[0x100..0x108].copy_from_slice(&[3, 0, 1, 0, number, 0, 0, 0]);
    config
}

#[test]
fn a_device_of_the_same_kind_with_another_serial_number_keeps_its_driver() {
    let machine = machine(Some("nvme"), "(null)");
    let config = machine.root.path(pci::folder(machine.bdf)).join("config");
    fs::write(&config, with_serial(1)).unwrap();
    machine.take().unwrap().keep();
    fs::write(&config, with_serial(2)).unwrap();
    let restored = machine.restore().unwrap();
    assert_eq!(restored.driver, owned("pcilat"));
    assert_eq!(restored.notes, ["another device (144d:a80a, serial number 0000000000000002) is in its place"]);
    // The same one, which does not answer any more, or only to the first half of a read; and a state of a version that kept no
    // serial number.
    let (gone, mut torn) = (vec![0xff; 512], with_serial(1));
    torn[0x104..].fill(0xff);
    for answer in [Some(gone), Some(torn), None] {
        fs::write(&config, with_serial(1)).unwrap();
        machine.binds(Some("nvme"));
        machine.take().unwrap().keep();
        let state = machine.root.path(FOLDER).join(format!("{BDF}.json"));
        if let Some(answer) = &answer {
            fs::write(&config, answer).unwrap();
        } else {
            let text = fs::read_to_string(&state).unwrap();
            let cut = text.replace("\"serial\":\"0000000000000001\",", "");
            assert_ne!(cut, text);
            let (head, boot) = cut.split_once("\"boot_id\":").unwrap();
            fs::write(&state, head.to_owned() + boot.split_once(',').unwrap().1).unwrap();
        }
        assert_eq!(machine.restore().unwrap().driver, owned("nvme"), "{answer:?}");
    }
}

#[test]
fn the_state_is_on_disk_before_anything_is_changed() {
    let machine = machine(Some("nvme"), "(null)");
    struct Look(Machine, Mutex<Vec<Option<State>>>);
    impl Hand for Look {
        fn write(&self, absolute: &Path, value: &str) -> Result<(), Error> {
            self.1.lock().unwrap().push(state(&self.0.root, self.0.bdf));
            self.0.kernel.write(absolute, value)
        }
    }
    let root = machine.root.clone();
    let bdf = machine.bdf;
    let look = Arc::new(Look(machine, Mutex::default()));
    drop(take_by(&root, Arc::<Look>::clone(&look), bdf, Driver::Pcilat, false).unwrap());
    let seen = look.1.lock().unwrap().clone();
    let seen = seen.first().cloned().flatten().expect("no state at the first write");
    assert_eq!((seen.former_driver.as_deref(), seen.driver.as_str()), (Some("nvme"), "pcilat"));
}

#[test]
fn every_step_that_fails_leads_back() {
    for (end, kind) in [
        ("driver_override", io::ErrorKind::PermissionDenied),
        ("driver/unbind", io::ErrorKind::PermissionDenied),
        ("pcilat/bind", io::ErrorKind::InvalidInput),
    ] {
        let machine = machine(Some("nvme"), "(null)");
        let before = machine.now();
        *machine.kernel.fails.lock().unwrap() = Some((end, kind));
        let error = machine.take().unwrap_err();
        assert!(matches!(error, Error::Write { .. }), "{end}: {error}");
        let (driver, _, has_state) = machine.now();
        if end == "driver_override" {
            // It cannot be written back either: the state stays for a later try.
            assert!(has_state);
            *machine.kernel.fails.lock().unwrap() = None;
            machine.restore().unwrap();
        }
        assert_eq!(driver, owned("nvme"), "{end}");
        assert_eq!(machine.now(), before, "{end}");
    }
}

#[test]
fn a_killed_run_is_repaired_from_its_state_file() {
    let machine = machine(Some("nvme"), "(null)");
    let before = machine.now();
    // What kill -9 leaves: no drop runs, the lock ends with the process.
    machine.take().unwrap().keep();
    assert_eq!(machine.now(), (owned("pcilat"), owned("pcilat"), true));
    let restored = machine.restore().unwrap();
    assert_eq!((restored.driver, restored.notes), (owned("nvme"), Vec::new()));
    assert_eq!(machine.now(), before);
    assert!(matches!(machine.restore().unwrap_err(), Error::NotBound { .. }));
}

#[test]
fn a_run_killed_halfway_is_repaired_too() {
    let machine = machine(Some("nvme"), "(null)");
    machine.take().unwrap().keep();
    // Between unbind and bind: no driver at all.
    machine.binds(None);
    assert_eq!(machine.restore().unwrap().driver, owned("nvme"));
    // Before anything was done: the former driver still has it.
    machine.take().unwrap().keep();
    machine.binds(Some("nvme"));
    machine.restore().unwrap();
    assert_eq!(machine.now(), (owned("nvme"), None, false));
    // A state file that was not complete stands for nothing done.
    fs::write(machine.root.path(FOLDER).join(format!("{BDF}.json")), "{\"version\":").unwrap();
    let notes = machine.restore().unwrap().notes;
    assert!(notes[0].contains("not complete"), "{notes:?}");
}

#[test]
fn what_another_user_planted_is_not_followed() {
    use std::os::unix::fs::PermissionsExt;
    let machine = machine(Some("nvme"), "(null)");
    let folder = machine.root.path(FOLDER);
    fs::create_dir_all(&folder).unwrap();
    let (victim, state) = (folder.join("victim"), folder.join(format!("{BDF}.json")));
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, &state).unwrap();
    machine.take().unwrap_err();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert_eq!(machine.now().0, owned("nvme"));
    fs::remove_file(&state).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let error = machine.take().unwrap_err();
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("other users can write"), "{error}");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    machine.take().unwrap();
}

#[test]
fn two_hands_on_one_function_are_told_apart() {
    let machine = machine(Some("nvme"), "(null)");
    let bound = machine.take().unwrap();
    let pid = std::process::id();
    // A second file description stands for a second process: flock() tells them apart the same way.
    for error in [machine.take().unwrap_err(), machine.restore().unwrap_err()] {
        assert!(matches!(error, Error::Held(_, Some(holder)) if holder == pid), "{error}");
    }
    bound.keep();
    let error = machine.take().unwrap_err();
    assert!(matches!(&error, Error::BoundAlready(_, driver) if driver == "pcilat"), "{error}");
    assert!(error.hint().unwrap().contains("unbind"));
}

#[test]
fn a_function_removed_meanwhile_is_let_go() {
    let machine = machine(Some("nvme"), "(null)");
    let bound = machine.take().unwrap();
    fs::remove_dir_all(machine.folder()).unwrap();
    let restored = bound.release().unwrap();
    assert_eq!((restored.driver, restored.notes), (None, vec!["it was removed meanwhile".to_owned()]));
    assert!(states(&machine.root).unwrap().is_empty());
}

#[test]
fn a_function_removed_while_it_is_put_back_is_let_go() {
    let machine = machine(Some("nvme"), "(null)");
    let bound = machine.take().unwrap();
    *machine.kernel.removes.lock().unwrap() = Some("driver/unbind");
    assert_eq!(bound.release().unwrap().notes, ["it was removed meanwhile"]);
    assert!(states(&machine.root).unwrap().is_empty());
}

#[test]
fn another_card_in_the_slot_is_left_alone() {
    let machine = machine(Some("nvme"), "(null)");
    machine.take().unwrap().keep();
    fs::write(machine.folder().join("device"), "0xa808\n").unwrap();
    machine.kernel.log.lock().unwrap().clear();
    let notes = machine.restore().unwrap().notes;
    assert!(notes[0].contains("144d:a808"), "{notes:?}");
    assert!(machine.kernel.log.lock().unwrap().is_empty());
}

#[test]
fn a_driver_given_by_somebody_else_meanwhile_stays() {
    let machine = machine(Some("nvme"), "(null)");
    machine.take().unwrap().keep();
    machine.binds(Some("vfio-pci"));
    let restored = machine.restore().unwrap();
    assert_eq!(restored.driver, owned("vfio-pci"));
    assert!(restored.notes[0].contains("vfio-pci"), "{:?}", restored.notes);
    assert_eq!(machine.now(), (owned("vfio-pci"), None, false));
}

#[test]
fn a_former_driver_that_was_unloaded_is_said() {
    let machine = machine(Some("nvme"), "(null)");
    machine.take().unwrap().keep();
    fs::remove_dir(machine.root.path(DRIVERS).join("nvme")).unwrap();
    let restored = machine.restore().unwrap();
    assert!(restored.notes[0].contains("nvme is not loaded"), "{:?}", restored.notes);
    let log = machine.kernel.log.lock().unwrap();
    assert_eq!(log.last().unwrap(), "/sys/bus/pci/drivers_probe=0000:01:00.0");
}

#[test]
fn refuses_bridges_missing_drivers_and_what_is_bound_by_others() {
    let fresh = machine(Some("nvme"), "(null)");
    fs::remove_dir(fresh.root.path(DRIVERS).join("pcilat")).unwrap();
    let error = fresh.take().unwrap_err();
    assert!(matches!(error, Error::NoDriver { .. }) && error.hint().unwrap().contains("make kmod"), "{error}");

    let bridge = machine(None, "(null)");
    fs::write(bridge.folder().join("class"), "0x060400\n").unwrap();
    assert!(matches!(bridge.take_for(Driver::Pcilat, true).unwrap_err(), Error::Refused { .. }));

    let ours = machine(Some("pcilat"), "pcilat");
    let error = ours.take().unwrap_err().to_string();
    assert!(error.contains("already"), "{error}");
    assert!(ensure(&ours.root, ours.bdf, Driver::Pcilat, false).unwrap().is_none());
    // No refusal leaves a trace.
    for machine in [fresh, bridge, ours] {
        assert!(machine.kernel.log.lock().unwrap().is_empty() && states(&machine.root).unwrap().is_empty());
    }
}

#[test]
fn a_group_that_comes_only_when_a_driver_probes_is_waited_for() {
    let machine = machine(Some("nvme"), "(null)");
    let take = || machine.take_for(Driver::VfioPci, false).map(drop);
    let refused = |is_tried: bool| {
        let error = take().unwrap_err();
        assert!(error.to_string().contains("no IOMMU group"), "{error}");
        assert_eq!(!machine.kernel.log.lock().unwrap().is_empty(), is_tried, "{error}");
        assert_eq!(machine.now(), (owned("nvme"), None, false));
    };
    // Without an IOMMU, or with one that would have named the group by now: nothing is touched.
    refused(false);
    machine.root.folder("/sys/class/iommu/dmar0");
    refused(false);
    // With an SMMU only the kernel knows.
    machine.root.folder("/sys/class/iommu/smmu3.0x0000000009050000");
    refused(true);
    machine.root.folder("/sys/kernel/iommu_groups/7");
    take().unwrap();
}

/// What was unplugged and plugged in again is another function at the same address: it can be taken, and goes back to what it
/// is now.
#[test]
fn a_function_that_came_back_can_be_taken_again() {
    let machine = machine(Some("nvme"), "(null)");
    machine.take().unwrap().keep();
    assert!(matches!(machine.take().unwrap_err(), Error::BoundAlready { .. }));
    // Somebody unbound it by hand: it is still ours, by its override.
    machine.binds(None);
    assert!(matches!(machine.take().unwrap_err(), Error::BoundAlready { .. }));
    fs::write(machine.folder().join("driver_override"), "(null)\n").unwrap();
    let bound = machine.take().unwrap();
    assert_eq!((bound.state().former_driver.clone(), machine.now()), (None, (owned("pcilat"), owned("pcilat"), true)));
    bound.release().unwrap();
    assert_eq!(machine.now(), (None, None, false));
    // Another device in its place.
    machine.take().unwrap().keep();
    fs::write(machine.folder().join("device"), "0x1234\n").unwrap();
    assert!(machine.take().is_ok());
}

#[test]
fn refuses_what_is_in_use_unless_forced() {
    let machine = machine(Some("nvme"), "(null)");
    machine.root.put("/sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1/dev", "259:0\n");
    // Native multipath: the namespace lies below a virtual subsystem that links to the controller.
    let link = |from: &str, to: &str| machine.root.link(from, to);
    link("/sys/class/nvme-subsystem/nvme-subsys0", "../../devices/virtual/nvme-subsystem/nvme-subsys0");
    link("/sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0", "../../../pci0000:00/0000:01:00.0/nvme/nvme0");
    link("/sys/class/block/nvme0n1", "../../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1");
    let mounts = |text: &str| machine.root.put("/proc/self/mountinfo", text);

    mounts("30 22 259:0 / /data rw - xfs /dev/nvme0n1 rw\n");
    let error = machine.take().unwrap_err();
    assert!(error.to_string().ends_with("nvme0n1 is mounted at /data"), "{error}");
    assert_eq!(error.hint().as_deref(), Some("`umount /data` first"));
    // Btrfs has a number of its own; ZFS names no disk.
    mounts("30 22 0:40 / /srv rw - btrfs /dev/nvme0n1 rw\n");
    assert!(machine.take().unwrap_err().to_string().ends_with("nvme0n1 is mounted at /srv"));
    mounts("30 22 0:41 / /tank rw - zfs tank rw\n");
    assert!(machine.take().unwrap_err().to_string().contains("ZFS"));
    mounts("");
    machine.root.put("/proc/swaps", "Filename Type\n/dev/nvme0n1 partition\n");
    assert!(machine.take().unwrap_err().to_string().contains("swap"));
    drop(machine.take_for(Driver::Pcilat, true).unwrap());
    assert_eq!(machine.now(), (owned("nvme"), None, false));
    // What the machine runs from: the hint is no command that takes it, also where another mount stands before.
    let hint = || machine.take().unwrap_err().hint().unwrap();
    assert_eq!(hint(), "`swapoff /dev/nvme0n1` first");
    mounts("30 22 259:0 / /srv rw - ext4 /dev/nvme0n1 rw\n31 22 259:0 / /boot/efi rw - ext4 /dev/nvme0n1 rw\n");
    assert_eq!(hint(), "`umount /boot/efi` first");
    for root in ["/", "/usr"] {
        mounts(&format!(
            "29 1 259:0 /srv /srv rw - ext4 /dev/nvme0n1 rw\n30 1 259:0 / {root} rw - ext4 /dev/nvme0n1 rw\n"
        ));
        assert_eq!(hint(), "start the machine from another disk first");
    }
    mounts("30 1 0:41 / / rw - zfs tank rw\n");
    machine.root.put("/proc/swaps", "");
    assert_eq!(hint(), "start the machine from another disk first");
}

#[test]
fn refuses_the_virtio_devices_that_a_guest_needs() {
    let machine = machine(Some("nvme"), "(null)");
    let device = machine.folder().join("virtio3");
    fs::create_dir_all(device.join("driver")).unwrap();
    fs::write(machine.folder().join("class"), "0x00ff00\n").unwrap();
    let becomes = |id: u8| fs::write(device.join("device"), format!("0x{id:04x}\n")).unwrap();
    let mounts = |text: &str| machine.root.put("/proc/self/mountinfo", text);
    let refused = || machine.take().unwrap_err();

    becomes(9);
    fs::write(device.join("mount_tag"), "host\0").unwrap();
    mounts("30 22 0:40 / /host rw - 9p host rw,trans=virtio\n");
    assert!(
        refused().to_string().ends_with("the carrier of the 9p file system at /host of this guest"),
        "{}",
        refused()
    );
    mounts("30 22 0:40 / /lab rw - 9p lab rw,trans=virtio\n");
    assert!(refused().to_string().ends_with("a carrier of 9p file systems of this guest"), "{}", refused());
    fs::remove_file(device.join("mount_tag")).unwrap();
    assert!(refused().to_string().contains("at /lab"), "any, where the tag is not known");
    becomes(26);
    mounts("30 22 0:40 / / rw - virtiofs root rw\n");
    assert!(refused().to_string().contains("the virtiofs file system at /"));
    for (id, what) in [(3, "console"), (5, "balloon"), (19, "vsock"), (24, "memory"), (25, "kind 25")] {
        becomes(id);
        assert!(refused().to_string().contains(what), "{id}: {}", refused());
        assert_eq!(refused().hint().as_deref(), Some("measure another function"));
    }
    // Entropy; and a console that no driver has.
    becomes(4);
    assert!(machine.take().is_ok());
    becomes(3);
    machine.binds(None);
    assert!(machine.take().is_ok());
}

/// Each kind of function, in use and free: what is put into the tree, and what the refusal then says.
#[test]
fn each_kind_has_its_own_proof_that_it_is_free() {
    type Case<'c> = (&'c str, &'c str, &'c [(&'c str, &'c str)], Option<&'c str>);
    const IN_BOND: &str = "/sys/class/net/bond0/flags";
    const CONNECTION: &str = "sl local_address remote_address st\n0: 000080FE00000000FF005450563412FE:0016 \
        000080FE00000000000000000000FE80:D431 01\n";
    const OTHER: &str = "sl local_address remote_address st\n0: 000080FE00000000FF005450563412FE:0016 \
        00000000000000000000000000000000:0000 0A\n";
    const LINK_LOCAL: &str = "fe80000000000000505400fffe123456 02 40 20 80 eth0\n";
    let up = ("/sys/devices/pci0000:00/0000:01:00.0/net/eth0/flags", "0x1003\n");
    let cases: &[Case<'_>] = &[
        // Neither a kind that is known nor a driver that does nothing.
        ("0x0c0330", "xhci_hcd", &[], Some("nothing tells whether that needs it")),
        ("0x0c0330", "pci-stub", &[], None),
        ("0x118000", "sis8300", &[("/dev/sis8300-0", "")], None),
        // Disks.
        ("0x010802", "nvme", &[("BLOCK/dev", "259:0\n")], None),
        ("0x010802", "nvme", &[("BLOCK/holders/md0/x", "")], Some("md0 is made of nvme0n1")),
        (
            "0x010802",
            "nvme",
            &[("/proc/77/comm", "smartd\n"), ("/proc/77/fd/5", "/dev/nvme0n1")],
            Some("open in process 77 (smartd)"),
        ),
        // Network cards.
        (
            "0x020000",
            "ixgbe",
            &[
                ("/sys/devices/pci0000:00/0000:01:00.0/net/eth0/flags", "0x1002\n"),
                ("/proc/net/route", "Iface Destination\neth0 00000000\n"),
            ],
            None,
        ),
        (
            "0x020000",
            "ixgbe",
            &[up, ("/proc/net/route", "Iface Destination\neth0 00000000\n")],
            Some("carries the default route"),
        ),
        ("0x020000", "ixgbe", &[up, ("/proc/net/route", "Iface Destination\neth0 0002000A\n")], Some("IPv4")),
        ("0x020000", "ixgbe", &[up, ("/proc/net/if_inet6", LINK_LOCAL), ("/proc/net/tcp6", OTHER)], None),
        (
            "0x020000",
            "ixgbe",
            &[up, ("/proc/net/if_inet6", LINK_LOCAL), ("/proc/net/tcp6", CONNECTION)],
            Some("a TCP connection"),
        ),
        (
            "0x020000",
            "ixgbe",
            &[up, ("/sys/devices/pci0000:00/0000:01:00.0/net/eth0/upper_bond0/x", ""), (IN_BOND, "0x1003\n")],
            Some("eth0 is a part of bond0"),
        ),
        // Graphics cards.
        ("0x030000", "amdgpu", &[], None),
        ("0x030000", "amdgpu", &[("/proc/9/fd/3", "/dev/kfd")], Some("/dev/kfd is open")),
        ("0x030200", "nvidia", &[("/proc/9/fd/3", "/dev/nvidia1")], None),
        ("0x030200", "nvidia", &[("/proc/9/fd/3", "/dev/nvidia0")], Some("/dev/nvidia0 is open")),
        (
            "0x030000",
            "i915",
            &[("DRM/dev", "226:0\n"), ("DRM/uevent", "DEVNAME=dri/card0\n"), ("/proc/9/fd/3", "/dev/dri/card0")],
            Some("card0 is open"),
        ),
    ];
    for (class, driver, files, why) in cases {
        let machine = machine(Some("nvme"), "(null)");
        machine.root.folder(Path::new(DRIVERS).join(driver));
        machine.binds(Some(driver));
        fs::write(machine.folder().join("class"), format!("{class}\n")).unwrap();
        machine.root.put("/sys/devices/pci0000:00/0000:01:00.0/nvme/nvme0n1/size", "1\n");
        machine.root.link("/sys/class/block/nvme0n1", "../../devices/pci0000:00/0000:01:00.0/nvme/nvme0n1");
        machine.root.link("/sys/class/net/eth0", "../../devices/pci0000:00/0000:01:00.0/net/eth0");
        for (path, text) in *files {
            let path = path.replace("BLOCK", "/sys/class/block/nvme0n1");
            let path = path.replace("DRM", &format!("/sys/bus/pci/devices/{BDF}/drm/card0"));
            match path.contains("/fd/") {
                true => machine.root.link(path, text),
                false => machine.root.put(path, text),
            }
        }
        match (machine.take(), why) {
            (Ok(_), None) => {}
            (Err(error), Some(why)) => {
                assert!(error.to_string().contains(why), "{class} {files:?}: {error}");
                assert!(!error.hint().unwrap_or_default().contains("--force"), "{error:?}");
            }
            (taken, why) => panic!("{class} {driver} {files:?}: {taken:?}, not {why:?}"),
        }
        assert!(machine.take_for(Driver::Pcilat, true).is_ok(), "{class} {files:?}");
    }
}

#[test]
fn a_former_driver_that_came_by_an_override_taken_back_since_is_given_back() {
    let machine = machine(Some("vfio-pci"), "(null)");
    machine.take().unwrap().release().unwrap();
    assert_eq!(machine.now(), (Some("vfio-pci".into()), None, false));
}
