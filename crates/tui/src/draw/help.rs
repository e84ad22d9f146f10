//! The keys, and what marks mean.

use ratatui::style::Style;

use super::Pen;
use crate::state::State;

/// Keys and what they do; docs/top.md has the same table, and a test holds one against the other.
pub const KEYS: [(&str, &str); 19] = [
    ("q F10 Ctrl-C", "quit"),
    ("? h F1", "this help"),
    ("Tab 1-5", "next view; Overview, Links, DRAM, Counters, Warnings"),
    ("Up Down j k", "choose a row, or scroll; also PgUp PgDn Home End"),
    ("Enter", "zoom on the chosen port or function; again: back"),
    ("Esc", "back: out of help, zoom, filter, view"),
    ("/ F4", "filter: words that address, driver, name, PMU or node must have"),
    ("s > F6", "sort ports by the next of busiest, address, rx, tx, rx+tx, % of link, errors"),
    ("<", "sort by the one before"),
    ("r", "turn the order around"),
    ("t", "show or hide the devices below ports"),
    ("a", "show or hide functions for which nothing counts"),
    ("p Space", "pause and go on; counters are read on meanwhile"),
    (", . Left Right", "one interval back or on (pauses)"),
    ("+ -", "replay twice or half as fast"),
    ("F5", "read the machine's functions again"),
    ("Ctrl-L", "draw the screen anew"),
    ("Ctrl-Z", "suspend (fg comes back)"),
    ("mouse", "click: choose a row, again: zoom; right: back; wheel: scroll; Shift: select text"),
];

const MARKS: [&str; 10] = [
    "EMULATED figures are those of an emulator or a guest; dim: idle, less than 1 kB/s",
    "RX arrives at the root port (a device writes memory), TX leaves it: bytes of payload.",
    "%      of what the link can carry as it is now, payload, one direction",
    "~      scaled to the whole interval: counters took turns",
    ">      at least: a counter reached its end",
    "-      not counted     ?  no number",
    "LINK   GT/s and lanes; ! slower or narrower than both ends can do (< what they can)",
    "STATE% the link state with the most time, percent of the time (--metric states)",
    "ERR    errors of the link's layers since the beginning",
    "HISTORY one interval a column, full height the largest shown",
];

/// Draws the help.
pub fn draw(pen: &mut Pen<'_>, state: &State) {
    let mut lines: Vec<(String, Style)> = vec![("Keys".to_owned(), pen.theme.title())];
    lines.extend(KEYS.iter().map(|(keys, what)| (format!("  {keys:<15} {what}"), Style::new())));
    lines.push(("Marks".to_owned(), pen.theme.title()));
    lines.extend(MARKS.iter().map(|mark| (format!("  {mark}"), Style::new())));
    pen.lines(&lines, state.scroll);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_the_same_keys() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/top.md");
        let document = std::fs::read_to_string(path).expect("docs/top.md is there");
        let rows = document.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | "));
        assert_eq!(rows.collect::<Vec<_>>(), KEYS);
    }
}
