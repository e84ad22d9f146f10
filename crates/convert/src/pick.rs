//! Conversion of words that are not consecutive: decimation and channels.

use crate::{Error, Isa, kernel};

/// Copies one channel out of interleaved samples: `output[i] = input[i * channels + channel]` for each whole frame, and
/// returns the number of frames.
///
/// # Errors
/// [`Error::Channel`] where the channel is not among the channels, [`Error::Output`] where the output is too short,
/// and what [`Isa::best`] refuses.
pub fn deinterleave(input: &[u16], channels: usize, channel: usize, output: &mut [u16]) -> Result<usize, Error> {
    if channel >= channels {
        return Err(Error::Channel { channels, channel });
    }
    let need = input.len() / channels;
    let have = output.len();
    let output = output.get_mut(..need).ok_or(Error::Output { need, have })?;
    every(Isa::best()?, input.get(channel..).unwrap_or_default(), channels, output);
    Ok(need)
}

/// Takes every `stride`th word, the first one first, until the output is full. The instruction set is here.
pub(crate) fn every(isa: Isa, words: &[u16], stride: usize, output: &mut [u16]) {
    let done = kernel::every(isa, words, stride, output);
    let rest = words.get(done * stride..).unwrap_or_default();
    for (word, taken) in rest.iter().step_by(stride).zip(&mut output[done..]) {
        *taken = *word;
    }
}
