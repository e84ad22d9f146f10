//! The page and the pictures: whole, self-contained, and deaf to hostile records.

use pciescope_core::{Histogram, Host, Metric, Record, outcome};
use pciescope_report::print::{markdown, terminal};
use pciescope_report::text::escape;
use pciescope_report::{facts, heat, html, png, svg};

use crate::sample::{self, Shape, mixed};

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

/// Parts of a page are compared with each other: a page of 20,000 runs took minutes.
#[test]
fn a_page_of_very_many_runs_shows_the_last_ones() {
    let one = sample::whole(&SMALL).into_iter().find(|record| record.test == "irq-hardware").unwrap();
    let of = |count: usize| {
        let run = |n: usize| Record { run: format!("run-{n}-"), label: None, ..one.clone() };
        html::render(&(0..count).map(run).collect::<Vec<_>>())
    };
    let page = of(html::MOST_RUNS + 1);
    assert!(page.contains("only the last 1,000 of 1,001 runs are shown"), "{:.3000}", page);
    assert!(!page.contains("run-0-") && page.contains("run-1-") && page.contains("run-1000-"));
    check_tags(&page);
    let page = of(2);
    assert!(!page.contains("runs are shown") && page.contains("run-0-"));
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
        "slowest CPU 3 (+13 %); 3 lost",
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
        assert_eq!(
            map["all"][0],
            map["cells"].as_array().unwrap().iter().map(|c| c[0].as_u64().unwrap_or(0)).sum::<u64>()
        );
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
    let bins: Vec<f64> = map["cells"][0][10].as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect();
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
fn the_png_is_the_first_chart_of_the_page() {
    let bytes = png::render(&sample::whole(&SMALL)).unwrap();
    let mut reader = ::png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert!(info.width > 2000 && info.height > 300, "{} by {}", info.width, info.height);
    // The colour of the first series.
    assert!(pixels.chunks(3).any(|pixel| pixel == [31, 95, 191]));
    assert!(pixels.chunks(3).filter(|p| p.iter().all(|c| *c < 60)).count() > 500, "no text was drawn");
}

#[test]
fn records_without_latencies_still_make_a_page_and_a_picture() {
    let only_error = sample::whole(&SMALL).pop().unwrap();
    for records in [vec![], vec![Record::default()], vec![only_error]] {
        check_tags(&html::render(&records));
        assert!(svg::render(&records).contains("no record has anything that can be drawn"));
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

/// CPUs stand as a machine is built, whatever their numbers: package, node, core, thread.
#[test]
fn heat_maps_group_cpus_by_package_then_node_with_siblings_side_by_side() {
    // 2 packages of 2 nodes of 2 cores of 2 threads, numbered as Linux does: all first threads, then all second ones. A node of
    // the second package has a lower number than one of the first, as firmware may have it.
    let nodes = [0, 2, 1, 3];
    let place = |n: u32| {
        let core = n % 8;
        let (node, package) = (Some(nodes[core as usize / 2]), Some(core / 4));
        pciescope_core::Cpu { cpu: n, node, package, l3: Some(core / 4 * 4), core: Some(core), thread: Some(n / 8) }
    };
    let shape = Shape { cpus: 16, vectors: 1, samples: 20, emulated: false };
    let made = |place: &dyn Fn(u32) -> pciescope_core::Cpu| {
        let mut records = sample::irq(&mut sample::Random(4), &shape, "1", "irq-hardware", 2300);
        records.iter_mut().for_each(|record| record.cpu = Some(place(record.cpu.as_ref().unwrap().cpu)));
        records
    };
    let records = made(&place);
    let map = &heat::heat_maps(&records)[0];
    assert_eq!(map.places.cpus, [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15]);
    assert_eq!(map.places.cores, (0..8).map(|core| (2 * core, 2 * core + 2)).collect::<Vec<_>>());
    let words = |strip: &heat::Strip| {
        strip.iter().map(|group| (group.from, group.to, group.words[0].clone())).collect::<Vec<_>>()
    };
    let group = |from, to, name: &str| (from, to, name.to_owned());
    assert_eq!(map.places.strips.len(), 2);
    assert_eq!(
        words(&map.places.strips[0]),
        [group(0, 4, "node 0"), group(4, 8, "node 2"), group(8, 12, "node 1"), group(12, 16, "node 3")]
    );
    assert_eq!(words(&map.places.strips[1]), [group(0, 8, "package 0"), group(8, 16, "package 1")]);
    let picture = svg::render(&records);
    for name in ["node 2", "package 1"] {
        assert!(picture.contains(&format!(">{name}</text>")), "{name}");
    }
    // Each value stands under its CPU.
    let of_cpu_9 = records.iter().find(|r| r.cpu.as_ref().is_some_and(|cpu| cpu.cpu == 9)).unwrap();
    assert_eq!(map.values[0][3], of_cpu_9.histograms[outcome::TRIGGER_TO_HANDLER].percentile_ns(50.0));

    // A node for each package is one strip.
    let one = made(&|n| pciescope_core::Cpu { node: place(n).package, ..place(n) });
    let strips = &heat::heat_maps(&one)[0].places.strips;
    assert_eq!(strips.len(), 1);
    assert_eq!(words(&strips[0]), [group(0, 8, "package 0, node 0"), group(8, 16, "package 1, node 1")]);
    // Where nothing is known CPUs stand by number.
    let bare = made(&|n| pciescope_core::Cpu { cpu: n, ..Default::default() });
    let map = &heat::heat_maps(&bare)[0];
    assert_eq!(
        (map.places.cpus.clone(), map.places.strips.len(), map.places.cores.len()),
        ((0..16).collect::<Vec<_>>(), 0, 0)
    );
}

/// What terminal, Markdown and page say of a measurement is the same, and so is the headline in the tile.
#[test]
fn each_line_of_a_measurement_is_on_the_terminal_in_markdown_and_on_the_page() {
    for (records, least) in [(sample::whole(&SMALL), 14), (mixed::whole(), 20)] {
        let (page, markdown) = (html::render(&records), markdown::render(&records));
        let terminal = terminal::render(&records).split_whitespace().collect::<Vec<_>>().join(" ");
        let terminal = anstream::adapter::strip_str(&terminal).to_string();
        let lines: Vec<String> =
            markdown.lines().filter_map(|line| Some(line.strip_prefix("- ")?.replace('\\', ""))).collect();
        assert!(lines.len() >= least, "{} lines\n{markdown}", lines.len());
        for line in lines {
            // The terminal breaks what is too long for it.
            let parts = line.split("; ").map(|part| part.trim_end_matches(';'));
            assert!(parts.clone().all(|part| terminal.contains(part)), "{line}\n{terminal}");
            assert!(page.contains(&escape(&line)), "{line}");
        }
    }
    let page = html::render(&sample::whole(&SMALL));
    assert!(page.contains("median 989 ns; 939 ns to 1.09 us by CPU"));
    assert!(page.contains("<span>Median</span> <b>989 ns</b> <small>939 ns to 1.09 us by CPU, 0000:1a:00.0"));
}

/// What stands from `from` up to the next `to`.
fn between<'p>(page: &'p str, from: &str, to: &str) -> &'p str {
    let start = page.find(from).unwrap_or_else(|| panic!("no {from}")) + from.len();
    &page[start..start + page[start..].find(to).unwrap()]
}

#[test]
fn a_thousand_cpus_by_64_vectors_stay_below_8_mb_and_make_no_table_of_64000_rows() {
    let shape = Shape { cpus: 1000, vectors: 64, samples: 12, emulated: false };
    let records = sample::irq(&mut sample::Random(4), &shape, "1", "irq-hardware", 2300);
    let page = html::render(&records);
    assert!(page.len() < 8_000_000, "{} bytes", page.len());
    assert!(page.matches("<tr>").count() < 1000, "{} rows", page.matches("<tr>").count());
    let map = &data(&page)["sections"][0]["maps"][0];
    assert_eq!(map["cells"].as_array().unwrap().len(), 64_000);
    assert_eq!(map["cells"][0][10].as_array().unwrap().len(), 0, "no histograms of cells");
    assert_eq!(
        page.matches("<figure class=\"drawn\" data-axis=").count(),
        4,
        "histogram and tail of all, of both maps"
    );
}

#[test]
fn the_index_nests_devices_below_their_root_ports_and_each_has_a_page() {
    let page = html::render(&sample::whole(&SMALL));
    let index = between(&page, "id=\"devices\">", "</section>");
    let places: Vec<usize> =
        ["0000:00:1c.0", "0000:19:00.0", "#d-0000:1a:00.0"].iter().map(|name| index.find(name).unwrap()).collect();
    assert!(places.is_sorted(), "{index}");
    assert_eq!(index.matches("<ul class=\"tree\">").count(), 3, "each bridge holds what is below it");
    let device = between(&page, "id=\"d-0000:1a:00.0\"", "</section>");
    for words in
        ["2.5 GT/s x1", "0000:00:1c.0 &gt; 0000:19:00.0", "MPS 256 bytes", "data-head=\"Measured\">mmio-read</td>"]
    {
        assert!(device.contains(words), "{words}\n{device}");
    }
    assert!(!page.contains("id=\"runs\""), "no two runs measured the same");
}

#[test]
fn a_device_has_the_counters_of_its_root_port_and_what_doctor_found_on_the_way() {
    let records = mixed::whole();
    let page = html::render(&records);
    let device = page
        .split("data-title=\"0000:1a:00.0 (Example Systems R2)\"")
        .nth(1)
        .unwrap()
        .split("</section>")
        .next()
        .unwrap();
    assert!(
        device.contains("0000:1a:00.0") && !device.contains("What doctor found"),
        "no machine says that they are one"
    );
    // The same on one machine: the runs that do not describe theirs are of the only one.
    let one: Vec<Record> = records.into_iter().filter(|r| r.label.as_deref() != Some("after")).collect();
    let page = html::render(&one);
    let device = between(&page, "id=\"d-0000:1a:00.0\"", "</section>");
    for words in
        ["Counters of its root port", "211.00", "84.400", "link-width", "reseat the card", "current_link_width = 4"]
    {
        assert!(device.contains(words), "{words}\n{device}");
    }
    let other = between(&page, "data-title=\"0000:00:1d.0\"", "</section>");
    assert!(!other.contains("link-width"), "{other}");
    check_tags(&page);
}

#[test]
fn runs_stand_side_by_side_with_what_is_beyond_noise() {
    let mut records = mixed::labelled("before", "f1", 4, 0);
    records.extend(mixed::labelled("after", "f2", 4, 20));
    let page = html::render(&records);
    let table = between(&page, "<div class=\"page\" id=\"runs\"", "</table>");
    for words in ["before<br>", "after<br>", "Example Systems R2", "Example Systems R3", "2026-11-21T09:00:00Z"] {
        assert!(table.contains(words), "{words}");
    }
    let row = table.split("<tr>").find(|row| row.contains("trigger to handler median")).unwrap();
    assert!(row.contains("<strong class=\"worse\">+") && row.contains("% slower</strong>"), "{row}");
    let same = table.split("<tr>").find(|row| row.contains("entry to ack median")).unwrap();
    assert!(same.contains("same") && !same.contains("<strong"), "{same}");
    // Other CPUs on both sides: the difference is that of the common ones, and says so where it is not that of the row.
    let mut records = mixed::labelled("before", "f1", 8, 0);
    records.extend(mixed::labelled("after", "f2", 6, 20));
    let page = html::render(&records);
    assert!(page.contains("common CPUs: "), "{}", between(&page, "<div class=\"page\" id=\"runs\"", "</table>"));
    check_tags(&page);
}

#[test]
fn paper_has_all_of_it_in_light_and_without_navigation() {
    let page = html::render(&sample::whole(&SMALL));
    let print = between(&page, "@media print {", "</style>");
    for rule in [
        "--back: #fff",
        ".page[hidden] { display: block !important;",
        ".device { break-before: page; }",
        "nav, .keys, .bar label, .bar button, .tip { display: none !important; }",
    ] {
        assert!(print.contains(rule), "{rule}");
    }
    assert!(page.contains("@page { size: A4;"));
    assert!(!page.contains("hidden>") && !page.contains("class=\"page\" hidden"), "without script nothing is hidden");
}

#[test]
fn the_same_records_give_the_same_bytes() {
    let records = mixed::whole();
    assert_eq!(html::render(&records), html::render(&records));
    assert_eq!(facts::text(&records, 100), facts::text(&records, 100));
}

/// Latencies around `ns` on two CPUs of a device, with a label.
fn steady(label: &str, device: &str, ns: u64) -> Vec<Record> {
    let shape = Shape { cpus: 2, vectors: 1, samples: 1000, emulated: false };
    let mut records = sample::mmio(&mut sample::Random(1), &shape, label);
    for record in &mut records {
        record.label = Some(label.to_owned());
        if let Some(function) = &mut record.device {
            function.bdf = Some(device.parse().unwrap());
        }
        for histogram in record.histograms.values_mut() {
            *histogram = Histogram::of_ns((0..1000).map(|n| ns + n % 3)).unwrap();
        }
    }
    records
}

#[test]
fn noise_is_not_painted_as_a_pattern_and_neighbours_share_a_scale() {
    let mut records = steady("one", "0000:1a:00.0", 160);
    records.extend(steady("two", "0000:1b:00.0", 170));
    let scale = |records: &[Record]| heat::heat_maps(records).iter().map(|map| map.scale.unwrap()).collect::<Vec<_>>();
    let both = scale(&records);
    assert_eq!((both.len(), both[0]), (2, both[1]));
    assert!(both[0].1 >= 2.0 * both[0].0, "{both:?}");
    // 160 and 170 ns are next to the same colour: no channel differs by a fifth.
    let [one, two] = [160.0, 170.0].map(|ns| heat::colour(heat::share(ns, both[0])));
    assert!(one.iter().zip(two).all(|(a, b)| a.abs_diff(b) < 51), "{one:?} {two:?}");
    // What is twice as slow is not.
    records.extend(steady("three", "0000:1c:00.0", 400));
    let scales = scale(&records);
    assert!(scales.iter().all(|scale| *scale == scales[0]) && scales[0].1 > 399.0, "{scales:?}");
    let (near, far) = (heat::share(170.0, scales[0]), heat::share(400.0, scales[0]));
    assert!(near < 0.1 && far > 0.95, "{near} {far}");
    let page = html::render(&records);
    let kinds: Vec<String> =
        data(&page)["sections"].as_array().unwrap().iter().map(|section| section["scale"].to_string()).collect();
    assert!(kinds.len() == 3 && kinds.iter().all(|kind| *kind == kinds[0]), "{kinds:?}");
}

/// The tiles of the first screen: name and figure.
fn tiles(page: &str) -> Vec<(String, String)> {
    let part = between(page, "<div class=\"tiles\">", "</section>");
    let inner = |tile: &str, tag: &str| between(tile, &format!("<{tag}>"), &format!("</{tag}>")).to_owned();
    part.split("<div class=\"tile").skip(1).map(|tile| (inner(tile, "span"), inner(tile, "b"))).collect()
}

#[test]
fn the_first_screen_has_the_answer_in_tiles_and_one_chart() {
    let records = steady("only", "0000:1a:00.0", 600);
    let page = html::render(&records);
    let tiles = tiles(&page);
    let names: Vec<&str> = tiles.iter().map(|tile| tile.0.as_str()).collect();
    assert_eq!(names, ["Median", "p99", "Worst", "Lost", "Verdict"]);
    assert!(tiles[0].1.starts_with("60") && tiles[0].1.ends_with(" ns"), "{tiles:?}");
    let first = between(&page, "id=\"first\"", "</section>");
    assert!(page.find("id=\"first\"").unwrap() < page.find("id=\"summary\"").unwrap());
    assert_eq!(first.matches("<figure").count(), 1, "one chart");
    assert_eq!(first.matches("<svg class=\"full\"").count(), 1);
    assert_eq!(first.matches("<svg class=\"narrow\"").count(), 1, "and the same for telephones");
    // What nobody measured has no tile of its own, and what is emulated no verdict on its speed.
    let emulated = html::render(&sample::whole(&SMALL));
    assert_eq!(self::tiles(&emulated).last().unwrap().1, "EMULATED");
    assert!(!html::render(&[]).contains("class=\"tiles\""));
    check_tags(&page);
}

#[test]
fn two_runs_of_one_measurement_lie_over_each_other() {
    let mut records = steady("before", "0000:1a:00.0", 600);
    records.extend(steady("after", "0000:1a:00.0", 900));
    let page = html::render(&records);
    let first = between(&page, "id=\"first\"", "</section>");
    let wide = between(first, "<svg class=\"full\"", "</svg>");
    assert_eq!(wide.matches("<polyline").count(), 2, "{wide}");
    assert!(wide.contains("before</text>") && wide.contains("after</text>"));
    assert!(first.contains("before 601 ns (+49.9 %)") || first.contains("before 601 ns (+50.0 %)"), "{first:.900}");
    // The verdict is the title, both medians have a mark, and their distance is written.
    assert!(between(first, "<h2>", "</h2>").starts_with("SLOWER: 0000:1a:00.0 mmio-read"), "{first:.900}");
    for words in ["before: median 60", "after: median 90", "+300 ns (+"] {
        assert!(wide.contains(words), "{words}: {wide}");
    }
    let runs = between(&page, "id=\"runs\"", "</section>");
    assert_eq!(runs.matches("<div class=\"pair\">").count(), 2, "histogram and tail, for each BAR");
    check_tags(&page);
}

#[test]
fn a_row_is_named_by_its_run_and_says_what_is_seen_of_what_was_injected() {
    let mut records = steady("plain", "0000:1a:00.0", 600);
    records.extend(steady("slow", "0000:1a:00.0", 900));
    records.extend(steady("other", "0000:2b:00.0", 700));
    for record in &mut records {
        let ns = if record.label.as_deref() == Some("slow") { 250.0 } else { 0.0 };
        record.metrics.insert("injected_ns".to_owned(), Metric::ns(ns));
    }
    let page = html::render(&records);
    let first = between(&page, "id=\"first\"", "</section>");
    let full = between(first, "<svg class=\"full\"", "</svg>");
    for words in ["plain</text>", "slow</text>", "other</text>", ", injected 250 ns, seen 300 ns</text>"] {
        assert!(full.contains(words), "{words}: {full}");
    }
    // One colour, and no list of colours.
    assert!(full.contains("fill-0") && !full.contains("fill-1"));
}

#[test]
fn runs_of_other_things_do_not_fill_the_table_with_gaps() {
    let mut records = steady("a1", "0000:1a:00.0", 600);
    records.extend(steady("a2", "0000:1a:00.0", 610));
    records.extend(steady("b1", "0000:2b:00.0", 700));
    records.extend(steady("b2", "0000:2b:00.0", 710));
    let page = html::render(&records);
    let runs = between(&page, "id=\"runs\"", "</section>");
    assert_eq!(runs.matches("<table").count(), 2, "a table for each pair");
    assert!(!runs.contains("<td>-</td>"), "{runs}");
}

#[test]
fn hops_of_a_path_are_never_mixed() {
    let records: Vec<Record> =
        sample::whole(&SMALL).into_iter().filter(|r| r.test != "mmio-read" && !r.test.starts_with("irq")).collect();
    let page = html::render(&records);
    let maps = &data(&page)["sections"][0]["maps"][0];
    assert_eq!(maps["rows"].as_array().unwrap().len(), maps["targets"].as_array().unwrap().len());
    let counts: u64 = maps["rows"].as_array().unwrap().iter().map(|row| row[0].as_u64().unwrap()).sum();
    assert_eq!(counts, maps["all"][0].as_u64().unwrap());
    let first = between(&page, "id=\"first\"", "</section>");
    assert!(first.contains("hop by hop") && first.contains("h0 0000:00:1c.0"), "{first:.600}");
}

#[test]
fn on_a_telephone_the_rows_of_a_device_are_cards_with_their_heads() {
    let page = html::render(&sample::whole(&SMALL));
    let device = between(&page, "id=\"d-0000:1a:00.0\"", "</section>");
    assert!(device.contains("<table class=\"stack\">"));
    for head in ["Median", "P99", "Slowest CPU"] {
        assert!(device.contains(&format!("data-head=\"{head}\"")), "{head}");
    }
}

#[test]
fn a_warning_stands_once_with_its_count() {
    let mut records = steady("one", "0000:1a:00.0", 600);
    for (place, record) in records.iter_mut().enumerate().skip(1) {
        record.warnings = vec![pciescope_core::Warning {
            code: "clock-steps".to_owned(),
            text: format!("CPU {place}: the clock steps"),
            hint: "look".to_owned(),
        }];
    }
    let page = html::render(&records);
    let notices = between(&page, "id=\"notices\"", "</section>");
    assert_eq!(notices.matches("<code>clock-steps</code>").count(), 1, "{notices}");
    assert_eq!(notices.matches("What to do: look").count(), 1, "{notices}");
    assert!(notices.contains(&format!("({} records)", records.len() - 1)), "{notices}");
}

#[test]
fn hosts_of_one_model_are_machines_of_their_own_and_one_without_a_name_stays() {
    let (mut one, mut other) = (sample::whole(&SMALL), sample::whole(&SMALL));
    let headings = |records: &[Record]| {
        let page = html::render(records);
        let machine = between(&page, "id=\"environment\"", "</section>").to_owned();
        machine.matches("<h3>").count().max(1)
    };
    let named = |records: &mut [Record], name: &str| {
        for (number, record) in records.iter_mut().enumerate() {
            record.run = format!("{name}{number:08}");
            if let Some(environment) = &mut record.environment {
                environment.host = Some(Host { name: name.to_owned(), ..Host::default() });
            }
        }
    };
    one.append(&mut other.clone());
    assert_eq!(headings(&one), 1);
    named(&mut other, "n7");
    one.append(&mut other);
    assert_eq!(headings(&one), 2);
}

/// Runs of one address are set against each other only if they measured the same thing in the same way.
#[test]
fn the_first_tile_sets_only_equals_against_each_other() {
    let shape = Shape { emulated: false, ..SMALL };
    let runs = |change: &dyn Fn(&mut Record)| {
        let mut all = Vec::new();
        for run in ["a", "b"] {
            let mut own = sample::whole(&shape);
            own.retain(|record| record.test == "mmio-read" || record.environment.is_some());
            for record in &mut own {
                record.run = run.repeat(16);
                record.label = Some(format!("run {run}"));
                if run == "b" {
                    change(record);
                }
            }
            all.extend(own);
        }
        let page = html::render(&all);
        let (_, tile) = page.split_once("<span>Median</span>").unwrap();
        tile.split("</div>").next().unwrap().contains('%')
    };
    assert!(runs(&|_| ()), "the same of both");
    assert!(!runs(&|record| record.method.iter_mut().for_each(|method| method.backend = "vfio".to_owned())));
    assert!(!runs(&|record| record.method.iter_mut().for_each(|method| method.batch = 16)));
    assert!(!runs(&|record| record.method.iter_mut().for_each(|method| method.emulated = true)));
    assert!(!runs(&|record| record.device.iter_mut().for_each(|device| device.device = 0x1234)));
    let host = |record: &mut Record| {
        let other = Host { name: "other".to_owned(), ..Host::default() };
        record.environment.iter_mut().for_each(|environment| environment.host = Some(other.clone()));
    };
    assert!(!runs(&host));
}

/// A screen reader's list of headings has no gap.
#[test]
fn no_level_of_headings_is_left_out() {
    for records in [sample::whole(&SMALL), mixed::whole(), mixed::counters(None)] {
        let page = html::render(&records);
        let levels: Vec<u32> = page.split("<h").skip(1).filter_map(|part| part.chars().next()?.to_digit(10)).collect();
        assert_eq!(levels[0], 1);
        let gap = levels.windows(2).position(|pair| pair[1] > pair[0] + 1);
        assert_eq!(gap, None, "{levels:?}");
    }
}
