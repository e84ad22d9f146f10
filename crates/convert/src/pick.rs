//! The words that decimation takes.

use crate::{Isa, kernel};

/// Takes every `stride`th word, the first one first, until the output is full. The instruction set is here.
pub(crate) fn every(isa: Isa, words: &[u16], stride: usize, output: &mut [u16]) {
    let done = kernel::every(isa, words, stride, output);
    let rest = words.get(done * stride..).unwrap_or_default();
    for (word, taken) in rest.iter().step_by(stride).zip(&mut output[done..]) {
        *taken = *word;
    }
}
