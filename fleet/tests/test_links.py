"""`links`: what links lost, summed over the runs of a week, the largest first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import Call, Clock


def watched(host: str, run: str, day: int, links: dict[str, tuple[float, float, float]]) -> list[dict[str, Any]]:
    """The records of a run: of each link what it lost in bytes, how often it changed, and seconds under watch."""
    head = {"schema": 1, "run": run, "time": f"2026-11-{day:02}T06:00:00Z", "verb": "watch"}
    first = {**head, "test": "environment", "plan": {"watch": {"interval_ns": 10**9}}}
    first["environment"] = {"tool": "0.1.0", "kernel": "6.12", "machine": "x86_64", "host": {"name": host}, "cpus": []}
    records = [first]
    for bdf, (lost, changes, seconds) in links.items():
        metrics = {
            "lost_bytes": {"value": lost, "unit": "bytes"},
            "changes": {"value": changes, "unit": "1"},
            "watched_ns": {"value": seconds * 1e9, "unit": "ns"},
        }
        device = {"bdf": bdf, "vendor": 0x8086, "device": 1, "class": 0x060400, "name": "a port"}
        method = {"backend": "sysfs", "gap_ns": 0, "irqs_off": False, "emulated": False}
        records.append({**head, "test": "watch", "device": device, "metrics": metrics, "method": method})
    return records


@pytest.fixture
def dataset(tmp_path: Path, call: Call, clock: Clock) -> Path:
    """Two hosts; one was watched twice in the last week, and once before it."""
    clock("2026-11-30T12:00:00+00:00")
    runs = [
        watched("a", "a" * 16, 10, {"0000:00:01.0": (9e12, 90, 100)}),
        watched("a", "b" * 16, 24, {"0000:00:01.0": (1e9, 2, 100), "0000:00:02.0": (0, 0, 100)}),
        watched("a", "c" * 16, 25, {"0000:00:01.0": (3e9, 1, 300)}),
        watched("b", "d" * 16, 26, {"0000:00:01.0": (4e9, 5, 100)}),
    ]
    (tmp_path / "night").mkdir()
    for number, records in enumerate(runs):
        text = "".join(json.dumps(record) + "\n" for record in records)
        (tmp_path / "night" / f"{number}.jsonl").write_text(text, "utf-8")
    assert call("ingest", tmp_path / "night", tmp_path / "fleet").code == 0
    return tmp_path / "fleet"


def test_links_that_lost_most_in_a_week_stand_first(dataset: Path, call: Call) -> None:
    told = call("links", dataset)
    lines = told.out.splitlines()
    assert (told.code, lines[0]) == (1, "2 links of 3 lost bandwidth"), told
    assert lines[1].split()[:4] == ["0.040", "GB/s", "b", "0000:00:01.0"], told.out
    assert lines[2].endswith("a  0000:00:01.0  a port: 4.0 GB, 3 changes"), told.out
    rates = [(each["host"], each["lost_bytes_per_s"]) for each in call("links", dataset, "-j").json()]
    assert rates == [("b", 4e7), ("a", 1e7), ("a", 0.0)]
    older = call("links", dataset, "--since", "2026-11-01", "-j").json()
    assert older[0]["changes"] == 93


def test_links_without_a_run_of_watch_are_refused(dataset: Path, call: Call) -> None:
    told = call("links", dataset, "--since", "2026-12-01")
    assert told.code == 2
    assert "no run of `pciescope watch` since 2026-12-01" in told.err
