"""The folder of a run over many hosts: one file of records a host, and how it ended there.

    run.json           the command and the hosts; it tells whether a second run goes on with this folder
    HOST.jsonl         what the host's program wrote, also where it did not come to its end
    HOST.err           what it said
    HOST.end           two numbers once it has ended: exit code, seconds that it took
    earlier/           the same three of earlier attempts
    job/               what Slurm runs, and what it said

A file `HOST.end` is moved into its place once it is whole. What is written on a host is never written again here.
"""

import json
import os
import signal
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pciescope_fleet.errors import FleetError
from pciescope_fleet.task import NOTHING_OF_THE_CLASS, Task
from pciescope_fleet.text import plain

NOTE, EARLIER = "run.json", "earlier"
ENDINGS = (".jsonl", ".err", ".end")
SCHEMA = 1  # Of `run.json`.


@dataclass
class Answer:
    """What became of a host."""

    host: str
    is_whole: bool  # Whether the program came to its end and measured.
    why: str | None  # Why not; also what a check found.
    exit_code: int | None = None
    seconds: int | None = None
    records: int = 0
    torn: int = 0  # Lines of the file that are no record: what a killed program leaves.

    def to_json(self) -> str:
        """A line for scripts."""
        return json.dumps({key: value for key, value in asdict(self).items() if value is not None})


@dataclass
class Folder:
    """A run's folder."""

    path: Path
    task: Task
    hosts: list[str]
    silent: dict[str, str] = field(default_factory=dict)  # Why a host did not answer, where the way there knows it.

    def prepare(self) -> list[str]:
        """Makes the folder, or goes on with it; returns the hosts that have not answered yet.

        Raises `FleetError` where the folder is of another run.
        """
        plan = {"schema": SCHEMA, **asdict(self.task)}
        # The way to the program and the time limits may differ from one attempt to the next; what is measured may not.
        same = ("words", "function_class")
        note = self.path / NOTE
        try:
            (self.path / "job").mkdir(parents=True, exist_ok=True)
            (self.path / EARLIER).mkdir(exist_ok=True)
            before = read_note(note)
            hosts = list(dict.fromkeys([*(before.get("hosts", []) if before else []), *self.hosts]))
            if before is not None and any(before.get(key) != plan[key] for key in same):
                raise FleetError(
                    f"{self.path} holds the records of another command: {' '.join(map(str, before.get('words', [])))}",
                    "name another folder with --dir, or give that command to go on with it",
                )
            replace(note, json.dumps({**plan, "hosts": hosts}, indent=1) + "\n")
        except OSError as error:
            raise FleetError(f"{self.path}: {error.strerror}: {error.filename}") from error
        return [host for host in self.hosts if not self.answer(host).is_whole]

    def put_aside(self, host: str) -> None:
        """Moves what an earlier attempt on a host left to `earlier/`."""
        left = [ending for ending in ENDINGS if self.file(host, ending).exists()]
        number = 1
        while any((self.path / EARLIER / f"{host}.{number}{ending}").exists() for ending in ENDINGS):
            number += 1
        for ending in left:
            self.file(host, ending).rename(self.path / EARLIER / f"{host}.{number}{ending}")

    def file(self, host: str, ending: str) -> Path:
        """A file of a host."""
        return self.path / f"{host}{ending}"

    def has_ended(self, host: str) -> bool:
        """Whether the host has written how it ended."""
        return self.file(host, ".end").exists()

    def answer(self, host: str) -> Answer:
        """What became of a host so far."""
        records, torn = count(self.file(host, ".jsonl"))
        answer = Answer(host, False, None, records=records, torn=torn)
        try:
            numbers = self.file(host, ".end").read_text(encoding="ascii").split()
            answer.exit_code, answer.seconds = int(numbers[0]), int(numbers[1])
        except FileNotFoundError:
            answer.why = self.silent.get(host, "no answer")
            return answer
        except (OSError, ValueError, IndexError) as error:
            answer.why = f"{self.file(host, '.end')} cannot be read: {error}"
            return answer
        answer.why = self.why(host, answer)
        answer.is_whole = answer.exit_code in (0, 1) and torn == 0 and records > 0
        return answer

    def why(self, host: str, answer: Answer) -> str | None:
        """Why a host's program ended as it did, in words; `None` where all is well."""
        code, took = answer.exit_code or 0, answer.seconds or 0
        if code == NOTHING_OF_THE_CLASS:
            return f"has no function of the class {self.task.function_class}"
        # `timeout` ends with 124, or like what it killed.
        if code in (124, 128 + signal.SIGKILL) and took >= self.task.seconds:
            return f"did not end within {self.task.seconds} s"
        if code in (0, 1) and answer.torn:
            return f"{answer.torn} lines of its records are no records"
        said = last_words(self.file(host, ".err"))
        if code in (0, 1) and not answer.records:
            return f"ended with exit code {code}, and no record of it is here{said}"
        if code == 0:
            return None
        if code == 1:
            return f"a check failed{said}"
        if code == 127:
            return f"{self.task.program[0]} is not there{said}"
        if code > 128:
            return f"killed by signal {code - 128} after {took} s{said}"
        return f"exit code {code}{said}"


def read_note(path: Path) -> dict[str, Any] | None:
    """The folder's note of an earlier attempt."""
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise FleetError(f"{path} cannot be read: {error}", "name another folder with --dir") from error
    if not isinstance(note, dict) or note.get("schema") != SCHEMA:
        raise FleetError(f"{path} is of another version of this program", "name another folder with --dir")
    return note


def count(path: Path) -> tuple[int, int]:
    """How many lines of a file are records, and how many are not."""
    records, torn = 0, 0
    try:
        with path.open("rb") as lines:
            for line in lines:
                try:
                    is_record = line.endswith(b"\n") and isinstance(json.loads(line), dict)
                except (ValueError, RecursionError):
                    is_record = False
                records, torn = records + is_record, torn + (not is_record)
    except FileNotFoundError:
        pass
    return records, torn


def last_words(path: Path) -> str:
    """The last error that a program told of: `: TEXT`, or nothing."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    filled = [line for line in lines if line.strip() and not line.startswith("hint:")]
    return f": {plain(filled[-1])[:200]}" if filled else ""


def replace(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
