"""A mail from a local program made ready for ROUTER: what omsend -t and omq-sendmail take.

The text of a program on this host is a draft (RFC 6409): its lines may end in LF, and fields may be
missing. It becomes what smtp.server would have taken: CRLF, one Received field, and From, Date and
Message-ID where they are missing. With `read` the recipients are those of To, Cc and Bcc and those
given; if the draft is resent (Resent-To ...), those of the resent fields instead. Without it they
are those given alone. Bcc fields are removed in any case, so no recipient learns of a blind one.

Invariants: 1. the text after the header changes only in its line ends; 2. every address passes
`mail_message.address_problem`; 3. a draft with one wrong address is refused whole: half a
submission would leave the sender to guess who got it.

Errors: BadRequest (no recipient, too many, a wrong address, a header over its limit).
"""

from __future__ import annotations

import pwd
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime, formataddr, getaddresses
from typing import Final

from omq.base import clock
from omq.base.errors import BadRequest
from omq.base.names import escape
from omq.base.settings import Settings
from omq.services.mail import mail_message as mail
from omq.services.mail.mail_host import mail_hostname

_POSTMARK: Final = re.compile(rb"\A>?From [^\n]*\n")
"""First line of a message in an mbox file; no header field."""

NAME_CHARACTERS_MAX: Final = 100  # of a person
_BARE_LF: Final = re.compile(rb"(?<!\r)\n")
_PLAIN: Final = frozenset((b"to", b"cc", b"bcc"))
_RESENT: Final = frozenset((b"resent-to", b"resent-cc", b"resent-bcc"))


@dataclass(frozen=True, slots=True)
class Author:
    """Who hands the draft in: the program, the user, as the kernel knows it, and the name of a
    person for a From field that is missing."""

    program: str
    uid: int
    full_name: str = ""


@dataclass(frozen=True, slots=True)
class Submission:
    """A mail and its envelope."""

    body: bytes
    envelope: mail.Envelope
    priority: int


def submission(draft: bytes, addresses: Sequence[str], sender: str | None, settings: Settings,
               author: Author, *, read: bool = True, mark: str = "") -> Submission:
    """The mail in `draft`; `sender` None is the author; a name alone is one of this host. `mark` is
    the id in its Received field; empty: a new one. BadRequest."""
    scan_bytes = settings.mail_header_scan_bytes
    text = _BARE_LF.sub(b"\r\n", _POSTMARK.sub(b"", draft))
    _check_header(text, scan_bytes)
    host = mail_hostname(settings)
    from_whom = _sender(sender, host, author.uid)
    recipients = _recipients(text if read else b"", addresses, scan_bytes)
    mark = mark or uuid.uuid4().hex
    if len(recipients) > settings.smtp_recipients_max:
        reason = f"{len(recipients)} recipients, at most {settings.smtp_recipients_max} are allowed"
        raise BadRequest(reason=reason)
    text = mail.without_fields(
        text, mail.BLIND_FIELDS, list(mail.header_fields(text, scan_bytes)))
    body = (_new_fields(text, from_whom, host, scan_bytes, author, mark)
            + _with_separator(text, scan_bytes))
    smtputf8 = not all(each.isascii() for each in (from_whom, *recipients))
    envelope = mail.Envelope(from_whom, recipients, not body.isascii(), smtputf8)
    return Submission(body, envelope, mail.priority_of(body, mail.header_fields(body, scan_bytes)))


def _check_header(text: bytes, scan_bytes: int) -> None:
    """A header that is only scanned in part could keep a Bcc field."""
    end = mail.header_end(text, scan_bytes)
    if len(text) > scan_bytes and text.find(b"\n", end, scan_bytes) < 0:
        raise BadRequest(reason=f"the header has more than {scan_bytes} bytes")


def _sender(given: str | None, host: str, uid: int) -> str:
    """The envelope sender; empty is the null sender."""
    if given is None:
        return f"{_user(uid)}@{host}"
    address = given.strip().removeprefix("<").removesuffix(">")
    if address and "@" not in address:
        address = f"{address}@{host}"
    return _checked(address, "sender") if address else ""


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a container's user without a name
        return f"uid{uid}"


def _recipients(text: bytes, addresses: Sequence[str], scan_bytes: int) -> tuple[str, ...]:
    """Each once, those of the arguments first."""
    fields = mail.field_values(
        text, _PLAIN | _RESENT, mail.header_fields(text, scan_bytes))
    resent = [value for name, value in fields if name in _RESENT]
    listed = [*addresses, *(resent or [value for _, value in fields])]
    try:
        found = [address for value in listed for _, address in getaddresses([value]) if address]
    except (RecursionError, ValueError, IndexError) as error:  # a comment nested a thousand deep
        raise BadRequest(reason="the recipients cannot be made out") from error
    if not found:
        raise BadRequest(reason="no recipient: none in To, Cc or Bcc, none in the arguments")
    return tuple(dict.fromkeys(_checked(address, "recipient") for address in found))


def _checked(address: str, role: str) -> str:
    problem = mail.address_problem(address, smtputf8=True)
    if problem is not None:
        raise BadRequest(reason=f"{role} {escape(address)!r}: {problem}")
    return address


def _new_fields(text: bytes, sender: str, host: str, scan_bytes: int, author: Author, mark: str
                ) -> bytes:
    """Trace and what the draft lacks, to precede it."""
    present = {name for name, _, _ in mail.header_fields(text, scan_bytes)}
    now = format_datetime(datetime.fromtimestamp(clock.wall_ns() // clock.NS_PER_S, UTC))
    fields = [f"Received: by {host} ({author.program}, uid {author.uid}) id {mark};\r\n\t{now}"]
    if b"from" not in present:
        fields.append(f"From: {_named(author.full_name, sender or f'MAILER-DAEMON@{host}')}")
    if b"date" not in present:
        fields.append(f"Date: {now}")
    if b"message-id" not in present:
        fields.append(f"Message-ID: <{mark}@{host}>")
    return "".join(f"{field}\r\n" for field in fields).encode()


def _named(full_name: str, address: str) -> str:
    """The address after the name of a person: no control character, encoded where it must be."""
    name = mail.one_line(full_name)[:NAME_CHARACTERS_MAX]
    return formataddr((name, address)) if name and address.isascii() else address


def _with_separator(text: bytes, scan_bytes: int) -> bytes:
    """The text with an empty line after its header, also when it had no header at all."""
    end = mail.header_end(text, scan_bytes)
    if text[end : end + 2] == b"\r\n":
        return text
    between = b"\r\n" if end == 0 or text[:end].endswith(b"\n") else b"\r\n\r\n"
    return text[:end] + between + text[end:]
