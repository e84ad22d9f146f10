"""A machine is its id, under any name: by the keys of its earlier names, the key and the name that it has now.

Machines that were copied with their id have it too. Their runs take turns within hours or overlap: those stay apart.
"""

import datetime
import itertools
from typing import Any

from pciescope_fleet.dataset.rows import name_of
from pciescope_fleet.dataset.store import Store

STAYS = datetime.timedelta(hours=12)  # A machine keeps a name for so long at least, if it has it between two others.


Named = tuple[str, str]  # The key and the name that a machine has now.


def files(store: Store) -> list[str]:
    """The files with the runs of ids that have several names."""
    names: dict[str, set[str]] = {}
    copies = [copy for copy in store.kept("runs").runs().values() if "~" in copy.host_key]
    for copy in copies:
        names.setdefault(copy.host_key.partition("~")[2], set()).add(copy.host_key)
    several = {key for keys in names.values() if len(keys) > 1 for key in keys}
    return sorted({copy.path for copy in copies if copy.host_key in several})


def renamed(store: Store, paths: list[str]) -> dict[str, Named]:
    """By the key of an earlier name: what the machine is called now, by its newest run in these files."""
    runs = store.read("runs", paths, ["host_key", "host", "time", "last_time"]).to_pylist()
    machines: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        machines.setdefault(run["host_key"].partition("~")[2], []).append(run)
    found: dict[str, Named] = {}
    for machine, own in machines.items():
        own.sort(key=lambda run: (run["time"], run["host_key"]))
        changes = [(one, other) for one, other in itertools.pairwise(own) if one["host_key"] != other["host_key"]]
        times = [other["time"] for _, other in changes]
        is_one = all(one["last_time"] <= other["time"] for one, other in changes)
        if machine and is_one and all(b - a >= STAYS for a, b in itertools.pairwise(times)):
            now = own[-1]["host_key"], own[-1]["host"]
            found |= {run["host_key"]: now for run in own if run["host_key"] != now[0]}
    return found


def earlier(renamed: dict[str, Named]) -> list[dict[str, Any]]:
    """The machines that had other names, and these, for JSON."""
    names: dict[Named, list[str]] = {}
    for key, now in sorted(renamed.items()):
        names.setdefault(now, []).append(name_of(key))
    return [{"host_key": key, "host": name, "earlier": old} for (key, name), old in names.items()]
