"""The list of System V objects: whatever a kill interrupts, the next start finds and removes it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sysv_ipc

from omq.base.paths import SpoolPaths
from omq.ipc.server import objects
from omq.ipc.server.objects import Kind, ObjectList
from omq.storage import segment

MAKERS: dict[Kind, Callable[[int], Any]] = {
    "shm": lambda key: segment.create(4096, key=key),
    "sem": lambda key: sysv_ipc.Semaphore(key, sysv_ipc.IPC_CREX),
    "msg": lambda key: sysv_ipc.MessageQueue(key, sysv_ipc.IPC_CREX)}


@pytest.fixture
def paths(tmp_path: Path) -> SpoolPaths:
    found = SpoolPaths(tmp_path)
    found.run.mkdir()
    return found


@pytest.fixture
def stranger() -> Iterator[sysv_ipc.Semaphore]:
    made = sysv_ipc.Semaphore(None, sysv_ipc.IPC_CREX)
    yield made
    with contextlib.suppress(sysv_ipc.ExistentialError):
        made.remove()


def keys(kind: Kind) -> set[int]:
    lines = Path("/proc/sysvipc", kind).read_text().splitlines()[1:]
    return {int(line.split()[0]) for line in lines}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_kill_right_after_the_object_was_made(paths: SpoolPaths, kind: Kind) -> None:
    key, told = os.pipe()

    def make_and_die(wanted: int) -> None:
        MAKERS[kind](wanted)
        os.write(told, str(wanted).encode())
        os.kill(os.getpid(), signal.SIGKILL)

    pid = os.fork()
    if not pid:
        ObjectList(paths).make(kind, make_and_die)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    made = int(os.read(key, 20))
    os.close(key)
    os.close(told)
    assert made in keys(kind)
    assert ObjectList(paths).clear_left_overs(os.geteuid()) == 1
    assert made not in keys(kind)


def test_another_users_object_is_left_alone(
        paths: SpoolPaths, stranger: sysv_ipc.Semaphore) -> None:
    ObjectList(paths).make("sem", lambda key: key)
    listed = paths.run / objects.LIST_NAME
    words = listed.read_text().split()
    listed.write_text(" ".join((*words[:3], str(stranger.key))))
    assert ObjectList(paths).clear_left_overs(os.geteuid() + 1) == 0
    assert stranger.key in keys("sem")


def test_a_kill_before_it_was_made(paths: SpoolPaths) -> None:
    listed = ObjectList(paths)
    with pytest.raises(KeyboardInterrupt):
        listed.make("sem", lambda key: (_ for _ in ()).throw(KeyboardInterrupt))
    assert listed.clear_left_overs(os.geteuid()) == 0


def test_a_key_of_another_is_left_alone(
        paths: SpoolPaths, stranger: sysv_ipc.Semaphore, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter((stranger.key - 1, 4711_0815))
    monkeypatch.setattr("secrets.randbelow", lambda _: next(drawn))
    listed = ObjectList(paths)
    made = listed.make("sem", MAKERS["sem"])
    assert made.key == 4711_0816
    assert listed.clear_left_overs(os.geteuid()) == 1
    assert stranger.value == 0  # raises if it is gone


def test_the_list_does_not_grow_for_ever(
    paths: SpoolPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that come and go: what is still there is always in it, and little else."""
    monkeypatch.setattr(objects, "LIST_BYTES_MAX", 1000)
    listed = ObjectList(paths)
    stays = listed.make("sem", MAKERS["sem"])
    for _ in range(50):
        objects.make_channel(listed, 65536, os.geteuid()).close()
        assert (paths.run / objects.LIST_NAME).stat().st_size < 1200
    lines = (paths.run / objects.LIST_NAME).read_text()
    assert f" sem {stays.key}\n" in lines
    assert ObjectList(paths).clear_left_overs(os.geteuid()) == 1
    assert stays.key not in keys("sem")
