/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DRW_INTERNAL_H
#define DRW_INTERNAL_H

#include <linux/acpi.h>
#include <linux/platform_device.h>
#include <linux/property.h>

#include "../common/uncore.h"
#include "regs.h"

/* perf's number of the cycle counter, and its index behind the common counters. */
#define DRW_EVENT_CYCLE	0x80
#define DRW_CYCLES	DRW_COUNTERS

/**
 * enum drw_state - the state of a perf event, in its hw.flags
 * @DRW_IDLE: it has no counter
 * @DRW_STOPPED: it has a counter, which does not count
 * @DRW_STARTING: it counts after the end of perf's transaction
 * @DRW_COUNTING: it counts
 * @DRW_REMOVED: it counts until the end of perf's transaction, unless it is added again before
 */
enum drw_state { DRW_IDLE, DRW_STOPPED, DRW_STARTING, DRW_COUNTING, DRW_REMOVED };

/**
 * struct drw_counter - a counter of the hardware
 * @event: its event; NULL for the cycle counter, which all events share
 * @total: what it has counted, in 64 bits; it never goes back
 * @last: the hardware's value at the last update of @total
 * @is_bit_due: a wrap was counted whose overflow bit had not been set
 */
struct drw_counter {
	struct perf_event *event;
	u64 total;
	u64 last;
	bool is_bit_due;
};

/**
 * struct drw_pmu - a sub-channel and its PMU
 * @u: what all PMUs have; its lock protects the following
 * @regs: its window
 * @irq: its interrupt, which it may share; 0: none. Written under cpus_read_lock()
 * @is_running: the sub-channel's counters run
 * @is_lost: the cycle counter has fallen: the sub-channel has lost its registers
 * @was_reset: that was noticed, and the poll has not told it yet
 * @select: the present values of the selectors
 * @counters: the common counters, and the cycle counter
 * @saturated: how often a counter was found saturated, by event
 */
struct drw_pmu {
	struct uncore_pmu u;
	void __iomem *regs;
	int irq;
	bool is_running;
	bool is_lost;
	bool was_reset;
	u32 select[DRW_SELECTS];
	struct drw_counter counters[DRW_COUNTERS + 1];
	u32 saturated[DRW_SELECT_EVENT + 1];
};

static inline struct drw_pmu *to_drw(struct pmu *pmu)
{
	return container_of(pmu, struct drw_pmu, u.pmu);
}

/* counter.c: with the PMU's lock held */
extern bool drw_holds;
bool drw_handle_overflows(struct drw_pmu *drw);
bool drw_read_counters(struct drw_pmu *drw);
int drw_counter_get(struct drw_pmu *drw, struct perf_event *event);
void drw_counter_put(struct drw_pmu *drw, struct perf_event *event);
void drw_event_update(struct drw_pmu *drw, struct perf_event *event);
void drw_event_disable(struct drw_pmu *drw, struct perf_event *event);
void drw_commit(struct uncore_pmu *u);
void drw_resume(struct uncore_pmu *u);
void drw_suspend(struct uncore_pmu *u);

#endif /* DRW_INTERNAL_H */
