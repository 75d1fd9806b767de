"""Queues made, changed and removed while the manager runs: in force at once, and after a kill."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import pytest

import omq
from omq.base import events
from omq.ipc.client.connection import Client
from tests.process.instance import MANAGER, Instance
from tests.process.processes import WAIT_S, start


def listed(c: Client) -> dict[str, tuple[str, str]]:
    return {each.name: (each.kind, each.by) for each in c.queues.list()}


def bodies(c: Client, queue: str) -> list[bytes]:
    return [row.body for row in c.browse(queue)]


def gone(c: Client, queue: str) -> bool:
    deadline = time.monotonic() + WAIT_S
    with c.reader("A") as reader:  # a wait that somebody ends: nothing comes
        while queue in listed(c):
            if time.monotonic() >= deadline:
                return False
            for message in reader.next(1, 0.05):
                message.release()
    return True


def test_a_definition_outlives_kill_stop_and_checkpoint(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        c.queues.define("RUN", max_depth=2, description="made at run time")
        c.queues.define("MANY", "alias", target="RUN B")
        c.put("RUN", b"1")
        for end in (omq_instance.kill, omq_instance.stop):
            end(MANAGER)
            omq_instance.start()
            info = c.queues.show("RUN")
            assert (info.kind, info.by, info.keys["max_depth"]) == ("local", "run time", "2")
            assert listed(c)["MANY"] == ("alias", "run time")
        c.put("MANY", b"2")
        with pytest.raises(omq.QueueFull):
            c.put("RUN", b"3")
        assert bodies(c, "RUN") == [b"1", b"2"] and bodies(c, "B") == [b"2"]
        c.queues.alter("RUN", max_depth=None)
        c.put("RUN", b"3")
        omq_instance.kill(MANAGER)
        omq_instance.start()
        assert c.queues.show("RUN").keys["max_depth"] == "0"
        assert c.queues.clear("RUN") == 3
        c.queues.delete("MANY")
        c.queues.delete("RUN")
        omq_instance.kill(MANAGER)
        omq_instance.start()
        assert {"MANY", "RUN"} & set(listed(c)) == set()
        assert bodies(c, "B") == [b"2"]


@pytest.mark.parametrize(("kind", "keys", "said"), [
    ("alias", {"target": "X"}, "a ring"),
    ("alias", {"target": "NOWHERE"}, "there is no queue NOWHERE"),
    ("alias", {}, "no queues, or too many"),
    ("alias", {"target": "IDEL"}, "there is no queue IDEL"),
    ("local", {"max_depth": -1}, "out of range"),
    ("local", {"dead_letter": "NOWHERE"}, "not a queue of this file"),
    ("local", {"colour": "red"}, "unknown key"),
    ("local", {"description": "a\nb"}, "not a value"),
    ("model", {"lifetime": "eternal"}, "not known"),
    ("remote", {"remote_queue": "Q", "remote_manager": "M", "transmission": "A"},
     "not a transmission queue"),
    ("temporary", {}, "not a kind that is defined"),
    ("cluster", {}, "not a kind that is defined"),
])
def test_a_wrong_definition_is_refused_with_its_key(
        omq_instance: Instance, kind: str, keys: dict[str, Any], said: str) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        with pytest.raises(omq.BadDefinition, match=said):
            c.queues.define("X", kind, **keys)
        assert "X" not in listed(c)
        c.queues.define("X")  # nothing of it has stayed


def test_rings_over_several_queues(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        c.queues.define("ONE", "alias", target="A")
        c.queues.define("TWO", "alias", target="ONE")
        with pytest.raises(omq.BadDefinition, match="a ring"):
            c.queues.alter("ONE", target="TWO")
        c.put("TWO", b"1")
        assert bodies(c, "A") == [b"1"]
        c.queues.define("D1")
        c.queues.define("D2", dead_letter="D1")
        with pytest.raises(omq.BadDefinition, match="go round for ever"):
            c.queues.alter("D1", dead_letter="D2")
        with pytest.raises(omq.QueueInUse, match="D2 names it"):
            c.queues.delete("D1")


def test_what_cannot_be_done_says_why(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        c.queues.define("X")
        for wrong, call in (
                (omq.QueueExists, lambda: c.queues.define("X")),
                (omq.QueueOfFile, lambda: c.queues.define("A")),
                (omq.QueueOfFile, lambda: c.queues.alter("A", max_depth=1)),
                (omq.QueueOfFile, lambda: c.queues.delete("A")),
                (omq.QueueOfFile, lambda: c.queues.delete("POISON")),
                (omq.QueueOfFile, lambda: c.queues.rename("A", "Z")),
                (omq.UnknownQueue, lambda: c.queues.alter("Y", max_depth=1)),
                (omq.UnknownQueue, lambda: c.queues.delete("Y")),
                (omq.UnknownQueue, lambda: c.queues.show("Y")),
                (omq.QueueExists, lambda: c.queues.rename("X", "A"))):
            with pytest.raises(wrong):
                call()
        c.put("X", b"1")
        with pytest.raises(omq.QueueNotEmpty, match="holds 1 messages"):
            c.queues.delete("X")
        with omq_instance.connect() as other, other.reader("X") as reader:
            (message,) = reader.next(1, WAIT_S)
            assert c.queues.clear("X") == 0, "it is the reader's"
            with pytest.raises(omq.QueueNotEmpty):
                c.queues.delete("X", force=True)
            message.done()
            reader.next(1, 0)
            with pytest.raises(omq.QueueInUse, match="1 readers"):
                c.queues.delete("X")
            c.queues.delete("X", force=True)
            with pytest.raises(omq.QueueGone):
                reader.next(1, 0)
        assert "X" not in listed(c)


def test_who_has_a_name_open_follows_it(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c, omq_instance.connect() as other:
        c.queues.define("WAY", "alias", target="A")
        other.put("WAY", b"1")
        c.queues.alter("WAY", target="B")
        other.put("WAY", b"2")
        c.queues.define("X")
        other.put("X", b"3")
        c.queues.rename("X", "Y")
        with pytest.raises(omq.UnknownQueue):
            other.put("X", b"4")
        assert (bodies(c, "A"), bodies(c, "B"), bodies(c, "Y")) == ([b"1"], [b"2"], [b"3"])


def test_a_number_is_never_taken_for_another_queue_after_a_kill(omq_instance: Instance) -> None:
    """The one client knows X; while the manager is away from it X goes, and another comes."""
    omq_instance.start()
    with omq_instance.connect() as c, omq_instance.connect() as other:
        c.queues.define("X")
        other.put("X", b"1")
        number = c.queues.show("X").number
        c.queues.rename("X", "Y")
        omq_instance.kill(MANAGER)
        omq_instance.start()
        assert c.queues.show("Y").number == number
        with pytest.raises(omq.UnknownQueue):
            other.put("X", b"2")
        assert bodies(c, "Y") == [b"1"]


def test_a_queue_rolls_over(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c, omq_instance.connect() as putter:
        putter.put("A", b"old")
        with omq_instance.connect() as server, server.reader("A") as reader:
            c.queues.roll_over("A", "A.OLD")
            putter.put("A", b"new")
            assert bodies(c, "A") == [b"new"] and bodies(c, "A.OLD") == [b"old"]
            with pytest.raises(omq.PutInhibited):
                putter.put("A.OLD", b"no")
            with pytest.raises(omq.WrongKind, match="drained"):
                c.queues.roll_over("A.OLD", "A.OLDER")
            c.queues.define("NAMES.IT", "alias", target="A.OLD")
            omq_instance.kill(MANAGER)
            omq_instance.start()
            (message,) = reader.next(1, WAIT_S)
            assert message.body == b"old", "the old servers drain the old queue"
            message.done()
            assert reader.next(1, 0) == []
            assert "A.OLD" in listed(c)
        with c.reader("C") as waiting:
            while not omq_instance.events(1008):  # until a sweep has found that it cannot go
                waiting.next(1, 0.05)
            waiting.next(1, 2.5)
        assert len(omq_instance.events(1008)) == 1, "told once, not by each sweep"
        c.queues.delete("NAMES.IT")
        assert gone(c, "A.OLD"), "empty, and nobody reads it"
        assert bodies(c, "A") == [b"new"]


def test_truncate_and_its_four_conditions(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        c.queues.define("X")
        with pytest.raises(omq.NoTruncate, match="only a server"):
            c.queues.truncate("X")
        with omq_instance.connect() as putter:
            putter.put("X", b"1")
            with c.reader("X") as reader, pytest.raises(omq.NoTruncate, match="requester"):
                c.queues.truncate("X")
        with c.reader("X") as reader:
            with pytest.raises(omq.NoTruncate, match="not drained"):
                c.queues.truncate("X")
            (message,) = reader.next(1, WAIT_S)
            message.done()
            reader.next(1, 0)
            assert c.queues.show("X").facts["ever"] == 1
            c.queues.truncate("X")
            assert c.queues.show("X").facts["ever"] == 0


def test_the_file_counts_where_both_define(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        c.queues.define("X", max_depth=1)
        c.put("X", b"1")
        omq_instance.stop()
        omq_instance.queues("[*]\n[A]\n[B]\n[X]\nmax_depth = 7\n")
        omq_instance.start()
        info = c.queues.show("X")
        assert omq_instance.events(events.QUEUE_OF_FILE.number)
        assert (info.by, info.keys["max_depth"], info.messages) == ("queues.conf", "7", 1)
        omq_instance.stop()
        omq_instance.queues("[*]\n[A]\n[B]\n")
        omq_instance.start()
        assert listed(c)["X"] == ("local", "nobody")
        with pytest.raises(omq.PutInhibited):
            c.put("X", b"2")
        c.queues.define("X")  # it has an author again, and its messages
        c.put("X", b"2")
        assert bodies(c, "X") == [b"1", b"2"]


def test_a_temporary_queue_goes_with_its_connection(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        c.queues.define("MODEL", "model", max_depth=3)
        with omq_instance.connect() as owner:
            name = owner.queues.temporary("MODEL")
            assert name.startswith("MODEL.") and listed(c)[name] == ("temporary", "run time")
            c.put(name, b"1")
            many = owner.queues.temporary()
            c.put_many(many, [b""] * 2600)
            omq_instance.kill(MANAGER)
            omq_instance.start()
            owner.put(name, b"2")
            assert bodies(c, name) == [b"1", b"2"], "the connection outlives its manager"
        assert gone(c, name) and gone(c, many), "more than one order deletes"
        with pytest.raises(omq.UnknownQueue):
            c.put(name, b"3")


def test_a_temporary_queue_goes_with_its_client_that_was_killed(omq_instance: Instance) -> None:
    """With what is on it, also what the client had in its hands, and the journal says why."""
    omq_instance.start()
    receiver, sender = os.pipe()

    def own() -> int:
        c = omq_instance.connect()
        name = c.queues.temporary()
        for number in range(4):
            c.put(name, b"%d" % number, persistent=number < 3)
        reader = c.reader(name)
        reader.next(1, WAIT_S)
        os.write(sender, name.encode())
        signal.pause()
        return 0

    owner = start("owner", own)
    os.close(sender)
    name = os.read(receiver, 64).decode()
    os.close(receiver)
    with omq_instance.connect() as c:
        assert listed(c)[name] == ("temporary", "run time")
        owner.kill()
        assert gone(c, name)
        assert [bodies(c, queue) for queue in ("A", "B", "POISON")] == [[], [], []]
    said = b"".join(path.read_bytes() for path in omq_instance.paths.journal.glob("*.jnl"))
    assert said.count(b"its connection has ended") > 0
    omq_instance.kill(MANAGER)
    omq_instance.start()
    with omq_instance.connect() as c:
        assert name not in listed(c)
        assert not [each for each in listed(c) if each.startswith("LOST")]


def test_a_permanent_queue_of_a_model_stays(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        c.queues.define("MODEL", "model", lifetime="permanent", max_depth=3)
        with omq_instance.connect() as owner:
            name = owner.queues.temporary("MODEL")
        c.put(name, b"1")
        omq_instance.kill(MANAGER)
        omq_instance.start()
        assert listed(c)[name] == ("local", "run time")
        assert c.queues.show(name).keys["max_depth"] == "3"
        assert bodies(c, name) == [b"1"]


def test_who_reads_a_queue_that_goes_is_told(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        owner = omq_instance.connect()
        name = owner.queues.temporary()
        with c.reader(name) as reader:
            owner.close()
            with pytest.raises(omq.QueueGone):
                reader.next(1, WAIT_S)


def test_requests_on_a_temporary_queue(omq_instance: Instance) -> None:
    omq_instance.start()

    def serve() -> None:
        with omq_instance.connect("serves") as c, c.reader("A") as reader:
            for _ in range(2):
                (message,) = reader.next(1, WAIT_S)
                message.reply(message.body.upper())
    thread = threading.Thread(target=serve)
    thread.start()
    with omq_instance.connect() as c:
        assert c.request("A", b"one", WAIT_S, reply_to="").body == b"ONE"
        assert c.request("A", b"two", WAIT_S, reply_to="").body == b"TWO"
        assert [kind for kind, _by in listed(c).values()].count("temporary") == 1
    thread.join()


def test_temporary_queues_are_bounded(omq_instance: Instance) -> None:
    omq_instance.settings(queues_temporary_per_client=2)
    omq_instance.start()
    with omq_instance.connect() as c:
        made = {c.queues.temporary() for _ in range(2)}
        assert len(made) == 2
        with pytest.raises(omq.TooManyQueues):
            c.queues.temporary()


def test_a_remote_queue_is_a_header_and_a_transmission_queue(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        c.queues.define("TO.PARIS", "transmission")
        c.queues.define("ORDERS.FR", "remote", remote_queue="ORDERS", remote_manager="PARIS",
                        transmission="TO.PARIS")
        c.queues.define("FRANCE", "alias", target="ORDERS.FR")
        c.put("FRANCE", b"1", properties={"customer": "42"})
        (row,) = c.browse("TO.PARIS")
        assert row.properties == {"customer": "42", "omq.remote.manager": "PARIS",
                                  "omq.remote.queue": "ORDERS"}
        with pytest.raises(omq.BadRequest, match="one remote queue"):
            c.put(["ORDERS.FR", "A"], b"2")
        with pytest.raises(omq.WrongKind):
            c.reader("ORDERS.FR")
        with pytest.raises(omq.QueueInUse):
            c.queues.delete("TO.PARIS")
