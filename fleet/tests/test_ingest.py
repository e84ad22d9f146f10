"""`ingest`: each run once, what is torn or strange is named and nothing beside it lost, made-up figures stay apart."""

from __future__ import annotations

import copy
import datetime
import errno
import gzip
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

import sample
from conftest import Call, Clock
from pciescope_fleet import cli
from pciescope_fleet.dataset import ingest as writer
from pciescope_fleet.dataset.rows import believed
from pciescope_fleet.dataset.schema import TABLES
from pciescope_fleet.dataset.store import Store
from pciescope_fleet.errors import FleetError

RECORDS = Path(__file__).resolve().parents[2] / "tests" / "records"

Ingest = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def ingest(capsys: pytest.CaptureFixture[str]) -> Ingest:
    """Runs the verb: its exit code and what `--json` printed."""

    def runs(*typed: object) -> tuple[int, dict[str, Any]]:
        code = cli.main(["ingest", "--json", *map(str, typed)])
        told = capsys.readouterr()
        assert code in (0, 1), told.err
        return code, json.loads(told.out)

    return runs


def rows(dataset: Path | Store, table: str = "figures") -> list[dict[str, Any]]:
    """What a reader sees."""
    store = dataset if isinstance(dataset, Store) else Store(str(dataset))
    found = store.read(table, store.kept(table).files())
    return sorted(
        found.to_pylist(), key=lambda row: tuple(str(row.get(k)) for k in ("host_key", "run", "figure", "cpu"))
    )


def without_times(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in ("ingested", "source")} for row in told]


def test_percentiles_are_those_that_the_program_printed(tmp_path: Path, ingest: Ingest) -> None:
    ingest(RECORDS / "demo.jsonl", tmp_path / "d")
    told = rows(tmp_path / "d")
    seen = 0
    for line in (RECORDS / "demo.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["test"] != "mmio-read" or "histograms" not in record:
            continue
        latency = record["histograms"]["latency"]
        at = f"BAR{record['target']['bar']}+{record['target']['offset']:#x}/"
        key = (record["run"], record["device"]["bdf"], record["cpu"]["cpu"])
        [row] = [row for row in told if (row["run"], row["device"], row["cpu"]) == key and at in row["figure"]
                 and row["figure"].endswith(" latency")]  # fmt: skip
        assert row["p50"] == pytest.approx(latency["p50_ns"], rel=1e-12)
        assert row["count"] == latency["count"]
        if row["p99"] is not None:
            assert row["p99"] == pytest.approx(latency["p99_ns"], rel=1e-12)
            seen += 1
    assert seen >= 4


def test_histograms_of_all_cpus_are_one_with_every_sample(tmp_path: Path, ingest: Ingest) -> None:
    ingest(sample.write(tmp_path / "n1.jsonl", sample.run(1, cpus=3)), tmp_path / "d")
    told = [row for row in rows(tmp_path / "d") if row["figure"].endswith("latency")]
    rng = np.random.default_rng(1)
    drawn = [800.0 * np.exp(rng.normal(0, 0.02, 1000)) for _ in range(3)]
    by_cpu = {row["cpu"]: row for row in told}
    assert set(by_cpu) == {None, 0, 1, 2}
    assert by_cpu[None]["count"] == 3000
    assert sum(by_cpu[None]["bucket_count"]) == 3000
    for cpu, samples in [(None, np.concatenate(drawn)), *enumerate(drawn)]:
        assert by_cpu[cpu]["p50"] == pytest.approx(np.sort(samples)[len(samples) // 2 - 1], rel=2e-3)
        assert by_cpu[cpu]["p99"] == pytest.approx(np.sort(samples)[int(len(samples) * 0.99) - 1], rel=2e-3)
    assert sum(piece["share"] for piece in by_cpu[None]["form"]) == pytest.approx(1, abs=1e-6)
    # The rank of p99 is binomial: a normal distribution has that error (Stuart and Ord).
    usual = 0.02 * np.sqrt(0.99 * 0.01 / 3000) / 0.0267
    assert 0.5 * usual < by_cpu[None]["p99_up"] < 2 * usual


def test_two_nodes_are_not_two_modes(tmp_path: Path, ingest: Ingest) -> None:
    """One host in which a sample more lies on the far node has the same form as the others, and is no outlier."""
    files = []
    for number in range(1, 13):
        records = sample.run(number, f"n{number}", cpus=2)
        for record, median, count in zip(
            records[1:], (500.0, 600.0), (1000, 1001 if number != 5 else 999), strict=True
        ):
            drawn = median * np.exp(np.random.default_rng([number, count]).normal(0, 0.01, count))
            record["histograms"]["latency"] = sample.histogram(drawn)
        files.append(sample.write(tmp_path / f"{number}.jsonl", records))
    ingest(*files, tmp_path / "d")
    whole = [row for row in rows(tmp_path / "d") if row["figure"].endswith("latency") and row["cpu"] is None]
    # The median lies on either side of the gap; the form does not know of it.
    assert {round(row["p50"] / 100) for row in whole} == {5, 6}
    for row in whole:
        centre = sum(piece["share"] for piece in row["form"] if abs(piece["bin"]) <= 8)
        assert centre > 0.95
    assert cli.main(["outliers", str(tmp_path / "d")]) == 0


def test_a_run_twice_is_one_run(tmp_path: Path, ingest: Ingest) -> None:
    file = sample.write(tmp_path / "n1.jsonl", sample.run(1), sample.run(2, time="2026-11-23T08:00:00Z"))
    code, told = ingest(file, tmp_path / "d")
    assert (code, told["runs"], told["known"]) == (0, 2, 0)
    before = rows(tmp_path / "d"), rows(tmp_path / "d", "runs")
    sample.write(tmp_path / "copy" / "other.jsonl", sample.run(1))
    for again in ([file], [tmp_path / "copy"], [file, tmp_path / "copy" / "other.jsonl"]):
        code, told = ingest(*again, tmp_path / "d")
        assert (code, told["runs"], told["figures"], told["known"]) == (0, 0, 0, len(again) + (file in again) * (1))
        assert (rows(tmp_path / "d"), rows(tmp_path / "d", "runs")) == before
    assert sorted(path.name for path in (tmp_path / "d" / "runs").iterdir()) == ["date=2026-11-22", "date=2026-11-23"]


@pytest.mark.parametrize("compacted", [False, True])
def test_the_whole_run_takes_the_place_of_a_torn_one(tmp_path: Path, ingest: Ingest, compacted: bool) -> None:
    whole = sample.write(tmp_path / "n1.jsonl", sample.run(1, cpus=3)).read_text()
    others = sample.write(tmp_path / "n2.jsonl", sample.run(2, "n2"))
    torn = tmp_path / "torn.jsonl"
    torn.write_text(whole[: whole.rindex("\n", 0, -1) + 200])
    code, told = ingest(torn, others, tmp_path / "d", *(["--compact"] if compacted else []))
    assert (code, told["runs"]) == (1, 2)
    [problem] = told["problems"]
    assert (problem["file"], problem["line"]) == (str(torn), 4)
    assert "unfinished" in problem["why"]
    assert {row["cpu"] for row in rows(tmp_path / "d") if row["host"] == "n1"} == {None, 0, 1}
    code, told = ingest(tmp_path / "n1.jsonl", tmp_path / "d")
    assert (code, told["runs"], told["renewed"]) == (0, 1, 1)
    fresh = tmp_path / "fresh"
    ingest(tmp_path / "n1.jsonl", others, fresh)
    assert without_times(rows(tmp_path / "d")) == without_times(rows(fresh))
    assert without_times(rows(tmp_path / "d", "runs")) == without_times(rows(fresh, "runs"))


def test_what_is_torn_or_strange_is_named_and_the_rest_taken(tmp_path: Path, ingest: Ingest) -> None:
    first, second = sample.run(1), sample.run(2)
    newer = {**sample.run(3)[1], "schema": 2}
    lines = [json.dumps(sample.whole(record)) for record in first]
    lines += ["{not json", "7", json.dumps(newer), '{"schema": true}']
    lines += [json.dumps(sample.whole(record)) for record in second]
    file = tmp_path / "n1.jsonl"
    file.write_text("\n".join(lines) + "\n")
    code, told = ingest(file, tmp_path / "d")
    assert (code, told["runs"]) == (1, 2)
    assert [problem["line"] for problem in told["problems"]] == [4, 5, 6, 7]
    assert "the record has schema 2; this pciescope reads schema 1" in told["problems"][2]["why"]
    assert {row["run"] for row in rows(tmp_path / "d")} == {f"{name:016x}" for name in (1, 2)}


def test_damaged_archives_and_files_that_cannot_be_read_are_named(tmp_path: Path, ingest: Ingest) -> None:
    text = sample.write(tmp_path / "n1.jsonl", *(sample.run(name) for name in range(1, 5))).read_bytes()
    packed = gzip.compress(text)
    (tmp_path / "cut.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "bad.jsonl.gz").write_bytes(packed[:-2000] + bytes(1500) + packed[-500:])
    (tmp_path / "no.jsonl.gz").write_bytes(b"no archive")
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "folder.jsonl").mkdir()
    names = ["cut.jsonl.gz", "bad.jsonl.gz", "no.jsonl.gz", "empty.jsonl"]
    code, told = ingest("--host", "n1", *(tmp_path / name for name in [*names, "n1.jsonl"]), tmp_path / "d")
    assert code == 1
    assert {Path(problem["file"]).name for problem in told["problems"]} == set(names)
    assert {row["run"] for row in rows(tmp_path / "d", "runs")} == {f"{name:016x}" for name in range(1, 5)}
    assert all(row["cpu"] is None or row["count"] == 1000 for row in rows(tmp_path / "d") if row["p50"])


def test_what_is_not_a_number_is_no_figure(tmp_path: Path, ingest: Ingest) -> None:
    """Null is a figure that is not finite. JSON has no other such number, and a text is none."""
    records = sample.run(1, cpus=5)
    values = {"null": None, "nan": float("nan"), "infinite": float("inf"), "text": "7", "true": True}
    for record, (name, value) in zip(records[1:], values.items(), strict=True):
        record["metrics"][name] = {"value": value, "unit": "1"}
    code, told = ingest(sample.write(tmp_path / "n1.jsonl", records), tmp_path / "d")
    assert (code, [problem["line"] for problem in told["problems"]]) == (1, [3, 4, 5, 6])
    assert {row["figure"].split()[-1] for row in rows(tmp_path / "d")} == {"latency", "samples_lost", "speed"}


def test_a_record_that_lies_about_its_histogram_is_named(tmp_path: Path, ingest: Ingest) -> None:
    wrong = [
        [[-5, 1]],
        [[5, -1]],
        [[2**64, 1]],
        [[5, 2**63], [6, 2**63]],
        "5",
        [[1, 2, 3]],
        [[float("nan"), 1]],
        [[1e999, 1]],
    ]
    runs = []
    for number, buckets in enumerate(wrong, 1):
        runs.append(sample.run(number))
        runs[-1][1]["histograms"]["latency"]["buckets"] = buckets
    code, told = ingest(sample.write(tmp_path / "n1.jsonl", *runs), tmp_path / "d")
    assert (code, told["runs"]) == (1, len(wrong))
    assert len(told["problems"]) == len(wrong)
    assert [problem["line"] for problem in told["problems"]] == [2 + 3 * number for number in range(len(wrong))]
    # The other CPU's record is whole.
    assert [row["cpus"] for row in rows(tmp_path / "d") if row["figure"].endswith("latency")] == [1] * len(wrong)


def test_root_and_other_users_name_a_slot_alike(tmp_path: Path, ingest: Ingest) -> None:
    """Only root reads what is printed beside a slot."""
    bdf = str(sample.DEVICE["bdf"])
    as_root = sample.run(1, slots=[{"bdf": bdf, "name": "4", "designation": "PCIe Slot 4"}])
    as_user = sample.run(2, slots=[{"bdf": bdf, "name": "4"}])
    unnamed = sample.run(3, slots=[{"bdf": bdf, "designation": "J6B2"}])
    ingest(sample.write(tmp_path / "a.jsonl", as_root, as_user, unnamed), tmp_path / "d")
    told = rows(tmp_path / "d")
    assert {(row["run"], row["slot"]) for row in told} == {
        (as_root[0]["run"], "4"),
        (as_user[0]["run"], "4"),
        (unnamed[0]["run"], "J6B2"),
    }


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Each place in a record."""
    if path:
        yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*path, key))


def test_no_field_of_the_wrong_kind_loses_a_neighbour(tmp_path: Path, ingest: Ingest) -> None:
    good = sample.run(0xFFFF, firmware=[{"bdf": "0000:3b:00.0", "version": "1"}], governors=["powersave"],
                      slots=[{"bdf": "0000:3b:00.0", "name": "3"}])  # fmt: skip
    for record in good[1:]:
        record["histograms"]["latency"]["buckets"] = record["histograms"]["latency"]["buckets"][:2]
        record["findings"] = [{"check": "link-speed", "severity": "warning", "bdf": "0000:3b:00.0", "text": "slow"}]
        record["warnings"] = [{"code": "aspm", "text": "on"}]
    chance = random.Random(7)
    odd: list[Any] = [
        None,
        True,
        -1,
        2**70,
        1.5,
        float("nan"),
        1e999,
        "",
        "x" * 300,
        "\x00",
        "\ud800",
        [],
        [1],
        [None],
        {},
        {"a": 1},
        [[]],
    ]
    files = []
    for number, path in enumerate([place for place in places(good) for _ in range(3)]):
        made = copy.deepcopy(good)
        part: Any = made
        for step in path[:-1]:
            part = part[step]
        part[path[-1]] = chance.choice(odd)
        for record in made:
            if isinstance(record, dict) and record.get("run") == f"{0xFFFF:016x}":
                record["run"] = f"{number:016x}"
        files.append(sample.write(tmp_path / "in" / f"{number}.jsonl", made))
    assert len(files) > 250
    code, told = ingest(*files, sample.write(tmp_path / "in" / "good.jsonl", good), tmp_path / "d")
    assert code == 1
    assert told["problems"]
    assert f"{0xFFFF:016x}" in {row["run"] for row in rows(tmp_path / "d", "runs")}
    named = {Path(problem["file"]).name for problem in told["problems"]}
    taken = {Path(row["source"]).name for row in rows(tmp_path / "d", "runs")}
    assert {path.name for path in files} <= named | taken


def test_a_field_of_the_wrong_kind_is_named_with_its_line_and_the_rest_of_the_run_taken(
    tmp_path: Path, ingest: Ingest
) -> None:
    records = sample.run(1, "n1", cpus=4, product="synthetic machine", firmware=[{"bdf": []}], bios_version="2.1")
    records[2]["cpu"]["cpu"] = 2**70
    records[3]["device"] = {**sample.DEVICE, "link": {"speed_gts": "fast", "width": 4}}
    other = sample.run(2, "n1")
    code, told = ingest(sample.write(tmp_path / "x.jsonl", records, other), tmp_path / "d")
    assert (code, told["runs"]) == (1, 2)
    assert [problem["line"] for problem in told["problems"]] == [1, 3, 4], told["problems"]
    assert [problem["file"] for problem in told["problems"]] == [str(tmp_path / "x.jsonl")] * 3
    assert "environment.firmware: " in told["problems"][0]["why"]
    [run] = [row for row in rows(tmp_path / "d", "runs") if row["run"] == f"{1:016x}"]
    assert (run["host"], run["bios"], run["origin"], run["records"]) == ("n1", "2.1", "synthetic", 3)
    figures = [row for row in rows(tmp_path / "d") if row["run"] == run["run"] and row["figure"].endswith("latency")]
    assert {row["cpu"] for row in figures} == {None, 0, 3}
    # The same file again is known.
    assert ingest(tmp_path / "x.jsonl", tmp_path / "d")[1]["known"] == 2


def test_a_record_that_stands_in_a_file_twice_is_one(tmp_path: Path, ingest: Ingest) -> None:
    once = sample.write(tmp_path / "n1.jsonl", sample.run(1), sample.run(2))
    twice = tmp_path / "twice" / "n1.jsonl"
    twice.parent.mkdir()
    twice.write_text(once.read_text() * 2)
    for file, place in ((once, "a"), (twice, "b")):
        assert ingest(file, tmp_path / place)[0] == 0
    for table in ("figures", "runs"):
        assert without_times(rows(tmp_path / "b", table)) == without_times(rows(tmp_path / "a", table))
    assert ingest(once, tmp_path / "b")[1]["known"] == 2


def test_a_run_without_a_host_is_one_run_under_any_file_name(tmp_path: Path, ingest: Ingest) -> None:
    a, b = (sample.write(tmp_path / name, sample.run(1, None)) for name in ("a.jsonl", "b.jsonl"))
    whole = sample.write(tmp_path / "c.jsonl", sample.run(1, None, cpus=3))
    _, told = ingest(a, b, tmp_path / "d")
    assert (told["runs"], told["known"]) == (1, 1)
    assert ingest(b, tmp_path / "d")[1]["known"] == 1
    assert ingest(whole, tmp_path / "d")[1]["renewed"] == 1
    [run] = rows(tmp_path / "d", "runs")
    assert (run["host_key"], run["host_from"], run["records"]) == ("a", "file name", 4)


@pytest.mark.parametrize("many", [1, 100])
def test_a_run_that_gets_the_name_of_its_host_later_is_one_host(
    tmp_path: Path, ingest: Ingest, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr(writer, "MANY", many)
    warned = sample.run(1, None)
    warned[1]["warnings"] = [{"code": "aspm", "text": "on"}]
    night, other = (
        sample.write(tmp_path / "night.jsonl", warned),
        sample.write(tmp_path / "x.jsonl", sample.run(2, "x")),
    )
    ingest("--host", "n1", night, tmp_path / "right")
    ingest(other, tmp_path / "right")
    right = [without_times(rows(tmp_path / "right", table)) for table in TABLES]
    assert {row["host"] for row in right[0]} == {"n1", "x"}
    place = tmp_path / "d"
    assert ingest(night, other, place)[1]["hosts_by_file_name"] == ["night"]
    assert ingest("--host", "n1", night, place)[1]["runs"] == 1
    assert [without_times(rows(place, table)) for table in TABLES] == right
    # Without the name again, it keeps the better one.
    assert ingest(night, place)[1]["known"] == 1
    assert ingest("--host", "n1", night, place, "--compact")[1]["known"] == 1
    assert [without_times(rows(place, table)) for table in TABLES] == right
    assert len(list((place / "figures").rglob("*.parquet"))) == 1
    # Nor does it get the old one back.
    code, told = ingest("--host", "night", night, place)
    assert (code, told["runs"]) == (1, 0)
    assert f"run {1:016x} is kept as host n1: not taken as host night" in told["problems"][0]["why"]
    assert [without_times(rows(place, table)) for table in TABLES] == right


def test_a_copy_without_its_head_gives_way_to_the_one_that_names_the_host(tmp_path: Path, ingest: Ingest) -> None:
    whole = sample.write(tmp_path / "n2.jsonl", sample.run(2, "n2"))
    copy_ = sample.write(tmp_path / "copy.jsonl", sample.run(2, "n2")[1:])
    for place, calls in (("a", [[copy_], [whole]]), ("b", [[copy_, whole]]), ("c", [[whole], [copy_]])):
        for files in calls:
            ingest(*files, tmp_path / place)
        assert [(row["host"], row["records"]) for row in rows(tmp_path / place, "runs")] == [("n2", 3)]
        assert {row["host"] for row in rows(tmp_path / place)} == {"n2"}
    # A copy with fewer records is not taken in its place.
    nameless = sample.write(tmp_path / "nameless.jsonl", sample.run(3, None, cpus=3))
    cut = sample.write(tmp_path / "cut.jsonl", sample.run(3, None, cpus=3)[:2])
    ingest(nameless, tmp_path / "d")
    code, told = ingest("--host", "n3", cut, tmp_path / "d")
    assert (code, told["runs"]) == (1, 0)
    assert "is kept as host nameless with 4 records, and has 2 here" in told["problems"][0]["why"]
    assert [(row["host"], row["records"]) for row in rows(tmp_path / "d", "runs")] == [("nameless", 4)]


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("many", [1, 100])
def test_a_run_is_of_one_host_whatever_name_it_is_given_later(
    tmp_path: Path, ingest: Ingest, monkeypatch: pytest.MonkeyPatch, many: int, compacted: bool
) -> None:
    monkeypatch.setattr(writer, "MANY", many)
    more = ["--compact"] if compacted else []
    machine = "aaaaaaaaaaaaaaaa"
    whole = sample.write(tmp_path / "whole.jsonl", sample.run(1, "n1", machine))
    bare = sample.write(tmp_path / "bare.jsonl", sample.run(1, None))
    other = sample.write(tmp_path / "x.jsonl", sample.run(2, "x"))
    # Two names that the user gave: the first stays.
    assert ingest("--host", "a", bare, tmp_path / "d", *more)[0] == 0
    for call in (["--host", "b", bare], [whole]):
        code, told = ingest(*call, tmp_path / "d", *more)
        assert (code, told["runs"], len(told["problems"])) == (1, 0, 1)
        assert (
            f"run {1:016x} is kept as host a: not taken as host {call[1] if len(call) > 1 else 'n1'}"
            in (told["problems"][0]["why"])
        )
        assert "--host a" in told["problems"][0]["why"]
    assert ingest("--host", "a", bare, tmp_path / "d", *more)[1]["known"] == 1
    ingest(other, tmp_path / "d")
    assert [row["host_key"] for row in rows(tmp_path / "d", "runs")] == ["a", "x"]
    # Its host's name, then the same name with the machine's id, and the other way round.
    named: list[object] = ["--host", "n1", bare]
    pairs: list[tuple[str, list[list[object]]]] = [("e", [named, [whole]]), ("f", [[whole], named])]
    for place, calls in pairs:
        for typed in calls:
            code, told = ingest(*typed, tmp_path / place, *more)
            assert (code, told["problems"]) == (0, [])
        ingest(other, tmp_path / place)
        for table in ("runs", "figures"):
            keys = {row["host_key"] for row in rows(tmp_path / place, table)}
            assert keys == {"n1~aaaaaaaaaaaa", "x"}, place
        assert len(rows(tmp_path / place, "runs")) == 2
        assert ingest(*named, tmp_path / place, *more)[1]["known"] == 1
    # Another machine's id is no better name.
    clone = sample.write(tmp_path / "clone.jsonl", sample.run(1, "n1", "bbbbbbbbbbbbbbbb"))
    assert ingest(whole, tmp_path / "g", *more)[0] == 0
    code, told = ingest(clone, tmp_path / "g", *more)
    assert (code, told["runs"], len(told["problems"])) == (1, 0, 1)
    assert [row["host_key"] for row in rows(tmp_path / "g", "runs")] == ["n1~aaaaaaaaaaaa"]


@pytest.mark.parametrize("at_once", [False, True])
def test_two_runs_of_one_id_are_one_and_the_other_is_named(tmp_path: Path, ingest: Ingest, at_once: bool) -> None:
    """An id has 64 random bits: two machines do not make the same up. Somebody has altered a file."""
    files = [
        sample.write(tmp_path / f"{host}.jsonl", sample.run(1, host, time=time))
        for host, time in (("a", "2026-11-22T08:00:00Z"), ("b", "2026-11-22T09:00:00Z"))
    ]
    calls = [reversed(files)] if at_once else [[file] for file in files]
    told = [ingest(*call, tmp_path / "d") for call in calls][-1]
    assert told[0] == 1
    [problem] = told[1]["problems"]
    assert problem["file"] == str(files[1])
    assert "is kept as host a: not taken as host b" in problem["why"]
    assert [row["host_key"] for row in rows(tmp_path / "d", "runs")] == ["a"]


@pytest.mark.parametrize("compacted", [False, True])
def test_other_records_of_a_run_in_another_file_are_not_there_already(
    tmp_path: Path, ingest: Ingest, compacted: bool
) -> None:
    """Somebody splits a file: each part has the machine and some of the CPUs."""
    whole = sample.run(1, cpus=6)
    a, b, c = (
        sample.write(tmp_path / f"{name}.jsonl", [whole[0], *whole[1:][part]])
        for name, part in (("a", slice(0, 3)), ("b", slice(3, 6)), ("c", slice(2, 6)))
    )
    more = ["--compact"] if compacted else []
    assert ingest(a, tmp_path / "d", *more)[0] == 0
    assert ingest(a, tmp_path / "d", *more)[0] == 0
    code, told = ingest(b, tmp_path / "d", *more)
    assert (code, told["runs"]) == (1, 0)
    [problem] = told["problems"]
    assert (problem["file"], problem["line"]) == (str(b), None)
    lacks = f"run {1:016x}: 3 of its 4 records are not in the copy with 4 records that the dataset has"
    assert problem["why"].startswith(lacks)
    code, told = ingest(c, tmp_path / "d", *more)
    assert (code, told["renewed"]) == (1, 1)
    assert "2 of the 4 records that the dataset had are not in this copy" in told["problems"][0]["why"]
    # In one call it is the same, and a whole copy is no problem.
    assert ingest(a, b, tmp_path / "e")[0] == 1
    assert ingest(sample.write(tmp_path / "whole.jsonl", whole), tmp_path / "e")[:1] == (0,)
    assert ingest(a, b, c, tmp_path / "e")[0] == 0


def test_files_of_an_older_dataset_have_todays_columns_as_null(tmp_path: Path, ingest: Ingest) -> None:
    ingest(sample.write(tmp_path / "n1.jsonl", sample.run(1)), tmp_path / "d")
    [old] = (tmp_path / "d" / "figures").rglob("*.parquet")
    table = pq.read_table(old, partitioning=None)
    pq.write_table(
        table.drop_columns(["p50_down", "slot", "hops"]).append_column("later", pa.array([1] * len(table))), old
    )
    ingest(sample.write(tmp_path / "n2.jsonl", sample.run(2, "n2")), tmp_path / "d", "--compact")
    told = rows(tmp_path / "d")
    assert set(told[0]) == set(TABLES["figures"].names)
    assert {row["hops"] for row in told if row["host"] == "n1"} == {None}
    assert {row["hops"] for row in told if row["host"] == "n2"} == {1}


def test_two_machines_of_one_name_are_told_and_kept_apart(tmp_path: Path, ingest: Ingest) -> None:
    ingest(sample.write(tmp_path / "a.jsonl", sample.run(1, "n1", "aaaaaaaaaaaaaaaa")), tmp_path / "d")
    two = sample.write(tmp_path / "b.jsonl", sample.run(2, "n1", "bbbbbbbbbbbbbbbb"))
    code, told = ingest(two, tmp_path / "d")
    assert code == 1
    [problem] = told["problems"]
    assert "host n1 is two machines" in problem["why"]
    assert {row["host_key"] for row in rows(tmp_path / "d")} == {"n1~aaaaaaaaaaaa", "n1~bbbbbbbbbbbb"}
    # Told once: the next night it is known.
    assert ingest(sample.write(tmp_path / "c.jsonl", sample.run(3, "n1", "bbbbbbbbbbbbbbbb")), tmp_path / "d")[0] == 0


def test_what_stands_behind_an_overlong_line_is_taken(tmp_path: Path, ingest: Ingest) -> None:
    first, last = (sample.write(tmp_path / f"{n}.jsonl", sample.run(n, f"n{n}")).read_bytes() for n in (1, 2))
    file = tmp_path / "both.jsonl"
    file.write_bytes(first + b'{"a": "' + b"x" * 65 * 2**20 + b'"}\n' + last)
    code, told = ingest(file, tmp_path / "d")
    assert (code, told["runs"]) == (1, 2)
    assert [(each["line"], each["why"]) for each in told["problems"]] == [
        (first.count(b"\n") + 1, "a line is longer than 64 MiB")
    ]


def test_another_clock_is_told_and_the_run_kept(tmp_path: Path, ingest: Ingest, clock: Clock) -> None:
    clock("2026-11-25T10:00:00Z")
    late = [sample.run(n, time=time) for n, time in ((1, "2093-01-01T00:00:00Z"), (4, "2093-01-02T00:00:00Z"))]
    ahead = sample.write(tmp_path / "n1.jsonl", *late)
    old = sample.write(tmp_path / "n4.jsonl", sample.run(5, "n4", time="2000-01-01T00:10:00Z"))
    zone = sample.write(tmp_path / "n2.jsonl", sample.run(2, "n2", time="2026-11-22T01:30:00+09:00"))
    none = sample.write(tmp_path / "n3.jsonl", sample.run(3, "n3", time="yesterday"))
    code, told = ingest(ahead, zone, none, old, tmp_path / "d")
    assert (code, told["runs"]) == (1, 5)
    assert "n1's clock is ahead: 2093-01-01 00:00 UTC; the run is kept as of now" in told["problems"][0]["why"]
    assert "no record has a time" in told["problems"][2]["why"]
    dates = {row["host"]: row["date"] for row in rows(tmp_path / "d")}
    assert dates == {"n1": "2026-11-25", "n2": "2026-11-21", "n3": "1970-01-01", "n4": "2026-11-25"}
    kept = {row["run"]: row for row in rows(tmp_path / "d", "runs")}
    first, second = kept[f"{1:016x}"], kept[f"{4:016x}"]
    # By how much is known, and of two such runs the later one is later. None is of a time to come.
    now = datetime.datetime(2026, 11, 25, 10, tzinfo=datetime.UTC)
    assert now - datetime.timedelta(hours=3) < first["time"] < second["time"] < now
    ahead_s = (datetime.datetime(2093, 1, 1, tzinfo=datetime.UTC) - now).total_seconds()
    assert first["clock_ahead_s"] == pytest.approx(ahead_s, abs=60)
    assert kept[f"{2:016x}"]["clock_ahead_s"] is None
    assert kept[f"{5:016x}"]["clock_ahead_s"] < -26 * 365 * 86400
    assert "n4's clock is behind: 2000-01-01 00:10 UTC; the run is kept as of now" in told["problems"][3]["why"]
    # A run is one run, also when it is ingested again on another day.
    clock("2026-11-28T10:00:00Z")
    assert ingest(ahead, tmp_path / "d")[1]["known"] == 2


def test_runs_that_come_late_or_of_a_clock_that_went_back_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], clock: Clock
) -> None:
    """A clock that is some hours or days wrong is not known as such; its runs may hide newer ones."""

    def told(day: int, *runs: list[dict[str, Any]]) -> tuple[int, str]:
        clock(f"2026-11-{day}T09:00:00Z")
        file = sample.write(tmp_path / f"{day}.jsonl", *runs)
        return cli.main(["ingest", str(file), str(tmp_path / "d")]), capsys.readouterr().err

    day, hours = "2026-11-22T08:00:00Z", "2026-11-22T05:00:00Z"
    # One after the other, and in one file in any order: nothing to tell.
    assert told(22, sample.run(2, "n1", time=day), sample.run(1, "n1", time=hours)) == (0, "")
    # n1's clock went back by hours; n2 is new and as old.
    code, text = told(23, sample.run(3, "n1", time="2026-11-22T07:00:00Z"), sample.run(4, "n2", time=hours))
    assert (code, text) == (
        0, "1 run of n1: older than what the dataset had of the host, which stays the newest\n"
        "hint: files that come late, or a clock that is wrong now or was ahead then\n",
    )  # fmt: skip
    # Once: what is known is not told again.
    assert told(24, sample.run(3, "n1", time="2026-11-22T07:00:00Z")) == (0, "")
    assert told(25, sample.run(5, "n1", time="2026-11-25T07:00:00Z")) == (0, "")


@pytest.mark.parametrize("later", ["2026-11-24T09:00:00+00:00", "2026-12-24T09:00:00+00:00"])
def test_a_longer_copy_of_a_run_whose_clock_was_ahead_keeps_its_time(
    tmp_path: Path, ingest: Ingest, clock: Clock, later: str
) -> None:
    """The file was cut off at first. When it comes again, its time may still be ahead, or not any more."""
    clock("2026-11-22T09:00:00+00:00")
    whole = sample.run(1, "n1", cpus=4, time="2026-12-01T08:00:00Z")
    ingest(sample.write(tmp_path / "n1.jsonl", whole[:3]), tmp_path / "d")
    [before] = rows(tmp_path / "d", "runs")
    clock(later)
    assert ingest(sample.write(tmp_path / "n1.jsonl", whole), tmp_path / "d")[1]["renewed"] == 1
    [after] = rows(tmp_path / "d", "runs")
    assert (before["records"], after["records"]) == (3, 5)
    assert (after["time"], after["date"], after["clock_ahead_s"]) == (
        before["time"], "2026-11-22", before["clock_ahead_s"]
    )  # fmt: skip
    assert {row["time"] for row in rows(tmp_path / "d", "figures")} == {before["time"]}


def test_runs_of_a_clock_that_is_ahead_keep_their_order_and_none_goes_back_by_years() -> None:
    def at(text: str) -> datetime.datetime:
        return datetime.datetime.fromisoformat(f"{text}Z")

    now = at("2026-11-25T10:00:00")
    # A short run, then a long one; both are ingested at once.
    short, long = (
        believed(at(f"2093-01-01T{a}:00"), at(f"2093-01-01T{b}:00"), now)
        for a, b in (("09:00", "09:01"), ("09:05", "12:05"))
    )
    assert short[0] < long[0] < now
    assert short[1] - short[0] == datetime.timedelta(minutes=1)
    assert long[1] <= now
    # The clock was set in the middle of the run.
    began, ended, ahead = believed(at("2026-11-25T09:01:00"), at("2093-01-01T09:00:00"), now)
    assert (began, ended, ahead) == (at("2026-11-25T09:01:00"), now, None)
    # As far as records reach.
    assert (
        now - datetime.timedelta(hours=3) < believed(at("2260-12-31T00:00:00"), at("2260-12-31T00:00:00"), now)[0] < now
    )
    # Seconds are no fault.
    seconds = at("2026-11-25T10:00:30")
    assert believed(seconds, seconds, now) == (seconds, seconds, None)


def test_one_sign_of_a_made_up_machine_makes_all_of_a_run_made_up(
    tmp_path: Path, ingest: Ingest, program: Path
) -> None:
    import subprocess

    made = tmp_path / "made.jsonl"
    subprocess.run([program, "latency", "mmio", "--backend", "fake", "-o", made], check=True, capture_output=True)
    lies = [json.loads(line) for line in made.read_text().splitlines()]
    for record in lies:
        record["run"] = f"{9:016x}"
        # A host that lies: of what says that it is made up only the machine's product is left.
        if "method" in record:
            record["method"]["backend"] = "kmod"
    mixed = sample.run(8, "n8")
    mixed[2]["method"]["backend"] = "fake"
    honest = sample.run(7, "n7")
    ingest(
        made, *(sample.write(tmp_path / f"{run[0]['run']}.jsonl", run) for run in (lies, mixed, honest)), tmp_path / "d"
    )
    origins = {(row["run"], row["origin"]) for row in rows(tmp_path / "d")}
    name = json.loads(made.read_text().splitlines()[0])["run"]
    synthetic = {(name, "synthetic"), (f"{8:016x}", "synthetic"), (f"{9:016x}", "synthetic")}
    assert origins == {*synthetic, (f"{7:016x}", "measured")}
    assert {(row["run"], row["origin"]) for row in rows(tmp_path / "d", "runs")} == origins


def readout(number: int, host: str, stream: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    """A readout of one device or file, and the summary, which has no device of its own."""
    common = {"schema": 1, "run": f"{number:016x}", "time": "2026-11-22T08:00:00Z", "verb": "readout"}
    metrics = {"speed": {"value": 1e9, "unit": "bytes/s"}}
    told = {"access": "read", "samples": 1024, "devices": 1, "group": 0}
    row = {"test": "readout", "stream": {**stream, **told, "function": "func_readout"}, "method": {"backend": "x"}}
    return [
        {**common, "test": "environment", "environment": sample.environment(host)},
        {**common, **row, "metrics": metrics, **more},
        {**common, "test": "readout-summary", "stream": told, "metrics": metrics},
    ]


def test_a_summary_has_the_origin_and_the_model_of_what_it_sums(tmp_path: Path, ingest: Ingest, program: Path) -> None:
    import subprocess

    made = tmp_path / "made.jsonl"
    subprocess.run([program, "readout", "--backend", "fake", "-o", made], check=True, capture_output=True)
    board = {"vendor": 0x1796, "device": 0x19, "emulated": "its subsystem is QEMU's", "bdf": "0000:06:00.0"}
    runs = [
        readout(1, "n1", {"kind": "sis8300", "path": "/dev/sis8300-0"}, device=board),
        readout(2, "n2", {"kind": "sis8300", "path": "/dev/sis8300-0"}, device={**board, "emulated": None}),
        readout(3, "n3", {"kind": "file", "path": "/data/file"}),
        readout(4, "n4", {"kind": "block", "path": "/dev/sda", "model": "Example Disk"}),
        readout(5, "n5", {"kind": "file", "path": "/data/file"}, method={"backend": "import"}),
    ]
    ingest(made, *(sample.write(tmp_path / f"{each[0]['run']}.jsonl", each) for each in runs), tmp_path / "d")
    told: dict[str, set[tuple[Any, Any]]] = {}
    for row in rows(tmp_path / "d"):
        told.setdefault(row["run"], set()).add((row["origin"], row["model"]))
    numbers = "1796:0019:0000:0000"
    name = json.loads(made.read_text().splitlines()[0])["run"]
    assert told == {
        name: {("synthetic", numbers)},
        f"{1:016x}": {("emulated", numbers)},
        f"{2:016x}": {("measured", numbers)},
        f"{3:016x}": {("measured", "file")},
        f"{4:016x}": {("measured", "Example Disk")},
        f"{5:016x}": {("imported", "file")},
    }
    origins = {row["run"]: row["origin"] for row in rows(tmp_path / "d", "runs")}
    assert origins == {run: next(iter(pairs))[0] for run, pairs in told.items()}


def test_a_figure_says_if_it_was_converted_on_the_way_and_not_what_is_unknown(tmp_path: Path, ingest: Ingest) -> None:
    told: dict[str, Any] = {"kind": "block", "path": "/dev/nvme0n1", "model": "X", "function": "func_sca"}
    streams = [{**told, "is_fused": True}, {**told, "is_fused": False}]
    runs = [readout(number, f"n{number}", stream) for number, stream in enumerate([*streams, told], 1)]
    for stream, (_, row, _) in zip(streams, runs, strict=False):
        row["stream"].update(stream)
    for name in ("access", "function", "samples", "devices"):
        del runs[2][1]["stream"][name]
    ingest(sample.write(tmp_path / "all.jsonl", *runs), tmp_path / "d")
    figures = {row["host"]: row["figure"] for row in rows(tmp_path / "d") if row["figure"].startswith("readout ")}
    assert figures == {
        "n1": "readout func_sca+fused read 1024 samples 1 devices speed",
        "n2": "readout func_sca read 1024 samples 1 devices speed",
        "n3": "readout speed",
    }


def test_compaction_keeps_every_row_and_leaves_a_file_a_day(tmp_path: Path, ingest: Ingest) -> None:
    days = [f"2026-11-2{day}T08:00:00Z" for day in (1, 2)]
    files = [sample.write(tmp_path / f"{number}.jsonl", sample.run(number, f"n{number % 5}", time=days[number % 2]))
             for number in range(1, 21)]  # fmt: skip
    ingest(*files[:10], tmp_path / "d", "--compact")
    ingest(*files[10:], tmp_path / "d")
    before = rows(tmp_path / "d"), rows(tmp_path / "d", "runs")
    assert len(before[1]) == 20
    _, told = ingest(files[0], tmp_path / "d", "--compact")
    assert told["compacted"]["files"] == 4
    assert (rows(tmp_path / "d"), rows(tmp_path / "d", "runs")) == before
    assert len(list((tmp_path / "d" / "figures").rglob("*.parquet"))) == 2
    assert ingest(*files, tmp_path / "d")[1]["known"] == 20


def test_compacted_files_are_bounded_in_bytes(tmp_path: Path, ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [sample.write(tmp_path / f"{number}.jsonl", sample.run(number, f"n{number:02}")) for number in range(1, 13)]
    ingest(*files, tmp_path / "right")
    right = [without_times(rows(tmp_path / "right", table)) for table in ("figures", "runs")]
    place = tmp_path / "d"
    one = Store(str(tmp_path / "right")).read(
        "figures", [str(next((tmp_path / "right" / "figures").rglob("*.parquet")))]
    )
    monkeypatch.setattr(writer, "MANY", 1)
    for part in range(4):
        ingest(*files[3 * part : 3 * part + 3], place)
    assert len(list((place / "figures").rglob("*.parquet"))) == 4
    monkeypatch.setattr(writer, "LARGEST_BYTES", 7 * one.nbytes)
    writer.compact(Store(str(place)))
    names = {path: path.stat().st_mtime_ns for path in (place / "figures").rglob("*.parquet")}
    assert [len(set(pq.read_table(path, partitioning=None)["host"].to_pylist())) for path in names] == [6, 6]
    for table, expected in zip(("figures", "runs"), right, strict=True):
        assert without_times(rows(place, table)) == expected
    # Full files are left alone.
    writer.compact(Store(str(place)))
    assert {path: path.stat().st_mtime_ns for path in (place / "figures").rglob("*.parquet")} == names


class Killed(BaseException):
    """What a test throws in place of a kill."""


@pytest.mark.parametrize("verb", ["ingest", "compact", "renew"])
def test_a_writer_killed_at_any_step_loses_nothing(
    tmp_path: Path, ingest: Ingest, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """After each step of a writer that is killed there, the next one makes the dataset whole, with each run once."""
    many = [
        sample.write(tmp_path / f"{number}.jsonl", sample.run(number, f"n{number}", cpus=2, seed=1))
        for number in range(1, 5)
    ]
    extra = sample.write(tmp_path / "9.jsonl", sample.run(9, "n9"))
    torn = [
        sample.write(tmp_path / f"torn{number}.jsonl", sample.run(number, f"n{number}", cpus=1, seed=1))
        for number in range(1, 5)
    ]
    ingest(*many, extra, tmp_path / "right")
    monkeypatch.setattr(writer, "MANY", 3)
    right = without_times(rows(tmp_path / "right")), without_times(rows(tmp_path / "right", "runs"))
    steps = 0
    while True:
        place = tmp_path / f"d{steps}"
        if verb != "ingest":
            ingest(*(torn if verb == "renew" else many), place)
        left = steps

        def dies(real: Callable[..., Any]) -> Callable[..., Any]:
            def step(*args: Any, **kwargs: Any) -> Any:
                nonlocal left
                if left == 0:
                    raise Killed
                left -= 1
                return real(*args, **kwargs)

            return step

        with monkeypatch.context() as patched:
            patched.setattr(Store, "_put", dies(Store._put))
            store = Store(str(place))
            patched.setattr(store.fs, "rm_file", dies(store.fs.rm_file))
            try:
                writer.ingest(Store(str(place)), many if verb != "compact" else [extra])
                if verb != "ingest":
                    writer.compact(Store(str(place)))
                whole = True
            except Killed:
                whole = False
        seen = [(row["host_key"], row["run"]) for row in rows(place, "runs")]
        assert len(seen) == len(set(seen)), f"after step {steps} a run counts twice"
        if verb != "ingest":
            assert len(seen) >= 4, f"after step {steps} a run is lost"
        assert set(seen) <= {(row["host_key"], row["run"]) for row in rows(place)}, (
            f"after step {steps} figures are lost"
        )
        ingest(*many, extra, place, "--compact")
        assert without_times(rows(place)) == right[0], f"after step {steps}"
        assert without_times(rows(place, "runs")) == right[1]
        assert not [path for path in place.rglob("*") if path.name.startswith(".")]
        if whole:
            break
        steps += 1
    assert steps > 5


def test_two_ingests_of_the_same_files_at_once_are_one(
    tmp_path: Path, ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pciescope_fleet.engine import open_engine

    def files(folder: str, numbers: range, cpus: int = 2) -> list[Path]:
        return [sample.write(tmp_path / folder / f"{number}.jsonl", sample.run(number, f"n{number}", cpus=cpus, seed=1))
                for number in numbers]  # fmt: skip

    whole = files("whole", range(1, 9))
    ingest(*whole, tmp_path / "right")
    right = [without_times(rows(tmp_path / "right", table)) for table in ("figures", "runs")]
    place = tmp_path / "d"
    # Each of them looked before the other wrote: files of many runs, of one, and one that was cut off.
    for many, taken in ((3, whole[:5]), (3, whole[3:]), (100, whole[4:7]), (2, files("cut", range(6, 9), 1))):
        with monkeypatch.context() as patched:
            patched.setattr(writer, "MANY", many)
            patched.setattr(writer, "known", lambda *_: writer.Known({}, {}))
            assert writer.ingest(Store(str(place)), taken).runs == len(taken)
    for _ in range(2):
        store = Store(str(place))
        for table, expected in zip(("figures", "runs"), right, strict=True):
            assert without_times(rows(place, table)) == expected
            with open_engine(None) as engine:
                seen = engine.table(store, table, store.kept(table).files()).select("host_key", "run").execute()
            assert sorted(map(tuple, seen.to_numpy())) == [(row["host_key"], row["run"]) for row in expected]
        # The next compaction also keeps one copy alone.
        writer.compact(store)
    assert len(list((place / "figures").rglob("*.parquet"))) == 1


def test_compaction_beside_an_ingest_removes_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [sample.write(tmp_path / f"{number}.jsonl", sample.run(number, f"n{number}")) for number in range(1, 7)]
    monkeypatch.setattr(writer, "MANY", 2)
    place, real = tmp_path / "d", Store._put
    compacts = 0

    def compacts_before(store: Store, path: str, content: bytes) -> None:
        nonlocal compacts
        compacts += 1
        with monkeypatch.context() as within:
            within.setattr(Store, "_put", real)
            writer.compact(Store(str(place)))
        real(store, path, content)

    with monkeypatch.context() as patched:
        patched.setattr(Store, "_put", compacts_before)
        writer.ingest(Store(str(place)), files[:3])
        writer.ingest(Store(str(place)), files[3:])
    assert compacts >= 8
    assert [row["host"] for row in rows(place, "runs")] == [f"n{number}" for number in range(1, 7)]
    assert {row["host"] for row in rows(place)} == {f"n{number}" for number in range(1, 7)}


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("step", range(1, 21))
def test_a_reader_beside_a_compaction_sees_each_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, compacted: bool
) -> None:
    """A compaction runs within the reader's listing: before or after any of its looks at the store."""
    files = [sample.write(tmp_path / f"{number}.jsonl", sample.run(number, f"n{number}")) for number in range(1, 5)]
    place = tmp_path / "d"
    writer.ingest(Store(str(place)), files[:2])
    if compacted:
        writer.compact(Store(str(place)))
    writer.ingest(Store(str(place)), files[2:])
    store = Store(str(place))
    left = step

    def compacts(real: Callable[..., Any]) -> Callable[..., Any]:
        def looks(*typed: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                writer.compact(Store(str(place)))
            found = real(*typed, **more)
            left -= 1
            if left == 0:
                writer.compact(Store(str(place)))
            return found

        return looks

    for name in ("find", "ls", "cat_file", "cat_ranges"):
        real = getattr(store.fs, name)
        monkeypatch.setattr(store.fs, name, compacts(real))
    assert sorted(store.kept("runs").runs()) == [f"{number:016x}" for number in range(1, 5)]


def test_a_run_that_moves_to_another_day_while_it_is_listed_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole copy begins a day earlier than the one without its head, which a compaction removes."""
    records = sample.run(1, "n1", time="2026-11-23T00:00:01Z")
    records[0]["time"] = "2026-11-22T23:59:59Z"
    head = {**records[1], "environment": records[0]["environment"]}
    torn = sample.write(tmp_path / "torn.jsonl", [head, *records[2:]])
    whole, place = sample.write(tmp_path / "whole.jsonl", records), tmp_path / "d"
    with monkeypatch.context() as patched:
        patched.setattr(writer, "MANY", 1)
        writer.ingest(Store(str(place)), [torn])
    store = Store(str(place))
    real, listed = store._find, 0

    def find(*typed: Any, **more: Any) -> Any:
        nonlocal listed
        found = real(*typed, **more)
        listed += 1
        if listed == 1:
            writer.ingest(Store(str(place)), [whole])
            writer.compact(Store(str(place)))
        return found

    monkeypatch.setattr(store, "_find", find)
    [copy] = store.kept("runs").runs().values()
    assert (copy.host_key, copy.run, copy.date, copy.records) == ("n1", f"{1:016x}", "2026-11-22", 3)


def test_a_run_that_goes_while_its_file_is_looked_for_is_no_fault(
    tmp_path: Path, ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another ingest takes it under the better name, and a compaction removes it, before this one looks at it."""
    bare = sample.write(tmp_path / "n9.jsonl", sample.run(1, None))
    named = sample.write(tmp_path / "x.jsonl", sample.run(1, "n1"))
    place = tmp_path / "d"
    ingest(bare, place)
    real = Store.read
    looked = 0

    def read(store: Store, *typed: Any) -> pa.Table:
        nonlocal looked
        looked += 1
        if looked == 1:
            writer.ingest(Store(str(place)), [named])
            writer.compact(Store(str(place)))
        return real(store, *typed)

    monkeypatch.setattr(Store, "read", read)
    taken = writer.ingest(Store(str(place)), [named])
    assert looked >= 2
    assert taken.problems == []
    monkeypatch.undo()
    ingest(named, place, "--compact")
    assert [row["host_key"] for row in rows(place, "runs")] == ["n1"]
    assert {row["host_key"] for row in rows(place)} == {"n1"}


def test_what_killed_writers_left_goes_after_a_day(tmp_path: Path, ingest: Ingest) -> None:
    import os
    import time

    ingest(sample.write(tmp_path / "n1.jsonl", sample.run(1)), tmp_path / "d")
    [part] = (tmp_path / "d" / "figures").rglob("*.parquet")
    folder = part.parent.parent / "host=all"
    folder.mkdir()
    left = [folder / f"{'a' * 24}.parquet", folder / f".{'b' * 32}.part", part.parent / f".{'c' * 32}.part"]
    other = folder / ".note"
    for path in (*left, other):
        path.write_bytes(part.read_bytes())
    assert ingest(tmp_path / "n1.jsonl", tmp_path / "d", "--compact")[0] == 0
    assert all(path.exists() for path in left)
    for path in (*left, other):
        os.utime(path, (time.time() - 90_000,) * 2)
    ingest(tmp_path / "n1.jsonl", tmp_path / "d", "--compact")
    assert not [path for path in left if path.exists()]
    assert other.exists()
    assert len(rows(tmp_path / "d", "runs")) == 1


def test_a_store_that_is_not_a_folder_keeps_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [sample.write(tmp_path / f"{number}.jsonl", sample.run(number, f"n{number}")) for number in range(1, 4)]
    store, right = Store("memory://fleet"), Store(str(tmp_path / "right"))
    for place in (store, right):
        writer.ingest(place, files)
    assert without_times(rows(store)) == without_times(rows(right))
    [first, *_] = store.kept("figures").files()
    stray = f"{store.root}/figures/date=2026-11-22/host=all/{'a' * 24}.parquet"
    store.fs.pipe_file(stray, store.fs.cat_file(first))
    writer.compact(store)
    assert store.fs.exists(stray)
    monkeypatch.setattr("pciescope_fleet.dataset.store.ABANDONED_S", -1.0)
    writer.compact(store)
    assert not store.fs.exists(stray)
    assert without_times(rows(store)) == without_times(rows(right))
    assert len(store.kept("figures").files()) == 1


@pytest.fixture
def memory() -> Iterator[Store]:
    """An empty store that is not a folder."""
    store = Store("memory://kept-fleet")
    yield store
    store.fs.rm(store.root, recursive=True)


def test_a_compaction_of_a_remote_store_leaves_readers_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: Store
) -> None:
    """A reader that has listed the dataset may read for minutes, while nights are compacted."""
    files = [sample.write(tmp_path / f"{n}.jsonl", sample.run(n, f"n{n}")) for n in range(1, 7)]
    nameless = sample.write(tmp_path / "x.jsonl", sample.run(9, None))
    named = sample.write(tmp_path / "y.jsonl", sample.run(9, "n9"))
    seen: list[tuple[Store, dict[str, list[str]], dict[str, list[dict[str, Any]]]]] = []
    for call in ([*files[:2], nameless], files[2:4], [named], files[4:]):
        writer.ingest(memory, call)
        reader = Store(memory.url)
        listed = {table: reader.kept(table).files() for table in TABLES}
        told = {table: rows(Store(memory.url), table) for table in TABLES}
        seen.append((reader, listed, told))
        writer.compact(memory)
        for store, paths, expected in seen:
            for table in TABLES:
                again = store.read(table, paths[table]).to_pylist()
                assert len(again) == len(expected[table])
                assert {row["host"] for row in again} == {row["host"] for row in expected[table]}
        assert {table: rows(Store(memory.url), table) for table in TABLES} == seen[-1][2]
    right = seen[-1][2]
    assert {row["host"] for row in right["runs"]} == {*(f"n{n}" for n in range(1, 7)), "n9"}
    # An hour later they go; also a writer that is killed between two removals makes no run count twice.
    assert writer.compact(memory).leftover == 0
    monkeypatch.setattr(writer, "STAYS_S", -1.0)
    real = memory.fs.rm_file
    removed = []

    def removes(path: str) -> None:
        real(path)
        removed.append(path)
        assert {table: rows(Store(memory.url), table) for table in TABLES} == right

    with monkeypatch.context() as patched:
        patched.setattr(memory.fs, "rm_file", removes)
        assert writer.compact(memory).leftover == len([path for path in removed if path.endswith(".parquet")])
    assert len(removed) > 12
    assert len([path for path in memory.fs.find(memory.root) if path.endswith(".parquet")]) == 2


@pytest.mark.parametrize("days", [3, 100])
def test_a_listing_of_many_days_asks_no_more_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: Store, days: int
) -> None:
    """A request to a remote store takes some hundredths of a second: a hundred nights of lists took several."""
    first = datetime.date(2026, 8, 1)
    times = [f"{first + datetime.timedelta(day)}T08:00:00Z" for day in range(days)]
    runs = [sample.run(n, "n1", time=time, cpus=1) for n, time in enumerate(times)]
    monkeypatch.setattr(writer, "MANY", 1)
    writer.ingest(memory, [sample.write(tmp_path / "n1.jsonl", *runs)])
    # A driver of such a store asks for several files at once in `cat_ranges`.
    asked: Counter[str] = Counter()
    within = 0

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(memory.fs, name)

        def calls(*typed: Any, **more: Any) -> Any:
            nonlocal within
            asked[name] += not within
            within += 1
            try:
                return real(*typed, **more)
            finally:
                within -= 1

        return calls

    for name in ("exists", "ls", "find", "cat", "cat_file", "cat_ranges"):
        monkeypatch.setattr(memory.fs, name, counted(name))
    kept = memory.kept("runs")
    assert len(kept.files()) == len(kept.runs()) == days
    assert +asked == {"exists": 1, "find": 2, "cat_ranges": 1}


@pytest.mark.parametrize("many", [1, 100])
def test_a_file_of_a_remote_store_never_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: Store, many: int
) -> None:
    """A reader of S3 asks for the object that it listed: another one under its name, of the same runs, is an error."""
    monkeypatch.setattr(writer, "MANY", many)
    file = sample.write(tmp_path / "n1.jsonl", sample.run(1))
    first: dict[str, bytes] = {}
    for _ in range(2):
        monkeypatch.setattr(writer, "known", lambda *_: writer.Known({}, {}))
        assert writer.ingest(memory, [file]).runs == 1
        now = {path: memory.fs.cat_file(path) for path in memory.fs.find(memory.root)}
        assert now == (first := first or now)
    assert len(first) == (2 if many == 100 else 6)


def test_of_two_copies_of_a_run_that_are_written_at_once_one_counts_in_all_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: Store
) -> None:
    """Each has a record that the other lacks. The one writer waits after its figures until the other has ended."""
    whole = sample.run(1, cpus=3)
    files = [sample.write(tmp_path / f"{n}.jsonl", [*whole[:n], *whole[n + 1 :]]) for n in (1, 2)]
    monkeypatch.setattr(writer, "known", lambda *_: writer.Known({}, {}))
    real, written = Store.write_part, 0

    def write_part(store: Store, table: str, *told: Any, **more: Any) -> None:
        nonlocal written
        real(store, table, *told, **more)
        written += 1
        if written == 1:
            writer.ingest(memory, files[1:])

    monkeypatch.setattr(Store, "write_part", write_part)
    writer.ingest(memory, files[:1])
    [run] = rows(memory, "runs")
    cpus = {row["cpu"] for row in rows(memory)} - {None}
    [missing] = {0, 1, 2} - cpus
    kept = [record for record in whole if record.get("cpu", {}).get("cpu") != missing]
    writer.ingest(Store(str(tmp_path / "right")), [sample.write(tmp_path / "kept.jsonl", kept)])
    assert run["record_ids"] == rows(tmp_path / "right", "runs")[0]["record_ids"]
    assert memory.kept("runs").leftover.keys() != set()


class Hdfs(LocalFileSystem):  # type: ignore[misc]
    """A remote file system in which a file is seen before it is whole."""

    protocol = "hdfs"
    cachable = False

    def __init__(self, whole: int) -> None:
        super().__init__(auto_mkdir=True)
        self.whole = whole

    def pipe_file(self, path: str, value: bytes, **more: Any) -> None:
        """So many files are whole; then the connection breaks."""
        self.whole -= 1
        super().pipe_file(path, value[: None if self.whole >= 0 else 1000], **more)
        if self.whole < 0:
            raise OSError("the connection is lost")


def test_a_file_on_a_remote_file_system_is_there_whole_or_not_at_all(tmp_path: Path, ingest: Ingest) -> None:
    file = sample.write(tmp_path / "n1.jsonl", sample.run(1))
    ingest(file, tmp_path / "right")
    names = {path.relative_to(tmp_path / "right") for path in (tmp_path / "right").rglob("*.parquet")}
    assert len(names) == 2
    place = tmp_path / "d"
    for whole in range(3):
        store = Store(str(place))
        store.fs = Hdfs(whole)
        if whole < 2:
            with pytest.raises(FleetError, match="the connection is lost"):
                writer.ingest(store, [file])
        else:
            writer.ingest(store, [file])
        there = [path for path in place.rglob("*") if path.is_file()]
        assert len(there) == min(whole, 2)
        assert {path.relative_to(place) for path in there} <= names
    assert without_times(rows(place)) == without_times(rows(tmp_path / "right"))


def test_a_host_that_is_called_all_is_a_host(tmp_path: Path, ingest: Ingest) -> None:
    ingest(sample.write(tmp_path / "1.jsonl", sample.run(1, "all"), sample.run(2, "../up/n1")), tmp_path / "d")
    assert {row["host"] for row in rows(tmp_path / "d")} == {"all", "../up/n1"}
    assert not (tmp_path / "up").exists()
    assert ingest(tmp_path / "1.jsonl", tmp_path / "d", "--compact")[1]["known"] == 2
    assert {row["host"] for row in rows(tmp_path / "d")} == {"all", "../up/n1"}


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("compacted", [(), ("--compact",)])
@pytest.mark.parametrize("table", ["figures", "runs", "findings", "*"])
@pytest.mark.parametrize("harm", [cut, Path.unlink, lambda path: path.write_bytes(b"PAR1")])
def test_what_a_dataset_has_lost_comes_back_with_the_same_files(
    tmp_path: Path, ingest: Ingest, call: Call, table: str, harm: Callable[[Path], None], compacted: tuple[str, ...]
) -> None:
    runs = [sample.run(number, f"n{number}") for number in range(1, 4)]
    warning = {"code": "aspm", "text": "ASPM is on"}
    runs[1][1]["warnings"] = [warning]
    runs.append([{**runs[0][0], "run": "f" * 16}])  # It has no figure.
    files = [sample.write(tmp_path / f"{number}.jsonl", each) for number, each in enumerate(runs)]
    place = tmp_path / "d"
    ingest(*files, place, *compacted)
    before = {name: without_times(rows(place, name)) for name in TABLES}
    assert len(before["findings"]) == 1
    for path in place.glob(f"{table}/*/*/*.parquet"):
        harm(path)
    if table == "figures":
        # A host that is judged no more for it would pass.
        for told_of in (call("outliers", place), call("trend", place)):
            assert (told_of.code, "hint: ingest their files again" in told_of.err) == (2, True), told_of.err
    code, told = ingest(*files, place)
    lost = 4 if table in ("runs", "*") else 3 if table == "figures" else 1
    assert (code, told["known"], told["runs"]) == (0, 4 - lost, lost)
    assert told["restored"] == (lost if table in ("figures", "findings") else 0)
    assert {name: without_times(rows(place, name)) for name in TABLES} == before
    assert ingest(*files, place)[1]["known"] == 4


@pytest.mark.parametrize("harm", [cut, Path.unlink])
def test_what_is_lost_and_not_among_the_files_is_named(
    tmp_path: Path, ingest: Ingest, harm: Callable[[Path], None]
) -> None:
    files = [sample.write(tmp_path / f"{number}.jsonl", sample.run(number, f"n{number}")) for number in range(1, 4)]
    place = tmp_path / "d"
    ingest(*files, place, "--compact")
    [path] = place.glob("runs/*/*/*.parquet")
    harm(path)
    code, told = ingest(files[0], place)
    [problem] = told["problems"]
    assert (code, problem["file"]) == (1, str(path))
    assert problem["why"].endswith("2 runs are lost with it until their files are ingested again: of n2, n3")
    code, told = ingest(*files[1:], place)
    assert (code, told["runs"], told["problems"]) == (0, 2, [])
    assert {row["host"] for row in rows(place)} == {"n1", "n2", "n3"}
    # A shorter copy does not stand for what was lost.
    for path in place.glob("figures/*/*/*.parquet"):
        path.unlink()
    code, told = ingest(sample.write(tmp_path / "short.jsonl", sample.run(1, "n1")[:2]), place)
    assert (code, told["runs"]) == (1, 0)
    assert "has lost rows of it, and this copy has only 2 of its 3 records" in told["problems"][0]["why"]


def test_refuses_what_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ingest", str(tmp_path / "none.jsonl"), str(tmp_path / "d")]) == 2
    assert capsys.readouterr().err == f"pciescope-fleet: {tmp_path / 'none.jsonl'}: there is no such file\n"
    assert cli.main(["outliers", str(tmp_path / "d")]) == 2
    assert "there is no dataset here" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", " ", "a~b", "a/b", "..", "n" * 65, "n\x1b1", "n\udce41"])
def test_a_host_that_is_no_name_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    file = sample.write(tmp_path / "n1.jsonl", sample.run(1, None))
    assert cli.main(["ingest", "--host", name, str(file), str(tmp_path / "d")]) == 2
    assert "is no name of a host" in capsys.readouterr().err
    assert not (tmp_path / "d").exists()


def test_a_packed_file_is_read_whatever_it_is_called(tmp_path: Path, ingest: Ingest) -> None:
    one = sample.write(tmp_path / "in" / "n1.jsonl", sample.run(1, None))
    two = sample.write(tmp_path / "in" / "n2.jsonl", sample.run(2, None))
    one.write_bytes(gzip.compress(one.read_bytes()))
    packed = bytes(pa.compress(two.read_bytes(), codec="zstd"))
    two.write_bytes(packed)
    three = pa.compress(sample.write(tmp_path / "n3.jsonl", sample.run(3, None)).read_bytes(), codec="zstd")
    (tmp_path / "in" / "n3.jsonl.zst").write_bytes(bytes(three))
    code, told = ingest(tmp_path / "in", tmp_path / "d")
    assert (code, told["files"], told["runs"], told["problems"]) == (0, 3, 3, [])
    assert told["hosts_by_file_name"] == ["n1", "n2", "n3"]


def test_a_host_is_called_after_the_whole_name_of_its_file(tmp_path: Path, ingest: Ingest) -> None:
    names = {
        "10.0.0.1.jsonl": "10.0.0.1",
        "10.0.0.2.jsonl": "10.0.0.2",
        "n1.cluster.example.txt": "n1.cluster.example.txt",
    }
    files = [sample.write(tmp_path / name, sample.run(number, None)) for number, name in enumerate(names)]
    (tmp_path / "n7.a.jsonl.gz").write_bytes(gzip.compress(files[0].read_bytes().replace(b"0" * 15, b"a" * 15)))
    told = ingest(*files, tmp_path / "n7.a.jsonl.gz", tmp_path / "d")[1]
    assert told["hosts_by_file_name"] == sorted({*names.values(), "n7.a"})
    assert {row["host_key"] for row in rows(tmp_path / "d", "runs")} == {*names.values(), "n7.a"}


@pytest.mark.parametrize("how", ["text", "sum"])
def test_a_histogram_that_contradicts_itself_is_named(tmp_path: Path, ingest: Ingest, how: str) -> None:
    records = sample.run(1, "n1", cpus=3)
    bad = records[1]["histograms"]["latency"]
    match how:
        case "text":
            bad["count"] = str(bad["count"])
        case "sum":
            bad["count"] += 1
    code, told = ingest(sample.write(tmp_path / "n1.jsonl", records), tmp_path / "d")
    assert (code, len(told["problems"])) == (1, 1), told
    latency = [row for row in rows(tmp_path / "d", "figures") if row["figure"].endswith(" latency")]
    assert {row["cpu"] for row in latency} == {None, 1, 2}


def test_of_two_compactions_the_slower_one_says_so(
    tmp_path: Path, ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(*[sample.write(tmp_path / f"n{n}.jsonl", sample.run(n, f"n{n}")) for n in range(3)], tmp_path / "d")
    store, read = Store(str(tmp_path / "d")), Store.read

    def reads(self: Store, *typed: Any) -> Any:
        if self is store:
            writer.compact(Store(store.url))
        return read(self, *typed)

    monkeypatch.setattr(Store, "read", reads)
    with pytest.raises(FleetError, match="another compaction is running"):
        writer.compact(store)


@pytest.mark.parametrize("table", ["runs", "figures"])
def test_a_folder_that_cannot_be_read_hides_no_host(
    tmp_path: Path, ingest: Ingest, monkeypatch: pytest.MonkeyPatch, call: Call, table: str
) -> None:
    """As root every folder can be read, so the error is made here."""
    files = [sample.write(tmp_path / f"n{n}.jsonl", sample.run(n, f"n{n}")) for n in range(1, 13)]
    ingest(*files, tmp_path / "d")
    real = os.scandir

    def scandir(path: Any = ".") -> Any:
        if str(path).endswith((f"{table}/date=2026-11-22/host=n3", "/in")):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    (tmp_path / "in").mkdir()
    monkeypatch.setattr(os, "scandir", scandir)
    told = call("outliers", tmp_path / "d")
    assert (told.code, "host=n3" in told.err, "who may read" in told.err) == (2, True, True)
    told = call("ingest", tmp_path / "in", tmp_path / "d")
    assert (told.code, "in: the folder cannot be read" in told.err) == (2, True)


def test_no_name_and_no_time_of_a_host_hides_it_or_stops_the_others(tmp_path: Path, ingest: Ingest) -> None:
    names = ["\U0001f600" * 64, "\U0001f600" * 63 + "x", "ä" * 64, "../" * 20, "good"]
    machines = ["\U0001f600" * 40, "\U0001f600" * 40, "ü" * 12, None, None]
    runs = [sample.run(number, *pair) for number, pair in enumerate(zip(names, machines, strict=True), 1)]
    times = ["0001-01-02T00:00:00+09:00", "0999-01-02T00:00:00Z", "9999-12-31T23:59:59-09:00", "2026-11-22T00:00:00Z"]
    runs += [sample.run(number, f"t{number - 10}", time=time) for number, time in enumerate(times, 10)]
    files = [sample.write(tmp_path / f"{number}.jsonl", each) for number, each in enumerate(runs)]
    code, told = ingest(*files, tmp_path / "d")
    assert (code, told["runs"]) == (1, len(runs))
    # What was told as taken is there, and is known the next time.
    seen = rows(tmp_path / "d", "runs")
    assert {row["host"] for row in seen} == {*names, "t0", "t1", "t2", "t3"}
    assert len({row["host_key"] for row in seen}) == len(runs)
    assert {row["date"] for row in seen if row["host"] in ("t0", "t1", "t2")} == {"1970-01-01"}
    assert [problem["file"] for problem in told["problems"]] == [str(file) for file in files[5:8]]
    assert ingest(*files, tmp_path / "d", "--compact")[1]["known"] == len(runs)
    assert len(rows(tmp_path / "d", "runs")) == len(runs)


def test_names_and_texts_of_hosts_do_not_reach_the_terminal_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pciescope_fleet.cmd import outliers, trend
    from pciescope_fleet.judge import words
    from pciescope_fleet.judge.outliers import Judged
    from pciescope_fleet.judge.outliers import Plan as OutliersPlan
    from pciescope_fleet.judge.trend import Plan, Trend

    bad = "n\x1b[2J\n9 of 9 hosts"
    file = sample.write(tmp_path / f"{bad}.jsonl", sample.run(1, None, time="no time"))
    assert cli.main(["ingest", str(file), str(tmp_path / "d")]) == 1
    cli.main(["ingest", str(tmp_path / f"{bad}.none"), str(tmp_path / "d")])
    worst = {
        "device": bad, "figure": bad, "unit": "ns", "statistic": "p50", "effect": 0.1, "q": 0.01, "z": 9.0,
        "value": 1.0, "group_median": 1.0, "group_hosts": 9, "group_without": [], "origin": "measured",
        "from": 1.0, "to": 2.0, "host": bad, "replaced_by": bad, "link": bad, "group_link": f"{bad} x4",
        "driver": None, "group_driver": "nvme", "firmware": "1.0", "group_firmware": None,
        "count": 9, "group_count": 10,
    }  # fmt: skip
    finding = {
        "hosts": [bad], "direction": "slower", "model": bad, "device_name": bad, "origin": "measured",
        "figures": [bad], "beside": [{"severity": "note", "check": "x", "text": bad}], "worst": worst,
        "worst_of_hosts": [worst],
        "shared": {"attribute": "rack", "value": bad, "healthy": 1, "healthy_with": 0, "p": 0.1},
        "first": "2026-11-22", "last": "2026-11-22", "changed": [{"what": "kernel", "from": bad, "to": bad}],
    }  # fmt: skip
    judged = Judged(OutliersPlan(), 9, 9, 1, [bad], [], pd.DataFrame(), [finding])
    told = words.report(outliers.printable(judged)) + trend._words(Trend(Plan(), 1, 0, [], [finding]))
    captured = capsys.readouterr()
    told += captured.out + captured.err
    assert told.count("n?[2J?9 of 9 hosts") >= 12
    assert "\x1b" not in told
    assert not [line for line in told.splitlines() if line.startswith("9 of 9")]


def test_many_problems_of_a_file_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "n1.jsonl").write_text("no record\n" * 40)
    assert cli.main(["ingest", str(tmp_path / "n1.jsonl"), str(tmp_path / "d")]) == 1
    assert capsys.readouterr().err.splitlines()[5:] == [
        f"not taken, or doubtful: {tmp_path / 'n1.jsonl'}: 35 more; --json tells all"
    ]


def test_earlier_attempts_of_a_run_are_not_taken_with_its_folder(tmp_path: Path, ingest: Ingest) -> None:
    """The first attempt on n1 was cut off in the middle of a line, and is a run of its own."""
    folder = tmp_path / "run"
    sample.write(folder / "n1.jsonl", sample.run(1))
    sample.write(folder / "n2.jsonl", sample.run(2, "n2"))
    torn = sample.write(folder / "earlier" / "n1.1.jsonl", sample.run(3))
    torn.write_bytes(torn.read_bytes()[:-20])
    (folder / "run.json").write_text("{}")
    for place in ("folder", "above"):
        code, told = ingest(folder if place == "folder" else tmp_path, tmp_path / f"d-{place}")
        assert (code, told["runs"], told["files"], told["problems"]) == (0, 2, 2, [])
        # `above` the dataset of the first turn lies beside it: it has no file of records.
    # Whoever names it wants it, and a folder of this name that is no run's is a folder as any other.
    assert ingest(folder / "earlier", tmp_path / "d-named")[1]["files"] == 1
    (folder / "run.json").unlink()
    assert ingest(folder, tmp_path / "d-plain")[1]["files"] == 3


def test_the_program_is_needed_in_the_version_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], program: Path
) -> None:
    typed = ["ingest", str(sample.write(tmp_path / "n1.jsonl", sample.run(1))), str(tmp_path / "d")]
    monkeypatch.setenv("PATH", str(tmp_path))
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho pciescope 0.0.9\n")
    other.chmod(0o755)
    told = f"{other} has version 0.0.9, and pciescope-fleet 0.1.0"
    for more, why in (([], "there is no pciescope on this machine"), (["--program", str(other)], told)):
        assert cli.main([*typed, *more]) == 2
        err = capsys.readouterr().err
        assert why in err
        assert "--program PATH" in err
    assert not (tmp_path / "d").exists()
    assert cli.main([*typed, "--program", str(program)]) == 0
