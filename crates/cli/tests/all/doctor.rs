//! `doctor` on composed trees: tests/doctor/CHECK.fires and CHECK.quiet are changes to tests/doctor/base.tree, on which
//! nothing is found. docs/doctor.md has their format.
//!
//! What a tree that fires is told stands in CHECK.expected, word for word. After a change that is meant,
//! `UPDATE=1 cargo test -p pciescope-cli --test all doctor::` writes those files anew; the review is their diff.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::common::{self, Ended as Run, pciescope, run};
use pciescope_core::{Ended, Finding, Record, Severity};
use pciescope_support::{self as support, tree::Tree};
use tempfile::TempDir;

/// The program on a tree.
trait Doctored {
    fn patient(&self) -> Patient;

    /// Runs the program once on this tree.
    fn doctor(&self, more: &[&str]) -> Run {
        self.patient().doctor(more)
    }
}

impl Doctored for Tree {
    fn patient(&self) -> Patient {
        let is_watched = self.run.iter().any(|word| word == "--watch");
        Patient { root: self.unpack(), earlier: is_watched.then(|| self.earlier().unpack()), run: self.run.clone() }
    }
}

/// A tree that stands on the disk.
struct Patient {
    root: TempDir,
    earlier: Option<TempDir>,
    run: Vec<String>,
}

impl Patient {
    /// Runs the program on this tree.
    fn doctor(&self, more: &[&str]) -> Run {
        let root = self.root.path().to_str().unwrap();
        let mut args = vec!["--root", root, "doctor"];
        args.extend(self.run.iter().map(String::as_str));
        if let Some(earlier) = &self.earlier {
            args.extend(["--watch-root", earlier.path().to_str().unwrap()]);
        }
        args.extend(more);
        let mut ended = pciescope(&args);
        ended.stdout = ended.stdout.replace(root, "ROOT");
        ended.stderr = ended.stderr.replace(root, "ROOT");
        ended
    }

    fn findings(&self) -> Vec<Finding> {
        self.doctor(&["-j"]).records().into_iter().flat_map(|record| record.findings).collect()
    }
}

fn names(findings: &[Finding]) -> BTreeSet<String> {
    findings.iter().map(|finding| finding.check.clone()).collect()
}

/// The names of all checks, from the program itself.
fn checks() -> Vec<String> {
    subjects().into_keys().collect()
}

/// What each check looks at: `machine` or `function`.
fn subjects() -> BTreeMap<String, String> {
    let list = run("doctor --list").expect_code(0).stdout;
    let words = |line: &str| {
        let mut words = line.split_whitespace().map(str::to_owned);
        (words.next().unwrap(), words.next().unwrap())
    };
    list.lines().take_while(|line| !line.is_empty()).map(words).collect()
}

/// How each check ended, at all that it was for.
fn ends(records: &[Record]) -> BTreeMap<String, Vec<Ended>> {
    let mut ends: BTreeMap<String, Vec<Ended>> = BTreeMap::new();
    for one in records.iter().flat_map(|record| &record.checks) {
        ends.entry(one.check.clone()).or_default().push(one.ended);
    }
    ends
}

/// The checks that looked at nothing.
fn blind(records: &[Record]) -> BTreeSet<String> {
    let has_looked = |ended: &Ended| matches!(ended, Ended::Fine | Ended::Found);
    ends(records).into_iter().filter(|(_, ended)| !ended.iter().any(has_looked)).map(|(name, _)| name).collect()
}

/// Holds an answer against its file.
fn differs(name: &str, answer: &str) -> Option<String> {
    let path = support::tests().join("doctor").join(name);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, answer).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    (answer != expected).then(|| format!("{name}: it says\n{answer}instead of\n{expected}"))
}

#[test]
fn every_check_has_a_tree_in_which_it_fires_and_one_in_which_it_does_not() {
    let checks = checks();
    assert!(checks.len() >= 25, "{checks:?}");
    let there: BTreeSet<String> = fs::read_dir(support::tests().join("doctor"))
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .filter(|name| !name.ends_with(".expected") && name != "base.tree")
        .collect();
    let wanted = checks.iter().flat_map(|name| [format!("{name}.fires"), format!("{name}.quiet")]);
    let extra: BTreeSet<String> = ["user.tree".to_owned()].into();
    let wanted: BTreeSet<String> = wanted.chain(extra).collect();
    assert_eq!(there, wanted);
}

#[test]
fn nothing_is_found_on_the_base_and_all_of_it_is_checked() {
    let ended = Tree::case("base").doctor(&[]).expect_code(0);
    assert_eq!(differs("base.expected", &ended.stdout), None);
    assert!(ended.stdout.contains("no problem, no warning, no note\n  55 fine, 3 not checked"), "{}", ended.stdout);
}

#[test]
fn each_check_speaks_where_it_should_and_nothing_else_does() {
    let base = ends(&Tree::case("base").doctor(&["-j"]).records());
    let mut wrong = Vec::new();
    for name in checks() {
        let tree = Tree::case(&format!("{name}.fires"));
        let patient = tree.patient();
        let findings = patient.findings();
        let mut wanted = tree.also.clone();
        wanted.insert(name.clone());
        if names(&findings) != wanted {
            wrong.push(format!("{name}.fires: {:?}, not {wanted:?}", names(&findings)));
        }
        let own: Vec<&Finding> = findings.iter().filter(|finding| finding.check == name).collect();
        for finding in &own {
            let is_whole = !finding.text.is_empty() && !finding.consequence.is_empty() && !finding.remedy.is_empty();
            assert!(is_whole && finding.evidence.iter().any(|seen| !seen.value.is_empty()), "{finding:?}");
        }
        let is_sick = own.iter().any(|finding| finding.severity > Severity::Note);
        let ended = patient.doctor(&["--only", &name]);
        if ended.code != i32::from(is_sick) {
            wrong.push(format!("{name}.fires: exit code {}: {}", ended.code, ended.stderr));
        }
        wrong.extend(differs(&format!("{name}.expected"), &ended.stdout));

        let tree = Tree::case(&format!("{name}.quiet"));
        let records = tree.doctor(&["-j"]).records();
        // To be quiet without having looked would be no proof; a tree may show that a check is for nothing there.
        let (ended, on_base) = (&ends(&records)[&name], &base[&name]);
        let is_for_nothing = ended.iter().all(|ended| *ended == Ended::NotApplicable);
        if !(ended.contains(&Ended::Fine) || is_for_nothing && on_base.contains(&Ended::Fine)) {
            wrong.push(format!("{name}.quiet: it looked at nothing"));
        }
        let findings: Vec<Finding> = records.into_iter().flat_map(|record| record.findings).collect();
        if names(&findings) != tree.also || tree.also.contains(&name) {
            wrong.push(format!("{name}.quiet: {:?}, not {:?}", names(&findings), tree.also));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_experiments_that_cures_name_are_ones_that_tune_knows() {
    let expected = fs::read_dir(support::tests().join("doctor")).unwrap().map(|entry| entry.unwrap().path());
    let texts = expected.filter(|path| path.extension().is_some_and(|end| end == "expected")).map(fs::read_to_string);
    let words: Vec<String> =
        texts.flat_map(|text| text.unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect();
    let tries: BTreeSet<&String> = words.windows(2).filter(|pair| pair[0] == "--try").map(|pair| &pair[1]).collect();
    assert!(tries.len() >= 5, "{tries:?}");
    for one in tries {
        // One that the synthetic device lacks is refused, too, and by its name.
        let ended = pciescope(&["tune", "02:00.0", "--backend", "fake", "--dry-run", "--shared", "--try", one]);
        assert!(
            !ended.stderr.contains("is no knob") && !ended.stderr.contains("none of its values"),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn the_first_record_has_the_machine_and_each_function_one_of_its_own() {
    let records = Tree::case("link-width.fires").doctor(&["-j"]).expect_code(1).records();
    assert!(records[0].environment.is_some() && records[0].device.is_none());
    assert_eq!(records.len(), 9);
    assert!(records.iter().all(|record| record.verb == "doctor" && record.test == "doctor"));
    let with: Vec<&Record> = records.iter().filter(|record| !record.findings.is_empty()).collect();
    let device = with[0].device.as_ref().unwrap();
    assert_eq!(with.len(), 1);
    assert_eq!(device.bdf, with[0].findings[0].bdf);
}

#[test]
fn a_named_function_is_looked_at_with_the_bridges_above_it() {
    let records = Tree::case("base").doctor(&["05:00.0", "-j"]).expect_code(0).records();
    let looked: Vec<String> =
        records.iter().filter_map(|record| Some(record.device.as_ref()?.bdf?.to_string())).collect();
    assert_eq!(looked, ["0000:00:02.0", "0000:02:00.0", "0000:03:01.0", "0000:05:00.0"]);
    let ended = Tree::case("base").doctor(&["06:00.0"]).expect_code(2);
    assert!(ended.stderr.contains("0000:06:00.0"), "{}", ended.stderr);
}

#[test]
fn what_is_silenced_is_counted_with_its_reason_and_is_no_failure() {
    let mut tree = Tree::case("link-width.fires");
    tree.change("/etc/pciescope/doctor.conf = # ours\\nlink-width@0000:05:00.0   riser ordered in March");
    let ended = tree.doctor(&["--only", "link-width"]).expect_code(0);
    let line = "   link-width@0000:05:00.0 (/etc/pciescope/doctor.conf:2: riser ordered in\n     March)\n";
    assert!(ended.stdout.contains(line), "{}", ended.stdout);
    assert!(
        ended
            .stdout
            .contains("1 check of 8 functions and the machine: no problem, no warning, no note, 1\n  silenced\n"),
        "{}",
        ended.stdout
    );
    // Of another function it does not help.
    let tree = Tree::case("link-width.fires");
    tree.doctor(&["--silence", "link-width@04:00.0"]).expect_code(1);
    tree.doctor(&["--silence", "link-width=known"]).expect_code(0);
    let records = tree.doctor(&["--silence", "link-width=known", "-j"]).expect_code(0).records();
    let finding = records.iter().flat_map(|record| &record.findings).next().unwrap();
    assert!(finding.silenced && finding.evidence.last().unwrap().value == "known");
}

#[test]
fn mistakes_in_names_are_refused_and_explained() {
    for (args, part) in [
        (&["--silence", "link-with"][..], "no check \"link-with\""),
        (&["--silence", "smt@05:00.0"], "not about a function"),
        (&["--only", "all"], "no such check"),
        (&["--silence-file", "/nonexistent/file"], "/nonexistent/file"),
        (&["--watch", "0"], "the shortest time here is 1 ns"),
    ] {
        let ended = Tree::case("base").doctor(args).expect_code(2);
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
}

#[test]
fn without_privilege_it_says_what_it_could_not_look_at() {
    let ended = Tree::case("user.tree").doctor(&[]).expect_code(0);
    assert_eq!(differs("user.expected", &ended.stdout), None);
    assert!(ended.stdout.contains("run it as root"), "{}", ended.stdout);
}

#[test]
fn each_check_ends_once_for_each_subject_and_as_its_record_says() {
    for (name, code) in [("base", 0), ("user.tree", 0), ("link-width.fires", 1), ("not-answering.fires", 1)] {
        let records = Tree::case(name).doctor(&["-j"]).expect_code(code).records();
        assert_eq!(records.len(), 9, "{name}");
        for record in &records {
            let subject = if record.device.is_some() { "function" } else { "machine" };
            let wanted: Vec<String> =
                subjects().into_iter().filter(|(_, of)| of == subject).map(|(name, _)| name).collect();
            let mut ran: Vec<String> = record.checks.iter().map(|one| one.check.clone()).collect();
            ran.sort();
            assert_eq!(ran, wanted, "{name}");
            let ended = |ended: Ended| -> BTreeSet<String> {
                record.checks.iter().filter(|one| one.ended == ended).map(|one| one.check.clone()).collect()
            };
            assert_eq!(ended(Ended::Found), names(&record.findings), "{name}");
            let warned = record.warnings.iter().filter(|warning| warning.code == "not-checked");
            let warned: BTreeSet<String> =
                warned.map(|warning| warning.text.split(':').next().unwrap().to_owned()).collect();
            assert_eq!(ended(Ended::NotChecked), warned, "{name}");
            for one in &record.checks {
                let has_looked = matches!(one.ended, Ended::Fine | Ended::Found);
                assert_eq!(one.why.as_deref().is_none_or(str::is_empty), has_looked, "{name}: {one:?}");
            }
        }
    }
}

#[test]
fn a_named_check_that_looked_at_nothing_says_so_and_has_an_exit_code_of_its_own() {
    let patient = Tree::case("user.tree").patient();
    let blind = blind(&patient.doctor(&["-j"]).records());
    assert!(blind.contains("mps-mismatch") && blind.contains("smi") && !blind.contains("link-speed"), "{blind:?}");
    for name in checks() {
        let ended = patient.doctor(&["--only", &name]);
        assert_eq!(ended.code, if blind.contains(&name) { 2 } else { 0 }, "{name}: {}", ended.stderr);
        let is_said = ended.stdout.contains(&format!("Not checked\n?  {name}")) && ended.stdout.contains("   do      ");
        assert!(is_said || !blind.contains(&name), "{}", ended.stdout);
        // Once: on the standard error where the output is for programs.
        assert_eq!(ended.stderr, "", "{name}");
    }
    let text = patient.doctor(&["--only", "mps-mismatch,link-speed,smi,acs-redirect"]).expect_code(2).stdout;
    assert_eq!(differs("user-only.expected", &text), None);
}

#[test]
fn a_named_check_that_is_for_nothing_here_says_so_too() {
    let base = Tree::case("base").patient();
    // A root port has no link above it, and is on: one check is blind, the other is not.
    let ended = base.doctor(&["00:01.0", "--only", "link-width,power-state"]).expect_code(2);
    let why = "link-width: it does not apply to the function: no link leads up from it";
    assert!(!ended.stdout.contains("?  power-state"), "{}", ended.stdout);
    assert!(ended.stdout.contains("Not checked\n?  link-width: it does not apply"), "{}", ended.stdout);
    let ended = base.doctor(&["00:01.0", "--only", "link-width", "-j"]).expect_code(2);
    assert!(ended.stderr.contains(&format!("pciescope: not checked: {why}\nhint: it looks at: ")), "{}", ended.stderr);
    let records = ended.records();
    let warnings: Vec<&str> = records[0].warnings.iter().map(|warning| warning.text.as_str()).collect();
    assert_eq!(warnings, [why]);
    assert_eq!(ends(&records)["link-width"], [Ended::NotApplicable]);
    // With the card below it there is something to look at, and all is well.
    base.doctor(&["01:00.0", "--only", "link-width"]).expect_code(0);
    // Where the kernel has no such thing.
    let mut tree = Tree::case("base");
    tree.change("remove /sys/devices/system/cpu/cpufreq\nremove /sys/kernel/security/lockdown");
    let ended = tree.doctor(&["--only", "governor,lockdown,smt"]).expect_code(2);
    for said in
        ["?  governor: no CPU has a frequency governor", "?  lockdown: there is no /sys/kernel/security/lockdown"]
    {
        assert!(ended.stdout.contains(said), "{}", ended.stdout);
    }
    assert!(ended.stdout.contains("2 with nothing to look at") && !ended.stdout.contains("smt"), "{}", ended.stdout);
    // In a run of all checks they are counted, and nobody asked for them: that is no failure.
    assert!(tree.doctor(&[]).expect_code(0).stdout.contains("with nothing to"));
    // What was found weighs more than what could not be looked at; both are said.
    let ended = Tree::case("link-width.fires").doctor(&["--only", "link-width,replay-growth"]).expect_code(1);
    assert!(ended.stdout.contains("?  replay-growth"), "{}", ended.stdout);
}

#[test]
fn half_a_path_that_cannot_be_read_is_not_taken_for_a_healthy_one() {
    let mut tree = Tree::case("base");
    tree.change("cut 0000:00:01.0 64");
    for check in ["mps-mismatch", "mps-low", "bar-outside-window"] {
        let ended = tree.doctor(&["01:00.0", "--only", check]).expect_code(2);
        assert!(ended.stdout.contains("only the first 64 bytes"), "{}", ended.stdout);
    }
    // Without the extended half of configuration space, capabilities there are not known to be absent.
    let mut tree = Tree::case("base");
    tree.change("cut 0000:03:00.0 256\ncut 0000:03:01.0 256");
    let ended = tree.doctor(&["05:00.0", "04:00.0", "--only", "acs-redirect"]).expect_code(2);
    assert!(ended.stdout.contains("first 256 bytes"), "{}", ended.stdout);
    // A driver is bound and bus mastering off: whether that hurts stands where a user may not read.
    let mut tree = Tree::case("base");
    tree.change("config 0000:01:00.0 0x04: 02\ncut 0000:01:00.0 64");
    let records = tree.doctor(&["01:00.0", "--only", "bus-master-off", "-j"]).expect_code(0).records();
    assert!(ends(&records)["bus-master-off"].contains(&Ended::NotChecked), "{:?}", ends(&records));
}

#[test]
fn translation_that_is_lazy_everywhere_is_a_note() {
    let mut tree = Tree::case("iommu-translates.fires");
    tree.change("/sys/kernel/iommu_groups/5/type = DMA-FQ");
    let text = tree.doctor(&["--only", "iommu-translates", "--all"]).expect_code(0).stdout;
    assert!(text.contains("0 strict (DMA), 2"), "{text}");
    assert!(text.contains("no problem, no warning, 1 note"), "{text}");
}

#[test]
fn a_compressed_module_is_not_checked_and_the_way_to_look_is_said() {
    for ending in ["xz", "zst", "gz"] {
        let mut tree = Tree::case("module-unsigned.fires");
        let path = "/lib/modules/6.12.48-generic/updates/dkms/pcilat.ko";
        tree.change(&format!("remove {path}\n{path}.{ending} = packed"));
        let text = tree.doctor(&["--only", "module-unsigned"]).expect_code(2).stdout;
        assert!(text.contains("modinfo -F signer pcilat"), "{text}");
        assert!(text.contains("no problem, no warning, no note\n  1 not checked"), "{text}");
    }
}

#[test]
fn records_are_written_beside_the_text_and_report_shows_them() {
    let folder = common::folder("doctor-records");
    let file = folder.join("found.jsonl");
    let file = file.to_str().unwrap();
    let tree = Tree::case("aspm.fires");
    let text = tree.doctor(&["-o", file]).expect_code(1).stdout;
    assert!(text.contains("\nWarnings\n!  aspm  0000:"), "{text}");
    let refused = tree.doctor(&["-o", file]).expect_code(2);
    assert!(refused.stderr.contains("--overwrite"), "{}", refused.stderr);
    let shown = pciescope(&["report", file, "--all"]).expect_code(0).stdout;
    assert!(shown.contains("== What spoils performance or a measurement"), "{shown}");
    assert!(shown.contains("!  warning  aspm\n"), "{shown}");
    assert!(shown.contains("checks of 8 functions and the machine: no problem, 1 warning"), "{shown}");
}

#[test]
fn a_synthetic_machine_has_no_more_for_root() {
    let shown = run("doctor --backend fake --all").expect_code(1).stdout;
    assert!(shown.contains("do      the synthetic machine does not have it"), "{shown}");
    assert!(!shown.contains("as root"), "{shown}");
}

#[test]
fn list_takes_neither_a_virtual_function_nor_a_sleeper_for_a_device_that_is_gone() {
    let list = |name: &str| {
        let patient = Tree::case(name).patient();
        pciescope(&["--root", patient.root.path().to_str().unwrap(), "list", "-j"]).expect_code(0).stdout
    };
    assert!(list("not-answering.fires").contains("removed or powered down"));
    let quiet = list("not-answering.quiet");
    assert!(!quiet.contains("removed or powered down"), "{quiet}");
    assert!(quiet.contains("it sleeps in D3cold"), "{quiet}");
}
