"""Texts that come from hosts and files, made fit for a terminal."""

import dataclasses
from typing import Any


def counted(number: int, what: str) -> str:
    """`1 finding`, `2 findings`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def some(texts: list[str], most: int = 8) -> str:
    """The first of several; the rest is counted."""
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def plain(text: object) -> str:
    """A text in one line, without control characters: a host's name could else move the cursor or add lines."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))


def plain_all(value: Any) -> Any:
    """The same for every text in lists and objects."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {key: plain_all(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain_all(each) for each in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(
            value, **{one.name: plain_all(getattr(value, one.name)) for one in dataclasses.fields(value)}
        )
    return value
