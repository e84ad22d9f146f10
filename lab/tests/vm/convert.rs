//! Conversions on another architecture than the one that builds: NEON at every length, alignment, stride and chunk.

use pciescope_lab::vm::Vm;

use crate::support::PATIENCE;
use crate::support::guest::Guest;

/// The tests of the crate, built for arm64; `PCIESCOPE_LAB_SHAPES` names the program.
pub fn every_shape_gives_the_references_numbers_on_arm64() {
    let tests = std::env::var_os("PCIESCOPE_LAB_SHAPES")
        .expect("PCIESCOPE_LAB_SHAPES names the tests of pciescope-convert for arm64: run `make vm-test ARCH=arm64`");
    let vm = Guest::boot(Vm::builder().file(tests, "/usr/bin/shapes"));
    let output = vm.run_within("/usr/bin/shapes shapes::", PATIENCE);
    assert!(output.is_success() && output.stdout.contains("5 passed"), "{}\n{}", output.stdout, output.stderr);
    vm.finish(&[]);
}
