//! Whole trees of `/sys` and `/proc`, some files of which are damaged: what `list`, `doctor`, `stat` and `top` make of them.
//! The trees are those of tests/sysfs and tests/doctor.
//!
//! Input: the number of a tree, then for each damage the number of a file (two bytes), a kind, a length, and as many bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use pciescope_hw::account::{self, Accounts};
use pciescope_hw::doctor::{self, CHECKS, Machine, Readings};
use pciescope_hw::probe::open::backends;
use pciescope_hw::{Root, check, environment, inventory, nodes, pci, perf, registers, topology};

/// What a tree is made of.
enum Source {
    Archive(PathBuf),
    Text(String),
}

static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
    let names = |folder: &Path, ending: &str| {
        let names = fs::read_dir(folder).expect("a folder of trees").map(|entry| entry.expect("a tree").file_name());
        let names = names.map(|name| name.into_string().expect("a name of letters"));
        names.filter(|name| name.ends_with(ending)).collect::<BTreeSet<String>>()
    };
    let tests = pciescope_support::tests();
    let sysfs = tests.join("sysfs");
    let archives = names(&sysfs, ".tar.gz").into_iter().map(|name| Source::Archive(sysfs.join(name)));
    archives.chain(names(&tests.join("doctor"), ".fires").into_iter().map(Source::Text)).collect()
});

/// The trees that were used so far, by their numbers.
static TREES: Mutex<BTreeMap<usize, Tree>> = Mutex::new(BTreeMap::new());

#[derive(Clone)]
enum Kept {
    File(Vec<u8>),
    Link(PathBuf),
}

/// A tree on the disk, whole between two inputs.
struct Tree {
    folder: PathBuf,
    files: Vec<(PathBuf, Kept)>,
    /// What counted up when nothing was damaged.
    earlier: Readings,
}

impl Tree {
    fn make(number: usize) -> Tree {
        let folder = crate::FOLDER.path().join(format!("tree{number}"));
        fs::create_dir(&folder).expect("the folder can be written");
        match &SOURCES[number] {
            Source::Archive(archive) => {
                let file = fs::File::open(archive).expect("a tree");
                tar::Archive::new(flate2::read::GzDecoder::new(file))
                    .unpack(&folder)
                    .expect("the tree can be unpacked");
            }
            Source::Text(name) => pciescope_support::tree::Tree::case(name).write(&folder),
        }
        let mut files = Vec::new();
        walk(&folder, &mut files);
        files.sort_by(|one, other| one.0.cmp(&other.0));
        let root = Root::at(folder.as_path());
        let bdfs: Vec<_> = pci::functions(&root).all.iter().filter_map(|one| one.bdf).collect();
        Tree { earlier: Readings::take(&root, &bdfs), folder, files }
    }

    /// Damages files as the input says; gives the numbers of those that are not whole any more.
    fn damage(&self, mut data: &[u8]) -> BTreeSet<usize> {
        let mut damaged = BTreeMap::new();
        while let [high, low, kind, length, rest @ ..] = data {
            let (bytes, rest) = rest.split_at(rest.len().min(usize::from(*length)));
            data = rest;
            let number = usize::from(u16::from_be_bytes([*high, *low])) % self.files.len();
            let (path, whole) = &self.files[number];
            let mut content = match damaged.remove(&number).unwrap_or_else(|| whole.clone()) {
                Kept::File(content) => content,
                Kept::Link(target) => target.into_os_string().into_encoded_bytes(),
            };
            let at = |at: Option<&u8>| usize::from(at.copied().unwrap_or(0));
            remove(path);
            match kind % 8 {
                0 => content = bytes.to_vec(),
                1 => content.truncate(usize::from(*length)),
                2 => {
                    let from = (at(bytes.first()) << 8 | at(bytes.get(1))).min(content.len());
                    let bytes = bytes.get(2..).unwrap_or_default();
                    content.resize(content.len().max(from + bytes.len()), 0);
                    content[from..from + bytes.len()].copy_from_slice(bytes);
                }
                3 => {
                    let from = at(bytes.first()).min(content.len());
                    content.splice(from..from, bytes.iter().copied());
                }
                4 => content = with_number(&content, at(bytes.first()), bytes.get(1..).unwrap_or_default()),
                // Neither a file nor a link any more.
                kind => {
                    damaged.insert(number, Kept::File(content));
                    let target = &self.files[(at(bytes.first()) << 8 | at(bytes.get(1))) % self.files.len()].0;
                    let made = match kind {
                        5 => Ok(()),
                        6 => fs::create_dir(path),
                        _ if bytes.len() > 2 => symlink(target.parent().unwrap_or(target), path),
                        _ => symlink(target, path),
                    };
                    made.expect("the folder can be written");
                    continue;
                }
            }
            match whole {
                Kept::Link(_) if !content.is_empty() && !content.contains(&0) => {
                    let is_made = symlink(String::from_utf8_lossy(&content).trim_start_matches('/'), path).is_ok();
                    // Nothing outside of the tree is read: it may wait for a reader, as a pipe does.
                    if is_made && path.canonicalize().is_ok_and(|at| !at.starts_with(&self.folder)) {
                        remove(path);
                    }
                }
                Kept::Link(_) => {}
                Kept::File(_) => fs::write(path, &content).expect("the folder can be written"),
            }
            damaged.insert(number, Kept::File(content));
        }
        damaged.into_keys().collect()
    }

    fn mend(&self, damaged: BTreeSet<usize>) {
        for number in damaged {
            let (path, whole) = &self.files[number];
            remove(path);
            let made = match whole {
                Kept::File(content) => fs::write(path, content),
                Kept::Link(target) => symlink(target, path),
            };
            made.expect("the folder can be written");
        }
    }
}

fn walk(folder: &Path, files: &mut Vec<(PathBuf, Kept)>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let kind = path.symlink_metadata().expect("an entry").file_type();
        if kind.is_dir() {
            walk(&path, files);
        } else if kind.is_symlink() {
            files.push((path.clone(), Kept::Link(fs::read_link(&path).expect("a link"))));
        } else {
            files.push((path.clone(), Kept::File(fs::read(&path).expect("a file"))));
        }
    }
}

fn remove(path: &Path) {
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    }
    .expect("the folder can be written");
}

/// The text with other bytes in place of its number of this place.
fn with_number(text: &[u8], place: usize, bytes: &[u8]) -> Vec<u8> {
    let is_start = |at: usize| text[at].is_ascii_digit() && (at == 0 || !text[at - 1].is_ascii_alphanumeric());
    let starts: Vec<usize> = (0..text.len()).filter(|at| is_start(*at)).collect();
    let Some(start) = starts.get(place % starts.len().max(1)) else { return text.to_vec() };
    let end = (*start..text.len()).find(|at| !text[*at].is_ascii_alphanumeric()).unwrap_or(text.len());
    [&text[..*start], bytes, &text[end..]].concat()
}

pub fn run(data: &[u8]) {
    let Some((number, damages)) = data.split_first() else { return };
    let number = usize::from(*number) % SOURCES.len();
    let mut trees = TREES.lock().expect("one thread");
    let tree = trees.entry(number).or_insert_with(|| Tree::make(number));
    let damaged = tree.damage(damages);
    look(&Root::at(tree.folder.as_path()), &tree.earlier);
    tree.mend(damaged);
}

fn look(root: &Root, earlier: &Readings) {
    let environment = environment::read(root);
    let functions = pci::functions(root).all;
    let _ = (topology::cpus(root), topology::online(root));
    let _ = check::machine_warnings(root, &environment);
    for function in &functions {
        let _ = (registers::safe_target(function), registers::candidate(function), backends(root, function));
        let _ = function.bdf.map(|bdf| nodes::of(root, bdf));
        let _ = check::function_warnings(root, &environment, function);
    }
    let bdfs: Vec<_> = functions.iter().filter_map(|one| one.bdf).collect();
    let mut machine = Machine::new(root, &environment, functions);
    let checks: Vec<_> = CHECKS.iter().collect();
    machine.earlier = Some((earlier, Duration::from_secs(60)));
    for examined in doctor::examine(&machine, &bdfs, &checks) {
        let _ = (examined.findings().count(), examined.ended());
    }
    let _ = (inventory::read(root, &[]), inventory::endpoints(root));
    let _ = (perf::pmus(root), account::sources(root));
    let mut accounts = Accounts::open(root);
    accounts.read();
    accounts.read();
    let _ = accounts.take_doubts();
}
