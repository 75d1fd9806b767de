"""Values of the keys of a section that may be absent: what is set, or the default. ConfigError."""

from __future__ import annotations

from typing import Final

from omq.base.config_file import Entry
from omq.base.errors import OmqError
from omq.base.names import escape, parse_priority

DESCRIPTION_CHARACTERS_MAX: Final = 100


def integer(entries: dict[str, Entry], key: str, default: int, low: int, high: int) -> int:
    return entries[key].integer(low, high) if key in entries else default


def size(entries: dict[str, Entry], key: str, default: int, high: int) -> int:
    return entries[key].size(0, high) if key in entries else default


def truth(entries: dict[str, Entry], key: str, *, default: bool) -> bool:
    return entries[key].truth() if key in entries else default


def choice(entries: dict[str, Entry], key: str, choices: tuple[str, ...]) -> str:
    """The first choice is the default."""
    return entries[key].choice(choices) if key in entries else choices[0]


def text(entries: dict[str, Entry], key: str, default: str) -> str:
    if key not in entries:
        return default
    text = entries[key].value
    if len(text) > DESCRIPTION_CHARACTERS_MAX:
        raise entries[key].error("too long", f"{DESCRIPTION_CHARACTERS_MAX} characters")
    return escape(text)


def priority(entries: dict[str, Entry], default: int) -> int:
    if "priority" not in entries:
        return default
    try:
        return parse_priority(entries["priority"].value)
    except OmqError as error:
        raise entries["priority"].error("not a priority", "0 to 9, urgent, normal, low") from error
