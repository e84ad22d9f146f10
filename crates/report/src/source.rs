//! Opens text from outside: packed (gzip, Zstandard) or not, UTF-8 or UTF-16, with a byte order mark or without.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

/// So many bytes are read at a time.
const BLOCK: usize = 256 << 10;
/// What a file of gzip begins with.
const GZIP: &[u8] = b"\x1f\x8b";
/// What a file of Zstandard begins with.
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
/// The byte order mark of UTF-8, which some editors write.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// An opened text.
pub struct OpenedText {
    /// The text as UTF-8, without its byte order mark.
    pub input: Box<dyn BufRead + Send>,
    /// Where the text begins in the file; `None` if the file is packed or is not UTF-8.
    pub start: Option<u64>,
}

/// Opens a file; `-` is the standard input.
///
/// # Errors
/// Those of opening and of reading the beginning.
pub fn open(path: &Path) -> io::Result<OpenedText> {
    match path.to_str() {
        Some("-") => unpack(io::stdin()),
        _ => unpack(File::open(path)?),
    }
}

/// Unpacks what is packed and decodes what is not UTF-8.
///
/// # Errors
/// Those of reading the beginning.
pub fn unpack(input: impl Read + Send + 'static) -> io::Result<OpenedText> {
    let (head, input) = peek(BufReader::with_capacity(BLOCK, input))?;
    let (head, input, is_packed) = if head.starts_with(GZIP) {
        let (head, input) = peek(BufReader::with_capacity(BLOCK, MultiGzDecoder::new(input)))?;
        (head, input, true)
    } else if head.starts_with(ZSTD) {
        let input = Zstd { rest: Some(input), frame: None };
        let (head, input) = peek(BufReader::with_capacity(BLOCK, input))?;
        (head, input, true)
    } else {
        (head, input, false)
    };
    // A text has no byte 0: an ASCII character with one beside it is of UTF-16, also without a mark.
    let (mark, is_little) = match head[..] {
        [0xff, 0xfe, ..] => (2, Some(true)),
        [0xfe, 0xff, ..] => (2, Some(false)),
        [1..=0x7f, 0, _, 0] => (0, Some(true)),
        [0, 1..=0x7f, 0, _] => (0, Some(false)),
        _ if head.starts_with(BOM) => (BOM.len(), None),
        _ => (0, None),
    };
    let mut input = input;
    io::copy(&mut (&mut input).take(mark as u64), &mut io::sink())?;
    Ok(match is_little {
        Some(is_little) => {
            let decoder = Utf16 { input, is_little, text: Cursor::default() };
            OpenedText { input: Box::new(BufReader::with_capacity(BLOCK, decoder)), start: None }
        }
        None => OpenedText { input, start: (!is_packed).then_some(mark as u64) },
    })
}

/// The first four bytes, and all of the input.
fn peek(mut input: impl BufRead + Send + 'static) -> io::Result<(Vec<u8>, Box<dyn BufRead + Send>)> {
    let mut head = Vec::new();
    (&mut input).take(4).read_to_end(&mut head)?;
    Ok((head.clone(), Box::new(Cursor::new(head).chain(input))))
}

type Input = Box<dyn BufRead + Send>;

/// One frame of Zstandard after the other.
struct Zstd {
    rest: Option<Input>,
    frame: Option<StreamingDecoder<Input, FrameDecoder>>,
}

impl Read for Zstd {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                let read = frame.read(into)?;
                if read > 0 || into.is_empty() {
                    return Ok(read);
                }
            }
            let ended = self.frame.take().map(StreamingDecoder::into_inner);
            let Some(mut rest) = ended.or_else(|| self.rest.take()) else { return Ok(0) };
            if rest.fill_buf()?.is_empty() {
                return Ok(0);
            }
            self.frame = Some(StreamingDecoder::new(rest).map_err(io::Error::other)?);
        }
    }
}

/// UTF-16 as UTF-8.
struct Utf16 {
    input: Input,
    is_little: bool,
    text: Cursor<Vec<u8>>,
}

impl Read for Utf16 {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.text.read(into)?;
        if read > 0 || into.is_empty() {
            return Ok(read);
        }
        let mut bytes = Vec::new();
        (&mut self.input).take(BLOCK as u64).read_to_end(&mut bytes)?;
        let unit = |two: &[u8]| {
            let two = [two[0], two.get(1).copied().unwrap_or(0)];
            if self.is_little { u16::from_le_bytes(two) } else { u16::from_be_bytes(two) }
        };
        let is_high = |unit: u16| (0xd800..0xdc00).contains(&unit);
        if bytes.len() == BLOCK && is_high(unit(&bytes[BLOCK - 2..])) {
            // The other half of the character.
            (&mut self.input).take(2).read_to_end(&mut bytes)?;
        }
        let text: String = char::decode_utf16(bytes.chunks(2).map(unit)).map(|one| one.unwrap_or('\u{fffd}')).collect();
        self.text = Cursor::new(text.into_bytes());
        self.text.read(into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn read(bytes: Vec<u8>) -> (String, Option<u64>) {
        let mut source = unpack(Cursor::new(bytes)).unwrap();
        let mut text = String::new();
        source.input.read_to_string(&mut text).unwrap();
        (text, source.start)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    #[test]
    fn every_form_is_the_same_text() {
        // Characters of one to four bytes, and over the border of a block in UTF-16.
        for text in ["1 2\n".to_owned(), String::new(), "\u{b5}s \u{20ac} \u{1f600}\n".repeat(40_000)] {
            let with = |mark: bool, bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
                let mark = mark.then_some(0xfeff);
                mark.into_iter().chain(text.encode_utf16()).flat_map(bytes).collect()
            };
            let marked = [BOM, text.as_bytes()].concat();
            let utf16 = [with(true, u16::to_le_bytes), with(true, u16::to_be_bytes)];
            let mut forms = vec![text.clone().into_bytes(), marked, utf16[0].clone(), utf16[1].clone()];
            if text.is_ascii() {
                forms.extend([with(false, u16::to_le_bytes), with(false, u16::to_be_bytes)]);
            }
            let two = |pack: fn(&[u8]) -> Vec<u8>| {
                let half = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
                [pack(&text.as_bytes()[..half]), pack(&text.as_bytes()[half..])].concat()
            };
            let starts: Vec<Option<u64>> = forms.iter().map(|form| read(form.clone()).1).collect();
            assert_eq!(starts[..4], [Some(0), Some(3), None, None]);
            let packed: Vec<Vec<u8>> = forms.iter().flat_map(|form| [gzip(form), zstd(form)]).collect();
            for (number, form) in forms.into_iter().chain(packed).chain([two(gzip), two(zstd)]).enumerate() {
                assert!(read(form).0 == text, "form {number} of {} bytes", text.len());
            }
        }
    }

    #[test]
    fn what_is_cut_is_an_error() {
        let text = "some text that repeats ".repeat(100);
        for packed in [gzip(text.as_bytes()), zstd(text.as_bytes())] {
            let cut = packed[..packed.len() - 9].to_vec();
            let ended = unpack(Cursor::new(cut)).and_then(|mut source| source.input.read_to_end(&mut Vec::new()));
            assert!(ended.is_err());
        }
    }
}
