// SPDX-License-Identifier: GPL-2.0-only
/*
 * The events, and a PMU's files in sysfs. The names are in docs/pmu.md: those of the
 * in-tree driver and of the events that it leaves out, or the seed's. Each of the
 * seed's names has a twin in lower case, because perf 7.3 accepts no mixed case.
 */
#include <linux/string.h>
#include <linux/string_helpers.h>

#include "internal.h"
#include "fold.h"

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
 * rasdes_count_counters() - how many event counters a function has
 * @lanes: the link's width
 *
 * Return: the number, each lane's counter for itself.
 */
unsigned int rasdes_count_counters(unsigned int lanes)
{
	unsigned int i, n = 0;

	for (i = 0; i < ARRAY_SIZE(rasdes_counters); i++)
		n += rasdes_is_per_lane(rasdes_counters[i].id) ? lanes : 1;
	return n;
}

static bool rasdes_is_payload(unsigned int code)
{
	return code >= RASDES_REPORT_PAYLOAD_FIRST && code <= RASDES_REPORT_PAYLOAD_LAST;
}

static void rasdes_report_init(struct rasdes_pmu *rp, unsigned int code)
{
	bool is_in_bytes = rasdes_is_payload(code) && !rasdes_is_seed;

	rp->reports[code].unit = is_in_bytes ? RASDES_PAYLOAD_UNIT : 1;
	rp->reports[code].select = FIELD_PREP(RASDES_TBA_CTL_REPORT, code);
}

/**
 * rasdes_counters_init() - initialises the counters and reports of a PMU
 * @rp: the PMU, with room for rasdes_count_counters()
 */
void rasdes_counters_init(struct rasdes_pmu *rp)
{
	struct rasdes_counter *c = rp->counters;
	unsigned int i, lane;

	for (i = 0; i < ARRAY_SIZE(rasdes_reports); i++)
		rasdes_report_init(rp, rasdes_reports[i].id);
	for (i = RASDES_REPORT_ESM_FIRST; i <= RASDES_REPORT_ESM_LAST; i++)
		rasdes_report_init(rp, i);
	for (i = 0; i < ARRAY_SIZE(rasdes_counters); i++) {
		u16 id = rasdes_counters[i].id;

		for (lane = 0; lane < (rasdes_is_per_lane(id) ? rp->lanes : 1); lane++, c++) {
			c->unit = 1;
			c->bits = rasdes_width(id >> 8);
			c->select = FIELD_PREP(RASDES_EVENT_CTL_EVENT, id) |
				    FIELD_PREP(RASDES_EVENT_CTL_LANE, lane);
		}
	}
}

static struct uncore_events rasdes_events;

static void rasdes_add_event(const struct rasdes_event *event, unsigned int id, unsigned int type,
			     const char *lane)
{
	static const char format[] = "eventid=0x%x,type=0x%x%s";
	char lower[40];

	if (!rasdes_is_seed || !event->seed) {
		uncore_add_event(&rasdes_events, event->name, "", format, id, type, lane);
		return;
	}
	string_lower(lower, event->seed);
	uncore_add_event(&rasdes_events, event->seed, "", format, id, type, lane);
	uncore_add_event(&rasdes_events, lower, "", format, id, type, lane);
}

/**
 * rasdes_events_init() - makes the files of events/ according to the parameters
 */
void rasdes_events_init(void)
{
	const struct rasdes_event *event;
	unsigned int i, id;

	for (i = 0; i < ARRAY_SIZE(rasdes_reports); i++) {
		event = &rasdes_reports[i];
		id = event->id;
		if (rasdes_is_old_variant &&
		    (id == RASDES_REPORT_L1_AUX || id == RASDES_REPORT_TX_RX_L0S))
			id ^= RASDES_REPORT_L1_AUX ^ RASDES_REPORT_TX_RX_L0S;
		rasdes_add_event(event, id, rasdes_is_seed, "");
		if (rasdes_is_payload(id) && !rasdes_is_seed) {
			uncore_add_event(&rasdes_events, event->name, ".unit", "B");
			uncore_add_event(&rasdes_events, event->name, ".scale", "1");
		}
	}
	for (i = 0; i < ARRAY_SIZE(rasdes_counters); i++) {
		event = &rasdes_counters[i];
		rasdes_add_event(event, event->id, rasdes_is_seed + 1,
				 rasdes_is_per_lane(event->id) ? ",lane=?" : "");
	}
}

static const struct attribute_group rasdes_events_group = {
	.name = "events",
	.attrs = rasdes_events.list,
};

PMU_FORMAT_ATTR(eventid, "config:0-15");
PMU_FORMAT_ATTR(type, "config:16-19");
PMU_FORMAT_ATTR(lane, "config:20-27");

static struct attribute *rasdes_format_attrs[] = {
	&format_attr_eventid.attr,
	&format_attr_type.attr,
	&format_attr_lane.attr,
	NULL
};

static const struct attribute_group rasdes_format_group = {
	.name = "format",
	.attrs = rasdes_format_attrs,
};

static ssize_t identifier_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "dwc_rasdes_r4\n");
}
static DEVICE_ATTR_RO(identifier);

static ssize_t bdf_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", to_rasdes(dev_get_drvdata(dev))->bdf);
}
static DEVICE_ATTR_RO(bdf);

/* Writes a line for each counter whose field at @offset is not 0. */
static int rasdes_emit_counters(struct rasdes_pmu *rp, char *buf, int at, size_t offset)
{
	unsigned int i;

	for (i = 0; i < rp->ncounters; i++) {
		const struct rasdes_counter *c = &rp->counters[i];
		u32 times = READ_ONCE(*(u32 *)((char *)c + offset));

		if (times)
			at += sysfs_emit_at(buf, at, "0x%03lx %lu %u\n",
					    FIELD_GET(RASDES_EVENT_CTL_EVENT, c->select),
					    FIELD_GET(RASDES_EVENT_CTL_LANE, c->select), times);
	}
	return at;
}

static ssize_t saturated_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return rasdes_emit_counters(to_rasdes(dev_get_drvdata(dev)), buf, 0,
				    offsetof(struct rasdes_counter, saturated));
}
static DEVICE_ATTR_RO(saturated);

static ssize_t disturbed_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct rasdes_pmu *rp = to_rasdes(dev_get_drvdata(dev));
	u32 times = READ_ONCE(rp->tba.disturbed);
	int at = times ? sysfs_emit(buf, "time-based 0 %u\n", times) : 0;

	return rasdes_emit_counters(rp, buf, at, offsetof(struct rasdes_counter, disturbed));
}
static DEVICE_ATTR_RO(disturbed);

static struct attribute *rasdes_attrs[] = {
	&dev_attr_cpumask.attr,
	&dev_attr_identifier.attr,
	&dev_attr_bdf.attr,
	&dev_attr_saturated.attr,
	&dev_attr_disturbed.attr,
	NULL
};

static const struct attribute_group rasdes_group = {
	.attrs = rasdes_attrs,
};

const struct attribute_group *rasdes_groups[] = {
	&rasdes_group,
	&rasdes_format_group,
	&rasdes_events_group,
	NULL
};
