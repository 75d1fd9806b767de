"""A live instance for tests: what a test asks of it, time that it moves, faults that it causes.

    with LiveInstance(folder) as live:
        live.queues.define("ORDERS", attempts_max=2)
        live.connect().put("ORDERS", b"order 1", delay_s=3600)
        live.pass_time(3600)
        assert [each.body for each in live.drain("ORDERS")] == [b"order 1"]

Real are the queue manager, pool.writer, idel.server, the spool, its journal and every sync. They
are forked from a host (omq.testing.host), have the test's clock and a disk that can lose what was
not synced. It belongs to one thread of one process, as a connection does.

Errors: InstanceFailed when a daemon does not start; those of omq.connect.

A program that a test has started in its instance.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import omq
from omq.base import clock
from omq.base.errors import InstanceFailed, ManagerUnavailable, OmqError
from omq.base.paths import SpoolPaths
from omq.ipc.client.connection import Client
from omq.ipc.client.queues import QueueCommands
from omq.ipc.server.objects import ObjectList
from omq.ipc.wire import arguments
from omq.storage import segment
from omq.testing import settings, taking, unsynced
from omq.testing.taking import JSON, Taken
from omq.testing.world import WAIT_S, World


class Program:
    """A program of omq that a test has started: `omq worker`, `omread` ..."""

    def __init__(self, world: World, name: str, pid: int) -> None:
        self.name = name
        self.pid = pid
        self._world = world

    def stop(self, wait_s: float = WAIT_S) -> int | None:
        """SIGTERM and wait; its exit code, None: it still runs."""
        return self._world.end(self.pid, signal.SIGTERM, wait_s)

    def kill(self) -> None:
        """SIGKILL, as a crash would end it."""
        self._world.end(self.pid, signal.SIGKILL)

    def wait(self, wait_s: float = WAIT_S) -> int | None:
        """Until it ends by itself; its exit code, None: it still runs."""
        return self._world.end(self.pid, 0, wait_s)


MANAGER, WRITER, DELETER = "queue.manager", "pool.writer", "idel.server"
_CONNECT_S: Final = 30.0
_LOOK_S: Final = 0.005
"""From one look at a manager that starts to the next: it takes 0.1 s."""
_LOG_BYTES_MAX: Final = 1 << 24
"""Of the log of unsynced writes, from one test to the next."""


class LiveInstance:
    """See the module. `folder`: an empty one, or the World that was made in it; `conf`: the
    project's folder with queues.conf and others."""

    def __init__(self, folder: Path | World, conf: Path | None = None) -> None:
        self._world = folder if isinstance(folder, World) else World(folder)
        self._conf = conf
        self._restore = self._world.clock.install()
        self.spool = self._world.folder / "spool"
        self._daemons: dict[str, int] = {}
        self._programs: list[Program] = []
        self._connections: list[Client] = []
        self._own: Client | None = None
        self._fresh = True  # no fault was caused, no program run: the spool can go on
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        (self.spool / "conf").mkdir(parents=True)
        self.spool.chmod(0o700)
        settings.write(self.spool / "conf", self._conf)
        self.start_manager()

    # using it

    def connect(self, name: str = "test", timeout_s: float = _CONNECT_S) -> omq.Connection:
        """As omq.connect; a power cut ends it, and so does the end of the test."""
        made = omq.connect(self.spool, name=name, timeout_s=timeout_s)
        self._connections.append(made)
        return made

    @property
    def queues(self) -> QueueCommands:
        """Define, alter, show, clear, list."""
        return self._operator().queues

    def drain(self, queue: str, call: Callable[..., object] | None = None, give: str = JSON
              ) -> list[Taken]:
        """Take what is ready on a queue, one message after the other, until nothing is: also what
        `call` puts meanwhile. With `call` each is worked on as `omq worker` does it: done when it
        returns, a failed attempt when it raises (`Taken.error`), which then waits as its queue
        says. `give`: json, bytes or message."""
        with self.connect("drain") as connection:
            return taking.drain(connection, queue, call, give)

    def run(self, name: str, *argv: str, cwd: Path | None = None) -> Program:
        """Start a command of omq ("omq", "worker", "tasks:ship", "--queue", "ORDERS") in this
        instance, with its clock. It is stopped at the end of the test."""
        pid = self._world.start(name, list(argv), {"OMQ_SPOOL": str(self.spool)}, cwd)
        self._programs.append(made := Program(self._world, name, pid))
        return made

    # time

    def now(self) -> datetime:
        """The date as the instance sees it, in UTC."""
        return datetime.fromtimestamp(clock.wall_ns() / clock.NS_PER_S, UTC)

    def pass_time(self, seconds: float) -> None:
        """Let time pass: what was delayed, expires, is pending or leased so long is due when this
        returns. Both clocks go on together."""
        self._world.clock.pass_ns(int(arguments.seconds(seconds, "seconds") * clock.NS_PER_S))
        self._look()

    def step_clock(self, seconds: float) -> None:
        """An administrator sets the host's clock, forward or back; durations go on as they were
        (CLOCKS.md)."""
        self._world.clock.step_ns(int(seconds * clock.NS_PER_S))
        self._look()

    def _look(self) -> None:
        """Have the manager look at its clock: what is due is so when the second answer is here."""
        self._fresh = False
        if MANAGER in self._daemons:
            for _ in range(2):
                self.queues.list()

    # faults

    def kill_manager(self, *, restart: bool = True) -> None:
        """SIGKILL of the queue manager. `restart`: the next one starts at once, and connections
        wait for it; else until `start_manager`."""
        self._fresh = False
        if (pid := self._daemons.pop(MANAGER, 0)) != 0:
            self._world.end(pid, signal.SIGKILL)
        if restart:
            self.start_manager()

    def stop_manager(self) -> None:
        """Stop it in order."""
        self._fresh = False
        self._leave()
        self._end(MANAGER, signal.SIGTERM)

    def start_manager(self) -> None:
        """Start what does not run, until it serves."""
        for name in (MANAGER, WRITER, DELETER):
            if self._daemons.get(name) is None or self._world.code(self._daemons[name]) is not None:
                argv = ["--spool", str(self.spool), "--conf", str(self.spool / "conf")]
                more = ["--create"] if name == MANAGER else []
                if name == WRITER:
                    self._world.prepare(WRITER, DELETER)
                    self._ready()
                self._daemons[name] = self._world.start(name, [*argv, *more], {})
        self._ready()

    def lose_unsynced(self) -> int:
        """Cut the power: everything is killed, connections of `connect` are dead, each file has the
        content of its last sync, what a reboot empties is empty; then start again. Returns how many
        changes of files were lost."""
        self._fresh = False
        self._leave()
        self._forget_own()
        for program in self._programs:
            program.kill()
        for name in list(self._daemons):
            self._end(name, signal.SIGKILL)
        lost = unsynced.undo(self._world.unsynced, self.spool)
        self._remove_objects()
        shutil.rmtree(self.spool / "run")
        (self.spool / "run").mkdir(0o750)
        self._world.clock.reboot()
        self.start_manager()
        return lost

    # the end of a test, and of all

    def clean(self) -> None:
        """As it was at the beginning: empty queues, those of queues.conf alone, the true time.
        What faults, moved time and programs may have left goes with the whole spool."""
        for program in self._programs:
            if program.stop(wait_s=10.0) is None:
                program.kill()
        self._programs.clear()
        self._leave()
        if not (self._fresh and self._emptied()):
            self._renew()
        elif self._world.unsynced.stat().st_size > _LOG_BYTES_MAX:
            unsynced.forget(self._world.unsynced)

    def close(self) -> None:
        """End everything; no System V object is left."""
        try:
            self._leave()
            self._forget_own()
            self._stop()
        finally:
            self._restore()
            self._world.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def _renew(self) -> None:
        """Another spool in the old one's place."""
        self._leave()
        self._forget_own()
        self._stop()
        shutil.rmtree(self.spool)
        unsynced.forget(self._world.unsynced)  # the next spool's files may get the same inodes
        self._world.clock.reset()
        self._fresh = True
        self._begin()

    def _emptied(self) -> bool:
        """Whether all queues could be emptied."""
        try:
            for each in self.queues.list():
                if each.messages and each.kind in ("local", "transmission"):
                    self.queues.clear(each.name)
            for each in self.queues.list():
                if each.by != "queues.conf" and each.kind != "temporary" and (
                        each.name not in ("IDEL", "POISON")):
                    self.queues.delete(each.name, force=True)
            return not any(each.messages for each in self.queues.list())
        except OmqError:
            return False  # somebody holds a message: the spool goes

    def _leave(self) -> None:
        """Connections of the test that it has left open."""
        for made in self._connections:
            _abandon(made)
        self._connections.clear()

    def _forget_own(self) -> None:
        if self._own is not None:
            _abandon(self._own)
            self._own = None

    def _stop(self) -> None:
        for name in (DELETER, MANAGER, WRITER):
            self._end(name, signal.SIGTERM)
        self._remove_objects()

    def _end(self, name: str, number: int) -> None:
        pid = self._daemons.pop(name, 0)
        if pid and self._world.end(pid, number) is None:
            self._world.end(pid, signal.SIGKILL)

    def _remove_objects(self) -> None:
        """System V objects that a killed manager left: as the next one would."""
        paths = SpoolPaths(self.spool)
        ids = segment.read_ids(paths)
        if ids is not None and ids.boot == clock.boot_id().hex():
            segment.remove(ids.segment, self.spool.stat().st_uid)
        if self.spool.exists():
            ObjectList(paths).clear_left_overs(self.spool.stat().st_uid)

    def _operator(self) -> Client:
        if self._own is None:
            self._own = omq.connect(self.spool, name="testing", timeout_s=_CONNECT_S)
        return self._own

    def _ready(self) -> None:
        """Until the manager serves; InstanceFailed as soon as it has ended instead."""
        deadline = time.monotonic() + WAIT_S
        while True:
            with suppress(ManagerUnavailable, OSError):
                omq.connect(self.spool, name="testing", timeout_s=0).close()
                return
            time.sleep(_LOOK_S)
            code = self._world.code(self._daemons[MANAGER])
            if code is not None or time.monotonic() >= deadline:
                raise self._not_ready(code)

    def _not_ready(self, code: int | None) -> InstanceFailed:
        reason = "does not serve" if code is None else f"has ended with code {code}"
        return self._world.failed(MANAGER, reason)


def _abandon(connection: Client) -> None:
    """As if its program had died."""
    connection._link.abandon()
    connection._wire.close()
