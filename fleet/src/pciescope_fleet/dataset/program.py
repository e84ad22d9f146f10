"""The tables that `pciescope report` writes of files of records (docs/record.md): figures, runs and findings."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pciescope_fleet import __version__
from pciescope_fleet.errors import FleetError

HINT = "install the package pciescope of the same version, or name the program: --program PATH"


@dataclass(frozen=True)
class Problem:
    """Something in a file that was not taken or is doubtful, and why."""

    file: str
    line: int | None
    why: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.why}"


@dataclass(frozen=True)
class Tables:
    """Files with the tables, and what is in none of them."""

    figures: Path
    runs: Path
    findings: Path
    problems: list[Problem]


def find(program: str | None) -> str:
    """The program's path. A refusal where there is none, or where it has another version than this package."""
    path = shutil.which(program or "pciescope")
    if path is None:
        raise FleetError(f"there is no {program or 'pciescope'} on this machine: it reads the records", HINT)
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    version = answer.stdout.strip().removeprefix("pciescope ")
    if version != __version__:
        raise FleetError(f"{path} has version {version or 'unknown'}, and pciescope-fleet {__version__}", HINT)
    return path


def name_of(path: Path) -> str:
    """A file's name as the tables have it: bytes that are no UTF-8 are `\\xe4` and the like."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


@contextmanager
def tables(paths: Sequence[Path], program: str | None) -> Iterator[Tables]:
    """The tables of these files, until the end of the block. They lie in the folder for temporary files."""
    program = find(program)
    with tempfile.TemporaryDirectory(prefix="pciescope-fleet-") as folder:
        place = Path(folder)
        figures, runs, findings = (place / f"all{kind}.parquet" for kind in ("", ".runs", ".findings"))
        left_out = place / "left-out.jsonl"
        outputs = [word for output in (figures, runs, findings) for word in ("-o", str(output))]
        # `-` would be the standard input, which has the names.
        names = b"\0".join(os.fsencode(path.absolute() if str(path) == "-" else path) for path in paths)
        command = [program, "report", "--files0-from", "-", "--left-out", str(left_out), *outputs]
        ended = subprocess.run(command, input=names, capture_output=True, check=False)
        if ended.returncode != 0:
            text = ended.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {ended.returncode}"]
            hint = "free space in the folder for temporary files, or TMPDIR=DIR for another one"
            raise FleetError(f"{program} report: {text[0].removeprefix('pciescope: ')}", hint)
        lines = map(json.loads, left_out.read_text(encoding="utf-8").splitlines())
        yield Tables(figures, runs, findings, [Problem(line["file"], line.get("line"), line["why"]) for line in lines])
