//! Whether functions came or went, or a driver did: the kernel tells of it, and nothing needs to be listed until it does.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

use crate::Root;

/// The kernel's own messages; those of udev have another group.
const KERNEL: u32 = 1;

/// The kernel's messages about objects of sysfs.
#[derive(Debug)]
pub(super) struct Uevents(OwnedFd);

impl Uevents {
    /// Those of this machine; `None` for a recorded tree, and where the kernel sends none: in the network of another user
    /// namespace.
    pub fn open(root: &Root) -> Option<Uevents> {
        let is_first = root.is_live() && is_first_namespace(&root.text("/proc/self/uid_map")?);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let open = || socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(KOBJECT_UEVENT)).ok();
        let socket = is_first.then(open).flatten()?;
        bind(&socket, &SocketAddrNetlink::new(0, KERNEL)).ok()?;
        Some(Uevents(socket))
    }

    /// Whether one was of a PCI function since the last time, or some were lost.
    pub fn take(&mut self) -> bool {
        let (mut has_any, mut bytes) = (false, [MaybeUninit::uninit(); 4096]);
        loop {
            match recv(&self.0, &mut bytes, RecvFlags::empty()) {
                Ok(((message, _), _)) => has_any |= is_of_pci(message),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return has_any,
                Err(_) => return true,
            }
        }
    }
}

/// Whether user ids are those of the whole machine: one line that maps all of them to themselves.
fn is_first_namespace(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

fn is_of_pci(message: &[u8]) -> bool {
    message.split(|byte| *byte == 0).any(|field| field == b"SUBSYSTEM=pci")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_pci_functions_count() {
        let bound = b"bind@/devices/pci0000:00/0000:00:02.0\0ACTION=bind\0SUBSYSTEM=pci\0DRIVER=nvme\0SEQNUM=7\0";
        assert!(is_of_pci(bound));
        assert!(!is_of_pci(b"add@/devices/x/pci_express/y\0ACTION=add\0SUBSYSTEM=pci_express\0"));
        assert!(is_first_namespace("         0          0 4294967295\n"));
        assert!(!is_first_namespace("0 100000 65536\n") && !is_first_namespace(""));
    }
}
