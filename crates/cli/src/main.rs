//! The program `pciescope`: one verb per question.
//!
//! This file turns what was typed into a call of one verb and what comes back into an exit code; everything else
//! is in `cmd/<verb>.rs`. No verb prints an error or calls `exit` itself.
//!
//! # Where to change what
//!
//! A verb is `cmd/<verb>.rs`. What a manual page says stands in the verb's `Args` and `after_help`; its form is
//! `cmd/man.rs`. The other parts of the project are in ARCHITECTURE.md.
#![forbid(unsafe_code)]
// A closed pipe makes `println!` and `eprintln!` panic: verbs write with `writeln!` to a handle and pass the error on,
// and talk to the user by `cmd::say`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod cmd;
#[cfg(test)]
mod rules;
mod values;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use args::{Cli, Verb};
use cmd::{Ctx, Stop};
use pciescope_report::text::clean;

/// What `cat` killed by SIGPIPE looks like to a shell: 128 + 13.
const CLOSED_PIPE: u8 = 141;

fn main() -> ExitCode {
    let typed: Vec<_> = std::env::args_os().collect();
    if cmd::threads::is_meant(typed.first()) {
        let ctx = context(pciescope_hw::Root::default(), 0, false);
        return cmd::threads::run(typed, &ctx).unwrap_or_else(|err| match err.downcast_ref::<clap::Error>() {
            Some(err) => refuse_arguments(err),
            None => report_failure(&err),
        });
    }
    let cli = match Cli::try_parse_from(cmd::completions::with_separator(&Cli::command(), typed)) {
        Ok(cli) => cli,
        Err(err) => return refuse_arguments(&err),
    };
    if cli.verb.is_some() && cli.backend.is_some() {
        let text = "--backend before a command is for no command: write it behind the command";
        return refuse_arguments(&Cli::command().error(ErrorKind::ArgumentConflict, text));
    }
    let mut root = pciescope_hw::Root::at(&cli.root);
    root.shows_serial = cli.serial;
    if !root.is_live() && !root.exists("/sys") && !root.exists("/proc") {
        let text = format!("--root {}: it is no recorded machine, for it has neither sys nor proc", cli.root.display());
        return report_failure(&cmd::Refusal::new(text, "give a folder that tests/sysfs/record-tree.sh made").into());
    }
    if cli.no_color {
        anstream::ColorChoice::Never.write_global();
        console::set_colors_enabled(false);
        console::set_colors_enabled_stderr(false);
    }
    let ctx = context(root, cli.verbose, cli.quiet);
    if !is_silent(cli.verb.as_ref()) {
        cmd::tune::say_what_is_left(&ctx);
    }
    let done = match cli.verb {
        Some(verb) => run(verb, &ctx),
        None => cmd::overview::run(&cli.backend.unwrap_or_default(), &ctx),
    };
    done.unwrap_or_else(|err| report_failure(&err))
}

fn context(root: pciescope_hw::Root, verbose: u8, quiet: bool) -> Ctx {
    Ctx { root, terminal: io::stderr().is_terminal() && !quiet, verbose, quiet, stop: Stop::default(), made: None }
}

/// Whether a verb puts back itself what a killed experiment of `tune` left, or looks at no machine.
fn is_silent(verb: Option<&Verb>) -> bool {
    match verb {
        Some(Verb::Tune(args)) => args.puts_back_settings(),
        Some(Verb::Unbind(args)) => args.puts_back_settings(),
        Some(Verb::Completions(_) | Verb::Complete(_) | Verb::Man(_) | Verb::Version) => true,
        _ => false,
    }
}

fn run(verb: Verb, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::List(args) => cmd::list::run(args, ctx),
        Verb::Latency(args) => cmd::latency::run(args, ctx),
        Verb::Stat(args) => cmd::stat::run(args, ctx),
        Verb::Readout(args) => cmd::readout::run(args, ctx),
        Verb::Convert(args) => cmd::convert::run(args, ctx),
        Verb::Reg(args) => cmd::reg::run(args, ctx),
        Verb::Bind(args) => cmd::bind::run(args, ctx),
        Verb::Unbind(args) => cmd::unbind::run(args, ctx),
        Verb::Verify(args) => cmd::verify::run(args, ctx),
        Verb::Report(args) => cmd::report::run(args, ctx),
        Verb::Import(args) => cmd::import::run(args, ctx),
        Verb::Top(args) => cmd::top::run(args, ctx),
        Verb::Serve(args) => cmd::serve::run(args, ctx),
        Verb::Watch(args) => cmd::watch::run(args, ctx),
        Verb::Soak(args) => cmd::soak::run(args, ctx),
        Verb::Tune(args) => cmd::tune::run(args, ctx),
        Verb::Doctor(args) => cmd::doctor::run(args, ctx),
        Verb::Compare(args) => cmd::compare::run(args, ctx),
        Verb::Completions(args) => cmd::completions::run(&args),
        Verb::Complete(args) => cmd::completions::complete(&args, Cli::command()),
        Verb::Man(args) => cmd::man::run(args, Cli::command()),
        Verb::Lab(args) => cmd::lab::run(args, ctx),
        Verb::Version => {
            write!(io::stdout(), "{}", Cli::command().render_version())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Prints clap's refusal in our own form; help and version go to the standard output with exit code 0.
fn refuse_arguments(err: &clap::Error) -> ExitCode {
    match err.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match show(err) {
            Ok(()) => ExitCode::SUCCESS,
            Err(err) => report_failure(&err.into()),
        },
        // A verb with verbs of its own, such as `latency`, and none.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // To the standard error, by clap; when that is closed too there is nobody left to tell.
            let _ = err.print();
            ExitCode::from(2)
        }
        _ => {
            let typed: Vec<_> = std::env::args_os().skip(1).collect();
            let (text, hint) = args::refusal(&err.render().to_string(), &typed);
            cmd::say(&format!("pciescope: {text}\nhint: {hint}\n"));
            ExitCode::from(2)
        }
    }
}

/// Prints help or version; clap's own way hides a closed pipe and a full disk.
fn show(help: &clap::Error) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.is_terminal() {
        true => write!(out, "{}", help.render().ansi())?,
        false => write!(out, "{}", help.render())?,
    }
    out.flush()
}

/// Makes the exit code of an error; a reader that went away needs no words.
fn report_failure(err: &anyhow::Error) -> ExitCode {
    let closed = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    };
    if err.chain().any(closed) {
        return ExitCode::from(CLOSED_PIPE);
    }
    complain(err);
    ExitCode::from(2)
}

/// Prints an error with its causes on one line, and what the user can do about it on the next.
fn complain(err: &anyhow::Error) {
    let is_full = err
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|err| err.kind() == io::ErrorKind::StorageFull));
    // Every file has its name in the error: without one it was what is printed.
    let what = if is_full && err.chain().count() == 1 { "cannot write the standard output: " } else { "" };
    // Names of files and devices may hold what moves a terminal's cursor.
    let text: Vec<String> = format!("{what}{err:#}").lines().map(clean).collect();
    cmd::say(&format!("pciescope: {}\n", text.join("\n")));
    let hint = err.chain().find_map(cmd::hint_of);
    if let Some(hint) = hint.or_else(|| is_full.then(|| "free some space, or write to another place".to_owned())) {
        cmd::say(&format!("hint: {hint}\n"));
    }
}
