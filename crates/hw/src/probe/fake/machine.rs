//! The machine around the synthetic device: its CPUs, the functions on the path, its environment and its clock.

use pciescope_core::{Bar, Bdf, Cpu, Environment, Function, Host, Link};

use super::Options;
use super::options::hash;

/// What the program sees of a machine that does not exist, the same in every run with the same options.
#[derive(Debug, Clone)]
pub struct Machine {
    /// What it was made from.
    pub options: Options,
}

impl Machine {
    /// The machine these options describe.
    pub fn new(options: Options) -> Self {
        Machine { options }
    }

    /// The value of a record's `time`: it does not move, so that records are the same byte for byte.
    pub fn time(&self) -> String {
        "2026-01-01T00:00:00Z".to_owned()
    }

    /// The value of a record's `run`: the same for runs on the same machine that are alike in `what` they do, since their
    /// figures are, and another one otherwise.
    pub fn run(&self, what: &str) -> String {
        format!("{:016x}", hash(&format!("{:?} {what}", self.options)))
    }

    /// The measured function.
    pub fn bdf(&self) -> Bdf {
        self.hop(self.options.hops - 1)
    }

    /// The function at a hop; 0 is the root port.
    pub fn hop(&self, hop: u16) -> Bdf {
        Bdf { domain: 0, bus: hop as u8, device: u8::from(hop == 0), function: 0 }
    }

    /// Every function from the root port to the device, in this order.
    pub fn functions(&self) -> Vec<Function> {
        (0..self.options.hops).map(|hop| self.function_at(hop)).collect()
    }

    /// The measured function.
    pub fn function(&self) -> Function {
        self.function_at(self.options.hops - 1)
    }

    fn function_at(&self, hop: u16) -> Function {
        let is_device = hop + 1 == self.options.hops;
        let link = Link {
            speed_gts: if self.options.downtrained && is_device { 2.5 } else { 8.0 },
            width: 4,
            max_speed_gts: 8.0,
            max_width: 4,
            mps_bytes: Some(256),
            mrrs_bytes: Some(512),
            is_nominal: false,
        };
        let bar = |number, size_bytes, is_prefetchable| Bar {
            number,
            size_bytes,
            is_memory: true,
            is_64bit: true,
            is_prefetchable,
        };
        Function {
            bdf: Some(self.hop(hop)),
            vendor: 0x1234,
            device: if is_device { 0x5c0e } else { 0x5c00 + hop },
            subsystem_vendor: 0x1234,
            subsystem_device: 1,
            class: if is_device { 0xff0000 } else { 0x060400 },
            name: match (is_device, hop) {
                (true, _) => "synthetic endpoint".to_owned(),
                (false, 0) => "synthetic root port".to_owned(),
                (false, _) => "synthetic switch port".to_owned(),
            },
            driver: Some(if is_device { "fake" } else { "pcieport" }.to_owned()),
            node: Some(0),
            bars: if is_device { vec![bar(0, BAR0_BYTES, false), bar(2, BAR2_BYTES, true)] } else { Vec::new() },
            link: Some(link),
            path: (0..hop).map(|above| self.hop(above)).collect(),
            msix_vectors: if is_device { self.options.vectors } else { 0 },
            iommu_group: Some(u32::from(hop)),
            emulated: self.options.emulated.then(|| "the fake backend was asked to say so".to_owned()),
            ..Function::default()
        }
    }

    /// All CPUs: the nodes hold equal blocks, each node is a package with one L3, and from 4 CPUs up two
    /// neighbours are the threads of a core.
    pub fn cpus(&self) -> Vec<Cpu> {
        let threads = if self.options.cpus >= 4 { 2 } else { 1 };
        (0..self.options.cpus)
            .map(|cpu| {
                let node = self.node_of(cpu);
                let first_of_node = (0..cpu).rev().take_while(|&c| self.node_of(c) == node).last().unwrap_or(cpu);
                let core = (cpu - first_of_node) / threads * threads + first_of_node;
                Cpu {
                    cpu,
                    node: Some(node),
                    package: Some(node),
                    l3: Some(first_of_node),
                    core: Some(core),
                    thread: Some(cpu - core),
                }
            })
            .collect()
    }

    /// The NUMA node of a CPU.
    pub fn node_of(&self, cpu: u32) -> u32 {
        (u64::from(cpu) * u64::from(self.options.nodes) / u64::from(self.options.cpus)) as u32
    }

    /// The environment block of its records.
    pub fn environment(&self) -> Environment {
        Environment {
            tool: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: "0.0.0-fake".to_owned(),
            machine: "x86_64".to_owned(),
            product: Some(Environment::SYNTHETIC.to_owned()),
            host: self.options.host.clone().map(|name| Host { name, ..Host::default() }),
            cpu_model: Some("synthetic CPU at 2.6 GHz".to_owned()),
            cpus: self.cpus(),
            cmdline: Some("quiet".to_owned()),
            clocksource: Some("tsc".to_owned()),
            governors: vec!["performance".to_owned()],
            idle_states: vec!["POLL".to_owned()],
            aspm_policy: Some("performance".to_owned()),
            lockdown: Some("none".to_owned()),
            iommu_groups: u32::from(self.options.hops),
            steal_ns: Some(0),
            ..Environment::default()
        }
    }
}

/// Length of BAR 0 in bytes.
pub const BAR0_BYTES: u64 = 64 << 10;
/// Length of BAR 2 in bytes.
pub const BAR2_BYTES: u64 = 1 << 20;
