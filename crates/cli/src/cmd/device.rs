//! The device of a verb: the function, the machine around it, its driver, and the backend that reaches it.

use pciescope_bench::Setup;
use pciescope_core::plan::Plan;
use pciescope_core::{Bdf, CpuList, Environment, Function, Identity, Warning};
use pciescope_hw::bind::{self, Bound, Driver};
use pciescope_hw::probe::fake::Machine as FakeMachine;
use pciescope_hw::probe::open::{Backend, Need, Opened, open};
use pciescope_hw::{check, environment, pci, topology};

use super::{Ctx, Refusal};

/// How to reach a device.
#[derive(Debug, clap::Args)]
pub struct AccessArgs {
    /// How to reach the device: auto, kmod, vfio, resource, sysfs or fake[:OPTION,...]
    #[arg(long, value_name = "BACKEND", default_value = "auto", value_parser = backend)]
    pub backend: Backend,

    /// Hand the function to the backend's driver for this run and give it back afterwards
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

/// The function and the machine it is in, real or synthetic.
pub struct Device {
    /// The function to measure.
    pub function: Function,
    /// Its address.
    pub bdf: Bdf,
    environment: Environment,
    warnings: Vec<Warning>,
    /// Run and time of the records of a synthetic machine.
    fixed: Option<(String, String)>,
}

impl Device {
    /// Looks at the function and its machine.
    ///
    /// # Errors
    /// No address, or no such function.
    pub fn find(ctx: &Ctx, bdf: Option<Bdf>, args: &AccessArgs) -> anyhow::Result<Device> {
        if let Backend::Fake(options) = &args.backend {
            let fake = FakeMachine::new(options.clone());
            if let Some(bdf) = bdf.filter(|&bdf| bdf != fake.bdf()) {
                return Err(Refusal::new(
                    format!("{bdf}: the fake backend has no such function"),
                    format!("its device is {}; the address may be left out", fake.bdf()),
                )
                .into());
            }
            return Ok(Device {
                function: fake.function(),
                bdf: fake.bdf(),
                environment: fake.environment(),
                warnings: Vec::new(),
                fixed: Some((fake.run(), fake.time())),
            });
        }
        let bdf = bdf.ok_or_else(|| {
            Refusal::new(
                "no device was named",
                "give its address, which `pciescope list` shows, for example 0000:3b:00.0",
            )
        })?;
        let function = pci::function(&ctx.root, bdf)?;
        let environment = environment::read(&ctx.root);
        let warnings = check::warnings(&ctx.root, &environment, Some(&function));
        Ok(Device { function, bdf, environment, warnings, fixed: None })
    }

    /// The CPUs that `choice` means.
    ///
    /// # Errors
    /// CPUs that are not online, nodes that do not exist or are not known.
    pub fn cpus(&self, choice: &CpuChoice) -> anyhow::Result<CpuList> {
        let online: CpuList = self.environment.cpus.iter().map(|cpu| cpu.cpu).collect();
        let nodes = topology::nodes(&self.environment.cpus);
        let of_node = |node: u32| nodes.iter().find(|(number, _)| *number == node).map(|(_, cpus)| cpus.clone());
        match choice {
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
            CpuChoice::Local => self.function.node.and_then(of_node).ok_or_else(|| {
                let text = format!("{}: the machine does not say which CPUs are near it", self.bdf);
                Refusal::new(text, "give the CPUs as a list, or --cpus node:N").into()
            }),
        }
    }

    /// Hands the function to the driver that the backend needs, if the user asked for that.
    ///
    /// # Errors
    /// Why it should stay with its driver, or what the kernel answered.
    pub fn take(&mut self, ctx: &Ctx, args: &AccessArgs, need: Need) -> anyhow::Result<Option<Bound>> {
        let Some(driver) = self.driver_for(ctx, args, need) else { return Ok(None) };
        let bound = match bind::ensure(&ctx.root, self.bdf, driver, false) {
            Err(pciescope_hw::Error::NoDriver { driver: "pcilat", .. }) if self.is_locked_down() => {
                return Err(Refusal::new(
                    format!("{}: pcilat is not loaded, and a kernel under lockdown loads it only signed", self.bdf),
                    "sign the module, or measure without it: --backend vfio --bind",
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

    /// The driver to hand the function to; `None` if the user did not ask for it or the backend needs none.
    fn driver_for(&self, ctx: &Ctx, args: &AccessArgs, need: Need) -> Option<Driver> {
        let is_loaded = |driver: Driver| driver.is_loaded(&ctx.root);
        match args.backend {
            _ if !args.bind => None,
            Backend::Kmod => Some(Driver::Pcilat),
            Backend::Vfio => Some(Driver::VfioPci),
            Backend::Auto if is_loaded(Driver::Pcilat) => Some(Driver::Pcilat),
            // VFIO has no timed configuration reads; sysfs has, whatever the driver.
            Backend::Auto if need == Need::Path => None,
            Backend::Auto if is_loaded(Driver::VfioPci) || self.is_locked_down() => Some(Driver::VfioPci),
            Backend::Auto => Some(Driver::Pcilat),
            Backend::Resource | Backend::Sysfs | Backend::Fake(_) => None,
        }
    }

    fn is_locked_down(&self) -> bool {
        self.environment.lockdown.as_deref().is_some_and(|lockdown| lockdown != "none")
    }

    /// Opens a backend and says which if the program chose.
    ///
    /// # Errors
    /// Why none can do what is needed.
    pub fn open(&self, ctx: &Ctx, args: &AccessArgs, need: Need) -> anyhow::Result<Opened> {
        let opened = open(&ctx.root, &self.function, &args.backend, need)?;
        if args.backend == Backend::Auto || ctx.verbose > 0 {
            ctx.note(&format!("{}: by {}: {}", self.bdf, opened.probe.backend(), opened.why));
        }
        if ctx.verbose > 0 {
            for (backend, why) in &opened.refused {
                ctx.note(&format!("{}: not by {backend}: {why}", self.bdf));
            }
        }
        Ok(opened)
    }

    /// What the run is about.
    pub fn setup(&self, verb: &str, label: Option<String>, plan: Plan) -> Setup {
        let mut identity = Identity::new(verb, label);
        if let Some((run, time)) = &self.fixed {
            identity = Identity { run: run.clone(), time: Some(time.clone()), ..identity };
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
