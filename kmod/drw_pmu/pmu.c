// SPDX-License-Identifier: GPL-2.0-only
/*
 * perf's side: events that are counted system-wide on one CPU. The changes that perf
 * requests take effect when it enables the PMU: see counter.c.
 */
#include "internal.h"

/* A group needs a common counter for each event; all events share the cycle counter. */
static bool drw_fits(struct perf_event *event, void *state)
{
	unsigned int *common = state;

	*common += event->attr.config != DRW_EVENT_CYCLE;
	return *common <= DRW_COUNTERS;
}

static void drw_event_destroy(struct perf_event *event)
{
	struct drw_pmu *drw = to_drw(event->pmu);
	unsigned long flags;

	raw_spin_lock_irqsave(&drw->u.lock, flags);
	/* It may be closed during a migration to another CPU. */
	if (event->hw.flags != DRW_IDLE) {
		drw_event_disable(drw, event);
		drw_counter_put(drw, event);
	}
	raw_spin_unlock_irqrestore(&drw->u.lock, flags);
	uncore_event_leave(event);
}

static int drw_event_init(struct perf_event *event)
{
	unsigned int common = 0;
	int ret;

	ret = uncore_event_check(event);
	if (ret)
		return ret;
	if (!drw_has_event(event->attr.config) || !uncore_group_check(event, drw_fits, &common))
		return -EINVAL;
	event->hw.flags = DRW_IDLE;
	ret = uncore_event_enter(event);
	if (!ret)
		event->destroy = drw_event_destroy;
	return ret;
}

static void drw_event_read(struct perf_event *event)
{
	struct drw_pmu *drw = to_drw(event->pmu);

	guard(raw_spinlock)(&drw->u.lock);
	if (event->hw.flags == DRW_COUNTING || event->hw.flags == DRW_REMOVED)
		drw_event_update(drw, event);
}

static int drw_event_add(struct perf_event *event, int flags)
{
	struct drw_pmu *drw = to_drw(event->pmu);
	int ret = 0;

	raw_spin_lock(&drw->u.lock);
	if (event->hw.flags == DRW_REMOVED && !(flags & PERF_EF_START))
		drw_event_disable(drw, event);
	if (event->hw.flags == DRW_IDLE)
		ret = drw_counter_get(drw, event);
	if (!ret && flags & PERF_EF_START)
		event->hw.flags = event->hw.flags == DRW_REMOVED ? DRW_COUNTING : DRW_STARTING;
	raw_spin_unlock(&drw->u.lock);
	if (!ret)
		perf_event_update_userpage(event);
	return ret;
}

static void drw_event_del(struct perf_event *event, int flags)
{
	struct drw_pmu *drw = to_drw(event->pmu);

	raw_spin_lock(&drw->u.lock);
	if (event->hw.flags == DRW_COUNTING)
		event->hw.flags = DRW_REMOVED;
	else
		drw_counter_put(drw, event);
	raw_spin_unlock(&drw->u.lock);
	perf_event_update_userpage(event);
}

static void drw_event_start(struct perf_event *event, int flags)
{
	struct drw_pmu *drw = to_drw(event->pmu);

	guard(raw_spinlock)(&drw->u.lock);
	if (event->hw.flags == DRW_STOPPED) {
		event->hw.flags = DRW_STARTING;
		drw_commit(&drw->u);
	}
}

static void drw_event_stop(struct perf_event *event, int flags)
{
	struct drw_pmu *drw = to_drw(event->pmu);

	guard(raw_spinlock)(&drw->u.lock);
	if (event->hw.flags == DRW_COUNTING) {
		drw_event_disable(drw, event);
		drw_commit(&drw->u);
	}
}

/**
 * drw_pmu_init() - fills in perf's description of the PMU
 * @drw: the PMU
 */
void drw_pmu_init(struct drw_pmu *drw)
{
	drw->u.pmu = (struct pmu) {
		.module = THIS_MODULE,
		.attr_groups = drw_groups,
		.capabilities = PERF_PMU_CAP_NO_EXCLUDE | PERF_PMU_CAP_NO_INTERRUPT,
		.task_ctx_nr = perf_invalid_context,
		.pmu_enable = uncore_pmu_enable,
		.pmu_disable = uncore_pmu_disable,
		.event_init = drw_event_init,
		.add = drw_event_add,
		.del = drw_event_del,
		.start = drw_event_start,
		.stop = drw_event_stop,
		.read = drw_event_read,
	};
}
