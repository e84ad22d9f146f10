//! The systemd unit: what it gives to the service, what it keeps from it, and what systemd says of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use pciescope_support::tools::is_there;

fn unit() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd/pciescope-exporter.service")
}

/// All values of a key.
fn values(text: &str, key: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    lines.map(str::to_owned).collect()
}

#[test]
fn the_service_may_open_counters_and_nothing_else() {
    let text = std::fs::read_to_string(unit()).unwrap();
    for key in ["AmbientCapabilities", "CapabilityBoundingSet"] {
        assert_eq!(values(&text, key), ["CAP_PERFMON"], "{key}");
    }
    for (key, value) in [
        ("DynamicUser", "yes"),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "yes"),
        ("PrivateDevices", "yes"),
        ("ProtectKernelModules", "yes"),
        ("ProtectKernelTunables", "yes"),
        ("MemoryDenyWriteExecute", "yes"),
        ("RestrictNamespaces", "yes"),
        ("SystemCallArchitectures", "native"),
        // Restarted every 5 seconds 10 seconds would never see so many.
        ("StartLimitIntervalSec", "10min"),
        ("StartLimitBurst", "20"),
    ] {
        assert_eq!(values(&text, key), [value], "{key}");
    }
    // Counters of the whole machine belong to the machine's own user namespace.
    assert!(values(&text, "PrivateUsers").is_empty());
    assert!(values(&text, "SystemCallFilter")[0].contains("perf_event_open"));
    assert!(values(&text, "ReadWritePaths").is_empty() && values(&text, "User").is_empty());
}

#[test]
fn systemd_takes_the_unit_and_finds_it_safe() {
    if !is_there("systemd-analyze") {
        return;
    }
    // The program need not be installed here.
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("pciescope-exporter.service");
    let text = std::fs::read_to_string(unit()).unwrap();
    std::fs::write(&copy, text.replace("/usr/bin/pciescope", "/bin/true").replace("man:", "https://")).unwrap();
    let analyze = |args: &[&str]| {
        let output = Command::new("systemd-analyze").args(args).arg(&copy).output().unwrap();
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout),
        )
    };
    let (is_fine, said) = analyze(&["verify"]);
    let about: Vec<_> = said.lines().filter(|line| line.contains("pciescope")).collect();
    assert!(is_fine && about.is_empty(), "{said}");
    // 0 is locked up, 100 is bare; what this service needs leaves it at 15.
    let (is_safe, said) = analyze(&["security", "--offline=true", "--threshold=15"]);
    assert!(is_safe, "{said}");
    eprintln!("{}", said.lines().last().unwrap_or_default());
}
