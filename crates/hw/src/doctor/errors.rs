//! Checks: errors that were counted, and error bits that nobody has cleared.

use std::collections::BTreeMap;

use pciescope_core::{Evidence, Severity};

use super::case::{Case, Found, Unseen, Verdict, fine, found, not_applicable, not_checked, seen};
use super::registers::{EXT_AER, PortType};
use crate::inventory::{CORRECTABLE, FATAL, NONFATAL, error_counts};

/// `BadTLP 3, Rollover 1`, the largest first, and the sum; `None` where nothing was counted.
fn words(counts: &BTreeMap<String, u64>) -> Option<(String, u64)> {
    let mut some: Vec<(&String, &u64)> = counts.iter().filter(|(_, count)| **count > 0).collect();
    some.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), *name));
    let sum = some.iter().fold(0, |sum: u64, (_, count)| sum.saturating_add(**count));
    let words: Vec<String> = some.iter().map(|(name, count)| format!("{name} {count}")).collect();
    (!some.is_empty()).then(|| (words.join(", "), sum))
}

fn evidence(case: &Case, file: &str, words: &str) -> Vec<Evidence> {
    vec![seen(&case.path(file).to_string_lossy(), words)]
}

/// What the kernel counted in one of its files.
fn counts(case: &Case, file: &str) -> Result<BTreeMap<String, u64>, Unseen> {
    match error_counts(case.machine.root, case.bdf, file) {
        Some(counts) => Ok(counts),
        None => {
            case.file(file)?;
            not_checked(format!("{} is empty", case.path(file).display()), "check whether the device is still there")
        }
    }
}

pub fn correctable(case: &Case) -> Verdict {
    let Some((words, sum)) = words(&counts(case, CORRECTABLE)?) else { return fine() };
    found(Found {
        severity: Severity::Warning,
        text: format!("{}: {sum} correctable errors since boot", case.bdf),
        evidence: evidence(case, CORRECTABLE, &words),
        consequence: "each was repaired by sending again, which costs time; many of them foretell a failing link",
        remedy: "see with --watch 60s whether they grow; then reseat the card, check riser, cable and cooling",
    })
}

pub fn nonfatal(case: &Case) -> Verdict {
    let Some((words, sum)) = words(&counts(case, NONFATAL)?) else { return fine() };
    found(Found {
        severity: Severity::Problem,
        text: format!("{}: {sum} non-fatal errors since boot", case.bdf),
        evidence: evidence(case, NONFATAL, &words),
        consequence: "each is a transaction that was lost or refused: wrong data, all-ones or a timeout",
        remedy: "journalctl -k -g AER says which transactions; a driver or firmware fault more often than a bad link",
    })
}

pub fn fatal(case: &Case) -> Verdict {
    let Some((words, sum)) = words(&counts(case, FATAL)?) else { return fine() };
    found(Found {
        severity: Severity::Problem,
        text: format!("{}: {sum} fatal errors since boot", case.bdf),
        evidence: evidence(case, FATAL, &words),
        consequence: "the link was reset, and what was under way is lost",
        remedy: "journalctl -k -g AER; reseat or replace the card, update its firmware",
    })
}

/// What the kernel calls replays and what causes them (drivers/pci/pcie/aer.c: RxErr, BadTLP, BadDLLP, Rollover, Timeout).
const REPLAYS: [&str; 5] = ["RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout"];

pub fn replay_growth(case: &Case) -> Verdict {
    let now = counts(case, CORRECTABLE)?;
    let Some((earlier, time)) = case.machine.earlier else {
        return not_checked("it needs two readings", "--watch 10s reads twice");
    };
    let Some(before) = earlier.correctable.get(&case.bdf) else {
        return not_checked("its counts were not there at the first reading", "watch once more");
    };
    let grown = |(name, count): (&String, &u64)| {
        let before = before.get(name).copied().unwrap_or(0);
        // A count that is lower than before was reset, with its device: what it shows came since.
        let more = count.checked_sub(before).unwrap_or(*count);
        (REPLAYS.contains(&name.as_str())).then(|| (name.clone(), more))
    };
    let Some((words, sum)) = words(&now.iter().filter_map(grown).collect()) else { return fine() };
    let rate = sum as f64 / time.as_secs_f64().max(1e-9);
    found(Found {
        severity: Severity::Problem,
        text: format!("{}: {sum} replays and bad packets in {} ({rate:.1} a second)", case.bdf, seconds(time)),
        evidence: evidence(case, CORRECTABLE, &format!("{words} more")),
        consequence: "each packet that is sent again delays all that follow by microseconds",
        remedy: "reseat the card, check riser, cable and cooling; set the slot one speed lower to see whether it goes away",
    })
}

fn seconds(time: std::time::Duration) -> String {
    format!("{} s", (time.as_secs_f64() * 10.0).round() / 10.0)
}

// Device Status (7.5.3.5).
const NONFATAL_DETECTED: u16 = 1 << 1;
const FATAL_DETECTED: u16 = 1 << 2;

pub fn latched(case: &Case) -> Verdict {
    let express = case.express()?;
    let status = express.device_status();
    let what = match (status & NONFATAL_DETECTED != 0, status & FATAL_DETECTED != 0) {
        (true, true) => "non-fatal and fatal errors",
        (true, false) => "a non-fatal error",
        (false, true) => "a fatal error",
        (false, false) => return fine(),
    };
    found(Found {
        severity: Severity::Warning,
        text: format!("{} has seen {what} that nobody has cleared", case.bdf),
        evidence: vec![case.register("DevSta", express.at + 0x0a, status)],
        consequence: "it says nothing about when; a probe of an address that nobody answers is a common, harmless cause",
        remedy: format!("setpci -s {} CAP_EXP+0a.w=000f clears it; look whether it comes back", case.bdf),
    })
}

pub fn unreported(case: &Case) -> Verdict {
    if !case.is_bridge() {
        return not_applicable("it is not a root port");
    }
    let express = case.express()?;
    if express.kind() != PortType::RootPort {
        return not_applicable("it is not a root port");
    }
    if case.machine.root.exists(case.path(CORRECTABLE)) {
        return fine();
    }
    let at = case.extended(EXT_AER, "Advanced Error Reporting")?;
    found(Found {
        severity: Severity::Note,
        text: format!("{} can report errors, and the kernel does not count them", case.bdf),
        evidence: vec![
            case.register("AER capability", at, EXT_AER),
            seen(&case.path(CORRECTABLE).to_string_lossy(), "(no such file)"),
            case.register("DevCtl", express.at + 8, express.device_control()),
        ],
        consequence: "a link that repairs itself all the time looks healthy here",
        remedy: "boot without pci=noaer; where the firmware keeps AER to itself, look into its event log (pcie_ports=native overrides it)",
    })
}
