"""`pciescope-fleet outliers`: which hosts differ from similar hosts."""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pciescope_fleet import outputs
from pciescope_fleet.cmd import add_engine_options, add_judging_options, add_store_options, add_verb, computed
from pciescope_fleet.errors import Exit, FleetError, NoRunsError
from pciescope_fleet.text import plain_all

if TYPE_CHECKING:
    import pandas as pd

    from pciescope_fleet.cmd import Verbs
    from pciescope_fleet.judge.outliers import Judged, Plan

EPILOG = """\
examples:
  pciescope-fleet outliers fleet
  pciescope-fleet outliers fleet --racks racks.csv --prom /var/lib/node_exporter/fleet.prom
  pciescope-fleet outliers s3://measurements/fleet --spark spark://master:7077 -j

A host is compared with those of the same device model, slot, topology, CPU model and kernel; where there are fewer than
--least-hosts, in a coarser group, which is said.
Exit codes: 0 no host differs; 1 some do, or a device failed in its newest run; 2 nothing could be judged."""


def register(verbs: Verbs) -> None:
    """Adds the verb."""
    parser = add_verb(verbs, "outliers", "DATASET", "find the hosts that differ from similar hosts", EPILOG)
    add_judging_options(parser)
    parser.add_argument(
        "--prom", type=Path, metavar="FILE", help="write verdicts for node_exporter's textfile collector"
    )
    parser.add_argument("-j", "--json", action="store_true", help="print the findings as JSON")
    add_engine_options(parser)
    add_store_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Judges, prints and writes."""
    plan = plan_of(args)
    extra = read_racks(args.racks) if args.racks else None
    from pciescope_fleet.judge import outliers, prometheus, words

    judged = outliers.nothing(plan)
    try:
        judged = computed(args, lambda engine, store: outliers.judge(engine, store, plan, extra))
    except NoRunsError:
        # Older verdicts would stay; so they would where nothing can be judged.
        if args.prom:
            outputs.write(args.prom, prometheus.render(judged, time.time()))
        raise
    if args.prom:
        outputs.write(args.prom, prometheus.render(judged, time.time()))
    refuse_nothing(args, judged)
    sys.stdout.write(json.dumps(as_json(judged)) + "\n" if args.json else words.report(printable(judged)))
    return Exit.FOUND if judged.is_found() else Exit.FINE


def plan_of(args: argparse.Namespace) -> Plan:
    """What was typed, as what is meant."""
    if args.least_hosts < 5:
        raise FleetError(
            f"--least-hosts {args.least_hosts}: fewer than 5 hosts tell nothing of what is usual", "--least-hosts 8"
        )
    from pciescope_fleet.judge.outliers import Plan

    return Plan(
        level=args.level,
        least_hosts=args.least_hosts,
        least_effect=args.least_effect,
        since=args.since,
        until=args.until,
    )


def refuse_nothing(args: argparse.Namespace, judged: Judged) -> None:
    """Raises where no figure could be judged and no device is broken: there is nothing to tell."""
    if judged.tests == 0 and not judged.is_found():
        raise FleetError(
            f"{args.dataset}: no figure has {args.least_hosts} hosts of its like: "
            f"{judged.hosts} hosts, {judged.unjudged} figures",
            "records of more hosts" + (", or --least-hosts N, from 5 on" if judged.hosts >= 5 else "; 5 at least"),
        )


def printable(judged: Judged) -> Judged:
    """The same with the hosts' texts made fit for a terminal."""
    texts = {
        name: plain_all(getattr(judged, name))
        for name in ("findings", "unjudged_hosts", "coarser", "gone", "failed", "renamed", "modes")
    }
    return dataclasses.replace(judged, **texts)


def as_json(judged: Judged) -> dict[str, Any]:
    """What `--json` prints; docs/fleet.md describes it."""
    from pciescope_fleet.judge import outliers

    return {
        **{name: getattr(judged, name) for name in ("hosts", "tests", "unjudged", "unjudged_hosts", "coarser")},
        "gone": [dataclasses.asdict(each) for each in judged.gone],
        "level": judged.plan.level,
        "least_effect": judged.plan.least_effect,
        **{name: getattr(judged, name) for name in ("failed", "renamed", "modes", "findings")},
        "outliers": outliers.as_json(judged.outliers),
    }


def read_racks(path: Path) -> pd.DataFrame:
    """Further attributes by host name."""
    import pandas as pd

    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header, *rows = [row for row in csv.reader(file, strict=True) if row] or [[]]
    except (OSError, ValueError, csv.Error) as error:
        raise FleetError(f"{path}: cannot be read as CSV: {error}") from error
    # Some programs write a comma behind each line.
    header = header[:-1] if header[-1:] == [""] else header
    for row in rows:
        if len(row) < len(header) or any(row[len(header) :]):
            raise FleetError(f"{path}: {','.join(row)}: {len(row)} values for {len(header)} columns")
    if double := [name for name, times in Counter(header).items() if times > 1]:
        raise FleetError(f"{path}: the column {double[0]} is there twice")
    table = pd.DataFrame([row[: len(header)] for row in rows], columns=header, dtype=str)
    if "host" not in table.columns or len(table.columns) < 2:
        raise FleetError(
            f"{path}: its columns are {', '.join(table.columns)}; `host` and another are needed", "host,rack"
        )
    from pciescope_fleet.judge.outliers import RUN_ATTRIBUTES, UNIT_ATTRIBUTES

    own = {"host_key", "device", "origin", "model", "run", "faulty", *RUN_ATTRIBUTES, *UNIT_ATTRIBUTES}
    if taken := [name for name in table.columns if name in own]:
        raise FleetError(
            f"{path}: the column {taken[0]} has the name of a property that the records have",
            f"another name, such as my_{taken[0]}",
        )
    twice = table["host"][table["host"].duplicated()]
    if len(twice):
        raise FleetError(f"{path}: host {twice.iloc[0]} stands there twice")
    return table.set_index("host")
