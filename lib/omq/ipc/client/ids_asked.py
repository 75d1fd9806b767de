"""Which messages a reader asks for by their id: the key that the manager looks up, and the whole id
that a message must have. Two ids may have the same 64-bit key if somebody makes them so; the reader
gets such a message, sees the difference here, and leaves it to others.

Errors: BadArgument, BadRequest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from omq.base import limits
from omq.base.errors import BadRequest, OmqError
from omq.format.message import id_hash
from omq.format.wire import Key
from omq.ipc.client.message import Message
from omq.ipc.wire import arguments

STRANGER: Final = "it has another id than was asked for, with the same key"
STRANGER_S: Final = 60
"""How long a message with the right key and another id is deferred: out of the way of who asks."""


@dataclass(frozen=True, slots=True)
class IdAsked:
    """An id, without the zeros at its end."""

    by: Key
    key: int
    identifier: bytes
    entry: int = 0  # of Key.CURSOR

    def meant(self, message: Message) -> bool:
        """Whether it has the id. One that cannot be read is handed on: its reader meets the
        error."""
        try:
            if self.by is Key.CORRELATION:
                return message.correlation_id == self.identifier
            return bytes.fromhex(message.message_id) == self.identifier.ljust(
                limits.MESSAGE_ID_BYTES, b"\0") if _is_hex(message.message_id) else (
                    message.message_id.encode() == self.identifier)
        except OmqError:
            return True


def _is_hex(text: str) -> bool:
    return len(text) == 2 * limits.MESSAGE_ID_BYTES


def under(qpool: int, entry: int) -> IdAsked:
    """One message, by its QPoolId and the entry where it was seen."""
    return IdAsked(Key.CURSOR, qpool, b"", entry)


def wish(correlation: bytes | str | None, message_id: bytes | str | None, prefix: str
         ) -> IdAsked | None:
    """What is asked for; None: nothing certain. `prefix`: of the manager's own ids, in hexadecimal
    digits."""
    if correlation is None and message_id is None:
        return None
    if correlation is not None and message_id is not None:
        raise BadRequest(reason="a message is asked for by correlation or by message_id, not both")
    said, name = ((correlation, "correlation") if correlation is not None
                  else (message_id, "message_id"))
    raw = arguments.identifier(said, name).rstrip(b"\0")
    if not raw:
        raise arguments.wrong(name, said, "an id of zeros is none")
    if name == "correlation":
        return IdAsked(Key.CORRELATION, id_hash(raw), raw)
    own, whole = bytes.fromhex(prefix), raw.ljust(limits.MESSAGE_ID_BYTES, b"\0")
    if whole.startswith(own):
        qpool = int.from_bytes(whole[len(own) :], "big")
        if not qpool:
            raise arguments.wrong(name, said, "an id of this instance has a number")
        return IdAsked(Key.MESSAGE_ID, qpool, whole.rstrip(b"\0"))
    return IdAsked(Key.MESSAGE_ID, id_hash(raw), raw)
