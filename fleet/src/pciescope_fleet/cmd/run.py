"""`pciescope-fleet run`: the same measurement on many hosts, one file of records each."""

from __future__ import annotations

import argparse
import fcntl
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pciescope_fleet import hosts, slurm, ssh
from pciescope_fleet.answers import Answer, Folder
from pciescope_fleet.cmd import add_verb, split_words
from pciescope_fleet.errors import Exit, FleetError
from pciescope_fleet.task import Task, class_code
from pciescope_fleet.text import counted, plain
from pciescope_fleet.units import seconds

if TYPE_CHECKING:
    from pciescope_fleet.cmd import Verbs

EPILOG = """\
Behind -- stands what pciescope is to do; {host} in it is the host's name, {bdf}
(with --class) the address of a function.

examples:
  pciescope-fleet run --dir night --class nvme -- latency mmio {bdf} --bind
  pciescope-fleet run --dir night --partition gpu --nodes 'n[1-8]' -- doctor
  pciescope-fleet run --dir night --ssh 'n[1-8],n12' -- doctor

With the same --dir and command it goes on: hosts that have answered are left
alone. Ctrl-C takes what is left out of Slurm's queue.

Exit codes: 0 if every host answered; 1 if one did not, or a check failed there;
2 if nothing could be run."""


def register(verbs: Verbs) -> None:
    """Adds the verb."""
    parser = add_verb(verbs, "run", "--dir DIR -- VERB...", "run pciescope on many hosts, by Slurm or ssh", EPILOG)
    parser.add_argument(
        "--dir", type=Path, required=True, metavar="DIR", help="the folder for the records, one file a host"
    )
    parser.add_argument("--partition", metavar="NAME", help="Slurm's partition; its own default if none is given")
    parser.add_argument(
        "--nodes", metavar="LIST", help="these nodes, as n[1-8],gpu1 or @FILE; else all of the partition"
    )
    parser.add_argument("--ssh", metavar="HOSTS", help="by ssh, without Slurm, on these hosts: n[1-8],gpu1 or @FILE")
    parser.add_argument("--ssh-command", metavar="CMD", default="ssh", help="ssh with options: 'ssh -F FILE -l root'")
    parser.add_argument("--program", metavar="CMD", default="pciescope", help="the program there: 'sudo -n pciescope'")
    parser.add_argument(
        "--class", dest="function_class", metavar="CLASS", help="once for each function of a class: nvme, net"
    )
    parser.add_argument(
        "--timeout", type=seconds, default=600, metavar="TIME", help="the longest time on a host (10min)"
    )
    parser.add_argument(
        "--wait", type=seconds, default=3600, metavar="TIME", help="how long to wait for busy nodes (1h)"
    )
    parser.add_argument(
        "--at-once", type=int, metavar="N", help="how many hosts at a time (Slurm: four arrays, ssh: 32)"
    )
    parser.add_argument(
        "--sbatch", action="append", default=[], metavar="OPTION", help="a further option of sbatch: --sbatch=--qos=x"
    )
    parser.add_argument("-j", "--json", action="store_true", help="print a JSON object for each host")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="-- VERB ...", help="verb and options of pciescope")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the verb."""
    task = Task(split_words(args.program, "--program"), words_of(args), args.timeout, args.function_class)
    if args.at_once is not None and args.at_once < 1:
        raise FleetError(f"--at-once {args.at_once}: a number from 1 up")
    if args.ssh is not None:
        if args.nodes or args.partition or args.sbatch:
            raise FleetError("--ssh works without Slurm: leave out --nodes, --partition and --sbatch")
        names: dict[str, str | None] = dict.fromkeys(hosts.expand(args.ssh))
    else:
        if taken := [each for each in args.sbatch if re.match(r"-p|--partition\b", each)]:
            raise FleetError(f"--sbatch={taken[0]}: the nodes are chosen by --partition", "--partition NAME")
        # sbatch takes it from there as well.
        args.partition = args.partition or os.environ.get("SBATCH_PARTITION")
        names = slurm.nodes(args.partition, args.nodes)
    folder = Folder(args.dir, task, list(names))
    with locked(args.dir):
        left = folder.prepare()
        folder.silent = {host: why for host, why in names.items() if why is not None}
        fit = [host for host in left if host not in folder.silent]
        if fit and args.ssh is not None:
            ssh.Run(folder, split_words(args.ssh_command, "--ssh-command"), args.at_once or 32).do(fit)
        elif fit:
            slurm.Run(folder, args.partition, args.at_once, args.wait, args.sbatch).do(fit)
    answers = [folder.answer(host) for host in names]
    print(*(answer.to_json() for answer in answers) if args.json else tell(answers, args.dir), sep="\n")  # noqa: T201
    return Exit.FINE if all(answer.why is None for answer in answers) else Exit.FOUND


def words_of(args: argparse.Namespace) -> list[str]:
    """What pciescope is to do."""
    words: list[str] = args.words[1:] if args.words[:1] == ["--"] else args.words
    if not words:
        raise FleetError("it is not said what pciescope is to do", "pciescope-fleet run --dir DIR -- latency mmio ...")
    if {"-o", "--output"} & {word.partition("=")[0] for word in words}:
        raise FleetError("-o would write on the hosts; records come to --dir without it")
    if args.function_class is None and any("{bdf}" in word for word in words):
        raise FleetError("{bdf} needs a class of functions", "--class nvme")
    if args.function_class is not None:
        class_code(args.function_class)
        if not any("{bdf}" in word for word in words):
            raise FleetError(
                f"--class {args.function_class}: the command does not say where the function's address stands",
                "latency mmio {bdf}",
            )
    return words


class locked:  # noqa: N801
    """Holds a run's folder, so that two do not write into it at once."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.file = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise FleetError(f"{self.path}: {error.strerror}") from error
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self.file)
            raise FleetError(
                f"{self.path}: another run is at work in this folder", "wait for it, or name another"
            ) from error

    def __exit__(self, *_: object) -> None:
        os.close(self.file)


def tell(answers: list[Answer], path: Path) -> list[str]:
    """The answer for a person: how many, and who did not and why."""
    whole = sum(answer.is_whole for answer in answers)
    records = sum(answer.records for answer in answers)
    lines = [f"{whole} of {len(answers)} hosts answered; {counted(records, 'record')} in {path}"]
    wide = max((len(answer.host) for answer in answers), default=0)
    for answer in (answer for answer in answers if answer.why is not None):
        kept = f" ({counted(answer.records, 'record')} came)" if answer.records and not answer.is_whole else ""
        lines.append(f"  {answer.host:<{wide}}  {plain(answer.why)}{kept}")
    return lines
