"""What makes it doubtful that an outlier's hardware is still there. The standard library alone: slurm-drain uses it."""

import datetime
from typing import Any

OLD_DAYS = 7  # A run that is so much older than the host's newest one does not tell what is in the host now.


def doubt(worst: dict[str, Any], days: int = OLD_DAYS) -> str | None:
    """Why an outlier may be of hardware that is no longer there."""
    if worst["replaced_by"] is not None:
        return f"the newest run of {worst['host']} is of another machine, {worst['replaced_by']}"
    time, newest = (datetime.datetime.fromisoformat(worst[key]) for key in ("time", "newest"))
    age = (newest - time).days
    if age <= days:
        return None
    what, host = worst["device"] or "it", worst["host"]
    return f"{what} was measured on {time:%Y-%m-%d}, {age} days before the newest run of {host}"
