//! The description of a guest, and its boot.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{fs, thread};

use super::accel::Accel;
use super::agent::Agent;
use super::arch::Arch;
use super::kernel_log::died_of_stale_code;
use super::machine::{self, Attachment, GuestDevice, RootPort, Slot};
use super::process::Process;
use super::qmp::Monitor;
use super::root::{Kernel, Root, own_modules, own_program};
use super::{LabError, Vm, initramfs};
use crate::Served;

/// How long a guest may take to boot with KVM.
const BOOT: Duration = Duration::from_secs(60);
/// How long QEMU may take to make its sockets.
const SOCKETS: Duration = Duration::from_secs(20);

/// A guest to be: made by [`Vm::builder`], ended by [`Builder::boot`].
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Builder {
    arch: Option<Arch>,
    is_device_tree: bool,
    kernel: Kernel,
    cpus: u32,
    memory_mib: u32,
    cmdline: Vec<String>,
    numa_nodes: u32,
    root_ports: Vec<RootPort>,
    slots: Vec<Slot>,
    has_iommu: bool,
    has_interrupt_remapping: bool,
    modules: Vec<String>,
    optional_modules: Vec<String>,
    files: Vec<(PathBuf, String)>,
    programs: Vec<PathBuf>,
    acpi_tables: Vec<String>,
    qemu: Vec<String>,
    pub(super) interactive: Option<String>,
    stop: Arc<AtomicUsize>,
}

impl Builder {
    /// The guest's architecture; that of `PCIESCOPE_LAB_ARCH` if not given.
    pub fn arch(mut self, arch: Arch) -> Self {
        self.arch = Some(arch);
        self
    }

    /// An arm64 guest without UEFI and ACPI: a DeviceTree describes the machine.
    pub fn device_tree(mut self) -> Self {
        self.is_device_tree = true;
        self
    }

    /// The guest kernel; 6.12 if not given.
    pub fn kernel(mut self, kernel: Kernel) -> Self {
        self.kernel = kernel;
        self
    }

    /// A number other than 0 in here, such as that of a signal, ends QEMU, and every wait for the guest.
    pub fn stop(mut self, stop: &Arc<AtomicUsize>) -> Self {
        self.stop = Arc::clone(stop);
        self
    }

    /// Number of CPUs; 4 if not given.
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    /// Memory in MiB; 1024 if not given.
    pub fn memory_mib(mut self, mib: u32) -> Self {
        self.memory_mib = mib;
        self
    }

    /// Number of NUMA nodes, which share CPUs and memory in equal parts; 1 if not given.
    pub fn numa_nodes(mut self, nodes: u32) -> Self {
        self.numa_nodes = nodes;
        self
    }

    /// Root ports at given addresses, such as [`super::seed_machine`]; [`Attachment::Port`] places devices behind them.
    pub fn root_ports(mut self, ports: impl IntoIterator<Item = RootPort>) -> Self {
        self.root_ports.extend(ports);
        self
    }

    /// The machine of the counters' seed: its root ports, two NUMA nodes, and interrupt remapping, without which the
    /// counter board's interrupt lines would share one vector.
    pub fn seed_machine(self) -> Self {
        self.root_ports(machine::seed_machine()).numa_nodes(2).interrupt_remapping(true)
    }

    /// More words for the kernel's command line, such as `lockdown=integrity`.
    pub fn cmdline(mut self, words: impl Into<String>) -> Self {
        self.cmdline.push(words.into());
        self
    }

    /// One device.
    pub fn device(mut self, name: impl Into<String>, device: GuestDevice, place: Attachment) -> Self {
        self.slots.push(Slot { name: name.into(), device, place });
        self
    }

    /// Several devices, such as [`super::standard_machine`].
    pub fn devices(mut self, slots: impl IntoIterator<Item = Slot>) -> Self {
        self.slots.extend(slots);
        self
    }

    /// A device that this process (or another) serves over vfio-user.
    pub fn served(self, name: impl Into<String>, served: &Served, place: Attachment) -> Self {
        let socket = served.device_socket.clone();
        self.device(name, GuestDevice::VfioUser(socket), place)
    }

    /// An IOMMU that translates, as vfio needs it: Intel's; on arm64 a virtio-iommu with served devices, else an SMMUv3. QEMU's
    /// SMMUv3 tells no other process of new mappings. Debian's arm64 kernel 6.1 has no driver for a virtio-iommu.
    pub fn iommu(mut self, has_iommu: bool) -> Self {
        self.has_iommu = has_iommu;
        self
    }

    /// Interrupt remapping, as an x86 guest needs it to grant a device more than one MSI vector; an IOMMU that translates
    /// brings it too.
    pub fn interrupt_remapping(mut self, has_remapping: bool) -> Self {
        self.has_interrupt_remapping = has_remapping;
        self
    }

    /// A module to load before the guest is ready, one of ours or of the kernel, with its parameters.
    pub fn module(mut self, module: impl Into<String>) -> Self {
        self.modules.push(module.into());
        self
    }

    /// One of our modules to load if it was built, without parameters.
    pub fn module_if_built(mut self, module: impl Into<String>) -> Self {
        self.optional_modules.push(module.into());
        self
    }

    /// A host file that is to lie at `place` in the guest.
    pub fn file(mut self, host: impl Into<PathBuf>, place: impl Into<String>) -> Self {
        self.files.push((host.into(), place.into()));
        self
    }

    /// A program of the host that is to run in the guest, as `/usr/bin/NAME`, with the libraries it is linked with. A guest
    /// of another architecture gets the program of that name that was built for it (`make build ARCH=arm64`).
    pub fn program(mut self, host: impl Into<PathBuf>) -> Self {
        self.programs.push(host.into());
        self
    }

    /// An ACPI table of `lab/guest` that the kernel of an arm64 guest is to load, such as `drw`.
    pub fn acpi_table(mut self, name: impl Into<String>) -> Self {
        self.acpi_tables.push(name.into());
        self
    }

    /// More arguments for QEMU.
    pub fn qemu_args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.qemu.extend(args.into_iter().map(Into::into));
        self
    }

    /// Boots the guest and waits until it takes commands. A guest that dies of code that QEMU should not have run any more is
    /// booted once more.
    ///
    /// # Errors
    /// The root folder is missing, QEMU does not start, or the guest does not become ready in time.
    pub fn boot(self) -> Result<Vm, LabError> {
        let again = self.clone();
        match self.boot_once() {
            Err(LabError::Ended { log: Some(log), .. })
                if fs::read_to_string(&log).is_ok_and(|log| died_of_stale_code(&log)) =>
            {
                eprintln!("lab: QEMU ran kernel code that had been replaced ({}); booting once more", log.display());
                again.boot_once()
            }
            booted => booted,
        }
    }

    fn boot_once(self) -> Result<Vm, LabError> {
        let start = Instant::now();
        let mut vm = self.start()?;
        vm.wait_ready(BOOT)?;
        vm.boot_time = start.elapsed();
        Ok(vm)
    }

    /// Starts QEMU without waiting for the guest.
    pub(super) fn start(self) -> Result<Vm, LabError> {
        let arch = self.arch.map_or_else(Arch::chosen, Ok)?;
        if self.is_device_tree && arch != Arch::Arm64 {
            return Err(LabError::Refused(format!("a guest of {arch} has no DeviceTree; only arm64 guests have one")));
        }
        let root = Root::find(arch)?;
        let release = root.release(self.kernel)?;
        let accel = Accel::detect(&root)?;
        let has_virtio_iommu = self.has_virtio_iommu(root.arch());
        if has_virtio_iommu && !initramfs::has_module(&root, &release, initramfs::VIRTIO_IOMMU)? {
            return Err(LabError::Refused(format!(
                "the arm64 kernel {release} has no driver of the virtio-iommu, behind which served devices would be: take \
                 another kernel, or leave out the IOMMU or the served devices"
            )));
        }
        let initrd = initramfs::build(&root, &release, has_virtio_iommu)?;
        let folder = tempfile::Builder::new()
            .prefix("pciescope-lab-")
            .tempdir()
            .map_err(LabError::file("create a folder in", std::env::temp_dir()))?;
        self.fill(folder.path())?;
        let initrd = initramfs::with_files(&initrd, &self.guest_files(arch, &release)?, folder.path())?;

        let mut command = root.qemu();
        command.args(accel.args(arch)).args(self.args(&root, folder.path())?);
        command.arg("-kernel").arg(root.image(&release)).arg("-initrd").arg(initrd);
        let clock = accel.clock_words(arch, root.tick_rate(&release));
        command.arg("-append").arg(self.kernel_cmdline(arch, &clock));
        let process = Process::start(command, &folder.path().join("qemu.log"), self.interactive.is_some(), &self.stop)?;
        let paths = [folder.path().join("qmp"), folder.path().join("agent")];
        let end = Instant::now() + accel.patience(SOCKETS);
        while !paths.iter().all(|path| path.exists()) {
            if let Some(status) = process.ended() {
                return Err(LabError::Ended { doing: "starting QEMU".into(), status, log: None });
            }
            if Instant::now() > end {
                return Err(LabError::Timeout {
                    doing: "starting QEMU".into(),
                    waited: accel.patience(SOCKETS),
                    log: None,
                });
            }
            thread::sleep(Duration::from_millis(5));
        }
        let monitor = Monitor::connect(&paths[0], accel.patience(SOCKETS)).map_err(|error| {
            // A QEMU that has ended says why; its socket only says that nobody is there.
            process.wait(Duration::from_secs(1));
            process.ended().map_or(error, |status| LabError::Ended { doing: "starting QEMU".into(), status, log: None })
        })?;
        let agent = Agent::connect(&paths[1], &folder.path().join("share"))?;
        Ok(Vm {
            process,
            agent,
            monitor: Mutex::new(monitor),
            accel,
            release,
            boot_time: Duration::ZERO,
            folder: Some(folder),
            keep: false,
        })
    }

    fn kernel_cmdline(&self, arch: Arch, clock: &[String]) -> String {
        let console = format!("console={}", arch.serial_ports()[0]);
        // The terminal of a person wants the kernel's messages as they come; scripts read the log.
        // The kernel's own tests of its ciphers take half a second of a translated guest's boot.
        let mut words =
            vec![console.as_str(), "quiet", "panic=-1", "oops=panic", "log_buf_len=4M", "cryptomgr.notests"];
        match arch {
            Arch::Amd64 => {
                words.extend(["tsc=reliable", "no_timer_check"]);
                if self.has_iommu {
                    words.extend(["intel_iommu=on", "iommu=nopt"]);
                } else if self.has_interrupt_remapping {
                    words.push("intel_iommu=off");
                }
            }
            Arch::Arm64 if self.has_iommu => words.push("iommu.passthrough=0"),
            Arch::Arm64 => {}
        }
        words.extend(clock.iter().chain(&self.cmdline).map(String::as_str));
        words.join(" ")
    }

    fn has_virtio_iommu(&self, arch: Arch) -> bool {
        let is_served = |slot: &Slot| matches!(slot.device, GuestDevice::VfioUser(_));
        arch == Arch::Arm64 && self.has_iommu && self.slots.iter().any(is_served)
    }

    fn args(&self, root: &Root, folder: &Path) -> Result<Vec<String>, LabError> {
        let text = |path: &Path| path.display().to_string();
        // The ITS of an Arm tells functions apart as it is.
        let is_intel = root.arch() == Arch::Amd64 && (self.has_iommu || self.has_interrupt_remapping);
        let has_virtio_iommu = self.has_virtio_iommu(root.arch());
        let machine = match root.arch() {
            Arch::Amd64 if is_intel => "q35,kernel-irqchip=split",
            Arch::Amd64 => "q35",
            Arch::Arm64 if self.has_iommu && !has_virtio_iommu => "virt,gic-version=3,iommu=smmuv3",
            Arch::Arm64 => "virt,gic-version=3",
        };
        let serial = if self.interactive.is_some() {
            format!("stdio,id=serial,mux=on,signal=off,logfile={}", text(&folder.join("serial.log")))
        } else {
            format!("file,id=serial,path={}", text(&folder.join("serial.log")))
        };
        let options = format!(
            "-nodefaults -no-user-config -display none -no-reboot -M {machine} -m {}M -smp {},sockets={} -serial \
             chardev:serial -serial chardev:agent",
            self.memory_mib, self.cpus, self.numa_nodes
        );
        let mut args: Vec<String> = options.split(' ').map(String::from).collect();
        let mut add = |option: &str, value: String| args.extend([option.to_owned(), value]);
        add("-chardev", serial);
        add("-qmp", format!("unix:{},server=on,wait=off", text(&folder.join("qmp"))));
        add("-chardev", format!("socket,id=agent,path={},server=on,wait=off", text(&folder.join("agent"))));
        args.extend(self.memory_args()?);
        if root.arch() == Arch::Arm64 && !self.is_device_tree {
            args.extend(["-bios".to_owned(), text(&root.firmware())]);
        }
        if is_intel {
            // Before every device that it translates. caching-mode: a device in another process learns of new mappings.
            args.extend(["-device", "intel-iommu,intremap=on,caching-mode=on"].map(String::from));
        }
        if has_virtio_iommu {
            args.extend(["-device", "virtio-iommu-pci,bus=pcie.0,addr=0x1c"].map(String::from));
        }
        // The project's own plumbing sits at the end of the root bus, out of the way of what is measured.
        let shares = [("host", &*folder.join("share"), "0x1d", ""), ("lab", root.path(), "0x1e", ",readonly=on")];
        for (id, path, slot, more) in shares {
            let path = text(path);
            let share = format!("local,id={id},path={path},security_model=none,multidevs=remap{more}");
            let device = format!("virtio-9p-pci,bus=pcie.0,addr={slot},fsdev={id},mount_tag={id}");
            args.extend(["-fsdev".into(), share, "-device".into(), device]);
        }
        if self.interactive.is_some() {
            args.extend(["-mon", "chardev=serial,mode=readline"].map(String::from));
        }
        args.extend(machine::args(&self.root_ports, self.numa_nodes, &self.slots, folder)?);
        args.extend(self.qemu.iter().cloned());
        Ok(args)
    }

    /// Memory, and who is near to it. vfio-user devices reach it through files that both processes map.
    fn memory_args(&self) -> Result<Vec<String>, LabError> {
        let nodes = self.numa_nodes;
        if nodes == 0 || self.cpus % nodes != 0 || self.memory_mib % nodes != 0 {
            return Err(LabError::Refused(format!(
                "{} CPUs and {} MiB cannot be shared in equal parts by {nodes} NUMA nodes",
                self.cpus, self.memory_mib
            )));
        }
        let memory = |id: &str| format!("memory-backend-memfd,id={id},size={}M,share=on", self.memory_mib / nodes);
        if nodes == 1 {
            return Ok(["-object", &memory("ram"), "-machine", "memory-backend=ram"].map(String::from).into());
        }
        let cpus = self.cpus / nodes;
        let node = |node: u32| {
            let (id, first) = (format!("ram{node}"), node * cpus);
            let numa = format!("node,nodeid={node},memdev={id},cpus={first}-{}", first + cpus - 1);
            ["-object".to_owned(), memory(&id), "-numa".to_owned(), numa]
        };
        Ok((0..nodes).flat_map(node).collect())
    }

    /// The host's files that this guest has, with their places in it.
    fn guest_files(&self, arch: Arch, release: &str) -> Result<BTreeMap<String, PathBuf>, LabError> {
        let mut files = BTreeMap::new();
        for program in &self.programs {
            let name = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if arch != Arch::Amd64 {
                files.insert(format!("/usr/bin/{name}"), own_program(arch, &name)?);
                continue;
            }
            files.insert(format!("/usr/bin/{name}"), program.clone());
            files.extend(libraries(program)?.into_iter().map(|library| (library.display().to_string(), library)));
        }
        // Modules, and the programs that try their interfaces.
        for entry in fs::read_dir(own_modules(release)?).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(table) = name.strip_suffix(".aml") {
                // Where the kernel looks in its initramfs before it has one.
                if self.acpi_tables.iter().any(|wanted| wanted == table) {
                    files.insert(format!("/kernel/firmware/acpi/{name}"), entry.path());
                }
            } else if !name.starts_with('.') {
                files.insert(format!("/lib/pciescope/{name}"), entry.path());
            }
        }
        files.extend(self.files.iter().map(|(host, place)| (place.clone(), host.clone())));
        Ok(files)
    }

    /// Writes the run's folder: the guest's set-up script, the devices' files.
    fn fill(&self, folder: &Path) -> Result<(), LabError> {
        let share = folder.join("share");
        let commands = share.join("cmd");
        fs::create_dir_all(&commands).map_err(LabError::file("create", commands))?;
        for (name, bytes) in machine::files(&self.slots) {
            let path = folder.join(name);
            fs::File::create(&path).and_then(|file| file.set_len(bytes)).map_err(LabError::file("create", path))?;
        }
        if let Some(greeting) = &self.interactive {
            let path = share.join("interactive");
            fs::write(&path, greeting).map_err(LabError::file("write", path))?;
        }
        let load = |module: &String| format!("modprobe {module} || exit\n");
        let load_if_built =
            |module: &String| format!("if [ -e /lib/pciescope/{module}.ko ]; then modprobe {module} || exit; fi\n");
        let setup: String =
            self.modules.iter().map(load).chain(self.optional_modules.iter().map(load_if_built)).collect();
        let path = share.join("setup.sh");
        fs::write(&path, setup).map_err(LabError::file("write", path))
    }
}

/// The shared libraries and the loader that a program of the host is linked with, by the loader's own account.
fn libraries(program: &Path) -> Result<BTreeSet<PathBuf>, LabError> {
    let output = Command::new("ldd")
        .arg(program)
        .stdin(Stdio::null())
        .output()
        .map_err(LabError::file("start ldd for", program))?;
    // A static program is not an error: ldd says so and fails.
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(PathBuf::from)
        .collect())
}
