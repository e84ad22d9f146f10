//! Payload of TLPs on the link of a soak, where a counter of the port gives it.

use pciescope_core::Bdf;
use pciescope_core::record::Metric;
use pciescope_hw::Root;

use crate::counters::{self, Origin, Panel, Place, Quantity, Session, Wanted};

/// The counters of a port's payload, both ways.
pub struct Payload {
    session: Session,
    panel: Panel,
}

impl Payload {
    /// Opens them and lets them count; `None` where there are none, or they cannot be opened.
    pub fn open(root: &Root, port: Bdf) -> Option<Payload> {
        let metrics = WAYS.map(str::to_owned).to_vec();
        let wanted =
            Wanted { places: vec![Place::Function(port)], metrics, origin: Origin::Hardware, ..Wanted::default() };
        let choice = counters::choose(root, &wanted).ok()?;
        // Of several PMUs of a port each counts all of it.
        let panel = choice.panels.into_iter().next()?;
        let mut session = Session::open(root, choice.instruments.into_iter().take(1).collect()).ok()?;
        session.start(root);
        session.is_open().then_some(Payload { session, panel })
    }

    /// Reads them: the bits of payload since they were opened. They may take turns; then the sum is scaled.
    pub fn bits(&mut self) -> Option<Metric> {
        self.session.read();
        let amount = |way| counters::amount(&self.panel, way, self.session.tallies(0));
        let Quantity { value, running, at_least, .. } = amount(WAYS[0])?.plus(amount(WAYS[1])?);
        Some(Metric { running, at_least, ..Metric::of(value * 8.0, "bits") })
    }
}

/// Metrics of the catalogue.
const WAYS: [&str; 2] = ["rx_bytes_per_s", "tx_bytes_per_s"];
