//! The checker of the catalogue: what must be true of every file.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;

use pciescope_catalogue::{Catalogue, FILES};

#[test]
fn every_file_is_built_in_and_sound() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../catalogue");
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(".toml"));
    names.sort();
    assert_eq!(FILES.map(|(name, _)| name).to_vec(), names);
    if let Err(problems) = Catalogue::parse(&FILES) {
        panic!("{}", problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
    }
}
