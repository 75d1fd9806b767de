"""What the tests of the mail services share: messages, services in a context, real SMTP peers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP

from omq.base.event_log import EventLog
from omq.base.paths import SpoolPaths
from omq.base.services_conf import load_services
from omq.base.settings import Settings
from omq.services.delivery.mlist import Cause, Wait
from omq.services.delivery.service import Plan
from omq.services.mail.unix_out import UnixOutService
from omq.services.readers.service import Disposition, Service, ServiceContext

MESSAGE_ID = "4f4d5131" + "00" * 19 + "2a"


@dataclass
class FakeMessage:
    """As the queue manager hands it out."""

    body: bytes
    properties: Mapping[str, str]
    queue: str = "ROUTER"
    message_id: str = MESSAGE_ID
    qpool_id: int = 42
    priority: int = 4
    attempts: int = 0
    defers: int = 0
    redelivered: bool = False
    put_time_ns: int = 1_700_000_000_000_000_000
    correlation_id: bytes = b""
    reply_to: str = ""
    group_id: str = ""
    container: Path | None = None

    @property
    def texts(self) -> Mapping[str, str]:
        return self.properties

    @property
    def size(self) -> int:
        return len(self.body)


@pytest.fixture
def message() -> Callable[..., FakeMessage]:
    def make(body: bytes, properties: Mapping[str, str], **more: Any) -> FakeMessage:
        return FakeMessage(body, properties, **more)

    return make


@pytest.fixture
def conf_dir(tmp_path: Path) -> Path:
    path = tmp_path / "conf"
    path.mkdir()
    return path


@pytest.fixture
def service(tmp_path: Path, conf_dir: Path) -> Iterator[Callable[..., Any]]:
    """service(class, name, routes=text, **settings): an opened service; closed at the end."""
    opened: list[Service] = []

    def make(kind: type[Service], name: str, routes: str = "", **settings: Any) -> Service:
        if routes:
            (conf_dir / "routes.conf").write_text(routes)
        paths = SpoolPaths(tmp_path / "spool")
        paths.logs.mkdir(parents=True, exist_ok=True)
        log = EventLog(name, paths.event_log, stderr=False)
        # The messages of these tests are years old, so each delay would be told.
        chosen = replace(Settings(hostname="mx.test", delay_warning_s=0), **settings)
        conf = load_services(None)[name]
        made = kind(ServiceContext(chosen, paths, conf, conf_dir, log, is_main=True))
        made.open()
        opened.append(made)
        return made

    yield make
    for each in opened:
        if hasattr(each, "tests_worker"):
            each.tests_worker.close()
        each.close()
        each.context.log.close()


def sent_by(service: UnixOutService, message: Any) -> Disposition:
    """What becomes of a message of unix.out, brought to its peers one after the other by a worker
    in this process."""
    plan = service.plan(message)
    channel = getattr(service, "tests_channel", "smtp")
    if not hasattr(service, "tests_worker"):
        service.tests_worker = service.worker(channel)  # type: ignore[attr-defined]
    while isinstance(plan, Plan):
        results, wait = list(plan.results), None
        for group in plan.groups:
            worker = (service.tests_worker if group.channel == channel  # type: ignore[attr-defined]
                      else service.worker(group.channel))
            report = worker.send(
                plan.head | {"peer": group.peer, "recipients": list(group.recipients)},
                message.body)
            if worker is not service.tests_worker:  # type: ignore[attr-defined]
                worker.close()
            results += report.results
            if not report.reached:
                wait = Wait(60.0, report.reason, Cause.DOWN)
        plan = service.ended(message, results, wait)
    return plan


@pytest.fixture
def logged(tmp_path: Path) -> Callable[[], list[int]]:
    """The numbers of the events logged so far."""

    def read() -> list[int]:
        path = SpoolPaths(tmp_path / "spool").event_log
        return [json.loads(line)["event"] for line in path.read_text().splitlines()]

    return read


@dataclass
class Sink:
    """A real SMTP server in a thread. `replies` maps a command and its address to a reply line;
    the special reply "drop" cuts the connection."""

    replies: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    received: list[tuple[str, list[str], bytes, list[str]]] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    pipelining: bool = False

    def start(self) -> None:
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,))
        self._thread.start()
        assert ready.wait(120)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(120)
        assert not self._thread.is_alive()

    def _run(self, ready: threading.Event) -> None:
        asyncio.run(self._serve(ready))

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        self._open: set[SMTP] = set()
        server = await self._loop.create_server(self._session, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await self._stopped.wait()
        server.close()
        for session in self._open:
            if session.transport is not None:
                session.transport.close()
        await server.wait_closed()

    def _session(self) -> SMTP:
        self.connections += 1
        options: dict[str, Any] = {"enable_SMTPUTF8": True, "hostname": "sink.test"}
        session = SMTP(self, **options | self.options)
        self._open.add(session)
        return session

    async def _answer(self, server: Any, command: str, address: str) -> str | None:
        self.commands.append(f"{command} {address}".strip())
        reply = self.replies.get(f"{command} {address}".strip()) or self.replies.get(command)
        if reply == "drop":
            server.transport.abort()
            await asyncio.Event().wait()  # until the lost connection cancels this
        return reply

    async def handle_EHLO(self, server: Any, session: Any, envelope: Any, hostname: str,
                          responses: list[str]) -> list[str]:
        session.host_name = hostname
        return [*responses[:-1], "250-PIPELINING", responses[-1]] if self.pipelining else responses

    async def handle_MAIL(self, server: Any, session: Any, envelope: Any, address: str,
                          options: list[str]) -> str:
        reply = await self._answer(server, "MAIL", address)
        if reply is None:
            envelope.mail_from = address
            envelope.mail_options.extend(options)
        return reply or "250 OK"

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str,
                          options: list[str]) -> str:
        reply = await self._answer(server, "RCPT", address)
        if reply is None:
            envelope.rcpt_tos.append(address)
        return reply or "250 OK"

    async def handle_RSET(self, server: Any, session: Any, envelope: Any) -> str:
        return await self._answer(server, "RSET", "") or "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        reply = await self._answer(server, "DATA", "")
        if reply is None:
            self.received.append((envelope.mail_from, list(envelope.rcpt_tos),
                                  bytes(envelope.original_content), list(envelope.mail_options)))
        return reply or "250 2.0.0 taken"


@pytest.fixture(params=[False, True], ids=["one-by-one", "pipelined"])
def pipelining(request: pytest.FixtureRequest) -> bool:
    """Whether the sinks announce PIPELINING."""
    return bool(request.param)


@pytest.fixture
def sink(pipelining: bool) -> Iterator[Callable[..., Sink]]:  # noqa: FBT001 (a fixture)
    """sink(replies=…, **aiosmtpd options): a running SMTP server; stopped at the end."""
    running: list[Sink] = []

    def make(replies: dict[str, str] | None = None, **options: Any) -> Sink:
        made = Sink(dict(replies or {}), options, pipelining=pipelining)
        made.start()
        running.append(made)
        return made

    yield make
    for each in running:
        each.stop()


NASTY = {
    "empty": b"",
    "no header": b"hello\r\nBcc: not a field\r\n\r\nworld\r\n",
    "header only": b"Subject: x\r\n",
    "bare CR": b"Subject: a\rb\r\n\r\nx\ry\r\n",
    "bare LF": b"Subject: a\n\nx\ny\n",
    "smuggled end": b"A: b\r\n\r\nx\n.\r\nMAIL FROM:<x@y>\r\n",
    "NUL": b"Subject: \x00\r\n\r\n\x00\x00\r\n",
    "8-bit": b"Subject: \xff\xfe\r\nX: \xe9\r\n\r\n\xff\r\n",
    "long line": b"Subject: " + b"x" * 5000 + b"\r\n\r\n" + b"y" * 3000 + b"\r\n",
    "dots": b"A: b\r\n\r\n.\r\n..\r\n.a\r\n...\r\n",
    "many fields": b"".join(b"X-%d: y\r\n" % n for n in range(3000)) + b"\r\nbody\r\n",
    "many received": b"Received: x\r\n" * 20 + b"\r\nbody\r\n",
    "no final CRLF": b"A: b\r\n\r\nno end",
    "CR at the end": b"A: b\r\n\r\nx\r",
    "only CRLF": b"\r\n",
    "folded": b"To: a@b,\r\n\tc@d\r\n \r\nbody\r\n",
    "deep comment": b"To: " + b"(" * 20000 + b"\r\n\r\nx\r\n",
    "unclosed quote": b'To: "a\r\nCc: <<<>>>,,,@,;:\r\n\r\nx\r\n',
}


@pytest.fixture(params=list(NASTY.values()), ids=list(NASTY))
def nasty(request: pytest.FixtureRequest) -> bytes:
    """Each of the bodies that broke some mail program once."""
    body = request.param
    assert isinstance(body, bytes)
    return body
