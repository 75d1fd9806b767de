"""A connection to an amqp.server that looks like omq.Connection: `omq.connect("amqps://host/")`.

    put, put_many, put_pieces, request     as natively; a full queue makes them wait (TimedOut)
    reader, unit, browse                   taking, unit, here
    queues.temporary                       a queue that goes with the connection
    everything else                        NotRemote, with what to do instead

A message for several queues is put by a transaction: on all of them or on none. What the
configuration of a queue says of priority and persistence a remote program does not know: normal,
and persistent, unless it says so.

A line that breaks ends the connection (RemoteLost). Of a put that was under way nobody knows: put
it again under the same `unique_key` or message id, and look there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, BinaryIO, Final, NoReturn, Self

from omq.base import limits
from omq.base.errors import (
    BadRequest,
    NoReply,
    NotRemote,
    RemoteLost,
    TimedOut,
    UnitOpen,
)
from omq.ipc.client.body_pieces import checked
from omq.ipc.client.remote.line import Line
from omq.ipc.client.remote.links import (
    ACCEPTED,
    MODIFIED,
    RELEASED,
    DeliveryOutcome,
    Giving,
    Taking,
    refuse,
)
from omq.ipc.client.remote.message import RemoteRow
from omq.ipc.client.remote.taking import PROMPT, RemoteReader
from omq.ipc.client.remote.translated import decoded, encoded
from omq.ipc.client.remote.unit import RemoteUnit, Transaction
from omq.ipc.client.remote.url import hosts
from omq.ipc.client.request_reply import REPLIES, Reply
from omq.ipc.wire import arguments
from omq.ipc.wire.outgoing import Outgoing, as_outgoing

TIMEOUT_S: Final = 60.0
_SHARE_S: Final = 0.1  # of one host, at least
_BROWSED: Final = 100
"""Rows that are asked for at once."""


def _line(url: str, name: str, timeout_s: float) -> Line:
    """To the first host that answers; each has its share of the time that is left. RemoteLost,
    TimedOut: of the last one, when none does."""
    urls, deadline = hosts(url), time.monotonic() + timeout_s
    for i, each in enumerate(urls[:-1]):
        try:
            share = (deadline - time.monotonic()) / (len(urls) - i)
            line = Line(each, name, max(_SHARE_S, share))
        except (RemoteLost, TimedOut):
            continue
        line.timeout_s = timeout_s
        return line
    line = Line(urls[-1], name, max(_SHARE_S, deadline - time.monotonic()))
    line.timeout_s = timeout_s
    return line


class RemoteConnection:
    """See the module. One thread at a time; a context manager."""

    def __init__(self, url: str, name: str, timeout_s: float) -> None:
        self.line = _line(url, name, timeout_s)
        self._givers: dict[str, Giving] = {}
        self._coordinator: Giving | None = None
        self._reader: RemoteReader | None = None
        self._unit: RemoteUnit | None = None
        self._own: list[Taking] = []  # temporary queues
        self._own_replies = ""

    # putting

    def put(self, queues: str | Sequence[str], body: bytes = b"", *,
            outgoing: Outgoing | None = None, **more: Any) -> str:
        """As Connection.put, whose arguments it takes."""
        message = self.outgoing(queues, body, outgoing, **more)
        if len(message.queues) > 1:
            transaction = self.transaction()
            identifier = transaction.put(message)
            transaction.discharge()
            return identifier
        identifier, data = encoded(message)
        _accepted(message.queues[0], self._sent_again(message.queues[0], data))
        return identifier

    def outgoing(self, queues: str | Sequence[str], body: bytes, outgoing: Outgoing | None,
                 **more: Any) -> Outgoing:
        """What a put says, as a message that names its queues."""
        listed = (arguments.queue(queues),) if isinstance(queues, str) else arguments.queues(queues)
        if outgoing is not None:
            if body or any(value not in (None, b"", "", 0, {}, False) for value in more.values()):
                raise BadRequest(reason="an Outgoing has its own attributes: do not give them "
                                        "as arguments, too")
            made = outgoing
        else:
            known = {name: value for name, value in more.items()
                     if not (name == "properties" and value is None)}
            made = Outgoing(body=body, **known)
        if made.queues:
            return made
        if not listed:
            raise BadRequest(reason="a message needs a queue")
        return Outgoing(**{name: getattr(made, name) for name in _FIELDS if name != "queues"},
                        queues=listed)

    def _sent_again(self, queue: str, data: bytes) -> DeliveryOutcome:
        """What the server has no room for now comes back: the same again, until it is taken."""
        while (told := self.sent(queue, data)).state == RELEASED:
            pass
        return told

    def sent(self, queue: str, data: bytes, transaction: bytes = b"") -> DeliveryOutcome:
        """Send it and wait for what happens to it. TimedOut."""
        giver, line = self._giver(queue), self.line
        tag = line.until(lambda: giver.send(data, transaction), line.timeout_s)
        return line.until(lambda: giver.told(tag), line.timeout_s)

    def _giver(self, queue: str) -> Giving:
        giver = self._givers.get(queue)
        if giver is None or giver.error is not None:
            giver = Giving(self.line, arguments.queue(queue))
            giver.attach()
            self._givers[queue] = giver
        return giver

    def put_many(self, queue: str, messages: Iterable[Outgoing | bytes]) -> list[str]:
        """Sent as credit allows; their ids when all are on the disk. Each is by itself: after an
        error those before it are there, and some after it."""
        giver, line, ids = self._giver(queue), self.line, []
        under_way: dict[str, bytes] = {}
        for each in messages:
            identifier, data = encoded(as_outgoing(each))
            tag = line.until(lambda data=data: giver.send(data), line.timeout_s)  # type: ignore[misc]
            under_way[tag] = data
            ids.append(identifier)
            if len(under_way) >= limits.BATCH_MAX:
                self._all_told(queue, giver, under_way)
        self._all_told(queue, giver, under_way)
        return ids

    def _all_told(self, queue: str, giver: Giving, under_way: dict[str, bytes]) -> None:
        for tag, data in under_way.items():
            told = self.line.until(lambda tag=tag: giver.told(tag), self.line.timeout_s)  # type: ignore[misc]
            _accepted(queue, self._sent_again(queue, data) if told.state == RELEASED else told)
        under_way.clear()

    def put_pieces(self, queues: str | Sequence[str], pieces: Iterable[bytes] | BinaryIO,
                   outgoing: Outgoing | None = None) -> str:
        """The library sends from memory: all of it is there at once."""
        message = self.outgoing(queues, b"", outgoing or Outgoing())
        most = self._giver(message.queues[0]).most or limits.BODY_BYTES_MAX
        body = b"".join(checked(pieces, message.queues[0], most))
        made = {name: getattr(message, name) for name in _FIELDS if name != "body"}
        return self.put((), outgoing=Outgoing(**made, body=body))

    def length_max(self, queue: str) -> int:
        """Bytes of the longest message that the server takes."""
        return self._giver(queue).most or limits.BODY_BYTES_MAX

    # requests

    def request(self, queue: str, body: bytes = b"", timeout_s: float = TIMEOUT_S, *,
                reply_to: str = REPLIES, **more: Any) -> Reply:
        """As Connection.request; from a shared queue by a selector on the correlation."""
        timeout_s = arguments.seconds(timeout_s, "timeout_s")
        if not arguments.text(reply_to, "reply_to"):
            reply_to = self._own_replies = self._own_replies or self.queues.temporary()
        asked = Outgoing(body=body, queues=(arguments.queue(queue),), reply_to=reply_to,
                         expiry_s=timeout_s, **{key: value for key, value in more.items()
                                                if value is not None})
        identifier, data = encoded(asked)
        where = "" if reply_to == self._own_replies else f"correlation = '{identifier}'"
        with RemoteReader(self, reply_to, where=where) as replies:
            _accepted(queue, self._sent_again(queue, data))
            while found := replies.next(1, timeout_s):
                message = found[0]
                message.done()
                if message.correlation == identifier:
                    return Reply(message.body, message.properties, message.message_id,
                                 message.correlation, message.priority, message.persistent)
        raise NoReply(request=identifier, queue=queue, seconds=timeout_s, reply_to=reply_to)

    # reading

    def reader(self, queue: str, *, batch: int = 1, auxiliary: bool = False, ack: str = PROMPT,
               where: str = "") -> RemoteReader:
        """As Connection.reader; there are no auxiliary ones."""
        if auxiliary:
            raise NotRemote(what="an auxiliary reader", instead="several readers share a queue")
        self._check_free("the reader")
        self._reader = RemoteReader(self, arguments.queue(queue), batch=batch, ack=ack,
                                    where=arguments.text(where, "where"))
        return self._reader

    def unit(self) -> RemoteUnit:
        """As Connection.unit."""
        self._check_free("the unit of work")
        self._unit = RemoteUnit(self)
        return self._unit

    def _check_free(self, wanted: str) -> None:
        if self._reader is not None and not self._reader.closed:
            raise UnitOpen(what="a reader", wanted=wanted)
        if self._unit is not None and self._unit.open:
            raise UnitOpen(what="a unit of work", wanted=wanted)

    def transaction(self) -> Transaction:
        """A new one of the server's."""
        if self._coordinator is None:
            self._coordinator = Giving(self.line, None)
            self._coordinator.attach()
        return Transaction(self, self._coordinator)

    def browse(self, queue: str, limit: int = 0, where: str = "") -> Iterator[RemoteRow]:
        """As Connection.browse."""
        link = Taking(self.line, arguments.queue(queue), where=arguments.text(where, "where"),
                      copies=True)
        link.attach()
        return self._rows(link, arguments.whole(limit, "limit", 0, limits.BROWSE_MAX))

    def _rows(self, link: Taking, limit: int) -> Iterator[RemoteRow]:
        line, left = self.line, limit or limits.BROWSE_MAX
        try:
            while left:
                wanted = min(left, _BROWSED)
                line.until(lambda wanted=wanted: link.drain(wanted), line.timeout_s)  # type: ignore[misc]
                line.until(lambda: link.alive().is_drained or None, line.timeout_s)
                found = line.until(lambda: [link.found.popleft() for _ in range(len(link.found))],
                                   line.timeout_s)
                left -= len(found)
                for came in found:
                    yield RemoteRow(link.queue, decoded(came.data))
                if len(found) < wanted:
                    return
        finally:
            line.until(link.close, line.timeout_s)

    @property
    def queues(self) -> RemoteQueues:
        """Only `temporary` is there."""
        return RemoteQueues(self.line, self._own)

    def __getattr__(self, name: str) -> NoReturn:
        if name in _NATIVE:
            raise NotRemote(what=name, instead=_NATIVE[name])
        raise AttributeError(name)

    # the end

    def close(self) -> None:
        """As Connection.close."""
        try:
            if self._reader is not None and not self._reader.closed:
                self._reader.close()
            if self._unit is not None and self._unit.open:
                self._unit.backout()
        finally:
            self.line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if isinstance(error, RemoteLost | TimedOut):
            self.line.close()
        else:
            self.close()


class RemoteQueues:
    """What of omq.Connection.queues there is."""

    def __init__(self, line: Line, own: list[Taking]) -> None:
        self._line, self._own = line, own

    def temporary(self) -> str:
        """A queue of this connection."""
        link = Taking(self._line, "")
        link.attach()
        self._own.append(link)
        return link.queue

    def __getattr__(self, name: str) -> NoReturn:
        raise NotRemote(what=f"queues.{name}", instead="omq queue, on the host itself")


_FIELDS: Final = tuple(Outgoing.__dataclass_fields__)
_NATIVE: Final = {
    "group_reader": "a reader is given the messages of a group one at a time",
    "units_in_doubt": "omq units, on the host itself",
    "commit_unit": "omq units, on the host itself",
    "back_out_unit": "omq units, on the host itself",
    "cancel": "omq cancel, on the host itself",
    "state": "omq cancel --state, on the host itself",
    "body": "browse gives the body with the row",
    "put_file": "put_pieces with the file, open for reading",
}


def _accepted(queue: str, told: DeliveryOutcome) -> None:
    """It is on the disk, or the error."""
    if told.state == ACCEPTED:
        return
    if told.state == MODIFIED:
        raise RemoteLost(url=queue, reason="the server does not know whether it was put")
    refuse(queue, told)
