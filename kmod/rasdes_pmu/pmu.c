// SPDX-License-Identifier: GPL-2.0-only
/*
 * perf's side: events that are counted system-wide on one CPU.
 *
 * All events share the hardware's counters. Each counter has a total of 64 bits. The
 * total grows while the counter is enabled: while an event of it exists, or while its
 * report runs. An event's count is the growth of the total since hw.prev_count.
 *
 * perf removes all events and adds them again to let a new event in, or to move them
 * to another CPU. For the user these events never stop, so they must not lose what
 * happens meanwhile. An access takes 1 to 100 us, so that would be thousands of TLPs
 * each time. Therefore counters keep running while perf has disabled the PMU, and during
 * a migration. An event that is stopped and started again before the PMU is enabled keeps
 * its prev_count. hw.last_tag is the disable_seq with which it was stopped. Its counter is
 * not read then: with 18 ports and all their counters, perf would read thousands of
 * registers with interrupts off for each event that it lets in, and at each turn of the
 * reports. Its reading is deferred: it lacks PERF_HES_UPTODATE. rasdes_commit() reads for
 * the events that have not started again.
 *
 * If the viewport cannot be reached when an event starts, the event begins with the
 * total of the last reading.
 */
#include "internal.h"

/*
 * How long one of several reports runs before perf switches the engine to the next.
 * The switch takes a dozen accesses to configuration space, while perf's clock runs.
 * With perf's usual 4 ms that loss would matter. perf_event_mux_interval_ms in sysfs
 * changes the time.
 */
#define RASDES_TURN_MS		50
#define RASDES_TURN_MAX_MS	1000
#define RASDES_SWITCH_ACCESSES	12
/* As many ports as a large machine has: perf switches all of them on one CPU. */
#define RASDES_PORTS		32

/* The tag of an event that was stopped during a migration: no disable_seq has this value. */
static u64 rasdes_migration(const struct rasdes_pmu *rp)
{
	return U64_MAX - rp->u.migrations;
}

static bool rasdes_is_report(const struct rasdes_counter *c)
{
	return !c->bits;
}

/* Two reports cannot run together. */
static bool rasdes_fits(struct perf_event *event, void *state)
{
	struct rasdes_counter *c = event->pmu_private, **report = state;

	if (!rasdes_is_report(c))
		return true;
	if (*report && *report != c)
		return false;
	*report = c;
	return true;
}

/* The counter or report that a configuration names, or NULL. */
static struct rasdes_counter *rasdes_find_counter(struct rasdes_pmu *rp, u64 config)
{
	unsigned int id = FIELD_GET(RASDES_CONFIG_EVENT, config);
	unsigned int type = FIELD_GET(RASDES_CONFIG_TYPE, config);
	unsigned int lane = FIELD_GET(RASDES_CONFIG_LANE, config);
	struct rasdes_counter *c;
	u32 select;

	if (config & ~RASDES_CONFIG)
		return NULL;
	if (type == rasdes_is_seed) {
		/* A code that is no report has no unit. */
		if (lane || id >= RASDES_REPORTS || !rp->reports[id].unit)
			return NULL;
		return &rp->reports[id];
	}
	if (type != rasdes_is_seed + 1 || id > FIELD_MAX(RASDES_EVENT_CTL_EVENT) ||
	    lane >= RASDES_MAX_LANES)
		return NULL;
	select = FIELD_PREP(RASDES_EVENT_CTL_EVENT, id) | FIELD_PREP(RASDES_EVENT_CTL_LANE, lane);
	for (c = rp->counters; c < rp->counters + rp->ncounters; c++) {
		if (c->select == select)
			return c;
	}
	return NULL;
}

static void rasdes_event_destroy(struct perf_event *event)
{
	struct rasdes_pmu *rp = to_rasdes(event->pmu);
	struct rasdes_counter *c = event->pmu_private;
	unsigned long flags;

	raw_spin_lock_irqsave(&rp->u.lock, flags);
	if (!rasdes_is_report(c))
		rasdes_counter_put(rp, c);
	raw_spin_unlock_irqrestore(&rp->u.lock, flags);
	uncore_event_leave(event);
}

static int rasdes_event_init(struct perf_event *event)
{
	struct rasdes_pmu *rp = to_rasdes(event->pmu);
	struct rasdes_counter *c, *report = NULL;
	unsigned long flags;
	int ret;

	ret = uncore_event_check(event);
	if (ret)
		return ret;
	c = rasdes_find_counter(rp, event->attr.config);
	if (!c)
		return -EINVAL;
	event->pmu_private = c;
	if (!uncore_group_check(event, rasdes_fits, &report))
		return -EINVAL;
	ret = uncore_event_enter(event);
	if (ret)
		return ret;
	raw_spin_lock_irqsave(&rp->u.lock, flags);
	if (!rasdes_is_report(c))
		ret = rasdes_counter_get(rp, c);
	else if (rasdes_read(rp, RASDES_TBA_CTL) == U32_MAX)
		ret = -ENODEV;
	raw_spin_unlock_irqrestore(&rp->u.lock, flags);
	if (ret)
		uncore_event_leave(event);
	else
		event->destroy = rasdes_event_destroy;
	return ret;
}

static void rasdes_update_total(struct rasdes_pmu *rp, struct rasdes_counter *c)
{
	if (rasdes_is_report(c))
		rasdes_tba_update(rp);
	else
		rasdes_counter_update(rp, c);
}

/* Adds to an event what its counter's total has grown. */
static void rasdes_event_fold(struct perf_event *event, const struct rasdes_counter *c)
{
	u64 prev = local64_xchg(&event->hw.prev_count, c->total);

	local64_add((c->total - prev) * c->unit, &event->count);
}

static void rasdes_event_update(struct rasdes_pmu *rp, struct perf_event *event)
{
	struct rasdes_counter *c = event->pmu_private;

	rasdes_update_total(rp, c);
	if (c == &rp->reports[RASDES_REPORT_ONE_CYCLE])
		local64_set(&event->count, c->total);
	else
		rasdes_event_fold(event, c);
}

static void rasdes_event_read(struct perf_event *event)
{
	struct rasdes_pmu *rp = to_rasdes(event->pmu);

	if (event->hw.state & PERF_HES_STOPPED)
		return;
	guard(raw_spinlock)(&rp->u.lock);
	rasdes_event_update(rp, event);
}

static void rasdes_event_start(struct perf_event *event, int flags)
{
	struct rasdes_pmu *rp = to_rasdes(event->pmu);
	struct rasdes_counter *c = event->pmu_private;
	bool has_begun = false, is_deferred, is_resumed;

	if (!(event->hw.state & PERF_HES_STOPPED))
		return;
	guard(raw_spinlock)(&rp->u.lock);
	is_deferred = !(event->hw.state & PERF_HES_UPTODATE);
	if (is_deferred)
		rp->deferred--;
	event->hw.state = 0;
	is_resumed = is_deferred || event->hw.last_tag == rp->u.disable_seq ||
		  (rp->u.is_migrating && event->hw.last_tag == rasdes_migration(rp));
	if (rasdes_is_report(c))
		has_begun = rasdes_tba_start(rp);
	if (has_begun || !is_resumed)
		rasdes_update_total(rp, c);
	if (!is_resumed)
		local64_set(&event->hw.prev_count, c->total);
}

static void rasdes_event_stop(struct perf_event *event, int flags)
{
	struct rasdes_pmu *rp = to_rasdes(event->pmu);

	if (event->hw.state & PERF_HES_STOPPED)
		return;
	guard(raw_spinlock)(&rp->u.lock);
	event->hw.state = PERF_HES_STOPPED;
	event->hw.last_tag = rp->u.is_migrating ? rasdes_migration(rp) : rp->u.disable_seq;
	if (rp->u.disable_depth && !rp->u.is_migrating && !rasdes_is_report(event->pmu_private)) {
		rp->deferred++;
		/* Who reads the event before the commit sees at least the last poll. */
		rasdes_event_fold(event, event->pmu_private);
	} else {
		rasdes_event_update(rp, event);
		event->hw.state |= PERF_HES_UPTODATE;
	}
	if (rasdes_is_report(event->pmu_private))
		rp->tba.running--;
}

/* Reads for the events that were stopped while the PMU was disabled. */
static void rasdes_update_stopped(struct rasdes_pmu *rp)
{
	struct perf_event *event;

	if (!rp->deferred)
		return;
	list_for_each_entry(event, &rp->u.events, active_entry) {
		if (event->hw.state != PERF_HES_STOPPED)
			continue;
		rasdes_event_update(rp, event);
		event->hw.state |= PERF_HES_UPTODATE;
		perf_event_update_userpage(event);
	}
	rp->deferred = 0;
}

static int rasdes_event_add(struct perf_event *event, int flags)
{
	struct rasdes_pmu *rp = to_rasdes(event->pmu);
	struct rasdes_counter *c = event->pmu_private;
	int ret = 0;

	raw_spin_lock(&rp->u.lock);
	if (rasdes_is_report(c))
		ret = rasdes_tba_get(rp, c);
	raw_spin_unlock(&rp->u.lock);
	if (ret)
		return ret;
	/* A deferred reading stays so. */
	if (event->hw.state != PERF_HES_STOPPED)
		event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
	if (flags & PERF_EF_START)
		rasdes_event_start(event, PERF_EF_RELOAD);
	perf_event_update_userpage(event);
	return 0;
}

static void rasdes_event_del(struct perf_event *event, int flags)
{
	struct rasdes_pmu *rp = to_rasdes(event->pmu);

	rasdes_event_stop(event, PERF_EF_UPDATE);
	raw_spin_lock(&rp->u.lock);
	if (rasdes_is_report(event->pmu_private))
		rp->tba.holders--;
	raw_spin_unlock(&rp->u.lock);
	perf_event_update_userpage(event);
}

/**
 * rasdes_commit() - reads the events that were stopped while the PMU was disabled
 * @u: the PMU, locked
 */
void rasdes_commit(struct uncore_pmu *u)
{
	struct rasdes_pmu *rp = to_rasdes(&u->pmu);

	rasdes_update_stopped(rp);
	rasdes_tba_stop_unused(rp);
}

/*
 * All ports' switches may take a tenth of a CPU's time. Where each access traps to a
 * hypervisor or to firmware, turns of 50 ms could leave that CPU no time for anything
 * else: its timer's interrupt would take longer than a turn.
 */
static unsigned int rasdes_turn_ms(struct rasdes_pmu *rp)
{
	u64 best = NSEC_PER_MSEC, begin;
	unsigned int i;
	u32 header;

	for (i = 0; i < 8; i++) {
		begin = ktime_get_ns();
		pci_read_config_dword(rp->pdev, rp->vsec + PCI_VNDR_HEADER, &header);
		best = min(best, ktime_get_ns() - begin);
	}
	best *= RASDES_SWITCH_ACCESSES * RASDES_PORTS * 10;
	return clamp_t(u64, div_u64(best, NSEC_PER_MSEC), RASDES_TURN_MS, RASDES_TURN_MAX_MS);
}

/**
 * rasdes_pmu_init() - fills in perf's description of the PMU
 * @rp: the PMU, with its function
 */
void rasdes_pmu_init(struct rasdes_pmu *rp)
{
	rp->u.pmu = (struct pmu) {
		.module = THIS_MODULE,
		.attr_groups = rasdes_groups,
		.capabilities = PERF_PMU_CAP_NO_EXCLUDE | PERF_PMU_CAP_NO_INTERRUPT,
		.task_ctx_nr = perf_invalid_context,
		.hrtimer_interval_ms = rasdes_turn_ms(rp),
		.pmu_disable = uncore_pmu_disable,
		.pmu_enable = uncore_pmu_enable,
		.event_init = rasdes_event_init,
		.add = rasdes_event_add,
		.del = rasdes_event_del,
		.start = rasdes_event_start,
		.stop = rasdes_event_stop,
		.read = rasdes_event_read,
	};
}
