// SPDX-License-Identifier: GPL-2.0-only
/* Tests the arithmetic of fold.h in user space. KTAP; exit status 1 if a test fails. */
#include <stdbool.h>
#include <stdio.h>

#include <linux/types.h>

#include "../rasdes_pmu/fold.h"

static unsigned int tests, failed;

static void report(bool ok, const char *name)
{
	failed += !ok;
	printf("%sok %u %s\n", ok ? "" : "not ", ++tests, name);
}

static bool wraps(__u64 last, __u64 now, unsigned int bits, __u64 delta, bool cleared)
{
	bool is_cleared;

	return rasdes_fold_wrap(last, now, bits, &is_cleared) == delta && is_cleared == cleared;
}

static bool saturates(__u64 last, __u64 now, __u64 delta, bool cleared)
{
	bool is_cleared;

	return rasdes_fold_saturate(last, now, &is_cleared) == delta && is_cleared == cleared;
}

static bool tba(__u64 last, __u64 now, unsigned int bits, __u64 delta, bool restarted)
{
	bool is_restarted;

	return rasdes_fold_tba(last, now, bits, &is_restarted) == delta &&
	       is_restarted == restarted;
}

static bool every_group_has_its_width(void)
{
	static const unsigned int widths[] = { 4, 8, 8, 8, 4, 32, 32, 32 };
	unsigned int group;

	for (group = 0; group < 8; group++) {
		if (rasdes_width(group) != widths[group])
			return false;
	}
	return true;
}

int main(void)
{
	printf("KTAP version 1\n1..15\n");
	report(every_group_has_its_width(), "every group has its width");
	report(wraps(5, 9, 32, 4, false) && wraps(9, 9, 32, 0, false),
	       "a counter that went on counts the difference");
	report(wraps(0, 0xffffffff, 32, 0xffffffff, false), "a jump ahead counts in full");
	report(wraps(0xfffffff0, 0x10, 32, 0x20, false), "a 32-bit counter wraps at its edge");
	report(wraps(0xffffffff, 0, 32, 1, false), "a 32-bit counter wraps by one");
	report(wraps(1000, 3, 32, 3, true),
	       "a counter that somebody cleared counts what came since");
	report(rasdes_fold_narrow(14, 3, 4) == 5 && rasdes_fold_narrow(250, 4, 8) == 10,
	       "narrow counters wrap");
	report(saturates(3, 15, 12, false), "a saturating counter counts up to its end");
	report(saturates(9, 2, 2, true), "a saturating counter that went back was cleared");
	report(tba(0x1ffffffff, 0x200000001, 64, 2, false), "time-based data passes 2^32");
	report(tba(0xfffffff0, 0x10, 64, 0x20, false), "32-bit time-based data is noticed");
	report(tba(0xfffffffff0, 0x10, 64, 0x20, false), "40-bit time-based data is noticed");
	report(tba(1000, 3, 64, 3, true) && tba(1ULL << 50, 7, 64, 7, true),
	       "a restarted measurement counts what came since");
	report(tba(~0ULL - 1, 2, 64, 4, false), "64-bit time-based data wraps");
	report(tba(10, 3, 32, 0xfffffff9, false) && tba(0xfffffffff0, 0x10, 40, 0x20, false),
	       "data of a known width wraps at it");
	return failed != 0;
}
