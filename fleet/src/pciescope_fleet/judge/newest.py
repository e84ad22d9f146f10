"""Each host's newest figures by its own clock, also if the clock differs from those of other hosts."""

from __future__ import annotations

from dataclasses import dataclass

import ibis
import ibis.expr.types as ir

from pciescope_fleet.dataset.store import Store
from pciescope_fleet.engine import Engine
from pciescope_fleet.errors import FleetError
from pciescope_fleet.judge.groups import ATTRIBUTES

KEPT = ("host_key", "host", "run", "time", "device", "device_name", "driver", "firmware", "link", "figure", "unit",
        "cpu", "cpus", "count", "p50", "p90", "p99", "p999", "value", "form",
        *(f"{name}_{way}" for name in ("p50", "p90", "p99", "p999") for way in ("down", "up")))  # fmt: skip
"""What judging needs of a figure beside its attributes."""


@dataclass
class Newest:
    """The newest figures, and the runs that they are of."""

    figures: ir.Table
    """A row for each host, device, figure and CPU; attributes without nulls; kept by the engine."""
    runs: ir.Table
    """Their runs, kept by the engine."""
    dates: list[str]


def newest(engine: Engine, store: Store, since: str | None = None, until: str | None = None) -> Newest:
    """The newest run of each host among those that measured the same in the same way, of the days between, and its
    figures. A run by another method does not replace it."""
    listed = store.need("runs")
    days = [day for day in listed.dates() if (since is None or day >= since) and (until is None or day <= until)]
    if not days:
        raise FleetError(f"{store.url}: no run between {since or 'the first day'} and {until or 'the last day'}",
                         f"days with runs: {listed.dates()[0]} to {listed.dates()[-1]}")  # fmt: skip
    runs = engine.table(store, "runs", listed.files(days))
    kind = ["host_key", "content", "origin", "verb"]
    window = ibis.window(group_by=kind, order_by=[runs.time.desc(), runs.run.desc()])
    runs = engine.keep(runs.mutate(place=ibis.row_number().over(window)).filter(lambda t: t.place == 0).drop("place"))
    dates = sorted(runs.select("date").distinct().execute()["date"])
    figures = engine.table(store, "figures", store.kept("figures").files(dates))
    figures = figures.filter(figures.judged).semi_join(runs, ["host_key", "run"])
    figures = figures.select([*KEPT, *ATTRIBUTES])
    figures = figures.mutate(
        **{name: figures[name].fill_null("") for name in ATTRIBUTES if name not in ("batch", "hops")},
        batch=figures.batch.fill_null(-1),
        hops=figures.hops.fill_null(-1),
        device=figures.device.fill_null(""),
    )
    # Two runs that measured different sets of figures may share some. All CPUs of a figure are of one run.
    kind = ["host_key", "device", "figure", "origin", "verb", "backend", "batch"]
    window = ibis.window(group_by=kind, order_by=[figures.time.desc(), figures.run.desc()])
    figures = engine.keep(figures.mutate(place=ibis.rank().over(window)).filter(lambda t: t.place == 0).drop("place"))
    return Newest(figures, runs, dates)
