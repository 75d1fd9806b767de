"""Groups as programs use them: in order, in parallel, whole; over the deaths of everybody."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omq
from tests.process.instance import Instance
from tests.process.processes import WAIT_S, start


def test_what_a_message_says(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put("A", b"1", group_id="g", group_sequence=1)
        c.put("A", b"2", outgoing=None, group_id="g", group_sequence=2, last_in_group=True)
        c.put("A", b"plain")
        rows = [(row.group_id, row.group_sequence, row.last_in_group) for row in c.browse("A")]
        assert rows == [("g", 1, False), ("g", 2, True), ("", 0, False)]
        with c.reader("A") as reader:
            first, plain = reader.next(10, 0)
            assert (first.group_id, first.body, plain.body) == ("g", b"1", b"plain")
            assert reader.next(10, 0) == []
            first.done()
            (second,) = reader.next(10, WAIT_S)
            assert second.last_in_group
            second.done()
            plain.done()


@pytest.mark.parametrize("said", [
    {"group_id": 7}, {"group_id": "x" * 25}, {"group_id": "g", "group_sequence": -1},
    {"group_id": "g", "group_sequence": "1"}, {"group_id": "g", "last_in_group": True},
    {"group_sequence": 1}, {"group_id": "g", "group_sequence": 1, "last_in_group": 1}])
def test_groups_that_are_none(omq_instance: Instance, said: dict[str, Any]) -> None:
    omq_instance.start()
    with omq_instance.connect() as c, pytest.raises(omq.BadArgument) as told:
        c.put("A", b"x", **said)
    assert "group" in str(told.value)


class Worker:
    """A process that works on A and notes each message as it begins and ends with it."""

    def __init__(self, instance: Instance, name: str, count: int, batch: int) -> None:
        self.log = instance.root.parent / f"{name}.log"

        def run() -> int:
            with (self.log.open("ab", buffering=0) as log, instance.connect(name) as c,
                  c.reader("A", batch=batch, auxiliary=True) as reader):
                while messages := reader.next(batch, 1.0):
                    for message in messages:
                        log.write(b"+%s\n" % message.body)
                        log.write(b"-%s\n" % message.body)
                        message.done()
            return 0
        self.child = start(name, run, output=instance.output)


def put_groups(c: Any, groups: int, count: int) -> None:
    c.put_many("A", [omq.Outgoing(b"%d.%d" % (g, i), group_id=f"g{g}", group_sequence=i + 1)
                     for i in range(count) for g in range(groups)])


@pytest.mark.parametrize("batch", [1, 7])
def test_many_readers_work_in_order(omq_instance: Instance, batch: int) -> None:
    """Each group in order, whoever works on it; nothing twice."""
    omq_instance.start()
    with omq_instance.connect() as c:
        put_groups(c, 5, 20)
        workers = [Worker(omq_instance, f"w{n}", 5, batch) for n in range(4)]
        for worker in workers:
            assert worker.child.wait() == 0
        done: dict[bytes, list[int]] = {}
        for worker in workers:
            for line in worker.log.read_bytes().split():
                if line.startswith(b"-"):
                    group, number = line[1:].split(b".")
                    done.setdefault(group, []).append(int(number))
        assert {group: sorted(numbers) for group, numbers in done.items()} == {
            b"%d" % g: list(range(20)) for g in range(5)}
        for worker in workers:  # of one group each worker saw ascending numbers
            last: dict[bytes, int] = {}
            for line in worker.log.read_bytes().split():
                group, number = line[1:].split(b".")
                assert last.get(group, -1) <= int(number)
                last[group] = int(number)


def kill(instance: Instance, c: Any) -> None:
    instance.kill()
    instance.start()


def stop(instance: Instance, c: Any) -> None:
    instance.stop()
    instance.start()


def rest(c: Any, *, first: bytes) -> list[bytes]:
    """What is left of A, one after the other; while one is held nobody gets another."""
    out = []
    with c.reader("A", batch=10) as reader:
        while messages := reader.next(10, 0.2):
            assert len(messages) == 1
            out.append(messages[0].body)
            assert reader.next(10, 0) == []
            messages[0].done()
    assert not out or out[0] == first
    return out


@pytest.mark.parametrize("ends", [kill, stop])
def test_order_outlives_the_manager(omq_instance: Instance,
                                    ends: Callable[[Instance, Any], None]) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        put_groups(c, 1, 6)
        with c.reader("A") as reader:
            (message,) = reader.next(1, WAIT_S)
            message.done()
    with omq_instance.connect() as c:
        ends(omq_instance, c)
    with omq_instance.connect() as c:
        c.put("A", b"0.6", group_id="g0")
        assert rest(c, first=b"0.1") == [b"0.%d" % i for i in range(1, 7)]


def test_a_killed_readers_group_moves_on(omq_instance: Instance, tmp_path: Path) -> None:
    omq_instance.queues("[*]\ndeath_delay_s = 0\n\n[A]\n\n[B]\n")
    omq_instance.start()
    with omq_instance.connect() as c:
        put_groups(c, 1, 3)

        def die() -> int:
            with omq_instance.connect("dies") as mine, mine.reader("A", batch=3) as reader:
                for message in reader:
                    assert message.body
                    os.kill(os.getpid(), signal.SIGKILL)
            return 0
        assert start("dies", die, output=omq_instance.output).wait() == -signal.SIGKILL
        assert rest(c, first=b"0.0") == [b"0.0", b"0.1", b"0.2"]


def test_a_group_moves_to_another_queue_in_order(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        put_groups(c, 1, 3)
        with c.reader("A") as reader:
            for _ in range(3):
                (message,) = reader.next(1, WAIT_S)
                message.move("B")
        with c.reader("B", batch=10) as reader:
            for i in range(3):
                (message,) = reader.next(10, WAIT_S)
                assert message.body == b"0.%d" % i
                message.done()


# whole groups


def put_whole(c: Any, group: str, numbers: tuple[int, ...], last: int = 3) -> None:
    for number in numbers:
        c.put("A", b"%d" % number, group_id=group, group_sequence=number,
              last_in_group=number == last)


def test_a_whole_group(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c, omq_instance.connect("other") as other:
        put_whole(c, "g", (3, 1))
        with other.group_reader("A") as reader:
            assert reader.next(0) is None
            put_whole(c, "g", (2,))
            group = reader.next(WAIT_S)
            assert group is not None
            assert (group.group_id, len(group), group.body) == ("g", 3, b"123")
            with pytest.raises(omq.MessageInGroup):
                group[0].done()
            with pytest.raises(omq.MessageInGroup):
                group[0].move("B")
            group.done()
            with pytest.raises(omq.LeaseLost):
                group.done()
        assert list(c.browse("A")) == []


def test_a_group_that_fails_comes_again_whole(omq_instance: Instance) -> None:
    omq_instance.queues("[*]\nretry_delay_ms = 0\n\n[A]\nattempts_max = 2\n\n[B]\n")
    omq_instance.start()
    with omq_instance.connect() as c:
        put_whole(c, "g", (1, 2, 3))
        with c.group_reader("A") as reader:
            group = reader.next(WAIT_S)
            assert group is not None
            group.release()
            group = reader.next(WAIT_S)
            assert group is not None
            group.fail("it is no good")
            group = reader.next(WAIT_S)
            assert group is not None
            assert group[2].attempts == 1
            group.fail("once more")
            assert reader.next(0) is None
        assert [row.body for row in c.browse("POISON")] == [b"1", b"2", b"3"]


def test_leaving_by_an_exception_fails_the_group(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        put_whole(c, "g", (1, 2, 3))
        with pytest.raises(ZeroDivisionError), c.group_reader("A") as reader:
            for group in reader:
                assert group
                raise ZeroDivisionError
        assert {row.attempts for row in c.browse("A")} == {1}


@pytest.mark.parametrize("dies", [True, False])
def test_the_manager_dies_with_a_group_handed_out(omq_instance: Instance, dies: bool) -> None:  # noqa: FBT001
    """Killed behind the hand-out and before the end: the group is still its reader's."""
    omq_instance.start()
    with omq_instance.connect() as c:
        put_whole(c, "g", (1, 2, 3))
        with c.group_reader("A") as reader:
            group = reader.next(WAIT_S)
            assert group is not None
            if dies:
                omq_instance.kill()
                omq_instance.start()
            group.done()
        assert list(c.browse("A")) == []


def test_whole_groups_are_found_after_a_restart(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        put_whole(c, "g", (1, 2, 3))
        put_whole(c, "half", (1, 3))
    omq_instance.kill()
    omq_instance.start()
    with omq_instance.connect() as c, c.group_reader("A") as reader:
        group = reader.next(WAIT_S)
        assert group is not None
        assert group.group_id == "g"
        group.done()
        assert reader.next(0) is None
        put_whole(c, "half", (2,))
        group = reader.next(WAIT_S)
        assert group is not None
        assert group.body == b"123"
        group.done()
