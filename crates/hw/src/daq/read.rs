//! read() and pread() of anything that can be read.

use std::path::Path;

use super::opened::{Opened, of_stream};
use super::pieces::pieces;
use super::{About, Daq, Options, Span, Take};
use crate::memory::Buffer;
use crate::{Error, Root};

/// Bytes of a piece unless the caller says otherwise.
const PIECE: usize = 256 << 10;

/// A source that is read by read() or pread().
#[derive(Debug)]
pub struct Reader {
    opened: Opened,
    buffer: Buffer,
}

impl Reader {
    /// With a buffer of its own for streams.
    pub fn open(root: &Root, path: &Path, options: &Options) -> Result<Self, Error> {
        let mut opened = Opened::open(root, path, options)?;
        let bytes = if options.buffer_bytes == 0 { PIECE } else { options.buffer_bytes };
        let buffer = Buffer::on_node(bytes, options.node)
            .map_err(|err| opened.failed(format!("have a buffer of {bytes} bytes"), err))?;
        opened.about.notes.push("A read and the work on its bytes follow each other; they do not overlap.".to_owned());
        Ok(Reader { opened, buffer })
    }
}

impl Daq for Reader {
    fn about(&self) -> &About {
        &self.opened.about
    }

    fn read(&mut self, at: u64, to: &mut [u8]) -> Result<(), Error> {
        self.opened.check_start(at, to.len() as u64)?;
        self.opened.fill(at, to)
    }

    fn stream(&mut self, span: Span, take: Take<'_>) -> Result<(), Error> {
        let Span { at, bytes, passes, piece } = span;
        self.opened.check_start(at, bytes)?;
        for one in pieces(at, bytes, passes, piece.min(self.buffer.len())) {
            let to = &mut self.buffer.bytes_mut()[..one.len];
            self.opened.fill(one.at, to).map_err(|err| of_stream(err, at, bytes))?;
            if take(to).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn write(&mut self, at: u64, from: &[u8]) -> Result<(), Error> {
        self.opened.check_start(at, from.len() as u64)?;
        self.opened.put(at, from)
    }
}
