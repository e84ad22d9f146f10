//! `pciescope man`: the manual pages, one for each verb, from the one definition of the arguments.
//!
//! Options come from clap_mangen. The other sections are written here. After its options the help of a verb has
//! examples, sections of its own ("Exit codes:") and plain sentences; a manual page has a place for each.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Command;
use clap_mangen::Man;

use super::{EXIT_CODES, files};

/// The arguments of `pciescope man`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope man --dir target/man
  pciescope man --dir /usr/local/share/man/man1 --date 2026-11-22")]
pub struct Args {
    /// The folder for the pages; it is made if it does not exist, and pages of the same names are replaced
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,

    /// The date in the pages; with a given date, the same program writes the same bytes
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = date)]
    date: Option<String>,
}

/// Runs the verb on the definition of the arguments.
pub fn run(args: Args, cli: Command) -> anyhow::Result<ExitCode> {
    let dir =
        files::make_folder(&args.dir).with_context(|| format!("cannot make the folder {}", args.dir.display()))?;
    let mut cli = cli.disable_help_subcommand(true);
    cli.build();
    write_pages(&cli, None, &dir, args.date.as_deref().unwrap_or_default())?;
    Ok(ExitCode::SUCCESS)
}

fn date(text: &str) -> Result<String, String> {
    let form = |(place, byte): (usize, u8)| if matches!(place, 4 | 7) { byte == b'-' } else { byte.is_ascii_digit() };
    match text.len() == 10 && text.bytes().enumerate().all(form) {
        true => Ok(text.to_owned()),
        false => Err("write a date as 2026-11-22".to_owned()),
    }
}

/// Writes the page of `verb` and those of the verbs below it.
fn write_pages(verb: &Command, parent: Option<&Command>, folder: &Path, date: &str) -> anyhow::Result<()> {
    let file = folder.join(format!("{}.1", name(verb)));
    let page = page(verb, parent, date)?;
    files::write(&file, page.as_ref())?;
    shown(verb).try_for_each(|below| write_pages(below, Some(verb), folder, date))
}

fn shown(verb: &Command) -> impl Iterator<Item = &Command> {
    verb.get_subcommands().filter(|below| !below.is_hide_set())
}

/// `pciescope-latency-mmio`: what `man` finds the page by.
fn name(verb: &Command) -> String {
    verb.get_bin_name().unwrap_or_else(|| verb.get_name()).replace(' ', "-")
}

fn about(verb: &Command) -> String {
    verb.get_about().map(ToString::to_string).unwrap_or_default()
}

/// One page.
fn page(verb: &Command, parent: Option<&Command>, date: &str) -> anyhow::Result<String> {
    let after = verb.get_after_long_help().or(verb.get_after_help()).map(ToString::to_string).unwrap_or_default();
    let mut words = String::new();
    let mut examples = String::new();
    let mut sections = String::new();
    for block in after.split("\n\n").filter(|block| !block.trim().is_empty()) {
        match Block::of(block) {
            Block::Plain(text) => words += &format!(".PP\n{}\n", escape(text.trim())),
            Block::Titled("Examples", lines) => examples += &verbatim(&lines),
            // Every page has those below.
            Block::Titled("Exit codes", _) if block == EXIT_CODES => {}
            Block::Titled(title, lines) => sections += &section(&title.to_uppercase(), &verbatim(&lines)),
        }
    }

    // Apostrophes that stay straight, wherever the page is shown; clap_mangen's text names them so.
    let mut page = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n".to_owned();
    let version = env!("CARGO_PKG_VERSION");
    page += &format!(
        ".TH {} 1 \"{date}\" \"pciescope {version}\" \"pciescope manual\"\n",
        escape(&name(verb).to_uppercase())
    );
    // Neither hyphens nor wide gaps: names and options are to be found and copied whole.
    page += ".nh\n.ad l\n";
    page += &section("NAME", &format!("{} \\- {}\n", escape(&name(verb)), escape(&about(verb))));
    page += &section("SYNOPSIS", &synopsis(verb));
    page += &section("DESCRIPTION", &format!("{}.\n{words}", escape(&about(verb))));
    let verbs: String =
        shown(verb).map(|below| format!(".TP\n{}\n{}\n", reference(below), escape(&about(below)))).collect();
    if !verbs.is_empty() {
        page += &section("COMMANDS", &verbs);
    }
    page += &options(verb)?;
    page += &sections;
    page += &section("EXIT STATUS", &exit_status());
    if !examples.is_empty() {
        page += &section("EXAMPLES", &examples);
    }
    page += &section("SEE ALSO", &see_also(verb, parent));
    Ok(page)
}

/// A part of a help text, between two empty lines.
enum Block<'a> {
    /// A line that ends in a colon, and the lines indented below it.
    Titled(&'a str, Vec<&'a str>),
    /// Sentences.
    Plain(&'a str),
}

impl<'a> Block<'a> {
    fn of(text: &'a str) -> Self {
        let mut lines = text.trim_matches('\n').lines();
        let title = lines.next().and_then(|line| line.strip_suffix(':'));
        let below: Vec<&str> = lines.collect();
        match title {
            Some(title) if !below.is_empty() && below.iter().all(|line| line.starts_with("  ")) => {
                Block::Titled(title, below.iter().map(|line| &line[2..]).collect())
            }
            _ => Block::Plain(text),
        }
    }
}

fn section(title: &str, text: &str) -> String {
    format!(".SH {title}\n{text}")
}

/// Lines as they are, neither filled nor hyphenated.
fn verbatim(lines: &[&str]) -> String {
    format!(".nf\n{}\n.fi\n", lines.iter().map(|line| escape(line)).collect::<Vec<_>>().join("\n"))
}

/// The usage as the help has it, the words to be typed as they are in bold.
fn synopsis(verb: &Command) -> String {
    let usage = verb.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let typed = verb.get_bin_name().unwrap_or_else(|| verb.get_name());
    match usage.strip_prefix(typed) {
        Some(rest) => format!("\\fB{}\\fR{}\n", escape(typed), escape(rest)),
        None => format!("{}\n", escape(usage)),
    }
}

/// The options, those under headings of their own as sub-sections.
fn options(verb: &Command) -> anyhow::Result<String> {
    let mut text = Vec::new();
    Man::new(verb.clone()).render_options_section(&mut text)?;
    let text = String::from_utf8(text).context("an option is described by something that is not UTF-8")?;
    // An empty line is a request to troff, and has one of its own: clap_mangen writes it between two line breaks.
    let text = text.replace("\n.br\n\n.br\n", "\n.sp\n").replace("\n\n", "\n.sp\n");
    let mut options = String::new();
    // Each text of clap_mangen begins with the definition of the apostrophe, which the page has.
    for line in text.lines().filter(|line| !line.starts_with(".ie ") && !line.starts_with(".el ")) {
        match line.strip_prefix(".SH ") {
            Some("OPTIONS") | None => options += &symbols(line),
            Some(title) => options += &format!(".SS {title}"),
        }
        options.push('\n');
    }
    Ok(options)
}

/// The exit codes, which all verbs share.
fn exit_status() -> String {
    let lines = EXIT_CODES.lines().skip(1).filter_map(|line| line.trim().split_once(' '));
    lines.map(|(code, text)| format!(".TP\n.B {}\n{}\n", escape(code), escape(text.trim()))).collect()
}

fn see_also(verb: &Command, parent: Option<&Command>) -> String {
    let mut pages = Vec::new();
    if let Some(parent) = parent {
        pages.push(reference(parent));
        // The verbs below pciescope(1) are listed there; those below a verb belong together.
        if name(parent) != "pciescope" {
            pages.extend(shown(parent).filter(|other| name(other) != name(verb)).map(reference));
        }
    }
    pages.extend(shown(verb).map(reference));
    if parent.is_none() {
        pages.extend(["\\fBlspci\\fR(8)".to_owned(), "\\fBperf\\fR(1)".to_owned(), "\\fBfio\\fR(1)".to_owned()]);
    }
    format!(
        "{}\n.PP\nThe documents of pciescope: docs/ in its sources, /usr/share/doc/pciescope in its package.\n",
        pages.join(",\n")
    )
}

fn reference(verb: &Command) -> String {
    format!("\\fB{}\\fR(1)", escape(&name(verb)))
}

/// Text for troff: nothing in it is a request or an escape, and it can be copied out of the page into a shell.
fn escape(text: &str) -> String {
    let text = symbols(&text.replace('\\', "\\e").replace('-', "\\-")).replace('\'', "\\(aq");
    let lines = text.lines().map(|line| if line.starts_with('.') { format!("\\&{line}") } else { line.to_owned() });
    lines.collect::<Vec<_>>().join("\n")
}

/// What troff would turn into its typographic relatives.
fn symbols(text: &str) -> String {
    text.replace('`', "\\(ga").replace('^', "\\(ha").replace('~', "\\(ti")
}
