"""A journal made by the real engine, and pools made from it by redo: the engine's tables are what
the pool must say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from omq.base.checksum import crc32c
from omq.base.settings import Settings
from omq.core.engine.block import Block
from omq.core.engine.engine import Engine
from omq.core.engine.failures import NOTED
from omq.core.engine.operate import Action, Item, Order, Outcome, operate
from omq.core.engine.puts import NewMessage
from omq.core.engine.relocation import relocate
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.settle import Verdict
from omq.core.engine.settle import fail as fail_entry
from omq.core.engine.state import IDEL, PERSISTENT, SPECIAL_QUEUES, Core, Party
from omq.core.engine.statistics import Statistics
from omq.core.index.tables import Tables
from omq.core.judge.presence import pool_findings
from omq.core.redo.checkpoint import Checkpointer
from omq.core.redo.redo import Redo
from omq.format.failure_note import FailureNote, decode_note
from omq.format.frame_rules import Reason
from omq.format.index import EntryState
from omq.format.message import Descriptor, Part, encode, id_hash
from omq.format.pool import (
    PART,
    PARTS_PER_RECORD,
    RECORD,
    RECORD_BYTES,
    Message,
    lease_tag,
)
from omq.format.wire import MOVED, Settlement
from omq.storage import poolctrl
from omq.storage.disk import Disk
from omq.storage.journal import JournalWriter
from omq.storage.journal_reader import scan_journal
from omq.storage.journal_scan import Block as JournalBlock
from omq.storage.pool import PoolFiles
from omq.storage.slots import SlotAllocator
from omq.storage.spool import create_spool

SETTINGS = replace(Settings(), journal_file_bytes=256 * 1024, block_bytes_max=128 * 1024,
                   block_frames_max=2000, store_file_bytes=64 * 1024,
                   archive_days=0)
TIME_NS = 927_030_603_000_000_000
QUEUES = range(3, 3 + 40)
Parts = frozenset[tuple[int, ...]]
Known = dict[int, tuple[tuple[Any, ...], Parts]]


class QuietDisk(Disk):
    """Syncs nothing: these tests are about order, not about a real disk."""

    def fsync(self, fd: int) -> None:
        return None

    def fdatasync(self, fd: int) -> None:
        return None

    def sync_directory(self, path: str) -> None:
        return None


class Cut(BaseException):
    """The process dies here."""


class CutDisk(QuietDisk):
    """Dies at the n-th write; half of that write may have been done."""

    def __init__(self, after: int) -> None:
        self.left = after

    def pwritev(self, fd: int, buffers: Sequence[bytes | bytearray | memoryview],
                offset: int) -> int:
        if self.left == 0:
            whole = b"".join(map(bytes, buffers))
            super().pwritev(fd, [whole[: len(whole) // 2 // RECORD_BYTES * RECORD_BYTES]], offset)
            raise Cut
        self.left -= 1
        return super().pwritev(fd, buffers, offset)


class NoBodies:
    """Bodies of non-persistent messages: nowhere."""

    number = 1

    def append(self, payloads: Sequence[bytes | memoryview]) -> tuple[int, list[int]]:
        return 1, [0] * len(payloads)

    @property
    def is_full(self) -> bool:
        return False

    def release(self, number: int, count: int = 1) -> None:
        return None


class World:
    """The engine over private tables and a real journal in a spool of its own."""

    def __init__(self, root: Path, settings: Settings = SETTINGS,
                 tables: Tables | None = None) -> None:
        self.info = create_spool(root)
        self.paths, self.settings = self.info.paths, settings
        self._tables = tables or Tables.private(2000, 8000)
        self.sequence = 0
        self.lsn = 0
        self._start(1)

    def _start(self, epoch: int) -> None:
        self.writer = JournalWriter.open_epoch(
            self.paths, self.settings, self.info.uuid, epoch, self.lsn + 1, self.lsn, 0, 1, TIME_NS)
        self.core = Core(self._tables, SlotAllocator(), NoBodies(), self.info.uuid)
        self.core.block = Block(self.writer, self.lsn + 1, self.settings.block_frames_max,
                                self.settings.block_bytes_max, 4096)
        self.core.messages_total_max = 2000
        self.engine = Engine(self.core, Statistics(self.core.t, 5, 0))
        self.party = Party(1, 0, 4242, 1000, 77)
        self.begin()
        for queue in (*SPECIAL_QUEUES, *QUEUES):
            name = SPECIAL_QUEUES.get(queue) or f"Q{queue}"
            self.engine.books.define_queues([QueueRules(queue, name, 10_000, 1 << 20)])
        self.commit()
        self.begin()

    def begin(self) -> None:
        self.engine.begin(TIME_NS, 1)

    def commit(self) -> None:
        """One block; the next one begins."""
        self.engine.commit(sync=True)
        self.lsn = self.writer.last_lsn
        self.begin()

    # operations

    def put(self, queues: Sequence[int], body: bytes = b"body", *, until: int = 0,
            flags: int = PERSISTENT, message_id: bytes = b"", group: bytes = b"",
            priority: int = 4) -> int:
        """One message; its QPoolId."""
        self.sequence += 1
        return self.engine.put(self.party, self.message(
            queues, body, until, flags, message_id, group, priority), self.sequence)

    @staticmethod
    def message(queues: Sequence[int], body: bytes = b"new", until: int = 0,
                flags: int = PERSISTENT, message_id: bytes = b"", group: bytes = b"",
                priority: int = 4) -> NewMessage:
        listed = [Part(queue, priority, 0, until) for queue in queues]
        if len(listed) == 1 and not until:
            listed = []
        descriptor = Descriptor(message_id=message_id.ljust(24, b"\0"),
                                group_id=group.ljust(24, b"\0"), trace_id=bytes(range(16)),
                                application=b"application", group_sequence=len(body), report=3)
        payload = encode(descriptor, listed, b"", body)
        return NewMessage(queues[0], priority, flags, len(body), crc32c(payload), 0,
                          id_hash(message_id), 0, len(listed), payload)

    def active(self) -> list[int]:
        """Entries that are handed out."""
        t = self.core.t
        return [e for e in range(t.entries.high) if t.e_state[e] == EntryState.ACTIVE
                and t.e_queue[e] != IDEL]

    def give(self, queue: int, count: int = 1) -> list[int]:
        """Hand out messages; their entries. The reader hears of them behind the commit."""
        self.sequence += 1
        self.engine.wait(self.party, queue, count, self.sequence, -1, auxiliary=False)
        entries = [entry for _, entries in self.engine.dispatch() for entry in entries]
        self.commit()
        return entries

    def verdict(self, entry: int, kind: Settlement = Settlement.DONE, argument: int = 0) -> Verdict:
        t = self.core.t
        return Verdict(kind, entry, t.m_qpool[t.e_message[entry]], t.e_lease[entry], argument)

    def settle(self, entry: int, kind: Settlement = Settlement.DONE, argument: int = 0) -> None:
        self.sequence += 1
        self.engine.settle(self.party, [self.verdict(entry, kind, argument)], self.sequence)

    def move(self, entry: int, queues: Sequence[int], new: Sequence[Sequence[int]] = ()) -> None:
        """Off its queue, onto others, with new messages."""
        self.sequence += 1
        self.engine.move(self.party, self.verdict(entry), [Part(q, 4) for q in queues],
                         [self.message(each) for each in new], self.sequence)

    def poison(self, entry: int) -> None:
        core = self.core
        core.t.e_attempts[entry] = core.rules[core.t.e_queue[entry]].attempts_max
        fail_entry(core, entry, self.party, 0, 0, reason=Reason.FAILED,
                   evidence={"pid": 1, "reason": "ü\0 " * (core.next_qpool * 7 % 300)})
        self.party.active -= 1

    def operate(self, action: Action, slot: int, queue: int, targets: Sequence[int] = (),
                keep_s: int = 60) -> Outcome:
        """An operator's command about one message."""
        order = Order(action, (Item(self.core.t.m_qpool[slot], queue),), b'{"reason": "test"}',
                      tuple(targets), None, keep_s * 10**9, force=True)
        return operate(self.core, self.party, order, self.engine.forget_reader)

    def relocate(self, slot: int) -> None:
        """The body of a message goes to a store file."""
        t = self.core.t
        row = MOVED.pack(t.m_qpool[slot], 1 << 30 | 7, 4096 + slot, t.m_record[slot],
                         t.m_file[slot], slot, 0)
        assert relocate(self.core, memoryview(row)) == 1

    def live(self) -> list[int]:
        """Slots of the persistent messages."""
        t = self.core.t
        return [m for m in range(t.messages.high) if t.m_qpool[m] and t.m_flags[m] & PERSISTENT]

    # what must be, and what is

    def expected(self) -> Known:
        """What the pool must say, by QPoolId."""
        t = self.core.t
        out: Known = {}
        for slot in self.live():
            parts = []
            for e in t.entries_of(slot):
                state = t.e_state[e]
                until = -(-t.e_until[e] // 10**9) if state == EntryState.DEFERRED else 0
                if state == EntryState.PREPARED:
                    until = t.e_until[e]
                if state == EntryState.ACTIVE:
                    until = lease_tag(t.e_lease[e], self.party.token)
                parts.append((t.e_queue[e], t.e_priority[e], state, t.e_attempts[e], t.e_retries[e],
                              until, t.e_sequence[e]))
            where = (t.m_file[slot], t.m_record[slot], t.m_location[slot], t.m_offset[slot],
                     t.m_length[slot], t.m_crc[slot], t.m_size[slot], t.m_time[slot],
                     t.m_flags[slot] & ~NOTED, t.m_origin[slot],
                     self.note_of(slot))
            out[t.m_qpool[slot]] = (where, frozenset(parts))
        return out

    def note_of(self, slot: int) -> FailureNote | None:
        """What is known of how it failed, on whatever queue it is, as its record has room for."""
        t, failures = self.core.t, self.core.failures
        notes = (failures.of(t.m_qpool[slot], t.e_queue[each]) for each in t.entries_of(slot))
        found = [note for note in notes if note is not None]
        assert bool(found) is bool(t.m_flags[slot] & NOTED)
        room = RECORD_BYTES - RECORD.size - PART.size * min(t.m_parts[slot], PARTS_PER_RECORD)
        return decode_note(found[0].encode(t.m_qpool[slot], room), t.m_qpool[slot]) \
            if found else None

    def blocks(self, after: int = 0) -> list[JournalBlock]:
        """The journal so far."""
        return [block for block in scan_journal(self.paths, self.info.uuid)
                if block.header.last_lsn > after]

    def pool(self) -> PoolFiles:
        return PoolFiles(self.paths, self.info.uuid)

    def checkpoint(self, pool: PoolFiles, redo: Redo) -> None:
        Checkpointer(pool, redo, self.paths, self.info.uuid, self.settings).take(1, 1, 0, TIME_NS)

    def restart(self, pool: PoolFiles) -> Redo:
        """What pool.writer's start does: finish the double write, ask the files which of its tables
        holds, redo from the last checkpoint."""
        control, _ = poolctrl.load(self.paths)
        pool.recover_double_write(control)
        if len(pool.possible) > 1:
            pool.findings += pool_findings(control, pool, pool.possible)
        redo = Redo(pool)
        if control is not None:
            redo.lsn, redo.next_qpool = control.lsn, control.next_qpool
            redo.queues, redo.clients = dict(control.queues), dict(control.clients)
        return redo

    def recover(self) -> Known:
        """Redo everything behind the last checkpoint, take one, and read the pool."""
        pool = self.pool()
        redo = self.restart(pool)
        redo.apply(self.blocks(redo.lsn))
        assert pool.findings == redo.findings == []
        self.checkpoint(pool, redo)
        try:
            return found(pool)
        finally:
            pool.close()

    def close(self) -> None:
        self.writer.close()


def messages(pool: PoolFiles) -> list[Message]:
    """Every message of the pool."""
    out = []
    for file in pool.files():
        for chunk in pool.scan(file):
            assert chunk.findings == []
            for row in chunk.records[chunk.live]:
                message = pool.read_record(file, int(row["record"]))
                assert isinstance(message, Message), message
                out.append(message)
    return out


def found(pool: PoolFiles) -> Known:
    """What the pool says, by QPoolId."""
    out: Known = {}
    for m in messages(pool):
        assert m.qpool not in out, "two records of one message"
        parts = frozenset((p.queue, p.priority, int(p.state), p.attempts, p.retries, p.until,
                           p.sequence) for p in m.parts)
        out[m.qpool] = ((m.file, m.record, m.location, m.offset, m.length, m.crc, m.size, m.time_ns,
                         m.flags & ~4, m.origin, m.note), parts)
    return out


def contents(pool: PoolFiles, root: Path) -> dict[str, bytes]:
    """The bytes of the pool files that hold anything, without headers and free slots at the end."""
    files = (f"{file}QP" for file in pool.files())
    read = {name: (root / "msgpool" / name).read_bytes()[RECORD_BYTES:] for name in files}
    return {name: data.rstrip(b"\0") for name, data in read.items() if any(data)}
