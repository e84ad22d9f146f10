//! Our declarations of a kernel interface, which a test compares with the C header itself.

/// Declares the constants and structures of a C header. For tests it also makes `believe`, which lists them with what
/// they are called in C. A structure of Rust is `#[repr(C)]`, has the fields of the one in C in their order, and no holes.
macro_rules! mirror {
    (
        const { $($type:ident: $($constant:ident = $value:expr),+;)* }
        $(struct $name:ident = $c:ident { $($field:ident: $kind:ty),* $(,)? })*
    ) => {
        $($(pub const $constant: $type = $value;)+)*
        $(
            #[repr(C)]
            #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
            pub struct $name {
                $(pub $field: $kind),*
            }
        )*

        #[cfg(test)]
        fn believe(beliefs: &mut crate::header::Beliefs) {
            $(
                let fields = [$((stringify!($field), std::mem::offset_of!($name, $field), size_of::<$kind>())),*];
                beliefs.structure(stringify!($c), size_of::<$name>(), &fields);
            )*
            $($(beliefs.constant(stringify!($constant), u64::from($constant));)+)*
        }
    };
}

pub(crate) use mirror;
#[cfg(test)]
pub(crate) use tests::{Beliefs, hold_against};

#[cfg(test)]
mod tests {
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
        fn number(&mut self, name: &str, expression: &str, value: u64) {
            writeln!(self.rust, "{name} {value}").unwrap();
            writeln!(self.c, "printf(\"%s %llu\\n\", \"{name}\", (unsigned long long)({expression}));").unwrap();
        }

        pub(crate) fn constant(&mut self, name: &'static str, value: u64) {
            self.number(name, name, value);
            self.names.insert(name);
        }

        /// A structure of `size` bytes with all its fields in order: name, offset and size of each.
        pub(crate) fn structure(&mut self, c: &str, size: usize, fields: &[(&str, usize, usize)]) {
            self.number(&format!("sizeof {c}"), &format!("sizeof(struct {c})"), size as u64);
            let mut end = 0;
            for &(field, offset, bytes) in fields {
                let field = field.trim_start_matches("r#");
                assert_eq!(offset, end, "a hole before {c}.{field}");
                end = offset + bytes;
                self.number(&format!("{c}.{field}"), &format!("offsetof(struct {c}, {field})"), offset as u64);
            }
            assert_eq!(end, size, "a hole at the end of {c}");
        }
    }

    /// Compiles a header of ours and compares; every name with `prefix` and every structure in it has to be believed in.
    ///
    /// # Panics
    /// Where they differ.
    pub(crate) fn hold_against(file: &str, prefix: &str, believe: fn(&mut Beliefs)) {
        let mut beliefs = Beliefs::default();
        believe(&mut beliefs);
        let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kmod/include/uapi");
        let header = std::fs::read_to_string(format!("{include}/{file}")).unwrap();
        for word in header.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            assert!(
                !word.starts_with(prefix) || word.ends_with('_') || beliefs.names.contains(word),
                "{word} is missing in Rust"
            );
        }
        let structures = header.lines().filter(|l| l.starts_with("struct ") && l.ends_with('{')).count();
        assert_eq!(structures, beliefs.rust.matches("sizeof").count(), "a structure is missing in Rust");

        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
        let text = format!(
            "#include <stddef.h>\n#include <stdio.h>\n#include <{file}>\nint main(void) {{\n{}return 0;\n}}\n",
            beliefs.c
        );
        std::fs::write(&source, text).unwrap();
        let status = Command::new("cc").arg("-I").arg(include).arg("-o").arg(&program).arg(&source).status();
        assert!(status.expect("this test needs a C compiler named cc").success());
        let output = Command::new(&program).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), beliefs.rust);
    }
}
