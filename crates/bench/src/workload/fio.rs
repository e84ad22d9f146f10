//! fio on a disk or a file: the seed's workload, and what its own report says that it moved.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use pciescope_hw::wait::OwnGroup;
use serde::Deserialize;

use super::{Error, IsStopped, Moved};

/// So often a run is looked at for its end.
const TICK: Duration = Duration::from_millis(50);

pciescope_core::named! {
    /// Which way the data goes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Way {
        /// fio's `read`.
        Read => "read",
        /// fio's `write`.
        Write => "write",
        /// fio's `readwrite`, half and half.
        Both => "readwrite",
    }
    /// fio's word for it.
    fn name
}

/// A run of fio: as in the seed, four processes of 64 requests of 1 MiB each around the page cache, unless said otherwise.
#[derive(Debug, Clone)]
pub struct Job {
    /// fio, found in the PATH, or a path.
    pub program: PathBuf,
    /// The disk or file.
    pub target: PathBuf,
    /// Which way.
    pub way: Way,
    /// How long, in seconds.
    pub seconds: u32,
    /// Arguments that are added as they are, such as `--rate=200m`.
    pub more: Vec<String>,
}

impl Job {
    /// The seed's run on `target`.
    pub fn new(target: &Path, way: Way, seconds: u32) -> Self {
        Job { program: PathBuf::from("fio"), target: target.to_owned(), way, seconds, more: Vec::new() }
    }

    /// fio's arguments, without the program.
    pub fn arguments(&self) -> Vec<String> {
        let mut all = vec![
            format!("--name=pciescope-{}", self.way.name()),
            // A colon ends a name, unless a backslash is before it; other backslashes are part of the name.
            format!("--filename={}", self.target.display().to_string().replace(':', "\\:")),
            format!("--rw={}", self.way.name()),
            "--bs=1048576".to_owned(),
            "--numjobs=4".to_owned(),
            "--iodepth=64".to_owned(),
            format!("--runtime={}", self.seconds),
            "--ioengine=libaio".to_owned(),
            "--direct=1".to_owned(),
            "--time_based=1".to_owned(),
            "--group_reporting".to_owned(),
            "--output-format=json".to_owned(),
        ];
        if self.way == Way::Read {
            // fio itself then refuses to write, whatever else it is told.
            all.push("--readonly".to_owned());
        }
        all.extend(self.more.iter().cloned());
        all
    }

    /// Runs fio. If `is_stopped` returns true, fio is interrupted as by Ctrl-C, and reports what it has moved until
    /// then. Ctrl-C itself does not reach it.
    ///
    /// # Errors
    /// [`Error::Start`]; [`Error::Ended`] where it failed; [`Error::Report`] where its report is not fio's.
    pub fn run(&self, is_stopped: IsStopped) -> Result<Moved, Error> {
        let program = self.program.display().to_string();
        let fail = |source| Error::Start { program: program.clone(), source };
        // Files, not pipes: a report of any length never stops it.
        let (mut stdout, mut stderr) = (tempfile::tempfile().map_err(fail)?, tempfile::tempfile().map_err(fail)?);
        let mut command = Command::new(&self.program);
        command.args(self.arguments()).stdin(Stdio::null());
        command.stdout(stdout.try_clone().map_err(fail)?).stderr(stderr.try_clone().map_err(fail)?);
        let mut fio = OwnGroup::start(&mut command).map_err(fail)?;
        let mut is_interrupted = false;
        let status = loop {
            if let Some(status) = fio.status().map_err(fail)? {
                break status;
            }
            if is_stopped() && !is_interrupted {
                is_interrupted = true;
                fio.interrupt();
            }
            std::thread::sleep(TICK);
        };
        let report = text(&mut stdout);
        // Interrupted, it reports and may end with the signal's number.
        if !status.success() && !is_interrupted {
            let said = [report, text(&mut stderr)].concat();
            let last = said.lines().rfind(|line| line.starts_with("fio:")).or(said.lines().last()).unwrap_or("no word");
            return Err(Error::Ended { program, status, last: last.trim().to_owned() });
        }
        parse(&report).map_err(|why| Error::Report { program, why })
    }
}

fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    // What cannot be read back is missing from the report, which is then refused.
    let _ = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// fio's JSON, as far as it matters here.
#[derive(Deserialize)]
struct Report {
    jobs: Vec<FioGroup>,
}

#[derive(Deserialize)]
struct FioGroup {
    error: i64,
    read: Side,
    write: Side,
}

#[derive(Deserialize)]
struct Side {
    io_bytes: u64,
    /// Milliseconds.
    runtime: u64,
}

/// What fio's JSON says was moved. Warnings before it are skipped.
fn parse(text: &str) -> Result<Moved, String> {
    let json = text.find("\n{").map_or(text, |at| &text[at..]);
    let report: Report = serde_json::from_str(json).map_err(|err| err.to_string())?;
    let mut moved = Moved::default();
    for group in &report.jobs {
        if group.error != 0 {
            return Err(format!("it reports error {}", group.error));
        }
        moved.read_bytes += group.read.io_bytes;
        moved.written_bytes += group.write.io_bytes;
        moved.ns = moved.ns.max(group.read.runtime.max(group.write.runtime) * 1_000_000);
    }
    Ok(moved)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"{"fio version":"fio-3.39","jobs":[
        {"jobname":"a","error":0,"read":{"io_bytes":1048576,"runtime":1000,"bw":1},"write":{"io_bytes":0,"runtime":0}},
        {"jobname":"b","error":0,"read":{"io_bytes":1,"runtime":2000},"write":{"io_bytes":5,"runtime":30}}]}"#;

    #[test]
    fn groups_add_up_and_the_longest_counts() {
        let want = Moved { read_bytes: 1_048_577, written_bytes: 5, ns: 2_000_000_000 };
        assert_eq!(parse(JSON), Ok(want));
        assert_eq!(parse(&format!("fio: a warning {{\nnote\n{JSON}")), Ok(want));
    }

    #[test]
    fn what_is_no_report_or_reports_an_error_is_refused() {
        for text in ["", "{}", "fio: no such file\n", &JSON.replacen("\"error\":0", "\"error\":5", 1)] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn reading_never_lets_fio_write() {
        let arguments = |way| Job::new(Path::new("/dev/nvme0n1"), way, 20).arguments();
        assert!(arguments(Way::Read).contains(&"--readonly".to_owned()));
        assert!(!arguments(Way::Both).contains(&"--readonly".to_owned()));
        assert!(arguments(Way::Both).contains(&"--rw=readwrite".to_owned()));
    }

    #[test]
    fn a_name_with_colons_is_one_name() {
        // As fio takes it apart: options.c, get_next_str.
        for (name, typed) in [
            ("/dev/disk/by-path/pci-0000:3b:00.0-nvme-1", r"/dev/disk/by-path/pci-0000\:3b\:00.0-nvme-1"),
            (r"/mnt/a\b", r"/mnt/a\b"),
            (r"/mnt/a\:b", r"/mnt/a\\:b"),
        ] {
            let arguments = Job::new(Path::new(name), Way::Read, 20).arguments();
            assert!(arguments.contains(&format!("--filename={typed}")), "{arguments:?}");
        }
    }

    fn script(text: &str) -> (tempfile::TempDir, Job) {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("fio");
        std::fs::write(&program, format!("#!/bin/sh\n{text}")).expect("a script");
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("its mode");
        let job = Job { program, ..Job::new(Path::new("/dev/null"), Way::Read, 1) };
        (folder, job)
    }

    #[test]
    fn a_failure_is_told_by_its_own_words_and_a_missing_program_by_name() {
        let (_folder, job) = script("echo 'fio: failed to open /dev/null' >&2; echo more >&2; exit 1");
        let failed = job.run(&|| false).unwrap_err();
        assert_eq!(
            failed.to_string(),
            format!("{} ended with exit status: 1: fio: failed to open /dev/null", job.program.display())
        );
        let gone = Job { program: "/nonexistent/fio".into(), ..job }.run(&|| false).unwrap_err();
        assert!(gone.hint().is_some_and(|hint| hint.contains("apt-get")), "{gone}");
    }

    #[test]
    fn a_run_that_is_stopped_is_interrupted_and_reports_what_it_moved() {
        // Whoever started the tests may have them ignore the signal.
        let (folder, job) = script(
            "[ -n \"$again\" ] || again=1 exec env --default-signal=INT \"$0\"\n\
             trap 'kill $!; cat \"$0.json\"; exit 130' INT\necho $$ $(cut -d' ' -f5 /proc/$$/stat) >\"$0.begun\"\n\
             sleep 100 & wait",
        );
        std::fs::write(folder.path().join("fio.json"), JSON).unwrap();
        let begun = || std::fs::read_to_string(folder.path().join("fio.begun")).unwrap_or_default();
        let moved = job.run(&|| begun().ends_with('\n')).unwrap();
        assert_eq!(moved.read_bytes, 1_048_577);
        // A group of its own: a terminal that interrupts the program does not interrupt fio as well.
        let begun = begun();
        let (pid, group) = begun.trim().split_once(' ').unwrap();
        assert_eq!(pid, group);
    }
}
