"""A client holds more messages than one request has room for: each request that grows with what it
holds is split.

| request | what grows | where it is split |
|---|---|---|
| SETTLE, NEXT, GET | settlements; at the end of a reader, all that it holds | ipc.client.settling |
| BACKOUT, STAGE, COMMIT, PREPARE | messages that a unit took, and puts | ipc.client.unit |
| MOVE_MANY | messages that move | ipc.client.moving |
| PUT_MANY | messages of a batch | ipc.client.put_many |
| register, after a restart of the manager | messages in hand | ipc.client.registration |
"""

from __future__ import annotations

import omq
from omq.core.history.frames import History
from omq.format.journal import FrameType
from omq.ipc.client.connection import Client
from omq.ipc.client.reader import Reader
from tests.process.instance import MANAGER, WRITER, Instance
from tests.waiting import until

CHANNEL_BYTES = 96 << 10
"""Half of it is for requests: 1,228 settlements of 40 bytes."""
MANY = 3_000
LINE_FULL = 20_000


def start(instance: Instance) -> None:
    instance.settings(channel_bytes=CHANNEL_BYTES, container_threshold_bytes=4096)
    instance.start(MANAGER, WRITER)


def fill(client: Client, count: int = MANY) -> None:
    for _ in range(0, count, 500):
        client.put_many("A", [b"x"] * 500)


def hold(reader: Reader, count: int = MANY) -> list[omq.Message]:
    """So many in hand."""
    held: list[omq.Message] = []
    while len(held) < count:
        held += reader.next(min(1000, count - len(held)), timeout_s=30)
    return held


def depth(instance: Instance) -> tuple[int, int]:
    """Ready, and in hand."""
    with instance.connect() as client:
        facts = client.queues.show("A").facts
        return int(facts["ready"]), int(facts["active"])


def reason(qpool: int) -> str:
    return f"reason of {qpool}" + "." * (qpool % 100)


def test_a_reader_that_holds_many_is_closed(omq_instance: Instance) -> None:
    start(omq_instance)
    with omq_instance.connect() as client:
        fill(client)
        with client.reader("A") as reader:
            hold(reader)
        assert depth(omq_instance) == (MANY, 0)
        with client.reader("A") as reader:
            assert {message.attempts for message in hold(reader)} == {0}, "no attempt is counted"


def test_settlements_that_wait_for_the_next_request_go_in_several(omq_instance: Instance) -> None:
    start(omq_instance)
    with omq_instance.connect() as client:
        fill(client)
        with client.reader("A", ack="batch") as reader:
            for number, message in enumerate(hold(reader)):
                if number % 2:
                    message.done()
                else:
                    message.fail(reason(message.qpool_id))
            assert reader.lost == 0
        until(lambda: depth(omq_instance) == (MANY // 2, 0))
    told = {each.qpool: each.text for each in History(omq_instance.paths).read(
        lambda frames: frames["type"] == FrameType.DEFER)}
    assert len(told) == MANY // 2
    assert all(text == reason(qpool) for qpool, text in told.items())


def test_more_than_a_line_holds_is_claimed_after_a_restart(omq_instance: Instance) -> None:
    """A line to the manager has 256 KiB."""
    omq_instance.settings(messages_max=40_000, queue_entries_max=40_000)
    omq_instance.start(MANAGER, WRITER)
    with omq_instance.connect() as client:
        fill(client, LINE_FULL)
        with client.reader("A") as reader:
            held = hold(reader, LINE_FULL)
            omq_instance.kill(MANAGER)
            omq_instance.start()
            for message in held:
                message.done()
            assert reader.lost == 0
        assert depth(omq_instance) == (0, 0)
