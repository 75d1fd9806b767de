"""What the functions of the Python interface take: each argument is looked at once, before anything
happens, and one that is wrong is an error that names it.

Wrong types are refused, not converted: a body of text has no bytes until somebody says which, and
True is not a priority.

Errors: BadArgument; BadName, BadPriority, BadProperty for a value of the right type.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final

from omq.base import limits, names
from omq.base.clock import NS_PER_S
from omq.base.errors import BadArgument, BadProperty
from omq.format import property_values

SECONDS_MAX: Final = float(0xFFFFFFFF)
"""The pool keeps a time as seconds in 32 bits."""
UNIQUE_KEY_BYTES_MAX: Final = 1024
NOTHING_SAID: Final = (b"", b"", None, "", 0.0, None, 0, False, None)
"""The arguments of `put` from correlation_id to unique_key but for the group, where they say
nothing."""
_SHOWN: Final = 60
_HEX: Final = frozenset("0123456789abcdefABCDEF")  # int takes more: signs, spaces, underscores


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


def said(value: Any) -> int:
    """Bits of format.message.Said."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 0xFFFF:
        raise wrong("said", value, "it is omq.format.message.Said")
    return value


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
    """Names and values, as the texts that lie in a message (format.property_values)."""
    if not isinstance(value, Mapping):
        raise wrong(argument, value, "it is a dict of names and values")
    for name in value:
        if not isinstance(name, str):
            raise wrong(argument, name, "the name of a property is a str")
        names.check_property_name(name)
    found = property_values.texts_of(value)
    for name, content in found.items():
        if not _has_bytes(content):
            raise BadProperty(name=name, rule="it can be written as UTF-8")
    return found


def group(group_id: Any, number: Any, last: Any) -> None:
    """A group id as `identifier`, a number in it (0: none), and whether it is the last one. Most
    are bytes that need no further look: each message of a group is asked about."""
    if type(group_id) is not bytes or len(group_id) > limits.MESSAGE_ID_BYTES:
        raw = identifier(group_id, "group_id")
    else:
        raw = group_id
    if not raw.strip(b"\0"):
        raise wrong("group_id", group_id, "what has a number in a group has a group")
    if number or type(number) is not int:
        whole(number, "group_sequence", 0, (1 << 31) - 1)
    if last is not False and flag(last, "last_in_group") and not number:
        raise wrong("last_in_group", last, "the last message of a group has a group_sequence")


def identifier(value: Any, argument: str) -> bytes:
    """A message or correlation id: up to 24 bytes, or a str as `put` returns it: 48 hexadecimal
    digits, or a text of up to 24 bytes that stays one."""
    if isinstance(value, str):
        raw = names.id_bytes(value) if _has_bytes(value) else None
        if raw is None:
            raise wrong(argument, value, names.ID_RULE)
        return raw
    if isinstance(value, bytes) and len(value) <= limits.MESSAGE_ID_BYTES:
        return value
    raise wrong(argument, value, names.ID_RULE)


def own_message_id(value: Any) -> bytes:
    """The id of a message: an identifier, but not of zeros alone, which is none."""
    raw = identifier(value, "message_id")
    if raw and not raw.rstrip(b"\0"):
        raise wrong("message_id", value, "zeros alone are not an id")
    return raw


def _has_bytes(value: str) -> bool:
    """It can be written as UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def unique_key(value: Any, argument: str = "unique_key") -> bytes:
    """What makes a message unique, as its id: itself if it is short enough to be one, else its
    digest of 24 bytes."""
    raw = value.encode() if isinstance(value, str) and _has_bytes(value) else value
    if not isinstance(raw, bytes) or not raw.rstrip(b"\0") or len(raw) > UNIQUE_KEY_BYTES_MAX:
        raise wrong(argument, value, f"it is 1 to {UNIQUE_KEY_BYTES_MAX} bytes, or such a text")
    if len(raw) > limits.MESSAGE_ID_BYTES:
        return blake2b(raw, digest_size=limits.MESSAGE_ID_BYTES).digest()
    return identifier(value, argument)


def own_id(value: str, argument: str, prefix: str) -> int:
    """The QPoolId in an id that the manager gave; `prefix`: of its ids."""
    if (len(value) != 2 * limits.MESSAGE_ID_BYTES or not value.startswith(prefix)
            or not set(value[len(prefix) :]) <= _HEX):
        raise wrong(argument, value, "it is a qpool_id, or an id as the manager gives it; browse "
                    "finds the messages with an id of yours")
    return int(value[len(prefix) :], 16)
