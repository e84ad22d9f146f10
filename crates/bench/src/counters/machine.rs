//! The machine as counters see it: its PMUs, what the catalogue knows of each, and what each counts for.

use std::collections::BTreeMap;

use pciescope_catalogue::{Catalogue, Event, Kind, What};
use pciescope_core::{Bdf, Below, Cpu, Function};
use pciescope_hw::account::{self, Sources};
use pciescope_hw::perf::{self, By, Pmu};
use pciescope_hw::{Root, ceiling, environment, inventory, pci, topology};

use super::error::Error;
use super::events::{Place, fits};

/// Whose counts are wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Origin {
    /// Everybody's.
    #[default]
    All,
    /// Sources in hardware only.
    Hardware,
    /// The kernel's accounts of functions only.
    Kernel,
}

impl Origin {
    fn has(self, by: By) -> bool {
        match self {
            Origin::All => true,
            Origin::Hardware => by == By::Hardware,
            Origin::Kernel => by == By::Kernel,
        }
    }
}

/// The PMUs of this machine with what the catalogue knows of them.
#[derive(Debug)]
pub struct Machine {
    /// All PMUs, hardware's first; then the kernel's accounts of functions, where it has any.
    pub pmus: Vec<(Pmu, Option<&'static Kind>)>,
    pub(super) root: Root,
    pub(super) cpus: Vec<Cpu>,
    /// What the kernel counts of each function.
    pub sources: BTreeMap<Bdf, Sources>,
    /// Every function but bridges, with the bridges above it.
    endpoints: Vec<(Vec<Bdf>, Below)>,
    is_guest: bool,
}

impl Machine {
    /// Reads the PMUs and the functions of the machine. Reads no configuration space: that of all functions takes longer
    /// than counting on a large machine.
    pub fn load(root: &Root, origin: Origin) -> Self {
        let with_kind = |pmu: Pmu| {
            let events: Vec<&String> = pmu.events.keys().collect();
            let kind = Catalogue::builtin().find(&pmu.name, pmu.identifier.as_deref(), &events);
            (pmu, kind)
        };
        let sources = if origin.has(By::Kernel) { account::sources(root) } else { BTreeMap::new() };
        // On a machine of which the kernel counts nothing, accounts would be empty for good.
        let accounts = if sources.is_empty() { Vec::new() } else { account::pmus(root) };
        let hardware = if origin.has(By::Hardware) { perf::pmus(root) } else { Vec::new() };
        let pmus = hardware.into_iter().chain(accounts);
        Machine {
            pmus: pmus.map(with_kind).collect(),
            root: root.clone(),
            sources,
            cpus: topology::cpus(root).unwrap_or_default(),
            endpoints: inventory::endpoints(root),
            is_guest: environment::hypervisor(root).is_some(),
        }
    }

    /// The root port and the functions below it, bridges left out.
    pub fn port(&self, pmu: &Pmu) -> (Option<Function>, Vec<Below>) {
        let Some(bdf) = pmu.function() else { return (None, Vec::new()) };
        // One that goes away meanwhile, or cannot be understood, is left out.
        (pci::function(&self.root, bdf).ok(), below(&self.endpoints, bdf).cloned().collect())
    }

    /// The NUMA node of a PMU on a CPU: as it says, as its port says, as its name says, else that of the CPU.
    pub(super) fn node(&self, pmu: &Pmu, cpu: u32, kind: Option<&Kind>, port: Option<&Function>) -> Option<u32> {
        let by_port = || port.and_then(|port| port.node);
        // The in-tree driver of a Yitian 710 has no file `die`, but its names tell.
        let by_name = || kind?.place(&pmu.name).get("die").and_then(|die| u32::try_from(*die).ok());
        if pmu.by == By::Kernel {
            // It is counted on no CPU.
            return by_port();
        }
        let by_cpu = || self.cpus.iter().find(|known| known.cpu == cpu)?.node;
        pmu.die.or_else(by_port).or_else(by_name).or_else(by_cpu)
    }

    /// How many counts, each worth `one` in base units, the hardware can make per second; `None` where nobody knows, and in
    /// a guest, whose emulated links and memory have no limit.
    pub(super) fn most_per_s(&self, kind: &Kind, event: &Event, port: Option<&Function>, one: f64) -> Option<f64> {
        if self.is_guest || event.unit.text != "bytes" {
            return None;
        }
        match kind.what {
            What::PcieRootPort => {
                let link = port?.link?;
                // A little more than all lanes at the highest speed, whatever is negotiated now.
                Some(ceiling::wire_bytes_per_s(link.max_speed_gts, link.max_width)? * 1.05 / one)
            }
            // Twice the fastest memory that the part takes (DDR5-4400 on 4 bytes).
            What::DramChannel if kind.id == "ali_drw" => Some(2.0 * 4400e6 * 4.0 / one),
            _ => None,
        }
    }

    /// The PMUs whose name fits a pattern.
    pub(super) fn named(&self, pattern: &str) -> Result<Vec<&Pmu>, Error> {
        let found: Vec<&Pmu> = self.pmus.iter().map(|(pmu, _)| pmu).filter(|pmu| fits(pattern, &pmu.name)).collect();
        if !found.is_empty() {
            return Ok(found);
        }
        let stem = pattern.trim_end_matches(['*', '?', '_']);
        let alike =
            self.pmus.iter().map(|(pmu, _)| &pmu.name).filter(|name| !stem.is_empty() && name.starts_with(stem));
        Err(Error::NoPmu { pattern: pattern.to_owned(), alike: alike.take(4).cloned().collect() })
    }

    /// The PMUs outside the cores that have an event of this name.
    pub(super) fn with_event(&self, name: &str) -> Result<Vec<&Pmu>, Error> {
        let has = |pmu: &&Pmu| pmu.events.contains_key(name);
        let all = || self.pmus.iter().map(|(pmu, _)| pmu);
        // PMUs without a mask count for processes and CPUs.
        let found: Vec<&Pmu> = all().filter(|pmu| !pmu.cpus.is_empty()).filter(has).collect();
        if found.is_empty() {
            let of_cores = all().find(has).map(|pmu| pmu.name.clone());
            return Err(Error::NoEvent { name: name.to_owned(), of_cores });
        }
        Ok(found)
    }

    /// Whether a PMU is at one of the places; at any where there are none.
    pub fn is_at(&self, pmu: &Pmu, places: &[Place]) -> bool {
        let is_below = |bdf: Bdf, port: Bdf| bdf == port || pci::path(&self.root, bdf).contains(&port);
        places.is_empty()
            || places.iter().any(|place| match place {
                Place::Pmus(pattern) => fits(pattern, &pmu.name),
                // An account is the function's own, or of what is above or below it: all of the way.
                Place::Function(bdf) if pmu.by == By::Kernel => {
                    pmu.bdf.is_some_and(|own| is_below(*bdf, own) || is_below(own, *bdf))
                }
                Place::Function(bdf) => pmu.function().is_some_and(|port| is_below(*bdf, port)),
            })
    }

    /// Whether there is something to count for a PMU now: an account may be of a function of which the kernel counts nothing.
    fn counts(&self, pmu: &Pmu) -> bool {
        let Some(own) = pmu.bdf.filter(|_| pmu.by == By::Kernel) else { return true };
        self.sources.keys().any(|bdf| *bdf == own || pci::path(&self.root, *bdf).contains(&own))
    }

    /// The PMUs at these places that the catalogue knows.
    pub(super) fn known(&self, places: &[Place]) -> Vec<(&Pmu, &'static Kind)> {
        let known = self.pmus.iter().filter_map(|(pmu, kind)| Some((pmu, (*kind)?)));
        known.filter(|(pmu, _)| self.is_at(pmu, places)).collect()
    }

    /// Refuses places at which nothing counts.
    ///
    /// # Errors
    /// [`Error::NoPmu`], [`Error::NotCounted`], or [`Error::Machine`] for a function that is not there.
    pub fn check(&self, places: &[Place]) -> Result<(), Error> {
        for place in places {
            match place {
                Place::Pmus(pattern) => drop(self.named(pattern)?),
                Place::Function(bdf) if !self.root.exists(pci::folder(*bdf)) => {
                    return Err(pciescope_hw::Error::NoSuchFunction(*bdf).into());
                }
                Place::Function(bdf) => {
                    let counts = |pmu: &Pmu| self.is_at(pmu, std::slice::from_ref(place)) && self.counts(pmu);
                    if !self.pmus.iter().any(|(pmu, _)| counts(pmu)) {
                        return Err(Error::NotCounted { bdf: *bdf });
                    }
                }
            }
        }
        Ok(())
    }
}

/// The functions below a port.
pub(super) fn below(endpoints: &[(Vec<Bdf>, Below)], port: Bdf) -> impl Iterator<Item = &Below> + Clone {
    endpoints.iter().filter(move |(path, _)| path.contains(&port)).map(|(_, below)| below)
}
