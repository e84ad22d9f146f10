// SPDX-License-Identifier: GPL-2.0-only
/*
 * perf's side: what it asks of a PMU, for events that exist system-wide and
 * are counted on one CPU.
 *
 * perf changes what is counted between pmu_disable() and pmu_enable(), and
 * often takes events away only to put them back. So what changes takes effect
 * at pmu_enable(), all of it at once: who was put back has never stopped.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "internal.h"

static bool drw_has_other_bits(const struct perf_event_attr *attr)
{
	if (attr->config1 || attr->config2)
		return true;
#ifdef PERF_ATTR_SIZE_VER8
	if (attr->config3)
		return true;
#endif
#ifdef PERF_ATTR_SIZE_VER9
	if (attr->config4)
		return true;
#endif
	return false;
}

/* Counts the common counters that a group needs. False: it has events of other hardware. */
static bool drw_count_in(struct perf_event *event, const struct pmu *pmu, unsigned int *common)
{
	if (is_software_event(event))
		return true;
	if (event->pmu != pmu)
		return false;
	if (event->attr.config != DRW_EVENT_CYCLE)
		++*common;
	return true;
}

/* With the event itself, which is not yet on its leader's list. */
static bool drw_fits_group(struct perf_event *event)
{
	struct perf_event *leader = event->group_leader, *other;
	unsigned int common = 0;

	if (!drw_count_in(event, event->pmu, &common))
		return false;
	if (leader == event)
		return true;
	if (!drw_count_in(leader, event->pmu, &common))
		return false;
	for_each_sibling_event(other, leader) {
		if (other != event && !drw_count_in(other, event->pmu, &common))
			return false;
	}
	return common <= DRW_COUNTERS;
}

static void drw_event_destroy(struct perf_event *event)
{
	struct drw_pmu *drw = to_drw(event->pmu);
	struct drw_user *user = event->pmu_private;
	unsigned long flags;

	raw_spin_lock_irqsave(&drw->lock, flags);
	/* Closed while it was moved to another CPU. */
	if (user->state != DRW_IDLE) {
		drw_halt(drw, user);
		drw_counter_put(drw, user);
		drw_settle(drw);
	}
	list_del(&user->sibling);
	raw_spin_unlock_irqrestore(&drw->lock, flags);
	event->pmu_private = NULL;
	kfree(user);
	drw_event_leave(drw);
}

static int drw_event_init(struct perf_event *event)
{
	struct drw_pmu *drw = to_drw(event->pmu);
	struct drw_user *user;
	unsigned long flags;
	int ret;

	if (event->attr.type != event->pmu->type)
		return -ENOENT;
	if (is_sampling_event(event) || event->attach_state & PERF_ATTACH_TASK || event->cpu < 0)
		return -EINVAL;
	if (drw_has_other_bits(&event->attr) || !drw_has_event(event->attr.config) ||
	    !drw_fits_group(event))
		return -EINVAL;
	user = kzalloc(sizeof(*user), GFP_KERNEL);
	if (!user)
		return -ENOMEM;
	ret = drw_event_enter(drw);
	if (ret) {
		kfree(user);
		return ret;
	}
	user->event = event;
	user->id = event->attr.config;
	INIT_LIST_HEAD(&user->node);
	event->pmu_private = user;
	event->destroy = drw_event_destroy;
	event->cpu = READ_ONCE(drw->cpu);
	raw_spin_lock_irqsave(&drw->lock, flags);
	list_add(&user->sibling, &drw->all);
	raw_spin_unlock_irqrestore(&drw->lock, flags);
	return 0;
}

static void drw_event_read(struct perf_event *event)
{
	struct drw_pmu *drw = to_drw(event->pmu);
	struct drw_user *user = event->pmu_private;
	unsigned long flags;

	raw_spin_lock_irqsave(&drw->lock, flags);
	if (user->state == DRW_COUNTING || user->state == DRW_STOPPING) {
		drw_fold(drw, user);
		drw_give(user);
	}
	raw_spin_unlock_irqrestore(&drw->lock, flags);
}

static int drw_event_add(struct perf_event *event, int flags)
{
	struct drw_pmu *drw = to_drw(event->pmu);
	struct drw_user *user = event->pmu_private;
	unsigned long irq;
	int ret = 0;

	raw_spin_lock_irqsave(&drw->lock, irq);
	if (user->state == DRW_STOPPING && !(flags & PERF_EF_START))
		drw_halt(drw, user);
	if (user->state == DRW_IDLE)
		ret = drw_counter_get(drw, user);
	if (!ret && flags & PERF_EF_START)
		user->state = user->state == DRW_STOPPING ? DRW_COUNTING : DRW_STARTING;
	WRITE_ONCE(drw->is_dirty, true);
	raw_spin_unlock_irqrestore(&drw->lock, irq);
	return ret;
}

static void drw_event_del(struct perf_event *event, int flags)
{
	struct drw_pmu *drw = to_drw(event->pmu);
	struct drw_user *user = event->pmu_private;
	unsigned long irq;

	raw_spin_lock_irqsave(&drw->lock, irq);
	if (user->state == DRW_COUNTING)
		user->state = DRW_STOPPING;
	else if (user->state != DRW_IDLE)
		drw_counter_put(drw, user);
	WRITE_ONCE(drw->is_dirty, true);
	raw_spin_unlock_irqrestore(&drw->lock, irq);
}

static void drw_event_start(struct perf_event *event, int flags)
{
	struct drw_pmu *drw = to_drw(event->pmu);
	struct drw_user *user = event->pmu_private;
	unsigned long irq;

	raw_spin_lock_irqsave(&drw->lock, irq);
	if (user->state == DRW_HELD) {
		user->state = DRW_STARTING;
		drw_settle(drw);
	}
	raw_spin_unlock_irqrestore(&drw->lock, irq);
}

static void drw_event_stop(struct perf_event *event, int flags)
{
	struct drw_pmu *drw = to_drw(event->pmu);
	struct drw_user *user = event->pmu_private;
	unsigned long irq;

	raw_spin_lock_irqsave(&drw->lock, irq);
	if (user->state == DRW_COUNTING) {
		drw_halt(drw, user);
		drw_settle(drw);
	}
	raw_spin_unlock_irqrestore(&drw->lock, irq);
}

/* Nothing: others are counting. */
static void drw_pmu_disable(struct pmu *pmu)
{
}

static void drw_pmu_enable(struct pmu *pmu)
{
	struct drw_pmu *drw = to_drw(pmu);
	unsigned long flags;

	/* perf comes here at every switch of tasks that it counts for. */
	if (!READ_ONCE(drw->is_dirty))
		return;
	raw_spin_lock_irqsave(&drw->lock, flags);
	drw_settle(drw);
	raw_spin_unlock_irqrestore(&drw->lock, flags);
}

/* How many events perf has on a CPU, or is about to have there. */
static unsigned int drw_count_on(struct drw_pmu *drw, int cpu)
{
	struct drw_user *user;
	unsigned long flags;
	unsigned int n = 0;

	raw_spin_lock_irqsave(&drw->lock, flags);
	list_for_each_entry(user, &drw->all, sibling)
		n += user->event->cpu == cpu;
	raw_spin_unlock_irqrestore(&drw->lock, flags);
	return n;
}

static void drw_set_migrating(struct drw_pmu *drw, bool is_migrating)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&drw->lock, flags);
	drw->is_migrating = is_migrating;
	/* Who was not put back waits its turn, or was disabled meanwhile. */
	if (!is_migrating)
		drw_settle(drw);
	raw_spin_unlock_irqrestore(&drw->lock, flags);
}

/**
 * drw_migrate() - moves all events to another CPU, without a gap in what they count
 * @drw: the PMU, known to perf; CPU hotplug is held still, and drw->hotplug
 * @from: where they are
 * @to: where to
 *
 * perf loses its place in the list at the first event or group that it moves
 * (seen with 6.12; 6.1 and 7.3 move all): as often as there are some left.
 */
void drw_migrate(struct drw_pmu *drw, int from, int to)
{
	unsigned int tries = drw_count_on(drw, from);

	drw_set_migrating(drw, true);
	while (tries-- && drw_count_on(drw, from))
		perf_pmu_migrate_context(&drw->pmu, from, to);
	drw_set_migrating(drw, false);
}

/**
 * drw_pmu_init() - fills in what perf is to know of the PMU
 * @drw: the PMU
 */
void drw_pmu_init(struct drw_pmu *drw)
{
	drw->pmu = (struct pmu) {
		.module = THIS_MODULE,
		.attr_groups = drw_groups,
		.capabilities = PERF_PMU_CAP_NO_EXCLUDE | PERF_PMU_CAP_NO_INTERRUPT,
		.task_ctx_nr = perf_invalid_context,
		.pmu_enable = drw_pmu_enable,
		.pmu_disable = drw_pmu_disable,
		.event_init = drw_event_init,
		.add = drw_event_add,
		.del = drw_event_del,
		.start = drw_event_start,
		.stop = drw_event_stop,
		.read = drw_event_read,
	};
}
