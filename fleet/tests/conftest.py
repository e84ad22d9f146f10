"""What the tests share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def program() -> Path:
    """The program pciescope, which `make fleet-test` builds."""
    path = Path(os.environ.get("PCIESCOPE") or ROOT / "target" / "release" / "pciescope")
    assert path.exists(), f"{path} is not built: make build, or PCIESCOPE=..."
    return path


def fleet(*typed: object) -> subprocess.CompletedProcess[str]:
    """Runs the command."""
    words = [str(word) for word in typed]
    return subprocess.run(
        [sys.executable, "-m", "pciescope_fleet", *words], capture_output=True, text=True, check=False
    )
