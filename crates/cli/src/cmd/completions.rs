//! `pciescope completions`: what a shell completes after `pciescope`, from the one definition of the arguments.
//!
//! The scripts of bash, zsh and fish ask `pciescope complete` at each key: so they know this machine. That reads the names of
//! folders and links only, so no device is woken.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Arg, Command};
use pciescope_catalogue::{Catalogue, Group};
use pciescope_hw::doctor::CHECKS;
use pciescope_hw::probe::open::Kind;
use pciescope_hw::tune;
use pciescope_hw::{Root, nodes};

use super::stat::PMUS;

/// The arguments of `pciescope completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope completions bash > /usr/share/bash-completion/completions/pciescope
  pciescope completions zsh > /usr/local/share/zsh/site-functions/_pciescope
  pciescope completions fish > ~/.config/fish/completions/pciescope.fish
  source <(pciescope completions bash)            in this shell only

They know this machine's functions, disks, interfaces and PMUs, and the names of
checks, metrics and kernels. The Debian package installs them.")]
pub struct Args {
    /// The shell to print completions for
    #[arg(value_parser = ["bash", "zsh", "fish"])]
    shell: String,
}

/// The arguments of `pciescope complete`.
#[derive(Debug, clap::Args)]
pub struct WordArgs {
    /// What was typed, the program's name first, up to the cursor
    #[arg(value_name = "WORDS", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let text = match &*args.shell {
        "bash" => include_str!("completions/bash"),
        "zsh" => include_str!("completions/zsh"),
        _ => include_str!("completions/fish"),
    };
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what may stand in the place of the last word: a line each, with its help behind a tabulator. The exit code is 1 where
/// that is a file or a command, which the shell knows.
pub fn complete(args: &WordArgs, mut cli: Command) -> anyhow::Result<ExitCode> {
    cli.build();
    let Some(offers) = offers(&cli, &args.words) else { return Ok(ExitCode::from(1)) };
    let mut out = io::stdout().lock();
    for (word, help) in offers {
        writeln!(out, "{}", if help.is_empty() { word } else { format!("{word}\t{help}") })?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// A word with its help.
type Offer = (String, String);

fn offer(word: impl Into<String>, help: Option<&clap::builder::StyledStr>) -> Offer {
    let help = help.map(|text| text.to_string().lines().next().unwrap_or_default().to_owned());
    (word.into(), help.unwrap_or_default())
}

/// What may stand in the place of the last word; `None` where that is a file or a command.
fn offers(cli: &Command, words: &[OsString]) -> Option<Vec<Offer>> {
    let (last, before) = words.split_last()?;
    let last = last.to_str()?;
    let (mut command, mut place, mut root) = (cli, 0, Root::default());
    let before = with_separator(cli, before.to_vec());
    let mut words = before.iter().skip(1).map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        if word == "--" {
            return None;
        }
        if !word.starts_with('-') || word == "-" {
            match command.find_subcommand(word.as_ref()) {
                Some(below) => (command, place) = (below, 0),
                None => place += 1,
            }
        } else if let Some(option) = takes_next(cli, command, &word) {
            match words.next() {
                Some(value) if option.get_id() == "root" => root = Root::at(value.as_ref()),
                Some(_) => {}
                None => return values(&root, command, option, "", last),
            }
        }
    }
    let options = || command.get_arguments().filter(|arg| !arg.is_hide_set());
    if let Some((name, value)) = last.strip_prefix("--").and_then(|text| text.split_once('=')) {
        let option = command.get_arguments().find(|arg| arg.get_long() == Some(name))?;
        return values(&root, command, option, &format!("--{name}="), value);
    }
    let mut offers: Vec<Offer> = match last.starts_with('-') {
        true => {
            let long = options().filter_map(|arg| Some(offer(format!("--{}", arg.get_long()?), arg.get_help())));
            let short = options().filter_map(|arg| Some(offer(format!("-{}", arg.get_short()?), arg.get_help())));
            long.chain(short).collect()
        }
        false => {
            let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
            verbs.map(|verb| offer(verb.get_name(), verb.get_about())).collect()
        }
    };
    offers.retain(|(word, _)| word.starts_with(last));
    // The last of them may stand there several times.
    let positions = || command.get_positionals().filter(|arg| !arg.is_last_set());
    match positions().nth(place).or_else(|| positions().last()) {
        Some(arg) if !last.starts_with('-') => offers.extend(values(&root, command, arg, "", last)?),
        _ => {}
    }
    Some(offers)
}

/// The values of an argument that begin with what was typed of it, with what stands before it; `None` where it is a file.
fn values(root: &Root, command: &Command, arg: &Arg, before: &str, typed: &str) -> Option<Vec<Offer>> {
    let known = arg.get_possible_values();
    let name = arg.get_value_names()?.first()?.as_str();
    // Several values are separated by commas.
    let (first, typed) = match name.ends_with(",...") || arg.get_value_delimiter().is_some() {
        true => typed.split_at(typed.rfind(',').map_or(0, |at| at + 1)),
        false => ("", typed),
    };
    let mut all: Vec<Offer> = match (arg.get_id().as_str(), name) {
        _ if !known.is_empty() => known.iter().map(|one| offer(one.get_name(), one.get_help())).collect(),
        ("only" | "skip" | "silence", _) => {
            CHECKS.iter().map(|check| (check.name.to_owned(), check.looks_at.to_owned())).collect()
        }
        ("tries", _) if first.is_empty() => {
            ["all"].into_iter().chain(tune::names()).map(|name| offer(name, None)).collect()
        }
        ("metric", _) => metrics(root),
        ("kernels", _) => pciescope_bench::convert::all(1).iter().map(|one| offer(one.name(), None)).collect(),
        (_, "BACKEND") => {
            let names = ["auto", "fake"].into_iter().chain(Kind::ALL.into_iter().map(Kind::name));
            names.filter(|name| is_taken(command, arg, name)).map(|word| offer(word, None)).collect()
        }
        (_, "FILE" | "FILES" | "DIR" | "CMD" | "COMMAND" | "SOCKET") => return None,
        (_, "DEV" | "BDF" | "BDF|PMU") if typed.starts_with('/') => return None,
        (_, "DEV" | "BDF" | "BDF|PMU") => {
            let mut all = root.names("/sys/bus/pci/devices");
            // Without the domain, as it may be typed.
            if !all.iter().any(|bdf| bdf.starts_with(typed)) {
                all = all.iter().filter_map(|bdf| Some(bdf.strip_prefix("0000:")?.to_owned())).collect();
            }
            all.extend(nodes::all(root));
            if name.contains("PMU") {
                all.extend(pmus(root));
            }
            all.into_iter().map(|word| offer(word, None)).collect()
        }
        _ => Vec::new(),
    };
    let mut seen = BTreeSet::new();
    all.retain(|(word, _)| word.starts_with(typed) && seen.insert(word.clone()));
    // A readout takes any file.
    let is_file = name == "DEV" && all.is_empty();
    (!is_file).then(|| all.into_iter().map(|(word, help)| (format!("{before}{first}{word}"), help)).collect())
}

/// The PMUs that the catalogue may know by their names.
fn pmus(root: &Root) -> Vec<String> {
    let mut all = root.names(PMUS);
    all.retain(|pmu| Catalogue::builtin().kinds().iter().any(|kind| kind.has_name(pmu)));
    all
}

/// The groups of metrics, and the metrics of the kernel's counts and of the PMUs.
fn metrics(root: &Root) -> Vec<Offer> {
    let pmus = pmus(root);
    let kinds = Catalogue::builtin().kinds().iter();
    let here = kinds.filter(|kind| kind.id == "kernel" || pmus.iter().any(|pmu| kind.has_name(pmu)));
    let mut all: Vec<Offer> =
        here.flat_map(|kind| &kind.metrics).map(|one| (one.name.clone(), one.text.clone())).collect();
    all.sort();
    Group::ALL.into_iter().map(Group::text).chain(["vectors"]).map(|word| offer(word, None)).chain(all).collect()
}

/// Whether a verb takes a value, whatever else it lacks.
fn is_taken(command: &Command, arg: &Arg, value: &str) -> bool {
    let word = format!("--{}={value}", arg.get_long().unwrap_or_default());
    let tried = command.clone().try_get_matches_from([command.get_name(), &word]);
    tried.err().is_none_or(|err| err.kind() != ErrorKind::ValueValidation)
}

/// The words that were typed, with `--` before the command of `pciescope stat CMD`, as perf's users leave it out.
pub fn with_separator(cli: &Command, mut typed: Vec<OsString>) -> Vec<OsString> {
    let mut root = PathBuf::from("/");
    let mut command = cli;
    let mut place = 1;
    while let Some(word) = typed.get(place) {
        let text = word.to_string_lossy();
        if text == "--" {
            break;
        }
        if text.starts_with('-') && text.len() > 1 {
            if text == "--root" {
                root = typed.get(place + 1).map(PathBuf::from).unwrap_or_default();
            }
            place += if takes_next(cli, command, &text).is_some() { 2 } else { 1 };
            continue;
        }
        match command.find_subcommand(word) {
            Some(stat) if stat.get_name() == "stat" => command = stat,
            // Another verb, or none.
            _ if command.get_name() != "stat" => break,
            _ if !super::stat::is_place(word, &root) => {
                typed.insert(place, "--".into());
                break;
            }
            _ => {}
        }
        place += 1;
    }
    typed
}

/// The option that was typed, if it takes the word behind it as its value.
fn takes_next<'a>(cli: &'a Command, command: &'a Command, typed: &str) -> Option<&'a Arg> {
    let mut all = command.get_arguments().chain(cli.get_arguments());
    let takes = |arg: &&Arg| arg.get_action().takes_values();
    if let Some(long) = typed.strip_prefix("--") {
        let is_named =
            |arg: &&Arg| arg.get_long() == Some(long) || arg.get_all_aliases().is_some_and(|all| all.contains(&long));
        return all.find(is_named).filter(takes).filter(|arg| !arg.is_require_equals_set());
    }
    // Switches may stand together; the first option with a value has the rest of the word, or the next one.
    let mut letters = typed.chars().skip(1);
    while let Some(letter) = letters.next() {
        let named = command.get_arguments().chain(cli.get_arguments()).find(|arg| arg.get_short() == Some(letter));
        if let Some(arg) = named.filter(takes) {
            return letters.next().is_none().then_some(arg);
        }
    }
    None
}
