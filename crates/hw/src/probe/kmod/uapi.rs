//! kmod/include/uapi/linux/pcilat.h in Rust. A test compiles the header and compares every size, offset and number.
#![allow(missing_docs, reason = "the header documents every field; two copies of the text would drift apart")]

use libc::{_IOW, _IOWR, Ioctl};

use crate::header::mirror;

mirror! {
    const {
        u32: PCILAT_ABI = 1;
        u32: PCILAT_HIST_SUB_BITS = 8;
        u32: PCILAT_HIST_MAX_BITS = 40;
        u32: PCILAT_HIST_BUCKETS = (PCILAT_HIST_MAX_BITS - PCILAT_HIST_SUB_BITS + 1) << PCILAT_HIST_SUB_BITS;
        // enum pcilat_clock
        u32: PCILAT_CLOCK_TSC = 1, PCILAT_CLOCK_CNTVCT = 2;
        // enum pcilat_irq_type
        u32: PCILAT_IRQ_NONE = 0, PCILAT_IRQ_INTX = 1, PCILAT_IRQ_MSI = 2, PCILAT_IRQ_MSIX = 3;
        // enum pcilat_source
        u32: PCILAT_SOURCE_HARDWARE = 1, PCILAT_SOURCE_RETRIGGER = 2, PCILAT_SOURCE_INJECT = 3;
        // enum pcilat_kind
        u32: PCILAT_KIND_READ = 1, PCILAT_KIND_WRITE = 2, PCILAT_KIND_WRITE_READ = 3, PCILAT_KIND_CONFIG = 4,
            PCILAT_KIND_IRQ = 5;
        // enum pcilat_order
        u32: PCILAT_ORDER_SEQUENTIAL = 1, PCILAT_ORDER_INTERLEAVED = 2, PCILAT_ORDER_CONCURRENT = 3;
        // enum pcilat_state
        u32: PCILAT_STATE_IDLE = 0, PCILAT_STATE_RUNNING = 1, PCILAT_STATE_DONE = 2, PCILAT_STATE_FAILED = 3;
        // enum pcilat_what
        u32: PCILAT_WHAT_LATENCY = 0, PCILAT_WHAT_ACK = 1, PCILAT_WHAT_CALIBRATION = 2, PCILAT_WHATS = 3;
        // enum pcilat_record_kind
        u32: PCILAT_RECORD_LATENCY = 0, PCILAT_RECORD_TRIGGER = 1, PCILAT_RECORD_ACK = 2,
            PCILAT_RECORD_CODE = 3;
        u32: PCILAT_BAR_PRESENT = 1 << 0, PCILAT_BAR_MEMORY = 1 << 1, PCILAT_BAR_64BIT = 1 << 2,
            PCILAT_BAR_PREFETCH = 1 << 3, PCILAT_RUN_RAW = 1 << 0, PCILAT_RUN_ONES_OK = 1 << 1;
        Ioctl: PCILAT_IOC_INFO = _IOWR::<Info>(0xb7, 0);
        Ioctl: PCILAT_IOC_RUN = _IOW::<Run>(0xb7, 1);
        Ioctl: PCILAT_IOC_STATUS = _IOWR::<Status>(0xb7, 2);
        Ioctl: PCILAT_IOC_SLOT = _IOWR::<Slot>(0xb7, 3);
        Ioctl: PCILAT_IOC_HIST = _IOW::<Hist>(0xb7, 4);
        Ioctl: PCILAT_IOC_REG = _IOWR::<Reg>(0xb7, 5);
    }
    struct Bar = pcilat_bar { size: u64, flags: u32, reserved: u32 }
    struct Info = pcilat_info {
        size: u32,
        abi: u32,
        domain: u32,
        bus: u8,
        devfn: u8,
        vendor: u16,
        device: u16,
        subsystem_vendor: u16,
        subsystem_device: u16,
        reserved0: u16,
        class_code: u32,
        clock: u32,
        clock_hz: u64,
        irq_type: u32,
        vectors: u32,
        sources: u32,
        ring_records: u32,
        batch_max_ns: u32,
        hops: u32,
        bars: [Bar; 6],
        trigger: [u8; 32],
        reserved: [u64; 4],
    }
    struct Run = pcilat_run {
        size: u32,
        kind: u32,
        flags: u32,
        order: u32,
        cpus: u64,
        ncpus: u32,
        rounds: u32,
        count: u64,
        duration_ns: u64,
        gap_ns: u32,
        batch: u32,
        bar: u32,
        width: u32,
        offset: u64,
        value: u64,
        vectors: u64,
        nvectors: u32,
        source: u32,
        trigger_cpu: i32,
        warmup: u32,
        interval_ns: u64,
        timeout_ns: u64,
        reserved: [u64; 4],
    }
    struct Status = pcilat_status {
        size: u32,
        state: u32,
        error: i32,
        error_cpu: i32,
        error_offset: u64,
        done: u64,
        total: u64,
        elapsed_ns: u64,
        slots: u32,
        present: u32,
        raw_written: u64,
        raw_lost: u64,
        start: u64,
        reserved: [u64; 3],
    }
    struct Summary = pcilat_summary {
        count: u64,
        overflow: u64,
        min: u64,
        max: u64,
        min_at: u64,
        max_at: u64,
        sum_low: u64,
        sum_high: u64,
    }
    struct Slot = pcilat_slot {
        size: u32,
        slot: u32,
        cpu: u32,
        index: u32,
        domain: u32,
        bus: u8,
        devfn: u8,
        reserved0: u16,
        irq: u32,
        error: i32,
        summary: [Summary; PCILAT_WHATS as usize],
        triggers: u64,
        handled: u64,
        lost: u64,
        extra: u64,
        wrong_cpu: u64,
        late: u64,
        missed: u64,
        merged: u64,
        samples_lost: u64,
        accesses: u64,
        warmup_triggers: u64,
        warmup_handled: u64,
        config_offset: u64,
    }
    struct Hist = pcilat_hist {
        size: u32,
        slot: u32,
        what: u32,
        first: u32,
        count: u32,
        reserved0: u32,
        buckets: u64,
    }
    struct Reg = pcilat_reg { size: u32, write: u32, bar: u32, width: u32, offset: u64, value: u64 }
    struct Record = pcilat_record { at: u64, value: u32, cpu: u16, kind_index: u16 }
}

#[cfg(test)]
#[test]
fn every_size_offset_and_number_is_that_of_the_c_header() {
    crate::header::hold_against("linux/pcilat.h", "PCILAT_", believe);
}
