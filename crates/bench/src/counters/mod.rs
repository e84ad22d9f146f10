//! Counters of hardware and of the kernel read over time: what to open by the catalogue, readings at absolute times, records by port and
//! channel.
//!
//! [`choose`] says what is to be counted, a session counts it, [`measure`] makes records of it. docs/method.md, "Counters",
//! says what the figures mean.

mod beside;
mod error;
mod events;
mod figures;
mod machine;
mod panel;
mod run;
mod selection;
mod session;
mod tally;
mod warnings;

pub(crate) use figures::{Quantity, amount};
pub(crate) use run::count;
pub(crate) use session::Session;
pub(crate) use warnings::doubts;

pub use beside::beside;
pub use error::Error;
pub use events::{Named, Place, fits, parse_events};
pub use machine::{Machine, Origin};
pub use panel::{Counted, Panel, ResolvedMetric};
pub use run::{Host, TEST, Task, measure};
pub use selection::{Choice, VECTORS, Wanted, absent, choose, choose_present};
pub use session::{Counter, Instrument};
