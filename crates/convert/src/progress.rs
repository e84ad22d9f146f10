//! Conversion of data that comes in chunks.

use crate::Error;
use crate::conversion::Conversion;
use crate::kernel::Real;

/// A conversion of data that comes in chunks of any length. All calls together give the same numbers as one call with
/// all the data. Made by [`Conversion::stream`].
///
/// A group of a decimation may lie across the border of two chunks; its number comes with the
/// chunk that ends it. [`Store::Auto`](crate::Store::Auto) sees only the output of one call: a caller who fills a large
/// buffer by many calls, and does not read it soon, sets `Store::Streaming`.
#[derive(Debug, Clone)]
pub struct Progress {
    conversion: Conversion,
    /// Words that are still left out before the first group.
    skip: usize,
    /// Words of the current group that have passed.
    phase: usize,
    /// The first word of the current group, if it has passed.
    first: u16,
}

impl Progress {
    pub(crate) fn new(conversion: Conversion) -> Self {
        let skip = conversion.decimation().offset;
        Progress { conversion, skip, phase: 0, first: 0 }
    }

    /// How many numbers the next chunk gives if it has `chunk_len` words.
    pub fn output_len(&self, chunk_len: usize) -> usize {
        let len = chunk_len.saturating_sub(self.skip);
        let group = self.conversion.decimation().factor;
        // Without a sum, which could overflow.
        match len.checked_sub(group - self.phase) {
            Some(rest) => 1 + rest / group,
            None => 0,
        }
    }

    /// Converts the next chunk into the start of `output` and returns how many numbers it wrote.
    ///
    /// # Errors
    /// [`Error::Output`] where the output is too short; the chunk then counts as not seen.
    pub fn to_f32(&mut self, chunk: &[u16], output: &mut [f32]) -> Result<usize, Error> {
        self.convert(chunk, output)
    }

    /// As [`to_f32`](Self::to_f32), to `f64`.
    ///
    /// # Errors
    /// As [`to_f32`](Self::to_f32).
    pub fn to_f64(&mut self, chunk: &[u16], output: &mut [f64]) -> Result<usize, Error> {
        self.convert(chunk, output)
    }

    fn convert<T: Real>(&mut self, chunk: &[u16], output: &mut [T]) -> Result<usize, Error> {
        let (need, have) = (self.output_len(chunk.len()), output.len());
        let mut output = output.get_mut(..need).ok_or(Error::Output { need, have })?;
        let skipped = self.skip.min(chunk.len());
        self.skip -= skipped;
        let mut chunk = &chunk[skipped..];
        let group = self.conversion.decimation().factor;
        if self.phase > 0 {
            let (head, rest) = chunk.split_at(chunk.len().min(group - self.phase));
            self.pass(head);
            chunk = rest;
            if self.phase == group {
                self.phase = 0;
                let (number, rest) = output.split_first_mut().expect("output_len counts the group that ends here");
                self.conversion.one(self.first, number);
                output = rest;
            }
        }
        let whole = output.len() * group;
        let is_streaming = self.conversion.is_streaming(need, size_of::<T>());
        self.conversion.groups(chunk, output, is_streaming);
        self.pass(&chunk[whole..]);
        Ok(need)
    }

    /// Lets words of the current group pass, at most to its end.
    fn pass(&mut self, words: &[u16]) {
        if let (0, Some(word)) = (self.phase, words.first()) {
            self.first = *word;
        }
        self.phase += words.len();
    }
}
