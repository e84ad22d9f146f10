"""What the tests share."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session", autouse=True)
def program() -> Path:
    """The program pciescope, which `make fleet-test` builds. `ingest` finds it too."""
    path = Path(os.environ.get("PCIESCOPE") or ROOT / "target" / "release" / "pciescope").absolute()
    assert path.exists(), f"{path} is not built: make build, or PCIESCOPE=..."
    os.environ["PATH"] = f"{path.parent}{os.pathsep}{os.environ['PATH']}"
    return path


def fleet(*typed: object) -> subprocess.CompletedProcess[str]:
    """Runs the command."""
    words = [str(word) for word in typed]
    return subprocess.run(
        [sys.executable, "-m", "pciescope_fleet", *words], capture_output=True, text=True, check=False
    )


@dataclass(frozen=True)
class Told:
    """How a verb ended in this process, and what it wrote."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.code in (0, 1), self.err
        return json.loads(self.out)


Call = Callable[..., Told]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs the command in this process: a new one takes a second to load its libraries."""
    from pciescope_fleet import cli

    def runs(*typed: object) -> Told:
        capsys.readouterr()
        code = cli.main([str(word) for word in typed])
        told = capsys.readouterr()
        return Told(code, told.out, told.err)

    return runs


Clock = Callable[[str], None]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Sets the clock of the machine that ingests."""
    from pciescope_fleet.dataset import ingest

    def sets(time: str) -> None:
        monkeypatch.setattr(ingest, "now", lambda: datetime.datetime.fromisoformat(time))

    return sets


def alike(a: Any, b: Any, place: str = "") -> None:
    """Raises where two answers differ by more than rounding."""
    if isinstance(a, float) and isinstance(b, float):
        assert a == pytest.approx(b, rel=1e-6, abs=1e-12), place
    elif isinstance(a, dict) and isinstance(b, dict):
        assert a.keys() == b.keys(), place
        for key in a:
            alike(a[key], b[key], f"{place}.{key}")
    elif isinstance(a, list) and isinstance(b, list):
        assert len(a) == len(b), place
        for number, (one, other) in enumerate(zip(a, b, strict=True)):
            alike(one, other, f"{place}[{number}]")
    else:
        assert a == b, place
