//! Finds out whether the compiler has the AVX-512 intrinsics, stable since Rust 1.89. The crate builds with 1.85; there it
//! goes without those kernels.

use std::env;
use std::process::Command;

/// The minor version of Rust 1 that brought them.
const FIRST: u32 = 89;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(has_avx512)");
    if minor().is_some_and(|minor| minor >= FIRST) {
        println!("cargo::rustc-cfg=has_avx512");
    }
}

/// The y of `rustc x.y.z`, if it can be found.
fn minor() -> Option<u32> {
    let output = Command::new(env::var_os("RUSTC")?).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_whitespace().nth(1)?.strip_prefix("1.")?.split('.').next()?.parse().ok()
}
