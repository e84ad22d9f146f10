"""Fleets whose faults are known: figures of hosts, drawn from a distribution, some with a fault that was planted.

The truth is what was planted; nothing here asks the code under test. Benchmarks use it too.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pciescope_fleet.dataset.schema import FIGURES, RUNS
from pciescope_fleet.dataset.store import Copy, Store
from pciescope_fleet.histogram import FORM_BINS, FORM_STEP

KINDS = ("median", "tail", "mode", "link", "cpu", "noise")
"""Slower median; longer tail alone; a second mode; a downtrained link; one CPU slow; noisy."""

Array = npt.NDArray[np.float64]
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


@dataclass
class Fleet:
    """The tables, and which figure of which host has which fault: `(host, figure) -> kind`."""

    figures: pa.Table
    runs: pa.Table
    planted: dict[tuple[int, int], str] = field(default_factory=dict)

    def truth(self) -> set[tuple[str, str]]:
        return {(host_name(host), figure_name(figure)) for host, figure in self.planted}


def host_name(number: int) -> str:
    return f"node{number:05d}"


def figure_name(number: int) -> str:
    return f"mmio-read BAR0+{number * 8:#x}/4 latency"


@dataclass(frozen=True)
class Shape:
    """How a fleet is made."""

    hosts: int = 50
    figures: int = 10
    samples: int = 1000
    cpus: int = 4
    noise: float | tuple[float, ...] = 0.02
    """Healthy hosts' medians differ by so much (standard deviation of the logarithm), in all figures or in each."""
    within: float = 0.03
    """Samples of one host differ by so much."""
    seed: int = 1
    heavy: bool = False
    """Healthy hosts' medians differ by Student's t with 4 degrees of freedom in place of a normal distribution."""
    tick_ns: float = 0.0
    """The step of the clock."""
    alike: float = 0.0
    """The correlation of two figures' medians over healthy hosts: a host that is slower is so in all figures."""


def make(
    shape: Shape,
    faults: dict[tuple[int, int], tuple[str, float]],
    day: str = "2026-11-22",
    run: int = 0,
    attributes: dict[str, Any] | None = None,
) -> Fleet:
    """A fleet. `faults` says for a host and figure which kind and how strong (0.1: a tenth).

    `attributes` are columns that differ from the usual: a value for all, or a list with one for each host.
    """
    rng = np.random.default_rng(shape.seed)
    base = rng.lognormal(6.5, 0.3, shape.figures)
    size = (shape.hosts, shape.figures)
    drawn = rng.standard_t(4, size) / np.sqrt(2) if shape.heavy else rng.normal(size=size)
    if shape.alike:
        common = rng.normal(size=(shape.hosts, 1))
        drawn = np.sqrt(shape.alike) * common + np.sqrt(1 - shape.alike) * drawn
    level = np.log(base)[None, :] + np.asarray(shape.noise) * drawn
    parts = [_part(shape, rng, level, faults, first) for first in range(0, shape.hosts, CHUNK)]
    figures = pa.concat_tables([_figures(shape, part, day, run, attributes or {}) for part in parts])
    return Fleet(figures, _runs(shape, day, run, attributes or {}), {key: kind for key, (kind, _) in faults.items()})


CHUNK = 100
"""Hosts that are drawn at a time."""


@dataclass
class _Part:
    """Some hosts' figures as they were measured."""

    first: int
    quantiles: dict[str, Array]
    errors: dict[str, Array]
    cpu_medians: Array
    cpu_errors: Array
    forms: pa.Array


def _part(
    shape: Shape, rng: np.random.Generator, level: Array, faults: dict[tuple[int, int], tuple[str, float]], first: int
) -> _Part:
    hosts = min(CHUNK, shape.hosts - first)
    per_cpu = shape.samples // shape.cpus
    # The far node's CPUs are slower, on each host.
    place = np.where(np.arange(shape.cpus) >= shape.cpus / 2, 0.1, 0.0)
    x = rng.normal(0, shape.within, (hosts, shape.figures, shape.cpus, per_cpu))
    x += level[first : first + hosts, :, None, None] + place[None, None, :, None]
    # A tail that every host has: one sample in 200 takes 1.2 to 2 times as long.
    x += (rng.random(x.shape) < 0.005) * rng.uniform(0.2, 0.7, x.shape)
    for (host, figure), (kind, strength) in sorted(faults.items()):
        if first <= host < first + hosts:
            x[host - first, figure] = fault(rng, x[host - first, figure], kind, strength)
    if shape.tick_ns:
        x = np.log(np.maximum(np.rint(np.exp(x) / shape.tick_ns), 1.0) * shape.tick_ns)
    ranked = np.sort(x, axis=3)
    middle, few = per_cpu // 2, int(np.ceil(np.sqrt(per_cpu)))
    cpu_medians, cpu_errors = np.exp(np.median(x, axis=3)), np.zeros((2, *x.shape[:3]))
    if middle >= few:
        below, above = ranked[..., middle - few], ranked[..., min(middle + few, per_cpu - 1)]
        cpu_errors = np.array([ranked[..., middle] - below, above - ranked[..., middle]]) / 2
    flat = np.sort(x.reshape(hosts * shape.figures, -1), axis=1)
    count = flat.shape[1]
    quantiles: dict[str, Array] = {}
    errors: dict[str, Array] = {}
    for name, share in PERCENTILES.items():
        if count >= (10 if share == 0.5 else 10 / (1 - share)) * (1 - 1e-9):
            rank = int(np.ceil(share * count * (1 - 1e-12)))
            quantiles[name] = np.exp(flat[:, rank - 1]).reshape(hosts, shape.figures)
            half = 2 * np.sqrt(count * share * (1 - share))
            low, high = max(1, int(np.floor(rank - half))), min(count, int(np.ceil(rank + half)))
            errors[f"{name}_down"] = (flat[:, rank - 1] - flat[:, low - 1]) / 2
            errors[f"{name}_up"] = (flat[:, high - 1] - flat[:, rank - 1]) / 2
    # Each CPU's samples by their own median.
    if shape.tick_ns:  # As `ingest`, which does not know where within a tick a sample lies.
        x = np.log(np.maximum(np.exp(x) + rng.uniform(-0.5, 0.5, x.shape) * shape.tick_ns, 1e-3))
    own = (x - np.median(x, axis=3, keepdims=True)).reshape(flat.shape)
    return _Part(first, quantiles, errors, cpu_medians, cpu_errors, forms_of(own))


def fault(rng: np.random.Generator, x: Array, kind: str, strength: float) -> Array:
    """The samples (logarithms, by CPU) of one figure with a fault."""
    match kind:
        case "median":
            return np.asarray(x + np.log1p(strength))
        case "tail":  # one sample in 20 takes up to 4 times as long
            return np.asarray(x + (rng.random(x.shape) < strength) * rng.uniform(0.2, 1.4, x.shape))
        case "mode":  # a part of the samples takes half as long again
            return np.asarray(x + (rng.random(x.shape) < strength) * np.log(1.5))
        case "link":  # the wire's share of the time doubles: all samples by a constant, not by a factor
            return np.asarray(np.log(np.exp(x) + np.exp(np.median(x)) * strength))
        case "cpu":
            y = x.copy()
            y[rng.integers(0, x.shape[0])] += np.log1p(strength)
            return y
        case "noise":
            middle = np.median(x, axis=1, keepdims=True)
            return np.asarray(middle + (x - middle) * (1 + strength))
    raise ValueError(kind)


def forms_of(x: Array) -> pa.Array:
    """The forms of rows of samples (logarithms, less the median), by the definition in docs/fleet-method.md."""
    bins = np.rint(np.arcsinh(x / FORM_STEP) * FORM_BINS).astype(np.int64)
    keys, counts = np.unique((bins + 500) + 1000 * np.arange(len(x))[:, None], return_counts=True)
    offsets = np.searchsorted(keys, 1000 * np.arange(len(x) + 1))
    pieces = pa.StructArray.from_arrays(
        [pa.array((keys % 1000 - 500).astype(np.int16)), pa.array((counts / x.shape[1]).astype(np.float32))],
        ["bin", "share"],
    )
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pieces)


USUAL = {
    "verb": "latency mmio",
    "origin": "measured",
    "backend": "kmod",
    "batch": 1,
    "device": "0000:3b:00.0",
    "model": "144d:a80a:144d:a801",
    "device_name": "Example NVMe",
    "driver": "nvme",
    "firmware": "1.0",
    "link": "16 GT/s x4",
    "slot": "3",
    "hops": 1,
    "topology": "1 packages, 2 nodes, 4 CPUs",
    "cpu_model": "Example CPU",
    "kernel": "6.12.1",
    "unit": "ns",
    "judged": True,
}


def _run_name(host: int, run: int) -> str:
    return f"{run:08x}{host:08x}"


def _value(attributes: dict[str, Any], name: str, host: int) -> Any:
    told = attributes[name]
    return told[host] if isinstance(told, list) else told


def _figures(shape: Shape, part: _Part, day: str, run: int, attributes: dict[str, Any]) -> pa.Table:
    """Rows of the table `figures`: all hosts and figures over all CPUs, then each CPU by itself."""
    hosts = part.cpu_medians.shape[0]
    host_of = np.repeat(np.arange(hosts), shape.figures)
    figure_of = np.tile(np.arange(shape.figures), hosts)
    whole = {"p50": part.quantiles["p50"].ravel(), **{name: values.ravel() for name, values in part.quantiles.items()}}
    columns: dict[str, Any] = {name: pa.array(values) for name, values in whole.items()}
    columns.update({name: pa.array(values) for name, values in part.errors.items()})
    columns["form"] = part.forms
    columns["cpus"], columns["count"] = pa.array([shape.cpus] * len(host_of)), pa.array([shape.samples] * len(host_of))
    over_all = _table(shape, columns, host_of + part.first, figure_of, day, run, attributes)
    if shape.cpus == 1:
        return over_all
    down, up = (pa.array(errors.ravel()) for errors in part.cpu_errors)
    each = {
        "p50": pa.array(part.cpu_medians.ravel()),
        "p50_down": down,
        "p50_up": up,
        "cpu": pa.array(np.tile(np.arange(shape.cpus), len(host_of))),
    }
    of_cpus = np.repeat(np.arange(len(host_of)), shape.cpus)
    return pa.concat_tables(
        [over_all, _table(shape, each, host_of[of_cpus] + part.first, figure_of[of_cpus], day, run, attributes)]
    )


def _table(
    shape: Shape, columns: dict[str, Any], host_of: Any, figure_of: Any, day: str, run: int, attributes: dict[str, Any]
) -> pa.Table:
    count = len(host_of)
    take = {
        "host_key": [host_name(host) for host in range(shape.hosts)],
        "run": [_run_name(host, run) for host in range(shape.hosts)],
    }
    take["host"] = take["host_key"]
    time = datetime.datetime.fromisoformat(f"{day}T08:00:00+00:00")
    usual: dict[str, Any] = {**USUAL, "time": time, "date": day, **attributes}
    made = []
    for column in FIGURES:
        if column.name in columns:
            made.append(columns[column.name].cast(column.type))
        elif column.name in take or isinstance(usual.get(column.name), list):
            made.append(pa.array(take.get(column.name) or usual[column.name], column.type).take(pa.array(host_of)))
        elif column.name == "figure":
            made.append(pa.array([figure_name(figure) for figure in range(shape.figures)]).take(pa.array(figure_of)))
        elif column.name == "quantum_ns" and shape.tick_ns:
            made.append(pa.repeat(pa.scalar(shape.tick_ns), count))
        elif column.name in usual:
            made.append(pa.repeat(pa.scalar(usual[column.name], column.type), count))
        else:
            made.append(pa.nulls(count, column.type))
    return pa.Table.from_arrays(made, schema=FIGURES)


def _runs(shape: Shape, day: str, run: int, attributes: dict[str, Any]) -> pa.Table:
    time = datetime.datetime.fromisoformat(f"{day}T08:00:00+00:00")
    usual = {"kernel": "6.12.1", "bios": "1.0", **attributes}
    return pa.Table.from_pylist(
        [
            {
                "host_key": host_name(host),
                "host": host_name(host),
                "host_from": "record",
                "run": _run_name(host, run),
                "date": day,
                "time": time,
                "last_time": time,
                "ingested": time,
                "verb": "latency mmio",
                "content": "c",
                "origin": "measured",
                "records": 1,
                "errors": 0,
                "checked": "[]",
                "failed": "[]",
                "schema": 1,
                "source": f"{host_name(host)}.jsonl",
                **{name: _value(usual, name, host) for name in usual if name in RUNS.names},
            }
            for host in range(shape.hosts)
        ],
        schema=RUNS,
    )


def keep(store: Store, fleet: Fleet) -> None:
    """Writes a fleet of one day as `ingest` would after it compacted."""
    date = fleet.runs["date"][0].as_py()
    named = [Copy(row["host_key"], row["run"], 1) for row in fleet.runs.select(["host_key", "run"]).to_pylist()]
    store.write_many("figures", date, named, fleet.figures, [])
    store.write_many("runs", date, named, fleet.runs, [])


def plant(
    shape: Shape, kinds: dict[str, float], share: float, seed: int | None = None
) -> dict[tuple[int, int], tuple[str, float]]:
    """Faults in this share of the hosts (one at least), each in all figures of its host, by turns of these kinds."""
    rng = np.random.default_rng(shape.seed + 1_000_003 if seed is None else seed)
    hosts = rng.choice(shape.hosts, max(1, round(shape.hosts * share)), replace=False)
    names = list(kinds)
    first = rng.integers(len(names))
    chosen = [names[(first + i) % len(names)] for i in range(len(hosts))]
    return {
        (int(host), figure): (kind, kinds[kind])
        for host, kind in zip(hosts, chosen, strict=True)
        for figure in range(shape.figures)
    }
