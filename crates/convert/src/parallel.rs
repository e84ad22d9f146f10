//! One conversion by several threads.

use std::thread;

use crate::Error;
use crate::conversion::{Conversion, to_line};
use crate::kernel::Real;

/// Output of one thread, at least, in bytes.
const LEAST: usize = 128 << 10;

/// How many threads write `len` numbers of `size` bytes if up to `threads` are asked for (0: as many as the process may
/// run at the same time).
pub(crate) fn threads(len: usize, size: usize, threads: usize) -> usize {
    let threads = if threads == 0 { thread::available_parallelism().map_or(1, usize::from) } else { threads };
    threads.min(len / (LEAST / size)).max(1)
}

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
    let of = self::threads(len, size_of::<T>(), threads);
    let group = conversion.decimation().factor;
    thread::scope(|scope| {
        // The last piece is the caller's.
        for thread in 1..of {
            // No two threads write to the same cache line.
            let length = to_line(output, output.len() / (of - thread + 1));
            let (piece, rest) = output.split_at_mut(length);
            let (piece_words, rest_words) = words.split_at(length * group);
            let work = move || conversion.groups(piece_words, piece, is_streaming);
            let started = thread::Builder::new().spawn_scoped(scope, work);
            started.map_err(|error| Error::Thread { thread, of, why: error.to_string() })?;
            (output, words) = (rest, rest_words);
        }
        conversion.groups(words, output, is_streaming);
        Ok(len)
    })
}
