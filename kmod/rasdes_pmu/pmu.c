// SPDX-License-Identifier: GPL-2.0-only
/*
 * perf's side: what it asks of a PMU, for events that exist system-wide and
 * are counted on one CPU.
 *
 * Hardware is enabled while an event exists, and an event counts the
 * difference of a shadow between its start and its stop. Nothing is lost
 * when perf rearranges its events (rasdes_pmu_disable()) or moves them to
 * another CPU (rasdes_migrate()).
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "internal.h"

static struct rasdes_shadow *rasdes_shadow(struct rasdes_pmu *rp, struct rasdes_user *user)
{
	return user->counter ? &user->counter->shadow : &rp->tba.shadow;
}

static int rasdes_fold(struct rasdes_pmu *rp, struct rasdes_user *user)
{
	return user->counter ? rasdes_counter_fold(rp, user->counter) : rasdes_tba_fold(rp);
}

static bool rasdes_is_time_based(u64 config)
{
	return FIELD_GET(RASDES_CONFIG_TYPE, config) == (rasdes_is_seed ? 1 : 0);
}

static bool rasdes_is_counter(u64 config)
{
	return FIELD_GET(RASDES_CONFIG_TYPE, config) == (rasdes_is_seed ? 2 : 1);
}

/* Two reports cannot run together: with the event itself, which is not yet on its leader's list. */
static bool rasdes_fits_group(struct perf_event *event)
{
	struct perf_event *leader = event->group_leader, *other;
	int report = -1;

	if (rasdes_is_time_based(event->attr.config))
		report = FIELD_GET(RASDES_CONFIG_EVENT, event->attr.config);
	if (leader == event || is_software_event(leader))
		goto siblings;
	if (leader->pmu != event->pmu)
		return false;
	if (rasdes_is_time_based(leader->attr.config)) {
		int theirs = FIELD_GET(RASDES_CONFIG_EVENT, leader->attr.config);

		if (report >= 0 && report != theirs)
			return false;
		report = theirs;
	}
siblings:
	for_each_sibling_event(other, leader) {
		int theirs;

		if (other == event || is_software_event(other))
			continue;
		if (other->pmu != event->pmu)
			return false;
		if (!rasdes_is_time_based(other->attr.config))
			continue;
		theirs = FIELD_GET(RASDES_CONFIG_EVENT, other->attr.config);
		if (report >= 0 && report != theirs)
			return false;
		report = theirs;
	}
	return true;
}

static bool rasdes_has_other_bits(const struct perf_event_attr *attr)
{
	if (attr->config & ~RASDES_CONFIG || attr->config1 || attr->config2)
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

/* What is asked for; -EINVAL if there is no such thing. */
static int rasdes_decode(struct rasdes_pmu *rp, const struct perf_event_attr *attr,
			 struct rasdes_user *user)
{
	unsigned int id = FIELD_GET(RASDES_CONFIG_EVENT, attr->config);
	unsigned int lane = FIELD_GET(RASDES_CONFIG_LANE, attr->config);

	if (rasdes_has_other_bits(attr))
		return -EINVAL;
	user->unit = 1;
	if (rasdes_is_counter(attr->config)) {
		user->counter = rasdes_find_counter(rp, id, lane);
		return user->counter ? 0 : -EINVAL;
	}
	if (!rasdes_is_time_based(attr->config) || lane || !rasdes_has_report(id))
		return -EINVAL;
	user->report = id;
	if (!rasdes_is_seed && id >= RASDES_REPORT_PAYLOAD_FIRST &&
	    id <= RASDES_REPORT_PAYLOAD_LAST)
		user->unit = RASDES_PAYLOAD_UNIT;
	return 0;
}

/* Takes the hardware for an event that begins to exist. */
static int rasdes_hold(struct rasdes_pmu *rp, struct rasdes_user *user)
{
	unsigned long flags;
	int ret;

	raw_spin_lock_irqsave(&rp->lock, flags);
	if (user->counter)
		ret = rasdes_counter_get(rp, user->counter);
	else
		ret = rasdes_tba_check(rp);
	if (!ret)
		list_add(&user->node, &rp->users);
	raw_spin_unlock_irqrestore(&rp->lock, flags);
	return ret;
}

static void rasdes_end(struct rasdes_pmu *rp, struct rasdes_user *user);

static void rasdes_event_destroy(struct perf_event *event)
{
	struct rasdes_pmu *rp = to_rasdes(event->pmu);
	struct rasdes_user *user = event->pmu_private;
	unsigned long flags;

	raw_spin_lock_irqsave(&rp->lock, flags);
	list_del(&user->node);
	if (!list_empty(&user->carried))
		rasdes_end(rp, user);
	rasdes_tba_rest(rp);
	if (user->counter)
		rasdes_counter_put(rp, user->counter);
	raw_spin_unlock_irqrestore(&rp->lock, flags);
	event->pmu_private = NULL;
	kfree(user);
	rasdes_event_leave(rp);
}

static int rasdes_event_init(struct perf_event *event)
{
	struct rasdes_pmu *rp = to_rasdes(event->pmu);
	struct rasdes_user *user;
	int ret;

	if (event->attr.type != event->pmu->type)
		return -ENOENT;
	if (is_sampling_event(event) || event->attach_state & PERF_ATTACH_TASK || event->cpu < 0)
		return -EINVAL;
	if (!rasdes_fits_group(event))
		return -EINVAL;
	user = kzalloc(sizeof(*user), GFP_KERNEL);
	if (!user)
		return -ENOMEM;
	user->event = event;
	INIT_LIST_HEAD(&user->fresh);
	INIT_LIST_HEAD(&user->carried);
	ret = rasdes_decode(rp, &event->attr, user);
	if (ret)
		goto err_free;
	ret = rasdes_event_enter(rp);
	if (ret)
		goto err_free;
	event->cpu = READ_ONCE(rp->cpu);
	ret = rasdes_hold(rp, user);
	if (ret)
		goto err_leave;
	event->pmu_private = user;
	event->destroy = rasdes_event_destroy;
	return 0;

err_leave:
	rasdes_event_leave(rp);
err_free:
	kfree(user);
	return ret;
}

/* Gives perf what was counted since the last time. */
static void rasdes_update(struct rasdes_pmu *rp, struct rasdes_user *user)
{
	struct rasdes_shadow *shadow = rasdes_shadow(rp, user);
	local64_t *count = &user->event->count;

	lockdep_assert_held(&rp->lock);
	rasdes_fold(rp, user);
	if (!list_empty(&user->fresh))
		return;
	if (!user->counter && user->report == RASDES_REPORT_ONE_CYCLE) {
		local64_set(count, rp->tba.last);
		return;
	}
	local64_add((shadow->total - user->base) * user->unit, count);
	user->base = shadow->total;
}

static void rasdes_event_read(struct perf_event *event)
{
	struct rasdes_pmu *rp = to_rasdes(event->pmu);
	unsigned long flags;

	if (event->hw.state & PERF_HES_STOPPED)
		return;
	raw_spin_lock_irqsave(&rp->lock, flags);
	rasdes_update(rp, event->pmu_private);
	raw_spin_unlock_irqrestore(&rp->lock, flags);
}

/*
 * From now on the event counts. One that perf stopped in the same bracket goes
 * on as if it had not; else its base is the next look, at best this one.
 */
static void rasdes_begin(struct rasdes_pmu *rp, struct rasdes_user *user)
{
	bool has_stopped = user->stopped_in != rp->bracket;

	lockdep_assert_held(&rp->lock);
	if (!user->counter) {
		rasdes_tba_start(rp);
		has_stopped |= user->epoch != rp->tba.epoch;
	}
	if (!has_stopped)
		return;
	list_add(&user->fresh, &rasdes_shadow(rp, user)->fresh);
	rasdes_fold(rp, user);
}

/* The event counts no more; it was updated before. */
static void rasdes_end(struct rasdes_pmu *rp, struct rasdes_user *user)
{
	lockdep_assert_held(&rp->lock);
	user->stopped_in = list_empty(&user->fresh) ? rp->bracket : 0;
	user->epoch = rp->tba.epoch;
	list_del_init(&user->fresh);
	if (!list_empty(&user->carried)) {
		list_del_init(&user->carried);
		if (!user->counter)
			rasdes_tba_put(rp);
	}
	if (!user->counter)
		rasdes_tba_stop(rp);
}

static void rasdes_event_start(struct perf_event *event, int flags)
{
	struct rasdes_pmu *rp = to_rasdes(event->pmu);
	struct rasdes_user *user = event->pmu_private;
	unsigned long irq;

	if (!(event->hw.state & PERF_HES_STOPPED))
		return;
	event->hw.state = 0;
	raw_spin_lock_irqsave(&rp->lock, irq);
	rasdes_begin(rp, user);
	raw_spin_unlock_irqrestore(&rp->lock, irq);
}

static void rasdes_event_stop(struct perf_event *event, int flags)
{
	struct rasdes_pmu *rp = to_rasdes(event->pmu);
	struct rasdes_user *user = event->pmu_private;
	unsigned long irq;

	if (event->hw.state & PERF_HES_STOPPED)
		return;
	raw_spin_lock_irqsave(&rp->lock, irq);
	rasdes_update(rp, user);
	rasdes_end(rp, user);
	raw_spin_unlock_irqrestore(&rp->lock, irq);
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
}

static int rasdes_event_add(struct perf_event *event, int flags)
{
	struct rasdes_pmu *rp = to_rasdes(event->pmu);
	struct rasdes_user *user = event->pmu_private;
	bool is_carried;
	unsigned long irq;
	int ret = 0;

	raw_spin_lock_irqsave(&rp->lock, irq);
	is_carried = !list_empty(&user->carried);
	if (is_carried && !(flags & PERF_EF_START)) {
		rasdes_end(rp, user);
		is_carried = false;
	}
	list_del_init(&user->carried);
	if (!is_carried && !user->counter)
		ret = rasdes_tba_get(rp, user->report);
	raw_spin_unlock_irqrestore(&rp->lock, irq);
	if (ret)
		return ret;
	if (is_carried) {
		event->hw.state = 0;
		return 0;
	}
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
	if (flags & PERF_EF_START)
		rasdes_event_start(event, PERF_EF_RELOAD);
	return 0;
}

static void rasdes_event_del(struct perf_event *event, int flags)
{
	struct rasdes_pmu *rp = to_rasdes(event->pmu);
	struct rasdes_user *user = event->pmu_private;
	unsigned long irq;
	bool is_carried = false;

	raw_spin_lock_irqsave(&rp->lock, irq);
	if (rp->is_migrating && !(event->hw.state & PERF_HES_STOPPED)) {
		rasdes_update(rp, user);
		list_add(&user->carried, &rp->carried);
		is_carried = true;
	}
	raw_spin_unlock_irqrestore(&rp->lock, irq);
	if (is_carried)
		return;
	rasdes_event_stop(event, PERF_EF_UPDATE);
	if (user->counter)
		return;
	raw_spin_lock_irqsave(&rp->lock, irq);
	rasdes_tba_put(rp);
	raw_spin_unlock_irqrestore(&rp->lock, irq);
}

/*
 * Whatever perf does with its events it puts between these two. To let a new
 * event in, it stops and starts all others: no gap in what they count.
 */
static void rasdes_pmu_disable(struct pmu *pmu)
{
	struct rasdes_pmu *rp = to_rasdes(pmu);
	unsigned long flags;

	raw_spin_lock_irqsave(&rp->lock, flags);
	rp->bracket++;
	raw_spin_unlock_irqrestore(&rp->lock, flags);
}

static void rasdes_pmu_enable(struct pmu *pmu)
{
	struct rasdes_pmu *rp = to_rasdes(pmu);
	unsigned long flags;

	raw_spin_lock_irqsave(&rp->lock, flags);
	rasdes_tba_rest(rp);
	raw_spin_unlock_irqrestore(&rp->lock, flags);
}

static unsigned int rasdes_events_on(struct rasdes_pmu *rp, int cpu)
{
	struct rasdes_user *user;
	unsigned int n = 0;
	unsigned long flags;

	raw_spin_lock_irqsave(&rp->lock, flags);
	list_for_each_entry(user, &rp->users, node)
		n += READ_ONCE(user->event->cpu) == cpu;
	raw_spin_unlock_irqrestore(&rp->lock, flags);
	return n;
}

/*
 * Since 6.2, perf moves the first event or group of a PMU and then loses its
 * place in the tree that it takes them from: it has to be asked once for each.
 */
static void rasdes_migrate_all(struct rasdes_pmu *rp, int from, int to)
{
	unsigned int left = rasdes_events_on(rp, from), before;

	do {
		before = left;
		perf_pmu_migrate_context(&rp->pmu, from, to);
		left = rasdes_events_on(rp, from);
	} while (left && left < before);
}

/**
 * rasdes_migrate() - moves all events to another CPU, without a gap in what they count
 * @rp: the port; CPU hotplug is held still, and rp->hotplug
 * @cpu: where to
 */
void rasdes_migrate(struct rasdes_pmu *rp, int cpu)
{
	int from = rp->cpu;
	unsigned long flags;

	raw_spin_lock_irqsave(&rp->lock, flags);
	rp->is_migrating = true;
	raw_spin_unlock_irqrestore(&rp->lock, flags);
	WRITE_ONCE(rp->cpu, cpu);
	rasdes_migrate_all(rp, from, cpu);
	raw_spin_lock_irqsave(&rp->lock, flags);
	rp->is_migrating = false;
	/* Whoever was not scheduled again waits its turn, or was disabled meanwhile. */
	while (!list_empty(&rp->carried))
		rasdes_end(rp, list_first_entry(&rp->carried, struct rasdes_user, carried));
	rasdes_tba_rest(rp);
	raw_spin_unlock_irqrestore(&rp->lock, flags);
}

/**
 * rasdes_pmu_init() - fills in what perf is to know of the PMU
 * @rp: the port
 */
void rasdes_pmu_init(struct rasdes_pmu *rp)
{
	rp->pmu = (struct pmu) {
		.module = THIS_MODULE,
		.attr_groups = rasdes_groups,
		.capabilities = PERF_PMU_CAP_NO_EXCLUDE | PERF_PMU_CAP_NO_INTERRUPT,
		.task_ctx_nr = perf_invalid_context,
		.hrtimer_interval_ms = RASDES_TURN_MS,
		.pmu_disable = rasdes_pmu_disable,
		.pmu_enable = rasdes_pmu_enable,
		.event_init = rasdes_event_init,
		.add = rasdes_event_add,
		.del = rasdes_event_del,
		.start = rasdes_event_start,
		.stop = rasdes_event_stop,
		.read = rasdes_event_read,
	};
}
