//! How a run ends: faults, signals, pipes and disks. What was measured is kept, and the exit code says how it was.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Ended, PROGRAM, folder, parse, pciescope, run};
use crate::sample;
use crate::top::Tmux;

/// A run that takes minutes unless something ends it. One hop only: the path's reads beforehand are slow too.
const SLOW: [&str; 7] = ["latency", "mmio", "--backend", "fake:slow,hops=1,cpus=2", "--count", "100k", "--json"];

fn start(args: &[&str]) -> Child {
    heard(PROGRAM).args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// A program that hears signals. Whoever started the tests may have them ignore some.
pub fn heard(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT,TERM,HUP", program]);
    command
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status().unwrap();
    assert!(status.success());
}

/// Reads the first line (the environment: the run has begun), then lets the run go on for a moment.
fn await_begin(child: &mut Child) -> (String, BufReader<std::process::ChildStdout>) {
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.contains("\"environment\""), "{line}");
    std::thread::sleep(Duration::from_millis(300));
    (line, reader)
}

fn end(mut child: Child, mut text: String, mut reader: BufReader<std::process::ChildStdout>) -> Ended {
    reader.read_to_string(&mut text).unwrap();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    Ended { code: child.wait().unwrap().code().unwrap_or(-1), stdout: text, stderr }
}

#[test]
fn signals_end_a_run_at_once_with_partial_records_and_128_plus_their_number() {
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129), ("ALRM", 142)] {
        let mut child = start(&SLOW);
        let (line, reader) = await_begin(&mut child);
        let asked = Instant::now();
        signal(&child, name);
        let ended = end(child, line, reader).expect_code(code);
        assert!(asked.elapsed() < Duration::from_secs(1), "{name}: {:?}", asked.elapsed());
        let records = ended.records();
        assert_eq!(records[1].error.as_ref().unwrap().code, "interrupted");
        let count = records[1].histograms["latency"].count();
        assert!(count > 0 && count < 100_000, "{count}");
        // All of them, not those of the last call of the probe alone.
        let all: u64 = records[1..].iter().filter_map(|r| r.histograms.get("latency")).map(|h| h.count()).sum();
        let text = &records[1].error.as_ref().unwrap().text;
        assert!(text.contains(&format!("ended after {all} samples")), "{text}: {all}");
        assert!(records.last().unwrap().error.as_ref().unwrap().text.contains("not measured: CPU 1"), "{ended:?}");
        assert!(ended.stderr.starts_with("pciescope: 0000:00:01.0: the run was ended"), "{}", ended.stderr);
    }
}

#[test]
fn a_signal_that_is_ignored_from_the_start_stays_ignored() {
    for name in ["HUP", "INT", "TERM"] {
        let line = format!("trap '' {name}; exec {PROGRAM} stat --backend fake -I 50ms -n 20 -j");
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", &line]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let (line, reader) = await_begin(&mut child);
        signal(&child, name);
        end(child, line, reader).expect_code(0);
    }
    // The command ignores it as well.
    let line = format!("trap '' HUP; exec {PROGRAM} stat --backend fake -- sh -c 'kill -HUP $$; echo survived'");
    let ended = Ended::of(Command::new("sh").args(["-c", &line]).output().unwrap()).expect_code(0);
    assert_eq!(ended.stdout, "survived\n");
}

/// The words of a command that writes a line to `got` for each SIGINT, until there is a file `end`, or for a minute or so.
fn counts_signals(at: &Path) -> String {
    let script =
        "n=0; trap 'echo INT >>got' INT; : >got; until [ -e end ] || [ $n = 30000000 ]; do n=$((n + 1)); done\n";
    std::fs::write(at.join("count"), format!("cd {}\n{script}", at.display())).unwrap();
    format!("stat --backend fake -- sh {}", at.join("count").display())
}

fn wait_for(what: &str, is_there: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_there() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what}: it did not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Interrupts `times` times, each time until the command has a SIGINT and a second one would have come; then lets the command
/// end. How many it had: two at once may be one for a command that does not run at that moment, but not every time.
fn got(at: &Path, times: usize, mut interrupt: impl FnMut()) -> usize {
    let count = || std::fs::read_to_string(at.join("got")).unwrap_or_default().lines().count();
    wait_for("the command", || at.join("got").exists());
    for _ in 0..times {
        let before = count();
        interrupt();
        wait_for("a signal", || count() > before);
        std::thread::sleep(Duration::from_millis(50));
    }
    std::fs::write(at.join("end"), "").unwrap();
    count()
}

#[test]
fn ctrl_c_of_a_terminal_reaches_the_command_once() {
    let at = folder("ctrl-c");
    // A shell that waits for the program would have each Ctrl-C too, and dash would end by one.
    let line = format!("exec {PROGRAM} {}", counts_signals(&at));
    let mut terminal = heard("script");
    let terminal = terminal.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env("SHELL", "/bin/sh");
    let mut child = terminal.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut keys = child.stdin.take().unwrap();
    assert_eq!(got(&at, 20, || keys.write_all(b"\x03").unwrap()), 20);
    assert_eq!(child.wait().unwrap().code(), Some(0), "the exit code is the command's");
}

#[test]
fn a_signal_to_the_program_alone_reaches_the_command_once() {
    let at = folder("interrupt");
    let child = start(&counts_signals(&at).split(' ').collect::<Vec<_>>());
    assert_eq!(got(&at, 20, || signal(&child, "INT")), 20);
    Ended::of(child.wait_with_output().unwrap()).expect_code(0);
}

/// Also while nothing is counted.
#[test]
fn a_signal_in_a_warm_up_run_reaches_the_command() {
    let at = folder("warm-up-signal");
    let line = counts_signals(&at).replace("stat ", "stat --warmup 1 ");
    let child = start(&line.split(' ').collect::<Vec<_>>());
    assert_eq!(got(&at, 1, || signal(&child, "INT")), 1);
    Ended::of(child.wait_with_output().unwrap()).expect_code(130);
}

#[test]
fn a_signal_leaves_no_part_of_a_file_and_no_synthetic_machine() {
    for (verb, args) in
        [("doctor", &["doctor", "--backend", "fake", "--watch", "60s"][..]), ("import", &["import", "-"])]
    {
        let at = folder(&format!("no-part-{verb}"));
        let (file, temporary) = (at.join("run.jsonl"), at.join("tmp"));
        std::fs::write(&file, "old\n").unwrap();
        std::fs::create_dir(&temporary).unwrap();
        let mut program = heard(PROGRAM);
        program.args(args).args(["--overwrite", "-o"]).arg(&file).env("TMPDIR", &temporary);
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Its end would be the log's.
        let _log = child.stdin.take().unwrap();
        let names = |at: &Path| {
            let names = std::fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<String> = names.collect();
            names.sort();
            names
        };
        wait_for("a part of the file", || names(&at).iter().any(|name| name.ends_with(".part")));
        std::thread::sleep(Duration::from_millis(300));
        let asked = Instant::now();
        signal(&child, "TERM");
        let ended = Ended::of(child.wait_with_output().unwrap()).expect_code(143);
        assert!(asked.elapsed() < Duration::from_secs(5), "{verb}: {:?}", asked.elapsed());
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("", ""), "{verb}");
        assert_eq!(names(&at), ["run.jsonl", "tmp"], "{verb}");
        assert_eq!(names(&temporary), Vec::<String>::new(), "{verb}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "old\n", "{verb}");
    }
}

#[test]
fn a_duration_ends_the_command_too() {
    let took = |line: &str, code: i32| {
        let begin = Instant::now();
        run(line).expect_code(code);
        begin.elapsed()
    };
    assert!(took("stat --backend fake --duration 200ms sleep 30", 0) < Duration::from_secs(10));
    // Before that the exit code is the command's.
    assert!(took("stat --backend fake --duration 30s sh -c false", 1) < Duration::from_secs(10));
    // What the command says of its end does not count: the time ended it.
    let line = ["stat", "--backend", "fake", "--duration", "200ms", "--", "sh", "-c"];
    let begin = Instant::now();
    pciescope(&[&line[..], &["trap 'exit 7' TERM; while :; do sleep 0.1; done"]].concat()).expect_code(0);
    // A run without counting is as long.
    pciescope(&[&line[..1], &["--warmup", "1"], &line[1..], &["exec sleep 30"]].concat()).expect_code(0);
    assert!(begin.elapsed() < Duration::from_secs(20));
}

#[test]
fn many_runs_of_a_command_keep_no_descriptors_open() {
    let line = format!("ulimit -n 64; exec {PROGRAM} stat --backend fake -r 60 true");
    let ended = Ended::of(Command::new("sh").args(["-c", &line]).output().unwrap()).expect_code(0);
    // Else the counters fail, one after the other; the exit code is still that of the command.
    assert!(!ended.stderr.contains("hint: "), "{}", ended.stderr);
}

#[test]
fn a_killed_run_keeps_the_cpus_it_had_done() {
    let path = folder("killed").join("run.jsonl");
    // CPU 0 takes a tenth of a second, and so on: some are done when the kill comes.
    let line = ["--backend", "fake:slow,hops=1,cpus=64", "--count", "100", "--order", "sequential"];
    let mut child = start(&[&["latency", "mmio", "-o", path.to_str().unwrap()], &line[..]].concat());
    let waited = Instant::now();
    while std::fs::read_to_string(&path).unwrap_or_default().lines().count() < 3 {
        assert!(waited.elapsed() < Duration::from_secs(20), "no record came");
        std::thread::sleep(Duration::from_millis(20));
    }
    signal(&child, "KILL");
    assert_eq!(child.wait().unwrap().code(), None);
    let records = parse(&std::fs::read_to_string(&path).unwrap());
    assert!(records[1..].iter().all(|record| record.histograms["latency"].count() == 100 && record.error.is_none()));
}

#[test]
fn faults_end_a_run_with_code_2_and_keep_what_was_taken() {
    for (options, code, taken) in
        [("ones-after=102", "all-ones", 101), ("remove-after=50", "removed", 50), ("unbind-after=51", "unbound", 51)]
    {
        let line = format!("latency mmio --backend fake:{options},hops=1 --count 1k --order sequential --json");
        let ended = run(&line).expect_code(2);
        let records = ended.records();
        let error = records[1].error.as_ref().unwrap();
        assert_eq!(error.code, code);
        assert_eq!(records[1].histograms["latency"].count(), taken, "{options}");
        assert!(records.last().unwrap().error.as_ref().unwrap().text.ends_with("(not measured: CPU 1-7)"));
        assert_eq!(ended.stderr.matches("pciescope: ").count(), 1, "{}", ended.stderr);
    }
}

#[test]
fn a_device_that_is_gone_from_the_start_is_not_measured_at_all() {
    let ended = run("latency mmio --backend fake:ones-after=1 --json").expect_code(2);
    let records = ended.records();
    assert_eq!(records.len(), 2);
    assert_eq!(records[1].error.as_ref().unwrap().code, "all-ones");
    assert!(ended.stderr.contains("hint: ") && ended.stderr.contains("--ones-ok"), "{}", ended.stderr);
    run("latency mmio --backend fake:ones-after=1 --count 10 --ones-ok --json").expect_code(0);
}

#[test]
fn a_refused_backend_leaves_a_record_of_the_refusal() {
    let ended = run("latency irq --backend fake:vectors=0 --json").expect_code(2);
    let error = ended.records().pop().unwrap().error.unwrap();
    assert_eq!(error.code, "refused");
    assert!(ended.stderr.contains(&error.text), "{ended:?}");
}

#[test]
fn an_offline_cpu_ends_the_run_by_its_name() {
    let ended =
        run("latency mmio --backend fake:offline=3,hops=1 --count 100 --order sequential --json").expect_code(2);
    let records = ended.records();
    for record in &records[1..4] {
        assert!(record.error.is_none() && record.histograms["latency"].count() == 100, "{record:?}");
    }
    let error = records[4].error.as_ref().unwrap();
    assert_eq!((records.len(), error.code.as_str()), (5, "cpu-offline"));
    assert!(error.text.ends_with("(not measured: CPU 3-7)"), "{}", error.text);
    assert!(ended.stderr.contains("CPU 3 is offline") && ended.stderr.contains("hint: "), "{}", ended.stderr);
}

#[test]
fn lost_doubled_and_misdirected_interrupts_fail_the_run_with_code_1() {
    for (options, metric, text) in [
        ("lose=10", "lost", "interrupts did not arrive"),
        ("double=10", "extra", "nobody triggered"),
        ("wrong-cpu=10", "wrong_cpu", "another CPU"),
    ] {
        let line = format!(
            "latency irq --backend fake:{options} --cpus 0 --vectors 0 --raised-by hardware --count 100 --json"
        );
        let ended = run(&line).expect_code(1);
        assert_eq!(ended.records()[1].metrics[metric].value, 10.0);
        assert!(
            ended.stderr.contains(&format!("CPU 0, vector 0: 10 {}", text.split(' ').next().unwrap()))
                || ended.stderr.contains(text),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn an_interrupt_that_never_comes_is_a_timeout_and_the_control_arm_is_measured_still() {
    let ended = run("latency irq --backend fake:lose=1 --cpus 0 --count 10 --json").expect_code(2);
    let records = ended.records();
    assert_eq!(records[1].error.as_ref().unwrap().code, "timeout");
    assert!(ended.stderr.contains("hint: ") && ended.stderr.contains("--raised-by retrigger"), "{}", ended.stderr);
}

#[test]
fn overwritten_raw_samples_fail_the_run_with_code_1() {
    let path = folder("raw-lost").join("raw.csv");
    // Each CPU loses 2 samples in each of 5 rounds.
    let line = ["latency", "mmio", "--backend", "fake:raw-lost=2", "--count", "10", "--raw", path.to_str().unwrap()];
    let ended = pciescope(&line).expect_code(1);
    assert!(ended.stderr.contains("and 3 more failed checks"), "{}", ended.stderr);
    for cpu in 0..5 {
        let said = format!("mmio-read: CPU {cpu}: 10 raw samples were overwritten");
        assert!(ended.stderr.contains(&said), "{}", ended.stderr);
    }
}

#[test]
fn a_full_disk_ends_the_run_before_anything_is_measured() {
    for option in ["-o", "--raw"] {
        let line = ["latency", "mmio", "--backend", "fake:slow", "--count", "100k", option, "/dev/full"];
        let begin = Instant::now();
        let ended = pciescope(&line).expect_code(2);
        assert!(ended.stderr.contains("No space left on device"), "{}", ended.stderr);
        assert!(begin.elapsed() < Duration::from_secs(5));
        assert!(ended.stdout.is_empty());
    }
}

/// Command lines of verbs that print: what a run measures, and what is said of records, of a machine and of checks. The files
/// that they read are in a test's own folder.
fn printers(name: &str) -> Vec<String> {
    let at = folder(name);
    let file = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(name).display().to_string();
    let run = file("records/demo.jsonl");
    let at = |name: &str| at.join(name).display().to_string();
    let machine = at("machine");
    pciescope_support::tree::Tree::pmu("dwc_rootport-7.3").write(Path::new(&machine));
    let (counters, again) = (at("counters.jsonl"), at("again.jsonl"));
    std::fs::copy(&run, &again).unwrap();
    let records: Vec<String> = sample::run(3).iter().map(|record| serde_json::to_string(record).unwrap()).collect();
    std::fs::write(&counters, records.join("\n") + "\n").unwrap();
    vec![
        "latency mmio --backend fake --count 10 --json".to_owned(),
        "doctor --list".to_owned(),
        format!("--root {machine} doctor"),
        format!("--root {machine} doctor --json"),
        format!("compare {run} {again}"),
        format!("compare {run} {again} --json"),
        format!("top -b --replay {counters}"),
        format!("--root {machine} top --once"),
        format!("report {run}"),
        format!("report {run} --all"),
        format!("report {run} --csv"),
        format!("--root {machine} list"),
        format!("--root {machine} list -j"),
        "convert --list".to_owned(),
    ]
}

#[test]
fn a_full_standard_output_is_an_error_too() {
    for line in printers("full-output") {
        let full = format!("{PROGRAM} {line} > /dev/full");
        let ended = Ended::of(Command::new("sh").args(["-c", &full]).output().unwrap());
        assert_eq!(ended.code, 2, "{line}: {}", ended.stderr);
        let text = "cannot write the standard output: No space left on device (os error 28)\nhint: ";
        // A measurement says what it cannot write itself.
        let is_told = line.starts_with("latency") && ended.stderr.contains("No space left on device");
        assert!(is_told || ended.stderr.contains(text), "{line}: {}", ended.stderr);
    }
}

#[test]
fn a_closed_pipe_ends_the_program_quietly() {
    let lines =
        ["latency mmio --backend fake --count 10k --json", "latency mmio --backend fake --count 10k --csv", "--help"];
    for args in lines.map(str::to_owned).into_iter().chain(printers("closed-output")) {
        // Nobody reads any more, from the first byte on: as after `| head -0`, without its race.
        let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(reader);
        let output = Command::new(PROGRAM)
            .args(args.split(' '))
            .stdout(std::os::fd::OwnedFd::from(writer))
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let ended = Ended::of(output);
        assert_eq!((ended.code, ended.stderr.as_str()), (141, ""), "{args}");
    }
}

#[test]
fn a_closed_standard_error_changes_nothing() {
    let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
    drop(reader);
    let line = "latency irq -v --backend fake:lose=10 --cpus 0 --vectors 0 --raised-by hardware --count 100 --json";
    let output = Command::new(PROGRAM)
        .args(line.split(' '))
        .stdout(Stdio::piped())
        .stderr(std::os::fd::OwnedFd::from(writer))
        .output()
        .unwrap();
    assert_eq!(Ended::of(output).expect_code(1).records().len(), 2);
}

/// Runs a command line on a terminal of its own; what it shows, and its exit code.
fn on_a_terminal(line: &str) -> (String, i32) {
    let output = Command::new("script")
        .args(["-qec", line, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output()
        .expect("script(1) of util-linux is installed");
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code().unwrap())
}

#[test]
fn a_terminal_shows_progress_and_time_left() {
    let line = format!("{PROGRAM} latency mmio --backend fake:slow,hops=1,cpus=2 --count 500 --json > /dev/null");
    let (shown, code) = on_a_terminal(&line);
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("latency mmio") && shown.contains('%') && shown.contains("left"), "{shown:?}");
}

#[test]
fn a_terminal_shows_the_rate_of_a_readout_while_it_reads() {
    // 40 reads of 2 MB at 40 MB/s take two seconds.
    let line = format!("{PROGRAM} readout --backend fake:rate=40 -S 1M -r 40 --json > /dev/null");
    let (shown, code) = on_a_terminal(&line);
    assert_eq!(code, 0, "{shown}");
    let since = shown.split(" MB/s now, ").skip(1).filter_map(|part| part.split(" MB/s").next()?.parse::<f64>().ok());
    let last = since.last().unwrap_or_else(|| panic!("no rate is shown: {shown:?}"));
    assert!((10.0..=44.0).contains(&last), "{last} MB/s, and the device gives 40: {shown:?}");
}

#[test]
fn without_a_terminal_there_is_no_progress() {
    let ended = run("latency mmio --backend fake:slow,hops=1,cpus=2 --count 300 --json").expect_code(0);
    assert_eq!(ended.stderr, "");
}

/// What a fleet's tests plant: the program is killed, or hangs until somebody kills it; what was written before stays.
#[test]
fn a_synthetic_machine_can_kill_the_program_or_hang_it() {
    let line = |fault: &str| format!("latency mmio --backend fake:host=n7,{fault} --count 1k --json");
    let ended = run(&line("die-after=100"));
    assert_eq!((ended.code, ended.stderr.as_str()), (-1, ""));
    let records = ended.records();
    assert_eq!(records[0].environment.as_ref().unwrap().host.as_ref().unwrap().name, "n7");
    let words = line("hang-after=100");
    let ended = Command::new("timeout").args(["-k", "1", "1", PROGRAM]).args(words.split(' ')).output();
    let ended = ended.unwrap();
    assert_eq!(parse(&String::from_utf8(ended.stdout).unwrap()).len(), records.len());
    assert!(!ended.status.success());
}

#[test]
fn machines_of_a_fleet_differ_and_have_the_faults_that_were_asked_for_alone() {
    let median = |options: &str| {
        let records = run(&format!("latency mmio --backend fake:host={options} --cpus 0 --count 1k --json")).records();
        records[1].histograms["latency"].median_ns().unwrap()
    };
    let (one, other) = (median("n1"), median("n2"));
    assert!(one != other && (one / other - 1.0).abs() < 0.05, "{one} {other}");
    let slower = median("n1,downtrained") - one;
    assert!((30.0..45.0).contains(&slower), "{slower}");
    for (options, code) in [("n1", 0), ("n1,downtrained", 1)] {
        run(&format!("doctor --backend fake:host={options} --only link-speed,link-width")).expect_code(code);
    }
    run("doctor --backend fake --only link-speed").expect_code(1);
}

#[test]
fn the_line_of_progress_goes_before_the_results_come() {
    let Some(tmux) = Tmux::start("progress", 100, 30) else { return };
    let folder = folder("progress");
    std::fs::write(folder.join("data"), vec![1; 4 << 20]).unwrap();
    tmux.keys(&[&format!("clear; cd '{}'; {PROGRAM} readout data -r 100000000", folder.display()), "Enter"]);
    tmux.wait_for("since the start");
    tmux.keys(&["C-c"]);
    // The terminal breaks the line behind its ^C, so the line of that moment stays. No other does.
    let screen = tmux.wait_for("was ended");
    assert!(screen.matches("since the start").count() <= 1, "{screen}");
}
