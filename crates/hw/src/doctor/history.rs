//! Links as the recorder has seen them: one that lost bandwidth, or that changed by itself.

use pciescope_core::Severity;

use super::case::{Case, Found, Verdict, fine, found, not_applicable, seen};

/// Where the recorder, `watch` as a service, keeps its records.
pub const RECORDED: &str = "/var/lib/pciescope/watch";

pub fn unsteady(case: &Case) -> Verdict {
    let Some(one) = case.machine.watched.get(&case.bdf) else {
        return not_applicable(format!("no recorder has kept changes of its link in {RECORDED}"));
    };
    if one.lost_bytes == 0.0 && one.unasked() == 0 {
        return fine();
    }
    let times = if one.unasked() == 1 { "once".to_owned() } else { format!("{} times", one.unasked()) };
    let (severity, lost) = match one.lost_bytes {
        0.0 => (Severity::Note, String::new()),
        bytes => (Severity::Warning, format!(", and could have carried {:.2} GB more", bytes / 1e9)),
    };
    found(Found {
        severity,
        text: format!("in 7 days the link of {} changed {times} by itself{lost}", case.bdf),
        evidence: vec![seen(RECORDED, &one.worst)],
        consequence: "it may be well whenever somebody looks, and slow or gone in between",
        remedy: format!(
            "pciescope report {RECORDED}/*.jsonl shows when and why; {}, check riser, cable and cooling",
            case.machine.reseat()
        ),
    })
}
