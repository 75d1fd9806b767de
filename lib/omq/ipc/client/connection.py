"""The client of the queue manager: connect, put, read, browse. This is omq's public Python API.

    with omq.connect() as c:
        c.put("ORDERS", b"body", priority=7, properties={"customer": "42"})
        with c.reader("ORDERS", batch=10) as reader:
            for message in reader:
                work(message.body)
                message.done()

`connect` gives a Client: the Connection that programs use, and what our own tools need besides.
Errors: the classes of omq.base.errors; above all ManagerUnavailable, TimedOut, QueueFull,
NoAuthority, and BadArgument for what can be no argument at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self, cast

from omq.base import limits, names
from omq.base.errors import (
    BadRequest,
    DuplicateAbsorbed,
    ManagerUnavailable,
    OmqError,
    TimedOut,
    UnitOpen,
)
from omq.base.paths import SpoolPaths, chosen_spool, existing_spool
from omq.format.property_values import Value
from omq.ipc.client.barriers import PutsBarriers
from omq.ipc.client.cancelling import ActsById
from omq.ipc.client.connection_parts import Wire
from omq.ipc.client.in_doubt import EndsUnits
from omq.ipc.client.manager_absence import Waiting
from omq.ipc.client.message import Message
from omq.ipc.client.put_arguments import outgoing_of
from omq.ipc.client.put_many import put_many
from omq.ipc.client.queues import QueueCommands
from omq.ipc.client.reader import PROMPT, Reader
from omq.ipc.client.remote_client import is_url, remote_client
from omq.ipc.client.request_reply import REPLIES, Reply, ask
from omq.ipc.client.tool_calls import ToolCalls
from omq.ipc.client.unit import Unit
from omq.ipc.wire import arguments
from omq.ipc.wire.outgoing import Outgoing

if TYPE_CHECKING:
    from omq.ipc.client.browsed import Browsed
    from omq.ipc.client.file_puts import FilePut
    from omq.ipc.client.group import GroupReader

__all__ = ["Client", "Connection", "Message", "Outgoing", "Reader", "Unit", "connect"]

TIMEOUT_S = 60.0


def connect(spool: Path | str | None = None, instance: str | None = None, name: str = "python",
            timeout_s: float = TIMEOUT_S, waiting: Waiting | None = None) -> Client:
    """Connect to the queue manager of a spool: `spool`, else that of `instance`
    (/var/lib/omq-INSTANCE), else OMQ_SPOOL, else /var/lib/omq. A URL (amqps://USER@HOST/) is that
    of an amqp.server: a connection with the same calls as far as AMQP has them (ipc.client.remote).

    `timeout_s`: how long to wait for a manager that is away, now and later. `waiting`: called with
    a line for the user when a wait has lasted a second. SpoolMissing at once where there is no such
    directory; ManagerUnavailable, ManagerHung, AccessDenied; BadRequest when spool and instance
    contradict each other."""
    if spool is not None and not isinstance(spool, str | Path):
        raise arguments.wrong("spool", spool, "it is a path")
    if is_url(spool):
        return cast("Client", remote_client(str(spool), name, timeout_s))
    if instance is not None:
        arguments.text(instance, "instance")
    arguments.text(name, "name")
    timeout_s = arguments.seconds(timeout_s, "timeout_s")
    paths = existing_spool(chosen_spool(spool, instance))
    return Client(paths, names.check_client_name(name), timeout_s, waiting)


class Connection(EndsUnits, ActsById, PutsBarriers):
    """A registered client of a queue manager; made by `omq.connect`. A context manager.

    A connection has one request under way and belongs to one thread at a time (ConnectionBusy) and
    to one process (ConnectionForked): connect again in a thread, and after a fork.

    A put is acknowledged when it is on the disk. If the manager ends in between, the client waits
    for the next one (up to `timeout_s`), asks it what became of the request under way, and repeats
    it only if it was not carried out: exactly once, with the same message id. Settlements (done,
    defer, ...) likewise; a reader that outlives the manager keeps the messages that it holds."""

    def __init__(self, paths: SpoolPaths, name: str, timeout_s: float,
                 waiting: Waiting | None = None) -> None:
        self._wire = Wire(paths, name, timeout_s, waiting)
        self._link = self._wire.link
        self._reader: Reader | GroupReader | None = None
        self._unit: Unit | None = None
        self._replies: Reader | None = None  # the same, when it reads replies
        self._own_replies = ""  # the temporary queue that is for them

    def __repr__(self) -> str:
        return f"<omq.Connection {self._wire.name!r} to {self._wire.paths.root}>"

    # putting

    def put(self, queues: str | Sequence[str], body: bytes = b"", *,
            priority: int | str | None = None, properties: Mapping[str, Value] | None = None,
            persistent: bool | None = None, correlation_id: bytes | str = b"",
            message_id: bytes | str = b"", expiry_s: float | None = None,
            reply_to: str = "", delay_s: float = 0.0, at: datetime | None = None,
            group_id: bytes | str = b"", group_sequence: int = 0, last_in_group: bool = False,
            unique_key: bytes | str | None = None, outgoing: Outgoing | None = None) -> str:
        """Put one message on one queue, or on several at once; its id, which is text.

        Priority (0 to 9, or urgent, normal, low) and persistence are those of queues.conf for the
        (first) queue unless said. Behind `expiry_s` seconds nobody gets it, and it leaves its
        queues. Ids are up to 24 bytes, or a text, or what `put` returned. It is not handed out
        before `delay_s` seconds have passed, or before `at` (without a time zone: local time).
        Messages with one `group_id` go to one reader at a time, in order; `group_sequence` from 1
        and `last_in_group` make groups that can be had whole (`group_reader`). A queue with
        `dedupe_s` takes a `unique_key` (it is the message's id) once in that time.
        `outgoing`: all of it in one; then nothing else is given but the queues. It returns when the
        message is on the disk (not for persistent=False). BadArgument, UnknownQueue, QueueFull,
        MessageTooLong, PutInhibited, NoAuthority, SpoolFull."""
        if outgoing is None and properties is None and (plain := self._wire.body_alone(
                queues, body, priority, persistent, group_id,
                (correlation_id, message_id, expiry_s, reply_to, delay_s, at, group_sequence,
                 last_in_group, unique_key))) is not None:
            assert isinstance(queues, str)
            if put := self._wire.put_plain(plain, queues):
                return put
        message, listed = outgoing_of(
            self._wire, queues, body, priority=priority, properties=properties,
            persistent=persistent, correlation_id=correlation_id, message_id=message_id,
            expiry_s=expiry_s, reply_to=reply_to, delay_s=delay_s, at=at, group_id=group_id,
            group_sequence=group_sequence, last_in_group=last_in_group, unique_key=unique_key,
            outgoing=outgoing)
        return self._put(message, listed)

    def _put(self, message: Outgoing, queues: tuple[str, ...]) -> str:
        first = (message.queues or queues)[0]
        try:
            answer = self._wire.with_bodies((message,), queues,
                                            lambda new: self._wire.put_one(new[0], first))
        except DuplicateAbsorbed:  # and its container is removed
            return self._wire.id_text(0, message)
        return self._wire.id_text(answer.qpool, message)

    def put_many(self, queue: str, messages: Iterable[Outgoing | bytes]) -> list[str]:
        """Put many messages on a queue; their ids, in the order of `messages` (anything that can be
        iterated over; of a generator no more is taken than a request holds). Each request of a
        batch is all or nothing; more than fit into one request go in several, and a message with a
        delay, or that names queues of its own, goes by itself. The errors of `put`."""
        return put_many(self.put, self._wire, queue, messages)

    def put_pieces(self, queues: str | Sequence[str], pieces: Iterable[bytes] | BinaryIO,
                   outgoing: Outgoing | None = None) -> str:
        """Put one message whose body comes in pieces, or is a binary file; `outgoing` says all
        else. It is put with the last piece, or not at all. The errors of put."""
        from omq.ipc.client.body_pieces import put_pieces

        return put_pieces(self.put, self._wire, queues, pieces, outgoing)

    def put_file(self, queues: str | Sequence[str], file: str | os.PathLike[str] | BinaryIO | int,
                 outgoing: Outgoing | None = None, *, copy: bool = True) -> FilePut:
        """Put one message whose body is a file that is there: where spool and file are on one file
        system that can (XFS, Btrfs), their blocks are shared and nothing is copied. The file stays
        where it is; what is done to it later changes no message. `copy`: else it is copied, which
        the answer says; False: FileNotShared instead. `file`: its path, not a symbolic link,
        or a file that is open for reading. FileNotPut, FileChanged; the errors of put."""
        from omq.ipc.client.file_puts import put_file

        return put_file(self.put, self._wire, queues, file, outgoing, copy=copy)

    # requests

    def request(self, queue: str, body: bytes = b"", timeout_s: float = TIMEOUT_S, *,
                reply_to: str = REPLIES, properties: Mapping[str, Value] | None = None,
                priority: int | str | None = None, persistent: bool | None = None) -> Reply:
        """Put a message that wants an answer (`Message.reply`) and wait for it: a Reply, finished.

        `reply_to`: a queue that many requesters may share; each takes its own reply alone. "": a
        temporary queue of this connection, made with its first request. After `timeout_s` NoReply:
        the request is not served after that time, and its reply goes. The connection has no reader
        meanwhile (BadRequest). The errors of `put`."""
        arguments.queue(queue)
        timeout_s = arguments.seconds(timeout_s, "timeout_s")
        if not arguments.text(reply_to, "reply_to"):
            reply_to = self._own_replies = self._own_replies or self.queues.temporary()
        replies = self._replies
        if replies is None or replies.closed or replies.queue != reply_to:
            self._replies = replies = self.reader(arguments.queue(reply_to, "reply_to"))
        message, _ = outgoing_of(self._wire, queue, body, reply_to=reply_to, properties=properties,
                                 priority=priority, persistent=persistent, expiry_s=timeout_s,
                                 outgoing=None)
        return ask(replies, message, queue, timeout_s, self._put)

    # reading

    def reader(self, queue: str, *, batch: int = 1, auxiliary: bool = False, ack: str = PROMPT,
               where: str = "") -> Reader:
        """Register as a reader of a queue: main, or auxiliary (gets messages when there is a
        backlog). `batch`: how many messages are fetched at once, 1 to 1000. `ack`: "prompt", or
        "batch" when settlements may wait for the next request (omq.Reader). `where`: only messages
        that this selector of JMS chooses; others stay. One reader a connection. UnknownQueue,
        NoAuthority, BadArgument, BadSelector."""
        arguments.queue(queue)
        arguments.flag(auxiliary, "auxiliary")
        self._before_reader()
        self._reader = made = Reader(self._wire, queue, batch=batch, auxiliary=auxiliary, ack=ack,
                                     where=arguments.text(where, "where"))
        return made

    def _before_reader(self) -> None:
        if self._replies is not None:
            self._replies.close()  # it holds nothing between two requests
        if self._reader is not None and not self._reader.closed:
            raise BadRequest(reason="a connection has one reader, close the first one: "
                             f"it reads {self._reader.queue}")
        if self._unit is not None and self._unit.open:
            raise UnitOpen(what="a unit of work", wanted="the reader")

    def group_reader(self, queue: str, *, auxiliary: bool = False) -> GroupReader:
        """A reader of whole groups: given all messages of a group at once, when its last one and
        all before it are there, up to 1000. One a connection. The errors of `reader`."""
        from omq.ipc.client.group import GroupReader

        arguments.queue(queue)
        arguments.flag(auxiliary, "auxiliary")
        self._before_reader()
        self._reader = made = GroupReader(self._wire, queue, auxiliary=auxiliary)
        return made

    def unit(self) -> Unit:
        """A unit of work: it takes from several queues and puts on several, all or nothing. One at
        a time, and none while the connection has a reader: UnitOpen."""
        if self._replies is not None:
            self._replies.close()  # as for a reader
        if self._reader is not None and not self._reader.closed:
            raise UnitOpen(what="a reader", wanted="the unit of work")
        if self._unit is not None and self._unit.open:
            raise UnitOpen(what="a unit of work", wanted="another")
        self._link.check_open()
        self._unit = Unit(self._wire)
        return self._unit

    def browse(self, queue: str, limit: int = 0, where: str = "") -> Iterator[Browsed]:
        """The messages of a queue in the order in which they would be handed out, without touching
        them; at most `limit` (0: all). `where`: a selector of JMS, which those hold. For operators:
        NotOperator. UnknownQueue, BadSelector."""
        arguments.queue(queue)
        arguments.whole(limit, "limit", 0, limits.BROWSE_MAX)
        self._link.check_open()
        from omq.ipc.client.browsing import browse  # numpy, if any, is most of a start

        return browse(self._wire, queue, limit or limits.BROWSE_MAX, arguments.text(where, "where"))

    def body(self, message: int | str) -> bytes:
        """The body of a message that this client holds, or that lies on a queue where it has the
        right to browse; the message is not touched. `message`: its `qpool_id`, or the id that `put`
        returned if it was the manager's. NoMessage, BodyUnavailable, BodyDamaged."""
        if isinstance(message, str):
            message = arguments.own_id(message, "message", self._link.id_prefix)
        return self._wire.bodies.body(arguments.whole(message, "message", 1, (1 << 63) - 1))

    @property
    def queues(self) -> QueueCommands:
        """Queues made, changed, looked at and removed: `queues.define("NAME", ...)`."""
        return QueueCommands(self._wire)

    # the end

    def close(self) -> None:
        """Send what the reader has settled, give back what it holds, back out the unit of work that
        is open, say good-bye. A second time does nothing. The errors of a settlement that could not
        be sent."""
        try:
            if self._reader is not None and not self._reader.closed and self._link.mine:
                self._reader.close()
            if self._unit is not None and self._unit.open and self._link.mine:
                self._unit.backout()
        finally:
            self._wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if error is None:
            return self.close()
        if isinstance(error, ManagerUnavailable | TimedOut):
            return self._wire.close()  # it is not waited for once more
        try:
            self.close()
        except OmqError as second:
            error.add_note(f"omq: what was said of the messages could not be sent: {second}")


class Client(ToolCalls, Connection):
    """The same with what our own tools and daemons ask besides; no part of the public API."""


Client.__name__ = Client.__qualname__ = Connection.__name__  # what people see of it is a Connection
