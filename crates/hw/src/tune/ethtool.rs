//! What the driver of a network interface sets by the ioctl of ethtool (include/uapi/linux/ethtool.h).

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use serde::{Deserialize, Serialize};

use crate::Root;

/// 32-bit words, as many as the longest block has (`struct ethtool_coalesce`).
pub(super) type Words = [u32; 23];

/// What is got and set at once: a command, and values whose places below are counted in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EthtoolBlock {
    /// When interrupts are raised: `struct ethtool_coalesce`, ETHTOOL_GCOALESCE and the next command.
    Coalesce,
    /// How many queues there are: `struct ethtool_channels`, ETHTOOL_GCHANNELS and the next command.
    Channels,
}

/// In `Coalesce`: microseconds from a packet to its interrupt; whether the driver chooses them itself.
pub(super) const RX_USECS: usize = 1;
pub(super) const ADAPTIVE_RX: usize = 10;
/// In `Channels`: the most queues for both directions, and how many there are.
pub(super) const MOST_COMBINED: usize = 4;
pub(super) const COMBINED: usize = 8;

impl EthtoolBlock {
    /// The values of an interface; of a tree of files those in `ethtool-coalesce` and its like.
    pub(super) fn get(self, root: &Root, interface: &str) -> io::Result<Words> {
        let (command, file) = self.names(interface);
        let mut words = [0; 23];
        if root.is_live() {
            words[0] = command;
            call(interface, &mut words)?;
        } else {
            let text = std::fs::read_to_string(root.path(file))?;
            words.iter_mut().zip(text.split_whitespace()).for_each(|(to, word)| *to = word.parse().unwrap_or_default());
        }
        Ok(words)
    }

    /// Sets them all.
    pub(super) fn set(self, root: &Root, interface: &str, mut words: Words) -> io::Result<()> {
        let (command, file) = self.names(interface);
        if root.is_live() {
            words[0] = command + 1;
            return call(interface, &mut words);
        }
        std::fs::write(root.path(file), words.map(|word| word.to_string()).join(" "))
    }

    fn names(self, interface: &str) -> (u32, String) {
        let (command, name) = match self {
            EthtoolBlock::Coalesce => (0x0e, "coalesce"),
            EthtoolBlock::Channels => (0x3c, "channels"),
        };
        (command, format!("/sys/class/net/{interface}/ethtool-{name}"))
    }
}

fn call(interface: &str, words: &mut Words) -> io::Result<()> {
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    // SAFETY: it is plain data, of which all-zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays 0; no interface of Linux has a longer name.
    request.ifr_name.iter_mut().zip(interface.bytes().take(15)).for_each(|(to, byte)| *to = byte as libc::c_char);
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the kernel reads and writes the block that the command in its first word names, which is not longer than `words`;
    // both live until it returns.
    match unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
