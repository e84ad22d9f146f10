//! VFIO: BARs mapped into this process and interrupts as event counters, with Secure Boot and without our module.

mod device;
mod irq;

use std::fs::File;
use std::io;
use std::sync::Arc;

use pciescope_core::record::Failure;
use pciescope_core::{Bdf, Function, IrqPlan, MmioPlan, MmioTest};
use vfio_bindings::bindings::vfio;

pub use self::device::{Device, Region, group_of};
use super::register::{self, Access, Window};
use super::sys::{self, EventFd};
use super::trigger::{Kind, Trigger};
use super::{Probe, Sampled, Slice, Watch, failure, sysfs};
use crate::config::Config;
use crate::{Error, Root};

/// A function that vfio-pci holds.
#[derive(Debug)]
pub struct Vfio {
    bdf: Bdf,
    root: Root,
    // Dropped before the device: these are mappings of it.
    windows: Vec<(u8, Arc<Window>)>,
    device: Device,
    /// What configuration space said when the function was opened.
    said: Config,
    /// Raised by the kernel when it wants the device back.
    request: Option<EventFd>,
    ids: (u16, u16),
    emulated: bool,
    /// Configuration space of the port above.
    above: Option<File>,
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
        let said = device.said().map_err(|error| Error::call(bdf, "vfio", "read configuration space", error, None))?;
        Ok(Vfio {
            bdf,
            root: root.clone(),
            windows: Vec::new(),
            device,
            said,
            request,
            ids: (function.vendor, function.device),
            emulated: function.emulated.is_some(),
            above: sysfs::above(root, function),
        })
    }

    fn check(&self, bar: u8, offset: u64, width: u8, is_write: bool) -> Result<Region, Error> {
        let region = self.device.bar(bar);
        if region.len == 0 {
            let why = "the device has no such BAR".to_owned();
            return Err(Error::Plan { bdf: self.bdf, field: "BAR", value: bar.to_string(), why });
        }
        register::check(self.bdf, bar, offset, width, region.len)?;
        // The kernel lets out the page with the table too, since Linux 4.16.
        Access { backend: "vfio", bdf: self.bdf, bar, offset, width, is_write }.check_msix(&self.said)?;
        Ok(region)
    }

    fn call(&self, what: impl Into<String>, source: io::Error) -> Error {
        Error::call(self.bdf, "vfio", what, source, None)
    }

    /// The mapped page that holds a place, for an access that is permitted there.
    fn window(&mut self, bar: u8, offset: u64, width: u8, is_write: bool) -> Result<Arc<Window>, Error> {
        let region = self.check(bar, offset, width, is_write)?;
        if let Some((_, window)) = self.windows.iter().find(|(b, window)| *b == bar && window.holds(offset, width)) {
            return Ok(Arc::clone(window));
        }
        let page = sys::page_bytes();
        let from = offset / page * page;
        let is_inside =
            |(start, len): &&(u64, u64)| *start <= from && from + page <= (*start + *len).next_multiple_of(page);
        if region.mappable.iter().find(is_inside).is_none() {
            let why = format!(
                "BAR{bar}:{offset:#x} lies in a part that VFIO does not let out (I/O ports, a BAR below a page, or the \
                 MSI-X table)"
            );
            return Err(Error::unsupported(self.bdf, "vfio", "map this place", why));
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

    fn mmio(&mut self, plan: &MmioPlan, slice: &Slice, watch: &dyn Watch) -> Result<Sampled, Error> {
        let window = self.window(plan.bar, plan.offset, plan.width, plan.test != MmioTest::Read)?;
        let this = &*self;
        window.measure(("vfio", this.emulated), plan, slice, this.above.as_ref(), &|| this.gone(), watch)
    }

    fn irq(&mut self, plan: &IrqPlan, slice: &Slice, watch: &dyn Watch) -> Result<Sampled, Error> {
        irq::measure(self, plan, slice, watch)
    }

    fn read(&mut self, bar: u8, offset: u64, width: u8) -> Result<u64, Error> {
        match self.window(bar, offset, width, false) {
            Ok(window) => Ok(window.read(offset, width)),
            Err(Error::Unsupported { .. }) => {
                let read = self.device.read(bar, offset, width);
                read.map_err(|error| self.call(format!("read {width} bytes at BAR{bar}:{offset:#x}"), error))
            }
            Err(error) => Err(error),
        }
    }

    fn write(&mut self, bar: u8, offset: u64, width: u8, value: u64) -> Result<(), Error> {
        match self.window(bar, offset, width, true) {
            Ok(window) => window.write(offset, width, value),
            Err(Error::Unsupported { .. }) => {
                let written = self.device.write(bar, offset, width, value);
                let what = || format!("write {width} bytes at BAR{bar}:{offset:#x}");
                written.map_err(|error| self.call(what(), error))?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn the_msix_table_is_left_alone() {
        // MSI-X at 0x40 with 16 vectors, the table at BAR4:0, the pending bits at BAR4:0x800.
        let mut config = vec![0; 256];
        (config[0x06], config[0x34]) = (0x10, 0x40);
        config[0x40..0x4c].copy_from_slice(&[0x11, 0, 15, 0, 4, 0, 0, 0, 4, 8, 0, 0]);
        let mut vfio = Vfio {
            bdf: "0000:01:00.0".parse().unwrap(),
            root: Root::at("/nowhere"),
            windows: Vec::new(),
            device: Device::of_config(0x5c0e_1234, 0).with_bar(4, 0x1000),
            said: Config::parse(&config),
            request: None,
            ids: (0x1234, 0x5c0e),
            emulated: true,
            above: None,
        };
        let told = |error: Error| error.source().map(ToString::to_string).unwrap_or_default();
        assert_eq!(vfio.read(4, 0, 4).unwrap(), 0x5c0e_1234);
        assert!(told(vfio.read(4, 0, 2).unwrap_err()).contains("MSI-X"));
        assert!(told(vfio.write(4, 0, 4, 1).unwrap_err()).contains("MSI-X"));
        assert!(told(vfio.window(4, 0x800, 8, true).unwrap_err()).contains("MSI-X"));
        assert_eq!(vfio.read(4, 0, 4).unwrap(), 0x5c0e_1234);
    }
}
