//! Fuzz targets, one file each. `PCIESCOPE_FUZZ` names the one to run; tools/fuzz builds and runs them (docs/fuzzing.md).
//!
//! A target may refuse its input, and may not panic, overflow, hang or take much memory.
#![no_main]

mod catalogue;
mod configuration;
mod devices;
mod http;
mod import;
mod records;
mod trees;
mod vfio_user;
mod web;

use std::io::Write;
use std::path::PathBuf;
use std::sync::LazyLock;

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 9] = [
    ("catalogue", catalogue::run),
    ("configuration", configuration::run),
    ("devices", devices::run),
    ("http", http::run),
    ("import", import::run),
    ("records", records::run),
    ("trees", trees::run),
    ("vfio-user", vfio_user::run),
    ("web", web::run),
];

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("PCIESCOPE_FUZZ").unwrap_or_default();
    let names = TARGETS.map(|(name, _)| name).join(", ");
    TARGETS.iter().find(|(own, _)| *own == name).unwrap_or_else(|| panic!("PCIESCOPE_FUZZ={name}: none of {names}")).1
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| TARGET(data));

/// A folder of this process, in memory where there is such a place.
static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let memory = PathBuf::from("/dev/shm");
    let base = if memory.is_dir() { memory } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("pciescope-fuzz-").tempdir_in(base).expect("a folder can be made")
});

/// A file with these bytes, the same one each time.
fn file(data: &[u8]) -> PathBuf {
    let path = FOLDER.path().join("input");
    std::fs::File::create(&path).and_then(|mut file| file.write_all(data)).expect("the folder can be written");
    path
}
