"""What clients may rely on: the end of a reader's `with`, claims after a restart, defaults."""

from __future__ import annotations

from unittest import mock

import pytest

from omq.base.errors import NotRegistered, OmqError
from omq.format.wire import SETTLE, Operation
from tests.process.instance import Instance, impatient
from tests.process.processes import WAIT_S


class Trouble(Exception):
    """Of a program that reads."""


def bodies(instance: Instance, queue: str) -> list[tuple[bytes, int]]:
    return [(m.body, m.attempts) for m in instance.drain(queue)]


def test_leaving_by_an_exception_settles_what_was_said(omq_instance: Instance) -> None:
    """Said: sent. In hand: one attempt failed. Not looked at: back untouched, at once."""
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put_many("A", [b"%d" % i for i in range(5)])
        with pytest.raises(Trouble), c.reader("A", batch=5) as reader:
            for message in reader:
                if message.body == b"2":
                    raise Trouble
                message.done()
        assert bodies(omq_instance, "A") == [(b"2", 1), (b"3", 0), (b"4", 0)]


def test_leaving_a_batch_by_an_exception_gives_it_back(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put_many("A", [b"%d" % i for i in range(3)])
        with pytest.raises(Trouble), c.reader("A", batch=3) as reader:
            first, *_ = reader.next(timeout_s=WAIT_S)
            first.done()
            raise Trouble
        assert bodies(omq_instance, "A") == [(b"1", 0), (b"2", 0)]


def test_an_interrupt_is_no_failure_of_the_message(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put("A", b"x")
        with pytest.raises(KeyboardInterrupt), c.reader("A") as reader:
            for message in reader:
                assert message.body == b"x"
                raise KeyboardInterrupt
        assert bodies(omq_instance, "A") == [(b"x", 0)]


def test_a_message_that_always_raises_ends_on_poison(omq_instance: Instance) -> None:
    omq_instance.queues("[*]\ndeath_delay_s = 0\nattempts_max = 3\n\n[A]\n")
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put("A", b"cursed")
        for _ in range(3):
            with pytest.raises(Trouble), c.reader("A") as reader:
                for _message in reader:
                    raise Trouble("it cannot be read")
        assert bodies(omq_instance, "POISON") == [(b"cursed", 3)]
    (event,) = omq_instance.events(1232)
    assert event["queue"] == "A"


def test_a_lost_manager_does_not_hide_the_exception(omq_instance: Instance) -> None:
    omq_instance.start()
    omq_instance.ready()
    with omq_instance.connect() as c:
        c.put("A", b"x")
        c.put("A", b"fetched with it, so that something is left to say when a slow done is sent")
        with pytest.raises(Trouble) as caught, c.reader("A", batch=2) as reader:
            for message in reader:
                message.done()
                impatient(c)
                omq_instance.kill()
                raise Trouble
        assert any("could not be sent" in note for note in caught.value.__notes__)
    omq_instance.start()
    omq_instance.ready()


def test_a_claim_needs_the_token_of_the_hand_out(omq_instance: Instance) -> None:
    """After a restart neither a forged lease nor a forged claim takes a reader's message."""
    omq_instance.settings(reconnect_grace_s=60)
    omq_instance.start()
    with omq_instance.connect("owner") as owner, omq_instance.connect("thief") as thief:
        owner.put("A", b"mine")
        with owner.reader("A") as reader:
            (message,) = reader.next(timeout_s=WAIT_S)
            omq_instance.kill()
            omq_instance.start()
            stolen = [(message.qpool_id, message.lease)]
            thief._link.reader.messages = lambda: stolen
            request = SETTLE.pack(1, 0, 0, message.entry, message.qpool_id, message.lease, 0, 0, 0)
            answer = thief._link.request(Operation.SETTLE, request, count=1)
            assert answer.lost == 1
            message.done()
            reader.flush()
            assert reader.lost == 0
    assert bodies(omq_instance, "A") == []


def test_a_token_in_use_or_unknown_is_refused(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect("one") as one, omq_instance.connect("two") as two:
        two._link._token = one._link._token
        two._link._drop()
        with pytest.raises(OmqError, match="the token is in use"):
            two.queue_number("A")
        two._link._token = b""
        assert two.queue_number("A") == one.queue_number("A")
        # Requests under a wrong token are thrown away: no answer, counted.
        before = one.control({"op": "status"})["counters"]["garbage"]
        two._link._token = bytes(16)
        two._link._timeout_s = 0.1
        # Compiled, the short way has its token from the registration: not that way.
        with mock.patch("omq.ipc.client.link.armed", lambda: True), pytest.raises(OmqError):
            two.put("A", b"never")
        assert one.control({"op": "status"})["counters"]["garbage"] > before
        assert one.put("A", b"still served")
    assert bodies(omq_instance, "A") == [(b"still served", 0)]
    assert NotRegistered.status == 3


def test_puts_have_the_defaults_of_their_queue(omq_instance: Instance) -> None:
    omq_instance.queues("[A]\npriority = urgent\n\n[B]\npersistent = no\n\n[C]\n")
    omq_instance.start()
    with omq_instance.connect() as c:
        for queue in "ABC":
            c.put(queue, b"default")
            c.put_many(queue, [b"one of many"])
            c.put(queue, b"said", priority=2, persistent=True)
        seen = {queue: [(m.body, m.priority, m.persistent) for m in omq_instance.drain(queue)]
                for queue in "ABC"}
    said = (b"said", 2, True)
    assert seen["A"] == [(b"default", 7, True), (b"one of many", 7, True), said]
    assert seen["B"] == [(b"default", 4, False), (b"one of many", 4, False), said]
    assert seen["C"] == [(b"default", 4, True), (b"one of many", 4, True), said]
