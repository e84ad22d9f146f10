"""The columns of the dataset's tables; docs/fleet.md says what they mean.

Columns are only ever added, at the end, and may be null. A reader adds those that an older file lacks, as null: `store`
asks for all columns by name.
"""

from __future__ import annotations

import pyarrow as pa

TIME = pa.timestamp("us", tz="UTC")
FORM = pa.list_(pa.struct([("bin", pa.int16()), ("share", pa.float32())]))

FIGURES = pa.schema(
    [
        ("host_key", pa.string()),
        ("host", pa.string()),
        ("run", pa.string()),
        ("time", TIME),
        ("date", pa.string()),
        ("verb", pa.string()),
        ("origin", pa.string()),
        ("backend", pa.string()),
        ("batch", pa.int32()),
        ("device", pa.string()),
        ("model", pa.string()),
        ("device_name", pa.string()),
        ("driver", pa.string()),
        ("firmware", pa.string()),
        ("link", pa.string()),
        ("slot", pa.string()),
        ("hops", pa.int32()),
        ("topology", pa.string()),
        ("cpu_model", pa.string()),
        ("kernel", pa.string()),
        ("figure", pa.string()),
        ("unit", pa.string()),
        ("judged", pa.bool_()),
        ("cpu", pa.int32()),
        ("cpus", pa.int32()),
        ("count", pa.int64()),
        ("p50", pa.float64()),
        ("p90", pa.float64()),
        ("p99", pa.float64()),
        ("p999", pa.float64()),
        ("value", pa.float64()),
        ("form", FORM),
        ("bucket_low_ps", pa.list_(pa.int64())),
        ("bucket_count", pa.list_(pa.int64())),
        *((f"{name}_{way}", pa.float32()) for name in ("p50", "p90", "p99", "p999") for way in ("down", "up")),
        ("method", pa.string()),
        ("quantum_ns", pa.float64()),
    ]
)

RUNS = pa.schema(
    [
        ("host_key", pa.string()),
        ("host", pa.string()),
        ("host_from", pa.string()),
        ("run", pa.string()),
        ("date", pa.string()),
        ("time", TIME),
        ("last_time", TIME),
        ("ingested", TIME),
        ("verb", pa.string()),
        ("label", pa.string()),
        ("content", pa.string()),
        ("origin", pa.string()),
        ("records", pa.int64()),
        ("errors", pa.int64()),
        ("schema", pa.int32()),
        ("source", pa.string()),
        ("tool", pa.string()),
        ("kernel", pa.string()),
        ("product", pa.string()),
        ("cpu_model", pa.string()),
        ("topology", pa.string()),
        ("bios", pa.string()),
        ("cmdline", pa.string()),
        ("aspm_policy", pa.string()),
        ("governors", pa.string()),
        ("environment", pa.string()),
        ("plan", pa.string()),
        ("record_ids", pa.list_(pa.int64())),
        ("checked", pa.string()),
        ("failed", pa.string()),
        ("clock_ahead_s", pa.float64()),
        ("figures", pa.int64()),
        ("findings", pa.int64()),
    ]
)

FINDINGS = pa.schema(
    [
        ("host_key", pa.string()),
        ("host", pa.string()),
        ("run", pa.string()),
        ("date", pa.string()),
        ("time", TIME),
        ("check", pa.string()),
        ("severity", pa.string()),
        ("silenced", pa.bool_()),
        ("device", pa.string()),
        ("text", pa.string()),
        ("remedy", pa.string()),
    ]
)

TABLES = {"figures": FIGURES, "runs": RUNS, "findings": FINDINGS}
