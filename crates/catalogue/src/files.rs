//! The files of `catalogue/`, compiled in. A test holds the lists against the folder.

/// Kinds, in the order in which they are tried.
pub const KINDS: &[(&str, &str)] = &[
    ("ali_drw.toml", include_str!("../../../catalogue/ali_drw.toml")),
    ("dwc_rootport.toml", include_str!("../../../catalogue/dwc_rootport.toml")),
    ("pcie_bdf.toml", include_str!("../../../catalogue/pcie_bdf.toml")),
];

/// Metrics that all kinds of one place share.
pub const METRICS: &[(&str, &str)] = &[
    ("metrics/dram-channel.toml", include_str!("../../../catalogue/metrics/dram-channel.toml")),
    ("metrics/root-port.toml", include_str!("../../../catalogue/metrics/root-port.toml")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_in() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../catalogue");
        for (folder, list) in [("", KINDS), ("metrics/", METRICS)] {
            let names = std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<String> = names.map(|name| format!("{folder}{}", name.to_string_lossy())).collect();
            names.retain(|name| name.ends_with(".toml"));
            names.sort();
            assert_eq!(list.iter().map(|file| file.0).collect::<Vec<_>>(), names);
        }
    }
}
