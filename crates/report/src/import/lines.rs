//! A log of numbers, line by line, on all CPUs: the file is cut at line ends, each part read in blocks.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::thread;

use super::number;
use super::tally::{MAX_NS, Tally};

/// A block fits the second-level cache; a line may be no longer.
const BLOCK: usize = 1 << 20;
/// A part is not made smaller than this: a thread costs more than it saves.
const LEAST_PART: u64 = 4 << 20;
/// How many malformed lines are named.
pub const NAMED: usize = 5;

/// What one line of numbers means.
pub struct LogLine<const V: usize> {
    pub at_ns: u64,
    pub cpu: u64,
    pub target: u64,
    /// The largest target that there can be.
    pub last_target: u32,
    pub values_ns: [u64; V],
}

/// What a part of a log held.
#[derive(Default)]
pub struct Part<const V: usize> {
    pub tally: Tally<V>,
    pub lines: u64,
    /// Lines that became samples.
    pub samples: u64,
    /// Headers, status and comments.
    pub words: u64,
    /// Lines of numbers that are no sample.
    pub malformed: u64,
    /// The first of those: line number within the part, and what is wrong.
    pub named: Vec<(u64, String)>,
    /// The last line, if it has no line end.
    pub unfinished: Option<LogLine<V>>,
}

/// Reads a regular file on several threads, from `start` on. `F` numbers make a line; `meaning` says which is which.
pub fn read_file<const F: usize, const V: usize>(
    path: &Path,
    start: u64,
    meaning: fn([u64; F]) -> LogLine<V>,
) -> io::Result<Vec<Part<V>>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let threads = thread::available_parallelism().map_or(1, |n| n.get() as u64).min(length / LEAST_PART + 1).min(64);
    let mut cuts = vec![start];
    for part in 1..threads {
        let cut = line_start(&mut file, length / threads * part, length)?;
        if cut > *cuts.last().unwrap_or(&0) {
            cuts.push(cut);
        }
    }
    cuts.push(length);
    thread::scope(|scope| {
        let parts: Vec<_> = cuts
            .windows(2)
            .enumerate()
            .map(|(number, cut)| {
                let (from, to, is_last) = (cut[0], cut[1], number + 2 == cuts.len());
                scope.spawn(move || {
                    let mut file = File::open(path)?;
                    file.seek(SeekFrom::Start(from))?;
                    // The last part takes what was appended meanwhile, too.
                    read(file.take(if is_last { u64::MAX } else { to - from }), meaning)
                })
            })
            .collect();
        parts.into_iter().map(|part| part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// Where the first line starts that begins after `from`.
fn line_start(file: &mut File, from: u64, length: u64) -> io::Result<u64> {
    file.seek(SeekFrom::Start(from))?;
    let mut block = [0; 4096];
    let mut place = from;
    while place < length {
        let n = file.read(&mut block)?;
        if n == 0 {
            break;
        }
        match block[..n].iter().position(|b| *b == b'\n') {
            Some(at) => return Ok(place + at as u64 + 1),
            None => place += n as u64,
        }
    }
    Ok(length)
}

/// Reads lines from `input` to its end.
pub fn read<const F: usize, const V: usize>(
    mut input: impl Read,
    meaning: fn([u64; F]) -> LogLine<V>,
) -> io::Result<Part<V>> {
    let mut part = Part::default();
    let mut block = vec![0; BLOCK];
    let mut kept = 0;
    let mut is_in_long_line = false;
    loop {
        let n = match input.read(&mut block[kept..]) {
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        let mut end = kept + n;
        if n == 0 {
            if kept > 0 && !is_in_long_line {
                // The last line lacks its newline.
                block.truncate(kept);
                block.push(b'\n');
                match fields::<F>(&block, 0) {
                    Some((fields, _)) => {
                        part.lines += 1;
                        part.unfinished = Some(meaning(fields));
                    }
                    None => part.take(&block, meaning),
                }
            }
            return Ok(part);
        }
        if is_in_long_line {
            let Some(at) = block[..end].iter().position(|b| *b == b'\n') else {
                kept = 0;
                continue;
            };
            block.copy_within(at + 1..end, 0);
            end -= at + 1;
            is_in_long_line = false;
        }
        let whole = block[..end].iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        part.take(&block[..whole], meaning);
        if part.tally.is_full() {
            // The log is refused: the rest of it need not be read.
            return Ok(part);
        }
        block.copy_within(whole..end, 0);
        kept = end - whole;
        if kept == BLOCK {
            part.lines += 1;
            part.malform(format!("longer than {BLOCK} bytes"));
            (kept, is_in_long_line) = (0, true);
        }
    }
}

impl<const V: usize> Part<V> {
    /// Takes whole lines.
    fn take<const F: usize>(&mut self, text: &[u8], meaning: fn([u64; F]) -> LogLine<V>) {
        let mut at = 0;
        while at < text.len() {
            self.lines += 1;
            if let Some((fields, next)) = fields::<F>(text, at) {
                self.sample(meaning(fields));
                at = next;
            } else {
                let end = at + text[at..].iter().position(|b| *b == b'\n').unwrap_or(text.len() - at);
                self.other(&text[at..end], meaning);
                at = end + 1;
            }
        }
    }

    #[inline(always)]
    fn sample(&mut self, row: LogLine<V>) {
        let is_cpu = row.cpu <= u64::from(pciescope_core::cpulist::MAX_CPU);
        if is_cpu && row.target <= u64::from(row.last_target) && row.values_ns.iter().all(|v| *v <= MAX_NS) {
            self.samples += 1;
            self.tally.add(row.at_ns, row.cpu as u32, row.target as u32, row.values_ns);
        } else {
            self.malform(match row.values_ns.iter().find(|v| **v > MAX_NS) {
                Some(v) => format!("{v} ns is longer than the hour a histogram holds"),
                None if !is_cpu => format!("{} is no CPU number", row.cpu),
                None if row.last_target == u32::MAX => format!("{} is no interrupt number", row.target),
                None => format!("{} is no BAR number from 0 to {}", row.target, row.last_target),
            });
        }
    }

    /// Takes the last line though it has no line end, if the pair that it names is known.
    pub fn finish(&mut self, is_known: bool) {
        match self.unfinished.take() {
            Some(row) if is_known => self.sample(row),
            Some(row) => {
                let (cpu, target) = (row.cpu, row.target);
                self.malform(format!(
                    "the last line has no end, and no other is of CPU {cpu} and {target}: it may be cut"
                ));
            }
            None => {}
        }
    }

    /// A line that is not all numbers: words are part of the format, numbers that do not fit are not.
    #[cold]
    fn other<const F: usize>(&mut self, line: &[u8], meaning: fn([u64; F]) -> LogLine<V>) {
        if line.contains(&0x1b) {
            let plain = super::plain(line) + "\n";
            return match fields::<F>(plain.as_bytes(), 0) {
                Some((fields, _)) => self.sample(meaning(fields)),
                None => self.other(&plain.as_bytes()[..plain.len() - 1], meaning),
            };
        }
        let line = line.trim_ascii();
        if !line.first().is_some_and(|b| b.is_ascii_digit() || *b == b'-' || *b == b'+') {
            self.words += 1;
            return;
        }
        let shown: String = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
        self.malform(format!("{:?} is not {F} whole numbers", crate::text::clean(&shown)));
    }

    #[cold]
    fn malform(&mut self, why: String) {
        self.malformed += 1;
        if self.named.len() < NAMED {
            self.named.push((self.lines, why));
        }
    }
}

/// `F` numbers between blanks up to the end of the line, and where the next line starts.
#[inline(always)]
fn fields<const F: usize>(text: &[u8], mut at: usize) -> Option<([u64; F], usize)> {
    let mut fields = [0; F];
    for field in &mut fields {
        while is_blank(*text.get(at)?) {
            at += 1;
        }
        (*field, at) = number::parse(text, at)?;
        let after = *text.get(at)?;
        if !is_blank(after) && after != b'\n' {
            return None;
        }
    }
    while is_blank(*text.get(at)?) {
        at += 1;
    }
    (text[at] == b'\n').then_some((fields, at + 1))
}

#[inline(always)]
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r')
}
