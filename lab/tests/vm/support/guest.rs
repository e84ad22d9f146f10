//! A booted guest of a test, as every suite uses it. What the lab itself cannot do panics with "the lab failed".

use std::ops::Deref;
use std::path::Path;
use std::time::{Duration, Instant};

use pciescope_lab::vm::{Builder, LabError, Output, Running, Vm};
use serde_json::json;

use super::harness::{booted, work};
use super::{PATIENCE, lab_failed, sanitize};
use crate::say;

/// A guest, with the commands that suites give it.
pub struct Guest {
    vm: Vm,
}

impl Deref for Guest {
    type Target = Vm;

    fn deref(&self) -> &Vm {
        &self.vm
    }
}

impl Guest {
    /// Boots the machine, and says how long that took.
    pub fn boot(builder: Builder) -> Guest {
        let _work = work();
        let vm = builder.boot().unwrap_or_else(|err| {
            panic!("the lab failed: {err}\nhint: {}", err.hint().unwrap_or("see the serial log"))
        });
        booted(vm.boot_time());
        say!("{} booted in {:.1} s", vm.release(), vm.boot_time().as_secs_f64());
        Guest { vm }
    }

    /// The address of a machine's device in the guest.
    pub fn address(&self, name: &str) -> String {
        self.vm.address_of(name).unwrap_or_else(|err| lab_failed(err))
    }

    /// Runs a script in the guest and gives what it did.
    pub fn run(&self, script: &str) -> Output {
        let _work = work();
        self.vm.run(script).unwrap_or_else(|err| lab_failed(err))
    }

    /// As [`Guest::run`], with a bound of its own.
    pub fn run_within(&self, script: &str, bound: Duration) -> Output {
        let _work = work();
        self.vm.run_within(script, bound).unwrap_or_else(|err| lab_failed(err))
    }

    /// Runs a script in the guest and says whether it succeeded.
    pub fn succeeds(&self, script: &str) -> bool {
        self.run(script).is_success()
    }

    /// Runs a script in the guest that has to succeed, and gives its standard output, trimmed.
    pub fn must(&self, script: &str) -> String {
        let _work = work();
        self.vm.must(script).unwrap_or_else(|err| lab_failed(err)).stdout.trim().to_owned()
    }

    /// Starts a script in the guest and does not wait for its end.
    pub fn start(&self, script: &str) -> Running<'_> {
        let _work = work();
        self.vm.start(script).unwrap_or_else(|err| lab_failed(err))
    }

    /// A file of the guest, empty where there is none.
    pub fn read(&self, file: &str) -> String {
        let _work = work();
        String::from_utf8_lossy(&self.vm.pull_file(file).unwrap_or_default()).into_owned()
    }

    /// A command that a test measures beside: it says that it has begun ([`Guest::has_begun`]), and lasts until
    /// [`Guest::let_go`]. Waiting costs the guest nothing.
    pub fn hold(&self) -> &'static str {
        // It is not there the first time.
        let _ = std::fs::remove_file(self.vm.share().join("begun"));
        self.must("rm -f /tmp/end; mkfifo /tmp/end");
        "sh -c 'echo >/host/begun; read end </tmp/end'"
    }

    /// Whether the command of [`Guest::hold`] runs.
    pub fn has_begun(&self) -> bool {
        self.vm.share().join("begun").exists()
    }

    /// Ends the command of [`Guest::hold`].
    pub fn let_go(&self) {
        self.must("echo >/tmp/end");
    }

    /// Waits until a script succeeds in the guest.
    pub fn wait_until(&self, what: &str, script: &str) {
        self.wait_for(what, || self.succeeds(script).then_some(()));
    }

    /// Waits until something is true of what this side sees.
    pub fn wait_for<T>(&self, what: &str, mut seen: impl FnMut() -> Option<T>) -> T {
        let (begin, most) = (Instant::now(), self.vm.patience(PATIENCE));
        loop {
            if let Some(seen) = seen() {
                return seen;
            }
            assert!(begin.elapsed() < most, "{what}: not within {most:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Plugs a served device in again where it was unplugged, behind the root port or slot of its name.
    pub fn plug(&self, name: &str, socket: &Path) {
        let device = json!({"driver": "vfio-user-pci", "id": name, "bus": format!("port-{name}"),
                            "socket": {"type": "unix", "path": socket}});
        self.vm.qmp("device_add", device).unwrap_or_else(|err| lab_failed(err));
    }

    /// No warning, no bug and no lockdep line since boot.
    pub fn check_log(&self) {
        if let Err(faults) = self.vm.check_kernel_log() {
            panic!("{faults}");
        }
    }

    /// Ends the test: the modules can be unloaded, the kernel's log is clean, the guest switches off.
    pub fn finish(self, modules: &[&str]) {
        sanitize::look_before_unloading(&self.vm);
        for module in modules {
            self.must(&format!("if [ -d /sys/module/{module} ]; then rmmod {module}; fi"));
        }
        sanitize::keep_lines(&self.vm);
        self.check_log();
        let _work = work();
        self.vm.poweroff().unwrap_or_else(|err: LabError| lab_failed(err));
    }
}
