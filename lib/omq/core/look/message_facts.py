"""What the payload of one message says of it: properties, and the header of a mail
(core.select.mail). Nothing is read before it is asked for.

Errors: those of core.look.stored.
"""

from __future__ import annotations

from email.message import Message

from omq.core.index.rows import MessageRow
from omq.core.look.stored import Stored, StoredMessages
from omq.core.select import mail
from omq.core.select.mail import RECIPIENTS, SENDER

__all__ = ["RECIPIENTS", "SENDER", "MessageFacts"]


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
        return mail.sender(self.properties, self.stored.descriptor.application)

    @property
    def recipients(self) -> list[str]:
        """Of a mail, as it was submitted."""
        return mail.recipients(self.properties)

    @property
    def subject(self) -> str:
        """The property `subject`, else that of a mail's header."""
        return self.properties.get("subject") or self.header("subject")

    def header(self, name: str) -> str:
        """A field of the header, decoded; empty when there is none."""
        if self._head is None:
            self._head = mail.head(self._messages.body(self._row, self.stored))
        return mail.header(self._head, name)
