//! What counters of a link's ends count beside AER, such as those of RAS D.E.S.: errors, replays, and the payload of TLPs.

use std::collections::BTreeMap;

use pciescope_core::soak::CountedEvent;
use pciescope_core::{Bdf, Metric};
use pciescope_hw::Root;

use super::ENDS;
use crate::counters::{self, Choice, Origin, Panel, Place, Quantity, Session, Wanted};

/// Metrics of the catalogue: a port's payload each way, and errors.
const WAYS: [&str; 2] = ["rx_bytes_per_s", "tx_bytes_per_s"];
pub(super) const ERRORS: [&str; 4] = ["layer1_errors", "layer2_errors", "naks", "retries"];

/// The counters of both ends, of one, or none.
pub struct Beside {
    root: Root,
    session: Session,
    /// Each with the place of its end.
    panels: Vec<(usize, Panel)>,
}

impl Beside {
    /// Opens those of errors, and of payload if that is wanted, and lets them count; `None` where there are none, or they cannot
    /// be opened.
    pub fn open(root: &Root, ends: &[Bdf], with_payload: bool) -> Option<Beside> {
        let ways = WAYS.iter().filter(|_| with_payload);
        let metrics = ways.chain(&ERRORS).map(|name| (*name).to_owned()).collect();
        let places = vec![Place::Function(*ends.last()?)];
        let choice =
            counters::choose_present(root, &Wanted { places, metrics, origin: Origin::Hardware, ..Wanted::default() });
        let choice = choice.ok()?;
        // Of several PMUs of a function each counts all of it.
        let of = |end: &Bdf| {
            let is_own = |panel: &Panel| panel.function.as_ref().is_some_and(|function| function.bdf == Some(*end));
            choice.panels.iter().position(is_own)
        };
        let both = ends.iter().enumerate().filter_map(|(number, end)| Some((number, of(end)?)));
        let (ends, places): (Vec<usize>, Vec<usize>) = both.unzip();
        let Choice { instruments, panels, .. } = choice.only(&places);
        let mut session = Session::open(root, instruments).ok()?;
        session.start(root);
        session.is_open().then(|| Beside {
            root: root.clone(),
            session,
            panels: ends.into_iter().zip(panels).collect(),
        })
    }

    /// Reads them, and which have reached their highest value.
    pub fn read(&mut self) {
        self.session.read();
        self.session.refresh(&self.root);
    }

    /// What they came to since they were opened, by name: errors of each end, and the bits of payload. Payload of both ways may
    /// take turns; then the sum is scaled.
    pub fn metrics(&self) -> BTreeMap<String, Metric> {
        let metric = |Quantity { value, running, at_least, .. }, per, unit| Metric {
            running,
            at_least,
            ..Metric::of(value * per, unit)
        };
        let mut all = BTreeMap::new();
        for (number, (end, panel)) in self.panels.iter().enumerate().rev() {
            let amount = |name| counters::amount(panel, name, self.session.tallies(number));
            for name in ERRORS {
                all.extend(amount(name).map(|count| (format!("{}_{name}", ENDS[*end]), metric(count, 1.0, "1"))));
            }
            let payload = amount(WAYS[0]).zip(amount(WAYS[1])).map(|(rx, tx)| metric(rx.plus(tx), 8.0, "bits"));
            all.extend(payload.map(|bits| ("tlp_payload_bits".to_owned(), bits)));
        }
        all
    }

    /// Each error that they counted, those of lanes by their lane.
    pub fn events(&self) -> Vec<CountedEvent> {
        let mut all = Vec::new();
        for (number, (_, panel)) in self.panels.iter().enumerate() {
            let (Some(kind), Some(bdf)) = (panel.kind, panel.function.as_ref().and_then(|one| one.bdf)) else {
                continue;
            };
            for quantity in panel.quantities.iter().filter(|quantity| quantity.unit == "1") {
                let is_of_lanes = kind.events.get(&quantity.name).is_some_and(|event| event.each.is_some());
                for (lane, (place, _)) in quantity.parts.iter().enumerate() {
                    let tally = &self.session.tallies(number)[*place];
                    let Some(count) = tally.count().filter(|count| *count > 0.0) else { continue };
                    let (event, lane) = (quantity.name.clone(), is_of_lanes.then_some(lane as u8));
                    all.push(CountedEvent { bdf, event, lane, count: count as u64, at_least: tally.at_least });
                }
            }
        }
        all
    }
}
