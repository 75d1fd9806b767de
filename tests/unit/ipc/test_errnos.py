"""Every errno of the wire's system calls: what it means, and that the code does it.

The rows come from ipc.wire.errnos.TABLE: a new one without an expectation here fails.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import sysv_ipc

from omq.base.errors import IpcLimit, IpcRemoved, ManagerShort, NotRegistered
from omq.base.event_log import EventLog
from omq.base.paths import SpoolPaths
from omq.base.rated_log import RatedLog
from omq.ipc.client.reply_wait import Gate
from omq.ipc.server.admission import Admission, Limits
from omq.ipc.server.control_plane import ControlPlane
from omq.ipc.server.doorkeeper import Doorkeeper
from omq.ipc.server.doors import Door
from omq.ipc.server.objects import ObjectList, make_channel
from omq.ipc.server.registration import Registrar
from omq.ipc.server.requests import Requests
from omq.ipc.server.sessions import Peer, Session
from omq.ipc.wire.errnos import TABLE, Outcome, errno_of, outcome
from omq.storage import segment

CLASSES = {errno.EIDRM: sysv_ipc.ExistentialError, errno.EACCES: sysv_ipc.PermissionsError,
           errno.EAGAIN: sysv_ipc.BusyError, errno.EINTR: sysv_ipc.Error,
           errno.ENOMEM: MemoryError, errno.ERANGE: ValueError}
UNKNOWN = errno.EXDEV


def as_raised(number: int, *, by_sysv: bool = True) -> Exception:
    kind = CLASSES.get(number) if by_sysv else None
    return kind(os.strerror(number)) if kind else OSError(number, os.strerror(number))


def rows(call: str) -> list[tuple[int, Outcome]]:
    return [*TABLE[call].items(), (UNKNOWN, Outcome.BUG)]


@pytest.mark.parametrize("call", TABLE)
def test_the_table(call: str) -> None:
    for number, expected in rows(call):
        for by_sysv in (True, False):
            error = as_raised(number, by_sysv=by_sysv)
            assert errno_of(error) == number
            assert outcome(call, error) is expected


class Queue:
    """Fails with one errno, once."""

    id = -1

    def __init__(self, number: int) -> None:
        self._error: Exception | None = as_raised(number)
        self.sent = 0

    def receive(self, *, block: bool) -> tuple[bytes, int]:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        raise sysv_ipc.BusyError

    def send(self, message: bytes, *, block: bool, type: int) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        self.sent += 1


def test_msgrcv() -> None:
    for number, expected in rows("msgrcv"):
        garbage: list[int] = []
        requests = Requests(cast(Any, Queue(number)), partial(garbage.append, 1))
        if expected in (Outcome.GONE, Outcome.BUG):
            with pytest.raises(IpcRemoved if expected is Outcome.GONE else OSError):
                requests.take(10)
        else:
            assert requests.take(10) == []
            assert len(garbage) == (expected is Outcome.GARBAGE)


class Log:
    """Notes the numbers."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def event(self, event: Any, level: Any, /, **fields: Any) -> None:
        self.numbers.append(event.number)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def keeper(tmp_path: Path, log: Log) -> Iterator[Doorkeeper]:
    limits = Limits(4, 2, 1, 8, 4)
    made = Doorkeeper(tmp_path / "qmgr.sock", cast(Any, Queue(errno.EINTR)), os.getegid(),
                      Admission(limits, {os.geteuid()}), 10,
                      RatedLog(cast(EventLog, log), 10, 60))
    yield made
    made.start()
    made.stop()


def test_msgsnd(keeper: Doorkeeper) -> None:
    """The wake-up: only one that the kernel had no memory for is owed."""
    for number, expected in rows("msgsnd"):
        keeper._requests = cast(Any, Queue(number))
        if expected is Outcome.BUG:
            with pytest.raises(OSError):
                keeper.wake()
        else:
            keeper.wake()
            assert keeper._wake_owed is (number in (errno.ENOMEM, errno.EINTR))
            keeper.wake()
            assert not keeper._wake_owed or number == errno.EAGAIN
            assert cast(Queue, keeper._requests).sent == 1


class Semaphore:
    """Fails with one errno."""

    def __init__(self, number: int) -> None:
        self._number = number

    def release(self) -> None:
        raise as_raised(self._number)

    def acquire(self) -> None:
        raise as_raised(self._number)


def test_semop_of_the_manager() -> None:
    """An answer that cannot be announced is the client's loss."""
    for number, expected in rows("semop"):
        session = cast(Any, Session.__new__(Session))
        session.deaf, session.release = 0, Semaphore(number).release
        if expected is Outcome.BUG:
            with pytest.raises(OSError):
                session.announce()
        else:
            session.announce()
            assert session.deaf == 1


def test_semop_of_a_client() -> None:
    """Opening never ends the thread that does it; a wait ends by GONE, or goes on by a signal."""
    for number, expected in rows("semop"):
        gate = Gate(cast(Any, Semaphore(number)))
        if expected is Outcome.BUG:
            with pytest.raises(OSError):
                gate.open()
        else:
            gate.open()
        if number == errno.EINTR:
            assert gate.wait() is False
        else:
            with pytest.raises((sysv_ipc.Error, OSError, ValueError, MemoryError)):
                if number != errno.EAGAIN:  # cannot be: the wait blocks
                    gate.wait()
                raise OSError


class Failing:
    """A socket whose calls fail."""

    def __init__(self, number: int, real: socket.socket) -> None:
        self._number, self._real = number, real

    def fileno(self) -> int:
        return self._real.fileno()

    def accept(self) -> None:
        raise as_raised(self._number, by_sysv=False)

    def accept_of(self, *_: object) -> None:
        self.accept()

    recv = recvmsg = sendall = shutdown = lambda self, *_: self.accept()

    def close(self) -> None:
        self._real.close()


def test_accept(keeper: Doorkeeper, log: Log) -> None:
    """Scarce: the listener is not polled for a while, and one event says so."""
    real = keeper._listener
    for number, expected in rows("accept"):
        log.numbers.clear()
        keeper._listen_again = 0
        keeper._listener = cast(Any, Failing(number, real))
        keeper._accept()
        assert bool(keeper._listen_again) is (expected is Outcome.SCARCE), os.strerror(number)
        assert log.numbers == [1255] * (expected is Outcome.SCARCE), os.strerror(number)
    keeper._listener = real


class Watching:
    """A socket that says whether its door could have been closed while it was read."""

    def __init__(self, keeper: Doorkeeper, ours: socket.socket) -> None:
        self._keeper, self._ours, self.guarded = keeper, ours, False

    def recvmsg(self, *arguments: int) -> tuple[bytes, list[Any], int, Any]:
        self.guarded = self._keeper._lock.locked()
        return self._ours.recvmsg(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ours, name)


def test_a_door_is_not_closed_while_it_is_read(keeper: Doorkeeper) -> None:
    """Its number could be another file's by then, of which the first bytes would be lost."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        seen = Watching(keeper, ours)
        door = Door(cast(Any, seen))
        theirs.sendall(b"{}\n")
        assert keeper._read(door) and seen.guarded and door.received == b"{}\n"
        theirs.sendall(b"{}\n")
        door.closed, seen.guarded = True, False
        assert not keeper._read(door) and not seen.guarded and ours.recv(9) == b"{}\n"


def test_recv(keeper: Doorkeeper) -> None:
    """For the moment: read again later. All else: that door has ended."""
    for number, expected in rows("recv"):
        ours, theirs = socket.socketpair()
        door = Door(cast(Any, Failing(number, ours)))
        keeper._poll.register(ours, 0)
        ended = keeper._read(door)
        assert ended is (expected not in (Outcome.LATER, Outcome.AGAIN))
        assert door.ended is ended
        ours.close()
        theirs.close()


def test_pidfd_open() -> None:
    """Whatever it is, this client is refused and no more; its row is free again."""
    for number, expected in rows("pidfd_open"):
        registrar = cast(Any, Registrar.__new__(Registrar))
        rows_back: list[int] = []
        registrar._sessions = SimpleNamespace(claim_row=lambda: 5, return_row=rows_back.append)
        registrar._doors = SimpleNamespace(
            watch=Failing(number, cast(Any, None)).accept_of)
        with pytest.raises(NotRegistered if expected is Outcome.ENDED else ManagerShort):
            registrar._admit(None, Peer(1, 2, frozenset()), "name", b"")
        assert rows_back == [5]


@pytest.mark.parametrize("call", ["shmget", "semget"])
def test_making_a_channel(call: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No room for a client's objects: IpcLimit names the sysctl, and nothing is left."""
    paths = SpoolPaths(tmp_path)
    paths.run.mkdir()
    for number, expected in TABLE[call].items():
        if expected is not Outcome.SCARCE:
            continue

        def fail(*_: Any, number: int = number, **__: Any) -> None:
            raise as_raised(number, by_sysv=False)

        if call == "semget":
            monkeypatch.setattr("omq.ipc.server.objects.sysv_ipc.Semaphore", fail)
        else:
            monkeypatch.setattr(segment, "attach", fail)
        with pytest.raises(IpcLimit, match="kernel"):
            make_channel(ObjectList(paths), 65536, os.geteuid())
    monkeypatch.undo()
    assert ObjectList(paths).clear_left_overs(os.geteuid()) == 0


def test_what_ends_the_thread_ends_the_main_loop(
    keeper: Doorkeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its doorkeeper the manager would hear nobody and miss its deadlines."""
    def fail() -> bool:
        raise RuntimeError("a bug")

    keeper._requests = cast(Any, Queue(UNKNOWN))
    cast(Any, keeper._requests)._error = None
    monkeypatch.setattr(keeper, "_turn", fail)
    keeper._run()
    assert str(keeper.failure) == "a bug" and cast(Queue, keeper._requests).sent == 1
    plane = cast(Any, ControlPlane.__new__(ControlPlane))
    plane._doors = keeper
    with pytest.raises(RuntimeError, match="a bug"):
        plane.drain()


def test_a_signal_before_the_wait_of_the_main_loop_ends_it(
    keeper: Doorkeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its handler runs when the main thread does, which may be about to wait: the doorkeeper hears
    of it from the descriptor that the C handler writes to."""
    hears, came = socket.socketpair()
    with hears, came:
        hears.settimeout(0)
        with monkeypatch.context() as patched:
            patched.setattr(keeper, "_thread", SimpleNamespace(start=lambda: None))
            keeper.start(hears.fileno())
        came.send(b"\x0f")
        assert keeper._turn()
        keeper._ring_bell()
        assert not keeper._turn(), "once"
