"""What a peer that means no good gets of the state machine: an end by the book, never an error of
ours, and no more memory than its windows allow."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("proton", reason="the extra `amqp`: python-qpid-proton")

from omq.amqp.connection import HEADER
from omq.amqp.connection_events import Kind
from tests.process.amqp_frames import (
    FALSE,
    MESSAGE,
    NULL,
    OPENED,
    TRUE,
    ZERO,
    attach,
    frame,
    many,
    mutated,
    text,
    transfer,
    u32,
)
from tests.unit.amqp.peers import FRAME_BYTES, Ours

FRAMES = int(os.environ.get("OMQ_AMQP_ENGINE_FRAMES", "3000"))
SEED = int(os.environ.get("OMQ_AMQP_SEED", "32"))
FLOW = frame(0x13, ZERO, b"\x70" + u32(9), ZERO, b"\x70" + u32(9), ZERO, ZERO, b"\x70" + u32(5))
PART = frame(0x14, ZERO, ZERO, b"\xa0\x01t", ZERO, FALSE, TRUE, payload=bytes(3000))


def condition(data: bytes, *, ours: Ours | None = None) -> str:
    """What it is ended with."""
    ours = ours or Ours()
    ours.give(data)
    found = [each.condition.name for each in ours.heard(Kind.FAILED) if each.condition]
    assert ours.connection.finished == bool(found)
    out = ours.take()
    assert out.startswith(HEADER)
    return found[0] if found else ""


@pytest.mark.parametrize(("data", "wanted"), [
    (b"GET / HTTP/1.1\r\n", "amqp:connection:framing-error"),
    (b"AMQP\x00\x00\x09\x01", "amqp:connection:framing-error"),
    (HEADER + b"\xff\xff\xff\xff\x02\0\0\0", "amqp:connection:framing-error"),
    (HEADER + b"\0\0\0\x07\x02\0\0\0", "amqp:connection:framing-error"),
    (HEADER + b"\0\0\0\x10\x05\0\0\0" + bytes(8), "amqp:connection:framing-error"),
    (HEADER + b"\0\0\0\x10\x01\0\0\0" + bytes(8), "amqp:connection:framing-error"),
    (HEADER + b"\0\0\0\x10\x02\x01\0\0" + bytes(8), "amqp:connection:framing-error"),
    (HEADER + b"\0\0\0\x0c\x02\0\0\0\0\x53\x77\x40", "amqp:decode-error"),
    (HEADER + b"\0\0\0\x0c\x02\0\0\0\0\x45\x45\x40", "amqp:decode-error"),
    (HEADER + b"\0\0\0\x0c\x02\0\0\0\0\x44\x45\x40", "amqp:decode-error"),
    (OPENED + frame(0x15, TRUE, ZERO, ZERO, TRUE, b"\x00\x45\x45"), "amqp:decode-error"),
    (HEADER + frame(0x11, NULL, ZERO, ZERO, ZERO), "amqp:not-allowed"),
    (HEADER + frame(0x10, b"\x41"), "amqp:decode-error"),
    (HEADER + frame(0x10, text("x"), NULL, b"\x52\x10"), "amqp:invalid-field"),
    (OPENED + frame(0x10, text("x")), "amqp:not-allowed"),
    (OPENED + frame(0x17, payload=b"x"), "amqp:decode-error"),
    (OPENED + frame(0x15, TRUE, ZERO, payload=b"x"), "amqp:decode-error"),
    (OPENED + frame(0x11, NULL, ZERO, ZERO, ZERO), "amqp:not-allowed"),
    (OPENED + frame(0x12, text("x")), "amqp:decode-error"),
    (OPENED + attach(0, "A") + attach(0, "A"), "amqp:session:handle-in-use"),
    (OPENED + transfer(0), "amqp:session:unattached-handle"),
    (OPENED + attach(0, "A", takes=True) + transfer(0), "amqp:session:unattached-handle"),
    (OPENED + frame(0x16, b"\x52\x07"), "amqp:session:unattached-handle"),
    (OPENED + FLOW, "amqp:session:unattached-handle"),
    (OPENED + frame(0x13, ZERO), "amqp:decode-error"),
    (OPENED + attach(0, "A") + frame(0x14, ZERO), "amqp:decode-error"),
    (OPENED + attach(0, "A") + transfer(0) + transfer(0), "amqp:not-allowed"),
    (OPENED + attach(0, "A") + PART + transfer(1), "amqp:not-allowed"),
    (OPENED + frame(0x14, NULL), "amqp:decode-error"),
    (OPENED + frame(0x15, TRUE), "amqp:decode-error"),
    (OPENED + frame(0x15, TRUE, ZERO, b"\x71\0\0\0\0"), "amqp:decode-error"),
    (OPENED + attach(0, "A") + frame(0x14, ZERO, ZERO, b"\xa0\x21" + bytes(33)),
     "amqp:decode-error"),
    (HEADER + frame(0x10, text("x"), *[NULL] * 7, many(text("y"))), ""),
    (OPENED + frame(0x15, TRUE, ZERO, b"\x70\xff\xff\xff\xff", TRUE), ""),
    (OPENED + attach(0, "A") + transfer(0, settled=True), "")])
def test_it_is_ended_by_the_book(data: bytes, wanted: str) -> None:
    assert condition(data) == condition(data, ours=Ours(run_bytes_max=2000)) == wanted
    ours = Ours()
    for byte in data:  # the same byte by byte
        ours.give(bytes((byte,)))
    assert [each.condition.name for each in ours.heard(Kind.FAILED) if each.condition] == (
        [wanted] if wanted else [])


@given(st.lists(st.tuples(st.integers(0, 20), st.binary(max_size=60)), max_size=6))
def test_any_bodies_of_frames_are_an_end_by_the_book_or_nothing(bodies: list[tuple[int, bytes]]
                                                                ) -> None:
    ours = Ours()
    ours.give(OPENED + attach(0, "A") + attach(1, "A", takes=True))
    for code, body in bodies:
        whole = b"\x00\x53" + bytes((code + 8,)) + body
        ours.give(u32(len(whole) + 8) + b"\x02\0\0\0" + whole)
    assert ours.take().startswith(HEADER)


def test_who_sends_beyond_its_window_is_ended() -> None:
    """What it had room for is all that is kept."""
    ours = Ours(window_bytes=4 * FRAME_BYTES)
    assert condition(OPENED + attach(0, "A") + 4 * PART, ours=ours) == ""
    ours.give(PART)
    assert ours.heard(Kind.FAILED)[0].condition.name == (  # type: ignore[union-attr]
        "amqp:session:window-violation")


def test_who_asks_and_does_not_hear_has_its_answers_counted() -> None:
    """By `unsent`: they go whatever the peer says, so its line is read no further."""
    ours = Ours()
    echo = frame(0x13, NULL, b"\x70" + u32(9), ZERO, b"\x70" + u32(9), *[NULL] * 5, TRUE)
    ours.give(OPENED)
    ours.take()
    ours.give(echo * 100)
    assert ours.connection.unsent >= 100 * 20
    ours.take()
    assert ours.connection.unsent == 0


def test_frames_that_mean_nothing_are_looked_at_some_at_a_time() -> None:
    ours = Ours()
    ours.give(OPENED)
    connection = ours.connection
    connection.receive(frame(0x13, NULL, b"\x70" + u32(9), ZERO, b"\x70" + u32(9)) * 10
                       + frame(0x18))
    for _ in range(3):
        assert connection.event(3) is None and connection.more
    found = connection.event(3)
    assert found is not None and found.kind is Kind.CLOSED
    assert connection.event(3) is None and not connection.more


def test_a_disposition_of_all_that_says_nothing_is_none() -> None:
    """With a thousand deliveries each of these frames was a thousand events. RECEIVED, too, says
    nothing: links are not resumed. What is said once is heard once."""
    ours = Ours()
    ours.give(OPENED + attach(0, "A", takes=True) + FLOW)
    link = ours.sender()
    for number in range(5):
        link.write(link.delivery(b"%d" % number), MESSAGE)
    ours.take()
    every = ZERO, b"\x70" + u32(0xFFFFFFFF)
    ours.give((frame(0x15, TRUE, *every) + frame(
        0x15, TRUE, *every, FALSE, b"\x00\x53\x23" + many(ZERO, ZERO))) * 20)
    assert not ours.heard(Kind.SAID)
    ours.give(frame(0x15, TRUE, *every, TRUE, b"\x00\x53\x24\x45") * 20)
    assert [len(each.said) for each in ours.heard(Kind.SAID)] == [5]


def test_a_peer_that_ended_is_not_heard() -> None:
    ours = Ours()
    ours.give(OPENED + frame(0x18) + attach(0, "A"))
    assert ours.connection.finished and not ours.heard(Kind.ATTACHED)
    ours.give(attach(0, "A"))
    assert ours.connection.event() is None


def test_mutated_frames_are_an_end_by_the_book_or_nothing() -> None:
    chosen, sent = random.Random(SEED), 0
    frames = [frame(0x10, text("x")), frame(0x11, NULL, ZERO, b"\x70" + u32(99), b"\x70" + u32(9)),
              attach(0, "A"), attach(1, "A", takes=True), FLOW, transfer(0), transfer(1), PART,
              frame(0x15, TRUE, ZERO, ZERO, TRUE, b"\x00\x53\x24\x45"),
              frame(0x16, ZERO, TRUE), frame(0x17), frame(0x18)]
    ended = 0
    while sent < FRAMES:
        ours = Ours(run_bytes_max=chosen.choice((0, 2000)))
        ours.give(HEADER)
        for each in mutated(frames, chosen):
            ours.give(each)
            sent += 1
            for event in ours.told:
                link = event.link
                if event.kind is Kind.ARRIVED and link is not None:
                    while link.current is not None and link.recv():  # type: ignore[union-attr]
                        pass
        ended += ours.connection.finished
        assert ours.take().startswith(HEADER)
        assert sum(len(each.handles) for each in ours.connection.sessions.values()) < 50
    assert ended and len(MESSAGE) > 1
