"""Runs as the dataset has them: which host, when, from which CPUs; and what was found in them."""

from __future__ import annotations

import array
import datetime
import hashlib
import json
import re
import urllib.parse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pciescope_fleet.dataset.program import Problem
from pciescope_fleet.hosts import LONGEST_NAME

Row = dict[str, Any]

ORIGINS = ("synthetic", "emulated", "imported", "measured")  # Where figures come from, the least real first.
LONGEST_KEY = 200  # Bytes of a host's key as the name of a folder: a file system takes 255.

COLUMNS = [
    *("run", "file", "verb", "label", "first_time", "last_time", "records", "errors", "origins", "record_ids"),
    *("last_record", "checked", "environment", "plan"),
]
"""What is read of the program's table of runs."""

KEPT = ("verb", "label", "records", "errors", "environment", "plan", "checked")  # Those that the dataset has too.

FINDING_COLUMNS = ["run", "file", "kind", "check", "severity", "silenced", "device", "text", "remedy"]
"""The same of its table of findings."""

NAMED_BY = ("file name", "record", "user")  # Where the name of a host is from, the least certain first.


@dataclass(frozen=True)
class Host:
    """Which host a copy of a run is from, and how that is known."""

    key: str
    name: str
    named_by: str

    @property
    def rank(self) -> int:
        """How certain it is: by who named it, then whether the machine's id is known."""
        return 2 * NAMED_BY.index(self.named_by) + ("~" in self.key)


@dataclass
class Run:
    """A copy of a run, by its row of the program's table."""

    row: Row
    host_of: Host
    ingested: datetime.datetime
    clock_ahead_s: float | None = None  # By how much the clock was ahead, where that is known of an earlier copy.
    findings: list[Row] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    content: str = ""  # A digest of what it measured, and how.
    models: str | None = None  # The models of its devices.

    @property
    def run(self) -> str:
        """Its random id."""
        return str(self.row["run"])

    @property
    def source(self) -> str:
        """The file that it is from."""
        return str(self.row["file"] or "")

    @property
    def records(self) -> int:
        """How many records it has."""
        return int(self.row["records"])

    @cached_property
    def record_ids(self) -> Sequence[int]:
        """Numbers of its records, which each copy of them has."""
        return array.array("q", sorted(each["id"] - 2**64 * (each["id"] >> 63) for each in self.row["record_ids"]))

    @cached_property
    def environment(self) -> Row:
        """The machine; empty where the run does not describe it."""
        found: Row = json.loads(self.row["environment"] or "{}")
        return found

    @cached_property
    def asked(self) -> Asked:
        """From which CPUs it was to measure."""
        return Asked(None if self.row["plan"] is None else json.loads(self.row["plan"]), self.environment)

    @cached_property
    def topology(self) -> str | None:
        """How its machine is built."""
        return topology(self.environment)

    def fact(self, name: str) -> str | None:
        """What the environment says of it; none where that is empty."""
        return self.environment.get(name) or None

    @cached_property
    def _origins(self) -> list[str]:
        """Those of its records. One synthetic record makes the whole run synthetic."""
        found = (self.row["origins"] or "measured").split()
        return ["synthetic"] if "synthetic" in found else [each for each in ORIGINS if each in found]

    def origin_of(self, own: str | None) -> str:
        """The origin of a record. One without a device and a method of its own has the least real of the others."""
        return own if own in self._origins else self._origins[0]

    def model_of(self, own: str | None, group: float | None) -> str | None:
        """The model of a record. A summary, which has no device of its own, is compared with those of its devices."""
        return own or (None if group is None else self.models)

    def firmware_of(self, device: str | None) -> str | None:
        """The firmware of a function."""
        return self._by_bdf("firmware", [device], ("version",))

    def slot_of(self, device: str | None, bridges: str | None) -> str | None:
        """The slot of a function, or its address.

        The kernel's name first: only root reads the other one, and a run by another user would be in another slot.
        """
        return self._by_bdf("slots", [device, *reversed((bridges or "").split())], ("name", "designation")) or device

    def _by_bdf(self, listed: str, places: list[str | None], keys: tuple[str, ...]) -> str | None:
        """What a list of the environment says of the first of these functions that it names."""
        named = {entry["bdf"]: entry for entry in self.environment.get(listed, [])}
        found = (named.get(place, {}).get(key) for place in places for key in keys)
        return next(filter(None, found), None)

    @cached_property
    def _times(self) -> tuple[datetime.datetime, datetime.datetime, float | None]:
        """When it began and ended, and by how many seconds its clock was ahead."""
        known = [time for name in ("first_time", "last_time") if (time := _time(self.row[name])) is not None]
        # What was imported may be older. If the clock was set in the middle of the run, the end counts.
        times = [time for time in known if time >= FIRST or "imported" in self._origins] or known
        if not times:
            why = (
                f"run {self.run}: no record has a time with its zone between 1970 and 2261; it is kept under 1970-01-01"
            )
            self.problems.append(Problem(self.source, None, why))
            times = [EPOCH]
        is_behind = EPOCH < times[0] < FIRST and "imported" not in self._origins
        if times[-1] - self.ingested > AHEAD or is_behind:
            way = f"{'behind' if is_behind else 'ahead'}: {times[-1]:%Y-%m-%d %H:%M} UTC"
            why = f"run {self.run}: host {self.host_of.name}'s clock is {way}; the run is kept as of now"
            self.problems.append(Problem(self.source, None, why))
        # A longer copy of a run that the dataset has keeps the run's time.
        ahead_s = self.clock_ahead_s
        then = self.ingested if ahead_s is None else times[0] - datetime.timedelta(seconds=ahead_s)
        return believed(times[0], times[-1], then, is_behind)

    @property
    def time(self) -> datetime.datetime:
        """When it began."""
        return self._times[0]

    @property
    def date(self) -> str:
        """The day of that."""
        return self.time.date().isoformat()

    def identity(self) -> Row:
        """What all of its rows have."""
        return {
            "host_key": self.host_of.key,
            "host": self.host_of.name,
            "run": self.run,
            "date": self.date,
            "time": self.time,
        }

    def to_row(self, figures: int) -> Row:
        """Its row of the dataset's table. It has so many `figures` there."""
        environment = self.environment
        names = ("tool", "kernel", "product", "cpu_model", "cmdline", "aspm_policy")
        bios = (environment.get(name) for name in ("bios_version", "bios_date"))
        return {
            **self.identity(),
            **{name: self.row[name] for name in KEPT},
            **{name: self.fact(name) for name in names},
            "host_from": self.host_of.named_by,
            "last_time": self._times[1],
            "ingested": self.ingested,
            "origin": " ".join(sorted(self._origins)),
            "content": self.content,
            "schema": 1,
            "source": self.source,
            "topology": self.topology,
            "bios": " ".join(filter(None, bios)) or None,
            "governors": " ".join(environment.get("governors", [])) or None,
            "record_ids": list(self.record_ids),
            "clock_ahead_s": self._times[2],
            "failed": self._failed(),
            "figures": figures,
            "findings": len(self.finding_rows()),
        }

    def finding_rows(self) -> list[Row]:
        """What `doctor` found, what a measurement warned of that may be a cause of what it shows, and why it failed."""
        rows: dict[tuple[str | None, ...], Row] = {}
        names = ("check", "severity", "silenced", "device", "text", "remedy")
        for found in self.findings:
            row = {**self.identity(), **{name: found[name] for name in names}}
            if found["kind"] == "error" and found["check"] not in DEVICE_FAILED:
                row["severity"] = "warning"
            # A run of many CPUs warns of the same for each.
            if found["kind"] != "warning" or found["check"] in LINK_WARNINGS:
                rows[row["check"], row["device"], row["text"]] = row
        return list(rows.values())

    def _failed(self) -> str:
        """Its errors, as JSON: device, code and the first text of each."""
        errors: dict[tuple[str, str], str] = {}
        for found in self.findings:
            if found["kind"] == "error":
                errors.setdefault((found["device"] or "", found["check"] or ""), (found["text"] or "")[:LONGEST_TEXT])
        return json.dumps([[*key, text] for key, text in sorted(errors.items())], separators=(",", ":"))


LONGEST_TEXT = 300  # Letters of the text of an error that a run keeps for its list.


LINK_WARNINGS = {
    *("link-downtrained", "link-limited", "aspm", "steal", "clocksource"),
    *("governor", "irqbalance", "drift", "wrong-data", "deep-idle"),
}
"""Warnings of a measurement that may be the cause of what it shows; `doctor` has findings of the same names."""


DEVICE_FAILED = {"all-ones", "removed", "timeout", "stopped-short"}
"""Codes of errors by which a device is broken. Of the others many are no fault of it: `interrupted`, `refused`."""

MAY_BE_THE_PLAN = {"all-ones", "timeout"}
"""A healthy device gives these too, if a measurement asks for a register or an interrupt that the device lacks."""


def host_of(row: Row, given: str | None) -> Host:
    """The host that a copy of a run names, or that it is called after. `given` is the name that the user gave."""
    environment = json.loads(row["environment"] or "{}").get("host") or {}
    name, machine = environment.get("name") or "", environment.get("id") or ""
    if len(name) > LONGEST_NAME:
        name = ""
    if given is not None or name:
        named_by = "user" if given is not None else "record"
        return Host(host_key(given or name, machine), given or name, named_by)
    name = Path(row["file"] or "").name.removesuffix(".gz").removesuffix(".zst").removesuffix(".jsonl") or "unknown"
    return Host(host_key(name, machine), name, "file name")


TILDE = "%7E"  # Stands for the sign in a name: in a key it parts name and id.


def name_of(key: str) -> str:
    """The name in a host's key."""
    return key.split("~")[0].replace(TILDE, "~")


def host_key(name: str, machine: str) -> str:
    """What tells a machine from all others: its name, and a part of its id where that is known.

    It becomes the name of a folder. Where that would be too long, a digest stands for a part of it.
    """
    key = name.replace("~", TILDE) + (f"~{machine[:12]}" if machine else "")
    if len(urllib.parse.quote(key, safe="~")) <= LONGEST_KEY:
        return key
    digest = hashlib.sha256(key.encode()).hexdigest()
    return f"{re.sub('[^A-Za-z0-9._-]', '_', name)[:40]}~{digest[:12]}"


AHEAD = datetime.timedelta(hours=1)
"""A time that is so much later than the ingest is of a clock that is ahead. By it a run would be the newest of its host
until that time comes."""

BEFORE = datetime.timedelta(hours=3)  # Such a run is kept as of up to so long before the ingest.


def believed(
    began: datetime.datetime, ended: datetime.datetime, ingested: datetime.datetime, is_behind: bool = False
) -> tuple[datetime.datetime, datetime.datetime, float | None]:
    """When a run began and ended, and by how many seconds the clock was ahead if these are not its own times.

    Runs that are ahead or behind keep their order: a second that one of them began later leaves a microsecond.
    """
    ahead = began - ingested
    if ahead <= AHEAD and not is_behind:
        # The clock may have been set in the middle of the run.
        is_ended_ahead = ended - ingested > AHEAD
        return began, max(ingested, began) if is_ended_ahead else ended, None
    kept = ingested - BEFORE + ahead / 1_000_000
    return kept, min(kept + (ended - began), ingested), ahead.total_seconds()


EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
FIRST = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
"""Before, nobody measured with this program: an earlier time is of a clock that is behind. By it a run would be older
than all that the host had before."""
END = datetime.datetime(2262, 1, 1, tzinfo=datetime.UTC)  # Engines count in nanoseconds up to this year.


def _time(micros: int | None) -> datetime.datetime | None:
    """A time of a record; nothing where it is in no year that can be."""
    if micros is None or not 0 <= micros < (END - EPOCH) // datetime.timedelta(microseconds=1):
        return None
    return EPOCH + datetime.timedelta(microseconds=micros)


def topology(environment: Row) -> str | None:
    """How a machine is built: `2 packages, 4 nodes, 128 CPUs`, and whether it is a guest."""
    cpus = environment.get("cpus")
    if not isinstance(cpus, list) or not cpus:
        return None
    parts = [f"{len(cpus)} CPUs"]
    for key, word in (("node", "nodes"), ("package", "packages")):
        parts.insert(0, f"{len({cpu.get(key) for cpu in cpus if isinstance(cpu, dict)})} {word}")
    return ", ".join(parts + (["guest"] if environment.get("hypervisor") else []))


LONGEST_SET = 60  # Letters of a list of CPUs; a digest stands for a longer one.


LEAST_MEASURED = 0.75
"""A run that measured from a smaller share of the CPUs is another one than a run from all of them."""

CPU_BY_CPU = ("mmio", "path")
"""Tasks whose records are written CPU by CPU. In a run of interrupts a vector may be bound to some of the CPUs."""


class Asked:
    """From which CPUs a run was to measure, in words that are the same on hosts with more or fewer CPUs."""

    def __init__(self, plan: Row | None, environment: Row) -> None:
        # A plan names the CPUs as they were when the run began: `all` and `local` are numbers there.
        self._has_plan = plan is not None
        name = next((key for key, task in (plan or {}).items() if isinstance(task, dict)), "")
        task: Row = (plan or {}).get(name, {})
        self._is_cpu_by_cpu = name in CPU_BY_CPU
        self._asked: str | None = task.get("cpus") or None
        self._trigger = task.get("trigger_cpu")
        known = environment.get("cpus")
        self._cpus = [cpu for cpu in known if isinstance(cpu, dict)] if isinstance(known, list) else []

    def words(self, measured: set[int], node: Any) -> str | None:
        """In words. `measured` counts where the run has no plan; `node` is the device's."""
        if not measured or (self._has_plan and self._asked is None):
            return None
        asked = self._asked or listed(measured)
        words = f"CPUs {_short(listed(measured))}" if self._is_cut_off(asked, measured) else self._of(asked, node)
        return f"{words}, CPU {self._trigger} triggers" if isinstance(self._trigger, int) else words

    def _online(self) -> set[int]:
        return {cpu["cpu"] for cpu in self._cpus if isinstance(cpu.get("cpu"), int)}

    def _is_cut_off(self, asked: str, measured: set[int]) -> bool:
        """Whether many CPUs are missing that were asked for and online: somebody killed the run."""
        ranges = _ranges(asked) if self._is_cpu_by_cpu else []
        online = self._online()
        if online:
            due = sum(any(first <= cpu <= last for first, last in ranges) for cpu in online)
        else:
            due = sum(last - first + 1 for first, last in ranges)
        return len(measured) < LEAST_MEASURED * due

    def _of(self, asked: str, node: Any) -> str:
        every = self._online()
        if asked == listed(every):
            return "all CPUs"
        if node is not None and asked == listed(cpu["cpu"] for cpu in self._cpus if cpu.get("node") == node):
            return "local CPUs"
        return f"CPUs {_short(asked)}"


def _short(cpus: str) -> str:
    """A list of CPUs, or a digest in place of a long one."""
    return cpus if len(cpus) <= LONGEST_SET else hashlib.sha256(cpus.encode()).hexdigest()[:12]


def _ranges(cpus: str) -> list[tuple[int, int]]:
    """The first and the last CPU of each part of a list as a plan has it; none of what is no list."""
    parts = [re.fullmatch(r"([0-9]{1,10})(?:-([0-9]{1,10}))?", part) for part in cpus.split(",")]
    return [(int(part[1]), int(part[2] or part[1])) for part in parts if part is not None]


def listed(cpus: Iterable[int]) -> str:
    """CPUs as a plan lists them: `0-3,8`."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
