"""States of deliveries and errors, as bytes to be sent and as fields that came (ISO 19464 part 2,
2.6, 3.4; part 4, 4.5.8)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, NamedTuple

from omq.amqp.whole_values import decoded
from omq.fast.amqp_encoding import encoded
from omq.format.amqp_performatives import DECLARED, ERROR, REJECTED, TRANSACTIONAL, number
from omq.format.amqp_types import Described, Malformed, Symbol, Ulong

ACCEPTED_STATE: Final = b"\x00\x53\x24\x45"
RELEASED_STATE: Final = b"\x00\x53\x26\x45"
FAILED_STATE: Final = b"\x00\x53\x27\xc0\x02\x01\x41"
"""Modified: the delivery has failed."""
FRAME_TOO_SMALL: Final = "amqp:frame-size-too-small"
ERROR_OVERHEAD: Final = 160
"""Bytes of a frame around the description of an error: its name, and the performative."""
DISPOSITION_OVERHEAD: Final = 48
"""Bytes of a frame around a state."""
_REJECTED: Final = b"\x00\x53\x25"


class Condition(NamedTuple):
    """Why a delivery was rejected, or a link, session or connection ended."""

    name: str
    description: str = ""


def error(condition: Condition | None) -> Described | None:
    """As a value."""
    if condition is None:
        return None
    return Described(Ulong(ERROR), [Symbol(condition.name.encode("ascii", "replace").decode()),
                                    condition.description.encode("utf-8", "replace").decode()])


def within(condition: Condition | None, frame_max: int) -> Condition | None:
    """With as much of its description as a frame has room for, next to what else that says."""
    if condition is None:
        return None
    raw, most = condition.description.encode("utf-8", "replace"), frame_max - ERROR_OVERHEAD
    return condition if len(raw) <= most else Condition(
        condition.name, raw[:most].decode("utf-8", "ignore"))


def fitted(state: bytes, frame_max: int) -> bytes:
    """A state for a disposition in a frame of that size: of a reason so much as fits, of what else
    a peer said (annotations, which it knows) nothing."""
    most = frame_max - DISPOSITION_OVERHEAD
    if len(state) <= most:
        return state
    if state.startswith(_REJECTED):
        with suppress(Malformed):
            fields = fields_of(state[len(_REJECTED) :])
            said = within(condition_of(fields[0] if fields else None), frame_max)
            if said is not None and len(cut := rejected(*said)) <= most:
                return cut
    return state[: len(_REJECTED)] + b"\x45"


def condition_of(value: Any) -> Condition | None:
    """What a value that came says; None: nothing. Malformed."""
    if value is None:
        return None
    if (not isinstance(value, Described) or number(value.descriptor) != ERROR
            or not isinstance(value.value, list) or not value.value
            or not isinstance(value.value[0], str)):
        raise Malformed("an error is none")
    description = value.value[1] if len(value.value) > 1 else None
    return Condition(str(value.value[0]), description if isinstance(description, str) else "")


def rejected(name: str, description: str) -> bytes:
    return encoded(Described(Ulong(REJECTED), [error(Condition(name, description))]))


def declared(transaction: bytes) -> bytes:
    return encoded(Described(Ulong(DECLARED), [transaction]))


def in_transaction(transaction: bytes) -> bytes:
    """Accepted, as soon as the transaction is."""
    return encoded(Described(Ulong(TRANSACTIONAL), [transaction, Described(Ulong(0x24), [])]))


def state_bytes(outcome: int, fields: bytes) -> bytes:
    """A state that came, to be said back."""
    return encoded(Ulong(outcome)).join((b"\x00", fields or b"\x45"))


def fields_of(raw: bytes) -> list[Any]:
    """Of a state that came. Malformed."""
    found = decoded(raw) if raw else []
    if not isinstance(found, list):
        raise Malformed("the state of a delivery is a list")
    return found
