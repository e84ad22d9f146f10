/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a counter has counted between two looks at it. No kernel includes: a
 * test in user space covers it. Needs <linux/types.h> and <stdbool.h> (or the
 * kernel's bool) before it.
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
 * A counter of @bits (up to 63) that wraps. Half of its range cannot pass
 * between two looks: a value that went back by less than that was cleared by
 * someone else (@cleared), and what it shows came since.
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

/* A narrow counter that wraps: all of its range may pass, so that nothing tells a clear. */
static inline __u64 rasdes_fold_narrow(__u64 last, __u64 now, unsigned int bits)
{
	return (now - last) & ((1ULL << bits) - 1);
}

/* A counter that stays at its end: it goes back when someone else cleared it. */
static inline __u64 rasdes_fold_saturate(__u64 last, __u64 now, bool *cleared)
{
	*cleared = now < last;
	return *cleared ? now : now - last;
}

/*
 * Time-based data, 64 bits unless known (@bits < 64) to be narrower. A 64-bit
 * value that went back is the wrap of the narrowest counter that could have
 * held the last one, if that is plausible, else somebody's restart.
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
	/* 64 bits do not wrap in a lifetime; a preset may. */
	if (now - last < 1ULL << 63)
		return now - last;
	*restarted = true;
	return now;
}

#endif /* RASDES_FOLD_H */
