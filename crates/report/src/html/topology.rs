//! The machine as a picture: root ports, switches and devices, with speed, width and traffic on the links between them.

use std::collections::{BTreeMap, BTreeSet};

use pciescope_core::traffic::is_idle;
use pciescope_core::{Bdf, Function, Record};

use super::devices::Device;
use super::{charts, safe};
use crate::chart::{BOX, NARROW, RULE, WIDE, colour, middle_cut};
use crate::drawing::{Anchor, BLACK, CHARACTER, Drawing, GREY, Shape};
use crate::model::{self, Host, Kind};

/// More rows than this make no picture that anyone reads.
const MOST_ROWS: usize = 64;
/// Height of a row.
const ROW: f64 = 44.0;
/// Room for the words of a link.
const LINK: f64 = 148.0;

/// A function, with what leads to it.
#[derive(Default)]
struct Node {
    words: String,
    /// The link above it: speed and width.
    link: Option<String>,
    /// Payload over the link below it, from and to the device, in bytes per second, and whether it is estimated.
    traffic: Option<(f64, f64, bool)>,
    /// The larger direction as a share of what the link carries, 0 to 1.
    share: f64,
    below: BTreeSet<Bdf>,
    has_parent: bool,
}

/// A card with a picture for each machine; nothing where no two functions are known to hang together, and where no traffic
/// was counted: the list of devices says the rest.
pub fn write(page: &mut String, devices: &[Device], hosts: &[Host]) {
    let machines: BTreeSet<Option<usize>> = devices.iter().map(|device| device.host).collect();
    let mut drawn = Vec::new();
    for machine in machines {
        let own: Vec<&Device> = devices.iter().filter(|device| device.host == machine).collect();
        let nodes = nodes(&own);
        if nodes.values().any(|node| node.has_parent) && nodes.values().any(|node| node.traffic.is_some()) {
            let name = machine.filter(|_| hosts.len() > 1).map(|machine| hosts[machine].name.clone());
            drawn.push((name, drawing(&nodes, WIDE), drawing(&nodes, NARROW)));
        }
    }
    if drawn.is_empty() {
        return;
    }
    page.push_str("<section class=\"card\" id=\"topology\">\n<h2>How it hangs together</h2>\n");
    for (name, wide, narrow) in &drawn {
        if let Some(name) = name {
            *page += &format!("<h3>{}</h3>\n", safe(name));
        }
        page.push_str("<div class=\"drawn\">\n");
        charts::draw(page, wide, "Root ports, switches and devices", "wide");
        charts::draw(page, narrow, "Root ports, switches and devices", "narrow");
        page.push_str("</div>\n");
    }
    page.push_str(
        "<p class=\"line\">On each link: transfer rate and lanes; below it the payload from the device (Rx) and to it \
         (Tx) where a port was counted, in the mean. ~: estimated. A line is the thicker, the more of its link is used.</p>\n</section>\n",
    );
}

fn nodes(devices: &[&Device]) -> BTreeMap<Bdf, Node> {
    let mut nodes: BTreeMap<Bdf, Node> = BTreeMap::new();
    let mut parents: BTreeMap<Bdf, Bdf> = BTreeMap::new();
    for function in devices.iter().filter_map(|device| device.function) {
        let Some(bdf) = function.bdf else { continue };
        let node = nodes.entry(bdf).or_default();
        node.words = words(function);
        node.link = super::devices::link(function);
        for pair in function.path.iter().chain([&bdf]).collect::<Vec<_>>().windows(2) {
            parents.insert(*pair[1], *pair[0]);
        }
    }
    for device in devices {
        let Some(port) = device.function.and_then(|function| function.bdf) else { continue };
        for below in device.records.iter().filter_map(|record| record.instance.as_ref()).flat_map(|i| &i.below) {
            parents.entry(below.bdf).or_insert(port);
            let node = nodes.entry(below.bdf).or_default();
            if node.words.is_empty() {
                node.words = below.driver.clone().unwrap_or_else(|| below.name.clone());
            }
        }
        if let Some((traffic, share)) = counted(device) {
            let node = nodes.entry(port).or_default();
            (node.traffic, node.share) = (Some(traffic), share);
        }
    }
    for (child, parent) in parents {
        nodes.entry(child).or_default().has_parent = true;
        nodes.entry(parent).or_default().below.insert(child);
    }
    // A section of a device that no other names stands alone: it is no part of the picture of links.
    let is_wanted = |node: &Node| node.has_parent || !node.below.is_empty() || node.traffic.is_some();
    nodes.retain(|_, node| is_wanted(node));
    nodes
}

fn words(function: &Function) -> String {
    function.driver.clone().filter(|_| function.class >> 8 != 0x0604).unwrap_or_else(|| function.name.clone())
}

/// The mean traffic of a port over its records, and its share of the link.
fn counted(device: &Device) -> Option<((f64, f64, bool), f64)> {
    let hardware = model::hardware_ports(device.records.iter().copied());
    // Of a port that both hardware and the kernel counted, the hardware's figures.
    let is_shown = |record: &&&Record| {
        model::kind(&record.test) == Kind::Counters && !hardware.is_second(model::counted_by(record))
    };
    let records = || device.records.iter().filter(is_shown);
    let mean = |name: &str| {
        let totals = records().filter_map(|record| record.total(name));
        let (sum, count) = totals.fold((0.0, 0), |all, one| (all.0 + one.finite, all.1 + one.known()));
        (count > 0).then(|| sum / count as f64)
    };
    let (rx, tx) = (mean("rx_bytes_per_s"), mean("tx_bytes_per_s"));
    rx.or(tx)?;
    let share = [mean("rx_link_share"), mean("tx_link_share")].into_iter().flatten().fold(0.0, f64::max) / 100.0;
    let is_estimated =
        records().any(|record| record.totals().any(|(.., total)| total.least.is_some_and(|share| share < 1.0)));
    Some(((rx.unwrap_or(0.0), tx.unwrap_or(0.0), is_estimated), share.clamp(0.0, 1.0)))
}

/// A function's place: its row, its column, and the row of what is above it.
struct Placed {
    bdf: Bdf,
    row: usize,
    depth: usize,
    parent: Option<(Bdf, usize)>,
}

fn place(nodes: &BTreeMap<Bdf, Node>, is_indented: bool) -> (Vec<Placed>, usize) {
    fn one(
        nodes: &BTreeMap<Bdf, Node>,
        placed: &mut Vec<Placed>,
        (bdf, depth): (Bdf, usize),
        parent: Option<(Bdf, usize)>,
        next: &mut usize,
        is_indented: bool,
    ) {
        // A file may name a circle.
        if depth > 16 || placed.iter().any(|known| known.bdf == bdf) {
            return;
        }
        let row = *next;
        placed.push(Placed { bdf, row, depth, parent });
        let below = nodes.get(&bdf).map(|node| node.below.clone()).unwrap_or_default();
        if is_indented || below.is_empty() {
            *next += 1;
        }
        for child in below {
            one(nodes, placed, (child, depth + 1), Some((bdf, row)), next, is_indented);
        }
        *next = (*next).max(row + 1);
    }
    let (mut placed, mut next) = (Vec::new(), 0);
    let mut roots: Vec<(&Bdf, &Node)> = nodes.iter().filter(|(_, node)| !node.has_parent).collect();
    // What carries most stands at the top.
    let traffic = |node: &Node| node.traffic.map_or(0.0, |(rx, tx, _)| rx + tx);
    roots.sort_by(|a, b| traffic(b.1).total_cmp(&traffic(a.1)));
    let is_empty = |node: &Node| node.below.is_empty() && is_idle([Some(traffic(node)), None], None);
    let empty = roots.iter().filter(|(_, node)| is_empty(node)).count();
    for (bdf, _) in roots.iter().filter(|(_, node)| !is_empty(node)) {
        one(nodes, &mut placed, (**bdf, 0), None, &mut next, is_indented);
    }
    (placed, empty)
}

fn drawing(nodes: &BTreeMap<Bdf, Node>, width: f64) -> Drawing {
    let deepest = place(nodes, true).0.iter().map(|one| one.depth).max().unwrap_or(0);
    let is_indented = width < WIDE || deepest > 2;
    let (mut placed, empty) = place(nodes, is_indented);
    let left_out = placed.iter().filter(|one| one.row >= MOST_ROWS).count();
    placed.retain(|one| one.row < MOST_ROWS);
    let column = (width - 2.0) / (deepest as f64 + 1.0);
    let indent = if width < WIDE { 14.0 } else { 28.0 };
    // Boxes begin at x; the words of a link stand before a box, or at the right end where rows are indented.
    let x = |depth: usize| if is_indented { depth as f64 * indent } else { depth as f64 * column };
    let y = |row: usize| 4.0 + row as f64 * ROW;
    let wide = |depth: usize| if is_indented { width - LINK - x(depth) } else { (column - LINK).min(260.0) };
    let mut d = Drawing { width, height: 0.0, shapes: Vec::new() };
    for one in &placed {
        let Some((parent, from)) = one.parent else { continue };
        let above = nodes.get(&parent);
        let share = above.map_or(0.0, |node| node.share);
        let traffic = above.and_then(|node| node.traffic).filter(|_| one.depth == 1);
        let is_busy = traffic.is_some_and(|(rx, tx, _)| !is_idle([Some(rx), Some(tx)], None));
        let fill = if is_busy { colour(0) } else { GREY };
        let thick = if is_busy { 1.5 + 5.0 * share } else { 1.0 };
        let middle = y(one.row) + (ROW - 8.0) / 2.0;
        let begin = y(from) + (ROW - 8.0) / 2.0;
        let points = if is_indented {
            let elbow = x(one.depth) - indent / 2.0;
            vec![(elbow, y(from) + ROW - 8.0), (elbow, middle), (x(one.depth), middle)]
        } else {
            let (start, end) = (x(one.depth - 1) + wide(one.depth - 1), x(one.depth));
            if one.row == from {
                vec![(start, middle), (end, middle)]
            } else {
                vec![(start + 8.0, begin), (start + 8.0, middle), (end, middle)]
            }
        };
        d.path(points, thick, fill, None);
        let at = if is_indented { width - LINK / 2.0 + 4.0 } else { x(one.depth) - (LINK - 12.0) / 2.0 };
        if let Some(link) = nodes.get(&one.bdf).and_then(|node| node.link.clone()).or_else(|| above?.link.clone()) {
            d.word(at, middle - 9.0, Anchor::Middle, false, GREY, link);
        }
        // One link leads to all functions of a device: its figures stand at the first.
        let is_first = placed.iter().all(|other| other.parent.map(|p| p.0) != Some(parent) || other.row >= one.row);
        if let Some((rx, tx, is_estimated)) = traffic.filter(|_| is_first) {
            let mark = if is_estimated { "~" } else { "" };
            let words = format!("{mark}{} / {}", short(rx), short(tx));
            d.word(at, middle + 10.0, Anchor::Middle, false, if is_busy { BLACK } else { GREY }, words);
        }
    }
    for one in &placed {
        let Some(node) = nodes.get(&one.bdf) else { continue };
        let (x, y, w, h) = (x(one.depth), y(one.row), wide(one.depth), ROW - 8.0);
        let title = Some(format!("{} {}", one.bdf, node.words));
        d.shapes.push(Shape::Rect { x, y, w, h, fill: BOX, title });
        let room = ((w - 12.0) / CHARACTER).max(4.0) as usize;
        d.word(x + 8.0, y + 11.0, Anchor::Start, false, BLACK, one.bdf.to_string());
        d.word(x + 8.0, y + 26.0, Anchor::Start, false, GREY, middle_cut(&node.words, room));
    }
    let rows = placed.iter().map(|one| one.row + 1).max().unwrap_or(0);
    d.height = y(rows) + 4.0;
    let mut rest = Vec::new();
    if left_out > 0 {
        rest.push(format!("{left_out} more functions are left out"));
    }
    if empty > 0 {
        rest.push(format!("{empty} port{} with nothing below and no traffic", if empty == 1 { "" } else { "s" }));
    }
    if !rest.is_empty() {
        d.line([(0.0, d.height), (width, d.height)], 1.0, RULE, None);
        d.word(0.0, d.height + 12.0, Anchor::Start, false, GREY, rest.join("; "));
        d.height += 24.0;
    }
    d
}

/// A rate in few characters.
fn short(rate: f64) -> String {
    match rate {
        rate if rate >= 999.5e6 => format!("{:.2} GB/s", rate / 1e9),
        rate if rate >= 999.5e3 => format!("{:.0} MB/s", rate / 1e6),
        rate if rate >= 999.5 => format!("{:.0} kB/s", rate / 1e3),
        _ => "0".to_owned(),
    }
}
