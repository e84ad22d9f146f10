//! Which function an address belongs to.

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
pub(super) struct NamedFunction<'f> {
    pub start: u64,
    pub name: &'f str,
    pub owner: u32,
}

/// A longer name, in bytes, is none: those of the kernel have at most 512.
const LONGEST_NAME: usize = 16 << 10;
/// Upper limit of all names, in bytes: those of a kernel with all modules have some MiB.
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
    pub fn find(&self, address: u64, reach: u64) -> Option<NamedFunction<'_>> {
        let entry = self.entries[..self.entries.partition_point(|entry| entry.start <= address)].last()?;
        let distance = address - entry.start;
        let is_inside = if entry.len == 0 { distance < reach } else { distance < entry.len };
        let name = &self.names[entry.name.0 as usize..][..entry.name.1 as usize];
        is_inside.then_some(NamedFunction { start: entry.start, name, owner: entry.owner })
    }
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
}
