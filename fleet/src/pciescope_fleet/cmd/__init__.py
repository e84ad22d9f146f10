"""The verbs: one module each, with `register(verbs)`.

`register` adds a parser for the verb and sets its default `run`: a function that takes the parsed arguments and returns
an exit code. It raises `FleetError` where it cannot. It imports what is heavy inside of functions.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pciescope_fleet.errors import FleetError

if TYPE_CHECKING:
    from pciescope_fleet.dataset.store import Store
    from pciescope_fleet.engine import Engine

    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]


T = TypeVar("T")


def add_verb(verbs: Verbs, name: str, takes: str, help_line: str, epilog: str) -> argparse.ArgumentParser:
    """Adds a verb's parser, with the form that all have.

    `takes` is what it cannot do without, `help_line` a sentence with a small first letter.
    """
    from pciescope_fleet.cli import Parser

    parser = verbs.add_parser(
        name,
        usage=f"pciescope-fleet {name} [OPTION]... {takes}",
        help=help_line,
        description=f"{help_line[0].upper()}{help_line[1:]}.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    assert isinstance(parser, Parser)
    return parser


def add_store_options(parser: argparse.ArgumentParser) -> None:
    """Adds what a dataset on another store needs."""
    parser.add_argument(
        "--store-option", action="append", default=[], metavar="KEY=VALUE",
        help="an option of the store's fsspec driver, such as endpoint_url=http://127.0.0.1:5000; may be repeated; "
        "true, false and {...} are read as JSON",
    )  # fmt: skip


def store_of(args: argparse.Namespace) -> Store:
    """The dataset that was named."""
    from pciescope_fleet.dataset.store import Store

    options: dict[str, Any] = {}
    for option in args.store_option:
        key, sign, value = option.partition("=")
        if not sign:
            raise FleetError(
                f"--store-option {option}: not KEY=VALUE", "--store-option endpoint_url=http://127.0.0.1:5000"
            )
        options[key] = _value(option, value)
    return Store(args.dataset, options)


def _value(option: str, text: str) -> Any:
    """The value of a store's option: some drivers' are no text. Digits are, as a key may have nothing else."""
    if text not in ("true", "false") and not text.startswith("{"):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise FleetError(
            f"--store-option {option}: its value begins with {{ and is not JSON: {error}",
            """--store-option 'client_kwargs={"region_name": "eu-central-1"}'""",
        ) from error


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Adds what says where to count."""
    parser.add_argument(
        "--spark", metavar="MASTER", help="count on Spark: spark://HOST:7077 or local[2]; without it, DuckDB"
    )
    parser.add_argument("--memory", type=size, metavar="SIZE", help="DuckDB's memory: 4GB; beyond it uses the disk")
    parser.add_argument("--threads", type=threads, metavar="N", help="DuckDB's threads")


def add_bound_options(parser: argparse.ArgumentParser, found: str) -> None:
    """Adds the dataset, its days, and how sure and how large the outliers or changes (`found`) must be."""
    parser.add_argument("dataset", metavar="DATASET", help="the dataset that `ingest` made")
    parser.add_argument(
        "--level",
        type=share,
        default=0.05,
        metavar="PERCENT",
        help=f"the allowed share of false alarms among all {found} (5%%)",
    )
    parser.add_argument(
        "--least-effect", type=share, default=0.05, metavar="PERCENT", help="skip shifts below this, even certain (5%%)"
    )
    parser.add_argument("--since", type=day, metavar="DATE", help="only runs of this day and later: 2026-11-22")
    parser.add_argument("--until", type=day, metavar="DATE", help="only runs of this day and earlier")


def add_judging_options(parser: argparse.ArgumentParser) -> None:
    """Adds the dataset, and what says how hosts are judged."""
    add_bound_options(parser, "outliers")
    parser.add_argument(
        "--least-hosts",
        type=int,
        default=8,
        metavar="N",
        help="the smallest group in which a host is compared, the host included (8)",
    )
    parser.add_argument(
        "--racks",
        type=Path,
        metavar="FILE.csv",
        help="a table with the column `host` and others (rack, room), which several faulty hosts may share",
    )


def computed(args: argparse.Namespace, compute: Callable[[Engine, Store], T]) -> T:
    """What is computed of the dataset on the engine that was asked for.

    It is computed again where a compaction removed files while they were read: their runs are in another file then.
    """
    from pciescope_fleet.dataset.store import TRIES
    from pciescope_fleet.engine import open_engine

    for _ in range(TRIES):
        store = store_of(args)
        engine: Engine | None = None
        try:
            with open_engine(args.spark, args.memory, args.threads) as engine:
                return compute(engine, store)
        except Exception:
            # Each engine and store has errors of its own kinds.
            if engine is None or not engine.has_lost_files():
                raise
    raise FleetError(
        f"{args.dataset}: files of the dataset went away while they were read, {TRIES} times",
        "wait until the compaction has ended",
    )


def size(text: str) -> str:
    """A size as DuckDB takes it: 4GB."""
    if re.fullmatch(r"\d{1,6}(\.\d{1,6})?(MB|GB|MiB|GiB)", text) is None:
        raise argparse.ArgumentTypeError(f"{text}: not a size; write 4GB or 500MB")
    return text


def threads(text: str) -> int:
    """How many threads DuckDB may have."""
    if re.fullmatch(r"\d{1,4}", text) is None or not 1 <= int(text) <= 1024:
        raise argparse.ArgumentTypeError(f"{text}: not a number from 1 to 1024")
    return int(text)


def split_words(text: str, option: str) -> list[str]:
    """The words of a command, as a shell splits them. Raises `FleetError` where there are none."""
    try:
        found = shlex.split(text)
    except ValueError as error:
        raise FleetError(f"{option} {text!r}: {error}") from error
    if not found:
        raise FleetError(f"{option} is empty")
    return found


def day(text: str) -> str:
    """A day as the dataset's folders are called: they are compared as text."""
    try:
        is_day = datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        is_day = False
    if not is_day:
        raise argparse.ArgumentTypeError(f"{text}: not a day; write 2026-11-22")
    return text


def share(text: str) -> float:
    """A share: `2` or `2%`, as in the main program."""
    try:
        value = float(text.removesuffix("%")) / 100
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text}: not a percentage") from error
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text}: not between 0 and 100 %")
    return value
