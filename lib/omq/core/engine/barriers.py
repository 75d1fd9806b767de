"""Barriers: a message that is ready when all of the messages that it names are done (ADR 0144).

A barrier is one message, put by one PUT frame (FrameFlag.BARRIER), DEFERRED on its queue until the
latest moment that it waits for. Its payload names its members by their QPoolIds. Nothing is written
for a member that ends well. What ends the waiting is a frame about the barrier alone:

    RELEASE  (MEMBERS_DONE)   all are done: READY on its queue
    POISON   (MEMBER_FAILED)  one failed too often, expired, was deleted or cancelled
    POISON   (TOO_LATE)       its time is over

A failed one goes where its queue sends what fails too often, with the member and the cause as its
evidence. A member is done when a DONE frame takes it off its last queue; one that was moved on
still lives, one that is replaced by others is done. What had ended before the barrier was put
counts as done, what is on POISON is refused.

A barrier waits as long as its entry is DEFERRED as the put has left it: an operator who releases,
holds, moves or deletes it ends the waiting, and then it is a message like others.

Invariants: 1. MEMBER in `m_flags` if and only if a barrier waits for the message; settlements of
such messages go this way, the others pay a bit in a mask that is tested anyway; 2. BARRIER if and
only if it waits; a record says it until the message has left its queue, and a start looks at the
state, too; 3. each barrier knows its members that live, and each member its barriers; both are
bounded.

In the middle of a crash: of the members a start finds those that live (`load`), and the others
count as done. So an end that does not count as done needs its barriers' frames in the block of its
own, or in one before: `failing` writes them first, with room that the request has reserved. Two
ends need no order: DONE, for which a start does the RELEASE that is missing; and the way to POISON
or a dead-letter queue, where a start finds the member and does the barrier's. Those are done by
`fire`, after the requests of a group and before it commits, each with room of its own. `failing`
and `fire` are in core.engine.barrier_ends; here is who waits for what.

Errors: MemberFailed, NotMember, TooManyMembers, BadRequest, before anything is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from omq.base import limits
from omq.base.errors import BadRequest, MemberFailed, NotMember, OmqError, TooManyMembers
from omq.core.engine.rules_of_queue import IDEL, POISON, QueueRules
from omq.core.index.tables import Tables
from omq.format import message as message_format
from omq.format.findings import Finding
from omq.format.frame_rules import Reason
from omq.format.index import Counter, EntryState
from omq.format.members import MEMBERS, counts_before, members_in
from omq.format.pool import RecordFlag
from omq.format.wire import PutFlag

if TYPE_CHECKING:
    from omq.core.engine.new_message import NewMessage

MEMBER: Final = int(RecordFlag.MEMBER)  # in m_flags
BARRIER: Final = int(RecordFlag.BARRIER)
ASKED: Final = int(PutFlag.BARRIER)  # in the flags of a NewMessage
_PERSISTENT, _PREPARED = int(RecordFlag.PERSISTENT), int(EntryState.PREPARED)
_WAITING = int(Counter.BARRIERS_WAITING)
_ALONE: Final = int(PutFlag.PERSISTENT | PutFlag.CONTAINER | PutFlag.GIVEN_ID | PutFlag.BARRIER)


class Core(Protocol):
    """What is needed of core.engine.state.Core, which has the barriers."""

    t: Tables
    rules: dict[int, QueueRules]
    next_qpool: int


class Party(Protocol):
    """And of its Party."""

    uid: int
    owns: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """Why a barrier will never be ready. `member`: its QPoolId, 0 = none in particular."""

    reason: Reason
    member: int
    words: str


class Barriers:
    """See the module."""

    def __init__(self) -> None:
        self.waiting: dict[int, set[int]] = {}  # entry of a barrier -> QPoolIds that live
        self.members: dict[int, list[int]] = {}  # QPoolId -> entries of barriers
        self.due: dict[int, Failed | None] = {}  # entry -> why it failed; None: all are done
        self.paused_until = 0  # the disk is full (monotonic ns)
        self.told: Callable[[Any], None] = lambda poisoned: None  # takes a Poisoned of the state

    # putting

    def judged(self, core: Core, party: Party, new: Sequence[NewMessage]) -> None:
        """Everything that can refuse the barriers among the messages of one request."""
        for before, each in enumerate(new):
            if each.flags & ASKED:
                each.members = self._members(core, party, each, before)

    def _members(self, core: Core, party: Party, new: NewMessage, before: int) -> str:
        if new.flags & ~_ALONE or not new.flags & _PERSISTENT or new.parts != 1:
            raise BadRequest(reason="a barrier is a persistent message on one queue, of no group, "
                             "without a unique key")
        text = said_in(new.payload)
        if (count := counts_before(text)) > before:
            raise BadRequest(reason=f"a barrier for {count} messages of its request, which puts "
                             f"{before} before it")
        if count:
            members_in(text, count + 1)
            return text
        found = members_in(text, 0)
        if found and found[-1] >= core.next_qpool:
            raise NotMember(qpool_id=found[-1], reason="no message has had this number yet")
        for qpool in found:
            if (slot := core.t.slot_of(qpool)) >= 0:
                self._check(core, party, slot)
        return text

    def _check(self, core: Core, party: Party, slot: int) -> None:
        t, qpool = core.t, core.t.m_qpool[slot]
        if not (party.owns or not party.uid or t.m_uid[slot] == party.uid):
            raise NotMember(qpool_id=qpool, reason="another user has put it")
        if not t.m_flags[slot] & _PERSISTENT:
            raise NotMember(qpool_id=qpool, reason="it is not persistent")
        if any(t.e_state[entry] == _PREPARED and not t.e_attempts[entry]
               for entry in t.entries_of(slot)):
            raise NotMember(qpool_id=qpool, reason="its unit of work is in doubt")
        if queue := failed_on(core, slot):
            raise MemberFailed(qpool_id=qpool, queue=core.rules[queue].name)
        if len(self.members.get(qpool, ())) >= limits.BARRIERS_PER_MESSAGE_MAX:
            raise TooManyMembers(count=limits.BARRIERS_PER_MESSAGE_MAX + 1,
                                 what=f"barriers for message {qpool}",
                                 limit=limits.BARRIERS_PER_MESSAGE_MAX)

    def born(self, core: Core, slot: int, said: str) -> None:
        """The frame of a barrier was written, its entry is there."""
        core.t.m_flags[slot] |= BARRIER
        self._wait(core, core.t.m_first[slot] - 1, members_in(said, core.t.m_qpool[slot]))

    def _waits(self, core: Core, entry: int, live: set[int]) -> None:
        self.waiting[entry] = live
        core.t.counters[_WAITING] = len(self.waiting)

    def _wait(self, core: Core, entry: int, qpools: Iterable[int]) -> None:
        t, live = core.t, set[int]()
        self._waits(core, entry, live)
        for qpool in qpools:
            slot = t.slot_of(qpool)
            if slot < 0 or not _lives(core, slot):
                continue
            live.add(qpool)
            self.members.setdefault(qpool, []).append(entry)
            t.m_flags[slot] |= MEMBER
            if queue := failed_on(core, slot):
                self._fail(entry, Failed(Reason.MEMBER_FAILED, qpool,
                                         f"it is on {core.rules[queue].name}"))
        if not live:
            self.due.setdefault(entry, None)

    # members that end

    def done(self, core: Core, slot: int) -> None:
        """A member is done; its DONE frame is written."""
        qpool = core.t.m_qpool[slot]
        core.t.m_flags[slot] &= ~MEMBER
        for entry in self.members.pop(qpool, ()):
            live = self.waiting[entry]
            live.discard(qpool)
            if not live:
                self.due.setdefault(entry, None)

    def poisoned(self, core: Core, slot: int, queue: int) -> None:
        """A member has failed too often; its frame is written."""
        qpool = core.t.m_qpool[slot]
        for entry in self.members.get(qpool, ()):
            self._fail(entry, Failed(Reason.MEMBER_FAILED, qpool,
                                     f"it failed too often on {core.rules[queue].name}"))

    def late(self, entry: int) -> None:
        """The time of this entry is over, which is that of a barrier that waits."""
        live = self.waiting[entry]
        self._fail(entry, Failed(Reason.TOO_LATE, min(live, default=0),
                                 f"one of {len(live)} that were not done in time"))

    def _fail(self, entry: int, failed: Failed) -> None:
        if self.due.get(entry) is None and self.waiting[entry]:
            self.due[entry] = failed

    # barriers that end

    def left(self, core: Core, entry: int) -> None:
        """This entry is no longer DEFERRED: it waits no more, if it did."""
        live = self.waiting.pop(entry, None)
        if live is None:
            return
        self.due.pop(entry, None)
        t = core.t
        t.counters[_WAITING] = len(self.waiting)
        t.m_flags[t.e_message[entry]] &= ~BARRIER
        for qpool in live:
            entries = self.members[qpool]
            entries.remove(entry)
            if not entries:
                del self.members[qpool]
                t.m_flags[t.slot_of(qpool)] &= ~MEMBER

    # a start

    def load(self, core: Core, entries: Iterable[int], read: Callable[[int], bytes]) -> None:
        """The entries that the pool has as DEFERRED by the put of a barrier. `read`: the payload of
        the message in a slot, empty if it cannot be read."""
        for entry in entries:
            slot = core.t.e_message[entry]
            payload = read(slot)
            try:
                qpools = members_in(said_in(payload), core.t.m_qpool[slot])
            except OmqError:
                self._waits(core, entry, set())
                self.due[entry] = Failed(Reason.MEMBER_FAILED, 0,
                                         "the list of the messages that it waits for is damaged")
                continue
            self._wait(core, entry, qpools)


def said_in(payload: bytes | memoryview) -> str:
    """The property MEMBERS of a payload. BadRequest."""
    found = message_format.bounds(payload)
    if isinstance(found, Finding):
        raise BadRequest(reason=f"not a message: {found.reason}")
    properties = message_format.decode_properties(payload[found[0] : found[1]])
    if isinstance(properties, Finding) or not (text := properties.get(MEMBERS)):
        raise BadRequest(reason=f"a barrier names its members in the property {MEMBERS}")
    return text


def _lives(core: Core, slot: int) -> bool:
    """It is on a queue; on IDEL it has ended."""
    return any(core.t.e_queue[entry] != IDEL for entry in core.t.entries_of(slot))


def failed_on(core: Core, slot: int) -> int:
    """The queue to which the message failed its way, and where it is; 0: none."""
    t, origin = core.t, core.rules.get(core.t.m_origin[slot])
    for entry in t.entries_of(slot):
        queue = t.e_queue[entry]
        if queue == POISON or (origin is not None and queue == origin.dead_letter != origin.queue):
            return queue
    return 0
