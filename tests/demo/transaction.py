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

from tests.demo.mails import Sent

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
    dialog = _Dialog(smtp, item)
    code, reply = dialog.next()
    if _is_final_refusal(code, reply, dialog):
        outcome.refused.update(dict.fromkeys(item.recipients, _text(code, reply)))
        dialog.leave()
        return
    for recipient in item.recipients:
        code, reply = dialog.next()
        if _is_final_refusal(code, reply, dialog):
            outcome.refused[recipient] = _text(code, reply)
    if len(outcome.refused) == len(item.recipients):
        dialog.leave()
        return
    code, reply = dialog.next()
    if code != _START_INPUT:
        if not _is_final_refusal(code, reply, dialog):
            raise TryLater(_text(code, reply))
        outcome.refused.update(dict.fromkeys(item.recipients, _text(code, reply)))
        dialog.leave()
        return
    text = double_dots(item.read())
    try:
        smtp.send(text)
        code, reply = smtp.getreply()
    except OSError as lost:
        raise InDoubt from lost
    if _is_final_refusal(code, reply, dialog):
        outcome.refused.update(dict.fromkeys(item.recipients, _text(code, reply)))
        return
    outcome.accepted = True


class _Dialog:
    """The commands up to DATA: all in one piece where the server takes that (RFC 2920), else a
    round trip each."""

    def __init__(self, smtp: smtplib.SMTP, item: Sent) -> None:
        self._smtp = smtp
        options = [f"SIZE={item.size}", *(["BODY=8BITMIME"] if item.eight_bit else []),
                   *(["SMTPUTF8"] if item.smtputf8 else [])]
        smtp.command_encoding = "utf-8" if item.smtputf8 else "ascii"
        self._left = [f"MAIL FROM:{smtplib.quoteaddr(item.sender)} {' '.join(options)}",
                      *(f"RCPT TO:{smtplib.quoteaddr(each)}" for each in item.recipients), "DATA"]
        self._at_once = smtp.has_extn("pipelining")
        if self._at_once:
            smtp.send("".join(f"{each}\r\n" for each in self._left))

    def next(self) -> tuple[int, bytes]:
        """The reply to the next one."""
        command = self._left.pop(0)
        if not self._at_once:
            self._smtp.putcmd(command)
        return self._smtp.getreply()

    def leave(self) -> None:
        """Nobody gets the text. A server that waits for it nevertheless is left without a word: a
        dot would be a message."""
        code = 0
        while self._at_once and self._left:
            code, _ = self.next()
        if code == _START_INPUT:
            self._smtp.close()
        else:
            self._smtp.rset()


def _is_final_refusal(code: int, reply: bytes, dialog: _Dialog) -> bool:
    """True for 5xx, False for 2xx; everything else (4xx, nonsense) is a reason to try again."""
    if 200 <= code < 300:
        return False
    if 500 <= code < 600:
        return True
    dialog.leave()
    raise TryLater(_text(code, reply))


def _text(code: int, reply: bytes) -> str:
    return f"{code} {reply.decode('utf-8', 'replace')}"
