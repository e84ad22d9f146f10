"""Names of hosts, as Slurm and people write them: `n[1-3,7],gpu12`."""

import re
from pathlib import Path

from pciescope_fleet.errors import FleetError

NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
"""A host's name. It becomes a file's name and a word of a shell: nothing else may stand in it."""

LONGEST_NAME = 64  # Linux allows no longer name of a host.
MOST = 200_000  # A longer list is a slip of the pen.


def expand(text: str) -> list[str]:
    """The hosts of a list, in its order, each once; `@FILE` is a file with such lists, a line each.

    Raises `FleetError` for what is no name.
    """
    if text.startswith("@"):
        try:
            lines = Path(text[1:]).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise FleetError(f"the list of hosts {text[1:]} cannot be read: {error}") from error
        lists = [line.partition("#")[0].strip() for line in lines]
    else:
        lists = [text]
    all_hosts: dict[str, None] = {}
    for part in (part for line in lists for part in split(line)):
        for name in expand_one(part):
            if NAME.fullmatch(name) is None:
                raise FleetError(f"{name!r} is no name of a host", "names are separated by commas: n[1-8],gpu1")
            all_hosts[name] = None
            if len(all_hosts) > MOST:
                raise FleetError(f"{text!r} names more than {MOST} hosts")
    if not all_hosts:
        raise FleetError(f"{text!r} names no host", "names are separated by commas: n[1-8],gpu1")
    return list(all_hosts)


def split(text: str) -> list[str]:
    """The parts between commas and blanks that stand outside of brackets."""
    return [part for part in re.findall(r"(?:[^,\s\[\]]|\[[^\[\]]*\]|[\[\]])+", text) if part]


def expand_one(text: str) -> list[str]:
    """The names that a name with ranges in brackets stands for."""
    found = re.search(r"\[([^\[\]]*)\]", text)
    if found is None:
        return [text]
    names = []
    for piece in found[1].split(","):
        ends = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", piece.strip())
        if ends is None:
            raise FleetError(f"{text!r}: [{found[1]}] is no list of numbers", "write n[1-3,7]")
        first, last = ends[1], ends[2] or ends[1]
        if int(last) < int(first) or int(last) - int(first) > MOST:
            raise FleetError(f"{text!r}: {first}-{last} is not a range")
        for number in range(int(first), int(last) + 1):
            names += expand_one(f"{text[: found.start()]}{number:0{len(first)}}{text[found.end() :]}")
            if len(names) > MOST:
                raise FleetError(f"{text!r} names more than {MOST} hosts")
    return names
