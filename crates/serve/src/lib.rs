//! Turns records into a Prometheus exporter and a live web page.
//!
//! It reads only records and the inventory of the machine that its caller passes in. It cannot measure, and no request
//! changes anything.
//!
//! # Where to change what
//!
//! - `state.rs` keeps sums and history. `series.rs` names metric families from the catalogue; `metrics.rs` writes them
//!   and has the server's own (docs/serve.md).
//! - `answer.rs` and `server.rs` speak HTTP. `slots.rs` says which connection makes room for a new one. `access.rs` says who may read, `reload.rs` follows the files of that.
//! - A key of the configuration: `config.rs`, docs/serve.md, packaging/systemd/web.yml.
//! - The live page: `page/` with `known.js` (what the feed says), `chart.js`, `page.js` (table, zoom, switches). Its
//!   test is tests/browser/tests/browser_live.rs; there `src/browser.rs` speaks WebDriver and `src/stage.rs` serves the
//!   page.
#![forbid(unsafe_code)]

mod access;
mod answer;
pub mod config;
pub mod feed;
mod instance;
pub mod metrics;
pub mod page;
mod reload;
pub mod replay;
mod series;
pub mod server;
mod slots;
pub mod state;

pub use server::{Options, Server};
pub use state::{Setup, State};
