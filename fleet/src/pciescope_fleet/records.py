"""Reads files of records (docs/record.md), and takes what is whole out of torn ones.

A reader names what it cannot take: `Problem`. It knows one schema, `SCHEMA`; another one is a problem, since its fields
may mean something else.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = 1
"""The schema that is known."""

LONGEST_LINE = 64 * 2**20
"""A line that is longer is not a record, as in the main program."""

SYNTHETIC = "synthetic machine"
"""The product of a machine that the fake backend makes up."""

MADE_UP = "it is synthetic"
"""What `emulated` says of a digitizer that the fake backend makes up on a machine that is real."""

Record = dict[str, Any]


@dataclass(frozen=True)
class Problem:
    """Something in a file that was not taken, and why."""

    file: str
    line: int | None
    why: str

    def __str__(self) -> str:
        """Where and why, in one line."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.why}"


@dataclass
class Run:
    """The records of one invocation in one file, with the machine and the plan of the first that has them."""

    run: str
    source: str
    records: list[Record] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    """Of each record: its line in the file."""

    def add(self, record: Record, line: int) -> None:
        """Takes one more record."""
        self.records.append(record)
        self.lines.append(line)

    @property
    def environment(self) -> Record:
        """The machine; empty where the run does not describe it."""
        found = (record["environment"] for record in self.records if isinstance(record.get("environment"), dict))
        return next(found, {})


def read(path: Path | str) -> tuple[list[Run], list[Problem]]:
    """The runs of a file of records, in the order in which they begin, and what could not be taken.

    A record that stands there twice is one record.
    """
    runs: dict[str, Run] = {}
    # A name that is no UTF-8 is written so that it is some.
    source = str(path).encode("utf-8", "backslashreplace").decode("utf-8")
    problems: list[Problem] = []
    seen: set[bytes] = set()
    for number, digest, record in _lines(Path(path), problems):
        if digest in seen:
            continue
        seen.add(digest)
        why = _refuse(record)
        if why is not None:
            problems.append(Problem(str(path), number, why))
            continue
        runs.setdefault(record["run"], Run(record["run"], source)).add(record, number)
    return list(runs.values()), problems


def _lines(path: Path, problems: list[Problem]) -> Iterator[tuple[int, bytes, Any]]:
    """The lines that are JSON, each with its number and a digest."""
    try:
        stream = (gzip.open if path.suffix == ".gz" else open)(path, "rb")
    except OSError as error:
        problems.append(Problem(str(path), None, f"cannot be read: {error.strerror}"))
        return
    with stream:
        number = 0
        # Of a line that is too long: its last part so far.
        rest = b""
        while True:
            number += 1
            try:
                while rest and not rest.endswith(b"\n"):
                    rest = stream.readline(2**20)
                rest = b""
                line = stream.readline(LONGEST_LINE + 1)
            except (OSError, EOFError, zlib.error) as error:
                problems.append(Problem(str(path), number, f"the file ends in the middle or is damaged: {error}"))
                return
            if not line:
                return
            if len(line) > LONGEST_LINE:
                problems.append(Problem(str(path), number, f"the line has more than {LONGEST_LINE} bytes"))
                rest = line
                continue
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                torn = not line.endswith(b"\n")
                why = "the last line is unfinished: the run was killed" if torn else f"not JSON: {error}"
                problems.append(Problem(str(path), number, why))
                continue
            yield number, hashlib.blake2b(line.strip(), digest_size=16).digest(), record


RUN = re.compile(r"[0-9a-f]{16}")

OBJECTS = "device target cpu method histograms metrics environment stream kernel instance".split()  # noqa: SIM905
"""Fields that are objects where a record has them."""


def _refuse(record: Any) -> str | None:
    """Why this is not a record that can be taken; nothing where it is one."""
    if not isinstance(record, dict):
        return "not a record: not a JSON object"
    schema = record.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        return f"not a record: schema is {json.dumps(schema)}"
    if schema != SCHEMA:
        return f"schema {schema} is of another version of pciescope; this one reads schema {SCHEMA}"
    run = record.get("run")
    if not isinstance(run, str) or not RUN.fullmatch(run):
        return f"not a record: run is {json.dumps(run)}, not 16 hexadecimal digits"
    for name in ("time", "verb", "test"):
        if not isinstance(record.get(name), str):
            return f"not a record: {name} is {json.dumps(record.get(name))}"
    for name in OBJECTS:
        if not isinstance(record.get(name, {}), dict):
            return f"not a record: {name} is not an object"
    return None


ORIGINS = ("synthetic", "emulated", "imported", "measured")
"""Where figures come from, the least real first."""


def origin(record: Record, environment: Record) -> str:
    """Where the figures of a record come from, by its own signs alone.

    One sign is enough: figures that the fake backend made up are synthetic, whatever else the record says.
    """
    method, device = record.get("method", {}), record.get("device", {})
    made_up = method.get("backend") == "fake" or device.get("emulated") == MADE_UP
    if made_up or environment.get("product") == SYNTHETIC:
        return "synthetic"
    if method.get("emulated") or device.get("emulated"):
        return "emulated"
    return "imported" if method.get("backend") == "import" else "measured"


def origins(run: Run) -> list[str]:
    """Where the figures of each record of a run come from.

    One synthetic record makes the whole run synthetic. A record without a device and a method of its own, such as a
    summary of several devices, has the least real origin of the others.
    """
    own = [origin(record, run.environment) for record in run.records]
    if "synthetic" in own:
        return ["synthetic"] * len(own)
    tells = [bool(record.get("device") or record.get("method")) for record in run.records]
    others = {each for each, is_told in zip(own, tells, strict=True) if is_told}
    whole = next((each for each in ORIGINS if each in others), "measured")
    return [each if is_told else whole for each, is_told in zip(own, tells, strict=True)]
