"""A wait for messages that somebody ends before the manager has heard of it, or while there is no
manager. Processes wait: a test that fails finds them waiting still, and ends them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

import omq
from omq.base.errors import OmqError
from omq.ipc.client import registration, watcher
from omq.ipc.client.connection import Client
from tests.process.instance import MANAGER, Instance
from tests.process.processes import WAIT_S, Child, start
from tests.waiting import until

Wait = Callable[[], list[omq.Message]]
ENDED, FOUND = 0, 1


def wait_of(c: Client, way: str) -> Wait:
    """A wait without end, which is the next request of the connection."""
    if way == "unit":
        unit = c.unit()
        assert unit.next("A", timeout_s=0) == []
        return lambda: unit.next("A")
    reader = c.reader("A", where="size > 7" if way == "where" else "")
    assert reader.next(timeout_s=0) == []
    if way == "id":
        return lambda: reader.next(correlation="of nobody")
    return reader.next


def waiter(instance: Instance, way: str, before: Callable[[Client], None]) -> Child:
    """A process that is about to wait, behind `before`, and tells what its wait ended with."""
    told, tell = os.pipe()

    def run() -> int:
        patch = pytest.MonkeyPatch()  # until the process ends
        for period in ("PERIOD_MIN_S", "PERIOD_MAX_S"):  # it looks when something happens alone
            patch.setattr(watcher, period, 3600.0)
        patch.setattr(registration, "INTERRUPTED_S", WAIT_S)  # it waits for the next manager
        with omq.connect(instance.root, name="waits", timeout_s=WAIT_S) as c:
            wait = wait_of(c, way)
            before(c)
            os.write(tell, b"x")
            return FOUND if wait() else ENDED

    child = start("waits", run, output=instance.output)
    os.close(tell)
    with os.fdopen(told, "rb") as comes:
        assert comes.read(1) == b"x", "it has not come so far"
    return child


@pytest.mark.parametrize("way", ["next", "id", "unit"])
def test_an_end_overtakes_the_request(omq_instance: Instance, way: str) -> None:
    """It comes over the socket, while the request lies on its queue until the manager's next group.
    Only this request does not wait."""
    omq_instance.start()

    def cancel(c: Client, ahead: int = 1) -> None:
        c._link.control({"op": "cancel", "sequence": c._link._sequence + ahead})

    assert waiter(omq_instance, way, cancel).wait() == ENDED
    other = waiter(omq_instance, way, lambda c: cancel(c, 2))
    with omq_instance.connect() as c:
        c.put("A", b"x", correlation_id="of nobody")
    assert other.wait() == FOUND


@pytest.mark.parametrize("way", ["next", "id", "unit", "where"])
@pytest.mark.parametrize("end", ["wake", "interrupt"])
def test_an_end_while_there_is_no_manager(omq_instance: Instance, way: str, end: str) -> None:
    """The next manager is asked for what was asked for, and does not wait either."""
    omq_instance.start()
    omq_instance.ready()

    def later(c: Client) -> None:
        link = c._link
        register = link._register_until

        def ended(deadline: float, in_doubt: int) -> dict[str, object]:
            assert link._gate is None
            getattr(link, end)()
            return register(deadline, in_doubt)

        pytest.MonkeyPatch().setattr(link, "_register_until", ended)

    waiting = waiter(omq_instance, way, later)
    omq_instance.kill(MANAGER)
    omq_instance.start()
    assert waiting.wait() == ENDED


def test_an_interrupt_waits_no_longer_for_a_manager_that_is_stopped(
        omq_instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the time of an answer: to cancel the wait, then to register again."""
    manager = omq_instance.start()
    omq_instance.ready()
    monkeypatch.setattr(registration, "ANSWER_MAX_S", 3600.0)
    monkeypatch.setattr(registration, "INTERRUPTED_S", 0.5)
    with omq_instance.connect() as c:
        reader, link, errors = c.reader("A"), c._link, list[OmqError]()
        assert link._line is not None
        link._timeout_s = link._line._timeout_s = 3600.0

        def wait() -> None:
            try:
                reader.next()
            except OmqError as error:
                errors.append(error)

        manager.signal(signal.SIGSTOP)
        try:
            manager.wait_stopped()
            waiting = threading.Thread(target=wait, daemon=True)
            waiting.start()
            until(link._busy.locked)
            reader.interrupt()
            waiting.join(WAIT_S)
            assert not waiting.is_alive() and errors
        finally:
            manager.signal(signal.SIGCONT)
    omq_instance.ready()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("way", ["next", "unit"])
def test_what_was_to_end_a_reader_ends_nothing_behind_it(omq_instance: Instance, *, way: str,
                                                         late: bool) -> None:
    """It is closed before or behind it: who waits next on this connection waits."""
    omq_instance.start()
    with omq_instance.connect() as c:
        reader = c.reader("A")
        if not late:
            reader.interrupt()
        reader.close()
        if late:
            reader.interrupt()
        c.put("A", b"x", delay_s=0.2)
        if way == "unit":
            with c.unit() as unit:
                assert unit.next("A"), "it did not wait"
        else:
            with c.reader("A") as second:
                assert second.next(), "it did not wait"


def test_an_interrupt_ends_one_iteration(omq_instance: Instance) -> None:
    """Also where `next` met it. The next iteration is ended by its own interrupt, not by a wake."""
    omq_instance.start()
    with omq_instance.connect() as c, c.reader("A") as reader:
        reader.interrupt()
        assert reader.next() == []
        c.put("A", b"x")
        request, rounds = reader._request, iter(("woken", "woken"))

        def woken(*said: object) -> object:
            if next(rounds, None):
                reader.wake()
                for message in found:
                    c.put("A", message.body)
            return request(*said)  # type: ignore[arg-type]

        found: list[omq.Message] = []
        reader._request = woken  # type: ignore[assignment,method-assign]
        for message in reader:
            found.append(message)
            message.done()
            if len(found) == 2:
                reader.interrupt()
        assert [message.body for message in found] == [b"x", b"x"]


def test_a_cursor_leaves_an_end_to_the_next_wait(omq_instance: Instance) -> None:
    """`take` does not wait: it is not what a wake or an interrupt was to end."""
    omq_instance.start()
    with omq_instance.connect() as c, c.reader("A") as reader:
        for end in (reader.wake, reader.interrupt):
            c.put("A", b"x")
            (row,) = c.browse("A")
            end()
            message = reader.take(row)
            assert message is not None
            message.done()
            assert reader.next() == []


@pytest.mark.parametrize("late", [False, True])
def test_an_interrupt_that_nobody_has_met_limits_the_wait_for_a_manager(
        omq_instance: Instance, *, late: bool) -> None:
    """Whatever is answered meanwhile; once it is met, it limits nothing more."""
    omq_instance.start()
    with omq_instance.connect() as c, c.reader("A") as reader:
        reader.interrupt()
        c.put("A", b"x")
        assert c._link._patience is not None
        if late:
            assert reader.next() == []
            assert len(reader.next()) == 1
            assert c._link._patience is None
