//! Names for the addresses of samples: the kernel's functions from /proc/kallsyms, the files of the program from its maps.

use std::path::Path;

use super::functions::Functions;
use super::ring::Mode;
use crate::Root;

/// Names of the kernel's functions and of this process's files. What was read once is kept, so that one value serves many
/// profiles; reading takes a tenth of a second. A module that is loaded after the first profile with kernel functions has no names
/// in later ones.
#[derive(Debug)]
pub struct Symbols {
    root: Root,
    maps: Vec<Map>,
    kernel: Option<Kernel>,
    notes: Vec<String>,
}

/// Where a sample belongs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Place {
    pub object: String,
    pub symbol: String,
    pub is_kernel: bool,
}

/// A line of /proc/self/maps that can be executed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Map {
    start: u64,
    end: u64,
    name: String,
}

#[derive(Debug, Default)]
struct Kernel {
    functions: Functions,
    /// The owners' names: `[kernel]`, then modules.
    owners: Vec<String>,
    has_addresses: bool,
}

const KERNEL: &str = "[kernel]";
const ANONYMOUS: &str = "[anonymous]";
/// Kernel functions are shorter; what lies further behind the last one of a module is something else.
const REACH: u64 = 1 << 20;

impl Symbols {
    /// Reads nothing yet.
    pub fn of(root: &Root) -> Self {
        Symbols { root: root.clone(), maps: Vec::new(), kernel: None, notes: Vec::new() }
    }

    /// Looks where the program's files lie now. To be called before addresses of new samples are named.
    pub(super) fn look_again(&mut self) {
        self.notes.clear();
        let maps = self.root.text("/proc/self/maps").unwrap_or_default();
        self.maps = maps.lines().filter_map(Map::parse).collect();
        self.maps.sort_by_key(|map| map.start);
        if self.kernel.as_ref().is_some_and(|kernel| !kernel.has_addresses) {
            self.kernel = None;
        }
    }

    /// What could not be named, and why; since [`Symbols::look_again`].
    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The kernel's function, or the file of the program, that a sample fell in.
    pub(super) fn place(&mut self, mode: Mode, address: u64) -> Place {
        let plain =
            |object: &str| Place { object: object.to_owned(), symbol: format!("{address:#x}"), is_kernel: false };
        // The kernel's half of the address space has the highest bit on every architecture we run on.
        match mode {
            Mode::Kernel => self.kernel(address),
            Mode::Unknown if address >> 63 == 1 => self.kernel(address),
            Mode::User | Mode::Unknown => self.user(address),
            Mode::Hypervisor => plain("[hypervisor]"),
            Mode::Guest => plain("[guest]"),
            Mode::Foreign => {
                Place { object: "[other process]".into(), symbol: "[other process]".into(), is_kernel: false }
            }
        }
    }

    fn kernel(&mut self, address: u64) -> Place {
        if self.kernel.is_none() {
            let kernel = Kernel::parse(&self.root.text("/proc/kallsyms").unwrap_or_default());
            if !kernel.has_addresses {
                let restrict = self.root.text("/proc/sys/kernel/kptr_restrict");
                self.notes.push(format!(
                    "the kernel's functions stand in one line: /proc/kallsyms shows this user no addresses \
                     (kptr_restrict is {})",
                    restrict.as_deref().unwrap_or("not known")
                ));
            }
            self.kernel = Some(kernel);
        }
        let kernel = self.kernel.as_ref().expect("it was read just now");
        let (object, symbol) = match kernel.functions.find(address, REACH) {
            _ if !kernel.has_addresses => (KERNEL, KERNEL.to_owned()),
            Some(function) => (kernel.owners[function.owner as usize].as_str(), function.name.to_owned()),
            None => (KERNEL, format!("{address:#x}")),
        };
        Place { object: object.to_owned(), symbol, is_kernel: true }
    }

    /// The kernel's function at an address, and its module or `[kernel]`.
    pub(crate) fn function(&mut self, address: u64) -> (String, String) {
        let Place { symbol, object, .. } = self.kernel(address);
        (symbol, object)
    }

    /// The program or library as a whole: `perf record` names its functions.
    fn user(&self, address: u64) -> Place {
        let map = self.maps[..self.maps.partition_point(|map| map.start <= address)].last();
        let object = map.filter(|map| address < map.end).map_or_else(|| ANONYMOUS.to_owned(), Map::object);
        Place { symbol: object.clone(), object, is_kernel: false }
    }
}

impl Map {
    /// `7f01-7f02 r-xp 00001000 fe:00 1234      /usr/lib/libc.so.6`, with blanks in the name as they are.
    fn parse(line: &str) -> Option<Self> {
        let mut rest = line;
        let mut next = || {
            let (field, behind) = rest.trim_start().split_once(' ').unwrap_or((rest.trim_start(), ""));
            rest = behind;
            field
        };
        let (range, rights, _offset, _device, _inode) = (next(), next(), next(), next(), next());
        let (start, end) = range.split_once('-')?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let map = Map { start: hex(start)?, end: hex(end)?, name: rest.trim_start().to_owned() };
        (rights.as_bytes().get(2) == Some(&b'x') && map.start < map.end).then_some(map)
    }

    /// The file's name without its folder.
    fn object(&self) -> String {
        let name = self.name.strip_suffix(" (deleted)").unwrap_or(&self.name);
        match Path::new(name).file_name() {
            Some(file) => file.to_string_lossy().into_owned(),
            None => ANONYMOUS.to_owned(),
        }
    }
}

impl Kernel {
    /// `ffffffff81000000 T name` and, of a module, a tab and `[module]`.
    fn parse(text: &str) -> Self {
        let mut kernel = Kernel { owners: vec![KERNEL.to_owned()], ..Kernel::default() };
        for line in text.lines() {
            let (line, module) = line.split_once('\t').unwrap_or((line, KERNEL));
            let mut fields = line.split(' ');
            let (Some(address), Some(kind), Some(name)) = (fields.next(), fields.next(), fields.next()) else {
                continue;
            };
            // Text, also weak; arm64 and riscv have marks of `$`.
            if !matches!(kind, "T" | "t" | "W" | "w") || name.starts_with('$') || name.starts_with(".L") {
                continue;
            }
            let Some(address) = u64::from_str_radix(address, 16).ok().filter(|address| *address != 0) else { continue };
            let module = module.trim_end();
            // A module's functions stand together, so the last one is nearly always it.
            let owner = kernel.owners.iter().rposition(|owner| owner == module).unwrap_or_else(|| {
                kernel.owners.push(module.to_owned());
                kernel.owners.len() - 1
            });
            kernel.functions.add(address, 0, kind != "t", name, owner as u32);
        }
        kernel.functions.sort();
        kernel.has_addresses = !kernel.functions.is_empty();
        kernel
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::Tree;

    const MAPS: &str = "\
00400000-00401000 r--p 00000000 fe:00 12 /no/such/program
00401000-00402000 r-xp 00001000 fe:00 12 /no/such/program
7f0000000000-7f0000001000 r-xp 00000000 00:00 0 
7f0000002000-7f0000003000 r-xp 00000000 fe:00 13 /tmp/a b/lib x.so (deleted)
7f0000004000-7f0000003000 r-xp 00000000 fe:00 13 backwards
nonsense
";
    const KALLSYMS: &str = "\
ffffffff81000000 T _stext
ffffffff81000000 T startup
ffffffff81000100 t copy_user
ffffffff81000180 d some_data
ffffffff81000200 W weak_one
ffffffffc0100000 t sis8300_read\t[sis8300]
ffffffffc0100080 t $x.1\t[sis8300]
ffffffffc0200000 t other\t[other]
zzz T broken
ffffffff81000300
";

    fn named(symbols: &mut Symbols, mode: Mode, address: u64) -> (String, String) {
        let place = symbols.place(mode, address);
        (place.object, place.symbol)
    }

    fn pair(object: &str, symbol: &str) -> (String, String) {
        (object.to_owned(), symbol.to_owned())
    }

    #[test]
    fn the_kernels_addresses_get_their_functions_and_modules() {
        let root = Tree::of(&[("proc/kallsyms", KALLSYMS), ("proc/self/maps", MAPS)]);
        let mut symbols = Symbols::of(&root);
        symbols.look_again();
        let mut of = |address| named(&mut symbols, Mode::Kernel, address);
        assert_eq!(of(0xffffffff81000010), pair("[kernel]", "startup"));
        assert_eq!(of(0xffffffff810001ff), pair("[kernel]", "copy_user"));
        assert_eq!(of(0xffffffff81000200), pair("[kernel]", "weak_one"));
        assert_eq!(of(0xffffffffc0100090), pair("[sis8300]", "sis8300_read"));
        assert_eq!(of(0xffffffffc0200000), pair("[other]", "other"));
        assert_eq!(of(0xffffffff80000000), pair("[kernel]", "0xffffffff80000000"));
        assert_eq!(of(0xfffffffff0000000), pair("[kernel]", "0xfffffffff0000000"));
        assert_eq!(named(&mut symbols, Mode::Unknown, 0xffffffff81000200), pair("[kernel]", "weak_one"));
        assert!(symbols.place(Mode::Kernel, 1).is_kernel && symbols.notes().is_empty());
    }

    #[test]
    fn a_kernel_that_hides_its_addresses_is_one_line_with_the_reason() {
        let zeros: String =
            KALLSYMS.lines().map(|line| format!("0000000000000000{}\n", &line[line.len().min(16)..])).collect();
        for text in [Some(zeros.as_str()), None] {
            let mut files = vec![("proc/sys/kernel/kptr_restrict", "2\n")];
            files.extend(text.map(|text| ("proc/kallsyms", text)));
            let root = Tree::of(&files);
            let mut symbols = Symbols::of(&root);
            symbols.look_again();
            assert_eq!(named(&mut symbols, Mode::Kernel, 0xffffffff81000010), pair("[kernel]", "[kernel]"));
            assert_eq!(named(&mut symbols, Mode::Kernel, 0xffffffffc0100010), pair("[kernel]", "[kernel]"));
            assert_eq!(symbols.notes().len(), 1);
            assert!(symbols.notes()[0].contains("kptr_restrict is 2"), "{:?}", symbols.notes());
        }
    }

    #[test]
    fn addresses_of_user_space_get_the_file_that_is_mapped_there() {
        let root = Tree::of(&[("proc/self/maps", MAPS)]);
        let mut symbols = Symbols::of(&root);
        symbols.look_again();
        assert_eq!(symbols.maps.len(), 3, "{:?}", symbols.maps);
        let mut of = |address| named(&mut symbols, Mode::User, address);
        assert_eq!(of(0x401010), pair("program", "program"));
        assert_eq!(of(0x400010), pair("[anonymous]", "[anonymous]"));
        assert_eq!(of(0x7f0000000010), pair("[anonymous]", "[anonymous]"));
        assert_eq!(of(0x7f0000002010), pair("lib x.so", "lib x.so"));
        assert_eq!(of(3), pair("[anonymous]", "[anonymous]"));
        assert_eq!(named(&mut symbols, Mode::Foreign, 5).0, "[other process]");
        assert_eq!(named(&mut symbols, Mode::Hypervisor, 5), pair("[hypervisor]", "0x5"));
        assert_eq!(symbols.notes(), [""; 0]);
    }

    #[test]
    fn this_program_and_its_libraries_are_named() {
        let mut symbols = Symbols::of(&Root::default());
        symbols.look_again();
        let own = Symbols::of as *const () as u64;
        assert!(named(&mut symbols, Mode::User, own).0.starts_with("pciescope_hw"));
        assert!(named(&mut symbols, Mode::User, libc::getppid as *const () as u64).0.starts_with("libc"));
    }
}
