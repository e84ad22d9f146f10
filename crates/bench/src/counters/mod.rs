//! Hardware counters read over time: what to open by the catalogue, readings at absolute times, records by port and
//! channel.
//!
//! [`choose`] says what is to be counted, [`Session`] counts it, [`measure`] makes records of it. docs/method.md, "Counters",
//! says what the figures mean.

mod choose;
mod figures;
mod run;
mod session;

pub use choose::{
    Choice, Counted, Error, Machine, Named, Panel, Place, Wanted, Worked, absent, choose, choose_present, fits,
    parse_events,
};
pub use figures::Figure;
pub use run::{Host, TEST, Task, measure};
pub use session::{Counter, Instrument, Session, Tally};
