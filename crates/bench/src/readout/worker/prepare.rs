//! What a thread sets up before its device is read: how it reads, with which check, kernels and buffers.

use pciescope_core::record::Failure;
use pciescope_core::{Access, Work};
use pciescope_hw::daq::Setup;
use pciescope_hw::memory::Buffer;
use pciescope_hw::placement::Pinned;
use pciescope_hw::usage::Usage;

use super::{WorkerArgs, failure};
use crate::readout::check::{self, Check, Lab};
use crate::readout::plan::{Kernel, ReadoutOptions, Source, kernels, work};

/// How the readout is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Each repeat into one buffer, all of it.
    Whole,
    /// In pieces that are handed over.
    Pieces {
        bytes: usize,
        /// Whether each is copied into a buffer of ours: a mapped file is not read by being mapped.
        is_copied: bool,
    },
    /// Function 100.
    Write,
}

/// The device with all that its thread needs.
pub(super) struct Worker<'p> {
    pub(super) args: WorkerArgs<'p>,
    /// Of raw input.
    pub(super) bytes: usize,
    pub(super) mode: Mode,
    pub(super) check: Check,
    pub(super) kernels: Vec<Kernel>,
    /// The data; empty where pieces are only handed over.
    pub(super) raw: Option<Buffer>,
    /// One more reading to compare with, or where pieces are copied to.
    pub(super) other: Option<Buffer>,
    pub(super) out: Option<Buffer>,
    pub(super) lab: Option<Lab>,
    pub(super) checking: Usage,
    _kept: Option<Pinned>,
}

impl<'p> Worker<'p> {
    pub(super) fn prepare(mut args: WorkerArgs<'p>) -> Result<Self, Failure> {
        let (source, options, plan) = (args.source, args.options, &args.group.plan);
        let path = source.path.display();
        let kept = source.cpus.as_ref().map(|cpus| {
            Pinned::on(cpus).map_err(|err| Failure::refused(format!("{path}: cannot run on CPU {cpus}: {err}"), None))
        });
        let kept = kept.transpose()?;
        let kernels = kernels(plan, options).map_err(|text| Failure::refused(text, None))?;
        let bytes = (plan.samples * 2) as usize;
        let is_writing = plan.functions.iter().any(|number| work(*number) == Some(Work::WritePattern));
        let mode = match (is_writing, options.piece, plan.access) {
            (true, ..) => Mode::Write,
            _ if options.is_fused => Mode::Pieces { bytes: options.fused_piece(source).min(bytes), is_copied: false },
            // The buffers are the driver's, of its size.
            (_, piece, Access::Ring) => Mode::Pieces { bytes: piece.unwrap_or(bytes), is_copied: false },
            (_, None, _) => Mode::Whole,
            (_, Some(piece), access) => Mode::Pieces { bytes: piece.min(bytes), is_copied: access == Access::Mmap },
        };
        let default = match source.about.kind {
            "char" => Check::None,
            // It would be in the way of the next trigger and in the CPU time.
            _ if plan.cycles > 0 => Check::None,
            // Its functions would be among them.
            _ if options.hot_spots.is_some() => Check::None,
            _ => Check::Same,
        };
        let check = if mode == Mode::Write { Check::None } else { options.check.unwrap_or(default) };
        let buffer = |len: usize| {
            Buffer::on_node(len, source.node).map_err(|err| {
                let hint = "take fewer samples, or another node".to_owned();
                Failure::refused(format!("{path}: cannot allocate a buffer of {len} bytes: {err}"), Some(hint))
            })
        };
        let is_kept = matches!(mode, Mode::Whole | Mode::Write);
        let needs_raw = is_kept || check != Check::None || (!kernels.is_empty() && !options.is_fused);
        let output = |kernel: &Kernel| {
            kernel.conversion.output_len(bytes / 2) * if kernel.is_f64 { size_of::<f64>() } else { size_of::<f32>() }
        };
        let mut raw = needs_raw.then(|| buffer(bytes)).transpose()?;
        let other = match mode {
            _ if check == Check::Same => Some(bytes),
            Mode::Pieces { bytes: piece, is_copied: true } => Some(piece),
            _ => None,
        };
        let out = kernels.iter().map(output).max();
        if let (Mode::Write, Some(raw)) = (mode, &mut raw) {
            check::fill_pattern(0, raw.bytes_mut());
        }
        let lab = match check {
            Check::Lab { seed } => Some(lab(seed, source, options)?),
            _ => None,
        };
        let mut worker = Worker {
            bytes,
            mode,
            check,
            kernels,
            raw,
            other: other.map(buffer).transpose()?,
            out: out.map(buffer).transpose()?,
            lab,
            checking: Usage::default(),
            _kept: kept,
            args: {
                args.daq.prepare().map_err(|err| failure(&err))?;
                // What came before is not ours.
                args.daq.costs().map_err(|err| failure(&err))?;
                args
            },
        };
        worker.set_up_board()?;
        Ok(worker)
    }

    /// The board, where acquisitions are asked for.
    fn set_up_board(&mut self) -> Result<(), Failure> {
        let (plan, board) = (&self.args.group.plan, &self.args.options.board);
        if plan.cycles == 0 {
            return Ok(());
        }
        let path = self.args.source.path.display();
        let Some(digitizer) = self.args.daq.digitizer() else {
            return Err(Failure::refused(format!("{path}: not a digitizer"), Some("drop -l".to_owned())));
        };
        let channels = u64::from(board.channels.count_ones().max(1));
        let setup = Setup {
            channels: board.channels,
            samples: plan.samples.div_ceil(channels),
            pretrigger: 0,
            divider: board.divider,
            trigger: board.trigger,
        };
        let samples = digitizer.setup(&setup).map_err(|err| failure(&err))?;
        if let Some(lab) = &mut self.lab {
            lab.samples = samples;
        }
        Ok(())
    }
}

/// The virtual board that a source says it is.
fn lab(seed: u64, source: &Source, options: &ReadoutOptions) -> Result<Lab, Failure> {
    let serial = source.about.serial.ok_or_else(|| {
        Failure::refused(
            format!("{}: it says no serial number, on which the lab's samples depend", source.path.display()),
            Some("--check lab is for the boards of `pciescope lab`".to_owned()),
        )
    })?;
    let channels = (0..16).filter(|channel| options.board.channels & (1 << channel) != 0).collect();
    Ok(Lab { seed, serial, acquisition: 0, channels, samples: 1 })
}
