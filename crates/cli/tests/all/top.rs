//! `pciescope top` in a real terminal: tmux runs it, sends keys and reads the screen.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{PROGRAM, folder, pciescope, run};
use crate::sample;
use pciescope_core::Record;
use pciescope_support::tools::is_there;

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn written(at: &Path, records: &[Record]) -> String {
    let lines: Vec<String> = records.iter().map(|one| serde_json::to_string(one).unwrap()).collect();
    let path = at.join("run.jsonl");
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    path.to_str().unwrap().to_owned()
}

/// A terminal with a shell in it; ended when dropped.
pub struct Tmux {
    socket: String,
}

impl Tmux {
    /// `None` where there is no tmux (`make setup` installs it).
    pub fn start(name: &str, columns: u16, lines: u16) -> Option<Tmux> {
        if !is_there("tmux") {
            return None;
        }
        let tmux = Tmux { socket: format!("pciescope-{name}-{}", std::process::id()) };
        let (columns, lines) = (columns.to_string(), lines.to_string());
        let shell = "env -u NO_COLOR LC_ALL=C.UTF-8 PS1='ready$ ' PS2= ENV= sh";
        tmux.run(&["-f", "/dev/null", "new-session", "-d", "-x", &columns, "-y", &lines, shell]);
        tmux.wait_for("ready$");
        Some(tmux)
    }

    fn run(&self, args: &[&str]) -> String {
        let output = Command::new("tmux").args(["-L", &self.socket]).args(args).output().unwrap();
        assert!(output.status.success(), "tmux {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn keys(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    fn screen(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    fn wait(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen();
            if is_there(&screen) {
                return screen;
            }
            assert!(Instant::now() < end, "no {what} on\n{screen}");
            sleep(Duration::from_millis(50));
        }
    }

    pub fn wait_for(&self, text: &str) -> String {
        self.wait(text, |screen| screen.contains(text))
    }

    /// What the terminal is set to, and whether its other screen and cursor are on.
    fn condition(&self) -> String {
        let tty = self.run(&["display-message", "-p", "#{pane_tty}"]);
        let modes = Command::new("stty").args(["-a", "-F", tty.trim()]).output().unwrap();
        let flags = self.run(&["display-message", "-p", "other=#{alternate_on} cursor=#{cursor_flag}"]);
        format!("{}{flags}", String::from_utf8(modes.stdout).unwrap())
    }

    /// The process of the program that runs in the shell.
    fn child(&self) -> String {
        let shell = self.run(&["display-message", "-p", "#{pane_pid}"]);
        let found = Command::new("pgrep").args(["-P", shell.trim(), "pciescope"]).output().unwrap();
        String::from_utf8(found.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = Command::new("tmux").args(["-L", &self.socket, "kill-server"]).status();
    }
}

fn replay(file: &str) -> String {
    format!("{PROGRAM} top --replay {file} --speed 20; echo code $?")
}

fn files(name: &str, seconds: u64) -> (PathBuf, String) {
    let at = folder(name);
    let file = written(&at, &sample::run(seconds));
    (at, file)
}

#[test]
fn keys_change_the_screen_and_q_gives_the_terminal_back() {
    let Some(tmux) = Tmux::start("keys", 80, 24) else { return };
    let (_, file) = files("top-keys", 600);
    tmux.keys(&["echo before", "Enter"]);
    tmux.wait("echo", |screen| screen.matches("before").count() >= 2);
    let before = tmux.condition();
    tmux.keys(&[&replay(&file), "Enter"]);
    let screen = tmux.wait_for("PORT");
    assert!(screen.contains("PORT") && screen.contains("DRAM") && screen.contains("q quit"), "{screen}");
    assert!(!screen.contains("before"), "{screen}");
    assert_ne!(tmux.condition(), before, "keys come one by one, on the other screen");
    tmux.keys(&["p"]);
    tmux.wait_for("PAUSED");
    tmux.keys(&["?"]);
    tmux.wait_for("this help");
    tmux.keys(&["Escape"]);
    tmux.wait("the tree", |screen| screen.contains("PORT") && !screen.contains("this help"));
    // From the busiest first to the order of addresses.
    tmux.keys(&["s"]);
    tmux.wait_for("sort: address");
    tmux.keys(&["/"]);
    tmux.wait_for("filter:");
    tmux.keys(&["m", "l", "x", "5", "Enter"]);
    tmux.wait("filter", |screen| screen.contains("mlx5_core") && !screen.contains("nvme"));
    tmux.keys(&["Enter"]);
    tmux.wait_for("largest shown");
    // The other size that people have.
    tmux.run(&["resize-window", "-x", "40", "-y", "10"]);
    tmux.wait("a small screen", |screen| screen.lines().count() <= 10 && screen.contains("0000:08:01.0"));
    tmux.run(&["resize-window", "-x", "80", "-y", "24"]);
    tmux.wait("the first size", |screen| screen.lines().count() == 24 && screen.contains("Esc back"));
    tmux.keys(&["q"]);
    let screen = tmux.wait_for("code 0");
    assert!(screen.contains("before"), "the shell's screen is back: {screen}");
    assert_eq!(tmux.condition(), before);
}

#[test]
fn signals_give_the_terminal_back() {
    let Some(tmux) = Tmux::start("signals", 80, 24) else { return };
    let (_, file) = files("top-signals", 100);
    let before = tmux.condition();
    for (signal, code) in [("-TERM", 143), ("-HUP", 129), ("-INT", 130), ("-QUIT", 131)] {
        tmux.keys(&["clear", "Enter"]);
        tmux.keys(&[&replay(&file), "Enter"]);
        tmux.wait_for("PORT");
        let status = Command::new("kill").args([signal, &tmux.child()]).status().unwrap();
        assert!(status.success());
        tmux.wait_for(&format!("code {code}"));
        assert_eq!(tmux.condition(), before, "after {signal}");
    }
}

#[test]
fn a_terminal_without_a_size_is_drawn_on_as_on_the_usual_one() {
    let (_, file) = files("top-no-size", 40);
    let on = |options: &str| {
        let line = format!("stty cols 0 rows 0; exec {PROGRAM} top {options} --replay {file}");
        let script = Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .env("TERM", "xterm")
            .stdin(Stdio::null())
            .output()
            .expect("script(1) of util-linux is installed");
        assert_eq!(script.status.code(), Some(0), "{options}");
        String::from_utf8_lossy(&script.stdout).into_owned()
    };
    let screen = on("--speed 20 -n 20");
    assert!(screen.contains("0000:00:00.0") && screen.contains("q quit"), "{screen:?}");
    let page = on("-b -n 1");
    assert!(page.lines().any(|line| line.trim_end().chars().count() > 80), "{page}");
}

#[test]
fn it_can_be_suspended_and_comes_back() {
    let Some(tmux) = Tmux::start("suspend", 80, 24) else { return };
    let (_, file) = files("top-suspend", 200);
    tmux.keys(&["set -m", "Enter"]);
    let before = tmux.condition();
    tmux.keys(&[&format!("{PROGRAM} top --replay {file} --speed 5"), "Enter"]);
    tmux.wait_for("PORT");
    tmux.keys(&["C-z"]);
    tmux.wait("the shell", |screen| screen.contains("ready$") && !screen.contains("q quit"));
    assert_eq!(tmux.condition(), before, "while it is stopped the terminal is the shell's");
    tmux.keys(&["fg", "Enter"]);
    tmux.wait_for("q quit");
    tmux.keys(&["C-c"]);
    tmux.wait("the shell", |screen| screen.contains("ready$") && !screen.contains("q quit"));
    tmux.keys(&["echo code $?", "Enter"]);
    tmux.wait_for("code 130");
    assert_eq!(tmux.condition(), before);
}

#[test]
fn records_of_a_pipe_are_shown_while_keys_come_from_the_terminal() {
    let Some(tmux) = Tmux::start("pipe", 80, 24) else { return };
    let (_, file) = files("top-pipe", 3);
    tmux.keys(&[
        &format!("{PROGRAM} --version; cat {file} | LC_ALL=C NO_COLOR=1 {PROGRAM} top --replay -; echo code $?"),
        "Enter",
    ]);
    let screen = tmux.wait_for("END");
    assert!(screen.contains("00:00:03") && screen.contains("##"), "{screen}");
    assert!(screen.is_ascii(), "the locale has ASCII only: {screen}");
    tmux.keys(&["q"]);
    tmux.wait_for("code 0");
}

#[test]
fn figures_that_are_no_longer_renewed_are_marked() {
    let Some(tmux) = Tmux::start("stale", 80, 24) else { return };
    let (_, file) = files("top-stale", 2);
    // As from another machine whose connection hangs.
    tmux.keys(&[&format!("(cat {file}; sleep 8) | {PROGRAM} top --replay -; echo code $?"), "Enter"]);
    let screen = tmux.wait_for("STALE for");
    assert!(screen.contains("00:00:02 STALE for"), "{screen}");
    let screen = tmux.wait_for("END");
    assert!(!screen.contains("STALE"), "a replay that ended is none: {screen}");
    tmux.keys(&["q"]);
    tmux.wait_for("code 0");
}

#[test]
fn without_a_terminal_there_are_pages_or_a_refusal() {
    let (at, file) = files("top-pages", 3);
    let refused = pciescope(&["top"]).expect_code(2);
    assert!(refused.stderr.contains("stat -I 1s") && refused.stderr.contains("hint: "), "{}", refused.stderr);
    let pages = pciescope(&["top", "-b", "--ascii", "--replay", &file]).expect_code(0);
    assert_eq!(pages.stdout.matches("PORT").count(), 3, "{}", pages.stdout);
    assert!(pages.stdout.contains("ali_drw_21080") && pages.stdout.is_ascii(), "{}", pages.stdout);
    let once = pciescope(&["top", "--once", "-w", "80", "--replay", &file]).expect_code(0);
    assert_eq!(once.stdout.matches("PORT").count(), 1);
    assert!(once.stdout.lines().all(|line| line.chars().count() <= 80), "{}", once.stdout);
    // Of a killed run all that is whole is shown.
    let whole = std::fs::read_to_string(&file).unwrap();
    let torn = at.join("torn.jsonl");
    std::fs::write(&torn, &whole[..whole.len() - 40]).unwrap();
    let ended = pciescope(&["top", "-b", "--replay", torn.to_str().unwrap()]).expect_code(0);
    assert!(ended.stdout.contains("00:00:03"), "{}", ended.stdout);
    assert!(ended.stderr.contains(": the last record is unfinished and was left out"), "{}", ended.stderr);
    let text = at.join("text");
    std::fs::write(&text, "no record\n").unwrap();
    let ended = pciescope(&["top", "-b", "--replay", text.to_str().unwrap()]).expect_code(2);
    assert!(ended.stderr.contains("text:1: not a record"), "{}", ended.stderr);
}

/// As of `ssh HOST pciescope stat -I 1s -j | pciescope top --replay -` where ssh failed.
#[test]
fn a_replay_without_an_interval_is_an_error() {
    let file = folder("top-nothing").join("latency.jsonl");
    let file = file.to_str().unwrap();
    run(&format!("latency mmio --backend fake --count 10 --cpus 0 -o {file}")).expect_code(0);
    for (line, name) in [
        ("top --once --replay -", "(standard input)"),
        ("top -b --replay -", "(standard input)"),
        (&format!("top -b --replay {file}"), file),
        (&format!("top --once --replay {file}"), file),
        (&format!("serve --listen 127.0.0.1:0 --replay {file}"), file),
    ] {
        let ended = run(line).expect_code(2);
        let text = format!("pciescope: {name}: no record of it counts ports or channels\nhint: `pciescope stat -I 1s");
        assert!(ended.stderr.starts_with(&text) && ended.stdout.is_empty(), "{line}: {ended:?}");
    }
    let Some(tmux) = Tmux::start("nothing", 80, 24) else { return };
    tmux.keys(&[&format!("{PROGRAM} top --replay - </dev/null; echo code $?"), "Enter"]);
    let screen = tmux.wait_for("code 2");
    assert!(screen.contains("no record of it counts ports or channels"), "{screen}");
}

#[test]
fn a_pipe_to_which_nobody_writes_can_be_left() {
    let at = folder("top-fifo");
    let fifo = at.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut top = Command::new(PROGRAM);
    top.args(["top", "-b", "--replay"]).arg(&fifo).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut top = top.spawn().unwrap();
    // Comes back when the other end is opened, so that it waits for the first line then.
    let writer = std::fs::File::options().write(true).open(&fifo).unwrap();
    assert!(Command::new("kill").args(["-TERM", &top.id().to_string()]).status().unwrap().success());
    let since = Instant::now();
    let ended = loop {
        if let Some(status) = top.try_wait().unwrap() {
            break Some(status);
        }
        if since.elapsed() > PATIENCE / 3 {
            break None;
        }
        sleep(Duration::from_millis(20));
    };
    drop(writer);
    let _ = top.kill();
    let _ = top.wait();
    assert_eq!(ended.and_then(|status| status.signal()), Some(15), "{ended:?}");
}

#[test]
fn a_machine_without_counters_shows_its_functions_and_why() {
    let tree = pciescope_support::tree::pmu("dwc_rootport-7.3");
    let root = tree.path().to_str().unwrap();
    let ended = pciescope(&["--root", root, "top", "--once"]).expect_code(0);
    assert!(ended.stdout.contains("Nothing counts here"), "{}", ended.stdout);
    assert!(ended.stdout.contains("recorded tree"), "{}", ended.stdout);
    let ended = pciescope(&["--root", root, "top", "--once", "no_such_pmu"]).expect_code(2);
    assert!(ended.stderr.contains("no_such_pmu"), "{}", ended.stderr);
}

#[test]
fn a_probe_is_measured_and_one_that_cannot_be_says_why() {
    let ended = pciescope(&["top", "-b", "-n", "1", "--backend", "fake"]).expect_code(0);
    assert!(ended.stdout.contains("p50 ") && ended.stdout.contains("by fake"), "{}", ended.stdout);
    // A device has one row, though hardware and kernel count it, and what is made up says so.
    assert!(ended.stdout.lines().all(|line| !line.starts_with(" kernel")), "{}", ended.stdout);
    for (once, count) in [("SYNTHETIC", 1), ("0000:02:00.0", 1), ("0000:00:02.0", 1)] {
        assert_eq!(ended.stdout.matches(once).count(), count, "{once}: {}", ended.stdout);
    }
}

#[test]
fn the_last_slow_read_of_a_probe_is_shown_with_its_cause() {
    let run = |more: &[&str]| pciescope(&[&["top", "-b", "-n", "3", "-w", "200"], more].concat());
    let ended = run(&["--backend", "fake", "--probe-why"]).expect_code(0);
    let slow = ended.stdout.lines().filter_map(|line| line.split_once(" slow ")).next_back();
    let (_, slow) = slow.unwrap_or_else(|| panic!("{}", ended.stdout));
    assert!([" timer local_timer", " IPI ", " device or path"].iter().any(|cause| slow.contains(cause)), "{slow}");
    assert!(!run(&["--backend", "fake"]).expect_code(0).stdout.contains(" slow "));
    let refused = run(&["--probe-why"]).expect_code(2);
    assert!(refused.stderr.contains("--probe"), "{}", refused.stderr);
}

/// The kernel's clock stands in for a counter where counting is allowed; where it is not, the page says why.
#[test]
fn counters_of_this_machine_are_read_at_every_interval() {
    let ended = pciescope(&["top", "-b", "-n", "3", "-I", "50", "-e", "software/config=0/"]).expect_code(0);
    if ended.stdout.contains("Nothing counts here") {
        assert!(ended.stdout.contains("software/config=0/"), "{}", ended.stdout);
        return;
    }
    let counted: Vec<&str> = ended.stdout.lines().filter(|line| line.ends_with("software CPU 0 config=0")).collect();
    assert_eq!(counted.len(), 3, "{}", ended.stdout);
    assert!(counted.iter().all(|line| line.trim_start().starts_with(char::is_numeric)), "{counted:?}");
}
