"""Who may get may select, without the index, and sees nothing that it could not be handed
(ADR 0062). Needs root, for other users."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import omq
from omq.base.errors import BadRequest, NoAuthority, NoMessage
from omq.core.engine import backlog
from tests.process.processes import WAIT_S
from tests.process.test_requests import reload
from tests.process.trust_world import MEMBER, OTHER, TrustInstance, trust_instance

LARGE = 300_000
GET_ALONE = f"[A]\nuser:{MEMBER} = get\n[B]\nuser:{OTHER} = put get\n"


@pytest.fixture
def made() -> Iterator[TrustInstance]:
    with trust_instance() as found:
        (found.conf / "authority.conf").write_text(GET_ALONE)
        yield found


@pytest.fixture
def line() -> Iterator[tuple[int, int]]:
    """A pipe: by it a member says that it is so far."""
    heard, says = os.pipe()
    yield heard, says
    os.close(heard)
    os.close(says)


def as_member(made: TrustInstance, work: Callable[[Any], None]) -> None:
    made.as_user(MEMBER, lambda: _connected(made, work))


def number_of(message_id: str) -> int:
    return int(message_id[32:], 16)


def test_a_member_selects(made: TrustInstance, line: tuple[int, int]) -> None:
    """By properties, priority and the body's header; large bodies too; in the order of hand-out,
    over several pieces; then what arrives."""
    heard, says = line
    made.start()
    made.ready()
    with made.connect("fills") as c:
        c.put_many("A", [omq.Outgoing(b"no", priority=n % 10) for n in range(2500)])
        for n in range(4):
            c.put("A", b"%d" % n * (LARGE if n == 2 else 1), properties={"colour": "red"},
                  priority=5 if n == 3 else 4)
        c.put("A", b"Subject: mine\r\n\r\nbody", priority=0)

    def work(c: Any) -> None:
        with c.reader("A", batch=10, where="colour = 'red'") as reader:
            found: list[bytes] = []
            while messages := reader.next(timeout_s=0):
                found += [message.body for message in messages]
                for message in messages:
                    message.done()
            assert found == [b"3", b"0", b"1", b"2" * LARGE]
            (message,) = reader.next(timeout_s=0, where="subject = 'mine'")
            message.done()
            assert len(reader.next(300, timeout_s=0, where="priority = 9")) == 250
        with c.reader("A", where="colour = 'green'") as reader:
            _waits_for(reader, says, b"came")

    child = made.begin(MEMBER, lambda: _connected(made, work))
    assert os.read(heard, 1)
    with made.connect("puts") as c:
        c.put("A", b"other", properties={"colour": "blue"})
        c.put("A", b"came", properties={"colour": "green"})
    made.join(child)


def _waits_for(reader: Any, says: int, body: bytes) -> None:
    """There is nothing for it yet, which it says; then that comes."""
    assert reader.next(timeout_s=0) == []
    os.write(says, b"!")
    (message,) = reader.next(timeout_s=WAIT_S)
    assert message.body == body
    message.done()


def _connected(made: TrustInstance, work: Callable[[Any], None]) -> None:
    with omq.connect(made.root, timeout_s=WAIT_S, name="member") as c:
        work(c)


def test_it_sees_nothing_that_it_could_not_be_handed(made: TrustInstance) -> None:
    """In a reader's hands, deferred, delayed, held for a unit, on another queue; without reading
    the queue, nothing at all."""
    made.start()
    made.ready()
    with made.connect("root") as c, made.connect("holds") as other:
        ids = {name: number_of(c.put("A", name.encode() * 40_000)) for name in ("active", "later")}
        with other.reader("A", batch=2) as reader:
            active, later = reader.next(timeout_s=WAIT_S)
            later.defer(3600)
            reader.flush()
            ids["delayed"] = number_of(c.put("A", b"delayed", delay_s=3600))
            ids["elsewhere"] = number_of(c.put("B", b"elsewhere"))
            with c.unit() as unit:
                unit.put("A", b"in doubt")
                unit.prepare("doubtful")
            (doubt,) = c.units_in_doubt()
            ids["both"] = number_of(c.put(["A", "B"], b"both"))
            ids["plain"] = number_of(c.put("A", b"plain" * 40_000))
            highest = ids["plain"]

            def look(m: Any) -> None:
                for question in ({"after": None, "want": 5}, {"entries": [0]}):
                    with pytest.raises(BadRequest, match="not registered"):
                        m.control({"op": "see", **question})
                with pytest.raises(NoMessage):
                    m.body(ids["plain"])
                with pytest.raises(NoAuthority):
                    m.reader("B")
                with m.reader("A"):
                    seen = {n for n in range(1, highest + 1) if _reads(m, n)}
                    assert seen == {ids["both"], ids["plain"]}
                    for name in ("active", "later", "delayed", "elsewhere"):
                        with pytest.raises(NoMessage):
                            m.control({"op": "container", "qpool": ids[name]})
                    told = m.control({"op": "see", "after": None, "want": 1000})
                    assert (told["count"], told["next"]) == (2, None)
                    told = m.control({"op": "see", "entries": list(range(100))})
                    assert told["count"] == 2
                with pytest.raises(NoMessage):
                    m.body(ids["plain"])

            as_member(made, look)
            assert active.body == b"active" * 40_000
        c.back_out_unit(doubt.unit)


def _reads(c: Any, qpool: int) -> bool:
    try:
        c.body(qpool)
    except NoMessage:
        return False
    return True


WRONG: tuple[dict[str, Any], ...] = (
    {}, {"want": "x"}, {"after": 7, "want": 1}, {"after": [1], "want": 1},
    {"after": [10, 1], "want": 1}, {"after": [-1, 1], "want": 1},
    {"after": [1, 1 << 56], "want": 1},
    {"after": [1.5, 1], "want": 1}, {"after": [True, 1], "want": 1}, {"entries": 5},
    {"entries": ["x"]}, {"entries": [0] * 1001}, {"entries": {"0": 1}})


def test_wrong_questions_are_refused(made: TrustInstance) -> None:
    made.start()
    made.ready()
    with made.connect("fills") as c:
        c.put("A", b"there")

    def work(c: Any) -> None:
        with c.reader("A"):
            for question in WRONG:
                with pytest.raises(BadRequest):
                    c.control({"op": "see", **question})
                c.control({"op": "status"})  # what is wrong in a row closes a connection
            for entry in (-1, 1 << 31, 1 << 70):
                assert c.control({"op": "see", "entries": [entry]})["count"] == 0
            assert c.control({"op": "see", "want": -5})["count"] == 1
            assert c.control({"op": "see", "want": 1 << 40})["count"] == 1

    as_member(made, work)


def test_an_inhibited_queue_shows_nothing_until_it_is_allowed(
        made: TrustInstance, line: tuple[int, int]) -> None:
    """Neither rows nor payloads; who waits is told when it is allowed again."""
    heard, says = line
    made.start()
    made.ready()
    with made.connect("fills") as c:
        known = number_of(c.put("A", b"it", properties={"colour": "red"}))
    reload(made, "[*]\n\n[A]\nget = inhibited\n\n[B]\n")

    def work(c: Any) -> None:
        with c.reader("A") as reader:
            for question in ({"after": None, "want": 5}, {"entries": [0]}):
                with pytest.raises(omq.GetInhibited):
                    c.control({"op": "see", **question})
            with pytest.raises(NoMessage):
                c.body(known)
            assert reader.next(timeout_s=0, where="colour = 'red'") == []
        with c.reader("A", where="colour = 'red'") as reader:
            _waits_for(reader, says, b"it")

    child = made.begin(MEMBER, lambda: _connected(made, work))
    assert os.read(heard, 1)
    reload(made, "[*]\n\n[A]\n\n[B]\n")
    made.join(child)


def test_a_right_that_is_taken_away_ends_it(made: TrustInstance, line: tuple[int, int]) -> None:
    heard, says = line
    made.start()
    made.ready()
    with made.connect("fills") as c:
        known = number_of(c.put("A", b"secret"))

    def work(c: Any) -> None:
        with c.reader("A"):
            assert c.body(known) == b"secret"
            os.write(says, b"!")
            with pytest.raises(NoAuthority):
                while True:
                    c.control({"op": "see", "want": 1})
            with pytest.raises(NoMessage):
                c.body(known)

    child = made.begin(MEMBER, lambda: _connected(made, work))
    assert os.read(heard, 1)
    (made.conf / "authority.conf").write_text("[A]\n")
    made.children["queue.manager"].signal(signal.SIGHUP)
    made.join(child)


def test_the_manager_dies_while_it_looks(made: TrustInstance, line: tuple[int, int]) -> None:
    """Places in the order of hand-out outlive it."""
    heard, says = line
    made.start()
    made.ready()
    with made.connect("fills") as c:
        c.put_many("A", [b"%d" % n for n in range(1500)])

    def work(c: Any) -> None:
        with c.reader("A", where="size = 4") as reader:
            first = reader.next(1, timeout_s=WAIT_S)
            assert [message.body for message in first] == [b"1000"]
            os.write(says, b"!")
            found: list[bytes] = []
            while len(found) < 499:
                messages = reader.next(1, timeout_s=WAIT_S)
                found += [message.body for message in messages]
                for message in messages:
                    message.done()
            assert found == [b"%d" % n for n in range(1001, 1500)]

    child = made.begin(MEMBER, lambda: _connected(made, work))
    assert os.read(heard, 1)
    made.kill()
    made.start()
    made.join(child)


def test_a_piece_is_bounded() -> None:
    """What a reader keeps in the manager is small, however deep the queue."""
    assert backlog.PIECE * 12 < 1 << 18
