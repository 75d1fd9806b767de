"""Messages that programs got over the API and have not settled: each get has a connection of its
own.

A program names a delivery, not a connection, so the console keeps the reader for it. Invariants: 1.
a delivery is settled by its caller alone, once; 2. what is not settled in web_hold_s goes back
untouched when its reader is closed, and at the latest when this process ends; 3. at most
web_holders_max gets are open, web_user_holders_max of one user. The threads here wait for messages;
they are none of those that look for pages.

Errors: ConsoleBusy, DeliveryUnknown, and those of a reader.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from omq.base.errors import BadRequest, ConsoleBusy, DeliveryUnknown, OmqError
from omq.base.settings import Settings
from omq.ipc.client import Client
from omq.ipc.message import Message
from omq.ipc.reader import Reader

WAIT_MAX_S: Final = 20.0
COUNT_MAX: Final = 100
ENDS: Final = ("done", "fail", "release", "defer")


@dataclass(slots=True, eq=False)
class Holder:
    """One get: its reader, and what it holds, by the names of deliveries."""

    user: str
    owner: str
    client: Client
    reader: Reader
    until: float
    messages: dict[str, Message] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def close(self) -> None:
        """What it holds goes back."""
        with suppress(OmqError):  # a manager that is away takes it back by itself
            self.reader.close()
        with suppress(OmqError):
            self.client.close()


class Holders:
    """See the module. For the event loop."""

    def __init__(self, settings: Settings, connect: Callable[[], Client]) -> None:
        self._settings, self._connect = settings, connect
        self._of: dict[str, Holder] = {}  # by delivery
        self._open = Counter[str]()  # of each user
        self._threads = ThreadPoolExecutor(settings.web_holders_max, thread_name_prefix="get")

    def __len__(self) -> int:
        return self._open.total()

    async def get(self, user: str, owner: str, queue: str, count: int, wait_s: float,
                  ask: Callable[[Client], object]) -> Sequence[tuple[str, Message]]:
        """Up to so many messages, each with the name of its delivery. `owner`: who alone can settle
        them, a user or one of his tokens. `ask`: with the connection that takes them; it raises if
        the owner may not."""
        for most, key, open_ in ((self._settings.web_holders_max, "web_holders_max", len(self)),
                                 (self._settings.web_user_holders_max, "web_user_holders_max",
                                  self._open[user])):
            if open_ >= most:
                raise ConsoleBusy(what=f"{open_} gets are not settled yet ({key})", seconds=1)
        self._open[user] += 1
        loop = asyncio.get_running_loop()
        try:
            holder, found = await loop.run_in_executor(
                self._threads, self._take, user, owner, queue, count, wait_s, ask)
        except BaseException:
            self._left(user)
            raise
        for message in found:
            name = secrets.token_urlsafe(16)
            holder.messages[name] = message
            self._of[name] = holder
        if not found:
            await self._end(holder)
        return list(holder.messages.items())

    def _take(self, user: str, owner: str, queue: str, count: int, wait_s: float,
              ask: Callable[[Client], object]) -> tuple[Holder, list[Message]]:
        client = self._connect()
        try:
            ask(client)
            reader = client.reader(queue, batch=count)
            found = reader.next(timeout_s=wait_s)
            for message in found:
                assert message.body is not None  # read here: damage is told, not handed out
        except BaseException:
            client.close()
            raise
        until = time.monotonic() + self._settings.web_hold_s
        return Holder(user, owner, client, reader, until), found

    async def settle(self, owner: str, delivery: str, end: str, seconds: float, reason: str
                     ) -> None:
        """The end of the work on one message. DeliveryUnknown."""
        if end not in ENDS:
            raise BadRequest(reason=f"end is one of {', '.join(ENDS)}")
        holder = self._of.get(delivery)
        if holder is None or holder.owner != owner:
            raise DeliveryUnknown(delivery=delivery[:64])
        async with holder.lock:
            message = holder.messages.pop(delivery, None)
            if message is None or self._of.pop(delivery, None) is None:
                raise DeliveryUnknown(delivery=delivery[:64])
            loop = asyncio.get_running_loop()
            try:
                await loop.run_in_executor(self._threads, _settle, holder, message, end, seconds,
                                           reason)
            finally:
                if not holder.messages:
                    await self._end(holder)

    async def sweep(self, now: float) -> None:
        """Those whose time is over."""
        for holder in {each for each in self._of.values() if each.until <= now}:
            async with holder.lock:
                for name in holder.messages:
                    self._of.pop(name, None)
                if holder.messages:
                    holder.messages.clear()
                    await self._end(holder)

    async def close(self) -> None:
        """All of them."""
        await self.sweep(float("inf"))
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _left(self, user: str) -> None:
        self._open[user] -= 1
        self._open += Counter()  # drops the zeros

    async def _end(self, holder: Holder) -> None:
        self._left(holder.user)
        await asyncio.get_running_loop().run_in_executor(self._threads, holder.close)


def _settle(holder: Holder, message: Message, end: str, seconds: float, reason: str) -> None:
    if end == "done":
        message.done()
    elif end == "fail":
        message.fail(reason)
    elif end == "defer":
        message.defer(seconds, reason)
    else:
        message.release()
    holder.reader.flush()
