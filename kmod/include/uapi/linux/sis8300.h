/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * sis8300: Struck SIS8300 digitizers (L, L2, KU and the first SIS8300). The
 * contract between the kernel module and its users; docs/sis8300.md explains it.
 *
 * Node: /dev/sis8300-N, N = the physical slot number of the upstream port, or
 * /dev/sis8300-DDDD:BB:DD.F where the port has none (or the number is taken).
 *
 * read() and pread() copy card memory: the file position is a byte address of
 * the card, and must be a multiple of SIS8300_ALIGN as the count must be. They
 * return what was read before an error or a signal, and move the position by
 * it. write() and pwrite() do the same towards the card. lseek() has SEEK_SET,
 * SEEK_CUR and SEEK_END (the card's memory size). poll(): EPOLLIN when the last
 * acquisition that was armed has ended, or, once a ring is set up, when a
 * buffer is full; EPOLLERR when the ring stopped by an error; EPOLLHUP when the
 * board is gone.
 *
 * All fields are of fixed width and naturally aligned, there are no holes, and
 * reserved fields must be zero (-EINVAL). `size` is the size of the structure
 * as the caller knows it; the module takes any size from the first version's
 * up, and refuses non-zero bytes beyond what it knows (-E2BIG).
 *
 * errno of all: ENODEV the board is gone (all-ones, unplugged, unbound); EINVAL
 * a field; EBUSY another file acquires, reads by ring or holds the setting;
 * ETIMEDOUT the board did not finish in time; EIO the board stopped short;
 * EINTR a signal (nothing is lost: the engine was stopped or let to its end
 * before the call returned); EOPNOTSUPP this firmware or board lacks it; ENODATA
 * nothing was set up or armed, or nothing is left; ECANCELED the acquisition was
 * disarmed or armed anew; EPERM a register of the driver, a writable mapping;
 * ENOSPC write() at the memory's end.
 */
#ifndef _UAPI_LINUX_SIS8300_H
#define _UAPI_LINUX_SIS8300_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define SIS8300_ABI		1
#define SIS8300_CHANNELS	10
#define SIS8300_BLOCK_SAMPLES	16	/* samples per block of card memory */
#define SIS8300_BLOCK_BYTES	32
/*
 * Of addresses and counts of read() and write(), as tools of the ESS driver use
 * it. The engine moves multiples of 64 from multiples of 64, and the module copies
 * the part asked for.
 */
#define SIS8300_ALIGN		16
#define SIS8300_DMA_ALIGN	64
#define SIS8300_PRETRIGGER_MAX	2046

/*
 * The interface of the ESS driver: for tools written for it. The structures are
 * its; both directions, magic 's', numbers 0 to 3.
 */
struct sis8300_reg {
	__u32 offset;		/* word number: byte offset in BAR 0 divided by 4 */
	__u32 data;
};

enum sis8300_wait_type {
	SIS8300_WAIT_DAQ	= 0,	/* end of an acquisition */
	SIS8300_WAIT_USER	= 1,	/* the firmware's user interrupt */
};

enum sis8300_wait_status {
	SIS8300_WAIT_OK		= 0,
	SIS8300_WAIT_RELEASED	= 1,
	SIS8300_WAIT_TIMEOUT	= 2,
	SIS8300_WAIT_ERROR	= 3,
};

struct sis8300_wait {
	__u32 timeout_ms;	/* 0: for ever */
	__u32 type;		/* enum sis8300_wait_type */
	__u32 status;		/* out: enum sis8300_wait_status */
};

#define SIS8300_IOC_MAGIC	's'
#define SIS8300_REG_READ	_IOWR(SIS8300_IOC_MAGIC, 0, struct sis8300_reg)
#define SIS8300_REG_WRITE	_IOWR(SIS8300_IOC_MAGIC, 1, struct sis8300_reg)
#define SIS8300_WAIT		_IOWR(SIS8300_IOC_MAGIC, 2, struct sis8300_wait)
#define SIS8300_RELEASE		_IOWR(SIS8300_IOC_MAGIC, 3, struct sis8300_wait)

/* This module's own interface: numbers from 0x40. */

#define SIS8300_INFO_MSI	0x1	/* interrupts by message; else by pin */
#define SIS8300_INFO_DAQ_IRQ	0x2	/* the firmware signals the end of an acquisition */

/* SIS8300_IOC_INFO: the board. */
struct sis8300_info {
	__u32 size;
	__u32 abi;		/* SIS8300_ABI */
	__u32 domain;
	__u8 bus;
	__u8 devfn;
	__u16 vendor;
	__u16 device;
	__u16 channels;		/* SIS8300_CHANNELS */
	__u32 module_id;	/* register 0x00: 31:16 board, 15:8 version, 7:0 revision */
	__u32 serial;		/* register 0x01 */
	__u32 options;		/* register 0x05 */
	__u32 flags;		/* SIS8300_INFO_* */
	__u32 chunk_bytes;	/* of one DMA of read(): longer ones are several */
	__u64 memory_bytes;	/* of the card */
	__u32 block_samples;	/* an acquisition's length is a multiple of it: 16, KU 32 */
	__u32 dma_timeout_ms;	/* after which a DMA has failed, for one of chunk_bytes */
	__u32 reserved[6];
};

enum sis8300_clock {
	SIS8300_CLOCK_INTERNAL	= 0,	/* 250 MHz on board */
	SIS8300_CLOCK_RTM	= 1,
	SIS8300_CLOCK_SMA	= 2,
	SIS8300_CLOCK_HARLINK	= 3,
	SIS8300_CLOCK_TCLKA	= 4,
	SIS8300_CLOCK_TCLKB	= 5,
	SIS8300_CLOCK_KEEP	= 6,	/* leave clock and divider as they are */
};

enum sis8300_trigger {
	SIS8300_TRIGGER_NOW	 = 0,	/* arming starts it */
	SIS8300_TRIGGER_INTERNAL = 1,	/* the threshold logic of the channels */
	SIS8300_TRIGGER_MLVDS	 = 2,	/* backplane lines, `trigger_lines` */
	SIS8300_TRIGGER_FRONT	 = 3,	/* Harlink or RJ45 inputs, `trigger_lines` */
};

/*
 * SIS8300_IOC_SETUP: what the next acquisitions do; SIS8300_IOC_GET_SETUP:
 * what they do now. -EBUSY while one is armed or runs. SETUP gives back what it
 * set: samples rounded up to block_samples, the address of each channel.
 */
struct sis8300_setup {
	__u32 size;
	__u32 channels;		/* bit n: channel n, 0 to 9; at least one */
	__u64 samples;		/* per channel, from 1; rounded up */
	__u32 pretrigger;	/* samples before the trigger, 0 to SIS8300_PRETRIGGER_MAX */
	__u32 clock;		/* enum sis8300_clock */
	__u32 divider;		/* of the clock, 1 to 32; internal from 2 */
	__u32 trigger;		/* enum sis8300_trigger */
	__u32 trigger_lines;	/* bit n: line n; MLVDS 0 to 7, front 0 to 3 */
	__u32 trigger_falling;	/* bit n: line n triggers at its falling edge */
	/*
	 * out: byte address of the channel's first sample; all-ones for a channel
	 * that is off. The k-th channel that is on lies at k * samples * 2.
	 */
	__u64 start[SIS8300_CHANNELS];
	__u64 reserved[4];
};

/*
 * SIS8300_IOC_ARM: stop what is under way, forget its end, arm. From here to the
 * end of the acquisition the file holds the board: others get -EBUSY. No end
 * that comes after this call is lost, however late the wait.
 * SIS8300_IOC_DISARM: stop, let the board go. Closing the file does it too.
 */
struct sis8300_arm {
	__u32 size;
	__u32 reserved;
	__u64 sequence;		/* out: number of this acquisition on this board, from 1 */
	__u64 time_ns;		/* out: CLOCK_MONOTONIC, when the board was armed */
};

#define SIS8300_WAIT_POLL	0x1	/* the module reads the status register, sleeping
					 * poll_us between, instead of waiting for the interrupt
					 */

/*
 * SIS8300_IOC_WAIT_END: wait for the end of the acquisition that this file armed;
 * at once where it has ended. ETIMEDOUT leaves it armed. With interrupts, the
 * status register is read at the timeout too: an acquisition whose interrupt was
 * lost ends with lost_interrupt set, not with an error.
 */
struct sis8300_end {
	__u32 size;
	__u32 flags;		/* SIS8300_WAIT_POLL */
	__u32 timeout_ms;	/* 1 to 3600000 */
	__u32 poll_us;		/* 0 to 1000000; 0 without a pause */
	__u64 sequence;		/* out */
	__u64 time_ns;		/* out: CLOCK_MONOTONIC at the interrupt, or when it was seen */
	__u64 wakeup_ns;	/* out: from then to this thread's being awake */
	__u32 polls;		/* out: reads of the status register */
	__u32 lost_interrupt;	/* out: 1 if the end was found without its interrupt */
	__u64 reserved[2];
};

/*
 * SIS8300_IOC_STATS: since the file was opened, or since the last call with
 * `reset` set. Times are of this file's transfers only.
 */
struct sis8300_stats {
	__u32 size;
	__u32 reset;		/* 1: begin anew after this call */
	__u64 acquisitions;
	__u64 dmas;
	__u64 dma_bytes;	/* moved by the engine */
	__u64 user_bytes;	/* handed to user space by read() or ring, or taken by write() */
	__u64 dma_ns;		/* from the start bit to the interrupt */
	__u64 dma_ns_max;
	__u64 wakeup_ns;	/* from the interrupt to the waiting thread; ring: 0 */
	__u64 wakeup_ns_max;
	__u64 copy_ns;		/* from the DMA buffer to user space */
	__u64 setup_ns;		/* of the registers of each DMA, up to the start bit */
	__u64 map_ns;		/* of dma_sync and the like */
	__u64 interrupts;	/* of this board that were handled meanwhile, whosever they were */
	__u64 lost_interrupts;	/* ends found by the status register after a timeout */
	__u64 timeouts;
	__u64 short_dmas;	/* that stopped before their end */
	__u64 stalls;		/* ring: times that the engine waited for a free buffer */
	__u64 stall_ns;		/* ring: how long it waited */
	__u64 reserved[4];
};

#define SIS8300_RING_BUFFERS_MIN	2
#define SIS8300_RING_BUFFERS_MAX	64

/*
 * SIS8300_IOC_RING_SETUP: allocate DMA buffers. mmap() of the file at offset 0,
 * length buffers * stride, shows them, readable, MAP_SHARED. -EBUSY while they are
 * mapped or another ring of this file runs. buffers = 0 frees them.
 */
struct sis8300_ring_setup {
	__u32 size;
	__u32 buffers;		/* 0, or SIS8300_RING_BUFFERS_MIN to _MAX */
	__u32 buffer_bytes;	/* multiple of SIS8300_DMA_ALIGN; at most chunk_bytes */
	__u32 stride;		/* out: buffer_bytes rounded up to pages */
	__u64 reserved[2];
};

/*
 * SIS8300_IOC_RING_START: the engine fills one buffer after the other from
 * [address, address + bytes) of the card, `passes` times over, as long as there
 * is a free one; then it waits. The last buffer of a pass may be shorter.
 * With SIS8300_RING_TRIGGERED, a pass is: arm, wait for the end, read; the next
 * pass arms only once the last one's bytes have left the card. The trigger that comes
 * meanwhile finds no armed board: the times of the passes show it.
 * The file holds the engine: reads of others get -EBUSY.
 * SIS8300_IOC_RING_STOP: ends it; the buffers keep their content.
 */
#define SIS8300_RING_TRIGGERED	0x1

struct sis8300_ring_start {
	__u32 size;
	__u32 flags;		/* SIS8300_RING_* */
	__u64 address;		/* multiple of SIS8300_DMA_ALIGN */
	__u64 bytes;		/* multiple of SIS8300_DMA_ALIGN */
	__u64 passes;		/* 0: until stopped */
	__u32 timeout_ms;	/* triggered: for one acquisition, 1 to 3600000 */
	__u32 reserved0;
	__u64 reserved[2];
};

/*
 * SIS8300_IOC_RING_NEXT: give back the buffers up to and with `release` (their
 * numbers go up from 0; all-ones: none), then wait for the oldest full one that was
 * not handed out. -ENODATA: all passes were handed out. An error that stopped
 * the ring comes after the buffers that were filled before it.
 */
struct sis8300_ring_next {
	__u32 size;
	__u32 timeout_ms;	/* 0: do not wait (-EAGAIN); else up to 3600000 (-ETIMEDOUT) */
	__u64 release;
	__u64 number;		/* out: since RING_START; lies at stride * (number % buffers) */
	__u64 address;		/* out: card address of its first byte */
	__u32 bytes;		/* out */
	__u32 flags;		/* out: 0 */
	__u64 pass;		/* out: from 0 */
	__u64 end_ns;		/* out: CLOCK_MONOTONIC at the end of its DMA */
	__u64 dma_ns;		/* out: of its DMA */
	__u64 trigger_ns;	/* out: triggered: when the acquisition ended; else 0 */
	__u64 reserved[2];
};

#define SIS8300_IOC_INFO	_IOWR(SIS8300_IOC_MAGIC, 0x40, struct sis8300_info)
#define SIS8300_IOC_SETUP	_IOWR(SIS8300_IOC_MAGIC, 0x41, struct sis8300_setup)
#define SIS8300_IOC_GET_SETUP	_IOWR(SIS8300_IOC_MAGIC, 0x42, struct sis8300_setup)
#define SIS8300_IOC_ARM		_IOWR(SIS8300_IOC_MAGIC, 0x43, struct sis8300_arm)
#define SIS8300_IOC_DISARM	_IO(SIS8300_IOC_MAGIC, 0x44)
#define SIS8300_IOC_WAIT_END	_IOWR(SIS8300_IOC_MAGIC, 0x45, struct sis8300_end)
#define SIS8300_IOC_STATS	_IOWR(SIS8300_IOC_MAGIC, 0x46, struct sis8300_stats)
#define SIS8300_IOC_RING_SETUP	_IOWR(SIS8300_IOC_MAGIC, 0x47, struct sis8300_ring_setup)
#define SIS8300_IOC_RING_START	_IOWR(SIS8300_IOC_MAGIC, 0x48, struct sis8300_ring_start)
#define SIS8300_IOC_RING_NEXT	_IOWR(SIS8300_IOC_MAGIC, 0x49, struct sis8300_ring_next)
#define SIS8300_IOC_RING_STOP	_IO(SIS8300_IOC_MAGIC, 0x4a)

#endif /* _UAPI_LINUX_SIS8300_H */
