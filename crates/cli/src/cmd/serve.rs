//! `pciescope serve`: metrics for Prometheus and a live page for browsers.

mod feeder;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use clap::builder::NonEmptyStringValueParser;
use pciescope_bench::counters::{self, Origin, Place, Wanted};
use pciescope_hw::inventory;
use pciescope_hw::probe::open::Backend;
use pciescope_hw::wait::{Waiter, now_ns};
use pciescope_report::jsonl;
use pciescope_serve::config::Config;
use pciescope_serve::{Options, Server, Setup, State, replay};

use self::feeder::Feeder;
use super::{Ctx, ENDING, Refusal, recorded, say, wake_on};
use crate::cmd::stat::{machine, place, places, source};
use crate::values::{self, Time};

/// The port: Prometheus' list of exporters' ports (9100 to 9999) has been full since 2023.
const PORT: u16 = 9713;
/// The shortest time between readings, in nanoseconds.
const SHORTEST_NS: u64 = 100_000_000;
/// The time between two readings of links, drivers and error counts, and between two searches for new PMUs, in nanoseconds.
const REFRESH_NS: u64 = 10_000_000_000;
/// And what the recorder has kept, which may be 64 MB.
const RECORDED_NS: u64 = 300_000_000_000;

/// The arguments of `pciescope serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope serve                            /metrics and a page on port 9713
  pciescope serve -I 10s                     less often, enough for monitoring
  pciescope serve --metric bandwidth,states  count these figures only
  pciescope serve --replay run.jsonl         a file of `stat -I`, as if live
  pciescope serve --listen :9713 --config web.yml   for other machines, with TLS

No request changes anything or accesses a device. Without counters, serve still
exports links, drivers and error counts. docs/serve.md describes the metrics,
the configuration file and the service.")]
pub struct Args {
    /// Root ports, devices below them, or PMUs (`*` and `?` allowed); all if none is given
    #[arg(value_name = "BDF|PMU", value_parser = place, conflicts_with = "replay")]
    places: Vec<Place>,

    /// Metrics, groups of them (bandwidth, states, traffic, errors, efficiency) or events of the catalogue
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', conflicts_with = "replay", value_parser = NonEmptyStringValueParser::new())]
    metric: Vec<String>,

    /// Whose counts to use: those of hardware, of the kernel (a lower bound of each function's payload), or both
    #[arg(long, value_name = "SOURCE", default_value = "all", value_parser = source, conflicts_with = "replay")]
    source: Origin,

    /// The time between two readings, such as 500ms or 10s; with --replay, how long each interval is shown [default: 1s, or as recorded]
    #[arg(short = 'I', long, value_name = "TIME", value_parser = interval)]
    interval: Option<Time>,

    /// Where to count: auto is this machine, fake a synthetic one with traffic
    #[arg(long, value_name = "BACKEND", default_value = "auto", value_parser = machine, conflicts_with = "replay")]
    backend: Backend,

    /// Where to listen: ADDR:PORT, PORT alone for this machine, :PORT for all addresses
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9713", value_parser = listen)]
    listen: SocketAddr,

    /// TLS, users and tokens, in the web-config format of Prometheus' exporters; required for any address but loopback
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Show the records of FILE instead of counting; `-` reads stdin, `sample` is a recording that is built in
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,

    /// A name for this run, shown on the page and in the records
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    label: Option<String>,
}

fn interval(text: &str) -> Result<Time, String> {
    values::interval(text, SHORTEST_NS)
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::new(loopback, port));
    }
    let text = match text.strip_prefix(':') {
        Some(port) if !port.contains(':') => format!("[::]:{port}"),
        _ => text.replacen("localhost", "127.0.0.1", usize::from(text.starts_with("localhost"))),
    };
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&text);
    let address = bare.parse::<IpAddr>();
    text.parse().or_else(|_| address.map(|address| SocketAddr::new(address, PORT))).map_err(|_| {
        "write an IP address and a port from 1 to 65535, for example 127.0.0.1:9713 or [::1]:9713".to_owned()
    })
}

/// Runs the verb until a signal comes: 128 and its number is the exit code.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let ctx = &ctx.on(&args.backend)?;
    let config = args.config.as_deref().map(Config::load).transpose()?.unwrap_or_default();
    config.warnings.iter().for_each(|warning| ctx.note(warning));
    let steps = match &args.replay {
        Some(path) => {
            let contents = jsonl::read_records(path)?;
            contents.remarks.iter().for_each(|remark| ctx.note(remark));
            let steps = replay::steps(contents.records);
            if !steps.iter().any(|step| step.records[0].test == counters::TEST) {
                let text = format!("{}: no record of it counts ports or channels", path.display());
                return Err(Refusal::new(text, "`pciescope stat -I 1s -j -o FILE` writes such records").into());
            }
            Some(steps)
        }
        None => None,
    };
    let wanted =
        Wanted { places: places(ctx, &args.places)?, events: Vec::new(), metrics: args.metric, origin: args.source };
    if steps.is_none() {
        check(ctx, &wanted)?;
    }
    // A replay is of the machine that its records name.
    let host = || ctx.root.text("/proc/sys/kernel/hostname").unwrap_or_else(|| "localhost".to_owned());
    let setup = Setup {
        host: if steps.is_none() { host() } else { String::new() },
        label: args.label.clone(),
        interval: args.interval.map(Time::duration),
    };
    let state = Arc::new(State::new(setup));
    ctx.stop.catch_signals()?;
    let (mut waiter, mut feeders) = (Waiter::default(), Waiter::default());
    waiter.watch_signals(wake_on(&ENDING)?.into());
    feeders.watch_signals(wake_on(&ENDING)?.into());
    let note = |text: &str| say(&format!("pciescope: {text}\n"));
    let server = Server::start(Options { listen: args.listen, config, note }, Arc::clone(&state))?;
    ctx.note(&format!("{} shows the ports; Prometheus reads {}metrics", server.url(), server.url()));
    let has_inventory = steps.is_none();
    let feeder = Feeder {
        root: ctx.root.clone(),
        state: Arc::clone(&state),
        stop: ctx.stop.clone(),
        waiter: feeders,
        label: args.label,
        interval_ns: args.interval.map(|time| time.0),
    };
    let mut feeder = Some(thread::Builder::new().name("count".to_owned()).spawn(move || match steps {
        Some(steps) => feeder.replay(&steps),
        None => feeder.count(&wanted),
    })?);
    let mut devices = Vec::new();
    let (mut watched, mut recorded_ns) = (BTreeMap::new(), None);
    while !ctx.stop.is_set() {
        if has_inventory {
            devices = inventory::read(&ctx.root, &devices);
            if recorded_ns.is_none_or(|at| now_ns() >= at + RECORDED_NS) {
                (watched, recorded_ns) = (recorded::read(&ctx.root), Some(now_ns()));
            }
            for device in &mut devices {
                // The link of a function is its port's.
                let link = device.path.last().unwrap_or(&device.bdf);
                device.watched = watched.get(link).cloned();
            }
            state.set_devices(devices.clone());
        }
        // Stopping and continuing the program wakes it too.
        let next = feeder.is_some().then(|| now_ns() + REFRESH_NS);
        waiter.until(next)?;
        if !ctx.stop.is_set() {
            look_after(&mut feeder, has_inventory)?;
        }
    }
    server.stop();
    let code = ctx.stop.exit_code().map_or(ExitCode::SUCCESS, ExitCode::from);
    match feeder.map(JoinHandle::join) {
        None | Some(Ok(())) => Ok(code),
        Some(Err(_)) => Ok(ExitCode::from(2)),
    }
}

/// Joins the thread that reads the records once it has ended. A replay may end. Counting may not: the server would go on
/// with figures that no longer change.
fn look_after(feeder: &mut Option<JoinHandle<()>>, is_counting: bool) -> anyhow::Result<()> {
    let Some(ended) = feeder.take_if(|feeder| feeder.is_finished()) else { return Ok(()) };
    match ended.join() {
        Ok(()) if !is_counting => Ok(()),
        _ => Err(Refusal {
            text: "the thread that reads the counters ended unexpectedly".to_owned(),
            hint: Some("start serve again, and report the message above".to_owned()),
        }
        .into()),
    }
}

/// Refuses names of which nothing is present; the server waits for others that are absent. A machine without counters is
/// accepted: serve exports what sysfs says.
fn check(ctx: &Ctx, wanted: &Wanted) -> anyhow::Result<()> {
    match counters::choose_present(&ctx.root, wanted) {
        Ok(choice) => {
            choice.absent.iter().for_each(|warning| ctx.note(&format!("{}; {}", warning.text, warning.hint)));
            Ok(())
        }
        Err(error @ (counters::Error::NoPmu { .. } | counters::Error::NotCounted { .. })) => Err(error.into()),
        Err(error @ (counters::Error::NoMetric { .. } | counters::Error::Machine(_))) => Err(error.into()),
        Err(counters::Error::None { .. }) if !wanted.metrics.is_empty() => {
            let text = "--metric: there is no counter of PCIe ports or DRAM channels on this machine";
            Err(Refusal::new(text, "leave it out: links, drivers and error counts are exported without counters")
                .into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_to_listen() {
        for (text, address) in [
            ("9713", "127.0.0.1:9713"),
            ("localhost:80", "127.0.0.1:80"),
            ("localhost", "127.0.0.1:9713"),
            (":9000", "[::]:9000"),
            ("[::1]:9000", "[::1]:9000"),
            ("::1", "[::1]:9713"),
            ("[::1]", "[::1]:9713"),
            ("10.0.0.1", "10.0.0.1:9713"),
        ] {
            assert_eq!(listen(text).map(|address| address.to_string()), Ok(address.to_owned()), "{text}");
        }
        for bad in ["", ":", "host:80", "70000", "1.2.3.4:70000", "[::1", "localhosts:1"] {
            assert!(listen(bad).is_err(), "{bad:?} was taken: {:?}", listen(bad));
        }
    }

    #[test]
    fn a_counting_that_ends_by_itself_is_an_error() {
        let ended = |work: fn()| {
            let thread = thread::spawn(work);
            while !thread.is_finished() {
                thread::yield_now();
            }
            Some(thread)
        };
        let panics = || panic!("on purpose");
        for (work, is_counting, is_fine) in
            [((|| ()) as fn(), false, true), (|| (), true, false), (panics, false, false), (panics, true, false)]
        {
            let mut feeder = ended(work);
            assert_eq!(look_after(&mut feeder, is_counting).is_ok(), is_fine);
            assert!(feeder.is_none());
        }
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let mut lives = Some(thread::spawn(move || wait.recv().unwrap_or_default()));
        assert!(look_after(&mut lives, true).is_ok() && lives.is_some());
        drop(end);
    }
}
