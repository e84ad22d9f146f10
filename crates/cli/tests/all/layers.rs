//! Imports go one way: ARCHITECTURE.md's table, compared with what cargo knows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Each crate of ours with those of ours that it may import.
const LAYERS: [(&str, &[&str]); 12] = [
    ("pciescope-core", &[]),
    ("pciescope-catalogue", &["pciescope-core"]),
    ("pciescope-hw", &["pciescope-core"]),
    ("pciescope-report", &["pciescope-core", "pciescope-catalogue"]),
    // Live views take the records that files have: what they show can be saved, replayed and checked.
    ("pciescope-tui", &["pciescope-core", "pciescope-catalogue"]),
    ("pciescope-serve", &["pciescope-core", "pciescope-catalogue"]),
    // For tests alone.
    ("pciescope-support", &[]),
    ("pciescope-browser-tests", &["pciescope-core", "pciescope-report", "pciescope-serve", "pciescope-support"]),
    // Its users may be anyone's: it knows nothing of pciescope.
    ("pciescope-convert", &[]),
    // Not hw: a wrong offset would agree with itself.
    ("pciescope-lab", &["pciescope-core"]),
    ("pciescope-bench", &["pciescope-core", "pciescope-catalogue", "pciescope-hw", "pciescope-convert"]),
    (
        "pciescope-cli",
        &[
            "pciescope-core",
            "pciescope-catalogue",
            "pciescope-hw",
            "pciescope-report",
            "pciescope-lab",
            "pciescope-bench",
            "pciescope-convert",
            "pciescope-tui",
            "pciescope-serve",
        ],
    ),
];

/// What cargo knows of the workspace.
fn metadata(words: &[&str]) -> serde_json::Value {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--format-version", "1", "--manifest-path", manifest])
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn imports() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = metadata(&["--no-deps"]);
    let name = |value: &serde_json::Value| value["name"].as_str().unwrap().to_owned();
    let packages = metadata["packages"].as_array().unwrap();
    let ours: BTreeSet<String> = packages.iter().map(name).collect();
    let is_for_tests = |import: &serde_json::Value| import["kind"] == "dev" && name(import) == "pciescope-support";
    let of = |package: &serde_json::Value| {
        let imports = package["dependencies"].as_array().unwrap().iter().filter(|import| !is_for_tests(import));
        imports.map(name).filter(|name| ours.contains(name)).collect()
    };
    packages.iter().map(|package| (name(package), of(package))).collect()
}

#[test]
fn no_crate_imports_upwards() {
    for (krate, imports) in imports() {
        // A crate that a later issue adds is to be entered in the table first. Fuzzers and tools of the
        // workspace would stand here too.
        let (_, allowed) = LAYERS
            .iter()
            .find(|(name, _)| *name == krate)
            .unwrap_or_else(|| panic!("{krate} has no place in the table of layers"));
        for import in &imports {
            assert!(allowed.contains(&import.as_str()), "{krate} must not import {import}");
        }
    }
}

#[test]
fn every_crate_of_the_table_exists() {
    let imports = imports();
    for (krate, _) in LAYERS {
        assert!(imports.contains_key(krate), "{krate} is gone");
    }
}

/// A compiler of 1.85 builds what its users have. Nobody compiles with it here: `incompatible_msrv` of clippy looks at our own
/// code, and this at what others say of theirs.
#[test]
fn no_crate_needs_a_newer_rust_than_the_workspace_declares() {
    let metadata = metadata(&["--locked", "--filter-platform", "x86_64-unknown-linux-gnu"]);
    let number = |part: &str| part.parse::<u32>().unwrap();
    let rust = |package: &serde_json::Value| -> Option<Vec<u32>> {
        Some(package["rust_version"].as_str()?.split('.').take(2).map(number).collect())
    };
    let packages = metadata["packages"].as_array().unwrap();
    let declared = packages.iter().find(|package| package["name"] == "pciescope-cli").and_then(rust).unwrap();
    assert!(packages.iter().filter(|package| rust(package).is_some()).count() > 100);
    let newer = packages.iter().filter(|package| rust(package).is_some_and(|needed| needed > declared));
    let newer: Vec<String> =
        newer.map(|one| format!("{} {} needs Rust {}", one["name"], one["version"], one["rust_version"])).collect();
    assert!(newer.is_empty(), "{newer:#?}");
}

/// The files and folders of a crate's src, each with those that it imports.
fn imports_within(src: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut open = vec![src.to_owned()];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(path.read_dir().unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let first = path.strip_prefix(src).unwrap().iter().next().unwrap();
            let own = first.to_str().unwrap().trim_end_matches(".rs").to_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
            // Of `crate::{a, b}` both, of `crate::a::b` the first.
            let names = code.split("crate::").skip(1).flat_map(|after| match after.strip_prefix('{') {
                Some(list) => list.split('}').next().unwrap().split(',').collect(),
                None => vec![after],
            });
            let first =
                |name: &str| name.trim().split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap().to_owned();
            all.entry(own).or_default().extend(names.map(first));
        }
    }
    all
}

#[test]
fn no_modules_of_a_crate_import_each_other_in_a_circle() {
    for name in ["report", "cli", "serve", "catalogue"] {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
        let mut left = imports_within(&src);
        assert!(left.len() > 3, "{name}: {left:?}");
        // The lowest floor, and then the next one.
        loop {
            let names: BTreeSet<String> = left.keys().cloned().collect();
            left.iter_mut().for_each(|(own, imports)| imports.retain(|import| import != own && names.contains(import)));
            left.retain(|_, imports| !imports.is_empty());
            if left.len() == names.len() {
                break;
            }
        }
        assert!(left.is_empty(), "{name}: in a circle, or above one: {left:?}");
    }
}
