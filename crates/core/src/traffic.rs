//! The traffic and the errors of PCIe ports: which port is idle, whose bytes count once, and what one error is. Tables,
//! pages, `top` and `/metrics` ask here.

use std::collections::BTreeSet;

use crate::record::ACCOUNTING;
use crate::{Bdf, Function, Instance};

/// Below this rate, in bytes per second of both directions together, next to nothing passes a port.
const IDLE_BYTES_PER_S: f64 = 1e3;

/// Whether next to nothing passes a port, from it and to it in bytes per second, and it counted no error. A port of
/// which neither is known is not idle.
pub fn is_idle(rates: [Option<f64>; 2], errors: Option<f64>) -> bool {
    let is_known = errors.is_some() || rates.iter().any(Option::is_some);
    is_known && rates.into_iter().flatten().sum::<f64>() < IDLE_BYTES_PER_S && errors.is_none_or(|count| count == 0.0)
}

/// One kind of error of a link: an event that several counters see.
struct LinkError {
    /// Physical 1, data link 2, transaction 3; 0 for what functions report by AER.
    layer: u8,
    /// Counters that see it, each at most once.
    seen_by: &'static [&'static str],
    /// Counters of what follows from it, for PMUs that have none of the others.
    follows: &'static [&'static str],
}

const fn error(layer: u8, seen_by: &'static [&'static str], follows: &'static [&'static str]) -> LinkError {
    LinkError { layer, seen_by, follows }
}

/// All kinds of errors of a link, by the names of catalogue/.
const LINK_ERRORS: [LinkError; 26] = [
    error(1, &["ebuf_overflow"], &[]),
    error(1, &["ebuf_underrun"], &[]),
    error(1, &["decode_error"], &[]),
    error(1, &["running_disparity_error"], &[]),
    error(1, &["skp_os_parity_error"], &[]),
    error(1, &["sync_header_error"], &[]),
    error(1, &["rx_valid_deassertion"], &[]),
    error(1, &["ctl_skp_os_parity_error"], &[]),
    error(1, &["retimer1_parity_error"], &[]),
    error(1, &["retimer2_parity_error"], &[]),
    error(1, &["margin_crc_parity_error"], &[]),
    error(1, &["receiver_error"], &[]),
    error(1, &["n_fts_timeout"], &[]),
    error(1, &["framing_error", "framing_error_in_l0"], &[]),
    error(1, &["deskew_error", "deskew_uncompleted_error"], &[]),
    // A TLP arrived with a wrong CRC or number, and the port sent a NAK.
    error(2, &["bad_tlp", "lcrc_error", "tx_nak_dllp"], &[]),
    // The other end got a bad TLP: its NAK arrived, and the port sent the TLP again, with all behind it.
    error(2, &["rx_nak_dllp"], &["retry_tlp"]),
    error(2, &["bad_dllp"], &[]),
    // After the fourth repetition the link is retrained.
    error(2, &["replay_timeout"], &["replay_num_rollover"]),
    error(3, &["fc_timeout"], &[]),
    error(3, &["poisoned_tlp"], &[]),
    error(3, &["ecrc_error"], &[]),
    error(3, &["unsupported_request"], &[]),
    error(3, &["completer_abort"], &[]),
    error(3, &["completion_timeout"], &[]),
    error(0, &["aer_errors"], &[]),
];

/// The sums by layer, for records that hold nothing else. One fault counts in several of a layer.
const SUMS: [(u8, &[&str]); 4] = [
    (0, &[]),
    (1, &["layer1_errors"]),
    // What repairs an error is no other error.
    (2, &["layer2_errors", "naks", "retries"]),
    (3, &["layer3_errors"]),
];

/// All kinds of errors of a link: the counters that see one of them.
pub fn link_errors() -> impl Iterator<Item = &'static [&'static str]> {
    LINK_ERRORS.iter().map(|error| error.seen_by)
}

/// The counters that [`errors`] asks for, or [`errors_of_layer`] for a layer.
pub fn error_counters(layer: Option<u8>) -> impl Iterator<Item = &'static str> {
    let is_meant = move |of: u8| layer.is_none_or(|layer| layer == of);
    let of_layer = LINK_ERRORS.iter().filter(move |error| is_meant(error.layer));
    let events = of_layer.flat_map(|error| error.seen_by.iter().chain(error.follows));
    events.chain(SUMS.iter().filter(move |(of, _)| is_meant(*of)).flat_map(|(_, sums)| *sums)).copied()
}

/// Errors of a link, each event once, by the finite counts over one time; `None` where nothing counts errors.
pub fn errors(count: impl Fn(&str) -> Option<f64>) -> Option<f64> {
    (0..=3).filter_map(|layer| errors_of_layer(layer, &count)).reduce(|a, b| a + b)
}

/// As [`errors`], of the physical layer (1), the data link layer (2) or the transaction layer (3).
pub fn errors_of_layer(layer: u8, count: impl Fn(&str) -> Option<f64>) -> Option<f64> {
    let most = |names: &[&str]| {
        let known = names.iter().filter_map(|name| count(name)).filter(|count| count.is_finite());
        known.reduce(f64::max)
    };
    let of_layer = LINK_ERRORS.iter().filter(|error| error.layer == layer);
    let known = of_layer.filter_map(|error| most(error.seen_by).or_else(|| most(error.follows)));
    let sums = SUMS.iter().find(|(of, _)| *of == layer);
    known.reduce(|a, b| a + b).or_else(|| most(sums?.1))
}

/// Who counted at a port or a function.
#[derive(Debug, Clone, Copy, Default)]
pub struct CountedBy<'a> {
    /// `port`, `function` or another one of records.
    pub scope: &'a str,
    /// The source of the counts, as in records; `None` if hardware counts.
    pub origin: Option<&'a str>,
    /// The port or function.
    pub function: Option<&'a Function>,
}

impl<'a> CountedBy<'a> {
    /// Who counted the figures of a record.
    pub fn of(instance: Option<&'a Instance>, function: Option<&'a Function>) -> Self {
        let (scope, origin) = instance.map_or(("", None), |one| (one.scope.as_str(), one.source.as_deref()));
        CountedBy { scope, origin, function }
    }

    /// Whether the kernel counted, and not hardware: the bytes are a lower bound.
    pub fn is_accounting(&self) -> bool {
        self.origin == Some(ACCOUNTING)
    }

    /// Whether nothing above it counts the same bytes: it is no function, or one on a root bus.
    pub fn is_at_root(&self) -> bool {
        !self.scope.is_empty() && (self.scope != "function" || self.function.is_some_and(|one| one.path.is_empty()))
    }

    fn bdf(&self) -> Option<Bdf> {
        self.function?.bdf
    }
}

/// The ports of which hardware counts the traffic.
#[derive(Debug, Clone, Default)]
pub struct HardwarePorts(BTreeSet<Bdf>);

impl HardwarePorts {
    /// Of all that count.
    pub fn among<'a>(all: impl Iterator<Item = CountedBy<'a>>) -> Self {
        let ports = all.filter(|one| one.scope == "port" && !one.is_accounting());
        HardwarePorts(ports.filter_map(|one| one.bdf()).collect())
    }

    /// Whether the kernel counted what hardware counted too.
    pub fn is_second(&self, one: CountedBy<'_>) -> bool {
        one.is_accounting() && one.bdf().is_some_and(|bdf| self.0.contains(&bdf))
    }

    /// Whether the bytes can be added to those of others: nothing above it and no hardware at the same port counts them.
    pub fn counts_once(&self, one: CountedBy<'_>) -> bool {
        one.is_at_root() && !self.is_second(one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_idle_below_a_thousand_bytes_per_second_and_without_errors() {
        let is = |rx, tx, errors| is_idle([rx, tx], errors);
        assert!(is(Some(400.0), Some(599.0), None) && is(Some(0.0), None, Some(0.0)) && is(None, None, Some(0.0)));
        assert!(!is(Some(400.0), Some(600.0), None) && !is(Some(0.0), Some(0.0), Some(1.0)));
        assert!(!is(None, None, None) && !is(Some(f64::NAN), None, None));
    }

    #[test]
    fn one_event_is_one_error_however_many_counters_see_it() {
        let of = |counts: &[(&str, f64)]| errors(|name| counts.iter().find(|one| one.0 == name).map(|one| one.1));
        let bad = [("bad_tlp", 7.0), ("lcrc_error", 7.0), ("tx_nak_dllp", 7.0), ("layer2_errors", 14.0), ("naks", 7.0)];
        assert_eq!(of(&bad), Some(7.0));
        let refused =
            [("rx_nak_dllp", 7.0), ("retry_tlp", 9.0), ("retries", 9.0), ("layer2_errors", 0.0), ("bad_tlp", 0.0)];
        assert_eq!(of(&refused), Some(7.0));
        assert_eq!(of(&[&bad[..], &refused[..4]].concat()), Some(14.0));
        assert_eq!(of(&[("retry_tlp", 7.0)]), Some(7.0), "nothing else counts them");
        assert_eq!(of(&[("layer1_errors", 3.0), ("layer2_errors", 4.0), ("naks", 4.0)]), Some(7.0));
        assert_eq!(of(&[("aer_errors", 7.0), ("correctable_errors", 7.0)]), Some(7.0));
        assert_eq!((of(&[("recoveries", 7.0)]), of(&[("bad_tlp", f64::NAN)])), (None, None));
    }

    #[test]
    fn each_counter_stands_once() {
        let all: Vec<&str> = error_counters(None).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }

    #[test]
    fn hardware_and_a_port_above_count_before_the_kernels_account() {
        let at = |bdf: &str, path: &[&str]| Function {
            bdf: bdf.parse().ok(),
            path: path.iter().map(|bdf| bdf.parse().unwrap()).collect(),
            ..Function::default()
        };
        let (port, other, below) =
            (at("0000:00:01.0", &[]), at("0000:00:02.0", &[]), at("0000:01:00.0", &["0000:00:01.0"]));
        let hardware = CountedBy { scope: "port", origin: None, function: Some(&port) };
        let account = CountedBy { origin: Some(ACCOUNTING), ..hardware };
        let alone = CountedBy { function: Some(&other), ..account };
        let function = CountedBy { scope: "function", function: Some(&below), ..account };
        let on_root = CountedBy { scope: "function", ..alone };
        let ports = HardwarePorts::among([hardware, account, alone, function].into_iter());
        assert_eq!(
            [hardware, account, alone, function, on_root, CountedBy::default()].map(|one| ports.counts_once(one)),
            [true, false, true, false, true, false]
        );
        assert!(ports.is_second(account) && !ports.is_second(alone) && !ports.is_second(hardware));
    }
}
