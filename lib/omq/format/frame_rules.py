"""What each journal frame means: one row a frame type. Redo, the ledger of repair, the history that
tools tell, and the analytics do what the row says; none of them says it again.

A frame about a message speaks of its *entry* on the frame's `queue` (a message is on one queue or
several). What it may do, each a column of `Rule`:

    makes     the message is born                    leaves   it is off `queue`
    comes     where it is from now on                entry    what its entry on `queue` is now
    hand      a reader gets it, or is done with it   ends     with LAST_PART the message is gone
    replaces  its pool record is `record`; it was `reason` before
    stops     the epoch ended in order, if it is the last frame
    forgets   the definition that the payload names is gone, and the name of number `queue`

In this order: who leaves a queue does so before it comes to others, and never comes to one that it
is on. A frame about an entry that is not there changes nothing, so a row needs no conditions.
Frames about something else name it in `about`. RESERVED types are never written; a reader passes
over them, as over a type that is newer than it.

Order of numbers and their meaning never change (journal.FrameType). How to add a row:
EXTENDING, "How to add a frame".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final

from omq.format import message
from omq.format.journal import FrameFlag, FrameType
from omq.format.pool import PartState

if TYPE_CHECKING:
    from omq.base.arrays import Vector


class About(Enum):
    """What a frame speaks of."""

    MESSAGE = "message"  # the one of `qpool`
    BODIES = "bodies"  # of the messages in the payload
    QUEUE = "queue"  # its name
    DEFINITION = "definition"  # of a queue, at run time (core.engine.queues)
    READER = "reader"  # the client `client`
    OPERATOR = "operator"  # an order; the frames that carry it out have its LSN as `unit`
    INSTANCE = "instance"
    RESERVED = "reserved"


class By(Enum):
    """Who may cause it."""

    SUBMITTER = "submitter"
    READER = "reader"
    OPERATOR = "operator"
    MANAGER = "manager"  # of its own: a death, a lease, a limit


class Comes(Enum):
    """Where the message is from now on, besides where it was."""

    NOWHERE = "-"
    NAMED = "named queues"  # in the payload; a birth without any: `queue`
    TARGET = "`target`"  # if it is not 0, with `attempt`; its origin is `queue`
    IDEL = "IDEL if TO_IDEL"  # off its last queue; with `argument` it can come back until then


class Until(Enum):
    """`until` of an entry whose state the frame changes."""

    NEVER = "-"
    LEASE = "lease"  # pool.lease_tag of this frame
    ARGUMENT = "`argument`"  # rounded up to seconds
    UNIT = "`reason`"  # the number of its unit of work in doubt


class Hand(Enum):
    """What happens to the hand-out to a reader."""

    NOTHING = "-"
    GIVEN = "given"
    FINISHED = "finished"  # if there is one


class Payload(Enum):
    """What stands after the frame header."""

    NOTHING = "-"
    MESSAGE = "message"  # format.message
    QUEUES = "queues"  # message.PART * parts
    TEXT = "text"  # for people, UTF-8; a reason or JSON
    NAME = "name"
    ORDER = "order"  # JSON: command and reason
    RELOCATIONS = "relocations"  # journal.RELOCATION * parts


class Argument(Enum):
    """What `argument` is."""

    NOTHING = "-"
    EXPIRY = "expiry"  # wall clock ns, 0 = never
    UNTIL = "until"  # wall clock ns
    COUNT = "count"  # of the `things` of its payload; with a `queue` (omfreeq): the pid
    LSN = "LSN"
    TURN = "turn"  # GIVEN_OUT_OF_TURN or 0


GIVEN_OUT_OF_TURN: Final = 1
"""`argument` of a GIVE: the message does not follow the order in which messages came to the queue,
for the reader chose it (by an id, a selector, as part of a whole group), or it is of a group and
may have waited for another of it. Frames that were written before this was known have 0."""


class Reason(IntEnum):
    """Why: `reason` of the frames whose row says so. Numbers are part of the format."""

    NONE = 0
    DIED = 1  # the reader did
    FAILED = 2  # the reader said so
    LEASE = 3
    DEFERRED = 4  # the reader asked for it
    RETURNED = 5
    OPERATOR = 6
    UNSEEN = 7  # the manager died handing it out: the attempt counts
    BACKED_OUT = 12  # its unit of work was: the attempt counts
    MEMBERS_DONE = 13  # a barrier: all that it waited for is done
    MEMBER_FAILED = 14  # a barrier: one that it waited for will not be
    TOO_LATE = 15  # a barrier: what it waited for was not done in time


WORDS: Final[Mapping[int, str]] = {
    Reason.NONE: "", Reason.DIED: "reader died", Reason.FAILED: "reader reported failure",
    Reason.LEASE: "lease expired", Reason.DEFERRED: "deferred by reader",
    Reason.RETURNED: "returned by reader", Reason.OPERATOR: "ordered by an operator",
    Reason.UNSEEN: "manager died handing it out",
    Reason.BACKED_OUT: "unit of work backed out",
    Reason.MEMBERS_DONE: "the messages that it waited for are done",
    Reason.MEMBER_FAILED: "a message that it waited for failed",
    Reason.TOO_LATE: "the messages that it waited for were not done in time"}  # fmt: skip
"""Reasons for people."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a frame makes of the entry on its queue."""

    state: PartState
    until: Until = Until.NEVER
    attempts: bool = True  # they are `attempt` from now on
    defers: bool = False  # counts as a deferral, unless FAILED


@dataclass(frozen=True, slots=True)
class Rule:
    """A row; see the module. `words` say what happened: a format string over the attributes of
    omqlog's Told, `{it.on}` and so on."""

    about: About
    words: str
    by: frozenset[By] = frozenset()
    makes: bool = False
    leaves: bool = False
    comes: Comes = Comes.NOWHERE
    entry: Entry | None = None
    hand: Hand = Hand.NOTHING
    ends: bool = False
    replaces: bool = False
    stops: bool = False
    forgets: bool = False
    payload: Payload = Payload.NOTHING
    argument: Argument = Argument.NOTHING
    reasoned: bool = False  # `reason` is a Reason

    @property
    def changes(self) -> bool:
        """It changes the record of a message that is there."""
        return self.about is About.MESSAGE and not self.makes

    @property
    def fails(self) -> bool:
        """The message failed its way to `target`: the payload says how."""
        return self.comes is Comes.TARGET and self.reasoned

    @property
    def at_large(self) -> bool:
        """Redo needs it, whatever message is looked at."""
        return self.about in (About.QUEUE, About.DEFINITION, About.BODIES)

    @property
    def puts_off(self) -> bool:
        """The entry's turn is another one than that of its arrival, and no reader had it."""
        return (self.entry is not None and self.hand is Hand.NOTHING) or self.is_in(
            PartState.DEFERRED)

    def is_in(self, state: PartState) -> bool:
        """Its entry is in this state from now on."""
        return self.entry is not None and self.entry.state is state


_CLIENT, _READER = frozenset({By.SUBMITTER}), frozenset({By.READER})
_OPERATOR, _MANAGER = frozenset({By.OPERATOR}), frozenset({By.MANAGER})

RULES: Final[dict[FrameType, Rule]] = {
    FrameType.PUT: Rule(
        About.MESSAGE, "put{it.on}, priority {it.priority}, {it.size} bytes{it.born}",
        _CLIENT | _READER, makes=True, comes=Comes.NAMED, payload=Payload.MESSAGE,
        argument=Argument.EXPIRY),
    FrameType.GIVE: Rule(
        About.MESSAGE, "given to a reader{it.on}, attempt {it.attempt}", _MANAGER,
        entry=Entry(PartState.ACTIVE, Until.LEASE), hand=Hand.GIVEN, argument=Argument.TURN),
    FrameType.DONE: Rule(
        About.MESSAGE, "done{it.on}{it.end}", _READER, leaves=True, comes=Comes.IDEL,
        hand=Hand.FINISHED, ends=True),
    FrameType.MOVE: Rule(
        About.MESSAGE, "{it.moved} {it.targets}{it.again}", _READER | _OPERATOR,
        leaves=True, comes=Comes.NAMED, hand=Hand.FINISHED, replaces=True, payload=Payload.QUEUES),
    FrameType.DEFER: Rule(
        About.MESSAGE, "{it.failed}deferred{it.on} until {it.until}{it.why}", _READER | _MANAGER,
        entry=Entry(PartState.DEFERRED, Until.ARGUMENT, defers=True), hand=Hand.FINISHED,
        payload=Payload.TEXT, argument=Argument.UNTIL, reasoned=True),
    FrameType.POISON: Rule(
        About.MESSAGE, "put on {it.targets}{it.on}", _READER | _MANAGER, leaves=True,
        comes=Comes.TARGET, hand=Hand.FINISHED, payload=Payload.TEXT, reasoned=True),
    FrameType.DELETE: Rule(
        About.MESSAGE, "deleted{it.on}{it.end}", _READER | _OPERATOR, leaves=True,
        comes=Comes.IDEL, ends=True, argument=Argument.UNTIL, reasoned=True),
    FrameType.HOLD: Rule(
        About.MESSAGE, "held{it.on}", _OPERATOR, entry=Entry(PartState.HELD, attempts=False),
        reasoned=True),
    FrameType.RELEASE: Rule(
        About.MESSAGE, "released{it.on}", _READER | _OPERATOR, entry=Entry(PartState.READY),
        reasoned=True),
    FrameType.COMMIT: Rule(
        About.MESSAGE, "committed{it.on}", _READER | _OPERATOR,
        entry=Entry(PartState.READY, attempts=False)),
    FrameType.PREPARE: Rule(
        About.MESSAGE, "prepared{it.on}: it ends with its unit of work", _READER,
        entry=Entry(PartState.PREPARED, Until.UNIT), hand=Hand.FINISHED),
    FrameType.CHECKPOINT: Rule(
        About.INSTANCE, "checkpoint up to LSN {it.argument}", _MANAGER, argument=Argument.LSN),
    FrameType.READER_UP: Rule(
        About.READER, "reader registered{it.on}", _READER, payload=Payload.NAME),
    FrameType.READER_DOWN: Rule(
        About.READER, "reader left{it.on}", _READER | _MANAGER, payload=Payload.NAME),
    FrameType.QUEUE: Rule(About.QUEUE, "queue defined{it.on}", _MANAGER, payload=Payload.NAME),
    FrameType.OPERATOR: Rule(
        About.OPERATOR, "operator command, {it.order}", _OPERATOR,
        payload=Payload.ORDER, argument=Argument.COUNT, reasoned=True),
    FrameType.RELOCATE: Rule(
        About.BODIES, "bodies moved", _MANAGER, payload=Payload.RELOCATIONS),
    FrameType.EXPIRE: Rule(
        About.MESSAGE, "expired{it.on}{it.to}{it.end}", _MANAGER, leaves=True, comes=Comes.TARGET,
        ends=True),
    FrameType.STOP: Rule(About.INSTANCE, "clean end", _MANAGER, stops=True),
    FrameType.RELEASE_GIVEN: Rule(
        About.MESSAGE, "given back untouched{it.on}{it.why}", _READER | _MANAGER,
        entry=Entry(PartState.READY), hand=Hand.FINISHED, reasoned=True),
    FrameType.BACKOUT: Rule(
        About.MESSAGE, "backed out{it.on}{it.why}", _READER | _MANAGER,
        entry=Entry(PartState.READY), hand=Hand.FINISHED, reasoned=True),
    FrameType.DEFINE: Rule(
        About.DEFINITION, "queue{it.on} defined{it.why}", _OPERATOR | _CLIENT,
        payload=Payload.TEXT),
    FrameType.UNDEFINE: Rule(
        About.DEFINITION, "queue{it.on} removed{it.why}", _OPERATOR | _MANAGER, forgets=True,
        payload=Payload.TEXT),
}

_UNKNOWN: Final = Rule(About.RESERVED, "something that only a newer omq knows")
BY_NUMBER: Final = tuple(RULES.get(kind, _UNKNOWN) for kind in range(256))  # type: ignore[call-overload]
"""The same for the byte `type` of any frame."""


def parts_at(kind: int, flags: int) -> int:
    """Where in a frame's payload its queue parts begin; -1: it names no queues."""
    payload = BY_NUMBER[kind].payload
    if payload is Payload.QUEUES or (payload is Payload.MESSAGE and flags & FrameFlag.QUEUES):
        return 0
    return message.DESCRIPTOR.size if payload is Payload.MESSAGE else -1


def numbers(holds: Callable[[Rule], bool]) -> list[int]:
    """The frame types whose row is so, ascending."""
    return sorted(int(kind) for kind, rule in RULES.items() if holds(rule))


def mask(holds: Callable[[Rule], bool]) -> Vector:
    """The same by frame type: bool, shape (256,), to be indexed by columns of frame headers. What
    is not a known type is not."""
    import numpy as np

    out = np.zeros(256, dtype=bool)
    out[numbers(holds)] = True
    return out
