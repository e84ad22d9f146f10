//! The parts of a [`super::Task`]: what to read, from which devices, and how.

use std::path::{Path, PathBuf};

use pciescope_convert::{Conversion, Decimation, Isa, Operation, Sample, Store};
use pciescope_core::{Acquisition, CpuList, ReadoutPlan, Work};
use pciescope_hw::daq::{About, Daq, Options, Trigger};

use super::check::Check;

/// Opens a source of data.
pub type Opener<'o> = dyn Fn(&Path, &Options) -> Result<Box<dyn Daq>, pciescope_hw::Error> + 'o;

/// One of the devices.
#[derive(Debug, Clone)]
pub struct Source {
    /// The node or file.
    pub path: PathBuf,
    /// What it said of itself.
    pub about: About,
    /// Whether it acquires.
    pub is_digitizer: bool,
    /// The CPUs that its thread stays on.
    pub cpus: Option<CpuList>,
    /// The NUMA node of its buffers.
    pub node: Option<u32>,
}

impl Source {
    /// Opens a source, asks it what it is and closes it.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub fn survey(open: &Opener<'_>, path: &Path, options: &Options) -> Result<Source, pciescope_hw::Error> {
        let mut daq = open(path, options)?;
        let is_digitizer = daq.digitizer().is_some();
        Ok(Source { path: path.to_owned(), about: daq.about().clone(), is_digitizer, cpus: None, node: options.node })
    }
}

/// Devices that are read at the same time, and what is done with each.
#[derive(Debug, Clone)]
pub struct Group {
    /// Of a sweep: which of its measurements: `size`, `boards`, `function`, `cpu`.
    pub sweep: Option<&'static str>,
    /// Places among the task's devices.
    pub devices: Vec<usize>,
    /// What each thread does; its `devices` are those of this group.
    pub plan: ReadoutPlan,
}

/// How boards are set up for `-l`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Board {
    /// Bit n: channel n.
    pub channels: u16,
    /// Of the internal clock of 250 MHz; `None`: the clock is left as it is.
    pub divider: Option<u32>,
    /// What starts an acquisition.
    pub trigger: Trigger,
}

/// How to go about it.
#[derive(Debug, Clone)]
pub struct ReadoutOptions {
    /// What readings are compared with; `None`: the same place once more, but not of devices without an end, and not
    /// between triggered acquisitions.
    pub check: Option<Check>,
    /// Whether every repeat is compared, not only the last of a cycle.
    pub is_all_checked: bool,
    /// A row for each cycle instead of one for all.
    pub is_each: bool,
    /// Whether conversions take the pieces as they come.
    pub is_fused: bool,
    /// Bytes of a piece; `None`: the data is kept whole, and fused conversions take [`ReadoutOptions::fused_piece`].
    pub piece: Option<usize>,
    /// Buffers or requests in flight; 0: a good default.
    pub depth: u32,
    /// For `-l`.
    pub board: Board,
    /// For the end of an acquisition.
    pub timeout_ms: u32,
    /// How many functions to show in which the time went.
    pub hot_spots: Option<usize>,
    /// A reading that is slower fails, in bytes per second and device.
    pub min_bytes_per_s: Option<f64>,
    /// The instruction set of conversions; `None`: the best.
    pub isa: Option<Isa>,
}

impl ReadoutOptions {
    /// A plan as records hold it: with how to go about it.
    pub(super) fn stated(&self, plan: &ReadoutPlan) -> ReadoutPlan {
        let board = &self.board;
        let channels: CpuList = (0..16).filter(|channel| board.channels >> channel & 1 == 1).collect();
        let acquisition = Acquisition {
            channels: channels.to_string(),
            divider: board.divider,
            trigger: match board.trigger {
                Trigger::Now => "now".to_owned(),
                Trigger::Backplane(line) => format!("backplane:{line}"),
            },
            timeout_ms: self.timeout_ms,
        };
        ReadoutPlan {
            block: self.piece.map(|bytes| bytes as u64),
            depth: (self.depth > 0).then_some(self.depth),
            check: self.check.map(|check| check.to_string()),
            is_all_checked: self.is_all_checked,
            is_fused: self.is_fused,
            is_each: self.is_each,
            acquisition: (plan.cycles > 0).then_some(acquisition),
            ..plan.clone()
        }
    }

    /// Bytes of the pieces of a fused conversion. For files and disks a piece and its result fit the second-level
    /// cache. For a board it is more, because each piece is a separate DMA.
    pub fn fused_piece(&self, source: &Source) -> usize {
        self.piece.unwrap_or(if source.is_digitizer { 1 << 20 } else { 128 << 10 })
    }
}

/// A conversion with its place in the table.
#[derive(Debug, Clone)]
pub(super) struct Kernel {
    /// As the table shows it.
    pub name: String,
    /// In words.
    pub words: String,
    pub conversion: Conversion,
    /// Else to f32.
    pub is_f64: bool,
}

/// The order of the seed's function 99.
const ALL: [Work; 8] = [
    Work::DecimateScale,
    Work::Decimate,
    Work::Scale,
    Work::Cast,
    Work::SignedF64,
    Work::UnsignedF64,
    Work::SignedF32,
    Work::UnsignedF32,
];

/// The work that a number of `-A` stands for.
pub fn work(number: u8) -> Option<Work> {
    Work::ALL.into_iter().find(|work| work.number() == number)
}

/// The conversions of a plan, in order.
///
/// # Errors
/// What the conversion refuses, in words.
pub(super) fn kernels(plan: &ReadoutPlan, options: &ReadoutOptions) -> Result<Vec<Kernel>, String> {
    let works = plan.functions.iter().filter_map(|number| work(*number));
    let all = works.flat_map(|work| if work == Work::All { ALL.to_vec() } else { vec![work] });
    all.filter(|work| !matches!(work, Work::Readout | Work::WritePattern))
        .map(|work| kernel(work, plan, options).map_err(|err| format!("{}: {err}", work.row_name())))
        .collect()
}

fn kernel(work: Work, plan: &ReadoutPlan, options: &ReadoutOptions) -> Result<Kernel, pciescope_convert::Error> {
    let scale = Operation::Scale { factor: plan.scale_factor, offset: plan.scale_offset };
    let decimation = Decimation { offset: plan.decimation_offset as usize, factor: plan.decimation_factor as usize };
    let (f, o) = (plan.decimation_factor, plan.decimation_offset);
    let (big_f, big_o) = (plan.scale_factor, plan.scale_offset);
    let (operation, is_decimated, words) = match work {
        Work::DecimateScale => (scale, true, format!("f={f} o={o} F={big_f} O={big_o}")),
        Work::Decimate => (Operation::Cast, true, format!("f={f} o={o}")),
        Work::Scale => (scale, false, format!("F={big_f} O={big_o}")),
        Work::UnsignedF64 | Work::UnsignedF32 => (Operation::Unsigned { m: 1, n: 15 }, false, "Q1.15".to_owned()),
        Work::SignedF64 => (Operation::Degrees { m: 3, n: 13 }, false, "Q3.13 degrees".to_owned()),
        Work::SignedF32 => (Operation::Signed { m: 3, n: 13 }, false, "Q3.13".to_owned()),
        _ => (Operation::Cast, false, "cast".to_owned()),
    };
    let mut conversion = Conversion::new(Sample::U16, operation)?;
    if is_decimated {
        conversion = conversion.with_decimation(decimation)?;
    }
    if let Some(isa) = options.isa {
        conversion = conversion.with_isa(isa)?;
    }
    let is_f64 = matches!(work, Work::UnsignedF64 | Work::SignedF64);
    // A conversion sees only its piece, so it does not notice that all pieces together exceed the cache.
    let output = conversion.output_len(plan.samples as usize).saturating_mul(if is_f64 { 8 } else { 4 });
    // Asked here, outside of the time that is measured: the first answer takes a measurement of its own.
    let is_large = Store::Auto.is_streaming(output);
    if options.is_fused && is_large {
        conversion = conversion.with_store(Store::Streaming);
    }
    let words = format!("{words} {} {}", if is_f64 { "f64" } else { "f32" }, conversion.isa());
    Ok(Kernel { name: work.row_name().to_owned(), words, conversion, is_f64 })
}
