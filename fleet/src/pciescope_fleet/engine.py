"""The engines that count: DuckDB in this process, or a cluster of Spark. Both take the same Ibis expressions.

Nothing else in the package knows which of them it talks to.
"""

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import fsspec
import ibis
import ibis.expr.types as ir
import pandas as pd
import pyarrow as pa
from pyarrow.dataset import dataset

from pciescope_fleet.dataset import machines
from pciescope_fleet.dataset.schema import TABLES
from pciescope_fleet.dataset.store import AGAIN, Store
from pciescope_fleet.errors import FleetError


class Engine:
    """A connection of Ibis, and how it reads a dataset's files."""

    def __init__(self, connection: Any, name: str) -> None:
        self.connection = connection
        self.name = name
        self._asked: dict[Store, set[str]] = {}
        self._renamed: dict[Store, dict[str, machines.Named]] = {}

    def has_lost_files(self) -> bool:
        """Whether files that it was to read are there no more: a compaction has removed them meanwhile."""
        return any(store.has_lost(paths) for store, paths in self._asked.items())

    def renamed(self, store: Store) -> dict[str, machines.Named]:
        """By the key of a machine's earlier name: what it is called now."""
        if store not in self._renamed:
            paths = machines.files(store)
            self._asked.setdefault(store, set()).update(paths)
            self._renamed[store] = machines.renamed(store, paths)
        return self._renamed[store]

    def keep(self, table: ir.Table, number: str | None = None) -> ir.Table:
        """The table, counted once and kept until the engine is closed.

        `number` is the name of a column to add: an integer that each row has for itself.
        """
        if self.name == "duckdb":
            table = table if number is None else table.mutate(ibis.row_number().name(number))
            kept: ir.Table = self.connection.create_table(ibis.util.gen_name("fleet_kept"), table, temp=True)
            return kept
        # Ibis's own cache() forgets tables of this process that the expression joins. A checkpoint also cuts the plan,
        # which else grows with each step until Spark takes longer to read it than to count.
        name = ibis.util.gen_name("fleet_kept")
        self.connection.create_view(f"{name}_plan", table)
        session = self.connection._session
        frame = session.table(f"{name}_plan")
        if number is not None:
            from pyspark.sql.functions import monotonically_increasing_id

            # The number of a row among all would send all rows through one task.
            frame = frame.withColumn(number, monotonically_increasing_id())
        frame.localCheckpoint().createTempView(name)
        found: ir.Table = self.connection.table(name)
        return found

    def table(self, store: Store, table: str, paths: Sequence[str]) -> ir.Table:
        """These files as a table with the columns of today: those that older files lack are null.

        A machine has its newest name in all rows.
        """
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
                keys = pa.table({"run": sorted(doubled[part[0]])})
                rows = rows.anti_join(ibis.memtable(keys), "run")
            tables.append(rows)
        rows = ibis.union(*tables) if len(tables) > 1 else tables[0]
        if not (renamed := self.renamed(store)):
            return rows
        names = [(key, *now) for key, now in renamed.items()]
        known = rows.left_join(
            ibis.memtable(pd.DataFrame(names, columns=["was", "key", "name"])), [("host_key", "was")]
        )
        new = {"host_key": ibis.coalesce(known.key, known.host_key), "host": ibis.coalesce(known.name, known.host)}
        return known.mutate(**new).drop("was", "key", "name")

    def _read(self, store: Store, table: str, paths: list[str]) -> ir.Table:
        name = ibis.util.gen_name("fleet_read")
        if self.name == "spark":
            return _spark_table(self.connection, name, store, table, paths)
        duck = self.connection.con
        if store.is_local:
            duck.read_parquet(
                [literal(path) for path in paths], union_by_name=True, hive_partitioning=False
            ).create_view(name)
        else:
            # DuckDB's own driver for S3 is an extension that it downloads; with one of fsspec's its threads wait for
            # each other.
            duck.register(name, dataset(paths, TABLES[table], filesystem=store.fs, format="parquet"))
        found: ir.Table = self.connection.table(name)
        return found


def literal(path: str) -> str:
    """A path as DuckDB takes it: the signs of a pattern stand for themselves."""
    return re.sub(r"([\[*?])", r"[\1]", path)


def _spark_table(connection: Any, name: str, store: Store, table: str, paths: list[str]) -> ir.Table:
    """The workers read the files: every one of them must reach the store by the same address."""
    session = connection._session
    if store.is_local:
        names = [re.sub(r"([\\\[\]{}*?])", r"\\\1", store.fs.unstrip_protocol(path)) for path in paths]
        frame = session.read.option("mergeSchema", "true").parquet(*names)
    else:
        from pyspark.sql.pandas.types import from_arrow_schema

        # Spark's own drivers of remote stores are Java modules that pyspark lacks, and have options of their own.
        listed = session.createDataFrame([(path,) for path in paths], "path string")
        spread = listed.repartition(min(len(paths), 4 * session.sparkContext.defaultParallelism))
        read = partial(read_files, store.url, store.options, TABLES[table])
        frame = spread.mapInArrow(read, from_arrow_schema(TABLES[table]))
    frame.createOrReplaceTempView(name)
    found: ir.Table = connection.table(name)
    return found


def read_files(
    url: str, options: dict[str, Any], schema: pa.Schema, listed: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of the files whose paths are in the batches' column `path`, as a worker of Spark reads them.

    Columns that a file lacks are null. `url` and `options` are those of the store.
    """
    fs, _ = fsspec.core.url_to_fs(url, **options)
    for batch in listed:
        if batch.num_rows:
            yield from dataset(batch["path"].to_pylist(), schema, filesystem=fs, format="parquet").to_batches()


@contextmanager
def open_engine(address: str | None, memory: str | None = None, threads: int | None = None) -> Iterator[Engine]:
    """DuckDB, or Spark at an address such as `spark://HOST:7077` or `local[2]`. Closes it in the end."""
    if address is None:
        with tempfile.TemporaryDirectory(prefix="pciescope-fleet-") as spilled:
            yield from _duckdb(memory, threads, spilled)
        return
    session = _session(address)
    try:
        yield Engine(ibis.pyspark.connect(session), "spark")
    except Exception as error:
        if any(kind.__module__.partition(".")[0] in ("pyspark", "py4j") for kind in type(error).__mro__):
            raise FleetError(
                f"Spark at {address}: {_what_it_says(error)}",
                "every worker must reach the dataset by the same address; for a URL it needs pciescope-fleet too",
            ) from error
        raise
    finally:
        # A session whose Java has ended cannot be stopped.
        with contextlib.suppress(Exception):
            session.stop()


def _what_it_says(error: Exception) -> str:
    """What an error of Java, of Spark or of a worker's Python says, without its stack."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    if any(line.startswith("Traceback ") for line in lines):
        # A stack of Python has the error itself last.
        lines = [line for line in lines if not line.startswith((" ", "\t"))][-1:]
    said = (line.strip(": ") for line in lines if not line.startswith("An error occurred while calling"))
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
            raise FleetError(f"DuckDB cannot read: {str(error).splitlines()[0]}", AGAIN) from error
        raise
    finally:
        connection.disconnect()


def _session(address: str) -> Any:
    # Ibis 12 asks for what pandas 3 has no more only where it is told to.
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", os.sys.executable)  # type: ignore[attr-defined]
    builder = SparkSession.builder.master(address).appName("pciescope-fleet")
    # Nothing is kept there; by default Spark makes a folder in the current one.
    builder = builder.config("spark.sql.warehouse.dir", tempfile.gettempdir())
    for key, value in SPARK.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
        # Spark's default is 200, each with a cost of its own: too many for a small cluster.
        session.conf.set("spark.sql.shuffle.partitions", str(max(4, 2 * session.sparkContext.defaultParallelism)))
        return session
    except Exception as error:
        raise FleetError(
            f"Spark at {address}: {_what_it_says(error)}", "the address of the master, and a Java runtime"
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
