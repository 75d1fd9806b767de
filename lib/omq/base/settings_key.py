"""What the table of omq.conf says of one key, and how a field of it is written.

A field is a key, its name ends in the unit, its metadata holds section, range and reason. The
fields are in omq.base.settings and omq.base.settings_mail.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeVar, dataclass_transform

YEAR_S: Final = 366 * 86400
METADATA: Final = "omq"
_T = TypeVar("_T")


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


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def part(cls: type[_T], /) -> type[_T]:
    """A class of keys that omq.base.settings is made of. Its methods are made there, once: each of
    nine classes would make them for all keys so far, and every command would wait for that."""
    return dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)(cls)


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
