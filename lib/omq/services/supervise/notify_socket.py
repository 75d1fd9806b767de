"""The receiving side of the notification protocol, for the embedded supervisor.

One datagram socket per child in the abstract namespace: no file to leave behind and no limit on the
length of the spool's path. The kernel attaches the sender's pid and uid to each datagram
(SO_PASSCRED), so only the child itself is believed (systemd's NotifyAccess=main).

Invariant: whatever arrives, `receive` returns parsed fields or nothing; it never raises on bytes.
"""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass

_DATAGRAM_BYTES_MAX = 4096  # a STATUS line; longer ones are cut by the kernel
_CREDENTIALS_BYTES = 12  # struct ucred: pid, uid, gid
_NAME_RANDOM_BYTES = 8


@dataclass(frozen=True, slots=True)
class Notice:
    """One datagram: its fields, the last value of each key."""

    fields: dict[str, str]

    def flag(self, name: str) -> bool:
        return self.fields.get(name) == "1"

    def seconds(self, name: str) -> float | None:
        """A *_USEC field in seconds."""
        text = self.fields.get(name, "")
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            return None
        return int(text) / 1_000_000


class NotifySocket:
    """The socket of one child, for as long as the supervisor knows that child."""

    def __init__(self, service: str) -> None:
        random = secrets.token_hex(_NAME_RANDOM_BYTES)
        self._name = f"omq/{os.getpid()}/{service}/{random}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind("\0" + self._name)

    @property
    def address(self) -> str:
        """The value for NOTIFY_SOCKET."""
        return "@" + self._name

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self, pid: int) -> list[Notice]:
        """All that waits and was sent by process `pid` itself."""
        found: list[Notice] = []
        while True:
            try:
                data, control, _flags, _address = self._socket.recvmsg(
                    _DATAGRAM_BYTES_MAX, socket.CMSG_SPACE(_CREDENTIALS_BYTES)
                )
            except BlockingIOError:
                return found
            if pid != 0 and _sender(control) == pid:
                found.append(Notice(_parse(data)))

    def close(self) -> None:
        self._socket.close()


def _sender(control: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in control:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            return int(memoryview(data[:_CREDENTIALS_BYTES]).cast("i")[0])
    return 0


def _parse(data: bytes) -> dict[str, str]:
    text = data.decode("utf-8", "replace")
    pairs = (line.partition("=") for line in text.split("\n"))
    return {key: value for key, equals, value in pairs if equals}
