//! A folder of record files, of which the oldest are deleted: what `watch --ring` keeps, and how links ran before.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use pciescope_core::change::Subject;
use pciescope_core::{Bdf, Record};
use pciescope_hw::watch::Former;
use pciescope_report::jsonl;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::{Refusal, files};

/// A file has this part of the whole, so that little goes with the oldest.
const PARTS: u64 = 16;
/// The most files: each run begins one.
const MOST_FILES: usize = 500;

/// The files of a folder, written one after the other.
pub struct RecordRing {
    folder: PathBuf,
    most_bytes: u64,
    /// The file that is written to, its name, and the length of what it began with.
    file: Option<(jsonl::Writer<File>, PathBuf, u64)>,
    /// The machine and the plan: with them each file can be read alone.
    head: Vec<Record>,
    /// The last state of each link.
    links: BTreeMap<Bdf, Record>,
    /// Locked, so that one run has the folder.
    _lock: File,
}

impl RecordRing {
    /// The folder, which is made where it is missing. Its files together never have more than `most_bytes`.
    ///
    /// # Errors
    /// A folder that another run writes to, or that cannot be made.
    pub fn open(folder: &Path, most_bytes: u64) -> anyhow::Result<RecordRing> {
        let failed = || format!("cannot keep records in {}", folder.display());
        let folder = files::make_folder(folder).with_context(failed)?;
        let lock = File::open(&folder).with_context(failed)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            let text = format!("{}: another run keeps its records there", folder.display());
            return Err(Refusal::new(text, "name another folder, or wait until that ends").into());
        }
        Ok(RecordRing { folder, most_bytes, file: None, head: Vec::new(), links: BTreeMap::new(), _lock: lock })
    }

    /// How links ran when they were last watched; `boot_id` names the boot now.
    ///
    /// # Errors
    /// When the folder cannot be read. Lines that are no records are left out.
    pub fn former(&self, boot_id: Option<&str>) -> io::Result<BTreeMap<Bdf, Former>> {
        let paths: Vec<PathBuf> = self.files()?.into_iter().map(|(path, _)| path).collect();
        let (mut links, mut boot, mut time) = (BTreeMap::new(), None, String::new());
        jsonl::each_readable(
            &paths,
            |_, record| -> io::Result<()> {
                boot =
                    record.environment.as_ref().map_or_else(|| boot.take(), |environment| environment.boot_id.clone());
                time.clone_from(&record.time);
                links.extend(of_link(&record).map(|bdf| (bdf, record)));
                Ok(())
            },
            |_| Ok(()),
        )?;
        let reboot = if boot.as_deref() == boot_id { "" } else { ", and the machine was started again" };
        let evidence = format!("since the last run (last record {time}){reboot}");
        let former = |record: Record| Former {
            state: record.change.map(|change| change.to).unwrap_or_default(),
            below: record.instance.and_then(|instance| instance.below.into_iter().next()).map(|below| below.name),
            evidence: evidence.clone(),
        };
        Ok(links.into_iter().map(|(bdf, record)| (bdf, former(record))).collect())
    }

    /// Writes all of these records, or none where the disk is full.
    ///
    /// # Errors
    /// As for [`jsonl::Writer::put_all_or_none`].
    pub fn put_all_or_none(&mut self, records: &[Record]) -> io::Result<()> {
        let part = self.most_bytes / PARTS;
        let is_full = |(_, path, begun): &(_, PathBuf, u64)| path.metadata().is_ok_and(|is| is.len() >= begun + part);
        if self.file.as_ref().is_none_or(is_full) {
            self.begin(part)?;
        }
        let (file, ..) = self.file.as_mut().ok_or(io::ErrorKind::NotFound)?;
        file.put_all_or_none(records)?;
        for record in records {
            if record.environment.is_some() {
                self.head = vec![record.clone()];
            }
            self.links.extend(of_link(record).map(|bdf| (bdf, record.clone())));
        }
        Ok(())
    }

    /// Begins the next file with the machine, the plan and the last state of each link, and deletes the oldest for it.
    fn begin(&mut self, part: u64) -> io::Result<()> {
        let head: Vec<Record> = self.head.iter().chain(self.links.values()).cloned().collect();
        let files = self.files()?;
        let mut bytes: u64 = files.iter().map(|(_, len)| len).sum();
        // With its last records a file may have a little more than its part.
        let room = 2 * part + self.file.as_ref().map_or(0, |(.., begun)| *begun);
        for (number, (path, len)) in files.iter().enumerate() {
            if bytes + room <= self.most_bytes && files.len() - number < MOST_FILES {
                break;
            }
            fs::remove_file(path)?;
            bytes -= len;
        }
        let number = files.last().and_then(|(path, _)| number(path)).unwrap_or(0) + 1;
        let path = self.folder.join(format!("watch-{number:08}.jsonl"));
        // Another user's link of this name is not followed.
        let mut file = jsonl::Writer::new(File::options().write(true).create_new(true).open(&path)?);
        if let Err(why) = file.put_all_or_none(&head) {
            fs::remove_file(&path)?;
            return Err(why);
        }
        let begun = path.metadata()?.len();
        self.file = Some((file, path, begun));
        Ok(())
    }

    /// Its files with their lengths, the oldest first.
    fn files(&self) -> io::Result<Vec<(PathBuf, u64)>> {
        let entries = fs::read_dir(&self.folder)?.collect::<io::Result<Vec<_>>>()?;
        let mut paths: Vec<PathBuf> =
            entries.iter().map(fs::DirEntry::path).filter(|path| number(path).is_some()).collect();
        paths.sort();
        paths.into_iter().map(|path| Ok((path.clone(), path.metadata()?.len()))).collect()
    }
}

/// The number in the name of a file.
fn number(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix("watch-")?.strip_suffix(".jsonl")?.parse().ok()
}

/// The link of which it tells the state.
fn of_link(record: &Record) -> Option<Bdf> {
    record.change.as_ref().filter(|change| change.of == Subject::Link)?;
    record.device.as_ref()?.bdf
}

#[cfg(test)]
mod tests {
    use pciescope_core::change::{Cause, Change, Source};
    use pciescope_core::{Environment, Function, Identity};

    use super::*;

    fn bdf(bus: u8) -> Bdf {
        Bdf { domain: 0, bus, device: 0, function: 0 }
    }

    /// A change of a link, or the first record.
    fn record(of: Option<(u8, &str)>, boot_id: &str) -> Record {
        let mut record = Record::default();
        if let Some((bus, to)) = of {
            record.device = Some(Function { bdf: Some(bdf(bus)), ..Function::default() });
            record.change = Some(Change {
                of: Subject::Link,
                from: Some("16 GT/s x4".to_owned()),
                to: to.to_owned(),
                cause: Some(Cause::Unknown),
                source: Source::Registers,
                evidence: vec!["x".repeat(100)],
                may_have_missed: false,
                times: 1,
            });
        } else {
            record.environment = Some(Environment { boot_id: Some(boot_id.to_owned()), ..Environment::default() });
        }
        let identity = Identity { time: Some("2026-01-02T03:04:05Z".to_owned()), ..Identity::new("watch", None) };
        identity.mark(&mut record, std::time::SystemTime::now());
        record
    }

    #[test]
    fn the_oldest_files_go_and_each_can_be_read_alone() {
        const MOST: u64 = 40_000;
        let folder = tempfile::tempdir().unwrap();
        let mut ring = RecordRing::open(folder.path(), MOST).unwrap();
        assert!(RecordRing::open(folder.path(), MOST).is_err(), "two runs write to one folder");
        ring.put_all_or_none(&[record(None, "a")]).unwrap();
        ring.put_all_or_none(&[record(Some((1, "16 GT/s x4")), ""), record(Some((2, "2.5 GT/s x1")), "")]).unwrap();
        for number in 0..1000 {
            ring.put_all_or_none(&[record(Some((2, if number % 2 == 0 { "8 GT/s x4" } else { "5 GT/s x4" })), "")])
                .unwrap();
            let bytes: u64 = ring.files().unwrap().iter().map(|(_, len)| len).sum();
            assert!(bytes <= MOST, "{bytes} after {number}");
        }
        let files = ring.files().unwrap();
        assert!(files.len() > 5 && number(&files[0].0) > Some(10), "{files:?}");
        for (path, _) in &files {
            let contents = jsonl::read_records(path).unwrap();
            assert!(contents.records[0].environment.is_some() && contents.remarks.is_empty(), "{path:?}");
        }
        // Killed in the middle of a line.
        drop(ring);
        let newest = &files.last().unwrap().0;
        let text = fs::read_to_string(newest).unwrap();
        fs::write(newest, format!("{text}{}", &text[..100])).unwrap();
        let ring = RecordRing::open(folder.path(), MOST).unwrap();
        let state = |boot_id| {
            let former = ring.former(Some(boot_id)).unwrap();
            (former[&bdf(1)].state.clone(), former[&bdf(2)].state.clone(), former[&bdf(1)].evidence.clone())
        };
        let ended = "since the last run (last record 2026-01-02T03:04:05Z)";
        // Of the first link's change only the heads still tell.
        assert_eq!(state("a"), ("16 GT/s x4".to_owned(), "5 GT/s x4".to_owned(), ended.to_owned()));
        assert_eq!(state("b").2, format!("{ended}, and the machine was started again"));
    }

    #[test]
    fn what_is_too_much_for_a_folder_of_many_files_goes_too() {
        let folder = tempfile::tempdir().unwrap();
        for number in 1..=MOST_FILES + 20 {
            fs::write(folder.path().join(format!("watch-{number:08}.jsonl")), "").unwrap();
        }
        fs::write(folder.path().join("notes.txt"), "the user's").unwrap();
        let mut ring = RecordRing::open(folder.path(), 1 << 20).unwrap();
        ring.put_all_or_none(&[record(None, "a")]).unwrap();
        assert_eq!(ring.files().unwrap().len(), MOST_FILES);
        assert!(folder.path().join("notes.txt").exists());
    }
}
