/* SPDX-License-Identifier: GPL-2.0-only */
/* docs/spec/drw.md, "Registers": offsets in a sub-channel's window */
#ifndef DRW_REGS_H
#define DRW_REGS_H

#include <linux/bits.h>

#define DRW_CTRL		0xc00
#define   DRW_CTRL_START	BIT(0)
#define   DRW_CTRL_STOP		BIT(1)
/* The number plus 19 of the counter that gets the whole range. */
#define DRW_TEST		0xc08
#define   DRW_TEST_COMMON	19
#define DRW_PRELOAD		0xc0c

#define DRW_CYCLE_HIGH		0xc10
#define   DRW_CYCLE_HIGH_BITS	GENMASK(23, 0)
#define DRW_CYCLE_LOW		0xc14

/* A byte per common counter, four in a register. */
#define DRW_SELECT(m)		(0xc68 + 4 * (m))
#define   DRW_SELECT_ENABLE	BIT(7)
#define   DRW_SELECT_EVENT	GENMASK(5, 0)
#define DRW_SELECTS		4

#define DRW_COUNTER(n)		(0xc78 + 4 * (n))
#define DRW_COUNTERS		16

#define DRW_OVERFLOW_ENABLE	0xcb8
#define DRW_OVERFLOW_DISABLE	0xcbc
#define DRW_OVERFLOW_CLEAR	0xcc4
#define DRW_OVERFLOW_STATUS	0xcc8
#define   DRW_OVERFLOW(n)	BIT(8 + (n))
#define   DRW_OVERFLOW_COMMON	GENMASK(23, 8)
#define   DRW_OVERFLOW_ALL	GENMASK(23, 0)

/* The last register's end. */
#define DRW_WINDOW_BYTES	0xccc

#endif /* DRW_REGS_H */
