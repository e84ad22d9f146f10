"""Fleets whose faults are known: figures of hosts, drawn from a distribution, some of them with a fault that was planted.

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
from pciescope_fleet.dataset.store import Store
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
    noise: float = 0.02
    """Healthy hosts' medians differ by so much (standard deviation of the logarithm)."""
    within: float = 0.03
    """Samples of one host differ by so much."""
    seed: int = 1
    heavy: bool = False
    """Healthy hosts' medians differ by Student's t with 4 degrees of freedom in place of a normal distribution."""


def make(shape: Shape, faults: dict[tuple[int, int], tuple[str, float]], day: str = "2026-11-22", run_of: Any = None, kernel: str = "6.12.1",
         attributes: dict[str, Any] | None = None) -> Fleet:  # fmt: skip
    """A fleet. `faults` says for a host and figure which kind and how strong (0.1: a tenth)."""
    rng = np.random.default_rng(shape.seed)
    base = rng.lognormal(6.5, 0.3, shape.figures)
    drawn = rng.standard_t(4, (shape.hosts, shape.figures)) / np.sqrt(2) if shape.heavy else rng.normal(size=(shape.hosts, shape.figures))
    level = np.log(base)[None, :] + shape.noise * drawn
    per_cpu = shape.samples // shape.cpus
    rows = {name: np.full((shape.hosts, shape.figures), np.nan) for name in PERCENTILES}
    cpu_medians = np.full((shape.hosts, shape.figures, shape.cpus), np.nan)
    forms: list[list[list[dict[str, Any]]]] = []
    # The far node's CPUs are slower, on each host.
    place = np.where(np.arange(shape.cpus) >= shape.cpus / 2, 0.1, 0.0)
    for host in range(shape.hosts):
        x = rng.normal(0, shape.within, (shape.figures, shape.cpus, per_cpu)) + level[host][:, None, None] + place[None, :, None]
        # A tail that every host has: one sample in 200 takes 1.2 to 2 times as long.
        late = rng.random(x.shape) < 0.005
        x = x + late * rng.uniform(0.2, 0.7, x.shape)
        for figure in range(shape.figures):
            if (host, figure) in faults:
                kind, strength = faults[host, figure]
                x[figure] = fault(rng, x[figure], kind, strength)
        values = np.exp(x)
        flat = np.sort(values.reshape(shape.figures, -1), axis=1)
        for name, share in PERCENTILES.items():
            if shape.cpus * per_cpu >= (10 if share == 0.5 else 10 / (1 - share)) * (1 - 1e-9):
                rows[name][host] = flat[:, int(np.ceil(share * flat.shape[1])) - 1]
        cpu_medians[host] = np.median(values, axis=2)
        forms.append(forms_of(flat, rows["p50"][host]))
    return Fleet(*tables(shape, rows, cpu_medians, forms, day, run_of or (lambda host: f"{host:016x}"), kernel, attributes or {}),
                 planted={key: kind for key, (kind, _) in faults.items()})  # fmt: skip


def fault(rng: np.random.Generator, x: Array, kind: str, strength: float) -> Array:
    """The samples (logarithms, by CPU) of one figure with a fault."""
    match kind:
        case "median":
            return x + np.log1p(strength)
        case "tail":  # one sample in 20 takes up to 4 times as long
            return x + (rng.random(x.shape) < strength) * rng.uniform(0.2, 1.4, x.shape)
        case "mode":  # a part of the samples takes half as long again
            return x + (rng.random(x.shape) < strength) * np.log(1.5)
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


def forms_of(values: Array, medians: Array) -> list[list[dict[str, Any]]]:
    """The forms of all figures of a host, by the definition in docs/fleet.md."""
    bins = np.rint(np.arcsinh(np.log(values / medians[:, None]) / FORM_STEP) * FORM_BINS).astype(int)
    found = []
    for row in bins:
        places, counts = np.unique(row, return_counts=True)
        found.append([{"bin": int(b), "share": float(c) / len(row)} for b, c in zip(places, counts, strict=True)])
    return found


def tables(shape: Shape, rows: dict[str, Array], cpu_medians: Array, forms: Any, day: str, run_of: Any, kernel: str,
           attributes: dict[str, Any]) -> tuple[pa.Table, pa.Table]:  # fmt: skip
    """The tables `figures` and `runs`."""
    time = datetime.datetime.fromisoformat(f"{day}T08:00:00+00:00")
    hosts = [host_name(host) for host in range(shape.hosts)]
    runs = [run_of(host) for host in range(shape.hosts)]
    common = {"time": time, "date": day, "verb": "latency mmio", "origin": "measured", "backend": "kmod", "batch": 1,
              "device": "0000:3b:00.0", "model": "144d:a80a:144d:a801", "device_name": "Example NVMe", "driver": "nvme",
              "firmware": "1.0", "link": "16 GT/s x4", "slot": "3", "hops": 1, "topology": "1 packages, 2 nodes, 4 CPUs",
              "cpu_model": "Example CPU", "kernel": kernel, "unit": "ns", "judged": True}  # fmt: skip
    by_host = {key: value for key, value in attributes.items() if callable(value)}
    made = []
    names = [figure_name(figure) for figure in range(shape.figures)]
    for host in range(shape.hosts):
        own = {**common, **{key: value for key, value in attributes.items() if not callable(value)}, "host_key": hosts[host],
               "host": hosts[host], "run": runs[host], **{key: value(host) for key, value in by_host.items()}}  # fmt: skip
        for figure in range(shape.figures):
            known = {name: float(rows[name][host, figure]) for name in PERCENTILES if np.isfinite(rows[name][host, figure])}
            made.append({**own, "figure": names[figure], "cpus": shape.cpus, "count": shape.samples, **known, "form": forms[host][figure]})
            made += [{**own, "figure": names[figure], "cpu": cpu, "cpus": 1, "count": shape.samples // shape.cpus,
                      "p50": float(cpu_medians[host, figure, cpu])} for cpu in range(shape.cpus)]  # fmt: skip
    told = [
        {"host_key": hosts[host], "host": hosts[host], "host_from": "record", "run": runs[host], "date": day, "time": time,
         "last_time": time, "ingested": time, "verb": "latency mmio", "content": "c", "origin": "measured", "records": 1, "errors": 0,
         "schema": 2, "source": f"{hosts[host]}.jsonl", "kernel": kernel, "bios": "1.0",
         **{key: (value(host) if callable(value) else value) for key, value in attributes.items()}}
        for host in range(shape.hosts)
    ]  # fmt: skip
    return pa.Table.from_pylist(made, schema=FIGURES), pa.Table.from_pylist(told, schema=RUNS)


def keep(store: Store, fleet: Fleet) -> None:
    """Writes a fleet of one day as `ingest` would after it compacted."""
    date = fleet.runs["date"][0].as_py()
    named = [(row["host_key"], row["run"], 1) for row in fleet.runs.select(["host_key", "run"]).to_pylist()]
    store.write_many("figures", date, named, fleet.figures, [])
    store.write_many("runs", date, named, fleet.runs, [])


def plant(shape: Shape, kinds: dict[str, float], share: float, seed: int | None = None) -> dict[tuple[int, int], tuple[str, float]]:
    """Faults in this share of the hosts (one at least), each in all figures of its host, by turns of these kinds."""
    rng = np.random.default_rng(shape.seed + 1_000_003 if seed is None else seed)
    hosts = rng.choice(shape.hosts, max(1, round(shape.hosts * share)), replace=False)
    names = list(kinds)
    first = rng.integers(len(names))
    chosen = [names[(first + i) % len(names)] for i in range(len(hosts))]
    return {(int(host), figure): (kind, kinds[kind]) for host, kind in zip(hosts, chosen, strict=True) for figure in range(shape.figures)}
