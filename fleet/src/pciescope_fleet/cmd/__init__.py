"""The verbs: one module each, with `register(verbs)`.

`register` adds a parser for the verb and sets its default `run`: a function that takes the parsed arguments and returns
an exit code. It raises `FleetError` where it cannot. It imports what is heavy inside of functions.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pciescope_fleet.errors import FleetError

if TYPE_CHECKING:
    from pciescope_fleet.dataset.store import Store

    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]


def add_verb(verbs: Verbs, name: str, help_line: str, epilog: str = "") -> argparse.ArgumentParser:
    """Adds a verb's parser, with the form that all have. `help_line` is a sentence with a small first letter."""
    from pciescope_fleet.cli import Parser

    parser = verbs.add_parser(
        name,
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
        help="an option of the store's fsspec driver, such as endpoint_url=http://127.0.0.1:5000; may be repeated",
    )  # fmt: skip


def store_of(args: argparse.Namespace) -> Store:
    """The dataset that was named."""
    from pciescope_fleet.dataset.store import Store

    options = {}
    for option in args.store_option:
        key, sign, value = option.partition("=")
        if not sign:
            raise FleetError(f"--store-option {option}: not KEY=VALUE", "--store-option endpoint_url=http://127.0.0.1:5000")
        options[key] = value
    return Store(args.dataset, options)
