//! The trees of tests/doctor: files of a machine, as text (docs/doctor.md has its format). The fuzzer of trees uses them too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Where they are.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|up| up.join("tests/doctor")).find(|it| it.is_dir()).unwrap()
}

/// A tree as its text says; paths are absolute.
#[derive(Default, Clone)]
pub struct Tree {
    pub files: BTreeMap<String, Vec<u8>>,
    pub links: BTreeMap<String, String>,
    pub devices: BTreeMap<String, String>,
    /// Files that were different at the first of two readings.
    pub before: BTreeMap<String, Vec<u8>>,
    /// Arguments of the program.
    pub run: Vec<String>,
    /// Other checks that speak on this tree.
    pub also: BTreeSet<String>,
}

impl Tree {
    /// The tree of `base`, with the changes of `name`.
    pub fn read(name: &str) -> Tree {
        let mut tree = Tree::default();
        tree.change(&fs::read_to_string(folder().join("base.tree")).unwrap());
        if name != "base" {
            tree.change(&fs::read_to_string(folder().join(name)).unwrap_or_else(|err| panic!("{name}: {err}")));
        }
        tree
    }

    /// Follows the lines of a text, in their order.
    pub fn change(&mut self, text: &str) {
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "run:" => self.run.extend(rest.split_whitespace().map(str::to_owned)),
                "also:" => drop(self.also.insert(rest.split_whitespace().next().unwrap().to_owned())),
                "before" if rest.starts_with("config ") => {
                    let (bdf, bytes) = rest["config ".len()..].split_once(' ').unwrap();
                    let path = self.place(&format!("@{bdf}/config"));
                    let mut earlier = Tree { files: self.files.clone(), ..Tree::default() };
                    earlier.patch(&path, bytes);
                    self.before.insert(path.clone(), earlier.files[&path].clone());
                }
                "before" => {
                    let (path, value) = rest.split_once(" = ").unwrap();
                    self.before.insert(self.place(path), value.replace("\\n", "\n").into_bytes());
                }
                "device" => {
                    let (bdf, place) = rest.split_once(' ').unwrap();
                    let place = format!("/sys/devices/{place}");
                    self.links.insert(format!("/sys/bus/pci/devices/{bdf}"), place.clone());
                    self.devices.insert(bdf.to_owned(), place);
                }
                "config" => {
                    let (bdf, bytes) = rest.split_once(' ').unwrap();
                    let path = self.place(&format!("@{bdf}/config"));
                    self.files.entry(path.clone()).or_insert_with(|| vec![0; 4096]);
                    self.patch(&path, bytes);
                }
                "bytes" => {
                    let (path, bytes) = rest.split_once(' ').unwrap();
                    self.patch(&self.place(path), bytes);
                }
                "cut" => {
                    let (bdf, length) = rest.split_once(' ').unwrap();
                    let path = self.place(&format!("@{bdf}/config"));
                    self.files.get_mut(&path).unwrap().truncate(length.parse().unwrap());
                }
                "remove" => {
                    let path = self.place(rest);
                    let known = self.files.len() + self.links.len();
                    let is_other = |other: &String| *other != path && !other.starts_with(&format!("{path}/"));
                    self.files.retain(|other, _| is_other(other));
                    self.links.retain(|other, _| is_other(other));
                    assert_ne!(known, self.files.len() + self.links.len(), "nothing to remove: {line}");
                }
                path if rest.starts_with("-> ") => {
                    self.links.insert(self.place(path), rest[3..].to_owned());
                }
                path => {
                    let value = rest.strip_prefix('=').unwrap_or_else(|| panic!("not understood: {line}")).trim_start();
                    self.files.insert(
                        self.place(path),
                        (value.replace("\\n", "\n").replace("\\t", "\t") + "\n").into_bytes(),
                    );
                }
            }
        }
    }

    /// `@0000:01:00.0/FILE` is a file in the function's folder.
    fn place(&self, path: &str) -> String {
        let Some((bdf, file)) = path.strip_prefix('@').map(|rest| rest.split_once('/').unwrap()) else {
            return path.to_owned();
        };
        format!("{}/{file}", self.devices.get(bdf).unwrap_or_else(|| panic!("no device {bdf}")))
    }

    /// `0x34: 00 01  # why`: bytes at an offset.
    fn patch(&mut self, path: &str, text: &str) {
        let (at, bytes) = text.split('#').next().unwrap().split_once(':').unwrap();
        let at = usize::from_str_radix(at.trim().trim_start_matches("0x"), 16).unwrap();
        let bytes: Vec<u8> = bytes.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        let file = self.files.entry(path.to_owned()).or_default();
        file.resize(file.len().max(at + bytes.len()), 0);
        file[at..at + bytes.len()].copy_from_slice(&bytes);
    }

    /// Writes it below a folder.
    pub fn write(&self, root: &Path) {
        let mut folders = BTreeSet::new();
        let mut at = |path: &str| {
            let place = root.join(path.trim_start_matches('/'));
            let folder = place.parent().unwrap();
            if folders.insert(folder.to_owned()) {
                fs::create_dir_all(folder).unwrap();
            }
            place
        };
        for (path, bytes) in &self.files {
            fs::write(at(path), bytes).unwrap();
        }
        for (path, target) in &self.links {
            let up = "../".repeat(path.matches('/').count() - 1);
            symlink(format!("{up}{}", target.trim_start_matches('/')), at(path)).unwrap();
        }
    }
}
