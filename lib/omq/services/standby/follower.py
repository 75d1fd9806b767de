"""`omq standby follow` and `init`: the standby's process. It holds the manager's and the pool's
lock, takes what its primary sends, and keeps its pool up to it.

    what came together is written, synced once, noted, acknowledged
    redone later, up to what is on the primary's disk as well, for many acknowledgements together: a
    client of the primary may wait for each of them, and for no redo (REDO_S, REDO_BYTES)
    a checkpoint as often as pool.writer takes one
    a line that breaks is made anew, after a pause that grows; what was not noted is sent again
    a full disk is a line that breaks: nothing more is acknowledged until there is room

While `omq standby pause` holds, what comes is written, synced and acknowledged, and nothing is
redone: the pool stays as it is, the journal grows.

In the middle of a crash: what was acknowledged and not redone lies synced in the journal, below the
mark; the next start and a promotion redo it from the checkpoint on, as a start of a primary does.

run/standby.json says how it is (`omq standby status`). A standby that cannot follow (another
history, damage, a disk that fails) says so and ends; nothing of it is thrown away.

Errors: StandbyDiverged, BodyUnavailable, BodyDamaged, DiskError; StreamBroken and SpoolFull from
`make`; those of services.standby.dialling.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final

from omq.base import clock, modes, side_files
from omq.base.amounts import duration
from omq.base.errors import ConfigError, SpoolFull, StandbyDiverged, StreamBroken
from omq.base.fault import point
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.core.standby.replica import Replica
from omq.format.standby import Piece, PieceKind
from omq.services.daemon.notify import Notifier
from omq.services.daemon.options import Location
from omq.services.daemon.signals import Signals
from omq.services.standby import base_had, same_queues
from omq.services.standby.base_receiving import BaseReceiving
from omq.services.standby.dialling import dial
from omq.services.standby.line import Line
from omq.services.standby.next_journal_file import Preparing
from omq.services.standby.receiving import Receiving
from omq.storage import durable, spool
from omq.storage.instance_file import LEAP, Instance

SILENCE_S: Final = 30.0  # a primary says something each second
PAUSE_S: Final = (0.1, 10.0)  # before the line is made anew: the first one, the longest
LOOK_S: Final = 0.5
REDO_S: Final = 0.1  # so long what is acknowledged may wait until it is redone
REDO_BYTES: Final = 1 << 20  # or so much of it: a promotion has no more to do
REST_MAX_S: Final = 5.0
"""At once, of a copy with a rate: a primary gives up a standby that takes nothing for long."""
Told = Callable[[str], None]


class Follower:
    """See the module."""

    def __init__(self, location: Location, instance: Instance, settings: Settings,
                 signals: Signals, command: Sequence[str], say: Told) -> None:
        paths = location.paths
        self._paths, self._settings, self._signals = paths, settings, signals
        self._conf_dir, self.notifier = location.conf_dir, Notifier()
        self._command, self._say = command, say
        self._held = ExitStack()
        for path in (paths.manager_lock, paths.pool_lock):
            lock = spool.lock(path, "omq standby follow")
            self._held.callback(lock.close)
        durable.unlink(base_had.marker(paths))  # of a copy that is whole
        self.replica = Replica(paths, instance.uuid, settings)
        self.replica.start()
        self.session = Receiving(paths, instance, self.replica, says=self._conf)
        self._preparing = Preparing(paths, settings)
        self._heard = 0.0
        self._due = self._told = 0.0
        self._redo_due = 0.0
        self._bytes = self._owed = 0  # since the last checkpoint, since the last redo
        self._error = ""

    def _conf(self) -> dict[str, Any]:
        return {same_queues.SAID: same_queues.digests(self._conf_dir)}

    def run(self) -> None:
        """Until a signal. The errors of the module, but StreamBroken."""
        pause = PAUSE_S[0]
        self.notifier.ready(f"standby {self.session.instance.member}")
        while not self._signals.stopping:
            try:
                way = dial(self._command, self._settings, self._conf_dir, SILENCE_S)
                try:
                    self._follow(way.line)
                finally:
                    way.close()
            except (StreamBroken, ConfigError, SpoolFull) as error:
                if isinstance(error, ConfigError) and not self._heard:
                    raise  # else a certificate that is being renewed: the next time it is there
                if str(error) != self._error:
                    self._say(str(error))
                self._error = str(error)
                pause = PAUSE_S[0] if self.session.following else min(2 * pause, PAUSE_S[1])
                self.session.following = False
                self._tell(force=True)
                self._signals.wait(pause)
        self.notifier.stopping()

    def _follow(self, line: Line) -> None:
        try:
            self._serve(line)
        except SpoolFull as error:
            with suppress(StreamBroken):  # the primary's status says it, too
                line.send(Piece(PieceKind.REFUSE, self.session.instance.term,
                                payload=str(error)[:500].encode()))
            raise

    def _serve(self, line: Line) -> None:
        line.send(self.session.hello())
        self._heard = time.monotonic()
        while not self._signals.stopping:
            came = False
            for piece in line.receive(self._wait_s()):
                came = True
                self._bytes += len(piece.payload)
                self._owed += len(piece.payload)
                if piece.kind is PieceKind.FILE:
                    self._preparing.wait()
                answer = self.session.take(piece)
                if answer is not None:
                    line.send(answer)
            now = time.monotonic()
            if came:
                self._heard, self._error = now, ""
                said = self.session.settle()
                point("standby.before_ack")
                line.send(said)
                self._redo_due = self._redo_due or now + REDO_S
            elif now - self._heard > SILENCE_S:
                raise _silent(line)
            self._apply(now)
            self._tell()

    def _wait_s(self) -> float:
        """Until something is wanted of this side."""
        if not self._redo_due:
            return LOOK_S
        return max(0.0, min(LOOK_S, self._redo_due - time.monotonic()))

    def _apply(self, now: float) -> None:
        if self._owed < REDO_BYTES and not (self._redo_due and now >= self._redo_due) and (
                now < self._due):
            return
        self._owed, self._redo_due = 0, 0.0
        point("standby.before_redo")
        full = not self.paused and self._redo()
        if self.replica.findings:
            found = self.replica.findings[0]
            raise StandbyDiverged(path=self._paths.root / found.file, reason=found.reason)
        late = full or self._bytes >= self._settings.checkpoint_journal_bytes_max
        if late or now >= self._due:
            self._due, self._bytes = now + self._settings.checkpoint_interval_s, 0
            point("standby.before_checkpoint")
            if self.session.checkpoint(clock.wall_ns()):
                point("standby.before_retire")
                self.replica.retire()
            self._preparing.begin()

    @property
    def paused(self) -> bool:
        """People want the pool to stay as it is (`omq standby pause`)."""
        return durable.status(self._paths.standby_pause) is not None

    def _redo(self) -> bool:
        """Up to where both disks are, but no more than one checkpoint should hold; may there be
        more? After a pause there may be hours of it."""
        left = self._settings.checkpoint_journal_bytes_max
        while left > 0:
            done = self.session.apply()
            if not done:
                return False
            left -= done
        return True

    def state(self) -> dict[str, Any]:
        """As run/standby.json has it."""
        mirror = self.session.mirror
        behind = max(0, mirror.durable - mirror.mark.lsn)
        return {"member": self.session.instance.member, "term": self.session.instance.term,
                "following": self.session.following, "paused": self.paused,
                "synced_lsn": mirror.mark.lsn,
                "primary_lsn": mirror.durable, "redone_lsn": self.replica.lsn,
                "checkpoint_lsn": self.replica.checkpoint_lsn,
                "lag_frames": behind if behind < LEAP else None,  # a new term has just begun
                "heard_s": round(time.monotonic() - self._heard, 1) if self._heard else None,
                "error": self._error, "time_ns": clock.wall_ns(),
                "monotonic_ns": clock.monotonic_ns(),
                "primary": " ".join(self._command)}

    def _tell(self, *, force: bool = False) -> None:
        now = time.monotonic()
        if force or now >= self._told:
            self._told = now + 1.0
            self.notifier.watchdog()
            side_files.replace(self._paths.standby,
                               (json.dumps(self.state(), sort_keys=True) + "\n").encode(),
                               modes.PUBLIC)

    def close(self) -> None:
        """A last checkpoint, and everything is let go."""
        try:
            self._preparing.wait()
            self.session.checkpoint(clock.wall_ns())
            self.session.close()
        finally:
            self.replica.close()
            side_files.remove(self._paths.standby)
            self._held.close()


def _silent(line: Line) -> StreamBroken:
    return StreamBroken(peer=line.peer, reason=f"it says nothing for {duration(SILENCE_S)}")


class Pace:
    """A copy that takes no more bytes a second than it may: whoever takes waits, and the line makes
    the one who sends wait. `bytes_a_second` 0: as they come. What was not taken at a slow time is
    not made up for."""

    def __init__(self, bytes_a_second: int, monotonic: Callable[[], float] = time.monotonic,
                 sleep: Callable[[float], None] = time.sleep) -> None:
        self._rate, self._now, self._sleep = bytes_a_second, monotonic, sleep
        self._free = monotonic()  # when the next byte may be taken

    def took(self, count: int) -> None:
        """So many bytes; returns when more may be taken."""
        if not self._rate:
            return
        now = self._now()
        self._free = max(self._free, now) + count / self._rate
        if self._free > now:
            self._sleep(min(self._free - now, REST_MAX_S))


def make(location: Location, member: Instance, settings: Settings, command: Sequence[str],
         told: Callable[[int, int, int], None], bytes_a_second: int = 0) -> Instance:
    """A new standby in an empty spool directory, or in one in which a copy was cut: see
    base_receiving, base_had. `told`: bytes sent, bytes that were here, LSN of the journal so far.
    `bytes_a_second`: no more than that is taken; 0: as it comes."""
    paths = location.paths
    goes_on = durable.status(base_had.marker(paths)) is not None
    durable.make_directory(paths.root, modes.wanted(".", directory=True))
    held = spool.lock(base_had.marker(paths), "omq standby init")
    durable.sync_directory(paths.root)
    spool.make_directories(paths)
    has = base_had.survey(paths) if goes_on else {}
    pace = Pace(bytes_a_second)
    runs = dial(command, settings, location.conf_dir, SILENCE_S)
    copy = BaseReceiving(paths, frozenset(has.get("files", ())))
    session: Receiving | None = None
    try:
        line = runs.line
        line.send(Piece(PieceKind.BASE, 0, payload=json.dumps(
            {"member": member.member} | ({"has": has} if has else {})).encode()))
        heard = time.monotonic()
        while session is None or session.mirror.mark.lsn < copy.lsn:
            if time.monotonic() - heard > SILENCE_S:
                raise _silent(line)
            for piece in line.receive(LOOK_S):
                heard = time.monotonic()
                pace.took(len(piece.payload))
                if session is not None:
                    answer = session.take(piece)
                    if answer is not None:
                        line.send(answer)
                    continue
                copy.take(piece)
                if copy.complete:
                    session = _session(paths, member, copy.uuid, settings)
                    line.send(session.hello())
            told(copy.bytes, copy.kept, session.mirror.lsn if session is not None else 0)
            if session is not None and session.following:
                line.send(session.settle())
        session.mirror.note()  # the pool that is copied is not above what a start knows of
        made = Instance(copy.uuid, session.instance.term, member.role, member.member,
                        member.primary)
        copy.finish(made)
        durable.unlink(base_had.marker(paths))
        return made
    finally:
        held.close()
        copy.close()
        if session is not None:
            session.close()
        runs.close()


def _session(paths: SpoolPaths, member: Instance, uuid: bytes, settings: Settings) -> Receiving:
    """It follows, and redoes nothing: the pool is that of a later place of the journal."""
    instance = Instance(uuid, 0, member.role, member.member, member.primary)
    return Receiving(paths, instance, Replica(paths, uuid, settings), begun=False)
