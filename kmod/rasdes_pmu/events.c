// SPDX-License-Identifier: GPL-2.0-only
/*
 * The events, and a PMU's files in sysfs. The names are in docs/pmu.md: those of the
 * in-tree driver and of the events that it leaves out, or the seed's. Each of the
 * seed's names has a twin in lower case, because perf 7.3 accepts no mixed case.
 */
#include "internal.h"
#include "fold.h"

struct rasdes_event {
	u16 id;
	const char *seed;	/* NULL: not in the seed */
	const char *name;	/* NULL: the seed's in lower case */
};

/* docs/spec/rasdes.md, "Reports"; those at CCIX ESM rates have no names. */
static const struct rasdes_event rasdes_reports[] = {
	{ 0x00, NULL, "one_cycle" }, { 0x01, "Tx_L0s", "TX_L0S" }, { 0x02, "Rx_L0s", "RX_L0S" },
	{ 0x03, "L0", "L0" }, { 0x04, "L1", "L1" }, { 0x05, "L1_1", "L1_1" },
	{ 0x06, "L1_2", "L1_2" }, { 0x07, "Configuration_Recovery", "CFG_RCVRY" },
	{ 0x08, "L1_aux", "L1_AUX" }, { 0x09, "Tx_L0s_and_Rx_L0s", "TX_RX_L0S" },
	{ 0x20, "Tx_PCIe_TLP_Data_Payload", "tx_pcie_tlp_data_payload" },
	{ 0x21, "Rx_PCIe_TLP_Data_Payload", "rx_pcie_tlp_data_payload" },
	{ 0x22, "Tx_CCIX_TLP_Data_Payload", "tx_ccix_tlp_data_payload" },
	{ 0x23, "Rx_CCIX_TLP_Data_Payload", "rx_ccix_tlp_data_payload" },
};

static const struct rasdes_event rasdes_counters[] = {
	{ 0x000, "EBUF_Overflow" }, { 0x001, "EBUF_Under_run", "ebuf_underrun" },
	{ 0x002, "Decode_Error" }, { 0x003, "Running_Disparity_Error" },
	{ 0x004, "SKP_OS_Parity_Error" }, { 0x005, "SYNC_Header_Error" },
	{ 0x006, "Rx_Valid_de_assertion", "rx_valid_deassertion" },
	{ 0x007, "CTL_SKP_OS_Parity_Error" }, { 0x008, "Retimer1_Parity_Error" },
	{ 0x009, "Retimer2_Parity_Error" },
	{ 0x00a, "Margin_CRC_and_Parity_Error", "margin_crc_parity_error" },

	{ 0x105, "Detect_EI_Infer" }, { 0x106, "Receiver_Error" },
	{ 0x107, "Rx_Recovery_Request" }, { 0x108, "N_FTS_Timeout" }, { 0x109, "Framing_Error" },
	{ 0x10a, "Deskew_Error" }, { 0x10c, NULL, "framing_error_in_l0" },
	{ 0x10d, NULL, "deskew_uncompleted_error" },

	{ 0x200, "BAD_TLP" }, { 0x201, "LCRC_Error" }, { 0x202, "BAD_DLLP" },
	{ 0x203, "Replay_Number_Rollover", "replay_num_rollover" }, { 0x204, "Replay_Timeout" },
	{ 0x205, "Rx_Nak_DLLP" }, { 0x206, "Tx_Nak_DLLP" }, { 0x207, "Retry_TLP" },

	{ 0x300, "FC_Timeout" }, { 0x301, "Poisoned_TLP" }, { 0x302, "ECRC_Error" },
	{ 0x303, "Unsupported_Request" }, { 0x304, "Completer_Abort" },
	{ 0x305, "Completion_Timeout" },

	{ 0x400, "EBUF_SKP_Add" }, { 0x401, "EBUF_SKP_Del" },

	{ 0x500, "L0_to_Recovery_Entry", "l0_to_recovery" },
	{ 0x501, "L1_to_Recovery_Entry", "l1_to_recovery" }, { 0x502, "Tx_L0s_Entry" },
	{ 0x503, "Rx_L0s_Entry" }, { 0x504, "ASPM_L1_reject" }, { 0x505, "L1_Entry" },
	{ 0x506, "L1_CPM" }, { 0x507, "L1_1_Entry" }, { 0x508, "L1_2_Entry" },
	{ 0x509, "L1_short_duration" }, { 0x50a, "L1_2_abort" }, { 0x50b, "L2_Entry" },
	{ 0x50c, "Speed_Change" }, { 0x50d, "Link_width_Change", "width_change" },

	{ 0x600, "Tx_Ack_DLLP" }, { 0x601, "Tx_Update_FC_DLLP" }, { 0x602, "Rx_Ack_DLLP" },
	{ 0x603, "Rx_Update_FC_DLLP" }, { 0x604, "Rx_Nullified_TLP" },
	{ 0x605, "Tx_Nullified_TLP" }, { 0x606, "Rx_Duplicate_TLP" },

	{ 0x700, "Tx_Memory_Write" }, { 0x701, "Tx_Memory_Read" },
	{ 0x702, "Tx_Configuration_Write" }, { 0x703, "Tx_Configuration_Read" },
	{ 0x704, "Tx_IO_Write" }, { 0x705, "Tx_IO_Read" }, { 0x706, "Tx_Completion_without_data" },
	{ 0x707, "Tx_Completion_w_data", "tx_completion_with_data" }, { 0x708, "Tx_Message_TLP" },
	{ 0x709, "Tx_Atomic" }, { 0x70a, "Tx_TLP_with_Prefix" }, { 0x70b, "Rx_Memory_Write" },
	{ 0x70c, "Rx_Memory_Read" }, { 0x70d, NULL, "rx_configuration_write" },
	{ 0x70e, NULL, "rx_configuration_read" }, { 0x70f, "Rx_IO_Write" },
	{ 0x710, "Rx_IO_Read" }, { 0x711, "Rx_Completion_without_data" },
	{ 0x712, "Rx_Completion_w_data", "rx_completion_with_data" }, { 0x713, "Rx_Message_TLP" },
	{ 0x714, "Rx_Atomic" }, { 0x715, "Rx_TLP_with_Prefix" }, { 0x716, "Tx_CCIX_TLP" },
	{ 0x717, "Rx_CCIX_TLP" }, { 0x718, NULL, "tx_deferrable_memory_write" },
	{ 0x719, NULL, "rx_deferrable_memory_write" },
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
	bool is_seed = rasdes_is_seed && event->seed;
	char lower[40] = "";

	if (event->seed)
		string_lower(lower, event->seed);
	if (is_seed)
		uncore_add_event(&rasdes_events, event->seed, "", format, id, type, lane);
	uncore_add_event(&rasdes_events, is_seed || !event->name ? lower : event->name, "",
			 format, id, type, lane);
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

PMU_FORMAT_ATTR(eventid, "config:0-15");
PMU_FORMAT_ATTR(type, "config:16-19");
PMU_FORMAT_ATTR(lane, "config:20-27");

static struct attribute *rasdes_format_attrs[] = {
	&format_attr_eventid.attr,
	&format_attr_type.attr,
	&format_attr_lane.attr,
	NULL
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

UNCORE_GROUPS(rasdes);
const struct attribute_group *rasdes_groups[] = UNCORE_GROUP_LIST(rasdes);
