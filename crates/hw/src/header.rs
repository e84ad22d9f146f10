//! Compares our declarations of a kernel interface with the C header itself, for tests.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Command;

/// What Rust declares of a header, and C text that prints the same from the header, line by line.
#[derive(Default)]
pub(crate) struct Beliefs {
    rust: String,
    c: String,
    names: BTreeSet<&'static str>,
}

impl Beliefs {
    /// One number and the C expression for it.
    pub(crate) fn number(&mut self, name: &str, expression: &str, value: u64) {
        writeln!(self.rust, "{name} {value}").unwrap();
        writeln!(self.c, "printf(\"%s %llu\\n\", \"{name}\", (unsigned long long)({expression}));").unwrap();
    }

    /// A named constant.
    pub(crate) fn constant(&mut self, name: &'static str, value: u64) {
        self.number(name, name, value);
        self.names.insert(name);
    }

    /// Compiles a header of ours and compares; every name with `prefix` and every structure in it has to be believed in.
    ///
    /// # Panics
    /// Where they differ.
    pub(crate) fn hold_against(&self, file: &str, prefix: &str) {
        let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kmod/include/uapi");
        let header = std::fs::read_to_string(format!("{include}/{file}")).unwrap();
        for word in header.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            assert!(
                !word.starts_with(prefix) || word.ends_with('_') || self.names.contains(word),
                "{word} is missing in Rust"
            );
        }
        let structures = header.lines().filter(|l| l.starts_with("struct ") && l.ends_with('{')).count();
        assert_eq!(structures, self.rust.matches("sizeof").count(), "a structure is missing in Rust");

        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
        let text = format!(
            "#include <stddef.h>\n#include <stdio.h>\n#include <{file}>\nint main(void) {{\n{}return 0;\n}}\n",
            self.c
        );
        std::fs::write(&source, text).unwrap();
        let status = Command::new("cc").arg("-I").arg(include).arg("-o").arg(&program).arg(&source).status();
        assert!(status.expect("this test needs a C compiler named cc").success());
        let output = Command::new(&program).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), self.rust);
    }
}

/// A structure with all its fields in order, without holes.
macro_rules! structure {
    ($beliefs:ident, $c:literal, $rust:ident, [$($field:ident),* $(,)?]) => {
        $beliefs.number(concat!("sizeof ", $c), concat!("sizeof(struct ", $c, ")"), size_of::<$rust>() as u64);
        let mut end = 0;
        $(
            let offset = std::mem::offset_of!($rust, $field);
            assert_eq!(offset, end, "a hole before {}.{}", $c, stringify!($field));
            end = offset + { let value = $rust::default(); size_of_val(&value.$field) };
            $beliefs.number(
                concat!($c, ".", stringify!($field)),
                concat!("offsetof(struct ", $c, ", ", stringify!($field), ")"),
                offset as u64,
            );
        )*
        assert_eq!(end, size_of::<$rust>(), "a hole at the end of {}", $c);
    };
}

macro_rules! constants {
    ($beliefs:ident, [$($name:ident),* $(,)?]) => {
        $( $beliefs.constant(stringify!($name), u64::from($name)); )*
    };
}

pub(crate) use {constants, structure};
