"""The rules that compare hosts: on series that are made here, and on 50 exporters that a real Prometheus scrapes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import free_ports, search_path, wait_for

pytestmark = pytest.mark.slow

HERE = Path(__file__).parents[2]
PCIESCOPE = os.environ.get("PCIESCOPE", str(HERE / "target/release/pciescope"))
RULES = HERE / "packaging/prometheus/pciescope-fleet.rules.yml"
OTHER_RULES = HERE / "packaging/prometheus/pciescope.rules.yml"
DASHBOARD = HERE / "packaging/grafana/pciescope-fleet.json"
HOSTS = 50
NAMES = [f"h{number}" for number in range(1, HOSTS + 1)]
SLOW, SICK = "h17", "h33"
"""The host with a link at half its speed, and the one whose link repairs errors."""
DEVICE, PORT = "0000:03:00.0", "0000:00:03.0"


def program(name: str) -> str:
    """A program of Debian's prometheus."""
    found = shutil.which(name, path=search_path())
    assert found is not None, f"{name} missing; run: tools/setup cluster"
    return found


Series = list[tuple[str, str]]
"""Names with labels, and values in the notation of promtool."""


def fired(folder: Path, series: Series, minutes: tuple[int, ...] = (5, 30, 45, 60)) -> dict[int, set[tuple[str, str]]]:
    """Alerts and hosts that fire at these minutes of an hour of these series, by promtool's clock."""
    lines = [
        f"rule_files: [{json.dumps(str(RULES))}]",
        "evaluation_interval: 1m",
        "tests:",
        "- interval: 1m",
        "  input_series:",
        *(f"  - {{series: {json.dumps(name)}, values: {json.dumps(values)}}}" for name, values in series),
        "  alert_rule_test:",
        # It names all that fire where none is expected.
        *(f"  - {{eval_time: {at}m, alertname: {alert}, exp_alerts: []}}" for alert in alerts() for at in minutes),
    ]
    (folder / "test.yml").write_text("\n".join(lines) + "\n")
    words = [program("promtool"), "test", "rules", "test.yml"]
    told = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    found: dict[int, set[tuple[str, str]]] = {at: set() for at in minutes}
    for alert, time_of, got in re.findall(
        r"alertname: (\w+), time: (\w+),(.*?)(?=alertname: |\Z)", told.stderr, re.DOTALL
    ):
        at = 60 if time_of == "1h" else int(time_of.removesuffix("m"))
        found[at] |= {(alert, host) for host in re.findall(r'Labels:{[^}]*instance="([^"]+)"', got)}
    assert (told.returncode == 0) == (not any(found.values())), told.stdout + told.stderr
    return found


def alerts() -> list[str]:
    """The names of all alerts of the file."""
    return re.findall(r"^  - alert: (\w+)$", RULES.read_text(), re.MULTILINE)


def link(
    host: str,
    values: str,
    name: str = "SSD",
    lanes: str = "4x60",
    device: str = DEVICE,
    kind: str = "Non-Volatile memory controller",
) -> Series:
    """An hour of the link of a device."""
    of = f'job="p",instance="{host}",device="{device}"'
    return [
        (f"pciescope_device_current_link_transfers_per_second{{{of}}}", values),
        (f"pciescope_device_max_link_transfers_per_second{{{of}}}", FAST),
        (f"pciescope_device_current_link_width{{{of}}}", lanes),
        (f'pciescope_device_info{{{of},name="{name}",class="{kind}",driver="x",numa_node="0",port="{PORT}"}}', "1x60"),
    ]


def replays(host: str, a_minute: float) -> Series:
    """An hour of replays at a port."""
    of = f'job="p",instance="{host}",port="{PORT}",device="{DEVICE}",driver="nvme",numa_node="0"'
    return [(f"pciescope_port_retry_tlp_total{{{of}}}", f"0+{a_minute}x60")]


FAST, HALF = "32000000000x60", "16000000000x60"


def test_the_two_sick_hosts_among_fifty_are_told_and_no_other(tmp_path: Path) -> None:
    series: Series = []
    for number, host in enumerate(NAMES):
        series += link(host, HALF if host == SLOW else FAST)
        # Healthy links have a replay now and then, not all as many.
        series += replays(host, 24 if host == SICK else number % 5 / 10)
    told = fired(tmp_path, series)
    assert told.pop(5) == set()
    assert all(one == {("PcieFleetLinkSlower", SLOW), ("PcieFleetReplays", SICK)} for one in told.values()), told


@pytest.mark.parametrize(
    ("why", "series"),
    [
        ("seven hosts are no group", [(host, HALF if host == "h1" else FAST, "SSD", 0.0) for host in NAMES[:7]]),
        ("all hosts are alike", [(host, HALF, "SSD", 24.0) for host in NAMES]),
        ("two models are two groups", [(host, *((FAST, "A") if host > "h30" else (HALF, "B")), 0.0) for host in NAMES]),
        ("a wide spread is nobody's fault", [(host, FAST, "SSD", float(number)) for number, host in enumerate(NAMES)]),
        (
            "a link may sleep for some minutes",
            [
                (host, "32000000000x20 2500000000x10 32000000000x30" if host == "h1" else FAST, "SSD", 0.0)
                for host in NAMES
            ],
        ),
    ],
)
def test_what_is_no_outlier_fires_nothing(tmp_path: Path, why: str, series: list[tuple[str, str, str, float]]) -> None:
    hour = [
        one for host, values, name, a_minute in series for one in link(host, values, name) + replays(host, a_minute)
    ]
    assert not any(fired(tmp_path, hour).values()), why


def test_idle_displays_among_busy_ones_fire_nothing_and_missing_lanes_do(tmp_path: Path) -> None:
    """Three GPUs of ten are idle: their links, those of their audio functions and of the cards' bridges are slow."""
    idle, narrow, slow_disk = ("h0", "h1", "h2"), "h5", "h6"
    series: Series = []
    for host in (f"h{number}" for number in range(10)):
        rate = "2500000000x60" if host in idle else FAST
        lanes = "8x60" if host == narrow else "16x60"
        series += link(host, rate, "GPU", lanes, "0000:17:00.0", "3D controller")
        series += link(host, rate, "GPU audio", "16x60", "0000:17:00.1", "Audio device")
        series += link(host, rate, "GPU bridge", "16x60", "0000:16:00.0", "PCI bridge")
        series += link(host, HALF if host == slow_disk else FAST)
    told = fired(tmp_path, series)
    assert told.pop(5) == set()
    assert all(one == {("PcieFleetLinkSlower", host) for host in (narrow, slow_disk)} for one in told.values()), told


def panels() -> dict[str, str]:
    """The expressions of the dashboard, by the title of their panel and letter."""
    board = json.loads(DASHBOARD.read_text())
    return {
        f"{panel['title']} {target['refId']}": target["expr"].replace("$job", ".*")
        for panel in board["panels"]
        for target in panel["targets"]
    }


def test_the_dashboard_is_understood_by_prometheus(tmp_path: Path) -> None:
    rules = [f"  - {{record: 'a:b', expr: {json.dumps(expression)}}}" for expression in panels().values()]
    (tmp_path / "board.yml").write_text("\n".join(["groups:", "- name: board", "  rules:", *rules]) + "\n")
    words = [program("promtool"), "check", "rules", "--lint=none", str(tmp_path / "board.yml"), str(RULES)]
    told = subprocess.run(words, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    assert len(rules) > 8


@pytest.fixture(scope="module")
def exporters() -> Iterator[dict[str, str]]:
    """Fifty exporters of synthetic machines, by host."""
    ports = free_ports(HOSTS)
    faults = {SLOW: ",downtrained", SICK: ",replays"}
    running = []
    try:
        for host, port in zip(NAMES, ports, strict=True):
            words = [
                "serve",
                "--backend",
                f"fake:host={host}{faults.get(host, '')}",
                "-I",
                "2s",
                "--listen",
                f"127.0.0.1:{port}",
            ]
            running.append(subprocess.Popen([PCIESCOPE, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        at = {host: f"127.0.0.1:{port}" for host, port in zip(NAMES, ports, strict=True)}
        for address in at.values():
            wait_for(address, lambda address=address: "pciescope_port_retry_tlp_total" in metrics(address))
        yield at
    finally:
        for one in running:
            one.terminate()
        for one in running:
            one.wait(30)


def metrics(address: str) -> str:
    """The answer to a scrape; nothing while nobody listens."""
    silence = contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError)
    with silence, urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return str(answer.read().decode())
    return ""


def samples(text: str) -> dict[str, float]:
    """The samples of a scrape that the rules ask for."""
    asked = set(re.findall(r"pciescope_(?:device|port)_\w+", RULES.read_text()))
    lines = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in lines if name.partition("{")[0] in asked}


def test_rules_and_dashboard_ask_for_what_there_is(exporters: dict[str, str]) -> None:
    text = RULES.read_text() + "".join(panels().values())
    exported = set(re.findall(r"^(\w+)", metrics(exporters[SICK]), re.MULTILINE))
    recorded = set(re.findall(r"record: (\S+)", RULES.read_text() + OTHER_RULES.read_text()))
    expressions = re.sub(r"(summary|description): [^\n]*|#[^\n]*", "", text)
    asked = set(re.findall(r"\bpciescope(?:_fleet)?(?::\w+)+|\bpciescope_\w+(?!:)\b", expressions))
    assert len(asked) > 12
    assert asked - exported - recorded == set()


def test_an_hour_of_fifty_exporters_fires_both_alerts_and_no_other(exporters: dict[str, str], tmp_path: Path) -> None:
    begun = {host: (time.monotonic(), samples(metrics(address))) for host, address in exporters.items()}
    time.sleep(31)  # one turn of the synthetic machine's waves
    series: Series = []
    for host, address in exporters.items():
        then, first = begun[host]
        passed, second = time.monotonic() - then, samples(metrics(address))
        assert first.keys() == second.keys()
        for name, value in first.items():
            labelled = name.replace("{", f'{{job="p",instance="{host}",', 1)
            step = (second[name] - value) / passed * 60 if "_total{" in name else 0.0
            series.append((labelled, f"{value:.0f}+{step:.3f}x60"))
    told = fired(tmp_path, series)
    assert told.pop(5) == set()
    assert all(one == {("PcieFleetLinkSlower", SLOW), ("PcieFleetReplays", SICK)} for one in told.values()), told


def test_a_prometheus_that_scrapes_them_fires_both_alerts_and_no_other(
    exporters: dict[str, str], tmp_path: Path
) -> None:
    # A clock that is 29 times as fast: quarters of an hour become one turn of the machine's waves.
    for rules, name in ((RULES, "fast.rules.yml"), (OTHER_RULES, "other.rules.yml")):
        (tmp_path / name).write_text(rules.read_text().replace("[15m]", "[31s]").replace("for: 15m", "for: 31s"))
    targets = [{"targets": [address], "labels": {"instance": host}} for host, address in exporters.items()]
    (tmp_path / "prometheus.yml").write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "2s", "evaluation_interval": "2s"},
                "rule_files": ["fast.rules.yml", "other.rules.yml"],
                "scrape_configs": [{"job_name": "p", "static_configs": targets}],
            }
        )
    )
    address = f"127.0.0.1:{free_ports(1)[0]}"
    words = [program("prometheus"), "--config.file=prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen([*words, f"--web.listen-address={address}"], cwd=tmp_path, stdout=log, stderr=log)
    try:
        wait_for("fifty hosts", lambda: query(address, "sum(up)") == {"": float(HOSTS)})
        found: set[tuple[str, str]] = set()
        until = time.monotonic() + 240
        while len(found) < 2 and time.monotonic() < until:
            time.sleep(2)
            found = firing(address)
        assert found == {("PcieFleetLinkSlower", SLOW), ("PcieFleetReplays", SICK)}
        # Nothing follows; the alerts of a host by itself are of these two as well.
        time.sleep(70)
        assert firing(address) == found
        assert {host for _, host in firing(address, "")} <= {SLOW, SICK}
        # Each panel has something to draw, and says what is so. A scrape on a busy machine may come late.
        wait_for("all hosts", lambda: query(address, panels()["Hosts A"]) == {"": float(HOSTS)})
        shown = {title: values(address, expression) for title, expression in panels().items()}
        assert [title for title, found_there in shown.items() if not found_there] == []
        assert min(shown["Links, the farthest below their group A"], key=lambda one: one[1]) == (SLOW, 0.5)
        assert max(shown["Replays, the farthest above their group A"], key=lambda one: one[1])[0] == SICK
    finally:
        server.terminate()
        server.wait(60)


def get(address: str, path: str) -> Any:
    """An answer of Prometheus' interface; `None` while it is not ready."""
    silence = contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError)
    with silence, urllib.request.urlopen(f"http://{address}/api/v1/{path}", timeout=30) as answer:
        return json.load(answer)["data"]
    return None


def values(address: str, expression: str) -> list[tuple[str, float]]:
    """Instance and value of each series of an expression; one host may have several."""
    data = get(address, f"query?query={urllib.parse.quote(expression)}")
    return [(one["metric"].get("instance", ""), float(one["value"][1])) for one in data["result"]] if data else []


def query(address: str, expression: str) -> dict[str, float]:
    """The values of an expression that has one for each instance."""
    return dict(values(address, expression))


def firing(address: str, prefix: str = "PcieFleet") -> set[tuple[str, str]]:
    """Alerts that fire, with their host."""
    labels = [one["labels"] for one in get(address, "alerts")["alerts"] if one["state"] == "firing"]
    return {(one["alertname"], one.get("instance", "")) for one in labels if one["alertname"].startswith(prefix)}
