"""Arguments of queue.declare as keys of queues.conf, or refused by their names (NETWORK: a table).

Errors: Refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from omq.services.amqp091.refusals import NOT_IMPLEMENTED, PRECONDITION_FAILED, Refused

REJECTS: Final = "reject-publish"
_ATTEMPTS_MAX: Final = 255
_DEPTH_MAX: Final = 2**31 - 1
_TTL_MAX_MS: Final = 100 * 366 * 86_400_000
_DEAD_EXCHANGE, _DEAD_KEY = "x-dead-letter-exchange", "x-dead-letter-routing-key"
_LENGTH, _OVERFLOW = "x-max-length", "x-overflow"


@dataclass(slots=True)
class Keys:
    """`keys`: in the words of queues.conf; `ttl_s`: the same as of a temporary queue; `dead`: the
    queue of a client that dead letters go to, "" for none; `expires`: x-expires was said."""

    keys: dict[str, str] = field(default_factory=dict)
    ttl_s: float | None = None
    dead: str = ""
    expires: bool = False


def read(arguments: Mapping[str, Any] | None) -> Keys:
    """Refused."""
    given, found = dict(arguments or {}), Keys()
    _lengths(given, found)
    if (ttl := given.pop("x-message-ttl", None)) is not None:
        ttl_ms = _number(ttl, "x-message-ttl", 0, _TTL_MAX_MS)
        found.ttl_s = ttl_ms / 1000
        found.keys["expiry_max_s"] = str(max(1, -(-ttl_ms // 1000)))
    if (limit := given.pop("x-delivery-limit", None)) is not None:
        found.keys["attempts_max"] = str(
            1 + _number(limit, "x-delivery-limit", 0, _ATTEMPTS_MAX - 1))
    if (most := given.pop("x-max-priority", None)) is not None:
        _number(most, "x-max-priority", 0, 255)  # every queue has 0 to 9
    if (expires := given.pop("x-expires", None)) is not None:
        _number(expires, "x-expires", 1, _TTL_MAX_MS)
        found.expires = True
    if _DEAD_EXCHANGE in given or _DEAD_KEY in given:
        if given.pop(_DEAD_EXCHANGE, None) != "":
            raise Refused(NOT_IMPLEMENTED, f"{_DEAD_EXCHANGE} is not there, but for the default "
                          "exchange")
        found.dead = _text(given.pop(_DEAD_KEY, None), _DEAD_KEY)
    _one_of(given, "x-queue-type", ("classic", "quorum"))
    _one_of(given, "x-queue-mode", ("default", "lazy"))
    for name in given:
        raise Refused(NOT_IMPLEMENTED, f"the argument {name[:64]} is not there")
    return found


def _lengths(given: dict[str, Any], found: Keys) -> None:
    overflow = given.pop(_OVERFLOW, None)
    if overflow not in (None, REJECTS):
        raise Refused(NOT_IMPLEMENTED, f"{_OVERFLOW} {str(overflow)[:32]} is not there: "
                      f"{REJECTS} is")
    if (length := given.pop(_LENGTH, None)) is not None:
        if overflow != REJECTS:
            raise Refused(NOT_IMPLEMENTED, f"{_LENGTH} without {_OVERFLOW} {REJECTS} is not there:"
                          " no message is dropped for a newer one")
        found.keys["max_depth"] = str(_number(length, _LENGTH, 1, _DEPTH_MAX))


def _number(value: Any, name: str, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise Refused(PRECONDITION_FAILED, f"{name} is a number from {least} to {most}")
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise Refused(PRECONDITION_FAILED, f"{name} is the name of a queue")
    return value


def _one_of(given: dict[str, Any], name: str, known: tuple[str, ...]) -> None:
    value = given.pop(name, None)
    if value is not None and value not in known:
        raise Refused(NOT_IMPLEMENTED, f"{name} {str(value)[:32]} is not there: "
                      f"{' and '.join(known)} are")
