//! Record files: one record is one line of JSON, written whole before the next is begun.

mod blocks;

use std::collections::HashSet;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use pciescope_core::record::SCHEMA;
use pciescope_core::sink::Unwritten;
use pciescope_core::{Environment, Record, Sink};

use self::blocks::ParsedLine;
use crate::fold::Folder;
use crate::{Error, source};

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

    /// Writes all of these records or, into a file on a disk that is full, none: what was written of them is cut off, so that
    /// the file has whole lines and the records can be written later.
    ///
    /// # Errors
    /// As for [`Sink::put_all`]; [`Unwritten`] where the disk is full.
    pub fn put_all_or_none(&mut self, records: &[Record]) -> io::Result<()> {
        // A pipe has no position.
        let before = self.out.stream_position().ok();
        self.put_all(records).map_err(|why| {
            // A device has no length that could be cut.
            let mut cut = |at| self.out.set_len(at).and_then(|()| self.out.seek(io::SeekFrom::Start(at)));
            let is_full = matches!(why.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
            if before.is_some_and(|at| cut(at).is_ok()) && is_full { Unwritten::of(why) } else { why }
        })
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

/// Opens a record file, also a packed one or one of UTF-16 ([`source`]), or [`SAMPLE`]; `-` is the standard input.
///
/// # Errors
/// [`Error::Read`].
pub fn open(path: &Path) -> Result<Box<dyn BufRead + Send>, Error> {
    let is_sample = path == Path::new(SAMPLE) && !path.exists();
    let opened = if is_sample { source::unpack(SAMPLE_GZ) } else { source::open(path) };
    opened.map(|opened| opened.input).map_err(|source| Error::Read { path: path.to_owned(), source })
}

/// Reads a record file; `-` is standard input, `sample` the recording that is built in.
///
/// A last line without its newline that is not a whole record is what a killed run leaves: it is left out and
/// named in [`Contents::remarks`]. Every other bad line is an error.
///
/// # Errors
/// [`Error::Read`], [`Error::TooLong`], [`Error::BadRecord`], [`Error::OtherSchema`], and [`Error::NoRecord`] for a file
/// without any.
pub fn read_records(path: &Path) -> Result<Contents, Error> {
    read_files(std::slice::from_ref(&path.to_owned()))
}

/// Reads several record files in their order and hands each record on as it comes, with its file, so that files of any
/// length need the memory of a block; gives the remarks, as [`Contents::remarks`]. A record that is in an earlier file
/// too, such as the file of all records that an earlier command wrote, is left out: counted twice it would make figures
/// look more certain.
///
/// # Errors
/// As [`read_records`], for the first file that has one, and those of `take`.
pub fn each<E: From<Error>>(
    paths: &[PathBuf],
    mut take: impl FnMut(&Path, Record) -> Result<(), E>,
) -> Result<Vec<String>, E> {
    let (mut remarks, mut repeated) = (Vec::new(), 0u64);
    // 8 bytes for each record: of earlier files, and of the one that is being read, as its equal rows are several rows.
    let (mut earlier, mut own) = (HashSet::new(), Vec::new());
    let (state, is_one) = (RandomState::new(), paths.len() < 2);
    let parse = move |text: &[u8], path: &Path, number, lines: &mut Vec<ParsedLine>| {
        lines.push(parse_line(text, path, number).map(|record| {
            // Without a run nothing says that two are the same. A file edited by hand has other bytes.
            let is_compared = !is_one && !record.run.is_empty();
            let written = is_compared.then(|| serde_json::to_vec(&record).ok()).flatten();
            (written.map(|written| state.hash_one(written)), record)
        }));
    };
    blocks::each(paths, parse, |block| -> Result<(), E> {
        for line in block.lines {
            match line {
                Ok((Some(hash), _)) if earlier.contains(&hash) => repeated += 1,
                Ok((hash, record)) => {
                    own.extend(hash);
                    take(&block.path, record)?;
                }
                Err(error @ Error::Unfinished { .. }) => remarks.push(error.to_string()),
                Err(error) => return Err(error.into()),
            }
        }
        if block.is_last {
            earlier.extend(own.drain(..));
            if repeated > 0 {
                let (s, were) = if repeated == 1 { ("", "was") } else { ("s", "were") };
                let name = block.path.display();
                remarks.push(format!("{name}: {repeated} record{s} of an earlier file came again and {were} left out"));
                repeated = 0;
            }
        }
        Ok(())
    })?;
    Ok(remarks)
}

/// A file's name as text, in which bytes that are no UTF-8 are `\xe4` and the like: no two files get the same.
pub fn name(path: &Path) -> String {
    let chunks = path.as_os_str().as_bytes().utf8_chunks();
    let escaped = |bytes: &[u8]| bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
    chunks.map(|chunk| chunk.valid().to_owned() + &escaped(chunk.invalid())).collect()
}

/// A file, or a line of it, that was left out.
#[derive(Debug, PartialEq, Eq, serde::Serialize)]
pub struct LeftOut {
    /// The file as it was named.
    pub file: String,
    /// The line, from 1; absent where it is the rest of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Why.
    pub why: String,
}

impl LeftOut {
    fn new(file: &Path, error: &Error) -> Self {
        let line = match error {
            Error::BadRecord { line, .. }
            | Error::OtherSchema { line, .. }
            | Error::TooLong { line, .. }
            | Error::Unfinished { line, .. } => Some(*line),
            _ => None,
        };
        let place = line.map_or_else(|| format!("{}: ", file.display()), |line| format!("{}:{line}: ", file.display()));
        let why = match error {
            Error::Read { source, .. } => format!("cannot be read to its end: {source}"),
            error => error.to_string().replacen(&place, "", 1),
        };
        LeftOut { file: name(file), line, why }
    }
}

/// Reads several record files, each by itself, on all CPUs, and goes on where one cannot be read: `leave` is told what was left out, in
/// the order of the files. A line that a file has twice counts once; a record that another file has too is taken. Of an
/// environment only the fields that are wrong are left out.
///
/// # Errors
/// Those of `take` and `leave`.
pub fn each_readable<E>(
    paths: &[PathBuf],
    mut take: impl FnMut(&Path, Record) -> Result<(), E>,
    mut leave: impl FnMut(&LeftOut) -> Result<(), E>,
) -> Result<(), E> {
    let state = RandomState::new();
    let mut known = HashSet::new();
    for block in blocks::on_all_cpus(paths, move |text: &[u8], path: &Path, number, lines: &mut Vec<ParsedLine>| {
        let record = parse_line(text, path, number).and_then(|record| with_run(record, path, number));
        let record = record.or_else(|error| salvage(text, path, number, lines).ok_or(error));
        lines.push(record.map(|record| (Some(state.hash_one(text.trim_ascii())), record)));
    }) {
        for line in block.lines {
            match line {
                Ok((hash, record)) if hash.is_none_or(|hash| known.insert(hash)) => take(&block.path, record)?,
                Ok(_) => {}
                Err(error) => leave(&LeftOut::new(&block.path, &error))?,
            }
        }
        if block.is_last {
            known.clear();
        }
    }
    Ok(())
}

/// Refuses a record whose run is none that pciescope names.
fn with_run(record: Record, path: &Path, line: usize) -> Result<Record, Error> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if record.run.len() == 16 && record.run.bytes().all(is_digit) {
        return Ok(record);
    }
    let why = format!("its run is {:?}, not 16 hexadecimal digits", record.run);
    Err(Error::BadRecord { path: path.to_owned(), line, why })
}

/// The record without the fields of its environment that are wrong, which are told; `None` where it is wrong elsewhere.
fn salvage(text: &[u8], path: &Path, line: usize, lines: &mut Vec<ParsedLine>) -> Option<Record> {
    let mut value: serde_json::Value = serde_json::from_slice(text).ok()?;
    let fields = value.get_mut("environment")?.as_object_mut()?;
    let nothing = serde_json::to_value(Environment::default()).ok()?;
    let mut wrong = Vec::new();
    for (name, field) in std::mem::take(fields) {
        let mut alone = nothing.clone();
        alone[&name] = field.clone();
        match serde_json::from_value::<Environment>(alone) {
            Ok(_) => drop(fields.insert(name, field)),
            Err(error) => wrong.push(format!("environment.{name}: {error}")),
        }
    }
    for (name, field) in nothing.as_object()? {
        fields.entry(name).or_insert_with(|| field.clone());
    }
    let record = parse_line(&serde_json::to_vec(&value).ok()?, path, line).ok()?;
    let record = with_run(record, path, line).ok()?;
    lines.extend(wrong.into_iter().map(|why| Err(Error::BadRecord { path: path.to_owned(), line, why })));
    Some(record)
}

/// Reads several record files one after the other into one.
///
/// # Errors
/// As [`read_records`], for the first file that has one.
pub fn read_files(paths: &[PathBuf]) -> Result<Contents, Error> {
    let mut records = Vec::new();
    let remarks = each(paths, |_, record| -> Result<(), Error> {
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
    let remarks = each(paths, |_, record| -> Result<(), Error> {
        folder.add(record);
        Ok(())
    })?;
    Ok(Contents { records: folder.finish(), remarks })
}

/// Reads records from a text; `path` names it in messages. Errors as [`read_records`].
pub fn parse_records(text: &[u8], path: &Path) -> Result<Contents, Error> {
    let mut contents = Contents::default();
    let lines = blocks::lines(text, path, 1, &|text: &[u8], path: &Path, number, lines: &mut Vec<ParsedLine>| {
        lines.push(parse_line(text, path, number).map(|record| (None, record)));
    });
    if lines.is_empty() {
        return Err(Error::NoRecord { path: path.to_owned() });
    }
    for line in lines {
        match line {
            Ok((_, record)) => contents.records.push(record),
            Err(error @ Error::Unfinished { .. }) => contents.remarks.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    Ok(contents)
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

    /// Files with the tests of their records, and what was left out.
    type Readable = (Vec<(String, String)>, Vec<(String, Option<usize>, String)>);

    fn readable(files: &[(&str, Vec<u8>)]) -> Readable {
        let folder = tempfile::tempdir().unwrap();
        let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
        let paths: Vec<PathBuf> = files.iter().map(|(name, _)| folder.path().join(name)).collect();
        for (path, (_, content)) in paths.iter().zip(files).filter(|(_, (_, content))| content != b"none") {
            std::fs::write(path, content).unwrap();
        }
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        let take = |path: &Path, record: Record| -> Result<(), Error> {
            taken.push((name(path), record.test));
            Ok(())
        };
        each_readable(&paths, take, |one| {
            left.push((name(Path::new(&one.file)), one.line, one.why.clone()));
            Ok(())
        })
        .unwrap();
        (taken, left)
    }

    #[test]
    fn what_cannot_be_read_is_named_and_the_rest_taken() {
        let of = |test: &str| Record { run: "00000000000000f1".to_owned(), ..record(test) };
        let whole = written(&[of("a"), of("b"), of("a")]);
        let mut torn = written(&[of("a"), of("c")]);
        torn.truncate(torn.len() - 5);
        let wrong = br#"{"schema":1,"run":"00000000000000f1","time":"","verb":"","test":"d","environment":
            {"kernel":"6","firmware":[{"bdf":1}],"host":{"name":"n1"}}}"#;
        let mut odd = wrong.iter().copied().filter(|byte| *byte != b'\n').collect::<Vec<_>>();
        odd.extend(b"\n7\n\n");
        odd.extend(written(&[record("no run"), of("e")]));
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(&whole).unwrap();
        let packed = packed.finish().unwrap();
        let mut long = whole.clone();
        long.resize(long.len() + (65 << 20), b' ');
        long.extend(b"x\n");
        long.extend(written(&[of("f")]));
        let (taken, left) = readable(&[
            ("whole", whole),
            ("torn", torn),
            ("odd", odd),
            ("packed", packed.clone()),
            ("cut", packed[..packed.len() - 12].to_vec()),
            ("empty", Vec::new()),
            ("not there", b"none".to_vec()),
            ("long", long),
        ]);
        let of_file =
            |file: &str| taken.iter().filter(|(name, _)| name == file).map(|(_, test)| &**test).collect::<String>();
        let files = ["whole", "torn", "odd", "packed", "empty", "long"].map(of_file);
        assert_eq!(files, ["ab", "a", "de", "ab", "", "abf"]);
        let place: Vec<_> = left.iter().map(|(file, line, _)| (&**file, *line)).collect();
        let wanted = [
            ("torn", Some(2)),
            ("odd", Some(1)),
            ("odd", Some(2)),
            ("odd", Some(4)),
            ("cut", None),
            ("empty", None),
            ("not there", None),
            ("long", Some(4)),
        ];
        assert_eq!(place, wanted, "{left:?}");
        let words =
            ["unfinished", "environment.firmware: ", "not a record: ", "its run is \"\"", "to its end: ", "no record"];
        for (word, (_, _, why)) in words.iter().zip(&left) {
            assert!(why.contains(word), "{word}: {why}");
        }
        assert_eq!(left[7].2, "a line is longer than 64 MiB");
    }

    #[test]
    fn names_of_files_are_text_and_differ() {
        let names: [&[u8]; 3] = [b"n\xe4.jsonl", b"n\xf6.jsonl", "n\u{e4}.jsonl".as_bytes()];
        let texts = names.map(|bytes| name(Path::new(std::ffi::OsStr::from_bytes(bytes))));
        assert_eq!(texts, ["n\\xe4.jsonl", "n\\xf6.jsonl", "n\u{e4}.jsonl"]);
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
