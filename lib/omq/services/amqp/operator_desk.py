"""Where operators look at the connections of amqp.server and end one: run/amqp.sock.

A line of JSON comes, a line of JSON goes, and the connection ends:

    {"do": "list"}                                  {"connections": 3, "told": [...]}
    {"do": "reload"}                                {"reloaded": true}
    {"do": "close", "connection": 7, "reason": "...", "by": "alice"}     {"closed": true}
    the same with "link": "sender-1"                {"closed": true}: this link of it alone

`closed` is false when there is no such connection, or link; numbers are never used twice, so nobody
else is met. Who may ask: the owner of the spool and root, as the kernel says who is at the other
end; what they want in an operator's name is journaled by who asks (omq.cli.operate.connections).

Invariants: 1. a request is ASKED_BYTES_MAX at most and has ANSWER_S, at most ASKERS_MAX at once; 2.
nobody else gets an answer. Errors: OSError at the start: the socket cannot be made.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from array import array
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from omq.base import events, side_files
from omq.base.event_log import REPORT, WARNING
from omq.base.names import escape
from omq.base.socket_name import socket_name
from omq.services.amqp.connection_states import TEXT_MAX, Rates

if TYPE_CHECKING:
    from omq.services.amqp.host import Guest, Host

ASKED_BYTES_MAX: Final = 4096
ASKERS_MAX: Final = 8
ANSWER_S: Final = 10.0
REASON_MAX: Final = 200
_CREDENTIALS_BYTES: Final = 12  # struct ucred: pid, uid, gid


class OperatorDesk:
    """See the module. For the event loop."""

    def __init__(self, host: Host, reload: Callable[[], None]) -> None:
        self._reload = reload
        self._host, self._path = host, host.context.paths.amqp_socket
        self._owner = host.context.paths.root.stat().st_uid
        self._rates = Rates()
        self._askers = 0
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen. OSError."""
        side_files.remove(self._path)  # of a server before: the lock of its pid file is ours
        self._server = await asyncio.start_unix_server(
            self._asked, sock=_bound(self._path), limit=ASKED_BYTES_MAX)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            side_files.remove(self._path)

    def stir(self) -> None:
        """Time has passed."""
        self._rates.note(asyncio.get_running_loop().time(), self._host.sessions)

    async def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._askers += 1
        try:
            if self._askers <= ASKERS_MAX and self._may(writer):
                async with asyncio.timeout(ANSWER_S):
                    answer = self._answer(await reader.readline())
                    writer.write(json.dumps(answer).encode() + b"\n")
                    await writer.drain()
        except (OSError, ValueError, TimeoutError):
            pass  # who asked has gone, says nothing or says too much: nobody waits for an answer
        finally:
            self._askers -= 1
            with suppress(OSError):
                writer.close()

    def _may(self, writer: asyncio.StreamWriter) -> bool:
        ends = writer.get_extra_info("socket")
        found = ends.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS_BYTES)
        uid = array("i", found)[1]
        if uid in (0, self._owner):
            return True
        self._host.rated.event(events.AMQP_REFUSED, WARNING, "operators", peer=f"uid {uid}",
                               user="?", reason="only the owner and root see the connections")
        return False

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            asked = json.loads(line)
            do = asked["do"]
            if do == "list":
                return self._list()
            if do == "reload":
                self._reload()
                return {"reloaded": True}
            if do == "close":
                link = asked.get("link")
                return {"closed": self._end(int(asked["connection"]), str(asked["reason"]),
                                            str(asked["by"]), None if link is None else str(link))}
        except (ValueError, TypeError, KeyError, RecursionError):
            pass
        return {"error": "it is a line of JSON: do, and what that needs"}

    def _list(self) -> dict[str, Any]:
        now_s = asyncio.get_running_loop().time()
        return {"connections": len(self._host.sessions),
                "told": self._rates.told(now_s, self._host.sessions)}

    def _end(self, number: int, reason: str, by: str, link: str | None) -> bool:
        found = numbered(self._host.sessions, number)
        if found is None:
            return False
        said = escape(reason, REASON_MAX)
        if link is not None and not found.dismiss_link(
                link, f"an operator closed this link: {said}"):
            return False
        what = {} if link is None else {"link": escape(link, TEXT_MAX)}
        self._host.context.log.event(
            events.AMQP_CLOSED, REPORT, peer=found.peer,
            user=found.user.name if found.user is not None else "?", by=escape(by, 64),
            reason=said, **what)
        if link is None:
            found.dismiss(f"an operator closed this connection: {said}")
        return True


def numbered(sessions: Iterable[Guest], number: int) -> Guest | None:
    """The connection with this number."""
    return next((each for each in sessions if each.number == number), None)


def _bound(path: Path) -> socket.socket:
    with socket_name(path) as name:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.bind(name)
            os.chmod(name, 0o600)
        except OSError:
            made.close()
            raise
    return made


