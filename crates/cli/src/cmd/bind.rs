//! `pciescope bind`: binds a device to the driver that measures, until `pciescope unbind`.

use std::io::{self, Write};
use std::process::ExitCode;

use pciescope_hw::bind::{self, Driver};

use super::Ctx;
use crate::values;

/// The arguments of `pciescope bind`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
`pciescope unbind` binds the former driver again; /run/pciescope/bind names it.
`pciescope latency --bind` binds for one run and unbinds at its end. Use this
verb for many runs in a row.

Examples:
  pciescope bind 0000:02:00.0
  pciescope bind 0000:02:00.0 --driver vfio-pci")]
pub struct Args {
    /// The function to bind
    #[arg(value_name = "BDF", value_parser = values::bdf)]
    bdf: values::FunctionName,

    /// The driver to bind it to: pcilat or vfio-pci
    #[arg(long, value_name = "DRIVER", default_value = "pcilat")]
    driver: Driver,

    /// With --take-in-use: yes, take it away from what uses it
    #[arg(long, requires = "take_in_use")]
    force: bool,

    /// With --force: bind it even if it is in use, such as a mounted disk or a network interface with an address
    #[arg(long, requires = "force")]
    take_in_use: bool,
}

/// Runs the verb.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    // A signal between the steps must not leave the function without a driver.
    ctx.stop.catch_signals()?;
    let bdf = ctx.function(&args.bdf)?;
    let bound = bind::take(&ctx.root, bdf, args.driver, args.force && args.take_in_use)?;
    if let Some(code) = ctx.stop.exit_code() {
        bound.release()?;
        return Ok(ExitCode::from(code));
    }
    let former = bound.state().former_driver.clone();
    bound.keep();
    writeln!(
        io::stdout(),
        "{bdf}: driver {} (was {}); `pciescope unbind {bdf}` gives it back",
        args.driver,
        former.as_deref().unwrap_or("none")
    )?;
    Ok(ExitCode::SUCCESS)
}
