"""What outliers share, and what else is known of them.

Hosts with one fault share something that the other hosts of their group have more rarely: a rack, a BIOS, a device's
firmware. A value is named where Fisher's exact test says that the outliers have it more often than chance allows, among
all attributes and values that were tried.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd
from scipy import stats

LEAST_HOSTS = 3
"""Fewer outliers than this share nothing: a common value is then no news."""

LEVEL = 0.01
"""The error that is allowed in naming a cause, after Bonferroni's correction."""


@dataclass(frozen=True)
class Shared:
    """What some outliers have in common."""

    attribute: str
    value: str
    hosts: tuple[str, ...]
    """The outliers that have it."""
    healthy_with: int
    """Hosts that have it and are no outliers."""
    healthy: int
    """Hosts that are no outliers."""
    p: float


def shared(outliers: Iterable[str], attributes: pd.DataFrame) -> list[Shared]:
    """What outliers share, the best explanation first; no host is in two.

    `attributes` has a row for each host of the groups concerned, by host key, and a column of text for each attribute.
    """
    left = [host for host in dict.fromkeys(outliers) if host in attributes.index]
    found: list[Shared] = []
    everyone = set(attributes.index)
    faulty = set(left)
    tried = sum(attributes[name].nunique(dropna=True) for name in attributes.columns)
    while len(left) >= LEAST_HOSTS:
        best = _best(left, attributes, everyone, faulty, max(tried, 1))
        if best is None:
            break
        found.append(best)
        left = [host for host in left if host not in best.hosts]
    return found


def _best(left: list[str], attributes: pd.DataFrame, everyone: set[str], faulty: set[str], tried: int) -> Shared | None:
    candidates = []
    for attribute in attributes.columns:
        own = attributes.loc[left, attribute].dropna()
        for value, count in own.value_counts().items():
            if value == "" or count < LEAST_HOSTS:
                continue
            having = set(attributes.index[attributes[attribute] == value])
            healthy = len(everyone) - len(faulty)
            healthy_with = len(having - faulty)
            # The rest that another cause explains already is neither with nor against this one.
            population = len(left) + healthy
            p = float(stats.hypergeom.sf(count - 1, population, count + healthy_with, len(left))) * tried
            if p <= LEVEL:
                hosts = tuple(host for host in left if host in having)
                candidates.append(Shared(attribute, str(value), hosts, healthy_with, healthy, min(p, 1.0)))
    # The value that all its hosts are faulty with, before one that is only common among the faulty.
    candidates.sort(key=lambda c: (c.p, c.healthy_with, c.attribute, c.value))
    return candidates[0] if candidates else None


RANK = {"problem": 0, "warning": 1, "note": 2}


def beside(findings: pd.DataFrame, host_key: str, device: str, limit: int = 3) -> list[dict[str, str]]:
    """What `doctor` and the measurement said of that host and device: the likely cause, the worst first."""
    own = findings[(findings["host_key"] == host_key) & (findings["device"].isin(["", device]))]
    # A record may tell of something without saying which check found it.
    rows = own.fillna("").drop_duplicates(["check", "device"]).to_dict("records")
    rows.sort(key=lambda row: (RANK.get(row["severity"], 3), row["device"] == "", row["check"]))
    return [{key: row[key] for key in ("check", "severity", "device", "text")} for row in rows[:limit]]
