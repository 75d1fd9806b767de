"""The commands of one SMTP session: who may do what, and the reply to each.

`Handler` is what all sessions of a server share. Every reply has an enhanced status (RFC 3463, RFC
2034), but those to a greeting and the 354. Nothing is announced that is not there: STARTTLS and
AUTH are unknown commands (502 5.5.1).

Rules:
1. Who is not in `smtp_relay_networks` may send to local domains, addresses with a queue and aliases
   only: 550 5.7.1 otherwise. There are no source routes: the domain is what follows the last "@".
2. A recipient that no delivery can reach is refused here (550 5.1.1): its sender, who is often not
   who the envelope says, then needs no report.
3. Too many recipients are refused one by one (452), the accepted ones go on (RFC 5321 4.5.3.1.10).
4. The id in the 250 reply is the message's id on the queue, that of the Received field, of every
   line in mail.log and of `omqlog --mail`.
5. Refusals for good are counted by session and client; too many end the session (421 4.7.0).
"""

from __future__ import annotations

import uuid
from typing import Final

from omq.base import clock, events, limits
from omq.base.errors import OmqError
from omq.base.event_log import ERROR, REPORT, WARNING
from omq.base.settings import Settings
from omq.services.mail import mail_message as mail
from omq.services.mail.smtp_address import parameters_of, path_of
from omq.services.mail.smtp_clients import Act, client_key
from omq.services.mail.smtp_handler import (
    Answer,
    Handler,
    Transaction,
    address_problem,
    parameter_problem,
)
from omq.services.mail.smtp_intake import Submission, reply_to
from omq.services.mail.smtp_policy import Policy
from omq.services.mail.smtp_text import COPIES, NO_MEMORY, Text
from omq.services.mail.smtp_trace import fit, received_field

RECIPIENTS_BYTES_MAX: Final = limits.PROPERTIES_BYTES_MAX // 2
"""All properties of a message have a limit."""
_BAD_SEQUENCE: Final = "503 5.5.1 send %s first"
_NO_SERVICE: Final = frozenset(("CONNECT", "GET", "HEAD", "POST", "PUT"))
"""Who says this is no mail client, but something that was led here (a browser, a proxy)."""


class SmtpCommands:
    """The state of one session between the lines."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._peer = self._key = self._helo = ""
        self._judged: tuple[Policy, bool] | None = None  # the last answer of `_own`
        self._began = False
        self._errors = 0
        self._extended = False
        self._mail: Transaction | None = None

    @property
    def settings(self) -> Settings:
        return self._handler.policy.settings

    @property
    def in_transaction(self) -> bool:
        """Between MAIL and the end of the text."""
        return self._mail is not None

    def begin(self, peername: object) -> Answer:
        """The greeting, or why there is none."""
        self._peer = str(peername[0]) if isinstance(peername, tuple) and peername else ""
        self._key, handler = client_key(self._peer), self._handler
        now = clock.monotonic_ns()
        reason = handler.clients.refusal(self._key, self.settings, now, own=self._own)
        if reason:
            handler.rated.event(events.SMTP_REFUSED, WARNING, self._key, peer=self._peer,
                                reason=reason)
            return Answer(f"421 4.7.0 {reason}, try again later", close=True)
        handler.clients.begin(self._key, now)
        self._began = True
        return Answer(f"220 {handler.policy.hostname} ESMTP omq")

    def end(self) -> None:
        """The session is over."""
        if self._began:
            self._began = False
            self._handler.clients.end(self._key)

    def answer(self, line: bytes) -> Answer:
        """What a command line gets."""
        try:
            words = line.rstrip(b"\r\n").decode("utf-8")
        except UnicodeDecodeError:
            return self.refused("500 5.5.2 the line is not UTF-8")
        verb, _, rest = words.partition(" ")
        command = verb.upper()
        if command in _NO_SERVICE:
            return Answer("421 4.7.0 this is a mail server", close=True)
        method = _COMMANDS.get(command)
        if method is None:
            return self.refused("502 5.5.1 the command is not known here" if command
                                else "500 5.5.2 a command is missing")
        found = method(self, rest.strip())
        return found if isinstance(found, Answer) else self.refused(found)

    def refused(self, reply: str) -> Answer:
        """The answer with this reply; a refusal for good is counted, and too many end it."""
        if not reply.startswith("5"):
            return Answer(reply)
        self._errors += 1
        self._exceeds(Act.ERROR)
        if self._errors < self.settings.smtp_session_errors_max:
            return Answer(reply)
        return Answer(f"{reply}\r\n421 4.7.0 too many errors", close=True)

    def not_taken(self, reply: str) -> Answer:
        """The text of this transaction, which is over then, was refused while it came."""
        self._no("DATA", reply, "")
        self._mail = None
        return self.refused(reply)

    async def store(self, body: bytes) -> Answer:
        """Put the message of this transaction, which is over then."""
        handler, given = self._handler, self._mail
        assert given is not None
        mail_id = given.mail_id
        submission = Submission(
            body, mail_id, self._properties(given, body),
            ranked=self._own or self.settings.smtp_stranger_priority,
            scan_bytes=self.settings.mail_header_scan_bytes,
            bare_newlines=self.settings.smtp_bare_newline == "accept")
        try:
            stored = await handler.intake.put(submission)
        except OmqError as error:
            handler.log.event(events.SMTP_REFUSED, WARNING, peer=self._peer, reason=str(error),
                              message_id=mail_id)
            return self.not_taken(reply_to(error))
        except Exception as error:
            handler.log.event(events.BUG, ERROR, reason=f"{type(error).__name__}: {error}")
            return self.not_taken("451 4.3.0 local error, try again later")
        if stored.refusal:
            return self.not_taken(stored.refusal)
        self._mail = None
        handler.log.event(events.SMTP_ACCEPTED, REPORT, message_id=mail_id, peer=self._peer,
                          size=stored.size, recipients=len(given.recipients))
        handler.mail_log.accepted(mail_id, self._client(), stored.message_id, given.sender,
                                  stored.size, len(given.recipients))
        return Answer(f"250 2.0.0 OK {mail_id}")

    # the commands: an Answer, or the reply of a refusal

    def _on_helo(self, argument: str) -> Answer | str:
        return self._greet(argument, extended=False)

    def _on_ehlo(self, argument: str) -> Answer | str:
        return self._greet(argument, extended=True)

    def _greet(self, argument: str, *, extended: bool) -> Answer | str:
        if not argument:
            return "501 5.5.4 a host name is missing"
        self._mail = None
        self._helo, self._extended = argument, extended
        hostname = self._handler.policy.hostname
        if not extended:
            return Answer(f"250 {hostname}")
        offered = (hostname, "PIPELINING", f"SIZE {self.settings.smtp_message_bytes_max}",
                   "8BITMIME", "ENHANCEDSTATUSCODES", "SMTPUTF8")
        *first, last = offered
        return Answer("\r\n".join([*(f"250-{each}" for each in first), f"250 {last}"]))

    def _on_mail(self, argument: str) -> Answer | str:
        if not self._helo:
            return _BAD_SEQUENCE % "HELO"
        if self._mail is not None:
            return "503 5.5.1 a mail transaction is under way"
        path = path_of(argument[5:]) if argument[:5].upper() == "FROM:" else None
        parameters = parameters_of(path[1]) if path else None
        if path is None or parameters is None or (parameters and not self._extended):
            return "501 5.5.4 syntax: MAIL FROM:<address> [parameters]"
        problem = parameter_problem(parameters, self.settings.smtp_message_bytes_max)
        utf8 = "SMTPUTF8" in parameters
        if problem:
            return problem
        wrong = address_problem(path[0], utf8=utf8) if path[0] else None
        if wrong is not None:
            return f"553 5.1.7 the sender is no address: {wrong}"
        if self._exceeds(Act.MESSAGE):
            return self._no("MAIL", "450 4.7.1 too many messages of this client", path[0])
        memory, size = self._handler.memory, int(parameters.get("SIZE") or 0)
        if COPIES * size > memory.limit - memory.used:
            return self._no("MAIL", NO_MEMORY, path[0])
        eight_bit = parameters.get("BODY", "").upper() == "8BITMIME"
        self._mail = Transaction(path[0], utf8, eight_bit)
        return Answer("250 2.1.0 OK")

    def _on_rcpt(self, argument: str) -> Answer | str:
        given = self._mail
        if given is None:
            return _BAD_SEQUENCE % "MAIL"
        path = path_of(argument[3:]) if argument[:3].upper() == "TO:" else None
        if path is None or not path[0]:
            return "501 5.5.4 syntax: RCPT TO:<address>"
        if path[1].strip():
            return "555 5.5.4 a parameter is not known here"
        address, policy = path[0], self._handler.policy
        if self._exceeds(Act.RECIPIENT):
            return self._no("RCPT", "450 4.7.1 too many recipients of this client", address)
        problem = address_problem(address, utf8=given.utf8)
        if problem is not None:
            return f"553 5.1.3 the recipient is no address: {problem}"
        if not policy.routes.accepts(address) and not self._own:
            return self._no("RCPT", "550 5.7.1 relaying is not allowed", address)
        unreachable = policy.unreachable(address)
        if unreachable is not None:
            return self._no("RCPT", f"550 {unreachable.status} {unreachable.reason}", address)
        held = given.recipients_bytes + len(address.encode()) + 1
        if (len(given.recipients) >= self.settings.smtp_recipients_max
                or held > RECIPIENTS_BYTES_MAX):
            return "452 4.5.3 too many recipients, send to the others separately"
        given.recipients.append(address)
        given.recipients_bytes = held
        return Answer("250 2.1.5 OK")

    def _on_data(self, argument: str) -> Answer | str:
        if argument:
            return "501 5.5.4 DATA has no argument"
        given = self._mail
        if given is None or not given.recipients:
            return _BAD_SEQUENCE % ("MAIL" if given is None else "RCPT")
        settings = self.settings
        given.mail_id = uuid.uuid4().hex + f"{clock.wall_ns():016x}"
        protocol = "UTF8SMTP" if given.utf8 else "ESMTP" if self._extended else "SMTP"
        trace = received_field(self._handler.policy.hostname, self._helo, self._peer, protocol,
                               given.mail_id, given.recipients)
        return Answer("354 end the text with CR LF . CR LF",
                      Text(self._handler.memory, settings.smtp_message_bytes_max,
                           settings.smtp_line_bytes_max, trace))

    def _on_rset(self, argument: str) -> Answer | str:
        if argument:
            return "501 5.5.4 RSET has no argument"
        self._mail = None
        return Answer("250 2.0.0 OK")

    def _on_noop(self, argument: str) -> Answer:
        del argument
        return Answer("250 2.0.0 OK")

    def _on_vrfy(self, argument: str) -> Answer:
        del argument
        return Answer("252 2.1.5 not verified; send mail and it is tried")

    def _on_help(self, argument: str) -> Answer:
        del argument
        return Answer(f"214 2.0.0 commands: {' '.join(_COMMANDS)}")

    def _on_quit(self, argument: str) -> Answer:
        del argument
        return Answer("221 2.0.0 bye", close=True)

    def _exceeds(self, act: Act) -> bool:
        return self._handler.clients.exceeds(self._key, act, self.settings, clock.monotonic_ns(),
                                             own=self._own)

    def _properties(self, given: Transaction, body: bytes) -> dict[str, str]:
        envelope = mail.Envelope(
            given.sender, tuple(given.recipients), given.eight_bit or not body.isascii(),
            given.utf8, self._peer, fit(self._helo))
        return envelope.properties() | mail.tracing(given.mail_id, clock.wall_ns())

    def _client(self) -> str:
        return f"{fit(self._helo) or 'unknown'}[{self._peer}]"

    @property
    def _own(self) -> bool:
        """In smtp_relay_networks, as they are now."""
        policy = self._handler.policy
        if self._judged is None or self._judged[0] is not policy:
            self._judged = policy, policy.may_relay(self._peer)
        return self._judged[1]

    def _sender(self) -> str:
        return self._mail.sender if self._mail else ""

    def _no(self, command: str, reply: str, address: str) -> str:
        """Tell the logs of a refusal, and give it back."""
        event = events.SMTP_REJECTED if reply.startswith("5") else events.SMTP_REFUSED
        self._handler.rated.event(event, WARNING, self._key, peer=self._peer, reason=reply,
                                  address=address)
        self._handler.mail_log.refused(command, self._client(), reply, self._sender(), address)
        return reply


_COMMANDS: Final = {
    "HELO": SmtpCommands._on_helo, "EHLO": SmtpCommands._on_ehlo, "MAIL": SmtpCommands._on_mail,
    "RCPT": SmtpCommands._on_rcpt, "DATA": SmtpCommands._on_data, "RSET": SmtpCommands._on_rset,
    "NOOP": SmtpCommands._on_noop, "VRFY": SmtpCommands._on_vrfy, "HELP": SmtpCommands._on_help,
    "QUIT": SmtpCommands._on_quit,
}
