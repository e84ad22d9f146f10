//! A function's configuration space: header, capabilities, and which bits the guest may write.
//!
//! Offsets and bits: PCI Express Base Specification 6.0, section 7.5 (header, PCI Express capability, power
//! management), 7.7 (MSI, MSI-X), 7.9.3 (device serial number).

/// Bytes of configuration space.
pub const CONFIG_BYTES: usize = 4096;

const COMMAND: usize = 0x04;
const COMMAND_MEMORY: u16 = 1 << 1;
const COMMAND_MASTER: u16 = 1 << 2;
const COMMAND_INTX_DISABLE: u16 = 1 << 10;
/// Memory, bus master, parity error response, SERR#, INTx disable.
const COMMAND_WRITABLE: u16 = COMMAND_MEMORY | COMMAND_MASTER | 1 << 6 | 1 << 8 | COMMAND_INTX_DISABLE;
const STATUS: usize = 0x06;
const STATUS_INTX: u8 = 1 << 3;
const STATUS_CAPABILITIES: u16 = 1 << 4;
const BARS: usize = 0x10;
const CAPABILITIES: usize = 0x34;
const INTERRUPT_LINE: usize = 0x3c;
const INTERRUPT_PIN: usize = 0x3d;
const FIRST_CAPABILITY: usize = 0x40;
const FIRST_EXTENDED: usize = 0x100;

const CAP_POWER: u8 = 0x01;
const CAP_MSI: u8 = 0x05;
const CAP_PCIE: u8 = 0x10;
const CAP_MSIX: u8 = 0x11;
const EXT_SERIAL_NUMBER: u16 = 0x0003;

/// The identity of a function: vendor, device and class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Vendor.
    pub vendor: u16,
    /// Device.
    pub device: u16,
    /// Subsystem vendor.
    pub subsystem_vendor: u16,
    /// Subsystem.
    pub subsystem: u16,
    /// Class, subclass and programming interface, 24 bits.
    pub class: u32,
    /// Revision.
    pub revision: u8,
}

/// The link as the function's registers show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Generation the link runs at, 1 (2.5 GT/s) to 6 (64 GT/s).
    pub generation: u8,
    /// Lanes in use.
    pub width: u8,
    /// Highest generation that the function can do.
    pub max_generation: u8,
    /// Lanes that the function has.
    pub max_width: u8,
    /// Largest payload that the function can take, as log2(bytes / 128): 0 is 128, 5 is 4096.
    pub max_payload: u8,
}

impl Default for Link {
    /// Gen3 x4, as trained as it can be, 256-byte payloads.
    fn default() -> Self {
        Link { generation: 3, width: 4, max_generation: 3, max_width: 4, max_payload: 1 }
    }
}

/// What a write asked for beyond the bits it changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct ConfigWrite {
    /// A function-level reset, by the PCI Express capability.
    pub is_reset: bool,
}

/// Configuration space, built capability by capability.
#[derive(Clone, Debug)]
pub struct ConfigSpace {
    bytes: Vec<u8>,
    /// Bits that the guest may write.
    writable: Vec<u8>,
    /// `bytes` as they are after a reset.
    initial: Vec<u8>,
    /// Where the pointer to the next capability goes.
    link: usize,
    next: usize,
    extended_link: Option<usize>,
    extended_next: usize,
    power: Option<usize>,
    pcie: Option<usize>,
    has_reset: bool,
    msi: Option<usize>,
    msix: Option<usize>,
}

impl ConfigSpace {
    /// A header of type 0 with an interrupt pin if `intx`, no BARs and no capabilities.
    pub fn new(identity: &Identity, intx: bool) -> Self {
        let mut config = ConfigSpace {
            bytes: vec![0; CONFIG_BYTES],
            writable: vec![0; CONFIG_BYTES],
            initial: vec![0; CONFIG_BYTES],
            link: CAPABILITIES,
            next: FIRST_CAPABILITY,
            extended_link: None,
            extended_next: FIRST_EXTENDED,
            power: None,
            pcie: None,
            has_reset: true,
            msi: None,
            msix: None,
        };
        config.place(0x00, &identity.vendor.to_le_bytes());
        config.place(0x02, &identity.device.to_le_bytes());
        config.place(STATUS, &STATUS_CAPABILITIES.to_le_bytes());
        config.place(0x08, &(identity.class << 8 | u32::from(identity.revision)).to_le_bytes());
        config.place(0x2c, &identity.subsystem_vendor.to_le_bytes());
        config.place(0x2e, &identity.subsystem.to_le_bytes());
        config.place(INTERRUPT_PIN, &[intx.into()]);
        config.allow(COMMAND, &COMMAND_WRITABLE.to_le_bytes());
        config.allow(0x0c, &[0xff]);
        config.allow(INTERRUPT_LINE, &[0xff]);
        config
    }

    /// Adds a 64-bit memory BAR at `index` and `index + 1`; `size` is a power of two of 16 bytes or more.
    pub fn with_bar64(mut self, index: usize, size: u64, is_prefetchable: bool) -> Self {
        let at = BARS + 4 * index;
        self.place(at, &[0b0100 | u8::from(is_prefetchable) << 3]);
        self.allow(at, &(!(size - 1)).to_le_bytes());
        self
    }

    /// Adds a 32-bit memory BAR at `index`; `size` is a power of two of 16 bytes or more.
    pub fn with_bar32(mut self, index: usize, size: u32) -> Self {
        self.allow(BARS + 4 * index, &(!(size - 1)).to_le_bytes());
        self
    }

    /// The next capability lies at `at`, a multiple of 4 behind all that were added before.
    pub fn with_next_capability_at(mut self, at: usize) -> Self {
        assert!(at >= self.next && at % 4 == 0, "capabilities do not overlap");
        self.next = at;
        self
    }

    /// Takes function-level reset back out of the PCI Express capability that was added before.
    pub fn without_function_reset(mut self) -> Self {
        if let Some(at) = self.pcie {
            let high = self.initial[at + 0x07] & !0x10;
            self.place(at + 0x07, &[high]);
        }
        self.has_reset = false;
        self
    }

    /// Adds power management: D0 and D3hot, state kept in D3hot. In any state but D0 the function answers in configuration
    /// space only, and sends nothing.
    pub fn with_power_management(mut self) -> Self {
        let at = self.add_capability(CAP_POWER, &[0x03, 0x00, 0x08, 0x00, 0, 0]);
        self.allow(at + 4, &[0x03]);
        self.power = Some(at);
        self
    }

    /// Adds MSI: 64-bit addresses, per-vector masks, `vectors` vectors (a power of two, 32 at most).
    pub fn with_msi(mut self, vectors: u16) -> Self {
        let mut body = [0; 22];
        let control = 1 << 8 | 1 << 7 | (vectors.trailing_zeros() as u16) << 1;
        body[..2].copy_from_slice(&control.to_le_bytes());
        let at = self.add_capability(CAP_MSI, &body);
        self.allow(at + 2, &0x0071u16.to_le_bytes());
        self.allow(at + 4, &0xffff_ffff_ffff_fffcu64.to_le_bytes());
        self.allow(at + 12, &0xffffu16.to_le_bytes());
        self.allow(at + 16, &(u32::MAX >> (32 - u32::from(vectors).clamp(1, 32))).to_le_bytes());
        self.msi = Some(at);
        self
    }

    /// Adds MSI-X of `vectors` vectors, with table and pending bits in BAR `bar`.
    pub fn with_msix(mut self, vectors: u16, bar: u8, table: u32, pending: u32) -> Self {
        let mut body = [0; 10];
        body[..2].copy_from_slice(&(vectors - 1).to_le_bytes());
        body[2..6].copy_from_slice(&(table | u32::from(bar)).to_le_bytes());
        body[6..].copy_from_slice(&(pending | u32::from(bar)).to_le_bytes());
        let at = self.add_capability(CAP_MSIX, &body);
        self.allow(at + 2, &0xc000u16.to_le_bytes());
        self.msix = Some(at);
        self
    }

    /// Adds the PCI Express capability of an endpoint, version 2, with function-level reset.
    pub fn with_pcie_endpoint(mut self, link: &Link) -> Self {
        let link_bits = |generation: u8, width: u8| u32::from(generation & 0xf) | u32::from(width & 0x3f) << 4;
        let mut body = [0; 58];
        let mut put = |at: usize, value: u32| body[at - 2..at + 2].copy_from_slice(&value.to_le_bytes());
        // Function-level reset, role-based errors, extended tags.
        put(0x04, 1 << 28 | 1 << 15 | 1 << 5 | u32::from(link.max_payload & 7));
        // 512-byte read requests, no snoop, relaxed ordering, 128-byte payloads: the values after reset.
        put(0x08, 0x2810);
        put(0x0c, 1 << 22 | link_bits(link.max_generation, link.max_width));
        // Common slot clock.
        put(0x10, (1 << 12 | link_bits(link.generation, link.width)) << 16);
        // Completion time-outs of all ranges, and their disabling.
        put(0x24, 0x1f);
        put(0x2c, ((1 << link.max_generation.min(7)) - 1) << 1);
        put(0x30, u32::from(link.max_generation & 0xf));
        body[0] = 0x02;
        let at = self.add_capability(CAP_PCIE, &body);
        self.allow(at + 0x08, &0x7fffu16.to_le_bytes());
        self.allow(at + 0x10, &0x00cbu16.to_le_bytes());
        self.allow(at + 0x28, &0x001fu16.to_le_bytes());
        self.allow(at + 0x30, &0x000fu16.to_le_bytes());
        self.pcie = Some(at);
        self
    }

    /// Adds the extended capability that holds a serial number.
    pub fn with_serial_number(mut self, number: u64) -> Self {
        self.add_extended(EXT_SERIAL_NUMBER, 1, &number.to_le_bytes());
        self
    }

    /// Adds a capability of configuration space's first 256 bytes; `body` follows its id and pointer. Answers where
    /// it lies.
    pub fn add_capability(&mut self, id: u8, body: &[u8]) -> usize {
        let at = self.next;
        assert!(at + 2 + body.len() <= FIRST_EXTENDED, "the capabilities of a model fit into 256 bytes");
        self.place(self.link, &[at as u8]);
        self.place(at, &[id, 0]);
        self.place(at + 2, body);
        self.link = at + 1;
        self.next = (at + 2 + body.len()).next_multiple_of(8);
        at
    }

    /// Adds an extended capability; `body` follows its header. Answers where it lies.
    pub fn add_extended(&mut self, id: u16, version: u8, body: &[u8]) -> usize {
        let at = self.extended_next;
        assert!(at + 4 + body.len() <= CONFIG_BYTES, "the capabilities of a model fit into 4096 bytes");
        if let Some(before) = self.extended_link {
            let header = u32::from_le_bytes([0, 1, 2, 3].map(|i| self.initial[before + i]));
            self.place(before, &(header & 0x000f_ffff | (at as u32) << 20).to_le_bytes());
        }
        self.place(at, &(u32::from(id) | u32::from(version) << 16).to_le_bytes());
        self.place(at + 4, body);
        self.extended_link = Some(at);
        self.extended_next = (at + 4 + body.len()).next_multiple_of(8);
        at
    }

    /// Lets the guest write the bits that are set in `bits`, from `at` on.
    pub fn allow(&mut self, at: usize, bits: &[u8]) {
        self.writable[at..at + bits.len()].copy_from_slice(bits);
    }

    fn place(&mut self, at: usize, value: &[u8]) {
        self.bytes[at..at + value.len()].copy_from_slice(value);
        self.initial[at..at + value.len()].copy_from_slice(value);
    }

    /// Shows the link at this generation and on so many lanes in Link Status, after a reset too.
    pub fn show_link(&mut self, generation: u8, width: u8) {
        let Some(at) = self.pcie.map(|at| at + 0x12) else { return };
        let others = self.word(at) & !0x3ff;
        let status = others | u16::from(generation & 0xf) | u16::from(width & 0x3f) << 4;
        self.place(at, &status.to_le_bytes());
    }

    /// Shows these states in ASPM Support of Link Capabilities, after a reset too: bit 0 is L0s, bit 1 L1.
    pub fn show_aspm(&mut self, states: u8) {
        let Some(at) = self.pcie.map(|at| at + 0x0d) else { return };
        let support = self.bytes[at] & !0x0c | (states & 3) << 2;
        self.place(at, &[support]);
    }

    /// ASPM Control of Link Control: bit 0 is L0s, bit 1 L1.
    pub fn aspm_control(&self) -> u8 {
        self.pcie.map_or(0, |at| self.bytes[at + 0x10] & 3)
    }

    /// Reads; bytes past the end are all-ones.
    pub fn read(&self, offset: u64, to: &mut [u8]) {
        to.fill(0xff);
        let Ok(offset) = usize::try_from(offset) else { return };
        for (byte, value) in to.iter_mut().zip(self.bytes.iter().skip(offset)) {
            *byte = *value;
        }
    }

    /// Writes the bits that may be written.
    pub fn write(&mut self, offset: u64, from: &[u8]) -> ConfigWrite {
        let Ok(offset) = usize::try_from(offset) else { return ConfigWrite::default() };
        let reset_at = self.pcie.filter(|_| self.has_reset).map(|at| at + 0x09);
        let mut is_reset = false;
        for (index, value) in from.iter().enumerate() {
            let Some(at) = offset.checked_add(index).filter(|at| *at < CONFIG_BYTES) else { break };
            let writable = self.writable[at];
            self.bytes[at] = self.bytes[at] & !writable | value & writable;
            is_reset |= Some(at) == reset_at && value & 0x80 != 0;
        }
        ConfigWrite { is_reset }
    }

    /// All as after a reset.
    pub fn reset(&mut self) {
        self.bytes.copy_from_slice(&self.initial);
    }

    /// Shows the level of the INTx pin in the status register.
    pub fn show_intx(&mut self, level: bool) {
        self.bytes[STATUS] = self.bytes[STATUS] & !STATUS_INTX | if level { STATUS_INTX } else { 0 };
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// Whether the function answers accesses to its memory BARs.
    pub fn is_memory_enabled(&self) -> bool {
        self.is_awake() && self.word(COMMAND) & COMMAND_MEMORY != 0
    }

    /// Whether the function answers an access of `width` bytes to a BAR of `size` bytes.
    pub fn decodes(&self, size: u64, offset: u64, width: usize) -> bool {
        let width = width as u64;
        let is_inside = matches!(width, 1 | 2 | 4 | 8) && offset % width == 0 && offset.saturating_add(width) <= size;
        is_inside && self.is_memory_enabled()
    }

    /// Whether the function is in D0.
    fn is_awake(&self) -> bool {
        self.power.is_none_or(|at| self.word(at + 4) & 3 == 0)
    }

    /// Whether the function may send messages and transfer data.
    pub fn is_bus_master(&self) -> bool {
        self.is_awake() && self.word(COMMAND) & COMMAND_MASTER != 0
    }

    /// Largest payload and largest read request that the guest set in Device Control, in bytes: 128 and 512 after reset.
    pub fn transfer_sizes(&self) -> (u32, u32) {
        let control = self.pcie.map_or(0x2000, |at| self.word(at + 0x08));
        let bytes = |code: u16| 128 << code.min(5);
        (bytes(control >> 5 & 7), bytes(control >> 12 & 7))
    }

    /// Whether the guest has the function send messages in place of using its pin.
    pub fn has_messages(&self) -> bool {
        let msi = self.msi.is_some_and(|at| self.word(at + 2) & 1 != 0);
        msi || self.msix.is_some_and(|at| self.word(at + 2) & 1 << 15 != 0)
    }

    /// Whether an interrupt can leave the function, by message or by its pin.
    pub fn can_interrupt(&self) -> bool {
        let has_pin = self.is_awake() && self.word(COMMAND) & COMMAND_INTX_DISABLE == 0;
        if self.has_messages() { self.is_bus_master() } else { has_pin }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> ConfigSpace {
        let identity = Identity {
            vendor: 0x1234,
            device: 0x5c0e,
            subsystem_vendor: 0x1234,
            subsystem: 1,
            class: 0xff_0000,
            revision: 1,
        };
        ConfigSpace::new(&identity, true)
            .with_bar64(0, 0x1_0000, false)
            .with_bar64(2, 0x10_0000, true)
            .with_power_management()
            .with_msi(8)
            .with_msix(16, 4, 0, 0x800)
            .with_pcie_endpoint(&Link { generation: 1, width: 2, ..Link::default() })
            .with_serial_number(0x0123_4567_89ab_cdef)
    }

    fn read<const N: usize>(config: &ConfigSpace, offset: usize) -> u64 {
        let mut bytes = [0; 8];
        config.read(offset as u64, &mut bytes[..N]);
        u64::from_le_bytes(bytes)
    }

    fn find(config: &ConfigSpace, id: u64) -> usize {
        let mut at = read::<1>(config, 0x34) as usize;
        while at != 0 && read::<1>(config, at) != id {
            at = read::<1>(config, at + 1) as usize;
        }
        assert_ne!(at, 0, "no capability {id:#x}");
        at
    }

    #[test]
    fn the_header_says_who_it_is() {
        let config = config();
        assert_eq!(read::<4>(&config, 0), 0x5c0e_1234);
        assert_eq!(read::<4>(&config, 8), 0xff00_0001);
        assert_eq!(read::<4>(&config, 0x2c), 0x0001_1234);
        assert_eq!(read::<1>(&config, 0x3d), 1);
        assert_eq!(read::<2>(&config, 6), 0x0010);
    }

    #[test]
    fn bars_answer_the_sizing_write() {
        let mut config = config();
        for (bar, size, low) in [(0, 0x1_0000u64, 0x4), (2, 0x10_0000, 0xc)] {
            let at = 0x10 + 4 * bar;
            assert_eq!(read::<4>(&config, at), low);
            let _ = config.write(at as u64, &[0xff; 8]);
            assert_eq!(read::<8>(&config, at), !(size - 1) | low);
            let _ = config.write(at as u64, &0xfe00_0000_1234_5678u64.to_le_bytes());
            assert_eq!(read::<8>(&config, at), 0xfe00_0000_1234_5678 & !(size - 1) | low);
        }
        let _ = config.write(0x20, &[0xff; 8]);
        assert_eq!(read::<8>(&config, 0x20), 0, "there is no BAR 4 in this one");
    }

    #[test]
    fn read_only_bits_stay() {
        let mut config = config();
        let before: Vec<u8> = config.bytes.clone();
        let _ = config.write(0, &[0xff; CONFIG_BYTES + 7]);
        assert_eq!(read::<4>(&config, 0), 0x5c0e_1234);
        assert_eq!(read::<2>(&config, 4), 0x0546);
        let changed = (0..CONFIG_BYTES).filter(|at| (config.bytes[*at] ^ before[*at]) & !config.writable[*at] != 0);
        assert_eq!(changed.count(), 0);
        config.reset();
        assert_eq!(config.bytes, before);
    }

    #[test]
    fn the_link_shows_what_it_is_and_what_it_could_be() {
        let config = config();
        let at = find(&config, 0x10);
        assert_eq!(read::<2>(&config, at + 2), 0x0002);
        assert_eq!(read::<4>(&config, at + 0x0c) & 0x3ff, 0x43);
        assert_eq!(read::<2>(&config, at + 0x12) & 0x3ff, 0x21);
        assert_eq!(read::<4>(&config, at + 0x2c) & 0xfe, 0b1110);
    }

    #[test]
    fn msi_and_msix_offer_their_vectors() {
        let mut config = config();
        let msi = find(&config, 0x05);
        assert_eq!(read::<2>(&config, msi + 2), 0x0186);
        let _ = config.write(msi as u64 + 16, &[0xff; 8]);
        assert_eq!(read::<8>(&config, msi + 16), 0xff, "8 mask bits, no pending bit");
        let msix = find(&config, 0x11);
        assert_eq!(read::<2>(&config, msix + 2), 15);
        assert_eq!(read::<8>(&config, msix + 4), 0x0000_0804_0000_0004);
    }

    #[test]
    fn interrupts_need_bus_mastering_or_a_pin() {
        let mut config = config();
        assert!(config.can_interrupt());
        let _ = config.write(4, &0x0400u16.to_le_bytes());
        assert!(!config.can_interrupt());
        let msix = find(&config, 0x11) as u64;
        let _ = config.write(msix + 2, &0x8000u16.to_le_bytes());
        assert!(!config.can_interrupt());
        let _ = config.write(4, &0x0404u16.to_le_bytes());
        assert!(config.can_interrupt() && config.is_bus_master() && !config.is_memory_enabled());
        let _ = config.write(4, &0x0002u16.to_le_bytes());
        assert!(!config.can_interrupt() && config.is_memory_enabled());
    }

    #[test]
    fn in_d3hot_it_answers_in_configuration_space_only() {
        let mut config = config();
        let power = find(&config, 0x01) as u64 + 4;
        let _ = config.write(4, &0x0006u16.to_le_bytes());
        assert!(config.is_memory_enabled() && config.is_bus_master() && config.can_interrupt());
        let _ = config.write(power, &[3]);
        assert!(!config.is_memory_enabled() && !config.is_bus_master() && !config.can_interrupt());
        assert_eq!(read::<2>(&config, 4), 6, "what was set stays");
        let _ = config.write(power, &[0]);
        assert!(config.is_memory_enabled() && config.is_bus_master() && config.can_interrupt());
    }

    #[test]
    fn a_function_level_reset_is_seen_and_its_bit_reads_0() {
        let mut config = config();
        let control = find(&config, 0x10) as u64 + 8;
        assert!(!config.write(control, &0x2810u16.to_le_bytes()).is_reset);
        assert!(config.write(control, &0xa810u16.to_le_bytes()).is_reset);
        assert!(config.write(control + 1, &[0xa8]).is_reset);
        assert_eq!(read::<2>(&config, control as usize), 0x2810);
    }

    #[test]
    fn extended_space_begins_with_the_serial_number_and_ends_with_ones() {
        let mut config = config();
        assert_eq!(read::<4>(&config, 0x100), 0x0001_0003);
        assert_eq!(read::<8>(&config, 0x104), 0x0123_4567_89ab_cdef);
        assert_eq!(read::<4>(&config, 0xffe), 0xffff_0000);
        assert_eq!(read::<4>(&config, 0x1000), 0xffff_ffff);
        let mut bytes = [0; 4];
        config.read(u64::MAX, &mut bytes);
        assert_eq!(bytes, [0xff; 4]);
        assert_eq!(config.write(u64::MAX, &bytes), ConfigWrite::default());
    }

    #[test]
    fn extended_capabilities_are_linked() {
        let mut config = config();
        let at = config.add_extended(0x000b, 1, &[0; 12]);
        assert_eq!(read::<4>(&config, 0x100) >> 20, at as u64);
        assert_eq!(read::<4>(&config, at), 0x0001_000b);
    }
}
