//! What a CPU did when, from the hits of its tracepoints.

use std::collections::{BTreeMap, HashMap};

use pciescope_core::why::{Cause, Part};

use super::points::{Mark, Nest};

/// What a CPU did in a slice. All times are of CLOCK_MONOTONIC, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// They do not overlap; by time. What the innermost of several nested ones did is its own.
    spans: Vec<Busy>,
    /// By time: from which thread to which.
    switches: Vec<(u64, u32, u32)>,
    /// By time.
    instants: Vec<Instant>,
    /// Times of which events are lost.
    lost: Vec<(u64, u64)>,
    /// What leaving an idle state takes at most, by its name, in nanoseconds.
    pub idle_exits: BTreeMap<String, u64>,
    /// Hits that were understood.
    pub events: u64,
    /// Hits that found no room, or were not understood.
    pub events_lost: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Busy {
    from: u64,
    to: u64,
    cause: Cause,
    name: String,
    /// The thread, where that is what it is.
    thread: u32,
}

/// Something without a length; `thread` is the one that it concerns, where it concerns one.
#[derive(Debug)]
struct Instant {
    at: u64,
    cause: Cause,
    name: String,
    thread: Option<u32>,
}

/// Where the time of a sample ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// In the thread that began it.
    Thread,
    /// In the handler of an interrupt, which waits for nothing but other handlers.
    Handler,
}

impl Scope {
    fn has(self, cause: Cause) -> bool {
        use Cause::*;
        self == Scope::Thread || !matches!(cause, Softirq | Workqueue | Thread | PageFault | Migration)
    }
}

/// What the timeline tells of a sample.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Told {
    /// What took time, the largest part first.
    pub parts: Vec<Part>,
    /// What happened and has no length, the first one.
    pub instant: Option<(Cause, String)>,
    /// Whether events of this time are lost.
    pub is_lost: bool,
    /// Whether the CPU was idle at its end.
    pub is_idle: bool,
}

/// A timeline in the making.
#[derive(Default)]
pub(super) struct Builder {
    done: Timeline,
    /// What the CPU is in, outermost first.
    stack: Vec<(Nest, Cause, String)>,
    /// The thread that it is in, where known.
    thread: Option<(u32, String)>,
    /// Items of workqueues that threads are at.
    work: HashMap<u32, u64>,
    /// The time of the last mark.
    last: u64,
    /// Hits were lost since then.
    is_lost: bool,
}

impl Builder {
    /// So many hits are lost between the last mark and the next one.
    pub fn lose(&mut self, hits: u64) {
        self.done.events_lost += hits;
        self.is_lost = true;
    }

    /// Adds a mark. `symbol` names a function of the kernel.
    pub fn add(&mut self, at: u64, mark: Mark, symbol: &mut dyn FnMut(u64) -> String) {
        self.done.events += 1;
        if std::mem::take(&mut self.is_lost) {
            self.done.lost.push((self.last, at));
            // Which of what was begun has ended is not known.
            self.stack.clear();
            self.last = at;
        }
        if let Mark::Spent(.., ns) = &mark {
            self.pass(at.saturating_sub(*ns), symbol);
        } else {
            self.pass(at, symbol);
        }
        match mark {
            Mark::Begin(nest, cause, name) => self.stack.push((nest, cause, name)),
            Mark::End(nest) => {
                if let Some(place) = self.stack.iter().rposition(|(of, ..)| *of == nest) {
                    self.stack.truncate(place);
                }
            }
            Mark::Spent(cause, name, _) => {
                self.put(at, cause, name.clone(), 0);
                self.done.instants.push(Instant { at, cause, name, thread: None });
                self.last = at.max(self.last);
            }
            Mark::Switch { from, to, name } => {
                // Only an idle thread or one that nothing interrupts gives the CPU away.
                self.stack.clear();
                self.done.switches.push((at, from, to));
                self.thread = Some((to, name));
            }
            Mark::Work(function) => {
                let thread = self.thread.as_ref().map_or(0, |(thread, _)| *thread);
                match function {
                    Some(function) => self.work.insert(thread, function),
                    None => self.work.remove(&thread),
                };
            }
            Mark::Moved(thread, name) => {
                self.done.instants.push(Instant { at, cause: Cause::Migration, name, thread: Some(thread) });
            }
            Mark::Instant(cause, name) => self.done.instants.push(Instant { at, cause, name, thread: None }),
        }
    }

    /// What it has been doing until `at`.
    fn pass(&mut self, at: u64, symbol: &mut dyn FnMut(u64) -> String) {
        if let Some((_, cause, name)) = self.stack.last() {
            let (cause, name) = (*cause, name.clone());
            self.put(at, cause, name, 0);
        } else if let Some((thread, name)) = self.thread.clone().filter(|(thread, _)| *thread != 0) {
            match self.work.get(&thread) {
                Some(function) => self.put(at, Cause::Workqueue, format!("{} in {name}", symbol(*function)), thread),
                None => self.put(at, Cause::Thread, format!("{name} (thread {thread})"), thread),
            }
        }
        self.last = at.max(self.last);
    }

    fn put(&mut self, at: u64, cause: Cause, name: String, thread: u32) {
        // Before the first mark nothing is known.
        if self.last > 0 && at > self.last {
            self.done.spans.push(Busy { from: self.last, to: at, cause, name, thread });
        }
    }

    /// The timeline up to `end`.
    pub fn finish(mut self, end: u64, symbol: &mut dyn FnMut(u64) -> String) -> Timeline {
        if self.is_lost {
            self.done.lost.push((self.last, u64::MAX));
        }
        self.pass(end, symbol);
        self.done
    }
}

impl Timeline {
    /// What happened from `from` to `to`.
    pub fn told(&self, from: u64, to: u64, scope: Scope) -> Told {
        let current = self.thread_at(from);
        let begin = self.spans.partition_point(|span| span.to <= from);
        let inside = self.spans[begin..].iter().take_while(|span| span.from < to);
        let mut sums = BTreeMap::<(Cause, &str), u64>::new();
        for span in inside.filter(|span| scope.has(span.cause) && (span.thread == 0 || Some(span.thread) != current)) {
            *sums.entry((span.cause, &span.name)).or_default() += span.to.min(to) - span.from.max(from);
        }
        // A CPU that waits is idle for as long as nothing comes; only leaving that state is time lost.
        sums.retain(|(cause, name), ns| {
            *ns = (*ns).min(if *cause == Cause::IdleExit {
                self.idle_exits.get(*name).copied().unwrap_or(0)
            } else {
                *ns
            });
            *ns > 0
        });
        let part = |((cause, name), ns): ((Cause, &str), u64)| Part {
            cause,
            name: Some(name.to_owned()).filter(|name| !name.is_empty()),
            ns: ns as f64,
        };
        let mut parts: Vec<Part> = sums.into_iter().map(part).collect();
        parts.sort_by(|a, b| b.ns.total_cmp(&a.ns));
        let first = self.instants.partition_point(|instant| instant.at < from);
        let mut instants = self.instants[first..].iter().take_while(|instant| instant.at < to);
        let instant = instants.find(|one| scope.has(one.cause) && one.thread.is_none_or(|own| Some(own) == current));
        Told {
            parts,
            instant: instant.map(|instant| (instant.cause, instant.name.clone())),
            is_lost: self.lost.iter().any(|(begin, end)| *begin < to && from < *end),
            is_idle: self.thread_at(to) == Some(0),
        }
    }

    /// Adds what happened anywhere in the machine.
    pub fn add_wide(&mut self, wide: &Timeline) {
        let copied = wide.instants.iter().map(|one| Instant { name: one.name.clone(), ..*one });
        self.instants.extend(copied);
        self.instants.sort_by_key(|instant| instant.at);
    }

    /// The thread that had the CPU then.
    fn thread_at(&self, at: u64) -> Option<u32> {
        let next = self.switches.partition_point(|(when, ..)| *when <= at);
        match next.checked_sub(1) {
            Some(before) => Some(self.switches[before].2),
            None => self.switches.first().map(|(_, from, _)| *from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(nest: Nest, cause: Cause, name: &str) -> Mark {
        Mark::Begin(nest, cause, name.to_owned())
    }

    fn switch(from: u32, to: u32, name: &str) -> Mark {
        Mark::Switch { from, to, name: name.to_owned() }
    }

    fn timeline(marks: Vec<(u64, Mark)>) -> Timeline {
        let mut builder = Builder::default();
        let mut symbol = |address| format!("f{address:x}");
        marks.into_iter().for_each(|(at, mark)| builder.add(at, mark, &mut symbol));
        builder.finish(1_000_000, &mut symbol)
    }

    fn words(told: &Told) -> Vec<String> {
        let word = |part: &Part| format!("{} {} {}", part.cause.name(), part.name.as_deref().unwrap_or("-"), part.ns);
        told.parts.iter().map(word).collect()
    }

    #[test]
    fn each_moment_is_that_of_the_innermost() {
        let all = timeline(vec![
            (100, begin(Nest::Handler, Cause::Interrupt, "nic0 (IRQ 30)")),
            (150, Mark::Spent(Cause::Nmi, String::new(), 10)),
            (200, Mark::End(Nest::Handler)),
            (200, begin(Nest::Softirq, Cause::Softirq, "NET_RX")),
            (300, begin(Nest::Vector, Cause::Timer, "local_timer")),
            (350, Mark::End(Nest::Vector)),
            (500, Mark::End(Nest::Softirq)),
        ]);
        let told = all.told(0, 1000, Scope::Thread);
        let parts = ["softirq NET_RX 250", "interrupt nic0 (IRQ 30) 90", "timer local_timer 50", "NMI - 10"];
        assert_eq!(words(&told), parts);
        assert_eq!(words(&all.told(320, 340, Scope::Thread)), ["timer local_timer 20"]);
        // A handler waits for no softirq.
        assert_eq!(words(&all.told(160, 340, Scope::Handler)), ["interrupt nic0 (IRQ 30) 40", "timer local_timer 40"]);
        assert_eq!(all.told(500, 900, Scope::Thread), Told::default());
    }

    #[test]
    fn other_threads_take_the_time_and_the_own_one_does_not() {
        let all = timeline(vec![
            (100, switch(7, 30, "kworker/1:2")),
            (120, Mark::Work(Some(0xabc))),
            (220, switch(30, 31, "fio")),
            (280, switch(31, 30, "kworker/1:2")),
            (290, Mark::Work(None)),
            (300, switch(30, 0, "swapper/1")),
            (400, switch(0, 7, "pciescope")),
        ]);
        let parts =
            ["workqueue fabc in kworker/1:2 110", "thread fio (thread 31) 60", "thread kworker/1:2 (thread 30) 30"];
        assert_eq!(words(&all.told(50, 600, Scope::Thread)), parts);
        assert!(all.told(50, 600, Scope::Handler).parts.is_empty());
        assert!(all.told(401, 600, Scope::Thread).parts.is_empty());
    }

    #[test]
    fn what_is_lost_is_no_evidence_of_nothing() {
        let mut builder = Builder::default();
        let mut symbol = |_| String::new();
        builder.add(100, begin(Nest::Handler, Cause::Interrupt, "x"), &mut symbol);
        builder.lose(3);
        builder.add(200, Mark::Instant(Cause::PageFault, String::new()), &mut symbol);
        builder.add(300, Mark::Moved(9, String::new()), &mut symbol);
        let all = builder.finish(1000, &mut symbol);
        let is_lost = |from, to| all.told(from, to, Scope::Thread).is_lost;
        assert!(is_lost(150, 160) && is_lost(50, 101) && !is_lost(200, 300) && !is_lost(0, 100));
        // The interrupt's end may be among them.
        assert!(all.told(100, 1000, Scope::Thread).parts.is_empty());
        assert_eq!((all.events, all.events_lost), (3, 3));
        let instant = all.told(150, 1000, Scope::Thread).instant;
        assert_eq!(instant, Some((Cause::PageFault, String::new())));
        // Another thread's move is not this one's.
        assert_eq!(all.told(250, 1000, Scope::Thread).instant, None);
    }
}
