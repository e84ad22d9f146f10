//! Heat maps as PNG, drawn here: no font and no renderer need be installed.
//!
//! The letters come rasterised from the noto-sans-mono-bitmap crate; a character it lacks becomes `?`.

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};
use pciescope_core::Record;

use crate::drawing::{Anchor, Drawing, Shape, heat_maps};
use crate::{Error, heat};

/// Pixels per unit of the drawing: fine enough for dense screens and print.
const SCALE: f64 = 2.0;
/// No picture has more pixels than this a side: no viewer opens larger ones.
const LONGEST_SIDE: f64 = 30_000.0;

/// The heat maps of these records, one below the other, as the bytes of a PNG file.
///
/// # Errors
/// [`Error::TooLarge`] where there are so many maps that no viewer would open the picture.
pub fn render(records: &[Record]) -> Result<Vec<u8>, Error> {
    let drawing = heat_maps(&heat::heat_maps(records));
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
            for (dy, line) in raster.raster().iter().enumerate() {
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
