"""The command: its help, its refusals and its exit codes."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest

from pciescope_fleet import cli
from pciescope_fleet.errors import FleetError


def run(*typed: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pciescope_fleet", *typed], capture_output=True, text=True, check=False
    )


def test_help_names_every_verb_and_ends_with_0() -> None:
    told = run("--help")
    assert told.returncode == 0
    assert "VERB" in told.stdout


def test_refuses_an_unknown_verb_with_a_hint() -> None:
    told = run("no-such-verb")
    assert told.returncode == 2
    assert told.stdout == ""
    assert told.stderr.startswith("pciescope-fleet: ")
    assert "no-such-verb" in told.stderr
    assert told.stderr.splitlines()[-1] == "hint: pciescope-fleet --help"


def with_verb(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> int:
    """The exit code of a verb that raises."""

    def raises(_: argparse.Namespace) -> int:
        raise error

    class Fixed:
        def parse_args(self, _: object) -> argparse.Namespace:
            return argparse.Namespace(run=raises)

    monkeypatch.setattr(cli, "parser", Fixed)
    return cli.main([])


def test_an_error_is_told_with_its_hint(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert with_verb(monkeypatch, FleetError("node7: no answer in 60 s", "ping node7")) == 2
    assert capsys.readouterr().err == "pciescope-fleet: node7: no answer in 60 s\nhint: ping node7\n"


def test_a_missing_module_is_told_with_the_package_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert with_verb(monkeypatch, ModuleNotFoundError("no", name="ibis.expr")) == 2
    assert "hint: pip install 'ibis-framework[duckdb]'" in capsys.readouterr().err


def test_ctrl_c_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    assert with_verb(monkeypatch, KeyboardInterrupt()) == 130
