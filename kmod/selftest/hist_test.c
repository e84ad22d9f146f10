// SPDX-License-Identifier: GPL-2.0-only
/* The histogram's arithmetic, in user space. KTAP; exit status 1 if a test fails. */
#include <stdbool.h>
#include <stdio.h>

#include <linux/types.h>
#include <linux/pcilat.h>

/* Nobody else reads here. */
#define WRITE_ONCE(x, value) ((x) = (value))
#include "../pcilat/hist.h"

static unsigned int tests, failed;

static void report(bool ok, const char *name)
{
	failed += !ok;
	printf("%sok %u %s\n", ok ? "" : "not ", ++tests, name);
}

/* A value lies in its bucket, and the bucket is at most 1/256 of it wide. */
static bool fits(__u64 value)
{
	__u32 bucket = pcilat_hist_bucket(value);
	__u64 low = pcilat_hist_low(bucket), next = pcilat_hist_low(bucket + 1);

	return bucket < PCILAT_HIST_BUCKETS && low <= value && value < next &&
	       next - low <= 1 + (low >> PCILAT_HIST_SUB_BITS);
}

static bool every_bucket_follows_the_last(void)
{
	__u32 bucket;

	for (bucket = 0; bucket + 1 < PCILAT_HIST_BUCKETS; bucket++) {
		if (pcilat_hist_bucket(pcilat_hist_low(bucket)) != bucket ||
		    pcilat_hist_bucket(pcilat_hist_low(bucket + 1) - 1) != bucket)
			return false;
	}
	return true;
}

static bool values_around_powers_of_two_fit(void)
{
	unsigned int bit;

	for (bit = 1; bit < PCILAT_HIST_MAX_BITS; bit++) {
		__u64 value = 1ull << bit;

		if (!fits(value - 1) || !fits(value) || !fits(value + 1))
			return false;
	}
	return true;
}

static bool the_last_bucket_ends_where_overflow_begins(void)
{
	__u64 largest = (1ull << PCILAT_HIST_MAX_BITS) - 1;

	return pcilat_hist_bucket(largest) == PCILAT_HIST_BUCKETS - 1 &&
	       !pcilat_hist_overflows(largest) && pcilat_hist_overflows(largest + 1);
}

static bool the_sum_carries(void)
{
	struct pcilat_summary s = { 0 };

	pcilat_summary_add(&s, ~0ull, 1);
	pcilat_summary_add(&s, 3, 2);
	return s.count == 2 && s.sum_high == 1 && s.sum_low == 2 && s.overflow == 1 &&
	       s.min == 3 && s.min_at == 2 && s.max == ~0ull && s.max_at == 1;
}

static bool the_first_of_equals_keeps_its_time(void)
{
	struct pcilat_summary s = { 0 };

	pcilat_summary_add(&s, 0, 5);
	pcilat_summary_add(&s, 0, 6);
	return s.min == 0 && s.max == 0 && s.min_at == 5 && s.max_at == 5;
}

int main(void)
{
	printf("KTAP version 1\n1..5\n");
	report(every_bucket_follows_the_last(), "every bucket follows the last");
	report(values_around_powers_of_two_fit(), "values around powers of two fit");
	report(the_last_bucket_ends_where_overflow_begins(),
	       "the last bucket ends where overflow begins");
	report(the_sum_carries(), "the sum carries");
	report(the_first_of_equals_keeps_its_time(), "the first of equals keeps its time");
	return failed != 0;
}
