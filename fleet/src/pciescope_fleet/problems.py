"""What is wrong with this host, by `pciescope doctor` or `pciescope compare --fail-if`: names and sentences."""

from __future__ import annotations

import json
import shlex
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pciescope_fleet.errors import FleetError


def find(program: Sequence[str], words: Sequence[str], measure: Sequence[str], seconds: int) -> dict[str, str]:
    """The problems of this host now, each with what tells it from others.

    `words` are the command, `doctor` or `compare`. `measure` is what is measured before, where there is any; `{new}` in
    the command then stands for its records. `seconds` are for both together.
    """
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="pciescope-fleet-") as folder:
        new = Path(folder) / "new.jsonl"
        if measure:
            told = call([*program, *measure, "--output", str(new)], end, seconds)
            if told.returncode not in (0, 1):
                raise FleetError(f"{shlex.join(measure)}: {last(told)}")
        told = call([*program, *(word.replace("{new}", str(new)) for word in words), "--json"], end, seconds)
    if told.returncode not in (0, 1):
        raise FleetError(f"{shlex.join(words)}: {last(told)}")
    try:
        lines: list[dict[str, Any]] = [json.loads(line) for line in told.stdout.splitlines() if line.strip()]
    except ValueError as error:
        raise FleetError(f"{shlex.join(words)} printed what is no JSON: {error}") from error
    found = of_doctor(lines) if words[0] == "doctor" else of_compare(lines)
    if (told.returncode == 1) != bool(found):
        raise FleetError(f"{shlex.join(words)} ended with {told.returncode} and named {len(found)} problems")
    return found


def of_doctor(records: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Findings that are more than notes, and not silenced."""
    found: dict[str, str] = {}
    for finding in (finding for record in records for finding in record.get("findings", [])):
        if finding["severity"] != "note" and not finding.get("silenced", False):
            where = finding.get("bdf", "machine")
            found[f"{finding['check']}@{where}"] = f"{finding['check']} {where}: {finding['text']}"
    return found


def of_compare(lines: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Limits that are exceeded, one for each device and figure."""
    found: dict[str, str] = {}
    for line in (line for line in lines if line.get("type") == "limit"):
        for one in line.get("exceeded", []):
            where, figure = one.get("device") or "machine", f"{one['figure']} {one['name']}"
            change = f" ({one['change']:+.1%})" if one.get("change") is not None else ""
            text = f"{where}: {figure} is {one['b']:g}{change}, beyond {line['limit']}"
            found.setdefault(f"{line['limit']}@{where}@{figure}", text)
    return found


def call(words: Sequence[str], end: float, seconds: int) -> subprocess.CompletedProcess[str]:
    """Runs the program until `end` at most, of the `seconds` that the check has."""
    left = max(end - time.monotonic(), 0.0)
    try:
        return subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=left
        )
    except FileNotFoundError as error:
        raise FleetError(f"there is no {words[0]} on this machine", "--program 'sudo -n /usr/bin/pciescope'") from error
    except subprocess.TimeoutExpired as error:
        raise FleetError(f"{shlex.join(words)} did not end within {seconds} s", "--timeout TIME") from error


def last(told: subprocess.CompletedProcess[str]) -> str:
    """The last error of a program."""
    lines = [line for line in told.stderr.splitlines() if line.strip() and not line.startswith("hint:")]
    return lines[-1] if lines else f"exit code {told.returncode}"
