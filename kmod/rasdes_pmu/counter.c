// SPDX-License-Identifier: GPL-2.0-only
/*
 * The event counters, behind their viewport. Others may move it between any
 * two accesses (firmware, a management processor, the debugfs files of the
 * DesignWare driver): a look at a counter counts only if the select read back
 * after the data is still ours.
 */
#include "internal.h"
#include "fold.h"

/**
 * rasdes_settle() - what started since the last look begins here
 * @shadow: of what was looked at
 */
void rasdes_settle(struct rasdes_shadow *shadow)
{
	struct rasdes_user *user, *next;

	list_for_each_entry_safe(user, next, &shadow->fresh, fresh) {
		user->base = shadow->total;
		list_del_init(&user->fresh);
	}
}

/* Does the word that the viewport's control shows pick this counter? */
static int rasdes_judge(struct rasdes_pmu *rp, const struct rasdes_counter *c, u32 ctl)
{
	if (ctl == U32_MAX) {
		rp->selected = U32_MAX;
		return -ENODEV;
	}
	rp->selected = ctl & RASDES_EVENT_CTL_SELECT;
	return rp->selected == c->select ? 0 : -EBUSY;
}

/*
 * Picks the counter, with CLEAR and ENABLE in the same word (0: no change),
 * and reads back its STATUS. -EBUSY: the viewport was moved; what was written
 * was done nevertheless.
 */
static int rasdes_command(struct rasdes_pmu *rp, const struct rasdes_counter *c, u32 command,
			  bool *is_on)
{
	int try, ret;
	u32 ctl;

	for (try = 0; try < RASDES_TRIES; try++) {
		rasdes_write(rp, RASDES_EVENT_CTL, c->select | command);
		ctl = rasdes_read(rp, RASDES_EVENT_CTL);
		ret = rasdes_judge(rp, c, ctl);
		if (ret != -EBUSY)
			break;
		/* Done once is enough; what is left is to look. */
		command = 0;
	}
	if (!ret)
		*is_on = ctl & RASDES_EVENT_CTL_STATUS;
	return ret;
}

static int rasdes_look(struct rasdes_pmu *rp, const struct rasdes_counter *c, u32 *value,
		       bool *is_on)
{
	int try, ret;
	u32 ctl;

	for (try = 0; try < RASDES_TRIES; try++) {
		if (rp->selected != c->select)
			rasdes_write(rp, RASDES_EVENT_CTL, c->select);
		*value = rasdes_read(rp, RASDES_EVENT_DATA);
		ctl = rasdes_read(rp, RASDES_EVENT_CTL);
		ret = rasdes_judge(rp, c, ctl);
		if (ret != -EBUSY)
			break;
	}
	if (!ret)
		*is_on = ctl & RASDES_EVENT_CTL_STATUS;
	return ret;
}

static bool rasdes_saturates(const struct rasdes_counter *c)
{
	return c->bits < 32 && !rasdes_narrow_wraps;
}

/*
 * A counter that saturates has to be cleared, but rarely: what hits between
 * the look and the clear is lost. The look after it guards against hardware
 * that does not clear: its old value must not count again.
 */
static void rasdes_make_room(struct rasdes_pmu *rp, struct rasdes_counter *c)
{
	bool is_on;
	u32 value;

	if (!rasdes_saturates(c) || c->last < BIT(c->bits - 1))
		return;
	rasdes_write(rp, RASDES_EVENT_CTL, c->select |
		     FIELD_PREP(RASDES_EVENT_CTL_CLEAR, RASDES_CLEAR_ONE));
	rp->selected = c->select;
	if (rasdes_look(rp, c, &value, &is_on)) {
		/* Cleared or not, nobody knows: the next look will tell. */
		return;
	}
	if (value < c->last)
		c->shadow.total += value;
	c->last = value;
}

static u64 rasdes_delta(struct rasdes_counter *c, u32 value, bool *is_disturbed)
{
	*is_disturbed = false;
	if (c->bits == 32)
		return rasdes_fold_wrap(c->last, value, 32, is_disturbed);
	if (rasdes_saturates(c))
		return rasdes_fold_saturate(c->last, value, is_disturbed);
	return rasdes_fold_narrow(c->last, value, c->bits);
}

/**
 * rasdes_counter_fold() - takes what a held counter has counted into its shadow
 * @rp: the port, locked
 * @c: the counter
 *
 * Return: 0; -EBUSY when the viewport is moved all the time, -ENODEV when the
 * function does not answer. Nothing is counted then, and nothing is lost: the
 * next look finds it.
 */
int rasdes_counter_fold(struct rasdes_pmu *rp, struct rasdes_counter *c)
{
	bool is_on, is_disturbed;
	u32 value;
	int ret;

	ret = rasdes_look(rp, c, &value, &is_on);
	if (ret)
		return ret;
	c->shadow.total += rasdes_delta(c, value, &is_disturbed);
	if (rasdes_saturates(c) && value == BIT(c->bits) - 1 && value != c->last)
		c->saturated++;
	c->last = value;
	if (!is_on) {
		is_disturbed = true;
		rasdes_write(rp, RASDES_EVENT_CTL, c->select |
			     FIELD_PREP(RASDES_EVENT_CTL_ENABLE, RASDES_ENABLE_ON));
	}
	if (is_disturbed)
		c->disturbed++;
	rasdes_make_room(rp, c);
	rasdes_settle(&c->shadow);
	return 0;
}

/**
 * rasdes_counter_get() - enables a counter for one more perf event
 * @rp: the port, locked
 * @c: the counter
 *
 * Return: 0; -EOPNOTSUPP when the hardware was built without it, -EBUSY when
 * the viewport is moved all the time, -ENODEV when the function is gone.
 */
int rasdes_counter_get(struct rasdes_pmu *rp, struct rasdes_counter *c)
{
	bool is_on;
	int ret;

	/* Ask even if it is held: the function may be gone by now. */
	ret = rasdes_command(rp, c, 0, &is_on);
	if (ret)
		return ret;
	if (c->holders)
		goto done;
	c->was_on = is_on;
	if (!is_on) {
		ret = rasdes_command(rp, c, FIELD_PREP(RASDES_EVENT_CTL_ENABLE, RASDES_ENABLE_ON),
				     &is_on);
		if (!ret && !is_on)
			ret = -EOPNOTSUPP;
	}
	if (!ret)
		ret = rasdes_look(rp, c, &c->last, &is_on);
	if (ret)
		goto err_disable;
	/* An earlier holder's end may still stand there. */
	rasdes_make_room(rp, c);
done:
	c->holders++;
	return 0;

err_disable:
	if (!c->was_on)
		rasdes_write(rp, RASDES_EVENT_CTL, c->select |
			     FIELD_PREP(RASDES_EVENT_CTL_ENABLE, RASDES_ENABLE_OFF));
	return ret;
}

/**
 * rasdes_counter_put() - one perf event less; the last one disables the counter
 * @rp: the port, locked
 * @c: the counter
 */
void rasdes_counter_put(struct rasdes_pmu *rp, struct rasdes_counter *c)
{
	if (--c->holders)
		return;
	if (c->was_on)
		return;
	rasdes_write(rp, RASDES_EVENT_CTL, c->select |
		     FIELD_PREP(RASDES_EVENT_CTL_ENABLE, RASDES_ENABLE_OFF));
	rp->selected = c->select;
}

/**
 * rasdes_counter_init() - lays out all counters of a port
 * @rp: the port, with room for as many as rasdes_next_counter() gives
 */
void rasdes_counter_init(struct rasdes_pmu *rp)
{
	unsigned int id, lane, i = 0;
	int index = -1;

	while ((index = rasdes_next_counter(index, &id)) >= 0) {
		for (lane = 0; lane < (rasdes_is_per_lane(id >> 8) ? rp->lanes : 1); lane++) {
			struct rasdes_counter *c = &rp->counters[i++];

			INIT_LIST_HEAD(&c->shadow.fresh);
			c->select = FIELD_PREP(RASDES_EVENT_CTL_EVENT, id) |
				    FIELD_PREP(RASDES_EVENT_CTL_LANE, lane);
			c->bits = rasdes_width(id >> 8);
		}
	}
}

/**
 * rasdes_find_counter() - a counter by its number; needs no lock
 * @rp: the port
 * @id: group << 8 | event
 * @lane: 0 for the groups without
 *
 * Return: the counter, or NULL if there is no such event or lane.
 */
struct rasdes_counter *rasdes_find_counter(struct rasdes_pmu *rp, unsigned int id,
					   unsigned int lane)
{
	u32 select;
	unsigned int i;

	if (id > FIELD_MAX(RASDES_EVENT_CTL_EVENT) || lane >= RASDES_MAX_LANES)
		return NULL;
	select = FIELD_PREP(RASDES_EVENT_CTL_EVENT, id) | FIELD_PREP(RASDES_EVENT_CTL_LANE, lane);
	for (i = 0; i < rp->ncounters; i++) {
		if (rp->counters[i].select == select)
			return &rp->counters[i];
	}
	return NULL;
}
