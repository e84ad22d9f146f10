"""Histograms of records: merged, their percentiles, and their form.

Buckets are pairs of a lower edge in picoseconds and a count, as records have them: HdrHistogram with three significant
digits.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p999": 99.9}
"""The percentiles that hosts are compared by."""

GREATEST = 2**63 - 1
"""Parquet's integers end here."""

SUB_BUCKETS = 2048
"""Buckets are one picosecond wide below, and twice as wide from here on and from each further power of two."""


@dataclass
class Histogram:
    """Counts by the lower edge of their bucket, and the exact ends."""

    counts: dict[int, int]
    min_ps: int
    max_ps: int

    @classmethod
    def parse(cls, told: Mapping[str, Any]) -> Histogram:
        """From a record. `ValueError` where it is not a histogram."""
        try:
            counts = {int(low): int(count) for low, count in told["buckets"]}
            least, most = int(told["min_ps"]), int(told["max_ps"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"not a histogram: {error!r}") from error
        if any(not 0 <= low <= GREATEST or not 0 <= count <= GREATEST for low, count in counts.items()):
            raise ValueError("not a histogram: the edge or count of a bucket is negative, or above 2^63")
        if sum(counts.values()) > GREATEST or not 0 <= least <= most <= GREATEST:
            raise ValueError("not a histogram: its count, smallest or greatest value cannot be")
        return cls(counts, least, most)

    @functools.cached_property
    def count(self) -> int:
        """How many samples."""
        return sum(self.counts.values())

    @functools.cached_property
    def _cumulated(self) -> tuple[list[int], list[int]]:
        """The edges in order, and how many samples lie in the buckets up to each."""
        lows = sorted(self.counts)
        return lows, list(itertools.accumulate(self.counts[low] for low in lows))

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
        lows, below = self._cumulated
        place = bisect.bisect_left(below, rank)
        low = lows[min(place, len(lows) - 1)] if lows else 0
        return min(max(low + width(low) - 1, self.min_ps), self.max_ps) / 1000


def width(low: int) -> int:
    """How many picoseconds the bucket with this lower edge spans."""
    return 1 if low < SUB_BUCKETS else 1 << (low.bit_length() - 11)


def merge(parts: Iterable[Histogram]) -> Histogram:
    """All samples together."""
    counts: dict[int, int] = {}
    filled = []
    for part in parts:
        for low, count in part.counts.items():
            counts[low] = counts.get(low, 0) + count
        if part.counts:
            filled.append(part)
    return Histogram(
        counts, min((part.min_ps for part in filled), default=0), max((part.max_ps for part in filled), default=0)
    )


FORM_STEP = 0.01
"""Bins of a form are about this wide (on a logarithmic scale) at the median, and wider with the distance from it."""
FORM_BINS = 4.0
"""Bins for each e-fold of the distance."""


def form_bin(ratio: float) -> int:
    """The bin of a duration of so many times the median."""
    return round(math.asinh(math.log(ratio) / FORM_STEP) * FORM_BINS)


def form(parts: Iterable[Histogram]) -> list[tuple[int, float]] | None:
    """The share of all samples by their distance from the median of their own part.

    A part is what one CPU measured. CPUs of two nodes make two modes together: the median of both lies between, and
    moves from one to the other by chance. Forms of different hosts can be averaged: that is their histograms
    merged after each was moved to the same median. Nothing where no part has the count for a median, or a median is 0.
    """
    shares: dict[int, int] = {}
    for part in parts:
        median = part.percentile_ns(50.0)
        if median is None or median <= 0:
            continue
        for low, count in part.counts.items():
            middle = max(low + (width(low) - 1) / 2, 0.5) / 1000
            place = form_bin(middle / median)
            shares[place] = shares.get(place, 0) + count
    count = sum(shares.values())
    return [(place, shares[place] / count) for place in sorted(shares)] if count else None
