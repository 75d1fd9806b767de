"""System V objects: removed under the daemons, not to be had, and none left after many kills."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time

import pytest
import sysv_ipc

from omq.base.errors import Exit, IpcLimit, ManagerUnavailable, OmqError
from omq.storage.segment import read_ids
from tests.process.instance import MANAGER, WRITER, Instance, impatient
from tests.process.processes import WAIT_S

KILLS = int(os.environ.get("OMQ_KILLS", "40"))  # 100 and more where there is time


def supervise(instance: Instance) -> None:
    """Start the manager again if it has ended."""
    if not instance.children[MANAGER].running:
        instance.start()


@pytest.mark.parametrize("kind", ["queue", "index", "channel", "semaphore"])
def test_ipcrm_under_the_daemons(omq_instance: Instance, kind: str) -> None:
    """The client goes on: with the same manager over a new channel, or with the next one."""
    manager = omq_instance.start(WRITER, MANAGER)
    with omq_instance.connect() as c:
        c.put("A", b"before")
        ids = read_ids(omq_instance.paths)
        assert ids is not None
        link = c._link
        option, number = {
            "queue": ("-q", ids.requests[1]), "index": ("-m", ids.segment),
            "channel": ("-m", link._segment.id), "semaphore": ("-s", link._semaphore.id)}[kind]
        subprocess.run(["ipcrm", option, str(number)], check=True)
        if kind == "queue":
            assert manager.wait() == Exit.TEMPORARY
            assert "removed" in omq_instance.events(1204)[0]["reason"]
            omq_instance.start()
        c.put("A", b"after")
        supervise(omq_instance)
        assert [m.body for m in omq_instance.drain("A")] == [b"before", b"after"]


@pytest.mark.parametrize(("limit", "value", "sysctl"), [
    ("msgmni", "0", "kernel.msgmni"), ("shmmni", "0", "kernel.shmmni"),
    ("shmmax", "4096", "kernel.shmmax")])
def test_a_manager_without_objects_says_which_limit(omq_instance: Instance, limit: str, value: str,
                                                    sysctl: str) -> None:
    if not omq_instance.space.own:
        pytest.skip("an IPC namespace of its own needs root")
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put("A", b"kept")
    omq_instance.stop()
    omq_instance.space.limit(limit, value)
    assert omq_instance.start().wait() == Exit.OS
    assert sysctl in omq_instance.said()
    omq_instance.space.limit(limit, str(1 << 24 if limit == "shmmax" else 4096))
    omq_instance.space.limit("shmmax", str(1 << 30))
    omq_instance.start()
    assert [m.body for m in omq_instance.drain("A")] == [b"kept"]


@pytest.mark.parametrize("limit", ["shmmni", "sem"])
def test_a_client_without_a_channel_is_refused(omq_instance: Instance, limit: str) -> None:
    """The manager and the clients that it has go on."""
    if not omq_instance.space.own:
        pytest.skip("an IPC namespace of its own needs root")
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put("A", b"one")
        objects = omq_instance.space.objects()
        used = sum(kind == "shm" for kind, _ in objects)
        omq_instance.space.limit(limit, str(used) if limit == "shmmni" else "250 32000 32 1")
        with pytest.raises(IpcLimit) as refused:
            omq_instance.connect()
        assert refused.value.exit_code == Exit.OS
        c.put("A", b"two")
        assert omq_instance.space.objects() == objects  # nothing half made is left
        omq_instance.space.limit(limit, "4096" if limit == "shmmni" else "250 32000 32 128")
        assert [m.body for m in omq_instance.drain("A")] == [b"one", b"two"]


def test_a_full_request_queue_makes_clients_wait(omq_instance: Instance) -> None:
    omq_instance.start()
    omq_instance.ready()
    manager = omq_instance.children[MANAGER]
    with omq_instance.connect() as c:
        c.put("A", b"first")
        impatient(c)
        manager.signal(signal.SIGSTOP)
        manager.wait_stopped()
        ids = read_ids(omq_instance.paths)
        assert ids is not None
        queue = sysv_ipc.MessageQueue(ids.requests[0])
        with pytest.raises(sysv_ipc.BusyError):
            while True:
                queue.send(bytes(96), block=False, type=1)
        with pytest.raises(OmqError, match="the request queue"):
            c.put("A", b"too much")
        manager.signal(signal.SIGCONT)
    assert [m.body for m in omq_instance.drain("A")] == [b"first"]


def test_no_object_is_left_after_many_kills(omq_instance: Instance) -> None:
    """A manager with clients, killed again and again at random; the fixture looks for objects."""
    omq_instance.start(WRITER)
    count = 0
    for i in range(KILLS):
        manager = omq_instance.start()
        if i % 10 == 0:
            with omq_instance.connect() as c:
                c.put("A", b"%d" % i)
            count += 1
        else:  # somewhere in its start; no test of time
            select.select([], [], [], (i % 25) / 250)
        manager.kill()
    omq_instance.start()
    omq_instance.ready()
    deadline = time.monotonic() + WAIT_S
    while len(omq_instance.space.objects()) > 4:  # index, queue, the writer's channel
        assert time.monotonic() < deadline, omq_instance.space.objects()
        select.select([], [], [], 0.01)
    assert len(omq_instance.drain("A")) == count


def test_a_manager_that_never_comes_back_is_said(omq_instance: Instance) -> None:
    """The client does not hang: the wait for its answer is bounded."""
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put("A", b"x")
    with omq_instance.connect() as c:
        impatient(c)
        omq_instance.kill()
        with pytest.raises(ManagerUnavailable):
            c.put("A", b"y")
    omq_instance.start()
    assert [m.body for m in omq_instance.drain("A")] == [b"x"]
