//! Record files in blocks of whole lines, which come in the order of the files.

use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{available_parallelism, spawn};

use pciescope_core::Record;

use super::open;
use crate::Error;
use crate::bounded::LONGEST_LINE;

/// A record, with a number that equal ones have in common where that is asked for; or why a line is none.
pub type ParsedLine = Result<(Option<u64>, Record), Error>;

/// Lines of a file.
pub struct ParsedLines {
    /// The file.
    pub path: Arc<Path>,
    /// The lines that are not blank.
    pub lines: Vec<ParsedLine>,
    /// Whether the file has no more.
    pub is_last: bool,
}

/// A text of whole lines that is to be parsed.
struct UnparsedLines {
    path: Arc<Path>,
    /// The number of its first line.
    first: usize,
    bytes: Vec<u8>,
}

/// What makes lines of the text of one; it gets the file and the line's number for errors.
pub trait Parse: Fn(&[u8], &Path, usize, &mut Vec<ParsedLine>) + Send + Sync + 'static {}
impl<F: Fn(&[u8], &Path, usize, &mut Vec<ParsedLine>) + Send + Sync + 'static> Parse for F {}

/// Reads files one after the other, on all CPUs: each may hold some blocks. The last block of a file without any line is
/// [`Error::NoRecord`].
pub fn on_all_cpus(paths: &[PathBuf], parse: impl Parse) -> impl Iterator<Item = ParsedLines> {
    let threads = available_parallelism().map_or(1, usize::from);
    let (order, blocks) = sync_channel::<Receiver<ParsedLines>>(2 * threads);
    let (work, texts) = sync_channel::<(UnparsedLines, SyncSender<ParsedLines>)>(threads);
    let (texts, parse) = (Arc::new(Mutex::new(texts)), Arc::new(parse));
    for _ in 0..threads {
        let (texts, parse) = (Arc::clone(&texts), Arc::clone(&parse));
        spawn(move || {
            let next = || texts.lock().ok()?.recv().ok();
            while let Some((text, done)) = next() {
                // Nobody waits for it after an error in an earlier block.
                let _ = done.send(text.parsed(&*parse));
            }
        });
    }
    let paths = paths.to_vec();
    spawn(move || {
        cut(&paths, &mut |piece| {
            let (done, block) = sync_channel(1);
            order.send(block).ok()?;
            match piece {
                FilePiece::Unparsed(text) => work.send((text, done)).ok(),
                FilePiece::Parsed(block) => done.send(block).ok(),
            }
        })
    });
    let mut is_empty = true;
    let panicked = "a thread that parses records has panicked";
    blocks.into_iter().map(move |block| block.recv().expect(panicked).or_empty(&mut is_empty))
}

/// Reads files as [`on_all_cpus`], on this one: only one block is held at a time.
///
/// # Errors
/// The first of `take`.
pub fn each<E>(
    paths: &[PathBuf],
    parse: impl Parse,
    mut take: impl FnMut(ParsedLines) -> Result<(), E>,
) -> Result<(), E> {
    let (mut is_empty, mut ended) = (true, Ok(()));
    cut(paths, &mut |piece| {
        let block = match piece {
            FilePiece::Unparsed(text) => text.parsed(&parse),
            FilePiece::Parsed(block) => block,
        };
        ended = take(block.or_empty(&mut is_empty));
        ended.is_ok().then_some(())
    });
    ended
}

impl UnparsedLines {
    fn parsed(self, parse: &impl Parse) -> ParsedLines {
        let lines = lines(&self.bytes, &self.path, self.first, parse);
        ParsedLines { path: self.path, lines, is_last: false }
    }
}

impl ParsedLines {
    /// With an error where it is the last of a file without lines; `is_empty` is whether the file has had none so far.
    fn or_empty(mut self, is_empty: &mut bool) -> Self {
        *is_empty &= self.lines.is_empty();
        if self.is_last && std::mem::replace(is_empty, true) {
            self.lines.push(Err(Error::NoRecord { path: self.path.to_path_buf() }));
        }
        self
    }
}

/// The lines of a text, of which the first has this number.
pub fn lines(text: &[u8], path: &Path, first: usize, parse: &impl Parse) -> Vec<ParsedLine> {
    let mut lines = Vec::new();
    for (number, line) in (first..).zip(text.split_inclusive(|byte| *byte == b'\n')) {
        let path_of = || path.to_owned();
        if line.len() as u64 > LONGEST_LINE {
            lines.push(Err(Error::TooLong { path: path_of(), line: number }));
        } else if !line.trim_ascii().is_empty() {
            parse(line, path, number, &mut lines);
        }
        if let (Some(last @ Err(Error::BadRecord { .. })), false) = (lines.last_mut(), line.ends_with(b"\n")) {
            *last = Err(Error::Unfinished { path: path_of(), line: number });
        }
    }
    lines
}

/// What files are cut into.
enum FilePiece {
    Unparsed(UnparsedLines),
    /// What needs no parsing: an error, the end of a file.
    Parsed(ParsedLines),
}

/// Cuts files into pieces. Ends with `None` where `send` does: nobody waits for more.
fn cut(paths: &[PathBuf], send: &mut impl FnMut(FilePiece) -> Option<()>) -> Option<()> {
    for path in paths {
        let name: Arc<Path> = if path == Path::new("-") { Path::new("(standard input)") } else { path }.into();
        let error = match open(path).map(|input| cut_one(input, &name, send)) {
            Ok(Ok(sent)) => {
                sent?;
                None
            }
            Ok(Err(source)) => Some(Error::Read { path: name.to_path_buf(), source }),
            Err(error) => Some(error),
        };
        send(FilePiece::Parsed(ParsedLines {
            path: name,
            lines: error.map(Err).into_iter().collect(),
            is_last: true,
        }))?;
    }
    Some(())
}

fn cut_one(
    mut input: impl BufRead,
    path: &Arc<Path>,
    send: &mut impl FnMut(FilePiece) -> Option<()>,
) -> io::Result<Option<()>> {
    let (mut first, mut bytes, mut is_too_long) = (1, Vec::new(), false);
    loop {
        let read = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        let is_end = read.is_empty();
        let is_newline = |byte: &u8| *byte == b'\n';
        let end = match is_too_long {
            true => read.iter().position(is_newline),
            false => read.iter().rposition(is_newline),
        };
        let taken = end.map_or(read.len(), |at| at + 1);
        if !is_too_long {
            bytes.extend(&read[..taken]);
        }
        input.consume(taken);
        let piece = if is_too_long && (end.is_some() || is_end) {
            (first, is_too_long) = (first + 1, false);
            None
        } else if end.is_some() || (is_end && !bytes.is_empty()) {
            let text = UnparsedLines { path: Arc::clone(path), first, bytes: std::mem::take(&mut bytes) };
            first += text.bytes.iter().filter(|byte| is_newline(byte)).count();
            Some(FilePiece::Unparsed(text))
        } else if bytes.len() as u64 > LONGEST_LINE {
            (bytes, is_too_long) = (Vec::new(), true);
            let lines = vec![Err(Error::TooLong { path: path.to_path_buf(), line: first })];
            Some(FilePiece::Parsed(ParsedLines { path: Arc::clone(path), lines, is_last: false }))
        } else {
            None
        };
        if piece.is_some_and(|piece| send(piece).is_none()) {
            return Ok(None);
        }
        if is_end {
            return Ok(Some(()));
        }
    }
}
