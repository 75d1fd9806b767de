"""What precedes the bodies of messages that go out on a link, remembered: most messages say the
same, but for their bodies, their ids and the time at which they came.

Where the bytes around a body are equal, and what the manager says of a message, so is all that
`translation.encoded` makes of these: a head of the first such message is cut at the id that the
instance gave it and at its creation-time, and those of the next one are set in.

Invariants: 1. `encoded` is what `translation.encoded` is, byte for byte; 2. a message of which more
differs (an id of its own, an expiry, a group, a place for replies, how it failed, properties of
AMQP) is translated anew; 3. what is kept is bounded.
"""

from __future__ import annotations

from typing import Final

from omq.ipc.client.message import Message
from omq.services.amqp import bodies, translation
from omq.services.amqp.ids import PREFIX
from omq.services.amqp.untranslatable import UNREADABLE

HEADS_MAX: Final = 64
_BESIDE_MAX: Final = 1024
"""Bytes around a body that are remembered."""
_BODY: Final = PREFIX + "body"
_NS_PER_MS: Final = 1_000_000
_TIME: Final = b"\x83"  # the code of a timestamp: 8 bytes follow

_Said = tuple[bytes, bytes, int, bool, int]


class Heads:
    """Of one link."""

    def __init__(self) -> None:
        self._known: dict[_Said, tuple[bytes, bytes, bytes, str]] = {}

    def encoded(self, message: Message) -> bytes:
        """As `translation.encoded`, with its errors."""
        if message.noted or (parted := message.parted) is None:
            return translation.encoded(message)
        start, rest, body = parted
        said = start, rest, message.priority, message.persistent, message.attempts
        known = self._known.get(said)
        if known is None:
            return self._first(message, said)
        before, between, after, kind = known
        try:
            return b"".join((before, message.own_id.encode(), between, _created(message), after,
                             bodies.section(body, kind)))
        except UNREADABLE:  # what is not a body of this kind is for it to tell
            return translation.encoded(message)

    def _first(self, message: Message, said: _Said) -> bytes:
        made = translation.encoded(message)
        texts, known = message.texts, message.ids
        if (len(said[1]) > _BESIDE_MAX or not known.own or known.correlation or known.group_id
                or known.expiry_ns or known.replies
                or any(name.startswith(PREFIX) and name != _BODY for name in texts)):
            return made
        kind = texts.get(_BODY, "data")
        head = made.removesuffix(bodies.section(message.body, kind))
        # Of the properties these two alone are set, and nothing before them is as long as an id.
        before, own, rest = head.partition(message.own_id.encode())
        between, time, after = rest.partition(_created(message))
        if own and time:
            if len(self._known) >= HEADS_MAX:
                self._known.clear()
            self._known[said] = before, between, after, kind
        return made


def _created(message: Message) -> bytes:
    return _TIME + (message.put_time_ns // _NS_PER_MS).to_bytes(8, "big")
