//! Checks: errors that were counted, and error bits that nobody has cleared.

use std::collections::BTreeMap;

use pciescope_core::{Evidence, Severity};

use super::aspm;
use super::case::{Case, Found, Unseen, Verdict, fine, found, not_applicable, not_checked, seen};
use crate::express::{EXT_AER, PortType};
use crate::inventory::{CORRECTABLE, FATAL, MESSAGES, NONFATAL, error_counts};
use crate::pci;

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

/// A finding of errors that a file counts, with what the kernel's log leaves out of them: since Linux 6.16 it limits all but
/// the fatal ones.
fn with_log_limit(case: &Case, file: &str, mut found: Found) -> Found {
    let limit = |what: &str| format!("{}_ratelimit_{what}", file.replace("aer_dev_", "aer/"));
    let number = |what: &str| case.machine.root.number(case.path(&limit(what)));
    if let (Some(burst), Some(ms @ 1..)) = (number("burst"), number("interval_ms")) {
        found.evidence.push(case.seen(&limit("burst")));
        let limits = format!("the kernel's log has {burst} of them in {} s at most", ms as f64 / 1e3);
        found.remedy = format!("{}; {limits}: count them in {file}, not there", found.remedy);
    }
    found
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

/// What a root port got and no function below it, nor itself, counted: messages of that severity, and what is known of them.
fn unclaimed(case: &Case, severity: usize) -> Option<Found> {
    let (words, file) = (["correctable", "non-fatal", "fatal"][severity], MESSAGES[severity]);
    let got = case.machine.root.number(case.path(file))?;
    let claimed = family_sum(case, |one| {
        error_counts(case.machine.root, one.bdf, [CORRECTABLE, NONFATAL, FATAL][severity])
            .map_or(0, |counts| counts.values().fold(0, |sum: u64, count| sum.saturating_add(*count)))
    });
    let more = got.checked_sub(claimed).filter(|more| *more > 0)?;
    Some(Found {
        severity: Severity::Warning,
        text: format!("{}: {more} {words} errors since boot that no function counted", case.bdf),
        evidence: vec![case.seen(file), seen(&format!("counted by {} and all below it", case.bdf), &claimed.to_string())],
        consequence: "a device below sends error messages, and the kernel does not find it or its error; one that was unplugged took its counts with it"
            .to_owned(),
        remedy: format!(
            "{}journalctl -k -g AER names the sender; --watch 60s shows whether they grow",
            awake_first(case)
        ),
    })
}

fn family_sum(root_port: &Case, count: impl Fn(&Case) -> u64) -> u64 {
    root_port.family().fold(0, |sum, one| sum.saturating_add(count(&one)))
}

/// What comes before all other cures on a link that sleeps.
fn awake_first(case: &Case) -> String {
    let off = |bdf| {
        format!(
            "first switch ASPM off at this link (echo 0 > {}/link/l0s_aspm, and l1_aspm) and watch again; ",
            pci::folder(bdf).display()
        )
    };
    aspm::sleeper(case).map_or_else(String::new, off)
}

/// The cure of a link that repeats packets.
fn steady(case: &Case) -> String {
    format!(
        "{}{}, check riser, cable and cooling; if the slot set one speed lower is without them, the signal is too weak for more",
        awake_first(case),
        case.machine.reseat()
    )
}

pub fn correctable(case: &Case) -> Verdict {
    let mut all: Vec<Found> = unclaimed(case, 0).into_iter().collect();
    let counts = match counts(case, CORRECTABLE) {
        Err(why) if all.is_empty() => return Err(why),
        counts => counts.unwrap_or_default(),
    };
    let Some((words, sum)) = words(&counts) else { return Ok(all) };
    let is_repeated = counts.iter().any(|(name, count)| *count > 0 && REPLAYS.contains(&name.as_str()));
    let (consequence, remedy) = if is_repeated {
        ("each was repaired by sending again, which costs time; many of them foretell a failing link", steady(case))
    } else {
        // NonFatalErr is an advisory one: the receiver left it to the requester (6.2.3.2.4).
        (
            "no packet was sent again: a request was refused and its sender knows (NonFatalErr), or the device mended itself",
            "journalctl -k -g AER says which; a driver or firmware fault more often than a bad link".to_owned(),
        )
    };
    let found = Found {
        severity: Severity::Warning,
        text: format!("{}: {sum} correctable errors since boot", case.bdf),
        evidence: evidence(case, CORRECTABLE, &words),
        consequence: consequence.to_owned(),
        remedy: format!("see with --watch 60s whether they grow; then {remedy}"),
    };
    all.push(with_log_limit(case, CORRECTABLE, found));
    Ok(all)
}

pub fn nonfatal(case: &Case) -> Verdict {
    let (effect, cure) = (
        "each is a transaction that was lost or refused: wrong data, all-ones or a timeout",
        "journalctl -k -g AER says which transactions; a driver or firmware fault more often than a bad link",
    );
    uncorrected(case, 1, (NONFATAL, "non-fatal"), (effect, cure))
}

pub fn fatal(case: &Case) -> Verdict {
    let (effect, cure) = (
        "the link was reset, and what was under way is lost",
        "journalctl -k -g AER; reseat or replace the card, update its firmware",
    );
    uncorrected(case, 2, (FATAL, "fatal"), (effect, cure))
}

/// Errors that were not repaired: those that a function counted, and those that nobody did.
fn uncorrected(case: &Case, severity: usize, (file, name): (&str, &str), (effect, cure): (&str, &str)) -> Verdict {
    let mut all: Vec<Found> = unclaimed(case, severity).into_iter().collect();
    let counts = match counts(case, file) {
        Err(why) if all.is_empty() => return Err(why),
        counts => counts.unwrap_or_default(),
    };
    let counted = words(&counts).map(|(words, sum)| Found {
        severity: Severity::Problem,
        text: format!("{}: {sum} {name} errors since boot", case.bdf),
        evidence: evidence(case, file, &words),
        consequence: effect.to_owned(),
        remedy: cure.to_owned(),
    });
    all.extend(counted.map(|found| with_log_limit(case, file, found)));
    Ok(all)
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
    // What the root port got in that time, less what was counted below it.
    let got = case.machine.root.number(case.path(MESSAGES[0])).zip(earlier.messages.get(&case.bdf));
    let more = got.map_or(0, |(now, before)| now.saturating_sub(*before));
    let claimed = family_sum(case, |one| {
        let now = error_counts(case.machine.root, one.bdf, CORRECTABLE).unwrap_or_default();
        let before = earlier.correctable.get(&one.bdf);
        now.iter().map(|(name, count)| count.saturating_sub(*before.and_then(|all| all.get(name)).unwrap_or(&0))).sum()
    });
    let mut grown: BTreeMap<String, u64> = now.iter().filter_map(grown).collect();
    grown.insert("messages that no function counted".to_owned(), more.saturating_sub(claimed));
    let Some((words, sum)) = words(&grown) else { return fine() };
    let rate = sum as f64 / time.as_secs_f64().max(1e-9);
    found(Found {
        severity: Severity::Problem,
        text: format!("{}: {sum} replays and bad packets in {} ({rate:.1} a second)", case.bdf, seconds(time)),
        evidence: evidence(case, CORRECTABLE, &format!("{words} more")),
        consequence: "each packet that is sent again delays all that follow by microseconds",
        remedy: steady(case),
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
    // Enumeration leaves a non-fatal one behind on healthy machines.
    let before = case.machine.earlier.and_then(|(earlier, _)| earlier.device_status.get(&case.bdf));
    let is_new = before.is_some_and(|before| status & !before & (NONFATAL_DETECTED | FATAL_DETECTED) != 0);
    let severity = if is_new || status & FATAL_DETECTED != 0 { Severity::Warning } else { Severity::Note };
    let when = if is_new { "while it was watched" } else { "that nobody has cleared" };
    found(Found {
        severity,
        text: format!("{} has seen {what} {when}", case.bdf),
        evidence: vec![case.register("DevSta", express.at + 0x0a, status)],
        consequence: if is_new {
            "something below fails or asks for what is not there"
        } else {
            "it says nothing about when; a probe of an address that nobody answers is a common, harmless cause"
        },
        remedy: format!("setpci -s {} CAP_EXP+0a.w=000f clears it; look whether it comes back (--watch 60s)", case.bdf),
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
