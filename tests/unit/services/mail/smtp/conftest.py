"""A running smtp.server with a queue manager that does what the test says."""

from __future__ import annotations

import argparse
import asyncio
import signal
import smtplib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import argon2
import pytest

from omq import Outgoing
from omq.base.errors import MessageTooLong
from omq.base.event_log import EventLog
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.services.daemon.daemon import DaemonContext
from omq.services.daemon.notify import Notifier
from omq.services.daemon.options import Location
from omq.services.daemon.signals import Signals
from omq.services.mail.smtp_handler import Listener
from omq.services.mail.smtp_server import PORT_FILE, SmtpServer
from tests.unit.services.mail.smtp.certificates import Certificates

ROUTES = "[local]\ndomains = here.test\n[aliases]\nlist@other.test = a\n"
TIMEOUT_S = 120


class FakeSignals(Signals):
    """Signals without the kernel's: only the main thread may install those."""

    def __init__(self) -> None:
        super().__init__()
        self._pair = socket.socketpair()
        for end in self._pair:
            end.settimeout(0)

    def send(self, number: int) -> None:
        assert self._pair is not None
        if number == signal.SIGTERM:
            self.request_stop()
        else:
            self.request_reload()
        self._pair[1].send(b"x")


class ReadyNotifier(Notifier):
    """Tells the test, as it would the supervisor."""

    def __init__(self, event: threading.Event) -> None:
        super().__init__({})
        self._event = event

    def ready(self, status: str = "") -> None:
        self._event.set()


@dataclass
class Manager:
    """The queue manager as the intake sees it: `put` does what the test says."""

    puts: list[tuple[str, bytes, int, dict[str, str]]] = field(default_factory=list)
    error: Exception | None = None
    gate: threading.Event | None = None
    entered: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    connections: int = 0
    closed: int = 0
    threads: set[int] = field(default_factory=set)
    batches: list[int] = field(default_factory=list)
    messages: list[Outgoing] = field(default_factory=list)
    refuses: Callable[[Outgoing], bool] = lambda _: False

    def connect(self) -> Connection:
        self.connections += 1
        return Connection(self)

    def put_many(self, queue: str, messages: Sequence[Outgoing]) -> list[str]:
        self.batches.append(len(messages))
        self.threads.add(threading.get_ident())
        self.entered.release()
        if self.gate is not None:
            assert self.gate.wait(TIMEOUT_S)
        if self.error is not None:
            raise self.error
        if any(self.refuses(each) for each in messages):
            raise MessageTooLong(size=1, queue=queue, limit=1)
        for each in messages:
            assert each.persistent, "mail is acknowledged when it is durable"
            assert each.priority is not None
            self.puts.append((queue, each.body, each.priority, dict(each.properties)))
            self.messages.append(each)
        ids = [each.message_id for each in messages]
        return [each.hex() if isinstance(each, bytes) else each for each in ids]


class Connection:
    """One connection to it."""

    def __init__(self, manager: Manager) -> None:
        self.put_many = manager.put_many
        self._manager = manager

    def close(self) -> None:
        self._manager.closed += 1


@dataclass
class Running:
    """A server in a thread."""

    manager: Manager
    context: DaemonContext
    signals: FakeSignals
    thread: threading.Thread
    port: int

    def port_of(self, listener: Listener) -> int:
        return int((self.context.paths.run / listener.value).read_text().split()[1])

    def client(self, **more: Any) -> smtplib.SMTP:
        return smtplib.SMTP("127.0.0.1", self.port, local_hostname="client.test",
                            timeout=TIMEOUT_S, **more)

    def dialogue(self, data: bytes) -> list[bytes]:
        """Send all at once, as one pipeline that ends in QUIT; the reply lines."""
        with socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S) as peer:
            peer.sendall(data + b"QUIT\r\n")
            with peer.makefile("rb") as answers:
                return answers.read().split(b"\r\n")[:-1]

    def stop(self) -> None:
        self.signals.send(signal.SIGTERM)
        self.thread.join(TIMEOUT_S)
        assert not self.thread.is_alive()


@pytest.fixture
def context(tmp_path: Path, conf_dir: Path) -> Iterator[DaemonContext]:
    (conf_dir / "routes.conf").write_text(ROUTES)
    paths = SpoolPaths(tmp_path / "spool")
    paths.logs.mkdir(parents=True)
    paths.run.mkdir()
    log = EventLog("smtp.server", paths.event_log, stderr=False)
    signals = FakeSignals()
    yield DaemonContext("smtp.server", "smtp", argparse.Namespace(),
                        Location(None, paths, conf_dir),
                        Settings(hostname="mx.test", smtp_listen_port=0), log, Notifier({}),
                        signals)
    log.close()
    signals._close_pair()


@pytest.fixture
def server(context: DaemonContext) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(**settings: Any) -> Running:
        chosen = replace(context, settings=replace(context.settings, **settings))
        manager, ready = Manager(), threading.Event()
        chosen = replace(chosen, notifier=ReadyNotifier(ready))

        async def run() -> int:
            return await SmtpServer(chosen, manager.connect).run()

        thread = threading.Thread(target=lambda: asyncio.run(run()))
        thread.start()
        assert ready.wait(TIMEOUT_S)
        assert isinstance(chosen.signals, FakeSignals)
        port = int((chosen.paths.run / PORT_FILE).read_text().split()[1])
        running = Running(manager, chosen, chosen.signals, thread, port)
        started.append(running)
        return running

    yield start
    for each in started:
        each.stop()


@pytest.fixture
def manager() -> Manager:
    """For a server that the test starts by itself."""
    return Manager()


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
def tls(certificates: Certificates, server: Callable[..., Running]) -> Callable[..., Running]:
    """A server with a certificate for localhost."""
    def start(**settings: Any) -> Running:
        path = certificates.make("localhost")
        return server(smtp_tls_certificate=str(path), **settings)

    return start


@pytest.fixture
def users(tmp_path: Path, tls: Callable[..., Running]) -> Callable[..., Running]:
    """One with ports for mail programs; alice's password is "secret"."""
    def start(**settings: Any) -> Running:
        quick = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
        path = tmp_path / "users"
        path.write_text(f"# who may\nalice:{{ARGON2ID}}{quick.hash('secret')}\n\n"
                        f"bob@here.test:{quick.hash('geheim')}\n")
        path.chmod(0o600)
        return tls(submission_users=str(path), submission_port=0, submissions_port=0, **settings)

    return start
