"""Devices whose newest run of a verb ended with an error: no figure of that run tells of it."""

import datetime
import json
from collections.abc import Iterator
from typing import Any

import ibis.expr.types as ir

from pciescope_fleet.dataset.rows import DEVICE_FAILED, MAY_BE_THE_PLAN
from pciescope_fleet.dataset.store import Store
from pciescope_fleet.engine import Engine
from pciescope_fleet.judge.doubt import OLD_DAYS
from pciescope_fleet.judge.seen import Looked, parsed

RUN = ["host_key", "host", "run", "time", "verb", "origin"]


def failed(engine: Engine, store: Store, days: list[str]) -> list[dict[str, Any]]:
    """The errors of the runs of these days that no newer run of the same verb, origin and device followed.

    Errors that are much older than the newest run of their host tell nothing of what is in it now.
    """
    runs = engine.table(store, "runs", store.kept("runs").files(days))
    runs = engine.keep(runs.select(*RUN, "errors", "failed", "checked"))
    names = sorted(runs.filter(runs.errors > 0).select("host").distinct().execute()["host"])
    if not names:
        return []
    known = runs.filter(runs.host.isin(names)).execute()
    by_name: dict[str, list[dict[str, Any]]] = {}
    for run in known.sort_values(["time", "run"]).to_dict("records"):
        by_name.setdefault(run["host"], []).append({**run, "origins": frozenset(str(run["origin"]).split())})
    errors = [error for named in by_name.values() for error in _of_name(named)]
    errors.sort(key=lambda each: (each["host_key"], each["time"], each["run"]))
    return _beside_others(errors, runs)


class _NewerRuns:
    """What the newer runs of a host and verb looked at."""

    def __init__(self) -> None:
        self._devices: set[str] = set()
        self._by_check: dict[str, set[str]] = {}

    def add(self, checked: Looked) -> None:
        """One more run, by its column `checked`."""
        for checks, devices in checked:
            if checks is None:
                self._devices |= devices
            for check in checks or ():
                self._by_check.setdefault(check, set()).update(devices)

    def has(self, device: str, code: str) -> bool:
        """Whether one of them looked for this error."""
        return device in self._devices or device in self._by_check.get(code, ())


def _of_name(named: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The errors of the runs of one host's name, which are in the order of their time."""
    last: dict[tuple[str, str], dict[str, Any]] = {}
    newer_runs: dict[tuple[str, str, str], _NewerRuns] = {}
    successors: dict[tuple[str, frozenset[str]], str | None] = {}
    for run in reversed(named):
        key, origins = run["host_key"], run["origins"]
        for origin in origins:
            last.setdefault((key, origin), run)
        newest = max((last[key, origin] for origin in origins), key=lambda each: (each["time"], each["run"]))
        if newest["time"] - run["time"] > datetime.timedelta(days=OLD_DAYS):
            continue
        newer = [newer_runs.setdefault((key, origin, run["verb"]), _NewerRuns()) for origin in origins]
        for device, code, text in json.loads(run["failed"]):
            if any(each.has(device, code) for each in newer):
                continue
            if (key, origins) not in successors:
                successors[key, origins] = _successor(
                    key, newest, [each for each in named if each["origins"] & origins]
                )
            yield {
                **{name: run[name] for name in ("host_key", "host", "verb", "origin", "run")},
                "time": f"{run['time']:%Y-%m-%dT%H:%M:%SZ}",
                "device": device,
                "code": code,
                "text": text,
                "is_broken": code in DEVICE_FAILED,
                "replaced_by": successors[key, origins],
                "others": 0,
            }
        checked = parsed(run["checked"])
        for each in newer:
            each.add(checked)


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


SINCE = datetime.timedelta(days=1)  # Of two machines with one name, both alive, each runs in a night.
SAME = ("verb", "origin", "device", "code")

FEWEST_ALIKE = 3  # Fewer hosts with an error say nothing of the measurement.


def _beside_others(errors: list[dict[str, Any]], runs: ir.Table) -> list[dict[str, Any]]:
    """Adds `others`: how many other hosts have the same error, and says which errors tell of no broken device.

    Where more than half of the hosts that run the verb have it, it is of the measurement. A machine that another one
    of its name has replaced has no device any more. The same error is one of the same verb, origin, device
    and code. Hosts whose last run of the verb is much older than that of a host with the error do not run it any more.
    """
    last = runs.group_by(["verb", "origin", "host_key"]).agg(last=runs.time.max()).execute()
    last_runs = {key: part.set_index("host_key")["last"] for key, part in last.groupby(["verb", "origin"])}
    having: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for each in errors:
        having.setdefault(tuple(each[name] for name in SAME), []).append(each)
    for alike in having.values():
        hosts = {each["host_key"] for each in alike}
        ran = last_runs[alike[0]["verb"], alike[0]["origin"]]
        since = ran[sorted(hosts)].max() - datetime.timedelta(days=OLD_DAYS)
        fleet = set(ran[ran >= since].index)
        usual = len(hosts & fleet)
        is_usual = usual >= FEWEST_ALIKE and 2 * usual > len(fleet)
        for each in alike:
            each["others"] = len(hosts) - 1
            each["is_broken"] &= not (is_usual and each["code"] in MAY_BE_THE_PLAN) and each["replaced_by"] is None
    return errors
