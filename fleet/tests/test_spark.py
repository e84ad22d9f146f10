"""The same judgement by a cluster of Spark as by DuckDB."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import planted
from conftest import alike, fleet
from pciescope_fleet.dataset.store import Store
from planted import Shape, host_name
from spark_cluster import cluster
from test_trend import past

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def spark() -> Iterator[str]:
    with cluster() as address:
        yield address


def test_both_engines_find_the_same(tmp_path: Path, spark: str) -> None:
    shape = Shape(hosts=60, figures=3)
    kinds = {4: ("median", 0.1), 14: ("mode", 0.1), 24: ("cpu", 0.2), 34: ("tail", 0.05)}
    faults = {(host, figure): kind for host, kind in kinds.items() for figure in range(3)}
    kernel = ["6.13.0" if host < 5 else "6.12.1" for host in range(60)]
    planted.keep(Store(str(tmp_path)), planted.make(shape, faults, attributes={"kernel": kernel}))
    told = [fleet("outliers", tmp_path, "-j", *options) for options in ([], ["--spark", spark])]
    assert [each.returncode for each in told] == [1, 1], told[1].stderr[-3000:]
    here, there = (json.loads(each.stdout) for each in told)
    assert {host for finding in here["findings"] for host in finding["hosts"]} >= {host_name(host) for host in kinds}
    alike(here, there)


def test_both_engines_find_the_same_changes(tmp_path: Path, spark: str) -> None:
    past(Store(str(tmp_path)), {2: (6, 0.1), 5: (6, 0.1)}, kernel_day=6, days=12)
    told = [fleet("trend", tmp_path, "-j", *options) for options in ([], ["--spark", spark])]
    assert [each.returncode for each in told] == [1, 1], told[1].stderr[-3000:]
    here, there = (json.loads(each.stdout) for each in told)
    assert here["findings"][0]["hosts"] == [host_name(host) for host in (2, 5)]
    alike(here, there)


def test_a_damaged_file_is_told_as_sparks_failure(tmp_path: Path) -> None:
    planted.keep(Store(str(tmp_path)), planted.make(Shape(hosts=8, figures=1), {}))
    [file] = (tmp_path / "figures").rglob("*.parquet")
    file.write_bytes(file.read_bytes()[:5000])
    told = fleet("outliers", tmp_path, "--spark", "local[1]")
    assert (told.returncode, told.stdout) == (2, "")
    assert "pciescope-fleet: Spark at local[1]: " in told.stderr
    assert "fault of pciescope-fleet" not in told.stderr
