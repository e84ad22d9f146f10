//! One conversion by several threads.

use std::thread;

use crate::Error;
use crate::conversion::{Conversion, to_line};
use crate::kernel::Real;

/// Output of one thread, at least, in bytes.
const LEAST: usize = 128 << 10;

/// Converts `input` into the start of `output` by up to `threads` threads.
pub(crate) fn convert<T: Real>(
    conversion: &Conversion,
    input: &[u16],
    output: &mut [T],
    threads: usize,
) -> Result<usize, Error> {
    let (mut words, mut output) = conversion.fit(input, output)?;
    let len = output.len();
    let is_streaming = conversion.is_streaming(len, size_of::<T>());
    let threads = if threads == 0 { thread::available_parallelism().map_or(1, usize::from) } else { threads };
    let most = len / (LEAST / size_of::<T>());
    let mut pieces = threads.min(most).max(1);
    let group = conversion.layout().group;
    thread::scope(|scope| {
        while pieces > 1 {
            // No two threads write to the same cache line.
            let length = to_line(output, output.len() / pieces);
            let (piece, rest) = output.split_at_mut(length);
            let (piece_words, rest_words) = words.split_at(length * group);
            scope.spawn(move || conversion.groups(piece_words, piece, is_streaming));
            (output, words) = (rest, rest_words);
            pieces -= 1;
        }
        conversion.groups(words, output, is_streaming);
    });
    Ok(len)
}
