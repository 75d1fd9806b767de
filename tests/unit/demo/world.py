"""A mail switch that delivers what the demo sent by itself, so that tests can spoil the result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.demo.arrivals import maildir_arrivals, sink_arrivals
from tests.demo.mails import Mail, Sent, as_delivered, is_local, is_unknown, store
from tests.demo.transaction import Outcome
from tests.demo.verify import Findings, verify

REPORT = b"""From: postmaster@omq.test
Content-Type: multipart/report; report-type=delivery-status; boundary="x"

--x
Content-Type: message/delivery-status

Reporting-MTA: dns; omq.test

Final-Recipient: rfc822; %b
Action: failed
Status: 5.1.1

--x
Content-Type: text/rfc822-headers

%b
--x--
""".replace(b"\n", b"\r\n")


@dataclass
class World:
    """The Maildirs and the sink's folder after a delivery without fault."""

    root: Path
    mails: list[Mail]
    sent: list[Sent] = field(default_factory=list)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    reports: list[Path] = field(default_factory=list)
    number: int = 0

    def __post_init__(self) -> None:
        self.sent = store(self.mails, self.root / "sent")
        self.outcomes = {mail.demo_id: Outcome(accepted=True) for mail in self.mails}
        (self.root / "sink").mkdir()
        for mail in self.mails:
            self.deliver(mail)

    def deliver(self, mail: Mail) -> None:
        data = b"Received: from here by there\r\n\twith test\r\n" + as_delivered(mail.data)
        known = [name for name in mail.recipients if not is_unknown(name)]
        remote = [name for name in known if not is_local(name)]
        visible = tuple(name for name in remote if name not in mail.hidden)
        for group in (visible, *((name,) for name in remote if name in mail.hidden)):
            if group:
                self.to_sink(group, data)
        for name in filter(is_local, known):
            self.to_mailbox(name, data)
        for name in filter(is_unknown, mail.recipients if mail.sender else ()):
            self.reports.append(self.report(mail, name, mail.sender))

    def report(self, mail: Mail, failed: str, receiver: str) -> Path:
        """Deliver a report about a recipient."""
        head = mail.data.partition(b"\r\n\r\n")[0] + b"\r\n"
        data = REPORT % (failed.encode(), head)
        if is_local(receiver):
            return self.to_mailbox(receiver, data)
        return self.to_sink((receiver,), data)

    def to_mailbox(self, name: str, data: bytes) -> Path:
        maildir = self.root / "mail" / name.partition("@")[0]
        for part in ("tmp", "new", "cur"):
            (maildir / part).mkdir(parents=True, exist_ok=True)
        self.number += 1
        path = maildir / ("new", "cur")[self.number % 2] / f"{self.number}.x"
        path.write_bytes(b"Return-Path: <x@y>\r\nDelivered-To: " + name.encode() + b"\r\n" + data)
        return path

    def to_sink(self, names: tuple[str, ...], data: bytes) -> Path:
        self.number += 1
        path = self.root / "sink" / f"{self.number:08d}-{len(names):02d}.msg"
        head = json.dumps({"sender": "", "recipients": names, "options": []})
        path.write_bytes(head.encode() + b"\n" + data)
        return path

    def findings(self) -> Findings:
        arrivals = [*maildir_arrivals(self.root / "mail"), *sink_arrivals(self.root / "sink")]
        return verify(self.sent, self.outcomes, arrivals)

    def files(self, mail: Mail, *, local: bool) -> Iterator[Path]:
        """The files that a message arrived in."""
        mark = b"\r\nX-Demo-Id: " + mail.demo_id.encode() + b"\r\n"
        found = self.root.glob("mail/*/*/*.x" if local else "sink/*.msg")
        return (path for path in found if mark in path.read_bytes().partition(b"\r\n\r\n")[0])


def has_mailbox(name: str) -> bool:
    """Whether the address is that of a local user."""
    return is_local(name) and not is_unknown(name)
