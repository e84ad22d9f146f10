//! The device's side of a run: its trigger, its vectors' event counters, and a trigger that was raised.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pciescope_core::IrqSource;

use super::super::Device;
use crate::probe::clock;
use crate::probe::register::Window;
use crate::probe::sys::EventFd;
use crate::probe::trigger::{Acknowledge, Kind, Trigger, Write};

/// The device's side of a run, with everything put back when dropped.
pub(super) struct Armed<'a> {
    pub device: &'a Device,
    /// The windows of the trigger's first and last register.
    pub windows: Option<[Arc<Window>; 2]>,
    pub trigger: Option<Trigger>,
    pub source: IrqSource,
    pub kind: Kind,
    pub index: u32,
    pub events: Vec<EventFd>,
}

impl Armed<'_> {
    /// The window that holds a register of the trigger.
    pub fn window(&self, offset: u64) -> Option<&Window> {
        self.windows.iter().flatten().map(Arc::as_ref).find(|window| window.holds(offset, 4))
    }

    pub fn store(&self, write: Write) {
        if let Some(window) = self.window(write.offset) {
            window.write(write.offset, 4, write.value.into());
        }
    }

    pub fn load(&self, offset: u64) {
        if let Some(window) = self.window(offset) {
            window.read(offset, 4);
        }
    }

    /// Disables the interrupts that the trigger raises.
    pub fn silence(&self) {
        if let (Some(trigger), IrqSource::Hardware) = (self.trigger, self.source) {
            trigger.disable().into_iter().for_each(|write| self.store(write));
        }
    }

    pub fn is_gone(&self) -> bool {
        self.windows.iter().flatten().any(|window| window.is_gone())
    }

    /// Triggers. Returns the stamp before it.
    #[inline(always)]
    pub fn fire(&self, vector: u16) -> io::Result<u64> {
        match self.trigger {
            Some(trigger) if self.source == IrqSource::Hardware => {
                let write = trigger.fire(vector, self.kind);
                let start = clock::start();
                self.store(write);
                Ok(start)
            }
            _ => {
                let start = clock::start();
                self.device.raise(self.index, vector.into())?;
                Ok(start)
            }
        }
    }

    /// Tells the device that its interrupt was seen.
    pub fn acknowledge(&self, vector: u16) {
        if let (Some(trigger), IrqSource::Hardware) = (self.trigger, self.source) {
            match trigger.acknowledge(vector, self.kind) {
                Acknowledge::Write(write, behind) => {
                    self.store(write);
                    self.load(behind);
                }
                Acknowledge::Read(offset) => self.load(offset),
            }
        }
        if self.kind == Kind::Intx {
            // VFIO masked the wire; if it cannot be unmasked, the next interrupt is counted as lost.
            let _ = self.device.unmask_intx();
        }
    }
}

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        self.silence();
        self.device.disable_interrupts(self.index);
    }
}

/// A trigger that was raised, and where its stamp is.
pub(super) enum Fired<'s> {
    /// On this CPU.
    Here(u64),
    /// On another, which writes the stamp before its answer.
    There { answered: &'s AtomicU64, stamp: &'s AtomicU64, number: u64 },
}

impl Fired<'_> {
    pub fn stamp(&self) -> u64 {
        match self {
            Fired::Here(start) => *start,
            Fired::There { answered, stamp, number } => {
                while answered.load(Ordering::Acquire) < *number {
                    std::hint::spin_loop();
                }
                stamp.load(Ordering::Acquire)
            }
        }
    }
}
