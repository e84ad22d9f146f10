"""The command `pciescope-fleet`: turns what was typed into a call of one verb, and what comes back into an exit code.

Everything else is in `cmd/VERB.py`. No verb prints an error or ends the program itself.
"""

import argparse
import importlib
import io
import os
import pkgutil
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from pciescope_fleet import __version__, cmd
from pciescope_fleet.errors import Exit, FleetError, report

EPILOG = """\
one night, from measuring to the answer:
  pciescope-fleet run --dir night --ssh 'n[1-64]' -- doctor
  pciescope-fleet ingest night fleet
  pciescope-fleet outliers fleet
  pciescope-fleet matrix fleet -o fleet.html

`pciescope-fleet VERB --help` tells of one verb, docs/fleet.md of all.
Exit codes: 0 nothing is wrong; 1 something was found; 2 it could not be done."""

ORDER = ("run", "ingest", "outliers", "trend", "links", "matrix", "health", "slurm_drain")
"""The verbs in the help: as they are needed one after the other."""


class Parser(argparse.ArgumentParser):
    """A parser whose refusals have the main program's form."""

    def error(self, message: str) -> NoReturn:
        """Raises the refusal, for `main` to print."""
        raise FleetError(message, f"{self.prog} --help")


def parser() -> Parser:
    """The parser with all verbs: those that stand in `cmd`."""
    top = Parser(
        prog="pciescope-fleet",
        usage="pciescope-fleet VERB [OPTION]...",
        description=(
            "Runs pciescope on many hosts, keeps the records and finds the hosts that differ from similar hosts."
        ),
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"pciescope-fleet {__version__}")
    verbs = top.add_subparsers(title="verbs", metavar="VERB", required=True, parser_class=Parser, prog=top.prog)
    names = {module.name for module in pkgutil.iter_modules(cmd.__path__)}
    for name in sorted(names, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name)):
        importlib.import_module(f"{cmd.__name__}.{name}").register(verbs)
    return top


def main(typed: Sequence[str] | None = None) -> int:
    """Runs what was typed and returns the exit code."""
    try:
        args = parser().parse_args(typed)
        code = int(args.run(args))
        sys.stdout.flush()
        return code
    except FleetError as error:
        sys.stderr.write(report(error))
        return Exit.FAILED
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("pciescope_fleet"):
            return fault()
        needs = FleetError(
            f"the Python module {error.name} is not installed",
            f"pip install {package_of(error.name)}; on Debian into a virtual environment (docs/fleet.md)",
        )
        sys.stderr.write(report(needs))
        return Exit.FAILED
    except BrokenPipeError:
        # Python would complain of the same again when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.CLOSED_PIPE
    except Exception:  # noqa: BLE001 # all that remains are faults of ours
        return fault()
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


def fault() -> int:
    """Tells of a fault of this program. Python's own exit code would be 1, which means that something was found."""
    sys.stderr.write(traceback.format_exc())
    sys.stderr.write(report(FleetError("this is a fault of pciescope-fleet itself", "report it with the lines above")))
    return Exit.FAILED


def package_of(module: str) -> str:
    """The package on PyPI that brings a module."""
    top = module.split(".", maxsplit=1)[0]
    return {"ibis": "'ibis-framework[duckdb]'"}.get(top, top)


def entry() -> NoReturn:
    """The command."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal or file of another encoding gets what it can show.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(main())
