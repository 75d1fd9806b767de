"""What SMTP sessions share, what one of them holds of a transaction, and what may stand in it."""

from __future__ import annotations

from dataclasses import dataclass, field

from omq.base.event_log import EventLog
from omq.base.rated_log import RatedLog
from omq.services.mail import mail_message as mail
from omq.services.mail.mail_log import MailLog
from omq.services.mail.smtp_address import grammar_problem
from omq.services.mail.smtp_clients import Clients
from omq.services.mail.smtp_intake import Intake
from omq.services.mail.smtp_policy import Policy
from omq.services.mail.smtp_text import TOO_LARGE, Memory, Text


@dataclass(frozen=True, slots=True)
class Answer:
    """What becomes of a command: the reply; a text that follows; the end of the session."""

    reply: str
    text: Text | None = None
    close: bool = False


@dataclass(slots=True)
class Handler:
    """What the sessions share; the policy is replaced whole at a reload."""

    policy: Policy
    intake: Intake
    log: EventLog
    rated: RatedLog  # for what a peer can cause without end
    mail_log: MailLog
    memory: Memory
    clients: Clients = field(default_factory=Clients)


@dataclass(slots=True)
class Transaction:
    """From MAIL on."""

    sender: str
    utf8: bool
    eight_bit: bool
    recipients: list[str] = field(default_factory=list)
    recipients_bytes: int = 0
    mail_id: str = ""


def parameter_problem(parameters: dict[str, str], size_max: int) -> str:
    """The reply to parameters of MAIL that are not taken; empty: they are."""
    if set(parameters) - {"SIZE", "BODY", "SMTPUTF8"}:
        return "555 5.5.4 a parameter is not known here"
    if parameters.get("BODY", "7BIT").upper() not in ("7BIT", "8BITMIME"):
        return "501 5.5.4 BODY is 7BIT or 8BITMIME"
    if parameters.get("SMTPUTF8"):
        return "501 5.5.4 SMTPUTF8 has no value"
    size = parameters.get("SIZE", "0")
    if not (size.isascii() and size.isdigit()) or len(size) > 20:  # RFC 1870 section 5
        return "501 5.5.4 SIZE is a number"
    return TOO_LARGE if int(size) > size_max else ""


def address_problem(address: str, *, utf8: bool) -> str | None:
    """Why this may not stand in an envelope; None: it may."""
    return mail.address_problem(address, smtputf8=utf8) or grammar_problem(address)
