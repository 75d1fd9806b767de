"""Registration: a caller becomes a client with a session, a channel, and a token.

    register  {"version", "name", "token", "in_doubt", "queue", "auxiliary", "held", "unit",
               "took": [[QPoolId, lease], ...] of that unit,
               "bell": true when its replies are to be announced (ipc.server.bell),
               "opened": [[number, queue], ...], as an earlier manager had told it,
               "more": true when what it holds goes on in a `claim`}
              -> its number and token, the ids of its channel, and what became of its request under
                 way; `requests`: the request queue, or null for users who send their requests over
                 the control connection (ADR 0020)
    claim     {"held", "took", "opened", "more"}: what did not fit into the line of the
              registration; nothing is judged before the last of them

Errors: BadRequest, TooManyClients, TooManyOfUser, ManagerShort, IpcLimit, NotRegistered.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from omq.base import clock, limits, names
from omq.base.errors import BadRequest, ManagerShort, NotRegistered, OmqError
from omq.core.engine.engine import Engine
from omq.core.engine.state import Party
from omq.format.message import ID_PREFIX
from omq.format.poolctrl import Answered
from omq.format.wire import BELL, NOTE_BYTES, VERSION
from omq.ipc.server.bell import give_bell
from omq.ipc.server.doorkeeper import Doorkeeper
from omq.ipc.server.doors import Door
from omq.ipc.server.held_replies import UNHELD
from omq.ipc.server.objects import ObjectList, make_channel
from omq.ipc.server.sessions import (
    Claims,
    Peer,
    Session,
    Sessions,
    new_token,
    peer_of,
    split_channel,
)
from omq.ipc.server.units import UnitLimits

Question = dict[str, Any]
TOKEN_BYTES = 16
_SEQUENCE_MAX = (1 << 64) - 1  # of a request: a client may say what no request has


class Registrar:
    """See the module. `owner`: uid of the spool; `reader` registers a reader."""

    def __init__(self, engine: Engine, sessions: Sessions, doorkeeper: Doorkeeper,
                 listed: ObjectList, *, uuid: bytes, epoch: int, requests: tuple[int, int],
                 owner: int, channel_bytes: int, threshold: int,
                 answered: dict[int, Answered], units: UnitLimits) -> None:
        self._engine, self._sessions = engine, sessions
        self._doors = doorkeeper
        self._listed = listed
        self._uuid, self._epoch = uuid, epoch
        self._requests = requests
        self._owner, self._channel_bytes, self._threshold = owner, channel_bytes, threshold
        self._sessions.answered = answered
        self._units = units
        self.reader: Callable[[Session, Question], object] = _no_reader

    def register(self, door: Door, session: Session | None, question: Question) -> Question:
        if session is not None:
            raise BadRequest(reason="registered already")
        if question.get("version") != VERSION:
            raise BadRequest(reason=f"protocol version {question.get('version')!r}, "
                             f"this manager speaks {VERSION}")
        name = names.check_client_name(str(question["name"]))
        old = bytes.fromhex(str(question.get("token", "")))
        if len(old) not in (0, TOKEN_BYTES):
            raise BadRequest(reason="a token has 16 bytes")
        peer = peer_of(door.connection)
        self._doors.admission.check_client(peer.uid)
        token = new_token(old or None)
        known = self._sessions.answered.get(int.from_bytes(token[:8], "little")) if old else None
        if known and known.uid != peer.uid:
            raise BadRequest(reason="the token is another user's")
        if any(s.token[:8] == token[:8] for s in self._sessions.by_id.values()):
            raise BadRequest(reason="the token is in use")
        session = self._admit(door, peer, name, token)
        in_doubt = int(question.get("in_doubt", 0))
        session.sequence = max(0, min(in_doubt - 1, _SEQUENCE_MAX), known.sequence if known else 0)
        _open(session, question)
        if question.get("queue"):
            self.reader(session, question)
        else:  # to who puts, and waits in many places
            give_bell(session, question)
        session.claims = Claims((known.given, known.given_last) if known else (0, 0),
                                unit=bool(question.get("unit")))
        self.claim(session, question)
        answered = None
        if known and known.sequence == in_doubt:
            answered = {"sequence": in_doubt, "qpool": known.qpool, "count": known.count,
                        "lsn": known.lsn}
        return {
            "client": session.party.client, "token": token.hex(), "epoch": self._epoch,
            **session.channel.told(),
            "requests": self._requests if session.trusted else None,
            "trusted": session.trusted, "owns": session.party.owns,
            "threshold": self._threshold, "answered": answered, "asks": True, "bells": True,
            "rings": bool(question.get(BELL)), "takes_synced": True,
            "unit": [self._units.messages, self._units.bytes],
            "id_prefix": (ID_PREFIX + self._uuid[:12]).hex()}

    def _admit(self, door: Door, peer: Peer, name: str, token: bytes) -> Session:
        row = self._sessions.claim_row()
        try:
            self._doors.watch(door, peer.pid)
            channel = make_channel(self._listed, self._channel_bytes + NOTE_BYTES, peer.uid)
        except ProcessLookupError as error:
            self._sessions.return_row(row)
            raise NotRegistered from error
        except OSError as error:  # descriptors, memory, or the disk of run/: none ends the manager
            self._sessions.return_row(row)
            raise ManagerShort(what="room", reason=error.strerror or str(error)) from error
        except OmqError:
            self._sessions.return_row(row)
            raise
        self._doors.registered(door)
        reply, request, note = split_channel(channel.view)
        party = Party(self._sessions.next_id(), row, peer.pid, peer.uid,
                      int.from_bytes(token[:8], "little"),
                      owns=peer.uid in (self._owner, os.geteuid()))
        session = Session(party, token, name, peer.gids, door, channel, reply, request, note,
                          trusted=party.owns or peer.uid == 0, epoch=self._epoch)
        session.unheld = session.trusted and name == UNHELD
        self._sessions.add(session)
        clients = self._engine.clients
        clients.came(party, name, clock.process_start_ticks(peer.pid) or 0)
        clients.count(len(self._sessions.by_id), self._sessions.rows_high)
        return session

    def claim(self, session: Session, question: Question) -> Question:
        """A reader that outlived the manager takes up its messages again. What it holds may be more
        than a line has room for: the rest comes in questions of its own, and with the last of them
        it is judged, all together."""
        claims = session.claims
        if claims is None:
            raise BadRequest(reason="what was in hand is reported with a registration")
        claims.held += _leases(question, "held")
        claims.took += _leases(question, "took")
        rows = self._engine.index.layout.entries
        if len(claims.held) > rows or len(claims.took) > rows:
            raise BadRequest(reason="more messages are claimed than there are")
        _open(session, question)
        if not question.get("more"):
            session.claims = None
            self._engine.adopt(session.party, session.queue, claims.held, claims.given,
                               unit=claims.unit, took=claims.took)
        return {}


def _open(session: Session, question: Question) -> None:
    """The numbers of queues as an earlier manager has told them."""
    for number, name in question.get("opened", ())[: limits.QUEUES_MAX]:
        if len(session.opened) < limits.QUEUES_MAX:
            session.opened[int(number)] = str(name)


def _leases(question: Question, key: str) -> list[tuple[int, int]]:
    """(QPoolId, lease) of each message."""
    return [(int(qpool), int(lease)) for qpool, lease in question.get(key, [])]


def _no_reader(session: Session, question: Question) -> object:
    raise AssertionError("the control plane registers readers")
