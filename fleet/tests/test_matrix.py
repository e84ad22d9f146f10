"""`matrix`: the page shows every host and figure as it was measured, leads to reports, and is whole in itself."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import planted
from conftest import Call
from pciescope_fleet.dataset.store import Store
from planted import Shape, host_name

ROOT = Path(__file__).resolve().parents[2]
SHAPE = Shape(hosts=60, figures=5)
SICK = 41


def dataset(place: Path, shape: Shape = SHAPE, **attributes: Any) -> planted.Fleet:
    faults = {(SICK, figure): ("median", 0.2) for figure in range(shape.figures)}
    fleet = planted.make(shape, faults, attributes=attributes)
    planted.keep(Store(str(place)), fleet)
    return fleet


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    told: dict[str, Any] = json.loads(found[1])
    return told


def test_the_cells_are_what_was_measured_beside_the_median(tmp_path: Path, call: Call) -> None:
    fleet = dataset(tmp_path / "d", unit=["bytes/s"] * 60)
    told = call("matrix", tmp_path / "d", "-o", tmp_path / "m.html", "--report", "r/{host}.html#x")
    assert (told.code, told.out) == (1, f"60 hosts by 5 figures: {tmp_path / 'm.html'}\n")
    data = data_of((tmp_path / "m.html").read_text())
    assert data["hosts"][0] == host_name(SICK)
    assert sorted(data["hosts"]) == [host_name(host) for host in range(60)]
    assert data["links"] == [f"r/{host}.html#x" for host in data["hosts"]]
    assert data["signs"] == [-1] * 5
    away = np.frombuffer(base64.b64decode(data["away"]), dtype="<i2").reshape(60, 5) / 1000
    table = fleet.figures.select(["host_key", "figure", "cpu", "p50"]).to_pandas()
    right = table[table["cpu"].isna()].pivot_table(index="host_key", columns="figure", values="p50")
    right = np.log(right / right.median())
    assert away == pytest.approx(right.loc[data["hosts"], data["figures"]].to_numpy(), abs=0.0006)
    assert {(row, column) for row, column, _ in data["outliers"]} >= {(0, column) for column in range(5)}
    assert "an outlier" not in data["outliers"][0][2]
    # 0x8 stands before 0x10.
    assert data["figures"] == [planted.figure_name(figure) for figure in range(5)]


def test_a_figure_that_a_host_does_not_have_is_empty(tmp_path: Path, call: Call) -> None:
    fleet = planted.make(SHAPE, {})
    keep = [not (host == host_name(7) and figure == planted.figure_name(2)) for host, figure in
            zip(fleet.figures["host_key"].to_pylist(), fleet.figures["figure"].to_pylist(), strict=True)]  # fmt: skip
    fleet.figures = fleet.figures.filter(keep)
    planted.keep(Store(str(tmp_path / "d")), fleet)
    assert call("matrix", tmp_path / "d", "-o", tmp_path / "m.html").code == 0
    data = data_of((tmp_path / "m.html").read_text())
    away = np.frombuffer(base64.b64decode(data["away"]), dtype="<i2").reshape(60, 5)
    [[row, column]] = np.argwhere(away == -32768).tolist()
    assert (data["hosts"][row], data["figures"][column]) == (host_name(7), planted.figure_name(2))
    assert "No host differs from its like." in (tmp_path / "m.html").read_text()


def test_a_figure_without_a_unit_has_a_column_of_its_own(tmp_path: Path, call: Call) -> None:
    fleet = planted.make(SHAPE, {})
    plain = planted.figure_name(2)
    names = fleet.figures["figure"].to_pylist()
    units = pa.array([None if name == plain else "ns" for name in names], pa.string())
    fleet.figures = fleet.figures.set_column(fleet.figures.schema.get_field_index("unit"), "unit", units)
    planted.keep(Store(str(tmp_path / "d")), fleet)
    assert call("matrix", tmp_path / "d", "-o", tmp_path / "m.html").code == 0
    data = data_of((tmp_path / "m.html").read_text())
    assert sorted(data["figures"]) == sorted(planted.figure_name(figure) for figure in range(5))
    away = np.frombuffer(base64.b64decode(data["away"]), dtype="<i2").reshape(60, 5)
    assert (away != -32768).all()


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self.tags.append(tag)
        self.links += [told["href"] or ""] if tag == "a" else []
        self.loaded += [value or "" for name, value in attrs if name in ("src", "srcset", "data")]
        assert not [name for name in told if name.startswith("on")]


def test_hostile_names_stay_text_nothing_is_loaded_and_what_is_made_up_is_labelled(tmp_path: Path, call: Call) -> None:
    bad = "</script><img src=x onerror=alert(1)>\x1b[2J"
    dataset(tmp_path / "d", Shape(hosts=60, figures=2), device_name=bad, firmware=bad, unit=bad, origin="synthetic")
    call("matrix", tmp_path / "d", "-o", tmp_path / "m.html", "--title", bad)
    page = (tmp_path / "m.html").read_text()
    seen = Elements()
    seen.feed(page)
    assert "img" not in seen.tags
    assert seen.tags.count("script") == 2
    assert seen.loaded == []
    assert "\x1b" not in page
    assert f"{host_name(SICK)}.html" in seen.links
    assert "default-src 'none'" in page
    assert not re.search(r"https?://", page)
    assert "<strong>SYNTHETIC</strong>: not measured on hardware." in page


def test_the_answer_stands_above_the_map_with_its_cause(tmp_path: Path, call: Call) -> None:
    dataset(tmp_path / "d")
    call("matrix", tmp_path / "d", "-o", tmp_path / "m.html")
    page = (tmp_path / "m.html").read_text()
    first, rest = page.split('id="map"')
    assert "each host's newest run, 2026-11-22" in first.replace("&#x27;", "'")
    [line] = re.findall(r"<li><a href='#finding-1'>(.*?)</li>", first)
    assert line.startswith(f"slower: {host_name(SICK)}</a> ")
    assert re.search(r"[0-9.]+ [nu]s, group [0-9.]+ [nu]s \(\+\d+\.\d%\)", line)
    assert '<li id="finding-1">' in rest


def test_a_report_without_a_host_is_refused(tmp_path: Path, call: Call) -> None:
    told = call("matrix", tmp_path, "-o", tmp_path / "m.html", "--report", "report.html")
    assert told.code == 2
    assert "{host} is not in it" in told.err


def test_the_colours_are_those_of_a_report() -> None:
    def colours(path: Path) -> list[str]:
        return re.findall(r"--[a-z-]+: #[0-9a-f]+", path.read_text().split("@media print")[0])

    report = colours(ROOT / "crates/report/src/html/page.css")
    assert len(report) > 20
    assert colours(ROOT / "fleet/src/pciescope_fleet/page/matrix.css") == report


PROBE = """
<script>
{
const told = {};
const rows = () => document.getElementById("cells").height / (window.devicePixelRatio || 1) / 16;
const press = (key) => document.getElementById("cells").dispatchEvent(new KeyboardEvent("keydown", { key }));
const pixel = (x, y) => [...document.getElementById("cells").getContext("2d").getImageData(x, y, 1, 1).data];
told.first = document.getElementById("said").textContent;
told.link = document.querySelector("#said a").getAttribute("href");
told.rows = rows();
told.sick = pixel(170, 8);
press("End");
told.last = document.getElementById("said").textContent;
press("Home");
const find = document.getElementById("find");
find.value = "node07777"; find.dispatchEvent(new Event("input"));
told.found = document.querySelector("#said a").textContent;
told.top = first === at.row;
const named = hosts.slice();
hosts[shown[3]] = "n12"; hosts[shown[5]] = "n1"; hosts[shown[7]] = "rack2-n1"; hosts[shown[9]] = "n2";
told.names = ["n1", "n12", "n2", "k2-n", "none"].map((wanted) => {
  find.value = wanted; find.dispatchEvent(new Event("input"));
  return hosts[shown[at.row]];
});
hosts.splice(0, hosts.length, ...named);
find.value = "node07777"; find.dispatchEvent(new Event("input"));
const middle = [...Array(12).keys()].map((i) => pixel(150 + (i + 0.5) * cell(), 8));
told.pale = middle.filter((colour) => Math.min(...colour.slice(0, 3)) > 0.6 * Math.max(...colour.slice(0, 3))).length;
document.getElementById("only").checked = true;
document.getElementById("only").dispatchEvent(new Event("change"));
told.only = rows();
document.getElementById("only").checked = false;
at.column = 1;
document.getElementById("order").value = "column";
document.getElementById("order").dispatchEvent(new Event("change"));
const values = shown.map((row) => worse(row, 1));
told.zeros = values.filter((value) => value === 0).length;
told.unordered = values.filter((value, i) => i > 0 && value > values[i - 1]).length;
told.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
document.body.innerHTML = "";
const out = document.createElement("pre");
out.id = "probe";
out.textContent = JSON.stringify(told);
document.body.append(out);
}
</script>"""


@pytest.mark.slow
def test_a_browser_draws_ten_thousand_hosts_and_finds_one(tmp_path: Path, call: Call) -> None:
    chromium = shutil.which("chromium")
    assert chromium, "tools/setup browser"
    dataset(tmp_path / "d", Shape(hosts=10_000, figures=12, samples=200, cpus=1))
    assert call("matrix", tmp_path / "d", "-o", tmp_path / "m.html").code == 1
    page = (tmp_path / "m.html").read_text().replace("</body>", PROBE + "</body>")
    (tmp_path / "probe.html").write_text(page)
    shown = subprocess.run(
        [chromium, "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1240,1000", "--dump-dom",
         f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=20000", f"file://{tmp_path / 'probe.html'}"],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    found = re.search(r'<pre id="probe">(.*?)</pre>', shown.stdout, re.DOTALL)
    assert found, shown.stdout[-2000:] + shown.stderr[-2000:]
    told = json.loads(found[1])
    assert told["first"].startswith(f"{host_name(SICK)} · ")
    assert told["first"].endswith("an outlier")
    assert told["link"] == f"{host_name(SICK)}.html"
    assert told["rows"] == 36
    red, green, blue, _ = told["sick"]
    assert red > 1.5 * green
    assert red > 1.5 * blue
    assert told["top"]
    assert told["pale"] >= 8
    assert told["last"].startswith("node09999")
    assert told["found"] == "node07777"
    assert told["names"] == ["n1", "n12", "n2", "rack2-n1", "rack2-n1"]
    assert 1 <= told["only"] <= 36
    assert told["zeros"] > 0
    assert told["unordered"] == 0
    assert told["wide"] == 0


def test_a_fleet_of_fewer_hosts_than_a_group_is_refused(tmp_path: Path, call: Call) -> None:
    planted.keep(Store(str(tmp_path / "d")), planted.make(Shape(hosts=6, figures=2), {}))
    told = call("matrix", tmp_path / "d", "-o", tmp_path / "m.html")
    assert told.code == 2
    assert "no figure has 8 hosts of its like: 6 hosts, 12 figures" in told.err
    assert not (tmp_path / "m.html").exists()
