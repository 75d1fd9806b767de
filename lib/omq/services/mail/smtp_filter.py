"""The way to a filter before the queue: a program that speaks SMTP and is asked about each text.

    client - smtp.server - filter (`smtp_filter`) - smtp.server (`smtp_filter_return_port`) - ROUTER

A few threads bring texts to it, each over a connection of its own that is kept; what the filter
answers becomes the reply to the client.

Rules:
1. All recipients of a text or none: if the filter refuses one, none receives it.
2. Time: `smtp_filter_timeout_s` for all of it, the wait for a free connection included. Then the
   connection is cut, and the client is asked to come back.
3. An absent, silent or broken filter is not bypassed: 451, and the client keeps its mail.

No errors: `Verdict` has the reply.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from omq.base.settings import Settings
from omq.services.mail import smtp_reply
from omq.services.mail.routes import Peer
from omq.services.mail.smtp_client import ClientLimits, Mail, SmtpConnection
from omq.services.mail.smtp_reply import Result

NO_ANSWER: Final = "451 4.3.0 the content filter of this host does not answer, try again later"
_CONNECT_S_MAX: Final = 10.0
_CUT_AGAIN_S: Final = 0.5
"""A connection that was being opened when it was to be cut is cut then."""
_REPLY: Final = re.compile(r"([45]\d\d)[ -]*(?:[45]\.\d{1,3}\.\d{1,3} *)?(.*)")


@dataclass(slots=True)
class InFilter:
    """A mail whose client waits for the filter: by this what comes back is known again."""

    mail_id: str
    peer: str
    helo: str
    client: str  # for the log
    ranked: bool
    told: dict[str, str]  # properties: what its sender wants to be told
    returned: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """`refusal` is the reply to the client, empty: the filter took it. `broken`: why there is no
    answer of the filter."""

    refusal: str = ""
    broken: str = ""


@dataclass(slots=True)
class _Turn:
    """A text on its way."""

    mail: Mail
    peer: Peer
    timeout_s: float
    late: bool = False
    connection: SmtpConnection | None = None

    def cut(self) -> None:
        """Its time is over."""
        self.late = True
        if self.connection is not None:
            self.connection.cut()


@dataclass
class Filter:
    """The threads. `waiting`: mail that is being asked about, by its id; `sessions`: of those who
    give back."""

    hostname: str
    connections: int
    waiting: dict[str, InFilter] = field(default_factory=dict)
    sessions: int = 0

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(self.connections, thread_name_prefix="filter")
        self._own = threading.local()
        self._live: list[_Turn] = []
        self._open: set[SmtpConnection] = set()

    @property
    def sessions_max(self) -> int:
        """A filter may give back over more connections than it is asked by, but not without end."""
        return 4 * self.connections

    async def ask(self, peer: Peer, mail: Mail, settings: Settings) -> Verdict:
        """What the filter says of it."""
        timeout_s = float(settings.smtp_filter_timeout_s)
        turn = _Turn(mail, peer, timeout_s)
        self._live.append(turn)
        try:
            work = asyncio.get_running_loop().run_in_executor(self._pool, self._send, turn)
            done, _ = await asyncio.wait((work,), timeout=timeout_s)
            while not done:
                turn.cut()
                done, _ = await asyncio.wait((work,), timeout=_CUT_AGAIN_S)
            return verdict_of(work.result(), late=turn.late)
        finally:
            self._live.remove(turn)

    def close(self) -> None:
        """Cut what is under way, and say goodbye to the filter."""
        for turn in self._live:
            turn.cut()
        self._pool.shutdown(wait=True, cancel_futures=True)
        for connection in self._open:
            connection.abandon()

    def _send(self, turn: _Turn) -> list[Result]:
        if turn.late:
            return []
        turn.connection = connection = self._connection(turn.peer, turn.timeout_s)
        return connection.send(turn.mail)

    def _connection(self, peer: Peer, timeout_s: float) -> SmtpConnection:
        """This thread's; another one after a reload that changed something."""
        key, connection = getattr(self._own, "kept", (None, None))
        if connection is None or key != (peer, timeout_s):
            if connection is not None:
                self._open.discard(connection)
                connection.close()
            limits = ClientLimits(min(_CONNECT_S_MAX, timeout_s), timeout_s, timeout_s, 1000)
            connection = SmtpConnection(peer, self.hostname, limits)
            self._own.kept = (peer, timeout_s), connection
            self._open.add(connection)
        return connection


def verdict_of(results: Sequence[Result], *, late: bool = False) -> Verdict:
    """What all recipients' results mean for the client, who gets one reply: that it should come
    back weighs more than that it should not."""
    if late:
        return Verdict(NO_ANSWER, "it took too long")
    failed = [each for each in results if each.verdict is not smtp_reply.Verdict.DELIVERED]
    if not failed:
        return Verdict()
    worst = next((each for each in failed
                  if each.verdict is smtp_reply.Verdict.TEMPORARY), failed[0])
    said = _REPLY.fullmatch(worst.text)
    if said is None or said[1] == "421":
        return Verdict(NO_ANSWER, worst.text)
    code = said[1] if said[1][0] == worst.status[0] else f"{worst.status[0]}51"
    return Verdict(f"{code} {worst.status} {said[2] or 'refused'}")
