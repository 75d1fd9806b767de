"""The request queue as the manager takes it: who is waited for, and for how long not."""

from __future__ import annotations

from typing import Any

import pytest
import sysv_ipc

from omq.base.errors import IpcRemoved
from omq.format.wire import REQUEST_TYPE, WAKE_TYPE
from omq.ipc.server import requests
from omq.ipc.server.requests import Company, Requests

LIMIT = 100
NONE = None


class Queue:
    """What each call of `receive` finds; NONE: nothing is there."""

    id = 7

    def __init__(self, *script: bytes | int | type[Exception] | None) -> None:
        self.script = list(script)
        self.looked_in_vain = 0
        self.taken_off = 0

    def garbage(self) -> None:
        self.taken_off += 1

    def receive(self, *, block: bool) -> tuple[bytes, int]:
        found = self.script.pop(0) if self.script else NONE
        if found is NONE:
            assert not block, "the manager would wait for ever"
            self.looked_in_vain += 1
            raise sysv_ipc.BusyError
        if isinstance(found, type):
            raise found
        return (b"w", WAKE_TYPE) if isinstance(found, int) else (found, REQUEST_TYPE)


def served(queue: Queue, processors: int = 2) -> Requests:
    made = Requests(queue, queue.garbage)
    made._company = Company(processors)
    return made


@pytest.fixture(autouse=True)
def no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time goes on by a tenth of a wait with each look."""
    ticks = iter(range(0, 1 << 40, requests.GATHER_NS // 10))
    monkeypatch.setattr("time.monotonic_ns", lambda: next(ticks))


def test_all_that_is_there_up_to_the_limit() -> None:
    made = served(Queue(b"a", WAKE_TYPE, b"b", b"c", NONE))
    assert made.take(2) == [b"a", b"b"]
    assert made.take(2) == [b"c"]
    assert served(Queue(WAKE_TYPE, NONE)).take(LIMIT) == []


def test_two_that_take_turns_become_one_group() -> None:
    """a and b are out of step; from the third group on, the first of them waits for the other."""
    queue = Queue(b"a", NONE, b"b", NONE, b"a", NONE, NONE, b"b", NONE, b"a", NONE, b"b", NONE)
    made = served(queue)
    assert [made.take(LIMIT) for _ in range(4)] == [[b"a"], [b"b"], [b"a", b"b"], [b"a", b"b"]]


def test_nobody_waits_for_more_clients_than_processors() -> None:
    queue = Queue(b"a", NONE, b"b", NONE, b"a", NONE)
    made = served(queue, processors=1)
    assert [made.take(LIMIT) for _ in range(3)] == [[b"a"], [b"b"], [b"a"]]
    assert queue.looked_in_vain == 3


def test_a_wait_in_vain_is_repeated_ever_more_seldom() -> None:
    company, waits = Company(2), []
    for number in range(100):
        waited = company.wanted(1) > 1
        waits += [number] * waited
        company.had(1, waited=waited)
    assert waits == [2, 6, 12, 22, 40, 74]


def test_what_came_is_remembered() -> None:
    company = Company(4)
    company.had(2, waited=False)
    company.had(2, waited=False)
    assert company.wanted(2) == 4
    company.had(4, waited=True)
    for count in (1, 3, 4):
        assert company.wanted(count) == 4
    company.had(0, waited=False)  # a wake-up alone
    assert company.wanted(0) == 0 and company.wanted(3) == 4
    company.had(3, waited=True)
    assert company.wanted(2) == 2


@pytest.mark.parametrize(("error", "raised"), [(sysv_ipc.ExistentialError, IpcRemoved)])
def test_a_removed_queue(error: Any, raised: type[Exception]) -> None:
    with pytest.raises(raised):
        served(Queue(error)).take(LIMIT)
    with pytest.raises(raised):
        served(Queue(b"a", error)).take(LIMIT)


def test_a_signal_ends_the_wait() -> None:
    assert served(Queue(sysv_ipc.Error)).take(LIMIT) == []
