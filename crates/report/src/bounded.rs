//! Reads input from outside with a limit for each line and each text, so that a wrong file cannot use all memory.

use std::io::{self, BufRead, Read};

/// The longest line of a record file, in bytes: a hundred times the longest record that pciescope writes.
pub const LONGEST_LINE: u64 = 64 << 20;
/// The longest text that is read whole, in bytes.
pub const LONGEST_TEXT: u64 = 256 << 20;

/// Appends a line with its end to `line`; gives its length, 0 at the end of the input.
///
/// # Errors
/// Those of the input, and [`io::ErrorKind::InvalidData`] for a line of more than [`LONGEST_LINE`] bytes.
pub fn line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    let read = input.take(LONGEST_LINE).read_until(b'\n', line)?;
    if read as u64 == LONGEST_LINE && line.last() != Some(&b'\n') {
        return Err(too_long(format!("a line is longer than {} MiB", LONGEST_LINE >> 20)));
    }
    Ok(read)
}

/// All of a text.
///
/// # Errors
/// Those of the input, and [`io::ErrorKind::InvalidData`] for more than [`LONGEST_TEXT`] bytes.
pub fn text(input: impl Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    if input.take(LONGEST_TEXT + 1).read_to_end(&mut text)? as u64 > LONGEST_TEXT {
        return Err(too_long(format!("the text is longer than {} MiB", LONGEST_TEXT >> 20)));
    }
    Ok(text)
}

fn too_long(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
