"""One SMTP connection to a peer, kept open over several messages, with a result per recipient.

`SmtpConnection.send` runs one mail transaction and never raises for anything that a peer or a
network does: each recipient ends delivered, temporarily refused or refused for good, in the peer's
words.

Rules (RFC 5321 unless said otherwise):
1. Between two messages RSET is sent; a connection that does not answer it with 250 is opened again.
   Where PIPELINING (RFC 2920) is offered, all commands up to DATA go out in one piece.
2. SIZE (RFC 1870), BODY=8BITMIME (RFC 6152) and SMTPUTF8 (RFC 6531) are used where offered. A
   message that needs one of the latter two and meets a peer without it is refused for good (5.6.3,
   5.6.7): converting it would change its bytes.
3. The text goes out as it is, dots at line starts doubled. The one exception: a bare CR or LF,
   which a client must not send (2.3.8) and by which a text could fake the end of data at a lax
   peer (SMTP smuggling), goes out as CRLF; and a last line without end gets one.
4. Delivered is what was sent behind 354 and answered with 250 after that. The connection of a peer
   that says one reply too many is used no more.
5. 421 and a broken connection are temporary for all recipients that have no answer of their own
   yet. 552 to RCPT is "too many recipients" of old servers: temporary (4.5.3.1.10).

Crash argument: a connection that breaks between the final dot and its answer leaves the peer with
the message or without it; it is sent again, so the peer may have it twice (RFC 1047). Never lost.
"""

from __future__ import annotations

import re
import smtplib
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from omq.base import fault
from omq.services.mail.dane import Tlsa
from omq.services.mail.mail_message import one_line
from omq.services.mail.peer_line import Line, NotSecureError, Opening, Security, opened
from omq.services.mail.routes import Peer
from omq.services.mail.smtp_reply import Reply, Result, Verdict

_BARE = re.compile(rb"\r\n|\r|\n")
_LINE_DOT = re.compile(rb"^\.", re.MULTILINE)
_NETWORK = (OSError, smtplib.SMTPException, ValueError)  # the last: words that mean nothing
_SIZE_DIGITS_MAX = 20  # RFC 1870 section 3; what is longer is not a limit that a text could meet


class _DeadError(Exception):
    """A kept connection does not answer."""


@dataclass(frozen=True, slots=True)
class Mail:
    """What one transaction sends."""

    sender: str
    recipients: Sequence[str]
    body: bytes
    smtputf8: bool = False
    parameters: str = ""  # RET and ENVID
    dsn_requests: Mapping[str, str] = field(default_factory=dict)  # NOTIFY and ORCPT by recipient
    addresses: Sequence[str] = ()  # of the peer; none: what its name means
    whole: bool = False  # all recipients or none
    tlsa: Sequence[Tlsa] = ()  # what the peer's certificate must be, at the level `dane`


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Time-outs in seconds and how many messages one connection carries."""

    connect_timeout_s: float
    reply_timeout_s: float
    data_timeout_s: float
    messages_max: int


class SmtpConnection:
    """The connection to one peer; opened when first needed and after it broke."""

    def __init__(self, peer: Peer, hostname: str, limits: ClientLimits,
                 security: Security | None = None, *, lmtp: bool = False) -> None:
        self.peer = peer
        self.reached = True  # False: it could not be opened, or the peer has fallen silent
        self._limits = limits
        self._lmtp = lmtp
        self._opening = Opening(hostname, limits.connect_timeout_s, limits.reply_timeout_s,
                                security or Security(), lmtp)
        self._client: Line | None = None
        self._sent = 0

    def send(self, message: Mail) -> list[Result]:
        """One transaction; a result for each recipient, in their order."""
        if self._client is not None and self._sent >= self._limits.messages_max:
            self.close()
        results: dict[str, Result] = {}
        if self._client is None or not self._over(self._client, message, results, kept=True):
            try:
                client = self._client = opened(self.peer, message.addresses, self._opening,
                                               message.tlsa)
                self._sent = 0
            except (*_NETWORK, NotSecureError) as error:
                self.reached = False
                status = error.status if isinstance(error, NotSecureError) else "4.4.1"
                return self._broken(message.recipients, error, status)
            self._over(client, message, results, kept=False)
        return [results[recipient] for recipient in message.recipients]

    def _over(self, client: Line, message: Mail, results: dict[str, Result], *, kept: bool
              ) -> bool:
        """One transaction. False: the kept connection is dead, and nothing was begun."""
        self.reached = True
        try:
            self._transact(client, message, results, kept=kept)
        except _DeadError:
            self.abandon()
            return False
        except _NETWORK as error:
            self.reached = not isinstance(error, TimeoutError)
            self.abandon()
            missing = [each for each in message.recipients if each not in results]
            results.update({each.recipient: each
                            for each in self._broken(missing, error, "4.4.2")})
        return True

    def close(self) -> None:
        """Say QUIT, if there is anybody to say it to. What it says to that is not waited for: all
        mail has its answer, and others' mail would wait for as long as it likes."""
        if self._client is not None:
            with suppress(*_NETWORK):  # the peer may be gone: closing is all that was wanted
                self._client.putcmd("QUIT")
        self.abandon()

    def abandon(self) -> None:
        """Close without a word."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def cut(self) -> None:
        """From another thread: let what `send` waits for come to nothing."""
        client = self._client
        line = client.sock if client is not None else None
        if line is not None:
            with suppress(OSError):  # it has ended meanwhile
                line.shutdown(socket.SHUT_RDWR)

    def _transact(self, client: Line, message: Mail, results: dict[str, Result], *,
                  kept: bool) -> None:
        self._sent += 1
        if kept and client.has_surplus():
            raise _DeadError
        text = wire_text(message.body)
        refused = _unsupported(client, message, text)
        if refused is not None:
            results.update({each: replace(refused, recipient=each) for each in message.recipients})
            return
        dialog = _Dialog(client, [
            *(["RSET"] if kept else []), f"MAIL {_mail_from(client, message, text)}",
            *(f"RCPT TO:<{each}>{_wish(client, message, each)}" for each in message.recipients),
            "DATA"])
        if kept:
            dialog.reset()
        reply = dialog.next()
        if reply.code != 250:
            results.update({each: reply.result(each) for each in message.recipients})
            self._leave(dialog, reply)
            return
        accepted = []
        for recipient in message.recipients:
            reply = dialog.next()
            if reply.code in (250, 251):
                accepted.append(recipient)
                continue
            temporary = True if reply.code in (552, 421) else None
            results[recipient] = reply.result(recipient, temporary=temporary)
            if reply.code == 421:
                raise smtplib.SMTPServerDisconnected(reply.text)
        lost = next((results[each] for each in message.recipients if each in results), None)
        if message.whole and lost is not None:
            results.update({each: replace(lost, recipient=each) for each in accepted})
            self._leave(dialog, reply)
        elif accepted:
            self._data(client, text, dialog.next(), accepted, results)
        else:
            self._leave(dialog, reply)

    def _leave(self, dialog: _Dialog, reply: Reply) -> None:
        """End a transaction in which nobody gets the text."""
        if not dialog.rest():
            self.abandon()
        self._after(reply)

    def _data(self, client: Line, text: bytes, reply: Reply, accepted: Sequence[str],
              results: dict[str, Result]) -> None:
        taken = reply.code == 354
        if client.has_surplus() if taken else 200 <= reply.code < 400:
            raise smtplib.SMTPException(f"out of step: {reply.code} {reply.text}")
        if taken:
            client.patience(self._limits.data_timeout_s)
            fault.point("unix.before_send")
            client.send(text + b".\r\n")
        for recipient in accepted:
            # Over LMTP each recipient has a reply of its own (RFC 2033 section 4.2).
            if taken and (self._lmtp or recipient == accepted[0]):
                reply = _reply(*client.getreply())
                fault.point("unix.after_send")
            results[recipient] = reply.result(recipient) if reply.code != 250 else Result(
                recipient, Verdict.DELIVERED, "2.0.0", one_line(reply.text),
                tells=client.has_extn("dsn"))
        client.patience(self._limits.reply_timeout_s)
        self._after(reply)

    def _after(self, reply: Reply) -> None:
        if reply.code in (421, -1):  # the peer closes, or spoke no SMTP
            self.abandon()

    def _broken(self, recipients: Sequence[str], error: Exception, status: str) -> list[Result]:
        words = one_line(f"{type(error).__name__}: {error}")
        return [Result(each, Verdict.TEMPORARY, status, words) for each in recipients]


class _Dialog:
    """The commands up to DATA and their replies: a round trip each, or one for all of them."""

    def __init__(self, client: Line, commands: Sequence[str]) -> None:
        self._client = client
        self._commands = commands
        self._at_once = client.has_extn("pipelining")
        self._read = 0

    def reset(self) -> None:
        """The first command is RSET, on a kept connection. _DeadError."""
        try:
            alive = self.next().code == 250
        except _NETWORK as error:
            raise _DeadError from error
        if not alive:
            raise _DeadError

    def next(self) -> Reply:
        """The reply to the next command."""
        if not self._at_once:
            self._client.putcmd(self._commands[self._read])
        elif not self._read:
            self._client.send("".join(f"{command}\r\n" for command in self._commands))
        self._read += 1
        return _reply(*self._client.getreply())

    def rest(self) -> bool:
        """Read what is still to come. False: the peer waits for a text that nobody gets."""
        code = 0
        while self._at_once and self._read < len(self._commands):
            code = self.next().code
        return code != 354


def wire_text(body: bytes) -> bytes:
    """The body as it follows DATA, without the final dot (rule 3)."""
    if not body.count(b"\r\n") == body.count(b"\r") == body.count(b"\n"):
        body = _BARE.sub(b"\r\n", body)
    if body and not body.endswith(b"\r\n"):
        body += b"\r\n"
    return _LINE_DOT.sub(b"..", body)


def _mail_from(client: Line, message: Mail, text: bytes) -> str:
    words = [f"FROM:<{message.sender}>"]
    if client.has_extn("size"):
        words.append(f"SIZE={len(text)}")
    if client.has_extn("8bitmime") and not text.isascii():
        words.append("BODY=8BITMIME")
    if _needs_utf8(message):
        words.append("SMTPUTF8")
    return " ".join(words) + (message.parameters if client.has_extn("dsn") else "")


def _wish(client: Line, message: Mail, recipient: str) -> str:
    return message.dsn_requests.get(recipient, "") if client.has_extn("dsn") else ""


def _unsupported(client: Line, message: Mail, text: bytes) -> Result | None:
    """What the peer would refuse, by what it offers. In words of ours: it has not said so."""
    limit = client.esmtp_features.get("size", "")
    known = limit.isascii() and limit.isdigit() and len(limit) <= _SIZE_DIGITS_MAX
    if known and 0 < int(limit) < len(text):
        return _never("5.3.4", f"the message has {len(text)} bytes, the host takes {limit}")
    if _needs_utf8(message) and not client.has_extn("smtputf8"):
        return _never("5.6.7", "the host does not take internationalized mail (SMTPUTF8)")
    if not text.isascii() and not client.has_extn("8bitmime"):
        return _never("5.6.3", "the host does not take 8-bit mail (8BITMIME)")
    return None


def _never(status: str, words: str) -> Result:
    return Result("", Verdict.PERMANENT, status, words)


def _needs_utf8(message: Mail) -> bool:
    addresses = (message.sender, *message.recipients)
    return message.smtputf8 or not all(address.isascii() for address in addresses)


def _reply(code: int, text: bytes) -> Reply:
    return Reply(code, text.decode("utf-8", "replace"))
