"""`qmgr.sock`: the socket that clients come to, and how one is turned away at it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path
from typing import Final

from omq.base import modes
from omq.base.errors import OmqError
from omq.base.socket_name import socket_name

BACKLOG: Final = 1024
"""Callers that wait to be accepted: a burst of them must not make connect(2) fail for others. The
kernel takes no more than net.core.somaxconn."""
_DROPPED_BYTES: Final = 512 * 1024
"""More than a socket holds: what a caller has said already is read before it is turned away, so
that it sees the refusal and not a reset."""


def listen(path: Path, gid: int) -> socket.socket:
    """A listening socket that never waits, for the group `gid`. OSError."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.settimeout(0)
    with socket_name(path) as name:
        listener.bind(name)
    with contextlib.suppress(PermissionError):  # not the owner's group: owner only
        os.chown(path, -1, gid)
    path.chmod(modes.SOCKET)
    listener.listen(BACKLOG)
    return listener


def turn_away(connection: socket.socket, refusal: OmqError) -> None:
    """Say why and close; never waits."""
    answer = json.dumps({"status": refusal.status, "fields": refusal.fields})
    with contextlib.suppress(OSError):
        connection.recv(_DROPPED_BYTES)
    with contextlib.suppress(OSError):
        connection.send(answer.encode() + b"\n")
    connection.close()
