"""The engines that count: DuckDB in this process, or a cluster of Spark. Both take the same Ibis expressions.

Nothing else in the package knows which of them it talks to.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ibis
import ibis.expr.types as ir
import pyarrow as pa
from pyarrow.dataset import dataset

from pciescope_fleet.dataset.schema import TABLES
from pciescope_fleet.dataset.store import Store
from pciescope_fleet.errors import FleetError


class Engine:
    """A connection of Ibis, and how it reads a dataset's files."""

    def __init__(self, connection: Any, name: str) -> None:
        """Takes a connection of Ibis; `name` is `duckdb` or `spark`."""
        self.connection = connection
        self.name = name
        self._asked: dict[Store, set[str]] = {}

    def has_lost_files(self) -> bool:
        """Whether files that it was to read are there no more: a compaction has removed them meanwhile."""
        return any(store.has_lost(paths) for store, paths in self._asked.items())

    def keep(self, table: ir.Table) -> ir.Table:
        """The table, counted once and kept until the engine is closed."""
        if self.name == "duckdb":
            kept: ir.Table = self.connection.create_table(ibis.util.gen_name("fleet_kept"), table, temp=True)
            return kept
        # Ibis's own cache() forgets tables of this process that the expression joins. A checkpoint also cuts the plan,
        # which else grows with each step until Spark takes longer to read it than to count.
        name = ibis.util.gen_name("fleet_kept")
        self.connection.create_view(f"{name}_plan", table)
        session = self.connection._session
        session.table(f"{name}_plan").localCheckpoint().createTempView(name)
        found: ir.Table = self.connection.table(name)
        return found

    def table(self, store: Store, table: str, paths: Sequence[str]) -> ir.Table:
        """These files as a table with the columns of today: those that older files lack are null."""
        schema = ibis.Schema.from_pyarrow(TABLES[table])
        if not paths:
            return ibis.memtable(TABLES[table].empty_table())
        self._asked.setdefault(store, set()).update(paths)
        doubled = store.doubled(table, paths)
        parts = [[path for path in paths if path not in doubled], *([path] for path in doubled)]
        tables = []
        for part in filter(None, parts):
            found = self._read(store, table, part)
            known = found.columns
            rows = found.select(
                [
                    (found[name].cast(kind) if name in known else ibis.null(kind)).name(name)
                    for name, kind in schema.items()
                ]
            )
            if part[0] in doubled:
                # Two writers took the same runs: those that count are in another file.
                keys = pa.Table.from_pylist([{"host_key": key, "run": run} for key, run in sorted(doubled[part[0]])])
                rows = rows.anti_join(ibis.memtable(keys), ["host_key", "run"])
            tables.append(rows)
        return ibis.union(*tables) if len(tables) > 1 else tables[0]

    def _read(self, store: Store, table: str, paths: list[str]) -> ir.Table:
        name = ibis.util.gen_name("fleet_read")
        if self.name == "spark":
            return _spark_table(self.connection, name, store, paths)
        duck = self.connection.con
        if store.is_local:
            duck.read_parquet(paths, union_by_name=True, hive_partitioning=False).create_view(name)
        else:
            # DuckDB's own driver for S3 is an extension that it downloads; with one of fsspec's its threads wait for
            # each other.
            duck.register(name, dataset(paths, TABLES[table], filesystem=store.fs, format="parquet"))
        found: ir.Table = self.connection.table(name)
        return found


def _spark_table(connection: Any, name: str, store: Store, paths: list[str]) -> ir.Table:
    """Spark reads the files itself: every worker must reach the store by the same address."""
    urls = [store.fs.unstrip_protocol(path).replace("s3://", "s3a://", 1) for path in paths]
    frame = connection._session.read.option("mergeSchema", "true").parquet(*urls)
    frame.createOrReplaceTempView(name)
    found: ir.Table = connection.table(name)
    return found


@contextmanager
def open_engine(
    address: str | None, memory: str | None = None, threads: int | None = None, store: Store | None = None
) -> Iterator[Engine]:
    """DuckDB, or Spark at an address such as `spark://HOST:7077` or `local[2]`. Closes it in the end.

    Spark gets what it needs to reach the `store`.
    """
    if address is None:
        with tempfile.TemporaryDirectory(prefix="pciescope-fleet-") as spilled:
            yield from _duckdb(memory, threads, spilled)
        return
    session = _session(address, {} if store is None else _of_hadoop(store))
    try:
        yield Engine(ibis.pyspark.connect(session), "spark")
    except Exception as error:
        if any(kind.__module__.partition(".")[0] in ("pyspark", "py4j") for kind in type(error).__mro__):
            raise FleetError(
                f"Spark at {address}: {_first_line(error)}",
                "every worker must reach the dataset by the same address; for S3 the cluster needs hadoop-aws",
            ) from error
        raise
    finally:
        # A session whose Java has ended cannot be stopped.
        with contextlib.suppress(Exception):
            session.stop()


def _first_line(error: Exception) -> str:
    """What an error of Java or Spark says, without its stack."""
    lines = (line.strip(": ") for line in str(error).splitlines())
    said = (line for line in lines if line and not line.startswith("An error occurred while calling"))
    return next(said, type(error).__name__)


def _duckdb(memory: str | None, threads: int | None, spilled: str) -> Iterator[Engine]:
    connection = ibis.duckdb.connect()
    try:
        # What does not fit into memory would else go to a folder in the current one.
        connection.raw_sql(f"SET temp_directory = '{spilled}'")
        if memory is not None:
            connection.raw_sql(f"SET memory_limit = '{memory}'")
        if threads is not None:
            connection.raw_sql(f"SET threads = {threads}")
        yield Engine(connection, "duckdb")
    except Exception as error:
        import duckdb

        if isinstance(error, duckdb.OutOfMemoryException):
            raise FleetError(f"DuckDB: {str(error).splitlines()[0]}", "--memory, or --spark") from error
        if isinstance(error, duckdb.IOException | duckdb.InvalidInputException):
            raise FleetError(f"DuckDB cannot read: {str(error).splitlines()[0]}", "ingest that day anew") from error
        raise
    finally:
        connection.disconnect()


def _of_hadoop(store: Store) -> dict[str, str]:
    """The store's options as Spark's driver of S3 has them: Spark reads the files itself."""
    told: dict[str, str] = {}
    for name, value in store.options.items():
        if store.is_s3 and name == "anon" and not value:
            continue
        if not store.is_s3 or name not in OF_S3:
            known = ", ".join(OF_S3)
            raise FleetError(
                f"--store-option {name}: Spark reads {store.url} itself, and of these options it can only take those "
                f"of S3: {known}",
                "the cluster's own settings in its spark-defaults.conf, or no --spark",
            )
        told.update({f"spark.hadoop.fs.s3a.{key}": text or str(value) for key, text in OF_S3[name].items()})
    return told


def _session(address: str, more: dict[str, str]) -> Any:
    # Ibis 12 asks for what pandas 3 has no more only where it is told to.
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", os.sys.executable)  # type: ignore[attr-defined]
    builder = SparkSession.builder.master(address).appName("pciescope-fleet")
    # Nothing is kept there; by default Spark makes a folder in the current one.
    builder = builder.config("spark.sql.warehouse.dir", tempfile.gettempdir())
    for key, value in {**SPARK, **more}.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
        # Spark's default is 200, each with a cost of its own: too many for a small cluster.
        session.conf.set("spark.sql.shuffle.partitions", str(max(4, 2 * session.sparkContext.defaultParallelism)))
        return session
    except Exception as error:
        raise FleetError(
            f"Spark at {address}: {_first_line(error)}", "the address of the master, and a Java runtime"
        ) from error


SPARK = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Texts of Java are read as they are; a NaN and a null are no error in a median.
    "spark.sql.ansi.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # What a cluster's own files may set otherwise: a file that cannot be read is an error, and an expression means the
    # same everywhere.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
}
"""How a session of ours is set; what a cluster's own files say of memory and cores stays."""

OF_S3: dict[str, dict[str, str | None]] = {
    # A store at an address of its own has no names of buckets in the DNS.
    "endpoint_url": {"endpoint": None, "path.style.access": "true"},
    "key": {"access.key": None},
    "secret": {"secret.key": None},
    "token": {"session.token": None},
    "anon": {"aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"},
}
"""By the name of an option of s3fs: what Spark's driver of S3 calls the same, with its value where that is another."""
