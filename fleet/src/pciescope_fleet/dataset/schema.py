"""The columns of the dataset's tables; docs/fleet.md says what they mean.

Columns are only ever added, at the end, and may be null. A reader adds those that an older file lacks, as null: `store`
asks for all columns by name.
"""

import pyarrow as pa

TIME = pa.timestamp("us", tz="UTC")
FORM = pa.list_(pa.struct([("bin", pa.int16()), ("share", pa.float32())]))


def _of(kind: pa.DataType, *names: str) -> list[tuple[str, pa.DataType]]:
    return [(name, kind) for name in names]


FIGURES = pa.schema(
    [
        *_of(pa.string(), "host_key", "host", "run"),
        ("time", TIME),
        *_of(pa.string(), "date", "verb", "origin", "backend"),
        ("batch", pa.int32()),
        *_of(pa.string(), "device", "model", "device_name", "driver", "firmware", "link", "slot"),
        ("hops", pa.int32()),
        *_of(pa.string(), "topology", "cpu_model", "kernel", "figure", "unit"),
        ("judged", pa.bool_()),
        *_of(pa.int32(), "cpu", "cpus"),
        ("count", pa.int64()),
        *_of(pa.float64(), "p50", "p90", "p99", "p999", "value"),
        ("form", FORM),
        *_of(pa.list_(pa.int64()), "bucket_low_ps", "bucket_count"),
        *((f"{name}_{way}", pa.float32()) for name in ("p50", "p90", "p99", "p999") for way in ("down", "up")),
        ("method", pa.string()),
        ("quantum_ns", pa.float64()),
    ]
)

RUNS = pa.schema(
    [
        *_of(pa.string(), "host_key", "host", "host_from", "run", "date"),
        *_of(TIME, "time", "last_time", "ingested"),
        *_of(pa.string(), "verb", "label", "content", "origin"),
        *_of(pa.int64(), "records", "errors"),
        ("schema", pa.int32()),
        *_of(pa.string(), "source", "tool", "kernel", "product", "cpu_model", "topology", "bios", "cmdline"),
        *_of(pa.string(), "aspm_policy", "governors", "environment", "plan"),
        ("record_ids", pa.list_(pa.int64())),
        *_of(pa.string(), "checked", "failed"),
        ("clock_ahead_s", pa.float64()),
        *_of(pa.int64(), "figures", "findings"),
    ]
)

FINDINGS = pa.schema(
    [
        *_of(pa.string(), "host_key", "host", "run", "date"),
        ("time", TIME),
        *_of(pa.string(), "check", "severity"),
        ("silenced", pa.bool_()),
        *_of(pa.string(), "device", "text", "remedy"),
    ]
)

TABLES = {"figures": FIGURES, "runs": RUNS, "findings": FINDINGS}
