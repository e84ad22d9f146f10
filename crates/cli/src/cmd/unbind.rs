//! `pciescope unbind`: binds devices to their former drivers, also after a killed run.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use pciescope_hw::bind::{self, Restored, State};
use pciescope_hw::tune::restore;

use super::{Ctx, tune};
use crate::values;

/// The arguments of `pciescope unbind`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without an address, unbind lists the functions that bind or a run has bound.

Examples:
  pciescope unbind 0000:02:00.0
  pciescope unbind --restore   all functions, also those of a killed run")]
pub struct Args {
    /// The function to bind to its former driver
    #[arg(value_name = "BDF", value_parser = values::bdf)]
    bdf: Option<values::FunctionName>,

    /// Restore all functions and what a killed `tune` has set, or with BDF only that one; no error if there is nothing
    #[arg(long)]
    restore: bool,

    /// Where `tune` kept what is to be put back [default: /var/lib/pciescope/restore]
    #[arg(long, value_name = "DIR", requires = "restore")]
    state_dir: Option<PathBuf>,
}

impl Args {
    /// Whether what `tune` left in its own folder is put back.
    pub fn puts_back_settings(&self) -> bool {
        self.restore && self.state_dir.is_none()
    }
}

/// Runs the verb.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    // A signal must not stop the restoration half-way.
    ctx.stop.catch_signals()?;
    // The bindings come back, whatever is with the settings.
    let tuned = match args.restore {
        true => tune::put_back(ctx, &restore::folder(&ctx.root, args.state_dir.as_deref())),
        false => Ok(false),
    };
    let done = match (args.bdf.map(|bdf| ctx.function(&bdf)).transpose()?, args.restore) {
        (None, false) => show(&bind::states(&ctx.root)?),
        (Some(bdf), false) => {
            tell(&bind::restore(&ctx.root, bdf)?)?;
            Ok(ExitCode::SUCCESS)
        }
        (Some(bdf), true) => match bind::restore(&ctx.root, bdf) {
            Err(pciescope_hw::Error::NotBound { .. }) => nothing(),
            other => {
                tell(&other?)?;
                Ok(ExitCode::SUCCESS)
            }
        },
        (None, true) => restore_all(ctx),
    };
    tuned.and(done)
}

/// Goes on after a failure, so that one function does not prevent the restoration of the others; fails at the end.
fn restore_all(ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let outcomes = bind::restore_all(&ctx.root)?;
    if outcomes.is_empty() {
        return nothing();
    }
    let mut failure = None;
    for outcome in outcomes {
        match outcome {
            Ok(restored) => tell(&restored)?,
            Err(error) => {
                if let Some(earlier) = failure.replace(error) {
                    ctx.note(&format!("{:#}", anyhow::Error::from(earlier)));
                }
            }
        }
    }
    match failure {
        Some(error) => Err(error.into()),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn nothing() -> anyhow::Result<ExitCode> {
    writeln!(io::stdout(), "no function is bound by pciescope")?;
    Ok(ExitCode::SUCCESS)
}

fn tell(restored: &Restored) -> io::Result<()> {
    let driver = restored.driver.as_deref().unwrap_or("none");
    let notes: String = restored.notes.iter().map(|note| format!(" ({note})")).collect();
    writeln!(io::stdout(), "{}: driver {driver}{notes}", restored.bdf)
}

fn show(states: &[State]) -> anyhow::Result<ExitCode> {
    if states.is_empty() {
        return nothing();
    }
    for state in states {
        writeln!(
            io::stdout(),
            "{}: with {}, had {}; handed over by process {}",
            state.owner.bdf,
            state.driver,
            state.former_driver.as_deref().unwrap_or("no driver"),
            state.owner.pid
        )?;
    }
    Ok(ExitCode::SUCCESS)
}
