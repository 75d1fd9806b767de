"""The Received field that smtp.server writes on top of what it takes (RFC 5321 section 4.4)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import format_datetime

from omq.base import clock

_UNFIT = re.compile(r"[^A-Za-z0-9.:_\[\]-]+")


def received_field(hostname: str, helo: str, peer: str, protocol: str, mail_id: str,
                   recipients: Sequence[str]) -> bytes:
    """The field, as bytes with CRLF. A single recipient is named; of several none, for the blind.

    `protocol` is SMTP, ESMTP (RFC 5321) or UTF8SMTP (RFC 6531 section 3.7.3)."""
    literal = f"IPv6:{peer}" if ":" in peer else peer
    only = recipients[0] if len(recipients) == 1 else ""
    target = f"\r\n\tfor <{only}>" if only and only.isascii() else ""
    now = format_datetime(datetime.fromtimestamp(clock.wall_ns() // clock.NS_PER_S, UTC))
    return (f"Received: from {fit(helo) or 'unknown'} ([{literal}])\r\n"
            f"\tby {hostname} (omq) with {protocol} id {mail_id}{target};\r\n"
            f"\t{now}\r\n").encode("ascii")


def fit(name: str) -> str:
    """What a client calls itself, made fit for a header field."""
    return _UNFIT.sub("?", name)[:255]
