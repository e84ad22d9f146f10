//! kmod/include/uapi/linux/pcilat.h in Rust. A test compiles the header and compares every size, offset and number.
#![allow(missing_docs, reason = "the header documents every field; two copies of the text would drift apart")]

use libc::{_IOW, _IOWR, Ioctl};

pub const PCILAT_ABI: u32 = 1;
pub const PCILAT_HIST_SUB_BITS: u32 = 8;
pub const PCILAT_HIST_MAX_BITS: u32 = 40;
pub const PCILAT_HIST_BUCKETS: u32 = (PCILAT_HIST_MAX_BITS - PCILAT_HIST_SUB_BITS + 1) << PCILAT_HIST_SUB_BITS;

// enum pcilat_clock
pub const PCILAT_CLOCK_TSC: u32 = 1;
pub const PCILAT_CLOCK_CNTVCT: u32 = 2;

// enum pcilat_irq_type
pub const PCILAT_IRQ_NONE: u32 = 0;
pub const PCILAT_IRQ_INTX: u32 = 1;
pub const PCILAT_IRQ_MSI: u32 = 2;
pub const PCILAT_IRQ_MSIX: u32 = 3;

// enum pcilat_source
pub const PCILAT_SOURCE_HARDWARE: u32 = 1;
pub const PCILAT_SOURCE_RETRIGGER: u32 = 2;
pub const PCILAT_SOURCE_INJECT: u32 = 3;

// enum pcilat_kind
pub const PCILAT_KIND_READ: u32 = 1;
pub const PCILAT_KIND_WRITE: u32 = 2;
pub const PCILAT_KIND_WRITE_READ: u32 = 3;
pub const PCILAT_KIND_CONFIG: u32 = 4;
pub const PCILAT_KIND_IRQ: u32 = 5;

// enum pcilat_order
pub const PCILAT_ORDER_SEQUENTIAL: u32 = 1;
pub const PCILAT_ORDER_INTERLEAVED: u32 = 2;
pub const PCILAT_ORDER_CONCURRENT: u32 = 3;

// enum pcilat_state
pub const PCILAT_STATE_IDLE: u32 = 0;
pub const PCILAT_STATE_RUNNING: u32 = 1;
pub const PCILAT_STATE_DONE: u32 = 2;
pub const PCILAT_STATE_FAILED: u32 = 3;

// enum pcilat_what
pub const PCILAT_WHAT_LATENCY: u32 = 0;
pub const PCILAT_WHAT_ACK: u32 = 1;
pub const PCILAT_WHAT_CALIBRATION: u32 = 2;
pub const PCILAT_WHATS: u32 = 3;

// enum pcilat_record_kind
pub const PCILAT_RECORD_LATENCY: u32 = 0;
pub const PCILAT_RECORD_TRIGGER: u32 = 1;
pub const PCILAT_RECORD_ACK: u32 = 2;

pub const PCILAT_BAR_PRESENT: u32 = 1 << 0;
pub const PCILAT_BAR_MEMORY: u32 = 1 << 1;
pub const PCILAT_BAR_64BIT: u32 = 1 << 2;
pub const PCILAT_BAR_PREFETCH: u32 = 1 << 3;
pub const PCILAT_RUN_RAW: u32 = 1 << 0;
pub const PCILAT_RUN_ONES_OK: u32 = 1 << 1;

/// struct pcilat_bar
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bar {
    pub size: u64,
    pub flags: u32,
    pub reserved: u32,
}

/// struct pcilat_info
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
    pub subsystem_vendor: u16,
    pub subsystem_device: u16,
    pub reserved0: u16,
    pub class_code: u32,
    pub clock: u32,
    pub clock_hz: u64,
    pub irq_type: u32,
    pub vectors: u32,
    pub sources: u32,
    pub ring_records: u32,
    pub batch_max_ns: u32,
    pub hops: u32,
    pub bars: [Bar; 6],
    pub trigger: [u8; 32],
    pub reserved: [u64; 4],
}

/// struct pcilat_run
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Run {
    pub size: u32,
    pub kind: u32,
    pub flags: u32,
    pub order: u32,
    pub cpus: u64,
    pub ncpus: u32,
    pub rounds: u32,
    pub count: u64,
    pub duration_ns: u64,
    pub gap_ns: u32,
    pub batch: u32,
    pub bar: u32,
    pub width: u32,
    pub offset: u64,
    pub value: u64,
    pub vectors: u64,
    pub nvectors: u32,
    pub source: u32,
    pub trigger_cpu: i32,
    pub warmup: u32,
    pub interval_ns: u64,
    pub timeout_ns: u64,
    pub reserved: [u64; 4],
}

/// struct pcilat_status
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Status {
    pub size: u32,
    pub state: u32,
    pub error: i32,
    pub error_cpu: i32,
    pub error_offset: u64,
    pub done: u64,
    pub total: u64,
    pub elapsed_ns: u64,
    pub slots: u32,
    pub present: u32,
    pub raw_written: u64,
    pub raw_lost: u64,
    pub reserved: [u64; 4],
}

/// struct pcilat_summary
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    pub count: u64,
    pub overflow: u64,
    pub min: u64,
    pub max: u64,
    pub min_at: u64,
    pub max_at: u64,
    pub sum_low: u64,
    pub sum_high: u64,
}

/// struct pcilat_slot
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slot {
    pub size: u32,
    pub slot: u32,
    pub cpu: u32,
    pub index: u32,
    pub domain: u32,
    pub bus: u8,
    pub devfn: u8,
    pub reserved0: u16,
    pub irq: u32,
    pub error: i32,
    pub summary: [Summary; PCILAT_WHATS as usize],
    pub triggers: u64,
    pub handled: u64,
    pub lost: u64,
    pub extra: u64,
    pub wrong_cpu: u64,
    pub late: u64,
    pub missed: u64,
    pub merged: u64,
    pub samples_lost: u64,
    pub accesses: u64,
    pub warmup_triggers: u64,
    pub warmup_handled: u64,
    pub config_offset: u64,
}

/// struct pcilat_hist
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hist {
    pub size: u32,
    pub slot: u32,
    pub what: u32,
    pub first: u32,
    pub count: u32,
    pub reserved0: u32,
    pub buckets: u64,
}

/// struct pcilat_reg
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reg {
    pub size: u32,
    pub write: u32,
    pub bar: u32,
    pub width: u32,
    pub offset: u64,
    pub value: u64,
}

/// struct pcilat_record
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Record {
    pub at: u64,
    pub value: u32,
    pub cpu: u16,
    pub kind_index: u16,
}

pub const PCILAT_IOC_INFO: Ioctl = _IOWR::<Info>(0xb7, 0);
pub const PCILAT_IOC_RUN: Ioctl = _IOW::<Run>(0xb7, 1);
pub const PCILAT_IOC_STATUS: Ioctl = _IOWR::<Status>(0xb7, 2);
pub const PCILAT_IOC_SLOT: Ioctl = _IOWR::<Slot>(0xb7, 3);
pub const PCILAT_IOC_HIST: Ioctl = _IOW::<Hist>(0xb7, 4);
pub const PCILAT_IOC_REG: Ioctl = _IOWR::<Reg>(0xb7, 5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::{Beliefs, constants, structure};

    #[test]
    fn every_size_offset_and_number_is_that_of_the_c_header() {
        let mut beliefs = Beliefs::default();
        structure!(beliefs, "pcilat_bar", Bar, [size, flags, reserved]);
        structure!(
            beliefs,
            "pcilat_info",
            Info,
            [
                size,
                abi,
                domain,
                bus,
                devfn,
                vendor,
                device,
                subsystem_vendor,
                subsystem_device,
                reserved0,
                class_code,
                clock,
                clock_hz,
                irq_type,
                vectors,
                sources,
                ring_records,
                batch_max_ns,
                hops,
                bars,
                trigger,
                reserved
            ]
        );
        structure!(
            beliefs,
            "pcilat_run",
            Run,
            [
                size,
                kind,
                flags,
                order,
                cpus,
                ncpus,
                rounds,
                count,
                duration_ns,
                gap_ns,
                batch,
                bar,
                width,
                offset,
                value,
                vectors,
                nvectors,
                source,
                trigger_cpu,
                warmup,
                interval_ns,
                timeout_ns,
                reserved
            ]
        );
        structure!(
            beliefs,
            "pcilat_status",
            Status,
            [
                size,
                state,
                error,
                error_cpu,
                error_offset,
                done,
                total,
                elapsed_ns,
                slots,
                present,
                raw_written,
                raw_lost,
                reserved
            ]
        );
        structure!(beliefs, "pcilat_summary", Summary, [count, overflow, min, max, min_at, max_at, sum_low, sum_high]);
        structure!(
            beliefs,
            "pcilat_slot",
            Slot,
            [
                size,
                slot,
                cpu,
                index,
                domain,
                bus,
                devfn,
                reserved0,
                irq,
                error,
                summary,
                triggers,
                handled,
                lost,
                extra,
                wrong_cpu,
                late,
                missed,
                merged,
                samples_lost,
                accesses,
                warmup_triggers,
                warmup_handled,
                config_offset
            ]
        );
        structure!(beliefs, "pcilat_hist", Hist, [size, slot, what, first, count, reserved0, buckets]);
        structure!(beliefs, "pcilat_reg", Reg, [size, write, bar, width, offset, value]);
        structure!(beliefs, "pcilat_record", Record, [at, value, cpu, kind_index]);
        constants!(
            beliefs,
            [
                PCILAT_ABI,
                PCILAT_HIST_SUB_BITS,
                PCILAT_HIST_MAX_BITS,
                PCILAT_HIST_BUCKETS,
                PCILAT_CLOCK_TSC,
                PCILAT_CLOCK_CNTVCT,
                PCILAT_IRQ_NONE,
                PCILAT_IRQ_INTX,
                PCILAT_IRQ_MSI,
                PCILAT_IRQ_MSIX,
                PCILAT_SOURCE_HARDWARE,
                PCILAT_SOURCE_RETRIGGER,
                PCILAT_SOURCE_INJECT,
                PCILAT_KIND_READ,
                PCILAT_KIND_WRITE,
                PCILAT_KIND_WRITE_READ,
                PCILAT_KIND_CONFIG,
                PCILAT_KIND_IRQ,
                PCILAT_ORDER_SEQUENTIAL,
                PCILAT_ORDER_INTERLEAVED,
                PCILAT_ORDER_CONCURRENT,
                PCILAT_STATE_IDLE,
                PCILAT_STATE_RUNNING,
                PCILAT_STATE_DONE,
                PCILAT_STATE_FAILED,
                PCILAT_WHAT_LATENCY,
                PCILAT_WHAT_ACK,
                PCILAT_WHAT_CALIBRATION,
                PCILAT_WHATS,
                PCILAT_RECORD_LATENCY,
                PCILAT_RECORD_TRIGGER,
                PCILAT_RECORD_ACK,
                PCILAT_BAR_PRESENT,
                PCILAT_BAR_MEMORY,
                PCILAT_BAR_64BIT,
                PCILAT_BAR_PREFETCH,
                PCILAT_RUN_RAW,
                PCILAT_RUN_ONES_OK,
                PCILAT_IOC_INFO,
                PCILAT_IOC_RUN,
                PCILAT_IOC_STATUS,
                PCILAT_IOC_SLOT,
                PCILAT_IOC_HIST,
                PCILAT_IOC_REG
            ]
        );

        beliefs.hold_against("linux/pcilat.h", "PCILAT_");
    }
}
