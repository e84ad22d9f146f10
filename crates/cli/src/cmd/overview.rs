//! `pciescope` alone: this machine on one screen of 80 columns and 24 lines, from the facts of `list`, `doctor` and `stat`.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use pciescope_bench::counters::{self, Machine, Origin, Task, Wanted};
use pciescope_catalogue::What;
use pciescope_core::plan::StatPlan;
use pciescope_core::text::{chain, cut, first_of};
use pciescope_core::{Environment, Finding, Function, Record, Severity};
use pciescope_hw::probe::open::{Backend, backends};
use pciescope_hw::{environment, topology};
use pciescope_report::print::terminal;
use pciescope_report::text::counted;

use super::Ctx;
use super::doctor::{self, count::Wait};
use super::list::text::{link_cell, summary};
use super::output::stdout;

/// How long traffic is counted, in nanoseconds.
const SAMPLE_NS: u64 = 250_000_000;
const WIDTH: usize = 80;
/// One line is left to the shell's prompt.
const LINES: usize = 23;
/// The most lines of these parts, so that there is room for traffic.
const LINKS: usize = 3;
const NODES: usize = 4;

/// Prints the screen; what it finds does not change the exit code.
///
/// # Errors
/// When the functions cannot be read, or the screen cannot be written.
pub fn run(backend: &Backend, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    ctx.stop.catch_signals()?;
    let ctx = &ctx.on(backend)?;
    let environment = environment::read(&ctx.root);
    let functions = ctx.inventory();
    let (traffic, findings) = std::thread::scope(|scope| {
        let sample = scope.spawn(|| sample(ctx, &environment));
        let findings = doctor::findings(ctx, &environment, &functions);
        (sample.join(), findings)
    });
    let traffic = traffic.unwrap_or_else(|_| Err("the thread that counts ended unexpectedly".to_owned()));
    if let Some(code) = ctx.stop.exit_code() {
        return Ok(ExitCode::from(code));
    }
    let (findings, unseen) = findings?;
    let option = if matches!(backend, Backend::Fake(_)) { " --backend fake" } else { "" };
    let mut parts = vec![
        ("", heading(&environment)),
        ("Links", links(&functions)),
        ("Doctor", vec![verdict(&findings, unseen)]),
        ("Devices", devices(&environment, &functions)),
        ("Measure", measurable(ctx, &functions, option.is_empty())),
        ("Next", next(ctx, &functions, &findings, option)),
    ];
    let used: usize = parts.iter().map(|(_, lines)| lines.len()).sum();
    let brief = |records: Vec<Record>| terminal::brief(&records, LINES - used);
    parts.insert(4, ("Traffic", traffic.map_or_else(|why| vec![format!("not counted: {why}")], brief)));
    let mut out = stdout();
    for (mut name, lines) in parts {
        let room = if name.is_empty() { WIDTH } else { WIDTH - 9 };
        for line in lines {
            // What `stat` wrote fits, and may have colours.
            let line = if line.contains('\u{1b}') { line } else { cut(&line, room) };
            let name = std::mem::take(&mut name);
            match room {
                WIDTH => writeln!(out, "{line}")?,
                _ => writeln!(out, "{}", format!("{name:<9}{line}").trim_end())?,
            }
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The machine in two lines.
fn heading(environment: &Environment) -> Vec<String> {
    let machine = format!(
        "{}, kernel {}{}",
        environment.product.as_deref().or(environment.cpu_model.as_deref()).unwrap_or("this machine"),
        environment.kernel,
        if environment.hypervisor.is_some() { ", a guest" } else { "" },
    );
    let cpus = if environment.cpus.is_empty() { "unknown".to_owned() } else { summary(&environment.cpus) };
    vec![machine, format!("CPUs {cpus}")]
}

/// What is called by its device's name, else by what it is.
fn called(function: &Function) -> String {
    let words = || function.driver.clone().unwrap_or_else(|| function.name.clone());
    format!(
        "{} {}",
        function.bdf.map(|bdf| bdf.to_string()).unwrap_or_default(),
        first_of(&function.devices).unwrap_or_else(words)
    )
}

/// Links below what both ends can do, else how many there are.
fn links(functions: &[Function]) -> Vec<String> {
    let is_link = |function: &&Function| function.has_link_above() && function.link.is_some_and(|link| link.width > 0);
    let all: Vec<&Function> = functions.iter().filter(is_link).collect();
    let cells = all.iter().map(|function| (function, link_cell(functions, function)));
    let slow = cells.filter(|(_, cell)| cell.contains('!'));
    let lines: Vec<String> =
        slow.map(|(function, cell)| format!("{}: {}", called(function), cell.replace("! of", "of"))).collect();
    match (all.len(), lines.is_empty()) {
        (0, _) => vec!["no link of PCI Express is visible".to_owned()],
        (known, true) => vec![format!("{} at the speed and width that both ends can do", counted(known, "link"))],
        _ => few(lines, LINKS, "link"),
    }
}

/// The first of many lines, and how many more there are.
fn few(mut lines: Vec<String>, most: usize, word: &str) -> Vec<String> {
    let more = lines.len().saturating_sub(most);
    if more > 0 {
        lines.truncate(most);
        lines.push(format!("and {}", counted(more, &format!("more {word}"))));
    }
    lines
}

/// How many findings there are, and of which checks. How many checks could not look stands before the long list.
fn verdict(findings: &[Finding], unseen: usize) -> String {
    let of = |severity: Severity, word: &str| {
        let mut names: Vec<&str> =
            findings.iter().filter(|one| one.severity == severity).map(|one| one.check.as_str()).collect();
        let count = names.len();
        names.dedup();
        (count > 0).then(|| format!("{} ({})", counted(count, word), names.join(", ")))
    };
    let (problems, warnings) = (of(Severity::Problem, "problem"), of(Severity::Warning, "warning"));
    let fine = (problems.is_none() && warnings.is_none()).then(|| "no problem, no warning".to_owned());
    let unseen = (unseen > 0).then(|| format!("{unseen} not checked"));
    [fine, problems, unseen, warnings].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// What a function is to somebody who looks for it, by its base class.
fn kind(class: u32) -> Option<&'static str> {
    match class >> 16 {
        0x01 => Some("disks"),
        0x02 => Some("network"),
        0x03 | 0x0b | 0x12 => Some("GPUs"),
        _ => None,
    }
}

/// Disks, interfaces and GPUs of each NUMA node.
fn devices(environment: &Environment, functions: &[Function]) -> Vec<String> {
    let nodes = topology::nodes(&environment.cpus);
    let mut all: BTreeMap<Option<u32>, BTreeMap<&str, Vec<String>>> = BTreeMap::new();
    for function in functions {
        let Some(kind) = kind(function.class) else { continue };
        // With one node the firmware need not say which.
        let only = nodes.first().filter(|_| nodes.len() == 1).map(|(node, _)| *node);
        let names = all.entry(function.node.or(only)).or_default().entry(kind).or_default();
        let address = || function.bdf.map(|bdf| bdf.to_string().replacen("0000:", "", 1));
        names.extend(first_of(&function.devices).or_else(address));
    }
    let lines = all.into_iter().map(|(node, kinds)| {
        let cpus = node
            .and_then(|node| nodes.iter().find(|(number, _)| *number == node))
            .map(|(_, cpus)| format!(" (CPUs {cpus})"));
        let of = node.map_or_else(|| "no node".to_owned(), |node| format!("node {node}"));
        let kinds: Vec<String> = kinds.into_iter().map(|(kind, names)| format!("{kind} {}", names.join(" "))).collect();
        format!("{of}{}: {}", cpus.unwrap_or_default(), kinds.join("; "))
    });
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() {
        vec!["no disk, network interface or GPU on PCI".to_owned()]
    } else {
        few(lines, NODES, "node")
    }
}

/// The records of a short count of everything; why there are none.
fn sample(ctx: &Ctx, environment: &Environment) -> Result<Vec<Record>, String> {
    if !ctx.root.is_live() && ctx.root.machine().is_none() {
        return Err("the files are recorded and do not change".to_owned());
    }
    let choice = counters::choose(&ctx.root, &Wanted::default()).map_err(|err| chain(&err))?;
    let plan = StatPlan { duration_ns: Some(SAMPLE_NS), ..StatPlan::default() };
    let task = Task { choice, plan, environment: environment.clone(), label: None };
    let mut records = Vec::new();
    let mut wait = Wait::new(ctx).map_err(|err| err.to_string())?;
    counters::measure(&ctx.root, task, &mut wait, &mut records).map_err(|err| chain(&err))?;
    Ok(records)
}

/// Endpoints that one of these backends can measure, as they are or after a bind; disks, interfaces and GPUs come
/// first, the longest path before.
fn measured<'f>(ctx: &Ctx, functions: &'f [Function], by: &[&str]) -> Vec<&'f Function> {
    let is_usable = |function: &&Function| {
        let all = backends(&ctx.root, function);
        all.iter().any(|one| one.usable && by.contains(&one.backend))
    };
    let mut all: Vec<&Function> = functions.iter().filter(|one| one.class >> 16 != BRIDGES).filter(is_usable).collect();
    all.sort_by_key(|function| (kind(function.class).is_none(), std::cmp::Reverse(function.path.len())));
    all
}

/// The base class of bridges.
const BRIDGES: u32 = 0x06;
/// The backends that read registers, and those that read along a path.
const REGISTERS: [&str; 3] = ["kmod", "vfio", "resource"];
const PATH: [&str; 2] = ["sysfs", "kmod"];

/// What can be measured, and of how many functions.
fn measurable(ctx: &Ctx, functions: &[Function], is_real: bool) -> Vec<String> {
    let machine = Machine::load(&ctx.root, Origin::Hardware);
    let of_kind = |what: What| machine.pmus.iter().filter(move |(_, kind)| kind.is_some_and(|kind| kind.what == what));
    let counters: Vec<String> = [(What::PcieRootPort, "root port"), (What::DramChannel, "DRAM channel")]
        .into_iter()
        .map(|(what, word)| (of_kind(what).count(), word))
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| counted(count, word))
        .collect();
    let counters = match counters.is_empty() {
        true => "none; `stat` shows what the kernel counts".to_owned(),
        false => counters.join(", "),
    };
    let endpoints = functions.iter().filter(|function| function.class >> 16 != BRIDGES).count();
    let of = |by: &[&str]| measured(ctx, functions, by).len();
    let mut lines = vec![format!("hardware counters: {counters}")];
    if is_real {
        let (path, registers, all) = (of(&PATH), of(&REGISTERS), counted(endpoints, "function"));
        lines.push(format!("latency: path to {path} of {all}, registers of {registers} (--bind if in use)"));
    }
    lines
}

/// The two commands to go on with.
fn next(ctx: &Ctx, functions: &[Function], findings: &[Finding], option: &str) -> Vec<String> {
    let is_sick = findings.iter().any(|one| one.severity > Severity::Note);
    let first = if is_sick { ("doctor", "what is wrong, what to do") } else { ("top", "the traffic, live") };
    let second = match (option, measured(ctx, functions, &PATH).first().and_then(|function| function.bdf)) {
        ("", Some(bdf)) => (format!("latency path {bdf}"), "the time to each hop"),
        ("", None) => ("stat --list".to_owned(), "what can be counted here"),
        _ => ("latency mmio".to_owned(), "the time of a register read"),
    };
    let line = |command: &str, what: &str| format!("{:<39} {what}", format!("pciescope {command}{option}"));
    vec![line(first.0, first.1), line(&second.0, second.1)]
}
