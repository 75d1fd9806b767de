"""A client's registration with the queue manager: its token, its channel, and a manager that may
go away and come back.

Whoever was registered once registers again with its old token, says which request it is in doubt of
and what it holds, and gets a new channel. What belongs to one manager is let go of as a whole.

Errors: those of ipc.client.manager_absence; what a registration is refused with.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import Any, Final, NoReturn

import sysv_ipc

from omq.base.errors import (
    ConnectionBusy,
    ConnectionClosed,
    ConnectionForked,
    OmqError,
    TooManyConnections,
)
from omq.base.paths import SpoolPaths
from omq.format.wire import VERSION, halves
from omq.ipc.client import watcher
from omq.ipc.client.control_line import ControlLine, Lost, way_of_requests
from omq.ipc.client.manager_absence import Absence, Waiting, words
from omq.ipc.client.reply_wait import GONE, Gate
from omq.ipc.wire.exchange import Held
from omq.storage import segment
from omq.storage.spool import open_spool, refuse_others

ANSWER_MIN_S: Final = 0.25  # that a manager which is there has to answer a question
ANSWER_MAX_S: Final = 10.0
RETRY_S: Final = 0.05  # pause between two attempts to reach a manager that is away
INTERRUPTED_S: Final = 5.0  # whoever should stop waits no longer for a manager
LINE_ROWS: Final = 2000
"""Messages and queues in one line to the manager: less than half of what it reads as one
(ipc.server.doors), whatever their numbers and names are."""
LOST: Final = (*GONE, sysv_ipc.NotAttachedError)


def pieces(held: list[tuple[int, int]], took: list[tuple[int, int]], opened: dict[int, str],
           first: int) -> list[dict[str, list[Any]]]:
    """What a client tells of itself, in as many pieces as lines are needed; one at least. The queue
    `first` is in the first one."""
    rows: list[tuple[str, Any]] = [("opened", item) for item in sorted(
        opened.items(), key=lambda item: item[0] != first)]
    rows += [("held", lease) for lease in held] + [("took", lease) for lease in took]
    found = []
    for at in range(0, max(1, len(rows)), LINE_ROWS):
        piece: dict[str, list[Any]] = {"held": [], "took": [], "opened": []}
        for kind, row in rows[at : at + LINE_ROWS]:
            piece[kind].append(row)
        found.append(piece)
    return found


class Registered:
    """See the module."""

    def __init__(self, paths: SpoolPaths, name: str, timeout_s: float,
                 waiting: Waiting | None = None) -> None:
        self._paths = paths
        self._name = name
        self._timeout_s = timeout_s
        self._token = b""
        self._closed = False
        self._busy = threading.Lock()  # held while a request or question is under way
        self._user = 0  # the thread that holds it
        self._sequence = 0
        self.registrations = 0
        self._line: ControlLine | None = None
        self._pid = os.getpid()
        self.reader = Held()
        self.opened: dict[int, str] = {}  # numbers of queues, as a manager has told them
        self.reply = memoryview(b"")
        self.asks = False  # the manager takes ASK, and a MOVE that waits
        self.bells = False  # it rings for a reader that wants it (ipc.server.bell)
        self.rings = False  # it rings for this client, also without a reader
        self.interrupted = False
        self.woken = False
        self._gate: Gate | None = None
        self._patience: float | None = None  # after an interrupt: until when to wait for a manager
        self._left: sysv_ipc.SharedMemory | None = None  # see _drop
        self._absence = Absence(paths, waiting)
        self._register_until(time.monotonic() + timeout_s, 0)

    # registration

    def _register_until(self, deadline: float, in_doubt: int) -> dict[str, Any]:
        """Register, waiting for a manager if need be."""
        began, manager = time.monotonic(), 0
        while True:
            try:
                facts = self._register(in_doubt)
                self._absence.over()
                return facts
            except TooManyConnections:  # for a moment
                self._drop()
                if time.monotonic() >= deadline or self.interrupted:
                    raise
                time.sleep(RETRY_S)
            except OmqError:  # refused
                self._drop()
                raise
            except (OSError, Lost, sysv_ipc.Error, ValueError) as error:
                manager = 0 if self._line is None else self._line.manager
                self._drop()
                self._is_it_elsewhere()
                limit = deadline if self._patience is None else min(deadline, self._patience)
                denied = isinstance(error, (PermissionError, sysv_ipc.PermissionsError))
                gave_up = self.interrupted and in_doubt == 0
                if denied or gave_up or time.monotonic() >= limit:  # rights do not come by waiting
                    raise self._absence.error(error, manager, interrupted=gave_up) from error
                self._absence.tell(began, words(error), deadline)
                time.sleep(RETRY_S)

    def _is_it_elsewhere(self) -> None:
        """NotPrimary where no manager will come: this is a standby, or a former primary."""
        try:
            info = open_spool(self._paths.root)
        except (OmqError, OSError):
            return  # what is wrong with it is reported when the time is over
        refuse_others(info.paths, info.instance)

    def _answer_s(self) -> float:
        """How long a manager that is there may take for an answer: after an interrupt no longer
        than what is left of INTERRUPTED_S."""
        longest = min(self._timeout_s, ANSWER_MAX_S)
        if self._patience is not None:
            longest = min(longest, self._patience - time.monotonic())
        return max(ANSWER_MIN_S, longest)

    def _register(self, in_doubt: int) -> dict[str, Any]:
        line = self._line = ControlLine(self._paths.socket, self._answer_s())
        known, unit = bool(self._token), self.reader.unit
        first, *rest = pieces(
            self.reader.messages() if known else [],
            self.reader.took() if known and unit else [], self.opened, self.reader.number)
        began = time.monotonic()
        facts = line.ask({
            "op": "register", "version": VERSION, "name": self._name,
            "token": self._token.hex(), "in_doubt": in_doubt, **first, "more": bool(rest),
            "queue": self.reader.queue, "number": self.reader.number,
            "auxiliary": self.reader.auxiliary,
            "prompt": self.reader.prompt, "unit": unit, "where": self.reader.where,
            **({"bell": True} if self.reader.bell else {})},
            lambda: self._absence.tell(began, "it does not answer"))
        for number, piece in enumerate(rest, 1):
            line.ask({"op": "claim", **piece, "more": number < len(rest)})
        self._token = bytes.fromhex(facts["token"])
        self._client = int(facts["client"])
        self.trusted = bool(facts["trusted"])
        self.owns = bool(facts["owns"])
        self.threshold = int(facts["threshold"])
        self.unit_messages, self.unit_bytes = map(int, facts["unit"])
        self.asks = bool(facts.get("asks"))  # not one that was started before it could
        self.bells = bool(facts.get("bells"))  # nor this
        self.rings = bool(facts.get("rings"))  # nor this, and only for who has asked for it
        self.registrations += 1
        self.epoch = int(facts["epoch"])
        self.id_prefix = str(facts["id_prefix"])
        self._requests = way_of_requests(facts["requests"], line)
        semaphore_key, semaphore_id = facts["semaphore"]
        self._semaphore = sysv_ipc.Semaphore(semaphore_key)
        if self._semaphore.id != semaphore_id:
            raise Lost("the objects named are not those of the manager")
        self._segment = segment.attach(int(facts["channel"]), write=True)
        self._channel = memoryview(self._segment)
        reply, request, note = halves(len(self._channel))
        self.reply = self._channel[reply:request]
        self._area = self._channel[request:note]
        self.room = len(self._area)
        self.reader.note.attach(self._channel[note:], int.from_bytes(self._token[:8], "little"))
        self.reader.say_again()
        queue = self._requests.id if isinstance(self._requests, sysv_ipc.MessageQueue) else -1
        self._gate = Gate(self._semaphore, queue, self._client, self._token, self.epoch)
        watcher.add(self._gate, line.descriptor, self._timeout_s)
        self._let_go()
        return facts

    def _drop(self) -> None:
        """Let go of what belongs to one manager. While something is in hand its channel stays
        attached until there is another one: the next manager sees by that that somebody lives who
        may begin with it (core.engine.reader_notes)."""
        if self._gate is not None:
            watcher.discard(self._gate)
            self._gate = None
        if self._line is not None:
            self._line.close()
            self._line = None
        if len(self.reply):
            self.reader.note.detach()
            self.reply.release()
            self._area.release()
            self._channel.release()
            self._let_go()
            self._left = self._segment
            if not self.reader.messages():
                self._let_go()
            self.reply = memoryview(b"")

    def _let_go(self) -> None:
        """Of the channel of the manager before."""
        left, self._left = self._left, None
        if left is not None:
            with contextlib.suppress(*LOST):
                left.detach()

    def _enter(self) -> None:
        """Be the one who uses the link; `_busy` is then to be released."""
        if self._pid != os.getpid():  # both would answer for one client
            raise ConnectionForked(maker=self._pid, child=os.getpid())
        if self._closed or not self._busy.acquire(blocking=False):
            self._refuse()
        self._user = threading.get_ident()

    def _refuse(self) -> NoReturn:
        """Why the link cannot be used now."""
        if self._pid != os.getpid():
            raise ConnectionForked(maker=self._pid, child=os.getpid())
        if self._closed:
            raise ConnectionClosed(name=self._name)
        raise ConnectionBusy(holder=self._user, thread=threading.get_ident())

    def check_open(self) -> None:
        """ConnectionForked, ConnectionClosed: for what asks the manager later, or nothing."""
        if self._closed or not self.mine:
            self._refuse()

    @property
    def mine(self) -> bool:
        """Whether this process has made it."""
        return self._pid == os.getpid()

    def take_descriptor(self) -> int:
        """What came with the last answer of `control`; -1: nothing. The caller closes it."""
        return -1 if self._line is None else self._line.take_descriptor()

    def wake(self) -> None:
        """Callable from a signal handler and from another thread: a wait for messages that is
        under way ends soon, or the next one."""
        self.woken = True
        if (gate := self._gate) is not None:  # the thread that uses the link may drop it now
            gate.open()

    def interrupt(self) -> None:
        """Callable from a signal handler: a wait for messages ends soon."""
        self.interrupted = True
        self._patience = time.monotonic() + INTERRUPTED_S
        if (gate := self._gate) is not None:
            gate.open()

    def forget_ends(self) -> None:
        """What was to end a wait was meant for a reader that is closed."""
        self.interrupted = self.woken = False
        self._patience = None
