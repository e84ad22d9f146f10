"""Files for results, by the main program's rule (crates/cli/src/cmd/files.rs).

A file is there whole or not at all. A device or a pipe is written through. A link stays, and what it leads to is
written; a run as root follows no link that another user made.
"""

import contextlib
import errno
import os
import stat
import tempfile
import time
from pathlib import Path

from pciescope_fleet.errors import FleetError

MOST_LINKS = 40
READER_COMES_S = 2.0  # The shell may start a pipe's reader after this program.
TAKES_NO_FILE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG)


def write(path: Path, text: str) -> None:
    """Writes the file. Raises `FleetError` where it cannot be written, or not be replaced."""
    try:
        real, is_of_proc = _follow(path)
        if str(path).endswith("/") or not real.name:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        old = real.stat() if real.exists() else None
        if is_of_proc or (old is not None and not stat.S_ISREG(old.st_mode)):
            _write(_open(real, os.O_CREAT | os.O_TRUNC, is_of_proc), text)
        else:
            _replace(real, old, text)
    except OSError as error:
        raise FleetError(f"{path}: cannot be written: {error.strerror}") from error


def _replace(real: Path, old: os.stat_result | None, text: str) -> None:
    if old is not None:
        # A file that may not be written may not be replaced either.
        os.close(_open(real, os.O_APPEND))
    try:
        number, name = tempfile.mkstemp(".part", f".{real.name}.", real.parent)
    except OSError as error:
        if error.errno not in TAKES_NO_FILE:
            raise
        # The old file may still be written.
        _write(_open(real, os.O_CREAT | os.O_TRUNC), text)
        return
    try:
        mask = os.umask(0)
        os.umask(mask)
        os.fchmod(number, 0o666 & ~mask)
        if old is not None:
            # Whose it was and who may read it stays, as far as the system lets us.
            with contextlib.suppress(OSError):
                os.fchown(number, old.st_uid, old.st_gid)
            with contextlib.suppress(OSError):
                os.fchmod(number, stat.S_IMODE(old.st_mode))
        _write(number, text)
        Path(name).rename(real)
    except BaseException:
        Path(name).unlink()
        raise


def _write(number: int, text: str) -> None:
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(text)


def _open(real: Path, flags: int, is_of_proc: bool = False) -> int:
    """Opens the file to write. A pipe gets a moment for its reader; a link that was put there since is an error."""
    flags |= os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if is_of_proc else os.O_NOFOLLOW)
    until = time.monotonic() + READER_COMES_S
    while True:
        try:
            number = os.open(real, flags, 0o666)
            break
        except OSError as error:
            if error.errno != errno.ENXIO or not real.is_fifo():
                raise
            if time.monotonic() > until:
                raise FleetError(f"{real}: nobody reads this pipe", "start the program that reads it first") from error
            time.sleep(0.02)
    os.set_blocking(number, True)
    return number


def _follow(path: Path) -> tuple[Path, bool]:
    """The whole name behind all links, and whether one of /proc is among them: that leads to an open file."""
    left, at, links = list(path.absolute().parts), Path(), 0
    while left:
        here = at / left.pop(0)
        if not here.is_symlink():
            at = here
            continue
        if os.path.realpath(at).split("/")[1:2] == ["proc"]:
            return here.joinpath(*left), True
        owner = here.lstat().st_uid
        if os.geteuid() == 0 and not _is_of_root(owner):
            raise FleetError(
                f"{here} is a link that user {owner} made, and a run as root follows no link of another user",
                "name the file itself, or remove the link",
            )
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        left[:0] = here.readlink().parts
    return at, False


def _is_of_root(owner: int) -> bool:
    """Whether a file is root's. A container that maps some users shows the machine's root as nobody."""
    maps = Path("/proc/self/uid_map").read_text(encoding="ascii").split() if owner == 65534 else []
    return owner == 0 or (bool(maps) and "4294967295" not in maps[2::3])
