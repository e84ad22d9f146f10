//! The virtual hardware.
