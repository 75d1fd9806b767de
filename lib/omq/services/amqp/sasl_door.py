"""The door of an AMQP connection: the bytes before the AMQP header (ISO 19464 part 5).

    protocol header   "AMQP" 0 1.0.0: no SASL; "AMQP" 3 1.0.0: SASL first
    frame             size (4, big endian), offset in words (1, here 2), type 1, two unused bytes,
                      then one described list: mechanisms 0x40, init 0x41, challenge 0x42,
                      response 0x43, outcome 0x44

The connection (omq.amqp) sees what comes after it.

Invariants: 1. nothing after the handshake is looked at before `outcome` was ACCEPTED; 2. at most
BYTES_MAX bytes are kept; 3. nothing here looks at a password.

Errors: NotAmqp: what came is not AMQP, with what is to be answered before the line is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from omq.amqp.whole_values import decoded
from omq.format.amqp_performatives import SASL_INIT, number
from omq.format.amqp_types import Described, Malformed, Symbol

PLAIN_HEADER: Final = b"AMQP\x00\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
OLDER: Final = b"AMQP\x00\x00\x09\x01"
"""The header of AMQP 0-9-1, which has a connection of its own (services.amqp091)."""
BYTES_MAX: Final = 4096
"""Of a frame of SASL; the standard says 512, names and passwords of some clients are longer."""

_HEAD: Final = 8


class Outcome(IntEnum):
    """The codes of sasl-outcome."""

    ACCEPTED = 0
    REFUSED = 1  # wrong name or password
    LATER = 4  # cannot be checked now


class NotAmqp(Exception):
    """No AMQP: this is answered, and the line is cut."""

    def __init__(self, reason: str, answer: bytes = b"") -> None:
        super().__init__(reason)
        self.answer = answer


@dataclass(frozen=True, slots=True, repr=False)
class SaslResponse:
    """A client says who it is. It has no repr: a password belongs in no log."""

    mechanism: str
    response: bytes

    def credentials(self) -> tuple[str, str] | None:
        """Name and password of PLAIN (RFC 4616); None: it is not such a response."""
        try:
            parts = self.response.decode("utf-8").split("\0")
        except UnicodeDecodeError:
            return None
        if len(parts) != 3 or not parts[1] or parts[0] not in ("", parts[1]):
            return None
        return parts[1], parts[2]


def mechanisms(names: Sequence[str]) -> bytes:
    """The header of SASL and the frame that offers these."""
    array = b"".join(len(name).to_bytes(1, "big") + name.encode() for name in names)
    content = b"\xe0" + bytes((len(array) + 2, len(names), 0xA3)) + array
    return SASL_HEADER + _frame(0x40, content)


def outcome(code: Outcome) -> bytes:
    """The end of the exchange."""
    return _frame(0x44, bytes((0x50, code)))


def _frame(descriptor: int, content: bytes) -> bytes:
    body = bytes((0x00, 0x53, descriptor, 0xC0, len(content) + 1, 1)) + content
    return (len(body) + _HEAD).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


class SaslDoor:
    """What comes in, until somebody has said who it is. `rest`: what came after that."""

    def __init__(self, offered: Sequence[str]) -> None:
        self._offered = tuple(offered)
        self.greeted = False
        self.rest = b""

    def take(self, data: bytes) -> tuple[bytes, SaslResponse | None]:
        """(what is to be sent, who asks to come in). A client without SASL asks as ANONYMOUS of its
        own accord, with mechanism "". NotAmqp."""
        self.rest += data
        answer = b""
        if not self.greeted:
            if len(self.rest) < _HEAD:
                self._check_start()
                return b"", None
            head = self.rest[:_HEAD]
            if head == PLAIN_HEADER and "ANONYMOUS" in self._offered:
                return b"", SaslResponse("", b"")
            if head != SASL_HEADER:
                raise NotAmqp("it does not begin as AMQP 1.0 with SASL does", SASL_HEADER)
            self.rest, self.greeted = self.rest[_HEAD:], True
            answer = mechanisms(self._offered)
        return answer, self._init()

    def _check_start(self) -> None:
        if not any(each.startswith(self.rest) for each in (PLAIN_HEADER, SASL_HEADER)):
            raise NotAmqp("it does not begin as AMQP 1.0 does", SASL_HEADER)

    def _init(self) -> SaslResponse | None:
        if len(self.rest) < _HEAD:
            return None
        size = int.from_bytes(self.rest[:4], "big")
        offset = self.rest[4] * 4
        if not _HEAD <= offset < size <= BYTES_MAX or self.rest[5] != 1:
            raise NotAmqp("a frame of SASL was to come")
        if len(self.rest) < size:
            return None
        frame, self.rest = self.rest[offset:size], self.rest[size:]
        return _asked(frame)


def _asked(frame: bytes) -> SaslResponse:
    try:
        found = decoded(frame)
    except Malformed as error:
        raise NotAmqp("a frame of SASL cannot be read") from error
    if (not isinstance(found, Described) or number(found.descriptor) != SASL_INIT
            or not isinstance(found.value, list) or not found.value
            or not isinstance(found.value[0], Symbol)):
        raise NotAmqp("sasl-init was to come")
    response = found.value[1] if len(found.value) > 1 else None
    return SaslResponse(str(found.value[0]), response if isinstance(response, bytes) else b"")
