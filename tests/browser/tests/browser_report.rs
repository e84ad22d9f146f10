//! The pages of `pciescope report`: read, clicked, printed, weighed.
#![allow(clippy::unwrap_used)] // a test file is not a #[test] function to clippy

use std::io::Write;
use std::path::{Path, PathBuf};

use pciescope_browser_tests::{Browser, SIZES, pciescope, repository};
use pciescope_core::Sink;
use pciescope_report::jsonl::Writer;

#[path = "../../../crates/report/tests/sample/mod.rs"]
mod sample;

/// The colours of a canvas: many where a map is drawn, one where it is blank.
const COLOURS: &str = "(() => { const c = document.querySelector('.grid canvas'); \
    const p = new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer); return new Set(p).size })()";
/// The share of a canvas that something was painted on: what is not is transparent. Looks at a copy, for Chromium warns of
/// canvases that are read twice.
const COVERED: &str = "(() => { const from = document.querySelector('.grid canvas'), c = document.createElement('canvas'); \
    c.width = from.width; c.height = from.height; c.getContext('2d').drawImage(from, 0, 0); \
    const p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0; \
    for (let i = 3; i < p.length; i += 4) n += p[i] === 255; return n * 4 / p.length })()";
const SAID: &str = "document.querySelector('.said').textContent";

/// A page, from its records to the browser and to both widths: nothing is complained of and nothing hangs out.
fn look(browser: &Browser, records: &Path, folder: &Path, name: &str) -> PathBuf {
    let page = folder.join(format!("{name}.html"));
    pciescope(&["report", records.to_str().unwrap(), "-o", page.to_str().unwrap()]);
    let address = format!("file://{}", page.display());
    browser.media(false, false);
    browser.size(SIZES[0]);
    browser.open(&address);
    let first = browser.first_paint_ms();
    // The script draws all maps before this event; the next picture on the screen has them.
    let drawn = browser.number("performance.getEntriesByType('navigation')[0].domContentLoadedEventStart");
    let weight = std::fs::metadata(&page).unwrap().len();
    println!(
        "report {name}: {weight} bytes, first contentful paint after {first:.0} ms, maps drawn after {drawn:.0} ms"
    );
    browser.screenshot(&format!("report-{name}-1280"));
    browser.screenshot_whole(&format!("report-{name}-1280-whole"));
    assert_eq!(browser.accessibility(), [""; 0], "{name} at 1280");
    assert_eq!(browser.hangs_out(), [""; 0], "{name} at 1280");

    browser.media(true, false);
    browser.size(SIZES[1]);
    browser.open(&address);
    browser.screenshot(&format!("report-{name}-390-dark"));
    browser.media(false, false);
    browser.screenshot_whole(&format!("report-{name}-390-whole"));
    assert_eq!(browser.accessibility(), [""; 0], "{name} at 390");
    assert_eq!(browser.hangs_out(), [""; 0], "{name} at 390");

    browser.size(SIZES[0]);
    browser.open(&address);
    assert_eq!(browser.console(), [""; 0], "{name}");
    page
}

fn print(browser: &Browser, name: &str) {
    browser.media(true, true);
    // Paper is white for every preference of the screen, and the words on it are dark.
    assert_eq!(browser.text("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)", "{name}");
    let ink = browser.text("getComputedStyle(document.querySelector('h1')).color");
    let light: u32 =
        ink.trim_matches(|c: char| !c.is_ascii_digit()).split(", ").map(|n| n.parse::<u32>().unwrap()).sum();
    assert!(light < 300, "{name}: {ink} on white");
    browser.screenshot_whole(&format!("report-{name}-print"));
    browser.media(false, false);
    let sheets = browser.print(&format!("report-{name}"));
    println!("report {name}: {sheets} sheets of A4");
    assert!(sheets > 0);
}

#[test]
#[ignore = "needs Chromium: make browser-test"]
fn a_cell_of_the_heat_map_shows_its_histogram() {
    let folder = tempfile::tempdir().unwrap();
    let browser = Browser::start();
    look(&browser, &repository().join("tests/records/demo.jsonl"), folder.path(), "demo");
    // Words alone have colours too, at their edges, but cover little.
    assert!(browser.number(COLOURS) > 4.0 && browser.number(COVERED) > 0.3, "{}", browser.number(COVERED));
    assert!(browser.text(SAID).starts_with("All "));
    let drawn = "[...document.querySelectorAll('.pair svg path.cell')].map(one => one.getAttribute('d')).join()";
    assert_eq!(browser.text(drawn), "", "no cell is chosen");
    browser.click_at(".grid canvas", 90.0, 8.0);
    browser.wait(&format!("{SAID}.startsWith('CPU 0, ')"));
    // The cell lies over the histogram and the tail of all, within the charts.
    let first = browser.text(drawn);
    assert!(
        browser.number("document.querySelectorAll('.pair svg path.cell').length") == 2.0 && !first.contains("NaN"),
        "{first}"
    );
    browser.screenshot("report-demo-1280-cell");
    // A pointer that lies on a cell shows that one.
    browser.point_away();
    browser.keys(".grid canvas", "\u{e014}");
    // CPUs stand by package, node and core: CPU 2 is the neighbour of CPU 0.
    browser.wait(&format!("{SAID}.startsWith('CPU 2, ')"));
    assert_ne!(browser.text(drawn), first);
    assert_eq!(browser.console(), [""; 0]);
    print(&browser, "demo");
}

/// The words that a map's canvas was painted with, by their places: caught where they are painted.
const PAINTED: &str = "(() => { const canvas = CanvasRenderingContext2D.prototype, paint = canvas.fillText; \
    if (!window.painted) canvas.fillText = function (text, x, y) { window.painted.push([text, Math.round(y)]); \
    return paint.apply(this, arguments) }; window.painted = []; window.dispatchEvent(new Event('resize')) })()";

#[test]
#[ignore = "needs Chromium: make browser-test"]
fn cpus_stand_by_package_then_node_with_siblings_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("packages.jsonl");
    let shape = sample::Shape { cpus: 32, vectors: 4, samples: 100, emulated: false };
    let mut all = sample::irq(&mut sample::Random(4), &shape, "00000000000000b3", "irq-hardware", 2300);
    for cpu in all.iter_mut().filter_map(|record| record.cpu.as_mut()) {
        // 2 packages of 2 nodes of 4 cores of 2 threads. Nodes are not numbered along the packages.
        let core = cpu.cpu % 16;
        (cpu.core, cpu.thread, cpu.package) = (Some(core), Some(cpu.cpu / 16), Some(core / 8));
        cpu.node = Some([0, 2, 1, 3][core as usize / 4]);
        cpu.l3 = Some(core / 4 * 4);
    }
    let mut writer = Writer::new(std::fs::File::create(&records).unwrap());
    all.iter().for_each(|record| writer.put(record).unwrap());
    let browser = Browser::start();
    look(&browser, &records, folder.path(), "packages");
    let words = "window.painted.map(p => p[0])";
    for (size, package) in [(SIZES[0], "package 0"), (SIZES[1], "package 0")] {
        browser.size(size);
        browser.run(PAINTED);
        browser.wait(&format!("{words}.includes('{package}')"));
        // From the left: nodes of package 0 before those of package 1.
        let nodes = "(() => { const y = window.painted.find(p => /^node /.test(p[0]))[1]; \
            return window.painted.filter(p => p[1] === y && /^(node )?[0-3]$/.test(p[0])) \
                .slice(0, 4).map(p => p[0].slice(-1)).join() })()";
        assert_eq!(browser.text(nodes), "0,2,1,3", "{size:?}");
        // Threads of a core are neighbours: CPU 16 follows CPU 0.
        let cpus = "(() => { const y = window.painted.find(p => p[0] === 'CPU')[1]; \
            return window.painted.filter(p => p[1] === y && /^[0-9]+$/.test(p[0])).slice(0, 3).map(p => p[0]).join() })()";
        let shown = browser.text(cpus);
        assert!(size == SIZES[1] || shown == "0,16,1", "{shown}");
    }
    browser.size(SIZES[0]);
    browser.run(
        "(() => { const canvas = document.querySelector('.grid canvas'), box = canvas.getBoundingClientRect(); \
         canvas.dispatchEvent(new PointerEvent('pointermove', { clientX: box.left + 120, clientY: box.top + 8 })) })()",
    );
    browser.wait("/^CPU [0-9]+ \\(package 0, node 0\\)/.test(document.querySelector('.tip').textContent)");
    let keys = "document.querySelector('.keys').textContent";
    assert!(browser.text(keys).contains("joins the threads of a core"), "{}", browser.text(keys));
    browser.screenshot("report-packages-1280-tip");
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
#[ignore = "needs Chromium: make browser-test"]
fn a_thousand_cpus_by_64_vectors_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("wide.jsonl");
    let shape = sample::Shape { cpus: 1000, vectors: 64, samples: 100, emulated: false };
    let mut all = sample::mmio(&mut sample::Random(3), &shape, "00000000000000b1");
    all.extend(sample::irq(&mut sample::Random(4), &shape, "00000000000000b2", "irq-hardware", 2300));
    let mut writer = Writer::new(std::io::BufWriter::new(std::fs::File::create(&records).unwrap()));
    for record in &all {
        writer.put(record).unwrap();
    }
    writer.into_inner().flush().unwrap();

    let browser = Browser::start();
    look(&browser, &records, folder.path(), "1000x64");
    // The map of interrupts: its 64,000 cells are a thousand columns of one pixel or more.
    let last = "[...document.querySelectorAll('.grid canvas')].pop()";
    assert!(browser.number(&format!("{last}.width")) >= 1000.0);
    assert!(browser.number(&COLOURS.replace("document.querySelector('.grid canvas')", last)) > 100.0);
    browser.run(&format!("{last}.id = 'wide'"));
    browser.click_at("#wide", 600.0, 300.0);
    let said = "document.querySelector('#wide').closest('.map').querySelector('.said').textContent";
    browser.wait(&format!("/^CPU [0-9]+, /.test({said})"));
    browser.screenshot("report-1000x64-1280-cell");
    assert_eq!(browser.console(), [""; 0]);
    print(&browser, "1000x64");
}

#[test]
#[ignore = "needs Chromium: make browser-test"]
fn counters_and_readouts_are_legible() {
    let folder = tempfile::tempdir().unwrap();
    let browser = Browser::start();
    for (name, records) in [
        ("counters", sample::mixed::counters(Some(0.25))),
        ("readout", sample::readout::run()),
        ("readout-sweep", sample::readout::sweep()),
        ("mixed", sample::mixed::whole()),
    ] {
        let file = folder.path().join(format!("{name}.jsonl"));
        let mut writer = Writer::new(std::fs::File::create(&file).unwrap());
        writer.put_all(&records).unwrap();
        look(&browser, &file, folder.path(), name);
        print(&browser, name);
    }
}

/// Whether an element can be seen.
fn is_seen(browser: &Browser, selector: &str) -> bool {
    let height = format!("document.querySelector({}).getBoundingClientRect().height", serde_json::json!(selector));
    browser.number(&height) > 0.0
}

#[test]
#[ignore = "needs Chromium: make browser-test"]
fn the_first_screen_answers_at_every_width() {
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("runs.jsonl");
    let mut writer = Writer::new(std::fs::File::create(&records).unwrap());
    let shape = sample::Shape { cpus: 8, vectors: 4, samples: 3000, emulated: false };
    for (seed, label) in [(1, "before"), (2, "after")] {
        for mut record in sample::mmio(&mut sample::Random(seed), &shape, label) {
            record.label = Some(label.to_owned());
            writer.put(&record).unwrap();
        }
    }
    writer.into_inner().flush().unwrap();
    let browser = Browser::start();
    look(&browser, &records, folder.path(), "runs");
    let sizes = [((1280, 900), "full", "middle"), ((900, 900), "middle", "full"), ((420, 900), "narrow", "middle")];
    for (size, shown, other) in sizes {
        browser.size(size);
        // Tiles and chart stand within the first screen, and the chart in the size that fits.
        let bottom =
            browser.number("document.querySelector('#first svg').parentElement.getBoundingClientRect().bottom");
        assert!(bottom < 900.0 * if size.0 < 700 { 1.2 } else { 1.0 }, "{size:?}: {bottom}");
        assert!(is_seen(&browser, &format!("#first svg.{shown}")), "{size:?}");
        assert!(!is_seen(&browser, &format!("#first svg.{other}")), "{size:?}");
        // Letters are no smaller than 9 pixels on the screen.
        let text = format!("document.querySelector('#first svg.{shown} text').getBoundingClientRect().height");
        assert!(browser.number(&text) >= 11.0, "{size:?}: {}", browser.number(&text));
        assert_eq!(browser.hangs_out(), [""; 0]);
        browser.screenshot(&format!("report-runs-{}", size.0));
    }
    // On a telephone each figure of the device's table stands in sight, with its head.
    let cell =
        "[...document.querySelectorAll('table.stack td')].find(c => c.dataset.head === 'Max').getBoundingClientRect()";
    assert!(browser.number(&format!("{cell}.right")) <= 420.0 && browser.number(&format!("{cell}.width")) > 40.0);
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
#[ignore = "needs Chromium: make browser-test"]
fn records_full_of_markup_stay_text() {
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("hostile.jsonl");
    let mut writer = Writer::new(std::fs::File::create(&records).unwrap());
    for record in &sample::hostile() {
        writer.put(record).unwrap();
    }
    let browser = Browser::start();
    look(&browser, &records, folder.path(), "hostile");
    assert_eq!(browser.number("document.querySelectorAll('img, iframe, a[href^=\"javascript\"]').length"), 0.0);
    assert_eq!(browser.number("document.querySelectorAll('script').length"), 2.0);
}
