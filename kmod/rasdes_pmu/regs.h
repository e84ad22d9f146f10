/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Registers of DesignWare RAS D.E.S., as offsets from its vendor-specific
 * capability (docs/spec/rasdes.md). Only what counting needs: error injection
 * and silicon debug are never touched.
 */
#ifndef RASDES_REGS_H
#define RASDES_REGS_H

#include <linux/bits.h>

#define RASDES_VSEC_ID			0x02
#define RASDES_VSEC_REV			0x4
#define RASDES_VSEC_LENGTH		0x1c	/* up to the last register below */

/*
 * A viewport: one word selects an event and a lane. The other fields of the word, and
 * the data register, belong to the selected counter. CLEAR and ENABLE read 0.
 */
#define RASDES_EVENT_CTL		0x08
#define   RASDES_EVENT_CTL_CLEAR	GENMASK(1, 0)
#define     RASDES_CLEAR_ONE		1
#define   RASDES_EVENT_CTL_ENABLE	GENMASK(4, 2)
#define     RASDES_ENABLE_OFF		1
#define     RASDES_ENABLE_ON		3
#define   RASDES_EVENT_CTL_STATUS	BIT(7)
#define   RASDES_EVENT_CTL_LANE		GENMASK(11, 8)
#define   RASDES_EVENT_CTL_EVENT	GENMASK(27, 16)	/* group, event */
#define   RASDES_EVENT_CTL_SELECT	(RASDES_EVENT_CTL_EVENT | RASDES_EVENT_CTL_LANE)
#define RASDES_EVENT_DATA		0x0c

/* Time-based analysis: one report at a time. */
#define RASDES_TBA_CTL			0x10
#define   RASDES_TBA_CTL_START		BIT(0)
#define   RASDES_TBA_CTL_DURATION	GENMASK(15, 8)	/* 0: until it is stopped */
#define   RASDES_TBA_CTL_REPORT		GENMASK(31, 24)
#define   RASDES_TBA_CTL_FIELDS		(RASDES_TBA_CTL_START | RASDES_TBA_CTL_DURATION | \
					 RASDES_TBA_CTL_REPORT)
#define RASDES_TBA_DATA_LOW		0x14
#define RASDES_TBA_DATA_HIGH		0x18

#define RASDES_MAX_LANES		16

#define RASDES_REPORTS			0x24	/* codes, of which some are none */
#define RASDES_REPORT_ONE_CYCLE		0x00
#define RASDES_REPORT_L1_AUX		0x08
#define RASDES_REPORT_TX_RX_L0S		0x09
#define RASDES_REPORT_ESM_FIRST		0x10
#define RASDES_REPORT_ESM_LAST		0x18
#define RASDES_REPORT_PAYLOAD_FIRST	0x20
#define RASDES_REPORT_PAYLOAD_LAST	0x23
#define RASDES_PAYLOAD_UNIT		16	/* bytes */

#endif /* RASDES_REGS_H */
