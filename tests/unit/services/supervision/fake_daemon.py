"""A daemon that does what a test tells it: `fake_daemon.py NAME JOURNAL BEHAVIOUR`.

It speaks the notification protocol by itself (not through omq) and appends what happens to it to
JOURNAL, one line each. Behaviours: see `main`.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path


class Fake:
    def __init__(self, name: str, journal: Path) -> None:
        self.name = name
        self.journal = journal

    def note(self, event: str) -> None:
        fd = os.open(self.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, f"{self.name} {event}\n".encode())
        os.close(fd)

    def notify(self, text: str) -> None:
        address = os.environ["NOTIFY_SOCKET"]
        assert address.startswith("@")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect("\0" + address[1:])
            sender.sendall(text.encode())

    def serve(self) -> None:
        """Until SIGTERM; SIGHUP is noted. Signals are taken, not handled: one that comes between
        READY and a pause() would be lost to the pause."""
        heard = {signal.SIGTERM, signal.SIGHUP}
        signal.pthread_sigmask(signal.SIG_BLOCK, heard)
        self.note("start")
        self.notify("READY=1\nSTATUS=at work")
        while signal.sigwait(heard) != signal.SIGTERM:
            self.notify("STATUS=reloaded")
        self.note("stop")
        self.notify("STOPPING=1")


def main() -> None:
    name, journal, behaviour = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    fake = Fake(name, journal)
    if behaviour.startswith("gate:"):  # ready only when the test writes into a FIFO
        fake.note("waits")
        fake.notify("STATUS=replaying")
        fake.notify("EXTEND_TIMEOUT_USEC=60000000")
        Path(behaviour.removeprefix("gate:")).read_bytes()
    elif behaviour.startswith("once:"):  # dies at the first start
        mark = Path(behaviour.removeprefix("once:"))
        if not mark.exists():
            mark.touch()
            sys.exit(70)
    elif behaviour.startswith("exit:"):
        sys.exit(int(behaviour.removeprefix("exit:")))
    elif behaviour == "silent":  # never ready
        fake.notify("STATUS=thinks")
        signal.pause()
    elif behaviour == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        fake.notify("READY=1")
        while True:
            signal.pause()
    elif behaviour.startswith("hang:"):  # announces a watchdog, then no more pings (once)
        mark = Path(behaviour.removeprefix("hang:"))
        if not mark.exists():
            mark.touch()
            fake.notify("READY=1\nWATCHDOG=1")
            signal.pause()
    elif behaviour == "orphan":  # forks a child that ignores SIGTERM and outlives its parent
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            fake.note(f"orphan {os.getpid()}")
            fake.notify("READY=1")  # not from the main process: must not count
            while True:
                signal.pause()
    fake.serve()


if __name__ == "__main__":
    main()
