"""How omq-sendmail hands in a mail: to mail.drop, else straight to the queue manager.

Where run/drop.sock has a listener the mail goes there, whether the queue manager runs or not. Where
it has none the mail is put on ROUTER as omsend -t does, which takes the right to put there and a
manager that runs. Nothing else is tried: a mail that nobody has taken is its author's.

Errors: NobodyTakesMail (temporary); those of mail.drop, as it says them; those of the client
library.
"""

from __future__ import annotations

import json
import os
import socket
from types import TracebackType
from typing import Any, Final, Self

import omq
from omq.base.errors import BadRequest, ManagerUnavailable, NobodyTakesMail, from_status
from omq.base.names import ROUTER
from omq.base.settings import Settings
from omq.base.socket_name import socket_name
from omq.services.daemon.options import Location
from omq.services.mail.drafts import Author, submission
from omq.services.mail.drop_protocol import ANSWER_BYTES_MAX, Request

NAME: Final = "omq-sendmail"
_PATIENCE_S: Final = 300.0
"""For an answer of mail.drop: a slow disk, many others; beyond it, it hangs."""


class Hand:
    """A connection to whoever takes mail, opened with the first one. Use it in a `with`."""

    def __init__(self, location: Location, settings: Settings) -> None:
        self._location, self._settings = location, settings
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._close()

    def give(self, request: Request, draft: bytes) -> str:
        """The id of the mail, which is safe now."""
        if self._socket is None:
            self._socket = self._connected()
        if self._socket is None:
            return self._put(request, draft)
        try:
            answer = _asked(self._socket, request, draft)
        except OSError as error:
            self._close()
            raise NobodyTakesMail(reason=f"mail.drop went away: {error.strerror or error}"
                                  ) from error
        if "id" in answer:
            return str(answer["id"])
        refusal = from_status(answer.get("status", 1), answer.get("fields", {}))
        if not isinstance(refusal, BadRequest):
            self._close()
        raise refusal

    def _connected(self) -> socket.socket | None:
        """To mail.drop; None: it is not there, or may not be asked."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_PATIENCE_S)
        try:
            with socket_name(self._location.paths.drop_socket) as name:
                connection.connect(name)
        except OSError:
            connection.close()
            return None
        return connection

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _put(self, request: Request, draft: bytes) -> str:
        author = Author(NAME, os.getuid(), request.name)
        made = submission(draft, request.to, request.sender, self._settings, author,
                          read=request.read)
        try:
            with omq.connect(spool=self._location.paths.root, name=NAME,
                             timeout_s=self._settings.connect_timeout_s) as connection:
                return str(connection.put(ROUTER, made.body, priority=made.priority,
                                          persistent=True, properties=made.envelope.properties()))
        except ManagerUnavailable as error:
            raise NobodyTakesMail(reason=str(error)) from error


def _asked(connection: socket.socket, request: Request, draft: bytes) -> dict[str, Any]:
    """The answer; OSError where none comes."""
    try:
        connection.sendall(request.encode())
        connection.sendall(draft)
    except (BrokenPipeError, ConnectionResetError):
        pass  # refused before all of it was read: the answer is there
    line = b""
    while not line.endswith(b"\n"):
        piece = connection.recv(ANSWER_BYTES_MAX)
        if not piece or len(line) > ANSWER_BYTES_MAX:
            raise ConnectionResetError("it gave no answer")
        line += piece
    found = json.loads(line)
    return found if isinstance(found, dict) else {}
