/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the PMUs of rasdes_pmu and drw_pmu share. Their events are system-wide and
 * counted on one CPU. Their device may be removed and come back.
 *
 * Most kernels cannot unregister a PMU that has events. So the PMU of a removed device
 * stays while it has events. These keep their counts; new events get -ENODEV. If the
 * device comes back, it gets the same PMU, and the events continue to count. Otherwise
 * the PMU is unregistered when its last event is closed.
 */
#ifndef PCIESCOPE_UNCORE_H
#define PCIESCOPE_UNCORE_H

#include <linux/cpuhotplug.h>
#include <linux/perf_event.h>
#include <linux/workqueue.h>

#include "compat.h"

struct uncore_pmu;

/**
 * struct uncore_driver - a module and its PMUs
 * @name: of the module
 * @poll_ms: how often counters in use are read
 * @poll: reads them. Returns for how long it accessed registers, in ns
 * @resume: programs a device that has come, or has slept, for the existing events. Called with
 *	the PMU's lock
 * @suspend: reads the last counts of a device that will go or sleep. Called with the PMU's lock
 * @moved: called when the PMU's CPU has changed. Optional
 * @commit: carries out what perf has asked for while the PMU was disabled. Called with the
 *	PMU's lock
 * @lock: protects @pmus, and serialises registration and unregistration
 * @pmus: all PMUs
 * @reap: unregisters the PMUs that have neither device nor events
 * @wq: runs the polls, one at a time
 * @cpuhp: the state of CPU hotplug
 */
struct uncore_driver {
	const char *name;
	unsigned int poll_ms;
	u64 (*poll)(struct uncore_pmu *u);
	void (*resume)(struct uncore_pmu *u);
	void (*suspend)(struct uncore_pmu *u);
	void (*moved)(struct uncore_pmu *u);
	void (*commit)(struct uncore_pmu *u);
	struct mutex lock;	/* see above */
	struct list_head pmus;
	struct work_struct reap;
	struct workqueue_struct *wq;
	enum cpuhp_state cpuhp;
};

/**
 * struct uncore_pmu - a PMU, as the first member of its driver's own structure
 * @pmu: perf's part
 * @drv: the module
 * @name: of the PMU
 * @node: in the list of all PMUs
 * @cpuhp_node: in the list of CPU hotplug
 * @nid: the device's NUMA node
 * @cpu: where events are counted
 * @poll: reads the counters in use, while events exist
 * @lock: protects the following, and the driver's counters and registers. Taken with interrupts off
 * @events: all events that exist, by their active_entry
 * @is_open: new events are accepted
 * @is_gone: the device is absent
 * @is_asleep: the system sleeps, or is about to: the device may not answer, and loses its registers
 * @is_migrating: perf is moving the events to another CPU: their counters keep running
 * @migrations: how often it has begun to
 * @disable_depth: CPUs on which perf has disabled the PMU, see uncore_pmu_disable()
 * @disable_seq: number of the last time that it was disabled
 */
struct uncore_pmu {
	struct pmu pmu;
	struct uncore_driver *drv;
	char name[32];
	struct list_head node;
	struct hlist_node cpuhp_node;
	int nid;
	int cpu;
	struct delayed_work poll;
	raw_spinlock_t lock;
	struct list_head events;
	bool is_open;
	bool is_gone;
	bool is_asleep;
	bool is_migrating;
	u64 migrations;
	unsigned int disable_depth;
	u64 disable_seq;
};

static inline struct uncore_pmu *to_uncore(struct pmu *pmu)
{
	return container_of(pmu, struct uncore_pmu, pmu);
}

/* A new PMU has not been registered yet. */
static inline bool uncore_is_new(const struct uncore_pmu *u)
{
	return list_empty(&u->node);
}

/* Nobody accesses the device: it is gone, or sleeps. */
static inline bool uncore_is_away(const struct uncore_pmu *u)
{
	return u->is_gone || u->is_asleep;
}

/* Attributes */

#define UNCORE_EVENTS_MAX	200

/**
 * struct uncore_events - the files of events/, the same for all PMUs of a module
 * @n: how many there are
 * @attrs: the files
 * @names: their names
 * @texts: their contents
 * @list: the files as sysfs takes them, NULL behind the last
 */
struct uncore_events {
	unsigned int n;
	struct perf_pmu_events_attr attrs[UNCORE_EVENTS_MAX];
	char names[UNCORE_EVENTS_MAX][40];
	char texts[UNCORE_EVENTS_MAX][40];
	struct attribute *list[UNCORE_EVENTS_MAX + 1];
};

/* The groups of sysfs from prefix_attrs, prefix_format_attrs and prefix_events; then their list. */
#define UNCORE_GROUPS(prefix)								\
static const struct attribute_group prefix##_group = { .attrs = prefix##_attrs };	\
static const struct attribute_group prefix##_format_group = {				\
	.name = "format", .attrs = prefix##_format_attrs };				\
static const struct attribute_group prefix##_events_group = {				\
	.name = "events", .attrs = prefix##_events.list }
#define UNCORE_GROUP_LIST(prefix) \
	{ &prefix##_group, &prefix##_format_group, &prefix##_events_group, NULL }

void uncore_pmu_disable(struct pmu *pmu);
void uncore_pmu_enable(struct pmu *pmu);
int uncore_event_check(struct perf_event *event);
bool uncore_group_check(struct perf_event *event,
			bool (*fits)(struct perf_event *event, void *state), void *state);
int uncore_event_enter(struct perf_event *event);
void uncore_event_leave(struct perf_event *event);
void *uncore_get(struct uncore_driver *drv, const char *name, size_t bytes, int nid);
int uncore_open(struct uncore_pmu *u);
void uncore_remove(struct uncore_pmu *u);
extern const struct dev_pm_ops uncore_pm_ops;
int uncore_init(struct uncore_driver *drv);
void uncore_exit(struct uncore_driver *drv);
int uncore_parse_word(const char *name, const char *value, const char *first, const char *second,
		      bool *is_second);
int uncore_check_range(const char *name, unsigned int value, unsigned int min, unsigned int max);
__printf(4, 5) void uncore_add_event(struct uncore_events *events, const char *first,
				     const char *second, const char *format, ...);
extern struct device_attribute dev_attr_cpumask;

#endif /* PCIESCOPE_UNCORE_H */
