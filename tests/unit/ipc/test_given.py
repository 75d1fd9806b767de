"""The copy of a payload for a reader that may not read the spool, when it cannot be made."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from omq.base.checksum import crc32c
from omq.base.errors import BodyDamaged, BodyUnavailable
from omq.core.engine.state import Party
from omq.core.engine.waiting import Waiter
from omq.fast.handed_messages import Hold, Rows
from omq.format.wire import GIVEN, REPLY, GivenFlag
from omq.ipc.client.bodies import pieces_of
from omq.ipc.client.message import Message
from omq.ipc.server.next_reply import write_given
from omq.ipc.server.sessions import Session
from omq.storage.payloads import PayloadReader
from tests.unit.engine.world import make_world


class Bodies:
    def __init__(self, data: bytes | None) -> None:
        self.data = data

    def read(self, word: int, offset: int, length: int, qpool: int) -> bytes:
        if self.data is None:
            raise BodyUnavailable(qpool_id=qpool, where=offset, reason="test")
        return self.data[:length].ljust(length, b"x")


def session(room: int) -> Any:
    answered: list[int] = []
    return SimpleNamespace(trusted=False, reply=memoryview(bytearray(room)), answered=answered,
                           answer=lambda sequence, count, qpool, lsn: answered.append(count))


@pytest.mark.parametrize(("room", "data", "copied"), [
    (4096, b"payload", True), (4096, None, False), (REPLY.size + GIVEN.size + 4, b"payload", False),
])
def test_a_message_is_handed_out_whether_it_can_be_copied_or_not(
        tmp_path: Path, room: int, data: bytes | None, *, copied: bool) -> None:
    world = make_world(tmp_path / "spool")
    world.put()
    entries = [verdict.entry for verdict in world.give(1)]
    to = session(room)
    waiter = Waiter(Party(1, 0, 1, 0, 1), 0, 1, 1, 0, auxiliary=False)
    write_given(world.core.t, cast(Session, to), waiter, entries, cast(PayloadReader, Bodies(data)),
                9)
    assert to.answered == [1], "not refused: else nobody could say what becomes of it"
    row = dict(zip(GIVEN.names, GIVEN.unpack_from(to.reply, REPLY.size), strict=True))
    assert row["entry"] == entries[0]
    assert bool(row["flags"] & GivenFlag.INLINE) is copied
    if copied:
        at = row["inline"]
        assert bytes(to.reply[at : at + 7]) == b"payload"
    world.writer.close()
    world.core.volatile.close()  # type: ignore[attr-defined]


def test_damage_of_a_copy_is_met_when_the_body_is_asked_for() -> None:
    row = (0, 0, 4, int(GivenFlag.INLINE), 7, 8, 0, 0, 7, crc32c(b"payload"), 7, 0, 0, 0, 128)
    reply = bytearray(200)
    GIVEN.pack_into(reply, REPLY.size, *row)
    reply[128:135] = b"spoiled"
    hold = Hold(None)
    (message,) = Rows(hold, hold._held, None, None, Message).take(memoryview(reply), 1, False)  # noqa: FBT003
    assert hold._held == {7: message}
    with pytest.raises(BodyDamaged, match="7"):
        message.body  # noqa: B018


@pytest.mark.parametrize(("size", "crc", "error"), [
    (4, crc32c(b"body"), None), (5, crc32c(b"body"), BodyUnavailable),
    (3, crc32c(b"bod"), BodyUnavailable), (4, 1, BodyDamaged)])
def test_a_container_that_was_passed_is_what_its_message_says(
        size: int, crc: int, error: type[Exception] | None) -> None:
    descriptor = os.memfd_create("container")
    os.write(descriptor, b"body")
    pieces = pieces_of(descriptor, size, crc, 7, "here")
    if error is None:
        assert b"".join(pieces) == b"body"
    else:
        with pytest.raises(error, match="7"):
            b"".join(pieces)
    with pytest.raises(OSError):
        os.fstat(descriptor)
