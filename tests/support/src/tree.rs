//! Files of a machine as text: the trees of tests/doctor and tests/sysfs/pmu. docs/doctor.md, "Trees", has the format. Tests
//! of several crates and the fuzzer of trees read them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;

use crate::tests;

/// `tests/sysfs/pmu/NAME.tree` on the disk, for `--root`; it goes with the value.
pub fn pmu(name: &str) -> TempDir {
    Tree::pmu(name).unpack()
}

/// A tree as its text says; paths are absolute.
#[derive(Default, Clone)]
pub struct Tree {
    /// Contents by path.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Targets of symbolic links by path.
    pub links: BTreeMap<String, String>,
    /// Folders of PCI functions by address.
    pub devices: BTreeMap<String, String>,
    /// Files that were different at the first of two readings.
    pub before: BTreeMap<String, Vec<u8>>,
    /// Arguments of the program.
    pub run: Vec<String>,
    /// Other checks that speak on this tree.
    pub also: BTreeSet<String>,
    /// The id of the catalogue's file that must recognise the PMU.
    pub kind: String,
    /// The source of a PMU's names and encodings: kernel version and driver.
    pub from: String,
    /// The folder of relative paths.
    folder: String,
}

impl Tree {
    /// The tree of a file in tests/.
    fn read(path: &str) -> Tree {
        let mut tree = Tree::default();
        tree.change(&text(path));
        tree
    }

    /// `tests/sysfs/pmu/NAME.tree`.
    pub fn pmu(name: &str) -> Tree {
        Tree::read(&format!("sysfs/pmu/{name}.tree"))
    }

    /// `tests/doctor/base.tree` with the changes of the file `name` beside it.
    pub fn case(name: &str) -> Tree {
        let mut tree = Tree::read("doctor/base.tree");
        if name != "base" {
            tree.change(&text(&format!("doctor/{name}")));
        }
        tree
    }

    /// Follows the lines of a text, in their order.
    pub fn change(&mut self, text: &str) {
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "kind:" => self.kind = rest.to_owned(),
                "from:" => self.from = rest.to_owned(),
                "folder" => self.folder = rest.to_owned(),
                "run:" => self.run.extend(rest.split_whitespace().map(str::to_owned)),
                "also:" => drop(self.also.insert(rest.split_whitespace().next().unwrap().to_owned())),
                "before" if rest.starts_with("config ") => {
                    let (bdf, bytes) = rest["config ".len()..].split_once(' ').unwrap();
                    let path = self.place(&format!("@{bdf}/config"));
                    let mut earlier = self.clone();
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
        match path.strip_prefix('@').map(|rest| rest.split_once('/').unwrap()) {
            Some((bdf, file)) => {
                format!("{}/{file}", self.devices.get(bdf).unwrap_or_else(|| panic!("no device {bdf}")))
            }
            None if path.starts_with('/') => path.to_owned(),
            None if self.folder.is_empty() => panic!("relative without a folder: {path}"),
            None => format!("{}/{path}", self.folder),
        }
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

    /// The tree at the first of two readings.
    pub fn earlier(&self) -> Tree {
        let mut earlier = self.clone();
        earlier.files.extend(self.before.clone());
        earlier
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

    /// Writes it below a new folder, which goes with the value.
    pub fn unpack(&self) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        self.write(root.path());
        root
    }
}

fn text(path: &str) -> String {
    fs::read_to_string(tests().join(path)).unwrap_or_else(|err| panic!("{path}: {err}"))
}
