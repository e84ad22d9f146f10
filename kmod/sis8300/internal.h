/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the parts of the module share.
 *
 * Locks, outermost first:
 *   sis8300.reader > sis8300_file.lock > sis8300.setup_lock > sis8300.hw >
 *   sis8300.buffers_lock > sis8300.lock
 * mmap() takes sis8300_file.lock while the mmap lock is held. So only `reader` may be
 * held while user memory is accessed. No task waits for an event with `hw` held.
 */
#ifndef SIS8300_INTERNAL_H
#define SIS8300_INTERNAL_H

#include <linux/bitfield.h>
#include <linux/capability.h>
#include <linux/cdev.h>
#include <linux/dma-mapping.h>
#include <linux/idr.h>
#include <linux/iopoll.h>
#include <linux/log2.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/security.h>
#include <linux/sis8300.h>

#include "../common/compat.h"
#include "regs.h"

#define SIS8300_NAME		"sis8300"
#define SIS8300_WRITE_MAX	65536u	/* bytes of one DMA towards the card */
#define SIS8300_TICK_MS		20	/* between two searches for a lost interrupt */
#define SIS8300_READ_SLOTS	2

/* How late an interrupt may come after the status register shows the end. */
#define SIS8300_GRACE_NS	(10 * NSEC_PER_MSEC)

struct sis8300;
struct sis8300_file;
struct sis8300_ring;

/* Memory for the board's DMA. */
struct sis8300_buffer {
	void *memory;
	size_t bytes;
	dma_addr_t dma;
	enum dma_data_direction direction;
	bool is_mapped;			/* for the device; under sis8300.hw */
	struct list_head node;		/* sis8300.buffers */
};

/* One transfer of an engine. */
struct sis8300_dma {
	struct list_head node;		/* sis8300.queue */
	struct sis8300_file *file;	/* whose statistics count it */
	dma_addr_t host;
	u64 card;
	u32 bytes;
	bool to_card;
	/* Under sis8300.lock from here on. */
	int status;			/* -EINPROGRESS from submit to end */
	bool lost;			/* its end was found without its interrupt */
	u64 start_ns;
	u64 end_ns;
	u64 expected_ns;		/* its time at the link's nominal rate */
	u64 idle_ns;			/* when the tick found the engine idle; 0: it was not */
	/* At its end, with sis8300.lock held and interrupts off. */
	void (*done)(struct sis8300_dma *dma);
};

enum sis8300_acq_state {
	SIS8300_ACQ_NONE,		/* not armed yet, or disarmed */
	SIS8300_ACQ_ARMED,
	SIS8300_ACQ_ENDED,
};

/* The state of the acquisition that a file armed; under sis8300.lock. */
struct sis8300_acq_end {
	u64 armed;			/* sequence of the last that was armed, 0: none */
	u64 sequence;			/* of the last that ended */
	u64 time_ns;
	bool lost;
	int error;			/* why the one that was armed does not end */
};

/* Under sis8300.lock. */
struct sis8300_acq {
	enum sis8300_acq_state state;
	struct sis8300_file *owner;	/* while it is armed */
	struct sis8300_ring *ring;	/* which is told of its end */
	u64 sequence;
	u64 armed_ns;
	u64 irq_ns;			/* of its interrupt, 0: none yet */
	u64 idle_ns;			/* as in sis8300_dma */
	bool signals;			/* the firmware signals the end */
	u32 unsignalled;		/* ends without a signal, one after the other */
};

/* Types of events of the ESS ioctls. */
enum { SIS8300_EVENTS = 2 };		/* enum sis8300_wait_type */

struct sis8300 {
	struct device dev;		/* counts the references */
	struct cdev cdev;
	int minor;
	struct pci_dev *pdev;

	void __iomem *regs;
	u32 words;			/* registers in BAR 0 */
	bool is_msi;
	bool is_ku;
	bool is_first;			/* the SIS8300 without a letter */
	u32 module_id;
	u32 serial;
	u32 options;
	u64 memory_bytes;
	u32 chunk_bytes;
	u64 link_bytes_per_s;

	/*
	 * Readers keep registers, mappings and pdev in place. remove() and a reset take it
	 * for writing after they have set `gone`, to wait for the last reader.
	 */
	struct rw_semaphore hw;

	struct mutex buffers_lock;	/* buffers */
	struct list_head buffers;	/* all that are mapped for the device */

	struct mutex reader;		/* the chunks below, for one reader or writer at a time */
	atomic_t readers;		/* that wait for it, or hold it */
	struct sis8300_buffer chunks[SIS8300_READ_SLOTS];
	struct sis8300_buffer write_buffer;

	struct mutex setup_lock;	/* setup, the AD9510s, ADCs */
	struct sis8300_setup setup;
	bool is_set;			/* the registers agree with setup */
	u32 clock;			/* that this driver set; CLOCK_KEEP: unknown */
	u32 divider;
	bool has_clock;			/* the AD9510s have both */
	bool has_adc;			/* the ADCs were set up */
	bool was_reset;			/* the registers have lost the setup; under `lock` */

	spinlock_t lock;		/* all below; innermost, taken in the interrupt */
	bool gone;			/* for good: removed, or all-ones */
	bool failed;			/* the engine could not be stopped */
	bool recovering;
	struct list_head queue;		/* of DMAs to start */
	struct sis8300_dma *current_dma;
	bool is_written;		/* write() uses test mode: nothing is armed */
	bool advances;			/* SIS8300_REG_READ_FROM moves with the data */
	u64 interrupts;
	u32 missed;			/* ends found without the handler, since it last ran */
	u64 events[SIS8300_EVENTS];
	u64 releases[SIS8300_EVENTS];
	struct sis8300_acq acq;
	struct sis8300_ring *ring;	/* that has the engine */

	wait_queue_head_t dma_wait;	/* ends of DMAs */
	wait_queue_head_t wait;		/* everything else */
	struct delayed_work tick;
};

struct sis8300_file {
	struct sis8300 *sis;
	struct mutex lock;		/* ring: the pointer */
	struct sis8300_ring *ring;
	/* Under sis8300.lock. */
	struct sis8300_acq_end end;
	u64 events_seen[SIS8300_EVENTS];
	struct sis8300_stats stats;
	u64 interrupts_base;
};

extern struct workqueue_struct *sis8300_wq;
extern bool sis8300_serial;
extern int sis8300_check_length;
extern int sis8300_daq_irq;
extern unsigned int sis8300_dma_timeout_ms;
extern unsigned int sis8300_write_bytes;
extern bool sis8300_unsafe_registers;

/*
 * Registers: for code in sis8300_enter(), for code that holds sis8300.lock and
 * found the board not gone, and for the tick, for which sis8300_teardown() waits.
 */
static inline u32 sis8300_read(struct sis8300 *sis, u32 word)
{
	return readl(sis->regs + 4 * word);
}

static inline void sis8300_write(struct sis8300 *sis, u32 word, u32 value)
{
	writel(value, sis->regs + 4 * word);
}

/* board.c */
int sis8300_enter(struct sis8300 *sis);
void sis8300_leave(struct sis8300 *sis);
int sis8300_setup_begin(struct sis8300 *sis);
void sis8300_setup_end(struct sis8300 *sis);
void sis8300_disconnect_locked(struct sis8300 *sis);
bool sis8300_check_dead_locked(struct sis8300 *sis, u32 value);
bool sis8300_check_dead(struct sis8300 *sis, u32 value);
int sis8300_identify(struct sis8300 *sis);
void sis8300_init_registers(struct sis8300 *sis);
void sis8300_write_test_mode(struct sis8300 *sis);
void sis8300_stop(struct sis8300 *sis);
int sis8300_buffer_alloc(struct sis8300 *sis, struct sis8300_buffer *buffer, size_t bytes,
			 enum dma_data_direction direction, gfp_t gfp);
void sis8300_buffer_unmap_all(struct sis8300 *sis);
void sis8300_buffer_free(struct sis8300 *sis, struct sis8300_buffer *buffer);
void sis8300_buffer_for_cpu(struct sis8300 *sis, struct sis8300_buffer *buffer, size_t bytes);
void sis8300_buffer_for_device(struct sis8300 *sis, struct sis8300_buffer *buffer, size_t bytes);
void sis8300_count_missed(struct sis8300 *sis, u32 bit);
irqreturn_t sis8300_interrupt(int irq, void *data);
void sis8300_tick(struct work_struct *work);
void sis8300_tick_soon(struct sis8300 *sis, unsigned int ms);

/* dma.c */
u32 sis8300_timeout_ms(const struct sis8300 *sis, u32 bytes);
int sis8300_dma_submit_locked(struct sis8300 *sis, struct sis8300_dma *dma);
int sis8300_dma_submit(struct sis8300 *sis, struct sis8300_dma *dma);
bool sis8300_dma_cancel_locked(struct sis8300 *sis, struct sis8300_dma *dma);
bool sis8300_dma_is_done(struct sis8300 *sis, const struct sis8300_dma *dma);
int sis8300_dma_finish(struct sis8300 *sis, struct sis8300_dma *dma);
void sis8300_dma_interrupt(struct sis8300 *sis, u64 now);
void sis8300_dma_fail_all(struct sis8300 *sis, int error);
bool sis8300_dma_tick(struct sis8300 *sis);
bool sis8300_dma_wait_idle(struct sis8300 *sis);
int sis8300_dma_halt(struct sis8300 *sis);
void sis8300_dma_recover(struct sis8300 *sis);

/* clock.c */
int sis8300_set_clock(struct sis8300 *sis, u32 clock, u32 divider);
int sis8300_init_adcs(struct sis8300 *sis);

/* acq.c */
int sis8300_setup(struct sis8300_file *f, struct sis8300_setup *setup);
int sis8300_get_setup(struct sis8300_file *f, struct sis8300_setup *setup);
int sis8300_acq_recheck(const struct sis8300 *sis);
bool sis8300_acq_is_others(const struct sis8300_file *f);
int sis8300_arm(struct sis8300_file *f, struct sis8300_arm *arm);
int sis8300_arm_raw(struct sis8300_file *f, u32 value);
int sis8300_disarm(struct sis8300_file *f);
int sis8300_wait_end(struct sis8300_file *f, struct sis8300_end *end);
int sis8300_acq_stop(struct sis8300 *sis);
void sis8300_acq_begin(struct sis8300_file *f, struct sis8300_ring *ring, u32 command, u64 now);
void sis8300_acq_interrupt(struct sis8300 *sis, u64 now);
bool sis8300_acq_tick(struct sis8300 *sis);
bool sis8300_acq_is_flushing(struct sis8300 *sis);
u32 sis8300_acq_tick_ms(const struct sis8300 *sis);
void sis8300_acq_cancel(struct sis8300 *sis, int error);
int sis8300_acq_prepare(struct sis8300_file *f);
void sis8300_acq_release(struct sis8300_file *f);
void sis8300_acq_reset(struct sis8300 *sis);
u32 sis8300_arm_command(const struct sis8300 *sis);
u32 sis8300_block_samples(const struct sis8300 *sis);

/* transfer.c */
int sis8300_reader_lock(struct sis8300 *sis);
void sis8300_reader_unlock(struct sis8300 *sis);
ssize_t sis8300_read_card(struct file *file, char __user *to, size_t count, loff_t *position);
ssize_t sis8300_write_card(struct file *file, const char __user *from, size_t count,
			   loff_t *position);

/* ring.c */
int sis8300_ring_setup(struct sis8300_file *f, struct sis8300_ring_setup *setup);
int sis8300_ring_start(struct sis8300_file *f, const struct sis8300_ring_start *start);
int sis8300_ring_next(struct sis8300_file *f, struct sis8300_ring_next *next);
int sis8300_ring_stop(struct sis8300_file *f);
int sis8300_ring_mmap(struct file *file, struct vm_area_struct *vma);
void sis8300_ring_close(struct sis8300_file *f);
void sis8300_ring_acq_ended(struct sis8300_ring *ring, u64 time_ns);
void sis8300_ring_fail(struct sis8300_ring *ring, int error);
bool sis8300_ring_tick(struct sis8300 *sis, u64 now);
bool sis8300_ring_poll(struct sis8300_ring *ring, __poll_t *events);

/* compat.c: the ESS driver's ioctls */
int sis8300_reg_read(struct sis8300_file *f, struct sis8300_reg *reg);
int sis8300_reg_write(struct sis8300_file *f, const struct sis8300_reg *reg);
int sis8300_wait_event(struct sis8300_file *f, struct sis8300_wait *wait);
int sis8300_release_event(struct sis8300_file *f, const struct sis8300_wait *wait);

/* chardev.c */
extern const struct file_operations sis8300_fops;

#endif /* SIS8300_INTERNAL_H */
