"""What a channel publishes: contents are put together, put on their queues, and confirmed.

A confirm is sent when the message is on the disk. What comes while a batch is being put goes
together in the next one. A queue that takes nothing now is tried again; the client's line is read
no further while more than BEHIND_MAX messages or BEHIND_BYTES of it wait.

Invariants: 1. a message is confirmed after `put` returned, or refused (basic.nack) with an event;
what has no queue is returned if it is mandatory, and confirmed: its client has said that it does
not care; 2. one channel's messages for a queue are put in the order in which they came; 3. `room`
has what is held here.

Crash argument: as of a link of AMQP 1.0 (services.amqp.incoming): before the confirm the client
knows nothing, and publishes again what it has not heard of.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from pamqp import commands

from omq.format.amqp_types import Malformed
from omq.ipc.wire.outgoing import Outgoing
from omq.services.amqp.memory import OVERHEAD_BYTES
from omq.services.amqp.putter import Fate, PutResult
from omq.services.amqp.translation import Terms
from omq.services.amqp091 import translation
from omq.services.amqp091.refusals import (
    ACCESS_REFUSED,
    CONTENT_TOO_LARGE,
    NO_ROUTE,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    RESOURCE_ERROR,
    UNEXPECTED,
    Refused,
    code_of,
)
from omq.services.amqp091.routing import NOWHERE, Published, Routing

if TYPE_CHECKING:
    from omq.services.amqp091.channel import Channel

BEHIND_MAX: Final = 2000
BEHIND_BYTES: Final = 4 << 20
HEAD_COST: Final = 4
"""Memory of a header's properties and of what is made of them, by their bytes."""
PATTERNS_MAX: Final = 64
PATTERN_BYTES: Final = 256
"""Of properties that are remembered with what was made of them: in a channel, and of one."""


def _no_room() -> Refused:
    return Refused(RESOURCE_ERROR, "no room now (amqp_memory_bytes_max or that of a user)")


class Publishing:
    """Of one channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel, self._session = channel, channel.session
        self._host = channel.session.host
        self.confirms = False
        self.routing = Routing(channel.session)
        self.published = 0
        self._count = 0  # published, since confirms are wanted
        self._begun: tuple[str, str, bool] | None = None  # basic.publish, whose content is coming
        self._size = -1  # of its body, when its header came
        self._raw = b""  # its properties
        self._body = b""
        self._parts = bytearray()  # of a body in several frames
        self._came = 0  # bytes of it
        self._patterns: dict[tuple[bytes, str, str, bool], Outgoing] = {}
        self._head = 0  # reckoned for the header
        self._waiting: deque[Published] = deque()
        self._put_tags: list[int] = []  # put, and not confirmed yet
        self._bytes = 0
        self._room = self._host.room(channel.session.user_name)
        self._task: asyncio.Task[None] | None = None
        self._under_way = False  # some of them, without it
        self._calm = asyncio.Event()
        self._calm.set()
        self._over = False

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    @property
    def behind(self) -> bool:
        """Too much waits here."""
        return len(self._waiting) > BEHIND_MAX or self._bytes > BEHIND_BYTES

    async def calm(self) -> None:
        """Until what came before is put, or a queue does not take it now."""
        await self._calm.wait()

    # what comes

    def begin(self, exchange: str, key: str, *, mandatory: bool, immediate: bool) -> None:
        """Refused."""
        if immediate:
            raise Refused(NOT_IMPLEMENTED, "immediate=true")
        if self._begun is not None:
            raise Refused(UNEXPECTED, "a method where a content was to come")
        self._begun = exchange, key, mandatory

    def header(self, body_size: int, properties: bytes) -> None:
        """Refused."""
        if self._begun is None or self._size >= 0:
            raise Refused(UNEXPECTED, "a header without a method")
        if body_size > self._host.policy.settings.amqp_message_bytes_max:
            self._begun = None
            raise Refused(CONTENT_TOO_LARGE, "it has more than amqp_message_bytes_max bytes")
        self._size, self._raw, self._head = body_size, properties, HEAD_COST * len(properties)
        self._room.hold(self._head)
        if not body_size:
            self._whole(b"")
        elif self._room.full:  # a header on each channel, and nothing more
            raise _no_room()

    def body(self, data: bytes) -> None:
        """Refused."""
        if self._size < 0:
            raise Refused(UNEXPECTED, "a body without a header")
        if len(data) == self._size:  # the usual one
            self._whole(data)
            return
        self._came += len(data)
        self._room.hold(len(data))
        if self._came > self._size:
            raise Refused(UNEXPECTED, "a body beyond its size")
        if self._room.full:
            raise _no_room()
        self._parts += data
        if self._came == self._size:
            self._whole(bytes(self._parts))

    def _whole(self, body: bytes) -> None:
        assert self._begun is not None
        exchange, key, mandatory = self._begun
        size = len(body) + self._head + OVERHEAD_BYTES
        self._room.hold(size - self._came - self._head)
        raw, self._begun, self._size, self._came, self._head = self._raw, None, -1, 0, 0
        if self._parts:
            self._parts = bytearray()
        self._count += self.confirms
        self.published += 1
        if self._room.full:  # also of what has no body
            self._room.release(size)
            raise _no_room()
        try:
            new = Published(self._count if self.confirms else 0, exchange, key, mandatory, raw,
                            self._message(raw, exchange, key, body), size)
            if self._channel.work is not None:
                self._channel.work.put(new)
                return
        except (Refused, Malformed):
            self._room.release(size)
            raise
        self._bytes += size
        self._waiting.append(new)
        self._calm.clear()
        self._session.published.add(self)

    def _message(self, raw: bytes, exchange: str, key: str, body: bytes) -> Outgoing:
        """What says the same as one before, but for its body, is not read again. Refused."""
        threshold = self._host.threshold
        said = raw, exchange, key, len(body) > threshold
        pattern = self._patterns.get(said)
        if pattern is not None:
            return pattern.with_body(body)
        made = translation.outgoing(raw, body, Terms(
            self._session.user_name, settled=False, threshold=threshold), exchange, key)
        if len(raw) <= PATTERN_BYTES:
            if len(self._patterns) >= PATTERNS_MAX:
                self._patterns.clear()
            self._patterns[said] = made.with_body(b"")
        return made

    def release(self, some: list[Published]) -> None:
        """A transaction has no more need of these."""
        self._room.release(sum(each.size for each in some))

    def ended(self) -> None:
        """The channel is over: what is here is put, for nobody said that it is not wanted; who
        wanted confirms learns nothing, and publishes it again."""
        self._over = True
        self.put()
        self._room.release(self._came + self._head)
        self._parts, self._came, self._head = bytearray(), 0, 0

    def recheck(self) -> None:
        """Rights have changed: names are resolved anew."""
        self.routing.forget()

    # the work

    def put(self) -> None:
        """What came together goes to its queue, if no batch is on its way there."""
        if self._under_way or self._task is not None or not self._waiting:
            return
        some = self._first()
        where = some[0].where
        queues = self.routing.known(where)
        if queues is not None and self._host.quick.begin(
                queues, [each.message for each in some],
                lambda told: self._session.at_once(
                    lambda: self._quickly(some, self.routing.judged(where, told)))):
            self._under_way = True
            return
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def _quickly(self, some: list[Published], told: list[PutResult]) -> None:
        """They are put, without the task."""
        try:
            self._under_way = False
            self._told_of(some, told)
            if told and told[-1].fate is Fate.LATER:  # it tries again, and again
                self._task = asyncio.get_running_loop().create_task(self._serve())
            elif self._waiting:
                self.put()
            else:
                self._calm.set()
        except Exception as error:
            self._host.failed(self._session, error)  # aborts it

    async def _serve(self) -> None:
        try:
            while self._waiting:
                await self._put_some()
        except Exception as error:
            self._host.failed(self._session, error)  # aborts it
        finally:
            self._task = None
            self._calm.set()

    async def _put_some(self) -> None:
        some = self._first()
        first = some[0]
        told = await self.routing.put(first.where, [each.message for each in some])
        self._told_of(some, told)
        if told and told[-1].fate is Fate.LATER:
            self._host.full(self._session, first.key, told[-1].error)
            self._calm.set()
            if self._over:  # nobody waits for these any more, and their queue does not take them
                self._give_up(told[-1])
                return
            await asyncio.sleep(self._host.policy.settings.amqp_retry_ms / 1000)

    def _first(self) -> list[Published]:
        """Those that go together: to one place, in the order in which they came."""
        most = self._host.policy.settings.amqp_batch_messages_max
        first = self._waiting[0]
        exchange, key = first.exchange, first.key
        some: list[Published] = []
        for each in self._waiting:
            if each.key != key or each.exchange != exchange or len(some) >= most:
                break
            some.append(each)
        return some

    def _told_of(self, some: list[Published], told: list[PutResult]) -> None:
        """Those that have a fate are answered, and gone from here."""
        size = 0
        for each, fate in zip(some, told, strict=False):
            if fate.fate is Fate.LATER:
                break
            self._waiting.popleft()
            size += each.size
            if fate.fate is Fate.PUT:
                if each.tag:
                    self._put_tags.append(each.tag)
            else:
                self._answer(each, fate)
        self._bytes -= size
        self._room.release(size)
        self._confirm_put()
        self._session.look()

    def _answer(self, each: Published, told: PutResult) -> None:
        """One that was not put."""
        channel = self._channel
        if told in NOWHERE:
            self.returned(each)
            if each.tag:
                self._put_tags.append(each.tag)
            return
        self._confirm_put()
        self._session.told_refused(str(told.error))
        if self._over:
            return
        code = code_of(told.error)
        if code == ACCESS_REFUSED or (each.exchange and code == NOT_FOUND):
            channel.refuse(Refused(code, str(told.error)), commands.Basic.Publish)
        else:
            if each.tag:
                channel.send(commands.Basic.Nack(each.tag))

    def returned(self, each: Published) -> None:
        """No queue is there for it: back to its client, if that wants it back. Else who publishes
        has said that it may be lost; a queue that is not there is an event for the operator."""
        if not each.mandatory:
            if not each.exchange:
                self._session.told_refused(
                    f"{each.key[:64]!r} is not a queue: the message is dropped")
        elif not self._over:
            self._channel.send_content(
                commands.Basic.Return(NO_ROUTE, "NO_ROUTE", each.exchange, each.key),
                translation.head_again(each.raw, len(each.message.body)), each.message.body)

    def _confirm_put(self) -> None:
        """Messages are answered in the order in which they came, so one confirm is for all before
        it."""
        tags, self._put_tags = self._put_tags, []
        if tags and not self._over:
            self._channel.confirm(tags[-1], multiple=len(tags) > 1)

    def _give_up(self, told: PutResult) -> None:
        self._session.told_refused(f"{len(self._waiting)}: their sender has gone, and {told.error}")
        while self._waiting:
            self._room.release(self._waiting.popleft().size)
        self._bytes = 0
