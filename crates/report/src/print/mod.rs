//! Records for a reader: on a terminal, as Markdown, as a picture.

pub mod markdown;
pub mod picture;
pub mod terminal;
