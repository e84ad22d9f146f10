//! A thread's work on synthetic boards: what it converts, compares and leaves out of the time.

use std::path::Path;

use pciescope_core::ReadoutPlan;
use pciescope_hw::Root;
use pciescope_hw::daq::{self, Options, Trigger};

use pciescope_core::Access;

use super::*;
use crate::readout::plan::Board;

const DEFAULT: ReadoutOptions = ReadoutOptions {
    check: None,
    is_all_checked: false,
    is_each: false,
    is_fused: false,
    piece: None,
    depth: 0,
    board: Board { channels: 0x3ff, divider: Some(3), trigger: Trigger::Now },
    timeout_ms: 1000,
    hot_spots: None,
    min_bytes_per_s: None,
    isa: None,
};

/// Works on a synthetic board; gives what was brought back and what lies in the output.
fn work_on(access: Access, plan: ReadoutPlan, options: &ReadoutOptions) -> (WorkerResult, Vec<u8>) {
    let path = Path::new("fake:digitizer?rate=0");
    let open = |path: &Path, options: &Options| daq::open(&Root::at("/"), path, options);
    let daq_options = Options { access, buffer_bytes: options.piece.unwrap_or(0), ..Options::default() };
    let source = Source::survey(&open, path, &daq_options).unwrap();
    let group = Group { sweep: None, devices: vec![0], plan: ReadoutPlan { access, ..plan } };
    let gate = Gate::default();
    gate.open();
    let args = WorkerArgs {
        daq: open(path, &daq_options).unwrap(),
        source: &source,
        group: &group,
        options,
        gate: &gate,
        is_stopped: &|| false,
        moved: &AtomicU64::new(0),
    };
    let mut taken = WorkerResult::default();
    let mut worker = Worker::prepare(args).unwrap();
    worker.cycles(&mut taken).unwrap();
    (taken, worker.out.map(|out| out.bytes().to_vec()).unwrap_or_default())
}

fn plan(functions: &[u8]) -> ReadoutPlan {
    ReadoutPlan {
        samples: 50_000,
        repeats: 2,
        decimation_factor: 7,
        decimation_offset: 3,
        scale_factor: 0.5,
        scale_offset: -3.0,
        functions: functions.to_vec(),
        ..ReadoutPlan::default()
    }
}

/// A device whose buffers are made late unless it is told to make them.
#[derive(Default)]
struct Late {
    about: daq::About,
    has_buffers: bool,
    /// Streams that had to make them.
    late: u32,
}

impl Daq for Late {
    fn about(&self) -> &daq::About {
        &self.about
    }

    fn prepare(&mut self) -> Result<(), pciescope_hw::Error> {
        self.has_buffers = true;
        Ok(())
    }

    fn read(&mut self, _: u64, _: &mut [u8]) -> Result<(), pciescope_hw::Error> {
        Ok(())
    }

    fn stream(&mut self, span: Span, take: daq::Take<'_>) -> Result<(), pciescope_hw::Error> {
        self.late += u32::from(!self.has_buffers);
        assert_eq!(self.late, 0, "the buffers are made while the time runs");
        let bytes = vec![0; span.bytes as usize];
        (0..span.passes).for_each(|_| assert!(take(&bytes).is_continue()));
        Ok(())
    }

    fn write(&mut self, _: u64, _: &[u8]) -> Result<(), pciescope_hw::Error> {
        Ok(())
    }
}

/// What a worker alone takes, whose gate is open.
fn worked(daq: Box<dyn Daq>, source: &Source, group: &Group, options: &ReadoutOptions) -> WorkerResult {
    let gate = Gate::default();
    gate.open();
    let moved = AtomicU64::new(0);
    let args = WorkerArgs { daq, source, group, options, gate: &gate, is_stopped: &|| false, moved: &moved };
    run(args, std::sync::mpsc::channel().0)
}

/// docs/readout.md: all threads are ready, with their buffers, before any of them starts.
#[test]
fn a_device_has_its_buffers_before_the_time_runs() {
    let about = daq::About { kind: "sis8300", access: Access::Ring, ..Default::default() };
    let source = Source { path: "late".into(), about: about.clone(), is_digitizer: false, cpus: None, node: None };
    let group = Group { sweep: None, devices: vec![0], plan: ReadoutPlan { access: Access::Ring, ..plan(&[0]) } };
    let options = ReadoutOptions { check: Some(Check::None), ..DEFAULT };
    let taken = worked(Box::new(Late { about, ..Late::default() }), &source, &group, &options);
    assert!(taken.failure.is_none(), "{:?}", taken.failure);
    assert_eq!(taken.rows[0].repeats, 2);
}

#[test]
fn fused_or_not_the_numbers_are_the_same() {
    for function in [1, 2, 3, 4, 5, 6, 7, 8] {
        let (taken, whole) = work_on(Access::Read, plan(&[function]), &DEFAULT);
        assert_eq!(taken.rows.len(), 2);
        assert!(whole.iter().any(|byte| *byte != 0), "function {function} wrote nothing");
        for access in [Access::Read, Access::Ring] {
            for piece in [64, 4096, 65_536, 1 << 20] {
                let options = ReadoutOptions { is_fused: true, piece: Some(piece), ..DEFAULT };
                let (taken, fused) = work_on(access, plan(&[function]), &options);
                assert_eq!(taken.rows.len(), 1);
                assert_eq!(taken.rows[0].repeats, 2);
                assert!(fused == whole, "function {function} by {} in pieces of {piece}", access.name());
            }
        }
    }
}

#[test]
fn a_decimated_number_is_the_sample_that_lies_there() {
    let (_, out) = work_on(Access::Read, plan(&[2]), &DEFAULT);
    let mut raw = vec![0; 100_000];
    daq::samples::Origin { seed: 1, serial: 1, acquisition: 0, channel: 0 }.fill(0, &mut raw);
    for number in [0, 1, 7000] {
        let place = (number * 7 + 3) * 2;
        let sample = u16::from_le_bytes([raw[place], raw[place + 1]]);
        let found = f32::from_le_bytes(out[number * 4..number * 4 + 4].try_into().unwrap());
        assert_eq!(found, f32::from(sample), "number {number}");
    }
}

#[test]
fn a_result_of_f64_has_eight_bytes_of_its_own() {
    let (_, out) = work_on(Access::Read, plan(&[5]), &DEFAULT);
    let values: &[f64] = bytemuck::cast_slice(&out[..50_000 * 8]);
    assert!(values.iter().all(|value| (0.0..2.0).contains(value) && (value * 32768.0).fract() == 0.0));
    assert!(values.iter().any(|value| *value > 1.0));
}

#[test]
fn comparing_is_no_part_of_the_duration() {
    let options = ReadoutOptions { check: Some(Check::Lab { seed: 1 }), is_all_checked: true, ..DEFAULT };
    let plan = ReadoutPlan { repeats: 5, ..plan(&[0]) };
    let (taken, _) = work_on(Access::Read, plan.clone(), &options);
    let row = &taken.rows[0];
    assert_eq!((row.finding.right, row.finding.wrong), (5 * 100_000, 0));
    // What is left beside the repeats themselves is calls of the clock, and not the four comparisons between them.
    let of_repeats = (row.durations.mean_ns().unwrap() * 5.0) as u64;
    let between = row.end_ns - row.start_ns - of_repeats;
    assert!(row.busy_ns - of_repeats < between / 4 * 3, "{} of {between} ns", row.busy_ns - of_repeats);
    // The wrong seed is found wrong everywhere.
    let options = ReadoutOptions { check: Some(Check::Lab { seed: 2 }), ..options };
    let (taken, _) = work_on(Access::Ring, plan, &options);
    assert!(taken.rows[0].finding.wrong > 450_000, "{:?}", taken.rows[0].finding);
}

#[test]
fn a_board_without_a_trigger_ends_in_time() {
    let path = Path::new("fake:digitizer?hang=1");
    let daq = daq::open(&Root::at("/"), path, &Options::default()).unwrap();
    let source = Source { path: path.into(), about: daq.about().clone(), is_digitizer: true, cpus: None, node: None };
    let group = Group { sweep: None, devices: vec![0], plan: ReadoutPlan { cycles: 1, ..plan(&[0]) } };
    let options = ReadoutOptions { timeout_ms: 30, ..DEFAULT };
    let taken = worked(daq, &source, &group, &options);
    let (place, failure) = taken.failure.unwrap();
    assert_eq!((place, failure.code.as_str()), (0, "timeout"));
    assert_eq!(taken.rows.len(), 1);
}
