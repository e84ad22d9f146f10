//! What of a machine or a device spoils a latency, each with what to do about it. One function is one check.

use pciescope_core::{Environment, Function, Warning};

use crate::config::Config;
use crate::{Root, environment, pci, topology};

/// What the checks look at.
pub struct Scene<'a> {
    /// The tree of the machine.
    pub root: &'a Root,
    /// The machine, as [`environment::read`] gives it.
    pub environment: &'a Environment,
    /// The function to be measured; `None` checks the machine alone.
    pub function: Option<&'a Function>,
    /// The bridges above the function, from the root port down.
    pub above: Vec<Function>,
}

impl<'a> Scene<'a> {
    /// A scene with the bridges of the function's path read from the tree.
    pub fn new(root: &'a Root, environment: &'a Environment, function: Option<&'a Function>) -> Self {
        let path = function.map(|function| function.path.as_slice()).unwrap_or_default();
        let guest = environment.hypervisor.as_deref();
        let above = path.iter().filter_map(|bdf| pci::load(root, *bdf, guest).ok()).collect();
        Scene { root, environment, function, above }
    }

    /// The links of the path, each as the function below and the port above it, from the root port down.
    fn links(&self) -> Vec<(&Function, &Function)> {
        let chain: Vec<&Function> = self.above.iter().chain(self.function).collect();
        // Root port, upstream port, downstream port, endpoint: the pair inside a switch has no link.
        chain.chunks_exact(2).map(|pair| (pair[1], pair[0])).collect()
    }
}

type Check = fn(&Scene) -> Vec<Warning>;

/// What of a function and its path spoils a latency, in the order it is shown.
pub const FUNCTION_CHECKS: &[Check] = &[emulated, link, aspm, node];
/// What of the machine does.
pub const MACHINE_CHECKS: &[Check] = &[guest, idle, governor, clocksource, irqbalance];

/// What spoils a latency measurement of this function on this machine.
pub fn warnings(root: &Root, environment: &Environment, function: Option<&Function>) -> Vec<Warning> {
    let mut all = function.map_or_else(Vec::new, |function| function_warnings(root, environment, function));
    all.extend(machine_warnings(root, environment));
    all
}

/// What of this function and its path does.
pub fn function_warnings(root: &Root, environment: &Environment, function: &Function) -> Vec<Warning> {
    run(FUNCTION_CHECKS, &Scene::new(root, environment, Some(function)))
}

/// What of this machine does, whatever the function.
pub fn machine_warnings(root: &Root, environment: &Environment) -> Vec<Warning> {
    run(MACHINE_CHECKS, &Scene::new(root, environment, None))
}

fn run(checks: &[Check], scene: &Scene) -> Vec<Warning> {
    checks.iter().flat_map(|check| check(scene)).collect()
}

fn warning(code: &str, text: String, hint: &str) -> Warning {
    Warning { code: code.to_owned(), text, hint: hint.to_owned() }
}

fn label(function: &Function) -> String {
    function.bdf.map_or_else(|| function.name.clone(), |bdf| bdf.to_string())
}

fn emulated(scene: &Scene) -> Vec<Warning> {
    let Some(function) = scene.function else { return Vec::new() };
    let say = |why: &String| {
        warning(
            "emulated-device",
            format!("{}: {why}", label(function)),
            "read the figures as the cost of an exit to the emulator, not as PCIe; measure a real device on bare metal",
        )
    };
    function.emulated.iter().map(say).collect()
}

fn guest(scene: &Scene) -> Vec<Warning> {
    let say = |why: &String| {
        warning(
            "guest",
            format!("the machine is a guest: {why}"),
            "the hypervisor can take a CPU away in the middle of a sample; measure on bare metal, or pin the virtual CPUs",
        )
    };
    scene.environment.hypervisor.iter().map(say).collect()
}

fn link(scene: &Scene) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for (below, above) in scene.links() {
        let (Some(now), Some(port)) = (below.link, above.link) else { continue };
        if now.width == 0 {
            continue;
        }
        let (below_name, above_name) = (label(below), label(above));
        let text = format!(
            "the link of {below_name} runs at {} GT/s x{}; it can do {} GT/s x{}, the port {above_name} above it {} GT/s x{}",
            now.speed_gts, now.width, now.max_speed_gts, now.max_width, port.max_speed_gts, port.max_width
        );
        if pci::is_downtrained(&now, &port) {
            warnings.push(warning(
                "link-downtrained",
                text,
                "reseat the card, check the slot's bifurcation and the cable; some GPUs slow an idle link down by themselves",
            ));
        } else if now.speed_gts < now.max_speed_gts || now.width < now.max_width {
            // A port that could do more than its card is no fault; a card in too small a slot is one.
            warnings.push(warning("link-limited", text, "a faster or wider slot would use what the card can do"));
        }
    }
    warnings
}

fn aspm(scene: &Scene) -> Vec<Warning> {
    let mut on = Vec::new();
    for function in scene.above.iter().chain(scene.function) {
        let Some(bdf) = function.bdf else { continue };
        let states = match Config::load(scene.root, bdf).aspm() {
            Some(states) => states,
            // Readable without root, at the lower end of a link only.
            None => sysfs_aspm(scene.root, bdf),
        };
        match (states.l0s, states.l1) {
            (true, true) => on.push(format!("{bdf} L0s and L1")),
            (true, false) => on.push(format!("{bdf} L0s")),
            (false, true) => on.push(format!("{bdf} L1")),
            (false, false) => {}
        }
    }
    if on.is_empty() {
        return Vec::new();
    }
    vec![warning(
        "aspm",
        format!("the link may sleep between reads: ASPM is on at {}", on.join(", ")),
        "boot with pcie_aspm.policy=performance, or write 0 to the files l0s_aspm and l1_aspm in the function's folder `link` in sysfs",
    )]
}

fn sysfs_aspm(root: &Root, bdf: pciescope_core::Bdf) -> crate::config::Aspm {
    let is_on = |file: &str| root.number(pci::folder(bdf).join("link").join(file)) == Some(1);
    crate::config::Aspm { l0s: is_on("l0s_aspm"), l1: is_on("l1_aspm") }
}

/// From this exit latency on an idle state counts as deep, in microseconds.
const DEEP_US: u64 = 10;

fn idle(scene: &Scene) -> Vec<Warning> {
    let deep: Vec<String> = environment::idle_states(scene.root)
        .into_iter()
        .filter(|state| state.exit_us >= DEEP_US)
        .map(|state| format!("{} ({} us to leave)", state.name, state.exit_us))
        .collect();
    if deep.is_empty() {
        return Vec::new();
    }
    vec![warning(
        "deep-idle",
        format!("deep idle states are on: {}", deep.join(", ")),
        "hold /dev/cpu_dma_latency at 0 or boot with cpuidle.off=1 (intel_idle.max_cstate=1): an interrupt to a sleeping CPU waits, and the uncore slows down",
    )]
}

fn governor(scene: &Scene) -> Vec<Warning> {
    let slow: Vec<&str> =
        scene.environment.governors.iter().map(String::as_str).filter(|name| *name != "performance").collect();
    if slow.is_empty() {
        return Vec::new();
    }
    vec![warning(
        "governor",
        format!("the frequency governor is {}", slow.join(", ")),
        "cpupower frequency-set -g performance",
    )]
}

fn clocksource(scene: &Scene) -> Vec<Warning> {
    let expected = match scene.environment.machine.as_str() {
        "x86_64" => "tsc",
        "aarch64" => "arch_sys_counter",
        _ => return Vec::new(),
    };
    match &scene.environment.clocksource {
        Some(source) if source != expected => vec![warning(
            "clocksource",
            format!("the kernel's clock source is {source}, not {expected}"),
            "look for `clocksource` in the kernel log: the kernel may have found the CPU's counter unstable",
        )],
        _ => Vec::new(),
    }
}

fn node(scene: &Scene) -> Vec<Warning> {
    let nodes = topology::nodes(&scene.environment.cpus).len();
    match scene.function {
        Some(function) if function.node.is_none() && nodes > 1 => vec![warning(
            "node-unknown",
            format!("{}: the firmware does not say to which of {nodes} NUMA nodes it belongs", label(function)),
            "find the near CPUs in the table by node; a BIOS update or another PXM setting may help",
        )],
        _ => Vec::new(),
    }
}

fn irqbalance(scene: &Scene) -> Vec<Warning> {
    let is_pid = |name: &String| name.bytes().all(|b| b.is_ascii_digit());
    let is_it = |pid: &String| scene.root.text(format!("/proc/{pid}/comm")).as_deref() == Some("irqbalance");
    match scene.root.names("/proc").into_iter().filter(is_pid).find(is_it) {
        Some(pid) => vec![warning(
            "irqbalance",
            format!("irqbalance is running (process {pid}) and may move interrupts during a run"),
            "systemctl stop irqbalance for the time of the measurement",
        )],
        None => Vec::new(),
    }
}
