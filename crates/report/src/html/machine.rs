//! The machines of the runs: what each was, and what differs between its runs.

use pciescope_core::Environment;

use super::safe;
use crate::model::{self, Host};
use crate::text::duration;

/// A list of facts for each machine.
pub fn write(page: &mut String, hosts: &[Host]) {
    page.push_str("<section class=\"card\" id=\"environment\">\n<h2>Machine</h2>\n");
    if hosts.is_empty() {
        page.push_str("<p>The records do not describe the machine.</p>\n");
    }
    for host in hosts {
        if hosts.len() > 1 {
            *page += &format!("<h3>{}</h3>\n", safe(&host.name));
        }
        page.push_str("<dl>\n");
        let all: Vec<(&str, Vec<(&str, String)>)> = host.runs.iter().map(|(run, e)| (*run, facts(e))).collect();
        for (place, (name, value)) in all[0].1.iter().enumerate() {
            *page += &format!("<dt>{name}</dt><dd>{}</dd>\n", safe(&differing(&all, place, value)));
        }
        page.push_str("</dl>\n");
    }
    page.push_str("</section>\n");
}

/// A fact, or each value of it with its runs where they differ.
fn differing(all: &[(&str, Vec<(&str, String)>)], place: usize, first: &str) -> String {
    if all.iter().all(|(_, facts)| facts[place].1 == first) {
        return first.to_owned();
    }
    let mut values: Vec<(&str, Vec<&str>)> = Vec::new();
    for (run, facts) in all {
        let value = facts[place].1.as_str();
        match values.iter_mut().find(|known| known.0 == value) {
            Some(known) => known.1.push(run),
            None => values.push((value, vec![run])),
        }
    }
    let runs = |runs: &[&str]| match runs {
        [one] => format!("run {one}"),
        many => format!("{} runs", many.len()),
    };
    values.iter().map(|(value, of)| format!("{value} ({})", runs(of))).collect::<Vec<_>>().join("; ")
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
