//! What the suites of the counters share: a guest with the counter board, perf in it, and the board's ledger.
//!
//! The truth is what the ledger gained between two looks ([`Truth`]): the board is never reset under a driver.

use std::collections::BTreeMap;
use std::ops::Deref;

use pciescope_lab::device::CounterBoard;
use pciescope_lab::device::traffic::Traffic;
use pciescope_lab::vm::{Attachment, Builder, Kernel, Running, Vm};
use serde_json::Value;

use super::Endpoint;
use super::guest::Guest;

/// A guest with the seed's machine: its root ports, its sub-channels, and the shim that puts them there.
pub struct Counters {
    // Dropped in this order: the guest goes before its device.
    pub vm: Guest,
    pub board: Endpoint,
    /// The PMUs of the sub-channels, by the sub-channels' names.
    pmus: BTreeMap<String, String>,
}

/// One line of perf's: an event and its count.
#[derive(Clone, Debug)]
pub struct Reading {
    /// As it was asked for, such as `ali_drw_21000/hif_rd/`.
    pub event: String,
    pub unit: String,
    /// `None` where perf says `<not counted>` or `<not supported>`.
    pub count: Option<u64>,
    /// Share of the time for which it was counting, in percent.
    pub percent: f64,
}

impl Reading {
    /// The PMU.
    pub fn pmu(&self) -> &str {
        self.event.split('/').next().unwrap_or_default()
    }

    /// The event without its PMU, and without what the seed's naming has before it.
    pub fn name(&self) -> &str {
        let name = self.event.split('/').nth(1).unwrap_or_default();
        name.strip_prefix("perf_").unwrap_or(name)
    }

    /// The count, which there has to be.
    pub fn counted(&self) -> u64 {
        self.count.unwrap_or_else(|| panic!("{} was not counted", self.event))
    }
}

/// A `perf stat` that counts until it is told to end.
pub struct Perf<'vm> {
    rig: &'vm Counters,
    running: Running<'vm>,
    file: String,
}

impl Perf<'_> {
    /// Ends it as Ctrl-C would, and gives what it counted.
    pub fn end(self) -> Vec<Reading> {
        self.running.signal("INT").unwrap_or_else(|err| panic!("the lab failed: {err}"));
        self.wait()
    }

    /// Waits for an end that comes by itself.
    pub fn wait(self) -> Vec<Reading> {
        let output = self.running.wait().unwrap_or_else(|err| panic!("perf did not end: {err}"));
        let text = self.rig.read(&self.file);
        assert!(!text.is_empty(), "perf stat: exit status {}: {}", output.status, output.stderr);
        readings(&text)
    }

    /// Whether it still counts.
    pub fn is_alive(&self) -> bool {
        self.running.status().is_none()
    }
}

impl Deref for Counters {
    type Target = Guest;

    fn deref(&self) -> &Guest {
        &self.vm
    }
}

impl Counters {
    /// Boots the seed's machine with the shim and a driver; `more` adds to the machine.
    pub fn boot(kernel: Kernel, module: &str, more: impl FnOnce(Builder) -> Builder) -> Counters {
        Counters::boot_on(Traffic::new(), kernel, module, more)
    }

    /// As [`Counters::boot`], with a ledger that other devices enter their traffic into.
    pub fn boot_on(traffic: Traffic, kernel: Kernel, module: &str, more: impl FnOnce(Builder) -> Builder) -> Counters {
        let board = Endpoint::serve(CounterBoard::seed_machine(traffic), "board");
        let builder = Vm::builder()
            .kernel(kernel)
            .seed_machine()
            .served("board", &board.served, Attachment::RootBus)
            .module("pciescope_lab")
            .module(module);
        let vm = Guest::boot(more(builder));
        let mut rig = Counters { vm, board, pmus: BTreeMap::new() };
        rig.list_pmus();
        rig
    }

    /// A guest with the seed's machine and the board, and no module loaded yet.
    pub fn of(vm: Guest, board: Endpoint) -> Counters {
        Counters { vm, board, pmus: BTreeMap::new() }
    }

    /// Unloads what drives the counters, the shim with it, and loads the shim and a module, with its parameters.
    pub fn load(&mut self, module: &str) {
        let own = "drw_pmu rasdes_pmu alibaba_uncore_drw_pmu dwc_pcie_pmu pciescope_lab";
        self.must(&format!("for m in {own}; do if [ -d /sys/module/$m ]; then rmmod $m || exit; fi; done"));
        self.must(&format!("modprobe pciescope_lab && modprobe {module}"));
        self.list_pmus();
    }

    /// Looks for the PMUs of the sub-channels.
    pub fn list_pmus(&mut self) {
        // The in-tree driver knows no other name than the window's; the windows lie in the order of the names.
        let listed = self.must("cd /sys/bus/event_source/devices; ls -d ali_drw_* 2>/dev/null | sort || true");
        let subs = self.truth().0["dram"].as_object().expect("the ledger has sub-channels").clone();
        self.pmus = subs.keys().cloned().zip(listed.lines().map(str::to_owned)).collect();
    }

    /// The PMU of a sub-channel.
    pub fn pmu(&self, sub: &str) -> &str {
        self.pmus.get(sub).unwrap_or_else(|| panic!("the driver has no PMU for {sub}"))
    }

    /// Opens events of a sub-channel by their configurations, all in one process, and gives the answers: numbers, or
    /// names of errors. A sub-channel may carry attributes, as kmod/selftest/perf_events.c has them: `21000:config1=1`.
    pub fn open(&self, sub: &str, configs: impl IntoIterator<Item = String>) -> Vec<String> {
        let (name, attributes) = sub.split_once(':').unwrap_or((sub, ""));
        let pmu =
            if attributes.is_empty() { self.pmu(name).to_owned() } else { format!("{}:{attributes}", self.pmu(name)) };
        let commands: String = configs.into_iter().map(|config| format!("open {pmu} {config}\\n")).collect();
        let answers = self.must(&format!("printf '{commands}' | /lib/pciescope/perf_events"));
        answers.lines().map(str::to_owned).collect()
    }

    /// perf's arguments for events of a sub-channel.
    pub fn events(&self, sub: &str, names: &[&str]) -> String {
        let pmu = self.pmu(sub);
        let names: Vec<String> = names.iter().map(|name| format!("{pmu}/{name}/")).collect();
        names.join(" -e ")
    }

    /// perf's arguments for a group of events of a sub-channel.
    pub fn group(&self, sub: &str, names: &[&str]) -> String {
        format!("'{{{}}}'", self.events(sub, names).replace(" -e ", ","))
    }

    /// The sub-channel that a line of perf's is about.
    pub fn sub_of(&self, reading: &Reading) -> &str {
        let found = self.pmus.iter().find(|(_, pmu)| *pmu == reading.pmu());
        found.unwrap_or_else(|| panic!("{} is no PMU of ours", reading.pmu())).0
    }

    /// Every count but the cycles' is the board's to the event, and something was counted.
    pub fn equals(&self, read: &[Reading], before: &Truth, truth: &Truth) {
        let mut sum = 0;
        for reading in read.iter().filter(|reading| reading.name() != "cycle") {
            let counted = truth.counted(before, self.sub_of(reading), reading.name());
            assert_eq!(reading.counted(), counted, "{}", reading.event);
            sum += counted;
        }
        assert!(sum > 0, "nothing was counted");
    }

    /// Tells the board something over its control socket.
    pub fn tell(&self, command: &str) -> Value {
        self.board.tell(command)
    }

    /// What the board has seen until now.
    pub fn truth(&self) -> Truth {
        Truth(self.board.ledger())
    }

    /// How many lines the kernel's log has, but for what it says of a host that is slow.
    pub fn log_lines(&self) -> String {
        self.must("dmesg | grep -vc 'hrtimer: interrupt took'")
    }

    /// Starts `perf stat -a ARGS`, which counts until it is ended. `name` tells it from others at the same time.
    pub fn perf_start(&self, name: &str, args: &str) -> Perf<'_> {
        let file = format!("/host/perf-{name}.txt");
        let script = format!("rm -f {file}; exec perf stat -x '|' -o {file} -a {args}");
        let running = self.vm.start(&script);
        Perf { rig: self, running, file }
    }

    /// Runs `perf stat -a ARGS` with a command of its own at the end of the arguments, and gives what it counted.
    pub fn perf(&self, args: &str) -> Vec<Reading> {
        self.perf_start("once", args).wait()
    }

    /// Lets each turn of these PMUs last `ms`; `pmus` is a pattern of the shell. Beginning a measurement takes the emulator
    /// milliseconds, more where its host is slow: with 18 ports at their own 50 ms a guest can come to do nothing else.
    pub fn turns_last(&self, pmus: &str, ms: u32) {
        self.must(&format!(
            "for f in /sys/bus/event_source/devices/{pmus}/perf_event_mux_interval_ms; do echo {ms} >$f; done"
        ));
    }

    /// [`Guest::finish`].
    pub fn finish(self, modules: &[&str]) {
        self.vm.finish(modules);
    }
}

/// Reads what `perf stat -x '|'` wrote, with or without `-I`.
pub fn readings(text: &str) -> Vec<Reading> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && line.contains('/'));
    lines
        .map(|line| {
            let mut words: Vec<&str> = line.split('|').map(str::trim).collect();
            // With -I the time comes first.
            if !words[2].contains('/') {
                words.remove(0);
            }
            Reading {
                event: words[2].to_owned(),
                unit: words[1].to_owned(),
                count: words[0].parse().ok(),
                percent: words.get(4).and_then(|word| word.parse().ok()).unwrap_or(0.0),
            }
        })
        .collect()
}

/// The board's ledger at one moment.
#[derive(Clone, Debug)]
pub struct Truth(pub Value);

impl Truth {
    /// A number that the ledger has for a sub-channel, such as `overflows`.
    pub fn number(&self, sub: &str, field: &str) -> u64 {
        self.0["dram"][sub][field].as_u64().unwrap_or_else(|| panic!("the ledger has no {field} of {sub}"))
    }

    /// How many of a sub-channel's counters are enabled while it runs.
    pub fn enabled(&self, sub: &str) -> usize {
        let sub = &self.0["dram"][sub];
        if sub["running"] == true { sub["enabled"].as_object().map_or(0, |map| map.len()) } else { 0 }
    }

    /// Whether a sub-channel holds its interrupt line.
    pub fn is_asserted(&self, sub: &str) -> bool {
        self.0["dram"][sub]["asserted"] == true
    }

    /// What each counter of a sub-channel counted of an event since an earlier look; those that counted nothing are
    /// left out.
    pub fn by_counter(&self, before: &Truth, sub: &str, event: &str) -> BTreeMap<String, u64> {
        let counted = |truth: &Truth| truth.0["dram"][sub]["events"][event]["counted"].clone();
        let (now, then) = (counted(self), counted(before));
        let gained = |(counter, n): (&String, &Value)| {
            let gained = n.as_u64().unwrap_or(0) - then[counter].as_u64().unwrap_or(0);
            (gained > 0).then(|| (counter.clone(), gained))
        };
        now.as_object().map(|now| now.iter().filter_map(gained).collect()).unwrap_or_default()
    }

    /// What all counters of a sub-channel together counted of an event since an earlier look.
    pub fn counted(&self, before: &Truth, sub: &str, event: &str) -> u64 {
        self.by_counter(before, sub, event).values().sum()
    }

    /// How often an event happened since an earlier look.
    pub fn happened(&self, before: &Truth, sub: &str, event: &str) -> u64 {
        let happened = |truth: &Truth| truth.0["dram"][sub]["events"][event]["happened"].as_u64().unwrap_or(0);
        happened(self) - happened(before)
    }

    /// What a number of a sub-channel gained since an earlier look.
    pub fn gained(&self, before: &Truth, sub: &str, field: &str) -> u64 {
        self.number(sub, field) - before.number(sub, field)
    }
}
