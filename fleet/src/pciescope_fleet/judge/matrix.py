"""How far every host lies from its like in every figure: what the heat map shows."""

import re
from dataclasses import dataclass
from typing import Any

import ibis
import ibis.expr.types as ir
import numpy as np
import numpy.typing as npt
import pandas as pd

from pciescope_fleet.dataset.store import Store
from pciescope_fleet.engine import Engine
from pciescope_fleet.judge import outliers
from pciescope_fleet.judge.groups import has_logarithm
from pciescope_fleet.judge.outliers import Judged, Plan, Prepared
from pciescope_fleet.judge.statistics import by_host, has_several, of_level

HIGH_IS_GOOD = ("bytes/s", "1/s")  # Units of which more is better; of all others less is.


@dataclass
class Matrix:
    """Hosts by figures."""

    judged: Judged
    hosts: list[str]  # Host keys: those with the most outliers first, then by name.
    figures: list[dict[str, Any]]  # The columns: `origin`, `model`, `figure`, `unit`, `device_name`.
    away: npt.NDArray[np.float64]
    """By host and figure: the logarithm of median or value over the group's, of the device that lies farthest. NaN
    where there is none, or no group."""
    names: dict[str, str]  # By host key: the host's name.
    origins: list[str]  # Whether all is measured.
    dates: list[str]  # The days of the runs.


def matrix(engine: Engine, store: Store, plan: Plan, attributes: pd.DataFrame | None = None) -> Matrix:
    """Judges, and keeps the distances of all."""
    prepared = outliers.prepare(engine, store, plan)
    judged = outliers.judge(engine, store, plan, attributes, prepared)
    if not prepared.cells.used:
        return Matrix(judged, [], [], np.empty((0, 0)), {}, [], prepared.new.dates)
    parts = [_distances(prepared, level).execute() for level in prepared.cells.used]
    found = pd.concat(parts, ignore_index=True)
    # Both may be null; a null unit would be in no column.
    found[["device_name", "unit"]] = found[["device_name", "unit"]].fillna("")
    key = ["origin", "model", "figure", "unit"]
    columns = found.groupby(key, sort=True, as_index=False).agg(device_name=("device_name", "max"))
    columns = columns.sort_values("figure", key=lambda names: names.map(natural), kind="stable", ignore_index=True)
    columns = columns.sort_values(["origin", "model"], kind="stable", ignore_index=True)
    names = found.drop_duplicates("host_key").set_index("host_key")["host"].to_dict()
    bad = judged.outliers.groupby("host_key").size() if len(judged.outliers) else pd.Series(dtype=int)
    hosts = sorted(names, key=lambda key: (-int(bad.get(key, 0)), key))
    rows = pd.Index(hosts).get_indexer(found["host_key"])
    places = pd.MultiIndex.from_frame(columns[key]).get_indexer(pd.MultiIndex.from_frame(found[key]))
    away = np.full((len(hosts), len(columns)), np.nan)
    # A host may have a figure by several methods: the farthest is written last.
    last = found["away"].abs().argsort(kind="stable").to_numpy()
    away[rows[last], places[last]] = found["away"].to_numpy(dtype=float)[last]
    shown = [{str(key): value for key, value in row.items()} for row in columns.to_dict("records")]
    return Matrix(judged, hosts, shown, away, names, sorted(found["origin"].unique()), prepared.new.dates)


def natural(name: str) -> str:
    """A key that sorts `BAR0+0x8` before `BAR0+0x10`."""
    return re.sub(r"0x([0-9a-f]+)|(\d+)", lambda found: (found[1] or found[2]).rjust(20, "0"), name)


def _distances(prepared: Prepared, level: int) -> ir.Table:
    """For each host and figure that is judged at this level, the device that lies farthest."""
    rows = of_level(prepared.numbered, level)
    value = ibis.coalesce(rows.p50, rows["value"])
    rows = rows.mutate(x=has_logarithm(value).ifelse(value, ibis.null("float64")).ln()).filter(lambda t: t.x.notnull())
    hosts = by_host(rows, ["x"], has_several(rows))
    middle = hosts.group_by("g").agg(middle=hosts.x.median())
    own = rows.filter(rows.own == level).join(middle, "g")
    own = own.mutate(off=own.x - own.middle)
    return own.group_by(["host_key", "host", "model", "figure", "unit", "origin"]).agg(
        away=own.off.argmax(own.off.abs()), device_name=own.device_name.max()
    )
