"""An engine in this process, on a spool of its own: puts, gives and settlements without any IPC."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omq.base import clock
from omq.base.settings import Settings
from omq.core.engine.block import Block
from omq.core.engine.engine import Engine
from omq.core.engine.puts import NewMessage
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.settle import Verdict
from omq.core.engine.state import IDEL, POISON, Core, Party
from omq.core.engine.statistics import Statistics
from omq.core.index.tables import Tables
from omq.format.index import Counter, ReaderFlag
from omq.format.message import DESCRIPTOR
from omq.ipc.wire.outgoing import Outgoing, encode_outgoing
from omq.storage import spool
from omq.storage.journal import JournalWriter
from omq.storage.slots import SlotAllocator
from omq.storage.volatile import VolatileBodies

A, B = 3, 4
NS = 1_000_000_000
START_NS = 1_700_000_000 * NS


@dataclass
class World:
    """The engine, two clients, and a clock that moves only when told."""

    engine: Engine
    core: Core
    writer: JournalWriter
    info: spool.SpoolInfo
    putter: Party
    reader: Party
    wall: int = START_NS
    mono: int = 1_000 * NS
    sequence: int = 0

    def begin(self, seconds: float = 0.0) -> None:
        self.wall += int(seconds * NS)
        self.mono += int(seconds * NS)
        self.engine.begin(self.wall, self.mono)

    def put(self, *queues: int, body: bytes = b"x", priority: int = 4, persistent: bool = True,
            commit: bool = True, delay_s: float = 0.0, expiry_ns: int = 0, **how: Any) -> int:
        """One message; its QPoolId. `expiry_ns`: from now on, 0 = none; `how`: of Outgoing."""
        encoded = encode_outgoing(
            Outgoing(body=body, priority=priority, persistent=persistent, delay_s=delay_s, **how),
            queues or (A,), 0, self.info.paths, 1 << 18, "test")
        assert len(encoded.payload) >= DESCRIPTOR.size
        self.sequence += 1
        self.begin()
        new = NewMessage(encoded.queue, priority, encoded.flags, encoded.size, encoded.crc,
                         encoded.correlation, encoded.key,
                         self.wall + expiry_ns if expiry_ns else 0, encoded.parts,
                         memoryview(encoded.payload))
        qpool = self.engine.put(self.putter, new, self.sequence)
        if commit:
            self.engine.commit()
        return qpool

    def give(self, want: int = 1, queue: int = A, reader: Party | None = None,
             seconds: float = 0.0) -> list[Verdict]:
        """What a reader gets now, as settlements to fill in."""
        self.begin(seconds)
        self.engine.tick()
        self.engine.wait(reader or self.reader, queue, want, 1, 0, auxiliary=False)
        given = [entry for _, entries in self.engine.dispatch() for entry in entries]
        self.engine.expire()
        self.engine.commit()
        t = self.core.t
        return [Verdict(1, entry, t.m_qpool[t.e_message[entry]], t.e_lease[entry])
                for entry in given]

    def settle(self, kind: int, *verdicts: Verdict, argument: int = 0, reader: Party | None = None
               ) -> int:
        """How many did not hold."""
        for verdict in verdicts:
            verdict.kind, verdict.argument = kind, argument
        self.begin()
        lost = self.engine.settle(reader or self.reader, verdicts, 2)
        self.engine.commit()
        return lost

    def ids(self, verdicts: list[Verdict]) -> list[int]:
        return [verdict.qpool for verdict in verdicts]


def make_world(path: Path) -> World:
    """A fresh spool and engine with the queues A and B."""
    info = spool.create_spool(path)
    settings = Settings(journal_file_bytes=1 << 20)
    writer = JournalWriter.open_epoch(info.paths, settings, info.uuid, 1, 1, 0, 0, 1,
                                      clock.wall_ns())
    tables = Tables.private(2000, 4000)
    core = Core(tables, SlotAllocator(), VolatileBodies(info.paths, settings, info.uuid), info.uuid)
    core.block = Block(writer, 1, settings.block_frames_max, settings.block_bytes_max, 4096)
    core.messages_total_max = 2000
    core.now_ns, core.mono_ns = START_NS, 1_000 * NS
    tables.v["r_flags"][:10] = ReaderFlag.IN_USE
    tables.counters[Counter.READERS_HIGH] = 10
    engine = Engine(core, Statistics(tables, 5, core.mono_ns))
    for number, name in ((IDEL, "IDEL"), (POISON, "POISON"), (A, "A"), (B, "B")):
        core.define_queue(QueueRules(number, name, 1000, 1 << 20))
    engine.begin(core.now_ns, core.mono_ns)
    engine.commit()
    return World(engine, core, writer, info, Party(1, 0, 101, 0, 11), Party(2, 1, 102, 0, 12))


def make_named(path: Path) -> World:
    """The same, its queues' names in the journal: what tells a history needs them."""
    made = make_world(path)
    made.begin()
    made.engine.books.name_everything()
    made.engine.commit()
    return made
