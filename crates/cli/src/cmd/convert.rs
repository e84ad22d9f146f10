//! `pciescope convert`: measures how fast samples are converted, compared with the rate of the memory, and checks the
//! results to the last bit.

use std::io::{self, Write};
use std::process::ExitCode;

use pciescope_bench::convert::{self, SMALLEST, Spec, Task};
use pciescope_bench::counters::fits;
use pciescope_convert::{Isa, Store};
use pciescope_core::{Environment, once};
use pciescope_hw::environment;

use super::device::CpuChoice;
use super::latency::progress::bar;
use super::output::{Output, OutputArgs};
use super::{Ctx, Refusal};
use crate::values::{Time, count, time};

/// The arguments of `pciescope convert`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope convert                            every kernel, several sizes
  pciescope convert --kernels '*-f32' --samples 30M
  pciescope convert --isa all --store cached,streaming --kernels i16-cast-f32
  pciescope convert --threads 8 --samples 100M -j -o run.jsonl
  pciescope convert --list                     what is available here

Passes of a kernel take turns with passes of the ceiling: a loop that only reads
and writes the same number of bytes. Every kernel is compared with exact
arithmetic for all 65,536 possible samples, and for every number that it was
measured with. docs/convert.md says which bytes count, and compares these
kernels with the loops of other programs.")]
pub struct Args {
    /// Kernels by name (`*` and `?` allowed)
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "*")]
    kernels: Vec<String>,

    /// Samples of input; several sizes are separated by commas
    #[arg(short = 'S', long, value_name = "N", value_delimiter = ',', default_value = "16384,30M", value_parser = size)]
    samples: Vec<u64>,

    /// Instruction sets: scalar, avx2, avx512, neon, best, or all that are available
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "best", value_parser = isas)]
    isa: Vec<Isas>,

    /// How to store the output: through the cache, bypassing it, or auto, which decides by the size
    #[arg(long, value_name = "HOW,...", value_delimiter = ',', default_value = "auto", value_enum)]
    store: Vec<StoreName>,

    /// Threads; 0 is one for each CPU that the program may use
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: u32,

    /// The CPU to measure on, with one thread; if not given, the CPU on which the program happens to run
    #[arg(long, value_name = "CPUS")]
    cpus: Option<CpuChoice>,

    /// For kernels that decimate: use one of N samples
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=SMALLEST as i64))]
    decimation_factor: u32,

    /// The longest time for each row; a row ends earlier when its median no longer changes
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    duration: Time,

    /// Show kernels, instruction sets and ways to store, and measure nothing
    #[arg(long)]
    list: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// A way to store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum StoreName {
    /// Bypass the cache if the output is larger than the cache
    Auto,
    /// Store through the cache
    Cached,
    /// Bypass the cache, if the instruction set can
    Streaming,
}

impl StoreName {
    fn store(self) -> Store {
        match self {
            StoreName::Auto => Store::Auto,
            StoreName::Cached => Store::Cached,
            StoreName::Streaming => Store::Streaming,
        }
    }
}

/// What one word of `--isa` stands for.
#[derive(Debug, Clone)]
struct Isas(Vec<Isa>);

fn isas(text: &str) -> Result<Isas, String> {
    let named = || match text {
        "all" => Ok(Isa::available()),
        "best" => Isa::best().map(|isa| vec![isa]),
        name => {
            let isa: Isa = name.parse()?;
            if isa.is_available() { Ok(vec![isa]) } else { Err(pciescope_convert::Error::Unavailable { isa }) }
        }
    };
    named().map(Isas).map_err(|err| err.to_string())
}

fn size(text: &str) -> Result<u64, String> {
    match count(text)? {
        few if few < SMALLEST => {
            Err(format!("with fewer than {SMALLEST} samples, convert would time calls and not conversions"))
        }
        samples => Ok(samples),
    }
}

/// Runs the verb: 1 where a kernel deviates from the reference.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let decimate = args.decimation_factor as usize;
    if args.list {
        list(decimate)?;
        return Ok(ExitCode::SUCCESS);
    }
    let environment = environment::read(&ctx.root);
    let cpu = args.cpus.as_ref().map(|choice| one_cpu(choice, &environment)).transpose()?;
    let task = Task {
        kernels: kernels(&args.kernels, decimate)?,
        sizes: once(args.samples),
        isas: once(args.isa.into_iter().flat_map(|isas| isas.0)),
        stores: once(args.store.into_iter().map(StoreName::store)),
        threads: match args.threads {
            0 => std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX)),
            threads => threads,
        },
        cpu,
        duration: args.duration.duration(),
        label: args.output.file.label.clone(),
    };
    if task.cpu.is_some() && task.threads != 1 {
        return Err(Refusal::new(
            format!("--cpus holds one thread, and --threads asks for {}", task.threads),
            "leave out one of the two; taskset chooses the CPUs of several threads",
        )
        .into());
    }
    let mut output = Output::open(&args.output, &[])?;
    ctx.stop.catch_signals()?;
    let bar = bar(ctx, "{bar:40} {percent:>3} %, {eta} left: {msg}");
    output.progress = Some(bar.clone());
    let mut progress = |name: &str, done: usize, rows: usize| {
        bar.set_length(rows as u64);
        bar.set_position(done as u64);
        bar.set_message(name.to_owned());
    };
    let is_stopped = || ctx.stop.is_set();
    let summary = convert::measure(&ctx.root, environment, &task, &is_stopped, &mut progress, &mut output);
    bar.finish_and_clear();
    let summary = summary?;
    if !output.is_table() {
        for warning in &summary.warnings {
            ctx.note(&format!("warning: {}", warning.text));
        }
    }
    for check in &summary.failed_checks {
        ctx.note(check);
    }
    Ok(match ctx.stop.exit_code() {
        Some(code) => ExitCode::from(code),
        None if !summary.failed_checks.is_empty() => ExitCode::from(1),
        None => ExitCode::SUCCESS,
    })
}

/// The one CPU that `--cpus` names.
fn one_cpu(choice: &CpuChoice, environment: &Environment) -> anyhow::Result<u32> {
    let list = choice.among(environment, None)?;
    match list.iter().collect::<Vec<_>>().as_slice() {
        [cpu] => Ok(*cpu),
        all => {
            let text = format!("--cpus names {} CPUs, and one thread is measured on one", all.len());
            Err(Refusal::new(text, "name one; taskset chooses the CPUs of several threads").into())
        }
    }
}

/// The kernels that fit one of the patterns, in the order of the list.
fn kernels(patterns: &[String], decimate: usize) -> Result<Vec<Spec>, Refusal> {
    let mut all = convert::all(decimate);
    let names: Vec<String> = all.iter().map(Spec::name).collect();
    if let Some(pattern) = patterns.iter().find(|pattern| !names.iter().any(|name| fits(pattern, name))) {
        return Err(Refusal::new(
            format!("no kernel is called {pattern}"),
            "`pciescope convert --list` shows the kernels",
        ));
    }
    all.retain(|spec| patterns.iter().any(|pattern| fits(pattern, &spec.name())));
    Ok(all)
}

/// What is available here.
fn list(decimate: usize) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "Kernels:")?;
    for spec in convert::all(decimate) {
        writeln!(out, "  {:<18}  {}", spec.name(), spec.operation_text())?;
    }
    let names: Vec<&str> = Isa::available().into_iter().map(Isa::name).collect();
    let best = Isa::best().map_err(|err| Refusal::new(err.to_string(), "unset PCIESCOPE_ISA, or name another"))?;
    writeln!(out, "Instruction sets: {} (best: {})", names.join(", "), best.name())?;
    let kib = Store::threshold() / 1024;
    writeln!(
        out,
        "Stores: auto (past the cache where the output is larger than {kib} KiB, as measured now), cached, streaming"
    )?;
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_chosen_by_pattern_in_the_order_of_the_list() {
        let chosen = |patterns: &[&str]| -> Vec<String> {
            let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
            kernels(&patterns, 4).map(|all| all.iter().map(Spec::name).collect()).unwrap_or_default()
        };
        assert_eq!(chosen(&["i16-cast-f32", "u16-cast-f??"]), ["u16-cast-f32", "u16-cast-f64", "i16-cast-f32"]);
        assert!(chosen(&["*-d4"]).iter().all(|name| name.ends_with("-d4")));
        assert!(chosen(&["*-d10"]).is_empty(), "every fourth sample was asked for");
        assert!(chosen(&["*", "u8-*"]).is_empty(), "a pattern that fits nothing is a mistake");
    }

    #[test]
    fn sizes_that_measure_calls_are_refused() {
        assert_eq!(size("1024"), Ok(1024));
        for bad in ["1023", "0", "16Ki", ""] {
            assert!(size(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn each_is_measured_once() {
        assert_eq!(once([3, 1, 3, 2, 1]), [3, 1, 2]);
    }
}
