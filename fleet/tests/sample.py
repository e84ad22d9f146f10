"""Files of records as pciescope writes them, with samples that the test knows."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

DEVICE = {
    "bdf": "0000:3b:00.0",
    "vendor": 0x144D,
    "device": 0xA80A,
    "subsystem_vendor": 0x144D,
    "subsystem_device": 0xA801,
    "name": "Example NVMe",
    "driver": "nvme",
    "link": {"speed_gts": 16.0, "width": 4, "max_speed_gts": 16.0, "max_width": 4, "mps_bytes": 256, "mrrs_bytes": 512},
    "path": ["0000:00:01.0"],
}

Array = npt.NDArray[np.float64]


def histogram(samples_ns: Array) -> dict[str, Any]:
    """A histogram of a record, counted anew: three significant digits, buckets named by their lower edge."""
    counts: dict[int, int] = {}
    for sample in samples_ns:
        ps = round(float(sample) * 1000)
        step = 2 ** max(0, math.floor(math.log2(max(ps, 1))) - 10)
        counts[ps // step * step] = counts.get(ps // step * step, 0) + 1
    ends = {"min_ps": round(float(samples_ns.min()) * 1000), "max_ps": round(float(samples_ns.max()) * 1000)}
    total = str(round(float(samples_ns.sum()) * 1000))
    return {
        **ends,
        "count": len(samples_ns),
        "sum_ps": total,
        "buckets": [list(pair) for pair in sorted(counts.items())],
    }


def environment(host: str | None, machine: str | None = None, **more: Any) -> dict[str, Any]:
    """A machine of four CPUs."""
    cpus = [{"cpu": cpu, "node": cpu // 2, "package": 0} for cpu in range(4)]
    told = {"kernel": "6.12.1", "cpu_model": "Example CPU", "cpus": cpus, "tool": "0.1.0", "product": "Example", **more}
    if host is not None:
        told["host"] = {"name": host, **({"id": machine} if machine else {})}
    return told


def run(
    name: int,
    host: str | None = "n1",
    machine: str | None = None,
    cpus: int = 2,
    median: float = 800.0,
    time: str = "2026-11-22T08:00:00Z",
    seed: int | None = None,
    **more: Any,
) -> list[dict[str, Any]]:
    """The records of one run: the machine, then a latency for each CPU. `more` goes into the environment."""
    rng = np.random.default_rng(name if seed is None else seed)
    common = {"schema": 1, "run": f"{name:016x}", "time": time, "verb": "latency mmio", "device": DEVICE}
    machine_of = environment(host, machine, **more)
    records: list[dict[str, Any]] = [{**common, "test": "environment", "environment": machine_of}]
    for cpu in range(cpus):
        samples = median * np.exp(rng.normal(0, 0.02, 1000))
        records.append(
            {
                **common,
                "test": "mmio-read",
                "target": {"bar": 0, "offset": 16, "width": 4},
                "cpu": {"cpu": cpu, "node": 0},
                "method": {"backend": "kmod", "batch": 1},
                "histograms": {"latency": histogram(samples)},
                "metrics": {"samples_lost": {"value": 0.0, "unit": "1"}, "speed": {"value": 1e9, "unit": "bytes/s"}},
            }
        )
    return records


def write(path: Path, *runs: list[dict[str, Any]]) -> Path:
    """A file of these runs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(whole(record)) + "\n" for each in runs for record in each))
    return path


PLANS: dict[str, dict[str, Any]] = {
    "mmio": {
        "bdf": DEVICE["bdf"], "test": "read", "bar": 0, "offset": 16, "width": 4, "value": 0, "count": 1000,
        "duration_ns": 0, "gap_ns": 0, "batch": 1, "order": "sequential", "ones_ok": False, "raw": False,
    },
}  # fmt: skip
LACKING: dict[str, dict[str, Any]] = {
    "device": {"class": 0x10802, "name": "device"},
    "method": {"gap_ns": 0, "irqs_off": True, "emulated": False},
    "environment": {"tool": "0.1.0", "kernel": "", "machine": "x86_64", "cpus": [], "iommu_groups": 0},
}
"""What every record of pciescope has, and a test need not name."""


def whole(record: Any) -> Any:
    """A record with what pciescope always writes; what a test has made no object stays as it is."""
    if not isinstance(record, dict):
        return record
    record = dict(record)
    for name, more in LACKING.items():
        if isinstance(record.get(name), dict):
            record[name] = {**more, **record[name]}
    if isinstance(record.get("plan"), dict):
        record["plan"] = {name: {**PLANS.get(name, {}), **plan} for name, plan in record["plan"].items()}
    for name, more in (("warnings", {"hint": ""}), ("findings", {"consequence": "", "remedy": ""})):
        if isinstance(record.get(name), list):
            record[name] = [{**more, **each} if isinstance(each, dict) else each for each in record[name]]
    return record
