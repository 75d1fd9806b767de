"""What a batch does with messages that do not go out: none is lost, whatever failed."""

from __future__ import annotations

import time
from typing import Any

import pytest

from omq.base import limits
from omq.base.errors import QueueFull
from omq.base.limits import AMQP_TTL_MAX_S
from omq.base.settings import Settings
from omq.format.message import encode_properties
from omq.ipc.client.remote_header import REMOTE_QUEUE
from omq.ipc.wire.outgoing import Outgoing
from tests.process.amqp_world import needs_proton

needs_proton()

from omq.services.channel.arrival import dead_letter, reason_of  # noqa: E402
from omq.services.channel.batch import Reach, Taken, Taker  # noqa: E402
from omq.services.channel.definition import made  # noqa: E402
from omq.services.channel.names import BatchName  # noqa: E402
from omq.services.channel.parcel import opened  # noqa: E402

REACH = Reach(0, 0)
HUGE: dict[str, Any] = {"group_id": "ab", "group_sequence": 1 << 33}


class Native:
    """A message in hand."""

    body, priority, attempts, redelivered = b"x", 4, 0, False
    message_id, correlation, group_id, reply_to = "ab", "", "", ""
    group_sequence, last_in_group, expiry_ns, size, said = 0, False, 0, 1, 0

    def __init__(self, *, persistent: bool = True, **changed: Any) -> None:
        self.persistent, self.texts = persistent, {REMOTE_QUEUE: "Q"}
        vars(self).update(changed)


class Unit:
    """A unit of work that gives what it is told to; `left`: what its end takes off the queue."""

    def __init__(self, *found: list[Native] | Exception) -> None:
        self.found, self.open, self.full = list(found), True, False
        self.has: list[Native] = []
        self.put_count = 0
        self.left: list[Native] = []

    def next(self, _queue: str, n: int, _wait_s: float) -> list[Native]:
        found = self.found.pop(0) if self.found else []
        if isinstance(found, Exception):
            raise found
        assert len(found) <= n
        self.has += found
        return found

    def part_with(self, messages: list[Native], *, done: bool) -> None:
        for each in messages:
            self.has.remove(each)
            self.left += [each] if done else []

    def put(self, _queue: str, *, outgoing: Any) -> None:
        assert outgoing.properties["omq.dead.reason"]
        self.put_count += 1

    def commit(self) -> None:
        if self.full:
            raise QueueFull(queue="SYSTEM.DEAD", limit=1)
        self.left, self.open = self.left + self.has, False

    def prepare(self, _name: str) -> None:
        self.commit()

    def backout(self) -> None:
        self.open = False


def taker(unit: Unit, **said: str) -> Taker:
    class Client:
        def unit(self) -> Unit:
            return unit

    channel = made("EAST", {"host": "127.0.0.1", "port": "1", "tls": "no", **said})
    native: Any = Client()
    return Taker(native, channel, Settings(), lambda: False)


def took(unit: Unit, **said: str) -> tuple[Taker, Taken]:
    one = taker(unit, **said)
    taken = one.take(REACH)
    assert taken is not None
    return one, taken


def test_what_was_not_sent_stays_when_another_was_buried() -> None:
    good, bad = Native(), Native(texts={})
    unit = Unit([good, bad])
    _, taken = took(unit)
    taken.end()
    assert unit.left == [bad], "one is a dead letter, the other is on its queue"
    assert unit.put_count == 1


def test_nothing_leaves_when_taking_failed_behind_a_dead_letter() -> None:
    unit = Unit([Native(), Native(texts={})], QueueFull(queue="X", limit=1))
    with pytest.raises(QueueFull):
        taker(unit).take(REACH)
    assert not unit.left
    assert not unit.open


def test_a_dead_letter_queue_that_is_full_leaves_the_unit_ended() -> None:
    unit = Unit([Native(texts={})])
    _, taken = took(unit)
    unit.full = True
    with pytest.raises(QueueFull):
        taken.end()
    assert not unit.left
    assert not unit.open


def test_what_cannot_be_encoded_is_buried_by_itself() -> None:
    good, bad, fast = Native(), Native(**HUGE), Native(persistent=False, **HUGE)
    unit = Unit([bad, good, fast])
    one, taken = took(unit)
    batch = one.prepare(taken, BatchName("EAST", "0" * 32, 1))
    assert batch is not None
    assert unit.put_count == 2
    assert [each.spot.sequence for each in opened(batch.transfer(1000), 9)] == [1]
    messages: list[Any] = list(taken.messages)
    assert messages == [good]
    assert unit.left == [bad, good, fast], "all of it with the unit, none before"


def test_a_batch_of_nothing_but_such_is_none() -> None:
    unit = Unit([Native(**HUGE)])
    one, taken = took(unit)
    assert one.prepare(taken, BatchName("EAST", "0" * 32, 1)) is None
    taken.end()
    assert len(unit.left) == unit.put_count == 1


def test_an_expiry_that_is_further_than_amqp_can_say() -> None:
    far = Native(expiry_ns=time.time_ns() + 100 * 86400 * 10**9)
    one, taken = took(Unit([far]))
    batch = one.prepare(taken, BatchName("EAST", "0" * 32, 1))
    assert batch is not None
    (parcel,) = opened(batch.parcels[0][1], 1)
    assert parcel.message.expiry_s == AMQP_TTL_MAX_S


def test_fast_ones_count_against_the_batch() -> None:
    some = [Native(persistent=False, size=600) for _ in range(4)]
    unit = Unit(some)
    _, taken = took(unit, batchlimit="1")
    assert len(taken.fast) == 2
    assert unit.left == some[:2]
    assert not unit.has, "what is over is back"


def test_a_dead_letter_whose_properties_leave_no_room_goes_without_them() -> None:
    full = Outgoing(body=b"x", properties={"long": "x" * (limits.PROPERTIES_BYTES_MAX - 20)})
    letter = dead_letter(full, "why", "EAST", "Q", "WEST")
    assert encode_properties(letter.properties)
    assert letter.properties["omq.dead.reason"] == "why"
    assert reason_of(letter) == "why (cut: 1 properties: long)"
    assert letter.body == b"x"
