/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the parts of the module share.
 *
 * Locks, outermost first:
 *   pcilat_devices_lock > pcilat_device.hw > pcilat_device.lock > pcilat_job.lock
 * pcilat_ring.lock is innermost. None of them is held during an access to user
 * memory.
 */
#ifndef PCILAT_INTERNAL_H
#define PCILAT_INTERNAL_H

#include <linux/capability.h>
#include <linux/cpuhotplug.h>
#include <linux/freezer.h>
#include <linux/irq.h>
#include <linux/kthread.h>
#include <linux/idr.h>
#include <linux/security.h>
#include <linux/seq_file.h>
#include <linux/vmalloc.h>
#include <linux/pcilat.h>

#include "../common/compat.h"
#include "clock.h"
#include "hist.h"

#define PCILAT_NAME		"pcilat"
#define PCILAT_BATCH_MAX_NS	50000u		/* longest time with interrupts off */
#define PCILAT_CALIBRATION	10000u		/* empty stamp pairs on each CPU */
#define PCILAT_SEGMENT		256u		/* most samples of a segment */
#define PCILAT_MAX_SLOTS	65536u
#define PCILAT_MAX_BATCH	65536u
#define PCILAT_MAX_WARMUP	1000u
#define PCILAT_MAX_WAIT_NS	(10ULL * NSEC_PER_SEC)	/* time-out and interval of interrupts */
#define PCILAT_TEXT_RECORDS	100000u	/* kept by each log behind a text node */

struct pcilat_device;
struct pcilat_job;

/* A histogram. Its buckets are allocated at their first use, 256 at a time. */
struct pcilat_figures {
	struct pcilat_summary summary;
	u64 *chunks[PCILAT_HIST_CHUNKS];
};

/* One CPU and one target of a run. */
struct pcilat_slot_state {
	struct pcilat_slot counts;	/* for user space, without the summaries */
	struct pcilat_figures latency;
	struct pcilat_figures ack;
};

/* A function on the way from the root port to the device; see access.c. */
struct pcilat_hop {
	struct pci_dev *pdev;
	int offset;		/* of the register that is read */
};

struct pcilat_sample {
	u64 at;			/* clock at its start */
	u64 ticks;
	u32 target;
};

/* A thread that is bound to one CPU, and measures during its turn. */
struct pcilat_worker {
	struct pcilat_job *job;
	struct task_struct *task;
	wait_queue_head_t wait;	/* of this worker, for its turn */
	u32 position;		/* in the request's list of CPUs */
	u32 cpu;		/* which is measured */
	u32 runs_on;		/* differs from cpu when another CPU triggers */
	bool turn;		/* set by the job, cleared by the worker */
	bool calibrated;
	u64 quota;		/* samples in this turn, of all targets; IRQ: of each */
	u64 deadline;		/* clock at which the turn ends, 0: never */
	u32 next_target;
	/* The result of the last segment. */
	u32 samples;
	bool moved;		/* no longer on its CPU */
	bool ones;		/* all-ones were read, and are an error */
	u32 ones_target;
	struct pcilat_sample sample[PCILAT_SEGMENT];
};

/* A run and, when it has ended, its results. */
struct pcilat_job {
	struct pcilat_device *pl;
	struct pcilat_run req;
	const u32 *cpus;			/* the caller's lists, while the run is under way */
	const u32 *vectors;
	u32 targets;
	u32 nslots;
	struct pcilat_slot_state *slots;
	struct pcilat_figures *calibration;	/* one for each CPU */
	struct pcilat_worker **workers;
	struct pcilat_ring *text;		/* also write text records here, or NULL */
	void __iomem *reg;
	wait_queue_head_t wait;			/* of the caller, for the end of a turn */
	u64 start;				/* clock at start */
	u64 start_ns;				/* CLOCK_MONOTONIC at start */
	u64 deadline;
	u64 gap;				/* ticks */
	u64 budget;				/* ticks with interrupts off */
	u64 elapsed_ns;
	u64 total;
	bool stop;				/* set with `lock` held, read without */
	bool running;				/* under pl->lock */
	spinlock_t lock;			/* error, error_cpu, error_offset, stop */
	int error;
	int error_cpu;
	u64 error_offset;
};

/*
 * A ring of records, which overwrites the oldest ones. It is allocated at its first
 * use, and freed with the device's state.
 */
struct pcilat_ring {
	void *records;				/* set once, under pcilat_device.lock */
	u32 record_size;
	u32 size;				/* in records */
	spinlock_t lock;			/* all below, and the records themselves */
	u64 written;				/* since the start or the reset */
	u64 first;				/* the oldest record in the ring */
	u64 lost;				/* overwritten before they were read or cleared */
};

/* One line of /dev/pcilatdriver/BDF/{iomem,interrupt}. */
struct pcilat_text_record {
	u64 at_ns;
	u64 first_ns;
	u64 second_ns;
	u32 cpu;
	u32 where;		/* BAR or Linux interrupt number */
};

/* One line of /dev/pcilatdriver/BDF/devreg. */
struct pcilat_reg_record {
	u64 at_ns;
	u64 offset;
	u64 value;
	u8 bar;
	u8 width;
	bool write;
	bool plain;		/* 4 bytes in the first memory BAR: printed as the original does */
	int error;
};

/* Settings and last results of the text surface; under pcilat_device.lock. */
struct pcilat_text {
	int bar;
	u32 iterations;
	u32 ndelay_ns;
	u32 completed_cpus;
	u32 errors;
	u32 batch;				/* iterations where a command names none */
	u64 dropped;				/* interrupts lost, and stamps lost */
};

enum pcilat_text_kind {
	PCILAT_TEXT_IOMEM,
	PCILAT_TEXT_INTERRUPT,
	PCILAT_TEXT_DEVREG,
	PCILAT_TEXT_KINDS,
};

/* Of a function: /dev/pcilatdriver/BDF/{iomem,interrupt,devreg}, and /dev/pcilat/BDF. */
#define PCILAT_NODES	(PCILAT_TEXT_KINDS + 1)
#define PCILAT_DEVICES	4096		/* functions that can be bound at once */

/* An interrupt that answered a trigger. */
struct pcilat_event {
	u64 triggered;
	u64 entry;
	u64 acked;
	u64 code;	/* kernel code that was interrupted, or 0 */
	u32 cpu;
};

struct pcilat_reg_write {
	void __iomem *reg;			/* NULL: none */
	u32 value;
};

/*
 * A vector. The thread of the run raises one trigger at a time: it waits for the
 * answer, or cancels the trigger, before it raises the next. `open` passes the
 * trigger to the handler. Whoever sets it to 0, by cmpxchg, has the trigger: the
 * handler, which answers, or the thread, which cancels. The handler never runs
 * twice at once.
 */
struct pcilat_vector {
	struct pcilat_device *pl;
	u32 index;
	int irq;
	/* Prepared by the device's trigger; all of them are empty without one. */
	struct pcilat_reg_write raise;
	struct pcilat_reg_write ack;
	void __iomem *cause;			/* read in the handler, NULL: none */
	u32 cause_mask;				/* of the causes that are ours; 0: all */
	bool is_silent;				/* the device may not answer; set with hw held */
	u64 open;				/* the open trigger's stamp, 0: none is open */
	bool is_raised;				/* neither answered nor cancelled; thread */
	bool is_answered;			/* event is complete: set by the handler */
	struct pcilat_event event;		/* the answer */
	u32 extra;				/* handler runs without an open trigger; handler */
	u32 extra_seen;				/* those that are in a slot already; thread */
	struct pcilat_slot_state *slot;		/* that the vector serves or served last; thread */
	cpumask_var_t affinity;			/* to be restored after a run */
};

/* How a device is made to send an interrupt: one entry for each family. */
struct pcilat_trigger {
	const char *name;
	u16 vendor;
	const u16 *devices;		/* a 0 ends them */
	u32 regs_size;			/* of BAR 0, from its start, that are mapped */
	u32 vectors;			/* that it can raise, as far as the device has them */
	bool has_line;			/* can use INTx: it has a register of causes */
	/* Lets the device send interrupts, or not. Called first with false. */
	void (*enable)(struct pcilat_device *pl, bool on);
	/* Prepares the disabled device for the type of its interrupts. Optional. */
	void (*setup)(struct pcilat_device *pl);
	/* Names the registers by which a vector is raised and acknowledged. */
	void (*prepare)(struct pcilat_device *pl, struct pcilat_vector *v);
};

/* A device that is bound, or was and is still open. */
struct pcilat_device {
	struct kref ref;
	struct pci_dev *pdev;			/* valid with hw held and gone false */
	char bdf[16];
	struct list_head node;			/* in pcilat_devices */
	struct rw_semaphore hw;			/* read: touches the device; write: takes it away */
	bool gone;				/* set with lock held, before hw is waited for */
	bool resetting;				/* likewise; or the system sleeps */
	unsigned long busy;			/* bit 0: a run is under way */
	u32 claimed;				/* BARs that are ours, a bit each */
	u32 irq_type;
	u32 nvectors;
	struct pcilat_vector *vectors;
	const struct pcilat_trigger *trigger;	/* NULL: device not in the table */
	void __iomem *trigger_regs;
	bool irq_enabled;			/* by the text command "1"; needs `busy` */
	u32 sources;
	struct pcilat_hop *hops;
	u32 nhops;
	struct pcilat_info info;		/* constant after probe() */

	struct mutex lock;			/* job and its results, text */
	struct pcilat_job *job;			/* last or present run; NULL if none */
	bool present;				/* it answered the last read of its ID */

	struct pcilat_ring ring;		/* raw records, which user space reads or maps */
	struct pcilat_ring text_ring[PCILAT_TEXT_KINDS];
	struct pcilat_text text;

	int id;					/* its minors are from id * PCILAT_NODES */
	struct device *class_dev;
};

/* main.c */
extern struct list_head pcilat_devices;
extern struct mutex pcilat_devices_lock;
extern struct class pcilat_class;
bool pcilat_get(struct pcilat_device *pl);
void pcilat_put(struct pcilat_device *pl);
int pcilat_check_usable(const struct pcilat_device *pl);
int pcilat_enter(struct pcilat_device *pl);
void pcilat_leave(struct pcilat_device *pl);
int pcilat_check_lockdown(void);
bool pcilat_check_present(struct pcilat_device *pl);
int pcilat_check_alive(struct pcilat_device *pl, bool needs_memory);

/* run.c */
int pcilat_run(struct pcilat_device *pl, const struct pcilat_run *req, const u32 *cpus,
	       const u32 *vectors, struct pcilat_ring *text);
void pcilat_job_end(struct pcilat_job *job, int error, int cpu, u64 offset);
void pcilat_job_free(struct pcilat_job *job);
bool pcilat_turn_is_over(const struct pcilat_worker *w);
void pcilat_worker_wait(const struct pcilat_worker *w, u64 until);
void pcilat_job_store(struct pcilat_job *job, u32 cpu, struct pcilat_slot_state *slot,
		      struct pcilat_figures *f, u32 kind, u64 at, u64 ticks);
void pcilat_job_store_code(struct pcilat_job *job, u32 cpu, const struct pcilat_slot_state *slot,
			   u64 code);
u64 pcilat_job_done(const struct pcilat_job *job);

/*
 * In a busy loop, with interrupts on: lets other tasks run. synchronize_rcu_tasks() waits
 * for each task that runs to say this much; cond_resched() alone does not tell it.
 */
static inline void pcilat_yield(void)
{
	cond_resched_tasks_rcu_qs();
}

static inline void pcilat_relax(void)
{
	cpu_relax();
	pcilat_yield();
}

static inline bool pcilat_job_stopped(const struct pcilat_job *job)
{
	return READ_ONCE(job->stop);
}

/* A trigger has registers in memory; the other sources of interrupts do without. */
static inline bool pcilat_needs_memory(const struct pcilat_device *pl, u32 kind)
{
	return kind <= PCILAT_KIND_WRITE_READ || (kind == PCILAT_KIND_IRQ && pl->trigger_regs);
}

static inline struct pcilat_slot_state *pcilat_slot_of(const struct pcilat_worker *w, u32 target)
{
	return &w->job->slots[w->position * w->job->targets + target];
}

/* access.c */
#define PCILAT_KIND_EMPTY	0	/* the calibration: beside enum pcilat_kind */
int pcilat_path_init(struct pcilat_device *pl);
int pcilat_first_bar(const struct pcilat_device *pl);
int pcilat_check_access(struct pcilat_device *pl, u32 bar, u32 width, u64 offset, bool write);
void __iomem *pcilat_map(struct pcilat_device *pl, u32 bar, u32 width, u64 offset);
int pcilat_reg(struct pcilat_device *pl, struct pcilat_reg *reg);
void pcilat_segment(struct pcilat_worker *w, u32 samples, u32 kind);

/* irq.c */
int pcilat_irq_init(struct pcilat_device *pl, unsigned int max_vectors);
void pcilat_irq_restore(struct pcilat_device *pl);
void pcilat_irq_exit(struct pcilat_device *pl);
int pcilat_irq_prepare(struct pcilat_job *job);
void pcilat_irq_finish(struct pcilat_job *job);
void pcilat_irq_turn(struct pcilat_worker *w);
void pcilat_irq_check_result(struct pcilat_job *job);
const struct cpumask *pcilat_affinity(struct irq_data *data);

/* trigger.c */
const struct pcilat_trigger *pcilat_trigger_find(u16 vendor, u16 device);

/* ring.c */
void pcilat_ring_init(struct pcilat_ring *ring, u32 size, u32 record_size);
int pcilat_ring_allocate(struct pcilat_device *pl, struct pcilat_ring *ring);
void pcilat_ring_reset(struct pcilat_ring *ring);
void pcilat_ring_clear(struct pcilat_ring *ring);
void pcilat_ring_write(struct pcilat_ring *ring, const void *record);
u32 pcilat_ring_take(struct pcilat_ring *ring, void *to, u32 count);
bool pcilat_ring_copy(struct pcilat_ring *ring, u64 *position, void *record);
u64 pcilat_ring_count(struct pcilat_ring *ring, u64 *lost);
u64 pcilat_ring_newest(struct pcilat_ring *ring, u64 most);

/* chardev.c */
int pcilat_nodes_register(void);
void pcilat_nodes_unregister(void);
int pcilat_nodes_init(struct pcilat_device *pl);
void pcilat_nodes_exit(struct pcilat_device *pl);

/* text.c */
extern const struct file_operations pcilat_text_fops;
int pcilat_text_init(struct pcilat_device *pl);
void pcilat_text_exit(struct pcilat_device *pl);

#endif /* PCILAT_INTERNAL_H */
