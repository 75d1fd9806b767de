"""What the demo sends: mail records, addresses of its small world, and the store of sent messages.

The bytes of every message begin with the line `X-Demo-Id: ID`. That makes the outside check exact:
whatever a mail switch may add on top ends where this line begins, and from there on a delivered
copy must equal the sent bytes.

Invariants: 1. lines end in CRLF, the last one too; no NUL; generated lines have at most 998 bytes
(RFC 5321 4.5.3.1.6, RFC 5322 2.1.1), found ones what omq takes; 2. no recipient is named twice;
3. `hidden` (Bcc) is a part of `recipients` and named in no header field but, at times, Bcc itself.

A Bcc field that the submitter left in the header must not be delivered to anybody (routes.conf:
bcc_header = remove), nor the Return-Path of an earlier delivery, so what must arrive is the sent
message without them: `as_delivered`.

The sent bytes lie in files, one a message, so that a large archive does not have to fit in memory
and a difference can be looked at after the run.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

LOCAL_DOMAIN = "omq.test"
REMOTE_DOMAINS = tuple(f"remote{number}.test" for number in range(1, 6))
LOCAL_USERS = (
    "anna", "bert", "carla", "dieter", "eva", "frank", "greta", "hugo", "ines", "jonas", "karin",
    "lukas", "maria", "nils", "olga", "paul", "rosa", "stefan", "tina", "ulrich", "vera", "walter",
)  # fmt: skip
REMOTE_USERS = ("abel", "baker", "cole", "dora", "ellis", "fay", "grant", "hope", "info", "jude")
# Users that no mailbox exists for. The local ones are refused at once; the sink refuses the remote
# ones, and their mail must come back as a report (RFC 3464).
UNKNOWN_USERS = ("moved.away", "no.such.user", "typo")

ID_HEADER = b"X-Demo-Id"
LINE_MAX = 998

_FIELD = re.compile(rb"([!-9;-~]+)[ \t]*:[^\r\n]*\r\n(?:[ \t][^\r\n]*\r\n)*")
_REMOVED_FIELDS = frozenset((b"bcc", b"resent-bcc", b"return-path"))


@dataclass(frozen=True, slots=True)
class Mail:
    """One message and its envelope; `sender` is empty for the null sender."""

    demo_id: str
    sender: str
    recipients: tuple[str, ...]
    hidden: tuple[str, ...]
    data: bytes
    origin: str
    smtputf8: bool = False


@dataclass(frozen=True, slots=True)
class Sent:
    """A message in the store of sent messages: its envelope, and where its bytes are.

    `size` is that of the sent bytes, `digest` that of the bytes which must arrive.
    """

    demo_id: str
    sender: str
    recipients: tuple[str, ...]
    hidden: tuple[str, ...]
    smtputf8: bool
    eight_bit: bool
    size: int
    digest: bytes
    path: Path

    def read(self) -> bytes:
        """The bytes exactly as handed to SMTP, before dots are doubled."""
        return self.path.read_bytes()

    def to_arrive(self) -> bytes:
        """The bytes that every recipient must get, below the trace fields."""
        return as_delivered(self.read())


def digest_of(data: bytes) -> bytes:
    """The digest that arrived bytes are compared by."""
    return hashlib.sha256(data).digest()


def header_fields(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """(name in lower case, start, end) of the fields on top, until a line that is none."""
    at = 0
    while found := _FIELD.match(data, at):
        yield found[1].lower(), at, found.end()
        at = found.end()


def as_delivered(data: bytes) -> bytes:
    """The message without what a mail switch takes from its header: Bcc, and the Return-Path of an
    earlier delivery (RFC 5321 section 4.4)."""
    cuts = [(start, end) for name, start, end in header_fields(data) if name in _REMOVED_FIELDS]
    for start, end in reversed(cuts):
        data = data[:start] + data[end:]
    return data


def store(mails: Iterable[Mail], folder: Path) -> list[Sent]:
    """Write every message to `folder` and return what the feeder and the check need of it."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_store_one(mail, folder) for mail in mails]


def _store_one(mail: Mail, folder: Path) -> Sent:
    path = folder / f"{mail.demo_id}.eml"
    path.write_bytes(mail.data)
    return Sent(
        demo_id=mail.demo_id,
        sender=mail.sender,
        recipients=mail.recipients,
        hidden=mail.hidden,
        smtputf8=mail.smtputf8,
        eight_bit=not mail.data.isascii(),
        size=len(mail.data),
        digest=digest_of(as_delivered(mail.data)),
        path=path,
    )


def is_local(address: str) -> bool:
    """Whether the address belongs to the demo's own domain."""
    return address.rpartition("@")[2].lower() == LOCAL_DOMAIN


def is_unknown(address: str) -> bool:
    """Whether no mailbox exists for the address, here or at the sink."""
    user = address.rpartition("@")[0].lower()
    return user in UNKNOWN_USERS or (is_local(address) and user not in LOCAL_USERS)


def local_address(user: str) -> str:
    """The address of a mailbox."""
    return f"{user}@{LOCAL_DOMAIN}"
