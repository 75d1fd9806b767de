"""What the functions of the Python interface take: each argument is looked at once, before anything
happens, and one that is wrong is an error that names it.

Wrong types are refused, not converted: a body of text has no bytes until somebody says which, and
True is no priority.

Errors: BadArgument; BadName, BadPriority, BadProperty for a value of the right type.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from omq.base import limits, names
from omq.base.clock import NS_PER_S
from omq.base.errors import BadArgument, BadProperty

SECONDS_MAX: Final = float(0xFFFFFFFF)
"""The pool keeps a time as seconds in 32 bits."""
_SHOWN: Final = 60


def wrong(argument: str, value: object, rule: str) -> BadArgument:
    """The error for `argument`."""
    return BadArgument(argument=argument, value=names.escape(repr(value), _SHOWN), rule=rule)


def queue(value: Any, argument: str = "queue") -> str:
    """The name of a queue."""
    if not isinstance(value, str):
        raise wrong(argument, value, "it is the name of a queue, a str")
    return names.check_queue_name(value)


def queues(value: Any, argument: str = "queues") -> tuple[str, ...]:
    """The names of queues; not one name, whose letters would be taken for them."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise wrong(argument, value, "it is a list or tuple of names of queues")
    return tuple(queue(each, argument) for each in value)


def body(value: Any, argument: str = "body") -> bytes:
    """Bytes."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise wrong(argument, value, "it is bytes; a str has to be encoded, as by .encode()")


def priority(value: Any, argument: str = "priority") -> int:
    """0 to 9, or urgent, normal, low."""
    if isinstance(value, str):
        return names.parse_priority(value)
    return names.check_priority(whole(value, argument, 0, limits.PRIORITIES - 1, checked=False))


def whole(value: Any, argument: str, low: int, high: int, *, checked: bool = True) -> int:
    """An int from `low` to `high`, both included; no bool."""
    if isinstance(value, bool) or not isinstance(value, int) or (
            checked and not low <= value <= high):
        raise wrong(argument, value, f"it is an int, {low} to {high}")
    return value


def seconds(value: Any, argument: str, most: float = SECONDS_MAX) -> float:
    """A time in seconds: 0 or more, and no more than `most`."""
    if (isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value)
            or not 0 <= value <= most):
        raise wrong(argument, value, f"it is a number of seconds, 0 to {most:g}")
    return float(value)


def moment(value: Any, argument: str) -> int:
    """A date and time as wall clock ns; without a time zone it is local time."""
    if not isinstance(value, datetime):
        raise wrong(argument, value, "it is a datetime.datetime")
    try:
        ns = int(value.timestamp() * 1000) * 1_000_000
    except (OverflowError, OSError, ValueError) as error:
        raise wrong(argument, value, "this system has no such time") from error
    if ns > SECONDS_MAX * NS_PER_S:
        raise wrong(argument, value, "it is before the year 2106")
    return ns


def flag(value: Any, argument: str) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise wrong(argument, value, "it is True or False")
    return value


def text(value: Any, argument: str) -> str:
    """A str."""
    if not isinstance(value, str):
        raise wrong(argument, value, "it is a str")
    return value


def properties(value: Any, argument: str = "properties") -> Mapping[str, str]:
    """Names and texts."""
    if not isinstance(value, Mapping):
        raise wrong(argument, value, "it is a dict of str to str")
    for name, content in value.items():
        if not isinstance(name, str):
            raise wrong(argument, name, "the name of a property is a str")
        if not isinstance(content, str):
            raise BadProperty(name=name, rule=f"its value is a str, not {type(content).__name__}")
    return value


def identifier(value: Any, argument: str) -> bytes:
    """A message or correlation id: up to 24 bytes, or a str as `put` returns it: 48 hexadecimal
    digits, or a text of up to 24 bytes that stays one."""
    if isinstance(value, str):
        raw = names.id_bytes(value)
        if raw is None:
            raise wrong(argument, value, names.ID_RULE)
        return raw
    if isinstance(value, bytes) and len(value) <= limits.MESSAGE_ID_BYTES:
        return value
    raise wrong(argument, value, names.ID_RULE)
