"""What the index says of queues, readers, messages and their places on queues, as plain records.

They are copies: nothing in them changes or refers to the segment. Times are wall clock nanoseconds,
0 = never. Names are printable ASCII whatever bytes the tables hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from omq.format.index import EntryState
from omq.format.pool import NO_RECORD, RecordFlag

MESSAGE_COLUMNS: Final = (
    "m_qpool", "m_file", "m_record", "m_parts", "m_flags", "m_size", "m_time", "m_pid",
    "m_location", "m_offset", "m_length", "m_lsn", "m_crc", "m_expiry", "m_origin")
ENTRY_COLUMNS: Final = (
    "e_queue", "e_state", "e_priority", "e_sequence", "e_attempts", "e_retries", "e_submitted",
    "e_until", "e_lease", "e_reader")
RawEntry = tuple[int, tuple[int, ...], int, tuple[int, ...]]
"""Plain numbers: entry number, ENTRY_COLUMNS, slot of the message, MESSAGE_COLUMNS."""
STATES: Final = {int(state): state for state in EntryState if state is not EntryState.FREE}
_ACTIVE: Final = int(EntryState.ACTIVE)

Averages = tuple[float, float, float]
"""Over the last 1, 5 and 15 minutes."""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue. `messages` counts the entries in every state; what queues remember of message ids
    (ADR 0047) lies on IDEL, and is counted in `remembered` alone."""

    number: int
    name: str
    messages: int
    active: int  # in the hands of readers
    ready: int
    deferred: int
    held: int
    ever: int  # put on it since the manager started
    processed: int
    load: Averages  # messages on the queue
    throughput: Averages  # messages processed a minute
    flags: int  # index.QueueFlag
    special: bool  # IDEL, POISON
    hour: int  # processed in this clock hour
    last_hour: int
    hour_ns: int  # when the count of this hour began
    sampled_ns: int  # when the averages were last taken
    started_ns: int  # since when they run
    max_depth: int
    max_length: int
    expired: int = 0  # that left it because their time was over, since the manager started
    remembered: int = 0  # ids, on IDEL
    failed: int = 0  # attempts
    dead: int = 0  # that went to POISON, or where its queue sends what failed too often

    @property
    def prepared(self) -> int:
        """Taken or put by units of work in doubt; on IDEL these units. A copy may be in between."""
        return max(0, self.messages - self.active - self.ready - self.deferred - self.held)


@dataclass(frozen=True, slots=True)
class ReaderRow:
    """One registered reader; `number` is its row in the table (the original's reader id)."""

    number: int
    name: str  # as it named itself
    queue: str
    pid: int
    uid: int
    client: int
    auxiliary: bool
    active: int  # messages in its hands
    current: int | None  # entry number of the one that it was given first
    processed: int
    registered_ns: int
    request_ns: int
    response_ns: int
    timeout_s: int
    flags: int  # index.ReaderFlag
    started: int = 0  # of its process, in clock ticks
    selector: str = ""  # what it chooses by, as it said; empty: it takes whatever is next
    selector_whole: bool = True  # not cut

    @property
    def waits(self) -> bool:
        """For messages: it has asked, and was not answered."""
        return self.response_ns < self.request_ns


@dataclass(frozen=True, slots=True)
class MessageRow:
    """One message; `number` is its row in the message table."""

    number: int
    qpool: int
    file: int | None  # pool file and record; None: it has none, being non-persistent
    record: int | None
    parts: int  # queues it is on
    flags: int  # pool.RecordFlag
    size: int  # bytes of the body
    created_ns: int
    pid: int  # of its submitter
    item_ref: str
    word: int = 0  # where its payload lies: location word, offset and bytes
    offset: int = 0
    length: int = 0
    lsn: int = 0  # of the last frame that changed it
    crc: int = 0  # CRC-32C of its payload
    expiry_ns: int = 0
    origin: int = 0  # number of the queue that it came to POISON or IDEL from; 0 = none

    @property
    def persistent(self) -> bool:
        return bool(self.flags & RecordFlag.PERSISTENT)

    @property
    def replayed(self) -> bool:
        """An operator sent it back from POISON."""
        return bool(self.flags & RecordFlag.REPLAYED)

    @property
    def remembers(self) -> bool:
        """It is not a message, but what a queue remembers of a message id (ADR 0047)."""
        return bool(self.flags & RecordFlag.MEMORY)


@dataclass(frozen=True, slots=True)
class EntryRow:
    """A message on one queue; `number` is the row in the entry table."""

    number: int
    queue: str
    state: EntryState
    priority: int
    sequence: int  # order within a priority
    attempts: int  # failed ones; one under way is not counted
    retries: int  # times that a reader deferred it
    submitted_ns: int  # put on this queue
    until_ns: int  # DEFERRED: when it is due; ACTIVE: since when
    lease: int
    reader: int | None  # row of the reader that holds it
    message: MessageRow


def name_at(names: list[str], queue: int) -> str:
    """The name of a queue by its number, whatever that is."""
    return names[queue] if queue < len(names) else f"#{queue}"


def entry_row(number: int, values: tuple[int, ...], names: list[str], message: MessageRow
              ) -> EntryRow:
    """The record of an entry; `values` are its ENTRY_COLUMNS, its state one of STATES."""
    (queue, state, priority, sequence, attempts, retries, submitted_ns, until_ns, lease,
     reader) = values
    failed = attempts - 1 if state == _ACTIVE and attempts else attempts
    return EntryRow(
        number=number, queue=name_at(names, queue), state=STATES[state], priority=priority,
        sequence=sequence, attempts=failed, retries=retries, submitted_ns=submitted_ns,
        until_ns=until_ns, lease=lease, reader=reader - 1 if reader else None, message=message)


def message_row(number: int, values: tuple[int, ...], item_ref: str) -> MessageRow:
    """The record of a message; `values` are its MESSAGE_COLUMNS."""
    (qpool, file, record, parts, flags, size, created_ns, pid, word, offset, length, lsn, crc,
     expiry_ns, origin) = values
    has_record = record != NO_RECORD
    return MessageRow(
        number=number, qpool=qpool, file=file if has_record else None,
        record=record if has_record else None, parts=parts, flags=flags, size=size,
        created_ns=created_ns, pid=pid, item_ref=item_ref, word=word, offset=offset,
        length=length, lsn=lsn, crc=crc, expiry_ns=expiry_ns, origin=origin)
