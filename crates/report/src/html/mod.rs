//! One page that loads nothing else: no network, no library, no font.
//!
//! Words, tables and charts are written here, so they are there without scripts and in print; heat.js draws heat maps
//! from the data block. Every string of a record goes through [`escape`] or is data that the
//! script sets as text. Why no chart library: docs/decisions/0002-report-page.md.

mod charts;
mod data;
mod devices;
pub(crate) mod first;
mod machine;
mod overview;
mod runs;
mod topology;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use pciescope_core::{Record, once};

use self::devices::Device;
use crate::facts;
use crate::figures;
use crate::layout::{Align, Columns};
use crate::model::{self, Kind, Section};
use crate::table::{self, Block};
use crate::text::{clean, device_name, escape, test_title, thousands};

const CSS: &str = include_str!("page.css");
const HEAT: &str = include_str!("heat.html");
const SCRIPTS: [&str; 3] = [include_str!("cell.js"), include_str!("heat.js"), include_str!("page.js")];

/// The page.
pub fn render(records: &[Record]) -> String {
    let (records, left_out) = newest(records);
    let records = &*records;
    let sections = model::sections(records);
    let title = title(records, &sections);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>\n{CSS}{}</style>\n</head>\n<body>\n",
        safe(&title),
        charts::CSS
    );
    let hosts = model::hosts(records);
    let devices = devices::devices(&sections, &hosts);
    let together = runs::write(records, &hosts);
    let conclusions = facts::conclude(records, &sections);
    head(&mut page, records, &sections, &title, left_out);
    navigation(&mut page, &devices, &sections, !together.is_empty());
    page.push_str("</header>\n<main>\n<div class=\"page\" id=\"overview\" data-title=\"Summary\">\n");
    first::write(&mut page, &sections, &hosts, &conclusions);
    overview::write(&mut page, &conclusions, &sections);
    topology::write(&mut page, &devices, &hosts);
    if !devices.is_empty() {
        devices::index(&mut page, &devices, &sections, &hosts);
    }
    overview::notices(&mut page, records);
    page.push_str("</div>\n");
    if !together.is_empty() {
        page += &format!("<div class=\"page\" id=\"runs\" data-title=\"Side by side\">\n{together}</div>\n");
    }
    let maps: Vec<Vec<data::Map>> = sections.iter().map(data::maps).collect();
    bodies(&mut page, &sections, &devices, &maps);
    page.push_str("<div class=\"page\" id=\"machine\" data-title=\"Machine\">\n");
    machine::write(&mut page, &hosts);
    page.push_str("</div>\n</main>\n");
    foot(&mut page, records);
    page += &format!(
        "{HEAT}<script type=\"application/json\" id=\"data\">{}</script>\n<script>\n{}</script>\n</body>\n</html>\n",
        data::json(&sections, &maps),
        SCRIPTS.concat()
    );
    page
}

/// A page shows at most so many runs: nobody finds one among more, and a browser draws no more.
pub const MOST_RUNS: usize = 1000;

/// The records of the last [`MOST_RUNS`] runs, and how many runs are left out.
fn newest(records: &[Record]) -> (Cow<'_, [Record]>, usize) {
    let mut places: HashMap<&str, usize> = HashMap::new();
    for record in records {
        let next = places.len();
        places.entry(&record.run).or_insert(next);
    }
    let left_out = places.len().saturating_sub(MOST_RUNS);
    if left_out == 0 {
        return (Cow::Borrowed(records), 0);
    }
    let shown = records.iter().filter(|record| places[&*record.run] >= left_out);
    (Cow::Owned(shown.cloned().collect()), left_out)
}

/// The sections: those of one device on its page, those of several behind them.
fn bodies(page: &mut String, sections: &[Section], devices: &[Device], maps: &[Vec<data::Map>]) {
    let blocks = table::section_blocks(sections, &table::Options::default());
    for device in devices {
        let badge = if device.function.is_some_and(|f| f.emulated.is_some()) { EMULATED } else { "" };
        *page += &format!(
            "<div class=\"page device\" id=\"{}\" data-title=\"{}\">\n<section class=\"card\">\n<h2>{}{badge}</h2>\n",
            safe(&device.id),
            safe(&device.title),
            safe(&device.title)
        );
        devices::page_of(page, device, sections, devices);
        page.push_str("</section>\n");
        for number in &device.sections {
            one(page, *number, &sections[*number], &blocks[*number], &maps[*number]);
        }
        let own: Vec<Section> = device.sections.iter().map(|number| sections[*number].clone()).collect();
        let comparisons = table::comparison_blocks(&own);
        if !comparisons.is_empty() {
            page.push_str("<section class=\"card\">\n<h2>Hardware and software trigger compared</h2>\n");
            write_blocks(page, &comparisons);
            page.push_str("</section>\n");
        }
        page.push_str("</div>\n");
    }
    for number in shared(sections, devices) {
        let title = short_title(&sections[number], sections);
        *page += &format!("<div class=\"page\" id=\"p{number}\" data-title=\"{}\">\n", safe(&title));
        one(page, number, &sections[number], &blocks[number], &maps[number]);
        page.push_str("</div>\n");
    }
}

/// The sections that no device has for itself.
fn shared(sections: &[Section], devices: &[Device]) -> Vec<usize> {
    let is_shared = |number: &usize| devices.iter().all(|device| !device.sections.contains(number));
    (0..sections.len()).filter(is_shared).collect()
}

fn navigation(page: &mut String, devices: &[Device], sections: &[Section], has_runs: bool) {
    page.push_str("<nav aria-label=\"Parts of this page\"><ul>\n<li><a href=\"#overview\">Summary</a></li>\n");
    if has_runs {
        page.push_str("<li><a href=\"#runs\">Side by side</a></li>\n");
    }
    for number in shared(sections, devices) {
        *page += &format!("<li><a href=\"#p{number}\">{}</a></li>\n", safe(&short_title(&sections[number], sections)));
    }
    page.push_str("<li><a href=\"#machine\">Machine</a></li>\n");
    let links: Vec<String> = devices
        .iter()
        .map(|device| format!("<li><a href=\"#{}\">{}</a></li>\n", safe(&device.id), safe(&device.title)))
        .collect();
    if devices.len() > FEW_DEVICES {
        *page += &format!(
            "</ul>\n<details class=\"jump\"><summary>{} devices</summary>\n<ul>\n{}</ul></details>\n</nav>\n",
            devices.len(),
            links.concat()
        );
    } else {
        *page += &format!("{}</ul></nav>\n", links.concat());
    }
}

/// The navigation shows up to so many devices; more are folded away.
const FEW_DEVICES: usize = 8;
const EMULATED: &str = " <span class=\"badge\">emulated</span>";

fn safe(text: &str) -> String {
    escape(&clean(text))
}

/// The same of a sentence, in which backticks enclose what is typed or read.
fn sentence(text: &str) -> String {
    let text = safe(text);
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len() % 2 == 0 {
        return text;
    }
    let part = |(place, part): (usize, &&str)| match place % 2 {
        0 => (*part).to_owned(),
        _ => format!("<code>{part}</code>"),
    };
    parts.iter().enumerate().map(part).collect()
}

fn title(records: &[Record], sections: &[Section]) -> String {
    let is_other = |r: &&Record| r.device.is_some() && model::kind(&r.test) != Kind::Readout;
    let devices = once(records.iter().filter(is_other).map(device_name));
    let read = charts::devices(sections);
    let named = |what: &str, devices: &[String]| match devices {
        [] => what.to_owned(),
        [one] => format!("{what} of {one}"),
        [first, rest @ ..] => format!("{what} of {first} and {} more", rest.len()),
    };
    let has_others = sections.iter().any(|section| !charts::is_readout(section));
    let word = |section: &Section| match model::kind(section.test()) {
        Kind::Readout => None,
        Kind::Mmio | Kind::Path | Kind::Irq => Some("PCIe latency"),
        Kind::Counters => Some("Hardware counters"),
        Kind::Verify | Kind::Other => Some("Measurements"),
    };
    if !sections.is_empty() && sections.iter().all(|section| section.test() == "doctor") {
        return "Findings of doctor".to_owned();
    }
    let words: BTreeSet<&str> = sections.iter().filter_map(word).collect();
    let what = if words.len() == 1 { words.first().copied() } else { None };
    let others = named(what.unwrap_or("Measurements"), &devices);
    if !sections.iter().any(charts::is_readout) {
        return others;
    }
    let readout = named("Readout", &read.into_iter().map(str::to_owned).collect::<Vec<_>>());
    if has_others { format!("{others}; {}", readout.replacen("Readout", "readout", 1)) } else { readout }
}

fn head(page: &mut String, records: &[Record], sections: &[Section], title: &str, left_out: usize) {
    *page += &format!("<header>\n<h1>{}</h1>\n", safe(title));
    let mut times: Vec<&str> = records.iter().flat_map(Record::times).filter(|t| !t.is_empty()).collect();
    times.sort_unstable();
    let mut facts = Vec::new();
    if let (Some(first), Some(last)) = (times.first(), times.last()) {
        let span = if first == last { (*first).to_owned() } else { format!("{first} to {last}") };
        facts.push(span);
    }
    facts.extend(once(model::environments(records).into_iter().map(|e| {
        let machine = e.product.as_deref().or(e.cpu_model.as_deref()).unwrap_or("machine without a name");
        format!("{machine}, {} CPUs, Linux {}", e.cpus.len(), e.kernel)
    })));
    facts.push(format!("{} records", records.iter().map(Record::count).sum::<usize>()));
    if left_out > 0 {
        let runs = thousands((MOST_RUNS + left_out) as u64);
        facts.push(format!("only the last {} of {runs} runs are shown", thousands(MOST_RUNS as u64)));
    }
    *page += &format!("<p class=\"facts\">{}</p>\n", safe(&facts.join(" · ")));
    if records.iter().any(model::is_emulated) {
        let all = sections.iter().all(Section::is_emulated);
        let which = if all { "" } else { " (the sections marked so)" };
        let of_readouts = sections.iter().any(|section| section.is_emulated() && charts::is_readout(section))
            && sections.iter().all(|section| !section.is_emulated() || charts::is_readout(section));
        let figures = if of_readouts {
            "rates and times are those of an emulated device"
        } else {
            "figures are exits to the emulator, not PCIe"
        };
        *page += &format!(
            "<p class=\"emulated\"><strong>EMULATED</strong>{which}: {figures}. \
             They show that the method works, not how fast a real device is.</p>\n"
        );
    }
    if sections.iter().any(Section::is_synthetic) {
        *page += &format!("<p class=\"emulated\">{}</p>\n", safe(model::SYNTHETIC));
    }
}

/// The test's name, with the device where the page shows several.
fn short_title(section: &Section, sections: &[Section]) -> String {
    let bdf = |s: &Section| s.first().device.as_ref().and_then(|d| d.bdf);
    let several = sections.iter().any(|s| bdf(s) != bdf(section));
    // Counters, readouts and findings are of many.
    let is_of_many = devices::is_of_many(section);
    let device = bdf(section).filter(|_| several && !is_of_many).map(|b| format!(" {b}")).unwrap_or_default();
    let label = section.first().label.as_deref().map(|l| format!(" ({l})")).unwrap_or_default();
    let test = if charts::is_readout(section) { pciescope_core::readout::TEST } else { section.test() };
    format!("{test}{device}{label}")
}

fn one(page: &mut String, number: usize, section: &Section, blocks: &[Block], maps: &[data::Map]) {
    let badge = if section.is_emulated() { EMULATED } else { "" };
    let label = section.first().label.as_deref().map(|label| format!(": {label}")).unwrap_or_default();
    *page += &format!(
        "<section class=\"card\" id=\"s{number}\">\n<h2>{}{}{badge}</h2>\n",
        safe(&test_title(section.test())),
        safe(&label)
    );
    let about = about(section);
    if !about.is_empty() {
        *page += &format!("<p class=\"facts\">{}</p>\n", safe(&about));
    }
    let figures = figures::of(section);
    charts::figures(page, &figures);
    let has_maps = !maps.is_empty();
    data::write(page, number, section, maps);
    let is_doctor = section.test() == "doctor";
    if is_doctor {
        devices::all_findings(page, section);
    }
    // What comes before the first table is the method; the rest are tables.
    let tables = blocks.iter().position(|b| matches!(b, Block::Heading(_) | Block::Table(_))).unwrap_or(blocks.len());
    let has_more = !blocks[tables..].is_empty();
    // Where the tables are all that there is they are open.
    let is_open = !has_maps && !is_doctor && !charts::is_readout(section);
    let words = if is_doctor { "The same as text, with what could not be checked" } else { "Tables" };
    let write_tables = |page: &mut String| {
        let open = if is_open { " open" } else { "" };
        *page += &format!("<details class=\"tables\"{open}><summary>{words}</summary>\n");
        write_blocks(page, &blocks[tables..]);
        page.push_str("</details>\n");
    };
    if is_open && has_more {
        write_tables(page);
    }
    let method =
        if charts::is_readout(section) { "Method and parameters" } else { "Method, references and calibration" };
    *page += &format!("<details class=\"method\"><summary>{method}</summary>\n<pre>");
    for block in &blocks[..tables] {
        if let Block::Line(line) | Block::Fixed(line) = block {
            *page += &format!("{}\n", escape(line));
        }
    }
    page.push_str("</pre>\n");
    raw_method(page, section);
    page.push_str("</details>\n");
    if !is_open && has_more {
        write_tables(page);
    }
    page.push_str("</section>\n");
}

/// What a section is of, in a line: its device, or how much of what.
fn about(section: &Section) -> String {
    if charts::is_readout(section) {
        return charts::devices(std::slice::from_ref(section)).join(", ");
    }
    if model::kind(section.test()) == Kind::Counters {
        let sources = figures::counters::sources(section);
        let count = |words: &str, count: usize| match count {
            0 => None,
            1 => Some(format!("1 {words}")),
            n => Some(format!("{n} {words}s")),
        };
        let ports = sources.iter().filter(|source| source.has_any(&figures::counters::TRAFFIC)).count();
        let channels = sources.iter().filter(|source| source.instance.scope == "channel").count();
        let (mut ends, mut longest) = (BTreeSet::new(), 0);
        for record in &section.records {
            // Of a recording whose points are means the number of its intervals stands for all.
            if record.per_point() > 1 {
                longest = longest.max(record.count());
            } else if record.interval.is_some() {
                ends.extend(record.points().iter().map(|point| point.end_ns));
            }
        }
        let intervals = longest.max(ends.len());
        let ends = section.records.iter().filter_map(|record| record.span_ns());
        let ends = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let seconds = ends.map(|(from, to)| format!("{:.1} s", to.saturating_sub(from) as f64 / 1e9));
        let parts = [count("root port", ports), count("DRAM channel", channels), seconds];
        return parts.into_iter().flatten().chain(count("interval", intervals)).collect::<Vec<_>>().join(", ");
    }
    if section.first().device.is_none() || devices::is_of_many(section) {
        return section.first().time.to_string();
    }
    device_name(section.first())
}

/// The first record without its histograms and machine: everything that is said about how it was measured.
fn raw_method(page: &mut String, section: &Section) {
    let first = section.first();
    let mut value =
        match serde_json::to_value(Record { environment: None, histograms: BTreeMap::new(), ..first.clone() }) {
            Ok(value) => value,
            Err(_) => return,
        };
    if let Some(fields) = value.as_object_mut() {
        fields.remove("warnings");
    }
    let text = serde_json::to_string_pretty(&value).unwrap_or_default();
    let text = text.lines().map(clean).collect::<Vec<_>>().join("\n");
    *page += &format!(
        "<details><summary>The first record as it stands in the file, without its histograms</summary>\n<pre>{}</pre></details>\n",
        escape(&text)
    );
}

fn write_blocks(page: &mut String, blocks: &[Block]) {
    for (place, block) in blocks.iter().enumerate() {
        match block {
            Block::Fixed(line) => {
                let is_fixed = |place: usize| matches!(blocks.get(place), Some(Block::Fixed(_)));
                if place == 0 || !is_fixed(place - 1) {
                    page.push_str("<pre>");
                }
                *page += &format!("{}\n", safe(line));
                if !is_fixed(place + 1) {
                    page.push_str("</pre>\n");
                }
            }
            Block::Section(title) => *page += &format!("<h2>{}</h2>\n", safe(title)),
            Block::Heading(title) => *page += &format!("<h3>{}</h3>\n", safe(title)),
            Block::Line(line) if line.trim().is_empty() => {}
            Block::Line(line) => {
                let line = line.replace("; --all shows every row", "; the heat map shows all");
                *page += &format!("<p class=\"line\">{}</p>\n", safe(&line));
            }
            Block::Table(columns) => write_table(page, columns),
        }
    }
}

fn write_table(page: &mut String, columns: &Columns) {
    table_of(page, columns, false);
}

/// A table whose rows are cards on a telephone, where a table of that width would show its first column alone.
fn write_stacked(page: &mut String, columns: &Columns) {
    table_of(page, columns, true);
}

fn table_of(page: &mut String, columns: &Columns, is_stacked: bool) {
    let class = if is_stacked { " class=\"stack\"" } else { "" };
    *page += &format!("<div class=\"scroll\"><table{class}>\n<thead><tr>");
    let mut heads = Vec::new();
    for (head, align) in columns.heads() {
        let class = if align == Align::Left { " class=\"left\"" } else { "" };
        *page += &format!("<th scope=\"col\"{class}>{}</th>", safe(head));
        let head = if is_stacked { format!(" data-head=\"{}\"", safe(head)) } else { String::new() };
        heads.push(format!("{class}{head}"));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for row in columns.rows() {
        page.push_str("<tr>");
        for (cell, attributes) in row.iter().zip(&heads) {
            *page += &format!("<td{attributes}>{}</td>", safe(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n");
}

fn foot(page: &mut String, records: &[Record]) {
    let mut names: Vec<(&str, &str)> = Vec::new();
    for record in records.iter().filter(|record| !record.run.is_empty()) {
        if names.last().is_none_or(|last| last.0 != record.run) {
            names.push((&record.run, record.label.as_deref().unwrap_or(&record.time)));
        }
    }
    let mut runs: Vec<&str> = names.into_iter().map(|(_, name)| name).collect();
    runs.dedup();
    *page += &format!(
        "<footer>Runs: {}. Percentiles are shown only where the samples support them; nothing is trimmed or subtracted. \
         Colours run on a logarithmic scale that neighbouring maps share and that spans a factor of two at least.</footer>\n",
        safe(&runs.join(", "))
    );
}
