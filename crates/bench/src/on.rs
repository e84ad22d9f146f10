//! Commands that run when something happens: `--on EVENT=COMMAND`. What happens is for the caller to say.

use std::collections::BTreeMap;
use std::io;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pciescope_core::text::{ascii, cut};
use pciescope_core::{Warning, warning};
use pciescope_hw::wait::OwnGroup;

/// A command, and the event at which it runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// The event's name.
    pub event: String,
    /// What `/bin/sh -c` gets, as the user wrote it.
    pub command: String,
}

/// How long commands may run, and how often.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// A command that runs longer is killed with all that it started.
    pub run: Duration,
    /// The least time between two starts of a rule's command. Of the events meanwhile the last one gets a command.
    pub apart: Duration,
    /// What commands get at the end, before they are killed.
    pub grace: Duration,
}

impl Bounds {
    /// Those of the program: a minute, ten seconds and two seconds.
    pub const USUAL: Bounds =
        Bounds { run: Duration::from_secs(60), apart: Duration::from_secs(10), grace: Duration::from_secs(2) };
}

/// The most characters of a variable.
const LONGEST: usize = 200;
/// Between two looks at a command that runs.
const LOOK: Duration = Duration::from_millis(20);

/// What stands in the environment of a command, by name.
pub type Variables = BTreeMap<&'static str, String>;

/// Runs commands in a thread of its own, so that the caller never waits for one.
#[derive(Debug)]
pub struct Commands {
    events: Option<Sender<(Vec<String>, Variables)>>,
    warnings: Receiver<Warning>,
    thread: Option<JoinHandle<()>>,
}

impl Commands {
    /// Waits for events. `say` is called for each command that failed, when it has.
    pub fn start(rules: Vec<Rule>, bounds: Bounds, say: impl Fn(&Warning) + Send + 'static) -> Commands {
        let (events, happened) = channel();
        let (warn, warnings) = channel();
        let warn = move |warning: Warning| {
            if warning.code == warning::COMMAND_FAILED.code {
                say(&warning);
            }
            // Nobody takes it any more where the run has failed.
            let _ = warn.send(warning);
        };
        let thread = std::thread::spawn(move || run(rules, bounds, &happened, &warn));
        Commands { events: Some(events), warnings, thread: Some(thread) }
    }

    /// Something happened that has these names. Of each variable the command gets at most 200 printable ASCII characters.
    pub fn happened(&self, names: &[&str], mut variables: Variables) {
        variables.values_mut().for_each(|value| *value = cut(&ascii(value), LONGEST));
        if let Some(events) = &self.events {
            // The thread ends after this only.
            let _ = events.send((names.iter().map(|name| (*name).to_owned()).collect(), variables));
        }
    }

    /// What went wrong since the last call.
    pub fn warnings(&self) -> impl Iterator<Item = Warning> {
        self.warnings.try_iter()
    }

    /// Starts no more commands, and gives those that run a short time to end.
    pub fn finish(&mut self) {
        self.events = None;
        // A thread that panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn run(rules: Vec<Rule>, bounds: Bounds, happened: &Receiver<(Vec<String>, Variables)>, warn: &dyn Fn(Warning)) {
    let mut all: Vec<Running> = rules.into_iter().map(|rule| Running { rule, ..Running::default() }).collect();
    loop {
        let is_idle = all.iter().all(|one| one.group.is_none() && one.waiting.is_none());
        match happened.recv_timeout(if is_idle { Duration::MAX } else { LOOK }) {
            Ok((names, variables)) => {
                for one in all.iter_mut().filter(|one| names.contains(&one.rule.event)) {
                    one.left_out += u64::from(one.waiting.replace(variables.clone()).is_some());
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        for one in &mut all {
            one.look(bounds.run, warn);
            let is_due = one.started.is_none_or(|at| at.elapsed() >= bounds.apart);
            if let Some(variables) = one.waiting.take_if(|_| one.group.is_none() && is_due) {
                one.start(variables, warn);
            }
        }
    }
    let end = Instant::now();
    for one in &mut all {
        one.left_out += u64::from(one.waiting.is_some());
        one.tell_left_out(warn);
    }
    while all.iter().any(|one| one.group.is_some()) {
        std::thread::sleep(LOOK);
        let is_over = end.elapsed() >= bounds.grace;
        all.iter_mut().for_each(|one| one.look(if is_over { Duration::ZERO } else { bounds.run }, warn));
    }
}

/// A rule, and its command where it runs.
#[derive(Default)]
struct Running {
    rule: Rule,
    group: Option<OwnGroup>,
    started: Option<Instant>,
    /// The last event that has no command yet.
    waiting: Option<Variables>,
    /// Events that another one replaced.
    left_out: u64,
}

impl Running {
    fn start(&mut self, variables: Variables, warn: &dyn Fn(Warning)) {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(&self.rule.command).stdin(Stdio::null()).stdout(io::stderr()).envs(variables);
        command.env("PCIESCOPE_EVENT", &self.rule.event).env("PCIESCOPE_LEFT_OUT", self.left_out.to_string());
        self.tell_left_out(warn);
        self.started = Some(Instant::now());
        match OwnGroup::start(&mut command) {
            Ok(group) => self.group = Some(group),
            Err(why) => self.tell(&format!("did not start: {why}"), warn),
        }
    }

    /// Looks whether the command has ended, and ends it after its time.
    fn look(&mut self, most: Duration, warn: &dyn Fn(Warning)) {
        let (Some(group), Some(started)) = (&mut self.group, self.started) else { return };
        let why = match group.status() {
            Ok(None) if started.elapsed() < most => return,
            Ok(None) => format!("was killed after {:.1} s", started.elapsed().as_secs_f64()),
            Ok(Some(status)) if status.success() => String::new(),
            Ok(Some(status)) => format!("failed: {status}"),
            Err(why) => format!("cannot be waited for: {why}"),
        };
        self.group = None;
        if !why.is_empty() {
            self.tell(&why, warn);
        }
    }

    fn tell(&self, what: &str, warn: &dyn Fn(Warning)) {
        warn(warning::COMMAND_FAILED.warn(format!("--on {}: the command {what}", self.rule.event)));
    }

    fn tell_left_out(&mut self, warn: &dyn Fn(Warning)) {
        let count = std::mem::take(&mut self.left_out);
        if count > 0 {
            let text = format!("--on {}: events without a command of their own: {count}", self.rule.event);
            warn(warning::COMMANDS_LEFT_OUT.warn(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    const QUICK: Bounds =
        Bounds { run: Duration::from_secs(20), apart: Duration::ZERO, grace: Duration::from_secs(20) };

    /// Runs a command at each of these events, `PCIESCOPE_TEST` being the value, and gives what was warned of.
    fn on(command: &str, bounds: Bounds, values: &[&str]) -> Vec<String> {
        let rule = Rule { event: "test".to_owned(), command: command.to_owned() };
        let mut commands = Commands::start(vec![rule], bounds, |_| {});
        for value in values {
            commands.happened(&["other", "test"], Variables::from([("PCIESCOPE_TEST", (*value).to_owned())]));
            commands.happened(&["none"], Variables::new());
            // Longer than such a command takes.
            std::thread::sleep(if bounds.apart.is_zero() { Duration::from_millis(300) } else { Duration::ZERO });
        }
        std::thread::sleep(Duration::from_millis(100));
        commands.finish();
        commands.warnings().map(|warning| format!("{}: {}", warning.code, warning.text)).collect()
    }

    fn read(folder: &Path) -> String {
        fs::read_to_string(folder.join("out")).unwrap_or_default()
    }

    #[test]
    fn what_happened_is_a_variable_and_never_a_part_of_the_command() {
        let folder = tempfile::tempdir().unwrap();
        let command = format!(
            "read line; printf '%s|%s|' \"$PCIESCOPE_TEST\" $PCIESCOPE_EVENT >>{0}/out",
            folder.path().display()
        );
        let touched = folder.path().join("touched");
        let hostile = format!("$(touch {0})`touch {0}`;touch {0}\n'\"\x1b[31m\u{e4}\u{202e}", touched.display());
        let warned = on(&command, QUICK, &[&hostile, &"x".repeat(300)]);
        assert!(warned.is_empty(), "{warned:?}");
        let clean = hostile.replace(['\n', '\x1b', '\u{e4}', '\u{202e}'], "?");
        assert_eq!(read(folder.path()), format!("{clean}|test|{}~|test|", "x".repeat(199)));
        assert!(!touched.exists());
    }

    #[test]
    fn events_that_come_too_fast_are_counted_and_the_last_one_gets_its_command() {
        let folder = tempfile::tempdir().unwrap();
        let command = format!("echo $PCIESCOPE_TEST $PCIESCOPE_LEFT_OUT >>{}/out", folder.path().display());
        let bounds = Bounds { apart: Duration::from_millis(50), ..QUICK };
        let warned = on(&command, bounds, &["1", "2", "3", "4", "5"]);
        let written = read(folder.path());
        let last = written.lines().last().unwrap();
        let left_out: u64 = last.strip_prefix("5 ").unwrap().parse().unwrap();
        assert!(left_out > 0 && written.lines().count() < 5, "{written}");
        assert_eq!(warned.len(), 1, "{warned:?}");
        assert!(warned[0].starts_with("commands-left-out: --on test: "), "{warned:?}");
        // One that still waits at the end.
        let warned = on("true", Bounds { apart: Duration::from_secs(100), ..QUICK }, &["1", "2"]);
        assert_eq!(warned.len(), 1, "{warned:?}");
    }

    #[test]
    fn a_command_that_takes_too_long_is_killed_with_all_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let command = format!("sleep 1000 & echo $! >{}/out; wait", folder.path().display());
        let is_gone = || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", read(folder.path()).trim())).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        };
        let short = Duration::from_millis(150);
        for bounds in [Bounds { run: short, ..QUICK }, Bounds { grace: short, ..QUICK }] {
            let begin = Instant::now();
            let warned = on(&command, bounds, &["1"]);
            assert!(warned.len() == 1 && warned[0].contains("was killed after 0."), "{warned:?}");
            while !is_gone() {
                assert!(begin.elapsed() < Duration::from_secs(10), "it goes on");
                std::thread::sleep(LOOK);
            }
        }
    }

    #[test]
    fn a_command_that_fails_is_told() {
        for (command, why) in [
            ("exit 3", "failed: exit status: 3"),
            ("kill -9 $$", "failed: signal: 9 (SIGKILL)"),
            ("/nowhere/x 2>/dev/null", "failed: exit status: 127"),
        ] {
            assert_eq!(on(command, QUICK, &["1"]), [format!("command-failed: --on test: the command {why}")]);
        }
    }
}
