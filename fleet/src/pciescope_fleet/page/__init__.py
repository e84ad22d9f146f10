"""The page of `matrix`: one file with all that it needs, in the style of `pciescope report`.

The findings stand in it as text. The map is drawn by `matrix.js` from the distances, which lie in the page as numbers
of 16 bits in thousandths of a logarithm: 10,000 hosts by 100 figures take 2.7 MB.
"""

from __future__ import annotations

import base64
import html
import json
import urllib.parse
from importlib import resources
from typing import Any

import numpy as np

from pciescope_fleet.judge import outliers, words
from pciescope_fleet.judge.matrix import HIGH_IS_GOOD, Matrix

NONE = -32768
"""Stands for a figure that a host does not have, or that has no group."""

MOST_FIRST = 5
"""So many findings stand above the map, a line each."""

MOST_FINDINGS = 100
"""So many findings stand on the page; the rest is counted."""


def render(matrix: Matrix, title: str, report: str) -> str:
    """The page. `report` is where a host's report is, with `{host}` or `{key}`."""
    style, script = (resources.files(__name__).joinpath(f"matrix.{end}").read_text("utf-8") for end in ("css", "js"))
    # Nothing in it may end the element.
    data = json.dumps(_data(matrix, report), separators=(",", ":")).replace("<", "\\u003c")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src 'unsafe-inline'; img-src data:">
<meta name="color-scheme" content="light dark">
<title>{safe(title)}</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>{safe(title)}</h1>
<p class="facts">{safe(_facts(matrix))}</p>
{_labels(matrix)}</header>
<main>
{_tiles(matrix)}
{_map(matrix)}
{_findings(matrix, report)}
</main>
<footer>A cell is a host's median, or its rate or cost, beside the median of its group. An outlined one is an outlier:
at most {matrix.judged.plan.level:.0%} of them are expected to be false alarms. pciescope's docs/fleet.md says how it is
judged.</footer>
<script type="application/json" id="data">{data}</script>
<script>
{script}</script>
</body>
</html>
"""


def size_in_words(matrix: Matrix) -> str:
    """`60 hosts by 12 figures`."""
    return f"{words.counted(len(matrix.hosts), 'host')} by {words.counted(len(matrix.figures), 'figure')}"


def safe(text: object) -> str:
    """Text of records, which may be hostile."""
    return html.escape("".join(letter if letter.isprintable() else "?" for letter in str(text)))


def link(report: str, key: str, name: str) -> str:
    """Where a host's report is."""
    return report.replace("{host}", urllib.parse.quote(name, safe="")).replace(
        "{key}", urllib.parse.quote(key, safe="~")
    )


def _data(matrix: Matrix, report: str) -> dict[str, Any]:
    place = {(each["origin"], each["model"], each["figure"]): number for number, each in enumerate(matrix.figures)}
    row = {key: number for number, key in enumerate(matrix.hosts)}
    signs = [-1 if each["unit"] in HIGH_IS_GOOD else 1 for each in matrix.figures]
    marked = []
    for each in matrix.judged.outliers.to_dict("records") if len(matrix.judged.outliers) else []:
        column = place.get((each["origin"], each["model"], each["figure"]))
        if column is not None and each["host_key"] in row:
            marked.append([row[each["host_key"]], column, words.outlier_in_words(outliers.outlier(each))])
    names = [key if key in matrix.judged.alike else matrix.names[key] for key in matrix.hosts]
    several = len({each["model"] for each in matrix.figures}) > 1
    mixed = len({each["origin"] for each in matrix.figures}) > 1
    finite = np.isfinite(matrix.away)
    codes = np.where(finite, np.clip(np.rint(np.where(finite, matrix.away, 0) * 1000), -32767, 32767), NONE)
    return {
        "hosts": names,
        "links": [link(report, key, matrix.names[key]) for key in matrix.hosts],
        "figures": [_column(each, several, mixed) for each in matrix.figures],
        "signs": signs,
        "outliers": marked,
        "away": base64.b64encode(codes.astype("<i2").tobytes()).decode("ascii"),
    }


def _column(figure: dict[str, Any], several: bool, mixed: bool) -> str:
    """A figure's name, with the device where there are several, and the origin where not all are measured."""
    parts = [figure["origin"].upper()] if mixed and figure["origin"] != "measured" else []
    parts += [figure["device_name"] or figure["model"]] if several else []
    return " ".join([*parts, str(figure["figure"])])


def _facts(matrix: Matrix) -> str:
    judged = matrix.judged
    days = matrix.dates[:1] + (["to", matrix.dates[-1]] if len(matrix.dates) > 1 else [])
    facts = [f"each host's newest run, {' '.join(days)}", f"{judged.tests} figures of hosts judged"]
    if judged.unjudged:
        facts.append(f"{judged.unjudged} not judged: fewer than {judged.plan.least_hosts} similar hosts")
    return " · ".join([*facts, *words.renamed_in_words(judged.renamed)])


def _labels(matrix: Matrix) -> str:
    return "".join(
        f'<p class="emulated"><strong>{safe(o.upper())}</strong>: not measured on hardware.</p>\n'
        for o in matrix.origins
        if o != "measured"
    )


def _tiles(matrix: Matrix) -> str:
    judged = matrix.judged
    hosts = {host for finding in judged.findings for host in finding["hosts"]}
    tiles = [
        ("bad" if hosts else "good", f"{len(hosts)} of {judged.hosts}", "hosts differ from similar hosts"),
        ("", str(len(judged.findings)), "findings"),
        ("", str(len(judged.outliers)), f"outliers among {judged.tests} figures"),
        ("", f"{judged.plan.least_effect:.0%}", "shifts below are left out"),
    ]
    if failed := len({each["host_key"] for each in judged.broken()}):
        tiles.insert(
            1, ("bad", str(failed), "hosts with a device that failed" if failed > 1 else "host with a failed device")
        )
    inner = "".join(
        f'<div class="tile {tone}"><b>{safe(n)}</b><span>{safe(what)}</span></div>\n' for tone, n, what in tiles
    )
    first = judged.findings[:MOST_FIRST]
    lines = "".join(
        f"<li><a href='#finding-{number}'>{safe(words.direction_in_words(each['direction']))}: "
        f"{safe(_who(each['hosts'], judged.alike))}</a> · "
        f'<span class="soft">{safe(words.finding_in_short(each))}</span></li>\n'
        for number, each in enumerate(first, 1)
    )
    more = len(judged.findings) - len(first)
    if more:
        lines += f"<li><a href='#findings'>and {words.counted(more, 'more finding')}</a></li>\n"
    lines += "".join(
        f"<li>{safe(words.mode_in_words(each, judged.alike))}</li>\n" for each in judged.modes[:MOST_FIRST]
    )
    broken = judged.broken()
    lines += "".join(
        f"<li>failed: {safe(words.failure_in_words(each, judged.alike))}</li>\n" for each in broken[:MOST_FIRST]
    )
    if len(broken) > MOST_FIRST:
        lines += f"<li>and {len(broken) - MOST_FIRST} more that failed: `outliers --json` has all</li>\n"
    return f'<section class="card"><div class="tiles">\n{inner}</div>\n<ul class="first">\n{lines}</ul></section>'


def _who(hosts: list[str], alike: frozenset[str]) -> str:
    """A host by its name, several by their number."""
    return words.shown(hosts[0], alike) if len(hosts) == 1 else f"{len(hosts)} hosts"


def _map(matrix: Matrix) -> str:
    return f"""<section class="card" id="map">
<h2>{size_in_words(matrix)}</h2>
<div class="bar">
<label>Host <input id="find" type="search" size="14" placeholder="name" autocomplete="off"></label>
<label><input id="only" type="checkbox"> only hosts with outliers</label>
<label>Order <select id="order"><option value="worst">most outliers first</option><option value="name">by name</option>
<option value="column">by the marked figure</option></select></label>
<span class="legend">worse <i id="scale"></i> better <span id="ends"></span></span>
</div>
<div class="grid" id="grid">
<canvas id="heads" aria-hidden="true"></canvas>
<div id="view"><canvas id="cells" tabindex="0" role="img" aria-label="Heat map of hosts by figures"></canvas>
<canvas id="all" aria-hidden="true"></canvas></div>
</div>
<p class="said" id="said" aria-live="polite">&nbsp;</p>
<p class="keys">Each row is a host; the strip on the right has all of them, and shows the worst of those that share a
line: click it to go there. Wheel, arrows, Page Up and Down move; Enter or a click opens the host's report.</p>
<noscript><p>The map needs JavaScript. The findings stand below.</p></noscript>
</section>"""


def _findings(matrix: Matrix, report: str) -> str:
    found = matrix.judged.findings
    if not found:
        return '<section class="card"><h2>Findings</h2><p>No host differs from its like.</p></section>'
    items = []
    for number, each in enumerate(found[:MOST_FINDINGS], 1):
        lines = words.finding_in_words(each, matrix.judged.alike)
        keys = each["hosts"][: words.FEW]
        names = {key: words.shown(key, matrix.judged.alike) for key in keys}
        links = ", ".join(
            f'<a href="{safe(link(report, key, matrix.names.get(key, key)))}">{safe(name)}</a>'
            for key, name in names.items()
        )
        more = f" and {len(each['hosts']) - len(keys)} more" if len(each["hosts"]) > len(keys) else ""
        rest = "".join(f'<br><span class="soft">{safe(line.strip())}</span>' for line in lines[1:])
        way = safe(words.direction_in_words(each["direction"]))
        items.append(f'<li id="finding-{number}"><strong>{way}</strong>: {links}{more}{rest}</li>')
    left = f"<p>and {len(found) - MOST_FINDINGS} more findings</p>" if len(found) > MOST_FINDINGS else ""
    listed = f'<ol class="findings">\n{"".join(items)}\n</ol>{left}'
    return f'<section class="card" id="findings"><h2>Findings</h2>\n{listed}</section>'
