"""How the time and memory of `ingest` and `outliers` grow with the fleet, on DuckDB and on Spark.

    python bench/scale.py run FILE [--engine duckdb|spark] [--rows 100000,1000000,...]
    python bench/scale.py run FILE --cpus 32 [--hosts 100,1000,...]
    python bench/scale.py table FILE

A dataset of N rows is N/3000 hosts with 100 figures on 30 days: rows of `figures`, each with percentiles, their errors
and a form, one file a day, as `ingest --compact` leaves it. One host in 200 is a tenth slower. Each day has runs of its
own; `outliers` must find the newest. These hosts measured from one CPU. With `--cpus 32` there is one day, and a row
for each CPU beside that over all. `run` makes a dataset once, then runs the command in a process of its own: `--threads
2 --memory 3GB`, on Spark a cluster of a master and two workers with one core each, also processes. It notes time, the
process's greatest memory and what was found, and goes on where it was ended.

`ingest` is measured on files of records: 200 hosts with 100 figures of 1000 samples.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import hashlib
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import pyarrow as pa

import planted
import sample
from pciescope_fleet.dataset.store import Store
from spark_cluster import cluster

FIGURES, DAYS = 100, 30
ROWS = [100_000, 300_000, 1_000_000, 3_000_000, 10_000_000, 30_000_000]
PERCENT = 0.1


PART = 1000
"""Hosts that are drawn at a time where there are many CPUs: all of them would take tens of GB."""


def make_of_cpus(place: Path, hosts: int, cpus: int) -> None:
    """The dataset of one day, with rows for each CPU. Beyond `PART` hosts the same come again by other names."""
    for first in range(0, hosts, PART):
        count = min(PART, hosts - first)
        shape = planted.Shape(hosts=count, figures=FIGURES, samples=10 * cpus, cpus=cpus)
        faults = {(host, f): ("median", PERCENT) for host in range(0, count, 200) for f in range(FIGURES)}
        fleet = planted.make(shape, faults, run=first)
        parts = (renamed(table, first) for table in (fleet.figures, fleet.runs))
        planted.keep(Store(str(place)), planted.Fleet(*parts))


def renamed(table: pa.Table, first: int) -> pa.Table:
    """The same rows of hosts whose numbers begin at `first`."""
    names = table["host"].combine_chunks().dictionary_encode()
    others = pa.array([planted.host_name(int(name[4:]) + first) for name in names.dictionary.to_pylist()])
    for name in ("host", "host_key"):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(name), others.take(names.indices))
    return table


def make(place: Path, rows: int) -> None:
    """The dataset. Forms and percentiles are drawn once; each day has its own runs."""
    shape = planted.Shape(hosts=max(rows // (FIGURES * DAYS), 20), figures=FIGURES, samples=200, cpus=1)
    faults = {(host, f): ("median", PERCENT) for host in range(0, shape.hosts, 200) for f in range(FIGURES)}
    fleet = planted.make(shape, faults)
    for day in range(DAYS):
        date = f"{datetime.date(2026, 10, 24) + datetime.timedelta(days=day)}"
        moment = datetime.datetime.fromisoformat(f"{date}T08:00:00+00:00")
        planted.keep(
            Store(str(place)), planted.Fleet(*(on_day(t, date, moment, day) for t in (fleet.figures, fleet.runs)))
        )


def on_day(table: pa.Table, date: str, moment: datetime.datetime, day: int) -> pa.Table:
    """The same rows of another day and of other runs."""
    runs = pa.array([f"{day:08x}{run[8:]}" for run in table["run"].unique().to_pylist()])
    index = table["run"].combine_chunks().dictionary_encode().indices
    values: dict[str, Any] = {"date": pa.repeat(pa.scalar(date), len(table)), "run": runs.take(index)}
    for name in ("time", "last_time", "ingested"):
        if name in table.column_names:
            values[name] = pa.repeat(pa.scalar(moment, table.schema.field(name).type), len(table))
    for name, column in values.items():
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), column)
    return table


def measured(*typed: str) -> dict[str, Any]:
    """Runs the command; its time, greatest memory and what it found."""
    before = time.monotonic()
    told = subprocess.Popen([sys.executable, "-m", "pciescope_fleet", *typed], stdout=subprocess.PIPE, text=True)
    assert told.stdout is not None
    text = told.stdout.read()
    _, status, used = os.wait4(told.pid, 0)
    took = time.monotonic() - before
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 1), f"{typed}: exit code {code}"
    result: dict[str, Any] = {
        "seconds": round(took, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "mb": used.ru_maxrss // 1000,
    }
    if text.startswith("{"):
        judged = json.loads(text)
        hosts = sorted({host for finding in judged.get("findings", []) for host in finding["hosts"]})
        found = sorted((o["host_key"], o["device"], o["figure"], o["statistic"]) for o in judged.get("outliers", []))
        digest = hashlib.sha256(json.dumps(found).encode()).hexdigest()[:12]
        result.update(hosts=len(hosts), outliers=len(found), digest=digest)
    return result


def run(args: argparse.Namespace) -> None:
    done = [json.loads(line) for line in args.file.read_text().splitlines()] if args.file.exists() else []
    known = {(record["engine"], record["rows"]) for record in done}

    def note(record: dict[str, Any]) -> None:
        with args.file.open("a") as out:
            out.write(json.dumps(record) + "\n")
        print(json.dumps(record), flush=True)

    if args.engine == "duckdb" and args.cpus == 1 and ("ingest", 20_000) not in known:
        note({"engine": "ingest", "rows": 20_000, **ingest(200)})
    with contextlib.ExitStack() as stack:
        options = ["--threads", "2", "--memory", "3GB"]
        if args.engine == "spark":
            options = ["--spark", stack.enter_context(cluster())]
        cpus = args.cpus
        for size in args.rows if cpus == 1 else args.hosts:
            rows = size if cpus == 1 else size * FIGURES * (1 + cpus)
            if (args.engine, rows) in known:
                continue
            place = args.file.parent / f"rows-{rows}"
            if not (place / "whole").exists():
                # In a process of its own: Linux counts the memory of who starts a program as the program's.
                made = (make, (place, rows)) if cpus == 1 else (make_of_cpus, (place, size, cpus))
                maker = multiprocessing.get_context("spawn").Process(target=made[0], args=made[1])
                maker.start()
                maker.join()
                assert maker.exitcode == 0
                (place / "whole").touch()
            told = measured("outliers", str(place), "--json", *options)
            note({"engine": args.engine, "rows": rows, "cpus": cpus, **told})


def ingest(hosts: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        size = 0
        for host in range(hosts):
            records = sample.run(host + 1, f"node{host:05d}", cpus=1)
            last = records[1]
            more = [{**last, "target": {"bar": 0, "offset": 8 * n, "width": 4}} for n in range(FIGURES)]
            size += sample.write(Path(folder) / "in" / f"node{host:05d}.jsonl", [records[0], *more]).stat().st_size
        told = measured("ingest", "--json", "--compact", f"{folder}/in", f"{folder}/out")
    return {**told, "input_mb": round(size / 1e6, 1), "hosts": hosts}


def table(file: Path) -> None:
    records = [json.loads(line) for line in file.read_text().splitlines()]
    print("| rows | CPUs | engine | time (s) | CPU (s) | memory (MB) | hosts found | outliers |")
    print("|---|---|---|---|---|---|---|---|")
    for record in sorted(records, key=lambda each: (each["rows"], each["engine"])):
        print(
            "| {rows} | {cpus} | {engine} | {seconds} | {cpu_seconds} | {mb} | {hosts} | {outliers} |".format(
                **{"outliers": "", "cpus": 1, **record}
            )
        )
    by_rows: dict[int, dict[str, str]] = {}
    for record in records:
        if "digest" in record:
            by_rows.setdefault(record["rows"], {})[record["engine"]] = record["digest"]
    for rows, digests in sorted(by_rows.items()):
        if len(digests) > 1:
            word = "the same" if len(set(digests.values())) == 1 else "DIFFERENT"
            print(f"{rows} rows: {word} outliers on {', '.join(sorted(digests))}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    runs = verbs.add_parser("run")
    runs.add_argument("file", type=Path)
    runs.add_argument("--engine", choices=["duckdb", "spark"], default="duckdb")
    runs.add_argument("--rows", type=lambda text: [int(size) for size in text.split(",")], default=ROWS)
    runs.add_argument("--cpus", type=int, default=1)
    runs.add_argument("--hosts", type=lambda text: [int(size) for size in text.split(",")], default=[100, 1000, 3333])
    runs.set_defaults(run=run)
    tables = verbs.add_parser("table")
    tables.add_argument("file", type=Path)
    tables.set_defaults(run=lambda args: table(args.file))
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
