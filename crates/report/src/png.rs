//! Heat maps and charts as PNG, drawn here: no font and no renderer need be installed.
//!
//! The letters come rasterised from the noto-sans-mono-bitmap crate; a character it lacks becomes `?`.

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};
use pciescope_core::Record;

use crate::Error;
use crate::drawing::{Anchor, Drawing, Shape};
use crate::print::picture;

/// Pixels per unit of the drawing: fine enough for dense screens and print.
const SCALE: f64 = 2.0;
/// No picture has more pixels than this a side: no viewer opens larger ones.
const LONGEST_SIDE: f64 = 30_000.0;

/// The first chart of the page, with its heading; of records that have none all heat maps and charts, one below the other.
/// As the bytes of a PNG file.
///
/// # Errors
/// [`Error::TooLarge`] where there are so many of them that no viewer would open the picture.
pub fn render(records: &[Record]) -> Result<Vec<u8>, Error> {
    let drawing = picture::first(records).unwrap_or_else(|| picture::of(records));
    let (width, height) = ((drawing.width * SCALE).ceil(), (drawing.height * SCALE).ceil());
    if width > LONGEST_SIDE || height > LONGEST_SIDE {
        return Err(Error::TooLarge { width: width as u64, height: height as u64 });
    }
    let mut canvas = Canvas::white(width as usize, height as usize);
    canvas.draw(&drawing);
    Ok(canvas.encode())
}

struct Canvas {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
}

impl Canvas {
    fn white(width: usize, height: usize) -> Self {
        Canvas { width, height, rgb: vec![255; width * height * 3] }
    }

    fn draw(&mut self, drawing: &Drawing) {
        for shape in &drawing.shapes {
            match shape {
                Shape::Rect { x, y, w, h, fill, .. } => self.rect([*x, *y, x + w, y + h], *fill),
                Shape::Line { from, to, thickness, fill, .. } => self.line(*from, *to, *thickness, *fill),
                Shape::Path { points, thickness, fill, .. } => {
                    points.windows(2).for_each(|ends| self.line(ends[0], ends[1], *thickness, *fill));
                }
                Shape::Text { x, y, anchor, is_large, fill, text } => {
                    let size = if *is_large { RasterHeight::Size32 } else { RasterHeight::Size24 };
                    self.text(x * SCALE, y * SCALE, *anchor, size, *fill, text);
                }
            }
        }
    }

    /// Edges are rounded, so that touching rectangles neither overlap nor leave a gap.
    fn rect(&mut self, edges: [f64; 4], fill: [u8; 3]) {
        let [x0, y0, x1, y1] = edges.map(|e| (e * SCALE).round().max(0.0) as usize);
        for y in y0..y1.min(self.height) {
            for x in x0..x1.min(self.width) {
                self.blend(x, y, fill, 255);
            }
        }
    }

    /// Each pixel is covered by as much of it as lies within half the thickness of the line.
    fn line(&mut self, from: (f64, f64), to: (f64, f64), thickness: f64, fill: [u8; 3]) {
        let [x0, y0, x1, y1] = [from.0, from.1, to.0, to.1].map(|v| v * SCALE);
        let half = thickness * SCALE / 2.0;
        let bound = |v: f64, most: usize| (v.max(0.0) as usize).min(most);
        let length = (x1 - x0).powi(2) + (y1 - y0).powi(2);
        for y in bound(y0.min(y1) - half - 1.0, self.height)..bound(y0.max(y1) + half + 2.0, self.height) {
            for x in bound(x0.min(x1) - half - 1.0, self.width)..bound(x0.max(x1) + half + 2.0, self.width) {
                let (px, py) = (x as f64 + 0.5, y as f64 + 0.5);
                let along = if length > 0.0 { ((px - x0) * (x1 - x0) + (py - y0) * (y1 - y0)) / length } else { 0.0 };
                let along = along.clamp(0.0, 1.0);
                let (dx, dy) = (px - x0 - along * (x1 - x0), py - y0 - along * (y1 - y0));
                let cover = (half + 0.5 - dx.hypot(dy)).clamp(0.0, 1.0);
                self.blend(x, y, fill, (cover * 255.0) as u8);
            }
        }
    }

    fn text(&mut self, x: f64, y: f64, anchor: Anchor, size: RasterHeight, fill: [u8; 3], text: &str) {
        // Never wider than what the layout counts with, drawing::CHARACTER times SCALE.
        let width = get_raster_width(FontWeight::Regular, size);
        let length = (text.chars().count() * width) as f64;
        let left = match anchor {
            Anchor::Start => x,
            Anchor::Middle => x - length / 2.0,
            Anchor::End => x - length,
        };
        let top = y - size.val() as f64 / 2.0;
        for (place, character) in text.chars().enumerate() {
            let raster = get_raster(character, FontWeight::Regular, size)
                .or_else(|| get_raster('?', FontWeight::Regular, size))
                .expect("the font has Latin letters and the question mark");
            for (dy, line) in raster.rows().enumerate() {
                for (dx, &cover) in line.iter().enumerate() {
                    let (px, py) = (left.round() as i64 + (place * width + dx) as i64, top.round() as i64 + dy as i64);
                    if let (Ok(px), Ok(py)) = (usize::try_from(px), usize::try_from(py)) {
                        self.blend(px, py, fill, cover);
                    }
                }
            }
        }
    }

    fn blend(&mut self, x: usize, y: usize, fill: [u8; 3], cover: u8) {
        if x >= self.width || y >= self.height {
            return;
        }
        let place = (y * self.width + x) * 3;
        for (pixel, fill) in self.rgb[place..place + 3].iter_mut().zip(fill) {
            let (old, new, cover) = (u32::from(*pixel), u32::from(fill), u32::from(cover));
            *pixel = ((old * (255 - cover) + new * cover + 127) / 255) as u8;
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header().expect("the size is not 0 and memory takes every byte");
        writer.write_image_data(&self.rgb).expect("the pixels are as many as width and height say");
        writer.finish().expect("memory takes every byte");
        bytes
    }
}
