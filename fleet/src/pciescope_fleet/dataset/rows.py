"""Makes the rows of the dataset's tables of one run's records.

A figure is what hosts are compared by: one histogram of one target of a device, or one metric. Its name is the same on
each host; the row also has the device's address and the CPU. Histograms of several CPUs make a row for each CPU, and
one for all of them together, whose `cpu` is null.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import re
import urllib.parse
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pciescope_fleet import histogram, records
from pciescope_fleet.histogram import Histogram
from pciescope_fleet.hosts import LONGEST_NAME
from pciescope_fleet.records import Problem, Record, Run

Row = dict[str, Any]

"""What the name of a function ends in where it converted each piece when it arrived, as the main program has it."""

CONTROLS = {"calibration", "ceiling"}
"""Histograms that accompany a figure and are not figures."""

JUDGED_METRICS = {"speed", "active_speed", "rate", "samples_per_s", "cpu_per_gb"}
"""Metrics that hosts are compared by; the others are kept.

`pciescope compare` also takes the parts of a duration (`dma`, `copy`, ...) and shares. These tell where time went, and
each would be one more test that may be a false alarm.
"""


LONGEST_KEY = 200
"""Bytes of a host's key as the name of a folder: a file system takes 255."""

YEARS = range(1970, 2262)
"""Years that engines can count in nanoseconds."""


@dataclass
class Rows:
    """The rows of one run."""

    run: Row
    figures: list[Row] = field(default_factory=list)
    findings: list[Row] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


Form = list[tuple[int, float]] | None


@dataclass
class _Figure:
    """What belongs to one figure of one device and CPU, gathered over the records of the run."""

    common: Row
    unit: str
    cpu: int | None
    histograms: list[Histogram] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


AHEAD = datetime.timedelta(hours=1)
"""A time that is so much later than the ingest is of a clock that is ahead. By it a run would be the newest of its host
until that time comes."""

BEFORE = datetime.timedelta(hours=3)
"""Such a run is kept as of up to so long before the ingest."""


def believed(
    began: datetime.datetime, ended: datetime.datetime, ingested: datetime.datetime
) -> tuple[datetime.datetime, datetime.datetime, float | None]:
    """When a run began and ended, and by how many seconds the clock was ahead if these are not its own times.

    Runs that are ahead keep their order: a second that one of them began later leaves a microsecond.
    """
    ahead = began - ingested
    if ahead <= AHEAD:
        # The clock may have been set in the middle of the run.
        is_ended_ahead = ended - ingested > AHEAD
        return began, max(ingested, began) if is_ended_ahead else ended, None
    kept = ingested - BEFORE + ahead / 1_000_000
    return kept, min(kept + (ended - began), ingested), ahead.total_seconds()


def rows(
    run: Run,
    host: str | None,
    ingested: datetime.datetime,
    known: str | None = None,
    ahead_s: float | None = None,
) -> Rows:
    """The rows of a run. `host` is the host's name where the user gave it.

    `known` is the key of the host that has a run of this name: it counts where neither user nor records name the host,
    or name the same one without its machine.
    """
    environment = run.environment
    told = environment.get("host") if isinstance(environment.get("host"), dict) else {}
    assert told is not None
    name, host_from = _host(run, told, host)
    machine = _text(told.get("id")) or ""
    key = host_key(name, machine)
    if known is not None and (host_from == "file name" or (not machine and known.split("~")[0] == name)):
        key, name = known, known.split("~")[0]
    problems: list[Problem] = []
    times = [time for record in run.records if (time := _time(record["time"])) is not None]
    if not times:
        why = f"run {run.run}: no record has a time between 1970 and 2261; it is kept under 1970-01-01"
        problems.append(Problem(run.source, None, why))
        times = [datetime.datetime.fromtimestamp(0, datetime.UTC)]
    if max(times) - ingested > AHEAD:
        why = f"run {run.run}: host {name}'s clock is ahead: {max(times):%Y-%m-%d %H:%M} UTC; the run is kept as of now"
        problems.append(Problem(run.source, None, why))
    # A longer copy of a run that the dataset has keeps the run's time.
    then = ingested if ahead_s is None else min(times) - datetime.timedelta(seconds=ahead_s)
    began, ended, ahead_s = believed(min(times), max(times), then)
    identity = {
        "host_key": key,
        "host": name,
        "run": run.run,
        "date": began.date().isoformat(),
        "time": began,
    }
    gathered: dict[tuple[str, str, int | None], _Figure] = {}
    result = Rows({}, problems=problems)
    origins = records.origins(run)
    # What has no device of its own, a summary, is compared with summaries of the same devices.
    models = " + ".join(sorted({model for record in run.records if (model := _model(record))})) or None
    plan = next((told for record in run.records if isinstance(told := record.get("plan"), dict)), None)
    for line, record, origin in zip(run.lines, run.records, origins, strict=True):
        common = {**identity, **_common(record, environment), "origin": origin}
        if "stream" in record and common["model"] is None:
            common["model"] = models
        _gather(gathered, record, run, line, common, problems)
        result.findings += _findings(record, identity)
    # A run of many CPUs warns of the same for each.
    result.findings = list({(row["check"], row["device"], row["text"]): row for row in result.findings}.values())
    result.figures = _figure_rows(gathered, Asked(plan, environment))
    result.run = {
        **identity,
        "host_from": host_from,
        "last_time": ended,
        "ingested": ingested,
        "origin": " ".join(sorted(set(origins))),
        "content": _content(result.figures),
        **_run_row(run, environment),
        "record_ids": record_ids(run.records),
        "clock_ahead_s": ahead_s,
        "checked": _checked(run.records),
        "failed": _failed(run.records),
    }
    return result


def record_ids(made: list[Record]) -> list[int]:
    """A number for each record, by what it is of: a copy that was written again has the same."""
    seen: Counter[str] = Counter()
    ids = []
    for record in made:
        of = [record["time"], record["test"], record.get("device", {}).get("bdf"), record.get("cpu", {}).get("cpu")]
        key = json.dumps([*of, record.get("target"), record.get("stream", {}).get("group")], sort_keys=True)
        digest = hashlib.blake2b(f"{seen[key]} {key}".encode(), digest_size=8).digest()
        seen[key] += 1
        ids.append(int.from_bytes(digest, "big", signed=True))
    return sorted(ids)


def _host(run: Run, told: Record, given: str | None) -> tuple[str, str]:
    """The host's name, and where it is from."""
    if given is not None:
        return given, "user"
    name = _text(told.get("name"))
    if name and len(name) > LONGEST_NAME:
        raise ValueError(f"the host's name has {len(name)} letters")
    if name:
        return name, "record"
    return Path(run.source).name.removesuffix(".gz").removesuffix(".jsonl") or "unknown", "file name"


def host_key(name: str, machine: str) -> str:
    """What tells a machine from all others: its name, and a part of its id where that is known.

    It becomes the name of a folder. Where that would be too long, a digest stands for a part of it.
    """
    key = f"{name}~{machine[:12]}" if machine else name
    if len(urllib.parse.quote(key, safe="~")) <= LONGEST_KEY:
        return key
    digest = hashlib.sha256(key.encode()).hexdigest()
    return f"{re.sub('[^A-Za-z0-9._-]', '_', name)[:40]}~{digest[:12]}"


def _run_row(run: Run, environment: Record) -> Row:
    first = run.records[0]
    plan = next((record["plan"] for record in run.records if "plan" in record), None)
    bios = " ".join(text for key in ("bios_version", "bios_date") if (text := _text(environment.get(key))))
    return {
        "verb": first["verb"],
        "label": next((text for record in run.records if (text := _text(record.get("label")))), None),
        "records": len(run.records),
        "errors": sum("error" in record for record in run.records),
        "schema": max(record["schema"] for record in run.records),
        "source": run.source,
        "topology": topology(environment),
        "bios": bios or None,
        "governors": " ".join(map(str, environment.get("governors") or [])) or None,
        "environment": json.dumps(environment, separators=(",", ":")) if environment else None,
        "plan": None if plan is None else json.dumps(plan, separators=(",", ":")),
        **{
            key: _text(environment.get(key))
            for key in ("tool", "kernel", "product", "cpu_model", "cmdline", "aspm_policy")
        },
    }


def topology(environment: Record) -> str | None:
    """How a machine is built: `2 packages, 4 nodes, 128 CPUs`, and whether it is a guest."""
    cpus = environment.get("cpus")
    if not isinstance(cpus, list) or not cpus:
        return None
    parts = [f"{len(cpus)} CPUs"]
    for key, word in (("node", "nodes"), ("package", "packages")):
        parts.insert(0, f"{len({cpu.get(key) for cpu in cpus if isinstance(cpu, dict)})} {word}")
    return ", ".join(parts + (["guest"] if environment.get("hypervisor") else []))


def _common(record: Record, environment: Record) -> Row:
    """What a row says of the device, the machine and the method."""
    device, method = record.get("device", {}), record.get("method", {})
    bdf, link = _text(device.get("bdf")), device.get("link") or {}
    path = [step for step in device.get("path") or [] if isinstance(step, str)]
    places = [bdf, *reversed(path)]
    return {
        "verb": record["verb"],
        "backend": _text(method.get("backend")),
        # Schema 1 wrote 0 where it is not known.
        "batch": method.get("batch") or None,
        "device": bdf
        or _text(record.get("stream", {}).get("path"))
        or _text(record.get("instance", {}).get("pmu"))
        or "",
        "model": _model(record),
        "device_name": _text(device.get("name")),
        "driver": _text(device.get("driver")),
        "firmware": _by_bdf(environment.get("firmware"), [bdf], ("version",)),
        "link": f"{link['speed_gts']:g} GT/s x{link['width']}" if {"speed_gts", "width"} <= link.keys() else None,
        # The kernel's name first: only root reads the other one, and a run by another user would be in another slot.
        "slot": _by_bdf(environment.get("slots"), places, ("name", "designation")) or bdf,
        "hops": len(path) if _has_numbers(device) else None,
        "topology": topology(environment),
        "cpu_model": _text(environment.get("cpu_model")),
        "kernel": _text(environment.get("kernel")),
        "method": _method(method),
        "node": device.get("node"),
    }


def _method(method: Record) -> str | None:
    """What else of the method makes another figure: the order of the CPUs, the pause, whether interrupts were off."""
    order, gap, irqs_off = _text(method.get("order")), method.get("gap_ns"), method.get("irqs_off")
    parts = [order] if order else []
    if gap:
        parts.append(f"gap {int(gap)} ns")
    if isinstance(irqs_off, bool):
        parts.append(f"interrupts {'off' if irqs_off else 'on'}")
    return ", ".join(parts) or None


LONGEST_SET = 60
"""Letters of a list of CPUs; a digest stands for a longer one."""


LEAST_MEASURED = 0.75
"""A run that measured from a smaller share of the CPUs is another one than a run from all of them."""

CPU_BY_CPU = ("mmio", "path")
"""Tasks whose records are written CPU by CPU. In a run of interrupts a vector may be bound to some of the CPUs."""


class Asked:
    """From which CPUs a run was to measure, in words that are the same on hosts with more or fewer CPUs."""

    def __init__(self, plan: Record | None, environment: Record) -> None:
        """A plan names the CPUs as they were when the run began: `all` and `local` are numbers there."""
        self._has_plan = plan is not None
        name = next((key for key, told in (plan or {}).items() if isinstance(told, dict)), "")
        task: Record = (plan or {}).get(name, {})
        self._is_cpu_by_cpu = name in CPU_BY_CPU
        self._asked = _text(task.get("cpus"))
        self._trigger = task.get("trigger_cpu")
        known = environment.get("cpus")
        self._cpus = [cpu for cpu in known if isinstance(cpu, dict)] if isinstance(known, list) else []

    def words(self, measured: set[int], node: Any) -> str | None:
        """In words. `measured` counts where the run has no plan; `node` is the device's."""
        if not measured or (self._has_plan and self._asked is None):
            return None
        asked = self._asked or listed(measured)
        told = f"CPUs {_short(listed(measured))}" if self._is_cut_off(asked, measured) else self._of(asked, node)
        return f"{told}, CPU {self._trigger} triggers" if isinstance(self._trigger, int) else told

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


def _model(record: Record) -> str | None:
    """What kind of device a record is of: its numbers, else what a readout says of it."""
    device, stream = record.get("device", {}), record.get("stream", {})
    if _has_numbers(device):
        numbers = [device.get(key) for key in ("vendor", "device", "subsystem_vendor", "subsystem_device")]
        return ":".join(f"{number or 0:04x}" for number in numbers)
    return _text(stream.get("model")) or _text(stream.get("kind"))


def _has_numbers(device: Record) -> bool:
    return isinstance(device.get("vendor"), int) and isinstance(device.get("device"), int)


def _by_bdf(listed: Any, places: list[str | None], keys: tuple[str, ...]) -> str | None:
    """What a list of the environment says of the first of these functions that it names."""
    named = {entry.get("bdf"): entry for entry in listed or [] if isinstance(entry, dict)}
    for place in places:
        for key in keys:
            if text := _text(named.get(place, {}).get(key)):
                return text
    return None


def _target(record: Record) -> str:
    """The target in words that are the same on each host."""
    target, stream, kernel = (record.get(key, {}) for key in ("target", "stream", "kernel"))
    words = []
    if "bar" in target:
        words.append(f"BAR{target['bar']}+{target.get('offset', 0):#x}/{target.get('width', '?')}")
    if "hop" in target:
        words.append(f"hop {target['hop']}")
    if "vector" in target:
        words.append(f"vector {target['vector']}")
    if record["test"] == "verify" and "name" in target:
        words.append(str(target["name"]))
    if stream.get("is_fused") is True:
        stream = {**stream, "function": f"{stream.get('function', '')}+fused"}
    told = (
        (stream, ("function", "access", "wait", "conversion", "samples", "devices", "sweep")),
        (kernel, ("name", "isa", "store", "threads")),
    )
    for part, keys in told:
        words += [f"{part[key]} {key}" if isinstance(part[key], int) else str(part[key]) for key in keys if key in part]
    samples = record.get("metrics", {}).get("samples", {}).get("value") if kernel else None
    return " ".join(words + ([f"{samples:g} samples"] if samples else []))


def _gather(
    gathered: dict[tuple[str, str, int | None], _Figure],
    record: Record,
    run: Run,
    line: int,
    common: Row,
    problems: list[Problem],
) -> None:
    target = _target(record)
    cpu = record.get("cpu", {}).get("cpu") if record["test"] != "counters" else None
    if cpu is not None and (not isinstance(cpu, int) or isinstance(cpu, bool) or not 0 <= cpu < 2**31):
        raise ValueError(f"cpu.cpu is {cpu}")

    def figure(name: str, unit: str) -> _Figure:
        words = " ".join(part for part in (record["test"], target, name) if part)
        return gathered.setdefault((common["device"], words, cpu), _Figure({**common, "figure": words}, unit, cpu))

    for name, told in record.get("histograms", {}).items():
        try:
            parsed = Histogram.parse(told)
        except ValueError as error:
            why = f"run {run.run}, {record['test']} {target} {name}: {error}"
            problems.append(Problem(run.source, line, why))
            continue
        figure(name, "ns").histograms.append(parsed)
    for name, told in record.get("metrics", {}).items():
        value = told.get("value") if isinstance(told, dict) else None
        # Null is a figure that is not finite; Python's reader of JSON also takes NaN, which JSON does not have.
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            figure(name, str(told.get("unit", "1"))).values.append(float(value))


def _figure_rows(gathered: dict[tuple[str, str, int | None], _Figure], asked: Asked) -> list[Row]:
    together: dict[tuple[str, str], list[_Figure]] = {}
    for (device, words, _), figure in gathered.items():
        together.setdefault((device, words), []).append(figure)
    made = []
    for (_, words), figures in together.items():
        name = words.rsplit(" ", maxsplit=1)[-1]
        first = figures[0]
        cpus = asked.words({each.cpu for each in figures if each.cpu is not None}, first.common["node"])
        for each in figures:
            each.common["method"] = ", ".join(filter(None, (each.common["method"], cpus))) or None
            del each.common["node"]
        measured = [(figure, histogram.merge(figure.histograms)) for figure in figures if figure.histograms]
        if measured:
            judged = name not in CONTROLS
            whole = histogram.merge(part for _, part in measured)
            shares = histogram.form(part for _, part in measured)
            made.append(_histogram_row(first.common, whole, judged, None, len(measured), shares))
            if len(measured) > 1:
                made += [_histogram_row(each.common, part, judged, each.cpu, 1) for each, part in measured]
        values = sorted(value for figure in figures for value in figure.values)
        if values:
            middle = (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2
            made.append(
                {
                    **first.common,
                    "unit": first.unit,
                    "judged": name in JUDGED_METRICS and middle > 0,
                    "cpus": len(figures),
                    "count": len(values),
                    "value": middle,
                }
            )
    return made


def _histogram_row(common: Row, whole: Histogram, judged: bool, cpu: int | None, cpus: int, shares: Form = None) -> Row:
    errors: Row = {}
    for column, percent in histogram.PERCENTILES.items():
        known = whole.errors(percent) if cpu is None else None
        errors[f"{column}_down"], errors[f"{column}_up"] = known or (None, None)
    return {
        **common,
        "unit": "ns",
        "judged": judged,
        "cpu": cpu,
        "cpus": cpus,
        "count": whole.count,
        **{column: whole.percentile_ns(percent) for column, percent in histogram.PERCENTILES.items()},
        **errors,
        "form": None if shares is None else [{"bin": place, "share": share} for place, share in shares],
        "bucket_low_ps": whole.lows.tolist(),
        "bucket_count": whole.counts.tolist(),
    }


def _content(figures: list[Row]) -> str:
    """A digest of what a run measured, and by which method: runs with the same one follow each other."""
    names = sorted(
        {f"{row['device']} {row['figure']} {row['backend']} {row['batch']} {row['method']}" for row in figures}
    )
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]


LINK_WARNINGS = {
    "link-downtrained",
    "link-limited",
    "aspm",
    "steal",
    "clocksource",
    "governor",
    "irqbalance",
    "drift",
    "wrong-data",
    "deep-idle",
}
"""Warnings of a measurement that may be the cause of what it shows; `doctor` has findings of the same names."""


DEVICE_FAILED = {"all-ones", "removed", "timeout", "stopped-short"}
"""Codes of errors by which a device is broken. Of the others many are no fault of it: `interrupted`, `refused`."""

MAY_BE_THE_PLAN = {"all-ones", "timeout"}
"""A healthy device gives these too, if a measurement asks for a register or an interrupt that the device lacks."""


def _findings(record: Record, identity: Row) -> list[Row]:
    """What `doctor` found, what a measurement warned of, and why it failed."""
    device = _text(record.get("device", {}).get("bdf"))
    found = [
        {
            **identity,
            "check": _text(finding.get("check")),
            "severity": _text(finding.get("severity")),
            "silenced": bool(finding.get("silenced", False)),
            "device": _text(finding.get("bdf")),
            "text": _text(finding.get("text")),
            "remedy": _text(finding.get("remedy")),
        }
        for finding in record.get("findings") or []
        if isinstance(finding, dict)
    ]
    warned = [
        {
            **identity,
            "check": warning["code"],
            "severity": "warning",
            "silenced": False,
            "device": device,
            "text": _text(warning.get("text")),
            "remedy": _text(warning.get("hint")),
        }
        for warning in record.get("warnings") or []
        if isinstance(warning, dict) and warning.get("code") in LINK_WARNINGS
    ]
    error = record.get("error")
    failed = (
        []
        if not isinstance(error, dict)
        else [
            {
                **identity,
                "check": _text(error.get("code")),
                "severity": "problem" if error.get("code") in DEVICE_FAILED else "warning",
                "silenced": False,
                "device": device,
                "text": _text(error.get("text")),
                "remedy": _text(error.get("hint")),
            }
        ]
    )
    return found + warned + failed


LONGEST_TEXT = 300
"""Letters of the text of an error that a run keeps for its list."""


def _failed(made: list[Record]) -> str:
    """The errors of a run, as JSON: device, code and the first text of each."""
    told: dict[tuple[str, str], str] = {}
    for record in made:
        error = record.get("error")
        if isinstance(error, dict):
            device, code = _text(record.get("device", {}).get("bdf")) or "", _text(error.get("code")) or ""
            told.setdefault((device, code), (_text(error.get("text")) or "")[:LONGEST_TEXT])
    return json.dumps([[*key, text] for key, text in sorted(told.items())], separators=(",", ":"))


def _checked(made: list[Record]) -> str:
    """What a run looked at, as JSON: checks of `doctor` that looked, and the devices that they looked at.

    `null` in place of the checks is all that the verb knows. The machine is an empty text among the devices.
    """
    by_checks: dict[tuple[str, ...] | None, set[str]] = {}
    for record in made:
        checks, device = record.get("checks"), _text(record.get("device", {}).get("bdf")) or ""
        if record["test"] == "doctor" and isinstance(checks, list):
            ended = [each for each in checks if isinstance(each, dict) and each.get("ended") in ("fine", "found")]
            names = tuple(sorted(name for each in ended if (name := _text(each.get("check")))))
            by_checks.setdefault(names, set()).add(device)
        else:
            by_checks.setdefault(None, set()).add(device)
    told = sorted(([checks, sorted(devices)] for checks, devices in by_checks.items() if checks != ()), key=str)
    return json.dumps(told, separators=(",", ":"))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _time(told: str) -> datetime.datetime | None:
    try:
        time = datetime.datetime.fromisoformat(told)
        utc = time.astimezone(datetime.UTC) if time.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
    return utc if utc is not None and utc.year in YEARS else None
