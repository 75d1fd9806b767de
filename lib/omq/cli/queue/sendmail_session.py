"""`sendmail -bs`: SMTP on standard input and output, for a program that has no port to speak to.

Each text is handed in like any other mail of this user (sendmail_hand_in) and answered with 250
once it is safe. It has no extensions but those that cost nothing to promise (PIPELINING, 8BITMIME,
SIZE, SMTPUTF8, ENHANCEDSTATUSCODES), knows no TLS and no users: who speaks is known.

Rules: 1. an end of data is CR LF . CR LF, or LF . LF from a program that ends its lines so (as all
sendmail programs take it: both ends of the pipe are the same user's); 2. lines and texts are
bounded; 3. after too many refusals it ends.
"""

from __future__ import annotations

import sys
from typing import BinaryIO, Final

from omq.base.errors import Exit, OmqError
from omq.base.settings import Settings
from omq.cli.queue.sendmail_hand_in import Hand
from omq.services.mail.drop_protocol import Request
from omq.services.mail.mail_host import mail_hostname
from omq.services.mail.mail_message import address_problem
from omq.services.mail.smtp_address import path_of

_LINE_BYTES_MAX: Final = 4096


class Session:
    """Over these streams, until QUIT or the end of the input."""

    def __init__(self, hand: Hand, settings: Settings, given: BinaryIO | None = None,
                 answers: BinaryIO | None = None) -> None:
        self._hand, self._settings = hand, settings
        self._in, self._out = given or sys.stdin.buffer, answers or sys.stdout.buffer
        self._host = mail_hostname(settings)
        self._sender: str | None = None
        self._to: list[str] = []
        self._errors = 0

    def run(self) -> int:
        """The exit code."""
        self._say(f"220 {self._host} ESMTP omq")
        while (line := self._in.readline(_LINE_BYTES_MAX + 2)):
            if len(line) > _LINE_BYTES_MAX and not line.endswith(b"\n"):
                while line and not line.endswith(b"\n"):
                    line = self._in.readline(_LINE_BYTES_MAX)
                self._refuse("500 5.5.2 the line is too long")
                continue
            verb, _, rest = line.decode("utf-8", "replace").strip().partition(" ")
            if verb.upper() == "QUIT":
                self._say("221 2.0.0 bye")
                return Exit.OK
            self._command(verb.upper(), rest)
            if self._errors > self._settings.smtp_session_errors_max:
                self._say("421 4.7.0 too many errors")
                return Exit.DATA
        return Exit.OK

    def _command(self, verb: str, rest: str) -> None:
        if verb == "EHLO":
            self._clear()
            size = self._settings.smtp_message_bytes_max
            self._say(f"250-{self._host}\r\n250-PIPELINING\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n"
                      f"250-ENHANCEDSTATUSCODES\r\n250 SIZE {size}")
        elif verb in ("HELO", "RSET", "NOOP"):
            if verb != "NOOP":
                self._clear()
            self._say(f"250 2.0.0 {self._host}")
        elif verb == "VRFY":
            self._say("252 2.5.0 send mail, and it will be tried")
        elif verb == "HELP":
            self._say("214 2.0.0 EHLO HELO MAIL RCPT DATA RSET NOOP VRFY QUIT")
        elif verb == "MAIL" and rest[:5].upper() == "FROM:":
            self._mail(rest[5:])
        elif verb == "RCPT" and rest[:3].upper() == "TO:":
            self._rcpt(rest[3:])
        elif verb == "DATA":
            self._data()
        else:
            self._refuse("500 5.5.2 this is not an SMTP command")

    def _mail(self, text: str) -> None:
        path = path_of(text)
        if self._sender is not None:
            self._refuse("503 5.5.1 a mail has begun already")
        elif path is None or (path[0] and address_problem(path[0], smtputf8=True)):
            self._refuse("553 5.1.7 this is not an address")
        else:
            self._sender = path[0]
            self._say("250 2.1.0 OK")

    def _rcpt(self, text: str) -> None:
        path = path_of(text)
        if self._sender is None:
            self._refuse("503 5.5.1 MAIL comes first")
        elif len(self._to) >= self._settings.smtp_recipients_max:
            self._refuse("452 4.5.3 too many recipients")
        elif path is None or address_problem(path[0], smtputf8=True):
            self._refuse("553 5.1.3 this is not an address")
        else:
            self._to.append(path[0])
            self._say("250 2.1.5 OK")

    def _data(self) -> None:
        if self._sender is None or not self._to:
            self._refuse("503 5.5.1 MAIL and RCPT come first")
            return
        self._say("354 end with a line that has a dot alone")
        draft, whole = self._text()
        request = Request(len(draft), sender=self._sender, to=tuple(self._to))
        self._clear()
        if not whole:
            return  # its author died in the middle
        if len(draft) > self._settings.smtp_message_bytes_max:
            self._refuse("552 5.3.4 the message is too long")
            return
        try:
            self._say(f"250 2.0.0 OK {self._hand.give(request, draft)}")
        except OmqError as error:
            later = error.exit_code in (Exit.TEMPORARY, Exit.UNAVAILABLE, Exit.OS, Exit.IO)
            self._refuse(f"{'451 4.3.0' if later else '554 5.6.0'} {error}".replace("\n", " "))

    def _text(self) -> tuple[bytes, bool]:
        """The text, cut behind its limit, without doubled dots; and whether it has its end."""
        limit = self._settings.smtp_message_bytes_max
        kept, begins = bytearray(), True  # begins: a line begins here
        while (line := self._in.readline(64 * 1024)):
            if begins and line in (b".\r\n", b".\n"):
                return bytes(kept), True
            if begins and line.startswith(b"."):
                line = line[1:]
            begins = line.endswith(b"\n")
            if len(kept) <= limit:
                kept += line
        return bytes(kept), False

    def _clear(self) -> None:
        self._sender, self._to = None, []

    def _refuse(self, reply: str) -> None:
        self._errors += 1
        self._say(reply)

    def _say(self, reply: str) -> None:
        self._out.write(reply.encode("utf-8", "replace") + b"\r\n")
        self._out.flush()
