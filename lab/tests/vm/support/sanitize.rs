//! Guest kernels that look for faults (lab/setup-sanitize): what they are asked when a test is over.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs};

use pciescope_lab::vm::{Arch, Kernel, Root, Vm};

use super::lab_failed;

/// Ending of the release of a kernel with KASAN, kmemleak and gcov.
const KASAN: &str = "-kasan";

/// Ending of the release of a kernel that looks for data races.
const KCSAN: &str = "-kcsan";

/// Asks for leaks twice: kmemleak reports an object once it has found it lost in two scans, and no sooner than five seconds
/// after it was made. The modules must still be loaded. A kernel in lockdown lets nobody ask.
const LEAKS: &str = "grep -q lockdown= /proc/cmdline && exit; \
    k=/sys/kernel/debug/kmemleak; echo scan >$k && sleep 6 && echo scan >$k && cat $k >/dev/console";

/// Copies the counts of lines that ran. They are there for modules that were unloaded, too. tar would take them for empty.
const LINES: &str = "cd /sys/kernel/debug/gcov || exit 0; find . -name '*.gcda' | while read -r f; do \
    mkdir -p \"/host/gcov/${f%/*}\" && cat \"$f\" >\"/host/gcov/$f\"; done";

/// Numbers the folders of the guests.
static GUESTS: AtomicU32 = AtomicU32::new(0);

/// Whether the lab's guest kernels are those with KASAN. Such a root has one kernel.
pub fn has_kasan() -> bool {
    let Ok(root) = Arch::chosen().and_then(Root::find) else { return false };
    let mut releases = [Kernel::V6_12, Kernel::Newest].into_iter().filter_map(|kernel| root.release(kernel).ok());
    releases.any(|release| release.ends_with(KASAN))
}

/// Looks for leaks of memory, before the modules go. The kernel's log tells. A kernel with KCSAN must have it switched on:
/// otherwise a log without races says nothing.
pub fn look_before_unloading(vm: &Vm) {
    if vm.release().ends_with(KCSAN) {
        vm.must("grep -x 'enabled: 1' /sys/kernel/debug/kcsan").unwrap_or_else(|err| lab_failed(err));
    }
    if vm.release().ends_with(KASAN) {
        vm.must(LEAKS).unwrap_or_else(|err| lab_failed(err));
    }
}

/// Keeps which lines of the modules ran, in a folder of its own below `PCIESCOPE_LAB_GCOV`, if that is set.
pub fn keep_lines(vm: &Vm) {
    let Some(target) = env::var_os("PCIESCOPE_LAB_GCOV").filter(|_| vm.release().ends_with(KASAN)) else { return };
    vm.must(LINES).unwrap_or_else(|err| lab_failed(err));
    let from = vm.share().join("gcov");
    let number = GUESTS.fetch_add(1, Ordering::Relaxed);
    let to = PathBuf::from(target).join(format!("{}-{number}", std::process::id()));
    if from.exists() {
        copy(&from, &to).unwrap_or_else(|err| panic!("the lab failed: copying to {}: {err}", to.display()));
    }
}

fn copy(from: &std::path::Path, to: &std::path::Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() { copy(&entry.path(), &to)? } else { fs::copy(entry.path(), to).map(drop)? }
    }
    Ok(())
}
