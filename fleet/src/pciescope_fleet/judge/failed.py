"""Devices whose newest run of a verb ended with an error: no figure of that run tells of it."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from typing import Any

import ibis.expr.types as ir

from pciescope_fleet.dataset.rows import DEVICE_FAILED, MAY_BE_THE_PLAN
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
    runs = engine.keep(runs.select(*RUN, "errors", "failed", "checked"))
    bad = runs.filter(runs.errors > 0).select(*RUN, "errors", "failed").execute()
    if not len(bad):
        return []
    names = sorted(bad["host"].unique())
    known = runs.filter(runs.host.isin(names)).select(*RUN, "checked").execute()
    known["checked"] = known["checked"].map(parsed)
    by_name: dict[str, list[dict[str, Any]]] = {}
    for run in known.sort_values(["time", "run"]).to_dict("records"):
        by_name.setdefault(run["host"], []).append(run)
    told = []
    for run in bad.sort_values(["host_key", "time", "run"]).to_dict("records"):
        named = [each for each in by_name[run["host"]] if origins(each) & origins(run)]
        alike = [each for each in named if each["host_key"] == run["host_key"]]
        if alike[-1]["time"] - run["time"] > datetime.timedelta(days=OLD_DAYS):
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
                    "replaced_by": _successor(run["host_key"], alike[-1], named),
                    "others": 0,
                }
            )
    return _beside_others(told, runs)


def _successor(host_key: str, last: dict[str, Any], named: list[dict[str, Any]]) -> str | None:
    """The machine of this name that ran a day or longer after the last run of another one, and not before.

    Of a key without a machine id nothing is known. Two machines that take turns are two machines.
    """
    first: dict[str, Any] = {}
    for run in named:
        first.setdefault(run["host_key"], run["time"])
    newest = named[-1]
    is_new = first[newest["host_key"]] > last["time"] and newest["time"] - last["time"] >= SINCE
    return newest["host_key"] if is_new and "~" in newest["host_key"] and "~" in host_key else None


SINCE = datetime.timedelta(days=1)
"""Of two machines with one name, both alive, each runs in a night."""

SAME = ("verb", "origin", "device", "code")

FEWEST_ALIKE = 3
"""Fewer hosts with an error say nothing of the measurement."""


def _beside_others(told: list[dict[str, Any]], runs: ir.Table) -> list[dict[str, Any]]:
    """Adds `others`: how many other hosts have the same error, and says which errors tell of no broken device.

    Where more than half of the hosts that ran the verb have it, it is of the measurement. A machine that another one
    of its name has replaced has no device any more. The same error is one of the same verb, origin, device
    and code.
    """
    counted = runs.group_by(["verb", "origin"]).agg(hosts=runs.host_key.nunique()).execute()
    ran = {(row["verb"], row["origin"]): row["hosts"] for row in counted.to_dict("records")}
    having: dict[tuple[str, ...], set[str]] = {}
    for each in told:
        having.setdefault(tuple(each[name] for name in SAME), set()).add(each["host_key"])
    for each in told:
        hosts = len(having[tuple(each[name] for name in SAME)])
        each["others"] = hosts - 1
        is_usual = hosts >= FEWEST_ALIKE and 2 * hosts > ran[each["verb"], each["origin"]]
        each["is_broken"] &= not (is_usual and each["code"] in MAY_BE_THE_PLAN) and each["replaced_by"] is None
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
