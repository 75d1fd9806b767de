"""logs/mail.log: one line for each step of a mail, in the form that tools for mail logs read.

    Nov 22 11:36:09 mx.example.org omq/smtpd[71]: ID: client=mail.example.net[192.0.2.1]
    ...                            omq/cleanup[71]: ID: message-id=<a@example.net>
    ...                            omq/qmgr[71]: ID: from=<a@example.net>, size=812, nrcpt=2 (...)
    ...                            omq/local[80]: ID: to=<b@example.org>, relay=local, delay=0.04,
                                                   dsn=2.0.0, status=sent (delivered to mailbox)

The words are those of Postfix's log (its programs smtpd, cleanup, qmgr, smtp, local, bounce), which
pflogsumm and its like understand when they get the name `omq` (`--syslog-name=omq`). ID is the
mail's own: that of the 250 reply, of the Received field and of `omqlog --mail`.

Invariants: 1. one step, or those of a batch (`together`), is one write() on an O_APPEND descriptor;
2. nothing that a stranger sent can start a new line or hold a control character; 3. a log that
cannot be written stops nothing: the lines are counted, and the next one that goes through says how
many are missing. How it is bounded and followed: base.log_file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from omq.base import clock
from omq.base.log_file import LogFile
from omq.services.mail.mail_host import mail_hostname
from omq.services.mail.mail_message import ARRIVAL, ID, one_line

if TYPE_CHECKING:
    from omq.services.readers.service import ServiceContext

FILE_NAME: Final = "mail.log"
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov",
                  "Dec")  # not the locale's


class MailLog:
    """One process's way to the log."""

    def __init__(self, logs: Path, hostname: str, bytes_max: int) -> None:
        self._file = LogFile(logs / FILE_NAME, bytes_max, lambda reason: None)  # lines count it
        self.hostname = hostname
        self._lost = 0
        self._gathered: list[tuple[str, str]] | None = None
        self._second, self._made = -1, ""

    def close(self) -> None:
        """Let go of the file; the next line opens it again."""
        self._file.close()

    @contextmanager
    def together(self) -> Iterator[None]:
        """What comes in here is one write, at its end. Who is killed in between leaves none of it.
        """
        self._gathered = found = list[tuple[str, str]]()
        try:
            yield
        finally:
            self._gathered = None
            self.write(found)

    def write(self, lines: Iterable[tuple[str, str]]) -> None:
        """(program, text) of each line of a step."""
        if self._gathered is not None:
            self._gathered += lines
            return
        told = [("master", f"{self._lost} lines are missing here")] if self._lost else []
        listed = [*told, *lines]
        if len(listed) == len(told):
            return
        head = self._head(clock.wall_ns() // clock.NS_PER_S)
        data = "".join(f"{head}{program}[{os.getpid()}]: {text}\n" for program, text in listed)
        raw = data.encode("utf-8", "replace")
        try:
            whole = self._file.ready() and self._file.write(raw) == len(raw)
        except OSError:
            whole = False
        self._lost = 0 if whole else self._lost + len(listed) - len(told)

    def _head(self, second: int) -> str:
        """Time and host, made once a second."""
        if second != self._second:
            now = time.localtime(second)
            self._second = second
            self._made = (f"{_MONTHS[now.tm_mon - 1]} {now.tm_mday:2} {now.tm_hour:02}:"
                          f"{now.tm_min:02}:{now.tm_sec:02} {self.hostname} omq/")
        return self._made

    def refused(self, command: str, client: str, reply: str, sender: str, recipient: str) -> None:
        """smtp.server said no."""
        to = f" to=<{shown(recipient)}>" if recipient else ""
        self.write((("smtpd", f"NOQUEUE: reject: {command} from {shown(client)}: {shown(reply)}; "
                              f"from=<{shown(sender)}>{to}"),))


def accepted_lines(mail_id: str, client: str, message_id: str, sender: str, size: int,
                   recipients: int) -> tuple[tuple[str, str], ...]:
    """A mail came in over SMTP."""
    return (
        ("smtpd", f"{mail_id}: client={shown(client)}"),
        *made_lines(mail_id, message_id, size, sender, recipients),
    )


def made_lines(mail_id: str, message_id: str, size: int, sender: str = "", recipients: int = 1
               ) -> tuple[tuple[str, str], ...]:
    """A mail is on a queue: one that came, or a report (the null sender) made here."""
    return (
        ("cleanup", f"{mail_id}: message-id={shown(message_id)}"),
        ("qmgr", f"{mail_id}: from=<{shown(sender)}>, size={size}, nrcpt={recipients} "
                 "(queue active)"),
    )


def mail_log_of(context: ServiceContext) -> MailLog:
    """The log of a reader service."""
    return MailLog(context.paths.logs, mail_hostname(context.settings),
                   context.settings.mail_log_bytes_max)


def delivery(mail_id: str, recipient: str, relay: str, delay_s: float, dsn: str, status: str,
             text: str, original: str = "") -> str:
    """The words of what happened to a recipient; `status` is sent, deferred or bounced. `original`
    is the address that led to it, where that is another one."""
    named = f"to=<{shown(recipient)}>" + (f", orig_to=<{shown(original)}>" if original else "")
    return (f"{mail_id}: {named}, relay={shown(relay)}, delay={delay_s:.2f}, "
            f"dsn={dsn}, status={status} ({shown(text)})")


def shown(text: str) -> str:
    """Foreign text fit for a line."""
    return one_line(text)


def mail_id(properties: Mapping[str, str], message_id: str) -> str:
    """The id of the mail that a queue message is of: the first message's."""
    found = properties.get(ID, "")
    return found if found.isalnum() and found.isascii() else message_id


def arrival_ns(properties: Mapping[str, str], put_time_ns: int) -> int:
    """When the mail came to this host, wall clock; nonsense in the property counts as absent."""
    text = properties.get(ARRIVAL, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else put_time_ns


def delay_s(properties: Mapping[str, str], put_time_ns: int) -> float:
    """Since when it is here, in seconds."""
    return max(0, clock.wall_ns() - arrival_ns(properties, put_time_ns)) / clock.NS_PER_S
