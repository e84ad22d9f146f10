"""A host against its own past: since when it differs, and what changed then (docs/fleet-method.md).

A series is one figure of one device of one host over its runs. A change point splits it in two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ibis
import ibis.expr.types as ir
import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from pciescope_fleet.dataset import machines
from pciescope_fleet.dataset.rows import name_of
from pciescope_fleet.dataset.store import Store
from pciescope_fleet.engine import Engine
from pciescope_fleet.errors import FleetError
from pciescope_fleet.judge import null
from pciescope_fleet.judge.groups import namesakes
from pciescope_fleet.judge.newest import whole_figures

LEAST = 3  # So many runs at least stand on each side of a change: one strange run is none.
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
    series: int  # Series that were long enough to be judged.
    short: int  # Series that were too short.
    changes: list[dict[str, Any]]
    findings: list[dict[str, Any]]
    renamed: list[dict[str, Any]] = field(default_factory=list)  # Machines that had other names before.
    alike: frozenset[str] = frozenset()  # The keys of hosts whose name another one has, too.


def trend(engine: Engine, store: Store, plan: Plan) -> Trend:
    """Looks for changes in all series, or in those of some hosts."""
    runs = store.need("runs")
    days = [day for day in runs.dates() if (plan.since or day) <= day <= (plan.until or day)]
    listed = whole_figures(store, engine.table(store, "runs", runs.files(days)))
    if not listed.dates():
        raise FleetError(f"{store.url}: no run has figures", "records of measurements: doctor alone has none")
    days = [day for day in listed.dates() if day in days]
    if not days:
        raise FleetError(
            f"{store.url}: no figures between {plan.since or 'the first day'} and {plan.until or 'the last day'}",
            f"days with figures: {listed.dates()[0]} to {listed.dates()[-1]}",
        )
    points = _points(engine, store, listed.files(days), plan)
    scores = engine.keep(_scores(points)).execute().sort_values("series", ignore_index=True)
    enough = scores[scores["runs"] >= 2 * LEAST]
    renamed = machines.earlier(engine.renamed(store))
    trend_of = Trend(plan, len(enough), len(scores) - len(enough), [], [], renamed, namesakes(points))
    if not len(enough):
        return trend_of
    noise = _noise(enough, points)
    p = split_p(enough["score"].to_numpy() / noise.sigma, enough["runs"].to_numpy(), noise.freedom)
    enough = enough.assign(sigma=noise.sigma, dof=noise.freedom, p=p)
    split_level = min(plan.level, SPLIT_LEVEL)
    # Changes are looked for before the bound is: see `bounded`.
    likely = enough[p <= split_level]
    if not len(likely):
        return trend_of
    known = points.join(ibis.memtable(likely[["series"]]), "series").execute()
    known = known.sort_values(["series", "time", "run"], ignore_index=True)
    by_series = likely.set_index("series")
    changed_series: dict[int, tuple[pd.DataFrame, list[tuple[int, int, int]]]] = {}
    for number, part in known.groupby("series", sort=True):
        own, x = by_series.loc[number], part["x"].to_numpy()
        places = segments(x, float(own["sigma"]), float(own["dof"]), split_level)
        found = steps(x, places, float(np.log1p(plan.least_effect)))
        if found:
            changed_series[int(number)] = part, found
    q = bounded(enough, set(changed_series))
    for number, (part, found) in changed_series.items():
        if q[number] > plan.level:
            continue
        x, sigma = part["x"].to_numpy(), float(by_series.loc[number]["sigma"])
        trend_of.changes += [
            _change(part, first, place, end, float(q[number]), alike(x, first, place, end, sigma))
            for first, place, end in found
        ]
    _what_changed(engine, store, trend_of.changes)
    trend_of.findings = _findings(trend_of.changes)
    return trend_of


def bounded(series: pd.DataFrame, changed: set[int]) -> pd.Series[float]:
    """The q-value of each series. One without a change that matters is no discovery, however small its p-value is.

    So the bound holds for what is shown: many small changes do not raise the threshold for others. Nor do synthetic
    series raise it for measured ones: each origin has a bound of its own.
    """
    p = series["p"].where(series["series"].isin(changed), 1.0)
    q = p.groupby(series["origin"], dropna=False).transform(
        lambda own: null.benjamini_hochberg(own.to_numpy(dtype=float), len(own))
    )
    return q.set_axis(series["series"])


def _points(engine: Engine, store: Store, files: list[str], plan: Plan) -> ir.Table:
    """A row for each run of each series; `series` is its number, the same on every engine."""
    figures = engine.table(store, "figures", files)
    figures = figures.filter(figures.judged & figures.cpu.isnull())
    if plan.hosts:
        now = [key for old, (key, _) in engine.renamed(store).items() if {old, name_of(old)} & set(plan.hosts)]
        figures = figures.filter(figures.host.isin(plan.hosts) | figures.host_key.isin([*plan.hosts, *now]))
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
    """For each series: how many runs, how far the best split's halves differ, and the median of differences.

    The difference over the best split does not count: a change must not be taken for noise.
    """
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
        step=points.x.lead().over(window) - points.x,
    )
    split = rows.place.cast("float64") * (rows.runs - rows.place) / rows.runs
    inner = (rows.place >= LEAST) & (rows.runs - rows.place >= LEAST)
    score = inner.ifelse(rows.total.abs() / (inner.ifelse(split, 1.0)).sqrt(), ibis.null("float64"))
    rows = rows.mutate(score=score)
    rows = rows.mutate(best=rows.score.max().over(ibis.window(group_by="series")))
    rows = rows.mutate(step=(rows.score == rows.best).ifelse(ibis.null("float64"), rows.step))
    return rows.group_by(["series", *KIND]).agg(
        runs=rows.runs.max(), score=rows.score.max(), step=rows.step.abs().median()
    )


LARGER = np.array([1.293, 1.223, 1.149, 1.12])
"""By how much the noise is taken for too large, as the median of differences has it, in series of 6 to 9 runs; from 10
on it is 1+0.85/n."""


def of_steps(step: Array, runs: npt.NDArray[np.int64]) -> tuple[Array, Array]:
    """The noise that the median of differences between neighbours speaks of, and its degrees of freedom.

    All is simulated, with 200,000 normal series of 6 to 20 runs and 50,000 of 30 to 100; the difference over the best
    split is left out. The degrees of freedom are those of the chi-square whose logarithm varies as much, within 8 %;
    the factor gives the noise's median that of this chi-square, within 1 %.
    """
    larger = np.where(runs < 10, LARGER[np.clip(runs - 6, 0, 3)], 1 + 0.85 / runs)
    dof = np.where(runs % 2 == 0, 1.07, 0.8) + 0.31 * (runs - 2)
    return np.asarray(step * (null.MAD_TO_SIGMA / np.sqrt(2)) / larger), np.asarray(dof, dtype=float)


def _noise(series: pd.DataFrame, points: ir.Table) -> null.Noise:
    """The noise of one run of each series. Where neighbouring runs resemble each other, it is larger: `lasting`."""
    sigma, dof = np.empty(len(series)), np.empty(len(series))
    kinds = (
        series.assign(figure=series["figure"].map(null.kind))
        .groupby([*KIND], sort=True, dropna=False)
        .ngroup()
        .to_numpy()
    )
    runs = series["runs"].to_numpy()
    own, certain = of_steps(series["step"].to_numpy(), runs)
    for kind in np.unique(kinds):
        rows = kinds == kind
        noise = null.moderate(own[rows], certain[rows], is_of_means=True)
        sigma[rows], dof[rows] = noise.sigma, noise.freedom
    chosen = np.concatenate([rows[:: -(-len(rows) // SAMPLED)] for rows in map(np.flatnonzero, _each(kinds))])
    numbers = series["series"].to_numpy()
    asked = ibis.memtable(pd.DataFrame({"series": numbers[chosen]}))
    values = points.select("series", "time", "run", "x").join(asked, "series").execute()
    values = values.sort_values(["series", "time", "run"])
    x_of = {int(number): part.to_numpy() for number, part in values.groupby("series")["x"]}
    origins = pd.factorize(series["origin"], use_na_sentinel=False)[0]
    for rows in map(np.flatnonzero, _each(origins)):
        sampled = {at: x_of[int(number)] for at, number in enumerate(numbers[rows]) if int(number) in x_of}
        sigma[rows] *= lasting_by_kind(sampled, kinds[rows], runs[rows], sigma[rows], dof[rows])
    return null.Noise(sigma, dof)


SAMPLED, FEWEST = 100, 8
"""So many series of a kind at most say how much neighbouring runs resemble each other. A kind with fewer than the
second takes the figure of all series of its origin."""

HIGHEST = 0.95  # No correlation is taken for more.


def lasting_by_kind(
    sampled: dict[int, Array], kinds: npt.NDArray[np.int64], runs: npt.NDArray[np.int64], sigma: Array, dof: Array
) -> Array:
    """For each series `lasting` of the correlation that the series of its kind have; `sampled` has some of them.

    A change is no correlation: differences over a change do not count. What is a change depends on the noise, so both
    are estimated in turns. Those over the best split never count: else changes that are missed would make the noise
    larger, so that still more are missed.
    """
    factor = np.ones(len(kinds))
    of = kinds[list(sampled)]
    for _ in range(3):
        own = np.array(
            [
                squares(x / sigma[row], segments(x, sigma[row] * factor[row], dof[row]) or [best_split(x)[0]])
                for row, x in sampled.items()
            ]
        )
        together = correlation(own)
        usual = {
            kind: correlation(own[of == kind]) if np.sum(of == kind) >= FEWEST else together
            for kind in np.unique(kinds)
        }
        factor = lasting(np.array([usual[kind] for kind in kinds]), runs)
    return factor


def _each(kinds: npt.NDArray[np.int64]) -> list[npt.NDArray[np.bool_]]:
    return [kinds == kind for kind in np.unique(kinds)]


FAR = 6.0  # Differences of more noises do not count where runs are compared with their neighbours.


def squares(z: Array, places: list[int]) -> list[float]:
    """Of a series in terms of its noise: the sum of squared differences between neighbours, how many they are, and the
    same of runs two apart. Differences over a change do not count, nor do those that are far larger than usual."""
    part = np.searchsorted(np.asarray(places, dtype=np.int64), np.arange(len(z)), side="right")
    sums: list[float] = []
    for lag in (1, 2):
        steps_of = np.abs(z[lag:] - z[:-lag])[part[lag:] == part[:-lag]]
        near = steps_of[steps_of <= FAR]
        sums += [float(np.sum(near**2)), len(near)]
    return sums


UNSURE = 0.5
"""So many standard errors a correlation is taken for larger than it looks, as too small a noise makes false alarms.
Simulated, of 1200 fleets of 12 series (r 0.5 and 0.9; 6, 8, 10 and 30 runs) 39 have one, in place of 85."""


def correlation(of_series: Array) -> float:
    """How much neighbouring runs resemble each other, by the `squares` of several series: 0 where they are independent.

    In a series of the first order, runs two apart differ by 1+r times the mean square of neighbours. The sums are of
    all series: if only those with enough runs counted, those whose change was missed would decide.
    """
    near, nears, second, seconds = of_series.sum(axis=0)
    if not (near > 0 and second > 0):
        return 0.0
    ratio = (second / seconds) / (near / nears)
    off = of_series - of_series[:, [1, 1, 3, 3]] * np.array([near / nears, 1, second / seconds, 1])
    error = ratio * np.sqrt(np.sum((off[:, 2] / second - off[:, 0] / near) ** 2))
    return float(ratio - 1 + UNSURE * error)


OF_SHORT = np.array([0.75, 1.0, 1.2])  # By what the correlation counts in series of 6 to 8 runs; from 9 on it is 1+3/n.


def lasting(r: Array, runs: npt.NDArray[np.int64]) -> Array:
    """By how much the noise of a mean of many runs is larger than differences of neighbours tell.

    They are smaller by the root of 1-r, and a mean of n such runs has the noise of n(1-r)/(1+r) independent ones.
    Without the differences over the best split r is too small. Simulated for 6 to 60 runs and r to 0.95: from 9 runs on
    at most 1.2 times r is needed. The rest of 3/n allows for changes that chance alone made.
    """
    larger = np.where(runs < 9, OF_SHORT[np.clip(runs - 6, 0, 2)], 1 + 3 / runs)
    r = np.clip(r * larger, 0, HIGHEST)
    return np.asarray(np.sqrt(1 + r) / (1 - r))


def split_p(z: Array, runs: npt.NDArray[np.int64], dof: Array) -> Array:
    """How often chance alone splits a series as well: at the best of its places (Bonferroni)."""
    return np.asarray(np.minimum(2 * stats.t.sf(z, dof) * (runs - 2 * LEAST + 1), 1.0))


SPLIT_LEVEL = 0.01
"""A part of a series is split again where chance alone splits it as well more rarely than this, and than `--level`."""


def best_split(x: Array) -> tuple[int, float]:
    """The index of the first run after it, and how far the means of the two sides differ, in terms of a run's noise."""
    count = len(x)
    places = np.arange(LEAST, count - LEAST + 1)
    scores = np.abs(np.cumsum(x - x.mean())[places - 1]) / np.sqrt(places * (count - places) / count)
    best = int(np.argmax(scores))
    return int(places[best]), float(scores[best])


def segments(x: Array, sigma: float, dof: float, level: float = SPLIT_LEVEL, first: int = 0) -> list[int]:
    """The places of a series' changes, by binary segmentation: the index of the first run after each."""
    if len(x) < 2 * LEAST:
        return []
    place, score = best_split(x)
    if split_p(np.array([score / sigma]), np.array([len(x)]), np.array([dof]))[0] > level:
        return []
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
    of_series = {name: part.iloc[place][name] for name in SERIES if name != "batch"}
    return {
        **of_series,
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
    of_runs = runs.join(asked, ["host_key", "run"]).select("host_key", "run", *OF_RUN).distinct().execute()
    by_run = {(row["host_key"], row["run"]): row for row in of_runs.to_dict("records")}
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
