//! A running guest.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::LabError;
use super::accel::Accel;
use super::agent::Agent;
use super::builder::Builder;
use super::kernel_log::faults_with_context;
use super::process::Process;
use super::qmp::Monitor;

/// How long a command may take where the caller names no bound, with KVM.
const COMMAND: Duration = Duration::from_secs(60);
/// How long a guest may take to switch itself off.
const POWEROFF: Duration = Duration::from_secs(15);
/// Between two looks at whether QEMU lives.
const TICK: Duration = Duration::from_millis(100);

/// A booted guest. Dropping it ends QEMU and deletes the run's files, unless something failed: then they are kept.
#[derive(Debug)]
pub struct Vm {
    pub(super) process: Process,
    pub(super) agent: Agent,
    pub(super) monitor: Mutex<Monitor>,
    pub(super) accel: Accel,
    pub(super) release: String,
    pub(super) boot_time: Duration,
    pub(super) folder: Option<TempDir>,
    pub(super) keep: bool,
}

/// What a command in the guest did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Exit status; 128 plus the signal's number for a command that a signal ended.
    pub status: i32,
    /// What it wrote to its standard output, invalid UTF-8 replaced.
    pub stdout: String,
    /// What it wrote to its standard error, invalid UTF-8 replaced.
    pub stderr: String,
}

impl Output {
    /// Whether the status is 0.
    pub fn is_success(&self) -> bool {
        self.status == 0
    }
}

impl Vm {
    /// A guest to be, with nothing but the root bus.
    pub fn builder() -> Builder {
        Builder::default().cpus(4).memory_mib(1024).numa_nodes(1)
    }

    /// Release of the guest's kernel.
    pub fn release(&self) -> &str {
        &self.release
    }

    /// How the guest's processors are run.
    pub fn accel(&self) -> Accel {
        self.accel
    }

    /// Time from the call of [`Builder::boot`] until the guest took commands.
    pub fn boot_time(&self) -> Duration {
        self.boot_time
    }

    /// Whether QEMU runs.
    pub fn is_alive(&self) -> bool {
        self.process.ended().is_none()
    }

    fn folder(&self) -> &Path {
        self.folder.as_ref().map(TempDir::path).expect("the folder is taken only when the guest is dropped")
    }

    /// A wait that was meant for a guest with KVM, as long as this guest needs it; `PCIESCOPE_LAB_PATIENCE` is in it.
    pub fn patience(&self, wait: Duration) -> Duration {
        self.accel.patience(wait)
    }

    /// The host's side of the folder that the guest sees as `/host`.
    pub fn share(&self) -> PathBuf {
        self.folder().join("share")
    }

    /// The serial log.
    pub fn serial_log(&self) -> PathBuf {
        self.folder().join("serial.log")
    }

    /// Keeps the run's files (serial log, commands and their output) when the guest is dropped, and says where.
    pub fn keep_files(&mut self) -> &Path {
        self.keep = true;
        self.folder()
    }

    pub(super) fn wait_ready(&mut self, wait: Duration) -> Result<(), LabError> {
        let ready = self.wait_for("booting", wait, || self.agent.is_ready(TICK).then_some(()));
        self.keep_files_of_failure(&ready);
        ready
    }

    /// Keeps the files that an error names. Nobody wants those of a guest that was told to end.
    pub(super) fn keep_files_of_failure<T>(&mut self, result: &Result<T, LabError>) {
        self.keep |= result.is_err() && !self.process.is_stopped();
    }

    /// Polls `answer` (which may itself wait up to a tick) until it has one, QEMU ends, or the bound is over.
    fn wait_for<T>(&self, doing: &str, wait: Duration, answer: impl Fn() -> Option<T>) -> Result<T, LabError> {
        let waited = self.patience(wait);
        let end = Instant::now() + waited;
        loop {
            if let Some(answer) = answer() {
                return Ok(answer);
            }
            let log = Some(self.serial_log());
            if let Some(status) = self.process.ended() {
                return Err(LabError::Ended { doing: doing.to_owned(), status, log });
            }
            if Instant::now() >= end {
                return Err(LabError::Timeout { doing: doing.to_owned(), waited, log });
            }
        }
    }

    /// Runs shell text in the guest and waits for its end, a minute at most (two without KVM).
    ///
    /// # Errors
    /// Only the lab's failures; a command that fails is an [`Output`] with its status.
    pub fn run(&self, script: &str) -> Result<Output, LabError> {
        self.run_within(script, COMMAND)
    }

    /// As [`Vm::run`], with a bound of its own: what it may take with KVM.
    ///
    /// # Errors
    /// As [`Vm::run`].
    pub fn run_within(&self, script: &str, wait: Duration) -> Result<Output, LabError> {
        self.start(script)?.wait_within(wait)
    }

    /// Starts shell text in the guest, in a session of its own, and does not wait.
    ///
    /// # Errors
    /// The guest's port is gone.
    pub fn start(&self, script: &str) -> Result<Running<'_>, LabError> {
        let number = self.agent.start(script).map_err(|error| match self.process.ended() {
            Some(status) => {
                LabError::Ended { doing: format!("starting `{script}`"), status, log: Some(self.serial_log()) }
            }
            None => error,
        })?;
        Ok(Running { vm: self, number, script: script.to_owned() })
    }

    /// Runs a command of QEMU's monitor, such as `device_del` with `{"id": "edu0"}`, and returns what it returned.
    ///
    /// # Errors
    /// QEMU refuses the command, or is gone.
    pub fn qmp(&self, command: &str, arguments: Value) -> Result<Value, LabError> {
        self.monitor().run(command, arguments)
    }

    /// Takes all CPUs away from the guest for a time, as a hypervisor would: QEMU's process is stopped. Says how long it was.
    ///
    /// # Errors
    /// QEMU is gone.
    pub fn stop_for(&self, time: Duration) -> Result<Duration, LabError> {
        let begin = Instant::now();
        self.signal(Signal::STOP)?;
        std::thread::sleep(time.saturating_sub(begin.elapsed()));
        self.signal(Signal::CONT)?;
        Ok(begin.elapsed())
    }

    fn signal(&self, signal: Signal) -> Result<(), LabError> {
        let failed = |error: std::io::Error| LabError::Refused(format!("no signal to QEMU: {error}"));
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| failed(std::io::ErrorKind::InvalidInput.into()))?;
        kill_process(pid, signal).map_err(|error| failed(error.into()))
    }

    /// The host's accounts of the threads that are the guest's CPUs (`schedstat`): the second number of each is how long it has
    /// waited for a CPU of the host, in nanoseconds.
    ///
    /// # Errors
    /// QEMU is gone.
    pub fn schedstats(&self) -> Result<Vec<PathBuf>, LabError> {
        let cpus = self.qmp("query-cpus-fast", Value::Null)?;
        let (id, cpus) = (self.process.id(), cpus.as_array().cloned().unwrap_or_default());
        Ok(cpus.iter().map(|cpu| format!("/proc/{id}/task/{}/schedstat", cpu["thread-id"]).into()).collect())
    }

    fn monitor(&self) -> MutexGuard<'_, Monitor> {
        self.monitor.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Unplugs a device as a person would who presses the attention button, and waits until it is gone. The guest waits
    /// five seconds for a second press before it acts.
    ///
    /// # Errors
    /// There is no such device, or the guest does not let it go.
    pub fn unplug(&self, name: &str) -> Result<(), LabError> {
        let mut monitor = self.monitor();
        monitor.run("device_del", json!({ "id": name }))?;
        monitor.wait_event("DEVICE_DELETED", |event| event["device"] == name).map(drop)
    }

    /// The PCI address of a device, such as `0000:02:00.0`, once the firmware has numbered the buses.
    ///
    /// # Errors
    /// There is no device of that name.
    pub fn address_of(&self, name: &str) -> Result<String, LabError> {
        let buses = self.qmp("query-pci", Value::Null)?;
        let found = buses.as_array().into_iter().flatten().find_map(|bus| find_device(&bus["devices"], name));
        found.ok_or_else(|| LabError::Refused(format!("the machine has no PCI device named {name}")))
    }

    /// A place in the serial log: what is there now lies before it.
    pub fn console_mark(&self) -> u64 {
        fs::metadata(self.serial_log()).map_or(0, |metadata| metadata.len())
    }

    /// What the serial console has shown since a mark, invalid UTF-8 replaced.
    ///
    /// # Errors
    /// The serial log cannot be read.
    pub fn console_since(&self, mark: u64) -> Result<String, LabError> {
        let path = self.serial_log();
        let bytes = fs::read(&path).map_err(LabError::file("read", path))?;
        let start = usize::try_from(mark).unwrap_or(usize::MAX).min(bytes.len());
        Ok(String::from_utf8_lossy(&bytes[start..]).into_owned())
    }

    /// Whether the kernel's log since boot is free of warnings, bugs, lockdep reports and the like.
    ///
    /// # Errors
    /// What is not, with the lines around it, or why the log could not be read.
    pub fn check_kernel_log(&self) -> Result<(), String> {
        let mut log = self.console_since(0).map_err(|error| error.to_string())?;
        // Warnings of the boot are not shown on the console; a guest that has died only has the console.
        if self.process.ended().is_none() {
            log += &self.run("dmesg").map_err(|error| error.to_string())?.stdout;
        }
        faults_with_context(&log).map_or(Ok(()), |faults| Err(format!("the kernel's log has faults:\n{faults}")))
    }

    /// Writes a file in the guest.
    ///
    /// # Errors
    /// The guest does not take it.
    pub fn push_file(&self, place: &str, contents: &[u8]) -> Result<(), LabError> {
        let path = self.share().join("push");
        fs::write(&path, contents).map_err(LabError::file("write", path))?;
        self.must(&format!("mkdir -p \"$(dirname {0})\" && cp /host/push {0}", quote(place))).map(drop)
    }

    /// Reads a file of the guest. A file in `/host` costs the guest nothing: it lies on this side.
    ///
    /// # Errors
    /// There is no such file, or the guest does not give it.
    pub fn pull_file(&self, place: &str) -> Result<Vec<u8>, LabError> {
        let path = match place.strip_prefix("/host/") {
            Some(name) => self.share().join(name),
            None => {
                self.must(&format!("cat {} >/host/pull", quote(place)))?;
                self.share().join("pull")
            }
        };
        fs::read(&path).map_err(LabError::file("read", path))
    }

    /// Runs a command that cannot fail unless the lab does.
    ///
    /// # Errors
    /// [`LabError::Setup`] if it fails.
    pub fn must(&self, script: &str) -> Result<Output, LabError> {
        let output = self.run(script)?;
        if output.is_success() {
            return Ok(output);
        }
        Err(LabError::Setup {
            command: script.to_owned(),
            status: output.status,
            stderr: output.stderr.trim().to_owned(),
        })
    }

    /// Switches the guest off and waits until QEMU has ended.
    ///
    /// # Errors
    /// It does not end in time.
    pub fn poweroff(mut self) -> Result<(), LabError> {
        // The answer to this command races with the end of the guest: only that end counts.
        let ended = self.start("poweroff -f").map(drop).and_then(|()| self.wait_end(POWEROFF));
        self.keep_files_of_failure(&ended);
        ended
    }

    pub(super) fn wait_end(&self, wait: Duration) -> Result<(), LabError> {
        let waited = self.patience(wait);
        if self.process.wait(waited) {
            return Ok(());
        }
        Err(LabError::Timeout { doing: "switching off".into(), waited, log: Some(self.serial_log()) })
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        self.process.kill();
        // A test that panics wants to see the serial log.
        if self.keep || std::thread::panicking() {
            if let Some(folder) = self.folder.take() {
                eprintln!("lab: this guest's serial log and files are kept in {}", folder.keep().display());
            }
        }
    }
}

/// A command that runs in the guest.
#[derive(Debug)]
#[must_use]
pub struct Running<'vm> {
    vm: &'vm Vm,
    number: u32,
    script: String,
}

impl Running<'_> {
    /// Waits for the command's end, a minute at most (two without KVM).
    ///
    /// # Errors
    /// Only the lab's failures; [`LabError::Timeout`] names the command.
    pub fn wait(&self) -> Result<Output, LabError> {
        self.wait_within(COMMAND)
    }

    /// As [`Running::wait`], with a bound of its own: what it may take with KVM.
    ///
    /// # Errors
    /// As [`Running::wait`].
    pub fn wait_within(&self, wait: Duration) -> Result<Output, LabError> {
        let doing = format!("running `{}`", self.script);
        let status = self.vm.wait_for(&doing, wait, || self.vm.agent.status(self.number, TICK))?;
        let read = |kind| -> Result<String, LabError> {
            let path = self.vm.agent.path(self.number, kind);
            let bytes = fs::read(&path).map_err(LabError::file("read", path))?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        Ok(Output { status, stdout: read("out")?, stderr: read("err")? })
    }

    /// The exit status, when it has ended.
    pub fn status(&self) -> Option<i32> {
        self.vm.agent.status(self.number, Duration::ZERO)
    }

    /// What it has written to its standard output so far.
    pub fn stdout(&self) -> String {
        let bytes = fs::read(self.vm.agent.path(self.number, "out")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The host's files that take its standard output and standard error as they come.
    pub fn output_paths(&self) -> [PathBuf; 2] {
        ["out", "err"].map(|kind| self.vm.agent.path(self.number, kind))
    }

    /// Sends a signal (`INT`, `KILL`, ...) to every process of the command. A shell that runs several commands ends with
    /// the signal; where the status of one program matters, start it with `exec`.
    ///
    /// # Errors
    /// The command has not started, or is gone.
    pub fn signal(&self, signal: &str) -> Result<(), LabError> {
        let path = self.vm.agent.path(self.number, "pid");
        let pid = self.vm.wait_for(&format!("starting `{}`", self.script), COMMAND, || {
            let text = fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n'));
            if text.is_none() {
                std::thread::sleep(TICK);
            }
            text
        })?;
        self.vm.must(&format!("kill -{signal} -{}", pid.trim())).map(drop)
    }
}

fn find_device(devices: &Value, name: &str) -> Option<String> {
    devices.as_array().into_iter().flatten().find_map(|device| {
        if device["qdev_id"] == name {
            let [bus, slot, function] = ["bus", "slot", "function"].map(|key| device[key].as_u64().unwrap_or_default());
            return Some(format!("0000:{bus:02x}:{slot:02x}.{function}"));
        }
        find_device(&device["pci_bridge"]["devices"], name)
    })
}

/// A word as the guest's shell takes it for one.
pub(super) fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_device_behind_bridges() {
        let pci = json!([{ "qdev_id": "port", "bus": 0, "slot": 4, "function": 0, "pci_bridge": { "devices": [
            { "qdev_id": "edu0", "bus": 1, "slot": 0, "function": 0 }] } }]);
        assert_eq!(find_device(&pci, "edu0").as_deref(), Some("0000:01:00.0"));
        assert_eq!(find_device(&pci, "edu1"), None);
    }

    #[test]
    fn quotes_survive_the_shell() {
        assert_eq!(quote("it's"), r"'it'\''s'");
    }
}
