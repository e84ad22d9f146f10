//! Binds a function to the driver that measures, and later restores its exact former state.
//!
//! The former state is on disk before anything is changed ([`State`]). So it can always be restored: by
//! [`Bound::release`], by its drop, and after a `kill -9` by [`restore`] from the file.

pub(crate) mod in_use;
pub(crate) mod state;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use pciescope_core::{Bdf, Function};

use crate::kept::{KeptFile, Owner};
use crate::{Error, Root, pci};
pub use in_use::in_use;
pub use state::{FOLDER, State, state};

const DRIVERS: &str = "/sys/bus/pci/drivers";
const POWER: &str = "power/control";

pciescope_core::named! {
    /// The drivers that a function can be handed to.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Driver {
        /// Our kernel module.
        Pcilat => "pcilat",
        /// The kernel's VFIO driver.
        VfioPci => "vfio-pci",
    }
    /// The driver's name in sysfs.
    fn name
}

impl Driver {
    /// Whether the driver is loaded, or built into the kernel.
    pub fn is_loaded(self, root: &Root) -> bool {
        root.exists(Path::new(DRIVERS).join(self.name()))
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Driver {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let driver = Driver::ALL.into_iter().find(|driver| driver.name() == text);
        driver.ok_or_else(|| format!("{text:?} is not pcilat or vfio-pci"))
    }
}

/// Writes values to the kernel's files; tests have a simulated kernel instead.
trait Hand: Send + Sync {
    /// Writes to a file below an absolute path such as `/sys/bus/pci/drivers/pcilat/bind`.
    fn write(&self, absolute: &Path, value: &str) -> Result<(), Error>;
}

impl Hand for Root {
    fn write(&self, absolute: &Path, value: &str) -> Result<(), Error> {
        let path = self.path(absolute);
        let write = || {
            let mut file = std::fs::OpenOptions::new().write(true).truncate(true).open(&path)?;
            io::Write::write_all(&mut file, value.as_bytes())
        };
        write().map_err(|source| Error::Write { path: path.clone(), value: value.trim_end().to_owned(), source })
    }
}

/// How a function was given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The function.
    pub bdf: Bdf,
    /// The driver it has now.
    pub driver: Option<String>,
    /// What could not be restored, and why that is not a failure, each as a sentence; empty if everything is as before.
    pub notes: Vec<String>,
}

/// A function that is in our hands: it goes back when this is dropped.
pub struct Bound {
    root: Root,
    hand: Arc<dyn Hand>,
    state: State,
    file: Option<KeptFile>,
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").field("state", &self.state).finish_non_exhaustive()
    }
}

/// Hands a function to a driver.
///
/// # Errors
/// [`Error::Refused`] with the reason when that would harm (`in_use_too` overrides what is in use, nothing else),
/// [`Error::NoDriver`], [`Error::BoundAlready`], [`Error::Held`] by another process, or what the kernel answered;
/// then everything is as it was.
pub fn take(root: &Root, bdf: Bdf, driver: Driver, in_use_too: bool) -> Result<Bound, Error> {
    take_by(root, Arc::new(root.clone()), bdf, driver, in_use_too)
}

/// Like [`take`], but `None` where the function is with that driver already: then there is nothing to give back.
///
/// # Errors
/// As for [`take`].
pub fn ensure(root: &Root, bdf: Bdf, driver: Driver, in_use_too: bool) -> Result<Option<Bound>, Error> {
    if pci::function(root, bdf)?.driver.as_deref() == Some(driver.name()) {
        return Ok(None);
    }
    take(root, bdf, driver, in_use_too).map(Some)
}

fn take_by(root: &Root, hand: Arc<dyn Hand>, bdf: Bdf, driver: Driver, in_use_too: bool) -> Result<Bound, Error> {
    let function = pci::function(root, bdf)?;
    refuse(root, &function, bdf, driver, in_use_too)?;
    let file = state::open(root, bdf, true)?;
    if let Some(state) = file.text().and_then(state::parse).filter(|state| is_handed_over(root, &function, state)) {
        return Err(Error::BoundAlready(bdf, state.driver));
    }
    let state = State {
        owner: Owner::now(root, bdf)?,
        driver: driver.name().to_owned(),
        former_driver: function.driver,
        former_override: driver_override(root, bdf),
        former_power: power_control(root, bdf),
    };
    file.clear()?;
    file.line(&state)?;
    // From here on the drop of `bound` puts everything back.
    let bound = Bound { root: root.clone(), hand, state, file: Some(file) };
    bound.hand_over()?;
    Ok(bound)
}

/// Whether the function is still as its state says. One that was removed and came back is not: the kernel made it anew,
/// without an override.
fn is_handed_over(root: &Root, function: &Function, state: &State) -> bool {
    let is_its = |driver: Option<&str>| driver == Some(state.driver.as_str());
    (function.vendor, function.device) == (state.owner.vendor, state.owner.device)
        && (is_its(function.driver.as_deref()) || is_its(driver_override(root, state.owner.bdf).as_deref()))
}

/// Reasons not to hand the function over.
fn refuse(root: &Root, function: &Function, bdf: Bdf, driver: Driver, in_use_too: bool) -> Result<(), Error> {
    let refused = |why: String, hint: Option<&str>| {
        Err(Error::Refused { bdf, driver: driver.name(), why, hint: hint.map(str::to_owned) })
    };
    if function.class >> 16 == 0x06 {
        return refused(
            format!("it is a bridge (class {:06x}), and all that lies behind it would be lost", function.class),
            Some("`pciescope latency path` measures bridges without taking them"),
        );
    }
    if state(root, bdf).is_none() && function.driver.as_deref() == Some(driver.name()) {
        return refused("it has that driver already".to_owned(), None);
    }
    let reasons = in_use(root, function);
    if !in_use_too && !reasons.is_empty() {
        let mut first: Vec<&str> = reasons.iter().filter_map(|each| each.first.as_deref()).collect();
        first.dedup();
        let hint = if first.is_empty() { "stop that first".to_owned() } else { first.join("; ") };
        return refused(in_use::in_words(&reasons), Some(&hint));
    }
    if !driver.is_loaded(root) {
        return Err(Error::NoDriver(bdf, driver.name()));
    }
    if driver == Driver::VfioPci {
        let Some(group) = function.iommu_group else {
            // The kernel answers when vfio-pci probes.
            return if pci::is_grouped_by_probe(root) { Ok(()) } else { Err(no_group(bdf)) };
        };
        let others = group_mates(root, bdf, group);
        if !others.is_empty() {
            return refused(
                format!("IOMMU group {group} also holds {}, and VFIO takes whole groups only", others.join(", ")),
                Some("unbind those functions too, or use the module pcilat"),
            );
        }
    }
    Ok(())
}

fn no_group(bdf: Bdf) -> Error {
    Error::Refused {
        bdf,
        driver: Driver::VfioPci.name(),
        why: "it is in no IOMMU group, so VFIO cannot open it".to_owned(),
        hint: Some(
            "switch the IOMMU on in the firmware (x86-64: boot with intel_iommu=on or amd_iommu=on), or use the module pcilat"
                .to_owned(),
        ),
    }
}

/// The other functions of an IOMMU group whose drivers keep VFIO from it.
pub(crate) fn group_mates(root: &Root, bdf: Bdf, group: u32) -> Vec<String> {
    let members = root.names(format!("/sys/kernel/iommu_groups/{group}/devices"));
    let keeps = |name: String| {
        let mate: Bdf = name.parse().ok().filter(|mate| *mate != bdf)?;
        let function = pci::function(root, mate).ok().filter(|function| !pci::is_bridge(function.class))?;
        // The drivers with which the kernel shares a group (vfio.c, "driver_managed_dma").
        let driver = function.driver.filter(|driver| driver != "vfio-pci" && driver != "pci-stub")?;
        Some(format!("{mate} (driver {driver})"))
    };
    members.into_iter().filter_map(keeps).collect()
}

/// The function's `driver_override`; the kernel shows an empty one as `(null)`.
fn driver_override(root: &Root, bdf: Bdf) -> Option<String> {
    root.text(pci::folder(bdf).join("driver_override")).filter(|text| text != "(null)")
}

/// Whether the function may be suspended at runtime: `auto` or `on`.
fn power_control(root: &Root, bdf: Bdf) -> Option<String> {
    root.text(pci::folder(bdf).join(POWER))
}

fn driver_file(driver: &str, file: &str) -> PathBuf {
    Path::new(DRIVERS).join(driver).join(file)
}

impl Bound {
    /// The state to restore.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Leaves the function with its new driver when the program ends; [`restore`] gives it back later.
    pub fn keep(mut self) {
        self.file = None;
    }

    /// Gives the function back.
    ///
    /// # Errors
    /// What the kernel answered. Then the state file stays, and [`restore`] can try again.
    pub fn release(mut self) -> Result<Restored, Error> {
        match self.file.take() {
            Some(file) => put_back(&self.root, self.hand.as_ref(), &self.state, file),
            None => Err(Error::NotBound(self.state.owner.bdf)),
        }
    }

    fn hand_over(&self) -> Result<(), Error> {
        let bdf = self.state.owner.bdf;
        let address = bdf.to_string();
        let at = pci::folder(bdf);
        self.hand.write(&at.join("driver_override"), &self.state.driver)?;
        if self.state.former_driver.is_some() {
            self.hand.write(&at.join("driver/unbind"), &address)?;
        }
        if let Err(error) = self.hand.write(&driver_file(&self.state.driver, "bind"), &address) {
            let has_group = self.root.exists(at.join("iommu_group"));
            return Err(if has_group || self.state.driver != Driver::VfioPci.name() { error } else { no_group(bdf) });
        }
        match pci::driver(&self.root, bdf) {
            Some(driver) if driver == self.state.driver => Ok(()),
            other => Err(Error::NotTaken { bdf, driver: self.state.driver.clone(), now: other }),
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        if let Err(error) = put_back(&self.root, self.hand.as_ref(), &self.state, file) {
            // A drop cannot return an error, and a machine that is not restored must not go unnoticed.
            eprintln!("pciescope: {error}; `pciescope unbind --restore {}` tries again", self.state.owner.bdf);
        }
    }
}

/// Restores a function that an earlier run bound and kept, or did not restore because it was killed.
///
/// # Errors
/// [`Error::NotBound`] if there is no state of it, [`Error::Held`] while another process works with it, or what the
/// kernel answered; then the state file stays.
pub fn restore(root: &Root, bdf: Bdf) -> Result<Restored, Error> {
    restore_by(root, root, bdf)
}

fn restore_by(root: &Root, hand: &dyn Hand, bdf: Bdf) -> Result<Restored, Error> {
    let file = state::open(root, bdf, false)?;
    match file.text().and_then(state::parse) {
        Some(state) => put_back(root, hand, &state, file),
        None => {
            file.delete()?;
            let note = "its state file was not complete, so nothing had been changed".to_owned();
            Ok(Restored { bdf, driver: pci::driver(root, bdf), notes: vec![note] })
        }
    }
}

/// Calls [`restore`] for every function that has a state file. A failure does not prevent the restoration of the
/// others.
///
/// # Errors
/// [`Error::Read`] if the folder of state files may not be read.
pub fn restore_all(root: &Root) -> Result<Vec<Result<Restored, Error>>, Error> {
    Ok(state::bound(root)?.into_iter().map(|bdf| restore(root, bdf)).collect())
}

/// The functions that are handed over at present, by address.
///
/// # Errors
/// As for [`restore_all`].
pub fn states(root: &Root) -> Result<Vec<State>, Error> {
    Ok(state::bound(root)?.into_iter().filter_map(|bdf| state(root, bdf)).collect())
}

fn put_back(root: &Root, hand: &dyn Hand, state: &State, file: KeptFile) -> Result<Restored, Error> {
    let bdf = state.owner.bdf;
    let done = |file: KeptFile, notes: Vec<String>| {
        file.delete()?;
        Ok(Restored { bdf, driver: pci::driver(root, bdf), notes })
    };
    if let Some(why) = state.owner.replaced(root) {
        return done(file, vec![why]);
    }
    match undo(root, hand, state).and_then(|notes| undo_power(root, hand, state).map(|()| notes)) {
        Ok(notes) => done(file, notes),
        Err(_) if !root.exists(pci::folder(bdf)) => done(file, vec!["it was removed meanwhile".to_owned()]),
        Err(error) => Err(error),
    }
}

/// Puts `power/control` back: a driver may change it when it is bound and when it goes, as vfio-pci does. A driver that
/// somebody else has bound meanwhile keeps its own.
fn undo_power(root: &Root, hand: &dyn Hand, state: &State) -> Result<(), Error> {
    let (Some(former), Some(now)) = (&state.former_power, power_control(root, state.owner.bdf)) else { return Ok(()) };
    let driver = pci::driver(root, state.owner.bdf);
    if *former == now || (driver.is_some() && driver != state.former_driver) {
        return Ok(());
    }
    hand.write(&pci::folder(state.owner.bdf).join(POWER), former)
}

/// Puts `driver_override` and the driver back; the answer says what could not be.
fn undo(root: &Root, hand: &dyn Hand, state: &State) -> Result<Vec<String>, Error> {
    let address = state.owner.bdf.to_string();
    let at = pci::folder(state.owner.bdf);
    // A single new line empties the file; an empty write would not reach the kernel.
    let former_override = state.former_override.as_deref().unwrap_or("\n");
    hand.write(&at.join("driver_override"), former_override)?;
    let now = pci::driver(root, state.owner.bdf);
    if now == state.former_driver {
        return Ok(Vec::new());
    }
    match &now {
        Some(driver) if *driver == state.driver => hand.write(&at.join("driver/unbind"), &address)?,
        Some(other) => return Ok(vec![format!("somebody has given it to the driver {other} meanwhile; left there")]),
        None => {}
    }
    let Some(former) = &state.former_driver else { return Ok(Vec::new()) };
    if !root.exists(Path::new(DRIVERS).join(former)) {
        hand.write(Path::new("/sys/bus/pci/drivers_probe"), &address)?;
        return Ok(vec![format!("its former driver {former} is not loaded any more")]);
    }
    give(root, hand, state.owner.bdf, former, former_override).map(|()| Vec::new())
}

/// Gives a function without a driver back to the one it had.
fn give(root: &Root, hand: &dyn Hand, bdf: Bdf, former: &str, former_override: &str) -> Result<(), Error> {
    let at = pci::folder(bdf);
    // The former driver may have come by an override that was taken back since (pci-stub, vfio-pci): its table of ids
    // alone would not take the function then.
    hand.write(&at.join("driver_override"), former)?;
    let taken = hand.write(&driver_file(former, "bind"), &bdf.to_string());
    hand.write(&at.join("driver_override"), former_override)?;
    taken?;
    match pci::driver(root, bdf) {
        Some(driver) if driver == *former => Ok(()),
        now => Err(Error::NotTaken { bdf, driver: former.to_owned(), now }),
    }
}

/// Takes a function from its driver, where that is proven to need it no more, or gives it back.
///
/// # Errors
/// [`Error::Write`] with what it is in use for, or with what the kernel answered.
pub(crate) fn set_driver(root: &Root, bdf: Bdf, driver: Option<&str>) -> Result<(), Error> {
    let link = pci::folder(bdf).join("driver");
    let path = root.path(&link);
    let reasons = if driver.is_none() { in_use(root, &pci::function(root, bdf)?) } else { Vec::new() };
    if !reasons.is_empty() {
        return Err(Error::write(&path, "none", io::Error::other(in_use::in_words(&reasons))));
    }
    if !root.is_live() {
        // In a tree of files nobody does what is written.
        let done = match driver {
            None => std::fs::remove_file(&path),
            Some(driver) => std::os::unix::fs::symlink(Path::new("../../drivers").join(driver), &path),
        };
        return done.map_err(|source| Error::write(&path, driver.unwrap_or("none"), source));
    }
    match driver {
        None => root.write(&link.join("unbind"), &bdf.to_string()),
        Some(driver) => give(root, root, bdf, driver, driver_override(root, bdf).as_deref().unwrap_or("\n")),
    }
}

#[cfg(test)]
mod tests;
