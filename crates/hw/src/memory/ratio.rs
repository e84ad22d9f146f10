//! The memory's ceiling for a loop that reads and writes in a given ratio: whole lines are loaded and stored again, and nothing
//! else is done.
//!
//! A conversion of 16-bit samples to `f32` writes two bytes for each byte that it reads, one to `f64` writes four, and
//! a decimation reads more than it writes. So the rate of a plain copy is not the limit of any of them. The loop stores
//! what it has loaded, because some CPUs write zeros faster than other values (seen on a Zen 5: 1.5 times).
//!
//! The widest registers of the CPU are used, by inline assembly: the compiler can neither leave a load out nor turn the loop into
//! a call of memcpy, and AVX-512 needs no compiler newer than ours.

pciescope_core::named! {
    /// How lines are stored.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Store {
        /// Into the cache; a line that is not there is read first.
        Cached => "cached",
        /// Around the cache.
        Streaming => "streaming",
    }
    /// The name in records.
    fn name
}

/// Bytes of a cache line, as far as this loop is concerned.
pub const LINE: usize = 64;

/// A line of memory: what is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Line(pub [u64; 8]);

/// How many lines are read, and how many written, in a step: `read` to `write` in lowest terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio {
    read: usize,
    write: usize,
}

impl Ratio {
    /// The ratio of so many bytes read to so many bytes written.
    ///
    /// # Panics
    /// Where one of the two is 0.
    pub fn of(read: usize, write: usize) -> Self {
        assert!(read > 0 && write > 0, "a ratio needs something to read and something to write");
        let divisor = num_integer::gcd(read, write);
        Ratio { read: read / divisor, write: write / divisor }
    }

    /// Lines read and written in a step.
    pub fn lines(self) -> (usize, usize) {
        (self.read, self.write)
    }

    /// Steps that fit into both; what is left of either is not touched.
    fn steps(self, from: usize, to: usize) -> usize {
        (from / self.read).min(to / self.write)
    }

    /// Bytes read and written by a pass over so many lines.
    pub fn bytes(self, from: usize, to: usize) -> (usize, usize) {
        let steps = self.steps(from, to);
        (LINE * steps * self.read, LINE * steps * self.write)
    }
}

/// Reads `from` and writes `to` once, in this ratio. Each step reads its lines and writes the last of them `write` times.
pub fn pass(ratio: Ratio, from: &[Line], to: &mut [Line], store: Store) {
    let steps = ratio.steps(from.len(), to.len());
    if steps > 0 {
        let (from, to) = (from.as_ptr().cast::<u8>(), to.as_mut_ptr().cast::<u8>());
        // SAFETY: the slices hold as many whole steps, and lines are aligned to 64 bytes.
        unsafe { machine::pass(ratio, from, to, steps, store) };
    }
    if store == Store::Streaming {
        super::fence();
    }
}

#[cfg(target_arch = "x86_64")]
mod machine {
    use std::arch::asm;

    use super::{LINE, Ratio, Store};

    /// # Safety
    /// `from` and `to` are aligned to 64 bytes; `steps` times the ratio's lines are readable and writable there.
    pub unsafe fn pass(ratio: Ratio, from: *const u8, to: *mut u8, steps: usize, store: Store) {
        // SAFETY: the caller answers for the memory; the registers are there.
        unsafe {
            match (is_x86_feature_detected!("avx512f"), is_x86_feature_detected!("avx"), store) {
                (true, _, Store::Cached) => widest::cached(ratio, from, to, steps),
                (true, _, Store::Streaming) => widest::streaming(ratio, from, to, steps),
                (_, true, Store::Cached) => wide::cached(ratio, from, to, steps),
                (_, true, Store::Streaming) => wide::streaming(ratio, from, to, steps),
                (_, _, Store::Cached) => narrow::cached(ratio, from, to, steps),
                (_, _, Store::Streaming) => narrow::streaming(ratio, from, to, steps),
            }
        }
    }

    /// The loop with one way to load a line into registers and one way to store them.
    macro_rules! machine {
        ($name:ident, $end:literal, $load:literal, $($store_name:ident $store:literal),+) => {
            mod $name {
                use super::*;
                $(
                    /// # Safety
                    /// As [`pass`]; the CPU has the registers.
                    pub unsafe fn $store_name(ratio: Ratio, from: *const u8, to: *mut u8, steps: usize) {
                        let (mut from, mut to) = (from, to);
                        for _ in 0..steps {
                            // SAFETY: the caller answers for so many lines of both.
                            unsafe {
                                for _ in 1..ratio.read {
                                    asm!($load, from = in(reg) from, out("xmm0") _, out("xmm1") _, out("xmm2") _,
                                        out("xmm3") _, options(nostack, preserves_flags, readonly));
                                    from = from.add(LINE);
                                }
                                let end = to.add(LINE * ratio.write);
                                // The ratios of casts to f32 and f64 keep the line in registers; others load it again from the cache.
                                match ratio.write {
                                    2 => asm!($load, $store, "add {to}, 64", $store, from = in(reg) from,
                                        to = inout(reg) to => _, out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                                        options(nostack)),
                                    4 => asm!($load, $store, "add {to}, 64", $store, "add {to}, 64", $store,
                                        "add {to}, 64", $store, from = in(reg) from, to = inout(reg) to => _,
                                        out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, options(nostack)),
                                    _ => while to != end {
                                        asm!($load, $store, from = in(reg) from, to = in(reg) to, out("xmm0") _,
                                            out("xmm1") _, out("xmm2") _, out("xmm3") _, options(nostack, preserves_flags));
                                        to = to.add(LINE);
                                    },
                                }
                                from = from.add(LINE);
                                to = end;
                            }
                        }
                        // SAFETY: it clears the upper halves of registers, all of which are said to be lost.
                        unsafe { asm!($end, clobber_abi("C"), options(nostack, preserves_flags, nomem)) };
                    }
                )+
            }
        };
    }

    machine!(widest, "vzeroupper", "vmovdqa64 zmm0, [{from}]",
        cached "vmovdqa64 [{to}], zmm0",
        streaming "vmovntdq [{to}], zmm0");
    machine!(wide, "vzeroupper", "vmovdqa ymm0, [{from}]\nvmovdqa ymm1, [{from} + 32]",
        cached "vmovdqa [{to}], ymm0\nvmovdqa [{to} + 32], ymm1",
        streaming "vmovntdq [{to}], ymm0\nvmovntdq [{to} + 32], ymm1");
    machine!(narrow, "nop",
        "movdqa xmm0, [{from}]\nmovdqa xmm1, [{from} + 16]\nmovdqa xmm2, [{from} + 32]\nmovdqa xmm3, [{from} + 48]",
        cached "movdqa [{to}], xmm0\nmovdqa [{to} + 16], xmm1\nmovdqa [{to} + 32], xmm2\nmovdqa [{to} + 48], xmm3",
        streaming "movntdq [{to}], xmm0\nmovntdq [{to} + 16], xmm1\nmovntdq [{to} + 32], xmm2\nmovntdq [{to} + 48], xmm3");

    #[cfg(test)]
    pub mod tests {
        use super::*;

        /// A loop as [`pass`] chooses one.
        pub type Loop = unsafe fn(Ratio, *const u8, *mut u8, usize);

        /// Every loop that this CPU can run.
        pub fn loops() -> Vec<Loop> {
            let mut all: Vec<Loop> = vec![narrow::cached, narrow::streaming];
            if is_x86_feature_detected!("avx") {
                all.extend([wide::cached as Loop, wide::streaming]);
            }
            if is_x86_feature_detected!("avx512f") {
                all.extend([widest::cached as Loop, widest::streaming]);
            }
            all
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod machine {
    use std::arch::asm;

    use super::{LINE, Ratio, Store};

    /// # Safety
    /// `from` and `to` are aligned to 64 bytes; `steps` times the ratio's lines are readable and writable there.
    pub unsafe fn pass(ratio: Ratio, from: *const u8, to: *mut u8, steps: usize, store: Store) {
        // SAFETY: the caller answers for the memory.
        unsafe {
            match store {
                Store::Cached => cached(ratio, from, to, steps),
                Store::Streaming => streaming(ratio, from, to, steps),
            }
        }
    }

    macro_rules! machine {
        ($name:ident, $store:literal) => {
            /// # Safety
            /// As [`pass`].
            unsafe fn $name(ratio: Ratio, from: *const u8, to: *mut u8, steps: usize) {
                let (mut from, mut to) = (from, to);
                for _ in 0..steps {
                    // SAFETY: the caller answers for so many lines of both.
                    unsafe {
                        for _ in 1..ratio.read {
                            asm!("ldp q0, q1, [{from}]", "ldp q2, q3, [{from}, #32]", from = in(reg) from, out("v0") _,
                                out("v1") _, out("v2") _, out("v3") _, options(nostack, preserves_flags, readonly));
                            from = from.add(LINE);
                        }
                        for _ in 0..ratio.write {
                            asm!("ldp q0, q1, [{from}]", "ldp q2, q3, [{from}, #32]",
                                concat!($store, " q0, q1, [{to}]"), concat!($store, " q2, q3, [{to}, #32]"),
                                from = in(reg) from, to = in(reg) to, out("v0") _, out("v1") _, out("v2") _, out("v3") _,
                                options(nostack, preserves_flags));
                            to = to.add(LINE);
                        }
                        from = from.add(LINE);
                    }
                }
            }
        };
    }

    machine!(cached, "stp");
    machine!(streaming, "stnp");

    #[cfg(test)]
    pub mod tests {
        use super::*;

        /// A loop as [`pass`] chooses one.
        pub type Loop = unsafe fn(Ratio, *const u8, *mut u8, usize);

        /// Every loop that this CPU can run.
        pub fn loops() -> Vec<Loop> {
            vec![cached, streaming]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATIOS: [(usize, usize); 7] = [(2, 2), (2, 4), (2, 8), (20, 4), (20, 8), (3, 7), (64, 4)];

    fn lines(count: usize) -> Vec<Line> {
        (0..count as u64).map(|number| Line(std::array::from_fn(|word| number << 8 | word as u64 | 1 << 40))).collect()
    }

    /// What a pass leaves behind, by its words: the last line of each step, as often as the ratio says.
    fn expected(ratio: Ratio, from: &[Line], to: &[Line]) -> Vec<Line> {
        let mut expected = to.to_vec();
        for step in 0..ratio.steps(from.len(), to.len()) {
            let line = from[(step + 1) * ratio.read - 1];
            expected[step * ratio.write..(step + 1) * ratio.write].fill(line);
        }
        expected
    }

    #[test]
    fn every_loop_reads_and_writes_in_its_ratio() {
        for (read, write) in RATIOS {
            let ratio = Ratio::of(read, write);
            let from = lines(9 * ratio.read + 1);
            for run in machine::tests::loops() {
                let mut to = vec![Line([7; 8]); 9 * ratio.write + 1];
                let mut expected = expected(ratio, &from[..9 * ratio.read], &to[..9 * ratio.write]);
                expected.push(Line([7; 8]));
                // SAFETY: both hold nine steps; the CPU can run the loop.
                unsafe { run(ratio, from.as_ptr().cast(), to.as_mut_ptr().cast(), 9) };
                assert!(to == expected, "{ratio:?}");
            }
        }
    }

    #[test]
    fn a_pass_ends_where_either_side_does() {
        let ratio = Ratio::of(60_000_000, 120_000_000);
        assert_eq!(ratio, Ratio { read: 1, write: 2 });
        assert_eq!(ratio.bytes(3, 100), (192, 384));
        assert_eq!(ratio.bytes(100, 7), (192, 384));
        for store in [Store::Cached, Store::Streaming] {
            let (from, mut to) = (lines(3), vec![Line([7; 8]); 7]);
            let expected = expected(ratio, &from, &to);
            pass(ratio, &from, &mut to, store);
            assert!(to == expected);
            pass(ratio, &from, &mut to[..1], store);
        }
    }
}
