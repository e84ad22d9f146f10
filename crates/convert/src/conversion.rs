//! A conversion: what is asked for, and the way to carry it out.

use crate::kernel::Real;
use crate::operation::{Decimation, Operation, Sample};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::store::Store;
use crate::{Error, Isa, kernel, parallel, pick};

/// Words that are picked out at a time, on the stack: a fraction of any first-level cache, and so few that memory is
/// read and written by turns that overlap.
const BLOCK: usize = 1024;

/// A cache line, in bytes.
const LINE: usize = 64;

/// The largest length, at most `most`, with which a start of `output` ends at the border of a cache line, so that no line
/// is written in two turns; all of it if that is not more.
pub(crate) fn to_line<T>(output: &[T], most: usize) -> usize {
    if output.len() <= most {
        return output.len();
    }
    let end = output.as_ptr() as usize + most * size_of::<T>();
    match most.saturating_sub(end % LINE / size_of::<T>()) {
        0 => most,
        len => len,
    }
}

/// A conversion of 16-bit samples to floating point. Cheap to copy; making one allocates nothing but the text of an
/// error.
#[derive(Debug, Clone, Copy)]
pub struct Conversion {
    plan: Plan,
    decimation: Decimation,
    isa: Isa,
    store: Store,
}

impl Conversion {
    /// A conversion of every sample, with the best instruction set ([`Isa::best`]) and [`Store::Auto`].
    ///
    /// # Errors
    /// [`Error::Format`] for a Qm.n of no or more than 16 bits, [`Error::NotFinite`] for a factor or offset that is not
    /// finite, and what [`Isa::best`] refuses.
    pub fn new(sample: Sample, operation: Operation) -> Result<Self, Error> {
        operation.check()?;
        let isa = Isa::best()?;
        Ok(Conversion {
            plan: Plan::new(sample, operation).settle(isa),
            decimation: Decimation::default(),
            isa,
            store: Store::default(),
        })
    }

    /// Takes only some samples.
    ///
    /// # Errors
    /// [`Error::Factor`] for a factor of 0.
    pub fn with_decimation(self, decimation: Decimation) -> Result<Self, Error> {
        match decimation.factor {
            0 => Err(Error::Factor),
            _ => Ok(Conversion { decimation, ..self }),
        }
    }

    /// Uses this instruction set.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where the processor does not have it.
    pub fn with_isa(self, isa: Isa) -> Result<Self, Error> {
        Ok(Conversion { isa: isa.check()?, ..self })
    }

    /// Writes the output this way.
    pub fn with_store(self, store: Store) -> Self {
        Conversion { store, ..self }
    }

    /// The instruction set that is used.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// How many numbers `input_len` words give.
    pub fn output_len(&self, input_len: usize) -> usize {
        self.decimation.groups(input_len)
    }

    /// Whether a call that gives `len` numbers of `size` bytes writes past the cache.
    pub(crate) fn is_streaming(&self, len: usize, size: usize) -> bool {
        self.store.is_streaming(len.saturating_mul(size))
    }

    /// Converts `input` into the start of `output` and returns how many numbers it wrote: `output_len(input.len())`.
    /// Signed samples are given as the same bits.
    ///
    /// # Errors
    /// [`Error::Output`] where the output is shorter than that; nothing is written then.
    pub fn to_f32(&self, input: &[u16], output: &mut [f32]) -> Result<usize, Error> {
        self.convert(input, output)
    }

    /// As [`to_f32`](Self::to_f32), to `f64`.
    ///
    /// # Errors
    /// As [`to_f32`](Self::to_f32).
    pub fn to_f64(&self, input: &[u16], output: &mut [f64]) -> Result<usize, Error> {
        self.convert(input, output)
    }

    /// As [`to_f32`](Self::to_f32), by up to `threads` threads, including the caller's; 0 means as many as the process
    /// may run at the same time. Small inputs use fewer ([`threads`](Self::threads)): to start a thread takes as long as to
    /// convert some 100 kB.
    ///
    /// # Errors
    /// As [`to_f32`](Self::to_f32); [`Error::Thread`] where a thread cannot be created.
    pub fn to_f32_parallel(&self, input: &[u16], output: &mut [f32], threads: usize) -> Result<usize, Error> {
        parallel::convert(self, input, output, threads)
    }

    /// As [`to_f32_parallel`](Self::to_f32_parallel), to `f64`.
    ///
    /// # Errors
    /// As [`to_f32_parallel`](Self::to_f32_parallel).
    pub fn to_f64_parallel(&self, input: &[u16], output: &mut [f64], threads: usize) -> Result<usize, Error> {
        parallel::convert(self, input, output, threads)
    }

    /// How many threads a parallel conversion of `input_len` words to numbers of `size` bytes uses if it may use `threads`.
    pub fn threads(&self, input_len: usize, size: usize, threads: usize) -> usize {
        parallel::threads(self.output_len(input_len), size, threads)
    }

    /// Starts a conversion of data that comes in chunks.
    pub fn stream(&self) -> Progress {
        Progress::new(*self)
    }

    /// Which words are taken.
    pub(crate) fn decimation(&self) -> Decimation {
        self.decimation
    }

    fn convert<T: Real>(&self, input: &[u16], output: &mut [T]) -> Result<usize, Error> {
        let (words, output) = self.fit(input, output)?;
        self.groups(words, output, self.is_streaming(output.len(), size_of::<T>()));
        Ok(output.len())
    }

    /// The words from the first group on, and the part of the output that they fill.
    pub(crate) fn fit<'a, T>(&self, input: &'a [u16], output: &'a mut [T]) -> Result<(&'a [u16], &'a mut [T]), Error> {
        let (need, have) = (self.output_len(input.len()), output.len());
        let output = output.get_mut(..need).ok_or(Error::Output { need, have })?;
        Ok((input.get(self.decimation.offset..).unwrap_or_default(), output))
    }

    /// Converts the first word of each group, from the first word of `words` on, until the output is full.
    pub(crate) fn groups<T: Real>(&self, words: &[u16], output: &mut [T], is_streaming: bool) {
        if self.decimation.factor == 1 {
            T::convert(self.isa, &self.plan, is_streaming, &words[..output.len()], output);
        } else {
            self.taken(words, output, is_streaming);
        }
        if is_streaming {
            kernel::fence();
        }
    }

    /// As [`groups`](Self::groups), of more than one word each.
    fn taken<T: Real>(&self, words: &[u16], output: &mut [T], is_streaming: bool) {
        let group = self.decimation.factor;
        let (mut block, mut done) = ([0u16; BLOCK], 0);
        while done < output.len() {
            let output = &mut output[done..];
            let len = to_line(output, BLOCK);
            pick::every(self.isa, &words[done * group..], group, &mut block[..len]);
            if is_streaming {
                // While these numbers go out, the next words come in. Measured: a quarter more speed.
                let next = words.get((done + len) * group..).unwrap_or_default();
                kernel::prefetch(&next[..next.len().min(BLOCK.saturating_mul(group))], group);
            }
            T::convert(self.isa, &self.plan, is_streaming, &block[..len], &mut output[..len]);
            done += len;
        }
    }

    /// Converts one word.
    pub(crate) fn one<T: Real>(&self, word: u16, output: &mut T) {
        T::convert(Isa::Scalar, &self.plan, false, &[word], std::slice::from_mut(output));
    }
}
