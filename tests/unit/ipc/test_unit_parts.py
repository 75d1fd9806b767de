"""A unit of work in parts: each row and each message once, in order, in requests that fit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from omq.fast.handed_messages import done_rows
from omq.format.journal import FRAME
from omq.format.wire import SETTLE
from omq.ipc.client.message import Message
from omq.ipc.client.unit_parts import ROWS_MAX, parts_of
from omq.ipc.wire.outgoing import Encoded

ROOM = 500_000


@pytest.mark.parametrize(("taken", "new"), [
    (0, 0), (1, 1), (ROWS_MAX, 3), (ROWS_MAX + 1, 1500), (3 * ROWS_MAX, 0), (5000, 5000)])
def test_each_once(taken: int, new: int) -> None:
    messages = [cast(Message, SimpleNamespace(entry=i, qpool_id=i + 1, lease=i))
                for i in range(taken)]
    bodies = [cast(Encoded, SimpleNamespace(payload=bytes(200), number=i)) for i in range(new)]
    parts = list(parts_of(messages, bodies, ROOM))
    assert [row for rows, _ in parts for row in rows] == done_rows(messages)
    assert [each for _, heads in parts for each in heads] == bodies
    for rows, heads in parts:
        assert len(rows) * SETTLE.size + len(heads) * (FRAME.size + 200) <= ROOM
