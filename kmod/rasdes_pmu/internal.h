/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RASDES_INTERNAL_H
#define RASDES_INTERNAL_H

#include <linux/bitfield.h>
#include <linux/list.h>
#include <linux/pci.h>
#include <linux/perf_event.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include "regs.h"

#define RASDES_NAME	"rasdes_pmu"

/*
 * How long one of several time-based reports runs before perf gives the engine
 * to the next. perf's clock runs on while the engine is switched over, which takes a dozen
 * accesses to configuration space; perf's usual 4 ms would make that loss felt.
 * perf_event_mux_interval_ms in sysfs changes it.
 */
#define RASDES_TURN_MS	50

/* Attempts at a consistent look before it is left to the next poll. */
#define RASDES_TRIES	8

/* An event's number in perf_event_attr.config. */
#define RASDES_CONFIG_EVENT	GENMASK_ULL(15, 0)
#define RASDES_CONFIG_TYPE	GENMASK_ULL(19, 16)
#define RASDES_CONFIG_LANE	GENMASK_ULL(27, 20)
#define RASDES_CONFIG		(RASDES_CONFIG_EVENT | RASDES_CONFIG_TYPE | RASDES_CONFIG_LANE)

/**
 * struct rasdes_shadow - what a piece of hardware has counted, in 64 bits
 * @total: grows by what each look finds, and never goes back
 * @fresh: users that started since the last look: theirs begins at the next
 */
struct rasdes_shadow {
	u64 total;
	struct list_head fresh;
};

/**
 * struct rasdes_counter - an event counter, shared by all perf events of it
 * @shadow: what it has counted while it was held
 * @select: its event and lane as fields of RASDES_EVENT_CTL
 * @last: its value at the last look
 * @bits: width of the hardware's
 * @holders: perf events that need it enabled
 * @was_on: somebody else had enabled it: it is left so
 * @saturated: times it was seen at its upper end
 * @disturbed: times that somebody else cleared or disabled it while it was held
 */
struct rasdes_counter {
	struct rasdes_shadow shadow;
	u32 select;
	u32 last;
	unsigned int bits;
	unsigned int holders;
	bool was_on;
	u32 saturated;
	u32 disturbed;
};

/**
 * struct rasdes_tba - the time-based engine
 * @shadow: what the report has counted, in the hardware's units
 * @report: the report that its holders share
 * @holders: perf events that have it scheduled
 * @running: those of them that count
 * @is_on: it measures, if only because perf might be rearranging its events
 * @epoch: grows with each report that begins
 * @ctl: what RASDES_TBA_CTL reads while nobody else meddles
 * @last: the data at the last look
 * @is_based: @last is of this measurement
 * @disturbed: times that somebody else restarted or changed the measurement
 */
struct rasdes_tba {
	struct rasdes_shadow shadow;
	u8 report;
	unsigned int holders;
	unsigned int running;
	bool is_on;
	u32 epoch;
	u32 ctl;
	u64 last;
	bool is_based;
	u32 disturbed;
};

/**
 * struct rasdes_user - a perf event of ours, as its pmu_private
 * @event: the event
 * @counter: what it counts; NULL: @report of the time-based engine
 * @report: see @counter
 * @unit: what one count of the hardware is worth
 * @base: the shadow's total that has been given to perf
 * @node: on the port's list of users
 * @stopped_in: the port's bracket in which it was stopped with a valid @base
 * @epoch: the engine's when it was stopped
 * @fresh: on the shadow's list of that name; @base is to be set
 * @carried: on the port's list of that name: counts on while perf moves the event to another CPU
 */
struct rasdes_user {
	struct perf_event *event;
	struct rasdes_counter *counter;
	u8 report;
	u8 unit;
	u64 base;
	struct list_head node;
	u64 stopped_in;
	u32 epoch;
	struct list_head fresh;
	struct list_head carried;
};

/**
 * struct rasdes_pmu - a function with the capability, and its PMU
 * @pmu: perf's part
 * @pdev: the function; a reference is held
 * @successor: the function that came to the address of one that was removed; a reference is held
 * @domain: with @bus and @devfn, the function's address; it outlives the function's bus
 * @bus: see @domain
 * @devfn: see @domain
 * @node: in the list of all, until someone undertook to take it away
 * @cpuhp_node: in the list of CPU hotplug
 * @name: of the PMU
 * @vsec: offset of the capability
 * @lanes: the link's width capability
 * @cpu: where the events are; written with CPUs held still
 * @is_registered: perf knows the PMU; protected by @hotplug
 * @hotplug: orders registration and the moving of events
 * @events: perf events that exist; protected by rasdes_events_lock
 * @is_open: events may begin to exist: perf has all of the PMU, and the function is there;
 *	protected by rasdes_events_lock
 * @unwind: takes the PMU away once the last event is closed
 * @poll: looks at everything that is in use, while events exist
 * @lock: all of the following, and the registers: the viewport above all. Taken with interrupts off
 * @is_gone: no access any more
 * @bracket: number of perf's last operation on its events: a stop and a start in one are none
 * @is_migrating: perf is moving events to another CPU: what runs goes on
 * @users: all users
 * @carried: the users that go on
 * @selected: what the viewport's select was last seen to be
 * @tba: the time-based engine
 * @ncounters: number of @counters
 * @counters: all event counters
 */
struct rasdes_pmu {
	struct pmu pmu;
	struct pci_dev *pdev;
	struct pci_dev *successor;
	int domain;
	u8 bus;
	u8 devfn;
	struct list_head node;
	struct hlist_node cpuhp_node;
	char name[32];
	u16 vsec;
	unsigned int lanes;
	int cpu;
	bool is_registered;
	struct mutex hotplug;	/* see above */
	unsigned int events;
	bool is_open;
	struct delayed_work unwind;
	struct delayed_work poll;

	raw_spinlock_t lock;
	bool is_gone;
	u64 bracket;
	bool is_migrating;
	struct list_head users;
	struct list_head carried;
	u32 selected;
	struct rasdes_tba tba;
	unsigned int ncounters;
	struct rasdes_counter counters[];
};

static inline struct rasdes_pmu *to_rasdes(struct pmu *pmu)
{
	return container_of(pmu, struct rasdes_pmu, pmu);
}

/* main.c */
extern bool rasdes_is_seed;
extern bool rasdes_is_old_variant;
extern bool rasdes_narrow_wraps;
extern unsigned int rasdes_poll_ms;
extern unsigned int rasdes_tba_bits;
extern struct workqueue_struct *rasdes_wq;
extern enum cpuhp_state rasdes_cpuhp;

/* port.c */
extern spinlock_t rasdes_events_lock;
u16 rasdes_find_vsec(struct pci_dev *pdev);
struct rasdes_pmu *rasdes_port_create(struct pci_dev *pdev, u16 vsec);
void rasdes_port_destroy(struct rasdes_pmu *rp);
void rasdes_port_leave(struct rasdes_pmu *rp);
int rasdes_event_enter(struct rasdes_pmu *rp);
void rasdes_event_leave(struct rasdes_pmu *rp);
int rasdes_cpu_online(unsigned int cpu, struct hlist_node *node);
int rasdes_cpu_offline(unsigned int cpu, struct hlist_node *node);

/* main.c: the list of all */
void rasdes_forget(struct rasdes_pmu *rp);

/* pmu.c */
void rasdes_pmu_init(struct rasdes_pmu *rp);
void rasdes_migrate(struct rasdes_pmu *rp, int cpu);

/* events.c */
int rasdes_events_init(void);
void rasdes_events_exit(void);
extern const struct attribute_group *rasdes_groups[];
bool rasdes_has_counter(unsigned int id);
bool rasdes_has_report(unsigned int code);
bool rasdes_is_per_lane(unsigned int group);
int rasdes_next_counter(int index, unsigned int *id);

/* counter.c, tba.c: with the port's lock held, unless said otherwise */
static inline u32 rasdes_read(struct rasdes_pmu *rp, unsigned int reg)
{
	u32 value;

	lockdep_assert_held(&rp->lock);
	if (rp->is_gone || pci_read_config_dword(rp->pdev, rp->vsec + reg, &value))
		return U32_MAX;
	return value;
}

static inline void rasdes_write(struct rasdes_pmu *rp, unsigned int reg, u32 value)
{
	lockdep_assert_held(&rp->lock);
	if (!rp->is_gone)
		pci_write_config_dword(rp->pdev, rp->vsec + reg, value);
}

void rasdes_settle(struct rasdes_shadow *shadow);
void rasdes_counter_init(struct rasdes_pmu *rp);
struct rasdes_counter *rasdes_find_counter(struct rasdes_pmu *rp, unsigned int id,
					   unsigned int lane);
int rasdes_counter_get(struct rasdes_pmu *rp, struct rasdes_counter *c);
void rasdes_counter_put(struct rasdes_pmu *rp, struct rasdes_counter *c);
int rasdes_counter_fold(struct rasdes_pmu *rp, struct rasdes_counter *c);
int rasdes_tba_check(struct rasdes_pmu *rp);
int rasdes_tba_get(struct rasdes_pmu *rp, u8 report);
void rasdes_tba_put(struct rasdes_pmu *rp);
void rasdes_tba_start(struct rasdes_pmu *rp);
void rasdes_tba_stop(struct rasdes_pmu *rp);
void rasdes_tba_rest(struct rasdes_pmu *rp);
int rasdes_tba_fold(struct rasdes_pmu *rp);

#endif /* RASDES_INTERNAL_H */
