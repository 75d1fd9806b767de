"""What the payload of one message says of it: properties, and the header of a mail.

The body of a mail begins with its header (RFC 5322); encoded words (RFC 2047) come out decoded and
folded lines as one. Of a message that is no mail `header` is empty for every name, unless its body
looks like one. Nothing is read before it is asked for.

Errors: those of core.look.stored.
"""

from __future__ import annotations

import email.policy
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from email.parser import BytesHeaderParser
from typing import Final

from omq.core.index.rows import MessageRow
from omq.core.look.stored import Stored, StoredMessages

SENDER: Final = "mail.from"
RECIPIENTS: Final = "mail.to"
"""Properties of a mail (services.mail.mail_message has them all)."""
HEAD_BYTES_MAX: Final = 1 << 16


class MessageFacts:
    """See the module; for as long as `messages` is open. `unreadable`: why it could not be read,
    which whoever met the error notes."""

    def __init__(self, messages: StoredMessages, row: MessageRow) -> None:
        self._messages, self._row = messages, row
        self.unreadable = ""
        self._stored: Stored | None = None
        self._head: Message | None = None

    @property
    def stored(self) -> Stored:
        if self._stored is None:
            self._stored = self._messages.read(self._row)
        return self._stored

    @property
    def properties(self) -> dict[str, str]:
        return self.stored.properties

    @property
    def sender(self) -> str:
        """Of a mail the sender of its envelope; else the application that put the message."""
        found = self.properties.get(SENDER)
        if found is not None:
            return found
        return self.stored.descriptor.application.decode("ascii", "backslashreplace")

    @property
    def recipients(self) -> list[str]:
        """Of a mail, as it was submitted."""
        return self.properties.get(RECIPIENTS, "").splitlines()

    @property
    def subject(self) -> str:
        """The property `subject`, else that of a mail's header."""
        return self.properties.get("subject") or self.header("subject")

    def header(self, name: str) -> str:
        """A field of the header, decoded; empty when there is none."""
        if self._head is None:
            body = self._messages.body(self._row, self.stored)[:HEAD_BYTES_MAX]
            self._head = BytesHeaderParser(policy=email.policy.compat32).parsebytes(body)
        raw = self._head[name]
        if raw is None:
            return ""
        text = " ".join(str(raw).split())
        try:
            return str(make_header(decode_header(text))) if "=?" in text else text
        except (HeaderParseError, LookupError, ValueError):
            return text
