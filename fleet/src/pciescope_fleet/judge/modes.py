"""Groups whose hosts fall into two, for example by two versions of a firmware: each part is judged by itself.

Beside the median of both, half of the hosts would be outliers, or none: their distance would be taken for noise.
"""

from typing import Any

import ibis
import ibis.expr.types as ir
import numpy as np
import numpy.typing as npt
import pandas as pd

from pciescope_fleet.engine import Engine
from pciescope_fleet.judge import null, statistics
from pciescope_fleet.judge.groups import Cells

Array = npt.NDArray[np.float64]

SMALLEST, FEWEST = 0.25, 3  # A part has more than this share of the hosts, and so many at least: fewer are outliers.
ENDS = 10  # One host in so many counts at neither end, where an outlier would hide the parts.


def least_apart(hosts: int) -> float:
    """So many times the spread within the parts these lie apart at least.

    Simulated: of groups of normal hosts, of which the best cut makes two, 3 in 10,000 lie farther apart.
    """
    return min(4.6 + 1000 / hosts**2, 13.5)


def cut(x: Array, noise: float, least_effect: float) -> float | None:
    """Where a group falls into two, on a logarithmic scale; `noise` is the least spread within the parts."""
    hosts = len(x)
    ends, least = hosts // ENDS, max(FEWEST, int(hosts * SMALLEST) + 1)
    x = np.sort(x)[ends : hosts - ends]
    left = np.arange(least - ends, len(x) - (least - ends) + 1)
    if not len(left):
        return None
    right, below, squares = len(x) - left, np.cumsum(x)[left - 1], np.cumsum(x * x)[left - 1]
    low, high = below / left, (x.sum() - below) / right
    within = (squares - left * low**2) + (np.sum(x * x) - squares - right * high**2)
    spread = np.maximum(np.sqrt(np.maximum(within, 0) / (len(x) - 2)), max(noise, null.FINEST))
    best = int(np.argmax((high - low) / spread))
    if high[best] - low[best] < max(least_apart(hosts) * spread[best], np.log1p(least_effect)):
        return None
    return float(x[left[best] - 1] + x[left[best]]) / 2


def part(
    engine: Engine, numbered: ir.Table, cpus: ir.Table, cells: Cells, least_hosts: int, least_effect: float
) -> tuple[ir.Table, pd.DataFrame]:
    """Makes two groups of each that falls into two. Parts of less than `least_hosts` hosts are judged no more.

    Also returns the devices of these groups: who, `figure`, `g`, the logarithm `x`, and `is_upper`.
    """
    units = []
    # An upper part has a number beyond those of all groups.
    beyond = 1 + max((int(cells.table[f"at_{level}"].max()) for level in cells.used), default=0)
    for level in cells.used:
        several = statistics.has_several(statistics.of_level(numbered, level))
        table = statistics.shifts(numbered, cpus, level, several, least_hosts)
        noise = ibis.coalesce(table.tick_p50, 0.0)
        table = table.mutate(x=ibis.coalesce(table.x_p50, table.x_value), noise=noise).filter(lambda t: t.x.notnull())
        table = engine.keep(table.select("row", "g", "host_key", "own", "x", "noise"))
        judged = table.filter(table.own == level).select("g").distinct()
        hosts = statistics.by_host(table.semi_join(judged, "g"), ["x", "noise"], several).select("g", "x", "noise")
        places = {
            int(g): place
            for g, own in hosts.execute().groupby("g")
            if (place := cut(own["x"].to_numpy(), float(own["noise"].median()), least_effect)) is not None
        }
        if not places:
            continue
        names = ["row", "device", "figure", "unit", "origin", "model", "device_name"]
        known = table.filter(table.g.isin(list(places))).join(numbered.select(names), "row").execute()
        known = known.assign(is_upper=known["x"] > known["g"].map(places))
        sizes = known.groupby(["g", "is_upper"])["host_key"].transform("nunique")
        known = known.assign(is_judged=sizes >= least_hosts)
        units.append(known)
        column = f"at_{level}"
        moved = known[["row", "g", "own", "is_upper", "is_judged"]].rename(columns={"row": "moved", "own": "before"})
        moved["to"] = moved["g"] + np.where(moved["is_upper"], beyond * (1 + level), 0)
        moved["then"] = np.where(moved["is_judged"] | (moved["before"] != level), moved["before"], -1)
        joined = numbered.left_join(ibis.memtable(moved[["moved", "to", "then"]]), [("row", "moved")])
        changed = {column: ibis.coalesce(joined.to, joined[column]), "own": ibis.coalesce(joined.then, joined.own)}
        numbered = engine.keep(joined.mutate(**changed).drop("moved", "to", "then"))
    return numbered, pd.concat(units, ignore_index=True) if units else pd.DataFrame()


def found(units: pd.DataFrame) -> list[dict[str, Any]]:
    """The smaller part of each group beside the larger one; figures with the same hosts there are one."""
    together: dict[Any, dict[str, Any]] = {}
    for g, own in units.groupby("g") if len(units) else ():
        sizes = own.groupby("is_upper")["host_key"].nunique()
        is_upper = bool(sizes[True] <= sizes[False])
        few, many = own[own["is_upper"] == is_upper], own[own["is_upper"] != is_upper]
        effect = float(np.expm1(few["x"].median() - many["x"].median()))
        first = own.iloc[0]
        each = {
            **{name: first[name] for name in ("origin", "model", "device_name", "figure", "unit")},
            "hosts": sorted(few["host_key"].unique()),
            "others": int(sizes[not is_upper]),
            "value": null.rounded(np.exp(few["x"].median())),
            "value_of_others": null.rounded(np.exp(many["x"].median())),
            "effect": null.rounded(effect),
            "is_judged": bool(own["is_judged"].all()),
            "figures": [],
            "g": g,
        }
        key = (each["origin"], each["model"], effect > 0, *each["hosts"])
        best = max(together.get(key, each), each, key=lambda one: abs(one["effect"]))
        best["figures"] = sorted({*together.get(key, each)["figures"], each["figure"]})
        together[key] = best
    return sorted(together.values(), key=lambda each: (-len(each["hosts"]), each["hosts"], each["figure"]))
