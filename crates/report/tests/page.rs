//! The page and the pictures: whole, self-contained, and deaf to hostile records.
#![allow(clippy::unwrap_used)] // a test file is not a #[test] function to clippy

use pciescope_core::{Histogram, Record, outcome};
use pciescope_report::{heat, html, png, summary, svg};

#[path = "sample/mod.rs"]
#[allow(dead_code)]
mod sample;

use sample::Shape;

const SMALL: Shape = Shape { cpus: 4, vectors: 4, samples: 1000, emulated: true };

fn data(page: &str) -> serde_json::Value {
    let start = page.find("id=\"data\">").unwrap() + "id=\"data\">".len();
    let end = start + page[start..].find("</script>").unwrap();
    serde_json::from_str(&page[start..end]).unwrap()
}

/// Every element is closed in the right order, as XML would ask; void elements apart.
fn check_tags(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = &page[page.find("<html").unwrap()..];
    while let Some(at) = rest.find('<') {
        let end = at + rest[at..].find('>').unwrap();
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        match tag.strip_prefix('/') {
            Some(closed) => assert_eq!(open.pop(), Some(closed), "before {:.60}", rest),
            None => open.push(tag.split([' ', '\n']).next().unwrap()),
        }
        if matches!(open.last(), Some(&"br" | &"meta")) {
            open.pop();
        }
        if matches!(open.last(), Some(&"script" | &"style")) && !tag.starts_with('/') {
            rest = &rest[rest.find(&format!("</{}>", open[open.len() - 1])).unwrap()..];
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let page = html::render(&sample::whole(&SMALL));
    for reference in ["src=", "@import", "url(", "<link", "fetch(", "import("] {
        assert!(!page.contains(reference), "{reference}");
    }
    let addresses = page.matches("http://").count() + page.matches("https://").count();
    assert_eq!(addresses, page.matches("http://www.w3.org/2000/svg").count());
    assert!(page.len() < 300_000, "{} bytes", page.len());
    check_tags(&page);
}

#[test]
fn the_page_says_what_was_found_and_that_it_is_emulated() {
    let page = html::render(&sample::whole(&SMALL));
    for words in [
        "<strong>EMULATED</strong>",
        "all-ones",
        "What to do: the register may be one that never answers",
        "Not everything arrived: 3 lost.",
        "Per CPU+IRQ Latency",
        "Hardware minus Software Trigger",
        "6.12.107+deb13-amd64",
    ] {
        assert!(page.contains(words), "{words}");
    }
    let real = html::render(&sample::whole(&Shape { emulated: false, ..SMALL }));
    assert!(!real.contains("EMULATED") && !real.contains(">emulated<"));
}

#[test]
fn every_sample_is_in_the_data_block() {
    let records = sample::whole(&SMALL);
    let data = data(&html::render(&records));
    let counted = |bins: &serde_json::Value| -> u64 {
        bins.as_array().unwrap().iter().skip(1).step_by(2).map(|n| n.as_u64().unwrap()).sum()
    };
    let mut seen = 0;
    for map in data["sections"].as_array().unwrap().iter().flat_map(|s| s["maps"].as_array().unwrap()) {
        for cell in map["cells"].as_array().unwrap().iter().filter(|c| c.is_array()) {
            assert_eq!(counted(&cell[10]), cell[0].as_u64().unwrap());
            seen += cell[0].as_u64().unwrap();
        }
        assert_eq!(counted(&map["all"][10]), map["all"][0].as_u64().unwrap());
    }
    let names = [outcome::LATENCY, outcome::TRIGGER_TO_HANDLER, outcome::ENTRY_TO_ACK];
    let want: u64 = records.iter().flat_map(|r| names.map(|n| r.histograms.get(n).map_or(0, Histogram::count))).sum();
    assert_eq!(seen, want);
}

#[test]
fn the_bins_of_a_cell_lie_where_its_samples_lie() {
    let mut record: Record = sample::mmio(&mut sample::Random(1), &Shape { cpus: 1, ..SMALL }, "1").pop().unwrap();
    record.histograms.insert(outcome::LATENCY.to_owned(), Histogram::of_ns([1000, 1000, 64_000]).unwrap());
    let data = data(&html::render(&[record]));
    let (map, per_octave) = (&data["sections"][0]["maps"][0], data["perOctave"].as_f64().unwrap());
    let bins: Vec<f64> = map["all"][10].as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect();
    let low_ns = |bin: f64| (bin / per_octave).exp2() / 1e3;
    assert_eq!((bins.len(), bins[1], bins[3]), (4, 2.0, 1.0));
    assert!((low_ns(bins[0]) / 1000.0 - 1.0).abs() < 0.012, "{}", low_ns(bins[0]));
    assert!((low_ns(bins[0] + bins[2]) / 64_000.0 - 1.0).abs() < 0.012);
}

#[test]
fn hostile_strings_stay_strings() {
    let records = sample::hostile();
    let page = html::render(&records);
    assert!(!page.contains("<script>alert"), "a script came through");
    assert!(!page.contains("<img"), "an element came through");
    assert!(!page.contains('\u{1b}') && !page.contains('\u{202e}'));
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "the name is not shown");
    assert_eq!(page.matches("<script").count(), 2, "only the data and the program");
    check_tags(&page);
    data(&page);
    let picture = svg::render(&records);
    assert!(!picture.contains("<script") && !picture.contains("<img") && !picture.contains('\u{1b}'));
}

#[test]
fn a_picture_shows_every_cell() {
    let records = sample::whole(&SMALL);
    let picture = svg::render(&records);
    // 4 CPUs by 2 BARs, by 3 hops, and twice by 4 vectors with 2 histograms each.
    assert_eq!(picture.matches("<title>CPU ").count(), 4 * 2 + 4 * 3 + 2 * 2 * 4 * 4);
    assert!(picture.contains("<title>CPU 3 b0: 1.02 us</title>"), "{picture}");
    assert!(picture.contains("EMULATED, not PCIe"));
}

#[test]
fn the_png_is_one_and_has_the_colours_of_the_scale() {
    let bytes = png::render(&sample::whole(&SMALL)).unwrap();
    let mut reader = ::png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert!(info.width > 600 && info.height > 1000, "{} by {}", info.width, info.height);
    for end in [heat::PALETTE[0], heat::PALETTE[8]] {
        assert!(pixels.chunks(3).any(|pixel| pixel == end), "{end:?} is nowhere");
    }
    assert!(pixels.chunks(3).filter(|p| p.iter().all(|c| *c < 60)).count() > 500, "no text was drawn");
}

#[test]
fn records_without_latencies_still_make_a_page_and_a_picture() {
    let only_error = sample::whole(&SMALL).pop().unwrap();
    for records in [vec![], vec![Record::default()], vec![only_error]] {
        check_tags(&html::render(&records));
        assert!(svg::render(&records).contains("no record has latencies"));
        assert!(png::render(&records).unwrap().len() > 100);
    }
}

#[test]
fn a_thousand_cpus_fit() {
    let shape = Shape { cpus: 1000, vectors: 8, samples: 12, emulated: false };
    let records = sample::irq(&mut sample::Random(4), &shape, "1", "irq-hardware", 2300);
    let page = html::render(&records);
    assert!(page.len() < 1_500_000, "{} bytes", page.len());
    assert_eq!(data(&page)["sections"][0]["maps"][0]["cells"].as_array().unwrap().len(), 8000);
    png::render(&records).unwrap();
}

#[test]
fn the_summary_names_the_figures() {
    let text = summary::render(&sample::whole(&SMALL));
    for words in [
        "mmio-read: 0000:1a:00.0 Intel",
        "A register read takes 994 ns in the median of 8,000 samples; 1 in 100 is over 1.16 us",
        "A configuration read of 0000:00:1c.0 takes 187 ns in the median, of 0000:1a:00.0 863 ns.",
        "Nothing was lost.",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
}
