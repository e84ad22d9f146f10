"""Values on the command line, written as the main program takes them."""

import argparse
import re

UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "min": 60.0, "h": 3600.0}


def seconds(text: str) -> int:
    """A time such as `90s`, `10min` or `1h`, in whole seconds; bare: seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|ms|min|h)?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 90s, 10min or 1h")
    time = float(found[1]) * UNITS[found[2] or ""]
    if not 1 <= time <= 7 * 86400:
        raise argparse.ArgumentTypeError(f"{text!r}: a time is from 1s to 168h")
    return round(time)
