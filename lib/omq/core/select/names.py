"""What a selector may ask of a message, by name.

    queue state priority size age attempts retries queues pid lsn persistent replayed
    id correlation reply_to timestamp delivery_mode sender recipient subject
    property:NAME       also NAME alone, unless it is one of those above
    header:NAME         of a mail's header

The names that JMS gives to some of them are known: JMSPriority, JMSMessageID, JMSCorrelationID,
JMSTimestamp (ms since 1970), JMSDeliveryMode, JMSReplyTo. `age`: whole seconds; `persistent`,
`replayed`: TRUE or FALSE; `state`: in small letters. What is not there, and an empty text of a
mail, is NULL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from omq.core.select.values import Lookup, Value
from omq.format.property_values import asked

FIELDS: Final = frozenset((
    "queue", "state", "priority", "size", "age", "attempts", "retries", "queues", "pid", "lsn",
    "persistent", "replayed", "id", "correlation", "reply_to", "timestamp", "delivery_mode",
    "sender", "recipient", "subject"))
_JMS: Final = {
    "JMSPriority": "priority", "JMSMessageID": "id", "JMSCorrelationID": "correlation",
    "JMSTimestamp": "timestamp", "JMSDeliveryMode": "delivery_mode", "JMSReplyTo": "reply_to"}


class Source(Protocol):
    """A message that is asked."""

    @property
    def texts(self) -> Mapping[str, str]:
        """The properties that the submitter gave, as they lie in the message."""

    def field(self, name: str) -> Value:
        """One of FIELDS."""

    def header(self, name: str) -> str:
        """Of a mail; empty: there is none."""


def is_field(name: str) -> bool:
    """It is not a property."""
    return name in FIELDS or name in _JMS or name.startswith(("property:", "header:"))


def lookup(source: Source) -> Lookup:
    """How a selector asks it."""
    def ask(name: str) -> Value:
        name = _JMS.get(name, name)
        if name in FIELDS:
            return source.field(name)
        if name.startswith("header:"):
            return source.header(name.removeprefix("header:")) or None
        return asked(source.texts, name.removeprefix("property:"))
    return ask


def delivery_mode(*, persistent: bool) -> str:
    """As JMS writes it."""
    return "PERSISTENT" if persistent else "NON_PERSISTENT"
