//! The rules of docs/cli.md beside the definition of the arguments: one meaning for each option, one spelling for each meaning.

use std::collections::{BTreeMap, BTreeSet};

use clap::builder::ValueParser;
use clap::{Arg, Command, CommandFactory};

use crate::args::Cli;
use crate::cmd::device::CpuChoice;
use crate::values::{Percent, Size, Time};

/// What is written below `docs/`.
const RULES: &str = include_str!("../../../docs/cli.md");

/// Every verb that has no verbs below it, by its words: `latency mmio`.
fn verbs() -> Vec<(String, Command)> {
    fn walk(name: &str, command: &Command, all: &mut Vec<(String, Command)>) {
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            let name = format!("{name} {}", below.get_name());
            match below.has_subcommands() {
                true => walk(&name, below, all),
                false => all.push((name.trim().to_owned(), below.clone())),
            }
        }
    }
    let mut all = Vec::new();
    walk("", &Cli::command(), &mut all);
    all
}

fn is_shown(arg: &&Arg) -> bool {
    !arg.is_hide_set() && !arg.is_global_set()
}

fn value_of(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect::<Vec<_>>();
    if arg.get_action().takes_values() { names.join(" ") } else { String::new() }
}

/// An option as the table of the rules has it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Spelling {
    short: Option<char>,
    value: String,
}

/// The options of the table, by their long names.
fn table() -> BTreeMap<String, Spelling> {
    let part = RULES.split("## Options that several verbs have").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = part.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| row.split('|').map(|cell| cell.trim().trim_matches('`')).collect::<Vec<_>>());
    cells
        .map(|cells| {
            let (short, long) = match cells[1].split_once(", ") {
                Some((short, long)) => (short.chars().nth(1), long),
                None => (None, cells[1]),
            };
            (long.trim_start_matches("--").to_owned(), Spelling { short, value: cells[2].to_owned() })
        })
        .collect()
}

#[test]
fn an_option_is_spelled_alike_in_every_verb() {
    let mut known: BTreeMap<String, (Spelling, String)> = BTreeMap::new();
    let mut letters: BTreeMap<char, String> = BTreeMap::new();
    for (verb, command) in verbs() {
        for arg in command.get_arguments().filter(is_shown) {
            let Some(long) = arg.get_long() else {
                assert!(arg.is_positional(), "{verb}: {} has no long name", arg.get_id());
                continue;
            };
            let spelling = Spelling { short: arg.get_short(), value: value_of(arg) };
            let (first, other) = known.entry(long.to_owned()).or_insert_with(|| (spelling.clone(), verb.clone()));
            assert_eq!(*first, spelling, "--{long} in `{other}` and in `{verb}`");
            if let Some(short) = arg.get_short() {
                let other = letters.entry(short).or_insert_with(|| long.to_owned());
                assert_eq!(other, long, "-{short} in `{verb}` means something else elsewhere");
            }
        }
    }
}

#[test]
fn what_several_verbs_have_stands_in_the_rules() {
    let table = table();
    let mut users: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (verb, command) in verbs() {
        let top = verb.split(' ').next().unwrap().to_owned();
        for arg in command.get_arguments().filter(is_shown) {
            let Some(long) = arg.get_long() else { continue };
            users.entry(long.to_owned()).or_default().insert(top.clone());
            if let Some(spelling) = table.get(long) {
                assert_eq!(*spelling, Spelling { short: arg.get_short(), value: value_of(arg) }, "{verb}: --{long}");
            }
        }
    }
    for (long, users) in users.iter().filter(|(_, users)| users.len() > 1) {
        assert!(table.contains_key(long), "--{long} of {users:?} is not in docs/cli.md");
    }
    for long in table.keys().filter(|long| !["verbose", "serial", "quiet", "no-color"].contains(&long.as_str())) {
        assert!(users.contains_key(long), "docs/cli.md has --{long}, and no verb does");
    }
}

#[test]
fn values_of_one_name_are_written_in_one_way() {
    let same = |name: &str, parser: ValueParser| (name.to_owned(), parser.type_id());
    let types: BTreeMap<String, _> = BTreeMap::from([
        same("TIME", ValueParser::from(|_: &str| Ok::<Time, String>(Time(0)))),
        same("SIZE", ValueParser::from(|_: &str| Ok::<Size, String>(Size(0)))),
        same("PERCENT", ValueParser::from(|_: &str| Ok::<Percent, String>(Percent(0.0)))),
        same("CPUS", ValueParser::from(|_: &str| Ok::<CpuChoice, String>(CpuChoice::All))),
        same("BDF", ValueParser::from(crate::values::bdf)),
        same("FILE", clap::value_parser!(std::path::PathBuf)),
        same("DIR", clap::value_parser!(std::path::PathBuf)),
    ]);
    let by_type: BTreeMap<String, String> =
        types.iter().map(|(name, kind)| (format!("{kind:?}"), name.clone())).collect();
    for (verb, command) in verbs() {
        for arg in command.get_arguments().filter(|arg| arg.get_action().takes_values()) {
            let (name, kind) = (value_of(arg), arg.get_value_parser().type_id());
            if let Some(wanted) = types.get(&name) {
                assert_eq!(*wanted, kind, "{verb}: {} is a {name} of another kind", arg.get_id());
            }
            let is_path = matches!(by_type.get(&format!("{kind:?}")).map(String::as_str), Some("FILE" | "DIR"));
            if let Some(other) = by_type.get(&format!("{kind:?}")).filter(|_| !is_path) {
                assert!(
                    name == *other || name.contains("BDF"),
                    "{verb}: {} is a {other} and says {name}",
                    arg.get_id()
                );
            }
        }
    }
}

#[test]
fn what_is_accepted_beside_is_named_in_the_rules() {
    for (verb, command) in verbs() {
        let shown: BTreeSet<&str> = command.get_arguments().filter_map(Arg::get_long).collect();
        for arg in command.get_arguments() {
            for alias in arg.get_all_aliases().unwrap_or_default() {
                assert!(!shown.contains(alias), "{verb}: --{alias} is two options");
                assert!(RULES.contains(&format!("--{alias}")), "{verb}: --{alias} is not in docs/cli.md");
            }
            if arg.is_hide_set() {
                let spelling = arg.get_long().unwrap();
                assert!(
                    RULES.contains(&format!("--{spelling}")) || spelling == "watch-root" || spelling == "delay",
                    "{verb}: --{spelling} is not in docs/cli.md"
                );
            }
        }
    }
}

#[test]
fn examples_and_closing_words_fit_80_columns() {
    fn walk(command: &Command, long: &mut Vec<String>) {
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let too_long = after.lines().filter(|line| line.chars().count() > 80);
        long.extend(too_long.map(|line| format!("{}: {line}", command.get_name())));
        command.get_subcommands().for_each(|below| walk(below, long));
    }
    let mut cli = Cli::command();
    cli.build();
    let mut long = Vec::new();
    walk(&cli, &mut long);
    assert!(long.is_empty(), "{long:#?}");
}
