//! The checker of the catalogue: what must be true of every file. And that it finds what is wrong.

use std::path::Path;

use crate::support::{check, trees};
use pciescope_catalogue::{Catalogue, FILES};

#[test]
fn every_file_is_built_in() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../catalogue");
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(".toml"));
    names.sort();
    assert_eq!(FILES.map(|(name, _)| name).to_vec(), names);
}

/// Formulas parse, units add up, every event exists in a golden tree by name or by an encoding that is valid there, every
/// tree is taken for its kind and for no other, nothing is there twice.
#[test]
fn every_file_is_true() {
    let findings = check(&FILES, &trees());
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

/// What the checker finds after `from` in the file `name` became `to`.
fn after(name: &str, from: &str, to: &str) -> String {
    let text = FILES.iter().find(|(file, _)| *file == name).unwrap().1;
    assert!(text.contains(from), "{name} has no {from:?}");
    let broken = text.replacen(from, to, 1);
    let files: Vec<_> = FILES.iter().map(|(file, text)| (*file, if *file == name { &broken } else { *text })).collect();
    check(&files, &trees()).join("\n")
}

#[test]
fn what_is_wrong_is_found() {
    let drw = "ali_drw.toml";
    for (name, from, to, finding) in [
        // Units and formulas.
        (drw, "formula = \"read_bytes / seconds\"", "formula = \"read_bytes * seconds\"", "not in bytes/s"),
        (drw, "read_bytes_per_s + write_bytes_per_s", "read_bytes_per_s + write_bytes", "does not add up"),
        (drw, "unit = \"bytes/s\"", "unit = \"furlongs\"", "furlongs is not a unit"),
        (drw, "formula = \"read_bytes / seconds\"", "formula = \"(read_bytes / seconds\"", "')' is missing"),
        (drw, "formula = \"read_bytes / seconds\"", "formula = \"reed_bytes / seconds\"", "reed_bytes is no event"),
        // Events.
        (drw, "names = [\"hif_rd\", ", "names = [\"hif_read\", ", "no golden tree has the name hif_read"),
        (drw, "encoding = \"event=0x02\"", "encoding = \"event=0x102\"", "event=0x102 does not fit into config:0-7"),
        (drw, "encoding = \"event=0x02\"", "encoding = \"event=0x04\"", "hif_rd is config=0x2, not event=0x04"),
        ("amd_umc.toml", "rdwrmask=0x1", "mask=0x1", "no golden tree has it, by name or by encoding"),
        ("amd_umc.toml", "rdwrmask=0x1", "rdwrmask=0x4", "rdwrmask=0x4 does not fit"),
        ("dwc_rootport.toml", "parameters = \"lane=0\"\n", "", "needs lane"),
        (
            "uncore_imc_free_running.toml",
            "names = [\"data_total\"]\nunit = \"bytes\"",
            "names = [\"data_total\"]\nunit = \"cycles\"",
            "data_total is in another unit",
        ),
        (drw, "per_count = 64", "per_count = 0", "is not a positive number"),
        // Twice, or without a reason.
        (drw, "names = [\"hif_rd\", ", "names = [\"cycle\", ", "has a name that"),
        (drw, "name = \"write_bytes_per_s\"", "name = \"read_bytes_per_s\"", "its name is taken"),
        (drw, "[event.read_bytes]", "[event.write_bytes]", "duplicate key"),
        (drw, "[event.read_bytes]", "[event.seconds]", "has the name of an input"),
        (drw, "title = ", "titel = ", "unknown field `titel`"),
        // Extended files.
        ("imx8mn_ddr.toml", "extends = \"imx8_ddr\"", "extends = \"imx7_ddr\"", "there is no imx7_ddr.toml"),
        ("imx8mn_ddr.toml", "extends = \"imx8_ddr\"", "extends = \"pcie_bdf\"", "pcie_bdf.toml extends another file"),
        ("imx8mn_ddr.toml", "read_bytes.per_count", "read_bites.per_count", "missing field `unit`"),
        ("imx8mn_ddr.toml", "write_bytes.per_count = 8", "write_bytes = \"\"", "write_bytes is no event"),
        ("dwc_endpoint.toml", "rx_duplicate_tlp = \"\"\n", "", "has a name that"),
        // Kinds.
        (
            "uncore_imc.toml",
            "uncore_imc_{channel}",
            "uncore_imc_free_running_{channel}",
            "tree uncore_imc-spr: taken for []",
        ),
        ("hisi_ddrc_v2.toml", "_{sub_channel}", "", "taken for [\"hisi_ddrc_v1\", \"hisi_ddrc_v2\"]"),
        ("imx8mn_ddr.toml", "i.MX8MN", "i.MX8MM", "taken for []"),
        ("hisi_pcie.toml", "\"bdf\"", "\"device\"", "there is no parameter device"),
        ("dwc_rootport.toml", "sbdf[16:31]", "sbdf[16:70]", "is not FIELD"),
        ("dwc_rootport.toml", "sbdf[16:31]", "bdf[16:31]", "no name has a field bdf"),
        ("meson_ddr.toml", "sysfs_unit = \"MiB\"", "sysfs_unit = \"s\"", "sysfs_unit s is not a unit"),
    ] {
        let findings = after(name, from, to);
        assert!(findings.contains(finding), "{name}: {from:?} to {to:?}: {finding:?} is not in {findings:?}");
    }
}

#[test]
fn a_kind_without_a_tree_is_found() {
    let without: Vec<_> = trees().into_iter().filter(|tree| tree.kind != "amd_df").collect();
    let findings = check(&FILES, &without).join("\n");
    assert!(findings.contains("amd_df: there is no golden tree"), "{findings}");
}

#[test]
fn every_kind_names_its_sources_and_what_it_does_not_know() {
    for kind in Catalogue::builtin().kinds() {
        assert!(!kind.sources.is_empty() && !kind.title.is_empty() && !kind.metrics.is_empty(), "{}", kind.id);
        let texts = kind.events.values().map(|event| &event.text).chain(kind.metrics.iter().map(|metric| &metric.text));
        for text in texts {
            assert!(text.ends_with('.'), "{}: {text:?} is no sentence", kind.id);
        }
    }
}

#[test]
fn a_file_has_what_it_does_not_say_from_the_file_that_it_extends() {
    let kind = |id: &str| Catalogue::builtin().kind(id).unwrap();
    let (base, own) = (kind("imx8_ddr"), kind("imx8mn_ddr"));
    assert_eq!((&base.metrics, &base.events["cycles"], base.what), (&own.metrics, &own.events["cycles"], own.what));
    let (mut read, here) = (base.events["read_bytes"].clone(), &own.events["read_bytes"]);
    assert_eq!((read.per_count, here.per_count), (16.0, 8.0));
    read.per_count = 8.0;
    assert_eq!(read, *here);
    // Taken away: a field, an event, a metric.
    let (base, own) = (kind("dwc_rootport"), kind("dwc_endpoint"));
    let lane = |kind: &pciescope_catalogue::Kind| kind.events["rx_atomic"].parameters.clone();
    assert_eq!((lane(base).as_deref(), lane(own)), (Some("lane=0"), None));
    for (of, is_there) in [(base, true), (own, false)] {
        assert_eq!(of.events.contains_key("rx_duplicate_tlp"), is_there);
        assert_eq!(of.metric("rx_duplicate_tlp_per_s").is_some(), is_there);
    }
}
