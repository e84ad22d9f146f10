//! Conclusions from the findings of `doctor`.

use std::collections::BTreeSet;

use pciescope_core::Severity;

use super::verdict::{Conclusions, Place, are, quoted};
use crate::model::Section;
use crate::text::counted;

pub(super) fn doctor(out: &mut Conclusions, number: usize, section: &Section) {
    let place = Place::Section(number);
    let all = || section.records.iter().flat_map(|record| &record.findings);
    let mut worst: Vec<_> = all().filter(|f| !f.silenced && f.severity != Severity::Note).collect();
    worst.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    for finding in &worst {
        let about = finding.bdf.map(|bdf| bdf.to_string()).filter(|bdf| !finding.text.contains(bdf.as_str()));
        let about = about.map(|bdf| format!("{bdf}: ")).unwrap_or_default();
        let (word, rank) = if finding.severity == Severity::Problem { ("Problem", 1) } else { ("Warning", 4) };
        out.doubt(
            rank,
            place,
            format!("{word} {} by doctor: {about}{}", quoted(&finding.check), quoted(&finding.text)),
        );
        if !finding.remedy.is_empty() {
            out.advise(rank + 1, place, format!("{about}{}", quoted(&finding.remedy)));
        }
    }
    let silenced = all().filter(|finding| finding.silenced).count();
    // Such a warning begins with the name of its check.
    let warnings = section.records.iter().flat_map(|record| &record.warnings).filter(|w| w.code == "not-checked");
    let blind: BTreeSet<&str> = warnings.map(|w| w.text.split(':').next().unwrap_or_default()).collect();
    let checks = section.sum("checks").map(|checks| format!(" in {checks:.0} checks")).unwrap_or_default();
    let found = format!("doctor found no problem and nothing to warn of{checks}");
    match (worst.is_empty(), blind.len(), silenced) {
        (true, 0, 0) => out.good(number, format!("{found}.")),
        (true, blind, silenced) => {
            out.doubt(6, place, format!("{found}; {blind} could not look everywhere, {silenced} silenced."));
        }
        (false, 0, _) => {}
        (false, blind, _) => {
            out.doubt(6, place, format!("{} of doctor could not look everywhere.", counted(blind, "check")));
        }
    }
    if silenced > 0 {
        out.doubt(6, place, format!("{} silenced by the user of doctor.", are(silenced, "finding", "is")));
    }
}
