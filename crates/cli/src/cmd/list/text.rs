//! The tables of `pciescope list` for people.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use pciescope_core::{Bdf, Cpu, CpuList, Environment, Function, Link, LinkState, Warning};
use pciescope_hw::{Root, environment, floor, pci, registers, topology};
use pciescope_report::table::wrap;

use super::Entry;

/// Rows of cells as columns, two spaces apart; the last column is not padded.
fn table(out: &mut impl Write, rows: &[Vec<String>]) -> io::Result<()> {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        writeln!(out, "{}", cells.join("  ").trim_end())?;
    }
    Ok(())
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// The machine in a few lines; `why` its CPUs are not known.
pub fn machine(out: &mut impl Write, environment: &Environment, why: Option<&str>) -> io::Result<()> {
    let unknown = || "unknown".to_owned();
    writeln!(out, "machine  {}", environment.product.clone().unwrap_or_else(unknown))?;
    writeln!(out, "kernel   {} {}", environment.kernel, environment.machine)?;
    if let Some(why) = &environment.hypervisor {
        writeln!(out, "guest    {why}")?;
    }
    writeln!(out, "CPU      {}", environment.cpu_model.clone().unwrap_or_else(unknown))?;
    match why {
        Some(why) => writeln!(out, "CPUs     unknown: {why}")?,
        None => writeln!(out, "CPUs     {}", summary(&environment.cpus))?,
    }
    let nodes = topology::nodes(&environment.cpus);
    for (node, cpus) in &nodes {
        writeln!(out, "node {node:<3} CPUs {cpus}")?;
    }
    Ok(())
}

/// What of the machine stands between CPUs and devices, where the kernel tells.
pub fn controllers(out: &mut impl Write, root: &Root) -> io::Result<()> {
    let clusters = topology::clusters(root);
    if clusters > 1 {
        writeln!(out, "clusters {clusters}")?;
    }
    for (what, names) in
        [("IOMMU", environment::iommus(root).join(", ")), ("IRQs", environment::interrupt_controllers(root).join(", "))]
    {
        if !names.is_empty() {
            writeln!(out, "{what:<8} {names}")?;
        }
    }
    writeln!(out)
}

/// `0-127: 2 packages, 2 nodes, 4 L3 caches, 64 cores, 2 threads each`.
pub fn summary(cpus: &[Cpu]) -> String {
    let online: CpuList = cpus.iter().map(|cpu| cpu.cpu).collect();
    let count = |place: fn(&Cpu) -> Option<u32>, one: &str, many: &str| {
        let different: BTreeSet<u32> = cpus.iter().filter_map(place).collect();
        match different.len() {
            // What the machine does not say is left out.
            0 => String::new(),
            1 => format!(", 1 {one}"),
            n => format!(", {n} {many}"),
        }
    };
    let threads = cpus.iter().filter_map(|cpu| cpu.thread).max().map_or(1, |most| most + 1);
    format!(
        "{online}: {}{threads} {} each",
        [
            count(|cpu| cpu.package, "package", "packages"),
            count(|cpu| cpu.node, "node", "nodes"),
            count(|cpu| cpu.l3, "L3 cache", "L3 caches"),
            count(|cpu| cpu.core, "core", "cores"),
        ]
        .concat()
        .trim_start_matches(", ")
        .to_owned()
            + ", ",
        if threads == 1 { "thread" } else { "threads" }
    )
}

/// A text in at most so many columns, at least 8.
fn cut(text: &str, width: usize) -> String {
    let width = width.max(8);
    match text.char_indices().nth(width) {
        None => text.to_owned(),
        Some(_) => text.chars().take(width - 3).chain("...".chars()).collect(),
    }
}

/// What a list says where there is nothing in it.
fn nothing(out: &mut impl Write, all: &[Function]) -> io::Result<()> {
    match all.is_empty() {
        true => writeln!(out, "This machine has no PCI functions."),
        false => writeln!(out, "None of {} functions fits.", all.len()),
    }
}

/// One line for every function, names cut so that it fits into `width` columns.
pub fn functions(out: &mut impl Write, all: &[Function], entries: &[Entry], width: usize) -> io::Result<()> {
    if entries.is_empty() {
        return nothing(out, all);
    }
    let mut rows = vec![["ADDRESS", "NODE", "LINK", "DRIVER", "DEVICE", "NAME"].map(str::to_owned).to_vec()];
    for Entry { function, nodes, silence, .. } in entries {
        rows.push(vec![
            or_dash(function.bdf),
            or_dash(function.node),
            short_link(all, function, *silence),
            or_dash(function.driver.as_ref()),
            short_nodes(nodes),
            name(function, usize::MAX),
        ]);
    }
    // A column that says nothing is left to the names.
    for column in (1..5).rev() {
        if rows[1..].iter().all(|row| row[column] == "-") {
            rows.iter_mut().for_each(|row| drop(row.remove(column)));
        }
    }
    let last = rows[0].len() - 1;
    let before: usize =
        (0..last).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0) + 2).sum();
    let room = width.saturating_sub(before);
    for (row, entry) in rows.iter_mut().skip(1).zip(entries) {
        row[last] = cut(&name(&entry.function, room), room);
    }
    table(out, &rows)?;
    legend(out, legend_of(all, entries), false)
}

/// The marks that the rows have.
fn legend_of(all: &[Function], entries: &[Entry]) -> (bool, bool) {
    let has = |test: &dyn Fn(&Function) -> bool| entries.iter().any(|entry| test(&entry.function));
    (has(&|function| link_cell(all, function).contains('!')), has(&|function| function.emulated.is_some()))
}

/// The link as it is, with a mark where it should be faster or wider; or why the function does not answer.
fn short_link(all: &[Function], function: &Function, silence: Option<&'static str>) -> String {
    if let Some(silence) = silence {
        return silence.to_owned();
    }
    let cell = link_cell(all, function);
    let mark = if cell.contains('!') { " !" } else { "" };
    let now = cell.split(['!', '(']).next().unwrap_or_default().trim_end();
    format!("{now}{mark}")
}

/// The first node without its folder, and how many more there are.
fn short_nodes(nodes: &[String]) -> String {
    let Some(first) = nodes.first() else { return "-".to_owned() };
    let more = if nodes.len() > 1 { format!(" +{}", nodes.len() - 1) } else { String::new() };
    format!("{}{more}", first.strip_prefix("/dev/").unwrap_or(first))
}

/// The words of a maker's legal form and place, which say little.
const FORMS: [&str; 16] = [
    " Corporation",
    ", Inc.",
    " Inc.",
    " Co., Ltd.",
    " Co., Ltd",
    " Co Ltd",
    " Corp.",
    " Corp",
    " Ltd.",
    " LLC",
    " GmbH",
    " AG",
    " (China)",
    " Technologies",
    " Electronics",
    " Semiconductor",
];

/// The most columns of a maker of more than one word where there is no room.
const MAKER: usize = 10;

/// The name with the IDs, marked where the function is emulated. Where there is no room for it, the maker is a word.
fn name(function: &Function, room: usize) -> String {
    let mark = if function.emulated.is_some() { "* " } else { "" };
    let what = if function.is_bridge() { "bridge " } else { "" };
    let maker = pci::maker(function.vendor);
    let model = function.name.strip_prefix(&maker).unwrap_or(&function.name).trim_start();
    let mut short = maker;
    for words in FORMS {
        short = short.replacen(words, "", 1);
    }
    let ids = format!("[{:04x}:{:04x}]", function.vendor, function.device);
    let full = format!("{mark}{what}{short} {model} {ids}");
    if full.chars().count() <= room {
        return full;
    }
    // `[AMD/ATI]` is how the list itself shortens one.
    let bracketed = short.split_once('[').and_then(|(_, rest)| rest.split([']', '/']).next()).map(str::to_owned);
    let mut word = String::new();
    for part in short.split([' ', ',', '/']).filter(|part| !part.is_empty()) {
        if !word.is_empty() && word.len() + 1 + part.len() > MAKER {
            break;
        }
        word += if word.is_empty() { "" } else { " " };
        word += part;
    }
    let word = bracketed.unwrap_or(word);
    format!("{mark}{what}{word} {model} {ids}")
}

/// The functions, each below the port that leads to it; ports that lead to none of `entries` are left out if those are not all.
pub fn tree(
    out: &mut impl Write,
    all: &[Function],
    entries: &[Entry],
    parents: &BTreeMap<Bdf, Bdf>,
    width: usize,
) -> io::Result<()> {
    if entries.is_empty() {
        return nothing(out, all);
    }
    let ways = entries.iter().filter_map(|entry| entry.function.bdf);
    let ways = ways.flat_map(|bdf| std::iter::successors(Some(bdf), |bdf| parents.get(bdf).copied()));
    let wanted: BTreeSet<_> = ways.collect();
    let shown: Vec<&Function> = all.iter().filter(|one| one.bdf.is_some_and(|bdf| wanted.contains(&bdf))).collect();
    let has_parent = |one: &Function| parents.get(&one.bdf?).filter(|port| wanted.contains(port)).copied();
    let drawing = Drawing { all, shown: &shown, entries, parents, width };
    for top in shown.iter().filter(|one| has_parent(one).is_none()) {
        drawing.branch(out, top, &mut Vec::new())?;
    }
    legend(out, legend_of(all, entries), false)
}

/// What a tree is drawn from.
struct Drawing<'a> {
    all: &'a [Function],
    shown: &'a [&'a Function],
    entries: &'a [Entry],
    parents: &'a BTreeMap<Bdf, Bdf>,
    width: usize,
}

impl Drawing<'_> {
    /// A function and what is below it. `rails` says of each level above whether more follows there.
    fn branch(&self, out: &mut impl Write, function: &Function, rails: &mut Vec<bool>) -> io::Result<()> {
        let mut line = String::new();
        for (level, more) in rails.iter().enumerate() {
            line += match (level + 1 == rails.len(), more) {
                (true, true) => "+-",
                (true, false) => "\\-",
                (false, true) => "| ",
                (false, false) => "  ",
            };
        }
        let entry = self.entries.iter().find(|entry| entry.function.bdf == function.bdf);
        let link = short_link(self.all, function, entry.and_then(|entry| entry.silence));
        let nodes = entry.map(|entry| entry.nodes.as_slice()).unwrap_or_default();
        let parts = [or_dash(function.bdf), link, short_nodes(nodes)];
        line += &parts.into_iter().filter(|part| part != "-").collect::<Vec<_>>().join("  ");
        let room = self.width.saturating_sub(line.chars().count() + 2);
        writeln!(out, "{}", cut(&format!("{line}  {}", name(function, room)), self.width))?;
        let is_below = |one: &&&Function| one.bdf.and_then(|bdf| self.parents.get(&bdf).copied()) == function.bdf;
        let below: Vec<&&Function> = self.shown.iter().filter(is_below).collect();
        for (number, one) in below.iter().enumerate() {
            rails.push(number + 1 < below.len());
            self.branch(out, one, rails)?;
            rails.pop();
        }
        Ok(())
    }
}

/// One line for every function, with all columns, however wide.
pub fn every_column(out: &mut impl Write, all: &[Function], entries: &[Entry]) -> io::Result<()> {
    if entries.is_empty() {
        return nothing(out, all);
    }
    let heading =
        ["ADDRESS", "NODE", "DRIVER", "LINK", "MPS", "VECTORS", "ROOT PORT", "TARGET", "BACKENDS", "DEVICES", "NAME"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for Entry { function, target, backends, nodes, .. } in entries {
        let link = link_cell(all, function);
        let usable: Vec<&str> = backends.iter().filter(|a| a.usable).map(|a| a.backend).collect();
        let mark = if function.emulated.is_some() { "* " } else { "" };
        rows.push(vec![
            or_dash(function.bdf),
            or_dash(function.node),
            or_dash(function.driver.as_ref()),
            link,
            match (payload(function).0, &function.limited) {
                (None, Some(_)) if function.link.is_some() => "?".to_owned(),
                (mps, _) => or_dash(mps),
            },
            vectors(function),
            or_dash(function.path.first()),
            target.map_or_else(|| "-".to_owned(), |t| format!("{} {}", t.in_bar(), t.name)),
            if usable.is_empty() { "-".to_owned() } else { usable.join(",") },
            if nodes.is_empty() { "-".to_owned() } else { nodes.join(",") },
            format!("{mark}{}", title(function)),
        ]);
    }
    let is_unread = |row: &Vec<String>| row.iter().any(|cell| cell == "?");
    table(out, &rows)?;
    legend(out, legend_of(all, entries), rows.iter().any(is_unread))
}

/// What the marks mean that were drawn.
fn legend(out: &mut impl Write, (downtrained, emulated): (bool, bool), limited: bool) -> io::Result<()> {
    if downtrained || emulated || limited {
        writeln!(out)?;
    }
    if downtrained {
        writeln!(out, "! the link is slower or narrower than both its ends can do: `list BDF`")?;
    }
    if emulated {
        writeln!(out, "* emulated, or in a guest: figures would be the emulator's")?;
    }
    if limited {
        writeln!(out, "? not readable: `pciescope list BDF` says why")?;
    }
    Ok(())
}

/// Class, name and IDs, as lspci -nn has them.
fn title(function: &Function) -> String {
    let class = pci::class_name(function.class);
    format!("{class}: {} [{:04x}:{:04x}]", function.name, function.vendor, function.device)
}

fn speed(gts: f64, width: u8) -> String {
    format!("{gts} GT/s x{width}")
}

/// The link now, and what it could be where that is more.
pub fn link_cell(all: &[Function], function: &Function) -> String {
    let (Some(link), Some(state)) = (function.link, function.link_state()) else { return "-".to_owned() };
    let (now, most) = (speed(link.speed_gts, link.width), speed(link.max_speed_gts, link.max_width));
    match (state, state.word()) {
        (LinkState::Nominal, Some(word)) => format!("{word} (it states {now})"),
        (_, Some(word)) => format!("{word} (of {most})"),
        (_, None) => match port_above(all, function).and_then(|port| link.possible(&port)) {
            Some((speed_gts, width)) => format!("{now} ! of {}", speed(speed_gts, width)),
            None if now != most => format!("{now} (of {most})"),
            None => now,
        },
    }
}

/// The link as the port at its upper end describes it.
fn port_above(all: &[Function], function: &Function) -> Option<Link> {
    let port = function.path.last().filter(|_| function.has_link_above())?;
    all.iter().find(|other| other.bdf == Some(*port))?.link
}

fn vectors(function: &Function) -> String {
    match (function.msix_vectors, function.msi_vectors, &function.limited) {
        (0, 0, Some(_)) => "?".to_owned(),
        (0, 0, None) => "-".to_owned(),
        (0, msi, _) => format!("{msi} MSI"),
        (msix, ..) => format!("{msix} MSI-X"),
    }
}

/// One function, line by line, with what would spoil its latency.
pub fn detail(
    out: &mut impl Write,
    environment: &Environment,
    all: &[Function],
    entry: &Entry,
    warnings: &[Warning],
    width: usize,
) -> io::Result<()> {
    let function = &entry.function;
    writeln!(out, "{} {}", or_dash(function.bdf), title(function))?;
    let mut line = |key: &str, value: String| {
        let lines = wrap(&value, width, &format!("  {key:<9} "), &" ".repeat(12));
        lines.into_iter().try_for_each(|line| writeln!(out, "{line}"))
    };
    line("subsystem", format!("{:04x}:{:04x}", function.subsystem_vendor, function.subsystem_device))?;
    line("driver", or_dash(function.driver.as_ref()))?;
    if !entry.nodes.is_empty() {
        line("device", entry.nodes.join(", "))?;
    }
    line("node", node(environment, function))?;
    if let Some(group) = function.iommu_group {
        line("group", format!("IOMMU group {group}"))?;
    }
    let path: Vec<String> = function.path.iter().map(ToString::to_string).collect();
    line("path", if path.is_empty() { "on a root bus".to_owned() } else { path.join(" > ") })?;
    line("link", link_cell(all, function))?;
    if let (Some(mps), mrrs) = payload(function) {
        line("payload", format!("MPS {mps} bytes, MRRS {} bytes", or_dash(mrrs)))?;
    }
    match &function.limited {
        Some(why) => line("vectors", format!("unknown: {why}"))?,
        None => line("vectors", format!("{} MSI-X, {} MSI", function.msix_vectors, function.msi_vectors))?,
    }
    for bar in &function.bars {
        let kind = if bar.is_memory { "memory" } else { "I/O ports" };
        let wide = if bar.is_64bit { ", 64-bit" } else { "" };
        let prefetch = if bar.is_prefetchable { ", prefetchable" } else { "" };
        line(&format!("BAR{}", bar.number), format!("{} of {kind}{wide}{prefetch}", size(bar.size_bytes)))?;
    }
    if let Some(why) = &function.emulated {
        line("emulated", why.clone())?;
    }
    match entry.target {
        Some(t) => line("target", format!("{} at {}, {} bytes ({})", t.name, t.in_bar(), t.width, t.source))?,
        None if function.is_bridge() => {}
        None => {
            let proposal = registers::candidate(function)
                .map(|t| format!("; not verified: {} at {}, {} bytes ({})", t.name, t.in_bar(), t.width, t.source));
            let text = "none known: `latency mmio` needs --offset and --accept-side-effects";
            match registers::hidden(function) {
                Some(why) => line("target", format!("unknown: {why}"))?,
                None => line("target", format!("{text}{}", proposal.unwrap_or_default()))?,
            }
        }
    }
    for a in &entry.backends {
        line(a.backend, format!("{}{}", if a.usable { "yes: " } else { "no: " }, a.why))?;
    }
    if let Some(text) = floor_line(function) {
        line("floor", text)?;
    }
    for warning in warnings {
        line("warning", format!("{}: {}", warning.code, warning.text))?;
        line("", format!("hint: {}", warning.hint))?;
    }
    writeln!(out)
}

/// Maximum payload size and maximum read request size in force.
fn payload(function: &Function) -> (Option<u16>, Option<u16>) {
    function.link.map_or((function.mps_bytes, function.mrrs_bytes), |link| (link.mps_bytes, link.mrrs_bytes))
}

/// A size as lspci has it: `512K`.
fn size(bytes: u64) -> String {
    let fits = |shift: u32| bytes > 0 && bytes % (1 << shift) == 0;
    match [(40, 'T'), (30, 'G'), (20, 'M'), (10, 'K')].into_iter().find(|(shift, _)| fits(*shift)) {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

fn node(environment: &Environment, function: &Function) -> String {
    let nodes = topology::nodes(&environment.cpus);
    match function.node.and_then(|node| nodes.into_iter().find(|(number, _)| *number == node)) {
        Some((node, cpus)) => format!("{node}, CPUs {cpus}"),
        None => or_dash(function.node),
    }
}

fn floor_line(function: &Function) -> Option<String> {
    let wire = floor::of(function, 4)?;
    let (low, high) = floor::best_published(floor::switches_on(&function.path));
    let best = if low == high { format!("{low} ns") } else { format!("{low} to {high} ns") };
    Some(format!("wire {:.1} ns for a read of 4 bytes; best published {best}", wire.total_ns()))
}

/// One line for every CPU.
pub fn cpus(out: &mut impl Write, cpus: &[Cpu]) -> io::Result<()> {
    writeln!(out)?;
    let mut rows = vec![["CPU", "NODE", "PACKAGE", "L3", "CORE", "THREAD"].map(str::to_owned).to_vec()];
    for cpu in cpus {
        let places = [cpu.node, cpu.package, cpu.l3, cpu.core, cpu.thread];
        rows.push([cpu.cpu.to_string()].into_iter().chain(places.map(or_dash)).collect());
    }
    table(out, &rows)
}
