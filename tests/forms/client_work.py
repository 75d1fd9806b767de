"""Random work of the client's side of the fast path, and a line for each piece of it.

    python -m tests.forms.client_work SEED ROUNDS

Replies, payloads and notes are right, mutilated or nothing but random bytes. Two forms that do the
same print the same lines (tests/forms/test_client.py); what they are is compared with
ipc.wire.outgoing and format.message on the way.
"""

from __future__ import annotations

import random
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from omq.base.checksum import crc32c
from omq.base.errors import BodyDamaged, BodyUnavailable, LeaseLost
from omq.base.paths import SpoolPaths
from omq.fast import FORM
from omq.fast.batch import Batch, alike_bodies, bodies_of, id_texts, marks_of
from omq.fast.client_request import UNSENT, Asking
from omq.fast.handed_messages import Extent, Facts, Hold, Rows
from omq.fast.reader_note import Note
from omq.format import message as message_format
from omq.format.findings import Finding
from omq.format.message import Descriptor, Part
from omq.format.wire import GIVEN, NOTE_BYTES, REPLY, GivenFlag, Settlement
from omq.ipc.wire.outgoing import Outgoing, alike_head, encode_outgoing, encode_plain

_MANY = 40


class Files:
    """storage.payloads.PayloadReader over one file of bytes; a place beyond it is unavailable."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads = 0

    def read(self, word: int, offset: int, length: int, qpool: int = 0) -> bytes:
        self.reads += 1
        if word != 1 or offset + length > len(self.data):
            raise BodyUnavailable(qpool_id=qpool, where="here", reason="it ends")
        return self.data[offset : offset + length]


class Seen(Facts):
    """A message whose payload is asked for one by one when its extent cannot be read."""

    __slots__ = ()

    def _read(self) -> bytes:
        data: bytes = self._wire.read(self._word, self._offset, self._length, self.qpool_id)
        return data

    def _damaged(self, got: int) -> BodyDamaged:
        return BodyDamaged(qpool_id=self.qpool_id, where="here", expected=self._crc, got=got)


def value(r: random.Random) -> Any:
    """Of a property: a text, or of another type."""
    return r.choice(("x" * r.choice((0, 5, 300)), "x", r.getrandbits(60), -r.getrandbits(63),
                     r.random(), r.random() < 0.5, r.randbytes(r.randrange(9)),
                     datetime.fromtimestamp(r.getrandbits(32), UTC)))


def payload(r: random.Random) -> bytes:
    """Often a right one."""
    properties = message_format.encode_properties(
        Outgoing(properties={f"p{i}": value(r) for i in range(r.randrange(4))}).properties)
    parts = [Part(3 + i, 4) for i in range(r.choice((0, 0, 2, 300)))]
    made = bytearray(message_format.encode(
        Descriptor(), parts, properties, r.randbytes(r.choice((0, 1, 50, 1000))), 0, 0))
    for _ in range(r.choice((0, 0, 0, 1, 3))):
        made[r.randrange(min(16, len(made)))] = r.choice((0, 1, 127, 128, 255))
    return bytes(made[: r.choice((len(made), len(made), len(made), r.randrange(len(made))))])


def rows(r: random.Random) -> str:
    """A reply with rows, mutilated, and what a reader makes of it."""
    pieces = [payload(r) for _ in range(r.choice((1, 1, 2, 7, _MANY)))]
    reply = bytearray(REPLY.size + 64 * len(pieces) + 4096)
    at = r.choice((0, 100))
    for i, piece in enumerate(pieces):
        inline = r.random() < 0.2 and len(piece) < 4096
        place = REPLY.size + 64 * len(pieces)
        GIVEN.pack_into(reply, REPLY.size + 64 * i, i, 3, 4, int(GivenFlag.INLINE) * inline | 1,
                        1000 + i, 50 + i, 1, at, len(piece), crc32c(piece), 7, -5, i % 4, i, place)
        if inline:
            reply[place : place + len(piece)] = piece
        at += len(piece)
    for _ in range(r.choice((0, 0, 1, 5))):
        where = r.randrange(REPLY.size, REPLY.size + 64 * len(pieces))
        reply[where : where + 2] = r.choice((b"\xff\xff", b"\0\0", r.randbytes(2)))
    if r.random() < 0.1:
        reply[REPLY.size :] = r.randbytes(len(reply) - REPLY.size)
    files = Files(bytes(100 if pieces and at - sum(map(len, pieces)) else 0) + b"".join(pieces))
    note, area = Note(), memoryview(bytearray(NOTE_BYTES))
    note.attach(area, 9)
    hold = Hold(note)
    taken = Rows(hold, hold._held, files, files, Seen).take(
        memoryview(reply), len(pieces) + r.choice((0, 0, 0, 5)), r.random() < 0.8)
    said = [f"{len(taken)}"]
    hold._list = 70 * (r.random() < 0.5)
    for message in r.sample(taken, len(taken)):
        said.append(look(message))
        if r.random() < 0.7:
            kind = r.choice(list(Settlement))
            text = r.randbytes(r.choice((0, 0, 3, 600)))
            try:
                hold.settled(message, kind, r.choice((0, 5 * 10**9)), text)
            except LeaseLost:
                said.append("lost")
    said.append(f"{crc32c(area):x} {crc32c(repr([e[:2] for e in hold._records]).encode()):x} "
                f"{hold._text_bytes} {sorted(hold._held)} {files.reads}")
    note.detach()
    return " ".join(said)


def look(message: Any) -> str:
    """Its fields and its payload, or what is wrong with it."""
    fields = [message.entry, message.priority, message._flags, message.qpool_id, message.lease,
              message._word, message._offset, message._length, message._crc, message.size,
              message.put_time_ns, message.attempts, message.defers]
    try:
        raw = message._load()
    except (BodyDamaged, BodyUnavailable) as error:
        return f"{fields} {error}"
    known = message_format.bounds(raw)
    assert not isinstance(known, Finding)
    assert known == (message._properties_at, message._body_at), known
    return f"{fields} {crc32c(raw):x} {known}"


def bounded(r: random.Random) -> str:
    """What is no payload is none for both."""
    raw = payload(r) or b"\0"
    found, message = message_format.bounds(raw), Seen()
    message._extent = Extent(None, 0, 0, len(raw), raw)
    message._offset, message._length, message._crc = 0, len(raw), crc32c(raw)
    message.qpool_id = 1
    try:
        message._load()
    except BodyDamaged:
        assert isinstance(found, Finding)
        return "none"
    assert (message._properties_at, message._body_at) == found
    return str(found)


def batch(r: random.Random) -> str:
    """Bodies as the manager takes them: those of encode_plain, one by one."""
    bodies = [r.randbytes(r.choice((0, 1, 100, 100, 1000))) for _ in range(r.randrange(1, 60))]
    if r.random() < 0.05:
        bodies *= 40
    made, start, room, out = Batch(), 0, r.choice((2000, 9000, 1 << 20)), []
    while start < len(bodies):
        count = made.take(7, bodies, start, room)
        assert 0 < count <= 1000
        said, at, heads = [encode_plain(7, body) for body in bodies[start : start + count]], 0, []
        for each in said:
            heads.append(each.head(at))
            at += len(each.payload)
        assert made.data == b"".join([*heads, *(each.payload for each in said)])
        assert len(made.data) <= room
        assert (made.count, made.length) == (count, at)
        out.append(count)
        start += count
    first = r.getrandbits(60)
    ids = id_texts("ab", first, 3)
    assert ids == [f"ab{first + i:016x}" for i in range(3)]
    return f"{out} {ids}"


MORE: Final[tuple[dict[str, Any], ...]] = (
    {"priority": 4}, {"priority": 5}, {"priority": "urgent"}, {"persistent": True},
    {"persistent": False}, {"queues": ("HERE",)}, {"queues": ("THERE",)},
    {"queues": ("HERE", "THERE")}, {"properties": {"a": "b"}}, {"correlation_id": b"c"},
    {"properties": {"a": 3, "b": True}},
    {"message_id": b"m"}, {"expiry_s": 0.0}, {"reply_to": "THERE"}, {"delay_s": 9.0},
    {"at": datetime(2099, 1, 1, tzinfo=UTC)}, {"group_id": b"g"},
    {"group_id": b"g", "group_sequence": 1, "last_in_group": True})


def nothing_but_bodies(r: random.Random) -> str:
    """What is taken for a body alone is encoded like one."""
    messages: list[Any] = []
    for _ in range(r.randrange(6)):
        body = r.randbytes(r.choice((0, 9, 100, 101)))
        more = {} if r.random() < 0.7 else r.choice(MORE)
        messages.append(Outgoing(body, **more) if r.random() < 0.8 else body)
        if r.random() < 0.05:
            messages.append(bytearray(body))
    found = bodies_of(messages, Outgoing, "HERE", 100)
    bodies = [getattr(each, "body", each) for each in messages]
    assert found == (bodies if all(map(_is_plain, messages)) else None)
    return str(None if found is None else len(found))


def _is_plain(message: Any) -> bool:
    """By the way that everything goes."""
    if not isinstance(message, bytes | Outgoing):
        return False
    said = message if isinstance(message, Outgoing) else Outgoing(message)
    if len(said.body) > 100:
        return False
    queues = [7 if name == "HERE" else 8 for name in said.queues] or [7]
    encoded = encode_outgoing(said, queues, 8 if said.reply_to else 0, SpoolPaths(Path("/none")),
                              100, "")
    return encoded == encode_plain(7, said.body)


GROUPS: Final[tuple[dict[str, Any], ...]] = (
    {}, {"group_id": b"g"}, {"group_id": "h"}, {"group_id": b"\0\1" * 12},
    {"group_id": "a1" * 24, "group_sequence": 9},
    {"group_id": b"i", "group_sequence": (1 << 31) - 1, "last_in_group": True})


def members(r: random.Random) -> str:
    """What differs in bodies and groups alone has the bytes that each has by itself."""
    more = r.choice(({}, {"priority": 7}, {"persistent": False}, {"properties": {"a": 3}}))
    first = Outgoing(r.randbytes(9), **more)
    messages = [first]
    for _ in range(r.randrange(60)):
        made = Outgoing(r.randbytes(r.choice((0, 1, 100))), **{**more, **r.choice(GROUPS)})
        object.__setattr__(made, "properties", first.properties)
        messages.append(made)
    bodies = alike_bodies(messages, Outgoing, "HERE", 100)
    assert bodies == [each.body for each in messages]
    made_batch, start, out = Batch(), 0, []
    room, marks = r.choice((2000, 9000, 1 << 20)), marks_of(messages)
    while start < len(messages):
        count = made_batch.take(7, bodies, start, room, *alike_head(first, "who"), marks)
        heads, payloads, at = [], [], 0
        for each in messages[start : start + count]:
            said = encode_outgoing(each, [7], 0, SpoolPaths(Path("/none")), 100, "who")
            heads.append(said.head(at))
            payloads.append(said.payload)
            at += len(said.payload)
        assert made_batch.data == b"".join(heads + payloads)
        assert len(made_batch.data) <= room
        out.append(count)
        start += count
    return f"{out} {crc32c(made_batch.data):x}"


def nothing_is_sent(r: random.Random) -> str:
    """Without a queue nothing is touched."""
    asking, area = Asking(-1, -1, 1, bytes(16), 1), memoryview(bytearray(64))
    said = asking.ask(area, area, b"x", r.randrange(9), *[0] * 13)
    assert said == UNSENT
    assert not any(area)
    return str(asking.sends)


def main(arguments: list[str]) -> int:
    """Print a line for each piece of work."""
    r = random.Random(int(arguments[0]))
    for _ in range(int(arguments[1])):
        for work in (rows, bounded, batch, nothing_but_bodies, members, nothing_is_sent):
            print(work(r))
    print(f"form {FORM}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
