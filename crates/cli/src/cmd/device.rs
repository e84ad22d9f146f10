//! The device of a verb: the function, the machine around it, its driver, and the backend that reaches it.

use pciescope_bench::Setup;
use pciescope_core::plan::Plan;
use pciescope_core::{Bdf, CpuList, Environment, Function, Identity, Warning};
use pciescope_hw::bind::{self, Bound, Driver};
use pciescope_hw::probe::Probe;
use pciescope_hw::probe::fake::Machine as FakeMachine;
use pciescope_hw::probe::open::{Backend, Need, open};
use pciescope_hw::probe::resource::is_locked_down;
use pciescope_hw::{check, environment, pci, placement, topology};

use super::{Ctx, Refusal};
use crate::values::FunctionName;

/// How to reach a device.
#[derive(Debug, clap::Args)]
pub struct AccessArgs {
    /// How to reach the device: auto, kmod, vfio, resource, sysfs or fake[:OPTION,...]
    #[arg(long, value_name = "BACKEND", default_value = "auto", value_parser = backend)]
    pub backend: Backend,

    /// Bind the function to the backend's driver for this run, and restore its former driver afterwards
    #[arg(long)]
    pub bind: bool,
}

/// Parses a backend, with the hint in the refusal.
pub fn backend(text: &str) -> Result<Backend, String> {
    text.parse().map_err(|err: pciescope_hw::Error| match err.hint() {
        Some(hint) => format!("{err}: {hint}"),
        None => err.to_string(),
    })
}

/// `--cpus` as typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CpuChoice {
    /// Every CPU that is online.
    All,
    /// The CPUs of the device's node.
    Local,
    /// The CPUs of a NUMA node.
    Node(u32),
    /// These.
    List(CpuList),
}

impl std::str::FromStr for CpuChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => return Ok(CpuChoice::All),
            "local" => return Ok(CpuChoice::Local),
            _ => {}
        }
        if let Some(node) = text.strip_prefix("node:") {
            return node.parse().map(CpuChoice::Node).map_err(|_| format!("{node:?} is not the number of a node"));
        }
        let list: CpuList = text.parse().map_err(|err: pciescope_core::Error| err.to_string())?;
        if list.is_empty() {
            return Err("it names no CPU".to_owned());
        }
        Ok(CpuChoice::List(list))
    }
}

impl CpuChoice {
    /// The CPUs that it means on a machine; `near` is the function whose node `local` means.
    ///
    /// # Errors
    /// CPUs that are not online, nodes that do not exist or are not known.
    pub fn among(&self, environment: &Environment, near: Option<&Function>) -> anyhow::Result<CpuList> {
        let online: CpuList = environment.cpus.iter().map(|cpu| cpu.cpu).collect();
        let nodes = topology::nodes(&environment.cpus);
        let of_node = |node: u32| nodes.iter().find(|(number, _)| *number == node).map(|(_, cpus)| cpus.clone());
        match self {
            CpuChoice::All => Ok(online),
            CpuChoice::List(list) => {
                let offline = list.minus(&online);
                if !offline.is_empty() {
                    let text = format!("CPU {offline} is not online");
                    return Err(Refusal::new(text, format!("the online CPUs are {online}")).into());
                }
                Ok(list.clone())
            }
            CpuChoice::Node(node) => of_node(*node).ok_or_else(|| {
                let numbers: Vec<String> = nodes.iter().map(|(number, _)| number.to_string()).collect();
                let hint = match numbers.is_empty() {
                    true => "this machine does not describe its nodes; give the CPUs as a list".to_owned(),
                    false => format!("the nodes with online CPUs are {}", numbers.join(", ")),
                };
                Refusal::new(format!("node {node} has no online CPU"), hint).into()
            }),
            CpuChoice::Local => near.and_then(|function| function.node).and_then(of_node).ok_or_else(|| {
                let who = near.and_then(|function| function.bdf).map(|bdf| format!("{bdf}: ")).unwrap_or_default();
                let text = format!("{who}the machine does not say which CPUs are near it");
                Refusal::new(text, "give the CPUs as a list, or --cpus node:N").into()
            }),
        }
    }
}

/// The CPUs among these on which the cpuset of this process lets its threads run. The others are named in a note.
pub fn of_cpuset(ctx: &Ctx, cpus: &CpuList) -> CpuList {
    if !ctx.root.is_live() {
        return cpus.clone();
    }
    // Where the kernel does not say, each CPU's own failure does.
    let allowed = placement::allowed(cpus).unwrap_or_else(|_| cpus.clone());
    let left_out = cpus.minus(&allowed);
    if !left_out.is_empty() {
        ctx.note(&format!("not from CPU {left_out}: the cpuset of this process does not have it"));
    }
    cpus.minus(&left_out)
}

/// A function that can be measured. When this is dropped, the function goes back to the driver that it had.
pub struct Reached {
    // Dropped before `bound`: the module keeps a function that is open.
    /// The probe.
    pub probe: Box<dyn Probe>,
    bound: Option<Bound>,
}

impl Reached {
    /// Closes the probe and restores the function's driver; returns what could not be restored, and why that is not a
    /// failure.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn give_back(self) -> Result<Vec<String>, pciescope_hw::Error> {
        drop(self.probe);
        Ok(self.bound.map(Bound::release).transpose()?.map(|restored| restored.notes).unwrap_or_default())
    }
}

/// What was done with a function, once its driver is restored.
///
/// # Errors
/// What was not done, or why the driver was not restored. Where both failed, the second is a note.
pub fn settle<T>(
    bdf: Bdf,
    done: anyhow::Result<T>,
    restored: Result<Vec<String>, pciescope_hw::Error>,
    note: &mut dyn FnMut(&str),
) -> anyhow::Result<T> {
    match (restored, done) {
        (Ok(texts), done) => {
            texts.iter().for_each(|text| note(&format!("{bdf}: {text}")));
            done
        }
        (Err(err), Ok(_)) => Err(err.into()),
        (Err(err), Err(first)) => {
            let err = anyhow::Error::from(err);
            note(&format!(
                "{bdf}: its driver was not restored: {err:#}; `pciescope unbind --restore {bdf}` tries again"
            ));
            Err(first)
        }
    }
}

/// The function and the machine it is in, real or synthetic.
pub struct Device {
    /// The function to measure.
    pub function: Function,
    /// Its address.
    pub bdf: Bdf,
    environment: Environment,
    warnings: Vec<Warning>,
    /// The synthetic machine, whose records have a run and a time of their own.
    fake: Option<FakeMachine>,
}

impl Device {
    /// Looks at the function and its machine.
    ///
    /// # Errors
    /// No address, or no such function.
    pub fn find(ctx: &Ctx, named: Option<&FunctionName>, args: &AccessArgs) -> anyhow::Result<Device> {
        if let Backend::Fake(options) = &args.backend {
            let fake = FakeMachine::new(options.clone());
            if let Some(FunctionName(name)) = named.filter(|FunctionName(name)| name.parse() != Ok(fake.bdf())) {
                return Err(Refusal::new(
                    format!("{name}: the fake backend has no such function"),
                    format!("its device is {}; the address may be left out", fake.bdf()),
                )
                .into());
            }
            return Ok(Device {
                function: fake.function(),
                bdf: fake.bdf(),
                environment: fake.environment(),
                warnings: Vec::new(),
                fake: Some(fake),
            });
        }
        let named = named.ok_or_else(|| {
            Refusal::new(
                "no device was named",
                "give its address or name, which `pciescope list` shows, for example 0000:3b:00.0 or eth0",
            )
        })?;
        let bdf = ctx.function(named)?;
        let function = pci::function(&ctx.root, bdf)?;
        let environment = environment::read(&ctx.root);
        let warnings = check::warnings(&ctx.root, &environment, Some(&function));
        Ok(Device { function, bdf, environment, warnings, fake: None })
    }

    /// The CPUs that `choice` means.
    ///
    /// # Errors
    /// CPUs that are not online, nodes that do not exist or are not known.
    pub fn cpus(&self, choice: &CpuChoice) -> anyhow::Result<CpuList> {
        choice.among(&self.environment, Some(&self.function))
    }

    /// Opens a backend, and says which if the program chose. If the user asked for that, the function is first handed to
    /// the driver that the backend needs.
    ///
    /// # Errors
    /// Why the function should stay with its driver, what the kernel answered, or why no backend can do what is needed;
    /// then the function is with the driver that it had.
    pub fn reach(&mut self, ctx: &Ctx, args: &AccessArgs, need: Need) -> anyhow::Result<Reached> {
        let driver = match args.backend {
            _ if !args.bind => None,
            Backend::Real(kind) => kind.driver(),
            Backend::Auto => need.driver(&ctx.root),
            Backend::Fake(_) => None,
        };
        let bound = match driver {
            Some(driver) => self.take(ctx, driver)?,
            None => None,
        };
        let opened = open(&ctx.root, &self.function, &args.backend, need)?;
        if args.backend == Backend::Auto || ctx.verbose > 0 {
            ctx.note(&format!("{}: by {}: {}", self.bdf, opened.probe.backend(), opened.why));
        }
        if ctx.verbose > 0 {
            for (backend, why) in &opened.refused {
                ctx.note(&format!("{}: not by {backend}: {why}", self.bdf));
            }
        }
        Ok(Reached { probe: opened.probe, bound })
    }

    /// Hands the function to a driver; `None` where that has it already.
    fn take(&mut self, ctx: &Ctx, driver: Driver) -> anyhow::Result<Option<Bound>> {
        let bound = match bind::ensure(&ctx.root, self.bdf, driver, false) {
            Err(pciescope_hw::Error::NoDriver(_, "pcilat")) if is_locked_down(&ctx.root) => {
                return Err(Refusal::new(
                    format!("{}: pcilat is not loaded, and a kernel under lockdown loads it only signed", self.bdf),
                    "sign the module, or measure without it: --backend vfio --bind",
                )
                .into());
            }
            Err(pciescope_hw::Error::NoDriver(_, "vfio-pci")) if environment::iommus(&ctx.root).is_empty() => {
                return Err(Refusal::new(
                    format!("{}: vfio-pci is not loaded, and no IOMMU is on, which it needs", self.bdf),
                    "switch the IOMMU on in the firmware setup and by intel_iommu=on (AMD needs nothing), boot, then `modprobe vfio-pci`",
                )
                .into());
            }
            other => other?,
        };
        if let Some(bound) = &bound {
            let former = bound.state().former_driver.as_deref().unwrap_or("none");
            ctx.note(&format!("{}: driver {} for this run (was {former})", self.bdf, driver.name()));
            self.function = pci::function(&ctx.root, self.bdf)?;
        }
        Ok(bound)
    }

    /// What the run is about.
    pub fn setup(&self, verb: &str, label: Option<String>, plan: Plan) -> Setup {
        let mut identity = Identity::new(verb, label);
        if let Some(fake) = &self.fake {
            let run = fake.run(&format!("{verb} {:?} {plan:?}", identity.label));
            identity = Identity { run, time: Some(fake.time()), ..identity };
        }
        Setup {
            identity,
            function: self.function.clone(),
            environment: self.environment.clone(),
            warnings: self.warnings.clone(),
            plan,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_of_two_errors_is_lost() {
        let bdf: Bdf = "0000:3b:00.0".parse().unwrap();
        let not_restored = || pciescope_hw::Error::NotBound(bdf);
        let mut notes = Vec::new();
        let mut settle = |done: anyhow::Result<u8>, restored| {
            notes.clear();
            let settled = settle(bdf, done, restored, &mut |note| notes.push(note.to_owned()));
            (settled.map_err(|err| err.to_string()), notes.clone())
        };
        let measured = || Err(anyhow::anyhow!("the disk is full"));
        assert_eq!(settle(Ok(3), Ok(vec!["x".to_owned()])), (Ok(3), vec!["0000:3b:00.0: x".to_owned()]));
        assert_eq!(settle(Ok(3), Err(not_restored())), (Err(not_restored().to_string()), vec![]));
        let (settled, notes) = settle(measured(), Err(not_restored()));
        assert_eq!(settled, Err("the disk is full".to_owned()));
        assert!(notes[0].contains(&not_restored().to_string()), "{notes:?}");
        assert!(notes[0].contains("pciescope unbind --restore 0000:3b:00.0"), "{notes:?}");
        let (settled, notes) = settle(measured(), Ok(vec!["x".to_owned()]));
        assert_eq!((settled, notes), (Err("the disk is full".to_owned()), vec!["0000:3b:00.0: x".to_owned()]));
    }
}
