//! `pciescope completions`: what a shell completes after `pciescope`, from the one definition of the arguments.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;

/// The arguments of `pciescope completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope completions bash > /usr/share/bash-completion/completions/pciescope
  pciescope completions zsh > /usr/local/share/zsh/site-functions/_pciescope
  pciescope completions fish > ~/.config/fish/completions/pciescope.fish
  source <(pciescope completions bash)            in this shell only

The Debian package installs the completions of bash, zsh and fish.")]
pub struct Args {
    /// The shell to print completions for
    #[arg(value_enum)]
    shell: Shell,
}

/// Runs the verb on the definition of the arguments.
pub fn run(args: Args, cli: Command) -> anyhow::Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut shown(cli), "pciescope", &mut text);
    let mut out = io::stdout().lock();
    out.write_all(&text)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The command line without what the help hides: clap_complete would offer it.
fn shown(cli: Command) -> Command {
    let verbs = cli.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    let options = cli.get_arguments().filter(|arg| !arg.is_hide_set()).cloned();
    let about = cli.get_about().cloned().unwrap_or_default();
    Command::new("pciescope").version(env!("CARGO_PKG_VERSION")).about(about).args(options).subcommands(verbs)
}
