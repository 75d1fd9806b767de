"""A message's life through all mail services, with a list of queues in place of the manager."""

from __future__ import annotations

import email
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omq.services.mail.error_manager import ErrorManagerService
from omq.services.mail.local_delivery import LocalDeliveryService
from omq.services.mail.mail_message import Envelope
from omq.services.mail.router import RouterService
from omq.services.mail.unix_out import UnixOutService
from omq.services.readers.service import Done, Move, Service
from tests.unit.services.mail.conftest import sent_by

KINDS: dict[str, tuple[type[Service], str]] = {
    "ROUTER": (RouterService, "router"), "LOCAL": (LocalDeliveryService, "local"),
    "UNIX": (UnixOutService, "unix"), "ERRMGR": (ErrorManagerService, "errmgr")}


class Queues:
    """Hands each message to the service of each of its queues until nothing is left."""

    def __init__(self, services: dict[str, Any], message: Callable[..., Any]) -> None:
        self._services, self._message = services, message
        self._waiting: deque[tuple[str, str, Any]] = deque()
        self._next_id = 0
        self.ended: list[tuple[str, bytes]] = []  # on queues that nobody reads

    def put(self, queues: tuple[str, ...], body: bytes, properties: Any, priority: int = 4) -> None:
        self._next_id += 1
        for queue in queues:
            self._waiting.append((queue, f"{self._next_id:048x}", (body, properties, priority)))

    def run(self, *, twice: bool) -> None:
        """`twice`: every message is handled a second time, as if each first reader had died."""
        while self._waiting:
            queue, message_id, (body, properties, priority) = self._waiting.popleft()
            service = self._services.get(queue)
            if service is None:
                self.ended.append((queue, body))
                continue
            made = self._message(body, properties, queue=queue, message_id=message_id,
                                 priority=priority)
            answer = (sent_by(service, made) if isinstance(service, UnixOutService)
                      else service.handle(made))
            if twice and queue != "UNIX":  # SMTP cannot promise once (RFC 1047)
                made.redelivered = True
                answer = service.handle(made)
            if answer == Done():
                continue
            assert isinstance(answer, Move)
            self.put(answer.queues, body, properties, priority)
            for new in answer.new:
                assert new.priority is not None
                self.put(new.queues, new.body, dict(new.properties), new.priority)


def test_every_recipient_has_every_message_once(service: Callable[..., Any], tmp_path: Path,
                                                message: Callable[..., Any], sink: Any) -> None:
    far = sink({"RCPT gone@far.test": "550 5.1.1 gone"})
    routes = (f"[local]\ndomains = here.test\nusers = alice, bob, carol, sender\n"
              f"[peers]\n* = 127.0.0.1:{far.port}\n")
    (tmp_path / "conf" / "routes.conf").write_text(routes)
    queues = Queues({queue: service(kind, name) for queue, (kind, name) in KINDS.items()}, message)
    recipients = ("alice@here.test", "bob@here.test", "carol@here.test", "x@far.test",
                  "gone@far.test", "nobody@here.test")
    body = (b"To: alice@here.test, x@far.test, gone@far.test, nobody@here.test\r\n"
            b"Cc: bob@here.test\r\nSubject: life\r\n\r\n.dots\r\n\xff\r\n")
    queues.put(("ROUTER",), body, Envelope("sender@here.test", recipients).properties())
    queues.run(twice=True)

    def mailbox(user: str) -> list[bytes]:
        return [path.read_bytes() for path in (tmp_path / "spool/mail" / user / "new").iterdir()]

    for user in ("alice", "bob", "carol"):
        (delivered,) = mailbox(user)
        assert delivered.split(b"\r\n", 2)[2] == body
    assert [each[1:3] for each in far.received] == [(["x@far.test"], body)]
    reports = [email.message_from_bytes(each) for each in mailbox("sender")]
    failed = sorted(part["Final-Recipient"] for each in reports for part in each.walk()
                    if part["Final-Recipient"])
    assert failed == ["rfc822; gone@far.test", "rfc822; nobody@here.test"]
    assert queues.ended == []


def test_a_report_that_cannot_be_delivered_ends_on_the_error_queue(
        service: Callable[..., Any], message: Callable[..., Any]) -> None:
    routes = "[local]\ndomains = here.test\nusers = alice\n"
    queues = Queues({"ROUTER": service(RouterService, "router", routes),
                     "ERRMGR": service(ErrorManagerService, "errmgr")}, message)
    queues.put(("ROUTER",), b"\r\n", Envelope("x@here.test", ("y@here.test",)).properties())
    queues.run(twice=False)
    ((queue, body),) = queues.ended
    assert queue == "ERROR"
    assert b"rfc822; y@here.test" in body
