"""What an orderly stop tells the clients that are still there."""

from __future__ import annotations

import json
import socket
from types import SimpleNamespace
from typing import cast

from omq.format.wire import ENDED
from omq.ipc.server.doors import Door
from omq.ipc.server.sessions import Sessions

LAST = (7, 1, 4711, 99)  # sequence, count, qpool, lsn


def caller(last: tuple[int, int, int, int]) -> tuple[SimpleNamespace, socket.socket]:
    """A session as the manager has it, and its client's side of the control connection."""
    near, far = socket.socketpair()
    near.settimeout(0)  # as the doorkeeper does
    return SimpleNamespace(last=last, door=Door(near)), far


def test_who_does_not_read_holds_up_no_stop() -> None:
    """Its socket is full: it loses its connection, and the next one is told all the same."""
    deaf, its_side = caller(LAST)
    polite, other_side = caller(LAST)
    filled = 0
    try:
        while True:
            filled += deaf.door.connection.send(b"\n" * 4096)
    except BlockingIOError:
        pass
    sessions = cast(Sessions, SimpleNamespace(by_id={1: deaf, 2: polite}))
    Sessions.say_ended(sessions)
    with its_side, other_side, deaf.door.connection, polite.door.connection:
        with its_side.makefile("rb") as rest:
            assert rest.read() == b"\n" * filled, "no half of a line, then the end"
        line = other_side.recv(4096)
        assert json.loads(line)[ENDED] == {"sequence": 7, "count": 1, "qpool": 4711, "lsn": 99}


def test_who_has_asked_for_nothing_is_told_nothing() -> None:
    silent, its_side = caller((0, 0, 0, 0))
    Sessions.say_ended(cast(Sessions, SimpleNamespace(by_id={1: silent})))
    with its_side, silent.door.connection:
        silent.door.connection.shutdown(socket.SHUT_WR)
        assert its_side.recv(4096) == b""
