"""The page of `matrix`: one file with all that it needs, in the style of `pciescope report`.

The findings stand in it as text. The map is drawn by `matrix.js` from the distances, which lie in the page as numbers
of 16 bits in thousandths of a logarithm: 10,000 hosts by 100 figures take 2.7 MB.
"""

import base64
import html
import json
import re
import urllib.parse
from importlib import resources
from typing import Any

import numpy as np

from pciescope_fleet.judge import outliers, words
from pciescope_fleet.judge.matrix import HIGH_IS_GOOD, Matrix
from pciescope_fleet.text import counted, plain

NONE = -32768  # Stands for a figure that a host does not have, or that has no group.
MOST_FIRST = 5  # So many findings stand above the map, a line each.
MOST_FINDINGS = 100  # So many findings stand on the page; the rest is counted.


def render(matrix: Matrix, title: str, report: str) -> str:
    """The page. `report` is where a host's report is, with `{host}` or `{key}`."""
    own = resources.files(__name__)
    page, style, script = (own.joinpath(f"matrix.{end}").read_text("utf-8") for end in ("html", "css", "js"))
    # Nothing in it may end the element.
    data = json.dumps(_data(matrix, report), separators=(",", ":")).replace("<", "\\u003c")
    parts = {
        "title": safe(title),
        "facts": safe(_facts(matrix)),
        "labels": _labels(matrix),
        "tiles": _tiles(matrix),
        "size": size_in_words(matrix),
        "findings": _findings(matrix, report),
        "level": f"{matrix.judged.plan.level:.0%}",
        "data": data,
        "style": style,
        "script": script,
    }
    return re.sub("@([a-z]+)@", lambda found: parts[found[1]], page)


def size_in_words(matrix: Matrix) -> str:
    """`60 hosts by 12 figures`."""
    return f"{counted(len(matrix.hosts), 'host')} by {counted(len(matrix.figures), 'figure')}"


def safe(text: object) -> str:
    """Text of records, which may be hostile."""
    return html.escape(plain(text))


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
        lines += f"<li><a href='#findings'>and {counted(more, 'more finding')}</a></li>\n"
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
