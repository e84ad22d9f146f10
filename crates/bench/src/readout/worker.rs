//! What the thread of one device does: set up, wait for the others, read, convert, compare.

mod prepare;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Condvar, Mutex, PoisonError};

use pciescope_convert::Progress;
use pciescope_core::record::Failure;
use pciescope_core::{Access, WaitMode, Work};
use pciescope_hw::daq::{Costs, Daq, End, Span};
use pciescope_hw::memory::Buffer;
use pciescope_hw::usage::Usage;
use pciescope_hw::wait::now_ns;

use self::prepare::{Mode, Worker};
use super::check::{self, Check, Expected, Lab};
use super::plan::{Group, Kernel, ReadoutOptions, Source};
use super::row::{Laps, Row};
use pciescope_core::text::chain;

/// Keeps the threads back until all are ready, so that no device has a start.
#[derive(Debug, Default)]
pub(super) struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub fn open(&self) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.opened.wait_while(is_open, |is_open| !*is_open).unwrap_or_else(PoisonError::into_inner));
    }
}

/// What the thread of one device works with.
pub(super) struct WorkerArgs<'p> {
    pub daq: Box<dyn Daq>,
    pub source: &'p Source,
    pub group: &'p Group,
    pub options: &'p ReadoutOptions,
    pub gate: &'p Gate,
    pub is_stopped: &'p (dyn Fn() -> bool + Sync),
    /// Bytes that all devices of the group have read so far.
    pub moved: &'p AtomicU64,
}

/// What it brings back.
#[derive(Debug, Default)]
pub(super) struct WorkerResult {
    /// By function; by cycle first where each has rows of its own.
    pub rows: Vec<Row>,
    /// What ended it early, and the place of the row that it belongs to; there may be no such row yet.
    pub failure: Option<(usize, Failure)>,
    /// CPU time that went into comparing, in nanoseconds.
    pub checking_ns: u64,
}

impl WorkerResult {
    /// When the bytes of its first function came, in all cycles.
    pub fn laps(&self) -> Laps {
        let first = self.rows.iter().find(|row| row.is_reading).map(|row| row.function.as_str());
        Laps::joined(self.rows.iter().filter(|row| Some(row.function.as_str()) == first).map(|row| &row.laps))
    }
}

/// Does all of it. `ready` is told when the device and its buffers are.
pub(super) fn run(args: WorkerArgs<'_>, ready: Sender<()>) -> WorkerResult {
    let mut taken = WorkerResult::default();
    let gate = args.gate;
    let prepared = Worker::prepare(args);
    // The other end only goes when the run is over. This one goes now: kept, it would hide that another thread has gone
    // without a word, and all would wait for that one.
    let _ = ready.send(());
    drop(ready);
    gate.pass();
    let outcome = prepared.and_then(|mut worker| {
        let outcome = worker.cycles(&mut taken);
        taken.checking_ns = worker.checking.total_ns;
        outcome
    });
    if let Err(failure) = outcome {
        taken.failure.get_or_insert((0, failure));
    }
    taken
}

/// What a record says of an error, its code from what the kernel answered.
pub(super) fn failure(err: &pciescope_hw::Error) -> Failure {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(err);
    let mut code = "refused";
    while let Some(one) = cause {
        let number = one.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
        code = match number.map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::NODEV | rustix::io::Errno::NXIO) => "removed",
            Some(rustix::io::Errno::TIMEDOUT) => "timeout",
            Some(rustix::io::Errno::IO) => "stopped-short",
            _ => code,
        };
        cause = one.source();
    }
    Failure { code: code.to_owned(), text: chain(err), hint: err.hint() }
}

/// For the end of an acquisition the thread waits so long at a time, so that the user can end it, in milliseconds.
const SLICE_MS: u32 = 500;

impl Worker<'_> {
    fn cycles(&mut self, taken: &mut WorkerResult) -> Result<(), Failure> {
        let plan = &self.args.group.plan;
        let is_each = self.args.options.is_each && plan.cycles > 0;
        for cycle in 0..plan.cycles.max(1) {
            let mut rows = Vec::new();
            let outcome = self.cycle(cycle, &mut rows);
            let last = rows.len().saturating_sub(1) + if is_each { taken.rows.len() } else { 0 };
            for (place, mut row) in rows.into_iter().enumerate() {
                match taken.rows.get_mut(place).filter(|_| !is_each) {
                    Some(sum) => sum.merge(row),
                    None => {
                        row.cycle = is_each.then_some(cycle);
                        taken.rows.push(row);
                    }
                }
            }
            if let Err(failure) = outcome {
                taken.failure = Some((last, failure.clone()));
                return Err(failure);
            }
        }
        Ok(())
    }

    /// One acquisition, if there are any, and each function after it. What was measured is in `rows` whatever happens.
    fn cycle(&mut self, cycle: u64, rows: &mut Vec<Row>) -> Result<(), Failure> {
        let cpu = Usage::thread();
        let mut first = Row { bytes: self.bytes as u64, ..Row::default() };
        let end = match self.acquire(&mut first) {
            Ok(end) => end,
            Err(failure) => {
                first.function = self.names(0).0;
                rows.push(first);
                return Err(failure);
            }
        };
        let readings = if self.args.options.is_fused { self.kernels.len() } else { 1 };
        for reading in 0..readings {
            let mut row = std::mem::replace(&mut first, Row { bytes: self.bytes as u64, ..Row::default() });
            let cpu = if reading == 0 { cpu } else { Usage::thread() };
            (row.function, row.conversion) = self.names(reading);
            (row.cycles, row.is_reading) = (1, true);
            row.is_fused = self.args.options.is_fused && row.conversion.is_some();
            row.check = (self.mode != Mode::Write).then_some(self.check);
            let spent = self.checking;
            let outcome = self.read(cycle, reading, &mut row);
            // What comparing took is left out of each part: reading once more is the kernel's time, not the user's.
            let used = Usage::thread().since(&cpu).since(&self.checking.since(&spent));
            row.cpu_ns = Some((used.user_ns, used.system_ns));
            let costs = self.costs();
            row.add_costs(costs.as_ref().ok().and_then(|costs| *costs));
            if let (Some(end), 0) = (&end, reading) {
                add_wait(&mut row, end);
            }
            let checked = outcome.and(costs.map(|_| ())).and_then(|()| self.finish_reading(&mut row));
            rows.push(row);
            checked?;
        }
        if !self.args.options.is_fused {
            for place in 0..self.kernels.len() {
                rows.push(self.convert(cycle, place)?);
            }
        }
        Ok(())
    }

    /// Name and conversion of a row that reads.
    fn names(&self, reading: usize) -> (String, Option<String>) {
        match self.kernels.get(reading).filter(|_| self.args.options.is_fused) {
            Some(kernel) => (kernel.name.clone(), Some(kernel.words.clone())),
            None if self.mode == Mode::Write => (Work::WritePattern.row_name().to_owned(), None),
            None => (Work::Readout.row_name().to_owned(), None),
        }
    }

    /// Arms and waits for the end.
    fn acquire(&mut self, row: &mut Row) -> Result<Option<End>, Failure> {
        let plan = &self.args.group.plan;
        if plan.cycles == 0 {
            return Ok(None);
        }
        self.check_stop()?;
        let is_stopped = self.args.is_stopped;
        let Some(digitizer) = self.args.daq.digitizer() else { return Ok(None) };
        let armed_ns = now_ns();
        digitizer.arm().map_err(|err| failure(&err))?;
        let mut left_ms = self.args.options.timeout_ms;
        let end = loop {
            let slice_ms = left_ms.min(SLICE_MS);
            let waited = match plan.wait {
                WaitMode::Interrupt => digitizer.wait_interrupt(slice_ms),
                WaitMode::Poll => digitizer.wait_poll(slice_ms),
            };
            left_ms -= slice_ms;
            match waited {
                Ok(end) => break end,
                Err(err) => {
                    let failure = failure(&err);
                    if is_stopped() {
                        return Err(interrupted(&self.args));
                    }
                    // A time-out leaves the board armed.
                    if failure.code != "timeout" {
                        return Err(failure);
                    }
                    if left_ms == 0 {
                        // The driver knows of the last slice only.
                        let text = format!("{}; no end within {} ms", failure.text, self.args.options.timeout_ms);
                        return Err(Failure { text, ..failure });
                    }
                }
            }
        };
        let ns = end.time_ns.saturating_sub(armed_ns);
        let _ = row.acquire.record_ps(ns.saturating_mul(1000), 1);
        if let Some(lab) = &mut self.lab {
            // One that was armed and had no trigger counts for the driver only.
            lab.acquisition = digitizer.begun().map_err(|err| failure(&err))?.unwrap_or(end.sequence);
        }
        Ok(Some(end))
    }

    fn check_stop(&self) -> Result<(), Failure> {
        if (self.args.is_stopped)() { Err(interrupted(&self.args)) } else { Ok(()) }
    }

    /// The timed window of a row that reads.
    fn read(&mut self, cycle: u64, reading: usize, row: &mut Row) -> Result<(), Failure> {
        match self.mode {
            Mode::Whole | Mode::Write => self.move_whole(cycle, row),
            Mode::Pieces { bytes, is_copied } => self.read_pieces(cycle, row, bytes, is_copied, reading),
        }
    }

    /// Each repeat at once, into the buffer or out of it.
    fn move_whole(&mut self, cycle: u64, row: &mut Row) -> Result<(), Failure> {
        let (repeats, mut left_out_ns) = (self.args.group.plan.repeats, 0);
        for repeat in 0..repeats {
            self.check_stop()?;
            let Some(raw) = &mut self.raw else { break };
            let raw = &mut raw.bytes_mut()[..self.bytes];
            let start_ns = now_ns();
            let moved = if self.mode == Mode::Write { self.args.daq.write(0, raw) } else { self.args.daq.read(0, raw) };
            moved.map_err(|err| failure(&err))?;
            let end_ns = now_ns();
            row.repeat(cycle, start_ns, end_ns);
            if self.mode != Mode::Write {
                self.args.moved.fetch_add(self.bytes as u64, Ordering::Relaxed);
            }
            // From where the row begins: a thread may lose its CPU before its first repeat.
            row.busy_ns = end_ns.saturating_sub(row.start_ns).saturating_sub(left_out_ns);
            if self.args.options.is_all_checked && self.check != Check::None && repeat + 1 < repeats {
                self.compare(row)?;
                left_out_ns += now_ns() - end_ns;
            }
        }
        Ok(())
    }

    fn read_pieces(
        &mut self,
        cycle: u64,
        row: &mut Row,
        piece: usize,
        is_copied: bool,
        reading: usize,
    ) -> Result<(), Failure> {
        let plan = &self.args.group.plan;
        let (bytes, repeats, least_ns) = (self.bytes, plan.repeats, plan.least_ns);
        // Where the next piece is asked for when this one was taken, the wait for it is the time of its read.
        let is_single = matches!(plan.access, Access::Direct | Access::Read) && !self.args.source.is_digitizer;
        let is_compared = self.args.options.is_all_checked && self.check != Check::None;
        if is_compared && self.check == Check::Same {
            row.add_costs(self.costs()?);
            self.fetch(false)?;
        }
        let expected = expected(self.check, self.raw.as_ref(), self.lab.as_ref(), bytes);
        let kernel = self.kernels.get(reading).filter(|_| self.args.options.is_fused);
        let (mut stream, mut produced) = (kernel.map(|kernel| kernel.conversion.stream()), 0);
        let mut hot = self.other.as_mut().filter(|_| is_copied).map(|other| &mut other.bytes_mut()[..piece]);
        let (out, is_stopped, moved) = (&mut self.out, self.args.is_stopped, self.args.moved);
        let (mut filled, mut odd) = (0, None);
        let (mut convert_ns, mut checking) = (0, Usage::default());
        let begun_ns = now_ns();
        let (mut start_ns, mut asked_ns) = (begun_ns, begun_ns);
        let mut take = |data: &[u8]| {
            let came_ns = if is_single { now_ns() } else { 0 };
            if is_single {
                let _ = row.reads.record_ps(came_ns.saturating_sub(asked_ns).saturating_mul(1000), 1);
            }
            row.piece_bytes = row.piece_bytes.max(data.len());
            moved.fetch_add(data.len() as u64, Ordering::Relaxed);
            if let (Some(kernel), Some(stream), Some(out)) = (kernel, stream.as_mut(), out.as_mut()) {
                let from_ns = now_ns();
                match convert_piece(kernel, stream, data, out, produced) {
                    Ok(more) => produced += more,
                    Err(text) => {
                        odd = Some(text);
                        return ControlFlow::Break(());
                    }
                }
                convert_ns += now_ns() - from_ns;
            }
            if let Some(hot) = &mut hot {
                for part in data.chunks(hot.len()) {
                    hot[..part.len()].copy_from_slice(part);
                }
            }
            if is_compared {
                let before = Usage::thread();
                if let Some(expected) = expected {
                    row.finding.merge(&check::compare(expected, filled as u64, data));
                }
                checking = checking.plus(&Usage::thread().since(&before));
            }
            filled += data.len();
            let end_ns = now_ns();
            asked_ns = end_ns;
            if filled < bytes {
                return ControlFlow::Continue(());
            }
            row.repeat(cycle, start_ns, end_ns);
            row.busy_ns = end_ns - begun_ns;
            (start_ns, filled, produced) = (end_ns, 0, 0);
            stream = kernel.map(|kernel| kernel.conversion.stream());
            let is_over = least_ns.is_some_and(|ns| end_ns - begun_ns >= ns && row.repeats >= repeats);
            if is_over || is_stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let passes = if least_ns.is_some() { u64::MAX } else { repeats };
        let outcome = self.args.daq.stream(Span { at: 0, bytes: bytes as u64, passes, piece }, &mut take);
        self.checking = self.checking.plus(&checking);
        row.convert_ns = kernel.map(|_| convert_ns);
        outcome.map_err(|err| failure(&err))?;
        if let Some(text) = odd {
            return Err(Failure::refused(format!("{}: {text}", self.args.source.path.display()), None));
        }
        if row.repeats < repeats { self.check_stop() } else { Ok(()) }
    }

    /// What follows the timed window of a row that reads: the data for conversions, and the comparison.
    fn finish_reading(&mut self, row: &mut Row) -> Result<(), Failure> {
        let is_handed_over = matches!(self.mode, Mode::Pieces { .. });
        if is_handed_over && self.raw.is_some() {
            self.fetch(false)?;
        }
        let is_done = is_handed_over && self.args.options.is_all_checked;
        if self.check == Check::None || is_done { Ok(()) } else { self.compare(row) }
    }

    /// Reads once more, into the data or into what it is compared with; neither its time nor its costs are a row's.
    fn fetch(&mut self, is_other: bool) -> Result<(), Failure> {
        let before = Usage::thread();
        let buffer = if is_other { &mut self.other } else { &mut self.raw };
        let Some(buffer) = buffer else { return Ok(()) };
        self.args.daq.read(0, &mut buffer.bytes_mut()[..self.bytes]).map_err(|err| failure(&err))?;
        self.costs()?;
        self.add_checking(&before);
        Ok(())
    }

    /// What the driver counted since the last call, of drivers that count.
    fn costs(&mut self) -> Result<Option<Costs>, Failure> {
        self.args.daq.costs().map_err(|err| failure(&err))
    }

    /// Adds the CPU time since `before` to that of comparing.
    fn add_checking(&mut self, before: &Usage) {
        self.checking = self.checking.plus(&Usage::thread().since(before));
    }

    /// Compares the data with what it has to be.
    fn compare(&mut self, row: &mut Row) -> Result<(), Failure> {
        if self.check == Check::Same {
            row.add_costs(self.costs()?);
            self.fetch(true)?;
        }
        let before = Usage::thread();
        let Some(raw) = &self.raw else { return Ok(()) };
        if let Some(expected) = expected(self.check, self.other.as_ref(), self.lab.as_ref(), self.bytes) {
            row.finding.merge(&check::compare(expected, 0, &raw.bytes()[..self.bytes]));
        }
        self.add_checking(&before);
        Ok(())
    }

    /// A conversion of what was read last, again and again over the same data, as the seed's tool does.
    fn convert(&mut self, cycle: u64, place: usize) -> Result<Row, Failure> {
        let (Some(kernel), Some(raw), Some(out)) = (self.kernels.get(place), &self.raw, &mut self.out) else {
            return Err(Failure::refused("there is nothing to convert".to_owned(), None));
        };
        let mut row = Row {
            function: kernel.name.clone(),
            conversion: Some(kernel.words.clone()),
            bytes: self.bytes as u64,
            cycles: 1,
            ..Row::default()
        };
        let input: &[u16] = bytemuck::cast_slice(&raw.bytes()[..self.bytes]);
        let cpu = Usage::thread();
        for _ in 0..self.args.group.plan.repeats {
            if (self.args.is_stopped)() {
                break;
            }
            let start_ns = now_ns();
            let converted = if kernel.is_f64 {
                kernel.conversion.to_f64(input, bytemuck::cast_slice_mut(out.bytes_mut()))
            } else {
                kernel.conversion.to_f32(input, bytemuck::cast_slice_mut(out.bytes_mut()))
            };
            converted.map_err(|err| Failure::refused(format!("{}: {err}", kernel.name), None))?;
            let end_ns = now_ns();
            row.repeat(cycle, start_ns, end_ns);
            row.busy_ns = end_ns - row.start_ns;
        }
        let used = Usage::thread().since(&cpu);
        row.cpu_ns = Some((used.user_ns, used.system_ns));
        row.convert_ns = Some(row.busy_ns);
        Ok(row)
    }
}

fn interrupted(args: &WorkerArgs<'_>) -> Failure {
    Failure::interrupted(format!("{}: the run was ended by the user", args.source.path.display()))
}

/// How an acquisition's end came belongs to the row that reads it.
fn add_wait(row: &mut Row, end: &End) {
    row.polls = Some(end.polls);
    // Where the driver counts costs, it counts these too.
    if end.is_interrupt_lost && row.costs.is_none() {
        row.add_costs(Some(Costs { lost_interrupts: 1, ..Costs::default() }));
    }
}

fn expected<'e>(check: Check, bytes: Option<&'e Buffer>, lab: Option<&'e Lab>, len: usize) -> Option<Expected<'e>> {
    match check {
        Check::None => None,
        Check::Same => bytes.map(|buffer| Expected::Bytes(&buffer.bytes()[..len])),
        Check::Pattern => Some(Expected::Pattern),
        Check::Lab { .. } => lab.map(Expected::Lab),
    }
}

/// Converts a piece into its place in the output; gives how many numbers that were.
fn convert_piece(
    kernel: &Kernel,
    stream: &mut Progress,
    data: &[u8],
    out: &mut Buffer,
    produced: usize,
) -> Result<usize, String> {
    let samples: &[u16] =
        bytemuck::try_cast_slice(data).map_err(|_| "a piece does not hold whole samples".to_owned())?;
    let converted = if kernel.is_f64 {
        stream.to_f64(samples, &mut bytemuck::cast_slice_mut(out.bytes_mut())[produced..])
    } else {
        stream.to_f32(samples, &mut bytemuck::cast_slice_mut(out.bytes_mut())[produced..])
    };
    converted.map_err(|err| format!("{}: {err}", kernel.name))
}

#[cfg(test)]
mod tests;
