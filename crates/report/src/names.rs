//! What runs are called: by their labels, else by their files and times, never by their random numbers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use pciescope_core::Record;

use crate::jsonl;

/// A run without a label: its file, in words, and when it began.
struct Unnamed {
    file: String,
    date: String,
    time: String,
}

/// Labels the runs that have no label, where there are several runs: with the name of the file, and with the time in UTC
/// where the file has several runs or no name. Runs of one label get their time behind it. `files` has the file of a run. No
/// two of them get the same label.
pub fn name_runs(records: &mut [Record], files: &HashMap<String, Box<Path>>) {
    let mut labels: HashMap<&str, &str> = HashMap::new();
    let mut runs: Vec<&str> = Vec::new();
    let mut began: HashMap<&str, &str> = HashMap::new();
    for record in records.iter() {
        if let Some(label) = &record.label {
            labels.insert(&record.run, label);
        }
        let first = began.entry(&record.run).or_insert_with(|| {
            runs.push(&record.run);
            &record.time
        });
        // The first record of a run may stand anywhere in a file.
        *first = (*first).min(&record.time);
    }
    if runs.len() < 2 {
        return;
    }
    let file = |run: &str| files.get(run).filter(|path| path.as_os_str() != "-").map(|path| &**path);
    let short = |path: &Path| jsonl::name(path.with_extension("").file_name().map_or(path, Path::new));
    let all: BTreeSet<&Path> = runs.iter().filter_map(|run| file(run)).collect();
    let is_alone = |path: &Path| all.iter().filter(|other| short(other) == short(path)).count() == 1;
    let is_shared = |label: &&str| labels.values().filter(|other| *other == label).count() > 1;
    let unnamed = runs.iter().filter(|run| labels.get(**run).is_none_or(is_shared)).map(|run| {
        let (date, time) = began[run].split_once('T').unwrap_or(("", began[run]));
        let time = time.split(['.', 'Z']).next().unwrap_or_default().to_owned();
        let file = file(run).map(|path| if is_alone(path) { short(path) } else { jsonl::name(path) });
        let file = labels.get(*run).map(|label| (*label).to_owned()).or(file);
        ((*run).to_owned(), Unnamed { file: file.unwrap_or_default(), date: date.to_owned(), time })
    });
    let unnamed: Vec<(String, Unnamed)> = unnamed.collect();
    let days: BTreeSet<&str> = unnamed.iter().map(|(_, run)| &*run.date).collect();
    let mut used: BTreeMap<String, usize> = BTreeMap::new();
    let mut names: HashMap<&str, String> = HashMap::new();
    for (id, run) in &unnamed {
        let is_whole_file =
            !run.file.is_empty() && unnamed.iter().filter(|(_, other)| other.file == run.file).count() == 1;
        let when = if days.len() > 1 { [&*run.date, &*run.time] } else { ["", &*run.time] };
        let parts: &[&str] = if is_whole_file { &[&run.file] } else { &[&run.file, when[0], when[1]] };
        let name = parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(" ");
        let count = used.entry(name.clone()).and_modify(|count| *count += 1).or_insert(1);
        names.insert(id, if *count > 1 { format!("{name} ({count})") } else { name });
    }
    for record in records {
        if let Some(name) = names.get(&*record.run) {
            record.label = Some(name.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_named_by_its_file_and_where_that_has_several_by_its_time() {
        let named = |runs: &[(&str, &str, Option<&str>)]| {
            let record = |(number, (_, time, label)): (usize, &(&str, &str, Option<&str>))| Record {
                run: format!("{number:016x}"),
                time: (*time).to_owned(),
                label: label.map(str::to_owned),
                ..Record::default()
            };
            let mut records: Vec<Record> = runs.iter().enumerate().map(record).collect();
            let files = records.iter().zip(runs).map(|(record, run)| (record.run.clone(), Path::new(run.0).into()));
            let files = files.collect();
            name_runs(&mut records, &files);
            records.into_iter().map(|record| record.label.unwrap_or_default()).collect::<Vec<_>>().join("|")
        };
        let (early, late, tomorrow) = ("2026-11-21T09:00:00.5Z", "2026-11-21T10:30:00Z", "2026-11-22T09:00:00Z");
        for (runs, wanted) in [
            (&[("a.jsonl", early, None)][..], ""),
            (&[("x/a.jsonl", early, None), ("x/b.jsonl", early, None)], "a|b"),
            (&[("x/a.jsonl", early, None), ("y/a.jsonl", early, None)], "x/a.jsonl|y/a.jsonl"),
            (&[("a.jsonl", early, None), ("a.jsonl", late, None)], "a 09:00:00|a 10:30:00"),
            (&[("a.jsonl", early, None), ("a.jsonl", tomorrow, None)], "a 2026-11-21 09:00:00|a 2026-11-22 09:00:00"),
            (&[("-", early, None), ("-", early, None)], "09:00:00|09:00:00 (2)"),
            (&[("a.jsonl", early, Some("old")), ("a.jsonl", late, None)], "old|a"),
            (&[("a.jsonl", early, Some("x")), ("b.jsonl", late, Some("x"))], "x 09:00:00|x 10:30:00"),
            (&[("a.jsonl", early, Some("x")), ("b.jsonl", early, Some("x"))], "x 09:00:00|x 09:00:00 (2)"),
        ] {
            assert_eq!(named(runs), wanted, "{runs:?}");
        }
    }
}
