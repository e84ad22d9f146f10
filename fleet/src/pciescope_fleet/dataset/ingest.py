"""Takes files of records into a dataset, each run once, and compacts it.

A run is known by its random id. Of its copies the one with the most records counts; of equal ones, that whose host is
the most certain (`rows.Host.rank`), then the dataset's own, then the first by its path.
"""

import contextlib
import datetime
import os
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pciescope_fleet.dataset import figures, program, rows
from pciescope_fleet.dataset.program import Problem
from pciescope_fleet.dataset.rows import Host, Run
from pciescope_fleet.dataset.schema import TABLES
from pciescope_fleet.dataset.store import TRIES, Copy, Kept, Store, to_table
from pciescope_fleet.errors import FleetError

MANY = 64  # So many runs of one day are written to one file; fewer get a file each, below their host.
BATCH_BYTES = 128 * 2**20  # Bytes of tables that are kept in memory before they are written.

LARGEST_BYTES = 128 * 2**20
"""Compaction makes no larger table out of smaller ones, and leaves those alone that have half of it."""

STAYS_S = 3600
"""So long a file that does not count any more stays on a store that is no folder: answers there may take minutes, and
those that have listed it go on reading it. In a folder they are made again."""


@dataclass
class Taken:
    """What `ingest` did."""

    files: int = 0
    runs: int = 0
    figures: int = 0
    known: int = 0  # Copies of runs that the dataset had already.
    renewed: int = 0  # Runs of which the dataset had fewer records: a torn file came first.
    restored: int = 0  # Runs of which the dataset had lost rows.
    guessed: set[str] = field(default_factory=set)  # Hosts that the records do not name: they are called after a file.
    late: list[str] = field(default_factory=list)
    """The host of each run that is older than what the dataset had of its host."""
    problems: list[Problem] = field(default_factory=list)


def now() -> datetime.datetime:
    """The time of this machine."""
    return datetime.datetime.now(datetime.UTC)


def ingest(store: Store, paths: Sequence[Path], host: str | None = None, command: str | None = None) -> Taken:
    """Takes the runs of these files. `command` is the program pciescope, `host` the host that all are from."""
    taken = Taken(files=len(paths))
    began = now()
    with program.tables(paths, command) as tables:
        taken.problems += tables.problems
        copies: dict[str, list[Run]] = {}
        by_file: dict[tuple[str, str], Run] = {}
        for row in _read(tables.runs, rows.COLUMNS):
            run = Run(row, rows.host_of(row, host), began)
            copies.setdefault(run.run, []).append(run)
            by_file[run.source, run.run] = run
        for row in _read(tables.findings, rows.FINDING_COLUMNS):
            by_file[row["file"] or "", row["run"]].findings.append(row)
        had = known(store, copies)
        before, machines = had.before, had.machines()
        taken.problems += had.lost
        chosen = [_choose(each, before.get(run), taken) for run, each in copies.items()]
        new = [run for run in chosen if run is not None]
        for run in new:
            _name_namesake(run, before.get(run.run), machines, taken)
        taken.late = _late(store, had.runs, new)
        try:
            _write(store, figures.batches(tables.figures, {(run.source, run.run): run for run in new}), taken)
        except FleetError as error:
            raise FleetError(f"{error.text} ({taken.runs} of {len(new)} runs were taken before)", error.hint) from error
    place = {program.name_of(path): number for number, path in enumerate(paths)}
    taken.problems.sort(key=lambda problem: place.get(problem.file, -1))
    return taken


def _read(path: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of a table of the program; times are microseconds."""
    table = pq.read_table(path, columns=list(columns))
    for number, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):
            table = table.set_column(number, column.name, table[column.name].cast(pa.int64()))
    found: list[dict[str, Any]] = table.to_pylist()
    return found


@dataclass(frozen=True)
class Before:
    """The copy of a run that the dataset has."""

    host: Host
    records: int
    record_ids: Sequence[int]
    clock_ahead_s: float | None
    is_whole: bool  # Whether its rows are in all tables.


@dataclass
class Known:
    """What the dataset has."""

    runs: dict[str, Copy]
    before: dict[str, Before]  # Those of the runs that were asked for.
    lost: list[Problem] = field(default_factory=list)
    """Files that are gone or were damaged, with the runs that were not asked for."""

    def machines(self) -> dict[str, set[str]]:
        """By name the keys of its hosts."""
        found: dict[str, set[str]] = {}
        for copy in self.runs.values():
            found.setdefault(copy.host_key.split("~")[0], set()).add(copy.host_key)
        return found


def known(store: Store, runs: Collection[str]) -> Known:
    """What the dataset has, and of it these runs. Damaged files with some of them are removed."""
    lost: list[Problem] = []
    for left in reversed(range(TRIES)):
        kept = {table: store.kept(table) for table in TABLES}
        within: dict[str, list[Copy]] = {}
        for copy in (copy for each in kept.values() for copy in each.runs().values()):
            within.setdefault(copy.path, []).append(copy)
        asked = [path for path, copies in within.items() if any(copy.run in runs for copy in copies)]
        if damaged := store.damaged(asked):
            lost += filter(None, (_lost(path, "damaged, and removed", within[path], runs) for path in damaged))
            store.remove(damaged)
            continue
        has, others = kept["runs"].runs(), {table: kept[table].runs() for table in ("figures", "findings")}
        wanted = [run for run in runs if run in has]
        paths = sorted({has[run].path for run in wanted})
        columns = ["run", "host_key", "host", "host_from", "records", "record_ids", "clock_ahead_s", *others]
        try:
            found = store.read("runs", paths, columns)
        except FleetError:
            # A compaction has removed a file meanwhile.
            if not left or not store.has_lost(paths):
                raise
            continue
        break
    before = {
        row["run"]: Before(
            Host(row["host_key"], row["host"], row["host_from"]),
            row["records"],
            row["record_ids"],
            row["clock_ahead_s"],
            all(row["run"] in other or not row[table] for table, other in others.items()),
        )
        for row in found.filter(pc.is_in(found["run"], pa.array(wanted, pa.string()))).to_pylist()
    }
    lost += filter(None, (_lost(path, "gone", copies, runs) for path, copies in kept["runs"].lost.items()))
    return Known(has, before, lost)


def _lost(path: str, what: str, copies: list[Copy], runs: Collection[str]) -> Problem | None:
    """Tells of those runs of a file that the files to be taken do not have."""
    hosts = sorted(rows.name_of(copy.host_key) for copy in copies if copy.run not in runs)
    of = ", ".join(dict.fromkeys(hosts))
    why = f"{what}: {len(hosts)} runs are lost with it until their files are ingested again: of {of}"
    return Problem(path, None, why) if hosts else None


def _late(store: Store, has: dict[str, Copy], runs: list[Run]) -> list[str]:
    """The host of each run that began before one of its verb that the dataset has: that one stays the newest."""
    new = [run for run in runs if run.run not in has]
    first: dict[str, str] = {}
    for run in new:
        first[run.host_of.key] = min(first.get(run.host_of.key, run.date), run.date)
    paths = sorted({copy.path for copy in has.values() if copy.date >= first.get(copy.host_key, "far")})
    newest: dict[tuple[str, str], datetime.datetime] = {}
    # A compaction may have removed a file meanwhile, and a damaged one says nothing.
    with contextlib.suppress(FleetError):
        for row in store.read("runs", paths, ["host_key", "verb", "time"]).to_pylist():
            key = row["host_key"], row["verb"]
            newest[key] = max(newest.get(key, row["time"]), row["time"])
    return sorted(
        run.host_of.name for run in new if run.time < newest.get((run.host_of.key, run.row["verb"]), run.time)
    )


def _choose(copies: list[Run], before: Before | None, taken: Taken) -> Run | None:
    """The copy of a run that the dataset gets, if it gets any, by the name of its host; tells what is not taken."""
    copies = sorted(copies, key=lambda copy: (-copy.records, -copy.host_of.rank, copy.source))
    best, host = copies[0], _host([*([before.host] if before else []), *(copy.host_of for copy in copies)])
    is_new = (
        before is None
        or best.records > before.records
        or (best.records == before.records and (host.key != before.host.key or not before.is_whole))
    )
    ids = best.record_ids if is_new or before is None else before.record_ids
    for copy in copies:
        taken.known += not (is_new and copy is best)
        why = None
        if copy.host_of.named_by != "file name" and not _is_same(copy.host_of, host):
            why = (
                f"run {copy.run} is kept as host {host.key}: not taken as host {copy.host_of.key}; that name stays: "
                f"--host {host.name}"
            )
        elif before is not None and not is_new and host.key != before.host.key and copy is best:
            why = (
                f"run {copy.run} is kept as host {before.host.key} with {before.records} records, and has "
                f"{copy.records} here: not taken as host {host.key}"
            )
        elif before is not None and not is_new and not before.is_whole and copy is best:
            why = (
                f"run {copy.run}: the dataset has lost rows of it, and this copy has only {copy.records} of its "
                f"{before.records} records: not taken"
            )
        elif lacking := set(copy.record_ids).difference(ids):
            why = (
                f"run {copy.run}: {len(lacking)} of its {copy.records} records are not in the copy with {len(ids)} "
                "records that the dataset has, and are not taken: join the files into one"
            )
        if why is not None:
            taken.problems.append(Problem(copy.source, None, why))
    if host.named_by == "file name":
        taken.guessed.add(host.name)
    if not is_new:
        return None
    if before is not None:
        if lacking := set(before.record_ids).difference(ids):
            why = (
                f"run {best.run}: {len(lacking)} of the {before.records} records that the dataset had are not in this "
                "copy, which takes their place: join the files into one"
            )
            taken.problems.append(Problem(best.source, None, why))
        taken.renewed += best.records > before.records
        taken.restored += not before.is_whole
        best.clock_ahead_s = before.clock_ahead_s
    best.host_of = host
    return best


def _host(hosts: list[Host]) -> Host:
    """The most certain of several, the first of equal ones; and its machine's id if another one of the name has it."""
    best = max(hosts, key=lambda host: host.rank)
    same = (host for host in hosts if host.name == best.name and "~" in host.key)
    return best if "~" in best.key else replace(best, key=next((host.key for host in same), best.key))


def _is_same(one: Host, kept: Host) -> bool:
    """Whether a host may be the one that is kept: the machine's id may be unknown."""
    return one.name == kept.name and ("~" not in one.key or one.key == kept.key)


def _name_namesake(run: Run, before: Before | None, machines: dict[str, set[str]], taken: Taken) -> None:
    """Tells of another machine of the name, where this one is new."""
    keys = machines.setdefault(run.host_of.name.replace("~", rows.TILDE), set())
    others = keys.difference([before.host.key] if before else [])
    if others and run.host_of.key not in keys:
        why = f"host {run.host_of.name} is two machines: {run.host_of.key} beside {min(others)}; they are kept apart"
        taken.problems.append(Problem(run.source, None, why))
    keys.add(run.host_of.key)


def _computed(batches: Iterator[figures.Batch]) -> Iterator[tuple[list[Run], pa.Table]]:
    """The runs of batches and their figures, in order; as many are computed at a time as there are CPUs."""
    threads = os.cpu_count() or 1
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[tuple[list[Run], Future[pa.Table]]] = deque()
        for batch in batches:
            waiting.append((batch.runs, pool.submit(figures.figures, batch)))
            if len(waiting) > threads:
                runs, found = waiting.popleft()
                yield runs, found.result()
        yield from ((runs, found.result()) for runs, found in waiting)


def _write(store: Store, batches: Iterator[figures.Batch], taken: Taken) -> None:
    runs: list[Run] = []
    parts: list[pa.Table] = []
    for of_batch, found in _computed(batches):
        runs += of_batch
        parts.append(found)
        if sum(part.nbytes for part in parts) >= BATCH_BYTES:
            _write_days(store, runs, pa.concat_tables(parts), taken)
            runs, parts = [], []
    if runs:
        _write_days(store, runs, pa.concat_tables(parts), taken)


def _write_days(store: Store, runs: list[Run], found: pa.Table, taken: Taken) -> None:
    by_date: dict[str, list[Run]] = {}
    rows_of = Counter(found["run"].to_pylist())
    for run in runs:
        by_date.setdefault(run.date, []).append(run)
        taken.problems += run.problems
    for date, together in by_date.items():
        of_day = found if len(by_date) == 1 else found.filter(pc.equal(found["date"], date))
        findings = to_table("findings", [row for run in together for row in run.finding_rows()])
        # The runs come last: what they do not name does not count as taken.
        tables = {
            "figures": of_day,
            "findings": findings,
            "runs": to_table("runs", [run.to_row(rows_of[run.run]) for run in together]),
        }
        for table, content in tables.items():
            _write_table(store, table, date, together, content)
    taken.runs += len(runs)
    taken.figures += len(found)


def _write_table(store: Store, table: str, date: str, runs: list[Run], content: pa.Table) -> None:
    copies = {run.run: Copy(run.host_of.key, run.run, run.records, run.host_of.rank) for run in runs}
    if len(runs) >= MANY:
        store.write_many(table, date, list(copies.values()), content, [])
        return
    for run in runs:
        own = content.filter(pc.equal(content["run"], run.run))
        if len(own):
            store.write_part(table, date, copies[run.run], own, run.record_ids)


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
    try:
        return _compact(store, dates)
    except FleetError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        why = f"{store.url}: another compaction is running: {error.__cause__.filename} is merged meanwhile"
        raise FleetError(why, "run one at a time; the dataset is whole") from error


def _compact(store: Store, dates: Iterable[str] | None) -> Compacted:
    done = Compacted()
    for table in TABLES:
        kept = store.kept(table)
        old = [path for path, age_s in kept.leftover.items() if store.is_local or age_s > STAYS_S]
        left = [*old, *kept.abandoned]
        store.remove(left)
        done.leftover += len(left)
        within: dict[str, list[Copy]] = {}
        for copy in kept.runs().values():
            within.setdefault(copy.path, []).append(copy)
        for date in kept.dates() if dates is None else dates:
            paths = sorted(kept.files([date]), key=lambda path: min(within[path]))
            done.before += len(paths)
            done.after += len(paths)
            for together, found in _together(store, table, kept, paths):
                if len(together) == 1 and together[0] not in kept.doubled:
                    continue
                copies = [copy for path in together for copy in within[path]]
                replaces = [_below(store, table, path) for path in together]
                store.write_many(table, date, copies, found, replaces)
                if store.is_local:
                    store.remove(together)
                done.after -= len(together) - 1
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
