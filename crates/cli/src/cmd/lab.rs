//! `pciescope lab`: the virtual hardware, for scripts (`run`), for a person (`shell`), its devices (`ctl`), and all of it in
//! one go (`demo`).

mod demo;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use pciescope_core::Bdf;
use pciescope_lab::device::config::Link;
use pciescope_lab::device::traffic::Traffic;
use pciescope_lab::device::{CounterBoard, DeviceModel, LatencyEndpoint, NvmeDisk};
use pciescope_lab::vm::digitizers::{Crate, Lanes, SEED_BOARDS};
use pciescope_lab::vm::{self, Arch, Attachment, Builder, Kernel, LAB_FAILED, standard_machine};
use pciescope_lab::{Served, control};

use super::{Ctx, Refusal, files};
use crate::values::{Size, Time, memory, some_time};

/// The arguments of `pciescope lab`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope lab shell
  pciescope lab run -- pciescope list
  pciescope lab run --device-control 'ep0 read-delay fixed 20us' -- sh script

The guest is a QEMU machine with a stock Debian kernel. The right answers of its
devices are known: latency endpoints (docs/spec/latency-endpoint.md), network
cards, an NVMe drive, edu, shared memory, a switch. Its figures are those of the
emulator and say nothing about real hardware.")]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    what: LabVerb,
}

/// What to do with the lab.
#[derive(Debug, clap::Subcommand)]
enum LabVerb {
    /// Boot a guest, run a command in it, and exit with the command's exit code
    Run(RunArgs),
    /// Boot a guest and connect this terminal to its console
    Shell(ShellArgs),
    /// Measure virtual devices end to end, and write a page and the records
    Demo(demo::Args),
    /// Send a command to a virtual device: delays, faults, its ledger of what the guest did
    Ctl(CtlArgs),
}

/// The guest and its devices.
#[derive(Debug, clap::Args)]
struct GuestArgs {
    /// Architecture of the guest: amd64 or arm64 [default: $PCIESCOPE_LAB_ARCH, else amd64]
    #[arg(long, value_name = "ARCH")]
    arch: Option<Arch>,

    /// An arm64 guest without UEFI and ACPI: a DeviceTree describes the machine
    #[arg(long)]
    device_tree: bool,

    /// Guest kernel: 6.1, 6.12, newest; or 5.10 or 6.12-16k, which lab/setup-kernel adds
    #[arg(long, value_name = "KERNEL", default_value_t = Kernel::default())]
    kernel: Kernel,

    /// How many CPUs the guest has
    #[arg(long, alias = "smp", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64), default_value_t = 4)]
    guest_cpus: u32,

    /// Memory of the guest [default: 1G; with --digitizers 2560M, all below 4 GiB]
    #[arg(long, value_name = "SIZE", value_parser = of_guest)]
    memory: Option<Size>,

    /// Words for the guest kernel's command line, such as lockdown=integrity
    #[arg(long, value_name = "WORDS")]
    cmdline: Vec<String>,

    /// Give the guest an IOMMU, which vfio needs: Intel's; in an arm64 guest a virtio-iommu, or with `--endpoints 0` and no other
    /// served device an SMMUv3
    #[arg(long)]
    iommu: bool,

    /// Latency endpoints, each behind a root port of its own: ep0, ep1, ... [default: 2; with --digitizers none]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=8))]
    endpoints: Option<u32>,

    /// Only the endpoints, without QEMU's own devices
    #[arg(long)]
    bare: bool,

    /// The machine of the counters' seed: 18 root ports with RAS D.E.S. counters, 16 DRAM sub-channels with counters,
    /// and a disk behind 10:03.0 whose traffic they count. `lab ctl` calls them `board` and `disk0`
    #[arg(long)]
    counters: bool,

    #[command(flatten)]
    digitizers: DigitizerArgs,

    /// Module to load, with its parameters (repeat for more) [default: pcilat; with --counters also nvme, pciescope_lab, rasdes_pmu and drw_pmu; with --digitizers also sis8300, if it is built]
    #[arg(long, value_name = "MODULE", conflicts_with = "no_module")]
    module: Vec<String>,

    /// Load no module
    #[arg(long)]
    no_module: bool,

    /// Program of this machine to put into the guest beside pciescope (repeat for more)
    #[arg(long, value_name = "FILE")]
    program: Vec<PathBuf>,

    /// Command for a served device before the guest boots, such as 'ep0 read-delay fixed 20us' (repeat for more)
    #[arg(long, value_name = "NAME COMMAND")]
    device_control: Vec<String>,

    /// Folder for the served devices' sockets, NAME.ctl is the one for `lab ctl` [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    sockets: Option<PathBuf>,
}

impl GuestArgs {
    /// How many latency endpoints the guest gets.
    fn latency_endpoints(&self) -> u32 {
        self.endpoints.unwrap_or(if self.digitizers.digitizers.is_some() { 0 } else { 2 })
    }

    /// # Errors
    /// On arm64 served devices are behind a virtio-iommu, of which the oldest kernel has no driver.
    fn check_iommu(&self, arch: Arch) -> Result<(), Refusal> {
        let is_served = self.latency_endpoints() > 0 || self.counters || self.digitizers.digitizers.is_some();
        if arch == Arch::Arm64 && self.iommu && is_served && self.kernel == Kernel::V6_1 {
            return Err(Refusal::new(
                "--iommu with --kernel 6.1: this kernel has no driver of the virtio-iommu, behind which the lab's own devices are \
                 in an arm64 guest",
                "take another --kernel, or no device of the lab: --endpoints 0",
            ));
        }
        Ok(())
    }
}

/// The crate of digitizers.
#[derive(Debug, clap::Args)]
struct DigitizerArgs {
    /// SIS8300 digitizers behind one switch, and none of QEMU's own devices: all 6 of the seed's crate (physical slots 4, 6, 7, 8, 9, and
    /// 3 with the KU), or the first N of slots 6, 7, 8, 9, 4, 3; `sis8300-6` and so on for `lab ctl`. With --counters each is
    /// behind a root port of its own, from 30:00.0 on
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "6",
          value_parser = clap::value_parser!(u8).range(1..=6))]
    digitizers: Option<u8>,

    /// Link of each L or L2, as GENERATIONxLANES. The real boards have 1x4; the lab has a quarter, because few cores
    /// copy the bytes
    #[arg(long, value_name = "LINK", default_value = "1x1", requires = "digitizers")]
    digitizer_link: Lanes,

    /// Link of the KU; a real one has 3x4
    #[arg(long, value_name = "LINK", default_value = "3x1", requires = "digitizers")]
    digitizer_ku_link: Lanes,

    /// Link that the switch shares among the boards
    #[arg(long, value_name = "LINK", default_value = "2x2", requires = "digitizers")]
    digitizer_upstream: Lanes,

    /// Triggers per second on backplane line 0 of each board, or off
    #[arg(long, value_name = "HZ", default_value = "14", requires = "digitizers")]
    digitizer_trigger: String,

    /// The boards have no MSI and use interrupt pins
    #[arg(long, requires = "digitizers")]
    digitizer_intx: bool,
}

impl DigitizerArgs {
    /// The crate that was asked for.
    fn seed(&self, traffic: &Traffic) -> Option<Crate> {
        let count = self.digitizers?;
        // The rate is set by a command to each board: its words are checked there.
        Some(Crate {
            link: self.digitizer_link,
            ku_link: self.digitizer_ku_link,
            upstream: self.digitizer_upstream,
            has_msi: !self.digitizer_intx,
            trigger_millihertz: 0,
            traffic: traffic.clone(),
            ..Crate::seed(count.into())
        })
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope lab run -- pciescope list
  pciescope lab run --kernel newest --no-module --iommu -- dmesg
  pciescope lab run --arch arm64 -- pciescope doctor
  pciescope lab run --bare --endpoints 1 -- sh -c 'lspci -vv | less'
  pciescope lab run --counters -- perf list pmu
  pciescope lab run --digitizers -- sh -c 'ls /dev/sis8300-*'
  pciescope lab run --digitizers=1 --digitizer-link 1x4 -- pciescope list

The exit code is that of the command. It is 69 if the lab failed.")]
struct RunArgs {
    #[command(flatten)]
    guest: GuestArgs,

    /// The longest time that the command may take; it is doubled without KVM
    #[arg(long, value_name = "TIME", value_parser = some_time, default_value = "1h")]
    timeout: Time,

    /// The command, after `--`; its words reach the guest unchanged
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope lab shell
  pciescope lab shell --kernel 6.1 --sockets /tmp/lab
  pciescope lab ctl /tmp/lab/ep0.ctl ledger        (in another terminal)")]
struct ShellArgs {
    #[command(flatten)]
    guest: GuestArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope lab ctl /tmp/lab/ep0.ctl ledger
  pciescope lab ctl /tmp/lab/ep0.ctl read-delay two-peak 20us 50us 100 1
  pciescope lab ctl /tmp/lab/ep0.ctl all-ones after 100
  pciescope lab ctl /tmp/lab/board.ctl port 10:03.0 event 0x201 5
  pciescope lab ctl /tmp/lab/sis8300-6.ctl lose dma 1

docs/spec/latency-endpoint.md lists the commands of an endpoint,
docs/spec/counter-board.md those of the board, docs/spec/sis8300.md those of a
digitizer. The answer is one line of JSON. The exit code is 69 if the device
does not answer or refuses the command.")]
struct CtlArgs {
    /// The device's control socket
    #[arg(value_name = "SOCKET")]
    socket: PathBuf,

    /// The command and its words
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs the verb.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    match args.what {
        LabVerb::Run(args) => in_lab(ctx, run_command(&args, ctx)),
        LabVerb::Shell(args) => in_lab(ctx, shell(&args.guest)),
        LabVerb::Demo(args) => in_lab(ctx, demo::run(&args, ctx)),
        LabVerb::Ctl(args) => in_lab(ctx, ctl(&args)),
    }
}

/// The lab's own failures have an exit code of their own, so that a script can tell them from its command's. After a signal
/// the guest's end is what was asked for: the code says which signal, and nothing is to be complained of.
fn in_lab(ctx: &Ctx, ended: anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    if let Some(code) = ctx.stop.exit_code() {
        return Ok(ExitCode::from(code));
    }
    match ended {
        Err(err) if err.chain().any(|cause| cause.is::<vm::LabError>() || cause.is::<pciescope_lab::Error>()) => {
            crate::complain(&err);
            Ok(ExitCode::from(LAB_FAILED))
        }
        other => other,
    }
}

fn run_command(args: &RunArgs, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    // A signal ends the guest; then its folders are removed on the way out.
    ctx.stop.catch_signals()?;
    let devices = Devices::serve(&args.guest)?;
    let guest = guest(&args.guest, &devices)?.stop(&ctx.stop.number());
    let is_told = ctx.terminal || ctx.verbose > 0;
    if is_told {
        ctx.note(&format!("booting Linux {} with {}; Ctrl-C ends it", args.guest.kernel, devices.names()));
    }
    let ready = |vm: &vm::Vm| {
        if is_told {
            let words = args.command.join(" ");
            ctx.note(&format!("Linux {} is up after {:.1} s: {words}", vm.release(), vm.boot_time().as_secs_f64()));
        }
    };
    Ok(ExitCode::from(vm::run(&args.command, guest, args.timeout.duration(), &ready)?))
}

fn shell(args: &GuestArgs) -> anyhow::Result<ExitCode> {
    let devices = Devices::serve(args)?;
    vm::shell(&devices.greeting(), guest(args, &devices)?)?;
    Ok(ExitCode::SUCCESS)
}

fn ctl(args: &CtlArgs) -> anyhow::Result<ExitCode> {
    let answer = control::ask(&args.socket, &args.command.join(" "))?;
    writeln!(io::stdout(), "{answer}")?;
    Ok(ExitCode::SUCCESS)
}

/// The guest that was asked for, with the served devices, each in its place and by its name.
fn guest(args: &GuestArgs, devices: &Devices) -> anyhow::Result<Builder> {
    let own = std::env::current_exe().context("cannot find the program's own file")?;
    let has_digitizers = args.digitizers.digitizers.is_some();
    let mut guest = vm::Vm::builder().kernel(args.kernel).cpus(args.guest_cpus).iommu(args.iommu).program(own);
    if let Some(arch) = args.arch {
        guest = guest.arch(arch);
    }
    if args.device_tree {
        guest = guest.device_tree();
    }
    match args.memory {
        Some(size) => guest = guest.memory_mib(u32::try_from(size.0 >> 20)?),
        None if has_digitizers => guest = guest.memory_mib(2560),
        None => {}
    }
    if !args.bare && !has_digitizers {
        guest = guest.devices(standard_machine());
    }
    if args.counters {
        guest = guest.seed_machine();
    }
    if has_digitizers && !args.no_module && args.module.is_empty() {
        guest = guest.module_if_built("sis8300");
    }
    guest = args.cmdline.iter().fold(guest, |guest, words| guest.cmdline(words));
    guest = args.program.iter().fold(guest, |guest, program| guest.program(program));
    guest = modules(args).into_iter().fold(guest, |guest, module| guest.module(module));
    let place = |name: &str| devices.places.iter().find(|(placed, _)| placed == name).map(|(_, place)| *place);
    let served = devices.served.iter();
    Ok(served.fold(guest, |guest, (name, served)| guest.served(name, served, place(name).unwrap_or_default())))
}

fn of_guest(text: &str) -> Result<Size, String> {
    memory(text, 128)
}

/// The modules to load: those that were named, or those that the devices need.
fn modules(args: &GuestArgs) -> Vec<String> {
    let default: &[&str] = match (args.no_module, args.counters) {
        (true, _) => &[],
        (false, false) => &["pcilat"],
        (false, true) => &COUNTER_MODULES,
    };
    if args.module.is_empty() { default.iter().map(|&module| module.to_owned()).collect() } else { args.module.clone() }
}

/// The shim first: it makes what the PMU drivers look for.
const COUNTER_MODULES: [&str; 5] = ["pcilat", "nvme", "pciescope_lab", "rasdes_pmu", "drw_pmu"];
/// The root port of the disk whose traffic is counted.
const DISK_PORT: Bdf = Bdf { domain: 0, bus: 0x10, device: 3, function: 0 };

/// The root ports of digitizers whose traffic is counted: the first ones of buses 30 and 80.
fn digitizer_ports() -> Vec<Bdf> {
    let port = |number| Bdf { domain: 0, bus: if number < 4 { 0x30 } else { 0x80 }, device: number % 4, function: 0 };
    (0..SEED_BOARDS.len() as u8).map(port).collect()
}

/// The devices that are served, with the folder of their sockets.
struct Devices {
    // Stops before its folder goes.
    served: Vec<(String, Served)>,
    /// Where they are, but for those behind root ports of their own.
    places: Vec<(String, Attachment)>,
    _folder: Option<tempfile::TempDir>,
}

impl Devices {
    fn serve(args: &GuestArgs) -> anyhow::Result<Devices> {
        args.check_iommu(args.arch.map_or_else(Arch::chosen, Ok)?)?;
        let endpoints = args.latency_endpoints();
        let (path, folder) = match &args.sockets {
            Some(path) => {
                let path = files::make_folder(path).with_context(|| format!("cannot create {}", path.display()))?;
                (path, None)
            }
            None => {
                let folder = tempfile::Builder::new().prefix("pciescope-lab-").tempdir();
                let folder = folder.context("cannot create a folder for the devices' sockets")?;
                (folder.path().to_owned(), Some(folder))
            }
        };
        let mut devices = Devices { served: Vec::new(), places: Vec::new(), _folder: folder };
        for number in 0..endpoints {
            devices.spawn(LatencyEndpoint::new(&Link::default()), &path, &format!("ep{number}"))?;
        }
        let traffic = Traffic::new();
        if let Some(digitizers) = args.digitizers.seed(&traffic) {
            let boards =
                if args.counters { digitizers.behind_ports(&digitizer_ports()) } else { digitizers.behind_switch() };
            for (name, board, place) in boards {
                devices.spawn(board, &path, &name)?;
                devices.set_trigger(&name, &args.digitizers.digitizer_trigger)?;
                devices.places.push((name, place));
            }
        }
        if args.counters {
            devices.places.push(("board".to_owned(), Attachment::RootBus));
            devices.places.push(("disk0".to_owned(), Attachment::Port(DISK_PORT)));
            let link = Link { generation: 5, max_generation: 5, ..Link::default() };
            devices.spawn(NvmeDisk::new(&link, traffic.port(DISK_PORT)), &path, "disk0")?;
            devices.spawn(CounterBoard::seed_machine(traffic), &path, "board")?;
        }
        for control in &args.device_control {
            devices.control(control)?;
        }
        Ok(devices)
    }

    fn spawn(&mut self, device: impl DeviceModel + 'static, folder: &Path, name: &str) -> anyhow::Result<()> {
        self.served.push((name.to_owned(), Served::spawn(device, folder, name)?));
        Ok(())
    }

    /// Has a digitizer's trigger generator send pulses.
    fn set_trigger(&self, name: &str, rate: &str) -> anyhow::Result<()> {
        let served = self.served.iter().filter(|(known, _)| known == name);
        for (_, served) in served {
            served.ask(&format!("trigger rate {rate}")).with_context(|| format!("--digitizer-trigger {rate:?}"))?;
        }
        Ok(())
    }

    /// Carries out `NAME COMMAND...` as typed.
    fn control(&self, line: &str) -> anyhow::Result<()> {
        let (name, command) = line.split_once(' ').unwrap_or((line, ""));
        let Some((_, served)) = self.served.iter().find(|(known, _)| known == name) else {
            return Err(Refusal::new(
                format!("--device-control {line:?}: no device is named {name:?}"),
                format!("the devices are {}", self.names()),
            )
            .into());
        };
        served.ask(command).with_context(|| format!("--device-control {line:?}"))?;
        Ok(())
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.served.iter().map(|(name, _)| name.as_str()).collect();
        if names.is_empty() { "no served device".to_owned() } else { names.join(", ") }
    }

    /// The first text at the console.
    fn greeting(&self) -> String {
        let mut text =
            "\nA guest with virtual PCIe devices: `pciescope list` shows them, `poweroff` ends it.\n".to_owned();
        for (name, served) in &self.served {
            let socket = served.control_socket.display();
            text.push_str(&format!("{name}: on the host, `pciescope lab ctl {socket} ledger`\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        guest: GuestArgs,
    }

    #[test]
    fn a_guest_has_two_latency_endpoints_unless_it_has_digitizers() {
        for (line, wanted) in [
            ("", 2),
            ("--iommu", 2),
            ("--iommu --endpoints 0", 0),
            ("--endpoints 3", 3),
            ("--digitizers", 0),
            ("--digitizers --endpoints 1", 1),
        ] {
            let parsed = Line::parse_from(["lab"].into_iter().chain(line.split_whitespace()));
            assert_eq!(parsed.guest.latency_endpoints(), wanted, "{line}");
        }
    }

    #[test]
    fn the_oldest_arm64_kernel_has_no_iommu_for_served_devices() {
        for (line, arch, is_refused) in [
            ("--iommu --kernel 6.1", Arch::Arm64, true),
            ("--iommu --kernel 6.1 --endpoints 0", Arch::Arm64, false),
            ("--iommu --kernel 6.1 --endpoints 0 --counters", Arch::Arm64, true),
            ("--iommu --kernel 6.1 --digitizers", Arch::Arm64, true),
            ("--kernel 6.1", Arch::Arm64, false),
            ("--iommu --kernel newest", Arch::Arm64, false),
            ("--iommu --kernel 6.1", Arch::Amd64, false),
        ] {
            let parsed = Line::parse_from(["lab"].into_iter().chain(line.split_whitespace()));
            assert_eq!(parsed.guest.check_iommu(arch).is_err(), is_refused, "{line} {arch:?}");
        }
    }
}
