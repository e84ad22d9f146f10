// SPDX-License-Identifier: GPL-2.0-only
/* The events, and a PMU's files in sysfs: docs/pmu.md and the table of docs/spec/drw.md. */
#include "internal.h"

static const struct {
	u8 id;
	const char *name;
} drw_event_table[] = {
	{ 0x00, "hif_rd_or_wr" },
	{ 0x01, "hif_wr" },
	{ 0x02, "hif_rd" },
	{ 0x03, "hif_rmw" },
	{ 0x04, "hif_hi_pri_rd" },
	{ 0x07, "dfi_wr_data_cycles" },
	{ 0x08, "dfi_rd_data_cycles" },
	{ 0x09, "hpr_xact_when_critical" },
	{ 0x0a, "lpr_xact_when_critical" },
	{ 0x0b, "wr_xact_when_critical" },
	{ 0x0c, "op_is_activate" },
	{ 0x0d, "op_is_rd_or_wr" },
	{ 0x0e, "op_is_rd_activate" },
	{ 0x0f, "op_is_rd" },
	{ 0x10, "op_is_wr" },
	{ 0x11, "op_is_mwr" },
	{ 0x12, "op_is_precharge" },
	{ 0x13, "precharge_for_rdwr" },
	{ 0x14, "precharge_for_other" },
	{ 0x15, "rdwr_transitions" },
	{ 0x16, "write_combine" },
	{ 0x17, "war_hazard" },
	{ 0x18, "raw_hazard" },
	{ 0x19, "waw_hazard" },
	{ 0x1a, "op_is_enter_selfref_rk0" },
	{ 0x1b, "op_is_enter_selfref_rk1" },
	{ 0x1c, "op_is_enter_selfref_rk2" },
	{ 0x1d, "op_is_enter_selfref_rk3" },
	{ 0x1e, "op_is_enter_powerdown_rk0" },
	{ 0x1f, "op_is_enter_powerdown_rk1" },
	{ 0x20, "op_is_enter_powerdown_rk2" },
	{ 0x21, "op_is_enter_powerdown_rk3" },
	{ 0x26, "selfref_mode_rk0" },
	{ 0x27, "selfref_mode_rk1" },
	{ 0x28, "selfref_mode_rk2" },
	{ 0x29, "selfref_mode_rk3" },
	{ 0x2a, "op_is_refresh" },
	{ 0x2b, "op_is_crit_ref" },
	{ 0x2d, "op_is_load_mode" },
	{ 0x2e, "op_is_zqcl" },
	{ 0x30, "visible_window_limit_reached_rd" },
	{ 0x31, "visible_window_limit_reached_wr" },
	{ 0x34, "op_is_dqsosc_mpc" },
	{ 0x35, "op_is_dqsosc_mrr" },
	{ 0x36, "op_is_tcr_mrr" },
	{ 0x37, "op_is_zqstart" },
	{ 0x38, "op_is_zqlatch" },
	{ 0x39, "chi_txreq" },
	{ 0x3a, "chi_txdat" },
	{ 0x3b, "chi_rxdat" },
	{ 0x3c, "chi_rxrsp" },
	{ 0x3d, "tsz_vio" },
	{ 0x80, "cycle" },
};

/**
 * drw_has_event() - whether a number is an event's
 * @id: the number; selectors have only its low bits, so no other number may reach them
 *
 * Return: whether it is.
 */
bool drw_has_event(u64 id)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(drw_event_table); i++) {
		if (drw_event_table[i].id == id)
			return true;
	}
	return false;
}

static struct uncore_events drw_events;

/**
 * drw_events_init() - makes the files of events/
 * @is_seed: also with the names of the seed
 */
void drw_events_init(bool is_seed)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(drw_event_table); i++) {
		const char *name = drw_event_table[i].name;
		u8 id = drw_event_table[i].id;

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
