"""Readers that are handed only what a selector chooses, and the message under a cursor."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from typing import Any

import pytest

import omq
from omq.core.engine import arrivals
from tests.process.instance import Instance
from tests.process.processes import WAIT_S, run_program
from tests.process.test_requests import Asker, reload, until_waiting


def put(c: Any, body: bytes, colour: str, **more: Any) -> str:
    return str(c.put("A", body, properties={"colour": colour}, **more))


def taken(reader: omq.Reader, n: int = 10, **asked: Any) -> list[bytes]:
    out = []
    for message in reader.next(n, 0, **asked):
        out.append(message.body)
        message.done()
    return out


def test_only_what_is_chosen_is_handed_out(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        for i in range(30):
            put(c, b"%d" % i, "red" if i % 10 == 7 else "blue", priority=5 if i == 27 else 4)
        with c.reader("A", where="colour = 'red'") as reader:
            assert taken(reader, 2) == [b"27", b"7"]
            assert taken(reader) == [b"17"]
            assert taken(reader) == []
            assert taken(reader, where="colour = 'blue' AND priority < 4") == []
            put(c, b"new", "red")
            assert taken(reader) == [b"new"]
            assert taken(reader, 2, where="") == [b"0", b"1"]
        assert sum(1 for _ in c.browse("A")) == 25


def test_an_iteration_gives_what_is_chosen(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        for i in range(6):
            put(c, b"%d" % i, "red" if i % 2 else "blue")
        with c.reader("A", batch=2, where="colour = 'red'") as reader:
            got = []
            for message in reader:
                got.append(message.body)
                message.done()
                if len(got) == 3:
                    break
        assert got == [b"1", b"3", b"5"]


def waits(instance: Instance, name: str, where: str, count: int = 1) -> Asker:
    """A process that waits for messages of A that a selector chooses."""
    def take(c: Any) -> list[bytes]:
        out: list[bytes] = []
        with c.reader("A", where=where) as reader:
            while len(out) < count and (messages := reader.next(1, WAIT_S)):
                out.append(messages[0].body)
                messages[0].done()
        return out
    return Asker(instance, name, take)


def test_the_arrival_wakes_who_waits(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        put(c, b"old", "blue")
        red = waits(omq_instance, "red", "colour = 'red'")
        green = waits(omq_instance, "green", "colour = 'green'")
        until_waiting(omq_instance, "red", "green")
        for body, colour in ((b"1", "blue"), (b"2", "green"), (b"3", "blue"), (b"4", "red")):
            put(c, body, colour)
        assert red.end() == [b"4"]
        assert green.end() == [b"2"]
        assert [row.body for row in c.browse("A")] == [b"old", b"1", b"3"]


def by_batch(c: Any) -> None:
    c.put_many("A", [omq.Outgoing(b"no")] * 20 + [omq.Outgoing(
        b"it", properties={"colour": "red"})])


def by_move(c: Any) -> None:
    c.put("B", b"it", properties={"colour": "red"})
    with c.reader("B") as reader:
        (message,) = reader.next(1, WAIT_S)
        message.move("A")


def by_delay(c: Any) -> None:
    put(c, b"it", "red", delay_s=0.05)


@pytest.mark.parametrize("comes", [by_batch, by_move, by_delay])
def test_however_it_comes(omq_instance: Instance, comes: Callable[[Any], None]) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        red = waits(omq_instance, "red", "colour = 'red'")
        until_waiting(omq_instance, "red")
        comes(c)
        assert red.end() == [b"it"]


def test_a_message_that_comes_back_wakes_as_well(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c, c.reader("A") as reader:
        put(c, b"it", "red")
        (message,) = reader.next(1, WAIT_S)
        red = waits(omq_instance, "red", "colour = 'red'")
        until_waiting(omq_instance, "red")
        message.release()
        reader.flush()
        assert red.end() == [b"it"]


def test_what_lies_on_an_inhibited_queue_is_handed_out_when_it_is_allowed(
        omq_instance: Instance) -> None:
    """Whether it came before get was inhibited or meanwhile; until then nobody is handed it, and
    who waits goes on waiting."""
    omq_instance.start()
    omq_instance.ready()
    with omq_instance.connect() as c:
        put(c, b"before", "red")
        reload(omq_instance, "[*]\n\n[A]\nget = inhibited\n\n[B]\n")
        red = waits(omq_instance, "red", "colour = 'red'", 2)
        until_waiting(omq_instance, "red")
        put(c, b"meanwhile", "red")
        with c.reader("A", where="colour = 'red'") as reader:
            assert taken(reader) == []
        assert len(list(c.browse("A"))) == 2
        reload(omq_instance, "[*]\n\n[A]\n\n[B]\n")
        assert red.end() == [b"before", b"meanwhile"]


def test_two_with_one_selector_share(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        both = [waits(omq_instance, name, "colour = 'red'", 10) for name in ("one", "two")]
        until_waiting(omq_instance, "one", "two")
        bodies = [b"%d" % i for i in range(20)]
        for body in bodies:
            put(c, body, "red")
        assert sorted(body for each in both for body in each.end()) == sorted(bodies)


def test_the_manager_is_killed_meanwhile(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        put(c, b"old", "blue")
        red = waits(omq_instance, "red", "colour = 'red'", 2)
        until_waiting(omq_instance, "red")
        put(c, b"1", "red")
        omq_instance.kill()
        omq_instance.start()
        put(c, b"2", "red")
        assert red.end() == [b"1", b"2"]
        assert [row.body for row in c.browse("A")] == [b"old"]


def test_who_falls_behind_looks_at_the_whole_queue(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c, c.reader("A", where="colour = 'red'") as reader:
        assert taken(reader) == []
        more = arrivals.PENDING_MAX + 1
        with omq_instance.connect("puts") as other:
            other.put_many("A", [b"no"] * more)
            put(other, b"it", "red")
        assert taken(reader) == [b"it"]


def test_interrupt_ends_the_wait(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect("waits") as c, c.reader("A", where="size > 7") as reader:
        got: list[Any] = []
        thread = threading.Thread(target=lambda: got.append(reader.next(1)))
        thread.start()
        until_waiting(omq_instance, "waits")
        reader.interrupt()
        thread.join(WAIT_S)
        assert got == [[]]


@pytest.mark.parametrize("where", ["colour = ", "a = 'b' AND", "x" * 5000])
def test_a_selector_that_is_none(omq_instance: Instance, where: str) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        with pytest.raises(omq.BadSelector) as told:
            c.reader("A", where=where)
        assert told.value.fields["position"]
        with c.reader("A") as reader, pytest.raises(omq.BadSelector):
            reader.next(1, 0, where=where)


def test_not_by_an_id_and_a_selector(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c, c.reader("A") as reader:
        with pytest.raises(omq.BadRequest):
            reader.next(1, 0, correlation="x", where="size > 0")
        with pytest.raises(omq.BadArgument):
            reader.next(1, 0, where=7)  # type: ignore[arg-type]


def test_the_message_under_the_cursor(omq_instance: Instance) -> None:
    """Browse stands still while others work; what it points at is taken, or is gone."""
    omq_instance.start()
    with omq_instance.connect() as c, omq_instance.connect("other") as other:
        for i in range(5):
            c.put("A", b"%d" % i, message_id="same")
        c.put("B", b"b")
        (elsewhere,) = c.browse("B")
        with c.reader("A") as reader, other.reader("A") as second:
            rows = c.browse("A")
            first = next(rows)
            (gone,) = second.next(1, WAIT_S)
            assert reader.take(first) is None
            message = reader.take(next(rows))
            assert message is not None
            assert message.body == b"1"
            third = next(rows)
            gone.done()
            message.done()
            second.flush()
            c.put("A", b"behind")
            mine = reader.take(third)
            assert mine is not None
            assert mine.body == b"2"
            assert second.take(third) is None, "it is locked"
            mine.release()
            reader.flush()
            assert [(row.body, row.state.name, row.attempts) for row in c.browse("A", limit=1)] == [
                (b"2", "READY", 0)], "unlocked at its old place"
            assert [row.body for row in rows] == [b"3", b"4"]
            with pytest.raises(omq.BadRequest):
                reader.take(elsewhere)
            with pytest.raises(omq.BadArgument, match="row"):
                reader.take("A")  # type: ignore[arg-type]


def omread(instance: Instance, where: str) -> subprocess.CompletedProcess[bytes]:
    return run_program("omread", [
        "--spool", str(instance.root), "--conf", str(instance.conf), "A", "--timeout", "0",
        "--json", "--where", where])


def test_omread_selects(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        for i in range(3):
            put(c, b"%d" % i, "red" if i == 1 else "blue")
        said = omread(omq_instance, "colour = 'red'")
        assert (said.returncode, len(said.stdout.splitlines())) == (0, 1), said.stderr
        assert [row.body for row in c.browse("A")] == [b"0", b"2"]
        said = omread(omq_instance, "colour =")
        assert said.returncode == 64
        assert b"character" in said.stderr
