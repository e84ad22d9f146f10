//! The devices that records know of: an index by root port, and a page for each with all that is known of it.

use std::collections::BTreeMap;

use pciescope_core::{Bdf, Finding, Function, Metric, Record, Severity, change};

use super::{safe, write_stacked, write_table};
use crate::facts::doctor::Kinds;
use crate::facts::latency::{headline, main_samples};
use crate::layout::{Left, Right, Rows};
use crate::losses;
use crate::model::{self, Asked, Host, Kind, Section};
use crate::readout::{Row, cell, millions};
use crate::text::{duration, figure, thousands};

/// A function, or a device node of which no function is known.
pub struct Device<'r> {
    /// The anchor of its page.
    pub id: String,
    /// Its machine, by place among [`model::hosts`].
    pub host: Option<usize>,
    /// Address, name or path.
    pub name: String,
    /// The name, with the machine's where there are several.
    pub title: String,
    pub function: Option<&'r Function>,
    /// The device node, of readouts.
    pub path: Option<&'r str>,
    /// The sections that are its own, by place.
    pub sections: Vec<usize>,
    /// All records about it.
    pub records: Vec<&'r Record>,
}

impl Device<'_> {
    fn bdf(&self) -> Option<Bdf> {
        self.function.and_then(|function| function.bdf)
    }
    /// From the root port to itself, to sort and to nest by.
    fn chain(&self) -> Vec<String> {
        let mut chain: Vec<String> = self.function.map_or(Vec::new(), |f| f.path.iter().map(Bdf::to_string).collect());
        chain.push(self.name.clone());
        chain
    }
    /// The bridges above it and itself.
    fn line(&self) -> Vec<Bdf> {
        self.function.map_or(Vec::new(), |f| f.path.iter().chain(&f.bdf).copied().collect())
    }
}

/// Whether a section is of several devices by its nature.
pub fn is_of_many(section: &Section) -> bool {
    matches!(model::kind(section.test()), Kind::Counters | Kind::Readout)
        || ["doctor", change::TEST].contains(&section.test())
}

/// Whether a section belongs to one device and stands on its page.
fn is_own(section: &Section) -> bool {
    section.first().device.is_some() && !is_of_many(section)
}

/// The devices, by machine and from the root ports down.
pub fn devices<'r>(sections: &[Section<'r>], hosts: &[Host]) -> Vec<Device<'r>> {
    let mut devices: Vec<Device> = Vec::new();
    let mut places: BTreeMap<(Option<usize>, String), usize> = BTreeMap::new();
    for (number, section) in sections.iter().enumerate() {
        for record in &section.records {
            let path = record.stream.as_ref().map(|stream| stream.path.as_str()).filter(|path| !path.is_empty());
            let function = record.device.as_ref();
            let name = match (function, path) {
                (Some(f), _) => f.bdf.map_or_else(|| f.name.clone(), |bdf| bdf.to_string()),
                (None, Some(path)) => path.to_owned(),
                (None, None) => continue,
            };
            let host = model::host_of(hosts, &record.run);
            let place = *places.entry((host, name.clone())).or_insert_with(|| {
                let (sections, records) = (Vec::new(), Vec::new());
                let title = match host.map(|host| &hosts[host].name) {
                    Some(machine) if hosts.len() > 1 => format!("{name} ({machine})"),
                    _ => name.clone(),
                };
                devices.push(Device { id: String::new(), host, name, title, function, path, sections, records });
                devices.len() - 1
            });
            let device = &mut devices[place];
            // The record that knows the link describes the device.
            let is_better = device.function.is_none_or(|known| known.link.is_none() && known.path.is_empty());
            if function.is_some() && is_better {
                device.function = function;
            }
            device.path = device.path.or(path);
            device.records.push(record);
            if is_own(section) && device.sections.last() != Some(&number) {
                device.sections.push(number);
            }
        }
    }
    devices.sort_by_cached_key(|device| (device.host.is_none(), device.host, device.chain()));
    for (number, device) in devices.iter_mut().enumerate() {
        device.id = match device.bdf() {
            Some(bdf) if hosts.len() < 2 => format!("d-{bdf}"),
            _ => format!("d{number}"),
        };
    }
    devices
}

/// A place in the tree.
#[derive(Default)]
struct Node {
    device: Option<usize>,
    below: BTreeMap<String, Node>,
}

/// The index: machines, root ports, bridges, devices.
pub fn index(page: &mut String, devices: &[Device], sections: &[Section], hosts: &[Host]) {
    page.push_str("<section class=\"card\" id=\"devices\">\n<h2>Devices</h2>\n");
    let mut roots: BTreeMap<(bool, Option<usize>), Node> = BTreeMap::new();
    for (number, device) in devices.iter().enumerate() {
        let root = roots.entry((device.host.is_none(), device.host)).or_default();
        device.chain().into_iter().fold(root, |node, name| node.below.entry(name).or_default()).device = Some(number);
    }
    for ((_, host), root) in &roots {
        if hosts.len() > 1 {
            let name = host.map_or("machine not described", |host| hosts[host].name.as_str());
            *page += &format!("<h3>{}</h3>\n", safe(name));
        }
        list(page, root, devices, sections);
    }
    page.push_str("</section>\n");
}

fn list(page: &mut String, node: &Node, devices: &[Device], sections: &[Section]) {
    page.push_str("<ul class=\"tree\">\n");
    for (name, below) in &node.below {
        match below.device {
            Some(number) => {
                let device = &devices[number];
                *page += &format!("<li><a href=\"#{}\"><code>{}</code></a> ", safe(&device.id), safe(name));
                let words: Vec<String> = about(device, sections).iter().map(|word| safe(word)).collect();
                *page += &words.join(" <span class=\"dot\">&middot;</span> ");
            }
            None => *page += &format!("<li><code>{}</code> <span class=\"soft\">bridge</span>", safe(name)),
        }
        if !below.below.is_empty() {
            list(page, below, devices, sections);
        }
        page.push_str("</li>\n");
    }
    page.push_str("</ul>\n");
}

pub(super) fn link(function: &Function) -> Option<String> {
    let words = function.link_words()?;
    Some(if function.link.is_some_and(|link| link.is_known()) || words == "no link" {
        words
    } else {
        format!("link {words}")
    })
}

/// A device in one line, with its first figures.
fn about(device: &Device, sections: &[Section]) -> Vec<String> {
    let mut words = Vec::new();
    if let Some(f) = device.function {
        words.extend((!f.name.is_empty() && f.bdf.is_some()).then(|| f.name.clone()));
        words.extend(f.driver.clone());
        words.extend(link(f));
        words.extend(f.node.map(|node| format!("node {node}")));
        words.extend(f.emulated.as_ref().map(|_| "emulated".to_owned()));
    }
    words.extend(device.path.filter(|path| **path != device.name).map(str::to_owned));
    for number in device.sections.iter().take(3) {
        let section = &sections[*number];
        if let Some(headline) = headline(section) {
            words.push(format!("{} {}", section.test(), duration(headline.median_ns)));
        }
    }
    match device.sections.len() {
        0..=3 => {}
        4 => words.push("1 measurement more".to_owned()),
        n => words.push(format!("{} measurements more", n - 3)),
    }
    for (name, title) in [("rx_bytes_per_s", "Rx"), ("tx_bytes_per_s", "Tx"), ("speed", "read")] {
        let is_wanted = |r: &&&Record| name != "speed" || Row::new(r).is_reading();
        let known = device.records.iter().filter(is_wanted).filter_map(|r| r.total(name)?.most());
        if let Some(most) = known.reduce(f64::max) {
            words.push(format!("{title} up to {:.1} MB/s", most / 1e6));
        }
    }
    let count = |severity| findings(device).iter().filter(|f| f.severity == severity).count();
    for (severity, word) in [(Severity::Problem, "problem"), (Severity::Warning, "warning")] {
        match count(severity) {
            0 => {}
            1 => words.push(format!("1 {word}")),
            n => words.push(format!("{n} {word}s")),
        }
    }
    words
}

fn findings<'r>(device: &Device<'r>) -> Vec<&'r Finding> {
    device.records.iter().flat_map(|record| &record.findings).filter(|finding| !finding.silenced).collect()
}

/// What is known of a device, before its own sections.
pub fn page_of(page: &mut String, device: &Device, sections: &[Section], devices: &[Device]) {
    if let Some(function) = device.function {
        page.push_str("<dl>\n");
        for (name, value) in identity(function) {
            *page += &format!("<dt>{name}</dt><dd>{}</dd>\n", safe(&value));
        }
        if let Some(path) = device.path {
            *page += &format!("<dt>Device node</dt><dd>{}</dd>\n", safe(path));
        }
        page.push_str("</dl>\n");
    }
    latencies(page, device, sections);
    counted(page, device, devices);
    rows(page, device, sections);
    found(page, device, devices);
}

fn identity(f: &Function) -> Vec<(&'static str, String)> {
    let mut facts = vec![("Device", format!("{} [{:04x}:{:04x}]", f.name, f.vendor, f.device))];
    if (f.subsystem_vendor, f.subsystem_device) != (0, 0) {
        facts.push(("Subsystem", format!("{:04x}:{:04x}", f.subsystem_vendor, f.subsystem_device)));
    }
    facts.push(("Class", format!("{:06x}", f.class)));
    facts.extend(f.driver.clone().map(|driver| ("Driver", driver)));
    facts.push(("NUMA node", f.node.map_or_else(|| "not known".to_owned(), |node| node.to_string())));
    if let (Some(now), Some(l)) = (link(f), f.link) {
        let most = if l.max_width > 0 {
            format!("; the device can {} GT/s x{}", l.max_speed_gts, l.max_width)
        } else {
            String::new()
        };
        facts.push(("Link", format!("{now}{most}")));
        let sizes = [("MPS", l.mps_bytes), ("MRRS", l.mrrs_bytes)];
        let sizes: Vec<String> =
            sizes.iter().filter_map(|(name, size)| Some(format!("{name} {} bytes", (*size)?))).collect();
        if !sizes.is_empty() {
            facts.push(("Payload", sizes.join(", ")));
        }
    }
    if !f.path.is_empty() {
        facts.push(("Below", crate::text::path(&f.path)));
    }
    let bar = |bar: &pciescope_core::Bar| {
        let kind = if bar.is_memory { "" } else { " I/O" };
        format!("BAR{}{kind} {} bytes", bar.number, thousands(bar.size_bytes))
    };
    if !f.bars.is_empty() {
        facts.push(("Windows", f.bars.iter().map(bar).collect::<Vec<_>>().join(", ")));
    }
    if f.msix_vectors + f.msi_vectors.min(u16::MAX - f.msix_vectors) > 0 {
        facts.push(("Vectors", format!("{} MSI-X, {} MSI", f.msix_vectors, f.msi_vectors)));
    }
    facts.extend(f.iommu_group.map(|group| ("IOMMU group", group.to_string())));
    facts.extend(f.limited.clone().map(|why| ("Not known", why)));
    facts.extend(f.emulated.clone().map(|why| ("Emulated", why)));
    facts
}

/// The count of what is lost or wrong.
fn lost(section: &Section) -> String {
    match losses::total([section]) {
        None => "-".to_owned(),
        Some((sum, true)) => figure(sum),
        Some((sum, false)) => format!(">={}", figure(sum)),
    }
}

/// Its latencies: a row for each measurement, with the CPUs at both ends.
fn latencies(page: &mut String, device: &Device, sections: &[Section]) {
    let measured = device.sections.iter().map(|number| &sections[*number]);
    let measured = measured.map(|section| (section, main_samples(section))).filter(|(_, all)| !all.is_empty());
    let rows = measured.map(|(section, all)| (section, all, headline(section)));
    let end =
        |end: Option<&(u32, f64)>| end.map_or("-".to_owned(), |(cpu, median)| format!("{cpu}: {}", duration(*median)));
    let time = |ns: Option<f64>| ns.map_or("-".to_owned(), duration);
    let label = |section: &Section| section.first().label.as_deref().map(|label| format!(" ({label})"));
    let columns = Rows::of(rows).columns(&[
        ("Measured", 10, Left, &|row| format!("{}{}", row.0.test(), label(row.0).unwrap_or_default())),
        ("Samples", 7, Right, &|row| thousands(row.1.count())),
        ("Min", 5, Right, &|row| time(row.1.min_ns())),
        ("Median", 6, Right, &|row| time(row.2.as_ref().map(|headline| headline.median_ns))),
        ("P99", 5, Right, &|row| time(row.1.percentile_ns(99.0))),
        ("P99.9", 5, Right, &|row| time(row.1.percentile_ns(99.9))),
        ("Max", 5, Right, &|row| time(row.1.max_ns())),
        ("Lost", 4, Right, &|row| lost(row.0)),
        ("Fastest CPU", 11, Left, &|row| end(row.2.as_ref().and_then(|headline| headline.by_cpu.first()))),
        ("Slowest CPU", 11, Left, &|row| end(row.2.as_ref().and_then(|headline| headline.by_cpu.last()))),
    ]);
    if !columns.rows().is_empty() {
        page.push_str("<h3>Latency, all CPUs together</h3>\n");
        write_stacked(page, &columns.without_empty());
        let links: Vec<String> = device
            .sections
            .iter()
            .map(|n| format!("<a href=\"#s{n}\">{}</a>", safe(&super::short_title(&sections[*n], sections))))
            .collect();
        *page += &format!("<p class=\"line\">By CPU, with heat maps: {}</p>\n", links.join(", "));
    }
}

/// Counters of the device itself and of its root port.
fn counted(page: &mut String, device: &Device, devices: &[Device]) {
    let Some(root) = device.function.and_then(|f| f.path.first().copied().or(f.bdf)) else { return };
    let ports = devices
        .iter()
        .filter(|other| other.host == device.host && other.bdf().is_some_and(|b| Some(b) == device.bdf() || b == root));
    let counted = ports.flat_map(|port| {
        let records = port.records.iter().filter(|record| model::kind(&record.test) == Kind::Counters);
        let last = records.max_by_key(|record| record.times()[1]);
        let figures =
            last.into_iter().flat_map(|record| record.last_metrics().iter().map(move |figure| (record, figure)));
        figures.map(move |(record, (name, metric))| (port, record, name, metric))
    });
    let is_rate = |metric: &Metric| metric.unit == "bytes/s";
    let columns = Rows::of(counted.filter(|row| row.3.value != 0.0)).columns(&[
        ("Port", 12, Left, &|(port, ..)| port.name.clone()),
        ("Counted", 8, Left, &|(_, _, name, _)| (*name).to_owned()),
        ("Figure", 8, Right, &|(_, _, _, metric)| {
            let value = if is_rate(metric) { format!("{:.2}", metric.value / 1e6) } else { figure(metric.value) };
            if metric.at_least { format!(">={value}") } else { value }
        }),
        ("Unit", 4, Left, &|(_, _, _, metric)| if is_rate(metric) { "MB/s" } else { &metric.unit }.to_owned()),
        ("Ran(%)", 6, Right, &|(_, _, _, metric)| {
            metric.running.map_or("-".to_owned(), |share| format!("{:.1}", share * 100.0))
        }),
        ("Run", 4, Left, &|(_, record, ..)| record.label.clone().unwrap_or_else(|| "-".to_owned())),
    ]);
    if columns.rows().is_empty() {
        return;
    }
    page.push_str("<h3>Counters of its root port, last interval, what is not 0</h3>\n");
    write_table(page, &columns.without_empty());
}

/// What was read out of it.
fn rows(page: &mut String, device: &Device, sections: &[Section]) {
    let own: Vec<&&Record> =
        device.records.iter().filter(|record| &*record.test == pciescope_core::readout::TEST).collect();
    if own.is_empty() {
        return;
    }
    let lost = |row: &Row| {
        lost(&Section { records: vec![row.record], silent: Vec::new(), plan: None, asked: Asked::default() })
    };
    let columns = Rows::of(own.iter().take(MOST_ROWS).map(|record| Row::new(record))).columns(&[
        ("Function", 8, Left, &|row| row.function()),
        ("Devices", 7, Right, &|row| row.stream.devices.to_string()),
        ("MB", 6, Right, &|row| millions(row.metric("size"), 1)),
        ("MB/s", 6, Right, &|row| millions(row.metric("speed"), 1)),
        ("of ceiling(%)", 6, Right, &|row| cell(row.metric("of_ceiling"), 1)),
        ("Compared(MB)", 6, Right, &|row| millions(row.metric("verified"), 1)),
        ("Wrong(bytes)", 5, Right, &|row| row.metric("wrong").map_or("-".to_owned(), figure)),
        ("Lost", 4, Right, &lost),
        ("Run", 4, Left, &|row| row.record.label.clone().unwrap_or_else(|| "-".to_owned())),
    ]);
    page.push_str("<h3>Read out</h3>\n");
    write_stacked(page, &columns.without_empty());
    if own.len() > MOST_ROWS {
        *page += &format!("<p class=\"line\">The first {MOST_ROWS} of {} rows; --csv writes all.</p>\n", own.len());
    }
    if let Some(number) = sections.iter().position(super::charts::is_readout) {
        *page += &format!(
            "<p class=\"line\">Charts, and all devices side by side: <a href=\"#s{number}\">readout</a></p>\n"
        );
    }
}

/// How many rows of readouts a device's page shows.
const MOST_ROWS: usize = 40;

/// What doctor found about it and about the bridges above.
fn found(page: &mut String, device: &Device, devices: &[Device]) {
    let line = device.line();
    let near =
        devices.iter().filter(|other| other.host == device.host && other.bdf().is_some_and(|bdf| line.contains(&bdf)));
    let mut all: Vec<(&str, &Finding)> =
        near.flat_map(|other| findings(other).into_iter().map(|finding| (other.name.as_str(), finding))).collect();
    all.sort_by_key(|(_, finding)| std::cmp::Reverse(finding.severity));
    if all.is_empty() {
        return;
    }
    page.push_str("<h3>What doctor found here and on the way to the root port</h3>\n");
    write_findings(page, &all);
}

/// All that doctor found, the worst first; a finding of several functions once, with their addresses.
pub fn all_findings(page: &mut String, section: &Section) {
    let about = |places: &[String]| match places {
        [] => "the machine".to_owned(),
        few if few.len() <= 3 => few.join(", "),
        [first, second, rest @ ..] => format!("{first}, {second} and {} more", rest.len()),
        [one] => one.clone(),
    };
    let kinds = Kinds::of(&section.records, crate::facts::doctor::kind);
    let named: Vec<(String, &Finding)> = kinds.0.iter().map(|kind| (about(&kind.places), kind.finding)).collect();
    if named.is_empty() {
        page.push_str("<p class=\"line\">Nothing was found.</p>\n");
        return;
    }
    let listed: Vec<(&str, &Finding)> = named.iter().map(|(about, finding)| (about.as_str(), *finding)).collect();
    write_findings(page, &listed);
}

/// Findings as a list: what, evidence, consequence, remedy.
pub fn write_findings(page: &mut String, findings: &[(&str, &Finding)]) {
    page.push_str("<ul class=\"findings\">\n");
    for (about, finding) in findings {
        let (class, word) = match finding.severity {
            Severity::Problem => ("error", "problem"),
            Severity::Warning => ("warning", "warning"),
            Severity::Note => ("note", "note"),
        };
        *page += &format!(
            "<li class=\"{class}\"><strong>{word}</strong> <code>{}</code> <code>{}</code>: {}",
            safe(&finding.check),
            safe(about),
            super::sentence(&finding.text)
        );
        let evidence: Vec<String> = finding.evidence.iter().map(|e| format!("{} = {}", e.source, e.value)).collect();
        for (name, text) in [
            ("Read", evidence.join("; ")),
            ("Means", finding.consequence.clone()),
            ("What to do", finding.remedy.clone()),
        ] {
            if !text.is_empty() {
                *page += &format!("<br><span class=\"hint\">{name}: {}</span>", safe(&text));
            }
        }
        page.push_str("</li>\n");
    }
    page.push_str("</ul>\n");
}
