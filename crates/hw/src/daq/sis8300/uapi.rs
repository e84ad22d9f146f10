//! kmod/include/uapi/linux/sis8300.h in Rust. A test compiles the header and compares every size, offset and number.
#![allow(missing_docs, reason = "the header documents every field; two copies of the text would drift apart")]

use libc::{_IO, _IOWR, Ioctl};

pub const SIS8300_ABI: u32 = 1;
pub const SIS8300_CHANNELS: u32 = 10;
pub const SIS8300_BLOCK_SAMPLES: u32 = 16;
pub const SIS8300_BLOCK_BYTES: u32 = 32;
pub const SIS8300_ALIGN: u32 = 16;
pub const SIS8300_DMA_ALIGN: u32 = 64;
pub const SIS8300_PRETRIGGER_MAX: u32 = 2046;

/// struct sis8300_reg
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reg {
    pub offset: u32,
    pub data: u32,
}

// enum sis8300_wait_type
pub const SIS8300_WAIT_DAQ: u32 = 0;
pub const SIS8300_WAIT_USER: u32 = 1;

// enum sis8300_wait_status
pub const SIS8300_WAIT_OK: u32 = 0;
pub const SIS8300_WAIT_RELEASED: u32 = 1;
pub const SIS8300_WAIT_TIMEOUT: u32 = 2;
pub const SIS8300_WAIT_ERROR: u32 = 3;

/// struct sis8300_wait
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wait {
    pub timeout_ms: u32,
    /// `type` in C.
    pub kind: u32,
    pub status: u32,
}

pub const SIS8300_IOC_MAGIC: u32 = b's' as u32;
pub const SIS8300_REG_READ: Ioctl = _IOWR::<Reg>(SIS8300_IOC_MAGIC, 0);
pub const SIS8300_REG_WRITE: Ioctl = _IOWR::<Reg>(SIS8300_IOC_MAGIC, 1);
pub const SIS8300_WAIT: Ioctl = _IOWR::<Wait>(SIS8300_IOC_MAGIC, 2);
pub const SIS8300_RELEASE: Ioctl = _IOWR::<Wait>(SIS8300_IOC_MAGIC, 3);
pub const SIS8300_INFO_MSI: u32 = 0x1;
pub const SIS8300_INFO_DAQ_IRQ: u32 = 0x2;

/// struct sis8300_info
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Info {
    pub size: u32,
    pub abi: u32,
    pub domain: u32,
    pub bus: u8,
    pub devfn: u8,
    pub vendor: u16,
    pub device: u16,
    pub channels: u16,
    pub module_id: u32,
    pub serial: u32,
    pub options: u32,
    pub flags: u32,
    pub chunk_bytes: u32,
    pub memory_bytes: u64,
    pub block_samples: u32,
    pub dma_timeout_ms: u32,
    pub reserved: [u32; 6],
}

// enum sis8300_clock
pub const SIS8300_CLOCK_INTERNAL: u32 = 0;
pub const SIS8300_CLOCK_RTM: u32 = 1;
pub const SIS8300_CLOCK_SMA: u32 = 2;
pub const SIS8300_CLOCK_HARLINK: u32 = 3;
pub const SIS8300_CLOCK_TCLKA: u32 = 4;
pub const SIS8300_CLOCK_TCLKB: u32 = 5;
pub const SIS8300_CLOCK_KEEP: u32 = 6;

// enum sis8300_trigger
pub const SIS8300_TRIGGER_NOW: u32 = 0;
pub const SIS8300_TRIGGER_INTERNAL: u32 = 1;
pub const SIS8300_TRIGGER_MLVDS: u32 = 2;
pub const SIS8300_TRIGGER_FRONT: u32 = 3;

/// struct sis8300_setup
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Setup {
    pub size: u32,
    pub channels: u32,
    pub samples: u64,
    pub pretrigger: u32,
    pub clock: u32,
    pub divider: u32,
    pub trigger: u32,
    pub trigger_lines: u32,
    pub trigger_falling: u32,
    pub start: [u64; SIS8300_CHANNELS as usize],
    pub reserved: [u64; 4],
}

/// struct sis8300_arm
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Arm {
    pub size: u32,
    pub reserved: u32,
    pub sequence: u64,
    pub time_ns: u64,
}

pub const SIS8300_WAIT_POLL: u32 = 0x1;

/// struct sis8300_end
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct End {
    pub size: u32,
    pub flags: u32,
    pub timeout_ms: u32,
    pub poll_us: u32,
    pub sequence: u64,
    pub time_ns: u64,
    pub wakeup_ns: u64,
    pub polls: u32,
    pub lost_interrupt: u32,
    pub reserved: [u64; 2],
}

/// struct sis8300_stats
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    pub size: u32,
    pub reset: u32,
    pub acquisitions: u64,
    pub dmas: u64,
    pub dma_bytes: u64,
    pub user_bytes: u64,
    pub dma_ns: u64,
    pub dma_ns_max: u64,
    pub wakeup_ns: u64,
    pub wakeup_ns_max: u64,
    pub copy_ns: u64,
    pub setup_ns: u64,
    pub map_ns: u64,
    pub interrupts: u64,
    pub lost_interrupts: u64,
    pub timeouts: u64,
    pub short_dmas: u64,
    pub stalls: u64,
    pub stall_ns: u64,
    pub reserved: [u64; 4],
}

pub const SIS8300_RING_BUFFERS_MIN: u32 = 2;
pub const SIS8300_RING_BUFFERS_MAX: u32 = 64;

/// struct sis8300_ring_setup
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RingSetup {
    pub size: u32,
    pub buffers: u32,
    pub buffer_bytes: u32,
    pub stride: u32,
    pub reserved: [u64; 2],
}

pub const SIS8300_RING_TRIGGERED: u32 = 0x1;

/// struct sis8300_ring_start
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RingStart {
    pub size: u32,
    pub flags: u32,
    pub address: u64,
    pub bytes: u64,
    pub passes: u64,
    pub timeout_ms: u32,
    pub reserved0: u32,
    pub reserved: [u64; 2],
}

/// struct sis8300_ring_next
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RingNext {
    pub size: u32,
    pub timeout_ms: u32,
    pub release: u64,
    pub number: u64,
    pub address: u64,
    pub bytes: u32,
    pub flags: u32,
    pub pass: u64,
    pub end_ns: u64,
    pub dma_ns: u64,
    pub trigger_ns: u64,
    pub reserved: [u64; 2],
}

pub const SIS8300_IOC_INFO: Ioctl = _IOWR::<Info>(SIS8300_IOC_MAGIC, 0x40);
pub const SIS8300_IOC_SETUP: Ioctl = _IOWR::<Setup>(SIS8300_IOC_MAGIC, 0x41);
pub const SIS8300_IOC_GET_SETUP: Ioctl = _IOWR::<Setup>(SIS8300_IOC_MAGIC, 0x42);
pub const SIS8300_IOC_ARM: Ioctl = _IOWR::<Arm>(SIS8300_IOC_MAGIC, 0x43);
pub const SIS8300_IOC_DISARM: Ioctl = _IO(SIS8300_IOC_MAGIC, 0x44);
pub const SIS8300_IOC_WAIT_END: Ioctl = _IOWR::<End>(SIS8300_IOC_MAGIC, 0x45);
pub const SIS8300_IOC_STATS: Ioctl = _IOWR::<Stats>(SIS8300_IOC_MAGIC, 0x46);
pub const SIS8300_IOC_RING_SETUP: Ioctl = _IOWR::<RingSetup>(SIS8300_IOC_MAGIC, 0x47);
pub const SIS8300_IOC_RING_START: Ioctl = _IOWR::<RingStart>(SIS8300_IOC_MAGIC, 0x48);
pub const SIS8300_IOC_RING_NEXT: Ioctl = _IOWR::<RingNext>(SIS8300_IOC_MAGIC, 0x49);
pub const SIS8300_IOC_RING_STOP: Ioctl = _IO(SIS8300_IOC_MAGIC, 0x4a);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::{Beliefs, constants, structure};

    #[test]
    fn every_size_offset_and_number_is_that_of_the_c_header() {
        let mut beliefs = Beliefs::default();
        structure!(beliefs, "sis8300_reg", Reg, [offset, data]);
        // Its second field has a name that is a word of Rust.
        beliefs.number("sizeof sis8300_wait", "sizeof(struct sis8300_wait)", size_of::<Wait>() as u64);
        let offset = std::mem::offset_of!(Wait, kind) as u64;
        beliefs.number("sis8300_wait.type", "offsetof(struct sis8300_wait, type)", offset);
        let offset = std::mem::offset_of!(Wait, status) as u64;
        beliefs.number("sis8300_wait.status", "offsetof(struct sis8300_wait, status)", offset);
        structure!(
            beliefs,
            "sis8300_info",
            Info,
            [
                size,
                abi,
                domain,
                bus,
                devfn,
                vendor,
                device,
                channels,
                module_id,
                serial,
                options,
                flags,
                chunk_bytes,
                memory_bytes,
                block_samples,
                dma_timeout_ms,
                reserved
            ]
        );
        structure!(
            beliefs,
            "sis8300_setup",
            Setup,
            [
                size,
                channels,
                samples,
                pretrigger,
                clock,
                divider,
                trigger,
                trigger_lines,
                trigger_falling,
                start,
                reserved
            ]
        );
        structure!(beliefs, "sis8300_arm", Arm, [size, reserved, sequence, time_ns]);
        structure!(
            beliefs,
            "sis8300_end",
            End,
            [size, flags, timeout_ms, poll_us, sequence, time_ns, wakeup_ns, polls, lost_interrupt, reserved]
        );
        structure!(
            beliefs,
            "sis8300_stats",
            Stats,
            [
                size,
                reset,
                acquisitions,
                dmas,
                dma_bytes,
                user_bytes,
                dma_ns,
                dma_ns_max,
                wakeup_ns,
                wakeup_ns_max,
                copy_ns,
                setup_ns,
                map_ns,
                interrupts,
                lost_interrupts,
                timeouts,
                short_dmas,
                stalls,
                stall_ns,
                reserved
            ]
        );
        structure!(beliefs, "sis8300_ring_setup", RingSetup, [size, buffers, buffer_bytes, stride, reserved]);
        structure!(
            beliefs,
            "sis8300_ring_start",
            RingStart,
            [size, flags, address, bytes, passes, timeout_ms, reserved0, reserved]
        );
        structure!(
            beliefs,
            "sis8300_ring_next",
            RingNext,
            [size, timeout_ms, release, number, address, bytes, flags, pass, end_ns, dma_ns, trigger_ns, reserved]
        );
        constants!(
            beliefs,
            [
                SIS8300_ABI,
                SIS8300_CHANNELS,
                SIS8300_BLOCK_SAMPLES,
                SIS8300_BLOCK_BYTES,
                SIS8300_ALIGN,
                SIS8300_DMA_ALIGN,
                SIS8300_PRETRIGGER_MAX,
                SIS8300_WAIT_DAQ,
                SIS8300_WAIT_USER,
                SIS8300_WAIT_OK,
                SIS8300_WAIT_RELEASED,
                SIS8300_WAIT_TIMEOUT,
                SIS8300_WAIT_ERROR,
                SIS8300_IOC_MAGIC,
                SIS8300_REG_READ,
                SIS8300_REG_WRITE,
                SIS8300_WAIT,
                SIS8300_RELEASE,
                SIS8300_INFO_MSI,
                SIS8300_INFO_DAQ_IRQ,
                SIS8300_CLOCK_INTERNAL,
                SIS8300_CLOCK_RTM,
                SIS8300_CLOCK_SMA,
                SIS8300_CLOCK_HARLINK,
                SIS8300_CLOCK_TCLKA,
                SIS8300_CLOCK_TCLKB,
                SIS8300_CLOCK_KEEP,
                SIS8300_TRIGGER_NOW,
                SIS8300_TRIGGER_INTERNAL,
                SIS8300_TRIGGER_MLVDS,
                SIS8300_TRIGGER_FRONT,
                SIS8300_WAIT_POLL,
                SIS8300_RING_BUFFERS_MIN,
                SIS8300_RING_BUFFERS_MAX,
                SIS8300_RING_TRIGGERED,
                SIS8300_IOC_INFO,
                SIS8300_IOC_SETUP,
                SIS8300_IOC_GET_SETUP,
                SIS8300_IOC_ARM,
                SIS8300_IOC_DISARM,
                SIS8300_IOC_WAIT_END,
                SIS8300_IOC_STATS,
                SIS8300_IOC_RING_SETUP,
                SIS8300_IOC_RING_START,
                SIS8300_IOC_RING_NEXT,
                SIS8300_IOC_RING_STOP
            ]
        );
        beliefs.hold_against("linux/sis8300.h", "SIS8300_");
    }
}
