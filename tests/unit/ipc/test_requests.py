"""The request queue as the manager takes it: who is waited for, and for how long not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import sysv_ipc

from omq.base.errors import IpcRemoved
from omq.fast.company import Company
from omq.format.poolctrl import Answered
from omq.format.wire import REQUEST_TYPE, VERSION, WAKE_TYPE, Operation
from omq.ipc.server import registration, requests
from omq.ipc.server.answer_pace import WORTH_NS, AnswerPace, answers
from omq.ipc.server.registration import Registrar
from omq.ipc.server.requests import Requests
from omq.ipc.server.sessions import Peer

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
    made.company = Company(processors)
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


PUT, ANSWER = b"\x01 put", b"%c answer" % int(Operation.SYNCED)


class Held:
    """Whose replies are held."""

    unanswered = True


def paced(queue: Queue, *times: int) -> tuple[Requests, Held]:
    """`times`: of the clock that says whether an answer came soon; none: it stands still."""
    made, held, clock = served(queue), Held(), iter(times)
    made.pace = AnswerPace(cast(Any, held), lambda: next(clock, 0))
    return made, held


def test_requests_wait_for_an_answer_which_comes_first() -> None:
    made, held = paced(Queue(PUT, NONE, PUT + b"2", ANSWER, NONE, NONE))
    assert made.take(LIMIT) == [ANSWER]
    held.unanswered = False
    assert made.take(LIMIT) == [PUT, PUT + b"2"], "what has waited is the next group, at once"


def test_nobody_waits_where_nothing_is_unanswered() -> None:
    made, held = paced(Queue(PUT, NONE))
    held.unanswered = False
    assert made.take(LIMIT) == [PUT]


def test_whatever_else_is_said_ends_the_wait() -> None:
    made, _ = paced(Queue(PUT, NONE, WAKE_TYPE))
    assert made.take(LIMIT) == [PUT]
    made, _ = paced(Queue(PUT, NONE, sysv_ipc.Error))
    assert made.take(LIMIT) == [PUT]
    made, _ = paced(Queue(WAKE_TYPE, NONE))
    assert made.take(LIMIT) == [], "nothing waits"
    made, _ = paced(Queue(PUT, NONE, PUT))
    assert made.take(2) == [PUT, PUT]


def test_answers_that_come_late_are_not_waited_for_again_soon() -> None:
    late = WORTH_NS + 1
    held = Held()
    pace = AnswerPace(cast(Any, held), iter([0, late, 0, late, *[0] * 100]).__next__)
    found = []
    for number in range(12):
        if pace.waits():
            found.append(number)
            pace.ended()
    assert found == [0, 3, 8, 9, 10, 11], "after the pauses the answers come in time again"
    assert answers([PUT, ANSWER, b""]) == [ANSWER]


def test_who_was_released_is_one_group_with_those_that_waited() -> None:
    """Two halves that take turns; from the third group on the first waits for the other."""
    queue = Queue(b"\x01a", NONE, b"\x01b", NONE, b"\x01a", NONE, b"\x01b", NONE)
    made, held = paced(queue)
    held.unanswered = False
    assert [made.take(LIMIT) for _ in range(3)] == [[b"\x01a"], [b"\x01b"], [b"\x01a", b"\x01b"]]


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


@pytest.mark.parametrize(("in_doubt", "known", "sequence"), [
    (0, 0, 0), (1, 0, 0), (8, 0, 7), (-5, 0, 0), (8, 9, 9), ((1 << 64) - 1, 0, (1 << 64) - 2),
    (1 << 64, 0, (1 << 64) - 1), ((1 << 64) + 1, 0, (1 << 64) - 1), (1 << 90, 9, (1 << 64) - 1)])
def test_a_sequence_in_doubt_is_one_that_a_request_can_have(
        monkeypatch: pytest.MonkeyPatch, in_doubt: int, known: int, sequence: int) -> None:
    """The compiled server keeps it in 64 bits: a larger one would end the manager."""
    token = bytes(range(16))
    answered = {int.from_bytes(token[:8], "little"):
                Answered(0, known, 0, 0, 0, 0, 0)} if known else {}
    session = SimpleNamespace(channel=SimpleNamespace(told=dict), trusted=False,
                              party=SimpleNamespace(client=1, owns=False))
    doors = SimpleNamespace(admission=SimpleNamespace(check_client=lambda uid: None))
    monkeypatch.setattr(registration, "peer_of", lambda _: Peer(1, 0, frozenset()))
    monkeypatch.setattr(registration, "new_token", lambda old: token)
    registrar = Registrar(
        cast(Any, None), cast(Any, SimpleNamespace(answered=answered, by_id={})), cast(Any, doors),
        cast(Any, None), uuid=bytes(16), epoch=1, requests=(1, 2), owner=0, channel_bytes=0,
        threshold=0, answered=answered, units=cast(Any, SimpleNamespace(messages=1, bytes=1)))
    for name in ("_admit", "claim"):
        monkeypatch.setattr(registrar, name, lambda *_: session)
    for name in ("_open", "give_bell"):
        monkeypatch.setattr(registration, name, lambda *_: None)
    registrar.register(cast(Any, SimpleNamespace(connection=None)), None, {
        "version": VERSION, "name": "x", "token": token.hex() if known else "",
        "in_doubt": in_doubt})
    assert session.sequence == sequence
