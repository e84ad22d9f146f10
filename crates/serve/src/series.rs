//! From the names of records to the names of Prometheus: base units, `_total`, and the catalogue's words.
//!
//! There is no table of names: the name of a figure follows from the catalogue (an event or a metric, its unit, its
//! group). So a kind of PMU that is added to the catalogue is exported without a change here.

use pciescope_catalogue::{Catalogue, Dimension, Group, Kind, Unit, What};

/// Whether a family only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// A sum since the server started.
    Counter,
    /// A figure of the last interval.
    Gauge,
    /// Labels only; the value is 1.
    Info,
}

/// A family of samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    /// Its name, without `_total` and `_info`.
    pub name: String,
    /// Whether it only grows.
    pub of: Type,
    /// Its unit, with which the name then ends.
    pub unit: &'static str,
    /// What it says, a line.
    pub help: String,
}

impl Family {
    /// A family that does not come from a hardware counter.
    pub fn new(name: &str, of: Type, unit: &'static str, help: &str) -> Self {
        Family { name: name.to_owned(), of, unit, help: help.to_owned() }
    }
}

/// What a figure of a record becomes.
#[derive(Debug, Clone, PartialEq)]
pub enum Rule {
    /// Added to a sum, times this.
    Sum(Family, f64),
    /// A rate: times this and the interval's seconds added to a sum.
    Rate(Family, f64),
    /// A share of time in a state of a link, times this: seconds are added to the state's sum.
    State(Family, String, f64),
    /// Shown as it is, times this.
    Gauge(Family, f64),
    /// An event that the catalogue does not know: added to a sum under its own name.
    Named(Family),
    /// Said by another family already.
    Nothing,
}

/// The kind of PMU that counted, as far as a record shows it: by the PMU's name and the figures. Several kinds share a
/// name (generations of one driver); then it is the kind that knows most of the figures.
pub fn kind<'n>(scope: &str, pmu: &str, names: impl Iterator<Item = &'n str> + Clone) -> Option<&'static Kind> {
    let fits = |kind: &&'static Kind| {
        let is_of_scope = match scope {
            "port" => matches!(kind.what, What::PcieRootPort | What::PciFunction),
            "function" => kind.what == What::PciFunction,
            "channel" => kind.what == What::DramChannel,
            _ => true,
        };
        is_of_scope && kind.has_name(pmu)
    };
    let known = |kind: &Kind| {
        names.clone().filter(|name| kind.events.contains_key(*name) || kind.metric(name).is_some()).count()
    };
    let kinds = Catalogue::builtin().kinds().iter().filter(fits);
    kinds
        .map(|kind| (known(kind), kind))
        .filter(|(known, _)| *known > 0)
        .max_by_key(|(known, _)| *known)
        .map(|(_, k)| k)
}

/// The beginning of the names of a scope. What the kernel counted of a port has families of its own: it is the same
/// payload that hardware counts there, and a family's sum must not have it twice.
fn prefix(scope: &str, kind: Option<&Kind>) -> &'static str {
    let is_kernel = kind.is_some_and(|kind| kind.id == "kernel");
    match scope {
        "port" if is_kernel => "pciescope_port_kernel",
        "port" => "pciescope_port",
        "function" => "pciescope_device",
        "channel" => "pciescope_dram",
        _ => "pciescope_pmu",
    }
}

/// What becomes of a figure.
pub fn rule(scope: &str, kind: Option<&Kind>, name: &str) -> Rule {
    let prefix = prefix(scope, kind);
    if name == "link_bytes_per_s" && matches!(scope, "port" | "function") {
        let help = "Payload that the link can carry in one direction, as it is now (docs/method.md).";
        return Rule::Gauge(
            Family::new(&format!("{prefix}_link_capacity_bytes_per_second"), Type::Gauge, "bytes_per_second", help),
            1.0,
        );
    }
    let Some(kind) = kind else { return named() };
    if scope == "function" && is_error(kind, name) {
        // The families of the inventory have the reports of every function, by severity and kind.
        return Rule::Nothing;
    }
    if let Some(event) = kind.events.get(name) {
        if event.is_state {
            return Rule::Nothing;
        }
        let Some((suffix, factor)) = base(&event.unit) else { return named() };
        return Rule::Sum(sum(prefix, name, suffix, &event.text), factor);
    }
    let Some(metric) = kind.metric(name) else { return named() };
    let gauge = |name: String, unit: &'static str, factor| {
        Rule::Gauge(Family { name, of: Type::Gauge, unit, help: metric.text.clone() }, factor)
    };
    let is_share = metric.unit.text == "%";
    let stem = name.strip_suffix("_share").unwrap_or(name);
    if is_share && metric.group == Group::States {
        let link = if scope == "channel" { "" } else { "link_" };
        let help = "Time in a state, as the counters saw it: shares of the intervals added up.";
        let family = Family::new(&format!("{prefix}_{link}state_seconds"), Type::Counter, "seconds", help);
        return Rule::State(family, stem.to_owned(), metric.unit.factor);
    }
    if is_share {
        return gauge(format!("{prefix}_{}_ratio", words(stem)), "ratio", metric.unit.factor);
    }
    if name == "peak_bytes_per_s" {
        return gauge(format!("{prefix}_peak_bytes_per_second"), "bytes_per_second", 1.0);
    }
    if let Some(stem) = name.strip_suffix("_per_s") {
        let events = metric.events();
        let is_event =
            events.len() == 1 && events.iter().all(|event| metric.text_of_formula == format!("{event} / seconds"));
        // Prometheus makes rates of sums by itself.
        if is_event || stem == "total_bytes" {
            return Rule::Nothing;
        }
        let of = Dimension { seconds: metric.unit.dimension.seconds.saturating_add(1), ..metric.unit.dimension };
        let Some(suffix) = suffix_of(of) else { return Rule::Nothing };
        return Rule::Rate(sum(prefix, stem, suffix, &metric.text), metric.unit.factor);
    }
    let Some((suffix, factor)) = base(&metric.unit) else { return Rule::Nothing };
    if metric.group == Group::Errors {
        // One event under another name is there already.
        return if metric.events().len() > 1 {
            Rule::Sum(sum(prefix, name, suffix, &metric.text), factor)
        } else {
            Rule::Nothing
        };
    }
    let stem = name.strip_suffix("_s").unwrap_or(name).replace("_bytes_per_", "_");
    gauge(with_unit(prefix, &stem, suffix), suffix, factor)
}

/// Whether a figure counts errors or retries, or what such a figure is made of.
pub fn is_error(kind: &Kind, name: &str) -> bool {
    let errors = kind.metrics.iter().filter(|metric| metric.group == Group::Errors);
    errors.into_iter().any(|metric| metric.name == name || metric.events().contains(name))
}

fn named() -> Rule {
    let help = "Events that a user named by perf's terms, in the unit that the driver says.";
    Rule::Named(Family::new("pciescope_pmu_events", Type::Counter, "", help))
}

fn sum(prefix: &str, name: &str, suffix: &'static str, help: &str) -> Family {
    Family { name: with_unit(prefix, name, suffix), of: Type::Counter, unit: suffix, help: help.to_owned() }
}

/// `rx_bytes` in `bytes` as `PREFIX_receive_bytes`; a name that is nothing but its unit is the clock's.
fn with_unit(prefix: &str, name: &str, suffix: &str) -> String {
    if suffix.is_empty() {
        return format!("{prefix}_{}", words(name));
    }
    let stem = name.strip_suffix(suffix).unwrap_or(name).trim_end_matches('_');
    let stem = if stem.is_empty() { "clock" } else { stem };
    format!("{prefix}_{}_{suffix}", words(stem))
}

/// Whole words; what may not stand in a name becomes `_`.
fn words(name: &str) -> String {
    let whole = match name.split_once('_').unwrap_or((name, "")) {
        ("rx", "") => "receive".to_owned(),
        ("tx", "") => "transmit".to_owned(),
        ("rx", rest) => format!("receive_{rest}"),
        ("tx", rest) => format!("transmit_{rest}"),
        _ => name.to_owned(),
    };
    whole.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect()
}

/// The base unit of a unit and how much of it one is; `None` for what Prometheus has no word for.
fn base(unit: &Unit) -> Option<(&'static str, f64)> {
    Some((suffix_of(unit.dimension)?, unit.factor))
}

fn suffix_of(of: Dimension) -> Option<&'static str> {
    Some(match (of.bytes, of.seconds, of.cycles) {
        (0, 0, 0) => "",
        (1, 0, 0) => "bytes",
        (0, 1, 0) => "seconds",
        (0, 0, 1) => "cycles",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn of(scope: &str, kind: &str, name: &str) -> Rule {
        rule(scope, Some(Catalogue::builtin().kind(kind).unwrap()), name)
    }

    fn name(rule: &Rule) -> &str {
        match rule {
            Rule::Sum(family, _) | Rule::Rate(family, _) | Rule::State(family, ..) => &family.name,
            Rule::Gauge(family, _) | Rule::Named(family) => &family.name,
            Rule::Nothing => "",
        }
    }

    #[test]
    fn figures_become_what_their_meaning_says() {
        for (scope, kind, figure, expected) in [
            ("port", "dwc_rootport", "rx_bytes", "pciescope_port_receive_bytes"),
            ("port", "dwc_rootport", "tx_bytes", "pciescope_port_transmit_bytes"),
            ("port", "dwc_rootport", "rx_bytes_per_s", ""),
            ("port", "dwc_rootport", "rx_link_share", "pciescope_port_receive_link_ratio"),
            ("port", "dwc_rootport", "tx_link_share", "pciescope_port_transmit_link_ratio"),
            ("port", "dwc_rootport", "l0_share", "pciescope_port_link_state_seconds"),
            ("port", "dwc_rootport", "layer2_errors", "pciescope_port_layer2_errors"),
            ("port", "dwc_rootport", "lcrc_error", "pciescope_port_lcrc_error"),
            ("port", "dwc_rootport", "retries", ""),
            ("port", "dwc_rootport", "l1_1_cycles", "pciescope_port_l1_1_cycles"),
            ("port", "dwc_rootport", "rx_bytes_per_tlp", "pciescope_port_receive_tlp_bytes"),
            ("port", "dwc_rootport", "link_bytes_per_s", "pciescope_port_link_capacity_bytes_per_second"),
            ("channel", "ali_drw", "read_bytes", "pciescope_dram_read_bytes"),
            ("channel", "ali_drw", "cycles", "pciescope_dram_clock_cycles"),
            ("channel", "ali_drw", "peak_share", "pciescope_dram_peak_ratio"),
            ("channel", "ali_drw", "peak_bytes_per_s", "pciescope_dram_peak_bytes_per_second"),
            ("channel", "imx93_ddr", "write_bytes_per_s", "pciescope_dram_write_bytes"),
            ("pmu", "nvidia_pcie", "dma_read_s", "pciescope_pmu_dma_read_seconds"),
            ("port", "kernel", "rx_bytes", "pciescope_port_kernel_receive_bytes"),
            ("function", "kernel", "rx_bytes", "pciescope_device_receive_bytes"),
            ("function", "kernel", "disk_tx_bytes", "pciescope_device_disk_tx_bytes"),
            ("function", "kernel", "interrupts", "pciescope_device_interrupts"),
            ("function", "kernel", "interrupts_per_s", ""),
            ("function", "kernel", "aer_errors", ""),
            ("function", "kernel", "link_bytes_per_s", "pciescope_device_link_capacity_bytes_per_second"),
        ] {
            let rule = of(scope, kind, figure);
            assert_eq!(name(&rule), expected, "{figure}: {rule:?}");
        }
        assert!(matches!(of("pmu", "nvidia_pcie", "dma_read_s"), Rule::Gauge(_, factor) if factor == 1e-9));
        assert!(
            matches!(of("port", "dwc_rootport", "l0_share"), Rule::State(_, state, factor) if state == "l0" && factor == 0.01)
        );
        assert!(matches!(of("channel", "imx93_ddr", "write_bytes_per_s"), Rule::Rate(..)));
    }

    #[test]
    fn every_figure_of_the_catalogue_has_a_name_that_prometheus_takes() {
        for kind in Catalogue::builtin().kinds() {
            let scope = match kind.what {
                What::PcieRootPort => "port",
                What::DramChannel => "channel",
                What::PciFunction => "function",
                _ => "pmu",
            };
            let mut types: BTreeMap<String, (Type, &str)> = BTreeMap::new();
            for figure in kind.events.keys().chain(kind.metrics.iter().map(|metric| &metric.name)) {
                let rule = of(scope, &kind.id, figure);
                let (Rule::Sum(family, _) | Rule::Rate(family, _) | Rule::State(family, ..) | Rule::Gauge(family, _)) =
                    &rule
                else {
                    assert!(!matches!(rule, Rule::Named(_)), "{}: {figure}: {rule:?}", kind.id);
                    continue;
                };
                let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
                assert!(family.name.chars().all(is_plain) && !family.name.contains("__"), "{family:?}");
                assert!(!family.name.ends_with("_total") && !family.help.is_empty(), "{family:?}");
                assert!(family.unit.is_empty() || family.name.ends_with(&format!("_{}", family.unit)), "{family:?}");
                let before = types.insert(family.name.clone(), (family.of, family.unit));
                assert!(before.is_none_or(|before| before == (family.of, family.unit)), "{}: {family:?}", kind.id);
                // Two figures in one sum would count double.
                assert!(before.is_none() || matches!(rule, Rule::State(..)), "{}: {figure}: {family:?} twice", kind.id);
            }
        }
    }
}
