"""Each host's newest figures by its own clock, also if the clock differs from those of other hosts."""

from dataclasses import dataclass, field

import ibis
import ibis.expr.types as ir

from pciescope_fleet.dataset.store import AGAIN, Kept, Store
from pciescope_fleet.engine import Engine
from pciescope_fleet.errors import FleetError, NoRunsError
from pciescope_fleet.judge.groups import ATTRIBUTES, has_logarithm
from pciescope_fleet.text import some

KEPT = ("host_key", "host", "run", "time", "device", "device_name", "driver", "firmware", "link", "figure", "unit",
        "cpus", "count", "p50", "p90", "p99", "p999", "value", "form", "quantum_ns",
        *(f"{name}_{way}" for name in ("p50", "p90", "p99", "p999") for way in ("down", "up")))  # fmt: skip
"""What judging needs of a figure beside its attributes."""


@dataclass(frozen=True, order=True)
class RemovedDevice:
    """A device that a newer run of its host lacks."""

    host_key: str
    device: str  # Its address.
    model: str
    is_replaced: bool
    """Whether another model is at the address now, which is judged. Else the host's list of functions lacks it."""


@dataclass
class Newest:
    """The newest figures, and the runs that they are of."""

    figures: ir.Table
    """A row for each host, device and figure over all CPUs, with a number, `row`; attributes without nulls; kept by the
    engine."""
    cpus: ir.Table
    """By `row` and `cpu`, where there are several: the logarithm of the median, `l`, and its standard error, `e`. There
    are tens of times as many as figures: nothing else is kept of them."""
    runs: ir.Table  # Their runs, kept by the engine.
    dates: list[str]  # The days of these runs.
    days: list[str]  # All days between those that were asked for.
    gone: list[RemovedDevice] = field(default_factory=list)  # The devices that are left out.


def newest(engine: Engine, store: Store, since: str | None = None, until: str | None = None) -> Newest:
    """The newest run of each host among those that measured the same in the same way, of the days between, and its
    figures. A run by another method does not replace it."""
    listed = store.need("runs")
    days = [day for day in listed.dates() if (since is None or day >= since) and (until is None or day <= until)]
    if not days:
        raise NoRunsError(f"{store.url}: no run between {since or 'the first day'} and {until or 'the last day'}",
                         f"days with runs: {listed.dates()[0]} to {listed.dates()[-1]}")  # fmt: skip
    runs = engine.table(store, "runs", listed.files(days))
    kind = ["host_key", "content", "origin", "verb"]
    window = ibis.window(group_by=kind, order_by=[runs.time.desc(), runs.run.desc()])
    runs = engine.keep(runs.mutate(place=ibis.row_number().over(window)).filter(lambda t: t.place == 0).drop("place"))
    kept = whole_figures(store, runs)
    dates = sorted(runs.select("date").distinct().execute()["date"])
    figures = engine.table(store, "figures", kept.files(dates))
    figures = figures.filter(figures.judged).semi_join(runs, ["host_key", "run"])
    figures = figures.select([*KEPT, *ATTRIBUTES, "cpu"])
    all_rows = figures.mutate(
        **{name: figures[name].fill_null("") for name in ATTRIBUTES if name not in ("batch", "hops")},
        batch=figures.batch.fill_null(-1),
        hops=figures.hops.fill_null(-1),
        device=figures.device.fill_null(""),
    )
    figures = all_rows.filter(all_rows.cpu.isnull()).drop("cpu")
    # Two runs that measured different sets of figures may share some.
    kind = ["host_key", "device", "figure", "origin", "verb", "backend", "batch"]
    window = ibis.window(group_by=[*kind, "method"], order_by=[figures.time.desc(), figures.run.desc()])
    figures = figures.mutate(place=ibis.rank().over(window)).filter(lambda t: t.place == 0).drop("place")
    figures = engine.keep(figures, number="row")
    left, removed = _still_there(engine, figures, runs)
    # All CPUs of a figure are of one run.
    of_cpus = all_rows.filter(all_rows.cpu.notnull() & has_logarithm(all_rows.p50))
    same = [*kind, "method", "run"]
    cpus = of_cpus.join(left.select("row", *same), same)
    error = ((cpus.p50_down + cpus.p50_up) / 2).fill_null(0.0).cast("float32")
    of_cpus = engine.keep(cpus.select("row", cpus.cpu.cast("int32"), l=cpus.p50.ln(), e=error))
    return Newest(left, of_cpus, runs, dates, days, removed)


def whole_figures(store: Store, runs: ir.Table) -> Kept:
    """The files of figures. Raises where those of some of these runs are lost: their hosts would be judged no more."""
    figures = store.kept("figures")
    counted = runs.filter(runs["figures"] > 0).select("host", "run").execute()
    hosts = sorted(set(counted["host"][~counted["run"].isin(figures.runs())]))
    if hosts:
        raise FleetError(f"{store.url}: the dataset has lost the figures of {some(hosts)}", AGAIN)
    return figures


def _still_there(engine: Engine, figures: ir.Table, runs: ir.Table) -> tuple[ir.Table, list[RemovedDevice]]:
    """The figures without those of devices that a newer run of the host says are there no more; also these devices.

    It says so by another model at the same address, or by a list of functions with firmware that lacks one which it
    had. That a run did not measure a device says nothing.
    """
    unit = ["host_key", "device", "origin"]
    # Vendor and device in numbers: the words that stand for a file or a disk depend on the verb.
    known = figures.filter(figures.model.like("____:____:____:____") & (figures.device != ""))
    last = known.group_by(unit).agg(now=known.model.argmax(known.time), seen=known.time.max())
    other = known.select(*unit, "model").distinct().join(last, unit).filter(lambda t: t.model != t.now)
    listed = runs.mutate(functions=runs.environment.re_extract(FUNCTIONS, 1)).filter(lambda t: t.functions != "")
    listed = listed.select("host_key", "run", "origin", "time", "functions")
    window = ibis.window(group_by=["host_key", "origin"], order_by=[listed.time.desc(), listed.run.desc()])
    newest_list = listed.mutate(place=ibis.row_number().over(window)).filter(lambda t: t.place == 0)
    newest_list = newest_list.select("host_key", "origin", then="time", left="functions")
    had = known.select(*unit, "model", "run").distinct().join(last, unit)
    had = had.join(listed.select("host_key", "run", "functions"), ["host_key", "run"])
    had = had.join(newest_list, ["host_key", "origin"])
    had = had.mutate(quoted=ibis.literal('"') + had.device + '"').filter(lambda t: t.then > t.seen)
    lost = had.filter(had.functions.contains(had.quoted) & ~had.left.contains(had.quoted))
    parts = [part.select(*unit, "model", is_replaced=ibis.literal(part is other)) for part in (other, lost)]
    removed = engine.keep(ibis.union(*parts))
    named = removed.group_by(["host_key", "device", "model"]).agg(is_replaced=removed.is_replaced.max()).execute()
    if not len(named):
        return figures, []
    devices = [RemovedDevice(**{**row, "is_replaced": bool(row["is_replaced"])}) for row in named.to_dict("records")]
    return engine.keep(figures.anti_join(removed, [*unit, "model"])), sorted(devices)


FUNCTIONS = r'"firmware":\[((?:[^\]"]*"[^"\\]*(?:\\.[^"\\]*)*")*[^\]"]*)\]'
"""In the environment as JSON: the functions whose drivers show a firmware. A text may have a bracket."""
