//! kmod/include/uapi/linux/sis8300.h in Rust. A test compiles the header and compares every size, offset and number.
#![allow(missing_docs, reason = "the header documents every field; two copies of the text would drift apart")]

use libc::{_IO, _IOWR, Ioctl};

use crate::header::mirror;

mirror! {
    const {
        u32: SIS8300_ABI = 1, SIS8300_CHANNELS = 10, SIS8300_BLOCK_SAMPLES = 16, SIS8300_BLOCK_BYTES = 32,
            SIS8300_ALIGN = 16, SIS8300_DMA_ALIGN = 64, SIS8300_PRETRIGGER_MAX = 2046;
        // enum sis8300_wait_type
        u32: SIS8300_WAIT_DAQ = 0, SIS8300_WAIT_USER = 1;
        // enum sis8300_wait_status
        u32: SIS8300_WAIT_OK = 0, SIS8300_WAIT_RELEASED = 1, SIS8300_WAIT_TIMEOUT = 2, SIS8300_WAIT_ERROR = 3;
        u32: SIS8300_IOC_MAGIC = b's' as u32;
        Ioctl: SIS8300_REG_READ = _IOWR::<Reg>(SIS8300_IOC_MAGIC, 0);
        Ioctl: SIS8300_REG_WRITE = _IOWR::<Reg>(SIS8300_IOC_MAGIC, 1);
        Ioctl: SIS8300_WAIT = _IOWR::<Wait>(SIS8300_IOC_MAGIC, 2);
        Ioctl: SIS8300_RELEASE = _IOWR::<Wait>(SIS8300_IOC_MAGIC, 3);
        u32: SIS8300_INFO_MSI = 0x1, SIS8300_INFO_DAQ_IRQ = 0x2;
        // enum sis8300_clock
        u32: SIS8300_CLOCK_INTERNAL = 0, SIS8300_CLOCK_RTM = 1, SIS8300_CLOCK_SMA = 2, SIS8300_CLOCK_HARLINK = 3,
            SIS8300_CLOCK_TCLKA = 4, SIS8300_CLOCK_TCLKB = 5, SIS8300_CLOCK_KEEP = 6;
        // enum sis8300_trigger
        u32: SIS8300_TRIGGER_NOW = 0, SIS8300_TRIGGER_INTERNAL = 1, SIS8300_TRIGGER_MLVDS = 2, SIS8300_TRIGGER_FRONT = 3;
        u32: SIS8300_WAIT_POLL = 0x1;
        u32: SIS8300_RING_BUFFERS_MIN = 2, SIS8300_RING_BUFFERS_MAX = 64;
        u32: SIS8300_RING_TRIGGERED = 0x1;
        Ioctl: SIS8300_IOC_INFO = _IOWR::<Info>(SIS8300_IOC_MAGIC, 0x40);
        Ioctl: SIS8300_IOC_SETUP = _IOWR::<Setup>(SIS8300_IOC_MAGIC, 0x41);
        Ioctl: SIS8300_IOC_GET_SETUP = _IOWR::<Setup>(SIS8300_IOC_MAGIC, 0x42);
        Ioctl: SIS8300_IOC_ARM = _IOWR::<Arm>(SIS8300_IOC_MAGIC, 0x43);
        Ioctl: SIS8300_IOC_DISARM = _IO(SIS8300_IOC_MAGIC, 0x44);
        Ioctl: SIS8300_IOC_WAIT_END = _IOWR::<End>(SIS8300_IOC_MAGIC, 0x45);
        Ioctl: SIS8300_IOC_STATS = _IOWR::<Stats>(SIS8300_IOC_MAGIC, 0x46);
        Ioctl: SIS8300_IOC_RING_SETUP = _IOWR::<RingSetup>(SIS8300_IOC_MAGIC, 0x47);
        Ioctl: SIS8300_IOC_RING_START = _IOWR::<RingStart>(SIS8300_IOC_MAGIC, 0x48);
        Ioctl: SIS8300_IOC_RING_NEXT = _IOWR::<RingNext>(SIS8300_IOC_MAGIC, 0x49);
        Ioctl: SIS8300_IOC_RING_STOP = _IO(SIS8300_IOC_MAGIC, 0x4a);
    }
    struct Reg = sis8300_reg { offset: u32, data: u32 }
    struct Wait = sis8300_wait { timeout_ms: u32, r#type: u32, status: u32 }
    struct Info = sis8300_info {
        size: u32,
        abi: u32,
        domain: u32,
        bus: u8,
        devfn: u8,
        vendor: u16,
        device: u16,
        channels: u16,
        module_id: u32,
        serial: u32,
        options: u32,
        flags: u32,
        chunk_bytes: u32,
        memory_bytes: u64,
        block_samples: u32,
        dma_timeout_ms: u32,
        reserved: [u32; 6],
    }
    struct Setup = sis8300_setup {
        size: u32,
        channels: u32,
        samples: u64,
        pretrigger: u32,
        clock: u32,
        divider: u32,
        trigger: u32,
        trigger_lines: u32,
        trigger_falling: u32,
        start: [u64; SIS8300_CHANNELS as usize],
        reserved: [u64; 4],
    }
    struct Arm = sis8300_arm { size: u32, reserved: u32, sequence: u64, time_ns: u64 }
    struct End = sis8300_end {
        size: u32,
        flags: u32,
        timeout_ms: u32,
        poll_us: u32,
        sequence: u64,
        time_ns: u64,
        wakeup_ns: u64,
        polls: u32,
        lost_interrupt: u32,
        reserved: [u64; 2],
    }
    struct Stats = sis8300_stats {
        size: u32,
        reset: u32,
        acquisitions: u64,
        dmas: u64,
        dma_bytes: u64,
        user_bytes: u64,
        dma_ns: u64,
        dma_ns_max: u64,
        wakeup_ns: u64,
        wakeup_ns_max: u64,
        copy_ns: u64,
        setup_ns: u64,
        map_ns: u64,
        interrupts: u64,
        lost_interrupts: u64,
        timeouts: u64,
        short_dmas: u64,
        stalls: u64,
        stall_ns: u64,
        reserved: [u64; 4],
    }
    struct RingSetup = sis8300_ring_setup {
        size: u32,
        buffers: u32,
        buffer_bytes: u32,
        stride: u32,
        reserved: [u64; 2],
    }
    struct RingStart = sis8300_ring_start {
        size: u32,
        flags: u32,
        address: u64,
        bytes: u64,
        passes: u64,
        timeout_ms: u32,
        reserved0: u32,
        reserved: [u64; 2],
    }
    struct RingNext = sis8300_ring_next {
        size: u32,
        timeout_ms: u32,
        release: u64,
        number: u64,
        address: u64,
        bytes: u32,
        flags: u32,
        pass: u64,
        end_ns: u64,
        dma_ns: u64,
        trigger_ns: u64,
        reserved: [u64; 2],
    }
}

#[cfg(test)]
#[test]
fn every_size_offset_and_number_is_that_of_the_c_header() {
    crate::header::hold_against("linux/sis8300.h", "SIS8300_", believe);
}
