"""Turns at the doors, and who may come in."""

from __future__ import annotations

import os
import socket
from typing import Any, cast

import pytest

from omq.base.errors import OmqError, TooManyClients, TooManyConnections, TooManyOfUser
from omq.ipc.server.admission import Admission, Limits
from omq.ipc.server.doors import BYTE_NS, USERS_A_TURN, Door, Ring, Turn

SHARE_NS = 1000


def door(uid: int, *lines: bytes) -> Door:
    return Door(cast(socket.socket, None), uid, bytearray(b"".join(each + b"\n" for each in lines)))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Monotonic ns; tests set it."""
    now = [0]
    monkeypatch.setattr("omq.base.clock.monotonic_ns", lambda: now[0])
    return now


def test_users_take_turns_then_their_doors(clock: list[int]) -> None:
    """One user with three doors, one with one: each gets every other turn."""
    ring, turn = Ring(), Turn(SHARE_NS)
    many, one = [door(1, b"x") for _ in range(3)], door(2, b"y")
    for each in [*many, one]:
        ring.add(each)
        ring.add(each)  # once is enough
    taken = []
    while (found := ring.take(turn)) is not None:
        taken.append(found)
    assert taken == [many[0], one, many[1], many[2]] and not ring


def test_a_costly_user_waits_for_the_next_group(clock: list[int]) -> None:
    ring, turn = Ring(), Turn(SHARE_NS)
    costly, cheap = door(1), door(2)
    ring.add(costly)
    ring.add(cheap)
    assert ring.take(turn) is costly
    clock[0] += SHARE_NS
    turn.charge(1)
    ring.add(costly)
    assert ring.take(turn) is cheap
    clock[0] += 1
    turn.charge(2)
    assert ring.take(turn) is None and len(ring) == 1
    assert ring.take(Turn(SHARE_NS)) is costly


def test_bytes_count_and_the_queue_comes_in_the_end(clock: list[int]) -> None:
    turn = Turn(SHARE_NS)
    turn.charge(1, SHARE_NS // BYTE_NS)
    assert turn.has_spent(1) and not turn.over
    clock[0] += USERS_A_TURN * SHARE_NS
    turn.charge(2)
    assert turn.over


def test_lines_one_by_one() -> None:
    found = door(1, b"a", b"", b"b")
    found.received += b"half"
    assert [found.take_line() for _ in range(4)] == [b"a", b"", b"b", None]
    assert found.received == b"half"


OWNER = 7


def admission(**changed: int) -> Admission:
    limits: dict[str, Any] = {"clients_max": 10, "clients_per_uid_max": 4, "clients_reserved": 3,
                              "callers_max": 5, "callers_per_uid_max": 2} | changed
    return Admission(Limits(**limits), {OWNER, 0})


def refused(found: Admission, uid: int) -> type[OmqError] | None:
    refusal = found.refusal(uid)
    if refusal is None:
        found.enter(door(uid))
        return None
    return type(refusal)


def test_callers() -> None:
    found = admission()
    assert [refused(found, 1) for _ in range(3)] == [None, None, TooManyConnections]
    assert [refused(found, uid) for uid in (2, 2, 3, 3, 4)] == [
        None, None, None, TooManyConnections, TooManyConnections]
    assert [refused(found, OWNER) for _ in range(6)] == [None] * 5 + [TooManyConnections]


def test_clients() -> None:
    found = admission()
    inside: list[Door] = []

    def come(uid: int) -> type[OmqError] | None:
        try:
            found.check_client(uid)
        except OmqError as error:
            return type(error)
        inside.append(door(uid))
        found.enter(inside[-1])
        found.registered(inside[-1])
        return None

    assert [come(1) for _ in range(5)] == [None] * 4 + [TooManyOfUser]
    assert [come(2) for _ in range(4)] == [None] * 3 + [TooManyClients]
    assert [come(OWNER) for _ in range(4)] == [None] * 3 + [TooManyClients]
    found.leave(inside[0])
    assert come(2) is None
    for each in inside[1:]:
        found.leave(each)
    assert not found._clients and not found._callers


def test_one_descriptor_of_a_client_is_kept() -> None:
    """None of a caller, none of a closed door, no second one: those are closed at once."""
    def opened(number: int) -> bool:
        try:
            return bool(os.fstat(number))
        except OSError:
            return False

    caller, client, gone = door(1), door(1), door(1)
    client.registered = gone.registered = gone.closed = True
    for each in (caller, gone):
        (lost,) = came = [os.eventfd(0)]
        each.keep(came)
        assert not opened(lost) and each.take_descriptor() == -1
    first, second = os.eventfd(0), os.eventfd(0)
    client.keep([first])
    client.keep([second])
    assert opened(first) and not opened(second)
    assert (client.take_descriptor(), client.take_descriptor()) == (first, -1)
    client.keep([first])  # the next one has its place as soon as that was taken
    assert client.take_descriptor() == first
    os.close(first)
