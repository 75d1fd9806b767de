"""What a mail says of itself: its envelope, in properties, and the fields of its header (RFC 5322),
with encoded words (RFC 2047) decoded and folded lines as one. Of what is not a mail the fields are
empty, unless its body looks like one."""

from __future__ import annotations

from collections.abc import Mapping
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from email.parser import BytesHeaderParser
from email.policy import compat32
from typing import Final

SENDER: Final = "mail.from"
RECIPIENTS: Final = "mail.to"
"""Properties of a mail (services.mail.mail_message has them all)."""
HEAD_BYTES_MAX: Final = 1 << 16


def sender(properties: Mapping[str, str], application: bytes) -> str:
    """Of a mail the sender of its envelope; else the application that put the message."""
    found = properties.get(SENDER)
    return found if found is not None else application.decode("ascii", "backslashreplace")


def recipients(properties: Mapping[str, str]) -> list[str]:
    """Of a mail, as it was submitted."""
    return properties.get(RECIPIENTS, "").splitlines()


def head(body: bytes) -> Message:
    """The header that a body begins with."""
    return BytesHeaderParser(policy=compat32).parsebytes(body[:HEAD_BYTES_MAX])


def header(found: Message, name: str) -> str:
    """A field of it, decoded; empty when there is none."""
    raw = found[name]
    if raw is None:
        return ""
    text = " ".join(str(raw).split())
    try:
        return str(make_header(decode_header(text))) if "=?" in text else text
    except (HeaderParseError, LookupError, ValueError):
        return text
