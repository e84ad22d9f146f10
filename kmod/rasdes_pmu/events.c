// SPDX-License-Identifier: GPL-2.0-only
/*
 * What sysfs shows of a PMU, and which events exist. The names are those of
 * docs/pmu.md: the in-tree driver's, with those that it leaves out, or the
 * seed's words, each with a twin in lower case.
 */
#include <linux/device.h>
#include <linux/slab.h>
#include <linux/string_helpers.h>

#include "internal.h"

struct rasdes_event {
	u16 id;
	const char *name;
	const char *seed;	/* NULL: not in the seed */
};

/* docs/spec/rasdes.md, "Reports"; those at CCIX ESM rates have no names. */
static const struct rasdes_event rasdes_reports[] = {
	{ 0x00, "one_cycle" },
	{ 0x01, "TX_L0S", "Tx_L0s" },
	{ 0x02, "RX_L0S", "Rx_L0s" },
	{ 0x03, "L0", "L0" },
	{ 0x04, "L1", "L1" },
	{ 0x05, "L1_1", "L1_1" },
	{ 0x06, "L1_2", "L1_2" },
	{ 0x07, "CFG_RCVRY", "Configuration_Recovery" },
	{ 0x08, "L1_AUX", "L1_aux" },
	{ 0x09, "TX_RX_L0S", "Tx_L0s_and_Rx_L0s" },
	{ 0x20, "tx_pcie_tlp_data_payload", "Tx_PCIe_TLP_Data_Payload" },
	{ 0x21, "rx_pcie_tlp_data_payload", "Rx_PCIe_TLP_Data_Payload" },
	{ 0x22, "tx_ccix_tlp_data_payload", "Tx_CCIX_TLP_Data_Payload" },
	{ 0x23, "rx_ccix_tlp_data_payload", "Rx_CCIX_TLP_Data_Payload" },
};

#define RASDES_REPORT_L1_AUX	0x08
#define RASDES_REPORT_TX_RX_L0S	0x09
#define RASDES_REPORT_ESM_FIRST	0x10
#define RASDES_REPORT_ESM_LAST	0x18

static const struct rasdes_event rasdes_counters[] = {
	{ 0x000, "ebuf_overflow", "EBUF_Overflow" },
	{ 0x001, "ebuf_underrun", "EBUF_Under_run" },
	{ 0x002, "decode_error", "Decode_Error" },
	{ 0x003, "running_disparity_error", "Running_Disparity_Error" },
	{ 0x004, "skp_os_parity_error", "SKP_OS_Parity_Error" },
	{ 0x005, "sync_header_error", "SYNC_Header_Error" },
	{ 0x006, "rx_valid_deassertion", "Rx_Valid_de_assertion" },
	{ 0x007, "ctl_skp_os_parity_error", "CTL_SKP_OS_Parity_Error" },
	{ 0x008, "retimer1_parity_error", "Retimer1_Parity_Error" },
	{ 0x009, "retimer2_parity_error", "Retimer2_Parity_Error" },
	{ 0x00a, "margin_crc_parity_error", "Margin_CRC_and_Parity_Error" },

	{ 0x105, "detect_ei_infer", "Detect_EI_Infer" },
	{ 0x106, "receiver_error", "Receiver_Error" },
	{ 0x107, "rx_recovery_request", "Rx_Recovery_Request" },
	{ 0x108, "n_fts_timeout", "N_FTS_Timeout" },
	{ 0x109, "framing_error", "Framing_Error" },
	{ 0x10a, "deskew_error", "Deskew_Error" },
	{ 0x10c, "framing_error_in_l0" },
	{ 0x10d, "deskew_uncompleted_error" },

	{ 0x200, "bad_tlp", "BAD_TLP" },
	{ 0x201, "lcrc_error", "LCRC_Error" },
	{ 0x202, "bad_dllp", "BAD_DLLP" },
	{ 0x203, "replay_num_rollover", "Replay_Number_Rollover" },
	{ 0x204, "replay_timeout", "Replay_Timeout" },
	{ 0x205, "rx_nak_dllp", "Rx_Nak_DLLP" },
	{ 0x206, "tx_nak_dllp", "Tx_Nak_DLLP" },
	{ 0x207, "retry_tlp", "Retry_TLP" },

	{ 0x300, "fc_timeout", "FC_Timeout" },
	{ 0x301, "poisoned_tlp", "Poisoned_TLP" },
	{ 0x302, "ecrc_error", "ECRC_Error" },
	{ 0x303, "unsupported_request", "Unsupported_Request" },
	{ 0x304, "completer_abort", "Completer_Abort" },
	{ 0x305, "completion_timeout", "Completion_Timeout" },

	{ 0x400, "ebuf_skp_add", "EBUF_SKP_Add" },
	{ 0x401, "ebuf_skp_del", "EBUF_SKP_Del" },

	{ 0x500, "l0_to_recovery", "L0_to_Recovery_Entry" },
	{ 0x501, "l1_to_recovery", "L1_to_Recovery_Entry" },
	{ 0x502, "tx_l0s_entry", "Tx_L0s_Entry" },
	{ 0x503, "rx_l0s_entry", "Rx_L0s_Entry" },
	{ 0x504, "aspm_l1_reject", "ASPM_L1_reject" },
	{ 0x505, "l1_entry", "L1_Entry" },
	{ 0x506, "l1_cpm", "L1_CPM" },
	{ 0x507, "l1_1_entry", "L1_1_Entry" },
	{ 0x508, "l1_2_entry", "L1_2_Entry" },
	{ 0x509, "l1_short_duration", "L1_short_duration" },
	{ 0x50a, "l1_2_abort", "L1_2_abort" },
	{ 0x50b, "l2_entry", "L2_Entry" },
	{ 0x50c, "speed_change", "Speed_Change" },
	{ 0x50d, "width_change", "Link_width_Change" },

	{ 0x600, "tx_ack_dllp", "Tx_Ack_DLLP" },
	{ 0x601, "tx_update_fc_dllp", "Tx_Update_FC_DLLP" },
	{ 0x602, "rx_ack_dllp", "Rx_Ack_DLLP" },
	{ 0x603, "rx_update_fc_dllp", "Rx_Update_FC_DLLP" },
	{ 0x604, "rx_nullified_tlp", "Rx_Nullified_TLP" },
	{ 0x605, "tx_nullified_tlp", "Tx_Nullified_TLP" },
	{ 0x606, "rx_duplicate_tlp", "Rx_Duplicate_TLP" },

	{ 0x700, "tx_memory_write", "Tx_Memory_Write" },
	{ 0x701, "tx_memory_read", "Tx_Memory_Read" },
	{ 0x702, "tx_configuration_write", "Tx_Configuration_Write" },
	{ 0x703, "tx_configuration_read", "Tx_Configuration_Read" },
	{ 0x704, "tx_io_write", "Tx_IO_Write" },
	{ 0x705, "tx_io_read", "Tx_IO_Read" },
	{ 0x706, "tx_completion_without_data", "Tx_Completion_without_data" },
	{ 0x707, "tx_completion_with_data", "Tx_Completion_w_data" },
	{ 0x708, "tx_message_tlp", "Tx_Message_TLP" },
	{ 0x709, "tx_atomic", "Tx_Atomic" },
	{ 0x70a, "tx_tlp_with_prefix", "Tx_TLP_with_Prefix" },
	{ 0x70b, "rx_memory_write", "Rx_Memory_Write" },
	{ 0x70c, "rx_memory_read", "Rx_Memory_Read" },
	{ 0x70d, "rx_configuration_write" },
	{ 0x70e, "rx_configuration_read" },
	{ 0x70f, "rx_io_write", "Rx_IO_Write" },
	{ 0x710, "rx_io_read", "Rx_IO_Read" },
	{ 0x711, "rx_completion_without_data", "Rx_Completion_without_data" },
	{ 0x712, "rx_completion_with_data", "Rx_Completion_w_data" },
	{ 0x713, "rx_message_tlp", "Rx_Message_TLP" },
	{ 0x714, "rx_atomic", "Rx_Atomic" },
	{ 0x715, "rx_tlp_with_prefix", "Rx_TLP_with_Prefix" },
	{ 0x716, "tx_ccix_tlp", "Tx_CCIX_TLP" },
	{ 0x717, "rx_ccix_tlp", "Rx_CCIX_TLP" },
	{ 0x718, "tx_deferrable_memory_write" },
	{ 0x719, "rx_deferrable_memory_write" },
};

/**
 * rasdes_has_report() - whether there is a report of this code
 * @code: eventid of a time-based event
 *
 * Return: whether there is, named or not.
 */
bool rasdes_has_report(unsigned int code)
{
	unsigned int i;

	if (code >= RASDES_REPORT_ESM_FIRST && code <= RASDES_REPORT_ESM_LAST)
		return true;
	for (i = 0; i < ARRAY_SIZE(rasdes_reports); i++) {
		if (rasdes_reports[i].id == code)
			return true;
	}
	return false;
}

/**
 * rasdes_is_per_lane() - whether a group's counters exist once per lane
 * @group: the group
 *
 * Return: whether they do.
 */
bool rasdes_is_per_lane(unsigned int group)
{
	return group == RASDES_GROUP_L1_ERROR_LANE || group == RASDES_GROUP_L1_NON_ERROR_LANE;
}

/**
 * rasdes_next_counter() - walks the event counters that exist
 * @index: -1, or what the last call returned
 * @id: group << 8 | event of the next
 *
 * Return: to be given to the next call; negative at the end.
 */
int rasdes_next_counter(int index, unsigned int *id)
{
	if (++index >= (int)ARRAY_SIZE(rasdes_counters))
		return -1;
	*id = rasdes_counters[index].id;
	return index;
}

/* events/: made once, for all PMUs */

enum rasdes_file { RASDES_FILE_EVENT, RASDES_FILE_UNIT, RASDES_FILE_SCALE };

struct rasdes_event_attr {
	struct device_attribute attr;
	enum rasdes_file file;
	bool is_report;
	u16 id;
};

/* A name each, its twin, and .unit and .scale of the payload. */
#define RASDES_MAX_ATTRS	(2 * (ARRAY_SIZE(rasdes_reports) + ARRAY_SIZE(rasdes_counters)) + 8)

static struct rasdes_event_attr *rasdes_event_attrs;
static unsigned int rasdes_nevent_attrs;
static struct attribute *rasdes_event_list[RASDES_MAX_ATTRS + 1];

static u16 rasdes_wire_report(u16 id)
{
	if (rasdes_is_old_variant && id == RASDES_REPORT_L1_AUX)
		return RASDES_REPORT_TX_RX_L0S;
	if (rasdes_is_old_variant && id == RASDES_REPORT_TX_RX_L0S)
		return RASDES_REPORT_L1_AUX;
	return id;
}

static ssize_t rasdes_event_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct rasdes_event_attr *ev = container_of(attr, struct rasdes_event_attr, attr);
	unsigned int first_type = rasdes_is_seed ? 1 : 0;

	if (ev->file == RASDES_FILE_UNIT)
		return sysfs_emit(buf, "B\n");
	if (ev->file == RASDES_FILE_SCALE)
		return sysfs_emit(buf, "1\n");
	if (ev->is_report)
		return sysfs_emit(buf, "eventid=0x%x,type=0x%x\n", rasdes_wire_report(ev->id),
				  first_type);
	return sysfs_emit(buf, "eventid=0x%x,type=0x%x%s\n", ev->id, first_type + 1,
			  rasdes_is_per_lane(ev->id >> 8) ? ",lane=?" : "");
}

static int rasdes_add_file(const char *name, const char *suffix, enum rasdes_file file,
			   bool is_report, u16 id)
{
	struct rasdes_event_attr *ev = &rasdes_event_attrs[rasdes_nevent_attrs];

	if (rasdes_nevent_attrs == RASDES_MAX_ATTRS)
		return -ENOSPC;
	ev->attr.attr.name = kasprintf(GFP_KERNEL, "%s%s", name, suffix);
	if (!ev->attr.attr.name)
		return -ENOMEM;
	sysfs_attr_init(&ev->attr.attr);
	ev->attr.attr.mode = 0444;
	ev->attr.show = rasdes_event_show;
	ev->file = file;
	ev->is_report = is_report;
	ev->id = id;
	rasdes_event_list[rasdes_nevent_attrs++] = &ev->attr.attr;
	return 0;
}

/* perf 7.3 takes no names of mixed case, and earlier ones no twins of our making. */
static int rasdes_add_seed(const char *name, bool is_report, u16 id)
{
	char lower[40];
	int ret;

	ret = rasdes_add_file(name, "", RASDES_FILE_EVENT, is_report, id);
	string_lower(lower, name);
	if (ret || !strcmp(lower, name))
		return ret;
	return rasdes_add_file(lower, "", RASDES_FILE_EVENT, is_report, id);
}

static int rasdes_add_event(const struct rasdes_event *event, bool is_report)
{
	bool is_payload = is_report && event->id >= RASDES_REPORT_PAYLOAD_FIRST;
	int ret;

	if (rasdes_is_seed)
		return rasdes_add_seed(event->seed ?: event->name, is_report, event->id);
	ret = rasdes_add_file(event->name, "", RASDES_FILE_EVENT, is_report, event->id);
	if (!ret && is_payload)
		ret = rasdes_add_file(event->name, ".unit", RASDES_FILE_UNIT, true, event->id);
	if (!ret && is_payload)
		ret = rasdes_add_file(event->name, ".scale", RASDES_FILE_SCALE, true, event->id);
	return ret;
}

/**
 * rasdes_events_exit() - frees what rasdes_events_init() made
 */
void rasdes_events_exit(void)
{
	unsigned int i;

	for (i = 0; i < rasdes_nevent_attrs; i++)
		kfree(rasdes_event_attrs[i].attr.attr.name);
	kfree(rasdes_event_attrs);
}

/**
 * rasdes_events_init() - makes the files of events/, as the parameters want them
 *
 * Return: 0, or a negative error code.
 */
int rasdes_events_init(void)
{
	unsigned int i;
	int ret = 0;

	rasdes_event_attrs = kcalloc(RASDES_MAX_ATTRS, sizeof(*rasdes_event_attrs), GFP_KERNEL);
	if (!rasdes_event_attrs)
		return -ENOMEM;
	for (i = 0; !ret && i < ARRAY_SIZE(rasdes_reports); i++)
		ret = rasdes_add_event(&rasdes_reports[i], true);
	for (i = 0; !ret && i < ARRAY_SIZE(rasdes_counters); i++)
		ret = rasdes_add_event(&rasdes_counters[i], false);
	if (ret)
		rasdes_events_exit();
	return ret;
}

static const struct attribute_group rasdes_events_group = {
	.name = "events",
	.attrs = rasdes_event_list,
};

PMU_FORMAT_ATTR(eventid, "config:0-15");
PMU_FORMAT_ATTR(type, "config:16-19");
PMU_FORMAT_ATTR(lane, "config:20-27");

static struct attribute *rasdes_format_list[] = {
	&format_attr_eventid.attr,
	&format_attr_type.attr,
	&format_attr_lane.attr,
	NULL
};

static const struct attribute_group rasdes_format_group = {
	.name = "format",
	.attrs = rasdes_format_list,
};

static struct rasdes_pmu *rasdes_of(struct device *dev)
{
	return to_rasdes(dev_get_drvdata(dev));
}

static ssize_t cpumask_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", READ_ONCE(rasdes_of(dev)->cpu));
}
static DEVICE_ATTR_RO(cpumask);

static ssize_t identifier_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "dwc_rasdes_r4\n");
}
static DEVICE_ATTR_RO(identifier);

static ssize_t bdf_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", pci_name(rasdes_of(dev)->pdev));
}
static DEVICE_ATTR_RO(bdf);

static int rasdes_emit_counter(char *buf, int at, const struct rasdes_counter *c, u32 times)
{
	if (!times)
		return 0;
	return sysfs_emit_at(buf, at, "0x%03x %u %u\n",
			     (u32)FIELD_GET(RASDES_EVENT_CTL_EVENT, c->select),
			     (u32)FIELD_GET(RASDES_EVENT_CTL_LANE, c->select), times);
}

static ssize_t saturated_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct rasdes_pmu *rp = rasdes_of(dev);
	unsigned int i;
	int at = 0;

	for (i = 0; i < rp->ncounters; i++)
		at += rasdes_emit_counter(buf, at, &rp->counters[i],
					  READ_ONCE(rp->counters[i].saturated));
	return at;
}
static DEVICE_ATTR_RO(saturated);

static ssize_t disturbed_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct rasdes_pmu *rp = rasdes_of(dev);
	u32 times = READ_ONCE(rp->tba.disturbed);
	unsigned int i;
	int at = 0;

	if (times)
		at = sysfs_emit(buf, "time-based 0 %u\n", times);
	for (i = 0; i < rp->ncounters; i++)
		at += rasdes_emit_counter(buf, at, &rp->counters[i],
					  READ_ONCE(rp->counters[i].disturbed));
	return at;
}
static DEVICE_ATTR_RO(disturbed);

static struct attribute *rasdes_plain_list[] = {
	&dev_attr_cpumask.attr,
	&dev_attr_identifier.attr,
	&dev_attr_bdf.attr,
	&dev_attr_saturated.attr,
	&dev_attr_disturbed.attr,
	NULL
};

static const struct attribute_group rasdes_plain_group = {
	.attrs = rasdes_plain_list,
};

const struct attribute_group *rasdes_groups[] = {
	&rasdes_plain_group,
	&rasdes_format_group,
	&rasdes_events_group,
	NULL
};
