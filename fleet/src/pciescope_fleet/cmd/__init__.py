"""The verbs: one module each, with `register(verbs)`.

`register` adds a parser for the verb and sets its default `run`: a function that takes the parsed arguments and returns
an exit code. It raises `FleetError` where it cannot. It imports what is heavy inside of functions.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
