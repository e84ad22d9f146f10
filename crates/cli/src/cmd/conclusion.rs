//! The end of a verb that measures: its messages on the standard error, and the exit code.

use pciescope_core::Failure;
use std::process::ExitCode;

use pciescope_bench::Summary;

use super::{Ctx, say};

/// How many failed checks are named before the rest is only counted.
const CHECKS_SHOWN: usize = 5;

/// Prints on the standard error what went wrong, and returns the exit code.
pub fn conclude(ctx: &Ctx, summary: &Summary, is_table: bool) -> ExitCode {
    ctx.complain(&summary.failures);
    for check in summary.failed_checks.iter().take(CHECKS_SHOWN) {
        say(&format!("pciescope: {check}\n"));
    }
    if summary.failed_checks.len() > CHECKS_SHOWN {
        say(&format!(
            "pciescope: and {} more failed checks: -o FILE or -j keeps them\n",
            summary.failed_checks.len() - CHECKS_SHOWN
        ));
    }
    // The tables end with the warnings; records hold them too.
    if !is_table && ctx.verbose > 0 {
        for warning in &summary.warnings {
            ctx.note(&format!("warning: {}", warning.text));
            ctx.hint(&warning.hint);
        }
    }
    let is_interrupted = summary.failures.iter().any(Failure::is_interrupted);
    match ctx.stop.exit_code() {
        Some(code) if is_interrupted => ExitCode::from(code),
        _ if summary.failures.iter().any(|failure| !failure.is_too_slow()) => ExitCode::from(2),
        _ if !summary.failures.is_empty() => ExitCode::from(1),
        _ if !summary.failed_checks.is_empty() => ExitCode::from(1),
        _ => ExitCode::SUCCESS,
    }
}
