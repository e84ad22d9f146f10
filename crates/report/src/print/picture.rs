//! A picture of records: heat maps and charts, one below the other, on white.

use pciescope_core::{Record, once};

use crate::chart::FULL;
use crate::drawing::{Anchor, BLACK, CHARACTER, Drawing, GREY, Shape};
use crate::heat::{self, HeatMap, colour, ink, share};
use crate::html::first;
use crate::layout::wrap;
use crate::text::{clean, duration};
use crate::{figures, model};

const MARGIN: f64 = 16.0;
const NO_VALUE: [u8; 3] = [225, 225, 228];
/// Groups of CPUs, by turns.
const STRIPS: [[u8; 3]; 2] = [[190, 192, 200], [124, 132, 148]];
/// Room for the grid itself.
const GRID_WIDTH: f64 = 1000.0;

/// Everything that can be drawn of these records: heat maps, then the charts of readouts.
pub fn of(records: &[Record]) -> Drawing {
    let sections = model::sections(records);
    let charts: Vec<(String, Drawing)> = sections.iter().flat_map(figures::drawn).collect();
    let maps = heat::heat_maps(records);
    if charts.is_empty() {
        return heat_maps(&maps);
    }
    let mut drawing = match maps.as_slice() {
        [] => Drawing { width: 0.0, height: MARGIN, shapes: Vec::new() },
        maps => heat_maps(maps),
    };
    for (title, chart) in charts {
        let top = drawing.height;
        drawing.width = drawing.width.max(MARGIN + title.chars().count() as f64 * 9.0 + MARGIN);
        drawing.word(MARGIN, top + 8.0, Anchor::Start, true, BLACK, title);
        drawing.add(chart, MARGIN, top + 28.0, MARGIN);
    }
    drawing
}

/// The first chart of the page with its heading, what tells its figures from those of hardware, and how to read it.
pub fn first(records: &[Record]) -> Option<Drawing> {
    let (heading, chart, note) = first::chart(records)?;
    let chart = chart.drawing(FULL)?;
    let mut drawing = Drawing { width: FULL + 2.0 * MARGIN, height: MARGIN, shapes: Vec::new() };
    let mut say = |text: &str, is_large: bool, fill| {
        let character = if is_large { 9.0 } else { CHARACTER };
        for line in wrap(text, (FULL / character) as usize, "", "") {
            drawing.word(MARGIN, drawing.height + 8.0, Anchor::Start, is_large, fill, line);
            drawing.height += if is_large { 22.0 } else { 18.0 };
        }
    };
    // Alone, a run is named by its label too.
    let labels = once(records.iter().filter_map(|record| record.label.as_deref()));
    let label = if let [label] = labels.as_slice() { format!(" ({})", clean(label)) } else { String::new() };
    say(&format!("{heading}{label}"), true, BLACK);
    if records.iter().any(model::is_synthetic) {
        say(model::SYNTHETIC, false, BLACK);
    } else if records.iter().any(model::is_emulated) {
        say(model::EMULATED, false, BLACK);
    }
    say(&note, false, GREY);
    let top = drawing.height + 8.0;
    drawing.add(chart, MARGIN, top, MARGIN);
    Some(drawing)
}

/// Whether there is nothing to draw of these records: a picture would only say so.
pub fn is_empty(records: &[Record]) -> bool {
    heat::heat_maps(records).is_empty() && model::sections(records).iter().all(|one| figures::drawn(one).is_empty())
}

/// The maps one below the other, on white.
pub fn heat_maps(maps: &[HeatMap]) -> Drawing {
    let mut drawing = Drawing { width: 0.0, height: MARGIN, shapes: Vec::new() };
    for map in maps {
        one(&mut drawing, map);
    }
    if maps.is_empty() {
        drawing.word(
            MARGIN,
            MARGIN + 8.0,
            Anchor::Start,
            false,
            GREY,
            "no record has anything that can be drawn".to_owned(),
        );
        drawing.height += 2.0 * MARGIN;
        drawing.width = 300.0;
    }
    drawing
}

fn one(d: &mut Drawing, map: &HeatMap) {
    let top = d.height;
    d.word(MARGIN, top + 8.0, Anchor::Start, true, BLACK, map.title.clone());
    d.word(MARGIN, top + 28.0, Anchor::Start, false, GREY, map.subtitle.clone());
    let longest = map.targets.iter().map(|t| t.chars().count()).max().unwrap_or(0);
    let left = MARGIN + (longest as f64 + 1.0) * CHARACTER;
    let cell_w = (GRID_WIDTH / map.places.cpus.len() as f64).clamp(1.0, 84.0);
    let cell_h = (600.0 / map.targets.len() as f64).clamp(4.0, 26.0);
    let grid_top = top + 44.0;
    // Thousands of cells touch; few have a gap, so that neighbours of one colour stay apart.
    let gap = if cell_w >= 8.0 && cell_h >= 8.0 { 1.0 } else { 0.0 };
    let range = map.scale.unwrap_or((1.0, 1.0));
    for (row, values) in map.values.iter().enumerate() {
        let y = grid_top + row as f64 * cell_h;
        if cell_h >= 12.0 || row % (12.0 / cell_h).ceil() as usize == 0 {
            d.word(left - CHARACTER, y + cell_h / 2.0, Anchor::End, false, BLACK, map.targets[row].clone());
        }
        for (column, value) in values.iter().enumerate() {
            let x = left + column as f64 * cell_w;
            let fill = value.map_or(NO_VALUE, |v| colour(share(v, range)));
            let words = value.map_or("not measured".to_owned(), duration);
            let title = format!("CPU {} {}: {words}", map.places.cpus[column], map.targets[row]);
            d.shapes.push(Shape::Rect { x, y, w: cell_w - gap, h: cell_h - gap, fill, title: Some(title) });
            if let Some(text) = value.map(duration).filter(|t| (t.chars().count() as f64 + 0.5) * CHARACTER <= cell_w) {
                if cell_h >= 14.0 {
                    d.word(x + (cell_w - gap) / 2.0, y + (cell_h - gap) / 2.0, Anchor::Middle, false, ink(fill), text);
                }
            }
        }
    }
    let bottom = grid_top + map.targets.len() as f64 * cell_h;
    // CPU numbers as close as they stay apart.
    let widest = map.places.cpus.iter().max().map_or(1, |c| c.to_string().len());
    let every = ((widest as f64 + 1.5) * CHARACTER / cell_w).ceil().max(1.0) as usize;
    for (column, cpu) in map.places.cpus.iter().enumerate().step_by(every) {
        d.word(left + (column as f64 + 0.5) * cell_w, bottom + 10.0, Anchor::Middle, false, BLACK, cpu.to_string());
    }
    d.word(left - CHARACTER, bottom + 10.0, Anchor::End, false, GREY, "CPU".to_owned());
    let bottom = groups(d, map, left, bottom, cell_w);
    scale(d, map, left, bottom + 26.0);
    let right = left + map.places.cpus.len() as f64 * cell_w;
    let words = [(&map.title, 9.0), (&map.subtitle, CHARACTER)];
    let words = words.iter().map(|(t, c)| MARGIN + t.chars().count() as f64 * c).fold(0.0, f64::max);
    d.width = d.width.max(right.max(words).max(left + 340.0) + MARGIN);
    d.height = bottom + 26.0 + 36.0 + MARGIN;
}

/// Lines that join the threads of a core, then a strip with words for each way in which the CPUs are grouped; gives where the
/// room below begins, less the line of CPU numbers.
fn groups(d: &mut Drawing, map: &HeatMap, left: f64, bottom: f64, cell_w: f64) -> f64 {
    const ROW: f64 = 22.0;
    let x = |column: usize| left + column as f64 * cell_w;
    for &(from, to) in map.places.cores.iter().filter(|_| cell_w >= 4.0) {
        let (x, w) = (x(from) + 0.3 * cell_w, (to - from) as f64 * cell_w - 0.6 * cell_w);
        d.shapes.push(Shape::Rect { x, y: bottom + 1.0, w, h: 1.5, fill: GREY, title: None });
    }
    for (level, strip) in map.places.strips.iter().enumerate() {
        let y = bottom + 20.0 + level as f64 * ROW;
        for (number, group) in strip.iter().enumerate() {
            let (x0, x1) = (x(group.from), x(group.to));
            let fill = STRIPS[number % STRIPS.len()];
            let title = group.words.first().cloned();
            d.shapes.push(Shape::Rect { x: x0, y, w: (x1 - x0 - 1.0).max(0.5), h: 4.0, fill, title });
            let fits = |words: &&String| (words.chars().count() as f64 + 0.5) * CHARACTER <= x1 - x0;
            if let Some(words) = group.words.iter().find(fits) {
                d.word((x0 + x1) / 2.0, y + 12.0, Anchor::Middle, false, GREY, words.clone());
            }
        }
    }
    bottom + map.places.strips.len() as f64 * ROW
}

fn scale(d: &mut Drawing, map: &HeatMap, left: f64, top: f64) {
    let Some((low, high)) = map.scale else { return };
    const STEPS: usize = 64;
    for step in 0..STEPS {
        let fill = colour(step as f64 / (STEPS - 1) as f64);
        d.shapes.push(Shape::Rect { x: left + 90.0 + step as f64 * 2.0, y: top, w: 2.0, h: 12.0, fill, title: None });
    }
    d.word(left + 84.0, top + 6.0, Anchor::End, false, BLACK, duration(low));
    d.word(left + 96.0 + 2.0 * STEPS as f64, top + 6.0, Anchor::Start, false, BLACK, duration(high));
}
