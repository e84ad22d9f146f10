"""`pciescope-fleet links`: which link of which host lost how much in a week, by the runs of `pciescope watch`."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from typing import TYPE_CHECKING, Any

from pciescope_fleet.cmd import add_engine_options, add_store_options, add_verb, computed, day
from pciescope_fleet.errors import Exit, NoRunsError
from pciescope_fleet.text import counted, plain_all

if TYPE_CHECKING:
    from pciescope_fleet.cmd import Verbs
    from pciescope_fleet.dataset.store import Store
    from pciescope_fleet.engine import Engine

EPILOG = """\
examples:
  pciescope-fleet links fleet
  pciescope-fleet links fleet --since 2026-11-01 -j

Exit codes: 0 no link lost bandwidth; 1 some did; 2 no run of `pciescope watch`."""
FIGURES = {name: f"watch {name}" for name in ("lost_bytes", "changes", "watched_ns")}


def register(verbs: Verbs) -> None:
    """Adds the verb."""
    parser = add_verb(verbs, "links", "DATASET", "list the links that lost bandwidth, by what they lost", EPILOG)
    parser.add_argument("dataset", metavar="DATASET", help="the dataset that `ingest` made")
    parser.add_argument(
        "--since", type=day, metavar="DATE", help="only runs of this day and later; without it the last 7 days"
    )
    parser.add_argument("-j", "--json", action="store_true", help="print all links as JSON")
    add_engine_options(parser)
    add_store_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Sums up and prints."""
    links = computed(args, lambda engine, store: _links(engine, store, args.since))
    losing = [each for each in links if each["lost_bytes"] > 0]
    lines = [f"{counted(len(losing), 'link')} of {len(links)} lost bandwidth"] + [
        f"{each['lost_bytes_per_s'] / 1e9:8.3f} GB/s  {each['host']}  {each['device']}  {each['device_name'] or ''}: "
        f"{each['lost_bytes'] / 1e9:.1f} GB, {counted(int(each['changes']), 'change')}"
        + ("" if each["origin"] == "measured" else f"  {each['origin'].upper()}: not measured on hardware")
        for each in plain_all(losing)
    ]
    sys.stdout.write(json.dumps(links) + "\n" if args.json else "\n".join(lines) + "\n")
    return Exit.FOUND if losing else Exit.FINE


def _links(engine: Engine, store: Store, since: str | None) -> list[dict[str, Any]]:
    """A row for each link, the one that lost most per second first. A link has its sums in the last record of a run."""
    kept = store.need("figures")
    since = since or f"{datetime.date.fromisoformat(kept.dates()[-1]) - datetime.timedelta(days=6)}"
    table = engine.table(store, "figures", kept.files([date for date in kept.dates() if date >= since]))
    table = table.filter(table.figure.isin(list(FIGURES.values())))
    sums = {name: table.value.sum(where=table.figure == figure).fill_null(0.0) for name, figure in FIGURES.items()}
    found = (
        table.group_by(["host", "device", "device_name", "origin"]).aggregate(**sums).filter(lambda t: t.watched_ns > 0)
    )
    found = found.mutate(lost_bytes_per_s=found.lost_bytes / (found.watched_ns / 1e9))
    links: list[dict[str, Any]] = (
        found.order_by([found.lost_bytes_per_s.desc(), found.host, found.device]).execute().to_dict("records")
    )
    if not links:
        raise NoRunsError(f"{store.url}: no run of `pciescope watch` since {since}", "ingest the records of `watch -o`")
    return links
