"""What outliers share that the other hosts of their group have more rarely, and what else is known of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd
from scipy import stats

LEAST_HOSTS = 3  # Fewer outliers than this share nothing: a common value is then no news.
LEVEL = 0.01  # The error that is allowed in naming a cause, after Bonferroni's correction.


@dataclass(frozen=True)
class Shared:
    """What some outliers have in common."""

    attribute: str
    value: str
    hosts: tuple[str, ...]  # The outliers that have it.
    healthy_with: int  # Hosts that have it and are no outliers, or have it on a device that is none.
    healthy: int  # Hosts that are no outliers, or have a device that is none.
    p: float
    units: tuple[tuple[str, str], ...] = ()  # The outliers that have it, by host and device.


def shared(
    outliers: Iterable[tuple[str, str]],
    attributes: pd.DataFrame,
    of_device: Collection[str] = (),
    others: Collection[tuple[str, str]] = (),
) -> list[Shared]:
    """What outliers share, the best explanation first; no host is in two.

    An outlier is a host key and a device. `attributes` has a row for each device of the groups concerned, by host key
    and device, and a column of text for each attribute. Those in `of_device` may differ between devices of one host:
    there the healthy devices of the same hosts count, too. Of the other attributes the healthy hosts alone do. `others`
    are outliers that differ in another way: they are neither with nor against a cause.
    """
    units = [unit for unit in dict.fromkeys(outliers) if unit in attributes.index]
    table = attributes.assign(
        host=attributes.index.get_level_values(0), faulty=attributes.index.isin(units) if units else False
    )
    unhealthy = table["faulty"] | attributes.index.isin(list(others)) if others else table["faulty"]
    hosts = {host for host, _ in units} | {host for host, _ in others}
    # Devices of one host are no hosts of their own: a value counts once for each host, among each of both.
    faulty = {name: table[table["faulty"]][["host", name]].drop_duplicates() for name in attributes.columns}
    healthy = {
        name: table[~unhealthy & ((name in of_device) | ~table["host"].isin(hosts))][["host", name]].drop_duplicates()[
            name
        ]
        for name in attributes.columns
    }
    left = list(dict.fromkeys(host for host, _ in units))
    found: list[Shared] = []
    tried = _attainable(faulty, healthy)
    while len(left) >= LEAST_HOSTS:
        best = _best(left, faulty, healthy, tried)
        if best is None:
            break
        own = [unit for unit in units if unit[0] in best.hosts]
        if best.attribute in of_device:
            having = set(attributes.index[attributes[best.attribute].astype(str) == best.value])
            own = [unit for unit in own if unit in having]
        found.append(dataclasses.replace(best, units=tuple(own)))
        left = [host for host in left if host not in best.hosts]
    return found


def _attainable(faulty: dict[str, pd.DataFrame], healthy: dict[str, pd.Series[Any]]) -> int:
    """How many values count in Bonferroni's correction: those that could be named at all (Tarone 1990).

    A value that all hosts have, or only few, has no p-value below the level whoever the outliers are: it is no test.
    """
    least = []
    for name, own in faulty.items():
        having = pd.concat([own[name], healthy[name]]).dropna().value_counts()
        population, drawn = len(own) + len(healthy[name]), len(own)
        for count in having[having >= LEAST_HOSTS]:
            most = min(int(count), drawn)
            least.append(float(stats.hypergeom.sf(most - 1, population, int(count), drawn)))
    # As many as are below the level that so many leave to each.
    return next(number for number in range(1, len(least) + 2) if sum(p <= LEVEL / number for p in least) <= number)


def _best(
    left: list[str], faulty: dict[str, pd.DataFrame], healthy: dict[str, pd.Series[Any]], tried: int
) -> Shared | None:
    candidates = []
    for attribute, outlying in faulty.items():
        # The rest that another cause explains already is neither with nor against this one.
        own = outlying[outlying["host"].isin(left)]
        others = healthy[attribute]
        for value, count in own[attribute].dropna().value_counts().items():
            if value == "" or count < LEAST_HOSTS:
                continue
            healthy_with = int((others == value).sum())
            population = len(own) + len(others)
            p = float(stats.hypergeom.sf(count - 1, population, count + healthy_with, len(own))) * tried
            if p <= LEVEL:
                having = set(own["host"][own[attribute] == value])
                hosts = tuple(host for host in left if host in having)
                candidates.append(Shared(attribute, str(value), hosts, healthy_with, len(others), min(p, 1.0)))
    # The value that all its hosts are faulty with, before one that is only common among the faulty.
    candidates.sort(key=lambda c: (c.p, c.healthy_with, c.attribute, c.value))
    return candidates[0] if candidates else None


RANK = {"problem": 0, "warning": 1, "note": 2}


def of_device(findings: pd.DataFrame, host_key: str, device: str, limit: int = 3) -> list[dict[str, str]]:
    """What `doctor` and the measurement said of that host and device: the likely cause, the worst first."""
    own = findings[(findings["host_key"] == host_key) & (findings["device"].isin(["", device]))]
    # A record may tell of something without saying which check found it.
    rows = own.fillna("").drop_duplicates(["check", "device"]).to_dict("records")
    rows.sort(key=lambda row: (RANK.get(row["severity"], 3), row["device"] == "", row["check"]))
    return [{key: row[key] for key in ("check", "severity", "device", "text")} for row in rows[:limit]]
