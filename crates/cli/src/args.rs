//! The command line: the verbs.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{CommandFactory, Parser, Subcommand};
use pciescope_hw::probe::open::Backend;

use crate::cmd::{self, EXIT_CODES};

/// Measure the path between CPUs, memory and PCIe devices, and show how each number was obtained.
#[derive(Debug, Parser)]
#[command(name = "pciescope", version, after_help = EXIT_CODES)]
pub struct Cli {
    /// Look for /sys, /proc, /dev and /run below DIR (a recorded tree)
    #[arg(long, value_name = "DIR", default_value = "/", hide = true, global = true)]
    pub root: PathBuf,

    /// Say more about what is done and why (standard error)
    #[arg(short, long, action = clap::ArgAction::Count, global = true, display_order = 900)]
    pub verbose: u8,

    /// Show no progress and no notes; results and errors are printed (standard error)
    #[arg(short, long, global = true, conflicts_with = "verbose", display_order = 900)]
    pub quiet: bool,

    /// Print without colours, as with NO_COLOR=1
    #[arg(long, global = true, display_order = 900)]
    pub no_color: bool,

    /// Write the machine's serial number into the records (only root can read it)
    #[arg(long, global = true, display_order = 901)]
    pub serial: bool,

    /// Without a command: the machine to show, auto (this one) or fake (a synthetic one)
    #[arg(long, value_name = "BACKEND", value_parser = cmd::stat::machine, display_order = 902)]
    pub backend: Option<Backend>,

    /// What to do; nothing shows this machine on one screen.
    #[command(subcommand)]
    pub verb: Option<Verb>,
}

/// One verb per question.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show the devices, their links and drivers, and what can be measured on each
    List(cmd::list::Args),
    /// Measure how long accesses and interrupts take, from every CPU
    Latency(cmd::latency::Args),
    /// Count PCIe and DRAM traffic, link states and errors by hardware counters
    Stat(cmd::stat::Args),
    /// Read data out of digitizers, disks and files, and convert it
    Readout(cmd::readout::Args),
    /// Measure how fast samples are converted, and check it to the last bit
    Convert(cmd::convert::Args),
    /// Read, write and log device registers
    Reg(cmd::reg::Args),
    /// Bind a device to the driver that measures
    Bind(cmd::bind::Args),
    /// Bind a device to the driver that it had before
    Unbind(cmd::unbind::Args),
    /// Compare the counters with workloads whose traffic is known
    Verify(cmd::verify::Args),
    /// Watch ports, channels and a device live, full screen
    Top(cmd::top::Args),
    /// Serve metrics to Prometheus and a live page to browsers
    Serve(cmd::serve::Args),
    /// Record every change of links, with its cause and what it costs
    Watch(cmd::watch::Args),
    /// Bound the bit error ratio of a link, from the errors that its ends count
    Soak(cmd::soak::Args),
    /// Measure which setting of a device or the machine helps, and put everything back
    Tune(cmd::tune::Args),
    /// Find what harms performance or a measurement, and what to do about it
    Doctor(cmd::doctor::Args),
    /// Say whether two runs differ, and by how much; fail if a limit is exceeded
    Compare(cmd::compare::Args),
    /// Turn records into tables, pages and pictures
    Report(cmd::report::Args),
    /// Turn logs of other programs into records
    Import(cmd::import::Args),
    /// Print the completions of a shell
    Completions(cmd::completions::Args),
    /// Say what may stand in the place of the last word, for the completions of a shell
    #[command(hide = true)]
    Complete(cmd::completions::WordArgs),
    /// Write the manual pages
    #[command(hide = true)]
    Man(cmd::man::Args),
    /// Run programs on virtual hardware, whose right answers are known
    Lab(cmd::lab::Args),
    /// Print the version, as --version does
    #[command(hide = true)]
    Version,
}

/// Takes clap's refusal apart: what is wrong, in one line, and what the user can do. Clap writes blocks with blank
/// lines between: what is wrong, tips, the usage, and where the help is.
pub fn refusal(rendered: &str, typed: &[OsString]) -> (String, String) {
    let line = |block: &str| block.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let mut blocks = rendered.trim().split("\n\n");
    let first = line(blocks.next().unwrap_or_default());
    let tips = blocks.flat_map(str::lines).filter_map(|text| text.trim().strip_prefix("tip: "));
    // No value of ours looks like an option: a misspelt option is what was typed.
    let tips = tips.filter(|tip| !tip.starts_with("to pass")).collect::<Vec<_>>().join("; ");
    let hint = if tips.is_empty() { format!("`{} --help`", named(typed)) } else { tips };
    (first.strip_prefix("error: ").unwrap_or(&first).to_owned(), hint)
}

/// The verb that was typed, such as `pciescope latency mmio`, as far as it is one.
fn named(typed: &[OsString]) -> String {
    let cli = Cli::command();
    let (mut command, mut name) = (&cli, cli.get_name().to_owned());
    for word in typed {
        if let Some(verb) = command.find_subcommand(word) {
            name = format!("{name} {}", verb.get_name());
            command = verb;
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::completions::with_separator;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_command_of_stat_needs_no_separator() {
        let words = |line: &str| {
            let typed = line.split(' ').map(OsString::from).collect();
            with_separator(&Cli::command(), typed)
                .into_iter()
                .map(|word| word.into_string().unwrap())
                .collect::<Vec<_>>()
                .join(" ")
        };
        for (typed, taken) in [
            ("pciescope stat sh -c x", "pciescope stat -- sh -c x"),
            ("pciescope stat -I 10 3b:00.0 -j sh -I 5", "pciescope stat -I 10 3b:00.0 -j -- sh -I 5"),
            (
                "pciescope -v --root / stat --count=3 -e a/b/ /bin/sh",
                "pciescope -v --root / stat --count=3 -e a/b/ -- /bin/sh",
            ),
            ("pciescope stat -jI 10 sh", "pciescope stat -jI 10 -- sh"),
            ("pciescope stat -I10 sh", "pciescope stat -I10 -- sh"),
            ("pciescope stat --interval-count 3 sh", "pciescope stat --interval-count 3 -- sh"),
            ("pciescope stat -- sh", "pciescope stat -- sh"),
            ("pciescope stat no_such_pmu", "pciescope stat no_such_pmu"),
            ("pciescope stat dwc_* 3b:00.0", "pciescope stat dwc_* 3b:00.0"),
            ("pciescope list sh", "pciescope list sh"),
            ("pciescope sh stat", "pciescope sh stat"),
        ] {
            assert_eq!(words(typed), taken);
        }
    }
}
