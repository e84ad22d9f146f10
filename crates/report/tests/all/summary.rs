//! The opening summary: each sentence with records that call for it, and with records that do not.

use pciescope_core::{Failure, Histogram, Metric, Record, Severity, Warning, outcome};
use pciescope_report::{facts, html, model};

use crate::sample::{self, Random, Shape, mixed, readout};

const GOOD: usize = 0;
const DOUBTFUL: usize = 1;
const TO_DO: usize = 2;

fn said(records: &[Record], list: usize) -> String {
    let conclusions = facts::conclude(records, &model::sections(records));
    let statements = conclusions.lists()[list].2;
    statements.iter().map(|s| format!("{}\n", s.text)).collect()
}

#[track_caller]
fn fires(records: &[Record], list: usize, words: &str) {
    let said = said(records, list);
    assert!(said.contains(words), "{words:?} is not in\n{said}");
}

#[track_caller]
fn is_silent(records: &[Record], list: usize, words: &str) {
    let said = said(records, list);
    assert!(!said.contains(words), "{words:?} is in\n{said}");
}

fn mmio(emulated: bool) -> Vec<Record> {
    let mut records = sample::mmio(&mut Random(1), &Shape { cpus: 2, vectors: 1, samples: 2000, emulated }, "1");
    records.iter_mut().for_each(|record| record.warnings.clear());
    records
}

/// Register reads of one duration, and one slowest.
fn steady(ns: u64, slowest: u64, count: u64) -> Vec<Record> {
    let mut records = mmio(false);
    records.truncate(2);
    let values = (1..count).map(|_| ns).chain([slowest]);
    records[1].histograms.insert(outcome::LATENCY.to_owned(), Histogram::of_ns(values).unwrap());
    records
}

fn irq(vectors: u16) -> Vec<Record> {
    sample::irq(&mut Random(2), &Shape { cpus: 2, vectors, samples: 1000, emulated: false }, "2", "irq-hardware", 2000)
}

#[test]
fn losses_are_counted_and_their_place_is_named() {
    let (whole, lossy) = (irq(2), irq(4));
    fires(&whole, GOOD, "0000:1a:00.0 irq-hardware: none of 4,000 samples was lost.");
    is_silent(&whole, DOUBTFUL, "lost");
    fires(&lossy, DOUBTFUL, "0000:1a:00.0 irq-hardware: 3 lost of 8,003 (0.04 %).");
    fires(&lossy, TO_DO, "measure CPU 1 i71/v2 again: 3 lost there");
    is_silent(&lossy, GOOD, "was lost");
}

/// A loss that is no number is no proof that nothing was lost, and does not hide those that are.
#[test]
fn a_loss_that_is_not_known_is_not_called_none() {
    let lost = |counts: [f64; 2]| {
        let mut records = mmio(false);
        records.truncate(3);
        let measured = records.iter_mut().filter(|record| !record.histograms.is_empty());
        for (record, count) in measured.zip(counts) {
            record.metrics.insert("samples_lost".to_owned(), Metric::of(count, "1"));
        }
        records
    };
    fires(&lost([0.0, 0.0]), GOOD, "none of");
    for unknown in [f64::NAN, f64::INFINITY, -5.0] {
        is_silent(&lost([unknown, 500.0]), GOOD, "none of");
        fires(&lost([unknown, 500.0]), DOUBTFUL, "500 samples lost");
        is_silent(&lost([unknown, 0.0]), GOOD, "none of");
        let tile = |counts| {
            let page = html::render(&lost(counts));
            let (_, rest) = page.split_once("<span>Lost</span> <b>").unwrap();
            rest.split("</b>").next().unwrap().to_owned()
        };
        assert_eq!((tile([unknown, 500.0]), tile([unknown, 0.0])), ("&gt;=500".to_owned(), "-".to_owned()));
        assert_eq!(tile([0.0, 0.0]), "0");
    }
}

#[test]
fn counts_beyond_all_numbers_end_no_summary() {
    let shape = Shape { cpus: 2, vectors: 1, samples: 1000, emulated: false };
    let of = |test: &str| sample::irq(&mut Random(2), &shape, "2", test, 2000);
    let mut records = [of("irq-hardware"), of("irq-retrigger")].concat();
    for record in &mut records {
        record.metrics.insert("triggers".to_owned(), Metric::of(1e300, "1"));
    }
    fires(&records, GOOD, "None of 18,446,744,073,709,551,615 samples of 2 measurements was lost");
}

#[test]
fn an_emulated_device_is_said_to_be_one_and_not_judged_by_speed() {
    fires(&mmio(true), DOUBTFUL, "0000:1a:00.0 is emulated (subsystem 1af4:1100 is QEMU's)");
    is_silent(&mmio(true), GOOD, "best published");
    is_silent(&mmio(true), DOUBTFUL, "best published");
    is_silent(&mmio(false), DOUBTFUL, "emulated");
}

#[test]
fn what_holds_for_many_devices_is_said_once() {
    let mut records = Vec::new();
    for number in 1..=12 {
        let mut own = mmio(true);
        for function in own.iter_mut().filter_map(|record| record.device.as_mut()) {
            function.bdf = Some(format!("0000:{number:02x}:00.0").parse().unwrap());
            function.emulated = Some(format!("board {number} is QEMU's"));
        }
        // Another run: its sections are its own.
        own.iter_mut().for_each(|record| record.run = format!("{number:016x}"));
        records.extend(own);
    }
    let said = said(&records, DOUBTFUL);
    assert_eq!(said.matches("emulated").count(), 1, "{said}");
    fires(&records, DOUBTFUL, "12 devices are emulated, as 0000:01:00.0, 0000:02:00.0, 0000:03:00.0: their figures");
    // Sentences that differ in the address alone are one.
    let mut few: Vec<Record> = Vec::new();
    for number in 1..=5 {
        let mut own = steady(600, 9000, 999);
        own.iter_mut().filter_map(|record| record.device.as_mut()).for_each(|function| {
            function.bdf = Some(format!("0000:0{number}:00.0").parse().unwrap());
        });
        few.extend(own);
    }
    fires(
        &few,
        DOUBTFUL,
        "0000:01:00.0 mmio-read: 999 samples say nothing of the slowest 1 % (1,000 would). \
         The same of 0000:02:00.0, 0000:03:00.0, 0000:04:00.0 and 1 more.",
    );
    assert_eq!(self::said(&few, DOUBTFUL).matches("say nothing").count(), 1);
}

#[test]
fn made_up_figures_are_said_to_be() {
    let mut records = mmio(false);
    is_silent(&records, DOUBTFUL, "made up");
    records.iter_mut().filter_map(|r| r.method.as_mut()).for_each(|m| m.backend = "fake".to_owned());
    fires(&records, DOUBTFUL, "mmio-read is made up by the fake backend");
    is_silent(&records, GOOD, "best published");
}

#[test]
fn a_median_is_held_against_the_best_published_and_the_floor() {
    fires(&steady(600, 700, 2000), GOOD, "the median of 600 ns is 7 % above the best published figure");
    fires(&steady(900, 950, 2000), DOUBTFUL, "the median of 900 ns is 61 % above the best published figure");
    is_silent(&steady(900, 950, 2000), GOOD, "best published");
    fires(&steady(150, 160, 2000), DOUBTFUL, "below the wire's floor of 180 ns: invalid");
    is_silent(&steady(600, 700, 2000), DOUBTFUL, "floor");
}

#[test]
fn of_a_path_the_last_hop_is_judged() {
    let mut records = steady(600, 700, 2000);
    let (first, last) = (records[1].clone(), records.pop().unwrap());
    for (hop, ns, best, mut record) in [(0, 100, 90.0, first), (1, 600, 500.0, last)] {
        record.test = "config-read".to_owned();
        record.target = Some(pciescope_core::Target { hop: Some(hop), ..Default::default() });
        let values = std::iter::repeat_n(ns, if hop == 0 { 9000 } else { 2000 });
        record.histograms.insert(outcome::LATENCY.to_owned(), Histogram::of_ns(values).unwrap());
        record.metrics.insert("best_published_ns".to_owned(), Metric::ns(best));
        records.push(record);
    }
    fires(&records, GOOD, "config-read hop 1: the median of 600 ns is 20 % above the best published figure");
    fires(&records, GOOD, "config-read hop 1: the slowest of 2,000 samples took 600 ns, 1.0 times the median");
    is_silent(&records, GOOD, "the median of 100 ns");
}

#[test]
fn a_long_tail_is_doubtful_and_a_short_one_good() {
    fires(&steady(600, 900, 2000), GOOD, "the slowest of 2,000 samples took 900 ns, 1.5 times the median");
    fires(&steady(600, 9000, 2000), DOUBTFUL, "took 9.00 us, 15.0 times the median");
    is_silent(&steady(600, 900, 2000), DOUBTFUL, "slowest");
}

#[test]
fn few_samples_say_nothing_of_the_tail() {
    fires(&steady(600, 9000, 999), DOUBTFUL, "999 samples say nothing of the slowest 1 %");
    fires(&steady(600, 9000, 999), TO_DO, "--count 1000 or more");
    is_silent(&steady(600, 9000, 1000), DOUBTFUL, "say nothing");
    is_silent(&steady(600, 9000, 999), DOUBTFUL, "times the median");
}

#[test]
fn the_better_numa_node_is_named_from_ten_percent_on() {
    let records = |other: u64, count: usize, step: f64| {
        let mut records = mmio(false);
        for record in &mut records {
            let node = record.cpu.as_mut().map(|cpu| {
                cpu.node = Some(cpu.cpu);
                cpu.cpu
            });
            let ns = if node == Some(1) { other } else { 600 };
            let values = std::iter::repeat_n(ns, if node == Some(1) { count } else { 1000 });
            record.histograms.insert(outcome::LATENCY.to_owned(), Histogram::of_ns(values).unwrap());
            record.method.iter_mut().for_each(|method| method.quantum_ns = step);
        }
        records
    };
    let words = "use CPUs of NUMA node 0: median 600 ns there, 750 ns on node 1 (25 % more";
    fires(&records(750, 1000, 10.0), TO_DO, words);
    is_silent(&records(650, 1000, 10.0), TO_DO, "NUMA");
    is_silent(&records(750, 100, 10.0), TO_DO, "NUMA");
    is_silent(&records(750, 1000, 2000.0), TO_DO, "NUMA");
}

#[test]
fn a_counter_is_right_within_its_bound_only() {
    fires(
        &[mixed::verify(0.011)],
        GOOD,
        "1 comparison of a counter with known traffic within what is allowed; the largest error is +0.011 %",
    );
    is_silent(&[mixed::verify(0.011)], DOUBTFUL, "allowed");
    fires(
        &[mixed::verify(3.2)],
        DOUBTFUL,
        "fio read: pcie_bdf_200/Rx_PCIe_TLP_Data_Payload/ is +3.200 % off; 0.250 % is allowed.",
    );
    fires(&[mixed::verify(3.2)], TO_DO, "Do not rely on pcie_bdf_200");
    is_silent(&[mixed::verify(3.2)], GOOD, "comparison");
    let mut open = mixed::verify(0.011);
    open.metrics.remove("tolerance");
    fires(&[open], DOUBTFUL, "without a tolerance: no verdict");
}

#[test]
fn scaled_counters_and_lower_limits_are_doubtful() {
    let exact = mixed::counters(None);
    fires(&exact, GOOD, "18 figures are counted for the whole time, none is scaled");
    is_silent(&exact, DOUBTFUL, "scaled");
    let mut scaled = mixed::counters(Some(0.25));
    fires(
        &scaled,
        DOUBTFUL,
        "7 of 18 counted figures are scaled: the counters ran for a part of the time, 0000:00:1d.0 for 25.0 %",
    );
    fires(&scaled, TO_DO, "Count fewer events at once");
    is_silent(&scaled, DOUBTFUL, "known from below");
    scaled[0].metrics.get_mut("retries").unwrap().at_least = true;
    fires(&scaled, DOUBTFUL, "1 counted figure is only known from below");
}

#[test]
fn link_errors_and_shares_of_ceilings() {
    let mut records = mixed::counters(None);
    fires(&records, GOOD, "No link error was counted at 2 ports.");
    fires(&records, GOOD, "0000:00:1c.0 uses 84.4 % of its link's ceiling, the most of all");
    fires(&records, GOOD, "ali_drw_1 uses 38.7 % of its DRAM peak");
    records[0].metrics.insert("retries".to_owned(), Metric::count(7));
    records[0].metrics.insert("rx_link_share".to_owned(), Metric::of(93.0, "%"));
    fires(&records, DOUBTFUL, "0000:00:1c.0: 7 link errors were counted.");
    fires(&records, TO_DO, "0000:00:1c.0: look at the link below it");
    fires(&records, DOUBTFUL, "uses 93.0 % of its link's ceiling, the most of all: above 90 % little is left");
    is_silent(&records, GOOD, "link error");
    records[0].metrics.insert("rx_link_share".to_owned(), Metric::of(104.0, "%"));
    fires(&records, DOUBTFUL, "more than it can carry, invalid");
}

/// Ports that the kernel accounts for: what functions reported by AER.
#[test]
fn errors_of_the_kernels_account_are_link_errors() {
    let mut records = mixed::counters(None);
    records.truncate(2);
    for record in &mut records {
        record.instance.as_mut().unwrap().source = Some("kernel accounting".to_owned());
        record.metrics.retain(|name, _| !matches!(name.as_str(), "layer1_errors" | "retries"));
        record.metrics.insert("aer_errors".to_owned(), Metric::count(0));
    }
    fires(&records, GOOD, "No link error was counted at 2 ports.");
    records[0].metrics.insert("aer_errors".to_owned(), Metric::count(7));
    fires(&records, DOUBTFUL, "0000:00:1c.0: 7 link errors were counted.");
    fires(&records, TO_DO, "0000:00:1c.0: look at the link below it");
    let page = html::render(&records);
    let tile = page.split("<span>Link errors</span>").nth(1).unwrap();
    assert!(tile.trim_start().starts_with("<b>7</b>"), "{}", &tile[..100]);
    // Where hardware counts at a port too, the port has one count of its errors.
    let mut hardware = mixed::counters(None);
    hardware.truncate(2);
    hardware[0].metrics.insert("layer1_errors".to_owned(), Metric::count(5));
    fires(&[hardware, records].concat(), DOUBTFUL, "0000:00:1c.0: 5 link errors were counted.");
}

#[test]
fn readouts_are_judged_by_bytes_losses_and_ceilings() {
    let mut records = readout::run();
    fires(&records, GOOD, "that were compared are right, from /dev/sis8300-3 and 5 more.");
    fires(&records, GOOD, "no interrupt, transfer or acquisition was lost");
    is_silent(&records, DOUBTFUL, "ceiling");
    let put = |records: &mut Vec<Record>, name: &str, value: f64| {
        let row = records.iter_mut().find(|record| record.metrics.contains_key("of_ceiling")).unwrap();
        row.metrics.insert(name.to_owned(), Metric::of(value, "1"));
    };
    put(&mut records, "wrong", 16.0);
    put(&mut records, "lost_interrupts", 2.0);
    put(&mut records, "of_ceiling", 31.0);
    put(&mut records, "cv", 12.5);
    fires(&records, DOUBTFUL, "compared bytes are wrong, most from /dev/sis8300-");
    fires(&records, TO_DO, "do not use these data before the wrong bytes are explained");
    fires(&records, DOUBTFUL, "Readout: 2 lost interrupts, most at /dev/sis8300-");
    fires(&records, DOUBTFUL, "31.0 % of its link's ceiling, the least; below 50 %");
    fires(&records, DOUBTFUL, "repeats vary by 12.5 %");
    is_silent(&records, GOOD, "are right");
    put(&mut records, "of_ceiling", 117.0);
    fires(&records, DOUBTFUL, "117.0 % of its link's ceiling: invalid");
    records.retain(|record| record.metrics.contains_key("of_ceiling"));
    for record in &mut records {
        record.metrics.insert("of_ceiling".to_owned(), Metric::of(91.0, "%"));
    }
    fires(&records, GOOD, "Every readout reaches 80 % of its link's ceiling or more");
    is_silent(&records, DOUBTFUL, "ceiling");
}

#[test]
fn conversions_agree_or_do_not() {
    let row = |wrong: f64| Record {
        run: "1".to_owned(),
        test: pciescope_core::convert::TEST.to_owned(),
        kernel: Some(pciescope_core::Kernel { name: "u16-cast-f32".to_owned(), ..Default::default() }),
        metrics: [("wrong", wrong), ("largest_error", 1.0 + wrong)]
            .map(|(n, v)| (n.to_owned(), Metric::of(v, "1")))
            .into(),
        ..Record::default()
    };
    fires(&[row(0.0)], GOOD, "1 conversion agrees with the reference, none deviates; the largest error is 1 ulp.");
    fires(&[row(2.0)], DOUBTFUL, "Conversion u16-cast-f32: farther from its reference than promised, by 3 ulp.");
    is_silent(&[row(2.0)], GOOD, "conversion");
}

#[test]
fn findings_of_doctor_are_doubtful_and_their_remedy_is_to_be_done() {
    let problem = mixed::doctor(vec![mixed::finding(Severity::Problem)]);
    fires(&problem, DOUBTFUL, "Problem link-width by doctor: 0000:00:1c.0 runs at x4");
    fires(&problem, TO_DO, "reseat the card");
    let note = mixed::doctor(vec![mixed::finding(Severity::Note)]);
    fires(&note, GOOD, "doctor found no problem and nothing to warn of in 32 checks.");
    is_silent(&note, DOUBTFUL, "link-width");
    let mut silenced = mixed::finding(Severity::Problem);
    silenced.silenced = true;
    let silenced = mixed::doctor(vec![silenced]);
    fires(&silenced, DOUBTFUL, "1 finding is silenced by the user of doctor.");
    is_silent(&silenced, TO_DO, "reseat");
    is_silent(&silenced, GOOD, "doctor found no problem");
    let words = "doctor found no problem and nothing to warn of in 32 checks; 0 could not look everywhere, 1 silenced.";
    fires(&silenced, DOUBTFUL, words);
    let mut blind = mixed::doctor(vec![]);
    for (record, check) in [(0, "aspm"), (0, "mps-low"), (1, "smi"), (1, "aspm")] {
        let text = format!("{check}: only 64 bytes are readable");
        let warning = Warning { code: "not-checked".to_owned(), text, hint: "sudo".to_owned() };
        blind[record].warnings.push(warning);
    }
    is_silent(&blind, GOOD, "doctor found no problem");
    fires(&blind, DOUBTFUL, "nothing to warn of in 32 checks; 3 could not look everywhere, 0 silenced.");
    // Beside a finding those that could not look are said by themselves, and a warning is none the less one.
    blind[0].findings.push(mixed::finding(Severity::Warning));
    is_silent(&blind, DOUBTFUL, "nothing to warn of");
    fires(&blind, DOUBTFUL, "Warning link-width by doctor: 0000:00:1c.0 runs at x4");
    fires(&blind, DOUBTFUL, "3 checks of doctor could not look everywhere.");
}

#[test]
fn findings_name_what_they_are_about_problems_first() {
    let of = |severity, check: &str, text: &str, remedy: &str| {
        let (check, text, remedy) = (check.to_owned(), text.to_owned(), remedy.to_owned());
        pciescope_core::Finding { check, text, remedy, ..mixed::finding(severity) }
    };
    let machine = pciescope_core::Finding { bdf: None, ..of(Severity::Warning, "smt", "SMT is on", "boot with nosmt") };
    let found = mixed::doctor(vec![
        machine,
        of(Severity::Warning, "aspm", "it may sleep", ""),
        of(Severity::Problem, "link-width", "it runs at x4", "reseat it"),
    ]);
    // Only a finding whose words do not name its function has the address before them.
    let doubts = said(&found, DOUBTFUL);
    let lines: Vec<&str> = doubts.lines().filter(|line| line.contains("by doctor")).collect();
    assert_eq!(
        lines,
        [
            "Problem link-width by doctor: 0000:00:1c.0: it runs at x4",
            "Warning smt by doctor: SMT is on",
            "Warning aspm by doctor: 0000:00:1c.0: it may sleep",
        ]
    );
    let advice = said(&found, TO_DO);
    assert!(advice.starts_with("0000:00:1c.0: reseat it\n") && advice.ends_with("\nboot with nosmt\n"), "{advice}");
    assert!(
        advice.lines().all(|line| !line.ends_with(": ") && !line.is_empty()),
        "no advice where there is none: {advice}"
    );
}

#[test]
fn links_below_what_the_device_can_are_doubtful() {
    let mut records = steady(600, 700, 2000);
    fires(&records, GOOD, "Links at the most that the device can: 0000:1a:00.0 2.5 GT/s x1.");
    let link = records[1].device.as_mut().unwrap().link.as_mut().unwrap();
    (link.max_speed_gts, link.max_width) = (8.0, 4);
    fires(&records, DOUBTFUL, "0000:1a:00.0: the link runs at 2.5 GT/s x1; the device can 8 GT/s x4.");
    is_silent(&records, GOOD, "Links");
    let warning = Warning { code: "link-limited".to_owned(), text: "narrower".to_owned(), hint: "move it".to_owned() };
    records[1].warnings.push(warning);
    is_silent(&records, DOUBTFUL, "the device can");
    fires(&records, DOUBTFUL, "Warning, link-limited: narrower");
    fires(&records, TO_DO, "move it");
    let mut other = steady(600, 700, 2000);
    other.iter_mut().for_each(|record| record.run = "another run".to_owned());
    let link = other[1].device.as_mut().unwrap().link.as_mut().unwrap();
    (link.max_speed_gts, link.max_width) = (16.0, 8);
    records.extend(other);
    fires(&records, DOUBTFUL, "0000:1a:00.0: the link runs at 2.5 GT/s x1; the device can 16 GT/s x8.");
    is_silent(&records, DOUBTFUL, "the device can 8 GT/s x4");
}

#[test]
fn warnings_errors_and_figures_that_are_no_numbers() {
    let mut records = steady(600, 700, 2000);
    is_silent(&records, DOUBTFUL, "Warning");
    is_silent(&records, DOUBTFUL, "Not measured");
    is_silent(&records, DOUBTFUL, "not a number");
    records[1].metrics.insert("odd".to_owned(), Metric::of(f64::NAN, "1"));
    records[1].error = Some(Failure {
        code: "timeout".to_owned(),
        text: "none came".to_owned(),
        hint: Some("wait longer".to_owned()),
    });
    fires(&records, DOUBTFUL, "Not measured, or not to the end, timeout: none came");
    fires(&records, TO_DO, "wait longer");
    fires(&records, DOUBTFUL, "0000:1a:00.0: 1 figure is not a number.");
}

#[test]
fn where_nothing_can_be_said_that_is_said() {
    for records in [vec![], vec![Record::default()]] {
        let text = facts::text(&records, 100);
        assert!(text.contains("No rule has the figures that it needs."), "{text}");
        assert!(text.contains("Nothing that the rules look for."), "{text}");
        assert!(text.contains("Nothing."), "{text}");
    }
}

#[test]
fn page_and_terminal_use_the_same_words_and_the_links_lead_somewhere() {
    let records = mixed::whole();
    let page = html::render(&records);
    let conclusions = facts::conclude(&records, &model::sections(&records));
    let text = facts::text(&records, 100_000);
    // On the page backticks are a style.
    let words = page.replace("<code>", "`").replace("</code>", "`");
    for (_, _, statements) in conclusions.lists() {
        assert!(!statements.is_empty());
        for statement in statements {
            assert!(text.contains(&format!("  - {}\n", statement.text)), "{}", statement.text);
            assert!(words.contains(&pciescope_report::text::escape(&statement.text)), "{}", statement.text);
        }
    }
    for target in page.split("href=\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(page.contains(&format!("id=\"{target}\"")), "#{target} leads nowhere");
    }
    assert!(
        facts::text(&records, 80).lines().all(|line| line.chars().count() <= 80 || !line.trim_start().contains(' '))
    );
}

#[test]
fn a_list_is_short_and_says_what_it_leaves_out() {
    let mut records = steady(600, 700, 2000);
    for n in 0..40 {
        let warning = Warning { code: format!("code-{n}"), text: "x".repeat(5000), hint: format!("hint {n}") };
        records[1].warnings.push(warning);
    }
    let conclusions = facts::conclude(&records, &model::sections(&records));
    assert_eq!(conclusions.to_do.len(), 13);
    assert!(conclusions.to_do[12].text.starts_with("And 28 more"), "{}", conclusions.to_do[12].text);
    assert!(conclusions.doubtful.iter().all(|s| s.text.chars().count() < 400));
}

/// What a file holds may be anything: the work must not grow with the square of it.
#[test]
fn a_hundred_thousand_warnings_are_summed_up_at_once() {
    let mut records = mmio(false);
    let warning = |n: usize| Warning { code: "x".to_owned(), text: format!("no {n}"), hint: format!("do {n}") };
    records[0].warnings = (0..100_000).map(warning).collect();
    let before = std::time::Instant::now();
    fires(&records, TO_DO, "more.");
    assert!(before.elapsed().as_secs() < 10, "{:?}", before.elapsed());
}
