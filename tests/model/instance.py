"""One instance without processes: the manager's own parts on a real spool, pool.writer's too, and
clients whose channels are plain memory. The clock moves only when told.

Built as omq.services.manager.parts builds it: recovery, tables from the pool, a new epoch, the
request server. What it leaves out are the sockets, segments and semaphores between processes.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from omq.base.authority import Authority
from omq.base.errors import OmqError, from_status
from omq.base.event_log import EventLog
from omq.base.settings import Settings
from omq.core.engine.engine import Engine
from omq.core.engine.operate import Order, Outcome, operate
from omq.core.engine.reader_notes import read
from omq.core.engine.relocation import relocate
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.state import Core, Party
from omq.core.engine.statistics import Statistics
from omq.core.index.tables import Tables
from omq.core.load.rebuild import load
from omq.core.load.recovery import Recovered, recover
from omq.core.redo.checkpoint import Checkpointer
from omq.core.redo.redo import Redo
from omq.format.index import COUNTERS_AT, TABLES_AT, Counter, ReaderFlag
from omq.format.journal import FrameFlag, FrameType
from omq.format.message import DESCRIPTOR
from omq.format.poolctrl import Answered
from omq.format.wire import GIVEN, NOTE_BYTES, REPLY, REQUEST, REQUEST_MAGIC, VERSION, Operation
from omq.ipc.server.doors import Door
from omq.ipc.server.make_server import make_server
from omq.ipc.server.sessions import Session, Sessions, split_channel
from omq.ipc.server.transport import Transport
from omq.ipc.server.units import UnitLimits
from omq.services.manager import parts as manager_parts
from omq.services.pool.bodies import BodyKeeper
from omq.services.pool.live_index import LiveIndex
from omq.storage import poolctrl
from omq.storage.journal import prepare_next
from omq.storage.journal_follower import JournalFollower
from omq.storage.payloads import PayloadReader
from omq.storage.pool import PoolFiles
from omq.storage.slots import SlotAllocator
from omq.storage.spool import create_spool
from omq.storage.volatile import VolatileBodies

NS = 1_000_000_000
UUID = b"a model instance"
SETTINGS = replace(
    Settings(), journal_file_bytes=32 * 1024, block_bytes_max=24 * 1024, block_frames_max=200,
    store_file_bytes=32 * 1024, volatile_file_bytes=4096, journal_files_kept=1, archive="delete",
    checkpoint_journal_bytes_max=1 << 20, disk_reserve_bytes=0, reconnect_grace_s=30,
    dedupe_clients_max=64, batch_messages_max=50)
MESSAGES, ENTRIES, QUEUES = 60, 110, 64
DOUBTS = 3
CHANNEL = 256 * 1024 + NOTE_BYTES


def _unheard() -> None:
    """Nobody waits: replies are read where they lie."""


@dataclass(slots=True)
class Memory:
    """A client's channel in plain memory (ipc.server.transport)."""

    view: memoryview = field(default_factory=lambda: memoryview(bytearray(CHANNEL)))
    semaphore_id: int = -1
    wake: Callable[[], None] = _unheard

    def told(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        return None


@dataclass(slots=True)
class Given:
    """A message in a client's hands, as the wire says it."""

    entry: int
    queue: int
    qpool: int
    lease: int
    attempts: int
    retries: int
    payload: bytes


@dataclass(slots=True)
class Client:
    """A process that puts and reads. It may outlive the manager."""

    number: int
    queue: int
    auxiliary: bool
    token: bytes = b""
    sequence: int = 0
    session: Session | None = None
    held: dict[tuple[int, int], Given] = field(default_factory=dict)  # (QPoolId, queue)
    carried: tuple[int, int] = (0, 0)  # its last put that is on the disk: number, first QPoolId

    @property
    def live(self) -> Session:
        assert self.session is not None
        return self.session


class _LocalIndex(LiveIndex):
    """pool.writer's look at tables of this process."""

    def __init__(self, tables: Tables) -> None:
        self._layout = tables.layout
        self._attached = cast(Any, SimpleNamespace(buffer=tables.buffer))
        self._counters = tables.buffer[COUNTERS_AT:TABLES_AT].cast("Q")

    @property
    def complete(self) -> bool:
        return True

    @property
    def pool_damaged(self) -> bool:
        return False


class _Writer:
    """What pool.writer keeps between two checkpoints."""

    def __init__(self, instance: Instance) -> None:
        paths, settings, uuid = instance.paths, instance.settings, instance.uuid
        self.pool = PoolFiles(paths, uuid)
        control, findings = poolctrl.load(paths, settle=True)
        self.pool.recover_double_write(control)
        self.redo = Redo(self.pool)
        number = offset = 0
        if control is not None:
            number, offset = control.journal, control.offset
            self.redo.queues, self.redo.clients = dict(control.queues), dict(control.clients)
            self.redo.definitions = dict(control.definitions)
            self.redo.lsn, self.redo.next_qpool = control.lsn, control.next_qpool
        assert not [f for f in (*findings, *self.pool.findings) if f.kind.name != "END"]
        self.checkpointer = Checkpointer(self.pool, self.redo, paths, uuid, settings)
        self.follower = JournalFollower(paths, uuid, number, offset, self.redo.lsn)
        self.bodies = BodyKeeper(paths, settings, uuid, _LocalIndex(instance.core.t),
                                 instance.log, lambda: None)

    def close(self) -> None:
        self.follower.close()
        self.bodies.close()
        self.pool.close()


class Instance:
    """See the module. `start` first; then groups; `stop` or `die`, and `start` again."""

    rows = QUEUES  # of the table of queues

    def __init__(self, root: Path, rules: list[QueueRules],
                 transport: Callable[[], Transport] = Memory) -> None:
        self.transport = transport  # of the next client
        self.info = create_spool(root, UUID)
        self.paths, self.uuid, self.settings = self.info.paths, self.info.uuid, SETTINGS
        self.log = cast(EventLog, SimpleNamespace(event=self._event))
        self.events: list[tuple[object, dict[str, object]]] = []
        self.rules = {each.queue: each for each in rules}
        self.wall, self.mono = 1_700_000_000 * NS, 1_000 * NS
        self.total_max = MESSAGES
        self.reserve = 0
        self.recovered: Recovered | None = None
        self._tokens = 0

    def _event(self, event: object, *_: object, **fields: object) -> None:
        self.events.append((event, fields))

    # start and end

    def start(self) -> Recovered:
        """What a manager does before it serves."""
        context = cast(Any, SimpleNamespace(paths=self.paths, settings=self.settings))
        pool = PoolFiles(self.paths, self.uuid)
        found = self.recovered = recover(self.paths, self.settings, self.uuid, pool, lambda _: None)
        tables = Tables.private(MESSAGES, ENTRIES, self.rows, 16)
        slots = SlotAllocator()
        core = self.core = Core(
            tables, slots, VolatileBodies(self.paths, self.settings, self.uuid), self.uuid)
        core.now_ns, core.mono_ns = self.wall, self.mono
        core.next_qpool, core.messages_total_max = found.next_qpool, self.total_max
        core.index_reserve = self.reserve
        self.loaded = load(core, pool, slots, plain=manager_parts.plain_rows())
        pool.close()
        assert found.findings == [] and self.loaded.findings == []
        self.writer = manager_parts._epoch(core, context, found, self.uuid)
        self.engine = Engine(core, Statistics(tables, self.settings.load_sample_period_s,
                                              self.mono))
        self.start_queues(found)
        self.engine.begin(self.wall, self.mono)
        self.engine.books.name_everything(FrameFlag(0))
        self.engine.commit(sync=True)
        self.engine.limbo = self.loaded.limbo
        self.engine.limbo_until = self.mono + self.settings.reconnect_grace_s * NS
        self.sessions = Sessions(16, Authority(0, {}), self.core.rules)
        self.payloads = PayloadReader(self.paths)
        self.server, problem = make_server(
            self.engine, self.sessions, self.payloads, found.epoch,
            lambda rows: relocate(core, rows), self.settings.batch_messages_max,
            UnitLimits.of(self.settings))
        assert not problem
        self.keeper: _Writer | None = None
        self.engine.in_doubt.limit = DOUBTS
        self.doubts_said = self.engine.in_doubt.load(self.loaded.prepared, self._facts)
        core.barriers.load(core, self.loaded.barriers, lambda slot: self.body(
            core.t.m_qpool[slot]))
        return found

    def start_queues(self, _found: Recovered) -> None:
        """The queues are what this instance was made with."""
        for rules in self.rules.values():
            self.core.define_queue(rules)

    def _facts(self, slot: int) -> bytes:
        t = self.core.t
        return self.payloads.read(t.m_location[slot], t.m_offset[slot], t.m_length[slot])[
            DESCRIPTOR.size :]

    def stop(self) -> None:
        """As manager_parts.Parts.close_in_order."""
        self.begin()
        for session in list(self.sessions.by_id.values()):
            self.end(session, died=False)
        self.core.block.reserve(1, 0)
        self.core.block.frame(FrameType.STOP, FrameFlag.PERSISTENT, 0, 0)
        self.engine.commit(sync=True)
        self.writer.close()
        self._close()

    def kill(self) -> None:
        """Between two groups: what was handed out is suspect at the next start."""
        self.writer.close()
        self._close()

    def _close(self) -> None:
        if self.keeper is not None:
            self.keeper.close()
            self.keeper = None
        cast(VolatileBodies, self.core.volatile).close()
        self.payloads.close()

    # a group

    def begin(self) -> None:
        self.engine.begin(self.wall, self.mono)

    def group(self, *work: Callable[[], None]) -> None:
        """The manager's loop once, with this work in it."""
        def drain() -> bool:
            for each in work:
                each()
            return True

        self.server.group([], self.wall, self.mono, drain)
        self.engine.poisoned.clear()

    # clients

    def register(self, client: Client, in_doubt: int = 0) -> Answered | None:
        """A new client, or one that lost its manager; as ipc.server.control_plane. What became of
        its request in doubt, if it was carried out."""
        assert self.recovered is not None
        known = None
        if client.token:
            known = self.recovered.clients.get(int.from_bytes(client.token[:8], "little"))
        else:
            self._tokens += 1
            client.token = self._tokens.to_bytes(16, "little")
        row, channel = self.sessions.claim_row(), self.transport()
        party = Party(self.sessions.next_id(), row, 4000 + client.number, 0,
                      int.from_bytes(client.token[:8], "little"))
        session = Session(party, client.token, f"client{client.number}", frozenset(),
                          Door(cast(socket.socket, None)), channel,
                          *split_channel(channel.view), trusted=True)
        session.sequence = max(0, in_doubt - 1, known.sequence if known else 0)
        session.queue, session.auxiliary = client.queue, client.auxiliary
        client.session = session
        self.sessions.add(session)
        t = self.core.t
        t.r_flags[row] = ReaderFlag.IN_USE | ReaderFlag.READS
        t.r_queue[row], t.r_pid[row] = client.queue, party.pid
        t.counters[Counter.READERS_HIGH] = self.sessions.rows_high
        given = (known.given, known.given_last) if known else (0, 0)
        held = [(each.qpool, each.lease) for each in client.held.values()]
        self.group(lambda: self._adopt(party, client.queue, held, given))
        if known is None or known.sequence != in_doubt:
            return None
        session.sequence = in_doubt
        return known

    def _adopt(self, party: Party, queue: int, held: list[tuple[int, int]],
               given: tuple[int, int]) -> None:
        self.engine.adopt(party, queue, held, given)

    def end(self, session: Session, *, died: bool) -> None:
        """As ControlPlane.end, inside a group."""
        self.server.units.forget(session)
        waiters = [session.waiter] if session.waiter is not None else []
        noted = read(session.note) if session.prompt else None
        self.engine.forget(session.party, waiters, {"reader": session.name}, orderly=not died,
                           noted=noted)
        self.core.t.r_flags[session.party.slot] = 0
        self.sessions.remove(session)

    def request(self, client: Client, operation: Operation, *, area: bytes = b"", **fields: int
                ) -> None:
        """One request, inside a group."""
        session = client.live
        client.sequence += 1
        session.request[: len(area)] = area
        self.server.handle(self.packed(client, operation, **fields))

    def packed(self, client: Client, operation: Operation, **fields: int) -> bytes:
        """A request's 96 bytes."""
        said = {"operation": int(operation), "client": client.live.party.client,
                "token": client.token, "sequence": client.sequence, "magic": REQUEST_MAGIC,
                "version": VERSION, **fields}
        return REQUEST.pack(*(said.get(name, 0) for name in REQUEST.names))

    def reply(self, client: Client) -> tuple[int, int, int] | OmqError | None:
        """(count, QPoolId, settlements lost) of the last request; None: not answered yet."""
        reply = client.live.reply
        (magic, status, flags, sequence, count, _length, qpool, *_) = REPLY.unpack_from(reply, 0)
        if magic != REQUEST_MAGIC or sequence != client.sequence:
            return None
        if status:
            return from_status(status, {})
        return count, qpool, flags

    def given_rows(self, client: Client) -> list[tuple[int, int]]:
        """(QPoolId, queue) of what the last reply hands out; nothing if there is none yet."""
        reply = self.reply(client)
        rows = [GIVEN.as_dict(client.live.reply, REPLY.size + i * GIVEN.size)
                for i in range(reply[0] if isinstance(reply, tuple) else 0)]
        return [(row["qpool"], row["queue"]) for row in rows]

    def take(self, client: Client, count: int) -> list[Given]:
        """The messages of the last reply, with their bodies; the client holds them now."""
        out = []
        for i in range(count):
            row = dict(zip(GIVEN.names, GIVEN.unpack_from(client.live.reply,
                                                          REPLY.size + i * GIVEN.size),
                           strict=True))
            payload = self.payloads.read(row["location"], row["offset"], row["length"])
            given = Given(row["entry"], row["queue"], row["qpool"], row["lease"], row["attempts"],
                          row["retries"], payload)
            client.held[given.qpool, given.queue] = given
            out.append(given)
        return out

    def body(self, qpool: int) -> bytes:
        """The payload, read from where the index says."""
        t = self.core.t
        slot = t.slot_of(qpool)
        return self.payloads.read(t.m_location[slot], t.m_offset[slot], t.m_length[slot])

    def order(self, order: Order) -> Outcome:
        """An operator's command, in a group of its own."""
        out: list[Outcome] = []
        operator = Party(0, 15, 1, 0, 0)
        self.group(lambda: out.append(operate(self.core, operator, order,
                                              self.engine.forget_reader)))
        return out[0]

    # pool.writer

    def checkpoint(self) -> None:
        """What pool.writer does when one is due, and a round of bodies behind it."""
        if self.keeper is None:
            self.keeper = _Writer(self)
        keeper = self.keeper
        prepare_next(self.paths, self.settings)
        counters = self.core.t.counters
        keeper.redo.apply(keeper.follower.read(counters[Counter.DURABLE_LSN], 1 << 30))
        assert keeper.follower.findings == [] and keeper.redo.findings == []
        number = keeper.follower.number
        result = keeper.checkpointer.take(self.recovered.epoch if self.recovered else 0, number,
                                          keeper.follower.offset, self.wall)
        keeper.bodies.round(result.lsn, number, lambda: self)

    registrations = 1

    def relocate(self, rows: bytes) -> int:
        """pool.writer's request, in a block of its own."""
        self.begin()
        taken = relocate(self.core, memoryview(rows))
        self.engine.commit()
        return taken
