"""What `doctor` and the measurements said of the outlying hosts, as far as it may be the cause of an outlier.

What the outlier's own run warned of always counts. A finding of another run counts if that run is of the same origin,
not much older than the outlier, and if no newer run of the same verb looked at the same without finding it.
"""

import datetime
import json
from dataclasses import dataclass
from typing import Any

import pandas as pd

from pciescope_fleet.dataset.store import Store
from pciescope_fleet.engine import Engine
from pciescope_fleet.judge.doubt import OLD_DAYS

COLUMNS = ["host_key", "run", "check", "severity", "device", "text"]
RUN = ["host_key", "run", "time", "verb", "origin", "checked"]

Looked = tuple[tuple[frozenset[str] | None, frozenset[str]], ...]
"""Checks and the devices that they looked at, as the column `checked` tells."""


@dataclass
class Seen:
    """The findings and the runs of the outlying hosts, newest first."""

    findings: dict[str, pd.DataFrame]
    runs: dict[str, list[dict[str, Any]]]

    def of(self, outlier: Any) -> pd.DataFrame:
        """What may be the cause of an outlier, the newest first: the columns `COLUMNS`."""
        host = outlier["host_key"]
        if host not in self.findings:
            return pd.DataFrame(columns=COLUMNS)
        found, runs = self.findings[host], self.runs[host]
        oldest = outlier["time"] - datetime.timedelta(days=OLD_DAYS)
        by_run = {run["run"]: run for run in runs}
        counts = []
        for row in found.to_dict("records"):
            own = by_run[row["run"]]
            is_near = outlier["origin"] in str(own["origin"]).split() and own["time"] >= oldest
            newer = (run for run in runs if run["time"] > own["time"] and run["verb"] == own["verb"])
            counts.append(
                row["run"] == outlier["run"]
                or (is_near and not any(outlier["origin"] in str(run["origin"]).split() and looked(run["checked"], row)
                                        for run in newer))
            )  # fmt: skip
        return found[counts]


def looked(checked: Looked, finding: dict[str, Any]) -> bool:
    """Whether a run looked for what is found here."""
    return any(
        finding["device"] in devices and (checks is None or finding["check"] in checks) for checks, devices in checked
    )


def parsed(checked: str) -> Looked:
    """The column `checked`."""
    return tuple(
        (None if checks is None else frozenset(checks), frozenset(devices)) for checks, devices in json.loads(checked)
    )


def seen(engine: Engine, store: Store, days: list[str], outliers: pd.DataFrame) -> Seen:
    """Reads what was seen of the outlying hosts on these days, and is not silenced; no device is an empty text."""
    first = f"{outliers['time'].min() - datetime.timedelta(days=OLD_DAYS):%Y-%m-%d}"
    days = [day for day in days if day >= first]
    paths = store.kept("findings").files(days)
    if not paths:
        return Seen({}, {})
    hosts = sorted(outliers["host_key"].unique())
    table = engine.table(store, "findings", paths)
    table = table.filter(table.host_key.isin(hosts) & ~table.silenced.fill_null(False))
    found = table.select(COLUMNS).distinct().execute()
    runs = engine.table(store, "runs", store.kept("runs").files(days))
    runs = runs.filter(runs.host_key.isin(hosts)).select(RUN).execute()
    runs["checked"] = runs["checked"].map(parsed)
    found = found.assign(device=found["device"].fillna("")).merge(runs[["host_key", "run", "time"]])
    found = found.sort_values(["time", *COLUMNS], ascending=[False] + [True] * len(COLUMNS), ignore_index=True)
    by_host: dict[str, list[dict[str, Any]]] = {}
    for run in runs.to_dict("records"):
        by_host.setdefault(run["host_key"], []).append(run)
    return Seen({host: part[COLUMNS] for host, part in found.groupby("host_key")}, by_host)
