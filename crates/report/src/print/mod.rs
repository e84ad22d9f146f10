//! Facts as text: on a terminal, and as Markdown.

pub mod markdown;
pub mod terminal;
