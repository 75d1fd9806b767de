"""What the table of omq.conf says of one key, and how a field of it is written.

A field is a key, its name ends in the unit, its metadata holds section, range and reason. The
fields stand in omq.base.settings and omq.base.settings_mail.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

YEAR_S: Final = 366 * 86400
METADATA: Final = "omq"


@dataclass(frozen=True, slots=True)
class Key:
    """What the table says about one key, apart from its default."""

    section: str
    reason: str
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()
    pattern: str = ""
    rule: str = ""  # `pattern` in words


def number(section: str, default: int, low: int, high: int, reason: str) -> int:
    key = Key(section, reason, low=low, high=high)
    return field(default=default, metadata={METADATA: key})


def flag(section: str, reason: str, *, default: bool) -> bool:
    return field(default=default, metadata={METADATA: Key(section, reason)})


def choice(section: str, default: str, choices: tuple[str, ...], reason: str) -> str:
    return field(default=default, metadata={METADATA: Key(section, reason, choices=choices)})


def text(section: str, default: str, pattern: str, rule: str, reason: str) -> str:
    key = Key(section, reason, pattern=pattern, rule=rule)
    return field(default=default, metadata={METADATA: key})
