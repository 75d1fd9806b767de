"""A thread that looks at the messages of one queue for one link, without touching them.

A browse sees the queue as it is while it goes on, from its beginning to its end; then the link
stays open and nothing more comes. Like a Taker, but for settlements, of which there are none.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from omq.base.errors import BodyDamaged, BodyUnavailable, NoMessage
from omq.base.settings import Settings
from omq.ipc.client.browsed import Browsed
from omq.ipc.client.connection import Client
from omq.services.amqp import translation
from omq.services.amqp.taker import Ear, TakenMessage, fits_link
from omq.services.amqp.untranslatable import Untranslatable


class Browser:
    """Its methods are for the event loop. `message_max`: as of a Taker; what is longer is left
    out."""

    def __init__(self, connect: Callable[[], Client], queue: str, where: str, settings: Settings,
                 ear: Ear, message_max: int = 0) -> None:
        self._connect, self._queue, self._where = connect, queue, where
        self._batch_max, self._ear = settings.amqp_batch_messages_max, ear
        self._size_max, self._message_max = settings.amqp_message_bytes_max, message_max
        self._loop = asyncio.get_running_loop()
        self._changed: Final = threading.Condition()
        self._limit = self._seen = self._bytes_limit = self._bytes = 0
        self._draining = self._closing = self._at_end = False
        self._thread = threading.Thread(target=self._serve, name=f"omq amqp {queue}", daemon=True)
        self._thread.start()

    def want(self, limit: int, bytes_limit: int, *, draining: bool = False) -> None:
        """As of a Taker."""
        with self._changed:
            self._limit, self._draining = limit, self._draining or draining
            self._bytes_limit = bytes_limit
            self._changed.notify()

    def say(self, said: Callable[[], None], *, light: int = 0, wants: bool = False) -> None:
        """Nothing is settled here."""

    def afterwards(self, then: Callable[[], None]) -> None:
        then()

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    # the thread

    def _serve(self) -> None:
        failed: Exception | None = None
        try:
            with self._connect() as connection:
                rows = connection.browse(self._queue, where=self._where)
                self._tell(self._ear.began)
                while self._wait():
                    with self._changed:
                        draining, self._draining = self._draining, False
                        count = max(0, min(self._limit - self._seen, self._batch_max))
                    given = self._next(rows, count)
                    drained = draining and (self._at_end or self._seen >= self._limit)
                    self._draining = self._draining or (draining and not drained)
                    self._tell(partial(self._ear.took, given, drained=drained))
        except Exception as error:  # the link's, whatever it is
            failed = error
        self._tell(lambda: self._ear.ended_by(failed))

    def _next(self, rows: Iterator[Browsed], count: int) -> list[TakenMessage]:
        given: list[TakenMessage] = []
        while len(given) < count and self._bytes < self._bytes_limit and not self._at_end:
            row = next(rows, None)
            if row is None:
                self._at_end = True
            elif (each := self._given(row)) is not None:
                given.append(each)
                self._seen += 1
                self._bytes += len(each.data)
        return given

    def _wait(self) -> bool:
        """Whether to look on; a drain is answered at once where nothing more may come."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or (
                self._draining and (self._at_end or self._limit <= self._seen)) or (
                self._limit > self._seen and not self._at_end
                and self._bytes < self._bytes_limit))
            return not self._closing

    def _tell(self, what: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(what)

    def _given(self, row: Browsed) -> TakenMessage | None:
        """None: it went while it was looked at, or is nothing for a client of AMQP."""
        try:
            if row.size > self._size_max:
                return None
            data = translation.encoded(row)
            fits_link(len(data), self._message_max)
            return TakenMessage(None, data)
        except (BodyUnavailable, BodyDamaged, NoMessage, Untranslatable):
            return None
