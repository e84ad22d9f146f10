"""What goes wrong, in the words and exit codes of the main program.

An error says who, what, which value and why; where the user can mend it, a hint says how. Only `cli.entry` prints
errors and ends the program.
"""

from enum import IntEnum

from pciescope_fleet.text import plain


class Exit(IntEnum):
    """Exit codes, as the main program has them."""

    FINE = 0  # Done, and nothing is wrong.
    FOUND = 1  # Done, and something was found: an outlier, a failed host.
    FAILED = 2  # Not done: wrong arguments, input that cannot be read, a missing program.
    INTERRUPTED = 130  # The user ended it: 128 and SIGINT.
    CLOSED_PIPE = 141  # The reader of the output went away: 128 and SIGPIPE.


class FleetError(Exception):
    """A refusal or failure that the user is told of: `text` says what, `hint` what to do about it."""

    def __init__(self, text: str, hint: str | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.hint = hint


class NoRunsError(FleetError):
    """The dataset has no run of the days that were asked for."""


def report(error: FleetError) -> str:
    """The lines that tell of an error."""
    lines = f"pciescope-fleet: {plain(error.text)}\n"
    return lines if error.hint is None else f"{lines}hint: {plain(error.hint)}\n"
