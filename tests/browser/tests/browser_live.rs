//! The live page of `pciescope serve`, on figures whose right look is known.
#![allow(clippy::unwrap_used)] // a test file is not a #[test] function to clippy

use std::collections::BTreeMap;

use pciescope_browser_tests::{Browser, SIZES, Stage};
use pciescope_core::record::{ACCOUNTING, Failure};
use pciescope_core::{Below, Device, DeviceErrors, Link, WatchedLink, traffic};
use pciescope_serve::feed::{Channel, ChannelReading, Feed, Port, PortReading, Possible, Reading, Status};

/// 2026-11-21 09:00:00 UTC.
const BEGIN_MS: u64 = 1_795_251_600_000;

fn port(number: u32) -> Port {
    let (speed_gts, width) = if number % 3 == 0 { (32.0, 16) } else { (16.0, 4) };
    let link = Link {
        speed_gts,
        width,
        max_speed_gts: 32.0,
        max_width: 16,
        mps_bytes: Some(256),
        mrrs_bytes: None,
        is_nominal: false,
    };
    let below = |function: u32, driver: &str| Below {
        bdf: format!("0000:{:02x}:00.{function}", number * 16 + 1).parse().unwrap(),
        name: "Samsung Electronics Co Ltd NVMe SSD Controller PM9A1/PM9A3/980PRO".to_owned(),
        driver: Some(driver.to_owned()),
        devices: Vec::new(),
    };
    Port {
        id: format!("p{number}"),
        bdf: Some(format!("0000:{:02x}:00.0", number * 16).parse().unwrap()),
        pmu: Some(format!("dwc_rootport_{:x}", number << 12)),
        source: None,
        name: "Alibaba (China) Co., Ltd. M1 Root Port".to_owned(),
        driver: Some("pcieport".to_owned()),
        node: Some(number / 6),
        link: Some(link),
        ceiling_bytes_per_s: Some(if number % 3 == 0 { 58e9 } else { 7.26e9 }),
        below: if number % 3 == 0 {
            vec![below(0, "mlx5_core"), below(1, "mlx5_core")]
        } else {
            vec![below(0, "nvme")]
        },
        counts_errors: true,
        ..Port::default()
    }
}

fn channel(number: u32) -> Channel {
    let (node, within) = (number / 16, number % 16);
    let pmu = format!("ali_drw_{:x}{:03x}", 0x21 + node * 0x100, within * 0x80);
    Channel { id: format!("c{number}"), pmu, node: Some(node), peak_bytes_per_s: Some(19.2e9), ..Channel::default() }
}

/// What `second` brings: port `n` receives (n+1) x 100 MB/s and sends a tenth of it, changed a little from second to second.
fn reading(second: u64, ports: u32, channels: u32) -> Reading {
    let wave = |n: u32| 1.0 + 0.3 * ((second as f64 / (9.0 + f64::from(n))) + f64::from(n)).sin();
    let figures = |n: u32| {
        let rx = f64::from(n + 1) * 1e8 * wave(n);
        let ceiling = port(n).ceiling_bytes_per_s.unwrap();
        let mut errors: BTreeMap<String, f64> = BTreeMap::new();
        if n == 4 && second % 60 == 20 {
            errors = [("layer2_errors", 3.0), ("bad_tlp", 3.0), ("naks", 2.0)].map(|(k, v)| (k.to_owned(), v)).into();
        }
        let l0 = 0.6 + 0.2 * wave(n) - 0.2;
        let states = [("l0", l0), ("l1", 0.97 - l0), ("l1_2", 0.02), ("recovery", 0.01)];
        PortReading {
            rx: Some(rx),
            tx: Some(rx / 10.0),
            rx_share: Some(rx / ceiling),
            tx_share: Some(rx / 10.0 / ceiling),
            states: states.map(|(k, v)| (k.to_owned(), v)).into(),
            error_count: traffic::errors(|name| errors.get(name).copied()),
            errors,
            ..PortReading::default()
        }
    };
    let dram =
        |n: u32| ChannelReading { read: Some(2e9 * wave(n)), write: Some(8e8 * wave(n + 3)), ..Default::default() };
    Reading {
        time_ms: BEGIN_MS + second * 1000,
        seconds: 1.0,
        ports: (0..ports).map(|n| (format!("p{n}"), figures(n))).collect(),
        channels: (0..channels).map(|n| (format!("c{n}"), dram(n))).collect(),
        others: BTreeMap::new(),
        ..Reading::default()
    }
}

fn feed(ports: u32, channels: u32, seconds: u64) -> Feed {
    Feed {
        schema: 1,
        host: "node17".to_owned(),
        interval_s: 1.0,
        status: Status { state: "counting".to_owned(), ..Status::default() },
        ports: (0..ports).map(port).collect(),
        channels: (0..channels).map(channel).collect(),
        readings: (0..seconds).map(|second| reading(second, ports, channels)).collect(),
        ..Feed::default()
    }
}

/// A machine that stalls for three seconds makes the page say "stale", rightly.
const IS_LIVE: &str = "['live', 'stale'].includes(document.getElementById('state').textContent)";
const ROWS: &str = "[...document.querySelectorAll('#table tbody tr')].map(r => [...r.cells].slice(1).map(c => c.textContent).join('|')).join('\\n')";
/// What is old is grey.
const FILTER: &str = "getComputedStyle(document.querySelector('#table tbody')).filter";

/// axe-core finds nothing, in light and dark.
fn assert_accessible(browser: &Browser) {
    for is_dark in [true, false] {
        browser.media(is_dark, false);
        assert_eq!(browser.accessibility(), [""; 0], "dark: {is_dark}");
    }
}

const PORTS: &str =
    "[...document.querySelectorAll('#table tbody tr')].map(r => r.cells[1].textContent.slice(5, 7)).join(' ')";

fn is_hidden(browser: &Browser, id: &str) -> bool {
    browser.run(&format!("return document.getElementById('{id}').getBoundingClientRect().height === 0")) == true
}

#[test]
#[ignore = "needs Chromium: make browser-test"]
fn shows_the_figures_sorts_filters_zooms_and_pauses() {
    let stage = Stage::open(feed(6, 32, 200), 0);
    let browser = Browser::start();
    browser.size(SIZES[0]);
    browser.media(false, false);
    browser.open(&stage.url());
    browser.wait(IS_LIVE);
    let first = browser.first_paint_ms();
    let weight: usize = pciescope_serve::page::ASSETS.iter().map(|asset| asset.body.len()).sum();
    println!("live page: {weight} bytes, first contentful paint after {first:.0} ms");
    assert_eq!(browser.text("document.title"), "pciescope node17");

    // The figures of the last reading, as the tables of the tool write them.
    let last = &reading(199, 6, 0).ports["p1"];
    let rows = browser.text(ROWS);
    let wanted = format!(
        "0000:10:00.0|0|16 GT/s x4|{:.2}|{:.1}|{:.2}|{:.1}|L0 {:.1} %|-|0000:11:00.0 nvme",
        last.rx.unwrap() / 1e6,
        last.rx_share.unwrap() * 100.0,
        last.tx.unwrap() / 1e6,
        last.tx_share.unwrap() * 100.0,
        last.states["l0"] * 100.0
    );
    // The busiest stands first, and each port has more than the one before.
    assert_eq!(rows.lines().nth(4).unwrap(), wanted);
    // Three times 3 errors of layer 2 in 200 s; what the sum is made of and the retries are not added to it.
    assert!(rows.lines().nth(1).unwrap().contains("|9|"), "{rows}");
    assert_eq!(browser.number("document.querySelectorAll('#charts svg').length"), 4.0);
    assert_eq!(browser.number("document.querySelectorAll('#dies svg').length"), 2.0);
    assert_eq!(browser.number("document.querySelectorAll('#dies svg .layer').length"), 64.0);
    browser.screenshot("live-1280-light");
    browser.screenshot_whole("live-1280-light-whole");

    // Sorting: a number from the largest down, then up, then the busiest first again; a word from A.
    const BUSIEST: &str = "50 40 30 20 10 00";
    assert_eq!(browser.text(PORTS), BUSIEST);
    let head = |n: u32| format!("#table thead th:nth-child({n}) button");
    browser.click(&head(5));
    let by_rx = browser.text(PORTS);
    assert_eq!(browser.text("document.querySelector('#table th[aria-sort]').getAttribute('aria-sort')"), "descending");
    browser.click(&head(5));
    assert_eq!(browser.text(PORTS), by_rx.rsplit(' ').collect::<Vec<_>>().join(" "));
    browser.click(&head(5));
    assert_eq!(browser.text(PORTS), BUSIEST);
    browser.click(&head(2));
    assert_eq!(browser.text(PORTS), "00 10 20 30 40 50");
    browser.click(&head(2));
    assert_eq!(browser.text(PORTS), "50 40 30 20 10 00");
    browser.click(&head(2));

    // Filter: all words, anywhere in the text of the row and the port's name.
    browser.keys("#filter", "MLX5");
    assert_eq!(browser.text(PORTS), "30 00");
    assert_eq!(browser.text("document.getElementById('shown').textContent"), "2 of 6 ports");
    browser.run("const f = document.getElementById('filter'); f.value = ''; f.dispatchEvent(new Event('input'))");
    assert_eq!(browser.text(PORTS), BUSIEST);

    // A click on a row zooms on its port; Escape leaves; the keyboard does the same.
    assert!(is_hidden(&browser, "zoom"));
    browser.click("#table tbody tr:nth-child(2) td:nth-child(3)");
    browser.wait("!document.getElementById('zoom').hidden");
    stage.say(reading(200, 6, 32));
    // The last reading brings the last three of them; the page is live before it has that.
    browser.wait("document.querySelectorAll('#events tbody tr').length === 4");
    assert_eq!(browser.text("document.getElementById('zoom-name').textContent"), "0000:40:00.0");
    assert_eq!(browser.number("document.querySelectorAll('#zoom-charts .mark').length"), 4.0);
    assert_eq!(browser.number("document.querySelectorAll('#zoom-charts .layer').length"), 4.0);
    assert!(browser.text("document.getElementById('zoom-facts').textContent").contains("the port can 32 GT/s x16"));
    browser.screenshot_whole("live-1280-zoom");
    browser.keys("#zoom-name", "\u{e00c}");
    browser.wait("document.getElementById('zoom').hidden");
    browser.keys("#table tbody tr:nth-child(5) button", "\u{e015}");
    browser.keys("#table tbody tr:nth-child(6) button", "\u{e007}");
    browser.wait("document.getElementById('zoom-name').textContent === '0000:00:00.0'");
    browser.click("#back");
    browser.wait("document.getElementById('zoom').hidden");

    // A port that is chosen has a chart.
    browser.click("#table tbody tr:nth-child(6) input");
    assert_eq!(browser.number("document.querySelectorAll('#charts svg').length"), 5.0);

    // A new reading is drawn, but not while the page is paused.
    stage.say(reading(201, 6, 32));
    let rx = |second| format!("{:.2}", reading(second, 6, 0).ports["p0"].rx.unwrap() / 1e6);
    let shown = "document.querySelector('#table tbody tr:nth-child(6) td:nth-child(5)').textContent";
    browser.wait(&format!("{shown} === '{}'", rx(201)));
    browser.click("#pause");
    stage.say(reading(202, 6, 32));
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(browser.text(shown), rx(201));
    assert_eq!(browser.text("document.getElementById('state').textContent"), "paused");
    browser.click("#pause");
    browser.wait(&format!("{shown} === '{}'", rx(202)));

    // The theme is the system's until one is chosen, and the choice is kept.
    let back = "getComputedStyle(document.body).backgroundColor";
    assert_eq!(browser.text(back), "rgb(245, 246, 248)");
    browser.media(true, false);
    assert_eq!(browser.text(back), "rgb(20, 22, 27)");
    browser.screenshot("live-1280-dark");
    browser.run("const t = document.getElementById('theme'); t.value = 'light'; t.dispatchEvent(new Event('change'))");
    assert_eq!(browser.text(back), "rgb(245, 246, 248)");
    browser.open(&stage.url());
    assert_eq!(browser.text(back), "rgb(245, 246, 248)");

    browser.run("localStorage.clear()");
    browser.size(SIZES[1]);
    browser.open(&stage.url());
    browser.wait(IS_LIVE);
    browser.screenshot("live-390-dark");
    browser.media(false, false);
    browser.screenshot_whole("live-390-light-whole");
    assert_eq!(browser.hangs_out(), [""; 0]);
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
#[ignore = "needs Chromium: make browser-test"]
fn says_when_the_feed_is_lost_and_goes_on_when_it_is_back() {
    let stage = Stage::open(feed(2, 2, 30), 0);
    let port = stage.port();
    let browser = Browser::start();
    browser.size(SIZES[0]);
    browser.open(&stage.url());
    browser.wait(IS_LIVE);
    drop(stage);
    browser.wait("document.getElementById('state').textContent === 'feed lost'");
    assert!(browser.text("document.getElementById('lost').textContent").starts_with("The feed is lost since "));
    assert!(browser.text("document.title").starts_with("(lost)"));
    assert_eq!(browser.text(FILTER), "grayscale(1)");
    // Where neither asks for colours, the light ones are taken.
    browser.screenshot("live-1280-lost");

    // A server without a past: what was seen before stays beside what comes.
    let mut empty = feed(2, 2, 0);
    empty.readings = vec![reading(40, 2, 2)];
    let stage = Stage::open(empty, port);
    browser.wait(IS_LIVE);
    assert!(is_hidden(&browser, "lost"));
    stage.say(reading(41, 2, 2));
    let rx = format!("{:.2}", reading(41, 2, 0).ports["p0"].rx.unwrap() / 1e6);
    browser.wait(&format!(
        "document.querySelector('#table tbody tr:nth-child(2) td:nth-child(5)').textContent === '{rx}'"
    ));
    // Two stretches with a gap between them.
    assert_eq!(
        browser.number("document.querySelector('#charts path.rx').getAttribute('d').split('M').length - 1"),
        2.0
    );
    assert_eq!(browser.text(FILTER), "none");

    // A feed that stays open and says nothing.
    browser.wait("document.getElementById('state').textContent === 'stale'");
    assert_eq!(browser.text(FILTER), "grayscale(1)");
    stage.change(|feed| feed.status.state = "ended".to_owned());
    browser.wait("document.getElementById('state').textContent === 'replay ended'");
}

#[test]
#[ignore = "needs Chromium: make browser-test"]
fn what_has_changed_is_fetched_at_once() {
    let stage = Stage::open(feed(2, 2, 30), 0);
    let browser = Browser::start();
    browser.size(SIZES[0]);
    browser.open(&stage.url());
    browser.wait(IS_LIVE);
    stage.change(|feed| feed.ports[0].link.as_mut().unwrap().width = 2);
    stage.say_changed();
    // Readings go on, so that the page does not ask because of silence; of its own it asks every 60 s.
    let is_there = (30..50).any(|second| {
        stage.say(reading(second, 2, 2));
        std::thread::sleep(std::time::Duration::from_millis(250));
        browser.text(ROWS).contains("32 GT/s x2|")
    });
    assert!(is_there, "{}", browser.text(ROWS));
}

#[test]
#[ignore = "needs Chromium: make browser-test"]
fn a_feed_that_has_been_silent_for_long_is_stale_from_the_first_moment() {
    let stage = Stage::open(feed(2, 2, 30), 0);
    // The newest reading is of 09:00:29.
    stage.set_clock("Sat, 21 Nov 2026 10:00:29 GMT");
    let browser = Browser::start();
    browser.size(SIZES[0]);
    browser.open(&stage.url());
    browser.wait("document.getElementById('state').textContent === 'stale'");
    let when = browser.text("document.getElementById('when').textContent");
    assert!(when.contains("none since for 36"), "{when}");
}

#[test]
#[ignore = "needs Chromium: make browser-test"]
fn names_with_markup_stay_text() {
    let mut hostile = feed(1, 1, 3);
    let nasty = "<img src=x onerror=\"document.title='owned'\"></script><script>document.title='owned'</script>\u{202e}\u{1b}[31m";
    hostile.host = nasty.to_owned();
    let port = &mut hostile.ports[0];
    port.bdf = None;
    port.pmu = Some(nasty.to_owned());
    port.name = nasty.repeat(30);
    port.driver = Some(nasty.to_owned());
    port.below[0].driver = Some(nasty.repeat(3));
    port.error = Some(Failure { code: nasty.to_owned(), text: nasty.to_owned(), hint: None });
    hostile.channels[0].pmu = nasty.to_owned();
    for reading in &mut hostile.readings {
        let port = reading.ports.get_mut("p0").unwrap();
        port.errors.insert(nasty.to_owned(), 1.0);
        port.states.insert("__proto__".to_owned(), 0.1);
    }
    let stage = Stage::open(hostile, 0);
    let browser = Browser::start();
    browser.size(SIZES[1]);
    browser.open(&format!("{}#port=p0", stage.url()));
    browser.wait("!document.getElementById('zoom').hidden");
    assert!(browser.text("document.getElementById('zoom-name').textContent").starts_with("<img src=x"));
    assert!(browser.text("document.title").starts_with("pciescope <img"));
    assert_eq!(browser.number("document.querySelectorAll('img, script:not([src])').length"), 0.0);
    // Nothing reorders the words beside it.
    assert!(!browser.text("document.body.textContent").contains(['\u{202e}', '\u{1b}']));
    assert_eq!(browser.hangs_out(), [""; 0]);
    assert_eq!(browser.console(), [""; 0]);
    browser.screenshot_whole("live-390-hostile");
}

#[test]
#[ignore = "needs Chromium: make browser-test"]
fn a_machine_without_counters_says_so() {
    let mut none = feed(0, 0, 0);
    let text = "there is no counter of PCIe ports or DRAM channels on this machine".to_owned();
    none.status =
        Status { state: "none".to_owned(), text: Some(text.clone()), hint: Some("load rasdes_pmu".to_owned()) };
    let link = Link { width: 2, ..port(1).link.unwrap() };
    let correctable = BTreeMap::from([("BadTLP".to_owned(), 1234)]);
    let disk = Device {
        bdf: "0000:11:00.0".parse().unwrap(),
        inode: None,
        name: "NVMe SSD".to_owned(),
        class: "Non-Volatile memory controller".to_owned(),
        driver: Some("nvme".to_owned()),
        devices: Vec::new(),
        node: Some(0),
        path: port(1).bdf.into_iter().collect(),
        link,
        is_downtrained: Some(true),
        errors: Some(DeviceErrors { correctable, ..DeviceErrors::default() }),
        watched: Some(WatchedLink { lost_bytes: 5.25e9, ..WatchedLink::default() }),
    };
    none.devices = vec![disk];
    let stage = Stage::open(none, 0);
    let browser = Browser::start();
    browser.size(SIZES[0]);
    browser.open(&stage.url());
    browser.wait("document.getElementById('state').textContent === 'no counters'");
    assert_eq!(browser.text("document.getElementById('none-text').textContent"), text);
    // What sysfs says about links is still shown.
    assert_eq!(
        browser.text("[...document.querySelectorAll('#devices tbody td')].map(c => c.innerText).join('|')"),
        "0000:11:00.0|0000:10:00.0|16 GT/s x2 (can 32 GT/s x16), 5.25 GB lost in 7 days|correctable BadTLP 1,234|nvme|\
         Non-Volatile memory controller: NVMe SSD"
    );
    for id in ["ports", "traffic", "dram", "zoom", "lost"] {
        assert!(is_hidden(&browser, id), "{id}");
    }
    assert_eq!(browser.console(), [""; 0]);
    browser.screenshot("live-1280-none");
}

/// A reading of which the test says everything that matters: bytes per second from the devices, and those of DRAM.
fn plain(second: u64, rx: &[f64], (read, write): (f64, f64), running: Option<f64>) -> Reading {
    let figures = |rx: &f64| {
        let is_idle = traffic::is_idle([Some(*rx), Some(0.0)], None);
        PortReading { rx: Some(*rx), tx: Some(0.0), is_idle, running, ..PortReading::default() }
    };
    let dram = ChannelReading { read: Some(read), write: Some(write), running, ..ChannelReading::default() };
    Reading {
        time_ms: BEGIN_MS + second * 1000,
        seconds: 1.0,
        ports: rx.iter().enumerate().map(|(n, rx)| (format!("p{n}"), figures(rx))).collect(),
        channels: [("c0".to_owned(), dram)].into(),
        others: BTreeMap::new(),
        functions: BTreeMap::new(),
    }
}

#[test]
#[ignore = "needs Chromium: make browser-test"]
fn idle_ports_are_dim_and_last_and_have_no_chart() {
    let mut quiet = feed(4, 1, 0);
    quiet.readings = (0..30).map(|second| plain(second, &[0.0, 40.0, 0.0, 3e8], (1e9, 1e9), None)).collect();
    let stage = Stage::open(quiet, 0);
    let browser = Browser::start();
    browser.size(SIZES[0]);
    browser.media(false, false);
    browser.open(&stage.url());
    browser.wait(IS_LIVE);
    assert_eq!(browser.text(PORTS), "30 00 10 20");
    assert_eq!(
        browser.text("[...document.querySelectorAll('#table tbody tr')].map(r => r.classList.contains('idle')).join()"),
        "false,true,true,true"
    );
    assert_eq!(browser.number("document.querySelectorAll('#charts svg').length"), 1.0);
    // Who wants the chart of an idle port gets one whose axis does not blow up nothing.
    browser.click("#table tbody tr:nth-child(3) input");
    let labels = "[...document.querySelectorAll('#charts svg')].flatMap(s => [...s.querySelectorAll('text')].map(t => t.textContent)).join('|')";
    assert!(
        !browser.text(labels).contains("1 B/s") && browser.text(labels).contains("100 kB/s"),
        "{}",
        browser.text(labels)
    );
    browser.screenshot_whole("live-1280-idle");
    assert_accessible(&browser);

    // Where nothing moves there is no chart, and the page says so.
    let mut still = feed(3, 1, 0);
    still.readings = (0..5).map(|second| plain(second, &[0.0; 3], (0.0, 0.0), None)).collect();
    let stage = Stage::open(still, 0);
    browser.open(&stage.url());
    browser.wait(IS_LIVE);
    assert_eq!(browser.number("document.querySelectorAll('#charts svg').length"), 0.0);
    assert!(!is_hidden(&browser, "no-traffic"));
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
#[ignore = "needs Chromium: make browser-test"]
fn a_port_is_one_row_with_what_is_wrong_and_what_the_kernel_counted() {
    let mut two = feed(3, 1, 30);
    two.is_synthetic = true;
    two.ports[0].link = Some(Link { speed_gts: 16.0, width: 4, ..two.ports[0].link.unwrap() });
    two.ports[0].possible = Some(Possible { speed_gts: 32.0, width: 8 });
    let second = Port { id: "p0 kernel".to_owned(), source: Some(ACCOUNTING.to_owned()), ..two.ports[0].clone() };
    two.ports.push(Port { is_second: true, ..second.clone() });
    // What nothing but the kernel counts is a lower bound, in the row's own figures.
    two.ports[1].source = second.source;
    for reading in &mut two.readings {
        let kernel = PortReading { rx: Some(7e6), tx: Some(8e6), ..PortReading::default() };
        reading.ports.insert("p0 kernel".to_owned(), kernel);
        let alone = PortReading { rx: Some(5e6), tx: None, ..PortReading::default() };
        reading.ports.insert("p1".to_owned(), alone);
    }
    let stage = Stage::open(two, 0);
    let browser = Browser::start();
    for size in [SIZES[0], (768, 1024), SIZES[1]] {
        browser.size(size);
        browser.open(&format!("{}#port=p0", stage.url()));
        browser.wait(IS_LIVE);
        assert!(!is_hidden(&browser, "synthetic"));
        let rows = browser.text(ROWS);
        assert_eq!(browser.text(PORTS), "20 00 10", "{rows}");
        assert!(rows.contains("\n0000:00:00.0|0|16 of 32 GT/s x4 of 8|"), "{rows}");
        assert!(rows.contains("|>=7.00, >=8.00|") && rows.contains("0000:10:00.0|0|16 GT/s x4|>=5.00|"), "{rows}");
        assert_eq!(
            browser.text("[...document.querySelectorAll('#table td.bad')].map(c => c.textContent).join()"),
            "16 of 32 GT/s x4 of 8"
        );
        // Link and errors stand in sight at every width.
        let right = |what| format!("document.querySelector('{what}').getBoundingClientRect().right");
        let link = browser.number(&right("#table tbody tr td:nth-child(4)"));
        assert!(link <= browser.number(&right("#ports .scroll")), "{size:?}: {link}");
        assert_accessible(&browser);
        browser.screenshot_whole(&format!("live-{}-two", size.0));
    }
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
#[ignore = "needs Chromium: make browser-test"]
fn emulated_and_estimated_figures_are_marked() {
    let mut marked = feed(2, 1, 0);
    marked.readings = (0..10).map(|second| plain(second, &[5e8, 37.42e6], (1e9, 1e9), Some(0.39))).collect();
    marked.ports.iter_mut().for_each(|port| port.is_emulated = true);
    marked.channels[0].is_emulated = true;
    let stage = Stage::open(marked, 0);
    let browser = Browser::start();
    browser.size(SIZES[0]);
    browser.open(&stage.url());
    browser.wait(IS_LIVE);
    assert!(!is_hidden(&browser, "emulated"));
    assert!(browser.text(ROWS).contains("|~37.42|"), "{}", browser.text(ROWS));
    for captions in ["#charts figcaption", "#dies figcaption"] {
        let said = browser.text(&format!("document.querySelector('{captions}').textContent"));
        assert!(said.contains("EMULATED") && said.contains('~'), "{captions}: {said}");
    }
    assert!(browser.text("document.getElementById('tree').textContent").contains('~'));
    browser.screenshot("live-1280-emulated");
    // What is neither has no mark.
    let stage = Stage::open(feed(2, 2, 5), 0);
    browser.open(&stage.url());
    browser.wait(IS_LIVE);
    assert!(is_hidden(&browser, "emulated") && !browser.text(ROWS).contains('~'));
}

#[test]
#[ignore = "needs Chromium: make browser-test"]
fn words_of_an_axis_never_lie_over_each_other() {
    let browser = Browser::start();
    browser.size(SIZES[0]);
    for (read, write) in [(1e6, 9e9), (9e9, 1e6), (4e9, 3e9), (0.0, 8e9)] {
        let mut one = feed(1, 1, 0);
        one.readings = (0..10).map(|second| plain(second, &[1e9], (read, write), None)).collect();
        let stage = Stage::open(one, 0);
        browser.open(&stage.url());
        browser.wait(IS_LIVE);
        let places = "[...document.querySelectorAll('#dies svg text[text-anchor=end]')].map(t => Number(t.getAttribute('y'))).sort((a, b) => a - b)";
        let least = browser.number(&format!(
            "(() => {{ const y = {places}; return Math.min(...y.slice(1).map((v, i) => v - y[i])) }})()"
        ));
        assert!(least >= 12.0, "{read} read, {write} written: {least} pixels apart");
        browser.screenshot(&format!("live-1280-dram-{read:.0e}-{write:.0e}"));
    }
}

#[test]
#[ignore = "needs Chromium: make browser-test"]
fn links_are_drawn_with_speed_width_and_traffic() {
    let mut tree = feed(3, 1, 0);
    tree.readings = (0..10).map(|second| plain(second, &[5e9, 0.0, 2e9], (1e9, 1e9), None)).collect();
    // Behind the second port stands a switch with a disk, which sysfs knows of.
    let device = |bdf: &str, path: &[&str], driver: &str, width: u8| Device {
        bdf: bdf.parse().unwrap(),
        inode: None,
        name: "Something".to_owned(),
        class: String::new(),
        driver: Some(driver.to_owned()),
        devices: Vec::new(),
        node: Some(0),
        path: path.iter().map(|one| one.parse().unwrap()).collect(),
        link: Link { width, ..port(1).link.unwrap() },
        is_downtrained: None,
        errors: None,
        watched: None,
    };
    let (root, up, down) = ("0000:10:00.0", "0000:11:00.0", "0000:12:00.0");
    tree.devices = vec![
        device(up, &[root], "pcieport", 4),
        device(down, &[root, up], "pcieport", 4),
        device("0000:13:00.0", &[root, up, down], "nvme", 2),
    ];
    let above = |path: &[&str]| path.iter().map(|one| one.parse().unwrap()).collect();
    tree.paths = [(down.to_owned(), above(&[root, up])), ("0000:13:00.0".to_owned(), above(&[root, up, down]))].into();
    let stage = Stage::open(tree, 0);
    let browser = Browser::start();
    browser.media(false, false);
    for size in [(1280, 900), (420, 900)] {
        browser.size(size);
        browser.open(&stage.url());
        browser.wait(IS_LIVE);
        browser.wait("document.querySelectorAll('#tree .edge').length === 6");
        assert_eq!(browser.number("document.querySelectorAll('#tree .edge.busy').length"), 3.0);
        let words = browser.text("[...document.querySelectorAll('#tree text')].map(t => t.textContent).join('|')");
        for wanted in ["32 GT/s x16", "16 GT/s x2", "Rx 5 GB/s, Tx 0 B/s", "0000:13:00.0|nvme"] {
            assert!(words.contains(wanted), "{wanted}: {words}");
        }
        // The busiest port stands at the top.
        assert!(words.find("0000:00:00.0").unwrap() < words.find("0000:20:00.0").unwrap(), "{words}");
        assert_eq!(browser.hangs_out(), [""; 0], "{size:?}");
        browser.run("document.getElementById('topology').scrollIntoView()");
        browser.screenshot(&format!("live-{}-topology", size.0));
    }
    assert_eq!(browser.console(), [""; 0]);
}
