//! What could not be counted, and which counts are in doubt, as warnings of records.

use pciescope_core::record::Warning;
use pciescope_core::warning;
use pciescope_hw::perf::{By, Doubt};
use pciescope_hw::{Root, account, pci};

use super::panel::Panel;
use super::session::Session;
use pciescope_core::text::chain;

/// What could not be opened, PMUs with the same lack in one warning.
pub(super) fn not_counted(panels: &[Panel], session: &Session) -> Vec<Warning> {
    let mut lacks: Vec<Lack> = Vec::new();
    for (number, (panel, instrument)) in panels.iter().zip(session.instruments()).enumerate() {
        for (name, why) in &panel.missing {
            Lack::note(&mut lacks, &instrument.pmu.name, name, why.clone(), None);
        }
        for (place, counter) in instrument.counters.iter().enumerate() {
            if let Some(error) = session.refused(number, place) {
                let text = chain(error).replacen(&format!("{}: ", counter.event), "", 1);
                Lack::note(&mut lacks, &instrument.pmu.name, &counter.event.terms, text, error.hint());
            }
        }
    }
    lacks.iter().map(Lack::warning).collect()
}

/// Functions that cannot be understood, so that nothing of them is shown.
pub(super) fn odd_functions(root: &Root) -> impl Iterator<Item = Warning> {
    let odd = pci::functions(root).left_out.into_iter();
    odd.map(|(bdf, error)| warning::NOT_COUNTED.warn(format!("{bdf} is left out: {}", chain(&error))))
}

/// Devices that the kernel counts, and that the accounts leave out so that nothing is counted twice or made up.
pub(super) fn left_out(root: &Root, session: &Session) -> Vec<Warning> {
    let accounts: Vec<_> = session.instruments().filter(|one| one.pmu.by == By::Kernel).collect();
    if accounts.is_empty() {
        return Vec::new();
    }
    let is_counted = |bdf| accounts.iter().any(|one| one.pmu.bdf == Some(bdf));
    let sources = account::sources(root).into_iter().filter(|(bdf, _)| is_counted(*bdf));
    let all = sources.flat_map(|(bdf, sources)| sources.left_out.into_iter().map(move |one| (bdf, one)));
    all.map(|(bdf, (name, why))| {
        warning::NOT_COUNTED
            .hinted(format!("{bdf}: {name}: {why}"), "the figure of the function is still a lower bound")
    })
    .collect()
}

/// What is wrong with the counts of an instrument in this interval: those without a figure, and those that may be too low.
pub(crate) fn doubts(session: &Session, number: usize) -> Vec<Warning> {
    if session.instrument(number).pmu.by == By::Kernel {
        // What has no figure there has no counter.
        return session.account_doubts(number).iter().map(of_account).collect();
    }
    let mut all = Vec::new();
    for (place, (counter, tally)) in session.instrument(number).counters.iter().zip(session.tallies(number)).enumerate()
    {
        if session.refused(number, place).is_some() {
            continue;
        }
        all.extend(tally.doubt().map(|doubt| doubtful(&counter.event.to_string(), doubt)));
        if tally.at_least {
            all.push(warning::SATURATED.warn(format!(
                "{}: the hardware's counter reached its end: the count is at least this",
                counter.event
            )));
        }
    }
    all
}

fn of_account(doubt: &account::Doubt) -> Warning {
    let hint = "the bytes since the last reading are left out: the figure is still a lower bound";
    doubt.kind.hinted(&doubt.text, hint)
}

fn doubtful(event: &str, doubt: Doubt) -> Warning {
    let hint = match doubt {
        Doubt::Backwards | Doubt::Impossible => {
            "end the other session that resets it, or use the module of this project"
        }
        Doubt::NeverRan | Doubt::NotEnabled => "count fewer events at once, or stop other programs that count here",
    };
    doubt.kind().hinted(format!("{event}: {}", doubt.text()), hint)
}

/// What could not be counted for one reason.
struct Lack {
    why: String,
    hint: Option<String>,
    pmus: Vec<String>,
    events: Vec<String>,
}

impl Lack {
    fn note(all: &mut Vec<Lack>, pmu: &str, event: &str, why: String, hint: Option<String>) {
        let place = all.iter().position(|lack| lack.why == why && lack.hint == hint).unwrap_or_else(|| {
            all.push(Lack { why, hint, pmus: Vec::new(), events: Vec::new() });
            all.len() - 1
        });
        let Lack { pmus, events, .. } = &mut all[place];
        for (list, one) in [(pmus, pmu), (events, event)] {
            if !list.iter().any(|known| known == one) {
                list.push(one.to_owned());
            }
        }
    }

    fn warning(&self) -> Warning {
        let more = if self.pmus.len() > 1 { format!(" and {} more", self.pmus.len() - 1) } else { String::new() };
        let hint = self.hint.clone().unwrap_or_else(|| "the other counts are valid; this one is left out".to_owned());
        let text = format!("{}{more}: {}: {}", self.pmus[0], self.events.join(", "), self.why);
        warning::NOT_COUNTED.hinted(text, hint)
    }
}
