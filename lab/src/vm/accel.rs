//! KVM where it boots a guest, TCG elsewhere.
//!
//! `/dev/kvm` may open although no guest can run (nested virtualization may be switched off in the host below). So a
//! tiny guest is booted once with a bound; the answer is kept until the host reboots.

use std::path::Path;
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{env, fs, iter, thread};

use super::LabError;
use super::arch::Arch;
use super::root::{Kernel, Root, cache_dir};

/// How the guest's processors are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    /// By the host's virtualization.
    Kvm,
    /// By translation: slower, so every wait is doubled.
    Tcg,
}

/// How long the tiny guest may take to say its first word. With KVM it takes about one second.
const PROBE: Duration = Duration::from_secs(10);

impl Accel {
    /// What works here. `PCIESCOPE_LAB_ACCEL` (`kvm` or `tcg`) skips the question.
    pub(super) fn detect(root: &Root) -> Result<Accel, LabError> {
        // Guests of another architecture are translated.
        if root.arch() != Arch::Amd64 {
            return Ok(Accel::Tcg);
        }
        match env::var("PCIESCOPE_LAB_ACCEL").ok().as_deref() {
            Some("kvm") => return Ok(Accel::Kvm),
            Some("tcg") => return Ok(Accel::Tcg),
            Some(other) => return Err(LabError::Refused(format!("PCIESCOPE_LAB_ACCEL={other}: neither kvm nor tcg"))),
            None => {}
        }
        if fs::File::options().read(true).write(true).open("/dev/kvm").is_err() {
            return Ok(Accel::Tcg);
        }
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let kept = cache_dir()?.join("kvm");
        // Kept as "works BOOT_ID": a reboot may bring another kernel below us.
        match fs::read_to_string(&kept).ok().as_deref().and_then(|text| text.split_once(' ')) {
            Some((answer, of)) if of.trim() == boot.trim() => {
                return Ok(if answer == "works" { Accel::Kvm } else { Accel::Tcg });
            }
            _ => {}
        }
        let works = probe(root)?;
        let answer = if works { "works" } else { "fails" };
        // Only a cache: where it cannot be written, the next run asks again.
        let _ = fs::create_dir_all(cache_dir()?).and_then(|()| fs::write(&kept, format!("{answer} {boot}")));
        Ok(if works { Accel::Kvm } else { Accel::Tcg })
    }

    /// QEMU's arguments. Translated CPUs lack the features that promise a quick `rep movsb`: QEMU copies single bytes there,
    /// and without them the kernel uses a plain loop, which is three times as quick. Without LA57 a page walk has four levels
    /// instead of five.
    ///
    /// An Arm's pointers are signed by a simpler function than the standard's, which takes most of the time otherwise.
    pub(super) fn args(self, arch: Arch) -> [&'static str; 4] {
        match (self, arch) {
            (Accel::Kvm, _) => ["-accel", "kvm", "-cpu", "host"],
            (Accel::Tcg, Arch::Amd64) => ["-accel", "tcg,thread=multi", "-cpu", "max,-erms,-fsrm,-la57"],
            (Accel::Tcg, Arch::Arm64) => ["-accel", "tcg,thread=multi", "-cpu", "max,pauth-impdef=on"],
        }
    }

    /// What a translated x86-64 guest's kernel need not measure: the rates of the TSC and of its delay loop, with a timer
    /// that ticks `tick_rate` times a second. Its TSC is the host's. Beside other work it measures wrong: the clock then ran
    /// tenfold, and the delays of its second CPU were five times too long. The measurements also take half a second.
    pub(super) fn clock_words(self, arch: Arch, tick_rate: Option<u64>) -> Vec<String> {
        static TSC_HZ: OnceLock<Option<u64>> = OnceLock::new();
        if (self, arch) != (Accel::Tcg, Arch::Amd64) {
            return Vec::new();
        }
        let Some(hz) = *TSC_HZ.get_or_init(tsc_hz) else { return Vec::new() };
        let delay_loop = tick_rate.map(|rate| format!("lpj={}", hz / rate));
        iter::once(format!("tsc_early_khz={}", hz / 1000)).chain(delay_loop).collect()
    }

    /// A wait meant for KVM, as long as it must be here. `PCIESCOPE_LAB_PATIENCE` is one more factor.
    pub fn patience(self, wait: Duration) -> Duration {
        let factor =
            env::var("PCIESCOPE_LAB_PATIENCE").ok().and_then(|text| text.parse().ok()).unwrap_or(1).clamp(1, 100);
        wait * factor * if self == Accel::Tcg { 2 } else { 1 }
    }
}

/// The rate of this machine's TSC in hertz, if it has one, counted for 20 ms against the monotonic clock. Not by the clock of
/// the program's probes: a wrong rate would agree with itself.
fn tsc_hz() -> Option<u64> {
    // The closest of several looks: the thread may be put aside between the two clocks.
    let both = || {
        let looks = (0..16).map(|_| Some((ticks()?, Instant::now(), ticks()?)));
        let (before, time, after) = looks.min_by_key(|look| look.map(|(before, _, after)| after - before)).flatten()?;
        Some((before + (after - before) / 2, time))
    };
    let begin = both()?;
    thread::sleep(Duration::from_millis(20));
    let end = both()?;
    Some(((end.0 - begin.0) as f64 / (end.1 - begin.1).as_secs_f64()) as u64)
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
fn ticks() -> Option<u64> {
    // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
    Some(unsafe { core::arch::x86_64::_rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> Option<u64> {
    None
}

/// Whether a kernel that panics for want of a root file system gets so far under KVM.
fn probe(root: &Root) -> Result<bool, LabError> {
    let image = root.image(&root.release(Kernel::V6_12)?);
    let mut child = root
        .qemu()
        .args("-M q35 -m 256 -nodefaults -display none -no-reboot -accel kvm -cpu host".split(' '))
        .arg("-kernel")
        .arg(image)
        .args(["-append", "panic=-1", "-run-with", "exit-with-parent=on"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(LabError::file("start", Path::new("qemu-system-x86_64")))?;
    let end = Instant::now() + PROBE;
    loop {
        match child.try_wait() {
            // The panic reboots the guest, and -no-reboot ends QEMU with success.
            Ok(Some(status)) => return Ok(status.success()),
            Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(50)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return Ok(false);
            }
        }
    }
}
