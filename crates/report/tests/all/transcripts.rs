//! The nine experiments of the seeds, from the text of `perf stat` and of the workload beside it, to the digit.

use std::path::PathBuf;

use pciescope_core::{Comparison, Identity};
use pciescope_report::import::{self, Format, Imported};
use pciescope_report::{Error, table};

fn transcript(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/transcripts").join(name).with_extension("txt")
}

fn identity() -> Identity {
    Identity {
        run: "00000000000000c1".to_owned(),
        verb: "import".to_owned(),
        label: None,
        time: Some("2026-11-21T10:00:00Z".to_owned()),
    }
}

fn imported(name: &str) -> Imported {
    let log = import::read(&transcript(name), None, &identity()).unwrap();
    assert_eq!((log.format, log.malformed), (Format::PerfStat, 0), "{name}");
    log
}

/// The cells of the first row of the table `heading` that begins with `counter`.
fn row(log: &Imported, heading: &str, counter: &str) -> Vec<String> {
    let text = table::render(&log.records, &table::Options::default());
    let body = text.split(heading).nth(1).unwrap_or_else(|| panic!("no table {heading:?} in\n{text}"));
    let line = body.lines().find(|line| line.starts_with(counter)).unwrap_or_else(|| panic!("no {counter} in\n{text}"));
    line.strip_prefix(counter).unwrap().split_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_five_experiments_on_the_root_port() {
    let (rx, tx) = ("pcie_bdf_200/Rx_PCIe_TLP_Data_Payload/", "pcie_bdf_200/Tx_PCIe_TLP_Data_Payload/");
    // The transcript, the counter; count, MB by the counter, MB by fio, difference in %.
    let cases = [
        ("pcie-1-read", rx, ["536,910,432", "16", "8590", "8590", "0.00"]),
        // fio prints 108GB here; what it moved is known from its 103411 requests of 1 MiB.
        ("pcie-2-read-past-32-bit", rx, ["6,777,637,176", "16", "108442", "108434", "0.00"]),
        ("pcie-3-read-timed", rx, ["681,297,119", "16", "10900", "10899", "0.00"]),
        ("pcie-4-write-timed", tx, ["288,016,854", "16", "4608", "4606", "0.04"]),
        ("pcie-5-read-write", rx, ["211,517,354", "16", "3384", "3407", "0.67"]),
        ("pcie-5-read-write", tx, ["221,219,025", "16", "3539", "3558", "0.53"]),
    ];
    for (name, counter, want) in cases {
        assert_eq!(row(&imported(name), "By hand", counter)[..5], want, "{name}");
    }
    // The rates that the seed's author took from the multiplexed run.
    let mixed = imported("pcie-5-read-write");
    assert_eq!(row(&mixed, "By hand", rx)[5], "164.27");
    assert_eq!(row(&mixed, "By hand", tx)[5], "171.79");
    assert_eq!(row(&mixed, "Exactly", rx)[5], "49.99");
    assert_eq!(row(&mixed, "Exactly", tx)[5], "50.01");
}

#[test]
fn the_four_experiments_on_dram() {
    // The transcript; the sub-channel and event that its author took; count, MB, MB/s by bw_mem, difference in %.
    let cases = [
        ("dram-1-die0-read", "ali_drw_23000/perf_hif_rd/", "40,159,522", "20561.675", "20507.82/s", "0.26"),
        ("dram-2-die1-read", "ali_drw_40025000/perf_hif_rd/", "40,070,906", "20516.303", "20492.53/s", "0.12"),
        (
            "dram-3-die0-write",
            "ali_drw_27080/perf_hif_wr+perf_hif_rmw/",
            "42,908,645",
            "21969.226",
            "21936.50/s",
            "0.15",
        ),
        (
            "dram-4-die1-write",
            "ali_drw_40027080/perf_hif_wr+perf_hif_rmw/",
            "42,904,081",
            "21966.889",
            "21934.51/s",
            "0.15",
        ),
    ];
    for (name, counter, count, mega, rate, diff) in cases {
        assert_eq!(row(&imported(name), "By hand", counter)[..5], [count, "8x64", mega, rate, diff], "{name}");
    }
}

#[test]
fn all_sub_channels_of_a_die_are_added_up_and_taken_over_their_time() {
    let log = imported("dram-1-die0-read");
    let sums: Vec<Comparison> = log.records.iter().filter_map(Comparison::from_record).collect();
    assert_eq!(sums.len(), 9, "8 sub-channels and their sum");
    let sum = &sums[8];
    // By hand from the seed's text.
    let counts = [40160751, 40161013, 40159522, 40159066, 40160138, 40160169, 40159404, 40157620u64];
    assert_eq!((sum.count, sum.parts), (counts.iter().sum::<u64>() as f64, 1.0));
    let error = (sum.counter_bytes() / 1.000_923_276 / 20_507.82e6 - 1.0) * 100.0;
    assert!((sum.error_percent().unwrap() - error).abs() < 1e-9);
    assert!((0.16..0.18).contains(&error), "{error}");
}

#[test]
fn the_workload_may_stand_in_a_file_of_its_own() {
    let text = std::fs::read_to_string(transcript("pcie-1-read")).unwrap();
    let (fio, perf) = text.split_once(" Performance").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [perf_file, fio_file, words] = ["perf.txt", "fio.txt", "words.txt"].map(|name| folder.path().join(name));
    std::fs::write(&perf_file, format!(" Performance{perf}")).unwrap();
    std::fs::write(&fio_file, fio).unwrap();
    std::fs::write(&words, "40960.00 20507.82\n").unwrap();
    let alone = import::read(&perf_file, None, &identity()).unwrap();
    assert_eq!(alone.records.iter().filter_map(Comparison::from_record).count(), 0);
    let both = import::read_beside(&perf_file, None, &identity(), Some(&fio_file)).unwrap();
    let whole = imported("pcie-1-read");
    let comparison = |log: &Imported| log.records.iter().find_map(Comparison::from_record).unwrap();
    assert_eq!(comparison(&both), comparison(&whole));
    let refused = import::read_beside(&perf_file, None, &identity(), Some(&words)).unwrap_err();
    assert!(matches!(refused, Error::NoWorkload { found: 0, .. }), "{refused}");
}

#[test]
fn bytes_and_units_of_16_bytes_are_told_apart() {
    // The kernel's own driver multiplies by 16; the downstream one does not.
    let text = std::fs::read_to_string(transcript("pcie-1-read")).unwrap();
    let bytes = text
        .replace("pcie_bdf_200/Rx_PCIe", "dwc_rootport_10/rx_pcie")
        .replace("TLP_Data_Payload", "tlp_data_payload")
        .replace("536,910,432", "8,590,566,912");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.txt");
    std::fs::write(&file, bytes).unwrap();
    let log = import::read(&file, None, &identity()).unwrap();
    let (new, old) = (log.records.iter().find_map(Comparison::from_record).unwrap(), imported("pcie-1-read"));
    let old = old.records.iter().find_map(Comparison::from_record).unwrap();
    assert_eq!((new.bytes_per_count, old.bytes_per_count), (1.0, 16.0));
    assert_eq!(new.error_percent(), old.error_percent());
}
