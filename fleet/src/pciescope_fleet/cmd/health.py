"""`pciescope-fleet health`: a check for Slurm's HealthCheckProgram and for Node Health Check (NHC)."""

from __future__ import annotations

import argparse
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from pciescope_fleet import problems, slurm
from pciescope_fleet.cmd import add_verb, split_words
from pciescope_fleet.consecutive import ConsecutiveCounts
from pciescope_fleet.errors import Exit, FleetError
from pciescope_fleet.units import seconds

if TYPE_CHECKING:
    from pciescope_fleet.cmd import Verbs

EPILOG = """\
examples:
  pciescope-fleet health --after 3 --drain -- doctor --only link-speed,link-width
  pciescope-fleet health --measure 'latency mmio 3b:00.0 --bind' -- \\
      compare /var/lib/base.jsonl {new} --fail-if 'p50 > +10%'

A problem counts once it was seen in as many checks in a row as --after says.
It is then printed, and with --drain the node is drained with it as the reason;
a node that is drained already keeps its reason. Nothing resumes a node.

Exit codes: 0 if there is nothing, or not yet; 1 if a problem counts; 2 if the
check could not look, which drains no node."""

LONGEST_REASON = 200


def register(verbs: Verbs) -> None:
    """Adds the verb."""
    parser = add_verb(
        verbs, "health", "-- doctor|compare ...", "check this node, for Slurm and for Node Health Check", EPILOG
    )
    parser.add_argument("--after", type=int, default=3, metavar="N", help="checks in a row before a problem counts (3)")
    parser.add_argument("--drain", action="store_true", help="drain the node in Slurm once a problem counts")
    parser.add_argument("--node", metavar="NAME", help="its name in Slurm; the host name up to the first dot if absent")
    parser.add_argument("--state", type=Path, metavar="DIR", help="where counts are kept (/var/lib/pciescope-fleet)")
    parser.add_argument("--name", metavar="NAME", help="a name for the check, if there are several on one node")
    parser.add_argument("--measure", metavar="CMD", help="measure this first; {new} stands for the records")
    parser.add_argument("--program", metavar="CMD", default="pciescope", help="the program: 'sudo -n pciescope'")
    parser.add_argument(
        "--timeout", type=seconds, default=50, metavar="TIME", help="the longest time (50s: Slurm allows 60)"
    )
    parser.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="-- VERB ...", help="doctor or compare, with options"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the verb."""
    words: list[str] = args.words[1:] if args.words[:1] == ["--"] else args.words
    if words[:1] not in (["doctor"], ["compare"]):
        raise FleetError("a check is `doctor ...` or `compare ... --fail-if LIMIT`", "pciescope-fleet health -- doctor")
    if args.after < 1:
        raise FleetError(f"--after {args.after}: a number from 1 up")
    program = split_words(args.program, "--program")
    measure = [] if args.measure is None else split_words(args.measure, "--measure")
    found = problems.find(program, words, measure, args.timeout)
    node = args.node or os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
    with ConsecutiveCounts(args.state or Path("/var/lib/pciescope-fleet"), args.name or f"{node}-{words[0]}") as state:
        counts = state.count(found)
    lasting = [text for key, text in found.items() if counts[key] >= args.after]
    if not lasting:
        return Exit.FINE
    reason = reason_of(lasting)
    print(reason)  # noqa: T201
    if args.drain and not slurm.is_drained(node):
        slurm.command(*slurm.drain(node, reason))
    return Exit.FOUND


def reason_of(texts: list[str]) -> str:
    """Problems as the reason of a drained node: one line without what a shell or Slurm reads otherwise."""
    more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
    text = texts[0].replace(";", ",")
    plain = "".join(letter if letter.isprintable() and letter not in "\"'`$\\|" else " " for letter in text)
    return f"pciescope: {' '.join(plain.split())[:LONGEST_REASON]}{more}"
