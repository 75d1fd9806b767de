"""A milter of tests: it says at each stage what the test wants, and notes what it was told."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field

CONTINUE = b"c"


def packet(data: bytes) -> bytes:
    """A packet with its length before it."""
    return struct.pack("!I", len(data)) + data


@dataclass
class TestMilter:
    """`says`: by command the bytes that answer it, raw; none: continue. `steps`: as negotiated."""

    __test__ = False
    says: dict[bytes, bytes] = field(default_factory=dict)
    steps: int = 0
    version: int = 6
    silent: bytes = b""  # commands that are never answered
    seen: list[tuple[bytes, bytes]] = field(default_factory=list)
    ended: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._open: list[socket.socket] = []
        self.place = f"inet:127.0.0.1:{self._listener.getsockname()[1]}"
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(60)
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def told(self, command: bytes) -> list[bytes]:
        """What came with this command."""
        return [data for each, data in self.seen if each == command]

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection, connection.makefile("rb") as stream:
            while len(head := stream.read(4)) == 4:
                data = stream.read(struct.unpack("!I", head)[0])
                command = data[:1]
                self.seen.append((command, data[1:]))
                if command == b"Q":
                    return
                if command in (b"D", b"A") or command in [bytes((each,)) for each in self.silent]:
                    continue
                default = (packet(b"O" + struct.pack("!III", self.version, 0x1FF, self.steps))
                           if command == b"O" else packet(CONTINUE))
                connection.sendall(self.says.get(command, default))


def header(command: bytes, name: str, value: str, index: int | None = None) -> bytes:
    """A change of a header."""
    number = b"" if index is None else struct.pack("!I", index)
    return packet(command + number + name.encode() + b"\0" + value.encode() + b"\0")
