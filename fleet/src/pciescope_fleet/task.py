"""What runs on one host: a line for its shell, made of the command of the user.

The line bounds the time, and runs the command once for each function of a class where that is asked for. The program's
records come on the standard output, what it says on the standard error, and its exit code is the line's.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from pciescope_fleet.errors import FleetError

GRACE_S = 5  # From the wish to end to the kill.

NOTHING_OF_THE_CLASS = 66
"""The line's exit code where the host has no function of the class; the program has no such code."""

CLASSES = {"nvme": "0108", "net": "02", "gpu": "03", "accelerator": "12", "fpga": "1200", "infiniband": "0207"}
"""Classes of PCI functions, by the first digits of their code."""


@dataclass(frozen=True)
class Task:
    """The command for every host."""

    program: list[str]  # The program, with what stands before it: `sudo -n pciescope`.
    words: list[str]
    """The verb and its options. `{host}` stands for the host's name, `{bdf}` for the function's address."""
    seconds: int  # The longest time on a host, for all of its functions together.
    function_class: str | None = None  # Run it for each function of this class, one after the other.

    def line(self, host: str) -> str:
        """The line for a shell. `host` is a shell word: a name, or a variable that has it."""
        words = self.words if has_json(self.words) else [*self.words, "--json"]
        bound = ["timeout", "-k", str(GRACE_S), str(self.seconds)]
        # A user may not end a process of root: there the bound is root's as well.
        before = behind_sudo(self.program)
        program = [*self.program[:before], *bound, *self.program[before:]]
        command = " ".join([*map(shlex.quote, program), *(quoted(word, host) for word in words)])
        if self.function_class is None:
            return command
        # The time is for all: each gets what the ones before left.
        command = command.replace(" ".join(bound), f"timeout -k {GRACE_S} $left", 1)
        return (
            f"code={NOTHING_OF_THE_CLASS}; end=$(($(date +%s) + {self.seconds})); "
            "for at in /sys/bus/pci/devices/*; do "
            f'case $(cat "$at/class") in 0x{class_code(self.function_class)}*) ;; *) continue ;; esac; '
            "left=$((end - $(date +%s))); [ $left -gt 0 ] || left=1; "
            f"bdf=${{at##*/}}; one=0; {command} || one=$?; "
            f"if [ $code = {NOTHING_OF_THE_CLASS} ] || [ $one -gt $code ]; then code=$one; fi; done; (exit $code)"
        )


SUDO_TAKES = re.compile(
    r"-[ABEHKNPSVbeiklnsv]*[CDRTUacghprtu]|--(user|group|host|prompt|chdir|chroot|close-from|command-timeout|role|type)"
)
"""An option of sudo or doas that a word of its own follows."""


def behind_sudo(program: list[str]) -> int:
    """Where the program begins behind `sudo` or `doas`, their options and variables; 0 where there is none."""
    if program[0].rpartition("/")[2] not in ("sudo", "doas"):
        return 0
    place = 1
    while place < len(program) - 1 and (program[place].startswith("-") or "=" in program[place]):
        if program[place] == "--":
            return place + 1
        place += 2 if SUDO_TAKES.fullmatch(program[place]) else 1
    return min(place, len(program) - 1)


def quoted(word: str, host: str) -> str:
    """A word for the shell, with what stands for host and function put in by the shell."""
    # shlex.quote has put it into single quotes, because of the braces.
    return shlex.quote(word).replace("{host}", f"'\"{host}\"'").replace("{bdf}", "'\"$bdf\"'")


def has_json(words: Sequence[str]) -> bool:
    """Whether the command prints records as it is."""
    return "-j" in words or "--json" in words


def class_code(name: str) -> str:
    """The first digits of a class: by its name, or as hexadecimal digits."""
    code = CLASSES.get(name, name.removeprefix("0x").lower())
    if not 2 <= len(code) <= 6 or set(code) - set("0123456789abcdef"):
        known = ", ".join(CLASSES)
        raise FleetError(f"--class {name}: no such class of functions", f"{known}, or two to six hexadecimal digits")
    return code
