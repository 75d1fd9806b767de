"""Who has a message is known behind a manager's death, also where its body was moved meanwhile."""

from __future__ import annotations

import pytest

import omq
from omq.base.errors import UnitBackedOut
from tests.process.instance import MANAGER, WRITER, Instance
from tests.waiting import until

TEN = [b"%d" % i for i in range(10)]


def retire(instance: Instance, client: omq.Connection) -> None:
    """The journal file of what is there now has gone: bodies are elsewhere."""
    before = len(instance.events(1402))
    client.put_many("B", [bytes(4000)] * 700)
    until(lambda: len(instance.events(1402)) >= before + 2, instance.said)


def test_a_unit_gives_back_in_order_what_it_took(omq_instance: Instance) -> None:
    """At once, not when the grace time is over: else what is behind it would overtake it."""
    omq_instance.settings(reconnect_grace_s=600)
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    with omq_instance.connect("unit") as taker, omq_instance.connect("other") as other:
        other.put_many("A", TEN)
        unit = taker.unit()
        assert [message.body for message in unit.next("A", 5)] == TEN[:5]
        retire(omq_instance, other)
        omq_instance.kill(MANAGER)
        omq_instance.start(MANAGER)
        omq_instance.ready()
        with pytest.raises(UnitBackedOut):
            unit.commit()
        found: list[bytes] = []
        with other.reader("A", batch=10) as reader:
            while len(found) < 10:  # the next manager gives the first one out by itself
                some = reader.next(timeout_s=30)
                assert some, found
                found += [message.body or b"" for message in some]
                for message in some:
                    message.done()
        assert found == TEN


def test_a_reader_keeps_what_it_has(
        omq_instance: Instance) -> None:
    """Also behind a start that came from the pool alone."""
    omq_instance.settings(reconnect_grace_s=1)
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    with omq_instance.connect("keeps") as keeps, omq_instance.connect("other") as other:
        other.put_many("A", TEN)
        with keeps.reader("A", batch=10) as reader:
            held = reader.next()
            assert len(held) == 10
            retire(omq_instance, other)
            omq_instance.kill(MANAGER)
            omq_instance.start(MANAGER)
            omq_instance.ready()
            for message in held:
                message.done()
            reader.flush()
        with other.reader("A", batch=10) as reader:
            assert not reader.next(timeout_s=0)
