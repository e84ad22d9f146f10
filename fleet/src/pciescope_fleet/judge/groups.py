"""Who is compared with whom.

A unit is a device of a host, or the host itself where a figure has no device. Units are alike where they have the same
value in all columns of a level. The first level is the narrowest; a unit is judged at the first where its group has
enough hosts. What a level leaves out, the finding says.
"""

from dataclasses import dataclass

import ibis
import ibis.expr.types as ir
import numpy as np
import pandas as pd

ALWAYS = ("origin", "verb", "backend", "batch", "method", "model")
"""Never left out: measured figures are not compared with emulated or made-up ones, nor by another method, nor those of
another device model."""

LEVELS: tuple[tuple[str, ...], ...] = (
    ("slot", "hops", "topology", "cpu_model", "kernel"),
    ("hops", "topology", "cpu_model", "kernel"),
    ("hops", "topology", "cpu_model"),
    ("hops", "cpu_model"),
    ("cpu_model",),
    (),
)
"""What else units must share, from the narrowest level on."""

ATTRIBUTES = (*ALWAYS, *LEVELS[0])  # All columns that levels may ask for.


def columns(level: int) -> tuple[str, ...]:
    """The columns of a level."""
    return (*ALWAYS, *LEVELS[level])


def left_out(level: int) -> list[str]:
    """What a level leaves out of the first one's columns."""
    return [name for name in LEVELS[0] if name not in LEVELS[level]]


def has_logarithm(column: ir.Column) -> ir.Column:
    """Whether a figure has a logarithm. Both engines sort NaN above infinity."""
    return (column > 0) & (column < 1e300)


def namesakes(table: ir.Table) -> frozenset[str]:
    """The keys of hosts whose name another one has, too."""
    hosts = table.select("host", "host_key").distinct().execute()
    return frozenset(hosts["host_key"][hosts["host"].duplicated(keep=False)])


@dataclass
class Cells:
    """Every combination of attributes and figure that occurs, and the groups that it belongs to."""

    table: pd.DataFrame
    """The attributes and figure; `own`: the level at which its units are judged, -1 where none has enough hosts;
    `at_L`: its group at each level L that is used; `hosts_L`: how many hosts that group has."""
    used: list[int]  # The levels that are used.


def cells(newest: ir.Table, least: int) -> Cells:
    """Decides for each combination at which level its units are judged. `newest` has no nulls in its attributes."""
    found = newest.group_by([*ATTRIBUTES, "figure"]).agg(hosts_0=newest.host_key.nunique()).execute()
    narrow = found[[*ATTRIBUTES, "figure"]]
    own = np.where(found["hosts_0"].to_numpy() >= least, 0, -1)
    table = narrow.assign(hosts_0=found["hosts_0"].to_numpy())
    used = [0] if (own == 0).any() else []
    for level in range(1, len(LEVELS)):
        if (own >= 0).all():
            break
        keys = [*columns(level), "figure"]
        counted = newest.group_by(keys).agg(hosts=newest.host_key.nunique()).execute()
        hosts = narrow.merge(counted, how="left", on=keys)["hosts"].to_numpy()
        chosen = (own < 0) & (hosts >= least)
        own[chosen] = level
        if chosen.any():
            used.append(level)
            table[f"hosts_{level}"] = hosts
    table["own"] = own
    first = 0
    for level in used:
        # Groups of all levels have numbers of their own, in an order that does not depend on the engine.
        number = table.groupby([*columns(level), "figure"], sort=True, dropna=False).ngroup().to_numpy() + first
        table[f"at_{level}"] = number
        first = int(number.max()) + 1
    return Cells(table, used)


def numbered(newest: ir.Table, found: Cells) -> ir.Table:
    """The newest figures with `own` and the numbers of their groups."""
    numbers = [f"at_{level}" for level in found.used]
    table = ibis.memtable(found.table[[*ATTRIBUTES, "figure", "own", *numbers]])
    joined = newest.join(table, [*ATTRIBUTES, "figure"])
    return joined.select([*newest.columns, "own", *numbers])
