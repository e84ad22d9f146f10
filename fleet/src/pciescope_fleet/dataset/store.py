"""Keeps the tables' files on a store that fsspec reaches.

    TABLE/date=2026-11-22/host=NODE/RUN-RECORDS-DIGEST.parquet     one run of one host
    TABLE/date=2026-11-22/host=all/DIGEST.parquet                  many runs of many hosts
    TABLE/date=2026-11-22/host=all/DIGEST.json                     its runs, the files that it replaces, its bytes in
                                                                   memory

A file with many runs counts once its list is there, and what the list replaces does not count any more. Of several
copies of a run the one with the most records counts, and of equal ones one. So a reader sees each run once at any
moment, also if two writers took the same files, and after a writer was killed between two steps. Writers remove
nothing: several may add runs at the same time; only one may compact.
"""

import contextlib
import errno
import hashlib
import json
import os
import posixpath
import re
import time
import urllib.parse
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pciescope_fleet.dataset.schema import TABLES
from pciescope_fleet.errors import FleetError

PART = re.compile(r"(?P<run>[0-9a-f]{16})-(?P<records>\d+)-(?P<rank>[0-9a-f])[0-9a-f]{7}\.parquet")
"""A file of one run, with how certain its host is, and a digest of its records."""
PLACE = re.compile(r"/date=(?P<date>\d{4}-\d\d-\d\d)/host=(?P<host>[^/]+)/(?P<name>[^/]+)$")

UNFINISHED = re.compile(r"\.[0-9a-f]{32}\.part")  # A file that is being written.
ABANDONED_S = 86400  # A file that is not whole after this time is of a writer that was killed.

OF_OBJECTS = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory"}
"""Stores in which an object is seen once it is whole. In others a file grows under its name."""

AGAIN = "ingest their files again: that brings back what was lost"
"""The hint where files of the dataset are damaged or gone."""

TRIES = 5  # So often a reader looks again where a compaction has removed what it was about to read.


@dataclass(frozen=True, order=True)
class Copy:
    """A copy of a run."""

    host_key: str
    run: str
    records: int
    rank: int = 0  # How certain its host is.
    path: str = ""  # The file that it is in.
    date: str = ""

    @property
    def weight(self) -> tuple[int, int, str]:
        """Of several copies the one with the greatest counts."""
        return (self.records, self.rank, self.path)


@dataclass
class Kept:
    """What a table of the dataset holds, as its file names and lists say."""

    parts: list[Copy]
    compacted: dict[str, Any]  # By the path of the file: its list.
    leftover: dict[str, float]
    """Files that do not count any more, and for how many seconds: others have all of their runs."""
    abandoned: list[str]  # Files that were never finished, or got no list, for a day: their writer was killed.
    doubled: dict[str, set[str]]
    """By the path of a file with many runs: those that do not count, as another file has them."""
    lost: dict[str, list[Copy]]
    """By the path of a file with many runs that is gone, while its list is there: its runs that no other file has."""

    def runs(self) -> dict[str, Copy]:
        """By run: the copy that counts."""
        found = {part.run: part for part in self.parts}
        for listed in self.compacted.values():
            found.update({copy.run: copy for copy in listed["runs"]})
        return found

    def files(self, dates: Iterable[str] | None = None) -> list[str]:
        """The files that count, of these days or of all."""
        wanted = None if dates is None else set(dates)
        paths = [part.path for part in self.parts if wanted is None or part.date in wanted]
        paths += [path for path, listed in self.compacted.items() if wanted is None or listed["date"] in wanted]
        return sorted(paths)

    def dates(self) -> list[str]:
        """The days that have files."""
        return sorted({part.date for part in self.parts} | {listed["date"] for listed in self.compacted.values()})


class Store:
    """A dataset's folder, by path or URL."""

    def __init__(self, url: str, options: dict[str, Any] | None = None) -> None:
        if not url:
            raise FleetError("the dataset has an empty name", "a folder, or a URL such as s3://BUCKET/FOLDER")
        self.url = url
        self.options = options or {}
        try:
            self.fs, root = fsspec.core.url_to_fs(url, **self.options)
        except ImportError as error:
            raise FleetError(
                f"{url}: this store needs another Python module: {error}", "pip install 'pciescope-fleet[s3]'"
            ) from error
        except ValueError as error:
            raise FleetError(
                f"{url}: not a place for a dataset: {error}", "a folder, or a URL such as s3://BUCKET/FOLDER"
            ) from error
        self.root = root.rstrip("/")
        self._doubled: dict[str, dict[str, set[str]]] = {}

    @property
    def is_local(self) -> bool:
        """Whether the files lie in this machine's file system."""
        return "file" in self._protocols()

    @property
    def _is_of_objects(self) -> bool:
        return not OF_OBJECTS.isdisjoint(self._protocols())

    def _protocols(self) -> tuple[str, ...]:
        return self.fs.protocol if isinstance(self.fs.protocol, tuple) else (self.fs.protocol,)

    @contextmanager
    def _asked(self, *passed: type[Exception]) -> Iterator[None]:
        """Around what the store is asked for: tells what it refuses. Drivers have errors of their own kinds.

        Errors that are `passed` are for the caller.
        """
        try:
            yield
        except passed:
            raise
        except Exception as error:
            if self.is_local and not isinstance(error, OSError | pa.ArrowException | ValueError):
                raise
            hint = "its address, the keys, --store-option"
            if self.is_local:
                hint = "who may read and write its files and folders"
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                hint = "free space there: what was written counts, and the next ingest takes the rest"
            raise FleetError(f"{self.url}: the store refuses: {error}", hint) from error

    def kept(self, table: str) -> Kept:
        """What there is of a table, also if it is being compacted meanwhile."""
        for _ in range(TRIES):
            with contextlib.suppress(FileNotFoundError):
                return self._kept(table)
        raise FleetError(
            f"{self.url}: files of the dataset went away while they were listed, {TRIES} times",
            "wait until the compaction has ended",
        )

    def _found(self, table: str) -> dict[str, Any]:
        """The files of a table, with what the store says of them.

        Files with many runs are listed last: a compaction writes such a file before it removes what that replaces. If
        one went away meanwhile, a run of it may be in a file that came after the first look: `FileNotFoundError`.
        """
        top = f"{self.root}/{table}"
        with self._asked(FileNotFoundError):
            self.fs.invalidate_cache()
            if not (Path(top).exists() if self.is_local else self.fs.exists(top)):
                return {}
            # A store of objects lists a thousand of them, of whatever folders, for one request.
            again = [top] if self._is_of_objects else [f"{day}/host=all" for day in self.fs.ls(top, detail=False)]
            found = self._find(top)
            many = {path for path in found if "/host=all/" in path and path.endswith((".parquet", ".json"))}
            found = {path: info for path, info in found.items() if "/host=all/" not in path}
            self.fs.invalidate_cache()
            for place in again:
                found.update({path: info for path, info in self._find(place).items() if "/host=all/" in path})
        if removed := many.difference(found):
            raise FileNotFoundError(min(removed))
        return found

    def _find(self, top: str) -> dict[str, Any]:
        """All files below a folder. fsspec leaves out what it may not list: a host would be judged no more."""
        if not self.is_local:
            found: dict[str, Any] = self.fs.find(top, detail=True)
            return found

        def refuse(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                raise error

        found = {}
        for folder, _, names in os.walk(top, onerror=refuse, followlinks=True):
            for name in names:
                path = f"{folder}/{name}"
                with contextlib.suppress(FileNotFoundError):
                    found[path] = {"mtime": Path(path).stat().st_mtime}
        return found

    def _kept(self, table: str) -> Kept:
        """The same. Raises `FileNotFoundError` where a file goes away after it was listed."""
        top, found = f"{self.root}/{table}", self._found(table)
        lists: dict[str, dict[str, Any]] = {}
        parts, many, abandoned, told_of = [], [], [], {}
        for path in sorted(found):
            place = PLACE.search(path)
            if place is None:
                continue
            if UNFINISHED.fullmatch(place["name"]):
                abandoned.append(path)
            elif place["host"] == "all" and path.endswith(".json"):
                told_of[path] = place["date"]
            elif place["host"] == "all" and path.endswith(".parquet"):
                many.append(path)
            elif named := PART.fullmatch(place["name"]):
                host_key, rank = urllib.parse.unquote(place["host"]), int(named["rank"], 16)
                parts.append(Copy(host_key, named["run"], int(named["records"]), rank, path, place["date"]))
        with self._asked(FileNotFoundError):
            for path, content in zip(told_of, self._read_all(list(told_of)), strict=True):
                listed, whole = json.loads(content), path.removesuffix(".json") + ".parquet"
                copies = [replace(Copy(*run), path=whole, date=told_of[path]) for run in listed["runs"]]
                lists[whole] = {**listed, "runs": copies, "date": told_of[path]}
        gone = {path: lists.pop(path) for path in set(lists).difference(many)}
        age = {path: _age_s(info) for path, info in found.items()}
        replaced: dict[str, float] = {}
        for path, listed in lists.items():
            since = age[_list_of(path)]
            for name in listed["replaces"]:
                other = posixpath.join(top, name)
                replaced[other] = max(since, replaced.get(other, since))
        leftover = {path: replaced[path] for path in (*many, *(part.path for part in parts)) if path in replaced}
        abandoned += [path for path in many if path not in lists and path not in replaced]
        parts = [part for part in parts if part.path not in replaced]
        counted = {path: listed for path, listed in lists.items() if path not in replaced}
        parts, counted, doubled, others = _one_copy_each(parts, counted, age)
        leftover.update(others)
        self._doubled[table] = doubled
        abandoned = [path for path in abandoned if age[path] > ABANDONED_S]
        kept = Kept(parts, counted, leftover, abandoned, doubled, {})
        has = kept.runs() if gone else {}
        kept.lost = {path: [copy for copy in listed["runs"] if copy.run not in has] for path, listed in gone.items()}
        return kept

    def damaged(self, paths: Iterable[str]) -> list[str]:
        """Those of these files that do not end as a table does: they were cut off."""
        listed = sorted(paths)
        with self._asked():
            ends = self.fs.cat_ranges(listed, [-12] * len(listed), [None] * len(listed), on_error="return")
        return [
            path
            for path, end in zip(listed, ends, strict=True)
            if isinstance(end, bytes) and (len(end) < 12 or not end.endswith(b"PAR1"))
        ]

    def _read_all(self, paths: list[str]) -> list[bytes]:
        """Whole files, which a remote store sends at once. Raises `FileNotFoundError` where one is there no more."""
        nowhere = [None] * len(paths)
        found: list[bytes | Exception] = self.fs.cat_ranges(paths, nowhere, nowhere, on_error="return")
        whole = []
        for content in found:
            if isinstance(content, Exception):
                raise content
            whole.append(content)
        return whole

    def has_lost(self, paths: Iterable[str]) -> bool:
        """Whether one of these files is there no more. Lists their tables: a request for each file takes long."""
        left = set(paths)
        with self._asked():
            self.fs.invalidate_cache()
            for table in TABLES:
                if any(path.startswith(f"{self.root}/{table}/") for path in left):
                    left.difference_update(self._find(f"{self.root}/{table}"))
        return bool(left)

    def doubled(self, table: str, paths: Iterable[str]) -> dict[str, set[str]]:
        """By path: runs that a reader must leave out of these files, as `kept` saw them last."""
        known = self._doubled.get(table, {})
        return {path: known[path] for path in paths if path in known}

    def need(self, table: str) -> Kept:
        """The same; a refusal where there is nothing."""
        kept = self.kept(table)
        if not kept.parts and not kept.compacted:
            raise FleetError(
                f"{self.url}: there is no dataset here, or it is empty", f"pciescope-fleet ingest FILES... {self.url}"
            )
        return kept

    def write_part(self, table: str, date: str, copy: Copy, rows: pa.Table, ids: Iterable[int]) -> None:
        """Writes the rows of one run. `ids` are the numbers of its records: copies with other ones are other files."""
        # `all` is the folder of files with many runs.
        host = "%61ll" if copy.host_key == "all" else urllib.parse.quote(copy.host_key, safe="~")
        digest = hashlib.sha256(" ".join(map(str, sorted(ids))).encode()).hexdigest()[:7]
        name = f"{copy.run}-{copy.records}-{copy.rank:x}{digest}.parquet"
        self._write(f"{table}/date={date}/host={host}/{name}", rows)

    def write_many(self, table: str, date: str, runs: Iterable[Copy], rows: pa.Table, replaces: Sequence[str]) -> str:
        """Writes the rows of many runs, and the list that makes them count. `replaces` are paths below the table."""
        named = sorted((copy.host_key, copy.run, copy.records, copy.rank) for copy in runs)
        listed = {"runs": named, "replaces": sorted(replaces), "bytes": rows.nbytes}
        content = json.dumps(listed, separators=(",", ":"))
        name = hashlib.sha256(content.encode()).hexdigest()[:24]
        folder = f"{table}/date={date}/host=all"
        self._write(f"{folder}/{name}.parquet", rows)
        with self._asked():
            self._put(f"{folder}/{name}.json", content.encode())
        return f"{self.root}/{folder}/{name}.parquet"

    def _write(self, path: str, rows: pa.Table) -> None:
        """Writes a table. A file of this name, of the same runs, stays on a remote store.

        Its driver may refuse to go on reading a file that was replaced.
        """
        if not self.is_local:
            with self._asked():
                self.fs.invalidate_cache(f"{self.root}/{posixpath.dirname(path)}")
                if self.fs.exists(f"{self.root}/{path}"):
                    return
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd", row_group_size=256 * 1024)
        with self._asked():
            self._put(path, sink.getvalue().to_pybytes())

    def _put(self, path: str, content: bytes) -> None:
        """Writes a file so that it is there whole or not at all."""
        whole = f"{self.root}/{path}"
        if self._is_of_objects:
            # Object stores have no folders; s3fs would make a bucket for a slip of the pen.
            self.fs.pipe_file(whole, content)
            return
        self.fs.makedirs(posixpath.dirname(whole), exist_ok=True)
        temporary = f"{posixpath.dirname(whole)}/.{uuid.uuid4().hex}.part"
        try:
            self.fs.pipe_file(temporary, content)
            self.fs.mv(temporary, whole)
        except BaseException:
            if self.fs.exists(temporary):
                self.fs.rm_file(temporary)
            raise

    def read(self, table: str, paths: Sequence[str], columns: Sequence[str] | None = None) -> pa.Table:
        """The runs of these files that count, with these columns or all of today: those that a file lacks are null."""
        schema = TABLES[table]
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        parts = [schema.empty_table()]
        doubled = self.doubled(table, paths)
        for path in paths:
            with self._asked(), self.fs.open(path, "rb") as stream:
                # A thread of pyarrow that still has a Python file when the program ends would abort it.
                content = pa.BufferReader(stream.read())
            try:
                file = pq.ParquetFile(content)
                part = conform(file.read([name for name in schema.names if name in file.schema_arrow.names]), schema)
            except pa.ArrowException as error:
                raise FleetError(f"{path}: damaged: {error}", AGAIN) from error
            if path in doubled:
                part = part.filter(pc.invert(pc.is_in(part["run"], pa.array(sorted(doubled[path])))))
            parts.append(part)
        return pa.concat_tables(parts)

    def remove(self, paths: Iterable[str]) -> None:
        """Removes files, and the lists beside those with many runs."""
        with self._asked():
            for path in paths:
                self.fs.rm_file(path)
                listed = _list_of(path)
                if "/host=all/" in path and self.fs.exists(listed):
                    self.fs.rm_file(listed)


def _one_copy_each(
    parts: list[Copy], counted: dict[str, Any], age: dict[str, float]
) -> tuple[list[Copy], dict[str, Any], dict[str, set[str]], dict[str, float]]:
    """Of several copies of a run the one of the greatest weight.

    Returns the parts and the lists with the runs that count, by path the runs that do not count there, and the files in
    which none counts, with the seconds since then.
    """
    best: dict[str, Copy] = {}
    for copy in (*parts, *(copy for listed in counted.values() for copy in listed["runs"])):
        best[copy.run] = max(best.get(copy.run, copy), copy, key=lambda each: each.weight)
    leftover = {
        part.path: min(age[part.path], age[best[part.run].path]) for part in parts if best[part.run].path != part.path
    }
    lists: dict[str, Any] = {}
    doubled: dict[str, set[str]] = {}
    for path, listed in counted.items():
        own = [copy for copy in listed["runs"] if best[copy.run].path == path]
        others = {copy.run for copy in listed["runs"]}.difference(copy.run for copy in own)
        if others and not own:
            leftover[path] = min(age[path], *(age[best[run].path] for run in others))
            continue
        lists[path] = {**listed, "runs": own}
        if others:
            doubled[path] = others
    return [part for part in parts if part.path not in leftover], lists, doubled, leftover


def _list_of(path: str) -> str:
    """The list beside a file with many runs."""
    return path.removesuffix(".parquet") + ".json"


def _age_s(info: dict[str, Any]) -> float:
    """How old a file is; 0 where its store does not say."""
    written = next((info[key] for key in ("mtime", "LastModified", "last_modified", "created") if key in info), None)
    if isinstance(written, datetime):
        written = written.timestamp()
    return time.time() - written if isinstance(written, int | float) else 0.0


def to_table(table: str, rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Rows as a table with the columns of today."""
    return pa.Table.from_pylist(list(rows), schema=TABLES[table])


def conform(found: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table of an older or newer file with the columns of today."""
    columns = [
        found[field.name].cast(field.type) if field.name in found.column_names else pa.nulls(len(found), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
