//! The control socket of the virtual devices.
