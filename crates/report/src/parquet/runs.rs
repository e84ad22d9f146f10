//! The table of runs: one row for each, with its machine and its plan.

use std::collections::{BTreeMap, BTreeSet};

use pciescope_core::{Cpu, Environment, Host, Plan, Record};

use super::table::Get::{Text, Time, Whole};
use super::table::{Column, micros, text};

/// What the records of a run say of it.
#[derive(Debug, Default)]
pub struct Run {
    run: String,
    verb: String,
    label: Option<String>,
    times: Option<(i64, i64)>,
    records: u64,
    errors: u64,
    environment: Option<Environment>,
    plan: Option<Plan>,
}

/// Runs in the order in which their first records come.
#[derive(Debug, Default)]
pub struct Runs {
    all: Vec<Run>,
    places: BTreeMap<String, usize>,
}

impl Runs {
    /// Takes a record: only what is of its run is kept.
    pub fn put(&mut self, record: &Record) {
        let place = *self.places.entry(record.run.clone()).or_insert_with(|| {
            self.all.push(Run { run: record.run.clone(), verb: record.verb.clone(), ..Run::default() });
            self.all.len() - 1
        });
        let run = &mut self.all[place];
        run.records += 1;
        run.errors += u64::from(record.error.is_some());
        // A run may have its label in some of its records only; the plan of a readout's group is not the run's.
        run.label = run.label.take().or_else(|| record.label.clone());
        run.environment = run.environment.take().or_else(|| record.environment.clone());
        run.plan = run.plan.take().or_else(|| record.plan.clone());
        if let Some(time) = micros(&record.time) {
            run.times = Some(run.times.map_or((time, time), |(from, to)| (from.min(time), to.max(time))));
        }
    }

    /// The rows.
    pub fn rows(&self) -> &[Run] {
        &self.all
    }
}

/// The columns of the table.
pub fn columns() -> Vec<Column<Run>> {
    vec![
        ("run", Text(|run: &Run| Some(run.run.clone()))),
        ("verb", Text(|run: &Run| Some(run.verb.clone()))),
        ("label", Text(|run: &Run| run.label.clone())),
        ("first_time", Time(|run: &Run| Some(run.times?.0))),
        ("last_time", Time(|run: &Run| Some(run.times?.1))),
        ("records", Whole(64, |run: &Run| Some(run.records))),
        ("errors", Whole(64, |run: &Run| Some(run.errors))),
        ("tool", Text(|run: &Run| text(&run.environment.as_ref()?.tool))),
        ("kernel", Text(|run: &Run| text(&run.environment.as_ref()?.kernel))),
        ("machine", Text(|run: &Run| text(&run.environment.as_ref()?.machine))),
        ("host", Text(|run: &Run| Some(host(run)?.name.clone()))),
        ("host_id", Text(|run: &Run| host(run)?.id.clone())),
        ("serial", Text(|run: &Run| host(run)?.serial.clone())),
        ("bios_version", Text(|run: &Run| run.environment.as_ref()?.bios_version.clone())),
        ("bios_date", Text(|run: &Run| run.environment.as_ref()?.bios_date.clone())),
        ("product", Text(|run: &Run| run.environment.as_ref()?.product.clone())),
        ("cpu_model", Text(|run: &Run| run.environment.as_ref()?.cpu_model.clone())),
        ("cpus", Whole(32, |run: &Run| Some(run.environment.as_ref()?.cpus.len() as u64))),
        ("nodes", Whole(32, |run: &Run| distinct(run, |cpu| cpu.node))),
        ("packages", Whole(32, |run: &Run| distinct(run, |cpu| cpu.package))),
        ("cmdline", Text(|run: &Run| run.environment.as_ref()?.cmdline.clone())),
        ("clocksource", Text(|run: &Run| run.environment.as_ref()?.clocksource.clone())),
        ("governors", Text(|run: &Run| text(&run.environment.as_ref()?.governors.join(" ")))),
        ("idle_states", Text(|run: &Run| text(&run.environment.as_ref()?.idle_states.join(" ")))),
        ("aspm_policy", Text(|run: &Run| run.environment.as_ref()?.aspm_policy.clone())),
        ("lockdown", Text(|run: &Run| run.environment.as_ref()?.lockdown.clone())),
        ("iommu_groups", Whole(32, |run: &Run| Some(run.environment.as_ref()?.iommu_groups.into()))),
        ("hypervisor", Text(|run: &Run| run.environment.as_ref()?.hypervisor.clone())),
        ("steal_ns", Whole(64, |run: &Run| run.environment.as_ref()?.steal_ns)),
        ("environment", Text(|run: &Run| json(run.environment.as_ref()?))),
        ("plan", Text(|run: &Run| json(run.plan.as_ref()?))),
    ]
}

fn host(run: &Run) -> Option<&Host> {
    run.environment.as_ref()?.host.as_ref()
}

/// How many groups the machine's CPUs fall into; `None` where no CPU's is known.
fn distinct(run: &Run, of: fn(&Cpu) -> Option<u32>) -> Option<u64> {
    let groups: BTreeSet<u32> = run.environment.as_ref()?.cpus.iter().filter_map(of).collect();
    (!groups.is_empty()).then_some(groups.len() as u64)
}

/// As in the record: readers have functions for JSON.
fn json(value: &impl serde::Serialize) -> Option<String> {
    serde_json::to_string(value).ok()
}
