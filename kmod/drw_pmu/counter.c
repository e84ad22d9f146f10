// SPDX-License-Identifier: GPL-2.0-only
/*
 * The sub-channel's counters: their events, their totals of 64 bits, and the state of
 * the hardware. docs/spec/drw.md
 *
 * The driver never writes a 32-bit counter while it counts, because counts between the
 * reading and the write would be lost. Counters wrap, and a set overflow bit means that
 * 2^32 has to be added. If real counters should saturate instead, the driver notices
 * it: see drw_saturate().
 *
 * perf removes events and adds them again to let others in, or to move them to another
 * CPU. An event that is only rearranged must not lose counts, and a group should start
 * and stop at one moment. So the functions that perf calls only note the event's new
 * state. When perf enables the PMU, drw_commit() writes all changes at once. An event
 * that was removed and added again before that has never stopped. During a migration to
 * another CPU, removed events keep their counters until its end.
 */
#include "internal.h"

/* Counters that saturate are set back from this value on, which leaves time for a poll. */
#define DRW_HOLD_LIMIT	BIT(31)

#define DRW_CYCLE_BITS	GENMASK_ULL(55, 0)
/* Without this bit they are a year away from their end. */
#define DRW_CYCLE_UPPER	BIT_ULL(55)

/* Attempts to read the cycles: carries are 8.6 s apart. */
#define DRW_CYCLE_TRIES	8

/* The counters saturate: the parameter says so, or it was seen. */
bool drw_holds;

/* A device that is gone reads all-ones, as after a surprise removal: callers count nothing then. */
static u32 drw_read(struct drw_pmu *drw, unsigned int reg)
{
	lockdep_assert_held(&drw->u.lock);
	return uncore_is_away(&drw->u) ? U32_MAX : readl(drw->regs + reg);
}

static void drw_write(struct drw_pmu *drw, unsigned int reg, u32 value)
{
	lockdep_assert_held(&drw->u.lock);
	if (!uncore_is_away(&drw->u))
		writel(value, drw->regs + reg);
}

static void drw_preload(struct drw_pmu *drw, unsigned int n, u32 value)
{
	drw_write(drw, DRW_TEST, DRW_TEST_COMMON + n);
	drw_write(drw, DRW_PRELOAD, value);
	drw_write(drw, DRW_TEST, 0);
	drw->counters[n].last = value;
}

/*
 * No document says whether the counters wrap or saturate. A counter at its end with its
 * overflow bit set has saturated. Its further counts are lost. From now on, the driver
 * sets counters back before they reach their end.
 */
static void drw_saturate(struct drw_pmu *drw, unsigned int n)
{
	struct drw_counter *c = &drw->counters[n];

	WRITE_ONCE(drw_holds, true);
	drw->saturated[c->event->attr.config]++;
	c->total += U32_MAX - c->last;
	drw_preload(drw, n, 0);
	drw_write(drw, DRW_OVERFLOW_CLEAR, DRW_OVERFLOW(n));
}

/*
 * Whether the sub-channel has lost its registers, as after a reset by firmware: a
 * selector is not what was written. What was counted since the last reading is lost.
 */
static bool drw_was_reset(struct drw_pmu *drw)
{
	unsigned int m;
	u32 select;

	for (m = 0; m < DRW_SELECTS; m++) {
		select = drw->select[m] ? drw_read(drw, DRW_SELECT(m)) : 0;
		if (select != drw->select[m])
			return select != U32_MAX;
	}
	return false;
}

/*
 * The counter's overflow bit is set: it has wrapped before this was called. If a wrap was
 * counted before its bit was set, this may be its bit. Then the difference of the values
 * decides: two readings are less than 2^32 counts apart.
 */
static void drw_update_overflow(struct drw_pmu *drw, unsigned int n)
{
	u32 value = drw_read(drw, DRW_COUNTER(n)), later;
	struct drw_counter *c = &drw->counters[n];

	drw_write(drw, DRW_OVERFLOW_CLEAR, DRW_OVERFLOW(n));
	later = drw_read(drw, DRW_COUNTER(n));
	if (later == U32_MAX) {
		/* A device that is gone reads all-ones. */
		if (drw_read(drw, DRW_OVERFLOW_STATUS) == U32_MAX)
			return;
		if (value == U32_MAX) {
			drw_saturate(drw, n);
			return;
		}
	}
	if (!c->is_bit_due || value < c->last)
		c->total += BIT_ULL(32);
	/* One bit for two wraps: the other one's may still come. */
	c->is_bit_due = c->is_bit_due && value < c->last;
	c->total += (u64)value - c->last;
	if (later < value) {
		/* It has wrapped again, before or after the bit was cleared. */
		c->total += BIT_ULL(32);
		if (drw_read(drw, DRW_OVERFLOW_STATUS) & DRW_OVERFLOW(n))
			drw_write(drw, DRW_OVERFLOW_CLEAR, DRW_OVERFLOW(n));
		else
			c->is_bit_due = true;
	}
	c->total += (u64)later - value;
	c->last = later;
}

/*
 * Reads the value first, then the overflow bit. If the bit is clear, the value is from
 * before the wrap. If it is set, any value that is read later is from after the wrap.
 */
static void drw_update_common(struct drw_pmu *drw, unsigned int n)
{
	struct drw_counter *c = &drw->counters[n];
	u32 value = drw_read(drw, DRW_COUNTER(n));
	u32 status = drw_read(drw, DRW_OVERFLOW_STATUS);

	/* The bit may be set a little later than the counter wraps. */
	if (!(status & DRW_OVERFLOW(n)) && value < c->last)
		status = drw_read(drw, DRW_OVERFLOW_STATUS);
	if (status == U32_MAX)
		return;
	if (status & DRW_OVERFLOW(n)) {
		drw_update_overflow(drw, n);
		return;
	}
	if (value >= c->last) {
		c->total += value - c->last;
	} else if (!drw_was_reset(drw)) {
		c->total += (u32)(value - c->last);
		c->is_bit_due = true;
	}
	c->last = value;
}

/* The halves are not latched together. */
static void drw_update_cycles(struct drw_pmu *drw)
{
	u32 again = drw_read(drw, DRW_CYCLE_HIGH), high, low;
	struct drw_counter *c = &drw->counters[DRW_CYCLES];
	unsigned int tries = DRW_CYCLE_TRIES;
	u64 cycles;

	do {
		high = again;
		low = drw_read(drw, DRW_CYCLE_LOW);
		again = drw_read(drw, DRW_CYCLE_HIGH);
	} while (again != high && --tries);
	/* The device is gone. */
	if (high == U32_MAX || again != high)
		return;
	cycles = (u64)(high & DRW_CYCLE_HIGH_BITS) << 32 | low;
	if (cycles >= c->last || c->last & DRW_CYCLE_UPPER)
		c->total += (cycles - c->last) & DRW_CYCLE_BITS;
	else
		drw->is_lost = true;
	c->last = cycles;
}

static void drw_counter_update(struct drw_pmu *drw, unsigned int n)
{
	if (n == DRW_CYCLES)
		drw_update_cycles(drw);
	else
		drw_update_common(drw, n);
}

/**
 * drw_event_update() - adds to an event's count what its counter has counted
 * @drw: the PMU
 * @event: the event, which counts or has just been stopped
 */
void drw_event_update(struct drw_pmu *drw, struct perf_event *event)
{
	u64 total, prev;

	drw_counter_update(drw, event->hw.idx);
	total = drw->counters[event->hw.idx].total;
	prev = local64_xchg(&event->hw.prev_count, total);
	local64_add(total - prev, &event->count);
}

/* Stops the hardware, without interrupts and selectors. */
static void drw_quiesce(struct drw_pmu *drw)
{
	unsigned int m;

	drw_write(drw, DRW_CTRL, DRW_CTRL_STOP);
	drw_write(drw, DRW_OVERFLOW_DISABLE, DRW_OVERFLOW_ALL);
	drw_write(drw, DRW_TEST, 0);
	for (m = 0; m < DRW_SELECTS; m++) {
		drw_write(drw, DRW_SELECT(m), 0);
		drw->select[m] = 0;
	}
	drw_write(drw, DRW_OVERFLOW_CLEAR, DRW_OVERFLOW_ALL);
	/* The read completes after all writes have arrived. */
	drw_read(drw, DRW_OVERFLOW_STATUS);
	drw->is_running = false;
}

/* Sets a device whose registers are unknown to what drw_commit() begins with. */
static void drw_reprogram(struct drw_pmu *drw)
{
	u64 cycles = drw->counters[DRW_CYCLES].total;
	unsigned int n;

	drw_quiesce(drw);
	for (n = 0; n < DRW_COUNTERS; n++)
		drw_preload(drw, n, 0);
	/* The present value belongs to no event. */
	drw_update_cycles(drw);
	drw->counters[DRW_CYCLES].total = cycles;
	drw->is_lost = false;
	/* Without a handler nobody would answer: drw_request_irq() comes later. */
	if (drw->irq)
		drw_write(drw, DRW_OVERFLOW_ENABLE, DRW_OVERFLOW_COMMON);
}

/*
 * Looks for a reset before selectors change, because a changed selector no longer shows
 * it. If it returns true, the hardware is stopped until the next drw_commit().
 */
static bool drw_handle_reset(struct drw_pmu *drw)
{
	if (!drw->is_running)
		return false;
	/* With selectors that are all 0, only the cycles can tell. */
	drw_update_cycles(drw);
	if (!drw->is_lost && !drw_was_reset(drw))
		return false;
	drw->was_reset = true;
	drw_reprogram(drw);
	return true;
}

static bool drw_is_on(const struct perf_event *event)
{
	return event->hw.flags == DRW_COUNTING || event->hw.flags == DRW_REMOVED;
}

static bool drw_counter_is_on(const struct drw_pmu *drw, unsigned int n)
{
	return drw->counters[n].event && drw_is_on(drw->counters[n].event);
}

/**
 * drw_handle_overflows() - handles the PMU's part of an interrupt
 * @drw: the PMU
 *
 * Return: whether the interrupt was this PMU's.
 */
bool drw_handle_overflows(struct drw_pmu *drw)
{
	u32 status = drw_read(drw, DRW_OVERFLOW_STATUS);
	unsigned long pending = (status & DRW_OVERFLOW_COMMON) >> 8;
	unsigned int n;

	if (status == U32_MAX || !pending)
		return false;
	for_each_set_bit(n, &pending, DRW_COUNTERS) {
		if (drw_counter_is_on(drw, n)) {
			drw_update_common(drw, n);
		} else {
			drw_write(drw, DRW_OVERFLOW_CLEAR, DRW_OVERFLOW(n));
			drw->counters[n].is_bit_due = false;
		}
	}
	return true;
}

/**
 * drw_read_counters() - reads all counters in use, in case an interrupt was lost
 * @drw: the PMU
 *
 * A sub-channel that has lost its registers is programmed again.
 *
 * Return: whether it has lost them since the last call.
 */
bool drw_read_counters(struct drw_pmu *drw)
{
	bool was_reset;
	unsigned int n;

	if (drw_handle_reset(drw))
		drw_commit(&drw->u);
	was_reset = drw->was_reset;
	drw->was_reset = false;
	for (n = 0; n < DRW_COUNTERS; n++) {
		if (!drw_counter_is_on(drw, n))
			continue;
		drw_update_common(drw, n);
		if (drw_holds && drw->counters[n].last >= DRW_HOLD_LIMIT) {
			drw_update_common(drw, n);
			drw_preload(drw, n, 0);
		}
	}
	return was_reset;
}

static void drw_write_select(struct drw_pmu *drw, unsigned int m, u32 select)
{
	if (select == drw->select[m])
		return;
	drw_write(drw, DRW_SELECT(m), select);
	drw->select[m] = select;
}

/**
 * drw_event_disable() - stops an event at once; it keeps its counter
 * @drw: the PMU
 * @event: the event, not idle
 *
 * The hardware still runs: drw_commit() stops it.
 */
void drw_event_disable(struct drw_pmu *drw, struct perf_event *event)
{
	unsigned int n = event->hw.idx;

	if (drw_is_on(event)) {
		drw_handle_reset(drw);
		if (n != DRW_CYCLES)
			drw_write_select(drw, n / 4, drw->select[n / 4] & ~(0xffU << n % 4 * 8));
		drw_event_update(drw, event);
	}
	event->hw.flags = DRW_STOPPED;
}

/**
 * drw_counter_put() - frees an event's counter
 * @drw: the PMU
 * @event: the event, stopped
 */
void drw_counter_put(struct drw_pmu *drw, struct perf_event *event)
{
	drw->counters[event->hw.idx].event = NULL;
	event->hw.flags = DRW_IDLE;
}

/*
 * A free common counter, or the counter of an event that was removed and not added
 * again yet. perf adds pinned groups first; during a migration they keep their
 * counters.
 */
static int drw_find_free(struct drw_pmu *drw)
{
	struct perf_event *event;
	int n;

	for (n = 0; n < DRW_COUNTERS; n++) {
		if (!drw->counters[n].event)
			return n;
	}
	for (n = 0; n < DRW_COUNTERS; n++) {
		event = drw->counters[n].event;
		if (event->hw.flags != DRW_REMOVED ||
		    (drw->u.is_migrating && event->group_leader->attr.pinned))
			continue;
		drw_event_disable(drw, event);
		drw_counter_put(drw, event);
		return n;
	}
	return -EAGAIN;
}

/**
 * drw_counter_get() - gives an idle event a counter, set to 0
 * @drw: the PMU
 * @event: the event
 *
 * Return: 0, or -EAGAIN if there is none.
 */
int drw_counter_get(struct drw_pmu *drw, struct perf_event *event)
{
	int n = DRW_CYCLES;

	if (event->attr.config != DRW_EVENT_CYCLE) {
		n = drw_find_free(drw);
		if (n < 0)
			return n;
		/* The counter is disabled: nothing is lost. */
		drw_preload(drw, n, 0);
		drw_write(drw, DRW_OVERFLOW_CLEAR, DRW_OVERFLOW(n));
		drw->counters[n].event = event;
		local64_set(&event->hw.prev_count, drw->counters[n].total);
	}
	event->hw.idx = n;
	event->hw.flags = DRW_STOPPED;
	return 0;
}

/* Whether an event has to count after perf's transaction. */
static bool drw_is_wanted(const struct drw_pmu *drw, const struct perf_event *event)
{
	return event->hw.flags == DRW_STARTING || event->hw.flags == DRW_COUNTING ||
	       (event->hw.flags == DRW_REMOVED && drw->u.is_migrating);
}

/* Whether drw_commit() starts or stops an event. */
static bool drw_has_changes(const struct drw_pmu *drw)
{
	const struct perf_event *event;

	list_for_each_entry(event, &drw->u.events, active_entry) {
		if (event->hw.flags == DRW_STARTING ||
		    (event->hw.flags == DRW_REMOVED && !drw->u.is_migrating))
			return true;
	}
	return false;
}

/* Fills in the selectors of all events that have to count. Return: whether there is one. */
static bool drw_find_select(const struct drw_pmu *drw, u32 *select)
{
	const struct perf_event *event;
	bool is_needed = false;

	list_for_each_entry(event, &drw->u.events, active_entry) {
		unsigned int n = event->hw.idx;

		if (!drw_is_wanted(drw, event))
			continue;
		is_needed = true;
		if (n != DRW_CYCLES)
			select[n / 4] |= (u32)(DRW_SELECT_ENABLE | event->attr.config) << n % 4 * 8;
	}
	return is_needed;
}

/**
 * drw_commit() - starts and stops counters as perf's transaction wants it
 * @u: the PMU
 *
 * If no other event counts, a group starts and stops at one moment, with the whole
 * sub-channel. Otherwise it starts and stops with its selectors, because the other
 * events must not stop.
 */
void drw_commit(struct uncore_pmu *u)
{
	struct drw_pmu *drw = to_drw(&u->pmu);
	u32 select[DRW_SELECTS] = { 0 };
	bool is_needed = drw_find_select(drw, select);
	struct perf_event *event;
	unsigned int m;

	if (drw_has_changes(drw))
		drw_handle_reset(drw);
	if (drw->is_running && !is_needed)
		drw_write(drw, DRW_CTRL, DRW_CTRL_STOP);
	for (m = 0; m < DRW_SELECTS; m++)
		drw_write_select(drw, m, select[m]);
	list_for_each_entry(event, &drw->u.events, active_entry) {
		if (event->hw.flags == DRW_STARTING) {
			event->hw.flags = DRW_COUNTING;
			if (event->hw.idx == DRW_CYCLES) {
				drw_update_cycles(drw);
				local64_set(&event->hw.prev_count, drw->counters[DRW_CYCLES].total);
			}
		} else if (event->hw.flags == DRW_REMOVED && !drw->u.is_migrating) {
			drw_event_update(drw, event);
			drw_counter_put(drw, event);
		}
	}
	if (!drw->is_running && is_needed)
		drw_write(drw, DRW_CTRL, DRW_CTRL_START);
	drw->is_running = is_needed;
}

/**
 * drw_resume() - programs a device that has come, or has slept, for the existing events
 * @u: the PMU
 */
void drw_resume(struct uncore_pmu *u)
{
	struct drw_pmu *drw = to_drw(&u->pmu);

	drw_reprogram(drw);
	drw_commit(u);
}

/**
 * drw_suspend() - reads the last counts of a device that will go or sleep, and stops it
 * @u: the PMU
 */
void drw_suspend(struct uncore_pmu *u)
{
	struct drw_pmu *drw = to_drw(&u->pmu);
	struct perf_event *event;

	drw_write(drw, DRW_CTRL, DRW_CTRL_STOP);
	list_for_each_entry(event, &u->events, active_entry) {
		if (drw_is_on(event))
			drw_event_update(drw, event);
	}
	drw_quiesce(drw);
}
