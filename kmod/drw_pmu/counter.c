// SPDX-License-Identifier: GPL-2.0-only
/*
 * The sub-channel's counters: who has which, what they have counted in 64
 * bits, and when the hardware runs. docs/spec/drw.md
 *
 * Counters of 32 bits are never written while they count: that would lose
 * what they count between the look and the write. They pass their end, and
 * their overflow bit is 2^32 that still has to be added. If real counters
 * should stand at their end instead, that is noticed: see drw_hold().
 */
#include "internal.h"

/* A counter that holds at its end is preloaded from here on: far enough from it for a poll. */
#define DRW_HOLD_LIMIT	BIT(31)

#define DRW_CYCLE_BITS	GENMASK_ULL(55, 0)

/* More carries than this in a row do not happen: 8.6 seconds lie between two. */
#define DRW_CYCLE_TRIES	8

/* The counters stand at their end: known from the parameter, or seen. */
bool drw_holds;

static u32 drw_read(struct drw_pmu *drw, unsigned int reg)
{
	lockdep_assert_held(&drw->lock);
	return readl(drw->regs + reg);
}

static void drw_write(struct drw_pmu *drw, unsigned int reg, u32 value)
{
	lockdep_assert_held(&drw->lock);
	writel(value, drw->regs + reg);
}

static bool drw_is_cycle(const struct drw_user *user)
{
	return user->id == DRW_EVENT_CYCLE;
}

static void drw_preload(struct drw_pmu *drw, unsigned int counter, u32 value)
{
	drw_write(drw, DRW_TEST, DRW_TEST_COMMON + counter);
	drw_write(drw, DRW_PRELOAD, value);
	drw_write(drw, DRW_TEST, 0);
}

/**
 * drw_quiesce() - leaves the hardware standing, without interrupts and selectors
 * @drw: the PMU
 */
void drw_quiesce(struct drw_pmu *drw)
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
	/* All of it has arrived when this is answered. */
	drw_read(drw, DRW_OVERFLOW_STATUS);
	drw->is_running = false;
}

/*
 * Hardware does not say whether its counters wrap or stand at their end. One
 * that stands there with its overflow bit set tells: then what came since is
 * lost, and from now on counters are preloaded before their end.
 */
static void drw_hold(struct drw_pmu *drw, struct drw_user *user)
{
	WRITE_ONCE(drw_holds, true);
	drw->saturated[user->id]++;
	user->total += U32_MAX - user->last;
	drw_preload(drw, user->counter, 0);
	drw_write(drw, DRW_OVERFLOW_CLEAR, DRW_OVERFLOW(user->counter));
	user->last = 0;
}

/* The counter's overflow bit is set: it has passed its end, before this was called. */
static void drw_fold_overflow(struct drw_pmu *drw, struct drw_user *user)
{
	u32 value = drw_read(drw, DRW_COUNTER(user->counter)), later;

	drw_write(drw, DRW_OVERFLOW_CLEAR, DRW_OVERFLOW(user->counter));
	later = drw_read(drw, DRW_COUNTER(user->counter));
	if (later == U32_MAX) {
		/* All-ones from a device that is gone are no count. */
		if (drw_read(drw, DRW_OVERFLOW_STATUS) == U32_MAX)
			return;
		if (value == U32_MAX) {
			drw_hold(drw, user);
			return;
		}
	}
	user->total += BIT_ULL(32) + value - user->last;
	if (later < value) {
		/* Again, before or after the bit was cleared. */
		user->total += BIT_ULL(32);
		drw_write(drw, DRW_OVERFLOW_CLEAR, DRW_OVERFLOW(user->counter));
	}
	user->total += (u64)later - value;
	user->last = later;
}

/*
 * The value first, then the bit: a bit that is not set says that the value is
 * from before the end; one that is, that any value read later is from behind.
 */
static void drw_fold_common(struct drw_pmu *drw, struct drw_user *user)
{
	u32 value = drw_read(drw, DRW_COUNTER(user->counter));
	u32 status = drw_read(drw, DRW_OVERFLOW_STATUS);

	/* The bit may come a little later than the counter's step. */
	if (!(status & DRW_OVERFLOW(user->counter)) && value < user->last)
		status = drw_read(drw, DRW_OVERFLOW_STATUS);
	if (status == U32_MAX)
		return;
	if (status & DRW_OVERFLOW(user->counter)) {
		drw_fold_overflow(drw, user);
		return;
	}
	user->total += (u32)(value - user->last);
	user->last = value;
}

/* The halves are not latched together. False: the device is gone. */
static bool drw_read_cycles(struct drw_pmu *drw, u64 *cycles)
{
	u32 again = drw_read(drw, DRW_CYCLE_HIGH), high, low;
	unsigned int tries = DRW_CYCLE_TRIES;

	do {
		high = again;
		low = drw_read(drw, DRW_CYCLE_LOW);
		again = drw_read(drw, DRW_CYCLE_HIGH);
	} while (again != high && --tries);
	if (high == U32_MAX || again != high)
		return false;
	*cycles = (u64)(high & DRW_CYCLE_HIGH_BITS) << 32 | low;
	return true;
}

static void drw_fold_cycles(struct drw_pmu *drw, struct drw_user *user)
{
	u64 cycles;

	if (!drw_read_cycles(drw, &cycles))
		return;
	user->total += (cycles - user->last) & DRW_CYCLE_BITS;
	user->last = cycles;
}

/**
 * drw_fold() - adds what a user's counter counted since the last look
 * @drw: the PMU
 * @user: the user; it counts, or did until now
 */
void drw_fold(struct drw_pmu *drw, struct drw_user *user)
{
	lockdep_assert_held(&drw->lock);
	if (drw->is_gone)
		return;
	if (drw_is_cycle(user))
		drw_fold_cycles(drw, user);
	else
		drw_fold_common(drw, user);
}

/**
 * drw_give() - gives perf what was counted since the last time
 * @user: the user
 */
void drw_give(struct drw_user *user)
{
	local64_add(user->total - user->given, &user->event->count);
	user->given = user->total;
}

static bool drw_is_on(const struct drw_user *user)
{
	return user->state == DRW_COUNTING || user->state == DRW_STOPPING;
}

/**
 * drw_answer() - answers an interrupt, if it is this PMU's
 * @drw: the PMU
 *
 * Return: whether it was.
 */
bool drw_answer(struct drw_pmu *drw)
{
	u32 status;
	unsigned long pending;
	unsigned int n;

	lockdep_assert_held(&drw->lock);
	if (drw->is_gone)
		return false;
	status = drw_read(drw, DRW_OVERFLOW_STATUS);
	if (status == U32_MAX || !(status & DRW_OVERFLOW_COMMON))
		return false;
	pending = (status & DRW_OVERFLOW_COMMON) >> 8;
	for_each_set_bit(n, &pending, DRW_COUNTERS) {
		if (drw->counters[n] && drw_is_on(drw->counters[n]))
			drw_fold(drw, drw->counters[n]);
		else
			drw_write(drw, DRW_OVERFLOW_CLEAR, DRW_OVERFLOW(n));
	}
	return true;
}

/**
 * drw_look() - looks at all counters in use, in case that an interrupt was lost
 * @drw: the PMU
 */
void drw_look(struct drw_pmu *drw)
{
	struct drw_user *user;

	lockdep_assert_held(&drw->lock);
	if (drw->is_gone)
		return;
	list_for_each_entry(user, &drw->users, node) {
		if (!drw_is_on(user))
			continue;
		drw_fold(drw, user);
		if (drw_holds && !drw_is_cycle(user) && user->last >= DRW_HOLD_LIMIT) {
			drw_fold(drw, user);
			drw_preload(drw, user->counter, 0);
			user->last = 0;
		}
	}
}

static void drw_choose(u32 *select, const struct drw_user *user, bool is_on)
{
	unsigned int m = user->counter / 4, shift = user->counter % 4 * 8;

	if (drw_is_cycle(user))
		return;
	select[m] &= ~(0xffU << shift);
	if (is_on)
		select[m] |= (u32)(DRW_SELECT_ENABLE | user->id) << shift;
}

static void drw_write_select(struct drw_pmu *drw, const u32 *select)
{
	unsigned int m;

	for (m = 0; m < DRW_SELECTS; m++) {
		if (select[m] == drw->select[m])
			continue;
		drw_write(drw, DRW_SELECT(m), select[m]);
		drw->select[m] = select[m];
	}
}

/**
 * drw_halt() - a user counts no more; perf is given what it counted
 * @drw: the PMU
 * @user: the user; it keeps its counter
 *
 * The hardware goes on: that is for drw_settle().
 */
void drw_halt(struct drw_pmu *drw, struct drw_user *user)
{
	u32 select[DRW_SELECTS];

	lockdep_assert_held(&drw->lock);
	if (drw_is_on(user)) {
		memcpy(select, drw->select, sizeof(select));
		drw_choose(select, user, false);
		drw_write_select(drw, select);
		drw_fold(drw, user);
		drw_give(user);
	}
	user->state = DRW_HELD;
}

/**
 * drw_counter_put() - a user, which does not count, needs its counter no more
 * @drw: the PMU
 * @user: the user
 */
void drw_counter_put(struct drw_pmu *drw, struct drw_user *user)
{
	lockdep_assert_held(&drw->lock);
	if (!drw_is_cycle(user))
		drw->counters[user->counter] = NULL;
	list_del_init(&user->node);
	user->state = DRW_IDLE;
}

/*
 * Someone who stops, or is put back in a moment. Pinned events are, and are to
 * have no gap: they come last, and not at all on their way to another CPU.
 */
static struct drw_user *drw_find_stopping(struct drw_pmu *drw)
{
	struct drw_user *user, *pinned = NULL;
	unsigned int n;

	for (n = 0; n < DRW_COUNTERS; n++) {
		user = drw->counters[n];
		if (user->state != DRW_STOPPING)
			continue;
		if (!user->event->attr.pinned)
			return user;
		if (!drw->is_migrating)
			pinned = user;
	}
	return pinned;
}

/* A free common counter, or one whose user stops anyway. */
static int drw_find_free(struct drw_pmu *drw)
{
	struct drw_user *user;
	unsigned int n;

	for (n = 0; n < DRW_COUNTERS; n++) {
		if (!drw->counters[n])
			return n;
	}
	user = drw_find_stopping(drw);
	if (!user)
		return -EAGAIN;
	drw_halt(drw, user);
	drw_counter_put(drw, user);
	return user->counter;
}

/**
 * drw_counter_get() - gives an idle user a counter, which stands at 0
 * @drw: the PMU
 * @user: the user
 *
 * Return: 0, -EAGAIN if there is none, or -ENODEV if the device is gone.
 */
int drw_counter_get(struct drw_pmu *drw, struct drw_user *user)
{
	int counter;

	lockdep_assert_held(&drw->lock);
	if (drw->is_gone)
		return -ENODEV;
	if (!drw_is_cycle(user)) {
		counter = drw_find_free(drw);
		if (counter < 0)
			return counter;
		user->counter = counter;
		drw->counters[counter] = user;
		/* It is disabled: nothing gets lost. */
		drw_preload(drw, counter, 0);
		drw_write(drw, DRW_OVERFLOW_CLEAR, DRW_OVERFLOW(counter));
		user->last = drw_read(drw, DRW_COUNTER(counter));
	}
	list_add_tail(&user->node, &drw->users);
	user->state = DRW_HELD;
	return 0;
}

/* Whether a user lets the hardware run on. */
static bool drw_goes_on(const struct drw_pmu *drw, const struct drw_user *user)
{
	return user->state == DRW_STARTING || user->state == DRW_COUNTING ||
	       (user->state == DRW_STOPPING && drw->is_migrating);
}

/* Users of cycles begin with the counter as it is now. */
static void drw_base_cycles(struct drw_pmu *drw)
{
	struct drw_user *user;
	bool is_known = false;
	u64 cycles = 0;

	list_for_each_entry(user, &drw->users, node) {
		if (user->state != DRW_STARTING || !drw_is_cycle(user))
			continue;
		if (!is_known && !drw_read_cycles(drw, &cycles))
			return;
		is_known = true;
		user->last = cycles;
	}
}

/**
 * drw_settle() - starts and stops what perf's transaction has asked for
 * @drw: the PMU
 *
 * A group starts and stops at one moment if nobody else counts: with the whole
 * sub-channel. Else with its selectors, because others are not to be stopped.
 */
void drw_settle(struct drw_pmu *drw)
{
	struct drw_user *user, *next;
	u32 select[DRW_SELECTS];
	bool is_needed = false;

	lockdep_assert_held(&drw->lock);
	WRITE_ONCE(drw->is_dirty, false);
	if (drw->is_gone)
		return;
	memcpy(select, drw->select, sizeof(select));
	list_for_each_entry(user, &drw->users, node) {
		is_needed |= drw_goes_on(drw, user);
		if (user->state == DRW_STARTING)
			drw_choose(select, user, true);
		else if (user->state == DRW_STOPPING && !drw->is_migrating)
			drw_choose(select, user, false);
	}
	if (drw->is_running && !is_needed) {
		drw_write(drw, DRW_CTRL, DRW_CTRL_STOP);
		drw->is_running = false;
	}
	if (!drw->is_running)
		drw_base_cycles(drw);
	drw_write_select(drw, select);
	if (drw->is_running) {
		drw_base_cycles(drw);
	} else if (is_needed) {
		drw_write(drw, DRW_CTRL, DRW_CTRL_START);
		drw->is_running = true;
	}
	list_for_each_entry_safe(user, next, &drw->users, node) {
		if (user->state == DRW_STARTING) {
			user->state = DRW_COUNTING;
		} else if (user->state == DRW_STOPPING && !drw->is_migrating) {
			drw_halt(drw, user);
			drw_counter_put(drw, user);
		}
	}
}

/**
 * drw_end() - the device is being taken away: nobody counts any more, and perf has all counts
 * @drw: the PMU
 */
void drw_end(struct drw_pmu *drw)
{
	struct drw_user *user, *next;

	lockdep_assert_held(&drw->lock);
	drw_write(drw, DRW_CTRL, DRW_CTRL_STOP);
	list_for_each_entry_safe(user, next, &drw->users, node) {
		drw_halt(drw, user);
		drw_counter_put(drw, user);
	}
	drw_quiesce(drw);
	drw->is_gone = true;
}
