//! How a stream is cut: passes over one range of addresses, each in pieces.

/// A piece of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Its address.
    pub at: u64,
    /// Its bytes, at least 1.
    pub len: usize,
}

/// The pieces of `passes` passes over `bytes` bytes from `at`, in order; the last of a pass may be shorter. None where
/// there is nothing to read. `at + bytes` must not overflow.
pub fn pieces(at: u64, bytes: u64, passes: u64, piece: usize) -> Pieces {
    let left = if bytes == 0 { 0 } else { passes };
    Pieces { at, bytes, piece: piece.max(1) as u64, done: 0, left }
}

/// The most bytes of a piece that are a multiple of `align`, and at least one such.
pub fn whole(piece: usize, align: u64) -> usize {
    let align = align as usize;
    (piece / align * align).max(align)
}

/// See [`pieces`].
#[derive(Debug, Clone)]
pub struct Pieces {
    at: u64,
    bytes: u64,
    piece: u64,
    /// Of the pass under way.
    done: u64,
    /// Passes, with the one under way.
    left: u64,
}

impl Iterator for Pieces {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.left == 0 {
            return None;
        }
        let len = self.piece.min(self.bytes - self.done);
        let at = self.at + self.done;
        self.done += len;
        if self.done == self.bytes {
            self.done = 0;
            self.left -= 1;
        }
        Some(Piece { at, len: len as usize })
    }
}

/// A range of bytes rounded out to what a device can move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The first address that is read, a multiple of the alignment.
    pub start: u64,
    /// Bytes that are read, a multiple of the alignment.
    pub bytes: u64,
    at: u64,
    end: u64,
}

impl Window {
    /// Rounds `bytes` bytes from `at` out to multiples of `align`. `at + bytes + align` must not overflow.
    pub fn new(at: u64, bytes: u64, align: u64) -> Self {
        let (start, end) = (at - at % align, at + bytes);
        let bytes = if bytes == 0 { 0 } else { (end - start).next_multiple_of(align) };
        Window { start, bytes, at, end }
    }

    /// Which bytes of `len` that were read from `at` were asked for, as a range within them.
    pub fn asked(&self, at: u64, len: usize) -> std::ops::Range<usize> {
        let within = |address: u64| address.saturating_sub(at).min(len as u64) as usize;
        within(self.at)..within(self.end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_cut_from_a_window_is_what_was_asked_for(
            at in 0u64..20_000, bytes in 0u64..10_000, shift in 0u32..13, piece in 0usize..12_000,
        ) {
            let align = 1 << shift;
            let window = Window::new(at, bytes, align);
            prop_assert_eq!((window.start % align, window.bytes % align), (0, 0));
            prop_assert!(window.bytes < bytes + 2 * align);
            let mut asked = Vec::new();
            for one in pieces(window.start, window.bytes, 1, whole(piece, align)) {
                prop_assert_eq!((one.at % align, one.len as u64 % align), (0, 0));
                asked.extend(window.asked(one.at, one.len).map(|index| one.at + index as u64));
            }
            prop_assert_eq!(asked, (at..at + bytes).collect::<Vec<u64>>());
        }

        #[test]
        fn every_byte_of_every_pass_comes_once_and_in_order(
            at in 0u64..1 << 40, bytes in 0u64..10_000, passes in 0u64..4, piece in 0usize..12_000,
        ) {
            let mut next = (0, 0);
            for one in pieces(at, bytes, passes, piece) {
                prop_assert!(one.len >= 1 && one.len <= piece.max(1));
                prop_assert_eq!(one.at, at + next.1);
                next.1 += one.len as u64;
                prop_assert!(next.1 <= bytes);
                prop_assert!(one.len == piece.max(1) || next.1 == bytes, "only the last of a pass is shorter");
                if next.1 == bytes {
                    next = (next.0 + 1, 0);
                }
            }
            prop_assert_eq!(next, (if bytes == 0 { 0 } else { passes }, 0));
        }
    }
}
