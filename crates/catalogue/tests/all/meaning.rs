//! What counts mean: the figures of the seed and of the kernels' own scales, worked out by the catalogue.

use crate::support::{Tree, trees};
use pciescope_catalogue::{Catalogue, Group, Input, Kind, SysfsUnit, What};

fn kind(id: &str) -> &'static Kind {
    Catalogue::builtin().kind(id).unwrap()
}

fn tree(name: &str) -> Tree {
    trees().into_iter().find(|tree| tree.name == name).unwrap()
}

/// A metric from counts of events, as a reader would work it out without a `.scale` in sysfs.
fn metric(kind: &Kind, name: &str, counts: &[(&str, f64)], inputs: &[(&str, f64)]) -> Option<f64> {
    kind.metric(name).unwrap().value(&|wanted| {
        let count = counts.iter().find(|(name, _)| *name == wanted);
        let input = inputs.iter().find(|(name, _)| *name == wanted);
        match (count, input) {
            (Some((name, count)), _) => kind.events[*name].value(*count, None).into(),
            (None, Some((_, value))) => Input::Value(*value),
            (None, None) => Input::Absent,
        }
    })
}

#[test]
fn payload_is_16_bytes_a_count_in_the_seed_and_bytes_upstream() {
    // The seed's first two experiments: 8590 MB and 108 GB by fio.
    for (count, bytes) in [(536_910_432.0, 8_590_566_912.0), (6_777_637_176.0, 108_442_194_816.0)] {
        assert_eq!(kind("pcie_bdf").events["rx_bytes"].value(count, None), Some(bytes));
    }
    assert_eq!(kind("dwc_rootport").events["rx_bytes"].value(4096.0, None), Some(4096.0));
    let scale = Some(SysfsUnit { scale: 1.0, unit: Some("B") });
    assert_eq!(kind("dwc_rootport").events["rx_bytes"].value(4096.0, scale), Some(4096.0));
}

#[test]
fn names_of_both_kernels_are_found() {
    let formats = ["eventid", "lane", "type"];
    for (name, rx, duplicates) in [
        ("dwc_rootport-6.12", "Rx_PCIe_TLP_Data_Payload", "rx_duplicate_tl,lane=0"),
        ("dwc_rootport-7.3", "rx_pcie_tlp_data_payload", "rx_duplicate_tlp,lane=0"),
    ] {
        let tree = tree(name);
        let terms = |event: &str| kind("dwc_rootport").events[event].terms(&tree.event_names(), &formats);
        assert_eq!(terms("rx_bytes"), Some(vec![rx.to_owned()]));
        assert_eq!(terms("rx_duplicate_tlp"), Some(vec![duplicates.to_owned()]));
        // The in-tree driver has no errors: no metric pretends that there were none.
        assert_eq!(terms("lcrc_error"), None);
        let metrics = kind("dwc_rootport").metrics_for(&tree.event_names(), &formats);
        assert!(metrics.iter().all(|metric| metric.group != Group::Errors));
        assert!(metrics.iter().any(|metric| metric.name == "l0_share"));
    }
}

#[test]
fn an_endpoint_is_seen_from_the_host() {
    let events = ["tx_pcie_tlp_data_payload", "rx_pcie_tlp_data_payload"];
    let terms = kind("dwc_endpoint").events["rx_bytes"].terms(&events, &["type"]);
    assert_eq!(terms, Some(vec!["tx_pcie_tlp_data_payload".to_owned()]));
}

#[test]
fn a_pmu_says_where_it_is() {
    let bdf = |id: &str, name: &str| kind(id).bdf(name).map(|bdf| bdf.to_string());
    assert_eq!(bdf("dwc_rootport", "dwc_rootport_13018").as_deref(), Some("0001:30:03.0"));
    assert_eq!(bdf("dwc_rootport", "dwc_rootport_10").as_deref(), Some("0000:00:02.0"));
    assert_eq!(bdf("dwc_rootport", "dwc_rootport_b000").as_deref(), Some("0000:b0:00.0"));
    assert_eq!(bdf("pcie_bdf", "pcie_bdf_200").as_deref(), Some("0000:00:02.0"));
    assert_eq!(bdf("pcie_bdf", "pcie_bdf_100300").as_deref(), Some("0000:10:03.0"));
    assert_eq!(bdf("pcie_bdf", "pcie_bdf_b00000").as_deref(), Some("0000:b0:00.0"));
    assert_eq!(bdf("ali_drw", "ali_drw_21000"), None);
    for (name, die, channel, sub_channel) in
        [("ali_drw_21000", 0, 0, 0), ("ali_drw_27080", 0, 3, 1), ("ali_drw_40023080", 1, 1, 1)]
    {
        let place = kind("ali_drw").place(name);
        assert_eq!((place["die"], place["channel"], place["sub_channel"]), (die, channel, sub_channel), "{name}");
    }
    assert_eq!(kind("hisi_ddrc_v2").place("hisi_sccl3_ddrc1_0")["sccl"], 3);
}

#[test]
fn bandwidth_of_the_seed_s_sub_channel() {
    // C0M0 rd on one sub-channel: 40159522 reads in 1 s at DDR5-4000.
    let drw = kind("ali_drw");
    let counts = [
        ("read_bytes", 40_159_522.0),
        ("write_bytes", 13_141.0),
        ("cycles", 500_620_725.0),
        ("partial_write_bytes", 743.0),
    ];
    let inputs = [("seconds", 1.001_241_45)];
    let value = |name: &str| metric(drw, name, &counts, &inputs).unwrap();
    assert!((value("read_bytes_per_s") - 40_159_522.0 * 64.0 / 1.001_241_45).abs() < 1.0);
    assert!((value("peak_bytes_per_s") / 16e9 - 1.0).abs() < 1e-3);
    assert!((value("peak_share") - 16.05).abs() < 0.05, "{}", value("peak_share"));
    assert!((value("partial_write_share") - 100.0 * 743.0 / 13_141.0).abs() < 1e-9);
    assert_eq!(metric(drw, "page_hit_share", &counts, &inputs), None);
    assert!(!drw.unverified(drw.metric("page_hit_share").unwrap()).is_empty());
    assert!(drw.unverified(drw.metric("read_bytes_per_s").unwrap()).is_empty());
    let terms = drw.events["write_bytes"].terms(&["hif_wr", "hif_rmw"], &["event"]);
    assert_eq!(terms, Some(vec!["hif_wr".to_owned(), "hif_rmw".to_owned()]));
    let none: [&str; 0] = [];
    let terms = drw.events["write_bytes"].terms(&none, &["event"]);
    assert_eq!(terms, Some(vec!["event=0x01".to_owned(), "event=0x03".to_owned()]));
}

#[test]
fn link_states_are_parts_of_time() {
    let port = kind("dwc_rootport");
    // Half a second of L0 at a core clock of 1 GHz.
    let counts = [("l0_cycles", 5e8), ("one_cycle", 1000.0), ("l1_1_cycles", 1e6)];
    assert!((metric(port, "l0_share", &counts, &[("seconds", 1.0)]).unwrap() - 50.0).abs() < 1e-9);
    assert_eq!(metric(port, "l1_1_share", &counts, &[("seconds", 1.0)]), None, "the auxiliary clock is not known");
    assert!(port.metric("l1_1_share").unwrap().inputs().contains("aux_period"));
    assert!(port.events["one_cycle"].is_state);
    assert_eq!(port.events["rx_bytes"].shares, port.events["l0_cycles"].shares);
    let link = [("seconds", 2.0), ("link_bytes_per_s", 1e9)];
    assert!((metric(port, "rx_link_share", &[("rx_bytes", 1e9)], &link).unwrap() - 50.0).abs() < 1e-9);
}

#[test]
fn errors_of_lanes_are_added_up_and_may_be_at_least() {
    let port = kind("dwc_rootport");
    assert_eq!(port.events["decode_error"].each.as_deref(), Some("lane"));
    assert_eq!((port.events["decode_error"].width, port.events["tx_memory_write"].width), (Some(4), Some(32)));
    assert_eq!(metric(port, "layer2_errors", &[("lcrc_error", 3.0), ("bad_dllp", 2.0)], &[]), Some(5.0));
    assert!(port.metric("layer2_errors").unwrap().events().contains("replay_timeout"));
}

#[test]
fn sysfs_wins_over_constants() {
    let free = kind("uncore_iio_free_running");
    for (tree_name, bytes) in [("uncore_iio_free_running-skx", 4.0), ("uncore_iio_free_running-icx", 32.0)] {
        let tree = tree(tree_name);
        let scale = tree.events["bw_in_port0.scale"].parse().unwrap();
        let sysfs = SysfsUnit { scale, unit: Some(&tree.events["bw_in_port0.unit"]) };
        let value = free.events["rx_bytes"].value(1.0, Some(sysfs)).unwrap();
        assert!((value - bytes).abs() < 1e-6, "{tree_name}: {value}");
    }
    let imc = &kind("uncore_imc").events["read_bytes"];
    assert_eq!(imc.value(2.0, None), Some(128.0));
    assert_eq!(imc.value(1.0, Some(SysfsUnit { scale: 6.103_515_625e-5, unit: Some("MiB") })), Some(64.0));
    assert_eq!(imc.value(1.0, Some(SysfsUnit { scale: 2.0, unit: Some("Joules") })), None, "no guess is made");
    // Its driver says MB and means MiB.
    let meson = kind("meson_ddr").events["access_bytes"]
        .value(1.0, Some(SysfsUnit { scale: 1.525_878_906_25e-5, unit: Some("MB") }));
    assert_eq!(meson, Some(16.0));
}

#[test]
fn a_pmu_that_counts_nothing_without_a_filter_says_so() {
    let core = kind("hisi_pcie");
    assert!(core.lacks("rx_mwr_flux,len_mode=0x1").unwrap().text.contains("port=0xffff"));
    assert!(core.lacks("rx_mwr_flux,port=0x1").is_none() && core.lacks("rx_mwr_flux,bdf=0x3900").is_none());
    assert!(kind("nvidia_pcie").lacks("rd_bytes_loc").is_none());
}

#[test]
fn all_kinds_call_the_same_thing_by_the_same_name() {
    for kind in Catalogue::builtin().kinds() {
        let (what, metrics) = (kind.what, kind.metrics.iter().map(|metric| metric.name.as_str()).collect::<Vec<_>>());
        let wanted: &[&str] = match what {
            What::PcieRootPort | What::PcieEndpoint | What::PcieStack | What::PciFunction => {
                &["rx_bytes_per_s", "tx_bytes_per_s"]
            }
            _ if kind.id == "meson_ddr" => &["total_bytes_per_s", "peak_share"],
            _ if what.is_dram() => &["read_bytes_per_s", "write_bytes_per_s", "total_bytes_per_s", "peak_share"],
            _ => &[],
        };
        for name in wanted {
            assert!(metrics.contains(name), "{} has no {name}", kind.id);
        }
        let units = kind.metrics.iter().filter(|metric| metric.name.ends_with("bytes_per_s"));
        assert!(units.into_iter().all(|metric| metric.unit.text == "bytes/s"), "{}", kind.id);
    }
}
