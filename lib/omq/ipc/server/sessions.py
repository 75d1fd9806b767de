"""Sessions: the clients that are registered, what they may do, and their channels.

A client connects once over the socket; SO_PEERCRED says who it is. It gets a client id, a random
128-bit token and a private channel. Every request carries id and token. Authority per queue is
asked once and remembered; "no" is remembered as well.

A client that lost its manager, or its connection or channel, registers again with its old token:
the low half names it in the journal, and the uid must be the same. It then learns what became of
its request under way: of an earlier manager's from the journal, of this one's from `answered`.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sysv_ipc

from omq.base import limits
from omq.base.authority import ACTIONS, Authority
from omq.base.errors import BadRequest, NoAuthority, OmqError, QueueGone, TooManyClients
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.state import Party
from omq.core.redo.last_requests import fair_share
from omq.fast.client_state import ClientState
from omq.format.poolctrl import Answered
from omq.format.wire import ENDED, REPLY, REQUEST_MAGIC, halves
from omq.ipc.server.doors import Door
from omq.ipc.server.request_record import Request
from omq.ipc.server.transport import Transport
from omq.ipc.wire.errnos import Outcome, outcome

_SO_PEERGROUPS = 59
_GROUPS_MAX = 65536
_MS = 1_000_000


@dataclass(slots=True)
class Claims:
    """What a client that has outlived its manager says it holds, as far as it has said it.
    `given`: as core.engine.leases_resumed has it; `unit`: it had a unit of work open."""

    given: tuple[int, int]
    unit: bool
    held: list[tuple[int, int]] = field(default_factory=list)  # (QPoolId, lease)
    took: list[tuple[int, int]] = field(default_factory=list)


class Session(ClientState):
    """One registered client. What each request touches lies in ClientState."""

    __slots__ = ("aliases", "channel", "claims", "containers", "containing", "deaf", "descriptor",
                 "door", "epoch", "gids", "lost_queue", "name", "note", "opened", "release",
                 "unheld")

    def __init__(self, party: Party, token: bytes, name: str, gids: frozenset[int], door: Door,
                 channel: Transport, reply: memoryview, request: memoryview, note: memoryview, *,
                 trusted: bool, epoch: int = 0) -> None:
        """`token`: 16 bytes; `trusted`: it may read the spool's files itself: the owner and root;
        `epoch`: of this manager."""
        super().__init__(party, token, reply, request)
        self.trusted = trusted
        self.name, self.gids, self.door, self.channel = name, gids, door, channel
        self.note, self.epoch = note, epoch
        self.lost_queue = ""  # that it read, and which is gone
        self.opened: dict[int, str] = {}  # numbers of queues, as it knows them
        self.aliases: dict[str, tuple[int, ...]] = {}  # that stand for these
        self.claims: Claims | None = None  # until all of it has been sent
        self.deaf = 0  # replies that could not be announced
        self.unheld = False  # its replies wait for no standby (ipc.server.held_replies)
        self.descriptor = -1  # that came with the question under way; the doorkeeper closes it
        self.containing = False  # a large body is being copied
        self.containers: dict[str, tuple[int, int]] = {}  # not put yet: size, CRC
        self.semaphore = channel.semaphore_id
        self.release: Callable[[], None] = channel.wake  # says that a reply is there

    def timeout_ns(self, r: Request) -> int:
        """How long this request waits for messages; -1: for ever."""
        if r.sequence == self.cancelled:
            return 0
        return r.argument * _MS if r.argument >= 0 else -1

    def answer(self, sequence: int, *, status: int = 0, count: int = 0, length: int = 0,
               qpool: int = 0, lsn: int = 0) -> None:
        """Write the reply header; `announce` comes after it, when all of the group are written."""
        REPLY.pack_into(self.reply, 0, REQUEST_MAGIC, status, self.lost, sequence, count, length,
                        qpool, lsn, self.epoch, b"")
        self.lost = 0
        if not status:
            self.last = (sequence, count, qpool, lsn)

    def announce(self) -> None:
        """Release the semaphore: the client may run at once, on this very processor. Never
        blocks."""
        try:
            self.release()
        except (sysv_ipc.Error, OSError, ValueError, MemoryError) as error:
            # The client removed it, or raised it to its limit: its loss. Its end shows elsewhere.
            if outcome("semop", error) is Outcome.BUG:
                raise
            self.deaf += 1

    def no_reader(self) -> OmqError:
        """Why it gets no messages: it never read a queue, or its queue is gone."""
        return QueueGone(queue=self.lost_queue) if self.lost_queue else BadRequest(
            reason="not registered as a reader")

    def refuse(self, sequence: int, error: OmqError) -> None:
        """An error as the reply: its status and its fields."""
        text = json.dumps({k: v if isinstance(v, int) else str(v) for k, v in error.fields.items()}
                          ).encode()[: len(self.reply) - REPLY.size]
        self.reply[REPLY.size : REPLY.size + len(text)] = text
        self.answer(sequence, status=error.status, length=len(text))


class Sessions:
    """All registered clients of this epoch."""

    def __init__(self, limit: int, authority: Authority,
                 rules: Mapping[int, QueueRules]) -> None:
        self.by_id: dict[int, Session] = {}
        self.by_door: dict[int, Session] = {}
        self.limit = limit  # rows of the reader table
        self.authority = authority
        self._rules = rules
        self.answered: dict[int, Answered] = {}  # last request of clients that are not here
        self._next = 1
        self._rows: list[int] = []
        self.gone: list[Session] = []  # in this group
        self._rows_high = 0

    def claim_row(self) -> int:
        """A free row of the reader table. Those who left in this group still have theirs."""
        if self._rows:
            return self._rows.pop()
        if self._rows_high >= self.limit:
            raise TooManyClients(limit=self.limit)
        self._rows_high += 1
        return self._rows_high - 1

    def return_row(self, row: int) -> None:
        """A claimed row that was not used after all."""
        self._rows.append(row)

    @property
    def rows_high(self) -> int:
        return self._rows_high

    def next_id(self) -> int:
        self._next += 1
        return self._next - 1

    def add(self, session: Session) -> None:
        self.by_id[session.party.client] = session
        self.by_door[id(session.door)] = session

    def remove(self, session: Session) -> None:
        """Forget a client. Its channel stays until `close_gone`: the group may still hold payloads
        that lie in it."""
        session.gone = True
        sequence, count, qpool, lsn = session.last
        if sequence:
            token, uid = session.party.token, session.party.uid
            self.answered.pop(token, None)  # the youngest stand last
            self.answered[token] = Answered(token, sequence, qpool, count, lsn, uid)
            if len(self.answered) > limits.DEDUPE_CLIENTS_MAX:
                self._forget_answers()
        self.by_id.pop(session.party.client, None)
        self.by_door.pop(id(session.door), None)
        self.gone.append(session)

    def say_ended(self, held: Callable[[Session], bool] = lambda _: False) -> None:
        """At an orderly stop, after the last group: to each client what its last request came to.
        A client that has not looked yet may find its memory and semaphore gone. `held`: one that
        must not be told yet asks the next manager."""
        for session in self.by_id.values():
            sequence, count, qpool, lsn = session.last
            if sequence and not held(session):
                say(session.door, {ENDED: {"sequence": sequence, "qpool": qpool, "count": count,
                                           "lsn": lsn}})

    def _forget_answers(self) -> None:
        """A tenth at once, the oldest of the users with the most: nobody can push out what others
        may still ask for by coming and going."""
        share = fair_share(Counter(each.uid for each in self.answered.values()),
                           limits.DEDUPE_CLIENTS_MAX * 9 // 10)
        kept: Counter[int] = Counter()
        for token, each in reversed(list(self.answered.items())):
            kept[each.uid] += 1
            if kept[each.uid] > share:
                del self.answered[token]

    def close_gone(self) -> None:
        """After the commit: the channels of those who left in this group."""
        for session in self.gone:
            self._rows.append(session.party.slot)
            session.reply.release()
            session.request.release()
            session.note.release()
            session.channel.close()
        self.gone.clear()

    def new_authority(self, authority: Authority) -> None:
        """After a reload: ask again."""
        self.authority = authority
        for session in self.by_id.values():
            session.rights.clear()

    def check(self, session: Session, action: str, queue: int) -> None:
        """NoAuthority unless this client may `action` (put, get, browse, admin) on the queue."""
        key = (action, queue)
        allowed = session.rights.get(key)
        if allowed is None:
            rules = self._rules.get(queue)
            known = session.opened.setdefault(queue, rules.name if rules else "")
            if rules is None or (action == "put" and known != rules.name):
                raise QueueGone(queue=known or queue)
            allowed = (rules.owner == session.party.token != 0) or self.authority.allows(
                action, rules.rights or rules.name, session.party.uid, session.gids)
            session.rights[key] = allowed
        if not allowed:
            name = self._rules[queue].name if queue in self._rules else "?"
            raise NoAuthority(uid=session.party.uid, action=action, queue=name)

    def allows(self, session: Session, action: str, queue: int) -> bool:
        """May it, as `check` asks and remembers?"""
        try:
            self.check(session, action, queue)
        except (NoAuthority, QueueGone):
            return False
        return True

    def changed(self, queue: int) -> None:
        """This number is another queue, or none: whose puts there fail opens it again."""
        for session in self.by_id.values():
            for action in ACTIONS if queue not in self._rules else ("put",):
                session.rights.pop((action, queue), None)

    def alias_changed(self, alias: str) -> None:
        """This name stands for other queues: who has it open gets QueueGone."""
        for session in self.by_id.values():
            for queue in session.aliases.pop(alias, ()):
                session.rights.pop(("put", queue), None)
                session.opened[queue] = ""


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end of a control connection, as the kernel says."""

    pid: int
    uid: int
    gids: frozenset[int]


def peer_of(connection: socket.socket) -> Peer:
    """SO_PEERCRED and SO_PEERGROUPS."""
    pid, uid, gid = array("i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    gids = {gid}
    with contextlib.suppress(OSError):
        gids.update(array("I", connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS,
                                                     _GROUPS_MAX)))
    return Peer(pid, uid, frozenset(gids))


def new_token(old: bytes | None) -> bytes:
    """A fresh secret half over the old name half, or all fresh."""
    if old is not None:
        return old[:8] + secrets.token_bytes(8)
    while True:
        token = secrets.token_bytes(16)
        if any(token[:8]):
            return token


def split_channel(view: memoryview) -> tuple[memoryview, memoryview, memoryview]:
    """(reply half, request half, note)."""
    reply, request, note = halves(len(view))
    return view[reply:request], view[request:note], view[note:]


def say(door: Door, answer: dict[str, Any], descriptor: int = -1) -> None:
    """One JSON line back over a control connection, with a descriptor if there is one. A client
    that does not read loses the connection with it: half a line would spoil all that follow."""
    say_line(door, (json.dumps(answer) + "\n").encode(), descriptor)


def say_line(door: Door, line: bytes, descriptor: int = -1) -> None:
    """As `say`, of a line that is JSON already, and ends."""
    try:
        if descriptor < 0:
            door.connection.sendall(line)
        else:
            socket.send_fds(door.connection, [line], [descriptor])
    except OSError:
        with contextlib.suppress(OSError):
            door.connection.shutdown(socket.SHUT_RDWR)  # the doorkeeper sees it as ended
