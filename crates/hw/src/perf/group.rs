//! Events that are counted and read together: one `read` gets all of them.

use std::fs::File;
use std::io::{self, Read};

use super::{Error, Event, Pmu, sys};
use crate::Root;

/// A counter's state at one moment. All three only grow, unless something is wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    /// Counted so far, while it ran.
    pub value: u64,
    /// For how long it was to count, in nanoseconds.
    pub enabled_ns: u64,
    /// For how long it did, in nanoseconds.
    pub running_ns: u64,
}

/// What one read of a group gave.
#[derive(Debug, Clone, Copy)]
pub struct Values<'g> {
    /// For how long the group was to count, in nanoseconds.
    pub enabled_ns: u64,
    /// For how long it did, in nanoseconds.
    pub running_ns: u64,
    /// The counts in the order in which the events were given.
    pub values: &'g [u64],
}

impl Values<'_> {
    /// The state of one event.
    pub fn reading(&self, place: usize) -> Reading {
        Reading { value: self.values[place], enabled_ns: self.enabled_ns, running_ns: self.running_ns }
    }
}

/// How a group claims the hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// It waits for its turn where others are before it.
    Flexible,
    /// It always runs, or never.
    Pinned,
}

/// Events of one PMU on one CPU that the kernel counts at the same times, or none of them.
#[derive(Debug)]
pub struct Group {
    /// The leader first. The others only have to stay open.
    files: Vec<File>,
    /// The leader as perf writes it, for messages.
    name: String,
    cpu: u32,
    hold: Hold,
    bytes: Vec<u8>,
    values: Vec<u64>,
}

/// What precedes the counts in a read: their number, time enabled, time running.
const HEAD: usize = 3;

impl Group {
    /// Opens `events` as one group on `cpu`. It does not count yet.
    ///
    /// # Errors
    /// As the kernel refuses the first that cannot be opened, or cannot be in this group. [`Error::Call`] for no events.
    pub fn open(root: &Root, pmu: &Pmu, cpu: u32, events: &[Event]) -> Result<Self, Error> {
        let Some((first, others)) = events.split_first() else {
            let source = io::Error::from(io::ErrorKind::InvalidInput);
            return Err(Error::Call { event: format!("{}//", pmu.name), what: "open a group without events", source });
        };
        let mut group = Group::lead(root, pmu, cpu, first, Hold::Flexible)?;
        for event in others {
            group.join(root, pmu, event)?;
        }
        Ok(group)
    }

    /// Opens `events` in as few groups as the PMU accepts: each event goes to the first group that does not refuse it,
    /// or to a new group. Returns the groups with the places of their events, and the events that could not be opened,
    /// with the reason.
    ///
    /// If there are several events that take turns ([`Pmu::takes_turns`]), each of them gets its own group, and the
    /// others get a pinned group: perf schedules no group behind one that has to wait, so without pinning they would
    /// wait too. A trial finds a group that opens but never runs (the in-tree driver of root ports accepts two
    /// time-based events in one group); its events are then opened separately.
    pub fn open_packed(root: &Root, pmu: &Pmu, cpu: u32, events: &[Event]) -> Packed {
        let takes_turns: Vec<bool> = events.iter().map(|event| pmu.takes_turns(event.config)).collect();
        let has_turns = takes_turns.iter().filter(|turns| **turns).count() > 1;
        let mut packed = Packed::default();
        for (place, event) in events.iter().enumerate() {
            let is_alone = has_turns && takes_turns[place];
            let is_open = |of: &[usize]| !(is_alone || has_turns && takes_turns[of[0]]);
            let mut joins = packed.groups.iter_mut().filter(|(_, of)| is_open(of));
            if let Some((_, of)) = joins.find_map(|(group, of)| group.join(root, pmu, event).ok().map(|()| ((), of))) {
                of.push(place);
                continue;
            }
            let how = if has_turns && !is_alone { Hold::Pinned } else { Hold::Flexible };
            match Group::lead(root, pmu, cpu, event, how) {
                Ok(group) => packed.groups.push((group, vec![place])),
                Err(error) => packed.refused.push((place, error)),
            }
        }
        packed.split_what_never_runs(root, pmu, cpu, events);
        packed
    }

    fn lead(root: &Root, pmu: &Pmu, cpu: u32, event: &Event, hold: Hold) -> Result<Self, Error> {
        refuse_harm(pmu, event)?;
        let file = sys::open(pmu.number, event.config, cpu, sys::Role::Leader { pinned: hold == Hold::Pinned })
            .map_err(|err| refusal(root, pmu, event, cpu, err))?;
        let mut group =
            Group { files: vec![file], name: event.to_string(), cpu, hold, bytes: Vec::new(), values: Vec::new() };
        group.make_room();
        Ok(group)
    }

    fn join(&mut self, root: &Root, pmu: &Pmu, event: &Event) -> Result<(), Error> {
        refuse_harm(pmu, event)?;
        let file = sys::open(pmu.number, event.config, self.cpu, sys::Role::Sibling(&self.files[0]))
            .map_err(|err| refusal(root, pmu, event, self.cpu, err))?;
        self.files.push(file);
        self.make_room();
        Ok(())
    }

    fn make_room(&mut self) {
        self.values = vec![0; self.files.len()];
        self.bytes = vec![0; (HEAD + self.files.len()) * size_of::<u64>()];
    }

    /// The CPU on which it is counted. Reading from there saves the kernel a call to another CPU.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// How many events it has; at least one.
    #[expect(clippy::len_without_is_empty, reason = "a group is never empty")]
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Lets it count from now on.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn enable(&self) -> Result<(), Error> {
        self.called("start counting", sys::enable(&self.files[0]))
    }

    /// Stops it; its counts stay.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn disable(&self) -> Result<(), Error> {
        self.called("stop counting", sys::disable(&self.files[0]))
    }

    /// Reads all its counts with one system call and without allocating.
    ///
    /// # Errors
    /// [`Error::Gone`] when the PMU was removed under it; [`Error::Call`].
    pub fn read(&mut self) -> Result<Values<'_>, Error> {
        let read = (&self.files[0]).read(&mut self.bytes);
        let count = match read {
            Ok(count) => count,
            Err(err) if err.raw_os_error() == Some(libc::ENODEV) => return Err(self.gone()),
            Err(source) => return Err(Error::Call { event: self.name.clone(), what: "read", source }),
        };
        // Nothing at all, or fewer events than were opened: the kernel took them from the PMU.
        let word = |place: usize| {
            let at = place * size_of::<u64>();
            self.bytes[at..at + size_of::<u64>()].try_into().map(u64::from_ne_bytes).expect("a slice of 8 bytes")
        };
        if count < self.bytes.len() || word(0) != self.files.len() as u64 {
            return Err(self.gone());
        }
        let (enabled_ns, running_ns) = (word(1), word(2));
        for place in 0..self.values.len() {
            self.values[place] = word(HEAD + place);
        }
        Ok(Values { enabled_ns, running_ns, values: &self.values })
    }

    fn gone(&self) -> Error {
        Error::Gone(self.name.clone())
    }

    fn called(&self, what: &'static str, result: io::Result<()>) -> Result<(), Error> {
        result.map_err(|source| Error::Call { event: self.name.clone(), what, source })
    }
}

/// Groups made from events that do not all fit into one.
#[derive(Debug, Default)]
pub struct Packed {
    /// Each group with the places of its events in the list that was given.
    pub groups: Vec<(Group, Vec<usize>)>,
    /// The places of the events that could not be opened, with the reason.
    pub refused: Vec<(usize, Error)>,
}

impl Packed {
    /// Lets each group of several run alone for a moment; one that did not is taken apart.
    fn split_what_never_runs(&mut self, root: &Root, pmu: &Pmu, cpu: u32, events: &[Event]) {
        for (mut group, places) in std::mem::take(&mut self.groups) {
            if (group.len() == 1 && group.hold == Hold::Flexible) || has_run(&mut group) {
                self.groups.push((group, places));
                continue;
            }
            drop(group);
            for place in places {
                match Group::lead(root, pmu, cpu, &events[place], Hold::Flexible) {
                    Ok(group) => self.groups.push((group, vec![place])),
                    Err(error) => self.refused.push((place, error)),
                }
            }
        }
    }
}

/// Whether a group was scheduled when nothing else of ours was on.
fn has_run(group: &mut Group) -> bool {
    let mut trial = || -> Result<bool, Error> {
        group.enable()?;
        let ran = group.read().map(|values| values.running_ns > 0);
        group.disable()?;
        ran
    };
    // A pinned group that found no room reads as gone.
    trial().unwrap_or(false)
}

fn refuse_harm(pmu: &Pmu, event: &Event) -> Result<(), Error> {
    match pmu.harm(event.config) {
        Some(why) => Err(Error::Harmful(event.to_string(), why)),
        None => Ok(()),
    }
}

/// The kernel's refusal in words.
fn refusal(root: &Root, pmu: &Pmu, event: &Event, cpu: u32, source: io::Error) -> Error {
    let event = event.to_string();
    let is_offline = || {
        let online = root.text("/sys/devices/system/cpu/online").and_then(|text| text.parse().ok());
        online.is_some_and(|online: pciescope_core::CpuList| !online.contains(cpu))
    };
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            Error::Permission { event, paranoid: root.text("/proc/sys/kernel/perf_event_paranoid"), source }
        }
        // The kernel says ENODEV for a CPU that is offline, too.
        Some(libc::ENODEV | libc::EINVAL | libc::ENXIO) if is_offline() => Error::CpuOffline(event, cpu),
        Some(libc::ENOENT | libc::EOPNOTSUPP) if pmu.is_present(root) => Error::Absent(event, source),
        Some(libc::ENODEV | libc::ENXIO | libc::ENOENT) => Error::Gone(event),
        Some(libc::ENOSPC) => Error::NoSpace(event, source),
        Some(libc::EBUSY) => Error::Busy(event, source),
        Some(libc::EMFILE | libc::ENFILE) => Error::Files(event, source),
        Some(libc::EINVAL) => Error::Invalid(event, cpu, source),
        _ => Error::Call { event, what: "open the counter", source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::{Config, named};
    use crate::test::Tree;

    /// The kernel's own clock, which counts on every machine: PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK.
    fn clock() -> (Pmu, Event) {
        let root = Root::default();
        let pmu = named(&root, "software").unwrap_or(Pmu {
            name: "software".to_owned(),
            by: crate::perf::By::Hardware,
            number: 1,
            cpus: Default::default(),
            cores: Default::default(),
            identifier: None,
            formats: Default::default(),
            events: Default::default(),
            bdf: None,
            die: None,
        });
        let event = Event {
            pmu: pmu.name.clone(),
            terms: "cpu-clock".to_owned(),
            config: Config::default(),
            scale: None,
            unit: None,
            is_snapshot: false,
        };
        (pmu, event)
    }

    #[test]
    fn the_kernels_clock_is_counted_or_refused_in_words() {
        let (pmu, event) = clock();
        let events = [event.clone(), event];
        let mut group = match Group::open(&Root::default(), &pmu, 0, &events) {
            Ok(group) => group,
            // A container without the privilege.
            Err(error) => {
                let text = error.to_string();
                assert!(text.starts_with("software/cpu-clock/: "), "{text}");
                assert!(
                    error.hint().is_some() || matches!(error, Error::Call { .. } | Error::Absent { .. }),
                    "{error:?}"
                );
                return;
            }
        };
        assert_eq!(group.read().unwrap().running_ns, 0, "it counts before it is let");
        group.enable().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5));
        group.disable().unwrap();
        let values = group.read().unwrap();
        assert!(values.running_ns >= 5_000_000 && values.enabled_ns >= values.running_ns, "{values:?}");
        assert!(values.values.iter().all(|value| *value >= 4_000_000), "{values:?}");
    }

    #[test]
    fn refusals_of_the_kernel_have_their_own_words() {
        let (mut pmu, event) = clock();
        (pmu.name, pmu.number) = ("ali_drw_21000".to_owned(), 40);
        let root = Tree::of(&[
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("proc/sys/kernel/perf_event_paranoid", "3\n"),
            ("sys/bus/event_source/devices/ali_drw_21000/type", "40\n"),
        ]);
        let of = |code: i32, cpu: u32| refusal(&root, &pmu, &event, cpu, io::Error::from_raw_os_error(code));
        let permission = of(libc::EACCES, 0);
        assert!(permission.to_string().contains("perf_event_paranoid is 3"), "{permission}");
        assert!(permission.hint().unwrap().contains("CAP_PERFMON"));
        assert!(matches!(of(libc::ENODEV, 7), Error::CpuOffline(_, 7)));
        assert!(matches!(of(libc::ENODEV, 3), Error::Gone { .. }));
        assert!(matches!(of(libc::EOPNOTSUPP, 0), Error::Absent { .. }));
        assert!(matches!(of(libc::ENOENT, 0), Error::Absent { .. }));
        assert!(matches!(of(libc::ENOSPC, 0), Error::NoSpace { .. }));
        assert!(matches!(of(libc::EBUSY, 0), Error::Busy { .. }));
        assert!(matches!(of(libc::EMFILE, 0), Error::Files { .. }));
        assert!(matches!(of(libc::EINVAL, 0), Error::Invalid(_, 0, _)));
        // The number is another PMU's now, or nobody's.
        root.put("sys/bus/event_source/devices/ali_drw_21000/type", "41\n");
        assert!(matches!(of(libc::ENOENT, 0), Error::Gone { .. }));
    }
}
