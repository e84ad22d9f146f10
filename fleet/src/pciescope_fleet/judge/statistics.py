"""How far each unit lies from its group: one Ibis expression for all engines (docs/fleet.md, "What a number means").

A unit is judged by its `p50`, `p90`, `p99`, `p999`, `value`, `form` and `cpu`, each on a logarithmic scale.
"""

from dataclasses import dataclass
from typing import Any

import ibis
import ibis.expr.types as ir
import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import norm

from pciescope_fleet.engine import Engine
from pciescope_fleet.histogram import FORM_BINS, FORM_STEP
from pciescope_fleet.judge import null
from pciescope_fleet.judge.groups import ALWAYS, has_logarithm

QUANTILES = ("p50", "p90", "p99", "p999", "value")
STATISTICS = (*QUANTILES, "form", "cpu")
SHIFTS = (*QUANTILES, "form")  # Those that are a distance from the group's median; a CPU's is from its usual place.
WITH_ERROR = ("p50", "p90", "p99", "p999")
"""Those whose own uncertainty is known from the histogram, and which lie on ticks of the clock."""
ON_TICKS = (*WITH_ERROR, "cpu")
POOLED = ("p90", "p99", "p999", "form")  # Those of the samples of all CPUs together.

TICKS = 0.6
"""So many ticks of the clock the noise is at least: between two of them it is unknown. Simulated (`bench/calibrate.py
clocks`): with 0.5 a p-value below 0.0001 comes up to three times too often."""

Numbers = npt.NDArray[np.int64]

FORM_TICKS = 4.0  # So many ticks of the clock the bins of forms are wide at least.
LEAST_FORM = 1e-6  # Distances below are rounding.

FEW_SAMPLES, FEW_DECAY = 0.71, 1.4
"""What a bin of few expected samples adds to the distance that chance makes: fitted to a Poisson distribution."""


@dataclass
class Distances:
    """What the engine found at one level."""

    level: int
    groups: pd.DataFrame
    """By group `g`: `hosts`, and of each statistic S `n_S`, `med_S`, `mad_S`, then `sigma_S` and `dof_S`."""
    tests: int  # Units times figures that were judged at this level.
    far: pd.DataFrame  # Those with a small p-value in at least one statistic: who, what, `x_S` and `p_S`.


def of_level(figures: ir.Table, level: int) -> ir.Table:
    """The figures that have a group at this level: `g`."""
    return figures.mutate(g=figures[f"at_{level}"].cast("int64")).filter(lambda t: t.g.notnull())


def has_several(rows: ir.Table) -> bool:
    """Whether some host has several devices in one group."""
    most = rows.group_by(["g", "host_key"]).agg(devices=rows.count()).devices.max().execute()
    return most is not None and int(most) > 1


def by_host(table: ir.Table, columns: list[str], several: bool, *more: str) -> ir.Table:
    """One value for each host, group and what else is named: the median of its devices.

    Devices of one host are no hosts of their own: they share what makes their host fast or slow.
    """
    if not several:
        return table
    return table.group_by(["g", "host_key", *more]).agg(**{name: table[name].median() for name in columns})


def shifts(figures: ir.Table, cpus: ir.Table, level: int, several: bool, least: int) -> ir.Table:
    """All units that have a group at this level, with `x_S` for each quantile, and `tick_S`: the least noise."""
    whole = of_level(figures, level)
    most = whole.group_by(["g", "cpus"]).agg(hosts=whole.host_key.nunique())
    most = most.group_by("g").agg(most_cpus=most.cpus.argmax(most.hosts + most.cpus / 1e6))
    whole = whole.join(most, "g")
    is_usual = (whole.cpus == whole.most_cpus).fill_null(True)
    nothing = ibis.null("float64")
    tick_ns = (whole.quantum_ns / ibis.greatest(whole.batch, 1)).fill_null(0.0)
    x, ticks = {}, {}
    for name in QUANTILES:
        is_known = has_logarithm(whole[name]) & (is_usual if name in ("p50", *POOLED) else True)
        x[f"x_{name}"] = is_known.ifelse(whole[name], nothing).ln()
        if name in WITH_ERROR:
            ticks[f"tick_{name}"] = has_logarithm(whole[name]).ifelse(TICKS * (1 + tick_ns / whole[name]).ln(), 0.0)
    whole = whole.mutate(**x, **ticks, form=is_usual.ifelse(whole.form, ibis.null(whole.form.type())))
    whole = whole.drop("most_cpus").mutate(tick_cpu=lambda t: t.tick_p50)
    whole = whole.left_join(_medians(whole, cpus, several, least), "row").drop("row_right")
    has_cpus = whole.of_cpus.notnull()
    return whole.mutate(
        x_p50=has_cpus.ifelse(whole.of_cpus, whole.x_p50),
        **{f"p50_{way}": has_cpus.ifelse(whole.error, whole[f"p50_{way}"]) for way in ("down", "up")},
    ).drop("of_cpus", "error")


def level_table(figures: ir.Table, cpus: ir.Table, level: int, several: bool, least: int) -> ir.Table:
    """The same with `x_S` for each statistic."""
    whole = shifts(figures, cpus, level, several, least)
    for part in (_forms(whole, several), _cpus(whole, cpus, several, least)):
        whole = whole.left_join(part, "row").drop("row_right")
    return whole.drop("form")


def _medians(whole: ir.Table, cpus: ir.Table, several: bool, least: int) -> ir.Table:
    """For each unit with several CPUs `of_cpus`: the mean of their medians, and its standard error.

    The median of all samples lies between the modes of two nodes, and goes from one to the other by chance. Where a
    machine lacks CPUs that others of its group have, it is compared over those that both have.
    """
    each = _beside_usual(whole, cpus, several, least)
    found = each.group_by(["row", "g"]).agg(off=each.l.mean(), error=(each.e * each.e).sum().sqrt() / each.count())
    middle = each.select("g", "cpu", "usual").distinct().group_by("g").agg(middle=lambda t: t.usual.mean())
    found = found.join(middle, "g")
    return found.select("row", of_cpus=found.middle + found.off, error=found.error)


def _beside_usual(whole: ir.Table, cpus: ir.Table, several: bool, least: int) -> ir.Table:
    """The CPUs of all units with `l` beside what is usual of that CPU in the group: nodes differ."""
    each = cpus.join(whole.select("row", "g", "host_key"), "row").select("row", "g", "host_key", "cpu", "l", "e")
    each = each.join(_usual(by_host(each, ["l"], several, "cpu"), "l", least), ["g", "cpu"])
    return each.mutate(l=each.l - each.usual)


def _usual(hosts: ir.Table, name: str, least: int) -> ir.Table:
    """What is usual of each CPU of a group. Too few hosts with that CPU do not tell."""
    usual = hosts.group_by(["g", "cpu"]).agg(usual=hosts[name].median(), hosts=hosts.count())
    return usual.filter(usual.hosts >= least).drop("hosts")


def _forms(whole: ir.Table, several: bool) -> ir.Table:
    """How far each unit's form lies from the mean of the other hosts' of its group, beside how far by chance it would.

    `usual_form` is the distance that a healthy unit with so many samples has: what its group's units differ by, and
    what chance adds. `x_form` is the logarithm of the distance over that.
    """
    # With the host beside the row DuckDB joins by it, too, and not all hosts of a group with each other.
    keys = ["row", "g", "host_key"]
    have = whole.filter(whole.form.notnull())
    count = have["count"].cast("float64")
    have = have.mutate(
        inverse=(count > 0).ifelse(1 / count, 0.0),
        size=(count > 0).ifelse((count.log2() * 4).round(), 0.0).cast("int64"),
    )
    # A host counts as one, by the mean of its devices.
    mates = have.group_by(["g", "host_key"]).agg(mates=have.count().cast("float64"))
    have = have.join(mates, ["g", "host_key"])
    counted = have.group_by("g").agg(
        hosts=have.host_key.nunique(), inverses=(have.inverse / (have.mates * have.mates)).sum()
    )
    bins = have.select(*keys, "mates", piece=have.form.unnest())
    bins = bins.select(*keys, "mates", bin=bins.piece["bin"], share=bins.piece["share"].cast("float64"))
    bins = _wider(bins, have, keys)
    merged = bins.group_by(["g", "bin"]).agg(total=(bins.share / bins.mates).sum())
    if several:
        host = ["g", "host_key", "bin"]
        bins = bins.join(bins.group_by(host).agg(of_host=(bins.share / bins.mates).sum()), host)
    else:
        bins = bins.mutate(of_host=bins.share)
    joined = bins.join(merged, ["g", "bin"]).join(counted, "g").filter(lambda t: t.hosts > 1)
    others = (joined.total - joined.of_host) / (joined.hosts - 1)
    # Rounding can leave a little less than nothing.
    part = ((others > 0).ifelse(others, 0.0) * joined.share).sqrt()
    overlap = joined.mutate(part=part).group_by(keys).agg(overlap=lambda t: t.part.sum())
    known = have.select(*keys, "size", "inverse", "mates").join(overlap, keys).join(counted, "g")
    known = known.join(_chance(have, merged, counted), ["g", "size"])
    left = (known.inverses - known.inverse / known.mates) / ((known.hosts - 1) * (known.hosts - 1))
    known = known.select(*keys, distance=1 - known.overlap, chance=known.loss * (known.inverse + left))
    hosts = by_host(known, ["distance", "chance"], several)
    middle = hosts.group_by("g").agg(middle=hosts.distance.median(), by_chance=hosts.chance.median())
    known = known.join(middle, "g")
    really = known.middle - known.by_chance
    usual = (really > 0).ifelse(really, 0.0) + known.chance
    known = known.mutate(usual_form=(usual > LEAST_FORM).ifelse(usual, LEAST_FORM))
    distance = (known.distance > LEAST_FORM).ifelse(known.distance, LEAST_FORM)
    return known.select("row", "usual_form", x_form=(distance / known.usual_form).ln())


def _wider(bins: ir.Table, have: ir.Table, keys: list[str]) -> ir.Table:
    """The bins of forms, those at the median at least `FORM_TICKS` ticks wide: samples of equal hosts lie on other
    ticks, as their medians do."""
    ticks = have.group_by("g").agg(tick=have.tick_p50.median() / TICKS)
    coarse = ticks.mutate(times=ticks.tick * FORM_TICKS * FORM_BINS / FORM_STEP).filter(lambda t: t.times > 1)
    if not int(coarse.count().execute()):
        return bins
    joined = bins.left_join(coarse.select("g", "times"), "g")
    away = (joined.bin.abs() / FORM_BINS).exp() / joined.times.fill_null(1.0)
    # The inverse hyperbolic sine of a smaller hyperbolic sine.
    less = (away - (-joined.bin.abs() / FORM_BINS).exp() / joined.times.fill_null(1.0)) / 2
    wide = ((less + (less * less + 1).sqrt()).ln() * FORM_BINS).round().cast("int64")
    joined = joined.mutate(bin=joined.bin.sign().cast("int64") * wide)
    return joined.group_by([*keys, "mates", "bin"]).agg(share=joined.share.sum())


def _chance(have: ir.Table, merged: ir.Table, counted: ir.Table) -> ir.Table:
    """`loss`: the expected distance of a sample from its own distribution, times the number of samples.

    A bin in which many samples are expected adds 1/8. One in which few are adds up to 0.23 and, below one half, less
    (a Poisson distribution's; the formula is within a sixth). The number of samples is rounded to a quarter of an
    octave.
    """
    sizes = have.select("g", "size").distinct()
    bins = merged.join(counted, "g")
    bins = bins.select("g", share=bins.total / bins.hosts).join(sizes, "g")
    expected = bins.share * ibis.literal(2.0) ** (bins["size"] / 4.0)
    loss = (1 - (-expected).exp()) / 8 + FEW_SAMPLES * expected * (-FEW_DECAY * expected).exp()
    bins = bins.mutate(loss=loss)
    return bins.group_by(["g", "size"]).agg(loss=bins.loss.sum())


def _cpus(whole: ir.Table, cpus: ir.Table, several: bool, least: int) -> ir.Table:
    """For each unit the CPU that lies farthest from its place, and how far. `w_cpu`: the group's MAD over all CPUs."""
    keys = ["row", "g", *(["host_key"] if several else [])]
    each = _beside_usual(whole, cpus, several, least).select(*keys, "cpu", "l")
    own = each.group_by(keys).agg(total=each.l.sum(), cpus=each.count())
    # Beside the mean of the machine's other CPUs.
    each = each.join(own, keys).filter(lambda t: t.cpus > 1)
    each = each.mutate(r=each.l - (each.total - each.l) / (each.cpus - 1))
    hosts = by_host(each, ["r"], several, "cpu")
    each = each.join(_usual(hosts, "r", least), ["g", "cpu"]).mutate(d=lambda t: t.r - t.usual)
    hosts = by_host(each.mutate(away=each.d.abs()), ["away"], several, "cpu")
    wide = hosts.group_by("g").agg(w_cpu=hosts.away.median())
    # Of two CPUs each lies as far from the other: the slower one counts, and not what rounding makes of them.
    size = each.d.abs() + (each.d > 0).ifelse(1e-9, 0.0)
    far = each.group_by(keys).agg(x_cpu=each.d.argmax(size), worst_cpu=each.cpu.argmax(size), cpus_judged=each.count())
    far = far.join(wide, "g").select(*keys, "x_cpu", "worst_cpu", "cpus_judged", "w_cpu")
    # One slow CPU of a machine moves what its others lie beside: how far CPUs usually go is asked of other machines.
    near = far.filter(far.x_cpu.abs() < null.CUT * null.MAD_TO_SIGMA * far.w_cpu).select(keys)
    usually = each.join(near, keys)
    tails = usually.group_by("g").agg(tail_cpu=usually.d.abs().quantile(0.95))
    joined = far.left_join(tails, "g")
    return joined.select("row", "x_cpu", "worst_cpu", "cpus_judged", "w_cpu", "tail_cpu")


def measure(engine: Engine, figures: ir.Table, cpus: ir.Table, level: int, limit: float, least: int) -> Distances:
    """The p-values of all units that are judged at a level, those above `limit` left out.

    A statistic that fewer than `least` hosts of a group have is not judged there.
    """
    several = has_several(of_level(figures, level))
    table = engine.keep(level_table(figures, cpus, level, several, least))
    groups = _groups(table, several)
    judged = table.filter(table.own == level)
    tests = int(judged.count().execute())
    if tests == 0:
        return Distances(level, groups, 0, pd.DataFrame())
    independent = _moderate(groups, table, several, least)
    columns = [
        "g",
        *(f"{kind}_{name}" for name in STATISTICS for kind in ("med", "sigma")),
        *(f"own_{name}" for name in WITH_ERROR),
    ]
    scaled = judged.join(ibis.memtable(groups[columns]), "g")
    z = {f"z_{name}": _z(scaled, name) for name in STATISTICS}
    scaled = scaled.mutate(**z)
    heavy = _tails(scaled, groups, several, independent)
    # Nearer ones have a p-value above the limit in every group.
    nearest = 0.9 * float(norm.isf(limit / 2))
    away: Any = ibis.literal(False)
    for name in STATISTICS:
        size = scaled[f"z_{name}"] if name == "form" else scaled[f"z_{name}"].abs()
        away = away | (size >= nearest).fill_null(False)
    kept = ["row", "host_key", "host", "run", "time", "device", "device_name", "driver", "firmware", "link", "figure",
            "unit", "count", "cpus", "g", "usual_form", "worst_cpu", "cpus_judged", "model", "origin", "slot",
            "topology", "cpu_model", "kernel", *QUANTILES,
            *(f"x_{name}" for name in STATISTICS), *(f"z_{name}" for name in STATISTICS)]  # fmt: skip
    far = scaled.filter(away).select(kept).execute()
    far = far.sort_values(["host_key", "device", "figure"], ignore_index=True)
    return Distances(level, groups, tests, _p_values(far, groups, heavy))


def _own_error(table: Any, name: str) -> ir.Column:
    """The standard error of a unit's own percentile, towards the group's median."""
    down, up = table[f"{name}_down"].cast("float64"), table[f"{name}_up"].cast("float64")
    return (table[f"x_{name}"] > table[f"med_{name}"]).ifelse(down, up).fill_null(0.0)


def _z(table: ir.Table, name: str) -> ir.Column:
    """The distance from the group's median in noises.

    The group's noise has the usual sampling error in it, as far as it is as large. What a unit's own percentile is more
    uncertain than that is added: a median between two modes goes to the other by chance, which no MAD sees.
    """
    noise = table[f"sigma_{name}"]
    if name in WITH_ERROR:
        own, usual = _own_error(table, name), table[f"own_{name}"]
        within = (usual < noise).ifelse(usual, noise)
        excess = own * own - within * within
        noise = (noise * noise + (excess > 0).ifelse(excess, 0.0)).sqrt()
    if name in ON_TICKS:
        noise = (table[f"tick_{name}"] > noise).ifelse(table[f"tick_{name}"], noise)
    return has_logarithm(noise).ifelse((table[f"x_{name}"] - table[f"med_{name}"]) / noise, ibis.null("float64"))


def _groups(table: ir.Table, several: bool) -> pd.DataFrame:
    """Size, median and MAD of each group, for each statistic: of its hosts' values."""
    columns = [*(f"x_{name}" for name in STATISTICS), *(f"tick_{name}" for name in ON_TICKS)]
    hosts = by_host(table, ["w_cpu", "tail_cpu", "count", *columns], several)
    centre = hosts.group_by("g").agg(
        hosts=hosts.host_key.nunique(),
        usual_count=hosts["count"].median(),
        mad_cpu=hosts.w_cpu.max(),
        tail_cpu=hosts.tail_cpu.max(),
        n_cpu=hosts.x_cpu.count(),
        **{f"med_{name}": hosts[f"x_{name}"].median() for name in SHIFTS},
        **{f"n_{name}": hosts[f"x_{name}"].count() for name in SHIFTS},
        **{f"tick_{name}": hosts[f"tick_{name}"].median() for name in ON_TICKS},
    )
    joined = table.join(centre.select("g", *(f"med_{name}" for name in SHIFTS)), "g")
    joined = joined.select(
        "g",
        "host_key",
        **{f"mad_{name}": (joined[f"x_{name}"] - joined[f"med_{name}"]).abs() for name in SHIFTS},
        **{f"own_{name}": _own_error(joined, name) for name in WITH_ERROR},
    )
    columns = [*(f"mad_{name}" for name in SHIFTS), *(f"own_{name}" for name in WITH_ERROR)]
    hosts = by_host(joined, columns, several)
    spread = hosts.group_by("g").agg(**{name: hosts[name].median() for name in columns})
    found: pd.DataFrame = centre.join(spread, "g").execute()
    # A CPU's distance is from its usual place already.
    return found.assign(med_cpu=0.0).sort_values("g", ignore_index=True)


def _moderate(groups: pd.DataFrame, table: ir.Table, several: bool, least: int) -> dict[str, float]:
    """Adds `sigma_S` and `dof_S`. Figures of one model and method that measure the same have noise of one kind.

    The MADs give a first noise. What lies near in terms of it gives the next, which is surer, and so on. Returns for
    each statistic which share of the distances says something of its own.
    """
    kinds = table.select("g", *ALWAYS, "unit", "figure").distinct().execute().sort_values(["g", "unit"])
    kinds = kinds.drop_duplicates("g").set_index("g").loc[groups["g"]]
    kinds["figure"] = kinds["figure"].map(null.kind)
    kind = kinds.groupby([*ALWAYS, "unit", "figure"], sort=True, dropna=False).ngroup().to_numpy()
    count = {name: groups[f"n_{name}"].to_numpy(dtype=float) for name in STATISTICS}
    tick = {
        name: groups[f"tick_{name}"].fillna(0.0).to_numpy(float) if name in ON_TICKS else 0.0 for name in STATISTICS
    }
    alike: dict[str, _Alike] = {}

    def set_noise(name: str, own: null.Array, dof: null.Array) -> None:
        of_kind = alike[name].of_kind if alike else {}
        own = np.maximum(own, tick[name])
        groups[f"sigma_{name}"], groups[f"dof_{name}"] = _by_kind(kind, own, dof, count[name] >= least, of_kind)

    for name in STATISTICS:
        mad = null.sigma(groups[f"mad_{name}"].to_numpy(dtype=float), count[name])
        set_noise(name, mad, null.freedom_of_mad(count[name]))
    for _ in range(null.PASSES):
        near = _near(groups, table, several, is_last=False)
        for name in SHIFTS:
            set_noise(name, null.capped(near[f"v_{name}"].to_numpy(float)), null.freedom(count[name]))
    near = _near(groups, table, several, is_last=True)
    # How sure a noise is depends on how much the figures say the same.
    alike |= _alike(groups, near, kind, table, several)
    for name in SHIFTS:
        own = null.biweight(near[f"v_{name}"].to_numpy(float), near[f"w_{name}"].to_numpy(float))
        set_noise(name, own / null.bias(count[name]), null.freedom(count[name]))
    return {name: each.independent for name, each in alike.items()}


@dataclass
class _Alike:
    """How much the figures of each kind say the same of each host."""

    of_kind: dict[int, float]  # By the number of the kind: the mean square of the correlation of two of its figures.
    independent: float
    """Of all distances, the share that says something of its own: one host's repeated figures count once, also those
    of different kinds."""


def _alike(
    groups: pd.DataFrame, near: pd.DataFrame, kind: Numbers, table: ir.Table, several: bool
) -> dict[str, _Alike]:
    """The same for each statistic, from the distances that are near.

    The squares of two normal figures are correlated by the square of their own correlation. Their mean product over all
    pairs of figures of a host counts; groups that have no host in common have no such pairs.
    """
    known = groups[["g", *(f"{what}_{name}" for name in SHIFTS for what in ("med", "sigma"))]].assign(
        kind=kind,
        **{
            f"usual_{name}": (near[f"u_{name}"] / groups[f"sigma_{name}"].to_numpy() ** 2).to_numpy() for name in SHIFTS
        },
    )
    joined = table.join(ibis.memtable(known), "g")
    square = {}
    for name in SHIFTS:
        away = (joined[f"x_{name}"] - joined[f"med_{name}"]) / joined[f"sigma_{name}"]
        off = away * away - joined[f"usual_{name}"]
        square[f"z_{name}"] = ((away.abs() <= null.NEAR) & has_logarithm(joined[f"usual_{name}"])).ifelse(
            off, ibis.null("float64")
        )
    hosts = joined.select("g", "host_key", "kind", **square)
    if several:
        hosts = hosts.group_by(["g", "host_key", "kind"]).agg(**{name: hosts[name].mean() for name in square})
    sums: dict[str, Any] = {}
    for name in SHIFTS:
        own = hosts[f"z_{name}"]
        sums |= {f"s_{name}": own.sum(), f"v_{name}": (own * own).sum()}
    hosts = hosts.group_by(["kind", "host_key"]).agg(**sums)
    of_kinds = _products(hosts, ["kind"]).set_index("kind").sort_index()
    sums = {f"{what}_{name}": hosts[f"{what}_{name}"].sum() for name in SHIFTS for what in ("s", "v")}
    whole = hosts.group_by("host_key").agg(**sums)
    of_all = _products(whole, []).fillna(0.0).iloc[0]
    kinds = {}
    for name in SHIFTS:
        product, squares = (of_kinds[f"{what}_{name}"].fillna(0).to_numpy(float) for what in ("products", "squares"))
        # Over all pairs of figures that are judged; those without a common host add nothing.
        judged = pd.Series(kind[np.isfinite(groups[f"sigma_{name}"].to_numpy(dtype=float))]).value_counts()
        possible = np.maximum(judged.reindex(of_kinds.index).fillna(0).to_numpy(dtype=float) - 1, 1)
        r = np.clip(product / possible / np.maximum(squares, 1e-300), 0, 1)
        # So much larger is the variance of a sum of squares than if all distances were independent.
        larger = (
            1 + max(of_all[f"products_{name}"], 0) / of_all[f"squares_{name}"] if of_all[f"squares_{name}"] else 1.0
        )
        of_kind = {int(number): float(each) for number, each in zip(of_kinds.index, r, strict=True)}
        kinds[name] = _Alike(of_kind, float(1 / larger))
    return kinds


def _products(hosts: ir.Table, by: list[str]) -> pd.DataFrame:
    """Sums over hosts: the products of all pairs of a host's values, and the squares of these, for each statistic."""
    sums: dict[str, Any] = {}
    for name in SHIFTS:
        total, squares = hosts[f"s_{name}"], hosts[f"v_{name}"]
        sums |= {f"products_{name}": (total * total - squares).sum(), f"squares_{name}": squares.sum()}
    found: pd.DataFrame = hosts.group_by(by).agg(**sums).execute() if by else hosts.agg(**sums).execute()
    return found


def _by_kind(
    kind: Numbers,
    own: null.Array,
    dof: null.Array,
    enough: npt.NDArray[np.bool_],
    alike: dict[int, float] | None = None,
) -> tuple[null.Array, null.Array]:
    """Noises and their certainty, those of each kind moderated; NaN where not enough hosts have the figure.

    `alike` has the correlation of the figures of a kind, by its number.
    """
    sigma, sure = np.full(len(own), np.nan), np.full(len(own), np.nan)
    for number in np.unique(kind):
        rows = np.flatnonzero((kind == number) & np.isfinite(own) & enough)
        if len(rows):
            noise = null.moderate(own[rows], dof[rows], (alike or {}).get(int(number), 0.0))
            sigma[rows], sure[rows] = noise.sigma, noise.freedom
    return sigma, sure


def _near(groups: pd.DataFrame, table: ir.Table, several: bool, is_last: bool) -> pd.DataFrame:
    """By group, in its order, the means over hosts that the noise is refined by: `v_S` and, in the end, `w_S`.

    `u_S` is then the mean square distance of those that are near.
    """
    known = ibis.memtable(groups[["g", *(f"{kind}_{name}" for name in SHIFTS for kind in ("med", "sigma"))]])
    joined = table.join(known, "g")
    columns = {}
    for name in SHIFTS:
        away, noise = (joined[f"x_{name}"] - joined[f"med_{name}"]).abs(), joined[f"sigma_{name}"]
        away = has_logarithm(noise).ifelse(away, ibis.null("float64"))
        if not is_last:
            columns[f"v_{name}"] = (away < null.CAP * noise).ifelse(away, null.CAP * noise + 0 * away) ** 2
            continue
        part = away / (null.EDGE * noise)
        inside = 1 - (part < 1).ifelse(part, 1 + 0 * part) ** 2
        columns[f"v_{name}"], columns[f"w_{name}"] = away**2 * inside**4, inside * (5 * inside - 4)
        columns[f"u_{name}"] = (away <= null.NEAR * noise).ifelse(away**2, ibis.null("float64"))
    hosts = joined.select("g", "host_key", **columns)
    if several:
        hosts = hosts.group_by(["g", "host_key"]).agg(**{name: hosts[name].mean() for name in columns})
    found: pd.DataFrame = hosts.group_by("g").agg(**{name: hosts[name].mean() for name in columns}).execute()
    return found.set_index("g").reindex(groups["g"]).reset_index()


def _tails(scaled: ir.Table, groups: pd.DataFrame, several: bool, independent: dict[str, float]) -> dict[str, float]:
    """For each statistic the degrees of freedom that the middle of all distances speaks of.

    The devices of a host count together as one distance, and so do figures that say the same of each host:
    `independent` is the share that is left of each statistic.
    """
    unit = ["host_key", "device"]
    usual = scaled.group_by(unit).agg(
        **{f"u_{name}": scaled[f"z_{name}"].abs().median() for name in SHIFTS},
        **{f"f_{name}": scaled[f"z_{name}"].count() for name in SHIFTS},
    )
    host = ["g", "host_key"]
    joined = scaled.select("g", *unit, *(f"z_{name}" for name in SHIFTS)).join(usual, unit)
    if several:
        # Without the cast Spark divides with six decimals.
        joined = joined.join(scaled.group_by(host).agg(share=1 / scaled.count().cast("float64")), host)
    parts = []
    for name in SHIFTS:
        size = joined[f"z_{name}"].abs()
        is_far = (joined[f"u_{name}"] > null.FAR_UNIT) & (joined[f"f_{name}"] >= null.LEAST_FIGURES)
        near = joined.filter((size < null.CUT) & ~is_far).select(
            *(["share"] if several else []),
            statistic=ibis.literal(name),
            bin=(size * (null.BINS / null.CUT)).floor().cast("int64"),
        )
        times = near.share.sum() if several else near.count()
        parts.append(near.group_by(["statistic", "bin"]).agg(times=times))
    seen = ibis.union(*parts).execute()
    is_judged = groups[[f"sigma_{name}" for name in STATISTICS]].notna().any(axis=1)
    hosts = float(groups["hosts"][is_judged].median())
    heavy = {}
    for name in SHIFTS:
        own = seen[seen["statistic"] == name]
        counts = np.zeros(null.BINS)
        counts[own["bin"].to_numpy(dtype=np.int64)] = own["times"]
        heavy[name] = null.heaviness(counts * independent[name], hosts)
    # Of CPUs the engine has the quantiles over all of them, by group.
    have = groups[(groups["mad_cpu"] > 0) & groups["tail_cpu"].notna()]
    ratio = float((have["tail_cpu"] / have["mad_cpu"]).median()) if len(have) else np.nan
    heavy["cpu"] = null.tail(ratio, int(have["n_cpu"].sum()), hosts)
    return heavy


def _p_values(far: pd.DataFrame, groups: pd.DataFrame, heavy: dict[str, float]) -> pd.DataFrame:
    """Adds `p_S`, null where the unit has no such statistic."""
    own = groups.set_index("g").loc[far["g"]]
    for name in STATISTICS:
        z, dof = far[f"z_{name}"].to_numpy(dtype=float), own[f"dof_{name}"].to_numpy()
        p = null.two_sided(z, dof, own[f"n_{name}"].to_numpy(), heavy[name])
        if name == "form":
            p = np.where(z > 0, p / 2, 1 - p / 2)
        if name == "cpu":
            # The farthest of many CPUs goes far by chance alone.
            p = np.minimum(p * far["cpus_judged"].to_numpy(dtype=float), 1.0)
        far[f"p_{name}"] = p
        far[f"med_{name}"] = own[f"med_{name}"].to_numpy()
    for name in ("hosts", "usual_count"):
        far[name] = own[name].to_numpy()
    return far
