/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Computes what a counter has counted between two readings. It has no kernel includes,
 * so that a test in user space can include it. Include <linux/types.h> and <stdbool.h>
 * (or the kernel's bool) before it.
 */
#ifndef RASDES_FOLD_H
#define RASDES_FOLD_H

/* Bits of an event counter, by group. */
static inline unsigned int rasdes_width(unsigned int group)
{
	static const unsigned char widths[] = { 4, 8, 8, 8, 4, 32, 32, 32 };

	return widths[group & 7];
}

/*
 * A counter of @bits (up to 63) that wraps. It cannot count half of its range between
 * two readings. So if a lower value would need more than that, another agent has
 * cleared the counter (@cleared), and all of the value was counted since then.
 */
static inline __u64 rasdes_fold_wrap(__u64 last, __u64 now, unsigned int bits, bool *cleared)
{
	__u64 range = 1ULL << bits;

	*cleared = false;
	if (now >= last)
		return now - last;
	if (range - last + now < range / 2)
		return range - last + now;
	*cleared = true;
	return now;
}

/* A narrow counter that wraps. It may count its whole range, so a clear cannot be noticed. */
static inline __u64 rasdes_fold_narrow(__u64 last, __u64 now, unsigned int bits)
{
	return (now - last) & ((1ULL << bits) - 1);
}

/* A counter that stops at its highest value. If the value is lower, another agent cleared it. */
static inline __u64 rasdes_fold_saturate(__u64 last, __u64 now, bool *cleared)
{
	*cleared = now < last;
	return *cleared ? now : now - last;
}

/*
 * Time-based data of 64 bits, or of fewer if that is known (@bits < 64). If a 64-bit
 * value went back, the narrowest counter that could hold the last value may have
 * wrapped. If that is not plausible, somebody else has restarted it.
 */
static inline __u64 rasdes_fold_tba(__u64 last, __u64 now, unsigned int bits, bool *restarted)
{
	static const unsigned char plausible[] = { 32, 40, 48 };
	unsigned int i;

	*restarted = false;
	if (bits < 64)
		return (now - last) & ((1ULL << bits) - 1);
	if (now >= last)
		return now - last;
	for (i = 0; i < sizeof(plausible); i++) {
		if (last >> plausible[i] == 0)
			return rasdes_fold_wrap(last, now, plausible[i], restarted);
	}
	/* 64 bits do not wrap from 0, but may wrap from a preset value. */
	if (now - last < 1ULL << 63)
		return now - last;
	*restarted = true;
	return now;
}

#endif /* RASDES_FOLD_H */
