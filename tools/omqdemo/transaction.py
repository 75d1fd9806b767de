"""One SMTP transaction, and what its end means for the sender.

A 4xx reply, a refused connection, or a connection lost before the message text was sent means: the
same transaction again. A 5xx reply is final. The one case that SMTP cannot decide (RFC 1047) is a
connection lost after the text was sent and before its reply came: the server may have accepted the
message. It has an error of its own.

Errors: TryLater, InDoubt; OSError (smtplib's errors are of this kind) for a lost connection.
"""

from __future__ import annotations

import smtplib
from dataclasses import dataclass, field

from omqtools.omqdemo.mails import Sent

_START_INPUT = 354  # RFC 5321 4.3.2: the reply to DATA


class TryLater(Exception):
    """The server asked to come back later (4xx); nothing is in doubt."""


class InDoubt(Exception):
    """The connection was lost between the message text and its reply."""


@dataclass(slots=True)
class Outcome:
    """What became of one item: final replies, and how often its acceptance was in doubt."""

    accepted: bool = False
    refused: dict[str, str] = field(default_factory=dict)
    in_doubt: int = 0
    postponed: int = 0


def double_dots(data: bytes) -> bytes:
    """The message as DATA carries it: leading dots doubled (RFC 5321 4.5.2), with the end mark."""
    return (b"\r\n" + data).replace(b"\r\n.", b"\r\n..")[2:] + b".\r\n"


def transact(smtp: smtplib.SMTP, item: Sent, outcome: Outcome) -> None:
    """One transaction to its final reply, noted in `outcome`; raises TryLater or InDoubt."""
    outcome.refused.clear()
    if item.smtputf8 and not smtp.has_extn("smtputf8"):
        outcome.refused.update(dict.fromkeys(item.recipients, "the server lacks SMTPUTF8"))
        return
    options = [f"SIZE={item.size}"]
    if item.eight_bit:
        options.append("BODY=8BITMIME")
    if item.smtputf8:
        options.append("SMTPUTF8")
    code, reply = smtp.mail(item.sender, options)
    if _is_final_refusal(code, reply):
        outcome.refused.update(dict.fromkeys(item.recipients, _text(code, reply)))
        smtp.rset()
        return
    for recipient in item.recipients:
        code, reply = smtp.rcpt(recipient)
        if _is_final_refusal(code, reply):
            outcome.refused[recipient] = _text(code, reply)
    if len(outcome.refused) == len(item.recipients):
        smtp.rset()
        return
    code, reply = smtp.docmd("DATA")
    if code != _START_INPUT:
        if not _is_final_refusal(code, reply):
            raise TryLater(_text(code, reply))
        outcome.refused.update(dict.fromkeys(item.recipients, _text(code, reply)))
        return
    text = double_dots(item.read())
    try:
        smtp.send(text)
        code, reply = smtp.getreply()
    except OSError as lost:
        raise InDoubt from lost
    if _is_final_refusal(code, reply):
        outcome.refused.update(dict.fromkeys(item.recipients, _text(code, reply)))
        return
    outcome.accepted = True


def _is_final_refusal(code: int, reply: bytes) -> bool:
    """True for 5xx, False for 2xx; everything else (4xx, nonsense) is a reason to try again."""
    if 200 <= code < 300:
        return False
    if 500 <= code < 600:
        return True
    raise TryLater(_text(code, reply))


def _text(code: int, reply: bytes) -> str:
    return f"{code} {reply.decode('utf-8', 'replace')}"
