"""Which hosts differ from similar hosts, by how much, how sure that is, and what they share."""

from dataclasses import dataclass, field
from typing import Any

import ibis
import ibis.expr.types as ir
import numpy as np
import pandas as pd

from pciescope_fleet.dataset import machines
from pciescope_fleet.dataset.rows import listed
from pciescope_fleet.dataset.store import Store
from pciescope_fleet.engine import Engine
from pciescope_fleet.errors import FleetError
from pciescope_fleet.judge import causes, groups, modes, null
from pciescope_fleet.judge.failed import SINCE, failed
from pciescope_fleet.judge.newest import Newest, RemovedDevice, newest
from pciescope_fleet.judge.seen import Seen
from pciescope_fleet.judge.seen import seen as read_seen
from pciescope_fleet.judge.statistics import STATISTICS, measure, of_level


@dataclass(frozen=True)
class Plan:
    """What was asked for."""

    level: float = 0.05  # The share of false alarms among all outliers that is allowed.
    least_hosts: int = 8
    least_effect: float = 0.05  # A shift of a percentile or rate that matters, as a share.
    least_form: float = 0.005
    """A distance of forms that matters: about the share of samples that lie where the group has none."""
    since: str | None = None
    until: str | None = None


@dataclass
class Judged:
    """The outliers, and how they were found."""

    plan: Plan
    hosts: int
    tests: int  # Units times figures that were judged.
    unjudged: int  # Units times figures whose group has too few hosts.
    unjudged_hosts: list[str]
    coarser: list[dict[str, Any]]
    """Levels that leave something out, and how many units times figures were judged there."""
    outliers: pd.DataFrame
    """One row for each: who, figure, the statistic that shows it most, effect, q; the worst first."""
    findings: list[dict[str, Any]] = field(default_factory=list)
    """Outliers put together: by host, or by what several hosts share."""
    gone: list[RemovedDevice] = field(default_factory=list)
    """Devices that are not judged: a newer run of their host lacks them."""
    failed: list[dict[str, Any]] = field(default_factory=list)  # Errors of the newest runs, by host, verb and device.
    modes: list[dict[str, Any]] = field(default_factory=list)  # Groups whose hosts fall into two.
    renamed: list[dict[str, Any]] = field(default_factory=list)  # Machines that had other names before.
    alike: frozenset[str] = frozenset()  # The keys of hosts whose name another one has, too.

    def is_found(self) -> bool:
        """Whether there is something to tell."""
        return bool(self.findings or self.modes or self.broken())

    def broken(self) -> list[dict[str, Any]]:
        """Those errors that tell of a broken device."""
        return [each for each in self.failed if each["is_broken"]]


def nothing(plan: Plan) -> Judged:
    """What is judged where there is no run."""
    return Judged(plan, 0, 0, 0, [], [], pd.DataFrame())


@dataclass
class Prepared:
    """What is judged, and who is compared with whom."""

    new: Newest
    cells: groups.Cells
    numbered: ir.Table  # The newest figures with the numbers of their groups.
    parted: pd.DataFrame  # The devices of groups that fell into two.


def prepare(engine: Engine, store: Store, plan: Plan) -> Prepared:
    """Takes the newest figures and makes groups."""
    new = newest(engine, store, plan.since, plan.until)
    found = groups.cells(new.figures, plan.least_hosts)
    numbered = engine.keep(groups.numbered(new.figures, found))
    return Prepared(new, found, *modes.part(engine, numbered, new.cpus, found, plan.least_hosts, plan.least_effect))


def judge(
    engine: Engine, store: Store, plan: Plan, attributes: pd.DataFrame | None = None, prepared: Prepared | None = None
) -> Judged:
    """Judges the newest figures. `attributes` has further columns by host name: rack, room."""
    prepared = prepared or prepare(engine, store, plan)
    if attributes is not None:
        _refuse_unknown(prepared.new, attributes)
    new, found, numbered = prepared.new, prepared.cells, prepared.numbered
    all_tests, parts, by_level = 0, [], dict.fromkeys(found.used, 0)
    # Each origin by itself: many faults of made-up hosts would make measured ones likelier outliers.
    for origin, own in found.table[found.table["own"] >= 0].groupby("origin", sort=True):
        rows = numbered.filter(numbered.origin == origin)
        measured = [
            measure(engine, rows, new.cpus, level, plan.level, plan.least_hosts)
            for level in sorted(own["own"].unique())
        ]
        tests = sum(each.tests for each in measured)
        far = [each.far.assign(level=each.level) for each in measured if len(each.far)]
        if far:
            found_far = _discover(pd.concat(far, ignore_index=True), tests, plan)
            parts.append(_with_cpus(rows, new.cpus, found_far, plan) if len(found_far) else found_far)
        for each in measured:
            by_level[each.level] += each.tests
        all_tests += tests
    outliers = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    if len(outliers):
        outliers = outliers.sort_values(["q", "p", "host_key", "device", "figure"], ignore_index=True)
    alone = numbered.filter(numbered.own < 0)
    judged = Judged(
        plan=plan,
        hosts=int(new.figures.host_key.nunique().execute()),
        tests=all_tests,
        unjudged=int(alone.count().execute()),
        unjudged_hosts=sorted(alone.select("host_key").distinct().execute()["host_key"]),
        coarser=[
            {"without": groups.left_out(level), "figures": figures} for level, figures in by_level.items() if level > 0
        ],
        outliers=outliers,
        gone=new.gone,
        failed=failed(engine, store, new.days),
        renamed=machines.earlier(engine.renamed(store)),
        alike=groups.namesakes(new.runs),
    )
    judged.modes = _modes(new, prepared.parted, attributes)
    if len(outliers):
        judged.outliers = outliers = _with_newer_runs(new, _with_usual(numbered, outliers))
        judged.findings = _findings(engine, store, new, outliers, attributes)
    return judged


def _refuse_unknown(new: Newest, attributes: pd.DataFrame) -> None:
    """Raises where a table of racks names no host of the dataset: its names are written in another way."""
    hosts = set(new.figures.select("host").distinct().execute()["host"])
    if hosts and hosts.isdisjoint(attributes.index):
        one = f": {attributes.index[0]}, ..." if len(attributes) else ""
        raise FleetError(
            f"--racks names {len(attributes)} hosts, and none of them is in the dataset{one}",
            f"names as the records have them, such as {min(hosts)}",
        )


def _discover(far: pd.DataFrame, tests: int, plan: Plan) -> pd.DataFrame:
    """The outliers among those of one origin that lie far, with `q`, the statistic and its effect."""
    p = np.column_stack([far[f"p_{name}"].to_numpy(dtype=float) for name in STATISTICS])
    effect = np.column_stack([_effect(far, name) for name in STATISTICS])
    least = np.array([plan.least_form if name == "form" else np.log1p(plan.least_effect) for name in STATISTICS])
    small = np.where(np.array(STATISTICS) == "form", effect < least, np.abs(effect) < least)
    # A shift that does not matter is not tested: its p-value can only grow, so the bound on false alarms holds.
    usable = np.where(np.isnan(p) | small, 1.0, p)
    tested = (~np.isnan(p)).sum(axis=1).astype(float)
    owner = np.repeat(np.arange(len(far)), len(STATISTICS))
    combined = null.simes(usable.ravel(), owner, tested)
    q = null.benjamini_hochberg(combined, tests)
    # A shift makes a form wider or narrower, too: where the median is sure by itself, it is named.
    sure = usable * tested[:, None] <= combined[q <= plan.level].max(initial=0.0)
    plain = np.array([name in ("p50", "value") for name in STATISTICS])
    best = np.where(sure & plain, usable - 2, usable).argmin(axis=1)
    rows = np.arange(len(far))
    judged = far.assign(
        p=combined,
        q=q,
        statistic=np.array(STATISTICS)[best],
        effect=np.where(np.array(STATISTICS)[best] == "form", effect[rows, best], np.expm1(effect[rows, best])),
        z=np.column_stack([far[f"z_{name}"].to_numpy(dtype=float) for name in STATISTICS])[rows, best],
    )
    return judged[(q <= plan.level) & (usable.min(axis=1) < 1)]


PART = 0.75  # Where more of the CPUs are as slow, the whole machine is.


def _with_cpus(rows: ir.Table, cpus: ir.Table, outliers: pd.DataFrame, plan: Plan) -> pd.DataFrame:
    """Adds `slow_cpus`, the numbers of the CPUs that alone make an outlier what it is; their distance is its effect.

    A CPU's distance is from the same CPU of the other hosts. Beside its machine's other CPUs each half of a machine
    lies as far from the other: which one is at fault does not show there.
    """
    found: dict[int, tuple[tuple[int, ...], float]] = {}
    for level, part in outliers.groupby("level"):
        own = of_level(rows, int(level)).select("row", "g", "host_key")
        own = own.semi_join(ibis.memtable(pd.DataFrame({"g": sorted(part["g"].unique())})), "g")
        each = cpus.join(own, "row").select("row", "g", "cpu", "l")
        usual = each.group_by(["g", "cpu"]).agg(usual=each.l.median())
        each = each.semi_join(ibis.memtable(part[["row"]]), "row").join(usual, ["g", "cpu"])
        table = each.select("row", "cpu", off=each.l - each.usual).execute().sort_values(["row", "cpu"])
        for row, one in table.groupby("row"):
            found[int(row)] = _apart(one["cpu"].to_numpy(), one["off"].to_numpy(), np.log1p(plan.least_effect))
    answers = [found.get(row, ((), 0.0)) for row in outliers["row"]]
    is_part = np.array([bool(numbers) for numbers, _ in answers]) & outliers["statistic"].isin(["p50", "p90", "cpu"])
    outliers = outliers.assign(
        slow_cpus=[numbers if yes else () for (numbers, _), yes in zip(answers, is_part, strict=True)]
    )
    effect = np.expm1([away for _, away in answers])
    return outliers.assign(
        statistic=outliers["statistic"].mask(is_part, "cpu"), effect=outliers["effect"].mask(is_part, effect)
    )


def _apart(numbers: np.ndarray[Any, Any], off: np.ndarray[Any, Any], least: float) -> tuple[tuple[int, ...], float]:
    """Those of a machine's CPUs that lie apart from the others, and how far; none where all or no CPUs lie so far."""
    if len(off) < 2:
        return (), 0.0
    worst = off[np.abs(off).argmax()]
    is_far = off * np.sign(worst) >= abs(worst) / 2
    if abs(worst) < least or is_far.mean() > PART or np.abs(off[~is_far]).max() > abs(worst) / 2:
        return (), 0.0
    return tuple(int(number) for number in numbers[is_far]), float(np.median(off[is_far]))


def _effect(far: pd.DataFrame, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """By how much, on a logarithmic scale; of a form the distance beyond a healthy unit's with so many samples."""
    x, middle = far[f"x_{name}"].to_numpy(dtype=float), far[f"med_{name}"].to_numpy(dtype=float)
    if name == "form":
        return np.asarray((np.exp(x) - np.exp(middle)) * far["usual_form"].to_numpy(dtype=float))
    return np.asarray(x - middle)


WORDS = {**{name: name for name in STATISTICS}, "p50": "median", "p999": "p99.9", "cpu": "one CPU"}


def direction(row: Any) -> str:
    """In a word: slower or faster, or what else differs."""
    if row["statistic"] == "form":
        return "narrower form" if _is_narrower(row) else "other form"
    good_high = row["unit"] in ("bytes/s", "1/s")
    worse = (row["effect"] < 0) == good_high
    word = "slower" if worse else "faster"
    if row["statistic"] != "cpu":
        return word
    return f"{'some CPUs' if len(row['slow_cpus']) > 1 else 'one CPU'} {word}"


def _is_narrower(row: Any) -> bool:
    """Whether all upper percentiles lie nearer to the median than they do in the group."""
    far = [(row[f"x_{name}"] - row["x_p50"]) - (row[f"med_{name}"] - row["med_p50"]) for name in ("p90", "p99", "p999")]
    known = [each for each in far if np.isfinite(each)]
    return bool(known) and max(known) < 0


USUAL = ("link", "driver", "firmware")  # What is told of an outlier's device beside what most of its group have.


def _with_usual(numbered: ir.Table, outliers: pd.DataFrame) -> pd.DataFrame:
    """Adds `group_link` and so on: what more than half of the hosts of its group have, of those where it is known."""
    parts = []
    for level, part in outliers.groupby("level"):
        rows = of_level(numbered, int(level)).semi_join(
            ibis.memtable(pd.DataFrame({"g": sorted(part["g"].unique())})), "g"
        )
        parts.append(rows.select("g", "host_key", *USUAL).distinct().execute())
    known = pd.concat(parts, ignore_index=True)
    for name in USUAL:
        each = known[["g", "host_key", name]].dropna().drop_duplicates()
        hosts = each.groupby("g")["host_key"].nunique()
        counts = each.groupby(["g", name]).size().rename("count").reset_index()
        most = counts[counts["count"] * 2 > counts["g"].map(hosts)].set_index("g")[name]
        # Hosts with two devices may have two values each: then none is the usual one.
        most = most[~most.index.duplicated(keep=False)]
        outliers = outliers.assign(**{f"group_{name}": outliers["g"].map(most)})
    return outliers


def _with_newer_runs(new: Newest, outliers: pd.DataFrame) -> pd.DataFrame:
    """Adds `newest`, the time of the host's newest run, and `replaced_by`, a machine of its name with one a day newer.

    Two that both live run in each night. Runs of the outlier's origin count: a synthetic run says nothing of hardware.
    """
    kind = ["host", "host_key", "origin"]
    runs = new.runs.group_by(kind).agg(newest=new.runs.time.max()).execute()
    # Records of one run may have several origins.
    runs = runs.assign(origin=runs["origin"].str.split()).explode("origin")
    runs = runs.groupby(kind, as_index=False)["newest"].max()
    last = runs.sort_values(["newest", "host_key"]).drop_duplicates(["host", "origin"], keep="last")
    last = last.rename(columns={"host_key": "replaced_by", "newest": "then"})
    by_key = runs.groupby(["host_key", "origin"], as_index=False)["newest"].max()
    joined = outliers.merge(by_key, "left", on=["host_key", "origin"]).merge(last, "left", on=["host", "origin"])
    is_new = joined["then"] - joined["newest"] >= SINCE
    return joined.assign(replaced_by=joined["replaced_by"].where(is_new, None)).drop(columns="then")


def _findings(
    engine: Engine, store: Store, new: Newest, outliers: pd.DataFrame, extra: pd.DataFrame | None
) -> list[dict[str, Any]]:
    known = _known_attributes(new, outliers, extra)
    seen = read_seen(engine, store, new.days, outliers)
    rows = outliers.assign(direction=[direction(row) for row in outliers.to_dict("records")])
    result: list[dict[str, Any]] = []
    every = {
        key: set(zip(part["host_key"], part["device"], strict=True)) for key, part in rows.groupby(["origin", "model"])
    }
    for (origin, model, way), part in rows.groupby(["origin", "model", "direction"], sort=True):
        alike = known[(known["origin"] == origin) & (known["model"] == model)].drop(columns=["origin", "model"])
        alike = alike[~alike.index.duplicated()]
        explained = np.zeros(len(part), dtype=bool)
        units = list(zip(part["host_key"], part["device"], strict=True))
        others = every[origin, model].difference(units)
        for share in causes.shared(units, alike, DEVICE_ATTRIBUTES, others):
            having = set(share.units)
            these = np.array([unit in having for unit in units])
            explained |= these
            result.append(_finding(part[these], str(way), seen, share))
        for _, own in part[~explained].groupby("host_key", sort=True):
            result.append(_finding(own, str(way), seen, None))
    result.sort(key=lambda each: (-len(each["hosts"]), each["q"], each["hosts"]))
    return result


def _modes(new: Newest, units: pd.DataFrame, extra: pd.DataFrame | None) -> list[dict[str, Any]]:
    """The groups that fell into two, with what the smaller part shares that the other one has not."""
    found = modes.found(units)
    known = _known_attributes(new, units, extra) if found else pd.DataFrame()
    for each in found:
        own = units[units["g"] == each.pop("g")]
        alike = known[(known["origin"] == each["origin"]) & (known["model"] == each["model"])]
        alike = alike[~alike.index.duplicated()].drop(columns=["origin", "model"])
        alike = alike.loc[alike.index.isin(pd.MultiIndex.from_frame(own[["host_key", "device"]]))]
        few = own[own["host_key"].isin(each["hosts"])]
        shared = causes.shared(list(zip(few["host_key"], few["device"], strict=True)), alike, DEVICE_ATTRIBUTES)
        each["shared"] = _share(shared[0]) if shared else None
    return found


def _share(share: causes.Shared) -> dict[str, Any]:
    return {name: getattr(share, name) for name in ("attribute", "value", "healthy_with", "healthy", "p")}


def _finding(part: pd.DataFrame, way: str, seen: Seen, share: causes.Shared | None) -> dict[str, Any]:
    """One finding: of one host, or of several with what they share."""
    part = part.sort_values("p")
    worst = part.iloc[0]
    hosts = sorted(part["host_key"].unique())
    likely = causes.of_device(seen.of(worst), worst["host_key"], worst["device"])
    return {
        "hosts": hosts,
        "direction": way,
        "model": worst["model"],
        "device_name": worst["device_name"],
        "origin": worst["origin"],
        "figures": sorted(part["figure"].unique()),
        "worst": outlier(worst),
        "worst_of_hosts": as_json(part.drop_duplicates(["host_key", "device"]).sort_values("host_key", kind="stable")),
        "q": null.rounded(worst["q"]),
        "shared": None if share is None else _share(share),
        "beside": likely,
    }


def outlier(row: Any) -> dict[str, Any]:
    """One outlier, for JSON."""
    answer = {
        key: row[key]
        for key in ("host_key", "host", "device", "figure", "unit", "statistic", "run",
                    *USUAL, *(f"group_{name}" for name in USUAL))
    }  # fmt: skip
    answer = {key: None if not isinstance(value, str) else value for key, value in answer.items()}
    answer["replaced_by"] = row["replaced_by"] if isinstance(row["replaced_by"], str) else None
    answer.update({key: f"{row[key]:%Y-%m-%dT%H:%M:%SZ}" for key in ("time", "newest")})
    answer.update({key: null.rounded(row[key]) for key in ("effect", "z", "q", "p")})
    answer["group_hosts"] = int(row["hosts"])
    for key, name in (("count", "count"), ("group_count", "usual_count")):
        answer[key] = int(row[name]) if np.isfinite(row[name]) else None
    answer["group_without"] = groups.left_out(int(row["level"]))
    name = row["statistic"]
    if name not in ("form", "cpu"):
        answer["value"] = null.rounded(np.exp(row[f"x_{name}"]))
        answer["group_median"] = null.rounded(np.exp(row[f"med_{name}"]))
    if name == "cpu":
        answer["cpus"] = listed(set(row["slow_cpus"] or [int(row["worst_cpu"])]))
        if len(row["slow_cpus"]) < 2:
            answer["cpu"] = int(answer["cpus"])
    return answer


def as_json(outliers: pd.DataFrame) -> list[dict[str, Any]]:
    """All outliers, for JSON."""
    return [outlier(row) for row in outliers.to_dict("records")]


RUN_ATTRIBUTES = ("bios", "kernel", "product", "tool", "cmdline", "aspm_policy", "governors")
DEVICE_ATTRIBUTES = ("firmware", "driver", "link", "slot")
UNIT_ATTRIBUTES = (*DEVICE_ATTRIBUTES, "topology", "cpu_model")


def _known_attributes(new: Newest, outliers: pd.DataFrame, extra: pd.DataFrame | None) -> pd.DataFrame:
    """A row for each device and origin of the models that have outliers: what may be shared, by host key and device."""
    models = sorted(outliers["model"].unique())
    units = new.figures.filter(new.figures.model.isin(models))
    newest = units.group_by(["host_key", "host", "device", "origin", "model"]).agg(
        **{name: units[name].max() for name in UNIT_ATTRIBUTES}, run=units.run.argmax(units.time)
    )
    runs = new.runs.select("host_key", "run", *RUN_ATTRIBUTES)
    joined = newest.join(runs, ["host_key", "run"]).drop("run").execute()
    joined = joined.sort_values(["host_key", "device", "origin", "model"], ignore_index=True)
    if extra is not None:
        joined = joined.merge(extra, how="left", left_on="host", right_index=True)
    return joined.drop(columns="host").set_index(["host_key", "device"])
