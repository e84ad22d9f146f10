//! The eventfds on which interrupts leave the device.

use std::fs::File;
use std::io::Write;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_ACTION_MASK, VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_ACTION_UNMASK, VFIO_IRQ_SET_DATA_EVENTFD,
    VFIO_PCI_INTX_IRQ_INDEX, VFIO_PCI_MSI_IRQ_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
};

use crate::device::Layout;

const INTX: usize = VFIO_PCI_INTX_IRQ_INDEX as usize;
const MSI: usize = VFIO_PCI_MSI_IRQ_INDEX as usize;
const MSIX: usize = VFIO_PCI_MSIX_IRQ_INDEX as usize;

/// One slot per vector of each kind, filled while the client listens to it.
#[derive(Debug)]
pub(super) struct Wires {
    kinds: [Vec<Option<File>>; 3],
    /// The client was told of the INTx level and has not unmasked it since.
    intx_masked: bool,
}

impl Wires {
    pub(super) fn new(layout: &Layout) -> Self {
        let slots = |count: u16| std::iter::repeat_with(|| None).take(count.into()).collect();
        Wires { kinds: [slots(layout.intx.into()), slots(layout.msi), slots(layout.msix)], intx_masked: false }
    }

    /// Carries out VFIO_DEVICE_SET_IRQS. Returns true if INTx was unmasked, so that its level must be checked.
    pub(super) fn set(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        fds: Vec<File>,
    ) -> Result<bool, Errno> {
        let slots = usize::try_from(index).ok().and_then(|index| self.kinds.get_mut(index));
        let Some(slots) = slots else {
            // The error and request interrupts are offered with no vectors; clearing them is fine.
            return if count == 0 { Ok(false) } else { Err(Errno::INVAL) };
        };
        let end = u64::from(start) + u64::from(count);
        if end > slots.len() as u64 {
            return Err(Errno::INVAL);
        }
        let range = &mut slots[start as usize..end as usize];
        if flags & VFIO_IRQ_SET_ACTION_TRIGGER != 0 {
            if flags & VFIO_IRQ_SET_DATA_EVENTFD != 0 {
                let mut fds = fds.into_iter();
                range.iter_mut().for_each(|slot| *slot = fds.next());
            } else if count == 0 {
                slots.iter_mut().for_each(|slot| *slot = None);
            } else {
                range.iter().flatten().for_each(signal);
            }
            if index == VFIO_PCI_INTX_IRQ_INDEX {
                self.intx_masked = false;
            }
        } else if flags & VFIO_IRQ_SET_ACTION_MASK != 0 && index == VFIO_PCI_INTX_IRQ_INDEX {
            self.intx_masked = true;
        } else if flags & VFIO_IRQ_SET_ACTION_UNMASK != 0 && index == VFIO_PCI_INTX_IRQ_INDEX {
            self.intx_masked = false;
            return Ok(true);
        }
        Ok(false)
    }

    /// The eventfd on which `vector` goes out: MSI-X where the guest enabled it, else MSI, where the vectors beyond
    /// those granted share.
    fn message(&self, vector: u16) -> Option<&File> {
        let vector = usize::from(vector);
        if self.kinds[MSIX].iter().any(Option::is_some) {
            return self.kinds[MSIX].get(vector)?.as_ref();
        }
        let granted = self.kinds[MSI].iter().take_while(|slot| slot.is_some()).count();
        self.kinds[MSI].get(vector.checked_rem(granted)?)?.as_ref()
    }

    /// Sends a message of `vector`, or shows the INTx level where no messages are enabled. Returns true if there was
    /// anything to send it on.
    pub(super) fn send(&mut self, vector: u16, intx: bool) -> bool {
        if let Some(eventfd) = self.message(vector) {
            signal(eventfd);
            return true;
        }
        if self.kinds[MSIX].iter().chain(&self.kinds[MSI]).any(Option::is_some) {
            return false;
        }
        self.raise_intx(intx)
    }

    /// Tells the client of INTx if it is high and the client may be told. Returns true if the pin is connected.
    pub(super) fn raise_intx(&mut self, level: bool) -> bool {
        let Some(Some(eventfd)) = self.kinds[INTX].first() else { return false };
        if level && !self.intx_masked {
            signal(eventfd);
            self.intx_masked = true;
        }
        true
    }

    /// Whether the client has not yet taken the last message of `vector`: another one would merge with it.
    pub(super) fn is_pending(&self, vector: u16) -> bool {
        let Some(eventfd) = self.message(vector) else { return false };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(eventfd, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
    }

    pub(super) fn disconnect(&mut self) {
        self.kinds.iter_mut().flatten().for_each(|slot| *slot = None);
        self.intx_masked = false;
    }
}

/// One interrupt: the counter of an eventfd goes up by one. An error can only mean that the client passed something
/// else than an eventfd, and then nobody waits for it.
fn signal(mut eventfd: &File) {
    let _ = eventfd.write_all(&1u64.to_ne_bytes());
}
