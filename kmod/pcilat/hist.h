/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Arithmetic of the log-linear histogram. No kernel includes: a test in user
 * space covers it. Needs <linux/types.h>, the UAPI header and WRITE_ONCE() before it.
 */
#ifndef PCILAT_HIST_H
#define PCILAT_HIST_H

/* Buckets between two powers of two; they are allocated together. */
#define PCILAT_HIST_CHUNKS	(PCILAT_HIST_MAX_BITS - PCILAT_HIST_SUB_BITS + 1)
#define PCILAT_HIST_CHUNK	(PCILAT_HIST_BUCKETS / PCILAT_HIST_CHUNKS)

static inline int pcilat_hist_overflows(__u64 value)
{
	return value >> PCILAT_HIST_MAX_BITS != 0;
}

/* Bucket of a value that does not overflow. */
static inline __u32 pcilat_hist_bucket(__u64 value)
{
	__u32 shift;

	if (value < 2 * PCILAT_HIST_CHUNK)
		return value;
	shift = 63 - __builtin_clzll(value) - PCILAT_HIST_SUB_BITS;
	return (shift << PCILAT_HIST_SUB_BITS) + (value >> shift);
}

/* Lowest value of a bucket. */
static inline __u64 pcilat_hist_low(__u32 bucket)
{
	__u32 shift;

	if (bucket < 2 * PCILAT_HIST_CHUNK)
		return bucket;
	shift = (bucket >> PCILAT_HIST_SUB_BITS) - 1;
	return (__u64)(bucket - (shift << PCILAT_HIST_SUB_BITS)) << shift;
}

/* Takes one value into the exact figures. */
static inline void pcilat_summary_add(struct pcilat_summary *s, __u64 value, __u64 at)
{
	if (!s->count || value < s->min) {
		s->min = value;
		s->min_at = at;
	}
	if (!s->count || value > s->max) {
		s->max = value;
		s->max_at = at;
	}
	s->sum_low += value;
	s->sum_high += s->sum_low < value;
	s->overflow += pcilat_hist_overflows(value);
	/* pcilat_job_done() reads it meanwhile. */
	WRITE_ONCE(s->count, s->count + 1);
}

#endif /* PCILAT_HIST_H */
