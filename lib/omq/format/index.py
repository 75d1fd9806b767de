"""Layout of the index: the System V shared-memory segment that only the queue manager writes.

    0      header copy 0 (512 bytes)         512   header copy 1 (512 bytes)
    1024   selector byte: which copy counts  2048  counters (64 * u64)
    4096   tables, each column 64-byte aligned, structure of arrays

The header changes seldom (start, stop, re-definition): the other copy is written with its CRC, then
the selector byte, so a reader never sees half a header. Counters and tables change all the time;
`version` is raised before and after each group of changes (odd = changing). Readers bound every
number that they take from the tables: a queue list is made by selecting entries, never by following
links.

Columns (message slot m, entry slot e = a message on one queue, queue slot = queue id, reader slot
r):
    m_qpool 0 = free slot    m_key  hash of the message id, QPoolId when derived  m_corr correlation
    m_first first entry + 1  m_idnext, m_idprev, m_corrnext, m_corrprev  next slot + 1 in the hash
        chains, and the one before; only the queue manager can follow them from a key
        (core.index.keyed_buckets)
    m_uid   user that put it: who may cancel it (core.engine.cancelling)
    m_origin  queue it came to POISON from, or was deleted from; 0 = neither
    e_next, e_prev  neighbour entry + 1 in the chain of its queue and priority (READY ones only)
    e_sibling  next entry + 1 of the same message          e_until  wall ns when DEFERRED
    q_head, q_tail  first and last entry + 1 of each of 10 priority chains a queue
    q_waits, q_works, j_syncs, j_groups  histograms of 32 places (format.durations)
After the columns: names of queues, names of readers, selectors of readers (what a reader chooses
by; the manager only shows it; empty: it takes whatever is next).
Stored links are slot + 1, so that zeroed memory means "none".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING

from omq.base import limits
from omq.base.checksum import crc32c
from omq.format.durations import BINS
from omq.format.findings import Finding, Kind
from omq.format.layout import Layout

if TYPE_CHECKING:
    from omq.base.arrays import Vector

VERSION = 5
"""3: histograms; 4: selectors of readers behind their names, m_uid; 5: hash chains lie by a
secret of the queue manager, and have links back."""
MAGIC = b"OMQI"
HEADER_BYTES, SELECTOR_AT, COUNTERS_AT, TABLES_AT, CRC_FROM = 512, 1024, 2048, 4096, 8
HEADER = Layout(
    "magic:4s crc:I version:H used:H flags:I uuid:16s boot:16s epoch:Q pid:I spare:I started:Q "
    "time:q messages:I entries:I queues:I readers:I buckets:I spare2:I size:Q lsn:Q reserved:32s",
    152,
)


class IndexFlag(IntFlag):
    """Bits of the header's `flags`."""

    CLEAN = 1  # the manager stopped in order; the tables equal the journal's end
    POOL_NOT_READ = 2  # started with qm_dont_read_messages_at_start
    POOL_DAMAGED = 4  # the pool has what could not be read: bodies may be needed that none names


class Counter(IntEnum):
    """Slots of the counters area (u64 each)."""

    VERSION = 0  # odd while a group is applied
    LAST_LSN = 1
    DURABLE_LSN = 2
    NEXT_QPOOL = 3
    MESSAGES = 4  # in use
    MESSAGES_HIGH = 5  # slots ever used: scans stop here
    ENTRIES = 6
    ENTRIES_HIGH = 7
    QUEUES_HIGH = 8
    READERS_HIGH = 9
    PUTS = 10
    GIVES = 11
    DONES = 12
    REFUSED = 13  # requests answered with an error
    GARBAGE = 14  # requests that could not be a client's: wrong size, token, version
    GROUPS = 15  # blocks written
    SYNCS = 16  # of the journal
    JOURNAL_BYTES = 17
    JOURNAL_FILE = 18
    CHECKPOINT_LSN = 19
    CHECKPOINT_TIME = 20
    STARTED = 21  # wall ns
    CLIENTS = 22
    MESSAGES_PEAK = 23
    ACTIVE_PEAK = 24  # messages in readers' hands at once, at most
    QUARANTINED = 25  # damaged parts that the start set aside
    HEARTBEAT = 26  # wall ns of the main loop's last turn
    DEATHS = 27  # readers that died with a message
    PAUSED_MS = 28  # that the manager waited for pool.writer to catch up
    RETURNED = 29  # items in return lanes, stale ones too; 0: every READY message is in a chain
    EXPIRED = 30  # entries that left a queue because their time was over
    GROUP_WAITING = 53  # READY entries that wait for their turn in a group: they are in no chain
    UNITS_COMMITTED = 34  # units of work
    UNITS_BACKED_OUT = 35
    SPACE_LOW = 40  # less is free than the reserve, puts are refused: 1 of bytes, 2 of inodes
    INDEX_LOW = 41  # 1: only its reserve is free, members' messages are refused; 2: all new ones
    UNITS_PREPARED = 42
    UNITS_IN_DOUBT = 43  # now
    DUPLICATES = 54  # messages that were absorbed or refused: their queue has had their id
    BOOT_BEAT = 55  # as HEARTBEAT, in ns since boot: no clock that is set makes a manager look hung
    TIME_NAMESPACE = 57  # the one in which BOOT_BEAT counts (base.clock), 0 = not known
    CLOCK_STEPS = 56  # how often this manager has seen the wall clock being set
    EVENTS_DROPPED = 47  # event messages that found no place on SYSTEM.EVENTS
    SPACE_WANTED = 64  # LSN up to which a queue was cleared: its space is wanted back at once
    LAG_BYTES = 70  # of the journal after the checkpoint, when it was last looked at
    SYNC_US = 59  # that the syncs took which j_syncs counts: one in 16
    FRAMES = 60  # in the blocks of j_groups
    KEYED_READY = 90  # READY entries that stand by their keys: they are in no chain and no lane
    LIMIT_KEYS, LIMIT_KEYS_FORGOTTEN = 91, 92  # in memory; before their time: limit_keys_max
    BARRIERS_WAITING, BARRIERS_READY, BARRIERS_FAILED = 93, 94, 95  # now; since the start


class EntryState(IntEnum):
    """State of an entry: a message on one queue."""

    FREE = 0
    READY = 1
    ACTIVE = 2
    DEFERRED = 3
    HELD = 4
    IDEL = 5  # on no queue any more, waits for idel.server
    PREPARED = 6  # taken or put by a unit of work in doubt


class QueueFlag(IntFlag):
    """Bits of q_flags; the first four are the seed's."""

    IN_USE = 1
    SUSPENDED = 2  # get inhibited
    SHUTDOWN = 4
    LOCKED = 8
    PUT_INHIBITED = 16
    PSEUDO = 32  # IDEL
    SPECIAL = 64  # IDEL, POISON
    LIMITS_TIME = 128  # what is put there has a time
    DRAINS = 256  # it was rolled over: takes no more, and goes when it is empty
    LIMITED = 512  # it has limits of work (core.engine.limits)
    KEYED = 1024  # READY messages stand by their keys, in no chain and no lane
    AT_LIMIT = 2048  # readers wait, messages are READY, and a limit is between them


class ReaderFlag(IntFlag):
    """Bits of r_flags; 1, 0x10 and 0x40 are the seed's. A reader waits while its r_response is
    before its r_request."""

    IN_USE = 1
    SHUTDOWN = 0x10
    LOCKS_QUEUE = 0x40
    AUXILIARY = 0x100
    READS = 0x200  # registered as a reader of r_queue


MESSAGE_COLUMNS = (
    "m_qpool:Q m_lsn:Q m_time:q m_key:Q m_corr:Q m_expiry:q m_location:I m_offset:I m_length:I "
    "m_crc:I m_size:I m_pid:I m_uid:I m_record:I m_first:I m_idnext:I m_idprev:I m_corrnext:I "
    "m_corrprev:I m_flags:H m_parts:H m_origin:H m_file:B"
)
ENTRY_COLUMNS = (
    "e_sequence:Q e_submitted:q e_until:q e_lease:Q e_message:I e_next:I e_prev:I e_sibling:I "
    "e_reader:I e_queue:H e_attempts:H e_retries:H e_priority:B e_state:B"
)
QUEUE_COLUMNS = (
    "q_ever:Q q_processed:Q q_expired:Q q_hour_at:q q_started:q q_load1:d q_load5:d q_load15:d "
    "q_rate1:d q_rate5:d q_rate15:d q_sampled:q q_flags:I q_depth:I q_ready:I q_active:I "
    "q_deferred:I q_held:I q_hour:I q_last_hour:I q_max_depth:I q_max_length:I "
    "q_waited_us:Q q_worked_us:Q q_failed:Q q_dead:Q"
)
READER_COLUMNS = (
    "r_registered:q r_request:q r_response:q r_started:Q r_processed:Q r_pid:I r_uid:I r_client:I "
    "r_timeout:I r_queue:H r_flags:H"
)
CHAIN_COLUMNS = "q_head:I q_tail:I"  # queues * 10 each
BUCKET_COLUMNS = "b_id:I b_corr:I"  # heads of the hash chains, slot + 1
SPENT_COLUMNS = "q_waits:Q q_works:Q"  # queues * BINS each
JOURNAL_COLUMNS = "j_syncs:Q j_groups:Q"  # BINS each
QUEUE_NAME_BYTES = 24
READER_NAME_BYTES = 32
READER_SELECTOR_BYTES = 256  # a longer one is cut: it can be shown, and not be tested
_BYTES = {"Q": 8, "q": 8, "d": 8, "I": 4, "H": 2, "B": 1}


@dataclass(frozen=True, slots=True)
class IndexLayout:
    """Where each column lies for given capacities."""

    messages: int
    entries: int
    queues: int
    readers: int
    buckets: int  # power of two
    columns: dict[str, tuple[str, int, int]]  # name -> (code, offset, count)
    queue_names: int
    reader_names: int
    reader_selectors: int
    size: int

    @staticmethod
    def of(messages: int, entries: int, queues: int, readers: int) -> IndexLayout:
        """Layout for the given capacities (slots)."""
        buckets = 1 << max(10, (messages - 1).bit_length())
        tables = (
            (MESSAGE_COLUMNS, messages), (ENTRY_COLUMNS, entries), (QUEUE_COLUMNS, queues),
            (READER_COLUMNS, readers), (CHAIN_COLUMNS, queues * limits.PRIORITIES),
            (BUCKET_COLUMNS, buckets), (SPENT_COLUMNS, queues * BINS), (JOURNAL_COLUMNS, BINS))
        at, columns = TABLES_AT, {}
        for text, count in tables:
            for item in text.split():
                name, code = item.split(":")
                columns[name] = (code, at, count)
                at += -(-_BYTES[code] * count // 64) * 64
        queue_names = at
        at += queues * QUEUE_NAME_BYTES
        reader_names = at
        at += readers * READER_NAME_BYTES
        reader_selectors = at
        at += readers * READER_SELECTOR_BYTES
        size = -(-at // 4096) * 4096
        return IndexLayout(messages, entries, queues, readers, buckets, columns, queue_names,
                           reader_names, reader_selectors, size)

    @property
    def bytes_per_message(self) -> float:
        """Cost of one message on one queue, hash buckets and spare entries included."""
        rows = sum(_BYTES[code] * count for name, (code, _, count) in self.columns.items()
                   if name[0] in "meb")
        return rows / self.messages

    def column(self, buffer: memoryview, name: str) -> memoryview:
        """One column for loads and stores of single values."""
        code, at, count = self.columns[name]
        return buffer[at : at + _BYTES[code] * count].cast(code)  # type: ignore[call-overload,no-any-return]

    def vector(self, buffer: memoryview, name: str) -> Vector:
        """The same column as numpy, shape (count,)."""
        import numpy as np

        code, at, count = self.columns[name]
        kind = {"Q": "<u8", "q": "<i8", "d": "<f8", "I": "<u4", "H": "<u2", "B": "u1"}[code]
        return np.frombuffer(buffer, dtype=kind, count=count, offset=at)


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The header of an index segment."""

    uuid: bytes
    boot: bytes
    epoch: int
    pid: int
    started: int  # start time of that process (/proc, clock ticks)
    time_ns: int
    messages: int
    entries: int
    queues: int
    readers: int
    size: int
    lsn: int = 0  # with CLEAN: the journal's end that the tables equal
    flags: int = 0

    def layout(self) -> IndexLayout:
        return IndexLayout.of(self.messages, self.entries, self.queues, self.readers)


def write_header(buffer: memoryview, header: IndexHeader) -> None:
    """Into the copy that does not count, then the selector: whole at every instant."""
    turn = 1 - (buffer[SELECTOR_AT] & 1)
    buckets = header.layout().buckets
    body = HEADER.pack(MAGIC, 0, VERSION, HEADER.size, header.flags, header.uuid, header.boot,
                       header.epoch, header.pid, 0, header.started, header.time_ns,
                       header.messages, header.entries, header.queues, header.readers, buckets, 0,
                       header.size, header.lsn, b"")
    crc = crc32c(memoryview(body)[CRC_FROM:])
    at = turn * HEADER_BYTES
    buffer[at : at + HEADER.size] = body[:4] + crc.to_bytes(4, "little") + body[CRC_FROM:]
    buffer[SELECTOR_AT] = turn


def read_header(buffer: memoryview) -> IndexHeader | Finding:
    """The header that counts."""
    if len(buffer) < TABLES_AT:
        return Finding(Kind.SHORT, "segment smaller than its header")
    at = (buffer[SELECTOR_AT] & 1) * HEADER_BYTES
    (magic, crc, version, used, flags, uuid, boot, epoch, pid, _, started, time_ns, messages,
     entries, queues, readers, buckets, _, size, lsn, _) = HEADER.unpack_from(buffer, at)
    if magic != MAGIC:
        return Finding(Kind.FOREIGN, "not an index segment: wrong magic")
    if version > VERSION:
        return Finding(Kind.NEWER, f"index version {version}, known {VERSION}")
    if version < VERSION:
        return Finding(Kind.FOREIGN, f"index version {version} of an older queue manager")
    if used != HEADER.size or crc32c(bytes(buffer[at + CRC_FROM : at + used])) != crc:
        return Finding(Kind.CORRUPT, "index header fails its CRC")
    header = IndexHeader(uuid, boot, epoch, pid, started, time_ns, messages, entries, queues,
                         readers, size, lsn, flags)
    if size > len(buffer) or header.layout().size != size or header.layout().buckets != buckets:
        return Finding(Kind.CORRUPT, "index sizes do not fit the segment")
    return header
