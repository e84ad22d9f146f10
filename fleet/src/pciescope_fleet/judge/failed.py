"""Devices whose newest run of a verb ended with an error: no figure of that run tells of it."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from typing import Any

from pciescope_fleet.dataset.rows import DEVICE_FAILED
from pciescope_fleet.dataset.store import Store
from pciescope_fleet.engine import Engine
from pciescope_fleet.judge.doubt import OLD_DAYS
from pciescope_fleet.judge.seen import looked, parsed

RUN = ["host_key", "host", "run", "time", "verb", "origin"]


def failed(engine: Engine, store: Store, days: list[str]) -> list[dict[str, Any]]:
    """The errors of the runs of these days that no newer run of the same verb, origin and device followed.

    Errors that are much older than the newest run of their host tell nothing of what is in it now.
    """
    runs = engine.table(store, "runs", store.kept("runs").files(days))
    bad = runs.filter(runs.errors > 0).select(*RUN, "errors", "failed").execute()
    if not len(bad):
        return []
    hosts = sorted(bad["host_key"].unique())
    known = runs.filter(runs.host_key.isin(hosts)).select(*RUN, "checked").execute()
    known["checked"] = known["checked"].map(parsed)
    by_host: dict[str, list[dict[str, Any]]] = {}
    for run in known.to_dict("records"):
        by_host.setdefault(run["host_key"], []).append(run)
    told = []
    for run in bad.sort_values(["host_key", "time", "run"]).to_dict("records"):
        alike = [each for each in by_host[run["host_key"]] if origins(each) & origins(run)]
        if max(each["time"] for each in alike) - run["time"] > datetime.timedelta(days=OLD_DAYS):
            continue
        newer = [
            each
            for each in alike
            if each["verb"] == run["verb"] and (each["time"], each["run"]) > (run["time"], run["run"])
        ]
        for device, code, text in errors_of(run):
            if any(looked(each["checked"], {"device": device, "check": code}) for each in newer):
                continue
            told.append(
                {
                    **{key: run[key] for key in ("host_key", "host", "verb", "origin", "run")},
                    "time": f"{run['time']:%Y-%m-%dT%H:%M:%SZ}",
                    "device": device,
                    "code": code,
                    "text": text,
                    "is_broken": code in DEVICE_FAILED,
                }
            )
    return told


def origins(run: dict[str, Any]) -> set[str]:
    """The origins of a run's records."""
    return set(str(run["origin"]).split())


def errors_of(run: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Device, code and text of the errors of a run; their number where an older version took the run."""
    if isinstance(run["failed"], str):
        yield from ((device, code, text) for device, code, text in json.loads(run["failed"]))
    else:
        yield "", "", "1 record has an error" if run["errors"] == 1 else f"{run['errors']:.0f} records have an error"
