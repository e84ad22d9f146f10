"""Takes files of records into a dataset, each run once, and compacts it."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pciescope_fleet import records
from pciescope_fleet.dataset import rows
from pciescope_fleet.dataset.rows import Rows
from pciescope_fleet.dataset.schema import TABLES
from pciescope_fleet.dataset.store import RunKey, Store, to_table
from pciescope_fleet.records import Problem

MANY = 64
"""So many runs of one day are written to one file; fewer get a file each, below their host."""

BATCH = 4000
"""Runs that are kept in memory before they are written."""


@dataclass
class Taken:
    """What `ingest` did."""

    files: int = 0
    runs: int = 0
    figures: int = 0
    known: int = 0
    """Runs that the dataset had already."""
    renewed: int = 0
    """Runs of which the dataset had fewer records: a torn file came first."""
    guessed: dict[str, str] = field(default_factory=dict)
    """Hosts that the records do not name, by the file that they are called after."""
    problems: list[Problem] = field(default_factory=list)


def ingest(store: Store, paths: Sequence[Path], host: str | None = None) -> Taken:
    """Takes the runs of these files."""
    taken = Taken()
    now = datetime.datetime.now(datetime.UTC)
    has = store.kept("runs").runs()
    waiting: dict[RunKey, Rows] = {}
    for path in paths:
        runs, problems = records.read(path)
        taken.files += 1
        taken.problems += problems
        if not runs and not problems:
            taken.problems.append(Problem(str(path), None, "no record in it"))
        for run in runs:
            made = rows.rows(run, host, now)
            taken.problems += made.problems
            if made.run["host_from"] == "file name":
                taken.guessed[made.run["host"]] = str(path)
            key: RunKey = (made.run["host_key"], made.run["run"])
            before = max(has[key][1] if key in has else 0, waiting[key].run["records"] if key in waiting else 0)
            if before >= made.run["records"]:
                taken.known += 1
                continue
            taken.renewed += before > 0
            waiting[key] = made
        if len(waiting) >= BATCH:
            _write(store, waiting, has, taken)
            waiting = {}
    _write(store, waiting, has, taken)
    return taken


def _write(store: Store, waiting: dict[RunKey, Rows], has: dict[RunKey, tuple[str, int, str]], taken: Taken) -> None:
    if not waiting:
        return
    outdated = {key for key in waiting if key in has}
    if outdated:
        _forget(store, outdated)
    by_date: dict[str, list[Rows]] = {}
    for made in waiting.values():
        by_date.setdefault(made.run["date"], []).append(made)
    for date, together in by_date.items():
        # The runs come last: what they do not name does not count as taken.
        for table in ("figures", "findings", "runs"):
            _write_table(store, table, date, together)
    for key, made in waiting.items():
        has[key] = (made.run["date"], made.run["records"], "")
        taken.runs += 1
        taken.figures += len(made.figures)


def _rows_of(table: str, made: Rows) -> list[dict[str, Any]]:
    return {"figures": made.figures, "findings": made.findings, "runs": [made.run]}[table]


def _write_table(store: Store, table: str, date: str, together: list[Rows]) -> None:
    if len(together) < MANY:
        for made in together:
            found = _rows_of(table, made)
            if found:
                store.write_part(table, date, made.run["host_key"], made.run["run"], made.run["records"], found)
        return
    named = [(made.run["host_key"], made.run["run"], made.run["records"]) for made in together]
    found = [row for made in together for row in _rows_of(table, made)]
    store.write_many(table, date, named, to_table(table, found), [])


def _forget(store: Store, runs: set[RunKey]) -> None:
    """Takes runs out of the dataset, of which more records have come."""
    for table in TABLES:
        kept = store.kept(table)
        store.remove(part.path for part in kept.parts if (part.host_key, part.run) in runs)
        for path, listed in kept.compacted.items():
            remain = [run for run in listed["runs"] if (run[0], run[1]) not in runs]
            if len(remain) == len(listed["runs"]):
                continue
            found = store.read(table, [path])
            keys = zip(found["host_key"].to_pylist(), found["run"].to_pylist(), strict=True)
            found = found.filter([key not in runs for key in keys])
            if remain:
                store.write_many(
                    table, listed["date"], [tuple(run) for run in remain], found, [_below(store, table, path)]
                )
            store.remove([path])


def _below(store: Store, table: str, path: str) -> str:
    return path.removeprefix(f"{store.root}/{table}/")


@dataclass
class Compacted:
    """What `compact` did."""

    before: int = 0
    after: int = 0
    leftover: int = 0


def compact(store: Store, dates: Iterable[str] | None = None) -> Compacted:
    """Makes one file of each day and table, and removes what killed writers left."""
    done = Compacted()
    for table in TABLES:
        kept = store.kept(table)
        store.remove(kept.leftover)
        done.leftover += len(kept.leftover)
        by_run = kept.runs()
        for date in kept.dates() if dates is None else dates:
            paths = kept.files([date])
            done.before += len(paths)
            done.after += bool(paths)
            if len(paths) < 2:
                continue
            named = [(host_key, run, count) for (host_key, run), (day, count, _) in by_run.items() if day == date]
            replaces = [_below(store, table, path) for path in paths]
            store.write_many(table, date, named, store.read(table, paths), replaces)
            store.remove(paths)
    return done
