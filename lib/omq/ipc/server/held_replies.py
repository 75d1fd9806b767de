"""Replies that wait for standbys: what is acknowledged is on so many other disks (`standby_sync`).

The group does not wait. Its replies are written into the channels of the clients as ever, behind
its own sync, and only the releases of their semaphores are kept, with the LSN that was durable
here then. A client does not look at a reply before its semaphore (ipc.client.reply_wait), so
it learns nothing. When as many standbys as are wanted have that LSN on their disks, the releases
follow, in order.

    held        releases of a group; answers over control connections that say what became of a
                request: orders, and registrations of who asks after one (that of an earlier
                manager, too, which the journal here has and a standby may not)
    not held    pool.writer's, which says nothing to anybody and makes room; questions that look;
                refusals of a registration

An omq standby send or listen for each standby says by `standby` over its control connection how
far that one has synced, and from then on by SYNCED over the request queue (ADR 0200). It gets
how far the disk here is, one line for each word; and, AHEAD_MAX lines at most in advance, how far
blocks lie in their file and are about to be synced. So both disks sync a block at once (ADR 0184);
a reply waits for both.

`lost` says what holds when too few answer:

    wait     replies wait until they do
    go_on    after `patience_ns` the manager goes on alone, which is noted in the journal before the
             first reply is released; it waits again when as many standbys have caught up

Invariants: 1. no release before enough standbys have the LSN, or the journal says that it goes on
alone; 2. they are released in the order of their groups; 3. a standby's answer counts while its
connection lasts; 4. nothing here blocks.

Memory: a pair for each client that waits. Errors: none; BadRequest of `heard`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from omq.base.errors import BadRequest
from omq.core.engine.engine import Engine
from omq.core.engine.waiting import FOREVER
from omq.ipc.server.doors import Door
from omq.ipc.server.sessions import Session, say, say_line
from omq.storage.instance_file import is_member_name

Answer = dict[str, Any]
LSN_MAX = 1 << 63
RETRY_NS = 1_000_000_000
UNHELD = "pool.writer"
AHEAD_MAX = 4
"""Lines to a sender that has not answered. More of them bring nothing: what comes together at a
standby is synced together."""


class Protection(Enum):
    """What an acknowledgement means at this moment."""

    SYNCED = "synced"  # it is on as many standbys as are wanted
    WAITING = "waiting"  # too few answer, and nothing is acknowledged
    ALONE = "alone"  # too few answer, and it is on this disk alone
    LEASED = "leased"  # it is on this disk, and waits for no standby but for the lease
    FENCED = "fenced"  # the lease is over, and nothing is acknowledged


@dataclass(slots=True)
class _Standby:
    member: str
    session: Session
    synced: int = 0
    told: int = 0  # how far the disk here is, as it knows
    asks: bool = True  # it has said something since it was told
    fresh: bool = False  # it was told since `protection` changed
    near: bool = False  # it had all that it was told, some time since it is here
    ahead: int = 0  # lines since it said something


@dataclass(slots=True)
class _Group:
    lsn: int
    since_ns: int
    sessions: list[Session]
    answers: list[tuple[Door, Answer]]


class HeldReplies:
    """See the module. `changed` is called at each change of `protection`, within a group."""

    def __init__(self, engine: Engine, wanted: int, patience_ns: int | None,
                 changed: Callable[[Protection, list[str]], bool]) -> None:
        """`patience_ns` None: it waits however long. `changed` False: it cannot be noted, so it
        stays as it was."""
        self._engine, self._wanted, self._patience_ns = engine, wanted, patience_ns
        self._changed = changed
        self._standbys: dict[int, _Standby] = {}  # by the client's number
        self._members: dict[int, str] = {}  # of whom each such client is; the latest one counts
        self._groups: deque[_Group] = deque()
        self._answers: list[tuple[Door, Answer]] = []  # of this group
        self._short_since = engine.mono_ns  # since when too few answer; 0: enough do
        self._not_before = 0  # a change that could not be noted is tried again
        self.protection = Protection.WAITING

    @property
    def waiting(self) -> bool:
        """Is there a client that was not told yet?"""
        return bool(self._groups or self._answers)

    @property
    def unanswered(self) -> bool:
        """Does a reply wait for standbys that answer?"""
        return bool(self._groups) and self.protection is Protection.SYNCED

    def is_held(self, session: Session) -> bool:
        """Must it not be told yet what its last request came to, also one that still waits?"""
        return session.last[3] > self._limit or any(
            session in group.sessions for group in self._groups)

    # replies

    def answer(self, door: Door, answer: Answer) -> None:
        """An answer over a control connection, with the replies of this group."""
        self._answers.append((door, answer))

    def add(self, sessions: list[Session]) -> None:
        """After the commit of a group: whose replies are written. Releases what may go."""
        held = []
        for session in sessions:
            if session.unheld:
                session.announce()
            else:
                held.append(session)
        if held or self._answers:
            self._groups.append(_Group(self._durable, self._engine.mono_ns, held, self._answers))
            self._answers = []
        self._release()
        self._tell()

    @property
    def _durable(self) -> int:
        """What a reply of this group may rest on; what is not synced here nobody was promised."""
        return self._engine.durable_lsn

    @property
    def _synced(self) -> int:
        """Up to there enough standbys have everything."""
        found = sorted((each.synced for each in self._standbys.values()), reverse=True)
        return found[self._wanted - 1] if len(found) >= self._wanted else -1

    @property
    def _limit(self) -> int:
        """Replies up to there may be released."""
        return LSN_MAX if self.protection is Protection.ALONE else self._synced

    def _release(self) -> None:
        limit, groups = self._limit, self._groups
        while groups and groups[0].lsn <= limit and self._may():
            group = groups.popleft()
            for session in group.sessions:
                if not session.gone:
                    session.announce()
            for door, answer in group.answers:
                if not door.closed:
                    say(door, answer)

    def _may(self) -> bool:
        """Looked at before each group: may anything be released at this moment?"""
        return True

    def _tell(self) -> None:
        """Who asks, and lacks something, gets how far the disk here is, when that is news."""
        durable = self._durable
        for each in self._standbys.values():
            if each.asks and max(each.told, each.synced) < durable:
                each.asks, each.told, each.fresh = False, durable, True
                say(each.session.door, {"durable": durable})

    def written(self, lsn: int, file: int) -> None:
        """A block up to there lies in that journal file, and is synced next: it may be sent. Who is
        far behind gets what is durable alone, one line at a time: else it would never have
        all that was announced to it (`_has_all`)."""
        for each in self._standbys.values():
            if each.near and each.ahead < AHEAD_MAX and self.protection is not Protection.ALONE:
                each.ahead += 1
                if each.asks:
                    each.asks, each.told, each.fresh = False, lsn, True
                say_line(each.session.door, b'{"written": %d, "file": %d}\n' % (lsn, file))

    # standbys

    def heard(self, session: Session, question: Answer) -> None:
        """`standby`: so far this one has synced. No answer but `durable`, when there is news."""
        member, synced = str(question["member"]), int(question["synced"])
        if not session.trusted:
            raise BadRequest(reason="the spool's own user says what its standbys have")
        if not is_member_name(member) or not 0 <= synced < LSN_MAX:
            raise BadRequest(reason="a member's name, and an LSN")
        self._members[session.party.client] = member
        session.unheld = True
        self._note_synced(session, member, synced)

    def synced(self, session: Session, lsn: int) -> None:
        """The same over the request queue, of a sender that has said by `standby` whose it is.
        What has waited for that alone is released at once, and not after the sync of the group
        that this came with. BadRequest."""
        member = self._members.get(session.party.client)
        if member is None or lsn >= LSN_MAX:
            raise BadRequest(reason="an LSN, of a sender that has named its standby")
        before = self.protection
        self._note_synced(session, member, lsn)
        if self.protection is before and before is not Protection.ALONE:
            self._release()  # else the journal has to say first what changes

    def _note_synced(self, session: Session, member: str, synced: int) -> None:
        known = self._standbys.get(session.party.client)
        if known is None:
            for client in [client for client, each in self._standbys.items()
                           if each.member == member]:
                del self._standbys[client]  # the connection before: one disk counts once
            known = self._standbys[session.party.client] = _Standby(member, session)
        known.synced, known.asks, known.ahead = synced, True, 0
        known.near = known.near or self._has_all(known)
        self._judge()

    def lost(self, session: Session) -> None:
        """This client's connection has ended."""
        self._members.pop(session.party.client, None)
        if self._standbys.pop(session.party.client, None) is not None:
            self._judge()

    # time

    @property
    def due(self) -> int:
        """When `look` is wanted (monotonic ns)."""
        if self._patience_ns is None or self.protection is Protection.ALONE:
            return FOREVER
        since = min(self._short_since or FOREVER,
                    self._groups[0].since_ns if self._groups else FOREVER)
        return FOREVER if since == FOREVER else max(since + self._patience_ns, self._not_before)

    def due_at_least(self, now: int) -> int:
        """`due`, also behind groups that nobody has asked about since."""
        patience = FOREVER if self._patience_ns is None else now + self._patience_ns
        return min(self.due, patience)

    def look(self) -> None:
        """Within a group, before its commit: has the patience come to its end?"""
        self._judge()

    def _has_all(self, each: _Standby) -> bool:
        """Of what it was told lately: under load there is always something newer."""
        return each.synced >= self._durable or (each.fresh and each.synced >= each.told)

    def _judge(self) -> None:
        now, enough = self._engine.mono_ns, len(self._standbys) >= self._wanted
        if not enough:
            self._short_since = self._short_since or now
        else:
            self._short_since = 0
        state = self.protection
        if state is Protection.ALONE:
            if sum(map(self._has_all, self._standbys.values())) >= self._wanted:
                state = Protection.SYNCED
        elif self.due <= now:
            state = Protection.ALONE
        else:
            state = Protection.SYNCED if enough else Protection.WAITING
        self._note(state, now)

    def _note(self, state: Protection, now: int) -> None:
        """It is this from now on, when the disk has it; else it is tried again."""
        if state is self.protection or now < self._not_before:
            return
        if self._changed(state, sorted(each.member for each in self._standbys.values())):
            self.protection = state
            for each in self._standbys.values():
                each.fresh = False
        else:
            self._not_before = now + RETRY_NS
