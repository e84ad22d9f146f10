//! What needs no guest: the device models, the server of vfio-user, and the check of records that the suites use.
#![allow(clippy::unwrap_used, reason = "tests")]

mod device_work;
mod record_check;
mod vfio_user;
