"""What is wrong with this host, by `pciescope doctor` or `pciescope compare --fail-if`: names and sentences."""

import contextlib
import json
import math
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pciescope_fleet.errors import FleetError
from pciescope_fleet.task import GRACE_S, behind_sudo, has_json


def find(program: Sequence[str], words: Sequence[str], measure: Sequence[str], seconds: int) -> dict[str, str]:
    """The problems of this host now, each with what tells it from others.

    `words` are the command, `doctor` or `compare`. `measure` is what is measured before, where there is any; `{new}` in
    the command then stands for its records. `seconds` are for both together.
    """
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="pciescope-fleet-") as folder:
        new = Path(folder) / "new.jsonl"
        if measure:
            process = call([*program, *measure, "--output", str(new)], end, seconds)
            if process.returncode not in (0, 1):
                raise FleetError(f"{shlex.join(measure)}: {last(process)}")
        typed = [word.replace("{new}", str(new)) for word in words]
        process = call([*program, *typed, *([] if has_json(words) else ["--json"])], end, seconds)
    if process.returncode not in (0, 1):
        raise FleetError(f"{shlex.join(words)}: {last(process)}")
    try:
        lines: list[dict[str, Any]] = [json.loads(line) for line in process.stdout.splitlines() if line.strip()]
    except ValueError as error:
        raise FleetError(f"{shlex.join(words)} printed what is no JSON: {error}") from error
    found = of_doctor(lines) if words[0] == "doctor" else of_compare(lines)
    if (process.returncode == 1) != bool(found):
        raise FleetError(f"{shlex.join(words)} ended with {process.returncode} and named {len(found)} problems")
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
    """Limits that are exceeded, one for each device and figure. A figure that only B has counts where it is proven."""
    found: dict[str, str] = {}
    for line in (line for line in lines if line.get("type") == "limit"):
        alone = [one for one in line.get("only_in_b", []) if one["is_proven"]]
        for one in [*line.get("exceeded", []), *alone]:
            where, figure = one.get("device") or "machine", f"{one['figure']} {one['name']}"
            change = f" ({one['change']:+.1%})" if one.get("change") is not None else ""
            text = f"{where}: {figure} is {one['b']:g}{change}, beyond {line['limit']}"
            found.setdefault(f"{line['limit']}@{where}@{figure}", text)
    return found


def call(words: Sequence[str], end: float, seconds: int) -> subprocess.CompletedProcess[str]:
    """Runs the program until `end` at most, of the `seconds` that the check has."""
    left = max(end - time.monotonic(), 0.0)
    shown = shlex.join(words)
    late = FleetError(f"{shown} did not end within {seconds} s", "--timeout TIME")
    before = behind_sudo(list(words))
    if before:
        # A user may not end a process of root: there the bound is root's as well.
        words = [*words[:before], "timeout", "-k", str(GRACE_S), str(max(math.ceil(left), 1)), *words[before:]]
        left = max(math.ceil(left), 1) + GRACE_S + 1.0
    try:
        running = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        )
    except FileNotFoundError as error:
        raise FleetError(f"there is no {words[0]} on this machine", "--program 'sudo -n /usr/bin/pciescope'") from error
    except OSError as error:
        raise FleetError(f"{words[0]} cannot be started: {error.strerror}") from error
    try:
        out, errors = running.communicate(timeout=left)
    except BaseException as error:
        _end(running)
        if isinstance(error, subprocess.TimeoutExpired):
            raise late from error
        raise
    # `timeout` ends with 124, or like what it killed.
    if before and (running.returncode in TIMED_OUT and time.monotonic() >= end):
        raise late
    return subprocess.CompletedProcess(words, running.returncode, out, errors)


def _end(running: subprocess.Popen[str]) -> None:
    """Ends a program, which may have something to put back: a driver that `--bind` took off.

    Nobody waits here for what cannot be ended: a process of another user, or one that waits in the kernel.
    """
    for signal_it in (running.terminate, running.kill):
        with contextlib.suppress(PermissionError, subprocess.TimeoutExpired):
            signal_it()
            running.wait(GRACE_S / 2)
            return


TIMED_OUT = (124, 128 + signal.SIGKILL, -signal.SIGKILL)


def last(process: subprocess.CompletedProcess[str]) -> str:
    """The last error of a program."""
    lines = [line for line in process.stderr.splitlines() if line.strip() and not line.startswith("hint:")]
    return lines[-1] if lines else f"exit code {process.returncode}"
