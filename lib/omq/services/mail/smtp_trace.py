"""The Received field that smtp.server writes on top of what it takes (RFC 5321 section 4.4)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import lru_cache

from omq.base import clock
from omq.services.mail.mail_message import header_fields

_UNFIT = re.compile(r"[^A-Za-z0-9.:_\[\]-]+")


def received_field(hostname: str, helo: str, peer: str, protocol: str, mail_id: str,
                   recipients: Sequence[str], secured: str = "") -> bytes:
    """The field, as bytes with CRLF. A single recipient is named; of several none, for the blind.

    `protocol` is SMTP, ESMTP, UTF8SMTP, with S and A after it (RFC 3848, RFC 6531 4.3)."""
    literal = f"IPv6:{peer}" if ":" in peer else peer
    only = recipients[0] if len(recipients) == 1 else ""
    target = f"\r\n\tfor <{only}>" if only and only.isascii() else ""
    now = _date(clock.wall_ns() // clock.NS_PER_S)
    using = f"\r\n\t(using {secured})" if secured else ""
    return (f"Received: from {fit(helo) or 'unknown'} ([{literal}]){using}\r\n"
            f"\tby {hostname} (omq) with {protocol} id {mail_id}{target};\r\n"
            f"\t{now}\r\n").encode("ascii")


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    """A time of RFC 5322, made once a second."""
    return format_datetime(datetime.fromtimestamp(second, UTC))


def fit(name: str) -> str:
    """What a client calls itself, made fit for a header field."""
    return _UNFIT.sub("?", name)[:255]


def protocol(*, extended: bool, utf8: bool, secured: bool, known: bool) -> str:
    """The word behind "with": how a mail came."""
    kind = "UTF8SMTP" if utf8 else "ESMTP" if extended or secured else "SMTP"
    return kind + "S" * secured + "A" * known


def submitted(body: bytes, head_bytes: int, hostname: str, mail_id: str, scan_bytes: int) -> bytes:
    """A text with the fields that a submission server adds (RFC 6409 section 8): Date and
    Message-ID, after the first `head_bytes`, if they are missing."""
    there = {name for name, _, _ in header_fields(body, scan_bytes)}
    now = _date(clock.wall_ns() // clock.NS_PER_S)
    more = "" if b"date" in there else f"Date: {now}\r\n"
    if b"message-id" not in there:
        more += f"Message-ID: <{mail_id}@{hostname}>\r\n"
    return body[:head_bytes] + more.encode("ascii") + body[head_bytes:] if more else body
