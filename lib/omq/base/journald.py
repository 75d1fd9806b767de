"""Events to systemd's journal with their fields, by its native protocol.

One datagram an event to /run/systemd/journal/socket (systemd.io/JOURNAL_NATIVE_PROTOCOL). Used
when stderr is the journal: JOURNAL_STREAM names its device and inode (systemd.exec(5)). Then
`journalctl OMQ_QUEUE=ROUTER`, `-p err` and `MESSAGE_ID=` work.

    MESSAGE PRIORITY SYSLOG_IDENTIFIER     what the journal shows
    MESSAGE_ID                             128 bits for each event number, the same for ever
    OMQ_EVENT OMQ_SERVICE OMQ_<FIELD>      the event and its fields, in capitals
    OMQ_LOG                                path of the instance's log file. The journal cannot name
                                           the unit of a process that has just ended; this can.

Invariants: 1. a journal that does not take it is not an error: `send` says so and the caller writes
to stderr; 2. nothing waits for the journal.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

SOCKET: Final = Path("/run/systemd/journal/socket")
_NAMESPACE: Final = uuid.UUID("5d3c8c52-70f1-4b8e-9a36-6f0f6d713001")
_STDERR: Final = 2


def message_id(number: int) -> str:
    """The journal's MESSAGE_ID of an event number."""
    return uuid.uuid5(_NAMESPACE, f"{number:04d}").hex


def is_journal(environ: Mapping[str, str], descriptor: int = _STDERR) -> bool:
    """Whether this descriptor leads to the journal."""
    stream = environ.get("JOURNAL_STREAM", "")
    if not stream:
        return False
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return stream == f"{status.st_dev}:{status.st_ino}"


class Journal:
    """The sending side; safe over a fork, as a datagram has no state."""

    def __init__(self, path: Path = SOCKET) -> None:
        self._path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(0)

    def send(self, fields: Mapping[str, str]) -> bool:
        """One entry; False when the journal did not take it."""
        try:
            self._socket.sendto(encode(fields), self._path)
        except OSError:
            return False
        return True

    def close(self) -> None:
        self._socket.close()


def encode(fields: Mapping[str, str]) -> bytes:
    """The datagram: `NAME=value`, or with its length where the value has several lines."""
    parts = []
    for name, value in fields.items():
        data = value.encode("utf-8", "backslashreplace")
        if b"\n" in data:
            size = len(data).to_bytes(8, "little")
            parts.append(name.encode("ascii") + b"\n" + size + data + b"\n")
        else:
            parts.append(name.encode("ascii") + b"=" + data + b"\n")
    return b"".join(parts)
