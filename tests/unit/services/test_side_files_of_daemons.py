"""Every file that a daemon writes beside the data, on a disk that refuses it with ENOSPC, EIO and
EROFS at each system call: nothing is raised, and the file is there once the disk is well."""

from __future__ import annotations

import errno
import os
import selectors
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omq.base import events, modes, side_files
from omq.base.event_log import EventLog
from omq.base.paths import SpoolPaths
from omq.base.side_files import Calls
from omq.ipc.server.objects import LIST_NAME, ObjectList
from omq.ipc.server.recent_requests import RecentRequests
from omq.services.daemon import pid_file
from omq.services.daemon.run_state import (
    ProcessState,
    ServiceState,
    State,
    read_service,
    write_state,
)
from omq.services.manager.tombstone import write_tombstone
from omq.services.supervise.control_socket import ControlServer
from omq.storage import durable
from omq.storage.disk import Disk
from omq.storage.spool import create_spool, lock
from tests.descriptors import open_descriptors
from tests.unit.engine.world import make_world

ERRNOS = (errno.ENOSPC, errno.EIO, errno.EROFS)
STATE = ServiceState(ProcessState("local", State.STARTED, 1.0, 2, 3))


class Sick(Calls):
    """One call (by name) is refused while `number` is set."""

    def __init__(self, call: str, number: int) -> None:
        self.call, self.number, self.met = call, number, 0

    def _meet(self, call: str) -> None:
        if call == self.call and self.number:
            self.met += 1
            raise OSError(self.number, os.strerror(self.number))

    def open(self, path: str, flags: int, mode: int = modes.FILE) -> int:
        self._meet("open")
        return super().open(path, flags, mode)

    def write(self, fd: int, data: bytes) -> int:
        self._meet("write")
        return super().write(fd, data)

    def rename(self, source: str, target: str) -> None:
        self._meet("rename")
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._meet("unlink")
        super().unlink(path)


Act = Callable[[SpoolPaths], Any]
Holds = Callable[[SpoolPaths], object]


def _ids(paths: SpoolPaths) -> None:
    ObjectList(paths).make("shm", lambda key: key)
    ObjectList(paths).make("sem", lambda key: key)


def _tombstone(paths: SpoolPaths) -> None:
    world = make_world(paths.root.parent / "dying")
    write_tombstone(paths, world.core.t, "cause", "stack", RecentRequests(), 5)


FILES: dict[str, tuple[Act, Holds, tuple[str, ...]]] = {
    "state": (lambda paths: write_state(paths.run / "local.json", STATE),
              lambda paths: read_service(paths.run / "local.json") == STATE,
              ("open", "write", "rename")),
    "pid": (lambda paths: pid_file.claim(paths.pid_file("local")),
            lambda paths: paths.pid_file("local").read_text() == f"{os.getpid()}\n",
            ("open", "write", "rename")),
    "pid away": (lambda paths: pid_file.release(paths.pid_file("old")),
                 lambda paths: not paths.pid_file("old").exists(), ("unlink",)),
    "objects": (_ids, lambda paths: [line.split()[2] for line in (paths.run / LIST_NAME).read_text()
                                     .splitlines() if line] == ["shm", "sem"], ("open", "write")),
    "tombstone": (_tombstone, lambda paths: "cause" in paths.tombstone.read_text(),
                  ("open", "write")),
}
CASES = [(name, call, number) for name, (_, _, calls) in FILES.items() for call in calls
         for number in ERRNOS]


@pytest.fixture
def paths(tmp_path: Path) -> SpoolPaths:
    made = create_spool(tmp_path / "spool").paths
    made.pid_file("old").write_text("1\n")
    return made


@pytest.fixture(autouse=True)
def _well(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(side_files, "RETRY_S", 0.0)
    before = side_files.calls
    yield
    side_files.use(before)
    durable.use(Disk())
    for fd, target in open_descriptors().items():
        if target.endswith(".pid"):  # a daemon holds it until its process ends
            os.close(fd)


@pytest.mark.parametrize(("name", "call", "number"), CASES)
def test_a_refused_file_ends_nothing(paths: SpoolPaths, name: str, call: str, number: int) -> None:
    act, holds, _ = FILES[name]
    sick = Sick(call, number)
    side_files.use(sick)
    told: list[int] = []
    side_files.report_to(lambda event, fields: told.append(event.number))
    act(paths)
    assert sick.met and told == [events.SIDE_FILES_REFUSED.number]
    side_files.retry()
    sick.number = 0
    side_files.retry()
    assert holds(paths)
    assert told == [events.SIDE_FILES_REFUSED.number, events.SIDE_FILES_WRITTEN.number]


@pytest.mark.parametrize("number", ERRNOS)
def test_the_text_of_a_lock_is_for_people(paths: SpoolPaths, number: int) -> None:
    class Full(Disk):
        sick = True

        def pwritev(self, fd: int, buffers: Any, offset: int) -> int:
            if self.sick:
                raise OSError(number, os.strerror(number))
            return super().pwritev(fd, buffers, offset)

    disk = Full()
    durable.use(disk)
    held = lock(paths.manager_lock, "a test")
    assert durable.latched() is None
    disk.sick = False
    side_files.retry()
    assert paths.manager_lock.read_text().startswith(f"{os.getpid()} a test")
    held.close()


@pytest.mark.parametrize("number", ERRNOS)
@pytest.mark.parametrize("call", ["open", "write"])
def test_the_event_log_counts_what_is_missing(
    paths: SpoolPaths, capsys: pytest.CaptureFixture[str], call: str, number: int
) -> None:
    sick = Sick(call, number)
    side_files.use(sick)
    log = EventLog("x", paths.event_log, stderr=False)
    for _ in range(3):
        log.event(events.CHECKPOINT)
    assert capsys.readouterr().err.count("cannot be") == 1
    sick.number = 0
    log.event(events.CHECKPOINT)
    log.close()
    lines = paths.event_log.read_text().splitlines()
    assert len(lines) == 2
    assert '"event": 1125' in lines[0] and '"lines": 3' in lines[0]
    assert '"event": 1411' in lines[1]


def test_a_control_socket_without_room_comes_later(paths: SpoolPaths) -> None:
    """What the supervisor does: the socket's name needs a directory that takes it."""
    made: list[ControlServer] = []
    path = paths.run / "none" / "supervisor.sock"
    with selectors.DefaultSelector() as selector:
        assert not side_files.attempt(
            path, lambda: made.append(ControlServer(path, selector, lambda request: {})))
        path.parent.mkdir()
        side_files.retry()
        assert path.is_socket()
        made[0].close()
        assert not path.exists()
