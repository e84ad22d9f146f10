//! The archive of `make dist` in an arm64 guest: what packaging/check-dist looks at in bare systems of x86-64.

use std::path::Path;

use pciescope_lab::vm::Vm;

use crate::support::PATIENCE;
use crate::support::guest::Guest;

/// `PCIESCOPE_LAB_ARCHIVE` names the archive.
pub fn the_archive_runs_on_arm64() {
    let archive = std::env::var_os("PCIESCOPE_LAB_ARCHIVE")
        .expect("PCIESCOPE_LAB_ARCHIVE names the archive of `make dist ARCH=arm64`: run `make vm-test ARCH=arm64`");
    let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/check-dist");
    let vm = Guest::boot(Vm::builder().file(archive, "/dist/archive.tar.xz").file(check, "/dist/check"));
    // The guest's tar is busybox's, which knows no xz.
    vm.must("cd /dist && xzcat archive.tar.xz | tar xf -");
    let output = vm.run_within("PATH=/lab/usr/bin:$PATH bash /dist/check", PATIENCE);
    let right = output.stdout.lines().filter(|line| line.starts_with("ok ")).count();
    assert!(output.is_success() && right == 12, "{right} checks\n{}\n{}", output.stdout, output.stderr);
    vm.finish(&[]);
}
