"""Checks and rewriting by service.router: of mail that programs of this host put on ROUTER
(mail.drop, omsend -t).

What came by SMTP has had both (omq.services.mail.smtp_cleaning), a report needs neither, and what
an operator released was looked at before it was held: the properties tell.

Nothing is kept: a message that is handed out again is checked again, from what was put.

Errors: MapFailed, CheckFailed: the mail waits.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from omq import Outgoing
from omq.base import names
from omq.services.mail import mail_message as mail
from omq.services.mail.dsn import DSN
from omq.services.mail.mail_log import arrival_ns
from omq.services.mail.map_errors import MapFailed
from omq.services.mail.rewriting import Class, asked, header_addresses, with_addresses

if TYPE_CHECKING:
    from omq.services.mail.content_checks import Checked
    from omq.services.mail.maps import Maps
    from omq.services.mail.rewriting import Rewriting
    from omq.services.mail.routes import Routes
    from omq.services.readers.service import Message

_NOT: Final = (mail.PEER, mail.ABOUT, mail.HELD)


@dataclass(frozen=True, slots=True)
class CheckedMail:
    """A message as its reader is to see it. `refusal`: an SMTP reply; `notes`: for mail.log."""

    body: bytes
    properties: Mapping[str, str]
    message_id: str
    put_time_ns: int
    priority: int
    correlation_id: bytes
    refusal: str = ""
    held: str = ""
    discarded: bool = False
    notes: tuple[str, ...] = field(default=())


def check_and_rewrite(message: Message, routes: Routes, scan_bytes: int) -> CheckedMail:
    """Mail of a program here has both, where there are any. MapFailed, CheckFailed."""
    body, properties = message.body, dict(message.properties)
    checked: Checked | None = None
    if (routes.checks or routes.rewriting) and not any(properties.get(each) for each in _NOT):
        if routes.checks:
            checked = routes.checks.now(body, scan_bytes)
            body = checked.text
            _note(properties, checked)
        if routes.rewriting and (checked is None or not checked.refusal):
            body = _rewritten(properties, body, routes.rewriting, scan_bytes)
    return CheckedMail(
        body, properties, message.message_id, message.put_time_ns, message.priority,
        message.correlation_id, *(() if checked is None else (
            checked.refusal, checked.held, checked.discarded, checked.notes)))


def held(seen: CheckedMail, mail_id: str) -> Outgoing:
    """The message on DEFER, which no service reads."""
    traced = mail.tracing(mail_id, arrival_ns(seen.properties, seen.put_time_ns))
    return Outgoing(seen.body, queues=(names.DEFER,), priority=seen.priority, persistent=True,
                    properties={**seen.properties, **traced, mail.HELD: seen.held},
                    correlation_id=seen.correlation_id)


def _note(properties: dict[str, str], checked: Checked) -> None:
    if checked.redirected:
        properties[mail.TO] = checked.redirected
    elif checked.added:
        properties[mail.TO] = "\n".join(dict.fromkeys(
            (*mail.lines(properties.get(mail.TO, "")), *checked.added)))


def _rewritten(properties: dict[str, str], body: bytes, rewriting: Rewriting, scan_bytes: int
               ) -> bytes:
    """The text; the envelope in the properties, too. MapFailed."""
    ends = time.monotonic() + rewriting.time_s

    def look(maps: Maps, key: str) -> tuple[str, ...] | None:
        if time.monotonic() > ends:
            raise MapFailed("[rewriting]", "too many look-ups that are slow")
        return asked(maps, key)

    def new(address: str, kind: Class) -> str:
        return rewriting.of(address, kind, look)

    properties[mail.FROM] = new(properties.get(mail.FROM, ""), Class.ENVELOPE_SENDER)
    recipients = {each: new(each, Class.ENVELOPE_RECIPIENT)
                  for each in mail.lines(properties.get(mail.TO, ""))}
    properties[mail.TO] = "\n".join(dict.fromkeys(recipients.values()))
    if DSN in properties:  # each wish begins with its recipient
        wishes = [each.partition("\t") for each in properties[DSN].split("\n")]
        properties[DSN] = "\n".join(f"{recipients.get(who, who)}{tab}{rest}"
                                    for who, tab, rest in wishes)
    if rewriting.headers == "none":
        return body
    answers = {(kind, address): new(address, kind)
               for kind, address in header_addresses(body, scan_bytes)}
    return with_addresses(body, answers, scan_bytes)
