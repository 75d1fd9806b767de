"""What SMTP sessions share, what one of them holds of a transaction, and what may be in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Final

from omq.base import events
from omq.base.event_log import REPORT, EventLog
from omq.base.rated_log import RatedLog
from omq.services.mail import mail_message as mail
from omq.services.mail.dsn import DsnRequest, sender_problem
from omq.services.mail.mail_log import MailLog, accepted_lines
from omq.services.mail.smtp_address import grammar_problem
from omq.services.mail.smtp_chunk import Chunk
from omq.services.mail.smtp_clients import Clients, Places
from omq.services.mail.smtp_data import TOO_LARGE, Memory, Text
from omq.services.mail.smtp_filter import Filter
from omq.services.mail.smtp_intake import Intake
from omq.services.mail.smtp_policy import Policy, Resolved

CHECKS_AT_ONCE: Final = 2
"""Texts that [checks] look at; the others wait for their turn, within their time."""
ADDRESSES_KNOWN_MAX: Final = 1000
"""Whose check is remembered: some MB at most, for a command line is bounded (smtp_input)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What happens to a command: the reply; a text that follows; the end of the session; TLS; or,
    in place of a reply, work that gives another answer."""

    reply: str
    text: Text | None = None
    close: bool = False
    start_tls: bool = False
    chunk: Chunk | None = None  # that follows, and is answered then
    work: Callable[[], Awaitable[Answer]] | None = None


class Listener(Enum):
    """A port of smtp.server; the value is the name of its file in run/."""

    RELAY = "smtp.port"  # smtp_listen_port: from other hosts, and from this one's programs
    SUBMISSION = "submission.port"  # STARTTLS and AUTH before anything else (RFC 6409)
    SUBMISSIONS = "submissions.port"  # TLS from the first byte (RFC 8314)
    RETURNED = "filtered.port"  # smtp_filter_return_port: from the filter before the queue

    @property
    def of_users(self) -> bool:
        """Whether everybody has to say who he is."""
        return self in (Listener.SUBMISSION, Listener.SUBMISSIONS)

    @property
    def places(self) -> Places:
        """How many sessions there may be at it."""
        return _PLACES[self]


_PLACES: Final = {each: Places(
    each.value, "submission_sessions_max" if each.of_users else "smtp_sessions_max")
    for each in Listener}


@dataclass(frozen=True, slots=True)
class Accepted:
    """A mail that was taken, for the logs."""

    mail_id: str
    peer: str
    client: str  # and what it calls itself
    message_id: str
    sender: str
    size: int
    recipients: int


@dataclass(slots=True)
class Handler:
    """What the sessions share; the policy is replaced whole at a reload."""

    policy: Policy
    intake: Intake
    log: EventLog
    rated: RatedLog  # for what a peer can cause without end
    mail_log: MailLog
    memory: Memory
    checking: ThreadPoolExecutor  # of passwords
    filter: Filter
    looking: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(
        CHECKS_AT_ONCE, thread_name_prefix="checks"))  # at texts; without work no thread
    clients: Clients = field(default_factory=Clients)
    users: Clients = field(default_factory=Clients)  # by login
    domains: Clients = field(default_factory=Clients)  # of senders who may relay
    untold: list[Accepted] = field(default_factory=list)

    def accepted(self, taken: Accepted) -> None:
        """Tell the logs, of all that one turn of the loop has answered with one write each."""
        if not self.untold:
            asyncio.get_running_loop().call_soon(self.tell)
        self.untold.append(taken)

    def tell(self) -> None:
        """What is still to be told; also at the end."""
        taken, self.untold = self.untold, []
        with self.log.together():
            for each in taken:
                self.log.event(events.SMTP_ACCEPTED, REPORT, message_id=each.mail_id,
                               peer=each.peer, size=each.size, recipients=each.recipients)
        self.mail_log.write([line for each in taken for line in accepted_lines(
            each.mail_id, each.client, each.message_id, each.sender, each.size, each.recipients)])


@dataclass(slots=True)
class Transaction:
    """From MAIL on."""

    sender: str
    utf8: bool
    eight_bit: bool
    recipients: list[str] = field(default_factory=list)
    recipients_bytes: int = 0
    mail_id: str = ""
    held: str = ""  # why a filter has it set aside
    prepended: list[str] = field(default_factory=list)  # fields that policy services want
    added: list[str] = field(default_factory=list)  # recipients, likewise
    redirected: str = ""  # the only recipient, likewise
    head_bytes: int = 0  # of our Received field
    parameters: dict[str, str] = field(default_factory=dict)  # of MAIL
    dsn_requests: dict[str, DsnRequest] = field(default_factory=dict)  # by recipient
    resolved: dict[str, Resolved] = field(default_factory=dict)  # likewise
    text: Text | None = None  # while it comes in chunks
    promised: list[str] = field(default_factory=list)  # mailboxes that are to be made for it

    def drop(self) -> None:
        """Nothing becomes of it: give back its memory."""
        if self.text is not None:
            self.text.drop()


def parameter_problem(parameters: dict[str, str], size_max: int, *, auth: bool) -> str:
    """The reply to parameters of MAIL that are not taken; empty: they are. AUTH, where there is
    such a command, says who submitted a mail elsewhere, and means nothing here (RFC 4954 5)."""
    if not parameters:
        return ""
    if set(parameters) - {"SIZE", "BODY", "SMTPUTF8", "RET", "ENVID", *(["AUTH"] if auth else [])}:
        return "555 5.5.4 a parameter is not known here"
    if parameters.get("BODY", "7BIT").upper() not in ("7BIT", "8BITMIME"):
        return "501 5.5.4 BODY is 7BIT or 8BITMIME"
    if parameters.get("SMTPUTF8"):
        return "501 5.5.4 SMTPUTF8 has no value"
    size = parameters.get("SIZE", "0")
    if not (size.isascii() and size.isdigit()) or len(size) > 20:  # RFC 1870 section 5
        return "501 5.5.4 SIZE is a number"
    return TOO_LARGE if int(size) > size_max else sender_problem(parameters)


@lru_cache(maxsize=ADDRESSES_KNOWN_MAX)
def address_problem(address: str, *, utf8: bool) -> str | None:
    """Why this may not be in an envelope; None: it may. Remembered: the same few write often."""
    return mail.address_problem(address, smtputf8=utf8) or grammar_problem(address)
