// SPDX-License-Identifier: GPL-2.0-only
/*
 * The event counters, behind their viewport. Others (firmware, a management processor,
 * the debugfs files of the DesignWare driver) may move it between any two accesses. So
 * a value is valid only if the control register, read after the data, still selects
 * our counter.
 */
#include "internal.h"
#include "fold.h"

/*
 * Reads the control word: the selected counter, and whether that is enabled. Return: 0;
 * -EBUSY if it is not @c; -ENODEV if the function does not answer.
 */
static int rasdes_read_control(struct rasdes_pmu *rp, const struct rasdes_counter *c, bool *is_on)
{
	u32 ctl = rasdes_read(rp, RASDES_EVENT_CTL);

	*is_on = ctl & RASDES_EVENT_CTL_STATUS;
	if (ctl == U32_MAX) {
		rp->selected = U32_MAX;
		return -ENODEV;
	}
	rp->selected = ctl & RASDES_EVENT_CTL_SELECT;
	return rp->selected == c->select ? 0 : -EBUSY;
}

/*
 * Selects the counter, with CLEAR and ENABLE in the same word (0: no change), and reads
 * its STATUS. -EBUSY: somebody else moved the viewport, but the command was executed.
 */
static int rasdes_command(struct rasdes_pmu *rp, const struct rasdes_counter *c, u32 command,
			  bool *is_on)
{
	int try, ret = -EBUSY;

	for (try = 0; try < RASDES_TRIES && ret == -EBUSY; try++) {
		rasdes_write(rp, RASDES_EVENT_CTL, c->select | command);
		ret = rasdes_read_control(rp, c, is_on);
		/* The command has been executed: only read again. */
		command = 0;
	}
	return ret;
}

static int rasdes_counter_read(struct rasdes_pmu *rp, const struct rasdes_counter *c, u32 *value,
			       bool *is_on)
{
	int try, ret = -EBUSY;

	for (try = 0; try < RASDES_TRIES && ret == -EBUSY; try++) {
		if (rp->selected != c->select)
			rasdes_write(rp, RASDES_EVENT_CTL, c->select);
		*value = rasdes_read(rp, RASDES_EVENT_DATA);
		ret = rasdes_read_control(rp, c, is_on);
		/* All-ones may be no answer: a count is still there when it is read again. */
		if (!ret && *value == U32_MAX && rasdes_read(rp, RASDES_EVENT_DATA) != *value)
			ret = -EBUSY;
	}
	return ret;
}

static void rasdes_set_enable(struct rasdes_pmu *rp, const struct rasdes_counter *c, u32 enable)
{
	rasdes_write(rp, RASDES_EVENT_CTL, c->select | FIELD_PREP(RASDES_EVENT_CTL_ENABLE, enable));
	rp->selected = c->select;
}

static bool rasdes_saturates(const struct rasdes_counter *c)
{
	return c->bits < 32 && !rasdes_narrow_wraps;
}

/*
 * Clears a counter that saturates, but only in its upper half: events between the
 * reading and the clear are lost. The reading afterwards is for hardware that does not
 * clear: its old value must not count again.
 */
static void rasdes_counter_clear(struct rasdes_pmu *rp, struct rasdes_counter *c)
{
	bool is_on;
	u32 value;

	if (!rasdes_saturates(c) || c->last < BIT(c->bits - 1))
		return;
	rasdes_write(rp, RASDES_EVENT_CTL, c->select |
		     FIELD_PREP(RASDES_EVENT_CTL_CLEAR, RASDES_CLEAR_ONE));
	rp->selected = c->select;
	/* If it cannot be read now, the next reading shows whether it was cleared. */
	if (rasdes_counter_read(rp, c, &value, &is_on))
		return;
	if (value < c->last)
		c->total += value;
	c->last = value;
}

static u64 rasdes_delta(const struct rasdes_counter *c, u32 value, bool *is_disturbed)
{
	if (c->bits == 32)
		return rasdes_fold_wrap(c->last, value, 32, is_disturbed);
	if (rasdes_saturates(c))
		return rasdes_fold_saturate(c->last, value, is_disturbed);
	return rasdes_fold_narrow(c->last, value, c->bits);
}

/**
 * rasdes_counter_update() - adds to the total what an enabled counter has counted
 * @rp: the PMU, locked
 * @c: the counter
 *
 * Return: 0; -EBUSY if somebody else moves the viewport all the time; -ENODEV if the
 * function does not answer. Nothing is added then, and nothing is lost: the next update
 * adds it.
 */
int rasdes_counter_update(struct rasdes_pmu *rp, struct rasdes_counter *c)
{
	bool is_on, is_disturbed = false;
	u32 value;
	int ret;

	ret = rasdes_counter_read(rp, c, &value, &is_on);
	if (ret)
		return ret;
	if (c->is_stale) {
		/* It may hold what another has counted: counting begins here. */
		is_disturbed = true;
	} else if (!is_on && value < c->last) {
		/* Cleared and disabled, as by a reset: it has not wrapped. */
		c->total += value;
	} else {
		c->total += rasdes_delta(c, value, &is_disturbed);
		if (rasdes_saturates(c) && value == BIT(c->bits) - 1 && value != c->last)
			c->saturated++;
	}
	c->is_stale = false;
	c->last = value;
	if (!is_on) {
		is_disturbed = true;
		rasdes_set_enable(rp, c, RASDES_ENABLE_ON);
	}
	if (is_disturbed)
		c->disturbed++;
	rasdes_counter_clear(rp, c);
	return 0;
}

static int rasdes_counter_enable(struct rasdes_pmu *rp, struct rasdes_counter *c, bool is_on)
{
	int ret = 0;
	u32 value;

	if (!is_on)
		ret = rasdes_command(rp, c, FIELD_PREP(RASDES_EVENT_CTL_ENABLE, RASDES_ENABLE_ON),
				     &is_on);
	if (!ret && !is_on)
		ret = -EOPNOTSUPP;
	if (!ret)
		ret = rasdes_counter_read(rp, c, &value, &is_on);
	if (ret)
		return ret;
	c->last = value;
	c->is_stale = false;
	/* The counter may still be at its end from an earlier use. */
	rasdes_counter_clear(rp, c);
	return 0;
}

/**
 * rasdes_counter_get() - enables a counter for one more perf event
 * @rp: the PMU, locked
 * @c: the counter
 *
 * Return: 0; -EOPNOTSUPP if the hardware was built without it, -EBUSY if somebody else
 * moves the viewport all the time, -ENODEV if the function is gone.
 */
int rasdes_counter_get(struct rasdes_pmu *rp, struct rasdes_counter *c)
{
	bool is_on;
	int ret;

	/* Also if the counter is enabled already: the function may be gone by now. */
	ret = rasdes_command(rp, c, 0, &is_on);
	if (ret)
		return ret;
	if (!c->holders) {
		c->was_on = is_on;
		ret = rasdes_counter_enable(rp, c, is_on);
		if (ret && !c->was_on)
			rasdes_set_enable(rp, c, RASDES_ENABLE_OFF);
	}
	if (!ret)
		c->holders++;
	return ret;
}

/**
 * rasdes_counter_put() - removes one perf event; the last one disables the counter
 * @rp: the PMU, locked
 * @c: the counter
 */
void rasdes_counter_put(struct rasdes_pmu *rp, struct rasdes_counter *c)
{
	if (!--c->holders && !c->was_on)
		rasdes_set_enable(rp, c, RASDES_ENABLE_OFF);
}

/**
 * rasdes_counters_resume() - enables what events need on a function that came back
 * @rp: the PMU, locked
 *
 * If a counter cannot be reached now, the next update enables it.
 *
 * Return: 0, or -ENODEV if the function does not answer.
 */
int rasdes_counters_resume(struct rasdes_pmu *rp)
{
	struct rasdes_counter *c;
	int ret = 0;
	bool is_on;

	rp->selected = U32_MAX;
	for (c = rp->counters; c < rp->counters + rp->ncounters; c++)
		c->is_stale = c->holders;
	for (c = rp->counters; c < rp->counters + rp->ncounters && ret != -ENODEV; c++) {
		if (!c->holders)
			continue;
		ret = rasdes_command(rp, c, 0, &is_on);
		if (!ret)
			ret = rasdes_counter_enable(rp, c, is_on);
	}
	return ret == -ENODEV ? ret : 0;
}

/*
 * Time-based analysis: one engine, which runs one report at a time for any number of
 * perf events. The driver reads the data while the engine runs, because hardware may
 * not keep the data of a stopped measurement.
 */

/*
 * The hardware does not latch the two halves together: the high one has to be the same
 * before and after the low one. If the high half has not changed since the last reading
 * and the low half has not gone back, there was no carry. Then the third access, which
 * is slow, is not needed.
 */
static int rasdes_tba_read(struct rasdes_pmu *rp, u64 *value)
{
	u32 high, low, again, ctl;
	int try;

	high = rasdes_read(rp, RASDES_TBA_DATA_HIGH);
	low = rasdes_read(rp, RASDES_TBA_DATA_LOW);
	again = high;
	if (!rp->tba.is_based || high != upper_32_bits(rp->tba.last) ||
	    low < lower_32_bits(rp->tba.last))
		again = rasdes_read(rp, RASDES_TBA_DATA_HIGH);
	for (try = 1; again != high && try < RASDES_TRIES; try++) {
		high = again;
		low = rasdes_read(rp, RASDES_TBA_DATA_LOW);
		again = rasdes_read(rp, RASDES_TBA_DATA_HIGH);
	}
	ctl = rasdes_read(rp, RASDES_TBA_CTL);
	if (ctl == U32_MAX)
		return -ENODEV;
	if ((ctl & RASDES_TBA_CTL_FIELDS) != rp->tba.ctl)
		return -ESTALE;
	/*
	 * All-ones may be no answer: the function was away and is back before the
	 * control word was read. A count is still there when it is read again.
	 */
	if (again != high || (low == U32_MAX && rasdes_read(rp, RASDES_TBA_DATA_LOW) != low))
		return -EBUSY;
	*value = (u64)high << 32 | low;
	return 0;
}

/* Selects the report, then starts it: no document describes one write that does both. */
static void rasdes_tba_begin(struct rasdes_pmu *rp)
{
	u32 report = rp->tba.report->select, ctl;

	rasdes_write(rp, RASDES_TBA_CTL, report);
	rasdes_write(rp, RASDES_TBA_CTL, report | RASDES_TBA_CTL_START);
	rp->tba.is_on = true;
	rp->tba.is_based = false;
	rp->tba.ctl = report | RASDES_TBA_CTL_START;
	/* Some hardware may not show START: later readings are compared with this one. */
	ctl = rasdes_read(rp, RASDES_TBA_CTL) & RASDES_TBA_CTL_FIELDS;
	if ((ctl & ~RASDES_TBA_CTL_START) == report)
		rp->tba.ctl = ctl;
}

static void rasdes_tba_add(struct rasdes_pmu *rp, u64 value)
{
	struct rasdes_tba *tba = &rp->tba;
	bool is_restarted = false;

	if (tba->report == &rp->reports[RASDES_REPORT_ONE_CYCLE]) {
		/* A period, not a count. */
		tba->report->total = value;
	} else if (tba->is_based) {
		tba->report->total += rasdes_fold_tba(tba->last, value, rasdes_tba_bits,
						      &is_restarted);
	} else if (value < tba->last) {
		/*
		 * The first reading of a measurement is less than the last value of
		 * the one before: hardware has cleared the data at the start, so all
		 * of it is new. Otherwise nobody can tell, and counting begins here.
		 */
		tba->report->total += value;
	}
	tba->disturbed += is_restarted;
	tba->is_based = true;
	tba->last = value;
}

/**
 * rasdes_tba_update() - adds to the total what the running report has counted
 * @rp: the PMU, locked
 *
 * If somebody else has changed the engine, this starts the measurement again. Nothing
 * is added if the two halves never agree or the function does not answer.
 */
void rasdes_tba_update(struct rasdes_pmu *rp)
{
	u64 value;
	int ret;

	ret = rasdes_tba_read(rp, &value);
	if (ret == -ESTALE) {
		rp->tba.disturbed++;
		rasdes_tba_begin(rp);
		ret = rasdes_tba_read(rp, &value);
	}
	if (!ret)
		rasdes_tba_add(rp, value);
}

/**
 * rasdes_tba_get() - schedules a report, beside others only if it is the same
 * @rp: the PMU, locked
 * @report: the report
 *
 * Return: 0, or -EAGAIN while another report has the engine.
 */
int rasdes_tba_get(struct rasdes_pmu *rp, struct rasdes_counter *report)
{
	struct rasdes_tba *tba = &rp->tba;

	/* During a migration, the running report keeps the engine. */
	if (tba->report != report && (tba->holders || (tba->is_on && rp->u.is_migrating)))
		return -EAGAIN;
	if (tba->report != report)
		tba->is_on = false;
	tba->report = report;
	tba->holders++;
	return 0;
}

/**
 * rasdes_tba_start() - adds a running event; the first one begins the measurement
 * @rp: the PMU, locked
 *
 * Return: whether a measurement has begun. Then the caller has to read its first value.
 */
bool rasdes_tba_start(struct rasdes_pmu *rp)
{
	rp->tba.running++;
	if (rp->tba.is_on)
		return false;
	rasdes_tba_begin(rp);
	return true;
}

/**
 * rasdes_tba_stop_unused() - ends a measurement that nobody needs
 * @rp: the PMU, locked
 */
void rasdes_tba_stop_unused(struct rasdes_pmu *rp)
{
	if (!rp->tba.is_on || rp->tba.running || rp->u.is_migrating)
		return;
	rp->tba.is_on = false;
	rasdes_write(rp, RASDES_TBA_CTL, rp->tba.report->select);
}

/**
 * rasdes_tba_resume() - begins the measurement on a function that came back
 * @rp: the PMU, locked
 */
void rasdes_tba_resume(struct rasdes_pmu *rp)
{
	rp->tba.is_on = false;
	if (!rp->tba.running)
		return;
	rasdes_tba_begin(rp);
	rasdes_tba_update(rp);
}
