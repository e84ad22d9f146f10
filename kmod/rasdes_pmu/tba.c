// SPDX-License-Identifier: GPL-2.0-only
/*
 * Time-based analysis: one engine, which runs one report at a time for any
 * number of perf events. It is read while it runs, so that it does not matter
 * whether the hardware keeps the data of a stopped measurement.
 */
#include "internal.h"
#include "fold.h"

/**
 * rasdes_tba_check() - whether the function answers
 * @rp: the port, locked
 *
 * Return: 0 or -ENODEV.
 */
int rasdes_tba_check(struct rasdes_pmu *rp)
{
	return rasdes_read(rp, RASDES_TBA_CTL) == U32_MAX ? -ENODEV : 0;
}

/*
 * The hardware does not latch the two halves together: the high one has to be
 * the same before and after the low one. Where the high one is that of the last
 * look and the low one has not gone back, there was no carry in between, and
 * the third access, which is slow, is saved.
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
	if (again != high)
		return -EBUSY;
	*value = (u64)high << 32 | low;
	return 0;
}

/* The report is picked first and started then: what one write of both does is nowhere said. */
static void rasdes_tba_begin(struct rasdes_pmu *rp)
{
	u32 report = FIELD_PREP(RASDES_TBA_CTL_REPORT, rp->tba.report), ctl;

	rasdes_write(rp, RASDES_TBA_CTL, report);
	rasdes_write(rp, RASDES_TBA_CTL, report | RASDES_TBA_CTL_START);
	rp->tba.is_based = false;
	rp->tba.ctl = report | RASDES_TBA_CTL_START;
	/* Hardware might not show START; what it shows now it has to show later. */
	ctl = rasdes_read(rp, RASDES_TBA_CTL) & RASDES_TBA_CTL_FIELDS;
	if ((ctl & ~RASDES_TBA_CTL_START) == report)
		rp->tba.ctl = ctl;
}

/*
 * The first look at a measurement. Hardware clears the data at a start, so that
 * all they show came since. Where they show no less than the last measurement
 * ended with, that cannot be told, and what counts begins here: a few accesses
 * late, but nothing is invented.
 */
static void rasdes_tba_base(struct rasdes_tba *tba, u64 value)
{
	u64 ended_with = tba->last;

	tba->last = value;
	tba->is_based = true;
	rasdes_settle(&tba->shadow);
	if (value < ended_with && tba->report != RASDES_REPORT_ONE_CYCLE)
		tba->shadow.total += value;
}

static void rasdes_tba_count(struct rasdes_tba *tba, u64 value)
{
	bool is_restarted;

	/* A period, not a count. */
	if (tba->report == RASDES_REPORT_ONE_CYCLE)
		return;
	tba->shadow.total += rasdes_fold_tba(tba->last, value, rasdes_tba_bits, &is_restarted);
	if (is_restarted)
		tba->disturbed++;
}

/**
 * rasdes_tba_fold() - takes what the running report has counted into its shadow
 * @rp: the port, locked
 *
 * Return: 0; -EBUSY when the halves never fit or somebody else has taken the
 * engine (then our measurement was begun again), -ENODEV when the function
 * does not answer. Nothing is counted then.
 */
int rasdes_tba_fold(struct rasdes_pmu *rp)
{
	struct rasdes_tba *tba = &rp->tba;
	u64 value;
	int ret;

	ret = rasdes_tba_read(rp, &value);
	if (ret == -ESTALE) {
		tba->disturbed++;
		rasdes_tba_begin(rp);
		ret = rasdes_tba_read(rp, &value);
	}
	if (ret)
		return ret == -ENODEV ? ret : -EBUSY;
	if (!tba->is_based) {
		rasdes_tba_base(tba, value);
		return 0;
	}
	rasdes_tba_count(tba, value);
	tba->last = value;
	rasdes_settle(&tba->shadow);
	return 0;
}

/**
 * rasdes_tba_get() - schedules a report, beside others only if it is the same
 * @rp: the port, locked
 * @report: the report
 *
 * Return: 0, or -EAGAIN while another report has the engine.
 */
int rasdes_tba_get(struct rasdes_pmu *rp, u8 report)
{
	struct rasdes_tba *tba = &rp->tba;

	if (tba->holders && tba->report != report)
		return -EAGAIN;
	tba->report = report;
	tba->holders++;
	return 0;
}

/**
 * rasdes_tba_put() - one perf event less that has the report scheduled
 * @rp: the port, locked
 */
void rasdes_tba_put(struct rasdes_pmu *rp)
{
	rp->tba.holders--;
}

/**
 * rasdes_tba_start() - one running event more; the first begins the measurement
 * @rp: the port, locked
 *
 * The caller folds: what counts from now on begins at the next look.
 */
void rasdes_tba_start(struct rasdes_pmu *rp)
{
	struct rasdes_tba *tba = &rp->tba;

	tba->running++;
	if (tba->is_on && FIELD_GET(RASDES_TBA_CTL_REPORT, tba->ctl) == tba->report)
		return;
	tba->is_on = true;
	tba->epoch++;
	rasdes_tba_begin(rp);
}

/**
 * rasdes_tba_stop() - one running event less
 * @rp: the port, locked
 *
 * The caller has folded before: the data may be gone after. And it lets the
 * engine rest once it is sure that no event starts again at once.
 */
void rasdes_tba_stop(struct rasdes_pmu *rp)
{
	rp->tba.running--;
}

/**
 * rasdes_tba_rest() - ends a measurement that nobody needs
 * @rp: the port, locked
 */
void rasdes_tba_rest(struct rasdes_pmu *rp)
{
	struct rasdes_tba *tba = &rp->tba;

	if (!tba->is_on || tba->running)
		return;
	tba->is_on = false;
	rasdes_write(rp, RASDES_TBA_CTL, tba->ctl & RASDES_TBA_CTL_REPORT);
}
