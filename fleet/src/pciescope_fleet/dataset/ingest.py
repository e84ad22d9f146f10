"""Takes files of records into a dataset, each run once, and compacts it."""

from __future__ import annotations

import array
import datetime
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from pciescope_fleet import records
from pciescope_fleet.dataset import rows
from pciescope_fleet.dataset.rows import Rows
from pciescope_fleet.dataset.schema import TABLES
from pciescope_fleet.dataset.store import TRIES, Kept, RunKey, Store, to_table
from pciescope_fleet.errors import FleetError
from pciescope_fleet.records import Problem, Record, Run

MANY = 64
"""So many runs of one day are written to one file; fewer get a file each, below their host."""

BATCH = 4000
"""Runs that are kept in memory before they are written."""

BATCH_BYTES = 128 * 2**20
"""The same in bytes of their tables."""

LARGEST_BYTES = 128 * 2**20
"""Compaction makes no larger table out of smaller ones, and leaves those alone that have half of it."""

STAYS_S = 3600
"""So long a file that does not count any more stays on a store that is no folder: answers there may take minutes, and
those that have listed it go on reading it. In a folder they are made again."""

WRONG = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError, pa.ArrowException)
"""What a field of the wrong kind may raise."""


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


def now() -> datetime.datetime:
    """The time of this machine."""
    return datetime.datetime.now(datetime.UTC)


def ingest(store: Store, paths: Sequence[Path], host: str | None = None) -> Taken:
    """Takes the runs of these files."""
    taken = Taken()
    began = now()
    has = _Known(store)
    waiting: dict[RunKey, Made] = {}
    size = 0
    for path in paths:
        runs, problems = records.read(path)
        taken.files += 1
        taken.problems += problems
        if not runs and not problems:
            taken.problems.append(Problem(str(path), None, "no record in it"))
        for run in runs:
            made, wrong = make(run, functools.partial(_tables, host, began, has.hosts.get(run.run), None))
            taken.problems += wrong
            if made is None:
                continue
            taken.problems += made.problems
            if made.run["host_from"] == "file name":
                taken.guessed[made.run["host"]] = str(path)
            key = made.key
            before = max(has.runs.get(key, 0), waiting[key].run["records"] if key in waiting else 0)
            worse, stays = has.earlier(made, waiting)
            if stays is not None:
                kept = f"as host {stays}" if stays else "under a better name"
                why = f"run {run.run} is kept {kept}: not taken as host {key[0]}"
                if stays:
                    why += f"; that name stays: --host {stays.split('~')[0]}"
                taken.problems.append(Problem(str(path), None, why))
                continue
            for old in worse:
                count = waiting[old].run["records"] if old in waiting else has.runs[old]
                if before < made.run["records"] < count:
                    why = (
                        f"run {run.run} is kept as host {old[0]} with {count} records, and has "
                        f"{made.run['records']} here: not taken as host {key[0]}"
                    )
                    taken.problems.append(Problem(str(path), None, why))
                    before = count
                elif before < made.run["records"]:
                    made.renames.append(old)
            if before < made.run["records"] and (other := has.namesake(made)):
                why = f"host {made.run['host']} is two machines: {key[0]} beside {other}; they are kept apart"
                taken.problems.append(Problem(str(path), None, why))
            if before and (lacks := other_records(made.run, has.record_ids(key, waiting), before)):
                taken.problems.append(Problem(str(path), None, f"run {run.run}: {lacks}"))
            if before >= made.run["records"]:
                taken.known += 1
                continue
            if before and (ahead_s := has.ahead_s(key, waiting)) is not None:
                renewed, _ = make(run, functools.partial(_tables, host, began, has.hosts.get(run.run), ahead_s))
                assert renewed is not None
                renewed.renames, made = made.renames, renewed
            taken.renewed += before > 0
            for old in made.renames:
                waiting.pop(old, None)
                taken.guessed.pop(old[0], None)
            waiting[key] = made
            if made.renames or run.run not in has.hosts:
                has.hosts[run.run] = key[0]
            size += made.size
            if len(waiting) >= BATCH or size >= BATCH_BYTES:
                _write(store, waiting, has, taken)
                waiting, size = {}, 0
    _write(store, waiting, has, taken)
    return taken


def other_records(run: dict[str, Any], there: Sequence[int] | None, count: int) -> str | None:
    """Why a copy of a run is no copy: it has other records than the one of `count` records that the dataset has."""
    if there is None:
        return None
    own, hint = run["record_ids"], "join the files into one"
    if count >= run["records"]:
        lacking = len(set(own).difference(there))
        what = f"{lacking} of its {len(own)} records are not in the copy with {count} records that the dataset has"
        return f"{what}, and are not taken: {hint}" if lacking else None
    lacking = len(set(there).difference(own))
    what = f"{lacking} of the {len(there)} records that the dataset had are not in this copy"
    return f"{what}, which takes their place: {hint}" if lacking else None


@dataclass
class Made:
    """A run's rows as tables: they take a tenth of the memory."""

    run: dict[str, Any]
    tables: dict[str, pa.Table]
    problems: list[Problem]
    renames: list[RunKey] = field(default_factory=list)
    """The same run by worse names that the dataset has it under."""

    @classmethod
    def of(cls, made: Rows) -> Made:
        """From rows. Raises where a value does not fit its column."""
        found = {"figures": made.figures, "findings": made.findings, "runs": [made.run]}
        return cls(made.run, {name: to_table(name, each) for name, each in found.items()}, made.problems)

    @property
    def size(self) -> int:
        """Bytes of its tables."""
        return sum(table.nbytes for table in self.tables.values())

    @property
    def key(self) -> RunKey:
        """Which run it is."""
        return (self.run["host_key"], self.run["run"])


def _tables(host: str | None, ingested: datetime.datetime, known: str | None, ahead_s: float | None, run: Run) -> Made:
    return Made.of(rows.rows(run, host, ingested, known, ahead_s))


def make(run: Run, tables: Callable[[Run], Made]) -> tuple[Made | None, list[Problem]]:
    """A run as tables, and what of it could not be taken.

    Anybody may have written the file: a field of the wrong kind loses its record, or its part of the machine's
    description, and nothing beside it.
    """
    try:
        return tables(run), []
    except WRONG:
        pass
    problems: list[Problem] = []

    def is_right(record: Record, line: int, what: str) -> bool:
        one = Run(run.run, run.source)
        one.add(record, line)
        try:
            tables(one)
        except WRONG as error:
            why = f"run {run.run}: {what} is not what docs/record.md says: {type(error).__name__}: {error}"
            problems.append(Problem(run.source, line, why))
            return False
        return True

    left = Run(run.run, run.source)
    for line, record in zip(run.lines, run.records, strict=True):
        whole = dict(record)
        if "environment" in record:
            bare = {name: record[name] for name in ("schema", "run", "time", "verb", "test")}
            whole["environment"] = {
                name: value
                for name, value in record["environment"].items()
                if is_right({**bare, "environment": {name: value}}, line, f"environment.{name}")
            }
        if is_right(whole, line, "a field"):
            left.add(whole, line)
    if not left.records:
        return None, problems
    try:
        return tables(left), problems
    except WRONG as error:
        why = f"run {run.run}: its records do not fit together: {type(error).__name__}: {error}"
        return None, [*problems, Problem(run.source, None, why)]


class _Known:
    """What the dataset has."""

    def __init__(self, store: Store) -> None:
        self._store = store
        kept = store.kept("runs")
        self.renamed = kept.renamed
        self._kept = kept.runs()
        self._from: dict[RunKey, str] = {}
        """Where the host's name is from, of the runs that were looked at."""
        self._ids: dict[RunKey, Sequence[int]] = {}
        """Their records' numbers."""
        self._ahead_s: dict[RunKey, float | None] = {}
        """By how much their clock was ahead."""
        self.runs = {key: records for key, (_, records, _) in self._kept.items()}
        self.hosts = {run: host_key for host_key, run in self.runs}
        """By run: a host that has it."""
        self._machines: dict[str, set[str]] = {}
        for host_key, _ in self.runs:
            self._machines.setdefault(host_key.split("~")[0], set()).add(host_key)

    def earlier(self, made: Made, waiting: dict[RunKey, Made]) -> tuple[list[RunKey], str | None]:
        """The same run by names that are worse than this one's; or the host's name that stays.

        Worse are the name of a file, and the same name without the machine's id.
        """
        if made.key in self.renamed:
            return [], self.hosts.get(made.run["run"], "")
        old = (self.hosts.get(made.run["run"], made.key[0]), made.run["run"])
        if made.run["host_from"] == "file name" or old == made.key:
            return [], None
        if old not in waiting and old not in self._from:
            self._look(old)
        if (waiting[old].run["host_from"] if old in waiting else self._from.get(old)) == "file name":
            return [old], None
        # Of another host's run with a common record it is a copy; two runs may have one id by chance.
        ids = None if made.key in self.runs or made.key in waiting else self.record_ids(old, waiting)
        if ids is None or set(ids).isdisjoint(made.run["record_ids"]):
            return [], None
        return ([old], None) if old[0] == made.run["host"] else ([], old[0])

    def record_ids(self, key: RunKey, waiting: dict[RunKey, Made]) -> Sequence[int] | None:
        """The numbers of the records that the dataset has of a run."""
        if key in waiting:
            ids: Sequence[int] = waiting[key].run["record_ids"]
            return ids
        if key not in self._ids and key in self._kept:
            self._look(key)
        return self._ids.get(key)

    def ahead_s(self, key: RunKey, waiting: dict[RunKey, Made]) -> float | None:
        """By how many seconds a run's clock was ahead when the dataset got it; nothing if its own time is believed."""
        if key in waiting:
            told: float | None = waiting[key].run["clock_ahead_s"]
            return told
        if key not in self._ahead_s and key in self._kept:
            self._look(key)
        return self._ahead_s.get(key)

    def _look(self, run: RunKey) -> None:
        """Reads what the hosts of the runs in a file are called after."""
        for left in reversed(range(TRIES)):
            if run not in self._kept:
                # Another ingest gave it another name meanwhile.
                return
            path = self._kept[run][2]
            try:
                found = self._store.read("runs", [path])
            except FleetError:
                if not left or not self._store.has_lost([path]):
                    raise
                self._kept = self._store.kept("runs").runs()
                continue
            for row in found.select(["host_key", "run", "host_from", "record_ids", "clock_ahead_s"]).to_pylist():
                key = (row["host_key"], row["run"])
                self._from[key] = row["host_from"]
                self._ahead_s[key] = row["clock_ahead_s"]
                self._ids[key] = array.array("q", row["record_ids"])
            return

    def namesake(self, made: Made) -> str | None:
        """Another machine of the same name, where this one is new."""
        machines = self._machines.setdefault(made.run["host"], set())
        others = machines.difference(old for old, _ in made.renames)
        other = min(others, default=None) if made.run["host_key"] not in machines else None
        machines.add(made.run["host_key"])
        return other

    def wrote(self, made: Made) -> None:
        """Notes what a run that was written is called after."""
        self._from[made.key] = made.run["host_from"]
        self._ids[made.key] = array.array("q", made.run["record_ids"])
        self._ahead_s[made.key] = made.run["clock_ahead_s"]
        for old in made.renames:
            self.runs.pop(old, None)
            self.renamed.add(old)


def _write(store: Store, waiting: dict[RunKey, Made], has: _Known, taken: Taken) -> None:
    if not waiting:
        return
    by_date: dict[str, list[Made]] = {}
    for made in waiting.values():
        by_date.setdefault(made.run["date"], []).append(made)
    for date, together in by_date.items():
        # The runs come last: what they do not name does not count as taken.
        for table in ("figures", "findings", "runs"):
            _write_table(store, table, date, together)
    for key, made in waiting.items():
        has.runs[key] = made.run["records"]
        has.wrote(made)
        taken.runs += 1
        taken.figures += len(made.tables["figures"])


def _write_table(store: Store, table: str, date: str, together: list[Made]) -> None:
    if len(together) < MANY:
        for made in together:
            if len(made.tables[table]) and not made.renames:
                ids = made.run["record_ids"]
                store.write_part(table, date, *made.key, made.run["records"], made.tables[table], ids)
        # Only a list can say that a run has another name now.
        together = [made for made in together if made.renames]
        if not together:
            return
    named = [(*made.key, made.run["records"]) for made in together]
    renames = [old for made in together for old in made.renames]
    store.write_many(table, date, named, pa.concat_tables(made.tables[table] for made in together), [], renames)


def _below(store: Store, table: str, path: str) -> str:
    return path.removeprefix(f"{store.root}/{table}/")


@dataclass
class Compacted:
    """What `compact` did."""

    before: int = 0
    after: int = 0
    leftover: int = 0


def compact(store: Store, dates: Iterable[str] | None = None) -> Compacted:
    """Makes few files of each day and table, and removes what does not count any more."""
    done = Compacted()
    for table in TABLES:
        kept = store.kept(table)
        old = [path for path, age_s in kept.leftover.items() if store.is_local or age_s > STAYS_S]
        # A list that names runs by their earlier names stays until no file has these any more.
        last = [path for path in old if kept.renamed and "/host=all/" in path]
        left = [path for path in [*old, *kept.abandoned] if path not in last]
        if len(old) < len(kept.leftover):
            last = []
        store.remove(left)
        done.leftover += len(left) + len(last)
        within: dict[str, list[tuple[str, str, int]]] = {}
        for (host_key, run), (_, count, path) in kept.runs().items():
            within.setdefault(path, []).append((host_key, run, count))
        for date in kept.dates() if dates is None else dates:
            paths = sorted(kept.files([date]), key=lambda path: (min(within[path]), path))
            done.before += len(paths)
            done.after += len(paths)
            for together, found in _together(store, table, kept, paths):
                if len(together) == 1 and together[0] not in kept.doubled:
                    continue
                named = [run for path in together for run in within[path]]
                replaces = [_below(store, table, path) for path in together]
                store.write_many(table, date, named, found, replaces, kept.renamed)
                if store.is_local:
                    store.remove(together)
                done.after -= len(together) - 1
        store.remove(last)
    return done


def _together(store: Store, table: str, kept: Kept, paths: Sequence[str]) -> Iterator[tuple[list[str], pa.Table]]:
    """Which files become one, and its rows: neighbours by host, so that each file has a range of hosts."""
    part: list[str] = []
    tables: list[pa.Table] = []
    for path in paths:
        if path not in kept.doubled and kept.compacted.get(path, {}).get("bytes", 0) >= LARGEST_BYTES / 2:
            continue
        found = store.read(table, [path])
        if part and sum(each.nbytes for each in tables) + found.nbytes > LARGEST_BYTES:
            yield part, pa.concat_tables(tables)
            part, tables = [], []
        part.append(path)
        tables.append(found)
    if part:
        yield part, pa.concat_tables(tables)
