"""`pciescope-fleet matrix`: hosts by figures as a heat map in one page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pciescope_fleet import outputs
from pciescope_fleet.cmd import add_engine_options, add_judging_options, add_store_options, add_verb, computed
from pciescope_fleet.errors import Exit, FleetError

if TYPE_CHECKING:
    from pciescope_fleet.cmd import Verbs

EPILOG = """\
examples:
  mkdir -p reports
  for f in night/*.jsonl; do pciescope report "$f" -o "reports/$(basename "$f" .jsonl).html"; done
  pciescope-fleet matrix fleet -o fleet.html --report 'reports/{host}.html'

Each cell leads to the report of its host: --report says where that is, from the page.
Exit codes: 0 no host differs; 1 some do, or a device failed in its newest run; 2 there is no page."""


def register(verbs: Verbs) -> None:
    """Adds the verb."""
    parser = add_verb(
        verbs, "matrix", "DATASET -o FILE.html", "draw hosts by figures as a heat map in one page", EPILOG
    )
    add_judging_options(parser)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.html", help="the page")
    parser.add_argument(
        "--report", default="{host}.html", metavar="URL", help="a host's report, with {host} or {key} ({host}.html)"
    )
    parser.add_argument("--title", default="Hosts compared with similar hosts", help="the page's title")
    add_engine_options(parser)
    add_store_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Judges and writes the page."""
    from pciescope_fleet.cmd.outliers import plan_of, read_racks, refuse_nothing
    from pciescope_fleet.judge.matrix import matrix
    from pciescope_fleet.page import render, size_in_words

    if "{host}" not in args.report and "{key}" not in args.report:
        raise FleetError(f"--report {args.report}: {{host}} is not in it", "--report 'reports/{host}.html'")
    plan = plan_of(args)
    extra = read_racks(args.racks) if args.racks else None
    found = computed(args, lambda engine, store: matrix(engine, store, plan, extra))
    refuse_nothing(args, found.judged)
    outputs.write(args.output, render(found, args.title, args.report))
    sys.stdout.write(f"{size_in_words(found)}: {args.output}\n")
    return Exit.FOUND if found.judged.is_found() else Exit.FINE
