/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RASDES_INTERNAL_H
#define RASDES_INTERNAL_H

#include <linux/bitfield.h>
#include <linux/platform_device.h>
#include <linux/string_helpers.h>

#include "../common/uncore.h"
#include "regs.h"

/* Attempts at a consistent reading. After that, the next poll reads again. */
#define RASDES_TRIES	8

/* An event's number in perf_event_attr.config. */
#define RASDES_CONFIG_EVENT	GENMASK_ULL(15, 0)
#define RASDES_CONFIG_TYPE	GENMASK_ULL(19, 16)
#define RASDES_CONFIG_LANE	GENMASK_ULL(27, 20)
#define RASDES_CONFIG		(RASDES_CONFIG_EVENT | RASDES_CONFIG_TYPE | RASDES_CONFIG_LANE)

/**
 * struct rasdes_counter - an event counter or a report, shared by all perf events of it
 * @total: what it has counted while it was enabled, in 64 bits; it never goes back
 * @unit: what one count is worth to perf
 * @bits: width of the hardware's counter; 0: a report of time-based analysis
 * @select: event and lane as fields of RASDES_EVENT_CTL, or the report as one of RASDES_TBA_CTL
 * @last: an event counter's value in @total
 * @is_stale: @last is of before the function was away, and could not be read since
 * @holders: perf events that need the event counter enabled
 * @was_on: somebody else had enabled it: the driver does not disable it
 * @saturated: times it was read at its upper end
 * @disturbed: times that somebody else cleared or disabled it while it was enabled
 */
struct rasdes_counter {
	u64 total;
	unsigned int unit;
	unsigned int bits;
	u32 select;
	u32 last;
	bool is_stale;
	unsigned int holders;
	bool was_on;
	u32 saturated;
	u32 disturbed;
};

/**
 * struct rasdes_tba - the engine of time-based analysis
 * @report: its report, which its holders share
 * @holders: perf events that have it scheduled
 * @running: those of them that count
 * @is_on: it measures, perhaps only because perf may be rearranging its events
 * @is_based: @last was read in this measurement
 * @ctl: what RASDES_TBA_CTL reads while nobody else changes it
 * @last: the data that are in the report's total
 * @disturbed: times that somebody else restarted or changed the measurement
 */
struct rasdes_tba {
	struct rasdes_counter *report;
	unsigned int holders;
	unsigned int running;
	bool is_on;
	bool is_based;
	u32 ctl;
	u64 last;
	u32 disturbed;
};

/**
 * struct rasdes_pmu - a function with the capability, and its PMU
 * @u: what all PMUs have; its lock protects the following
 * @pdev: the function; not to be used once it is gone
 * @pm_child: its child, by which the driver learns that it will sleep
 * @bdf: its address
 * @vsec: offset of the capability
 * @lanes: the link's width capability
 * @deferred: events that were stopped while the PMU was disabled, and not read yet
 * @selected: what the viewport was last seen to select
 * @tba: the time-based engine
 * @reports: its reports by their codes
 * @ncounters: number of @counters
 * @counters: the event counters
 */
struct rasdes_pmu {
	struct uncore_pmu u;
	struct pci_dev *pdev;
	struct device *pm_child;
	char bdf[16];
	u16 vsec;
	unsigned int lanes;
	unsigned int deferred;
	u32 selected;
	struct rasdes_tba tba;
	struct rasdes_counter reports[RASDES_REPORTS];
	unsigned int ncounters;
	struct rasdes_counter counters[];
};

static inline struct rasdes_pmu *to_rasdes(struct pmu *pmu)
{
	return container_of(pmu, struct rasdes_pmu, u.pmu);
}

/* Groups 0 and 4 have a counter for each lane. */
static inline bool rasdes_is_per_lane(unsigned int id)
{
	return id >> 8 == 0 || id >> 8 == 4;
}

/* main.c */
extern bool rasdes_is_seed;
extern bool rasdes_is_old_variant;
extern bool rasdes_narrow_wraps;
extern unsigned int rasdes_tba_bits;

/* events.c */
extern const struct attribute_group *rasdes_groups[];
void rasdes_events_init(void);
unsigned int rasdes_count_counters(unsigned int lanes);
void rasdes_counters_init(struct rasdes_pmu *rp);

/* counter.c: with the PMU's lock held */
static inline u32 rasdes_read(struct rasdes_pmu *rp, unsigned int reg)
{
	u32 value;

	lockdep_assert_held(&rp->u.lock);
	if (uncore_is_away(&rp->u) || pci_read_config_dword(rp->pdev, rp->vsec + reg, &value))
		return U32_MAX;
	return value;
}

static inline void rasdes_write(struct rasdes_pmu *rp, unsigned int reg, u32 value)
{
	lockdep_assert_held(&rp->u.lock);
	if (!uncore_is_away(&rp->u))
		pci_write_config_dword(rp->pdev, rp->vsec + reg, value);
}

int rasdes_counter_get(struct rasdes_pmu *rp, struct rasdes_counter *c);
void rasdes_counter_put(struct rasdes_pmu *rp, struct rasdes_counter *c);
int rasdes_counter_update(struct rasdes_pmu *rp, struct rasdes_counter *c);
int rasdes_counters_resume(struct rasdes_pmu *rp);
int rasdes_tba_get(struct rasdes_pmu *rp, struct rasdes_counter *report);
bool rasdes_tba_start(struct rasdes_pmu *rp);
void rasdes_tba_stop_unused(struct rasdes_pmu *rp);
void rasdes_tba_update(struct rasdes_pmu *rp);
void rasdes_tba_resume(struct rasdes_pmu *rp);

#endif /* RASDES_INTERNAL_H */
