"""beanstalkd with a binary log, spoken to by its own protocol: commands are pipelined."""

from __future__ import annotations

import socket

from tests.bench.instance import BenchError
from tests.bench.peers import software
from tests.bench.peers.peer import ServerPeer, Wire
from tests.bench.peers.processes import free_port

_TTR_S = 3600
_RECEIVE_BYTES = 1 << 20


class BeanstalkPeer(ServerPeer):
    name = "beanstalkd"
    title = "beanstalkd"
    lean = True
    settings = (
        "-f 0 (fsync at every write of the log), log files of 64 MiB; commands pipelined on one "
        "connection: n puts; delete of the last n and n reserves for the next; a client of its "
        "own protocol, since the usual libraries send one command at a time")

    def version(self) -> str:
        return software.version([software.program("usr/bin/beanstalkd"), "-v"])

    def start(self) -> None:
        self.port = free_port()
        log = self.folder / "binlog"
        log.mkdir(exist_ok=True)
        self.server.start([software.program("usr/bin/beanstalkd"), "-l", "127.0.0.1",
                            "-p", str(self.port), "-b", log, "-f", "0", "-s", str(64 << 20)],
                           software.environment())
        self.server.wait_port(self.port)

    def putter(self) -> Wire:
        return BeanstalkWire(self.port)

    def getter(self, number: int, batch: int) -> Wire:
        del number, batch
        return BeanstalkWire(self.port)

    def waiting(self) -> int:
        wire = BeanstalkWire(self.port)
        try:
            return wire.jobs()
        finally:
            wire.close()


class BeanstalkWire:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()
        self._at = 0
        self._held: list[bytes] = []

    def put(self, bodies: list[bytes]) -> None:
        self._socket.sendall(b"".join(
            b"put 1024 0 %d %d\r\n%b\r\n" % (_TTR_S, len(body), body) for body in bodies))
        for _ in bodies:
            self._expect(b"INSERTED ")

    def take(self, count: int, timeout_s: float) -> list[bytes]:
        """Reserves that do not wait, then, if all were in vain, one that does: beanstalkd counts
        in whole seconds, so `timeout_s` becomes one."""
        del timeout_s
        deletes = b"".join(b"delete %b\r\n" % job for job in self._held)
        self._socket.sendall(deletes + b"reserve-with-timeout 0\r\n" * count)
        for _ in self._held:
            self._expect(b"DELETED")
        found = [each for each in (self._reserved() for _ in range(count)) if each is not None]
        if not found:
            self._socket.sendall(b"reserve-with-timeout 1\r\n")
            found = [each for each in (self._reserved(),) if each is not None]
        self._held = [job for job, _ in found]
        return [body for _, body in found]

    def jobs(self) -> int:
        self._socket.sendall(b"stats\r\n")
        size = int(self._expect(b"OK ").split()[1])
        text = self._exactly(size + 2).decode()
        counts = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
        return sum(int(counts[f"current-jobs-{state}"])
                   for state in ("ready", "reserved", "delayed", "buried"))

    def close(self) -> None:
        self._socket.sendall(b"".join(b"delete %b\r\n" % job for job in self._held))
        for _ in self._held:
            self._expect(b"DELETED")
        self._socket.close()

    def abandon(self) -> None:
        self._socket.close()

    def _reserved(self) -> tuple[bytes, bytes] | None:
        line = self._line()
        if line == b"TIMED_OUT":
            return None
        word, job, size = line.split()
        if word != b"RESERVED":
            raise BenchError(f"beanstalkd says {line!r}")
        return job, self._exactly(int(size) + 2)[:-2]

    def _expect(self, start: bytes) -> bytes:
        line = self._line()
        if not line.startswith(start):
            raise BenchError(f"beanstalkd says {line!r}, not {start!r}")
        return line

    def _line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n", self._at)) < 0:
            self._receive()
        line = bytes(self._buffer[self._at : end])
        self._at = end + 2
        return line

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) - self._at < size:
            self._receive()
        data = bytes(self._buffer[self._at : self._at + size])
        self._at += size
        return data

    def _receive(self) -> None:
        del self._buffer[: self._at]
        self._at = 0
        data = self._socket.recv(_RECEIVE_BYTES)
        if not data:
            raise BenchError("beanstalkd closed the connection")
        self._buffer += data
