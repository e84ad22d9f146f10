"""What `outliers` finds of faults that were planted, and how much of what it finds was not: over many drawn fleets.

    python bench/montecarlo.py run FILE [--sizes 8,20,50,100,500,2000] [--seeds 200] [--only KIND]
                                        [--strength FACTOR]
                                        [--kind null|faults|heavy|unequal|alike|clocks]
    python bench/montecarlo.py table FILE...        by kind of fault; `short`: the columns of docs/fleet-method.md

`run` appends a line for each fleet and goes on where it was ended. A fleet has 10 figures for each host and 1000
samples for each figure from 4 CPUs; healthy medians differ by 2 % (standard deviation), a host's samples by 3 %. In
`faults` and `heavy` one host in 20 (one at least) has a fault in all of its figures, the six kinds by turns; a FACTOR
of 0.5 makes all faults half as large. In `heavy` healthy medians differ by Student's t with 4 degrees of freedom. In
`null` and `unequal` no host has a fault; in `unequal` of 20 figures one has ten times as much noise between hosts, and
one has one and a half times as much. In `alike` no host has a fault, and the figures of a host go together: two of them
have a correlation of 0.98 over the hosts, and healthy medians differ by 5 %, so that the least effect hides nothing.
In `clocks` no host has a fault, and clocks tick in 10, 40, 52 or 100 ns, by turns; healthy medians differ by 1 or 5 %.

Beside it the rule of SuperBench's baseline generation, re-expressed from its documentation and source ("fix
threshold"): the mean of all hosts; hosts whose p50 is more than 5 % above it are removed; again, until none is.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import planted
from pciescope_fleet.dataset.store import Store
from pciescope_fleet.engine import open_engine
from pciescope_fleet.judge import outliers

STRENGTHS = {"median": 0.10, "tail": 0.05, "mode": 0.10, "link": 0.10, "cpu": 0.15, "noise": 0.50}
SUPERBENCH_LIMIT = 0.05


def superbench(values: np.ndarray[Any, Any], higher_is_worse: bool = True) -> np.ndarray[Any, Any]:
    """Which hosts the rule removes: those beyond the limit from the mean of those that are left, again and again."""
    left = np.ones(len(values), dtype=bool)
    while left.any():
        away = values / values[left].mean() - 1
        bad = left & ((away > SUPERBENCH_LIMIT) if higher_is_worse else (away < -SUPERBENCH_LIMIT))
        if not bad.any():
            break
        left &= ~bad
    return ~left


def one(kind: str, size: int, seed: int, only: str | None = None, strength: float = 1.0) -> dict[str, Any]:
    """Draws a fleet, judges it, and counts. `only` is the one kind of fault that it has, `strength` a factor."""
    shape = planted.Shape(hosts=size, seed=seed * 10_007 + size, heavy=kind == "heavy")
    if kind == "alike":
        shape = dataclasses.replace(shape, alike=0.98, noise=0.05)
    if kind == "unequal":
        shape = dataclasses.replace(shape, figures=20, noise=(0.2, 0.03, *[0.02] * 18))
    if kind == "clocks":
        shape = dataclasses.replace(shape, tick_ns=(10, 40, 52, 100)[seed % 4], noise=(0.01, 0.05)[seed // 4 % 2])
    strengths = {fault: strength * size for fault, size in STRENGTHS.items() if only in (None, fault)}
    faults = {} if kind in ("null", "unequal", "alike", "clocks") else planted.plant(shape, strengths, 0.05)
    fleet = planted.make(shape, faults)
    truth = {(planted.host_name(h), planted.figure_name(f)): kind for (h, f), (kind, _) in faults.items()}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, open_engine(None, threads=2) as engine:
        store = Store(folder)
        planted.keep(store, fleet)
        started = time.monotonic()
        judged = outliers.judge(engine, store, outliers.Plan())
        took = time.monotonic() - started
    found = (
        set(zip(judged.outliers["host_key"], judged.outliers["figure"], strict=True)) if len(judged.outliers) else set()
    )
    other: set[tuple[str, str]] = set()
    table = fleet.figures.select(["host_key", "figure", "cpu", "p50"]).to_pandas()
    for figure, part in table[table["cpu"].isna()].groupby("figure"):
        other |= {(host, str(figure)) for host in part["host_key"][superbench(part["p50"].to_numpy())]}
    return {
        "kind": kind,
        "size": size,
        "seed": seed,
        "only": only,
        "strength": strength,
        "tests": judged.tests,
        "seconds": round(took, 3),
        "planted": dict(collections.Counter(truth.values())),
        "ours": count(found, truth),
        "superbench": count(other, truth),
    }


def count(found: set[tuple[str, str]], truth: dict[tuple[str, str], str]) -> dict[str, Any]:
    hosts = {host for host, _ in truth}
    return {
        "found": dict(collections.Counter(truth[key] for key in found if key in truth)),
        "hosts": dict(
            collections.Counter(truth_of for _, truth_of in {(h, truth[h, f]) for h, f in found if (h, f) in truth})
        ),
        "false": sum(key not in truth for key in found),
        "false_hosts": len({host for host, _ in found} - hosts),
    }


def run(args: argparse.Namespace) -> None:
    done = set()
    if args.file.exists():
        done = {
            (r["kind"], r["size"], r["seed"], r.get("only"), r.get("strength", 1.0))
            for r in map(json.loads, args.file.read_text().splitlines())
        }
    # Small fleets first, and of each size some seeds, so that an early end leaves something of all.
    for seed in range(args.seeds):
        for size in args.sizes:
            if (args.kind, size, seed, args.only, args.strength) not in done:
                with args.file.open("a") as out:
                    out.write(json.dumps(one(args.kind, size, seed, args.only, args.strength)) + "\n")


def interval(found: float, of: int) -> str:
    """A share with its 95 % interval (Clopper and Pearson)."""
    if of == 0:
        return "-"
    low = stats.beta.ppf(0.025, found, of - found + 1) if found > 0 else 0.0
    high = stats.beta.ppf(0.975, found + 1, of - found) if found < of else 1.0
    return f"{found / of:.1%} ({low:.1%} to {high:.1%})"


def of_mean(values: list[float]) -> str:
    """A mean with its 95 % interval."""
    x = np.array(values)
    half = 1.96 * x.std(ddof=1) / np.sqrt(len(x)) if len(x) > 1 else np.nan
    return f"{x.mean():.1%} (to {x.mean() + half:.1%})"


def table(files: list[Path]) -> None:
    records = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    for kind, strength in sorted({(r["kind"], r.get("strength", 1.0)) for r in records}):
        alike = [r for r in records if (r["kind"], r.get("strength", 1.0)) == (kind, strength)]
        for who in ("ours", "superbench"):
            print(f"\n{kind}, {who}" + (f", faults {strength:g} times as large" if strength != 1 else ""))
            print(
                "| hosts | fleets | "
                + " | ".join(STRENGTHS)
                + " | false discovery rate | fleets with a false alarm | faulty figures found |"
            )
            print("|---|---|" + "---|" * (len(STRENGTHS) + 3))
            for size in sorted({r["size"] for r in alike}):
                own = [r for r in alike if r["size"] == size]
                cells = []
                for fault in STRENGTHS:
                    # Figures of one host have one fault: what counts for the interval is the host.
                    hosts = sum(r["planted"].get(fault, 0) for r in own) // 10
                    cells.append(interval(sum(r[who]["hosts"].get(fault, 0) for r in own), hosts) if hosts else "-")
                share = [r[who]["false"] / max(1, r[who]["false"] + sum(r[who]["found"].values())) for r in own]
                any_false = sum(r[who]["false"] > 0 for r in own)
                figures = sum(sum(r[who]["found"].values()) for r in own) / max(
                    1, sum(sum(r["planted"].values()) for r in own)
                )
                print(
                    f"| {size} | {len(own)} | "
                    + " | ".join(cells)
                    + f" | {of_mean(share)} | {interval(any_false, len(own))} | {figures:.1%} |"
                )


SHIFTS = ("median", "link")
"""Faults of which all samples take longer."""


def short(files: list[Path]) -> None:
    """The same in fewer columns: shifts, the other faults, and what is false among figures and among hosts."""
    records = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    for kind, only in sorted({(r["kind"], r.get("only") or "") for r in records}):
        for who in ("ours", "superbench"):
            print(f"\n{kind} {only}, {who}")
            print("| hosts | fleets | faulty hosts | shifts found | others found | figures found | false figures "
                  "| false hosts | fleets with a false alarm |")  # fmt: skip
            print("|---|---|---|---|---|---|---|---|---|")
            alike = [r for r in records if (r["kind"], r.get("only") or "") == (kind, only)]
            for size in sorted({r["size"] for r in alike}):
                own = [r for r in alike if r["size"] == size]
                cells, faulty = [], 0
                for faults in (SHIFTS, [fault for fault in STRENGTHS if fault not in SHIFTS]):
                    hosts = sum(r["planted"].get(fault, 0) for r in own for fault in faults) // 10
                    found = sum(r[who]["hosts"].get(fault, 0) for r in own for fault in faults)
                    cells.append(interval(found, hosts))
                    faulty += hosts
                told = sum(sum(r[who]["found"].values()) for r in own)
                cells.append(f"{told / (10 * faulty):.1%}" if faulty else "-")
                for false, found_as in (("false", "found"), ("false_hosts", "hosts")):
                    parts = [(r[who][false], sum(r[who][found_as].values())) for r in own]
                    cells.append(of_mean([wrong / max(1, wrong + right) for wrong, right in parts]))
                cells.append(interval(sum(r[who]["false"] > 0 for r in own), len(own)))
                print(f"| {size:,} | {len(own)} | {faulty:,} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    runs = verbs.add_parser("run")
    runs.add_argument("file", type=Path)
    runs.add_argument(
        "--sizes", type=lambda text: [int(size) for size in text.split(",")], default=[8, 20, 50, 100, 500, 2000]
    )
    runs.add_argument("--seeds", type=int, default=200)
    runs.add_argument("--kind", choices=["null", "faults", "heavy", "unequal", "alike", "clocks"], default="faults")
    runs.add_argument("--only", choices=sorted(STRENGTHS), help="faults of this kind alone")
    runs.add_argument("--strength", type=float, default=1.0, help="so many times as large (default: 1)")
    runs.set_defaults(run=run)
    tables = verbs.add_parser("table")
    tables.add_argument("file", type=Path, nargs="+")
    tables.set_defaults(run=lambda args: table(args.file))
    shorts = verbs.add_parser("short")
    shorts.add_argument("file", type=Path, nargs="+")
    shorts.set_defaults(run=lambda args: short(args.file))
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
