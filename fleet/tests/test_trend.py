"""`trend`: changes that were planted are found with their day and what changed then; noise is not."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sample
from conftest import Call, Clock
from pciescope_fleet.dataset.schema import FIGURES, RUNS
from pciescope_fleet.dataset.store import Copy, Store
from pciescope_fleet.engine import open_engine
from pciescope_fleet.judge import null, trend
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
                    "checked": "[]",
                    "failed": "[]",
                    "kernel": "6.12.2" if new else "6.12.1",
                    "bios": "1.0",
                }
            )
        named = [Copy(row["host_key"], row["run"], 1) for row in runs]
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


def autoregressive(rng: np.random.Generator, series: int, runs: int, rho: float) -> Any:
    """Series of the first order with a standard deviation of 1."""
    x = rng.normal(size=(series, runs))
    for run in range(1, runs):
        x[:, run] = rho * x[:, run - 1] + np.sqrt(1 - rho**2) * x[:, run]
    return x


def test_how_much_runs_resemble_their_neighbours_is_estimated() -> None:
    rng = np.random.default_rng(4)
    for rho in (0.0, 0.5, 0.8):
        x = autoregressive(rng, 400, 30, rho) + np.repeat([0.0, 20.0], 15)
        told = np.array([trend.squares(each, [15]) for each in x])
        assert trend.correlation(told) == pytest.approx(rho, abs=0.05)
        # Of few series it is unsure, and then rather too large.
        of_few = [trend.correlation(each) for each in told.reshape(-1, 4, 4)]
        assert np.mean(of_few) > trend.correlation(told) + 0.02
    assert trend.correlation(np.array([trend.squares(np.zeros(20), [])])) == 0
    assert trend.squares(np.array([0.0, 1, 0, 2, 9, 9]), [3]) == [2.0, 3, 0.0, 1]
    many = np.full(3, 10**6)
    assert trend.lasting(np.array([-0.3, 0.5, 1.5]), many) == pytest.approx(
        [1, np.sqrt(1.5) / 0.5, np.sqrt(1.95) / 0.05], rel=1e-4
    )
    short = trend.lasting(np.full(4, 0.4), np.array([6, 8, 9, 30]))
    assert short == pytest.approx([np.sqrt(1 + r) / (1 - r) for r in (0.3, 0.48, 0.4 * 4 / 3, 0.44)])


def judged(x: Any) -> tuple[Any, Any]:
    """The p-value of each of some series of one kind, and the noise that was taken."""
    count, runs = len(x), np.full(len(x), x.shape[1])
    best = [trend.best_split(each) for each in x]
    steps_of = np.abs(np.diff(x, axis=1))
    step = [np.median(np.delete(each, place - 1)) for each, (place, _) in zip(steps_of, best, strict=True)]
    noise = null.moderate(*trend.of_steps(np.array(step), runs), is_of_means=True)
    kinds = np.zeros(count, dtype=np.int64)
    sigma = noise.sigma * trend.lasting_by_kind(dict(enumerate(x)), kinds, runs, noise.sigma, noise.freedom)
    return trend.split_p(np.array([score for _, score in best]) / sigma, runs, noise.freedom), sigma


@pytest.mark.parametrize("runs", [6, 7, 8, 9, 10, 20, 30])
def test_the_noise_of_short_series_is_not_taken_for_too_large(runs: int) -> None:
    rng = np.random.default_rng(runs)
    p, sigma = judged(rng.normal(0, 1, (400, runs)))
    assert 0.93 < np.median(sigma) < 1.25
    # The number of places is allowed for in full, though they resemble each other.
    assert (p <= 0.01).mean() <= 0.02
    # Nor is it where all series have a change.
    changed = rng.normal(0, 1, (400, runs)) + np.where(np.arange(runs) < runs // 2, 0, 5)
    assert np.median(judged(changed)[1]) < 1.45


@pytest.mark.parametrize("rho", [0.5, 0.9])
@pytest.mark.parametrize("runs", [6, 10, 30])
def test_few_fleets_have_a_false_alarm(runs: int, rho: float) -> None:
    """At 5 %, of 40 at most 5 have one in 98 of 100 draws."""
    rng = np.random.default_rng(runs)
    fleets = [judged(autoregressive(rng, 60, runs, rho))[0] for _ in range(40)]
    assert sum(bool((null.benjamini_hochberg(p, 60) <= 0.05).any()) for p in fleets) <= 5


def shown(told: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {(each["host"], each["figure"], each["statistic"]) for each in told["changes"]}


def test_six_runs_are_enough_for_a_change(tmp_path: Path, call: Call) -> None:
    """A change of nearly six noises of a mean, of one host in 20."""
    past(Store(str(tmp_path)), {2: (3, 0.1)}, days=6, hosts=20, noise=0.02)
    found = shown(call("trend", tmp_path, "-j").json())
    assert {host for host, _, _ in found} == {host_name(2)}
    assert len(found) >= 4


def test_six_runs_are_enough_for_a_change_of_all_hosts(tmp_path: Path, call: Call) -> None:
    past(Store(str(tmp_path)), dict.fromkeys(range(12), (3, 0.1)), days=6, noise=0.01)
    assert len(shown(call("trend", tmp_path, "-j").json())) >= 0.8 * 12 * 3 * 2


def scored(p: list[float], origins: list[str]) -> pd.DataFrame:
    return pd.DataFrame({"series": range(10, 10 + len(p)), "p": p, "origin": origins})


def test_a_series_without_a_change_that_matters_makes_no_other_one_likelier() -> None:
    series = scored([1e-9, 1e-9, 1e-9, 0.03], ["measured"] * 4)
    assert trend.bounded(series, {10, 11, 12, 13}).to_dict() == pytest.approx(
        {10: 4e-9 / 3, 11: 4e-9 / 3, 12: 4e-9 / 3, 13: 0.03}
    )
    assert trend.bounded(series, {13}).to_dict() == pytest.approx({10: 1, 11: 1, 12: 1, 13: 0.12})


def test_each_origin_has_its_own_bound() -> None:
    series = scored([1e-9, 0.03, 1e-9, 0.9], ["synthetic", "measured", "synthetic", "measured"])
    q = trend.bounded(series, {10, 11, 12, 13})
    assert q.to_dict() == pytest.approx({10: 1e-9, 11: 0.06, 12: 1e-9, 13: 0.9})


def test_small_changes_of_all_hosts_do_not_count_as_found(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All hosts get 2 % slower, which is certain but too little; one gets 10 % slower."""
    past(Store(str(tmp_path)), dict.fromkeys(range(12), (10, 0.02)) | {2: (10, 0.1)}, noise=0.002)
    asked: list[tuple[int, set[int]]] = []

    def bounded(series: pd.DataFrame, changed: set[int]) -> Any:
        asked.append((int((series["p"] < 1e-4).sum()), changed))
        return actual(series, changed)

    actual = trend.bounded
    monkeypatch.setattr(trend, "bounded", bounded)
    found = shown(call("trend", tmp_path, "-j").json())
    assert {host for host, _, _ in found} == {host_name(2)}
    [(certain, changed)] = asked
    assert certain >= 60
    assert len(changed) == len(found) == 6


def test_a_small_first_split_does_not_hide_the_changes_of_its_parts(tmp_path: Path, call: Call) -> None:
    """A host is slower for a week: the halves of the best split differ by less than the least effect."""
    past(Store(str(tmp_path)), {3: (12, 0.07)}, days=30, more={3: (19, 0.0)}, noise=0.002)
    told = call("trend", tmp_path, "-j").json()
    x = np.repeat([0, np.log1p(0.07), 0], [12, 7, 11])
    place, _ = trend.best_split(x)
    assert abs(x[place:].mean() - x[:place].mean()) < np.log1p(0.05)
    assert {each["since"][:10] for each in told["changes"]} == {"2026-11-13", "2026-11-20"}


def test_synthetic_series_do_not_say_how_much_measured_runs_resemble_each_other() -> None:
    """Kinds of few series take what all series of their origin show."""
    rng = np.random.default_rng(1)
    x = np.r_[autoregressive(rng, 28, 30, 0.9), autoregressive(rng, 28, 30, 0.0)]
    rows = pd.DataFrame(
        {
            "series": range(56),
            **dict.fromkeys(trend.KIND, ""),
            "figure": [f"test{number // 7} latency" for number in range(56)],
            "origin": ["synthetic"] * 28 + ["measured"] * 28,
            "runs": 30,
            "step": np.median(np.abs(np.diff(x, axis=1)), axis=1),
        }
    )
    points = pd.DataFrame(
        {
            "series": np.repeat(np.arange(56), 30),
            "time": np.tile(np.arange(30), 56),
            "run": "",
            "x": x.ravel(),
        }
    )
    with open_engine(None):
        noise = trend._noise(rows, ibis.memtable(points))
    assert np.median(noise.sigma[28:]) < 1.3
    assert np.median(noise.sigma[:28]) > 1.5


def test_says_which_days_have_no_figures(tmp_path: Path, call: Call) -> None:
    past(Store(str(tmp_path)), {}, days=6, hosts=4)
    told = call("trend", tmp_path, "--since", "2026-12-01")
    assert told.code == 2
    assert "no figures between 2026-12-01 and the last day" in told.err
    assert "no figures between the first day and 2026-10-01" in call("trend", tmp_path, "--until", "2026-10-01").err


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


def test_a_renamed_machine_is_one_series_and_has_both_names(tmp_path: Path, call: Call) -> None:
    for day in range(10):
        name = "old" if day < 6 else "new"
        runs = [
            sample.run(
                100 * day + n, name if n == 1 else f"n{n}", str(n) * 32, median=920 if n == 1 and day > 4 else 800,
                time=f"2026-11-{10 + day}T08:00:00Z",
            )
            for n in range(1, 7)
        ]  # fmt: skip
        call("ingest", sample.write(tmp_path / f"{day}.jsonl", *runs), tmp_path / "d")
    told = call("trend", tmp_path / "d", "-j").json()
    assert {change["host"] for change in told["changes"]} == {"new"}
    assert {change["since"][:10] for change in told["changes"]} == {"2026-11-15"}
    assert "  renamed: new (before: old)\n" in call("trend", tmp_path / "d").out
    for name in ("old", "new"):
        assert call("trend", tmp_path / "d", "--host", name, "-j").json()["series"] == told["series"] / 6
