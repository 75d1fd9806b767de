"""Replies of a manager whose primary holds a lease (`standby_lease`): none is released after the
end of the lease, and each waits for every standby that could be promoted.

The keeper of the lease says by `lease` over its control connection until when it is, and which
standbys etcd has *in sync*: those that may be promoted, for they have whatever was acknowledged.
The manager says which ones should be; what it says counts when the keeper has it back from etcd.

    leaves     a standby that does not answer, where enough others do, or (go_on) when a reply has
               waited for `patience_ns`. Replies wait for it until etcd records that it has left
    joins      a standby that has what it was told of: replies wait for it from then on, and when it
               has all that was ever released, etcd is asked to have it

With `standby_sync = 0` etcd says that anybody may be promoted, and replies wait for the lease.

Invariants: 1. a look at the clock, and the lease at that moment, is before each group's releases;
2. what is released is on all standbys that are in sync by etcd, that are asked to be, and that
join; 3. one change is asked for at a time, and again of another keeper; 4. with fewer in sync than
`wanted`, nothing is released but by go_on, and then the set in etcd is that of those who have it.

A manager that is stopped between its look and a release tells one client late what all that are in
sync have. With `standby_sync = 0` that is the one thing that no clock can exclude.

Errors: BadRequest of `lease`.
"""

from __future__ import annotations

from typing import Any

from omq.base import clock
from omq.base.errors import BadRequest
from omq.core.engine.waiting import FOREVER
from omq.ipc.server.held_replies import LSN_MAX, Answer, HeldReplies, Protection
from omq.ipc.server.sessions import Session, say
from omq.storage.instance_file import is_member_name
from omq.storage.standby_holds import STANDBYS_MAX

InSync = frozenset[str] | None
AGAIN_NS = 100_000_000
AHEAD_NS = 3600 * clock.NS_PER_S  # no lease is longer


class LeasedReplies(HeldReplies):
    """See the module. `term`: of this primary."""

    def __init__(self, *arguments: Any, term: int) -> None:
        super().__init__(*arguments)
        self._term = term
        self._until = 0
        self._keeper: Session | None = None
        self._in_sync: InSync = frozenset()  # as etcd has it
        self._asked: tuple[InSync] | None = None  # nobody knows whether it has this
        self._joining: set[str] = set()
        self._released = self._durable  # up to there somebody may have been told
        self._again = 0  # what cannot be changed yet is looked at again
        self.protection = Protection.FENCED

    # the keeper

    def lease(self, session: Session, question: Answer) -> None:
        """Until when it is, and who is in sync. No answer but what should be."""
        until, term, found = int(question["until"]), int(question["term"]), question["in_sync"]
        if not session.trusted:
            raise BadRequest(reason="the spool's own user says until when the lease is")
        if term != self._term or not 0 <= until < clock.monotonic_ns() + AHEAD_NS:
            raise BadRequest(reason=f"a lease of term {self._term}, with its end")
        if found is not None and (not isinstance(found, list) or len(found) > STANDBYS_MAX
                                  or not all(isinstance(each, str) and is_member_name(each)
                                             for each in found)):
            raise BadRequest(reason="the members that are in sync")
        if session is not self._keeper:
            self._keeper, session.unheld = session, True
            if self._asked is not None:
                self._say(self._asked[0])
        self._until = until
        self._in_sync = None if found is None else frozenset(found)
        if self._asked == (self._in_sync,):
            self._asked = None
            self._joining -= self._in_sync or frozenset()
        self._judge()

    def lost(self, session: Session) -> None:
        if session is self._keeper:
            self._keeper = None
        super().lost(session)

    def _ask(self, members: InSync) -> None:
        if self._asked is None and members != self._in_sync and self._keeper is not None:
            self._asked = (members,)
            self._say(members)

    def _say(self, members: InSync) -> None:
        assert self._keeper is not None
        say(self._keeper.door, {"in_sync": None if members is None else sorted(members)})

    # what may be released

    @property
    def _leased(self) -> bool:
        return clock.monotonic_ns() < self._until

    @property
    def _must(self) -> frozenset[str]:
        """All that replies wait for."""
        asked = self._asked[0] if self._asked is not None else None
        return (self._in_sync or frozenset()) | (asked or frozenset()) | self._joining

    def _has(self) -> dict[str, int]:
        """By member: up to where it has everything."""
        return {each.member: each.synced for each in self._standbys.values()}

    @property
    def _limit(self) -> int:
        if not self._leased:
            return -1
        if self._wanted == 0:
            return LSN_MAX if self._in_sync is None else -1
        if self._in_sync is None:
            return -1
        if len(self._in_sync) < self._wanted and self.protection is not Protection.ALONE:
            return -1
        has = self._has()
        return min((has.get(each, -1) for each in self._must), default=LSN_MAX)

    def _may(self) -> bool:
        return self._leased

    def _release(self) -> None:
        before = self._groups[-1].lsn if self._groups else 0
        super()._release()
        left = self._groups[0].lsn - 1 if self._groups else before
        self._released = max(self._released, left)

    # time

    @property
    def due(self) -> int:
        if self.protection is Protection.FENCED and not self._leased:
            return FOREVER
        ends = self._until if self.protection is not Protection.FENCED else FOREVER
        return min(max(self._not_before, ends), max(self._again, self._patient_until))

    @property
    def _patient_until(self) -> int:
        if self._patience_ns is None or not self._wanted or (
                self.protection is Protection.ALONE and not self._groups):
            return FOREVER
        since = min(self._short_since or FOREVER,
                    self._groups[0].since_ns if self._groups else FOREVER)
        return FOREVER if since == FOREVER else since + self._patience_ns

    def _judge(self) -> None:
        now = self._engine.mono_ns
        self._short_since = 0 if len(self._standbys) >= self._wanted else self._short_since or now
        over = self._patient_until <= now
        if over:
            self._again = now + AGAIN_NS
        if self._wanted:
            self._change(over=over)
        else:
            self._ask(None)
        self._note(self._state(over=over), now)

    def _change(self, *, over: bool) -> None:
        """Who leaves, who joins."""
        if self._in_sync is None:
            self._ask(frozenset())
            return
        has, in_sync = self._has(), self._in_sync
        self._joining &= has.keys()
        waits = self._groups[0].lsn if self._groups else 0
        here = frozenset(each for each in in_sync if each in has)
        if over:
            here = frozenset(each for each in here if has[each] >= waits)
            self._joining = {each for each in self._joining if has[each] >= waits}
        if here != in_sync and (len(here) >= self._wanted or over):
            self._ask(here)
            return
        self._joining |= {each.member for each in self._standbys.values()
                          if each.member not in in_sync and self._has_all(each)}
        ready = {each for each in self._joining if has[each] >= self._released}
        if ready:
            self._ask(in_sync | ready)

    def _state(self, *, over: bool) -> Protection:
        if not self._leased:
            return Protection.FENCED
        if not self._wanted:
            return Protection.LEASED if self._in_sync is None else Protection.WAITING
        in_sync = self._in_sync
        if in_sync is None:
            return Protection.WAITING
        if len(in_sync) >= self._wanted:
            return Protection.SYNCED if in_sync <= self._has().keys() else Protection.WAITING
        alone = over or self.protection is Protection.ALONE
        return Protection.ALONE if alone and self._patience_ns is not None else Protection.WAITING
