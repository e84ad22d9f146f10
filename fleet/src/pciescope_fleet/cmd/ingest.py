"""`pciescope-fleet ingest`: takes files of records into a dataset."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pciescope_fleet import answers, hosts
from pciescope_fleet.cmd import add_store_options, add_verb, store_of
from pciescope_fleet.errors import Exit, FleetError
from pciescope_fleet.hosts import LONGEST_NAME
from pciescope_fleet.text import counted, plain, some

if TYPE_CHECKING:
    from pciescope_fleet.cmd import Verbs

EPILOG = """\
examples:
  pciescope-fleet ingest night/*.jsonl fleet
  pciescope-fleet ingest night s3://measurements/fleet --compact

A run that the dataset has already is not taken again. Of a torn file what is whole is taken, and the rest is named.
Exit codes: 0 all was taken; 1 something could not be taken, or is doubtful; 2 it failed: the message says how many runs
were taken before."""


SHOWN = 5  # So many problems of a file are told; the rest is counted.


def register(verbs: Verbs) -> None:
    """Adds the verb."""
    parser = add_verb(verbs, "ingest", "FILE... DATASET", "take files of records into a dataset", EPILOG)
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE", help="files of records, or folders with them")
    parser.add_argument("dataset", metavar="DATASET", help="a folder, or a URL that fsspec knows (s3://BUCKET/FOLDER)")
    parser.add_argument("--host", type=host_name, metavar="NAME", help="the host that all these files are from")
    parser.add_argument("--program", metavar="PATH", help="the program pciescope, which reads the records (of PATH)")
    parser.add_argument("--compact", action="store_true", help="merge the files of each day")
    parser.add_argument("-j", "--json", action="store_true", help="print what was done as JSON")
    add_store_options(parser)
    parser.set_defaults(run=run)


def host_name(text: str) -> str:
    """A name that a host may have: it becomes the name of a folder, and `~` parts it from the machine's id."""
    if hosts.NAME.fullmatch(text) is None or len(text) > LONGEST_NAME:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no name of a host: letters, digits, '.', '_' and '-', at most {LONGEST_NAME}"
        )
    return text


def run(args: argparse.Namespace) -> int:
    """Takes the files, and says what it did."""
    from pciescope_fleet.dataset.ingest import compact, ingest

    store = store_of(args)
    taken = ingest(store, _files(args.paths), args.host, args.program)
    compacted = compact(store) if args.compact else None
    answer: dict[str, Any] = {
        **{name: getattr(taken, name) for name in ("files", "runs", "figures", "known", "renewed", "restored")},
        "hosts_by_file_name": sorted(taken.guessed),
        "late": sorted(set(taken.late)),
        "problems": [{"file": p.file, "line": p.line, "why": p.why} for p in taken.problems],
    }
    if compacted is not None:
        answer["compacted"] = {"files_before": compacted.before, "files": compacted.after}
    if args.json:
        print(json.dumps(answer))  # noqa: T201
    else:
        sys.stdout.write(_words(answer))
    for file, problems in itertools.groupby(taken.problems, key=lambda problem: problem.file):
        told_of = list(problems)
        for problem in told_of[:SHOWN]:
            sys.stderr.write(f"not taken, or doubtful: {plain(problem)}\n")
        if len(told_of) > SHOWN:
            sys.stderr.write(f"not taken, or doubtful: {plain(file)}: {len(told_of) - SHOWN} more; --json tells all\n")
    if taken.guessed and args.host is None:
        told = f"{len(taken.guessed)} hosts are called after their files, as the records do not name them"
        sys.stderr.write(f"{told}: {plain(some(sorted(taken.guessed), SHOWN))}\n")
        sys.stderr.write("hint: --host NAME, or measure with a pciescope that names its host\n")
    if taken.late:
        of = plain(some(answer["late"], SHOWN))
        runs = counted(len(taken.late), "run")
        sys.stderr.write(f"{runs} of {of}: older than what the dataset had of the host, which stays the newest\n")
        sys.stderr.write("hint: files that come late, or a clock that is wrong now or was ahead then\n")
    return Exit.FOUND if taken.problems else Exit.FINE


def _files(paths: list[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise FleetError(f"{path}: there is no such file")
        inside = list(_inside(path)) if path.is_dir() else [path]
        if not inside:
            raise FleetError(f"{path}: the folder has no file *.jsonl, *.jsonl.gz or *.jsonl.zst")
        found += sorted(inside)
    return found


def _inside(folder: Path) -> Iterator[Path]:
    """The files of records below a folder, without what `run` keeps of attempts that it made again."""

    def refuse(error: OSError) -> None:
        raise FleetError(f"{error.filename}: the folder cannot be read: {error.strerror}", "who may read it") from error

    named = (Path(place, name) for place, _, names in os.walk(folder, onerror=refuse) for name in names)
    for path in (each for each in named if each.name.endswith((".jsonl", ".jsonl.gz", ".jsonl.zst"))):
        above = [folder / part for part in path.relative_to(folder).parents][:-1]
        if not any(part.name == answers.EARLIER and (part.parent / answers.NOTE).exists() for part in above):
            yield path


def _words(answer: dict[str, Any]) -> str:
    text = f"{answer['runs']} runs taken, {answer['figures']} figures of {answer['files']} files"
    if answer["known"]:
        text += f"; {answer['known']} runs were there already"
    if answer["renewed"]:
        text += f"; of {answer['renewed']} runs more records came"
    if answer["restored"]:
        text += f"; {answer['restored']} runs are whole again, of which the dataset had lost rows"
    if "compacted" in answer:
        text += f"\n{answer['compacted']['files_before']} files made into {answer['compacted']['files']}"
    return text + "\n"
