"""Memory of smtp.server with many sessions that say EHLO and wait, plain and over TLS.

`python -m tests.bench.smtp_sessions [COUNT]`: resident memory of a server process before and with
them (VmRSS). Client and server are two processes; the queue manager is not asked.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import signal
import socket
import ssl
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from omq.base.event_log import EventLog
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.services.daemon.daemon import DaemonContext
from omq.services.daemon.notify import Notifier
from omq.services.daemon.options import Location
from omq.services.daemon.signals import Signals
from omq.services.mail.smtp_server import PORT_FILE, SmtpServer, return_large_memory
from omq.services.network.tls import bound_buffers
from tests.unit.services.mail.smtp.certificates import Certificates
from tests.unit.services.mail.smtp.conftest import Manager

COUNT: Final = 1000


def resident_kib(pid: int) -> int:
    """VmRSS."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise ProcessLookupError(pid)


def serve(folder: Path, certificate: Path, count: int, ready: int) -> None:
    """The server's process, until SIGTERM."""
    return_large_memory()
    bound_buffers()
    paths = SpoolPaths(folder / "spool")
    paths.logs.mkdir(parents=True)
    paths.run.mkdir()
    (folder / "conf").mkdir()
    settings = replace(Settings(), smtp_listen_port=0, smtp_tls_certificate=str(certificate),
                       smtp_sessions_reserved=0,
                       smtp_sessions_max=count + 10, smtp_client_sessions_max=count + 10,
                       smtp_client_connections_max=0)
    signals = Signals()
    signals.install()
    context = DaemonContext(
        "smtp.server", "smtp", argparse.Namespace(), Location(None, paths, folder / "conf"),
        settings, EventLog("smtp.server", paths.event_log, stderr=False), _Ready(ready), signals)

    async def run() -> int:
        return await SmtpServer(context, Manager().connect).run()

    asyncio.run(run())


class _Ready(Notifier):
    def __init__(self, file: int) -> None:
        super().__init__({})
        self._file = file

    def ready(self, status: str = "") -> None:
        os.write(self._file, b"x")


def session(port: int, context: ssl.SSLContext | None) -> socket.socket:
    """One that said EHLO."""
    line = socket.create_connection(("127.0.0.1", port))
    line.recv(1000)
    if context is not None:
        line.sendall(b"EHLO a\r\n")
        line.recv(1000)
        line.sendall(b"STARTTLS\r\n")
        line.recv(1000)
        line = context.wrap_socket(line)
    line.sendall(b"EHLO a\r\n")
    line.recv(1000)
    return line


def measured(folder: Path, certificates: Certificates, kind: str, count: int, pid: int,
             ready: int) -> tuple[int, int]:
    """Resident KiB of the server without and with the sessions."""
    os.read(ready, 1)
    port = int((folder / "spool/run" / PORT_FILE).read_text(encoding="ascii").split()[1])
    context = certificates.client(check_hostname=False) if kind == "tls" else None
    session(port, context).close()  # what the first one loads is no cost of a session
    idle = resident_kib(pid)
    lines = [session(port, context) for _ in range(count)]
    busy = resident_kib(pid)
    for each in lines:
        each.close()
    return idle, busy


def main(argv: list[str]) -> int:
    """Prints a JSON line for each kind."""
    count = int(argv[0]) if argv else COUNT
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * count + 100), hard))
    for kind in ("plain", "tls"):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            certificates = Certificates(folder)
            certificate = certificates.make("localhost")
            reading, writing = os.pipe()
            pid = os.fork()
            if not pid:
                serve(folder, certificate, count, writing)
                os._exit(0)
            try:
                idle, busy = measured(folder, certificates, kind, count, pid, reading)
            finally:
                os.kill(pid, signal.SIGTERM)
                os.waitpid(pid, 0)
                for file in (reading, writing):
                    os.close(file)
        print(json.dumps({"kind": kind, "sessions": count, "idle_kib": idle, "with_kib": busy,
                          "kib_a_session": round((busy - idle) / count, 1)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
