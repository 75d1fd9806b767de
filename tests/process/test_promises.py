"""What the API promises of settlements and of ends: said is said, one's death is nobody else's, a
planned stop fails nobody (ADR 0035, 0036)."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import omq
from omq.base import fault
from omq.base.errors import ManagerUnavailable
from omq.format.index import EntryState
from omq.ipc.client.connection import Client
from tests.process.instance import MANAGER, Instance, impatient
from tests.process.processes import WAIT_S, Child, start

QUEUES = "[*]\ndeath_delay_s = 0\nattempts_max = 3\n\n[A]\n\n[B]\n\n[SLOW]\ndeath_delay_s = 3600\n"
TEN = [b"%d" % i for i in range(10)]
Work = Callable[[omq.Reader], None]


def worker(instance: Instance, work: Work, *, queue: str = "A", batch: int = 10,
           ack: str = "prompt") -> Child:
    """A process that works as a reader until `work` ends it."""
    def run() -> int:
        with omq.connect(instance.root, name="worker", timeout_s=WAIT_S) as c, \
                c.reader(queue, batch=batch, ack=ack) as reader:
            work(reader)
        return 0

    return start("worker", run, output=instance.output)


def until(condition: Callable[[], bool]) -> None:
    """Asked again and again; AssertionError when it does not come true."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline


def depth(c: Client) -> int:
    return sum(1 for _ in c.browse("A"))


def moving(row: omq.Browsed) -> bool:
    """Somebody has it, or its time is over and the manager has not looked yet."""
    return row.state is EntryState.ACTIVE or (
        row.state is EntryState.DEFERRED and row.due_ns <= time.time_ns())


def begin_with_ten(instance: Instance) -> None:
    """It runs, with TEN on A."""
    instance.queues(QUEUES)
    instance.start()
    instance.ready()
    with instance.connect() as c:
        c.put_many("A", TEN)


def rows(c: Client, queue: str = "A") -> list[tuple[bytes, str, int]]:
    """A queue when the deaths of its readers have been noticed."""
    until(lambda: not any(moving(row) for row in c.browse(queue)))
    return [(row.body, row.state.name, row.attempts) for row in c.browse(queue)]


def iterating(reader: omq.Reader) -> None:
    for message in reader:
        if message.body == b"5":
            os.kill(os.getpid(), signal.SIGKILL)
        message.done()


def listing(reader: omq.Reader) -> None:
    while messages := reader.next(timeout_s=0):
        for message in messages:
            if message.body == b"5":
                os.kill(os.getpid(), signal.SIGKILL)
            message.done()


@pytest.mark.parametrize("work", [iterating, listing])
def test_only_the_message_that_kills_is_charged(omq_instance: Instance, work: Work) -> None:
    """A batch of ten of which one kills its worker three times."""
    omq_instance.queues(QUEUES)
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put_many("A", TEN)
        assert worker(omq_instance, work).wait() == -signal.SIGKILL
        assert rows(c) == [(b"5", "READY", 1), *((b"%d" % i, "READY", 0) for i in range(6, 10))]
        for _ in range(2):
            assert worker(omq_instance, work).wait() == -signal.SIGKILL
            left = rows(c)
        assert left == [(b"%d" % i, "READY", 0) for i in range(6, 10)]
        assert rows(c, "POISON") == [(b"5", "READY", 3)]


def test_what_was_kept_for_the_batch_comes_again_but_one_by_one(omq_instance: Instance) -> None:
    """ack="batch": a death charges all that was held, once; then each is handed out alone."""
    omq_instance.queues(QUEUES)
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put_many("A", TEN)
        assert worker(omq_instance, iterating, ack="batch").wait() == -signal.SIGKILL
        assert rows(c) == [(body, "READY", 1) for body in TEN]
        for _ in range(2):
            assert worker(omq_instance, iterating, ack="batch").wait() == -signal.SIGKILL
            left = [body for body, *_ in rows(c)]
        assert left[-4:] == [b"6", b"7", b"8", b"9"]
        assert [body for body, *_ in rows(c, "POISON")] == [b"5"]


def test_a_list_that_nobody_looked_into_was_in_work(omq_instance: Instance) -> None:
    def take_and_die(reader: omq.Reader) -> None:
        assert len(reader.next(4, timeout_s=WAIT_S)) == 4
        os.kill(os.getpid(), signal.SIGKILL)

    omq_instance.queues(QUEUES)
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put_many("A", TEN)
        assert worker(omq_instance, take_and_die).wait() == -signal.SIGKILL
        assert [attempts for _, _, attempts in rows(c)] == [1] * 4 + [0] * 6


def test_all_that_was_looked_into_was_in_work(omq_instance: Instance) -> None:
    def look_and_die(reader: omq.Reader) -> None:
        messages = reader.next(5, timeout_s=WAIT_S)
        assert [message.body for message in messages[:3]] == TEN[:3]
        messages[1].done()
        os.kill(os.getpid(), signal.SIGKILL)

    omq_instance.queues(QUEUES)
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put_many("A", TEN)
        assert worker(omq_instance, look_and_die).wait() == -signal.SIGKILL
        assert rows(c)[:4] == [(b"0", "READY", 1), (b"2", "READY", 1), (b"3", "READY", 0),
                               (b"4", "READY", 0)]


@pytest.mark.parametrize("ending", ["done", "defer", "fail", "release"])
def test_what_was_said_holds_when_the_reader_dies_at_once(omq_instance: Instance, ending: str
                                                          ) -> None:
    def say_and_die(reader: omq.Reader) -> None:
        for message in reader:
            if ending == "defer":
                message.defer(3600, reason="later")
            elif ending == "fail":
                message.fail("not today")
            else:
                getattr(message, ending)()
            os.kill(os.getpid(), signal.SIGKILL)

    omq_instance.queues(QUEUES)
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put_many("SLOW", TEN[:2])
        assert worker(omq_instance, say_and_die, queue="SLOW").wait() == -signal.SIGKILL
        first = {"done": [], "defer": [(b"0", "DEFERRED", 0)], "fail": [(b"0", "DEFERRED", 1)],
                 "release": [(b"0", "READY", 0)]}[ending]
        assert rows(c, "SLOW") == [*first, (b"1", "READY", 0)]


@pytest.mark.parametrize("pause_s", [0.0, 0.2])
def test_a_silent_reader_has_settled(omq_instance: Instance, tmp_path: Path, pause_s: float
                                     ) -> None:
    """Said at once behind the hand-out (the manager looks), or late (it is sent at once); the
    reader then does something else. Nothing is said twice when it goes on."""
    omq_instance.start()
    with omq_instance.connect() as c, omq_instance.connect("reads") as other:
        c.put_many("A", TEN)
        with other.reader("A", batch=10) as reader:
            taken = reader.next(timeout_s=WAIT_S)
            deadline = time.monotonic() + pause_s
            until(lambda: time.monotonic() >= deadline)
            for message in taken[:3]:
                message.done()
            until(lambda: depth(c) == 7)
            for message in taken[3:]:
                message.done()
            assert reader.next(timeout_s=0) == []
            assert reader.lost == 0
        assert rows(c) == []


def test_a_note_outlives_the_manager(omq_instance: Instance) -> None:
    """Both die: what the reader had noted holds, and only what it had in work fails."""
    def work(reader: omq.Reader) -> None:
        for message in reader:
            if message.body == b"5":
                signal.raise_signal(signal.SIGSTOP)
            message.done()

    begin_with_ten(omq_instance)
    reader = worker(omq_instance, work)
    reader.wait_stopped()
    omq_instance.kill()
    reader.kill()
    omq_instance.start()
    with omq_instance.connect() as c:
        assert rows(c) == [(b"5", "READY", 1), *((b"%d" % i, "READY", 0) for i in range(6, 10))]


def stopped_at_the_second(reader: omq.Reader) -> None:
    """Settles all that it has; on its way its process is stopped from outside."""
    for message in reader.next(timeout_s=WAIT_S):
        if message.body == b"1":
            signal.raise_signal(signal.SIGSTOP)
        message.done()
    reader.flush()


def test_a_reader_that_is_away_longer_has_all_of_it_in_work(omq_instance: Instance) -> None:
    """The manager dies, and its reader lives but is stopped until its messages have come back. It
    then begins with those that it had not looked at, so they must not come again unflagged."""
    def work(reader: omq.Reader) -> None:
        stopped_at_the_second(reader)
        assert reader.lost >= 9  # what its note had settled may count, too

    begin_with_ten(omq_instance)
    reader = worker(omq_instance, work)
    reader.wait_stopped()
    omq_instance.kill()
    omq_instance.start()
    with omq_instance.connect() as c:
        assert rows(c) == [(body, "READY", 1) for body in TEN[1:]]
        reader.signal(signal.SIGCONT)
        assert reader.wait() == 0, omq_instance.said()
        assert rows(c) == [(body, "READY", 1) for body in TEN[1:]]
    assert all(message.redelivered for message in omq_instance.drain("A"))


def test_a_reader_that_waits_for_a_manager_may_begin_with_all_of_it(omq_instance: Instance) -> None:
    """The same, but it has seen that its manager is gone: it is stopped while it waits for one."""
    def work(reader: omq.Reader) -> None:
        reader._link._absence._waiting = lambda _told: signal.raise_signal(signal.SIGSTOP)
        for message in reader.next(timeout_s=WAIT_S):
            if message.body == b"1":
                signal.raise_signal(signal.SIGSTOP)
                reader._link.control({"op": "status"})  # whatever makes it see that
            message.done()
        reader.flush()
        assert reader.lost >= 9

    begin_with_ten(omq_instance)
    reader = worker(omq_instance, work)
    reader.wait_stopped()
    omq_instance.kill()
    reader.signal(signal.SIGCONT)
    reader.wait_stopped()
    omq_instance.start()
    with omq_instance.connect() as c:
        assert rows(c) == [(body, "READY", 1) for body in TEN[1:]]
        reader.signal(signal.SIGCONT)
        assert reader.wait() == 0, omq_instance.said()
        assert rows(c) == [(body, "READY", 1) for body in TEN[1:]]
    assert all(message.redelivered for message in omq_instance.drain("A"))


def test_a_long_start_leaves_readers_their_time(omq_instance: Instance) -> None:
    """The grace time begins when the manager can be reached, however long its start has taken."""
    grace_s = 8

    def work(reader: omq.Reader) -> None:
        stopped_at_the_second(reader)
        assert reader.lost == 0

    omq_instance.settings(reconnect_grace_s=grace_s)
    begin_with_ten(omq_instance)
    reader = worker(omq_instance, work)
    reader.wait_stopped()
    omq_instance.kill()
    manager = omq_instance.start(MANAGER, fault="recovery.before_serve:stop:1")
    manager.wait_stopped()
    over = time.monotonic() + grace_s
    until(lambda: time.monotonic() > over)
    manager.signal(signal.SIGCONT)
    omq_instance.drain("B")  # groups go by, and it has not come back
    reader.signal(signal.SIGCONT)
    assert reader.wait() == 0, omq_instance.said()
    assert omq_instance.drain("A") == []


def test_a_reader_that_outlives_the_manager_says_it_again(omq_instance: Instance) -> None:
    """It comes back, notes in the new channel what it had noted in the old one, and dies."""
    def work(reader: omq.Reader) -> None:
        for message in reader:
            if message.body == b"3":
                signal.raise_signal(signal.SIGSTOP)
                reader._link.control({"op": "status"})  # whatever makes it meet the new manager
                os.kill(os.getpid(), signal.SIGKILL)
            message.done()

    omq_instance.settings(reconnect_grace_s=60)
    begin_with_ten(omq_instance)
    reader = worker(omq_instance, work)
    reader.wait_stopped()
    omq_instance.kill()
    omq_instance.start()
    omq_instance.ready()
    reader.signal(signal.SIGCONT)
    assert reader.wait() == -signal.SIGKILL
    with omq_instance.connect() as c:
        assert rows(c) == [(b"3", "READY", 1), *((b"%d" % i, "READY", 0) for i in range(4, 10))]


def test_a_failed_message_is_alone_also_after_a_restart(omq_instance: Instance) -> None:
    omq_instance.queues(QUEUES)
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put_many("A", TEN[:4])
        with c.reader("A", batch=4) as reader:
            reader.next(timeout_s=WAIT_S)[1].fail("once")
        for again in (False, True):
            if again:
                omq_instance.stop()
                omq_instance.start()
            with c.reader("A", batch=4) as reader:
                shares = [[m.body for m in reader.next(timeout_s=WAIT_S)] for _ in range(3)]
            assert shares == [[b"0"], [b"1"], [b"2", b"3"]]


# a reader without `with`, threads, forks, times


def test_close_of_a_connection_loses_nothing(omq_instance: Instance) -> None:
    omq_instance.start()
    for ack in ("prompt", "batch"):
        c = omq_instance.connect()
        c.put_many("A", TEN)
        reader = c.reader("A", batch=4, ack=ack)
        for message in reader.next(timeout_s=WAIT_S)[:3]:
            message.done()
        c.close()
        c.close()
        assert [m.body for m in omq_instance.drain("A")] == TEN[3:]
        with pytest.raises(omq.ConnectionClosed):
            c.put("A", b"")
        with pytest.raises(omq.ReaderClosed):
            reader.next()


def test_an_iteration_goes_on_where_it_was_left(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put_many("A", TEN)
        seen = []
        with c.reader("A", batch=5) as reader:
            for _ in range(10):
                for message in reader:
                    seen.append(message.body)
                    message.done()
                    break
        assert seen == TEN


def test_a_second_thread_is_told(omq_instance: Instance) -> None:
    omq_instance.start()
    told: list[Exception] = []
    with omq_instance.connect() as c, c.reader("A") as reader:
        waiting = threading.Thread(target=lambda: reader.next(timeout_s=WAIT_S))
        waiting.start()
        until(c._link._busy.locked)
        for call in (lambda: c.put("A", b"x"), lambda: reader.next(timeout_s=0),
                     lambda: c.body(1)):
            with pytest.raises(omq.ConnectionBusy) as caught:
                call()
            told.append(caught.value)
        reader.interrupt()
        waiting.join()
        c.put("A", b"x")
    assert len(told) == 3
    assert [m.body for m in omq_instance.drain("A")] == [b"x"]


def test_a_child_is_told(omq_instance: Instance) -> None:
    """It can neither ask nor settle, and what it closes is nobody's connection."""
    omq_instance.start()
    with omq_instance.connect() as c, c.reader("A") as reader:
        c.put("A", b"x")
        (message,) = reader.next(timeout_s=WAIT_S)

        def child() -> int:
            for call in (lambda: c.put("A", b"y"), message.done, reader.next, reader.close):
                with pytest.raises(omq.ConnectionForked):
                    call()
            c.close()
            return 0

        assert start("child", child, output=omq_instance.output).wait() == 0
        message.done()
    assert omq_instance.drain("A") == []


@pytest.mark.parametrize("call", ["put", "next", "open"])
def test_a_hung_manager_costs_no_more_than_was_said(omq_instance: Instance, call: str) -> None:
    """Typed, and not much later than `timeout_s`; a generous bound, for a busy machine."""
    omq_instance.start()
    omq_instance.ready()
    c = omq_instance.connect()
    reader = c.reader("A")
    c.put("A", b"x")
    impatient(c)
    omq_instance.children[MANAGER].signal(signal.SIGSTOP)
    began = time.monotonic()
    calls: dict[str, Callable[[], object]] = {
        "put": lambda: c.put("A", b"y"), "next": lambda: reader.next(timeout_s=0.1),
        "open": lambda: c.put("B", b"y")}
    with pytest.raises((omq.TimedOut, ManagerUnavailable)):
        calls[call]()
    assert time.monotonic() - began < WAIT_S
    omq_instance.children[MANAGER].signal(signal.SIGCONT)
    c.close()


# a planned stop


def test_a_planned_stop_fails_nobody(omq_instance: Instance, tmp_path: Path) -> None:
    """While the manager drains the holder of a message puts and moves; another's put waits for
    the next manager."""
    def put() -> int:
        with omq.connect(omq_instance.root, name="puts", timeout_s=WAIT_S) as other:
            (tmp_path / "there").touch()
            until((tmp_path / "draining").exists)
            (tmp_path / "id").write_text(other.put("B", b"lone"))
        return 0

    omq_instance.settings(drain_timeout_s=60)  # the most that stop_timeout_s allows
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put_many("A", [b"to move", b"to stay"])
        putter = start("puts", put, output=omq_instance.output)
        until((tmp_path / "there").exists)
        with c.reader("A") as reader:
            (message,) = reader.next(timeout_s=WAIT_S)
            manager = omq_instance.children[MANAGER]
            manager.signal(signal.SIGTERM)
            until(lambda: "waiting for readers" in status(omq_instance, c))
            (tmp_path / "draining").touch()
            c.put("B", b"of the holder")
            message.move(["B"], new=[omq.Outgoing(b"new", queues=("B",))])
            assert manager.wait() == 0
            assert putter.running and not (tmp_path / "id").exists()
            omq_instance.start()
            assert putter.wait() == 0, omq_instance.said()
            (rest,) = reader.next(timeout_s=WAIT_S)
            assert (rest.body, rest.attempts) == (b"to stay", 0)
    assert {m.body for m in omq_instance.drain("B")} == {
        b"of the holder", b"to move", b"new", b"lone"}


def test_a_planned_stop_takes_back_what_is_held_for_longer(omq_instance: Instance) -> None:
    """After drain_timeout_s: untouched, so it costs no attempt; but it is handed out again, and who
    held it settles nothing any more. A kill leaves it with its reader."""
    omq_instance.start()
    with omq_instance.connect() as c, c.reader("A") as reader:
        c.put("A", b"long work")
        for ends, again in ((omq_instance.kill, False), (omq_instance.stop, True)):
            (message,) = reader.next(timeout_s=WAIT_S)
            ends(MANAGER)
            omq_instance.start(MANAGER)
            c.put("B", b"it is there")
            if not again:
                assert [(row.state.name, row.attempts) for row in c.browse("A")] == [("ACTIVE", 0)]
                message.release()
        reader.flush()
        message.done()
        reader.flush()
        assert reader.lost == 1
        assert [(row.state.name, row.attempts) for row in c.browse("A")] == [("READY", 0)]


def test_a_planned_stop_is_told_to_who_is_slow(omq_instance: Instance, tmp_path: Path) -> None:
    """The holder sends its move and gets the processor again when the manager has gone, with the
    reply: it is not left in doubt, and needs no next manager."""
    def move() -> int:
        with omq_instance.connect("mover") as c, c.reader("A") as reader:
            (message,) = reader.next(timeout_s=WAIT_S)
            (tmp_path / "holds").touch()
            until((tmp_path / "draining").exists)
            fault.arm("client.after_request:stop:1")
            message.move(["B"], new=[omq.Outgoing(b"new", queues=("B",))])
            (tmp_path / "moved").touch()
        return 0

    omq_instance.settings(drain_timeout_s=60)
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put("A", b"to move")
        mover = start("mover", move, output=omq_instance.output)
        until((tmp_path / "holds").exists)
        manager = omq_instance.children[MANAGER]
        manager.signal(signal.SIGTERM)
        until(lambda: "waiting for readers" in status(omq_instance, c))
    (tmp_path / "draining").touch()
    mover.wait_stopped()
    assert manager.wait() == 0
    mover.signal(signal.SIGCONT)
    until(lambda: (tmp_path / "moved").exists() or not mover.running)
    assert mover.wait() == 0, omq_instance.said()
    omq_instance.start()
    assert {m.body for m in omq_instance.drain("B")} == {b"to move", b"new"}


def status(instance: Instance, c: Client) -> str:
    """Whether it drains can only be seen by its refusals: a put of somebody who holds nothing."""
    try:
        with omq.connect(instance.root, name="probe", timeout_s=0) as probe:
            probe.put("B", b"probe", persistent=False)
    except omq.ShuttingDown:
        return "waiting for readers"
    except (omq.TimedOut, ManagerUnavailable):  # too slow to say so: it is asked again
        return ""
    return ""


def test_a_stop_is_no_failure_of_the_message_in_hand(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put("A", b"x")
        with pytest.raises(omq.ShuttingDown), c.reader("A") as reader:
            for message in reader:
                assert message.body == b"x"
                raise omq.ShuttingDown
        assert rows(c) == [(b"x", "READY", 0)]
