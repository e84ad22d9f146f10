//! Messages of the vfio-user protocol, version 0.1: bytes to meaning and back. Nothing is sent here.
//!
//! The crate `vfio_user` has a server too; measured behind QEMU 11.1 it doubled the time of a register read, since it
//! answers a read with two writes to the socket, each of which wakes QEMU. Its client serves as the second opinion in
//! `tests/vfio_user.rs`.

/// Bytes of every message's header.
pub(super) const HEADER_BYTES: usize = 16;
/// The longest message that is taken or sent.
pub(super) const MESSAGE_MAX: usize = 64 << 10;
/// The longest read or write of a region; its message must fit.
pub(super) const TRANSFER_MAX: u32 = 32 << 10;
/// File descriptors that one message may carry.
pub(super) const FDS_MAX: usize = 16;

const TYPE_MASK: u32 = 0xf;
const TYPE_REPLY: u32 = 1;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

/// What a message asks for. The numbers are the protocol's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Version = 1,
    DmaMap = 2,
    DmaUnmap = 3,
    DeviceInfo = 4,
    RegionInfo = 5,
    IrqInfo = 7,
    SetIrqs = 8,
    RegionRead = 9,
    RegionWrite = 10,
    Reset = 13,
}

impl Request {
    fn from_number(number: u16) -> Option<Request> {
        use Request::*;
        [Version, DmaMap, DmaUnmap, DeviceInfo, RegionInfo, IrqInfo, SetIrqs, RegionRead, RegionWrite, Reset]
            .into_iter()
            .find(|command| *command as u16 == number)
    }
}

/// A message's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    id: u16,
    number: u16,
    flags: u32,
    /// Bytes of the whole message.
    pub(super) size: usize,
}

/// Why a connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl Header {
    /// The header at the start of `bytes`, once all of it is there.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
        let Some(bytes) = bytes.get(..HEADER_BYTES) else { return Ok(None) };
        let mut fields = Fields(bytes);
        let (id, number) = (fields.u16(), fields.u16());
        let (size, flags) = (fields.u32() as usize, fields.u32());
        if !(HEADER_BYTES..=MESSAGE_MAX).contains(&size) || flags & TYPE_MASK != 0 {
            return Err(Malformed);
        }
        Ok(Some(Header { id, number, flags, size }))
    }

    /// The command, if it is one that is served.
    pub(super) fn command(&self) -> Option<Request> {
        Request::from_number(self.number)
    }

    /// Whether the client waits for an answer.
    pub(super) fn wants_reply(&self) -> bool {
        self.flags & NO_REPLY == 0
    }

    /// Makes `out` the start of the reply; the body is appended, then [`seal`] is called.
    pub(super) fn begin_reply(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&0u32.to_le_bytes());
        out.extend_from_slice(&TYPE_REPLY.to_le_bytes());
        out.extend_from_slice(&0u32.to_le_bytes());
    }

    /// Makes `out` the refusal with this errno.
    pub(super) fn refuse(&self, errno: i32, out: &mut Vec<u8>) {
        self.begin_reply(out);
        out[8..12].copy_from_slice(&(TYPE_REPLY | ERROR).to_le_bytes());
        out[12..16].copy_from_slice(&errno.to_le_bytes());
    }
}

/// Writes the size of a finished reply into its header.
pub(super) fn seal(out: &mut [u8]) {
    let size = (out.len() as u32).to_le_bytes();
    out[4..8].copy_from_slice(&size);
}

/// Takes little-endian fields off the front; what is missing at the end reads as 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let (front, rest) = self.0.split_at(self.0.len().min(N));
        bytes[..front.len()].copy_from_slice(front);
        self.0 = rest;
        bytes
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(size: u32, number: u16, flags: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&0x1234u16.to_le_bytes());
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&size.to_le_bytes());
        bytes.extend_from_slice(&flags.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes
    }

    #[test]
    fn a_header_is_parsed_once_all_of_it_is_there() {
        let bytes = header(32, 9, 0);
        for len in 0..HEADER_BYTES {
            assert_eq!(Header::parse(&bytes[..len]), Ok(None));
        }
        let parsed = Header::parse(&bytes).unwrap().unwrap();
        assert_eq!((parsed.size, parsed.command(), parsed.wants_reply()), (32, Some(Request::RegionRead), true));
        let posted = Header::parse(&header(36, 10, NO_REPLY)).unwrap().unwrap();
        assert_eq!((posted.command(), posted.wants_reply()), (Some(Request::RegionWrite), false));
    }

    #[test]
    fn sizes_and_types_that_cannot_be_end_the_connection() {
        for (size, flags) in [(0, 0), (15, 0), (MESSAGE_MAX as u32 + 1, 0), (u32::MAX, 0), (16, TYPE_REPLY)] {
            assert_eq!(Header::parse(&header(size, 9, flags)), Err(Malformed), "size {size} flags {flags}");
        }
    }

    #[test]
    fn numbers_that_are_not_served_are_no_command() {
        for number in [0, 6, 11, 12, 14, 15, 0xffff] {
            assert_eq!(Header::parse(&header(16, number, 0)).unwrap().unwrap().command(), None, "{number}");
        }
    }

    #[test]
    fn a_reply_carries_the_id_and_its_size() {
        let request = Header::parse(&header(16, 9, 0)).unwrap().unwrap();
        let mut out = vec![1; 99];
        request.begin_reply(&mut out);
        out.extend_from_slice(&[7; 4]);
        seal(&mut out);
        assert_eq!(out, [0x34, 0x12, 9, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 7, 7, 7]);
        request.refuse(22, &mut out);
        seal(&mut out);
        assert_eq!(out, [0x34, 0x12, 9, 0, 16, 0, 0, 0, 0x21, 0, 0, 0, 22, 0, 0, 0]);
    }

    #[test]
    fn missing_fields_read_as_0() {
        let mut fields = Fields(&[1, 2, 3]);
        assert_eq!((fields.u16(), fields.u32(), fields.u64()), (0x0201, 3, 0));
        assert!(fields.rest().is_empty());
    }
}
