/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DRW_INTERNAL_H
#define DRW_INTERNAL_H

#include <linux/io.h>
#include <linux/list.h>
#include <linux/perf_event.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include "regs.h"

#define DRW_NAME	"drw_pmu"

/* perf's number of the cycle counter. */
#define DRW_EVENT_CYCLE	0x80

/**
 * enum drw_state - where a perf event stands
 * @DRW_IDLE: it has no counter
 * @DRW_HELD: it has one, which does not count
 * @DRW_STARTING: it counts from the end of perf's transaction on
 * @DRW_COUNTING: it counts
 * @DRW_STOPPING: it counts until the end of perf's transaction, unless it is added again before
 */
enum drw_state { DRW_IDLE, DRW_HELD, DRW_STARTING, DRW_COUNTING, DRW_STOPPING };

/**
 * struct drw_user - a perf event of ours, as its pmu_private; protected by the PMU's lock
 * @event: the event
 * @sibling: on the PMU's list of all
 * @node: on the PMU's list of users, unless it is idle
 * @id: what it counts
 * @state: see there
 * @counter: its common counter's number; of no meaning for cycles
 * @total: what it has counted, in 64 bits
 * @given: how much of that perf has been given
 * @last: the counter's value that is in @total
 */
struct drw_user {
	struct perf_event *event;
	struct list_head sibling;
	struct list_head node;
	u8 id;
	enum drw_state state;
	unsigned int counter;
	u64 total;
	u64 given;
	u64 last;
};

/**
 * struct drw_pmu - a sub-channel and its PMU
 * @pmu: perf's part
 * @dev: the device; not to be used once the PMU is an orphan
 * @node: in the list of orphans: the device was taken away, and perf events still exist
 * @cpuhp_node: in the list of CPU hotplug
 * @name: of the PMU
 * @regs: its window
 * @irq: its interrupt, which it may share
 * @die: its NUMA node
 * @cpu: where the events are; written with CPUs held still
 * @is_registered: perf knows the PMU; protected by @hotplug
 * @hotplug: orders registration and the moving of events
 * @events: perf events that exist; protected by drw_events_lock
 * @is_open: events may begin to exist: perf has all of the PMU, and the device is there;
 *	protected by drw_events_lock
 * @poll: looks at all counters in use, while events exist: an interrupt may get lost
 * @is_dirty: users are starting or stopping
 * @lock: all of the following, and the registers. Taken with interrupts off
 * @is_gone: no access any more
 * @is_migrating: perf is moving events to another CPU: what stops waits for its end
 * @is_running: the sub-channel's counters run
 * @select: the selectors as they are in the hardware
 * @counters: who has which common counter
 * @saturated: times that a counter was found to stand at its end, by event
 * @users: all who are not idle
 * @all: all
 */
struct drw_pmu {
	struct pmu pmu;
	struct device *dev;
	struct list_head node;
	struct hlist_node cpuhp_node;
	char name[32];
	void __iomem *regs;
	int irq;
	int die;
	int cpu;
	bool is_registered;
	struct mutex hotplug;	/* see above */
	unsigned int events;
	bool is_open;
	struct delayed_work poll;
	bool is_dirty;

	raw_spinlock_t lock;
	bool is_gone;
	bool is_migrating;
	bool is_running;
	u32 select[DRW_SELECTS];
	struct drw_user *counters[DRW_COUNTERS];
	u32 saturated[DRW_SELECT_EVENT + 1];
	struct list_head users;
	struct list_head all;
};

static inline struct drw_pmu *to_drw(struct pmu *pmu)
{
	return container_of(pmu, struct drw_pmu, pmu);
}

/* main.c */
extern bool drw_is_seed;
int drw_event_enter(struct drw_pmu *drw);
void drw_event_leave(struct drw_pmu *drw);

/* pmu.c */
void drw_pmu_init(struct drw_pmu *drw);
void drw_migrate(struct drw_pmu *drw, int from, int to);

/* events.c */
int drw_events_init(void);
void drw_events_exit(void);
bool drw_has_event(u64 id);
extern const struct attribute_group *drw_groups[];

/* counter.c: with the PMU's lock held, unless said otherwise */
extern bool drw_holds;
void drw_quiesce(struct drw_pmu *drw);
bool drw_answer(struct drw_pmu *drw);
void drw_look(struct drw_pmu *drw);
int drw_counter_get(struct drw_pmu *drw, struct drw_user *user);
void drw_counter_put(struct drw_pmu *drw, struct drw_user *user);
void drw_fold(struct drw_pmu *drw, struct drw_user *user);
void drw_give(struct drw_user *user);
void drw_halt(struct drw_pmu *drw, struct drw_user *user);
void drw_settle(struct drw_pmu *drw);
void drw_end(struct drw_pmu *drw);

#endif /* DRW_INTERNAL_H */
