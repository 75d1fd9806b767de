"""The primary of one standby: serves it on a line until it hangs up, or says nothing for too long
(`omq standby send` on standard input and output, `omq standby listen` over TLS).

It looks at the index of the running manager for how far the journal is durable, as pool.writer
does, and sends what is new; the manager knows nothing of it and waits for nothing. Without a
manager nothing new is sent, and the standby learns that this side is there.

A standby that knows a later term makes this a former primary: instance.json says so, its manager is
told to stop, and none starts again.

Errors: StreamBroken; StandbyDiverged, told to the standby, too; NotPrimary; DiskError.
"""

from __future__ import annotations

import json
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from omq.base.amounts import duration
from omq.base.errors import ManagerUnavailable, OmqError, StreamBroken
from omq.base.fault import point
from omq.base.paths import SpoolPaths
from omq.format.index import Counter
from omq.format.standby import Piece, PieceKind
from omq.services.pool.durable_look import DurableLook
from omq.services.standby.base_had import Had
from omq.services.standby.base_sending import base
from omq.services.standby.lag import Telling
from omq.services.standby.line import Line
from omq.services.standby.same_queues import difference
from omq.services.standby.sending import Sending
from omq.services.standby.synced_to_manager import SyncedToManager
from omq.storage import instance_file
from omq.storage.instance_file import UNNAMED, Instance, Role, is_member_name

BYTES_MAX: Final = 1 << 20  # of blocks between two looks at what the standby says
BEAT_S: Final = 1.0
"""At least so often something is sent, so that a standby sees a dead line."""
NEWS_S: Final = 0.05
"""So soon the standby learns that what was sent early is durable, if no block after it says so:
only then the standby redoes it."""


class Primary:
    """See the module."""

    def __init__(self, paths: SpoolPaths, instance: Instance, line: Line, poll_s: float,
                 *, sync: bool = False, conf_dir: Path | None = None) -> None:
        """`sync`: replies of the manager wait for standbys."""
        self._paths, self._instance, self._line, self._poll_s = paths, instance, line, poll_s
        self._sending = Sending(paths, instance)
        self._look = DurableLook(paths)
        self._beat = 0.0  # when something was sent last
        self._said = 0  # up to there the standby was told that it is durable
        self._heard = time.monotonic()
        self._telling, self._error = Telling(paths), ""
        self._conf_dir, self._conf = conf_dir, ""  # what differs at the standby
        self._sync, self._attached = sync, SyncedToManager(paths)

    def serve(self) -> None:
        """Until the standby hangs up (StreamBroken). A signal may end it at any place: nothing here
        is left half done."""
        try:
            while True:
                self._turn()
        except StreamBroken as error:
            if self._sending.superseded:
                self._step_down()
            self._refuse(error)
            self._error = str(error.fields["reason"])
            raise
        except OmqError as error:
            self._refuse(error)
            self._error = str(error)
            raise
        finally:
            self._tell(following=False)
            self._sending.close()
            self._attached.close()
            self._look.close()

    def _turn(self) -> None:
        if self._sync and self._sending.following:  # first: what is new goes in this turn
            self._attached.turn(self._sending.member, self._sending.synced,
                                hears=self._line.other_ready)
        durable = max(self._look.look(), self._attached.durable)
        pieces = self._sending.turn(durable, BYTES_MAX, self._attached.written,
                                    self._attached.within)
        if pieces:
            point("standby.before_send")
        for piece in pieces:
            self._line.send(piece)
        if pieces:
            point("standby.after_send")
        for piece in self._line.receive(0 if pieces else self._poll_s, self._attached.descriptor):
            self._heard = time.monotonic()
            if piece.kind is PieceKind.BASE and not self._sending.following:
                self._base(piece)
                continue
            for answer in self._sending.take(piece, durable):
                self._line.send(answer)
            if piece.kind is PieceKind.HELLO:
                self._conf = difference(self._conf_dir, self._sending.said)
            self._sending.refuse_superseded(self._sending.superseded)
            if piece.kind is PieceKind.ACK:
                point("standby.after_ack")
        now = time.monotonic()
        if now - self._heard > self._line.silence_s:  # it answers whatever it is sent
            raise StreamBroken(peer=self._line.peer,
                               reason=f"it says nothing for {duration(self._line.silence_s)}")
        if pieces:
            self._beat, self._said = now, durable
        elif self._sending.following and now >= self._beat + (
                NEWS_S if durable > self._said else BEAT_S):
            self._beat, self._said = now, durable
            self._line.send(Piece(PieceKind.DURABLE, self._instance.term, durable=durable))

        self._tell(following=self._sending.following)

    def _tell(self, *, following: bool) -> None:
        sending = self._sending
        index = self._look.index
        written = index.counter(Counter.JOURNAL_BYTES) if index is not None else 0
        self._telling.note(sending.member, self._look.lsn, sending.synced, written,
                           following=following, force=not following, error=self._error,
                           conf=self._conf)

    def _base(self, piece: Piece) -> None:
        """A copy of the pool; then the standby says HELLO."""
        try:
            said = json.loads(bytes(piece.payload))
            member, had = str(said["member"]), Had(said.get("has"))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise StreamBroken(peer=self._line.peer, reason="it does not identify "
                               "itself") from error
        if not is_member_name(member) or member == self._instance.member:
            raise StreamBroken(peer=self._line.peer, reason="its name is not one of another member")
        index = self._look.index
        if index is None or not index.running:
            raise ManagerUnavailable(spool=self._paths.root, reason="a copy for a standby is made "
                                     "of a spool that is served")
        for each in base(self._paths, self._instance, member, lambda: index.running, had):
            self._line.send(each)
        self._heard = time.monotonic()

    def _step_down(self) -> None:
        term = self._sending.superseded
        instance_file.write(self._paths, replace(
            self._instance, role=Role.FORMER, member=self._instance.member or UNNAMED,
            primary=f"the member of term {term}"))
        if self._look.index is not None and self._look.index.running:
            signal.pidfd_send_signal(self._look.index.pidfd, signal.SIGTERM)

    def _refuse(self, error: OmqError) -> None:
        try:
            self._line.send(Piece(PieceKind.REFUSE, self._instance.term,
                                  payload=str(error)[:500].encode()))
        except StreamBroken:
            return  # nobody is there to be told
