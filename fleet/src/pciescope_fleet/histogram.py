"""Histograms of many figures at once: merged, their percentiles, and their form.

Buckets have a lower edge in picoseconds and a count, as records have them: HdrHistogram with three significant digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p999": 99.9}  # The percentiles that hosts are compared by.
GREATEST = 2**63 - 1

MOST_SAMPLES = 2**47
"""A histogram of more samples is none: to take them a CPU would need weeks. Sums of many histograms stay below 2^63."""

SUB_BUCKETS = 2048
"""Buckets are one picosecond wide below, and twice as wide from here on and from each further power of two."""

DIGITS = 42  # Bits of a double that are zero in each lower edge: the others number the buckets.

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass
class Histograms:
    """Histograms one after the other, each with its buckets in the order of their edges, and the exact ends."""

    starts: Numbers  # Where the buckets of each begin, and the end of the last.
    lows: Numbers
    counts: Numbers
    min_ps: Numbers
    max_ps: Numbers

    def __len__(self) -> int:
        return len(self.min_ps)

    @cached_property
    def _below(self) -> Numbers:
        """How many samples lie in all buckets before each."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.counts)])

    @cached_property
    def totals(self) -> Numbers:
        """Samples of each."""
        return np.diff(self._below[self.starts])

    def take(self, which: Numbers) -> Histograms:
        """These of them, in this order."""
        sizes = np.diff(self.starts)[which]
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        if starts[-1] == len(self.lows) and (np.diff(which) > 0).all():
            # The others are empty.
            return Histograms(starts, self.lows, self.counts, self.min_ps[which], self.max_ps[which])
        places = np.repeat(self.starts[which] - starts[:-1], sizes) + np.arange(starts[-1])
        return Histograms(starts, self.lows[places], self.counts[places], self.min_ps[which], self.max_ps[which])

    def merged(self, owners: Numbers) -> Histograms:
        """Those of each owner together. Owners are numbers from 0 without a gap, in their order."""
        if not len(self) or owners[-1] + 1 == len(self):
            return self
        sizes = np.diff(self.starts)
        buckets = (self.lows.astype(np.float64).view(np.int64) >> DIGITS) | (np.repeat(owners, sizes) << 21)
        keys, counts = _summed(buckets, self.counts)
        lows = ((keys & (2**21 - 1)) << DIGITS).view(np.float64).astype(np.int64)
        starts = np.searchsorted(keys, np.arange(owners[-1] + 2) << 21)
        first = np.flatnonzero(np.diff(owners, prepend=-1))
        least = np.minimum.reduceat(np.where(sizes > 0, self.min_ps, GREATEST), first)
        return Histograms(
            starts,
            lows,
            counts,
            np.where(least == GREATEST, 0, least),
            np.maximum.reduceat(np.where(sizes > 0, self.max_ps, 0), first),
        )

    def percentiles_ns(self, percent: float) -> Floats:
        """The upper edge of the bucket that holds that rank; not a number if there are too few samples."""
        needed = 10 if percent <= 50 else 10 / (1 - percent / 100)
        return self._at(self._ranks(percent), self.totals >= needed * (1 - 1e-9))

    def errors(self, percent: float) -> tuple[Floats, Floats]:
        """The standard error of a percentile downwards and upwards, on a logarithmic scale.

        The rank of a percentile is binomial for every distribution. These are half the distances to the values two
        standard errors of the rank away: where a tail begins near the percentile, they are as large as its step.
        """
        values = self.percentiles_ns(percent)
        is_known = values > 0
        share, ranks = percent / 100, self._ranks(percent)
        half = 2 * np.sqrt(self.totals * share * (1 - share))
        low = self._at(np.maximum(1, np.floor(ranks - half)).astype(np.int64), is_known)
        high = self._at(np.minimum(self.totals, np.ceil(ranks + half).astype(np.int64)), is_known)
        return np.log(values / np.maximum(low, 1e-3)) / 2, np.log(high / values) / 2

    def _ranks(self, percent: float) -> Numbers:
        ranks: Numbers = np.maximum(1, np.ceil(percent / 100 * self.totals * (1 - 1e-12)).astype(np.int64))
        return ranks

    def _at(self, ranks: Numbers, is_known: npt.NDArray[np.bool_]) -> Floats:
        """The upper edges of the buckets with these ranks, in nanoseconds, within the exact ends."""
        values = np.full(len(self), np.nan)
        wanted = ranks[is_known] + self._below[self.starts[:-1][is_known]]
        lows = self.lows[self._below[1:].searchsorted(wanted)]
        ends = self.min_ps[is_known], self.max_ps[is_known]
        values[is_known] = np.minimum(np.maximum(lows + widths(lows) - 1, ends[0]), ends[1]) / 1000
        return values

    def forms(self, owners: Numbers, count: int, ticks_ps: Floats) -> tuple[Numbers, Numbers, Floats]:
        """The forms of owners, of which there are `count`: where each begins, and their bins and shares.

        A form is the share of all samples by their distance from the median of their own part: what one CPU measured.
        CPUs of two nodes make two modes together. Forms of different hosts can be averaged: that is their histograms
        merged after each was moved to the same median. It has no bin where no part has a median above 0.

        `ticks_ps` are the steps of the clock. Where these are coarse, samples and median may lie anywhere within half
        a tick: equal machines have their samples on other ticks.
        """
        medians = self.percentiles_ns(50.0)
        is_known = medians > 0
        sizes = np.diff(self.starts)
        if not is_known.all():
            chosen = self.take(np.flatnonzero(is_known))
            return Histograms.forms(chosen, owners[is_known], count, ticks_ps[is_known]) if len(chosen) else (
                np.zeros(count + 1, np.int64), np.zeros(0, np.int64), np.zeros(0)
            )  # fmt: skip
        middles = np.maximum(self.lows + (widths(self.lows) - 1) / 2, 0.5)
        is_coarse = ticks_ps > COARSE * medians * 1000
        medians_ps = np.where(is_coarse, self._medians_within(ticks_ps), medians * 1000)
        times = np.where(is_coarse, PIECES, 1)
        each = np.repeat(times, sizes)
        piece = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
        off = np.repeat(np.repeat(np.where(is_coarse, ticks_ps, 0.0), sizes), each) * ((piece + 0.5) / PIECES - 0.5)
        values = np.maximum(np.repeat(middles, each) + off, 0.5)
        bins = form_bins(values / np.repeat(np.repeat(medians_ps, sizes), each))
        # In whole parts of samples, as a sum of fractions would depend on their order.
        part = np.repeat(self.counts * (PIECES // np.repeat(times, sizes)), each)
        keys, counts = _summed((np.repeat(np.repeat(owners, sizes), each) << 16) + bins + 2**15, part)
        starts = np.searchsorted(keys, np.arange(count + 1) << 16)
        totals = np.diff(np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])[starts])
        return starts, (keys & 0xFFFF) - 2**15, counts / np.repeat(totals, np.diff(starts))

    def _medians_within(self, ticks_ps: Floats) -> Floats:
        """The medians in picoseconds, of samples that lie anywhere within half a tick of their buckets."""
        half = self.totals / 2
        at = self._below[1:].searchsorted(half + self._below[self.starts[:-1]])
        below = self._below[at] - self._below[self.starts[:-1]]
        lows = self.lows[at]
        part = (half - below) / np.maximum(self.counts[at], 1) - 0.5
        return np.asarray(np.maximum(lows + (widths(lows) - 1) / 2 + part * ticks_ps, 0.5))


COARSE, PIECES = 0.004, 8
"""A tick of a larger share of the median is coarse: bins of forms are narrower. A bucket is then in so many pieces."""


def widths(lows: Numbers) -> Numbers:
    """How many picoseconds the buckets with these lower edges span."""
    # The exponent of a double.
    bits = (lows.astype(np.float64).view(np.int64) >> 52) - 1023
    found: Numbers = np.left_shift(np.int64(1), np.maximum(bits - 10, 0))
    return found


def _summed(keys: Numbers, counts: Numbers) -> tuple[Numbers, Numbers]:
    """The keys in their order, each once, and the sums of their counts."""
    steps = np.diff(keys, prepend=-1)
    if (steps < 0).any():
        order = np.argsort(keys)
        keys, counts = keys[order], counts[order]
        steps = np.diff(keys, prepend=-1)
    first = np.flatnonzero(steps)
    return keys[first], np.add.reduceat(counts, first) if len(first) else counts


FORM_STEP = 0.01
"""Bins of a form are about this wide (on a logarithmic scale) at the median, and wider with the distance from it."""
FORM_BINS = 4.0  # Bins for each e-fold of the distance.


def form_bins(ratios: Floats) -> Numbers:
    """The bins of durations of so many times the median."""
    return np.rint(np.arcsinh(np.log(ratios) / FORM_STEP) * FORM_BINS).astype(np.int64)
