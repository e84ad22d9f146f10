//! Checks: devices that enter power-saving states.

use pciescope_core::Severity;

use super::case::{Case, Found, Verdict, fine, found, not_applicable};

pub fn state(case: &Case) -> Verdict {
    let state = case.file("power_state")?;
    if !state.starts_with('D') {
        return not_applicable("the kernel has not asked for its power state");
    }
    if state == "D0" {
        return fine();
    }
    // A bridge with nothing to do sleeps, and so does what the kernel, or vfio-pci, put to sleep while nobody uses it.
    let is_by_design = case.is_bridge()
        || case.function.driver.as_deref().is_none_or(|driver| driver == "vfio-pci")
        || case.text("power/runtime_status").is_some_and(|status| status == "suspended");
    let severity = if is_by_design { Severity::Note } else { Severity::Warning };
    found(Found {
        severity,
        text: format!("{} sleeps in {state}", case.bdf),
        evidence: vec![case.seen("power_state"), case.seen("power/control")],
        consequence: "its registers read all-ones, or the first access waits milliseconds until it is awake",
        remedy: format!("echo on > {}", case.path("power/control").display()),
    })
}

pub fn runtime(case: &Case) -> Verdict {
    case.not_a_bridge()?;
    case.driver()?;
    if case.file("power/control")? != "auto" {
        return fine();
    }
    // A driver that does not take part is never put to sleep.
    if !matches!(case.text("power/runtime_status").as_deref(), Some("active" | "suspended" | "suspending" | "resuming"))
    {
        return fine();
    }
    found(Found {
        severity: Severity::Note,
        text: format!("the kernel may put {} to sleep while nothing uses it", case.bdf),
        evidence: vec![case.seen("power/control"), case.seen("power/runtime_status")],
        consequence: "an access after a pause waits until the device is awake",
        remedy: format!("echo on > {}", case.path("power/control").display()),
    })
}
