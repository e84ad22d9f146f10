use super::*;

const TABLE: &str = "
 Performance counter stats for 'sleep 1':

              1.04 msec task-clock                       #    0.001 CPUs utilized
                 1      context-switches                 #  961.538 /sec
         1,234,567      cycles                           #    1.187 GHz                         (83.31%)
            356.81 MiB  uncore_imc_0/cas_count_read/
     <not counted>      branches                                                                (0.00%)
   <not supported>      LLC-loads

       1.001234567 seconds time elapsed

       0.001000000 seconds user
       0.000000000 seconds sys

";

#[test]
fn reads_the_table() {
    let read = parse(TABLE).unwrap();
    assert_eq!((read.figures, read.malformed, read.records.len()), (6, 0, 1), "{:?}", read.named);
    let record = &read.records[0];
    assert_eq!(record.metrics["cycles"], Metric::of(1_234_567.0, "1"));
    assert_eq!(record.metrics["task-clock"].value.round(), 1_040_000.0);
    assert_eq!(record.metrics["task-clock"].unit, "ns");
    assert_eq!(record.metrics["uncore_imc_0/cas_count_read/"].value, 356.81 * 1_048_576.0);
    let codes: Vec<_> = record.warnings.iter().map(|w| w.code.as_str()).collect();
    assert_eq!(codes, ["multiplexed", "not-counted", "not-counted"]);
    assert!(record.warnings[2].text.contains("LLC-loads was not supported"));
}

#[test]
fn reads_intervals_and_cpus() {
    let text = "#           time             counts unit events
     1.000123456          1,000      cycles
     1.000123456          2,000      instructions   #    2.00  insn per cycle
     2.000234567          3,000      cycles
";
    assert!(is_perf_stat(text));
    let read = parse(text).unwrap();
    assert_eq!((read.figures, read.records.len()), (3, 2));
    assert_eq!(read.records[1].metrics["interval_end_ns"].value, 2_000_234_567.0);
    let read = parse("CPU0               1,234      cycles\nCPU1               5,678      cycles\n").unwrap();
    assert_eq!(read.records[1].cpu.as_ref().unwrap().cpu, 1);
}

#[test]
fn reads_separated_values() {
    for (line, at, cpu) in [
        ("1234,,cycles,1000000,100.00,1.187,GHz", None, None),
        ("1.000123456,1234,,cycles,1000000,100.00,,", Some(1_000_123_456.0), None),
        ("1.000123456;CPU7;1234;;cycles;1000000;100.00;;", Some(1_000_123_456.0), Some(7)),
        ("CPU7,1234,,cycles,1000000,50.00,,", None, Some(7)),
    ] {
        assert!(is_perf_stat(line), "{line}");
        let read = parse(line).unwrap();
        assert_eq!(read.records.len(), 1, "{line}");
        let record = &read.records[0];
        assert_eq!(record.metrics["cycles"].value, 1234.0, "{line}");
        assert_eq!(record.metrics.get("interval_end_ns").map(|m| m.value), at, "{line}");
        assert_eq!(record.cpu.as_ref().map(|c| c.cpu), cpu, "{line}");
    }
    let read = parse("<not counted>,,cycles,0,0.00,,").unwrap();
    assert_eq!(read.records[0].warnings[0].code, "not-counted");
}

#[test]
fn names_what_is_no_counter() {
    let read = parse("# started on x\n1234 5678 9 10 11\nwords\n").unwrap();
    assert_eq!((read.figures, read.malformed, read.words), (0, 1, 2));
    assert!(!is_perf_stat("100 200 300 1 69\n"));
}

#[test]
fn a_number_of_another_locale_is_read_right_or_refused() {
    for line in [
        "            167,98 msec task-clock                #    0,9 CPUs utilized",
        "            14.901      page-faults               #   88,7 K/sec",
        "     1,000123456          1.000      cycles",
        "     1.000123456          1.000      cycles",
        "0,53,msec,task-clock,932612,100,00,0,041,CPUs utilized",
        "0,53;msec;task-clock;932612;100,00;0,041;CPUs utilized",
        "536910432,,cycles,16207362782,50,00,,",
        "536910432,,cycles,0,50%,16207362782,50,00,,",
        "      16,207362782 seconds time elapsed",
    ] {
        let refused = parse(line).err();
        assert!(matches!(refused, Some(Refused::Locale { line: 1, .. })), "{line}: {refused:?}");
    }
    for gap in [',', '\'', '\u{2019}', '\u{202f}', '\u{a0}'] {
        let read = parse(&format!("   14{gap}883      page-faults   #  88 K/sec\n")).unwrap();
        assert_eq!(read.records[0].metrics["page-faults"], Metric::of(14_883.0, "1"), "{gap:?}");
    }
}

#[test]
fn the_spread_of_repeats_and_control_groups_are_told_from_the_share() {
    for (line, name) in [
        ("536910432,,rx/p/,0.50%,16207362782,50.00,,", "rx/p/"),
        ("536910432,,rx/p/,user.slice,16207362782,50.00,,", "rx/p/ in user.slice"),
        ("536910432,,rx/p/,user.slice,0.50%,16207362782,50.00,,", "rx/p/ in user.slice"),
    ] {
        let read = parse(line).unwrap();
        assert_eq!(read.counted[0].running, 0.5, "{line}");
        assert_eq!(read.records[0].metrics[name].value, 536_910_432.0, "{line}");
        assert_eq!(read.records[0].warnings[0].code, "multiplexed", "{line}");
    }
    let both =
        "10,,cycles,a,1,100.00,,\n20,,cycles,b,1,100.00,,\n 30  cycles  c  (50.00%)\n 1.50 msec task-clock   c\n";
    let read = parse(both).unwrap();
    let metrics = &read.records[0].metrics;
    let values = ["cycles in a", "cycles in b", "cycles in c", "task-clock in c"].map(|name| metrics[name].value);
    assert_eq!((values, read.counted.len()), ([10.0, 20.0, 30.0, 1.5e6], 4));
    let repeated =
        "  60  page-faults  #  67.526 K/sec  ( +-  0.96% )\n  0.022 +- 0.00176 seconds time elapsed  ( +-  7.77% )\n";
    assert_eq!(parse(repeated).unwrap().elapsed_s, Some(0.022));
}

#[test]
fn a_second_reading_of_a_counter_is_refused() {
    for (text, line) in [
        ("10,,cycles,1,100.00,,\n20,,cycles,1,100.00,,\n".to_owned(), 2),
        (" 10  cycles\n 20  cycles\n".to_owned(), 2),
        (format!("{TABLE}{}", TABLE.replace("cycles", "other")), 17),
        ("1.000000001,1,,a,1,100.00,,\n2.000000001,1,,a,1,100.00,,\n1.000000002,1,,a,1,100.00,,\n".to_owned(), 3),
        ("  1  a\n  1.5 seconds time elapsed\n  1  b\n  1.5 seconds time elapsed\n".to_owned(), 4),
    ] {
        let refused = parse(&text).err();
        assert!(matches!(refused, Some(Refused::Twice { line: at, .. }) if at == line), "{text}: {refused:?}");
    }
}

/// Names are found in a table: with a search through all of them, so many would take minutes.
#[test]
fn events_have_a_bound() {
    let text = |count: usize| (0..count).map(|n| format!("{n},,ev{n},1000,100.00,,\n")).collect::<String>();
    let read = parse(&text(MAX_EVENTS)).unwrap();
    assert_eq!(read.counted.len(), MAX_EVENTS);
    assert_eq!((read.counted[7].event.as_str(), read.counted[7].value), ("ev7", 7.0));
    assert_eq!(parse(&text(MAX_EVENTS + 1)).err(), Some(Refused::TooMany));
}
