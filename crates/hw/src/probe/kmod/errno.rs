//! What the error numbers of the module mean.

use std::io;

use pciescope_core::record::Failure;

use super::super::failure;
use super::Kmod;
use super::uapi::*;
use crate::Error;

impl Kmod {
    /// What the errno of a run means. `Err` where nothing can have been measured.
    pub(super) fn failure(&self, request: &Run, error: io::Error, status: Option<&Status>) -> Result<Failure, Error> {
        let cpu = status.and_then(|s| u32::try_from(s.error_cpu).ok());
        Ok(match error.raw_os_error() {
            Some(libc::EINTR) => failure::interrupted(self.bdf, status.map_or(0, |s| s.done)),
            // The module looks for the device's ID when a read gives all-ones.
            Some(libc::EIO) if status.is_some_and(|s| s.present == 0) => failure::removed(self.bdf),
            Some(libc::EIO) => {
                let offset = status.map_or(request.offset, |s| s.error_offset);
                let place = match request.kind {
                    PCILAT_KIND_CONFIG => format!("configuration offset {offset:#x}"),
                    _ => format!("BAR{}:{offset:#x}", request.bar),
                };
                failure::all_ones(self.bdf, &place, cpu)
            }
            Some(libc::ENODEV) if status.is_some_and(|s| s.present != 0) => failure::unbound(self.bdf),
            Some(libc::ENODEV) => failure::removed(self.bdf),
            Some(libc::ECANCELED) => failure::reset(self.bdf),
            Some(libc::ENXIO) => failure::cpu_offline(self.bdf, cpu),
            Some(libc::ETIMEDOUT) => failure::timeout(self.bdf, request.timeout_ns),
            Some(libc::ERANGE) => {
                let len = self.info.bars.get(request.bar as usize).map_or(0, |bar| bar.size);
                let (bar, offset) = (request.bar as u8, request.offset);
                return Err(Error::OutsideBar { bdf: self.bdf, bar, offset, len });
            }
            Some(libc::EACCES) => {
                let is_write = request.kind != PCILAT_KIND_READ;
                let access = self.access(request.bar as u8, request.offset, request.width as u8, is_write);
                return Err(access.msix_refusal());
            }
            _ => return Err(self.call("measure", error)),
        })
    }

    /// Why a vector could not be measured on a CPU; `None` where it was.
    pub(super) fn slot_failure(&self, slot: &Slot, timeout_ns: u64) -> Option<Failure> {
        match -slot.error {
            0 => None,
            libc::ETIMEDOUT => Some(failure::timeout(self.bdf, timeout_ns)),
            libc::EINVAL => Some(failure::refused(
                self.bdf,
                &format!("interrupt {} of vector {} cannot be moved to CPU {}", slot.irq, slot.index, slot.cpu),
                "kernel-managed vectors and interrupts of some controllers stay where they are",
            )),
            libc::ENXIO => Some(failure::cpu_offline(self.bdf, Some(slot.cpu))),
            other => Some(failure::refused(
                self.bdf,
                &format!("vector {} on CPU {}: {}", slot.index, slot.cpu, io::Error::from_raw_os_error(other)),
                "",
            )),
        }
    }
}
