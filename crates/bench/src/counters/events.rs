//! How places and events are written on the command line: events as perf writes them, with patterns in the PMU's name.

use pciescope_core::Bdf;

/// Where to count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A root port, or a device whose root port is meant.
    Function(Bdf),
    /// PMUs by name; `*` and `?` stand for any letters and any letter.
    Pmus(String),
}

/// An event as it was typed: `dwc_rootport_*/rx_pcie_tlp_data_payload/`, or by its name alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The PMU's name or pattern; `None` for every PMU that has an event of this name.
    pub pmus: Option<String>,
    /// The text between the slashes, or the event's name.
    pub terms: String,
}

/// Parses the argument of `-e`: events as perf writes them, separated by commas. Braces around groups are ignored.
///
/// # Errors
/// Which event is wrong, and why.
pub fn parse_events(text: &str) -> Result<Vec<Named>, String> {
    let mut all = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        rest = rest.trim_start_matches(['{', ' ']);
        let name = &rest[..rest.find([',', '/', '}']).unwrap_or(rest.len())];
        if !rest[name.len()..].starts_with('/') {
            if name.is_empty() || name.contains(|c: char| !c.is_ascii_alphanumeric() && !"_-.".contains(c)) {
                return Err(format!("{name:?} is not the name of an event: write PMU/EVENT/, or EVENT alone"));
            }
            all.push(Named { pmus: None, terms: name.to_owned() });
            rest = rest[name.len()..].trim_start_matches('}').trim_start_matches(',');
            continue;
        }
        let Some((pmus, behind)) = rest.split_once('/') else { break };
        let Some((terms, behind)) = behind.split_once('/') else {
            return Err(format!("{rest:?}: the second / of PMU/EVENT/ is missing"));
        };
        if pmus.is_empty() || terms.trim().is_empty() || pmus.contains(',') {
            return Err(format!("{:?} is not an event of a PMU: write PMU/EVENT/", format!("{pmus}/{terms}/")));
        }
        all.push(Named { pmus: Some(pmus.to_owned()), terms: terms.trim().to_owned() });
        let behind = behind.trim_start_matches('}');
        rest = match behind.strip_prefix(',') {
            Some(more) => more,
            None if behind.trim().is_empty() => "",
            None => {
                return Err(format!("{behind:?} after {pmus}/{terms}/: these counters have no modifiers"));
            }
        };
    }
    if all.is_empty() { Err("write PMU/EVENT/".to_owned()) } else { Ok(all) }
}

/// Whether a name matches a pattern: `*` stands for any letters, `?` for one.
pub fn fits(pattern: &str, name: &str) -> bool {
    let mut chars = pattern.chars();
    match chars.next() {
        None => name.is_empty(),
        Some('*') => {
            let rest = chars.as_str();
            name.char_indices().map(|(at, _)| at).chain([name.len()]).any(|at| fits(rest, &name[at..]))
        }
        Some(letter) => {
            let mut of = name.chars();
            of.next().is_some_and(|first| letter == '?' || letter == first) && fits(chars.as_str(), of.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(pmus: &str, terms: &str) -> Named {
        Named { pmus: (!pmus.is_empty()).then(|| pmus.to_owned()), terms: terms.to_owned() }
    }

    #[test]
    fn events_are_taken_as_perf_takes_them() {
        assert_eq!(
            parse_events("dwc_rootport_10/decode_error,lane=3/").unwrap(),
            [named("dwc_rootport_10", "decode_error,lane=3")]
        );
        assert_eq!(
            parse_events("{a_*/x/,b/config=0x2,config1=3/},c/y/").unwrap(),
            [named("a_*", "x"), named("b", "config=0x2,config1=3"), named("c", "y")]
        );
        assert_eq!(parse_events("x_y,a/b/,z").unwrap(), [named("", "x_y"), named("a", "b"), named("", "z")]);
        for bad in ["", "a b", "cycles:u", "a/b", "/b/", "a//", "a/b/u", "a/b/,c:k"] {
            assert!(parse_events(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn patterns_stand_for_letters() {
        assert!(fits("dwc_rootport_*", "dwc_rootport_10"));
        assert!(fits("ali_drw_2?000", "ali_drw_21000"));
        assert!(!fits("ali_drw_2", "ali_drw_21000"));
        assert!(fits("*", "") && !fits("?", ""));
    }
}
