"""Running without Slurm: by ssh alone, some hosts at a time. Records come through the connection."""

import concurrent.futures
import contextlib
import shlex
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from pciescope_fleet.answers import Folder, last_words, replace
from pciescope_fleet.errors import FleetError
from pciescope_fleet.task import GRACE_S

MARGIN_S = 30  # For the connection, beyond what the host may take.
FAILED = 255  # How ssh ends where it could not connect, or lost the connection.


@dataclass
class Run:
    """A run by ssh."""

    folder: Folder
    ssh: Sequence[str]  # The command and its options.
    at_once: int
    running: set[subprocess.Popen[bytes]] = field(default_factory=set)

    def do(self, names: Sequence[str]) -> None:
        """Runs the task on these hosts, and returns when each has ended or will not any more."""
        with concurrent.futures.ThreadPoolExecutor(max_workers=self.at_once) as pool:
            waiting = [pool.submit(self.one, host) for host in names]
            try:
                for done in concurrent.futures.as_completed(waiting):
                    done.result()
            except BaseException:
                # A host ends by itself in its time; nobody waits for that here.
                pool.shutdown(wait=False, cancel_futures=True)
                for running in list(self.running):
                    running.terminate()
                raise

    def one(self, host: str) -> None:
        """Runs the task on a host."""
        folder = self.folder
        folder.put_aside(host)
        # The user's shell there may be any; its word is one for sh. A shell becomes its last command, and ssh does not
        # tell by which signal that died: so there is another behind it.
        remote = f"sh -c {shlex.quote(f'host={host}; ' + folder.task.line('$host') + '; exit $?')}"
        options = ("BatchMode=yes", "ConnectTimeout=15", "ServerAliveInterval=15")
        words = [*self.ssh, *(f"-o{option}" for option in options), host, remote]
        began = time.monotonic()
        with folder.file(host, ".jsonl").open("wb") as records, folder.file(host, ".err").open("wb") as errors:
            try:
                running = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=records, stderr=errors)
            except OSError as error:
                raise FleetError(f"{words[0]} cannot be started: {error.strerror}", "install openssh-client") from error
            self.running.add(running)
            try:
                code = running.wait(folder.task.seconds + GRACE_S + MARGIN_S)
            except subprocess.TimeoutExpired:
                folder.silent[host] = f"no answer within {folder.task.seconds + GRACE_S + MARGIN_S} s"
                return
            finally:
                running.kill()
                # What waits in the kernel ends when it likes.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    running.wait(GRACE_S)
                self.running.discard(running)
        if code == FAILED or code < 0:
            last = last_words(folder.file(host, ".err"))
            folder.silent[host] = f"ssh {'failed' if code > 0 else f'was killed by signal {-code}'}{last}"
            return
        replace(folder.file(host, ".end"), f"{code} {time.monotonic() - began:.0f}\n")
