"""Messages of users who do not own the spool: looked at before they are believed.

The manager copies the owner's payloads unread: their CRC was computed by the submitter and is
checked by whoever reads them. What a member puts could be anything, with any CRC, and would be
found as damage by pool.writer and by every start, one event and one file in quarantine each. So a
member's payload is taken out of the channel, where he could still change it, and must be what the
request says: whole, with its CRC, its length, its ids and its expiry. What is in the place of
a large body is looked at by ipc.server.large_bodies (`named`).

Errors: BadRequest.
"""

from __future__ import annotations

from omq.base.checksum import crc32c
from omq.base.errors import BadRequest
from omq.core.engine.state import Party
from omq.format.findings import Finding
from omq.format.journal import FRAME
from omq.format.message import PART, Part, decode, decode_properties, id_hash
from omq.format.wire import PutFlag

_NAMES = ("flags", "size", "crc", "correlation", "lease", "argument", "parts", "length", "offset")
_AT = tuple(FRAME.names.index(name) for name in _NAMES)


def taken(party: Party, payload: memoryview, parts: int, said: tuple[int, int, int, int, int],
          key: int) -> bytes | memoryview:
    """A payload as it may be used. `said`: the request's flags, size, CRC, correlation hash and
    expiry; `key`: the hash of its message id. A copy when somebody could still change what has been
    checked."""
    if party.owns:
        return bytes(payload) if parts else payload
    copy = bytes(payload)
    _check(copy, parts, said, key)
    return copy


def taken_batch(party: Party, area: memoryview, count: int, length: int) -> memoryview:
    """The request area of a PUT_MANY: `count` frames and `length` bytes of payloads after them."""
    if party.owns:
        return area
    heads = count * FRAME.size
    copy = memoryview(bytes(area[: heads + length]))
    _check_several(copy, 0, count, length)
    return copy


def copy_several(area: memoryview, at: int, count: int, length: int, behind: int
                 ) -> memoryview | None:
    """A copy of a member's request with `count` frames at `at`, `length` bytes of their payloads,
    one after the other, and `behind` bytes more. None: it is not what it says."""
    end = at + count * FRAME.size + length + behind
    if end > len(area):
        return None
    copy = memoryview(bytes(area[:end]))
    try:
        _check_several(copy, at, count, length)
    except BadRequest:
        return None
    return copy


def copy_single(area: memoryview, at: int, length: int, said: tuple[int, int, int, int, int],
                key: int) -> memoryview | None:
    """The same of one message of one queue, of which the request itself says what `taken` asks."""
    end = at + length
    if end > len(area):
        return None
    copy = memoryview(bytes(area[:end]))
    try:
        _check(bytes(copy[at:]), 0, said, key)
    except BadRequest:
        return None
    return copy


def _check_several(copy: memoryview, at: int, count: int, length: int) -> None:
    """The messages of these frames; their payloads lie behind those, in order."""
    payloads, end = copy[at + count * FRAME.size :], 0
    for i in range(count):
        row = FRAME.unpack_from(copy, at + i * FRAME.size)
        flags, size, crc, correlation, key, expiry, parts, bytes_, _ = (row[each] for each in _AT)
        begin, end = end, end + bytes_
        if end > length:
            raise BadRequest(reason="messages do not fit the request")
        _check(bytes(payloads[begin:end]), parts, (flags, size, crc, correlation, expiry), key)


def _check(payload: bytes, parts: int, said: tuple[int, int, int, int, int], key: int) -> None:
    found = decode(payload)
    if isinstance(found, Finding):
        raise BadRequest(reason=f"not a message: {found.reason}")
    flags, size, crc, correlation, expiry = said
    head = found.descriptor
    properties = decode_properties(payload[found.properties_at : found.body_at])
    if (isinstance(properties, Finding) or len(found.parts) != parts
            or head.body != size
            or (not flags & PutFlag.CONTAINER and found.body_at + size != len(payload))
            or id_hash(head.correlation_id) != correlation or head.expiry != expiry
            or any(head.message_id) is not bool(flags & PutFlag.GIVEN_ID)
            or any(head.group_id) is not bool(flags & PutFlag.GROUPED)
            or id_hash(head.message_id) != key):
        raise BadRequest(reason="the message is not what the request says about it")
    if crc32c(payload) != crc:
        raise BadRequest(reason="the message does not have the checksum that it came with")


def read_parts(area: bytes | memoryview, at: int, count: int) -> list[Part]:
    """Queue parts of a request. BadRequest."""
    if at + count * PART.size > len(area):
        raise BadRequest(reason="queue parts do not fit the request")
    return [Part(*PART.unpack_from(area, at + i * PART.size)) for i in range(count)]
