"""Messages that are browsed, as a selector asks them (core.select). It is tested in the process
that browses: it costs the manager and other clients nothing, however it is made.

A message of which a part that is asked for cannot be read, or is gone meanwhile, is not chosen.
Errors: BadSelector, BadArgument, AccessDenied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from omq.base import clock
from omq.base.clock import NS_PER_S
from omq.base.errors import AccessDenied, OmqError
from omq.core.select import mail
from omq.core.select.names import delivery_mode, lookup
from omq.core.select.parser import Both, Condition, Parser
from omq.core.select.values import Lookup, Truth, Value, all_of, any_of, not_
from omq.format.pool import RecordFlag
from omq.ipc.wire import arguments

if TYPE_CHECKING:
    from omq.ipc.client.browsed import Browsed


def chooser(where: str) -> Callable[[Browsed], bool]:
    """Parses a selector, once; says of a message whether it is chosen."""
    found = Parser[Condition](arguments.text(where, "where")).parse()

    def chosen(message: Browsed) -> bool:
        try:
            return _test(found, lookup(_Source(message))) is True
        except AccessDenied:
            raise  # "it is not chosen" would be a guess
        except OmqError:
            return False
    return chosen


def _test(found: Both[Condition] | Condition, ask: Lookup) -> Truth:
    if isinstance(found, Condition):
        return found.test(ask)
    said = (_test(part, ask) for part in found.parts)
    if found.kind == "NOT":
        return not_(next(said))
    return all_of(said) if found.kind == "AND" else any_of(said)


class _Source:
    """A message on a queue; see core.select.names."""

    def __init__(self, message: Browsed) -> None:
        self._message = message

    @property
    def texts(self) -> Mapping[str, str]:
        return self._message.texts

    def header(self, name: str) -> str:
        return mail.header(mail.head(self._message.body), name)

    def field(self, name: str) -> Value:
        message = self._message
        if name in ("priority", "size", "attempts", "queue", "persistent"):
            found: Value = getattr(message, name)
            return found
        if name in ("correlation", "reply_to"):
            return getattr(message, name) or None
        if name == "id":
            return message.message_id
        if name == "state":
            return message.state.name.lower()
        if name == "retries":
            return message.defers
        if name == "timestamp":
            return message.put_time_ns // 1_000_000
        if name == "age":
            return (clock.wall_ns() - message.put_time_ns) // NS_PER_S
        if name == "delivery_mode":
            return delivery_mode(persistent=message.persistent)
        return self._seldom(name)

    def _seldom(self, name: str) -> Value:
        """What the index says besides, and a mail's envelope."""
        message = self._message
        if name == "sender":
            return mail.sender(message.texts, message._descriptor().application) or None
        if name == "recipient":
            return "\n".join(mail.recipients(message.texts)) or None
        if name == "subject":
            return message.texts.get("subject") or self.header("subject") or None
        row = message.row.message
        if name == "replayed":
            return bool(row.flags & RecordFlag.REPLAYED)
        return {"pid": row.pid, "lsn": row.lsn, "queues": row.parts}[name]
