"""Parquet files of pciescope, read by others' readers and compared with the JSON lines that they were made of.

What is expected is worked out here from the JSON lines alone: rows, sums, percentiles, texts, numbers above 2^63, nulls.
The queries of docs/record.md are run as they stand there.
"""

import datetime
import gzip
import json
import math
import pathlib
import re
import subprocess
import sys

import duckdb
import pandas
import polars
import pyarrow.parquet

ROOT = pathlib.Path(__file__).resolve().parents[2]
PERCENTILES = {"p50": 50, "p90": 90, "p95": 95, "p99": 99, "p999": 99.9, "p9999": 99.99}


def strange_records():
    """Records with what breaks readers: quotes, newlines, other scripts, numbers past 2^53 and 2^63, null, no figures."""
    base = {"schema": 1, "run": "00000000000000f1", "time": "1969-12-31T23:59:59.999999Z", "test": "mmio-read"}
    high = 2**64 - 1
    yield {
        **base,
        "verb": 'say "hi", \'there\';\r\n\tthen \\ \u0000 \u202e \U0001f600 \u0639\u0631\u0628\u064a',
        "label": "=cmd|' /C calc'!A0",
        "device": {"bdf": "10000:e1:1f.7", "vendor": 65535, "device": 0, "class": 0, "name": "a\nb\"c", "msix_vectors": 0,
                   "msi_vectors": 0},
        "target": {"offset": high, "irq": 2**32 - 1, "width": 8, "vector": 65535},
        "cpu": {"cpu": 2**32 - 1},
        "interval": {"start_ns": 2**63, "end_ns": high},
        "stream": {"function": "func_sca", "is_fused": True, "samples": high, "group": 7, "check": "lab:1"},
        "histograms": {
            "few": {"count": 1, "sum_ps": "5", "min_ps": 5, "max_ps": 5, "buckets": [[5, 1]]},
            "none": {"count": 0, "sum_ps": "0", "min_ps": 0, "max_ps": 0, "buckets": []},
            "many": {"count": 2**63 + 10, "sum_ps": str(7 * 2**63 + 10_000), "min_ps": 7, "max_ps": 1000,
                     "buckets": [[7, 2**63], [1000, 10]], "min_at_ns": 0, "max_at_ns": high},
        },
        "metrics": {"missing": {"value": None, "unit": "1"}, "negative": {"value": -1.5, "unit": "%"},
                    "least": {"value": 5e-324, "unit": "ns"}, "most": {"value": 1.7976931348623157e308, "unit": "bytes"},
                    "scaled": {"value": 0, "unit": "1", "running": 0.25, "at_least": True}},
        "warnings": [{"code": "guest", "text": "", "hint": ""}, {"code": "aspm", "text": "", "hint": ""}],
    }
    yield {**base, "time": "2026-11-22T08:00:00.5Z", "verb": "v", "error": {"code": "removed", "text": "gone\n\"for good\""}}
    # No figures and no error: no row. Its run is another, and described.
    yield {**base, "run": "00000000000000f2", "verb": "environment", "test": "environment", "label": "a \"b\"\n",
           "environment": {"tool": "0.1.0", "kernel": "6.12 \u00e9", "machine": "x86_64", "host": {"name": "n\u00e9", "serial": "S \"1\""},
                           "bios_version": "2.1", "cpus": [{"cpu": 0, "node": 0, "package": 0},
                           {"cpu": 2**32 - 1, "node": 1, "package": 0}], "governors": ["performance", "powersave"],
                           "iommu_groups": 2**32 - 1, "steal_ns": 2**64 - 1},
           "plan": {"stat": {"events": ["a/b/", "\"c\""], "interval_ns": 5}}}
    yield {**base, "run": "00000000000000f3", "time": "no time", "verb": "doctor", "test": "doctor", "label": "=1",
           "findings": [
               {"check": "link-width", "severity": "problem", "bdf": "0000:00:1c.0", "text": "x4 \"of\" x8\n", "consequence": "half",
                "remedy": "", "evidence": [{"source": "/sys/a", "value": "4"}, {"source": "LnkSta \u202e", "value": ""}]},
               {"check": "smt", "severity": "note", "text": "on", "consequence": "", "remedy": "off", "silenced": True}]}
    yield {**base, "run": "00000000000000f2", "verb": "later", "time": "2026-11-22T08:00:01Z", "error": {"code": "removed", "text": ""}}
    yield {**base, "verb": "spots", "hot_spots": [{"percent": 12.5, "object": "[kernel]", "symbol": "x", "is_kernel": True}]}


def moment(time):
    return None if time == "no time" else datetime.datetime.fromisoformat(time.replace("Z", "+00:00"))


def rows_of(records):
    """The rows that a file of these records has to hold: what is known of each, by column."""
    for number, record in enumerate(records):
        common = {"record": number}
        common.update({key: record.get(key) for key in ("run", "verb", "label", "test")})
        common["time"] = moment(record["time"])
        device, target = record.get("device", {}), record.get("target", {})
        common.update(device=device.get("bdf"), device_name=device.get("name"), vendor_id=device.get("vendor"),
                      offset=target.get("offset"), irq=target.get("irq"), vector=target.get("vector"),
                      width=target.get("width"), hop=target.get("hop"), hop_bdf=target.get("hop_bdf"))
        common.update({key: record.get("cpu", {}).get(key) for key in ("cpu", "node", "package", "l3", "thread")})
        common.update({key: record.get("instance", {}).get(key) for key in ("pmu", "scope")})
        common.update({key: record.get("interval", {}).get(key) for key in ("start_ns", "end_ns")})
        stream = record.get("stream", {})
        common.update({key: stream.get(key) for key in ("path", "access", "function", "samples", "group", "depth")})
        common["compared_with"] = stream.get("check")
        method = record.get("method", {})
        common.update({key: method.get(key) for key in ("batch", "gap_ns", "irqs_off", "quantum_ns")})
        common["is_fused"] = stream.get("is_fused", False) if stream else None
        common["error"] = record.get("error", {}).get("code")
        common["error_text"] = record.get("error", {}).get("text") or None
        common["warnings"] = " ".join(sorted({warning["code"] for warning in record.get("warnings", [])})) or None
        before = 0
        for name, histogram in sorted(record.get("histograms", {}).items()):
            before += 1
            row = {"kind": "histogram", "name": name, "unit": "ns", "count": histogram["count"], "value": None,
                   "sum_ps": int(histogram["sum_ps"]), "min_at_ns": histogram.get("min_at_ns"),
                   "max_at_ns": histogram.get("max_at_ns"), "low": [low for low, _ in histogram["buckets"]],
                   "counts": [count for _, count in histogram["buckets"]]}
            for column, percent in PERCENTILES.items():
                row[column] = percentile(histogram, percent)
            row["max"] = histogram["max_ps"] / 1000 if histogram["count"] else None
            row["min"] = histogram["min_ps"] / 1000 if histogram["count"] else None
            row["mean"] = int(histogram["sum_ps"]) / histogram["count"] / 1000 if histogram["count"] else None
            yield {**common, **row}
        empty = {"count": None, "sum_ps": None, "low": None, "counts": None, "p99": None, "max": None}
        for name, metric in sorted(record.get("metrics", {}).items()):
            before += 1
            yield {**common, **empty, "kind": "metric", "name": name, "unit": metric["unit"], "value": metric["value"],
                   "running": metric.get("running"), "at_least": metric.get("at_least", False)}
        for spot in record.get("hot_spots", []):
            before += 1
            yield {**common, **empty, "kind": "hot spot", "name": f"{spot['object']} {spot['symbol']}", "unit": "%",
                   "value": spot["percent"]}
        if before == 0 and "error" in record:
            yield {**common, **empty, "kind": "error", "name": None, "unit": None, "value": None}


def runs_of(records):
    """The rows of the table of runs."""
    runs = {}
    for record in records:
        run = runs.setdefault(record["run"], {"run": record["run"], "verb": record["verb"], "label": None, "records": 0, "errors": 0,
                                              "times": [], "environment": None, "plan": None})
        run["records"] += 1
        run["errors"] += "error" in record
        for field in ("label", "environment", "plan"):
            run[field] = run[field] if run[field] is not None else record.get(field)
        run["times"] += [time for time in [moment(record["time"])] if time is not None]
    for run in runs.values():
        times, environment = run.pop("times"), run["environment"] or {}
        run["first_time"], run["last_time"] = min(times, default=None), max(times, default=None)
        host = environment.get("host", {})
        run.update(host=host.get("name"), host_id=host.get("id"), serial=host.get("serial"))
        for field in ("tool", "kernel", "machine", "product", "bios_version", "bios_date", "cpu_model", "cmdline", "clocksource",
                      "aspm_policy", "lockdown", "hypervisor", "iommu_groups", "steal_ns"):
            value = environment.get(field)
            run[field] = None if value == "" else value
        for field in ("governors", "idle_states"):
            run[field] = " ".join(environment.get(field, [])) or None
        cpus = environment.get("cpus")
        run["cpus"] = None if cpus is None else len(cpus)
        for column, field in (("nodes", "node"), ("packages", "package")):
            run[column] = len({cpu[field] for cpu in cpus or [] if field in cpu}) or None
        yield run


def findings_of(records):
    """The rows of the table of findings, warnings and errors."""
    for number, record in enumerate(records):
        common = {"record": number, "run": record["run"], "label": record.get("label")}
        for finding in record.get("findings", []):
            yield {**common, "kind": "finding", "check": finding["check"], "severity": finding["severity"],
                   "silenced": finding.get("silenced", False), "device": finding.get("bdf"), "text": finding["text"],
                   "consequence": finding["consequence"] or None, "remedy": finding["remedy"] or None,
                   "evidence": finding.get("evidence", [])}
        said = {**common, "silenced": False, "device": record.get("device", {}).get("bdf"), "consequence": None, "evidence": []}
        for warning in record.get("warnings", []):
            yield {**said, "kind": "warning", "check": warning["code"], "severity": "warning",
                   "text": warning["text"] or None, "remedy": warning["hint"] or None}
        for error in [record["error"]] if "error" in record else []:
            yield {**said, "kind": "error", "check": error["code"], "severity": "problem",
                   "text": error["text"] or None, "remedy": error.get("hint") or None}


def hold_plain(reader, got, want):
    """Every column of every row of a table without buckets."""
    assert len(got) == len(want), f"{reader}: {len(got)} rows instead of {len(want)}"
    for number, (row, expected) in enumerate(zip(got, want)):
        for column, value in expected.items():
            found = row[column]
            if column in ("environment", "plan") and found is not None:
                # The record's own words: what it leaves out is left out here.
                found = json.loads(found)
            assert agree(found, value), f"{reader}: row {number}: {column} is {found!r}, not {value!r}"


def width(low):
    """The width of the bucket that begins at `low` picoseconds: 2048 buckets, then half as many for each power of two."""
    return 1 if low < 2048 else 2 ** (low.bit_length() - 11)


def percentile(histogram, percent):
    """The upper edge of the bucket with that rank, in nanoseconds; None where the samples are too few."""
    count = histogram["count"]
    needed = 10 if percent <= 50 else 10 / (1 - percent / 100)
    if count < needed * (1 - 1e-9):
        return None
    rank, below = max(1, math.ceil(round(percent * 100) * count / 10000)), 0
    for low, more in histogram["buckets"]:
        below += more
        if below >= rank:
            return min(max(low + width(low) - 1, histogram["min_ps"]), histogram["max_ps"]) / 1000
    return None


def agree(got, want):
    if isinstance(want, float) and isinstance(got, float):
        return got == want or math.isclose(got, want, rel_tol=1e-12)
    if isinstance(want, int) and not isinstance(want, bool) and got is not None:
        return int(got) == want
    return got == want


def hold(reader, got, want):
    """Every column of every row that the JSON lines say something of."""
    assert len(got) == len(want), f"{reader}: {len(got)} rows instead of {len(want)}"
    for number, (row, expected) in enumerate(zip(got, want)):
        row = dict(row)
        buckets = row.pop("buckets")
        row["low"] = None if buckets is None else [bucket["low_ps"] for bucket in buckets]
        row["counts"] = None if buckets is None else [bucket["count"] for bucket in buckets]
        for bucket in buckets or []:
            assert bucket["high_ps"] == bucket["low_ps"] + width(bucket["low_ps"]) - 1, f"{reader}: {bucket}"
        for column, value in expected.items():
            assert agree(row[column], value), f"{reader}: row {number}: {column} is {row[column]!r}, not {value!r}"


def beside(path, table):
    """The file of another table of the same records."""
    return path.with_suffix(f".{table}.parquet")


def by_duckdb(path):
    db = duckdb.connect()
    db.execute("set timezone = 'UTC'")
    found = db.execute("select * from read_parquet(?)", [str(path)])
    names = [column[0] for column in found.description]
    return [dict(zip(names, row)) for row in found.fetchall()]


def by_polars(path):
    return polars.read_parquet(path).to_dicts()


def by_pyarrow(path):
    return pyarrow.parquet.read_table(path).to_pylist()


def by_pandas(path):
    # To Python's own objects by way of Arrow's types: numpy has no whole numbers with gaps.
    table = pandas.read_parquet(path, dtype_backend="pyarrow")
    assert len(table) == len(by_pyarrow(path))
    return pyarrow.Table.from_pandas(table, preserve_index=False).to_pylist()


READERS = [("DuckDB", by_duckdb), ("polars", by_polars), ("pyarrow", by_pyarrow), ("pandas", by_pandas)]


def types(path):
    """The columns have types that need no conversion."""
    table = polars.read_parquet(path)
    for column, kind in {"time": polars.Datetime("us", "UTC"), "offset": polars.UInt64, "cpu": polars.UInt32,
                         "width": polars.UInt8, "vendor_id": polars.UInt16, "value": polars.Float64,
                         "at_least": polars.Boolean, "verb": polars.String}.items():
        assert table.schema[column] == kind, f"{column} is {table.schema[column]}, not {kind}"
    schema = pyarrow.parquet.read_schema(path)
    assert str(schema.field("sum_ps").type) == "decimal128(38, 0)", schema.field("sum_ps").type
    assert str(schema.field("time").type) == "timestamp[us, tz=UTC]", schema.field("time").type


def examples(folder, files):
    """The queries of docs/record.md as they stand there; gives what each answers with."""
    part = (ROOT / "docs/record.md").read_text().split("\n## Parquet\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```(sql|python)\n(.*?)```", part, re.S)
    answers = []
    for language, text in blocks:
        for name, path in files.items():
            text = text.replace(f"'{name}.parquet'", f"'{path}'").replace(f'"{name}.parquet"', f'"{path}"')
        if language == "sql":
            answers.append(duckdb.sql(text).fetchall())
        else:
            names = {"pl": polars}
            *first, last = [line for line in re.split(r"\n(?=\S)", text.strip())]
            exec("\n".join(first), names)
            answers.append(eval(last, names).rows())
    return answers


def check_examples(folder, demo, stat, strange, demo_records, stat_records):
    by_cpu, by_cpu_again, by_node, ports, ports_again, by_kernel, problems = examples(
        folder, {"run": demo, "run.runs": beside(demo, "runs"), "run.findings": beside(strange, "findings"), "stat": stat})
    reads = [record for record in demo_records if record["test"] == "mmio-read" and "latency" in record.get("histograms", {})]
    want = sorted((record["cpu"]["node"], record["cpu"]["cpu"], percentile(record["histograms"]["latency"], 99))
                  for record in reads)
    assert by_cpu == want, by_cpu
    assert sorted(by_cpu_again) == want, by_cpu_again
    nodes = {}
    for record in reads:
        sums = nodes.setdefault(record["cpu"]["node"], {})
        for low, count in record["histograms"]["latency"]["buckets"]:
            sums[low] = sums.get(low, 0) + count
    for (node, got), (known, sums) in zip(by_node, sorted(nodes.items())):
        merged = {"count": sum(sums.values()), "buckets": sorted(sums.items()), "min_ps": 0, "max_ps": 2**63}
        assert (node, got) == (known, percentile(merged, 99)), (node, got, percentile(merged, 99))
    assert len(by_node) == len(nodes) > 0
    rates = [(record["interval"]["start_ns"] / 1e9, record["device"]["bdf"], record["metrics"]["rx_bytes_per_s"]["value"] / 1e6)
             for record in stat_records if record.get("instance", {}).get("scope") == "port" and "source" not in record["instance"]
             and "rx_bytes_per_s" in record.get("metrics", {})]
    assert ports == sorted(rates) and len(ports) > 1, ports
    assert len(ports_again) == len({rate[0] for rate in rates}), ports_again
    kernels = {record["run"]: record["environment"]["kernel"] for record in demo_records if "environment" in record}
    want = sorted((kernels[record["run"]], record["device"]["bdf"], record["cpu"]["cpu"],
                   percentile(record["histograms"]["latency"], 50)) for record in reads)
    assert by_kernel == want, by_kernel
    found = [finding for record in strange_records() for finding in record.get("findings", [])]
    want = sorted((finding["bdf"], finding["check"], finding["text"], finding["evidence"][0]["source"])
                  for finding in found if finding["severity"] == "problem" and not finding.get("silenced", False))
    assert problems == want and len(want) == 1, problems


def made_now(program, folder):
    """Files of other verbs: a readout of the synthetic digitizer, and foreign logs."""
    transcripts = ROOT / "tests/transcripts"
    for name, words in {
        "readout": ["readout", "--backend", "fake:model=ku", "-S", "4096"],
        "counted": ["import", transcripts / "pcie-3-read-timed.txt"],
        "timed": ["import", transcripts / "readout-6-cpu.txt"],
    }.items():
        file = folder / f"{name}.jsonl"
        words = [program, *words, "-o", file, "--overwrite"]
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        yield file


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    strange, stat = folder / "strange.jsonl", folder / "stat.jsonl"
    stat.write_bytes(gzip.decompress((ROOT / "crates/report/src/sample.jsonl.gz").read_bytes()))
    strange.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in strange_records()))
    made, known = {}, {}
    sources = [ROOT / "tests/records/demo.jsonl", stat, *made_now(program, folder), strange]
    for number, source in enumerate(sources):
        # By way of the records as the program writes them again.
        again, path = folder / f"{number}.jsonl", folder / f"{number}.parquet"
        runs, findings = beside(path, "runs"), beside(path, "findings")
        outputs = [word for file in (again, path, runs, findings) for word in ("-o", file)]
        subprocess.run([program, "report", source, *outputs], check=True, stdin=subprocess.DEVNULL)
        records = [json.loads(line) for line in again.read_text().split("\n") if line]
        if source == strange:
            records = list(strange_records())
        want = list(rows_of(records))
        for name, read in READERS:
            hold(f"{source.name}, {name}", read(path), want)
            hold_plain(f"runs of {source.name}, {name}", read(runs), list(runs_of(records)))
            hold_plain(f"findings of {source.name}, {name}", read(findings), list(findings_of(records)))
        total = sum(sum(row["counts"]) for row in want if row.get("counts"))
        summed = duckdb.sql(f"select sum(bucket.count) from (select unnest(buckets) as bucket from '{path}')").fetchall()[0][0]
        assert (summed or 0) == total, f"{source.name}: {summed} samples in the buckets, not {total}"
        types(path)
        made[source] = path
        known[path] = records
        print(f"parquet: {source.name}: {len(want)} rows, {total} samples: {', '.join(name for name, _ in READERS)} agree")
    demo, counted = made[sources[0]], made[stat]
    check_examples(folder, demo, counted, made[strange], known[demo], known[counted])
    print("parquet: the queries of docs/record.md answer as the records do")


main()
