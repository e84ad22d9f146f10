"""How often in a row a problem was seen: a file in a folder that belongs to the user who runs the check.

The folder must not be one that others may write to, and no link is followed: else who may write there would choose
which file root writes. The file is replaced whole, so a check that is killed leaves the old one.
"""

import contextlib
import fcntl
import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from pciescope_fleet.errors import FleetError

LARGEST = 1 << 20  # A longer file is not ours.


class ConsecutiveCounts:
    """The counts of one check, locked while this is open."""

    def __init__(self, folder: Path, check: str) -> None:
        self.path = folder
        self.name = f"{re.sub('[^A-Za-z0-9._-]', '-', check)[:100] or 'check'}.json"

    def __enter__(self) -> Self:
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            hint = "name a folder that this user may write to: --state DIR"
            raise FleetError(
                f"the folder {self.path} for the state cannot be opened: {error.strerror}", hint
            ) from error
        found = os.fstat(self.folder)
        if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            os.close(self.folder)
            owner = f"user {found.st_uid}, mode {stat.S_IMODE(found.st_mode):o}"
            hint = "the state lies in a folder that its user alone may write to: --state DIR"
            raise FleetError(f"others may write to {self.path} ({owner})", hint)
        fcntl.flock(self.folder, fcntl.LOCK_EX)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.folder)

    def read(self) -> dict[str, int]:
        """How often in a row each problem was seen, up to the last check."""
        try:
            file = os.open(self.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self.folder)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise FleetError(f"{self.path / self.name} cannot be opened: {error.strerror}", "remove it") from error
        with os.fdopen(file, "rb") as opened:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                raise FleetError(f"{self.path / self.name} is no file of this user", "remove it")
            text = opened.read(LARGEST)
        try:
            counts = json.loads(text)
            return {str(key): int(count) for key, count in counts.items()}
        except (ValueError, TypeError, AttributeError):
            # It begins anew: a node is drained later, never sooner.
            return {}

    def count(self, problems: Mapping[str, str]) -> dict[str, int]:
        """Counts the problems that were seen now; one that was not seen begins anew. Returns the counts."""
        before = self.read()
        counts = {key: min(before.get(key, 0), 1_000_000) + 1 for key in problems}
        temporary = f".{self.name}.part"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=self.folder)
            with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=self.folder), "w", encoding="utf-8") as file:
                json.dump(counts, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
        except OSError as error:
            raise FleetError(f"{self.path / self.name} cannot be written: {error.strerror}") from error
        return counts
