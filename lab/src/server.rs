//! vfio-user server.
