"""One reader of omread: what becomes of each message when it ends, is stopped or fails."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import multiprocess
import pytest

from omq.cli.queue.read_loop import ReadPlan, Tally, read
from omq.services.daemon.signals import Signals
from omq.services.readers.runner import HeldMessage
from tests.unit.cli.fakes import FakeMessage, FakeReader

FOREVER = ReadPlan(batch=3, wait_s=30.0, ends=False)
ENDS = ReadPlan(batch=3, wait_s=0.5, ends=True)


@pytest.fixture
def tally() -> Iterator[Callable[[int | None], Tally]]:
    made: list[Tally] = []

    def make(count: int | None) -> Tally:
        made.append(Tally(count))
        return made[-1]

    yield make
    for each in made:
        each.close()


def _messages(count: int) -> list[FakeMessage]:
    return [FakeMessage(qpool_id=number) for number in range(count)]


def _done(message: HeldMessage) -> None:
    message.done()


def test_ends_when_nothing_came(tally: Callable[[int | None], Tally]) -> None:
    messages = _messages(4)
    reader = FakeReader(list(messages))
    assert read(reader, _done, tally(None), ENDS, Signals()) == 4
    assert [message.ended for message in messages] == [("done",)] * 4
    assert reader.asked == [(3, 0.5)] * 3
    assert reader.flushes == 1


def test_goes_on_waiting_until_a_signal(tally: Callable[[int | None], Tally]) -> None:
    signals = Signals()
    reader = FakeReader()

    def stop_at_the_third() -> None:
        if len(reader.asked) == 3:
            signals.request_stop()

    reader.on_empty = stop_at_the_third
    assert read(reader, _done, tally(None), FOREVER, signals) == 0
    assert (len(reader.asked), reader.interrupts) == (3, 1)


def test_hang_up_is_a_stop(tally: Callable[[int | None], Tally]) -> None:
    signals = Signals()
    reader = FakeReader(on_empty=signals.request_reload)
    assert read(reader, _done, tally(None), FOREVER, signals) == 0
    assert signals.stopping


def test_count_is_not_exceeded(tally: Callable[[int | None], Tally]) -> None:
    reader = FakeReader(_messages(9))
    assert read(reader, _done, tally(4), FOREVER, Signals()) == 4
    assert [asked for asked, _ in reader.asked] == [3, 1]
    assert len(reader.waiting) == 5


def test_stop_finishes_the_message_in_hand_and_releases_the_rest(
    tally: Callable[[int | None], Tally]
) -> None:
    signals, messages, count = Signals(), _messages(3), tally(10)

    def handler(message: HeldMessage) -> None:
        signals.request_stop()
        message.done()

    reader = FakeReader(list(messages))
    assert read(reader, handler, count, FOREVER, signals) == 1
    assert [message.ended for message in messages] == [("done",), ("release",), ("release",)]
    assert reader.flushes == 1
    assert count.take(100) == 9


def test_error_of_the_handler_releases_and_ends(tally: Callable[[int | None], Tally]) -> None:
    messages, count = _messages(3), tally(10)

    def handler(message: HeldMessage) -> None:
        if message.qpool_id == 1:
            raise BrokenPipeError
        message.done()

    reader, signals = FakeReader(list(messages)), Signals()
    with pytest.raises(BrokenPipeError):
        read(reader, handler, count, FOREVER, signals)
    assert [message.ended for message in messages] == [("done",), ("release",), ("release",)]
    assert reader.flushes == 1
    assert count.take(100) == 9
    signals.request_stop()
    assert reader.interrupts == 0, "still called after its end"


def _take_all(tally: Tally, sending: int) -> None:
    taken = 0
    while got := tally.take(3):
        tally.give_back(got - 1)
        taken += 1
    os.write(sending, taken.to_bytes(4, "little"))


def test_count_is_shared_by_processes(tally: Callable[[int | None], Tally]) -> None:
    count, (reading, sending) = tally(200), os.pipe()
    fork = multiprocess.get_context("fork")
    processes = [fork.Process(target=_take_all, args=(count, sending)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    os.close(sending)
    taken = [int.from_bytes(os.read(reading, 4), "little") for _ in processes]
    os.close(reading)
    assert sum(taken) == 200


def test_no_count_is_no_limit(tally: Callable[[int | None], Tally]) -> None:
    unlimited = tally(None)
    unlimited.give_back(5)
    assert unlimited.take(1000) == 1000
