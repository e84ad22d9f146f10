"""The engines: how a session of Spark is set and its failures are told, without one; what was lost of a dataset."""

from __future__ import annotations

import sys
import types
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ibis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import planted
from conftest import Call
from pciescope_fleet import engine
from pciescope_fleet.dataset.schema import TABLES
from pciescope_fleet.dataset.store import Copy, Store

NOT_TO_CHANGE = (
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.files.ignoreCorruptFiles",
    "spark.sql.files.ignoreMissingFiles",
    "spark.sql.parser.escapedStringLiterals",
    "spark.sql.parser.quotedRegexColumnNames",
)
"""With these a cluster's own settings would change what is read, or what an expression means."""


class Spark:
    """A session, and its builder."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}
        self.builder = self.conf = self
        self.sparkContext = types.SimpleNamespace(defaultParallelism=1)
        self.stopped = 0

    def master(self, _: str) -> Spark:
        return self

    appName = getOrCreate = lambda self, *_: self  # noqa: N815

    def config(self, key: str, value: str) -> Spark:
        self.told[key] = value
        return self

    set = config

    def stop(self) -> None:
        self.stopped += 1
        raise OSError("the JVM is gone")


class PySparkException(Exception):  # noqa: N818
    """As pyspark has it."""

    __module__ = "pyspark.errors.exceptions.base"


class Py4JError(Exception):
    """As py4j has it: `Py4JJavaError` and `Py4JNetworkError` are such."""

    __module__ = "py4j.protocol"


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Spark:
    """Modules in place of pyspark's, which the quick tests do without."""
    session = Spark()
    modules: dict[str, dict[str, Any]] = {
        "pyspark": {},
        "pyspark.sql": {"SparkSession": session},
    }
    for name, members in modules.items():
        module = types.ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(vars(ibis), "pyspark", types.SimpleNamespace(connect=lambda session: session))
    return session


def test_what_a_cluster_sets_for_itself_changes_no_result(spark: Spark) -> None:
    with engine.open_engine("local[1]"):
        pass
    assert {name: spark.told.get(name) for name in NOT_TO_CHANGE} == dict.fromkeys(NOT_TO_CHANGE, "false")
    assert spark.told["spark.sql.session.timeZone"] == "UTC"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (PySparkException("[CANNOT_READ_FILE] x.parquet\n\tat org.apache"), "[CANNOT_READ_FILE] x.parquet"),
        (
            Py4JError("An error occurred while calling o7.parquet.\n: java.io.IOException: no such host\n\tat a"),
            "java.io.IOException: no such host",
        ),
        (
            PySparkException(
                "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
                '  File "a.py", line 1, in read\n'
                "ModuleNotFoundError: No module named 's3fs'\n SQLSTATE: 38000\n\tat a.b"
            ),
            "ModuleNotFoundError: No module named 's3fs'",
        ),
        (Py4JError(), "Py4JError"),
    ],
)
def test_a_failure_of_spark_is_told_as_one(
    tmp_path: Path, spark: Spark, call: Call, monkeypatch: pytest.MonkeyPatch, error: Exception, told: str
) -> None:
    planted.keep(Store(str(tmp_path)), planted.make(planted.Shape(hosts=8, figures=1, cpus=1), {}))

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(engine, "_spark_table", fails)
    ended = call("outliers", tmp_path, "--spark", "local[1]")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines() == [
        f"pciescope-fleet: Spark at local[1]: {told}",
        "hint: every worker must reach the dataset by the same address; for a URL it needs pciescope-fleet too",
    ]
    assert spark.stopped == 1
    # What is not of Spark stays a fault.
    monkeypatch.setattr(engine, "_spark_table", lambda *_: [][0])
    assert "this is a fault of pciescope-fleet itself" in call("outliers", tmp_path, "--spark", "local[1]").err


def test_a_worker_of_spark_reads_files_with_the_columns_of_today() -> None:
    store = Store("memory://workers")
    rows = pa.table({"host_key": ["a", "b"], "run": ["0", "1"], "of_later": [1, 2]})
    paths = []
    for name, part in (("old", rows.slice(0, 1)), ("new", rows.slice(1))):
        paths.append(f"{store.root}/{name}.parquet")
        with store.fs.open(paths[-1], "wb") as out:
            pq.write_table(part, out)
    listed = [pa.record_batch({"path": pa.array(given, pa.string())}) for given in (paths[:1], [], paths[1:])]
    read = pa.Table.from_batches(engine.read_files(store.url, {}, TABLES["runs"], iter(listed)), TABLES["runs"])
    assert read.select(["host_key", "run", "kernel"]).to_pylist() == [
        {"host_key": "a", "run": "0", "kernel": None},
        {"host_key": "b", "run": "1", "kernel": None},
    ]
    missing = pa.record_batch({"path": ["none.parquet"]})
    with pytest.raises(FileNotFoundError):
        list(engine.read_files(store.url, {}, TABLES["runs"], iter([missing])))


def test_one_listing_of_a_table_tells_what_was_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a request for each of 500 files: that is what a remote store charges and takes time for."""
    store = Store(str(tmp_path))
    asked: Counter[str] = Counter()
    paths: dict[str, list[str]] = {}
    for table in ("runs", "figures"):
        rows = TABLES[table].empty_table()
        for host in range(250):
            store.write_part(table, "2026-11-22", Copy(f"n{host}", f"{host:016x}", 1), rows, [1])
        paths[table] = store.kept(table).files()
        assert len(paths[table]) == 250

    def counted(of: Any, name: str) -> Callable[..., Any]:
        real = getattr(of, name)

        def calls(*typed: Any, **more: Any) -> Any:
            asked[name] += 1
            return real(*typed, **more)

        return calls

    # Of a folder fsspec itself asks for each entry.
    for of, name in ((store.fs, "exists"), (store.fs, "isfile"), (store.fs, "cat_file"), (store, "_find")):
        monkeypatch.setattr(of, name, counted(of, name))
    with engine.open_engine(None) as duckdb:
        for table, half in (("runs", 100), ("runs", 250), ("figures", 250)):
            duckdb.table(store, table, paths[table][:half])
        asked.clear()
        assert not duckdb.has_lost_files()
        assert asked == {"_find": 2}
        Path(paths["runs"][200]).unlink()
        assert duckdb.has_lost_files()
