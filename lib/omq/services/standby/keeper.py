"""`omq standby keep`: takes the lease in etcd and renews it, and runs what this member is by it.

    primary    with the lease: the daemons (omrc --embedded), and the queue manager learns until
               when it may acknowledge; without it they run on, and nothing is acknowledged
    standby    omq standby follow; when the lease is free and this member may take it, it is
               promoted and serves
    former     omq standby rejoin, where that needs no copy

Invariants: 1. a queue manager is started with the lease alone, and acknowledges until its end alone
(ipc.server.leased_replies): what happens to this process, or between it and etcd, takes
acknowledgements away and gives none; 2. a promotion begins after the transaction that won the
term, and that term is the one it writes; 3. before a primary serves, etcd records that it serves
(`began`), and that no standby is in sync with that term; 4. the lease is renewed whatever the
program does that runs: nothing here waits for it, but not that of a
queue manager that stands still (manager_turns): it runs out, for a manager that goes on may
acknowledge up to its end; 5. who sees a later term is not a primary any more,
in its spool, before anything else.

In the middle of a crash: between winning and the promotion's write the lease runs out, and a term
was given under which nobody served; the next one counts on from it. After the write and before
`began`, the same member resumes it, or one that is in sync goes past it: nobody was told anything.

A keeper that stops leaves its lease to run out: started again on the same boot it resumes it. So a
restart is not a failover, and a host that goes is followed `standby_lease_s` later. What fails to
serve gives it up.

Errors: NotPrimary: a former primary that may not rejoin by itself; NeedsCopy of that; ConfigError,
BadArgument; SpoolLocked: another keeper. Of etcd: events, and it goes on.
"""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from omq.base import clock, events, side_files
from omq.base.errors import (
    BadRequest,
    Exit,
    LeaseRefused,
    NeedsCopy,
    NotInSync,
    NotPrimary,
    OmqError,
    TermUnknown,
)
from omq.base.event_log import ERROR, REPORT, WARNING, EventLog
from omq.base.settings import Settings
from omq.services.daemon.notify import Notifier
from omq.services.daemon.options import Location
from omq.services.daemon.signals import Signals
from omq.services.standby import lease_file
from omq.services.standby.ask_members import ask_all, members
from omq.services.standby.etcd import CallFailed, Etcd
from omq.services.standby.keeper_child import KeptProgram
from omq.services.standby.lease import Held, InSync, Lease, Seen, check_term, is_later
from omq.services.standby.lease_file import LeaseState
from omq.services.standby.lease_to_manager import LeaseToManager
from omq.services.standby.manager_turns import ManagerTurns
from omq.storage import instance_file, spool
from omq.storage.instance_file import PRIMARY_MAX, UNNAMED, Instance, Role

_NS: Final = clock.NS_PER_S
NEXT_NS: Final = _NS // 10  # after a call that failed, at least
_ERROR_MAX: Final = 500
STOP_S: Final = 90.0  # for the daemons to end; a follower's checkpoint
CALLS_A_LEASE: Final = 6
"""A call may take so great a part of a lease: two members of etcd that say nothing are passed by
before it ends."""


class Keeper:
    """See the module."""

    def __init__(self, location: Location, settings: Settings, log: EventLog, signals: Signals
                 ) -> None:
        self._location, self._paths = location, location.paths
        self._settings, self._log, self._signals = settings, log, signals
        if not settings.standby_lease:
            raise BadRequest(reason="standby_lease in omq.conf names no etcd: without one, people "
                             "decide who is primary (omq standby promote)")
        self._lock = spool.lock(self._paths.keeper_lock, "omq standby keep")
        self._instance = self._read()
        self._etcd = Etcd(settings, location.conf_dir, settings.standby_lease_s / CALLS_A_LEASE)
        self._lease = Lease(self._etcd, settings.standby_lease_prefix, self._instance,
                            settings.standby_address, settings.standby_lease_s)
        self._word = LeaseToManager(self._paths)
        self._turns = ManagerTurns(self._paths)
        self._hung = False  # the manager stands still, and the lease runs out
        self._program = KeptProgram(location.arguments())
        self._held: Held | None = None
        self._seen: Seen | None = None
        self._state, self._error, self._refused = lease_file.SILENT, "", ""
        self._silent = False  # it has said so
        self._ttl_ns = settings.standby_lease_s * _NS
        self._due = self._note_due = 0  # of the next call (monotonic ns)
        self._not_before = 0  # it gave up the lease, and others may take it first
        self._told = 0
        self._expired = False
        self._fatal: OmqError | None = None

    def run(self, notifier: Notifier) -> None:
        """Until a signal. The errors of the module."""
        self._log.event(events.LEASE_KEEPER_STARTED, member=self._instance.member,
                        role=self._instance.role.value, term=self._instance.term)
        self._take_up()
        notifier.ready()
        while not self._done():
            self._turn()
            self._tell()
            notifier.watchdog()
            notifier.status(f"{self._instance.role.value} of term {self._instance.term}, lease "
                            f"{self._state}, {self._program.name or 'nothing'} runs")
            wait_ns = max(0, self._due - clock.monotonic_ns())
            self._signals.wait(min(wait_ns / _NS, 0.5), self._word.descriptor)
        notifier.stopping()
        if self._fatal is not None:
            raise self._fatal

    def _done(self) -> bool:
        """The program has ended, and it should."""
        if not (self._signals.stopping or self._fatal is not None):
            return False
        self._program.stop(STOP_S)
        return not self._program.name

    def _read(self) -> Instance:
        return spool.open_spool(self._paths.root, writer=True, any_role=True).instance

    def _take_up(self) -> None:
        """The lease of a keeper before this one, on the same boot."""
        noted = lease_file.load(self._paths)
        if noted is None or not noted.here or noted.state != lease_file.HELD or (
                noted.term, noted.member) != (self._instance.term, self._instance.member):
            return
        held = Held(noted.lease, 0, noted.primary_at, noted.term)
        with suppress(CallFailed, LeaseRefused):
            seen = self._lease.renew(held)
            if seen is not None:
                self._held, self._seen = held, seen
                self._state = lease_file.HELD

    # a turn

    def _turn(self) -> None:
        if ended := self._program.reap():
            self._ended(ended)
        self._instance = self._read()
        self._watch()
        if self._hung:
            self._run_out()
        elif clock.monotonic_ns() >= self._due:
            self._call(self._look if self._held is None else self._renew)
        if self._signals.stopping or self._fatal is not None:
            self._speak()
        elif self._instance.role is Role.PRIMARY:
            self._serve()
        elif self._instance.role is Role.STANDBY:
            self._follow()
        else:
            self._rejoin()

    def _call(self, what: Callable[[], None]) -> None:
        """One that asks etcd, and says when the next call is due."""
        try:
            what()
        except (CallFailed, LeaseRefused) as error:
            self._due = clock.monotonic_ns() + max(NEXT_NS, self._ttl_ns // CALLS_A_LEASE // 4)
            self._error = str(error)
            if self._held is None:
                self._state = lease_file.SILENT
            if not self._silent:
                self._silent = True
                self._log.event(events.LEASE_SILENT, WARNING, reason=self._error)
            return
        self._silent = False

    # without the lease

    def _look(self) -> None:
        """May it be taken? Then it is."""
        seen = self._seen = self._lease.look()
        self._due = clock.monotonic_ns() + min(_NS, self._ttl_ns // 5)
        self._error, instance = "", self._instance
        self._state = lease_file.FREE if seen.holder is None else lease_file.WAITING
        if instance.role is Role.FORMER:
            return
        if instance.role is Role.PRIMARY and is_later(instance, seen):
            self._step_down(seen)
            return
        try:
            check_term(instance, seen)
            if seen.holder is None and clock.monotonic_ns() >= self._not_before and not (
                    self._signals.stopping):
                self._win(seen)
            self._refused = ""
        except (TermUnknown, NotInSync) as error:
            self._state = lease_file.FORGOTTEN if isinstance(error, TermUnknown) else (
                lease_file.NOT_IN_SYNC)
            self._error = str(error)
            if self._error != self._refused:
                self._refused = self._error
                self._log.event(events.LEASE_NOT_TAKEN, WARNING, reason=self._error)

    def _win(self, seen: Seen) -> None:
        instance = self._instance
        take = self._lease.resume if instance.role is Role.PRIMARY else self._lease.promote
        held = take(instance, seen)
        if held is None:
            return  # another was quicker: the next look says who
        self._held, self._seen = held, None
        self._state, self._due = lease_file.HELD, 0  # it is renewed, and what is there looked at
        self._program.at_once()
        self._log.event(events.LEASE_WON, REPORT, member=instance.member, term=held.term)

    def _step_down(self, seen: Seen) -> None:
        assert seen.term is not None
        where = seen.holder.address if seen.holder is not None else ""
        instance_file.write(self._paths, replace(
            self._instance, role=Role.FORMER, member=self._instance.member or UNNAMED,
            primary=(where or f"the member of term {seen.term.term}")[:PRIMARY_MAX]))
        self._log.event(events.LEASE_LOST, ERROR, member=self._instance.member,
                        term=self._instance.term, reason=f"{seen.term.member or 'another member'} "
                        f"has term {seen.term.term}")
        self._word.over(self._instance.term, frozenset())
        self._instance = self._read()

    # with it

    def _renew(self) -> None:
        held = self._held
        assert held is not None
        seen = self._lease.renew(held)
        if seen is None:
            self._lose("etcd has ended it")
            return
        self._seen = seen
        self._state, self._error, self._expired = lease_file.HELD, "", False
        if self._instance.role is Role.PRIMARY and not self._begun:
            self._lease.begin(held, self._instance, seen)
            self._seen = self._lease.look()
        self._due = clock.monotonic_ns() + self._ttl_ns // 3

    @property
    def _begun(self) -> bool:
        """Does etcd have it that this member serves under this term?"""
        held, seen = self._held, self._seen
        return (held is not None and seen is not None and seen.term is not None
                and (seen.term.term, seen.term.member, seen.term.began)
                == (held.term, self._instance.member, True)
                and self._instance.term == held.term)

    def _watch(self) -> None:
        """Does the manager of this primary turn? It is spoken to with each renewal."""
        still_s = self._turns.still_s() if self._held is not None else 0.0
        most_s = self._settings.standby_hung_s + self._ttl_ns / 3 / _NS
        hung = self._program.name == "serve" and still_s > most_s
        if hung and not self._hung:
            self._log.event(events.LEASE_MANAGER_HUNG, ERROR, member=self._instance.member,
                            term=self._instance.term, seconds=round(still_s))
        elif self._hung and not hung:
            self._due = 0  # it goes on, and so does the lease
        self._hung = hung

    def _run_out(self) -> None:
        """A manager that goes on may acknowledge up to the end of the lease: so it is not given
        back. After it another member may have it first, and the daemons are started anew."""
        held, now = self._held, clock.monotonic_ns()
        if held is not None and now >= held.until:
            self._hung = False
            self._not_before = now + 2 * self._ttl_ns
            self._lose("the queue manager hangs")
            self._program.stop(STOP_S)

    def _lose(self, reason: str) -> None:
        held, self._held = self._held, None
        assert held is not None
        self._word.over(held.term, frozenset())
        self._state, self._due = lease_file.FREE, 0
        self._log.event(events.LEASE_LOST, ERROR, member=self._instance.member, term=held.term,
                        reason=reason)

    def _give_up(self, reason: str) -> None:
        """Others may take it first."""
        held = self._held
        self._not_before = clock.monotonic_ns() + 2 * self._ttl_ns
        if held is None:
            return
        self._lose(reason)
        with suppress(CallFailed, LeaseRefused):  # then it runs out
            self._lease.release(held)

    def _speak(self) -> None:
        """The manager learns it, and says who should be in sync."""
        held, seen = self._held, self._seen
        if held is None or seen is None or not self._begun:
            return
        if not self._expired and clock.monotonic_ns() >= held.until:
            self._expired = True
            self._log.event(events.LEASE_LOST, ERROR, member=self._instance.member, term=held.term,
                            reason=f"it could not be renewed: {self._error}")
        self._word.turn(held, seen.in_sync)
        wanted = self._word.wanted(seen.in_sync)
        if wanted is not None and clock.monotonic_ns() >= self._note_due:
            self._note_due = clock.monotonic_ns() + NEXT_NS
            self._call(lambda: self._note(held, seen, wanted[0]))

    def _note(self, held: Held, seen: Seen, members: InSync) -> None:
        """etcd has it before the manager learns that it has."""
        try:
            self._lease.note_in_sync(held, seen, members)
        finally:
            self._seen = now = self._lease.look()
        self._log.event(events.IN_SYNC_CHANGED, REPORT, members="whoever follows" if members is None
                        else ", ".join(sorted(members)))
        self._word.turn(held, now.in_sync)

    # what runs

    def _serve(self) -> None:
        program, held = self._program, self._held
        if program.name not in ("", "serve"):
            program.stop(STOP_S)
        elif not program.name and held is not None and self._begun and (
                clock.monotonic_ns() < held.until):
            self._tell(force=True)  # the queue manager looks
            program.start("serve", ("omrc", "--embedded"))
        self._speak()

    def _follow(self) -> None:
        program, held = self._program, self._held
        if held is None:
            holder = self._seen.holder if self._seen is not None else None
            way = tuple(shlex.split(holder.address)) if holder is not None else ()
            if program.name not in ("", "follow"):
                program.stop(0)  # a promotion without a lease
            elif program.name and way and program.words != way:
                program.stop(STOP_S)
            elif not program.name:
                program.start("follow", ("omq", "standby", "follow"), way)
        elif program.name not in ("", "promote"):
            program.stop(STOP_S)
        elif not program.name:
            program.start("promote", ("omq", "standby", "promote", "--won", str(held.term)))

    def _rejoin(self) -> None:
        program = self._program
        if self._held is not None:
            self._give_up("this is a former primary")
        if program.name not in ("", "rejoin"):
            program.stop(STOP_S)
        elif not program.name and not self._settings.standby_rejoin:
            self._fatal = NotPrimary(path=self._paths.root, role=Role.FORMER.words,
                                     member=self._instance.member, primary=self._instance.primary)
        elif not program.name and (way := self._way_to_holder()):
            program.start("rejoin", ("omq", "standby", "rejoin", "--member",
                                     self._instance.member), way)

    def _way_to_holder(self) -> list[str]:
        """How the primary is reached; empty: nobody says. Whoever asks has no lease to renew."""
        holder = self._seen.holder if self._seen is not None else None
        if holder is None:
            return []
        if holder.address:
            return [holder.address]
        ways = members(self._settings.standby_members)
        for each in ask_all(ways, self._instance, self._settings, self._location.conf_dir):
            said = each.said
            if said is not None and (said.role, said.member, said.term) == (
                    Role.PRIMARY, holder.member, holder.term):
                return shlex.split(each.way)
        return []

    def _ended(self, name: str) -> None:
        code = self._program.code
        self._instance = self._read()
        if code in (0, -int(signal.SIGTERM)):
            return
        self._log.event(events.LEASE_CHILD_ENDED, WARNING, program=name, code=code)
        if name in ("serve", "promote") and not self._signals.stopping:
            self._give_up(f"{name} has ended with code {code}")
        if name == "rejoin" and code == Exit.DATA:
            self._fatal = NeedsCopy(path=self._paths.root, reason="'omq standby rejoin' says why")

    # what is published

    def _tell(self, *, force: bool = False) -> None:
        now, held, seen = clock.monotonic_ns(), self._held, self._seen
        if now < self._told and not force:
            return
        self._told = now + _NS
        in_sync = seen.in_sync if seen is not None else frozenset()
        lease_file.store(self._paths, LeaseState(
            state=self._state, member=self._instance.member, term=self._instance.term,
            holder=(self._instance.member or UNNAMED) if held is not None else (
                seen.holder.member or UNNAMED if seen is not None and seen.holder is not None
                else ""),
            until_ns=held.until if held is not None else 0, boot_id=clock.boot_id().hex(),
            lease=held.lease if held is not None else 0,
            primary_at=held.primary_at if held is not None else 0,
            in_sync=None if in_sync is None else sorted(in_sync), error=self._error[:_ERROR_MAX],
            told_ns=now))

    def close(self) -> None:
        """Nothing of it runs; a lease that it has runs out, or is taken up again."""
        self._program.close()
        self._tell(force=True)
        self._word.close()
        self._turns.close()
        self._log.event(events.LEASE_KEEPER_STOPPED)
        side_files.retry()
        self._lock.close()
