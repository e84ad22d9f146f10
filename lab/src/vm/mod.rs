//! The guest: a QEMU virtual machine with a stock Debian kernel beside the virtual devices.
//!
//! [`Vm::builder`] describes a guest, [`Builder::boot`] boots it, [`Vm::run`] runs commands in it. Every wait has a
//! bound, which is doubled without KVM; a dead guest is noticed immediately. A failure of the guest itself is a
//! [`LabError`], so a test can distinguish "the lab failed" from "the answer is wrong"; the serial log is then kept and
//! named.
//!
//! Both sides see one folder (`/host` in the guest), by which commands, their output and files travel; a second serial
//! port only says that a command is to start or has ended. The console belongs to the kernel's log.

mod accel;
mod agent;
mod arch;
mod builder;
mod cli;
pub mod digitizers;
mod error;
mod guest;
mod initramfs;
mod kernel_log;
mod machine;
mod process;
mod qmp;
mod root;

pub use accel::Accel;
pub use arch::Arch;
pub use builder::Builder;
pub use cli::{run, shell};
pub use error::{LAB_FAILED, LabError};
pub use guest::{Output, Running, Vm};
pub use kernel_log::{kernel_faults, without_reports_of_others};
pub use machine::{Attachment, GuestDevice, RootPort, Slot, seed_machine, standard_machine};
pub use root::{Kernel, Root};
