//! fio on a disk or a file: the seed's workload, and what its own report says that it moved.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use super::{Error, Moved};

/// Which way the data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// fio's `read`.
    Read,
    /// fio's `write`.
    Write,
    /// fio's `readwrite`, half and half.
    Both,
}

impl Way {
    /// fio's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Way::Read => "read",
            Way::Write => "write",
            Way::Both => "readwrite",
        }
    }
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
    /// Bytes per request.
    pub block_bytes: u32,
    /// Processes.
    pub jobs: u32,
    /// Requests of each process in flight.
    pub depth: u32,
    /// Arguments that are added as they are, such as `--rate=200m`.
    pub more: Vec<String>,
}

impl Job {
    /// The seed's run on `target`.
    pub fn new(target: &Path, way: Way, seconds: u32) -> Self {
        Job {
            program: PathBuf::from("fio"),
            target: target.to_owned(),
            way,
            seconds,
            block_bytes: 1 << 20,
            jobs: 4,
            depth: 64,
            more: Vec::new(),
        }
    }

    /// fio's arguments, without the program.
    pub fn arguments(&self) -> Vec<String> {
        let mut all = vec![
            format!("--name=pciescope-{}", self.way.name()),
            format!("--filename={}", self.target.display()),
            format!("--rw={}", self.way.name()),
            format!("--bs={}", self.block_bytes),
            format!("--numjobs={}", self.jobs),
            format!("--iodepth={}", self.depth),
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

    /// Starts fio.
    ///
    /// # Errors
    /// [`Error::Start`].
    pub fn start(&self) -> Result<Running, Error> {
        let program = self.program.display().to_string();
        let fail = |source| Error::Start { program: program.clone(), source };
        // Files, not pipes: a report of any length never stops it.
        let (stdout, stderr) = (tempfile::tempfile().map_err(fail)?, tempfile::tempfile().map_err(fail)?);
        let child = Command::new(&self.program)
            .args(self.arguments())
            .stdin(Stdio::null())
            .stdout(stdout.try_clone().map_err(fail)?)
            .stderr(stderr.try_clone().map_err(fail)?)
            .spawn()
            .map_err(fail)?;
        Ok(Running { child, program, stdout, stderr, is_stopped: false })
    }
}

/// fio at work. Dropped before its end, it is killed.
#[derive(Debug)]
pub struct Running {
    child: Child,
    program: String,
    stdout: File,
    stderr: File,
    is_stopped: bool,
}

impl Running {
    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        // A child that cannot be waited for is gone.
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks it to end early, as Ctrl-C does: it still reports what it had moved.
    pub fn stop(&mut self) {
        if !self.is_stopped && !self.has_ended() {
            self.is_stopped = true;
            // One that has ended since needs no word.
            let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        }
    }

    /// Waits for its end and reads its report.
    ///
    /// # Errors
    /// [`Error::Ended`] where it failed, [`Error::Report`] where its report is not fio's.
    pub fn finish(mut self) -> Result<Moved, Error> {
        let fail = |source| Error::Start { program: self.program.clone(), source };
        let status = self.child.wait().map_err(fail)?;
        let text = text(&mut self.stdout);
        // Interrupted, it reports and may end with the signal's number.
        if !status.success() && !self.is_stopped {
            let said = [text, crate::workload::fio::text(&mut self.stderr)].concat();
            let last = said.lines().rfind(|line| line.starts_with("fio:")).or(said.lines().last()).unwrap_or("no word");
            return Err(Error::Ended { program: self.program.clone(), status, last: last.trim().to_owned() });
        }
        parse(&text).map_err(|why| Error::Report { program: self.program.clone(), why })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended already needs neither.
        let _ = self.child.kill();
        let _ = self.child.wait();
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
    jobs: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
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

/// What fio's JSON says was moved. Warnings before it are passed over.
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
        let failed = job.start().unwrap().finish().unwrap_err();
        assert_eq!(
            failed.to_string(),
            format!("{} ended with exit status: 1: fio: failed to open /dev/null", job.program.display())
        );
        let gone = Job { program: "/nonexistent/fio".into(), ..job }.start().unwrap_err();
        assert!(gone.hint().is_some_and(|hint| hint.contains("apt-get")), "{gone}");
    }

    #[test]
    fn a_run_that_is_given_up_is_killed() {
        let (folder, job) = script("echo $$ > \"$(dirname \"$0\")/pid\"; exec sleep 100");
        let mut running = job.start().unwrap();
        let pid = folder.path().join("pid");
        while std::fs::read_to_string(&pid).unwrap_or_default().is_empty() {
            std::thread::yield_now();
        }
        assert!(!running.has_ended());
        drop(running);
        let number = std::fs::read_to_string(&pid).unwrap();
        assert!(!Path::new(&format!("/proc/{}", number.trim())).exists());
    }
}
