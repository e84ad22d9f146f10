"""Histograms of records: merged, their percentiles, and their form.

Buckets are pairs of a lower edge in picoseconds and a count, as records have them: HdrHistogram with three significant
digits.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p999": 99.9}
"""The percentiles that hosts are compared by."""

GREATEST = 2**63 - 1
"""Parquet's integers end here."""

SUB_BUCKETS = 2048
"""Buckets are one picosecond wide below, and twice as wide from here on and from each further power of two."""


Numbers = npt.NDArray[np.int64]


@dataclass
class Histogram:
    """Counts by the lower edge of their bucket, in the order of the edges, and the exact ends."""

    lows: Numbers
    counts: Numbers
    min_ps: int
    max_ps: int

    @classmethod
    def parse(cls, told: Mapping[str, Any]) -> Histogram:
        """From a record. `ValueError` where it is not a histogram."""
        try:
            lows, counts = _buckets(told["buckets"])
            least, most = int(told["min_ps"]), int(told["max_ps"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"not a histogram: {error!r}") from error
        if not 0 <= least <= most <= GREATEST:
            raise ValueError("not a histogram: its smallest or greatest value cannot be")
        return cls(lows, counts, least, most)

    @functools.cached_property
    def count(self) -> int:
        """How many samples."""
        return int(self.counts.sum())

    @functools.cached_property
    def _below(self) -> Numbers:
        """How many samples lie in the buckets up to each."""
        return np.cumsum(self.counts)

    def percentile_ns(self, percent: float) -> float | None:
        """The upper edge of the bucket that holds that rank; nothing if there are too few samples."""
        count = self.count
        needed = 10 if percent <= 50 else 10 / (1 - percent / 100)
        if count < needed * (1 - 1e-9):
            return None
        return self._at(max(1, math.ceil(percent / 100 * count * (1 - 1e-12))))

    def errors(self, percent: float) -> tuple[float, float] | None:
        """The standard error of a percentile downwards and upwards, on a logarithmic scale.

        The rank of a percentile is binomial for every distribution. These are half the distances to the values two
        standard errors of the rank away: where a tail begins near the percentile, they are as large as its step.
        """
        value = self.percentile_ns(percent)
        if value is None or value <= 0:
            return None
        count, share = self.count, percent / 100
        half = 2 * math.sqrt(count * share * (1 - share))
        rank = max(1, math.ceil(share * count * (1 - 1e-12)))
        low, high = self._at(max(1, math.floor(rank - half))), self._at(min(count, math.ceil(rank + half)))
        return (math.log(value / max(low, 1e-3)) / 2, math.log(high / value) / 2)

    def _at(self, rank: int) -> float:
        """The upper edge of the bucket with that rank, in nanoseconds, within the exact ends."""
        place = int(self._below.searchsorted(rank))
        low = int(self.lows[min(place, len(self.lows) - 1)]) if len(self.lows) else 0
        return min(max(low + width(low) - 1, self.min_ps), self.max_ps) / 1000


def width(low: int) -> int:
    """How many picoseconds the bucket with this lower edge spans."""
    return 1 if low < SUB_BUCKETS else 1 << (low.bit_length() - 11)


def _buckets(told: Any) -> tuple[Numbers, Numbers]:
    """The edges in their order, and the counts. Raises where they are none."""
    pairs = np.array(told)
    if pairs.dtype != np.int64 or pairs.ndim != 2 or pairs.shape[1] != 2 or (np.diff(pairs[:, 0]) <= 0).any():
        # Not as pciescope writes them. Of two counts of one edge the last one counts.
        counts = {int(low): int(count) for low, count in told}
        if any(not 0 <= low <= GREATEST or not 0 <= count <= GREATEST for low, count in counts.items()):
            raise ValueError("the edge or count of a bucket is negative, or above 2^63")
        pairs = np.array(sorted(counts.items()), np.int64).reshape(-1, 2)
    if len(pairs) and (pairs.min() < 0 or sum(pairs[:, 1].tolist()) > GREATEST):
        raise ValueError("the edge or count of a bucket is negative, or the sum of counts above 2^63")
    return pairs[:, 0], pairs[:, 1]


def merge(parts: Iterable[Histogram]) -> Histogram:
    """All samples together."""
    filled = [part for part in parts if len(part.lows)]
    if len(filled) == 1:
        return filled[0]
    if sum(part.count for part in filled) > GREATEST:
        raise ValueError("histograms have more than 2^63 samples together")
    none = np.zeros(0, np.int64)
    lows, counts = _summed(
        np.concatenate([none, *(part.lows for part in filled)]),
        np.concatenate([none, *(part.counts for part in filled)]),
    )
    ends = (min((part.min_ps for part in filled), default=0), max((part.max_ps for part in filled), default=0))
    return Histogram(lows, counts, *ends)


def _summed(keys: Numbers, counts: Numbers) -> tuple[Numbers, Numbers]:
    """The keys in their order, each once, and the sums of their counts."""
    each, place = np.unique(keys, return_inverse=True)
    sums = np.zeros(len(each), np.int64)
    np.add.at(sums, place, counts)
    return each, sums


FORM_STEP = 0.01
"""Bins of a form are about this wide (on a logarithmic scale) at the median, and wider with the distance from it."""
FORM_BINS = 4.0
"""Bins for each e-fold of the distance."""


def form_bins(ratios: npt.NDArray[np.float64]) -> Numbers:
    """The bins of durations of so many times the median."""
    return np.rint(np.arcsinh(np.log(ratios) / FORM_STEP) * FORM_BINS).astype(np.int64)


def form(parts: Iterable[Histogram]) -> list[tuple[int, float]] | None:
    """The share of all samples by their distance from the median of their own part.

    A part is what one CPU measured. CPUs of two nodes make two modes together: the median of both lies between, and
    moves from one to the other by chance. Forms of different hosts can be averaged: that is their histograms
    merged after each was moved to the same median. Nothing where no part has the count for a median, or a median is 0.
    """
    keys, counts = [], []
    for part in parts:
        median = part.percentile_ns(50.0)
        if median is None or median <= 0:
            continue
        middle = np.maximum(part.lows + (_widths(part.lows) - 1) / 2, 0.5) / 1000
        keys.append(form_bins(middle / median))
        counts.append(part.counts)
    if not keys:
        return None
    places, sums = _summed(np.concatenate(keys), np.concatenate(counts))
    return list(zip(places.tolist(), (sums / sums.sum()).tolist(), strict=True))


def _widths(lows: Numbers) -> npt.NDArray[np.float64]:
    """`width` of each bucket."""
    _, bits = np.frexp(lows.astype(np.float64))
    return np.where(lows < SUB_BUCKETS, 1.0, np.ldexp(1.0, bits - 11))
