//! The guest.
