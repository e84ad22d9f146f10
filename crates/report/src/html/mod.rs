//! One page that needs nothing else: no network, no library, no font.
//!
//! Words and tables are written here, so they are there without scripts and in print; page.js draws heat maps,
//! histograms and tails from the data block. Every string of a record goes through [`escape`] or is data that the
//! script sets as text. Why no chart library: docs/decisions/0002-report-page.md.

mod data;

use pciescope_core::{Environment, Record};

use crate::model::{self, Section};
use crate::summary;
use crate::table::layout::{Align, Columns};
use crate::table::{self, Block};
use crate::text::{clean, device_name, duration, escape, test_title};

const CSS: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page.
pub fn render(records: &[Record]) -> String {
    let sections = model::sections(records);
    let title = title(records);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>\n{CSS}</style>\n</head>\n<body>\n",
        safe(&title)
    );
    head(&mut page, records, &sections, &title);
    page.push_str("<main>\n");
    overview(&mut page, &sections);
    notices(&mut page, records);
    let blocks = table::section_blocks(&sections, &table::Options::default());
    for (number, (section, blocks)) in sections.iter().zip(&blocks).enumerate() {
        one(&mut page, number, section, blocks);
    }
    let comparisons = table::comparison_blocks(&sections, &table::Options::default());
    if !comparisons.is_empty() {
        page.push_str("<section class=\"card\" id=\"compared\">\n<h2>Hardware and software trigger compared</h2>\n");
        write_blocks(&mut page, &comparisons);
        page.push_str("</section>\n");
    }
    environment(&mut page, records);
    page.push_str("</main>\n");
    foot(&mut page, records);
    page += &format!(
        "<script type=\"application/json\" id=\"data\">{}</script>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        data::json(&sections)
    );
    page
}

fn safe(text: &str) -> String {
    escape(&clean(text))
}

fn title(records: &[Record]) -> String {
    let mut devices: Vec<String> = Vec::new();
    for record in records.iter().filter(|r| r.device.is_some()) {
        let name = device_name(record);
        if !devices.contains(&name) {
            devices.push(name);
        }
    }
    match devices.as_slice() {
        [] => "PCIe latency".to_owned(),
        [one] => format!("PCIe latency of {one}"),
        [first, rest @ ..] => format!("PCIe latency of {first} and {} more", rest.len()),
    }
}

fn head(page: &mut String, records: &[Record], sections: &[Section], title: &str) {
    *page += &format!("<header>\n<h1>{}</h1>\n", safe(title));
    let mut times: Vec<&str> = records.iter().map(|r| r.time.as_str()).filter(|t| !t.is_empty()).collect();
    times.sort_unstable();
    let mut facts = Vec::new();
    if let (Some(first), Some(last)) = (times.first(), times.last()) {
        let span = if first == last { (*first).to_owned() } else { format!("{first} to {last}") };
        facts.push(span);
    }
    for e in model::environments(records) {
        let machine = e.product.as_deref().or(e.cpu_model.as_deref()).unwrap_or("machine without a name");
        facts.push(format!("{machine}, {} CPUs, Linux {}", e.cpus.len(), e.kernel));
    }
    facts.push(format!("{} records", records.len()));
    *page += &format!("<p class=\"facts\">{}</p>\n", safe(&facts.join(" · ")));
    if records.iter().any(model::is_emulated) {
        let all = sections.iter().all(Section::is_emulated);
        let which = if all { "" } else { " (the sections marked so)" };
        *page += &format!(
            "<p class=\"emulated\"><strong>EMULATED</strong>{which}: figures are exits to the emulator, not PCIe. \
             They show that the method works, not how fast a real device is.</p>\n"
        );
    }
    if sections.iter().any(Section::is_synthetic) {
        *page += &format!("<p class=\"emulated\">{}</p>\n", safe(table::SYNTHETIC));
    }
    page.push_str("<nav aria-label=\"Sections\"><ul>\n");
    for (number, section) in sections.iter().enumerate() {
        *page += &format!("<li><a href=\"#s{number}\">{}</a></li>\n", safe(&short_title(section, sections)));
    }
    page.push_str("<li><a href=\"#environment\">Machine</a></li>\n</ul></nav>\n</header>\n");
}

/// The test's name, with the device where the page shows several.
fn short_title(section: &Section, sections: &[Section]) -> String {
    let bdf = |s: &Section| s.first().device.as_ref().and_then(|d| d.bdf);
    let several = sections.iter().any(|s| bdf(s) != bdf(section));
    let device = bdf(section).filter(|_| several).map(|b| format!(" {b}")).unwrap_or_default();
    let label = section.first().label.as_deref().map(|l| format!(" ({l})")).unwrap_or_default();
    format!("{}{device}{label}", section.test())
}

fn notices(page: &mut String, records: &[Record]) {
    let notices = model::notices(records);
    if notices.is_empty() {
        return;
    }
    page.push_str("<section class=\"card notices\" id=\"notices\">\n<h2>Warnings and errors</h2>\n<ul>\n");
    for n in &notices {
        let (class, word) = if n.is_error { ("error", "error") } else { ("warning", "warning") };
        let times = if n.count > 1 { format!(" ({} records)", n.count) } else { String::new() };
        *page += &format!(
            "<li class=\"{class}\"><strong>{word}</strong> <code>{}</code>{times}: {}",
            safe(&n.code),
            safe(&n.text)
        );
        if let Some(hint) = &n.hint {
            *page += &format!("<br><span class=\"hint\">What to do: {}</span>", safe(hint));
        }
        page.push_str("</li>\n");
    }
    page.push_str("</ul>\n</section>\n");
}

fn overview(page: &mut String, sections: &[Section]) {
    let told: Vec<_> = sections.iter().enumerate().map(|(i, s)| (i, s, summary::sentences(s))).collect();
    if told.iter().all(|t| t.2.is_empty()) {
        return;
    }
    page.push_str("<section class=\"card\" id=\"summary\">\n<h2>In short</h2>\n<ul class=\"short\">\n");
    for (number, section, sentences) in told.iter().filter(|t| !t.2.is_empty()) {
        *page += &format!(
            "<li><a href=\"#s{number}\">{}</a> {}</li>\n",
            safe(&short_title(section, sections)),
            safe(&sentences.join(" "))
        );
    }
    page.push_str("</ul>\n</section>\n");
}

fn one(page: &mut String, number: usize, section: &Section, blocks: &[Block]) {
    let badge = if section.is_emulated() { " <span class=\"badge\">emulated</span>" } else { "" };
    let label = section.first().label.as_deref().map(|label| format!(": {label}")).unwrap_or_default();
    *page += &format!(
        "<section class=\"card\" id=\"s{number}\">\n<h2>{}{}{badge}</h2>\n<p class=\"facts\">{}</p>\n",
        safe(&test_title(section.test())),
        safe(&label),
        safe(&device_name(section.first()))
    );
    *page += &format!("<div class=\"maps\" data-section=\"{number}\"></div>\n");
    // What comes before the first table is the method; the rest are tables.
    let tables = blocks.iter().position(|b| matches!(b, Block::Heading(_))).unwrap_or(blocks.len());
    page.push_str("<details class=\"method\"><summary>Method, references and calibration</summary>\n<pre>");
    for block in &blocks[..tables] {
        if let Block::Line(line) = block {
            *page += &format!("{}\n", escape(line));
        }
    }
    page.push_str("</pre>\n");
    raw_method(page, section);
    page.push_str("</details>\n<details class=\"tables\"><summary>Tables</summary>\n");
    write_blocks(page, &blocks[tables..]);
    page.push_str("</details>\n</section>\n");
}

/// The first record without its histograms and machine: everything that is said about how it was measured.
fn raw_method(page: &mut String, section: &Section) {
    let first = section.first();
    let mut value =
        match serde_json::to_value(Record { histograms: Default::default(), environment: None, ..first.clone() }) {
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
    for block in blocks {
        match block {
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
    page.push_str("<div class=\"scroll\"><table>\n<thead><tr>");
    let mut aligns = Vec::new();
    for (head, align) in columns.heads() {
        let class = if align == Align::Left { " class=\"left\"" } else { "" };
        *page += &format!("<th scope=\"col\"{class}>{}</th>", safe(head));
        aligns.push(class);
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for row in columns.rows() {
        page.push_str("<tr>");
        for (cell, class) in row.iter().zip(&aligns) {
            *page += &format!("<td{class}>{}</td>", safe(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n");
}

fn environment(page: &mut String, records: &[Record]) {
    page.push_str("<section class=\"card\" id=\"environment\">\n<h2>Machine</h2>\n");
    let machines = model::environments(records);
    if machines.is_empty() {
        page.push_str("<p>The records do not describe the machine.</p>\n");
    }
    for e in machines {
        page.push_str("<dl>\n");
        for (name, value) in facts(e) {
            *page += &format!("<dt>{name}</dt><dd>{}</dd>\n", safe(&value));
        }
        page.push_str("</dl>\n");
    }
    page.push_str("</section>\n");
}

fn facts(e: &Environment) -> Vec<(&'static str, String)> {
    let unknown = || "not known".to_owned();
    let text = |t: &Option<String>| t.clone().unwrap_or_else(unknown);
    let list = |l: &[String]| if l.is_empty() { unknown() } else { l.join(", ") };
    let cpus: Vec<&pciescope_core::Cpu> = e.cpus.iter().collect();
    let groups: Vec<String> = model::GROUPINGS
        .iter()
        .filter(|g| g.count(&cpus) > 0)
        .map(|g| format!("{} {}{}", g.count(&cpus), g.title, if g.count(&cpus) == 1 { "" } else { "s" }))
        .collect();
    vec![
        ("Product", text(&e.product)),
        ("CPU", text(&e.cpu_model)),
        (
            "CPUs online",
            format!("{} ({})", e.cpus.len(), if groups.is_empty() { unknown() } else { groups.join(", ") }),
        ),
        ("Kernel", format!("{} {}", e.kernel, e.machine)),
        ("Command line", text(&e.cmdline)),
        ("Clock source", text(&e.clocksource)),
        ("Governors", list(&e.governors)),
        ("Idle states", list(&e.idle_states)),
        ("ASPM policy", text(&e.aspm_policy)),
        ("Lockdown", text(&e.lockdown)),
        ("IOMMU groups", e.iommu_groups.to_string()),
        ("Guest of", e.hypervisor.clone().unwrap_or_else(|| "looks like bare metal".to_owned())),
        ("Time stolen", e.steal_ns.map_or_else(unknown, |ns| duration(ns as f64))),
        ("pciescope", e.tool.clone()),
    ]
}

fn foot(page: &mut String, records: &[Record]) {
    let mut runs: Vec<&str> = records.iter().map(|r| r.run.as_str()).filter(|r| !r.is_empty()).collect();
    runs.dedup();
    *page += &format!(
        "<footer>Runs: {}. Percentiles are shown only where the samples support them; nothing is trimmed or subtracted. \
         Colours run on a logarithmic scale.</footer>\n",
        safe(&runs.join(", "))
    );
}
