"""What takes messages off one queue for one link, with a native connection of its own, in turns
(turning).

The event loop says how many it wants; a turn takes no more than that, makes bytes of AMQP of each,
and hands them over while there is room for their bytes; the rest is held as it was taken, so that
a hundred large ones are not in memory for one slow client. Settlements go the other way, in the
order in which they were said; a wait under way is ended for them, which loses nothing. A large body
goes in pieces, as they are read: no more of it is in memory than one.

Invariants: 1. what is taken and not handed over is given back by the end; 2. everything said before
`close` is carried out before the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Final, Protocol, TypeVar

from omq.aio.jobs import Call
from omq.aio.waiter import Waiter
from omq.base.errors import BodyDamaged, BodyUnavailable, ConnectionClosed, LeaseLost
from omq.base.limits import KIB
from omq.base.settings import Settings
from omq.ipc.client import parking
from omq.ipc.client.connection import Client
from omq.ipc.client.message import Message
from omq.ipc.client.reader import Reader
from omq.services.amqp import translation
from omq.services.amqp.arrival import PIECES_BYTES
from omq.services.amqp.heads import Heads
from omq.services.amqp.reader_turns import After, ReaderTurns
from omq.services.amqp.untranslatable import Untranslatable
from omq.services.daemon.thread_pool import ThreadPool

T = TypeVar("T")
SOON_MS: Final = 2
"""What is on the queue is there behind one sync: so long a turn waits for it, if no other link has
to wait for that. It saves two changes of threads."""
HERE_MAX, HERE_BYTES = 4, 16 * KIB
"""Messages that a turn in the event loop takes, and bytes of each: others wait meanwhile."""
HEARS: Final = 16
"""Such turns leave no bells unheard, but a thread's between them may: one of so many looks."""


@dataclass(slots=True)
class TakenMessage:
    """A message that was taken, or (without `native`) looked at: only the thread may use it. Or a
    piece of one: `begins` and `ends` say which; `broken`: it does not come to its end."""

    native: Message | None
    data: bytes
    begins: bool = True
    ends: bool = True
    broken: bool = False


class Ear(Protocol):
    """What a taker tells, in the event loop."""

    def began(self) -> None: ...
    def took(self, messages: list[TakenMessage], *, drained: bool) -> None: ...
    def ended_by(self, error: Exception | None) -> None: ...


class Taker(ReaderTurns):
    """See the module. Its methods are for the event loop. `message_max`: bytes of an encoded
    message that its client takes, 0: as many as amqp_message_bytes_max says of its body."""

    def __init__(self, connect: Callable[[], Client], queue: str, where: str, settings: Settings,
                 ear: Ear, hands: ThreadPool, message_max: int = 0) -> None:
        super().__init__(connect, queue, where, hands)
        self._message_max = message_max
        self._ear = ear
        self._batch_max = settings.amqp_batch_messages_max
        self._size_max = settings.amqp_message_bytes_max
        self._heads = Heads()
        self._found: deque[Message] = deque()  # taken, and not handed over
        self._pouring: tuple[Message, Iterator[bytes]] | None = None  # in pieces
        self._calls: deque[Call] = deque()
        self._limit = self._taken = 0  # messages, since the beginning
        self._bytes_limit = self._bytes = 0  # of those
        self._says: list[Callable[[], None]] = []
        self._light = 0  # settlements in these; -1: something else is among them
        self._thens: list[Callable[[], None]] = []
        self._draining = self._closing = False
        self._parked_at = 0, 0  # what was wanted then: how many more, of how many in all
        self._begin()

    def want(self, limit: int, bytes_limit: int, *, draining: bool = False) -> None:
        """So many since the beginning, those included that are on their way to the ear, and of so
        many bytes; one may go beyond that. Where it is lowered what is being asked for may still
        come. `draining`: those that are there now, and `took` says when that is all."""
        with self._guard:
            if ((limit, bytes_limit) == (self._limit, self._bytes_limit) and not draining
                    and not self._told):
                return
            lowered, self._limit = limit < self._limit, limit
            self._bytes_limit, self._draining = bytes_limit, self._draining or draining
            if lowered or draining or self._told:
                self._stir(soon=False)
            elif self._asked:  # a wait for messages under way goes on: the first one ends it
                self._stir(recalls=False, soon=False)

    def say(self, said: Callable[[], None], *, light: int = 0, wants: bool = False) -> None:
        """Settlements, carried out by a turn. `light`: so many, all of which only say done or
        release; 0: they may be anything. `wants`: `want` follows at once, and begins the turn."""
        with self._guard:
            self._keep(said, light)
            if not wants:
                self._stir()

    def _keep(self, said: Callable[[], None], light: int = 0) -> None:
        self._says.append(said)
        self._light = self._light + light if light and self._light >= 0 else -1

    def afterwards(self, then: Callable[[], None]) -> None:
        """Called by a turn when all that was said before is on the disk."""
        with self._guard:
            self._thens.append(then)
            self._stir()

    async def call(self, work: Callable[[Client, Reader], T]) -> T:
        """What a turn makes of the native connection, behind what was said before. The error of
        `work`; ConnectionClosed: there is no turn any more."""
        waiter = Waiter()

        def carried(native: Client) -> T:
            assert self._native is not None
            return work(native, self._native)

        with self._guard:
            if self._ended:
                raise ConnectionClosed(name=self.queue)
            self._calls.append(Call(carried, waiter))
            self._keep(self._carry_out)
            self._stir()
        found: T = await waiter.result()
        return found

    def put_back(self) -> None:
        """Give back what was taken and not handed over: nothing more is wanted."""
        self.want(0, 0)

        def back() -> None:
            while self._found:
                with suppress(LeaseLost):
                    self._found.popleft().release()

        self.say(back)

    def close(self) -> None:
        """Carry out what was said, give back the rest, end; `ended_by` is called."""
        with self._guard:
            self._closing = True
            self._stir()

    @property
    def _left(self) -> int:
        return self._limit - self._taken - len(self._found)

    @property
    def _told(self) -> bool:
        """There is something to do before more is taken."""
        return bool(self._says or self._thens or self._closing)

    @property
    def _asked(self) -> bool:
        if self._found or self._pouring:
            return self._room
        return self._draining or (self._left > 0 and self._room)

    @property
    def _room(self) -> bool:
        return self._bytes < self._bytes_limit

    # turns

    def _began(self) -> None:
        self._tell(self._ear.began)

    def _over(self, failed: Exception | None) -> None:
        with self._guard:
            calls, self._calls = self._calls, deque()
        for call in calls:
            call.fail(failed or ConnectionClosed(name=self.queue))
        self._tell(lambda: self._ear.ended_by(failed))

    def _carry_out(self) -> None:
        assert self._connection is not None
        with self._guard:
            call = self._calls.popleft()
        call.carry_out(self._connection)

    def _step(self) -> After:
        reader = self._native
        assert reader is not None
        with self._guard:
            self._taking = False
            if self._apart:
                self._changed.wait_for(lambda: self._told or self._asked)
            elif not (self._told or (self._recalled or self._rung if self._parked
                                     else self._asked)):
                return self._leave()
            now, self._rung, self._recalled = self._told or self._recalled, False, False
        if self._parked:
            self._collect(reader, now=now)
            return After.ANOTHER
        with self._guard:
            says, self._says, self._light = self._says, [], 0
            thens, self._thens = self._thens, []
            closing = self._closing
        if says:
            self._carry(reader, says)
        if thens:
            reader.flush()
        for then in thens:
            then()
        if closing:
            return After.THE_END
        if not self._take(reader) and says:
            reader.prompt()
        return After.ANOTHER

    @property
    def _quick(self) -> bool:
        return not (self._native is None or self._apart or self._thens or self._closing
                    or self._draining or self._light < 0)

    def _step_here(self) -> bool:
        """It settles and asks for a few messages, or hands on those that came. Who wants more,
        drains, ends or confirms needs a thread."""
        reader = self._native
        assert reader is not None
        if self._parked:
            return self._collect_here(reader)
        with self._guard:
            says, count = self._says, self._left
            if (not self._quick or self._found or self._pouring or not 0 < count <= HERE_MAX
                    or not self._room or not parking.carries(reader, self._light)):
                return False
            self._says, self._light = [], 0
            self._recalled = False
            self._park(count)
        self._carry(reader, says)
        if not self._parks % HEARS:
            parking.hear(reader)
        descriptor = parking.begin(reader, count)
        with self._guard:
            if descriptor < 0:
                self._rung = True
                return False
            self._park_here(descriptor)
        return True

    def _collect_here(self, reader: Reader) -> bool:
        with self._guard:
            if self._told or self._recalled or (found := parking.at_once(reader)) is None:
                return False
            self._rung = self._parked = False
        self._found.extend(found)
        if not self._room:
            return False
        for each in found:
            if not parking.at_hand(reader, each, HERE_BYTES):
                return False
        left, limit = self._parked_at
        self._hand_over(left - len(found), limit, draining=False, tell=_at_once)
        with self._guard:
            self._running = False
            if self._told or self._asked:
                self._go(soon=False)
        return True

    def _park(self, left: int) -> None:
        """`_changed` is held: a request for so many is to be under way."""
        self._parked, self._parked_at = True, (left, self._limit)
        self._parks += 1

    def _carry(self, reader: Reader, says: list[Callable[[], None]]) -> None:
        """They travel with the request for more, which follows; or `_step` looks to them."""
        reader.gathers = True
        try:
            for said in says:
                said()
        finally:
            reader.gathers = False

    def _take(self, reader: Reader) -> bool:
        """Whether a request was made."""
        with self._guard:
            if self._told or not self._asked:
                return False
            draining, left, limit = self._draining, max(0, self._left), self._limit
            count = 0 if self._found or self._pouring else min(left, self._batch_max)
            parks = count > 0 and not draining and not self._apart
            self._taking = count > 0 and not parks
            if parks:
                self._park(left)
        if parks:
            parking.hear(reader)
            if parking.begin(reader, count) < 0 or (
                    self._hands.spare and parking.rings_within(reader, SOON_MS)):
                self._rung = True
            return True
        if count:
            # A wake from here on ends the wait, this one or that which is about to begin.
            found = reader.next(count, timeout_s=0 if draining else None)
            left -= len(found) if len(found) == count else left  # 0: there are no more now
            self._found.extend(found)
        self._hand_over(left, limit, draining=draining)
        return count > 0

    def _collect(self, reader: Reader, *, now: bool) -> None:
        """The parked request, which may go on."""
        found = parking.finish(reader, now=now)
        if found is not None:
            left, limit = self._parked_at
            with self._guard:
                self._parked = False
            self._found.extend(found)
            self._hand_over(left - len(found), limit, draining=False)

    def _hand_over(self, left: int, limit: int, *, draining: bool,
                   tell: Callable[[Callable[[], None]], None] | None = None) -> None:
        """`left` of `limit` were wanted and are not there. Who wanted more meanwhile, of those
        that are there now, is not told that this was all: it is looked for once more."""
        given: list[TakenMessage] = []
        while (self._pouring or self._found) and self._room:
            each = self._piece(*self._pouring) if self._pouring else self._given(
                self._found.popleft())
            if each is not None:
                given.append(each)
                self._taken += each.begins
                self._bytes += len(each.data)
        drained = draining and not self._found and not self._pouring and left <= 0
        if drained:
            with self._guard:
                drained = self._limit <= limit
                self._draining = not drained
        if given or drained:
            (tell or self._tell)(lambda: self._ear.took(given, drained=drained))

    def _given(self, message: Message) -> TakenMessage | None:
        """None: it cannot be read; that is its own failure, it comes to POISON with the reason."""
        try:
            if message.size > self._size_max:
                raise Untranslatable("", f"{message.size} bytes are more than a client of AMQP is "
                                     f"given: {self._size_max} (amqp_message_bytes_max)")
            if message.size > PIECES_BYTES and (head := translation.encoded_head(message)):
                foot = translation.footer(message)
                fits_link(len(head) + message.size + len(foot), self._message_max)
                self._pouring = message, chain(message.pieces(), [foot] if foot else [])
                return TakenMessage(message, head, ends=False)
            data = self._heads.encoded(message)
            fits_link(len(data), self._message_max)
            return TakenMessage(message, data)
        except (BodyUnavailable, BodyDamaged, Untranslatable) as error:
            with suppress(LeaseLost):  # it was taken back meanwhile
                message.fail(str(error))
            return None

    def _piece(self, message: Message, pieces: Iterator[bytes]) -> TakenMessage:
        try:
            data = next(pieces, None)
        except (BodyUnavailable, BodyDamaged) as error:
            self._pouring = None
            with suppress(LeaseLost):
                message.fail(str(error))
            return TakenMessage(message, b"", begins=False, broken=True)
        if data is None:
            self._pouring = None
        return TakenMessage(message, data or b"", begins=False, ends=data is None)


def fits_link(size: int, message_max: int) -> None:
    """Untranslatable: the client says that it takes no message of so many bytes. It would end its
    link, attach anew, and be given the same one."""
    if 0 < message_max < size:
        raise Untranslatable("", f"{size} bytes with its properties are more than its receiver "
                             f"takes: {message_max} (max-message-size of its link)")


def _at_once(what: Callable[[], None]) -> None:
    what()
