//! Record files in blocks of whole lines: one thread reads them, all CPUs parse them, and they come in the order of the files.

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

/// Reads files one after the other. The last block of a file without any line is [`Error::NoRecord`].
pub fn read(paths: &[PathBuf], parse: impl Parse) -> impl Iterator<Item = ParsedLines> {
    let threads = available_parallelism().map_or(1, usize::from);
    let (order, blocks) = sync_channel::<Receiver<ParsedLines>>(2 * threads);
    let (work, texts) = sync_channel::<(UnparsedLines, SyncSender<ParsedLines>)>(threads);
    let (texts, parse) = (Arc::new(Mutex::new(texts)), Arc::new(parse));
    for _ in 0..threads {
        let (texts, parse) = (Arc::clone(&texts), Arc::clone(&parse));
        spawn(move || {
            let next = || texts.lock().ok()?.recv().ok();
            while let Some((UnparsedLines { path, first, bytes }, done)) = next() {
                let lines = lines(&bytes, &path, first, &*parse);
                // Nobody waits for it after an error in an earlier block.
                let _ = done.send(ParsedLines { path, lines, is_last: false });
            }
        });
    }
    let paths = paths.to_vec();
    let cutter = Cutter { order, work };
    spawn(move || paths.iter().try_for_each(|path| cutter.read(path)));
    let mut is_empty = true;
    blocks.into_iter().map(move |block| {
        let mut block = block.recv().expect("a thread that parses records has panicked");
        is_empty &= block.lines.is_empty();
        if block.is_last && std::mem::replace(&mut is_empty, true) {
            block.lines.push(Err(Error::NoRecord { path: block.path.to_path_buf() }));
        }
        block
    })
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

/// Cuts files into texts. `None` comes of what nobody waits for any more.
struct Cutter {
    order: SyncSender<Receiver<ParsedLines>>,
    work: SyncSender<(UnparsedLines, SyncSender<ParsedLines>)>,
}

impl Cutter {
    fn read(&self, path: &Path) -> Option<()> {
        let name: Arc<Path> = if path == Path::new("-") { Path::new("(standard input)") } else { path }.into();
        let error = match open(path).map(|input| self.cut(input, &name)) {
            Ok(Ok(sent)) => {
                sent?;
                None
            }
            Ok(Err(source)) => Some(Error::Read { path: name.to_path_buf(), source }),
            Err(error) => Some(error),
        };
        self.say(ParsedLines { path: name, lines: error.map(Err).into_iter().collect(), is_last: true })
    }

    fn cut(&self, mut input: impl BufRead, path: &Arc<Path>) -> io::Result<Option<()>> {
        let (mut first, mut bytes, mut is_too_long) = (1, Vec::new(), false);
        loop {
            let read = match input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            let is_end = read.is_empty();
            let newline = |at: usize| at + 1;
            let end = match is_too_long {
                true => read.iter().position(|byte| *byte == b'\n').map_or(0, newline),
                false if is_end => 0,
                false => read.iter().rposition(|byte| *byte == b'\n').map_or(0, newline),
            };
            let taken = if end > 0 { end } else { read.len() };
            if !is_too_long {
                bytes.extend(&read[..taken]);
            }
            input.consume(taken);
            if is_too_long && (end > 0 || is_end) {
                (first, is_too_long) = (first + 1, false);
            } else if end > 0 || (is_end && !bytes.is_empty()) {
                let count = bytes.iter().filter(|byte| **byte == b'\n').count();
                if self
                    .parse(UnparsedLines { path: Arc::clone(path), first, bytes: std::mem::take(&mut bytes) })
                    .is_none()
                {
                    return Ok(None);
                }
                first += count;
            } else if bytes.len() as u64 > LONGEST_LINE {
                let lines = vec![Err(Error::TooLong { path: path.to_path_buf(), line: first })];
                if self.say(ParsedLines { path: Arc::clone(path), lines, is_last: false }).is_none() {
                    return Ok(None);
                }
                (bytes, is_too_long) = (Vec::new(), true);
            }
            if is_end {
                return Ok(Some(()));
            }
        }
    }

    fn parse(&self, text: UnparsedLines) -> Option<()> {
        let (done, block) = sync_channel(1);
        self.order.send(block).ok()?;
        self.work.send((text, done)).ok()
    }

    fn say(&self, block: ParsedLines) -> Option<()> {
        let (done, waiting) = sync_channel(1);
        done.send(block).ok()?;
        self.order.send(waiting).ok()
    }
}
