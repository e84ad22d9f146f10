//! The guest for the command line: `pciescope lab run` and `pciescope lab shell`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use super::guest::quote;
use super::{Builder, LabError, Vm};

/// Boots a guest, calls `ready` with it, runs a command in it with its output passed through as it comes, switches the guest
/// off, and returns the command's exit status. The command may take `wait` with KVM, and twice that without.
///
/// # Errors
/// Only the lab's failures; the program then exits with [`super::LAB_FAILED`].
pub fn run(command: &[String], guest: Builder, wait: Duration, ready: &dyn Fn(&Vm)) -> Result<u8, LabError> {
    let mut vm = guest.boot()?;
    ready(&vm);
    let ended = pass_through(command, &vm, wait);
    vm.keep_files_of_failure(&ended);
    let status = ended?;
    vm.poweroff()?;
    Ok(u8::try_from(status).unwrap_or(u8::MAX))
}

/// Runs a command in the guest with its output passed through as it comes, and gives its exit status.
fn pass_through(command: &[String], vm: &Vm, wait: Duration) -> Result<i32, LabError> {
    let script = command.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ");
    let running = vm.start(&format!("exec {script}"))?;
    let [out, err] = running.output_paths();
    let (mut out, mut err) = (Follow::new(out), Follow::new(err));
    let end = std::time::Instant::now() + vm.accel().patience(wait);
    loop {
        // The status first: what the command wrote before it ended is then in the files.
        let status = running.status();
        out.pass(&mut io::stdout())?;
        err.pass(&mut io::stderr())?;
        match status {
            Some(status) => return Ok(status),
            None if std::time::Instant::now() < end && vm.is_alive() => std::thread::sleep(Duration::from_millis(50)),
            // Says what happened, in the words of every other wait.
            None => return Ok(running.wait_within(Duration::ZERO)?.status),
        }
    }
}

/// Boots a guest for a person: its serial console on this terminal, until `poweroff` or Ctrl-A X.
///
/// # Errors
/// The guest does not start.
pub fn shell(greeting: &str, mut guest: Builder) -> Result<(), LabError> {
    guest.interactive = Some(greeting.to_owned());
    let vm = guest.start()?;
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
