//! The guest for the command line: `pciescope lab run` and `pciescope lab shell`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use super::arch::Arch;
use super::guest::quote;
use super::machine::{Place, Slot};
use super::root::Kernel;
use super::{LabError, Vm, standard_machine};
use crate::Served;

/// How a guest for the command line is made.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The guest's architecture; `None` is that of `PCIESCOPE_LAB_ARCH`, or x86-64.
    pub arch: Option<Arch>,
    /// Whether an arm64 guest has a DeviceTree in place of UEFI and ACPI.
    pub is_device_tree: bool,
    /// The guest kernel.
    pub kernel: Kernel,
    /// Number of CPUs.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// More words for the kernel's command line.
    pub cmdline: Vec<String>,
    /// Whether the machine has an IOMMU, as vfio needs it.
    pub has_iommu: bool,
    /// QEMU's own devices.
    pub devices: Vec<Slot>,
    /// Whether it is the machine of the counters' seed, [`super::Builder::seed_machine`].
    pub is_seed_machine: bool,
    /// Where served devices are, by their names; others are behind a root port of their own.
    pub places: Vec<(String, Place)>,
    /// Programs of the host for the guest; `pciescope` itself above all.
    pub programs: Vec<PathBuf>,
    /// Modules to load, with parameters.
    pub modules: Vec<String>,
    /// Modules to load if they were built.
    pub optional_modules: Vec<String>,
    /// The longest the command may take with KVM; twice that without.
    pub wait: Duration,
    /// A signal's number in here ends the guest.
    pub stop: Arc<AtomicUsize>,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions {
            arch: None,
            is_device_tree: false,
            kernel: Kernel::default(),
            cpus: 4,
            memory_mib: 1024,
            cmdline: Vec::new(),
            has_iommu: false,
            devices: standard_machine(),
            is_seed_machine: false,
            places: Vec::new(),
            programs: Vec::new(),
            modules: Vec::new(),
            optional_modules: Vec::new(),
            wait: Duration::from_secs(3600),
            stop: Arc::default(),
        }
    }
}

impl RunOptions {
    /// The guest of these options with the served devices, each in its place and by its name.
    pub fn builder(&self, served: &[(&str, &Served)]) -> super::Builder {
        let mut builder = Vm::builder()
            .kernel(self.kernel)
            .cpus(self.cpus)
            .memory_mib(self.memory_mib)
            .iommu(self.has_iommu)
            .stop(&self.stop)
            .devices(self.devices.iter().cloned());
        if let Some(arch) = self.arch {
            builder = builder.arch(arch);
        }
        if self.is_device_tree {
            builder = builder.device_tree();
        }
        if self.is_seed_machine {
            builder = builder.seed_machine();
        }
        for words in &self.cmdline {
            builder = builder.cmdline(words);
        }
        for program in &self.programs {
            builder = builder.program(program);
        }
        for module in &self.modules {
            builder = builder.module(module);
        }
        for module in &self.optional_modules {
            builder = builder.module_if_built(module);
        }
        for (name, served) in served {
            let place = self.places.iter().find(|(placed, _)| placed == name).map(|(_, place)| *place);
            builder = builder.served(*name, served, place.unwrap_or_default());
        }
        builder
    }
}

/// Boots a guest, calls `ready` with it, runs a command in it with its output passed through as it comes, switches the guest
/// off, and returns the command's exit status.
///
/// # Errors
/// Only the lab's failures; the program then exits with [`super::LAB_FAILED`].
pub fn run(
    command: &[String],
    options: &RunOptions,
    served: &[(&str, &Served)],
    ready: &dyn Fn(&Vm),
) -> Result<u8, LabError> {
    let vm = options.builder(served).boot()?;
    ready(&vm);
    let script = command.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ");
    let running = vm.start(&format!("exec {script}"))?;
    let [out, err] = running.output_paths();
    let (mut out, mut err) = (Follow::new(out), Follow::new(err));
    let end = std::time::Instant::now() + vm.accel().patience(options.wait);
    let status = loop {
        // The status first: what the command wrote before it ended is then in the files.
        let status = running.status();
        out.pass(&mut io::stdout())?;
        err.pass(&mut io::stderr())?;
        match status {
            Some(status) => break status,
            None if std::time::Instant::now() < end && vm.is_alive() => std::thread::sleep(Duration::from_millis(50)),
            // Says what happened, in the words of every other wait.
            None => break running.wait_within(Duration::ZERO)?.status,
        }
    };
    vm.poweroff()?;
    Ok(u8::try_from(status).unwrap_or(u8::MAX))
}

/// Boots a guest for a person: its serial console on this terminal, until `poweroff` or Ctrl-A X.
///
/// # Errors
/// The guest does not start.
pub fn shell(greeting: &str, options: &RunOptions, served: &[(&str, &Served)]) -> Result<(), LabError> {
    let mut builder = options.builder(served);
    builder.interactive = Some(greeting.to_owned());
    let vm = builder.start()?;
    // As long as the person likes.
    while vm.is_alive() {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// A file that grows, passed on as far as it has grown.
struct Follow {
    path: PathBuf,
    file: Option<File>,
}

impl Follow {
    fn new(path: PathBuf) -> Follow {
        Follow { path, file: None }
    }

    fn pass(&mut self, to: &mut impl Write) -> Result<(), LabError> {
        if self.file.is_none() {
            // The guest makes it when the command starts.
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(LabError::file("read", &self.path))?;
        if bytes.is_empty() {
            return Ok(());
        }
        match to.write_all(&bytes).and_then(|()| to.flush()) {
            // Whoever read our output has gone; the command goes on and its status still counts.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => result.map_err(LabError::file("write", "the output")),
        }
    }
}
