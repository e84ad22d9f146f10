//! Turns the typed options into the groups of a run.

use std::path::Path;

use pciescope_bench::readout::sweep::{self, Sweep};
use pciescope_bench::readout::{Board, Check, Group, Opener, ReadoutOptions, Source};
use pciescope_core::{Access, CpuList, Environment, ReadoutPlan, WaitMode, Warning, Work, once};
use pciescope_hw::daq::Options;
use pciescope_hw::{check, environment, topology};

use super::options::{AccessChoice, Args, NodeChoice};
use crate::cmd::{Ctx, Refusal};

/// All that a run needs.
pub struct Wanted {
    /// The devices.
    pub devices: Vec<Source>,
    /// What runs together.
    pub groups: Vec<Group>,
    /// How.
    pub options: ReadoutOptions,
    /// The machine.
    pub environment: Environment,
    /// Properties of it that make figures doubtful.
    pub warnings: Vec<Warning>,
}

/// The seed's tool reads multiples of so many samples.
const BLOCK_SAMPLES: u64 = 16;

/// Looks at the devices and makes the groups.
///
/// # Errors
/// A device that cannot be opened, and what cannot be done with it.
pub fn prepare(args: &Args, ctx: &Ctx, open: &Opener<'_>) -> anyhow::Result<Wanted> {
    refuse_nonsense(args)?;
    let environment = environment::read(&ctx.root);
    let mut devices = Vec::new();
    for path in args.devices.iter().chain(&args.backend) {
        devices.push(survey(args, path, open)?);
    }
    let access = devices[0].about.access;
    let usual = usual(args, &devices);
    place(args, &environment, &mut devices)?;
    let plan = plan(args, access, &devices, usual.as_ref())?;
    let groups = if args.sweep {
        let mut groups = sweep::groups(&campaign(args), &plan, &devices);
        for group in &mut groups {
            group.plan.samples = group.plan.samples.next_multiple_of(unit(&devices));
        }
        if groups.is_empty() {
            let text = "no measurement of the campaign fits into the smallest device";
            return Err(Refusal::new(text, "take smaller ones with --sweep-sizes").into());
        }
        groups
    } else {
        fits(&plan, &devices)?;
        vec![Group { sweep: None, devices: (0..devices.len()).collect(), plan }]
    };
    let options = ReadoutOptions {
        // What is read again and again for a time is not kept to be compared.
        check: args.judge.check.or(usual.as_ref().map(|_| Check::None)),
        is_all_checked: args.judge.check_all,
        is_each: args.output.each,
        is_fused: args.fuse,
        piece: args.block.map(|block| usize::try_from(block.0)).transpose()?.or(usual.as_ref().map(|_| BLOCK)),
        depth: args.depth.unwrap_or(0),
        board: Board { channels: args.board.channels, divider: args.board.divider.0, trigger: args.board.trigger },
        timeout_ms: u32::try_from(args.board.timeout.duration().as_millis())?,
        hot_spots: args.judge.hot_spots.map(|spots| spots as usize),
        min_bytes_per_s: args.judge.min_rate.map(|rate| rate * 1e6),
        isa: None,
    };
    let of_machine = check::machine_warnings(&ctx.root, &environment);
    let functions = devices.iter().filter_map(|device| device.about.function.as_ref());
    let of_functions = functions.flat_map(|function| check::function_warnings(&ctx.root, &environment, function));
    let warnings = once(of_machine.into_iter().chain(of_functions));
    Ok(Wanted { devices, groups, options, environment, warnings })
}

/// What no device can make sense of.
pub(super) fn refuse_nonsense(args: &Args) -> anyhow::Result<()> {
    let file = args.output.output.file.output.as_deref().and_then(Path::to_str).unwrap_or_default();
    if !file.is_empty() && file.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Refusal::new(
            format!("-o {file}: -o is the file of records, and this looks like sis8300drv_threads's offset"),
            format!("write --decimation-offset {file}, or -o ./{file} for a file of that name"),
        )
        .into());
    }
    let is_writing = args.function.contains(&Work::WritePattern);
    if is_writing && args.function.len() > 1 {
        return Err(Refusal::new("-A 100 writes and is not part of a readout", "run it by itself").into());
    }
    if is_writing && !args.board.overwrite_memory {
        return Err(Refusal::new(
            "-A 100 overwrites the memory of the cards",
            "say so with --overwrite-memory; it is never written to disks and files",
        )
        .into());
    }
    if is_writing && (args.judge.check.is_some() || args.judge.check_all) {
        let text = "-A 100 writes, and nothing is compared in that run";
        return Err(Refusal::new(text, "read it back in a run of its own, with --check pattern").into());
    }
    let converts = args.function.iter().any(|work| !matches!(work, Work::Readout | Work::WritePattern));
    if args.fuse && !converts {
        return Err(Refusal::new("--fuse: there is no conversion", "name one with -A, such as -A 3").into());
    }
    // Before arithmetic with it: the largest numbers have no next multiple.
    if args.samples() > 1 << 40 {
        return Err(Refusal::new(format!("-S {}: more than 2 TiB", args.samples()), "take fewer samples").into());
    }
    let samples = args.samples().next_multiple_of(BLOCK_SAMPLES);
    if !args.sweep && args.decimation_offset >= samples {
        return Err(Refusal::new(
            format!("--decimation-offset {}: of {samples} samples none would be left", args.decimation_offset),
            "the offset is in samples and less than -S",
        )
        .into());
    }
    let left = samples.saturating_sub(args.decimation_offset);
    if !args.sweep && left / args.decimation_factor == 0 {
        return Err(Refusal::new(
            format!("--decimation-factor {}: of {left} samples none would be left", args.decimation_factor),
            "take more samples with -S, or a smaller factor",
        )
        .into());
    }
    Ok(())
}

/// What of a disk or file is read, again and again for [`LEAST_NS`], where nobody said how much and how often.
struct Usual {
    samples: u64,
}

const LEAST_NS: u64 = 1_000_000_000;
/// Bytes of a block, as fio's users write `--bs=1M`.
const BLOCK: usize = 1 << 20;
/// Bytes of a pass: more than what a disk keeps near, less than what a slow one reads in a few seconds.
const PASS: u64 = 256 << 20;

/// `None` where anything but reading is wanted, or the size or the number of reads was named.
fn usual(args: &Args, devices: &[Source]) -> Option<Usual> {
    let is_plain = args.samples.is_none() && args.repeat.is_none() && !args.sweep && args.acquisitions == 0;
    let is_reading = args.function == [Work::Readout] && args.judge.check.is_none() && !args.judge.check_all;
    let is_disk = |device: &Source| matches!(device.about.kind, "file" | "block");
    if !is_plain || !is_reading || !devices.iter().all(is_disk) {
        return None;
    }
    let bytes = devices.iter().filter_map(|device| device.about.bytes).fold(PASS, u64::min);
    let samples = bytes / 2 / unit(devices) * unit(devices);
    (samples > 0).then_some(Usual { samples })
}

fn survey(args: &Args, path: &Path, open: &Opener<'_>) -> anyhow::Result<Source> {
    let options = |access| Options { access, depth: args.depth.unwrap_or(0), ..Options::default() };
    let plain = || Source::survey(open, path, &options(Access::Read));
    let source = match args.access {
        Some(AccessChoice::Named(access)) => Source::survey(open, path, &options(access))?,
        Some(AccessChoice::ZeroCopy) => {
            let access = if plain()?.is_digitizer { Access::Ring } else { Access::Mmap };
            Source::survey(open, path, &options(access))?
        }
        None => {
            let plain = plain()?;
            // A file system, or a size that was asked for, may not allow it; then the warning of the page cache says what the figures are.
            match plain.about.kind {
                "file" | "block" => match Source::survey(open, path, &options(Access::Direct)) {
                    Ok(direct) if args.samples.is_none_or(|samples| samples * 2 % direct.about.align == 0) => direct,
                    _ => plain,
                },
                _ => plain,
            }
        }
    };
    if args.function.contains(&Work::WritePattern) && !source.is_digitizer {
        let text = format!("{}: -A 100 writes to digitizers only", path.display());
        return Err(Refusal::new(text, "give a board's node").into());
    }
    if args.acquisitions > 0 && !source.is_digitizer {
        let text = format!("{}: not a digitizer; -l is for digitizers", path.display());
        return Err(Refusal::new(text, "drop -l").into());
    }
    Ok(source)
}

/// CPUs and nodes of the threads.
fn place(args: &Args, environment: &Environment, devices: &mut [Source]) -> anyhow::Result<()> {
    let nodes = topology::nodes(&environment.cpus);
    for (place, device) in devices.iter_mut().enumerate() {
        let node = match args.node {
            None => None,
            Some(NodeChoice::Number(node)) => Some(node),
            Some(NodeChoice::OfDevice) => {
                let node =
                    device.about.function.as_ref().or(device.about.way.last()).and_then(|function| function.node);
                Some(node.ok_or_else(|| {
                    let text = format!("{}: the machine does not say on which node it is", device.path.display());
                    Refusal::new(text, "give the number of a node")
                })?)
            }
        };
        device.node = node;
        let of_node = |node| nodes.iter().find(|(number, _)| *number == node).map(|(_, cpus)| cpus.clone());
        let of_its_node = match node.filter(|_| args.cpus.is_none()) {
            None => None,
            Some(node) => Some(of_node(node).ok_or_else(|| {
                Refusal::new(format!("node {node} has no online CPU"), "name CPUs as well, with --cpus")
            })?),
        };
        let near = device.about.function.as_ref().or(device.about.way.last());
        device.cpus = match &args.cpus {
            // One CPU for each in turn.
            Some(choice) => {
                let cpus = choice.among(environment, near)?;
                cpus.iter().nth(place % cpus.len()).map(|cpu| CpuList::from_iter([cpu]))
            }
            None => of_its_node,
        };
    }
    Ok(())
}

fn plan(args: &Args, access: Access, devices: &[Source], usual: Option<&Usual>) -> anyhow::Result<ReadoutPlan> {
    let mut functions: Vec<u8> = args.function.iter().map(|work| work.number()).collect();
    functions.dedup();
    // Devices of one run are read in one way; where -B 1 means two, each has its own.
    if let Some(other) = devices.iter().find(|device| device.about.access != access) {
        let text = format!(
            "{}: -B 1 is {} there and {} elsewhere",
            other.path.display(),
            other.about.access.name(),
            access.name()
        );
        return Err(Refusal::new(text, "read digitizers and others in two runs").into());
    }
    Ok(ReadoutPlan {
        devices: devices.iter().map(|device| device.path.display().to_string()).collect(),
        samples: usual.map_or_else(|| args.samples().next_multiple_of(unit(devices)), |usual| usual.samples),
        repeats: args.repeat.unwrap_or(1),
        least_ns: usual.map(|_| LEAST_NS),
        decimation_offset: args.decimation_offset,
        decimation_factor: args.decimation_factor,
        scale_offset: args.scale_offset,
        scale_factor: args.scale_factor,
        access,
        functions,
        cycles: args.acquisitions,
        wait: if args.interrupt { WaitMode::Interrupt } else { WaitMode::Poll },
        // What the options say of it is added where the records are written.
        ..ReadoutPlan::default()
    })
}

/// A reading is a multiple of so many samples: 16, and what the devices move at a time.
fn unit(devices: &[Source]) -> u64 {
    let align = devices.iter().map(|device| device.about.align / 2).max().unwrap_or(0);
    align.max(BLOCK_SAMPLES).next_multiple_of(BLOCK_SAMPLES)
}

/// Refuses a device that holds less than the run would read, before it reads anything.
fn fits(plan: &ReadoutPlan, devices: &[Source]) -> anyhow::Result<()> {
    for device in devices {
        let Some(bytes) = device.about.bytes.filter(|bytes| *bytes < plan.samples * 2) else { continue };
        let path = device.path.display();
        let text = format!("{path}: it holds {bytes} bytes, {} samples are {}", plan.samples, plan.samples * 2);
        let most = bytes / 2 / unit(devices) * unit(devices);
        let hint = if most == 0 { "give another file".to_owned() } else { format!("take -S {most} or less") };
        return Err(Refusal::new(text, hint).into());
    }
    Ok(())
}

/// The campaign, smaller where the user said so.
fn campaign(args: &Args) -> Sweep {
    let mut sweep = Sweep::default();
    if let Some(largest) = args.sweep_sizes.iter().max() {
        sweep.speed_samples = *largest;
        sweep.function_samples = *largest;
        let smallest = args.sweep_sizes.iter().min().unwrap_or(largest);
        sweep.cpu_samples = if smallest == largest { vec![*largest] } else { vec![*smallest, *largest] };
        sweep.sizes.clone_from(&args.sweep_sizes);
    }
    for samples in sweep.sizes.iter_mut().chain(&mut sweep.cpu_samples) {
        *samples = samples.next_multiple_of(BLOCK_SAMPLES);
    }
    sweep.speed_samples = sweep.speed_samples.next_multiple_of(BLOCK_SAMPLES);
    sweep.function_samples = sweep.function_samples.next_multiple_of(BLOCK_SAMPLES);
    if let Some(repeats) = args.repeat {
        sweep.repeats = repeats;
    }
    if let Some(cycles) = args.sweep_cycles {
        sweep.cycles = cycles;
    }
    sweep
}
