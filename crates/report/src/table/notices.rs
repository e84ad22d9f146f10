//! Warnings and errors at the end, where they are read, each once with its hint.

use super::Page;
use crate::model;
use crate::text::clean;
use pciescope_core::Record;

pub fn write(out: &mut Page, records: &[Record]) {
    let notices = model::notices(records);
    if notices.is_empty() {
        return;
    }
    out.line("");
    for n in &notices {
        let times = if n.count > 1 { format!(" ({} records)", n.count) } else { String::new() };
        let word = if n.is_error { "error" } else { "warning" };
        out.line(&format!("{word}: {} [{}]{times}", clean(&n.text), clean(&n.code)));
        if let Some(hint) = &n.hint {
            out.line(&format!("  hint: {}", clean(hint)));
        }
    }
}
