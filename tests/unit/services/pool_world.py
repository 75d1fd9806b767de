"""A queue manager for the tests of pool.writer: the engine on a real index segment, in this
process, and a clock and signals that the test drives."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from omq.base import clock
from omq.base.errors import OmqError
from omq.base.event_log import EventLog, Level
from omq.base.settings import Settings
from omq.core.engine.relocation import relocate
from omq.core.index.tables import Tables
from omq.format.index import Counter, IndexHeader, IndexLayout, write_header
from omq.format.journal import FrameFlag, FrameType
from omq.services.daemon.daemon import DaemonContext
from omq.services.daemon.notify import Notifier
from omq.services.daemon.options import Location
from omq.services.daemon.signals import Signals
from omq.services.pool.following import Following
from omq.services.pool.live_index import LiveIndex
from omq.services.pool.pool_writer import NAME, Pulse
from omq.storage import poolctrl, segment, spool
from omq.storage.files import write_new_file
from omq.storage.payloads import read_payload
from tests.unit.core.redo_world import SETTINGS, TIME_NS, World

SMALL = replace(SETTINGS, checkpoint_interval_s=10, journal_files_kept=1,
                checkpoint_journal_bytes_max=1 << 30, disk_reserve_bytes=0)


class Script(Signals):
    """Signals and time in one: each wait does the next step of the test; at the end comes SIGTERM.
    A wait for a group of the manager (a short one) is counted, and may have a step of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Callable[[], None]] = []
        self.short_steps: list[Callable[[], None]] = []
        self.short_waits = 0
        self.now_ns = 1_000_000_000
        self.step_ns = 1_000_000_000
        self.long_waits: list[float] = []

    def wait(self, timeout_s: float | None, also: int = -1) -> None:
        if timeout_s is not None and timeout_s < 0.05:
            self.short_waits += 1
            if self.short_steps:
                self.short_steps.pop(0)()
            return
        self.long_waits.append(timeout_s or 0.0)
        self.now_ns += self.step_ns
        if self.steps:
            self.steps.pop(0)()
        else:
            self.stopping = True


class Told(Notifier):
    """What the supervisor was told."""

    def __init__(self) -> None:
        super().__init__({})
        self.lines: list[str] = []

    def _send(self, *lines: str) -> None:
        self.lines += lines


@dataclass
class Line:
    """The connection to the manager; `refuse` is raised instead of the next answers."""

    world: ManagerWorld
    asked: list[dict[str, Any]] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    refuse: OmqError | None = None
    closed: int = 0
    registrations: int = 1
    registers: bool = False  # the request is sent again, and then refused

    def control(self, question: dict[str, Any]) -> dict[str, Any]:
        if self.refuse is not None:
            raise self.refuse
        self.asked.append(question)
        return {}

    def relocate(self, rows: bytes) -> int:
        if self.registers:
            self.registrations += 1
            self._take(rows)
        if self.refuse is not None:
            raise self.refuse
        return self._take(rows)

    def _take(self, rows: bytes) -> int:
        self.accepted.append(relocate(self.world.core, memoryview(rows)))
        self.world.commit()
        return self.accepted[-1]

    def close(self) -> None:
        self.closed += 1


class ManagerWorld(World):
    """The engine of a manager that is this process; `publish` shows it, `vanish` ends it."""

    def __init__(self, root: Path, settings: Settings = SMALL) -> None:
        layout = IndexLayout.of(2000, 8000, 100, 100)
        self.memory = segment.create(layout.size)
        self.signals, self.told = Script(), Told()
        self.line = Line(self)
        super().__init__(root, settings, Tables(memoryview(self.memory), layout))
        self.header = IndexHeader(
            self.info.uuid, clock.boot_id(), 1, os.getpid(), self._started(), 0, layout.messages,
            layout.entries, layout.queues, layout.readers, layout.size)
        write_header(self.core.t.buffer, self.header)
        self.log = EventLog("pool.writer", self.paths.event_log, level=Level.TRACE)
        pool = self.pool()
        self.checkpoint(pool, self.restart(pool))  # what a manager's recovery leaves behind
        pool.close()
        self.publish()

    def begin(self) -> None:
        """Between groups: the version is even, as it nearly always is."""
        super().begin()
        self.core.t.counters[Counter.VERSION] &= ~1

    def commit(self) -> None:
        self.engine.begin(TIME_NS, 1)
        super().commit()

    @staticmethod
    def _started() -> int:
        return clock.process_start_ticks(os.getpid()) or 0

    @property
    def context(self) -> DaemonContext:
        location = Location(None, self.paths, self.paths.conf)
        return DaemonContext(NAME, "pool", Namespace(), location, self.settings, self.log,
                             self.told, self.signals)

    def publish(self, epoch: int = 1, pid: int = 0) -> None:
        """The manager is there: this process, or another one."""
        started = clock.process_start_ticks(pid) or 0 if pid else self._started()
        ids = segment.RuntimeIds(epoch, clock.boot_id().hex(), self.info.uuid.hex(),
                                 pid or os.getpid(), started, self.memory.id, (0, 0))
        write_new_file(self.paths.ids, [ids.text()]).close()

    def vanish(self) -> None:
        """The manager is gone."""
        self.paths.ids.unlink()

    def stop_in_order(self) -> None:
        self.core.block.frame(FrameType.STOP, FrameFlag.PERSISTENT, 0, 0)
        self.commit()
        self.vanish()

    def following(self) -> Following:
        """pool.writer's side, attached."""
        context = self.context
        made = Following(context, Pulse(context), lambda _paths, _timeout_s: self.line,
                         LiveIndex(self.paths), spool.lock(self.paths.pool_lock, NAME))
        assert made.start()
        return made

    def follow(self, *steps: Callable[[], None]) -> None:
        """Follow until the steps are done, one a second, then SIGTERM."""
        self.signals.steps += steps
        self.signals.stopping = False
        made = self.following()
        try:
            made.follow()
        finally:
            made.close()

    def rounds(self, count: int) -> None:
        """Follow for so many checkpoint intervals, with a frame to save in each."""
        def news() -> None:
            self.put([30])
            self.commit()
            self.signals.now_ns += self.settings.checkpoint_interval_s * 10**9

        self.follow(*[news] * count)

    def events(self) -> list[int]:
        """Numbers of the events so far."""
        lines = self.paths.event_log.read_text().splitlines()
        return [int(json.loads(line)["event"]) for line in lines]

    def fill_journal(self, files: int, queue: int = 3) -> list[int]:
        """Messages until so many more journal files are full; their QPoolIds."""
        until, made = self.writer.file_number + files, []
        while self.writer.file_number < until:
            made.append(self.put([queue], os.urandom(20_000)))
            self.commit()
        return made

    def body(self, qpool: int) -> bytes:
        """The payload of a message, read from where the index says."""
        t = self.core.t
        slot = t.slot_of(qpool)
        return read_payload(self.paths, t.m_location[slot], t.m_offset[slot], t.m_length[slot])

    def words(self) -> set[int]:
        """Location words of the live messages on queue 3."""
        t = self.core.t
        return {t.m_location[m] for m in self.live()
                if t.e_queue[t.entries_of(m)[0]] == 3}

    def finish(self, qpools: set[int] | None = None, queue: int = 3) -> None:
        """Readers take everything from a queue and finish these messages (or all)."""
        t = self.core.t
        for entry in self.give(queue, 1000):
            if qpools is None or t.m_qpool[t.e_message[entry]] in qpools:
                self.settle(entry)
        self.commit()

    def checkpoint_lsn(self) -> int:
        control, _ = poolctrl.load(self.paths)
        assert control is not None
        return control.lsn

    def close(self) -> None:
        super().close()
        self.log.close()
        self.core.t.release()
        self.memory.detach()
        self.memory.remove()

