"""The queue manager's memory as text: option `t q` of omqdump, and the body of the tombstone.

Four sections in the original's order and words, each beginning with `====`:

    ====Active Messages====   messages in the hands of readers      ... ====End Active=====
    ====Known messages====    every message, not sorted             ... ====END Messages====
    ==== Queues =====         each queue, then its waiting messages in the order of hand-out
    ====Queue Readers====     registered readers                    ... =====End Readers=====

What the figures mean here (the source of the words is the original's dump, annotated in its
training note on queues and parallel processing):
    Record            number of the row in its table; an active message has its entry's number
    Priority          0 to 9, 9 first (the original: 0 normal, 2 urgent, 1 low)
    Item Type         always 0;  Mail Date/Time: when a deferred message is due
    Sequence Num      log sequence number that put it on this queue: larger than in the original
    Active Time       when it was handed out
    Flags             of a message: 1 in use, DumpFlag above; of queues: as in the index; of readers
                      the seed's 1 and 3 (awaits a reply), and 0x100 auxiliary
    Table Used Size   slots ever used, of which Free list Size are free again
A message without a pool record, being non-persistent, has NONE there. A held message, which the
original did not have, ends with `State=HELD`.

Lines are made one at a time: memory does not depend on the number of messages. Errors: none of its
own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntFlag
from math import exp
from typing import Final, Protocol

from omq.base.clock import NS_PER_S, seed_clock, seed_time, seed_time_slash
from omq.core.engine.statistics import WINDOWS_S
from omq.core.index.rows import EntryRow, MessageRow, QueueRow, ReaderRow
from omq.format.index import EntryState, ReaderFlag
from omq.format.pool import RecordFlag

RULE: Final = "-----"
_AWAITING: Final = 2  # the seed's bit of a reader; here a fact of its two times


class DumpFlag(IntFlag):
    """Flags of a message in the dump; the first two are the original's."""

    IN_USE = 1
    OPEN = 2  # its creator has it open; not used here
    NON_PERSISTENT = 0x100
    CONTAINER = 0x200
    OWN_ID = 0x400  # the submitter named it


class Memory(Protocol):
    """What is dumped; core.index.view.IndexView."""

    @property
    def message_slots(self) -> int: ...
    @property
    def reader_slots(self) -> int: ...
    def counters(self) -> Mapping[str, int]: ...
    def queues(self) -> Sequence[QueueRow]: ...
    def readers(self) -> Sequence[ReaderRow]: ...
    def active(self) -> Iterable[EntryRow]: ...
    def messages(self) -> Iterable[MessageRow]: ...
    def entries(self, queue: str) -> Iterable[EntryRow]: ...


def memory_lines(memory: Memory, now_ns: int, sample_period_s: int) -> Iterator[str]:
    """The whole dump, without line ends. `now_ns`: wall clock; the period is a setting."""
    yield from _active_section(memory)
    yield ""
    yield from _messages_section(memory)
    yield ""
    yield from _queues_section(memory, now_ns, sample_period_s)
    yield ""
    yield from _readers_section(memory)


def _active_section(memory: Memory) -> Iterator[str]:
    queues = memory.queues()
    peak = max(memory.counters()["active_peak"], sum(queue.active for queue in queues))
    yield "====Active Messages===="
    yield f"Table Size={peak}"
    for entry in memory.active():
        yield RULE
        yield f"Record={entry.number}"
        yield f"Reader Id={_or_none(entry.reader)}"
        yield f"Queue Name={entry.queue}"
        yield f"Active Time={seed_time(entry.until_ns)}"
        yield f"Flags={_hex(_flags(entry.message))}"
        yield f"Item Ref      = {entry.message.item_ref}"
        yield from _entry(entry)
    yield "====End Active====="


def _messages_section(memory: Memory) -> Iterator[str]:
    counters = memory.counters()
    used = min(counters["messages_high"], memory.message_slots)
    yield "====Known messages===="
    yield f"Table size={memory.message_slots}"
    yield f"Table Used Size={used}"
    yield f"Free list Size={max(0, used - counters['messages'])}"
    for message in memory.messages():
        yield RULE
        yield f"Record={message.number}"
        yield from _pool_place(message)
        yield f"Access Count={message.parts}"
        yield f"Flags={_hex(_flags(message))}"
        yield f"Msg File={message.item_ref}"
    yield "====END Messages===="


def _queues_section(memory: Memory, now_ns: int, period_s: int) -> Iterator[str]:
    queues = memory.queues()
    yield "==== Queues ====="
    yield f"Number of queues={len(queues)}"
    yield f"Current Pool ID={max(0, memory.counters()['next_qpool'] - 1)}"
    yield RULE
    for queue in queues:
        yield f"Queue Name={queue.name}"
        yield f"Flags={_hex(queue.flags)}"
        yield f"Messages this hour={queue.hour}"
        yield f"Messages last hour={queue.last_hour}"
        yield f"Current Hour= {seed_clock(queue.hour_ns)}"
        yield f"Messages processed={queue.processed}"
        yield f"Active Messages={queue.active}"
        for load, window_s in zip(queue.load, WINDOWS_S, strict=True):
            yield from _load(queue, load, window_s, now_ns, period_s)
        yield "----->>> The Messages"
        for entry in memory.entries(queue.name):
            if entry.state is not EntryState.ACTIVE:  # those are in the first section
                yield "+++++"
                yield f"Item Ref          = {entry.message.item_ref}"
                yield from _entry(entry)
                if entry.state is EntryState.HELD:
                    yield "State=HELD"
        yield RULE


def _load(queue: QueueRow, load: float, window_s: int, now_ns: int, period_s: int) -> Iterator[str]:
    since_s = (now_ns - queue.sampled_ns) // NS_PER_S
    running_s = max(0, now_ns - queue.started_ns) // NS_PER_S if queue.started_ns else 0
    yield "+++Load Average:"
    yield f"Load={load:f}"
    yield f"Decay factor={exp(-period_s / window_s):f}"
    yield f"Average interval={window_s}"
    yield f"Sample period={period_s}"
    yield f"Remaining Sample period={min(max(0, period_s - since_s), period_s)}"
    yield f"Next load value={queue.messages + queue.remembered}"
    yield f"Last average taken at= {seed_clock(queue.sampled_ns)}"
    yield f"Average running for= {_duration(running_s)}"


def _readers_section(memory: Memory) -> Iterator[str]:
    yield "====Queue Readers===="
    yield f"Readers Array Size={memory.reader_slots}"
    for reader in memory.readers():
        yield RULE
        yield f"Record={reader.number}"
        yield f"Pid={reader.pid}"
        yield f"Registered at={seed_time(reader.registered_ns)}"
        yield f"Last Request at={seed_time(reader.request_ns)}"
        yield f"Last Response at={seed_time(reader.response_ns)}"
        yield f"Current Active message={_or_none(reader.current)}"
        yield f"Queue Name={reader.queue}"
        yield f"Flags={_hex(_reader_flags(reader))}"
        yield f"TimeOut={reader.timeout_s}"
    yield "=====End Readers====="


def _entry(entry: EntryRow) -> Iterator[str]:
    due_ns = entry.until_ns if entry.state is EntryState.DEFERRED else 0
    yield f"Priority = {entry.priority}"
    yield "Item Type = 0"
    yield f"Submit Date/Time = {seed_time_slash(entry.submitted_ns)}"
    yield f"Mail Date/Time   = {seed_time_slash(due_ns)}"
    yield f"Entry Number={entry.number}"
    yield f"Sequence Num={entry.sequence}"
    yield from _pool_place(entry.message)
    yield f"Failed processing attempts={entry.attempts}"


def _pool_place(message: MessageRow) -> Iterator[str]:
    yield f"Message Pool Id={message.qpool}"
    yield f"Message Pool File={_or_none(message.file)}"
    yield f"Message Pool Rec={_or_none(message.record)}"


def _flags(message: MessageRow) -> DumpFlag:
    flags = DumpFlag.IN_USE
    if not message.persistent:
        flags |= DumpFlag.NON_PERSISTENT
    if message.flags & RecordFlag.CONTAINER:
        flags |= DumpFlag.CONTAINER
    if message.flags & RecordFlag.HAS_ID:
        flags |= DumpFlag.OWN_ID
    return flags


def _reader_flags(reader: ReaderRow) -> int:
    """The seed's bits: 1 in use, 2 awaits a reply; and 0x100 auxiliary."""
    waits = reader.request_ns > reader.response_ns
    return reader.flags & ~ReaderFlag.READS | (_AWAITING if waits else 0)


def _hex(value: int) -> str:
    return f"0x{value:08X}"


def _or_none(value: int | None) -> str:
    return "NONE" if value is None else str(value)


def _duration(seconds: int) -> str:
    """`311:37:28`. The original began anew after each day; that hid how long it was."""
    minutes, rest = divmod(seconds, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest:02}"
