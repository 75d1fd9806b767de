"""Queues that others name (dead_letter, expired_to): what comes to them stays, whatever happens to
their names while the manager runs."""

from __future__ import annotations

import signal

from omq.base import events
from omq.ipc.client.connection import Client
from tests.process.instance import MANAGER, WRITER, Instance
from tests.process.processes import WAIT_S
from tests.process.test_queue_commands import bodies, gone


def fails(instance: Instance, queue: str) -> None:
    with instance.connect("fails") as c, c.reader(queue) as reader:
        (message,) = reader.next(1, WAIT_S)
        message.fail("no good")


def fails_in_time(c: Client, body: bytes) -> float:
    """X gets a message that fails before its time is over, and is on Y; the time it was given: more
    where this machine was away."""
    given_s = 0.3
    while True:
        c.put("X", body, expiry_s=given_s)
        with c.reader("X") as reader:
            for message in reader.next(1, 0):
                message.fail("no good")
        if body in bodies(c, "Y"):
            return given_s
        given_s *= 2


def passes(c: Client, given_s: float = 0.3) -> None:
    """Until what was over before is gone: a message that is over later, on a queue of its own."""
    c.put("C", b"time", expiry_s=given_s)
    with c.reader("B") as reader:
        while list(c.browse("C")):
            assert reader.next(1, 0.05) == []


def test_a_dead_letter_queue_that_rolls_over_is_followed(omq_instance: Instance) -> None:
    """The number that its name had is nobody's any more."""
    omq_instance.start()
    with omq_instance.connect() as c:
        c.queues.define("Y")
        c.queues.define("X", dead_letter="Y", attempts_max=1)
        c.queues.roll_over("Y", "Y.OLD")
        assert gone(c, "Y.OLD")
        c.put("X", b"1")
        fails(omq_instance, "X")
        assert bodies(c, "Y") == [b"1"]
        omq_instance.kill(MANAGER)
        omq_instance.start()
        assert c.queues.show("Y").name == "Y", "the next one is up"
        assert bodies(c, "Y") == [b"1"]


def test_what_expires_follows_a_queue_that_rolls_over(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        c.queues.define("Y")
        c.queues.define("X", expired_to="Y")
        c.queues.roll_over("Y", "Y.OLD")
        assert gone(c, "Y.OLD")
        c.put("X", b"1", expiry_s=0.1)
        passes(c)
        assert bodies(c, "Y") == [b"1"]


def test_a_queue_that_is_named_later_keeps_what_is_over(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        c.queues.define("Y")
        c.queues.define("X", expired_to="Y", dead_letter="Y", attempts_max=1)
        c.put("X", b"1", expiry_s=0.1)
        passes(c)
        passes(c, fails_in_time(c, b"2"))
        assert bodies(c, "Y") == [b"1", b"2"]
        c.queues.alter("X", expired_to=None, dead_letter=None)
        passes(c)
        assert bodies(c, "Y") == [b"1"], "nobody names it: what has a time goes"


def test_what_was_kept_is_kept_beside_the_new_queue(omq_instance: Instance) -> None:
    omq_instance.start(WRITER)
    omq_instance.start()
    with omq_instance.connect() as c:
        c.queues.define("Y")
        c.queues.define("X", dead_letter="Y", attempts_max=1)
        given_s = fails_in_time(c, b"1")
        c.queues.roll_over("Y", "Y.OLD")
        passes(c, given_s)
        assert bodies(c, "Y.OLD") == [b"1"]
        omq_instance.kill(MANAGER)
        omq_instance.start()
        passes(c)
        assert bodies(c, "Y.OLD") == [b"1"]


def test_a_draining_queue_that_the_file_takes_over_stays(omq_instance: Instance) -> None:
    """And nobody tries to end it each second."""
    omq_instance.start()
    with omq_instance.connect() as c:
        c.queues.define("X")
        c.put("X", b"1")
        c.queues.roll_over("X", "X.OLD")
        conf = omq_instance.conf / "queues.conf"
        conf.write_text(conf.read_text() + "\n[X.OLD]\n")
        omq_instance.children[MANAGER].signal(signal.SIGHUP)
        with c.reader("B") as reader:
            while c.queues.show("X.OLD").by != "queues.conf":
                assert reader.next(1, 0.05) == []
        assert [row.body for row in omq_instance.drain("X.OLD")] == [b"1"]
        c.queues.define("T")
        c.queues.roll_over("T", "T.OLD")  # it goes in a later sweep than the first one
        assert gone(c, "T.OLD")
        assert "X.OLD" in {each.name for each in c.queues.list()}
        assert omq_instance.events(events.FAILED.number) == []
