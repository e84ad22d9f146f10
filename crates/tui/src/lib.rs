//! Turns records into a live view on a terminal: a [`Model`] keeps the figures, a [`State`] keeps what the user looks
//! at, and [`draw`] makes a screen from both.
//!
//! Nothing here reads hardware, files or the clock, and nothing writes to a terminal: the screens of a recorded run are the
//! same on every machine. Strings of records are hostile and pass [`text::clean`] on their way to the screen.
//!
//! # Where to change what
//!
//! A view is one file in `draw/`. What keys do is in `state.rs`, with `draw/help.rs` and docs/top.md. The expected
//! screens are tests/screens/*.txt of this crate.
#![forbid(unsafe_code)]

pub mod bars;
mod draw;
pub mod model;
pub mod state;
pub mod text;
pub mod theme;
mod tree;

pub use draw::{draw, page};
pub use model::Model;
pub use ratatui;
pub use state::{Action, Origin, State};
pub use theme::Theme;
