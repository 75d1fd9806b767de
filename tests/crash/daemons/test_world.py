"""Faults beyond the disk: memory, reboot, reused pids, clocks that jump, a manager that hangs."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.sharedctypes import RawValue
from pathlib import Path
from unittest import mock

import pytest
import sysv_ipc

import omq
from omq.base import clock
from omq.base.errors import TimedOut
from omqtools.omqtest.child import Child
from omqtools.omqtest.instance import MANAGER
from tests.crash.daemons.world import ipc_objects, running, until

WAIT_S = 120.0
MIB = 1 << 20
MEMORY_CGROUP = Path("/sys/fs/cgroup/memory")
HOUR_NS, YEAR_NS = 3600 * 10**9, 365 * 86400 * 10**9
SYS_CLONE3 = 435


def test_memory_limit(tmp_path: Path) -> None:
    """No more memory for the manager (RLIMIT_AS): it refuses or ends; nothing acknowledged is
    lost, and its segment does not stay."""
    with running(tmp_path / "spool", tmp_path) as run:
        run.start()
        run.load.keep(readers=0)
        run.more(20)
        manager = run.instance.running[MANAGER]
        status = Path(f"/proc/{manager.pid}/status").read_text()
        size = next(int(line.split()[1]) for line in status.splitlines() if "VmSize" in line)
        resource.prlimit(manager.pid, resource.RLIMIT_AS, (size * 1024, size * 1024))
        # Each registration needs a channel of a megabyte: this one cannot be had.
        until(lambda: _starved(run.instance.spool) or manager.poll() is not None, "a refusal")
        run.crash()
        run.start()
        run.load.keep()
        run.more(20)
        run.verdict()


def _starved(spool: Path) -> bool:
    try:
        omq.connect(spool, name="starved", timeout_s=0.5).close()
    except omq.OmqError:
        return True
    return False


@contextmanager
def _memory_group(limit: int) -> Iterator[Path]:
    """A cgroup (version 1) with this much memory."""
    group = MEMORY_CGROUP / f"omq-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(limit))
    except OSError as error:
        pytest.skip(f"no memory cgroup of version 1 to write: {error}")
    try:
        yield group
    finally:
        until(lambda: not (group / "cgroup.procs").read_text(), "an empty cgroup")
        group.rmdir()


def test_out_of_memory_kill(tmp_path: Path) -> None:
    """The kernel kills the manager; its segment and channels stay until the next start."""
    with _memory_group(100 * MIB) as group, running(tmp_path / "spool", tmp_path) as run:
        run.start()
        run.load.keep(readers=0)
        run.more(20)
        manager = run.instance.running[MANAGER]
        (group / "cgroup.procs").write_text(str(manager.pid))
        hog = Child(lambda: _eat(group), tmp_path / "hog")
        deaths = [hog.wait(WAIT_S)]
        manager.poll()
        assert deaths == [-signal.SIGKILL] or manager.returncode == -signal.SIGKILL
        if manager.poll() is None:  # the kernel chose the hog
            manager.kill()
        assert run.manager_died() == -signal.SIGKILL
        assert ipc_objects() > 2
        run.instance.start(MANAGER)
        run.instance.ready()
        run.load.keep()
        run.more(20)
        run.verdict()


def _eat(group: Path) -> int:
    """Take memory in the group until killed."""
    (group / "cgroup.procs").write_text(str(os.getpid()))
    held = []
    while True:
        held.append(bytearray(os.urandom(1 << 16) * 64))


def test_reboot(tmp_path: Path) -> None:
    """All IPC objects are gone, run/ names those of another boot: strangers' objects with the same
    ids are not touched."""
    with running(tmp_path / "spool", tmp_path) as run:
        run.start()
        run.load.keep(readers=0)
        run.more(20)
        run.crash()
        for kind, remove in (("shm", sysv_ipc.remove_shared_memory),
                             ("sem", sysv_ipc.remove_semaphore),
                             ("msg", sysv_ipc.remove_message_queue)):
            for line in Path("/proc/sysvipc", kind).read_text().splitlines()[1:]:
                remove(int(line.split()[1]))
        assert ipc_objects() == 0
        strangers = [sysv_ipc.SharedMemory(None, sysv_ipc.IPC_CREX, size=4096) for _ in range(3)]
        queue = sysv_ipc.MessageQueue(None, sysv_ipc.IPC_CREX)
        paths = run.instance.paths
        ids = json.loads(paths.ids.read_text())
        ids |= {"boot": "00" * 16, "segment": strangers[0].id, "requests": [queue.key, queue.id]}
        paths.ids.write_text(json.dumps(ids))
        old = "00" * 16
        (paths.run / "ipc.list").write_text(
            "".join(f"{old} made shm {s.key}\n" for s in strangers)
            + f"{old} made msg {queue.key}\nrubbish\n{old} made\n"
            + f"{clock.boot_id().hex()} made msg x{queue.key}\n"
            + f"{clock.boot_id().hex()} made msg {queue.key}\n"
            + f"{clock.boot_id().hex()} struck msg {queue.key}\n")
        with (paths.run / "ipc.list").open("ab") as file:
            file.write(bytes(range(256)))  # what a cut leaves of an unsynced append
        run.start()
        assert not run.events(1307)
        for stranger in strangers:
            stranger.remove()  # raises if it is not there
            stranger.detach()
        queue.remove()
        run.load.keep()
        run.more(20)
        run.verdict()


class _CloneArguments(ctypes.Structure):
    """struct clone_args, as far as set_tid."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in (
        "flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack", "stack_size", "tls",
        "set_tid", "set_tid_size"))


def _process_with_pid(pid: int) -> int:
    """A process that sleeps, with this very pid; 0 when the kernel does not give it."""
    wanted = ctypes.c_int(pid)
    arguments = _CloneArguments(exit_signal=signal.SIGCHLD, set_tid=ctypes.addressof(wanted),
                                set_tid_size=1)
    got = int(ctypes.CDLL(None).syscall(SYS_CLONE3, ctypes.byref(arguments),
                                        ctypes.sizeof(arguments)))
    if got == 0:
        os.execv("/bin/sleep", ["sleep", "600"])
    return got if got == pid else 0


def test_the_pid_of_a_dead_reader_is_reused(tmp_path: Path) -> None:
    """While the manager is stopped a reader dies and its pid comes again: the message comes back
    all the same, and the new process is nobody's reader."""
    def read(spool: Path, ready: int) -> int:
        with omq.connect(spool, name="victim") as c:
            reader = c.reader("A")
            assert len(reader.next(timeout_s=WAIT_S)) == 1
            os.write(ready, b"x")
            signal.pause()
        return 0

    with running(tmp_path / "spool", tmp_path) as run:
        run.start()
        end, ready = os.pipe()
        with run.instance.connect() as c:
            c.put("A", b"held")
            victim = Child(lambda: read(run.instance.spool, ready), tmp_path / "victim")
            assert os.read(end, 1) == b"x"
            manager = run.instance.running[MANAGER]
            manager.send_signal(signal.SIGSTOP)
            victim.kill()
            victim.wait(WAIT_S)
            pid = _process_with_pid(victim.pid)
            manager.send_signal(signal.SIGCONT)
            try:
                if not pid:
                    pytest.skip("the kernel does not give a chosen pid (clone3 set_tid)")
                with c.reader("A") as reader:
                    (message,) = reader.next(timeout_s=WAIT_S)
                    assert message.attempts == 1 and message.redelivered
                    message.done()
                os.kill(pid, 0)  # the other process was left alone
            finally:
                if pid:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
        os.close(end)
        os.close(ready)


def test_a_stopped_manager_is_a_time_out(tmp_path: Path) -> None:
    """A client does not wait for ever; when the manager goes on, nothing is doubled."""
    with running(tmp_path / "spool", tmp_path) as run:
        run.start()
        manager = run.instance.running[MANAGER]
        with run.instance.connect() as c:
            c.put("A", b"before")
            c._link._timeout_s = 1.0  # before, a slow machine may take its time
            manager.send_signal(signal.SIGSTOP)
            with pytest.raises(TimedOut):
                c.put("A", b"in doubt")
            manager.send_signal(signal.SIGCONT)
        with run.instance.connect() as c, c.reader("A", batch=10) as reader:
            bodies = [m.body for m in reader.next(timeout_s=WAIT_S)]
        assert bodies in ([b"before"], [b"before", b"in doubt"])


class Clock:
    """The wall clock of daemons started while it is in force, to be moved at any time."""

    def __init__(self) -> None:
        self._ahead = RawValue("q", 0)

    def wall_ns(self) -> int:
        return time.time_ns() + int(self._ahead.value)

    def move(self, ns: int) -> None:
        self._ahead.value += ns


@pytest.mark.parametrize("jump", [-HOUR_NS, 10 * YEAR_NS])
def test_clock_jumps(tmp_path: Path, jump: int) -> None:
    """Delays and leases go by the time that passes; order is that of the puts; a restart with the
    other clock loses nothing."""
    moved = Clock()
    with mock.patch.object(clock, "wall_ns", moved.wall_ns), \
            running(tmp_path / "spool", tmp_path) as run:
        run.start()
        with run.instance.connect() as c:
            c.put("A", b"0")
            c.put("B", b"in a second", delay_s=1.0)
            c.put("B", b"in a day", delay_s=86400.0)
            with c.reader("A") as reader:
                (held,) = reader.next(timeout_s=WAIT_S)
                moved.move(jump)
                c.put("A", b"1")
                held.release()
            with run.instance.connect() as other, other.reader("B") as reader:
                (message,) = reader.next(timeout_s=WAIT_S)
                assert message.body == b"in a second"
                message.done()
                assert reader.next(timeout_s=0.3) == []  # the day has not passed
            c.put("A", b"2")
        run.instance.kill(MANAGER)
        run.instance.start(MANAGER)
        run.instance.ready()
        with run.instance.connect() as c:
            c.put("A", b"3")
            with c.reader("A", batch=10) as reader:
                found: list[omq.Message] = []
                while len(found) < 4:
                    found += reader.next(timeout_s=WAIT_S)
                assert [m.body for m in found] == [b"0", b"1", b"2", b"3"]
                for message in found:
                    message.done()
            assert len(list(c.browse("B"))) == 1
        run.instance.stop()


def test_a_stalled_disk_kills_nobody(tmp_path: Path) -> None:
    """A manager that hangs for two seconds: readers keep what they hold, all goes on."""
    with running(tmp_path / "spool", tmp_path) as run:
        run.start()
        run.load.keep(readers=3)
        run.more(20)
        manager = run.instance.running[MANAGER]
        manager.send_signal(signal.SIGSTOP)
        select.select([], [], [], 2.0)
        manager.send_signal(signal.SIGCONT)
        run.more(20)
        assert not run.events(1223)
        run.verdict()
