//! Warnings about a machine or a device that harms a latency measurement: the checks of [`crate::doctor`] that have a
//! warning's code.

use pciescope_core::warning;
use pciescope_core::{Environment, Function, Warning};

use crate::doctor::{CHECKS, Case, Machine, Scope, Verdict, Warns};
use crate::{Root, pci};

/// What spoils a latency measurement of this function on this machine.
pub fn warnings(root: &Root, environment: &Environment, function: Option<&Function>) -> Vec<Warning> {
    let mut all = function.map_or_else(Vec::new, |function| function_warnings(root, environment, function));
    all.extend(machine_warnings(root, environment));
    all
}

/// What of this function and its path does.
pub fn function_warnings(root: &Root, environment: &Environment, function: &Function) -> Vec<Warning> {
    let Some(own) = function.bdf else { return Vec::new() };
    let guest = environment.hypervisor.as_deref();
    let mut known: Vec<Function> = function.path.iter().filter_map(|bdf| pci::load(root, *bdf, guest).ok()).collect();
    known.push(function.clone());
    let machine = Machine::new(root, environment, known);
    let mut warnings = Vec::new();
    for check in CHECKS {
        let Scope::Function(judge) = check.scope else { continue };
        let (kind, is_path) = match check.warns {
            Warns::No => continue,
            Warns::Own(kind) => (kind, false),
            Warns::Path(kind) => (kind, true),
        };
        let above = function.path.iter().filter(|_| is_path);
        for case in above.chain([&own]).filter_map(|bdf| Case::of(&machine, *bdf)) {
            warnings.extend(warnings_of(kind, judge(&case)));
        }
    }
    warnings
}

/// The warnings about this machine, for every function.
pub fn machine_warnings(root: &Root, environment: &Environment) -> Vec<Warning> {
    let machine = Machine::new(root, environment, Vec::new());
    let mut warnings = Vec::new();
    for check in CHECKS {
        let (Scope::Machine(judge), Warns::Own(kind)) = (check.scope, check.warns) else { continue };
        warnings.extend(warnings_of(kind, judge(&machine)));
    }
    warnings
}

/// The findings of a check as warnings. A check that did not look gives none: `doctor` says so, a measurement need not.
fn warnings_of(kind: &warning::Kind, verdict: Verdict) -> impl Iterator<Item = Warning> {
    verdict.unwrap_or_default().into_iter().map(|found| kind.hinted(found.text, found.remedy))
}
