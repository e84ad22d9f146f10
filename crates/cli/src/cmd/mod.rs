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
pub mod import;
pub mod lab;
pub mod latency;
pub mod list;
pub mod man;
pub mod readout;
pub mod reg;
pub mod report;
pub mod serve;
pub mod stat;
pub mod top;
pub mod unbind;
pub mod verify;

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// What every verb gets beside its own arguments.
#[derive(Debug)]
pub struct Ctx {
    /// Where /sys, /proc, /dev and /run are.
    pub root: pciescope_hw::Root,
    /// Whether the standard error is a terminal: progress is shown only then.
    pub terminal: bool,
    /// How often `-v` was given.
    pub verbose: u8,
    /// Set by a signal, once [`Stop::catch_signals`] was called.
    pub stop: Stop,
}

impl Ctx {
    /// Tells the user something in passing, on the standard error.
    pub fn note(&self, text: &str) {
        say(&format!("pciescope: {text}\n"));
    }

    /// Tells the user what to do about what was just said.
    pub fn hint(&self, text: &str) {
        say(&format!("hint: {text}\n"));
    }
}

/// Writes to the standard error. Where that is closed there is nobody left to tell, and a run goes on and puts the
/// machine back all the same; `eprintln!` would end it in a panic.
pub fn say(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// The wish to end, by Ctrl-C, SIGTERM or a hang-up of the terminal.
///
/// Signals keep their default action (they end the program at once) until [`Stop::catch_signals`]: only verbs that
/// hold something to be put back, or figures to be written, catch them.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    signal: Arc<AtomicUsize>,
}

impl Stop {
    /// From now on a signal sets the flag instead of ending the program.
    ///
    /// # Errors
    /// When the kernel refuses the handler.
    pub fn catch_signals(&self) -> io::Result<()> {
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register_usize(signal, Arc::clone(&self.signal), signal as usize)?;
        }
        Ok(())
    }

    /// The signal that came, if one did.
    pub fn signal(&self) -> Option<u8> {
        u8::try_from(self.signal.load(Ordering::Relaxed)).ok().filter(|&signal| signal != 0)
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
    if let Some(err) = err.downcast_ref::<pciescope_bench::Error>() {
        return err.hint();
    }
    if let Some(err) = err.downcast_ref::<pciescope_bench::counters::Error>() {
        return err.hint();
    }
    if let Some(err) = err.downcast_ref::<pciescope_bench::convert::Error>() {
        return err.hint();
    }
    if let Some(err) = err.downcast_ref::<pciescope_bench::verify::Error>() {
        return err.hint();
    }
    if let Some(err) = err.downcast_ref::<pciescope_bench::workload::Error>() {
        return err.hint();
    }
    if let Some(err) = err.downcast_ref::<pciescope_hw::perf::Error>() {
        return err.hint();
    }
    if let Some(err) = err.downcast_ref::<pciescope_hw::Error>() {
        return err.hint();
    }
    if let Some(err) = err.downcast_ref::<pciescope_report::Error>() {
        return err.hint().map(str::to_owned);
    }
    if let Some(err) = err.downcast_ref::<pciescope_serve::server::Error>() {
        return err.hint().map(str::to_owned);
    }
    if let Some(err) = err.downcast_ref::<pciescope_serve::config::Error>() {
        return err.hint().map(str::to_owned);
    }
    if let Some(err) = err.downcast_ref::<pciescope_lab::vm::LabError>() {
        return err.hint().map(str::to_owned);
    }
    err.downcast_ref::<pciescope_core::Error>().and_then(|err| err.hint()).map(str::to_owned)
}
