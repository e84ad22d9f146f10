/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * pcilat: PCIe latency from every CPU. The contract between the kernel module
 * and its users; docs/uapi.md explains it.
 *
 * All fields are of fixed width and naturally aligned, there are no holes, and
 * reserved fields and fields that a kind of run does not use must be zero
 * (-EINVAL). `size` is the size of the structure as the caller knows it; the
 * module takes any size from the first version's up, and refuses non-zero
 * bytes beyond what it knows (-E2BIG).
 */
#ifndef _UAPI_LINUX_PCILAT_H
#define _UAPI_LINUX_PCILAT_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define PCILAT_ABI		1

/* Histograms: value v < 2^(SUB_BITS+1) is bucket v; above, with
 * shift = floor(log2(v)) - SUB_BITS, bucket (shift << SUB_BITS) + (v >> shift).
 * Values of 2^MAX_BITS and more are counted in the slot's `overflow` alone.
 */
#define PCILAT_HIST_SUB_BITS	8
#define PCILAT_HIST_MAX_BITS	40
#define PCILAT_HIST_BUCKETS	\
	((PCILAT_HIST_MAX_BITS - PCILAT_HIST_SUB_BITS + 1) << PCILAT_HIST_SUB_BITS)

enum pcilat_clock {
	PCILAT_CLOCK_TSC	= 1,	/* x86: lfence; rdtsc; lfence ... rdtscp; lfence */
	PCILAT_CLOCK_CNTVCT	= 2,	/* arm64: dsb ld; isb; cntvct; isb, twice */
};

enum pcilat_irq_type {
	PCILAT_IRQ_NONE		= 0,
	PCILAT_IRQ_INTX		= 1,
	PCILAT_IRQ_MSI		= 2,
	PCILAT_IRQ_MSIX		= 3,
};

enum pcilat_source {
	PCILAT_SOURCE_HARDWARE	= 1,	/* a register write makes the device send */
	PCILAT_SOURCE_RETRIGGER	= 2,	/* irq_chip_retrigger_hierarchy() */
	PCILAT_SOURCE_INJECT	= 3,	/* irq_inject_interrupt() */
};

#define PCILAT_BAR_PRESENT	0x1
#define PCILAT_BAR_MEMORY	0x2
#define PCILAT_BAR_64BIT	0x4
#define PCILAT_BAR_PREFETCH	0x8

struct pcilat_bar {
	__u64 size;		/* bytes */
	__u32 flags;		/* PCILAT_BAR_* */
	__u32 reserved;
};

/* PCILAT_IOC_INFO: the device and what can be done with it. */
struct pcilat_info {
	__u32 size;
	__u32 abi;		/* PCILAT_ABI */
	__u32 domain;
	__u8 bus;
	__u8 devfn;
	__u16 vendor;
	__u16 device;
	__u16 subsystem_vendor;
	__u16 subsystem_device;
	__u16 reserved0;
	__u32 class_code;	/* 24 bits */
	__u32 clock;		/* enum pcilat_clock */
	__u64 clock_hz;
	__u32 irq_type;		/* enum pcilat_irq_type */
	__u32 vectors;
	__u32 sources;		/* bit (1 << enum pcilat_source) */
	__u32 ring_records;	/* raw records that the ring holds */
	__u32 batch_max_ns;	/* longest time with interrupts off */
	__u32 hops;		/* functions from the root port to the device, both counted */
	struct pcilat_bar bars[6];
	char trigger[32];	/* name of the hardware trigger, "" if none */
	__u64 reserved[4];
};

enum pcilat_kind {
	PCILAT_KIND_READ	= 1,
	PCILAT_KIND_WRITE	= 2,
	PCILAT_KIND_WRITE_READ	= 3,
	PCILAT_KIND_CONFIG	= 4,	/* every hop from the root port down, in turn */
	PCILAT_KIND_IRQ		= 5,
};

enum pcilat_order {
	PCILAT_ORDER_SEQUENTIAL	 = 1,
	PCILAT_ORDER_INTERLEAVED = 2,
	PCILAT_ORDER_CONCURRENT	 = 3,	/* not for PCILAT_KIND_IRQ */
};

#define PCILAT_RUN_RAW		0x1	/* fill the ring of raw records */
#define PCILAT_RUN_ONES_OK	0x2	/* all-ones is a value the register may have */

/*
 * PCILAT_IOC_RUN: measure; returns when done. A second run on the same device
 * meanwhile gets -EBUSY. On an error, and when a signal ends the run (-EINTR),
 * what was measured before can still be fetched.
 *
 * errno: EINVAL a field, E2BIG a field that this module does not know, ERANGE
 * outside the BAR, EACCES a write to the MSI-X table or a read of 1 or 2 bytes
 * there, ENODEV unbound or removed, EIO all-ones read, ENXIO a CPU is offline or
 * went offline, EOPNOTSUPP the device or kernel lacks the source, the width or
 * the vectors, ETIMEDOUT no interrupt ever came, EPERM locked down, EBUSY a run
 * is under way or the BAR belongs to someone else, EFAULT, ENOMEM, EINTR.
 */
struct pcilat_run {
	__u32 size;
	__u32 kind;		/* enum pcilat_kind */
	__u32 flags;		/* PCILAT_RUN_* */
	__u32 order;		/* enum pcilat_order */
	__u64 cpus;		/* address of __u32[ncpus], each CPU once */
	__u32 ncpus;
	__u32 rounds;		/* interleaved: rounds, 1 or more; otherwise 0 */
	__u64 count;		/* samples per CPU (per CPU and hop, per CPU and vector) */
	__u64 duration_ns;	/* ends the run at this age; 0: no limit */
	__u32 gap_ns;		/* busy wait between samples */
	__u32 batch;		/* accesses between two stamps, 1 or more; IRQ: 0 */
	__u32 bar;		/* READ, WRITE, WRITE_READ */
	__u32 width;		/* 1, 2, 4, 8; CONFIG: 4 */
	__u64 offset;
	__u64 value;		/* WRITE, WRITE_READ */
	/* IRQ only, otherwise zero */
	__u64 vectors;		/* address of __u32[nvectors], each once */
	__u32 nvectors;
	__u32 source;		/* enum pcilat_source */
	__s32 trigger_cpu;	/* -1: the CPU that handles. Other kinds: 0 */
	__u32 warmup;		/* interrupts after each move of affinity, not counted */
	__u64 interval_ns;	/* absolute times of triggers; 0: one after the other */
	__u64 timeout_ns;	/* an interrupt later than this is lost */
	__u64 reserved[4];
};

enum pcilat_state {
	PCILAT_STATE_IDLE	= 0,	/* no run yet */
	PCILAT_STATE_RUNNING	= 1,
	PCILAT_STATE_DONE	= 2,
	PCILAT_STATE_FAILED	= 3,	/* `error` says why */
};

/* PCILAT_IOC_STATUS: the last or the present run. */
struct pcilat_status {
	__u32 size;
	__u32 state;		/* enum pcilat_state */
	__s32 error;		/* 0 or a negative errno */
	__s32 error_cpu;	/* CPU at which the run ended, -1 if none */
	__u64 error_offset;	/* EIO: the offset that read all-ones */
	__u64 done;		/* samples taken */
	__u64 total;		/* samples asked for; 0 if only time limits */
	__u64 elapsed_ns;
	__u32 slots;		/* see PCILAT_IOC_SLOT */
	__u32 present;		/* 1 if the device answered the last look at its ID */
	__u64 raw_written;	/* records written to the ring in this run */
	__u64 raw_lost;		/* records overwritten before they were read */
	__u64 start;		/* the clock at the run's start */
	__u64 reserved[3];
};

/* One histogram's exact side figures; all durations in ticks of the clock. */
struct pcilat_summary {
	__u64 count;
	__u64 overflow;		/* values too long for the buckets; in count, min, max and sum */
	__u64 min;
	__u64 max;
	__u64 min_at;		/* ticks since the run's start */
	__u64 max_at;
	__u64 sum_low;
	__u64 sum_high;
};

enum pcilat_what {
	PCILAT_WHAT_LATENCY	= 0,	/* see slot.accesses; IRQ: trigger to handler */
	PCILAT_WHAT_ACK		= 1,	/* IRQ: handler entry to acknowledge */
	PCILAT_WHAT_CALIBRATION	= 2,	/* the empty stamp pair, same CPU, same interrupt state */
	PCILAT_WHATS		= 3,
};

/*
 * PCILAT_IOC_SLOT: the figures of one CPU and one target. A run has
 * ncpus x targets slots, targets being 1, the hops, or the vectors, in the
 * order of the request: slot = cpu_position * targets + target_position.
 */
struct pcilat_slot {
	__u32 size;
	__u32 slot;		/* in: which */
	__u32 cpu;
	__u32 index;		/* hop or vector number */
	__u32 domain;		/* CONFIG: the function at this hop */
	__u8 bus;
	__u8 devfn;
	__u16 reserved0;
	__u32 irq;		/* IRQ: Linux interrupt number */
	/* IRQ: why the slot was given up: -ETIMEDOUT, -EINVAL affinity, -EOPNOTSUPP; 0 if not */
	__s32 error;
	struct pcilat_summary summary[PCILAT_WHATS];
	/* IRQ */
	__u64 triggers;		/* raised, warm-up left out */
	__u64 handled;		/* answered within the time-out on the right CPU */
	__u64 lost;		/* not answered within the time-out */
	__u64 extra;		/* handler runs without an open trigger */
	__u64 wrong_cpu;	/* answered on another CPU than asked for */
	/* Fixed rate: times at which the trigger came by over half an interval too late, */
	__u64 late;
	/* at which nothing was raised, being a whole interval late or the core being busy, */
	__u64 missed;
	__u64 merged;		/* and times at which the last one was still open: not raised */
	__u64 samples_lost;	/* should be 0: stamps taken but not recorded */
	/* Accesses that a LATENCY value, ring included, covers: the reader divides; 0 means 1. */
	__u64 accesses;
	__u64 warmup_triggers;	/* IRQ: raised before measuring; triggers leaves them out */
	__u64 warmup_handled;	/* IRQ: warm-up interrupts answered, on any CPU */
	/* CONFIG: what was read: 0x100, or 0 where the function has no extended space. */
	__u64 config_offset;
};

/* PCILAT_IOC_HIST: copies buckets [first, first + count) of a slot to user memory. */
struct pcilat_hist {
	__u32 size;
	__u32 slot;
	__u32 what;		/* enum pcilat_what */
	__u32 first;
	__u32 count;
	__u32 reserved0;
	__u64 buckets;		/* address of __u64[count] */
};

/* PCILAT_IOC_REG: one register access; the log of /dev/pcilatdriver keeps it. */
struct pcilat_reg {
	__u32 size;
	__u32 write;		/* 0 read, 1 write */
	__u32 bar;
	__u32 width;
	__u64 offset;
	__u64 value;		/* in when writing, out when reading */
};

enum pcilat_record_kind {
	PCILAT_RECORD_LATENCY	= 0,
	PCILAT_RECORD_TRIGGER	= 1,	/* trigger to handler */
	PCILAT_RECORD_ACK	= 2,	/* handler entry to acknowledge */
	PCILAT_RECORD_CODE	= 3,	/* kernel code that the last TRIGGER interrupted */
};

/* One raw record; 16 bytes. */
struct pcilat_record {
	__u64 at;		/* ticks since the run's start; CODE: an address */
	__u32 value;		/* ticks; 0xffffffff: longer, see the slot's max */
	__u16 cpu;
	__u16 kind_index;	/* kind in bits 15:14, hop or vector in 13:0 */
};

/*
 * The ring: read() takes records in order and returns 0 at the end; mmap() at
 * offset 0, read-only, maps info.ring_records records, where record n of the run
 * stands at n % ring_records; it is consistent once the run has ended.
 */
#define PCILAT_IOC_INFO		_IOWR(0xb7, 0, struct pcilat_info)
#define PCILAT_IOC_RUN		_IOW(0xb7, 1, struct pcilat_run)
#define PCILAT_IOC_STATUS	_IOWR(0xb7, 2, struct pcilat_status)
#define PCILAT_IOC_SLOT		_IOWR(0xb7, 3, struct pcilat_slot)
#define PCILAT_IOC_HIST		_IOW(0xb7, 4, struct pcilat_hist)
#define PCILAT_IOC_REG		_IOWR(0xb7, 5, struct pcilat_reg)

#endif /* _UAPI_LINUX_PCILAT_H */
