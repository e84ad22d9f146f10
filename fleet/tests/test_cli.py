"""The command: its help, its refusals and its exit codes."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sample
from conftest import ROOT
from pciescope_fleet import cli, cmd
from pciescope_fleet.cmd.run import words_of
from pciescope_fleet.errors import FleetError


def run(*typed: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pciescope_fleet", *typed], capture_output=True, text=True, check=False
    )


def test_help_names_every_verb_and_ends_with_0() -> None:
    told = run("--help")
    assert told.returncode == 0
    verbs = ["run", "ingest", "outliers", "trend", "links", "matrix", "health", "slurm-drain"]
    # In the order in which they are needed.
    assert re.findall(r"^    ([a-z-]+)(?:  |$)", told.stdout, re.MULTILINE) == verbs
    assert "Exit codes:" in told.stdout


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


def printed_commands() -> list[tuple[str, str]]:
    """Every command line of ours that the pages and the verbs' help print, and where."""
    texts = {name: (ROOT / name).read_text() for name in ("docs/fleet.md", "docs/fleet-run.md", "README.md")}
    for verb in sorted(module.name for module in pkgutil.iter_modules(cmd.__path__)):
        texts[f"{verb} --help"] = importlib.import_module(f"{cmd.__name__}.{verb}").EPILOG
    texts["--help"] = cli.EPILOG
    found = []
    for place, text in texts.items():
        lines = (line.strip() for line in re.sub(r"\\\n\s*", " ", text).splitlines())
        found += [(place, line) for line in lines if line.startswith("pciescope-fleet ") and "VERB" not in line]
    return found


def test_every_printed_command_is_one_that_the_program_takes() -> None:
    lines = printed_commands()
    assert {place for place, _ in lines} > {"docs/fleet.md", "docs/fleet-run.md", "run --help", "health --help"}
    for place, line in lines:
        # The help explains some beside them, two blanks away.
        words = shlex.split(line.split("   ")[0].split("  prints")[0].split("  runs")[0], comments=True)
        words = words[1 : words.index(">") if ">" in words else None]
        args = cli.parser().parse_args(words)
        if words[0] == "run":
            assert words_of(args), place
        if words[0] == "health":
            assert args.words[1] in ("doctor", "compare"), place


@pytest.mark.parametrize("verb", [["outliers", "d"], ["trend", "d"], ["matrix", "d", "-o", "m.html"]])
@pytest.mark.parametrize(
    "date", ["2026-11-2", "2026-13-01", "20261122", "yesterday", "2026-11-22T00:00:00", "2026-W48"]
)
def test_a_day_that_is_no_day_is_refused(verb: list[str], date: str, capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--since", "--until"):
        assert cli.main([*verb, option, date]) == 2
        assert f"argument {option}: {date}: not a day; write 2026-11-22" in capsys.readouterr().err


def test_options_of_a_store_may_be_more_than_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pciescope_fleet.dataset import store

    told: list[dict[str, Any]] = []

    def opens(_: str, options: dict[str, Any]) -> None:
        told.append(options)
        raise FleetError("opened")

    monkeypatch.setattr(store, "Store", opens)
    given = ["anon=true", "use_ssl=false", "key=123", "secret=truly=", 'client_kwargs={"region_name": "x", "n": 1}']
    assert cli.main(["outliers", "s3://b/d", *(f"--store-option={option}" for option in given)]) == 2
    assert told == [
        {
            "anon": True,
            "use_ssl": False,
            "key": "123",
            "secret": "truly=",
            "client_kwargs": {"region_name": "x", "n": 1},
        }
    ]
    capsys.readouterr()
    assert cli.main(["outliers", "s3://b/d", "--store-option", "client_kwargs={region_name: x}"]) == 2
    assert len(told) == 1
    err = capsys.readouterr().err
    assert err.startswith("pciescope-fleet: --store-option client_kwargs={region_name: x}: its value begins with {")
    assert "hint: --store-option " in err


def test_files_are_utf_8_in_any_locale(tmp_path: Path) -> None:
    """In the locale C Python would write ASCII; files whose names are no UTF-8 are taken, each as a host of its own."""
    names = [b"n\xe4.jsonl", b"n\xf6.jsonl"]
    for number, name in enumerate(names, 1):
        (tmp_path / os.fsdecode(name)).write_text(
            "".join(f"{json.dumps(sample.whole(r))}\n" for r in sample.run(number, None))
        )
    runs = [sample.run(n, f"h\u00e4{n}", cpus=1, median=1200 if n == 15 else 800 + n % 3) for n in range(3, 16)]
    sample.write(tmp_path / "all.jsonl", *runs)
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    def fleet(*typed: str) -> subprocess.CompletedProcess[bytes]:
        words = [sys.executable, "-m", "pciescope_fleet", *typed]
        return subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, check=False)

    taken = fleet("ingest", ".", "d", "-j")
    assert taken.returncode == 0, taken.stderr
    assert json.loads(taken.stdout)["hosts_by_file_name"] == ["n\\xe4", "n\\xf6"]
    judged = fleet("outliers", "d", "--prom", "f.prom")
    assert judged.returncode == 1, judged.stderr
    assert 'host="h\u00e415"' in (tmp_path / "f.prom").read_text(encoding="utf-8")
    shown = fleet("outliers", "d")
    assert shown.returncode == 1, shown.stderr
    assert b"slower: h\\xe415" in shown.stdout
    drawn = fleet("matrix", "d", "-o", "m.html")
    assert drawn.returncode == 1, drawn.stderr
    assert "h\u00e415" in (tmp_path / "m.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        (["outliers", "d", "--threads", "0"], "argument --threads: 0: not a number from 1 to 1024"),
        (["outliers", "d", "--threads", "-1"], "argument --threads: -1: not a number from 1 to 1024"),
        (["trend", "d", "--threads", "99999999999"], "argument --threads: 99999999999: not a number"),
        (["outliers", "d", "--memory", "99999999999999999999GB"], "argument --memory: 99999999999999999999GB: not a"),
        (["health", "--program", "sudo 'x", "--", "doctor"], '--program "sudo \'x": No closing quotation'),
        (["health", "--program", "", "--", "doctor"], "--program is empty"),
        (["health", "--measure", "x 'y", "--", "compare"], '--measure "x \'y": No closing quotation'),
        (["ingest", "d", ""], "the dataset has an empty name"),
        (["outliers", ""], "the dataset has an empty name"),
        (["run", "--ssh", "n[1-5000][1-5000]", "--dir", "x", "--", "list"], "names more than 200000 hosts"),
    ],
)
def test_what_nobody_can_mean_is_refused(typed: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(typed) == 2
    assert why in capsys.readouterr().err


def test_a_nested_file_is_no_list_of_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f.json").write_text("[" * 100_000)
    assert cli.main(["slurm-drain", str(tmp_path / "f.json")]) == 2
    assert "is not what `outliers --json` prints" in capsys.readouterr().err


def test_a_name_with_the_signs_of_a_pattern_is_a_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`night1` and `nightX` fit to the other two as patterns."""
    for name, slow in (("night[1]", 1200), ("night1", 800), ("night?", 1200), ("nightX", 800)):
        runs = [sample.run(n, f"n{n}", cpus=1, median=slow if n == 3 else 800 + n % 3) for n in range(1, 11)]
        sample.write(tmp_path / "in.jsonl", *runs)
        assert cli.main(["ingest", str(tmp_path / "in.jsonl"), str(tmp_path / name)]) == 0
    for name, code in (("night[1]", 1), ("night?", 1), ("night1", 0)):
        assert cli.main(["outliers", str(tmp_path / name), "--level", "1%"]) == code
    capsys.readouterr()
