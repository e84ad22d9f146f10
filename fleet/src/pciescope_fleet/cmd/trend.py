"""`pciescope-fleet trend`: since when a host differs from its own past, and what changed then."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from pciescope_fleet.cmd import add_bound_options, add_engine_options, add_store_options, add_verb, computed
from pciescope_fleet.errors import Exit, FleetError
from pciescope_fleet.text import counted, plain_all

if TYPE_CHECKING:
    from pciescope_fleet.cmd import Verbs
    from pciescope_fleet.judge.trend import Trend

EPILOG = """\
examples:
  pciescope-fleet trend fleet
  pciescope-fleet trend fleet --host node00017 --since 2026-11-01

Exit codes: 0 no change; 1 some changed; 2 nothing could be judged: a series needs 6 runs."""


def register(verbs: Verbs) -> None:
    """Adds the verb."""
    parser = add_verb(
        verbs, "trend", "DATASET", "find since when hosts differ from their own past, and what changed then", EPILOG
    )
    add_bound_options(parser, "changes")
    parser.add_argument("--host", action="append", default=[], metavar="NAME", help="only this host; may be repeated")
    parser.add_argument("-j", "--json", action="store_true", help="print the changes as JSON")
    add_engine_options(parser)
    add_store_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Judges and prints."""
    from pciescope_fleet.judge.trend import Plan, trend

    plan = Plan(
        level=args.level, least_effect=args.least_effect, hosts=tuple(args.host), since=args.since, until=args.until
    )
    found = computed(args, lambda engine, store: trend(engine, store, plan))
    if found.series == 0:
        raise FleetError(
            f"{args.dataset}: no series has 6 runs; {found.short} are shorter"
            + (f", of host {', '.join(args.host)}" if args.host else ""),
            "ingest the runs of more days",
        )
    answer = {name: getattr(found, name) for name in ("series", "short", "renamed", "findings", "changes")}
    sys.stdout.write(json.dumps(answer) + "\n" if args.json else _words(found))
    return Exit.FOUND if found.findings else Exit.FINE


def _words(found: Trend) -> str:
    from pciescope_fleet.judge.outliers import WORDS
    from pciescope_fleet.judge.words import amount, renamed_in_words, title_of

    findings = plain_all(found.findings)
    hosts = {host for each in findings for host in each["hosts"]}
    lines = [
        f"{counted(len(hosts), 'host') if hosts else 'no host'} changed: {counted(len(findings), 'finding')}, "
        f"{counted(len(found.changes), 'change')} in {found.series} series of 6 runs or more",
        f"  at most {found.plan.level:.0%} of the changes are expected to be false alarms; "
        f"shifts below {found.plan.least_effect:.0%} are left out",
    ]
    if found.short:
        lines.append(f"  not judged: {found.short} series with fewer than 6 runs")
    lines += [f"  {line}" for line in renamed_in_words(plain_all(found.renamed))]
    for each in findings:
        worst = each["worst"]
        title = title_of(each["hosts"], found.alike)
        first, last = each["first"][:10], each["last"][:10]
        days = first if first == last else f"{first} to {last}"
        label = "" if worst["origin"] == "measured" else f"  {worst['origin'].upper()}: not measured on hardware"
        lines += ["", f"since {days}: {title}{label}"]
        old, new = (amount(worst[side], worst["unit"]) for side in ("from", "to"))
        lines.append(
            f"  {worst['figure']}: {WORDS[worst['statistic']]} {old} -> {new} "
            f"({worst['effect']:+.1%}), q {worst['q']:.1g}"
        )
        if len(each["figures"]) > 1:
            lines.append(f"  and {counted(len(each['figures']) - 1, 'more figure')}")
        lines += [f"  changed then: {change['what']} {change['from']} -> {change['to']}" for change in each["changed"]]
        if not each["changed"]:
            lines.append("  nothing that the records tell of changed then")
    return "\n".join(lines) + "\n"
