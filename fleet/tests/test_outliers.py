"""`outliers`: planted faults are found with what they share and the likely cause, healthy hosts are not."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pytest

import planted
import sample
from conftest import Call, Clock
from pciescope_fleet import outputs
from pciescope_fleet.cmd import slurm_drain
from pciescope_fleet.cmd.outliers import as_json, printable
from pciescope_fleet.dataset import ingest
from pciescope_fleet.dataset.rows import Asked
from pciescope_fleet.dataset.schema import FINDINGS
from pciescope_fleet.dataset.store import Copy, Store
from pciescope_fleet.engine import Engine, open_engine
from pciescope_fleet.errors import FleetError
from pciescope_fleet.judge import causes, null, outliers, statistics, words
from pciescope_fleet.judge.modes import cut
from pciescope_fleet.judge.newest import RemovedDevice
from planted import Shape, host_name

Faults = dict[tuple[int, int], tuple[str, float]]


def on(hosts: list[int], kind: str, strength: float, shape: Shape) -> Faults:
    """One fault in all figures of these hosts."""
    return {(host, figure): (kind, strength) for host in hosts for figure in range(shape.figures)}


def keep(place: Path, shape: Shape, faults: Faults | None = None, **attributes: Any) -> Store:
    store = Store(str(place))
    planted.keep(store, planted.make(shape, faults or {}, attributes=attributes))
    return store


def judged(place: Path) -> tuple[dict[str, Any], str]:
    """What --json and what the text tell, judged once, at a level that leaves hardly a false alarm."""
    with open_engine(None) as engine:
        found = outliers.judge(engine, Store(str(place)), outliers.Plan(level=0.01))
    return as_json(found), words.report(found)


def hosts_of(told: Any) -> set[str]:
    return {host for finding in told["findings"] for host in finding["hosts"]}


SMALL = Shape(hosts=40, figures=4)


KINDS = {
    3: ("median", 0.1, "slower"), 11: ("median", -0.1, "faster"), 17: ("tail", 0.05, "other form"),
    23: ("mode", 0.1, "other form"), 31: ("link", 0.1, "slower"), 37: ("cpu", 0.15, "one CPU slower"),
    43: ("noise", 0.6, "other form"),
}  # fmt: skip


def test_finds_each_kind_of_fault_and_no_healthy_host(tmp_path: Path, call: Call) -> None:
    shape = Shape(hosts=100, figures=4)
    faults = {
        key: what for host, (kind, size, _) in KINDS.items() for key, what in on([host], kind, size, shape).items()
    }
    keep(tmp_path, shape, faults)
    told = call("outliers", tmp_path, "-j").json()
    planted_in = {host_name(host) for host in KINDS}
    assert hosts_of(told) >= planted_in
    # The level is 5 % of some 30 discoveries.
    assert len(hosts_of(told) - planted_in) <= 1
    assert (told["hosts"], told["tests"]) == (100, 400)
    for host, (kind, strength, direction) in KINDS.items():
        found = {finding["direction"]: finding for finding in told["findings"] if finding["hosts"] == [host_name(host)]}
        assert direction in found, (kind, list(found))
        if kind == "median":
            assert found[direction]["worst"]["effect"] == pytest.approx(strength, abs=0.05)
            assert len(found[direction]["figures"]) == 4


def test_healthy_hosts_are_no_outliers_and_the_exit_code_says_so(tmp_path: Path, call: Call) -> None:
    keep(tmp_path, Shape(hosts=300, figures=10))
    told = call("outliers", tmp_path)
    assert told.code == 0, told.out
    assert told.out.startswith("0 of 300 hosts differ from similar hosts")


def test_a_group_of_eight_shows_a_clear_fault(tmp_path: Path, call: Call) -> None:
    shape = Shape(hosts=8, figures=10)
    keep(tmp_path, shape, on([3], "median", 0.15, shape))
    told = call("outliers", tmp_path, "-j")
    assert told.code == 1
    assert hosts_of(told.json()) == {host_name(3)}


def test_five_bogus_hosts_among_a_hundred_are_the_outliers(tmp_path: Path, call: Call) -> None:
    """By SuperBench's rule the mean follows the bogus ones; five far lower ones make the 95 others "defect"."""
    shape = Shape(hosts=100, figures=2)
    faults = on([1, 2, 3, 4, 5], "median", -0.9, shape)
    superbench = runpy.run_path(str(Path(__file__).parents[1] / "bench" / "montecarlo.py"))["superbench"]
    table = planted.make(shape, faults).figures.select(["figure", "host_key", "cpu", "p50"]).to_pandas()
    for _, part in table[table["cpu"].isna()].groupby("figure"):
        removed = set(part["host_key"][superbench(part["p50"].to_numpy())])
        assert removed == {host_name(host) for host in range(100)} - {host_name(host) for host in range(1, 6)}
    keep(tmp_path, shape, faults)
    told = call("outliers", tmp_path, "-j").json()
    assert hosts_of(told) == {host_name(host) for host in range(1, 6)}


def test_hosts_with_one_firmware_are_one_finding(tmp_path: Path) -> None:
    shape = Shape(hosts=60, figures=3)
    faulty = list(range(10, 18))
    firmware = ["2.0" if host in faulty else "1.0" for host in range(60)]
    keep(tmp_path, shape, on(faulty, "median", 0.12, shape), firmware=firmware)
    told, text = judged(tmp_path)
    [finding] = told["findings"]
    assert finding["hosts"] == [host_name(host) for host in faulty]
    assert (finding["shared"]["attribute"], finding["shared"]["value"]) == ("firmware", "2.0")
    assert (finding["shared"]["healthy_with"], finding["shared"]["healthy"]) == (0, 52)
    assert "slower: 8 hosts: " in text
    assert "they share firmware 2.0; of the 52 others 0 have it" in text
    assert "most of its group" not in text


def test_a_finding_of_what_devices_share_has_those_devices_alone(tmp_path: Path, call: Call) -> None:
    """Hosts 1 to 4 have a device with another firmware. Another one of host 4 is far slower, with the usual one."""
    first, second = str(sample.DEVICE["bdf"]), MOVED
    runs = []
    for host in range(20):
        bad = host in (1, 2, 3, 4)
        told = [{"bdf": first, "version": "2.0" if bad else "1.0"}, {"bdf": second, "version": "1.0"}]
        runs.append(sample.run(host + 1, f"n{host}", cpus=1, median=920 if bad else 800 + host % 3, firmware=told))
        more = sample.run(host + 101, f"n{host}", cpus=1, median=1600 if host == 4 else 800 + host % 3, firmware=told)
        runs.append(at(more, bdf=second))
    call("ingest", sample.write(tmp_path / "all.jsonl", *runs), tmp_path / "d")
    findings = call("outliers", tmp_path / "d", "-j", "--level", "1%").json()["findings"]
    [shared] = [each for each in findings if each["shared"]]
    assert (shared["hosts"], shared["shared"]["value"]) == (["n1", "n2", "n3", "n4"], "2.0")
    assert {(each["device"], each["firmware"]) for each in shared["worst_of_hosts"]} == {(first, "2.0")}
    assert shared["worst"]["device"] == first
    [alone] = [each for each in findings if not each["shared"] and each["direction"] == "slower"]
    assert (alone["hosts"], alone["worst"]["device"]) == (["n4"], second)


def test_hosts_that_differ_in_another_way_are_not_healthy(tmp_path: Path) -> None:
    """All nine hosts with the firmware have its fault: of five all reads are slower, of four those of one CPU."""
    shape = Shape(hosts=50, figures=5, seed=3)
    faults = {**on(list(range(5)), "median", 0.15, shape), **on(list(range(5, 9)), "cpu", 0.3, shape)}
    keep(tmp_path, shape, faults, firmware=["2.0" if host < 9 else "1.0" for host in range(50)])
    shares = [each["shared"] for each in judged(tmp_path)[0]["findings"] if each["shared"]]
    assert len(shares) == 2
    assert {(each["value"], each["healthy_with"]) for each in shares} == {("2.0", 0)}


def test_values_that_no_three_hosts_share_hide_no_cause() -> None:
    hosts = [f"n{number}" for number in range(200)]
    place = pd.MultiIndex.from_tuples([(host, "3b") for host in hosts])
    known = pd.DataFrame({"rack": [f"r{number // 10}" for number in range(200)], "bios": "1"}, index=place)
    known["cmdline"] = [f"root=UUID={number} ro" for number in range(200)]
    [share] = causes.shared([("n30", "3b"), ("n33", "3b"), ("n37", "3b")], known)
    assert (share.attribute, share.value) == ("rack", "r3")


def test_three_of_twenty_hosts_share_what_they_alone_have() -> None:
    """The least p-value is 1/1140 there, and what all or most hosts have can never be named: it takes nothing away."""
    place = pd.MultiIndex.from_tuples([(f"n{number}", "3b") for number in range(20)])
    own = {name: ["x"] * 20 for name in ("kernel", "driver", "link", "firmware", "tool", "cmdline", "product")}
    known = pd.DataFrame({"bios": ["2.0"] * 3 + ["1.0"] * 17, **own}, index=place)
    [share] = causes.shared([("n0", "3b"), ("n1", "3b"), ("n2", "3b")], known)
    assert (share.attribute, share.value, share.healthy_with) == ("bios", "2.0", 0)
    # Three of the four that have it, and nothing where one of the three lacks it.
    assert causes.shared([("n0", "3b"), ("n1", "3b"), ("n9", "3b")], known) == []


def test_a_rack_is_named_where_a_file_tells_of_it(tmp_path: Path, call: Call) -> None:
    shape = Shape(hosts=60, figures=3)
    keep(tmp_path / "d", shape, on([5, 15, 25, 35], "median", 0.12, shape))
    racks = tmp_path / "racks.csv"
    racks.write_text("host,rack\n" + "".join(f"{host_name(n)},r{n % 10}\n" for n in range(60)))
    told = call("outliers", tmp_path / "d", "-j", "--racks", racks).json()
    # As some programs write it: a comma behind each line.
    racks.write_text("host,rack\n" + "".join(f"{host_name(n)},r{n % 10},\n" for n in range(60)))
    assert call("outliers", tmp_path / "d", "-j", "--racks", racks).json()["findings"] == told["findings"]
    [finding] = told["findings"]
    # Rack r5 also has healthy hosts, 45 and 55, but it is still named.
    assert (finding["shared"]["attribute"], finding["shared"]["value"], finding["shared"]["healthy_with"]) == (
        "rack",
        "r5",
        2,
    )
    # A mark of the order of bytes, as some programs write it.
    racks.write_text("host,rack\n" + "".join(f"{host_name(n)},r{n % 10}\n" for n in range(60)), encoding="utf-8-sig")
    assert call("outliers", tmp_path / "d", "-j", "--racks", racks).json()["findings"] == told["findings"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name,rack\nn1,r1\n", "`host` and another are needed"),
        ("", "`host` and another are needed"),
        ("host,rack\nn1,r1,r2\n", "n1,r1,r2: 3 values for 2 columns"),
        ("host,rack\nn1\n", "n1: 1 values for 2 columns"),
        ("host,rack,rack\nn1,r1,r2\n", "the column rack is there twice"),
        ("host,rack\nn1,r1\nn1,r2\n", "host n1 stands there twice"),
        ("host,rack\nn1.example,r1\n", "--racks names 1 hosts, and none of them is in the dataset: n1.example"),
    ],
)
def test_a_table_of_racks_that_is_none_is_refused(tmp_path: Path, call: Call, text: str, why: str) -> None:
    keep(tmp_path / "d", Shape(hosts=8, figures=1, cpus=1, samples=100))
    (tmp_path / "racks.csv").write_text(text)
    refused = call("outliers", tmp_path / "d", "--racks", tmp_path / "racks.csv")
    assert refused.code == 2
    assert why in refused.err


@pytest.mark.parametrize(
    "column", ["model", "firmware", "link", "kernel", "host_key", "run", "device", "origin", "faulty"]
)
def test_a_column_of_racks_with_the_name_of_a_property_is_refused(tmp_path: Path, call: Call, column: str) -> None:
    (tmp_path / "racks.csv").write_text(f"host,rack,{column}\nn1,r1,x\n")
    told = call("outliers", tmp_path / "d", "--racks", tmp_path / "racks.csv")
    assert told.code == 2
    assert f"the column {column} has the name of a property" in told.err
    assert told.err.endswith(f"hint: another name, such as my_{column}\n")


def test_a_coarser_group_is_said_and_hosts_without_one_are_named(tmp_path: Path) -> None:
    shape = Shape(hosts=40, figures=2)
    kernel = ["6.13.0" if host < 5 else "6.12.1" for host in range(40)]
    model = ["1234:1:0:0" if host >= 37 else "144d:a80a:0:0" for host in range(40)]
    keep(tmp_path, shape, on([2], "median", 0.15, shape), kernel=kernel, model=model)
    told, text = judged(tmp_path)
    assert told["coarser"] == [{"without": ["slot", "kernel"], "figures": 10}]
    assert (told["unjudged"], told["unjudged_hosts"]) == (6, [host_name(host) for host in (37, 38, 39)])
    [finding] = told["findings"]
    assert finding["hosts"] == [host_name(2)]
    assert finding["worst"]["group_hosts"] == 37
    assert finding["worst"]["group_without"] == ["slot", "kernel"]
    assert "10 figures were judged in coarser groups, without slot, kernel" in text
    assert "not judged: 6 figures with fewer than 8 similar hosts (node00037, node00038, node00039)" in text
    assert "compared with 37 hosts, without regard to slot, kernel" in text


def test_all_hosts_that_are_not_judged_are_counted(tmp_path: Path) -> None:
    shape = Shape(hosts=60, figures=1, cpus=1)
    keep(tmp_path, shape, {}, model=[f"1234:{host:04x}:0:0" if host >= 20 else "144d:a80a:0:0" for host in range(60)])
    told, text = judged(tmp_path)
    assert told["unjudged_hosts"] == [host_name(host) for host in range(20, 60)]
    assert "node00027 and 32 more)" in text


def test_a_group_of_too_few_hosts_is_refused(tmp_path: Path, call: Call) -> None:
    keep(tmp_path, Shape(hosts=6, figures=2))
    told = call("outliers", tmp_path)
    assert told.code == 2
    assert "no figure has 8 hosts of its like: 6 hosts, 12 figures" in told.err
    assert "hint: " in told.err
    assert call("outliers", tmp_path, "--least-hosts", 6).code == 0
    assert "fewer than 5 hosts tell nothing" in call("outliers", tmp_path, "--least-hosts", 4).err


def test_made_up_figures_are_never_compared_with_measured_ones(tmp_path: Path, call: Call) -> None:
    shape = Shape(hosts=40, figures=2)
    origin = ["synthetic" if host < 20 else "measured" for host in range(40)]
    keep(tmp_path, shape, on(list(range(20)), "median", 1.0, shape), origin=origin)
    told = call("outliers", tmp_path, "-j")
    assert (told.code, told.json()["findings"]) == (0, [])
    keep(tmp_path / "lone", shape, {}, origin=["synthetic" if host == 0 else "measured" for host in range(40)])
    assert call("outliers", tmp_path / "lone", "-j").json()["unjudged_hosts"] == [host_name(0)]


def test_faults_of_made_up_hosts_make_no_measured_one_likelier(tmp_path: Path, call: Call) -> None:
    """The false discovery rate is a share of the outliers: four hundred that are none of hardware would allow twenty
    false ones of hardware."""
    made_up = Shape(hosts=60, figures=10, seed=107)
    # Half of them slower, half of them faster: one way alone would be a mode.
    faults = {**on(list(range(12)), "median", 0.5, made_up), **on(list(range(12, 24)), "median", -0.4, made_up)}
    store = keep(tmp_path, made_up, faults, origin="synthetic", backend="fake")
    for seed in (7, 8):
        planted.keep(store, planted.make(Shape(hosts=50, figures=10, noise=0.06, seed=seed), {}, run=seed))
        told = call("outliers", tmp_path, "-j").json()
        assert told["tests"] == 1100
        assert {each["origin"] for each in told["findings"]} == {"synthetic"}


def test_a_finding_has_hosts_of_one_origin(tmp_path: Path, call: Call) -> None:
    shape = Shape(hosts=80, figures=2, cpus=1)
    origin = ["synthetic" if host >= 40 else "measured" for host in range(80)]
    faulty = [5, 6, 45, 46, 47]
    firmware = ["2.0" if host in faulty else "1.0" for host in range(80)]
    keep(tmp_path / "d", shape, on(faulty, "median", 0.2, shape), origin=origin, firmware=firmware)
    told = call("outliers", tmp_path / "d", "-j", "--level", "1%").json()
    assert hosts_of(told) == {host_name(host) for host in faulty}
    for finding in told["findings"]:
        assert {origin[int(host[4:])] for host in finding["hosts"]} == {finding["origin"]}
    assert [finding["hosts"] for finding in told["findings"] if finding["shared"]] == [
        [host_name(host) for host in (45, 46, 47)]
    ]
    call("matrix", tmp_path / "d", "-o", tmp_path / "m.html")
    page = (tmp_path / "m.html").read_text()
    names = [planted.figure_name(figure) for figure in range(2)]
    assert f'"figures":{json.dumps([*names, *(f"SYNTHETIC {name}" for name in names)], separators=(",", ":"))}' in page


def test_a_finding_without_a_check_stands_beside() -> None:
    row = {"host_key": "n1", "severity": "warning", "device": ""}
    seen = pd.DataFrame([{**row, "check": None, "text": "odd"}, {**row, "check": "aspm", "text": "on"}])
    assert [each["check"] for each in causes.of_device(seen, "n1", "0000:3b:00.0")] == ["", "aspm"]


def test_a_narrower_distribution_is_told_from_a_wider_one_and_drains_no_host(tmp_path: Path, call: Call) -> None:
    shape = Shape(hosts=40, figures=4, cpus=1)
    keep(tmp_path / "d", shape, {**on([7], "noise", -0.5, shape), **on([9], "noise", 1.0, shape)})
    told = call("outliers", tmp_path / "d", "-j", "--level", "1%")
    ways = {(each["hosts"][0], each["direction"]) for each in told.json()["findings"]}
    assert (host_name(7), "narrower form") in ways
    assert (host_name(9), "other form") in ways
    (tmp_path / "found.json").write_text(told.out)
    reasons = slurm_drain.read(str(tmp_path / "found.json"), False)
    assert not [text for text in reasons.get(host_name(7), []) if "form" in text]
    [form] = [text for text in reasons[host_name(9)] if text.startswith("other form")]
    assert re.search(r"latency \(\d+% of its samples where others have none\)$", form), form


def test_each_host_is_drained_with_its_own_figures_as_the_reason(tmp_path: Path, call: Call) -> None:
    shape = Shape(hosts=60, figures=1, cpus=1)
    sizes = {10: 0.3, 20: 0.5, 30: 0.7, 40: 0.9}
    device = [f"0000:{host if host in sizes else 59:02x}:00.0" for host in range(60)]
    firmware = ["2.0" if host in sizes else "1.0" for host in range(60)]
    faults = {(host, 0): ("median", size) for host, size in sizes.items()}
    keep(tmp_path / "d", shape, faults, device=device, firmware=firmware)
    told = call("outliers", tmp_path / "d", "-j", "--level", "1%")
    [finding] = [each for each in told.json()["findings"] if each["shared"]]
    assert finding["hosts"] == [host_name(host) for host in sizes]
    (tmp_path / "found.json").write_text(told.out)
    reasons = slurm_drain.read(str(tmp_path / "found.json"), False)
    for host, size in sizes.items():
        [text] = reasons[host_name(host)]
        found = re.fullmatch(rf"slower {device[host]} mmio-read BAR0\+0x0/4 latency \+(\d+\.\d)%", text)
        assert found is not None, text
        assert float(found[1]) == pytest.approx(100 * size, abs=10)


def test_what_is_usual_where_each_host_has_two_devices() -> None:
    from pciescope_fleet.judge.outliers import _with_usual

    rows = [
        {"host_key": f"n{host}", "cpu": None, "at_0": 0, "link": "x4", "driver": "nvme", "firmware": firmware}
        for host in range(8)
        for firmware in ("1.0", "2.0")
    ]
    numbered = ibis.memtable(pa.Table.from_pylist(rows))
    found = _with_usual(numbered, pd.DataFrame({"g": [0], "level": [0]}))
    # Every host has both versions: neither is the one that most have.
    assert [found[f"group_{name}"].iloc[0] for name in ("link", "driver")] == ["x4", "nvme"]
    assert pd.isna(found["group_firmware"].iloc[0])


def test_what_doctor_found_on_the_host_stands_beside(tmp_path: Path) -> None:
    shape = Shape(hosts=30, figures=2)
    link = ["8 GT/s x4" if host == 9 else "16 GT/s x4" for host in range(30)]
    store = keep(tmp_path, shape, on([9], "link", 0.15, shape), link=link, origin="synthetic")
    rows = [("0000:3b:00.0", "link-speed", "problem", "runs at 8 GT/s of 16"), ("", "irqbalance", "note", "runs"),
            ("0000:5e:00.0", "aspm", "warning", "of another device")]  # fmt: skip
    day = {
        "date": "2026-11-22",
        "host_key": host_name(9),
        "host": host_name(9),
        "run": f"{0:08x}{9:08x}",
        "silenced": False,
    }
    found = [
        {**day, "device": device or None, "check": check, "severity": severity, "text": text}
        for device, check, severity, text in rows
    ]
    found.append({**found[0], "check": "silent", "silenced": True})
    copy = Copy(host_name(9), f"{0:08x}{9:08x}", 1)
    store.write_part("findings", "2026-11-22", copy, pa.Table.from_pylist(found, schema=FINDINGS), [1])
    told, text = judged(tmp_path)
    [finding] = told["findings"]
    assert [beside["check"] for beside in finding["beside"]] == ["link-speed", "irqbalance"]
    assert finding["worst"]["link"] == "8 GT/s x4"
    assert finding["worst"]["group_link"] == "16 GT/s x4"
    assert "  link 8 GT/s x4, most of its group 16 GT/s x4\n" in text
    assert "; link 8 GT/s x4, most of its group 16 GT/s x4" in words.finding_in_short(finding)
    assert "driver nvme" not in text
    assert "problem link-speed: runs at 8 GT/s of 16" in text
    assert "SYNTHETIC: not measured on hardware" in text


def doctor(number: int, time: str, devices: dict[str, dict[str, str]], fake: bool = False) -> list[dict[str, Any]]:
    """A run of `doctor` on host n4: for each device its checks and how they ended."""
    head = {"schema": 1, "run": f"{number:016x}", "time": time, "verb": "doctor", "test": "doctor"}
    product = {"product": "synthetic machine"} if fake else {}
    records: list[dict[str, Any]] = [{**head, "environment": sample.environment("n4", **product)}]
    for bdf, checks in devices.items():
        records.append(
            {
                **head,
                "device": {**sample.DEVICE, "bdf": bdf},
                "metrics": {"checks": {"value": float(len(checks)), "unit": "1"}},
                "checks": [{"check": name, "ended": ended} for name, ended in checks.items()],
                "findings": [
                    {"check": name, "severity": "problem", "bdf": bdf, "text": f"{name} on {time[:10]}"}
                    for name, ended in checks.items()
                    if ended == "found"
                ],
            }
        )
    return records


OTHER = "0000:5e:00.0"
SLOW_LINK, FINE_LINK = {"link-speed": "found", "aspm": "fine"}, {"link-speed": "fine", "aspm": "fine"}


@pytest.mark.parametrize(
    ("second", "is_cause"),
    [
        ({OTHER: FINE_LINK}, True),  # `run --class nvme -- doctor {bdf}`: a run for each function
        ({str(sample.DEVICE["bdf"]): {"aspm": "fine"}}, True),  # `doctor --only aspm`
        ({str(sample.DEVICE["bdf"]): {"link-speed": "not-checked"}}, True),
        ({str(sample.DEVICE["bdf"]): FINE_LINK, OTHER: FINE_LINK}, False),  # repaired
    ],
)
def test_a_cause_stays_beside_an_outlier_until_a_newer_run_looked_for_it(
    tmp_path: Path, call: Call, second: dict[str, dict[str, str]], is_cause: bool
) -> None:
    device = str(sample.DEVICE["bdf"])
    first = doctor(1, "2026-11-22T09:00:00Z", {device: SLOW_LINK})
    later = doctor(2, "2026-11-22T09:00:01Z", second)
    night = a_night("2026-11-22", 4)
    call("ingest", sample.write(tmp_path / "all.jsonl", *night, first, later), tmp_path / "d")
    [finding] = call("outliers", tmp_path / "d", "-j", "--level", "1%").json()["findings"]
    assert [each["check"] for each in finding["beside"]] == ["link-speed"] * is_cause


def test_a_cause_is_of_the_same_origin_and_of_the_same_week(tmp_path: Path, call: Call) -> None:
    device = str(sample.DEVICE["bdf"])

    def beside(place: str, *more: list[dict[str, Any]], slow: int = 4) -> list[str]:
        call("ingest", sample.write(tmp_path / f"{place}.jsonl", *a_night("2026-11-22", slow), *more), tmp_path / place)
        [finding] = call("outliers", tmp_path / place, "-j", "--level", "1%").json()["findings"]
        return [each["text"] for each in finding["beside"]]

    def warned(number: int, time: str, warns: bool, **method: Any) -> list[dict[str, Any]]:
        """A run of another register, with the warning or without."""
        records = sample.run(number, "n4", cpus=1, time=time)
        records[1]["target"] = {**records[1]["target"], "bar": 2}
        records[1]["method"].update(method)
        records[1]["warnings"] = [{"code": "link-downtrained", "text": f"8 GT/s in {time[:7]}"}] * warns
        return records

    assert beside("old", doctor(1, "2026-06-22T08:00:00Z", {device: SLOW_LINK})) == []
    assert beside("fake", doctor(1, "2026-11-22T07:00:00Z", {device: SLOW_LINK}, fake=True)) == []
    week = doctor(1, "2026-11-16T07:00:00Z", {device: SLOW_LINK})
    assert beside("week", week) == ["link-speed on 2026-11-16"]
    assert beside("other verb", warned(1, "2026-11-21T07:00:00Z", True)) == []  # the night's run is newer
    assert beside("again", warned(1, "2026-11-22T09:00:00Z", True)) == ["8 GT/s in 2026-11"]
    assert beside("made up", warned(1, "2026-11-22T09:00:00Z", True, backend="fake")) == []
    # What the outlier's own run warned of stays, whatever a newer one says of another register.
    own = a_night("2026-11-23", 4)[3]
    own[1]["warnings"] = [{"code": "aspm", "text": "on"}]
    assert beside("own", own, warned(1, "2026-11-24T09:00:00Z", False)) == ["on"]


def test_the_newest_run_of_each_host_counts(tmp_path: Path, call: Call) -> None:
    """One host was slow and is well; one is slow now."""
    store = Store(str(tmp_path))
    shape = Shape(hosts=30, figures=2)
    planted.keep(store, planted.make(shape, on([4], "median", 0.2, shape), "2026-11-20", 0))
    planted.keep(store, planted.make(shape, on([7], "median", 0.2, shape), "2026-11-21", 1))
    assert hosts_of(call("outliers", tmp_path, "-j", "--level", "1%").json()) == {host_name(7)}
    assert hosts_of(call("outliers", tmp_path, "-j", "--level", "1%", "--until", "2026-11-20").json()) == {host_name(4)}
    told = call("outliers", tmp_path, "--since", "2027-01-01")
    assert told.code == 2
    assert "no run between 2027-01-01" in told.err
    assert "hint: days with runs: 2026-11-20 to 2026-11-21" in told.err


@pytest.mark.parametrize("other", ["backend", "batch", "verb", "origin", "order", "gap_ns", "irqs_off", "cpus"])
def test_a_run_by_another_method_does_not_replace_the_nights(tmp_path: Path, call: Call, other: str) -> None:
    """Host n3 is slow in the night's run; someone then measures it in another way, by which it is like the others."""
    night = [
        sample.run(n, f"n{n}", median=920 if n == 3 else 800 * (1 + n % 4 / 400), time=f"2026-11-10T0{n % 8}:00:00Z")
        for n in range(1, 16)
    ]
    by_hand = sample.run(99, "n3", cpus=1 if other == "cpus" else 2, median=800, time="2026-11-11T09:00:00Z")
    methods = {"backend": "vfio", "batch": 8, "order": "concurrent", "gap_ns": 200, "irqs_off": True}
    for record in by_hand:
        match other:
            case "cpus":
                pass
            case "verb":
                record["verb"] = "survey"
            case "origin":
                record.setdefault("method", {})["emulated"] = True
            case _:
                record.setdefault("method", {})[other] = methods[other]
    call("ingest", sample.write(tmp_path / "all.jsonl", *night, by_hand), tmp_path / "d")
    assert hosts_of(call("outliers", tmp_path / "d", "-j").json()) == {"n3"}


@pytest.mark.parametrize("other", ["concurrent", "far"])
def test_a_healthy_host_that_is_also_measured_in_another_way_is_no_outlier(
    tmp_path: Path, call: Call, other: str
) -> None:
    """CPUs 2 and 3 are far from the device. By hand somebody measures n3 under load, or from these CPUs alone."""

    def run(number: int, host: str, cpus: tuple[int, ...], time: str, median: float = 800) -> list[dict[str, Any]]:
        head, *rest = sample.run(number, host, cpus=4, time=time)
        for record in rest:
            far = record["cpu"]["cpu"] >= 2
            drawn = median * (1.2 if far else 1) * np.exp(np.random.default_rng(number).normal(0, 0.02, 1000))
            record["histograms"] = {"latency": sample.histogram(drawn)}
            record["method"].update(order="interleaved", gap_ns=0, irqs_off=True)
        return [head, *(record for record in rest if record["cpu"]["cpu"] in cpus)]

    night = [run(n, f"n{n}", (0, 1, 2, 3), "2026-11-20T08:00:00Z") for n in range(1, 16)]
    if other == "far":
        by_hand = run(99, "n3", (2, 3), "2026-11-22T09:00:00Z")
    else:
        by_hand = run(99, "n3", (0, 1, 2, 3), "2026-11-22T09:00:00Z", 1000)
        for record in by_hand[1:]:
            record["method"].update(order="concurrent", gap_ns=200, irqs_off=False)
    call("ingest", sample.write(tmp_path / "all.jsonl", *night, by_hand), tmp_path / "d")
    told = call("outliers", tmp_path / "d", "-j")
    assert (told.code, told.json()["outliers"]) == (0, [])
    assert told.json()["unjudged_hosts"] == ["n3"]
    with open_engine(None) as engine:
        prepared = outliers.prepare(engine, Store(str(tmp_path / "d")), outliers.Plan())
        found, cpus = prepared.numbered.execute(), prepared.new.cpus.execute()
    judged = found[(found["host"] == "n3") & (found["own"] >= 0)]
    assert len(judged) == 2
    assert len(cpus[cpus["row"].isin(judged["row"])]) == 4
    assert set(judged["run"]) == {f"{3:016x}"}


def test_all_cpus_are_one_method_however_many_there_are(tmp_path: Path, call: Call) -> None:
    """Half of the hosts have eight CPUs, the others four. The plan names them; of one host a CPU was not measured."""
    runs = []
    for n in range(1, 13):
        count = 8 if n % 2 else 4
        cpus = [{"cpu": cpu, "node": cpu // 2, "package": 0} for cpu in range(count)]
        records = sample.run(n, f"n{n}", cpus=count - (n == 1), median=1000 if n == 3 else 800 + n % 4, cpu_list=cpus)
        records[0]["environment"]["cpus"] = records[0]["environment"].pop("cpu_list")
        records[0]["plan"] = {"mmio": {"cpus": f"0-{count - 1}"}}
        runs.append(records)
    call("ingest", sample.write(tmp_path / "all.jsonl", *runs), tmp_path / "d")
    told = call("outliers", tmp_path / "d", "-j").json()
    assert hosts_of(told) == {"n3"}
    assert (told["unjudged"], told["outliers"][0]["group_hosts"]) == (0, 12)


def test_a_run_that_was_cut_off_is_not_judged_as_a_whole_one(tmp_path: Path, call: Call) -> None:
    """CPUs 0 and 1 are far from the device, on each host. A kill ended the run of n3 after these: no line is torn."""
    runs = []
    for n in range(1, 13):
        records = sample.run(n, f"n{n}", cpus=4)
        records[0]["plan"] = {"mmio": {"cpus": "0-3"}}
        for record in records[1:]:
            median = 800 * (1.2 if record["cpu"]["cpu"] < 2 else 1) * (1 + n % 4 / 400)
            drawn = median * np.exp(np.random.default_rng(10 * n + record["cpu"]["cpu"]).normal(0, 0.02, 1000))
            record["histograms"] = {"latency": sample.histogram(drawn)}
        runs.append(records[:3] if n == 3 else records)
    call("ingest", sample.write(tmp_path / "all.jsonl", *runs), tmp_path / "d")
    told = call("outliers", tmp_path / "d", "-j").json()
    assert (hosts_of(told), told["unjudged_hosts"]) == (set(), ["n3"])


@pytest.mark.parametrize(
    ("task", "asked", "measured", "words"),
    [
        ("mmio", "0-7", 8, "all CPUs"),
        ("mmio", "0-7", 6, "all CPUs"),
        ("mmio", "0-7", 5, "CPUs 0-4"),
        ("path", "0-3", 1, "CPUs 0"),
        ("path", "0-3", 3, "local CPUs"),
        ("mmio", "0-3,8-15", 4, "CPUs 0-3,8-15"),  # CPUs 8 to 15 are offline
        ("mmio", "0-4000000000", 2, "CPUs 0-1"),
        ("mmio", "some", 2, "CPUs some"),
        # A vector may be bound to some CPUs.
        ("irq", "0-7", 2, "all CPUs"),
    ],
)
def test_what_a_run_did_not_measure_counts_in_the_name_of_its_method(
    task: str, asked: str, measured: int, words: str
) -> None:
    cpus = [{"cpu": cpu, "node": cpu // 4, "package": 0} for cpu in range(8)]
    assert Asked({task: {"cpus": asked}}, {"cpus": cpus}).words(set(range(measured)), 0) == words


def test_cpus_that_the_newest_run_of_a_figure_did_not_measure_are_not_judged(tmp_path: Path, call: Call) -> None:
    """CPU 3 of n4 was slow. After a repair one of the two registers is measured; two of the four CPUs are offline."""

    def run(number: int, host: str, cpus: int, offsets: list[int], day: int, slow: int | None) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = []
        for place, offset in enumerate(offsets):
            records = sample.run(
                number, host, cpus=cpus, seed=1000 * place + number, time=f"2026-11-{day}T08:00:00Z",
                median=800 * (1 + number % 4 / 400),
            )  # fmt: skip
            records[0]["plan"] = {"mmio": {"cpus": "0-3"}}
            for record in records[1:]:
                record["target"] = {**record["target"], "offset": offset}
                if record["cpu"]["cpu"] == slow:
                    drawn = 1040 * np.exp(np.random.default_rng(number).normal(0, 0.02, 1000))
                    record["histograms"]["latency"] = sample.histogram(drawn)
            made += records if not made else records[1:]
        return made

    night = [run(n, f"n{n}", 4, [16, 32], 22, 3 if n == 4 else None) for n in range(1, 13)]
    call("ingest", sample.write(tmp_path / "night.jsonl", *night), tmp_path / "d")
    slow = {"mmio-read BAR0+0x10/4 latency", "mmio-read BAR0+0x20/4 latency"}

    def found() -> set[str]:
        told = call("outliers", tmp_path / "d", "-j", "--level", "1%").json()
        return {each["figure"] for each in told["outliers"] if each["host"] == "n4"}

    assert found() == slow
    repaired = run(99, "n4", 2, [16], 23, None)
    repaired[0]["environment"]["cpus"] = repaired[0]["environment"]["cpus"][:2]
    repaired[0]["plan"] = {"mmio": {"cpus": "0-1"}}
    call("ingest", sample.write(tmp_path / "n4.jsonl", repaired), tmp_path / "d")
    assert found() == {"mmio-read BAR0+0x20/4 latency"}


MOVED = "0000:5e:00.0"


def at(records: list[dict[str, Any]], **device: Any) -> list[dict[str, Any]]:
    """The same run of another device."""
    for record in records:
        record["device"] = {**record["device"], **device}
    return records


def a_night(day: str, slow: int | None = None, **more: Any) -> list[list[dict[str, Any]]]:
    """A run of each of 12 hosts, one of them slow."""
    return [
        sample.run(
            int(day.replace("-", "")) * 100 + n, f"n{n}", cpus=1, time=f"{day}T08:00:00Z",
            median=1000 if n == slow else 800 * (1 + n % 4 / 400), **more,
        )
        for n in range(1, 13)
    ]  # fmt: skip


def firmware(*functions: str) -> list[dict[str, str]]:
    """What the environment tells of the functions whose drivers show a firmware."""
    return [{"bdf": bdf, "version": "1.0"} for bdf in functions]


def test_figures_of_a_device_that_is_no_longer_there_are_not_judged(tmp_path: Path, call: Call) -> None:
    here = str(sample.DEVICE["bdf"])

    def found(place: str, night: list[list[dict[str, Any]]], *later: list[dict[str, Any]]) -> set[str]:
        call("ingest", sample.write(tmp_path / f"{place}.jsonl", *night, *later), tmp_path / place)
        return hosts_of(call("outliers", tmp_path / place, "-j", "--level", "1%").json())

    later: dict[str, Any] = {"cpus": 1, "time": "2026-11-23T08:00:00Z"}
    night = a_night("2026-11-22", 4, firmware=firmware(here))
    assert found("stays", night) == {"n4"}
    # Another card at the same address, measured by another verb.
    other = at(sample.run(9, "n4", **later), device=0xA80C)
    for record in other:
        record["verb"] = "survey"
    assert found("replaced", night, other) == set()
    # The card was moved: the newest list of functions does not have the old address.
    assert found("moved", night, at(sample.run(9, "n4", **later, firmware=firmware(MOVED)), bdf=MOVED)) == set()
    told = call("outliers", tmp_path / "moved", "--level", "1%").out
    assert "not judged, a newer run of the host lacks it: 0000:3b:00.0 of n4\n" in told
    told = call("outliers", tmp_path / "replaced", "--level", "1%").out
    assert "not judged, another device is there now: 0000:3b:00.0 of n4\n" in told
    # A name of a host moves no cursor.
    named = [RemovedDevice("n\x1b[2J", here, "144d:a80a:144d:a801", False)]
    assert "\x1b" not in words.report(printable(dataclasses.replace(outliers.nothing(outliers.Plan()), gone=named)))
    for place, is_replaced in (("moved", False), ("replaced", True)):
        gone = {"host_key": "n4", "device": here, "model": "144d:a80a:144d:a801", "is_replaced": is_replaced}
        assert call("outliers", tmp_path / place, "-j", "--level", "1%").json()["gone"] == [gone]
    # A run of another device says nothing of this one, as long as both are listed, or none is.
    both = firmware(here, MOVED)
    # A list does not end at a bracket in a text.
    odd = [{"bdf": "0000:01:00.0", "version": '1.1 [beta] "x\\\\'}, *both]
    assert found("odd", night, at(sample.run(9, "n4", **later, firmware=odd), bdf=MOVED)) == {"n4"}
    assert found("beside", night, at(sample.run(9, "n4", **later, firmware=both), bdf=MOVED)) == {"n4"}
    assert found("unknown", night, at(sample.run(9, "n4", **later), bdf=MOVED)) == {"n4"}


def test_an_old_run_is_named_and_drains_no_node(tmp_path: Path, call: Call) -> None:
    """The records cannot tell whether the card that was slow is still there: the host has newer runs of another one."""
    for days, day in ((3, "2026-11-04"), (21, "2026-11-22")):
        later = [at(records, bdf=MOVED) for records in a_night(day)]
        place = tmp_path / str(days)
        call("ingest", sample.write(tmp_path / "all.jsonl", *a_night("2026-11-01", 4), *later), place)
        told = call("outliers", place, "-j", "--level", "1%")
        [worst] = {each["host_key"]: each for each in told.json()["outliers"]}.values()
        assert (worst["host"], worst["time"], worst["newest"]) == ("n4", "2026-11-01T08:00:00Z", f"{day}T08:00:00Z")
        (tmp_path / "found.json").write_text(told.out)
        text = call("outliers", place, "--level", "1%").out
        assert (f"measured on 2026-11-01, {days} days before the newest run of n4" in text) == (days == 21)
        assert (slurm_drain.read(str(tmp_path / "found.json"), False) == {}) == (days == 21)
    told = call("slurm-drain", tmp_path / "found.json")
    assert (told.code, told.out) == (0, "")
    assert "n4: left alone, 0000:3b:00.0 was measured on 2026-11-01, 21 days before the newest run of n4" in told.err
    assert slurm_drain.read(str(tmp_path / "found.json"), False, 21).keys() == {"n4"}


def test_an_old_figure_of_one_device_does_not_hide_a_new_one_of_another(
    tmp_path: Path, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both devices of n4 are slow. That of the first is surer, and twelve days older."""
    old = a_night("2026-11-10", 4)
    new = [at(records, bdf=MOVED) for records in a_night("2026-11-22", 4)]
    call("ingest", sample.write(tmp_path / "all.jsonl", *old, *new), tmp_path / "d")
    told = call("outliers", tmp_path / "d", "-j", "--level", "1%")
    [finding] = told.json()["findings"]
    assert {each["device"] for each in finding["worst_of_hosts"]} == {sample.DEVICE["bdf"], MOVED}
    (tmp_path / "found.json").write_text(told.out)
    [reason] = slurm_drain.read(str(tmp_path / "found.json"), False)["n4"]
    assert reason.startswith(f"slower {MOVED} mmio-read")
    assert "n4: not a reason, 0000:3b:00.0 was measured on 2026-11-10, 12 days before" in capsys.readouterr().err


def test_a_machine_that_another_one_replaced_drains_no_node(tmp_path: Path, call: Call) -> None:
    """n4 got a new mainboard: it has another machine id now, and is well."""
    old = a_night("2026-11-21", 4)
    new = a_night("2026-11-22")
    for records, ids in ((old, {}), (new, {4: "f"})):
        for number, record in enumerate((each[0] for each in records), 1):
            record["environment"]["host"]["id"] = ids.get(number, f"{number:x}") * 16
    call("ingest", sample.write(tmp_path / "all.jsonl", *old, *new), tmp_path / "d")
    told = call("outliers", tmp_path / "d", "-j", "--level", "1%")
    [finding] = told.json()["findings"]
    assert (finding["hosts"], finding["worst"]["replaced_by"]) == (["n4~444444444444"], "n4~ffffffffffff")
    (tmp_path / "found.json").write_text(told.out)
    drained = call("slurm-drain", tmp_path / "found.json")
    assert (drained.code, drained.out) == (0, "")
    assert "n4~444444444444: left alone, the newest run of n4 is of another machine, n4~ffffffffffff" in drained.err
    text = call("outliers", tmp_path / "d", "--level", "1%").out
    assert "the newest run of n4 is of another machine, n4~ffffffffffff" in text


@pytest.mark.parametrize("machine", ["f", "4"])
def test_a_synthetic_run_hides_no_verdict_on_hardware(tmp_path: Path, call: Call, machine: str) -> None:
    """On n4, which is slow, somebody tries the fake backend weeks later: as a machine of its own, or as this one."""
    night = a_night("2026-11-01", 4)
    for number, records in enumerate(night, 1):
        records[0]["environment"]["host"]["id"] = f"{number:x}" * 16
    fake = sample.run(99, "n4", machine * 16, cpus=1, time="2026-11-22T08:00:00Z", product="synthetic machine")
    call("ingest", sample.write(tmp_path / "all.jsonl", *night, fake), tmp_path / "d")
    told = call("outliers", tmp_path / "d", "-j", "--level", "1%")
    [finding] = told.json()["findings"]
    assert (finding["worst"]["replaced_by"], finding["worst"]["newest"]) == (None, "2026-11-01T08:00:00Z")
    (tmp_path / "found.json").write_text(told.out)
    assert slurm_drain.read(str(tmp_path / "found.json"), False).keys() == {"n4"}


def test_runs_of_several_origins_count_for_each(tmp_path: Path, call: Call) -> None:
    """A newer run of another machine of the name n4 has measured and emulated records."""
    night = a_night("2026-11-21", 4)
    for number, records in enumerate(night, 1):
        records[0]["environment"]["host"]["id"] = f"{number:x}" * 16
    mixed = sample.run(99, "n4", "f" * 16, cpus=2, time="2026-11-22T08:00:00Z")
    mixed[1]["method"]["emulated"] = True
    call("ingest", sample.write(tmp_path / "all.jsonl", *night, mixed), tmp_path / "d")
    [finding] = call("outliers", tmp_path / "d", "-j", "--level", "1%").json()["findings"]
    assert finding["worst"]["replaced_by"] == "n4~ffffffffffff"


def failing(number: int, code: str, time: str, **device: Any) -> list[dict[str, Any]]:
    """A run on n4 that measured nothing of a device: the record says why."""
    head, record = at(sample.run(number, "n4", cpus=1, time=time), **device)
    for key in ("histograms", "metrics", "cpu"):
        del record[key]
    return [head, {**record, "error": {"code": code, "text": f"{code} in {time[:7]}", "hint": "look"}}]


def test_a_device_that_failed_in_the_newest_run_is_named(tmp_path: Path, call: Call) -> None:
    """The night before n4 measured as all others do. Its older figures are judged, and say nothing of today."""
    here = str(sample.DEVICE["bdf"])

    def failed(place: str, *later: list[dict[str, Any]]) -> tuple[int, set[tuple[str, str, str]], str]:
        files = sample.write(tmp_path / f"{place}.jsonl", *a_night("2026-11-21"), *later)
        call("ingest", files, tmp_path / place)
        told = call("outliers", tmp_path / place, "-j", "--level", "1%")
        assert told.json()["findings"] == []
        found = {(each["host"], each["device"], each["code"]) for each in told.json()["failed"]}
        return told.code, found, call("outliers", tmp_path / place, "--level", "1%").out

    assert failed("none")[:2] == (0, set())
    broken = failing(9, "removed", "2026-11-22T08:00:00Z")
    code, found, text = failed("broken", broken)
    assert (code, found) == (1, {("n4", here, "removed")})
    assert f"  failed: n4: latency mmio of {here} on 2026-11-22: removed: removed in 2026-11\n" in text
    # Also where too few hosts are alike for anything to be judged.
    few = sample.write(tmp_path / "few.jsonl", *a_night("2026-11-21")[3:5], broken)
    call("ingest", few, tmp_path / "few")
    told = call("outliers", tmp_path / "few", "-j")
    assert (told.code, [each["code"] for each in told.json()["failed"]]) == (1, ["removed"])
    assert call("matrix", tmp_path / "few", "-o", tmp_path / "few.html").code == 1
    assert "failed: n4: latency mmio of" in (tmp_path / "few.html").read_text()
    page = tmp_path / "m.html"
    assert call("matrix", tmp_path / "broken", "-o", page).code == 1
    first, _ = page.read_text().split('id="map"')
    assert "<b>1</b><span>host with a failed device</span>" in first
    assert f"<li>failed: n4: latency mmio of {here} on 2026-11-22: removed: removed in 2026-11</li>" in first
    prom = tmp_path / "fleet.prom"
    call("outliers", tmp_path / "broken", "--prom", prom)
    [line] = [line for line in prom.read_text().splitlines() if line.startswith("pciescope_fleet_failed{")]
    assert line.startswith('pciescope_fleet_failed{host="n4",') and line.endswith('code="removed"} 1')
    again: dict[str, Any] = {"cpus": 1, "time": "2026-11-23T08:00:00Z"}
    assert failed("mended", broken, sample.run(10, "n4", **again))[:2] == (0, set())
    # Another device, another verb, or figures that no hardware made say nothing of this one.
    assert failed("beside", broken, at(sample.run(10, "n4", **again), bdf=MOVED))[0] == 1
    assert failed("fake", broken, sample.run(10, "n4", **again, product="synthetic machine"))[0] == 1
    other = sample.run(10, "n4", **again)
    for record in other:
        record["verb"] = "latency path"
    assert failed("verb", broken, other)[0] == 1
    # A newer failure takes the place of an older one; who may not measure has no broken device.
    refused = failing(10, "refused", "2026-11-23T08:00:00Z")
    assert failed("refused", broken, refused)[:2] == (0, {("n4", here, "refused")})
    # A week later nobody knows what is in the host now.
    long_ago = failing(9, "removed", "2026-11-12T08:00:00Z")
    assert failed("old", long_ago, at(sample.run(10, "n4", cpus=1, time="2026-11-21T09:00:00Z"), bdf=MOVED))[0] == 0


def test_an_error_that_most_hosts_have_is_of_the_measurement(tmp_path: Path, call: Call) -> None:
    """Twelve hosts; a register that no device has reads all-ones on all of them, a timeout is on one."""
    night = a_night("2026-11-21")

    def errors(code: str, hosts: range) -> list[list[dict[str, Any]]]:
        made = [failing(100 + n, code, "2026-11-22T08:00:00Z") for n in hosts]
        for n, records in zip(hosts, made, strict=True):
            records[0]["environment"]["host"] = {"name": f"n{n}"}
        return made

    def told(place: str, code: str, hosts: range) -> tuple[int, set[bool], str]:
        call("ingest", sample.write(tmp_path / f"{place}.jsonl", *night, *errors(code, hosts)), tmp_path / place)
        found = call("outliers", tmp_path / place, "-j", "--level", "1%")
        return (
            found.code,
            {each["is_broken"] for each in found.json()["failed"]},
            call("outliers", tmp_path / place, "--level", "1%").out,
        )

    code, broken, text = told("all", "all-ones", range(1, 13))
    assert (code, broken) == (0, {False})
    assert "all-ones in 2026-11; 11 other hosts have it too\n" in text
    assert told("most", "timeout", range(1, 8))[:2] == (0, {False})
    assert told("some", "timeout", range(1, 7))[:2] == (1, {True})
    code, broken, text = told("one", "all-ones", range(4, 5))
    assert (code, broken) == (1, {True})
    assert "other host" not in text
    # No measurement removes a device.
    assert told("removed", "removed", range(1, 13))[:2] == (1, {True})
    # Hosts that measured a month ago for the last time are no part of the fleet any more.
    retired = a_night("2026-10-21")
    for number, records in enumerate(retired):
        records[0]["environment"]["host"] = {"name": f"old{number}"}
        for record in records:
            record["run"] = f"{0xABC000 + number:016x}"
    night += retired
    assert told("retired", "all-ones", range(1, 8))[:2] == (0, {False})
    # One host is measured again, much later: the others are as they were.
    night.append(sample.run(0xDEF, "n12", time="2026-12-22T08:00:00Z"))
    assert told("later", "all-ones", range(1, 8))[:2] == (0, {False})


def test_an_error_of_a_machine_that_was_replaced_tells_of_no_broken_device(tmp_path: Path, call: Call) -> None:
    """After the error n4 got another board, and with it another machine id."""
    broken = failing(9, "removed", "2026-11-22T08:00:00Z")
    broken[0]["environment"]["host"] = {"name": "n4", "id": "a" * 16}
    after = sample.run(10, "n4", "b" * 16, time="2026-11-23T08:00:00Z")
    night = [records for records in a_night("2026-11-21") if records[0]["environment"]["host"]["name"] != "n4"]

    def told(place: str, *later: list[dict[str, Any]]) -> Any:
        call("ingest", sample.write(tmp_path / f"{place}.jsonl", *night, broken, *later), tmp_path / place)
        return call("outliers", tmp_path / place, "-j", "--level", "1%")

    assert told("before").code == 1
    # Two machines of one name take turns: none replaced the other.
    first = sample.run(8, "n4", "b" * 16, time="2026-11-20T08:00:00Z")
    found = told("twins", first, after)
    assert (found.code, [each["replaced_by"] for each in found.json()["failed"]]) == (1, [None])
    # The other one may have run for the first time an hour later: it is a twin as well.
    found = told("night", sample.run(10, "n4", "b" * 16, time="2026-11-22T09:00:00Z"))
    assert (found.code, [each["replaced_by"] for each in found.json()["failed"]]) == (1, [None])
    # A run that does not tell its machine says nothing either.
    found = told("nameless", sample.run(10, "n4", time="2026-11-23T08:00:00Z"))
    assert (found.code, [each["replaced_by"] for each in found.json()["failed"]]) == (1, [None])
    found = told("after", after)
    [each] = found.json()["failed"]
    assert (found.code, each["is_broken"], each["replaced_by"]) == (0, False, "n4~bbbbbbbbbbbb")
    text = call("outliers", tmp_path / "after", "--level", "1%").out
    assert "removed in 2026-11; the newest run of n4 is of another machine, n4~bbbbbbbbbbbb\n" in text


def test_a_run_of_a_clock_that_was_ahead_hides_no_later_run(tmp_path: Path, call: Call, clock: Clock) -> None:
    """For one night the clocks of n4 and n5 were years ahead. n4 was well then and is slow now; n5 the reverse."""

    def a_night_of(day: str, first: int, slow: int, ahead: tuple[int, ...], **more: Any) -> Path:
        clock(f"2026-{day}T09:00:00Z")
        runs = [
            sample.run(
                first + n, f"n{n}", median=920 if n == slow else 800 * (1 + n % 4 / 400),
                time=f"{2093 if n in ahead else 2026}-{day}T08:00:00Z", **more,
            )
            for n in range(1, 16)
        ]  # fmt: skip
        return sample.write(tmp_path / f"{first}.jsonl", *runs)

    call("ingest", a_night_of("11-10", 0, 5, (4, 5)), tmp_path / "d")
    assert hosts_of(call("outliers", tmp_path / "d", "-j").json()) == {"n5"}
    call("ingest", a_night_of("11-11", 100, 4, ()), tmp_path / "d")
    assert hosts_of(call("outliers", tmp_path / "d", "-j").json()) == {"n4"}
    # A clock that is ahead for good: the host's own order is kept.
    call("ingest", a_night_of("11-12", 200, 0, (4,)), tmp_path / "d")
    assert hosts_of(call("outliers", tmp_path / "d", "-j").json()) == set()
    call("ingest", a_night_of("11-13", 300, 4, (4,)), tmp_path / "d")
    assert hosts_of(call("outliers", tmp_path / "d", "-j").json()) == {"n4"}
    # An error of such a night is one until a later run looks, whichever verb the host's other runs are of.
    clock("2026-11-14T09:00:00Z")
    other = sample.run(500, "n6", time="2026-11-13T08:00:00Z")
    for record in other:
        record["verb"] = "latency path"
    ahead = failing(499, "removed", "2093-11-10T08:00:00Z")
    ahead[0]["environment"]["host"] = {"name": "n6"}
    call("ingest", sample.write(tmp_path / "ahead.jsonl", ahead, other), tmp_path / "d")
    assert [each["host"] for each in call("outliers", tmp_path / "d", "-j").json()["failed"]] == ["n6"]
    call("ingest", a_night_of("11-15", 600, 4, ()), tmp_path / "d")
    assert call("outliers", tmp_path / "d", "-j").json()["failed"] == []


def test_a_run_of_a_clock_that_is_years_behind_is_newer_than_those_before(
    tmp_path: Path, call: Call, clock: Clock
) -> None:
    """The battery of n4's clock is empty since the second night: it is slow then."""
    for day, behind in (("11-10", ""), ("11-11", "2019-12-31T23:30:00Z"), ("11-12", "2020-01-01T23:30:00Z")):
        clock(f"2026-{day}T09:00:00Z")
        runs = [
            sample.run(
                int(day[3:]) * 100 + n, f"n{n}", median=920 if n == 4 and behind else 800 * (1 + n % 4 / 400),
                time=behind if n == 4 and behind else f"2026-{day}T08:00:00Z",
            )
            for n in range(1, 16)
        ]  # fmt: skip
        told = call("ingest", sample.write(tmp_path / f"{day}.jsonl", *runs), tmp_path / "d", "-j")
        assert told.code == bool(behind)
        assert not behind or "host n4's clock is behind: " in told.json()["problems"][0]["why"]
    assert hosts_of(call("outliers", tmp_path / "d", "-j").json()) == {"n4"}
    assert hosts_of(call("outliers", tmp_path / "d", "-j", "--since", "2026-11-12").json()) == {"n4"}


def test_an_error_of_a_measurement_stands_beside(tmp_path: Path, call: Call) -> None:
    night = a_night("2026-11-22", 4)
    night[3].append(failing(1, "timeout", "2026-11-22T08:00:00Z")[1] | {"run": night[3][0]["run"]})
    call("ingest", sample.write(tmp_path / "all.jsonl", *night), tmp_path / "d")
    [finding] = call("outliers", tmp_path / "d", "-j", "--level", "1%").json()["findings"]
    assert finding["beside"] == [
        {"check": "timeout", "severity": "problem", "device": sample.DEVICE["bdf"], "text": "timeout in 2026-11"}
    ]


@pytest.mark.parametrize("verb", ["outliers", "trend", "matrix"])
def test_a_compaction_beside_it_is_no_failure(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    place = tmp_path / "d"
    for day in range(1, 7 if verb == "trend" else 2):
        call("ingest", sample.write(tmp_path / "all.jsonl", *a_night(f"2026-11-0{day}", 4)), place)
    typed = [verb, place, *(["-o", tmp_path / "m.html"] if verb == "matrix" else [])]
    real, times = Engine.table, 0

    def table(engine: Engine, store: Store, name: str, paths: Sequence[str]) -> Any:
        nonlocal times
        found = real(engine, store, name, paths)
        times += 1
        if times == 2:
            ingest.compact(Store(str(place)))
        return found

    monkeypatch.setattr(Engine, "table", table)
    if verb == "trend":
        # It asks for the first table alone before it counts.
        times = 1
    told = call(*typed)
    assert (told.code, told.err) == (0 if verb == "trend" else 1, "")
    # What was lost in another way is an error with its hint.
    monkeypatch.setattr(Engine, "table", real)
    for path in (place / "figures").rglob("*.parquet"):
        path.write_bytes(b"PAR1")
    told = call(*typed)
    assert told.code == 2
    assert "hint: ingest their files again" in told.err
    # Files that go away each time are named as that.
    call("ingest", tmp_path / "all.jsonl", place / "e")

    def loses(engine: Engine, store: Store, name: str, paths: Sequence[str]) -> Any:
        found = real(engine, store, name, paths)
        for path in paths:
            Path(path).rename(f"{path}.away")
        seen.append([str(path) for path in paths])
        return found

    def back(*typed: Any) -> Any:
        for path in (place / "e").rglob("*.away"):
            path.rename(str(path).removesuffix(".away"))
        return kept(*typed)

    seen: list[list[str]] = []
    kept = Store.kept
    monkeypatch.setattr(Engine, "table", loses)
    monkeypatch.setattr(Store, "kept", back)
    told = call(verb, place / "e", *typed[2:])
    assert told.code == 2
    assert "files of the dataset went away while they were read" in told.err
    assert "hint: wait until the compaction has ended" in told.err
    assert len(seen) >= 5


def test_wrong_clocks_hide_no_host_and_machines_of_one_name_are_told_apart(tmp_path: Path, call: Call) -> None:
    times = {3: "1999-12-31T23:00:00Z", 5: "2093-01-01T00:00:00Z"}
    machines = {1: "aaaaaaaaaaaaaaaa", 2: "bbbbbbbbbbbbbbbb"}
    runs = [
        sample.run(
            n,
            "twin" if n in machines else f"n{n}",
            machines.get(n),
            median=920 if n in (1, 3) else 800 * (1 + n % 4 / 400),
            time=times.get(n, f"2026-11-{10 + n}T08:00:00Z"),
        )
        for n in range(1, 16)
    ]
    call("ingest", sample.write(tmp_path / "all.jsonl", *runs), tmp_path / "d")
    told = call("outliers", tmp_path / "d", "-j").json()
    assert told["hosts"] == 15
    assert hosts_of(told) == {"twin~aaaaaaaaaaaa", "n3"}


def test_figures_that_are_not_numbers_are_not_judged(tmp_path: Path, call: Call) -> None:
    shape = Shape(hosts=30, figures=2)
    fleet = planted.make(shape, on([4], "median", 0.2, shape))
    odd = {0: float("nan"), 1: float("inf"), 2: 0.0, 3: -1.0}
    for name in ("p50", "p90", "p99", "value"):
        values = fleet.figures[name].to_pylist()
        for place, value in odd.items():
            values[place] = value
        fleet.figures = fleet.figures.set_column(
            fleet.figures.schema.get_field_index(name), name, pa.array(values, pa.float64())
        )
    planted.keep(Store(str(tmp_path)), fleet)
    assert hosts_of(call("outliers", tmp_path, "-j").json()) == {host_name(4)}


def test_verdicts_for_node_exporter(tmp_path: Path, call: Call) -> None:
    keep(tmp_path / "d", SMALL, on([17], "median", 0.2, SMALL), device='a"b\\c')
    file = tmp_path / "fleet.prom"
    assert call("outliers", tmp_path / "d", "--prom", file).code == 1
    lines = file.read_text().splitlines()
    label = 'host="node00017",host_key="node00017",device="a\\"b\\\\c",origin="measured",direction="slower"'
    assert f"pciescope_fleet_outlier_figures{{{label}}} 4" in lines
    [effect] = [line for line in lines if line.startswith(f"pciescope_fleet_outlier_effect_ratio{{{label}}} ")]
    assert float(effect.split()[-1]) == pytest.approx(0.2, abs=0.07)
    assert "pciescope_fleet_hosts 40" in lines
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ""] == ["fleet.prom"]
    assert file.stat().st_mode & 0o777 == 0o644
    with pytest.raises(FleetError, match="cannot be written"):
        outputs.write(tmp_path / "none" / "x.prom", "")


OUTPUTS = """
mount -t tmpfs none "$1" && cd "$1" && mkdir own && chmod 1777 . && mknod device.csv c 1 3 && mkfifo pipe.csv
touch old.csv && chmod 600 old.csv && ln -s old.csv link.csv
touch other.csv own/x && ln -s own/x foreign.csv && chown -h 12345 foreign.csv
shift
for name in device pipe old link foreign new; do
    [ $name != pipe ] || cat pipe.csv > read &
    "$@" $name.csv 2> error; echo "$name $? $(stat -c '%F %a' $name.csv) $(grep -c 'another user' error)"
    wait
done
stat -c '%n %s' read old.csv own/x | sed 's/ [1-9].*/ full/'; ls -A
"""


def test_both_programs_have_one_rule_for_outputs(tmp_path: Path, program: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("devices and a mount need root")
    records = sample.write(tmp_path / "in.jsonl", sample.run(1, "n1"))
    place = tmp_path / "place"
    place.mkdir()
    code = "import sys, pathlib as p; from pciescope_fleet import outputs; outputs.write(p.Path(sys.argv[1]), 'a')"
    answers = []
    for command in ([sys.executable, "-c", code], [program, "report", records, "-o"]):
        words = ["unshare", "-m", "sh", "-c", OUTPUTS, "sh", str(place), *map(str, command)]
        answers.append(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    lines = answers[0].splitlines()
    assert lines[0] == "device 0 character special file 644 0"
    assert lines[1].startswith("pipe 0 fifo")
    assert lines[3].startswith("link 0 symbolic link")
    assert lines[4].split()[1] != "0"
    assert {"read full", "old.csv full", "own/x 0"} <= set(lines)
    # Exit codes of refusals differ: the rule and what lies there afterwards do not.
    ours, theirs = (re.sub(r"(?m)^(\w+) [1-9]\d*", r"\1 x", answer) for answer in answers)
    assert ours == theirs


def test_verdicts_tell_synthetic_and_doubtful_figures_apart(tmp_path: Path, call: Call) -> None:
    """n4 is slow in three ways: by measured figures, by synthetic ones, and in old ones of another device."""
    night, fake, old = a_night("2026-11-22", 4), a_night("2026-11-21", 4), a_night("2026-11-01", 4)
    for records in (record for each in fake for record in each[1:]):
        records["method"]["backend"] = "fake"
    for run in (*night, *fake, *(at(each, bdf=MOVED) for each in old)):
        run[0]["environment"]["host"]["id"] = f"{run[0]['environment']['host']['name']:a<16}"
    call("ingest", sample.write(tmp_path / "all.jsonl", *night, *fake, *old), tmp_path / "d")
    call("outliers", tmp_path / "d", "--level", "1%", "--prom", tmp_path / "f.prom")
    told = re.findall(
        r"^pciescope_fleet_outlier_in_doubt\{(.*)\} (\d)$", (tmp_path / "f.prom").read_text(), re.MULTILINE
    )
    host, here = 'host="n4",host_key="n4~n4aaaaaaaaaa",device=', sample.DEVICE["bdf"]
    assert told == [
        (f'{host}"{here}",origin="measured",direction="slower"', "0"),
        (f'{host}"{here}",origin="synthetic",direction="slower"', "0"),
        (f'{host}"{MOVED}",origin="measured",direction="slower"', "1"),
    ]


def test_a_damaged_file_and_too_little_memory_are_told(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    keep(tmp_path / "d", SMALL)
    told = call("outliers", tmp_path / "d", "--memory", "1MB")
    assert told.code == 2
    assert "fault of pciescope-fleet" not in told.err
    assert [path.name for path in tmp_path.iterdir()] == ["d"]
    assert "not a size" in call("outliers", tmp_path / "d", "--memory", "much").err
    [file] = (tmp_path / "d" / "figures").rglob("*.parquet")
    file.write_bytes(file.read_bytes()[:5000])
    told = call("outliers", tmp_path / "d")
    assert told.code == 2
    assert "DuckDB cannot read: " in told.err
    assert "fault of pciescope-fleet" not in told.err


def test_verdicts_do_not_stay_where_nothing_can_be_judged(tmp_path: Path, call: Call) -> None:
    keep(tmp_path / "d", Shape(hosts=6, figures=2))
    (tmp_path / "fleet.prom").write_text('pciescope_fleet_outlier_figures{host="n1"} 1\n')
    assert call("outliers", tmp_path / "d", "--prom", tmp_path / "fleet.prom").code == 2
    text = (tmp_path / "fleet.prom").read_text()
    assert "{" not in text
    assert "pciescope_fleet_figures_unjudged 12\n" in text


def test_verdicts_of_earlier_days_do_not_stay_where_nothing_ran(tmp_path: Path, call: Call) -> None:
    shape = Shape(hosts=10, figures=1, cpus=1, samples=100)
    keep(tmp_path / "d", shape, on([3], "median", 0.5, shape))
    call("outliers", tmp_path / "d", "--prom", tmp_path / "f.prom")
    assert "pciescope_fleet_outlier_figures{" in (tmp_path / "f.prom").read_text()
    told = call("outliers", tmp_path / "d", "--prom", tmp_path / "f.prom", "--since", "2026-12-22")
    assert (told.code, "no run between 2026-12-22 and the last day" in told.err) == (2, True)
    text = (tmp_path / "f.prom").read_text()
    assert "pciescope_fleet_outlier_figures{" not in text
    assert "pciescope_fleet_hosts 0\n" in text


@pytest.mark.slow
def test_promtool_takes_the_verdicts(tmp_path: Path, call: Call) -> None:
    keep(tmp_path / "d", SMALL, on([17], "median", 0.2, SMALL))
    call("outliers", tmp_path / "d", "--prom", tmp_path / "fleet.prom")
    told = subprocess.run(
        ["promtool", "check", "metrics"], input=(tmp_path / "fleet.prom").read_bytes(), capture_output=True, check=False
    )
    assert (told.returncode, told.stderr) == (0, b"")


@pytest.mark.slow
def test_a_shift_of_a_tenth_among_twenty_hosts_is_found(tmp_path: Path, call: Call) -> None:
    hosts = right = false = 0
    for seed in range(20):
        shape = Shape(hosts=20, seed=1000 + seed)
        keep(tmp_path / str(seed), shape, on([seed], "median", 0.1, shape))
        told = call("outliers", tmp_path / str(seed), "-j").json()
        hosts += host_name(seed) in hosts_of(told)
        right += sum(each["host_key"] == host_name(seed) for each in told["outliers"])
        false += sum(each["host_key"] != host_name(seed) for each in told["outliers"])
    assert hosts >= 19
    # An ideal test, to which mean and noise are known, would find 96 %.
    assert right >= 0.7 * 200
    assert false <= 0.05 * (right + false)


def test_a_figure_that_is_noisier_than_its_kind_keeps_its_noise() -> None:
    rng = np.random.default_rng(11)
    right = np.array([0.02] * 19 + [0.2])
    ratios = []
    for _ in range(100):
        own = right * np.sqrt(rng.chisquare(19, 20) / 19)
        noise = null.moderate(own, np.full(20, 19.0))
        ratios.append(noise.sigma / right)
        assert noise.sigma[-1] == own[-1]
        assert noise.freedom[-1] == 19
    # The others lend each other certainty as before; an estimate alone would be off by 13 % in the mean.
    assert np.abs(np.array(ratios)[:, :-1] - 1).mean() < 0.08


CALIBRATE = runpy.run_path(str(Path(__file__).resolve().parents[1] / "bench" / "calibrate.py"))


@pytest.mark.parametrize(("figures", "hosts"), [(1, 8), (1, 9), (1, 20), (1, 60), (3, 12), (10, 8), (10, 20)])
def test_small_p_values_come_as_often_as_they_say(figures: int, hosts: int) -> None:
    """Healthy hosts with normal noise, a figure by itself and several of one kind."""
    p = CALIBRATE["p_values"](np.random.default_rng(21).normal(0, 0.05, (9000 // figures, figures, hosts)))
    for level, (times, error) in zip(CALIBRATE["CHECKED"], CALIBRATE["too_often"](p), strict=True):
        binomial = 1 / np.sqrt(level * p.size)
        assert times <= 1 + 3 * max(error, binomial), (level, times)


def test_the_engine_has_the_noise_that_was_calibrated(tmp_path: Path) -> None:
    shape = Shape(hosts=20, figures=1, noise=0.03, seed=4)
    fleet = planted.make(shape, {})
    planted.keep(Store(str(tmp_path)), fleet)
    p90 = fleet.figures.filter(pa.compute.is_null(fleet.figures["cpu"]))["p90"].to_numpy()
    _, own = CALIBRATE["noise"](np.log(p90)[None, :])
    with open_engine(None, threads=1) as engine:
        prepared = outliers.prepare(engine, Store(str(tmp_path)), outliers.Plan())
        found = statistics.measure(engine, prepared.numbered, prepared.new.cpus, 0, 0.05, 8).groups
    assert found["sigma_p90"][0] == pytest.approx(own[0] / null.bias(np.array([20.0]))[0], rel=1e-9)


@pytest.mark.parametrize("tick", [10, 40, 52, 100])
def test_a_coarse_clock_makes_no_healthy_host_an_outlier(tmp_path: Path, tick: float) -> None:
    """Hosts whose truth is alike lie on neighbouring ticks; one that is three ticks and more away is found."""
    for seed, noise in ((1, 0.002), (2, 0.01), (3, 0.05)):
        shape = Shape(hosts=20, figures=2, noise=noise, within=0.02, seed=seed, tick_ns=tick)
        slow = [] if seed == 1 else [3]
        place = tmp_path / str(seed)
        keep(place, shape, on(slow, "median", 0.8, shape))
        told, _ = judged(place)
        assert hosts_of(told) == {host_name(host) for host in slow}, (seed, noise)


def test_figures_that_say_the_same_of_each_host_lend_no_certainty(tmp_path: Path) -> None:
    """Ten figures of 20 hosts, of which nine repeat the first: their noise is known from 20 values, not from 200."""
    rng = np.random.default_rng(12)
    far = {1.0: 0, 0.0: 0}
    draws = 5000
    for _ in range(draws):
        own = np.full(10, 0.02 * np.sqrt(rng.chisquare(19) / 19)) * (1 + rng.normal(0, 0.001, 10))
        z = rng.normal(0, 0.02)
        for alike in far:
            noise = null.moderate(own, np.full(10, 19.0), alike)
            far[alike] += null.two_sided(z / noise.sigma[:1], noise.freedom[:1], np.array([20.0]))[0] < 0.001
    assert far[1.0] <= 0.0018 * draws
    # Taken for independent ones they would raise three times as many false alarms as the level says.
    assert far[0.0] >= 0.0025 * draws
    kernels = ["6.12.1"] * 20 + ["6.12.2"] * 20
    sure = {}
    for place, shape, kernel in (
        ("apart", Shape(hosts=20, noise=0.05, seed=9), "6.12.1"),
        ("alike", Shape(hosts=20, noise=0.05, seed=9, alike=0.98), "6.12.1"),
        ("two groups", Shape(hosts=40, noise=0.05, seed=9, alike=0.98), kernels),
        # Twenty hosts of one kernel beside twenty that nobody is compared with by it.
        (
            "stragglers",
            Shape(hosts=40, noise=0.05, seed=9, alike=0.98),
            ["6.12.1"] * 20 + [f"6.{n}" for n in range(20)],
        ),
    ):
        planted.keep(Store(str(tmp_path / place)), planted.make(shape, {}, attributes={"kernel": kernel}))
        with open_engine(None) as engine:
            prepared = outliers.prepare(engine, Store(str(tmp_path / place)), outliers.Plan())
            groups = statistics.measure(engine, prepared.numbered, prepared.new.cpus, 0, 0.05, 8).groups
        sure[place] = groups[["dof_p50", "dof_p90"]].to_numpy()
    assert sure["apart"].max() > 100
    assert sure["alike"].max() < 25
    # Hosts of another kernel say something of their own.
    assert 30 < sure["two groups"].max() < 50
    assert np.nanmax(sure["stragglers"]) < 25


def test_figures_of_several_kinds_that_say_the_same_make_no_tail_heavy(tmp_path: Path) -> None:
    """Sixty hosts by eight kinds of figures that repeat each other are sixty distances, not 480: here two of the sixty
    are rather far, which happens, and eight times as many would be a heavy tail."""
    fleet = planted.make(Shape(hosts=60, figures=8, cpus=1, samples=40, noise=0.05, seed=22, alike=1.0), {})
    place = fleet.figures.schema.get_field_index("figure")
    names = [f"{name} of {name.split()[1]}" for name in fleet.figures["figure"].to_pylist()]
    assert len({null.kind(name) for name in names}) == 8
    fleet.figures = fleet.figures.set_column(place, "figure", pa.array(names))
    planted.keep(Store(str(tmp_path)), fleet)
    with open_engine(None) as engine:
        prepared = outliers.prepare(engine, Store(str(tmp_path)), outliers.Plan())
        groups = statistics.measure(engine, prepared.numbered, prepared.new.cpus, 0, 0.05, 8).groups
    assert groups["dof_p50"].min() > 40


def test_kinds_of_figures_are_told_apart() -> None:
    names = ["mmio-read BAR0+0x10/4 latency", "mmio-read BAR2+0x0/8 latency", "irq vector 3 trigger_to_handler"]
    assert [null.kind(name) for name in names] == ["mmio-read latency"] * 2 + ["irq trigger_to_handler"]
    assert null.kind("") == ""


def test_unequal_noise_makes_no_healthy_host_an_outlier(tmp_path: Path, call: Call) -> None:
    """One figure of twenty has ten times the noise, another three times, and all are of one kind."""
    keep(tmp_path, Shape(hosts=20, figures=20, cpus=1, noise=(0.02,) * 18 + (0.06, 0.2)))
    told = call("outliers", tmp_path, "-j").json()
    assert told["outliers"] == []


def replaced(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(place), pa.array(values, table.schema.field(place).type))


def with_devices(fleet: planted.Fleet, devices: dict[int, int]) -> planted.Fleet:
    """These hosts with so many devices more, which measure the same as the first."""
    parts = [fleet.figures]
    for host, more in devices.items():
        own = fleet.figures.filter(pa.compute.equal(fleet.figures["host_key"], host_name(host)))
        parts += [replaced(own, "device", [f"0000:{0x40 + n:02x}:00.0"] * len(own)) for n in range(more)]
    return planted.Fleet(pa.concat_tables(parts), fleet.runs, fleet.planted)


def test_the_devices_of_one_host_do_not_outvote_the_other_hosts(tmp_path: Path, call: Call) -> None:
    shape = Shape(hosts=15, figures=4)
    faults = {**on([3], "median", 0.2, shape)}
    planted.keep(Store(str(tmp_path)), with_devices(planted.make(shape, faults), {3: 15}))
    told = call("outliers", tmp_path, "-j", "--level", "0.1%").json()
    assert hosts_of(told) == {host_name(3)}
    assert len({each["device"] for each in told["outliers"]}) == 16
    assert {each["group_hosts"] for each in told["outliers"]} == {15}


@pytest.mark.parametrize("shape", [Shape(hosts=10, figures=3), Shape(hosts=20, figures=20, heavy=True)])
def test_equal_devices_make_nothing_surer(tmp_path: Path, shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    """With three devices that measure the same, each host counts as it does with one."""
    fleet = planted.make(shape, {})
    told, heavy = [], []
    p_values = statistics._p_values

    def seen(far: pd.DataFrame, groups: pd.DataFrame, tails: dict[str, float]) -> pd.DataFrame:
        heavy.append(tails["p50"])
        return p_values(far, groups, tails)

    monkeypatch.setattr(statistics, "_p_values", seen)
    for name, more in (("one", 0), ("three", 2)):
        store = Store(str(tmp_path / name))
        planted.keep(store, with_devices(fleet, dict.fromkeys(range(shape.hosts), more)))
        with open_engine(None) as engine:
            prepared = outliers.prepare(engine, store, outliers.Plan())
            told.append(statistics.measure(engine, prepared.numbered, prepared.new.cpus, 0, 1.0, 8))
    one, three = (each.groups.drop(columns=["tail_cpu"]) for each in told)
    units = shape.hosts * shape.figures
    assert (told[0].tests, told[1].tests) == (units, 3 * units)
    # Samples of several devices are more samples: what chance adds to the distance of forms differs, and so its median.
    columns = [name for name in one.columns if not name.startswith("dof_") and name != "med_form"]
    # So does, by a hundred-thousandth, how alike the forms of two figures are.
    of_form = ["sigma_form"]
    pd.testing.assert_frame_equal(three[columns].drop(columns=of_form), one[columns].drop(columns=of_form), rtol=1e-6)
    pd.testing.assert_frame_equal(three[of_form], one[of_form], rtol=1e-4)
    pd.testing.assert_frame_equal(three[["dof_p50", "dof_p90"]], one[["dof_p50", "dof_p90"]], rtol=1e-6)
    assert (three["dof_form"] <= one["dof_form"] + 1e-6).all()
    # The t beside the noise's is as heavy as the hosts were drawn.
    assert [each < 12 for each in heavy] == [shape.heavy] * 2


def test_what_too_few_hosts_have_is_not_judged(tmp_path: Path, call: Call) -> None:
    """Four hosts of twenty have a p99, three a CPU 3; one of them has both far too slow."""
    shape = Shape(hosts=20, figures=3)
    figures = planted.make(shape, {}).figures
    rows = figures.select(["host_key", "cpu", "p50", "p90", "p99"]).to_pylist()
    number = [int(row["host_key"][4:]) for row in rows]
    p99 = [(row["p99"] or 0) * (1.5 if n == 0 else 1) if n < 4 and row["cpu"] is None else None
           for n, row in zip(number, rows, strict=True)]  # fmt: skip
    p50 = [row["p50"] * (1.5 if n == 0 and row["cpu"] == 3 else 1) for n, row in zip(number, rows, strict=True)]
    figures = replaced(replaced(figures, "p99", p99), "p50", p50)
    figures = figures.filter(pa.array([n < 3 or row["cpu"] != 3 for n, row in zip(number, rows, strict=True)]))
    planted.keep(Store(str(tmp_path)), planted.Fleet(figures, planted.make(shape, {}).runs))
    told = call("outliers", tmp_path, "-j").json()
    assert [each for each in told["outliers"] if each["statistic"] == "p99" or each.get("cpu") == 3] == []


def test_of_two_cpus_the_slower_one_differs(tmp_path: Path) -> None:
    """Each lies as far from the other: which of them is faulty, the figures do not tell."""
    shape = Shape(hosts=40, figures=6, cpus=2)
    faulty = [3, 11, 19, 27]
    keep(tmp_path, shape, on(faulty, "cpu", 0.25, shape))
    found, _ = judged(tmp_path)
    cpus = [each for each in found["outliers"] if each["statistic"] == "cpu"]
    assert len(cpus) == len(faulty) * shape.figures
    assert {each["host_key"] for each in cpus} == {host_name(host) for host in faulty}
    assert {finding["direction"] for finding in found["findings"]} == {"one CPU slower"}
    assert min(each["effect"] for each in cpus) > 0.15
    assert {each["cpu"] for each in cpus} == {0, 1}


def of_cpus(number: int, cpus: int, slow: dict[int, float], few: int = 500) -> list[dict[str, Any]]:
    """A run of a host whose CPUs from 4 on are those of the far node; `slow` has factors of some."""
    rng = np.random.default_rng(number)
    records = sample.run(number, f"n{number}", cpus=cpus)
    records[0]["environment"]["cpus"] = [{"cpu": cpu, "node": cpu // 4, "package": cpu // 4} for cpu in range(cpus)]
    own = 800 * np.exp(rng.normal(0, 0.01))
    for cpu, record in enumerate(records[1:]):
        median = own * (1.25 if cpu >= 4 else 1) * slow.get(cpu, 1)
        record["histograms"]["latency"] = sample.histogram(median * np.exp(rng.normal(0, 0.02, few)))
    return records


def test_cpus_are_compared_with_the_same_cpus(tmp_path: Path, call: Call) -> None:
    """Hosts 1 to 4 lack the far CPUs. One has a slow socket, one a slow CPU; of one all is slower."""
    far = dict.fromkeys(range(4, 8), 1.15)
    slow = {17: far, 18: {2: 1.15}, 19: {**far, **dict.fromkeys(range(4), 1.15)}}
    runs = [of_cpus(n, 4 if n < 5 else 8, slow.get(n, {})) for n in range(1, 21)]
    call("ingest", sample.write(tmp_path / "all.jsonl", *runs), tmp_path / "d")
    told = call("outliers", tmp_path / "d", "-j", "--level", "1%").json()
    found = {each["hosts"][0]: (each["direction"], each["worst"].get("cpus")) for each in told["findings"]}
    assert found == {"n17": ("some CPUs slower", "4-7"), "n18": ("one CPU slower", "2"), "n19": ("slower", None)}
    for host, effect in (("n17", 0.15), ("n18", 0.15), ("n19", 0.15)):
        [worst] = [each["worst"] for each in told["findings"] if each["hosts"] == [host]]
        assert worst["effect"] == pytest.approx(effect, abs=0.05), worst


def test_few_samples_of_two_nodes_hide_no_shift(tmp_path: Path, call: Call) -> None:
    """The median of all samples lies between the nodes; the mean of the CPUs' medians does not care."""
    runs = [of_cpus(n, 8, dict.fromkeys(range(8), 1.15) if n == 7 else {}, few=12) for n in range(1, 21)]
    call("ingest", sample.write(tmp_path / "all.jsonl", *runs), tmp_path / "d")
    told = call("outliers", tmp_path / "d", "-j").json()
    assert [(each["hosts"], each["direction"]) for each in told["findings"]] == [(["n7"], "slower")]


def test_lacking_samples_stand_beside(tmp_path: Path, call: Call) -> None:
    """The slowest tenth of the samples is gone: what is left looks faster."""
    runs = [sample.run(n, f"n{n}", cpus=1) for n in range(1, 21)]
    latency = runs[4][1]["histograms"]["latency"]
    latency["buckets"] = latency["buckets"][: round(0.8 * len(latency["buckets"]))]
    latency["count"] = sum(count for _, count in latency["buckets"])
    latency["max_ps"] = latency["buckets"][-1][0]
    call("ingest", sample.write(tmp_path / "all.jsonl", *runs), tmp_path / "d")
    told = call("outliers", tmp_path / "d", "--least-effect", "1%")
    assert told.code == 1
    assert f"{latency['count']:,} samples, the hosts of its group 1,000" in told.out


def test_a_cause_is_looked_for_on_the_device_that_differs(tmp_path: Path, call: Call) -> None:
    """Each host has two devices of one model; the second ones of six hosts have an older firmware and are slow."""
    shape = Shape(hosts=40, figures=2, cpus=1)
    first, faulty = planted.make(shape, {}), list(range(10, 16))
    firmware = ["0.9" if host in faulty else "1.0" for host in range(40)]
    second = planted.make(shape, on(faulty, "median", 0.2, shape), attributes={"firmware": firmware})
    moved = replaced(second.figures, "device", ["0000:40:00.0"] * len(second.figures))
    planted.keep(Store(str(tmp_path)), planted.Fleet(pa.concat_tables([first.figures, moved]), first.runs))
    [finding] = call("outliers", tmp_path, "-j", "--level", "1%").json()["findings"]
    assert finding["hosts"] == [host_name(host) for host in faulty]
    share = finding["shared"]
    assert (share["attribute"], share["value"], share["healthy_with"], share["healthy"]) == ("firmware", "0.9", 0, 40)


def of_two(one: planted.Fleet, other: planted.Fleet, hosts: list[int]) -> planted.Fleet:
    """The fleet `one` with these hosts of the other."""
    names = pa.array([host_name(host) for host in hosts])
    inside = [pa.compute.is_in(fleet.figures["host_key"], names) for fleet in (one, other)]
    parts = [one.figures.filter(pa.compute.invert(inside[0])), other.figures.filter(inside[1])]
    return planted.Fleet(pa.concat_tables(parts), one.runs, {**one.planted, **other.planted})


def test_a_host_with_fewer_samples_has_no_other_form_because_of_that(tmp_path: Path) -> None:
    """Of a quarter of the samples a healthy form lies four times as far from the others' by chance alone."""
    few, sick = [3, 13, 23], 13
    more = Shape(hosts=40, figures=4, cpus=1)
    less = Shape(hosts=40, figures=4, cpus=1, samples=250)
    fleet = of_two(planted.make(more, {}), planted.make(less, on([sick], "mode", 0.15, less)), few)
    planted.keep(Store(str(tmp_path)), fleet)
    with open_engine(None) as engine:
        prepared = outliers.prepare(engine, Store(str(tmp_path)), outliers.Plan())
        far = statistics.measure(engine, prepared.numbered, prepared.new.cpus, 0, 1.0, 8).far
        found = outliers.judge(engine, Store(str(tmp_path)), outliers.Plan(), None, prepared)
    form = far.groupby("host_key")["z_form"].mean()
    healthy = form[[host_name(host) for host in few if host != sick]]
    assert healthy.abs().max() < 1.5, healthy
    assert {*found.outliers["host_key"]} == {host_name(sick)}
    forms = found.outliers[found.outliers["statistic"] == "form"]
    # 15 % of the samples where the others have none are a distance of 1 - sqrt(0.85).
    assert forms["effect"].mean() == pytest.approx(0.078, abs=0.03)


def test_heavy_tails_are_told_from_a_normal_distribution_and_from_faults() -> None:
    rng = np.random.default_rng(7)

    def counts(z: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.histogram(np.abs(z), null.BINS, (0, null.CUT))[0].astype(float)

    draws = 300
    normal = [null.heaviness(counts(rng.normal(0, 0.9, 200))) for _ in range(draws)]
    assert np.isinf(normal).mean() > 0.97
    heavy = [null.heaviness(counts(rng.standard_t(4, 2000) / 1.4)) for _ in range(draws)]
    assert np.isinf(heavy).mean() < 0.01
    assert 3 < np.median(heavy) < 6
    # Of too few nothing is said.
    assert null.heaviness(counts(rng.standard_t(2, 30))) == np.inf


def test_a_faulty_host_among_eight_hides_little_in_the_noise(tmp_path: Path) -> None:
    shape = Shape(hosts=8, seed=51)
    keep(tmp_path, shape, on([1], "median", 0.1, shape))
    with open_engine(None) as engine:
        prepared = outliers.prepare(engine, Store(str(tmp_path)), outliers.Plan())
        groups = statistics.measure(engine, prepared.numbered, prepared.new.cpus, 0, 0.05, 8).groups
    # The healthy seven were drawn with 0.0235; their standard deviation with the eighth is 0.04.
    assert 0.0235 < groups["sigma_p90"].mean() < 0.033


def test_json_has_what_the_page_says(tmp_path: Path, call: Call) -> None:
    keep(tmp_path, SMALL, on([17], "median", 0.2, SMALL))
    told = call("outliers", tmp_path, "-j")
    assert told.code == 1
    page = (Path(__file__).resolve().parents[2] / "docs" / "fleet.md").read_text()
    names = set(told.json()) | set(told.json()["findings"][0]) | set(told.json()["findings"][0]["worst"])
    assert not [name for name in sorted(names) if f"`{name}`" not in page]
    assert json.loads(told.out) == told.json()


def nights(tmp_path: Path, call: Call, names: dict[int, list[tuple[str, str]]], slow: str = "", days: int = 2) -> Path:
    """A dataset of some nights of 12 machines, `names` has by night the name and id of some; `slow` is an id."""
    for day in range(days):
        called = [(f"n{n}", f"{n:012x}" * 2) for n in range(3, 13)] + names[day]
        runs = [
            sample.run(
                1000 * day + n, *each, median=920 if each[1] == slow else 800 * (1 + n % 4 / 400),
                time=f"2026-11-{10 + day}T08:{n:02}:00Z",
            )
            for n, each in enumerate(called, 1)
        ]  # fmt: skip
        call("ingest", sample.write(tmp_path / f"{day}.jsonl", *runs), tmp_path / "d")
    return tmp_path / "d"


def test_a_machine_that_is_renamed_is_one(tmp_path: Path, call: Call) -> None:
    one, two = "a" * 32, "b" * 32
    place = nights(tmp_path, call, {0: [("old", one), ("twin", two)], 1: [("new", one), ("other", two)]}, one)
    told = call("outliers", place, "-j").json()
    assert (told["hosts"], hosts_of(told)) == (12, {"new~aaaaaaaaaaaa"})
    assert [(each["host"], each["earlier"]) for each in told["renamed"]] == [("new", ["old"]), ("other", ["twin"])]
    text = call("outliers", place).out
    assert "  renamed: new (before: old), other (before: twin)\n" in text
    assert text.count("old") == 1


def test_a_machine_that_took_anothers_name_is_not_it(tmp_path: Path, call: Call) -> None:
    one, two = "a" * 32, "b" * 32
    place = nights(tmp_path, call, {0: [("x", one), ("y", two)], 1: [("y", one), ("z", two)]}, one)
    told = call("outliers", place, "-j").json()
    assert (told["hosts"], hosts_of(told)) == (12, {"y~aaaaaaaaaaaa"})
    # Nobody replaced it.
    assert {each["replaced_by"] for each in told["outliers"]} == {None}


def test_machines_with_a_copied_id_stay_apart(tmp_path: Path, call: Call) -> None:
    same = "c" * 32
    place = nights(tmp_path, call, {day: [("a", same), ("b", same)] for day in range(2)})
    told = call("outliers", place, "-j").json()
    assert (told["hosts"], told["renamed"]) == (12, [])
    place = nights(tmp_path / "three", call, {0: [("a", same), ("b", same), ("c", same)]}, days=1)
    assert call("outliers", place, "-j").json()["hosts"] == 13


def test_namesakes_stay_two_and_are_told_apart(tmp_path: Path, call: Call) -> None:
    one, two = "a" * 32, "b" * 32
    place = nights(tmp_path, call, {day: [("same", one), ("same", two)] for day in range(2)}, one)
    told = call("outliers", place, "-j").json()
    assert (told["hosts"], hosts_of(told)) == (12, {"same~aaaaaaaaaaaa"})
    text = call("outliers", place).out
    assert "slower: same~aaaaaaaaaaaa\n" in text
    # Both live: none has replaced the other.
    assert "in doubt" not in text


TWO = Shape(hosts=20, figures=3, noise=0.01)


@pytest.mark.parametrize("slow", [10, 8, 7])
def test_a_group_of_two_modes_is_told_as_that(tmp_path: Path, call: Call, slow: int) -> None:
    """Some hosts have another BIOS, with which all is 12 % slower; one of the others has a fault beside that."""
    bios = ["2.0"] * slow + ["1.0"] * (20 - slow)
    faults = {**on(list(range(slow)), "median", 0.12, TWO), **on([19], "median", -0.2, TWO)}
    keep(tmp_path, TWO, faults, bios=bios)
    told = call("outliers", tmp_path, "-j")
    assert told.code == 1
    [mode] = told.json()["modes"]
    assert set(mode["hosts"]) == {host_name(number) for number in range(slow)}
    assert (mode["others"], len(mode["figures"]), mode["is_judged"]) == (20 - slow, 3, slow >= 8)
    assert mode["effect"] == pytest.approx(0.12, abs=0.02)
    assert (mode["shared"]["attribute"], mode["shared"]["value"]) == ("bios", "2.0")
    assert hosts_of(told.json()) == {host_name(19)}
    assert all(each["group_hosts"] == 20 - slow for each in told.json()["outliers"])
    text = call("outliers", tmp_path).out
    assert f" on {slow} hosts, " in text.partition("two modes: ")[2]
    assert "; they share bios 2.0; of the " in text
    assert ("a part with too few hosts is not judged" in text) == (slow < 8)
    call("matrix", tmp_path, "-o", tmp_path / "m.html")
    assert "<li>two modes: " in (tmp_path / "m.html").read_text()


def test_a_group_that_falls_into_two_small_ones_is_told_too(tmp_path: Path, call: Call) -> None:
    shape = dataclasses.replace(TWO, hosts=12)
    keep(tmp_path, shape, on(list(range(6)), "median", 0.2, shape))
    told = call("outliers", tmp_path, "-j")
    assert (told.code, told.json()["tests"], len(told.json()["modes"])) == (1, 0, 1)
    assert len(told.json()["unjudged_hosts"]) == 12


def test_healthy_hosts_and_a_few_faulty_ones_are_one_mode(tmp_path: Path) -> None:
    """Nor is what a coarse clock makes: two ticks are no modes."""
    for seed in range(6):
        few = {"cpus": 1, "tick_ns": 40.0, "samples": 100} if seed % 2 else {}
        shape = Shape(hosts=20, figures=6, seed=seed, noise=0.01 * (1 + seed % 3), **few)  # type: ignore[arg-type]
        keep(tmp_path / f"{seed}", shape, on([2, 5, 7], "median", 0.2, shape) if seed % 3 == 0 else None)
        with open_engine(None) as engine:
            assert outliers.judge(engine, Store(str(tmp_path / f"{seed}")), outliers.Plan()).modes == [], seed
    ticks = np.log([600.0, 640.0] * 10)
    assert cut(ticks, 0.0, 0.05) is not None
    assert cut(ticks, statistics.TICKS * np.log1p(40 / 600), 0.05) is None
    rng = np.random.default_rng(5)
    cuts = [cut(rng.normal(size=hosts) / 10, 0.0, 0.05) for hosts in (8, 12, 20, 60) for _ in range(2000)]
    assert sum(place is not None for place in cuts) <= 8
