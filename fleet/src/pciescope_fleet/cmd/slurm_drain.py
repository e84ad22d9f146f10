"""`pciescope-fleet slurm-drain`: from the findings of `outliers` to commands that drain the nodes."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pciescope_fleet import slurm
from pciescope_fleet.cmd import add_verb
from pciescope_fleet.cmd.health import reason_of
from pciescope_fleet.errors import Exit, FleetError
from pciescope_fleet.judge.doubt import OLD_DAYS, doubt
from pciescope_fleet.text import plain

if TYPE_CHECKING:
    from pciescope_fleet.cmd import Verbs

EPILOG = """\
examples:
  pciescope-fleet outliers DATASET --json > found.json
  pciescope-fleet slurm-drain found.json          prints the commands
  pciescope-fleet slurm-drain found.json --yes    runs them

Nodes that are drained already keep their reason. Hosts that Slurm does not know,
findings of figures that no hardware made, and figures of hardware that may be gone
are named and left alone.

Exit codes: 0 if there is nothing to drain; 1 if there is, or if Slurm does not
know a host that was found; 2 if it failed."""


def register(verbs: Verbs) -> None:
    """Adds the verb."""
    parser = add_verb(
        verbs, "slurm-drain", "FILE", "print or run the commands that drain the hosts that `outliers` found", EPILOG
    )
    parser.add_argument("file", metavar="FILE", help="the output of `outliers --json`; - is the standard input")
    parser.add_argument("--yes", action="store_true", help="run the commands; without it they are only printed")
    parser.add_argument(
        "--most", type=int, default=10, metavar="N", help="run nothing if there are more than N nodes (10)"
    )
    parser.add_argument("--any-origin", action="store_true", help="also for figures of synthetic and emulated devices")
    parser.add_argument(
        "--older", type=int, default=OLD_DAYS, metavar="DAYS",
        help=f"leave out figures that are so much older than the host's newest run ({OLD_DAYS})",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the verb."""
    reasons = read(args.file, args.any_origin, args.older)
    known = slurm.all_nodes() if reasons else {}
    commands = []
    unknown = 0
    for host, texts in reasons.items():
        node = node_of(host, known, reasons)
        if node is None:
            unknown += 1
            note(f"{host}: Slurm has no such node")
        elif slurm.is_drained(node):
            note(f"{node}: drained or down already")
        else:
            commands.append(slurm.drain(node, reason_of(texts)))
    if args.yes and len(commands) > args.most:
        raise FleetError(f"{len(commands)} nodes would be drained, more than {args.most}", f"--most {len(commands)}")
    for words in commands:
        print(shlex.join(words), flush=True)  # noqa: T201
        if args.yes:
            slurm.command(*words)
    return Exit.FOUND if commands or unknown else Exit.FINE


def node_of(host: str, nodes: Iterable[str], found: Iterable[str]) -> str | None:
    """The node that a host is: of the same name, else of the same name up to the first dot, where one of both has none.

    Where several nodes, or several hosts that were found, have the same beginning, it is none of them.
    """
    if host in nodes:
        return host
    short = host.partition(".")[0]
    alike = [node for node in nodes if node.partition(".")[0] == short]
    rivals = [other for other in found if other.partition(".")[0] == short]
    if len(alike) != 1 or len(rivals) != 1 or ("." in host and "." in alike[0]):
        return None
    return alike[0]


def read(name: str, is_any_origin: bool, older: int = OLD_DAYS) -> dict[str, list[str]]:
    """Why each host is to be drained: what `outliers` found that is not to its credit."""
    try:
        judged: Any = json.loads(sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8"))
        findings = judged["findings"]
        reasons: dict[str, list[str]] = {}
        doubts: list[tuple[str, str]] = []
        for finding in findings:
            hosts = [str(host).partition("~")[0] for host in finding["hosts"]]
            if finding["origin"] != "measured" and not is_any_origin:
                note(f"{', '.join(hosts)}: left alone, {finding['origin']} figures (--any-origin takes them)")
                continue
            if finding["direction"] in BETTER:
                note(f"{', '.join(hosts)}: left alone, {BETTER[finding['direction']]} than similar hosts")
                continue
            for worst in finding["worst_of_hosts"]:
                if (why := doubt(worst, older)) is not None:
                    doubts.append((str(worst["host_key"]), why))
                    continue
                text = f"{finding['direction']} {worst['device']} {worst['figure']} {_size(worst)}"
                reasons.setdefault(str(worst["host_key"]).partition("~")[0], []).append(text)
    except OSError as error:
        raise FleetError(f"{name} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        hint = "pciescope-fleet outliers DATASET --json > FILE"
        raise FleetError(f"{name} is not what `outliers --json` prints: {error!r}", hint) from error
    for key, why in dict.fromkeys(doubts):
        note(f"{key}: {'not a reason' if key.partition('~')[0] in reasons else 'left alone'}, {why}")
    return reasons


BETTER = {"faster": "faster", "one CPU faster": "one CPU faster", "narrower form": "less spread"}
"""Findings that are to a host's credit."""


def _size(worst: dict[str, Any]) -> str:
    """A shift in percent. A form has none: its effect is a distance, and what share of the samples would make it."""
    if worst.get("statistic") == "form":
        return f"({1 - (1 - worst['effect']) ** 2:.0%} of its samples where others have none)"
    return f"{worst['effect']:+.1%}"


def note(text: str) -> None:
    """Tells the user something in passing."""
    sys.stderr.write(f"pciescope-fleet: {plain(text)}\n")
