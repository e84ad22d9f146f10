//! Record files: one record is one line of JSON, written whole before the next is begun.

use std::collections::HashSet;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use pciescope_core::record::SCHEMA;
use pciescope_core::{Record, Sink};

use crate::fold::Folder;
use crate::{Error, bounded};

/// A sink that writes one record a line and flushes it, so that a killed run keeps what it had.
///
/// A broken pipe comes back as [`io::ErrorKind::BrokenPipe`]; what it means is for the caller to say.
pub struct Writer<W: Write> {
    out: W,
    line: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// A sink onto `out`. No buffering is needed: each record is one write.
    pub fn new(out: W) -> Self {
        Writer { out, line: Vec::new() }
    }
    /// Gives the output back.
    pub fn into_inner(self) -> W {
        self.out
    }
}

impl Writer<File> {
    /// Creates (or empties) the file at `path`.
    ///
    /// # Errors
    /// [`Error::Write`] if that fails.
    pub fn create(path: &Path) -> Result<Self, Error> {
        File::create(path).map(Writer::new).map_err(|source| Error::Write { path: path.to_owned(), source })
    }
}

impl<W: Write> Sink for Writer<W> {
    fn put(&mut self, record: &Record) -> io::Result<()> {
        self.put_all(std::slice::from_ref(record))
    }
    /// One write for all: many counters read often would else be many small writes.
    fn put_all(&mut self, records: &[Record]) -> io::Result<()> {
        self.line.clear();
        for record in records {
            serde_json::to_writer(&mut self.line, record)?;
            self.line.push(b'\n');
        }
        self.out.write_all(&self.line)?;
        self.out.flush()
    }
    fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// What a record file held.
#[derive(Debug, Default)]
pub struct Contents {
    /// The records in the order of the file.
    pub records: Vec<Record>,
    /// What was left out and why, each a sentence that names file and line: at most the unfinished last line.
    pub remarks: Vec<String>,
}

/// The name that stands for the recording that is built in, where no file has it: half a minute of the synthetic machine.
pub const SAMPLE: &str = "sample";
static SAMPLE_GZ: &[u8] = include_bytes!("sample.jsonl.gz");

/// Opens a record file, or [`SAMPLE`].
///
/// # Errors
/// [`Error::Read`].
pub fn open(path: &Path) -> Result<Box<dyn BufRead + Send>, Error> {
    if path == Path::new(SAMPLE) && !path.exists() {
        return Ok(Box::new(BufReader::new(GzDecoder::new(SAMPLE_GZ))));
    }
    let file = File::open(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    Ok(Box::new(BufReader::with_capacity(1 << 20, file)))
}

/// Reads a record file; `-` is standard input, `sample` the recording that is built in.
///
/// A last line without its newline that is not a whole record is what a killed run leaves: it is left out and
/// named in [`Contents::remarks`]. Every other bad line is an error.
///
/// # Errors
/// [`Error::Read`], [`Error::BadRecord`], [`Error::OtherSchema`], and [`Error::NoRecord`] for a file without any.
pub fn read_records(path: &Path) -> Result<Contents, Error> {
    read_files(std::slice::from_ref(&path.to_owned()))
}

/// Reads several record files one after the other and hands each record on as it comes, so that files of any length need
/// the memory of a record; gives the remarks, as [`Contents::remarks`]. A record that is in an earlier file too, such as the
/// file of all records that an earlier command wrote, is left out: counted twice it would make figures look more certain.
///
/// # Errors
/// As [`read_records`], for the first file that has one, and those of `take`.
pub fn each<E: From<Error>>(
    paths: &[PathBuf],
    mut take: impl FnMut(Record) -> Result<(), E>,
) -> Result<Vec<String>, E> {
    let mut remarks = Vec::new();
    let mut known = Known::default();
    for path in paths {
        let mut repeated = 0u64;
        let mut take_new = |record: Record| {
            // A file alone repeats none.
            if paths.len() > 1 && known.has(&record) {
                repeated += 1;
                return Ok(());
            }
            take(record)
        };
        let name = if path == Path::new("-") { Path::new("(standard input)") } else { path };
        if path == Path::new("-") {
            each_of(io::stdin().lock(), name, &mut remarks, &mut take_new)?;
        } else {
            each_of(open(path)?, name, &mut remarks, &mut take_new)?;
        }
        known.end_of_file();
        if repeated > 0 {
            let (s, were) = if repeated == 1 { ("", "was") } else { ("s", "were") };
            remarks.push(format!(
                "{}: {repeated} record{s} of an earlier file came again and {were} left out",
                name.display()
            ));
        }
    }
    Ok(remarks)
}

/// Which records earlier files had: 8 bytes for each, so that files of any length can be read.
#[derive(Default)]
struct Known {
    earlier: HashSet<u64>,
    /// Of the file that is being read: equal rows of one file are several rows.
    own: Vec<u64>,
    state: RandomState,
    /// The record as text.
    text: Vec<u8>,
}

impl Known {
    /// Whether an earlier file had this record. It is compared as it would be written now: a file edited by hand has
    /// other bytes.
    fn has(&mut self, record: &Record) -> bool {
        self.text.clear();
        // Without a run nothing says that two are the same.
        if record.run.is_empty() || serde_json::to_writer(&mut self.text, record).is_err() {
            return false;
        }
        let hash = self.state.hash_one(&self.text);
        let is_known = self.earlier.contains(&hash);
        if !is_known {
            self.own.push(hash);
        }
        is_known
    }

    fn end_of_file(&mut self) {
        self.earlier.extend(self.own.drain(..));
    }
}

/// Reads several record files one after the other into one.
///
/// # Errors
/// As [`read_records`], for the first file that has one.
pub fn read_files(paths: &[PathBuf]) -> Result<Contents, Error> {
    let mut records = Vec::new();
    let remarks = each(paths, |record| -> Result<(), Error> {
        records.push(record);
        Ok(())
    })?;
    Ok(Contents { records, remarks })
}

/// As [`read_files`], for outputs: the intervals of counters are folded.
///
/// # Errors
/// As [`read_records`], for the first file that has one.
pub fn fold_files(paths: &[PathBuf]) -> Result<Contents, Error> {
    let mut folder = Folder::default();
    let remarks = each(paths, |record| -> Result<(), Error> {
        folder.add(record);
        Ok(())
    })?;
    Ok(Contents { records: folder.finish(), remarks })
}

/// Reads records from `input`; `path` names it in messages. Errors as [`read_records`].
pub fn parse_records(input: impl BufRead, path: &Path) -> Result<Contents, Error> {
    let mut contents = Contents::default();
    each_of(input, path, &mut contents.remarks, &mut |record| -> Result<(), Error> {
        contents.records.push(record);
        Ok(())
    })?;
    Ok(contents)
}

fn each_of<E: From<Error>>(
    mut input: impl BufRead,
    path: &Path,
    remarks: &mut Vec<String>,
    take: &mut impl FnMut(Record) -> Result<(), E>,
) -> Result<(), E> {
    let mut line = Vec::new();
    let mut is_empty = true;
    for number in 1.. {
        line.clear();
        let read =
            bounded::line(&mut input, &mut line).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        if read == 0 {
            break;
        }
        let is_whole = line.last() == Some(&b'\n');
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match parse_line(&line, path, number) {
            Ok(record) => take(record)?,
            Err(Error::BadRecord { .. }) if !is_whole => remarks.push(format!(
                "{}:{number}: the last record is unfinished and was left out (the run was killed?)",
                path.display()
            )),
            Err(error) => return Err(error.into()),
        }
        is_empty = false;
    }
    if is_empty { Err(Error::NoRecord { path: path.to_owned() }.into()) } else { Ok(()) }
}

/// Only the schema of a record, so that another one is refused as such and not for a field that changed.
#[derive(serde::Deserialize)]
struct Versioned {
    schema: u64,
}

/// Reads one line as a record, for those who take a file line by line; `path` and `number` name it in messages.
///
/// # Errors
/// [`Error::BadRecord`] and [`Error::OtherSchema`].
pub fn parse_line(line: &[u8], path: &Path, number: usize) -> Result<Record, Error> {
    let bad = |e: serde_json::Error| Error::BadRecord { path: path.to_owned(), line: number, why: format!("{e}") };
    let other = |schema| Error::OtherSchema { path: path.to_owned(), line: number, schema, known: SCHEMA };
    match serde_json::from_slice::<Record>(line) {
        Ok(Record { schema: 0, .. }) => {
            let why = "schemas begin with 1, and it says 0".to_owned();
            Err(Error::BadRecord { path: path.to_owned(), line: number, why })
        }
        Ok(record) if record.schema == SCHEMA => Ok(record),
        Ok(Record { schema, .. }) => Err(other(schema.into())),
        Err(error) => match serde_json::from_slice::<Versioned>(line) {
            Ok(Versioned { schema }) if schema > SCHEMA.into() => Err(other(schema)),
            _ => Err(bad(error)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(test: &str) -> Record {
        Record { schema: SCHEMA, test: test.to_owned(), ..Record::default() }
    }

    fn written(records: &[Record]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new());
        for record in records {
            writer.put(record).unwrap();
        }
        writer.finish().unwrap();
        writer.into_inner()
    }

    fn parse(bytes: &[u8]) -> Result<Contents, Error> {
        parse_records(bytes, Path::new("a.jsonl"))
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = written(&[record("mmio-read"), record("line\nbreak")]);
        assert_eq!(bytes.iter().filter(|b| **b == b'\n').count(), 2);
        let contents = parse(&bytes).unwrap();
        assert_eq!(contents.records[1].test, "line\nbreak");
        assert!(contents.remarks.is_empty());
    }

    #[test]
    fn the_sample_has_traffic_on_both_sources() {
        let contents = read_records(Path::new(SAMPLE)).unwrap();
        assert!(contents.remarks.is_empty());
        let is_account = |record: &&Record| record.instance.as_ref().is_some_and(|one| one.is_accounting());
        let counted = || contents.records.iter().filter(|record| record.instance.is_some());
        let (kernel, all) = (counted().filter(is_account).count(), counted().count());
        assert!(kernel > 100 && all > kernel + 100, "{kernel} of {all}");
        assert!(counted().all(|record| record.method.as_ref().is_some_and(|method| method.backend == "fake")));
        assert!(counted().any(|record| record.metrics.get("layer2_errors").is_some_and(|errors| errors.value > 0.0)));
    }

    #[test]
    fn an_unfinished_last_line_is_named_and_the_rest_kept() {
        let mut bytes = written(&[record("a"), record("b")]);
        bytes.truncate(bytes.len() - 5);
        let contents = parse(&bytes).unwrap();
        assert_eq!(contents.records.len(), 1);
        assert!(contents.remarks[0].starts_with("a.jsonl:2: the last record is unfinished"), "{:?}", contents.remarks);
    }

    #[test]
    fn a_whole_last_record_without_newline_is_kept() {
        let mut bytes = written(&[record("a")]);
        bytes.pop();
        let contents = parse(&bytes).unwrap();
        assert_eq!((contents.records.len(), contents.remarks.len()), (1, 0));
    }

    #[test]
    fn a_bad_line_in_the_middle_is_refused_with_file_and_line() {
        let mut bytes = b"{\"schema\":1}\n".to_vec();
        bytes.extend(written(&[record("a")]));
        let text = parse(&bytes).unwrap_err().to_string();
        assert!(text.starts_with("a.jsonl:1: not a record: missing field"), "{text}");
        assert!(parse(b"100 200 3\n").unwrap_err().hint().unwrap().contains("import"));
    }

    #[test]
    fn another_schema_is_refused_whatever_else_changed() {
        let absurd = format!("{{\"schema\":{}}}\n", u64::MAX);
        let whole = written(&[Record { schema: 4, ..record("a") }]);
        for line in [&b"{\"schema\":3,\"other\":true}\n"[..], absurd.as_bytes(), &whole] {
            let error = parse(line).unwrap_err();
            assert!(matches!(error, Error::OtherSchema { line: 1, known: SCHEMA, .. }), "{error}");
            assert!(error.hint().unwrap().contains("as new as"));
        }
        for line in [&b"{\"schema\":2}\n"[..], &written(&[Record { schema: 2, ..record("a") }])] {
            let error = parse(line).unwrap_err();
            assert_eq!(error.to_string(), "a.jsonl:1: the record has schema 2; this pciescope reads schema 1");
            assert!(error.hint().unwrap().contains("before the first release wrote it: measure again"));
        }
    }

    #[test]
    fn a_schema_that_never_was_is_refused() {
        let zero = written(&[Record { schema: 0, ..record("a") }]);
        for line in [&zero[..], b"{\"schema\":-1}\n", b"{\"schema\":\"2\"}\n", b"{\"schema\":1.5}\n", b"{}\n"] {
            let error = parse(line).unwrap_err();
            assert!(matches!(error, Error::BadRecord { line: 1, .. }), "{error}");
        }
    }

    #[test]
    fn a_figure_that_is_not_finite_stays_null() {
        let line = br#"{"schema":1,"run":"","time":"","verb":"readout","test":"readout",
            "metrics":{"speed":{"value":null,"unit":"bytes/s"}}}"#;
        let contents = parse(&line.iter().copied().filter(|byte| *byte != b'\n').collect::<Vec<_>>()).unwrap();
        assert!(contents.records[0].metrics["speed"].value.is_nan());
        let again = String::from_utf8(written(&contents.records)).unwrap();
        assert!(again.contains(r#"{"value":null,"unit":"bytes/s"}"#), "{again}");
    }

    #[test]
    fn an_empty_file_is_refused() {
        assert!(matches!(parse(b"\n \n"), Err(Error::NoRecord { .. })));
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = read_records(Path::new("no/such.jsonl")).unwrap_err();
        assert_eq!(error.to_string(), "cannot read no/such.jsonl");
    }
}
