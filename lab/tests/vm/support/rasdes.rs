//! What the suite of root port counters works with: a guest with the counter board, `perf stat`, and perf events
//! opened one step at a time. The board's ledger is the truth.
//!
//! A failure of the lab panics with "the lab failed"; what drivers count is judged by the tests alone.

use std::cell::Cell;
use std::ops::Deref;

use pciescope_lab::device::CounterBoard;
use pciescope_lab::vm::{Attachment, Builder, Kernel, Running, Vm};
use serde_json::Value;

use super::counters::{Reading, readings};
use super::guest::Guest;
use super::{Endpoint, lab_failed};

/// A guest with the counter board and its shim.
pub struct Rig {
    // Dropped in this order: the guest goes before its device.
    pub vm: Guest,
    board: Endpoint,
}

impl Deref for Rig {
    type Target = Guest;

    fn deref(&self) -> &Guest {
        &self.vm
    }
}

impl Rig {
    /// Boots the machine that `more` describes around the board, with the shim loaded.
    pub fn boot(kernel: Kernel, board: CounterBoard, more: impl FnOnce(Builder) -> Builder) -> Rig {
        let board = Endpoint::serve(board, "board");
        let builder =
            Vm::builder().kernel(kernel).served("board", &board.served, Attachment::RootBus).module("pciescope_lab");
        let vm = Guest::boot(more(builder));
        Rig { vm, board }
    }

    /// Tells the board something over its control socket, as a person would with `pciescope lab ctl`.
    pub fn tell(&self, command: &str) -> Value {
        self.board.tell(command)
    }

    /// What the board knows: the truth.
    pub fn ledger(&self) -> Value {
        self.board.ledger()
    }

    /// A file of a PMU in sysfs.
    pub fn pmu_file(&self, pmu: &str, file: &str) -> String {
        self.must(&format!("cat /sys/bus/event_source/devices/{pmu}/{file}"))
    }

    /// What `perf stat OPTIONS` counts while `meanwhile` runs.
    pub fn perf_stat(&self, options: &str, meanwhile: impl FnOnce()) -> Vec<Reading> {
        let running = self.vm.start(&format!("exec perf stat -x '|' -o /host/perf.txt {options} -- {}", self.hold()));
        self.wait_for("perf stat begins", || {
            if let Some(status) = running.status() {
                let output = running.wait().unwrap_or_else(|err| lab_failed(err));
                panic!("perf stat {options} ended with {status}: {}{}", output.stdout, output.stderr);
            }
            self.has_begun().then_some(())
        });
        meanwhile();
        self.let_go();
        let output = running.wait().unwrap_or_else(|err| lab_failed(err));
        assert!(output.is_success(), "perf stat {options}: {}", output.stderr);
        readings(&self.read("/host/perf.txt"))
    }

    /// [`Guest::finish`]; the modules are unloaded already, or stay.
    pub fn finish(self) {
        self.vm.finish(&[]);
    }
}

/// A process in the guest that holds perf events (kmod/selftest/perf_events.c).
pub struct Session<'a> {
    vm: &'a Guest,
    running: Option<Running<'a>>,
    name: &'static str,
    lines: Cell<usize>,
}

/// What an event says when it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionReading {
    pub value: u64,
    pub enabled_ns: u64,
    pub running_ns: u64,
}

impl<'a> Session<'a> {
    /// Starts the process; no other that runs has its name.
    pub fn start(vm: &'a Guest, name: &'static str) -> Session<'a> {
        vm.must(&format!("cd /tmp; rm -f {name}.in {name}.out; mkfifo {name}.in; touch {name}.out"));
        // Opened for reading and writing: so there is always somebody who writes, and no end.
        let script = format!("exec /lib/pciescope/perf_events <>/tmp/{name}.in >/tmp/{name}.out");
        let running = Some(vm.start(&script));
        Session { vm, running, name, lines: Cell::new(0) }
    }

    /// Gives commands, and gets one line for each.
    pub fn ask<S: AsRef<str>>(&self, commands: &[S]) -> Vec<String> {
        let (name, before) = (self.name, self.lines.get());
        let after = before + commands.len();
        let text: String = commands.iter().map(|command| format!("{}\n", command.as_ref())).collect();
        let answers = self.vm.must(&format!(
            "cat >/tmp/{name}.in <<'END'\n{text}END\n\
             until [ $(wc -l </tmp/{name}.out) -ge {after} ]; do sleep 0.01; n=$((n+1)); [ $n -lt 2000 ] || exit 1; done; \
             tail -n +{} /tmp/{name}.out",
            before + 1
        ));
        self.lines.set(after);
        let answers: Vec<String> = answers.lines().map(str::to_owned).collect();
        assert_eq!(answers.len(), commands.len(), "{answers:?}");
        answers
    }

    /// Opens an event, in the group of `leader` if there is one; its number, or the name of the error.
    pub fn try_open(&self, pmu: &str, config: u64, leader: Option<usize>) -> Result<usize, String> {
        let leader = leader.map(|leader| leader.to_string()).unwrap_or_default();
        let answer = self.ask(&[format!("open {pmu} {config:#x} {leader}")]).remove(0);
        answer.parse().map_err(|_| answer)
    }

    /// Opens an event of its own, which has to succeed.
    pub fn open(&self, pmu: &str, config: u64) -> usize {
        self.open_all(pmu, &[config])[0]
    }

    /// Opens several events, which has to succeed.
    pub fn open_all(&self, pmu: &str, configs: &[u64]) -> Vec<usize> {
        let commands: Vec<String> = configs.iter().map(|config| format!("open {pmu} {config:#x}")).collect();
        let answers = self.ask(&commands);
        let number = |(config, answer): (&u64, &String)| {
            answer.parse().unwrap_or_else(|_| panic!("{pmu}: {config:#x}: {answer}"))
        };
        configs.iter().zip(&answers).map(number).collect()
    }

    /// Reads events.
    pub fn readings(&self, events: &[usize]) -> Vec<SessionReading> {
        let commands: Vec<String> = events.iter().map(|event| format!("read {event}")).collect();
        let parse = |answer: &String| {
            let words: Vec<u64> = answer.split(' ').filter_map(|word| word.parse().ok()).collect();
            let &[value, enabled_ns, running_ns] = words.as_slice() else { panic!("a reading: {answer}") };
            SessionReading { value, enabled_ns, running_ns }
        };
        self.ask(&commands).iter().map(parse).collect()
    }

    /// Reads the values of events.
    pub fn values(&self, events: &[usize]) -> Vec<u64> {
        self.readings(events).iter().map(|reading| reading.value).collect()
    }

    /// Reads the value of an event.
    pub fn value(&self, event: usize) -> u64 {
        self.values(&[event])[0]
    }

    /// `enable`, `disable`, `reset` or `close` of events, which has to succeed.
    pub fn do_to(&self, verb: &str, events: &[usize]) {
        let commands: Vec<String> = events.iter().map(|event| format!("{verb} {event}")).collect();
        assert!(self.ask(&commands).iter().all(|answer| answer == "ok"), "{verb} {events:?}");
    }

    /// Closes all events at once, as a process that is killed does.
    pub fn end(self) {}
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let Some(running) = self.running.take().filter(|_| !std::thread::panicking()) else { return };
        running.signal("KILL").unwrap_or_else(|err| lab_failed(err));
        running.wait().map(drop).unwrap_or_else(|err| lab_failed(err));
    }
}
