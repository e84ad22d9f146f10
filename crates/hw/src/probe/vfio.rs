//! VFIO: BARs mapped into this process and interrupts as event counters, with Secure Boot and without our module.

mod device;
mod irq;

use std::io;
use std::sync::Arc;

use pciescope_core::record::Failure;
use pciescope_core::{Bdf, Function, IrqPlan, MmioPlan};
use vfio_bindings::bindings::vfio;

pub use self::device::{Device, Region, group_of};
use super::register::{self, Window};
use super::sys::{self, EventFd};
use super::trigger::{Kind, Trigger};
use super::{Portion, Probe, Taken, Watch, failure};
use crate::{Error, Root};

/// A function that vfio-pci holds.
#[derive(Debug)]
pub struct Vfio {
    bdf: Bdf,
    root: Root,
    // Dropped before the device: these are mappings of it.
    windows: Vec<(u8, Arc<Window>)>,
    device: Device,
    /// Raised by the kernel when it wants the device back.
    request: Option<EventFd>,
    ids: (u16, u16),
    emulated: bool,
}

impl Vfio {
    /// Opens a function that is bound to vfio-pci.
    ///
    /// # Errors
    /// [`Error::Unsupported`] and [`Error::Call`], each with its reason.
    pub fn open(root: &Root, function: &Function, bdf: Bdf) -> Result<Self, Error> {
        let device = Device::open(root, bdf)?;
        // Without this interrupt an unplug would wait for the end of the run. VFIO before Linux 4.0 does not have it.
        let request = EventFd::new()
            .ok()
            .filter(|event| device.enable_interrupts(vfio::VFIO_PCI_REQ_IRQ_INDEX, &[event]).is_ok());
        Ok(Vfio {
            bdf,
            root: root.clone(),
            windows: Vec::new(),
            device,
            request,
            ids: (function.vendor, function.device),
            emulated: function.emulated.is_some(),
        })
    }

    fn check(&self, bar: u8, offset: u64, width: u8) -> Result<Region, Error> {
        let region = self.device.bar(bar);
        if region.len == 0 {
            let why = "the device has no such BAR".to_owned();
            return Err(Error::Plan { bdf: self.bdf, field: "BAR", value: bar.to_string(), why });
        }
        register::check(self.bdf, bar, offset, width, region.len)?;
        Ok(region)
    }

    fn call(&self, what: impl Into<String>, source: io::Error) -> Error {
        Error::Call { bdf: self.bdf, backend: "vfio", what: what.into(), source, hint: None }
    }

    /// The mapped page that holds a place.
    fn window(&mut self, bar: u8, offset: u64, width: u8) -> Result<Arc<Window>, Error> {
        let region = self.check(bar, offset, width)?;
        if let Some((_, window)) = self.windows.iter().find(|(b, window)| *b == bar && window.holds(offset, width)) {
            return Ok(Arc::clone(window));
        }
        let page = sys::page_bytes();
        let from = offset / page * page;
        let is_inside =
            |(start, len): &&(u64, u64)| *start <= from && from + page <= (*start + *len).next_multiple_of(page);
        if region.mappable.iter().find(is_inside).is_none() {
            return Err(Error::Unsupported {
                bdf: self.bdf,
                backend: "vfio",
                what: "map this place",
                why: format!(
                    "BAR{bar}:{offset:#x} lies in a part that VFIO does not let out (I/O ports, a BAR below a page, or \
                     the MSI-X table)"
                ),
            });
        }
        let mapped = self.device.map(bar, from, page as usize);
        let mapping = mapped.map_err(|source| self.call(format!("map BAR{bar}:{from:#x}"), source))?;
        let window = Arc::new(Window::new(mapping, from));
        self.windows.push((bar, Arc::clone(&window)));
        Ok(window)
    }

    /// Why the device cannot be measured any more; `None` while it can.
    fn gone(&self) -> Option<Failure> {
        if self.request.as_ref().is_some_and(|request| request.take().is_ok_and(|count| count > 0)) {
            return Some(failure::unbound(self.bdf));
        }
        (!self.device.is_present()).then(|| failure::removed(self.bdf))
    }

    /// The kinds of interrupts that VFIO offers, the best first.
    fn interrupts(&self) -> Option<(Kind, u32, u32)> {
        [
            (Kind::Msix, vfio::VFIO_PCI_MSIX_IRQ_INDEX),
            (Kind::Msi, vfio::VFIO_PCI_MSI_IRQ_INDEX),
            (Kind::Intx, vfio::VFIO_PCI_INTX_IRQ_INDEX),
        ]
        .into_iter()
        .map(|(kind, index)| (kind, index, self.device.interrupts(index)))
        .find(|(_, _, count)| *count > 0)
    }

    fn trigger(&self) -> Option<Trigger> {
        Trigger::of(self.ids.0, self.ids.1)
    }
}

impl Drop for Vfio {
    fn drop(&mut self) {
        self.windows.clear();
        self.device.disable_interrupts(vfio::VFIO_PCI_REQ_IRQ_INDEX);
    }
}

impl Probe for Vfio {
    fn backend(&self) -> &'static str {
        "vfio"
    }

    fn bdf(&self) -> Bdf {
        self.bdf
    }

    fn mmio(&mut self, plan: &MmioPlan, portion: &Portion, watch: &dyn Watch) -> Result<Taken, Error> {
        let window = self.window(plan.bar, plan.offset, plan.width)?;
        let this = &*self;
        window.measure(("vfio", this.emulated), plan, portion, &|| this.gone(), watch)
    }

    fn irq(&mut self, plan: &IrqPlan, cpu: u32, watch: &dyn Watch) -> Result<Taken, Error> {
        irq::measure(self, plan, cpu, watch)
    }

    fn read(&mut self, bar: u8, offset: u64, width: u8) -> Result<u64, Error> {
        match self.window(bar, offset, width) {
            Ok(window) => Ok(window.read(offset, width)),
            Err(Error::Unsupported { .. }) => self
                .device
                .read(bar, offset, width)
                .map_err(|source| self.call(format!("read {width} bytes at BAR{bar}:{offset:#x}"), source)),
            Err(error) => Err(error),
        }
    }

    fn write(&mut self, bar: u8, offset: u64, width: u8, value: u64) -> Result<(), Error> {
        match self.window(bar, offset, width) {
            Ok(window) => {
                window.write(offset, width, value);
                Ok(())
            }
            Err(Error::Unsupported { .. }) => self
                .device
                .write(bar, offset, width, value)
                .map_err(|source| self.call(format!("write {width} bytes at BAR{bar}:{offset:#x}"), source)),
            Err(error) => Err(error),
        }
    }
}
