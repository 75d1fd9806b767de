"""One SMTP session: aiosmtpd speaks the protocol, this says what is allowed and what is done.

`SmtpHandler` is shared by all sessions; `SmtpSession` is aiosmtpd's protocol with what it lacks: a
line limit of ours, an idle time-out that counts from the last byte, and a goodbye when the server
drains.

Rules:
1. DATA is answered with 250 only after the durable put returned (omq.services.mail.smtp_intake).
2. What is put is the text exactly as it was sent (after the doubled dots are undone) behind one
   Received field (RFC 5321 section 4.4). Lines end at CRLF only; a bare CR or LF is text: kept as
   it is, or, by `smtp_bare_newline`, a reason to refuse. "CR LF . CR LF" alone ends the text, so
   that nothing can be smuggled past this server.
3. Who is not in `smtp_relay_networks` may send to local domains, addresses with a queue and aliases
   only: 550 5.7.1 otherwise. There are no source routes: the domain is what follows the last "@".
4. Too many recipients are refused one by one (452), the accepted ones go on (RFC 5321 4.5.3.1.10).
5. PIPELINING (RFC 2920) is announced: commands are read from a buffer and answered in order.
"""

from __future__ import annotations

import collections
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

from aiosmtpd.smtp import SMTP, Envelope, Session

from omq.base import clock, events, limits
from omq.base.errors import OmqError
from omq.base.event_log import ERROR, REPORT, WARNING, EventLog
from omq.base.rated_log import RatedLog
from omq.services.mail import mail_message as mail
from omq.services.mail.smtp_intake import Intake, Submission, reply_to
from omq.services.mail.smtp_policy import Policy

COMMAND_BYTES_MAX = 2048  # RFC 5321 asks for 512, its extensions for more; addresses have 320 each
RECIPIENTS_BYTES_MAX = limits.PROPERTIES_BYTES_MAX // 2  # all properties of a message have a limit
GOODBYE = "421 4.3.2 the server shuts down"
_BARE = re.compile(rb"\r(?!\n)|(?<!\r)\n")
# RFC 5321 4.1.2: a path in angle brackets, its source route (old and to be ignored) left out, then
# parameters. Some clients leave the brackets out.
_PATH = re.compile(r"""\s*(?:<(?:@[^\s:<>"]*:)?((?:"(?:[^"\\]|\\.)*"|[^\s<>"])*)>|([^\s<>"]+))"""
                   r"(|\s.*)\Z", re.DOTALL)
_UNFIT = re.compile(r"[^A-Za-z0-9.:_\[\]-]+")  # for a name in a Received field


@dataclass(slots=True)
class Sessions:
    """The open sessions of one server."""

    live: set[SmtpSession] = field(default_factory=set)
    draining: bool = False
    on_change: Callable[[], None] = lambda: None


class SmtpSession(SMTP):
    """One connection."""

    def __init__(self, handler: SmtpHandler, sessions: Sessions) -> None:
        settings = handler.policy.settings
        self.line_length_limit = settings.smtp_line_bytes_max + len(b"\r\n.")
        # aiosmtpd keeps one table for all connections and each new one empties it: have our own.
        self.command_size_limits = collections.defaultdict(lambda: COMMAND_BYTES_MAX)
        self.sessions = sessions
        self.receiving = False
        super().__init__(handler, data_size_limit=settings.smtp_message_bytes_max,
                         enable_SMTPUTF8=True, hostname=handler.policy.hostname, ident="omq",
                         timeout=settings.smtp_idle_timeout_s)

    @property
    def busy(self) -> bool:
        """In the middle of a mail transaction."""
        return self.receiving or bool(self.envelope and self.envelope.mail_from)

    def goodbye(self) -> None:
        """End a session that is between two messages."""
        if self.transport is not None and not self.transport.is_closing():
            self._writer.write(f"{GOODBYE}\r\n".encode())
            self.transport.close()

    def abort(self) -> None:
        """Cut the connection, whatever it is doing."""
        if self._writer is not None:
            self._writer.transport.abort()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.sessions.live.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self.sessions.live.discard(self)
        self.sessions.on_change()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._timeout_handle is not None and not self._timeout_handle.cancelled():
            self._reset_timeout()

    def hold_timeout(self) -> None:
        """No time-out while the server itself makes the client wait."""
        if self._timeout_handle is not None:
            self._timeout_handle.cancel()

    async def smtp_DATA(self, arg: str) -> None:
        self.receiving = True
        try:
            await super().smtp_DATA(arg)
        finally:
            self.receiving = False
        if self.transport is not None:
            self._reset_timeout()
        self._between_messages()

    async def smtp_RSET(self, arg: str) -> None:
        await super().smtp_RSET(arg)
        self._between_messages()

    def _between_messages(self) -> None:
        if self.sessions.draining and not self.busy:
            self.goodbye()

    def _getaddr(self, arg: str) -> tuple[str | None, str | None]:
        # aiosmtpd asks the parser of header addresses, which mends and raises; a path is simpler.
        path = _PATH.match(arg)
        if path is None:
            return None, None
        return path[1] or path[2] or "<>", path[3]


class SmtpHandler:
    """What aiosmtpd asks for each command; answers are whole reply lines."""

    def __init__(self, policy: Policy, intake: Intake, log: EventLog, rated: RatedLog) -> None:
        self.policy = policy
        self.intake = intake
        self._log = log
        self.rated = rated  # for what a peer can cause without end

    async def handle_HELO(self, server: SmtpSession, session: Session, envelope: Envelope,
                          hostname: str) -> str:
        session.host_name = hostname
        return f"250 {server.hostname}"

    async def handle_EHLO(self, server: SmtpSession, session: Session, envelope: Envelope,
                          hostname: str, responses: list[str]) -> list[str]:
        session.host_name = hostname
        return [responses[0], "250-PIPELINING", *responses[1:]]

    async def handle_MAIL(self, server: SmtpSession, session: Session, envelope: Envelope,
                          address: str, options: list[str]) -> str:
        if server.sessions.draining:
            return GOODBYE
        if address != "<>":  # aiosmtpd's word for the null sender
            problem = mail.address_problem(address, smtputf8=envelope.smtp_utf8)
            if problem is not None:
                return f"553 5.1.7 the sender is no address: {problem}"
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return "250 2.1.0 OK"

    async def handle_RCPT(self, server: SmtpSession, session: Session, envelope: Envelope,
                          address: str, options: list[str]) -> str:
        problem = mail.address_problem(address, smtputf8=envelope.smtp_utf8)
        if problem is not None:
            return f"553 5.1.3 the recipient is no address: {problem}"
        if not self.policy.routes.accepts(address) and not self.policy.may_relay(_peer(session)):
            return "550 5.7.1 relaying is not allowed"
        held = sum(len(each.encode()) + 1 for each in envelope.rcpt_tos) + len(address.encode())
        if (len(envelope.rcpt_tos) >= self.policy.settings.smtp_recipients_max
                or held > RECIPIENTS_BYTES_MAX):
            return "452 4.5.3 too many recipients, send to the others separately"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server: SmtpSession, session: Session, envelope: Envelope
                          ) -> str:
        server.hold_timeout()
        text = envelope.original_content or b""
        if self.policy.settings.smtp_bare_newline == "refuse" and _BARE.search(text):
            self.rated.event(events.SMTP_REJECTED, WARNING, _peer(session), peer=_peer(session),
                             reason="bare CR")
            return "550 5.6.0 the message has a CR or LF alone (RFC 5321 section 2.3.8)"
        submission = self._submission(session, envelope, text)
        try:
            message_id = await self.intake.put(submission)
        except OmqError as error:
            return self._refused(session, error)
        self._log.event(events.SMTP_ACCEPTED, REPORT, message_id=message_id, peer=_peer(session),
                        size=len(submission.body), recipients=len(envelope.rcpt_tos))
        return f"250 2.0.0 OK {message_id}"

    async def handle_exception(self, error: Exception) -> str:
        """Any other error in a session: told, logged, the session goes on."""
        self._log.event(events.BUG, ERROR, reason=f"{type(error).__name__}: {error}")
        return "451 4.3.0 local error, try again later"

    def _refused(self, session: Session, error: OmqError) -> str:
        reply = reply_to(error)
        event = events.SMTP_REJECTED if reply.startswith("5") else events.SMTP_REFUSED
        self.rated.event(event, WARNING, _peer(session), peer=_peer(session), reason=str(error),
                         reply=reply)
        return reply

    def _submission(self, session: Session, envelope: Envelope, text: bytes) -> Submission:
        sender = "" if envelope.mail_from in (None, "<>") else str(envelope.mail_from)
        eight_bit = "BODY=8BITMIME" in envelope.mail_options or not text.isascii()
        properties = mail.Envelope(
            sender, tuple(envelope.rcpt_tos), eight_bit, bool(envelope.smtp_utf8), _peer(session),
            _fit(session.host_name)).properties()
        trace = received_field(self.policy.hostname, session, envelope)
        scan_bytes = self.policy.settings.mail_header_scan_bytes
        return Submission(trace + text, mail.priority_of(text, scan_bytes), properties)


def received_field(hostname: str, session: Session, envelope: Envelope) -> bytes:
    """The trace field of this hop. A single recipient is named; of several none, for the blind."""
    protocol = "ESMTP" if session.extended_smtp else "SMTP"
    if envelope.smtp_utf8:
        protocol = "UTF8SMTP"  # RFC 6531 section 3.7.3
    peer = _peer(session)
    literal = f"IPv6:{peer}" if ":" in peer else peer
    only = envelope.rcpt_tos[0] if len(envelope.rcpt_tos) == 1 else ""
    target = f"\r\n\tfor <{only}>" if only and only.isascii() else ""
    now = format_datetime(datetime.fromtimestamp(clock.wall_ns() // clock.NS_PER_S, UTC))
    return (f"Received: from {_fit(session.host_name) or 'unknown'} ([{literal}])\r\n"
            f"\tby {hostname} (omq) with {protocol} id {uuid.uuid4().hex}{target};\r\n"
            f"\t{now}\r\n").encode("ascii")


def _peer(session: Session) -> str:
    peer: object = session.peer  # declared as text, but a socket address it is
    return str(peer[0]) if isinstance(peer, tuple) and peer else ""


def _fit(name: str | None) -> str:
    return _UNFIT.sub("?", name or "")[:255]
