//! One module per verb: `Args` is what was typed, `run` does it.
//!
//! A verb returns its exit code, or an error that `main` prints. It writes results with `writeln!` to a handle
//! of the standard output and hands every write error on, so that a closed pipe ends it quietly.

pub mod bind;
pub mod compare;
pub mod completions;
pub mod conclusion;
pub mod convert;
pub mod device;
pub mod doctor;
pub mod files;
pub mod import;
pub mod lab;
pub mod latency;
pub mod list;
pub mod man;
pub mod output;
pub mod overview;
pub mod readout;
pub mod recorded;
pub mod reg;
pub mod registers;
pub mod report;
pub mod ring;
pub mod serve;
pub mod soak;
pub mod stat;
pub mod threads;
pub mod top;
pub mod tune;
pub mod unbind;
pub mod verify;
pub mod watch;

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::values::FunctionName;
use anyhow::Context as _;
use pciescope_core::{Bdf, Failure, Function};
use pciescope_hw::pci;
use pciescope_hw::probe::open::Backend;
use pciescope_hw::synthetic::Synthetic;
use pciescope_hw::{nodes, signals};
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGTERM};

/// Stands at the end of `pciescope --help` and in the README.
pub const EXIT_CODES: &str = "\
Exit codes:
  0        fine
  1        measured, but a check or threshold failed (lost or wrong data, ...)
  2        could not measure, or ended early; or the command line is wrong
  128+N    ended by signal N (Ctrl-C: 130); records written, machine restored
  141      the reader of the standard output closed it";

/// What every verb gets in addition to its own arguments.
#[derive(Debug, Clone)]
pub struct Ctx {
    /// Where /sys, /proc, /dev and /run are.
    pub root: pciescope_hw::Root,
    /// Whether the standard error is a terminal: progress is shown only then.
    pub terminal: bool,
    /// How often `-v` was given.
    pub verbose: u8,
    /// Whether notes are left out (`--quiet`); errors are not.
    pub quiet: bool,
    /// Set by a signal, once [`Stop::catch_signals`] was called.
    pub stop: Stop,
    /// The files of a synthetic machine.
    #[expect(dead_code, reason = "it is only held until the verb ends")]
    pub made: Option<Arc<Made>>,
}

/// The folder of a synthetic machine. It is removed when the verb ends, because threads that live longer may still use
/// the machine.
#[derive(Debug)]
pub struct Made(PathBuf);

impl Drop for Made {
    fn drop(&mut self) {
        // The machine removes it as well, where it is the last.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Ctx {
    /// The context on the machine of a backend: this one, or a synthetic one that lives as long as its root.
    ///
    /// # Errors
    /// When the synthetic machine's files cannot be written.
    pub fn on(&self, backend: &Backend) -> anyhow::Result<Ctx> {
        match backend {
            Backend::Fake(options) => {
                let root = Synthetic::root(options).context("cannot write the files of the synthetic machine")?;
                let made = Some(Arc::new(Made(root.path("/"))));
                Ok(Ctx { root, made, ..self.clone() })
            }
            Backend::Auto | Backend::Real(_) => Ok(self.clone()),
        }
    }

    /// The function that was named by its address, its disk or interface, or a path.
    ///
    /// # Errors
    /// A name of no function, or of several. Whether there is a function at an address is not asked.
    pub fn function(&self, named: &FunctionName) -> Result<Bdf, pciescope_hw::Error> {
        nodes::find(&self.root, &named.0)
    }

    /// [`Ctx::function`] for each of several.
    ///
    /// # Errors
    /// Those of the first that is refused.
    pub fn functions(&self, named: &[FunctionName]) -> Result<Vec<Bdf>, pciescope_hw::Error> {
        named.iter().map(|one| self.function(one)).collect()
    }

    /// The machine's functions. Says of each that cannot be understood that it is left out, and why.
    pub fn inventory(&self) -> Vec<Function> {
        let functions = pci::functions(&self.root);
        for (bdf, error) in functions.left_out {
            self.note(&format!("{bdf} is left out: {:#}", anyhow::Error::from(error)));
        }
        functions.all
    }

    /// Prints a note for the user on the standard error; `--quiet` leaves it out.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            say(&format!("pciescope: {text}\n"));
        }
    }

    /// Prints failures, each text once, and a hint that several have behind the last of them.
    pub fn complain(&self, failures: &[Failure]) {
        let mut said: Vec<&str> = Vec::new();
        for (place, failure) in failures.iter().enumerate() {
            if !said.contains(&&*failure.text) {
                say(&format!("pciescope: {}\n", failure.text));
                said.push(&failure.text);
            }
            let comes_again = failures[place + 1..].iter().any(|later| later.hint == failure.hint);
            if let Some(hint) = failure.hint.as_ref().filter(|_| !comes_again) {
                self.hint(hint);
            }
        }
    }

    /// Prints a hint for the message before it.
    pub fn hint(&self, text: &str) {
        say(&format!("hint: {text}\n"));
    }
}

/// Writes to the standard error. If it is closed, the text is lost, but the run goes on and restores the machine;
/// `eprintln!` would panic.
pub fn say(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// The wish to end, by Ctrl-C, SIGTERM, SIGALRM or a hang-up of the terminal.
///
/// Signals keep their default action (they end the program at once) until [`Stop::catch_signals`]: only verbs that
/// hold something to be put back, or figures to be written, catch them.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    signal: Arc<AtomicUsize>,
    /// The last one that a process sent.
    sent: Arc<AtomicUsize>,
}

impl Stop {
    /// From now on a signal sets the flag instead of ending the program. Signals that the program was started to ignore, as
    /// by `nohup` or by the `&` of a script, stay ignored, also in the commands that it starts.
    ///
    /// # Errors
    /// When the kernel refuses the handler.
    pub fn catch_signals(&self) -> io::Result<()> {
        self.catch(&ENDING)
    }

    /// Catches signals of the caller's choice.
    ///
    /// # Errors
    /// When the kernel refuses the handler.
    pub fn catch(&self, signals: &[i32]) -> io::Result<()> {
        for signal in heard(signals)? {
            signals::catch(signal, Arc::clone(&self.signal), Arc::clone(&self.sent))?;
        }
        Ok(())
    }

    /// Where the number of the signal stands once one came; 0 before.
    pub fn number(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.signal)
    }

    /// The signal that came, if one did.
    pub fn signal(&self) -> Option<u8> {
        u8::try_from(self.signal.load(Ordering::Relaxed)).ok().filter(|&signal| signal != 0)
    }

    /// The last signal that a process sent, once: the kernel sends those of a terminal also to the children.
    pub fn take_sent(&self) -> Option<u8> {
        u8::try_from(self.sent.swap(0, Ordering::SeqCst)).ok().filter(|&signal| signal != 0)
    }

    /// Whether the run shall end.
    pub fn is_set(&self) -> bool {
        self.signal().is_some()
    }

    /// The exit code of a run that a signal ended: 128 + its number, as shells have it.
    pub fn exit_code(&self) -> Option<u8> {
        self.signal().map(|signal| 128 + signal)
    }
}

/// The signals that end a verb. Node Health Check (NHC) sends SIGALRM to what takes too long.
pub const ENDING: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGALRM];

/// A stream to which each of these signals writes a byte, so that no wait sleeps through a signal. Ignored signals stay
/// ignored.
///
/// # Errors
/// When the kernel refuses the handler.
pub fn wake_on(signals: &[i32]) -> io::Result<UnixStream> {
    let (wake, tell) = UnixStream::pair()?;
    for signal in heard(signals)? {
        signal_hook::low_level::pipe::register(signal, tell.try_clone()?)?;
    }
    Ok(wake)
}

/// The signals among these that the program was not started to ignore.
fn heard(signals: &[i32]) -> io::Result<Vec<i32>> {
    let mut heard = Vec::new();
    for &signal in signals {
        if !signals::is_ignored(signal)? {
            heard.push(signal);
        }
    }
    Ok(heard)
}

/// A refusal by a verb itself: who, what, which value, why, and what the user can do.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct Refusal {
    /// Who, what, which value, why.
    pub text: String,
    /// What the user can do, where there is something.
    pub hint: Option<String>,
}

impl Refusal {
    /// A refusal that the user can mend.
    pub fn new(text: impl Into<String>, hint: impl Into<String>) -> Self {
        Refusal { text: text.into(), hint: Some(hint.into()) }
    }
}

/// What the user can do about an error, if its type knows.
pub fn hint_of(err: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(refusal) = err.downcast_ref::<Refusal>() {
        return refusal.hint.clone();
    }
    // An error of input or output that was made of another one hides it from the chain.
    if let Some(inner) = err.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        return hint_of(inner);
    }
    macro_rules! ask {
        ($($error:ty),+ $(,)?) => {
            $(if let Some(err) = err.downcast_ref::<$error>() {
                return err.hint().map(Into::into);
            })+
        };
    }
    ask!(
        pciescope_bench::Error,
        pciescope_bench::counters::Error,
        pciescope_bench::convert::Error,
        pciescope_bench::workload::Error,
        pciescope_hw::perf::Error,
        pciescope_hw::Error,
        pciescope_report::Error,
        pciescope_serve::server::Error,
        pciescope_serve::config::Error,
        pciescope_lab::vm::LabError,
        pciescope_core::Error,
    );
    None
}
