//! Which function of a program or library an address belongs to.

use std::fs::File;
use std::ops::Range;

use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadCache, ReadRef, SymbolKind};

/// Functions in the order of their addresses.
#[derive(Debug, Default)]
pub(super) struct Functions {
    entries: Vec<Entry>,
    /// All names, one behind the other.
    names: String,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    start: u64,
    /// 0: up to the next one.
    len: u64,
    /// Which of several names for one address is shown: the lowest.
    rank: u8,
    name: (u32, u32),
    /// Numbers what it belongs to, for whoever put it there.
    owner: u32,
}

/// The function that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Function<'f> {
    pub start: u64,
    pub name: &'f str,
    pub owner: u32,
}

/// A longer name, in bytes, is none: those of the largest C++ programs have some thousand.
const LONGEST_NAME: usize = 16 << 10;
/// So many bytes of names are kept. A browser with all its symbols has less than half of it.
const MOST_NAMES: usize = 256 << 20;

impl Functions {
    /// Adds one; a length of 0 means up to the next. One with a name of more than 16 KiB, or beyond 256 MiB of names, is left
    /// out.
    pub fn add(&mut self, start: u64, len: u64, is_global: bool, name: &str, owner: u32) {
        // Symbols of a broken file may all share one name that is as long as the file.
        if name.len() > LONGEST_NAME || self.names.len() > MOST_NAMES {
            return;
        }
        let (Ok(at), Ok(bytes)) = (u32::try_from(self.names.len()), u32::try_from(name.len())) else { return };
        let underscores = name.bytes().take_while(|byte| *byte == b'_').count().min(50) as u8;
        let rank = underscores + if is_global { 0 } else { 100 };
        self.names.push_str(name);
        self.entries.push(Entry { start, len, rank, name: (at, bytes), owner });
    }

    /// To be called when all were added, and before the first search.
    pub fn sort(&mut self) {
        self.entries.sort_by_key(|entry| (entry.start, entry.len == 0, entry.rank));
        self.entries.dedup_by_key(|entry| entry.start);
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The function that `address` lies in; `None` in a gap, and where the next one below is further than `reach`.
    pub fn find(&self, address: u64, reach: u64) -> Option<Function<'_>> {
        let entry = self.entries[..self.entries.partition_point(|entry| entry.start <= address)].last()?;
        let distance = address - entry.start;
        let is_inside = if entry.len == 0 { distance < reach } else { distance < entry.len };
        let name = &self.names[entry.name.0 as usize..][..entry.name.1 as usize];
        is_inside.then_some(Function { start: entry.start, name, owner: entry.owner })
    }
}

/// What is kept of an ELF file.
#[derive(Debug, Default)]
pub struct Image {
    /// Where bytes of the file come to lie: their place in the file, and the address of the first.
    segments: Vec<(Range<u64>, u64)>,
    functions: Functions,
    /// Where functions begin that have unwinding tables; stripped programs have these too. Sorted.
    frames: Vec<u64>,
}

/// No function without a length is taken to be longer.
const REACH: u64 = 1 << 20;

impl Image {
    /// Reads what is needed of a file.
    ///
    /// # Errors
    /// Why it is no ELF file that can be understood, in words.
    pub fn load(file: File) -> Result<Self, String> {
        Image::parse(&ReadCache::new(file))
    }

    /// As [`Image::load`], from memory.
    pub fn parse<'d>(bytes: impl ReadRef<'d>) -> Result<Self, String> {
        let file = object::File::parse(bytes).map_err(|error| error.to_string())?;
        let mut image = Image::default();
        for segment in file.segments() {
            let (at, len) = segment.file_range();
            image.segments.push((at..at.saturating_add(len), segment.address()));
        }
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            if symbol.kind() != SymbolKind::Text || symbol.is_undefined() {
                continue;
            }
            let Ok(name) = symbol.name() else { continue };
            if !name.is_empty() && !name.starts_with('$') {
                image.functions.add(symbol.address(), symbol.size(), symbol.is_global(), name, 0);
            }
        }
        image.functions.sort();
        if let Some(section) = file.section_by_name(".eh_frame_hdr") {
            image.frames = frames(section.address(), section.data().unwrap_or_default(), file.is_little_endian());
        }
        Ok(image)
    }

    /// The name of the function that byte `offset` of the file belongs to, or in hexadecimal the address at which it
    /// begins, or that of the byte itself. `None` where the byte is not loaded.
    pub fn name(&self, offset: u64) -> Option<String> {
        let (range, address) = self.segments.iter().find(|(range, _)| range.contains(&offset))?;
        let address = address.wrapping_add(offset - range.start);
        if let Some(function) = self.functions.find(address, REACH) {
            return Some(readable(function.name));
        }
        let frame = self.frames[..self.frames.partition_point(|start| *start <= address)].last();
        let start = frame.copied().filter(|start| address - start < REACH).unwrap_or(address);
        Some(format!("{start:#x}"))
    }
}

/// A Rust function's name without its hash; other names as they are.
fn readable(name: &str) -> String {
    match rustc_demangle::try_demangle(name) {
        Ok(readable) => format!("{readable:#}"),
        Err(_) => name.to_owned(),
    }
}

/// The starts of functions in a section .eh_frame_hdr (Linux Standard Base, "Eh_frame_hdr"), in the one encoding that linkers use.
fn frames(section: u64, bytes: &[u8], is_little: bool) -> Vec<u64> {
    const VERSION: u8 = 1;
    // DW_EH_PE_pcrel and sdata4, udata4, DW_EH_PE_datarel and sdata4.
    const ENCODINGS: [u8; 3] = [0x1b, 0x03, 0x3b];
    let word = |at: usize| {
        let bytes: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(if is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    };
    if bytes.first() != Some(&VERSION) || bytes.get(1..4) != Some(&ENCODINGS) {
        return Vec::new();
    }
    let count = word(8).unwrap_or(0) as usize;
    let start = |entry: usize| Some(section.wrapping_add_signed(i64::from(word(12 + 8 * entry)? as i32)));
    let mut starts: Vec<u64> = (0..count).map_while(start).collect();
    starts.sort_unstable();
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions(all: &[(u64, u64, bool, &str)]) -> Functions {
        let mut functions = Functions::default();
        for (start, len, is_global, name) in all {
            functions.add(*start, *len, *is_global, name, 0);
        }
        functions.sort();
        functions
    }

    #[test]
    fn an_address_belongs_to_the_function_around_it_or_to_none() {
        let functions =
            functions(&[(0x300, 0, true, "open"), (0x100, 0x10, true, "first"), (0x200, 0x80, true, "second")]);
        let name = |address| functions.find(address, 0x100).map(|function| function.name);
        assert_eq!(name(0xff), None);
        assert_eq!((name(0x100), name(0x10f), name(0x110)), (Some("first"), Some("first"), None));
        assert_eq!((name(0x27f), name(0x280)), (Some("second"), None));
        assert_eq!((name(0x3ff), name(0x400), name(u64::MAX)), (Some("open"), None, None));
        assert_eq!(Functions::default().find(7, 100), None);
    }

    #[test]
    fn names_that_no_program_has_take_no_memory() {
        let long = "n".repeat(1 << 20);
        let mut functions = Functions::default();
        (0..5000).for_each(|number| functions.add(number, 1, true, &long, 0));
        assert!(functions.is_empty(), "a name of 1 MiB was taken");
        let name = "n".repeat(16 << 10);
        (0..40_000).for_each(|number| functions.add(number, 1, true, &name, 0));
        assert!(functions.names.len() <= (256 << 20) + (16 << 10), "{} bytes of names", functions.names.len());
    }

    #[test]
    fn of_several_names_the_global_one_with_the_fewest_underscores_is_shown() {
        let functions = functions(&[
            (0x100, 8, false, "memcpy_local"),
            (0x100, 8, true, "__memcpy"),
            (0x100, 8, true, "_memcpy"),
            (0x100, 0, true, "label"),
        ]);
        assert_eq!(functions.find(0x104, 1).unwrap().name, "_memcpy");
    }

    #[test]
    fn this_programs_own_functions_are_found_in_its_file() {
        let image = Image::load(File::open("/proc/self/exe").unwrap()).unwrap();
        assert!(!image.functions.is_empty() && !image.frames.is_empty(), "{}", image.frames.len());
        // Each start in the unwinding tables is one that the symbols have as well, but for a few of the start-up code's.
        let known =
            image.frames.iter().filter(|start| image.functions.find(**start, 1).is_some_and(|f| f.start == **start));
        assert!(known.count() * 10 > image.frames.len() * 9);
    }

    #[test]
    fn names_of_rust_lose_their_hash_and_others_stay() {
        assert_eq!(readable("_ZN3foo3barE"), "foo::bar");
        assert_eq!(readable("_ZN3foo3bar17h05af221e174051e9E"), "foo::bar");
        assert_eq!(readable("copy_user_generic"), "copy_user_generic");
    }

    #[test]
    fn what_is_no_program_is_refused_in_words() {
        for bytes in [&b""[..], b"#!/bin/sh", b"\x7fELF\x02\x01\x01"] {
            assert!(!Image::parse(bytes).unwrap_err().is_empty());
        }
    }

    #[test]
    fn unwinding_tables_give_starts_and_broken_ones_give_fewer() {
        let mut table = vec![1, 0x1b, 0x03, 0x3b, 0, 0, 0, 0, 2, 0, 0, 0];
        table.extend([0x20u32, 0, (-0x10i32) as u32, 0].iter().flat_map(|word| word.to_le_bytes()));
        assert_eq!(frames(0x1000, &table, true), [0xff0, 0x1020]);
        assert_eq!(frames(0x1000, &table[..20], true), [0x1020]);
        assert_eq!(frames(0x1000, &table[..6], true), [0u64; 0]);
        table[3] = 0x3c;
        assert_eq!(frames(0x1000, &table, true), [0u64; 0]);
    }

    #[test]
    fn a_function_without_a_name_is_its_first_address() {
        let image = Image {
            segments: vec![(0..0x100, 0x5000), (0x200..0x300, 0x9000)],
            functions: functions(&[(0x9080, 0x10, true, "named")]),
            frames: vec![0x9000, 0x9040],
        };
        assert_eq!(image.name(0x285).unwrap(), "named");
        assert_eq!(image.name(0x250).unwrap(), "0x9040");
        assert_eq!(image.name(0x10).unwrap(), "0x5010");
        assert_eq!(image.name(0x150), None);
    }
}
