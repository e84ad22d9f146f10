"""`trend`: changes that were planted are found with their day and what changed then; noise is not."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sample
from conftest import Call, Clock
from pciescope_fleet.dataset.schema import FIGURES, RUNS
from pciescope_fleet.dataset.store import Store
from pciescope_fleet.engine import open_engine
from pciescope_fleet.judge import trend
from pciescope_fleet.judge.trend import segments, steps
from planted import figure_name, host_name

DAYS = 20


def past(
    store: Store,
    change: dict[int, tuple[int, float]],
    kernel_day: int | None = None,
    seed: int = 3,
    days: int = DAYS,
    hosts: int = 12,
    more: dict[int, tuple[int, float]] | None = None,
    noise: float = 0.005,
    rho: float = 0.0,
) -> None:
    """Runs of several hosts on each day. `change` says for a host from which day on its median is how much larger.

    `more` says the same of a second change; its amount is beside the first days. `rho` is how much a run's noise
    resembles that of the run before.
    """
    rng = np.random.default_rng(seed)
    level = rng.normal(6.6, 0.02, (hosts, 3))
    off = rng.normal(0, noise, (hosts, 3))
    for day in range(days):
        off = rho * off + np.sqrt(1 - rho**2) * rng.normal(0, noise, (hosts, 3))
        date = f"{datetime.date(2026, 11, 1) + datetime.timedelta(days=day)}"
        time = datetime.datetime.fromisoformat(f"{date}T06:00:00+00:00")
        figures: list[dict[str, Any]] = []
        runs: list[dict[str, Any]] = []
        for host in range(hosts):
            name, run = host_name(host), f"{day:08x}{host:08x}"
            shift = np.log1p(change[host][1]) if host in change and day >= change[host][0] else 0.0
            if more and host in more and day >= more[host][0]:
                shift = np.log1p(more[host][1])
            new = kernel_day is not None and host in change and day >= kernel_day
            common = {"host_key": name, "host": name, "run": run, "time": time, "date": date}
            for figure in range(3):
                p50 = float(np.exp(level[host, figure] + shift + off[host, figure]))
                figures.append(
                    {
                        **common,
                        "verb": "latency mmio",
                        "origin": "measured",
                        "backend": "kmod",
                        "batch": 1,
                        "unit": "ns",
                        "device": "0000:3b:00.0",
                        "model": "144d:a80a:0:0",
                        "figure": figure_name(figure),
                        "judged": True,
                        "cpus": 4,
                        "count": 1000,
                        "p50": p50,
                        "p99": p50 * 1.1,
                    }
                )
            runs.append(
                {
                    **common,
                    "last_time": time,
                    "verb": "latency mmio",
                    "content": "c",
                    "records": 1,
                    "origin": "measured",
                    "kernel": "6.12.2" if new else "6.12.1",
                    "bios": "1.0",
                }
            )
        named = [(row["host_key"], row["run"], 1) for row in runs]
        store.write_many("figures", date, named, pa.Table.from_pylist(figures, schema=FIGURES), [])
        store.write_many("runs", date, named, pa.Table.from_pylist(runs, schema=RUNS), [])


def test_names_the_day_the_kernel_and_the_hosts_of_a_change(tmp_path: Path, call: Call) -> None:
    past(Store(str(tmp_path)), {2: (11, 0.1), 5: (11, 0.1), 9: (11, 0.1)}, kernel_day=11)
    told = call("trend", tmp_path, "-j")
    assert told.code == 1, told.err
    found = json.loads(told.out)
    assert found["series"] == 12 * 3 * 2
    [finding] = found["findings"]
    assert finding["hosts"] == [host_name(host) for host in (2, 5, 9)]
    assert finding["first"] == finding["last"] == "2026-11-12T06:00:00Z"
    assert finding["changed"] == [{"what": "kernel", "from": "6.12.1", "to": "6.12.2"}]
    assert finding["worst"]["effect"] == pytest.approx(0.1, abs=0.02)


def test_the_cause_is_found_also_where_noise_moves_the_place(tmp_path: Path, call: Call) -> None:
    """A step of 8 % in noise of 4 %: by the figures alone, many places are a run or two off."""
    past(Store(str(tmp_path)), dict.fromkeys(range(30), (11, 0.08)), kernel_day=11, hosts=40, noise=0.04)
    told = call("trend", tmp_path, "-j").json()
    assert len({each["host"] for each in told["changes"]}) >= 20
    kernel = [{"what": "kernel", "from": "6.12.1", "to": "6.12.2"}]
    known = [each for each in told["changes"] if each["changed"] == kernel]
    assert len(known) >= 0.9 * len(told["changes"])
    assert {each["since"][:10] for each in known} == {"2026-11-12"}
    assert len(told["findings"][0]["hosts"]) >= 20


def test_the_level_bounds_the_further_changes_of_a_series_too(tmp_path: Path, call: Call) -> None:
    """A large change and a doubtful one: the second is no change at a stricter level."""
    past(Store(str(tmp_path)), {2: (10, 0.5)}, more={2: (20, 0.56)}, noise=0.02, days=30)

    def changes(level: str) -> list[str]:
        told = call("trend", tmp_path, "-j", "--level", level, "--least-effect", "1%").json()["changes"]
        return [each["since"][:10] for each in told if each["host"] == host_name(2)]

    loose, strict = changes("5%"), changes("0.01%")
    assert strict.count("2026-11-11") == loose.count("2026-11-11") > 0
    assert len(strict) < len(loose)


def test_runs_of_a_clock_that_was_ahead_stand_where_they_were_ingested(
    tmp_path: Path, call: Call, clock: Clock
) -> None:
    """From the seventh day on the host is slow; on the third and on the ninth its clock is years ahead."""
    for day in range(1, 13):
        clock(f"2026-11-{day:02}T09:00:00Z")
        year = 2093 if day in (3, 9) else 2026
        median = (1000 if day >= 7 else 800) * (1 + day % 3 / 500)
        run = sample.run(day, "n1", median=median, time=f"{year}-11-{day:02}T08:00:00Z")
        call("ingest", sample.write(tmp_path / f"{day}.jsonl", run), tmp_path / "d")
    changes = call("trend", tmp_path / "d", "-j").json()["changes"]
    assert {each["since"] for each in changes} == {"2026-11-07T08:00:00Z"}


def test_places_that_explain_a_change_as_well_are_known() -> None:
    x = np.array([0.0, 0, 0, 0, 5, 5, 5, 5])
    assert trend.alike(x, 0, 4, 8, 1.0) == [4]
    # One run between the two levels may belong to either.
    assert trend.alike(np.array([9.0, 0, 0, 0, 0, 2.5, 5, 5, 5, 5, 9]), 1, 5, 10, 1.0) == [5, 6]
    # Small steps may be anywhere; the place that was chosen stands first.
    assert trend.alike(x / 50, 0, 4, 8, 1.0)[0] == 4
    assert sorted(trend.alike(x / 50, 0, 4, 8, 1.0)) == list(range(1, 8))


def test_finds_nothing_where_nothing_changed(tmp_path: Path, call: Call) -> None:
    past(Store(str(tmp_path)), {})
    told = call("trend", tmp_path)
    assert told.code == 0, told.out
    assert told.out.startswith("no host changed: 0 findings, 0 changes in 72 series of 6 runs or more")


def test_runs_by_another_method_are_a_series_of_their_own(tmp_path: Path, call: Call) -> None:
    """From the tenth day on the runs are concurrent, and take a fifth longer."""
    store = Store(str(tmp_path))
    past(store, dict.fromkeys(range(12), (10, 0.2)))
    for file in store.kept("figures").files():
        table = pq.read_table(file, partitioning=None)
        late = table["date"][0].as_py() >= "2026-11-11"
        told = pa.array(["concurrent" if late else "interleaved"] * len(table))
        pq.write_table(table.set_column(table.schema.get_field_index("method"), "method", told), file)
    told = call("trend", tmp_path, "-j").json()
    assert (told["series"], told["changes"]) == (2 * 12 * 3 * 2, [])


@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_runs_that_resemble_their_neighbours_are_no_change(tmp_path: Path, call: Call, rho: float) -> None:
    """The noise is large enough that half of its range would be an effect."""
    past(Store(str(tmp_path)), {}, days=30, hosts=40, noise=0.03, rho=rho, seed=1)
    told = call("trend", tmp_path, "-j").json()
    series = {(each["host"], each["figure"], each["statistic"]) for each in told["changes"]}
    assert told["series"] == 240
    assert len(series) <= 0.05 * 240


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_a_change_of_all_hosts_is_not_taken_for_runs_that_resemble_each_other(
    tmp_path: Path, call: Call, rho: float
) -> None:
    past(Store(str(tmp_path)), dict.fromkeys(range(12), (11, 0.1)), noise=0.01, rho=rho)
    told = call("trend", tmp_path, "-j").json()
    series = {(each["host"], each["figure"], each["statistic"]) for each in told["changes"]}
    assert len(series) >= 0.9 * 12 * 3 * 2
    found = [each["since"][:10] for each in told["changes"]]
    assert found.count("2026-11-12") >= 0.8 * len(found)


def test_how_much_runs_resemble_their_neighbours_is_estimated() -> None:
    rng = np.random.default_rng(4)
    for rho in (0.0, 0.5, 0.8):
        found = []
        for _ in range(200):
            x = [rng.normal()]
            for _ in range(29):
                x.append(rho * x[-1] + np.sqrt(1 - rho**2) * rng.normal())
            shifted = np.array(x) + np.repeat([0.0, 20.0], 15)
            found.append(trend.correlation(shifted, [15]))
        assert np.median(found) == pytest.approx(rho, abs=0.12)
    assert np.isnan(trend.correlation(np.zeros(20), []))
    assert trend.lasting(np.array([-0.3, 0.5, 1.5])) == pytest.approx([1, np.sqrt(1.5) / 0.5, np.sqrt(1.95) / 0.05])


def test_says_that_nothing_known_changed_with_it(tmp_path: Path, call: Call) -> None:
    past(Store(str(tmp_path)), {4: (7, -0.2)})
    told = call("trend", tmp_path)
    assert told.code == 1
    assert f"since 2026-11-08: {host_name(4)}" in told.out
    assert "nothing that the records tell of changed then" in told.out


def test_refuses_series_that_are_too_short(tmp_path: Path, call: Call) -> None:
    past(Store(str(tmp_path)), {}, days=5)
    told = call("trend", tmp_path)
    assert told.code == 2
    assert "no series has 6 runs; 72 are shorter" in told.err
    assert "hint:" in told.err


def test_series_are_numbered_in_the_order_of_their_names_and_a_unit_may_be_absent(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    past(store, {}, days=6, hosts=4)
    files = store.kept("figures").files()
    for file in files:
        table = pq.read_table(file, partitioning=None)
        units = pa.array([None if "0x8" in name else "ns" for name in table["figure"].to_pylist()], pa.string())
        pq.write_table(table.set_column(table.schema.get_field_index("unit"), "unit", units), file)
    with open_engine(None) as engine:
        rows = trend._points(engine, store, files, trend.Plan()).execute()
    assert len(rows) == 6 * 4 * 3 * 2
    numbers = rows.groupby(trend.SERIES, dropna=False, sort=False)["series"]
    assert (numbers.nunique() == 1).all()
    assert (numbers.count() == 6).all()
    order = rows.drop_duplicates("series").sort_values("series", ignore_index=True)
    assert order["unit"].isna().sum() == 4 * 2
    names = ["host_key", "figure", "statistic"]
    assert order[names].equals(order[names].sort_values(names, ignore_index=True))
    assert order["series"].max() - order["series"].min() == 4 * 3 * 2 - 1


def test_a_series_with_two_steps_has_two_places() -> None:
    rng = np.random.default_rng(5)
    x = np.r_[np.zeros(9), np.full(7, 0.3), np.full(14, 0.1)] + rng.normal(0, 0.01, 30)
    assert segments(x, 0.01, 30.0) == [9, 16]
    assert segments(rng.normal(0, 0.01, 30), 0.01, 30.0) == []
    spike = np.zeros(30) + rng.normal(0, 0.01, 30)
    spike[12] += 0.02
    assert segments(spike, 0.01, 30.0) == []


def test_a_host_that_was_slower_for_a_week_has_two_changes(tmp_path: Path, call: Call) -> None:
    past(Store(str(tmp_path)), {3: (8, 0.2), 6: (8, 0.1)}, days=30, more={3: (15, 0.0), 6: (15, 0.3)})
    told = call("trend", tmp_path, "-j")
    assert told.code == 1, told.err
    changes = json.loads(told.out)["changes"]
    by_day = {(each["host"], each["since"][:10]): each["effect"] for each in changes}
    right = {
        (host_name(3), "2026-11-09"): 0.2,
        (host_name(3), "2026-11-16"): 1 / 1.2 - 1,
        (host_name(6), "2026-11-09"): 0.1,
        (host_name(6), "2026-11-16"): 1.3 / 1.1 - 1,
    }
    assert by_day == pytest.approx(right, abs=0.015)
    assert len(changes) == 4 * 3 * 2


def test_small_steps_in_one_direction_are_told_as_one() -> None:
    x = np.repeat([0.0, 0.04, 0.08, 0.12], 6)
    [(first, place, end)] = steps(x, [6, 12, 18], 0.05)
    assert (first, end) == (0, 24)
    assert np.median(x[place:]) - np.median(x[:place]) >= 0.05
    assert steps(x, [6, 12, 18], 0.03) == [(0, 6, 12), (6, 12, 18), (12, 18, 24)]
    assert steps(np.repeat([0.0, 0.04, 0.0], 6), [6, 12], 0.05) == []
    assert steps(x, [], 0.05) == []
