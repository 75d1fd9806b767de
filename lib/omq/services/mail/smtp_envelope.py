"""MAIL, RCPT, DATA and RSET of one SMTP session: whose mail is taken for whom. What happens to the
text is the matter of omq.services.mail.smtp_storing.

Rules:
1. Who is not in `smtp_relay_networks`, and has not said who he is, may send to local domains,
   addresses with a queue and aliases only: 550 5.7.1 otherwise. There are no source routes: the
   domain is what follows the last "@".
2. A recipient that no delivery can reach is refused here (550 5.1.1): its sender, who is often not
   who the envelope says, then needs no report.
3. Too many recipients are refused one by one (452), the accepted ones go on (RFC 5321 4.5.3.1.10).
4. The id in the 250 reply is the message's id on the queue, that of the Received field, of every
   line in mail.log and of `omqlog --mail`.
5. Refusals for good are counted by session and client; too many end the session (421 4.7.0).
6. At a port of users nothing is taken before TLS and AUTH (530, RFC 4954 section 6); what comes
   there gets the fields Date and Message-ID if they are missing (RFC 6409 section 8). Who has
   logged in sends as himself alone (553 5.7.1): omq.services.mail.senders.
"""

from __future__ import annotations

import ssl
import uuid
from typing import Final

from omq.base import clock, events, limits
from omq.base.event_log import WARNING
from omq.base.settings import Settings
from omq.services.mail.dsn import dsn_request_of
from omq.services.mail.mail_message import split_address
from omq.services.mail.rewriting import Class, known
from omq.services.mail.senders import may_send_as
from omq.services.mail.smtp_address import parameters_of, path_of
from omq.services.mail.smtp_chunk import chunk_of
from omq.services.mail.smtp_clients import Act
from omq.services.mail.smtp_data import COPIES, NO_MEMORY, Text
from omq.services.mail.smtp_handler import (
    Answer,
    Handler,
    Listener,
    Transaction,
    address_problem,
    parameter_problem,
)
from omq.services.mail.smtp_policy import Policy
from omq.services.mail.smtp_refusals import softened
from omq.services.mail.smtp_trace import fit, protocol, received_field
from omq.services.network.tls import Secured

RECIPIENTS_BYTES_MAX: Final = limits.PROPERTIES_BYTES_MAX // 2
"""All properties of a message have a limit."""
_CODES: Final = {"4.2.2": "452", "5.2.2": "552"}
"""Of a mailbox without room; 550 for all else."""
_BAD_SEQUENCE: Final = "503 5.5.1 send %s first"


class EnvelopeCommands:
    """The state of one session between the lines."""

    def __init__(self, handler: Handler, listener: Listener) -> None:
        self._handler = handler
        self._listener = listener
        self._peer = self._key = self._helo = ""
        self._judged: tuple[Policy, bool] | None = None  # the last answer of `_own`
        self._errors = 0
        self._counted = False  # this RCPT, which is carried out again
        self._extended = False
        self._secured: Secured | None = None
        self._user = ""  # who has proved to be it
        self._mail: Transaction | None = None

    @property
    def settings(self) -> Settings:
        return self._handler.policy.settings

    @property
    def tls(self) -> ssl.SSLContext | None:
        return self._handler.policy.tls

    @property
    def in_transaction(self) -> bool:
        """Between MAIL and the end of the text."""
        return self._mail is not None

    def refused(self, reply: str) -> Answer:
        """The answer with this reply; a refusal for good is counted, and too many end it."""
        if not reply.startswith("5"):
            return Answer(reply)
        self._errors += 1
        self._exceeds(Act.ERROR)
        if self._errors < self.settings.smtp_session_errors_max:
            return Answer(reply)
        return Answer(f"{reply}\r\n421 4.7.0 too many errors", close=True)

    def said(self, reply: str) -> str:
        """The reply as the client hears it: with `soft_bounce` none is for good."""
        return softened(reply) if self.settings.soft_bounce else reply

    def not_taken(self, reply: str) -> Answer:
        """The text of this transaction, which is over then, was refused while it came."""
        self._no("DATA", reply, "")
        self._forget()
        return self.refused(reply)

    def _forget(self) -> None:
        """No transaction is under way any more."""
        if self._mail is not None:
            self._mail.drop()
            self._handler.policy.mailboxes.promises.give_back(self._mail.promised)
        self._mail = None

    # the commands: an Answer, or the reply of a refusal

    def _on_mail(self, argument: str) -> Answer | str:
        if not self._helo:
            return _BAD_SEQUENCE % "HELO"
        if refusal := self._not_yet():
            return self._no("MAIL", refusal, "")
        if self._mail is not None:
            return "503 5.5.1 a mail transaction is under way"
        path = path_of(argument[5:]) if argument[:5].upper() == "FROM:" else None
        parameters = parameters_of(path[1]) if path else None
        if path is None or parameters is None or (parameters and not self._extended):
            return "501 5.5.4 syntax: MAIL FROM:<address> [parameters]"
        problem = parameter_problem(parameters, self.settings.smtp_message_bytes_max,
                                    auth=self._listener.of_users)
        utf8 = "SMTPUTF8" in parameters
        if problem:
            return problem
        wrong = address_problem(path[0], utf8=utf8) if path[0] else None
        if wrong is not None:
            return f"553 5.1.7 the sender is not an address: {wrong}"
        if self._user and not may_send_as(self._handler.policy.routes, self._user, path[0]):
            return self._no("MAIL", f"553 5.7.1 {fit(self._user)} may not send as this address",
                            path[0])
        if self._exceeds(Act.MESSAGE):
            return self._no("MAIL", "450 4.7.1 too many messages of this client", path[0])
        if over := self._over_rate(path[0]):
            return self._no("MAIL", over, path[0])
        memory, size = self._handler.memory, int(parameters.get("SIZE") or 0)
        if COPIES * size > memory.limit - memory.used:
            return self._no("MAIL", NO_MEMORY, path[0])
        eight_bit = parameters.get("BODY", "").upper() == "8BITMIME"
        self._mail = Transaction(path[0], utf8, eight_bit, parameters=parameters)
        return Answer("250 2.1.0 OK")

    def _on_rcpt(self, argument: str) -> Answer | str:
        given = self._mail
        if given is None or given.text is not None:
            return _BAD_SEQUENCE % ("MAIL" if given is None else "the rest of the text")
        path = path_of(argument[3:]) if argument[:3].upper() == "TO:" else None
        if path is None or not path[0]:
            return "501 5.5.4 syntax: RCPT TO:<address>"
        parameters = parameters_of(path[1])
        wish = (dsn_request_of(parameters) if parameters is not None
                else "501 5.5.4 wrong parameters")
        if isinstance(wish, str):
            return wish
        address, policy = path[0], self._handler.policy
        if not self._counted and self._exceeds(Act.RECIPIENT):
            return self._no("RCPT", "450 4.7.1 too many recipients of this client", address)
        if not self._counted and self._user and self._handler.users.exceeds(
                self._user.lower(), Act.USER_RECIPIENT, self.settings, clock.monotonic_ns(),
                own=False):
            return self._no("RCPT", "450 4.7.1 too many recipients of this user", address)
        if (problem := address_problem(address, utf8=given.utf8)) is not None:
            return f"553 5.1.3 the recipient is not an address: {problem}"
        routes, named = policy.routes, address
        if routes.rewriting and self._listener is not Listener.RETURNED:
            address = routes.rewriting.of(named, Class.ENVELOPE_RECIPIENT, known)
        accepted, resolved = policy.resolved(address)
        if not (accepted or routes.accepts(named)) and not self._may_relay:
            return self._no("RCPT", "550 5.7.1 relaying is not allowed", address)
        lost = policy.unreachable(address, resolved, int(given.parameters.get("SIZE") or 0),
                                  given.promised)
        if lost is not None:
            code = _CODES.get(lost.status, "550")
            return self._no("RCPT", f"{code} {lost.status} {lost.reason}", address)
        held = given.recipients_bytes + len(address.encode()) + 1 + wish.takes(address)
        if (len(given.recipients) >= self.settings.smtp_recipients_max
                or held > RECIPIENTS_BYTES_MAX):
            return "452 4.5.3 too many recipients, or too long ones: send to the others separately"
        given.recipients.append(address)
        given.recipients_bytes = held
        given.dsn_requests[address] = wish
        given.resolved[address] = resolved
        return Answer("250 2.1.5 OK")

    def _on_data(self, argument: str) -> Answer | str:
        if argument:
            return "501 5.5.4 DATA has no argument"
        if problem := self._no_text_yet():
            return problem
        if self._mail is not None and self._mail.text is not None:
            return "503 5.5.1 this text comes by BDAT"
        return Answer("354 end the text with CR LF . CR LF", self._text())

    def _on_bdat(self, argument: str) -> Answer | str:
        chunk = chunk_of(argument)
        if chunk is None:
            # How much follows is not known, so nothing after it can be understood.
            return Answer("501 5.5.4 syntax: BDAT length [LAST]", close=True)
        chunk.refusal = self._no_text_yet()
        if not chunk.refusal:
            assert self._mail is not None
            chunk.text = self._mail.text = self._mail.text or self._text()
        return Answer("", chunk=chunk)

    def _no_text_yet(self) -> str:
        """Why there can be no text; empty: it may come."""
        given = self._mail
        if given is None or not given.recipients:
            return _BAD_SEQUENCE % ("MAIL" if given is None else "RCPT")
        return ""

    def _text(self) -> Text:
        """Where the text of the transaction goes."""
        given, settings = self._mail, self.settings
        assert given is not None
        given.mail_id = given.mail_id or uuid.uuid4().hex + f"{clock.wall_ns():016x}"
        how = protocol(extended=self._extended, utf8=given.utf8, known=bool(self._user),
                       secured=self._secured is not None)
        trace = received_field(self._handler.policy.hostname, self._helo, self._peer, how,
                               given.mail_id, given.recipients,
                               str(self._secured) if self._secured else "")
        given.head_bytes = len(trace)
        return Text(self._handler.memory, settings.smtp_message_bytes_max,
                    settings.smtp_line_bytes_max, trace)

    def _on_rset(self, argument: str) -> Answer | str:
        if argument:
            return "501 5.5.4 RSET has no argument"
        self._forget()
        return Answer("250 2.0.0 OK")

    def _not_yet(self) -> str:
        """The reply to who has to do something before his mail is taken; empty: nothing."""
        required = self._listener.of_users or (
            self._listener is Listener.RELAY and self.settings.smtp_starttls == "require")
        if required and self._secured is None:
            return "530 5.7.0 say STARTTLS first"
        if self._listener.of_users and not self._user:
            return "530 5.7.0 say AUTH first"
        return ""

    def _exceeds(self, act: Act) -> bool:
        return not self._own and self._handler.clients.exceeds(
            self._key, act, self.settings, clock.monotonic_ns(), own=False)

    def _over_rate(self, sender: str) -> str:
        """The reply to a user, or to a domain, that has sent enough; empty: more may come."""
        handler, now = self._handler, clock.monotonic_ns()
        if self._user and handler.users.exceeds(self._user.lower(), Act.USER_MESSAGE,
                                                self.settings, now, own=False):
            return "450 4.7.1 too many messages of this user"
        domain = split_address(sender)[1]
        if domain and self._may_relay and handler.domains.exceeds(
                domain, Act.DOMAIN_MESSAGE, self.settings, now, own=False):
            return "450 4.7.1 too many messages of this sender's domain"
        return ""

    def _client(self) -> str:
        return f"{fit(self._helo) or 'unknown'}[{self._peer}]"

    @property
    def _own(self) -> bool:
        """In smtp_relay_networks."""
        policy = self._handler.policy
        if self._judged is None or self._judged[0] is not policy:
            self._judged = policy, policy.may_relay(self._peer)
        return self._judged[1]

    @property
    def _may_relay(self) -> bool:  # to anybody
        return bool(self._user) or (self._own and not self._listener.of_users)

    def _no(self, command: str, reply: str, address: str) -> str:
        """Tell the logs of a refusal, and give it back."""
        said = self.said(reply)
        event = events.SMTP_REJECTED if said.startswith("5") else events.SMTP_REFUSED
        self._handler.rated.event(event, WARNING, self._key, peer=self._peer, reason=said,
                                  address=address)
        self._handler.mail_log.refused(command, self._client(), said,
                                       self._mail.sender if self._mail else "", address)
        return reply


