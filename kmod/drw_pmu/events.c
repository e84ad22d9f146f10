// SPDX-License-Identifier: GPL-2.0-only
/* The events, and a PMU's files in sysfs: docs/pmu.md and the table of docs/spec/drw.md. */
#include "internal.h"

/* By number. */
static const char *const drw_event_names[] = {
	[0x00] = "hif_rd_or_wr", "hif_wr", "hif_rd", "hif_rmw", "hif_hi_pri_rd",
	[0x07] = "dfi_wr_data_cycles", "dfi_rd_data_cycles", "hpr_xact_when_critical",
	"lpr_xact_when_critical", "wr_xact_when_critical", "op_is_activate", "op_is_rd_or_wr",
	"op_is_rd_activate", "op_is_rd", "op_is_wr", "op_is_mwr", "op_is_precharge",
	"precharge_for_rdwr", "precharge_for_other", "rdwr_transitions", "write_combine",
	"war_hazard", "raw_hazard", "waw_hazard", "op_is_enter_selfref_rk0",
	"op_is_enter_selfref_rk1", "op_is_enter_selfref_rk2", "op_is_enter_selfref_rk3",
	"op_is_enter_powerdown_rk0", "op_is_enter_powerdown_rk1", "op_is_enter_powerdown_rk2",
	"op_is_enter_powerdown_rk3",
	[0x26] = "selfref_mode_rk0", "selfref_mode_rk1", "selfref_mode_rk2", "selfref_mode_rk3",
	"op_is_refresh", "op_is_crit_ref",
	[0x2d] = "op_is_load_mode", "op_is_zqcl",
	[0x30] = "visible_window_limit_reached_rd", "visible_window_limit_reached_wr",
	[0x34] = "op_is_dqsosc_mpc", "op_is_dqsosc_mrr", "op_is_tcr_mrr", "op_is_zqstart",
	"op_is_zqlatch", "chi_txreq", "chi_txdat", "chi_rxdat", "chi_rxrsp", "tsz_vio",
	[DRW_EVENT_CYCLE] = "cycle",
};

/**
 * drw_has_event() - whether a number is an event's
 * @id: the number; selectors have only its low bits, so no other number may reach them
 *
 * Return: whether it is.
 */
bool drw_has_event(u64 id)
{
	return id < ARRAY_SIZE(drw_event_names) && drw_event_names[id];
}

static struct uncore_events drw_events;

/**
 * drw_events_init() - makes the files of events/
 * @is_seed: also with the names of the seed
 */
void drw_events_init(bool is_seed)
{
	unsigned int id;

	for (id = 0; id < ARRAY_SIZE(drw_event_names); id++) {
		const char *name = drw_event_names[id];

		if (!name)
			continue;
		uncore_add_event(&drw_events, name, "", "event=0x%02x", id);
		if (is_seed)
			uncore_add_event(&drw_events, "perf_", name, "event=0x%02x", id);
	}
}

static const struct attribute_group drw_events_group = {
	.name = "events",
	.attrs = drw_events.list,
};

PMU_FORMAT_ATTR(event, "config:0-7");

static struct attribute *drw_format_attrs[] = {
	&format_attr_event.attr,
	NULL
};

static const struct attribute_group drw_format_group = {
	.name = "format",
	.attrs = drw_format_attrs,
};

static ssize_t identifier_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "ali_drw_pmu\n");
}
static DEVICE_ATTR_RO(identifier);

static ssize_t die_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", to_drw(dev_get_drvdata(dev))->u.nid);
}
static DEVICE_ATTR_RO(die);

static ssize_t saturated_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct drw_pmu *drw = to_drw(dev_get_drvdata(dev));
	unsigned int id;
	int at = 0;

	for (id = 0; id < ARRAY_SIZE(drw->saturated); id++) {
		u32 times = READ_ONCE(drw->saturated[id]);

		if (times)
			at += sysfs_emit_at(buf, at, "0x%02x %u\n", id, times);
	}
	return at;
}
static DEVICE_ATTR_RO(saturated);

static struct attribute *drw_attrs[] = {
	&dev_attr_cpumask.attr,
	&dev_attr_identifier.attr,
	&dev_attr_die.attr,
	&dev_attr_saturated.attr,
	NULL
};

static const struct attribute_group drw_group = {
	.attrs = drw_attrs,
};

const struct attribute_group *drw_groups[] = {
	&drw_group,
	&drw_format_group,
	&drw_events_group,
	NULL
};
