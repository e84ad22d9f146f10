// SPDX-License-Identifier: GPL-2.0-only
/*
 * Time-based analysis: one engine, which runs one report at a time for any number of
 * perf events. The driver reads the data while the engine runs, because hardware may
 * not keep the data of a stopped measurement.
 */
#include "internal.h"
#include "fold.h"

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
