"""Whole groups: all messages of a group at once, and one end for all of them (ADR 0053).

A group is handed out when its last message and all before it are on the queue and nobody has one
of them. It ends as one: one request, one block of the journal, so over any crash all of it has
ended or nothing. A reader that dies with a group has failed with all of it.

Errors: LeaseLost, MessageInGroup; those of a reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, overload

from omq.base import limits
from omq.base.clock import NS_PER_S as NS
from omq.base.errors import LeaseLost, MessageInGroup
from omq.fast.handed_messages import Facts
from omq.format.wire import Key, Settlement
from omq.ipc.client.ids_asked import IdAsked
from omq.ipc.client.reader import BATCH, NOBODYS_FAULT, Reader
from omq.ipc.wire import arguments

if TYPE_CHECKING:
    from omq.ipc.client.connection_parts import Wire
    from omq.ipc.client.message import Message
    from omq.ipc.wire.exchange import Answer
    from omq.ipc.wire.outgoing import Outgoing

_ANY: Final = IdAsked(Key.GROUP, 0, b"")


class Group(Sequence["Message"]):
    """A whole group in a reader's hands: a sequence of its messages, by their numbers.

    `done`, `defer`, `fail` and `release` end the work on all of them, once: LeaseLost after that,
    and when the manager has taken it back. Those of a single message are MessageInGroup."""

    def __init__(self, reader: GroupReader, messages: list[Message]) -> None:
        self._reader, self._messages = reader, messages

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        return self._messages[index]

    def __len__(self) -> int:
        return len(self._messages)

    def __repr__(self) -> str:
        return f"<Group of {len(self)} messages on {self._reader.queue}>"

    @property
    def group_id(self) -> str:
        """As it was put."""
        return self._messages[0].group_id

    @property
    def body(self) -> bytes:
        """The bodies of its messages, one after the other."""
        return b"".join(message.body for message in self._messages)

    def done(self) -> None:
        """Finished: all of it leaves the queue."""
        self._reader.settle(self, Settlement.DONE)

    def defer(self, seconds: float, reason: str = "") -> None:
        """Hand it out again after `seconds`; no failed attempt is counted."""
        delay = arguments.seconds(seconds, "seconds")
        self._reader.settle(self, Settlement.DEFER, int(delay * NS), arguments.text(
            reason, "reason"))

    def fail(self, reason: str = "", delay_s: float | None = None) -> None:
        """A failed attempt of all of it; as Message.fail."""
        argument = 0
        if delay_s is not None:
            argument = 1 + int(arguments.seconds(delay_s, "delay_s") * NS)
        self._reader.settle(self, Settlement.FAIL, argument, arguments.text(reason, "reason"))

    def release(self) -> None:
        """Give it back untouched."""
        self._reader.settle(self, Settlement.RELEASE)


class GroupReader:
    """A reader of whole groups, made by Connection.group_reader: a context manager and an iterator.

        with connection.group_reader("ORDERS") as reader:
            for group in reader:
                work(group.body)
                group.done()

    Leaving it gives back the group that it holds; by an exception, that group has failed."""

    def __init__(self, wire: Wire, queue: str, *, auxiliary: bool) -> None:
        self._reader = _Members(wire, queue, batch=limits.BATCH_MAX, auxiliary=auxiliary, ack=BATCH)
        self._group: Group | None = None

    @property
    def queue(self) -> str:
        """What it reads."""
        return self._reader.queue

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._reader.closed

    def next(self, timeout_s: float | None = None) -> Group | None:
        """A whole group; None when `timeout_s` is over (None: wait for ever), and on `interrupt`.
        One at a time: what was not settled goes back first."""
        if timeout_s is not None:
            timeout_s = arguments.seconds(timeout_s, "timeout_s")
        if self._group is not None:
            self._group.release()
        messages = self._reader.whole_group(timeout_s)
        if not messages:
            return None
        self._group = Group(self, messages)
        return self._group

    def __iter__(self) -> Iterator[Group]:
        while (group := self.next()) is not None:
            yield group

    def settle(self, group: Group, kind: Settlement, argument: int = 0, reason: str = "") -> None:
        """One request for all of it; see Group."""
        if self._group is not group:
            raise LeaseLost(qpool_id=group[0].qpool_id)
        self._group = None
        before = self._reader.lost
        self._reader.settle_all(group, kind, argument, reason)
        if self._reader.lost != before:
            raise LeaseLost(qpool_id=group[0].qpool_id)

    def interrupt(self) -> None:
        """As Reader.interrupt."""
        self._reader.interrupt()

    def close(self) -> None:
        """Give back what is held; as Reader.close."""
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if (self._group is not None and isinstance(error, Exception)
                and not isinstance(error, NOBODYS_FAULT)):
            self._group.fail(f"{type(error).__name__}: {error}")
        self._reader.__exit__(kind, error, trace)


class _Members(Reader):
    """The messages of whole groups, which end together."""

    def whole_group(self, timeout_s: float | None) -> list[Message]:
        """Empty when the time is over or on `interrupt`."""
        if self._interrupted():
            return []
        found = self._take(limits.BATCH_MAX, timeout_s, _ANY)
        if timeout_s != 0:
            self._waited()
        return found

    def settle_all(self, messages: Sequence[Message], kind: Settlement, argument: int, reason: str
                   ) -> None:
        for message in messages:
            self._record(kind, message, argument, reason, later=True)
        self.flush()

    def _record(self, kind: Settlement, message: Facts, argument: int = 0, reason: str = "",
                *, later: bool = False) -> None:
        if not later:
            raise MessageInGroup(qpool_id=message.qpool_id)
        super()._record(kind, message, argument, reason, later=True)

    def _move(self, message: Message, queues: tuple[str, ...], new: tuple[Outgoing, ...],
              want: int = 0) -> Answer:
        raise MessageInGroup(qpool_id=message.qpool_id)
