"""A host against its own past: since when it differs, and what changed then.

A series is one figure of one device of one host over its runs. A change point splits it in two whose means differ by
more than the series' own noise explains. The noise is that of differences between neighbouring runs, so a change does
not hide itself. Series of one kind lend each other certainty, and false alarms are bounded over all series (`null`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ibis
import ibis.expr.types as ir
import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from pciescope_fleet.dataset.store import Store
from pciescope_fleet.engine import Engine
from pciescope_fleet.errors import FleetError
from pciescope_fleet.judge import null

LEAST = 3
"""So many runs at least stand on each side of a change: one strange run is none."""

STATISTICS = ("p50", "p99", "value")

METHOD = ("model", "origin", "verb", "backend", "batch", "method")
SERIES = ["host_key", "host", "device", *METHOD, "figure", "unit", "statistic"]
KIND = (*METHOD, "figure", "unit", "statistic")
"""Series that agree in these, and in the kind of figure, have noise of one kind."""
OF_RUN = ("kernel", "bios", "tool", "cmdline", "aspm_policy", "governors")
OF_UNIT = ("firmware", "driver", "link", "slot")

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Plan:
    """What was asked for."""

    level: float = 0.05
    least_effect: float = 0.05
    hosts: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None


@dataclass
class Trend:
    """The changes that were found."""

    plan: Plan
    series: int
    """Series that were long enough to be judged."""
    short: int
    """Series that were too short."""
    changes: list[dict[str, Any]]
    findings: list[dict[str, Any]]


def trend(engine: Engine, store: Store, plan: Plan) -> Trend:
    """Looks for changes in all series, or in those of some hosts."""
    listed = store.need("figures")
    days = [day for day in listed.dates() if (plan.since or day) <= day <= (plan.until or day)]
    if not days:
        raise FleetError(
            f"{store.url}: no figures between {plan.since} and {plan.until}",
            f"days with figures: {listed.dates()[0]} to {listed.dates()[-1]}",
        )
    points = _points(engine, store, listed.files(days), plan)
    scores = engine.keep(_scores(points)).execute().sort_values("series", ignore_index=True)
    enough = scores[scores["runs"] >= 2 * LEAST]
    trend_of = Trend(plan, len(enough), len(scores) - len(enough), [], [])
    if not len(enough):
        return trend_of
    noise = _noise(enough, points)
    p = split_p(enough["score"].to_numpy() / noise.sigma, enough["runs"].to_numpy(), noise.freedom)
    q = null.benjamini_hochberg(p, len(enough), plan.level)
    found = enough.assign(sigma=noise.sigma, dof=noise.freedom, q=q)[q <= plan.level]
    if not len(found):
        return trend_of
    known = points.join(ibis.memtable(found[["series"]]), "series").execute()
    known = known.sort_values(["series", "time", "run"], ignore_index=True)
    by_series = found.set_index("series")
    for number, part in known.groupby("series", sort=True):
        own = by_series.loc[number]
        x = part["x"].to_numpy()
        places = segments(x, float(own["sigma"]), float(own["dof"]), min(plan.level, SPLIT_LEVEL))
        sigma = float(own["sigma"])
        trend_of.changes += [
            _change(part, first, place, end, float(own["q"]), alike(x, first, place, end, sigma))
            for first, place, end in steps(x, places, float(np.log1p(plan.least_effect)))
        ]
    _what_changed(engine, store, trend_of.changes)
    trend_of.findings = _findings(trend_of.changes)
    return trend_of


def _points(engine: Engine, store: Store, files: list[str], plan: Plan) -> ir.Table:
    """A row for each run of each series; `series` is its number, the same on every engine."""
    figures = engine.table(store, "figures", files)
    figures = figures.filter(figures.judged & figures.cpu.isnull())
    if plan.hosts:
        figures = figures.filter(figures.host.isin(plan.hosts) | figures.host_key.isin(plan.hosts))
    figures = figures.mutate(
        device=figures.device.fill_null(""),
        model=figures.model.fill_null(""),
        verb=figures.verb.fill_null(""),
        backend=figures.backend.fill_null(""),
        batch=figures.batch.fill_null(-1),
        method=figures.method.fill_null(""),
    )
    kept = [name for name in SERIES if name != "statistic"] + ["run", "time", *OF_UNIT]
    parts = [
        figures.filter((figures[name] > 0) & (figures[name] < 1e300)).select(
            *kept, statistic=ibis.literal(name), x=figures[name].ln()
        )
        for name in STATISTICS
    ]
    rows = ibis.union(*parts)
    # Of each series one row alone is sorted: Spark does that in one task.
    named = rows.select(SERIES).distinct()
    named = named.mutate(series=ibis.row_number().over(order_by=[named[name] for name in SERIES]))
    # A unit may be null.
    joined = rows.join(named, [rows[name].identical_to(named[name]) for name in SERIES])
    return engine.keep(joined.select(*(rows[name] for name in rows.columns), named["series"]))


def _scores(points: ir.Table) -> ir.Table:
    """For each series: how many runs, the MAD of differences, and how far the best split's halves differ."""
    means = points.group_by("series").agg(runs=points.count(), mean=points.x.mean())
    points = points.select("series", *KIND, "time", "run", "x").join(means, "series")
    points = points.mutate(off=points.x - points["mean"])
    window = ibis.window(group_by="series", order_by=[points.time, points.run])
    so_far = ibis.cumulative_window(group_by="series", order_by=[points.time, points.run])
    rows = points.select(
        "series",
        *KIND,
        "runs",
        place=ibis.row_number().over(window) + 1,
        total=points.off.sum().over(so_far),
        step=points.x - points.x.lag().over(window),
    )
    split = rows.place.cast("float64") * (rows.runs - rows.place) / rows.runs
    inner = (rows.place >= LEAST) & (rows.runs - rows.place >= LEAST)
    score = inner.ifelse(rows.total.abs() / (inner.ifelse(split, 1.0)).sqrt(), ibis.null("float64"))
    rows = rows.mutate(score=score)
    return rows.group_by(["series", *KIND]).agg(
        runs=rows.runs.max(), score=rows.score.max(), step=rows.step.abs().median()
    )


def _noise(series: pd.DataFrame, points: ir.Table) -> null.Noise:
    """The noise of one run of each series: differences of two have the square root of two times as much.

    Where neighbouring runs resemble each other, it is larger: `lasting`.
    """
    sigma, dof = np.empty(len(series)), np.empty(len(series))
    kinds = (
        series.assign(figure=series["figure"].map(null.kind))
        .groupby([*KIND], sort=True, dropna=False)
        .ngroup()
        .to_numpy()
    )
    steps, runs = series["step"].to_numpy(), series["runs"].to_numpy()
    for kind in np.unique(kinds):
        rows = kinds == kind
        noise = null.moderate(null.sigma(steps[rows], runs[rows] - 1) / np.sqrt(2), null.freedom(runs[rows] - 1))
        sigma[rows], dof[rows] = noise.sigma, noise.freedom
    sigma *= _lasting_by_kind(series["series"].to_numpy(), kinds, points, sigma, dof)
    return null.Noise(sigma, dof)


SAMPLED, FEWEST = 100, 8
"""So many series of a kind at most say how much neighbouring runs resemble each other. A kind with fewer than the
second takes the figure of all series together."""

HIGHEST = 0.95
"""No correlation is taken for more."""


def _lasting_by_kind(
    numbers: npt.NDArray[np.int64], kinds: npt.NDArray[np.int64], points: ir.Table, sigma: Array, dof: Array
) -> Array:
    """For each series `lasting` of the correlation that the series of its kind usually have.

    A change is no correlation: differences over a change do not count. What is a change depends on the noise, so both
    are estimated in turns.
    """
    chosen = np.concatenate([own[:: -(-len(own) // SAMPLED)] for own in map(np.flatnonzero, _each(kinds))])
    asked = ibis.memtable(pd.DataFrame({"series": numbers[chosen]}))
    told = points.select("series", "time", "run", "x").join(asked, "series").execute()
    told = told.sort_values(["series", "time", "run"])
    x_of = {int(number): part.to_numpy() for number, part in told.groupby("series")["x"]}
    factor = np.ones(len(numbers))
    for _ in range(3):
        own = [
            correlation(x, segments(x, sigma[place] * factor[place], dof[place]))
            for place in chosen
            for x in [x_of[int(numbers[place])]]
        ]
        found = pd.Series(own).dropna()
        together = float(found.median()) if len(found) else 0.0
        by_kind = found.groupby(kinds[chosen][found.index]).agg(["median", "size"])
        usual = by_kind["median"].where(by_kind["size"] >= FEWEST, together)
        factor = lasting(pd.Series(kinds).map(usual).fillna(together).to_numpy(dtype=float))
    return factor


def _each(kinds: npt.NDArray[np.int64]) -> list[npt.NDArray[np.bool_]]:
    return [kinds == kind for kind in np.unique(kinds)]


def correlation(x: Array, places: list[int]) -> float:
    """How much neighbouring runs of a series resemble each other: 0 where they are independent.

    In a series of the first order, runs two apart differ by 1+r times the mean square of neighbours. Unlike what one
    computes from the mean, that is not too small in short series. Differences over a change do not count, nor do
    those that are far larger than usual. NaN where there are too few.
    """
    part = np.searchsorted(np.asarray(places, dtype=np.int64), np.arange(len(x)), side="right")
    one, two = (np.abs(x[lag:] - x[:-lag])[part[lag:] == part[:-lag]] for lag in (1, 2))
    if len(one) < LEAST or len(two) < LEAST:
        return float("nan")
    most = 6 * float(np.median(one))
    near, second = (np.square(each[each <= most]) for each in (one, two))
    return float(second.mean() / near.mean()) - 1 if len(second) and near.mean() > 0 else float("nan")


def lasting(r: Array) -> Array:
    """By how much the noise of a mean of many runs is larger than differences of neighbours tell.

    They are smaller by the root of 1-r, and a mean of n such runs has the noise of n(1-r)/(1+r) independent ones.
    """
    r = np.clip(r, 0, HIGHEST)
    return np.asarray(np.sqrt(1 + r) / (1 - r))


def split_p(z: Array, runs: npt.NDArray[np.int64], dof: Array) -> Array:
    """How often chance alone splits a series as well: at the best of its places (Bonferroni)."""
    return np.asarray(np.minimum(2 * stats.t.sf(z, dof) * (runs - 2 * LEAST + 1), 1.0))


SPLIT_LEVEL = 0.01
"""A part of a series is split again where chance alone splits it as well more rarely than this, and than `--level`."""


def segments(x: Array, sigma: float, dof: float, level: float = SPLIT_LEVEL, first: int = 0) -> list[int]:
    """The places of a series' changes, by binary segmentation: the index of the first run after each."""
    count = len(x)
    if count < 2 * LEAST:
        return []
    places = np.arange(LEAST, count - LEAST + 1)
    sums = np.cumsum(x - x.mean())[places - 1]
    scores = np.abs(sums) / np.sqrt(places * (count - places) / count) / sigma
    best = int(np.argmax(scores))
    if split_p(scores[best : best + 1], np.array([count]), np.array([dof]))[0] > level:
        return []
    place = int(places[best])
    left = segments(x[:place], sigma, dof, level, first)
    return [*left, first + place, *segments(x[place:], sigma, dof, level, first + place)]


def steps(x: Array, places: list[int], least: float) -> list[tuple[int, int, int]]:
    """The changes that matter: each with the first run of the segment before, of the one after, and the latter's end.

    The smallest step is left out and its two segments joined, until all steps are large enough: many small steps
    in one direction are then told as one.
    """
    left = list(places)
    while left:
        ends = [0, *left, len(x)]
        found = list(zip(ends, ends[1:], ends[2:], strict=False))
        sizes = [abs(float(np.median(x[place:end]) - np.median(x[first:place]))) for first, place, end in found]
        smallest = int(np.argmin(sizes))
        if sizes[smallest] >= least:
            return found
        del left[smallest]
    return []


UNLIKELY = float(stats.chi2.ppf(0.95, 1))
"""A place is as good as the best one if the likelihoods of the two differ by no more (twice the logarithm)."""


def alike(x: Array, first: int, place: int, end: int, sigma: float) -> list[int]:
    """The places that explain a change between `first` and `end` about as well as `place`: it first, then by score."""
    own = x[first:end]
    cuts = np.arange(1, len(own))
    scores = np.square(np.cumsum(own - own.mean())[:-1] / sigma) / (cuts * (len(own) - cuts) / len(own))
    good = cuts[scores >= scores[place - first - 1] - UNLIKELY]
    others = sorted((int(cut) for cut in good if first + cut != place), key=lambda cut: -float(scores[cut - 1]))
    return [place, *(first + cut for cut in others)]


def _change(part: pd.DataFrame, first: int, place: int, end: int, q: float, places: list[int]) -> dict[str, Any]:
    """A change; `places` has where it may be, as `alike` gives it. What the machine had different may choose."""
    x = part["x"].to_numpy()
    old, new = float(np.median(x[first:place])), float(np.median(x[place:end]))
    told = {name: part.iloc[place][name] for name in SERIES if name != "batch"}
    return {
        **told,
        "from": null.rounded(np.exp(old)),
        "to": null.rounded(np.exp(new)),
        "effect": null.rounded(np.expm1(new - old)),
        "q": null.rounded(q),
        "places": [_place(part.iloc[each - 1], part.iloc[each]) for each in places],
    }


def _place(before: pd.Series, after: pd.Series) -> dict[str, Any]:
    """The two runs beside a place, and what of the device differs between them."""
    return {
        "since": f"{after['time']:%Y-%m-%dT%H:%M:%SZ}",
        "before": f"{before['time']:%Y-%m-%dT%H:%M:%SZ}",
        "run_before": before["run"],
        "run_after": after["run"],
        "changed": [
            {"what": name, "from": before[name], "to": after[name]}
            for name in OF_UNIT
            if isinstance(before[name], str) and isinstance(after[name], str) and before[name] != after[name]
        ],
    }


def _what_changed(engine: Engine, store: Store, changes: list[dict[str, Any]]) -> None:
    """Adds to each change its place, and what differs between the runs beside it.

    Of places that explain the change about as well, the best at which something changed counts; else the best.
    """
    if not changes:
        return
    runs = engine.table(store, "runs", store.need("runs").files())
    wanted = sorted(
        {
            (change["host_key"], place[side])
            for change in changes
            for place in change["places"]
            for side in ("run_before", "run_after")
        }
    )
    asked = ibis.memtable(pd.DataFrame(wanted, columns=["host_key", "run"]))
    told = runs.join(asked, ["host_key", "run"]).select("host_key", "run", *OF_RUN).distinct().execute()
    by_run = {(row["host_key"], row["run"]): row for row in told.to_dict("records")}
    for change in changes:
        places = change.pop("places")
        for place in places:
            before, after = (by_run.get((change["host_key"], place[side]), {}) for side in ("run_before", "run_after"))
            for name in OF_RUN:
                old, new = before.get(name), after.get(name)
                if isinstance(old, str) and isinstance(new, str) and old != new:
                    place["changed"].append({"what": name, "from": old, "to": new})
        change.update(next((place for place in places if place["changed"]), places[0]))


def _findings(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Changes put together: of several hosts with the same change of the machine, else of each host and day."""
    together: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for change in changes:
        changed = tuple((each["what"], each["from"], each["to"]) for each in change["changed"])
        way = change["effect"] > 0
        key = (
            (change["origin"], change["model"], way, changed, "")
            if changed
            else (change["origin"], change["model"], way, (), f"{change['host_key']} {change['since'][:10]}")
        )
        together.setdefault(key, []).append(change)
    findings = []
    for part in together.values():
        worst = max(part, key=lambda change: abs(np.log1p(change["effect"])))
        hosts = sorted({change["host_key"] for change in part})
        findings.append(
            {
                "hosts": hosts,
                "figures": sorted({change["figure"] for change in part}),
                "first": min(change["since"] for change in part),
                "last": max(change["since"] for change in part),
                "changed": worst["changed"],
                "worst": worst,
            }
        )
    findings.sort(key=lambda each: (-len(each["hosts"]), each["first"], each["hosts"]))
    return findings
