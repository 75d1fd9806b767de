"""Requests and replies between a client and the queue manager.

Three ways, each with its own layout:
  * control: JSON lines over `qmgr.sock` (register, open, administer): seldom, so words, not bytes;
  * requests: one message of REQUEST (96 bytes) on the System V request queue; batches and bodies
    lie in the request half of the client's channel segment. Only the spool's owner and root may
    write to that queue: all others send REQUEST in hexadecimal digits behind REQUEST_MARK, as a
    line over `qmgr.sock` (ADR 0020), and all else is the same;
  * replies: REPLY (64 bytes) at the start of the channel's reply half, then one semaphore release.

Channel segment: [ reply half | request half | note ], the halves of the same size. A client has one
request under way. Request half by operation:
    PUT        payload                       PUT_MANY  FRAME * count, then payloads
    SETTLE     SETTLE * count, then reasons  MOVE      SETTLE, part * parts, FRAME * new, payloads
    ASK        SETTLE * count, payload
    NEXT, GET  as SETTLE (count may be 0); `want` = how many messages are wanted
    LOOK       nothing; the answer names messages that are on the queue, and hands out none
    STAGE, COMMIT  SETTLE * parts, FRAME * count, payloads      BACKOUT   SETTLE * parts
    MOVE_MANY  as COMMIT; `argument` of a row = how many of the FRAMEs take its place
    PREPARE   as COMMIT, then the name of the unit              RESOLVE   the id or name of a unit
    CANCEL    the id of a message, all 24 bytes
Reply half behind REPLY: GIVEN * count (then bodies for readers that may not read the spool), or the
JSON fields of an error. SEEN * count: the rows of the question `see` (ipc.server.queue_rows).

The note is a reader's: what its program is processing, and settlements that no request has carried
yet. The manager reads it when the reader has died, or is silent (ADR 0035).

Foreign bytes: sizes and counts are checked against the channel before anything is read; a request
of another size or version is refused and counted.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

from omq.format.layout import Layout

VERSION = 5
"""2: requests and bodies of other users over qmgr.sock (ADR 0020, 0021); 3: notes; 4: units of
work, TOUCH, the delay of a FAIL, messages by their ids; 5: looks, messages under a cursor,
MOVE_MANY, PREPARE, RESOLVE, CANCEL."""
REQUEST_MAGIC = 0x4F51
REQUEST = Layout(
    "operation:B priority:B flags:H queue:H count:H client:I length:I token:16s sequence:Q size:Q "
    "crc:I magic:H version:H correlation:Q want:Q argument:q entry:I parts:H spare:H expiry:q",
    96,
)
REPLY = Layout(
    "magic:H status:H flags:I sequence:Q count:I length:I qpool:Q lsn:Q epoch:Q reserved:16s",
    64,
)
SETTLE = Layout("kind:B spare:B reason:H entry:I qpool:Q lease:Q argument:q reason_at:I spare2:I",
                40)
GIVEN = Layout(
    "entry:I queue:H priority:B flags:B qpool:Q lease:Q location:I offset:I length:I crc:I size:Q "
    "submitted:q attempts:H retries:H inline:I",
    64,
)
SEEN = Layout(
    "entry:I slot:I sequence:Q submitted:q until:q queue:H attempts:H retries:H priority:B state:B "
    "qpool:Q created:q lsn:Q expiry:q size:I crc:I length:I pid:I flags:H parts:H origin:H spare:H",
    96,
)
MOVED = Layout("qpool:Q location:I offset:I record:I file:I slot:I spare:I", 32)
NOTE = Layout("magic:Q count:I text:I current:Q listed:Q token:Q spare:24s", 64)
NOTE_MAGIC = int.from_bytes(b"OMQNOTE1", "little")
NOTE_ROWS = 1000  # as many as a batch has messages
NOTE_TEXT_AT = NOTE.size + NOTE_ROWS * SETTLE.size
NOTE_TEXT_BYTES = 4096
NOTE_BYTES = NOTE_TEXT_AT + NOTE_TEXT_BYTES
IN_WORK = 0  # a row's kind in a note that is not a settlement
REQUEST_TYPE = 1  # System V message type of requests
WAKE_TYPE = 2  # the manager's own wake-up call
REQUEST_MARK = b"="  # begins a line that is a request: no JSON text begins so
ENDED = "ended"  # in the last line of a manager that stops: nobody asked for it
BELL = "bell"  # in a line that says which request is answered, to a reader that wants it


class Operation(IntEnum):
    """Operations of the request queue."""

    PUT = 1
    PUT_MANY = 2
    NEXT = 3  # settle `count`, then give up to `want`; argument = time-out in ms (-1: wait)
    SETTLE = 4
    MOVE = 5  # then, as NEXT, give up to `want`, if it is not 0
    PING = 6
    RELOCATE = 7  # pool.writer moved bodies: rows of MOVED
    TOUCH = 8  # as SETTLE: the reader still works on these, their lease begins anew
    STAGE = 10  # part of a unit of work: kept until it is committed
    COMMIT = 11  # the rest of it, and all of it is carried out
    BACKOUT = 12  # give back these messages, the attempt counted; forget what was staged
    TAKE = 13  # up to `want` messages of `queue` for a unit of work; argument as NEXT
    GET = 15  # as NEXT, only messages with a key: `correlation` = the key, `flags` = whose (Key)
    PREPARE = 16  # as COMMIT, but the unit is in doubt from then on; `queue` = bytes of its name
    RESOLVE = 17  # end a unit in doubt; want = 1: commit it, 0: back it out
    CANCEL = 18  # the message with this id leaves the queues where it waits
    ASK = 19  # settle `count`, put a request, then give its reply; argument as NEXT
    LOOK = 30  # what came to the queue since the last one, up to `want`; argument as NEXT
    MOVE_MANY = 35  # finish `parts` messages and put `count` new ones
    SYNCED = 36  # this sender's standby has synced up to LSN `size`; it gets no answer


class Settlement(IntEnum):
    """How a reader ends its work on a message."""

    DONE = 1
    DEFER = 2  # argument = delay in ns
    FAIL = 3  # a failed attempt; argument = delay in ns + 1, 0 = as its queue has it
    RELEASE = 4  # untouched: back where it was, attempt not counted


class Key(IntEnum):
    """Which id of a message the key of a GET belongs to; ARRIVAL: of a LOOK, without a key."""

    CORRELATION = 1
    MESSAGE_ID = 2  # the QPoolId when the id is the manager's, else the hash as for correlation
    CURSOR = 3  # the QPoolId of one message; `size` = its entry
    ARRIVAL = 4
    GROUP = 5  # a whole group, all of its messages at once; without a key


class PutFlag(IntFlag):
    """Bits of a put request's `flags` (and of the FRAME in a PUT_MANY)."""

    PERSISTENT = 1
    CONTAINER = 2
    GIVEN_ID = 4  # the message id is the submitter's
    GROUPED = 8  # it has a group id
    UNIQUE = 16  # its id is a unique_key: refused where no queue of it remembers ids
    BARRIER = 32  # it waits until the messages are done that its property MEMBERS names


class CancelFlag(IntFlag):
    """Bits of a CANCEL's `flags`. A manager that does not know one refuses what a reader has."""

    IN_WORK = 1  # also what a reader has: it is taken out of its hands


class GivenFlag(IntFlag):
    """Bits of GIVEN.flags."""

    PERSISTENT = 1
    CONTAINER = 2
    REDELIVERED = 4
    INLINE = 8  # the payload lies in the reply half at `inline`
    NOTED = 16  # why it is on this dead-letter queue is known (the question "failure")


def request_line(head: bytes) -> bytes:
    """A REQUEST as a line of the control connection."""
    return REQUEST_MARK + head.hex().encode("ascii") + b"\n"


def bell_line(sequence: int) -> bytes:
    """A line of the control connection: the reply to this request is there."""
    return b'{"%s": %d}\n' % (BELL.encode("ascii"), sequence)


def is_of(raw: bytes, client: int, token: bytes) -> bool:
    """Whether a REQUEST is this client's. (By place: all of it is looked at later.)"""
    return (len(raw) == REQUEST.size and raw[16:32] == token
            and int.from_bytes(raw[8:12], "little") == client)


def payload_bytes(raw: bytes) -> int:
    """`length` of a REQUEST."""
    return int.from_bytes(raw[12:16], "little")


def halves(segment_bytes: int) -> tuple[int, int, int]:
    """Where the reply half, the request half and the note of a channel segment begin."""
    half = (segment_bytes - NOTE_BYTES) // 2
    return 0, half, 2 * half
